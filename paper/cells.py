"""Measured divergences: a histogram of samples against a target whose mass in every cell is known."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, pi
from typing import Any

import numpy as np

from obrs._arrays import as_floats, host_view
from obrs._checks import check_count, check_positive, is_number
from obrs._text import lookup
from obrs.errors import InputError
from obrs.types import Array

from .masses import as_masses, as_weights, effective_size, own_pairs, points
from .modes import nearest_mode, widths

__all__ = ["ESTIMATORS", "Cells", "HistogramDivergence", "grid_cells", "histogram_divergence", "mode_cells"]

Floats = np.ndarray[Any, Any]

_WIDEST = 1e100  # side of a square, whose area must be a float
_FAR = 100.0  # sigma, beyond which nothing is left of a Gaussian


@dataclass(frozen=True, eq=False)
class Cells:
    """A partition of space.

    Args:
        masses: Mass of the target in each cell, `(cells,)`, of sum 1.
        of: Maps points `(n, dim)` to the index of their cell, `(n,)`.
        dimension: Of the points, if it is known.

    Example:
        >>> halves = Cells(np.array([0.5, 0.5]), lambda x: (x[:, 0] > 0).astype(int))
        >>> halves.of(np.array([[-1.0], [2.0]]))
        array([0, 1])
    """

    masses: Floats
    of: Callable[[Floats], Floats]
    dimension: int | None = None


def mode_cells(
    modes: Array,
    *,
    sigma: Any,
    weights: Array | None = None,
    rings: int = 3,
    sectors: int = 4,
    n_sigma: float = 4.0,
) -> Cells:
    """Cut the discs around the modes of a 2-D mixture into rings and sectors of equal mass; the rest is one cell.

    With the defaults 25 modes have 301 cells, enough to see a mode that is too narrow, too wide, in the wrong place,
    too rare or missing; 2500 samples put 8 into each.

    Args:
        modes: Means, shape `(modes, 2)`, at least 2 n_sigma sigma apart, so that no component reaches into the
            disc of another; less than exp(-n_sigma²/2) of its mass does, which is neglected.
        sigma: Standard deviation of a component, per axis: one number, or one per mode.
        weights: Weight of each component; equal by default.
        rings, sectors: How often a disc is cut by radius and by angle.
        n_sigma: Radius of a disc, in sigma.

    Example:
        >>> cells = mode_cells([[0.0, 0.0], [9.0, 0.0]], sigma=1.0, rings=2, sectors=1)
        >>> cells.masses.round(4)
        array([0.2499, 0.2499, 0.2499, 0.2499, 0.0003])
        >>> cells.of(np.array([[0.0, 1.0], [0.0, 1.3], [8.5, 0.0], [4.5, 0.0]]))
        array([0, 1, 2, 4])
    """
    centres = points(modes, "modes")
    if centres.shape[1] != 2:
        raise InputError(f"modes must have two coordinates, got {centres.shape[1]}; use grid_cells or your own Cells")
    rings, sectors = check_count(rings, "rings"), check_count(sectors, "sectors")
    scale, cut = widths(sigma, len(centres)), check_positive(n_sigma, "n_sigma")
    apart, needed = _smallest_distance(centres), 2 * cut * float(scale.max())
    if apart < needed:
        raise InputError(f"modes must be {needed:g} apart, two are {apart:g}; lower n_sigma or use grid_cells")
    share = as_weights(weights, len(centres))
    inside = -np.expm1(-(min(cut, _FAR) ** 2) / 2)  # mass of a disc
    each = np.repeat(share / share.sum() * inside / (rings * sectors), rings * sectors)
    last = len(each)

    def of(x: Floats) -> Floats:
        mode, distance = nearest_mode(x, centres)
        distance /= scale[mode]
        below = -np.expm1(-np.square(distance) / 2) / inside  # share of a disc's mass up to here
        offset = x - centres[mode]
        turn = np.arctan2(offset[:, 1], offset[:, 0]) / (2 * pi) % 1.0
        ring = np.minimum((below * rings).astype(np.intp), rings - 1)
        sector = np.minimum((turn * sectors).astype(np.intp), sectors - 1)
        return np.where(distance <= cut, (mode * rings + ring) * sectors + sector, last)

    return Cells(np.append(each, exp(-(min(cut, _FAR) ** 2) / 2)), of, 2)


def grid_cells(
    log_prob: Callable[[Any], Any], *, low: float, high: float, cells: int = 20, fine: int = 16, min_mass: float = 0.0
) -> Cells:
    """Cut a square into equal cells, with the masses of a 2-D density by the midpoint rule; the outside is one cell.

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
    cells, fine = check_count(cells, "cells"), check_count(fine, "fine")
    if not is_number(low) or not is_number(high) or not 0 < float(high) - float(low) < _WIDEST:
        raise InputError(f"low must be a number below high, got {low!r:.60} and {high!r:.60}")
    step = (high - low) / (cells * fine)
    line = low + step * (np.arange(cells * fine) + 0.5)
    masses = np.empty((cells, cells))
    for row in range(cells):  # a row of cells at a time
        part = np.stack(np.meshgrid(line[row * fine : (row + 1) * fine], line, indexing="ij"), axis=-1)
        density = np.exp(_log_densities(log_prob, part.reshape(-1, 2))) * step**2
        masses[row] = density.reshape(fine, cells, fine).sum(axis=(0, 2))
    total = float(masses.sum())
    if not 0 < total < 1 + 1e-2:
        raise InputError(f"the mass in the square is {total:.4g} and should be at most 1; raise fine or check log_prob")
    flat: Floats = masses.reshape(-1) / max(total, 1.0)
    kept = np.flatnonzero(flat >= min_mass)
    index = np.full(flat.size + 1, len(kept))
    index[kept] = np.arange(len(kept))

    def of(x: Floats) -> Floats:
        place: Floats = np.floor((x - low) / (high - low) * cells)
        inside: Floats = np.all((place >= 0) & (place < cells), axis=1)
        flat_place = np.where(inside[:, None], place, 0).astype(np.intp) @ np.array([cells, 1])
        return index[np.where(inside, flat_place, -1)]

    return Cells(np.append(flat[kept], max(1.0 - float(flat[kept].sum()), 0.0)), of, 2)


def _log_densities(log_prob: Callable[[Any], Any], x: Floats) -> Floats:
    """Return the log-density of points, or raise if there is not one number below infinity for each."""
    found = host_view(as_floats(log_prob(x), "log_prob"))
    if found is None or found.shape != (len(x),):
        raise InputError(f"log_prob must return shape ({len(x)},), got {None if found is None else found.shape}")
    if bad := np.count_nonzero(~(found < np.inf)):
        raise InputError(f"log_prob must return log-densities, {bad} of {len(x)} are NaN or +inf")
    return found.astype(np.float64)


@dataclass(frozen=True)
class HistogramDivergence:
    """What `histogram_divergence` finds.

    Args:
        value: The estimate, in nats.
        n_fake: How many samples: with weights Kish's effective number, with counts all copies.
        cells: Number of cells.
    """

    value: float
    n_fake: float
    cells: int


def histogram_divergence(
    *,
    cells: Cells,
    fake: Array,
    divergence: str = "kl",
    weights: Array | None = None,
    counts: Array | None = None,
) -> HistogramDivergence:
    """Estimate a divergence between a target and the distribution of samples, at the resolution of the cells.

    The leading bias of both estimates is removed. So for samples of the target itself the mean is nearly 0 (and half
    of the estimates are below 0) instead of the (cells - 1)/(2n) and (cells - 1)/(8n) nats of the plain histogram. The
    estimate is for the divergence of the two histograms, which is at most that of the distributions: cells do not see
    what happens inside of them.

    - "kl": KL(target‖samples), `sum p log(p / ((N + 1/2)/n))` with N samples in a cell. `log(N + 1/2)` has mean
      `log E[N] + O(1/E[N]²)`, so a half is the smoothing that needs no further correction. In a cell with E[N] far
      below 1, such as those of a missing mode, it is a floor: the true term grows beyond it, to infinity.
    - "js": Jensen-Shannon, at most log 2. The plain estimate less `sum p (1 - q) / (4n (p + q))`, the second-order
      term of its expansion in q = N/n.

    Args:
        cells: The partition with the masses of the target, from `mode_cells` or `grid_cells`.
        fake: Samples, shape `(n, dim)`.
        divergence: "kl" or "js".
        weights: Probability that each sample is kept, `(n,)`, up to a factor; equal by default. The bias is then that
            of as many samples as Kish's effective number.
        counts: How often each sample is there, `(n,)`, instead of weights.

    Example:
        >>> from paper.toys import grid25
        >>> target = grid25()
        >>> cells = mode_cells(target.means, sigma=0.05)
        >>> fake = target.sample(2500, seed=1)
        >>> print(f"{histogram_divergence(cells=cells, fake=fake).value:.3f}")
        -0.005
        >>> print(f"{histogram_divergence(cells=cells, fake=fake + 0.05).value:.3f}")
        0.698

    References:
        | Note on the Bias of Information Estimates (Miller, 1955), the leading bias of such histograms
    """
    estimate = lookup(ESTIMATORS, divergence, "measured divergence")
    x = points(fake, "fake")
    mass = as_masses(weights, counts, len(x))
    size = effective_size(own_pairs(mass, counts))
    where = None if weights is None and counts is None else size * mass
    if cells.dimension is not None and x.shape[1] != cells.dimension:
        raise InputError(f"fake must have {cells.dimension} coordinates, as the cells have, got {x.shape[1]}")
    in_cells = np.bincount(cells.of(x), weights=where, minlength=len(cells.masses))
    return HistogramDivergence(estimate(cells.masses, in_cells), size, len(cells.masses))


def _kl(p: Floats, counts: Floats) -> float:
    seen = p > 0
    return float(np.sum(p[seen] * (np.log(p[seen]) - np.log((counts[seen] + 0.5) / counts.sum()))))


def _js(p: Floats, counts: Floats) -> float:
    n = float(counts.sum())
    q = counts / n
    used = p + q > 0
    p, q = p[used], q[used]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [np.where(a > 0, a * np.log(2 * a / (p + q)), 0.0) for a in (p, q)]
    return float(np.sum(terms[0] + terms[1]) / 2 - np.sum(p * (1 - q) / (p + q)) / (4 * n))


ESTIMATORS: dict[str, Callable[[Floats, Floats], float]] = {"kl": _kl, "js": _js}
"""Estimates of a divergence from the masses of the target and the counts of the samples."""


def _smallest_distance(centres: Floats) -> float:
    distances = (nearest_mode(centres[i : i + 1], centres[i + 1 :])[1][0] for i in range(len(centres) - 1))
    return float(min(distances, default=np.inf))
