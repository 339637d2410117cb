"""The diffusion models of the image experiments: EDM, small, with classes.

`python -m paper.image_diffusion fashion_mnist 14 0 8000 FOLDER` trains one again and writes the file that is committed.
The arguments are a data set, pixels a side, a seed, updates and a folder. Those of CIFAR-10 are units of
`runs/train_cifar.py`.

A `Denoiser` is D(x; sigma), the mean of clean images given noisy ones. `previews` runs the sampler and yields what it
already knows of the final image at every noise level; `heun` is its last word.

References:
    | Elucidating the Design Space of Diffusion-Based Generative Models (Karras et al., 2022): equations 5, 7 and 8,
      algorithm 1 and table 1
"""

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from obrs._checks import check_count
from obrs._progress import bar
from obrs._text import lookup
from obrs.draws import normals, uniforms
from obrs.errors import InputError
from obrs.fitting.loop import Course, fit_best
from obrs.fitting.seeds import derived, keyed, own_noise
from obrs.fitting.tensors import fill_module, read_tensors
from obrs.models.registry import build

from .image_gans import Labelled, parts
from .nets import WEIGHTS, write_weights
from .nets.cifar import CifarUNet, load_unit
from .program import run_program

__all__ = ["SETTINGS", "Denoiser", "Diffusion", "Kept", "Pool", "Preview", "Setting", "fit_denoiser", "heun"]
__all__ += ["load_diffusion", "make_pool", "noise_levels", "noisy_previews", "previews", "sample_early", "shrunk"]
__all__ += ["train_diffusion"]

SEED = 100  # of proposals: no seed that a model was trained with
SIGMA_DATA = 0.5
_BLOCK = 200  # images at a time
_EDM = {3836: "edm-early-0", 15278: "edm-0"}  # units of CIFAR-10, by their updates
Floats = np.ndarray[Any, Any]
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
    real: Labelled, setting: Setting, updates: int, seed: int, *, progress: bool | None = None
) -> tuple[Denoiser, Course]:
    """Train a denoiser of these images, of any size; return it with averaged weights, and how it went.

    A tenth of the images, 512 at most, are held out: of all averages along the way the one that denoises them best is
    kept.
    """
    classes = None if real.label is None else int(real.label.max()) + 1
    with own_noise() as reseed:
        reseed(derived(seed, "diffusion"))
        network = build({"name": "unet", "channels": real.x.shape[1], "width": setting.width, "classes": classes})
    denoise = Denoiser(network.to(memory_format=torch.channels_last))
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

    def held_out(module: Any) -> float:
        return float(of(torch.arange(rows, len(x)).repeat(4), "held out", module))

    return denoise, fit_best(denoise, loss, held_out, steps=updates, lr=setting.lr, average=0.999, progress=progress)


def train_diffusion(name: str, size: int, seed: int, updates: int, out: Path) -> Path:
    """Train one model on the generator's part of a data set; return its file in `out`."""
    setting, mine = lookup(SETTINGS, name, "data set of the diffusion models"), parts(name)["generator"]
    real = Labelled(shrunk(mine.x, check_count(size, "size")), mine.label)
    out.mkdir(parents=True, exist_ok=True)
    path = _path(name, size, check_count(seed, "seed", least=0), check_count(updates, "updates"), str(out))
    denoise, course = fit_denoiser(real, setting, updates, seed)
    facts = {"data": name, "size": size, "seed": seed, "steps": updates, "spec": denoise.network.spec}
    facts |= {"seconds": round(course.seconds), "held_out_loss": min(loss for _, loss in course.history)}
    command = f"python -m paper.image_diffusion {name} {size} {seed} {updates} FOLDER"
    write_weights(path, denoise.network, facts, command)
    return path


def load_diffusion(name: str, size: int, seed: int, updates: int, *, home: str = "", steps: int = 18) -> Diffusion:
    """Return a model that is committed, or is in the folder `home`, in evaluation mode.

    Args:
        name, size, seed, updates: Its data set, pixels a side, seed and how long it was trained.
        home: A folder of your own.
        steps: Of the sampler.
    """
    if name == "cifar10" and updates in _EDM:
        network: Any = CifarUNet()
        load_unit(_EDM[updates], {"denoiser": network})
    else:
        path = _path(name, size, seed, updates, home)
        if not path.exists():
            known = ", ".join(sorted(file.stem for file in path.parent.glob("*-diffusion.safetensors"))) or "none"
            train = f"python -m paper.image_diffusion {name} {size} {seed} {updates} {home or 'FOLDER'}"
            raise InputError(f"there is no {path.stem}; there are: {known}; `{train}` trains it")
        tensors, facts = read_tensors(path, "a diffusion model of the image experiments")
        network = build(facts["spec"])
        fill_module(network, tensors, "denoiser", path)
    network = network.to(memory_format=torch.channels_last).eval().requires_grad_(False)
    return Diffusion(Denoiser(network), (network.channels, size, size), network.classes, noise_levels(steps))


def _path(name: str, size: int, seed: int, updates: int, home: str) -> Path:
    return (Path(home) if home else WEIGHTS) / f"{name}-{size}-{seed}-{updates}-diffusion.safetensors"


# Pools ---------------------------------------------------------------------------------------------------------------


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


def make_pool(model: Diffusion, n: int, steps: Sequence[int], *, progress: bool | None = None) -> Pool:
    """Return the images with ids 0 to n - 1, and their previews at these steps."""
    found: dict[int, list[Floats]] = {}
    labels = []
    with torch.no_grad(), bar("sampling", n, progress) as tell:
        for start in range(0, n, _BLOCK):
            z, label = model.noise(np.arange(start, min(start + _BLOCK, n)), seed=SEED)
            z = z.contiguous(memory_format=torch.channels_last)
            for preview in previews(model.denoise, z, model.levels, label):
                if preview.step in steps or preview.step == len(model.levels) - 1:
                    found.setdefault(preview.step, []).append(preview.clean.clamp(-1, 1).contiguous().numpy())
            labels.append(label)
            tell(start + len(z))
    whole = {step: np.concatenate(blocks) for step, blocks in found.items()}
    images = whole.pop(len(model.levels) - 1)
    return Pool(images, None if model.classes is None else torch.cat(labels).numpy(), whole)


class Kept(NamedTuple):
    """What early rejection leaves: images, their labels, their ids, and how often the network was evaluated in all."""

    images: Floats
    labels: Floats | None
    ids: Any
    evaluations: int


def sample_early(
    model: Diffusion, ids: Any, steps: Sequence[int], decide: Callable[[Sequence[Floats], Any, Any], Any]
) -> Kept:
    """Run the sampler for these ids, and stop for an image when it is rejected.

    Args:
        model: What proposes.
        ids: Of the proposals; the noise is that of `make_pool`.
        steps: Where it decides, ascending; it also does at the end.
        decide: From what was seen so far (previews at these steps, at last the images), labels and ids to booleans: who
            goes on.
    """
    ends, found, total = (*steps, len(model.levels) - 1), [], 0
    with torch.no_grad():
        for start in range(0, len(ids), _BLOCK):
            here, done = np.asarray(ids[start : start + _BLOCK]), 0
            z, label = model.noise(here, seed=SEED)
            labels, seen = None if label is None else label.numpy(), list[Floats]()
            run = previews(model.denoise, z.contiguous(memory_format=torch.channels_last), model.levels, label)
            preview: Preview | None = next(run)
            while preview is not None:
                total, done, stay = total + (preview.evaluations - done) * len(here), preview.evaluations, None
                if preview.step in ends:
                    seen.append(preview.clean.clamp(-1, 1).contiguous().numpy())
                    stays = np.asarray(decide(seen, labels, here))
                    here, seen = here[stays], [images[stays] for images in seen]
                    labels, stay = None if labels is None else labels[stays], torch.from_numpy(stays)
                preview = None if preview.step == ends[-1] or not len(here) else run.send(stay)
            if len(seen) == len(ends):
                found.append((seen[-1], labels, here))
    images, named, kept = zip(*found, strict=True)
    return Kept(
        np.concatenate(images), None if named[0] is None else np.concatenate(named), np.concatenate(kept), total
    )


@torch.no_grad()  # type: ignore[untyped-decorator]
def noisy_previews(model: Diffusion, real: Labelled, step: int) -> Floats:
    """Return the previews of real images at a step: noise is added, and the denoiser takes it away."""
    sigma, normal = model.levels[step].float(), keyed(SEED, "noisy", step)
    made = []
    for start in range(0, len(real.x), _BLOCK):
        x = torch.as_tensor(real.x[start : start + _BLOCK])
        label = None if model.classes is None else torch.as_tensor(real.label[start : start + _BLOCK])
        noisy = (x + sigma * torch.randn(x.shape, generator=normal)).contiguous(memory_format=torch.channels_last)
        made.append(model.denoise(noisy, sigma.expand(len(x)), label).clamp(-1, 1).contiguous().numpy())
    return np.concatenate(made)


if __name__ == "__main__":
    usage = "python -m paper.image_diffusion NAME SIZE SEED UPDATES FOLDER"
    sys.exit(run_program(train_diffusion, (str, int, int, int, Path), usage))
