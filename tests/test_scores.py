"""Files of scores: every format is read alike and written as it was; what is wrong is one line that names the file."""

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
NOTES = [f'line\nbreak, "{i}" é' if i % 5 else f"{i:03d}" for i in range(N)]


def write(path, text):
    codec = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    with pa.output_stream(path, compression=codec) as stream:
        stream.write(text if isinstance(text, bytes) else text.encode())
    return path


def rows_of(kind):
    """Return the header, which a jsonl has not, and the rows as csv, tsv or jsonl."""
    rows = zip(range(N), LOG_RATIO.tolist(), NOTES, strict=True)
    if kind.startswith("jsonl"):
        return "", [json.dumps({"id": i, "log_ratio": x, "note": {"a": [t, None]}}) + "\n" for i, x, t in rows]
    comma, end = ("\t", "\r\n") if kind.startswith("tsv") else (",", "\n")
    quoted = ('"' + t.replace('"', '""') + '"' if "\n" in t else t for t in NOTES)
    cells = zip(range(N), LOG_RATIO.tolist(), quoted, strict=True)
    return comma.join(["id", "log_ratio", "note"]) + end, [f"{i}{comma}{x!r}{comma}{t}{end}" for i, x, t in cells]


def make_file(folder, kind):
    path = folder / f"a.{kind}"
    if kind == "parquet":
        table = pa.table({"id": np.arange(N), "log_ratio": LOG_RATIO, "note": [[t] for t in NOTES]})
        table = table.replace_schema_metadata({"who": "me"})
        parquet.write_table(table, path, row_group_size=300, compression="zstd")
    elif kind == "npz":
        np.savez(path, id=np.arange(N), log_ratio=LOG_RATIO, x=np.zeros((N, 2)))
    else:
        head, rows = rows_of(kind)
        write(path, head + "".join(rows))
    return path


TEXT = ("csv", "tsv.gz", "jsonl", "jsonl.zst")


@pytest.mark.parametrize("piece", [1 << 23, 4000])
@pytest.mark.parametrize("kind", [*TEXT, "parquet", "npz"])
def test_every_format_is_read_in_batches(tmp_path, monkeypatch, kind, piece):
    monkeypatch.setattr(scores, "_BLOCK", piece)
    monkeypatch.setattr(scores, "_ROWS", piece // 100)
    (source,) = find_sources(make_file(tmp_path, kind))
    batches = list(source.batches(["log_ratio", "id"]))
    assert len(batches) == 1 if piece > 4000 or kind == "npz" else len(batches) > 3
    np.testing.assert_array_equal(np.concatenate([batch.numbers("log_ratio") for batch in batches]), LOG_RATIO)
    np.testing.assert_array_equal(np.concatenate([batch.ids("id") for batch in batches]), np.arange(N))
    assert [batch.first for batch in batches] == np.cumsum([0, *map(len, batches)])[:-1].tolist()
    np.testing.assert_array_equal(read_columns([source], ["log_ratio"]).numbers("log_ratio"), LOG_RATIO)


@pytest.mark.parametrize("kind", [*TEXT, "parquet"])
def test_rows_are_written_as_they_were(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(scores, "_BLOCK", 4000)
    (source,) = find_sources(make_file(tmp_path, kind))
    for extra in ((), ("weight",)):
        out, kept = tmp_path / f"b.{kind}", (batch.ids("id") % 5 == 0 for batch in source.batches(["id"]))
        parts = zip(source.batches([], rows=True), kept, strict=True)
        source.write(out, ((batch, mask, {"weight": np.full(mask.sum(), 0.1)}) for batch, mask in parts), extra)
        back = read_columns(find_sources(out), ["id", *extra])
        assert back.source.columns == ["id", "log_ratio", "note", *extra]
        np.testing.assert_array_equal(back.ids("id"), np.arange(0, N, 5))
        if extra:
            np.testing.assert_array_equal(back.numbers("weight"), 0.1)
        elif kind == "parquet":
            whole, part = parquet.read_table(source.path), parquet.read_table(out)
            assert part.schema.metadata[b"who"] == b"me"
            assert part.equals(whole.filter(pa.array(np.arange(N) % 5 == 0)))
            assert parquet.ParquetFile(out).metadata.row_group(0).column(1).compression == "ZSTD"
        else:
            head, rows = rows_of(kind)
            with pa.input_stream(out, compression="detect") as stream:
                assert stream.read().decode() == head + "".join(rows[::5]), "byte by byte"


def test_rows_are_packed_as_the_name_of_the_new_file_says(tmp_path):
    for kind in ("csv", "csv.gz"):
        (source,) = find_sources(make_file(tmp_path, kind))
        for name in ("b.csv", "b.csv.gz", "b.csv.zst"):
            parts = ((batch, np.ones(len(batch), bool), {}) for batch in source.batches(["id"], rows=True))
            source.write(tmp_path / name, parts)
            assert (tmp_path / name).read_bytes()[:2] == {"b.csv": b"id", "b.csv.gz": b"\x1f\x8b"}.get(
                name, b"\x28\xb5"
            )
            np.testing.assert_array_equal(read_columns(find_sources(tmp_path / name), ["id"]).ids("id"), np.arange(N))


def test_a_decimal_or_a_large_integer_of_a_jsonl_changes_its_column_alone(tmp_path):
    text = f'{{"id":0,"big":1,"reward":1}}\n{{"id":1,"big":{2**64 - 1},"reward":0.14}}\n'
    batch = read_columns(find_sources(write(tmp_path / "a.jsonl", text)), ["id", "big", "reward"])
    assert (batch.ids("id").tolist(), batch.ids("big").tolist()) == ([0, 1], [1, -1])
    assert batch.numbers("reward").tolist() == [1, 0.14]


def test_marks_spaces_blank_lines_and_windows_change_nothing(tmp_path):
    cases = {
        "a.csv": b"\xef\xbb\xbfid;log_ratio\r\n\r\n1; 1.5\r\n\r\n2;-inf\r\n3;+2 \r\n4;1e-3",
        "a.jsonl": b'\xef\xbb\xbf \n{"log_ratio": 1.5}\r\n\n {"log_ratio": -Infinity}\n{"log_ratio": 2}\n'
        b'{"log_ratio": 1e-3}',
    }
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
        sources = find_sources(tmp_path / name, delimiter=";" if name == "a.csv" else None)
        found = read_columns(sources, ["log_ratio"]).numbers("log_ratio")
        np.testing.assert_array_equal(found, [1.5, -np.inf, 2, 1e-3])


def test_an_npy_is_one_column(tmp_path):
    np.save(tmp_path / "log_ratio.npy", np.arange(3, dtype=np.float16))
    assert read_columns(find_sources(tmp_path / "log_ratio.npy"), ["log_ratio"]).numbers("log_ratio").tolist() == [
        0,
        1,
        2,
    ]


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


def test_labels_are_numbered_in_every_format(tmp_path):
    for name, text in (
        ("a.csv", "g,h\nb,9\na,10\nb,9\n"),
        ("b.jsonl", '{"g":"b","h":9}\n{"g":"a","h":10}\n{"g":"b","h":9}\n'),
    ):
        batch = read_columns(find_sources(write(tmp_path / name, text)), ["g", "h"])
        for column, expected in (("g", ["b", "a", "b"]), ("h", ["9", "10", "9"])):
            codes, names = batch.labels(column)
            assert [names[code] for code in codes] == expected


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


QUOTE = "a cell has a quote inside and none around it"
MISTAKES = {
    "ragged.csv": ("id,log_ratio\n1,2\n3\n", "Expected 2 columns, got 1"),
    "headless.csv": ("1,0.5\n2,0.5\n", r"line 1 must name the columns, and '1' is a number; .* header=False"),
    "open.csv": ('id,log_ratio\n1,"2\n' + "1,2\n" * 50_000, "a quote is not closed in 200,006 bytes"),
    "endless.csv": ('id,log_ratio\n1,"2\n' + "1,2\n" * 5_000_000, "a quote is not closed in 8,388,608 bytes"),
    "stray.csv": ('id,log_ratio\n1,5" pipe\n', QUOTE),
    "inner.csv": ('id,log_ratio\n1 5" pipe,2\n2 6" pipe,3\n', QUOTE),
    "turned.csv": ('id,log_ratio\n1" a,1\n"x\ny",2\nz",3\n', QUOTE),
    "other.csv": ("id,score\n1,2\n", "has no column 'log_ratio'; it has id, score"),
    "semicolon.csv": ("id;log_ratio\n1;2\n", "has no column 'id'; it has id;log_ratio"),
    "latin.csv": (b"id,log_ratio\n1,caf\xe9\n", "invalid UTF8"),
    "utf16.csv": ("id,log_ratio\n1,2\n".encode("utf-16"), "is UTF-16, .* iconv -f UTF-16 -t UTF-8"),
    "decimal.csv": ('id,log_ratio\n1,"0,5"\n', "'0,5' is not a number.*; write decimals with a point"),
    "list.json": ("[]", "unknown extension '.json'"),
    "empty.csv": ("", "is empty"),
    "twice.csv": ("id,log_ratio,id\n1,2,3\n", "two columns named 'id'"),
    "long.csv": ("id,log_ratio\n1," + "2" * 30_000_000 + "\n", "a row is longer than 8,388,608 bytes"),
    "comma.jsonl": ('{"id": 1, "log_ratio": 1}\n{"id": 2, "log_ratio": 1,}\n', "JSON parse error: .* in row 1"),
    "two.jsonl": (
        '{"id": 1, "log_ratio": 1}\n{"id": 2, "log_ratio": 1} {"id": 2}\n',
        "do not end where their lines end",
    ),
    "list.jsonl": ('{"id": 1, "log_ratio": 1}\n[1]\n', "JSON parse error"),
    "first.jsonl": ("[1]\n", "row 1 is no JSON object"),
    "blank.jsonl": ("\n \n", "is empty"),
    "broken.parquet": ("PAR1 is not enough", "cannot be read"),
    "packed.csv.gz": ("", "cannot be read|is empty"),
    "broken.npy": (b"\x93NUMPY\x01", "cannot be read"),
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
    (source,) = find_sources(make_file(tmp_path, "parquet"))
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(InputError, match=r"a\.parquet cannot be read: .*No such file"):
        list(source.batches(["id"]))
    head, rows = rows_of("csv")
    data = gzip.compress((head + "".join(rows * 50)).encode())
    (tmp_path / "a.csv.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"a\.csv\.gz cannot be read"):
        list(find_sources(tmp_path)[0].batches(["id"]))


@pytest.mark.parametrize(
    ("where", "options", "message"),
    [
        ("no.csv", {}, "no.csv is missing or not a file"),
        ("*.csv", {}, r"\*.csv is missing or not a file"),
        (__file__, {}, "unknown extension '.py'"),
        ([], {}, "has no files of scores"),
        (".", {}, "has no files of scores"),
        (".", {"delimiter": "ab"}, "one character"),
        (7, {}, "files must be a folder, a glob or a list of paths"),
    ],
)
def test_files_that_are_not_there_are_one_line(tmp_path, monkeypatch, where, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InputError, TypeError), match=message):
        find_sources(where, **options)


def test_files_that_do_not_go_together_are_named(tmp_path):
    for name in ("a/x.csv", "b/x.csv", "c.tsv", "d.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id\n")
    with pytest.raises(InputError, match=r"x\.csv have one name; give the folder that both are in"):
        find_sources([tmp_path / "a/x.csv", tmp_path / "b/x.csv"])
    with pytest.raises(InputError, match="of one format, got csv, jsonl"):
        find_sources(tmp_path)
    for options in ({"header": False}, {"delimiter": ";"}):
        with pytest.raises(InputError, match="for csv and tsv, and jsonl has none"):
            find_sources(tmp_path / "d.jsonl", **options)
