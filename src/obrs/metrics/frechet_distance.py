"""The Fréchet distance between features of real and fake samples: FID, whatever the features are."""

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from .._arrays import host_view, namespace
from .._checks import check_seed
from ..errors import InputError
from ..types import Array
from ._inputs import as_masses, both_features, effective_size, own_pairs
from .moments import Factor, Moments, crossed, factor, merged, moments, reciprocals, squared_distance
from .paired import Paired, as_slopes, pulled

__all__ = ["Frechet", "frechet", "frechet_curve", "frechet_curves"]

Floats = np.ndarray[Any, Any]

_ROWS = 4096  # rows at a time in a quadratic form
_LARGEST = 1e150  # a product of two variances of more leaves the range of float64
_LARGEST_SINGLE = 1e36  # squares of rows, which are in the precision of the rows, must stay in that of float32


@dataclass(frozen=True)
class Frechet:
    """What `frechet` computes.

    Args:
        value: The squared Fréchet distance between the Gaussians of the same means and covariances.
        n_real: How many real rows there are.
        n_fake: How many fake rows: with weights Kish's effective number, with counts all copies.
        dimension: Of the features.
        extrapolated: Whether the value is the estimate for infinitely many rows.
    """

    value: float
    n_real: int
    n_fake: float
    dimension: int
    extrapolated: bool


def frechet(
    *, real: Any, fake: Any, weights: Any = None, counts: Any = None, extrapolate: bool = False, seed: int = 0
) -> Frechet:
    """Return the Fréchet distance between real and fake features.

    It is called FID if the features are those of the Inception network, and only then. The distance between finite
    samples is too large, by about b/n: half the rows have twice the excess. So two distances compare at equal n only,
    and a weighted pool has another n than the samples it would keep. `extrapolate=True` removes the excess of both
    sides: it computes the distance of all rows and the mean distance of random halves, and goes as far beyond the
    first as that is from the second. No row is repeated. About dim/(4 n) of the excess is left, n being the smaller of
    both: trust it where n, effective if there are weights, is well above the dimension.

    Args:
        real: Features of real samples, `(n, dim)`, NumPy or torch. float32 is faster than float64.
        fake: Features of fake samples, of the same library and dimension.
        weights: Chance that each fake row is kept, up to a factor; equal by default.
        counts: How often each fake row is there, instead of weights.
        extrapolate: Whether to estimate the distance of infinitely many real and fake rows.
        seed: Of the random halves.

    Returns:
        The distance, with the sample sizes it speaks of.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((1000, 3))
        >>> round(frechet(real=x, fake=x + 1).value, 6), round(frechet(real=x, fake=2 * x).value, 1)
        (3.0, 3.0)

    References:
        | GANs Trained by a Two Time-Scale Update Rule Converge to a Local Nash Equilibrium (Heusel et al., 2017)
        | Effectively Unbiased FID and Inception Score and Where to Find Them (Chong and Forsyth, 2020), who
          extrapolate by a line through many sizes, of the fake side alone
        | Notes on Bias in Estimation (Quenouille, 1956), for the halves
    """
    real, fake, dimension = both_features(real, fake)
    mass = as_masses(weights, counts, len(fake))
    own = own_pairs(mass, counts)
    equal = np.full(len(real), 1 / len(real))
    if extrapolate and counts is not None:
        raise InputError("counts cannot be extrapolated: halves would share copies; repeat no rows, or use weights")
    reals = _parts(real, equal, equal**2, "real", extrapolate, seed)
    fakes = _parts(fake, mass, own, "fake", extrapolate, seed)
    value = _extrapolated(reals, fakes)
    return Frechet(value, len(real), effective_size(own), dimension, bool(extrapolate))


def frechet_curve(
    *, real: Any, fake: Any, weights: Any, slopes: Any = None, extrapolate: bool = True, seed: int = 0
) -> Paired:
    """Return the Fréchet distance of one pool at many budgets, with errors that are paired over budgets.

    The error is that of the first order, by influence functions: the derivative of the distance when mass moves to a
    row. It says nothing about the excess at finite n, which is why the values are extrapolated by default.

    Args:
        real, fake: As for `frechet`.
        weights: Chance that each fake row is kept, `(budgets, n)`.
        slopes: How far each weight moves with the constant that its budget is met by, up to a factor, `(budgets, n)`: a
            where a < 1 and else 0 for OBRS, a (1 - a) for DRS. By default the weights are taken as given; with weights
            that were solved for on this pool the errors are then wrong.
        extrapolate, seed: As for `frechet`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((2000, 2)), 1.5 * rng.standard_normal((2000, 2))
        >>> log_ratio = -0.5 * (fake**2).sum(1) * (1 - 1 / 1.5**2)
        >>> weights = np.stack([np.ones(2000), np.exp(log_ratio)])
        >>> curve = frechet_curve(real=real, fake=fake, weights=weights)
        >>> (curve.value > 0.1).tolist(), curve.difference(1, 0).high < 0
        ([True, False], True)

    References:
        | The Influence Curve and its Role in Robust Estimation (Hampel, 1974)
        | Limit Laws of the Empirical Wasserstein Distance: Gaussian Distributions (Rippl, Munk and Sturm, 2016)
    """
    return frechet_curves(real=real, fake=fake, weights=weights, slopes=slopes, extrapolate=extrapolate, seed=seed)[0]


def frechet_curves(
    *, real: Any, fake: Any, weights: Any, slopes: Any = None, extrapolate: bool = True, seed: int = 0
) -> tuple[Paired, Paired]:
    """Return `frechet_curve`, and the curve at finite n, which it comes from and whose errors are the same.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((2, 500, 3))
        >>> beyond, plain = frechet_curves(real=x[0], fake=x[1], weights=np.ones(500))
        >>> bool(beyond.value[0] < plain.value[0]), bool(beyond.standard_error[0] == plain.standard_error[0])
        (True, True)
    """
    real, fake, dimension = both_features(real, fake)
    mass = np.atleast_2d(as_masses(weights, None, len(fake), many=True))
    moved = as_slopes(slopes, mass)
    equal = np.full(len(real), 1 / len(real))
    reals = _parts(real, equal, equal**2, "real", extrapolate, seed)
    factors = [factor(m.covariance, invert=i == 0) for i, m in enumerate(reals)]
    values, plain, of_real, of_fake = [], [], [], []
    for w, slope in zip(mass, moved, strict=True):
        fakes = _parts(fake, w, w**2, "fake", extrapolate, seed)
        eigen, of_fakes, of_reals = _bases(fakes[0], factors[0])
        values.append(_extrapolated(reals, fakes, factors, eigen))
        plain.append(squared_distance(reals[0], fakes[0], values=eigen))
        on_real = _influence(real, equal, (reals[0], fakes[0]), of_reals, eigen)
        on_fake = _influence(fake, w, (fakes[0], reals[0]), of_fakes, eigen)
        of_real.append(on_real / len(real))
        of_fake.append(pulled(on_fake, w, slope))
    n_fake = np.array([effective_size(w**2) for w in mass])
    found = Paired(np.array(values), np.stack(of_real), np.stack(of_fake), len(real), n_fake, dimension)
    return found, replace(found, value=np.array(plain))


@np.errstate(over="ignore", invalid="ignore")  # `_sound` looks
def _parts(x: Array, mass: Floats, own: Floats, name: str, halve: bool, seed: int) -> list[Moments]:
    """Return the moments of all rows, and of random halves after them: four quarters make six, in three pairs.

    Three pairs of halves rather than one: near 0 the extrapolated distance varies a third less for it, and the quarters
    are read once.
    """
    if np.count_nonzero(mass) < 2 or not own.sum() < 1:
        raise InputError(f"{name} must have at least 2 rows of some weight, got {np.count_nonzero(mass)}")
    largest = _LARGEST if x.dtype == namespace(x).float64 else _LARGEST_SINGLE
    if not halve:
        return [_sound(moments(x, mass, own), name, largest)]
    rng = np.random.default_rng(check_seed(seed))
    quarters = [np.sort(rows) for rows in np.array_split(rng.permutation(len(x)), 4)]
    if not all(mass[rows].any() for rows in quarters):
        raise InputError(f"{name} has too few rows of some weight to extrapolate, got {np.count_nonzero(mass)}")
    parts = [moments(x, mass, own, rows) for rows in quarters]
    halves = [merged(list(pair)) for pair in combinations(parts, 2)]
    if not all(half.own < 1 - 1e-12 for half in halves):
        raise InputError(f"{name} has too few rows of some weight to extrapolate: in one half all is on one row")
    return [_sound(merged(parts), name, largest), *halves]


def _sound(found: Moments, name: str, largest: float) -> Moments:
    """Return moments whose products are in the range of floats, or raise."""
    xp = namespace(found.mean)
    if not float(xp.sum(xp.linalg.diagonal(found.scatter)) + xp.sum(found.mean**2)) < largest:
        how = "divide real and fake by one number"
        raise InputError(f"{name} has values whose squares are beyond the range of its floats; {how}")
    return found


def _extrapolated(
    reals: list[Moments], fakes: list[Moments], factors: list[Factor] | None = None, eigen: Array | None = None
) -> float:
    """Return the distance of all rows, extrapolated if there are halves after them."""
    roots: list[Factor | None] = [*factors] if factors else [None] * len(reals)
    whole = squared_distance(reals[0], fakes[0], roots[0], eigen)
    halves = [squared_distance(r, f, root) for r, f, root in zip(reals[1:], fakes[1:], roots[1:], strict=True)]
    return 2 * whole - sum(halves) / len(halves) if halves else whole


def _bases(fake: Moments, root: Factor) -> tuple[Array, Array, Array]:
    """Return the eigenvalues of `crossed`, and for each side a basis B in which its rows are bent to the other side.

    With G F G = R, the linear map G of optimal transport from fake to real is B Bᵀ for the first, and its inverse, from
    real to fake, for the second. In both bases the covariance of the rows is diagonal: the roots of the eigenvalues.
    """
    assert root.inverse is not None
    xp = namespace(fake.mean)
    values, vectors = xp.linalg.eigh(crossed(root, fake))
    roots = xp.sqrt(xp.clip(values, 0.0, None))
    forth, back = root.root @ vectors, root.inverse.T @ vectors
    return values, forth * xp.sqrt(reciprocals(roots)), back * xp.sqrt(roots)


@np.errstate(over="ignore", invalid="ignore")  # the values are looked at
def _influence(x: Array, mass: Floats, sides: tuple[Moments, Moments], basis: Array, values: Array) -> Floats:
    """Return how the distance moves when mass moves to each row of one side, less what the row did to that itself.

    With y = x - mean and v = Bᵀ y, the first derivative is 2 (mean - other mean)·y + |y|² - |v|², up to a constant. It
    is taken at the rows' own moments, which bend towards rows of large mass: in many dimensions that alone would tell
    heavy rows from light ones. So mass times the second derivative is taken off, as if the row had been left out. It is
    |v|² + sum v_i² v_j²/(s_i + s_j) + sum s_i/2, with s the roots of the eigenvalues. Rows of equal mass all bend the
    moments alike, and go without.
    """
    xp = namespace(x)
    own, other = sides
    centre, pull, form = (xp.astype(a, x.dtype) for a in (own.mean, 2 * (own.mean - other.mean), basis))
    roots = xp.sqrt(xp.clip(values, 0.0, None))
    inverse = None if mass.min() == mass.max() else xp.astype(_inverse_sums(roots), x.dtype)
    constant = float(xp.sum(roots)) / 2
    influence = np.empty(len(x))
    for start in range(0, len(x), _ROWS):
        part = slice(start, start + _ROWS)
        y = x[part] - centre
        squares = (y @ form) ** 2
        bent = xp.sum(squares, axis=1)
        influence[part] = host_view(xp.sum((y + pull) * y, axis=1) - bent)
        if inverse is not None:
            second = bent + xp.sum((squares @ inverse) * squares, axis=1) + constant
            influence[part] -= mass[part] * np.asarray(host_view(second))
    if not np.isfinite(mass @ influence):
        raise InputError("a row is so far from the others that its square is beyond the range of its floats; drop it")
    centred: Floats = influence - float(mass @ influence)
    return centred


def _inverse_sums(roots: Array) -> Array:
    """Return 1/(s_i + s_j), and 0 where both are nothing."""
    xp = namespace(roots)
    sums = roots[:, None] + roots[None, :]
    sound = sums > float(xp.max(roots)) * 1e-12
    return xp.where(sound, 1 / xp.where(sound, sums, xp.ones_like(sums)), xp.zeros_like(sums))
