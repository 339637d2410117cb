"""How far what a profile says may be off, by influence functions: no resampling.

The profile of a sample is a smooth function of its empirical distribution. The influence of a proposal x is
the derivative of the statistic when mass moves to x; the variance of the statistic is that of the mean of
the influences. Two effects besides the direct one: c moves by dc = -(a(x) - Z)/E[r; a < 1] to keep the
budget, and the normalisation moves by r(x) - 1. Terms from proposals that cross the threshold cancel.

References:
    | On the Removal of Skewness by Transformation (Hall, 1992)
    | A Simple General Approach to Inference About the Tail of a Distribution (Hill, 1975)
    | Some Problems in Interval Estimation (Fieller, 1954), for the precision
"""

from math import exp, inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from ._prefix import Prefix
from .budget import Cut
from .divergences import FDivergence
from .root import brent

__all__ = ["Influence", "Strata", "Uncertainty", "precision_interval", "strata_of", "tail_index"]

Floats = np.ndarray[Any, Any]

_Z = 1.96  # of a 95 % interval
_NOTHING = 1e-300
_ALONE = 512  # this many proposals at each end stand for themselves


class Uncertainty(NamedTuple):
    """How far a statistic may be off.

    Attributes:
        deviation: Its standard error.
        skewness: Of the mean of the influences.
        proposals: How many proposals the standard error rests on, at least: 1/sum of the fourth powers of shares.
    """

    deviation: float
    skewness: float
    proposals: float

    def interval(self, value: float) -> tuple[float, float]:
        """Return the 95 % interval, corrected for skewness by Hall's cubic transformation."""
        if not np.isfinite(self.deviation):
            return -inf, inf
        low, high = (_unskewed(z, self.skewness) for z in (-_Z, _Z))
        return value - self.deviation * high, value - self.deviation * low


_UNKNOWN = Uncertainty(inf, 0.0, 0.0)


def _unskewed(z: float, skewness: float) -> float:
    if abs(skewness) < 1e-6:
        return z
    return 3 / skewness * (float(np.cbrt(1 + skewness * (z - skewness / 6))) - 1)


class Strata(NamedTuple):
    """Proposals in strata so thin that one log-ratio stands for each; the first may have r = 0.

    Attributes:
        value: Log-ratios of r over its mean, ascending.
        mass: Sums of the masses; `square`, `cube` and `fourth` are sums of their powers.
    """

    value: Floats
    mass: Floats
    square: Floats
    cube: Floats
    fourth: Floats

    def with_atom(self, value: float, mass: float, count: float) -> "Strata":
        """Add `count` proposals at one log-ratio, no smaller than the others, that have this mass together."""
        parts = (value, *(mass * (mass / count) ** k for k in range(4)))
        return Strata(*(np.append(old, new) for old, new in zip(self, parts, strict=True)))


def strata_of(prefix: Prefix) -> Strata:
    """Return a few thousand strata of any number of proposals.

    Towards both ends they grow thinner, in proportion to the rank, and the last proposals stand alone. A standard
    error changes by less than its third digit.
    """
    n = len(prefix.value)
    half = n // 2
    edges = np.unique(np.concatenate([_edges(half), n - _edges(n - half)]))
    starts, stops = edges[:-1], edges[1:]
    value = prefix.value[(starts + stops - 1) // 2]
    if prefix.even:
        size = 1 / (n + len(prefix.impossible_masses))
        powers = [(stops - starts) * size**k for k in (1, 2, 3, 4)]
    else:
        powers = [np.add.reduceat(prefix.mass**k, starts) for k in (1, 2, 3, 4)]
    if not prefix.impossible:
        return Strata(value, *powers)
    zero = [float(np.sum(prefix.impossible_masses**k)) for k in (1, 2, 3, 4)]
    return Strata(np.append(-inf, value), *(np.append(z, p) for z, p in zip(zero, powers, strict=True)))


def _edges(n: int) -> Floats:
    """Return ranks from 0 to n: one by one at first, then in steps that grow with the rank."""
    if n <= _ALONE:
        return np.arange(n + 1)
    growth = np.arange(1 + int(_ALONE * log(n / _ALONE)))
    later = _ALONE * np.exp(growth / _ALONE)
    return np.concatenate([np.arange(_ALONE), np.unique(later.astype(np.int64)), [n]])


class Influence:
    """What each proposal adds to the statistics of a profile, cut at one budget.

    Args:
        strata: The proposals, with log-ratios of r over its mean.
        cut: The budget's constant and rate.
        offset: What to add to speak of r itself.
        normalised: Whether r is divided by the mean of the sample.
    """

    def __init__(self, strata: Strata, cut: Cut, offset: float, normalised: bool) -> None:
        self.strata, self.cut, self.offset, self.normalised = strata, cut, offset, normalised
        self.rate = exp(cut.log_rate)
        self.ratio = np.exp(strata.value)
        self.rejects = np.isfinite(cut.log_c)
        # at budget 1 everything is kept, also what has r = 0
        self.kept = np.exp(cut.log_a(strata.value)) if self.rejects else np.ones(len(self.ratio))

    def _uncertainty(self, influence: Floats) -> Uncertainty:
        """Return that of a statistic with these influences."""
        strata = self.strata
        if not np.all(np.isfinite(influence)):
            return _UNKNOWN
        moved = influence - float(np.sum(strata.mass * influence))
        square = float(np.sum(strata.square * moved**2))
        if square == 0 or not np.isfinite(square):
            return Uncertainty(square, 0.0, inf if square == 0 else 0.0)
        scaled = moved / sqrt(square)
        with np.errstate(over="ignore", invalid="ignore"):
            third, fourth = float(np.sum(strata.cube * scaled**3)), float(np.sum(strata.fourth * scaled**4))
        if not np.isfinite(third) or not np.isfinite(fourth):  # ratios beyond all floats, with masses that vanish
            return _UNKNOWN
        return Uncertainty(sqrt(square), third, 1 / fourth if fourth else inf)

    def on_rate(self) -> Uncertainty:
        """Return how far the rate of fresh proposals may be off, with c from this sample."""
        return self._uncertainty(self.kept)

    def on_divergence(self, div: FDivergence) -> Uncertainty:
        """Return how far the divergence left may be off."""
        log_z = self.cut.log_rate + self.offset
        log_free = log_z - self.cut.log_c  # log u wherever a < 1
        log_u = np.maximum(self.strata.value + log_z, log_free)
        f = div.f(log_u)
        slope = f + div.f_star_of_f_prime(log_u)  # u f'(u), also where u is 0 and f' infinite
        f_free, pull = 0.0, 0.0
        if self.rejects:
            f_free = float(div.f(log_free))
            pull = f_free + float(div.f_star_of_f_prime(log_free))
        with np.errstate(over="ignore", invalid="ignore"):
            influence = (f - f_free + pull * self.kept) / self.rate
            if self.normalised:
                tilt = float(np.sum(self.strata.mass * self.kept * slope)) / self.rate
                influence -= tilt * self.ratio
            else:  # what the sample holds of the target is not missing elsewhere
                influence -= float(div.critic(inf)) * exp(self.offset) * self.ratio
        return self._uncertainty(influence)


def precision_interval(strata: Strata, recall: float, normalised: bool) -> tuple[float, float]:
    """Return a 95 % interval for the precision before rejection at a recall, of r over its mean.

    The precision is recall/t, where t solves E[min(r, t)] = recall, with E[r] = 1 if r is normalised. It is anything
    but linear in the sample when much of the target rests on few proposals. So the interval takes every t whose recall
    is within 1.96 of its standard errors.
    """
    if recall >= 1:  # decided by the largest ratio alone
        return 0.0, inf
    ratio = np.exp(strata.value)
    if normalised:
        ratio /= float(np.sum(strata.mass * ratio))
    # With t at each ratio: the share below it, the mass above, and sums of w², w² r, w² r² below and above.
    share, rest = _below(strata.mass * ratio), 1 - _below(strata.mass)
    terms = [strata.square * ratio**k for k in (0, 1, 2)]
    low = [_below(term) for term in terms]
    high = [float(np.sum(term)) - sums for term, sums in zip(terms, low, strict=True)]
    # Where r < t, the influence is r - share - rest t, else t - share - rest t. If the mean of r moves along, the share
    # is times r. Summed, the squares are a polynomial in t, which holds from one ratio to the next.
    second = rest**2 * low[0] + (1 - rest) ** 2 * high[0]
    if normalised:
        first = -2 * ((1 - share) * rest * low[1] + (1 - rest) * share * high[1])
        constant = (1 - share) ** 2 * low[2] + share**2 * high[2]
    else:
        first = -2 * (rest * (low[1] - share * low[0]) + (1 - rest) * share * high[0])
        constant = low[2] - 2 * share * low[1] + share**2 * (low[0] + high[0])
    pieces = np.stack([share - recall, rest, second, first, constant])

    def errors_above(t: Any, piece: Any) -> Any:
        """By how many standard errors the recall of t is above what is asked."""
        gap, slope, second, first, constant = piece
        return (gap + slope * t) / (abs((second * t + first) * t + constant) + _NOTHING) ** 0.5

    at_ratios = errors_above(ratio, pieces)
    at_ratios[-1] = inf  # beyond the largest ratio the recall is 1 without error

    def t_at(z: float) -> float:
        k = int(np.argmax(at_ratios >= z))
        piece = [float(x) for x in pieces[:, k]]
        below, above = (float(ratio[k - 1]) if k else 0.0), float(ratio[k])
        low_errors, high_errors = errors_above(below, piece), errors_above(above, piece)
        if not low_errors < z < high_errors:  # NaN, too, where ratios are beyond the range of floats
            return below if low_errors >= z else above
        return brent(lambda t: errors_above(t, piece) - z, below, above)

    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.divide(recall, [t_at(_Z), t_at(-_Z)])
    # NaN where ratios are beyond the range of floats: then nothing is known
    return 0.0 if np.isnan(low) else float(low), inf if np.isnan(high) else float(high)


def _below(terms: Floats) -> Floats:
    """Return the sums over terms[:j] for j = 0 … n - 1."""
    return np.cumsum(terms) - terms


def tail_index(prefix: Prefix, depth: float = 0.6) -> tuple[float, float]:
    """Return Hill's estimate of the tail index of r and its lower 95 % bound, from the largest n^depth ratios.

    Moments of r below the index exist, those above do not. A log-normal ratio has every moment, but at log-sd s and
    n = 10 000 it behaves like an index of about 2.6/s, and means of r^k with k above that are not to be trusted.
    """
    n = len(prefix.value)
    k = min(max(int(n**depth), 10), n - 1)
    mass = prefix.mass[n - k :]
    if k < 1 or not np.any(mass):
        return 0.0, 0.0
    excess = float(np.sum(mass * (prefix.value[n - k :] - prefix.value[n - k - 1])) / np.sum(mass))
    index = inf if excess <= 0 else 1 / excess
    return index, index * max(1 - 2 / sqrt(k), 0.0)
