"""Folders of files: the rows of `select`, whatever the files; a run that stops goes on; bad input is one line."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json
from pyarrow import parquet

import obrs
from obrs import Profile, select
from obrs.cli import main
from obrs.draws import priority_key
from obrs.engines import files, looking, rows
from obrs.engines.rows import read_batches
from obrs.errors import InputError, MissingLibraryError
from obrs.root import solve_pool

N = 20_000
RNG = np.random.default_rng(0)
IDS = RNG.permutation(N) + 7
LOG_RATIO = np.round(RNG.normal(size=N), 3)
LOG_RATIO[:50] = -np.inf
COST = RNG.integers(0, 300, N)
GROUP = RNG.choice(["web", "books", "code"], p=[0.7, 0.2, 0.1], size=N)


def write_pool(folder, kind="parquet", parts=4, order=None, group_rows=100):
    """Write the pool as so many files, in an order."""
    folder.mkdir(parents=True)
    order = np.arange(N) if order is None else order
    for part, at in enumerate(np.array_split(order, parts)):
        note = [f"row {i}, said" for i in at]
        table = pa.table(
            {"note": note, "id": IDS[at], "log_ratio": LOG_RATIO[at], "tokens": COST[at], "source": GROUP[at]}
        )
        path = folder / f"part-{part}.{kind}"
        if kind == "parquet":
            parquet.write_table(table, path, row_group_size=group_rows)
        elif kind.startswith("jsonl"):
            text = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
            with pa.output_stream(path, compression="zstd" if kind.endswith("zst") else None) as stream:
                stream.write(text.encode())
        else:
            options = arrow_csv.WriteOptions(delimiter="\t" if kind.startswith("tsv") else ",")
            with pa.output_stream(path, compression="gzip" if kind.endswith("gz") else None) as stream:
                arrow_csv.write_csv(table, stream, options)
    return folder


def read_kept(folder, name="id"):
    """Return a column of all kept rows."""
    found = []
    for path in sorted(Path(folder).iterdir()):
        if path.name == "manifest.json":
            continue
        with pa.input_stream(path, compression="detect") as stream:
            data = pa.BufferReader(stream.read())
        if ".parquet" in path.suffixes:
            table = parquet.read_table(data)
        elif ".jsonl" in path.suffixes:
            table = arrow_json.read_json(data) if data.size() else None
        else:
            table = arrow_csv.read_csv(
                data, parse_options=arrow_csv.ParseOptions(delimiter="\t" if ".tsv" in path.suffixes else ",")
            )
        if table is not None and len(table):
            found.append(table[name].to_numpy())
    return np.concatenate(found)


def chosen(n, **options):
    """Return the ids that select keeps in memory."""
    return np.sort(IDS[select(LOG_RATIO, n, design="priority", ids=IDS, **options)])


@pytest.fixture
def pool(tmp_path):
    return write_pool(tmp_path / "scores")


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv.gz", "jsonl", "jsonl.zst"])
def test_the_rows_are_those_of_select_in_every_format(tmp_path, kind):
    pool = write_pool(tmp_path / "scores", kind)
    done = files.select(pool, 5000, id="id", out=tmp_path / "kept", seed=3)
    np.testing.assert_array_equal(np.sort(read_kept(tmp_path / "kept")), chosen(5000, seed=3))
    assert (done.rows, done.kept, done.way) == (N, 5000, "pilot" if kind == "parquet" else "sketch")
    assert done.log_c == pytest.approx(solve_pool(LOG_RATIO, None, 0.25 * N), abs=1e-12)


@pytest.mark.parametrize("order", ["shuffled", "sorted", "one file"])
def test_the_rows_do_not_depend_on_order_or_files(tmp_path, order):
    orders = {"shuffled": np.random.default_rng(5).permutation(N), "sorted": np.argsort(LOG_RATIO), "one file": None}
    pool = write_pool(tmp_path / "scores", parts=1 if order == "one file" else 7, order=orders[order], group_rows=20)
    done = files.select(pool, 5000, id="id", out=tmp_path / "kept")
    np.testing.assert_array_equal(np.sort(read_kept(tmp_path / "kept")), chosen(5000))
    assert done.way == "pilot" or order == "sorted"


def test_without_pyarrow_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "obrs.engines.files")
    with pytest.raises(MissingLibraryError, match=r"^obrs\.files needs pyarrow: pip install 'obrs\[cli\]'$"):
        obrs.files  # noqa: B018


def test_what_was_selected_prints_in_a_line(tmp_path):
    found = {"bad": 3, "way": "pilot", "repeated": 0.0}
    one = files.Selected(out=Path("kept"), rows=20_000, kept=5000, log_c=-1.5, units=None, **found)
    assert repr(one) == "Selected(5,000 of 20,000 rows, 3 bad, log c -1.5; in kept)"
    log_c = {f"prompt {i}": i / 1000 for i in range(1000)}
    many = files.Selected(out=Path("kept"), rows=20_000, kept=5000, log_c=log_c, units=7000, **found)
    assert repr(many) == "Selected(5,000 of 20,000 rows, 3 bad, 7,000 units, log c 0 to 0.999 in 1000 groups; in kept)"


def test_all_rows_that_can_be_kept_are_kept_in_silence(tmp_path):
    x = np.tile([0.0, -np.inf], 60)  # c is infinite, and r = 0 in every row group of a pilot
    table = pa.table({"id": np.arange(120), "log_ratio": x})
    (tmp_path / "scores").mkdir()
    parquet.write_table(table, tmp_path / "scores" / "a.parquet", row_group_size=2)
    files.select(tmp_path / "scores", 60, id="id", out=tmp_path / "kept", progress=False)
    assert sorted(read_kept(tmp_path / "kept")) == list(range(0, 120, 2))


def test_a_pilot_that_missed_is_noticed_and_all_rows_are_looked_at(tmp_path, monkeypatch):
    pool = write_pool(tmp_path / "scores", order=np.argsort(LOG_RATIO), group_rows=20)

    def the_lowest(sources, share, *, least, most):
        return [(sources[1], list(range(0, 80, 2)))]

    monkeypatch.setattr(looking, "pick_groups", the_lowest)
    looked = []
    monkeypatch.setattr(files, "by_sketch", lambda question: looked.append(1) or looking.by_sketch(question))
    done = files.select(pool, 5000, id="id", out=tmp_path / "kept")
    assert (done.way, looked) == ("sketch", [1])
    np.testing.assert_array_equal(np.sort(read_kept(tmp_path / "kept")), chosen(5000))


def test_all_columns_come_through_in_their_order(pool, tmp_path):
    files.select(pool, 5000, id="id", out=tmp_path / "kept")
    place = {id: i for i, id in enumerate(IDS.tolist())}
    for path in (tmp_path / "kept").glob("*.parquet"):
        table, source = parquet.read_table(path), pool / path.name
        at = np.array([place[id] for id in table["id"].to_pylist()], dtype=int)
        assert table["note"].to_pylist() == [f"row {i}, said" for i in at]
        np.testing.assert_array_equal(table["log_ratio"].to_numpy(), LOG_RATIO[at])
        assert np.all(np.diff(at) > 0)
        if path.stem != files.AT_THE_CUT:
            assert table.schema.equals(parquet.read_schema(source))


def test_fewer_rows_are_part_of_more(pool, tmp_path):
    kept = {}
    for n in (1, 100, 5000):
        files.select(pool, n, id="id", out=tmp_path / str(n))
        kept[n] = set(read_kept(tmp_path / str(n)).tolist())
        assert len(kept[n]) == n
    assert kept[1] < kept[100] < kept[5000]


def test_without_ids_the_name_of_a_file_and_the_row_decide(pool, tmp_path):
    files.select(pool, 1000, out=tmp_path / "one")
    paths = sorted(pool.iterdir())
    files.select(paths[::-1], 1000, out=tmp_path / "two")
    files.select(f"{pool}/*.parquet", 1000, out=tmp_path / "three")
    first = read_kept(tmp_path / "one")
    assert len(first) == 1000
    for other in ("two", "three"):
        np.testing.assert_array_equal(read_kept(tmp_path / other), first)


def test_a_budget_keeps_one_row_in_k(pool, tmp_path):
    assert files.select(pool, budget=1.6, id="id", out=tmp_path / "kept").kept == 12_500
    np.testing.assert_array_equal(np.sort(read_kept(tmp_path / "kept")), chosen(12_500))


def test_rows_may_be_counted_in_tokens(pool, tmp_path):
    done = files.select(pool, 500_000, id="id", cost="tokens", out=tmp_path / "kept")
    np.testing.assert_array_equal(np.sort(read_kept(tmp_path / "kept")), chosen(500_000, cost=COST))
    spent = int(read_kept(tmp_path / "kept", "tokens").sum())
    assert done.units == spent
    assert 0 <= 500_000 - spent < COST.max()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"n": 1000}, {"web": 1000, "books": 1000, "code": 1000}),
        ({"n": {"web": 500, "books": 20, "code": 0}}, {"web": 500, "books": 20, "code": 0}),
        ({"n": 1000, "shares": {"web": 1, "books": 1, "code": 2}}, {"web": 250, "books": 250, "code": 500}),
        ({"n": 900, "shares": "equal"}, {"web": 300, "books": 300, "code": 300}),
        ({"budget": 4.0}, {name: int(np.sum(name == GROUP)) // 4 for name in ("web", "books", "code")}),
    ],
    ids=["of each", "quota", "shares", "equal", "budget"],
)
def test_groups_have_constants_of_their_own(pool, tmp_path, asked, expected):
    done = files.select(pool, **asked, id="id", group="source", out=tmp_path / "kept")
    np.testing.assert_array_equal(np.sort(read_kept(tmp_path / "kept")), chosen(expected, groups=GROUP))
    for name, count in expected.items():
        if count:
            own = solve_pool(LOG_RATIO[name == GROUP], None, float(count))
            assert done.log_c[name] == pytest.approx(own, abs=1e-12)


def test_scores_that_are_tied_are_looked_at_closer(tmp_path, monkeypatch):
    monkeypatch.setattr(looking, "_HELD", 24 * 500)
    pool = write_pool(tmp_path / "scores", parts=2)
    done = files.select(pool, 5000, id="id", group="source", shares="equal", out=tmp_path / "kept")
    assert done.kept == 5000
    expected = select(LOG_RATIO, 5000, design="priority", ids=IDS, groups=GROUP, shares=[1, 1, 1])
    np.testing.assert_array_equal(np.sort(read_kept(tmp_path / "kept")), np.sort(IDS[expected]))


def test_logits_probabilities_and_rewards_become_ratios(tmp_path):
    x = np.random.default_rng(1).normal(size=3000)
    (tmp_path / "s").mkdir()
    columns = {"id": np.arange(3000), "logit": x, "probability": 1 / (1 + np.exp(-x)), "reward": x * 0.2}
    parquet.write_table(pa.table(columns), tmp_path / "s" / "a.parquet")
    files.select(tmp_path / "s", 700, column="logit", id="id", out=tmp_path / "logit")
    files.select(tmp_path / "s", 700, column="probability", id="id", out=tmp_path / "probability")
    files.select(tmp_path / "s", 700, column="reward", beta=0.2, id="id", out=tmp_path / "reward")
    expected = select(x, 700, design="priority")
    for name in ("logit", "probability", "reward"):
        np.testing.assert_array_equal(np.sort(read_kept(tmp_path / name)), expected)


def test_a_plan_is_that_of_the_profile(pool):
    rows_of_plan = files.plan(pool, [2, 8], n=100)
    exact = Profile(LOG_RATIO)
    for row in rows_of_plan:
        for key in ("kl", "tv", "chi2"):
            value = exact.divergence(key, row["budget"])
            assert row[key] == pytest.approx(value, abs=row["error"] * max(1, value) + 1e-9)
        assert row["rate"] == pytest.approx(exact.rate(row["budget"]), abs=1e-6)
        assert row["proposals"] == pytest.approx(100 / row["rate"])


# A run that stops


def snapshot(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


class Stop(Exception):
    pass


def test_a_run_that_stopped_goes_on_and_ends_as_if_it_had_not(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_PIECE", 1 << 14)
    files.select(pool, 5000, id="id", out=tmp_path / "whole")
    read, count = read_batches, []

    def stopping(source, names, **options):
        count.append(source.name)
        for number, batch in enumerate(read(source, names, **options)):
            if source.name == "part-2.parquet" and options.get("whole", True) and number == 3:
                raise Stop
            yield batch

    monkeypatch.setattr(files, "read_batches", stopping)
    with pytest.raises(Stop):
        files.select(pool, 5000, id="id", out=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    assert sorted(p.name for p in (tmp_path / ".kept.obrs" / "try-0" / "kept").iterdir()) == [
        "part-0.parquet",
        "part-1.parquet",
    ]
    monkeypatch.setattr(files, "read_batches", lambda *a, **o: count.append(a[0].name) or read(*a, **o))
    count.clear()
    files.select(pool, 5000, id="id", out=tmp_path / "kept")
    assert {name for name in count if not name.startswith("0")} == {"part-2.parquet", "part-3.parquet", *count[2:]}
    assert "part-0.parquet" not in count[:2]
    assert snapshot(tmp_path / "kept") == snapshot(tmp_path / "whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "scores", "whole"]


def test_a_run_with_other_arguments_or_other_files_is_refused(pool, tmp_path, monkeypatch):
    def stop(*_):
        raise Stop

    monkeypatch.setattr(files, "_written", stop)
    with pytest.raises(Stop):
        files.select(pool, 5000, id="id", out=tmp_path / "kept")
    monkeypatch.undo()
    with pytest.raises(
        InputError, match=r"unfinished run: seed was 0 and is 1 now; finish that one .* delete .*\.kept"
    ):
        files.select(pool, 5000, id="id", out=tmp_path / "kept", seed=1)
    parquet.write_table(parquet.read_table(pool / "part-1.parquet").slice(1), pool / "part-1.parquet")
    with pytest.raises(InputError, match=r"part-1\.parquet was [\d,]+ bytes and is [\d,]+ bytes now"):
        files.select(pool, 5000, id="id", out=tmp_path / "kept")
    shutil.rmtree(tmp_path / ".kept.obrs")
    assert files.select(pool, 5000, id="id", out=tmp_path / "kept").rows == N - 1
    with pytest.raises(InputError, match="result of another run: n was 5000 and is 5 now; choose another folder"):
        files.select(pool, 5, id="id", out=tmp_path / "kept")


def test_a_result_that_was_removed_is_made_again(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if it had been killed before it tidied up
    files.select(pool, 5000, id="id", out=tmp_path / "kept")
    monkeypatch.undo()
    whole = snapshot(tmp_path / "kept")
    assert (tmp_path / ".kept.obrs").exists()
    shutil.rmtree(tmp_path / "kept")
    files.select(pool, 5000, id="id", out=tmp_path / "kept")
    assert snapshot(tmp_path / "kept") == whole
    assert not (tmp_path / ".kept.obrs").exists()


def test_a_finished_run_is_not_done_again(pool, tmp_path, monkeypatch):
    first = files.select(pool, 5000, id="id", out=tmp_path / "kept")
    monkeypatch.setattr(files, "read_batches", pytest.fail)
    assert files.select(pool, 5000, id="id", out=tmp_path / "kept") == first


def test_a_folder_that_is_in_use_is_refused(pool, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").touch()
    with pytest.raises(InputError, match="full is not empty"):
        files.select(pool, 10, out=tmp_path / "full")
    with pytest.raises(InputError, match="is a file"):
        files.select(pool, 10, out=tmp_path / "full" / "a.txt")
    with pytest.raises(FileNotFoundError):
        files.select(pool, 10, out=tmp_path / "no" / "kept")
    (tmp_path / ".kept.obrs").mkdir()
    with open(tmp_path / ".kept.obrs" / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another run is writing"):
            files.select(pool, 10, out=tmp_path / "kept")
    assert files.select(pool, 10, out=tmp_path / "kept").kept == 10


SELECT = """
import sys
from obrs.engines import files
files.select(sys.argv[1], 5000, id="id", out=sys.argv[2], progress=False)
"""


def start(pool, out, **options):
    return subprocess.Popen([sys.executable, "-c", SELECT, str(pool), str(out)], stderr=subprocess.DEVNULL, **options)


def check_kills(pool, tmp_path, kills, seed):
    """Kill runs at random moments until one gets through; what is visible is always whole."""
    begin = time.monotonic()
    assert start(pool, tmp_path / "whole").wait() == 0
    usual = time.monotonic() - begin
    rng = np.random.default_rng(seed)
    killed = 0
    while killed < kills:
        process = start(pool, tmp_path / "kept")
        # a start takes most of the time; kill after it, or a little before
        time.sleep(float(rng.uniform(0.5, 1.05)) * usual)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
        if (tmp_path / "kept").exists():
            assert snapshot(tmp_path / "kept") == snapshot(tmp_path / "whole")
            shutil.rmtree(tmp_path / "kept")
        for path in (tmp_path / ".kept.obrs").glob("try-*/kept/*.parquet"):
            parquet.read_table(path)  # each file that has its name is whole
    assert start(pool, tmp_path / "kept").wait() == 0
    assert snapshot(tmp_path / "kept") == snapshot(tmp_path / "whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "scores", "whole"]


def test_a_run_that_was_killed_goes_on(tmp_path):
    check_kills(write_pool(tmp_path / "scores", parts=12, group_rows=500), tmp_path, kills=1, seed=0)


@pytest.mark.slow
def test_a_run_that_was_killed_many_times_goes_on(tmp_path):
    check_kills(write_pool(tmp_path / "scores", parts=40, group_rows=100), tmp_path, kills=30, seed=1)


def test_a_full_disk_is_one_line_and_nothing_is_lost(pool, tmp_path):
    small = ["bash", "-c", "trap '' XFSZ; ulimit -f 15; exec \"$@\"", "limited"]  # 15 kB a file
    command = [sys.executable, "-m", "obrs", "select", str(pool), "--id", "id", "-n", "5000", "-o", "kept/"]
    full = subprocess.run([*small, *command], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (full.returncode, full.stdout) == (1, "")
    assert full.stderr.count("\n") == 1
    assert "file too large" in full.stderr
    assert "part-0.parquet" in full.stderr
    assert not (tmp_path / "kept").exists()
    assert not list((tmp_path / ".kept.obrs" / "try-0" / "kept").iterdir())
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "kept 5000 of 20000 rows (1 in 4): kept/\n")
    np.testing.assert_array_equal(np.sort(read_kept(tmp_path / "kept")), chosen(5000))


# Bad input


def test_bad_scores_are_counted_in_the_file_that_has_them(pool, tmp_path):
    table = parquet.read_table(pool / "part-2.parquet")
    scores = table["log_ratio"].to_numpy().copy()
    scores[[70, 71, 4000]] = [np.nan, np.inf, np.nan]
    parquet.write_table(table.set_column(2, "log_ratio", pa.array(scores)), pool / "part-2.parquet", row_group_size=100)
    with pytest.raises(InputError, match=r"part-2\.parquet, row 71, column 'log_ratio': .* as in 3 of 5000 rows"):
        files.select(pool, 5000, id="id", out=tmp_path / "kept")
    done = files.select(pool, 5000, id="id", out=tmp_path / "kept2", skip_bad=True)
    assert (done.bad, done.rows) == (3, N - 3)
    good = np.ones(N, bool)
    good[[10_070, 10_071, 14_000]] = False
    expected = IDS[good][select(LOG_RATIO[good], 5000, design="priority", ids=IDS[good])]
    np.testing.assert_array_equal(np.sort(read_kept(tmp_path / "kept2")), np.sort(expected))


def test_without_ids_a_row_that_is_left_out_does_not_move_the_others(tmp_path):
    x = np.random.default_rng(0).normal(size=1000)
    gaps = x.copy()
    gaps[::10] = np.nan
    for name, scores in (("whole", np.where(np.isnan(gaps), -np.inf, x)), ("gaps", gaps)):
        (tmp_path / name).mkdir()
        parquet.write_table(pa.table({"log_ratio": scores, "row": np.arange(1000)}), tmp_path / name / "a.parquet")
        files.select(tmp_path / name, 300, skip_bad=True, out=tmp_path / f"kept {name}")
    np.testing.assert_array_equal(read_kept(tmp_path / "kept gaps", "row"), read_kept(tmp_path / "kept whole", "row"))


def test_repeated_ids_are_refused_and_can_be_allowed(pool, tmp_path, monkeypatch):
    shutil.copy(pool / "part-0.parquet", pool / "part-9.parquet")
    with pytest.raises(InputError, match=r"of the 5000 kept rows have the id of another"):
        files.select(pool, 5000, id="id", out=tmp_path / "by pilot")
    monkeypatch.setattr(files, "by_pilot", lambda question: None)  # a look at all rows notices it before it writes
    with pytest.raises(InputError, match=r"about 2\d % of the rows have the id of another"):
        files.select(pool, 5000, id="id", out=tmp_path / "kept")
    assert files.select(pool, 5000, id="id", out=tmp_path / "kept", repeats=True).kept == 5000
    kept, counts = np.unique(read_kept(tmp_path / "kept"), return_counts=True)
    twice = np.isin(kept, IDS[:5000])
    assert np.count_nonzero(counts[twice] != 2) <= 1, "rows of one id are kept together, but at the cut"
    assert np.all(counts[~twice] == 1)


def test_a_few_repeated_ids_are_counted_among_the_kept(tmp_path):
    ids = np.arange(N)
    at = np.argsort(LOG_RATIO)[-4:]  # sure to be kept
    ids[at[:2]] = ids[at[2:]]
    (tmp_path / "s").mkdir()
    parquet.write_table(pa.table({"id": ids, "log_ratio": LOG_RATIO}), tmp_path / "s" / "a.parquet")
    with pytest.raises(InputError, match=r"2 of the 5000 kept rows have the id of another"):
        files.select(tmp_path / "s", 5000, id="id", out=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    assert files.select(tmp_path / "s", 5000, id="id", out=tmp_path / "kept", repeats=True).kept == 5000


def test_a_file_that_vanishes_between_two_looks_is_named(pool, tmp_path, monkeypatch):
    def then_gone(question):
        found = looking.by_sketch(question)
        (pool / "part-3.parquet").unlink()
        return found

    monkeypatch.setattr(files, "by_pilot", lambda question: None)
    monkeypatch.setattr(files, "by_sketch", then_gone)
    with pytest.raises(InputError, match=r"part-3\.parquet has vanished since the run began"):
        files.select(pool, 5000, id="id", out=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either n or budget"),
        ({"n": 10, "budget": 2}, "either n or budget"),
        ({"n": 19_951}, "cannot select 19951 of the 20000 rows: only 19950 have r > 0"),
        ({"n": 10, "column": "score"}, "kind says what the column 'score' holds"),
        ({"n": 10, "column": "score", "kind": "logit"}, "has no column 'score'; it has note, id, log_ratio"),
        ({"n": 10, "id": "log_ratio"}, "ids must be integers or text, got double"),
        ({"n": 10, "column": "note", "kind": "logit"}, "'row .*, said' is not a number"),
        ({"n": 10, "group": "id"}, "more than 128 groups"),
        ({"n": {"web": 1}}, "give group"),
        ({"n": 10, "shares": "most", "group": "source"}, "or 'equal', got 'most'"),
        ({"n": {"web": 1}, "group": "source"}, "'books' is missing|books"),
        ({"n": 100_000, "group": "source"}, "group 'books': cannot select 100000"),
        ({"n": 10, "cost": "log_ratio"}, "a cost is a whole number"),
        ({"n": 10, "beta": 2.0}, "beta is for rewards only"),
        ({"n": 10, "column": "note", "kind": "reward"}, "a reward needs beta"),
        ({"n": 0}, "n must be a whole number of at least 1"),
        ({"n": 10, "seed": -1}, "seed"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_leaves_nothing(pool, tmp_path, options, message):
    with pytest.raises(obrs.errors.ObrsError, match=message) as caught:
        files.select(pool, out=tmp_path / "kept", **options)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["scores"]


# Selecting twice


def test_a_second_score_needs_a_second_seed_and_the_same_score_the_same(tmp_path):
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(2, N))
    one = select(first, N // 4, design="priority")
    due = select(second[one], N // 8, design="priority", ids=one, seed=1)
    biased = select(second[one], N // 8, design="priority", ids=one, seed=0)
    error = 1 / np.sqrt(N // 8)  # of the mean of log-ratios with a standard deviation of about 1
    assert second[one][due].mean() - second[one][biased].mean() > 4 * error, "uniforms of kept rows are not uniform"

    (tmp_path / "s").mkdir()
    columns = {"id": np.arange(N), "log_ratio": first, "other": second}
    for kind, write in (("parquet", parquet.write_table), ("csv", arrow_csv.write_csv)):
        write(pa.table(columns), tmp_path / "s" / f"a.{kind}")
        files.select(tmp_path / "s" / f"a.{kind}", N // 4, id="id", out=tmp_path / kind)
        again = {"column": "other", "kind": "log_ratio", "id": "id"}
        files.select(tmp_path / kind, N // 8, **again, out=tmp_path / f"again {kind}", seed=1)
        np.testing.assert_array_equal(np.sort(read_kept(tmp_path / f"again {kind}")), np.sort(one[due]))
        assert (tmp_path / f"again {kind}" / f"at-the-cut1.{kind}").exists(), "the file of that name stays what it was"
        nested = files.select(tmp_path / kind, N // 8, id="id", out=tmp_path / f"nested {kind}")
        assert (nested.kept, nested.way) == (N // 8, "keys"), "by the same score fewer rows are those of one selection"
        assert nested.log_c == pytest.approx(solve_pool(first, None, len(first) / 8), abs=0.1)
        expected = select(first, N // 8, design="priority")
        np.testing.assert_array_equal(np.sort(read_kept(tmp_path / f"nested {kind}")), expected)
        shutil.rmtree(tmp_path / "s")
        (tmp_path / "s").mkdir()


@pytest.mark.parametrize("n", [20, 2500])
def test_log_c_of_rows_selected_twice_by_one_score_is_that_of_both_selections(pool, tmp_path, n):
    files.select(pool, 5000, id="id", out=tmp_path / "kept")
    key = np.sort(priority_key(LOG_RATIO, IDS, seed=0))
    for name, where in (("folder", tmp_path / "kept"), ("glob", str(tmp_path / "kept" / "*.parquet"))):
        twice = files.select(where, n, id="id", out=tmp_path / name)
        assert key[n - 1] <= twice.log_c <= key[n], "of all rows, those with a smaller key were kept"
    other = files.select(tmp_path / "kept", n, id="id", out=tmp_path / "other", seed=1)
    kept = LOG_RATIO[np.isin(IDS, read_kept(tmp_path / "kept"))]
    assert other.log_c == pytest.approx(solve_pool(kept, None, float(n)), abs=1e-12)


# The command line


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    return code, *capsys.readouterr()


def test_the_command_line_takes_folders_globs_and_many_files(pool, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = sorted(f"scores/{path.name}" for path in pool.iterdir())
    for number, where in enumerate((["scores"], ["scores/*.parquet"], names)):
        code, out, err = run(capsys, "select", *where, "--id", "id", "-n", 2, "-o", f"kept-{number}/")
        assert (code, out, err) == (0, "", f"kept 2 of 20000 rows (1 in 10 000): kept-{number}/\n")
        np.testing.assert_array_equal(np.sort(read_kept(f"kept-{number}")), chosen(2))
    code, out, err = run(capsys, "plan", "scores/", "--budgets", "2,4", "--for", "kl=0.05", "-n", 100)
    assert (code, err) == (0, "")
    assert out.startswith("scores/, 4 files: 20,000 scores, column 'log_ratio' read as log_ratio\nM = ")
    assert "is the smallest budget for kl=0.05" in out
    assert json.loads(run(capsys, "plan", "scores/", "--budgets", "2", "--json")[1])[0]["budget"] == 2
    assert run(capsys, "plan", "scores/", "--plot", "a.png")[0] == 0
    assert Path("a.png").stat().st_size > 10_000


def test_the_command_line_takes_groups_costs_and_quotas_of_folders(pool, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quota = ["--group", "source", "--quota", "web=50,books=20,code=10", "--id", "id"]
    assert run(capsys, "select", "scores", *quota, "-o", "a/")[0] == 0
    np.testing.assert_array_equal(np.sort(read_kept("a")), chosen({"web": 50, "books": 20, "code": 10}, groups=GROUP))
    assert "that cost 9" in run(capsys, "select", "scores", "--cost", "tokens", "-n", 10_000, "-o", "b/")[2]
    assert run(capsys, "select", "scores", "--group", "source", "--shares", "equal", "-n", 9, "-o", "c/")[0] == 0
    assert np.unique(read_kept("c", "source"), return_counts=True)[1].tolist() == [3, 3, 3]


MISTAKES = [
    (["select", "scores", "-n", "5", "-o", "-"], "the rows of a folder go to a folder: -o kept/"),
    (["select", "scores", "-n", "5", "-o", "k/", "--design", "pivotal"], "drawn with --design priority, got pivotal"),
    (["select", "scores", "-n", "5", "-o", "k/", "--event-weight", "w"], "--event-weight is for one file in memory"),
    (["plan", "scores", "--group", "source"], "--group is for one file in memory"),
    (["plan", "scores", "--column", "nome"], "has no column 'nome'; did you mean 'note'?"),
    (["select", "scores", "-n", "5", "-o", "k/", "--column", "tokens"], "is column 'tokens' a --log-ratio"),
    (["plan", "nothing/*.csv"], "no file matches nothing/*.csv"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=lambda value: " ".join(value) if value is list else "")
def test_a_mistake_on_the_command_line_is_one_line(pool, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert os.listdir() == ["scores"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_rows(tmp_path):
    (tmp_path / "s").mkdir()
    for part in range(20):
        rng = np.random.default_rng(part)
        ids = np.arange(part * 10**6, (part + 1) * 10**6)
        table = pa.table({"id": ids, "log_ratio": rng.normal(size=10**6), "x": rng.normal(size=10**6)})
        parquet.write_table(table, tmp_path / "s" / f"{part:02d}.parquet")
    # not getrusage, which counts what the parent had when it forked
    peak = "\nprint(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    code = SELECT.replace("5000", "5_000_000") + peak
    command = [sys.executable, "-c", code, str(tmp_path / "s"), str(tmp_path / "kept")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) / 1024 < 512


def test_the_rows_of_a_batch_are_bounded_however_large_a_row_group_is(pool, monkeypatch):
    monkeypatch.setattr(rows, "_PIECE", 1 << 16)
    whole = pa.concat_tables([parquet.read_table(path) for path in sorted(pool.iterdir())])
    for path in pool.iterdir():
        path.unlink()
    parquet.write_table(whole, pool / "all.parquet")
    (source,) = rows.find_sources(pool)
    assert max(len(batch) for batch in read_batches(source, ["id"])) < 2500


def test_ids_that_are_all_the_same_are_a_hundred_per_cent(tmp_path, capsys):
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "a.csv").write_text("id,log_ratio\n" + "7,1\n7,2\n" * 500)
    assert main(["select", str(tmp_path / "scores"), "--id", "id", "-n", "5", "-o", str(tmp_path / "kept")]) == 2
    err = capsys.readouterr().err
    assert "about 100 % of the rows have the id of another" in err
    assert err.endswith("make ids unique, or give --repeats\n")
