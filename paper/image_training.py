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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from time import process_time
from typing import Any

import numpy as np

from obrs._text import text_table

from .image_names import DATA, JUDGES
from .record import Checked, Record
from .style import PALETTE, tidy

__all__ = ["BIGGAN", "CELEBA", "CIFAR", "SMALL", "UNITS", "ImageTraining", "Judges", "draw_courses", "finals"]
__all__ += ["follow", "judged_table", "mean_text", "run_kinds", "training"]

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
BIGGAN: dict[str, dict[str, Any]] = {"cifar10": {"initial": "normal"}, "celeba": {"attention": 32, "initial": "xavier"}}
"""How a BigGAN starts, by the data that the paper has one of, from the authors' public scripts
(github.com/AlexVerine/RejectBigGan); other data get small networks. Its critic has two heads, so that every loss leaves
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
        steps, critic_steps, batch_size, generator_lr, critic_lr, ema_decay, ema_start: Of the training.
        pool: Proposals that are judged.
        neighbours: How many of them, and of real images, precision and recall are for.
        judged: Proposals, and real images, that the second judge looks at; 0 leaves it out.
        second: The second judge, see `image_ratios.subject_of`; the only one if the data have no labels.
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


def training(config: ImageTraining, seed: int) -> dict[str, Any]:
    """Return the settings of a training run that all have in common, see `train.OWN`.

    Example:
        >>> training(ImageTraining(), seed=1)["generator"]
        {'name': 'conv_generator', 'width': 16, 'latent': 64}
    """
    big = config.data in BIGGAN
    network = {"name": "biggan" if big else "conv", "width": config.width, **BIGGAN.get(config.data, {})}
    generator, critic = (network | {"name": f"{network['name']}_{part}"} for part in ("generator", "critic"))
    found = {key: getattr(config, key) for key in ("budget", "steps", "critic_steps", "batch_size", "ema_start")}
    found |= {"ema": config.ema_decay, "lr": (config.generator_lr, config.critic_lr), "seed": seed}
    found |= {"generator": generator | {"latent": config.latent}}
    found |= {"critic": critic | {"spectral_norm": True} | ({"heads": 2} if big else {})}
    return found | ({"betas": (0.0, 0.999)} if big else {})


def follow(
    config: ImageTraining, settings: dict[str, Any], points: int = 1, start: Any = None
) -> Iterator[tuple[int, Any, float]]:
    """Train a GAN; yield it so many times on the way, with the CPU seconds of its training so far.

    Args:
        config: Says which data.
        settings: Of the training; without any the GAN stays as it is.
        points: How many times; the last one is the end.
        start: A GAN to go on with, or its generator alone, of the kind that the settings say; trained in place.
    """
    from .image_gans import ImageGan, parts
    from .train import stages, train

    if not settings:
        yield 0, start, 0.0
        return
    mine, seconds = parts(config.data, config.home)["generator"], 0.0
    data = np.asarray(mine.x) if mine.label is None else (np.asarray(mine.x), mine.label)
    own = {} if start is None else {"generator": start.generator, "critic": start.critic}
    for network in own.values():
        if network is not None:
            network.requires_grad_(True)
    every = sum(stage["steps"] for stage in stages(settings)) // points
    with tempfile.TemporaryDirectory() as scratch:
        for point in range(1, points + 1):
            until, begun = settings if point == points else _shortened(settings, point * every), process_time()
            done = train(until, data=data, **own, out=scratch, progress=False)
            seconds += process_time() - begun
            yield done.state.facts["step"], ImageGan(done.generator, done.critic, done.generator.classes), seconds


def _shortened(settings: dict[str, Any], steps: int) -> dict[str, Any]:
    """Return settings that end after so many steps; the run goes on from there with those of more."""
    tables: list[dict[str, Any]] = []
    for table in settings.get("stage") or [dict[str, Any]()]:
        own = min(table.get("steps", settings["steps"]), steps)
        tables += [{**table, "steps": own}] if own else []
        steps -= own
    return settings | {"stage": tables}


class Judges:
    """The judges of GANs, whose classifiers are fitted once for each seed.

    Args:
        config: Of the experiment.
        progress: As everywhere.
    """

    def __init__(self, config: ImageTraining, progress: bool | None = None) -> None:
        from .image_ratios import Effort

        self.config, self.progress = config, progress
        self.effort = Effort(config.fakes, config.fit_steps, config.epochs)
        self._latest: tuple[int, Any] = (-1, None)

    def judge(self, gan: Any, seed: int, *, near: bool = True) -> dict[str, Any]:
        """Return the distance before and after rejection, with the error of the change; maybe precision and recall.

        Args:
            gan: An `ImageGan`.
            seed: Whose classifiers judge.
            near: Whether precision and recall are wanted, too.
        """
        from .image_ratios import distances, fit_ratios, neighbour_cells, prepare, with_gan

        config, (latest, known) = self.config, self._latest
        if latest == seed:
            subject = with_gan(known, gan)
        else:
            options: Any = {key: getattr(config, key) for key in ("pool", "judged", "second", "home")}
            subject = prepare(f"{config.data}-{seed}", self.effort, gan, **options, progress=self.progress)
            self._latest = (seed, subject)
        ratio, constant = ("gradients", "global") if subject.look is None else ("outputs", "class")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # how far apart the two sets are is a result here: `log_loss`
            fitted = fit_ratios(subject, self.effort, (ratio,), progress=self.progress)[ratio]
        scores, rule = fitted.log_ratio(subject.pool, subject.labels), f"obrs {config.budget:g}"
        first, *others = distances(subject, scores, (config.budget,), ("obrs",), (constant,))[constant].values()
        found: dict[str, Any] = {"before": first["model 1"][0], "after": first[rule][0]}
        found |= {"change": first[rule][1], "change_error": first[rule][2]}
        for second in others:
            found["second"] = [second["model 1"][0], second[rule][0]]
        if near:
            by_rule = neighbour_cells(subject, scores, (1 / config.budget,), constant, config.neighbours)
            for key, when in (("model 1", "before"), (rule, "after")):
                found[f"near_{when}"] = [by_rule[key][metric][0] for metric in ("precision", "recall")]
        return found | {"log_loss": fitted.log_loss}


def run_kinds(
    config: ImageTraining,
    rows: Record,
    kinds: Sequence[Any],
    settings: Callable[[Any, int], dict[str, Any]],
    unit: Callable[[Any], str] = str,
    *,
    points: int = 1,
    start: Callable[[Any, int], Any] = lambda kind, seed: None,
) -> None:
    """Train and judge, a row for each kind and seed; of what is trained ahead, those that are there.

    Args:
        config, rows: Of the experiment.
        kinds: What is compared.
        settings: From a kind and a seed to those of the training.
        unit: From a kind to the unit of CIFAR-10 that was trained ahead, without its seed.
        points, start: See `follow`; from a kind and a seed to what it goes on with.
    """
    from .image_gans import load_gan
    from .nets.cifar import has_unit, unit_facts

    judges = Judges(config, rows.progress)
    for name, (kind, seed) in rows.todo(_jobs(kinds, config.seed, config.seeds)):
        course, found, seconds = list[list[float]](), dict[str, Any](), 0.0
        if config.committed and not has_unit(f"{unit(kind)}-{seed}"):
            continue
        if config.committed:
            facts = unit_facts(f"{unit(kind)}-{seed}")
            course, seconds = facts.get("curve", []), 60 * facts["cpu_minutes"]
            found = facts.get("judged") or judges.judge(load_gan(f"cifar10-{unit(kind)}", seed), seed)
        else:
            way = follow(config, settings(kind, seed), points, start(kind, seed))
            for step, gan, seconds in way:  # noqa: B007  # those of the last one count
                found = judges.judge(gan, seed, near=len(course) == points - 1)
                course.append([step, found["before"], found["after"]])
        rows.add(name, {"kind": kind, "seed": seed, "course": course, "cpu_seconds": round(seconds, 2)} | found)


def _jobs(kinds: Iterable[Any], first: int, seeds: int) -> dict[str, tuple[Any, int]]:
    """Return what is to be trained, by the name of its row: all kinds of a seed before the next seed."""
    return {f"{kind}, seed {seed}": (kind, seed) for seed in range(first, first + seeds) for kind in kinds}


def judged_table(record: Record, names: Mapping[Any, str], paper: Mapping[str, Any]) -> str:
    """Return a line for each kind of run, distance before and after rejection, gain and more; then the paper's lines.

    Args:
        record: With rows of `run_kinds`.
        names: What each kind is called.
        paper: By data set and kind of run, the FID, precision and recall of the paper.
    """
    config = record.config
    after, before, near, cost = (finals(record, names, key) for key in ("after", "before", "near_after", "cpu_seconds"))
    first = next((kind for kind in after if kind == "hinge"), next(iter(after), ""))

    def line(kind: Any, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> list[str]:
        less = [after[first][seed] - value for seed, value in after[kind].items() if seed in after[first]]
        gain = mean_text(less, "+") if kind != first and less else ""
        means = (mean_text(list(values[kind].values())) for values in (before, after))
        return [names[kind], str(len(after[kind])), *means, gain]

    rows = []
    for kind in after:
        pair = np.mean(list(near[kind].values()), axis=0) if kind in near else ()
        shares = [f"{100 * share:.1f}" for share in pair] or ["", ""]
        rows.append([*line(kind, before, after), *shares, f"{np.mean(list(cost[kind].values())):.0f}"])
    head = ["training", "seeds", "before", "after rejection", "gain", "precision, %", "recall, %", "CPU s"]
    data = DATA.get(config["data"], config["data"])
    about = f"{data}, K = {config['budget']:g}; Fréchet distance at the end by a classifier that no ratio saw"
    lines = [about, text_table(head, rows)]
    second = [finals(record, names, "second", at) for at in (0, 1)]
    if second[1]:
        lines += ["", f"by {JUDGES.get(config['second'].partition('=')[0], 'a second judge')}"]
        lines.append(text_table(head[:5], [line(kind, *second) for kind in second[1]]))
    if first:
        lines.append(f"gain: over {names[first]}, seed by seed; ± is the standard error over seeds")
    missing = [name for name in _jobs(names, config["seed"], config["seeds"]) if name not in record]
    lines += [textwrap.fill(f"not trained yet: {'; '.join(missing)}", 118)] if missing else []
    beside = [
        [f"{where}, {called}", *(f"{cells[key]:.2f}" for key in ("fid", "precision", "recall"))]
        for where, by_kind in paper.items()
        for called, cells in by_kind.items()
    ]
    papers = ["", text_table(["the paper, BigGANs", "FID", "precision, %", "recall, %"], beside)] if beside else []
    return "\n".join([*lines, *papers])


def mean_text(values: Sequence[float], sign: str = "") -> str:
    """Return a mean and, of more than one value, its standard error.

    Example:
        >>> mean_text([3.0, 5.0]), mean_text([1.5], "+")
        ('4.00 ± 1.00', '+1.50')
    """
    error = f" ± {np.std(values, ddof=1) / sqrt(len(values)):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):{sign}.2f}{error}"


def finals(record: Record, kinds: Any, key: str = "after", at: int | None = None) -> dict[Any, dict[int, Any]]:
    """Return what each kind of run has at its end, or a part of it, by seed; no kind without a run."""
    found: dict[Any, dict[int, Any]] = {kind: {} for kind in kinds}
    for row in record.rows:
        if row["kind"] in found and key in row:
            found[row["kind"]][row["seed"]] = row[key] if at is None else row[key][at]
    return {kind: by_seed for kind, by_seed in found.items() if by_seed}


def draw_courses(axes: Any, record: Record, names: Mapping[Any, str], colours: Mapping[Any, str]) -> None:
    """Draw the distance after rejection during training: thin lines are runs, thick ones their means."""
    for kind, courses in finals(record, names, "course").items():
        colour = PALETTE[colours[kind]]
        for course in courses.values():
            axes.plot([point[0] for point in course], [point[2] for point in course], color=colour, lw=0.8, alpha=0.5)
        together = list(zip(*courses.values(), strict=False))  # as far as the shortest goes
        steps, means = [at[0][0] for at in together], [np.mean([point[2] for point in at]) for at in together]
        axes.plot(steps, means, "o-", color=colour, label=names[kind], ms=4)
    label = f"Fréchet distance after rejection, K = {record.config['budget']:g}"
    axes.set(xlabel="steps, those of the critic alone included", ylabel=label, yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_title(DATA.get(record.config["data"], record.config["data"]))
    tidy(axes, "best" if record.rows else None)
