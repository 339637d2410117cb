"""DOT, DGflow and DDLS move samples as their equations say, and closer to the target where they can."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from obrs.rivals import DDLS, DOT, DGflow, Model, lipschitz
from obrs.sampling.samples import Calls

torch = pytest.importorskip("torch")

MU = np.array([1.0, -0.5])
SMALL = {
    "dot": DOT(steps=5, k_eff=1.0),
    "dot sgd": DOT(steps=5, optimiser="sgd", pairs=20, repeats=2),
    "dot latent": DOT(space="latent", steps=5, pairs=20, repeats=2),
    "dot tangent": DOT(space="latent", steps=5, k_eff=1.0, project="tangent"),
    "dgflow kl": DGflow(steps=5),
    "dgflow logd": DGflow("logd", steps=5),
    "dgflow js": DGflow("js", steps=5),
    "ddls": DDLS(steps=5),
    "ddls decay": DDLS(steps=5, noise_std=0.05, decay=0.5, decay_every=2),
}
each = pytest.mark.parametrize("sampler", SMALL.values(), ids=SMALL)


def shift(dtype=torch.float64, mu=MU):
    """Q = N(0, I) with G the identity, P = N(mu, I)."""
    m = torch.tensor(mu, dtype=dtype)
    return Model(lambda z: z, lambda x: x @ m - m @ m / 2, dim=len(mu), like=torch.empty(0, dtype=dtype))


def networks(dtype=torch.float64, dim=3):
    """A generator and a critic with parameters that require a gradient."""
    torch.manual_seed(0)
    generate = torch.nn.Sequential(torch.nn.Linear(dim, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(dtype)
    critic = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(dtype)
    model = Model(generate, lambda x: critic(x)[:, 0], dim=dim, like=torch.empty(0, dtype=dtype))
    return model, generate, critic


def assert_moments(x, mean, cov, n):
    """The sample mean and covariance are those, within four to five standard errors."""
    x = x.numpy()
    z = NormalDist().inv_cdf(1 - 1e-6)
    np.testing.assert_array_less(np.abs(x.mean(0) - mean), z * np.sqrt(np.diag(cov) / n))
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    np.testing.assert_array_less(np.abs(np.cov(x.T) - cov), z * error)


class TestDDLS:
    def test_draws_from_the_target_in_latent_space(self):
        n, step, steps = 4000, 0.05, 250
        x = DDLS(step=step, steps=steps)(shift(), n).x
        left = (1 - step / 2) ** steps
        assert left < 0.002
        assert_moments(x, MU * (1 - left), np.eye(2) / (1 - step / 4), n)  # an AR(1) process, exactly
        assert_moments(x, MU, np.eye(2), n)

    def test_noise_of_each_step_is_new_and_independent(self):
        flat = Model(lambda z: z, lambda x: 0 * x.sum(1), dim=3, like=torch.empty(0, dtype=torch.float64))
        ends = [DGflow(step=0.5, noise=1.0, steps=t)(flat, 3000).x for t in (1, 2, 3)]
        start = flat.latent(np.arange(3000))
        noise = torch.cat([ends[0] - start, ends[1] - ends[0], ends[2] - ends[1], start], 1).numpy()
        np.testing.assert_allclose(np.cov(noise.T), np.eye(12), atol=5 * np.sqrt(2 / 3000))


class TestDGflow:
    def test_moments_are_those_of_the_equation(self):
        n = 4000
        for steps in (1, 10):
            x = DGflow(steps=steps, noise=0.2)(shift(), n).x
            assert_moments(x, 0.1 * steps * MU, np.eye(2) * (1 + 2 * 0.1 * 0.2 * steps), n)


class TestDOT:
    def test_steps_of_sgd_are_those_computed_by_hand(self):
        a, k, n = np.array([3.0, -4.0]), 2.0, 6
        model = Model(lambda z: z, lambda x: x @ torch.tensor(a), dim=2, like=torch.empty(0, dtype=torch.float64))
        y = model.latent(np.arange(n)).numpy()
        x = y.copy()
        for _ in range(4):
            gap = x - y + 0.001
            x = x - 0.05 * (gap / np.sqrt((gap**2).sum(1, keepdims=True)) - a / k)
        moved = DOT(optimiser="sgd", lr=0.05, k_eff=k, steps=4)(model, n)
        np.testing.assert_allclose(moved.x.numpy(), x, rtol=1e-12)

    @pytest.mark.parametrize("space", ["target", "latent"])
    def test_gradient_is_that_of_the_objective(self, space):
        model, generate, _ = networks()
        n, k, h = 4, 0.7, 1e-5
        with torch.no_grad():
            z = model.latent(np.arange(n))
            start = z if space == "latent" else generate(z)
            lift = (lambda s: generate(s)) if space == "latent" else (lambda s: s)

            def objective(s):
                return -model.log_ratio(lift(s)) / k + (s - start + 0.1).square().sum(1).sqrt()

            point = start + 0.3
            numerical = torch.zeros_like(point)
            for i in range(point.shape[1]):
                bump = torch.zeros_like(point)
                bump[:, i] = h
                numerical[:, i] = (objective(point + bump) - objective(point - bump)) / (2 * h)
        dot = DOT(space=space, optimiser="sgd", lr=1.0, k_eff=k, offset=0.1)
        torch.testing.assert_close(-dot._drift(model, start)(point, 0), numerical, atol=1e-8, rtol=1e-6)

    @pytest.mark.parametrize("betas", [(0.0, 0.9), (0.9, 0.999)])
    def test_adam_is_that_of_torch(self, betas):
        model, generate, critic = networks()
        with torch.no_grad():
            y = generate(model.latent(np.arange(7)))
        x = y.clone().requires_grad_()
        adam = torch.optim.Adam([x], lr=0.02, betas=betas)
        for _ in range(6):
            adam.zero_grad()
            (-critic(x)[:, 0] / 0.5 + (x - y + 0.001).norm(dim=1)).sum().backward()
            adam.step()
        moved = DOT(lr=0.02, betas=betas, k_eff=0.5, steps=6)(model, 7).x
        torch.testing.assert_close(moved, x.detach(), atol=1e-9, rtol=1e-7)

    def test_tangent_projection_keeps_the_length_to_first_order(self):
        def published_projection(gradient, z):  # of DOT's published code; a projection would divide by |z|²
            return gradient - (gradient * z).sum(1, keepdim=True) * z / np.sqrt(z.shape[1])

        model = networks()[0]
        z = model.latent(np.arange(6))
        plain, tangent, published = (
            DOT(space="latent", optimiser="sgd", lr=1.0, k_eff=1.0, project=p)._drift(model, z)(z, 0)
            for p in (None, "tangent", published_projection)
        )
        along = (plain * z).sum(1)
        torch.testing.assert_close((tangent * z).sum(1), torch.zeros_like(along), atol=1e-12, rtol=0)
        torch.testing.assert_close((published * z).sum(1), along * (1 - z.square().sum(1) / np.sqrt(3)))


class TestLipschitz:
    def test_is_at_most_the_slope_of_a_linear_critic_and_close_to_it(self):
        a = torch.tensor([3.0, -4.0], dtype=torch.float64)
        model = replace(shift(), log_ratio=lambda x: x @ a)
        assert 4.99 < lipschitz(model) <= 5 + 1e-12
        doubled = replace(model, generate=lambda z: 2 * z)
        assert lipschitz(doubled) == pytest.approx(lipschitz(model))
        assert lipschitz(doubled, space="latent") == pytest.approx(2 * lipschitz(model))

    def test_is_used_and_counted_unless_it_is_given(self):
        model = shift()
        k = lipschitz(model, pairs=20, repeats=3)
        guessed, given = (DOT(steps=4, pairs=20, repeats=3, k_eff=k_eff)(model, 9) for k_eff in (None, k))
        assert torch.equal(guessed.x, given.x)
        assert given.calls == Calls(generator=9, critic=36, critic_gradient=36)
        assert guessed.calls == given.calls + Calls(generator=120, critic=120)


@each
class TestEverySampler:
    def test_result_does_not_depend_on_the_batch_size(self, sampler):
        model = networks()[0]
        whole = sampler(model, 25)
        for size in (1, 7):
            parts = replace(sampler, batch_size=size)(model, 25)
            torch.testing.assert_close(parts.x, whole.x, atol=1e-12, rtol=1e-12)
            assert parts.calls == whole.calls
        assert torch.allclose(sampler(model, 10).x, whole.x[:10], atol=1e-12)

    def test_parameters_are_left_alone(self, sampler):
        model, generate, critic = networks()
        critic[0].weight.requires_grad_(False)
        generate[0].weight.grad = torch.ones_like(generate[0].weight)
        before = [p.clone() for net in (generate, critic) for p in net.parameters()]
        with torch.no_grad():
            moved = sampler(model, 5)
        parameters = [p for net in (generate, critic) for p in net.parameters()]
        assert all(torch.equal(p, old) for p, old in zip(parameters, before, strict=True))
        assert torch.equal(generate[0].weight.grad, torch.ones_like(generate[0].weight))
        assert sum(p.grad is not None for p in parameters) == 1
        assert [p.requires_grad for p in critic.parameters()] == [False, True, True, True]
        assert not moved.x.requires_grad


def test_ddls_is_dgflow_with_the_prior():
    """DGflow for KL at gamma = 1 on d + log prior is DDLS with twice the step."""
    model = networks()[0]
    model = replace(model, generate=lambda z: z, log_ratio=lambda x: torch.tanh(x).sum(1))
    with_prior = replace(model, log_ratio=lambda x: model.log_ratio(x) - x.square().sum(1) / 2)
    flow = DGflow(step=0.05, noise=1.0, steps=8)(with_prior, 20).x
    torch.testing.assert_close(DDLS(step=0.1, steps=8)(model, 20).x, flow)
