"""A torch GAN and its own discriminator: keep 1 in 3 of what it makes.

Run:  python examples/torch_gan.py

The GAN is young: two small networks, trained here for 800 steps on a ring of eight bumps. D was trained with the
logistic loss, so its logit is an estimate of log p/q as it is. After training D goes on for some steps against the
finished G, which costs no sample of G that is kept. The target is known, so what is left is measured: the total
variation between shares of square cells, of real samples and of what is kept.
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus

import obrs

ANGLE, SIGMA = np.arange(8) * np.pi / 4, 0.15
BUMPS = 2 * np.stack([np.cos(ANGLE), np.sin(ANGLE)], axis=1)
LATENT, BATCH, BUDGET, N = 8, 256, 3, 5_000


def samples(n, seed):
    """Draw from the target: a bump, then where in it."""
    rng = np.random.default_rng(seed)
    return BUMPS[rng.integers(8, size=n)] + SIGMA * rng.normal(size=(n, 2))


def share_near(x):
    """The share within four standard deviations of a bump."""
    return np.mean(np.linalg.norm(x[:, None] - BUMPS, axis=2).min(axis=1) < 4 * SIGMA)


def shares(x):
    """The share of each cell, a quarter wide; what lies outside counts to the outermost."""
    return np.histogram2d(*x.clip(-2.99, 2.99).T, bins=24, range=[(-3, 3)] * 2)[0] / len(x)


def network(inside, outside, width=64):
    return nn.Sequential(
        nn.Linear(inside, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outside)
    )


def train(G, D, real, steps, further):
    """Train both networks for `steps`, then D alone for `further` steps."""
    of_g, of_d = (torch.optim.Adam(net.parameters(), 1e-3, betas=(0.5, 0.999)) for net in (G, D))
    for step in range(steps + further):
        fake = G(torch.randn(BATCH, LATENT))
        x = real[torch.randint(len(real), (BATCH,))]
        of_d.zero_grad()
        (softplus(-D(x)).mean() + softplus(D(fake.detach())).mean()).backward()
        of_d.step()
        if step < steps:
            of_g.zero_grad()
            softplus(-D(fake)).mean().backward()
            of_g.step()


def main():
    torch.manual_seed(0)
    real = torch.tensor(samples(20_000, seed=0), dtype=torch.float32)
    G, D = network(LATENT, 2), network(2, 1)
    train(G, D, real, steps=800, further=300)
    model = obrs.rivals.Model(G.eval(), lambda x: D(x)[:, 0], dim=LATENT, like=real)
    kept = obrs.sample(model.propose, model.score, N, budget=BUDGET)
    target = shares(samples(10**6, seed=1))
    for name, x in (("proposed", model.propose(range(N))), (f"kept, 1 in {1 / kept.rate:.2f}", kept.x)):
        x = x.detach().numpy()
        left = np.abs(shares(x) - target).sum() / 2
        print(f"{name:15} {100 * share_near(x):5.1f} % near a bump, total variation {left:.3f}")


if __name__ == "__main__":
    main()
