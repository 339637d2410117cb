"""Rejection: exact counts, decisions that depend on nothing but the id, and nothing lost on the way."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pytest
from scipy import stats

from obrs import Budgeted, Grouped, normals
from obrs.errors import (
    BudgetError,
    ExhaustedError,
    InputError,
    InputTypeError,
    Interrupted,
    RatioError,
    UnknownNameError,
)
from obrs.sampling.model import Model
from obrs.sampling.proposals import concatenate, length, move, proposal, take
from obrs.sampling.rejection import sample, sample_pool
from obrs.sampling.samples import Calls, Samples, join
from obrs.sampling.streams import collect, stream

SHIFT = 1.0  # target N(SHIFT, 1), model N(0, 1)


def propose(ids):
    return normals(ids, 1, seed=1)[:, 0]


def log_ratio(x):
    return SHIFT * x - SHIFT**2 / 2


RULE = Budgeted.fit(log_ratio(propose(np.arange(50_000))), 2.6)


# --- exactly n ----------------------------------------------------------------


@pytest.mark.parametrize(("n", "budget"), [(1, 1), (16, 4), (1000, 2.6), (3000, 2.6), (2000, 1), (5000, 1.2)])
def test_exactly_n_are_kept_at_about_the_budget(n, budget):
    kept = sample(propose, log_ratio, n, budget=budget)
    assert len(kept) == n == length(kept.x)
    error = np.sqrt(n * budget * (budget - 1)) + n * budget * 0.02  # negative binomial, and a fitted c
    assert abs(kept.proposed - n * budget) <= 5 * error + 1
    assert kept.executed >= kept.proposed
    np.testing.assert_array_equal(kept.x, propose(kept.ids))
    np.testing.assert_allclose(kept.log_ratio, log_ratio(kept.x))


def test_nobody_pays_thousands_of_calls_for_sixteen_images():
    kept = sample(propose, log_ratio, 16, budget=4)
    assert kept.executed == kept.calls.generator == kept.calls.critic == 64


def test_pool_gives_exactly_n_of_exactly_pool():
    kept = sample_pool(propose, log_ratio, 2500, pool=6500, batch_size=999)
    assert (len(kept), kept.executed, kept.proposed) == (2500, 6500, 6500)
    assert np.all(np.diff(kept.ids) > 0)


def test_kept_samples_follow_the_accepted_density():
    """P~ has density q min(c r, 1)/Z; compare its distribution function."""
    kept = sample(propose, log_ratio, 20_000, budget=2.6, calibrate=RULE)
    grid = np.linspace(-6, 7, 20_001)
    density = stats.norm.pdf(grid) * np.exp(RULE(log_ratio(grid)))
    cdf = np.cumsum(density) / np.sum(density)
    assert stats.kstest(kept.x, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3


def test_cost_is_counted_to_the_last_kept_and_as_executed():
    kept = collect(stream(propose, log_ratio, RULE, batch_size=1000), 700)
    assert kept.proposed == kept.ids[-1] + 1 == kept.next_id
    assert kept.calls == Calls(generator=kept.proposed, critic=kept.proposed)
    assert kept.executed == 1000 * -(-kept.proposed // 1000)
    assert kept.executed_calls == Calls(generator=kept.executed, critic=kept.executed)
    assert kept.rate == 700 / kept.proposed
    assert kept.seconds > 0


# --- decisions depend on the id alone ----------------------------------------------------------------


def kept_ids(**options):
    options = {"batch_size": 100, "stop": 5000, **options}
    return join(list(stream(propose, log_ratio, RULE, **options))).ids


@pytest.mark.parametrize("batch_size", [1, 7, 4999, 10_000])
def test_batch_size_does_not_matter(batch_size):
    stop = 500 if batch_size == 1 else 5000
    np.testing.assert_array_equal(kept_ids(batch_size=batch_size, stop=stop), kept_ids(stop=stop))


def test_a_larger_budget_keeps_a_subset():
    scores = log_ratio(propose(np.arange(5000)))
    sets = [
        set(join(list(stream(propose, log_ratio, Budgeted.fit(scores, k), batch_size=100, stop=5000))).ids)
        for k in (1.5, 2.6, 6)
    ]
    assert sets[2] < sets[1] < sets[0]


def test_seeds_of_acceptance_and_latents_are_independent():
    """The same seed for both: kept latents are shifted as the theory says, no more and no less."""
    kept = join(list(stream(propose, log_ratio, Budgeted(np.inf), batch_size=1000, seed=1, stop=20_000)))
    assert len(kept) == 20_000
    half = Budgeted(np.log(0.5))
    flat = join(list(stream(propose, lambda x: np.zeros(len(x)), half, batch_size=1000, seed=1, stop=20_000)))
    assert abs(flat.x.mean()) < 4 / np.sqrt(len(flat))
    assert abs(len(flat) - 10_000) < 4 * np.sqrt(5000)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_backend_does_not_matter(backend):
    if backend == "torch":
        torch = pytest.importorskip("torch")
        like = torch.empty(0, dtype=torch.float64)
    else:
        jax = pytest.importorskip("jax")
        jax.config.update("jax_enable_x64", True)
        like = jax.numpy.empty(0)
    there = join(
        list(stream(lambda ids: normals(ids, 1, seed=1, like=like)[:, 0], log_ratio, RULE, batch_size=100, stop=5000))
    )
    np.testing.assert_array_equal(there.ids, kept_ids())
    assert type(there.x) is type(like)


def work(worker, workers, queue):
    queue.put((worker, kept_ids(shard=(worker, workers)).tolist()))


def test_workers_in_real_processes_make_what_one_would():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=work, args=(i, 3, queue)) for i in range(3)]
    for process in processes:
        process.start()
    parts = dict(queue.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert sorted(i for part in parts.values() for i in part) == kept_ids().tolist()
    assert not set(parts[0]) & set(parts[1])


def test_a_run_stopped_anywhere_goes_on_where_it_was():
    whole = collect(stream(propose, log_ratio, RULE, batch_size=100), 1000)
    head = collect(stream(propose, log_ratio, RULE, batch_size=100), 333)
    tail = collect(stream(propose, log_ratio, RULE, batch_size=64, start=head.next_id), 667)
    both = join([head, tail])
    np.testing.assert_array_equal(both.ids, whole.ids)
    assert both.proposed == whole.proposed


# --- batches of several arrays ----------------------------------------------------------------


def test_labels_stay_with_their_images():
    def pairs(ids):
        return {"image": propose(ids)[:, None, None] * np.ones((1, 2, 2)), "label": ids % 10}

    kept = sample(pairs, lambda batch: log_ratio(batch["image"][:, 0, 0]), 2000, budget=3)
    np.testing.assert_array_equal(kept.x["label"], kept.ids % 10)
    np.testing.assert_array_equal(kept.x["image"][:, 1, 1], propose(kept.ids))
    as_tuple = sample(lambda ids: (propose(ids), ids), lambda batch: log_ratio(batch[0]), 10, budget=2)
    np.testing.assert_array_equal(as_tuple.x[1], as_tuple.ids)


def test_grouped_rule_keeps_each_class_at_its_budget():
    ids = np.arange(30_000)
    scores = log_ratio(propose(ids)) + (ids % 3) * 2.0
    rule = Grouped.fit(scores, 3, groups=ids % 3, of=lambda batch: batch[1])
    kept = join(
        list(
            stream(
                lambda i: (propose(i), i % 3),
                lambda batch: log_ratio(batch[0]) + batch[1] * 2.0,
                rule,
                batch_size=500,
                stop=30_000,
            )
        )
    )
    for label in range(3):
        count = np.sum(kept.x[1] == label)
        assert abs(count - 10_000 / 3) < 4 * np.sqrt(10_000 * (1 / 3) * (2 / 3))


def test_batches_can_be_taken_joined_and_moved():
    torch = pytest.importorskip("torch")
    batch = {"a": torch.arange(6.0).reshape(3, 2), "b": torch.arange(3)}
    some = take(batch, np.array([2, 0]))
    assert some["b"].tolist() == [2, 0]
    assert length(concatenate([some, some])) == 4
    assert isinstance(move(batch, "numpy")["a"], np.ndarray)
    assert move(batch, "cpu")["a"].device.type == "cpu"
    with pytest.raises(InputError, match="same first axis"):
        length((np.zeros(3), np.zeros(4)))
    with pytest.raises(InputTypeError, match="got list"):
        length([1, 2])


# --- weights ----------------------------------------------------------------


def runs(estimator, budget, stop, repeats, seed=0):
    """Estimates of the target's mean, which is SHIFT, from repeated runs with a fixed number of proposals."""
    rule = Budgeted.fit(log_ratio(propose(np.arange(50_000))), budget)
    out = []
    for i in range(repeats):
        start = (seed * repeats + i) * stop
        parts = stream(propose, log_ratio, rule, batch_size=stop, start=start, stop=start + stop, seed=seed)
        kept = join(list(parts))
        if len(kept):  # with a dozen proposals it happens that none is kept
            out.append(float(kept.mean(lambda x: x, estimator)))
    return np.array(out)


def test_weighted_sum_over_the_proposals_is_unbiased():
    estimates = runs("unbiased", 2.6, 200, 3000)
    assert abs(estimates.mean() - SHIFT) < 4 * estimates.std() / np.sqrt(len(estimates))


@pytest.mark.slow
def test_bias_of_the_self_normalised_mean_falls_like_one_over_n():
    biases = []
    for stop, repeats in [(12, 12_000), (48, 3000)]:
        estimates = runs("self_normalised", 2.0, stop, repeats, seed=3)
        biases.append((estimates.mean() - SHIFT, estimates.std() / np.sqrt(len(estimates))))
    (small, small_error), (large, large_error) = biases
    assert small < -4 * small_error  # visible with 12 proposals
    assert abs(large - small / 4) < 4 * np.hypot(large_error, small_error / 4) + 0.15 * abs(small)


def test_plain_average_at_a_small_budget_is_biased():
    estimates = runs("plain", 1.5, 1000, 200)
    assert estimates.mean() < SHIFT - 0.2
    weighted = runs("self_normalised", 1.5, 1000, 200)
    assert abs(weighted.mean() - SHIFT) < 0.05


@pytest.mark.parametrize("shift", [-2000.0, 0.0, 2000.0])
def test_means_do_not_depend_on_the_scale_of_the_ratio(shift):
    samples = Samples(
        np.array([1.0, 2.0, 6.0]), np.arange(3), np.zeros(3), np.log([1.0, 2.0, 3.0]) + shift, proposed=5, executed=5
    )
    assert float(samples.mean(lambda x: x)) == pytest.approx(23 / 6, rel=1e-12)


def test_unknown_estimators_and_wrong_shapes_are_refused():
    kept = sample(propose, log_ratio, 10, budget=2)
    with pytest.raises(UnknownNameError, match="did you mean 'unbiased'"):
        kept.mean(lambda x: x, "unbiassed")
    with pytest.raises(InputError, match="one row per sample, 10, got 3"):
        kept.mean(lambda x: x[:3])


# --- nothing is lost ----------------------------------------------------------------


def test_running_out_keeps_what_there_is():
    with pytest.raises(
        ExhaustedError, match=r"kept \d+ of 1000 samples in 500 proposals; raise max_proposed"
    ) as caught:
        collect(stream(propose, log_ratio, RULE, batch_size=100), 1000, max_proposed=500)
    partial = caught.value.partial
    np.testing.assert_array_equal(partial.ids, kept_ids(stop=500))
    assert partial.next_id == 500

    def slow(ids):
        time.sleep(0.02)
        return propose(ids)

    with pytest.raises(ExhaustedError, match=r"in 0.1 seconds; raise max_seconds"):
        collect(stream(slow, log_ratio, RULE, batch_size=10), 10_000, max_seconds=0.1)
    with pytest.raises(ExhaustedError, match="let the stream go on"):
        collect(stream(propose, log_ratio, RULE, batch_size=100, stop=200), 1000)


def test_an_exception_of_the_user_carries_what_was_kept():
    def fails(ids):
        if ids[0] >= 300:
            raise ZeroDivisionError("mine")
        return propose(ids)

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        collect(stream(fails, log_ratio, RULE, batch_size=100), 1000)
    assert caught.value.partial.next_id == 300
    np.testing.assert_array_equal(caught.value.partial.ids, kept_ids(stop=300))


INTERRUPTED = """
import numpy as np, time, sys
from obrs import Budgeted, normals
from obrs.errors import Interrupted
from obrs.sampling.streams import collect, stream
def slow(ids):
    if ids[0] == 300:
        print("ready", flush=True)
        time.sleep(30)
    return normals(ids, 1, seed=1)[:, 0]
try:
    collect(stream(slow, lambda x: x - 0.5, Budgeted(-1.0), batch_size=100), 10_000)
except Interrupted as error:
    error.partial.save(sys.argv[1])
    print(error, error.partial.next_id)
"""


def test_control_c_in_a_real_process_loses_nothing(tmp_path):
    path = tmp_path / "partial.npz"
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "ready"
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    partial = Samples.load(path)
    assert output.startswith(f"interrupted with {len(partial)} of 10000 samples kept")
    assert partial.next_id == 300
    assert issubclass(Interrupted, KeyboardInterrupt)


def test_memory_is_that_of_a_batch_and_of_what_is_kept():
    """2000 proposals of 80 kB would be 160 MB; 40 kept and a batch of 50 are 7."""

    def large(ids):
        return propose(ids)[:, None] * np.ones((1, 10_000))

    rule = Budgeted.fit(log_ratio(propose(np.arange(20_000))), 50)
    tracemalloc.start()
    kept = collect(stream(large, lambda x: log_ratio(x[:, 0]), rule, batch_size=50), 40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept.proposed > 1000
    assert peak < 20e6


@pytest.mark.parametrize("shape", ["array", "tuple", "dict"])
def test_samples_can_be_saved_and_loaded(tmp_path, shape):
    wrap = {"array": lambda x: x, "tuple": lambda x: (x, x > 0), "dict": lambda x: {"x": x, "positive": x > 0}}[shape]
    first = {"array": lambda b: b, "tuple": lambda b: b[0], "dict": lambda b: b["x"]}[shape]
    kept = sample(lambda ids: wrap(propose(ids)), lambda batch: log_ratio(first(batch)), 20, budget=2)
    kept.save(tmp_path / "kept.npz")
    again = Samples.load(tmp_path / "kept.npz")
    np.testing.assert_array_equal(first(again.x), first(kept.x))
    assert type(again.x) is type(kept.x)
    assert (again.proposed, again.calls, again.next_id) == (kept.proposed, kept.calls, kept.next_id)
    assert [p.name for p in tmp_path.iterdir()] == ["kept.npz"]
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(InputError, match=r"was not written by Samples.save"):
        Samples.load(tmp_path / "other.npz")


# --- bad input ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: sample(lambda ids: propose(ids[:-1]), log_ratio, 10, budget=2),
            InputError,
            "one item per id, 20 .* got 19",
        ),
        (lambda: sample(propose, lambda x: x[:, None], 10, budget=2), InputError, r"use log_ratio\(x\)\[:, 0\]"),
        (lambda: sample(propose, lambda x: x[:3], 10, budget=2), InputError, r"shape \(20,\), got \(3,\)"),
        (lambda: sample(propose, lambda x: x * np.nan, 10, budget=2), RatioError, "20 NaN among 20"),
        (lambda: sample(propose, lambda x: [1.0], 10, budget=2), InputTypeError, "must return an array, got list"),
        (lambda: sample(lambda ids: [1, 2], log_ratio, 10, budget=2), InputTypeError, "got list"),
        (lambda: sample(propose, log_ratio, 0, budget=2), InputError, "n must be a whole number of at least 1, got 0"),
        (lambda: sample(propose, log_ratio, 2.5, budget=2), InputError, "whole number"),
        (lambda: sample(propose, log_ratio, 10, budget=0.5), BudgetError, "did you mean budget=2"),
        (
            lambda: sample(propose, lambda x: np.where(x > 0, 0, -np.inf), 5000, budget=1.2),
            BudgetError,
            "smallest feasible",
        ),
        (lambda: sample(propose, log_ratio, 10, budget=2, batch_size=0), InputError, "batch_size must be"),
        (lambda: sample_pool(propose, log_ratio, 10, pool=5), InputError, "cannot keep 10 of a pool of 5"),
        (lambda: stream(propose, log_ratio, None, batch_size=5), InputTypeError, "rule must be a rule"),
        (lambda: stream(propose, log_ratio, RULE, batch_size=5, shard=(3, 2)), InputError, "0 <= worker < workers"),
        (lambda: stream(propose, log_ratio, RULE, batch_size=5, shard=1), InputError, "shard must be"),
        (lambda: collect(iter([]), 5), ExhaustedError, "kept 0 of 5"),
    ],
)
def test_bad_input_gets_one_clear_line(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_modules_in_train_mode_are_warned_about_once_and_gradients_are_off():
    torch = pytest.importorskip("torch")
    generator = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    seen = []

    def make(ids):
        x = generator(normals(ids, 2, seed=0, like=torch.empty(0)))
        seen.append(x.requires_grad)
        return x

    with pytest.warns(UserWarning, match="Sequential is in train mode") as caught:
        sample(make, lambda x: x[:, 0], 3000, budget=2)
    assert len(caught) == 1
    assert not any(seen)
    generator.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample(make, lambda x: x[:, 0], 10, budget=2)


def test_modules_inside_records_and_lambdas_are_found():
    torch = pytest.importorskip("torch")
    generator = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    model = Model(generator, lambda x: x[:, 0], dim=2, like=torch.empty(0))
    nested = (lambda inner: lambda ids: inner(ids))(lambda ids: generator(model.latent(ids)))
    for make in (model.propose, partial(model.propose, seed=1), nested):
        with pytest.warns(UserWarning, match="in train mode"):
            sample(make, model.log_ratio, 10, budget=2)
    with pytest.raises(InputError, match=r"give Model\(..., like=torch.empty\(0\)\)"):
        Model(generator, lambda x: x[:, 0], dim=2)


def test_a_limit_of_proposals_is_not_overrun():
    with pytest.raises(ExhaustedError, match="in 768 proposals") as caught:
        collect(stream(propose, log_ratio, RULE, batch_size=256), 2500, max_proposed=1000)
    assert caught.value.partial.executed == 768


def test_samples_print_in_one_line():
    kept = sample(propose, log_ratio, 10, budget=2)
    assert repr(kept) == "Samples(10 of 20 proposals, x of shape (10,), next_id=20)"


def test_a_sampler_of_n_can_be_wrapped():
    rng = np.random.default_rng(0)
    kept = sample(proposal(lambda n: rng.normal(size=n)), log_ratio, 100, budget=2)
    assert len(kept) == 100


def test_a_critic_on_another_device_is_one_line():
    torch = pytest.importorskip("torch")
    critic = torch.nn.Linear(1, 1, device="meta")
    like = torch.empty(0)
    with pytest.raises(InputError, match="log_ratio mixes devices, move the model or its input") as caught:
        sample(lambda ids: normals(ids, 1, seed=0, like=like), lambda x: critic(x)[:, 0], 10, budget=2)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="cannot be read, on device meta"):
        sample(
            lambda ids: normals(ids, 1, seed=0, like=like), lambda x: torch.empty(len(x), device="meta"), 10, budget=2
        )


BAR = """
import time, numpy as np
from obrs import Budgeted, normals
from obrs.sampling.rejection import sample
def slow(ids):
    time.sleep(0.15)
    return normals(ids, 1, seed=1)[:, 0]
sample(slow, lambda x: x - 0.5, 5000, budget=2)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs a terminal of its own")
def test_a_terminal_shows_a_bar_and_anything_else_shows_nothing():
    pytest.importorskip("rich")
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", BAR], stderr=theirs, stdout=subprocess.DEVNULL)
    process.wait(timeout=60)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode(errors="replace")
    os.close(ours)
    assert "sampling" in shown
    assert "kept" in shown
    quiet = subprocess.run([sys.executable, "-c", BAR], capture_output=True, text=True, check=True)
    assert quiet.stderr == quiet.stdout == ""
