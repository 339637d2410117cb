"""A file of scores: read its rows, find the column of scores, choose the rows to keep, write them.

The extension says the format: .csv, .jsonl, .parquet, .npy or .npz; `-` is standard input or output. What is not
asked for stays as it is: the cells of a csv stay text, and a jsonl row keeps its keys and its nesting.
"""

import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import floor, inf
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ._files import replacing
from ._formats import ABSENT, FORMATS, TEXT, UNFIT, Columns, Where, decoded, is_number_text, row_place, typed
from ._groups import shares_of, sizes_of
from ._inputs import check_budget, check_count
from .errors import InputError, ObrsError
from .selection import inclusion_probability, select

__all__ = ["FORMATS", "KINDS", "Table", "column", "format_of", "keep", "labels", "numbers", "read_table"]
__all__ += ["score_column", "select_quotas", "take", "write_table"]

Numbers = np.ndarray[Any, Any]
Wrong = tuple[int | None, str]  # a row, if it is one row's fault, and what is wrong

KINDS = ("log_ratio", "logit", "probability", "reward")
"""What a column of scores may hold: keys of `obrs.ratios.critics.MEANINGS`. A column of this name needs no option."""
_NOTHING = ("", "na", "n/a", "nan", "null", "none")  # cells of a csv that say: no number here


@dataclass(frozen=True)
class Table:
    """Rows with named columns, and where they come from.

    Args:
        columns: Arrays of one length by name, of pyarrow or NumPy.
        name: The file, for messages.
        format: A key of `FORMATS`; in a csv the columns are text.
        where: From a row, counted from 0, to its place in the file: "line 7" of a text, "row 6" of anything else.
    """

    columns: Columns
    name: str
    format: str
    where: Where = row_place

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Any:
        if name not in self.columns:
            names = list(self.columns)
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}"
            raise InputError(f"{self.name} has no column {name!r}; {hint}")
        return self.columns[name]

    def numeric(self) -> list[str]:
        """Return the columns that begin with a number, or with nothing at all."""
        return [name for name, cells in self.columns.items() if _numbers(cells[:1], name)[1] is None]


def read_table(path: str | os.PathLike[str], format: str | None = None) -> Table:
    """Read a file of scores, or standard input if `path` is `-`.

    `format` is a key of `FORMATS`. By default the extension says it; standard input is jsonl if it starts with `{`,
    and csv otherwise.
    """
    path = os.fspath(path)
    name = "standard input" if path == "-" else path
    format = None if path == "-" and format is None else format_of(path, format)
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise InputError(f"{name} is missing or not a file") from error
    if not data.strip(b"\xef\xbb\xbf \t\r\n"):
        raise InputError(f"{name} is empty")
    format = format or ("jsonl" if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else "csv")
    try:
        columns, where = FORMATS[format][0](data, name)
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text") from error
    lengths = {key: len(cells) for key, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{key} {size}" for key, size in lengths.items())
        raise InputError(f"{name} must have one row per score in every array, got lengths {sizes}")
    if not any(lengths.values()):
        raise InputError(f"{name} has no rows")
    return Table(columns, name, format, where)


def write_table(path: str | os.PathLike[str], table: Table, format: str | None = None) -> None:
    """Write all rows or nothing: the file appears, or changes, once it is whole and on disk.

    `format` is a key of `FORMATS`. By default the extension says it; what goes to standard output (`-`) keeps the
    format of the table if that is text, and is csv otherwise.
    """
    path = os.fspath(path)
    if path == "-" and format is None:
        format = table.format if table.format in ("csv", "jsonl") else "csv"
    format = format_of(path, format)
    columns = table.columns
    if table.format == "csv" != format:
        columns = {key: typed(cells) for key, cells in columns.items()}
    if path == "-":
        return FORMATS[format][1](columns, sys.stdout.buffer)
    with replacing(path) as file:
        FORMATS[format][1](columns, file)


def column(table: Table, name: str) -> Numbers:
    """Return a column as float64 numbers; -inf is one, but an empty cell, NaN or +inf is an error that says where."""
    values = numbers(table, name)
    for bad, what in ((np.isnan(values), "empty or NaN"), (values == np.inf, "+inf")):
        if count := int(np.count_nonzero(bad)):
            share = f"{what}, as in {count} of {len(values)} rows; drop them, or check what scored them"
            raise _error(table, name, (int(np.argmax(bad)), share))
    return values


def score_column(table: Table, kind: str | None = None) -> str | None:
    """Return the column of scores if there is only one choice, else None.

    The choice is, in this order: the column named `kind`; the only one that has a name of `KINDS` or is named `score`;
    the only column of numbers; the only column.
    """
    columns = list(table.columns)
    named = [key for key in (*KINDS, "score") if key in columns]
    choices = ([kind] if kind in columns else [], named, table.numeric(), columns)
    return next((str(choice[0]) for choice in choices if len(choice) == 1), None)


def numbers(table: Table, name: str) -> Numbers:
    """Return a column as float64, NaN where a cell is empty; anything else is an error that says where."""
    values, wrong = _numbers(table[name], name)
    if wrong is not None:
        raise _error(table, name, wrong)
    return values


def labels(table: Table, name: str) -> tuple[Numbers, list[Any]]:
    """Return the group of each row as a number from 0, in order of appearance, and what the groups are called."""
    cells = table[name]
    try:
        coded = decoded(cells, name).dictionary_encode()
    except (InputError, *UNFIT) as error:
        raise _error(table, name, (None, "labels must be all text or all integers")) from error
    names = coded.dictionary.to_pylist()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    empty = np.isin(codes, [-1, *(i for i, key in enumerate(names) if key == "" or key != key)])
    if count := int(np.count_nonzero(empty)):
        raise _error(table, name, (int(np.argmax(empty)), f"no label, as in {count} of {len(codes)} rows"))
    return codes, names


def take(table: Table, indices: Numbers, extra: Columns | None = None) -> Table:
    """Return the rows at `indices`, in the order of the table, and beside them the columns of `extra`."""
    for key in sorted(table.columns.keys() & (extra or {})):
        raise InputError(f"{table.name} has a column {key!r} already; rename it first")
    mask = np.zeros(len(table), bool)
    mask[indices] = True  # pyarrow applies a mask chunk by chunk; for indices it would join all text in one buffer
    kept = {key: c[mask] if isinstance(c, np.ndarray) else c.filter(pa.array(mask)) for key, c in table.columns.items()}
    return replace(table, columns={**kept, **(extra or {})}, where=row_place)


def keep(
    table: Table,
    log_ratio: Numbers,
    *,
    n: int | None = None,
    budget: float | None = None,
    group: str | None = None,
    shares: Mapping[Any, float] | None = None,
    seed: int = 0,
    design: str = "pivotal",
    sign: Numbers | None = None,
) -> Table:
    """Return exactly n rows, or 1 in `budget`, each chosen with probability min(c r, 1).

    Two columns are added: `inclusion_probability`, and `weight` = r / inclusion probability, with mean 1 over the kept
    rows of each group: between groups the scale of r may mean nothing. For events with weights w of either sign, whose
    scale is their meaning, it is `residual_weight` = w / inclusion probability instead.

    Args:
        table: The rows.
        log_ratio: Their log-ratios.
        n: How many rows to keep, of each group if any; with `shares` in all.
        budget: Keep 1 row in K instead: of N rows, or of N rows of a group, floor(N / K).
        group: The column of classes or prompts; each gets its own constant.
        shares: The shares of the groups among the kept rows, by label; they are divided by their sum.
        seed, design: As for `obrs.select`.
        sign: The signs of event weights; `log_ratio` is log|w| then.
    """
    if (n is None) == (budget is None):
        raise InputError("say how many rows to keep: either n or budget")
    codes, names = (np.zeros(len(log_ratio), np.int64), [""]) if group is None else labels(table, group)
    sizes = np.bincount(codes)
    if shares is not None:
        if group is None:
            raise InputError("shares needs to know the class of each row; name the column of classes")
        total = n if budget is None else floor(len(codes) / check_budget(budget) * (1 + 1e-12))
        try:
            part, order = shares_of(dict(shares), tuple(names)), np.argsort(names)  # as `select`: first label first
            quota = sizes_of(check_count(total, "n"), part[order])[np.argsort(order)]
        except ObrsError as error:
            raise InputError(f"{table.name}: {error}") from error
    elif budget is None:
        quota = np.full(len(sizes), n)
    else:  # 6500 / 2.6 is 2500, whichever way the division was rounded
        quota = np.floor(sizes / check_budget(budget) * (1 + 1e-12)).astype(np.int64)
    prefixes = ["" if group is None else f"{group} {key!r}: " for key in names]
    _check_quotas(table, log_ratio, codes, quota, prefixes, least=1 if shares is None else 0)
    try:
        kept, pi = select_quotas(log_ratio, codes, quota, seed=seed, design=design, sign=sign)
    except ObrsError as error:
        raise InputError(f"{table.name}: {error}") from error
    if sign is not None:
        left = sign[kept] * np.exp(log_ratio[kept]) / pi[kept]
        return take(table, kept, {"residual_weight": left, "inclusion_probability": pi[kept]})
    weight = _weights(log_ratio[kept], pi[kept], codes[kept])
    return take(table, kept, {"weight": weight, "inclusion_probability": pi[kept]})


def select_quotas(
    log_ratio: Numbers,
    groups: Numbers,
    quota: Numbers,
    *,
    seed: int = 0,
    design: str = "pivotal",
    sign: Numbers | None = None,
) -> tuple[Numbers, Numbers]:
    """Choose `quota[g]` candidates of each group g, numbered from 0; one group is one pool, for any design.

    Returns:
        The chosen, ascending, and the inclusion probability of every candidate.

    Example:
        >>> kept, pi = select_quotas(np.log([4.0, 1.0, 2.0, 2.0]), np.array([0, 0, 1, 1]), np.array([1, 2]))
        >>> kept, pi
        (array([0, 2, 3]), array([0.8, 0.2, 1. , 1. ]))
    """
    n, within = (quota, groups) if len(quota) > 1 else (int(quota[0]), None)
    kept = select(log_ratio, n, seed=seed, design=design, groups=within, sign=sign)
    return kept, inclusion_probability(log_ratio, n, groups=within)


def _check_quotas(
    table: Table, log_ratio: Numbers, codes: Numbers, quota: Numbers, prefixes: list[str], *, least: int
) -> None:
    """Raise unless every group keeps at least so many rows and has enough rows with r > 0."""
    sizes, possible = np.bincount(codes), np.bincount(codes, weights=log_ratio > -inf).astype(np.int64)
    for wrong in np.flatnonzero((quota < least) | (quota > possible))[:1]:
        want, have, size = quota[wrong], possible[wrong], sizes[wrong]
        if want < least:
            what = f"nothing would be kept of {size} rows; lower the budget"
        elif want > size:
            what = f"cannot keep {want} of {size} rows"
        else:
            what = f"cannot keep {want} rows, only {have} of {size} have r > 0"
        raise InputError(f"{table.name}: {prefixes[wrong]}{what}")


def _weights(log_ratio: Numbers, pi: Numbers, codes: Numbers) -> Numbers:
    """Return r / pi, with mean 1 over the rows of each group."""
    log_weight = log_ratio - np.log(pi)
    top = np.full(codes.max(initial=0) + 1, -inf)
    np.maximum.at(top, codes, log_weight)
    weight = np.exp(log_weight - top[codes])
    mean = np.bincount(codes, weights=weight) / np.maximum(np.bincount(codes), 1)
    return np.asarray(weight / mean[codes])


def _numbers(cells: Any, name: str) -> tuple[Numbers, Wrong | None]:
    """Return float64, NaN where there is nothing; or the first thing that is wrong."""
    if isinstance(cells, np.ndarray):
        if cells.ndim != 1 or cells.dtype.kind not in "OUiuf":
            return np.empty(0), (None, f"expected one number per row, got {cells.dtype} of shape {cells.shape}")
        if cells.dtype.kind == "O":
            strange = set(map(type, cells)) - {int, float, type(None), type(ABSENT)}
            for row in (i for i, cell in enumerate(cells) if strange and type(cell) in strange):
                return np.empty(0), (row, f"{short(cells[row])} is not a number")
            try:
                cells = np.asarray([None if cell is ABSENT else cell for cell in cells], dtype=np.float64)
            except OverflowError:
                row = next(i for i, cell in enumerate(cells) if isinstance(cell, int) and abs(cell) > 1e308)
                return np.empty(0), (row, f"{short(cells[row])} is too large for a number")
        if cells.dtype.kind in "iuf":
            return cells.astype(np.float64), None
    array = decoded(cells, name)
    if array.type not in TEXT:
        if not any(test(array.type) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)):
            return np.empty(0), (None, f"expected numbers, got {array.type}")
        return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)), None
    text = pc.utf8_trim_whitespace(array)
    nothing = pc.is_in(pc.utf8_lower(text), pa.array(_NOTHING, text.type))
    text = pc.if_else(nothing, pa.scalar(None, text.type), text)
    try:
        return np.asarray(text.cast(pa.float64()).to_numpy(zero_copy_only=False)), None
    except pa.ArrowInvalid:
        row = next(i for i, cell in enumerate(text.to_pylist()) if cell is not None and not is_number_text(cell))
        return np.empty(0), (row, f"{short(text[row].as_py())} is not a number")


def _error(table: Table, name: str, wrong: Wrong) -> InputError:
    row, what = wrong
    return InputError(f"{table.name}{'' if row is None else ', ' + table.where(row)}, column {name!r}: {what}")


def format_of(path: str, format: str | None = None) -> str:
    """Return the key of `FORMATS` that is asked for, or that the extension says."""
    known = Path(path).suffix[1:].lower() if format is None else format
    if known not in FORMATS:
        what = f"{path}: unknown extension {Path(path).suffix!r}" if format is None else f"unknown format {format!r}"
        raise InputError(f"{what}; choose from {', '.join(FORMATS)}")
    return known
