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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from time import process_time
from typing import Any

import numpy as np

from obrs._text import lookup, text_table

from .image_sheet import DATA, JUDGES
from .record import Checked, Record
from .style import PALETTE, tidy

__all__ = ["BIGGAN", "CELEBA", "CIFAR", "KINDS", "SMALL", "UNITS", "Config", "Judges", "draw_courses", "finals"]
__all__ += ["follow", "judged_table", "mean_text", "run", "settings"]

KINDS = {
    "none": "as it is",
    "hinge": "hinge",
    "dual": "Tw/oOBRS, Algorithm 1",
    "without": "E[f(r)], K = 1",
    "unrejected": "E[2 f(r/2)], the authors' code",
    "paper_raw": "Tw/OBRS, Algorithm 2",
    "paper_raw 10": "Algorithm 2, c every 10 steps",
    "paper_raw 100": "Algorithm 2, c every 100 steps",
    "paper_raw 1000": "Algorithm 2, c every 1000 steps",
    "exact": "exact gradient",
}
"""Ways to train, and what they are called: a loss of `train`, and the steps between two solutions for c.

- `none` is for a GAN that is there already.
- `hinge` is the paper's baseline.
- `dual` is Tw/oOBRS, Algorithm 1 of the paper, the f-GAN.
- `without` is the loss of Algorithm 2 with a = 1 and K = 1.
- `unrejected` is the same with K = 2, which the authors' code runs as Tw/oOBRS.
- `paper_raw` is Tw/OBRS, Algorithm 2 as printed; c is solved for at every step, or so many apart.
- `exact` has the gradient of what is left after rejection.
"""
SMALL: dict[str, Any] = {
    "data": "digits", "seeds": 1, "width": 8, "latent": 8, "batch_size": 16, "ema_start": 0, "points": 1, "pool": 300,
    "neighbours": 200, "judged": 0, "fakes": 300, "fit_steps": 20, "epochs": 1,
}  # fmt: skip
"""Fields of a run that takes seconds."""
UNITS: dict[str, Any] = {
    "data": "cifar10", "width": 32, "batch_size": 32, "judged": 2500, "fakes": 3000, "neighbours": 4000, "epochs": 10,
}  # fmt: skip
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
class Config(Checked):
    """What to train, and how to judge it."""

    unchecked = ("trained", "alone", "ema_start", "judged", "seed")
    kinds: tuple[str, ...]  # keys of `KINDS`
    data: str = "fashion_mnist"  # a key of `image_gans.PARTS`, or with a `home` a file there; those of `BIGGAN` are big
    trained: bool = True  # read the GANs of CIFAR-10 that are committed, instead of training BigGANs here
    home: str = ""  # a folder with data of your own, see `image_gans`
    seeds: int = 2  # runs of each kind
    seed: int = 0  # the first of them
    budget: float = 2.0  # K, in training and in judgement
    width: int = 16  # of generator and critic
    latent: int = 64  # its length
    steps: int = 2000
    alone: int = 0  # steps of the critic before a GAN that is there is trained further; 0 for a new GAN
    critic_steps: int = 1
    batch_size: int = 64
    generator_lr: float = 2e-4
    critic_lr: float = 4e-4
    ema_decay: float = 0.995
    ema_start: int = 500
    points: int = 12  # how often a GAN that is trained here is judged on its way
    pool: int = 5000  # proposals that are judged
    neighbours: int = 5000  # how many of them, and of real images, precision and recall are for
    judged: int = 0  # proposals, and real images, that the second judge looks at; 0 leaves it out
    second: str = "efficientnet_lite0"  # see `image_ratios.subject_of`; the only judge if the data have no labels
    fakes: int = 5000  # these three: see `image_ratios.Effort`
    fit_steps: int = 400
    epochs: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in self.kinds:
            lookup(KINDS, kind, "kind of training")

    @property
    def reads_files(self) -> bool:
        """Whether the GANs are read from files that are committed."""
        return self.data == "cifar10" and self.trained

    def unit(self, kind: str) -> str:
        """Return which unit of CIFAR-10 a kind is, without its seed."""
        return "gan" if kind == "none" else f"{'finetune' if self.alone else 'scratch'}-{kind}"

    @property
    def jobs(self) -> dict[str, tuple[str, int]]:
        """Return what is to be trained, by the name of its row: all kinds of a seed before the next seed."""
        seeds = range(self.seed, self.seed + self.seeds)
        return {f"{kind}, seed {seed}": (kind, seed) for seed in seeds for kind in self.kinds}


def settings(config: Config, kind: str, seed: int) -> dict[str, Any]:
    """Return the settings of a training run, see `train.OWN`; none for what stays as it is.

    Example:
        >>> found = settings(Config(("paper_raw 100",)), "paper_raw 100", seed=1)
        >>> found["generator"], found["loss"], found["constant_every"]
        ({'name': 'conv_generator', 'width': 16, 'latent': 64}, 'paper_raw', 100)
    """
    if kind == "none":
        return {}
    big, (loss, _, every) = config.data in BIGGAN, kind.partition(" ")
    network = {"name": "biggan" if big else "conv", "width": config.width, **BIGGAN.get(config.data, {})}
    generator, critic = (network | {"name": f"{network['name']}_{part}"} for part in ("generator", "critic"))
    options = {key: getattr(config, key) for key in ("steps", "critic_steps", "batch_size", "ema_start")}
    options |= {"ema": config.ema_decay, "lr": (config.generator_lr, config.critic_lr), "seed": seed}
    options |= {"generator": generator | {"latent": config.latent}}
    options |= {"critic": critic | {"spectral_norm": True} | ({"heads": 2} if big else {})}
    options |= {"loss": "paper_raw", "budget": 1.0} if loss == "without" else {"loss": loss, "budget": config.budget}
    options |= {"constant_every": int(every)} if every else {}
    options |= {"warm_up": config.alone} if config.alone else {}
    return options | ({"betas": (0.0, 0.999)} if big else {})


def follow(config: Config, kind: str, seed: int, points: int | None = None) -> Iterator[tuple[int, Any, float]]:
    """Train a GAN; yield it so many times on the way, with its steps and the CPU seconds of its training so far."""
    from .image_gans import ImageGan, load_gan, parts
    from .train import train

    points, whole, seconds, networks = points or config.points, settings(config, kind, seed), 0.0, dict[str, Any]()
    if config.alone:
        start = load_gan(config.data, seed, config.home)
        networks = {"generator": start.generator.requires_grad_(True), "critic": start.critic.requires_grad_(True)}
        if not whole:
            yield 0, start, 0.0
            return
    mine = parts(config.data, config.home)["generator"]
    data = np.asarray(mine.x) if mine.label is None else (np.asarray(mine.x), mine.label)
    with tempfile.TemporaryDirectory() as scratch:
        for point in range(1, points + 1):
            steps, begun = config.steps if point == points else point * (config.steps // points), process_time()
            done = train(whole | {"steps": steps}, data=data, **networks, out=scratch, progress=False)
            seconds += process_time() - begun
            yield done.state.facts["step"], ImageGan(done.generator, done.critic, done.generator.classes), seconds


class Judges:
    """The judges of GANs, whose classifiers are fitted once for each seed.

    Args:
        config: Of the experiment.
        progress: As everywhere.
    """

    def __init__(self, config: Config, progress: bool | None = None) -> None:
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
        from .image_ratios import distances, fit_ratios, neighbour_cells, prepare, swap_gan

        config, (latest, known) = self.config, self._latest
        if latest == seed:
            subject = swap_gan(known, gan)
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
        row: dict[str, Any] = {"before": first["model 1"][0], "after": first[rule][0]}
        row |= {"change": first[rule][1], "change_error": first[rule][2]}
        for second in others:
            row["second"] = [second["model 1"][0], second[rule][0]]
        if near:
            by_rule = neighbour_cells(subject, scores, (1 / config.budget,), constant, config.neighbours)
            for key, when in (("model 1", "before"), (rule, "after")):
                row[f"near_{when}"] = [by_rule[key][metric][0] for metric in ("precision", "recall")]
        return row | {"log_loss": fitted.log_loss}


def run(config: Config, rows: Record) -> None:
    """Train and judge, a row for each kind and seed; of units that are trained ahead, those whose files exist."""
    from .image_gans import load_gan
    from .nets.cifar import has_unit, unit_facts

    judges = Judges(config, rows.progress)
    for name, (kind, seed) in rows.todo(config.jobs):
        curve, row, seconds, unit = list[list[float]](), dict[str, Any](), 0.0, config.unit(kind)
        if config.reads_files and not has_unit(f"{unit}-{seed}"):
            continue
        if config.reads_files:
            facts = unit_facts(f"{unit}-{seed}")
            curve, seconds = facts.get("curve", []), 60 * facts["cpu_minutes"]
            row = facts.get("judged") or judges.judge(load_gan(f"cifar10-{unit}", seed), seed)
        else:
            for step, gan, seconds in follow(config, kind, seed):  # noqa: B007  # those of the last one count
                row = judges.judge(gan, seed, near=step >= config.steps or kind == "none")
                curve.append([step, row["before"], row["after"]])
        rows.add(name, {"kind": kind, "seed": seed, "course": curve, "cpu_seconds": round(seconds, 2)} | row)


def judged_table(record: Record, paper: Mapping[str, Any]) -> str:
    """Return a line for each kind of run, distance before and after rejection, gain and more; then the paper's lines.

    Args:
        record: With rows of `run`.
        paper: By data set and kind of run, the FID, precision and recall of the paper.
    """
    config = record.config
    after, before, near, cost = (finals(record, key) for key in ("after", "before", "near_after", "cpu_seconds"))
    first = next((kind for kind in after if kind == "hinge"), next(iter(after), ""))

    def line(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
        less = [after[first][seed] - value for seed, value in after[kind].items() if seed in after[first]]
        gain = mean_text(less, "+") if kind != first and less else ""
        means = (mean_text(list(values[kind].values())) for values in (before, after))
        return [KINDS[kind], str(len(after[kind])), *means, gain]

    rows = []
    for kind in after:
        shares = [f"{100 * share:.1f}" for share in np.mean(list(near[kind].values()), axis=0)]
        rows.append([*line(kind, before, after), *shares, f"{np.mean(list(cost[kind].values())):.0f}"])
    head = ["training", "seeds", "before", "after rejection", "gain", "precision, %", "recall, %", "CPU s"]
    data = DATA.get(config["data"], config["data"])
    about = f"{data}, K = {config['budget']:g}; Fréchet distance at the end by a classifier that no ratio saw"
    lines = [about, text_table(head, rows)]
    second = [finals(record, "second", at) for at in (0, 1)]
    if second[1]:
        lines += ["", f"by {JUDGES.get(config['second'].partition('=')[0], 'a second judge')}"]
        lines.append(text_table(head[:5], [line(kind, *second) for kind in second[1]]))
    if first:
        lines.append(f"gain: over {KINDS[first]}, seed by seed; ± is the standard error over seeds")
    jobs = Config(**{**config, "kinds": tuple(config["kinds"])}).jobs
    missing = [name for name in jobs if name not in record]
    lines += [textwrap.fill(f"not trained yet: {'; '.join(missing)}", 118)] if missing else []
    beside = [
        [f"{where}, {title}", *(f"{cells[key]:.2f}" for key in ("fid", "precision", "recall"))]
        for where, by_kind in paper.items()
        for title, cells in by_kind.items()
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


def finals(record: Record, key: str = "after", at: int | None = None) -> dict[str, dict[int, Any]]:
    """Return what each kind of run has at its end, or a part of it, by seed; no kind without a run."""
    values: dict[str, dict[int, Any]] = {kind: {} for kind in record.config["kinds"]}
    for row in record.rows:
        if row["kind"] in values and key in row:
            values[row["kind"]][row["seed"]] = row[key] if at is None else row[key][at]
    return {kind: by_seed for kind, by_seed in values.items() if by_seed}


def draw_courses(axes: Any, record: Record, colours: Mapping[str, str]) -> None:
    """Draw the distance after rejection during training, of kinds with a colour: lines are runs, thick ones means."""
    for kind, courses in finals(record, "course").items():
        if kind not in colours:
            continue
        colour = PALETTE[colours[kind]]
        for course in courses.values():
            axes.plot([point[0] for point in course], [point[2] for point in course], color=colour, lw=0.8, alpha=0.5)
        together = list(zip(*courses.values(), strict=False))  # as far as the shortest goes
        steps, means = [at[0][0] for at in together], [np.mean([point[2] for point in at]) for at in together]
        axes.plot(steps, means, "o-", color=colour, label=KINDS[kind], ms=4)
    label = f"Fréchet distance after rejection, K = {record.config['budget']:g}"
    axes.set(xlabel="steps", ylabel=label, yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_title(DATA.get(record.config["data"], record.config["data"]))
    tidy(axes, "best" if record.rows else None)
