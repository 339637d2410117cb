"""The kernel distance between features of real and fake samples, KID: without bias and with errors."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import InputError
from ..estimate import Estimate
from ._inputs import check_pair, check_rows
from .curve import Curve, Effects, Influence
from .weightings import as_pool

__all__ = ["kernel", "kernel_curve", "kernel_effects"]

Floats = np.ndarray[Any, Any]

_PAIRS = 1 << 22  # values of the kernel in memory at a time
_ROWS = 256  # rows at a time at most, so that symmetry saves half


def kernel(*, real: Any, fake: Any, weights: Any = None) -> Estimate:
    """Return the squared maximum mean discrepancy between real and fake features, without bias: it may be below 0.

    The kernel is (x·y/dim + 1)³. This is KID, if the features are those of the Inception network, on all rows rather
    than on random subsets. Unlike the Fréchet distance it does not depend on n but for its error. No matrix of all
    pairs is kept: memory stays bounded, time grows as the square of the number of rows.

    Args:
        real: Features of real samples, `(n, dim)`.
        fake: Features of fake samples.
        weights: Chance that each fake row is kept, `(n,)`, up to a factor; equal by default. Pairs count by the product
            of both weights, a row with itself not at all.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((500, 3)), rng.standard_normal((400, 3))
        >>> same, other = kernel(real=real, fake=fake), kernel(real=real, fake=fake + 1)
        >>> abs(same.value) < 2 * same.standard_error, other.value > 9 * other.standard_error
        (True, True)

    References:
        | Demystifying MMD GANs (Bińkowski et al., 2018), KID
        | A Kernel Two-Sample Test (Gretton et al., 2012)
    """
    curve = kernel_curve(real=real, fake=fake, weights=weights)
    if len(curve.value) > 1:
        raise InputError(f"weights must be one line, got {len(curve.value)}; use kernel_curve for several")
    return curve.estimate(0)


def kernel_curve(*, real: Any, fake: Any, weights: Any = None) -> Curve:
    """Return the kernel distance of one pool at many budgets, with errors that are paired over budgets.

    The kernel of each pair is computed once for all budgets.

    Args:
        real, fake: As for `kernel`.
        weights: Chance that each fake row is kept, `(n,)` or `(budgets, n)`, or `weightings`, as for `frechet_curve`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((500, 2)), 1.5 * rng.standard_normal((500, 2))
        >>> log_ratio = -0.5 * (fake**2).sum(1) * (1 - 1 / 1.5**2)
        >>> kernel_curve(real=real, fake=fake, weights=np.exp([0 * log_ratio, log_ratio])).difference(1, 0).high < 0
        True

    References:
        | A Class of Statistics with Asymptotically Normal Distribution (Hoeffding, 1948)
    """
    real, fake = check_pair(real, fake)
    pool = as_pool(weights, len(fake))
    return pool.curve(kernel_effects(real, fake, pool.weights), len(real))


def kernel_effects(real: Floats, fake: Floats, weights: Floats) -> Effects:
    """Return distances and influences of a pool with weights `(budgets, n)`; an unbiased distance has no excess."""
    check_rows(real, weights)
    mass = weights / weights.sum(axis=1, keepdims=True)
    equal = np.full((1, len(real)), 1 / len(real))
    among_real, own_real = _means(real, equal)
    among_fake, own_fake = _means(fake, mass)
    # of every fake row the mean over real rows, and the other way round, from the same values
    to_real, to_fake = np.empty(len(fake)), np.zeros((len(mass), len(real)))
    for part, block in _blocks(fake, real):
        to_real[part] = block.mean(axis=1)
        to_fake += mass[:, part] @ block
    # a row and itself are no pair
    real_rows = (among_real - equal * own_real) / (1 - 1 / len(real))
    pairs = 1 - np.sum(mass**2, axis=1, keepdims=True)
    fake_rows = (among_fake - mass * own_fake) / pairs
    of_pairs = (mass * fake_rows).sum(axis=1, keepdims=True)
    value = of_pairs[:, 0] + real_rows.mean() - 2 * mass @ to_real
    # mass on a row also takes pairs away, those with itself: without that, a kernel far from 0 tells heavy rows apart
    of_fake, of_real = 2 * (fake_rows + mass * of_pairs / pairs - to_real), 2 * (real_rows - to_fake)
    of_fake -= (mass * of_fake).sum(axis=1, keepdims=True)
    of_real -= of_real.mean(axis=1, keepdims=True)
    return Effects(value, np.zeros(len(mass)), _all_rows(of_real), _all_rows(of_fake))


def _all_rows(value: Floats) -> Influence:
    return Influence(np.arange(value.shape[1]), np.ones(value.shape[1]), value)


def _means(x: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Return for each row the mean over all rows by each line of masses, `(budgets, n)`, and its value with itself."""
    means, diagonal = np.zeros((len(mass), len(x))), np.empty(len(x))
    for part, block in _blocks(x):
        means[:, part] += (block @ mass[:, part.start :].T).T
        diagonal[part] = np.diagonal(block)
        means[:, part.stop :] += mass[:, part] @ block[:, part.stop - part.start :]
    return means, diagonal


def _blocks(x: Floats, y: Floats | None = None) -> Iterator[tuple[slice, Floats]]:
    """Yield slices of x with the kernel of their pairs with y, in float64; products are in the precision of the rows.

    Without y the pairs are those of x with itself: each slice comes with the columns from its first row on, the earlier
    ones being known by symmetry.

    Example:
        >>> [(part, block.tolist()) for part, block in _blocks(np.eye(2), np.eye(2))]
        [(slice(0, 2, None), [[3.375, 1.0], [1.0, 3.375]])]
    """
    start, dim = 0, x.shape[1]
    while start < len(x):
        others = x[start:] if y is None else y
        part = slice(start, min(start + min(max(_PAIRS // len(others), 1), _ROWS), len(x)))
        base = (x[part] @ others.T).astype(np.float64) / dim + 1
        yield part, base * base * base
        start = part.stop
