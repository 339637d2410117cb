"""DOT, DGflow and DDLS move samples as their equations say, and closer to the target where they can."""

import subprocess
import sys
from dataclasses import asdict, replace
from statistics import NormalDist

import numpy as np
import pytest

from obrs.errors import BudgetError, InputError, InputTypeError, RatioError, UnknownNameError
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


def shifted(dtype=torch.float64, mu=MU):
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


def kl_of_normals(mean, cov, to_mean, to_cov):
    inverse = np.linalg.inv(to_cov)
    gap = to_mean - mean
    spread = np.trace(inverse @ cov) - len(mean) - np.log(np.linalg.det(cov) / np.linalg.det(to_cov))
    return 0.5 * (spread + gap @ inverse @ gap)


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
        x = DDLS(step=step, steps=steps)(shifted(), n).x
        left = (1 - step / 2) ** steps
        assert left < 0.002
        assert_moments(x, MU * (1 - left), np.eye(2) / (1 - step / 4), n)  # an AR(1) process, exactly
        assert_moments(x, MU, np.eye(2), n)

    def test_noise_is_a_standard_deviation_and_sets_the_temperature(self):
        n, step = 4000, 0.1
        cold = DDLS(step=step, noise_std=np.sqrt(step / 4), steps=150)(shifted(), n).x
        assert_moments(cold, MU, np.eye(2) / 4 / (1 - step / 4), n)

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
            x = DGflow(steps=steps, noise=0.2)(shifted(), n).x
            assert_moments(x, 0.1 * steps * MU, np.eye(2) * (1 + 2 * 0.1 * 0.2 * steps), n)

    def test_divergence_falls_at_every_checkpoint_and_rises_again_far_beyond(self):
        n, model, eye = 4000, shifted(), np.eye(2)

        def left(steps):
            x = (DGflow(steps=steps)(model, n).x if steps else model.propose(np.arange(n))).numpy()
            return kl_of_normals(x.mean(0), np.cov(x.T), MU, eye), kl_of_normals(MU, eye, x.mean(0), np.cov(x.T))

        forward, backward = np.array([left(steps) for steps in (0, 2, 4, 6, 8, 10)]).T
        assert (np.diff(forward) < 0).all()
        assert (np.diff(backward) < 0).all()
        assert forward[-1] < 0.02 * forward[0]
        assert left(25)[0] > forward[0]  # the published 25 steps overshoot: the ratio is frozen


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
        model = replace(shifted(), log_ratio=lambda x: x @ a)
        assert 4.99 < lipschitz(model) <= 5 + 1e-12
        doubled = replace(model, generate=lambda z: 2 * z)
        assert lipschitz(doubled) == pytest.approx(lipschitz(model))
        assert lipschitz(doubled, space="latent") == pytest.approx(2 * lipschitz(model))

    def test_is_used_and_counted_unless_it_is_given(self):
        model = shifted()
        k = lipschitz(model, pairs=20, repeats=3)
        guessed, given = (DOT(steps=4, pairs=20, repeats=3, k_eff=k_eff)(model, 9) for k_eff in (None, k))
        assert torch.equal(guessed.x, given.x)
        assert given.calls == Calls(generator=9, critic=36, critic_gradient=36)
        assert guessed.calls == given.calls + Calls(generator=120, critic=120)

    def test_flat_critic_and_collapsed_generator_are_refused(self):
        flat = replace(shifted(), log_ratio=lambda x: 0 * x[:, 0])
        with pytest.raises(RatioError, match=r"slope 0 over 1000 random pairs; check it, or give k_eff"):
            DOT()(flat, 3)
        with pytest.raises(RatioError, match="slope 0"):
            lipschitz(replace(shifted(), generate=lambda z: 0 * z))


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

    def test_inference_mode_is_no_obstacle(self, sampler):
        model = networks()[0]
        plain = sampler(model, 5).x
        with torch.inference_mode():
            inside = sampler(model, 5).x
        assert torch.equal(inside, plain)

    def test_record_says_what_was_made_and_called(self, sampler):
        model, generate, critic = networks()
        seen = {"generator": 0, "critic": 0, "generator_gradient": 0, "critic_gradient": 0}

        def count(name, x):
            seen[name] += len(x)
            if x.requires_grad and torch.is_grad_enabled():
                seen[f"{name}_gradient"] += len(x)

        counted = replace(
            model,
            generate=lambda z: (count("generator", z), generate(z))[1],
            log_ratio=lambda x: (count("critic", x), critic(x)[:, 0])[1],
        )
        made = replace(sampler, batch_size=4)(counted, 10, progress=False)
        assert made.calls == made.executed_calls == Calls(**seen)
        assert (len(made), made.proposed, made.executed, made.next_id, made.rate) == (10, 10, 10, 10, 1.0)
        np.testing.assert_array_equal(made.ids, np.arange(10))
        np.testing.assert_array_equal(made.log_weight, np.zeros(10))
        assert np.isnan(made.log_ratio).all()
        assert made.x.shape == (10, 2)
        assert made.seconds > 0

    def test_gradient_that_is_no_number_names_the_step(self, sampler):
        def log_ratio(x):
            calls.append(0)
            return (x * float("nan") if len(calls) == 3 else x).sum(1)

        calls = []
        with pytest.raises(RatioError, match=r"NaN or infinite for 6 of 6 samples at step 3 of 5; check the critic"):
            replace(sampler, **({"k_eff": 1.0} if isinstance(sampler, DOT) else {}))(
                replace(shifted(), log_ratio=log_ratio), 6
            )

    def test_what_has_no_gradient_is_refused(self, sampler):
        model, generate, critic = networks()
        line = r"log_ratio\(.*\) must be differentiable by torch, and is not; look for detach"
        sampler = replace(sampler, k_eff=1.0) if isinstance(sampler, DOT) else sampler
        detached = replace(model, log_ratio=lambda x: critic(x.detach())[:, 0])
        rounded = replace(model, log_ratio=lambda x: critic(x).argmax(1))
        for broken in (detached, rounded):
            with pytest.raises(InputError, match=line):
                sampler(broken, 3)
        with pytest.raises(InputError, match=r"log_ratio must return a tensor of shape \(3,\), got ndarray"):
            sampler(replace(model, log_ratio=lambda x: critic(x)[:, 0].detach().numpy()), 3)
        with pytest.raises(InputError, match=r"shape \(3,\), got \(3, 1\)"):
            sampler(replace(model, log_ratio=critic), 3)
        with pytest.raises(InputError, match="generate must return one item per id, 3 of them, got 2"):
            sampler(replace(model, generate=lambda z: generate(z)[1:]), 3)


@pytest.mark.parametrize("sampler", [DGflow(steps=4), DDLS(0.05, steps=100)], ids=str)
def test_divergence_to_a_mixture_falls(sampler):
    """P has two unequal modes, Q = N(0, I) none; the divergence is that of histograms."""
    m = torch.tensor([1.2, 0.0])
    weights = torch.tensor([0.7, 0.3]).log()

    def log_ratio(x):
        modes = torch.stack([-((x - m) ** 2).sum(1), -((x + m) ** 2).sum(1)], 1) / (2 * 0.6)
        return torch.logsumexp(weights + modes, 1) - np.log(0.6) + x.square().sum(1) / 2

    model = Model(lambda z: z, log_ratio, dim=2, like=torch.empty(0))
    n, edges = 6000, np.linspace(-4, 4, 25)
    grid = np.linspace(-4, 4, 24 * 20 + 1)
    at = (grid[:-1] + grid[1:]) / 2  # the first coordinate of P is a mixture of two normals
    p = (0.7 * np.exp(-((at - 1.2) ** 2) / 1.2) + 0.3 * np.exp(-((at + 1.2) ** 2) / 1.2)).reshape(24, 20).sum(1)
    p /= p.sum()

    def left(x):
        q = (np.histogram(x[:, 0].numpy(), edges)[0] + 0.5) / (n + 12)
        return np.sum(p * np.log(p / q))

    assert left(sampler(model, n).x) < 0.6 * left(model.propose(np.arange(n)))


def test_batches_of_several_arrays_are_refined_in_latent_space():
    model = Model(lambda z: {"image": z[:, :2], "latent": z}, lambda x: x["image"].sum(1), dim=3, like=torch.empty(0))
    for sampler in (DGflow(steps=2), DDLS(steps=2), DOT(space="latent", steps=2)):
        x = sampler(model, 5).x
        assert torch.equal(x["image"], x["latent"][:, :2])
    with pytest.raises(
        InputTypeError, match="target space needs one array of generate, got a dict; use space='latent'"
    ):
        DOT(k_eff=1.0)(model, 5)


def test_ddls_is_dgflow_with_the_prior():
    """DGflow for KL at gamma = 1 on d + log prior is DDLS with twice the step."""
    model = networks()[0]
    model = replace(model, generate=lambda z: z, log_ratio=lambda x: torch.tanh(x).sum(1))
    with_prior = replace(model, log_ratio=lambda x: model.log_ratio(x) - x.square().sum(1) / 2)
    flow = DGflow(step=0.05, noise=1.0, steps=8)(with_prior, 20).x
    torch.testing.assert_close(DDLS(step=0.1, steps=8)(model, 20).x, flow)


@pytest.mark.parametrize("kind", [DOT, DGflow, DDLS])
def test_budget_becomes_steps_and_published_constants_are_the_defaults(kind):
    published = {
        DOT: {"steps": 100, "lr": 0.01, "betas": (0.0, 0.9), "pairs": 100, "repeats": 10, "offset": 0.001},
        DGflow: {"f": "kl", "step": 0.1, "noise": 0.01, "steps": 25},
        DDLS: {"step": 0.01, "noise_std": None, "steps": 1000},
    }[kind]
    assert asdict(kind()) | published == asdict(kind())
    assert [kind.at_budget(budget).steps for budget in (1, 2, 2.6, 25)] == [1, 2, 3, 25]
    assert replace(kind.at_budget(2.6), steps=kind().steps) == kind()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: DGflow(f="tv"), UnknownNameError, "unknown f 'tv'; there are: kl, logd, js"),
        (lambda: DOT(space="pixel"), UnknownNameError, "unknown space 'pixel'; there are: target, latent"),
        (lambda: DOT(optimiser="lbfgs"), UnknownNameError, "unknown optimiser 'lbfgs'; there are: adam, sgd"),
        (lambda: DOT(project="sphere"), UnknownNameError, "unknown project 'sphere'; there are: tangent"),
        (lambda: DDLS.at_budget(0.5), BudgetError, r"at least 1 proposal per sample, got 0\.5"),
        (lambda: DGflow(steps=2.5), InputError, "steps must be a whole number of at least 1, got 2.5"),
        (lambda: DDLS(step=-0.1), InputError, "step must be a finite number above 0, got -0.1"),
        (lambda: DGflow(noise=-1), InputError, "noise must be a finite number of at least 0, got -1"),
        (lambda: DDLS(decay=1.5), InputError, "decay must be above 0 and at most 1, got 1.5"),
        (lambda: DOT(k_eff=0), InputError, "k_eff must be a finite number above 0, got 0"),
        (lambda: lipschitz(shifted(), pairs=0), InputError, "pairs must be a whole number of at least 1, got 0"),
        (lambda: DGflow()(Model(lambda z: z, lambda x: x[:, 0], dim=2), 3), InputTypeError, "needs torch; give Model"),
    ],
)
def test_constants_out_of_range_say_what_is_expected(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_importing_the_room_does_not_load_torch():
    code = "import sys, obrs.rivals; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
