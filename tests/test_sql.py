"""DuckDB keeps the rows that the library keeps."""

import numpy as np
import pytest

import obrs
from obrs.cli import main
from obrs.errors import InputError

pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
from pyarrow import parquet  # noqa: E402

RNG = np.random.default_rng(0)
N = 1_000_000
IDS = np.concatenate([RNG.integers(-(2**63), 2**63 - 1, N - 4), [0, -1, 2**63 - 1, -(2**63)]])
TEXT = [f"{i}" if i % 3 == 0 else f"00{i}" if i % 3 == 1 else f"dóc/{i}" for i in range(N)]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pool")
    x = RNG.normal(size=N).astype(np.float32)
    x[::1000] = -np.inf
    x[1::1000] = np.nan
    labels = np.array(["a", "b'c", 'd"'])[RNG.integers(0, 3, N)]
    columns = {"i d": IDS, "text": TEXT, "x": x, "chance": 1 / (1 + np.exp(-x)), "label": labels}
    table = pa.table({**columns, "weight": RNG.normal(size=N), "row": np.arange(N)})
    for part in range(4):
        parquet.write_table(table.slice(part * N // 4, N // 4), folder / f"{part}.parquet")
    return folder


def select_by_duckdb(pool, condition):
    base = duckdb.connect(config={"threads": 1})
    rows = base.execute(f"SELECT \"row\" FROM read_parquet('{pool}/*.parquet') WHERE {condition}").fetchnumpy()
    return np.sort(rows["row"])


@pytest.mark.parametrize(
    "options",
    [
        {"n": N // 4, "id": "i d", "column": "x", "kind": "logit", "seed": 2**63 + 5},
        {"n": N // 4, "id": "text", "column": "x", "kind": "logit"},
        {"n": 1, "id": "i d", "column": "x", "kind": "reward", "beta": 0.5},
        {"n": {"a": 10, "b'c": 100_000, 'd"': 3}, "id": "text", "column": "x", "kind": "logit", "group": "label"},
        {"n": 2 * N, "at_most": True, "id": "i d", "column": "x", "kind": "logit"},
        {"budget": 7, "id": "i d", "column": "chance", "kind": "probability", "group": "label"},
        {"n": N // 8, "id": "i d", "column": "weight", "kind": "weight"},
    ],
    ids=["integers", "text", "one", "groups", "all", "shares", "weights"],
)
def test_the_same_rows_of_a_million(pool, tmp_path, options):
    done = obrs.files.select(pool, out=tmp_path / "kept", skip_bad=True, progress=False, **options)
    kept = parquet.read_table(tmp_path / "kept", columns=["row"])["row"].to_numpy()
    assert len(kept) == len(done) > 0
    condition = obrs.sql.condition(done)
    np.testing.assert_array_equal(select_by_duckdb(pool, condition), np.sort(kept))
    for same in (done.manifest, done.out, f"{done.out}.manifest.json"):
        assert obrs.sql.condition(same) == condition


@pytest.mark.parametrize("values", [[True, False], ["True", "False"]], ids=["boolean", "text"])
def test_groups_may_be_booleans(tmp_path, values):
    columns = {"row": np.arange(200), "logit": RNG.normal(size=200), "good": values * 100}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    done = obrs.files.select(
        tmp_path / "a.parquet", {True: 20, False: 5}, id="row", group="good", out=tmp_path / "kept"
    )
    kept = parquet.read_table(tmp_path / "kept")["row"].to_numpy()
    np.testing.assert_array_equal(select_by_duckdb(tmp_path, obrs.sql.condition(done)), kept)


def test_the_command_prints_the_condition_and_writes_nothing(pool, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["select", str(pool), "--kind", "logit", "--column", "x", "--skip-bad", "--id", "text", "-n", "1000"]
    assert main([*command, "--sql", "duckdb"]) == 0
    done = obrs.files.select(pool, 1000, id="text", column="x", kind="logit", skip_bad=True, out=None)
    assert capsys.readouterr().out == f"{obrs.sql.condition(done)}\n"
    assert (len(done), list(tmp_path.iterdir())) == (1000, [])
    assert main([*command, "--sql", "spark"]) == main(command) == 2


def test_what_cannot_be_expressed_is_one_line(pool, tmp_path):
    done = obrs.files.select(pool, 10, column="weight", kind="weight", out=tmp_path / "kept")
    with pytest.raises(InputError, match="without a column of ids"):
        obrs.sql.condition(done)
    (tmp_path / "other.json").write_text("[" * 100_000)
    for wrong in (tmp_path, tmp_path / "other.json"):
        with pytest.raises(InputError, match="is no manifest of a selection"):
            obrs.sql.condition(wrong)
    facts = {"kind": "logit", "column": "x", "id": "i", "group": None, "seed": 0, "cut": {"": [-1.0, 7]}}
    sql = "7 THEN 0 END); DROP TABLE pool; -- %d"
    for change in ({"cut": {"": [-1.0, sql]}}, {"cut": {"": [sql, 7]}}, {"beta": sql}, {"id": 7}, {"kind": sql}):
        with pytest.raises(InputError, match="not one of a selection"):
            obrs.sql.condition(facts | change)
