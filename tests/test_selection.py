"""Exactly n of a pool, every candidate with its probability, whatever the design."""

from itertools import combinations, pairwise, permutations
from math import comb, factorial
from statistics import NormalDist

import numpy as np
import pytest

from obrs.draws import accept, priority_key
from obrs.rules import Budgeted
from obrs.selection import DESIGNS, inclusion_probability, lattice, select

RNG = np.random.default_rng(0)
POOLS = {
    "narrow": RNG.normal(0, 0.5, 12),
    "wide": np.append(RNG.normal(0, 4, 11), -np.inf),
    "ties": np.log([1.0, 1, 1, 1, 3, 3, 3, 9]),
    "one large": np.append(np.zeros(7), 5.0),
}
CASES = [(pool, n) for pool in POOLS for n in (1, 2, 5, int(np.sum(POOLS[pool] > -np.inf)) - 1)]
SPANS = {
    "normal": RNG.normal(size=60),
    "spread over thousands": RNG.normal(0, 900, 60),
    "with zeros": np.where(np.arange(60) % 3 == 0, -np.inf, RNG.normal(0, 2, 60)),
    "two blocks": np.repeat([0.0, -50.0], 30),
    "beyond exp": RNG.normal(0, 1e4, 60) + 5e5,
}


@pytest.fixture(params=DESIGNS)
def design(request):
    return request.param


def copies(pool, n, design, repeat, seed=0):
    """Membership in `repeat` independent selections of n, shape (repeat, N): one group each, in one call."""
    groups = np.repeat(np.arange(repeat), len(pool))
    member = np.zeros(repeat * len(pool), bool)
    member[select(np.tile(pool, repeat), n, seed=seed, design=design, groups=groups)] = True
    return member.reshape(repeat, -1)


def membership(pool, n, design, repeat):
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
    repeat, count = len(member), member.sum(axis=0)
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
    def test_frequencies_over_groups_are_the_probabilities(self, design, pool, n):
        member = copies(POOLS[pool], n, design, 4000)
        assert_frequencies(member, probability(POOLS[pool], n, design))
        assert np.all(member.sum(axis=1) == n)

    def test_frequencies_over_seeds_are_the_probabilities(self, design):
        pool = np.log([9.0, 3, 2, 2, 1, 1, 0.5, 0.2, 0.1])
        assert_frequencies(membership(pool, 3, design, 1500), probability(pool, 3, design))

    def test_every_backend_selects_the_same(self, design, xp):
        pool, groups = np.random.default_rng(1).normal(0, 2, 200), np.arange(200) % 7
        for options in ({}, {"groups": groups}, {"ids": np.arange(200)[::-1].copy()}):
            chosen = select(xp.asarray(pool), 9, seed=3, design=design, **options)
            assert type(chosen) is type(xp.asarray(pool))
            assert chosen.dtype == xp.int64
            np.testing.assert_array_equal(np.asarray(chosen), select(pool, 9, seed=3, design=design, **options))

    @pytest.mark.parametrize("options", [{}, {"groups": 3}, {"groups": 3, "sign": 2}])
    def test_with_ids_the_order_of_the_rows_does_not_matter(self, design, options):
        rng = np.random.default_rng(4)
        pool, ids = rng.normal(0, 2, 500), rng.permutation(10**6)[:500] - 5 * 10**5
        options = {name: np.arange(500) % k * (2 if name == "sign" else 1) for name, k in options.items()}
        if "sign" in options:
            options["sign"] = options["sign"] - 1
        kept = [ids[select(pool, 90, seed=seed, design=design, ids=ids, **options)] for seed in (1, 2)]
        order = rng.permutation(500)
        moved = {name: values[order] for name, values in options.items()}
        again = ids[order][select(pool[order], 90, seed=1, design=design, ids=ids[order], **moved)]
        assert set(kept[0]) == set(again) != set(kept[1])
        np.testing.assert_array_equal(
            select(pool, 90, design=design, ids=np.arange(500), **options), select(pool, 90, design=design, **options)
        )


class TestGroups:
    def test_ragged_groups_in_any_order_get_n_each(self, design):
        rng = np.random.default_rng(1)
        groups = rng.permutation(np.repeat(np.arange(50), rng.integers(7, 90, 50)))
        pool = rng.normal(0, np.where(np.arange(len(groups)) % 5 == 0, 30, 1))
        pi = inclusion_probability(pool, 7, groups=groups)
        for g in (0, 17, 49):
            alone = inclusion_probability(pool[groups == g], 7)
            np.testing.assert_allclose(pi[groups == g], alone, rtol=1e-12)
        sizes = np.bincount(groups[select(pool, 7, design=design, groups=groups)])
        np.testing.assert_array_equal(sizes, np.full(50, 7))

    def test_shares_of_n_are_rounded_to_whole_numbers(self, design):
        pool, names = np.random.default_rng(3).normal(size=120), np.array(["ant", "bee", "cat"])[np.arange(120) % 3]
        shares = {"ant": 0.25, "bee": 0.625, "cat": 0.125}
        by_shares = select(pool, 50, seed=1, design=design, groups=names, shares=shares)
        by_number = select(pool, {"ant": 13, "bee": 31, "cat": 6}, seed=1, design=design, groups=names)
        np.testing.assert_array_equal(by_shares, by_number)
        np.testing.assert_array_equal(by_number, select(pool, [13, 31, 6], seed=1, design=design, groups=names))

    def test_neighbouring_groups_and_seeds_do_not_know_of_each_other(self, design):
        for member in (copies(np.zeros(4), 2, design, 4000), membership(np.zeros(4), 2, design, 700)):
            agree = np.mean(member[1:] == member[:-1], axis=0)
            assert np.all(np.abs(agree - 0.5) < 4 * 0.5 / np.sqrt(len(member)))


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

    def test_systematic_draws_the_sets_of_its_lattices(self):
        """Over all orders, and over all starts between which the set does not change."""
        pi = np.array([0.2, 0.3, 0.5, 0.4, 0.6])
        probability = dict.fromkeys(combinations(range(5), 2), 0.0)
        for order in permutations(range(5)):
            ends = np.cumsum(pi[list(order)])
            steps = np.unique(np.append(np.round(ends % 1, 12) % 1, [0, 1]))
            for low, high in pairwise(steps):
                members = [order[np.searchsorted(ends, (low + high) / 2 + k)] for k in range(2)]
                probability[tuple(sorted(members))] += (high - low) / factorial(5)
        possible = {s: p for s, p in probability.items() if p > 1e-9}
        assert_subsets(copies(np.log(pi), 2, "systematic", 20000), possible)


@pytest.mark.parametrize("drift", [-2e-3, 2e-3])
def test_a_lattice_takes_what_is_needed_whatever_the_sums_are(drift):
    need, sizes = np.array([3, 0, 5, 1]), np.array([10, 2, 6, 2])
    group = np.repeat(np.arange(4), sizes)
    pi = np.array([0.3, 1e-9, 5 / 6, 0.5])[group] * (1 + drift)
    for start in np.linspace(1e-6, 1, 101):
        places = lattice(pi, sizes, need, np.full(4, start))
        np.testing.assert_array_equal(np.bincount(group[places], minlength=4), need)
        assert len(np.unique(places)) == need.sum()


class TestInclusionProbability:
    @pytest.mark.parametrize("span", SPANS)
    def test_sums_to_n_for_every_n(self, span):
        pool = SPANS[span]
        before = np.zeros(len(pool))
        for n in range(1, np.count_nonzero(pool > -np.inf) + 1):
            pi = inclusion_probability(pool, n)
            assert abs(pi.sum() - n) < 1e-9
            assert np.all((pi >= before - 2e-9) & (pi <= 1))
            assert np.all(np.diff(pi[np.argsort(pool)]) >= 0)
            before = pi
        np.testing.assert_array_equal(pi, pool > -np.inf)

    def test_is_proportional_to_the_ratio_below_the_smallest_budget_for_exact_rejection(self):
        pool, ratio = SPANS["normal"], np.exp(SPANS["normal"])
        assert ratio.sum() / ratio.max() > 3
        for n in (1, 2, 3):
            np.testing.assert_allclose(inclusion_probability(pool, n), n * ratio / ratio.sum(), rtol=1e-12)

    @pytest.mark.parametrize("n", [20, 40, 59])
    def test_is_the_acceptance_of_the_rule_at_the_same_budget(self, n):
        rule = Budgeted.fit(SPANS["normal"], 60 / n)
        np.testing.assert_allclose(inclusion_probability(SPANS["normal"], n), np.exp(rule(SPANS["normal"])), rtol=1e-12)


class TestPriority:
    POOL = np.random.default_rng(20).normal(size=400)
    IDS = np.random.default_rng(21).permutation(10_000)[:400]

    def test_takes_the_n_smallest_keys(self):
        key = priority_key(self.POOL, self.IDS, seed=3)
        for n in (1, 70, 399):
            chosen = select(self.POOL, n, seed=3, design="priority", ids=self.IDS)
            np.testing.assert_array_equal(chosen, np.sort(np.argsort(key)[:n]))

    def test_is_the_rule_of_acceptance_but_for_the_last_rows(self):
        pool, ids = np.random.default_rng(22).normal(size=100_000), np.arange(100_000)
        chosen = select(pool, 25_000, design="priority", seed=4)
        accepted = np.flatnonzero(accept(Budgeted.fit(pool, 4)(pool), ids, seed=4))
        more, fewer = sorted((set(chosen.tolist()), set(accepted.tolist())), key=len, reverse=True)
        assert fewer <= more
        assert len(more) - len(fewer) < 5 * np.sqrt(25_000)

    def test_units_fall_short_of_the_target_by_less_than_one_row(self):
        cost = np.random.default_rng(23).uniform(0, 900, 400)
        for n in (1, 1000, 50_000, 150_000):
            pi = inclusion_probability(self.POOL, n, cost=cost)
            assert float(np.sum(cost * pi)) == pytest.approx(n, rel=1e-12)
            spent = [cost[select(self.POOL, n, seed=s, design="priority", cost=cost)].sum() for s in range(20)]
            assert all(n - 900 < each <= n * (1 + 1e-9) for each in spent)
