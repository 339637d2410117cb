"""Distances between many points, a tile at a time: fast where that is clear enough, and exactly where it is not.

`nearness` is -|x - y|²/2 of all pairs of two tiles from one matrix product of centred points, in the precision of the
features. Its error is bounded by `Points.unit`, so a comparison with a threshold is either certain or made again by
`Points.distances`, in float64 from the differences. What is kept is therefore exact, at the speed of the product. Of
points in few dimensions all of it is in float64, which costs nothing there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_torch_array

from .._arrays import host_view, like, namespace
from ..types import Array

__all__ = ["Best", "Near", "Points", "Tile", "listed", "near_points", "nearness", "slices", "values"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

TILE = 1024  # points a side: with 2048 coordinates, a core's cache is used well and 30 MB hold all that is needed
_FEW_AXES = 256  # up to here float64 throughout
_LARGEST = 1e15  # squares of more leave the range of float32
_PAIRS = 1 << 18  # coordinates at a time where pairs are measured one by one: they stay in the cache


class Tile(NamedTuple):
    """Some points: centred, and half of their squared norms."""

    x: Array
    half: Array


@dataclass(frozen=True, eq=False)
class Points:
    """Points of a metric, as they came, and the centre that is taken off whenever a tile of them is used.

    Args:
        x: Features, shape `(n, dim)`, NumPy or torch.
        centre: A point in their middle, in the precision of the tiles.
        rounding: The NumPy dtype that distances are rounded to before they are compared: that of the features, so that
            what is the same distance to others is the same here.
    """

    x: Array
    centre: Array
    rounding: Any

    def __len__(self) -> int:
        return int(self.x.shape[0])

    @staticmethod
    def both(real: Array, fake: Array) -> "tuple[Points, Points]":
        """Return two sets of points with one centre, the mean of all."""
        xp = namespace(real)
        largest = max(float(xp.max(xp.abs(part))) for x in (real, fake) for part in _parts(x))
        exact = xp.float64 in (real.dtype, fake.dtype) or largest > _LARGEST
        wide = exact or real.shape[1] <= _FEW_AXES
        total = sum(xp.sum(xp.astype(part, xp.float64), axis=0) for x in (real, fake) for part in _parts(x))
        centre = xp.astype(total / (len(real) + len(fake)), xp.float64 if wide else xp.float32)
        rounding = np.float64 if exact else np.float32
        return Points(real, centre, rounding), Points(fake, centre, rounding)

    def tile(self, at: "slice | Ints", dtype: Any = None) -> Tile:
        """Return the points at these places, ready for `nearness`."""
        xp = namespace(self.x)
        dtype = self.centre.dtype if dtype is None else dtype
        part = xp.astype(self._take(at), dtype, copy=False) - xp.astype(self.centre, dtype, copy=False)
        return Tile(part, xp.linalg.vecdot(part, part) / 2)

    def distances(self, i: Ints, other: "Points", j: Ints) -> Floats:
        """Return the distances of pairs of points, from their differences in float64, rounded as the features are."""
        xp = namespace(self.x)
        found = np.empty(len(i), dtype=self.rounding)
        step = max(_PAIRS // self.x.shape[1], 1)
        for start in range(0, len(i), step):
            part = slice(start, start + step)
            apart = xp.astype(self._take(i[part]), xp.float64)  # a copy: it is changed below
            apart -= other._take(j[part])
            found[part] = values(xp.linalg.vecdot(apart, apart))
        return np.asarray(np.sqrt(found))

    def far_from(self, i: Ints, other: "Points", j: Ints) -> Floats:
        """Return the distances of all pairs of some points of both, in float64 by a matrix product."""
        wide = namespace(self.x).float64
        near = nearness(self.tile(i, wide), other.tile(j, wide))
        return np.asarray(np.sqrt(np.maximum(-2 * values(near), 0.0)))

    @property
    def unit(self) -> float:
        """What `nearness` may be off by, as a multiple of half the squared norms of both points.

        Rounding adds up to about `sqrt(dim)` units in the last place; twice that is some ten times what is seen. The
        other term is the rounding of the distances that it is compared with.
        """
        of_product = float(namespace(self.x).finfo(self.centre.dtype).eps)
        return 2 * sqrt(self.x.shape[1]) * of_product + 8 * float(np.finfo(self.rounding).eps)

    def _take(self, at: "slice | Ints") -> Array:
        return self.x[at if isinstance(at, slice) else like(at, self.x, dtype=namespace(self.x).int64)]


def nearness(a: Tile, b: Tile) -> Array:
    """Return -|x - y|²/2 of all pairs of two tiles."""
    near = a.x @ b.x.T
    near -= a.half[:, None]
    near -= b.half
    return near


def values(x: Array) -> Floats:
    """Return an array as NumPy memory."""
    found = host_view(x)
    assert found is not None, "metrics are not traced"
    return found


def _top(x: Array, m: int) -> tuple[Array, Array]:
    """Return the m largest of each row and their columns, in no order."""
    if is_torch_array(x):
        found = x.topk(m, dim=1, sorted=False)
        return found.values, found.indices
    columns = np.argpartition(x, -m, axis=1)[:, -m:]
    return np.take_along_axis(x, columns, axis=1), columns


class Best:
    """The m largest of each row of a wide matrix that comes in tiles."""

    def __init__(self, rows: int, m: int, as_in: Array) -> None:
        xp = namespace(as_in)
        self.m = m
        self.value = like(np.full((rows, m), -np.inf), as_in)
        self.column = like(np.zeros((rows, m), dtype=np.int64), as_in, dtype=xp.int64)

    def add(self, rows: "slice | Ints", tile: Array, columns: "slice | Ints", as_in: Array) -> None:
        """Look at a tile."""
        if not self.m:
            return
        xp = namespace(tile)
        if not isinstance(rows, slice):
            rows = like(rows, as_in, dtype=xp.int64)
        if isinstance(columns, slice):
            columns = np.arange(columns.start, columns.start + tile.shape[1])
        value, column = _top(tile, min(self.m, tile.shape[1]))
        column = like(columns, as_in, dtype=xp.int64)[column]
        value, column = (xp.concat(pair, axis=1) for pair in ((self.value[rows], value), (self.column[rows], column)))
        value, place = _top(value, self.m)
        self.value[rows], self.column[rows] = value, xp.take_along_axis(column, place, axis=1)


class Near(NamedTuple):
    """The nearest few of each point, by exact distance, ascending.

    Attributes:
        who: Which points they are, `(n, m)`.
        distance: How far they are, `(n, m)`.
        sure: `(n,)`: no other point is nearer than this.
    """

    who: Ints
    distance: Floats
    sure: Floats

    def radii(self, k: int, counts: Ints | None = None) -> tuple[Floats, Ints]:
        """Return the distance of each point to its k-th neighbour, and who has too few neighbours here to know it.

        Args:
            k: Which neighbour.
            counts: How often each point is there, `(n,)`: 0 for one that is left out, and copies are neighbours at
                distance 0. A point that is left out has no radius, and 0 stands for it. By default each is there once.
        """
        if counts is None:
            return self._checked(self.distance[:, k - 1], np.arange(len(self.who)))
        there = np.flatnonzero(counts)
        passed = np.cumsum(counts[self.who[there]], axis=1)
        need = k + 1 - counts[there]  # the others of its own copies come first
        place = np.sum(passed < need[:, None], axis=1)
        found = place < self.who.shape[1]
        radius = np.zeros(len(self.who), dtype=self.distance.dtype)
        radius[there[found]] = self.distance[there[found], place[found]]
        radius[there[need <= 0]] = 0.0
        radius, doubtful = self._checked(radius, there)
        return radius, np.union1d(doubtful, there[~found & (need > 0)])

    def _checked(self, radius: Floats, who: Ints) -> tuple[Floats, Ints]:
        return radius, who[radius[who] > self.sure[who]]


def near_points(points: Points, m: int) -> Near:
    """Return the m nearest others of each point; every pair is measured once."""
    n = len(points)
    best = Best(n, m, points.centre)
    half = np.empty(n)
    for rows in slices(n):
        a = points.tile(rows)
        half[rows] = values(a.half)
        for columns in slices(n, rows.start):
            own = columns == rows
            b = a if own else points.tile(columns)
            near = nearness(a, b)
            if own:
                diagonal = np.arange(near.shape[0])
                near[diagonal, diagonal] = -np.inf
            else:
                flipped = near.T if is_torch_array(near) else np.ascontiguousarray(near.T)
                best.add(columns, flipped, rows, points.centre)
            best.add(rows, near, columns, points.centre)
    return listed(points, points, best, points.unit * (half + half.max()), complete=m >= n - 1)


def listed(points: Points, others: Points, best: Best, error: Floats, *, complete: bool) -> Near:
    """Measure the nearest again, exactly, and sort them."""
    n, m = best.value.shape
    index = values(best.column)
    if not m:
        return Near(index, np.zeros((n, 0), dtype=points.rounding), np.zeros(n))
    distance = points.distances(np.repeat(np.arange(n), m), others, index.reshape(-1)).reshape(n, m)
    order = np.argsort(distance, axis=1, kind="stable")
    last = -values(best.value).min(axis=1).astype(np.float64)
    sure = np.full(n, np.inf) if complete else np.sqrt(np.maximum(2 * (last - error), 0.0))
    return Near(np.take_along_axis(index, order, axis=1), np.take_along_axis(distance, order, axis=1), sure)


def slices(n: int, start: int = 0) -> Iterator[slice]:
    """Cut n points into tiles."""
    for first in range(start, n, TILE):
        yield slice(first, min(first + TILE, n))


def _parts(x: Array) -> Iterator[Array]:
    return (x[part] for part in slices(x.shape[0]))
