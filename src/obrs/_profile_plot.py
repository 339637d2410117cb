"""The picture of a profile. Matplotlib is imported when it is drawn, not before."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from .looks import LOOKS, budget_colours, styled
from .looks import figure as new_figure

__all__ = ["draw"]


def draw(profile: Any, budgets: Sequence[float], figure: Any) -> Any:
    """Draw a profile with a few budgets into a figure, or into a new one, and return it."""
    drawn = new_figure(10, 7, who="Profile.plot") if figure is None else figure
    shades = list(zip(budgets, budget_colours(budgets), strict=True))
    with styled() if figure is None else nullcontext():
        panels = drawn.subplots(2, 2).flat
        for axes, panel in zip(panels, (_draw_ratios, _draw_acceptance, _draw_curves, _draw_left), strict=True):
            panel(axes, profile, shades)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize=8)
    return drawn


def _draw_ratios(axes: Any, profile: Any, shades: list[tuple[float, str]]) -> None:
    value, mass = profile.sorted_log_ratio
    colour = LOOKS["model"].colour
    axes.hist(value, bins=80, weights=mass, density=True, color=colour, alpha=0.3, label="proposals")
    for k, colour in shades:
        if np.isfinite(log_c := profile.log_c(k)):
            axes.axvline(-log_c, color=colour, label=f"1/c at K = {k:g}")
    axes.set(title="proposals: kept for sure beyond 1/c", xlabel="log r", ylabel="density")
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])  # leaves space for the legend


def _draw_acceptance(axes: Any, profile: Any, shades: list[tuple[float, str]]) -> None:
    value, _ = profile.sorted_log_ratio
    x, exact = np.linspace(value[0], value[-1], 500), LOOKS["exact"]
    axes.plot(x, np.exp(x - value[-1]), color=exact.colour, ls=exact.line, label="exact rejection, r/M")
    for k, colour in shades:
        a = np.exp(profile.cut(k).log_a(x))
        axes.plot(x, a, color=colour, label=f"K = {k:g}, keeps {100 * profile.rate(k):.3g} %")
    axes.set(title="acceptance min(c r, 1)", xlabel="log r", ylabel="probability of being kept", ylim=(0, 1.03))


def _draw_curves(axes: Any, profile: Any, shades: list[tuple[float, str]]) -> None:
    for k, colour in ((1.0, LOOKS["model"].colour), *shades):
        curve = profile.curve(k)
        axes.plot(curve.recall, curve.precision, color=colour, label="model" if k == 1 else f"K = {k:g}")
    axes.set(title="precision and recall", xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.03))


def _draw_left(axes: Any, profile: Any, shades: list[tuple[float, str]]) -> None:
    first = max(1.0, 1 / profile.possible * (1 + 1e-9))  # below this too few proposals have r > 0
    last = max(max((k for k, _ in shades), default=2.0) * 1.5, first * 1.01)
    grid = np.geomspace(first, last, 60)
    for name, style in (("kl", "-"), ("tv", "--"), ("js", ":")):
        axes.plot(grid, [profile.divergence(name, k) for k in grid], color="black", ls=style, label=f"{name} left")
    for k, colour in shades:
        axes.axvline(k, color=colour, lw=1)
    if profile.max_budget <= last:
        axes.axvline(profile.max_budget, color="0.45", ls="-.", lw=1, label="M of this sample: exact")
    axes.set(title="divergence left against the budget", xlabel="K, proposals per kept sample", ylim=(0, None))
