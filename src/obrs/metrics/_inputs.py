"""Check features, weights and labels where they enter a metric."""

from math import isfinite
from typing import Any

import numpy as np

from .._arrays import as_floats, known_values
from ..errors import InputError
from ..groups import any_labels

__all__ = ["check_features", "check_pair", "check_rows", "check_weights", "effective_size", "split_labels"]

Floats = np.ndarray[Any, Any]

_LARGEST = 1e12  # of a feature: its powers in the metrics then stay in the range of float32


def check_features(x: Any, name: str) -> Floats:
    """Return features of shape `(n, dim)` in float32 or float64, in NumPy memory, without a copy where possible.

    Example:
        >>> check_features([[0, 1]], "fake")
        array([[0., 1.]])
    """
    values = known_values(as_floats(x, name), name)
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"{name} must have shape (n, dim) with at least one of each, got {tuple(values.shape)}")
    low, high = float(values.min()), float(values.max())  # NaN if any value is
    if not (isfinite(low) and isfinite(high)):
        bad = int(np.count_nonzero(~np.isfinite(values).all(axis=1)))
        raise InputError(f"{name} must be finite, {bad} of {len(values)} points are not; drop them first")
    if max(-low, high) > _LARGEST:
        raise InputError(f"{name} has values beyond {_LARGEST:g}; divide real and fake by one number")
    return values


def check_pair(real: Any, fake: Any) -> tuple[Floats, Floats]:
    """Return real and fake features of one dimension and one dtype, the wider of both.

    Example:
        >>> [x.shape for x in check_pair([[0.0, 1.0]], np.zeros((3, 2)))]
        [(1, 2), (3, 2)]
    """
    real, fake = check_features(real, "real"), check_features(fake, "fake")
    if real.shape[1] != fake.shape[1]:
        raise InputError(
            f"real and fake must have the same dimension, got {real.shape[1]} and {fake.shape[1]}; "
            "take both from one extractor"
        )
    dtype = np.result_type(real, fake)
    return real.astype(dtype, copy=False), fake.astype(dtype, copy=False)


def check_weights(weights: Any, n: int) -> Floats:
    """Return one line of weights per budget, `(budgets, n)`, each over its largest; None is one line of ones.

    Args:
        weights: Probability that each row is kept, up to a factor: `(n,)` or `(budgets, n)`.
        n: How many rows there are.

    Example:
        >>> check_weights([2.0, 1.0], 2)
        array([[1. , 0.5]])
    """
    if weights is None:
        return np.ones((1, n))
    values = np.atleast_2d(known_values(as_floats(weights, "weights"), "weights").astype(np.float64, copy=False))
    if values.ndim != 2 or values.shape[1] != n or not len(values):
        raise InputError(f"weights must have shape ({n},) or (budgets, {n}), got {np.shape(weights)}")
    most = values.max(axis=1, keepdims=True)
    if not (values.min() >= 0 and values.max() < np.inf and np.all(most > 0)):
        raise InputError("weights must be finite and at least 0, and not all 0")
    scaled: Floats = values / most
    return scaled


def check_rows(real: Floats, weights: Floats) -> None:
    """Raise unless there are two real rows, and two fakes of positive weight at every budget."""
    least = float(effective_size(weights).min())
    if len(real) < 2 or least < 1 + 1e-12:
        raise InputError(f"real and fake must have at least 2 rows of some weight, got {len(real)} and {least:.3g}")


def effective_size(weights: Floats) -> Floats:
    """Return Kish's effective sample size of each line of weights.

    Example:
        >>> effective_size(np.array([[1.0, 1.0, 0.0]]))
        array([2.])
    """
    size: Floats = weights.sum(axis=-1) ** 2 / (weights**2).sum(axis=-1)
    return size


def split_labels(data: Any, name: str) -> tuple[Any, Floats | None]:
    """Return samples and labels of `x` or `(x, y)`; the labels of x alone are None.

    Example:
        >>> split_labels(([[0.0], [1.0]], ["a", "b"]), "real")
        ([[0.0], [1.0]], array(['a', 'b'], dtype='<U1'))
    """
    if not isinstance(data, tuple):
        return data, None
    if len(data) != 2:
        raise InputError(f"{name} must be samples x or a pair (x, y) of samples and labels, got {len(data)} parts")
    return data[0], any_labels(data[1], f"the labels of {name}")
