"""The steps of critic and generator by themselves, against the paper's lines written out by hand."""

from math import log

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import obrs
from obrs.budget import solve_cut
from obrs.models.mlp import mlp_critic, mlp_generator
from obrs.training import critic_loss, critic_step, generator_loss, generator_step
from obrs.training import step as module


@pytest.fixture
def pair():
    """Two networks with their optimisers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        networks = mlp_generator(width=16), mlp_critic(width=16)
    return [(network, torch.optim.SGD(network.parameters(), 1e-2)) for network in networks]


@pytest.fixture
def x():
    return torch.randn(3, 32, 2, generator=torch.Generator().manual_seed(1))


def gradients(network):
    return torch.cat([p.grad.flatten() for p in network.parameters()])


def test_a_critic_step_ascends_the_dual_bound_and_leaves_the_generator_alone(pair, x):
    (generator, _), (critic, sgd) = pair
    before = {name: w.detach().clone() for name, w in critic.named_parameters()}
    # T = f'(r) of the GAN divergence is logsigmoid(log r), and f*(T) is softplus(log r) - 2 log 2
    bound = F.logsigmoid(critic(x[0])).mean() - F.softplus(critic(generator(x[1]).detach())).mean()
    expected = torch.autograd.grad(-bound, critic.parameters())
    result = critic_step(critic, sgd, x[0], generator(x[1]), loss=critic_loss("gan"))
    torch.testing.assert_close(gradients(critic), torch.cat([g.flatten() for g in expected]))
    assert float(result["critic"]) == pytest.approx(float(-bound.detach()) - 2 * log(2), abs=1e-5)
    for name, w in critic.named_parameters():
        torch.testing.assert_close(w, before[name] - 1e-2 * w.grad)
    assert all(p.grad is None for p in generator.parameters())


def test_penalties_are_taken_at_the_labels_of_the_real_samples():
    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = nn.Parameter(torch.tensor([3.0, 4.0]))

        def forward(self, x, labels):
            return (labels + 1) * (x @ self.slope)

    critic, real, fake = Critic(), torch.randn(3, 2), torch.randn(3, 2)
    labels = torch.tensor([0, 0, 1]), torch.tensor([5, 5, 5])
    options = {"loss": critic_loss("wgan"), "r1": 0.5, "gradient_penalty": 2.0, "mix": torch.rand(3)}
    sgd = torch.optim.SGD(critic.parameters(), 0.0)
    result = critic_step(critic, sgd, (real, labels[0]), (fake, labels[1]), **options)
    assert float(result["r1"]) == pytest.approx((25 + 25 + 100) / 3, rel=1e-5)  # squared slopes 5, 5 and 10
    assert float(result["penalty"]) == pytest.approx((16 + 16 + 81) / 3, rel=1e-5)
    plain = -critic(real, labels[0]).mean() + critic(fake, labels[1]).mean()
    assert float(result["critic"]) == pytest.approx(float(plain.detach()), abs=1e-5)
    norm = critic.slope.detach() / 5
    sums = torch.autograd.grad(plain, critic.slope)[0] + (0.5 / 2) * 2 * (5 + 5 + 2 * 10) / 3 * norm
    torch.testing.assert_close(critic.slope.grad, sums + 2.0 * 2 * (4 + 4 + 2 * 9) / 3 * norm)


def test_a_generator_step_descends_algorithm_2_and_leaves_the_critic_alone(pair, x):
    (generator, sgd), (critic, _) = pair
    log_r = critic(generator(x[0]))
    log_c = obrs.solve_log_c(log_r.detach(), 1.001)
    a, r = torch.clamp(log_r + log_c, max=0.0).exp(), log_r.exp()
    k_a = a / a.detach().mean()  # K a, as 1/K = E_Q[a] while K <= M
    u = r / k_a
    loss = (k_a * (u * u.log() - (u + 1) * (u + 1).log())).mean()
    expected = torch.autograd.grad(loss, generator.parameters())
    result = generator_step(generator, critic, sgd, x[0], loss=generator_loss("paper_raw"), budget=1.001)
    assert all(p.grad is None and p.requires_grad for p in critic.parameters())
    by_hand = torch.cat([g.flatten() for g in expected])
    torch.testing.assert_close(gradients(generator), by_hand, rtol=1e-4, atol=1e-6)
    assert float(result.loss) == pytest.approx(float(loss.detach()), abs=1e-5)
    assert float(result.cut.log_c) == pytest.approx(float(log_c), abs=1e-5)


@pytest.mark.parametrize("name", ["dual", "exact", "paper_raw"])
def test_parts_of_a_batch_add_up_to_the_batch_with_one_c(monkeypatch, pair, x, name):
    solved = []

    def count_solve(log_ratio, budget, **options):
        solved.append(len(log_ratio))
        return solve_cut(log_ratio, budget, **options)

    monkeypatch.setattr(module, "solve_cut", count_solve)
    (generator, generator_sgd), (critic, critic_sgd) = pair
    steps = []
    for parts in (1, 4):
        options = {"parts": parts, "loss": generator_loss(name)}
        step = generator_step(generator, critic, generator_sgd, x[0], budget=1.001, **options)
        of_generator = gradients(generator)
        mix = torch.linspace(0, 1, 32)
        options = {"parts": parts, "loss": critic_loss("gan"), "r1": 1.0, "gradient_penalty": 1.0, "mix": mix}
        losses = critic_step(critic, critic_sgd, x[0], x[1], **options)
        steps.append((of_generator, gradients(critic), step.loss, *losses.values()))
        for network, sgd in pair:  # undo the steps
            with torch.no_grad():
                for weight in network.parameters():
                    weight += sgd.param_groups[0]["lr"] * weight.grad
    for whole, parts in zip(*steps, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-6)
    assert solved == ([] if name == "dual" else [32, 32])


def test_c_of_an_earlier_step_is_used_as_it_is(pair, x):
    (generator, sgd), (critic, _) = pair
    options = {"loss": generator_loss("exact"), "budget": 1.01}
    first = generator_step(generator, critic, sgd, x[0], **options)
    expected = generator_loss("exact")(critic(generator(x[1])).detach(), first.cut)
    second = generator_step(generator, critic, sgd, x[1], cut=first.cut, **options)
    assert second.cut is first.cut
    assert float(second.loss) == pytest.approx(float(expected), abs=1e-6)
    assert generator_step(generator, critic, sgd, x[1], loss=generator_loss("dual")).cut is None


class Wrapped:
    """An optimiser that wraps one of torch, and is none."""

    def __init__(self, inner):
        self.param_groups, self.step, self.zero_grad = inner.param_groups, inner.step, inner.zero_grad


def test_an_optimiser_that_wraps_one_of_torch_will_do(pair, x):
    critic, sgd = pair[1]
    critic_step(critic, Wrapped(sgd), x[0], x[1], loss="gan", parts=2.0)
    moved = gradients(critic).clone()
    critic_step(critic, sgd, x[0], x[1], loss="gan")
    assert not torch.equal(moved, gradients(critic)), "the weights have changed between the two"


def test_a_layer_that_its_owner_froze_stays_frozen_also_when_a_step_fails(pair, x):
    (generator, sgd), (critic, _) = pair
    critic[1].requires_grad_(False)
    expected = [p.requires_grad for p in critic.parameters()]
    generator_step(generator, critic, sgd, x[0], loss=generator_loss("dual"))
    assert [p.requires_grad for p in critic.parameters()] == expected
    with pytest.raises(RuntimeError):
        generator_step(generator, critic, sgd, x[0, :, :1], loss=generator_loss("dual"))
    assert [p.requires_grad for p in critic.parameters()] == expected
