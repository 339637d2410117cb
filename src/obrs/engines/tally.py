"""What a pass over one file adds up: decisions, what is still open, and the sums that a pilot does not know."""

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ..sketch import Open, SketchCut
from .rows import Numbers
from .scored import Scored

__all__ = ["Part", "Tally", "inside"]

_TILE = 1 << 16  # rows at a time: to stay in cache


class Part(NamedTuple):
    """A file that is done, as NumPy arrays, the first eight with one number each or one for each pool.

    Attributes:
        rows, bad: Rows that count, and rows without a score.
        kept_rows: Rows that are kept for sure.
        kept: The same in units, for each pool.
        possible, above, below, top: Rows with r > 0; those above the interval of -log c; the sum of r exp(-low) below
            it; the largest log-ratio. Only of a pilot.
        ids, log_ratio, units, pool: The rows that `SketchCut.finish` must see.
        left_ids, left_log_ratio, left_units, left_pool: The rows that are undecided, in the order of the file.
        span: The first and the last id if ids rise from row to row, else nothing.
    """

    rows: Any
    bad: Any
    kept_rows: Any
    kept: Any
    possible: Any
    above: Any
    below: Any
    top: Any
    ids: Any
    log_ratio: Any
    units: Any
    pool: Any
    left_ids: Any
    left_log_ratio: Any
    left_units: Any
    left_pool: Any
    span: Any

    def open_of(self, pool: int, *, costs: bool) -> Open:
        """Return what `SketchCut.finish` must see of a pool."""
        mine = self.pool == pool
        units = self.units[mine] if costs else None
        return Open(int(self.kept[pool]), self.ids[mine], self.log_ratio[mine], units)


class Tally:
    """Decides on the rows of one file, batch by batch.

    Args:
        cuts: The cut of each pool, by label; of others nothing is kept.
        pilot: Whether the cut is that of a pilot, which does not know the sums over all rows.
    """

    def __init__(self, cuts: Mapping[str, SketchCut], *, pilot: bool) -> None:
        self._cuts, self._pilot = cuts, pilot
        self.bad = 0
        self._rows = self._kept_rows = self._possible = self._above = 0
        self._below, self._top = 0.0, -inf
        self._kept = np.zeros(len(cuts), np.int64)
        self._open: list[tuple[Numbers, ...]] = []
        self._left: list[tuple[Numbers, ...]] = []
        self._span: list[int] | None = []

    def judge(self, scored: Scored) -> Numbers:
        """Decide on rows: 1 kept, 0 dropped, -1 undecided."""
        size = len(scored.log_ratio)
        decision, pool = np.zeros(size, np.int8), np.zeros(size, np.int16)
        numbers = {label: number for number, label in enumerate(self._cuts)}
        for label, rows in scored.pools():
            if label not in numbers:
                continue
            for start in range(0, size if rows is None else len(rows), _TILE):
                at = slice(start, start + _TILE) if rows is None else rows[start : start + _TILE]
                if rows is not None:
                    pool[at] = numbers[label]
                decision[at] = self._judge_tile(scored, at, label, numbers[label])
        left = np.flatnonzero(decision == -1)
        units = np.ones(len(left), np.int64) if scored.cost is None else scored.cost[left]
        self._left.append((scored.ids[left], scored.log_ratio[left], units, pool[left]))
        self._rows += size
        self._kept_rows += int(np.count_nonzero(decision == 1))
        self._follow(scored.ids)
        return decision

    def _judge_tile(self, scored: Scored, at: Any, label: str, number: int) -> Numbers:
        cut, x = self._cuts[label], scored.log_ratio[at]
        judged = cut.judge(scored.ids[at], x, cost=None if scored.cost is None else scored.cost[at])
        kept, ids, log_ratio, cost = judged.open
        units = np.ones(len(ids), np.int64) if cost is None else cost
        self._open.append((ids, log_ratio, units, np.full(len(ids), number, np.int16)))
        self._kept[number] += kept
        if self._pilot:
            self._top = max(self._top, float(x.max(initial=-inf)))
            self._possible += int(np.count_nonzero(x > -inf))
            self._above += int(np.count_nonzero(x >= cut.at.high))
            below = np.minimum(x - cut.at.low, 0.0)
            np.exp(below, out=below)
            below *= x < cut.at.low  # faster than to choose them first
            self._below += float(below.sum())
        return judged.decision

    def _follow(self, ids: Numbers) -> None:
        """Notice ids that rise from row to row: where they do, none is repeated."""
        if self._span is None or not len(ids):
            return
        first, last = int(ids[0]), int(ids[-1])
        rise = bool(np.all(ids[1:] > ids[:-1])) and (not self._span or first > self._span[1])
        self._span = [self._span[0] if self._span else first, last] if rise else None

    def part(self) -> Part:
        """Return all of it."""
        empty = tuple(np.empty(0, kind) for kind in (np.int64, np.float64, np.int64, np.int16))
        opened, left = (
            [np.concatenate(c) for c in zip(empty, *rows, strict=True)] for rows in (self._open, self._left)
        )
        facts = (self._rows, self.bad, self._kept_rows, self._kept, self._possible, self._above, self._below, self._top)
        return Part._make([*map(np.asarray, facts), *opened, *left, np.array(self._span or [], np.int64)])


def inside(cut: SketchCut, log_ratio: Numbers) -> Numbers:
    """Tell which log-ratios are in the interval of -log c."""
    return (log_ratio >= cut.at.low) & (log_ratio < cut.at.high) & (log_ratio > -inf)
