"""Pools of ratios: weighted sums of log-ratios that see different things."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from .._checks import is_number
from ..errors import InputError, InputTypeError
from ..groups import Grouped
from ..rules import Budgeted
from ..sampling.proposals import length, score_batch
from ..types import Array
from .calibration import Affine, Isotonic, fit_calibration
from .evidence import class_means

__all__ = ["CALIBRATED", "ONE", "PER_CLASS", "PooledRatio", "Recipe", "combine"]

ONE, PER_CLASS, CALIBRATED = "one constant", "one constant per class", "one constant, calibrated by class"


@dataclass(frozen=True, eq=False)
class PooledRatio:
    """The sum of log-ratios times coefficients; a score, until `calibrate` has found the map that makes it a ratio.

    An offset is added as it is, such as that of a class.
    """

    parts: tuple[tuple[Callable[[Any], Array], float], ...]
    calibration: Affine | Isotonic | None = None
    offset: Callable[[Any], Array] | None = None

    @property
    def calibrated(self) -> bool:
        """Whether this is a log-ratio and not a sum or a power: else there are rates, but no divergences or weights."""
        return self.calibration is not None or [coefficient for _, coefficient in self.parts] == [1]

    def __call__(self, x: Any) -> Array:
        score: Any = sum(coefficient * log_ratio(x) for log_ratio, coefficient in self.parts)
        score = score if self.offset is None else score + self.offset(x)
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


@dataclass(frozen=True)
class Recipe:
    """A weighted sum of log-ratios that have names, and how many constants a rule for it has; `obrs.tune` finds one.

    Args:
        coefficients: Of the log-ratios, by name.
        constants: "one constant", "one constant per class", or "one constant, calibrated by class".
        offsets: What the calibration adds to the scores of each label.
    """

    coefficients: Sequence[tuple[str, float]]
    constants: str = ONE
    offsets: Sequence[tuple[int, float]] = ()

    def __str__(self) -> str:
        return " + ".join(f"{b:.3g} × {name}" for name, b in self.coefficients) + f", {self.constants}"

    def score(self, scores: Mapping[str, Any], label: Any = None) -> Any:
        """Return the sum of log-ratios that are known, of samples with these labels."""
        total = sum(b * scores[name] for name, b in self.coefficients)
        return total + self.offset(label) if self.offsets else total

    def offset(self, label: Any) -> Any:
        """Return what the calibration adds to the scores of these labels."""
        known, added = (np.array(column) for column in zip(*self.offsets, strict=True))
        return added[np.searchsorted(known, label)]

    def calibrate(self, scores: Mapping[str, Any], label: Any, shares: dict[Any, float]) -> "Recipe":
        """Return the recipe, if it is calibrated by class, with E_Q[r | y] = p(y) / q(y) on a pool; shares are p(y)."""
        if self.constants != CALIBRATED:
            return self
        means = class_means(replace(self, offsets=()).score(scores), label, shares)
        return replace(self, offsets=tuple((int(mean.label), -mean.log_excess) for mean in means))

    def rule(self, scores: Mapping[str, Any], label: Any, budget: float) -> Any:
        """Fit the rule on a pool."""
        total = self.score(scores, label)
        return Grouped.fit(total, budget, label) if self.constants == PER_CLASS else Budgeted.fit(total, budget)

    def pool(self, ratios: Mapping[str, Any], labels: Callable[[Any], Any]) -> PooledRatio:
        """Return the sum as a function of batches, in float64, from log-ratios by name and what finds the labels."""
        parts = tuple((partial(_scores, ratios[name]), b) for name, b in self.coefficients)
        return PooledRatio(parts, offset=(lambda batch: self.offset(labels(batch))) if self.offsets else None)


def _scores(log_ratio: Callable[[Any], Any], batch: Any) -> Any:
    return score_batch(log_ratio, batch, length(batch))
