"""The losses for training: their gradients against finite differences, their edges, and what they refuse."""

from math import log
from pathlib import Path

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
    F,
    Mixture1D,
    cosine,
    left,
    loss_gradient,
    of_mode,
    table,
    true_gradient,
)

import obrs  # noqa: E402
from obrs.budget import Cut, solve_cut  # noqa: E402
from obrs.divergences import DIVERGENCES  # noqa: E402
from obrs.errors import BudgetError, DivergenceError, InputError, InputTypeError, UnknownNameError  # noqa: E402
from obrs.training.losses import (  # noqa: E402
    _IN_KERNELS,
    _PROBES,
    CRITIC_LOSSES,
    GENERATOR_LOSSES,
    MAX_LOG_RATIO,
    _reach,
    critic_loss,
    generator_loss,
    gradient_penalty,
)
from obrs.training.window import BudgetWindow  # noqa: E402

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
    """The loss of a batch, with the second critic reading the same values where there is one."""
    rejection = solve_cut(fake, budget, check=False) if loss.rejects else None
    value = loss(fake, rejection, fake if loss.second_critic else None)
    (gradient,) = torch.autograd.grad(value, fake)
    return value.detach(), gradient


# --- exact: the gradient of the divergence after rejection ----------------------------------------------------------


@MODELS
@BELOW_M
@pytest.mark.parametrize("name", FIVE)
def test_exact_loss_has_the_gradient_of_the_divergence_after_rejection(name, model, budget):
    _, _, u = left(model, budget)
    assert u.max() > 1.01, "below M"
    truth = true_gradient(name, model, budget)
    assert_same_gradient(loss_gradient(of_mode("exact", name), model, budget), truth)


@MODELS
@pytest.mark.parametrize("name", FIVE)
def test_two_critics_have_the_gradient_of_the_divergence_after_rejection(name, model):
    truth = true_gradient(name, model, 2.0)
    assert_same_gradient(loss_gradient(of_mode("two_critics", name), model, 2.0), truth)


@pytest.mark.parametrize("name", FIVE)
def test_two_critics_with_a_gradient_through_the_acceptance_also_move_the_rate(name):
    value = obrs.divergences.DIVERGENCES[name].f_star_of_f_prime

    def through_a(fake, rejection, kept):
        return -(rejection.log_a(fake) - rejection.log_rate).exp() * value(kept)

    def rate(fake, rejection, kept):
        return (rejection.log_a(fake) - rejection.log_rate).exp()

    def at_the_edge(fake, rejection, kept):
        return -value(kept.detach().min()) * (rejection.log_a(fake) - rejection.log_rate).exp()

    truth = true_gradient(name, MIDDLE, 2.0)
    extra = loss_gradient(through_a, MIDDLE, 2.0) - truth
    assert_same_gradient(extra, loss_gradient(at_the_edge, MIDDLE, 2.0))
    assert np.linalg.norm(loss_gradient(rate, MIDDLE, 2.0)) > 0.05


@pytest.mark.parametrize(
    ("name", "same_as", "factor"), [("gan", "non_saturating", 1), ("kl", "rkl", 1), ("chi2", "kl", 2)]
)
@pytest.mark.parametrize("model", [MIDDLE, MIXED], ids=["gaussian", "mixture"])
def test_the_non_saturating_loss_descends_another_divergence_exactly(name, same_as, factor, model):
    truth = factor * true_gradient(same_as, model, 1.0)
    assert_same_gradient(loss_gradient(of_mode("non_saturating", name), model, 1.0), truth)


def test_divergence_that_the_non_saturating_loss_descends_is_zero_at_one_and_convex():
    u = np.linspace(0.01, 20, 4001)
    h = F["non_saturating"](u)
    assert F["non_saturating"](1.0) == pytest.approx(0, abs=1e-15)
    assert np.all(np.diff(h, 2) > 0)
    np.testing.assert_allclose(h, F["rkl"](u) - F["gan"](u), atol=1e-12)


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


@pytest.mark.parametrize("name", FIVE)
def test_exact_loss_has_no_gradient_where_the_divergence_has_none(name):
    target, model = Mixture1D((1.0,), (0.0,), (1.0,)), Mixture1D((1.0,), (0.2,), (1.6,))
    budget = 2.0
    assert np.max(target.density(g := np.linspace(-5, 5, 1001)) / model.density(g)) < budget
    np.testing.assert_allclose(true_gradient(name, model, budget, target), 0, atol=1e-6)
    assert np.all(loss_gradient(of_mode("exact", name), model, budget, target) == 0)
    assert np.linalg.norm(true_gradient(name, model, 1.0, target)) > 0.01


# --- paper: sign and size of the gap --------------------------------------------------------------------------------


@MODELS
@pytest.mark.parametrize("name", ["kl", "chi2", "hellinger"])
def test_paper_loss_points_uphill(name, model):
    truth = true_gradient(name, model, 2.0)
    assert cosine(loss_gradient(of_mode("paper", name), model, 2.0), truth) < -0.5


def test_paper_loss_of_gan_points_uphill_for_a_wide_model_unless_its_constant_stays():
    truth = true_gradient("gan", WIDE, 2.0)
    assert cosine(loss_gradient(of_mode("paper", "gan"), WIDE, 2.0), truth) < -0.4
    assert cosine(loss_gradient(of_mode("paper_raw", "gan"), WIDE, 2.0), truth) > 0.9


@MODELS
def test_paper_losses_differ_by_the_push_on_the_rate(model):
    def rate(fake, rejection, kept):
        return (rejection.log_a(fake) - rejection.log_rate).exp()

    gap = loss_gradient(of_mode("paper_raw", "gan"), model, 2.0) - loss_gradient(of_mode("paper", "gan"), model, 2.0)
    np.testing.assert_allclose(gap, -2 * log(2) * loss_gradient(rate, model, 2.0), rtol=1e-9, atol=1e-12)


def test_value_of_the_paper_loss_is_the_divergence_after_rejection():
    rng = np.random.default_rng(0)
    fake = torch.tensor(rng.normal(-0.5, 1, 4000))
    fake -= fake.exp().mean().log()
    for name in RATIOS:
        value = generator_loss("paper", name)(fake, solve_cut(fake, 2.0))
        assert float(value) == pytest.approx(float(obrs.Profile(fake.numpy()).divergence(name, 2.0)), rel=1e-9), name


def test_samples_that_may_be_rejected_are_pushed_away_without_the_constant_and_pulled_in_with_it():
    fake = outputs(np.linspace(-3, 1, 41))
    rejection = solve_cut(fake, 2.0)
    rejected = fake.detach() < -rejection.log_c
    gradients = {}
    for mode in ["paper", "paper_raw", "exact"]:
        gradients[mode] = torch.autograd.grad(generator_loss(mode, "gan")(fake, rejection), fake)[0][rejected]
    assert torch.all(gradients["paper"] > 0), "descending lowers their ratio"
    assert torch.all(gradients["paper_raw"] < 0)
    assert torch.all(gradients["exact"] == 0)


@MODELS
@pytest.mark.parametrize("budget", [1.5, 2.0])
def test_raw_paper_loss_descends_a_divergence_of_the_model_without_rejection(model, budget):
    # E_Q[g(r)] with g falling is the dual gradient of D_h(P, Q), h''(r) = -g'(r) / r, while c stays as it is
    _, _, u = left(model, budget)
    rejection = Cut(torch.tensor(-np.log(budget * u.min())), torch.tensor(-np.log(budget)))
    x = torch.linspace(-60, 8, 400_001, dtype=torch.float64, requires_grad=True)  # log r
    slope = torch.autograd.grad(of_mode("paper_raw", "gan")(x, rejection, None).sum(), x)[0].numpy()
    assert np.all(slope < 0)
    log_r = x.detach().numpy()
    h = cumulative(np.exp(log_r) * cumulative(-slope * np.exp(-log_r), log_r), log_r)

    def value(parameters):
        p, q, _ = left(model.at(parameters), 1.0)
        return np.sum(q * np.interp(np.log(p / q), log_r, h)) * (GRID[1] - GRID[0])

    shifts = np.eye(len(model.parameters)) * 2e-3
    truth = [(value(model.parameters + s) - value(model.parameters - s)) / 4e-3 for s in shifts]
    assert_same_gradient(loss_gradient(of_mode("paper_raw", "gan"), model, budget), np.array(truth))


def cumulative(values, x):
    """The integral from the left end, by the trapezium rule."""
    return np.append(0.0, np.cumsum((values[1:] + values[:-1]) / 2 * np.diff(x)))


def test_table_in_the_guide_is_the_one_computed_here():
    page = (Path(__file__).parents[2] / "docs" / "guide" / "losses.md").read_text().splitlines()
    missing = [row for row in table() if row not in page]
    assert not missing, "run tests/training/tw_gradients.py and paste its table"


# --- every loss -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "name"), LOSSES)
@pytest.mark.parametrize("budget", [1.0, 1.7, 4.0])
def test_gradients_are_the_derivatives_of_the_values(mode, name, budget):
    loss = generator_loss(mode, name)
    rng = np.random.default_rng(3)
    fake = outputs(rng.normal(-0.5, 1.5, 12), torch.float64)
    kept = outputs(rng.normal(0, 1, 12), torch.float64)
    rejection = solve_cut(fake, budget)
    moving = kept if loss.second_critic else fake
    (gradient,) = torch.autograd.grad(loss(fake, rejection, kept), moving)
    step = 1e-6
    rounding = 1e-9 * max(1.0, float(loss(fake, rejection, kept).detach().abs()))
    for i in range(12):
        shift = torch.zeros(12, dtype=torch.float64)
        shift[i] = step
        up, down = (
            loss(fake, rejection, kept + s) if loss.second_critic else loss(fake + s, rejection, kept)
            for s in (shift, -shift)
        )
        assert float(gradient[i]) == pytest.approx(float((up - down).detach()) / (2 * step), rel=1e-5, abs=rounding)


SAFE = [(mode, name) for mode, name in LOSSES if name in ("gan", "js", "rkl") or mode in ("hinge", "wgan")]
EXTREME = [0.0, 1e-30, 1e-3, 1.0, 10.0, 19.9, 20.1, 30.0, 39.0, 41.0, 60.0, 88.0, 89.0, 104.0, 300.0, 700.0]
LIMITS = pytest.mark.parametrize("limit", [MAX_LOG_RATIO, 1000.0, 1e308])


@pytest.mark.parametrize(("mode", "name"), SAFE)
def test_losses_of_gan_and_rkl_are_not_clamped(mode, name):
    if (mode, name) == ("non_saturating", "rkl"):
        pytest.skip("e^-x: clamped, as its docstring says")
    fake = outputs([-1.0, 300.0, 650.0, 700.0])
    near, far = (value_and_gradient(generator_loss(mode, name, max_log_ratio=limit), fake, 1.5) for limit in (1, 500))
    assert torch.equal(near[0], far[0])
    assert torch.equal(near[1], far[1])


@settings(max_examples=400)
@given(
    loss=st.sampled_from(LOSSES),
    limit=st.just(MAX_LOG_RATIO) | st.floats(1e-3, 1e6),
    values=st.lists(st.floats(-1e6, 1e6, width=32) | st.floats(-100, 100, width=32), min_size=1, max_size=20),
    budget=st.floats(1, 1000),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_losses_are_finite_for_any_critic(loss, limit, values, budget, dtype):
    loss = generator_loss(*loss, max_log_ratio=limit)
    value, gradient = value_and_gradient(loss, outputs(values, dtype), budget)
    assert torch.isfinite(value)
    assert torch.all(torch.isfinite(gradient))


@pytest.mark.parametrize(("mode", "name"), LOSSES)
def test_losses_show_a_nan(mode, name):
    fake = outputs([0.3, float("nan"), -1.0])
    assert torch.isnan(value_and_gradient(generator_loss(mode, name), fake, 2.0)[0])


@pytest.mark.parametrize(("mode", "name"), LOSSES)
def test_half_precision_is_widened(mode, name):
    values = [1.5, 0.5, -1.0, -2.0]
    wide = value_and_gradient(generator_loss(mode, name), outputs(values), 2.0)[0]
    half = value_and_gradient(generator_loss(mode, name), outputs(values, torch.bfloat16), 2.0)[0]
    assert half.dtype == torch.float32
    assert torch.equal(half, wide)


def scaled(name, factor):
    """A divergence of the registry times a factor, as a user would write it."""
    of = DIVERGENCES[name]
    return obrs.divergences.FDivergence(
        f"{factor:g} {name}",
        f=lambda x: factor * of.f(x),
        conjugate=lambda t: factor * of.conjugate(t / factor),
        critic=lambda x: factor * of.critic(x),
        log_ratio=lambda t: of.log_ratio(np.divide(t, factor)),
        f_star_of_f_prime=lambda x: factor * of.f_star_of_f_prime(x),
    )


def test_losses_accept_divergences_outside_the_registry():
    fake, record = outputs([1.0, 0.2, -2.0]), scaled("chi2", 0.5)
    value, _ = value_and_gradient(generator_loss("exact", record), fake, 1.5)
    chi2, _ = value_and_gradient(generator_loss("exact", "chi2"), fake, 1.5)
    assert float(value) == pytest.approx(float(chi2) / 2, rel=1e-6)
    assert critic_loss(record).name == "0.5 chi2"


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


@pytest.mark.parametrize("name", CRITIC_LOSSES)
def test_critic_losses_are_finite_and_lead_back_from_anywhere(name):
    values = [s * x for x in EXTREME for s in (-1, 1)]
    real, fake = outputs(values), outputs(values)
    value = CRITIC_LOSSES[name](real, fake)
    on_real, on_fake = torch.autograd.grad(value, (real, fake))
    assert torch.isfinite(value)
    assert torch.all(torch.isfinite(on_real))
    assert torch.all(torch.isfinite(on_fake))
    if name != "chi2":  # whose T = 2 (r - 1) is flat there
        assert torch.all(on_real[real < -25] < 0), "a real sample called fake"
    if name != "neyman":  # whose f*(T) = 2 - 2/r is
        assert torch.all(on_fake[fake > 25] > 0), "a fake sample called real"


@LIMITS
@pytest.mark.parametrize("of", RATIOS)
def test_critic_losses_are_finite_at_any_limit_with_or_without_weights(of, limit):
    loss = critic_loss(of, max_log_ratio=limit)
    values = [s * x for x in EXTREME for s in (-1, 1)]
    cut = solve_cut(torch.tensor(values), 30.0)
    for log_weight in (None, cut.log_a(torch.tensor(values)) - cut.log_rate):
        real, fake = outputs(values), outputs(values)
        value = loss(real, fake, log_weight)
        assert torch.isfinite(value)
        assert all(torch.all(torch.isfinite(g)) for g in torch.autograd.grad(value, (real, fake)))


@pytest.mark.parametrize("key", ["f", "critic", "f_star_of_f_prime"])
@pytest.mark.parametrize("name", RATIOS)
def test_default_limit_is_below_where_a_divergence_of_the_registry_outgrows_single_precision(name, key):
    function = getattr(DIVERGENCES[name], key)
    assert _reach(function, -_PROBES) > MAX_LOG_RATIO
    assert _reach(function, _PROBES) > MAX_LOG_RATIO


def test_limit_is_cut_on_the_side_that_grows():
    terms = critic_loss("kl", max_log_ratio=1000.0).fake(torch.tensor([50.0, 700.0, -80.0]))  # r
    assert terms[0] == torch.tensor(50.0).exp()
    assert terms[0] < terms[1] < 1e28
    assert terms[2] == torch.tensor(-80.0).exp()


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
        assert not loss.of_ratio
        assert loss.divergence is None


def test_clamp_keeps_the_value_and_the_gradient_of_the_limit():
    fake = outputs([MAX_LOG_RATIO, MAX_LOG_RATIO + 5])
    terms = critic_loss("kl").fake(fake)
    assert terms[0] == terms[1]
    at, beyond = torch.autograd.grad(terms.sum(), fake)[0]
    assert at == beyond
    assert at == pytest.approx(np.exp(MAX_LOG_RATIO), rel=1e-5)


# --- gradient penalty -----------------------------------------------------------------------------------------------


def test_gradient_penalty_of_a_linear_critic_is_known():
    weight = torch.tensor([3.0, 4.0], requires_grad=True)
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    penalty = gradient_penalty(lambda x: x @ weight, x, x + 1, torch.rand(5))
    assert float(penalty.detach()) == pytest.approx(16.0, rel=1e-6)
    expected = 2 * 4 * weight.detach() / 5
    torch.testing.assert_close(torch.autograd.grad(penalty, weight)[0], expected)
    flat = gradient_penalty(lambda x: x @ weight, x, x, torch.rand(5), centre=0.0)
    assert float(flat.detach()) == pytest.approx(25, rel=1e-6)


def test_gradient_penalty_is_taken_between_the_samples():
    real, fake = torch.zeros(2, 1, 2, 2), torch.ones(2, 1, 2, 2)
    seen = []

    def critic(x):
        seen.append(x.detach().amin((1, 2, 3)).tolist())
        return x.sum((1, 2, 3))

    gradient_penalty(critic, real, fake, torch.tensor([1.0, 0.25]))
    assert seen == [[0.0, 0.75]]


def test_gradient_penalty_of_a_flat_critic_has_a_finite_gradient():
    weight = torch.zeros(2, requires_grad=True)
    penalty = gradient_penalty(lambda x: x @ weight, torch.zeros(3, 2), torch.ones(3, 2), torch.rand(3))
    assert torch.all(torch.isfinite(torch.autograd.grad(penalty, weight)[0]))


# --- the constant ---------------------------------------------------------------------------------------------------


def test_rejection_is_solved_without_a_gradient_and_meets_the_budget():
    fake = outputs(np.random.default_rng(0).normal(0, 2, 1000))
    rejection = solve_cut(fake, 3.0)
    assert not rejection.log_c.requires_grad
    assert not rejection.log_rate.requires_grad
    assert float(rejection.log_rate) == pytest.approx(-log(3), abs=1e-5)
    assert float(rejection.log_c) == pytest.approx(float(obrs.solve_log_c(fake.detach(), 3.0)))


def test_rate_beyond_exact_rejection_is_that_of_exact_rejection():
    r = torch.tensor([2.0, 1.0, 0.5, 0.5])  # mean 1, M = 2
    rejection = solve_cut(r.log(), 8.0)
    assert float(rejection.log_rate.exp()) == pytest.approx(0.5)
    torch.testing.assert_close(rejection.log_u(r.log()), torch.zeros(4))


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=50),
    st.floats(1, 50),
)
def test_what_is_kept_has_mass_one_and_meets_the_ratio(values, budget):
    log_ratio = torch.tensor(values, dtype=torch.float64)
    rejection = solve_cut(log_ratio, budget)
    kept, log_u = (rejection.log_a(log_ratio) - rejection.log_rate), rejection.log_u(log_ratio)
    assert float(kept.exp().mean()) == pytest.approx(1, rel=1e-9)
    torch.testing.assert_close(kept + log_u, log_ratio)


def test_c_is_that_of_the_batch_and_solved_every_so_often():
    rng = np.random.default_rng(0)
    batches = torch.tensor(rng.normal(0, 1, (7, 32)))
    window = BudgetWindow(2.0, every=3)
    seen = [window.update(batch) for batch in batches]
    assert seen[0] is seen[1] is seen[2]
    assert seen[3] is seen[5]
    expected = solve_cut(batches[3], 2.0)
    assert torch.equal(seen[3].log_c, expected.log_c)
    assert not torch.equal(seen[6].log_c, seen[5].log_c)
    latest = BudgetWindow(2.0)
    for batch in batches:
        assert torch.equal(latest.update(batch).log_c, solve_cut(batch, 2.0).log_c)


@pytest.mark.parametrize("stop", range(5))
def test_window_goes_on_from_its_state_as_if_nothing_had_happened(stop):
    batches = torch.tensor(np.random.default_rng(0).normal(0, 1, (9, 16)))
    whole, first, second = (BudgetWindow(2.0, every=2) for _ in range(3))
    for batch in batches[:stop]:
        first.update(batch)
    second.load_state_dict({key: value.clone() for key, value in first.state_dict().items()})
    resumed = [second.update(batch).log_c for batch in batches[stop:]]
    expected = [whole.update(batch).log_c for batch in batches][stop:]
    assert all(map(torch.equal, resumed, expected))


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: critic_loss("hing"), UnknownNameError, "unknown critic loss 'hing'; did you mean 'hinge'?"),
        (lambda: generator_loss("exakt"), UnknownNameError, "unknown generator loss 'exakt'; did you mean 'exact'?"),
        (lambda: generator_loss("exact", "hellingr"), UnknownNameError, "did you mean 'hellinger'?"),
        (lambda: generator_loss("exact", 3), InputTypeError, "a divergence must be a name in DIVERGENCES"),
        (lambda: generator_loss("exact", "tv"), DivergenceError, "tv has no log_ratio"),
        (lambda: critic_loss(obrs.divergences.pr(2)), DivergenceError, "has no log_ratio"),
        (lambda: critic_loss(scaled("chi2", 1e40)), DivergenceError, "outgrows float32 at ratios next to 1"),
        (lambda: critic_loss("tv"), UnknownNameError, "unknown critic loss 'tv'"),
        (lambda: generator_loss("paper_raw", "kl"), DivergenceError, "paper_raw is for gan"),
        (
            lambda: critic_loss("kl", max_log_ratio=0),
            InputError,
            "max_log_ratio must be a finite number above 0, got 0",
        ),
        (lambda: generator_loss("dual", max_log_ratio=np.inf), InputError, "max_log_ratio must be a finite number"),
        (lambda: generator_loss("exact")(torch.zeros(3)), InputError, "'exact' needs the rejection of this step"),
        (lambda: generator_loss("dual")(torch.zeros(3, 1)), InputError, "shape (n,), got (3, 1); squeeze it"),
        (lambda: generator_loss("dual")(torch.zeros(3, 2)), InputError, "shape (n,), got (3, 2)"),
        (lambda: generator_loss("dual")(torch.zeros(0)), InputError, "shape (n,), got (0,)"),
        (lambda: generator_loss("dual")(np.zeros(3)), InputTypeError, "floating torch tensor of critic outputs"),
        (lambda: critic_loss("gan")(torch.zeros(3).long(), torch.zeros(3)), InputTypeError, "real must be a floating"),
        (lambda: solve_cut(torch.zeros(3), 0.5), BudgetError, "did you mean budget=2"),
        (lambda: BudgetWindow(0), BudgetError, "budget must be at least 1"),
        (lambda: BudgetWindow(2).pass_over(), InputError, "this update needs log-ratios"),
        (lambda: BudgetWindow(2, every=1.5), InputError, "every must be a whole number of at least 1"),
        (lambda: BudgetWindow(2).load_state_dict({"updates": torch.tensor(2)}), InputError, "lacks log_c, log_rate"),
        (
            lambda: generator_loss("two_critics")(torch.zeros(3), solve_cut(torch.zeros(3), 2)),
            InputError,
            "'two_critics' needs kept=",
        ),
        (
            lambda: generator_loss("two_critics")(torch.zeros(3), solve_cut(torch.zeros(3), 2), torch.zeros(2)),
            InputError,
            "kept must have the shape of fake (3,), got (2,)",
        ),
        (
            lambda: gradient_penalty(torch.sum, torch.zeros(3, 2), torch.zeros(2, 2), torch.zeros(3)),
            InputError,
            "real and fake must have one shape",
        ),
    ],
)
def test_mistakes_are_named_in_one_line(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("key", ["f", "critic", "f_star_of_f_prime"])
@pytest.mark.parametrize("name", ["gan", "js"])
def test_the_kernels_of_a_loss_are_the_divergence_of_that_name(name, key, dtype):
    x = torch.tensor([-700.0, -41, -39, -20, -3, -1e-3, 0, 1e-3, 1.1, 3, 20, 39, 41, 700], dtype=dtype)
    x.requires_grad_()
    quick, record = _IN_KERNELS[name][key], DIVERGENCES[name]
    (slopes,) = torch.autograd.grad(quick(x).sum(), x)
    x = x.detach()
    rounding = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(quick(x), getattr(record, key)(x), rtol=rounding, atol=rounding)
    # the derivatives in log u: u f'(u), u f''(u) and u² f''(u)
    u, share = x.double().exp(), torch.sigmoid(x.double())
    truth = {"f": u * torch.nn.functional.logsigmoid(x.double()), "critic": 1 - share, "f_star_of_f_prime": share}[key]
    truth = torch.where(x > 40, -1.0, truth) if key == "f" else truth
    scale = 0.5 if name == "js" else 1.0
    torch.testing.assert_close(slopes.double(), scale * truth, rtol=8 * rounding, atol=rounding)
