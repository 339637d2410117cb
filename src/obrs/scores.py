"""A file of scores: read its rows, take a column as numbers, write the rows that are kept.

The extension says the format: .csv, .jsonl, .parquet, .npy or .npz; `-` is standard input or output. What is not
asked for is left alone: the cells of a csv stay text, and a jsonl row keeps the keys and the nesting it has.
"""

import csv
import difflib
import io
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as short
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from .errors import InputError

__all__ = ["FORMATS", "Table", "column", "format_of", "labels", "read_table", "take", "write_table"]

Numbers = np.ndarray[Any, Any]
Columns = dict[str, Any]  # pyarrow arrays (csv, parquet) or NumPy arrays (npy, npz; of objects for jsonl)
Where = Callable[[int], str]
Wrong = tuple[int | None, str]  # a row, if it is one row's fault, and what is wrong

_ABSENT = type("Absent", (), {})()  # a key that a jsonl row does not have
_NOTHING = ("", "na", "n/a", "nan", "null", "none")  # cells of a csv that say: no number here
_TEXT = (pa.string(), pa.large_string())
_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)


def _row(row: int) -> str:
    return f"row {row + 1}"


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
    where: Where = _row

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
        columns = {key: _typed(cells) for key, cells in columns.items()}
    if path == "-":
        return FORMATS[format][1](columns, sys.stdout.buffer)
    try:
        with _replacing(path) as file:
            FORMATS[format][1](columns, file)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), path) from error


def column(table: Table, name: str) -> Numbers:
    """Return a column as float64 numbers; -inf is one, but an empty cell, NaN or +inf is an error that says where."""
    values, wrong = _numbers(table[name], name)
    if wrong is not None:
        raise _error(table, name, wrong)
    for bad, what in ((np.isnan(values), "empty or NaN"), (values == np.inf, "+inf")):
        if count := int(np.count_nonzero(bad)):
            share = f"{what}, as in {count} of {len(values)} rows; drop them, or check what scored them"
            raise _error(table, name, (int(np.argmax(bad)), share))
    return values


def labels(table: Table, name: str) -> tuple[Numbers, list[Any]]:
    """Return the group of each row as a number from 0, in order of appearance, and what the groups are called."""
    cells = table[name]
    try:
        coded = _decoded(cells, name).dictionary_encode()
    except (InputError, *_UNFIT) as error:
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
    return replace(table, columns={**kept, **(extra or {})}, where=_row)


def _numbers(cells: Any, name: str) -> tuple[Numbers, Wrong | None]:
    """Return float64, NaN where there is nothing; or the first thing that is wrong."""
    if isinstance(cells, np.ndarray):
        if cells.ndim != 1 or cells.dtype.kind not in "OUiuf":
            return np.empty(0), (None, f"expected one number per row, got {cells.dtype} of shape {cells.shape}")
        if cells.dtype.kind == "O":
            strange = set(map(type, cells)) - {int, float, type(None), type(_ABSENT)}
            for row in (i for i, cell in enumerate(cells) if strange and type(cell) in strange):
                return np.empty(0), (row, f"{short(cells[row])} is not a number")
            cells = np.asarray([None if cell is _ABSENT else cell for cell in cells], dtype=np.float64)
        if cells.dtype.kind in "iuf":
            return cells.astype(np.float64), None
    array = _decoded(cells, name)
    if array.type not in _TEXT:
        if not any(test(array.type) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)):
            return np.empty(0), (None, f"expected numbers, got {array.type}")
        return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)), None
    text = pc.utf8_trim_whitespace(array)
    nothing = pc.is_in(pc.utf8_lower(text), pa.array(_NOTHING, text.type))
    text = pc.if_else(nothing, pa.scalar(None, text.type), text)
    try:
        return np.asarray(text.cast(pa.float64()).to_numpy(zero_copy_only=False)), None
    except pa.ArrowInvalid:
        row = next(i for i, cell in enumerate(text.to_pylist()) if cell is not None and not _is_number(cell))
        return np.empty(0), (row, f"{short(text[row].as_py())} is not a number")


def _error(table: Table, name: str, wrong: Wrong) -> InputError:
    row, what = wrong
    return InputError(f"{table.name}{'' if row is None else ', ' + table.where(row)}, column {name!r}: {what}")


def _read_csv(data: bytes, name: str) -> tuple[Columns, Where]:
    """Read every cell as text; pyarrow by itself would turn 007 into 7 and NA into nothing."""
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline=""))
    header = next(cells for cells in lines if cells)
    if twice := [key for key in header if header.count(key) > 1]:
        raise InputError(f"{name} has two columns named {twice[0]!r}; rename one")
    if all(map(_is_number, header)) and not all(key.isdigit() for key in header):
        raise InputError(f"{name}, line 1 must name the columns, got {short(','.join(header))}")
    try:
        table = arrow_csv.read_csv(
            pa.py_buffer(data if data.endswith(b"\n") else data + b"\n"),
            arrow_csv.ReadOptions(use_threads=False),  # only so does an error know its row
            arrow_csv.ParseOptions(newlines_in_values=b'"' in data),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(header, pa.large_string())),
        )
    except pa.ArrowInvalid as error:
        what = re.sub(r".*Row #(\d+): (Expected .* got \d+).*", r"\1 \2", str(error), flags=re.S).split(" ", 1)
        place = f", line {_line(data, int(what[0]) - 1)}" if what[0].isdigit() else " cannot be read"
        raise InputError(f"{name}{place}: {what[-1].splitlines()[0].lower()}") from error
    return dict(zip(table.column_names, table.columns, strict=True)), lambda row: f"line {_line(data, row + 1)}"


def _line(data: bytes, record: int) -> int:
    """Return the line on which a record of a csv starts, as an editor counts; cells may hold line breaks."""
    quoted, starts = False, []
    for line, text in enumerate(data.splitlines(), 1):
        if text and not quoted:
            starts.append(line)
        quoted ^= text.count(b'"') % 2 == 1
    return starts[min(record, len(starts) - 1)]  # a stray quote may have hidden some


def _read_jsonl(data: bytes, name: str) -> tuple[Columns, Where]:
    columns: dict[str, list[Any]] = {}
    lines: list[int] = []
    for line, text in enumerate(data.decode("utf-8-sig").split("\n"), 1):
        if not text or text.isspace():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}, line {line} is not JSON: {str(error).split(':')[0].lower()}") from error
        if type(row) is not dict:
            raise InputError(f"{name}, line {line} is not a JSON object: {short(row)}")
        for key, value in row.items():
            if key not in columns:
                columns[key] = [_ABSENT] * len(lines)
            columns[key].append(value)
        lines.append(line)
        if len(row) < len(columns):
            for cells in columns.values():
                cells.extend([_ABSENT] * (len(lines) - len(cells)))
    arrays = {key: np.fromiter(cells, object, len(cells)) for key, cells in columns.items()}
    return arrays, lambda row: f"line {lines[row]}"


def _read_parquet(data: bytes, name: str) -> tuple[Columns, Where]:
    try:
        table = parquet.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} cannot be read as parquet; is it whole?") from error
    return dict(zip(table.column_names, table.columns, strict=True)), _row


def _read_numpy(data: bytes, name: str) -> tuple[Columns, Where]:
    """Read the arrays of an npz that have rows, the fields or columns of an npy, or its one axis under its name."""
    try:
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            return {key: array for key in loaded.files if (array := loaded[key]).ndim}, _row
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{name} cannot be read by NumPy; is it whole, and without Python objects?") from error
    if loaded.dtype.names and loaded.ndim == 1:
        return {key: loaded[key] for key in loaded.dtype.names}, _row
    if loaded.ndim not in (1, 2):
        raise InputError(f"{name} must hold one axis of scores, or rows and columns, got shape {loaded.shape}")
    return {Path(name).stem: loaded} if loaded.ndim == 1 else {str(i): c for i, c in enumerate(loaded.T)}, _row


def _write_csv(columns: Columns, file: BinaryIO) -> None:
    try:
        cells = [_arrow(values, key).cast(pa.large_string()).to_pylist() for key, values in columns.items()]
    except _UNFIT as error:
        raise InputError("nested columns do not fit in a csv; write .jsonl or .parquet") from error
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*cells, strict=True))
    file.write(text.getvalue().encode())


def _write_jsonl(columns: Columns, file: BinaryIO) -> None:
    cells = [values.tolist() if isinstance(values, np.ndarray) else values.to_pylist() for values in columns.values()]
    for row in zip(*cells, strict=True):
        present = {key: value for key, value in zip(columns, row, strict=True) if value is not _ABSENT}
        file.write(json.dumps(present, ensure_ascii=False, default=str).encode() + b"\n")


def _write_parquet(columns: Columns, file: BinaryIO) -> None:
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({key: _arrow(values, key) for key, values in columns.items()}), sink)
    file.write(sink.getvalue())


def _write_npy(columns: Columns, file: BinaryIO) -> None:
    arrays = {key: _numpy(values, key) for key, values in columns.items()}
    rows = np.empty(len(next(iter(arrays.values()))), [(key, a.dtype, a.shape[1:]) for key, a in arrays.items()])
    for key, array in zip(rows.dtype.names or (), arrays.values(), strict=True):
        rows[key] = array
    np.lib.format.write_array(file, rows, allow_pickle=False)


def _write_npz(columns: Columns, file: BinaryIO) -> None:
    with zipfile.ZipFile(file, "w") as archive:  # np.savez would take a column named "file" for its argument
        for key, values in columns.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _numpy(values, key), allow_pickle=False)


# How to read (bytes, name for messages) into columns, and how to write columns to a file.
FORMATS: dict[str, tuple[Callable[[bytes, str], tuple[Columns, Where]], Callable[[Columns, BinaryIO], None]]] = {
    "csv": (_read_csv, _write_csv),
    "jsonl": (_read_jsonl, _write_jsonl),
    "parquet": (_read_parquet, _write_parquet),
    "npy": (_read_numpy, _write_npy),
    "npz": (_read_numpy, _write_npz),
}


def format_of(path: str, format: str | None = None) -> str:
    """Return the key of `FORMATS` that is asked for, or that the extension says."""
    known = Path(path).suffix[1:].lower() if format is None else format
    if known not in FORMATS:
        what = f"{path}: unknown extension {Path(path).suffix!r}" if format is None else f"unknown format {format!r}"
        raise InputError(f"{what}; choose from {', '.join(FORMATS)}")
    return known


@contextmanager
def _replacing(path: str) -> Iterator[BinaryIO]:
    """Open a file beside `path` that takes its place once it is whole."""
    target = Path(os.path.realpath(path))
    exists = target.exists()
    if exists and (not target.is_file() or not os.access(target, os.W_OK)):
        with open(target, "wb") as file:  # a device or a pipe; a folder or what may not be written raises
            yield file
        return
    beside = target.with_name(f".obrs-{os.urandom(8).hex()}.tmp")
    try:
        with open(beside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if exists:
            os.chmod(beside, target.stat().st_mode & 0o7777)
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _arrow(values: Any, name: str) -> Any:
    """Return one pyarrow array; what is absent is null."""
    if not isinstance(values, np.ndarray):
        return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    plain = values.ndim == 1 and values.dtype.kind != "O"
    try:
        return pa.array(values if plain else [None if v is _ABSENT else v for v in values.tolist()])
    except _UNFIT as error:
        raise InputError(f"column {name!r} has values of several types, or of a strange one; write .jsonl") from error


def _decoded(values: Any, name: str) -> Any:
    array = _arrow(values, name)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _numpy(values: Any, name: str) -> Any:
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return values
    array = _decoded(values, name)
    if array.type in _TEXT:
        return np.asarray(array.fill_null("").to_pylist(), dtype=str)
    if (plain := array.to_numpy(zero_copy_only=False)).dtype.kind == "O":
        raise InputError(f"column {name!r} of {array.type} does not fit in NumPy; write .jsonl or .parquet")
    return plain


def _typed(text: Any) -> Any:
    """Give text the type it shows: integers, else numbers, else text; 007 is text."""
    if isinstance(text, np.ndarray) or pc.any(pc.match_substring_regex(text, r"^[+-]?0\d")).as_py():
        return text
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return text.cast(kind)
    return text


def _is_number(text: str) -> bool:
    with suppress(pa.ArrowInvalid):
        return bool(pa.scalar(text).cast(pa.float64()).is_valid)
    return False
