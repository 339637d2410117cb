"""Precision, recall, density and coverage by nearest neighbours, for one set of fakes or for every budget of a pool.

A ball around each point reaches to its k-th nearest neighbour of its own kind. Precision is the share of the fakes in
some ball of a real point, recall the share of the real points in some ball of a fake, density how many balls of real
points hold a fake, over k, and coverage the share of the balls of real points that hold a fake.

The first and the third are means over fakes, so a pool of proposals with inclusion probabilities gives them for every
budget by weighted means. The other two depend on *how many* fakes there are: fewer fakes have larger balls, and fewer
of them. They are means over draws of so many fakes from the pool.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._inputs import check_count
from ..errors import InputError
from ..selection import select
from ..types import Array
from ._cross import Crossing, cross
from ._distances import TILE, Near, Points, near_points
from ._inputs import as_counts, as_features, as_weights, same_dimension

__all__ = ["Neighbourhood", "Neighbours", "neighbours"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

_LEAST_GROUPS = 20
_SPARE = 4  # neighbours beyond the k-th: enough to be sure of it
_MOST_LISTED = 128  # neighbours of a point that are kept for draws; if one needs more, its row is measured again


class Neighbours(NamedTuple):
    """What `neighbours` finds.

    Attributes:
        precision: Share of the fakes within the ball of a real point.
        recall: Share of the real points within the ball of a fake.
        density: Mean number of balls of real points that hold a fake, over k. Above 1 where fakes crowd.
        coverage: Share of the balls of real points that hold a fake.
        k: Whose distance is the radius of a ball.
        n_real: Number of real points.
        n_fake: Number of fakes, repeats included.
        size: How many fakes recall and coverage are for.
    """

    precision: Any
    recall: Any
    density: Any
    coverage: Any
    k: int
    n_real: int
    n_fake: int
    size: Any


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
        >>> real, fake = rng.standard_normal((500, 8)), 0.8 * rng.standard_normal((500, 8))
        >>> found = neighbours(real=real, fake=fake)
        >>> [round(x, 3) for x in (found.precision, found.recall, found.density, found.coverage)]
        [0.954, 0.636, 1.896, 0.942]
        >>> log_ratio = np.square(fake).sum(1) * (0.8**-2 - 1) / 2  # up to a constant
        >>> found = neighbours(real=real, fake=fake, weights=np.minimum(np.exp(log_ratio - 2), 1.0))
        >>> found.size, round(found.precision, 3), round(found.recall, 3)
        (327, 0.937, 0.664)

    References:
        | Improved Precision and Recall Metric for Assessing Generative Models (Kynkäänniemi et al., 2019)
        | Reliable Fidelity and Diversity Metrics for Generative Models (Naeem et al., 2020)
    """
    fake = as_features(fake, "fake")
    wanted = None if counts is not None else _size(as_weights(weights, len(fake)), size, check_count(k, "k"))
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
        >>> real, fake = rng.standard_normal((400, 8)), rng.standard_normal((1000, 8)) + 0.5
        >>> log_ratio = 8 * 0.5**2 / 2 - 0.5 * fake.sum(1)
        >>> weights = np.minimum(np.exp(log_ratio - np.array([[-9.0], [0.0], [1.0]])), 1.0)  # of three budgets
        >>> found = Neighbourhood.of(real=real, fake=fake, size=100, groups=20)
        >>> found.precision(weights).round(3)
        array([0.663, 0.754, 0.816])
        >>> found.jackknife(weights, size=100).recall.shape
        (20, 3)
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
        real, fake = as_features(real, "real"), as_features(fake, "fake")
        same_dimension(real, fake)
        k = check_count(k, "k")
        for name, x in (("real", real), ("fake", fake)):
            if len(x) <= k:
                raise InputError(f"{name} must have at least k + 1 = {k + 1} points, got {len(x)}; lower k")
        groups = 0 if groups is None else _groups(groups, min(len(real), len(fake)), k)
        share = 1.0 if size is None else min(check_count(size, "size", k + 1) / len(fake), 1.0)
        # The k-th that is drawn is the (k / share)-th or so of all; four standard deviations more are seldom exceeded.
        deep = 0 if share == 1 else int((k + 4 * np.sqrt(k)) / share)
        spare = k + _SPARE + (k if groups else 0)
        wide = min(max(16, int(4 / share)), _MOST_LISTED // 2) if groups or share < 1 else 0

        points, fakes = Points.both(real, fake)
        near_real = near_points(points, min(spare, len(real) - 1))
        near_fake = near_points(fakes, min(max(spare, min(deep, _MOST_LISTED)), len(fake) - 1))
        radius = _radii(points, near_real, k)
        group_real, group_fake = (_labels(n, groups, seed + i) for i, n in enumerate((len(real), len(fake))))
        left = np.zeros((groups, len(real)), dtype=radius.dtype)
        for g in range(groups):
            left[g] = _radii(points, near_real, k, (group_real != g).astype(np.int64))
        crossing = cross(
            points,
            fakes,
            radius,
            _radii(fakes, near_fake, k),
            reach=near_fake.distance[:, -1],
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
        size: Any = None,
        draws: int = 10,
        seed: int = 0,
    ) -> Neighbours:
        """Return all four, with one value per budget if there is one line of weights per budget.

        Args:
            weights: Probability that each fake is kept, `(n,)` or `(budgets, n)`, up to a factor.
            counts: How often each fake is there, `(n,)`.
            size: How many fakes recall and coverage are for, a number or one per budget; see `neighbours`.
            draws: How many draws of that size.
            seed: Of the draws. Budgets are drawn with the same seeds, so that their differences vary little.
        """
        n = len(self.fake)
        facts = {"k": self.k, "n_real": len(self.real), "n_fake": n}
        if counts is not None:
            repeats = self._repeats(weights, counts, size)
            return Neighbours(
                precision=self.precision(repeats),
                recall=float(self._recalled(repeats).mean()),
                density=self.density(repeats),
                coverage=float(self._covered(repeats, self.radius).mean()),
                size=int(repeats.sum()),
                **(facts | {"n_fake": int(repeats.sum())}),
            )
        w = as_weights(weights, n, many=True)
        lines = np.atleast_2d(w)
        sizes = _sizes(lines, size, self.k)
        recall, coverage = np.empty((2, len(lines)))
        for b, (line, m) in enumerate(zip(lines, sizes, strict=True)):
            if m == n:
                recall[b], coverage[b] = self.crossing.recalled.mean(), self.crossing.covered.mean()
                continue
            drawn = list(_drawn(line, m, draws, seed))
            recall[b] = np.mean([self._recalled(c).mean() for c in drawn])
            coverage[b] = np.mean([self._covered(c, self.radius).mean() for c in drawn])
        if w.ndim == 1:
            return Neighbours(
                self.precision(w), float(recall[0]), self.density(w), float(coverage[0]), **facts, size=sizes[0]
            )
        return Neighbours(self.precision(w), recall, self.density(w), coverage, **facts, size=np.array(sizes))

    def jackknife(
        self, weights: Array | None = None, *, size: Any = None, draws: int = 10, seed: int = 0
    ) -> Neighbours:
        """Return all four with each group of points left out in turn, of real and fake at once: `(groups, budgets)`.

        Real and fake are split at random into groups, and the g-th of each are left out together: the radii become
        those of the points that stay, and of each draw stays what is not in the group. No point is ever repeated: a
        bootstrap has copies at distance 0, which shrink the balls. `jackknife_interval` makes intervals, of a value or
        of a difference of budgets, as all columns leave out the same points.

        Args:
            weights: Probability that each fake is kept, `(n,)` or `(budgets, n)`.
            size: How many fakes recall and coverage are for, a number or one per budget.
            draws: How many draws of that size.
            seed: Of the draws; use that of `scores`.
        """
        groups = len(self.left)
        if not groups:
            raise InputError("there are no groups to leave out; make the Neighbourhood with groups=20 or more")
        lines = np.atleast_2d(as_weights(weights, len(self.fake), many=True))
        sizes = _sizes(lines, size, self.k)
        drawn = [list(_drawn(line, m, draws, seed)) for line, m in zip(lines, sizes, strict=True)]
        precision, recall, density, coverage = np.empty((4, groups, len(lines)))
        for g in range(groups):
            stay, stay_real = self.group_fake != g, self.group_real != g
            balls = self.crossing.left_out[g]
            precision[g], density[g] = _mean(balls > 0, lines * stay), _mean(balls / self.k, lines * stay)
            for b, some in enumerate(drawn):
                rest = [c * stay for c in some]
                if min(c.sum() for c in rest) <= self.k:
                    raise InputError(f"size must leave more than k = {self.k} fakes without a group, got {sizes[b]}")
                recall[g, b] = np.mean([self._recalled(c)[stay_real].mean() for c in rest])
                coverage[g, b] = np.mean([self._covered(c, self.left[g])[stay_real].mean() for c in rest])
        facts = {"k": self.k, "n_real": len(self.real), "n_fake": len(self.fake), "size": np.array(sizes)}
        return Neighbours(precision, recall, density, coverage, **facts)

    def _repeats(self, weights: Any, counts: Any, size: Any) -> Ints:
        if weights is not None or size is not None:
            raise InputError("counts are the sample as it is: leave out weights and size")
        repeats = as_counts(counts, len(self.fake)).astype(np.int64)
        if repeats.sum() <= self.k:
            raise InputError(f"counts must sum to at least k + 1 = {self.k + 1}, got {repeats.sum()}; lower k")
        return repeats

    def _recalled(self, counts: Ints) -> Floats:
        """Tell which real points are in the ball of a fake, if each fake is there so many times."""
        radius = _radii(self.fake, self.near_fake, self.k, counts)
        covers = self.crossing.covers
        found: Floats = np.any((counts[covers.index] > 0) & (covers.distance < radius[covers.index]), axis=1)
        # Beyond the list a fake may hold the point only if its ball is large compared with its reach.
        there = np.flatnonzero(counts)
        reach = np.maximum(np.square(covers.reach[there].astype(np.float64)), np.finfo(np.float32).tiny)
        size = (np.square(radius[there].astype(np.float64)) + covers.error) / reach
        open_ = np.flatnonzero(~found & (covers.least < size.max()))
        if len(open_):
            large = there[size > covers.least[open_].min()]
            found[open_] = self._any_nearer(open_, large, radius[large])
        return found

    def _covered(self, counts: Ints, radius: Floats) -> Floats:
        """Tell which balls of real points hold a fake, if each fake is there so many times."""
        nearest = self.crossing.nearest
        found: Floats = np.any((counts[nearest.index] > 0) & (nearest.distance < radius[:, None]), axis=1)
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


def _mean(value: Floats, weights: Floats) -> Any:
    scaled = weights / weights.max(axis=-1, keepdims=True)
    found = scaled @ value / scaled.sum(axis=-1)
    return float(found) if weights.ndim == 1 else found


def _size(weights: Floats, size: Any, k: int) -> int:
    """Return how many fakes recall and coverage are for."""
    available = int(np.count_nonzero(weights))
    if size is None:
        kept = int(round(float(np.sum(weights / weights.max()))))
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


def _drawn(weights: Floats, size: int, draws: int, seed: int) -> Any:
    """Draw so many fakes, again and again: who is there, as counts. All of them are drawn once."""
    draws = check_count(draws, "draws")
    with np.errstate(divide="ignore"):
        log_weight = np.log(weights)
    for draw in range(1 if size == len(weights) else draws):
        counts = np.zeros(len(weights), dtype=np.int64)
        counts[select(log_weight, size, seed=(seed * draws + draw) % 2**64)] = 1
        yield counts


def _groups(groups: Any, n: int, k: int) -> int:
    count = check_count(groups, "groups", _LEAST_GROUPS)
    if n - -(-n // count) <= k or n < count:
        raise InputError(f"groups must leave more than k = {k} of the {n} points when one is left out, got {count}")
    return count


def _labels(n: int, groups: int, seed: int) -> Ints:
    """Split n points at random into groups of nearly the same size."""
    if not groups:
        return np.zeros(n, dtype=np.intp)
    labels = np.empty(n, dtype=np.intp)
    labels[np.random.default_rng((seed, 2**33)).permutation(n)] = np.arange(n) % groups
    return labels
