"""Files and folders: the rows of `select`, whatever the files; unbiased weights; a run that stops goes on."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import dataset, parquet
from pyarrow import json as arrow_json

from obrs import Profile, _keys, files, scores, select
from obrs.draws import priority_key
from obrs.errors import InputError, MissingLibraryError, ObrsError
from obrs.scores import find_sources, read_columns

N = 20_000
RNG = np.random.default_rng(0)
IDS = RNG.permutation(N) + 7
LOG_RATIO = np.round(RNG.normal(size=N), 3)
LOG_RATIO[:50] = -np.inf
COST = RNG.integers(0, 300, N)
GROUP = RNG.choice(["web", "books", "code"], p=[0.7, 0.2, 0.1], size=N)

POSSIBLE = {name: int(np.sum(np.isfinite(LOG_RATIO[name == GROUP]))) for name in ("books", "code")}


def write_pool(folder, kind="parquet", parts=4, order=None):
    """Write the pool as so many files, in an order."""
    folder.mkdir(parents=True)
    for part, at in enumerate(np.array_split(np.arange(N) if order is None else order, parts)):
        columns = {"note": [f"row {i}, said" for i in at], "id": IDS[at], "log_ratio": LOG_RATIO[at]}
        table = pa.table(columns | {"tokens": pa.array(COST[at], pa.int16()), "source": GROUP[at]})
        path = folder / f"part-{part}.{kind}"
        if kind == "parquet":
            parquet.write_table(table, path, row_group_size=500)
        elif kind.startswith("jsonl"):
            with pa.output_stream(path, compression="zstd" if kind.endswith("zst") else None) as stream:
                stream.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())
        else:
            options = arrow_csv.WriteOptions(delimiter="\t" if kind.startswith("tsv") else ",")
            with pa.output_stream(path, compression="gzip" if kind.endswith("gz") else None) as stream:
                arrow_csv.write_csv(table, stream, options)
    return folder


def kept_ids(out):
    return np.sort(read_columns(find_sources(out), ["id"]).ids("id"))


def choose_ids(n, **options):
    """Return the ids that select keeps in memory."""
    return np.sort(IDS[select(LOG_RATIO, n, design="priority", ids=IDS, **options)])


@pytest.fixture
def pool(tmp_path):
    return write_pool(tmp_path / "scores")


# Which rows


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv.gz", "jsonl.zst"])
def test_the_rows_are_those_of_select_in_every_format(tmp_path, kind):
    done = files.select(write_pool(tmp_path / "scores", kind), 5000, id="id", out=tmp_path / "kept", seed=3)
    np.testing.assert_array_equal(kept_ids(done.out), choose_ids(5000, seed=3))
    assert (done.rows, done.kept, len(done), done.new) == (N, 5000, 5000, True)
    assert done.threshold == np.sort(priority_key(LOG_RATIO, IDS, seed=3))[5000]


def test_the_rows_do_not_depend_on_files_order_batches_or_passes(tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "_ROWS", 777)
    monkeypatch.setattr(files, "HELD", 400)  # so that files are read in every pass, if n is more
    monkeypatch.setattr(_keys, "COLLECTED", 10)  # so that keys are counted twice
    for parts, order in ((7, np.random.default_rng(5).permutation(N)), (3, np.argsort(LOG_RATIO)), (1, None)):
        pool = write_pool(tmp_path / f"{parts}", parts=parts, order=order)
        for n in (1, 100, 5000, 19_950):
            done = files.select(pool, n, id="id", out=tmp_path / f"{parts} {n}")
            np.testing.assert_array_equal(kept_ids(done.out), choose_ids(n))
    assert done.threshold == np.inf


def test_without_ids_the_name_of_a_file_and_the_row_decide(pool, tmp_path, monkeypatch):
    one = kept_ids(files.select(pool, 1000, out=tmp_path / "one").out)
    monkeypatch.setattr(scores, "_ROWS", 333)
    paths = sorted(pool.iterdir())
    for number, where in enumerate((paths[::-1], f"{pool}/*.parquet")):
        np.testing.assert_array_equal(kept_ids(files.select(where, 1000, out=tmp_path / f"{number}").out), one)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"n": 1000}, {"web": 1000, "books": 1000, "code": 1000}),
        ({"n": {"web": 500, "books": 20, "code": 0}}, {"web": 500, "books": 20, "code": 0}),
        ({"n": 1000, "shares": {"web": 1, "books": 1, "code": 2}}, {"web": 250, "books": 250, "code": 500}),
        ({"n": 900, "shares": "equal"}, {"web": 300, "books": 300, "code": 300}),
        ({"n": 900, "shares": Counter(web=2, books=1)}, {"web": 600, "books": 300, "code": 0}),
        ({"n": 5000, "at_most": True}, {"web": 5000} | POSSIBLE),
        ({"budget": 4.0}, {name: int(np.sum(name == GROUP)) // 4 for name in ("web", "books", "code")}),
    ],
    ids=["of each", "quota", "shares", "equal", "counted", "at most", "budget"],
)
def test_groups_have_thresholds_of_their_own(pool, tmp_path, monkeypatch, options, expected):
    for held in (1 << 20, 1500):
        monkeypatch.setattr(files, "HELD", held)
        done = files.select(pool, **options, id="id", group="source", out=tmp_path / f"kept {held}")
        np.testing.assert_array_equal(kept_ids(done.out), choose_ids(expected, groups=GROUP))
    key = priority_key(LOG_RATIO, IDS)
    assert done.threshold == {name: np.sort(key[name == GROUP])[n] for name, n in expected.items()}
    with pytest.raises(InputError, match=r"cannot keep 5000 of group 'books': \d+ of \d+ have r > 0; .*at_most"):
        files.select(pool, 5000, id="id", group="source", out=None)


def test_a_budget_keeps_one_in_k_and_a_cost_counts_units(pool, tmp_path):
    assert files.select(pool, budget=1.6, id="id", out=tmp_path / "kept").kept == 12_500
    np.testing.assert_array_equal(kept_ids(tmp_path / "kept"), choose_ids(12_500))
    done = files.select(pool, 500_000, id="id", cost="tokens", out=tmp_path / "tokens")
    np.testing.assert_array_equal(kept_ids(done.out), choose_ids(500_000, cost=COST))
    spent = int(np.sum(COST[np.isin(IDS, kept_ids(done.out))]))
    assert (done.units, done.kept) == (spent, len(kept_ids(done.out)))
    assert 0 <= 500_000 - spent < COST.max()


def test_a_second_selection_by_one_score_is_nested_and_by_another_needs_another_seed(pool, tmp_path):
    files.select(pool, 5000, id="id", weights=True, out=tmp_path / "kept")
    with pytest.raises(InputError, match=r"'inclusion_probability' already, of an earlier selection\? rename it"):
        files.select(tmp_path / "kept", 500, id="id", weights=True, out=tmp_path / "other")
    nested = files.select(tmp_path / "kept", 500, id="id", out=tmp_path / "nested")
    np.testing.assert_array_equal(kept_ids(nested.out), choose_ids(500))
    first, second = np.random.default_rng(3).normal(size=(2, N))
    one = select(first, N // 4, design="priority")
    due, biased = (second[one][select(second[one], N // 8, design="priority", ids=one, seed=s)] for s in (1, 0))
    assert due.mean() - biased.mean() > 4 / np.sqrt(N // 8), "uniforms of kept rows are not uniform"


def test_logits_probabilities_rewards_and_weights_become_ratios(tmp_path):
    x = np.random.default_rng(1).normal(size=3000)
    sign = np.where(np.arange(3000) % 3, 1, -1)
    columns = {"id": np.arange(3000), "logit": x, "probability": 1 / (1 + np.exp(-x)), "reward": x * 0.2}
    parquet.write_table(pa.table(columns | {"weight": sign * np.exp(x)}), tmp_path / "a.parquet")
    for name in ("logit", "probability", "reward", "weight"):
        beta = 0.2 if name == "reward" else None
        done = files.select(tmp_path / "a.parquet", 700, column=name, beta=beta, id="id", out=tmp_path / name)
        np.testing.assert_array_equal(kept_ids(done.out), select(x, 700, design="priority"))
        np.testing.assert_allclose(files.read(tmp_path / "a.parquet", column=name, beta=beta), x)


# Weights


@pytest.mark.parametrize("options", [{"n": 12}, {"n": 40, "cost": "c"}, {"n": 58}], ids=str)
def test_weighted_sums_over_the_kept_rows_are_those_over_all(tmp_path, options):
    rng, size, times = np.random.default_rng(2), 60, 1000
    w = np.round(rng.normal(0.3, 1, size) * np.exp(rng.normal(size=size)), 3)
    w[[7, 31]] = 0
    f = rng.normal(1, 1, size)
    pool = {"w": np.tile(w, times), "f": np.tile(f, times), "c": np.tile(rng.integers(0, 9, size), times)}
    parquet.write_table(pa.table(pool | {"time": np.repeat(np.arange(times), size)}), tmp_path / "a.parquet")
    draw = {"column": "w", "kind": "weight", "weights": True, "group": "time", **options}  # a pool is a group
    done = files.select(tmp_path / "a.parquet", out=tmp_path / "kept.parquet", **draw)
    table = parquet.read_table(done.out)
    kept = {name: table[name].to_numpy() for name in table.column_names}
    left = kept["sign"] * np.exp(kept["log_weight"])
    np.testing.assert_allclose(left, kept["w"] / kept["inclusion_probability"], rtol=1e-9)
    for value, expected in ((np.ones_like(left), w.sum()), (kept["f"], w @ f)):
        sums = np.bincount(kept["time"], left * value, times)
        error = sums.std() / np.sqrt(times)
        assert abs(sums.mean() - expected) <= 3 * error + 1e-9
    assert options != {"n": 58} or np.allclose(left, kept["w"]), "if all are kept, their weight is r"


# Plans


@pytest.mark.parametrize("planned", [1 << 20, 3000])
def test_a_plan_is_that_of_the_profile_of_all_or_of_a_sample(pool, monkeypatch, planned):
    monkeypatch.setattr(files, "PLANNED", planned)
    exact, plan = Profile(LOG_RATIO), files.plan(pool, [2, 8], n=100)
    assert ("of a sample of 3,000 of 20,000 rows" in str(plan)) == (planned < N)
    for row, expected in zip(plan, exact.plan([2, 8], n=100), strict=True):
        for key in ("rate", "kl", "tv", "chi2", "ess"):
            assert row[key] == pytest.approx(expected[key], abs=1e-9 if planned > N else 0.05)
        assert row["kl_low"] <= expected["kl"] <= row["kl_high"]


def test_a_plan_without_groups_costs_or_signs_says_so_and_bad_rows_are_left_out(pool, tmp_path, monkeypatch):
    for options in ({"group": "source"}, {"cost": "tokens"}):
        with pytest.raises(InputError, match="a plan has no costs, groups or signs; use the command obrs plan"):
            files.plan(pool, **options)
    (tmp_path / "a.csv").write_text('weight\n-2\n""\n1\n')
    monkeypatch.setattr(files, "PLANNED", 1)  # also of rows outside a sample
    with pytest.raises(InputError, match="groups or signs"):
        files.plan(tmp_path / "a.csv", skip_bad=True)
    np.testing.assert_allclose(files.read(tmp_path / "a.csv", skip_bad=True), [np.log(2), 0])


# What is written


def test_all_columns_and_types_come_through_in_their_order(pool, tmp_path):
    done = files.select(pool, 5000, id="id", out=tmp_path / "kept")
    assert sorted(os.listdir(done.out)) == sorted(os.listdir(pool))
    place = {id: i for i, id in enumerate(IDS.tolist())}
    for path in done.out.iterdir():
        table = parquet.read_table(path)
        at = np.array([place[id] for id in table["id"].to_pylist()])
        assert table["note"].to_pylist() == [f"row {i}, said" for i in at]
        assert np.all(np.diff(at) > 0)
        assert table.schema.equals(parquet.read_schema(pool / path.name))
    manifest = json.loads((tmp_path / "kept.manifest.json").read_text())
    expected = {"seed": 0, "column": "log_ratio", "kind": "log_ratio", "n": 5000}
    assert expected.items() <= manifest.items()
    assert manifest["cut"][""][0] == done.threshold
    assert sorted(manifest["inputs"]) == sorted(os.listdir(pool))
    assert "version" in manifest


def test_others_read_a_folder_with_one_call(pool, tmp_path, monkeypatch):
    duckdb, pandas, polars = (pytest.importorskip(name) for name in ("duckdb", "pandas", "polars"))
    out = str(files.select(pool, 500, id="id", weights=True, out=tmp_path / "kept").out)
    rows = [
        dataset.dataset(out).to_table()["id"].to_numpy(),
        pandas.read_parquet(out)["id"].to_numpy(),
        polars.read_parquet(f"{out}/")["id"].to_numpy(),
        np.array(duckdb.sql(f"SELECT id FROM '{out}/*.parquet'").fetchall())[:, 0],
    ]
    for name in ("HF_HOME", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, str(tmp_path / "cache") if name == "HF_HOME" else "1")
    datasets = pytest.importorskip("datasets")
    rows.append(datasets.load_dataset(out, split="train", cache_dir=str(tmp_path / "cache")).data["id"].to_numpy())
    for ids in rows:
        np.testing.assert_array_equal(np.sort(ids), choose_ids(500))


def test_one_file_goes_to_a_file_or_a_folder_and_keeps_its_format(tmp_path):
    path = write_pool(tmp_path / "scores", "csv", 1) / "part-0.csv"
    files.select(path, 100, id="id", out=tmp_path / "kept.csv")
    files.select(path, 100, id="id", out=f"{tmp_path}/kept/")
    np.testing.assert_array_equal(kept_ids(tmp_path / "kept.csv"), choose_ids(100))
    assert (tmp_path / "kept.csv").read_bytes() == (tmp_path / "kept" / "part-0.csv").read_bytes()
    with pytest.raises(InputError, match=r"rows keep their format: out is a \.csv file or a folder/"):
        files.select(path, 100, id="id", out=tmp_path / "kept.parquet")
    for array, why in ((LOG_RATIO, r"are only read; take x\[obrs\.select"), (LOG_RATIO[:, None], "has one axis")):
        np.save(tmp_path / "lr.npy", array)
        with pytest.raises(InputError, match=why):
            files.select(tmp_path / "lr.npy", 100, kind="logit", out=tmp_path / "kept.csv")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").touch()
    (tmp_path / "link").symlink_to("scores")
    for name in ("full", "link"):
        with pytest.raises(InputError, match="is a file, a link, or not empty"):
            files.select(path, 10, id="id", out=f"{tmp_path}/{name}")


def test_batches_of_a_file_may_differ_with_the_columns(tmp_path):
    ids = np.arange(150_000)
    table = pa.table(
        {"id": ids, "logit": ids % 1013 / 100 - 5, "c": pa.array(ids % 7).cast(pa.string()).dictionary_encode()}
    )
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=40_000)
    for id in ("id", None):
        out = files.select(tmp_path / "a.parquet", 100, id=id, out=tmp_path / f"{id}.parquet").out
        assert len(np.unique(kept_ids(out))) == 100


# A run that stops, and one that was


def snapshot(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def test_a_run_that_stopped_says_how_to_go_on_and_ends_as_if_it_had_not(pool, tmp_path, monkeypatch):
    files.select(pool, 5000, id="id", out=tmp_path / "whole")
    count, real = [], os.fsync

    def fail(handle):
        count.append(handle)
        if len(count) == 6:  # two for each file and for the manifest: its bytes, and its name
            raise KeyboardInterrupt
        real(handle)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt, match=r"the same command goes on with the files that are not done"):
        files.select(pool, 5000, id="id", out=tmp_path / "kept")
    monkeypatch.undo()
    work = tmp_path / ".kept.obrs"
    assert sorted(p.name for p in work.iterdir()) == ["part-0.parquet", "part-1.parquet"]
    assert not (tmp_path / "kept").exists()
    (work / ".obrs-0.tmp").write_bytes(b"half of a file, when it was killed")
    with pytest.raises(InputError, match=r"\.kept\.obrs has rows of another run: seed was 0 and is 1 now"):
        files.select(pool, 5000, id="id", out=tmp_path / "kept", seed=1)
    times = {path.name: path.stat().st_mtime_ns for path in work.glob("*.parquet")}
    files.select(pool, 5000, id="id", out=tmp_path / "kept")
    assert snapshot(tmp_path / "kept") == snapshot(tmp_path / "whole")
    assert all((tmp_path / "kept" / name).stat().st_mtime_ns == time for name, time in times.items())
    assert not work.exists()


def test_a_finished_run_is_not_done_again_and_another_is_refused(pool, tmp_path):
    first = files.select(pool, 5000, id="id", out=tmp_path / "kept")
    before = {path: path.stat().st_mtime_ns for path in first.out.iterdir()}
    again = files.select(pool, 5000, id="id", out=tmp_path / "kept")
    assert (again.new, again.kept, again.threshold) == (False, 5000, first.threshold)
    assert before == {path: path.stat().st_mtime_ns for path in first.out.iterdir()}
    with pytest.raises(InputError, match="kept has rows of another run: n was 5000 and is 5 now"):
        files.select(pool, 5, id="id", out=tmp_path / "kept")
    os.rename(pool / "part-3.parquet", tmp_path / "part-3.parquet")
    with pytest.raises(InputError, match=r"kept has rows of another run: part-3\.parquet is not what it was; choose"):
        files.select(pool, 5000, id="id", out=tmp_path / "kept")
    os.rename(tmp_path / "part-3.parquet", pool / "part-3.parquet")
    os.unlink(tmp_path / "kept" / "part-1.parquet")
    with pytest.raises(InputError, match=r"kept had a file part-1\.parquet, which is gone; choose another output"):
        files.select(pool, 5000, id="id", out=tmp_path / "kept")
    shutil.rmtree(tmp_path / "kept")
    assert files.select(pool, 5, id="id", out=tmp_path / "kept").new, "a result that was removed is made again"


@pytest.mark.parametrize("keep_time", [False, True])
def test_scores_that_were_changed_in_place_are_noticed(tmp_path, keep_time):
    pool = write_pool(tmp_path / "scores", "csv")
    files.select(pool, 5000, id="id", out=tmp_path / "kept")
    path = pool / "part-1.csv"
    facts, table = path.stat(), arrow_csv.read_csv(path)
    turned = table.set_column(2, "log_ratio", pa.array(table["log_ratio"].to_numpy()[::-1]))
    arrow_csv.write_csv(turned, path)
    assert path.stat().st_size == facts.st_size
    if keep_time:
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    before = snapshot(tmp_path / "kept")
    what = r"checksum was \d+ and is \d+ now" if keep_time else r"part-1\.csv is not what it was"
    with pytest.raises(InputError, match=f"another run: {what}; choose another output"):
        files.select(pool, 5000, id="id", out=tmp_path / "kept")
    assert snapshot(tmp_path / "kept") == before


@pytest.mark.parametrize("out", ["scores", "scores/kept", "link/kept", "scores/../scores/kept"])
def test_the_output_must_not_lie_in_the_input(pool, tmp_path, out):
    (tmp_path / "link").symlink_to("scores")
    for where in (pool, [*pool.iterdir()] if out == "scores" else pool):
        with pytest.raises(InputError, match=r"would overwrite the input .* or lie in it|not empty"):
            files.select(where, 10, id="id", out=tmp_path / out)
    assert len(os.listdir(pool)) == 4


def test_a_damaged_input_is_blamed_and_not_a_file_of_ours(pool, tmp_path):
    path = pool / "part-2.parquet"
    parquet.write_table(parquet.read_table(path), path, compression="none", write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[data.index(b"row 10003, said")] ^= 1  # a note, which is read only to be written
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"scores/part-2\.parquet cannot be read: .*checksum"):
        files.select(pool, 19_950, id="id", out=tmp_path / "kept")


# Bad input


def test_an_output_that_a_glob_has_as_input_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("id,log_ratio\n1,0.5\n2,0.1\n")
    with pytest.raises(InputError, match=r"a\.csv"):
        files.select(f"{tmp_path}/a.c*", 1, id="id", out=tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().count("\n") == 3


def test_names_of_packed_files_may_be_in_capitals_and_json_may_be_deep(tmp_path):
    with gzip.open(tmp_path / "a.csv.GZ", "wt") as file:
        file.write("id,log_ratio\n1,0.5\n2,0.1\n")
    assert files.read(tmp_path / "a.csv.GZ").tolist() == [0.5, 0.1]
    (tmp_path / "b.jsonl").write_text('{"log_ratio": 1.5, "z": %s}\n' % ("[" * 20_000 + "]" * 20_000))
    with pytest.raises(InputError, match=r"b\.jsonl cannot be read"):
        files.read(tmp_path / "b.jsonl")


def test_what_is_added_to_a_jsonl_are_floats_also_where_all_are_whole(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"id": {i}, "log_ratio": {i % 3 - 1}}}\n' for i in range(30)))
    out = files.select(tmp_path / "a.jsonl", 30, id="id", weights=True, out=tmp_path / "kept.jsonl").out
    types = arrow_json.read_json(out).schema
    assert [types.field(name).type for name in ("inclusion_probability", "log_weight")] == [pa.float64()] * 2


def test_rows_that_cannot_be_kept_are_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "HELD", 100)
    log_ratio = np.where(np.arange(5000) % 100, -np.inf, LOG_RATIO[:5000])
    parquet.write_table(pa.table({"id": np.arange(5000), "log_ratio": log_ratio}), tmp_path / "a.parquet")
    _, reading, scan = files._open(tmp_path / "a.parquet", id="id")
    cells = _keys.Cells(np.zeros(1, np.uint64))
    held = files.survey(scan, "a", reading, {"": 0}, cells, sampled=10, most=files.HELD).held
    assert len(held[0]) == np.sum(log_ratio > -np.inf) <= 50


def test_a_quotation_mark_that_is_never_closed_is_an_error_and_one_inside_a_cell_is_not(tmp_path):
    path, rows = tmp_path / "a.csv", "2,0.1,y\n3,0.2,z\n"
    for cell, quoted in (('"x', True), ('5" disk\n7,0.1,"x', True), ('5" disk', False), ('"5"" disk"', False)):
        path.write_text(f"id,log_ratio,text\n1,0.5,{cell}\n{rows}")
        if quoted:
            for verb in (files.read, files.plan):
                with pytest.raises(InputError, match=r"a\.csv: .* a quotation mark that is never closed"):
                    verb(path)
        else:
            assert len(files.read(path)) == 3


def test_bad_scores_are_an_error_or_left_out_and_do_not_move_the_others(tmp_path):
    gaps = LOG_RATIO.copy()
    gaps[[70, 71, 4000]] = [np.nan, np.inf, np.nan]
    for name, x in (("whole", np.where(gaps < np.inf, gaps, -np.inf)), ("gaps", gaps)):
        (tmp_path / name).mkdir()
        parquet.write_table(pa.table({"log_ratio": x, "id": np.arange(N)}), tmp_path / name / "a.parquet")
    with pytest.raises(
        InputError,
        match=r"a\.parquet, row 71, column 'log_ratio': 'nan' is not a number below \+inf, as 3 of 20000 cells",
    ):
        files.select(tmp_path / "gaps", 300, out=tmp_path / "kept")
    done = files.select(tmp_path / "gaps", 300, skip_bad=True, out=tmp_path / "kept")
    assert (done.bad, done.rows) == (3, N - 3)
    same = files.select(tmp_path / "whole", 300, out=tmp_path / "same")
    np.testing.assert_array_equal(kept_ids(done.out), kept_ids(same.out))


def test_repeated_ids_are_refused_with_an_example_and_can_be_allowed(pool, tmp_path, monkeypatch):
    shutil.copy(pool / "part-0.parquet", pool / "part-9.parquet")
    for sampled in (1 << 18, 1000):
        monkeypatch.setattr(files, "SAMPLED", sampled)
        for id, name in (("id", r"\d+"), ("note", r"row \d+, said")):
            with pytest.raises(InputError, match=rf"about \d+ % of the rows have the id of another, as {name}; make"):
                files.select(pool, 5000, id=id, out=tmp_path / "kept")
    tied = 0
    for n in range(5001, 5012):
        try:
            files.select(pool, n, id="id", out=None, repeats=True)
        except InputError as error:
            tied += "tied for the last place" in str(error)
    assert 0 < tied < 11, "rows of one id and score cannot be told apart"
    assert files.select(pool, 5000, id="id", out=tmp_path / "kept", repeats=True).kept == 5000
    ids, counts = np.unique(kept_ids(tmp_path / "kept"), return_counts=True)
    assert np.array_equal(counts == 2, np.isin(ids, IDS[:5000])), "rows of one id and score are kept together"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 19_951}, "cannot keep 19951: 19950 of 20000 have r > 0"),
        ({"budget": 1e6}, "nothing would be kept of 20000"),
        (
            {"n": 10, "column": "score", "kind": "logit"},
            "has no column 'score'; it has note, id, log_ratio, tokens, source",
        ),
        (
            {"n": 10, "column": "tokens", "kind": "weight", "id": "log_ratio"},
            "ids must be integers or text, got double",
        ),
        ({"n": 10, "column": "note", "kind": "logit"}, "'row .*, said' is not a number"),
        ({"n": 10, "shares": "most", "group": "source"}, "or 'equal', got 'most'"),
        ({"n": {"web": 1}, "group": "source"}, "books"),
        ({"n": 10, "column": "tokens", "kind": "weight", "cost": "log_ratio"}, "a cost is a whole number"),
        ({"n": 10, "beta": 2.0}, "a reward has a temperature.*leave out beta"),
        ({"n": 10, "out": "."}, "that has a name, got '.'"),
        ({"n": 10, "seed": -1}, "seed"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_leaves_nothing(pool, tmp_path, options, message):
    with pytest.raises(ObrsError, match=message) as caught:
        files.select(pool, **{"out": tmp_path / "kept"} | options)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["scores"]


def test_without_pyarrow_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "obrs.scores")
    with pytest.raises(MissingLibraryError, match=r"need pyarrow: pip install 'obrs\[cli\]'$"):
        import_module("obrs.scores")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_rows(tmp_path):
    (tmp_path / "s").mkdir()
    for part in range(20):
        rng = np.random.default_rng(part)
        ids = np.arange(part * 10**6, (part + 1) * 10**6)
        table = pa.table({"id": ids, "log_ratio": rng.normal(size=10**6), "x": rng.normal(size=10**6)})
        parquet.write_table(table, tmp_path / "s" / f"{part:02d}.parquet")
    code = (
        "import sys, obrs\nfrom obrs import files\n"
        "files.select(sys.argv[1], 5_000_000, id='id', out=sys.argv[2], progress=False)\n"
        # not getrusage, which counts what the parent had when it forked
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s"), str(tmp_path / "kept")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) / 1024 < 400
