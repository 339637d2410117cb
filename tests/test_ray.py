"""On Ray, the same rows are kept and the same samples are made as in one process, whoever dies on the way."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import obrs
from obrs.errors import ExhaustedError, InputError, InputTypeError

ray = pytest.importorskip("ray")
import pyarrow as pa  # noqa: E402
from pyarrow import parquet  # noqa: E402

RNG = np.random.default_rng(0)
N = 6000
X = RNG.normal(size=N) * 1.5
IDS = RNG.permutation(10 * N)[:N]
COST = RNG.integers(1, 50, N)
LABELS = np.array(["a", "b", "c"])[RNG.integers(0, 3, N)]
TABLE = pa.table({"id": IDS, "log_ratio": X, "cost": COST, "label": LABELS, "text": [f"row {i}" for i in IDS]})
# Ray leaves sockets and files to the end of the process, and its own code warns.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    for left in reversed(range(3)):
        try:
            ray.init(num_cpus=8, object_store_memory=100_000_000, **options)
            break
        except Exception as error:  # Ray gives a node 30 seconds, which may be too few on a busy machine
            if not left or "timed out during startup" not in str(error):
                raise
            ray.shutdown()
    yield
    ray.shutdown()


@pytest.fixture
def dataset(cluster):
    return ray.data.from_arrow([TABLE.slice(0, 2000), TABLE.slice(2000)])


def read_ids(dataset):
    return np.sort([row["id"] for row in dataset.select_columns(["id"]).take_all()])


def select_ids(n, **options):
    return np.sort(IDS[obrs.select(X, n, design="priority", ids=IDS, **options)])


def test_the_rows_are_those_of_one_process_and_of_files(dataset, tmp_path):
    done = obrs.ray.select(dataset, 1500, id="id", seed=3)
    rows = done.out.take_all()
    np.testing.assert_array_equal(np.sort([row["id"] for row in rows]), select_ids(1500, seed=3))
    assert all(row["text"] == f"row {row['id']}" for row in rows)
    assert (done.rows, done.kept, done.bad) == (N, 1500, 0)
    (tmp_path / "scores").mkdir()
    parquet.write_table(TABLE, tmp_path / "scores" / "a.parquet")
    files = obrs.files.select(tmp_path / "scores", 1500, id="id", seed=3, out=tmp_path / "kept")
    assert done.threshold == files.threshold
    assert obrs.sql.condition(done) == obrs.sql.condition(files)
    assert "1,500 of 6,000 rows" in repr(done)


@pytest.mark.parametrize(
    "options",
    [
        {"n": {"a": 500, "b": 20, "c": 1}, "group": "label"},
        {"n": 900, "group": "label", "shares": "equal", "weights": True},
        {"budget": 4, "group": "label"},
        {"n": 30_000, "cost": "cost"},
        {"n": 700, "column": "cost", "kind": "weight", "weights": True},
    ],
    ids=["quotas", "shares", "budget", "cost", "weights"],
)
def test_groups_shares_costs_and_weights_are_those_of_files(dataset, tmp_path, options):
    (tmp_path / "scores").mkdir()
    parquet.write_table(TABLE, tmp_path / "scores" / "a.parquet")
    expected = obrs.files.select(tmp_path / "scores", out=tmp_path / "kept", id="id", **options)
    done = obrs.ray.select(dataset, id="id", **options)
    assert done.threshold == expected.threshold
    kept, rows = parquet.read_table(tmp_path / "kept" / "a.parquet").to_pylist(), done.out.take_all()
    assert sorted(rows, key=lambda row: row["id"]) == sorted(kept, key=lambda row: row["id"])


def test_a_worker_that_is_killed_in_any_pass_changes_nothing(dataset, tmp_path):
    def die(batch):
        flag = tmp_path / f"pass-{len(os.listdir(tmp_path))}"
        if len(batch["id"]) == 4000 and (tmp_path / "armed").exists():
            (tmp_path / "armed").rename(flag)
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    deadly = dataset.map_batches(die, batch_size=None)
    (tmp_path / "armed").touch()
    done = obrs.ray.select(deadly, 1500, id="id")
    (tmp_path / "armed").touch()
    np.testing.assert_array_equal(read_ids(done.out), select_ids(1500))
    assert len(list(tmp_path.glob("pass-*"))) == 2


def test_a_plan_is_that_of_the_profile(dataset):
    (row,) = obrs.ray.plan(dataset, [4])
    assert row["kl"] == pytest.approx(obrs.Profile(X).divergence("kl", 4), abs=1e-9)
    ids = [next(obrs.ray._batches(TABLE.slice(i, 3000), ["log_ratio"])).ids(None) for i in (0, 3000)]
    assert len(np.unique(ids)) == N, "blocks are not sampled at the same rows"


@pytest.mark.slow
def test_rows_do_not_depend_on_workers_blocks_or_order(cluster, monkeypatch):
    options = ray.data.DataContext.get_current().execution_options
    orders = {"shuffled": np.random.default_rng(1).permutation(N), "sorted": np.argsort(X)}
    for workers, name in ((1, "sorted"), (2, "shuffled"), (8, "sorted"), (8, "shuffled")):
        monkeypatch.setattr(options, "resource_limits", ray.data.ExecutionResources(cpu=workers))
        dataset = ray.data.from_arrow([TABLE.take(rows) for rows in np.array_split(orders[name], 10)])
        np.testing.assert_array_equal(read_ids(obrs.ray.select(dataset, 1500, id="id").out), select_ids(1500))
        quotas = obrs.ray.select(dataset, {"a": 500, "b": 20, "c": 1}, id="id", group="label")
        assert len(read_ids(quotas.out)) == 521


def test_bad_data_are_one_line(dataset):
    holes = pa.table({"id": [1, 2, 3], "log_ratio": [0.0, 1.0, None]})
    twice = ray.data.from_arrow(pa.table({"id": [7] * 40, "log_ratio": [-1.0] * 20 + [1.0] * 20}))
    weighted = ray.data.from_arrow(TABLE.append_column("log_weight", pa.array(X)))
    cases = [
        ("no column 'score'", lambda: obrs.ray.plan(dataset, [2], column="score", kind="logit")),
        ("ids must be integers or text", lambda: obrs.ray.select(dataset, 1, column="log_ratio", id="log_ratio")),
        ("cannot keep 6001: ", lambda: obrs.ray.select(dataset, 6001, id="id")),
        ("either n or budget", lambda: obrs.ray.select(dataset, id="id")),
        ("row 3, column 'log_ratio': '' is not a number", lambda: obrs.ray.plan(ray.data.from_arrow(holes), [2])),
        ("have the id of another, as 7", lambda: obrs.ray.select(twice, 10, id="id")),
        ("has a column 'log_weight' already", lambda: obrs.ray.select(weighted, 10, id="id", weights=True)),
        ("a plan has no costs, groups or signs", lambda: obrs.ray.plan(dataset, [2], group="label")),
        ("tied for the last place", lambda: obrs.ray.select(twice, 10, id="id", repeats=True)),
    ]
    for match, act in cases:
        with pytest.raises(InputError, match=match) as caught:
            act()
        assert "\n" not in str(caught.value)
    with pytest.raises(InputTypeError, match=r"dataset must be a ray.data.Dataset with rows, got list"):
        obrs.ray.select([1, 2], 1, id="id")


def model(flag=None):
    """A model for actors; with a flag, the first process that comes to id 7777 is killed, once."""

    def make():
        def propose(ids):
            if flag is not None and 7777 in ids and not Path(flag).exists():
                Path(flag).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return obrs.normals(ids, 2, seed=1)

        return propose, lambda x: 0.8 * x[:, 0] - 0.3 * x[:, 1]

    return make


@pytest.mark.slow
def test_actors_make_the_samples_of_one_process_also_if_one_is_killed(cluster, tmp_path):
    alone = obrs.sample(*model()(), 4000, budget=3, batch_size=500)
    for workers, flag in ((1, None), (2, None), (8, None), (2, tmp_path / "killed")):
        make = model(flag and str(flag))
        kept = obrs.ray.sample(make, 4000, budget=3, batch_size=500, workers=workers, progress=False)
        np.testing.assert_array_equal(kept.ids, alone.ids)
        np.testing.assert_array_equal(kept.x, alone.x)
        assert (kept.proposed, kept.rule.log_c) == (alone.proposed, alone.rule.log_c)
    assert (tmp_path / "killed").exists()
    with pytest.raises(ExhaustedError) as caught:
        obrs.ray.sample(model(), 4000, budget=3, max_proposed=6000, batch_size=500, workers=2)
    np.testing.assert_array_equal(caught.value.partial.ids, alone.ids[alone.ids < 6000])

    def make_grouped():
        return (lambda ids, group: group + obrs.normals(ids, 1, seed=1)[:, 0]), lambda x: 0.5 * x

    groups = np.repeat([0, 4], 2000)
    rule = obrs.Grouped.fit(make_grouped()[1](make_grouped()[0](np.arange(4000), groups)), 3, groups, split="kl")
    kept = obrs.ray.sample(make_grouped, 500, rule=rule, batch_size=200, workers=2)
    np.testing.assert_array_equal(kept.x, obrs.sample(*make_grouped(), 500, rule=rule).x)

    def make_broken():
        return (lambda ids: obrs.normals(ids, 2, seed=1)), lambda x: 1 / 0

    with pytest.raises(ZeroDivisionError):
        obrs.ray.sample(make_broken, 10, budget=2, workers=1)
