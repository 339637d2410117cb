"""The bare model, top-k and resampling: exactly what they say, what they cost, and the bias each has."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from obrs.errors import BudgetError, InputError
from obrs.rivals import OBRS, SIR, Bare, Model, PoolOBRS, TopK
from obrs.sampling.samples import Calls

WIDTH, SPREAD = 1.5, 0.5
CHOICES = {"topk": TopK(2.5), "sir": SIR(2.5), "sir without replacement": SIR(2.5, replace=False)}
each = pytest.mark.parametrize("sampler", CHOICES.values(), ids=CHOICES)


def plane(xp=np):
    """From N(0, WIDTH² I) to an even mixture of N((±1, 0), SPREAD² I)."""

    def log_ratio(x):
        squares = [((x[:, 0] - at) ** 2 + x[:, 1] ** 2) / (2 * SPREAD**2) for at in (-1.0, 1.0)]
        target = xp.log(xp.exp(-squares[0]) + xp.exp(-squares[1])) - float(np.log(4 * np.pi * SPREAD**2))
        return target + xp.sum(x * x, axis=1) / (2 * WIDTH**2) + float(np.log(2 * np.pi * WIDTH**2))

    return Model(lambda z: WIDTH * z, log_ratio, dim=2, like=xp.asarray(np.zeros(1)))


def line(log_ratio):
    return Model(lambda z: z[:, 0], log_ratio, dim=1)


def z_score(values, expected):
    return (np.mean(values) - expected) / (np.std(values) / np.sqrt(len(values)))


@each
def test_n_of_the_pool_come_out_with_their_ids_scores_and_cost(sampler):
    model = plane()
    samples = sampler(model, 100, seed=3)
    np.testing.assert_array_equal(samples.x, model.propose(samples.ids, seed=3))
    np.testing.assert_allclose(samples.log_ratio, model.log_ratio(samples.x))
    np.testing.assert_array_equal(samples.log_weight, np.zeros(100))
    assert samples.proposed == samples.executed == samples.next_id == 250
    assert samples.calls == samples.executed_calls == Calls(generator=250, critic=250)
    for batch_size in (7, 90, 100_000):
        np.testing.assert_array_equal(replace(sampler, batch_size=batch_size)(model, 100, seed=3).ids, samples.ids)


@each
def test_every_backend_gives_the_same_samples_in_its_own_arrays(sampler, xp):
    samples = replace(sampler, batch_size=37)(plane(xp), 60, seed=2)
    assert type(samples.x) is type(xp.asarray(np.zeros(1)))
    np.testing.assert_array_equal(samples.ids, sampler(plane(), 60, seed=2).ids)


def test_the_bare_model_is_the_model():
    model, batches = plane(), []
    seen = replace(model, generate=lambda z: (batches.append(len(z)), WIDTH * z)[1])
    samples = Bare(batch_size=30)(seen, 70, seed=5)
    np.testing.assert_array_equal(samples.x, model.propose(np.arange(70), seed=5))
    assert (batches, samples.calls) == ([30, 30, 10], Calls(generator=70))
    assert np.isnan(samples.log_ratio).all()
    assert Bare.at_budget(8) == Bare()


def test_topk_keeps_the_largest_ratios_and_ties_go_to_the_smaller_id():
    model = plane()
    samples = TopK(4, batch_size=33)(model, 50, seed=5)
    scores = model.log_ratio(model.propose(np.arange(200), seed=5))
    np.testing.assert_array_equal(samples.ids, np.sort(np.argsort(-scores)[:50]))
    np.testing.assert_array_equal(TopK(3, batch_size=4)(line(lambda x: x * 0), 10).ids, np.arange(10))


def test_by_label_no_class_vanishes():
    labels = Model(lambda z, y: z[:, 0], lambda x, y: x - 3.0 * (y == 1), dim=1, labels=[1, 1, 2])
    proposed = np.bincount(labels.label(np.arange(2000)))
    for kind in (OBRS, PoolOBRS, TopK):
        one, each_label = (np.bincount(kind(4.0, by_label=by)(labels, 500).x[1], minlength=3) for by in (False, True))
        assert one[1] < 60
        assert np.all(np.abs(each_label - proposed / 4) <= (1 if kind is not OBRS else 5 * np.sqrt(proposed / 4)))
        with pytest.raises(InputError, match="by_label needs a model with labels"):
            kind(4.0, by_label=True)(plane(), 5)
    best = TopK(4.0, by_label=True)(labels, 500)
    x, y = labels.propose(np.arange(2000))
    for label in range(3):
        assert set(best.x[0][best.x[1] == label]) == set(np.sort(x[y == label])[-np.sum(best.x[1] == label) :])


@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_sir_draws_proposals_in_proportion_to_their_ratios(spread):
    """Given the pool, the outputs are independent draws: their counts are multinomial."""
    n, model = 3000, line(lambda x: spread * x)
    counts, expected = np.zeros(40), np.zeros(40)
    for seed in range(4):
        samples = SIR(2)(model, n, seed=seed)
        weight = np.exp(spread * model.propose(np.arange(2 * n), seed=seed))
        parts = np.arange(2 * n) * 10 // (2 * n) + 10 * seed
        counts += np.bincount(parts[samples.ids], minlength=40)
        expected += n * np.bincount(parts, weights=weight / weight.sum(), minlength=40)
    assert stats.chisquare(counts, expected, ddof=3).pvalue > 1e-3


def test_sir_without_replacement_starts_with_probabilities_in_proportion_to_the_ratios():
    model, seeds, number = line(lambda x: x), 1500, 3
    excess = np.zeros((seeds, number))
    for seed in range(seeds):
        weight = np.exp(model.propose(np.arange(number), seed=seed))
        excess[seed] = -weight / weight.sum()
        excess[seed, SIR(number, replace=False)(model, 1, seed=seed).ids] += 1
    assert all(abs(z_score(column, 0)) < 4 for column in excess.T)
    assert len(set(SIR(3, replace=False)(plane(), 500).ids)) == 500
    np.testing.assert_array_equal(SIR(1, replace=False)(plane(), 50).ids, np.arange(50))


@each
def test_ratio_zero_is_never_kept(sampler):
    for sign in (-1, 1):  # for one of them the first proposal is of ratio zero
        samples = replace(sampler, batch_size=13)(line(lambda x, s=sign: np.where(s * x > 0, 0.0, -np.inf)), 100)
        assert np.all(sign * samples.x > 0)
    with pytest.raises(BudgetError, match=r"^no proposal has r > 0"):
        sampler(line(lambda x: x * 0 - np.inf), 10)
