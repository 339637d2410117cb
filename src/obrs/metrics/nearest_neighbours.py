"""Precision, recall, density and coverage by nearest neighbours, for one set of fakes or for every budget of a pool.

A ball around each point reaches to its k-th nearest neighbour of its own kind. Precision is the share of the fakes in
some ball of a real point, recall the share of the real points in some ball of a fake, density how many balls of real
points hold a fake, over k, and coverage the share of the balls of real points that hold a fake.

The first and the third are means over fakes, so a pool of proposals with inclusion probabilities gives them for every
budget by weighted means. The other two depend on *how many* fakes there are: fewer fakes have larger balls, and fewer
of them. They are means over draws of so many fakes from the pool.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks import check_count, check_seed
from ..errors import InputError
from ..selection import select
from ..types import Array
from ._cross import Crossing, cross
from ._distances import TILE, Near, Points, near_points
from ._inputs import as_counts, as_weights, both_features
from .jackknife import Jackknife, check_groups, group_labels

__all__ = ["NeighbourCurve", "Neighbourhood", "Neighbours", "neighbours"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

_SPARE = 4  # neighbours beyond the k-th: enough to be sure of it
_MOST_LISTED = 128  # neighbours of a point that are kept for draws; if one needs more, its row is measured again


@dataclass(frozen=True)
class Neighbours:
    """What `neighbours` finds.

    Args:
        precision: Share of the fakes within the ball of a real point.
        recall: Share of the real points within the ball of a fake.
        density: Mean number of balls of real points that hold a fake, over k. Above 1 where fakes crowd.
        coverage: Share of the balls of real points that hold a fake.
        k: Whose distance is the radius of a ball.
        n_real: Number of real points.
        n_fake: Number of fakes, repeats included.
        size: How many fakes recall and coverage are for.
    """

    precision: float
    recall: float
    density: float
    coverage: float
    k: int
    n_real: int
    n_fake: int
    size: int


@dataclass(frozen=True)
class NeighbourCurve:
    """The four metrics at several budgets, with errors that are paired over budgets.

    Args:
        precision, recall, density, coverage: Values, and values without each group of points.
        k: Whose distance is the radius of a ball.
        n_real: Number of real points.
        n_fake: Number of fakes in the pool.
        size: How many fakes recall and coverage are for at each budget.
    """

    precision: Jackknife
    recall: Jackknife
    density: Jackknife
    coverage: Jackknife
    k: int
    n_real: int
    n_fake: int
    size: tuple[int, ...]


def neighbours(
    *,
    real: Array,
    fake: Array,
    k: int = 5,
    weights: Array | None = None,
    counts: Array | None = None,
    size: int | None = None,
    draws: int = 10,
    seed: int = 0,
) -> Neighbours:
    """Measure precision and recall (Kynkäänniemi et al.), density and coverage (Naeem et al.).

    All four depend on k and on both sample sizes: compare only what was measured at the same ones.

    Args:
        real, fake: Features, shape `(n, dim)`, NumPy or torch, of at least k + 1 points each.
        k: Whose distance is the radius of a ball, the same on both sides.
        weights: Probability that each fake is kept, `(n_fake,)`, up to a factor; equal weights are the same as none.
        counts: How often each fake is there, whole numbers `(n_fake,)`. Copies are neighbours at distance 0.
        size: How many fakes recall and coverage are for: their means over draws of so many without replacement, by
            `select`. By default all, and with weights as many as rejection would keep, `sum(weights) / max(weights)`.
        draws: Number of these draws.
        seed: Of the draws.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((500, 8)), rng.standard_normal((1000, 8)) + 0.5
        >>> found = neighbours(real=real, fake=fake)
        >>> [round(x, 3) for x in (found.precision, found.recall, found.density, found.coverage)]
        [0.882, 0.89, 0.752, 0.9]
        >>> log_ratio = 1 - 0.5 * fake.sum(1)
        >>> kept = neighbours(real=real, fake=fake, weights=np.minimum(np.exp(log_ratio), 1))
        >>> kept.size, round(kept.precision, 3), round(kept.density, 3)
        (465, 0.922, 0.955)

    References:
        | Improved Precision and Recall Metric for Assessing Generative Models (Kynkäänniemi et al., 2019)
        | Reliable Fidelity and Diversity Metrics for Generative Models (Naeem et al., 2020)
    """
    real, fake, k = _checked(real, fake, k)
    wanted = None if counts is not None else _size(as_weights(weights, len(fake)), size, k)
    found = Neighbourhood.of(real=real, fake=fake, k=k, size=wanted)
    return found.scores(weights=weights, counts=counts, size=size, draws=draws, seed=seed)


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """All distances between real and fake, measured once: any weights, sizes and groups left out are then cheap.

    Attributes:
        k: Whose distance is the radius of a ball.
        real, fake: The points; they are not copied.
        near_real, near_fake: The nearest of each among its own kind.
        radius: Radii of the balls of real points.
        left: Radii of the real points without each group, `(groups, n_real)`.
        group_real, group_fake: The group of each point, for the jackknife.
        crossing: What the pass over the distances between real and fake left.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((500, 8)), rng.standard_normal((1000, 8)) + 0.5
        >>> log_ratio = 1 - 0.5 * fake.sum(1)
        >>> weights = np.minimum(np.exp(log_ratio + [[99.0], [0.0], [-1.0]]), 1)  # of three budgets
        >>> found = Neighbourhood.of(real=real, fake=fake, size=200, groups=20)
        >>> found.precision(weights).round(3)
        array([0.882, 0.922, 0.93 ])
        >>> curve = found.curve(weights, size=200, draws=4)
        >>> curve.recall.value.round(2), curve.recall.left_out.shape
        (array([0.87, 0.91, 0.93]), (20, 3))
        >>> low, high = curve.recall.interval(0).low, curve.recall.interval(0).high
        >>> round(low, 2), round(high, 2)
        (0.82, 0.93)
    """

    k: int
    real: Points
    fake: Points
    near_real: Near
    near_fake: Near
    radius: Floats
    left: Floats
    group_real: Ints
    group_fake: Ints
    crossing: Crossing

    @classmethod
    def of(
        cls, *, real: Array, fake: Array, k: int = 5, size: int | None = None, groups: int | None = None, seed: int = 0
    ) -> "Neighbourhood":
        """Measure all distances.

        Args:
            real, fake: Features, shape `(n, dim)`.
            k: Whose distance is the radius of a ball.
            size: The smallest number of fakes that recall and coverage will be asked for. Enough neighbours are kept
                for it; for a smaller one, and if none is said, many rows are measured again at each draw.
            groups: Number of groups for the jackknife, at least 20; none by default.
            seed: Of the groups.
        """
        real, fake, k = _checked(real, fake, k)
        seed = check_seed(seed)
        count = check_groups(groups, min(len(real), len(fake)), k + 1)
        share = 1.0 if size is None else min(check_count(size, "size", k + 1) / len(fake), 1.0)
        # The k-th that is drawn is the (k / share)-th or so of all; four standard deviations more are seldom exceeded.
        deep = 0 if share == 1 else int((k + 4 * np.sqrt(k)) / share)
        spare = k + _SPARE + (k if count else 0)
        wide = min(max(16, int(4 / share)), _MOST_LISTED // 2) if count or share < 1 else 0

        points, fakes = Points.both(real, fake)
        near_real = near_points(points, min(spare, len(real) - 1))
        near_fake = near_points(fakes, min(max(spare, min(deep, _MOST_LISTED)), len(fake) - 1))
        radius = _radii(points, near_real, k)
        group_real, group_fake = (group_labels(n, count, 2 * seed + i) for i, n in enumerate((len(real), len(fake))))
        left = np.zeros((count, len(real)), dtype=radius.dtype)
        for g in range(count):
            left[g] = _radii(points, near_real, k, (group_real != g).astype(np.int64))
        crossing = cross(
            points,
            fakes,
            radius,
            _radii(fakes, near_fake, k),
            reach=_reach(near_fake),
            m=wide,
            group=group_real,
            left=left,
        )
        return cls(k, points, fakes, near_real, near_fake, radius, left, group_real, group_fake, crossing)

    def precision(self, weights: Array | None = None) -> Any:
        """Return the share of the fakes that are in a ball of a real point, for `(n,)` or `(budgets, n)` weights."""
        return _mean(self.crossing.balls > 0, as_weights(weights, len(self.fake), many=True))

    def density(self, weights: Array | None = None) -> Any:
        """Return how many balls of real points hold a fake, over k, for `(n,)` or `(budgets, n)` weights."""
        return _mean(self.crossing.balls / self.k, as_weights(weights, len(self.fake), many=True))

    def scores(
        self,
        *,
        weights: Array | None = None,
        counts: Array | None = None,
        size: int | None = None,
        draws: int = 10,
        seed: int = 0,
    ) -> Neighbours:
        """Return all four; the arguments are those of `neighbours`."""
        if counts is not None:
            if weights is not None or size is not None:
                raise InputError("counts are the sample as it is; leave out weights and size")
            w = as_counts(counts, len(self.fake)).astype(np.int64)
            wanted = int(w.sum())
            if wanted <= self.k:
                raise InputError(f"counts must sum to at least k + 1 = {self.k + 1}, got {wanted}; lower k")
            there = [w]
        else:
            w = as_weights(weights, len(self.fake))
            wanted = _size(w, size, self.k)
            there = list(_drawn(w, wanted, draws, seed))
        n_fake = len(self.fake) if counts is None else wanted
        recall, coverage = self._recall_and_coverage(there)
        return Neighbours(self.precision(w), recall, self.density(w), coverage, self.k, len(self.real), n_fake, wanted)

    def curve(
        self,
        weights: Array,
        *,
        size: Any = None,
        draws: int = 10,
        seed: int = 0,
        without: Callable[[Floats], Array] | None = None,
    ) -> NeighbourCurve:
        """Return all four at several budgets, and without each group of points.

        The g-th group of real points and the g-th of fakes are left out together. The radii become those of the points
        that stay, and of each draw stays what is not in the group.

        Args:
            weights: Probability that each fake is kept, `(budgets, n_fake)`, up to a factor.
            size: How many fakes recall and coverage are for, a number or one per budget; see `neighbours`.
            draws: How many draws of that size. All budgets are drawn with the same seeds: they differ by less.
            seed: Of the draws.
            without: Maps who stays, bools `(n_fake,)`, to the weights solved for without the others, `(budgets,
                n_fake)`. Where weights come from the pool itself, as min(c r, 1) does, that is part of the error of
                precision and density; of recall and coverage, whose size is fixed, it is neglected.
        """
        lines = np.atleast_2d(as_weights(weights, len(self.fake), many=True))
        sizes = _sizes(lines, size, self.k)
        drawn = [list(_drawn(line, one, draws, seed)) for line, one in zip(lines, sizes, strict=True)]
        both = np.array([self._recall_and_coverage(some) for some in drawn])
        left = np.empty((4, len(self.left), len(lines)))
        for g in range(len(self.left)):
            stay = self.group_fake != g
            again = lines if without is None else np.atleast_2d(as_weights(without(stay), len(stay), many=True))
            balls = self.crossing.left_out[g]
            left[0, g], left[2, g] = _mean(balls > 0, again * stay), _mean(balls / self.k, again * stay)
            for b, some in enumerate(drawn):
                rest = [counts * stay for counts in some]
                if min(int(counts.sum()) for counts in rest) <= self.k:
                    raise InputError(f"size must leave more than k = {self.k} fakes without a group, got {sizes[b]}")
                left[1, g, b], left[3, g, b] = self._recall_and_coverage(rest, g)
        every = (self.precision(lines), both[:, 0], self.density(lines), both[:, 1])
        most = (1.0, 1.0, np.inf, 1.0)
        precision, recall, density, coverage = (
            Jackknife(value, left[i], len(self.real), np.array(sizes), (0.0, most[i])) for i, value in enumerate(every)
        )
        return NeighbourCurve(
            precision, recall, density, coverage, self.k, len(self.real), len(self.fake), tuple(sizes)
        )

    def _recall_and_coverage(self, drawn: list[Ints], g: int | None = None) -> tuple[float, float]:
        """Return the means over draws, or over what stays of them without a group."""
        if g is None and len(drawn) == 1 and (drawn[0] == 1).all():
            return float(self.crossing.recalled.mean()), float(self.crossing.covered.mean())
        stay, radius = (slice(None), self.radius) if g is None else (self.group_real != g, self.left[g])
        recall = [float(self._recalled(counts)[stay].mean()) for counts in drawn]
        coverage = [float(self._covered(counts, radius)[stay].mean()) for counts in drawn]
        return float(np.mean(recall)), float(np.mean(coverage))

    def _recalled(self, counts: Ints) -> Floats:
        """Tell which real points are in the ball of a fake, if each fake is there so many times."""
        radius = _radii(self.fake, self.near_fake, self.k, counts)
        covers = self.crossing.covers
        found: Floats = np.any((counts[covers.who] > 0) & (covers.distance < radius[covers.who]), axis=1)
        # Beyond the list a fake may hold the point only if its ball is large compared with its reach.
        there = np.flatnonzero(counts)
        size = (np.square(radius[there].astype(np.float64)) + covers.error) / np.square(covers.reach[there])
        open_ = np.flatnonzero(~found & (covers.least < size.max()))
        if len(open_):
            large = there[size > covers.least[open_].min()]
            found[open_] = self._any_nearer(open_, large, radius[large])
        return found

    def _covered(self, counts: Ints, radius: Floats) -> Floats:
        """Tell which balls of real points hold a fake, if each fake is there so many times."""
        nearest = self.crossing.nearest
        found: Floats = np.any((counts[nearest.who] > 0) & (nearest.distance < radius[:, None]), axis=1)
        open_ = np.flatnonzero(~found & (radius > nearest.sure))
        if len(open_):
            found[open_] = self._any_nearer(open_, np.flatnonzero(counts), radius[open_][:, None])
        return found

    def _any_nearer(self, real: Ints, fake: Ints, than: Floats) -> Floats:
        """Tell which real points have one of these fakes nearer than a bound, by measuring again."""
        found = np.zeros(len(real), dtype=bool)
        than = np.broadcast_to(than, (len(real), len(fake)))
        for i in range(0, len(real), TILE):
            for j in range(0, len(fake), TILE):
                rows, columns = slice(i, i + TILE), slice(j, j + TILE)
                far = self.real.far_from(real[rows], self.fake, fake[columns]).astype(self.real.rounding)
                found[rows] |= np.any(far < than[rows, columns], axis=1)
        return found


def _checked(real: Any, fake: Any, k: Any) -> tuple[Array, Array, int]:
    real, fake, _ = both_features(real, fake)
    k = check_count(k, "k")
    for name, x in (("real", real), ("fake", fake)):
        if len(x) <= k:
            raise InputError(f"{name} must have at least k + 1 = {k + 1} points, got {len(x)}; lower k")
    return real, fake, k


def _radii(points: Points, near: Near, k: int, counts: Ints | None = None) -> Floats:
    """Return all radii; of points whose list is too short, by measuring all their distances again."""
    radius, doubtful = near.radii(k, counts)
    if not len(doubtful):
        return radius
    counts = np.ones(len(points), dtype=np.int64) if counts is None else counts
    radius, there = radius.copy(), np.flatnonzero(counts)
    rows = max(TILE * TILE // len(there), 1)
    for part in (doubtful[i : i + rows] for i in range(0, len(doubtful), rows)):
        far = points.far_from(part, points, there)
        far[part[:, None] == there] = -1.0  # itself comes first
        order = np.argsort(far, axis=1, kind="stable")
        passed = np.cumsum(counts[there][order], axis=1)
        place = np.argmax(passed > k, axis=1)  # its own copies and k others
        neighbour = there[np.take_along_axis(order, place[:, None], axis=1)[:, 0]]
        radius[part] = points.distances(part, points, neighbour)
    return radius


def _reach(near: Near) -> Floats:
    """Return how far each point knows its neighbours; above 0, so that distances can be divided by it."""
    last = near.distance[:, -1].astype(np.float64)
    return np.maximum(last, 1e-6 * (last.max() or 1.0))


def _mean(value: Floats, weights: Floats) -> Any:
    scaled = weights / weights.max(axis=-1, keepdims=True)
    found = np.clip(scaled @ value / scaled.sum(axis=-1), value.min(), value.max())  # beyond them only by rounding
    return float(found) if weights.ndim == 1 else found


def _size(weights: Floats, size: Any, k: int) -> int:
    """Return how many fakes recall and coverage are for."""
    available = int(np.count_nonzero(weights))
    if size is None:
        kept = round(float(np.sum(weights / weights.max())))
        if kept <= k:
            raise InputError(f"weights keep {kept} fakes, and k + 1 = {k + 1} are needed; lower k or say size=")
        return kept
    wanted = check_count(size, "size", k + 1)
    if wanted > available:
        raise InputError(f"size must be at most {available}, the number of fakes with weight above 0, got {wanted}")
    return wanted


def _sizes(lines: Floats, size: Any, k: int) -> list[int]:
    many = [size] * len(lines) if size is None or np.ndim(size) == 0 else list(size)
    if len(many) != len(lines):
        raise InputError(f"size must be one number or one for each of {len(lines)} budgets, got {len(many)}")
    return [_size(line, one, k) for line, one in zip(lines, many, strict=True)]


def _drawn(weights: Floats, size: int, draws: int, seed: int) -> Iterator[Ints]:
    """Draw so many fakes, again and again: who is there, as counts. All of them are drawn once."""
    draws, seed = check_count(draws, "draws"), check_seed(seed)
    with np.errstate(divide="ignore"):
        log_weight = np.log(weights)
    for draw in range(1 if size == len(weights) else draws):
        counts = np.zeros(len(weights), dtype=np.int64)
        counts[select(log_weight, size, seed=(seed * draws + draw) % 2**64)] = 1
        yield counts
