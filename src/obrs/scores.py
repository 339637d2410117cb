"""A file of scores: read its rows, take a column as numbers, write the rows that are kept.

The extension says the format: .csv, .jsonl, .parquet, .npy or .npz; `-` is standard input or output. What is not
asked for is left alone: the cells of a csv stay text, and a jsonl row keeps the keys and the nesting it has.
"""

import difflib
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ._files import replacing
from ._formats import ABSENT, FORMATS, TEXT, UNFIT, Columns, Where, decoded, is_number_text, row_place, typed
from .errors import InputError

__all__ = ["FORMATS", "Table", "column", "format_of", "labels", "numbers", "read_table", "take", "write_table"]

Numbers = np.ndarray[Any, Any]
Wrong = tuple[int | None, str]  # a row, if it is one row's fault, and what is wrong

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


def numbers(table: Table, name: str) -> Numbers:
    """Return a column as float64, NaN where a cell is empty; what is no number is an error that says where."""
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
