"""Precision, recall, density and coverage by nearest neighbours, for one set of fakes or for every budget of a pool.

A ball around each point reaches to its k-th nearest neighbour of its own kind. Precision and density are means over
fakes, so a pool of proposals with inclusion probabilities gives them for every budget by weighted means. Recall and
coverage depend on *how many* fakes there are: fewer fakes have larger balls, and fewer of them. They are means over
draws of so many fakes from the pool.

Distances are squared, from matrix products of centred points in the precision of the features, a block at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .._checks import check_count, check_seed
from ..errors import InputError
from ..selection import select
from ._inputs import check_pair
from .curve import GROUPS, Curve, group_labels
from .weightings import as_pool

__all__ = ["Neighbours", "neighbour_curves", "neighbours"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

_BLOCK = 512  # rows whose distances to all others are in memory at a time
_EXTRA = 8  # neighbours beyond the k-th that are listed, so that a group can be left out


class Neighbours(NamedTuple):
    """Precision, recall, density and coverage.

    Attributes:
        precision: Share of the fakes within the ball of a real point.
        recall: Share of the real points within the ball of a fake.
        density: Mean number of balls of real points that hold a fake, over k. Above 1 where fakes crowd.
        coverage: Share of the balls of real points that hold a fake.
    """

    precision: float
    recall: float
    density: float
    coverage: float


def neighbours(
    *,
    real: Any,
    fake: Any,
    k: int = 5,
    weights: Any = None,
    size: int | None = None,
    draws: int = 10,
    seed: int = 0,
) -> Neighbours:
    """Measure precision and recall (Kynkäänniemi et al.), density and coverage (Naeem et al.).

    All four depend on k and on both sample sizes: compare only what was measured at the same ones.

    Args:
        real, fake: Features, shape `(n, dim)`, of at least k + 1 points each.
        k: Whose distance is the radius of a ball, the same on both sides.
        weights: Probability that each fake is kept, `(n_fake,)`, up to a factor; equal weights are the same as none.
        size: How many fakes recall and coverage are for: their means over draws of so many without replacement, by
            `select`. By default all, and with weights as many as rejection would keep, `sum(weights) / max(weights)`.
        draws: Number of these draws.
        seed: Of the draws.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((500, 8)), rng.standard_normal((1000, 8)) + 0.5
        >>> [round(x, 3) for x in neighbours(real=real, fake=fake)]
        [0.882, 0.89, 0.752, 0.9]
        >>> kept = neighbours(real=real, fake=fake, weights=np.minimum(np.exp(1 - 0.5 * fake.sum(1)), 1))
        >>> round(kept.precision, 3), round(kept.density, 3)
        (0.922, 0.955)

    References:
        | Improved Precision and Recall Metric for Assessing Generative Models (Kynkäänniemi et al., 2019)
        | Reliable Fidelity and Diversity Metrics for Generative Models (Naeem et al., 2020)
    """
    real, fake, k = _check(real, fake, k)
    weights = as_pool(weights, len(fake)).weights
    if len(weights) > 1:
        raise InputError(f"weights must be one line, got {len(weights)}; use neighbour_curves for several")
    drawn = _draw(weights[0], _size(weights[0], size, k), draws, seed)
    shares = _measure(real, fake, k, drawn)
    holds, density = shares.means(weights, 0)
    return Neighbours(float(holds[0]), float(shares.recall.mean()), float(density[0]), float(shares.coverage.mean()))


def neighbour_curves(
    *,
    real: Any,
    fake: Any,
    weights: Any = None,
    k: int = 5,
    size: int | None = None,
    draws: int = 4,
    seed: int = 0,
) -> dict[str, Curve]:
    """Return the four metrics of one pool at many budgets, with errors that are paired over budgets.

    All distances are computed once. Errors are from the jackknife: one group of real points and one of fakes are left
    out together, 20 times. The radii become those of the remaining points, weights of `weightings` are solved for
    again, and each draw keeps what is not in the group.

    Args:
        real, fake, k: As for `neighbours`.
        weights: Probability that each fake is kept, `(n,)` or `(budgets, n)`, or `weightings`.
        size: How many fakes recall and coverage are for, the same at every budget; None for as many as rejection keeps
            at each.
        draws, seed: As for `neighbours`; the seed is that of the groups, too.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((500, 8)), rng.standard_normal((1000, 8)) + 0.5
        >>> weights = np.minimum(np.exp(1 - 0.5 * fake.sum(1) + [[99.0], [0.0]]), 1)  # of two budgets
        >>> curves = neighbour_curves(real=real, fake=fake, weights=weights, size=400)
        >>> curves["density"].value.round(3), curves["density"].difference(1, 0).low > 0
        (array([0.752, 0.955]), True)
    """
    real, fake, k = _check(real, fake, k)
    pool, seed = as_pool(weights, len(fake)), check_seed(seed)
    if len(real) - -(-len(real) // GROUPS) <= k:
        raise InputError(f"real must leave more than k = {k} points when one of {GROUPS} groups is left out")
    group, group_fake = (group_labels(n, 2 * seed + i) for i, n in enumerate((len(real), len(fake))))
    drawn = [_draw(line, _size(line, size, k), draws, seed) for line in pool.weights]
    if min(int((group_fake[rows] != g).sum()) for line in drawn for rows in line for g in range(GROUPS)) <= k:
        raise InputError(f"size must leave more than k = {k} fakes when one of {GROUPS} groups is left out")
    counts = _measure(real, fake, k, [rows for line in drawn for rows in line], (group, group_fake))
    left = np.empty((4, GROUPS, len(drawn)))
    for g in range(GROUPS):
        stay = group_fake != g
        left[0, g], left[2, g] = counts.means(pool.restrict(stay), g + 1)
    ends = np.cumsum([0, *(len(line) for line in drawn)])
    value = np.empty((4, len(drawn)))
    value[0], value[2] = counts.means(pool.weights, 0)
    for i, shares in ((1, counts.recall), (3, counts.coverage)):
        by_line = np.stack([shares[a:b].mean(axis=0) for a, b in pairwise(ends)])
        value[i], left[i] = by_line[:, 0], by_line[:, 1:].T
    most = (1.0, 1.0, np.inf, 1.0)
    return {name: Curve.from_groups(value[i], left[i], (0.0, most[i])) for i, name in enumerate(Neighbours._fields)}


class _Counts(NamedTuple):
    """Counts from all distances, first of all points and then without each group.

    Attributes:
        k: Whose distance is the radius of a ball.
        balls: How many balls of real points hold each fake, `(1 + groups, n_fake)`.
        recall, coverage: Of each draw, `(draws, 1 + groups)`.
    """

    k: int
    balls: Ints
    recall: Floats
    coverage: Floats

    def means(self, weights: Floats, left_out: int) -> tuple[Floats, Floats]:
        """Return precision and density by each line of weights."""
        balls, total = self.balls[left_out], weights.sum(axis=1)
        return np.minimum(weights @ (balls > 0) / total, 1.0), weights @ balls / total / self.k


def _measure(
    real: Floats, fake: Floats, k: int, drawn: Sequence[Ints], groups: tuple[Ints, Ints] | None = None
) -> _Counts:
    """Compare all distances between real and fake with the radii of both."""
    centre = (real.sum(axis=0, dtype=np.float64) + fake.sum(axis=0, dtype=np.float64)) / (len(real) + len(fake))
    reals, fakes = (_Points.build(x, centre) for x in (real, fake))
    group, group_fake = groups or (None, None)
    stay, stay_fake = _stay(group, len(real)), _stay(group_fake, len(fake))
    count, radius = len(stay), _radii(reals, k, group)
    # of each draw: the radii of its fakes, 0 for the others, and who is there
    reach = np.zeros((len(drawn), count, len(fake)), dtype=radius.dtype)
    there = np.zeros(reach.shape, dtype=bool)
    for draw, rows in enumerate(drawn):
        reach[draw][:, rows] = _radii(fakes.take(rows), k, None if group_fake is None else group_fake[rows])
        there[draw][:, rows] = stay_fake[:, rows]
    balls = np.zeros((count, len(fake)), dtype=np.int64)
    recalled, covered = (np.zeros((len(drawn), count, len(real)), dtype=bool) for _ in range(2))
    widest, farthest = radius.max(axis=0), reach.max(axis=(0, 1))
    for block in reals.blocks():
        distance = reals.squares(block, fakes)
        row, column = np.nonzero(distance < widest[block, None])
        near = distance[row, column]
        for g in range(count):
            inside = near < radius[g, block][row]
            balls[g] += np.bincount(column[inside], minlength=len(fake))
            _mark(covered[:, g, block], row[inside], there[:, g, column[inside]])
        row, column = np.nonzero(distance < farthest)
        near = distance[row, column]
        for g in range(count):
            _mark(recalled[:, g, block], row, near < reach[:, g, column])
    recall, coverage = ((mask & stay).sum(axis=2) / stay.sum(axis=1) for mask in (recalled, covered))
    return _Counts(k, balls, recall, coverage)


def _stay(group: Ints | None, n: int) -> Ints:
    """Return masks of the points, first of all and then without each group: `(1 + groups, n)`."""
    all_ = np.ones((1, n), dtype=bool)
    return all_ if group is None else np.concatenate([all_, group != np.arange(GROUPS)[:, None]])


def _mark(mask: Ints, row: Ints, hits: Ints) -> None:
    """Mark, for each draw, the rows that have a hit; `row` ascends, hits are `(draws, pairs)`."""
    if len(row):
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        mask[:, row[starts]] |= np.logical_or.reduceat(hits, starts, axis=1)


def _radii(points: "_Points", k: int, group: Ints | None) -> Floats:
    """Return squared distances to the k-th neighbour, of all points and without each group: `(1 + groups, n)`.

    The points that are left out have no ball; 0 stands for it.
    """
    n = len(points)
    if group is None:
        radius = np.empty((1, n), dtype=points.x.dtype)
        for block in points.blocks():
            distance = points.squares(block, points, exclude_self=True)
            distance.partition(k - 1)
            radius[0, block] = distance[:, k - 1]
        return radius
    listed = min(k + k // 4 + _EXTRA, n - 1)
    radius = np.zeros((1 + GROUPS, n), dtype=points.x.dtype)
    for block in points.blocks():
        distance = points.squares(block, points, exclude_self=True)
        nearest = np.argpartition(distance, listed - 1)[:, :listed]
        near = np.take_along_axis(distance, nearest, axis=1)
        order = np.argsort(near, axis=1)
        near, label = np.take_along_axis(near, order, axis=1), group[np.take_along_axis(nearest, order, axis=1)]
        radius[0, block] = near[:, k - 1]
        for g in range(GROUPS):
            passed = np.cumsum(label != g, axis=1)
            place = np.where(passed[:, -1] >= k, np.argmax(passed >= k, axis=1), listed - 1)
            radius[g + 1, block] = np.where(
                group[block] == g, 0, np.take_along_axis(near, place[:, None], axis=1)[:, 0]
            )
    return radius


@dataclass(frozen=True, eq=False)
class _Points:
    """Centred points and their squared norms."""

    x: Floats
    norms: Floats

    @classmethod
    def build(cls, x: Floats, centre: Floats) -> "_Points":
        centred = x - centre.astype(x.dtype)
        return cls(centred, np.einsum("ij,ij->i", centred, centred))

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Ints) -> "_Points":
        return self if len(rows) == len(self) else _Points(self.x[rows], self.norms[rows])

    def blocks(self) -> Iterator[slice]:
        return (slice(start, min(start + _BLOCK, len(self.x))) for start in range(0, len(self.x), _BLOCK))

    def squares(self, block: slice, other: "_Points", *, exclude_self: bool = False) -> Floats:
        """Return the squared distances of a block to all other points; those of points to themselves are infinite."""
        distance = self.x[block] @ other.x.T
        distance *= -2
        distance += self.norms[block, None]
        distance += other.norms
        np.maximum(distance, 0, out=distance)
        if exclude_self:
            distance[np.arange(len(distance)), np.arange(block.start, block.stop)] = np.inf
        return distance


def _check(real: Any, fake: Any, k: Any) -> tuple[Floats, Floats, int]:
    real, fake = check_pair(real, fake)
    k = check_count(k, "k")
    for name, x in (("real", real), ("fake", fake)):
        if len(x) <= k:
            raise InputError(f"{name} must have at least k + 1 = {k + 1} points, got {len(x)}; lower k")
    return real, fake, k


def _size(weights: Floats, size: Any, k: int) -> int:
    """Return how many fakes recall and coverage are for."""
    if size is None:
        kept = round(float(weights.sum()))
        if kept <= k:
            raise InputError(f"weights keep {kept} fakes, and k + 1 = {k + 1} are needed; lower k or say size=")
        return kept
    subset, available = check_count(size, "size", k + 1), int(np.count_nonzero(weights))
    if subset > available:
        raise InputError(f"size must be at most {available}, the number of fakes with weight above 0, got {subset}")
    return subset


def _draw(weights: Floats, size: int, draws: Any, seed: int) -> list[Ints]:
    """Return the rows of each draw of `size` fakes; if that is all of them, there is one draw."""
    draws, seed = check_count(draws, "draws"), check_seed(seed)
    if size == len(weights):
        return [np.arange(size)]
    with np.errstate(divide="ignore"):
        log_weight = np.log(weights)
    return [select(log_weight, size, seed=(seed * draws + draw) % 2**64) for draw in range(draws)]
