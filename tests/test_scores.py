"""Files of scores: every format is read alike and written as it was; what is wrong is one line that names the file."""

import csv
import gzip
import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from obrs import scores
from obrs.errors import InputError
from obrs.scores import find_sources, format_of, read_columns

N = 1000
LOG_RATIO = (np.arange(N) * 37 % 101) / 10 - 5
LOG_RATIO[3] = -np.inf
NOTES = [("007", "1.50", "", "a\rb", 'a, "quoted"\nnote é', "NA", "it\r\nis", " x ")[i % 8] for i in range(N)]
TEXT = ("csv", "tsv.gz", "csv.zst", "jsonl", "jsonl.zst")


def write(path, text):
    codec = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    with pa.output_stream(path, compression=codec) as stream:
        stream.write(text if isinstance(text, bytes) else text.encode())
    return path


def make_file(folder, kind):
    """Return a file, and the pieces of text that are its rows."""
    path, lines = folder / f"a.{kind}", []
    columns = {"id": np.arange(N), "log_ratio": LOG_RATIO}
    rows = list(zip(range(N), LOG_RATIO.tolist(), NOTES, strict=True))
    if kind == "parquet":
        table = pa.table({**columns, "note": [[t] for t in NOTES]}).replace_schema_metadata({"who": "me"})
        parquet.write_table(table, path, row_group_size=300, compression="zstd")
    elif kind == "npz":
        np.savez(path, **columns, x=np.zeros((N, 2)))
    elif kind.startswith("jsonl"):
        lines = [json.dumps({"id": i, "log_ratio": x, "note": {"a": [t, None]}}) + "\n" for i, x, t in rows]
        write(path, "".join(lines).removesuffix("\n"))
    else:
        comma, end = ("\t", "\r\n") if kind.startswith("tsv") else (",", "\n")
        quoted = ('"' + t.replace('"', '""') + '"' if i % 3 or i % 8 > 2 else t for i, t in enumerate(NOTES))
        lines = [f"{i}{comma}{x!r}{comma}{t}{end}" for (i, x, _), t in zip(rows, quoted, strict=True)]
        write(path, "".join(lines := [comma.join(["id", "log_ratio", "note"]) + end, *lines]))
    return path, lines


@pytest.mark.parametrize("piece", [1 << 23, 4000])
@pytest.mark.parametrize("kind", [*TEXT, "parquet", "npz"])
def test_every_format_is_read_in_batches(tmp_path, monkeypatch, kind, piece):
    monkeypatch.setattr(scores, "_CHUNK", piece)
    monkeypatch.setattr(scores, "_ROWS", piece // 100)
    (source,) = find_sources(make_file(tmp_path, kind)[0])
    batches = list(source.batches(["log_ratio", "id"]))
    assert len(batches) <= 2 if piece > 4000 or kind == "npz" else len(batches) > 3
    np.testing.assert_array_equal(np.concatenate([batch.numbers("log_ratio") for batch in batches]), LOG_RATIO)
    np.testing.assert_array_equal(np.concatenate([batch.ids("id") for batch in batches]), np.arange(N))
    assert [batch.first for batch in batches] == np.cumsum([0, *map(len, batches)])[:-1].tolist()
    np.testing.assert_array_equal(read_columns([source], ["log_ratio"]).numbers("log_ratio"), LOG_RATIO)


@pytest.mark.parametrize("extra", [(), ("weight",)])
@pytest.mark.parametrize("kind", [*TEXT, "parquet"])
def test_rows_are_written_with_what_they_had(tmp_path, monkeypatch, kind, extra):
    monkeypatch.setattr(scores, "_ROWS", 300)
    monkeypatch.setattr(scores, "_CHUNK", 9000)
    path, lines = make_file(tmp_path, kind)
    (source,) = find_sources(path)
    tables = []
    for batch in source.batches(["id"], rows=True):
        table = batch.rows.filter(scores.to_arrow(batch.ids("id") % 3 == 0))
        for name in extra:
            table = table.append_column(name, scores.to_arrow(np.full(len(table), 0.1)))
        tables.append(table)
    source.write(out := tmp_path / f"b.{kind}", tables, extra)
    back = read_columns(find_sources(out), ["id", *extra] if kind.startswith("jsonl") else ["id", "note", *extra])
    assert back.source.columns == ["id", "log_ratio", "note", *extra]
    np.testing.assert_array_equal(back.ids("id"), np.arange(0, N, 3))
    if extra:
        np.testing.assert_array_equal(back.numbers("weight"), 0.1)
    elif kind == "parquet":
        whole, part = parquet.read_table(source.path), parquet.read_table(out)
        assert part.schema.metadata[b"who"] == b"me"
        assert part.equals(whole.filter(pa.array(np.arange(N) % 3 == 0)))
        assert parquet.ParquetFile(out).metadata.row_group(0).column(1).compression == "ZSTD"
    else:
        assert out.read_bytes()[:2] == {"gz": b"\x1f\x8b", "st": b"\x28\xb5"}.get(kind[-2:], out.read_bytes()[:2])
        head, rows = (lines[:1], lines[1:]) if len(lines) > N else ([], lines)
        assert pa.input_stream(out).read().decode() == "".join(head + rows[::3]), "to the letter"


def test_a_csv_has_the_rows_that_the_library_of_python_finds(tmp_path, monkeypatch):
    """Cells of marks, delimiters and line ends in any order, which rows are cut out of in small pieces."""
    rng = np.random.default_rng(0)

    def some(*letters):
        return "".join(rng.choice(letters, rng.integers(0, 9)))

    for size in np.repeat([7, 50, 1 << 21], 30):
        monkeypatch.setattr(scores, "_CHUNK", int(size))
        lines = []
        for i in range(40):
            inner = some("a", ",", ";", "\n", "\r", "\r\n", '"', '""').replace('"', '""')
            cell = f'"{inner}"' if i % 3 else some("a", " ", '"').lstrip('"')
            lines.append(f"{i},{cell}" + str(rng.choice(["\n", "\r", "\r\n"])))
        (tmp_path / "a.csv").write_bytes("".join(["id,text\n", *lines, "40,end\n"]).encode())
        batches = list(find_sources(tmp_path / "a.csv")[0].batches(["text"], rows=True))
        cells = [cell for batch in batches for cell in batch.columns["text"].to_pylist()]
        with open(tmp_path / "a.csv", newline="") as file:
            assert cells == [row[1] for row in csv.reader(file)][1:]
        assert [line for batch in batches for line in batch.rows["line"].to_pylist()] == [*lines, "40,end\n"]


def test_a_column_of_a_jsonl_may_change_its_type_or_look_like_dates(tmp_path):
    rows = [{"id": "2024-01-01", "reward": 1, "x": 1}, {"id": "2024-01-02", "reward": 0.14, "x": "text"}, {"id": "b"}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    batch = read_columns(find_sources(path), ["id", "reward"])
    assert batch.columns["id"].to_pylist() == ["2024-01-01", "2024-01-02", "b"]
    np.testing.assert_array_equal(batch.numbers("reward", skip_bad=True), [1, 0.14, np.nan])
    with pytest.raises(InputError, match=r"a\.jsonl cannot be read: .*"):
        read_columns(find_sources(path), ["x"])
    write(path, "".join(f'{{"id": {i}}}\n' for i in (1, 2**64 - 1)))
    with pytest.raises(InputError, match="ids must be integers or text, got double"):
        read_columns(find_sources(path), ["id"]).ids("id")


def test_marks_spaces_blank_lines_and_windows_change_nothing(tmp_path):
    cases = {
        "a.csv": b"\xef\xbb\xbfid;log_ratio\r\n\r\n1; 1.5\r\n\r\n2;-inf\r\n3;+2 \r\n4;1e-3",
        "a.jsonl": b'\xef\xbb\xbf\n{"log_ratio": 1.5}\r\n\n {"log_ratio": -Infinity}\n{"log_ratio": 2}\n'
        b'{"log_ratio": 1e-3}',
    }
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
        column = read_columns(find_sources(tmp_path / name, delimiter=";"), ["log_ratio"]).numbers("log_ratio")
        np.testing.assert_array_equal(column, [1.5, -np.inf, 2, 1e-3])


def test_a_folder_a_glob_and_a_list_find_files_by_name(tmp_path):
    for name in ("b.csv", "a.csv.gz", "_hidden.csv", ".x.csv", "notes.txt", "sub/c.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id,log_ratio\n")
    assert [s.name for s in find_sources(tmp_path)] == ["a.csv.gz", "b.csv", "sub/c.tsv"]
    assert [s.name for s in find_sources(f"{tmp_path}/*.csv*")] == ["_hidden.csv", "a.csv.gz", "b.csv"]
    assert [s.delimiter for s in find_sources(tmp_path)] == [",", ",", "\t"]
    assert [format_of(name) for name in ("A.CSV", "a.jsonl.zst", "a.txt", "a.npy.gz")] == ["csv", "jsonl", None, None]


def test_an_integer_written_as_text_is_that_integer_and_other_text_has_an_id_of_its_own(tmp_path):
    words = ["7", "007", "-3", "", "a", "b", "ab", "ba", "7 ", "é", "12345678901234567890"]
    parquet.write_table(pa.table({"id": words}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"id": pa.array(words[::-1]).dictionary_encode()}), tmp_path / "b.parquet")
    one, two = (read_columns([source], ["id"]).ids("id") for source in find_sources(tmp_path))
    np.testing.assert_array_equal(one, two[::-1])
    assert one[[0, 2]].tolist() == [7, -3]
    assert len(set(one.tolist())) == len(words)


def test_hashes_of_text_spread_over_all_64_bits():
    cells = pa.array([f"https://example.org/{i}" for i in range(20_000)])
    hashed = scores._hash_text(cells).view(np.uint64)
    assert len(np.unique(hashed)) == len(hashed)
    for bit in range(64):
        share = np.mean((hashed >> np.uint64(bit)) & np.uint64(1))
        assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(20_000)
    np.testing.assert_array_equal(scores._hash_text(cells[7:9]).view(np.uint64), hashed[7:9])


@pytest.mark.parametrize("kind", ["csv", "jsonl", "npy"])
def test_rows_without_a_number_are_an_error_that_says_where_or_nan(tmp_path, kind):
    path = tmp_path / f"s.{kind}"
    if kind == "csv":
        path.write_text("s\n1.5\noops\n-inf\nNaN\n+inf\n.5e1\n")
    elif kind == "jsonl":
        path.write_text("".join(f'{{"s": {x}}}\n' for x in ("1.5", "null", "-Infinity", "NaN", "Infinity", "5")))
    else:
        np.save(path, np.asarray([1.5, np.nan, -np.inf, np.nan, np.inf, 5]))
    batch = read_columns(find_sources(path), ["s"])
    np.testing.assert_array_equal(batch.numbers("s", skip_bad=True), [1.5, np.nan, -np.inf, np.nan, np.nan, 5])
    with pytest.raises(InputError, match=r"row 2, column 's': '.*' is not a number below \+inf, as 3 of 6"):
        batch.numbers("s")


MISTAKES = {
    "ragged.csv": ("id,log_ratio\n1,2\n3\n", "Expected 2 columns, got 1"),
    "far.csv": ("id,log_ratio\n" + "1,2\n" * 600_000 + "3\n", "row 600001: Expected 2 columns, got 1"),
    "headless.csv": ("1,0.5\n2,0.5\n", r"line 1 must name the columns, and '1' is a number; .* header=False"),
    "open.csv": ('id,log_ratio\n1,"2\n' + "1,2\n" * 50_000, "a quotation mark that is never closed"),
    "other.csv": ('id,"sc\nore"\n1,2\n', "has no column 'log_ratio'; it has id, sc ore"),
    "latin.csv": (b"id,log_ratio\n1,caf\xe9\n", "invalid UTF8"),
    "latin.jsonl": (b'{"id": 1, "log_ratio": 1}\n{"id": 2, "log_ratio": 1, "t": "\xe9"}\n', "row 2: 'utf-8' codec"),
    "utf16.csv": ("id,log_ratio\n1,2\n".encode("utf-16"), "convert it with iconv"),
    "list.json": ("[]", "unknown extension '.json'"),
    "empty.csv": ("", "is empty"),
    "twice.csv": ("id,log_ratio,id\n1,2,3\n", "two columns named 'id'"),
    "long.csv": ("id,log_ratio\n1," + "2" * 30_000_000 + "\n", "is longer than 8 MB"),
    "comma.jsonl": ('{"id": 1, "log_ratio": 1}\n{"id": 2, "log_ratio": 1,}\n', "cannot be read: row 2: Expecting"),
    "two.jsonl": (
        '{"id": 1, "log_ratio": 1}\n{"id": 2, "log_ratio": 1} {"id": 2}\n',
        "row 2: Extra data",
    ),
    "list.jsonl": ('{"id": 1, "log_ratio": 1}\n[1]\n', "cannot be read: row 2: .*not a mapping"),
    "first.jsonl": ('[["id", 1], ["log_ratio", 2]]\n', "not a mapping"),
    "blank.jsonl": ("\n\n", "is empty|cannot be read"),
    "broken.parquet": ("PAR1 is not enough", "cannot be read"),
    "broken.npy": (b"\x93NUMPY\x01\0\x0a\0{'descr': (\n", "cannot be read"),
    "broken.npz": (b"PK\x03\x04 nothing", "cannot be read"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_be_read_is_one_line_that_names_the_file(tmp_path, name):
    text, message = MISTAKES[name]
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message) as caught:
        read_columns(find_sources(tmp_path / name), ["id", "log_ratio"]).numbers("log_ratio")
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_file_that_vanished_or_is_cut_short_is_named(tmp_path):
    (source,) = find_sources(make_file(tmp_path, "parquet")[0])
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(InputError, match=r"a\.parquet cannot be read: .*No such file"):
        list(source.batches(["id"]))
    data = gzip.compress(make_file(tmp_path, "csv")[0].read_bytes() * 50)
    (tmp_path / "b.csv.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"b\.csv\.gz cannot be read"):
        list(find_sources(tmp_path / "b.csv.gz")[0].batches(["id"]))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("no.csv", "no.csv is missing or not a file"),
        ("*.tsv", r"\*.tsv is missing or not a file"),
        (__file__, "unknown extension '.py'"),
        ([], "has no files of scores"),
        (7, "files must be a folder, a glob or a list of paths"),
        (["a/x.csv", "b/x.csv"], r"x\.csv have one name; give the folder that both are in"),
        (".", "of one format, got csv, jsonl"),
    ],
    ids=str,
)
def test_files_that_are_not_there_or_do_not_go_together_are_one_line(tmp_path, monkeypatch, where, message):
    monkeypatch.chdir(tmp_path)
    for name in ("a/x.csv", "b/x.csv", "d.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id\n")
    with pytest.raises((InputError, TypeError), match=message):
        find_sources(where)
