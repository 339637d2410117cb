"""Files of scores as commands read them: which columns decide, their log-ratios in memory, groups and shares."""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._checks import LIMIT
from .._files import check_folder, check_not_input
from .._text import name_in_errors
from ..critics import check_scores
from ..errors import InputError
from ..files import Reading
from ..language import tilted_log_ratio
from ..scores import Batch, Source, find_sources, read_columns
from .app import complain, parse_pairs

__all__ = ["Rows", "Scores", "check_results", "group_labels", "open_scores", "read_shares", "report_bad", "save_figure"]

Numbers = np.ndarray[Any, Any]


class Rows(NamedTuple):
    """Columns in memory: a batch, which rows have a score, their scores and log-ratios, and a doubt about these."""

    batch: Batch
    good: Numbers
    score: Numbers
    log_ratio: Numbers
    doubt: str


@dataclass(frozen=True)
class Scores:
    """Files of scores, with the options that describe them.

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
            return self.sources[0].path
        name = self.where if isinstance(self.where, str) else f"{self.where[0]} and {len(self.where) - 1} more"
        return f"{name}, {len(self.sources)} files"

    @cached_property
    def schema(self) -> Reading:
        """Which columns decide: those named, or found if there is only one choice."""
        return Reading.find(self.sources, **self.columns)

    def load(self, *more: str | None) -> Rows:
        """Read the columns that decide, and `more`, into memory, and report what is doubtful about them.

        Scores that are all the same are an error, and scores that hardly are of their kind a warning.
        """
        reading = self.schema
        batch = read_columns(self.sources, [*dict.fromkeys([*reading.names, *filter(None, more)])])
        score, log_ratio = reading.scores(batch)
        good = ~np.isnan(score)
        where = f"{self.sources[0].path}, column {reading.column!r}"
        with name_in_errors(where):
            doubt = check_scores(score[good], reading.kind)
        if doubt:
            complain(f"warning: {where} read as {reading.kind}: {doubt}")
        report_bad(int(np.sum(~good)), len(good))
        return Rows(batch, good, score[good], log_ratio[good], doubt)


def open_scores(
    files: Sequence[str],
    n: Any = None,
    *,
    kl: float | None = None,
    delimiter: str | None = None,
    header: bool = True,
    **columns: Any,
) -> Scores:
    """Find files of scores; a budget of KL becomes the temperature of their rewards.

    Args:
        files: What the command line names.
        n: How many rows to keep.
        kl: A budget in nats, for n rewards of every group.
        delimiter, header: As for `obrs.files.select`; npy and the like have no header.
        columns: Column, kind, beta, group and the like, as for `obrs.files.select`.
    """
    where: Any = files[0] if len(files) == 1 else list(files)
    options: dict[str, Any] = {
        "delimiter": "\t" if delimiter == r"\t" else delimiter,
        "header": header,
    }  # a shell keeps two characters
    kind, beta = columns.get("kind"), columns.get("beta")
    columns["kind"] = kind = kind and kind.replace("-", "_")
    scores = Scores(where, find_sources(where, **options), columns, options)
    if kl is None:
        if kind == "reward" and beta is None:
            tilt = {"kl": None, "beta": None}
            raise InputError("say how far to tilt a reward, by nats or by its temperature: give", give=tilt)
        return scores
    if beta is not None or kind not in (None, "reward"):
        raise InputError("a budget of KL is for rewards, instead of --beta; leave out --beta and other kinds")
    if not isinstance(n, int):
        raise InputError("a budget of KL is for a number -n of rows, such as -n 4, no share, labels or --budget")
    columns |= {"kind": "reward", "beta": 1.0}
    beta, note = _find_beta(scores, n, kl)
    return replace(scores, columns=columns | {"beta": beta}, note=note)


def _find_beta(scores: Scores, n: int, kl: float) -> tuple[float, str]:
    """Return the temperature at which the n best of each group spend a budget of KL, and a note about it."""
    reading = scores.schema
    batch = read_columns(scores.sources, reading.names)
    reward = batch.numbers(reading.column, skip_bad=reading.skip_bad)
    codes, names = (np.zeros(len(batch), np.int64), []) if reading.group is None else batch.labels(reading.group)
    good = ~np.isnan(reward)
    with name_in_errors(scores.sources[0].path):
        _, beta, spent = tilted_log_ratio(reward[good], codes[good], n, kl, names)
    beta = min(max(beta, np.abs(reward[reward > -inf]).max() / LIMIT), 1e300)  # R / beta must be a log-ratio
    more = "" if spent >= kl - 1e-9 * max(kl, 1.0) else f" (of {kl:g}, more cannot be spent)"
    return float(beta), f", beta {beta:.4g}, KL {spent:.4g}{more}"


def read_shares(text: str | None, group: str | None, delimiter: str | None = None, header: bool = True) -> Any:
    """Return shares by label from an option such as `a=0.7,b=0.3`, or `equal`.

    A file with the column `group`, or with one column only, is counted: its labels are those of real samples, and what
    it does not have is not kept.
    """
    if text is not None and group is None:
        raise InputError("shares need the column of classes: give", give={"group": None})
    if text in (None, "equal"):
        return text
    if "=" in text and not os.path.exists(text):
        expected = "--shares must be equal, label=share with commas between them, or a file of real labels"
        return parse_pairs(text, expected)
    real = find_sources(text, delimiter=delimiter, header=header)
    column = real[0].columns[0] if len(real[0].columns) == 1 else str(group)
    codes, labels = read_columns(real, [column]).labels(column)
    return Counter(labels[code] for code in codes.tolist())


def group_labels(batch: Batch, group: str, shares: Any = None) -> tuple[Numbers, Any]:
    """Return the label of each row, as numbers if all labels are numbers, and the shares of all labels."""
    codes, names = batch.labels(group)
    are_numbers = all(name.removeprefix("-").isdecimal() for name in names)
    known = {name: int(name) if are_numbers else name for name in names}
    if shares == "equal":
        shares = dict.fromkeys(names, 1.0)
    elif isinstance(shares, Counter):
        shares = {**dict.fromkeys(names, 0.0), **shares}
    labels = np.asarray(list(known.values()))[codes]
    return labels, shares and {known.get(name, name): share for name, share in shares.items()}


def report_bad(bad: int, rows: int) -> None:
    """Say how many rows were left out."""
    if bad:
        complain(f"left out {bad} of {rows} rows without a score")


def check_results(out: Path, names: Sequence[str], *inputs: str | None) -> None:
    """Raise if files of these names cannot be written into a folder, or would overwrite an input."""
    if out.exists() and not out.is_dir():
        raise InputError(f"results go into a folder, {out} is a file; choose another --out")
    check_folder(out)
    for name in names:
        check_not_input(out / name, *inputs)


def save_figure(draw: Callable[[], Any], path: str | None) -> None:
    """Draw a figure and write it, if there is a path."""
    if path is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # matplotlib warns if the machine is slow at the moment
            draw().savefig(path, dpi=150)
    except ValueError as error:  # matplotlib does not know the extension
        raise InputError(f"--plot {path}: {error}") from error
