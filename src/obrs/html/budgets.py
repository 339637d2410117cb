"""What the slider of a report moves over: a finite list of budgets, and all that `Profile` says at each of them.

So the page computes nothing that the library has computed: it looks up. Round budgets are in the list exactly.
"""

from math import inf, log
from typing import Any

import numpy as np

from ..profile import Profile
from .template import rounded

__all__ = ["COLUMNS", "ROUND", "columns", "curve", "group_rates", "histogram", "slider", "start_of"]

Floats = np.ndarray[Any, Any]

COLUMNS = ("rate", "kl", "rkl", "tv", "js", "chi2", "ess", "precision")
ROUND = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 50, 64, 80, 100, 128, 160, 200, 256)
_TOP = 256.0  # where the slider ends if exact rejection costs more
_POINTS = 108  # steps of the slider, at most
_STEP = log(1.02)  # and at least this far apart
_BINS = 64
_SLOPES = 301


def slider(profile: Profile, asked: float | None = None) -> list[float]:
    """Return the budgets of the slider, ascending: 1, then log-spaced ones of three digits, with the round ones exact.

    They end at the first round one beyond M, where rejection is exact, or at 256; at a budget that was asked for if it
    is larger. Below 1/possible no budget can be met, and only 1 is left, the model itself.

    Example:
        >>> budgets = slider(Profile(np.random.default_rng(0).normal(size=1000)))
        >>> len(budgets), budgets[:3], {1, 1.5, 2, 4, 8} <= set(budgets)
        (109, [1.0, 1.03, 1.05], True)
    """
    first = max(1.0, 1 / profile.possible)
    beyond = [k for k in ROUND if k > max(profile.max_budget, first) * (1 + 1e-9)]
    top = max(float(beyond[0]) if beyond else _TOP, _short(2 * first), asked or 1.0)
    steps = max(min(_POINTS, round(log(top / first) / _STEP)), 1)
    grid = np.geomspace(first, top, steps + 1)
    # A round budget takes the place of the one that is nearest, so that the steps stay even.
    fixed = {float(k) for k in (*ROUND, top, *([asked] if asked else [])) if first <= k <= top}
    for k in fixed:
        grid[np.argmin(np.abs(np.log(grid / k)))] = k
    budgets = {1.0, *fixed, *(_short(k) for k in grid)}
    return [k for k in sorted(budgets) if k == 1 or k >= first]


def _short(k: float) -> float:
    return float(f"{k:.3g}")


def start_of(budgets: list[float], asked: float | None, max_budget: float) -> int:
    """Return the number of the budget that a page opens with: the one asked for, else 4, or less if that is exact."""
    wanted = asked or max([k for k in (1.5, 2, 4) if k < max_budget], default=budgets[-1])
    return int(np.argmin(np.abs(np.log(np.asarray(budgets, dtype=np.float64) / wanted))))


def columns(profile: Profile, budgets: list[float], recall: float) -> dict[str, Any]:
    """Return log c, each column of `Profile.plan` with its interval, and where a column is unreliable, by budget.

    Of scores that are not calibrated there is the rate alone.
    """
    plan = profile.plan(budgets, recall=recall)
    found: dict[str, Any] = {"log_c": rounded([profile.log_c(k) for k in budgets])}
    for key in COLUMNS if profile.calibrated else COLUMNS[:1]:
        found[key] = rounded([row[key] for row in plan])
        found[f"{key}_low"], found[f"{key}_high"] = (
            rounded([row[f"{key}_{end}"] for row in plan], 5) for end in ("low", "high")
        )
        found[f"{key}_marks"] = "".join("~" if key in row.get("unreliable", "").split() else "." for row in plan)
    return found


def histogram(profile: Profile) -> dict[str, Any]:
    """Return the shares of log r in bins, with the log of the mean of r in each: what is kept of a bin follows."""
    value, mass = profile.sorted_log_ratio
    order = np.cumsum(mass) / np.sum(mass)
    low = float(value[np.searchsorted(order, 0.001)])  # a long lower tail would press all the rest together
    high = float(value[-1])
    if high - low < 1e-6 * max(abs(high), 1.0):
        reach = max(1.0, 1e-6 * abs(high))  # of numbers so large that one more is none
        low, high = low - reach, high + reach
    width = (high - low) / _BINS
    place = np.clip(((value - low) / width).astype(np.int64), 0, _BINS - 1)
    share = np.bincount(place, weights=mass, minlength=_BINS)
    sums = np.bincount(place, weights=mass * np.exp(value - high), minlength=_BINS)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(sums > 0, np.log(sums / share) + high, low)
    return {
        "low": low,
        "high": high,
        "share": rounded(share, 4),
        "mean": rounded(mean, 5),
        "zero": float(f"{1 - profile.possible:.4g}"),
    }


def curve(profile: Profile, most: float) -> dict[str, Any]:
    """Return the precision of the model at slopes from 1/(30 K) to 100: those after rejection follow from it.

    At slope `l Z` the model has precision alpha and recall alpha/(l Z). At slope l, what is kept has precision
    min(alpha/Z, 1) and recall min(alpha/(l Z), 1/l).
    """
    low, high = -log(30 * most), log(100)
    slopes = np.linspace(low, high, _SLOPES)
    return {"low": low, "high": high, "alpha": rounded(profile.alpha(np.exp(slopes)), 5)}


def group_rates(log_ratio: Floats, log_c: list[float]) -> list[float]:
    """Return the share that is kept of a group at each constant.

    Example:
        >>> group_rates(np.log([2.0, 1.0]), [inf, 0.0, log(0.5)])
        [1.0, 1.0, 0.75]
    """
    if not np.any(log_ratio > -inf):
        return [0.0] * len(log_c)
    alone = Profile(log_ratio)  # its r is divided by its own mean
    with np.errstate(over="ignore"):
        slopes = np.exp(np.asarray(log_c) + alone.log_mean_ratio)
    return rounded(alone.alpha(slopes), 3)
