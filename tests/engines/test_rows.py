"""Files of rows: found, read in batches and written as they came."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from obrs._ids import text_ids
from obrs.engines import rows
from obrs.engines.rows import (
    columns_of,
    find_sources,
    pick_groups,
    read_batches,
    row_count,
    row_ids,
    same_columns,
    writing,
)
from obrs.errors import InputError

N = 1000
TEXT = ["csv", "tsv", "jsonl", "csv.gz", "jsonl.zst"]


def content(kind):
    """Rows with ids, scores, and notes that need quotes or nesting."""
    numbers = [(i, (i * 37 % 101) / 10 - 5) for i in range(N)]
    if kind.startswith("jsonl"):
        return "".join(json.dumps({"id": i, "log_ratio": x, "note": {"a": [i, None]}}) + "\n" for i, x in numbers)
    comma = "\t" if kind.startswith("tsv") else ","
    cells = [f'{i}{comma}{x!r}{comma}"line\nbreak{comma} ""{i}"""\n' for i, x in numbers]
    return f"id{comma}log_ratio{comma}note\n" + "".join(cells)


def write(path, text):
    codec = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    with pa.output_stream(path, compression=codec) as stream:
        stream.write(text.encode())
    return path


def read_back(path):
    with pa.input_stream(path, compression="detect") as stream:
        return stream.read().decode()


@pytest.mark.parametrize("piece", [1 << 25, 700])
@pytest.mark.parametrize("kind", TEXT)
def test_text_is_read_in_batches_and_written_as_the_bytes_it_was(tmp_path, monkeypatch, kind, piece):
    monkeypatch.setattr(rows, "_PIECE", piece)
    text = content(kind)
    (source,) = find_sources(write(tmp_path / f"a.{kind}", text))
    scores, ids, firsts = [], [], []
    with writing(tmp_path / f"out/a.{kind}", source) as put:
        for batch in read_batches(source, ["id", "log_ratio"]):
            ids.append(row_ids(batch, source, "id"))
            scores.append(batch.columns["log_ratio"].cast(pa.float64()).to_numpy(zero_copy_only=False))
            firsts.append(batch.first)
            put(*batch.take(ids[-1] % 2 == 0))
    np.testing.assert_array_equal(np.concatenate(ids), np.arange(N))
    np.testing.assert_allclose(np.concatenate(scores), (np.arange(N) * 37 % 101) / 10 - 5, atol=1e-12)
    assert len(firsts) == 1 if piece > 1000 else len(firsts) > 20
    whole = text.splitlines(keepends=True)
    per_row = 1 if kind.startswith("jsonl") else 2
    head = whole[: 0 if kind.startswith("jsonl") else 1]
    body = whole[len(head) :]
    even = [line for i in range(0, N, 2) for line in body[i * per_row : (i + 1) * per_row]]
    assert read_back(tmp_path / f"out/a.{kind}") == "".join(head + even)


@pytest.mark.parametrize("piece", [1 << 25, 3000])
def test_parquet_is_read_by_row_groups_and_keeps_schema_codec_and_metadata(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(rows, "_PIECE", piece)
    table = pa.table({"x": [[i] for i in range(N)], "id": np.arange(N), "s": ["text"] * N, "log_ratio": np.zeros(N)})
    table = table.replace_schema_metadata({"who": "me"})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=300, compression="zstd")
    (source,) = find_sources(tmp_path)
    with writing(tmp_path / "b.parquet", source) as put:
        for batch in read_batches(source, ["log_ratio", "id"]):
            put(*batch.take(row_ids(batch, source, "id") % 3 == 0))
    back = parquet.read_table(tmp_path / "b.parquet")
    assert back.schema.metadata[b"who"] == b"me"
    assert back.equals(table.filter(pa.array(np.arange(N) % 3 == 0)))
    assert parquet.ParquetFile(tmp_path / "b.parquet").metadata.row_group(0).column(1).compression == "ZSTD"


def test_a_file_of_which_nothing_is_kept_is_a_file_with_its_columns(tmp_path):
    parquet.write_table(pa.table({"id": [1], "log_ratio": [0.5]}), tmp_path / "a.parquet")
    (source,) = find_sources(tmp_path)
    with writing(tmp_path / "b.parquet", source):
        pass
    assert parquet.read_table(tmp_path / "b.parquet").column_names == ["id", "log_ratio"]


def test_ids_by_file_name_do_not_depend_on_batches_or_on_the_folder(tmp_path, monkeypatch):
    found = {}
    for folder, piece in (("one", 1 << 25), ("two", 700)):
        monkeypatch.setattr(rows, "_PIECE", piece)
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "a.csv", content("csv"))
        write(tmp_path / folder / "b.csv", content("csv"))
        for source in find_sources(tmp_path / folder):
            ids = [row_ids(batch, source, None) for batch in read_batches(source, ["log_ratio"])]
            found[folder, source.name] = np.concatenate(ids)
    for name in ("a.csv", "b.csv"):
        np.testing.assert_array_equal(found["one", name], found["two", name])
    assert len(np.unique(np.concatenate([found["one", "a.csv"], found["one", "b.csv"]]))) == 2 * N


def test_an_integer_written_as_text_is_that_integer_and_other_text_has_an_id_of_its_own(tmp_path):
    words = ["7", "007", "-3", "", "a", "b", "ab", "ba", "7 ", "é", "12345678901234567890"]
    parquet.write_table(pa.table({"id": words}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"id": words[::-1]}), tmp_path / "b.parquet", row_group_size=2)
    ids = {}
    for source in find_sources(tmp_path):
        batches = list(read_batches(source, ["id"]))
        ids[source.name] = np.concatenate([row_ids(batch, source, "id") for batch in batches])
    np.testing.assert_array_equal(ids["a.parquet"], ids["b.parquet"][::-1])
    assert ids["a.parquet"][[0, 2]].tolist() == [7, -3]
    assert len(set(ids["a.parquet"].tolist())) == len(words)


def test_hashes_of_text_spread_over_all_64_bits():
    cells = pa.array([f"https://example.org/{i}" for i in range(20_000)])
    hashed = text_ids(cells).view(np.uint64)
    assert len(np.unique(hashed)) == len(hashed)
    for bit in range(64):
        share = np.mean((hashed >> np.uint64(bit)) & np.uint64(1))
        assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(20_000)
    np.testing.assert_array_equal(text_ids(cells[7:9]).view(np.uint64), hashed[7:9])


def test_a_share_of_the_row_groups_is_picked_and_only_they_are_read(tmp_path):
    for k in range(3):
        ids = np.arange(k * 100, k * 100 + 100)
        parquet.write_table(pa.table({"id": ids}), tmp_path / f"{k}.parquet", row_group_size=5)
    sources = find_sources(tmp_path)
    assert row_count(sources) == 300
    chosen = pick_groups(sources, 0.1, least=4, most=1000)
    assert sum(len(set(groups)) for _, groups in chosen) == 6
    for source, groups in chosen:
        batches = list(read_batches(source, ["id"], groups=groups))
        ids = np.concatenate([row_ids(batch, source, "id") for batch in batches])
        start = 100 * int(source.name[0])
        assert ids.tolist() == [start + 5 * group + j for group in groups for j in range(5)]
        assert batches[0].first == 5 * groups[0]
    assert sum(len(groups) for _, groups in pick_groups(sources, 1, least=4, most=32)) == 6


def test_small_row_groups_are_read_together_and_large_ones_in_pieces(tmp_path, monkeypatch):
    parquet.write_table(pa.table({"id": np.arange(N), "x": np.zeros(N)}), tmp_path / "a.parquet", row_group_size=10)
    (source,) = find_sources(tmp_path)
    for piece, count in ((1 << 25, 1), (4000, range(5, 90)), (100, range(100, 1001))):
        monkeypatch.setattr(rows, "_PIECE", piece)
        batches = list(read_batches(source, ["id"]))
        assert len(batches) in ([count] if isinstance(count, int) else count)
        assert np.concatenate([row_ids(batch, source, "id") for batch in batches]).tolist() == list(range(N))
        assert [batch.first for batch in batches] == np.cumsum([0, *map(len, batches)])[:-1].tolist()


def test_a_folder_a_glob_and_a_list_find_the_same_files(tmp_path):
    for name in ("b.csv", "a.csv.gz", "_hidden.csv", ".x.csv", "notes.txt", "sub/c.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id,log_ratio\n")
    assert [s.name for s in find_sources(tmp_path)] == ["a.csv.gz", "b.csv", "sub/c.tsv"]
    assert [s.name for s in find_sources(f"{tmp_path}/*.csv*")] == ["_hidden.csv", "a.csv.gz", "b.csv"]
    assert [s.name for s in find_sources([tmp_path / "b.csv", tmp_path / "a.csv.gz"])] == ["a.csv.gz", "b.csv"]
    taken = find_sources([tmp_path / "notes.txt", tmp_path / "b.csv"], format="tsv")
    assert [s.delimiter for s in taken] == [",", "\t"], "a format is for files whose extension says nothing"


def test_blank_lines_byte_order_marks_and_a_missing_last_line_break_change_nothing(tmp_path):
    text = "\ufeffid;log_ratio\r\n\r\n1;0.5\r\n\r\n2;1.5"
    (tmp_path / "a.csv").write_bytes(text.encode())
    (source,) = find_sources(tmp_path, delimiter=";")
    assert columns_of(source) == {"id": "text", "log_ratio": "text"}
    with writing(tmp_path / "b.csv", source) as put:
        first, last = read_batches(source, ["id", "log_ratio"])
        assert first.columns["log_ratio"].to_pylist() + last.columns["log_ratio"].to_pylist() == ["0.5", "1.5"]
        assert [first.where(0), last.where(0)] == ["line 3", "line 5"]
        put(*last.take(np.array([True])))
    assert (tmp_path / "b.csv").read_bytes() == "\ufeffid;log_ratio\r\n2;1.5\n".encode()
    (tmp_path / "c.jsonl").write_text(' \n{"id": 1}\n  \n {"id": 2}\n')
    (source,) = find_sources(tmp_path / "c.jsonl")
    (batch,) = read_batches(source, ["id"])
    assert batch.columns["id"].to_pylist() == [1, 2]


def test_a_json_row_may_miss_a_score_and_numbers_may_be_whole_or_not(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "x", "log_ratio": 1}\n{"id": "y"}\n{"id": "z", "log_ratio": -Infinity}\n')
    (source,) = find_sources(tmp_path)
    (batch,) = read_batches(source, ["id", "log_ratio"])
    assert batch.columns["log_ratio"].cast(pa.float64()).to_pylist() == [1.0, None, -np.inf]


MISTAKES = {
    "a.csv": ("id,log_ratio\n1,2\n3\n", "line 3: expected 2 columns, got 1"),
    "b.csv": ("1,0.5\n2,0.5\n", "line 1 must name the columns"),
    "c.csv": ("id,id\n1,2\n", "two columns named 'id'"),
    "d.csv": ('id,log_ratio\n1,5" pipe\n2,1" pipe\n', "is there a quote inside a cell"),
    "e.csv": ("id,score\n1,2\n", "has no column 'log_ratio'; it has id, score"),
    "f.jsonl": ('{"id": 1, "log_ratio": 1}\n{"id": 2, "log_ratio": 1,}\n', "line 2"),
    "g.jsonl": ('{"id": 1, "log_ratio": 1} {"id": 2, "log_ratio": 1}\n', "not JSON"),
    "h.jsonl": ('{"id": 1, "log_ratio": 1}\n{"id": 2, "log_ratio": 1} {"id": 2}\n', "two objects on one line"),
    "i.jsonl": ("[1]\n", "is not a JSON object"),
    "j.jsonl": ('{"id": 1, "log_ratio": 1}\n{"id": "x", "log_ratio": 1}\n', "line 2: Column\\(/id\\) changed"),
    "k.parquet": ("PAR1 is not enough", "is it whole"),
    "l.csv": (b"id,\xff\n1,2\n", "not UTF-8"),
    "m.csv.gz": ("not gzip", "cannot be read"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_be_read_is_one_line_that_names_the_file(tmp_path, name):
    text, message = MISTAKES[name]
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message) as caught:
        list(read_batches(find_sources(tmp_path)[0], ["id", "log_ratio"]))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_vanishes_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("id,log_ratio\n")
    parquet.write_table(pa.table({"id": [1]}), tmp_path / "b.parquet")
    for name in ("a.csv", "b.parquet"):
        (source,) = find_sources(tmp_path / name)
        (tmp_path / name).unlink()
        with pytest.raises(InputError, match=f"{name} has vanished"):
            list(read_batches(source, ["id"]))


def test_a_file_that_is_cut_short_is_named(tmp_path):
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write(content("csv") * 50)
    whole = (tmp_path / "a.csv.gz").read_bytes()
    (tmp_path / "a.csv.gz").write_bytes(whole[: len(whole) // 2])
    (source,) = find_sources(tmp_path)
    with pytest.raises(InputError, match=r"a\.csv\.gz"):
        list(read_batches(source, ["id"]))


def test_files_with_other_columns_are_named(tmp_path):
    parquet.write_table(pa.table({"id": [1], "log_ratio": [0.5]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"id": [1], "log_ratio": pa.array([0.5], pa.float32())}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"a\.parquet has 'log_ratio' as double, .*b\.parquet has .* as float$"):
        same_columns(find_sources(tmp_path))
    (tmp_path / "c.csv").write_text("id,log_ratio\n")
    (tmp_path / "d.csv").write_text("id,log_ratio,x\n")
    with pytest.raises(InputError, match=r"c\.csv has no column 'x'"):
        same_columns(find_sources(f"{tmp_path}/*.csv"))
    with pytest.raises(InputError, match="of one format"):
        find_sources(tmp_path)


@pytest.mark.parametrize(
    ("where", "options", "message"),
    [
        ("no", {}, "missing or not a file"),
        ("no/", {}, "missing or not a file"),
        (__file__, {}, "unknown extension '.py'"),
        ("no.csv", {}, "missing or not a file"),
        ("*.csv", {}, "no file matches"),
        ([], {}, "no file matches"),
        (".", {}, "has no files of rows"),
        (".", {"format": "xls"}, "unknown format 'xls'"),
        (".", {"delimiter": "ab"}, "one character"),
    ],
)
def test_files_that_are_not_there_are_one_line(tmp_path, monkeypatch, where, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        find_sources(where, **options)
