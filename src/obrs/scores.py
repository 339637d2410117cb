"""Files of scores: find them, read the columns that matter in batches, write rows with all their columns.

Parquet is read and written by pyarrow. The rows of a csv, a tsv or a jsonl, also packed as .gz or .zst, are cut out of
the text and written to the letter; of them, pyarrow parses the columns that matter. Cells of a csv stay text: 007.
"""

import glob
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np

from ._files import rewrite
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
_ROWS = 1 << 16  # rows of a batch of a Parquet file
_CHUNK = 1 << 21  # bytes of text that are read at once
_LONGEST = 1 << 23  # bytes in which a row of text must end
_GROUP = 1 << 17  # rows of a row group that is written
_GROUP_BYTES = 1 << 25  # or so many bytes
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"  # as one writes it: 7, not 007
_NUMBER = r"(?i)^[+-]?([0-9]+\.?[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|inf|infinity|nan)$"
_NESTED = 1000  # brackets of a line of json that pyarrow, whose parser recurses, is given
_TEXT = (pa.string(), pa.large_string())


@dataclass(frozen=True)
class Batch:
    """Some rows of a file."""

    source: "Source"  # where the rows are from; the first one, if there are several
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
        """Return a column as float64. A cell that is not a number below +inf is an error, or NaN with `skip_bad`."""
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
    data, ends = _bytes(cells.cast(pa.large_string()))
    length = np.diff(ends)
    position = np.arange(len(data)) - np.repeat(ends[:-1], length)
    weight = scramble(np.arange(int(length.max(initial=0)) + 1)).view(np.uint64) | np.uint64(1)
    terms = (np.frombuffer(data, np.uint8) + np.uint64(1)) * weight[position]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms)])
    return np.asarray(scramble((sums[ends[1:]] - sums[ends[:-1]]).view(np.int64)))


def _bytes(cells: Any) -> tuple[Any, Array]:
    """Return what texts are in memory: one text after the other, and where each begins and the last ends."""
    _, offsets, data = cells.buffers()
    kind = np.int32 if cells.type == pa.string() else np.int64
    ends = np.frombuffer(offsets, kind)[cells.offset : cells.offset + len(cells) + 1]
    return (data or pa.py_buffer(b"")).slice(int(ends[0]), int(ends[-1] - ends[0])), ends - ends[0]


def _scalar(text: str) -> Any:
    data = text.encode()
    return pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data))[0]


def to_arrow(values: Array) -> Any:
    """Return booleans or floats as an array of pyarrow; `pa.array` and `pa.scalar` import pandas where there is one."""
    data = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(data)])


@dataclass(frozen=True)
class Source:
    """Rows with their columns. This base class reads tables in memory: arrays of NumPy, and blocks of Ray."""

    path: str
    name: str  # wherever the file lies: its path below the folder that was asked for, or its last part
    format: str = ""
    delimiter: str = ","  # between the cells of a csv
    header: bool = False  # whether the first row of a csv names the columns, which are called 0, 1, … otherwise
    table: Any = None  # the rows, where there is no file

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns; those of a jsonl are its first row's."""
        with self.name_errors():
            return self._find_names()

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise unless these columns are there, and no two have one name."""
        for name in [name for name in self.columns if self.columns.count(name) > 1]:
            raise InputError(f"{self.path} has two columns named {name!r}; rename one")
        for name in [name for name in names if name not in self.columns]:
            known = " ".join(", ".join(self.columns).split())
            raise InputError(f"{self.path} has no column {name!r}; it has {known:.200}")

    def batches(self, names: Sequence[str], *, rows: bool = False) -> Iterator[Batch]:
        """Read these columns batch by batch; with `rows`, what is written as well."""
        self.check_columns(names)
        first = 0
        with self.name_errors():
            for part, whole in self._read([*dict.fromkeys(names)], rows):
                yield Batch(self, {name: _plain(part.column(name)) for name in names}, first, whole)
                first += len(part)

    @contextmanager
    def name_errors(self) -> Iterator[None]:
        """Name this file in whatever goes wrong while it is read."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # of pyarrow, json, zipfile, zlib and tokenize, which each have their own
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


class ParquetSource(Source):
    """A Parquet file; its pages are checked where they have checksums."""

    def _open(self) -> Any:
        return parquet.ParquetFile(self.path, page_checksum_verification=True, buffer_size=1 << 20, pre_buffer=False)

    def _find_names(self) -> list[str]:
        return list(self._open().schema_arrow.names)

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        for part in self._open().iter_batches(_ROWS, columns=None if rows else names, use_threads=False):
            yield part, pa.Table.from_batches([part])

    def write(self, path: Path, tables: Iterable[Any], added: Sequence[str] = ()) -> None:
        """Write tables of rows, with columns of numbers that were added, in row groups of a good size."""
        with self.name_errors():
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
        with rewrite(path) as file, parquet.ParquetWriter(file, schema, **options) as out:
            for table in tables:
                waiting.append(table)
                if sum(map(len, waiting)) >= _GROUP or sum(part.nbytes for part in waiting) >= _GROUP_BYTES:
                    out.write_table(pa.concat_tables(waiting), _GROUP)
                    del waiting[1:]
            out.write_table(pa.concat_tables(waiting), _GROUP)


class TextSource(Source):
    """A csv, a tsv or a jsonl. Its rows are pieces of its text, which are written as they are."""

    def _find_names(self) -> list[str]:
        first = next(self._pieces(), None)
        if first is None:
            raise InputError(f"{self.path} is empty")
        if self.format == "jsonl":
            return list(_load_rows(first[:1])[0])
        names = list(self._parse(first[:1], [], autogenerate_column_names=not self.header).column_names)
        if not self.header:
            return [str(number) for number in range(len(names))]
        for name in [name.strip() for name in names if re.match(_NUMBER, name.strip())]:
            why = f"line 1 must name the columns, and {name!r:.60} is a number; is that line a row? give"
            raise InputError(f"{self.path}, {why}", give={"header": False})
        return names

    def _read(self, names: list[str], rows: bool) -> Iterator[tuple[Any, Any]]:
        header, first = self.header, 0
        for lines in self._pieces():
            lines, header = lines[header:], False
            if not len(lines):
                continue
            try:
                part = self._parse(lines, names, column_names=self.columns)
            except ValueError as error:  # pyarrow's, too, which count the rows of this piece
                row = re.search("Row #([0-9]+)", str(error))
                why = str(error) if row is None else str(error).replace(row[0], f"row {first + int(row[1])}")
                raise ValueError(why) from error
            if len(part) != len(lines):
                raise ValueError(f"{len(part)} rows in {len(lines)} lines")
            yield part, pa.table({"line": lines})
            first += len(lines)

    def _pieces(self) -> Iterator[Any]:
        """Yield the rows, some at a time, as texts with the ends of their lines; rows that are empty are left out."""
        stream = pa.input_stream(self.path, compression=_codec(self.path))
        rest = stream.read(3)
        if rest[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise InputError(f"{self.path} is UTF-16, not UTF-8; convert it with iconv -f UTF-16 -t UTF-8")
        rest = rest.removeprefix(b"\xef\xbb\xbf")
        for chunk in chain(iter(lambda: stream.read(_CHUNK), b""), [b"\n"]):  # which the last row may not have
            text = rest + chunk
            starts = np.append(0, self._row_ends(text)).astype(np.int32)
            rest = text[starts[-1] :]
            lines = pa.StringArray.from_buffers(len(starts) - 1, pa.py_buffer(starts), pa.py_buffer(text))
            length, first = np.diff(starts), np.frombuffer(text, np.uint8)[starts[:-1]]
            empty = (length == 1) | ((length == 2) & (first == ord("\r")))
            lines = lines.filter(to_arrow(~empty)) if empty.any() else lines
            if len(lines):
                yield lines
            if len(rest) > _LONGEST:
                break
        if rest:
            what = "is longer than 8 MB"
            if self.format != "jsonl" and b'"' in rest:
                what = "has a quotation mark that is never closed; put the cell that has it in quotes, and double it"
            raise InputError(f"{self.path}: the row that begins with {rest[:40].decode(errors='replace')!r} {what}")

    def _row_ends(self, text: bytes) -> Array:
        """Return where rows end: after every end of a line that no quotation marks enclose."""
        data = np.frombuffer(text, np.uint8)
        is_end = data == ord("\n")
        if b"\r" in text:  # which is the end of a line by itself, too
            is_end[:-1] |= (data[:-1] == ord("\r")) & (data[1:] != ord("\n"))
        ends = np.flatnonzero(is_end)
        if self.format != "jsonl" and b'"' in text:
            marks, between = np.flatnonzero(data == ord('"')), self.delimiter.encode() + b"\r\n"
            if not np.isin(data[np.maximum(marks[::2] - 1, 0)], [*between, ord('"')]).all():
                # A mark inside a cell is a letter. Those at its start, up to the next one that is not double, are not.
                cells = re.finditer(rb'(?<![^%b])"[^"]*(?:""[^"]*)*(?:"|\Z)' % re.escape(between), text)
                marks = np.array([at for cell in cells for at in (cell.start(), cell.end() - 1)])
            ends = ends[np.searchsorted(marks, ends) % 2 == 0]
        return ends + 1

    def _parse(self, lines: Any, names: list[str], **options: Any) -> Any:
        """Return these columns; those of a csv as text, as pyarrow would turn 007 into 7 and NA into nothing."""
        if self.format == "jsonl":
            return _parse_json(lines, names)
        data = _bytes(lines)[0]
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, **options),
            arrow_csv.ParseOptions(delimiter=self.delimiter),
            arrow_csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.string())),
        )

    def write(self, path: Path, tables: Iterable[Any], added: Sequence[str] = ()) -> None:
        """Write tables of rows, with columns of numbers that were added."""
        texts: Iterable[Any] = (_bytes(self._lines(table))[0] for table in tables)
        if self.header:
            with self.name_errors():
                names = next(self._pieces(), [_scalar("")])[0].as_py()  # it may have been emptied since it was counted
            names = self.delimiter.join([names.rstrip("\r\n"), *added]) + "\n" if added else names
            texts = chain([names.encode()], texts)
        with rewrite(path) as file:
            file.writelines(map(pa.Codec(codec).compress, texts) if (codec := _codec(path)) else texts)

    def _lines(self, table: Any) -> Any:
        """Return the rows of a table, with the cells of its other columns at their ends."""
        lines, *added = (column.combine_chunks() for column in table.columns)
        if not added:
            return lines
        is_json = self.format == "jsonl"
        lines = pc.ascii_rtrim(lines, " \t\r\n" if is_json else "\r\n")
        lines = pc.binary_replace_slice(lines, -1, _LONGEST, "") if is_json else lines
        for name, cells in zip(table.column_names[1:], added, strict=True):
            before = _scalar(f', "{name}": ' if is_json else self.delimiter)
            text = cells.cast(pa.string())
            if is_json:  # of 1, readers would infer that all are integers
                text = pc.replace_substring_regex(text, "^(-?[0-9]+)$", r"\1.0")
            lines = pc.binary_join_element_wise(lines, text, before)
        return pc.binary_join_element_wise(lines, _scalar("}\n" if is_json else "\n"), _scalar(""))


def _parse_json(lines: Any, names: list[str]) -> Any:
    """Parse lines by pyarrow, or one by one if it fails, takes texts for dates, or other columns change type."""
    data, ends = _bytes(lines)
    text = np.frombuffer(data, np.uint8)
    row = np.searchsorted(ends, np.flatnonzero((text == ord("[")) | (text == ord("{"))), side="right")
    if not np.any(row[_NESTED:] == row[:-_NESTED]):
        with suppress(pa.ArrowInvalid, KeyError):
            lines.validate(full=True)  # pyarrow reads bytes that are no UTF-8, and json does not
            options = arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
            table = arrow_json.read_json(pa.BufferReader(data), options).select(names)
            if len(table) == len(lines) and not any(pa.types.is_temporal(column.type) for column in table.columns):
                return table
    cells = _load_rows(lines)
    return pa.table({name: [row.get(name) for row in cells] for name in names})


def _load_rows(lines: Any) -> list[dict[str, Any]]:
    rows = list[dict[str, Any]]()
    for line in lines:
        try:
            rows.append({**json.loads(line.as_py())})
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"Row #{len(rows) + 1}: {error}") from error
    return rows


def format_of(path: str | os.PathLike[str]) -> str | None:
    """Return the one of `FORMATS` that the extension says, or None; only text may be packed."""
    *_, known, last = ("", "", *Path(path).name.lower().split("."))
    known = known if f".{last}" in _CODECS and known in ("csv", "tsv", "jsonl") else last
    return known if known in FORMATS else None


def _codec(path: str | os.PathLike[str]) -> str | None:
    return _CODECS.get(Path(path).suffix.lower())


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
            inside = [file for file in Path(path).rglob("*") if format_of(file) and not file.is_dir()]
            below = {str(file): file.relative_to(path).as_posix() for file in inside}
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
        kind = {"parquet": ParquetSource, "npy": Source, "npz": Source}.get(known, TextSource)
        between = delimiter or ("\t" if known == "tsv" else ",")
        sources.append(kind(path, name, known, between, header and known in ("csv", "tsv")))
    if len(formats := {source.format.replace("tsv", "csv") for source in sources}) > 1:
        raise InputError(f"files must be of one format, got {', '.join(sorted(formats))}")
    return sources


def read_columns(sources: Sequence[Source], names: Sequence[str]) -> Batch:
    """Return columns of files as one batch in memory."""
    tables = [pa.table(batch.columns) for source in sources for batch in source.batches(names)]
    if not tables:
        raise InputError(f"{sources[0].path} has no rows")
    with sources[0].name_errors():
        table = pa.concat_tables(tables, promote_options="permissive")
    return Batch(sources[0], {name: _plain(table.column(name)) for name in names})


def _plain(cells: Any) -> Any:
    """Return one array without a dictionary."""
    cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
