"""Keys of rows, counted so that counts add up over files, processes and machines.

A row has the key log u(id) - log r (`draws.priority_key`), and the rows with the smallest keys are kept. A `Look` at
rows that are nowhere in memory counts the keys in cells, by the leading bits of the key as an integer, and holds the
rows as long as they are few. If there are more, a narrower look counts inside the cell in which the last key lies. The
result is a `Cut`: the first row of each group that is not kept.

References:
    | Priority Sampling for Estimation of Arbitrary Subset Sums (Duffield, Lund & Thorup, 2007)
"""

from math import inf
from typing import Any, NamedTuple

import numpy as np

from .errors import InputError

__all__ = ["Counts", "Cut", "Look", "RatioCounts", "Rows", "Sample", "order_keys"]

Array = np.ndarray[Any, Any]

_BITS = 22  # of a key, which tell its cell
_CELLS = 1 << 21  # that are counted at most, in all groups: cells become wider if there are many
_HELD = 1 << 20  # rows that a look holds at most
_PENDING = 1 << 20  # rows that wait to be counted together
_SAMPLED = 1 << 18  # rows of a sample at most
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


class Rows(NamedTuple):
    """What decides on rows, one each per row.

    Attributes:
        key, id: The key, +inf where r = 0, and the id.
        place: How many rows come before a row.
        group, cost: The number of its group, from 0, and what it costs, a whole number.
    """

    key: Array
    id: Array
    place: Array
    group: Array
    cost: Array

    def take(self, index: Array) -> "Rows":
        """Return some of the rows, by a mask or by their numbers."""
        return Rows(*(column[index] for column in self))


class Cut(NamedTuple):
    """Where taking stops: the first row of each group that is not kept, by key, at a tie by id, and then by place.

    Attributes:
        key, id, place: Of that row, one each per group; the key is +inf if all rows with r > 0 are kept.
    """

    key: Array
    id: Array
    place: Array

    def keeps(self, rows: Rows) -> Array:
        """Tell which rows are kept; those with r = 0 never are."""
        end = self.key[rows.group]
        kept = rows.key < end
        tied = np.flatnonzero((rows.key == end) & (end < inf))
        _, id, place, group, _ = rows.take(tied)
        kept[tied] = (id < self.id[group]) | ((id == self.id[group]) & (place < self.place[group]))
        return np.asarray(kept)


class Counts:
    """Sums of values by integer code, which add up over batches, files and workers."""

    def __init__(self, values: int = 1) -> None:
        self.parts: list[tuple[Array, ...]] = [(np.zeros(0, np.int64), *(np.zeros(0) for _ in range(values)))]
        self.pending = 0

    def add(self, code: Array, *values: Array) -> None:
        """Add values of rows."""
        self.parts.append((code, *values))
        self.pending += len(code)
        if self.pending > _PENDING:
            self.total()

    def total(self) -> tuple[Array, ...]:
        """Return the codes, in order, and the sums of each value."""
        if len(self.parts) > 1:
            code, *values = (np.concatenate(columns) for columns in zip(*self.parts, strict=True))
            low, high = (code.min(), code.max()) if len(code) else (0, 0)
            if high - low <= 4 * len(code):  # where codes lie close, nothing needs to be sorted
                at = code - low
                some = np.flatnonzero(np.bincount(at))
                code, sums = some + low, [np.bincount(at, value)[some] for value in values]
            else:
                code, at = np.unique(code, return_inverse=True)
                sums = [np.bincount(at, value) for value in values]
            self.parts, self.pending = [(code, *sums)], 0
        return self.parts[0]


class Look:
    """One look: what rows cost, counted by group and cell of the key, and the rows themselves as long as they are few.

    In every look the cell of a key is `(order_keys(key) - low) >> shift`. Rows with r = 0 are counted apart.

    Args:
        low: The least order that is looked at, one per group; None for a first look, at all.
        width: How many bits of the orders from there on are looked at.
        most: How much is wanted, if that is known and there are no groups: rows that lie beyond are dropped on the way.
    """

    def __init__(self, low: Array | None = None, width: int = 64, most: int | None = None) -> None:
        self.low, self.width, self.shift, self.most = low, width, max(width - _BITS, 0), most
        self.last = np.uint64(2**width - 1)
        self.counts, self.zero = Counts(), Counts()
        self.held: list[Rows] | None = []

    @property
    def bits(self) -> int:
        """How many bits the number of a cell has; above them stands the group."""
        return self.width - self.shift

    def _orders(self, rows: Rows) -> Array:
        order = order_keys(rows.key)
        return order if self.low is None else order - self.low[rows.group]  # what is less becomes the largest

    def add(self, rows: Rows) -> None:
        """Count rows."""
        order = self._orders(rows)
        inside = (order <= self.last) & (rows.key < inf)
        if not inside.all():
            zero = rows.key == inf
            self.zero.add(rows.group[zero], rows.cost[zero])
            rows, order = rows.take(inside), order[inside]
        self.counts.add((rows.group << self.bits) | (order >> np.uint64(self.shift)).view(np.int64), rows.cost)
        while len(self.counts.parts[0][0]) > _CELLS:
            self._widen(self.shift + 1)
        self._hold([rows])

    def merge(self, other: "Look", groups: Array) -> None:
        """Add another look at the same keys; `groups` are the numbers that its groups have here."""
        for look in (self, other):
            look._widen(max(self.shift, other.shift))
        (code, cost), (group, zero) = other.counts.total(), other.zero.total()
        self.counts.add((groups[code >> self.bits] << self.bits) | (code & ((1 << self.bits) - 1)), cost)
        self.zero.add(groups[group], zero)
        self.held = None if other.held is None else self.held
        self._hold([rows._replace(group=groups[rows.group]) for rows in other.held or []])

    def _widen(self, shift: int) -> None:
        """Make cells wider."""
        if shift == self.shift:
            return
        if shift > self.width - 2:
            raise InputError(f"at most {_CELLS // 2:,} groups can be told apart")
        code, cost = self.counts.total()
        self.counts = Counts()
        self.counts.add(code >> (shift - self.shift), cost)
        self.counts.total()
        self.shift = shift

    def _hold(self, parts: list[Rows]) -> None:
        """Hold rows. Of too many, drop those beyond what is wanted, or where that is not known all."""
        if self.held is None:
            return
        self.held += parts
        if sum(len(rows.key) for rows in self.held) > _HELD:
            rows, self.held = self._rows(), None
            if self.most is not None:
                cell, _ = self._find_cells(np.array([self.most]))
                self.last = np.uint64(min(((int(cell[0]) + 1) << self.shift) - 1, int(self.last)))
                rows = rows.take(self._orders(rows) <= self.last)
                self.held = [rows] if len(rows.key) <= _HELD // 2 else None

    def _rows(self) -> Rows:
        nothing = Rows(np.zeros(0), *(np.zeros(0, np.int64) for _ in range(4)))
        return Rows(*map(np.concatenate, zip(nothing, *(self.held or []), strict=True)))

    def sums(self, groups: int) -> Array:
        """Return what the rows of each group with r > 0 cost, and below that what those with r = 0 do."""
        (code, cost), (group, zero) = self.counts.total(), self.zero.total()
        return np.array([np.bincount(code >> self.bits, cost, groups), np.bincount(group, zero, groups)], np.int64)

    def _find_cells(self, need: Array) -> tuple[Array, Array]:
        """Return the cell in which each group comes to cost more than its need, and what the cells before it cost.

        For a group that never does, it is the first beyond all cells.
        """
        code, cost = self.counts.total()
        total, start = np.append(0, np.cumsum(cost)).astype(np.int64), np.arange(len(need)) << self.bits
        first, end = np.searchsorted(code, [start, start + (1 << self.bits)])
        at = np.minimum(np.searchsorted(total[1:], total[first] + need, side="right"), end)
        return np.where(at < end, np.append(code, 0)[at] - start, 1 << self.bits), total[at] - total[first]

    def narrow(self, need: Array) -> tuple["Look", Array]:
        """Return a look inside the cell that matters of each group, and what is needed of that cell."""
        cell, before = self._find_cells(need)
        if not self.shift:
            raise InputError(f"more than {_HELD:,} rows share a few keys; make their ids unique")
        low = (cell.astype(np.uint64) << np.uint64(self.shift)) + (np.uint64(0) if self.low is None else self.low)
        low[cell == 1 << self.bits] = 2**64 - 1  # all of the group is kept, and no key matters
        return Look(low, self.shift), need - before

    def cut(self, need: Array) -> tuple[Cut, Array]:
        """Return where each group comes to cost more than its need, and the places of the rows before that.

        Both are found among the rows that are held; only those in the cell that matters are sorted.
        """
        rows = self._rows()
        cell, before = self._find_cells(need)
        own = (self._orders(rows) >> np.uint64(self.shift)).view(np.int64)
        inside = rows.take(own == cell[rows.group])
        inside = inside.take(np.lexsort((inside.place, inside.id, inside.key, inside.group)))
        group, spent = inside.group, np.append(0, np.cumsum(inside.cost))
        spent = spent[1:] - spent[np.searchsorted(group, np.arange(len(need)))][group] + before[group]
        over = np.flatnonzero(spent > need[group])
        which, first = np.unique(group[over], return_index=True)
        last, previous = (inside.take(over[first] - back) for back in (0, 1))
        if np.any((over[first] > 0) & np.all([a == b for a, b in zip(last[:4], previous[:4], strict=True)], axis=0)):
            raise InputError("rows of one id and score are tied for the last place; drop repeated rows, or change n")
        cut = Cut(np.full(len(need), inf), *np.zeros((2, len(need)), np.int64))
        cut.key[which], cut.id[which], cut.place[which] = last[:3]
        return cut, np.sort(np.append(rows.place[own < cell[rows.group]], np.delete(inside.place, over)))


class Sample:
    """The rows whose ids have the smallest hashes: all rows up to 2**18, and at least half of that of more.

    Args:
        most: How many rows at most, if less.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most, self.threshold = most or _SAMPLED, np.uint64(2**64 - 1)
        self.parts = [(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0))]

    @property
    def complete(self) -> bool:
        """Whether it has all rows."""
        return bool(self.threshold == np.uint64(2**64 - 1))

    @property
    def columns(self) -> tuple[Array, Array, Array]:
        """Hash, id and value of each row."""
        hashed, id, value = (np.concatenate(columns) for columns in zip(*self.parts, strict=True))
        self.parts = [(hashed, id, value)]
        return self.parts[0]

    def add(self, id: Array, value: Array) -> None:
        """Take those of these rows that belong to the sample."""
        self._take(id.view(np.uint64) * _ODD, id, value)  # even enough to choose a part

    def merge(self, other: "Sample") -> None:
        """Add the sample of other rows, which may have another size; the larger size remains."""
        self.most, self.threshold = max(self.most, other.most), min(self.threshold, other.threshold)
        self.parts, parts = [], [*self.parts, *other.parts]
        for part in parts:
            self._take(*part)

    def _take(self, *columns: Array) -> None:
        inside = np.flatnonzero(columns[0] <= self.threshold)
        self.parts.append(tuple(column[inside] for column in columns))  # type: ignore[arg-type]
        if sum(len(part[0]) for part in self.parts) > self.most:
            columns = self.columns
            self.threshold = np.partition(columns[0], self.most // 2)[self.most // 2]
            inside = np.flatnonzero(columns[0] <= self.threshold)[: self.most]  # of one id there may be any number
            self.parts = [tuple(column[inside] for column in columns)]  # type: ignore[list-item]


class RatioCounts:
    """Log-ratios counted in cells of 1/256 nat, each with its mean ratio: a profile of any number of rows.

    The mean is exact, and within a cell log r varies by at most 1/256: the KL of the profile is off by less than 1e-5.
    """

    def __init__(self) -> None:
        self.counts, self.zero = Counts(2), 0

    def add(self, log_ratio: Array) -> None:
        """Count log-ratios; those that are -inf apart."""
        x = log_ratio[log_ratio > -inf]
        cell = np.floor(x / _WIDTH)
        self.counts.add(cell.astype(np.int64), np.ones_like(x), np.exp(x - cell * _WIDTH))
        self.zero += len(log_ratio) - len(x)

    def merge(self, other: "RatioCounts", groups: object = None) -> None:
        """Add the counts of other rows; groups do not matter here."""
        self.counts.add(*other.counts.total())
        self.zero += other.zero

    def total(self) -> tuple[Array, Array]:
        """Return the log of the mean ratio of each cell, and how many rows it has; the last has those with r = 0."""
        cell, count, ratio = self.counts.total()
        return np.append(cell * _WIDTH + np.log(ratio / count), -inf), np.append(count, self.zero)
