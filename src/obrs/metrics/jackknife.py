"""Delete-a-group jackknife: errors of metrics that have no influence function, paired over budgets.

Points are split at random into groups, and the metric is computed again without each. No point is repeated, which
metrics by nearest neighbours could not bear: a copy is a neighbour at distance 0, so that a bootstrap sees balls that
are too small.
"""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from .._checks import check_confidence, check_count
from ..errors import InputError
from ..estimate import Estimate

__all__ = ["LEAST_GROUPS", "Jackknife", "check_groups", "group_labels", "student"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

LEAST_GROUPS = 20


@dataclass(frozen=True, eq=False)
class Jackknife:
    """A metric at several budgets, and what it is without each group of points.

    The intervals are for the mean of the metric over samples of these sizes, not for its limit with infinitely many
    points: metrics by nearest neighbours change with n. They are rather too wide than too narrow, since the mean of
    the squares of the changes is at least the variance (Efron and Stein): the standard error may be up to twice the
    true one.

    Args:
        value: The metric, `(budgets,)`.
        left_out: The metric without each group, `(groups, budgets)`.
        n_real: How many real points there are.
        n_fake: How many fakes the metric is for, `(budgets,)`.
        bounds: What the metric cannot leave; intervals of a value are cut there.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(200, 1)) + [0.0, 1.0]  # two means that vary together
        >>> left_out = (x.sum(0) - x.reshape(20, 10, 2).sum(1)) / 190
        >>> both = Jackknife(x.mean(0), left_out, 0, np.array([200, 200]))
        >>> both.standard_error.round(3), round(both.difference(1, 0).standard_error, 3)
        (array([0.076, 0.076]), 0.0)

    References:
        | Bias and Confidence in Not-Quite Large Samples (Tukey, 1958)
        | The Jackknife Estimate of Variance (Efron and Stein, 1981)
    """

    value: Floats
    left_out: Floats
    n_real: int
    n_fake: Any
    bounds: tuple[float, float] = (-np.inf, np.inf)

    @property
    def standard_error(self) -> Floats:
        """Standard error of each value."""
        return np.asarray(_standard_error(self.left_out))

    def interval(self, budget: int, confidence: float = 0.95) -> Estimate:
        """Return the value at one of the budgets, by its position, with an interval."""
        found = self._interval(self.value[budget], self.left_out[:, budget], confidence)
        low, high = (float(np.clip(end, *self.bounds)) for end in (found.low, found.high))
        return Estimate(found.value, low, high, found.standard_error)

    def difference(self, budget: int, other: int, confidence: float = 0.95) -> Estimate:
        """Return the value at one budget less that at another, by their positions, with an interval."""
        changes = self.left_out[:, budget] - self.left_out[:, other]
        return self._interval(self.value[budget] - self.value[other], changes, confidence)

    def _interval(self, value: Any, left_out: Floats, confidence: float) -> Estimate:
        if len(left_out) < 2:
            raise InputError(f"an interval needs values without each of at least 2 groups, got {len(left_out)}")
        error = float(_standard_error(left_out))
        reach = student(check_confidence(confidence), len(left_out) - 1) * error
        return Estimate(float(value), float(value) - reach, float(value) + reach, error)


def _standard_error(left_out: Floats) -> Any:
    groups = len(left_out)
    return np.std(left_out, axis=0) * sqrt(groups - 1)


def student(confidence: float, freedom: int) -> float:
    """Return how many standard errors make a two-sided interval, from the expansion for many degrees of freedom.

    Example:
        >>> round(student(0.95, 19), 3)
        2.093

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
    return float(sum(term / freedom**power for power, term in enumerate(terms)))


def group_labels(n: int, groups: int, seed: int) -> Ints:
    """Split n points at random into groups of nearly the same size; all are in one group if there are to be none.

    Example:
        >>> np.bincount(group_labels(50, 20, seed=0)).tolist().count(3)
        10
    """
    labels = np.zeros(n, dtype=np.intp)
    if groups:
        labels[np.random.default_rng((seed, 2**33)).permutation(n)] = np.arange(n) % groups
    return labels


def check_groups(groups: Any, n: int, least: int) -> int:
    """Return the number of groups, of which each may be left out and at least so many points stay; None is 0.

    Example:
        >>> check_groups(20, 100, 6), check_groups(None, 3, 6)
        (20, 0)
    """
    if groups is None:
        return 0
    count = check_count(groups, "groups", LEAST_GROUPS)
    if n < count or n - -(-n // count) < least:
        raise InputError(f"groups must leave at least {least} of {n} points when one is left out, got {count} groups")
    return count
