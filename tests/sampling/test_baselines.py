"""Top-k, resampling and truncation: exactly what they say, what they cost, and the bias each has."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from obrs.errors import BudgetError, InputError, InputTypeError, RatioError
from obrs.sampling import baselines
from obrs.sampling.baselines import SIR, TopK, Truncation
from obrs.sampling.model import Model
from obrs.sampling.samples import Calls

WIDTH, SPREAD = 1.5, 0.5
SAMPLERS = {
    "topk": TopK(2.5),
    "sir": SIR(2.5),
    "sir without replacement": SIR(2.5, replace=False),
    "truncation": Truncation(0.7),
}
SCORED = {name: sampler for name, sampler in SAMPLERS.items() if name != "truncation"}
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
each_scored = pytest.mark.parametrize("sampler", SCORED.values(), ids=SCORED)


def log_target(x, xp=np):
    squares = [((x[:, 0] - at) ** 2 + x[:, 1] ** 2) / (2 * SPREAD**2) for at in (-1.0, 1.0)]
    return xp.log(xp.exp(-squares[0]) + xp.exp(-squares[1])) - float(np.log(4 * np.pi * SPREAD**2))


def plane(xp=np, dtype=None, **more):
    """From N(0, WIDTH² I) to an even mixture of N((±1, 0), SPREAD² I)."""

    def log_ratio(x):
        return log_target(x, xp) + xp.sum(x * x, axis=1) / (2 * WIDTH**2) + float(np.log(2 * np.pi * WIDTH**2))

    like = xp.asarray(np.zeros(1)) if dtype is None else xp.asarray(np.zeros(1), dtype=dtype)
    return replace(Model(lambda z: WIDTH * z, log_ratio, dim=2, like=like), **more)


def line(log_ratio):
    return Model(lambda z: z[:, 0], log_ratio, dim=1)


def z_score(values, expected):
    return (np.mean(values) - expected) / (np.std(values) / np.sqrt(len(values)))


# --- the protocol -------------------------------------------------------------------------------------------------


@each_sampler
def test_exactly_n_come_out_with_their_ids_scores_and_weights(sampler):
    model = plane()
    samples = sampler(model, 100, seed=3)
    assert samples.x.shape == (100, 2)
    assert len(samples) == 100
    assert samples.ids.dtype == np.int64
    np.testing.assert_array_equal(samples.log_weight, np.zeros(100))
    if isinstance(sampler, Truncation):
        assert np.all(np.isnan(samples.log_ratio))
        assert samples.proposed == samples.executed == samples.next_id == 100
        assert samples.calls == samples.executed_calls == Calls(generator=100)
    else:
        np.testing.assert_array_equal(samples.x, model.propose(samples.ids, seed=3))
        np.testing.assert_allclose(samples.log_ratio, model.log_ratio(samples.x))
        assert samples.proposed == samples.executed == samples.next_id == 250
        assert samples.calls == samples.executed_calls == Calls(generator=250, critic=250)
    assert samples.seconds > 0


@each_sampler
def test_every_backend_gives_the_same_samples_in_its_own_arrays(sampler, xp):
    expected = sampler(plane(), 60, seed=2)
    samples = replace(sampler, batch_size=37)(plane(xp), 60, seed=2)
    assert type(samples.x) is type(xp.asarray(np.zeros(1)))
    np.testing.assert_array_equal(samples.ids, expected.ids)
    np.testing.assert_allclose(np.asarray(samples.x), expected.x, rtol=1e-12)


@each_sampler
def test_single_precision_stays_single(sampler, xp):
    samples = sampler(plane(xp, dtype=xp.float32), 20)
    assert samples.x.dtype == xp.float32
    assert samples.log_ratio.dtype == np.float64


@each_sampler
@pytest.mark.parametrize("batch_size", [1, 7, 90, 100_000])
def test_result_does_not_depend_on_the_batch_size(sampler, batch_size):
    model = plane()
    expected = sampler(model, 80, seed=1)
    samples = replace(sampler, batch_size=batch_size)(model, 80, seed=1)
    np.testing.assert_array_equal(samples.ids, expected.ids)
    np.testing.assert_array_equal(samples.x, expected.x)
    assert samples.calls == expected.calls


@each_sampler
def test_seed_decides_everything(sampler):
    one, same, other = (sampler(plane(), 50, seed=seed).x for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.any(one == other)


@each_sampler
def test_batches_of_several_arrays_stay_together(sampler):
    flat = plane()
    model = replace(flat, generate=lambda z: (WIDTH * z, z), log_ratio=lambda batch: flat.log_ratio(batch[0]))
    samples = replace(sampler, batch_size=16)(model, 50)
    np.testing.assert_array_equal(samples.x[0], WIDTH * samples.x[1])
    np.testing.assert_array_equal(samples.x[0], sampler(flat, 50).x)


@each_sampler
def test_torch_builds_no_graph(sampler):
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 2).eval()
    samples = sampler(Model(layer, lambda x: x[:, 0], dim=2, like=torch.zeros(1)), 10)
    assert not samples.x.requires_grad


@each_scored
def test_batches_and_what_is_held_stay_small(sampler, monkeypatch):
    seen, held = [], []
    get = baselines._Shelf.get

    def watched(self, ids):
        held.append(len(self.ids))
        return get(self, ids)

    def generate(z):
        seen.append(len(z))
        return WIDTH * z

    monkeypatch.setattr(baselines._Shelf, "get", watched)
    replace(sampler, budget=40, batch_size=30)(plane(generate=generate), 50)
    assert max(seen) == 30
    assert sum(seen) == 2000
    assert 2 <= len(held) < 30
    assert max(held) <= 2 * 50 + 30


@pytest.mark.parametrize(("n", "budget", "pool"), [(10, 1.1, 11), (3, 1.1, 4), (7, 1, 7), (100, 2.57, 257)])
def test_pool_is_n_times_the_budget_rounded_up(n, budget, pool):
    for sampler in (TopK.at_budget(budget), SIR.at_budget(budget)):
        assert sampler(plane(), n).calls == Calls(generator=pool, critic=pool)


def test_truncation_has_one_call_at_any_budget():
    assert Truncation.at_budget(8) == Truncation()


# --- towards the target -------------------------------------------------------------------------------------------


@each_sampler
def test_samples_are_likelier_under_the_target_than_those_of_the_model(sampler):
    model, n = plane(), 2000
    plain = log_target(model.propose(np.arange(n), seed=11))
    better = log_target(sampler(model, n, seed=12).x)
    error = np.sqrt((np.var(plain) + np.var(better)) / n)
    assert (better.mean() - plain.mean()) / error > 6


# --- top-k --------------------------------------------------------------------------------------------------------


def test_topk_keeps_the_largest_ratios():
    model = plane()
    samples = TopK(4, batch_size=33)(model, 50, seed=5)
    scores = model.log_ratio(model.propose(np.arange(200), seed=5))
    np.testing.assert_array_equal(samples.ids, np.sort(np.argsort(-scores)[:50]))


def test_topk_gives_ties_to_the_smaller_id():
    samples = TopK(3, batch_size=4)(line(lambda x: x * 0), 10)
    np.testing.assert_array_equal(samples.ids, np.arange(10))


def test_topk_loses_a_mode_that_is_a_little_less_likely():
    """A target with two modes of weights 0.6 and 0.4; the share of the second among the top is computed on a grid."""

    def log_ratio(x):
        first, second = (stats.norm.logpdf(x, at, 0.2) for at in (-1, 1))
        return np.logaddexp(np.log(0.6) + first, np.log(0.4) + second) - stats.norm.logpdf(x)

    n, budget = 1000, 20
    grid = stats.norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    top = grid[np.argsort(-log_ratio(grid))[: len(grid) // budget]]
    expected = np.mean(top > 0)
    assert expected < 0.05
    assert abs(np.mean(TopK(budget)(line(log_ratio), n).x > 0) - expected) < 0.02
    assert abs(np.mean(SIR(budget)(line(log_ratio), n).x > 0) - 0.4) < 5 * np.sqrt(0.24 / n)


# --- resampling ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [130, 4096])
@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_sir_draws_proposals_in_proportion_to_their_ratios(batch_size, spread):
    """Given the pool, the outputs are independent draws: their counts are multinomial."""
    n, model = 3000, line(lambda x: spread * x)
    counts, expected = np.zeros(40), np.zeros(40)
    for seed in range(4):
        samples = SIR(2, batch_size=batch_size)(model, n, seed=seed)
        weight = np.exp(spread * model.propose(np.arange(2 * n), seed=seed))
        parts = np.arange(2 * n) * 10 // (2 * n) + 10 * seed
        counts += np.bincount(parts[samples.ids], minlength=40)
        expected += n * np.bincount(parts, weights=weight / weight.sum(), minlength=40)
    assert stats.chisquare(counts, expected, ddof=3).pvalue > 1e-3


def test_sir_slots_are_independent():
    """Two slots hold the same proposal with probability sum w²; a dependence would make it more or less."""
    n, seeds, excess = 40, 60, []
    for seed in range(seeds):
        model = line(lambda x: x)
        ids = SIR(2)(model, n, seed=seed).ids
        weight = np.exp(model.propose(np.arange(2 * n), seed=seed))
        same = np.mean(ids[:, None] == ids) * n / (n - 1) - 1 / (n - 1)
        excess.append(same - np.sum((weight / weight.sum()) ** 2))
    assert abs(z_score(excess, 0)) < 4


def test_sir_without_replacement_starts_with_probabilities_in_proportion_to_the_ratios():
    model, seeds, number = line(lambda x: x), 1500, 3
    excess = np.zeros((seeds, number))
    for seed in range(seeds):
        weight = np.exp(model.propose(np.arange(number), seed=seed))
        excess[seed] = -weight / weight.sum()
        excess[seed, SIR(number, replace=False)(model, 1, seed=seed).ids] += 1
    assert all(abs(z_score(column, 0)) < 4 for column in excess.T)


def test_sir_without_replacement_repeats_nothing_and_with_it_does():
    model = plane()
    assert len(set(SIR(3, replace=False)(model, 500).ids)) == 500
    assert len(set(SIR(3)(model, 500).ids)) < 450
    np.testing.assert_array_equal(SIR(1, replace=False)(model, 50).ids, np.arange(50))


def test_sir_tends_to_the_target_with_the_budget():
    model = line(lambda x: x - 0.5)  # from N(0, 1) to N(1, 1)
    far = [np.abs(SIR(budget, replace=False)(model, 2000).x.mean() - 1) for budget in (1, 2, 20)]
    assert far[0] > far[1] + 0.2 > far[2] + 0.3
    assert abs(z_score(SIR(100)(model, 500).x, 1)) < 4


def test_sir_takes_log_ratios_that_span_thousands():
    model = line(lambda x: 2000 * x)
    for sampler in (SIR(4), SIR(4, replace=False)):
        assert np.mean(sampler(model, 50).x) > 1.0
    assert set(SIR(4)(model, 50).ids) == {np.argmax(model.propose(np.arange(200)))}


# --- ratio zero ---------------------------------------------------------------------------------------------------


@each_scored
@pytest.mark.parametrize("sign", [-1, 1])  # for one of them the first proposal is of ratio zero
def test_ratio_zero_is_never_kept(sampler, sign):
    samples = replace(sampler, batch_size=13)(line(lambda x: np.where(sign * x > 0, 0.0, -np.inf)), 100)
    assert np.all(sign * samples.x > 0)


@each_scored
def test_nothing_to_keep_is_one_clear_line(sampler):
    with pytest.raises(BudgetError, match=r"^no proposal has r > 0"):
        sampler(line(lambda x: x * 0 - np.inf), 10)


@pytest.mark.parametrize("sampler", [TopK(1.5), SIR(1.5, replace=False)])
def test_too_little_to_keep_names_the_smallest_budget(sampler):
    with pytest.raises(BudgetError, match=r"^budget 1\.5 cannot be met: only .* smallest feasible budget is 2\."):
        sampler(line(lambda x: np.where(x > 0, 0.0, -np.inf)), 1000)


# --- truncation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.04, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("dim", [1, 4])
def test_truncated_latents_follow_the_truncated_normal(threshold, dim):
    samples = Truncation(threshold)(Model(lambda z: z, lambda x: x, dim=dim), 8000 // dim)
    law = stats.truncnorm(-threshold, threshold)
    for column in samples.x.T:
        assert stats.kstest(column, law.cdf).pvalue > 1e-3
    assert np.abs(samples.x).max() <= threshold


def test_truncated_entries_of_one_latent_are_independent():
    z = Truncation(0.5)(Model(lambda z: z, lambda x: x, dim=3), 4000).x
    correlation = np.corrcoef(np.concatenate([z, z**2, z**4], axis=1).T)
    other = (np.arange(9)[:, None] - np.arange(9)) % 3 != 0  # not the powers of one entry
    assert np.max(np.abs(correlation[other])) < 4.5 / np.sqrt(4000)


def test_truncation_leaves_alone_what_is_inside():
    model = Model(lambda z: z, lambda x: x, dim=5)
    plain, truncated = model.propose(np.arange(200)), Truncation(1.2)(model, 200).x
    inside = np.abs(plain) <= 1.2
    np.testing.assert_array_equal(truncated[inside], plain[inside])
    assert not np.any(truncated[~inside] == plain[~inside])
    np.testing.assert_array_equal(Truncation(np.inf)(model, 200).x, plain)


def test_truncation_does_not_ask_the_critic():
    def log_ratio(x):
        raise AssertionError

    assert len(Truncation()(plane(log_ratio=log_ratio), 10)) == 10


# --- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TopK, SIR])
@pytest.mark.parametrize("budget", [0.5, 0, -1, float("nan"), float("inf"), "2", None])
def test_bad_budget_is_refused(kind, budget):
    for make in (kind, kind.at_budget, Truncation.at_budget):
        with pytest.raises(BudgetError, match=r"^budget must be"):
            make(budget)


@pytest.mark.parametrize("threshold", [0, -1.0, float("nan"), "1", None, [1.0, 2.0]])
def test_bad_threshold_is_refused(threshold):
    with pytest.raises(InputError, match=r"^threshold must be a number above 0, got"):
        Truncation(threshold)


@each_sampler
@pytest.mark.parametrize("value", [0, -1, 2.5, "many"])
def test_counts_that_are_none_are_refused(sampler, value):
    with pytest.raises(InputError, match=r"^n must be a whole number of at least 1"):
        sampler(plane(), value)
    with pytest.raises(InputError, match=r"^batch_size must be a whole number of at least 1"):
        replace(sampler, batch_size=value)


@each_sampler
def test_wrong_answers_of_the_generator_are_named(sampler):
    with pytest.raises(InputError, match="one item per id"):
        sampler(plane(generate=lambda z: z[1:]), 5)
    with pytest.raises(InputTypeError, match="must be an array"):
        sampler(plane(generate=lambda z: list(z)), 5)


@each_scored
def test_wrong_answers_of_the_log_ratio_are_named(sampler):
    for log_ratio, error, words in [
        (lambda x: x, InputError, "one number per sample"),
        (lambda x: x[:, :1], InputError, r"use log_ratio\(x\)\[:, 0\]"),
        (lambda x: x[:, 0] * np.nan, RatioError, "NaN"),
        (lambda x: x[:, 0] + np.inf, RatioError, r"\+inf"),
    ]:
        with pytest.raises(error, match=words) as caught:
            sampler(plane(log_ratio=log_ratio), 5)
        assert "\n" not in str(caught.value)
