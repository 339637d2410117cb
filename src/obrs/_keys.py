"""Keys of rows, counted so that counts add up over batches, files and workers.

A row has the key log u(id) - log r (`draws.priority_key`), and the rows with the smallest keys are kept. A first pass
counts keys in cells, by the leading bits of the key as an ordered integer; a second one collects the rows of the cell
of each group in which the last key lies. The result is the first row of each group that is not kept.

References:
    | Priority Sampling for Estimation of Arbitrary Subset Sums (Duffield, Lund & Thorup, 2007)
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from .errors import InputError

__all__ = ["MOST_GROUPS", "Cells", "Rows", "add_up", "find_threshold", "gather", "order_keys", "smallest"]

Array = np.ndarray[Any, Any]
Columns = tuple[Array, ...]

_BITS = 22  # 2**22 cells are counted at most, in all groups
MOST_GROUPS = 1 << _BITS - 3
COLLECTED = 1 << 20  # rows that are collected at most
_WAITING = 8  # parts that wait to be joined


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
    """What decides about rows, one array each."""

    key: Array  # +inf where r = 0
    id: Array
    group: Array  # its number, from 0
    cost: Array  # a whole number
    score: Array  # NaN if there is none; then r = 0 and the cost is 0
    log_ratio: Array

    def take(self, index: Any) -> "Rows":
        """Return some of the rows, by a mask or by their numbers."""
        return Rows(*(column[index] for column in self))

    def before(self, key: Array, id: Array) -> Array:
        """Return the mask of the rows with r > 0 that come before one of each group, by key and, at a tie, by id."""
        end = key[self.group]
        tied = (self.key == end) & (end < inf)
        return np.asarray((self.key < end) | (tied & (self.id < id[self.group])))


def join(parts: Iterable[Columns]) -> Columns:
    """Return columns, end to end."""
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def smallest(parts: Sequence[Columns], most: int) -> Columns:
    """Return the rows that are smallest in the first column: so many, and those that are tied with the last."""

    def up_to(bound: Any, columns: Columns) -> Columns:
        at = np.flatnonzero(columns[0] <= bound)
        return tuple(column[at] for column in columns)

    if len(parts[0][0]) >= most:  # those of earlier parts: few of the others come before the last of them
        parts = [up_to(parts[0][0].max(), part) for part in parts]
    columns = join(parts)
    return columns if len(columns[0]) <= most else up_to(np.partition(columns[0], most - 1)[most - 1], columns)


def gather(parts: Iterable[Any], join: Callable[[list[Any]], Any]) -> Any:
    """Join parts as they come, some at a time; without parts, return None."""
    waiting: list[Any] = []
    for part in parts:
        waiting.append(part)
        if len(waiting) == _WAITING:
            waiting = [join(waiting)]
    return join(waiting) if waiting else None


def add_up(parts: Iterable[Columns]) -> Columns:
    """Return the codes of all parts, which are their first column, in order, and the sums of the other columns."""
    code, *values = join(parts)
    low = code.min() if len(code) else 0
    if not len(code) or code.max() - low <= 8 * len(code):  # where codes lie close, nothing needs to be sorted
        at, code = code - low, np.flatnonzero(np.bincount(code - low))
        sums, code = [np.bincount(at, value)[code] for value in values], code + low
    else:
        code, at = np.unique(code, return_inverse=True)
        sums = [np.bincount(at, value) for value in values]
    if len(code) > 1 << _BITS:
        raise InputError("log-ratios lie too far apart to be counted")
    return code, *sums


@dataclass(frozen=True)
class Cells:
    """Where keys are counted: by group and `(order_keys(key) - low) >> shift`.

    Args:
        low: The least order that is counted, one per group. The cells are divided among the groups.
        width: How many bits of the orders from there on are counted.
    """

    low: Array
    width: int = 64

    @property
    def bits(self) -> int:
        """How many bits the number of a cell has; above them stands the group."""
        return _BITS - (len(self.low) - 1).bit_length()

    @property
    def shift(self) -> int:
        """How many bits of an order are not counted by."""
        return max(self.width - self.bits, 0)

    def take(self, rows: Rows) -> Rows:
        """Return the rows that are counted here."""
        offset = order_keys(rows.key) - self.low[rows.group]  # what is less becomes the largest
        return rows.take(np.flatnonzero(offset <= np.uint64(2**self.width - 1)))

    def count(self, rows: Rows) -> Columns:
        """Return the cell of each row, by group, a one, and its cost: what `add_up` counts."""
        if self.width < 64:
            rows = self.take(rows)
        order = order_keys(rows.key) if self.width == 64 else order_keys(rows.key) - self.low[rows.group]
        cell = order >> np.uint64(self.shift)
        return (rows.group << self.bits) | cell.view(np.int64), np.ones(len(cell)), rows.cost

    def narrow(self, counts: Columns, need: Array) -> tuple["Cells", Array, int]:
        """Find the cell in which each group comes to cost more than its need; a group that never does has none.

        Returns:
            These cells, rows and costs of each group before its cell, and how many rows the cells have together.
        """
        code, *sums = counts
        total = np.pad(np.cumsum(sums, axis=1).astype(np.int64), ((0, 0), (1, 0)))
        start = np.arange(len(need)) << self.bits
        first, end = np.searchsorted(code, [start, start + (1 << self.bits)])
        at = np.minimum(np.searchsorted(total[1, 1:], total[1, first] + need, side="right"), end)
        before, some = total[:, at] - total[:, first], np.flatnonzero(at < end)
        at = at[some]
        low = np.full(len(need), 2**64 - 1, np.uint64)  # where all of a group is kept, no key matters
        low[some] = self.low[some] + ((code[at] - start[some]).astype(np.uint64) << np.uint64(self.shift))
        return Cells(low, self.shift), before, int((total[0, at + 1] - total[0, at]).sum())


def find_threshold(
    cells: Cells, counts: Columns, need: Array, scan: Callable[[Callable[[Rows], Any]], Iterable[Any]]
) -> tuple[Array, Array, Array]:
    """Find the first row of each group that is not kept: where the group comes to cost more than its need.

    This takes one more pass, or two or three for many rows.

    Args:
        cells: Those of the first pass.
        counts: How many rows with r > 0 it found in each, and what they cost.
        need: What to keep of each group.
        scan: Makes a pass: calls a function on all rows, part by part, and yields what it returns.

    Returns:
        The key of that row, +inf if there is none, its id, and how many rows are kept and what they cost.
    """
    kept = np.zeros(2, np.int64)
    while True:
        cells, before, size = cells.narrow(counts, need)
        need, kept = need - before[1], kept + before.sum(1)
        if size <= COLLECTED:
            break
        if not cells.width:
            raise InputError(f"more than {COLLECTED:,} rows share one key; make their ids unique")
        counts = gather(scan(cells.count), add_up)
    rows = Rows(*join(scan(cells.take)))
    rows = rows.take(np.lexsort((rows.id, rows.key, rows.group)))
    spent = np.append(0, np.cumsum(rows.cost))
    fits = spent[1:] - spent[np.searchsorted(rows.group, rows.group)] <= need[rows.group]
    over = np.flatnonzero(~fits)
    over = over[np.unique(rows.group[over], return_index=True)[1]]
    first, last = rows.take(over[over > 0]), rows.take(over[over > 0] - 1)
    if np.any((first.key == last.key) & (first.id == last.id) & (first.group == last.group)):
        raise InputError("rows of one id and score are tied for the last place; drop repeated rows, or change n")
    key, id = np.full(len(need), inf), np.zeros(len(need), np.int64)
    key[rows.group[over]], id[rows.group[over]] = rows.key[over], rows.id[over]
    return key, id, kept + np.array([fits.sum(), rows.cost[fits].sum()])
