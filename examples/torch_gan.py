"""A torch GAN and its own discriminator: keep 1 in 3 of what it makes.

Run:  python examples/torch_gan.py

The GAN is young: two small networks, trained here for 800 steps on a ring of eight bumps. D was trained with the
logistic loss, so its logit is an estimate of log p/q as it is. After training D goes on for some steps against the
finished G, which costs no sample of G that is kept. The target is known, so the KL divergence that is left is measured.
"""

import torch
from torch import nn
from torch.nn.functional import softplus

import obrs
from obrs.data.mixtures import ring
from obrs.metrics.grid import histogram_divergence, mode_cells
from obrs.metrics.modes import mode_scores

TARGET, SIGMA = ring(8, radius=2.0, sigma=0.15), 0.15
LATENT, BATCH, BUDGET, N = 8, 256, 3, 5_000


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
    real = torch.tensor(TARGET.sample(20_000, seed=0), dtype=torch.float32)
    G, D = network(LATENT, 2), network(2, 1)
    train(G, D, real, steps=800, further=300)
    model = obrs.Model(G.eval(), lambda x: D(x)[:, 0], dim=LATENT, like=real)
    kept = obrs.sample(model.propose, model.score, N, budget=BUDGET)
    cells = mode_cells(TARGET.means, sigma=SIGMA)
    for name, x in (("proposed", model.propose(range(N))), (f"kept, 1 in {1 / kept.rate:.2f}", kept.x)):
        modes = mode_scores(modes=TARGET.means, fake=x.detach(), sigma=SIGMA)
        left = histogram_divergence(cells=cells, fake=x.detach(), divergence="kl")
        print(f"{name:15} {100 * modes.precision:5.1f} % near a bump, KL {left.value:.3f}")


if __name__ == "__main__":
    main()
