"""On Ray, the same rows are kept and the same samples are made as in one process."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import obrs
from obrs import normals
from obrs.errors import ExhaustedError, InputError, InputTypeError, RatioError

pytest.importorskip("ray")

RNG = np.random.default_rng(0)
N = 6000
X = RNG.normal(size=N) * 1.5
IDS = RNG.permutation(10 * N)[:N]
COST = RNG.integers(1, 50, N)
# Ray leaves sockets and files to the end of the process, and its own code warns.
pytestmark = pytest.mark.filterwarnings("ignore")


def started(cpus):
    import ray

    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    for left in reversed(range(3)):
        try:
            ray.init(num_cpus=cpus, include_dashboard=False, logging_level="ERROR", object_store_memory=100_000_000)
            break
        except Exception as error:  # Ray gives a node 30 seconds, which may be too few on a busy machine
            if not left or "timed out during startup" not in str(error):
                raise
            ray.shutdown()
    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray


def table(at):
    import pyarrow

    return pyarrow.table({"id": IDS[at], "log_ratio": X[at], "cost": COST[at], "text": [f"row {i}" for i in IDS[at]]})


def ids_of(dataset):
    return np.sort(np.concatenate([batch["id"] for batch in dataset.iter_batches(batch_format="numpy")]))


def test_a_small_dataset_on_two_workers_keeps_the_rows_of_one_process():
    ray = started(2)
    try:
        dataset = ray.data.from_arrow([table(slice(0, 2000)), table(slice(2000, N))])
        selected = obrs.ray.select(dataset, n=1500, seed=3)
        rows = selected.dataset.take_all()
        expected = obrs.select(X, 1500, seed=3, design="priority", ids=IDS)
        assert sorted(row["id"] for row in rows) == sorted(IDS[expected].tolist())
        assert all(row["text"] == f"row {row['id']}" for row in rows)
        assert selected.repeated == 0
    finally:
        ray.shutdown()


def test_what_is_no_dataset_is_refused_without_starting_ray():
    with pytest.raises(InputTypeError, match=r"dataset must be a ray.data.Dataset, got list"):
        obrs.ray.select([1, 2], n=1)
    with pytest.raises(InputTypeError, match="make_model must be a function"):
        obrs.ray.sample(3, 10, budget=2)


@pytest.mark.slow
def test_the_rows_kept_do_not_depend_on_workers_and_files(tmp_path):
    import pyarrow.parquet

    ray = started(8)
    try:
        context = ray.data.DataContext.get_current()
        orders = {"shuffled": np.random.default_rng(1).permutation(N), "sorted": np.argsort(X)}
        for name, order in orders.items():
            (tmp_path / name).mkdir()
            for i, at in enumerate(np.array_split(order, 5)):
                pyarrow.parquet.write_table(table(at), tmp_path / name / f"{i}.parquet", row_group_size=500)
        expected = np.sort(IDS[obrs.select(X, 1500, design="priority", ids=IDS)])
        for workers, name in ((1, "sorted"), (2, "shuffled"), (8, "sorted"), (8, "shuffled")):
            context.execution_options.resource_limits = ray.data.ExecutionResources(cpu=workers)
            dataset = ray.data.read_parquet(str(tmp_path / name), override_num_blocks=8)
            np.testing.assert_array_equal(ids_of(obrs.ray.select(dataset, n=1500).dataset), expected)
        half = obrs.ray.select(dataset, budget=2)
        assert half.cut.log_c == pytest.approx(float(obrs.solve_log_c(X, 2)), rel=1e-14)
        np.testing.assert_array_equal(ids_of(half.dataset), np.sort(IDS[half.cut.keep(IDS, X) == 1]))
        tokens = obrs.ray.select(dataset, n=30_000, cost="cost")
        kept = IDS[obrs.select(X, 30_000, design="priority", ids=IDS, cost=COST)]
        np.testing.assert_array_equal(ids_of(tokens.dataset), np.sort(kept))
        zoomed = obrs.ray.select(dataset, n=1500, memory=1000)  # so little that the bin of c is sketched again
        np.testing.assert_array_equal(ids_of(zoomed.dataset), expected)
        row = obrs.ray.plan(dataset, [4])[0]
        assert row["kl"] == pytest.approx(obrs.Profile(X).divergence("kl", 4), abs=1e-6)
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_bad_data_are_refused_in_one_line():
    import pyarrow

    ray = started(2)
    try:
        good = ray.data.from_arrow(table(slice(0, 500)))
        holes = pyarrow.table({"id": [1, None, 3], "log_ratio": [0.0, 1.0, None]})
        bad = ray.data.from_arrow([table(slice(0, 100)).select(["id", "log_ratio"]), holes])
        cases = [
            (
                InputError,
                "no column 'score'; it has id, log_ratio, cost, text",
                lambda: obrs.ray.plan(good, [2], column="score"),
            ),
            (
                InputTypeError,
                "column 'text' must be integers, got string",
                lambda: obrs.ray.select(good, n=1, id="text"),
            ),
            (InputError, "cannot select 501 of the 500 rows", lambda: obrs.ray.select(good, n=501)),
            (InputError, "exactly one of the two", lambda: obrs.ray.select(good)),
            (RatioError, "log_ratio has 1 NaN among 103 values", lambda: obrs.ray.plan(bad, [2])),
        ]
        for error, match, act in cases:
            with pytest.raises(error, match=match) as caught:
                act()
            assert "\n" not in str(caught.value)
        twice = ray.data.from_arrow(pyarrow.table({"id": [7] * 40, "log_ratio": [0.0] * 40}))
        with pytest.raises(InputError, match="rows with id 7 and one log-ratio are tied"):
            obrs.ray.select(twice, n=10)
        # one id for all: the bracket misses at first, and is widened
        shared = ray.data.from_arrow(pyarrow.table({"id": [7] * N, "log_ratio": X}))
        assert obrs.ray.select(shared, n=100).dataset.count() == 100
    finally:
        ray.shutdown()


def model(flag=None, at=None):
    """A model for actors; with a flag, the first process that comes to the id `at` is killed, once."""

    def make():
        def propose(ids):
            if flag is not None and at in ids and not Path(flag).exists():
                Path(flag).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return normals(ids, 2, seed=1)

        return propose, lambda x: 0.8 * x[:, 0] - 0.3 * x[:, 1]

    return make


@pytest.mark.slow
def test_actors_make_the_samples_of_one_process_and_lose_nothing_if_one_is_killed(tmp_path):
    ray = started(3)
    try:
        alone = obrs.sample(*model()(), 4000, budget=3, calibrate=4096, batch_size=500)
        runs = {
            "one": {"workers": 1},
            "three": {"workers": 3},
            "killed during the pilot": {"workers": 2, "make": model(str(tmp_path / "a"), at=2600)},
            "killed later": {"workers": 2, "make": model(str(tmp_path / "b"), at=7777)},
            "killed and not started again": {
                "workers": 2,
                "make": model(str(tmp_path / "c"), at=7777),
                "actor_options": {"max_restarts": 0, "max_task_retries": 0},
            },
        }
        for name, options in runs.items():
            make = options.pop("make", model())
            kept = obrs.ray.sample(make, 4000, budget=3, batch_size=500, progress=False, **options)
            np.testing.assert_array_equal(kept.ids, alone.ids, err_msg=name)
            np.testing.assert_array_equal(kept.x, alone.x, err_msg=name)
            assert kept.proposed == alone.proposed
            assert kept.rule.log_c == pytest.approx(alone.rule.log_c, rel=1e-14)
        assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "c"}  # each was killed indeed
        given = obrs.ray.sample(model(), 100, budget=3, calibrate=alone.rule, workers=1, batch_size=500)
        np.testing.assert_array_equal(given.ids, alone.ids[:100])
        with pytest.raises(ExhaustedError) as caught:
            obrs.ray.sample(model(), 4000, budget=3, max_proposed=6000, batch_size=500, workers=2)
        np.testing.assert_array_equal(caught.value.partial.ids, alone.ids[alone.ids < 6000])

        def broken():
            return (lambda ids: normals(ids, 2, seed=1)), lambda x: 1 / 0

        with pytest.raises(ZeroDivisionError):
            obrs.ray.sample(broken, 10, budget=2, workers=1)
    finally:
        ray.shutdown()
