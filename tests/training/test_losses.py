"""The losses for training: their gradients against finite differences, their edges, and what they refuse."""

from math import log

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("scipy")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from training.tw_gradients import (  # noqa: E402
    GRID,
    MIDDLE,
    MIXED,
    NARROW,
    WIDE,
    cosine,
    loss_gradient,
    mode_terms,
    reject,
    true_gradient,
)

import obrs  # noqa: E402
from obrs.budget import Cut, solve_cut  # noqa: E402
from obrs.training.losses import (  # noqa: E402
    CRITIC_LOSSES,
    GENERATOR_LOSSES,
    critic_loss,
    generator_loss,
)

RATIOS = [name for name, loss in CRITIC_LOSSES.items() if loss.of_ratio]
LOSSES = [(mode, name) for mode in GENERATOR_LOSSES for name in (RATIOS if mode != "paper_raw" else ["gan"])]
FIVE = ["kl", "rkl", "gan", "chi2", "hellinger"]
MODELS = pytest.mark.parametrize("model", [NARROW, MIDDLE, WIDE, MIXED], ids=["narrow", "middle", "wide", "mixture"])
BELOW_M = pytest.mark.parametrize("budget", [1.5, 2.2])


def outputs(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def assert_same_gradient(gradient, truth):
    """Equal to a thousandth of its length."""
    np.testing.assert_allclose(gradient, truth, rtol=0, atol=1e-3 * np.linalg.norm(truth))


def value_and_gradient(loss, fake, budget):
    value = loss(fake, solve_cut(fake, budget, check=False) if loss.rejects else None)
    (gradient,) = torch.autograd.grad(value, fake)
    return value.detach(), gradient


# --- exact: the gradient of the divergence after rejection ----------------------------------------------------------


@MODELS
@BELOW_M
@pytest.mark.parametrize("name", FIVE)
def test_exact_loss_has_the_gradient_of_the_divergence_after_rejection(name, model, budget):
    _, _, u = reject(model, budget)
    assert u.max() > 1.01, "below M"
    truth = true_gradient(name, model, budget)
    assert_same_gradient(loss_gradient(mode_terms("exact", name), model, budget), truth)


@pytest.mark.parametrize(
    ("name", "same_as", "factor"), [("gan", "non_saturating", 1), ("kl", "rkl", 1), ("chi2", "kl", 2)]
)
@pytest.mark.parametrize("model", [MIDDLE, MIXED], ids=["gaussian", "mixture"])
def test_the_non_saturating_loss_descends_another_divergence_exactly(name, same_as, factor, model):
    truth = factor * true_gradient(same_as, model, 1.0)
    assert_same_gradient(loss_gradient(mode_terms("non_saturating", name), model, 1.0), truth)


@pytest.mark.parametrize("name", RATIOS)
def test_the_exact_loss_at_a_budget_of_one_is_the_plain_one(name):
    fake = outputs(np.linspace(-6, 6, 101))
    value, gradient = value_and_gradient(generator_loss("exact", name), fake, 1.0)
    plain_value, plain_gradient = value_and_gradient(generator_loss("dual", name), fake, 1.0)
    assert torch.equal(value, plain_value)
    assert torch.equal(gradient, plain_gradient)


@given(
    name=st.sampled_from(RATIOS),
    values=st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=40),
    more=st.floats(1.0001, 10),
)
def test_the_exact_loss_has_no_gradient_beyond_exact_rejection(name, values, more):
    fake = outputs(values)
    m = float(torch.exp(fake.detach().max() - fake.detach().double().exp().mean().log()))
    _, gradient = value_and_gradient(generator_loss("exact", name), fake, max(m * more, 1.0001))
    assert torch.all(gradient == 0)


# --- paper: sign and size of the gap --------------------------------------------------------------------------------


@MODELS
@pytest.mark.parametrize("name", ["kl", "chi2", "hellinger"])
def test_paper_loss_points_uphill(name, model):
    truth = true_gradient(name, model, 2.0)
    assert cosine(loss_gradient(mode_terms("paper", name), model, 2.0), truth) < -0.5


def test_paper_loss_of_gan_points_uphill_for_a_wide_model_unless_its_constant_stays():
    truth = true_gradient("gan", WIDE, 2.0)
    assert cosine(loss_gradient(mode_terms("paper", "gan"), WIDE, 2.0), truth) < -0.4
    assert cosine(loss_gradient(mode_terms("paper_raw", "gan"), WIDE, 2.0), truth) > 0.9


def test_value_of_the_paper_loss_is_the_divergence_after_rejection():
    rng = np.random.default_rng(0)
    fake = torch.tensor(rng.normal(-0.5, 1, 4000))
    fake -= fake.exp().mean().log()
    for name in RATIOS:
        value = generator_loss("paper", name)(fake, solve_cut(fake, 2.0))
        assert float(value) == pytest.approx(float(obrs.Profile(fake.numpy()).divergence(name, 2.0)), rel=1e-9), name


@MODELS
@pytest.mark.parametrize("budget", [1.5, 2.0])
def test_raw_paper_loss_descends_a_divergence_of_the_model_without_rejection(model, budget):
    # E_Q[g(r)] with g falling is the dual gradient of D_h(P, Q), h''(r) = -g'(r) / r, while c stays as it is
    _, _, u = reject(model, budget)
    rejection = Cut(torch.tensor(-np.log(budget * u.min())), torch.tensor(-np.log(budget)))
    x = torch.linspace(-60, 8, 400_001, dtype=torch.float64, requires_grad=True)  # log r
    slope = torch.autograd.grad(mode_terms("paper_raw", "gan")(x, rejection).sum(), x)[0].numpy()
    assert np.all(slope < 0)
    log_r = x.detach().numpy()
    h = cumulative(np.exp(log_r) * cumulative(-slope * np.exp(-log_r), log_r), log_r)

    def value(parameters):
        p, q, _ = reject(model.replace_parameters(parameters), 1.0)
        return np.sum(q * np.interp(np.log(p / q), log_r, h)) * (GRID[1] - GRID[0])

    shifts = np.eye(len(model.parameters)) * 2e-3
    truth = [(value(model.parameters + s) - value(model.parameters - s)) / 4e-3 for s in shifts]
    assert_same_gradient(loss_gradient(mode_terms("paper_raw", "gan"), model, budget), np.array(truth))


def cumulative(values, x):
    """The integral from the left end, by the trapezium rule."""
    return np.append(0.0, np.cumsum((values[1:] + values[:-1]) / 2 * np.diff(x)))


# --- every loss -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "name"), LOSSES)
@pytest.mark.parametrize("budget", [1.0, 1.7, 4.0])
def test_gradients_are_the_derivatives_of_the_values(mode, name, budget):
    loss, step = generator_loss(mode, name), 1e-6
    fake = outputs(np.random.default_rng(3).normal(-0.5, 1.5, 12), torch.float64)
    cut = solve_cut(fake, budget)
    (gradient,) = torch.autograd.grad(loss(fake, cut), fake)
    rounding = 1e-9 * max(1.0, float(loss(fake, cut).detach().abs()))
    for i, shift in enumerate(step * torch.eye(12, dtype=torch.float64)):
        rise = float((loss(fake + shift, cut) - loss(fake - shift, cut)).detach())
        assert float(gradient[i]) == pytest.approx(rise / (2 * step), rel=1e-5, abs=rounding)


@settings(max_examples=200)
@given(
    loss=st.sampled_from(LOSSES),
    values=st.lists(st.floats(-1e6, 1e6, width=32) | st.floats(-100, 100, width=32), min_size=1, max_size=20),
    budget=st.floats(1, 1000),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_losses_are_finite_for_any_critic(loss, values, budget, dtype):
    value, gradient = value_and_gradient(generator_loss(*loss), outputs(values, dtype), budget)
    assert torch.isfinite(value)
    assert torch.all(torch.isfinite(gradient))


# --- critics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RATIOS)
def test_critic_loss_is_lowest_at_the_true_ratio_and_there_minus_the_divergence(name):
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(7) * 3), rng.dirichlet(np.ones(7) * 3)
    record, loss = obrs.divergences.DIVERGENCES[name], CRITIC_LOSSES[name]

    def value(log_ratio):
        return (torch.tensor(p) * loss.real(log_ratio)).sum() + (torch.tensor(q) * loss.fake(log_ratio)).sum()

    truth = torch.tensor(np.log(p / q), requires_grad=True)
    lowest = value(truth)
    assert float(lowest.detach()) == pytest.approx(-np.sum(q * record.f(np.log(p / q))), rel=1e-9)
    assert torch.autograd.grad(lowest, truth)[0].abs().max() < 1e-12
    for _ in range(50):
        assert value(truth.detach() + torch.tensor(rng.normal(0, 0.3, 7))) > lowest


@pytest.mark.parametrize("name", RATIOS)
def test_critic_loss_with_weights_is_that_of_what_rejection_keeps(name):
    rng = np.random.default_rng(2)
    fake, real = torch.tensor(rng.normal(-0.5, 1, 500)), torch.tensor(rng.normal(0.5, 1, 300))
    rejection = solve_cut(fake, 2.0)
    loss = CRITIC_LOSSES[name]
    kept = torch.exp(rejection.log_a(fake) - rejection.log_rate)
    assert float(kept.mean()) == pytest.approx(1, abs=1e-12)
    expected = loss.real(real).mean() + (kept * loss.fake(fake)).mean()
    assert float(loss(real, fake, rejection.log_a(fake) - rejection.log_rate)) == pytest.approx(
        float(expected), rel=1e-12
    )


def test_logistic_loss_is_the_critic_loss_of_gan():
    real, fake = torch.tensor([0.3, -1.0]), torch.tensor([2.0, 0.1, -3.0])
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    expected = cross_entropy(real, torch.ones(2)) + cross_entropy(fake, torch.zeros(3)) - 2 * log(2)
    assert float(critic_loss("gan")(real, fake)) == pytest.approx(float(expected), abs=1e-6)


def test_hinge_and_wgan_are_the_usual_ones():
    real, fake = torch.tensor([0.5, 3.0]), torch.tensor([-2.0, 0.5])
    assert float(critic_loss("hinge")(real, fake)) == pytest.approx(0.25 + 0.75)
    assert float(critic_loss("wgan")(real, fake)) == pytest.approx(-1.75 - 0.75)
    for mode in ("hinge", "wgan"):
        loss = generator_loss(mode)
        assert float(loss(fake)) == pytest.approx(0.75)


# --- gradient penalty -----------------------------------------------------------------------------------------------


# --- the constant ---------------------------------------------------------------------------------------------------


# --- what is refused ------------------------------------------------------------------------------------------------


def test_a_second_output_has_the_logistic_loss_and_leaves_the_first_alone():
    real, fake = torch.randn(5, 2), torch.randn(7, 2)
    hinge, logistic = critic_loss("hinge"), critic_loss("gan")
    expected = hinge(real[:, 0], fake[:, 0]) + logistic(real[:, 1], fake[:, 1])
    assert torch.equal(hinge(real, fake), expected)
    assert torch.equal(generator_loss("hinge")(fake), generator_loss("hinge")(fake[:, 0]))
