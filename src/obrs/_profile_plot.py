"""The picture of a profile. Matplotlib is imported when it is drawn, not before."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from .looks import LOOKS, budget_colours, styled
from .looks import figure as new_figure

__all__ = ["draw"]


def draw(profile: Any, budgets: Sequence[float], figure: Any) -> Any:
    """Draw ratios, acceptance, curves and divergences with a few budgets into a figure, or a new one; return it."""
    drawn = new_figure(10, 7, who="Profile.plot") if figure is None else figure
    model, exact = LOOKS["model"], LOOKS["exact"]
    value, mass = profile.sorted_log_ratio
    x = np.linspace(value[0], value[-1], 500)
    first = max(1.0, 1 / profile.possible * (1 + 1e-9))  # below this too few proposals have r > 0
    last = max(max(budgets, default=2.0) * 1.5, first * 1.01)
    grid = np.geomspace(first, last, 60)
    with styled() if figure is None else nullcontext():
        ratios, acceptance, curves, left = panels = drawn.subplots(2, 2).flatten()
        ratios.hist(value, bins=80, weights=mass, density=True, color=model.colour, alpha=0.3, label="proposals")
        acceptance.plot(x, np.exp(x - value[-1]), color=exact.colour, ls=exact.line, label="exact rejection, r/M")
        _, precision, recall = profile.curve()
        curves.plot(recall, precision, color=model.colour, label="model")
        for name, style in (("kl", "-"), ("tv", "--"), ("js", ":")):
            left.plot(grid, [profile.divergence(name, k) for k in grid], color="black", ls=style, label=f"{name} left")
        for k, colour in zip(budgets, budget_colours(budgets), strict=True):
            cut, (_, precision, recall) = profile.cut(k), profile.curve(k)
            if np.isfinite(cut.log_c):
                ratios.axvline(-cut.log_c, color=colour, label=f"1/c at K = {k:g}")
            keeps = f"K = {k:g}, keeps {100 * profile.rate(k):.3g} %"
            acceptance.plot(x, np.exp(cut.log_a(x)), color=colour, label=keeps)
            curves.plot(recall, precision, color=colour, label=f"K = {k:g}")
            left.axvline(k, color=colour, lw=1)
        if profile.max_budget <= last:
            left.axvline(profile.max_budget, color="0.45", ls="-.", lw=1, label="M of this sample: exact")
        ratios.set(title="proposals: kept for sure beyond 1/c", xlabel="log r", ylabel="density")
        ratios.set_ylim(0, 1.3 * ratios.get_ylim()[1])  # leaves space for the legend
        acceptance.set(title="acceptance min(c r, 1)", xlabel="log r", ylabel="chance of being kept", ylim=(0, 1.03))
        curves.set(title="precision and recall", xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.03))
        left.set(title="divergence left against the budget", xlabel="K, proposals per kept sample", ylim=(0, None))
        for axes in panels:
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize=8)
    return drawn
