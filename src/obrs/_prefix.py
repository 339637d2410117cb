"""Log-ratios sorted once, with running sums: every question about a threshold is then a binary search."""

from collections.abc import Callable
from functools import cached_property
from math import log
from typing import Any

import numpy as np

from .root import slack_of

__all__ = ["SEPARABLE", "Prefix"]

Floats = np.ndarray[Any, Any]

_SPAN = 500.0  # exp of this is far inside the range of a float
_FARTHEST = 1e300  # below the largest log-ratio: a difference of two finite numbers may be infinite


class Prefix:
    """Sorted log-ratios l of r over its mean, with masses w that sum to 1; those with r = 0 are only counted.

    A position j splits them: the proposals j, j+1, … are above, the others below.

    Args:
        log_ratio: Log-ratios, 1-D float64, on any scale; at least one with mass is finite.
        mass: Their masses, which sum to 1; none if all have the same.

    Attributes:
        log_mean: log E[r] as given, which is taken off the values.
        value, ratio: log r and r over the mean, ascending.
    """

    def __init__(self, log_ratio: Floats, mass: Floats | None = None) -> None:
        count = len(log_ratio)
        if mass is None:
            value = np.sort(log_ratio)  # ten times as fast as the order, which only masses need
        else:
            order = np.argsort(log_ratio, kind="stable")
            value, mass = log_ratio[order], mass[order]
        first = int(np.searchsorted(value, -np.inf, side="right"))
        above = np.arange(count - first, -1.0, -1.0) / count
        self.even = mass is None
        self.impossible = first / count if mass is None else float(np.sum(mass[:first]))
        self.impossible_masses = np.full(first, 1 / count) if mass is None else mass[:first]
        self.mass = np.full(count - first, 1 / count) if mass is None else mass[first:]
        self.mass_above = above if mass is None else _sum_above(self.mass)
        with np.errstate(over="ignore"):
            below_top = np.maximum(value[first:] - value[-1], -_FARTHEST)
        ratio = np.exp(below_top)
        mean = float(np.sum(self.mass * ratio))
        self.log_mean = float(value[-1]) + float(np.log(mean))
        self.value, self.ratio = below_top - np.log(mean), ratio / mean
        self.log_sum_below = self._log_sum_below()
        self._sums: dict[str, Floats] = {}

    @cached_property
    def share(self) -> Floats:
        """The masses under the target, w r; no larger than 1 where r itself may leave the range of a float."""
        share: Floats = self.mass * self.ratio
        if not self.even and self.value[-1] > _SPAN:
            with np.errstate(divide="ignore"):
                share = np.exp(self.value + np.log(self.mass))
        return share

    @cached_property
    def alpha_at(self) -> Floats:
        """E[min(c r, 1)] with the threshold 1/c at each value: the mass above, and c times the sum below. It falls."""
        with np.errstate(over="ignore"):
            alpha: Floats = self.mass_above[:-1] + np.exp(self.log_sum_below[:-1] - self.value)
        return alpha

    @cached_property
    def recall_at(self) -> Floats:
        """Recall with the threshold at each value. It rises."""
        recall: Floats = self.alpha_at * self.ratio
        return recall

    def position(self, threshold: Any) -> Any:
        """Return how many lie below each threshold."""
        return np.searchsorted(self.value, threshold, side="left")

    def sum_above(self, name: str, position: Any) -> Any:
        """Return the sum of w term over what lies above each position, for a term in `_TERMS`."""
        if name not in self._sums:
            with np.errstate(over="ignore", invalid="ignore"):
                self._sums[name] = _sum_above(_TERMS[name](self))
        return self._sums[name][position]

    def log_c(self, share: float) -> float:
        """Return log c with E[min(c r, 1)] = share, not floored at 1/max r."""
        # alpha_at tells where the largest quotient is, up to rounding: look at its neighbours, too
        near = int(np.searchsorted(-self.alpha_at, -share, side="right"))
        at = slice(max(near - 2, 1), max(near, 1) + 3)
        slack = slack_of(len(self.value), not self.even)
        log_sums, above = self.log_sum_below[at], self.mass_above[at]
        origin = float(np.min(log_sums, where=share - above > slack * share, initial=np.inf))
        with np.errstate(over="ignore"):
            lacking = share - above
            counts = lacking > slack * share
            return float(np.log(np.max(lacking[counts] / np.exp(log_sums - origin)[counts], initial=0.0))) - origin

    def _log_sum_below(self) -> Floats:
        """Return log of the sums of w r over [:j] for j = 0 … n, exact over any range.

        Stretches in which l rises by less than `_SPAN` are summed relative to their start.
        """
        logs = np.full(len(self.value) + 1, -np.inf)
        if self.value[-1] - self.value[0] < _SPAN:
            np.log(np.cumsum(self.share), out=logs[1:])
            return logs
        start, carry = 0, -np.inf
        while start < len(self.value):
            origin = self.value[start]
            stop = int(np.searchsorted(self.value, origin + _SPAN, side="right"))
            running = np.cumsum(self.mass[start:stop] * np.exp(self.value[start:stop] - origin))
            logs[start + 1 : stop + 1] = origin + np.log(np.exp(carry - origin) + running)
            start, carry = stop, logs[stop]
        return logs


# What is summed, times w. The square of r goes by w r, which is at most 1: r² alone may overflow where w r² does not.
_TERMS: dict[str, Callable[[Prefix], Floats]] = {
    "r": lambda p: p.share,
    "r log r": lambda p: p.share * p.value,
    "log r": lambda p: p.mass * p.value,
    "r²": lambda p: p.share * p.ratio,
    "1/r": lambda p: p.mass * np.exp(-p.value),
    "√r": lambda p: p.mass * np.exp(p.value / 2),
}


def _sum_above(terms: Floats) -> Floats:
    """Return the sums over terms[j:] for j = 0 … n."""
    sums = np.zeros(len(terms) + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        np.cumsum(terms[::-1], out=sums[-2::-1])
    return sums


# Sums of w f(r Z) over the saturated, from running sums of powers of r.


def _kl(p: Prefix, j: int, log_z: float) -> float:
    return float(np.exp(log_z) * (p.sum_above("r log r", j) + log_z * p.sum_above("r", j)))


def _rkl(p: Prefix, j: int, log_z: float) -> float:
    return float(-p.sum_above("log r", j) - log_z * p.mass_above[j])


def _js(p: Prefix, j: int, log_z: float) -> float:
    z = np.exp(log_z)
    log_sum = np.log(1 + z * p.ratio[j:]) if np.isfinite(p.ratio[-1]) else np.logaddexp(0.0, p.value[j:] + log_z)
    mixed = p.mass[j:] @ log_sum + z * (p.share[j:] @ log_sum)
    return float(_kl(p, j, log_z) - mixed + 2 * log(2) * p.mass_above[j]) / 2


def _gan(p: Prefix, j: int, log_z: float) -> float:
    return 2 * _js(p, j, log_z)


def _tv(p: Prefix, j: int, log_z: float) -> float:
    k = max(j, int(p.position(-log_z)))  # from here on r Z >= 1

    def excess(i: int) -> Any:  # sum of w (r Z - 1)
        return np.exp(log_z) * p.sum_above("r", i) - p.mass_above[i]

    return float(2 * excess(k) - excess(j)) / 2


def _chi2(p: Prefix, j: int, log_z: float) -> float:
    z = np.exp(log_z)
    return float(z * (z * p.sum_above("r²", j)) - 2 * z * p.sum_above("r", j) + p.mass_above[j])


def _neyman(p: Prefix, j: int, log_z: float) -> float:
    z = np.exp(log_z)
    return float(z * p.sum_above("r", j) - 2 * p.mass_above[j] + p.sum_above("1/r", j) / z)


def _hellinger(p: Prefix, j: int, log_z: float) -> float:
    z = np.exp(log_z)
    return float(z * p.sum_above("r", j) - 2 * np.sqrt(z) * p.sum_above("√r", j) + p.mass_above[j])


SEPARABLE: dict[str, Callable[[Prefix, int, float], float]] = {
    "kl": _kl,
    "rkl": _rkl,
    "gan": _gan,
    "js": _js,
    "tv": _tv,
    "chi2": _chi2,
    "neyman": _neyman,
    "hellinger": _hellinger,
}
