"""Means and covariances of weighted rows, a part at a time, and the Fréchet distance between two of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays import like, namespace, widest
from ..types import Array

__all__ = ["Factor", "Moments", "crossed", "factor", "merged", "moments", "reciprocals", "squared_distance"]

Floats = np.ndarray[Any, Any]

_ROWS = 1024  # rows whose products are summed in the precision of the features; their sums are added in float64
_PANEL = 512  # columns of a product at a time: what is above the diagonal is not computed


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted moments of rows, in float64, where the rows are.

    Args:
        mass: What the weights sum to.
        mean: Mean, `(dim,)`.
        scatter: Mean of (x - mean)(x - mean)ᵀ, not corrected for the mean being that of the rows, `(dim, dim)`.
        own: Sum of the squares of the weights once they sum to 1: 1/n for n equal ones.
    """

    mass: float
    mean: Array
    scatter: Array
    own: float

    @property
    def covariance(self) -> Array:
        """The scatter over 1 - own, which is unbiased: with equal weights that divides by n - 1 instead of n."""
        return self.scatter / (1 - self.own)


def moments(x: Array, mass: Floats, own: Floats, rows: Floats | None = None) -> Moments:
    """Return the moments of features `(n, dim)` with these masses, of all rows or of some.

    Products are of centred rows in the precision of the features, summed over a thousand rows; beyond that sums are
    in float64. So float32 features cost half as much as float64 ones, and the error stays that of the features. From
    no more rows than dimensions all is in float64: some eigenvalues are 0 then, and the root of a rounded 0 is large.

    Args:
        x: Features.
        mass: Mass of each row.
        own: Mass of the pairs of each row with itself, as `own_pairs` has it.
        rows: Indices of the rows; all by default.

    Example:
        >>> two = np.full(2, 0.5)
        >>> moments(np.array([[0.0], [2.0]]), two, two**2).covariance
        array([[2.]])
    """
    xp = namespace(x)
    wide = widest(xp)
    n, dim = (len(x) if rows is None else len(rows)), x.shape[1]
    chosen = mass if rows is None else mass[rows]
    total = float(chosen.sum())
    w = like(chosen / total, x, dtype=wide)
    index = None if rows is None else like(rows, x, dtype=xp.int64)
    even = bool(chosen.min() == chosen.max())
    exact = wide if np.count_nonzero(chosen) <= dim else x.dtype

    def part(start: int) -> Array:
        some = x[start : start + _ROWS] if index is None else x[index[start : start + _ROWS]]
        return xp.astype(some, exact, copy=False)

    mean = like(np.zeros(dim), x, dtype=wide)
    for start in range(0, n, _ROWS):
        mean += w[start : start + _ROWS] @ xp.astype(part(start), wide)
    centre = xp.astype(mean, exact)
    scatter = like(np.zeros((dim, dim)), x, dtype=wide)
    for start in range(0, n, _ROWS):
        centred = part(start) - centre
        if not even:
            centred = centred * xp.astype(xp.sqrt(w[start : start + _ROWS]), exact)[:, None]
        for left in range(0, dim, _PANEL):
            right = left + _PANEL
            scatter[left:, left:right] += centred[:, left:].T @ centred[:, left:right]
    if even:
        scatter = scatter / n
    for left in range(0, dim, _PANEL):
        right = left + _PANEL
        scatter[left:right, right:] = scatter[right:, left:right].T
    gap = mean - xp.astype(centre, wide)  # the mean was rounded to the precision of the products
    scatter -= gap[:, None] * gap[None, :]
    share = own if rows is None else own[rows]
    return Moments(total, mean, scatter, float((share / total).sum()) / total)  # the square of a small total is 0


def merged(parts: list[Moments]) -> Moments:
    """Return the moments of all rows from those of disjoint parts.

    Example:
        >>> one = np.ones(1)
        >>> parts = [moments(np.array([[x]]), one, one) for x in (0.0, 2.0)]
        >>> merged(parts).mean, merged(parts).covariance
        (array([1.]), array([[2.]]))
    """
    total = sum(p.mass for p in parts)
    mean = sum((p.mass / total) * p.mean for p in parts)
    scatter = 0.0
    for p in parts:
        gap = p.mean - mean
        scatter = scatter + (p.mass / total) * (p.scatter + gap[:, None] * gap[None, :])
    return Moments(total, mean, scatter, sum(p.own * (p.mass / total) ** 2 for p in parts))


@dataclass(frozen=True, eq=False)
class Factor:
    """A covariance as L Lᵀ.

    Args:
        root: L: lower triangular, or if the covariance has no inverse, its symmetric square root.
        inverse: Its inverse, or pseudo-inverse; None unless asked for.
    """

    root: Array
    inverse: Array | None = None


def factor(covariance: Array, *, invert: bool = False) -> Factor:
    """Return a root L of a covariance L Lᵀ: by Cholesky's method, or where that fails from its eigenvectors.

    Example:
        >>> factor(np.array([[4.0]])).root, factor(np.zeros((1, 1))).root
        (array([[2.]]), array([[0.]]))
    """
    xp = namespace(covariance)
    try:
        root = xp.linalg.cholesky(covariance)
        return Factor(root, xp.linalg.inv(root) if invert else None)
    except (np.linalg.LinAlgError, RuntimeError):  # torch's own is a RuntimeError
        values, vectors = xp.linalg.eigh(covariance)
    values = xp.clip(values, 0.0, None)
    roots = xp.sqrt(values)
    if not invert:
        return Factor((vectors * roots) @ vectors.T)
    return Factor((vectors * roots) @ vectors.T, (vectors * reciprocals(roots)) @ vectors.T)


def reciprocals(roots: Array) -> Array:
    """Return 1/x of square roots, and 0 where x is nothing but the rounding of 0.

    Example:
        >>> reciprocals(np.array([0.0, 1e-9, 2.0]))
        array([0. , 0. , 0.5])
    """
    xp = namespace(roots)
    noise = float(xp.max(roots)) * (len(roots) * 2.2e-16) ** 0.5
    sound = roots > noise
    return xp.where(sound, 1 / xp.where(sound, roots, xp.ones_like(roots)), xp.zeros_like(roots))


def crossed(root: Factor, fake: Moments) -> Array:
    """Return Lᵀ F L: symmetric, and with the eigenvalues of the product of the two covariances.

    Example:
        >>> two = np.full(2, 0.5)
        >>> crossed(factor(np.array([[4.0]])), moments(np.array([[0.0], [2.0]]), two, two**2))
        array([[8.]])
    """
    return root.root.T @ fake.covariance @ root.root


def squared_distance(real: Moments, fake: Moments, root: Factor | None = None, values: Array | None = None) -> float:
    """Return |difference of the means|² + tr(R) + tr(F) - 2 tr((R F)^½) of the covariances R of real and F of fake.

    Args:
        real, fake: The moments of both.
        root: Root of the covariance of real, if it is at hand.
        values: Eigenvalues of `crossed`, if they are.

    Example:
        >>> two = np.full(2, 0.5)
        >>> narrow, wide = (moments(np.array([[-s], [s]]), two, two**2) for s in (1.0, 3.0))
        >>> round(squared_distance(narrow, wide), 12)  # (3 - 1)² n/(n - 1)
        8.0
    """
    xp = namespace(real.mean)
    if values is None:
        values = xp.linalg.eigvalsh(crossed(root or factor(real.covariance), fake))
    gap = real.mean - fake.mean
    traces = sum(xp.sum(xp.linalg.diagonal(side.scatter)) / (1 - side.own) for side in (real, fake))
    return float(xp.sum(gap * gap) + traces - 2 * xp.sum(xp.sqrt(xp.clip(values, 0.0, None))))
