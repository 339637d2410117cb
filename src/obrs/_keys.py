"""Keys of rows, counted so that counts add up over files, processes and machines.

A row has the key log u(id) - log r (`draws.priority_key`), and the rows with the smallest keys are kept. `KeyCounts` of
rows that are nowhere in memory count the keys in cells, by the leading bits of the key as an integer, and hold the rows
as long as they are few. If there are more, a second pass counts inside the cell in which the last key lies. The result
is a `Threshold`: the first row of each group that is not kept.

References:
    | Priority Sampling for Estimation of Arbitrary Subset Sums (Duffield, Lund & Thorup, 2007)
"""

from math import inf
from typing import Any, NamedTuple

import numpy as np

from .draws import scramble
from .errors import InputError

__all__ = ["Counts", "KeyCounts", "Rows", "Sample", "Threshold", "count_ratios", "mean_ratios", "order_keys"]

Array = np.ndarray[Any, Any]

_BITS = 22  # of a key, which are its cell
_CELL = (1 << _BITS) - 1  # the bits of a cell; above them stands the group
_CELLS = 1 << 21  # that are counted at most, in all groups: cells become wider if there are many
_HELD = 1 << 20  # rows that are held at most
_PENDING = 1 << 20  # rows that wait to be counted together
_SAMPLED = 1 << 18  # rows of a sample at most
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


_ZERO = order_keys(np.array([inf]))[0]  # of rows with r = 0: more than any other


class Rows(NamedTuple):
    """Arrays with one entry per row, by which rows are ordered and counted.

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


class Threshold(NamedTuple):
    """The first row of each group that is not kept, by key, at a tie by id, and then by place.

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
    """Sums of two values by integer code, which add up over batches, files and workers."""

    def __init__(self) -> None:
        self.parts: list[tuple[Array, ...]] = [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))]
        self.pending = 0

    def add(self, code: Array, *values: Array) -> None:
        """Add values of rows."""
        self.parts.append((code, *values))
        self.pending += len(code)
        if self.pending > _PENDING:
            self.total()

    def merge(self, other: "Counts", groups: Any = None) -> None:
        """Add what was counted of other rows; their groups do not matter."""
        self.add(*other.total())

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


class KeyCounts:
    """How many rows there are, and what they cost, by group and cell of the key; and the rows as long as they are few.

    A cell is `(order_keys(key) - low) >> shift`, of 22 bits, of which the last few are 0 if cells had to become wider.

    Args:
        low: The least order that is counted, one per group; None for a first pass, over all.
        width: How many bits of the orders from there on are counted.
        most: How much is wanted, if that is known and there are no groups: rows that lie beyond are dropped on the way.
        before: How many rows are kept of smaller keys, and what they cost.
    """

    def __init__(
        self, low: Array | None = None, width: int = 64, most: int | None = None, before: Any = (0, 0)
    ) -> None:
        self.low, self.most, self.before = low, most, np.array(before)
        self.shift, self.wider, self.last = max(width - _BITS, 0), 0, np.uint64(2**width - 1)
        self.counts = Counts()
        self.held: list[Rows] | None = [Rows(np.zeros(0), *np.zeros((4, 0), np.int64))]

    def _cells(self, rows: Rows) -> tuple[Array, Array]:
        """Return the cells of rows, and whether they are counted here."""
        order = order_keys(rows.key)
        order = order if self.low is None else order - self.low[rows.group]  # what is less becomes the largest
        return (order >> np.uint64(self.shift)).view(np.int64) >> self.wider << self.wider, order <= self.last

    @property
    def _zero(self) -> int:
        """The cell of rows with r = 0; in a later pass, where they are not counted, one beyond all."""
        return int(_ZERO) >> self.shift >> self.wider << self.wider if self.low is None else 1 << _BITS

    def add(self, rows: Rows) -> None:
        """Count rows."""
        cell, inside = self._cells(rows)
        if not inside.all():
            rows, cell = rows.take(inside), cell[inside]
        self._count((rows.group << _BITS) | cell, np.ones(len(cell)), rows.cost)
        self._hold([rows])

    def merge(self, other: "KeyCounts", groups: Array) -> None:
        """Add what was counted of other rows in the same pass; `groups` are the numbers that their groups have here."""
        for counts in (self, other):
            counts._widen(max(self.wider, other.wider))
        code, *sums = other.counts.total()
        self._count((groups[code >> _BITS] << _BITS) | (code & _CELL), *sums)
        self.held = None if other.held is None else self.held
        self._hold([rows._replace(group=groups[rows.group]) for rows in other.held or []])

    def _count(self, *columns: Array) -> None:
        self.counts.add(*columns)
        while len(self.counts.parts[0][0]) > _CELLS:
            self._widen(self.wider + 1)

    def _widen(self, wider: int) -> None:
        """Make cells wider, so that their numbers end in so many zeros."""
        if wider > _BITS - 3:  # keys of 2 and more would share the cell of r = 0
            raise InputError(f"at most {_CELLS // 8:,} groups can be told apart")
        code, *sums = self.counts.total()
        self.counts, self.wider = Counts(), wider
        self.counts.add(code >> wider << wider, *sums)
        self.counts.total()

    def _hold(self, parts: list[Rows]) -> None:
        """Hold rows. Of too many, drop those beyond what is wanted, or where that is not known all."""
        if self.held is not None:
            self.held += parts
            if sum(len(rows.key) for rows in self.held) > _HELD:
                rows, self.held = Rows(*map(np.concatenate, zip(*self.held, strict=True))), None
                if self.most is not None:
                    end = int(self._find_cells(np.array([self.most]))[0][0]) + (1 << self.wider)
                    self.last = np.uint64(min((end << self.shift) - 1, int(self.last)))
                    rows = rows.take(self._cells(rows)[1])
                    self.held = [rows] if len(rows.key) <= _HELD // 2 else None

    def costs(self, groups: int) -> Array:
        """Return what the rows of each group with r > 0 cost, and below that what those with r = 0 do."""
        code, _, cost = self.counts.total()
        at = (code >> _BITS) + groups * ((code & _CELL) >= self._zero)
        return np.bincount(at, cost, 2 * groups).astype(np.int64).reshape(2, groups)

    def _find_cells(self, need: Array) -> tuple[Array, Array]:
        """Return the cell in which each group comes to cost more than its need, and rows and costs of those before it.

        For a group that never does, it is the cell of r = 0.
        """
        code, *sums = self.counts.total()
        total = np.append(np.zeros((2, 1), np.int64), np.cumsum(sums, axis=1).astype(np.int64), axis=1)
        start = np.arange(len(need)) << _BITS
        first, end = np.searchsorted(code, [start, start + self._zero])
        at = np.minimum(np.searchsorted(total[1, 1:], total[1, first] + need, side="right"), end)
        return np.where(at < end, np.append(code, 0)[at] - start, self._zero), total[:, at] - total[:, first]

    def narrow(self, need: Array) -> tuple["KeyCounts", Array]:
        """Return where to count the cell that matters of each group, and what is needed of that cell."""
        cell, before = self._find_cells(need)
        if not self.shift + self.wider:
            raise InputError(f"more than {_HELD:,} rows share a few keys; make their ids unique")
        low = (cell.astype(np.uint64) << np.uint64(self.shift)) + (np.uint64(0) if self.low is None else self.low)
        low[cell == self._zero] = 2**64 - 1  # all of the group is kept, and no key matters
        return KeyCounts(low, self.shift + self.wider, before=self.before + before.sum(1)), need - before[1]

    def find_threshold(self, need: Array) -> tuple[Threshold, Array, Array]:
        """Find where each group comes to cost more than its need, among the rows that are held.

        Returns:
            The threshold, how many rows are kept and what they cost, and the places of those that are held.
        """
        rows = Rows(*map(np.concatenate, zip(*(self.held or []), strict=True)))
        (cell, before), own = self._find_cells(need), self._cells(rows)[0]
        inside = rows.take((own == cell[rows.group]) & (rows.key < inf))  # others need not be sorted
        inside = inside.take(np.lexsort((inside.place, inside.id, inside.key, inside.group)))
        found = Threshold(np.full(len(need), inf), *np.zeros((2, len(need)), np.int64))
        kept, ends = np.ones(len(inside.key), bool), np.searchsorted(inside.group, np.arange(len(need) + 1))
        for group in np.flatnonzero(np.diff(ends)):
            first, end = ends[group : group + 2]
            spent = before[1, group] + np.cumsum(inside.cost[first:end])
            over = first + int(np.searchsorted(spent, need[group], side="right"))
            kept[over:end] = False
            if over < end:
                found.key[group], found.id[group], found.place[group] = (column[over] for column in inside[:3])
                if over > first and all(column[over] == column[over - 1] for column in inside[:3]):
                    raise InputError(
                        "rows of one id and score are tied for the last place; drop repeated rows, or change n"
                    )
        inside = inside.take(kept)
        total = self.before + before.sum(1) + [len(inside.key), inside.cost.sum()]
        return found, total, np.sort(np.append(rows.place[own < cell[rows.group]], inside.place))


class Sample:
    """Rows whose ids have hashes below a threshold, which falls so that there are at most 2**18 of them.

    Args:
        most: How many rows at most, if less.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most, self.threshold = most or _SAMPLED, 2**64 - 1
        self.parts: list[tuple[Array, ...]] = [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))]

    @property
    def complete(self) -> bool:
        """Whether it has all rows."""
        return self.threshold == 2**64 - 1

    @property
    def columns(self) -> tuple[Array, ...]:
        """Id, score and place of each row."""
        self.parts = [tuple(np.concatenate(columns) for columns in zip(*self.parts, strict=True))]
        return self.parts[0]

    def add(self, *columns: Array) -> None:
        """Take those of these rows that belong to the sample."""
        self.parts.append(self._below(columns))
        if sum(len(part[0]) for part in self.parts) > self.most:
            self.threshold = int(np.partition(_hash_ids(self.columns[0]), self.most // 2)[self.most // 2])
            rows = self._below(self.columns)
            self.parts = [tuple(column[: self.most] for column in rows)]  # of one id there may be any number

    def merge(self, other: "Sample") -> None:
        """Add the sample of other rows, which may have another size; the larger size remains."""
        self.most, self.threshold = max(self.most, other.most), min(self.threshold, other.threshold)
        self.parts = [self._below(self.columns)]
        self.add(*other.columns)

    def _below(self, columns: tuple[Array, ...]) -> tuple[Array, ...]:
        below = np.flatnonzero(_hash_ids(columns[0]) <= np.uint64(self.threshold))
        return tuple(column[below] for column in columns)


def _hash_ids(id: Array) -> Array:
    return np.asarray(scramble(id).view(np.uint64))


def count_ratios(counts: Counts, log_ratio: Array) -> None:
    """Count log-ratios above -inf in cells of 1/256 nat, with the sum of the ratios of each, relative to its cell."""
    x = log_ratio[log_ratio > -inf]
    cell = np.floor(x / _WIDTH)
    counts.add(cell.astype(np.int64), np.ones_like(x), np.exp(x - cell * _WIDTH))


def mean_ratios(counts: Counts) -> tuple[Array, Array]:
    """Return the log of the mean ratio of each cell, and how many rows it has: a profile of any number of rows.

    The mean is exact, and within a cell log r varies by at most 1/256: the KL of the profile is off by less than 1e-5.
    """
    cell, count, ratio = counts.total()
    return cell * _WIDTH + np.log(ratio / count), count
