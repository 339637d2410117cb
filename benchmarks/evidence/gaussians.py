"""25 Gaussians with an under-trained GAN whose density is known."""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import softplus

import obrs
from obrs.data.mixtures import grid25
from obrs.metrics.grid import histogram_divergence, mode_cells
from obrs.metrics.modes import mode_scores
from obrs.models.mlp import mlp_critic, mlp_generator

TARGET = grid25().standardised()
SIGMA = float(TARGET.sigma[0])
CELLS = mode_cells(TARGET.means, sigma=SIGMA)
LIKE = torch.empty(0)


def train_gan(real, *, stop_at=0.56, seed=0, batch=256, learning_rate=1e-3, most=20_000, every=25):
    """Train until the share of high-quality samples passes `stop_at` with 24 modes or more.

    Turner's networks: four linear layers, 100 hidden units, ReLU, a normal latent of two dimensions. The
    non-saturating loss, one step each, Adam with betas 0.5 and 0.999.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        generator, critic = mlp_generator(), mlp_critic()
    optimisers = [torch.optim.Adam(net.parameters(), learning_rate, (0.5, 0.999)) for net in (critic, generator)]
    random = torch.Generator().manual_seed(seed)
    for step in range(1, most + 1):
        x = real[torch.randint(len(real), (batch,), generator=random)]
        fake = generator(torch.randn(batch, 2, generator=random))
        critic_loss = softplus(-critic(x)).mean() + softplus(critic(fake.detach())).mean()
        optimisers[0].zero_grad()
        critic_loss.backward()
        optimisers[0].step()
        generator_loss = softplus(-critic(fake)).mean()
        optimisers[1].zero_grad()
        generator_loss.backward()
        optimisers[1].step()
        if step % every == 0:
            with torch.no_grad():
                scores = mode_scores(generator(torch.randn(10_000, 2, generator=random)), TARGET.means, sigma=SIGMA)
            if scores.precision >= stop_at and scores.modes >= 24:
                break
    return generator.eval(), critic.eval(), step


def proposal(generator, seed):
    """Make proposals whose latents are a function of the seed and their id."""

    def propose(ids):
        with torch.no_grad():
            return generator(obrs.normals(ids, 2, seed=seed, like=LIKE))

    return propose


@dataclass(frozen=True, eq=False)
class ExactRatio:
    """log p - log q, with p in closed form and q from a histogram of the generator.

    Args:
        counts: Samples in each cell of the square [-edge, edge]², and last those outside.
        total: Samples in all.
        cell: Side of a cell.
        side: Cells a side.
    """

    counts: np.ndarray
    total: int
    cell: float
    side: int

    @classmethod
    def of(cls, generator, *, samples, cells_per_sigma=8, edge=2.5, block=1 << 18):
        """Fill the histogram with the latents of a lattice: even, so that counts are less noisy than random ones."""
        side = round(2 * edge / (SIGMA / cells_per_sigma))
        cell = 2 * edge / side
        counts = np.zeros(side * side + 1, dtype=np.int64)
        phi = 1.32471795724474602596  # the plastic number: (1/phi, 1/phi²) spreads most evenly in the unit square
        for start in range(0, samples, block):
            i = torch.arange(start, min(start + block, samples), dtype=torch.float64) + 1
            u = torch.stack([(0.5 + i / phi) % 1.0, (0.5 + i / phi**2) % 1.0], dim=1)
            with torch.no_grad():
                x = generator(torch.special.ndtri(u).clamp(-8, 8).to(torch.float32)).numpy()
            counts += np.bincount(_cell(x, cell, side), minlength=len(counts))
        return cls(counts, samples, cell, side)

    def log_density(self, x):
        """The log-density of the generator; where no sample of the histogram fell, that of half a sample."""
        seen = self.counts[_cell(x, self.cell, self.side)]
        return np.log(np.maximum(seen, 0.5) / self.total / self.cell**2)

    def __call__(self, x):
        x = np.asarray(x, dtype=np.float64)
        return TARGET.log_prob(x) - self.log_density(x)


def _cell(x, cell, side):
    place = np.floor(x / cell + side / 2).astype(np.int64)
    inside = ((place >= 0) & (place < side)).all(axis=1)
    return np.where(inside, place[:, 0] * side + place[:, 1], side * side)


def one_branch_log_density(generator, z):
    """log of phi(z) / |det dG/dz|: what the neighbourhood of this one latent adds to the density at G(z)."""
    z = z.clone().requires_grad_()
    x = generator(z)
    rows = [torch.autograd.grad(x[:, k].sum(), z, retain_graph=True)[0] for k in (0, 1)]
    determinant = rows[0][:, 0] * rows[1][:, 1] - rows[0][:, 1] * rows[1][:, 0]
    prior = -0.5 * (z**2).sum(dim=1) - np.log(2 * np.pi)
    return (prior - determinant.abs().log()).detach().numpy()


def check_density(exact, generator, *, n=20_000):
    """Compare the histogram with the change of variables, another route to the same density.

    A latent's own branch is a lower bound of the density, and the density itself where no other latent maps to the
    same place. So the differences must hardly ever be below 0, and their lower quartile is near 0.
    """
    z = obrs.normals(np.arange(n), 2, seed=77, like=LIKE)
    with torch.no_grad():
        x = generator(z).numpy()
    gap = exact.log_density(x) - one_branch_log_density(generator, z)
    log_ratio = exact(x)
    good = np.isfinite(gap)
    return {
        "quartiles of log q (histogram) - log q (one branch)": np.quantile(gap[good], [0.25, 0.5, 0.75]).tolist(),
        "share below -0.5": float(np.mean(gap[good] < -0.5)),
        "mean of the ratio": float(np.mean(np.exp(log_ratio))),
        "its standard error": float(np.std(np.exp(log_ratio)) / np.sqrt(n)),
    }


def score(x):
    """The columns of the table."""
    modes = mode_scores(x, TARGET.means, sigma=SIGMA)
    return {"high quality": modes.precision, "recall": modes.recall, "kl": histogram_divergence(x, CELLS)}
