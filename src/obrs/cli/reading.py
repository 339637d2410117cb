"""Files of scores as commands read them: which columns decide, their log-ratios in memory, groups and shares."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .._checks import LIMIT
from ..critics import check_scores
from ..errors import InputError, ObrsError
from ..files import Reading
from ..language import tilted_log_ratio
from ..scores import Batch, Source, find_sources, format_of, read_columns
from .app import complain
from .options import Amount, parse_pairs

__all__ = ["Rows", "Scores", "group_labels", "header_of", "name_in_errors", "open_scores", "read_shares", "report_bad"]

Numbers = np.ndarray[Any, Any]
T = TypeVar("T")


class Rows(NamedTuple):
    """Columns in memory: a batch, which of its rows have a score, and the scores and log-ratios of these."""

    batch: Batch
    good: Numbers
    score: Numbers
    log_ratio: Numbers


class Scores(NamedTuple):
    """Files of scores, and what the options say about them.

    Attributes:
        where: The files, as `obrs.files` takes them.
        sources: The files that were found.
        columns: The columns that decide and what they mean, as arguments of `obrs.files.select`.
        options: How the files are read, likewise.
        note: What a budget of KL came to.
    """

    where: Any
    sources: list[Source]
    columns: dict[str, Any]
    options: dict[str, Any]
    note: str = ""

    @property
    def title(self) -> str:
        """What a page calls the files."""
        if len(self.sources) == 1:
            return self.sources[0].shown
        name = self.where if isinstance(self.where, str) else f"{self.where[0]} and {len(self.where) - 1} more"
        return f"{name}, {len(self.sources)} files"

    def find_reading(self) -> Reading:
        """Return which columns decide, found where there is one choice."""
        return Reading.find(self.sources, **self.columns)

    def load(self, reading: Reading, *more: str | None) -> Rows:
        """Read the columns that decide, and `more`, into memory, and report what is doubtful about them.

        Scores that are all the same are an error, and scores that hardly are of their kind a warning.
        """
        batch = read_columns(self.sources, [*dict.fromkeys([*reading.names, *filter(None, more)])])
        score = batch.numbers(reading.column, skip_bad=reading.skip_bad)
        good = ~np.isnan(score)
        where = f"{self.sources[0].shown}, column {reading.column!r}"
        if doubt := name_in_errors(where, lambda: check_scores(score[good], reading.kind)):
            complain(f"warning: {where} read as {reading.kind}: {doubt}")
        report_bad(int(np.sum(~good)), len(good))
        return Rows(batch, good, score[good], reading.log_ratio(batch, score[good]))


def open_scores(
    files: Sequence[str],
    *,
    kl: float | None = None,
    amount: Amount | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    **columns: Any,
) -> Scores:
    """Find files of scores; a budget of KL becomes the temperature of their rewards.

    Args:
        files: What the command line names.
        kl: A budget in nats, for `amount` rewards of every group.
        amount: How much to keep.
        format, delimiter, header: As for `obrs.files.select`.
        columns: Column, kind, beta, group and the like, as for `obrs.files.select`.
    """
    where: Any = files[0] if len(files) == 1 else list(files)
    options: dict[str, Any] = {"format": format, "delimiter": delimiter, "header": header}
    scores = Scores(where, find_sources(where, **options), columns, options)
    if kl is None:
        if columns["kind"] == "reward" and columns["beta"] is None:
            raise InputError("say how far to tilt a reward, by nats or by its temperature: give", give=_TILT)
        return scores
    n = None if amount is None else amount.n
    if not isinstance(n, int) or columns["beta"] is not None or columns["kind"] not in (None, "reward"):
        raise InputError("a budget of KL is for a number -n of rewards; leave out --beta, --budget and other kinds")
    columns |= {"kind": "reward", "beta": 1.0}
    beta, note = _find_beta(scores, n, kl)
    return scores._replace(columns=columns | {"beta": beta}, note=note)


_TILT = {"kl": None, "beta": None}


def _find_beta(scores: Scores, n: int, kl: float) -> tuple[float, str]:
    """Return the temperature at which the n best of each group spend a budget of KL, and a note about it."""
    reading = scores.find_reading()
    batch = read_columns(scores.sources, reading.names)
    reward = batch.numbers(reading.column, skip_bad=reading.skip_bad)
    codes, names = (np.zeros(len(batch), np.int64), []) if reading.group is None else batch.labels(reading.group)
    good = ~np.isnan(reward)
    where = scores.sources[0].shown
    _, beta, spent = name_in_errors(where, lambda: tilted_log_ratio(reward[good], codes[good], n, kl, names))
    beta = min(max(beta, np.abs(reward[reward > -inf]).max() / LIMIT), 1e300)  # R / beta must be a log-ratio
    more = "" if spent >= kl - 1e-9 * max(kl, 1.0) else f" (of {kl:g}, more cannot be spent)"
    return float(beta), f", beta {beta:.4g}, KL {spent:.4g}{more}"


def header_of(file: str, header: bool | None, format: str | None = None) -> bool | None:
    """Return what --header or --no-header says of one of two files: nothing, unless it is a csv or tsv.

    Example:
        >>> header_of("fake.csv", False), header_of("real.npy", False)
        (False, None)
    """
    return header if format_of(file, format) in ("csv", "tsv", None) else None


def read_shares(text: str | None, group: str | None, options: dict[str, Any]) -> Any:
    """Return shares by label as an option says them, `a=0.7,b=0.3`, or `equal`.

    A file with the column `group`, or with one column only, is counted: its labels are those of real samples, and what
    it does not have is not kept.
    """
    if text is None:
        return None
    if group is None:
        raise InputError("shares need the column of classes: give", give={"group": None})
    if text == "equal":
        return text
    if "=" in text and not os.path.exists(text):
        return parse_pairs(
            text, "--shares must be equal, label=share with commas between them, or a file of real labels"
        )
    real = find_sources(text, header=header_of(text, options["header"]))
    names = real[0].columns
    column = names[0] if len(names) == 1 else group
    codes, labels = read_columns(real, [column]).labels(column)
    return Counter(labels[code] for code in codes.tolist())


def group_labels(batch: Batch, group: str, shares: Any = None) -> tuple[Numbers, Any]:
    """Return the label of each row, a number where all labels are, and the shares of all labels."""
    codes, names = batch.labels(group)
    are_numbers = all(name.removeprefix("-").isdecimal() for name in names)
    known = {name: int(name) if are_numbers else name for name in names}
    if shares == "equal":
        shares = dict.fromkeys(names, 1.0)
    elif isinstance(shares, Counter):
        shares = {**dict.fromkeys(names, 0.0), **shares}
    labels = np.asarray(list(known.values()))[codes]
    return labels, shares and {known.get(name, name): share for name, share in shares.items()}


def name_in_errors(name: str, compute: Callable[[], T]) -> T:
    """Compute, and name the file in any error."""
    try:
        return compute()
    except ObrsError as error:
        raise error.prefixed(name) from error


def report_bad(bad: int, rows: int) -> None:
    """Say how many rows were left out."""
    if bad:
        complain(f"left out {bad} of {rows} rows without a score")
