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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from obrs._checks import check_count
from obrs._progress import bar
from obrs.draws import normals, uniforms
from obrs.errors import InputError
from obrs.fitting.loop import fit
from obrs.fitting.seeds import derived, keyed, own_noise
from obrs.fitting.tensors import fill_module, read_tensors
from obrs.models.conv import ConvCritic
from obrs.models.registry import build

from .image_gans import Labelled
from .nets import WEIGHTS
from .nets.cifar import CifarUNet, load_unit

__all__ = ["Denoiser", "Diffusion", "Guided", "Pool", "Preview", "fit_guide", "heun", "load_diffusion", "make_pool"]
__all__ += ["noise_levels", "noisy_previews", "previews", "shrunk"]

SEED = 100  # of proposals: no seed that a model was trained with
SIGMA_DATA = 0.5
_BLOCK = 200  # images at a time
_EDM = {3836: "edm-early-0", 15278: "edm-0"}  # units of CIFAR-10, by their updates
_LOG_SIGMA = (-1.2, 1.2)  # mean and standard deviation of the noise levels that are trained on
Floats = np.ndarray[Any, Any]
Tensor = Any


class Denoiser(nn.Module):  # type: ignore[misc]
    """D(x; sigma), a network with EDM's preconditioning: its input and what it is fitted to have unit variance.

    Args:
        network: From scaled images, times `log(sigma)/4` and labels to images, such as a `UNet`.
        sigma_data: Standard deviation of the clean pixels, roughly.

    Example:
        >>> zero = Denoiser(lambda x, time, label: 0 * x)
        >>> zero(torch.ones(1, 1, 1, 1), torch.full((1,), 0.5)).item()  # half of the variance is noise
        0.5
    """

    def __init__(self, network: Any, sigma_data: float = SIGMA_DATA) -> None:
        super().__init__()
        self.network, self.sigma_data = network, sigma_data

    def forward(self, x: Tensor, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the clean images that are expected behind x, noisy images, `sigma` of shape `(n,)`."""
        s, total = sigma.reshape(-1, 1, 1, 1), sigma.reshape(-1, 1, 1, 1) ** 2 + self.sigma_data**2
        inner = self.network(x / total.sqrt(), sigma.log() / 4, label)
        return self.sigma_data**2 / total * x + s * self.sigma_data / total.sqrt() * inner

    def loss(self, x: Tensor, sigma: Tensor, noise: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the mean squared error, in units in which the network's own target has variance 1."""
        s = sigma.reshape(-1, 1, 1, 1)
        weight = (s**2 + self.sigma_data**2) / (s * self.sigma_data) ** 2
        return (weight * (self(x + s * noise, sigma, label) - x) ** 2).mean()


def noise_levels(steps: int, *, low: float = 0.002, high: float = 80.0, rho: float = 7.0) -> Tensor:
    """Return the noise levels of a sampler, from `high` to `low` and then 0, shape `(steps + 1,)`.

    Example:
        >>> [round(level, 3) for level in noise_levels(3).tolist()]
        [80.0, 2.515, 0.002, 0.0]
    """
    at = torch.linspace(0, 1, check_count(steps, "steps", least=2), dtype=torch.float64)
    levels = (high ** (1 / rho) + at * (low ** (1 / rho) - high ** (1 / rho))) ** rho
    return torch.cat([levels, torch.zeros(1, dtype=torch.float64)])


class Preview(NamedTuple):
    """What a sampler knows when it has evaluated the denoiser at a noise level.

    Attributes:
        step: Number of the noise level, from 0 on.
        clean: The clean image that is expected, which costs nothing: the sampler needs it for its next step.
        evaluations: Of the denoiser, up to here.
    """

    step: int
    clean: Tensor
    evaluations: int


def previews(
    denoise: Callable[..., Tensor], z: Tensor, levels: Tensor, label: Tensor | None = None
) -> Iterator[Preview]:
    """Run Heun's method from noise to images; yield a preview at every noise level, and the images themselves.

    Two evaluations per step, one in the last.

    Args:
        denoise: As a `Denoiser`.
        z: Standard normals, shape `(n, channels, height, width)`.
        levels: Noise levels, the last of them 0.
        label: Classes, `(n,)`, if the denoiser takes them.
    """
    sigmas = levels.to(z)
    x, count = z * sigmas[0], 0
    for step in range(len(sigmas) - 1):
        now, then = sigmas[step], sigmas[step + 1]
        clean = denoise(x, now.expand(len(x)), label)
        count += 1
        yield Preview(step, clean, count)
        slope = (x - clean) / now
        ahead = x + (then - now) * slope
        if then > 0:
            second = (ahead - denoise(ahead, then.expand(len(x)), label)) / then
            ahead, count = x + (then - now) * (slope + second) / 2, count + 1
        x = ahead
    yield Preview(len(sigmas) - 1, x, count)


def heun(denoise: Callable[..., Tensor], z: Tensor, levels: Tensor, label: Tensor | None = None) -> Tensor:
    """Return the images at the end of `previews`.

    Example:
        >>> gauss = lambda x, sigma, label: x / (1 + sigma.reshape(-1, 1, 1, 1) ** 2)  # data of variance 1
        >>> x = heun(gauss, torch.ones(1, 1, 1, 1), noise_levels(40))
        >>> abs(x.item() - 1) < 0.01  # standard normals in, standard normals out
        True
    """
    *_, last = previews(denoise, z, levels, label)
    return last.clean


@dataclass(frozen=True, eq=False)
class Diffusion:
    """A trained model as a source of proposals; the noise of an image belongs to its id.

    Args:
        denoise: The denoiser, with averaged weights.
        shape: Of an image: channels, height, width.
        classes: Number of labels, each proposed equally often; None if there are none.
        levels: Noise levels of the sampler.
        half: Compute in bfloat16, in which that of CIFAR-10 was trained; it takes half of the time.
    """

    denoise: Any
    shape: tuple[int, int, int]
    classes: int | None
    levels: Tensor
    half: bool = False

    @property
    def evaluations(self) -> int:
        """Evaluations of the network that one image takes."""
        return 2 * (len(self.levels) - 1) - 1

    def noise(self, ids: Any, *, seed: int = 0) -> tuple[Tensor, Tensor | None]:
        """Return the noise that the images with these ids start from, and their labels."""
        z = normals(ids, int(np.prod(self.shape)), seed=seed, like=torch.empty(0)).reshape(-1, *self.shape)
        if self.classes is None:
            return z, None
        return z, torch.from_numpy((uniforms(ids, seed=seed) * self.classes).astype(np.int64))

    def __call__(self, x: Tensor, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the clean images that are expected behind noisy ones."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            return self.denoise(x.contiguous(memory_format=torch.channels_last), sigma, label)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def propose(self, ids: Any, *, seed: int = 0) -> tuple[Tensor, Tensor | None]:
        """Return the images with these ids, in [-1, 1], and their labels."""
        z, label = self.noise(ids, seed=seed)
        return heun(self, z, self.levels, label).clamp(-1, 1), label


class Guided:
    """A denoiser with discriminator guidance: D(x; sigma) + sigma² w grad log r(x; sigma).

    Args:
        denoise: The denoiser that is guided.
        critic: From images with one more channel, `log(sigma)/4`, and labels to log r of noisy images.
        weight: w, 1 for the score of the target as far as the critic knows it.

    Example:
        >>> still = Guided(lambda x, sigma, label: 0 * x, lambda x: x[:, 0].sum((1, 2)), weight=2.0)
        >>> round(still(torch.zeros(1, 1, 1, 1), torch.full((1,), 0.5)).item(), 3)  # 2 sigma², times 2^½ by the scale
        0.707
    """

    def __init__(self, denoise: Any, critic: Any, weight: float = 1.0) -> None:
        self.denoise, self.critic, self.weight = denoise, critic, weight

    def __call__(self, x: Tensor, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(_noisy_ratio(self.critic, x, sigma, label).sum(), x)
        return self.denoise(x.detach(), sigma, label) + self.weight * sigma.reshape(-1, 1, 1, 1) ** 2 * slope


def _noisy_ratio(critic: Any, x: Tensor, sigma: Tensor, label: Tensor | None) -> Tensor:
    """Return log r of noisy images, scaled to unit variance."""
    s = sigma.reshape(-1, 1, 1, 1)
    known = torch.cat([x / (s**2 + SIGMA_DATA**2).sqrt(), (s.log() / 4).expand(-1, 1, *x.shape[2:])], dim=1)
    return critic(known) if label is None else critic(known, label)


def fit_guide(
    model: Diffusion, real: Labelled, fake: Labelled, *, steps: int, seed: int, weight: float = 1.0, batch: int = 64
) -> Diffusion:
    """Return the model guided by a discriminator of noisy real and noisy proposed images, which is fitted here."""
    channels, size, _ = model.shape
    with own_noise() as reseed:
        reseed(derived(seed, "guide"))
        critic = ConvCritic(size=size, channels=channels + 1, width=32, classes=model.classes, spectral_norm=True)
    sets = [(torch.as_tensor(x), None if label is None else torch.as_tensor(label)) for x, label in (real, fake)]

    def loss(step: int) -> Tensor:
        noise, (mean, deviation) = keyed(seed, "guide", step), _LOG_SIGMA
        total = torch.zeros(())
        for sign, (x, label) in zip((-1.0, 1.0), sets, strict=True):
            which = torch.randint(len(x), (batch,), generator=noise)
            sigma = (mean + deviation * torch.randn(batch, generator=noise)).exp()
            noisy = x[which] + sigma.reshape(-1, 1, 1, 1) * torch.randn(x[which].shape, generator=noise)
            own = None if model.classes is None or label is None else label[which]
            total = total + functional.softplus(sign * _noisy_ratio(critic, noisy, sigma, own)).mean()
        return total

    optimiser = torch.optim.Adam(critic.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, steps)
    fit(loss, optimiser, steps, schedule=schedule, progress=False)
    return replace(model, denoise=Guided(model.denoise, critic.eval().requires_grad_(False), weight))


def shrunk(images: Any, size: int) -> Any:
    """Return images of so many pixels a side, each the mean of a square of the given ones.

    Example:
        >>> shrunk(np.arange(16.0).reshape(1, 1, 4, 4), 2).tolist()
        [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    n, channels, height, width = images.shape
    if height != width or height % size:
        raise InputError(f"images of {height}x{width} cannot be shrunk to {size}x{size}: size must divide their side")
    side = height // size
    return images if side == 1 else images.reshape(n, channels, size, side, size, side).mean(axis=(3, 5))


def load_diffusion(name: str, size: int, seed: int, updates: int, *, steps: int = 18) -> Diffusion:
    """Return a model that is committed, in evaluation mode.

    Args:
        name, size, seed, updates: Its data set, pixels a side, seed and how long it was trained.
        steps: Of the sampler.
    """
    half = name == "cifar10"
    if half:
        network: Any = CifarUNet()
        load_unit(_EDM.get(updates, f"edm-{updates}"), {"denoiser": network})
    else:
        path = WEIGHTS / f"{name}-{size}-{seed}-{updates}-diffusion.safetensors"
        if not path.exists():
            known = ", ".join(sorted(file.stem for file in path.parent.glob("*-diffusion.safetensors")))
            raise InputError(f"there is no {path.stem}; there are: {known}")
        tensors, facts = read_tensors(path, "a diffusion model of the image experiments")
        network = build(facts["spec"])
        fill_module(network, tensors, "denoiser", path)
    network = network.to(memory_format=torch.channels_last).eval().requires_grad_(False)
    return Diffusion(Denoiser(network), (network.channels, size, size), network.classes, noise_levels(steps), half)


@dataclass(frozen=True, eq=False)
class Pool:
    """Proposals.

    Args:
        images: In [-1, 1], shape `(n, channels, height, width)`, float32.
        labels: The classes that they were asked for, None if there are none.
        early: Previews by step of the sampler, of the shape of the images.
    """

    images: Floats
    labels: Floats | None
    early: Mapping[int, Floats]


def make_pool(
    model: Diffusion, n: int, steps: Sequence[int] = (), *, start: int = 0, progress: bool | None = None
) -> Pool:
    """Return n images with ids from `start` on, and their previews at these steps."""
    found: dict[int, list[Floats]] = {}
    labels, last = [], len(model.levels) - 1
    with torch.no_grad(), bar("sampling", n, progress) as tell:
        for at in range(0, n, _BLOCK):
            z, label = model.noise(np.arange(start + at, start + min(at + _BLOCK, n)), seed=SEED)
            for preview in previews(model, z, model.levels, label):
                if preview.step in steps or preview.step == last:
                    found.setdefault(preview.step, []).append(preview.clean.clamp(-1, 1).contiguous().numpy())
            labels.append(label)
            tell(at + len(z))
    whole = {step: np.concatenate(blocks) for step, blocks in found.items()}
    return Pool(whole.pop(last), None if model.classes is None else torch.cat(labels).numpy(), whole)


@torch.no_grad()  # type: ignore[untyped-decorator]
def noisy_previews(model: Diffusion, real: Labelled, step: int) -> Floats:
    """Return the previews of real images at a step: noise is added, and the denoiser takes it away."""
    sigma, normal = model.levels[step].float(), keyed(SEED, "noisy", step)
    made = []
    for start in range(0, len(real.x), _BLOCK):
        x = torch.as_tensor(real.x[start : start + _BLOCK])
        label = None if model.classes is None else torch.as_tensor(real.label[start : start + _BLOCK])
        noisy = x + sigma * torch.randn(x.shape, generator=normal)
        made.append(model(noisy, sigma.expand(len(x)), label).clamp(-1, 1).contiguous().numpy())
    return np.concatenate(made)
