"""Training GANs of images, and judging them after rejection: what the three experiments on it share.

A GAN is trained on its part of the data, see `image_gans.parts`. The moving average of its generator proposes. The
recommended ratio, on the features of a classifier, is fitted to it and rejects at the budget, with one constant per
class; without labels it sees gradients, and there is one constant. Another classifier judges what is kept: the Fréchet
distance to the test images with its error, and precision and recall. The classifiers of a seed are the same for all
that is compared.
"""

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from obrs._checks import check_budget, check_count
from obrs._text import text_table

from .record import Record

__all__ = ["BIGGAN", "CELEBA", "CIFAR", "IMAGENET", "LARGE", "SMALL", "ImageTraining", "Judges", "compared", "effort"]
__all__ += ["finals", "follow", "jobs", "judged_table", "kept", "training"]

SMALL: dict[str, Any] = {
    "data": "digits",
    "seeds": 1,
    "batch_size": 16,
    "ema_start": 0,
    "pool": 300,
    "neighbours": 200,
    "fakes": 300,
    "fit_steps": 20,
    "epochs": 1,
}
"""Fields of a run that takes seconds."""
LARGE: dict[str, Any] = {
    "latent": 128,
    "ema_decay": 0.9999,
    "pool": 50_000,
    "neighbours": 10_000,
    "judged": 10_000,
    "second": "inception_v3",
    "fakes": 50_000,
    "fit_steps": 5000,
}
"""Fields of the paper's size, for data of your own."""
CIFAR: dict[str, Any] = LARGE | {
    "data": "cifar10",
    "seeds": 1,
    "width": 64,
    "steps": 100_000,
    "critic_steps": 4,
    "batch_size": 50,
    "generator_lr": 2e-5,
    "critic_lr": 2e-5,
    "ema_start": 1000,
}
"""The paper's training on CIFAR-10."""
CELEBA: dict[str, Any] = LARGE | {
    "data": "celeba",
    "home": "celeba",
    "seeds": 1,
    "width": 32,
    "steps": 100_000,
    "critic_steps": 2,
    "batch_size": 128,
    "generator_lr": 1e-4,
    "critic_lr": 4e-4,
    "ema_start": 1000,
}
"""The paper's training on CelebA; its table has the two learning rates swapped, its scripts have not."""
IMAGENET: dict[str, Any] = LARGE | {
    "data": "imagenet",
    "home": "imagenet",
    "seeds": 1,
    "width": 96,
    "latent": 120,
    "steps": 10_000,
    "critic_steps": 2,
    "batch_size": 2048,
    "generator_lr": 1e-5,
    "critic_lr": 1e-5,
}
"""The paper's fine-tuning on ImageNet."""
_BIGGAN: dict[str, Any] = {
    "network": "biggan",
    "two_heads": True,
    "betas": (0.0, 0.999),
}
BIGGAN: dict[str, dict[str, Any]] = {
    "cifar10": _BIGGAN | {"initial": "normal"},
    "celeba": _BIGGAN,
    "imagenet": _BIGGAN | {"attention": 64, "shared": 128, "hierarchical": True, "parts": 16, "precision": "bf16"},
}
"""What else a BigGAN is trained with, by the data that the paper has one of; other data get small networks.

The critic has two heads, so that every loss leaves a log-ratio. Neither the paper nor its scripts say how often the
critic is trained on CelebA, nor how long: the first is as on ImageNet, the second as on CIFAR-10.
"""


@dataclass(frozen=True)
class ImageTraining:
    """The part that the configurations of these experiments share.

    Args:
        data: A key of `image_gans.PARTS`, or with a `home` the name of a file there. Those of `BIGGAN` get BigGANs.
        home: A folder with data of your own, see `image_gans`.
        seeds: Runs of each kind.
        budget: K, in training and in judgement.
        width: Of generator and critic.
        latent: Length of the latent.
        steps: Steps of the generator.
        critic_steps: Steps of the critic for each of them.
        batch_size: Samples a step.
        generator_lr, critic_lr: Learning rates.
        ema_decay, ema_start: Of the moving average of the generator.
        pool: Proposals that are judged.
        neighbours: How many of them, and of real images, precision and recall are for.
        judged: Proposals, and real images, that the second judge looks at; 0 leaves it out.
        second: The second judge; the only one if the data have no labels.
        fakes, fit_steps, epochs: See `image_ratios.Effort`.
        seed: First of the seeds.
    """

    data: str = "fashion_mnist"
    home: str = ""
    seeds: int = 3
    budget: float = 2.0
    width: int = 16
    latent: int = 64
    steps: int = 3000
    critic_steps: int = 1
    batch_size: int = 64
    generator_lr: float = 2e-4
    critic_lr: float = 4e-4
    ema_decay: float = 0.995
    ema_start: int = 500
    pool: int = 5000
    neighbours: int = 5000
    judged: int = 0
    second: str = "efficientnet_lite0"
    fakes: int = 5000
    fit_steps: int = 400
    epochs: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        check_budget(self.budget)
        for name in ("seeds", "width", "latent", "steps", "critic_steps", "batch_size", "pool", "neighbours", "fakes"):
            check_count(getattr(self, name), name)


def training(config: ImageTraining, seed: int, *, labelled: bool = True) -> dict[str, Any]:
    """Return the fields of a training run that all have in common.

    Example:
        >>> training(ImageTraining(), seed=1)["batch_size"]
        64
    """
    found = {name: getattr(config, name) for name in ("latent", "budget", "critic_steps", "batch_size", "ema_start")}
    found |= {name: getattr(config, name) for name in ("steps", "generator_lr", "critic_lr", "ema_decay")}
    found |= {"network": "conv", "classes": labelled, "spectral_norm": True, "seed": seed}
    found |= {"generator_width": config.width, "critic_width": config.width}
    return found | BIGGAN.get(config.data, {})


def kept(config: ImageTraining, rows: Record, name: str) -> Path | None:
    """Return the folder from which the training for a row goes on if it was stopped: that of a BigGAN takes days.

    Example:
        >>> kept(ImageTraining(), Record("figure-training", "default", {}), "hinge, seed 0") is None
        True
    """
    if config.data not in BIGGAN or rows.path is None:
        return None
    return rows.path.with_suffix("").with_suffix(f".{name.replace(', ', '-').replace(' ', '-')}")


def follow(
    settings: Any,
    config: ImageTraining,
    points: int = 1,
    *,
    generator: Any = None,
    critic: Any = None,
    folder: Path | None = None,
) -> Iterator[tuple[int, Any, float]]:
    """Train a GAN; give it as it was at so many steps on the way, with the CPU seconds of all of its training.

    Args:
        settings: Of the training.
        config: Says which data.
        points: How many times; the last one is the end.
        generator, critic: Networks to go on with, of the kind that the settings say; trained in place.
        folder: Where the run is kept, and goes on if it is there already; then the seconds are those of the clock, of
            all its parts. It may be deleted when all is done. None keeps nothing.
    """
    import torch
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    from .image_gans import ImageGan, parts
    from .train import load_run, seen_before, train

    mine = parts(config.data, config.home)["generator"]
    total, _ = seen_before(settings, len(settings.stages) + 1)
    often = points if folder is None else 4 * points  # what may be stopped is saved in between, too
    settings = replace(settings, save_every=max(total // often, 1), keep=10 * points + 10, log_every=total)
    given = {"data": mine.x, "labels": mine.label if settings.classes else None}
    place = PartialState(cpu=not torch.cuda.is_available())  # loads what a first run would be charged for
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(broadcast_object_list([scratch])[0]) if folder is None else folder
        begun = process_time()
        done = train(settings, **given, generator=generator, critic=critic, out=home, progress=False)
        seconds = process_time() - begun if folder is None else done.log[-1]["seconds"]
        found = sorted(home.glob("stage-*/checkpoints/*.safetensors"))
        for at in range(points):
            step = round(total * (at + 1) / points)
            near = min(found, key=lambda path, step=step: abs(_step(path) - step))  # type: ignore[misc]
            run = done if step == total else load_run(home, near)
            yield _step(near), ImageGan(run.generator, run.critic, run.generator.classes), seconds
        place.wait_for_everyone()  # until all have read, before the first one clears up


def _step(path: Any) -> int:
    return int(path.stem.removeprefix("step-"))


def effort(config: ImageTraining) -> Any:
    """Return what is spent on ratios and classifiers."""
    from .image_ratios import Effort

    return Effort(config.fakes, config.fit_steps, config.epochs)


class Judges:
    """The judges of each seed, whose classifiers are fitted once.

    Args:
        config: Of the experiment.
        progress: As everywhere.
    """

    def __init__(self, config: ImageTraining, progress: bool | None = None) -> None:
        self.config, self.progress = config, progress
        self._latest: tuple[int, Any] | None = None

    def judge(self, gan: Any, seed: int, *, near: bool = True) -> dict[str, Any]:
        """Return the distance before and after rejection, with the error of the change; maybe precision and recall.

        Args:
            gan: An `ImageGan`.
            seed: Whose classifiers judge.
            near: Whether precision and recall are wanted, too.
        """
        from .image_ratios import distances, fit_ratios, neighbour_cells

        config = self.config
        subject = self._subject(gan, seed)
        ratio = "gradients" if subject.look is None else "outputs"
        constant = "global" if subject.look is None else "class"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # how far apart the two sets are is a result here: `log_loss`
            fitted = fit_ratios(subject, effort(config), (ratio,), progress=self.progress)[ratio]
        scores = fitted.log_ratio(subject.pool, subject.labels)
        cells = distances(subject, scores, (config.budget,), ("obrs",), (constant,))[constant]
        judge = next(iter(cells))
        before, after = cells[judge]["model 1"], cells[judge][f"obrs {config.budget:g}"]
        found = {"before": before[0], "after": after[0], "change": after[1], "change_error": after[2]}
        if near:
            cells = neighbour_cells(subject, scores, (1 / config.budget,), constant, config.neighbours)
            for rule, when in (("model 1", "before"), (f"obrs {config.budget:g}", "after")):
                found[f"near_{when}"] = [cells[rule][metric][0] for metric in ("precision", "recall")]
        return found | {"log_loss": fitted.log_loss}

    def _subject(self, gan: Any, seed: int) -> Any:
        from .image_ratios import prepare, with_gan

        if self._latest is None or self._latest[0] != seed:
            config = self.config
            options: Any = {"pool": config.pool, "judged": config.judged, "second": config.second}
            made = prepare(
                f"{config.data}-{seed}", effort(config), **options, home=config.home, gan=gan, progress=self.progress
            )
            self._latest = (seed, made)
        return with_gan(self._latest[1], gan)


def jobs(config: ImageTraining, kinds: Sequence[Any]) -> dict[str, tuple[Any, int]]:
    """Return what is to be trained, by the name of its row: a kind and a seed, all kinds of a seed before the next.

    Example:
        >>> jobs(ImageTraining(seeds=1, seed=5), ("hinge", "exact"))
        {'hinge, seed 5': ('hinge', 5), 'exact, seed 5': ('exact', 5)}
    """
    seeds = range(config.seed, config.seed + config.seeds)
    return {f"{kind}, seed {seed}": (kind, seed) for seed in seeds for kind in kinds}


def judged_table(record: Record, names: Mapping[str, str], paper: Mapping[str, Any]) -> str:
    """Return a line for each kind of run, distance before and after rejection, gain and more; then the paper's lines.

    Args:
        record: With rows of `Judges.judge`, and `kind`, `seed` and `cpu_seconds`.
        names: What each kind is called.
        paper: By data set and kind of run, the FID, precision and recall of the paper.
    """
    kinds = record.config["kinds"]
    after, before, near, cost = (finals(record, kinds, key) for key in ("after", "before", "near_after", "cpu_seconds"))
    first = next(iter(after))
    title = f"{record.config['data']}, K = {record.config['budget']:g}, seeds: {record.config['seeds']}"
    rows = []
    for kind, values in after.items():
        mean, error, gain, of_gain, seeds = compared(values, after[first])
        plain, plain_error, *_ = compared(before[kind], before[kind])
        pair, seconds = np.mean(list(near[kind].values()), axis=0), np.mean(list(cost[kind].values()))
        cells = [names[kind], f"{plain:.2f} ± {plain_error:.2f}", f"{mean:.2f} ± {error:.2f}"]
        cells.append(f"{gain:+.2f} ± {of_gain:.2f}" if kind != first and seeds else "")
        rows.append([*cells, f"{pair[0]:.3f}", f"{pair[1]:.3f}", f"{seconds:.0f}"])
    head = ["training", "before", "after rejection", "gain", "precision", "recall", "CPU s"]
    note = f"gain: over {names[first]}, seed by seed; ± is the standard error over seeds"
    called = {"hinge": "hinge", "without": "Tw/oOBRS", "with": "Tw/OBRS"}
    theirs = [
        [f"{data}, {called[kind]}", *(f"{cells[key]:.2f}" for key in ("fid", "precision", "recall"))]
        for data, kinds in paper.items()
        for kind, cells in kinds.items()
    ]
    beside = text_table(["the paper, BigGANs", "FID", "precision, %", "recall, %"], theirs)
    return "\n".join([f"{title}; Fréchet distance at the end", text_table(head, rows), note, "", beside])


def finals(record: Record, kinds: Sequence[str], key: str = "after") -> dict[str, dict[int, Any]]:
    """Return what each kind of run has at its end, by seed; no kind without a run."""
    found = {kind: {r["seed"]: r[key] for r in record.rows if r["kind"] == kind} for kind in kinds}
    return {kind: by_seed for kind, by_seed in found.items() if by_seed}


def compared(values: Mapping[int, float], first: Mapping[int, float]) -> tuple[float, float, float, float, int]:
    """Return a mean over seeds and its standard error, the gain over others seed by seed with its own, and how many.

    Example:
        >>> [round(x, 3) for x in compared({0: 3.0, 1: 5.0}, {0: 4.0, 1: 7.0})]
        [4.0, 1.0, 1.5, 0.5, 2]
    """
    own = np.array(list(values.values()))
    less = np.array([first[seed] - values[seed] for seed in values if seed in first])
    return float(own.mean()), _error(own), float(less.mean()) if len(less) else 0.0, _error(less), len(less)


def _error(values: Any) -> float:
    return float(np.std(values, ddof=1) / sqrt(len(values))) if len(values) > 1 else 0.0
