"""Small GANs of points in the plane: stopped early, their critic trained further, their density known.

The GAN of the 25-Gaussian experiments follows Turner's protocol: 64 000 standardised points, four linear layers of 100
units with ReLU in both networks, a normal latent of two dimensions. The paper says of its GAN only that 55.8 % of its
samples are of high quality, so training stops when that share is within a point of 56 % and every mode is made.
Networks this small are quicker with one thread, and with one the result does not depend on how many cores there are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
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

from .record import Checked, Numbers
from .scores import histogram_divergence, mode_cells, mode_scores
from .toys import Density, grid25

__all__ = ["CELLS", "LIKE", "SIGMA", "SMOKE", "TARGET", "ExactRatio", "Gan", "Settings", "one_thread", "score"]
__all__ += ["fit_gan", "train_gan"]


TARGET = grid25().standardise()
SIGMA = float(TARGET.sigma[0])
CELLS = mode_cells(TARGET.means, sigma=SIGMA)
LIKE = torch.empty(0)

_WITHIN = 0.01  # of the share to stop at
_WATCHED = 10_000  # samples that the share is measured on
_PLASTIC = 1.32471795724474602596  # its inverse and inverse square spread a lattice most evenly over a square


@dataclass(frozen=True)
class Settings(Checked):
    """What the configurations of the 25-Gaussian experiments share."""

    real: int = 64_000  # points of the target; a tenth is held out from all training, for calibration
    stop_at: float = 0.56  # share of high-quality samples to stop at
    most: int = 20_000  # steps after which training stops anyway
    critic_steps: int = 2000  # further steps of the critic, against the finished generator
    refit_steps: int = 1000  # steps of the refitted ratio
    weight_steps: int = 1000  # steps of the weights of LatentRS
    exact_samples: int = 2_000_000  # samples in the histogram of the exact ratio
    seed: int = 0  # seed of data, weights, batches and samples

    @classmethod
    def select(cls, config: Any, *, seed: int | None = None) -> "Settings":
        """Return the settings in a configuration, with its seed or another."""
        values = {field.name: getattr(config, field.name) for field in fields(Settings)}
        return Settings(**values | ({} if seed is None else {"seed": seed}))


SMOKE: dict[str, Any] = {"real": 3000, "stop_at": 0.1, "most": 150, "critic_steps": 100, "refit_steps": 60}
SMOKE |= {"weight_steps": 30, "exact_samples": 50_000}
"""Settings that take seconds."""


@dataclass(frozen=True, eq=False)
class Gan:
    """A trained GAN with its data."""

    generator: Any  # maps latents to points
    log_ratio: Any  # the critic, trained further against the finished generator; torch can differentiate it
    log_loss: float  # held-out log-loss of this log-ratio
    real: Any  # the points that both networks were trained on
    held_out: Any  # real points that nothing has seen
    steps: int  # steps of training
    precision: float = float("nan")  # share of high-quality samples when it stopped; of 25 Gaussians alone

    def model(self, log_ratio: Any = None) -> Model:
        """Return the generator as a model, with its own log-ratio or another."""
        return Model(self.generator, self.log_ratio if log_ratio is None else log_ratio, 2, real=self.real, like=LIKE)

    def propose(self, seed: int) -> Any:
        """Return a proposal of the generator whose latents this seed decides."""
        return partial(self.model().propose, seed=seed)


@cache
def fit_gan(settings: Settings, progress: bool | None = None) -> Gan:
    """Train the GAN of 25 Gaussians and stop it early; once in a process for the same settings.

    The share of high-quality samples varies much from step to step, so it is measured more often where it is nearly
    right.

    Example:
        >>> gan = fit_gan(Settings(real=1000, stop_at=0.01, most=5, critic_steps=2))
        >>> gan.propose(0)(np.arange(3)).shape
        torch.Size([3, 2])

    References:
        | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), Sec. 4.1
    """
    points = torch.tensor(TARGET.sample(settings.real, seed=settings.seed), dtype=torch.float32)
    precision = 0.0
    with bar("training", settings.stop_at, progress) as update:

        def is_good(step: int, draw: Callable[[int], Any]) -> bool:
            nonlocal precision
            if step % (5 if precision > 0.8 * settings.stop_at else 25):
                return False
            precision, _, modes = mode_scores(draw(_WATCHED), TARGET.means, sigma=SIGMA)
            update(precision, f"{100 * precision:.0f} % high quality after {step} steps")
            return abs(precision - settings.stop_at) <= _WITHIN and modes == len(TARGET.means)

        gan = train_gan(points, settings.most, settings.critic_steps, settings.seed, is_good, progress)
    return replace(gan, precision=precision)


def train_gan(
    points: Any,
    steps: int,
    critic_steps: int,
    seed: int,
    done: Callable[[int, Callable[[int], Any]], bool] = lambda step, draw: False,
    progress: bool | None = None,
) -> Gan:
    """Train a GAN of points in the plane, then its critic further against the finished generator.

    The non-saturating loss, one step each with 256 points, Adam with rate 1e-3 and betas 0.5 and 0.999. The first tenth
    of the points is held out. After each step `done` is called with its number and a function that draws samples;
    True ends the training.

    References:
        | Discriminator Rejection Sampling (Azadi et al., 2019), which trains the discriminator further
    """
    held_out, real = points[: len(points) // 10], points[len(points) // 10 :]
    random = torch.Generator().manual_seed(seed)
    with one_thread(), own_noise() as reseed:
        reseed(seed)
        generator, critic = mlp_generator(), mlp_critic()
        adams = [torch.optim.Adam(net.parameters(), 1e-3, (0.5, 0.999)) for net in (critic, generator)]

        @torch.no_grad()  # type: ignore[untyped-decorator]
        def draw(n: int) -> Any:
            return generator(torch.randn(n, 2, generator=random))

        for step in range(1, steps + 1):
            x = real[torch.randint(len(real), (256,), generator=random)]
            with torch.enable_grad():
                fake = generator(torch.randn(256, 2, generator=random))
                descend(adams[0], softplus(-critic(x)).mean() + softplus(critic(fake.detach())).mean())
                descend(adams[1], softplus(-critic(fake)).mean())
            if done(step, draw):
                break
        generator.eval().requires_grad_(False)
        critic.eval()
        gan = Gan(generator, critic, float("nan"), real, held_out, step)
        further = refit(real, gan.propose(seed), FineTune(critic), steps=critic_steps, seed=seed, progress=progress)
    return replace(gan, log_ratio=further.networks[0], log_loss=further.report.log_loss)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread while the block runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def score(x: Array) -> dict[str, float]:
    """Return what the tables say of samples: recall, precision, and the divergences that are left.

    High quality, which is precision, means within four standard deviations of a mode; a mode is recovered, which is
    recall, by one such sample; the divergences are measured on 301 cells of known mass.
    """
    modes = mode_scores(x, TARGET.means, sigma=SIGMA)
    left = {name: histogram_divergence(x, CELLS, name) for name in ("kl", "js")}
    return {"recall": modes.recall, "precision": modes.precision, **left}


@dataclass(frozen=True, eq=False)
class ExactRatio:
    """log p - log q, with p in closed form and q from a fine histogram of the generator."""

    target: Density
    counts: Numbers  # samples in each cell of a square around 0, row after row, and last those outside
    total: int
    cell: float  # side of a cell
    side: int  # cells a side

    @classmethod
    def fit(
        cls, generator: Any, samples: int, *, cells_per_sigma: float = 4, edge: float = 2.5, target: Density = TARGET
    ) -> "ExactRatio":
        """Fill the histogram with latents of an even lattice: its counts vary less than those of random ones."""
        side = round(2 * edge / (SIGMA / cells_per_sigma))
        cell, counts = 2 * edge / side, np.zeros(side * side + 1, dtype=np.int64)
        for start in range(0, check_count(samples, "samples"), 1 << 18):
            i = torch.arange(start, min(start + (1 << 18), samples), dtype=torch.float64) + 1
            u = torch.stack([(0.5 + i / _PLASTIC) % 1.0, (0.5 + i / _PLASTIC**2) % 1.0], dim=1)
            with torch.no_grad():
                x = generator(torch.special.ndtri(u).clamp(-8, 8).to(torch.float32))
            counts += np.bincount(_cell(x.numpy(), cell, side), minlength=len(counts))
        return cls(target, counts, samples, cell, side)

    def log_density(self, x: Numbers) -> Numbers:
        """Return the log-density of the generator; where no sample of the histogram fell, that of half a sample."""
        seen = self.counts[_cell(x, self.cell, self.side)]
        return np.asarray(np.log(np.maximum(seen, 0.5) / self.total / self.cell**2))

    def __call__(self, x: Any) -> Any:
        points = np.asarray(x, dtype=np.float64)
        log_ratio = self.target.log_prob(points) - self.log_density(points)
        return torch.from_numpy(log_ratio) if isinstance(x, torch.Tensor) else log_ratio


def _cell(x: Numbers, cell: float, side: int) -> Numbers:
    place = np.floor(x / cell + side / 2).astype(np.int64)
    inside = ((place >= 0) & (place < side)).all(axis=1)
    return np.where(inside, place[:, 0] * side + place[:, 1], side * side)
