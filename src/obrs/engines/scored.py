"""From a batch of a file to what decides: log-ratio, id, cost and group of each row."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .. import critics
from ..errors import InputError, ObrsError
from ..scores import KINDS, Table, labels, numbers
from .rows import Batch, Numbers, Source, read_batches, row_ids

__all__ = ["Reading", "Scored", "as_scored", "check_scores"]


@dataclass(frozen=True)
class Reading:
    """Which columns decide, and what they mean.

    Args:
        column: The scores.
        kind: What they are, one of `obrs.scores.KINDS`; by default what the column is called.
        beta: The temperature of a reward.
        id: The ids, or None for the name of the file and the number of the row.
        cost: What a row costs, or None.
        group: The columns of labels.
        skip_bad: Leave out rows whose score is NaN, empty or +inf, instead of stopping.
    """

    column: str
    kind: str
    beta: float | None = None
    id: str | None = None
    cost: str | None = None
    group: tuple[str, ...] = ()
    skip_bad: bool = False

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        return [name for name in (self.column, self.id, self.cost, *self.group) if name is not None]

    @classmethod
    def checked(cls, column: str, kind: str | None, beta: float | None, **more: Any) -> "Reading":
        """Return the reading, with the kind that the name of the column says if none is given."""
        kind = kind or (column if column in KINDS else None)
        if kind not in KINDS:
            raise InputError(f"kind says what the column {column!r} holds: one of {', '.join(KINDS)}, got {kind!r}")
        if (kind == "reward") != (beta is not None):
            raise InputError("a reward needs beta, its temperature" if beta is None else "beta is for rewards only")
        return cls(column, kind, beta, **more)


class Scored(NamedTuple):
    """The rows of a batch that count.

    Attributes:
        at: Their positions in the batch, or None for all of them.
        log_ratio, ids: Of each.
        cost: Of each, or None.
        group: A number from 0 of each, or None for one pool.
        labels: What the groups are called.
    """

    at: Numbers | None
    log_ratio: Numbers
    ids: Numbers
    cost: Numbers | None
    group: Numbers | None
    labels: list[str]

    def pools(self) -> Iterator[tuple[str, Any]]:
        """Yield each group with the positions of its rows; the one pool is called "", and has them all (None)."""
        if self.group is None:
            yield "", None
            return
        for number, label in enumerate(self.labels):
            yield label, np.flatnonzero(self.group == number)

    def spread(self, decision: Numbers, size: int) -> Numbers:
        """Return a decision on these rows as one on all of the batch: the others are dropped."""
        if self.at is None:
            return decision
        whole = np.zeros(size, decision.dtype)
        whole[self.at] = decision
        return whole


def as_scored(batch: Batch, source: Source, reading: Reading) -> Scored:
    """Read what decides from a batch; the first bad score stops, with how many there are in the file."""
    table = Table(batch.columns, source.path, source.format, batch.where)
    scores = numbers(table, reading.column)
    ids = row_ids(batch, source, reading.id)
    bad = _is_bad(scores)
    at = None
    if bad.any():
        if not reading.skip_bad:
            raise _bad_scores(source, reading, batch.where(int(np.argmax(bad))))
        at = np.flatnonzero(~bad)
        scores, ids = scores[at], ids[at]
        table = Table(
            {name: cells.take(pa.array(at)) for name, cells in batch.columns.items()}, table.name, table.format
        )
    code, names = (None, []) if not reading.group else labels(table, reading.group)
    log_ratio = _log_ratio(scores, reading, source)
    return Scored(at, log_ratio, ids, _cost(table, reading), code, [str(name) for name in names])


def check_scores(sources: Sequence[Source], reading: Reading) -> None:
    """Raise if all scores are the same, and warn if the first ones hardly are of the kind that was said.

    Files are read until two scores differ, which the first rows do unless something is wrong.
    """
    where, scores = f"{sources[0].path}, column {reading.column!r}", np.empty(0)
    for more in _read_scores(sources, reading):
        scores = np.concatenate([scores[:2], more[~_is_bad(more)]])  # two stand for all that are the same so far
        if np.any(scores != scores[:1]):
            break
    try:
        doubt = critics.check_scores(scores, reading.kind)
    except ObrsError as error:
        raise InputError(f"{where}: {error}") from error
    if doubt:
        warnings.warn(f"{where} read as {reading.kind}: {doubt}", stacklevel=4)


def _read_scores(sources: Sequence[Source], reading: Reading) -> Iterator[Numbers]:
    for source in sources:
        for batch in read_batches(source, [reading.column], whole=False):
            yield numbers(Table(batch.columns, source.path, source.format, batch.where), reading.column)


def _is_bad(scores: Numbers) -> Numbers:
    bad = np.isnan(scores)
    bad |= scores == np.inf
    return bad


def _bad_scores(source: Source, reading: Reading, first: str) -> InputError:
    """Count what is bad in the whole file."""
    rows = bad = 0
    for scores in _read_scores([source], reading):
        rows, bad = rows + len(scores), bad + int(np.count_nonzero(_is_bad(scores)))
    where = f"{source.path}, {first}, column {reading.column!r}"
    return InputError(
        f"{where}: NaN, +inf or empty, as in {bad} of {rows} rows; check what scored them, or leave them out (skip_bad)"
    )


def _log_ratio(scores: Numbers, reading: Reading, source: Source) -> Numbers:
    if reading.kind in ("log_ratio", "logit"):
        return scores
    try:
        return np.asarray(critics.to_log_ratio(scores, reading.kind, beta=reading.beta))
    except ObrsError as error:
        raise InputError(f"{source.path}, column {reading.column!r}: {error}") from error


def _cost(table: Table, reading: Reading) -> Numbers | None:
    if reading.cost is None:
        return None
    cost = numbers(table, reading.cost)
    if wrong := int(np.count_nonzero(~((cost >= 0) & (cost < 2**32) & (cost == np.floor(cost))))):
        what = f"a cost is a whole number from 0 to 2**32, such as tokens; {wrong} rows have none"
        raise InputError(f"{table.name}, column {reading.cost!r}: {what}")
    return cost.astype(np.int64)
