"""A metric at many budgets of one pool, with errors that are paired over budgets.

Values at two budgets come from the same rows, so their difference is known much better than either of them. What
decides is how far each row, or each group of rows, moves each value: the variance is the sum of the squares of that.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from .._checks import check_confidence
from ..estimate import Estimate

__all__ = ["GROUPS", "Curve", "Effects", "Influence", "group_labels", "student"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

GROUPS = 20
"""How many groups a jackknife leaves out in turn."""


class Influence(NamedTuple):
    """How a metric moves when mass moves to a row, for some rows of one side.

    Attributes:
        rows: Which rows, `(m,)`.
        times: How many rows each of them stands for, `(m,)`: 1 if all are there.
        value: The derivatives, `(budgets, m)`, of weighted mean 0.
    """

    rows: Ints
    times: Floats
    value: Floats

    def spread(self, n: int) -> Floats:
        """Return what each row adds to the error of a metric of n rows of equal mass, `(budgets, m)`."""
        spread: Floats = self.value * np.sqrt(self.times) / n
        return spread


class Effects(NamedTuple):
    """A distance at each budget, its excess at this n, and the influence of the rows of each side."""

    value: Floats
    excess: Floats
    real: Influence
    fake: Influence


@dataclass(frozen=True, eq=False)
class Curve:
    """A metric at several budgets.

    Args:
        value: The metric, `(budgets,)`.
        parts: What each row or group adds to the error, `(budgets, m)`.
        freedom: Degrees of freedom of the error; None for so many that its distribution is normal.
        bounds: What the metric cannot leave; intervals of a value end there.

    Example:
        >>> both = Curve(np.array([2.0, 1.0]), np.array([[0.3, -0.3, 0.4], [0.3, -0.3, 0.0]]))
        >>> both.standard_error.round(3), round(both.difference(0, 1).standard_error, 3)
        (array([0.583, 0.424]), 0.4)

    References:
        | The Influence Curve and its Role in Robust Estimation (Hampel, 1974)
    """

    value: Floats
    parts: Floats
    freedom: int | None = None
    bounds: tuple[float, float] = (-np.inf, np.inf)

    @classmethod
    def from_groups(cls, value: Floats, left_out: Floats, bounds: tuple[float, float] = (-np.inf, np.inf)) -> "Curve":
        """Return a curve from the values without each group, `(groups, budgets)`: the delete-a-group jackknife.

        No row is repeated, which metrics by nearest neighbours could not bear. The errors are rather too large than too
        small: the mean of the squares of the changes is at least the variance (Efron and Stein).

        References:
            | Bias and Confidence in Not-Quite Large Samples (Tukey, 1958)
            | The Jackknife Estimate of Variance (Efron and Stein, 1981)
        """
        groups = len(left_out)
        parts = (left_out - left_out.mean(axis=0)).T * np.sqrt((groups - 1) / groups)
        return cls(np.asarray(value), parts, groups - 1, bounds)

    @property
    def standard_error(self) -> Floats:
        """Standard error of each value."""
        error: Floats = np.sqrt(np.sum(self.parts**2, axis=1))
        return error

    def estimate(self, budget: int, confidence: float = 0.95) -> Estimate:
        """Return the value at one of the budgets, by its position, with an interval."""
        result = self._interval(self.value[budget], self.parts[budget], confidence)
        low, high = (float(np.clip(end, *self.bounds)) for end in (result.low, result.high))
        return Estimate(result.value, low, high, result.standard_error)

    def difference(self, budget: int, other: int, confidence: float = 0.95) -> Estimate:
        """Return the value at one budget minus that at another, by their positions, with an interval."""
        parts = self.parts[budget] - self.parts[other]
        return self._interval(self.value[budget] - self.value[other], parts, confidence)

    def relative(self, budget: int, other: int) -> Estimate:
        """Return the difference as a share of the value at the other budget."""
        change, base = self.difference(budget, other), abs(float(self.value[other]))
        return Estimate(*(x / base for x in (change.value, change.low, change.high, change.standard_error)))

    def _interval(self, value: Any, parts: Floats, confidence: float) -> Estimate:
        error = float(np.sqrt(np.sum(parts**2)))
        reach = student(check_confidence(confidence), self.freedom) * error
        return Estimate(float(value), float(value) - reach, float(value) + reach, error)


def student(confidence: float, freedom: int | None = None) -> float:
    """Return how many standard errors make a two-sided interval, from the expansion for many degrees of freedom.

    Example:
        >>> round(student(0.95, 19), 3), round(student(0.95), 3)
        (2.093, 1.96)

    References:
        | Percentage Points of Distributions with Known Cumulants (Fisher and Cornish, 1960)
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z if freedom is None else float(sum(term / freedom**power for power, term in enumerate(terms)))


def group_labels(n: int, seed: int) -> Ints:
    """Split n rows at random into groups of nearly the same size.

    Example:
        >>> np.bincount(group_labels(50, seed=0)).tolist().count(3)
        10
    """
    labels = np.empty(n, dtype=np.intp)
    labels[np.random.default_rng((seed, 2**33)).permutation(n)] = np.arange(n) % GROUPS
    return labels
