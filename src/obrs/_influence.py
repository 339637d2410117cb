"""Standard errors of what a profile says, by influence functions: one pass each, no resampling.

The profile of a sample is a smooth function of its empirical distribution. The influence of a proposal x is
the derivative of the statistic when mass moves to x; the variance of the statistic is that of the mean of
the influences. Two effects besides the direct one: c moves by dc = -(a(x) - Z)/E[r; a < 1] to keep the
budget, and the normalisation moves by r(x) - 1. Terms from proposals that cross the threshold cancel.

References:
    | On the Removal of Skewness by Transformation (Hall, 1992)
    | A Simple General Approach to Inference About the Tail of a Distribution (Hill, 1975)
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from ._prefix import Prefix
from .divergences import FDivergence

__all__ = ["Error", "Sample", "tail_index"]

Floats = np.ndarray[Any, Any]


class Error(NamedTuple):
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
            return -np.inf, np.inf
        low, high = (_unskewed(z, self.skewness) for z in (-1.96, 1.96))
        return value - self.deviation * high, value - self.deviation * low


def _unskewed(z: float, skewness: float) -> float:
    if abs(skewness) < 1e-6:
        return z
    return 3 / skewness * (float(np.cbrt(1 + skewness * (z - skewness / 6))) - 1)


class Cut(Protocol):
    """Where a budget cuts: proposals from `position` on have a = 1, those before a = c r."""

    @property
    def log_c(self) -> float: ...
    @property
    def rate(self) -> float: ...
    @property
    def position(self) -> int: ...


class Sample:
    """The proposals of a profile, cut at one budget.

    Args:
        prefix: Sorted log-ratios, of r over its mean.
        square_mass: Sum of squared masses of the proposals with r = 0.
        cut: The budget's constant, rate and position.
        offset: What to add to speak of r itself.
        normalised: Whether r is divided by the mean of the sample.
    """

    def __init__(self, prefix: Prefix, square_mass: float, cut: Cut, offset: float, normalised: bool) -> None:
        self.prefix, self.square_mass, self.offset, self.normalised = prefix, square_mass, offset, normalised
        self.position, self.rate, self.log_c = cut.position, cut.rate, cut.log_c
        self.ratio = np.exp(prefix.value)
        self.kept = np.ones(len(prefix.value))
        if self.position:
            self.kept[: self.position] = np.exp(prefix.value[: self.position] + self.log_c)
        self.rejects = np.isfinite(self.log_c)

    def _error(self, influence: Floats, at_zero: float) -> Error:
        """Return the error of a statistic with these influences, `at_zero` being that of r = 0."""
        mass, impossible = self.prefix.mass, self.prefix.impossible
        if not (np.all(np.isfinite(influence)) and np.isfinite(at_zero)):
            return Error(np.inf, 0.0, 0.0)
        mean = float(np.sum(mass * influence)) + impossible * at_zero
        moved = mass * (influence - mean)
        square = float(np.sum(moved**2)) + self.square_mass * float(np.square(at_zero - mean))
        if square == 0 or not np.isfinite(square):
            return Error(square, 0.0, np.inf if square == 0 else 0.0)
        scaled = moved / np.sqrt(square)
        return Error(float(np.sqrt(square)), float(np.sum(scaled**3)), 1 / float(np.sum(scaled**4)))

    def of_rate(self) -> Error:
        """Return that of the rate of fresh proposals with c from this sample."""
        return self._error(self.kept, 0.0 if self.rejects else 1.0)

    def of_divergence(self, div: FDivergence) -> Error:
        """Return that of the divergence left."""
        log_z = np.log(self.rate) + self.offset
        log_u = self.prefix.value + log_z
        log_u[: self.position] = log_z - self.log_c
        f = div.f(log_u)
        slope = f + div.f_star_of_f_prime(log_u)  # u f'(u), also where u is 0 and f' infinite
        f_free, pull = (float(f[0]), float(slope[0])) if self.position else (0.0, 0.0)
        saturated = np.arange(len(f)) >= self.position
        with np.errstate(over="ignore", invalid="ignore"):
            tilt = float(np.sum(self.prefix.mass * self.kept * slope)) / self.rate if self.normalised else 0.0
            influence = (np.where(saturated, f - f_free, 0.0) + pull * self.kept) / self.rate - tilt * self.ratio
        at_zero = 0.0 if self.rejects or not self.prefix.impossible else float(div.f(-np.inf))
        return self._error(influence, at_zero)

    def of_log_ess(self) -> Error:
        """Return that of the logarithm of the effective sample size per kept sample."""
        second = self.ratio**2  # r²/a is r/c where a < 1
        if self.position:
            second[: self.position] = np.exp(self.prefix.value[: self.position] - self.log_c)
        whole = float(np.sum(self.prefix.mass * second))
        pull = np.exp(-2 * self.log_c) if self.rejects else 0.0
        drift = 2 * self.ratio / float(np.sum(self.prefix.mass * self.ratio))
        return self._error(drift - (second + pull * self.kept) / whole, 0.0)

    def of_precision(self, lam: float, recall: float) -> Error:
        """Return that of the precision at a recall, `lam` being the slope of the curve before rejection there."""
        below = self.prefix.position(-np.log(lam))
        inner = float(np.exp(self.prefix.log_sum_below[below]))
        if recall <= inner:  # a recall of 1 is decided by the largest ratio alone
            return Error(np.inf, 0.0, 0.0)
        shift = lam * inner * self.ratio if self.normalised else 0.0
        influence = np.minimum(lam * self.ratio, 1.0) - shift
        return self._error(influence * (recall / (recall - inner) / self.rate), 0.0)


def tail_index(prefix: Prefix) -> float:
    """Return Hill's estimate of the tail index of r: moments below it exist, those above do not.

    It rests on the largest n^0.6 ratios. A log-normal ratio has every moment, but at log-sd s and n = 10 000 it
    behaves like an index of about 2.6/s, and means of r^k with k above that are not to be trusted.
    """
    n = len(prefix.value)
    k = min(max(int(n**0.6), 10), n - 1)
    if k < 1:
        return 0.0
    mass = prefix.mass[n - k :]
    if not np.any(mass):
        return 0.0
    excess = float(np.sum(mass * (prefix.value[n - k :] - prefix.value[n - k - 1])) / np.sum(mass))
    return float("inf") if excess <= 0 else 1 / excess
