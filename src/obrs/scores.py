"""Files of scores: find them, read the columns that matter in batches, write rows with all their columns.

Parquet, CSV and JSON lines go batch by batch through pyarrow, NumPy files are read whole. Cells of a csv stay the text
that they are, and lines of a jsonl the bytes. Text may be packed as .gz or .zst, and `-` is standard input.
"""

import atexit
import csv
import glob
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from itertools import pairwise
from math import inf
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

__all__ = ["FORMATS", "Batch", "Paths", "Source", "TableSource", "find_sources", "format_of", "read_columns"]

Array = np.ndarray[Any, Any]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Write = Callable[["Batch", Array, Mapping[str, Array]], None]

FORMATS = ("csv", "tsv", "jsonl", "parquet", "npy", "npz")
"""The formats that are read, by extension."""

_CODECS = {".gz": "gzip", ".zst": "zstd"}
_ROWS = 1 << 16  # rows of a batch
_BLOCK = 1 << 23  # bytes of text that are parsed at once; no row may be longer
_GROUP = 1 << 17  # rows of a row group that is written
_NUMBER = r"^([+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?)$"
_EMPTY = ("", "na", "n/a", "nan", "null", "none")  # cells that say: no number here
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"  # as one writes it: 7, not 007
_STDIN = "standard input"
_TEXT = (pa.string(), pa.large_string())


@dataclass(frozen=True)
class Batch:
    """Some rows of a file.

    Args:
        source: The file; of rows of several files the first.
        columns: Those that were asked for, arrays of pyarrow by name.
        first: How many rows of the file come before these.
        rows: The rows with all columns, as the source writes them.
    """

    source: "Source"
    columns: dict[str, Any]
    first: int = 0
    rows: Any = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def error(self, row: int | None, name: str, what: str) -> InputError:
        """Return the error for a cell, or for a column if `row` is None."""
        place = "" if row is None else f", row {self.first + row + 1}"
        return InputError(f"{self.source.shown}{place}, column {name!r}: {what}")

    def numbers(self, name: str, *, skip_bad: bool = False) -> Array:
        """Return a column as float64. What is no number below +inf is an error that says where; if skipped, NaN."""
        values = self.floats(name, skip_bad=skip_bad)
        bad = ~(values < inf)  # NaN, too
        if bad.any() and not skip_bad:
            what = f"empty, NaN or +inf, as in {bad.sum()} of {len(bad)} rows here"
            todo = "check what scored them, or leave them out where there is --skip-bad (skip_bad=True)"
            raise self.error(int(np.argmax(bad)), name, f"{what}; {todo}")
        return np.where(bad, np.nan, values) if bad.any() else values

    def floats(self, name: str, *, skip_bad: bool = False) -> Array:
        """Return a column as float64, NaN where a cell is empty; other text is an error, or if skipped NaN."""
        cells = self.columns[name]
        if cells.type in _TEXT:
            cells = self._parse_numbers(cells, name, skip_bad)
        if not (pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type) or pa.types.is_null(cells.type)):
            raise self.error(None, name, f"numbers are expected, got {cells.type}")
        cells = cells.cast(pa.float64())
        return np.from_dlpack(cells.fill_null(np.nan) if cells.null_count else cells)

    def _parse_numbers(self, cells: Any, name: str, skip_bad: bool) -> Any:
        try:
            return cells.cast(pa.float64())
        except pa.ArrowInvalid:  # some are empty, have spaces or a plus before them, or are no numbers
            cells = pc.utf8_trim_whitespace(cells)
            number = pc.match_substring_regex(cells, _NUMBER, ignore_case=True)
        known = pc.or_(number, pc.is_in(pc.utf8_lower(cells), pa.array(_EMPTY, cells.type)))
        wrong = _flags(pc.invert(known))
        if wrong.any() and not skip_bad:
            row = int(np.argmax(wrong))
            raise self.error(row, name, f"{cells[row].as_py()!r:.60} is not a number")
        return pc.if_else(number, pc.utf8_ltrim(cells, "+"), pa.scalar(None, cells.type)).cast(pa.float64())

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
class Source(ABC):
    """A file of rows.

    Args:
        path: Where it is.
        name: What it is called wherever it lies: its path below the folder that was asked for, or its last part.
        format: One of `FORMATS`.
        delimiter: Between the cells of a csv.
        header: Whether the first line of a csv names the columns, which are called 0, 1, … otherwise. By default it
            must, and a number among the names is refused, as the line may be a row.
    """

    path: str
    name: str
    format: str
    delimiter: str = ","
    header: bool | None = None

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns; those of a jsonl are its first row's."""
        with self._reading():
            return self._find_names()

    @abstractmethod
    def _find_names(self) -> list[str]: ...

    @abstractmethod
    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        """Yield columns as a record batch or a table, and rows in the form that `_writer` takes."""

    def _writer(self, file: Any, extra: Sequence[str]) -> AbstractContextManager[Write]:
        """Yield the function of `write`."""
        raise InputError(f"{self.shown}: of arrays, take x[obrs.select(log_ratio, n)] in Python")

    @property
    def shown(self) -> str:
        """What messages call the file."""
        return _STDIN if os.path.basename(self.path) == _STDIN else self.path

    def batches(self, names: Sequence[str], *, rows: bool = False) -> Iterator[Batch]:
        """Read these columns batch by batch; with `rows`, what `write` needs as well."""
        self.check_columns(names)
        first = 0
        with self._reading():
            for part, whole in self._read([*dict.fromkeys(names)], rows):
                yield Batch(self, {name: _plain(part.column(name)) for name in names}, first, whole)
                first += len(part)

    @contextmanager
    def write(self, path: str | os.PathLike[str], extra: Sequence[str] = ()) -> Iterator[Write]:
        """Write rows to a file of this kind, which appears once it is whole.

        Yields:
            A function of a batch with its rows, a mask of those to write, and the columns `extra` of numbers to add.
        """
        for name in sorted({*self.columns} & {*extra}):
            raise InputError(f"{self.shown} has a column {name!r} already; rename it first")
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        codec = _CODECS.get(Path(path).suffix.lower())
        with replacing(path) as file, self._writer(_Packed(file, codec) if codec else file, extra) as write:
            yield write

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise unless these columns are there, and no two have one name."""
        for name, times in Counter(self.columns).items():
            if times > 1:
                raise InputError(f"{self.shown} has two columns named {name!r}; rename one")
        for name in [name for name in names if name not in self.columns]:
            near = get_close_matches(name, self.columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(self.columns)}"
            for mark in [mark for mark in ";\t|" if len(self.columns) == 1 and mark in self.columns[0]]:
                hint = f"is it divided by {mark!r}? then give --delimiter {mark!r} (delimiter=)"
            raise InputError(f"{self.shown} has no column {name!r}; {hint}")

    @contextmanager
    def _unpacked(self) -> Iterator[Any]:
        with pa.OSFile(self.path, "rb") as raw:
            codec = _CODECS.get(Path(self.path).suffix.lower())
            yield raw if codec is None else pa.CompressedInputStream(raw, codec)

    def _parse_text(self, parse: Any, convert: Any, **read: Any) -> Iterator[Any]:
        """Yield batches of text, parsed block by block."""
        options = arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK, **read)
        with self._unpacked() as stream:
            yield from (part for part in arrow_csv.open_csv(stream, options, parse, convert) if len(part))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Name this file in whatever goes wrong while it is read."""
        try:
            yield
        except FileNotFoundError as error:
            raise InputError(f"{self.shown} is missing or has vanished") from error
        except (pa.ArrowException, OSError, ValueError, MemoryError, EOFError, csv.Error, zipfile.BadZipFile) as error:
            if isinstance(error, InputError):
                raise
            why = " ".join(str(error).split())[:160]
            long = f"a row is longer than {_BLOCK:,} bytes"
            for word, plain in (("utf", "it is not UTF-8 text"), ("empty csv", "it is empty"), ("straddl", long)):
                why = plain if word in why.lower() else why
            raise InputError(f"{self.shown} cannot be read as {self.format}: {why}") from error


class ParquetSource(Source):
    """A Parquet file; its pages are checked where they have checksums."""

    def _open(self) -> Any:
        return parquet.ParquetFile(self.path, page_checksum_verification=True, buffer_size=1 << 20, pre_buffer=False)

    def _find_names(self) -> list[str]:
        return list(self._open().schema_arrow.names)

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        for part in self._open().iter_batches(_ROWS, columns=None if rows else names, use_threads=False):
            yield part, part

    @contextmanager
    def _writer(self, file: Any, extra: Sequence[str]) -> Iterator[Write]:
        """Write row groups of a good size, compressed as the source is."""
        like = self._open()
        schema = like.schema_arrow
        groups = [like.metadata.row_group(0)] if like.num_row_groups else []
        chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
        codec = chunks[0].compression.lower().replace("uncompressed", "none") if chunks else "snappy"
        # A dictionary of numbers that hardly repeat would take most of the time.
        few = [chunk.path_in_schema for chunk in chunks if chunk.total_uncompressed_size < 4 * chunk.num_values]
        for name in extra:
            schema = schema.append(pa.field(name, pa.float64()))
        waiting: list[Any] = []
        with parquet.ParquetWriter(
            file, schema, compression=codec, use_dictionary=few, write_page_checksum=True
        ) as out:

            def write(batch: Batch | None, mask: Array, columns: Mapping[str, Array]) -> None:
                if batch is not None:
                    waiting.append(_take(batch, mask, columns, extra))
                if batch is None or max(sum(map(len, waiting)) / _GROUP, sum(b.nbytes for b in waiting) / 2**25) >= 1:
                    whole = pa.Table.from_batches(waiting, schema)
                    out.write_table(whole, row_group_size=max(1, len(whole)))
                    waiting.clear()

            yield write
            write(None, np.zeros(0), {})


class CsvSource(Source):
    """A csv or tsv, all of whose cells are text: pyarrow by itself would turn 007 into 7 and NA into nothing."""

    def _find_names(self) -> list[str]:
        with self._unpacked() as stream:
            text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
            names = next((row for row in csv.reader(text, delimiter=self.delimiter) if row), None)
        if names is None:
            raise InputError(f"{self.shown} is empty")
        if self.header is False:
            return [str(i) for i in range(len(names))]
        for name in names:
            if self.header is None and re.fullmatch(f"{_NUMBER}|nan", name.strip(), re.IGNORECASE):
                raise InputError(
                    f"{self.shown}, line 1 must name the columns, and {name.strip()!r:.60} is a number; if that line "
                    "is a row, give --no-header (header=False), and if it is a name, --header (header=True)"
                )
        return names

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        with self._unpacked() as stream:  # pyarrow would lose the rows after an open quote in silence
            if sum(block.count(b'"') for block in iter(lambda: stream.read(_BLOCK), b"")) % 2:
                raise InputError(f"{self.shown}: a quote is never closed, or stands inside a cell")
        inner = [f"f{name}" if self.header is False else name for name in (self.columns if rows else names)]
        parse = arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
        text = dict.fromkeys(inner, pa.large_string())
        convert = arrow_csv.ConvertOptions(include_columns=inner, column_types=text)
        for part in self._parse_text(parse, convert, autogenerate_column_names=self.header is False):
            part = part.rename_columns(self.columns if rows else names)
            yield part, part

    @contextmanager
    def _writer(self, file: Any, extra: Sequence[str]) -> Iterator[Write]:
        plain = arrow_csv.WriteOptions(include_header=False, delimiter=self.delimiter, quoting_style="none")

        def put(rows: Any) -> None:
            text = io.StringIO(newline="")
            csv.writer(text, delimiter=self.delimiter, lineterminator="\n").writerows(rows)
            file.write(text.getvalue().encode())

        def write(batch: Batch, mask: Array, columns: Mapping[str, Array]) -> None:
            rows, sink = _take(batch, mask, columns, extra), pa.BufferOutputStream()
            try:
                arrow_csv.write_csv(rows, sink, plain)
                file.write(sink.getvalue())
            except pa.ArrowInvalid:  # some cells need quotes
                put(zip(*(column.to_pylist() for column in rows.columns), strict=True))

        put([] if self.header is False else [[*self.columns, *extra]])
        yield write


class JsonSource(Source):
    """A jsonl, whose lines are written as they were: rows keep their keys and nesting."""

    def _lines(self) -> Iterator[Any]:
        """Yield batches of lines that are not blank; JSON has no raw control characters, so none is divided."""
        parse = arrow_csv.ParseOptions(delimiter="\x01", quote_char=False)
        convert = arrow_csv.ConvertOptions(column_types={"line": pa.large_string()})
        for part in self._parse_text(parse, convert, column_names=["line"]):
            part = part.filter(pc.not_equal(pc.utf8_trim_whitespace(part.column("line")), ""))
            if len(part):
                yield part

    @cached_property
    def _first_row(self) -> dict[str, Any]:
        for part in self._lines():
            return self._parse_row(part.column("line")[0].as_py(), 0)
        raise InputError(f"{self.shown} is empty")

    def _find_names(self) -> list[str]:
        return list(self._first_row)

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        types, before = {str: pa.large_string(), int: pa.int64(), bool: pa.bool_()}, 0
        schema = pa.schema([(name, types.get(type(self._first_row[name]), pa.float64())) for name in names])
        for part in self._lines():
            lines = part.column("line").to_pylist()
            data = "\n".join(lines).encode()
            read = arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
            parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
            try:
                table = arrow_json.read_json(pa.py_buffer(data), read, parse)
            except pa.ArrowInvalid:  # cells unlike those of the first row, NaN, or a mistake, which is named here
                every = [self._parse_row(line, before + i) for i, line in enumerate(lines)]
                table = pa.table({name: _as_column([row.get(name) for row in every]) for name in names})
            if len(table) != len(lines):
                raise InputError(f"{self.shown} has two objects on one line after row {before}")
            yield table, part
            before += len(lines)

    def _parse_row(self, line: str, number: int) -> dict[str, Any]:
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

    @contextmanager
    def _writer(self, file: Any, extra: Sequence[str]) -> Iterator[Write]:
        def write(batch: Batch, mask: Array, columns: Mapping[str, Array]) -> None:
            for line, *cells in zip(
                *(column.to_pylist() for column in _take(batch, mask, columns, extra)), strict=True
            ):
                more = json.dumps(dict(zip(extra, cells, strict=True)))
                file.write(f"{line.rstrip()[:-1]}, {more[1:]}\n".encode() if extra else f"{line.rstrip()}\n".encode())

        yield write


@dataclass(frozen=True)
class TableSource(Source):
    """A table of pyarrow, read as if it were a file: a block of a dataset or, without one, the arrays of NumPy's file.

    An npz has arrays with one row per sample, an npy has one axis, rows and columns, or records.
    """

    path: str = "a block of the dataset"
    name: str = "block"
    format: str = "parquet"
    table: Any = None

    @cached_property
    def _table(self) -> Any:
        if self.table is not None:
            return self.table
        with open(self.path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = loaded if not isinstance(loaded, np.ndarray) else None
            if arrays is None and loaded.dtype.names:
                arrays = {name: loaded[name] for name in loaded.dtype.names}
            elif arrays is None:
                one = loaded.ndim == 1
                arrays = {Path(self.path).stem: loaded} if one else {str(i): c for i, c in enumerate(loaded.T)}
            return pa.table({name: array for name, array in arrays.items() if array.ndim == 1})

    def _find_names(self) -> list[str]:
        return list(getattr(self._table, "schema", self._table).names)

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        for part in self._table.select(names).combine_chunks().to_batches(_ROWS):
            yield part, None


_SOURCES: dict[str, type[Source]] = {
    "csv": CsvSource,
    "tsv": CsvSource,
    "jsonl": JsonSource,
    "parquet": ParquetSource,
    "npy": TableSource,
    "npz": TableSource,
}


class _Packed:
    """A file that packs what is written to it, part by part."""

    def __init__(self, file: Any, codec: str) -> None:
        self.file, self.codec = file, pa.Codec(codec)

    def write(self, data: bytes) -> None:
        self.file.write(self.codec.compress(data, asbytes=True))


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
        if type(first) is not type(second):
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
    if (known := format_of(path, format)) is None:
        raise InputError(f"{path}: unknown extension {Path(path).suffix!r}; choose from {', '.join(FORMATS)}")
    kind = _SOURCES[known]
    for what, given in (("delimiter", delimiter), ("header", header)):
        if given is not None and kind is not CsvSource:
            raise InputError(f"{path}: a {what} is for csv and tsv, and {known} has none")
    if kind in (ParquetSource, TableSource) and Path(path).suffix.lower() in _CODECS:
        raise InputError(f"{path}: only text is read packed; unpack it first")
    return kind(path, name, known, delimiter or ("\t" if known == "tsv" else ","), header)


@cache
def _spool(stream: Any) -> str:
    """Copy standard input to a file that is removed at exit, since it is read more than once."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, _STDIN)
    with open(path, "wb") as file:
        shutil.copyfileobj(stream, file)
    return path


def format_of(path: str, format: str | None = None) -> str | None:
    """Return the one of `FORMATS` that the extension says or, where it says nothing, the one that is asked for."""
    inner = Path(path).with_suffix("") if Path(path).suffix.lower() in _CODECS else Path(path)
    known = inner.suffix[1:].lower().replace("ndjson", "jsonl")
    return known if known in FORMATS else format


def read_columns(sources: Sequence[Source], names: Sequence[str]) -> Batch:
    """Return columns of files as one batch in memory."""
    parts = [batch.columns for source in sources for batch in source.batches(names)]
    if not parts:
        raise InputError(f"{sources[0].shown} has no rows")
    columns = {}
    for name in names:
        cells = [part[name] for part in parts]
        if len({array.type for array in cells}) > 1:  # of a jsonl
            wide = pa.large_string() if any(array.type in _TEXT for array in cells) else pa.float64()
            cells = [array.cast(wide) for array in cells]
        columns[name] = _plain(pa.chunked_array(cells))
    return Batch(sources[0], columns)


def _plain(cells: Any) -> Any:
    """Return one array without a dictionary."""
    cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells


def _flags(cells: Any) -> Array:
    return np.from_dlpack(pc.coalesce(cells, False).cast(pa.int8())).astype(bool)


def _take(batch: Batch, mask: Array, columns: Mapping[str, Array], extra: Sequence[str]) -> Any:
    """Return the rows of a mask, with more columns of numbers; `pa.array` would import pandas where there is one."""
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    rows = batch.rows.filter(pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits]))
    for name in extra:
        cells = pa.Array.from_buffers(pa.float64(), len(rows), [None, pa.py_buffer(columns[name])])
        rows = rows.append_column(name, cells)
    return rows


def _as_column(cells: list[Any]) -> Any:
    """Return values of JSON as a column of one type, or else of text."""
    try:
        return pa.array(cells)
    except (pa.ArrowException, OverflowError):
        text = [cell if cell is None or isinstance(cell, str) else json.dumps(cell) for cell in cells]
        return pa.array(text, pa.large_string())
