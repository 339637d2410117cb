"""Weights of both signs: sums are unbiased, signs are balanced, and the answer of a real subtraction is found."""

import numpy as np
import pytest
from scipy.optimize import minimize

import obrs
from obrs import Budgeted, Profile, accept, select, unweight
from obrs.errors import InputError
from obrs.selection import DESIGNS, inclusion_probability

ALPHA = 0.3


def subtract_dipoles(x1, x2):
    """Real emission in e+e- -> q qbar g minus Catani-Seymour dipoles with y < ALPHA, in units of C_F alpha_s / 2 pi."""
    u, v = 1 - x1, 1 - x2
    real = (x1**2 + x2**2) / (u * v)
    first = (2 / (u + v) - 2 + u / x2) / v
    second = (2 / (u + v) - 2 + v / x1) / u
    return real - first * (v < ALPHA) - second * (u < ALPHA)


def make_events():
    """Weights of points of the triangle x1 + x2 > 1, and the bin of the energy of the gluon."""
    u, v = obrs.uniforms(np.arange(1500), seed=1), obrs.uniforms(np.arange(1500), seed=2)
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    weight = subtract_dipoles(1 - u, 1 - v) / 2 / len(u)  # the triangle has an area of 1/2
    return weight, np.minimum((5 * (u + v)).astype(int), 4)


WEIGHT, BINS = make_events()
LOG_RATIO, SIGN = np.log(np.abs(WEIGHT)), np.sign(WEIGHT)


def keep_of_pool(design, seed):
    kept = unweight(WEIGHT, 150, seed=seed, design=design)
    return kept.index, kept.weight


def keep_of_stream(design, seed):
    """Events of a stream carry w / a, which the rule knows."""
    rule = Budgeted.fit(LOG_RATIO, budget=4)
    kept = np.flatnonzero(accept(rule(LOG_RATIO), np.arange(len(WEIGHT)), seed=seed))
    return kept, (SIGN * np.exp(rule.log_weight(LOG_RATIO)))[kept]


@pytest.mark.parametrize(
    ("keep", "design"), [(keep_of_pool, "pivotal"), (keep_of_pool, "systematic"), (keep_of_stream, None)]
)
def test_histograms_of_kept_events_are_unbiased(keep, design):
    kept = [keep(design, seed) for seed in range(120)]
    runs = [np.bincount(BINS[index], weight, minlength=5) for index, weight in kept]
    error = np.std(runs, axis=0) / np.sqrt(len(runs))
    assert np.all(error > 0)
    assert np.all(np.abs(np.mean(runs, axis=0) - np.bincount(BINS, WEIGHT)) < 4 * error)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    ("n", "options"),
    [
        (1, {}),
        (400, {}),
        (1200, {}),
        (60, {"groups": np.arange(1500) % 5}),
        ({0: 90, 1: 0, 2: 31}, {"groups": np.arange(1500) % 3}),
        (100, {"groups": np.arange(1500) % 3, "shares": [1, 1, 2]}),
    ],
)
def test_of_each_sign_in_each_group_the_expected_number_is_kept_up_to_one(design, n, options):
    groups = options.get("groups", np.zeros(1500, int))
    pi = inclusion_probability(LOG_RATIO, n, **options)
    for seed in range(5):
        kept = select(LOG_RATIO, n, seed=seed, design=design, sign=SIGN, **options)
        np.testing.assert_array_equal(np.bincount(groups[kept]), np.bincount(groups, pi).round())
        expected = np.bincount(groups, pi * (SIGN < 0))
        assert np.all(np.abs(np.bincount(groups[kept], SIGN[kept] < 0) - expected) < 1)


@pytest.mark.parametrize("design", ["pivotal", "systematic"])
def test_signs_keep_the_probabilities(design):
    weight, repeat = np.array([3.0, -1.0, 1.0, -0.5, 0.7, 0.2, -0.9, 2.0]), 20_000
    options = {"sign": np.tile(np.sign(weight), repeat), "groups": np.repeat(np.arange(repeat), len(weight))}
    kept = select(np.tile(np.log(np.abs(weight)), repeat), 4, design=design, **options)
    often = np.bincount(kept % len(weight), minlength=len(weight)) / repeat
    pi = inclusion_probability(np.log(np.abs(weight)), 4)
    assert np.all(np.abs(often - pi) <= 4.5 * np.sqrt(pi * (1 - pi) / repeat))


@pytest.mark.parametrize("design", DESIGNS)
def test_signs_make_the_total_far_less_random(design):
    left = WEIGHT / inclusion_probability(LOG_RATIO, 300)

    def spread(**options):
        return np.std([left[select(LOG_RATIO, 300, seed=s, design=design, **options)].sum() for s in range(40)])

    largest = unweight(WEIGHT, 300).max_weight
    assert spread(sign=SIGN) <= largest < spread() / 5


def test_all_weigh_the_same_but_the_overweight():
    kept = unweight(WEIGHT, 1000)
    assert len(kept) == 1000
    np.testing.assert_allclose(kept.weight, WEIGHT[kept.index] / kept.probability, rtol=1e-12)
    sure = kept.probability == 1
    assert sure.any()
    assert np.all(np.abs(kept.weight[~sure]) == kept.max_weight)
    np.testing.assert_array_equal(kept.weight[sure], WEIGHT[kept.index][sure])
    few, all_events = unweight(WEIGHT, 50), unweight(WEIGHT, 1500)
    assert few.truncated == pytest.approx(0, abs=1e-12)
    assert few.max_weight == pytest.approx(np.abs(WEIGHT).sum() / 50)
    np.testing.assert_array_equal(all_events.weight, WEIGHT)
    assert repr(unweight([4.0, -1.0, 0.5, -0.5, 1.0, 1.0], 3)) == (
        "Unweighted(3 events of |weight| 2, 1 of them overweight, truncated=0.25)"
    )


def test_truncation_is_that_of_the_profile():
    profile = Profile(LOG_RATIO, sign=SIGN)
    n = int(1500 / profile.budget_for(truncation=0.01))
    kept = unweight(WEIGHT, n)
    assert kept.truncated == pytest.approx(profile.truncation(1500 / n), rel=1e-9)
    assert kept.truncated <= 0.01 < unweight(WEIGHT, n + 1).truncated
    assert kept.max_weight == pytest.approx(np.exp(-profile.log_c(1500 / n)), rel=1e-9)


def test_no_probabilities_give_the_total_less_variance():
    weight = np.array([4.0, -1.0, 0.5, -0.5, 1.5, 0.3])
    best = minimize(
        lambda p: np.sum(weight**2 * (1 / p - 1)),
        np.full(6, 0.5),
        bounds=[(1e-3, 1)] * 6,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 3},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(best.x, inclusion_probability(np.log(np.abs(weight)), 3), atol=1e-4)


class TestProfile:
    def test_the_effective_size_is_that_of_the_net_sum(self):
        profile, plain = Profile(LOG_RATIO, sign=SIGN), Profile(LOG_RATIO)
        assert profile.net == pytest.approx(WEIGHT.sum() / np.abs(WEIGHT).sum())
        for budget in (1.0, 2.0, 5.0):
            a = np.ones(1500) if budget == 1 else np.exp(Budgeted.fit(LOG_RATIO, budget)(LOG_RATIO))
            effective = np.sum(WEIGHT) ** 2 / np.sum(WEIGHT**2 / a) / np.sum(a)
            assert profile.ess(budget) == pytest.approx(effective)
        assert profile.ess(1e6) == pytest.approx(profile.net**2)
        for a, b in zip(plain.plan([2, 4]), profile.plan([2, 4]), strict=True):
            assert {k: v for k, v in a.items() if "ess" not in k} == {k: v for k, v in b.items() if "ess" not in k}
        assert Profile(np.zeros(3), weights=[1, 1, 0], sign=[1, -1, 1]).net == 0

    def test_the_interval_of_the_effective_size_holds(self):
        """100 pilots of 1000 events, of which 30 % are negative with weights half as large."""
        rng, held = np.random.default_rng(0), 0
        f = 0.3 * 0.5 / (0.7 + 0.3 * 0.5)
        truth = (1 - 2 * f) ** 2  # at a budget at which rejection is exact
        for _ in range(100):
            negative = rng.random(1000) < 0.3
            row = Profile(np.where(negative, np.log(0.5), 0.0), sign=np.where(negative, -1, 1)).plan([4.0])[0]
            held += row["ess_low"] <= truth <= row["ess_high"]
        assert held >= 88  # of 100 at 95 %: below 88 once in 2000


def test_priority_is_refused_as_its_probabilities_are_not_exact():
    with pytest.raises(InputError, match="pivotal"):
        obrs.unweight([4.0, 2.0, 1.0], 2, design="priority")
