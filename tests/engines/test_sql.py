"""A database keeps the rows that the library keeps."""

from math import inf

import numpy as np
import pytest

import obrs
from obrs import Sketch
from obrs.errors import InputError, InputTypeError

RNG = np.random.default_rng(0)
IDS = np.concatenate([RNG.integers(-(2**63), 2**63 - 1, 20_000), [0, 1, -1, 2**63 - 1, -(2**63)]])
X = np.append(RNG.normal(size=20_000) * 2, [0.0, -inf, 3.0, -3.0, 1.0])


def exact(seed=0, x=X, ids=IDS, **wanted):
    cut = Sketch().add(x, ids, seed).solve(**wanted)
    return cut.finish(cut.judge(ids, x).open)


@pytest.fixture(scope="module")
def duckdb():
    connection = pytest.importorskip("duckdb").connect()
    connection.execute("SET threads = 1")
    return connection


@pytest.mark.parametrize("wanted", [{"budget": 4}, {"n": 7000}, {"n": 1}, {"budget": 1e9}, {"n": 20_004}])
def test_duckdb_keeps_the_same_ids(duckdb, wanted):
    cut = exact(seed=2**63 + 5, **wanted)
    name = 'a "quoted" ratio'
    table = {"i d": IDS, name: X}
    condition = obrs.sql(cut, id="i d", log_ratio=name)
    kept = duckdb.execute(f'SELECT "i d" FROM {as_table(duckdb, table)} WHERE {condition}').fetchnumpy()["i d"]
    np.testing.assert_array_equal(np.sort(kept), np.sort(IDS[cut.keep(IDS, X) == 1]))
    assert len(kept) > 0


def as_table(duckdb, columns):
    pyarrow = pytest.importorskip("pyarrow")
    duckdb.register("rows", pyarrow.table(columns))
    return "rows"


def test_duckdb_takes_float32_and_rows_without_a_number(duckdb):
    pyarrow = pytest.importorskip("pyarrow")
    x = X.astype(np.float32)
    cut = exact(x=x, n=5000)
    holes = pyarrow.array(np.where(np.arange(len(x)) % 14 == 0, np.nan, x), mask=np.arange(len(x)) % 14 == 7)
    duckdb.register("holes", pyarrow.table({"id": IDS, "log_ratio": holes}))
    kept = duckdb.execute(f"SELECT id FROM holes WHERE {obrs.sql(cut)}").fetchnumpy()["id"]
    wanted = (cut.keep(IDS, x) == 1) & (np.arange(len(x)) % 7 != 0)
    np.testing.assert_array_equal(np.sort(kept), np.sort(IDS[wanted]))


def test_budget_one_keeps_whatever_has_a_positive_ratio(duckdb):
    x, ids = np.array([0.0, -5.0]), np.array([1, 2])
    condition = obrs.sql(exact(x=x, ids=ids, budget=1))
    duckdb.register("three", pytest.importorskip("pyarrow").table({"id": [1, 2, 3], "log_ratio": [0.0, -5.0, -inf]}))
    assert duckdb.execute(f"SELECT id FROM three WHERE {condition} ORDER BY id").fetchall() == [(1,), (2,)]


def test_names_are_quoted():
    condition = obrs.sql(exact(n=10), id='a"b', log_ratio="x; drop")
    assert '"a""b"' in condition
    assert '"x; drop"' in condition


@pytest.mark.parametrize(
    ("error", "match", "act"),
    [
        (InputTypeError, "cut must be a SketchCut", lambda: obrs.sql(-0.5)),
        (InputError, "finish it first", lambda: obrs.sql(Sketch().add(X, IDS).solve(n=5))),
        (InputTypeError, "a column must be a name", lambda: obrs.sql(exact(n=5), id="")),
        (InputError, "is tied", lambda: obrs.sql(exact(x=np.zeros(5), ids=np.zeros(5, int), n=2))),
    ],
)
def test_bad_input_is_refused_in_one_line(error, match, act):
    with pytest.raises(error, match=match) as caught:
        act()
    assert "\n" not in str(caught.value)
