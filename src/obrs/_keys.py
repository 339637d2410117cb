"""Keys of rows, counted so that counts add up over files, processes and machines.

A row has the key log u(id) - log r (`draws.priority_key`), and the rows with the smallest keys are kept. A `Look` at
rows that are nowhere in memory counts the keys in cells, by the leading bits of the key as an integer, and holds the
rows as long as they are few. If there are more, a narrower look counts inside the cell in which the last key lies. The
result is a `Cut`: the first row of each group that is not kept.

References:
    | Priority Sampling for Estimation of Arbitrary Subset Sums (Duffield, Lund & Thorup, 2007)
"""

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from .errors import InputError

__all__ = ["Cut", "Look", "RatioCounts", "Sample", "order_keys"]

Array = np.ndarray[Any, Any]

_BITS = 22  # 2**22 cells in all, divided among the groups
_HELD = 1 << 20  # rows that a look holds at most
_SAMPLED = 1 << 18  # rows of a sample at most, and about half as many at least
_ODD = np.uint64(0x9E3779B97F4A7C15)
_WIDTH = 1 / 256  # of a cell of log r, in nats


def order_keys(key: Array) -> Array:
    """Return keys as unsigned integers in the same order.

    Example:
        >>> order_keys(np.array([-np.inf, -2.0, 0.0, 3.0, np.inf])).argsort()
        array([0, 1, 2, 3, 4])
    """
    bits = (key + 0.0).view(np.int64)  # -0.0 becomes 0.0
    flip = (bits >> 63).view(np.uint64)  # all bits of a negative number, and the sign of any other
    flip |= np.uint64(1 << 63)
    flip ^= bits.view(np.uint64)
    return flip


def _key_of(order: int) -> float:
    """Return the key that has this order; beyond those of numbers, an infinity."""
    order = min(max(order, _ENDS[0]), _ENDS[1])
    bits = order ^ (1 << 63) if order >> 63 else order ^ (2**64 - 1)
    return float(np.uint64(bits).view(np.float64))


_ENDS = tuple(int(order) for order in order_keys(np.array([-inf, inf])))


class Cut(NamedTuple):
    """Where taking stops: the first row of each group that is not kept, by key, at a tie by id, and then by place.

    Attributes:
        key, id, place: Of that row, one each per group; the key is +inf if all rows with r > 0 are kept.
    """

    key: Array
    id: Array
    place: Array

    def keeps(self, key: Array, id: Array, place: Array, group: Array | None = None) -> Array:
        """Tell which rows are kept; those with r = 0, whose key is +inf, never are."""
        at: Any = 0 if group is None else group
        kept = key < self.key[at]
        tied = np.flatnonzero((key == self.key[at]) & (key < inf))
        if len(tied):
            at, id, place = at if group is None else group[tied], id[tied], place[tied]
            kept[tied] = (id < self.id[at]) | ((id == self.id[at]) & (place < self.place[at]))
        return np.asarray(kept)


class Look:
    """One look: what rows cost, counted by group and cell of the key, and the rows themselves as long as they are few.

    Rows with r = 0 are counted apart. In every look the cell of a key is `(order_keys(key) - low) >> shift`. The cells
    are divided among the groups: as their number doubles, cells become twice as wide.

    Args:
        low, span: One each per group: the least order that is looked at, and the largest minus that.
        most: What is wanted of each group, if that is known: rows that lie beyond are dropped on the way.
    """

    def __init__(self, low: Sequence[int] = (0,), span: Sequence[int] = (2**64 - 1,), most: int | None = None) -> None:
        bits = _BITS - (len(low) - 1).bit_length()
        self.low, self.most = np.array(low, np.uint64), most
        self.shift = np.array([max(size.bit_length() - bits, 0) for size in span], np.uint64)
        self.least = np.array([_key_of(start) for start in low])
        self.largest = np.array([_key_of(start + size) for start, size in zip(low, span, strict=True)])
        self.counts, self.zero = np.zeros((len(low), 1 << bits), np.int64), np.zeros(len(low), np.int64)
        self.held: list[tuple[Array, ...]] | None = []

    def add(self, key: Array, id: Array, place: Array, group: Array | None = None, cost: Array | None = None) -> None:
        """Count rows; without `group` there is one, and without `cost` a row costs 1."""
        if group is not None:
            self._make_room(int(group.max(initial=0)) + 1)
        at: Any = 0 if group is None else group
        rows = [np.broadcast_to(column, key.shape) for column in (key, id, place, at, 1 if cost is None else cost)]
        inside = (key >= self.least[at]) & (key <= self.largest[at]) & (key < inf)
        if not inside.all():
            np.add.at(self.zero, rows[3][key == inf], rows[4][key == inf])
            rows = [column[inside] for column in rows]
            key, at = rows[0], at if group is None else rows[3]
        cell = ((order_keys(key) - self.low[at]) >> self.shift[at]).view(np.int64) + at * self.counts.shape[1]
        np.add.at(self.counts.reshape(-1), cell, 1 if cost is None else rows[4])
        if self.held is not None and len(key):
            self.held.append(tuple(rows))
            if sum(len(part[0]) for part in self.held) > _HELD:
                self._drop()

    def merge(self, other: "Look", groups: Sequence[int] | None = None) -> None:
        """Add another look at the same cells; `groups` are the numbers that its groups have here, if these differ."""
        groups = range(len(other.low)) if groups is None else groups
        size = max(len(self.low), len(other.low), *(group + 1 for group in groups))
        self._make_room(size)
        other._make_room(size)
        self.counts[list(groups)] += other.counts[: len(groups)]
        self.zero[list(groups)] += other.zero[: len(groups)]
        if self.held is None or other.held is None:
            self.held = None
            return
        self.held += [(*part[:3], np.asarray(groups)[part[3]], part[4]) for part in other.held]
        if sum(len(part[0]) for part in self.held) > _HELD:
            self._drop()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle has: of the cells those that are not empty."""
        flat = self.counts.reshape(-1)
        cells = np.flatnonzero(flat)
        return {**self.__dict__, "counts": (self.counts.shape, cells, flat[cells])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        shape, cells, counts = state["counts"]
        self.__dict__.update(state, counts=np.zeros(shape, np.int64))
        self.counts.reshape(-1)[cells] = counts

    def _make_room(self, groups: int) -> None:
        """Double the number of groups; only a first look, which has the whole range of keys, meets new ones."""
        while len(self.low) < groups:
            if self.low.any():
                raise InputError("a group is new since the first look: rows have changed; start again")
            if self.counts.shape[1] == 2:
                raise InputError(f"at most {len(self.low):,} groups can be told apart")
            half = self.counts.reshape(len(self.low), -1, 2).sum(axis=2)
            self.counts = np.concatenate([half, np.zeros_like(half)])
            self.zero = np.append(self.zero, np.zeros_like(self.zero))
            self.low, self.least = np.tile(self.low, 2), np.tile(self.least, 2)
            self.largest = np.append(self.largest, np.full_like(self.largest, inf))
            self.shift = np.tile(self.shift + np.uint64(1), 2)

    def _drop(self) -> None:
        """Drop rows beyond what is wanted; where that is not known, or not enough, hold none."""
        columns, self.held = self._rows(), None
        if self.most is not None:
            cell, _ = self._cells(np.full(len(self.low), self.most))
            ends = [((c + 1) << s) - 1 for c, s in zip(cell.tolist(), self.shift.tolist(), strict=True)]
            self.largest = np.minimum(self.largest, [_key_of(end) for end in ends])
            inside = columns[0] <= self.largest[columns[3]]
            if inside.sum() <= _HELD // 2:
                self.held = [tuple(column[inside] for column in columns)]

    def _rows(self) -> tuple[Array, ...]:
        """Return key, id, place, group and cost of the rows that are held."""
        nothing = (np.zeros(0), *(np.zeros(0, np.int64) for _ in range(4)))
        return tuple(map(np.concatenate, zip(nothing, *(self.held or []), strict=True)))

    def _cells(self, need: Array) -> tuple[Array, Array]:
        """Return the cell in which each group comes to cost more than its need, and what the cells before it cost."""
        total = np.cumsum(self.counts, axis=1)
        cell = np.sum(total <= need[:, None], axis=1)
        before = np.take_along_axis(total, np.maximum(cell - 1, 0)[:, None], axis=1)[:, 0]
        return cell, np.where(cell > 0, before, 0)

    def narrow(self, need: Array) -> tuple["Look", Array]:
        """Return a look inside the cell that matters of each group, and what is needed of that cell."""
        cell, before = self._cells(need)
        low, span = [], []
        for start, number, shift in zip(self.low.tolist(), cell.tolist(), self.shift.tolist(), strict=True):
            exceeds = number < self.counts.shape[1]  # else all of the group is kept, and no key matters
            if exceeds and not shift:
                raise InputError(f"more than {_HELD:,} rows share a few keys; make their ids unique")
            low.append(start + (number << shift) if exceeds else 2**64 - 1)
            span.append((1 << shift) - 1 if exceeds else 0)
        return Look(low, span), need - before

    def cut(self, need: Array) -> tuple[Cut, Array]:
        """Return where each group comes to cost more than its need, and the places of the rows before that.

        Both are found among the rows that are held; only those in the cell that matters are sorted.
        """
        key, id, place, group, cost = self._rows()
        cell, before = self._cells(need)
        own = ((order_keys(key) - self.low[group]) >> self.shift[group]).view(np.int64)
        inside = np.flatnonzero(own == cell[group])
        order = inside[np.lexsort((place[inside], id[inside], key[inside], group[inside]))]
        of = group[order]
        spent = np.concatenate([[0], np.cumsum(cost[order])])
        spent = spent[1:] - spent[np.searchsorted(of, np.arange(len(need)))][of] + before[of]
        over = spent > need[of]
        which, first = np.unique(of[over], return_index=True)
        at = np.flatnonzero(over)[first]
        rows, before_these = order[at], order[at - 1]
        if np.any((at > 0) & np.all([c[rows] == c[before_these] for c in (group, key, id, place)], axis=0)):
            raise InputError(
                "rows of one id and one score are tied for the last place; drop repeated rows, or change n"
            )
        cut = Cut(np.full(len(need), inf), np.zeros(len(need), np.int64), np.zeros(len(need), np.int64))
        cut.key[which], cut.id[which], cut.place[which] = key[rows], id[rows], place[rows]
        return cut, np.sort(np.concatenate([place[own < cell[group]], place[order[~over]]]))


class Sample:
    """Rows whose id has a hash below a threshold, which falls as rows come: at most 2**18 of any number of rows.

    Args:
        most: How many rows at most, if less.
    """

    def __init__(self, most: int | None = None) -> None:
        self.threshold, self.most = 2**64 - 1, most or _SAMPLED
        self.parts: list[tuple[Array, ...]] = [(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0))]

    @property
    def columns(self) -> tuple[Array, ...]:
        """Hash, id and value of each row."""
        self.parts = [tuple(map(np.concatenate, zip(*self.parts, strict=True)))]
        return self.parts[0]

    def add(self, id: Array, value: Array) -> None:
        """Take those of these rows that belong to the sample."""
        hashed = id.view(np.uint64) * _ODD  # cheaper than to scramble, and even enough to choose a part
        chosen = np.flatnonzero(hashed <= np.uint64(self.threshold))
        if len(chosen):
            self._append(hashed[chosen], id[chosen], value[chosen])

    def merge(self, other: "Sample") -> None:
        """Add the sample of other rows, which may have another size; the larger size remains."""
        self.most = max(self.most, other.most)
        self._lower(min(self.threshold, other.threshold))
        self._append(*(column[other.columns[0] <= np.uint64(self.threshold)] for column in other.columns))

    def _append(self, *columns: Array) -> None:
        self.parts.append(columns)
        # The hash of id 0 is 0, below any threshold: many such rows are never few enough.
        while sum(len(part[0]) for part in self.parts) > self.most and self.threshold:
            self._lower(self.threshold // 2)

    def _lower(self, threshold: int) -> None:
        inside = self.columns[0] <= np.uint64(threshold)
        self.threshold, self.parts = threshold, [tuple(column[inside] for column in self.columns)]

    @property
    def complete(self) -> bool:
        """Whether it has all rows."""
        return self.threshold == 2**64 - 1


class RatioCounts:
    """Log-ratios counted in cells of 1/256 nat, each with its mean ratio: a profile of any number of rows.

    The mean is exact, and within a cell log r varies by at most 1/256: the KL of the profile is off by less than 1e-5.
    """

    def __init__(self) -> None:
        self.cells: Array = np.zeros(0)
        self.counts: Array = np.zeros(0)
        self.sums: Array = np.zeros(0)

    def add(self, log_ratio: Array) -> None:
        """Count log-ratios; those that are -inf have a cell of their own."""
        x = log_ratio[log_ratio > -inf]
        cell = np.floor(x / _WIDTH)
        counts, sums = np.ones_like(cell), np.exp(x - cell * _WIDTH)
        low = cell.min(initial=inf)
        if cell.max(initial=-inf) - low < len(x):  # where cells lie close, nothing needs to be sorted
            at = (cell - low).astype(np.int64)
            counts, sums = np.bincount(at), np.bincount(at, sums)
            some = np.flatnonzero(counts)
            cell, counts, sums = low + some, counts[some], sums[some]
        self._append(cell, counts, sums)
        if len(x) < len(log_ratio):
            self._append(np.array([-inf]), np.array([len(log_ratio) - len(x)]), np.zeros(1))

    def merge(self, other: "RatioCounts", groups: object = None) -> None:
        """Add the counts of other rows; groups do not matter here."""
        self._append(other.cells, other.counts, other.sums)

    def _append(self, cells: Array, counts: Array, sums: Array) -> None:
        self.cells, at = np.unique(np.append(self.cells, cells), return_inverse=True)
        self.counts = np.bincount(at, np.append(self.counts, counts))
        self.sums = np.bincount(at, np.append(self.sums, sums))

    def log_ratios(self) -> Array:
        """Return the log of the mean ratio of each cell."""
        with np.errstate(divide="ignore"):
            return self.cells * _WIDTH + np.log(self.sums / self.counts)
