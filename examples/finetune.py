"""You have a trained generator: fine-tune it for K. Any GAN on 25 Gaussians, then a last stage behind its own loop.

python examples/finetune.py            # half a minute on one core
python examples/finetune.py 20 20 20   # fewer steps: of the GAN, of the critic alone, of the last stage
"""

import sys

import numpy as np
import torch
from torch.nn.functional import logsigmoid, softplus

from obrs.budget import solve_cut
from obrs.models.mlp import mlp_critic, mlp_generator
from obrs.training.losses import critic_loss, generator_loss

BUDGET, BATCH = 2, 256
first, alone, last = map(int, sys.argv[1:4] or (3000, 300, 2000))
torch.manual_seed(0)
rng = np.random.default_rng(0)
modes = np.stack(np.meshgrid(np.arange(-2, 3), np.arange(-2, 3)), axis=-1).reshape(25, 2)
data = modes[rng.integers(25, size=1_000_000)] + 0.05 * rng.normal(size=(1_000_000, 2))
data = torch.as_tensor(data / data.std(axis=0), dtype=torch.float32)


def real():
    """A batch of the data."""
    return data[torch.randint(len(data), (BATCH,))]


def fake():
    """A batch of the generator."""
    return generator(torch.randn(BATCH, 2))


def adam(network, lr):
    """The optimiser of a network."""
    return torch.optim.Adam(network.parameters(), lr, (0.5, 0.999))


def descend(optimiser, loss):
    """Take a step."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def loss(generator, budget):
    """The GAN divergence that the best ratio leaves at a budget, between shares of small square cells."""
    with torch.no_grad():
        p, q = shares(data), shares(generator(torch.randn(len(data), 2)))
    p, q = p[q > 0], q[q > 0]
    log_ratio = (p / q).clamp(min=1e-9).log()
    cut = solve_cut(log_ratio, budget, weights=q)
    kept = q * (cut.log_a(log_ratio) - cut.log_rate).exp()
    log_u = (p / kept).clamp(min=1e-9).log()
    return float(2 * np.log(2) + (p * logsigmoid(log_u) + kept * logsigmoid(-log_u)).sum())


def shares(x, side=0.05, most=3.0):
    """The share of each cell; what lies outside counts to the outermost."""
    row, column = (x.double().clamp(-most, most - 1e-9) + most).div(side).long().T
    cells = round(2 * most / side)
    return torch.bincount(cells * row + column, minlength=cells**2).double() / len(x)


# The GAN that you have: the usual loss, and a critic that is then thrown away
generator, critic = mlp_generator(), mlp_critic()
of_generator, of_critic = adam(generator, 1e-3), adam(critic, 2e-3)
for _ in range(first):
    descend(of_critic, softplus(-critic(real())).mean() + softplus(critic(fake().detach())).mean())
    descend(of_generator, softplus(-critic(fake())).mean())
print(f"the GAN:          {loss(generator, 1):.3f}, after rejection at K = {BUDGET} {loss(generator, BUDGET):.3f}")

# The last stage: a critic that sees narrow modes, alone at first, then the generator for what rejection keeps
critic = mlp_critic(width=64, layers=2, activation="silu", waves=64)
of_generator, of_critic = adam(generator, 7e-4), adam(critic, 2e-3)
critic_goal, goal = critic_loss("gan"), generator_loss("exact", "gan")
for step in range(-alone, last):
    descend(of_critic, critic_goal(critic(real()), critic(fake().detach())))
    if step >= 0:
        of_generator.param_groups[0]["lr"] = 7e-4 * min(1, (1 - step / last) / 0.6)
        log_ratio = critic(fake())
        descend(of_generator, goal(log_ratio, solve_cut(log_ratio.detach(), BUDGET)))
print(f"after the stage:  {loss(generator, 1):.3f}, after rejection at K = {BUDGET} {loss(generator, BUDGET):.3f}")
