"""How pictures look: colours, and figures that a notebook shows."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from obrs import Profile, diagnose, evaluate
from obrs.looks import LOOKS, budget_colours
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


def test_colours_come_from_one_place():
    root = Path(__file__).parents[1]
    code = [
        path for room in ("src", "paper", "examples", "benchmarks", "tools") for path in (root / room).rglob("*.py")
    ]
    own = {str(path): found for path in code if (found := re.findall(r"[\"']#[0-9a-fA-F]{6}[\"']", path.read_text()))}
    named = {name: found for name, found in own.items() if not name.endswith(("obrs/looks.py", "paper/style.py"))}
    assert not named, "take colours from obrs.looks, or from paper.style"


@pytest.mark.parametrize("budgets", [[5, 1.5, 1, 2], [2, 8], [4, 2, 4]])
def test_budgets_get_darker_blues_and_the_model_its_own_colour(budgets):
    colours = dict(zip(budgets, budget_colours(budgets), strict=True))
    assert budget_colours(budgets) == [colours[k] for k in budgets]  # one colour for one budget
    assert colours.pop(1, LOOKS["model"].colour) == LOOKS["model"].colour
    blues = [colours[k] for k in sorted(colours)]
    brightness = [sum(int(colour[at : at + 2], 16) for at in (1, 3, 5)) for colour in blues]
    assert brightness == sorted(set(brightness), reverse=True)
