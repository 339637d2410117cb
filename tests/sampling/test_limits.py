"""Where runs start and stop, and that nothing is lost when they stop early: in the pilot, in a pool, anywhere."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import obrs
from obrs import Budgeted, normals
from obrs.errors import ExhaustedError, InputError, InputTypeError
from obrs.sampling.rejection import sample, sample_pool, sample_proposals
from obrs.sampling.samples import Samples, join
from obrs.sampling.streams import collect, stream


def propose(ids):
    return normals(ids, 1, seed=1)[:, 0]


def log_ratio(x):
    return x - 0.5


def failing(at, error=ZeroDivisionError):
    def fails(ids):
        if ids[-1] >= at:
            raise error("mine")
        return propose(ids)

    return fails


def slow(ids):
    time.sleep(0.02)
    return propose(ids)


def judged(stop, rule, start=0):
    return join(list(stream(propose, log_ratio, rule, batch_size=1000, start=start, stop=stop)))


def rule_of(number, budget=4, start=0):
    return Budgeted.fit(log_ratio(propose(np.arange(start, start + number))), budget)


# --- start ----------------------------------------------------------------


def test_a_run_starts_where_it_is_told():
    kept = sample(propose, log_ratio, 3000, budget=4, start=5000)
    assert kept.ids[0] >= 5000
    assert kept.rule == rule_of(4096, start=5000)
    np.testing.assert_array_equal(kept.ids, judged(kept.next_id, kept.rule, start=5000).ids)
    assert kept.proposed == kept.next_id - 5000
    pool = sample_pool(propose, log_ratio, 50, pool=200, start=5000)
    assert (pool.ids.min() >= 5000, pool.ids.max() < 5200, pool.next_id) == (True, True, 5200)


def test_a_run_goes_on_with_its_own_rule():
    whole = sample(propose, log_ratio, 3000, budget=4)
    with pytest.raises(ExhaustedError) as caught:
        sample(propose, log_ratio, 3000, budget=4, max_proposed=6000)
    head = caught.value.partial
    tail = sample(propose, log_ratio, 3000 - len(head), budget=4, calibrate=head.rule, start=head.next_id)
    np.testing.assert_array_equal((head + tail).ids, whole.ids)
    assert (head + tail).proposed == whole.proposed
    assert (head + tail).mean(lambda x: x, "unbiased") == pytest.approx(whole.mean(lambda x: x, "unbiased"))


def test_pools_do_not_share_random_numbers():
    """The same log-ratios at other ids are chosen anew."""
    first, second = (sample_pool(lambda ids: propose(ids % 300), log_ratio, 90, pool=300, start=s) for s in (0, 300))
    shared = len(set(first.ids) & set(second.ids - 300))
    assert shared < 80


# --- max_proposed, max_seconds ----------------------------------------------------------------


@pytest.mark.parametrize("most", [100, 4096, 5000, 9001])
def test_proposals_are_not_overrun_and_all_are_used(most):
    with pytest.raises(
        ExhaustedError, match=rf"kept \d+ of 9000 samples in {most} proposals; raise max_proposed"
    ) as caught:
        sample(propose, log_ratio, 9000, budget=4, max_proposed=most)
    partial = caught.value.partial
    assert (partial.executed, partial.next_id) == (most, most)
    np.testing.assert_array_equal(partial.ids, judged(most, rule_of(min(most, 4096))).ids)
    assert partial.runs[0].stopped == "early"


def test_a_limit_that_is_not_reached_changes_nothing():
    free = sample(propose, log_ratio, 2000, budget=4)
    kept = sample(propose, log_ratio, 2000, budget=4, max_proposed=free.proposed, max_seconds=1000)
    np.testing.assert_array_equal(kept.ids, free.ids)
    assert sample_pool(propose, log_ratio, 10, pool=40, max_proposed=40).proposed == 40


@pytest.mark.parametrize("call", [
    lambda **limits: sample(propose, log_ratio, 50, budget=4, **limits),
    lambda **limits: sample_pool(propose, log_ratio, 50, pool=200, **limits),
])  # fmt: skip
def test_a_pool_that_is_cut_short_keeps_its_share(call):
    with pytest.raises(ExhaustedError, match="kept 25 of 50 samples in 100 proposals; raise max_proposed") as caught:
        call(max_proposed=100)
    partial = caught.value.partial
    np.testing.assert_array_equal(partial.ids, sample_pool(propose, log_ratio, 25, pool=100).ids)
    assert partial.runs[0].stopped == "pool"
    rest = sample_pool(propose, log_ratio, 25, pool=100, start=partial.next_id)
    assert len(partial + rest) == 50


@pytest.mark.parametrize("call", [
    lambda: sample(slow, log_ratio, 9000, budget=4, max_seconds=0.1, batch_size=200),
    lambda: sample(slow, log_ratio, 50, budget=10, max_seconds=0.1, batch_size=20),
    lambda: sample_pool(slow, log_ratio, 50, pool=500, max_seconds=0.1, batch_size=20),
    lambda: sample_proposals(slow, log_ratio, 90_000, budget=4, max_seconds=0.1, batch_size=200),
    lambda: sample_proposals(slow, log_ratio, 90_000, budget=4, max_seconds=0.1, calibrate=rule_of(100), batch_size=99),
])  # fmt: skip
def test_seconds_run_out_in_the_pilot_in_a_pool_and_later(call):
    with pytest.raises(ExhaustedError, match=r"kept \d+ .*in 0.1 seconds; raise max_seconds") as caught:
        call()
    partial = caught.value.partial
    assert 0 < partial.next_id == partial.executed
    assert 0 < len(partial) < partial.executed


# --- exceptions and Ctrl-C ----------------------------------------------------------------


def test_an_exception_in_the_pilot_keeps_what_a_rule_fitted_so_far_keeps():
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        sample(failing(3000), log_ratio, 3000, budget=4)
    partial = caught.value.partial
    assert partial.next_id == 2048
    assert partial.rule == rule_of(2048)
    np.testing.assert_array_equal(partial.ids, judged(2048, partial.rule).ids)


@pytest.mark.parametrize("at", [5000, 9000])
def test_an_exception_after_the_pilot_keeps_what_was_kept(at):
    with pytest.raises(ZeroDivisionError) as caught:
        sample(failing(at), log_ratio, 9000, budget=4)
    partial = caught.value.partial
    assert partial.next_id == at // 1024 * 1024
    np.testing.assert_array_equal(partial.ids, judged(partial.next_id, rule_of(4096)).ids)


def test_an_exception_in_a_pool_keeps_its_share():
    with pytest.raises(ZeroDivisionError) as caught:
        sample_pool(failing(150), log_ratio, 40, pool=400, batch_size=50)
    assert (len(caught.value.partial), caught.value.partial.next_id) == (15, 150)
    with pytest.raises(ZeroDivisionError) as caught:  # too few for even one
        sample_pool(failing(15), log_ratio, 4, pool=400, batch_size=5)
    assert (len(caught.value.partial), caught.value.partial.next_id) == (0, 15)
    with pytest.raises(ZeroDivisionError) as caught:
        sample_pool(failing(0), log_ratio, 4, pool=400)
    assert caught.value.partial is None


def test_a_part_of_the_pilot_that_no_rule_fits_is_not_worth_an_error_of_its_own():
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        sample(failing(2000), lambda x: np.full(len(x), -np.inf), 3000, budget=4)
    assert caught.value.partial is None


def test_a_part_of_a_pool_that_cannot_be_chosen_from_is_none():
    def impossible(x):
        return np.where(np.arange(len(x)) < 200, -np.inf, 0.0)

    with pytest.raises(ExhaustedError, match="kept 0 of 50 samples in 100 proposals") as caught:
        sample_pool(propose, impossible, 50, pool=400, max_proposed=100)
    assert caught.value.partial is None


def test_an_exception_in_a_number_of_proposals_keeps_what_was_kept():
    with pytest.raises(ZeroDivisionError) as caught:
        sample_proposals(failing(7000), log_ratio, 20_000, budget=4)
    assert caught.value.partial.next_id == 6144


INTERRUPTED = """
import sys, time
from obrs import errors, normals, sample, sample_pool, sample_proposals
def slow(ids):
    if ids[0] == int(sys.argv[2]):
        print("ready", flush=True)
        time.sleep(30)
    return normals(ids, 1, seed=1)[:, 0]
ratio = lambda x: x - 0.5
try:
    {call}
except errors.Interrupted as error:
    error.partial.save(sys.argv[1])
    print(error)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize(
    ("call", "at", "says"),
    [
        ("sample(slow, ratio, 9000, budget=4)", 2048, "of 9000 samples kept; go on with start=2048"),
        ("sample_pool(slow, ratio, 1000, pool=4000)", 1024, "with 256 of 1000 samples kept; go on with start=1024"),
        ("sample_proposals(slow, ratio, 9000, budget=4)", 5120, "samples kept; go on with start=5120"),
    ],
)
def test_control_c_in_a_real_process_loses_nothing(tmp_path, call, at, says):
    path = tmp_path / "partial.npz"
    code = INTERRUPTED.replace("{call}", call)
    process = subprocess.Popen([sys.executable, "-c", code, str(path), str(at)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "ready"
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert says in output
    partial = Samples.load(path)
    assert partial.next_id == at
    if "pool" not in call:
        np.testing.assert_array_equal(partial.ids, judged(at, partial.rule).ids)


# --- bad input ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sample(propose, log_ratio, 9, budget=2, start=-1), InputError, "start must be a whole number .* -1"),
        (lambda: sample(propose, log_ratio, 9, budget=2, max_proposed=0), InputError, "max_proposed must be a whole"),
        (lambda: sample(propose, log_ratio, 9, budget=2, max_seconds=0), InputError, "max_seconds must be a finite"),
        (
            lambda: sample(propose, log_ratio, 9, budget=2, max_seconds="1 h"),
            InputError,
            "max_seconds must be a finite",
        ),
        (lambda: sample_pool(propose, log_ratio, 9, pool=20, start=0.5), InputError, "start must be a whole number"),
        (lambda: sample_pool(propose, log_ratio, 9, pool=20, max_proposed=-5), InputError, "max_proposed must be a"),
        (lambda: sample_pool(propose, log_ratio, 9, pool=20, max_seconds=-1), InputError, "max_seconds must be a"),
        (lambda: collect([], 5, max_proposed=2.5), InputError, "max_proposed must be a whole number"),
        (lambda: stream(propose, log_ratio, rule_of(50), batch_size=5, start=-2), InputError, "start must be a whole"),
    ],
)
def test_bad_input_gets_one_clear_line(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


# --- a fn(n) where propose(ids) is due ----------------------------------------------------------------

rng = np.random.default_rng(0)


def loop(n):
    return np.array([rng.normal() for _ in range(n)])


def grow(n):
    made = []
    while len(made) < n:
        made.append(rng.normal())
    return np.array(made)


NUMBERS = {
    "size=n": lambda n: rng.normal(size=n),
    "size=(n, 2)": lambda n: rng.normal(size=(n, 2))[:, 0],
    "zeros": lambda n: np.zeros(n),
    "range": loop,
    "while": grow,
    "slice": lambda n: np.arange(1e4)[:n],
    "choice": lambda n: rng.choice([0.0, 1.0], n),
    "pair": lambda n: (rng.normal(size=n), np.arange(n)),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("n", [1, 50, 3000])
def test_a_function_of_a_number_is_recognised(name, n):
    with pytest.raises(
        InputTypeError, match=r"took it for a number of samples; wrap it: obrs.proposal\(fn\)"
    ) as caught:
        sample(NUMBERS[name], lambda x: log_ratio(x[0] if isinstance(x, tuple) else x), n, budget=2)
    assert "\n" not in str(caught.value)


def test_functions_of_a_number_of_other_libraries_are_recognised():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    for function in (
        lambda n: torch.randn(n),
        lambda n: torch.randn(n, 2)[:, 0],
        lambda n: torch.randn((n, 2))[:, 0],
        lambda n: torch.distributions.Normal(0.0, 1.0).sample((n,)),
        lambda n: jax.random.normal(jax.random.key(0), (n,)),
    ):
        with pytest.raises(InputTypeError, match=r"wrap it: obrs.proposal\(fn\)"):
            sample(function, log_ratio, 20, budget=2)


def test_other_failures_of_a_proposal_are_not_taken_for_it():
    def bug(ids):
        return normals(ids, 2, seed=1) @ np.zeros(3)

    with pytest.raises(ValueError, match="matmul"):
        sample(bug, log_ratio, 20, budget=2)
    with pytest.raises(InputError, match="one item per id, 40 of them, got 39"):
        sample(lambda ids: propose(ids[:-1]), log_ratio, 20, budget=2)
    with pytest.raises(InputError, match="one item per id, 40 of them, got 7"):
        sample(lambda ids: np.zeros(7), log_ratio, 20, budget=2)
    with pytest.raises(InputTypeError, match=r"propose must be a function propose\(ids\) -> batch, got ndarray"):
        sample(np.zeros(3), log_ratio, 20, budget=2)
    assert len(obrs.sample(obrs.proposal(NUMBERS["size=n"]), log_ratio, 20, budget=2)) == 20
