"""One pool at every budget: the weights of each rule, with groups and shares, and the errors of what they weigh."""

import numpy as np
import pytest

import obrs
from obrs.metrics import kernel_curve, weightings
from obrs.metrics.weightings import POOL_RULES


def scores(n=600, seed=0):
    return np.random.default_rng(seed).standard_normal(n)


def test_lines_are_the_rules_at_their_budgets():
    log_ratio = scores()
    pool = weightings(log_ratio, iter([4, 2, 1]), POOL_RULES.keys())
    assert pool.keys == (("model", 1.0), *((rule, k) for rule in ("obrs", "drs", "topk") for k in (2.0, 4.0)))
    assert pool.weights[2] == pytest.approx(np.exp(obrs.Budgeted.fit(log_ratio, 4)(log_ratio)))
    assert pool.weights[3] == pytest.approx(np.exp(obrs.rules.DRS.fit(log_ratio, 2)(log_ratio)))
    assert np.array_equal(np.flatnonzero(pool.weights[6]), np.sort(np.argsort(-log_ratio)[:150]))
    assert pool.rate == pytest.approx([1, 0.5, 0.25, 0.5, 0.25, 0.5, 0.25], rel=1e-6)
    profile = obrs.Profile(log_ratio)
    assert pool.ess[:3] == pytest.approx([profile.ess(1), profile.ess(2), profile.ess(4)])
    assert pool.ess[4] < pool.ess[2]  # DRS at the same budget
    assert pool.ess[6] == 0  # what top-k leaves out cannot be had back by weights


@pytest.mark.parametrize("shares", [None, {0: 3, 1: 1}])
@pytest.mark.parametrize("rule", POOL_RULES)
def test_one_constant_per_group(rule, shares):
    groups, log_ratio = np.arange(600) % 2, scores() * (1 + np.arange(600) % 2)
    pool = weightings(log_ratio, [3], [rule], groups, shares)
    a = pool.weights[1]
    assert a.mean() == pytest.approx(1 / 3, rel=1e-6)
    assert a[groups == 0].sum() / a.sum() == pytest.approx(0.5 if shares is None else 0.75, rel=1e-6)
    stay = np.arange(600) % 5 > 0  # solved for again where rows are left out
    again = pool.restrict(stay)[1]
    assert again[stay] == pytest.approx(weightings(log_ratio[stay], [3], [rule], groups[stay], shares).weights[1])
    assert not again[~stay].any()


def test_one_group_is_no_group_and_a_share_of_0_keeps_nothing():
    log_ratio, none = scores(), np.zeros(600, dtype=int)
    for rule in POOL_RULES:
        alone, one = weightings(log_ratio, [2], [rule]), weightings(log_ratio, [2], [rule], none)
        assert np.allclose(one.weights, alone.weights)
        assert np.allclose(one.slopes, alone.slopes)
        gone = weightings(log_ratio, [4], [rule], np.arange(600) % 2, [1, 0]).weights[1]
        assert not gone[1::2].any()
        assert gone.mean() == pytest.approx(0.25, rel=1e-6)


@pytest.mark.parametrize("shares", [None, {0: 3, 1: 1}])
def test_errors_know_that_constants_are_solved_for(shares):
    """As simulation says: the same real samples, a new pool each time, and a ratio that prefers the wrong side."""
    runs, values, errors, naive = 200, [], [], []
    real = 0.5 * np.random.default_rng(999).standard_normal((200, 2))
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        groups, x = rng.integers(0, 2, 300), rng.standard_normal((300, 2))
        fake = 0.5 * (x + [0.5, 0] + 0.3 * groups[:, None])
        pool = weightings(0.1 * x[:, 0] + 3 * (x[:, 0] > 0.3), [2], list(POOL_RULES), groups, shares)
        curves = [kernel_curve(real=real, fake=fake, weights=weights) for weights in (pool, pool.weights)]
        values.append(curves[0].value)
        for result, curve in zip((errors, naive), curves, strict=True):
            result.append(np.linalg.norm(curve.parts[:, 200:], axis=1))
    spread = np.std(values, axis=0, ddof=1)
    assert np.mean(errors, axis=0) == pytest.approx(spread, rel=0.04 + 3 / np.sqrt(2 * (runs - 1)))
    assert np.mean(naive, axis=0)[1] < (0.75 if shares is None else 0.9) * spread[1]
