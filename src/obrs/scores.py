"""Files of scores: find them, read the columns that matter in batches, write rows with all their columns.

Parquet and NumPy files are tables. Of a csv or jsonl, blocks of whole rows are read, only the columns that matter are
parsed, and rows are written by copying their bytes. Text may be packed as .gz or .zst.
"""

import glob
import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
Parts = Iterator[tuple["Batch", Array, Mapping[str, Array]]]

FORMATS = ("csv", "tsv", "jsonl", "parquet", "npy", "npz")
"""The formats that are read, by extension."""

_CODECS = {".gz": "gzip", ".zst": "zstd"}
_ROWS = 1 << 16  # rows of a batch of a Parquet file
_BLOCK = 1 << 23  # bytes of text that are read at once; no row may be longer
_GROUP = 1 << 17  # rows of a row group that is written
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"  # as one writes it: 7, not 007
_NUMBER = r"(?i)^[+-]?([0-9]+\.?[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|inf|infinity|nan)$"
_TEXT = (pa.string(), pa.large_string())
_INTEGERS = (pa.int64(), pa.uint64(), pa.float64())  # what a column of a jsonl may be that begins with an integer


@dataclass(frozen=True)
class Batch:
    """Some rows of a file."""

    source: "Source"  # of rows of several files the first
    columns: dict[str, Any]  # those that were asked for, arrays of pyarrow by name
    first: int = 0  # how many rows of the file come before
    rows: Any = None  # with all columns, as the source writes them

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def error(self, wrong: Any, name: str, what: str, **give: Any) -> InputError:
        """Return the error for the first cell of a mask, or for a column; `give` are arguments that would help."""
        place = "" if wrong is None else f", row {self.first + int(np.argmax(wrong)) + 1}"
        return InputError(f"{self.source.path}{place}, column {name!r}: {what}", give=give)

    def numbers(self, name: str, *, skip_bad: bool = False) -> Array:
        """Return a column as float64. What is no number below +inf is an error that says where; if skipped, NaN."""
        values = self.floats(name)
        bad = ~(values < inf)  # NaN, too
        if bad.any() and not skip_bad:
            cell = str(self.columns[name][int(np.argmax(bad))]).removeprefix("None")
            what = f"{cell!r:.60} is not a number below +inf, as {bad.sum()} of {len(bad)} cells here"
            hint = "write decimals with a point" if "," in cell else "check what scored them"
            raise self.error(bad, name, f"{what}; {hint}, or leave them out: give", skip_bad=True)
        return np.where(bad, nan, values) if bad.any() else values

    def floats(self, name: str) -> Array:
        """Return a column as float64, NaN where a cell is no number."""
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
        """Read these columns batch by batch; with `rows`, what `write` needs as well."""
        self.check_columns(names)
        first = 0
        with self._reading():
            for part, whole in self._read([*dict.fromkeys(names)], rows):
                yield Batch(self, {name: _plain(part.column(name)) for name in names}, first, whole)
                first += len(part)

    def write(self, path: str | os.PathLike[str], parts: Parts, extra: Sequence[str] = ()) -> None:
        """Write rows to a file of this kind, packed as its name says, which appears once it is whole.

        `parts` are batches with their rows, masks of those to write, and columns of numbers to add, named in `extra`.
        """
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with replacing(path) as file:
            self._write(file, parts, extra, _CODECS.get(Path(path).suffix.lower()))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Name this file in whatever goes wrong while it is read."""
        try:
            yield
        except InputError:
            raise
        except (pa.ArrowException, OSError, ValueError, MemoryError, EOFError, zipfile.BadZipFile) as error:
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
        """Yield columns as a record batch or a table, and the rows in the form of `_write`."""
        if len(self._table):
            yield self._table, self._table

    def _write(self, file: Any, parts: Parts, extra: Sequence[str], codec: str | None) -> None:
        raise NotImplementedError


class ParquetSource(Source):
    """A Parquet file; its pages are checked where they have checksums."""

    def _open(self) -> Any:
        return parquet.ParquetFile(self.path, page_checksum_verification=True, buffer_size=1 << 20, pre_buffer=False)

    def _find_names(self) -> list[str]:
        return list(self._open().schema_arrow.names)

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        for part in self._open().iter_batches(_ROWS, columns=None if rows else names, use_threads=False):
            yield part, part

    def _write(self, file: Any, parts: Parts, extra: Sequence[str], codec: str | None) -> None:
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
            for batch, mask, columns in parts:
                rows = batch.rows.filter(to_arrow(mask))
                added = [to_arrow(columns[name]) for name in extra]
                waiting.append(pa.RecordBatch.from_arrays([*rows.columns, *added], schema=schema))
                if sum(map(len, waiting)) >= _GROUP or sum(part.nbytes for part in waiting) >= 4 * _BLOCK:
                    out.write_table(pa.Table.from_batches(waiting), _GROUP)
                    waiting.clear()
            out.write_table(pa.Table.from_batches(waiting, schema), _GROUP)


class TextSource(Source):
    """A csv, tsv or jsonl: rows are parsed for the columns that matter, and written by copying their bytes."""

    def _blocks(self, size: int) -> Iterator[tuple[Array, Array]]:
        """Yield the bytes of whole rows and the length of each, without blank rows.

        A line break of a csv that comes after an odd number of quotes stands inside a cell, and ends no row.
        """
        rest, more, mark = b"", b"\n", b"\xef\xbb\xbf"
        with pa.input_stream(self.path, compression=_CODECS.get(Path(self.path).suffix.lower())) as stream:
            while more:
                more = stream.read(size)
                data = (rest + (more or b"\n")).removeprefix(mark)  # the last row may have no line break
                if mark and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
                    raise InputError(f"{self.path} is UTF-16, not UTF-8; convert it with iconv -f UTF-16 -t UTF-8")
                text, mark, wrong = np.frombuffer(data, np.uint8), b"", False
                ends = np.flatnonzero(text == ord("\n")) + 1
                if self.format != "jsonl" and b'"' in data:
                    quotes = np.flatnonzero(text == ord('"'))
                    inside = np.searchsorted(quotes, ends) % 2 == 1
                    before = text[quotes[::2][quotes[::2] > 0] - 1]  # a quote that opens a cell
                    wrong = inside.any() and not np.isin(before, [*f'"\n{self.delimiter}'.encode()]).all()
                    ends = ends[~inside]
                end = int(ends[-1]) if len(ends) else 0
                rest = data[end:]
                if wrong:
                    raise InputError(f"{self.path}: a cell has a quote inside and none around it")
                if len(rest) > _BLOCK or (rest and not more):
                    why = "a quote is not closed in" if b"\n" in rest else "a row is longer than"
                    raise InputError(f"{self.path}: {why} {min(len(rest), _BLOCK):,} bytes")
                if end:
                    lengths = np.diff(ends, prepend=0)
                    solid = np.logical_or.reduceat(text[:end] > ord(" "), ends - lengths)
                    yield text[:end] if solid.all() else text[:end][np.repeat(solid, lengths)], lengths[solid]

    @cached_property
    def _first_row(self) -> bytes:
        for block, lengths in self._blocks(1 << 16):
            if len(lengths):
                return block[: lengths[0]].tobytes()
        raise InputError(f"{self.path} is empty")

    @cached_property
    def _types(self) -> dict[str, type]:
        """The types of the cells of a jsonl, by its first row."""
        try:
            return {name: type(cell) for name, cell in json.loads(self._first_row).items()}
        except (AttributeError, RecursionError) as error:
            raise InputError(f"{self.path}: row 1 is no JSON object, or nested too deeply") from error

    def _find_names(self) -> list[str]:
        if self.format == "jsonl":
            return list(self._types)
        names = self._parse_csv(self._first_row, [], autogenerate_column_names=not self.header).column_names
        for name in names if self.header else []:
            if re.match(_NUMBER, name.strip()):
                why = f"line 1 must name the columns, and {name.strip()!r:.60} is a number; is that line a row? give"
                raise InputError(f"{self.path}, {why}", give={"header": False})
        return list(names) if self.header else [str(i) for i in range(len(names))]

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        skip, parse = (0, self._parse_json) if self.format == "jsonl" else (int(self.header), self._parse_csv)
        for block, lengths in self._blocks(_BLOCK):
            block, lengths, skip = block[lengths[:skip].sum() :], lengths[skip:], skip * (not len(lengths))
            if len(lengths):
                table = parse(block, names) if names else lengths
                if len(table) != len(lengths):
                    raise InputError(f"{self.path}: some rows do not end where their lines end")
                yield table, (block, lengths)

    def _parse_csv(self, data: Any, names: Sequence[str], **options: Any) -> Any:
        """Parse cells as text: pyarrow by itself would turn 007 into 7 and NA into nothing."""
        text, options = dict.fromkeys(names, pa.large_string()), options or {"column_names": self.columns}
        return arrow_csv.read_csv(
            pa.py_buffer(data),
            arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, **options),
            arrow_csv.ParseOptions(delimiter=self.delimiter),
            arrow_csv.ConvertOptions(include_columns=names, column_types=text),
        )

    def _parse_json(self, block: Array, names: Sequence[str], integers: Any = _INTEGERS) -> Any:
        """Parse cells by the types of the first row; other rows may have larger integers, or decimals."""
        types = {str: pa.large_string(), int: integers[0], bool: pa.bool_()}
        schema = pa.schema([(name, types.get(self._types[name], pa.float64())) for name in names])
        read = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        try:
            return arrow_json.read_json(pa.py_buffer(block), read, parse)
        except pa.ArrowInvalid:
            if len(names) > 1:
                return pa.table({name: self._parse_json(block, [name]).column(name) for name in names})
            if len(integers) == 1:
                raise
            return self._parse_json(block, names, integers[1:])

    def _write(self, file: Any, parts: Parts, extra: Sequence[str], codec: str | None) -> None:
        def put(text: Any) -> None:
            file.write(pa.Codec(codec).compress(text, asbytes=True) if codec else text)

        if self.format != "jsonl" and self.header:
            put(self._extend(self._first_row, extra, extra))
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
        if not cells:
            return row
        if self.format == "jsonl":
            return row.rstrip()[:-1] + f", {json.dumps(dict(zip(names, cells, strict=True)))[1:]}\n".encode()
        return row.rstrip(b"\r\n") + self.delimiter.join(["", *map(str, cells)]).encode() + b"\n"


def format_of(path: str | os.PathLike[str]) -> str | None:
    """Return the one of `FORMATS` that the extension says, or None; only text may be packed."""
    *_, known, last = ("", "", *Path(path).name.lower().split("."))
    known = known if f".{last}" in _CODECS and known in ("csv", "tsv", "jsonl") else last
    return known if known in FORMATS else None


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
    if isinstance(where, str | os.PathLike) and os.path.isdir(where):
        inside = [os.path.join(root, name) for root, _, files in os.walk(where) for name in files]
        names = {path: os.path.relpath(path, where).replace(os.sep, "/") for path in inside if format_of(path)}
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
    sources: list[Source] = []
    for path, name in sorted(names.items(), key=lambda item: item[1]):
        known = format_of(path)
        if not os.path.isfile(path):
            raise InputError(f"{path} is missing or not a file")
        if known is None:
            raise InputError(f"{path}: unknown extension {Path(path).suffix!r}; choose from {', '.join(FORMATS)}")
        if known not in ("csv", "tsv") and (delimiter or not header):
            raise InputError(f"{path}: a delimiter or a header is for csv and tsv, and {known} has none")
        if sources and name == sources[-1].name:
            raise InputError(f"{path} and {sources[-1].path} have one name; give the folder that both are in")
        kind = {"parquet": ParquetSource, "npy": Source, "npz": Source}.get(known, TextSource)
        sources.append(kind(path, name, known, delimiter or ("\t" if known == "tsv" else ","), header))
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
