"""How far what a pilot says may be off, by influence functions: no resampling.

The profile of a sample is a smooth function of its empirical distribution. The influence of a proposal x is
the derivative of the statistic when mass moves to x; the variance of the statistic is that of the mean of
the influences. Two effects besides the direct one: c moves by dc = -(a(x) - Z)/E[r; a < 1] to keep the
budget, and the normalisation moves by r(x) - 1. Terms from proposals that cross the threshold cancel.

References:
    | A Simple General Approach to Inference About the Tail of a Distribution (Hill, 1975)
    | Some Problems in Interval Estimation (Fieller, 1954), for the precision
"""

from math import exp, inf, isfinite, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from ._prefix import Prefix
from .budget import Cut
from .divergences import FDivergence, divergence
from .estimate import skewed_interval
from .root import brent

__all__ = ["PLANNED", "Pilot", "tail_index"]

Floats = np.ndarray[Any, Any]

PLANNED = ("kl", "rkl", "tv", "js", "chi2")
"""The divergences of a plan."""
_Z = 1.96  # of a 95 % interval
_ALONE = 512  # this many proposals at each end stand for themselves
_UNSEEN = 3.0  # times 1/n: the 95 % upper bound of the mass of what a pilot of n did not show
# By column: what the lower bound of the tail index must exceed for it to be promised, and from which size on a pilot
# that missed a tail can be told from one of light ratios. Behind tv and precision is the mean of r, behind kl that of
# r log r, behind chi2 that of r²; the figures are from repeated pilots.
_KL = (1.25, 500)
_TRUSTED = {"kl": _KL, "rkl": _KL, "tv": (1.15, 0), "js": _KL, "chi2": (2.25, 10_000), "precision": (1.25, 0)}
_FEW, _TRUSTED_OF_FEW = 500, {"precision": (1.4, 0)}  # of a smaller pilot
_SATURATED = 30  # different ratios with a = 1; with fewer, the budget is close to the largest ratio of the sample


def tail_index(value: Floats, mass: Floats | None = None, depth: float = 0.6) -> tuple[float, float]:
    """Return Hill's estimate of the tail index of r and its lower 95 % bound, from the largest n^depth ratios.

    The log-ratios are ascending and finite. Moments of r below the index exist, those above do not. A log-normal ratio
    has every moment, but at log-sd s and n = 10 000 it behaves like an index of about 2.6/s, and means of r^k with k
    above that are not to be trusted.
    """
    n = len(value)
    k = min(max(int(n**depth), 10), n - 1)
    if k < 1:
        return 0.0, 0.0
    excess = float(np.average(value[n - k :] - value[n - k - 1], weights=None if mass is None else mass[n - k :]))
    index = inf if excess <= 0 else 1 / excess
    return index, index * max(1 - 2 / sqrt(k), 0.0)


class Strata(NamedTuple):
    """Proposals in strata so thin that one log-ratio stands for each; the first may have r = 0.

    Attributes:
        value: Log-ratios of r over its mean, ascending.
        mass, norm2, norm3: The 1-, 2- and 3-norms of the masses in each stratum.
    """

    value: Floats
    mass: Floats
    norm2: Floats
    norm3: Floats

    @classmethod
    def divide(cls, prefix: Prefix) -> "Strata":
        """Divide any number of proposals into a few thousand strata.

        Towards both ends they grow thinner, in proportion to the rank, and the last proposals stand alone. A standard
        error changes by less than its third digit.
        """
        first, n = prefix.first, prefix.count - prefix.first
        later = _ALONE * np.exp(np.arange(1 + int(_ALONE * log(max(n / _ALONE, 1)))) / _ALONE)
        ranks = np.append(np.arange(_ALONE), later.astype(np.int64))
        ranks = ranks[ranks <= n // 2]
        edges = np.unique(np.concatenate([[0], first + ranks, [first + n // 2], prefix.count - ranks]))
        if prefix.even:
            norms = [np.diff(edges) ** (1 / k) / prefix.count for k in (1, 2, 3)]
        else:
            norms = [np.add.reduceat(prefix.mass**k, edges[:-1]) ** (1 / k) for k in (1, 2, 3)]
        return cls(prefix.value[(edges[:-1] + edges[1:] - 1) // 2], *norms)

    def add(self, value: float, mass: float) -> "Strata":
        """Return the strata with three more proposals, which have this mass together, at one log-ratio."""
        parts = (value, *(mass * _UNSEEN ** (1 / k - 1) for k in (1, 2, 3)))
        return Strata(*(np.append(old, new) for old, new in zip(self, parts, strict=True)))

    def interval(self, value: float, influence: Floats) -> tuple[float, float]:
        """Return the 95 % interval of a statistic with these influences."""
        if not np.all(np.isfinite(influence)):
            return -inf, inf
        moved = influence - float(self.mass @ influence)
        error = float(np.linalg.norm(self.norm2 * moved))
        share = self.norm3 * moved / error  # NaN where the error is 0 or infinite, as the skewness is then
        return skewed_interval(value, error, float(share**2 @ share))


def _divergence_influence(strata: Strata, cut: Cut, a: Floats, div: FDivergence) -> Floats:
    """Return the influence of each stratum, which is kept with probability a, on the divergence left."""
    rate = exp(cut.log_rate)
    log_free = cut.log_rate - cut.log_c  # log u wherever a < 1
    log_u = np.maximum(strata.value + cut.log_rate, log_free)
    influence = f = div.f(log_u)
    if cut.log_c < inf:
        f_free, pull = float(div.f(log_free)), float(div.f_star_of_f_prime(log_free))
        influence = f - f_free + (f_free + pull) * a
    slope = f + div.f_star_of_f_prime(log_u)  # u f'(u), also where u is 0 and f' infinite
    tilt = float(np.sum(strata.mass * a * slope)) / rate
    return np.asarray(influence / rate - tilt * np.exp(strata.value))


def _precision_interval(strata: Strata, recall: float) -> tuple[float, float]:
    """Return a 95 % interval for the precision before rejection at a recall.

    The precision is recall/t, where t solves E[min(r, t)] = recall with E[r] = 1. It is anything but linear in the
    sample when much of the target rests on few proposals. So the interval takes every t whose recall is within 1.96 of
    its standard errors.
    """
    if recall >= 1:  # decided by the largest ratio alone
        return 0.0, inf
    ratio = np.exp(strata.value)
    ratio /= float(strata.mass @ ratio)
    squares = strata.norm2**2, strata.norm2**2 * ratio, (strata.norm2 * ratio) ** 2
    mass, share, *powers = (np.append(0.0, np.cumsum(x)) for x in (strata.mass, strata.mass * ratio, *squares))

    def errors_above(t: Any) -> Any:
        """Return by how many standard errors the recall of t is above what is asked."""
        k, variance = np.searchsorted(ratio, t), 1e-300
        # The recall is a + b, and its influence min(r, t) - a - b r. Unseen proposals count in b alone: counted in a as
        # well, they narrow the interval of a small pilot, and of 200 at log-sd 1 it held in 73 % of cases, not in 96 %.
        a, b = (1 - mass[k]) * t, share[k]
        below, above = [sums[k] for sums in powers], [sums[-1] - sums[k] for sums in powers]
        for x, y, (one, r, r_squared) in ((-a, 1 - b, below), (t - a, -b, above)):  # sums of w² (x + y r)²
            variance = variance + x**2 * one + 2 * x * y * r + y**2 * r_squared
        return (a + b - recall) / np.sqrt(abs(variance))

    errors = errors_above(ratio)
    errors[-1] = inf  # beyond the largest ratio the recall is 1 without error

    def threshold(z: float) -> float:
        k = int(np.argmax(errors >= z))  # they need not rise everywhere: the first crossing counts
        start, stop = float(ratio[k - 1]) if k else 0.0, float(ratio[k])
        inside = errors_above(start) < z < errors_above(stop)
        return brent(lambda t: float(errors_above(t)) - z, start, stop) if inside else stop

    return recall / threshold(_Z), recall / threshold(-_Z)


class Pilot:
    """What a pilot says, and cannot rule out: a Q-mass of 3/n at the largest ratio seen, or in a tail beyond.

    Args:
        prefix: The log-ratios.
        recall: Where the precision is read.
        net, net_error: The net share of the mass, with its standard error; 1 and 0 without signs.
    """

    @np.errstate(all="ignore")  # what is too large to be summed is infinite
    def __init__(self, prefix: Prefix, recall: float, net: float, net_error: float) -> None:
        precision = prefix.precision_at(recall)
        self.prefix, self.strata = prefix, Strata.divide(prefix)
        self.net = np.clip(abs(net) + _Z * net_error * np.array([0, -1, 1]), 0, 1)
        least, outer = (tail_index(*prefix.positive, depth)[1] for depth in (0.6, 0.4))
        outer = min(least, outer)  # a tail that begins far out, as between Student distributions, shows only there
        trusted = _TRUSTED | (_TRUSTED_OF_FEW if prefix.count < _FEW else {})
        index = dict.fromkeys(trusted, least) | {"chi2": outer}
        self.heavy = {key for key, (wanted, size) in trusted.items() if index[key] <= wanted or prefix.count < size}
        unseen, top = _UNSEEN * float(self.strata.norm2 @ self.strata.norm2), float(self.strata.value[-1])
        # In a tail of index h beyond the largest ratio, the mean of r is h/(h - 1) times as large, that of r² h/(h - 2)
        # times its square. Of the heaviest tail that is not ruled out; 0.8 and 2.25 have held in repeated pilots.
        mean = top + (log(least / (least - 0.8)) if 1 < least < inf else 0.0)
        square = top + (log(outer / (outer - 2.25)) / 2 if 2.25 < outer < inf else 0.0)
        samples = [self.strata, *(self.strata.add(x, unseen) for x in (top, mean, square))]
        self.base, self.with_top, self.with_mean, self.with_square = (Prefix(s.value, s.mass) for s in samples)
        self.unseen = unseen * exp(mean)  # its mass under the target
        low, high = zip(*(_precision_interval(s, recall) for s in samples[:2]), strict=True)
        self.precision = precision, min(low), max(high)

    @np.errstate(all="ignore")
    def row(self, budget: float) -> dict[str, Any]:
        """Return the columns of a plan at a budget, each with its interval, and which should not be believed."""
        cut, rate, x = self.prefix.cut(budget), self.prefix.rate(budget), self.strata.value
        a = np.exp(cut.log_a(x)) if budget > 1 else np.ones(len(x))  # at 1 everything is kept, also what has r = 0
        columns = {"rate": (rate, *self.strata.interval(rate, a))}
        columns |= {key: self._divergence(key, budget, a) for key in PLANNED}
        value, low, high = columns["chi2"]
        columns["ess"] = tuple(self.net**2 / (1 + np.maximum([value, high, low], 0.0)))
        value, low, high = self.precision
        # The true rate is at least 1/K, also where no ratio of this sample is that large.
        columns["precision"] = value / rate, low / rate, high * budget
        row: dict[str, Any] = {"budget": budget}
        for key, (value, low, high) in columns.items():
            most = 1.0 if key in ("rate", "tv", "precision") else inf
            ends = np.clip([value, min(low, value), max(high, value)], 0.0, most)
            row |= zip((key, f"{key}_low", f"{key}_high"), ends.tolist(), strict=True)
        saturated = self.prefix.value[max(self.prefix.free(cut), self.prefix.first) :]
        different = 1 + np.count_nonzero(np.diff(saturated))  # a few atoms tell little of a tail
        near = cut.log_c == -saturated[-1] or different < min(_SATURATED, self.prefix.count)
        doubtful = self.heavy | {key for key in PLANNED if key != "tv" and (near or columns[key][1] <= 0)}
        names = (key for key in _TRUSTED if key in doubtful)
        return row | {"unreliable": " ".join(names).replace("chi2", "chi2 ess")}

    def _divergence(self, key: str, budget: float, a: Floats) -> tuple[float, float, float]:
        """Return a divergence left, with its interval: from the spread of the sample, and what the unseen could do."""
        div, prefix = divergence(key), self.prefix
        samples = prefix, self.base, self.with_top, self.with_square if key == "chi2" else self.with_mean
        value, base, *others = (p.divergence_left(div, budget) for p in samples)
        low, high = self.strata.interval(value, _divergence_influence(self.strata, prefix.cut(budget), a, div))
        changes = [0.0, *(other - base for other in others if isfinite(other))]
        high += max(changes)
        return value, low + min(changes), max(high, self.unseen) if key == "tv" else high  # all unseen may be missed
