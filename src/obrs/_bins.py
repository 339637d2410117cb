"""Histograms of log-ratios that can be added up: bins on an absolute grid, with their sums of r in integers.

A bin of level k holds `i <= 2**k log r < i + 1`, i an integer: bins of all histograms are the same ones, and two bins
of a level make one of the level below. A row adds cost · exp(log r - floor(log r)) to the sum of its bin, rounded to a
multiple of 2**-52, which loses nothing. That does not depend on the level, so that adding up and making coarser are
sums of integers: whatever the order, the result is the same to the last bit.

Below level 0 a bin is wider than 1 and has no such sum: then bins tell only where to look closer.
"""

from math import exp, frexp, fsum, inf, ldexp, log
from typing import Any, NamedTuple

import numpy as np

__all__ = ["FINEST", "MOST", "Bins", "Crossing", "Far", "carried", "crossing", "fitted", "joined", "of_rows"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

FINEST = 10  # level of the bins of a new sketch
MOST = 1 << 15  # bins that are not empty; if there are more, they are made coarser
_TILE = 1 << 16  # rows per step; sums over so many stay exact in float64
_WINDOW = 1 << 17  # bins side by side that are counted without sorting
_DIGIT = 26  # bits; two digits are the 52 bits after the point
_ROUNDING = 1e-9  # relative; where alpha is as close to the target, the bins to both sides are looked at


class Bins(NamedTuple):
    """The bins that are not empty, ascending.

    Attributes:
        level: Bins are 2**-level wide.
        place: int64; bin i begins at i 2**-level.
        rows: How many are in each.
        mass: What they cost together; without costs their number.
        whole, part: The sum of r over exp(floor(log r)), each times its cost, is `whole + part 2**-52`.
    """

    level: int
    place: Ints
    rows: Ints
    mass: Ints
    whole: Ints
    part: Ints

    @classmethod
    def none(cls, level: int = FINEST) -> "Bins":
        """Return a histogram of nothing."""
        return cls(level, *(np.empty(0, np.int64) for _ in range(5)))

    @property
    def lower(self) -> Floats:
        """Where each begins."""
        return np.ldexp(self.place.astype(np.float64), -self.level)

    @property
    def upper(self) -> Floats:
        """Where each ends."""
        with np.errstate(over="ignore"):
            return np.ldexp(self.place + 1.0, -self.level)

    @property
    def sums(self) -> Floats:
        """The sum of r in each, over exp(floor(lower))."""
        return self.whole + np.ldexp(self.part.astype(np.float64), -2 * _DIGIT)

    @property
    def single(self) -> bool:
        """Whether a bin holds one float64 only, that at which it begins."""
        if not len(self.place):
            return True
        least = np.min(np.abs(self.lower)) if np.all(np.sign(self.lower) == np.sign(self.lower[0])) else 0.0
        return bool(ldexp(1.0, -self.level) <= np.spacing(least))


def of_rows(x: Floats, cost: Ints | None, level: int) -> Bins:
    """Sort finite log-ratios into bins, of this level or of as coarse a one as is needed.

    Example:
        >>> bins = of_rows(np.array([0.0, 0.2, 0.9]), None, 1)
        >>> bins.place, bins.rows, bins.sums.round(3)
        (array([0, 1]), array([2, 1]), array([2.221, 2.46 ]))
    """
    if not x.size:
        return Bins.none(level)
    low, high = float(x.min()), float(x.max())
    level = min(level, 61 - frexp(max(abs(low), abs(high)))[1])  # an index has 63 bits
    first, last = (int(np.floor(ldexp(end, level))) for end in (low, high))
    tiles = [slice(start, start + _TILE) for start in range(0, x.size, _TILE)]
    if last - first >= _WINDOW:
        parts = [_of_tile(x[t].astype(np.float64), None if cost is None else cost[t], level, None) for t in tiles]
        return fitted(_reduced(level, *map(np.concatenate, zip(*parts, strict=True))))
    sums = np.zeros((4, last - first + 1), np.int64)
    for t in tiles:
        _, *found = _of_tile(x[t].astype(np.float64), None if cost is None else cost[t], level, (first, sums.shape[1]))
        for row, part in zip(sums, found, strict=True):
            row += part
    used = np.flatnonzero(sums[0])
    return fitted(carried(Bins(level, used + first, *sums[:, used])))


def _of_tile(x: Floats, cost: Ints | None, level: int, window: tuple[int, int] | None) -> list[Ints]:
    """Return index, count, mass, whole and part of a few rows: of all bins of a window, or of those that are met."""
    at = np.floor(x * 2.0**level).astype(np.int64)
    index, size = np.empty(0, np.int64), 0
    if window is None:
        index, at = np.unique(at, return_inverse=True)
        size = len(index)
    else:
        at -= window[0]
        size = window[1]
    count = np.bincount(at, minlength=size)

    def total(digit: Floats) -> Ints:
        return np.bincount(at, digit, size).astype(np.int64)

    mass = count if cost is None else total(cost)
    whole = part = np.zeros(size, np.int64)
    if level >= 0:
        term = np.exp(x - np.floor(x))
        if cost is not None:  # a product may have too many digits for two
            term *= cost
            ones = np.floor(term)
            term -= ones
            whole = total(ones)
        term *= 2.0**_DIGIT
        first = np.floor(term)
        term -= first
        term *= 2.0**_DIGIT
        firsts = total(first)
        whole = whole + (firsts >> _DIGIT)
        part = ((firsts & ((1 << _DIGIT) - 1)) << _DIGIT) + total(term)
    return [index, count, mass, whole, part]


def joined(a: Bins, b: Bins) -> Bins:
    """Add two histograms up."""
    level = min(a.level, b.level)
    a, b = _coarser(a, level), _coarser(b, level)
    return fitted(_reduced(level, *map(np.concatenate, zip(a[1:], b[1:], strict=True))))


def fitted(bins: Bins) -> Bins:
    """Make bins coarser until there are few enough."""
    level = bins.level
    while len(bins.place) > MOST and np.count_nonzero(np.diff(bins.place >> (bins.level - level))) >= MOST:
        level -= 1
    return _coarser(bins, level)


def _coarser(bins: Bins, level: int) -> Bins:
    if level == bins.level:
        return bins
    index = bins.place >> min(bins.level - level, 63)
    sums = (bins.whole, bins.part) if level >= 0 else (np.zeros_like(index),) * 2
    return _reduced(level, index, bins.rows, bins.mass, *sums)


def _reduced(level: int, index: Ints, *columns: Ints) -> Bins:
    """Sort bins, and add up what belongs to one."""
    order = np.argsort(index, kind="stable")
    index = index[order]
    starts = np.flatnonzero(np.diff(index, prepend=index[:1] - 1)) if index.size else np.empty(0, np.intp)
    if not starts.size:
        return Bins.none(level)
    return carried(Bins(level, index[starts], *(np.add.reduceat(column[order], starts) for column in columns)))


def carried(bins: Bins) -> Bins:
    """Carry what sums of parts have grown beyond 52 bits over to the whole."""
    return bins._replace(whole=bins.whole + (bins.part >> 2 * _DIGIT), part=bins.part & np.int64((1 << 2 * _DIGIT) - 1))


class Far(NamedTuple):
    """What lies outside `[low, high)`: the mass at or above `high`, and the sum of r exp(-low) below `low`."""

    low: float = -inf
    high: float = inf
    above: float = 0
    below: float = 0.0


class Crossing(NamedTuple):
    """Where the threshold -log c lies, as far as bins tell.

    Attributes:
        far: The interval that holds the threshold, and what lies outside of it.
        inside: The bins in it.
        log_c_low, log_c_high: Bounds of log c.
    """

    far: Far
    inside: Bins
    log_c_low: float
    log_c_high: float


def crossing(bins: Bins, target: float, far: Far = Far()) -> Crossing:  # noqa: B008
    """Find where `sum mass min(c r, 1)` passes the target, c not floored.

    At a threshold t = -log c, alpha(t) = (mass from t on) + (sum of r below t) exp(-t) falls as t rises. It is known at
    the edges of bins; the threshold is where it passes the target.

    Args:
        bins: The rows in the interval of `far`.
        target: Mass to accept, at most that of all with r > 0.
        far: What else there is, outside of an interval that holds the threshold.

    Example:
        >>> found = crossing(of_rows(np.log([0.5, 0.5, 1.0, 4.0]), None, 10), 2.0)
        >>> np.exp([found.log_c_low, found.log_c_high]).round(4)
        array([0.5, 0.5])
    """
    edge, count = bins.lower, len(bins.place)
    above = far.above + np.cumsum(bins.mass[::-1])[::-1].astype(np.float64)
    least, most = _log_sum_below(bins, far)
    with np.errstate(over="ignore"):
        alpha_least, alpha_most = (above + np.exp(np.minimum(log_sum - edge, 700.0)) for log_sum in (least, most))
    start = int(np.count_nonzero(alpha_least >= target * (1 + _ROUNDING))) - 1
    stop = count - int(np.count_nonzero(alpha_most <= target * (1 - _ROUNDING)))
    exact = bins.level >= 0
    log_c_high = -float(edge[start]) if start >= 0 else -far.low
    if not exact and start >= 0:  # what is so far below the threshold adds nothing that a float64 would show
        start = min(start, int(np.count_nonzero(bins.upper <= edge[start] - log(max(float(above[0]), 1.0)) - 80.0)))
    low = float(edge[start]) if start >= 0 else far.low
    start = max(start, 0)
    high = float(edge[stop]) if stop < count else far.high
    inside = Bins(bins.level, *(column[start:stop] for column in bins[1:]))
    below = 0.0
    if exact and low > -inf:
        cell = np.floor(edge[:start])
        below = fsum((bins.sums[:start] * np.exp(np.maximum(cell - low, -745.0))).tolist())
        below += far.below * exp(far.low - low) if far.low > -inf else 0.0
    now = Far(low, high, far.above + bins.mass[stop:].sum().item(), below)
    return Crossing(now, inside, *(_bounds(inside, now, target) if exact else (-high, log_c_high)))


def _log_sum_below(bins: Bins, far: Far) -> tuple[Floats, Floats]:
    """Return bounds of the log of the sum of r below each bin; with sums they are equal, but for rounding."""
    first = log(far.below) + far.low if far.below > 0 else -inf
    if bins.level >= 0:
        ends = [_log_sums(bins)]
    else:
        with np.errstate(divide="ignore"):
            ends = [np.log(bins.mass) + edge for edge in (bins.lower, bins.upper)]
    sums = [np.logaddexp.accumulate(np.concatenate([[first], end])[:-1]) for end in ends]
    return sums[0], sums[-1]


def _log_sums(bins: Bins) -> Floats:
    """Return the log of the sum of r in each bin."""
    with np.errstate(divide="ignore"):  # of rows that cost nothing
        return np.log(bins.sums) + np.floor(bins.lower)


def _bounds(inside: Bins, far: Far, target: float) -> tuple[float, float]:
    """Return bounds of log c, from what its quotients are if all inside are free, or all are saturated."""
    lacking = target - far.above
    if not len(inside.place):  # all is decided outside
        found = log(lacking / far.below) - far.low if far.below > 0 else -far.low
        return found - _slack(found), found + _slack(found)

    edge = inside.lower
    origin = far.low if far.low > -inf else float(edge[0])
    end = float(inside.upper[-1]) - origin
    log_sums = float(np.logaddexp.reduce(_log_sums(inside))) - origin
    log_below = log(far.below) if far.below > 0 else -inf
    free = log(lacking) - float(np.logaddexp(log_sums, log_below))
    if free <= -end - 1e-12:  # all inside are free, for sure
        return free - origin - _slack(free - origin), free - origin + _slack(free - origin)
    lower, upper = max(free, origin - far.high), 0.0 if far.low > -inf else inf
    if far.below > 0:
        saturated = lacking - inside.mass.sum().item()
        lower = max(lower, log(saturated) - log_below) if saturated > 0 else lower
        most = lacking - exp(log_sums - end)  # each inside is accepted with r exp(-end) at least
        upper = min(upper, max(log(most) - log_below, lower)) if most > 0 else upper
    return lower - origin - _slack(origin), upper - origin + _slack(origin)


def _slack(log_c: float) -> float:
    return 1e-12 + 8 * float(np.spacing(abs(log_c)))
