"""The best choice of 1 among K: against linear programmes and SLSQP, and as it is realised by fresh proposals."""

from itertools import combinations
from math import erf, log, sqrt

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, linprog, minimize

import obrs
from obrs.choice import Choice, _best_of, _pool, choose
from obrs.divergences import DIVERGENCES
from obrs.rules import from_json, to_json


def best_law(p, q, budget):
    """Return the law of the best choice, by pooling."""
    order = np.argsort(-p / q)
    best = _best_of(q[order], budget)
    starts = _pool(best, p[order])
    level = np.add.reduceat(best, starts) / np.add.reduceat(p[order], starts)
    law = np.empty_like(p)
    law[order] = p[order] * np.repeat(level, np.diff(np.append(starts, len(p))))
    return law


def spaces(times):
    for seed in range(times):
        rng = np.random.default_rng(seed)
        points, budget = int(rng.integers(3, 7)), int(rng.integers(2, 6))
        p, q = (rng.dirichlet(np.full(points, 0.6)) + 1e-3 for _ in range(2))
        sets = [list(s) for size in range(1, points) for s in combinations(range(points), size)]
        p, q = p / p.sum(), q / q.sum()
        yield p, q, budget, np.array([[i in s for i in range(points)] for s in sets], float)


def test_no_law_that_choosing_can_have_covers_more_of_the_target():
    """Σ min(λ p, o) is maximal for every λ, against a linear programme over all constraints."""
    for p, q, budget, sets in spaces(20):
        cap, law, n = 1 - (1 - sets @ q) ** budget, best_law(p, q, budget), len(p)
        assert law.sum() == pytest.approx(1, abs=1e-12)
        assert np.all(sets @ law <= cap + 1e-12)
        for slope in np.exp(np.linspace(-2, 2, 50)):  # over o and m <= min(slope p, o)
            above = np.block([[sets, np.zeros_like(sets)], [-np.eye(n), np.eye(n)]])
            bounds = [(0, 1)] * n + [(0, slope * x) for x in p]
            best = linprog(
                np.append(np.zeros(n), -np.ones(n)),
                above,
                np.append(cap, np.zeros(n)),
                np.append(np.ones(n), np.zeros(n))[None],
                [1],
                bounds,
                method="highs",
            )
            assert np.minimum(slope * p, law).sum() == pytest.approx(-best.fun, abs=1e-9)


def test_slsqp_finds_no_law_with_less_divergence():
    for p, q, budget, sets in spaces(12):
        cap, law = 1 - (1 - sets @ q) ** budget, best_law(p, q, budget)
        within = LinearConstraint(np.vstack([sets, np.ones(len(p))]), 0, np.append(cap, 1))
        rules = [within, {"type": "eq", "fun": lambda o: o.sum() - 1}]
        for name in ("kl", "rkl", "js", "hellinger", "chi2"):

            def loss(o, name=name, p=p):
                o = np.maximum(o, 1e-12)
                return float(np.sum(o * DIVERGENCES[name].f(np.log(p / o))))

            best = minimize(loss, 0.5 * (q + law), bounds=[(1e-9, 1)] * len(p), constraints=rules, method="SLSQP")
            if best.success and np.all(sets @ best.x <= cap + 1e-8):
                assert loss(law) <= best.fun + 1e-6
            exact = obrs.Profile(np.log(p / q), q).divergence(name, budget, cap=True)
            assert exact == pytest.approx(loss(law), abs=1e-9)


def gaussian(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - log(sd)


def measure_kl(log_ratio, propose, probability, cells, budget, size=200_000):
    """Return KL(p||chosen) on cells, of fresh proposals and a rule fitted on others."""
    rng = np.random.default_rng(7)
    rule = Choice.fit(log_ratio(propose(rng, 20_000)), budget)
    x = propose(rng, size * budget).reshape(size, budget)
    index = choose(log_ratio(x), rule, ids=np.arange(size), seed=3)
    kept = np.bincount(cells(x[np.arange(size), index]), minlength=len(probability)) / size
    some = probability > 1e-9
    return rule, float(np.sum(probability[some] * np.log(probability[some] / np.maximum(kept[some], 1e-9))))


PAIRS = np.random.default_rng(11).uniform([0.2, 0.5, 0.9], [1.3, 1.1, 1.4], (5, 3))  # mean and sd of p, sd of q


@pytest.mark.parametrize("budget", [2, 4, 8])
def test_fresh_proposals_leave_what_the_closed_form_says(budget):
    edges, several = np.linspace(-6, 6, 121), 0
    for mean, sd, wide in PAIRS:
        cdf = np.array([0.5 + 0.5 * erf((edge - mean) / sd / sqrt(2)) for edge in edges])
        rule, left = measure_kl(
            lambda x, m=mean, s=sd, w=wide: gaussian(x, m, s) - gaussian(x, 0, w),
            lambda rng, n, w=wide: rng.normal(0, w, n),
            np.append(np.diff(cdf), 0),
            lambda x: np.clip(np.searchsorted(edges, x) - 1, 0, 120),
            budget,
        )
        grid = np.linspace(-8, 8, 20_001) * wide
        mass = np.exp(gaussian(grid, 0, wide))
        profile = obrs.Profile(gaussian(grid, mean, sd) - gaussian(grid, 0, wide), mass / mass.sum())
        closed = profile.divergence("kl", budget, cap=True)
        assert profile.divergence("kl", budget) <= closed + 1e-9, "a mean budget can do more"
        assert left <= 1.1 * closed + 0.002
        several += len(rule.low) > 1
    assert budget == 8 or several >= 1


ATOMS, RATIO = np.array([0.1, 0.2, 0.3, 0.4]), np.array([7.0, 1.2, 0.15, 0.02])


@pytest.mark.parametrize(("budget", "blocks"), [(2, 4), (4, 3), (8, 2), (30, 1)])
def test_atoms_are_blocks_of_their_own_or_together(budget, blocks):
    rng = np.random.default_rng(0)
    p, n = ATOMS * RATIO / (ATOMS @ RATIO), 100_000
    rule = Choice.fit(np.repeat(np.log(RATIO), (1000 * ATOMS).astype(int)), budget)
    x = rng.choice(4, p=ATOMS, size=(n, budget))
    chosen = np.bincount(np.take_along_axis(x, choose(np.log(RATIO)[x], rule)[:, None], 1)[:, 0], minlength=4) / n
    law = best_law(p, ATOMS, budget)
    assert np.all(np.abs(chosen - law) <= 4 * np.sqrt(law / n) + 1e-4)
    assert len(rule.low) == blocks
    np.testing.assert_allclose(rule.log_weight(np.log(RATIO)), np.log(p / law), atol=1e-6)


def test_where_all_have_no_ratio_nothing_is_chosen_and_that_mass_is_in_the_closed_form():
    log_ratio = np.append(np.zeros(500), np.full(500, -np.inf))
    rule = Choice.fit(log_ratio, 2)
    np.testing.assert_array_equal(choose([[-np.inf, 0.0], [-np.inf, -np.inf], [99.0, 0.0]], rule)[:2], [1, -1])
    profile = obrs.Profile(log_ratio)
    assert profile.divergence("kl", 2, cap=True) == pytest.approx(-log(0.75))
    assert profile.divergence("tv", 2, cap=True) == pytest.approx(0.25)
    assert rule.log_weight([-np.inf])[0] == -np.inf


def test_an_id_chooses_the_same_in_every_batch_and_library(xp):
    x = np.random.default_rng(0).normal(size=(200, 3))
    rule = Choice.fit(x.reshape(-1), 3)
    whole = choose(x, rule, ids=np.arange(200) + 50, seed=9)
    np.testing.assert_array_equal(choose(x[70:80], rule, ids=np.arange(120, 130), seed=9), whole[70:80])
    result = choose(xp.asarray(x), rule, ids=np.arange(200) + 50, seed=9)
    assert type(result) is type(xp.asarray(x))
    np.testing.assert_array_equal(np.asarray(result), whole)
    assert np.mean(choose(x, rule, seed=1) != whole) > 0.2
    assert from_json(to_json(rule)) == rule
