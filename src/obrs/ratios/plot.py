"""The plot of a diagnosis. Matplotlib is imported only when it is drawn."""

import textwrap
from typing import Any

import numpy as np

from ..errors import InputTypeError
from ..looks import LOOKS, PALETTE, restyle
from ..looks import figure as new_figure
from ..profile import Profile
from .doctor import Diagnosis
from .evidence import kl_removed, reliability, removed_terms

__all__ = ["plot_diagnosis"]

_RAW, _REPAIRED, _CUT = LOOKS["obrs"].colour, PALETTE["green"], PALETTE["black"]
_REAL, _FAKE = LOOKS["target"].colour, LOOKS["model"].colour


def plot_diagnosis(diagnosis: Diagnosis) -> Any:
    """Draw a diagnosis: reliability, log-ratios of real and fake, and KL removed against the budget.

    Returns:
        The matplotlib figure; save it with `figure.savefig("diagnosis.png")`.
    """
    if not isinstance(diagnosis, Diagnosis):
        raise InputTypeError(f"plot_diagnosis draws what diagnose returns, got {type(diagnosis).__name__}")
    drawn = new_figure(15, 5.5, who="plot_diagnosis")
    with restyle():
        curve, ratios, removed = drawn.subplots(1, 3)
        low, high = _range(diagnosis)
        _draw_reliability(curve, diagnosis, low, high)
        _draw_ratios(ratios, diagnosis, low, high)
        _draw_removed(removed, diagnosis)
        for axes in (curve, ratios, removed):
            axes.spines[["top", "right"]].set_visible(False)
            # below the axes, where no line can strike it through
            axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0.0, -0.14), ncols=2)
        title = f"{diagnosis.verdict.upper()} at K = {diagnosis.budget:g}: {diagnosis.reason}"
        drawn.suptitle(textwrap.fill(title, 140), fontsize=11)
    return drawn


def _range(d: Diagnosis) -> tuple[float, float]:
    """Return the range of the axes: nearly all finite scores, and 1/c."""
    ends = [np.quantile(x[np.isfinite(x)], (0.01, 0.99)) for x in d.raw]
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    cut = -d.at_budget.log_c
    if np.isfinite(cut):
        low, high = min(low, cut), max(high, cut)
    margin = max(0.05 * (high - low), 0.1)
    return float(low - margin), float(high + margin)


def _draw_reliability(axes: Any, d: Diagnosis, low: float, high: float) -> None:
    curves = [(d.evidence.curve, _RAW, "o", "as it is")]
    if d.repaired is not None:
        curves.append((reliability(*d.repaired), _REPAIRED, "s", "repaired, on held-out folds"))
    axes.plot([low, high], [low, high], color="black", lw=1, ls=":", label="calibrated")
    for curve, colour, marker, label in curves:
        both = (np.minimum(curve.real, curve.fake) > 0) & np.isfinite(curve.claimed)  # else it is a bound, not a point
        points = curve.claimed[both], curve.observed[both], 1.96 * curve.error[both]
        axes.errorbar(*points, fmt=marker, color=colour, ms=4, lw=1, label=label)
    axes.set(title="reliability: what log r claims, and what labels show", xlabel="claimed log r", xlim=(low, high))
    axes.set_ylabel("observed log-ratio, 95 % intervals")


def _draw_ratios(axes: Any, d: Diagnosis, low: float, high: float) -> None:
    bins = np.linspace(low, high, 81)
    for scores, colour, label in zip(d.raw, (_REAL, _FAKE), ("real, P", "fake, Q"), strict=True):
        clipped = np.clip(scores, low, high)  # scores outside are counted in the outer bins
        share = np.full(len(scores), 1 / len(scores))
        axes.hist(clipped, bins=bins, weights=share, color=colour, alpha=0.5, label=label)
    if np.isfinite(d.at_budget.log_c):
        axes.axvline(-d.at_budget.log_c, color=_CUT, label="1/c: kept for sure beyond")
    axes.set(title="log-ratio of real and fake samples", xlabel="log r", ylabel="share of samples", xlim=(low, high))


def _draw_removed(axes: Any, d: Diagnosis) -> None:
    curves = [(d.raw, _RAW, "-", "as it is")]
    if d.repaired is not None:
        curves.append((d.repaired, _REPAIRED, "--", "repaired"))
    lowest = max(1.01, *(1.001 / Profile(scores[1]).possible for scores, *_ in curves))  # smallest feasible budget
    grid = np.geomspace(lowest, max(2 * d.budget, 1.5 * lowest, 4.0), 40)
    for scores, colour, style, label in curves:
        profile = Profile(scores[1])
        removed = [kl_removed(removed_terms(scores, profile.log_c(k), k)) for k in grid]
        axes.plot(grid, [one.value for one in removed], color=colour, ls=style, label=label)
        axes.fill_between(grid, [one.low for one in removed], [one.high for one in removed], color=colour, alpha=0.2)
    axes.plot(grid, np.log(grid), color="black", lw=1, ls=":", label="log K, the most that a budget removes")
    axes.axvline(d.budget, color=_CUT, lw=1)
    axes.set(title="KL removed, of what these scores see", xlabel="K, proposals per kept sample")
    axes.set_ylabel("nats, 95 % intervals")
