"""The door of every metric: features, masses and repeats, checked once and in one way."""

from math import isfinite
from typing import Any

import numpy as np
from array_api_compat import is_numpy_array, is_torch_array

from .._arrays import as_floats, detached, host_view, namespace, on_one_device
from .._checks import as_labels
from ..errors import InputError
from ..types import Array

__all__ = [
    "as_counts",
    "as_features",
    "as_masses",
    "as_weights",
    "both_features",
    "effective_size",
    "own_pairs",
    "points",
    "same_dimension",
]

Floats = np.ndarray[Any, Any]

_HEAVIEST = 1e100  # weight; a factor does not matter
_LARGEST = 1e303  # sum of squares of a row, with room for sums of a few of them


def as_features(x: Any, name: str) -> Array:
    """Return features of shape `(n, dim)`, finite and not too large to be squared, in float32 or float64.

    A torch tensor stays one, where it is; anything else becomes NumPy memory, without a copy where there can be none.

    Example:
        >>> as_features([[0, 1]], "fake")
        array([[0., 1.]])
    """
    x = detached(as_floats(x, name))
    if not is_torch_array(x) and not is_numpy_array(x):
        x = host_view(x)
        assert x is not None, "metrics are not traced"
    if x.ndim != 2 or 0 in x.shape:
        raise InputError(f"{name} must have shape (n, dim) with at least one of each, got {tuple(x.shape)}")
    xp = namespace(x)
    low, high = float(xp.min(x)), float(xp.max(x))  # no memory, and NaN is seen in both
    if not (isfinite(low) and isfinite(high)):
        bad = int(xp.sum(~xp.all(xp.isfinite(x), axis=1)))
        raise InputError(f"{name} must be finite, {bad} of {len(x)} points are not; drop them first")
    if max(-low, high) > (_LARGEST / x.shape[1]) ** 0.5:
        how = "divide real and fake by one number"
        raise InputError(f"{name} has values whose squares are beyond the range of its floats; {how}")
    return x


def both_features(real: Any, fake: Any) -> tuple[Array, Array, int]:
    """Return real and fake features, of one library, device and dimension, and the dimension.

    Tensors of torch also get one dtype, the wider one: torch multiplies no others.

    Example:
        >>> both_features([[0.0, 1.0]], np.zeros((3, 2)))[2]
        2
    """
    real, fake = as_features(real, "real"), as_features(fake, "fake")
    dimension = same_dimension(real, fake)
    if is_torch_array(real) and real.dtype != fake.dtype:
        real, fake = real.double(), fake.double()
    return real, fake, dimension


def same_dimension(real: Array, fake: Array) -> int:
    """Return the dimension of both, or raise if they have two, or are not of one library and device.

    Example:
        >>> same_dimension(np.zeros((3, 2)), np.zeros((9, 2)))
        2
    """
    on_one_device(real, fake, "real", "fake")
    if real.shape[1] != fake.shape[1]:
        raise InputError(
            f"real and fake must have the same dimension, got {real.shape[1]} and {fake.shape[1]}; "
            "take both from one extractor"
        )
    return int(real.shape[1])


def points(x: Any, name: str) -> Floats:
    """Return points of shape `(n, dim)` as a float64 NumPy array, or raise an error that says what is wrong.

    Example:
        >>> points([[0, 1]], "x")
        array([[0., 1.]])
    """
    values = host_view(as_features(x, name))
    assert values is not None, "metrics are not traced"
    return values.astype(np.float64, copy=False)


def as_weights(weights: Any, n: int, name: str = "weights", *, many: bool = False) -> Floats:
    """Return weights of at least 0 in float64, `(n,)`, or also `(budgets, n)` if there may be many; None is all ones.

    Example:
        >>> as_weights([1, 0], 2)
        array([1., 0.])
    """
    if weights is None:
        return np.ones(n)
    values = host_view(as_floats(weights, name))
    assert values is not None, "metrics are not traced"
    if values.shape != (n,) and not (many and values.ndim == 2 and values.shape[0] and values.shape[1] == n):
        wanted = f"({n},) or (budgets, {n})" if many else f"({n},)"
        raise InputError(f"{name} must have shape {wanted}, got {tuple(values.shape)}")
    values = values.astype(np.float64, copy=False)
    if not (values.min() >= 0 and values.max() < np.inf and np.all(values.max(axis=-1) > 0)):
        raise InputError(f"{name} must be finite and at least 0, and not all 0")
    largest = values.max(axis=-1, keepdims=True)
    if not np.all((largest > 1 / _HEAVIEST) & (largest < _HEAVIEST)):  # sums and squares must stay in range
        values = values / largest
    return values


def as_counts(counts: Any, n: int) -> Floats:
    """Return whole numbers of repeats, `(n,)`, not all 0.

    Example:
        >>> as_counts([2, 0], 2)
        array([2, 0])
    """
    values: Floats = as_labels(counts, "counts")
    if values.shape != (n,):
        raise InputError(f"counts must have shape ({n},), got {tuple(values.shape)}")
    if values.min() < 0 or not values.any():
        raise InputError("counts must be at least 0, and not all 0")
    return values


def as_masses(weights: Any, counts: Any, n: int, *, many: bool = False) -> Floats:
    """Return the mass of each row, in float64 and of sum 1: from inclusion probabilities, or from repeats, or equal.

    Args:
        weights: Probability that a row is kept, up to a factor: `(n,)`, or `(budgets, n)` if `many`.
        counts: How often each row is there. Not the same thing: a row with weight 2 is one row that is kept twice as
            likely as another, a row with count 2 is two rows, which are each other's nearest neighbour.
        n: How many rows there are.
        many: Whether the metric takes one line of weights per budget.

    Example:
        >>> as_masses([3.0, 1.0], None, 2), as_masses(None, None, 2)
        (array([0.75, 0.25]), array([0.5, 0.5]))
    """
    if weights is not None and counts is not None:
        raise InputError("weights and counts cannot both be given: weights are chances to be kept, counts are repeats")
    raw = as_weights(weights, n, many=many) if counts is None else as_counts(counts, n).astype(np.float64)
    raw = raw / raw.max(axis=-1, keepdims=True)  # their sum may be beyond the range of a float
    mass: Floats = raw / raw.sum(axis=-1, keepdims=True)
    return mass


def own_pairs(mass: Floats, counts: Any = None) -> Floats:
    """Return the mass of the pairs of each row with itself, which unbiased estimates leave out.

    With inclusion probabilities it is mass². Of repeats only a copy with itself is left out, so it is mass/total. The
    sum is 1/size: of the n rows if all are equal, of Kish's effective number with weights, of all copies with counts.

    Example:
        >>> own_pairs(as_masses([2.0, 2.0, 0.0], None, 3))
        array([0.25, 0.25, 0.  ])
        >>> own_pairs(as_masses(None, [2, 2, 1], 3), [2, 2, 1])
        array([0.08, 0.08, 0.04])
    """
    if counts is None:
        return mass * mass
    return mass / float(as_counts(counts, mass.shape[-1]).sum())


def effective_size(own: Floats) -> float:
    """Return how many rows of equal weight would have as many pairs with themselves.

    Example:
        >>> effective_size(own_pairs(as_masses([2.0, 2.0, 0.0], None, 3)))
        2.0
        >>> effective_size(own_pairs(as_masses(None, [2, 2, 1], 3), [2, 2, 1]))
        5.0
    """
    return round(1 / float(own.sum()), 6)
