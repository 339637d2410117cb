"""Averages under the target: unbiased where they say so, with intervals that cover, however the run stopped."""

from dataclasses import replace
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest

import obrs
from obrs import Budgeted, accept, normals
from obrs.errors import InputError, InputTypeError
from obrs.estimate import Estimate
from obrs.sampling.averages import Run, average
from obrs.sampling.samples import Samples, join
from obrs.sampling.streams import collect, stream

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


@cache
def many(kind, budget, repeats, size):
    """Rows of kept samples of many runs: x, log-weights, log-ratios and the `Run` of each.

    `size` is a number of proposals, or of kept samples. It is what `stream` and `collect` keep of these ids, drawn in
    one go; the test below compares them.
    """
    rows = []
    wide = size if kind == "proposals" else int(size / RULES[budget].rate * 1.6) + 60
    ids = np.arange(repeats * wide).reshape(repeats, wide)
    x = propose(ids)
    scores = log_ratio(x)
    kept = accept(RULES[budget](scores), ids, seed=0)
    weight = RULES[budget].log_weight(scores)
    for i in range(repeats):
        at = np.flatnonzero(kept[i])
        if kind == "kept":
            assert len(at) >= size
            at = at[:size]
        proposed = wide if kind == "proposals" else int(at[-1]) + 1
        rows.append((x[i, at], weight[i, at], scores[i, at], Run(kind, len(at), proposed, RULES[budget].rate)))
    return rows


def estimates(rows, estimator, g=moments):
    """Values, ends and errors of an estimator on many runs."""
    found = [average(g(x), weight, scores, [run], estimator, 0.9) for x, weight, scores, run in rows]
    return [np.array([getattr(e, name) for e in found]) for name in ("value", "low", "high", "standard_error")]


def assert_covers(value, low, high, error, true=TRUE, confidence=0.9, skew=0.012):
    """The interval has the truth as often as it says, up to chance and the skewness of a few hundred samples."""
    share = np.mean((low <= true) & (true <= high), axis=0)
    chance = 4 * np.sqrt(confidence * (1 - confidence) / len(value))
    np.testing.assert_array_less(np.abs(share - confidence), chance + skew)
    np.testing.assert_allclose(np.sqrt(np.mean(error**2, axis=0)), np.std(value, axis=0), rtol=0.1)


def test_the_rows_of_these_tests_are_what_collect_and_stream_keep():
    x, weight, _, run = many("kept", BELOW, 1, 100)[0]
    kept = collect(stream(propose, log_ratio, RULES[BELOW], batch_size=64), 100)
    np.testing.assert_array_equal(kept.x, x)
    np.testing.assert_array_equal(kept.log_weight, weight)
    assert kept.runs == (run,)
    x, _, _, run = many("proposals", BELOW, 1, 100)[0]
    kept = join(list(stream(propose, log_ratio, RULES[BELOW], batch_size=64, stop=100)))
    np.testing.assert_array_equal(kept.x, x)
    assert kept.runs == (run,)


# --- intervals ----------------------------------------------------------------


@pytest.mark.parametrize("budget", [BELOW, ABOVE])
@pytest.mark.parametrize("kind", ["kept", "proposals"])
@pytest.mark.parametrize("estimator", ["self_normalised", "unbiased"])
def test_intervals_cover_the_mean_of_the_target(kind, budget, estimator):
    assert_covers(*estimates(many(kind, budget, 400, 200), estimator))


@pytest.mark.parametrize("estimator", ["unbiased", "plain"])
@pytest.mark.parametrize("budget", [BELOW, ABOVE])
def test_intervals_of_what_is_kept_cover_its_own_mean(budget, estimator):
    """The plain average is that of the kept density q min(c r, 1)/Z; the mean weight is E_Q[r]."""
    grid = np.linspace(-12, 12, 20_001)
    density = np.exp(-((grid / WIDTH) ** 2) / 2) * np.exp(RULES[budget](log_ratio(grid)))
    plain = density @ moments(grid) / density.sum()
    rows = many("kept", budget, 400, 200)
    if estimator == "plain":
        assert_covers(*estimates(rows, "plain"), true=plain)
    else:
        assert_covers(*estimates(rows, "unbiased", lambda x: np.ones(len(x))), true=1.0)


@cache
def pools(pool, n, repeats):
    """Rows of what is chosen from many pools, all in one call: a pool is a group."""
    x = propose(np.arange(repeats * pool))
    scores, group = log_ratio(x), np.repeat(np.arange(repeats), pool)
    index = obrs.select(scores, n, groups=group).reshape(repeats, n)
    weight = scores - np.log(obrs.selection.inclusion_probability(scores, n, groups=group))
    return [(x[at], weight[at], scores[at], Run("pool", n, pool)) for at in index]


@pytest.mark.parametrize("n", [200, 75])  # of 300: K below and above M
@pytest.mark.parametrize("estimator", ["self_normalised", "unbiased"])
def test_intervals_of_pools_cover(n, estimator):
    rows = estimates(pools(300, n, 400), estimator)
    assert_covers(*rows)
    if estimator == "unbiased":
        assert np.all(np.abs(rows[0].mean(axis=0) - TRUE) < 4 * rows[0].std(axis=0) / np.sqrt(400))


def test_the_error_of_a_pool_counts_that_n_is_fixed():
    """At K above M all weights are c^-1, so the sum of the weights has the error of the pool alone."""
    kept = obrs.sample_pool(propose, log_ratio, 50, pool=300)
    ones = kept.mean(lambda x: np.ones(len(x)), "unbiased", 0.95)
    alone = np.exp(log_ratio(propose(np.arange(300)))).std() / np.sqrt(300)
    assert ones.standard_error == pytest.approx(alone, rel=0.2)
    independent = replace(kept, runs=(Run("proposals", 50, 300),)).mean(lambda x: np.ones(len(x)), "unbiased", 0.95)
    assert independent.standard_error > 2 * ones.standard_error


# --- no bias ----------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 10])
def test_without_its_last_sample_a_collected_run_has_no_bias(n):
    value = np.array(
        [
            average(moments(x), weight, scores, [run], "unbiased", None)
            for x, weight, scores, run in many("kept", BELOW, 3000 // n, n)
        ]
    )
    assert np.all(np.abs(value.mean(axis=0) - TRUE) < 4 * value.std(axis=0) / np.sqrt(len(value)))
    naive = np.array(
        [
            average(moments(x), weight, scores, [Run("proposals", n, run.proposed)], "unbiased", None)
            for x, weight, scores, run in many("kept", BELOW, 3000 // n, n)
        ]
    )
    if n == 2:  # dividing by all proposals is visibly too much
        assert naive[:, 1].mean() - TRUE[1] > 4 * naive[:, 1].std() / np.sqrt(len(naive))


def test_the_variance_of_a_short_run_is_estimated_without_bias():
    """Exactly so for three kept samples and more; two routes: over many runs, and within each."""
    value, _, _, error = estimates(many("kept", BELOW, 2500, 3), "unbiased")
    squares = error**2
    spread = np.std((value - value.mean(axis=0)) ** 2 - squares, axis=0) / np.sqrt(len(value))
    assert np.all(np.abs(value.var(axis=0) - squares.mean(axis=0)) < 4 * spread)


def test_formulas_by_hand():
    x, w = np.array([1.0, 2.0, 6.0]), np.array([1.0, 2.0, 3.0])
    kept = Samples(x, np.arange(3), np.log(w) - 1.0, np.log(w), proposed=5, executed=5)
    at = {kind: replace(kept, runs=(Run(kind, 3, 5),)) for kind in ("kept", "proposals", "early")}
    assert at["proposals"].mean(lambda x: x, "unbiased") == pytest.approx(23 / 5)
    assert at["early"].mean(lambda x: x, "unbiased") == pytest.approx(23 / 5)
    assert at["kept"].mean(lambda x: x, "unbiased") == pytest.approx(5 / 4)
    whole = at["proposals"].mean(lambda x: x, "unbiased", 0.95)
    assert whole.standard_error == pytest.approx(np.std([1, 4, 18, 0, 0], ddof=1) / np.sqrt(5))
    short = at["kept"].mean(lambda x: x, "unbiased", 0.95)
    assert short.standard_error == pytest.approx(np.std([1, 4, 0, 0], ddof=1) / np.sqrt(4))
    ratio = kept.mean(lambda x: x, confidence=0.5)
    error = np.sqrt(np.sum((w * (x - 23 / 6)) ** 2) / 36 * 3 / 2)
    assert (ratio.value, ratio.standard_error) == (pytest.approx(23 / 6), pytest.approx(error))
    assert ratio.high - ratio.value == pytest.approx(NormalDist().inv_cdf(0.75) * error)
    assert kept.mean(lambda x: x, "plain", 0.5).standard_error == pytest.approx(np.std(x, ddof=1) / np.sqrt(3))


@pytest.mark.parametrize("shift", [-2000.0, 0.0, 2000.0])
def test_what_does_not_depend_on_the_scale_of_the_ratio(shift):
    kept = Samples(
        np.array([1.0, 2.0, 6.0]), np.arange(3), np.zeros(3), np.log([1.0, 2.0, 3.0]) + shift, proposed=5, executed=5
    )
    assert kept.ess == pytest.approx(36 / 14)
    assert kept.mean(lambda x: x, confidence=0.9).standard_error == pytest.approx(
        replace(kept, log_weight=kept.log_weight - shift).mean(lambda x: x, confidence=0.9).standard_error
    )


def test_vectors_have_an_interval_for_each_entry():
    kept = collect(stream(propose, log_ratio, RULES[BELOW], batch_size=100), 500)
    for estimator in ("self_normalised", "unbiased", "plain"):
        both = kept.mean(moments, estimator, confidence=0.95)
        assert isinstance(both, Estimate)
        assert both.value.shape == both.low.shape == both.high.shape == both.standard_error.shape == (2,)
        one = kept.mean(lambda x: x**2, estimator, confidence=0.95)
        assert (one.value, one.low) == (pytest.approx(both.value[1]), pytest.approx(both.low[1]))
        matrix = kept.mean(lambda x: moments(x)[:, None, :], estimator, confidence=0.95)
        assert matrix.high.shape == (1, 2)


def test_the_effective_sample_size_is_that_of_the_weights():
    kept = collect(stream(propose, log_ratio, RULES[BELOW], batch_size=100), 500)
    weight = np.exp(kept.log_weight)
    assert kept.ess == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert kept.ess < 500
    assert join(list(stream(propose, log_ratio, Budgeted(-50.0), batch_size=5, stop=5))).ess == 0


# --- runs that are joined ----------------------------------------------------------------


def run(n=None, start=0, stop=None, rule=RULES[BELOW]):
    batches = stream(propose, log_ratio, rule, batch_size=100, start=start, stop=stop)
    return join(list(batches)) if n is None else collect(batches, n)


def test_two_collected_runs_in_a_row_are_one():
    whole, head = run(300), run(120)
    both = head + run(180, start=head.next_id)
    for estimator in ("self_normalised", "unbiased", "plain"):
        assert both.mean(moments, estimator, 0.9).high == pytest.approx(whole.mean(moments, estimator, 0.9).high)
    np.testing.assert_array_equal(both.ids, whole.ids)
    assert both.runs == whole.runs
    assert both.rule == whole.rule == RULES[BELOW]
    assert (both.proposed, both.next_id) == (whole.proposed, whole.next_id)


def test_a_run_that_was_cut_short_and_goes_on_is_one_collected_run():
    whole = run(300)
    with pytest.raises(obrs.errors.ExhaustedError) as caught:
        collect(stream(propose, log_ratio, RULES[BELOW], batch_size=100), 300, max_proposed=200)
    head = caught.value.partial
    assert head.runs[0].stopped == "early"
    both = head + run(300 - len(head), start=head.next_id)
    np.testing.assert_array_equal(both.ids, whole.ids)
    assert both.mean(moments, "unbiased") == pytest.approx(whole.mean(moments, "unbiased"))


def test_runs_that_stopped_in_other_ways_are_combined_with_weights_known_before():
    collected, fixed = run(100), run(start=10_000, stop=10_400)
    pool = obrs.sample_pool(propose, log_ratio, 30, pool=90, start=20_000)
    both = collected + fixed + pool
    sizes = np.array([100 / RULES[BELOW].rate, 400, 90])
    each = [part.mean(moments, "unbiased", 0.9) for part in (collected, fixed, pool)]
    value = sizes @ [e.value for e in each] / sizes.sum()
    error = np.sqrt((sizes / sizes.sum()) ** 2 @ [e.standard_error**2 for e in each])
    found = both.mean(moments, "unbiased", 0.9)
    np.testing.assert_allclose(found.value, value)
    np.testing.assert_allclose(found.standard_error, error)
    again = fixed + pool + collected  # the order does not matter, but for which kept sample is last
    np.testing.assert_allclose(again.mean(moments, "unbiased"), value)


def test_mixed_runs_are_unbiased():
    repeats, value = 1000, []
    pairs = zip(many("kept", BELOW, repeats, 4), many("proposals", ABOVE, repeats, 12), strict=True)
    for (x, w, s, first), (y, v, t, second) in pairs:
        parts = [np.concatenate(pair) for pair in ((x, y), (w, v), (s, t))]
        value.append(average(moments(parts[0]), parts[1], parts[2], [first, second], "unbiased", None))
    value = np.array(value)
    # the same ids serve both, which correlates them and moves no mean
    assert np.all(np.abs(value.mean(axis=0) - TRUE) < 4 * value.std(axis=0) / np.sqrt(repeats))


def test_collected_runs_of_other_rates_are_no_run_in_a_row():
    # r = 1 and a constant rule: the mean over all numbers of proposals that the second run may take is exact
    rate, value = 0.25, 0.0
    first, log_weight = Run("kept", 2, 2, 1.0), np.array([0.0, 0.0, *[-np.log(rate)] * 2])
    for missed in range(300):
        second = Run("kept", 2, 2 + missed, rate)
        chance = (missed + 1) * rate**2 * (1 - rate) ** missed
        value += chance * average(np.ones(4), log_weight, np.zeros(4), [first, second], "unbiased", None)
    assert value == pytest.approx(1.0)


def test_a_run_that_was_cut_short_weighs_its_proposals():
    runs = [Run("early", 1, 30, 0.1), Run("pool", 1, 10)]  # not 1/0.1: what was kept is an outcome
    value = average(np.array([1.0, 2.0]), np.zeros(2), np.zeros(2), runs, "unbiased", None)
    assert value == pytest.approx(0.75 * 1 / 30 + 0.25 * 2 / 10)


def test_what_cannot_be_joined_is_said_in_one_line():
    one = run(50)
    with pytest.raises(
        InputError, match=rf"50 ids are in both runs, \d+ first; start the second run at start={one.next_id}"
    ):
        one + run(50)
    with pytest.raises(InputError, match=r"another kind: numpy \(\) and numpy \(3,\)"):
        one + replace(run(50, start=5000), x=np.zeros((50, 3)))
    with pytest.raises(InputError, match="another kind"):
        one + replace(run(50, start=5000), x={"x": np.zeros(50)})
    with pytest.raises(TypeError):
        one + 3


# --- a number of proposals ----------------------------------------------------------------


def test_a_number_of_proposals_is_one_call():
    kept = obrs.sample_proposals(propose, log_ratio, 5000, budget=BELOW, calibrate=RULES[BELOW], start=700)
    again = run(start=700, stop=5700)
    np.testing.assert_array_equal(kept.ids, again.ids)
    assert (kept.proposed, kept.executed, kept.next_id) == (5000, 5000, 5700)
    assert kept.runs == again.runs
    assert kept.runs[0].stopped == "proposals"
    fitted = obrs.sample_proposals(propose, log_ratio, 9000, budget=BELOW)
    assert fitted.rule == Budgeted.fit(log_ratio(propose(np.arange(4096))), BELOW)
    assert abs(fitted.rate - 1 / BELOW) < 4 * np.sqrt(1 / BELOW * (1 - 1 / BELOW) / 4096)
    few = obrs.sample_proposals(propose, log_ratio, 100, budget=BELOW)
    assert few.rule == Budgeted.fit(log_ratio(propose(np.arange(100))), BELOW)


# --- bad input ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: run(20).mean(moments, confidence=95), InputError, "between 0 and 1, got 95"),
        (lambda: run(20).mean(moments, confidence="high"), InputError, "between 0 and 1, got 'high'"),
        (lambda: run(1).mean(moments, "unbiased"), InputError, "1st kept sample has none to count"),
        (lambda: run(1).mean(moments, confidence=0.9), InputError, "at least 2 kept samples that count, 1 were kept"),
        (lambda: run(2).mean(moments, "unbiased", 0.9), InputError, "at least 2 kept samples that count, 2 were kept"),
        (lambda: replace(run(9), runs=()).mean(moments, "unbiased"), InputError, "must know how the run stopped"),
        (
            lambda: replace(run(4), ids=np.array([0, 1, 1, 2])).mean(moments, confidence=0.9),
            InputError,
            "occur twice are not independent",
        ),
        (lambda: run(4).mean(run(4).x), InputTypeError, "g must be a function of the samples"),
        (lambda: run(4).mean(lambda x: 1j * x), InputTypeError, "real numbers, got dtype complex128"),
        (lambda: run(4).mean(lambda x: x.astype(str)), InputTypeError, "real numbers, got dtype <U"),
        (lambda: Run("sometimes", 1, 2), InputError, "stopped at one of kept, proposals, pool, early, got 'sometimes'"),
        (lambda: obrs.sample_proposals(propose, log_ratio, 0, budget=2), InputError, "proposed must be a whole number"),
        (lambda: obrs.sample_proposals(propose, log_ratio, 9, budget=2, start=-1), InputError, "start must be a whole"),
        (lambda: obrs.sample_proposals(5, log_ratio, 9, budget=2), InputTypeError, "propose must be a function"),
    ],
)
def test_bad_input_gets_one_clear_line(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
