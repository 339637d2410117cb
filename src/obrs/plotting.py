"""Pictures of a profile. Matplotlib is imported when a picture is drawn, not before."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from ._checks import check_budget
from .errors import InputError, InputTypeError
from .looks import LOOKS, budget_colours, styled
from .looks import figure as new_figure
from .profile import Profile

__all__ = ["plot_profile"]

_MODEL, _EXACT = LOOKS["model"], LOOKS["exact"]


def plot_profile(profile: Profile, budgets: Iterable[float] = (2.0, 4.0), *, figure: Any = None) -> Any:
    """Draw a profile: ratios, acceptance, precision and recall, and divergence against the budget.

    Args:
        profile: The profile.
        budgets: Budgets to show, at most six.
        figure: A matplotlib figure to draw into, with your settings; by default a new one in the style of this library,
            which a notebook shows.

    Returns:
        The matplotlib figure; save it with `figure.savefig("profile.png")`.

    Example:
        >>> profile = Profile(np.random.default_rng(0).normal(size=1000))
        >>> len(plot_profile(profile, budgets=[2, 8]).axes)
        4
    """
    if not isinstance(profile, Profile):
        raise InputTypeError(f"plot_profile draws a Profile, got {type(profile).__name__}; use Profile(log_ratio)")
    if not isinstance(budgets, Iterable):
        raise InputTypeError(f"budgets must be a list of budgets, got {budgets!r:.60}")
    budgets = [check_budget(k) for k in budgets]
    if len(budgets) > 6:
        raise InputError(f"at most six budgets can be told apart in one picture, got {len(budgets)}")
    if figure is not None and not hasattr(figure, "subplots"):
        raise InputTypeError(f"figure must be a matplotlib figure, got {type(figure).__name__}")
    drawn = new_figure(10, 7, who="plot_profile") if figure is None else figure
    with styled() if figure is None else nullcontext():
        ratios, acceptance, curves, left = drawn.subplots(2, 2).flat
        _draw_ratios(ratios, profile, budgets)
        _draw_acceptance(acceptance, profile, budgets)
        _draw_curves(curves, profile, budgets)
        _draw_left(left, profile, budgets)
        for axes in (ratios, acceptance, curves, left):
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize=8)
    return drawn


def _draw_ratios(axes: Any, profile: Profile, budgets: Sequence[float]) -> None:
    value, mass = profile.sorted_log_ratio
    axes.hist(value, bins=80, weights=mass, density=True, color=_MODEL.colour, alpha=0.3, label="proposals")
    for k, colour in zip(budgets, budget_colours(budgets), strict=True):
        log_c = profile.log_c(k)
        if np.isfinite(log_c):
            axes.axvline(-log_c, color=colour, label=f"1/c at K = {k:g}")
    axes.set(title="proposals: kept for sure beyond 1/c", xlabel="log r", ylabel="density")
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])  # room for the legend


def _draw_acceptance(axes: Any, profile: Profile, budgets: Sequence[float]) -> None:
    value, _ = profile.sorted_log_ratio
    x = np.linspace(value[0], value[-1], 500)
    axes.plot(x, np.exp(x - value[-1]), color=_EXACT.colour, ls=_EXACT.line, label="exact rejection, r/M")
    for k, colour in zip(budgets, budget_colours(budgets), strict=True):
        a = np.exp(profile.cut(k).log_a(x))
        axes.plot(x, a, color=colour, label=f"K = {k:g}, keeps {100 * profile.rate(k):.3g} %")
    axes.set(title="acceptance min(c r, 1)", xlabel="log r", ylabel="probability of being kept", ylim=(0, 1.03))


def _draw_curves(axes: Any, profile: Profile, budgets: Sequence[float]) -> None:
    for k, colour in ((1.0, _MODEL.colour), *zip(budgets, budget_colours(budgets), strict=True)):
        curve = profile.curve(k)
        axes.plot(curve.recall, curve.precision, color=colour, label="model" if k == 1 else f"K = {k:g}")
    axes.set(title="precision and recall", xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.03))


def _draw_left(axes: Any, profile: Profile, budgets: Sequence[float]) -> None:
    smallest = 1 / profile.possible * (1 + 1e-9)  # below this too few proposals have r > 0
    last = max(max(budgets, default=2.0) * 1.5, smallest * 1.01)
    grid = np.geomspace(max(1.0, smallest), last, 60)
    for name, style in (("kl", "-"), ("tv", "--"), ("js", ":")):
        axes.plot(grid, [profile.divergence(name, k) for k in grid], color="black", ls=style, label=f"{name} left")
    for k, colour in zip(budgets, budget_colours(budgets), strict=True):
        axes.axvline(k, color=colour, lw=1)
    if profile.max_budget <= last:
        axes.axvline(profile.max_budget, color="0.45", ls="-.", lw=1, label="M of this sample: exact")
    axes.set(title="divergence left against the budget", xlabel="K, proposals per kept sample", ylim=(0, None))
