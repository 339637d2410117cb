"""Pools of ratios: a weighted sum of log-ratios that see different things."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from .._checks import is_number
from ..errors import InputError, InputTypeError
from ..types import Array
from .calibration import Affine, Isotonic, fit_calibration

__all__ = ["PooledRatio", "combine"]


@dataclass(frozen=True, eq=False)
class PooledRatio:
    """The sum of log-ratios times coefficients; a score, until `calibrate` has found the map that makes it a ratio."""

    parts: tuple[tuple[Callable[[Any], Array], float], ...]
    calibration: Affine | Isotonic | None = None

    @property
    def calibrated(self) -> bool:
        """Whether the sum was made a log-ratio: without it there are rates, but no divergences or weights."""
        return self.calibration is not None

    def __call__(self, batch: Any) -> Array:
        score = sum(coefficient * log_ratio(batch) for log_ratio, coefficient in self.parts)
        return score if self.calibration is None else self.calibration(score)

    def calibrate(self, real: Any, fake: Any, *, seed: int = 0) -> "PooledRatio":
        """Return the pool as a log-ratio, its scale fitted on real samples and fakes that no part was fitted on."""
        score = replace(self, calibration=None)
        return replace(self, calibration=fit_calibration(score(real), score(fake), seed=seed).calibration)


def combine(parts: Sequence[tuple[Callable[[Any], Array], float]]) -> PooledRatio:
    """Pool ratios: `sum of coefficient * log_ratio`, such as those of a critic and of a classifier's outputs.

    Each sees what the others do not. The sum is a score, not a ratio: `calibrated` is False, and plans and reports of
    its scores show rates only (`Profile(scores, calibrated=False)`), until `calibrate` has fitted its scale.

    Args:
        parts: Pairs of a log-ratio, a callable on batches, and a finite coefficient.

    Example:
        >>> import numpy as np
        >>> pool = combine([(lambda x: x, 2.0), (lambda x: -x, 0.5)])
        >>> pool(np.array([1.0, 2.0])), pool.calibrated
        (array([1.5, 3. ]), False)
    """
    if not parts:
        raise InputError("combine needs at least one pair (log_ratio, coefficient)")
    for part in parts:
        wrong = not isinstance(part, tuple | list) or len(part) != 2 or not callable(part[0]) or not is_number(part[1])
        if wrong or not isfinite(part[1]):
            raise InputTypeError(f"combine takes pairs of a log-ratio and a finite coefficient, got {part!r:.80}")
    return PooledRatio(tuple((log_ratio, float(coefficient)) for log_ratio, coefficient in parts))
