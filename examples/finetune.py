"""You have a trained generator: fine-tune it for K. Any GAN on 25 Gaussians, then a last stage behind its own loop.

python examples/finetune.py            # half a minute on one core
python examples/finetune.py 20 20 20   # fewer steps: of the GAN, of the critic alone, of the last stage
"""

import sys

import torch
from torch.nn.functional import softplus

from obrs.budget import solve_cut
from obrs.data.mixtures import grid25
from obrs.metrics.grid import mode_cells
from obrs.models.fourier import FourierCritic
from obrs.models.mlp import mlp_critic, mlp_generator
from obrs.training.losses import critic_loss, generator_loss

BUDGET, BATCH = 2, 256
first, alone, last = map(int, sys.argv[1:4] or (3000, 300, 2000))
torch.manual_seed(0)
target = grid25().standardised()
data = torch.as_tensor(target.sample(100_000, seed=0), dtype=torch.float32)


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


def left(generator, budget):
    """The GAN divergence that the best ratio leaves at a budget, on cells of known mass."""
    with torch.no_grad():
        x = generator(torch.randn(100_000, 2)).double().numpy()
    cells = mode_cells(target.means, sigma=float(target.sigma[0]))
    q = torch.bincount(torch.as_tensor(cells.of(x)), minlength=len(cells.masses)).double() / len(x)
    p, q = torch.as_tensor(cells.masses)[q > 0], q[q > 0]
    cut = solve_cut((p / q).log(), budget, weights=q)
    kept = q * (cut.log_a((p / q).log()) - cut.log_rate).exp()
    return float((kept * generator_f(p / kept)).sum())


def generator_f(u):
    """The f of the GAN divergence."""
    return u * u.log() - (u + 1) * (u + 1).log() + 2 * torch.log(torch.tensor(2.0))


# The GAN that you have: the usual loss, and a critic that is then thrown away
generator, critic = mlp_generator(), mlp_critic()
of_generator, of_critic = adam(generator, 1e-3), adam(critic, 2e-3)
for _ in range(first):
    descend(of_critic, softplus(-critic(real())).mean() + softplus(critic(fake().detach())).mean())
    descend(of_generator, softplus(-critic(fake())).mean())
print(f"the GAN:          {left(generator, 1):.3f}, after rejection at K = {BUDGET} {left(generator, BUDGET):.3f}")

# The last stage: a critic that sees narrow modes, alone at first, then the generator for what rejection keeps
critic = FourierCritic(dim=2)
of_generator, of_critic = adam(generator, 7e-4), adam(critic, 2e-3)
critic_goal, goal = critic_loss("gan"), generator_loss("exact", "gan")
for step in range(-alone, last):
    descend(of_critic, critic_goal(critic(real()), critic(fake().detach())))
    if step >= 0:
        of_generator.param_groups[0]["lr"] = 7e-4 * min(1, (1 - step / last) / 0.6)
        log_ratio = critic(fake())
        descend(of_generator, goal(log_ratio, solve_cut(log_ratio.detach(), BUDGET)))
print(f"after the stage:  {left(generator, 1):.3f}, after rejection at K = {BUDGET} {left(generator, BUDGET):.3f}")
