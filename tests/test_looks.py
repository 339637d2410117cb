"""How pictures look: colours, and figures that a notebook shows."""

import pickle

import numpy as np
import pytest

from obrs import Profile, diagnose, evaluate
from obrs.ratios.plot import plot_diagnosis

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("which", ["profile", "diagnosis", "evaluation"])
def test_a_notebook_shows_the_figure_that_a_cell_returns(which):
    rng = np.random.default_rng(0)
    if which == "profile":
        figure = Profile(rng.normal(size=500)).plot()
    elif which == "diagnosis":
        figure = plot_diagnosis(diagnose(rng.normal(0.5, 1, 500), rng.normal(-0.5, 1, 500), budget=2))
    else:
        real, fake = rng.normal(size=(2, 300, 2))
        figure = evaluate(real=real, fake=fake, log_ratio=fake[:, 0], budgets=[1, 2]).plot()
    for each in (figure, pickle.loads(pickle.dumps(figure))):
        assert each._repr_png_().startswith(b"\x89PNG\r\n"), "what IPython asks for"
