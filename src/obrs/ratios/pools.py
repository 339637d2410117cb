"""Pools of ratios: weighted sums of log-ratios that see different things."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from .._checks import is_number
from ..errors import InputError, InputTypeError
from ..groups import Grouped
from ..rules import Budgeted
from ..types import Array
from .calibration import Affine, Isotonic, fit_calibration
from .evidence import class_means

__all__ = ["CALIBRATED", "ONE", "PER_CLASS", "PooledRatio", "Recipe", "combine"]

ONE, PER_CLASS, CALIBRATED = "one constant", "one constant per class", "one constant, calibrated by class"


@dataclass(frozen=True)
class Recipe:
    """A weighted sum of named log-ratios, and how many constants a rule for it has; `obrs.tune` finds one.

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
        """Return the weighted sum, given the values of the log-ratios of samples with these labels."""
        total = sum(b * scores[name] for name, b in self.coefficients)
        if not self.offsets:
            return total
        known, added = (np.array(column) for column in zip(*self.offsets, strict=True))
        return total + added[np.searchsorted(known, label)]

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


@dataclass(frozen=True, eq=False)
class PooledRatio:
    """The sum of a recipe as a function of batches; a score, until `calibrate` has found the map to a ratio.

    Args:
        recipe, ratios: The coefficients, and the log-ratios by name.
        labels: Finds the labels of a batch, if the recipe is calibrated by class.
        calibration: What makes a log-ratio of the sum, if it was calibrated.
    """

    recipe: Recipe
    ratios: Mapping[str, Callable[[Any], Array]]
    labels: Callable[[Any], Any] | None = None
    calibration: Affine | Isotonic | None = None

    @property
    def calibrated(self) -> bool:
        """Whether this is a log-ratio, and not a mere score, which has rates but no divergences."""
        return self.calibration is not None or [b for _, b in self.recipe.coefficients] == [1]

    def __call__(self, x: Any) -> Array:
        label = self.labels(x) if self.labels is not None and self.recipe.offsets else None
        score = self.recipe.score({name: log_ratio(x) for name, log_ratio in self.ratios.items()}, label)
        return score if self.calibration is None else self.calibration(score)

    def calibrate(self, real: Any, fake: Any, *, seed: int = 0) -> "PooledRatio":
        """Return the pool as a log-ratio, its scale fitted on real samples and fakes that no part was fitted on."""
        score = replace(self, calibration=None)
        return replace(self, calibration=fit_calibration(score(real), score(fake), seed=seed))


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
    if not isinstance(parts, Sequence) or not parts:
        raise InputError("combine needs at least one pair (log_ratio, coefficient)")
    for part in parts:
        wrong = not isinstance(part, tuple | list) or len(part) != 2 or not callable(part[0]) or not is_number(part[1])
        if wrong or not isfinite(part[1]):
            raise InputTypeError(f"combine takes pairs of a log-ratio and a finite coefficient, got {part!r:.80}")
    ratios = {f"ratio {number}": log_ratio for number, (log_ratio, _) in enumerate(parts)}
    coefficients = tuple(zip(ratios, (float(coefficient) for _, coefficient in parts), strict=True))
    return PooledRatio(Recipe(coefficients), ratios)
