"""A metric at many budgets from one pool: its values, and what every row adds to them, so that errors are paired."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays import as_floats, host_view
from ..errors import InputError
from ..estimate import Estimate
from ._inputs import as_weights

__all__ = ["Paired", "as_slopes", "pulled"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Paired:
    """A metric at several weightings of the same rows.

    The values at two budgets come from the same rows, so their difference is known much better than either of them.
    What decides is how each row moves each value: the variance is the sum of the squares of that.

    Args:
        value: The metric, `(budgets,)`.
        real_influence: What each real row adds to the error, `(budgets, n_real)`.
        fake_influence: What each fake row adds to the error, `(budgets, n_fake)`.
        n_real: How many real rows there are.
        n_fake: Effective number of fake rows at each budget, `(budgets,)`.
        dimension: Of the features.

    Example:
        >>> ones, moved = np.ones(2), np.array([[0.3, -0.3, 0.4], [0.3, -0.3, 0.0]])
        >>> both = Paired(np.array([2.0, 1.0]), np.zeros((2, 1)), moved, 1, ones, 1)
        >>> both.standard_error.round(3), round(both.difference(0, 1).standard_error, 3)
        (array([0.714, 0.52 ]), 0.49)

    References:
        | The Influence Curve and its Role in Robust Estimation (Hampel, 1974)
    """

    value: Floats
    real_influence: Floats
    fake_influence: Floats
    n_real: int
    n_fake: Floats
    dimension: int

    @property
    def standard_error(self) -> Floats:
        """Standard error of each value."""
        error: Floats = np.sqrt(_variance(self.real_influence) + _variance(self.fake_influence))
        return error

    def interval(self, budget: int, confidence: float = 0.95) -> Estimate:
        """Return the value at one of the budgets, by its position, with an interval."""
        return Estimate.around(float(self.value[budget]), float(self.standard_error[budget]), confidence)

    def difference(self, budget: int, other: int, confidence: float = 0.95) -> Estimate:
        """Return the value at one budget less that at another, by their positions, with an interval."""
        moved = (x[budget] - x[other] for x in (self.real_influence, self.fake_influence))
        error = float(np.sqrt(sum(_variance(x) for x in moved)))
        return Estimate.around(float(self.value[budget] - self.value[other]), error, confidence)


def _variance(influence: Floats) -> Any:
    """Sum the squares; with n rows their mean was fitted, which n/(n - 1) makes good."""
    n = influence.shape[-1]
    return np.sum(influence**2, axis=-1) * (n / max(n - 1, 1))


def pulled(influence: Floats, mass: Floats, slopes: Floats | None) -> Floats:
    """Return what each row of a pool adds to the error of a metric of the weighted pool.

    The influence of a row on the weighted distribution counts by its mass. But the weights themselves come from the
    pool: a(x) = min(c r(x), 1), with c such that the mean of a is 1/K. A row that is kept lowers c for all others, and
    the metric follows. That is of the same order as the direct effect, unless all rows have a < 1 (or a = 1).

    With m the mean of the influence over the rows that move when c does, the row adds mass influence - (mass - 1/n) m.

    Args:
        influence: Of each row on the metric of the weighted distribution, `(n,)`, of weighted mean 0.
        mass: Mass of each row, `(n,)`, of sum 1.
        slopes: How far each weight moves with the constant, up to a factor, `(n,)`: a where a < 1 and else 0 for OBRS,
            a (1 - a) for the sigmoid of DRS. None: the weights are what they are.

    Example:
        >>> mass = np.array([0.5, 0.25, 0.25])
        >>> pulled(np.array([1.0, -2.0, 0.0]), mass, np.array([0.0, 1.0, 1.0])).round(3)
        array([ 0.667, -0.583, -0.083])
    """
    moved = mass * influence
    total = 0.0 if slopes is None else float(slopes.sum())
    if slopes is None or total == 0:
        return moved
    mean = float(slopes @ influence) / total
    return moved - (mass - 1 / len(mass)) * mean


def as_slopes(slopes: Any, mass: Floats) -> list[Floats | None]:
    """Return the slopes of each line of masses, None where there are none.

    Example:
        >>> as_slopes([[0.0, 0.0], [0.0, 1.0]], np.full((2, 2), 0.5))
        [None, array([0., 1.])]
    """
    if slopes is None:
        return [None] * len(mass)
    values = host_view(as_floats(slopes, "slopes"))
    if values is None or np.atleast_2d(values).shape != mass.shape:
        raise InputError(f"slopes must have the shape of the weights {mass.shape}, got {np.shape(slopes)}")
    return [as_weights(row, mass.shape[1], "slopes") if np.any(row) else None for row in np.atleast_2d(values)]
