"""The diffusion models of the image experiments: EDM, small, with classes.

Those of CIFAR-10 are units of `runs/train_cifar.py`; those of digits and Fashion-MNIST were trained by version 0.2, and
their files name its command.

A `Denoiser` is D(x; sigma), the mean of clean images given noisy ones. `previews` runs the sampler and yields what it
already knows of the final image at every noise level; `heun` is its last word. A `Guided` denoiser follows the gradient
of a discriminator of noisy images, too.

References:
    | Elucidating the Design Space of Diffusion-Based Generative Models (Karras et al., 2022): equations 5, 7 and 8,
      algorithm 1 and table 1
    | Refining Generative Process with Discriminator Guidance in Score-based Diffusion Models (Kim et al., 2023)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from obrs._checks import check_count
from obrs._progress import bar
from obrs.draws import normals, uniforms
from obrs.errors import InputError
from obrs.fitting.loop import fit
from obrs.fitting.seeds import derive, new_rng, own_noise
from obrs.models.conv import ConvCritic

from .image_gans import SEED, Labelled, load_part
from .nets.cifar import CifarUNet, load_unit
from .record import Numbers

__all__ = ["Denoiser", "Diffusion", "Guided", "fit_guide", "heun", "load_diffusion", "make_pool", "noise_levels"]
__all__ += ["noisy_previews", "previews", "shrink"]

SIGMA_DATA = 0.5  # standard deviation of clean pixels, roughly
_BLOCK = 200  # images at a time
_BATCH = 64  # images in an update of a guide
_EDM = {3836: "edm-early-0", 15278: "edm-0"}  # units of CIFAR-10, by their updates
_LOG_SIGMA = (-1.2, 1.2)  # mean and standard deviation of the noise levels that are trained on
Tensor = Any


class Denoiser(nn.Module):  # type: ignore[misc]
    """D(x; sigma), a network with EDM's preconditioning: its input and what it is fitted to have unit variance.

    The network maps scaled images, times `log(sigma)/4` and labels to images, such as a `UNet`.

    Example:
        >>> zero = Denoiser(lambda x, time, label: 0 * x)
        >>> zero(torch.ones(1, 1, 1, 1), torch.full((1,), 0.5)).item()  # half of the variance is noise
        0.5
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the clean images that are expected behind x, noisy images, `sigma` of shape `(n,)`."""
        s, total = sigma.reshape(-1, 1, 1, 1), sigma.reshape(-1, 1, 1, 1) ** 2 + SIGMA_DATA**2
        inner = self.network(x / total.sqrt(), sigma.log() / 4, label)
        return SIGMA_DATA**2 / total * x + s * SIGMA_DATA / total.sqrt() * inner

    def loss(self, x: Tensor, sigma: Tensor, noise: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the mean squared error, in units in which the network's own target has variance 1."""
        s = sigma.reshape(-1, 1, 1, 1)
        weight = (s**2 + SIGMA_DATA**2) / (s * SIGMA_DATA) ** 2
        return (weight * (self(x + s * noise, sigma, label) - x) ** 2).mean()


def noise_levels(steps: int) -> Tensor:
    """Return the noise levels of a sampler, from 80 to 0.002 and then 0, shape `(steps + 1,)`.

    Example:
        >>> [round(level, 3) for level in noise_levels(3).tolist()]
        [80.0, 2.515, 0.002, 0.0]
    """
    at = torch.linspace(0, 1, check_count(steps, "steps", least=2), dtype=torch.float64)
    high, low = 80.0 ** (1 / 7), 0.002 ** (1 / 7)
    levels = (high + at * (low - high)) ** 7.0
    return torch.cat([levels, torch.zeros(1, dtype=torch.float64)])


def previews(
    denoise: Callable[..., Tensor], z: Tensor, levels: Tensor, label: Tensor | None = None
) -> Iterator[tuple[int, Tensor]]:
    """Run Heun's method from noise to images; yield a preview at every noise level, and the images themselves.

    A preview is the number of a noise level and the clean image that is expected there. It costs nothing: the sampler
    needs it for its next step. Each step takes two evaluations of the denoiser, the last one takes one. It starts from
    standard normals z, `(n, channels, height, width)`; the last noise level is 0.
    """
    sigmas = levels.to(z)
    x = z * sigmas[0]
    for step in range(len(sigmas) - 1):
        now, then = sigmas[step], sigmas[step + 1]
        clean = denoise(x, now.expand(len(x)), label)
        yield step, clean
        slope = (x - clean) / now
        ahead = x + (then - now) * slope
        if then > 0:
            second = (ahead - denoise(ahead, then.expand(len(x)), label)) / then
            ahead = x + (then - now) * (slope + second) / 2
        x = ahead
    yield len(sigmas) - 1, x


def heun(denoise: Callable[..., Tensor], z: Tensor, levels: Tensor, label: Tensor | None = None) -> Tensor:
    """Return the images at the end of `previews`."""
    *_, (_, images) = previews(denoise, z, levels, label)
    return images


@dataclass(frozen=True, eq=False)
class Diffusion:
    """A trained model as a source of proposals; the noise of an image belongs to its id."""

    denoise: Any  # the denoiser, with averaged weights
    shape: tuple[int, int, int]  # of an image: channels, height, width
    classes: int  # number of labels, each proposed equally often
    levels: Tensor  # noise levels of the sampler
    half: bool = False  # compute in bfloat16, in which that of CIFAR-10 was trained; it takes half of the time

    def noise(self, ids: Any, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return the noise that the images with these ids start from, and their labels."""
        z = normals(ids, int(np.prod(self.shape)), seed=seed, like=torch.empty(0)).reshape(-1, *self.shape)
        return z, torch.from_numpy((uniforms(ids, seed=seed) * self.classes).astype(np.int64))

    def __call__(self, x: Tensor, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the clean images that are expected behind noisy ones."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            return self.denoise(x.contiguous(memory_format=torch.channels_last), sigma, label)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def propose(self, ids: Any, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return the images with these ids, in [-1, 1], and their labels."""
        z, label = self.noise(ids, seed=seed)
        return heun(self, z, self.levels, label).clamp(-1, 1), label


class Guided:
    """A denoiser with discriminator guidance: D(x; sigma) + sigma² grad log r(x; sigma).

    The critic maps images with one more channel, `log(sigma)/4`, and labels to log r of noisy images.
    """

    def __init__(self, denoise: Any, critic: Any) -> None:
        self.denoise, self.critic = denoise, critic

    def __call__(self, x: Tensor, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(_noisy_ratio(self.critic, x, sigma, label).sum(), x)
        return self.denoise(x.detach(), sigma, label) + sigma.reshape(-1, 1, 1, 1) ** 2 * slope


def _noisy_ratio(critic: Any, x: Tensor, sigma: Tensor, label: Tensor | None) -> Tensor:
    """Return log r of noisy images, scaled to unit variance."""
    s = sigma.reshape(-1, 1, 1, 1)
    known = torch.cat([x / (s**2 + SIGMA_DATA**2).sqrt(), (s.log() / 4).expand(-1, 1, *x.shape[2:])], dim=1)
    return critic(known) if label is None else critic(known, label)


def fit_guide(model: Diffusion, real: Labelled, fake: Labelled, *, steps: int, seed: int) -> Diffusion:
    """Return the model guided by a discriminator of noisy real and noisy proposed images, which is fitted here."""
    channels, size, _ = model.shape
    with own_noise() as reseed:
        reseed(derive(seed, "guide"))
        critic = ConvCritic(size=size, channels=channels + 1, width=32, classes=model.classes, spectral_norm=True)
    sets = [(torch.as_tensor(x), torch.as_tensor(label)) for x, label in (real, fake)]

    def loss(step: int) -> Tensor:
        noise, (mean, deviation) = new_rng(seed, "guide", step), _LOG_SIGMA
        total = torch.zeros(())
        for sign, (x, label) in zip((-1.0, 1.0), sets, strict=True):
            which = torch.randint(len(x), (_BATCH,), generator=noise)
            sigma = (mean + deviation * torch.randn(_BATCH, generator=noise)).exp()
            noisy = x[which] + sigma.reshape(-1, 1, 1, 1) * torch.randn(x[which].shape, generator=noise)
            total = total + functional.softplus(sign * _noisy_ratio(critic, noisy, sigma, label[which])).mean()
        return total

    optimiser = torch.optim.Adam(critic.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, steps)
    fit(loss, optimiser, steps, schedule=schedule, progress=False)
    return replace(model, denoise=Guided(model.denoise, critic.eval().requires_grad_(False)))


def shrink(images: Any, size: int) -> Any:
    """Return images of so many pixels a side, each the mean of a square of the given ones.

    Example:
        >>> shrink(np.arange(16.0).reshape(1, 1, 4, 4), 2).tolist()
        [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    n, channels, height, width = images.shape
    if height != width or height % size:
        raise InputError(f"images of {height}x{width} cannot be shrunk to {size}x{size}: size must divide their side")
    side = height // size
    return images if side == 1 else images.reshape(n, channels, size, side, size, side).mean(axis=(3, 5))


def load_diffusion(name: str, size: int, seed: int, updates: int, *, steps: int = 18) -> Diffusion:
    """Return a committed model by its data set, pixels a side, seed and how long it was trained; for so many steps."""
    half, network = name == "cifar10", CifarUNet()
    if half:
        load_unit(_EDM.get(updates, f"edm-{updates}"), {"denoiser": network})
    else:
        network = load_part(f"{name}-{size}-{seed}", updates, "diffusion")
    network = network.to(memory_format=torch.channels_last).eval().requires_grad_(False)
    return Diffusion(Denoiser(network), (network.channels, size, size), network.classes, noise_levels(steps), half)


def make_pool(
    model: Diffusion, n: int, early: Sequence[int] = (), *, start: int = 0, progress: bool | None = None
) -> tuple[dict[int, Numbers], Numbers]:
    """Return the previews of n images at these steps, and after the last step the images; and their labels.

    All are in [-1, 1], shape `(n, channels, height, width)`, with ids from `start` on.
    """
    images: dict[int, list[Numbers]] = {step: [] for step in (*sorted(early), len(model.levels) - 1)}
    labels: list[Any] = []
    with torch.no_grad(), bar("sampling", n, progress) as update:
        for at in range(0, n, _BLOCK):
            z, label = model.noise(np.arange(start + at, start + min(at + _BLOCK, n)), seed=SEED)
            for step, clean in previews(model, z, model.levels, label):
                if step in images:
                    images[step].append(clean.clamp(-1, 1).contiguous().numpy())
            labels.append(label.numpy())
            update(at + len(z))
    return {step: np.concatenate(blocks) for step, blocks in images.items()}, np.concatenate(labels)


@torch.no_grad()  # type: ignore[untyped-decorator]
def noisy_previews(model: Diffusion, real: Labelled, step: int) -> Numbers:
    """Return the previews of real images at a step: noise is added, and the denoiser takes it away."""
    sigma, normal = model.levels[step].float(), new_rng(SEED, "noisy", step)
    images = []
    for start in range(0, len(real.x), _BLOCK):
        x = torch.as_tensor(real.x[start : start + _BLOCK])
        label = torch.as_tensor(real.label[start : start + _BLOCK])
        noisy = x + sigma * torch.randn(x.shape, generator=normal)
        images.append(model(noisy, sigma.expand(len(x)), label).clamp(-1, 1).contiguous().numpy())
    return np.concatenate(images)
