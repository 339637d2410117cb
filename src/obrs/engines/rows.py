"""Files of rows that are never whole in memory: found, read in batches, and written as they came.

Parquet goes row group by row group. CSV (any delimiter) and JSON lines go block by block: only the columns that decide
are parsed, and the rows that are kept are written as the very bytes they were. `.gz` and `.zst` stay compressed.
"""

import glob
import hashlib
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice, pairwise
from json import loads
from math import ceil
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json
from pyarrow import parquet

from .._files import replacing
from .._formats import column_names, first_rows, json_reason, row_place
from ..errors import InputError, InputTypeError
from ..scores import Table, ids

__all__ = ["Batch", "Source", "columns_of", "find_sources", "group_count", "head", "held", "holding", "pick_groups"]
__all__ += ["read_batches", "row_count", "row_ids", "same_columns", "writing"]

Numbers = np.ndarray[Any, Any]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_FORMATS = {"parquet": "parquet", "csv": "csv", "tsv": "csv", "jsonl": "jsonl", "ndjson": "jsonl"}
_CODECS = {"gz": "gzip", "zst": "zstd"}
_PIECE = 1 << 25  # bytes of a row group, or of text, that are in memory at once
_MANY = 1 << 19  # rows from which on a batch takes no further row groups
_LONGEST = 1 << 27  # bytes of one row of text; more is a quote that nobody closed
_GROUP = 1 << 18  # rows of a row group that is written, or more
_STRAY_QUOTE = "a quote inside a cell, or an open one"


@dataclass(frozen=True)
class Source:
    """A file of rows.

    Args:
        path: Where it is.
        name: What it is called wherever it lies: its path below the folder that was asked for, or its last part.
        format: "parquet", "csv" or "jsonl".
        codec: "gzip", "zstd" or None.
        delimiter: Between the cells of a csv.
        size: Bytes.
        changed: When it was last written, in nanoseconds.
        header: Whether the first line of a csv names the columns, as for `obrs.scores.read_table`.
    """

    path: str
    name: str
    format: str
    codec: str | None
    delimiter: str
    size: int
    changed: int
    header: bool | None = None


@dataclass(frozen=True)
class Batch:
    """Some rows of a file.

    Args:
        columns: The columns that were asked for, as arrays of pyarrow.
        first: How many rows of the file are before these.
        take: From masks of these rows to tables of them with all columns; a text has one column, its lines.
        where: From a row of the batch to its place in the file, for messages.
    """

    columns: dict[str, Any]
    first: int
    take: Callable[..., list[Any]]
    where: Callable[[int], str] = row_place

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def find_sources(
    where: Paths, *, format: str | None = None, delimiter: str | None = None, header: bool | None = None
) -> list[Source]:
    """Return the files of a folder and those below it, of a glob, or of a list, sorted by name.

    Files of a folder that begin with a dot or an underscore, or whose extension is none of ours, are left out.

    Args:
        where: The folder, the glob, one file, or a list of files.
        format: Of files whose extension says nothing; it does not overrule one that does.
        delimiter: Between the cells of a csv; a comma by default, and a tab for .tsv.
        header: Whether the first line of a csv names the columns, as for `obrs.scores.read_table`.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("b.csv", "a.tsv.gz", "notes.txt"):
        ...     _ = (folder / name).write_text("id,log_ratio")
        >>> [(s.name, s.format, s.codec, s.delimiter) for s in find_sources(folder)]
        [('a.tsv.gz', 'csv', 'gzip', '\\t'), ('b.csv', 'csv', None, ',')]
    """
    if format is not None and format not in _FORMATS:
        raise InputError(f"unknown format {format!r}; choose from {', '.join(_FORMATS)}")
    if delimiter is not None and len(delimiter.encode()) != 1:
        raise InputError(f"a delimiter is one character, got {delimiter!r}")
    text = os.fspath(where) if isinstance(where, str | os.PathLike) else None
    if text is not None and os.path.isdir(text):
        inside = sorted(os.path.join(root, name) for root, _, names in os.walk(text) for name in names)
        names = {path: os.path.relpath(path, text).replace(os.sep, "/") for path in inside}
        known = {p: n for p, n in names.items() if _format_of(p)[0] or (format and not p.endswith((".npy", ".npz")))}
        known = {path: name for path, name in known.items() if not re.search(r"(^|/)[._]", name)}
        if not known:
            raise InputError(f"{text} has no files of rows; their extensions are {', '.join(_FORMATS)}, or .gz, .zst")
    else:
        try:
            paths = [os.fspath(path) for path in ([where] if isinstance(where, str | os.PathLike) else where)]
        except TypeError as error:
            raise InputTypeError(f"files must be a folder, a glob or a list of paths, got {where!r:.60}") from error
        found = [path for part in paths for path in (sorted(glob.glob(part)) if glob.has_magic(part) else [part])]
        if not found:
            raise InputError(f"no file matches {text if text is not None else 'an empty list'}")
        known = {path: os.path.basename(path) for path in found}
    found_sources = (_source(path, name, format, delimiter, header) for path, name in known.items())
    sources = sorted(found_sources, key=lambda source: source.name)
    if len({source.format for source in sources}) > 1:
        first, other = sources[0], next(s for s in sources if s.format != sources[0].format)
        raise InputError(f"files must be of one format, got {first.path} and {other.path}")
    for one, two in pairwise(sources):
        if one.name == two.name:
            raise InputError(f"{one.path} and {two.path} have one name; give the folder that both are in")
    return sources


def _format_of(path: str) -> tuple[str | None, str | None]:
    """Return what the extension says: format and codec."""
    *_, before, last = ("", "", *os.path.basename(path).lower().split("."))
    codec = _CODECS.get(last)
    return _FORMATS.get(before if codec else last), codec


def _source(path: str, name: str, format: str | None, delimiter: str | None, header: bool | None) -> Source:
    if not os.path.isfile(path):
        raise InputError(f"{path} is missing or not a file")
    known, codec = _format_of(path)
    if known is None and format is None:
        extensions = ", ".join(_FORMATS)
        raise InputError(f"{path}: unknown extension {Path(path).suffix!r}; choose from {extensions}, or .gz, .zst")
    tab = format == "tsv" if known is None else ".tsv" in Path(path).suffixes
    format = known or _FORMATS[format or ""]
    if format == "parquet" and codec is not None:
        raise InputError(f"{path}: a parquet file is compressed inside; unpack it first")
    for what, given in (("delimiter", delimiter), ("header", header)):
        if given is not None and format != "csv":
            raise InputError(f"{path}: a {what} is for csv and tsv, and {format} has none")
    facts = os.stat(path)
    delimiter = delimiter or ("\t" if tab else ",")
    return Source(path, name, format, codec, delimiter, facts.st_size, facts.st_mtime_ns, header)


def columns_of(source: Source) -> dict[str, str]:
    """Return the columns of a file and their types; those of a csv are text, and those of a jsonl its first row's."""
    if source.format == "parquet":
        return _facts(source).columns
    first = _first_row(source)
    if source.format == "csv":
        return dict.fromkeys(_header(first, source), "text")
    return {key: type(value).__name__ for key, value in _json_row(first, source).items()}


def head(source: Source) -> Table:
    """Return the first row of a file, with all its columns."""
    if source.format == "parquet":
        file = _open_parquet(source)
        first = pa.Table.from_batches([*islice(file.iter_batches(1), 1)], file.schema_arrow)
        columns = dict(zip(first.column_names, first.columns, strict=True))
    elif source.format == "csv":
        names = _header(_first_row(source), source)
        first = next(read_batches(source, names), None)
        columns = {name: first.columns[name][:1] if first else pa.array([], pa.string()) for name in names}
    else:
        cells = _json_row(_first_row(source), source)
        columns = {key: np.fromiter([cell], object, 1) for key, cell in cells.items()}
    return Table(columns, source.path, source.format)


def _first_row(source: Source) -> bytes:
    """Return the first line of a text that is not blank, and what is before it; b"" if there is none."""
    with _open_text(source) as stream:
        data = next(_whole_rows(stream, source), b"")
    return data[: _head(data, source)]


def _head(data: bytes, source: Source) -> int:
    """Return where the first row ends that is not blank."""
    ends = _row_ends(data, source).tolist()
    return next((end + 1 for end in ends if data[: end + 1].strip(b"\xef\xbb\xbf \t\r\n")), len(data))


def row_ids(batch: Batch, source: Source, name: str | None) -> Numbers:
    """Return the id of each row as int64, from a column, or from the name of the file and the number of the row.

    A file name has an id of 64 bits, by its bytes, and row j of the file that plus j. Columns: `obrs.scores.ids`.
    """
    if name is None:
        start = int.from_bytes(hashlib.blake2b(source.name.encode(), digest_size=8).digest(), "little")
        return (np.arange(batch.first, batch.first + len(batch), dtype=np.uint64) + np.uint64(start)).view(np.int64)
    return ids(Table(batch.columns, source.path, source.format, batch.where), name)


class _Facts(NamedTuple):
    """What the last bytes of a Parquet file tell: its columns with their types, and rows by row group."""

    columns: dict[str, str]
    group_rows: tuple[int, ...]


@lru_cache(1 << 14)
def _facts(source: Source) -> _Facts:
    file = _open_parquet(source)
    schema, metadata = file.schema_arrow, file.metadata
    rows = tuple(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
    return _Facts({field.name: str(field.type) for field in schema}, rows)


def row_count(sources: Iterable[Source]) -> int:
    """Return how many rows Parquet files have."""
    return sum(sum(_facts(source).group_rows) for source in sources)


def group_count(sources: Iterable[Source]) -> int:
    """Return how many row groups Parquet files have."""
    return sum(len(_facts(source).group_rows) for source in sources)


def pick_groups(sources: Sequence[Source], share: float, *, least: int, most: int) -> list[tuple[Source, list[int]]]:
    """Return a random share of the row groups of Parquet files, of at least so many groups and at most so many rows."""
    groups = [(source, g, rows) for source in sources for g, rows in enumerate(_facts(source).group_rows)]
    # a fixed seed: which groups are looked at must not depend on the seed of the selection, nor change on a second try
    order = np.random.default_rng(0).permutation(len(groups))[: max(ceil(share * len(groups)), least)]
    rows = np.cumsum([groups[i][2] for i in order])
    chosen: dict[Source, list[int]] = {}
    for i in sorted(order[: int(np.count_nonzero(rows <= most))].tolist()):
        chosen.setdefault(groups[i][0], []).append(groups[i][1])
    return list(chosen.items())


def read_batches(
    source: Source, names: Sequence[str], *, groups: Sequence[int] | None = None, whole: bool = True
) -> Iterator[Batch]:
    """Read a file in batches of some 30 MB.

    Args:
        source: The file.
        names: The columns to parse.
        groups: The row groups to read, of a Parquet file; all by default.
        whole: Whether `Batch.take` will be asked for rows with all columns.
    """
    try:
        if source.format == "parquet":
            yield from _parquet_batches(source, list(dict.fromkeys(names)), groups, whole)
        else:
            yield from _text_batches(source, list(dict.fromkeys(names)))
    except FileNotFoundError as error:
        raise InputError(f"{source.path} has vanished since the run began") from error
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{source.path} cannot be read: {' '.join(str(error).split())[:200]}") from error


def _open_parquet(source: Source) -> Any:
    try:
        return parquet.ParquetFile(source.path, buffer_size=1 << 20, pre_buffer=False)
    except FileNotFoundError as error:
        raise InputError(f"{source.path} has vanished since the run began") from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{source.path} cannot be read as parquet; is it whole?") from error


def _parquet_batches(source: Source, names: list[str], groups: Sequence[int] | None, whole: bool) -> Iterator[Batch]:
    file = _open_parquet(source)
    every = file.schema_arrow.names
    _check_columns(names, every, source)
    rest = [name for name in every if name not in names]
    for run in _runs(file.metadata, None if whole else names, groups):
        if run.size <= _PIECE:  # what decides first, and the rest only of a piece that keeps something
            table = file.read_row_groups(run.groups, columns=names, use_threads=False).select(names)
            yield Batch(_joined(table), run.first, _later(file, run.groups, table, rest, every), _row_of(run.first))
        else:
            rows = max(1, run.rows * _PIECE // run.size)
            pieces = file.iter_batches(rows, run.groups, columns=None if whole else names, use_threads=False)
            before = run.first
            for piece in pieces:
                table = pa.Table.from_batches([piece])
                take = partial(lambda whole, *masks: _filtered(whole, masks), table)
                yield Batch(_joined(table.select(names)), before, take, _row_of(before))
                before += len(piece)


class _Run(NamedTuple):
    """Row groups that follow each other, and are small enough to be read together; or one that is not.

    Attributes:
        groups: Their numbers.
        first: How many rows are before them.
        rows, size: How many they have, and how many bytes they take in memory, about.
    """

    groups: list[int]
    first: int
    rows: int
    size: int


def _runs(metadata: Any, names: list[str] | None, groups: Sequence[int] | None) -> list[_Run]:
    """Divide the row groups of a file, or those that are asked for; of which only some columns matter, or all."""
    runs: list[_Run] = []
    first = 0
    for number in range(metadata.num_row_groups):
        facts = metadata.row_group(number)
        if groups is None or number in groups:
            size = facts.total_byte_size
            if names is not None:
                chunks = (facts.column(i) for i in range(facts.num_columns))
                size = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.split(".")[0] in names)
            last = runs[-1] if runs else None
            if last and last.groups[-1] == number - 1 and last.size + size <= _PIECE and last.rows < _MANY:
                runs[-1] = _Run([*last.groups, number], last.first, last.rows + facts.num_rows, last.size + size)
            else:
                runs.append(_Run([number], first, facts.num_rows, size))
        first += facts.num_rows
    return runs


def _check_columns(names: list[str], every: list[str], source: Source) -> None:
    counts = Counter(every)
    for name in names:
        if counts[name] != 1:
            what = "two columns" if counts[name] else "no column"
            raise InputError(f"{source.path} has {what} {name!r}; it has {', '.join(every)}")


def _joined(table: Any) -> dict[str, Any]:
    """Return each column as one array."""
    columns = {name: table.column(name) for name in table.column_names}
    return {name: c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for name, c in columns.items()}


def _later(file: Any, groups: list[int], table: Any, rest: list[str], every: list[str]) -> Callable[..., list[Any]]:
    """Read the other columns when rows are asked for."""

    def take(*masks: Numbers) -> list[Any]:
        whole = table
        if rest:
            others = file.read_row_groups(groups, columns=rest, use_threads=False)
            for name in rest:
                whole = whole.append_column(others.schema.field(name), others.column(name))
        return _filtered(whole.select(every), masks)

    return take


def _filtered(table: Any, masks: Iterable[Numbers]) -> list[Any]:
    """Return the rows of each mask; a few are picked, of many a mask is faster."""
    few = [(mask, np.count_nonzero(mask) < len(mask) / 64) for mask in masks]
    return [
        table.take(pa.array(np.flatnonzero(mask))) if is_few else table.filter(pa.array(mask)) for mask, is_few in few
    ]


def _row_of(first: int) -> Callable[[int], str]:
    return lambda row: row_place(first + row)


@contextmanager
def _open_text(source: Source) -> Iterator[Any]:
    with pa.OSFile(source.path, "rb") as raw:
        yield raw if source.codec is None else pa.CompressedInputStream(raw, source.codec)


def _row_ends(data: bytes, source: Source) -> Numbers:
    """Return where rows end: at line breaks; in a csv not at those between quotes."""
    flat = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(flat == 10)
    if source.format == "csv" and b'"' in data:
        quotes = np.flatnonzero(flat == 34)
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return ends


def _text_batches(source: Source, names: list[str]) -> Iterator[Batch]:
    parse = _csv_parser if source.format == "csv" else _json_parser
    read: Callable[[bytes, int], Any] | None = None
    first, line = 0, 0
    with _open_text(source) as stream:
        for data in _whole_rows(stream, source):
            if read is None:
                data = data.removeprefix(b"\xef\xbb\xbf")
                head = _head(data, source)
                read = parse(data[:head], source, names)
                if source.format == "csv" and source.header is not False:
                    line, data = data[:head].count(b"\n"), data[head:]
            batch = _text_batch(data, read, source, first, line)
            if batch is not None:
                yield batch
                first += len(batch)
            line += data.count(b"\n")


def _whole_rows(stream: Any, source: Source) -> Iterator[bytes]:
    """Yield blocks of text that end where a row ends."""
    rest, lines = b"", 0
    while block := stream.read(_PIECE // 4):
        data = rest + block
        ends = _row_ends(data, source)
        if ends.size:
            whole, rest = data[: int(ends[-1]) + 1], data[int(ends[-1]) + 1 :]
            yield whole
            lines += whole.count(b"\n")
        else:
            rest = data
        if len(rest) > _LONGEST:
            raise InputError(f"{source.path} has a row of more than {_LONGEST >> 20} MB; is a quote left open?")
    if source.format == "csv" and rest.count(b'"') % 2:
        raise InputError(
            f"{source.path} has an odd number of quotes from line {lines + 1} on: is there {_STRAY_QUOTE}?"
        )
    if rest.strip():
        yield rest + b"\n"


def _text_batch(data: bytes, read: Any, source: Source, first: int, line: int) -> Batch | None:
    ends = _row_ends(data, source)
    starts = np.concatenate([np.zeros(1, np.int64), ends + 1])
    lines = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ends), [None, pa.py_buffer(starts), pa.py_buffer(data)]
    )
    flat = np.frombuffer(data, np.uint8)
    maybe = np.flatnonzero(np.isin(flat[starts[:-1]], np.frombuffer(b"\n\r \t", np.uint8)))
    blank = [
        i for i in maybe.tolist() if not (row := data[starts[i] : ends[i]]).strip(b"\r\n") or _is_void(row, source)
    ]
    if blank:
        mask = np.ones(len(ends), bool)
        mask[blank] = False
        lines, starts = lines.filter(pa.array(mask)), starts[:-1][mask]
    if not len(lines):
        return None

    def where(row: int) -> str:
        return f"line {line + data[: int(starts[row])].count(10) + 1}"

    columns = read(data, where)
    count = len(next(iter(columns.values())))
    if count != len(lines):
        why = _STRAY_QUOTE if source.format == "csv" else "two objects on one line"
        raise InputError(f"{source.path} has {len(lines)} rows from {where(0)} on, read as {count}: is there {why}?")
    return Batch(columns, first, lambda *masks: _filtered(pa.table({"row": lines}), masks), where)


def _is_void(row: bytes, source: Source) -> bool:
    return source.format == "jsonl" and not row.strip()


def _header(text: bytes, source: Source) -> list[str]:
    try:
        rows = first_rows([text.decode("utf-8-sig")], source.delimiter, 1)
    except UnicodeDecodeError as error:
        raise InputError(f"{source.path} is not UTF-8 text") from error
    return column_names(rows[0] if rows else [], source.path, source.header)


def _csv_parser(head: bytes, source: Source, names: list[str]) -> Any:
    header = _header(head, source)
    _check_columns(names, header, source)

    def read(data: bytes, where: Callable[[int], str]) -> dict[str, Any]:
        try:
            table = arrow_csv.read_csv(
                pa.py_buffer(data),
                arrow_csv.ReadOptions(use_threads=False, column_names=header, block_size=len(data) + 1),
                arrow_csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=b'"' in data),
                arrow_csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(header, pa.large_string())),
            )
        except pa.ArrowInvalid as error:
            found = re.search(r"Row #(\d+): (Expected .* got \d+)", str(error), flags=re.S)
            if found is None:
                raise
            raise InputError(f"{source.path}, {where(int(found[1]) - 1)}: {found[2].lower()}") from error
        return _joined(table)

    return read


def _json_row(text: bytes, source: Source, place: str = ": the first line") -> dict[str, Any]:
    try:
        row = loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source.path}{place} is not JSON: {json_reason(error)}") from error
    if not isinstance(row, dict):
        raise InputError(f"{source.path}{place} is not a JSON object")
    return row


def _json_parser(head: bytes, source: Source, names: list[str]) -> Any:
    row = _json_row(head, source)
    _check_columns(names, list(row), source)
    # ids and labels may be integers or text; a score is a number, and in the first row it may be missing
    kinds = {str: pa.string(), int: pa.int64()}
    first = {name: kinds.get(type(row[name]), pa.float64()) for name in names}

    def read(data: bytes, where: Callable[[int], str]) -> dict[str, Any]:
        types = dict(first)
        while True:
            schema = pa.schema(list(types.items()))
            options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
            try:
                reading = arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
                return _joined(arrow_json.read_json(pa.py_buffer(data), reading, options))
            except pa.ArrowInvalid as error:
                whole = [name for name, kind in types.items() if kind == pa.int64() and "convert" in str(error).lower()]
                if whole:  # a number that is no integer
                    types |= dict.fromkeys(whole, pa.float64())
                    continue
                what = re.sub(r"^JSON parse error: | in row \d+.*", "", str(error), flags=re.S)
                found = re.search(r" in row (\d+)", str(error))
                if found:  # pyarrow calls it otherwise, and what is nested too deeply an invalid value
                    rows = [row for row in data.split(b"\n") if row.strip()]
                    _json_row(rows[int(found[1])], source, f", {where(int(found[1]))}")
                place = where(int(found[1])) if found else f"from {where(0)} on"
                raise InputError(f"{source.path}, {place}: {what}") from error

    return read


@contextmanager
def writing(path: str | os.PathLike[str], source: Source) -> Iterator[Callable[[Any], None]]:
    """Write rows of a source to a file of its kind, which appears once it is whole.

    Args:
        path: The file; its folder is made if it is not there.
        source: Where the rows come from: the file gets its schema or header, its codec and its encodings.

    Yields:
        A function that takes a table as `Batch.take` returns it.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with replacing(path) as file:
        if source.format == "parquet":
            with _parquet_writer(file, source) as write:
                yield write
        else:
            with _text_writer(file, source) as write:
                yield write


@contextmanager
def _parquet_writer(file: BinaryIO, source: Source) -> Iterator[Callable[[Any], None]]:
    like = _open_parquet(source)
    schema = like.schema_arrow
    codec: Any = "snappy"
    by_dictionary: Any = True
    if like.num_row_groups:
        group = like.metadata.row_group(0)
        chunks = [group.column(i) for i in range(group.num_columns)]
        codec = {c.path_in_schema: c.compression.lower().replace("uncompressed", "none") for c in chunks}
        by_dictionary = [c.path_in_schema for c in chunks if c.has_dictionary_page]
    waiting: list[Any] = []
    with parquet.ParquetWriter(file, schema, compression=codec, use_dictionary=by_dictionary) as writer:

        def flush() -> None:
            if waiting:
                whole = pa.concat_tables(waiting).replace_schema_metadata(schema.metadata)
                writer.write_table(whole, row_group_size=max(1, len(whole)))
                waiting.clear()

        def write(table: Any) -> None:
            if len(table):
                waiting.append(table)
            if sum(map(len, waiting)) >= _GROUP or sum(t.nbytes for t in waiting) >= _PIECE:
                flush()

        yield write
        flush()


class _StaysOpen(io.RawIOBase):
    """A file that pyarrow may write to but not close: what is on the disk must be made sure of afterwards."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)


@contextmanager
def _text_writer(file: BinaryIO, source: Source) -> Iterator[Callable[[Any], None]]:
    stream: Any = file
    if source.codec is not None:
        stream = pa.CompressedOutputStream(pa.PythonFile(_StaysOpen(file), "w"), source.codec)
    if source.format == "csv" and source.header is not False:
        stream.write(_first_row(source))

    def write(table: Any) -> None:
        for lines in table.column("row").chunks:
            _, offsets, data = lines.buffers()
            at = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1]
            if len(lines):
                stream.write(data.slice(int(at[0]), int(at[-1] - at[0])))

    yield write
    if stream is not file:
        stream.close()


@contextmanager
def holding(path: str | os.PathLike[str]) -> Iterator[Callable[[Any], None]]:
    """Write tables of `Batch.take` to a file of pyarrow's own, from which `held` reads them."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with replacing(path) as file, ExitStack() as stack:
        streams: list[Any] = []

        def hold(table: Any) -> None:
            if not len(table):
                return
            if not streams:
                streams.append(stack.enter_context(pa.ipc.new_stream(file, table.schema)))
            streams[0].write_table(table)

        yield hold


def held(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Read what `holding` wrote, table by table."""
    if not os.path.getsize(path):
        return
    with pa.OSFile(os.fspath(path)) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield pa.Table.from_batches([batch])


def same_columns(sources: Iterable[Source]) -> None:
    """Raise unless all files have the same columns of the same types; a jsonl may have what it likes."""
    first: tuple[Source, dict[str, str]] | None = None
    for source in sources:
        if source.format == "jsonl":
            return
        columns = columns_of(source)
        if first is None:
            first = source, columns
        for name in [*first[1], *columns]:
            one, two = first[1].get(name), columns.get(name)
            if one != two:
                said = [
                    f"{s.path} has {f'{name!r} as {kind}' if kind else f'no column {name!r}'}"
                    for s, kind in ((first[0], one), (source, two))
                ]
                raise InputError(f"files must have the same columns: {said[0]}, {said[1]}")
        if list(first[1]) != list(columns):
            raise InputError(f"files must have the same columns in one order, unlike {first[0].path} and {source.path}")
