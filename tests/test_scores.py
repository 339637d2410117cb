"""Files of scores: every format comes back as it was, and a failed write changes nothing."""

import io
import json
import os
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from obrs.errors import InputError
from obrs.scores import (
    FORMATS,
    Table,
    column,
    format_of,
    keep,
    labels,
    read_table,
    score_column,
    take,
    without_bad,
    write_table,
)
from obrs.selection import inclusion_probability, select

LOG_RATIO = np.asarray([0.25, -1.5, -np.inf, 3e-7])


class Standard:
    """A standard stream with bytes below it."""

    def __init__(self, data=b""):
        self.buffer = io.BytesIO(data)


def words(table, name):
    codes, names = labels(table, name)
    return [names[code] for code in codes]


def written(path, text):
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.fixture
def table():
    columns = {"log_ratio": LOG_RATIO, "id": np.asarray([1, 2, 3, 4]), "name": np.asarray(["a", "é,", 'q"', "l\nm"])}
    return Table(columns, name="memory", format="npz")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_comes_back_as_it_was(table, tmp_path, format):
    path = tmp_path / f"scores.{format}"
    write_table(path, table)
    back = read_table(path)
    assert list(back.columns) == ["log_ratio", "id", "name"]
    assert len(back) == 4
    np.testing.assert_array_equal(column(back, "log_ratio"), LOG_RATIO)
    np.testing.assert_array_equal(column(back, "id"), [1, 2, 3, 4])
    assert words(back, "name") == ["a", "é,", 'q"', "l\nm"]


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
def test_every_format_can_be_written_as_every_other(table, tmp_path, source, target):
    write_table(tmp_path / f"a.{source}", table)
    write_table(tmp_path / f"b.{target}", take(read_table(tmp_path / f"a.{source}"), np.asarray([0, 3])))
    back = read_table(tmp_path / f"b.{target}")
    np.testing.assert_array_equal(column(back, "log_ratio"), LOG_RATIO[[0, 3]])
    assert words(back, "name") == ["a", "l\nm"]
    if target not in ("csv", "tsv"):
        assert "int" in str(getattr(back["id"], "type", type(back["id"][0])))


def test_the_text_of_a_csv_is_left_alone(tmp_path):
    text = "id,when,log_ratio,note\n007,2024-01-02,1.50,NA\n010,,-2e0,\n"
    path = written(tmp_path / "scores.csv", text)
    write_table(tmp_path / "kept.csv", read_table(path))
    assert (tmp_path / "kept.csv").read_text() == text


def test_leading_zeros_stay_text_in_other_formats(tmp_path):
    path = written(tmp_path / "scores.csv", "id,log_ratio\n007,1\n010,2.5\n")
    write_table(tmp_path / "scores.jsonl", read_table(path))
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert rows == [{"id": "007", "log_ratio": 1.0}, {"id": "010", "log_ratio": 2.5}]


def test_a_jsonl_row_keeps_its_keys_and_nesting(tmp_path):
    rows = [{"log_ratio": 1, "meta": {"a": [1, None]}}, {"log_ratio": -0.5, "meta": "text", "more": True}]
    path = written(tmp_path / "scores.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n")
    kept = take(read_table(path), np.asarray([0, 1]), {"weight": np.asarray([1.0, 2.0])})
    write_table(tmp_path / "kept.jsonl", kept)
    back = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert back == [rows[0] | {"weight": 1.0}, rows[1] | {"weight": 2.0}]


def test_parquet_keeps_its_types(tmp_path):
    path = tmp_path / "scores.parquet"
    columns = {"score": pa.array([1, None, 3], pa.int32()), "tags": [["a"], [], ["b", "c"]]}
    columns["kind"] = pa.array(["x", "y", "x"]).dictionary_encode()
    parquet.write_table(pa.table(columns), path)
    kept = tmp_path / "kept.parquet"
    write_table(kept, take(read_table(path), np.asarray([0, 2])))
    back = parquet.read_table(kept)
    assert back.schema.field("score").type == pa.int32()
    assert back["tags"].to_pylist() == [["a"], ["b", "c"]]
    assert labels(read_table(kept), "kind")[1] == ["x"]


def test_an_npy_has_one_column_numbered_columns_or_fields(tmp_path):
    path = tmp_path / "log_ratio.npy"
    np.save(path, np.arange(3, dtype=np.float16))
    assert list(read_table(path).columns) == ["log_ratio"]
    np.testing.assert_array_equal(column(read_table(path), "log_ratio"), [0, 1, 2])
    np.save(path, np.arange(6).reshape(3, 2))
    np.testing.assert_array_equal(column(read_table(path), "1"), [1, 3, 5])
    np.save(path, np.asarray([(1.0, 2)], dtype=[("a", ">f8"), ("b", "i4")]))
    assert list(read_table(path).columns) == ["a", "b"]
    np.testing.assert_array_equal(column(read_table(path), "a"), [1.0])


def test_an_npz_is_filtered_along_its_rows(tmp_path):
    path = tmp_path / "scores.npz"
    np.savez(path, x=np.arange(12).reshape(3, 2, 2), log_ratio=np.zeros(3), seed=np.asarray(7))
    table = read_table(path)
    assert list(table.columns) == ["x", "log_ratio"], "what has no rows is left out"
    write_table(tmp_path / "kept.npz", take(table, np.asarray([1])))
    np.testing.assert_array_equal(np.load(tmp_path / "kept.npz")["x"], [[[4, 5], [6, 7]]])


def test_a_column_may_have_any_name(tmp_path):
    table = Table({"file": np.zeros(2), "": np.ones(2)}, name="memory", format="npz")
    for format in FORMATS:
        write_table(tmp_path / f"odd.{format}", table)
        assert len(read_table(tmp_path / f"odd.{format}")) == 2


def test_cells_may_have_spaces_and_infinities(tmp_path):
    path = written(tmp_path / "scores.csv", "log_ratio\n 1.5\n-inf\n+2 \n1e-3")
    np.testing.assert_array_equal(column(read_table(path), "log_ratio"), [1.5, -np.inf, 2, 1e-3])


def test_windows_text_is_read(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_bytes(b"\xef\xbb\xbflog_ratio,id\r\n1.5,a\r\n2.5,b\r\n")
    assert list(read_table(path).columns) == ["log_ratio", "id"]
    path = tmp_path / "scores.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"log_ratio": 1.5}\r\n{"log_ratio": 2.5}\r\n')
    np.testing.assert_array_equal(column(read_table(path), "log_ratio"), [1.5, 2.5])


def test_numbers_after_the_first_megabyte_may_change_type(tmp_path):
    path = written(tmp_path / "scores.csv", "log_ratio,id\n" + "1,2\n" * 400_000 + "0.5,a\n")
    assert column(read_table(path), "log_ratio")[-1] == 0.5


@pytest.mark.parametrize(
    ("text", "format"),
    [("log_ratio\n1\n", "csv"), ('\n {"log_ratio": 1}\n', "jsonl")],
)
def test_standard_input_is_csv_or_jsonl_by_its_first_byte(monkeypatch, text, format):
    monkeypatch.setattr(sys, "stdin", Standard(text.encode()))
    table = read_table("-")
    assert (table.name, table.format) == ("standard input", format)
    np.testing.assert_array_equal(column(table, "log_ratio"), [1])


def test_standard_input_can_be_told_its_format(monkeypatch, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    monkeypatch.setattr(sys, "stdin", Standard((tmp_path / "a.npy").read_bytes()))
    assert len(read_table("-", "npy")) == 3


@pytest.mark.parametrize(("source", "begins"), [("jsonl", b'{"log_ratio": 0.25'), ("npz", b"log_ratio,id,name\n0.25")])
def test_standard_output_keeps_a_text_format_and_is_csv_otherwise(table, tmp_path, monkeypatch, source, begins):
    write_table(tmp_path / f"a.{source}", table)
    monkeypatch.setattr(sys, "stdout", Standard())
    write_table("-", read_table(tmp_path / f"a.{source}"))
    assert sys.stdout.buffer.getvalue().startswith(begins)


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("format", FORMATS)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(table, tmp_path, monkeypatch, format, failure):
    def fail(handle):
        raise failure

    path = tmp_path / f"scores.{format}"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(failure)) as caught:
        write_table(path, table)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    if isinstance(failure, OSError):
        assert caught.value.filename == str(path)


def test_a_column_that_does_not_fit_leaves_no_file(tmp_path):
    table = Table({"x": np.fromiter([1, "a"], object)}, name="memory", format="jsonl")
    for format in ("parquet", "npy", "npz", "csv"):
        with pytest.raises(InputError, match="'x' has values of several types"):
            write_table(tmp_path / f"a.{format}", table)
    nested = Table({"x": pa.array([[1], [2]])}, name="memory", format="parquet")
    for format in ("npy", "npz", "csv"):
        with pytest.raises(InputError, match=r"write \.jsonl or \.parquet"):
            write_table(tmp_path / f"a.{format}", nested)
    assert not list(tmp_path.iterdir())


def test_a_new_file_has_usual_permissions_and_an_old_one_keeps_its_own(table, tmp_path):
    (tmp_path / "plain").touch()
    write_table(tmp_path / "a.csv", table)
    assert (tmp_path / "a.csv").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "a.csv").chmod(0o600)
    write_table(tmp_path / "a.csv", table)
    assert (tmp_path / "a.csv").stat().st_mode & 0o777 == 0o600


def test_a_link_stays_a_link(table, tmp_path):
    (tmp_path / "real.csv").touch()
    (tmp_path / "link.csv").symlink_to("real.csv")
    write_table(tmp_path / "link.csv", table)
    assert (tmp_path / "link.csv").is_symlink()
    assert len(read_table(tmp_path / "real.csv")) == 4


def test_what_is_not_a_regular_file_is_written_in_place(table):
    write_table(os.devnull, table, "csv")
    assert not os.path.isfile(os.devnull)


def test_groups_are_numbered_as_select_numbers_them_in_every_format(tmp_path):
    letters, numbers = np.asarray(["b", "a", "b", "c"]), np.asarray([9, 10, 9, -1])
    table = Table({"g": letters, "h": numbers}, name="memory", format="npz")
    for format in FORMATS:
        write_table(tmp_path / f"a.{format}", table)
        back = read_table(tmp_path / f"a.{format}")
        for name, values in (("g", letters), ("h", numbers)):
            codes, names = labels(back, name)
            sorted_labels, expected = np.unique(values, return_inverse=True)
            assert (codes.tolist(), list(map(str, names))) == (expected.tolist(), list(map(str, sorted_labels)))


def test_groups_by_two_columns_are_their_pairs(tmp_path):
    table = Table({"a": np.asarray(["x", "y", "x"]), "b": np.asarray([10, 9, 9])}, name="memory", format="npz")
    codes, names = labels(table, ["a", "b"])
    assert names == ["x/9", "x/10", "y/9"]
    assert codes.tolist() == [1, 2, 0]


def test_the_same_seed_keeps_the_rows_of_select_with_groups():
    rng = np.random.default_rng(0)
    log_ratio, names = rng.normal(size=300), rng.choice(["b", "c", "a"], size=300)
    table = Table({"row": np.arange(300), "g": names}, name="memory", format="npz")
    for n in (20, {"a": 5, "b": 0, "c": 40}):
        kept = keep(table, log_ratio, n=n, group="g", seed=3)
        np.testing.assert_array_equal(kept["row"], select(log_ratio, n, groups=names, seed=3))


@pytest.mark.parametrize("format", ["csv", "tsv", "parquet"])
def test_only_the_columns_that_are_asked_for_are_read(table, tmp_path, format):
    path = tmp_path / f"scores.{format}"
    write_table(path, table)
    seen = []

    def only(first):
        seen.append((list(first.columns), len(first)))
        return {"log_ratio"}

    back = read_table(path, only=only)
    assert list(back.columns) == ["log_ratio"]
    assert seen == [(["log_ratio", "id", "name"], 1)]
    np.testing.assert_array_equal(column(back, "log_ratio"), LOG_RATIO)


@pytest.mark.parametrize("format", ["csv.gz", "tsv.zst", "jsonl.gz", "npy.zst"])
def test_packed_files_are_read_and_written(table, tmp_path, format):
    path = tmp_path / f"scores.{format}"
    write_table(path, table)
    assert path.read_bytes()[:2] == (b"\x1f\x8b" if format.endswith("gz") else b"\x28\xb5")
    np.testing.assert_array_equal(column(read_table(path), "log_ratio"), LOG_RATIO)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be unpacked as"):
        read_table(path)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_without_a_number_are_left_out_and_counted(tmp_path, format):
    path = tmp_path / f"a.{format}"
    if format in ("csv", "tsv"):
        path.write_text("s\n1.5\noops\n-inf\nNaN\n+inf\n.5e1\n")
    elif format == "jsonl":
        path.write_text("".join(f'{{"s": {x}}}\n' for x in ("1.5", '"oops"', "-Infinity", "null", "Infinity", "5")))
    else:
        numbers = np.asarray([1.5, np.nan, -np.inf, np.nan, np.inf, 5])
        write_table(path, Table({"s": numbers}, name="memory", format="npz"))
    rows, bad = without_bad(read_table(path), "s")
    np.testing.assert_array_equal(column(rows, "s"), [1.5, -np.inf, 5])
    assert bad == 3
    assert rows.where(2) == ("line 7" if format in ("csv", "tsv") else "line 6" if format == "jsonl" else "row 6")


def test_what_shares_leave_over_goes_to_the_first_label_as_in_select(tmp_path):
    names = np.asarray(["b", "a", "c"] * 4)
    table = Table({"g": names}, name="memory", format="npz")
    kept = keep(table, np.zeros(12), n=4, group="g", shares=dict.fromkeys("abc", 1.0))
    chosen = names[select(np.zeros(12), 4, groups=names, shares=[1, 1, 1])]
    assert sorted(kept["g"]) == sorted(chosen) == list("aabc")


def test_a_column_is_not_overwritten():
    table = Table({"weight": np.zeros(2)}, name="scores.npz", format="npz")
    with pytest.raises(InputError, match=r"^scores.npz has a column 'weight' already; rename it first$"):
        take(table, np.asarray([0]), {"weight": np.ones(1)})


def test_columns_of_numbers_are_told_from_text(tmp_path):
    path = written(tmp_path / "scores.jsonl", '{"a": "x", "b": 1, "c": [1], "d": true, "e": null}\n')
    assert read_table(path).numeric() == ["b", "e"]
    path = written(tmp_path / "scores.csv", "a,b,c\nx,1,\n")
    assert read_table(path).numeric() == ["b", "c"]


def test_the_line_of_a_row_is_that_of_an_editor(tmp_path):
    path = written(tmp_path / "scores.csv", 'note,log_ratio\n"two\nlines",1\n\n"a ""quote""",2\nx,bad\n')
    with pytest.raises(InputError, match=r"scores.csv, line 6, column 'log_ratio': 'bad' is not a number$"):
        column(read_table(path), "log_ratio")
    path = written(tmp_path / "scores.csv", 'note,log_ratio\n5" disk,1\nb,bad\n')
    with pytest.raises(InputError, match=r"column 'log_ratio': 'bad' is not a number$"):
        column(read_table(path), "log_ratio")


def test_format_of_knows_extensions_in_any_case():
    assert format_of("A.CSV") == "csv"
    assert format_of("data.txt", "jsonl") == "jsonl"
    assert format_of("data.csv", "jsonl") == "csv", "a format is for a file whose extension says nothing"
    with pytest.raises(InputError, match=r"^unknown format 'xls'; choose from csv, tsv, jsonl, parquet, npy, npz$"):
        format_of("a.csv", "xls")


@pytest.mark.parametrize(
    ("columns", "kind", "found"),
    [
        (["reward", "logit"], "logit", "logit"),
        (["id", "reward"], None, "reward"),
        (["id", "score"], None, "score"),
        (["reward", "logit"], None, None),
        (["a", "b"], None, None),
        (["a"], None, "a"),
    ],
)
def test_the_column_of_scores_is_found_if_there_is_one_choice(columns, kind, found):
    table = Table({name: np.zeros(2) for name in columns}, name="memory", format="npz")
    assert score_column(table, kind) == found


def test_rows_are_kept_with_the_probabilities_of_select_and_mean_weight_1():
    log_ratio = np.random.default_rng(0).normal(size=100)
    table = Table({"log_ratio": log_ratio, "row": np.arange(100)}, name="memory", format="npz")
    kept = keep(table, log_ratio, budget=4, seed=3)
    np.testing.assert_array_equal(kept["row"], select(log_ratio, 25, seed=3))
    np.testing.assert_allclose(kept["inclusion_probability"], inclusion_probability(log_ratio, 25)[kept["row"]])
    assert np.mean(kept["weight"]) == pytest.approx(1)
    with pytest.raises(InputError, match="either n or budget"):
        keep(table, log_ratio)
