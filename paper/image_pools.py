"""Pools of a diffusion model: its images, what its sampler knew of them early, and ratios that are cross-fitted.

The pool comes from a model of `image_diffusion`, from any pipeline of diffusers, or from a folder of images. Only the
first shows previews. `cross_fitted` scores each half of a pool with a ratio that was fitted on the other half.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from obrs._files import replacing
from obrs._progress import bar
from obrs.adapters import from_pipeline
from obrs.errors import InputError, MissingLibraryError
from obrs.fitting.seeds import derived, keyed
from obrs.metrics.features import extract
from obrs.metrics.images import read_images
from obrs.ratios.refit import Network, refit

from .image_diffusion import Diffusion, Preview, previews
from .image_gans import Labelled
from .image_ratios import see

__all__ = ["Kept", "Pool", "Ratio", "cached_pool", "cross_fitted", "features_of", "fit_ratio", "make_pool"]
__all__ += ["noisy_previews", "outside_pool", "sample_early"]

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


def cached_pool(path: Path | None, make: Callable[[], Pool]) -> Pool:
    """Return the pool of a file, or make it and write the file; without a path, just make it."""
    if path is not None and path.exists():
        with np.load(path) as file:
            early = {int(key[5:]): file[key] for key in file.files if key.startswith("early")}
            return Pool(file["images"], file["labels"] if "labels" in file.files else None, early)
    pool = make()
    if path is not None:
        arrays: dict[str, Any] = {f"early{step}": x for step, x in pool.early.items()} | {"images": pool.images}
        if pool.labels is not None:
            arrays["labels"] = pool.labels
        with replacing(path) as file:
            np.savez(file, **arrays)
    return pool


def outside_pool(source: str, n: int, classes: int | None, steps: int, *, progress: bool | None = None) -> Pool:
    """Return a pool from elsewhere.

    Args:
        source: A folder where a pipeline of diffusers was saved, with model_index.json in it; or a folder of images.
        n: Proposals; of a folder of images the first n.
        classes: How many classes a pipeline that takes `class_labels` is asked for, equally often.
        steps: Of the sampler of a pipeline.
        progress: As everywhere.
    """
    home = Path(source).expanduser()
    if not (home / "model_index.json").exists():
        if not home.is_dir():
            wanted = "a folder of images, or one that pipe.save_pretrained(FOLDER) of diffusers has written"
            raise InputError(f"source must be {wanted}, got {source}")
        images = read_images(home)
        if images.n < n:
            raise InputError(f"{source} has {images.n} images, the pool needs {n}; say --pool {images.n}")
        return Pool(np.asarray(images.floats(0, n)), None, {})
    propose = _pipeline(home, classes, steps)
    made, labels = [], []
    with bar("sampling", n, progress) as tell:
        for start in range(0, n, _BLOCK):
            batch = propose(np.arange(start, min(start + _BLOCK, n)))
            x, label = batch if isinstance(batch, tuple) else (batch, None)
            made.append(x.cpu().numpy())
            labels.append(label)
            tell(start + len(x))
    return Pool(np.concatenate(made), None if labels[0] is None else torch.cat(labels).cpu().numpy(), {})


def features_of(look: Any, images: Any) -> Floats:
    """Return what a ratio sees of images: the features of a classifier, or without one those that need no labels."""
    if look is None:
        return np.asarray(extract(np.asarray(images), "gradients", progress=False), dtype=np.float32)
    seen: Floats = see(look.features, images)
    return seen


class Ratio(NamedTuple):
    """A ratio of features, and its held-out log-loss."""

    log_ratio: Callable[[Floats], Floats]
    log_loss: float


def fit_ratio(real: Floats, fake: Floats, *, steps: int, seed: int, progress: bool | None = None) -> Ratio:
    """Fit p/q of features.

    A network says anything of an image unlike all others, and one huge ratio is most of every average. So features and
    log-ratios are cut off where 999 of 1000 real samples end: no image is more real than these.

    Args:
        real, fake: Features of real and fake samples, `(n, k)`; with previews, all of one noise level.
        steps: Updates.
        seed: Decides the network.
        progress: As everywhere.
    """
    ends = np.quantile(real, (0.001, 0.999), axis=0).astype(real.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "held-out log-loss .* is worse than chance")  # so early previews are alike
        found = refit(
            np.clip(real, *ends),
            np.clip(fake, *ends),
            Network(width=96, waves=0),
            steps=steps,
            batch_size=256,
            held_out=0.2,
            seed=seed,
            progress=progress,
        )

    def score(x: Floats) -> Floats:
        return np.asarray(found(np.clip(x, *ends)), dtype=np.float64)

    top = np.quantile(score(real), 0.999)
    return Ratio(lambda x: np.minimum(score(x), top), float(found.report.log_loss))


def cross_fitted(
    real: Floats, fake: Floats, *, steps: int, seed: int, progress: bool | None = None
) -> tuple[Floats, float]:
    """Score each half of a pool with a ratio that was fitted on the other half and on all real samples.

    The arguments are those of `fit_ratio`. Returns log-ratios `(n,)`, and the mean held-out log-loss of the two fits.
    """
    half = np.arange(len(fake)) % 2
    scores, losses = np.empty(len(fake)), []
    for mine in (0, 1):
        own = derived(seed, "half", mine) % 2**32
        ratio = fit_ratio(real, fake[half != mine], steps=steps, seed=own, progress=progress)
        losses.append(ratio.log_loss)
        scores[half == mine] = ratio.log_ratio(fake[half == mine])
    return scores, float(np.mean(losses))


def _pipeline(home: Path, classes: int | None, steps: int) -> Callable[[Any], Any]:
    """Return the pipeline of a folder as a proposal; if it takes classes, it is asked for each of them in turn."""
    try:
        from diffusers import DiffusionPipeline
    except ImportError as error:
        raise MissingLibraryError("pipelines need diffusers: pip install diffusers") from error
    pipe = DiffusionPipeline.from_pretrained(home)
    pipe.set_progress_bar_config(disable=True)
    known = signature(pipe).parameters
    conditions = None
    if "class_labels" in known:
        if classes is None:
            raise InputError(f"{home} makes images of classes, and the real images have no labels to tell how many")
        conditions = range(classes)
    return from_pipeline(
        pipe,
        arguments={"num_inference_steps": steps} if "num_inference_steps" in known else None,
        conditions=conditions,
        argument="class_labels",
        batch_size=_BLOCK,
        seed=SEED,
    )
