"""A sketch finds what all rows in memory would have given: the same c, the same rows, whatever the parts and order."""

import json
import pickle
from math import fsum, inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import obrs
from obrs import Profile, Sketch, SketchCut, select, solve_log_c
from obrs import _bins as bins_of
from obrs.draws import priority_key
from obrs.errors import BracketError, BudgetError, InputError, InputTypeError, RatioError
from obrs.sketch import MEMORY, Open, seed_for

RNG = np.random.default_rng(0)
N = 3000
NORMAL = RNG.normal(size=N) * 1.5
POOLS = {
    "normal": NORMAL,
    "float32": NORMAL.astype(np.float32),
    "sorted": np.sort(NORMAL),
    "sorted down": np.sort(NORMAL)[::-1],
    "shifted up": NORMAL + 2000,
    "shifted down": NORMAL - 2000,
    "ties": np.round(NORMAL * 2) / 2,
    "all equal": np.full(N, 0.3),
    "zeros": np.where(np.arange(N) % 3 == 0, -inf, NORMAL),
    "one row": np.array([-1234.5]),
    "two rows": np.array([0.0, -700.0]),
    "two blocks": np.repeat([0.0, -50.0], 40),
    "spread over thousands": RNG.normal(0, 900, N),
    "spread over a million": RNG.uniform(-1e6, 0, N),
    "far outliers": np.concatenate([NORMAL, -np.geomspace(100, 1e5, 50)]),
    "at an edge of bins": np.arange(200) / 1024,
    "on the grid": np.repeat(np.arange(5.0), 20),
}


def parts_of(x, ids, pieces, seed=0):
    order = np.random.default_rng(seed).permutation(len(x))
    return [(x[at], ids[at]) for at in np.array_split(order, pieces)]


def sketch_of(parts, **options):
    sketch = Sketch()
    for x, ids in parts:
        sketch = sketch.merge(Sketch().add(x, ids, **options))
    return sketch


def finished(cut, parts):
    return cut.finish(*(cut.judge(ids, x).open for x, ids in parts))


def kept_of(cut, parts):
    return np.sort(np.concatenate([ids[cut.keep(ids, x) == 1] for x, ids in parts]))


def accurate_log_c(x, budget):
    """The largest of the quotients near the root, each from a sum that is rounded once, and the floor 1/max r."""
    value = np.sort(x[x > -inf].astype(np.float64))[::-1]
    if budget == 1:
        return inf
    near = int(np.sum(value >= -float(solve_log_c(x.astype(np.float64), budget))))
    found = -value[0]
    for j in range(max(near - 3, 0), min(near + 4, len(value))):  # the j largest are saturated
        lacking, top = len(x) / budget - j, value[j]
        if lacking > 1e-15 * len(x):
            found = max(found, log(lacking / fsum(np.exp(value[j:] - top).tolist())) - top)
    return found


def bits(sketch):
    return json.loads(sketch.to_json())


@pytest.mark.parametrize("pool", POOLS)
class TestEveryPool:
    def test_c_and_the_rows_of_a_budget_are_those_of_all_rows_in_memory(self, pool):
        x = POOLS[pool]
        ids = np.arange(len(x)) * 7 + 3
        parts = parts_of(x, ids, 4)
        sketch = sketch_of(parts)
        for budget in [k for k in (1, 1.6, 4, 50, 1e5) if k >= len(x) / np.sum(x > -inf)]:
            cut = finished(sketch.solve(budget=budget), parts)
            log_c = float(solve_log_c(x.astype(np.float64), budget))
            assert cut.exact
            assert cut.log_c == pytest.approx(log_c, rel=2e-14, abs=2e-14)
            assert cut.log_c == pytest.approx(accurate_log_c(x, budget), rel=1e-15, abs=1e-15)
            np.testing.assert_array_equal(kept_of(cut, parts), ids[priority_key(x, ids) < log_c])

    def test_exactly_n_rows_are_those_of_select(self, pool):
        x = POOLS[pool]
        ids = np.arange(len(x)) * 7 + 3
        parts = parts_of(x, ids, 4)
        sketch = sketch_of(parts, seed=5)
        possible = int(np.sum(x > -inf))
        for n in sorted({1, 2, possible // 3, possible - 1, possible} & set(range(1, possible + 1))):
            cut = finished(sketch.solve(n=n), parts)
            assert cut.exact
            assert cut.exactly
            expected = select(x, n, seed=5, design="priority", ids=ids)
            np.testing.assert_array_equal(kept_of(cut, parts), ids[expected])
            pi = obrs.selection.inclusion_probability(x.astype(np.float64), n)
            free = (pi > 1e-300) & (pi < 1) & (np.abs(x) < 1e15)  # beyond, log c is no longer told from log c + 1
            with np.errstate(over="ignore"):
                np.testing.assert_allclose(np.log(pi[free]), x[free].astype(float) + cut.log_c, rtol=1e-12, atol=1e-9)

    def test_merging_is_associative_to_the_last_bit(self, pool):
        x = POOLS[pool]
        ids = np.arange(len(x)) // 2
        whole = bits(Sketch().add(x, ids))
        for tree in range(6):
            rng = np.random.default_rng(tree)
            sketches = [Sketch().add(*part) for part in parts_of(x, ids, int(rng.integers(1, 9)), tree)]
            while len(sketches) > 1:
                i, j = rng.choice(len(sketches), 2, replace=False)
                merged = sketches[i].merge(sketches[j])
                sketches = [s for k, s in enumerate(sketches) if k not in (i, j)] + [merged]
            assert bits(sketches[0]) == whole

    def test_a_sketch_survives_pickle_and_json(self, pool):
        sketch = Sketch().add(POOLS[pool], np.arange(len(POOLS[pool])), seed=2**64 - 1)
        assert bits(pickle.loads(pickle.dumps(sketch))) == bits(Sketch.from_json(sketch.to_json())) == bits(sketch)
        cut = sketch.solve(n=1)
        assert SketchCut.from_json(cut.to_json()) == pickle.loads(pickle.dumps(cut)) == cut

    def test_zooming_in_changes_nothing_but_the_number_of_open_rows(self, pool):
        x = POOLS[pool]
        ids = np.arange(len(x))
        parts = parts_of(x, ids, 3)
        sketch = sketch_of(parts)
        for wanted in ({"budget": 3}, {"n": max(int(np.sum(x > -inf)) // 4, 1)}):
            cut = sketch.solve(**wanted)
            plain, opened = finished(cut, parts), cut.crossing
            for _ in range(5):
                if not cut.crossing:
                    break
                zoomed = cut.zoom()
                for part in parts:
                    zoomed = zoomed.add(*part)
                cut = cut.narrow(zoomed)
                assert cut.crossing <= opened
                assert cut.log_c_low - 1e-14 <= plain.log_c <= cut.log_c_high + 1e-14
            exact = finished(cut, parts)
            assert exact.exact
            assert exact.log_c == pytest.approx(plain.log_c, rel=2e-15, abs=1e-15)
            np.testing.assert_array_equal(kept_of(exact, parts), kept_of(plain, parts))


def test_a_sketch_of_costs_beyond_what_floats_count_survives_json():
    sketch = Sketch().add([0.0, 1.0, 2.0], [0, 1, 2], cost=[2**32 - 1] * 3)
    while sketch.mass < 2**54:
        sketch = sketch.merge(sketch)
    sketch = sketch.merge(Sketch().add([0.0], [3], cost=[1 + sketch.mass % 2]))
    assert sketch.mass % 2  # floats have no odd numbers there
    assert bits(Sketch.from_json(sketch.to_json())) == bits(sketch)
    for wanted in ({"budget": 2}, {"n": 2**53 + 1}):
        cut = sketch.solve(**wanted)
        assert SketchCut.from_json(cut.to_json()) == cut


def test_a_tie_of_all_rows_needs_no_row_once_bins_hold_one_number_each():
    x, ids = np.full(1000, 0.3), np.arange(1000)
    cut = Sketch().add(x, ids).solve(n=100)
    assert cut.crossing == 1000
    for _ in range(4):
        cut = cut.narrow(cut.zoom().add(x, ids)) if cut.crossing else cut
    assert cut.crossing == 0
    assert cut.log_c == pytest.approx(np.log(0.1) - 0.3, rel=1e-15)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e4, 1e4, allow_subnormal=False).map(lambda x: round(x, 3)), min_size=1, max_size=80),
    st.floats(1, 100),
    st.integers(0, 2**64 - 1),
    st.integers(1, 5),
)
def test_any_pool_gives_what_memory_gives(values, budget, seed, pieces):
    x, ids = np.array(values), np.arange(len(values)) % 50
    parts = parts_of(x, ids, pieces, 1)
    sketch = sketch_of(parts, seed=seed)
    cut = finished(sketch.solve(budget=budget), parts)
    assert cut.log_c == pytest.approx(float(solve_log_c(x, budget)), rel=1e-13, abs=1e-13)
    assert bits(sketch) == bits(Sketch().add(x, ids, seed))


class TestBrackets:
    def test_all_but_a_few_rows_are_decided_by_the_sketch(self):
        x, ids = np.random.default_rng(1).normal(size=200_000), np.arange(200_000)
        sketch = Sketch().add(x, ids)
        for wanted in ({"budget": 4}, {"n": 50_000}):
            cut = sketch.solve(**wanted)
            decision, opened = cut.judge(ids, x)
            exact = cut.finish(opened)
            final = exact.keep(ids, x)
            undecided = decision == -1
            assert np.all(final[~undecided] == decision[~undecided])
            assert np.count_nonzero(undecided) < 12.5 * np.sqrt(50_000) + 100
            assert len(opened.ids) < np.count_nonzero(undecided) + 200
            assert cut.undecided == pytest.approx(np.count_nonzero(undecided), rel=0.2, abs=10)
            assert cut.held_bytes < MEMORY

    def test_the_bracket_of_n_holds_the_last_key_at_every_size(self):
        x, ids = np.random.default_rng(2).normal(size=4000) * 2, np.arange(4000)
        for seed in range(40):
            sketch = Sketch().add(x, ids, seed)
            for n in (1, 3, 40, 2000, 3990):
                cut = sketch.solve(n=n)
                assert int(np.sum(cut.finish(cut.judge(ids, x).open).keep(ids, x))) == n

    def test_ids_that_repeat_widen_the_bracket_and_a_bracket_that_missed_is_noticed(self):
        x = np.random.default_rng(3).normal(size=20_000)
        ids = np.arange(20_000) % 20
        wide, blind = Sketch().add(x, ids).solve(n=5000), Sketch().add(x).solve(n=5000)
        assert wide.never - wide.sure > 5 * (blind.never - blind.sure)
        with pytest.raises(BracketError, match="solve again with a larger margin"):
            blind.finish(blind.judge(ids, x).open)
        for cut in (wide, Sketch().add(x).solve(n=5000, margin=200)):
            kept = cut.finish(cut.judge(ids, x).open).keep(ids, x)
            np.testing.assert_array_equal(np.flatnonzero(kept), select(x, 5000, design="priority", ids=ids))

    def test_one_id_for_all_rows_still_gives_exactly_n(self):
        x, ids = np.random.default_rng(4).normal(size=500), np.zeros(500, np.int64)
        cut = Sketch().add(x, ids).solve(n=100)
        kept = cut.finish(cut.judge(ids, x).open).keep(ids, x)
        np.testing.assert_array_equal(np.flatnonzero(kept), np.sort(np.argsort(-x)[:100]))

    def test_rows_that_cannot_be_told_apart_are_left_to_the_caller(self):
        x, ids = np.array([2.0, 0.0, 0.0, 0.0, -9.0]), np.array([1, 2, 2, 2, 3])
        cut = Sketch().add(x, ids, seed=1).solve(n=3)
        exact = cut.finish(cut.judge(ids, x).open)
        decision = exact.keep(ids, x)
        assert exact.last == 2
        assert int(np.sum(decision == 1)) + exact.spare == 3
        np.testing.assert_array_equal(ids[decision == -1], [2, 2, 2])
        assert len(select(x, 3, seed=1, design="priority", ids=ids)) == 3

    def test_rows_that_the_sketch_has_not_seen_are_noticed(self):
        x, ids = np.random.default_rng(5).normal(size=2000), np.arange(2000)
        cut = Sketch().add(x, ids).solve(budget=4)
        opened = cut.judge(ids, x).open
        with pytest.raises(InputError, match="judge all rows that the sketch was filled with, and no others"):
            cut.finish(opened, opened)
        with pytest.raises(InputError, match="judge all rows"):
            cut.finish(Open(0, ids[:0], x[:0]))


class TestCosts:
    X = np.random.default_rng(6).normal(size=5000)
    COST = np.random.default_rng(7).integers(0, 4000, 5000)
    IDS = np.arange(5000)

    def sketch(self, pieces=4):
        at = np.array_split(np.random.default_rng(8).permutation(5000), pieces)
        return Sketch().merge(*(Sketch().add(self.X[i], self.IDS[i], cost=self.COST[i]) for i in at))

    def test_units_are_spent_up_to_less_than_one_row(self):
        sketch = self.sketch()
        for target in (1, 5000, 1_000_000, 5_000_000, int(self.COST.sum())):
            cut = sketch.solve(n=target)
            exact = cut.finish(cut.judge(self.IDS, self.X, cost=self.COST).open)
            kept = np.flatnonzero(exact.keep(self.IDS, self.X) == 1)
            assert target - 4000 < self.COST[kept].sum() <= target
            np.testing.assert_array_equal(kept, select(self.X, target, design="priority", cost=self.COST))
            pi = np.minimum(np.exp(self.X + exact.log_c), 1)
            assert float(np.sum(pi * self.COST)) == pytest.approx(target, rel=1e-12)

    def test_a_budget_counts_units(self):
        cut = self.sketch().solve(budget=3)
        exact = cut.finish(cut.judge(self.IDS, self.X, cost=self.COST).open)
        assert exact.log_c == pytest.approx(float(solve_log_c(self.X, 3, weights=self.COST)), rel=1e-14)

    def test_merging_is_associative_with_costs_too(self):
        assert bits(self.sketch(1)) == bits(self.sketch(3)) == bits(self.sketch(17))

    def test_costs_are_for_all_rows_or_none(self):
        with pytest.raises(InputError, match="for all rows of a sketch, or for none"):
            self.sketch().add([0.0], [1])
        with pytest.raises(InputError, match="filled with costs"):
            self.sketch().solve(n=5).judge(self.IDS, self.X)
        with pytest.raises(InputError, match="whole numbers"):
            Sketch().add([0.0], cost=[0.5])


class TestSize:
    def test_a_sketch_of_any_pool_is_about_a_megabyte(self):
        rng = np.random.default_rng(9)
        for x in (rng.normal(size=300_000) * 9, rng.uniform(-1e5, 1e5, 300_000), rng.uniform(-20, 20, 300_000)):
            sketch = Sketch().add(x, np.arange(len(x)))
            assert bins_of.MOST / 2 < len(sketch.bins.place) <= bins_of.MOST
            assert len(pickle.dumps(sketch)) < 1.5e6

    def test_a_few_far_outliers_do_not_make_bins_coarser(self):
        assert Sketch().add(POOLS["far outliers"]).width == Sketch().add(NORMAL).width == 2**-10

    def test_millions_of_rows_in_a_bin_do_not_overflow_or_round(self):
        one = Sketch().add(np.full(1 << 16, 0.999))
        for _ in range(30):
            one = one.merge(one)
        assert one.rows == 1 << 46
        assert one.bins.rows.tolist() == [1 << 46]
        assert one.profile().log_mean_ratio == pytest.approx(0.999, rel=1e-15)


class TestPlan:
    @pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
    def test_a_plan_is_off_by_no_more_than_it_says(self, scale):
        x = np.append(np.random.default_rng(10).normal(size=50_000) * scale, np.full(100, -inf))
        sketch, exact = Sketch().add(x), Profile(x)
        for row in sketch.plan([1.01, 2, 4, 20], n=10):
            assert row["error"] == sketch.width**2 / 4
            for key in ("kl", "rkl", "tv", "js", "chi2"):
                if row["budget"] > 1.01 or key == "kl":
                    true = exact.divergence(key, row["budget"])
                    assert row[f"{key}_low"] - 1e-12 <= true <= row[f"{key}_high"] + 1e-12
            assert row["rate"] == pytest.approx(exact.rate(row["budget"]), abs=1e-6)
            assert row["precision"] == pytest.approx(exact.precision_at(0.9, row["budget"]), abs=1e-5)
            assert row["proposals"] == pytest.approx(10 / row["rate"])
        assert "bins 0.00098 wide" in str(sketch.plan([2]))


class TestBadInput:
    @pytest.mark.parametrize(
        ("error", "match", "act"),
        [
            (InputError, "the sketch is empty; add returns a new one", lambda: Sketch().solve(n=1)),
            (InputError, "the sketch is empty", lambda: Sketch().profile()),
            (InputError, "exactly one of the two", lambda: Sketch().add([0.0]).solve()),
            (InputError, "exactly one of the two", lambda: Sketch().add([0.0]).solve(n=1, budget=2)),
            (BudgetError, "at least 1 proposal per sample, got 0.5", lambda: Sketch().add([0.0]).solve(budget=0.5)),
            (BudgetError, "smallest feasible budget is 2", lambda: Sketch().add([0.0, -inf]).solve(budget=1.5)),
            (BudgetError, "no proposal has r > 0", lambda: Sketch().add([-inf]).solve(budget=2)),
            (
                InputError,
                "2 of the 2 rows: only 1 have r > 0",
                lambda: Sketch().add([0, -inf]).solve(n=2),
            ),
            (InputError, "n must be a whole number", lambda: Sketch().add([0.0]).solve(n=0)),
            (RatioError, "1 NaN among 2", lambda: Sketch().add([0.0, np.nan])),
            (RatioError, "1 .inf among 2", lambda: Sketch().add([0.0, inf])),
            (InputError, "one axis", lambda: Sketch().add([[0.0]])),
            (InputError, "one shape, got", lambda: Sketch().add([0.0, 1.0], [1])),
            (InputTypeError, "ids must be integers", lambda: Sketch().add([0.0], [0.5])),
            (InputError, "one seed, got 1 after 0", lambda: Sketch().add([0.0]).add([0.0], seed=1)),
            (InputError, "one seed", lambda: Sketch().add([0.0]).merge(Sketch().add([0.0], seed=1))),
            (InputTypeError, "merge takes sketches, got list", lambda: Sketch().merge([1])),
            (InputError, "a saved sketch must be", lambda: Sketch.from_json('{"a": 1}')),
            (InputError, "a saved cut must be", lambda: SketchCut.from_json("[]")),
            (InputTypeError, "the name of a score, got int", lambda: seed_for(3)),
        ],
    )
    def test_is_refused_in_one_line(self, error, match, act):
        with pytest.raises(error, match=match) as caught:
            act()
        assert "\n" not in str(caught.value)

    def test_an_empty_part_adds_nothing(self):
        sketch = Sketch().add([0.0], [1])
        assert bits(sketch.add([], [])) == bits(sketch.merge(Sketch())) == bits(Sketch().merge(sketch)) == bits(sketch)

    def test_the_sketch_of_an_interval_is_not_solved(self):
        cut = Sketch().add(NORMAL).solve(budget=2)
        with pytest.raises(InputError, match="use cut"):
            cut.zoom().add(NORMAL).solve(n=1)
        with pytest.raises(InputError, match="filled with all rows"):
            cut.narrow(cut.zoom().add(NORMAL[:5]))


def test_every_backend_gives_the_same_sketch_and_the_same_rows(xp):
    ids = np.arange(300)
    x = xp.asarray(NORMAL[:300])
    sketch = Sketch().add(x, xp.asarray(ids))
    assert bits(sketch) == bits(Sketch().add(NORMAL[:300], ids)) == bits(sketch.add(x[:0], ids[:0]))
    cut = sketch.solve(n=50)
    kept = cut.finish(cut.judge(xp.asarray(ids), x).open).keep(ids, x)
    np.testing.assert_array_equal(np.flatnonzero(kept), select(NORMAL[:300], 50, design="priority"))


def test_repeated_ids_are_counted_in_a_share_of_all():
    rng = np.random.default_rng(11)
    for ids in (np.arange(400_000), np.arange(400_000) << 20, rng.integers(-(2**62), 2**62, 400_000)):
        once = Sketch().add(np.zeros(len(ids)), ids)
        assert once.repeated == 0
        assert 1000 < len(once.repeats.ids) <= 4096
        twice = once.add(np.zeros(100_000), ids[:100_000])
        assert twice.repeated == pytest.approx(0.2, abs=0.02)


def test_selecting_again_by_another_score_needs_another_seed():
    """What was kept has small uniforms where the first ratio is small: the same ones again would prefer just those."""
    first, second = np.random.default_rng(0).normal(size=(2, 200_000))
    kept = select(first, 50_000, design="priority")
    due = float(np.mean(first[kept]))  # the second score knows nothing of the first
    error = 4 / np.sqrt(12_500)
    for seed, fair in ((0, False), (seed_for("second"), True)):
        again = kept[select(second[kept], 12_500, seed=seed, design="priority", ids=kept)]
        assert (abs(float(np.mean(first[again])) - due) < error) == fair
        if not fair:
            assert (round(float(np.mean(first[again])), 2), round(due, 2)) == (0.27, 0.86)
