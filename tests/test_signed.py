"""Weights of both signs: sums are unbiased, signs are balanced, and the answer of a real subtraction is found."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad
from scipy.optimize import minimize

import obrs
from obrs import Budgeted, Profile, accept, select, signed, unweight
from obrs.errors import InputError, InputTypeError, ObrsError
from obrs.selection import inclusion_probability

BALANCED = ("pivotal", "systematic", "priority")
ALPHA = 0.3


def subtracted(x1, x2):
    """Real emission in e+e- -> q qbar g minus Catani-Seymour dipoles with y < ALPHA, in units of C_F alpha_s / 2 pi."""
    u, v = 1 - x1, 1 - x2
    real = (x1**2 + x2**2) / (u * v)
    first = (2 / (u + v) - 2 + u / x2) / v
    second = (2 / (u + v) - 2 + v / x1) / u
    return real - first * (v < ALPHA) - second * (u < ALPHA)


EXACT = -1 / 2 + 2 * np.log(ALPHA) ** 2 + 3 * (1 - ALPHA + np.log(ALPHA))


@pytest.fixture(scope="module")
def events():
    """Points of the triangle x1 + x2 > 1, their weights, and the bin of the energy of the gluon."""
    u, v = obrs.uniforms(np.arange(1500), seed=1), obrs.uniforms(np.arange(1500), seed=2)
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    weight = subtracted(1 - u, 1 - v) / 2 / len(u)  # the triangle has an area of 1/2
    return weight, np.minimum((5 * (u + v)).astype(int), 4)


def test_the_total_of_the_subtraction_is_known(events):
    def cross_section(u_low, u_high, v_low, v_high):
        value, _ = dblquad(
            lambda v, u: subtracted(1 - u, 1 - v),
            *(u_low, u_high),
            lambda u: min(v_low, 1 - u),
            lambda u: min(v_high, 1 - u),
            epsabs=1e-7,
        )
        return value

    edges = [(1e-12, ALPHA), (ALPHA, 1)]  # the integrand jumps there
    total = sum(cross_section(*a, *b) for a in edges for b in edges)
    assert total == pytest.approx(EXACT, abs=1e-4)
    weight, _ = events
    assert (weight < 0).any()
    assert abs(weight.sum() - EXACT) < 4 * len(weight) ** 0.5 * weight.std()


class TestHistograms:
    @pytest.mark.parametrize("design", BALANCED)
    def test_of_kept_events_are_unbiased(self, events, design):
        weight, bins = events
        truth = np.bincount(bins, weight)
        runs = []
        for seed in range(120):
            kept = unweight(weight, 150, seed=seed, design=design)
            runs.append(np.bincount(bins[kept.index], kept.weight, minlength=5))
        error = np.std(runs, axis=0) / np.sqrt(len(runs))
        assert np.all(error > 0)
        assert np.all(np.abs(np.mean(runs, axis=0) - truth) < 4 * error)

    def test_of_a_stream_are_unbiased(self, events):
        weight, bins = events
        log_ratio, _ = signed.split(weight)
        rule = Budgeted.fit(log_ratio, budget=4)
        left = signed.residual_weight(weight, rule)
        runs = []
        for seed in range(120):
            kept = accept(rule(log_ratio), np.arange(len(weight)), seed=seed)
            runs.append(np.bincount(bins[kept], left[kept], minlength=5))
        error = np.std(runs, axis=0) / np.sqrt(len(runs))
        assert np.all(np.abs(np.mean(runs, axis=0) - np.bincount(bins, weight)) < 4 * error)

    def test_of_truncated_weights_are_biased_by_what_is_truncated(self, events):
        weight, _ = events
        kept = unweight(np.abs(weight), 600)
        clipped = len(kept) * kept.max_weight
        assert kept.truncated > 0.05
        assert clipped == pytest.approx((1 - kept.truncated) * np.abs(weight).sum(), rel=1e-9)


class TestSelect:
    @pytest.mark.parametrize("design", BALANCED)
    @pytest.mark.parametrize("n", [1, 7, 400, 1200])
    def test_keeps_of_each_sign_what_is_expected_up_to_one(self, events, design, n):
        log_ratio, sign = signed.split(events[0])
        expected = inclusion_probability(log_ratio, n)[sign < 0].sum()
        for seed in range(5):
            kept = select(log_ratio, n, seed=seed, design=design, sign=sign)
            assert len(np.unique(kept)) == n
            assert abs(np.sum(sign[kept] < 0) - expected) < 1

    @pytest.mark.parametrize("design", BALANCED)
    def test_does_so_in_every_group(self, events, design):
        log_ratio, sign = signed.split(events[0])
        groups = np.arange(len(sign)) % 5
        expected = np.bincount(groups, inclusion_probability(log_ratio, 60, groups=groups) * (sign < 0))
        kept = select(log_ratio, 60, seed=3, design=design, sign=sign, groups=groups)
        assert np.all(np.bincount(groups[kept]) == 60)
        assert np.all(np.abs(np.bincount(groups[kept], sign[kept] < 0) - expected) < 1)

    @pytest.mark.parametrize("design", BALANCED)
    @pytest.mark.parametrize(
        ("n", "shares", "sizes"), [({"a": 90, "b": 0, "c": 31}, None, [90, 0, 31]), (100, [1, 1, 2], [25, 25, 50])]
    )
    def test_does_so_with_numbers_and_shares_of_groups(self, events, design, n, shares, sizes):
        log_ratio, sign = signed.split(events[0])
        groups = np.array(["a", "b", "c"])[np.arange(len(sign)) % 3]
        pi = inclusion_probability(log_ratio, n, groups=groups, shares=shares)
        kept = select(log_ratio, n, seed=3, design=design, sign=sign, groups=groups, shares=shares)
        for label, size in zip("abc", sizes, strict=True):
            assert np.sum(groups[kept] == label) == size
            negative = (groups == label) & (sign < 0)
            assert abs(np.sum(negative[kept]) - pi[negative].sum()) < 1

    @pytest.mark.parametrize("design", BALANCED[:2])
    def test_keeps_the_probabilities(self, design):
        weight = np.array([3.0, -1.0, 1.0, -0.5, 0.7, 0.2, -0.9, 2.0])
        log_ratio, sign = signed.split(weight)
        repeat = 20_000
        groups = np.repeat(np.arange(repeat), len(weight))
        kept = select(np.tile(log_ratio, repeat), 4, design=design, sign=np.tile(sign, repeat), groups=groups)
        often = np.bincount(kept % len(weight), minlength=len(weight)) / repeat
        pi = inclusion_probability(log_ratio, 4)
        assert np.all(np.abs(often - pi) <= 4.5 * np.sqrt(pi * (1 - pi) / repeat))
        assert np.any((pi > 0) & (pi < 1))

    @pytest.mark.parametrize("design", BALANCED)
    def test_signs_make_the_total_far_less_random(self, events, design):
        weight, _ = events
        log_ratio, sign = signed.split(weight)
        pi = inclusion_probability(log_ratio, 300)
        left = weight / pi

        def spread(**options):
            return np.std([left[select(log_ratio, 300, seed=s, design=design, **options)].sum() for s in range(40)])

        c = 1 / unweight(weight, 300).max_weight
        assert spread(sign=sign) <= 1 / c
        assert spread() > 5 / c

    def test_one_sign_is_no_sign_in_number_and_probability(self):
        log_ratio = np.linspace(-2, 2, 50)
        for sign in (np.ones(50), -np.ones(50)):
            assert len(select(log_ratio, 9, sign=sign)) == 9

    def test_every_backend_selects_the_same(self, events):
        torch = pytest.importorskip("torch")
        log_ratio, sign = signed.split(events[0])
        chosen = select(torch.asarray(log_ratio), 50, sign=torch.asarray(sign))
        np.testing.assert_array_equal(chosen.numpy(), select(log_ratio, 50, sign=sign.astype(np.int8)))

    def test_a_selection_never_changes(self):
        log_ratio, sign = np.linspace(-2, 2, 12), np.where(np.arange(12) % 3, 1, -1)
        chosen = {design: select(log_ratio, 4, seed=7, design=design, sign=sign).tolist() for design in BALANCED}
        assert chosen == {"pivotal": [5, 6, 8, 11], "systematic": [8, 9, 10, 11], "priority": [2, 8, 9, 11]}


class TestUnweight:
    def test_all_weigh_the_same_but_the_overweight(self, events):
        weight, _ = events
        kept = unweight(weight, 1000)
        assert len(kept) == 1000
        np.testing.assert_array_equal(np.sign(kept.weight), np.sign(weight[kept.index]))
        np.testing.assert_allclose(kept.weight, weight[kept.index] / kept.probability, rtol=1e-12)
        sure = kept.probability == 1
        assert sure.any()
        assert np.all(np.abs(kept.weight[~sure]) == kept.max_weight)
        assert np.all(kept.overweight[sure] >= 1)
        np.testing.assert_array_equal(kept.weight[sure], weight[kept.index][sure])

    def test_few_events_have_no_overweight(self, events):
        kept = unweight(events[0], 50)
        assert kept.truncated == 0
        assert np.all(kept.overweight == 1)
        assert kept.max_weight == pytest.approx(np.abs(events[0]).sum() / 50)

    def test_all_events_stay_as_they_are(self, events):
        kept = unweight(events[0], 1500)
        np.testing.assert_array_equal(kept.weight, events[0])
        assert kept.max_weight == np.abs(events[0]).min()

    def test_truncation_is_that_of_the_profile(self, events):
        log_ratio, sign = signed.split(events[0])
        profile = Profile(log_ratio, sign=sign)
        n = int(len(sign) / profile.budget_for(truncated=0.01))
        kept = unweight(events[0], n)
        assert kept.truncated == pytest.approx(profile.truncated(len(sign) / n), rel=1e-9)
        assert kept.truncated <= 0.01 < unweight(events[0], n + 1).truncated
        assert kept.max_weight == pytest.approx(np.exp(-profile.log_c(len(sign) / n)), rel=1e-9)

    def test_no_probabilities_give_the_total_less_variance(self):
        weight = np.array([4.0, -1.0, 0.5, -0.5, 1.5, 0.3])
        n = 3
        pi = inclusion_probability(signed.split(weight)[0], n)
        found = minimize(
            lambda p: np.sum(weight**2 * (1 / p - 1)),
            np.full(6, 0.5),
            bounds=[(1e-3, 1)] * 6,
            constraints={"type": "eq", "fun": lambda p: p.sum() - n},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(found.x, pi, atol=1e-4)

    def test_arrays_stay_in_their_library(self):
        torch = pytest.importorskip("torch")
        weight = torch.tensor([3.0, -1.0, 0.0, 1.0, -2.0], dtype=torch.float32)
        kept = unweight(weight, 2)
        assert (kept.index.dtype, kept.weight.dtype) == (torch.int64, torch.float32)
        assert kept.overweight.tolist() == [1, 1]
        assert signed.split(weight)[1].dtype == torch.float32

    @settings(deadline=None, max_examples=100)
    @given(
        st.lists(st.sampled_from([0.0, -0.0, 5e-324, -1e-300, 1.0, -1.0, 1e308, -1e308]) | st.floats(), max_size=9),
        st.integers(0, 9),
        st.sampled_from(BALANCED),
    )
    def test_any_events_are_unweighted_or_refused_in_one_line(self, weight, n, design):
        try:
            kept = unweight(weight, n, design=design)
        except ObrsError as error:
            assert "\n" not in str(error)
            return
        weight = np.asarray(weight)
        assert len(kept) == n
        assert np.all(np.diff(kept.index) > 0)
        np.testing.assert_array_equal(np.sign(kept.weight), np.sign(weight[kept.index]))
        assert np.all(np.abs(kept.weight) >= np.abs(weight[kept.index]))
        assert 0 <= kept.truncated <= 1
        assert kept.max_weight > 0


class TestProfile:
    def test_the_effective_size_is_that_of_the_net_sum(self, events):
        weight, _ = events
        log_ratio, sign = signed.split(weight)
        profile = Profile(log_ratio, sign=sign)
        assert profile.net == pytest.approx(weight.sum() / np.abs(weight).sum())
        for budget in (1.0, 2.0, 5.0):
            a = np.ones(1500) if budget == 1 else np.exp(Budgeted.fit(log_ratio, budget)(log_ratio))
            effective = np.sum(weight) ** 2 / np.sum(weight**2 / a) / np.sum(a)
            assert profile.ess(budget) == pytest.approx(effective)
        assert profile.ess(1e6) == pytest.approx(profile.net**2)

    def test_nothing_else_depends_on_signs(self, events):
        log_ratio, sign = signed.split(events[0])
        plain, with_signs = Profile(log_ratio), Profile(log_ratio, sign=sign)
        rows = plain.plan([2, 4]), with_signs.plan([2, 4])
        for a, b in zip(*rows, strict=True):
            assert b["ess"] == pytest.approx(a["ess"] * with_signs.net**2)
            assert {k: v for k, v in a.items() if "ess" not in k} == {k: v for k, v in b.items() if "ess" not in k}

    def test_masses_weigh_the_signs(self):
        assert Profile(np.zeros(3), weights=[1, 1, 0], sign=[1, -1, 1]).net == 0
        assert Profile([0.0, 0.0, -np.inf], sign=[-1, -1, 0]).net == -1

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


LOG = np.zeros(3)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (InputError, "sign must be +1 or -1, 1 of 3 are not; use np.sign(w", lambda: select(LOG, 1, sign=[1, 2, 1])),
        (InputError, "sign must be +1 or -1, 1 of 3 are not", lambda: select(LOG, 1, sign=[1, 0, 1])),
        (InputError, "sign must be +1 or -1, 1 of 3 are not", lambda: Profile(LOG, sign=[1, np.nan, 1])),
        (InputError, "the shape of log_ratio (3,), got (2,)", lambda: select(LOG, 1, sign=[1, 1])),
        (InputError, "the shape of log_ratio (3,), got ()", lambda: Profile(LOG, sign=1)),
        (InputTypeError, "sign must be real numbers, got dtype", lambda: select(LOG, 1, sign=["+", "-", "+"])),
        (InputTypeError, "sign must be real numbers, got dtype bool", lambda: Profile(LOG, sign=LOG == 0)),
        (InputError, "weight must be finite, 2 of 3 are not", lambda: unweight([1.0, np.inf, np.nan], 1)),
        (InputError, "one axis, that of the events, and at least one, got shape (1, 2)", lambda: unweight([[1, 2]], 1)),
        (InputError, "at least one, got shape (0,)", lambda: unweight([], 1)),
        (InputTypeError, "weight must be real numbers", lambda: signed.split(["a"])),
        (InputError, "cannot select 2 of the 3 candidates: only 1 have r > 0", lambda: unweight([0.0, -1.0, 0.0], 2)),
        (InputTypeError, "n must be an integer, got 0.5", lambda: unweight([1.0, -1.0], 0.5)),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(error, message, call):
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_what_was_unweighted_prints_in_a_line():
    kept = unweight(np.array([4.0, -1.0, 0.5, -0.5, 1.0, 1.0]), 3)
    assert repr(kept) == str(kept) == "Unweighted(3 events of |weight| 2, 1 of them overweight, truncated=0.25)"
