"""Exactly n of a pool, every candidate with its probability, whatever the design."""

import json
import re
from itertools import combinations, pairwise, permutations
from math import comb, factorial
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obrs import selection
from obrs.draws import accept, priority_key
from obrs.errors import InputError, InputTypeError, ObrsError, RatioError, UnknownNameError
from obrs.rules import Budgeted
from obrs.selection import DESIGNS, _Pool, inclusion_probability, select

RNG = np.random.default_rng(0)
POOLS = {
    "narrow": RNG.normal(0, 0.5, 12),
    "wide": np.append(RNG.normal(0, 4, 11), -np.inf),
    "ties": np.log([1.0, 1, 1, 1, 3, 3, 3, 9]),
    "one large": np.append(np.zeros(7), 5.0),
}
CASES = [(pool, n) for pool in POOLS for n in (1, 2, 5, int(np.sum(POOLS[pool] > -np.inf)) - 1)]
# Log-ratios among which 0 < pi < 1 at every n below their number, with all kinds of values.
SPANS = {
    "normal": RNG.normal(size=60),
    "spread over thousands": RNG.normal(0, 900, 60),
    "with zeros": np.where(np.arange(60) % 3 == 0, -np.inf, RNG.normal(0, 2, 60)),
    "equal": np.full(60, -3.7),
    "two blocks": np.repeat([0.0, -50.0], 30),
    "beyond exp": RNG.normal(0, 1e4, 60) + 5e5,
    "at the border": np.repeat([1e6, -1e6, 0.0], 20),
}


@pytest.fixture(params=DESIGNS)
def design(request):
    return request.param


def copies(pool, n, design, repeat, seed=0):
    """Membership in `repeat` independent selections of n, shape (repeat, N): one group each, in one call."""
    groups = np.repeat(np.arange(repeat), len(pool))
    chosen = select(np.tile(pool, repeat), n, seed=seed, design=design, groups=groups)
    member = np.zeros(repeat * len(pool), bool)
    member[chosen] = True
    return member.reshape(repeat, -1)


def by_seed(pool, n, design, repeat):
    """Membership in the selections of seeds 0 … repeat - 1."""
    member = np.zeros((repeat, len(pool)), bool)
    for seed in range(repeat):
        member[seed, select(pool, n, seed=seed, design=design)] = True
    return member


def probability(pool, n, design):
    """Inclusion probabilities of a design: min(c r, 1), and those of the n smallest keys, by summing over all cases."""
    if design != "priority":
        return inclusion_probability(pool, n)
    ratio = np.exp(pool - pool.max())
    pi = np.zeros(len(pool))
    u = (np.arange(4000) + 0.5) / 4000
    for i in np.flatnonzero(ratio):  # is in if fewer than n of the others have a smaller key, u/r
        below = np.zeros((n, len(u)))  # probability of so many, below n
        below[0] = 1
        for r in np.delete(ratio, i):
            p = np.minimum(r * u / ratio[i], 1)
            below[1:] = below[1:] * (1 - p) + below[:-1] * p
            below[0] *= 1 - p
        pi[i] = np.mean(np.sum(below, axis=0))
    return pi


def assert_frequencies(member, pi):
    """Frequencies are within their standard errors of pi; what is rare is looked at together."""
    repeat = len(member)
    count = member.sum(axis=0)
    assert np.all(count[pi == 0] == 0)
    assert np.all(count[pi > 1 - 1e-12] == repeat)
    common = repeat * np.minimum(pi, 1 - pi) >= 5
    z = (count - repeat * pi)[common] / np.sqrt(repeat * pi * (1 - pi))[common]
    assert np.all(np.abs(z) < NormalDist().inv_cdf(1 - 1e-4 / (2 * max(1, len(z)))))
    rare = np.minimum(pi, 1 - pi)[~common].sum() * repeat
    misses = np.where(pi < 0.5, count, repeat - count)[~common].sum()
    assert abs(misses - rare) < 6 + 5 * np.sqrt(rare)


def assert_subsets(member, probability):
    """A chi-square test that sets come up with their probability, at five standard deviations."""
    sets, counts = np.unique(member, axis=0, return_counts=True)
    observed = {tuple(np.flatnonzero(s)): c for s, c in zip(sets, counts, strict=True)}
    expected = {s: p * len(member) for s, p in probability.items()}
    assert set(observed) <= set(expected)
    assert min(expected.values()) > 5
    chi2 = sum((observed.get(s, 0) - e) ** 2 / e for s, e in expected.items())
    free = len(expected) - 1
    assert abs(chi2 - free) < 5 * np.sqrt(2 * free)


class TestEveryDesign:
    @pytest.mark.parametrize(("pool", "n"), CASES)
    def test_exactly_n_are_selected_sorted_and_without_repeats(self, design, pool, n):
        for seed in range(10):
            chosen = select(POOLS[pool], n, seed=seed, design=design)
            assert chosen.dtype == np.int64
            assert np.all(np.diff(chosen) > 0)
            assert np.all(POOLS[pool][chosen] > -np.inf)
            sure = inclusion_probability(POOLS[pool], n) == 1
            assert set(np.flatnonzero(sure)) <= set(chosen.tolist()) or design == "priority"
            assert len(chosen) == n

    def test_selecting_all_with_r_above_zero_needs_no_luck(self, design):
        np.testing.assert_array_equal(select(POOLS["wide"], 11, design=design), np.arange(11))

    def test_a_pool_of_one_is_selected(self, design):
        assert select([-1234.5], 1, design=design).tolist() == [0]

    def test_the_seed_decides_and_nothing_else(self, design):
        pool = np.random.default_rng(1).normal(size=300)
        one, same, other = (select(pool, 100, seed=seed, design=design) for seed in (5, 5, 6))
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)

    def test_the_scale_of_the_ratio_does_not_matter(self, design):
        pool = np.random.default_rng(1).integers(-8, 8, 200) / 4
        np.testing.assert_array_equal(select(pool, 50, design=design), select(pool + 64, 50, design=design))

    def test_every_backend_selects_the_same(self, design, xp):
        pool = np.random.default_rng(1).normal(0, 2, 200)
        chosen = select(xp.asarray(pool), 60, seed=3, design=design)
        assert type(chosen) is type(xp.asarray(pool))
        assert chosen.dtype == xp.int64
        np.testing.assert_array_equal(np.asarray(chosen), select(pool, 60, seed=3, design=design))

    def test_frequencies_over_seeds_are_the_probabilities(self, design):
        pool = np.log([9.0, 3, 2, 2, 1, 1, 0.5, 0.2, 0.1])
        assert_frequencies(by_seed(pool, 3, design, 1500), probability(pool, 3, design))

    def test_a_seed_out_of_range_is_refused_even_where_nothing_is_left_to_chance(self, design):
        with pytest.raises(InputError, match="seed must be a whole number"):
            select([0.0], 1, seed=-1, design=design)


class TestGroups:
    @pytest.mark.parametrize(("pool", "n"), CASES)
    def test_frequencies_over_groups_are_the_probabilities(self, design, pool, n):
        member = copies(POOLS[pool], n, design, 4000)
        assert_frequencies(member, probability(POOLS[pool], n, design))
        assert np.all(member.sum(axis=1) == n)

    def test_ragged_groups_in_any_order_get_n_each(self, design):
        rng = np.random.default_rng(1)
        groups = rng.permutation(np.repeat(np.arange(50), rng.integers(7, 90, 50)))
        pool = rng.normal(0, np.where(np.arange(len(groups)) % 5 == 0, 30, 1))
        pi = inclusion_probability(pool, 7, groups=groups)
        np.testing.assert_allclose(np.bincount(groups, pi), 7, atol=1e-9)
        for g in (0, 17, 49):
            alone = inclusion_probability(pool[groups == g], 7)
            np.testing.assert_allclose(pi[groups == g], alone, rtol=1e-12)
        sizes = np.bincount(groups[select(pool, 7, design=design, groups=groups)])
        np.testing.assert_array_equal(sizes, np.full(50, 7))

    def test_labels_of_any_kind_are_numbered_in_their_order(self, design):
        pool, groups = np.random.default_rng(2).normal(size=90), np.arange(90) % 3
        expected = select(pool, 9, seed=4, design=design, groups=groups)
        for names in (np.array(["ant", "bee", "cat"]), np.array([-5, 0, 700]), np.array([0.1, 0.2, 0.3])):
            np.testing.assert_array_equal(select(pool, 9, seed=4, design=design, groups=names[groups]), expected)

    def test_each_group_may_want_another_number(self, design):
        pool, names = np.random.default_rng(3).normal(size=120), np.array(["ant", "bee", "cat"])[np.arange(120) % 3]
        pool[5] = -np.inf
        wanted = {"cat": 40 - 1, "ant": 0, "bee": 7}
        pi = inclusion_probability(pool, wanted, groups=names)
        np.testing.assert_array_equal(pi, inclusion_probability(pool, [0, 7, 39], groups=names))
        for name, n in wanted.items():
            alone = inclusion_probability(pool[names == name], n) if n else 0.0
            np.testing.assert_allclose(pi[names == name], alone, rtol=1e-12)
        chosen = [select(pool, wanted, seed=seed, design=design, groups=names) for seed in range(20)]
        if design != "priority":
            assert all(np.isin(np.flatnonzero(pi == 1), one).all() for one in chosen)
        for one in chosen:
            assert {name: np.count_nonzero(names[one] == name) for name in wanted} == wanted
        counts = np.bincount(np.concatenate(chosen), minlength=120) / 20
        near = 1e-12 if design != "priority" else 0.15
        assert np.all(np.abs(counts - pi) <= 5 * np.sqrt(pi * (1 - pi) / 20) + near)

    def test_shares_of_n_are_rounded_to_whole_numbers(self, design):
        pool, names = np.random.default_rng(3).normal(size=120), np.array(["ant", "bee", "cat"])[np.arange(120) % 3]
        shares = {"ant": 0.25, "bee": 0.625, "cat": 0.125}
        by_shares = select(pool, 50, seed=1, design=design, groups=names, shares=shares)
        by_number = select(pool, {"ant": 13, "bee": 31, "cat": 6}, seed=1, design=design, groups=names)
        np.testing.assert_array_equal(by_shares, by_number)
        assert inclusion_probability(pool, 50, groups=names, shares=shares).sum() == pytest.approx(50)

    def test_groups_of_different_numbers_do_not_share_their_randomness(self, design):
        chosen = select(np.zeros(402), [100, 101], design=design, groups=np.repeat([0, 1], [200, 202]))
        both = np.intersect1d(chosen[chosen < 200], chosen[chosen >= 200] - 200)
        assert len(both) < 75, "on shared random numbers both groups would keep the same places, about 100"

    def test_one_group_is_no_groups(self, design):
        pool = np.random.default_rng(1).normal(size=100)
        one = select(pool, 30, seed=2, design=design, groups=np.zeros(100, int))
        np.testing.assert_array_equal(one, select(pool, 30, seed=2, design=design))

    def test_neighbouring_groups_and_seeds_do_not_know_of_each_other(self, design):
        for member in (copies(np.zeros(4), 2, design, 4000), by_seed(np.zeros(4), 2, design, 700)):
            agree = np.mean(member[1:] == member[:-1], axis=0)
            assert np.all(np.abs(agree - 0.5) < 4 * 0.5 / np.sqrt(len(member)))

    def test_every_backend_selects_the_same(self, design, xp):
        pool, groups = np.random.default_rng(1).normal(0, 2, 200), np.arange(200) % 7
        chosen = select(xp.asarray(pool), 9, design=design, groups=xp.asarray(groups))
        np.testing.assert_array_equal(np.asarray(chosen), select(pool, 9, design=design, groups=groups))


def tournament(players):
    """Yield who is in, and with which probability, when these (name, pi) duel in this order."""
    if len(players) == 1:
        yield ([players[0][0]] if players[0][1] > 0.5 else []), 1.0
        return
    outcomes = [([], [], 1.0)]
    for (i, a), (j, b) in zip(players[:-1:2], players[1::2], strict=True):
        full, s = bool(a + b >= 1), a + b
        wins = (1 - b) / (2 - s) if full else a / s
        outcomes = [
            ([*inside, *[winner] * full], [*left, (loser, s - 1) if full else (winner, s)], p * chance)
            for inside, left, p in outcomes
            for winner, loser, chance in ((i, j, wins), (j, i, 1 - wins))
        ]
    waits = players[-1:] if len(players) % 2 else []
    for inside, left, p in outcomes:
        for more, q in tournament(left + waits):
            yield inside + more, p * q


class TestDependence:
    """What the designs differ in: the probabilities of sets."""

    def test_equal_ratios_give_every_set_the_same_chance(self, design):
        # In random order no set is special; correlated random numbers would show here first.
        assert_subsets(copies(np.zeros(6), 3, design, 20000), {s: 1 / comb(6, 3) for s in combinations(range(6), 3)})

    def test_pivotal_draws_the_sets_of_its_tournaments(self):
        pi = np.array([0.2, 0.3, 0.5, 0.4, 0.6])
        probability = dict.fromkeys(combinations(range(5), 2), 0.0)
        for order in permutations(range(5)):
            for members, p in tournament([(i, pi[i]) for i in order]):
                probability[tuple(sorted(members))] += p / factorial(5)
        assert_subsets(copies(np.log(pi), 2, "pivotal", 20000), probability)

    def test_pivotal_candidates_repel_each_other(self):
        member = copies(POOLS["narrow"], 5, "pivotal", 20000).astype(float)
        joint, pi = member.T @ member / len(member), inclusion_probability(POOLS["narrow"], 5)
        excess = (joint - np.outer(pi, pi))[np.triu_indices(12, 1)]
        assert np.max(excess) < 4 * 0.5 / np.sqrt(len(member))

    @pytest.mark.parametrize("design", ["pivotal", "systematic"])
    def test_estimates_vary_less_than_with_independent_decisions(self, design):
        pool = POOLS["narrow"]
        pi = inclusion_probability(pool, 5)
        y = np.exp(pool) * np.random.default_rng(1).uniform(0.7, 1.3, len(pool))
        independent = np.sqrt(np.sum(y**2 * (1 - pi) / pi))
        assert np.std(copies(pool, 5, design, 4000) @ (y / pi)) < 0.5 * independent


class TestInclusionProbability:
    @pytest.mark.parametrize("span", SPANS)
    def test_sums_to_n_for_every_n(self, span):
        pool = SPANS[span]
        before = np.zeros(len(pool))
        for n in range(1, np.count_nonzero(pool > -np.inf) + 1):
            pi = inclusion_probability(pool, n)
            assert abs(pi.sum() - n) < 1e-9
            assert np.all((pi >= before - 1e-12) & (pi <= 1))
            assert np.all(np.diff(pi[np.argsort(pool)]) >= 0)
            before = pi
        np.testing.assert_array_equal(pi, pool > -np.inf)

    def test_is_proportional_to_the_ratio_below_the_smallest_budget_for_exact_rejection(self):
        pool = SPANS["normal"]
        ratio = np.exp(pool)
        assert ratio.sum() / ratio.max() > 3
        for n in (1, 2, 3):
            np.testing.assert_allclose(inclusion_probability(pool, n), n * ratio / ratio.sum(), rtol=1e-12)

    @pytest.mark.parametrize("n", [20, 40, 59])
    def test_is_the_acceptance_of_the_rule_at_the_same_budget(self, n):
        rule = Budgeted.fit(SPANS["normal"], 60 / n)
        np.testing.assert_allclose(inclusion_probability(SPANS["normal"], n), np.exp(rule(SPANS["normal"])), rtol=1e-12)

    def test_all_are_certain_where_all_are_wanted_whatever_the_rounding(self):
        ulp = 2.0**-52
        pool = np.array([1.0, 1 + ulp, 1 + ulp, 1 + ulp, 1 + 7e7 * ulp, 14.0, 66.0, 66.0])
        assert np.all(inclusion_probability(pool, 8) == 1)
        assert np.all(inclusion_probability(np.tile(pool, 5), 8, groups=np.repeat(np.arange(5), 8)) == 1)

    def test_large_pools_sum_to_n_too(self):
        pool = np.random.default_rng(1).normal(0, 2, 200_000).astype(np.float32)
        for n in (1, 1000, 123_456, 199_999):
            assert abs(inclusion_probability(pool.astype(np.float64), n).sum() - n) < 1e-9 * n
            for design in ("pivotal", "systematic"):
                assert len(select(pool, n, design=design)) == n

    def test_comes_back_as_the_log_ratio_came(self, xp):
        for name in ("float32", "float64"):
            pool = xp.asarray(SPANS["normal"], dtype=getattr(xp, name))
            pi = inclusion_probability(pool, 10)
            assert (type(pi), pi.dtype, pi.shape) == (type(pool), pool.dtype, pool.shape)
            assert float(xp.sum(pi)) == pytest.approx(10, rel=1e-6)
        grouped = inclusion_probability(pool, 2, groups=np.arange(60) % 4)
        assert float(xp.sum(grouped)) == pytest.approx(8)


class TestPriority:
    POOL = np.random.default_rng(20).normal(size=400)
    IDS = np.random.default_rng(21).permutation(10_000)[:400]

    def test_takes_the_n_smallest_keys(self):
        key = priority_key(self.POOL, self.IDS, seed=3)
        chosen = select(self.POOL, 70, seed=3, design="priority", ids=self.IDS)
        np.testing.assert_array_equal(chosen, np.sort(np.argsort(key)[:70]))

    def test_the_choice_of_fewer_is_part_of_the_choice_of_more(self):
        chosen = [set(select(self.POOL, n, design="priority").tolist()) for n in range(1, 400, 40)]
        assert all(few < many for few, many in pairwise(chosen))

    def test_neither_order_nor_company_decides_on_a_row(self):
        ids = self.IDS[select(self.POOL, 100, design="priority", ids=self.IDS)]
        order = np.random.default_rng(0).permutation(400)
        again = self.IDS[order][select(self.POOL[order], 100, design="priority", ids=self.IDS[order])]
        assert set(ids) == set(again)
        halves = [slice(0, 200), slice(200, 400)]  # the best of each half hold the best of all
        best = [self.IDS[half][select(self.POOL[half], 100, design="priority", ids=self.IDS[half])] for half in halves]
        assert set(ids) <= set(np.concatenate(best))

    def test_is_the_rule_of_acceptance_but_for_the_last_rows(self):
        pool, ids = np.random.default_rng(22).normal(size=100_000), np.arange(100_000)
        chosen = select(pool, 25_000, design="priority", seed=4)
        accepted = np.flatnonzero(accept(Budgeted.fit(pool, 4)(pool), ids, seed=4))
        more, fewer = sorted((set(chosen.tolist()), set(accepted.tolist())), key=len, reverse=True)
        assert fewer <= more
        assert len(more) - len(fewer) < 5 * np.sqrt(25_000)

    @pytest.mark.parametrize("whole", [True, False])
    def test_units_fall_short_of_the_target_by_less_than_one_row(self, whole):
        cost = np.random.default_rng(23).uniform(0, 900, 400)
        cost = cost.round() if whole else cost
        for n in (1, 1000, 50_000, 150_000):
            pi = inclusion_probability(self.POOL, n, cost=cost)
            assert float(np.sum(cost * pi)) == pytest.approx(n, rel=1e-12)
            spent = [cost[select(self.POOL, n, seed=s, design="priority", cost=cost)].sum() for s in range(20)]
            assert all(n - 900 < each <= n * (1 + 1e-9) for each in spent)

    def test_units_of_groups_shares_and_signs(self):
        cost, groups = np.random.default_rng(24).integers(1, 90, 400), np.array(["a", "b"])[np.arange(400) % 2]
        sign = np.where(np.arange(400) % 5 == 0, -1, 1)
        for wanted, each in (
            ({"n": {"a": 900, "b": 4000}}, [900, 4000]),
            ({"n": 4000, "shares": [1, 3]}, [1000, 3000]),
        ):
            for more in ({}, {"sign": sign}):
                chosen = select(self.POOL, design="priority", cost=cost, groups=groups, **wanted, **more)
                for label, most in zip("ab", each, strict=True):
                    assert most - 90 < cost[chosen][groups[chosen] == label].sum() <= most
            pi = inclusion_probability(self.POOL, **wanted, groups=groups, cost=cost)
            due = float(np.sum((pi * cost)[(sign < 0)]))
            assert due - 2 * 90 < cost[chosen][sign[chosen] < 0].sum() <= due  # the last choice was with signs

    @pytest.mark.parametrize(
        ("match", "options"),
        [
            ("ids is for design='priority', got design='pivotal'", {"design": "pivotal", "ids": np.arange(400)}),
            ("cost is for design='priority'", {"design": "systematic", "cost": np.ones(400)}),
            ("cost must be finite and at least 0, 1 of 400 are not", {"cost": np.append(np.ones(399), -1)}),
            ("cost must have the shape of log_ratio (400,), got (2,)", {"cost": [1, 2]}),
            ("cannot select 10 units: the candidates with r > 0 cost 4", {"cost": np.full(400, 0.01)}),
            ("log_ratio and ids must have one shape", {"ids": np.arange(3)}),
        ],
    )
    def test_refuses_in_one_line(self, match, options):
        with pytest.raises(InputError, match=re.escape(match)):
            select(self.POOL, 10, **{"design": "priority", **options})


@pytest.mark.parametrize("design", ["pivotal", "systematic"])
@pytest.mark.parametrize("drift", [-2e-3, 2e-3])
def test_a_rounded_sum_does_not_change_the_size(design, drift):
    need, group = np.array([3, 0, 5, 1]), np.repeat(np.arange(4), [10, 2, 6, 2])
    pi = np.array([0.3, 1e-9, 5 / 6, 0.5])[group] * (1 + drift)
    for seed in range(200):
        chosen = DESIGNS[design](_Pool(pi, np.arange(20), group, need), seed)
        np.testing.assert_array_equal(np.bincount(group[np.unique(chosen)], minlength=4), need)
        assert len(chosen) == need.sum()


@pytest.mark.parametrize("design", ["pivotal", "systematic"])
def test_no_two_steps_share_their_random_numbers(design, monkeypatch):
    used = []
    for name in ("words", "uniform_columns"):
        draw = getattr(selection, name)
        monkeypatch.setattr(selection, name, lambda i, c, draw=draw, **key: (used.append(c), draw(i, c, **key))[1])
    select(np.linspace(-1, 1, 100), 30, design=design)
    assert len(used) == len(set(used)) > 0


def test_tensors_with_a_gradient_are_selected_from():
    torch = pytest.importorskip("torch")
    pool = torch.zeros(5, requires_grad=True)
    assert not inclusion_probability(pool, 2).requires_grad
    assert len(select(pool.to(torch.bfloat16), 2)) == 2


def test_jax_without_double_precision_selects_the_same(single_precision_jax):
    pool = np.random.default_rng(1).normal(size=100).astype(np.float32)
    chosen = select(single_precision_jax.asarray(pool), 30)
    assert str(chosen.dtype) == "int32"
    np.testing.assert_array_equal(chosen, select(pool, 30))


def test_inside_jit_selection_is_refused():
    jax = pytest.importorskip("jax")
    with pytest.raises(InputTypeError, match=r"inside jax\.jit"):
        jax.jit(lambda x: select(x, 1))(jax.numpy.zeros(3))


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (InputError, "n must be at least 1 candidate, got 0", lambda: select([0.0], 0)),
        (InputError, "n must be at least 1 candidate, got -3", lambda: inclusion_probability([0.0], -3)),
        (InputTypeError, "n must be an integer, got 2.0", lambda: select([0.0, 1.0], 2.0)),
        (InputTypeError, "n must be an integer, got True", lambda: select([0.0, 1.0], True)),
        (InputTypeError, "n must be an integer, got '2'", lambda: select([0.0, 1.0], "2")),
        (InputTypeError, "n must be an integer, got NoneType", lambda: select([0.0, 1.0], None)),
        (InputTypeError, "n must be an integer, got ndarray", lambda: select([0.0, 1.0], np.array([1, 1]))),
        (InputError, "cannot select 4 of the 3 candidates: only 3 have r > 0", lambda: select([0.0] * 3, 4)),
        (InputError, "cannot select 2 of the 3 candidates: only 1", lambda: select([0.0, -np.inf, -np.inf], 2)),
        (InputError, "cannot select 1 of the 1 candidates: only 0", lambda: select([-np.inf], 1)),
        (InputError, "cannot select 2 of the 1 candidates of group 1", lambda: select([0.0] * 3, 2, groups=[0, 1, 0])),
        (RatioError, "1 NaN among 2 values", lambda: select([np.nan, 0.0], 1)),
        (RatioError, "1 +inf among 2 values", lambda: select([np.inf, 0.0], 1)),
        (InputError, "must have one axis, that of the candidates, got shape (1, 2)", lambda: select([[0.0, 1.0]], 1)),
        (InputError, "must have one axis, that of the candidates, got shape ()", lambda: select(0.0, 1)),
        (InputError, "at least one value, got shape (0,)", lambda: select([], 1)),
        (InputTypeError, "log_ratio must be an array of numbers", lambda: select([[1], [1, 2]], 1)),
        (
            UnknownNameError,
            "unknown design 'topk'; there are: pivotal, systematic, priority",
            lambda: select([0.0], 1, design="topk"),
        ),
        (UnknownNameError, "unknown design ['pivotal']", lambda: select([0.0], 1, design=["pivotal"])),
        (InputError, "seed must be a whole number", lambda: select([0.0], 1, seed=0.5)),
        (
            InputError,
            "groups must have the shape of log_ratio (2,), got (3,)",
            lambda: select([0.0] * 2, 1, groups=[0] * 3),
        ),
        (InputTypeError, "groups must be labels of one kind", lambda: select([0.0] * 2, 1, groups=["a", 1])),
        (InputError, "n by label needs to know the label of each candidate", lambda: select([0.0] * 2, {"a": 1})),
        (InputError, "shares needs to know the label of each", lambda: select([0.0] * 2, 1, shares={"a": 1})),
        (InputError, "n must name every group, 'b' is missing", lambda: select([0.0] * 2, {"a": 1}, groups=["a", "b"])),
        (InputError, "n names group 'z'", lambda: select([0.0] * 2, {"a": 1, "z": 1}, groups=["a", "a"])),
        (InputError, "n must not be 0 for all groups", lambda: select([0.0] * 2, {"a": 0, "b": 0}, groups=["a", "b"])),
        (
            InputError,
            "whole number of at least 0, got -1",
            lambda: select([0.0] * 2, {"a": 2, "b": -1}, groups=["a", "b"]),
        ),
        (InputError, "whole number of at least 0, got 1.5", lambda: select([0.0] * 2, [1.5, 1], groups=["a", "b"])),
        (InputError, "an array of 2 numbers, one per group", lambda: select([0.0] * 2, [1], groups=["a", "b"])),
        (InputError, "n is one number for all groups", lambda: select([0.0], {"a": 1}, groups=["a"], shares=[1])),
        (InputError, "n must be at least 1", lambda: select([0.0], 0, groups=["a"], shares=[1])),
        (
            InputError,
            "cannot select 3 of the 2 candidates of group 'b': only 2 have r > 0; with these shares n can be 4",
            lambda: select([0.0] * 10, 6, groups=list("aaaaaaaabb"), shares=[1, 1]),
        ),
        (
            InputError,
            "cannot select 1 of the 1 candidates of group 'b': only 0 have r > 0; leave it out, or give it share 0",
            lambda: select([0.0, -np.inf], 2, groups=["a", "b"], shares=[1, 1]),
        ),
    ],
)
def test_what_cannot_be_selected_is_refused_in_one_line(error, message, call):
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


EXTREME = [0.0, -0.0, 1e-320, 37.0, 700.0, -750.0, 5000.0, 1e16, 1e16 + 2, 1e308, -1e308, -np.inf, np.inf, np.nan]


@settings(deadline=None, max_examples=400)
@given(
    st.lists(st.sampled_from(EXTREME[:-2]) | st.floats(-40, 40), min_size=1, max_size=12)
    | st.lists(st.sampled_from(EXTREME) | st.floats(), max_size=4),
    st.integers(-1, 13),
    st.sampled_from(list(DESIGNS)),
    st.integers(0, 2**64 - 1),
    st.sampled_from([None, 2, 3]),
    st.sampled_from([np.float64, np.float32]),
)
def test_any_pool_gives_a_valid_selection_or_a_clear_error(pool, n, design, seed, count, dtype):
    with np.errstate(all="ignore"):
        pool = np.asarray(pool, dtype)
    groups = None if count is None else np.arange(len(pool)) % count
    try:
        chosen = select(pool, n, seed=seed, design=design, groups=groups)
    except ObrsError as error:
        assert str(error)
        assert "\n" not in str(error)
        return
    pi = inclusion_probability(pool.astype(np.float64), n, groups=groups)
    assert np.all((pi >= 0) & (pi <= 1))
    assert np.all(np.diff(chosen) > 0)
    if design != "priority":
        assert np.all(pi[chosen] > 0)
        assert np.isin(np.flatnonzero(pi == 1), chosen).all()
    labels = np.zeros(len(pool), int) if groups is None else groups
    np.testing.assert_allclose(np.bincount(labels, pi), n, atol=1e-9)
    assert np.all(np.bincount(labels[chosen]) == n)


def test_the_selection_of_a_seed_never_changes():
    chosen = {design: select(np.linspace(-2, 2, 12), 4, seed=7, design=design).tolist() for design in DESIGNS}
    assert chosen == {
        "pivotal": [7, 9, 10, 11],
        "systematic": [4, 9, 10, 11],
        "priority": [2, 8, 10, 11],
    }


def test_the_page_shows_the_numbers_on_file():
    root = Path(__file__).parents[1]
    page = (root / "docs" / "evidence" / "selection.md").read_text()
    for row in json.loads((root / "benchmarks" / "results" / "selection.json").read_text())["rows"]:
        keys = ("error", "error_by_noise", "kl", "tv", "repeats", "rmse", "rmse_weighted")
        cells = [f"{row[k]:.3f}" if row[k] is not None else "∞" if k == "kl" else "–" for k in keys]
        assert " | ".join([f"| {row['spread']:g}", str(row["n"]), row["method"], *cells]) + " |" in page
