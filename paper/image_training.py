"""Training GANs of images, and judging them after rejection: what the three experiments on it share.

A GAN is trained on its part of the data, see `image_gans.parts`; those of CIFAR-10 are trained ahead, as units of
`runs/train_cifar.py`, and read from their files. The moving average of its generator proposes. A network on the outputs
of a classifier is fitted as the ratio, and rejects at the budget with one constant per class; without labels it sees
gradients, and there is one constant. Another classifier judges what is kept: the Fréchet distance to the test images
with its error, and precision and recall; so does a second judge if it is asked for. The classifiers of a seed are the
same for all that is compared.
"""

import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from obrs._text import text_table

from .image_names import DATA, JUDGES
from .record import Checked, Record
from .style import PALETTE, tidy

__all__ = ["BIGGAN", "CELEBA", "CIFAR", "SMALL", "UNITS", "ImageTraining", "Judges", "compared", "draw_courses"]
__all__ += ["finals", "follow", "jobs", "judged_table", "run_kinds", "training"]

SMALL: dict[str, Any] = {
    "data": "digits", "seeds": 1, "batch_size": 16, "ema_start": 0, "pool": 300, "neighbours": 200, "judged": 0,
    "fakes": 300, "fit_steps": 20, "epochs": 1,
}  # fmt: skip
"""Fields of a run that takes seconds."""
UNITS: dict[str, Any] = {"data": "cifar10", "judged": 2500, "fakes": 3000, "neighbours": 4000, "epochs": 10}
"""Fields of a run on the GANs of CIFAR-10 that `runs/train_cifar.py` has trained."""
_LARGE: dict[str, Any] = {
    "trained": False, "seeds": 1, "latent": 128, "ema_decay": 0.9999, "pool": 50_000, "neighbours": 10_000,
    "judged": 10_000, "second": "inception_v3", "fakes": 50_000, "fit_steps": 5000,
}  # fmt: skip
CIFAR: dict[str, Any] = _LARGE | {
    "data": "cifar10", "width": 64, "steps": 200_000, "critic_steps": 4, "batch_size": 50, "generator_lr": 2e-5,
    "critic_lr": 2e-5, "ema_start": 1000,
}  # fmt: skip
"""The paper's training on CIFAR-10; its scripts have 800 epochs, of 250 steps of the generator each."""
CELEBA: dict[str, Any] = _LARGE | {
    "data": "celeba", "home": "celeba", "width": 32, "steps": 636_000, "critic_steps": 1, "batch_size": 128,
    "generator_lr": 1e-4, "critic_lr": 4e-4, "ema_start": 2000,
}  # fmt: skip
"""The paper's training on CelebA; its table has the two learning rates swapped, its scripts have not.

They have 500 to 1500 epochs; these are 500, of the 162 770 faces of the training set.
"""
_BIGGAN: dict[str, Any] = {"network": "biggan", "two_heads": True, "betas": (0.0, 0.999)}
BIGGAN: dict[str, dict[str, Any]] = {
    "cifar10": _BIGGAN | {"initial": "normal"},
    "celeba": _BIGGAN | {"attention": 32, "initial": "xavier"},
}
"""What else a BigGAN is trained with, by the data that the paper has one of, from the authors' public scripts
(github.com/AlexVerine/RejectBigGan); other data get small networks. The critic has two heads, so that every loss leaves
a log-ratio.
"""


@dataclass(frozen=True)
class ImageTraining(Checked):
    """The part that the configurations of these experiments share.

    Args:
        data: A key of `image_gans.PARTS`, or with a `home` the name of a file there. Those of `BIGGAN` get BigGANs.
        trained: Read the GANs of CIFAR-10 that are committed, instead of training BigGANs here.
        home: A folder with data of your own, see `image_gans`.
        seeds: Runs of each kind.
        budget: K, in training and in judgement.
        width, latent: Of generator and critic; length of the latent.
        steps, critic_steps, batch_size, generator_lr, critic_lr, ema_decay, ema_start: See `train.TrainConfig`.
        pool: Proposals that are judged.
        neighbours: How many of them, and of real images, precision and recall are for.
        judged: Proposals, and real images, that the second judge looks at; 0 leaves it out.
        second: The second judge, see `image_ratios.find_judges`; the only one if the data have no labels.
        fakes, fit_steps, epochs: See `image_ratios.Effort`.
        seed: First of the seeds.
    """

    unchecked = ("trained", "ema_start", "judged", "seed", "alone", "losses", "solved")
    data: str = "fashion_mnist"
    trained: bool = True
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

    @property
    def committed(self) -> bool:
        """Whether the GANs are read from files."""
        return self.data == "cifar10" and self.trained


def training(config: ImageTraining, seed: int, *, labelled: bool | None = None) -> dict[str, Any]:
    """Return the fields of a training run that all have in common.

    Example:
        >>> training(ImageTraining(), seed=1, labelled=True)["batch_size"]
        64
    """
    if labelled is None:
        from .image_gans import parts

        labelled = parts(config.data, config.home)["generator"].label is not None
    same = ("latent", "budget", "critic_steps", "batch_size", "ema_start", "steps", "generator_lr", "critic_lr")
    found = {name: getattr(config, name) for name in (*same, "ema_decay")}
    found |= {"network": "conv", "classes": labelled, "spectral_norm": True, "seed": seed}
    found |= {"generator_width": config.width, "critic_width": config.width}
    return found | BIGGAN.get(config.data, {})


def follow(
    settings: Any, config: ImageTraining, points: int = 1, *, generator: Any = None, critic: Any = None
) -> Iterator[tuple[int, Any, float]]:
    """Train a GAN; yield it as it was at so many steps on the way, with the CPU seconds of all of its training.

    Args:
        settings: Of the training.
        config: Says which data.
        points: How many times; the last one is the end.
        generator, critic: Networks to go on with, of the kind that the settings say; trained in place.
    """
    from .image_gans import ImageGan, parts
    from .train import load_run, seen_before, train

    mine = parts(config.data, config.home)["generator"]
    total, _ = seen_before(settings, len(settings.stages) + 1)
    settings = replace(settings, save_every=max(total // points, 1), keep=10 * points + 10, log_every=total)
    given: Any = {"data": mine.x, "labels": mine.label if settings.classes else None}
    with tempfile.TemporaryDirectory() as scratch:
        begun = process_time()
        done = train(settings, **given, generator=generator, critic=critic, out=Path(scratch), progress=False)
        seconds = process_time() - begun
        saved = Path(scratch).glob("stage-*/checkpoints/*.safetensors")
        found = {int(path.stem.removeprefix("step-")): path for path in saved}
        for at in range(points):
            step = round(total * (at + 1) / points)
            near = min(sorted(found), key=lambda known, step=step: abs(known - step))  # type: ignore[misc]
            run = done if step == total else load_run(Path(scratch), found[near])
            yield near, ImageGan(run.generator, run.critic, run.generator.classes), seconds


class Judges:
    """The judges of each seed, whose classifiers are fitted once.

    Args:
        config: Of the experiment.
        progress: As everywhere.
    """

    def __init__(self, config: ImageTraining, progress: bool | None = None) -> None:
        from .image_ratios import Effort

        self.config, self.progress = config, progress
        self.effort = Effort(config.fakes, config.fit_steps, config.epochs)
        self._latest: tuple[int, Any] | None = None

    def judge(self, gan: Any, seed: int, *, near: bool = True) -> dict[str, Any]:
        """Return the distance before and after rejection, with the error of the change; maybe precision and recall.

        Args:
            gan: An `ImageGan`.
            seed: Whose classifiers judge.
            near: Whether precision and recall are wanted, too.
        """
        from .image_ratios import distances, fit_ratios, neighbour_cells

        config, subject = self.config, self._subject(gan, seed)
        ratio, constant = ("gradients", "global") if subject.look is None else ("outputs", "class")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # how far apart the two sets are is a result here: `log_loss`
            fitted = fit_ratios(subject, self.effort, (ratio,), progress=self.progress)[ratio]
        scores, rule = fitted.log_ratio(subject.pool, subject.labels), f"obrs {config.budget:g}"
        cells = distances(subject, scores, (config.budget,), ("obrs",), (constant,))[constant]
        first, *others = cells.values()
        found: dict[str, Any] = {"before": first["model 1"][0], "after": first[rule][0]}
        found |= {"change": first[rule][1], "change_error": first[rule][2]}
        for second in others:
            found["second"] = [second["model 1"][0], second[rule][0]]
        if near:
            by_rule = neighbour_cells(subject, scores, (1 / config.budget,), constant, config.neighbours)
            for key, when in (("model 1", "before"), (rule, "after")):
                found[f"near_{when}"] = [by_rule[key][metric][0] for metric in ("precision", "recall")]
        return found | {"log_loss": fitted.log_loss}

    def _subject(self, gan: Any, seed: int) -> Any:
        from .image_ratios import prepare, with_gan

        if self._latest is None or self._latest[0] != seed:
            config = self.config
            options: Any = {"pool": config.pool, "judged": config.judged, "second": config.second, "home": config.home}
            made = prepare(f"{config.data}-{seed}", self.effort, gan, **options, progress=self.progress)
            self._latest = (seed, made)
            return made
        return with_gan(self._latest[1], gan)


def run_kinds(
    config: ImageTraining,
    rows: Record,
    kinds: Sequence[Any],
    train: Callable[[Any, int], Iterator[tuple[int, Any, float]]],
    unit: Callable[[Any], str] = str,
    *,
    points: int = 1,
) -> None:
    """Train and judge, a row for each kind and seed; of what is trained ahead, those that are there.

    Args:
        config, rows: Of the experiment.
        kinds: What is compared.
        train: From a kind and a seed to the GANs on the way, as `follow`.
        unit: From a kind to the unit of CIFAR-10 that was trained ahead, without its seed.
        points: How many GANs `train` yields.
    """
    from .image_gans import load_gan
    from .nets.cifar import has_unit, unit_facts

    judges = Judges(config, rows.progress)
    for name, (kind, seed) in rows.todo(jobs(config, kinds)):
        course, found, seconds = list[list[float]](), dict[str, Any](), 0.0
        if config.committed:
            if not has_unit(f"{unit(kind)}-{seed}"):
                continue
            facts = unit_facts(f"{unit(kind)}-{seed}")
            course, seconds = facts.get("curve", []), 60 * facts["cpu_minutes"]
            found = judges.judge(load_gan(f"cifar10-{unit(kind)}", seed), seed)
        else:
            for step, gan, seconds in train(kind, seed):  # noqa: B007  # those of the last one count
                found = judges.judge(gan, seed, near=len(course) == points - 1)
                course.append([step, found["before"], found["after"]])
        facts = {"kind": kind, "seed": seed, "course": course, "cpu_seconds": round(seconds, 2)}
        rows.add(name, facts | found)


def jobs(config: ImageTraining, kinds: Sequence[Any]) -> dict[str, tuple[Any, int]]:
    """Return what is to be trained, by the name of its row: a kind and a seed, all kinds of a seed before the next.

    Example:
        >>> jobs(ImageTraining(seeds=1, seed=5), ("hinge", "exact"))
        {'hinge, seed 5': ('hinge', 5), 'exact, seed 5': ('exact', 5)}
    """
    seeds = range(config.seed, config.seed + config.seeds)
    return {f"{kind}, seed {seed}": (kind, seed) for seed in seeds for kind in kinds}


def judged_table(record: Record, names: Mapping[Any, str], paper: Mapping[str, Any]) -> str:
    """Return a line for each kind of run, distance before and after rejection, gain and more; then the paper's lines.

    Args:
        record: With rows of `run_kinds`.
        names: What each kind is called.
        paper: By data set and kind of run, the FID, precision and recall of the paper.
    """
    after, before, near, cost = (finals(record, names, key) for key in ("after", "before", "near_after", "cpu_seconds"))
    first = next((kind for kind in after if kind == "hinge"), next(iter(after), ""))

    def line(kind: Any, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> list[str]:
        plain, plain_error, *_ = compared(before[kind], before[kind])
        mean, error, gain, of_gain, shared = compared(after[kind], after[first])
        cells = [names[kind], str(len(after[kind])), _with_error(plain, plain_error), _with_error(mean, error)]
        return [*cells, _with_error(gain, of_gain, "+") if kind != first and shared else ""]

    rows = []
    for kind in after:
        pair = np.mean(list(near[kind].values()), axis=0) if kind in near else ()
        shares = [f"{100 * share:.1f}" for share in pair] or ["", ""]
        rows.append([*line(kind, before, after), *shares, f"{np.mean(list(cost[kind].values())):.0f}"])
    head = ["training", "seeds", "before", "after rejection", "gain", "precision, %", "recall, %", "CPU s"]
    data = DATA.get(record.config["data"], record.config["data"])
    about = f"{data}, K = {record.config['budget']:g}; Fréchet distance at the end by a classifier that no ratio saw"
    lines = [about, text_table(head, rows)]
    second = [finals(record, names, "second", at) for at in (0, 1)]
    if second[1]:
        lines += ["", f"by {JUDGES.get(record.config['second'].partition('=')[0], 'a second judge')}"]
        lines.append(text_table(head[:5], [line(kind, *second) for kind in second[1]]))
    if first:
        lines.append(f"gain: over {names[first]}, seed by seed; ± is the standard error over seeds")
    seeds = range(record.config["seed"], record.config["seed"] + record.config["seeds"])
    missing = [name for seed in seeds for kind in names if (name := f"{kind}, seed {seed}") not in record]
    lines += [textwrap.fill(f"not trained yet: {'; '.join(missing)}", 118)] if missing else []
    beside = [
        [f"{where}, {called}", *(f"{cells[key]:.2f}" for key in ("fid", "precision", "recall"))]
        for where, by_kind in paper.items()
        for called, cells in by_kind.items()
    ]
    papers = ["", text_table(["the paper, BigGANs", "FID", "precision, %", "recall, %"], beside)] if beside else []
    return "\n".join([*lines, *papers])


def _with_error(value: float, error: float, sign: str = "") -> str:
    return f"{value:{sign}.2f} ± {error:.2f}" if error else f"{value:{sign}.2f}"


def finals(record: Record, kinds: Any, key: str = "after", at: int | None = None) -> dict[Any, dict[int, Any]]:
    """Return what each kind of run has at its end, or a part of it, by seed; no kind without a run."""
    found = {kind: [r for r in record.rows if r["kind"] == kind and key in r] for kind in kinds}
    return {
        kind: {r["seed"]: r[key] if at is None else r[key][at] for r in rows} for kind, rows in found.items() if rows
    }


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


def draw_courses(axes: Any, record: Record, names: Mapping[Any, str], colours: Mapping[Any, str]) -> None:
    """Draw the distance after rejection during training: thin lines are runs, thick ones their means."""
    for kind in finals(record, names):
        rows, colour = [row for row in record.rows if row["kind"] == kind], PALETTE[colours[kind]]
        for row in rows:
            on_the_way, _, after = zip(*row["course"], strict=True)
            axes.plot(on_the_way, after, color=colour, lw=0.8, alpha=0.5)
        shortest = min(len(row["course"]) for row in rows)
        steps = [rows[0]["course"][at][0] for at in range(shortest)]
        mean = [sum(row["course"][at][2] for row in rows) / len(rows) for at in range(shortest)]
        axes.plot(steps, mean, "o-", color=colour, label=names[kind], ms=4)
    label = f"Fréchet distance after rejection, K = {record.config['budget']:g}"
    axes.set(xlabel="steps, those of the critic alone included", ylabel=label, yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_title(DATA.get(record.config["data"], record.config["data"]))
    tidy(axes, "best" if record.rows else None)
