"""Who is in whose ball: one pass over the distances between real and fake, from which all else is read."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._arrays import like, namespace
from ..types import Array
from ._distances import Best, Near, Points, Tile, listed, nearness, slices, values

__all__ = ["Covers", "Crossing", "cross"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]


class Covers(NamedTuple):
    """For each real point the fakes whose balls are the most likely to hold it, whichever fakes are drawn.

    They are those with the smallest distance in units of `reach`, the distance of the fake to the last neighbour that
    is known of it.

    Attributes:
        who: Which fakes they are, `(n_real, m)`.
        distance: How far they are, `(n_real, m)`.
        least: `(n_real,)`: the squared distance to any other, in units of its squared reach, is at least this.
        reach: `(n_fake,)`.
        error: What a squared distance may be off by in `least`.
    """

    who: Ints
    distance: Floats
    least: Floats
    reach: Floats
    error: float


@dataclass(frozen=True, eq=False)
class Crossing:
    """What one pass over the distances between real and fake leaves.

    Attributes:
        balls: How many balls of real points hold each fake, `(n_fake,)`.
        left_out: The same after each group of real points is left out, `(groups, n_fake)`.
        recalled: Whether a ball of a fake holds the real point, `(n_real,)`.
        covered: Whether the ball of the real point holds a fake, `(n_real,)`.
        nearest: The nearest fakes of each real point.
        covers: The fakes whose balls may hold each real point.
    """

    balls: Ints
    left_out: Ints
    recalled: Floats
    covered: Floats
    nearest: Near
    covers: Covers


def cross(
    real: Points, fake: Points, radius: Floats, fake_radius: Floats, *, reach: Floats, m: int, group: Ints, left: Floats
) -> Crossing:
    """Compare all distances between real and fake with the radii of both.

    Args:
        real, fake: The points.
        radius, fake_radius: Radii of the balls of each.
        reach: How far each fake knows its neighbours, above 0.
        m: How many fakes to list for each real point.
        group: The group of each real point.
        left: Radii of the real points without each group, `(groups, n_real)`; 0 for those that are left out.
    """
    n_real, n_fake, count = len(real), len(fake), len(left)
    m = min(m, n_fake)
    inside_of, extra = np.zeros((max(count, 1), n_fake), dtype=np.int64), np.zeros((count, n_fake), dtype=np.int64)
    recalled, covered = np.zeros(n_real, dtype=bool), np.zeros(n_real, dtype=bool)
    nearest, covering = Best(n_real, m, real.centre), Best(n_real, m, real.centre)
    outer = left.max(axis=0) if count else radius
    half, half_fake = np.empty(n_real), np.empty(n_fake)
    for g, rows in _by_group(group, count):
        a = real.tile(rows)
        half[rows] = values(a.half)
        for columns in slices(n_fake):
            b = fake.tile(columns)
            half_fake[columns] = values(b.half)
            near = nearness(a, b)
            xp, pairs = namespace(near), _Pairs(real, rows, fake, columns)
            held = _inside(near, a, b, fake_radius[columns], pairs, axis=1)
            recalled[rows] |= values(xp.any(held, axis=1))
            inside = _inside(near, a, b, radius[rows], pairs, axis=0)
            covered[rows] |= values(xp.any(inside, axis=1))
            inside_of[g, columns] += values(xp.sum(inside, axis=0))
            if count:
                _shell(extra[:, columns], near, inside, outer[rows], left[:, rows])
            if m:
                nearest.add(rows, near, columns, real.centre)
                covering.add(rows, near / like(np.square(reach[columns]) / 2, near), columns, real.centre)
    error = real.unit * (half + half_fake.max())
    balls: Ints = inside_of.sum(axis=0)
    return Crossing(
        balls,
        balls - inside_of + extra if count else extra,
        recalled,
        covered,
        listed(real, fake, nearest, error, complete=m == n_fake),
        _covers(real, fake, covering, reach, 2 * float(error.max()), complete=m == n_fake),
    )


def _by_group(group: Ints, count: int) -> Any:
    """Cut the real points into tiles of one group each; one group if there are none to leave out."""
    if not count:
        yield from ((0, part) for part in slices(len(group)))
        return
    for g in range(count):
        members = np.flatnonzero(group == g)
        yield from ((g, members[part]) for part in slices(len(members)))


def _inside(near: Array, a: Tile, b: Tile, radius: Floats, pairs: Any, *, axis: int) -> Array:
    """Tell which pairs are in the balls of the points along an axis; what is too close to call is measured exactly."""
    xp = namespace(near)
    bound = like(-np.square(radius.astype(np.float64)) / 2, near)
    error = pairs.unit * (a.half + xp.max(b.half) if axis == 0 else b.half + xp.max(a.half))
    sure = near > xp.expand_dims(bound + error, axis=1 - axis)
    close = near > xp.expand_dims(bound - error, axis=1 - axis)
    close ^= sure
    if bool(xp.any(close)):
        i, j = _where(close)
        within = pairs.distances(values(i), values(j)) < radius[values((i, j)[axis])]
        sure[i, j] = like(within, sure)
    return sure


class _Pairs(NamedTuple):
    """The pairs of two tiles."""

    real: Points
    rows: "slice | Ints"
    fake: Points
    columns: slice

    @property
    def unit(self) -> float:
        return self.real.unit

    def distances(self, i: Ints, j: Ints) -> Floats:
        """Return the exact distances of pairs by their places in the tile."""
        rows = i + self.rows.start if isinstance(self.rows, slice) else self.rows[i]
        return self.real.distances(rows, self.fake, j + self.columns.start)


def _where(mask: Array) -> tuple[Array, Array]:
    """Return rows and columns of what is true; over one axis it is found much faster than over two."""
    (flat,) = namespace(mask).nonzero(mask.reshape(-1))
    return flat // mask.shape[1], flat % mask.shape[1]


def _shell(extra: Ints, near: Array, inside: Array, outer: Floats, left: Floats) -> None:
    """Count the pairs that are in a ball only after a group is left out, since the ball has grown."""
    shell = (near > like(-np.square(outer.astype(np.float64)) / 2, near)[:, None]) & ~inside
    i, j = _where(shell)
    distance = np.sqrt(np.maximum(-2 * values(near[i, j]), 0.0))
    i, j = values(i), values(j)
    for g in range(len(left)):
        extra[g] += np.bincount(j[distance < left[g, i]], minlength=extra.shape[1])


def _covers(real: Points, fake: Points, best: Best, reach: Floats, error: float, *, complete: bool) -> Covers:
    """Measure the listed pairs exactly."""
    n, m = best.value.shape
    index = values(best.column)
    distance = real.distances(np.repeat(np.arange(n), m), fake, index.reshape(-1)).reshape(n, m)
    least = -values(best.value).min(axis=1, initial=0.0).astype(np.float64) if not complete else np.full(n, np.inf)
    return Covers(index, distance, least, reach, error)
