"""The GAN of the 25-Gaussian experiments: stopped early, its critic trained further, its density known.

Turner's protocol: 64 000 standardised points, four linear layers of 100 units with ReLU in both networks, a normal
latent of two dimensions. The paper says of its GAN only that 55.8 % of its samples are of high quality, so training
stops when that share is within a point of 56 % and every mode is made. Networks this small are quicker with one thread,
and with one the result does not depend on how many cores there are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch.nn.functional import softplus

from obrs._checks import check_count
from obrs._progress import bar
from obrs.fitting.loop import descend
from obrs.fitting.seeds import own_noise
from obrs.models.mlp import mlp_critic, mlp_generator
from obrs.ratios.refit import FineTune, refit
from obrs.rivals import Model
from obrs.types import Array

from .cells import histogram_divergence, mode_cells
from .gan25_settings import Settings
from .modes import mode_scores
from .toys import grid25

__all__ = ["CELLS", "LIKE", "SIGMA", "TARGET", "ExactRatio", "Gan", "branch_log_density", "gan_step", "one_thread"]
__all__ += ["score", "trained"]

Floats = np.ndarray[Any, Any]

TARGET = grid25().standardised()
SIGMA = float(TARGET.sigma[0])
CELLS = mode_cells(TARGET.means, sigma=SIGMA)
LIKE = torch.empty(0)

_WITHIN = 0.01  # of the share to stop at
_WATCHED = 10_000  # samples that the share is measured on
_PLASTIC = 1.32471795724474602596  # its inverse and inverse square spread a lattice most evenly over a square


@dataclass(frozen=True, eq=False)
class Gan:
    """A trained GAN with its data.

    Args:
        generator: Maps latents to points.
        critic: The critic as it was when training stopped.
        log_ratio: The critic, trained further against the finished generator; torch can differentiate it.
        log_loss: Held-out log-loss of this log-ratio.
        real: The points that both networks were trained on.
        held_out: Real points that nothing has seen.
        steps: Steps of training.
        precision: Share of high-quality samples when it stopped.
    """

    generator: Any
    critic: Any
    log_ratio: Any
    log_loss: float
    real: Any
    held_out: Any
    steps: int
    precision: float

    def model(self, log_ratio: Any = None) -> Model:
        """Return the generator as a model, with its own log-ratio or another."""
        return Model(self.generator, self.log_ratio if log_ratio is None else log_ratio, 2, real=self.real, like=LIKE)

    def propose(self, seed: int) -> Any:
        """Return a proposal of the generator whose latents this seed decides."""
        return partial(self.model().propose, seed=seed)


@cache
def trained(settings: Settings, progress: bool | None = None) -> Gan:
    """Train the GAN, stop it early, then train its critic further; once in a process for the same settings.

    The non-saturating loss, one step each with 256 points, Adam with rate 1e-3 and betas 0.5 and 0.999.

    Example:
        >>> gan = trained(Settings(real=1000, stop_at=0.01, most=5, critic_steps=2))
        >>> gan.propose(0)(np.arange(3)).shape
        torch.Size([3, 2])

    References:
        | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), Sec. 4.1
        | Discriminator Rejection Sampling (Azadi et al., 2019), which trains the discriminator further
    """
    points = torch.tensor(TARGET.sample(settings.real, seed=settings.seed), dtype=torch.float32)
    held_out, real = points[: settings.real // 10], points[settings.real // 10 :]
    with one_thread():
        generator, critic, steps, precision = _game(real, settings, progress)
        unfinished = Gan(generator, critic, critic, float("nan"), real, held_out, steps, precision)
        further = refit(
            real,
            unfinished.propose(settings.seed),
            FineTune(critic),
            steps=settings.critic_steps,
            seed=settings.seed,
            progress=progress,
        )
    return Gan(generator, critic, further.networks[0], further.report.log_loss, real, held_out, steps, precision)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread while the block runs.

    Example:
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _game(real: Any, settings: Settings, progress: bool | None, batch: int = 256) -> tuple[Any, ...]:
    """Train both networks until the share of high-quality samples is right; return them, the steps, the share.

    This share varies much from step to step, so it is measured more often where it is nearly right.
    """
    with own_noise() as reseed:
        reseed(settings.seed)
        generator, critic = mlp_generator(), mlp_critic()
    of_critic, of_generator = (torch.optim.Adam(net.parameters(), 1e-3, (0.5, 0.999)) for net in (critic, generator))
    random = torch.Generator().manual_seed(settings.seed)
    step, precision = 0, 0.0
    with torch.enable_grad(), bar("training", settings.stop_at, progress) as tell:
        while step < settings.most:
            step += 1
            x = real[torch.randint(len(real), (batch,), generator=random)]
            fake = generator(torch.randn(batch, 2, generator=random))
            gan_step(critic, x, fake, of_critic, of_generator)
            if step % (5 if precision > 0.8 * settings.stop_at else 25) == 0:
                with torch.no_grad():
                    fake = generator(torch.randn(_WATCHED, 2, generator=random))
                seen = mode_scores(modes=TARGET.means, fake=fake, sigma=SIGMA)
                precision = seen.precision
                tell(precision, f"{100 * precision:.0f} % high quality after {step} steps")
                if abs(precision - settings.stop_at) <= _WITHIN and seen.modes == len(TARGET.means):
                    break
    return generator.eval().requires_grad_(False), critic.eval(), step, precision


def gan_step(critic: Any, real: Any, fake: Any, of_critic: Any, of_generator: Any) -> None:
    """Take one step each of critic and generator, with the logistic and the non-saturating loss.

    Args:
        critic: From samples to logits, shape `(n,)`.
        real: A batch of real samples.
        fake: One of the generator, with its gradient.
        of_critic, of_generator: Optimisers of the two.

    Example:
        >>> generator, critic = mlp_generator(width=8), mlp_critic(width=8)
        >>> adams = [torch.optim.Adam(net.parameters(), 1e-3) for net in (critic, generator)]
        >>> gan_step(critic, torch.zeros(4, 2), generator(torch.zeros(4, 2)), *adams)
    """
    descend(of_critic, softplus(-critic(real)).mean() + softplus(critic(fake.detach())).mean())
    descend(of_generator, softplus(-critic(fake)).mean())


def score(x: Array) -> dict[str, float]:
    """Return what the tables say of samples: recall, precision, and the divergences that are left.

    High quality, which is precision, means within four standard deviations of a mode; a mode is recovered, which is
    recall, by one such sample; the divergences are measured on 301 cells of known mass.

    Example:
        >>> {key: round(value, 1) + 0.0 for key, value in score(TARGET.sample(2500, seed=3)).items()}
        {'recall': 1.0, 'precision': 1.0, 'kl': 0.0, 'js': 0.0}
    """
    modes = mode_scores(modes=TARGET.means, fake=x, sigma=SIGMA)
    left = {name: histogram_divergence(cells=CELLS, fake=x, divergence=name).value for name in ("kl", "js")}
    return {"recall": modes.recall, "precision": modes.precision, **left}


@dataclass(frozen=True, eq=False)
class ExactRatio:
    """log p - log q, with p in closed form and q from a fine histogram of the generator.

    Args:
        counts: Samples in each cell of a square around 0, row after row, and last those outside.
        total: Samples in all.
        cell: Side of a cell.
        side: Cells a side.
    """

    counts: Floats
    total: int
    cell: float
    side: int

    @classmethod
    def of(cls, generator: Any, samples: int, *, cells_per_sigma: int = 4, edge: float = 2.5) -> "ExactRatio":
        """Fill the histogram with latents of an even lattice: its counts vary less than those of random ones."""
        side = round(2 * edge / (SIGMA / cells_per_sigma))
        cell, counts = 2 * edge / side, np.zeros(side * side + 1, dtype=np.int64)
        for start in range(0, check_count(samples, "samples"), 1 << 18):
            i = torch.arange(start, min(start + (1 << 18), samples), dtype=torch.float64) + 1
            u = torch.stack([(0.5 + i / _PLASTIC) % 1.0, (0.5 + i / _PLASTIC**2) % 1.0], dim=1)
            with torch.no_grad():
                x = generator(torch.special.ndtri(u).clamp(-8, 8).to(torch.float32))
            counts += np.bincount(_cell(x.numpy(), cell, side), minlength=len(counts))
        return cls(counts, samples, cell, side)

    def log_density(self, x: Floats) -> Floats:
        """Return the log-density of the generator; where no sample of the histogram fell, that of half a sample."""
        seen = self.counts[_cell(x, self.cell, self.side)]
        return np.asarray(np.log(np.maximum(seen, 0.5) / self.total / self.cell**2))

    def __call__(self, x: Any) -> Any:
        points = np.asarray(x, dtype=np.float64)
        found = TARGET.log_prob(points) - self.log_density(points)
        return torch.from_numpy(found) if isinstance(x, torch.Tensor) else found


def _cell(x: Floats, cell: float, side: int) -> Floats:
    place = np.floor(x / cell + side / 2).astype(np.int64)
    inside = ((place >= 0) & (place < side)).all(axis=1)
    return np.where(inside, place[:, 0] * side + place[:, 1], side * side)


def branch_log_density(generator: Any, z: Any) -> Floats:
    """Return log of phi(z) / |det dG/dz|: what the neighbourhood of this one latent adds to the density at G(z).

    It is at most the density, and equal to it where no other latent maps to the same place: another route to it than
    a histogram.

    Example:
        >>> z = torch.zeros(1, 2)
        >>> branch_log_density(lambda z: 2 * z, z).round(4)  # N(0, 4 I) at 0
        array([-3.2242], dtype=float32)
    """
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        x = generator(z)  # a row of x depends on its own row of z alone, so the gradient of a sum has all of them
        slopes = [torch.autograd.grad(x[:, k].sum(), z, retain_graph=True)[0] for k in range(x.shape[1])]
    jacobian = torch.stack(slopes, dim=1)
    prior = -0.5 * (z**2).sum(dim=1) - float(np.log(2 * np.pi))
    found: Floats = (prior - torch.linalg.det(jacobian).abs().log()).detach().numpy()
    return found
