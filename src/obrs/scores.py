"""A file of scores: read its rows, find the column of scores, choose the rows to keep, write them.

The extension says the format: .csv, .tsv, .jsonl, .parquet, .npy or .npz, all but .parquet also as .gz or .zst; `-` is
standard input or output. What is not asked for stays as it is: the cells of a csv stay text, and a jsonl row keeps its
keys and its nesting.
"""

import difflib
import io
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import floor, inf
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ._checks import check_budget, check_count
from ._files import check_not_input, replacing
from ._formats import (
    ABSENT,
    DELIMITED,
    FORMATS,
    TEXT,
    UNFIT,
    Columns,
    Where,
    decoded,
    divided_by,
    is_number_text,
    row_place,
    typed,
)
from ._ids import cell_ids
from .errors import InputError, ObrsError
from .groups import counts_of, shares_of, sizes_of
from .selection import inclusion_probability, select

__all__ = ["FORMATS", "KINDS", "Table", "column", "format_of", "ids", "keep", "labels", "numbers", "read_table"]
__all__ += ["score_column", "select_quotas", "take", "without_bad", "write_table"]

Numbers = np.ndarray[Any, Any]
Wrong = tuple[int | None, str]  # a row, if it is one row's fault, and what is wrong

KINDS = ("log_ratio", "logit", "probability", "reward")
"""What a column of scores may hold: keys of `obrs.ratios.critics.MEANINGS`. A column of this name needs no option."""
_NUMBER = r"^([+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|-inf(inity)?)$"  # a cell of a csv that is one, and not +inf
_NOTHING = ("", "na", "n/a", "nan", "null", "none")  # cells of a csv that say: no number here


@dataclass(frozen=True)
class Table:
    """Rows with named columns, and where they come from.

    Args:
        columns: Arrays of one length by name, of pyarrow or NumPy.
        name: The file, for messages.
        format: A key of `FORMATS`; in a csv the columns are text.
        where: From a row, counted from 0, to its place in the file: "line 7" of a text, "row 6" of anything else.
        delimiter: Between the cells of a csv, if it was said.
        header: Whether the first line of a csv names its columns; without one it is written without one, too.
    """

    columns: Columns
    name: str
    format: str
    where: Where = row_place
    delimiter: str | None = None
    header: bool = True

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Any:
        if name not in self.columns:
            names = list(self.columns)
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}"
            hint = divided_by(names) or hint
            raise InputError(f"{self.name} has no column {name!r}; {hint}")
        return self.columns[name]

    def numeric(self) -> list[str]:
        """Return the columns that begin with a number, or with nothing at all."""
        return [name for name, cells in self.columns.items() if _numbers(cells[:1], name)[1] is None]


def read_table(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    only: Callable[[Table], Collection[str]] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
) -> Table:
    """Read a file of scores, or standard input if `path` is `-`.

    Args:
        path: The file.
        format: A key of `FORMATS`, for a file whose extension says nothing. Without one, standard input is jsonl if it
            starts with `{`, and csv otherwise.
        only: From the first row to the columns to read, of a csv, tsv or parquet; all by default.
        delimiter: Between the cells of a csv; a comma by default, and a tab in a tsv.
        header: Whether the first line of a csv or tsv names the columns, which are called 0, 1, … otherwise. By default
            it must, and a number among the names is refused, as the line may be a row.
    """
    path = os.fspath(path)
    name = "standard input" if path == "-" else path
    if path != "-" and not os.path.isfile(path) and (os.path.isdir(path) or not os.path.exists(path)):
        raise InputError(f"{name} is missing or not a file")
    format = None if path == "-" and format is None else format_of(path, format)
    # a parquet file has its columns apart, and is read from where it lies
    data: Any = path if format == "parquet" and path != "-" and os.path.getsize(path) else _read_bytes(path)
    if isinstance(data, bytes) and not data.strip(b"\xef\xbb\xbf \t\r\n"):
        raise InputError(f"{name} is empty")
    format = format or ("jsonl" if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else "csv")
    choose = None if only is None else lambda first: only(Table(first, name, format))
    read: Any = FORMATS[format][0]
    if delimiter is not None:
        read = partial(read, delimiter=_check_delimiter(delimiter, format))
    if header is not None and format not in DELIMITED:
        raise InputError(f"a header is for csv and tsv, and {format} has none")
    if format in DELIMITED:
        read = partial(read, header=header)
    try:
        columns, where = read(data, name, choose)
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text") from error
    lengths = {key: len(cells) for key, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{key} {size}" for key, size in lengths.items())
        raise InputError(f"{name} must have one row per score in every array, got lengths {sizes}")
    if not any(lengths.values()):
        raise InputError(f"{name} has no rows")
    return Table(columns, name, format, where, delimiter, header is not False)


def _check_delimiter(delimiter: str, format: str) -> str:
    if format not in DELIMITED:
        raise InputError(f"a delimiter is for csv and tsv, and {format} has none")
    if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise InputError(f"a delimiter is one character, got {delimiter!r}")
    return delimiter


def _read_bytes(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    data = Path(path).read_bytes()
    if (codec := _codec(path)) is None:
        return data
    try:
        return bytes(pa.CompressedInputStream(pa.BufferReader(data), codec).read())
    except OSError as error:
        raise InputError(f"{path} cannot be unpacked as {codec}; is it whole?") from error


def _codec(path: str) -> str | None:
    """Return how a file is packed, by its last extension."""
    return {".gz": "gzip", ".zst": "zstd"}.get(Path(path).suffix.lower())


def write_table(path: str | os.PathLike[str], table: Table, format: str | None = None) -> None:
    """Write all rows or nothing: the file appears, or changes, once it is whole and on disk.

    `format` is a key of `FORMATS`, where no extension says it; what goes to standard output (`-`) keeps the format of
    the table if that is text, and is csv otherwise. The file that the table was read from is not overwritten.
    """
    path = os.fspath(path)
    if path == "-" and format is None:
        format = table.format if table.format in (*DELIMITED, "jsonl") else "csv"
    format = format_of(path, format)
    columns = table.columns
    if table.format in DELIMITED and format not in DELIMITED:
        columns = {key: typed(cells) for key, cells in columns.items()}
    write: Any = FORMATS[format][1]
    if format == "csv" and table.delimiter is not None:
        write = partial(write, delimiter=table.delimiter)
    if format in DELIMITED:
        write = partial(write, header=table.header)
    if path == "-":
        return write(columns, sys.stdout.buffer)  # type: ignore[no-any-return]
    check_not_input(path, table.name)
    codec = _codec(path)
    with replacing(path) as file:
        if codec is None:
            write(columns, file)
        else:
            plain = io.BytesIO()
            write(columns, plain)
            file.write(pa.Codec(codec).compress(plain.getvalue(), asbytes=True))


def without_bad(table: Table, name: str) -> tuple[Table, int]:
    """Return the rows whose score is a number below +inf, and how many are left out.

    Example:
        >>> table = Table({"logit": np.array([1.0, np.nan, -np.inf, np.inf])}, "scores.npz", "npz")
        >>> rows, bad = without_bad(table, "logit")
        >>> rows["logit"], bad
        (array([  1., -inf]), 2)
    """
    cells = table[name]
    values, wrong = _numbers(cells, name)
    if wrong is None:
        fine = ~np.isnan(values) & (values < inf)
    elif wrong[0] is None:
        raise _error(table, name, wrong)
    elif isinstance(cells, np.ndarray) and cells.dtype.kind == "O":
        fine = np.array([_numbers(cells[i : i + 1], name)[1] is None for i in range(len(cells))])
        fine[fine] = _numbers(cells[fine], name)[0] < inf  # and not NaN
    else:
        fine = pc.match_substring_regex(pc.utf8_trim_whitespace(decoded(cells, name)), _NUMBER, ignore_case=True)
        fine = fine.fill_null(False).to_numpy(zero_copy_only=False)
    if not fine.any():
        raise InputError(f"{table.name}, column {name!r}: none of {len(fine)} rows has a number")
    at, where = np.flatnonzero(fine), table.where
    kept = replace(take(table, at), where=lambda row: where(int(at[row])))
    return kept, len(fine) - len(at)


def column(table: Table, name: str, *, advice: str | None = None) -> Numbers:
    """Return a column as float64 numbers; -inf is one, but an empty cell, NaN or +inf is an error that says where.

    `advice` is what the error says to do about such rows.
    """
    values = numbers(table, name)
    for bad, what in ((np.isnan(values), "empty or NaN"), (values == np.inf, "+inf")):
        if count := int(np.count_nonzero(bad)):
            share = f"{what}, as in {count} of {len(values)} rows; {advice or 'drop them, or check what scored them'}"
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


def labels(table: Table, name: str | Sequence[str]) -> tuple[Numbers, list[Any]]:
    """Return the group of each row as a number from 0, in the order of the sorted labels, and what they are called.

    Text that shows integers is sorted as integers, so that every format has one order, that of `obrs.select`. Groups by
    several columns are called by all their labels, with a slash between them.
    """
    if not isinstance(name, str):
        if len(name) == 1:
            return labels(table, name[0])
        parts = [labels(table, part) for part in name]
        code = np.zeros(len(table), np.int64)
        for codes, names in parts:
            code = code * len(names) + codes
        present, code = np.unique(code, return_inverse=True)
        called: list[list[str]] = [[] for _ in present]
        for _, names in reversed(parts):
            present, here = np.divmod(present, len(names))
            called = [[str(names[i]), *rest] for i, rest in zip(here.tolist(), called, strict=True)]
        return code.astype(np.int64), ["/".join(words) for words in called]
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
    known = typed(coded.dictionary) if coded.dictionary.type in TEXT else coded.dictionary
    shown = known.to_pylist()
    order = sorted(range(len(names)), key=lambda i: shown[i])
    return np.argsort(order)[codes], [names[i] for i in order]


def ids(table: Table, name: str) -> Numbers:
    """Return a column of integers or text as ids of 64 bits.

    An integer is its own id, also in text if it is written as one writes it: `7`, not `007`. Other text has an id that
    depends on its bytes alone.
    """
    cells = decoded(table[name], name)
    if cells.null_count:
        raise _error(table, name, (int(np.argmax(cells.is_null().to_numpy(zero_copy_only=False))), "no id"))
    if cells.type not in TEXT and not pa.types.is_integer(cells.type):
        raise _error(table, name, (None, f"ids must be integers or text, got {cells.type}"))
    return cell_ids(cells)


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
    n: int | Mapping[Any, int] | None = None,
    budget: float | None = None,
    group: str | Sequence[str] | None = None,
    shares: Mapping[Any, float] | None = None,
    seed: int = 0,
    design: str = "pivotal",
    sign: Numbers | None = None,
    ids: Numbers | None = None,
    cost: Numbers | None = None,
) -> Table:
    """Return exactly n rows, or 1 in `budget`, each chosen with probability min(c r, 1).

    Two columns are added: `inclusion_probability`, and `weight` = r / inclusion probability, with mean 1 over the kept
    rows of each group: between groups the scale of r may mean nothing. For events with weights w of either sign, whose
    scale is their meaning, it is `residual_weight` = w / inclusion probability instead.

    Args:
        table: The rows.
        log_ratio: Their log-ratios.
        n: How many rows to keep, of each group if any, or by label; with `shares` in all.
        budget: Keep 1 row in K instead: of N rows, or of N rows of a group, floor(N / K).
        group: The column of classes or prompts, or several; each group gets its own constant.
        shares: The shares of the groups among the kept rows, by label; they are divided by their sum.
        seed, design: As for `obrs.select`.
        sign: The signs of event weights; `log_ratio` is log|w| then.
        ids, cost: As for `obrs.select`; a cost is for the design `priority`, and n and 1 in K are then in units.
    """
    if (n is None) == (budget is None):
        raise InputError("say how many rows to keep: either n or budget")
    codes, names = (np.zeros(len(log_ratio), np.int64), [""]) if group is None else labels(table, group)
    sizes = np.bincount(codes, cost)
    for what, given in (("shares", shares is not None), ("n by label", isinstance(n, Mapping))):
        if given and group is None:
            raise InputError(f"{what} needs to know the class of each row; name the column of classes")
    try:
        if shares is not None:
            total = n if budget is None else floor(sizes.sum() / check_budget(budget) * (1 + 1e-12))
            quota = sizes_of(check_count(total, "n"), shares_of(dict(shares), tuple(names)))
        elif isinstance(n, Mapping):
            quota = counts_of(n, tuple(names))
        elif budget is None:
            quota = np.full(len(sizes), n)
        else:  # 6500 / 2.6 is 2500, whichever way the division was rounded
            quota = np.floor(sizes / check_budget(budget) * (1 + 1e-12)).astype(np.int64)
    except ObrsError as error:
        raise InputError(f"{table.name}: {error}") from error
    called = group if group is None or isinstance(group, str) else ", ".join(group)
    prefixes = ["" if group is None else f"{called} {key!r}: " for key in names]
    if cost is None:
        _check_quotas(table, log_ratio, codes, quota, prefixes, least=0 if shares or isinstance(n, Mapping) else 1)
    try:
        more = {"ids": ids, "cost": cost} if ids is not None or cost is not None else {}
        kept, pi = select_quotas(log_ratio, codes, quota, seed=seed, design=design, sign=sign, **more)
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
    ids: Numbers | None = None,
    cost: Numbers | None = None,
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
    kept = select(log_ratio, n, seed=seed, design=design, ids=ids, groups=within, cost=cost, sign=sign)
    return kept, inclusion_probability(log_ratio, n, groups=within, cost=cost)


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
    if table.format in DELIMITED and what.endswith("is not a number") and (hint := divided_by(list(table.columns))):
        what = f"{what}; {hint}"
    return InputError(f"{table.name}{'' if row is None else ', ' + table.where(row)}, column {name!r}: {what}")


def format_of(path: str, format: str | None = None) -> str:
    """Return the key of `FORMATS` that the extension says, or where it says nothing, the one that is asked for."""
    if format is not None and format not in FORMATS:
        raise InputError(f"unknown format {format!r}; choose from {', '.join(FORMATS)}")
    inner = path if _codec(path) is None else str(Path(path).with_suffix(""))
    known = Path(inner).suffix[1:].lower()
    if known in FORMATS:
        return known
    if format is None:
        raise InputError(f"{path}: unknown extension {Path(inner).suffix!r}; choose from {', '.join(FORMATS)}")
    return format
