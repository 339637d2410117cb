"""The kernel distance between features of real and fake samples, KID: without bias and with errors."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._arrays import host_view, like, namespace, widest
from .._checks import check_positive
from ..errors import InputError
from ..types import Array
from ._inputs import as_masses, both_features, effective_size, own_pairs
from .paired import Paired, as_slopes, pulled

__all__ = ["Kernel", "kernel", "kernel_curve"]

Floats = np.ndarray[Any, Any]

_PAIRS = 1 << 22  # values of the kernel in memory at a time
_ROWS = 256  # rows at a time at most, so that symmetry saves half
_WIDEST = 1e100  # of a bandwidth: the cube of what is divided by it must be a float


@dataclass(frozen=True)
class Kernel:
    """What `kernel` computes.

    Args:
        value: The squared maximum mean discrepancy, unbiased: it may be below 0.
        standard_error: Of the value, by how much each row moves it.
        n_real: How many real rows there are.
        n_fake: How many fake rows: with weights Kish's effective number, with counts all copies.
        dimension: Of the features.
    """

    value: float
    standard_error: float
    n_real: int
    n_fake: float
    dimension: int


def kernel(
    *,
    real: Any,
    fake: Any,
    weights: Any = None,
    counts: Any = None,
    bandwidth: float | None = None,
) -> Kernel:
    """Return the squared maximum mean discrepancy between real and fake features, without bias.

    The kernel is (x·y/bandwidth + 1)³. This is KID, if the features are those of the Inception network, on all rows
    rather than on random subsets. Unlike the Fréchet distance it does not depend on n but for its error. No matrix of
    all pairs is kept: memory stays bounded, time grows as the square of the number of rows.

    Args:
        real: Features of real samples, `(n, dim)`, NumPy or torch.
        fake: Features of fake samples, of the same library and dimension.
        weights: Chance that each fake row is kept, up to a factor; equal by default. Pairs count by the product of both
            weights, a row with itself not at all.
        counts: How often each fake row is there, instead of weights. Two copies of a row are a pair.
        bandwidth: Scale of the kernel; the dimension of the features by default.

    Returns:
        The distance with its standard error, and the sample sizes it speaks of.

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
    real, fake, dimension = both_features(real, fake)
    mass = as_masses(weights, counts, len(fake))
    own = own_pairs(mass, counts)
    found = _distances(real, fake, mass[None], own[None], _scale(bandwidth, dimension))
    moved = Paired(
        found.value, found.of_real / len(real), mass * found.of_fake, len(real), own.sum(keepdims=True), dimension
    )
    error = float(moved.standard_error[0])
    return Kernel(float(found.value[0]), error, len(real), effective_size(own), dimension)


def kernel_curve(
    *,
    real: Any,
    fake: Any,
    weights: Any,
    slopes: Any = None,
    bandwidth: float | None = None,
) -> Paired:
    """Return the kernel distance of one pool at many budgets, with errors that are paired over budgets.

    The kernel of each pair is computed once for all budgets.

    Args:
        real, fake, bandwidth: As for `kernel`.
        weights: Chance that each fake row is kept, `(budgets, n)`.
        slopes: How far each weight moves with the constant that its budget is met by, up to a factor, `(budgets, n)`: a
            where a < 1 and else 0 for OBRS, a (1 - a) for DRS. By default the weights are taken as given.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((500, 2)), 1.5 * rng.standard_normal((500, 2))
        >>> log_ratio = -0.5 * (fake**2).sum(1) * (1 - 1 / 1.5**2)
        >>> curve = kernel_curve(real=real, fake=fake, weights=np.stack([np.ones(500), np.exp(log_ratio)]))
        >>> curve.difference(1, 0).high < 0
        True

    References:
        | A Class of Statistics with Asymptotically Normal Distribution (Hoeffding, 1948)
    """
    real, fake, dimension = both_features(real, fake)
    mass = np.atleast_2d(as_masses(weights, None, len(fake), many=True))
    moved = as_slopes(slopes, mass)
    found = _distances(real, fake, mass, mass**2, _scale(bandwidth, dimension))
    of_fake = np.stack([pulled(f, w, s) for f, w, s in zip(found.of_fake, mass, moved, strict=True)])
    n_fake = np.array([effective_size(w**2) for w in mass])
    return Paired(found.value, found.of_real / len(real), of_fake, len(real), n_fake, dimension)


class _Found(NamedTuple):
    """Values `(budgets,)`, and the influence of rows on each, of weighted mean 0."""

    value: Floats
    of_real: Floats
    of_fake: Floats


@np.errstate(over="ignore", invalid="ignore")  # the values are looked at
def _distances(real: Array, fake: Array, mass: Floats, own: Floats, scale: float) -> _Found:
    for name, ones in (("real", np.full((1, len(real)), 1 / len(real) ** 2)), ("fake", own)):
        if not np.all(ones.sum(axis=1) < 1 - 1e-12):
            raise InputError(f"{name} must have at least 2 rows of some weight")
    equal = np.full((1, len(real)), 1 / len(real))
    among_real, own_real = _means(real, equal, scale)
    among_fake, own_fake = _means(fake, mass, scale)
    # of every fake row the mean over real rows, and the other way round, from the same values
    to_real, to_fake = np.empty(len(fake)), np.zeros((len(mass), len(real)))
    for part, block in _blocks(scale, fake, real):
        to_real[part] = _host(namespace(block).mean(block, axis=1))
        to_fake += _host(_beside(mass[:, part], block) @ block)
    # a row and itself are no pair
    share = np.divide(own, mass, out=np.zeros_like(mass), where=mass > 0)
    real_rows = (among_real - equal * own_real) / (1 - 1 / len(real))
    pairs = 1 - own.sum(axis=1, keepdims=True)
    fake_rows = (among_fake - share * own_fake) / pairs
    of_pairs = (mass * fake_rows).sum(axis=1, keepdims=True)
    value = of_pairs[:, 0] + real_rows.mean() - 2 * mass @ to_real
    # mass on a row also takes pairs away, those with itself: without that, a kernel far from 0 tells heavy rows apart
    of_fake, of_real = 2 * (fake_rows + share * of_pairs / pairs - to_real), 2 * (real_rows - to_fake)
    of_fake -= (mass * of_fake).sum(axis=1, keepdims=True)
    of_real -= of_real.mean(axis=1, keepdims=True)
    if not (np.isfinite(value).all() and np.isfinite(np.sum(of_real**2) + np.sum(of_fake**2))):
        raise InputError("the kernel of real and fake is beyond the range of floats; divide both by one number")
    return _Found(value, of_real, of_fake)


def _means(x: Array, mass: Floats, scale: float) -> tuple[Floats, Floats]:
    """Return for each row the mean over all rows by each line of masses, `(budgets, n)`, and its value with itself."""
    means, own = np.zeros((len(mass), len(x))), np.empty(len(x))
    for part, block in _blocks(scale, x):
        means[:, part] += _host(block @ _beside(mass[:, part.start :].T, block)).T
        own[part] = _host(namespace(block).linalg.diagonal(block))
        later = block[:, part.stop - part.start :]
        means[:, part.stop :] += _host(_beside(mass[:, part], block) @ later)
    return means, own


def _blocks(scale: float, x: Array, y: Array | None = None) -> Iterator[tuple[slice, Array]]:
    """Go through the kernel of all pairs by slices of x: yield each slice and its values in float64.

    Products are in the precision of the rows. Without y the pairs are those of x with itself: each slice comes with
    the columns from its first row on, the earlier ones being known by symmetry.

    Example:
        >>> [(part, block.tolist()) for part, block in _blocks(1.0, np.eye(2), np.eye(2))]
        [(slice(0, 2, None), [[8.0, 1.0], [1.0, 8.0]])]
    """
    xp = namespace(x)
    symmetric, y = y is None, (x if y is None else y)
    start = 0
    while start < len(x):
        columns = slice(start, None) if symmetric else slice(None)
        part = slice(start, min(start + min(max(_PAIRS // len(y[columns]), 1), _ROWS), len(x)))
        base = xp.astype(x[part] @ y[columns].T, widest(xp)) / scale + 1
        yield part, base * base * base
        start = part.stop


def _scale(bandwidth: Any, dimension: int) -> float:
    """Check a bandwidth, and return it, or the dimension."""
    if bandwidth is None:
        return float(dimension)
    scale = check_positive(bandwidth, "bandwidth")
    if not 1 / _WIDEST <= scale <= _WIDEST:
        raise InputError(f"bandwidth must be from {1 / _WIDEST:g} to {_WIDEST:g}, got {scale:g}")
    return scale


def _beside(values: Floats, block: Array) -> Array:
    return like(np.ascontiguousarray(values), block)


def _host(x: Array) -> Floats:
    return np.asarray(host_view(x))
