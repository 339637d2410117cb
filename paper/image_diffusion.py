"""The diffusion models of the image experiments: EDM, small, with classes.

`python -m paper.image_diffusion fashion_mnist 14 0 8000 FOLDER` trains one again, resumable in FOLDER, and
writes the file that is committed. The arguments are a data set, pixels a side, a seed, updates and a folder.

A `Denoiser` is D(x; sigma), the mean of clean images given noisy ones. `previews` runs the sampler and yields what it
already knows of the final image at every noise level; `heun` is its last word.

References:
    | Elucidating the Design Space of Diffusion-Based Generative Models (Karras et al., 2022): equations 5, 7 and 8,
      algorithm 1 and table 1
"""

import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from obrs._checks import check_count
from obrs._text import lookup
from obrs.draws import normals, uniforms
from obrs.errors import InputError
from obrs.fitting.loop import Course
from obrs.fitting.seeds import derived, keyed, own_noise
from obrs.fitting.tensors import fill_module, read_tensors
from obrs.models.registry import build

from .image_gans import HOME, Labelled, parts
from .nets import write_weights
from .program import run_program
from .resumable import Checkpoint, fit_resumable

__all__ = ["SETTINGS", "Denoiser", "Diffusion", "Preview", "Setting", "fit_denoiser", "heun", "is_trained"]
__all__ += ["load_diffusion", "noise_levels", "previews", "shrunk", "train_diffusion"]

SIGMA_DATA = 0.5
_LOG_SIGMA = (-1.2, 1.2)  # mean and standard deviation of the noise levels that are trained on
_HELD_OUT = 512  # images, four noise levels each

Tensor = Any


@dataclass(frozen=True)
class Setting:
    """How a model is trained: channels of its first map, images in an update, and learning rate."""

    width: int
    batch_size: int = 64
    lr: float = 2e-3


SETTINGS = {"digits": Setting(width=16), "fashion_mnist": Setting(width=32)}
"""How the models are trained, by data set."""


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
) -> Generator[Preview, Tensor | None, None]:
    """Run Heun's method from noise to images; yield a preview at every noise level, and the images themselves.

    Two evaluations per step, one in the last. A caller that rejects sends back which images go on, booleans `(n,)`.

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
        stay = yield Preview(step, clean, count)
        if stay is not None:
            x, clean, label = x[stay], clean[stay], None if label is None else label[stay]
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
    """

    denoise: Denoiser
    shape: tuple[int, int, int]
    classes: int | None
    levels: Tensor

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

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def propose(self, ids: Any, *, seed: int = 0) -> tuple[Tensor, Tensor | None]:
        """Return the images with these ids, in [-1, 1], and their labels."""
        z, label = self.noise(ids, seed=seed)
        x = heun(self.denoise, z.contiguous(memory_format=torch.channels_last), self.levels, label)
        return x.clamp(-1, 1), label


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


def fit_denoiser(
    real: Labelled,
    setting: Setting,
    updates: int,
    seed: int,
    *,
    checkpoint: Checkpoint | None = None,
    progress: bool | None = None,
) -> tuple[Denoiser, Course]:
    """Train a denoiser of these images, of any size; return it with averaged weights, and how it went.

    A tenth of the images, 512 at most, are held out: of all averages along the way the one that denoises them best is
    kept. If there is a checkpoint, a run that was killed goes on from it.
    """
    denoise = Denoiser(_network(real, setting, seed))
    x = torch.as_tensor(real.x).contiguous(memory_format=torch.channels_last)
    label = None if real.label is None else torch.as_tensor(real.label)
    rows = len(x) - min(_HELD_OUT, len(x) // 10)

    def of(which: Tensor, key: int | str, module: Any) -> Tensor:
        noise, (mean, deviation) = keyed(seed, "diffusion", key), _LOG_SIGMA
        sigma = (mean + deviation * torch.randn(len(which), generator=noise)).exp()
        normal = torch.randn((len(which), *x.shape[1:]), generator=noise).contiguous(memory_format=torch.channels_last)
        return module.loss(x[which], sigma, normal, None if label is None else label[which])

    def loss(module: Any, step: int) -> Tensor:
        return of(torch.randint(rows, (setting.batch_size,), generator=keyed(seed, "rows", step)), step, module)

    course = fit_resumable(
        denoise,
        loss,
        lambda module: float(of(torch.arange(rows, len(x)).repeat(4), "held out", module)),
        steps=updates,
        lr=setting.lr,
        average=0.999,
        checkpoint=checkpoint,
        progress=progress,
    )
    return denoise, course


def train_diffusion(name: str, size: int, seed: int, updates: int, out: Path, *, progress: bool | None = None) -> Path:
    """Train one model on the generator's part of a data set, resumable in `out`; return its file."""
    setting, mine = lookup(SETTINGS, name, "data set of the diffusion models"), parts(name)["generator"]
    real = Labelled(shrunk(mine.x, check_count(size, "size")), mine.label)
    out.mkdir(parents=True, exist_ok=True)
    path = _path(name, size, check_count(seed, "seed", least=0), check_count(updates, "updates"), str(out))
    facts = {"data": name, "size": size, "seed": seed, "steps": updates}
    kept = Checkpoint(path.with_suffix(".fit"), facts, "a checkpoint of a diffusion model")
    denoise, course = fit_denoiser(real, setting, updates, seed, checkpoint=kept, progress=progress)
    best = min(loss for _, loss in course.history)
    facts |= {"spec": denoise.network.spec, "seconds": round(course.seconds), "held_out_loss": best}
    command = f"python -m paper.image_diffusion {name} {size} {seed} {updates} FOLDER"
    write_weights(path, denoise.network, facts, command)
    return path


def is_trained(name: str, size: int, seed: int, updates: int, home: str = "") -> bool:
    """Tell whether the weights of a model come with this library, or are in the folder `home`."""
    return _path(name, size, seed, updates, home).exists()


def load_diffusion(name: str, size: int, seed: int, updates: int, *, home: str = "", steps: int = 18) -> Diffusion:
    """Return a model that is committed, or is in the folder `home`, in evaluation mode.

    Args:
        name, size, seed, updates: Its data set, pixels a side, seed and how long it was trained.
        home: A folder of your own.
        steps: Of the sampler.
    """
    path = _path(name, size, seed, updates, home)
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*-diffusion.safetensors"))) or "none"
        train = f"python -m paper.image_diffusion {name} {size} {seed} {updates} {home or 'FOLDER'}"
        raise InputError(f"there is no {path.stem}; there are: {known}; `{train}` trains it, --home FOLDER reads it")
    tensors, facts = read_tensors(path, "a diffusion model of the image experiments")
    network = build(facts["spec"])
    fill_module(network, tensors, "denoiser", path)
    network = network.to(memory_format=torch.channels_last).eval().requires_grad_(False)
    return Diffusion(Denoiser(network), (network.channels, size, size), network.classes, noise_levels(steps))


def _network(mine: Labelled, setting: Setting, seed: int) -> Any:
    classes = None if mine.label is None else int(mine.label.max()) + 1
    with own_noise() as reseed:
        reseed(derived(seed, "diffusion"))
        network = build({"name": "unet", "channels": mine.x.shape[1], "width": setting.width, "classes": classes})
    return network.to(memory_format=torch.channels_last)


def _path(name: str, size: int, seed: int, updates: int, home: str) -> Path:
    return (Path(home) if home else HOME) / f"{name}-{size}-{seed}-{updates}-diffusion.safetensors"


if __name__ == "__main__":
    usage = "python -m paper.image_diffusion NAME SIZE SEED UPDATES FOLDER"
    sys.exit(run_program(train_diffusion, (str, int, int, int, Path), usage))
