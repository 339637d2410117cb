"""Pictures of a profile: what they show, and that they survive odd profiles."""

import subprocess
import sys

import numpy as np
import pytest

from obrs import Profile, plot_profile
from obrs.errors import BudgetError, InputError, InputTypeError

pytest.importorskip("matplotlib")


def test_picture_has_four_panels_with_one_line_per_budget(tmp_path):
    figure = plot_profile(Profile(np.random.default_rng(0).normal(size=2000)), budgets=[1.5, 2, 4])
    ratios, acceptance, curves, left = figure.axes
    assert len(curves.lines) == 4
    assert len(acceptance.lines) == 4
    assert len(ratios.lines) == 3
    assert left.get_ylim()[0] == 0
    for axes in figure.axes:
        assert axes.get_title()
        assert axes.get_xlabel()
    figure.savefig(tmp_path / "profile.png")
    assert (tmp_path / "profile.png").stat().st_size > 20_000


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
