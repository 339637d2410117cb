"""Scores of samples against a target whose modes, or whose mass in every cell of a partition, are known."""

from collections.abc import Callable
from math import exp, pi
from typing import Any, NamedTuple

import numpy as np

from obrs._text import lookup
from obrs.errors import InputError
from obrs.metrics._inputs import check_features
from obrs.types import Array

from .record import Numbers

__all__ = ["ESTIMATORS", "Cells", "ModeScores", "grid_cells", "histogram_divergence", "mode_cells", "mode_scores"]


class ModeScores(NamedTuple):
    """Share of the samples that are near a mode, share of the modes that have such a sample, and how many these are."""

    precision: float
    recall: float
    modes: int


def mode_scores(fake: Array, modes: Numbers, *, sigma: float, n_sigma: float = 4.0) -> ModeScores:
    """Score samples against the modes of a mixture of isotropic components.

    Samples of a 2-D target itself have a precision of 1 - exp(-n_sigma²/2): 98.89 % at 3 sigma, 99.97 % at 4.

    Args:
        fake: Samples, shape `(n, dim)`.
        modes: Means of the components, shape `(modes, dim)`.
        sigma: Standard deviation of each component, per axis.
        n_sigma: A sample this many sigma from a mode belongs to it.

    Example:
        >>> mode_scores([[0.0, 0.1], [0.0, -0.1], [3.0, 3.0]], np.array([[0.0, 0.0], [2.0, 2.0]]), sigma=0.05)
        ModeScores(precision=0.6666666666666666, recall=0.5, modes=1)

    References:
        | Discriminator Rejection Sampling (Azadi et al., 2019), high-quality samples and recovered modes
    """
    nearest, distance = _nearest_mode(check_features(fake, "fake").astype(np.float64, copy=False), modes)
    good = distance <= n_sigma * sigma
    hit = len(np.unique(nearest[good]))
    return ModeScores(float(np.count_nonzero(good)) / len(good), hit / len(modes), hit)


def _nearest_mode(x: Numbers, modes: Numbers) -> tuple[Numbers, Numbers]:
    """Return the index of the nearest mode of each sample, the first if there are several, and its distance."""
    # differences, not |x|² - 2xm + |m|²: that cancels where a sample is close to a mode far from the origin
    squares = np.square(x[:, None, :] - modes[None]).sum(axis=2)
    return squares.argmin(axis=1), np.sqrt(squares.min(axis=1))


class Cells(NamedTuple):
    """A partition of the plane: the mass of the target in each cell, and a map from points to indices of cells."""

    masses: Numbers
    assign: Callable[[Numbers], Numbers]


def mode_cells(modes: Numbers, *, sigma: float) -> Cells:
    """Cut the discs around the modes of a mixture into 3 rings of 4 sectors of equal mass; the rest is one cell.

    25 modes have 301 cells, enough to see a mode that is too narrow, too wide, in the wrong place, too rare or missing;
    2500 samples put 8 into each.

    Args:
        modes: Means, shape `(modes, 2)`, at least 8 sigma apart, so that no component reaches into the disc of another;
            less than exp(-8) of its mass does, which is neglected.
        sigma: Standard deviation of each component, per axis.

    Example:
        >>> cells = mode_cells(np.array([[0.0, 0.0], [9.0, 0.0]]), sigma=1.0)
        >>> cells.masses[[0, -1]].round(4)
        array([0.0417, 0.0003])
        >>> cells.assign(np.array([[0.1, 0.1], [0.1, 1.3], [8.5, 0.1], [4.5, 0.0]]))
        array([ 0,  4, 13, 24])
    """
    rings, sectors, n_sigma = 3, 4, 4.0
    apart = min(_nearest_mode(modes[i : i + 1], modes[i + 1 :])[1][0] for i in range(len(modes) - 1))
    if apart < 2 * n_sigma * sigma:
        raise InputError(f"modes must be {2 * n_sigma * sigma:g} apart, two are {apart:g}; use grid_cells")
    inside = -np.expm1(-(n_sigma**2) / 2)  # mass of a disc
    last = len(modes) * rings * sectors

    def assign(x: Numbers) -> Numbers:
        mode, distance = _nearest_mode(x, modes)
        distance /= sigma
        below = -np.expm1(-np.square(distance) / 2) / inside  # share of a disc's mass up to here
        offset = x - modes[mode]
        turn = np.arctan2(offset[:, 1], offset[:, 0]) / (2 * pi) % 1.0
        ring = np.minimum((below * rings).astype(np.intp), rings - 1)
        sector = np.minimum((turn * sectors).astype(np.intp), sectors - 1)
        return np.where(distance <= n_sigma, (mode * rings + ring) * sectors + sector, last)

    return Cells(np.append(np.full(last, inside / last), exp(-(n_sigma**2) / 2)), assign)


def grid_cells(
    log_prob: Callable[[Any], Any], *, low: float, high: float, cells: int = 20, fine: int = 16, min_mass: float = 0.0
) -> Cells:
    """Cut a square into equal cells, with the masses of a density by the midpoint rule; the outside is one cell.

    Args:
        log_prob: Log-density of points `(n, 2)`.
        low, high: The square is [low, high]².
        cells: Cells per side.
        fine: Points of the midpoint rule per side of a cell; a few for each standard deviation of the thinnest part.
        min_mass: Cells with less mass are joined with the outside; 10 / n leaves those that n samples can see.

    Example:
        >>> square = grid_cells(lambda x: np.where((abs(x) < 1).all(1), np.log(0.25), -np.inf), low=-2, high=2, cells=4)
        >>> square.masses.reshape(-1)[[0, 5]], square.masses.sum()
        (array([0.  , 0.25]), np.float64(1.0))
    """
    step = (high - low) / (cells * fine)
    line = low + step * (np.arange(cells * fine) + 0.5)
    where = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(np.asarray(log_prob(where), dtype=np.float64)) * step**2
    flat: Numbers = density.reshape(cells, fine, cells, fine).sum(axis=(1, 3)).reshape(-1)
    total = float(flat.sum())
    if not 0 < total < 1 + 1e-2:
        raise InputError(f"the mass in the square is {total:.4g} and should be at most 1; raise fine or check log_prob")
    flat = flat / max(total, 1.0)
    kept = np.flatnonzero(flat >= min_mass)
    index = np.full(flat.size + 1, len(kept))
    index[kept] = np.arange(len(kept))

    def assign(x: Numbers) -> Numbers:
        place: Numbers = np.floor((x - low) / (high - low) * cells)
        inside: Numbers = np.all((place >= 0) & (place < cells), axis=1)
        flat_place = np.where(inside[:, None], place, 0).astype(np.intp) @ np.array([cells, 1])
        return index[np.where(inside, flat_place, -1)]

    return Cells(np.append(flat[kept], max(1.0 - float(flat[kept].sum()), 0.0)), assign)


def histogram_divergence(fake: Array, cells: Cells, divergence: str = "kl", weights: Array | None = None) -> float:
    """Estimate a divergence between a target and the distribution of samples, at the resolution of the cells.

    The leading bias is removed. So for samples of the target itself the mean is nearly 0 (and half of the estimates are
    below 0) instead of the (cells - 1)/(2n) of KL and (cells - 1)/(8n) nats of JS of the plain histogram.

    - "kl": KL(target‖samples), `sum p log(p / ((N + 1/2)/n))` with N samples in a cell. `log(N + 1/2)` has mean
      `log E[N] + O(1/E[N]²)`, so a half is the smoothing that needs no further correction. For a missing mode it is a
      floor: the true term is infinite.
    - "js": the plain Jensen-Shannon divergence less the second-order term of its expansion in q = N/n.

    Weights are the probability that each sample is kept, up to a factor; the bias is then that of as many samples as
    Kish's effective number.

    Example:
        >>> from paper.toys import grid25
        >>> target = grid25()
        >>> cells = mode_cells(target.means, sigma=0.05)
        >>> fake = target.sample(2500, seed=1)
        >>> print(f"{histogram_divergence(fake, cells):.3f}, {histogram_divergence(fake + 0.05, cells):.3f}")
        -0.005, 0.698

    References:
        | Note on the Bias of Information Estimates (Miller, 1955), the leading bias of such histograms
    """
    estimate = lookup(ESTIMATORS, divergence, "measured divergence")
    if weights is not None:
        weights = np.asarray(weights, dtype=np.float64)
        weights = weights * (weights.sum() / np.square(weights).sum())
    index = cells.assign(check_features(fake, "fake").astype(np.float64, copy=False))
    return estimate(cells.masses, np.bincount(index, weights=weights, minlength=len(cells.masses)))


def _kl(p: Numbers, counts: Numbers) -> float:
    seen = p > 0
    return float(np.sum(p[seen] * (np.log(p[seen]) - np.log((counts[seen] + 0.5) / counts.sum()))))


def _js(p: Numbers, counts: Numbers) -> float:
    n = float(counts.sum())
    q = counts / n
    used = p + q > 0
    p, q = p[used], q[used]
    middle = (p + q) / 2
    plain = sum(float(np.sum(a[a > 0] * np.log(a[a > 0] / middle[a > 0]))) for a in (p, q)) / 2
    return plain - float(np.sum(p * (1 - q) / (p + q))) / (4 * n)


ESTIMATORS: dict[str, Callable[[Numbers, Numbers], float]] = {"kl": _kl, "js": _js}
"""Estimates of a divergence from the masses of the target and the counts of the samples."""
