"""A number with its error, as returned by averages and metrics."""

from dataclasses import dataclass
from math import inf, nan
from statistics import NormalDist
from typing import Any

import numpy as np

from ._checks import check_confidence

__all__ = ["Estimate"]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, or arrays of them.

    Args:
        value: The number.
        low, high: Ends of an interval that contains the truth with the confidence that was asked for.
        standard_error: Of the value; NaN where the interval has no such form.

    Example:
        >>> print(Estimate(2.0, 1.8, 2.2, 0.1))
        2 (1.8 to 2.2)
    """

    value: Any
    low: Any
    high: Any
    standard_error: Any = nan

    @classmethod
    def from_error(cls, value: Any, standard_error: Any, confidence: float = 0.95) -> "Estimate":
        """Return the normal interval of a value with this standard error.

        Example:
            >>> print(Estimate.from_error(1.0, 0.1))
            1 (0.804 to 1.196)
        """
        reach = NormalDist().inv_cdf((1 + check_confidence(confidence)) / 2) * standard_error
        return cls(value, value - reach, value + reach, standard_error)

    def clip(self, least: float = -inf, most: float = inf) -> "Estimate":
        """Return the estimate with value and ends clipped to known limits, such as 0 and 1 for a share.

        Example:
            >>> print(Estimate.from_error(0.1, 0.1).clip(least=0.0))
            0.1 (0 to 0.296)
        """
        clipped = (np.clip(end, least, most) for end in (self.value, self.low, self.high))
        value, low, high = (end if np.ndim(end) else float(end) for end in clipped)
        return Estimate(value, low, high, self.standard_error)

    def __str__(self) -> str:
        if np.ndim(self.value) == 0:
            return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"
        return f"{self.value} ({self.low} to {self.high})"


def skewed_interval(value: float, error: float, skewness: float) -> tuple[float, float]:
    """Return the 95 % interval of a mean with this standard error and skewness, by Hall's cubic transformation.

    References:
        | On the Removal of Skewness by Transformation (Hall, 1992)
    """
    z = np.array([1.96, -1.96])
    if abs(skewness) >= 1e-6:
        z = 3 / skewness * (np.cbrt(1 + skewness * (z - skewness / 6)) - 1)
    low, high = (value - error * z).tolist()
    return low, high
