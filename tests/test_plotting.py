"""Pictures of a profile: what they show, and that they survive odd profiles."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from obrs import Profile, diagnose, evaluate, plot_profile
from obrs.errors import BudgetError, InputError, InputTypeError
from obrs.looks import LOOKS, budget_colours
from obrs.ratios.plotting import plot_diagnosis

pytest.importorskip("matplotlib")


def test_picture_has_four_panels_with_one_line_per_budget(tmp_path):
    figure = plot_profile(Profile(np.random.default_rng(0).normal(size=2000)), budgets=[1.5, 2, 4])
    ratios, acceptance, curves, left = figure.axes
    assert len(curves.lines) == 4
    assert len(acceptance.lines) == 4
    assert len(ratios.lines) == 3
    assert left.get_ylim()[0] == 0
    for axes in figure.axes:
        assert axes.get_title("left")
        assert axes.get_xlabel()
    figure.savefig(tmp_path / "profile.png")
    assert (tmp_path / "profile.png").stat().st_size > 20_000


def drawn_by(which):
    rng = np.random.default_rng(0)
    if which == "profile":
        return plot_profile(Profile(rng.normal(size=500)))
    if which == "diagnosis":
        return plot_diagnosis(diagnose(rng.normal(0.5, 1, 500), rng.normal(-0.5, 1, 500), budget=2))
    real, fake = rng.normal(size=(2, 300, 2))
    return evaluate(real=real, fake=fake, log_ratio=fake[:, 0], budgets=[1, 2]).plot()


@pytest.mark.parametrize("which", ["profile", "diagnosis", "evaluation"])
def test_a_notebook_shows_the_figure_that_a_cell_returns(which):
    figure = drawn_by(which)
    assert figure._repr_png_().startswith(b"\x89PNG\r\n"), "what IPython asks for"
    again = pickle.loads(pickle.dumps(figure))
    assert again._repr_png_().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [0.0, -np.inf, -np.inf], [0.0, 900.0], list(range(-5, 5))])
def test_odd_profiles_can_be_drawn(values, tmp_path):
    plot_profile(Profile(values), budgets=[4]).savefig(tmp_path / "odd.png")
    assert (tmp_path / "odd.png").exists()


def test_bad_input_gets_one_clear_line():
    profile = Profile([0.0, 1.0])
    with pytest.raises(InputTypeError, match=r"use Profile\(log_ratio\)"):
        plot_profile([0.0, 1.0])
    with pytest.raises(BudgetError, match="at least 1"):
        plot_profile(profile, [0.5])
    with pytest.raises(InputError, match="at most six"):
        plot_profile(profile, range(1, 9))


def test_importing_the_module_does_not_load_matplotlib():
    code = "import sys, obrs.plotting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_colours_come_from_one_place():
    root = Path(__file__).parents[1]
    code = [
        path for room in ("src", "paper", "examples", "benchmarks", "tools") for path in (root / room).rglob("*.py")
    ]
    own = {str(path): found for path in code if (found := re.findall(r"[\"']#[0-9a-fA-F]{6}[\"']", path.read_text()))}
    named = {name: found for name, found in own.items() if not name.endswith(("obrs/looks.py", "paper/style.py"))}
    assert not named, "take colours from obrs.looks, or from paper.style"


@pytest.mark.parametrize("budgets", [[1, 1.5, 2, 5], [5, 1.5, 1, 2], [2, 8], [8, 2], [4, 2, 4]])
def test_budgets_get_darker_blues_and_the_model_its_own_colour(budgets):
    colours = dict(zip(budgets, budget_colours(budgets), strict=True))
    assert budget_colours(budgets) == [colours[k] for k in budgets]  # one colour for one budget
    assert colours.pop(1, LOOKS["model"].colour) == LOOKS["model"].colour
    blues = [colours[k] for k in sorted(colours)]
    brightness = [sum(int(colour[at : at + 2], 16) for at in (1, 3, 5)) for colour in blues]
    assert brightness == sorted(set(brightness), reverse=True)


def test_a_new_figure_has_our_style_and_a_figure_of_the_user_keeps_his():
    import matplotlib
    from matplotlib.figure import Figure

    profile = Profile(np.random.default_rng(0).normal(size=500))
    with matplotlib.rc_context({"axes.titlesize": 20}):
        ours, theirs = plot_profile(profile), plot_profile(profile, figure=Figure())
    assert ours.axes[0].title.get_fontsize() != 20
    assert theirs.axes[0].title.get_fontsize() == 20
