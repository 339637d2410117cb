"""Files of scores: find them, read the columns that matter in batches, write rows with all their columns.

Parquet and NumPy files are read as tables. A csv or jsonl is read in blocks of whole rows: only the columns that matter
are parsed, and rows are written by copying their bytes. Text may be packed as .gz or .zst, and `-` is standard input.
"""

import atexit
import glob
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np

from ._files import replacing
from .draws import scramble
from .errors import InputError, InputTypeError, MissingLibraryError

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv
    from pyarrow import json as arrow_json
    from pyarrow import parquet
except ImportError as error:
    raise MissingLibraryError("files of scores need pyarrow: pip install 'obrs[cli]'", name="pyarrow") from error

__all__ = ["FORMATS", "Batch", "Paths", "Source", "find_sources", "format_of", "read_columns"]

Array = np.ndarray[Any, Any]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Parts = Iterator[tuple["Batch", Array, Mapping[str, Array]]]

FORMATS = ("csv", "tsv", "jsonl", "parquet", "npy", "npz")
"""The formats that are read, by extension."""

_CODECS = {".gz": "gzip", ".zst": "zstd"}
_ROWS = 1 << 16  # rows of a batch of a table
_BLOCK = 1 << 23  # bytes of text that are read at once; no row may be longer
_GROUP = 1 << 17  # rows of a row group that is written
_EMPTY = ("", "na", "n/a", "null", "none")  # cells that say: no number here
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"  # as one writes it: 7, not 007
_STDIN = "standard input"
_TEXT = (pa.string(), pa.large_string())


@dataclass(frozen=True)
class Batch:
    """Some rows of a file.

    Args:
        source: The file; of rows of several files the first.
        columns: Those that were asked for, arrays of pyarrow by name.
        size: How many rows.
        first: How many rows of the file come before these.
        rows: The rows with all columns, as the source writes them.
    """

    source: "Source"
    columns: dict[str, Any]
    size: int
    first: int = 0
    rows: Any = None

    def __len__(self) -> int:
        return self.size

    def error(self, row: int | None, name: str, what: str, **give: Any) -> InputError:
        """Return the error for a cell, or for a column if `row` is None; `give` are arguments that would help."""
        place = "" if row is None else f", row {self.first + row + 1}"
        return InputError(f"{self.source.shown}{place}, column {name!r}: {what}", give=give)

    def numbers(self, name: str, *, skip_bad: bool = False) -> Array:
        """Return a column as float64. What is no number below +inf is an error that says where; if skipped, NaN."""
        values = self.floats(name, skip_bad=skip_bad)
        bad = ~(values < inf)  # NaN, too
        if bad.any() and not skip_bad:
            what = f"empty, NaN or +inf, as in {bad.sum()} of {len(bad)} rows here"
            todo = "check what scored them, or leave them out: give"
            raise self.error(int(np.argmax(bad)), name, f"{what}; {todo}", skip_bad=True)
        return np.where(bad, nan, values) if bad.any() else values

    def floats(self, name: str, *, skip_bad: bool = False) -> Array:
        """Return a column as float64, NaN where a cell is empty; other text is an error, or if skipped NaN."""
        cells = self.columns[name]
        if cells.type in _TEXT:
            try:
                cells = cells.cast(pa.float64())
            except pa.ArrowInvalid:  # some are empty, have spaces or a plus before them, or are no numbers
                values = [_parse_number(cell or "") for cell in cells.to_pylist()]
                if None in values and not skip_bad:
                    wrong = values.index(None)
                    text = cells[wrong].as_py()
                    comma = (
                        "; write decimals with a point" if _parse_number(text.replace(",", ".", 1)) is not None else ""
                    )
                    raise self.error(wrong, name, f"{text!r:.60} is not a number{comma}") from None
                return np.array(values, np.float64)
        if not (pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type) or pa.types.is_null(cells.type)):
            raise self.error(None, name, f"numbers are expected, got {cells.type}")
        cells = cells.cast(pa.float64())
        return np.from_dlpack(cells.fill_null(nan) if cells.null_count else cells)

    def ids(self, name: str | None) -> Array:
        """Return ids of 64 bits, from a column of integers or text, or else from the file and the number of the row.

        An integer is its own id, also in text if it is written as one writes it: `7`, not `007`. Other text has an id
        that depends on its bytes alone. So has the name of a file, and row j of the file has that plus j.
        """
        if name is None:
            start = int.from_bytes(hashlib.blake2b(self.source.name.encode(), digest_size=8).digest(), "little")
            rows = np.arange(self.first, self.first + len(self), dtype=np.uint64)
            return (rows + np.uint64(start)).view(np.int64)
        cells = self.columns[name]
        if cells.null_count:
            raise self.error(int(np.argmax(_flags(cells.is_null()))), name, "no id")
        if pa.types.is_integer(cells.type):
            wide = pa.uint64() if pa.types.is_unsigned_integer(cells.type) else pa.int64()
            return np.from_dlpack(cells.cast(wide)).view(np.int64)
        if cells.type not in _TEXT:
            raise self.error(None, name, f"ids must be integers or text, got {cells.type}")
        is_integer = pc.match_substring_regex(cells, _INTEGER)
        integers = np.from_dlpack(cells.filter(is_integer).cast(pa.int64()))
        if len(integers) == len(cells):
            return integers
        ids = _hash_text(cells)
        ids[_flags(is_integer)] = integers
        return ids

    def labels(self, name: str) -> tuple[Array, list[str]]:
        """Return the group of each row as a number from 0, and what the groups are called, in no order."""
        coded = self.columns[name].dictionary_encode()
        if pa.types.is_floating(coded.dictionary.type) or pa.types.is_nested(coded.dictionary.type):
            raise self.error(None, name, f"labels must be text or integers, got {coded.dictionary.type}")
        codes = np.from_dlpack(coded.indices.fill_null(-1).cast(pa.int64()))
        labels = [str(label) for label in coded.dictionary.to_pylist()]
        empty = (codes < 0) | (codes == (labels.index("") if "" in labels else -1))
        if empty.any():
            raise self.error(int(np.argmax(empty)), name, "no label")
        return codes, labels


def _parse_number(cell: str) -> float | None:
    """Return the number in a cell, NaN if there is none, and None for other text."""
    try:
        return float(cell)
    except ValueError:
        return nan if cell.strip().lower() in _EMPTY else None


def _flags(cells: Any) -> Array:
    return np.from_dlpack(pc.coalesce(cells, False).cast(pa.int8())).astype(bool)


def _hash_text(cells: Any) -> Array:
    """Return 64 bits of each text: the sum of its bytes times odd numbers that depend on their place, scrambled.

    Two texts of n in all have one id with probability n² / 2**65, so that a billion of them may have a pair.
    """
    cells = cells.cast(pa.large_string())
    _, offsets, data = cells.buffers()
    ends = np.frombuffer(offsets, np.int64)[cells.offset : cells.offset + len(cells) + 1]
    text = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    ends = ends - ends[0]
    length = np.diff(ends)
    position = np.arange(len(text)) - np.repeat(ends[:-1], length)
    weight = scramble(np.arange(int(length.max(initial=0)) + 1)).view(np.uint64) | np.uint64(1)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((text + np.uint64(1)) * weight[position])])
    return np.asarray(scramble((sums[ends[1:]] - sums[ends[:-1]]).view(np.int64)))


@dataclass(frozen=True)
class Source:
    """Rows of a file, or of a table in memory. This class reads tables, and NumPy's files as tables.

    An npz has arrays with one row per sample, an npy has one axis, rows and columns, or records.

    Args:
        path: Where it is.
        name: What it is called wherever it lies: its path below the folder that was asked for, or its last part.
        format: One of `FORMATS`.
        delimiter: Between the cells of a csv.
        header: Whether the first line of a csv names the columns, which are called 0, 1, … otherwise. By default it
            must, and a number among the names is refused, as the line may be a row.
        table: The rows, where there is no file.
    """

    path: str
    name: str
    format: str
    delimiter: str = ","
    header: bool | None = None
    table: Any = None

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns; those of a jsonl are its first row's."""
        with self._reading():
            return self._find_names()

    def batches(self, names: Sequence[str], *, rows: bool = False) -> Iterator[Batch]:
        """Read these columns batch by batch; with `rows`, what `write` needs as well."""
        self.check_columns(names)
        first = 0
        with self._reading():
            for part, size, whole in self._read([*dict.fromkeys(names)], rows):
                yield Batch(self, {name: _plain(part.column(name)) for name in names}, size, first, whole)
                first += size

    def write(self, path: str | os.PathLike[str], parts: Parts, extra: Sequence[str] = ()) -> None:
        """Write rows to a file of this kind, which appears once it is whole.

        Args:
            path: The file.
            parts: Batches with their rows, each with a mask of those to write, and the columns to add by name.
            extra: The names of these columns, of numbers.
        """
        for name in sorted({*self.columns} & {*extra}):
            raise InputError(f"{self.shown} has a column {name!r} already, of an earlier selection? rename it first")
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with replacing(path) as file:
            self._write(file, _codec(path), parts, extra)

    @cached_property
    def _table(self) -> Any:
        if self.table is not None:
            return self.table
        with open(self.path, "rb") as file:
            arrays: Any = np.load(file, allow_pickle=False)
            if isinstance(arrays, np.ndarray) and arrays.dtype.names:
                arrays = {name: arrays[name] for name in arrays.dtype.names}
            elif isinstance(arrays, np.ndarray):
                one = arrays.ndim == 1
                arrays = {Path(self.path).stem: arrays} if one else {str(i): c for i, c in enumerate(arrays.T)}
            return pa.table({name: array for name, array in arrays.items() if array.ndim == 1})

    def _find_names(self) -> list[str]:
        return list(self._table.column_names)

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, int, Any]]:
        """Yield columns as a record batch or a table, the number of rows, and the rows in the form of `_write`."""
        for part in self._table.select(names).combine_chunks().to_batches(_ROWS):
            yield part, len(part), None

    def _write(self, file: Any, codec: str | None, parts: Parts, extra: Sequence[str]) -> None:
        raise InputError(f"{self.shown}: of arrays, take x[obrs.select(log_ratio, n)] in Python")

    @property
    def shown(self) -> str:
        """What messages call the file."""
        return _STDIN if os.path.basename(self.path) == _STDIN else self.path

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise unless these columns are there, and no two have one name."""
        for name, times in Counter(self.columns).items():
            if times > 1:
                raise InputError(f"{self.shown} has two columns named {name!r}; rename one")
        for name in [name for name in names if name not in self.columns]:
            near = get_close_matches(name, self.columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(self.columns)}"
            for mark in [mark for mark in ";\t|" if len(self.columns) == 1 and mark in self.columns[0]]:
                why = f"{self.shown} has no column {name!r}; is it divided by {mark!r}? then give"
                raise InputError(why, give={"delimiter": mark})
            raise InputError(f"{self.shown} has no column {name!r}; {hint}")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Name this file in whatever goes wrong while it is read."""
        try:
            yield
        except InputError:
            raise
        except FileNotFoundError as error:
            raise InputError(f"{self.shown} is missing or has vanished") from error
        except (pa.ArrowException, OSError, ValueError, MemoryError, EOFError, zipfile.BadZipFile) as error:
            why = " ".join(str(error).split())[:160]
            why = "it is not UTF-8 text; try iconv -f UTF-16 -t UTF-8" if "utf" in why.lower() else why
            raise InputError(f"{self.shown} cannot be read as {self.format}: {why}") from error


class ParquetSource(Source):
    """A Parquet file; its pages are checked where they have checksums."""

    def _open(self) -> Any:
        return parquet.ParquetFile(self.path, page_checksum_verification=True, buffer_size=1 << 20, pre_buffer=False)

    def _find_names(self) -> list[str]:
        return list(self._open().schema_arrow.names)

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, int, Any]]:
        for part in self._open().iter_batches(_ROWS, columns=None if rows else names, use_threads=False):
            yield part, len(part), part

    def _write(self, file: Any, codec: str | None, parts: Parts, extra: Sequence[str]) -> None:
        """Write row groups of a good size, compressed as the source is."""
        like = self._open()
        schema, waiting = like.schema_arrow, list[Any]()
        for name in extra:
            schema = schema.append(pa.field(name, pa.float64()))
        groups = [like.metadata.row_group(0)] if like.num_row_groups else []
        chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
        packing = chunks[0].compression.lower().replace("uncompressed", "none") if chunks else "snappy"
        # A dictionary of numbers that hardly repeat would take most of the time.
        few = [chunk.path_in_schema for chunk in chunks if chunk.total_uncompressed_size < 4 * chunk.num_values]
        options = {"compression": packing, "use_dictionary": few, "write_page_checksum": True}
        with parquet.ParquetWriter(file, schema, **options) as out:

            def flush() -> None:
                whole = pa.Table.from_batches(waiting, schema)
                out.write_table(whole, row_group_size=max(1, len(whole)))
                waiting.clear()

            for batch, mask, columns in parts:
                # `pa.array` would import pandas where there is one
                bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
                rows = batch.rows.filter(pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits]))
                for name in extra:
                    cells = pa.Array.from_buffers(pa.float64(), len(rows), [None, pa.py_buffer(columns[name])])
                    rows = rows.append_column(name, cells)
                waiting.append(rows)
                if sum(map(len, waiting)) >= _GROUP or sum(part.nbytes for part in waiting) >= 4 * _BLOCK:
                    flush()
            flush()


class TextSource(Source):
    """A csv, tsv or jsonl: rows are parsed for the columns that matter, and written by copying their bytes."""

    def _blocks(self, size: int) -> Iterator[tuple[Array, Array]]:
        """Yield the bytes of whole rows and the length of each, without blank rows.

        A line break of a csv that comes after an odd number of quotes stands inside a cell, and ends no row.
        """
        rest, mark, ended = b"", b"\xef\xbb\xbf", False
        with pa.input_stream(self.path, compression=_codec(self.path)) as stream:
            while not ended:
                more = stream.read(size)
                ended = not more
                data = (rest + (more or b"\n")).removeprefix(mark)  # the last row may have no line break
                text, mark = np.frombuffer(data, np.uint8), b""
                ends, wrong = np.flatnonzero(text == ord("\n")) + 1, False
                if self.format != "jsonl" and b'"' in data:
                    quotes = np.flatnonzero(text == ord('"'))
                    between = np.searchsorted(quotes, ends) % 2 == 1
                    opening = text[quotes[::2][quotes[::2] > 0] - 1]  # what comes before the first of each pair
                    wrong = between.any() and not np.isin(opening, [*f'"\n{self.delimiter}'.encode()]).all()
                    ends = ends[~between]
                end = int(ends[-1]) if len(ends) else 0
                rest = data[end:]
                if wrong or (ended and rest):
                    raise InputError(f"{self.shown}: a quote is never closed, or stands inside a cell")
                if len(rest) > _BLOCK:
                    raise InputError(f"{self.shown}: a row is longer than {_BLOCK:,} bytes")
                if end:
                    text, lengths = text[:end], np.diff(ends, prepend=0)
                    solid = np.logical_or.reduceat(text > ord(" "), ends - lengths)
                    yield text if solid.all() else text[np.repeat(solid, lengths)], lengths[solid]

    @cached_property
    def _first_row(self) -> bytes:
        for block, lengths in self._blocks(1 << 16):
            if len(lengths):
                return block[: lengths[0]].tobytes()
        raise InputError(f"{self.shown} is empty")

    @property
    def _has_header(self) -> bool:
        return self.format != "jsonl" and self.header is not False

    def _find_names(self) -> list[str]:
        if self.format == "jsonl":
            return list(self._parse_row(self._first_row, 0))
        names = self._parse_csv(self._first_row, [], 0, autogenerate_column_names=not self._has_header).column_names
        for name in names if self._has_header else []:
            if self.header is None and name.strip() and _parse_number(name) is not None:
                why = f"line 1 must name the columns, and {name.strip()!r:.60} is a number; is that line a row? give"
                raise InputError(f"{self.shown}, {why}", give={"header": False})
        return [*names] if self._has_header else [str(i) for i in range(len(names))]

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, int, Any]]:
        first, skip = 0, self._has_header
        for block, lengths in self._blocks(_BLOCK):
            if skip and len(lengths):
                block, lengths, skip = block[lengths[0] :], lengths[1:], False
            if len(lengths):
                parse = self._parse_json if self.format == "jsonl" else self._parse_csv
                table = parse(block, names, first) if names else lengths
                if len(table) != len(lengths):
                    raise InputError(f"{self.shown}: rows after row {first} do not end where their lines end")
                yield table, len(lengths), (block, lengths)
                first += len(lengths)

    def _parse_csv(self, data: Any, names: Sequence[str], first: int, **options: Any) -> Any:
        """Parse cells as text: pyarrow by itself would turn 007 into 7 and NA into nothing."""
        text, options = dict.fromkeys(names, pa.large_string()), options or {"column_names": self.columns}
        return arrow_csv.read_csv(
            pa.py_buffer(data),
            arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, **options),
            arrow_csv.ParseOptions(delimiter=self.delimiter),
            arrow_csv.ConvertOptions(include_columns=names, column_types=text),
        )

    def _parse_json(self, block: Array, names: list[str], first: int) -> Any:
        types, row = {str: pa.large_string(), int: pa.int64(), bool: pa.bool_()}, self._parse_row(self._first_row, 0)
        schema = pa.schema([(name, types.get(type(row[name]), pa.float64())) for name in names])
        read = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        try:
            return arrow_json.read_json(pa.py_buffer(block), read, parse)
        except pa.ArrowInvalid:  # cells unlike those of the first row, NaN, or a mistake, which is named here
            rows = [self._parse_row(line, first + i) for i, line in enumerate(block.tobytes().split(b"\n")[:-1])]
            cells = {name: [None if row.get(name) is None else str(row[name]) for row in rows] for name in names}
            return pa.table({name: pa.array(column, pa.large_string()) for name, column in cells.items()})

    def _parse_row(self, line: bytes, number: int) -> dict[str, Any]:
        what = "not a JSON object"
        try:
            row = json.loads(line)
        except RecursionError:
            row, what = None, "not JSON: it is nested too deeply"
        except ValueError as error:
            row, what = None, f"not JSON: {str(error).split(':')[0].lower()}"
        if type(row) is not dict:
            raise InputError(f"{self.shown}, row {number + 1} is {what}")
        return row

    def _write(self, file: Any, codec: str | None, parts: Parts, extra: Sequence[str]) -> None:
        def put(text: Any) -> None:
            file.write(pa.Codec(codec).compress(text, asbytes=True) if codec else text)

        if self._has_header:
            put(self._extend(self._first_row, extra, extra) if extra else self._first_row)
        for batch, mask, columns in parts:
            block, lengths = batch.rows
            text = block[np.repeat(mask, lengths)]
            if extra:
                rows = np.split(text, np.cumsum(lengths[mask])[:-1])
                cells = zip(*(columns[name].tolist() for name in extra), strict=True)
                text = b"".join(self._extend(row.tobytes(), extra, more) for row, more in zip(rows, cells, strict=True))
            put(text)

    def _extend(self, row: bytes, names: Sequence[str], cells: Sequence[Any]) -> bytes:
        """Return a row with more cells."""
        if self.format == "jsonl":
            return row.rstrip()[:-1] + f", {json.dumps(dict(zip(names, cells, strict=True)))[1:]}\n".encode()
        more = [str(cell).removesuffix(".0") for cell in cells]
        return row.rstrip(b"\r\n") + self.delimiter.join(["", *more]).encode() + b"\n"


_SOURCES = {"parquet": ParquetSource, "npy": Source, "npz": Source}  # others are text


def _codec(path: str | os.PathLike[str]) -> str | None:
    return _CODECS.get(Path(path).suffix.lower())


def format_of(path: str, format: str | None = None) -> str | None:
    """Return the one of `FORMATS` that the extension says or, where it says nothing, the one that is asked for."""
    known = Path(path).with_suffix("" if _codec(path) else Path(path).suffix).suffix[1:].lower()
    known = "jsonl" if known == "ndjson" else known
    return known if known in FORMATS else format


def find_sources(
    where: Paths, *, format: str | None = None, delimiter: str | None = None, header: bool | None = None
) -> list[Source]:
    """Return the files of a folder and those below it, of a glob, or of a list, sorted by name.

    Files of a folder that begin with a dot or an underscore, or whose extension is none of ours, are left out.

    Args:
        where: The folder, the glob, one file, `-`, or a list of files.
        format: Of files whose extension says nothing; it does not overrule one that does.
        delimiter: Between the cells of a csv; a comma by default, and a tab for .tsv.
        header: As for `Source`.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("b.csv", "a.tsv.gz", "notes.txt"):
        ...     _ = (folder / name).write_text("id,log_ratio")
        >>> [(s.name, s.format, s.delimiter) for s in find_sources(folder)]
        [('a.tsv.gz', 'tsv', '\\t'), ('b.csv', 'csv', ',')]
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"unknown format {format!r}; choose from {', '.join(FORMATS)}")
    if delimiter is not None and (len(delimiter.encode()) != 1 or delimiter in '"\r\n'):
        raise InputError(f"a delimiter is one character, got {delimiter!r}")
    if isinstance(where, str | os.PathLike) and where != "-" and os.path.isdir(where):
        inside = [os.path.join(root, name) for root, _, files in os.walk(where) for name in files]
        names = {path: os.path.relpath(path, where).replace(os.sep, "/") for path in inside if format_of(path, format)}
        names = {path: name for path, name in names.items() if not re.search(r"(^|/)[._]", name)}
    else:
        try:
            paths = [os.fspath(path) for path in ([where] if isinstance(where, str | os.PathLike) else where)]
        except TypeError as error:
            raise InputTypeError(f"files must be a folder, a glob or a list of paths, got {where!r:.60}") from error
        found = [p for path in paths for p in ([path] if os.path.exists(path) else sorted(glob.glob(path)) or [path])]
        names = {path: os.path.basename(path) for path in found}
    if not names:
        raise InputError(f"{where} has no files of scores; their extensions are {', '.join(FORMATS)}")
    sources = sorted((_source(*item, format, delimiter, header) for item in names.items()), key=lambda s: s.name)
    for first, second in pairwise(sources):
        if first.name == second.name:
            raise InputError(f"{first.path} and {second.path} have one name; give the folder that both are in")
        if {first.format, second.format} - {"csv", "tsv"} and first.format != second.format:
            raise InputError(f"files must be of one format, got {first.path} and {second.path}")
    return sources


def _source(path: str, name: str, format: str | None, delimiter: str | None, header: bool | None) -> Source:
    if path == "-":
        path = _spool(sys.stdin.buffer)
        with open(path, "rb") as file:
            start = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
        format = format or ("jsonl" if start.startswith(b"{") else "csv")
        name = f"stdin.{format}"
    elif not os.path.isfile(path):
        raise InputError(f"{path} is missing or not a file")
    known = format_of(path, format)
    if known is None:
        lines = "write one object per line, as by jq -c '.[]', or " if Path(path).suffix == ".json" else ""
        raise InputError(f"{path}: unknown extension {Path(path).suffix!r}; {lines}choose from {', '.join(FORMATS)}")
    for what, given in (("delimiter", delimiter), ("header", header)):
        if given is not None and known not in ("csv", "tsv"):
            raise InputError(f"{path}: a {what} is for csv and tsv, and {known} has none")
    if known in _SOURCES and _codec(path):
        raise InputError(f"{path}: only text is read packed; unpack it first")
    return _SOURCES.get(known, TextSource)(path, name, known, delimiter or ("\t" if known == "tsv" else ","), header)


@cache
def _spool(stream: Any) -> str:
    """Copy standard input to a file that is removed at exit, since it is read more than once."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, _STDIN)
    with open(path, "wb") as file:
        shutil.copyfileobj(stream, file)
    return path


def read_columns(sources: Sequence[Source], names: Sequence[str]) -> Batch:
    """Return columns of files as one batch in memory."""
    parts = [batch for source in sources for batch in source.batches(names)]
    if not parts:
        raise InputError(f"{sources[0].shown} has no rows")
    columns = {}
    for name in names:
        cells = [part.columns[name] for part in parts]
        if len({array.type for array in cells}) > 1:  # of a jsonl
            wide = pa.large_string() if any(array.type in _TEXT for array in cells) else pa.float64()
            cells = [array.cast(wide) for array in cells]
        columns[name] = _plain(pa.chunked_array(cells))
    return Batch(sources[0], columns, sum(map(len, parts)))


def _plain(cells: Any) -> Any:
    """Return one array without a dictionary."""
    cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
