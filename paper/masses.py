"""Masses of samples in the scores of this package: from chances to be kept, or from repeats."""

from typing import Any

import numpy as np

from obrs._arrays import as_floats, known_values
from obrs._checks import as_labels
from obrs.errors import InputError
from obrs.metrics._inputs import as_features

__all__ = ["as_counts", "as_masses", "as_weights", "effective_size", "own_pairs", "points"]

Floats = np.ndarray[Any, Any]


def points(x: Any, name: str) -> Floats:
    """Return points of shape `(n, dim)` as a float64 NumPy array."""
    return as_features(x, name).astype(np.float64, copy=False)


def as_weights(weights: Any, n: int, name: str = "weights") -> Floats:
    """Return weights of at least 0 in float64, `(n,)`; None is all ones."""
    if weights is None:
        return np.ones(n)
    values = known_values(as_floats(weights, name), name).astype(np.float64, copy=False)
    if values.shape != (n,):
        raise InputError(f"{name} must have shape ({n},), got {tuple(values.shape)}")
    if not (values.min() >= 0 and 0 < values.max() < np.inf):
        raise InputError(f"{name} must be finite and at least 0, and not all 0")
    return values


def as_counts(counts: Any, n: int) -> Floats:
    """Return whole numbers of repeats, `(n,)`, not all 0."""
    values: Floats = as_labels(counts, "counts")
    if values.shape != (n,):
        raise InputError(f"counts must have shape ({n},), got {tuple(values.shape)}")
    if values.min() < 0 or not values.any():
        raise InputError("counts must be at least 0, and not all 0")
    return values


def as_masses(weights: Any, counts: Any, n: int) -> Floats:
    """Return the mass of each row, of sum 1: from chances to be kept, or from repeats, or equal.

    A row of weight 2 is one row that is kept twice as likely as another, a row of count 2 is two rows.
    """
    if weights is not None and counts is not None:
        raise InputError("weights and counts cannot both be given: weights are chances to be kept, counts are repeats")
    raw = as_weights(weights, n) if counts is None else as_counts(counts, n).astype(np.float64)
    raw = raw / raw.max()  # their sum may be beyond the range of a float
    return np.asarray(raw / raw.sum())


def own_pairs(mass: Floats, counts: Any = None) -> Floats:
    """Return the mass of the pairs of each row with itself: mass², or of repeats that of each copy with itself."""
    return mass * mass if counts is None else mass / float(as_counts(counts, len(mass)).sum())


def effective_size(own: Floats) -> float:
    """Return how many rows of equal weight would have as many pairs with themselves.

    Example:
        >>> effective_size(own_pairs(as_masses([2.0, 2.0, 0.0], None, 3)))
        2.0
    """
    return round(1 / float(own.sum()), 6)
