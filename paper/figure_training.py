"""The paper's training figure on images: how good a GAN is after rejection, during training, for several losses.

The paper trains BigGANs on CIFAR-10 and CelebA for K = 2; so does the preset `paper`, on CIFAR-10. Here small GANs
learn Fashion-MNIST (`fashion` is what version 0.2 ran), and with `cifar` the GANs of `runs/train_cifar.py`, whose
curves are in their files, CIFAR-10. All train on the same number of images. See `image_training` for how they are
judged.

- `hinge`: the paper's baseline.
- `dual`: Tw/oOBRS, Algorithm 1 of the paper, the f-GAN.
- `without`: the loss of Algorithm 2 with a = 1 and K = 1, E[f(r)].
- `unrejected`: the same with K = 2, E[2 f(r/2)], which the authors' code runs as Tw/oOBRS.
- `with`: Tw/OBRS, Algorithm 2 as printed.
- `exact`: the gradient of what is left after rejection.
- `staged`: three stages: a usual GAN with noise that fades, a new critic with the f-GAN's loss, such a critic anew with
  the exact loss. Its critic also trains alone; the others end with steps in which it takes one more.
"""

from dataclasses import dataclass
from typing import Any

from obrs._checks import check_count
from obrs.errors import InputError

from .image_training import CALLED, CIFAR, SMALL, UNITS, ImageTraining, finals, jobs, judged_table
from .record import Record
from .style import PALETTE, canvas, caption, tidy

__all__ = ["KINDS", "PAPER", "PRESETS", "Config", "figure", "run", "settings", "table"]

PAPER: dict[str, Any] = {
    "figure": "6: FID during training, BigGAN, K = 2",
    "rows": {
        "CIFAR-10": {
            "hinge": {"fid": 8.43, "precision": 84.50, "recall": 65.39},
            "Tw/oOBRS": {"fid": 11.18, "precision": 83.24, "recall": 68.44},
            "Tw/OBRS": {"fid": 8.98, "precision": 80.09, "recall": 69.63},
        },
        "CelebA": {
            "hinge": {"fid": 9.33, "precision": 80.23, "recall": 57.78},
            "Tw/oOBRS": {"fid": 6.33, "precision": 78.28, "recall": 61.02},
            "Tw/OBRS": {"fid": 5.42, "precision": 78.01, "recall": 60.29},
        },
    },
}
"""The table of Figure 6. On CIFAR-10 the hinge loss has the lowest FID, although the text calls Tw/OBRS superior."""
KINDS = {
    "hinge": "hinge",
    "dual": "Tw/oOBRS, Algorithm 1",
    "without": "E[f(r)], K = 1",
    "unrejected": "E[2 f(r/2)], the authors' code",
    "with": "Tw/OBRS, Algorithm 2",
    "exact": "exact gradient",
    "staged": "three stages",
}
"""Ways to train, and what they are called."""
_LOSSES = {"without": "paper_raw", "with": "paper_raw"}  # where the loss has another name than the kind
_COLOURS = dict(zip(KINDS, ("dark", "orange", "pink", "olive", "red", "blue", "teal"), strict=True))


@dataclass(frozen=True)
class Config(ImageTraining):
    """What to train; see `ImageTraining` for the other fields.

    Args:
        kinds: Keys of `KINDS`.
        points: How often a GAN is judged on its way.
        shares: Of the generator's steps, those in each of three stages.
        alone: Steps of the critic alone before the second stage, and before the third.
    """

    kinds: tuple[str, ...] = ("hinge", "dual", "without", "unrejected", "with", "exact")
    points: int = 12
    shares: tuple[float, ...] = (0.5, 0.1, 0.4)
    alone: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.points, "points")
        self.check_kinds(self.kinds, KINDS)
        if len(self.shares) != 3 or abs(sum(self.shares) - 1) > 1e-9:
            raise InputError(f"figure-training needs three shares that sum to 1, got {self.shares}")
        if 2 * self.alone >= self.steps:
            raise InputError(f"the critic can be alone for less than half of {self.steps} steps, got {self.alone}")


_SMOKE = Config(**SMALL, width=8, latent=8, steps=20, kinds=("hinge", "staged"), points=2, alone=2)
_UNITS = Config(**UNITS, kinds=("hinge", "dual", "with", "exact"))
_PAPER = Config(**CIFAR, kinds=("hinge", "dual", "unrejected", "with"), points=20)
_FASHION = Config(kinds=("hinge", "without", "with", "staged"), points=5, alone=200)
PRESETS = {"smoke": _SMOKE, "default": Config(), "fashion": _FASHION, "cifar": _UNITS, "paper": _PAPER}


def run(config: Config, rows: Record) -> None:
    """Train and judge, a row for each kind and seed; of what is trained ahead, those that are there."""
    from .image_gans import load_gan
    from .image_training import Judges, follow, run_folder
    from .nets.cifar import has_unit, unit_facts

    judges = Judges(config, rows.progress)
    for name, (kind, seed) in rows.todo(jobs(config, config.kinds)):
        course: list[list[float]] = []
        found: dict[str, Any] = {}
        if config.committed:
            loss = _LOSSES.get(kind, kind)
            if not has_unit(f"scratch-{loss}-{seed}"):
                continue
            facts = unit_facts(f"scratch-{loss}-{seed}")
            course = facts["curve"]
            found = judges.judge(load_gan(f"cifar10-scratch-{loss}", seed), seed)
            found |= {"cpu_seconds": 60 * facts["cpu_minutes"]}
        else:
            folder = run_folder(config, rows, name)
            for step, gan, seconds in follow(settings(config, kind, seed), config, config.points, folder=folder):
                found = judges.judge(gan, seed, near=len(course) == config.points - 1)
                found |= {"cpu_seconds": round(seconds, 1)}
                course.append([step, found["before"], found["after"]])
        rows.add(name, {"kind": kind, "seed": seed, "course": course} | found)


def settings(config: Config, kind: str, seed: int) -> Any:
    """Return the configuration of a training run.

    Example:
        >>> staged = settings(Config(data="digits", alone=200), "staged", 0)
        >>> [(stage.generator_loss, stage.steps) for stage in staged.stages]
        [('non_saturating', 1500), ('dual', 300), ('exact', 1200)]
    """
    from .image_gans import parts
    from .image_training import training
    from .train import TrainConfig

    shared = training(config, seed, labelled=parts(config.data, config.home)["generator"].label is not None)
    if kind != "staged":
        more = 2 * config.alone
        shared["generator_loss"] = _LOSSES.get(kind, kind)
        shared["budget"] = 1.0 if kind == "without" else config.budget
        last = {"steps": more, "critic_steps": config.critic_steps + 1}
        return TrainConfig(**shared, stage=[{"steps": config.steps - more}, last] if more else ())
    first, second = (round(share * config.steps) for share in config.shares[:2])
    usual = {"generator_loss": "non_saturating", "steps": first, "noise": 0.3, "noise_until": 0.7}
    usual |= {"generator_decay_from": 0.7, "critic_decay_from": 0.7}
    dual = {"generator_loss": "dual", "steps": second, "new_critic": True, "warm_up": config.alone, "r1": 0.1}
    dual |= {"spectral_norm": False, "noise": 0.0, "generator_lr": config.generator_lr / 2}
    dual |= {"generator_decay_from": 0.3, "critic_decay_from": 0.3}
    exact = {"generator_loss": "exact", "steps": config.steps - first - second, "critic_decay_from": 1.0}
    exact |= {"generator_lr": config.generator_lr * 0.7, "generator_decay_from": 0.4}
    return TrainConfig(**shared, stage=[usual, dual, exact])


def table(record: Record) -> str:
    """Return the distances at the end, with precision and recall: means over the seeds and their standard errors."""
    return judged_table(record, KINDS, PAPER["rows"])


def figure(record: Record) -> Any:
    """Draw the distance after rejection during training, and precision against recall at the end."""
    drawn = canvas(11, 4.6)
    during, end = drawn.subplots(1, 2, width_ratios=(1.6, 1))
    for kind in finals(record, record.config["kinds"]):
        rows, colour = [row for row in record.rows if row["kind"] == kind], PALETTE[_COLOURS[kind]]
        for row in rows:
            on_the_way, _, after = zip(*row["course"], strict=True)
            during.plot(on_the_way, after, color=colour, lw=0.8, alpha=0.5)
        shortest = min(len(row["course"]) for row in rows)
        steps = [rows[0]["course"][at][0] for at in range(shortest)]
        mean = [sum(row["course"][at][2] for row in rows) / len(rows) for at in range(shortest)]
        during.plot(steps, mean, "o-", color=colour, label=KINDS[kind], ms=4)
        points = [row["near_after"] for row in rows]
        precision, recall = zip(*points, strict=True)
        end.plot(recall, precision, "o", color=colour, ms=6, alpha=0.7, mew=0, label=KINDS[kind])
    during.set(
        xlabel="steps, those of the critic alone included",
        ylabel=f"Fréchet distance after rejection, K = {record.config['budget']:g}",
        yscale="log",
    )
    during.yaxis.set_major_formatter("{x:g}")
    during.yaxis.set_minor_formatter("{x:g}")
    end.set(xlabel="recall", ylabel="precision", title="at the end, after rejection")
    for axes in (during, end) if record.rows else ():
        tidy(axes)
    during.set_title(CALLED.get(record.config["data"], record.config["data"]))
    caption(drawn, record.experiment, "Thin lines and dots are runs, thick lines their means.")
    return drawn
