"""The plot of a diagnosis. Matplotlib is imported only when it is drawn."""

import textwrap
from contextlib import nullcontext
from typing import Any

import numpy as np

from .._text import unknown_name
from ..budget import Cut
from ..errors import InputTypeError
from ..looks import LOOKS, PALETTE, styled
from ..looks import figure as new_figure
from ..profile import Profile
from .at_budget import kept_profile
from .doctor import Diagnosis
from .evidence import reliability

__all__ = ["plot_diagnosis"]

_RAW, _REPAIRED, _CUT = LOOKS["obrs"].colour, PALETTE["green"], PALETTE["black"]
_REAL, _FAKE = LOOKS["target"].colour, LOOKS["model"].colour
_POINTS = 400


def plot_diagnosis(diagnosis: Diagnosis, *, divergence: str = "js", figure: Any = None) -> Any:
    """Draw a diagnosis: reliability, log-ratios of real and fake, acceptance, and divergence against the budget.

    Args:
        diagnosis: What `diagnose` returned.
        divergence: What the last panel shows, one of kl, js and tv.
        figure: A matplotlib figure to draw into, with your settings; by default a new one in the style of this library,
            which a notebook shows.

    Returns:
        The matplotlib figure; save it with `figure.savefig("diagnosis.png")`.

    Example:
        >>> from obrs.ratios.doctor import diagnose
        >>> rng = np.random.default_rng(0)
        >>> found = diagnose(rng.normal(0.5, 1, 500), rng.normal(-0.5, 1, 500), budget=2)
        >>> len(plot_diagnosis(found).axes)
        4
    """
    if not isinstance(diagnosis, Diagnosis):
        raise InputTypeError(f"plot_diagnosis draws what diagnose returns, got {type(diagnosis).__name__}")
    if divergence not in diagnosis.at_budget.left:
        raise unknown_name(divergence, diagnosis.at_budget.left, "divergence")
    drawn = new_figure(11, 8.5, who="plot_diagnosis") if figure is None else figure
    with styled() if figure is None else nullcontext():
        _draw(drawn, diagnosis, divergence)
    return drawn


def _draw(figure: Any, diagnosis: Diagnosis, divergence: str) -> None:
    curve, ratios, acceptance, left = figure.subplots(2, 2).flat
    low, high = _range(diagnosis)
    _draw_reliability(curve, diagnosis, low, high)
    _draw_ratios(ratios, diagnosis, low, high)
    _draw_acceptance(acceptance, diagnosis, low, high)
    _draw_left(left, diagnosis, divergence)
    for axes in (curve, ratios, acceptance, left):
        axes.spines[["top", "right"]].set_visible(False)
        # below the axes, where no line can strike it through
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0.0, -0.14), ncols=2)
    title = f"{diagnosis.verdict.upper()} at K = {diagnosis.budget:g}: {diagnosis.reason}"
    figure.suptitle(textwrap.fill(title, 100), fontsize=11)


def _range(d: Diagnosis) -> tuple[float, float]:
    """Return the range of the axes: nearly all finite scores, and 1/c."""
    ends = []
    for x in d.raw:
        low, quarter, most, high = np.quantile(x[np.isfinite(x)], (0.005, 0.25, 0.75, 0.995))
        reach = 3 * (most - quarter)  # of a few hundred scores, the outer half per cent is one outlier
        ends.append((max(low, quarter - reach), min(high, most + reach)))
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    cut = -d.at_budget.log_c
    if np.isfinite(cut):
        low, high = min(low, cut), max(high, cut)
    margin = max(0.05 * (high - low), 0.1)
    return float(low - margin), float(high + margin)


def _draw_reliability(axes: Any, d: Diagnosis, low: float, high: float) -> None:
    curves = [(d.reliability, _RAW, "o", "as it is")]
    if d.repaired is not None:
        after = reliability(*d.repaired)
        assert after is not None
        curves.append((after, _REPAIRED, "s", "repaired, on held-out folds"))
    axes.plot([low, high], [low, high], color="black", lw=1, ls=":", label="calibrated")
    for curve, colour, marker, label in curves:
        shown = np.isfinite(curve.claimed)
        # a bin with samples of only one kind gives a bound, not a point
        sided = (np.minimum(curve.real, curve.fake) == 0) & shown
        both = ~sided & shown
        axes.errorbar(
            curve.claimed[both],
            curve.observed[both],
            1.96 * curve.error[both],
            fmt=marker,
            color=colour,
            ms=4,
            lw=1,
            label=label,
        )
        if np.any(sided):
            claimed, observed = curve.claimed[sided], curve.observed[sided]
            axes.plot(
                claimed, observed, marker, mfc="none", color=colour, ms=4, label="only real or only fake: a bound"
            )
    seen = np.concatenate([curve.observed for curve, *_ in curves])
    margin = 0.15 * float(seen.max() - seen.min()) + 0.5
    axes.set_ylim(seen.min() - margin, seen.max() + margin)
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


def _draw_acceptance(axes: Any, d: Diagnosis, low: float, high: float) -> None:
    x = np.linspace(low, high, _POINTS)
    log_c = d.at_budget.log_c
    axes.plot(x, np.exp(Cut(log_c, np.nan).log_a(x)), color=_RAW, label=f"as it is, at K = {d.budget:g}")
    if d.repaired is not None:
        y = np.exp(Profile(d.repaired[1]).cut(d.budget).log_a(np.asarray(d.calibration(x))))
        axes.plot(x, y, color=_REPAIRED, ls="--", label="repaired, at the same budget")
    if np.isfinite(log_c):
        axes.axvline(-log_c, color=_CUT, lw=1, label="1/c: errors of r beyond change nothing")
    axes.set(title="acceptance min(c r, 1)", xlabel="log r as it is", ylabel="probability of being kept")
    axes.set(ylim=(0, 1.05), xlim=(low, high))


def _draw_left(axes: Any, d: Diagnosis, key: str) -> None:
    left, scores = d.at_budget.left[key], d.raw[1]
    before, after = Profile(scores), None if d.repaired is None else Profile(d.repaired[1])
    lowest = max(1.0, max(1 / p.possible for p in (before, after or before)) * (1 + 1e-9))  # smallest feasible budget
    grid = np.geomspace(lowest, max(2 * d.budget, 1.5 * lowest, 4.0), 60)
    # a repaired ratio is what is believed, also of the rule as it is
    claimed = [before.divergence(key, k) for k in grid]
    if d.repaired is not None:
        believed, used = d.repaired[1], Profile(scores[: len(d.repaired[1])])
        claimed = [kept_profile(scores[: len(believed)], used.log_c(k), believed).divergence(key) for k in grid]
    label = "promised as it is" if left.promised is not None else "promised as it is: do not believe it"
    axes.plot(grid, claimed, color=_RAW, ls="-" if left.promised is not None else ":", label=label)
    if after is not None:
        repaired = [after.divergence(key, k) for k in grid]
        axes.plot(grid, repaired, color=_REPAIRED, ls="--", label="promised after the repair")
    least = left.at_least
    if np.isfinite(least.value):
        error = [[max(least.value - least.low, 0.0)], [max(least.high - least.value, 0.0)]]
        label = "at least, by held-out samples"
        axes.errorbar([d.budget], [least.value], error, fmt="o", color=_RAW, ms=6, capsize=3, label=label)
    axes.axvline(d.budget, color=_CUT, lw=1)
    axes.set(title=f"{key} between target and kept samples", xlabel="K, proposals per kept sample")
    axes.set(ylabel=f"{key} left", ylim=(0, max(axes.get_ylim()[1], 0.01)))
