"""Keys of rows, counted so that counts add up over batches, files and workers.

A row has the key log u(id) - log r (`draws.priority_key`), and the rows with the smallest keys are kept. A first pass
counts keys in cells, by the leading bits of the key as an ordered integer; a second one collects the rows of the cell
of each group in which the last key lies. The result is a `Threshold`: the first row of each group that is not kept.

References:
    | Priority Sampling for Estimation of Arbitrary Subset Sums (Duffield, Lund & Thorup, 2007)
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, NamedTuple

import numpy as np

from .draws import scramble
from .errors import InputError

__all__ = ["Counts", "KeyCounts", "Rows", "Sample", "Threshold", "find_threshold", "order_keys"]

Array = np.ndarray[Any, Any]

_BITS = 22  # 2**22 cells are counted at most, in all groups
_COLLECTED = 1 << 20  # rows that are collected at most
_PENDING = 1 << 20  # rows that wait to be counted together
_SAMPLED = 1 << 18  # rows of a sample at most


def order_keys(key: Array) -> Array:
    """Return keys as unsigned integers in the same order.

    Example:
        >>> order_keys(np.array([-np.inf, -2.0, 0.0, 3.0, np.inf])).argsort()
        array([0, 1, 2, 3, 4])
    """
    bits = (key + 0.0).view(np.int64)  # -0.0 becomes 0.0
    flip = (bits >> 63).view(np.uint64) | np.uint64(1 << 63)  # all bits of a negative number, else the sign
    return flip ^ bits.view(np.uint64)


class Rows(NamedTuple):
    """What rows are ordered and counted by, one array each."""

    key: Array  # +inf where r = 0
    id: Array
    group: Array  # its number, from 0
    cost: Array  # a whole number

    def take(self, index: Any) -> "Rows":
        """Return some of the rows, by a mask or by their numbers."""
        return Rows(*(column[index] for column in self))


class Threshold(NamedTuple):
    """The first row of each group that is not kept, by key and, at a tie, by id."""

    key: Array  # +inf if all rows with r > 0 are kept
    id: Array

    def keeps(self, rows: Rows) -> Array:
        """Return the mask of the rows that are kept; those with r = 0 never are."""
        end = self.key[rows.group]
        tied = (rows.key == end) & (end < inf)
        return np.asarray((rows.key < end) | (tied & (rows.id < self.id[rows.group])))


class Counts:
    """Sums of two values by integer code, which add up over batches, files and workers."""

    def __init__(self) -> None:
        self.parts: list[tuple[Array, ...]] = [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))]
        self.pending = 0

    def __getstate__(self) -> dict[str, Any]:
        self.total()  # what workers send is small
        return vars(self)

    def merge(self, other: "Counts") -> None:
        """Add what was counted of other rows."""
        for part in other.parts:
            self.add(*part)

    def add(self, code: Array, *values: Array) -> None:
        """Add values of rows."""
        self.parts.append((code, *values))
        self.pending += len(code)
        if self.pending > _PENDING:
            self.total()

    def total(self) -> tuple[Array, ...]:
        """Return the codes, in order, and the sums of each value."""
        if self.pending:
            code, *values = map(np.concatenate, zip(*self.parts, strict=True))
            low = code.min()
            if code.max() - low <= 4 * len(code):  # where codes lie close, nothing needs to be sorted
                known = np.flatnonzero(np.bincount(code - low))
                sums = [np.bincount(code - low, value)[known] for value in values]
                code = known + low
            else:
                code, at = np.unique(code, return_inverse=True)
                sums = [np.bincount(at, value) for value in values]
            if len(code) > 1 << _BITS:
                raise InputError("log-ratios lie too far apart to be counted")
            self.parts, self.pending = [(code, *sums)], 0
        return self.parts[0]


class KeyCounts(Counts):
    """How many rows there are, and what they cost, by group and cell of the key, `(order_keys(key) - low) >> shift`.

    Args:
        groups: How many there are. The cells are divided among them.
        low: The least order that is counted, one per group; None for a first pass, over all.
        width: How many bits of the orders from there on are counted.
    """

    def __init__(self, groups: int, low: Array | None = None, width: int = 64) -> None:
        super().__init__()
        self.groups, self.low, self.width = groups, low, width
        self.bits = _BITS - (groups - 1).bit_length()  # of a cell; above them stands the group
        if self.bits < 3:
            raise InputError(f"at most {1 << _BITS - 3:,} groups can be told apart, got {groups:,}")
        self.shift = max(width - self.bits, 0)
        # the cell of rows with r = 0, which only a first pass counts: no other is as high
        self.zero = int(order_keys(np.array([inf]))[0]) >> self.shift if low is None else 1 << self.bits

    def take(self, rows: Rows) -> Rows:
        """Return the rows that are counted here."""
        if self.low is None:
            return rows
        offset = order_keys(rows.key) - self.low[rows.group]  # what is less becomes the largest
        return rows.take(np.flatnonzero(offset <= np.uint64(2**self.width - 1)))

    def count(self, rows: Rows) -> "KeyCounts":
        """Return the counts of some rows, to be merged."""
        rows = self.take(rows)
        order = order_keys(rows.key)
        order = order if self.low is None else order - self.low[rows.group]
        cell = (order >> np.uint64(self.shift)).view(np.int64)
        part = KeyCounts(self.groups, self.low, self.width)
        part.add((rows.group << self.bits) | cell, np.ones(len(cell)), rows.cost)
        return part

    def costs(self) -> Array:
        """Return what the rows of each group with r > 0 cost, and below that what those with r = 0 do."""
        code, _, cost = self.total()
        at = (code >> self.bits) + self.groups * (code % (1 << self.bits) >= self.zero)
        return np.bincount(at, cost, 2 * self.groups).astype(np.int64).reshape(2, self.groups)

    def narrow(self, need: Array) -> tuple["KeyCounts", Array, int]:
        """Find the cell in which each group comes to cost more than its need; a group that never does has none.

        Returns:
            Where to count or collect these cells, rows and costs of each group before its cell, and how many rows the
            cells have together.
        """
        code, *sums = self.total()
        total = np.pad(np.cumsum(sums, axis=1).astype(np.int64), ((0, 0), (1, 0)))
        start = np.arange(len(need)) << self.bits
        first, end = np.searchsorted(code, [start, start + self.zero])
        at = np.minimum(np.searchsorted(total[1, 1:], total[1, first] + need, side="right"), end)
        before, some = total[:, at] - total[:, first], np.flatnonzero(at < end)
        at = at[some]
        low = np.full(len(need), 2**64 - 1, np.uint64)  # where all of a group is kept, no key matters
        low[some] = (code[at] - start[some]).astype(np.uint64) << np.uint64(self.shift)
        low[some] += np.uint64(0) if self.low is None else self.low[some]
        return KeyCounts(self.groups, low, self.shift), before, int((total[0, at + 1] - total[0, at]).sum())


def find_threshold(
    counts: KeyCounts, need: Array, scan: Callable[[Callable[[Rows], Any]], Iterable[Any]]
) -> tuple[Threshold, Array]:
    """Find where each group comes to cost more than its need, in one more pass, or in two or three for many rows.

    Args:
        counts: Of a pass over all rows.
        need: What to keep of each group.
        scan: Makes a pass: calls a function on all rows, part by part, and yields what it returns.

    Returns:
        The threshold, and how many rows are kept and what they cost.
    """
    kept = np.zeros(2, np.int64)
    while True:
        cells, before, size = counts.narrow(need)
        need, kept = need - before[1], kept + before.sum(1)
        if size <= _COLLECTED:
            break
        if not cells.width:
            raise InputError(f"more than {_COLLECTED:,} rows share one key; make their ids unique")
        counts = KeyCounts(cells.groups, cells.low, cells.width)
        for part in scan(cells.count):
            counts.merge(part)
    rows = Rows(*map(np.concatenate, zip(*scan(cells.take), strict=True)))
    rows = rows.take(np.lexsort((rows.id, rows.key, rows.group)))
    spent = np.append(0, np.cumsum(rows.cost))
    fits = spent[1:] - spent[np.searchsorted(rows.group, rows.group)] <= need[rows.group]
    over = np.flatnonzero(~fits)
    over = over[np.unique(rows.group[over], return_index=True)[1]]
    first, last = rows.take(over[over > 0]), rows.take(over[over > 0] - 1)
    if np.any((first.key == last.key) & (first.id == last.id) & (first.group == last.group)):
        raise InputError("rows of one id and score are tied for the last place; drop repeated rows, or change n")
    threshold = Threshold(np.full(len(need), inf), np.zeros(len(need), np.int64))
    for ends, column in zip(threshold, rows, strict=False):
        ends[rows.group[over]] = column[over]
    return threshold, kept + np.array([fits.sum(), rows.cost[fits].sum()])


class Sample:
    """Ids and scores of rows whose ids have hashes up to a limit, which falls so that they are at most 2**18."""

    def __init__(self) -> None:
        self.limit = 2**64 - 1
        self.parts: list[tuple[Array, ...]] = [(np.zeros(0, np.int64), np.zeros(0))]

    def __getstate__(self) -> dict[str, Any]:
        self._shrink(_SAMPLED >> 4)  # what workers send is small
        return vars(self)

    @property
    def columns(self) -> tuple[Array, ...]:
        """The ids, and the scores."""
        self.parts = [tuple(map(np.concatenate, zip(*self.parts, strict=True)))]
        return self.parts[0]

    def add(self, *columns: Array, limit: int = 2**64 - 1) -> None:
        """Add rows, or another sample, up to its limit."""
        self.parts.append(self._below(columns))
        self._shrink(_SAMPLED, limit)

    def _shrink(self, most: int, limit: int = 2**64 - 1) -> None:
        if sum(len(part[0]) for part in self.parts) > most:
            limit = min(limit, int(np.partition(_hash_ids(self.columns[0]), most // 2)[most // 2]))
        if limit < self.limit:
            self.limit = limit
            self.parts = [tuple(column[:most] for column in self._below(self.columns))]  # an id may be repeated

    def _below(self, columns: tuple[Array, ...]) -> tuple[Array, ...]:
        below = np.flatnonzero(_hash_ids(columns[0]) <= np.uint64(self.limit))
        return tuple(column[below] for column in columns)


def _hash_ids(id: Array) -> Array:
    return np.asarray(scramble(id).view(np.uint64))
