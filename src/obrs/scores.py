"""Files of scores: find them, read the columns that matter in batches, write rows with all their columns.

Everything is read and written by pyarrow. The cells of a csv are text, so that 007 stays 007; of a jsonl the columns
that matter are parsed, and its lines are written as they are. Text may be packed as .gz or .zst.
"""

import glob
import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
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

__all__ = ["FORMATS", "Batch", "Paths", "Source", "find_sources", "format_of", "read_columns", "to_arrow"]

Array = np.ndarray[Any, Any]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

FORMATS = ("csv", "tsv", "jsonl", "parquet", "npy", "npz")
"""The formats that are read, by extension."""

_CODECS = {".gz": "gzip", ".zst": "zstd"}
_ROWS = 1 << 16  # rows of a batch of a file
_BLOCK = 1 << 23  # bytes of text that are read at once; no row may be longer
_GROUP = 1 << 17  # rows of a row group that is written
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"  # as one writes it: 7, not 007
_NUMBER = r"(?i)^[+-]?([0-9]+\.?[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|inf|infinity|nan)$"
_FAULTS: tuple[Any, ...] = (pa.ArrowException, OSError, ValueError, TypeError, MemoryError, EOFError)
_FAULTS += (RecursionError, OverflowError, zipfile.BadZipFile)
_NESTED = 1000  # brackets of a line of json that pyarrow, whose parser recurses, is given
_TEXT = (pa.string(), pa.large_string())


@dataclass(frozen=True)
class Batch:
    """Some rows of a file."""

    source: "Source"  # of rows of several files the first
    columns: dict[str, Any]  # those that were asked for, arrays of pyarrow by name
    first: int = 0  # how many rows of the file come before
    rows: Any = None  # a table of what is written

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def error(self, wrong: Any, name: str, what: str, **give: Any) -> InputError:
        """Return the error for the first cell of a mask, or for a column; `give` are arguments that would help."""
        place = "" if wrong is None else f", row {self.first + int(np.argmax(wrong)) + 1}"
        return InputError(f"{self.source.path}{place}, column {name!r}: {what}", give=give)

    def numbers(self, name: str, *, skip_bad: bool = False) -> Array:
        """Return a column as float64. What is no number below +inf is an error that says where; if skipped, NaN."""
        cells = self.columns[name]
        if cells.type in _TEXT:
            try:
                cells = cells.cast(pa.float64())
            except pa.ArrowInvalid:  # some have spaces around them, are empty, or are no numbers
                cells = pc.utf8_trim_whitespace(cells)
                known = pc.match_substring_regex(cells, _NUMBER)
                cells = pc.if_else(known, cells, pa.scalar(None, cells.type)).cast(pa.float64())
        if not (pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type) or pa.types.is_null(cells.type)):
            raise self.error(None, name, f"numbers are expected, got {cells.type}")
        cells = cells.cast(pa.float64())
        values = np.from_dlpack(cells.fill_null(nan) if cells.null_count else cells)  # the former imports pandas
        bad = ~(values < inf)  # NaN, too
        if bad.any() and not skip_bad:
            cell = str(self.columns[name][int(np.argmax(bad))]).removeprefix("None")
            what = f"{cell!r:.60} is not a number below +inf, as {bad.sum()} of {len(bad)} cells here"
            raise self.error(bad, name, f"{what}; check what scored them, or leave them out: give", skip_bad=True)
        return np.where(bad, nan, values) if bad.any() else values

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
            raise self.error(_flags(cells.is_null()), name, "no id")
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
            raise self.error(empty, name, "no label")
        return codes, labels


def _flags(cells: Any) -> Array:
    return np.from_dlpack(cells.cast(pa.int8())).astype(bool)


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


def to_arrow(values: Array) -> Any:
    """Return booleans or floats as an array of pyarrow; `pa.array` would import pandas where there is one."""
    data = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(data)])


@dataclass(frozen=True)
class Source:
    """Rows of a file. This class is for tables in memory: arrays of NumPy, and blocks of Ray."""

    path: str
    name: str  # wherever the file lies: its path below the folder that was asked for, or its last part
    format: str = ""
    delimiter: str = ","  # between the cells of a csv
    header: bool = True  # whether the first line of a csv names the columns, which are called 0, 1, … otherwise
    table: Any = None  # the rows, where there is no file

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns; those of a jsonl are its first row's."""
        with self._reading():
            return self._find_names()

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise unless these columns are there, and no two have one name."""
        for name in [name for name in self.columns if self.columns.count(name) > 1]:
            raise InputError(f"{self.path} has two columns named {name!r}; rename one")
        for name in [name for name in names if name not in self.columns]:
            raise InputError(f"{self.path} has no column {name!r}; it has {', '.join(self.columns):.200}")

    def batches(self, names: Sequence[str], *, rows: bool = False) -> Iterator[Batch]:
        """Read these columns batch by batch; with `rows`, what is written as well."""
        self.check_columns(names)
        first = 0
        with self._reading():
            for part, whole in self._read([*dict.fromkeys(names)], rows):
                yield Batch(self, {name: _plain(part.column(name)) for name in names}, first, whole)
                first += len(part)

    def write(self, path: str | os.PathLike[str], tables: Iterable[Any], added: Sequence[str] = ()) -> None:
        """Write tables of rows, with columns of numbers that were added, to a file, which appears once it is whole."""
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with replacing(path) as file:
            self._write(file, tables, added, _CODECS.get(Path(path).suffix.lower()))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Name this file in whatever goes wrong while it is read."""
        try:
            yield
        except InputError:
            raise
        except _FAULTS as error:
            why = " ".join(str(error).split())[:160]
            raise InputError(f"{self.path} cannot be read: {why}") from error

    @cached_property
    def _table(self) -> Any:
        if self.table is not None:
            return self.table
        with open(self.path, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            arrays = {Path(self.path).stem: arrays} if isinstance(arrays, np.ndarray) else dict(arrays)
            return pa.table({name: array for name, array in arrays.items() if array.ndim == 1})

    def _find_names(self) -> list[str]:
        return list(self._table.column_names)

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        """Yield the columns as a table or a record batch, and a table of what is written."""
        if len(self._table):
            yield self._table, self._table

    def _write(self, file: Any, tables: Iterable[Any], added: Sequence[str], codec: str | None) -> None:
        raise InputError(f"{self.path}: rows of arrays are not written")


class ParquetSource(Source):
    """A Parquet file; its pages are checked where they have checksums."""

    def _open(self) -> Any:
        return parquet.ParquetFile(self.path, page_checksum_verification=True, buffer_size=1 << 20, pre_buffer=False)

    def _find_names(self) -> list[str]:
        return list(self._open().schema_arrow.names)

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        for part in self._open().iter_batches(_ROWS, columns=None if rows else names, use_threads=False):
            yield part, pa.Table.from_batches([part])

    def _write(self, file: Any, tables: Iterable[Any], added: Sequence[str], codec: str | None) -> None:
        """Write row groups of a good size, compressed as the source is."""
        like = self._open()
        schema = like.schema_arrow
        for name in added:
            schema = schema.append(pa.field(name, pa.float64()))
        waiting = [pa.Table.from_batches([], schema)]
        groups = [like.metadata.row_group(0)] if like.num_row_groups else []
        chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
        packing = chunks[0].compression.lower().replace("uncompressed", "none") if chunks else "snappy"
        # A dictionary of numbers that hardly repeat would take most of the time.
        few = [chunk.path_in_schema for chunk in chunks if chunk.total_uncompressed_size < 4 * chunk.num_values]
        options = {"compression": packing, "use_dictionary": few, "write_page_checksum": True}
        with parquet.ParquetWriter(file, schema, **options) as out:
            for table in tables:
                waiting.append(table)
                if sum(map(len, waiting)) >= _GROUP or sum(part.nbytes for part in waiting) >= 4 * _BLOCK:
                    out.write_table(pa.concat_tables(waiting), _GROUP)
                    del waiting[1:]
            out.write_table(pa.concat_tables(waiting), _GROUP)


class _Quotes:
    """A stream that counts its quotation marks, and knows its last byte that ends no line."""

    closed = False  # pyarrow asks

    def __init__(self, stream: Any) -> None:
        self.stream, self.count, self.end = stream, 0, b""

    def read(self, size: int) -> bytes:
        """Read some bytes."""
        data: bytes = self.stream.read(size)
        self.count += data.count(b'"')
        self.end = (self.end + data[-9:]).rstrip(b"\r\n")[-1:] or self.end
        return data


class CsvSource(Source):
    """A csv or tsv. Its cells are text: by itself, pyarrow would turn 007 into 7 and NA into nothing."""

    def _stream(self) -> Any:
        return pa.input_stream(self.path, compression=_CODECS.get(Path(self.path).suffix.lower()))

    def _open(self, known: Sequence[str] = (), names: Sequence[str] = (), stream: Any = None, **options: Any) -> Any:
        quote: Any = '"' if self.format != "jsonl" else False
        return arrow_csv.open_csv(
            stream or self._stream(),
            arrow_csv.ReadOptions(**{"use_threads": False, "block_size": _BLOCK, **options}),
            arrow_csv.ParseOptions(delimiter=self.delimiter, quote_char=quote, newlines_in_values=bool(quote)),
            arrow_csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(known, pa.string())),
        )

    def _find_names(self) -> list[str]:
        if self._stream().read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise InputError(f"{self.path} is UTF-16, not UTF-8; convert it with iconv -f UTF-16 -t UTF-8")
        names = self._open(block_size=1 << 20, autogenerate_column_names=not self.header).schema.names
        for name in names if self.header else []:
            if re.match(_NUMBER, name.strip()):
                why = f"line 1 must name the columns, and {name.strip()!r:.60} is a number; is that line a row? give"
                raise InputError(f"{self.path}, {why}", give={"header": False})
        return list(names) if self.header else [str(i) for i in range(len(names))]

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        options = {} if self.header else {"column_names": self.columns}
        bytes_read = _Quotes(self._stream())
        for part in _cut(self._open(self.columns, [] if rows else names, pa.PythonFile(bytes_read, "r"), **options)):
            yield part, pa.Table.from_batches([part])
        # pyarrow does not tell that a cell is never closed; the marks may be even in number if one stands inside a cell
        suspect = bytes_read.count % 2 or (bytes_read.count and bytes_read.end != b'"')
        if suspect and re.search("[\r\n]", self._last_cell):
            what = "a quotation mark is never closed; put the cell that has it in quotes, and double it"
            raise InputError(f"{self.path}: {what}")

    @cached_property
    def _last_cell(self) -> str:
        """The last cell of the file, read once for all passes."""
        options = {} if self.header else {"column_names": self.columns}
        *_, last = _cut(self._open(self.columns, self.columns[-1:], **options))
        return str(last.column(0)[-1].as_py())

    def _write(self, file: Any, tables: Iterable[Any], added: Sequence[str], codec: str | None) -> None:
        def put(data: bytes) -> None:
            file.write(pa.Codec(codec).compress(data, asbytes=True) if codec else data)

        if self.header:
            put(self._quote([[*self.columns, *added]]))
        for table in tables:
            put(self._to_text(table))

    def _to_text(self, table: Any) -> bytes:
        """Return rows as text, with quotes around the cells that need them."""
        options = arrow_csv.WriteOptions(include_header=False, delimiter=self.delimiter, quoting_style="none")
        try:
            arrow_csv.write_csv(table, out := pa.BufferOutputStream(), options)
            return bytes(out.getvalue())
        except pa.ArrowInvalid:  # some cells need quotes
            return self._quote(zip(*(cells.to_pylist() for cells in table.columns), strict=True))

    def _quote(self, rows: Iterable[Sequence[Any]]) -> bytes:
        special = re.compile(f'["\r\n{re.escape(self.delimiter)}]')
        texts = ([str(cell) for cell in row] for row in rows)
        quoted = (['"' + t.replace('"', '""') + '"' if special.search(t) else t for t in row] for row in texts)
        return "".join(f"{self.delimiter.join(row)}\n" for row in quoted).encode()


class JsonSource(CsvSource):
    """A jsonl: its lines are read as a csv of one column, and the columns that matter are parsed."""

    def _lines(self) -> Iterator[Any]:
        return _cut(self._open(["line"], column_names=["line"]))

    def _find_names(self) -> list[str]:
        for part in self._lines():
            return list(dict(json.loads(part.column(0)[0].as_py())))
        raise InputError(f"{self.path} is empty")

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        for part in self._lines():
            yield self._parse(part.column(0), names), pa.Table.from_batches([part])

    def _parse(self, lines: Any, names: list[str]) -> Any:
        """Parse lines by pyarrow, or one by one if it fails, takes texts for dates, or other columns change type."""
        ends = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset :][: len(lines) + 1]
        data = lines.buffers()[2][int(ends[0]) : int(ends[-1])]
        if max(pc.max(pc.count_substring(lines, opening)).as_py() for opening in "[{") <= _NESTED:
            with suppress(pa.ArrowInvalid, KeyError):
                options = arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
                table = arrow_json.read_json(pa.BufferReader(data), options).select(names)
                if len(table) == len(lines) and not any(pa.types.is_temporal(column.type) for column in table.columns):
                    return table
        cells = [dict(json.loads(line)) for line in lines.to_pylist()]
        return pa.table({name: [row.get(name) for row in cells] for name in names})

    def _to_text(self, table: Any) -> bytes:
        lines, *added = (cells.to_pylist() for cells in table.columns)
        if added:
            more = (dict(zip(table.column_names[1:], cells, strict=True)) for cells in zip(*added, strict=True))
            lines = [f"{line.rstrip()[:-1]}, {json.dumps(cells)[1:]}" for line, cells in zip(lines, more, strict=True)]
        return "".join(f"{line}\n" for line in lines).encode()


def _cut(blocks: Iterable[Any]) -> Iterator[Any]:
    """Yield blocks of rows in parts of a good size."""
    for block in blocks:
        yield from (block.slice(first, _ROWS) for first in range(0, len(block), _ROWS))


def format_of(path: str | os.PathLike[str]) -> str | None:
    """Return the one of `FORMATS` that the extension says, or None; only text may be packed."""
    *_, known, last = ("", "", *Path(path).name.lower().split("."))
    known = known if f".{last}" in _CODECS and known in ("csv", "tsv", "jsonl") else last
    return known if known in FORMATS else None


_READERS: dict[str, tuple[type[Source], str]]  # and what stands between cells; no line of JSON has \x1f
_READERS = {
    "parquet": (ParquetSource, ""),
    "csv": (CsvSource, ","),
    "tsv": (CsvSource, "\t"),
    "jsonl": (JsonSource, "\x1f"),
}


def find_sources(where: Paths, *, delimiter: str | None = None, header: bool = True) -> list[Source]:
    """Return the files of a folder and those below it, of a glob, or of a list, sorted by name.

    Files of a folder that begin with a dot or an underscore, or whose extension is none of ours, are left out.

    Args:
        where: The folder, the glob, one file, or a list of files.
        delimiter: Between the cells of a csv; a comma by default, and a tab for .tsv.
        header: Whether the first line of a csv names the columns.
    """
    if delimiter is not None and (len(delimiter.encode()) != 1 or delimiter in '"\r\n'):
        raise InputError(f"a delimiter is one character, got {delimiter!r}")
    try:
        paths = [os.fspath(path) for path in ([where] if isinstance(where, str | os.PathLike) else where)]
    except TypeError as error:
        raise InputTypeError(f"files must be a folder, a glob or a list of paths, got {where!r:.60}") from error
    names: dict[str, str] = {}
    for path in paths:
        if os.path.isdir(path) and len(paths) == 1:
            inside = [os.path.join(root, name) for root, _, files in os.walk(path) for name in files]
            below = {file: os.path.relpath(file, path).replace(os.sep, "/") for file in inside if format_of(file)}
            names |= {file: name for file, name in below.items() if not re.search(r"(^|/)[._]", name)}
        else:
            found = [path] if os.path.exists(path) else glob.glob(path) or [path]
            names |= {file: os.path.basename(file) for file in found}
    if not names:
        raise InputError(f"{where} has no files of scores; their extensions are {', '.join(FORMATS)}")
    sources: list[Source] = []
    for path, name in sorted(names.items(), key=lambda item: item[1]):
        known = format_of(path)
        if not os.path.isfile(path):
            raise InputError(f"{path} is missing or not a file")
        if known is None:
            raise InputError(f"{path}: unknown extension {Path(path).suffix!r}; choose from {', '.join(FORMATS)}")
        if sources and name == sources[-1].name:
            raise InputError(f"{path} and {sources[-1].path} have one name; give the folder that both are in")
        kind, between = _READERS.get(known, (Source, ""))
        between, header = (delimiter or between, header) if kind is CsvSource else (between, False)
        sources.append(kind(path, name, known, between, header))
    if len(formats := {source.format.replace("tsv", "csv") for source in sources}) > 1:
        raise InputError(f"files must be of one format, got {', '.join(sorted(formats))}")
    return sources


def read_columns(sources: Sequence[Source], names: Sequence[str]) -> Batch:
    """Return columns of files as one batch in memory."""
    tables = [pa.table(batch.columns) for source in sources for batch in source.batches(names)]
    if not tables:
        raise InputError(f"{sources[0].path} has no rows")
    with sources[0]._reading():
        table = pa.concat_tables(tables, promote_options="permissive")
    return Batch(sources[0], {name: _plain(table.column(name)) for name in names})


def _plain(cells: Any) -> Any:
    """Return one array without a dictionary."""
    cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
