"""LatentRS: learned weights, the law of what is kept, and one call of the generator per sample."""

import numpy as np
import pytest

from obrs.rivals import (
    BudgetedLatentRS,
    LatentRS,
    LatentWeights,
    Model,
    fit_latent_weights,
    fit_latent_weights_to_ratio,
)

torch = pytest.importorskip("torch")

MEAN, SD = 0.5, 0.8  # of the target's first coordinate; the model's are 0 and 1
QUICK = {"batch": 128, "width": 32, "layers": 2}

pytestmark = pytest.mark.usefixtures("one_thread")


def log_ratio(x):
    return x[:, 0] ** 2 / 2 - ((x[:, 0] - MEAN) / SD) ** 2 / 2 - np.log(SD)


LARGEST = float(log_ratio(torch.tensor([[MEAN / (1 - SD**2)]])).exp())


@pytest.fixture(scope="module")
def model():
    real = np.random.default_rng(1).normal(size=(4000, 2)) * [SD, 1] + [MEAN, 0]
    return Model(lambda z: z, log_ratio, dim=2, real=real, like=torch.empty(0))


@pytest.fixture(scope="module")
def exact():
    """The weights that training should find."""
    return LatentWeights(lambda z: log_ratio(z).exp(), LARGEST)


@pytest.fixture(scope="module")
def regressed_weights(model):
    return fit_latent_weights_to_ratio(model, steps=600, lr=3e-3, pool=8192, seed=3, **QUICK)


@pytest.fixture(scope="module")
def adversarial_weights(model):
    return fit_latent_weights(model, steps=250, lr_w=1e-3, lr_d=4e-3, seed=3, **QUICK)


@pytest.fixture(scope="module")
def fresh():
    return torch.randn(20_000, 2, generator=torch.Generator().manual_seed(99))


def mean_error(x, mean, sd):
    """How many standard errors the mean of x is from what it should be."""
    return (float(x.mean()) - mean) / (sd / len(x) ** 0.5)


def test_regressed_weights_are_the_ratio(regressed_weights, fresh):
    w, r = regressed_weights(fresh), log_ratio(fresh).exp()
    assert np.corrcoef(w, r)[0, 1] > 0.99
    assert float((w - r).abs().mean()) < 0.05
    assert regressed_weights.mean == pytest.approx(1, abs=0.05)
    assert regressed_weights.largest == pytest.approx(LARGEST, rel=0.1)


def test_adversarial_weights_favour_latents_of_good_samples(adversarial_weights, fresh):
    w, r = adversarial_weights(fresh), log_ratio(fresh).exp()
    good, bad = float(w[r > 1].mean()), float(w[r < 0.3].mean())
    assert good > 1.2 > 0.9 > bad
    assert np.corrcoef(w, r)[0, 1] > 0.6


def test_sample_by_exact_weights_is_the_target(model, exact):
    x = LatentRS(exact)(model, 20_000, seed=1).x
    assert abs(mean_error(x[:, 0], MEAN, SD)) < 4
    assert abs(mean_error(x[:, 0] ** 2, MEAN**2 + SD**2, float((x[:, 0] ** 2).std()))) < 4
    assert abs(mean_error(x[:, 1], 0, 1)) < 4


def test_sample_by_learned_weights_moves_to_the_target(model, regressed_weights, adversarial_weights):
    close = LatentRS(regressed_weights)(model, 10_000, seed=1).x[:, 0]
    assert float(close.mean()) == pytest.approx(MEAN, abs=0.05)
    assert float(close.std()) == pytest.approx(SD, abs=0.05)
    moved = LatentRS(adversarial_weights)(model, 10_000, seed=1).x[:, 0]
    assert mean_error(moved, 0, 1) > 10
    assert float(moved.mean()) < MEAN + 0.2


@pytest.mark.parametrize("batch_size", [1, 7, 64, 4096])
def test_each_sample_costs_one_call_and_the_last_latent_tried_is_kept(model, exact, batch_size):
    kept = LatentRS(exact, batch_size=batch_size)(model, 30, seed=2)
    reference = LatentRS(exact)(model, 30, seed=2)
    assert len(kept) == kept.calls.generator == kept.executed_calls.generator == 30
    assert kept.calls.critic == kept.executed_calls.critic == 0
    assert kept.proposed == kept.next_id == kept.ids[-1] + 1 <= kept.executed
    assert np.array_equal(kept.ids, reference.ids)
    assert torch.equal(kept.x, reference.x)
    assert torch.equal(kept.x, model.propose(kept.ids, seed=2))
    assert np.isnan(kept.log_ratio).all()
    assert np.allclose(kept.log_weight, np.log(LARGEST), atol=1e-6)


@pytest.mark.parametrize("budget", [1.0, 1.2, 1.5])
def test_budgeted_rate_meets_the_budget(model, exact, budget):
    kept = BudgetedLatentRS(budget, exact, pilot=65536)(model, 20_000, seed=4)
    # of the calibration, and of the run itself
    error = np.sqrt((1 - 1 / budget) / budget * (1 / 65536 + 1 / kept.proposed))
    assert abs(kept.rate - 1 / budget) <= 4 * error
    assert kept.calls.generator == 20_000
    assert kept.calls.critic == 0


def test_weights_left_after_the_budget_remove_the_rest(model, exact):
    kept = BudgetedLatentRS(1.3, exact)(model, 20_000)
    assert abs(float(kept.x[:, 0].mean()) - MEAN) > 0.05
    assert float(kept.mean(lambda x: x[:, 0])) == pytest.approx(MEAN, abs=0.03)
