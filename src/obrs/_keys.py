"""Keys of rows, counted so that counts add up over batches, files and workers.

A row has the key log u(id) - log r (`draws.priority_key`), and the rows with the smallest keys are kept. A first pass
counts keys in cells, by the leading bits of the key as an ordered integer; a second one collects the rows of the cell
of each group in which the last key lies. The result is the first row of each group that is not kept.

References:
    | Priority Sampling for Estimation of Arbitrary Subset Sums (Duffield, Lund & Thorup, 2007)
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, NamedTuple

import numpy as np

from .errors import InputError

__all__ = ["MOST_GROUPS", "BottomK", "Cells", "Rows", "add_up", "find_threshold", "order_keys", "tally"]

Array = np.ndarray[Any, Any]
Columns = tuple[Array, ...]

_BITS = 22  # 2**22 cells are counted at most, in all groups
MOST_GROUPS = 1 << _BITS - 3
COLLECTED = 1 << 20  # rows that are collected at most


def order_keys(key: Array) -> Array:
    """Return keys as unsigned integers in the same order.

    Example:
        >>> order_keys(np.array([-np.inf, -2.0, 0.0, 3.0, np.inf])).argsort()
        array([0, 1, 2, 3, 4])
    """
    bits = (key + 0.0).view(np.int64)  # -0.0 becomes 0.0
    flip = bits >> 63
    flip |= np.int64(-1 << 63)  # all bits of a negative number, else the sign
    bits ^= flip
    return bits.view(np.uint64)


class Rows(NamedTuple):
    """What decides about rows, one array each."""

    key: Array  # +inf where r = 0
    id: Array
    group: Array  # its number, from 0
    cost: Array  # a whole number

    def take(self, index: Any) -> "Rows":
        """Return some of the rows, by a mask or by their numbers."""
        return Rows(*(column[index] for column in self))

    def precede(self, key: Array, id: Array) -> Array:
        """Return the mask of the rows with r > 0 that come before one of each group, by key and, at a tie, by id."""
        end = key[self.group]
        mask = np.asarray(self.key < end)
        tied = np.flatnonzero(self.key == end)
        mask[tied] = (end[tied] < inf) & (self.id[tied] < id[self.group[tied]])
        return mask


class BottomK:
    """The rows that are smallest in the first column: so many, and those that are tied with the last of them."""

    def __init__(self, most: int, end: Any) -> None:
        self.most = most
        self.end = end  # only rows up to it can be among them
        self.parts: list[Columns] = []
        self.size, self.limit = 0, 2 * most  # rows that are here, and from how many on some are dropped

    def add(self, columns: Columns) -> None:
        """Add rows, with one array for each of their columns."""
        at = np.flatnonzero(columns[0] <= self.end)
        self.parts.append(tuple(column[at] for column in columns))
        self.size += len(at)
        if self.size > self.limit:
            self.columns()

    def columns(self) -> Columns:
        """Return the columns of the smallest rows."""
        columns = join(self.parts)
        if len(columns[0]) > self.most:
            self.end = np.partition(columns[0], self.most - 1)[self.most - 1]
            at = np.flatnonzero(columns[0] <= self.end)
            columns = tuple(column[at] for column in columns)
        self.parts, self.size = [columns], len(columns[0])
        self.limit = self.most + self.size
        return columns


def join(parts: Iterable[Columns]) -> Columns:
    """Return columns, end to end."""
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def add_up(columns: Columns) -> Columns:
    """Return the codes, which are the first column, in order, and the sums of the other columns."""
    code, *values = columns
    present = np.flatnonzero(np.bincount(code))  # codes are below 2**22: counting beats sorting
    return present, *(np.bincount(code, value)[present] for value in values)


def tally(parts: Iterable[Columns]) -> Columns:
    """Return the cells that have rows, in order, how many these are, and what they cost."""
    sums = np.zeros((2, 1 << _BITS), np.int64)
    for code, *values in parts:
        for total, value in zip(sums, values, strict=True):
            np.add.at(total, code, value.astype(np.int64, copy=False))
    code = np.flatnonzero(sums[0])
    return code, *sums[:, code]


class Cells(NamedTuple):
    """Where keys are counted: by group and `(order_keys(key) - low) >> shift`."""

    low: Array  # the least order that is counted, one per group; the cells are divided among the groups
    width: int = 64  # how many bits of the orders from there on are counted

    @property
    def bits(self) -> int:
        """How many bits the number of a cell has; above them stands the group."""
        return _BITS - (len(self.low) - 1).bit_length()

    @property
    def shift(self) -> int:
        """How many bits of an order are not counted by."""
        return max(self.width - self.bits, 0)

    def locate(self, rows: Rows) -> Columns:
        """Return the cell of each row, by group, a one, and its cost: what `tally` counts."""
        rows, offset = self.take(rows)
        cell = (offset >> np.uint64(self.shift)).view(np.int64)
        return (rows.group << self.bits) | cell, np.ones(len(cell), np.int64), rows.cost

    def take(self, rows: Rows) -> tuple[Rows, Array]:
        """Return the rows with r > 0 that are counted here, and how far above the least order each of them is."""
        offset = order_keys(rows.key)
        offset -= self.low[rows.group]  # what is less becomes the largest
        inside = (rows.key < inf) & (offset <= np.uint64(2**self.width - 1))
        if inside.all():
            return rows, offset
        at = np.flatnonzero(inside)
        return rows.take(at), offset[at]

    def divide(self, code: Array) -> "Cells":
        """Return finer cells inside one cell of each group, given by its code; a group without a code has no cells."""
        group = code >> self.bits
        low = np.full_like(self.low, 2**64 - 1)  # where all of a group is kept, no key matters
        low[group] = self.low[group] + ((code - (group << self.bits)).astype(np.uint64) << np.uint64(self.shift))
        return Cells(low, self.shift)


def _fill(group: Array, cost: Array, need: Array) -> tuple[Array, Array]:
    """Return the mask of what fits into the need of its group, by which it is sorted, and the first that does not."""
    spent = np.append(0, np.cumsum(cost))
    fits = spent[1:] - spent[np.searchsorted(group, group)] <= need[group]
    over = np.flatnonzero(~fits)
    return fits, over[np.unique(group[over], return_index=True)[1]]


def find_threshold(
    cells: Cells, counts: Columns, need: Array, held: Rows, scan: Callable[[Callable[[Rows], Any]], Iterable[Any]]
) -> tuple[Array, Array, Array]:
    """Find the first row of each group that is not kept: where the group comes to cost more than its need.

    Args:
        cells: Those of the first pass.
        counts: How many rows with r > 0 it found in each, and what they cost.
        need: What to keep of each group.
        held: Rows that it found. If they are all of the cells that matter, no other pass is needed; else it takes one,
            or two or three for many rows.
        scan: Makes a pass: calls a function on all rows, part by part, and yields what it returns.

    Returns:
        The key of that row, +inf if there is none, its id, and how many rows are kept and what they cost.
    """
    kept = np.zeros(2, np.int64)
    while True:
        code, number, cost = counts
        group = code >> cells.bits
        fits, over = _fill(group, cost, need)
        kept += np.array([number[fits].sum(), cost[fits].sum()], np.int64)
        need = need - np.bincount(group[fits], cost[fits], len(need)).astype(np.int64)
        cells, size = cells.divide(code[over]), number[over].sum()
        rows, _ = cells.take(held)
        if len(rows.key) == size or size <= COLLECTED:
            break
        if not cells.width:
            raise InputError(f"more than {COLLECTED:,} rows share one key; make their ids unique")
        counts = tally(scan(cells.locate))
    if len(rows.key) < size:
        rows = Rows(*join(rows for rows, _ in scan(cells.take)))
    rows = rows.take(np.lexsort((rows.id, rows.key, rows.group)))
    fits, over = _fill(rows.group, rows.cost, need)
    first, last = rows.take(over[over > 0]), rows.take(over[over > 0] - 1)
    if np.any((first.key == last.key) & (first.id == last.id) & (first.group == last.group)):
        raise InputError("rows of one id and score are tied for the last place; drop repeated rows, or change n")
    end, id = np.full(len(need), inf), np.zeros(len(need), np.int64)
    end[rows.group[over]], id[rows.group[over]] = rows.key[over], rows.id[over]
    return end, id, kept + np.array([fits.sum(), rows.cost[fits].sum()])
