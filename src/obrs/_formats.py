"""The formats of a file of scores: bytes to named columns, and back.

csv and parquet go through pyarrow; the cells of a csv stay text, so that what is not asked for is left alone.
"""

import csv
import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from reprlib import repr as short
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from .errors import InputError

__all__ = [
    "ABSENT",
    "DELIMITED",
    "FORMATS",
    "TEXT",
    "UNFIT",
    "Choose",
    "Columns",
    "Where",
    "column_names",
    "decoded",
    "divided_by",
    "first_rows",
    "is_number_text",
    "json_reason",
]
__all__ += ["row_place", "typed"]

Columns = dict[str, Any]  # pyarrow arrays (csv, parquet) or NumPy arrays (npy, npz; of objects for jsonl)
Where = Callable[[int], str]
Choose = Callable[[Columns], Collection[str]]  # from the first row of all columns to the names of those to read
Content = bytes | str  # what is in the file, or its path: a format with columns apart reads only those it needs

ABSENT = type("Absent", (), {})()  # a key that a jsonl row does not have
DELIMITED = ("csv", "tsv")  # whose cells stay text
TEXT = (pa.string(), pa.large_string())
UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)


def row_place(row: int) -> str:
    return f"row {row + 1}"


def _read_csv(
    data: Content, name: str, choose: Choose | None, delimiter: str = ",", header: bool | None = None
) -> tuple[Columns, Where]:
    """Read every cell as text; pyarrow by itself would turn 007 into 7 and NA into nothing."""
    data = _bytes(data)
    odd = data.count(b'"') % 2 == 1  # a quote is open at the end, or stands inside a cell
    first, *second = first_rows(io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline=""), delimiter, 2)
    if odd and header is not False and not second:
        raise InputError(f"{name}, line 1: a quote is never closed")
    names = column_names(first, name, header)
    wanted = None
    if choose is not None:
        cells = first if header is False else second[0] if second else []
        row = dict(zip(names, (*cells, *[""] * len(names)), strict=False))
        wanted = sorted(choose({key: pa.array([cell], pa.large_string()) for key, cell in row.items()}))
    whole = data if data.endswith(b"\n") else data + b"\n"
    last = os.urandom(16).hex()  # no cell of the file is this
    if odd:  # one more row, which an open quote would swallow: the last row is then another
        whole += delimiter.join([last] * len(names)).encode() + b"\n"
    try:
        table = arrow_csv.read_csv(
            pa.py_buffer(whole),
            # only without threads does an error know its row
            arrow_csv.ReadOptions(use_threads=False, column_names=names if header is False else None),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in data),
            arrow_csv.ConvertOptions(include_columns=wanted, column_types=dict.fromkeys(names, pa.large_string())),
        )
    except pa.ArrowInvalid as error:
        what = re.sub(r".*Row #(\d+): (Expected .* got \d+).*", r"\1 \2", str(error), flags=re.S).split(" ", 1)
        place = f", line {_line(data, int(what[0]) - 1)}" if what[0].isdigit() else " cannot be read"
        hint = divided_by(names)
        raise InputError(f"{name}{place}: {what[-1].splitlines()[0].lower()}{'; ' if hint else ''}{hint}") from error
    before = 0 if header is False else 1
    if odd:
        if table.column(0)[-1].as_py() != last:
            raise InputError(f"{name}, line {_line(data, table.num_rows - 1 + before)}: a quote is never closed")
        table = table[:-1]
    return dict(zip(table.column_names, table.columns, strict=True)), lambda row: f"line {_line(data, row + before)}"


def first_rows(lines: Iterable[str], delimiter: str, count: int) -> list[list[str]]:
    """Return the cells of the first rows of a csv that are not blank, however long a cell is."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        return list(islice(filter(None, csv.reader(lines, delimiter=delimiter)), count))
    finally:
        csv.field_size_limit(limit)


def column_names(first: list[str], name: str, header: bool | None = None) -> list[str]:
    """Return the names of the columns of a csv, each different.

    Args:
        first: The cells of its first line.
        name: The file, for messages.
        header: Whether the first line names the columns; otherwise they are called 0, 1, … By default it does, but a
            number among the names is refused: it is more likely a row, which would be lost.
    """
    if header is False:
        return [str(i) for i in range(len(first))]
    seen: set[str] = set()
    for key in first:
        if key in seen:
            raise InputError(f"{name} has two columns named {key!r}; rename one")
        seen.add(key)
    if header is None and (cell := next((key for key in first if is_number_text(key.strip())), None)) is not None:
        raise InputError(
            f"{name}, line 1 must name the columns, and {cell.strip()!r:.60} is a number; if that line is a row, give "
            "--no-header (header=False), and if it is a name, --header (header=True)"
        )
    return first


def divided_by(header: Collection[str]) -> str:
    """Return what to do about a csv whose only column looks like several, or "".

    Example:
        >>> divided_by(["id;logit"])
        "is it divided by ';'? then give the delimiter ';'"
    """
    found = [mark for mark in ";\t|" if len(header) == 1 and mark in next(iter(header))]
    return f"is it divided by {found[0]!r}? then give the delimiter {found[0]!r}" if found else ""


def _line(data: bytes, record: int) -> int:
    """Return the line on which a record of a csv starts, as an editor counts; cells may hold line breaks."""
    quoted, starts = False, []
    for line, text in enumerate(data.splitlines(), 1):
        if text and not quoted:
            starts.append(line)
        quoted ^= text.count(b'"') % 2 == 1
    return starts[min(record, len(starts) - 1)]  # a stray quote may have hidden some


def _bytes(data: Content) -> bytes:
    return Path(data).read_bytes() if isinstance(data, str) else data


def _read_jsonl(data: Content, name: str, choose: Choose | None) -> tuple[Columns, Where]:
    """Read every row whole: later rows may have keys that the first has not, so there is nothing to choose from."""
    columns: dict[str, list[Any]] = {}
    lines: list[int] = []
    for line, text in enumerate(_bytes(data).decode("utf-8-sig").split("\n"), 1):
        if not text or text.isspace():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}, line {line} is not JSON: {json_reason(error)}") from error
        if type(row) is not dict:
            raise InputError(f"{name}, line {line} is not a JSON object: {short(row)}")
        for key, value in row.items():
            if key not in columns:
                columns[key] = [ABSENT] * len(lines)
            columns[key].append(value)
        lines.append(line)
        if len(row) < len(columns):
            for cells in columns.values():
                cells.extend([ABSENT] * (len(lines) - len(cells)))
    arrays = {key: np.fromiter(cells, object, len(cells)) for key, cells in columns.items()}
    return arrays, lambda row: f"line {lines[row]}"


def json_reason(error: Exception) -> str:
    """Return in a few words why text could not be read as JSON."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error).split(":")[0].lower()


def _read_parquet(data: Content, name: str, choose: Choose | None) -> tuple[Columns, Where]:
    try:
        file = parquet.ParquetFile(data if isinstance(data, str) else pa.BufferReader(data))
        wanted = None
        if choose is not None:
            head = pa.Table.from_batches([*islice(file.iter_batches(1), 1)], file.schema_arrow)
            wanted = sorted(choose(dict(zip(head.column_names, head.columns, strict=True))))
        table = file.read(columns=wanted)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} cannot be read as parquet; is it whole?") from error
    return dict(zip(table.column_names, table.columns, strict=True)), row_place


def _read_numpy(data: Content, name: str, choose: Choose | None) -> tuple[Columns, Where]:
    """Read the arrays of an npz that have rows, the fields or columns of an npy, or its one axis under its name."""
    try:
        loaded = np.load(io.BytesIO(_bytes(data)), allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            return {key: array for key in loaded.files if (array := loaded[key]).ndim}, row_place
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{name} cannot be read by NumPy; is it whole, and without Python objects?") from error
    if loaded.dtype.names and loaded.ndim == 1:
        return {key: loaded[key] for key in loaded.dtype.names}, row_place
    if loaded.ndim not in (1, 2):
        raise InputError(f"{name} must hold one axis of scores, or rows and columns, got shape {loaded.shape}")
    return {Path(name).stem: loaded} if loaded.ndim == 1 else {str(i): c for i, c in enumerate(loaded.T)}, row_place


def _write_csv(columns: Columns, file: BinaryIO, delimiter: str = ",", header: bool = True) -> None:
    try:
        cells = [_arrow(values, key).cast(pa.large_string()).to_pylist() for key, values in columns.items()]
    except UNFIT as error:
        raise InputError("nested columns do not fit in a csv; write .jsonl or .parquet") from error
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows(zip(*cells, strict=True))
    file.write(text.getvalue().encode())


def _write_jsonl(columns: Columns, file: BinaryIO) -> None:
    cells = [values.tolist() if isinstance(values, np.ndarray) else values.to_pylist() for values in columns.values()]
    for row in zip(*cells, strict=True):
        present = {key: value for key, value in zip(columns, row, strict=True) if value is not ABSENT}
        file.write(json.dumps(present, ensure_ascii=False, default=str).encode() + b"\n")


def _write_parquet(columns: Columns, file: BinaryIO) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({key: _arrow(values, key) for key, values in columns.items()})
    parquet.write_table(table.replace_schema_metadata(None), sink)
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


# How to read a file (its content, its name for messages, which columns) and how to write columns to one.
Read = Callable[[Content, str, Choose | None], tuple[Columns, Where]]
FORMATS: dict[str, tuple[Read, Callable[[Columns, BinaryIO], None]]] = {
    "csv": (_read_csv, _write_csv),
    "tsv": (partial(_read_csv, delimiter="\t"), partial(_write_csv, delimiter="\t")),
    "jsonl": (_read_jsonl, _write_jsonl),
    "parquet": (_read_parquet, _write_parquet),
    "npy": (_read_numpy, _write_npy),
    "npz": (_read_numpy, _write_npz),
}


def _arrow(values: Any, name: str) -> Any:
    """Return one pyarrow array; what is absent is null."""
    if not isinstance(values, np.ndarray):
        return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    plain = values.ndim == 1 and values.dtype.kind != "O"
    try:
        return pa.array(values if plain else [None if v is ABSENT else v for v in values.tolist()])
    except UNFIT as error:
        raise InputError(f"column {name!r} has values of several types, or of a strange one; write .jsonl") from error


def decoded(values: Any, name: str) -> Any:
    array = _arrow(values, name)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _numpy(values: Any, name: str) -> Any:
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return values
    array = decoded(values, name)
    if array.type in TEXT:
        return np.asarray(array.fill_null("").to_pylist(), dtype=str)
    if (plain := array.to_numpy(zero_copy_only=False)).dtype.kind == "O":
        raise InputError(f"column {name!r} of {array.type} does not fit in NumPy; write .jsonl or .parquet")
    return plain


def typed(text: Any) -> Any:
    """Give text the type it shows: integers, else numbers, else text; 007 is text."""
    if isinstance(text, np.ndarray) or pc.any(pc.match_substring_regex(text, r"^[+-]?0\d")).as_py():
        return text
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return text.cast(kind)
    return text


def is_number_text(text: str) -> bool:
    with suppress(pa.ArrowInvalid):
        return bool(pa.scalar(text).cast(pa.float64()).is_valid)
    return False
