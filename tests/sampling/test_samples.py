"""Samples: averages under the target with intervals that cover, runs that are joined, and what comes back from disk."""

from dataclasses import replace
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest

import obrs
from obrs import Budgeted, Grouped, Samples, accept, collect, normals, sample, stream
from obrs.sampling.samples import join

WIDTH = 2.0  # model N(0, WIDTH²), target N(1, 1): M is 2.36, so K = 1.5 is below it and K = 4 above
BELOW, ABOVE = 1.5, 4.0
TRUE = np.array([1.0, 2.0])  # of x and x²


def propose(ids):
    return WIDTH * normals(ids, 1, seed=1)[..., 0]


def log_ratio(x):
    return -((x - 1) ** 2) / 2 + (x / WIDTH) ** 2 / 2 + np.log(WIDTH)


def moments(x):
    return np.stack([x, x**2], axis=-1)


RULES = {k: Budgeted.fit(log_ratio(propose(np.arange(1_000_000, 1_200_000))), k) for k in (BELOW, ABOVE)}


def record(x, log_weight, scores, proposed, fixed):
    ids = np.arange(len(x))
    return Samples(x, ids, scores, log_weight, proposed=proposed, executed=proposed, fixed=fixed)


@cache
def many(kind, budget, repeats, size):
    """Many runs of `size` proposals, or of so many kept samples: what `stream` and `collect` keep, drawn in one go."""
    wide = size if kind == "proposals" else int(size / RULES[budget].rate * 1.6) + 60
    ids = np.arange(repeats * wide).reshape(repeats, wide)
    x = propose(ids)
    scores = log_ratio(x)
    kept = accept(RULES[budget](scores), ids, seed=0)
    weight = RULES[budget].log_weight(scores)
    rows = []
    for i in range(repeats):
        at = np.flatnonzero(kept[i])[: None if kind == "proposals" else size]
        assert kind == "proposals" or len(at) == size
        rows.append(record(x[i, at], weight[i, at], scores[i, at], wide, "proposals" if kind == "proposals" else ""))
    return rows


@cache
def pools(pool, n, repeats):
    """What is chosen from many pools, all in one call: a pool is a group."""
    x = propose(np.arange(repeats * pool))
    scores, group = log_ratio(x), np.repeat(np.arange(repeats), pool)
    index = obrs.select(scores, n, groups=group).reshape(repeats, n)
    weight = scores - np.log(obrs.selection.inclusion_probability(scores, n, groups=group))
    return [record(x[at], weight[at], scores[at], pool, "pool") for at in index]


def assert_covers(runs, true=TRUE, g=moments, confidence=0.9, skew=0.012, **options):
    """The interval has the truth as often as it says, up to chance and the skewness of a few hundred samples."""
    means = [run.mean(g, confidence, **options) for run in runs]
    value, low, high, error = (
        np.array([getattr(e, name) for e in means]) for name in ("value", "low", "high", "standard_error")
    )
    share = np.mean((low <= true) & (true <= high), axis=0)
    chance = 4 * np.sqrt(confidence * (1 - confidence) / len(value))
    np.testing.assert_array_less(np.abs(share - confidence), chance + skew)
    np.testing.assert_allclose(np.sqrt(np.mean(error**2, axis=0)), np.std(value, axis=0), rtol=0.1)
    return value


# --- averages ---------------------------------------------------------------------------------------------------------


def test_the_runs_of_these_tests_are_what_collect_and_stream_keep():
    for kind, kept in (
        ("kept", collect(stream(propose, log_ratio, RULES[BELOW], batch_size=64), 100)),
        ("proposals", join(list(stream(propose, log_ratio, RULES[BELOW], batch_size=64, stop=100)))),
    ):
        run = many(kind, BELOW, 1, 100)[0]
        np.testing.assert_array_equal(kept.x, run.x)
        np.testing.assert_array_equal(kept.log_weight, run.log_weight)
        assert kept.fixed == run.fixed


@pytest.mark.parametrize("budget", [BELOW, ABOVE])
@pytest.mark.parametrize("kind", ["kept", "proposals"])
def test_intervals_cover_the_mean_of_the_target(kind, budget):
    assert_covers(many(kind, budget, 400, 200))


@pytest.mark.parametrize("budget", [BELOW, ABOVE])
def test_the_mean_over_a_fixed_number_of_proposals_is_unbiased_and_covered(budget):
    assert_covers(many("proposals", budget, 400, 200), unbiased=True)
    value = np.array([run.mean(moments, unbiased=True) for run in many("proposals", budget, 1500, 12) if len(run)])
    none = 1 - len(value) / 1500  # where nothing was kept, the estimate is 0
    mean = (1 - none) * value.mean(axis=0)
    assert np.all(np.abs(mean - TRUE) < 4 * np.sqrt(value.var(axis=0) + value.mean(axis=0) ** 2) / np.sqrt(1500))


@pytest.mark.parametrize("n", [200, 75])  # of 300: K below and above M
@pytest.mark.parametrize("unbiased", [False, True])
def test_intervals_of_pools_cover(n, unbiased):
    value = assert_covers(pools(300, n, 400), unbiased=unbiased)
    if unbiased:
        assert np.all(np.abs(value.mean(axis=0) - TRUE) < 4 * value.std(axis=0) / np.sqrt(400))


def test_the_error_of_a_pool_counts_that_n_is_fixed():
    """At K above M all weights are 1/c, so the sum of the weights has the error of the pool alone."""
    kept = sample(propose, log_ratio, 50, pool=300)
    ones = kept.mean(lambda x: np.ones(len(x)), 0.95, unbiased=True)
    alone = np.exp(log_ratio(propose(np.arange(300)))).std() / np.sqrt(300)
    assert ones.standard_error == pytest.approx(alone, rel=0.2)
    independent = replace(kept, fixed="proposals").mean(lambda x: np.ones(len(x)), 0.95, unbiased=True)
    assert independent.standard_error > 2 * ones.standard_error


def test_formulas_by_hand():
    x, w = np.array([1.0, 2.0, 6.0]), np.array([1.0, 2.0, 3.0])
    kept = record(x, np.log(w), np.log(w) - 1.0, 5, "proposals")
    assert kept.mean(lambda x: x, unbiased=True) == pytest.approx(23 / 5)
    whole = kept.mean(lambda x: x, 0.95, unbiased=True)
    assert whole.standard_error == pytest.approx(np.std([1, 4, 18, 0, 0], ddof=1) / np.sqrt(5))
    ratio = kept.mean(lambda x: x, confidence=0.5)
    error = np.sqrt(np.sum((w * (x - 23 / 6)) ** 2) / 36 * 3 / 2)
    assert (ratio.value, ratio.standard_error) == (pytest.approx(23 / 6), pytest.approx(error))
    assert ratio.high - ratio.value == pytest.approx(NormalDist().inv_cdf(0.75) * error)
    for shift in (-2000.0, 2000.0):  # the scale of the ratio cancels
        far = replace(kept, log_weight=kept.log_weight + shift)
        assert far.ess == pytest.approx(36 / 14)
        assert far.mean(lambda x: x, confidence=0.5).low == pytest.approx(ratio.low)


def run(n=None, start=0, stop=None):
    batches = stream(propose, log_ratio, RULES[BELOW], batch_size=100, start=start, stop=stop)
    return join(list(batches)) if n is None else collect(batches, n)


# --- runs that are joined ---------------------------------------------------------------------------------------------


def test_what_was_fixed_is_kept_only_if_it_was_so_everywhere():
    collected, fixed = run(100), run(start=10_000, stop=10_400)
    pool = sample(propose, log_ratio, 30, pool=90, start=20_000)
    assert (collected + fixed).fixed == ""
    assert (pool + sample(propose, log_ratio, 30, pool=90, start=30_000)).fixed == "pool"
    both = fixed + pool
    assert both.fixed == "proposals"
    each = [part.mean(moments, unbiased=True) for part in (fixed, pool)]
    np.testing.assert_allclose(both.mean(moments, unbiased=True), (400 * each[0] + 90 * each[1]) / 490)
    assert (replace(fixed, rule=Budgeted(-1.0)) + replace(pool, rule=Budgeted(-1.0))).rule == Budgeted(-1.0)
    assert both.rule is None


# --- on disk ----------------------------------------------------------------------------------------------------------

KEPT = sample(propose, log_ratio, 20, budget=2)


def again(kept, folder):
    kept.save(folder / "kept.npz")
    return Samples.load(folder / "kept.npz")


@pytest.mark.parametrize(
    "x",
    [
        KEPT.x,
        (KEPT.x, KEPT.x > 0),
        {"x": KEPT.x, 7: np.array(["cat", "dög"] * 10)},
        tuple(np.full(20, i) for i in range(12)),
    ],
)
def test_what_was_saved_comes_back(tmp_path, x):
    kept = replace(KEPT, x=x)
    loaded = again(kept, tmp_path)
    assert type(loaded.x) is type(x)
    assert not isinstance(x, dict) or list(loaded.x) == list(x)
    for one, other in zip(*(b.values() if isinstance(b, dict) else b for b in (loaded.x, x)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [p.name for p in tmp_path.iterdir()] == ["kept.npz"]
    for name in ("proposed", "executed", "calls", "executed_calls", "seconds", "next_id", "fixed", "rule", "notes"):
        assert getattr(loaded, name) == getattr(kept, name)
    for name in ("ids", "log_ratio", "log_weight"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(kept, name))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_tensors_come_back_as_tensors(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    x = {"x": (torch.arange(40.0).reshape(20, 2) * 0.37).to(getattr(torch, dtype)), "host": np.arange(20)}
    loaded = again(replace(KEPT, x=x), tmp_path).x
    assert loaded["x"].dtype == (torch.float32 if dtype == "bfloat16" else x["x"].dtype)
    assert torch.equal(loaded["x"].to(x["x"].dtype), x["x"])
    assert isinstance(loaded["host"], np.ndarray)


def test_the_rule_comes_back_unless_it_is_your_own(tmp_path):
    fitted = sample(propose, log_ratio, 3000, budget=2)
    assert again(fitted, tmp_path).rule == fitted.rule
    grouped = sample(lambda ids: (propose(ids), ids % 2), lambda b: b[0], 3000, budget=2, groups=lambda b: b[1])
    assert isinstance(again(grouped, tmp_path).rule, Grouped)
    assert again(replace(KEPT, rule=lambda log_ratio, batch=None: log_ratio), tmp_path).rule is None
