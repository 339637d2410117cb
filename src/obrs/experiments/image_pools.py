"""Pools of a diffusion model: its images, what its sampler knew of them early, and ratios that are cross-fitted.

The pool comes from a model of `image_diffusion`, from any pipeline of diffusers, or from a folder of images. Only the
first shows previews. `cross_fitted` scores each half of a pool with a ratio that was fitted on the other half.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from .._files import replacing
from .._inputs import is_number
from .._progress import bar
from ..adapters.pipelines import from_pipeline
from ..errors import InputError, MissingLibraryError
from ..fitting.seeds import derived, keyed
from ..metrics.features import extract
from ..metrics.images import image_files, read_images
from ..ratios.methods import Network
from ..ratios.refit import refit
from .image_diffusion import Diffusion, previews
from .image_gans import Labelled
from .image_ratios import see

__all__ = ["Pool", "Scores", "cached_pool", "cross_fitted", "features_of", "make_pool", "noisy_previews", "outside_pool"]

SEED = 100  # of proposals: no seed that a model was trained with
_BLOCK = 200  # images at a time

Floats = np.ndarray[Any, Any]
Tensor = Any


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


def cached_pool(path: Path | None, make: Callable[[], Pool]) -> Pool:
    """Return the pool of a file, or make it and write the file; without a path, just make it."""
    if path is not None and path.exists():
        with np.load(path) as file:
            early = {int(key[5:]): file[key] for key in file.files if key.startswith("early")}
            return Pool(file["images"], file["labels"] if "labels" in file.files else None, early)
    pool = make()
    if path is not None:
        arrays = {f"early{step}": x for step, x in pool.early.items()} | {"images": pool.images}
        with replacing(path) as file:
            np.savez(file, **arrays, **({} if pool.labels is None else {"labels": pool.labels}))
    return pool


def outside_pool(source: str, n: int, classes: int | None, *, progress: bool | None = None) -> Pool:
    """Return a pool from elsewhere.

    Args:
        source: A folder where a pipeline of diffusers was saved, with model_index.json in it; or a folder of images.
        n: Proposals; of a folder of images the first n.
        classes: How many classes a pipeline that takes `class_labels` is asked for, equally often.
        progress: As everywhere.
    """
    home = Path(source).expanduser()
    if not (home / "model_index.json").exists():
        if not home.is_dir() or not image_files(home):
            wanted = "a folder of images, or one that pipe.save_pretrained(FOLDER) of diffusers has written"
            raise InputError(f"source must be {wanted}, got {source}")
        images = read_images(home)
        if images.n < n:
            raise InputError(f"{source} has {images.n} images, the pool needs {n}; say --pool {images.n}")
        return Pool(np.asarray(images.floats(0, n)), None, {})
    propose = from_pipeline(*_pipeline(home, classes), seed=SEED)
    made, labels = [], []
    with bar("sampling", n, progress) as tell:
        for start in range(0, n, _BLOCK):
            batch = propose(np.arange(start, min(start + _BLOCK, n)))
            x, label = batch if isinstance(batch, tuple) else (batch, None)
            made.append(x.cpu().numpy())
            labels.append(label)
            tell(start + len(x))
    return Pool(np.concatenate(made), None if labels[0] is None else torch.cat(labels).cpu().numpy(), {})


class Scores(NamedTuple):
    """Log-ratios of a pool at each noise level, `(levels, n)`, and the mean held-out log-loss of the two fits."""

    log_ratio: Floats
    log_loss: float


def features_of(look: Any, images: Any) -> Floats:
    """Return what a ratio sees of images: the features of a classifier, or without one those that need no labels."""
    if look is None:
        return np.asarray(extract(np.asarray(images), "gradients", progress=False), dtype=np.float32)
    return see(look.features, images)


def cross_fitted(
    real: Sequence[Floats], fake: Sequence[Floats], *, steps: int, seed: int, progress: bool | None = None
) -> Scores:
    """Score each half of a pool with a ratio that was fitted on the other half and on all real samples.

    With several noise levels the ratio is one network that is told the level: p(x | level) / q(x | level).

    Args:
        real, fake: Features of real and fake samples, `(n, k)`, for each noise level.
        steps: Updates of each fit.
        seed: Decides the networks.
        progress: As everywhere.
    """
    n, levels = len(fake[0]), range(len(fake))
    half = np.arange(n) % 2
    scores, losses = np.empty((len(fake), n)), []

    def joined(parts: Sequence[Floats]) -> Any:
        x = np.concatenate(parts)
        if len(parts) == 1:
            return x
        return x, np.repeat(np.arange(len(parts)), [len(part) for part in parts])

    for mine in (0, 1):
        fitted = refit(
            joined(real),
            joined([x[half != mine] for x in fake]),
            Network(width=96, waves=0),
            steps=steps,
            batch_size=256,
            held_out=0.2,
            seed=derived(seed, "half", mine) % 2**32,
            progress=progress,
        )
        losses.append(float(fitted.report.log_loss))
        for level in levels:
            x = fake[level][half == mine]
            batch = x if len(fake) == 1 else (x, np.full(len(x), level))
            scores[level, half == mine] = np.asarray(fitted(batch), dtype=np.float64)
    return Scores(scores, float(np.mean(losses)))


def _pipeline(home: Path, classes: int | None) -> Any:
    try:
        from diffusers import DiffusionPipeline
    except ImportError as error:
        raise MissingLibraryError("pipelines need diffusers: pip install 'obrs[diffusion]'") from error
    raise NotImplementedError
