"""The paper's training figure on images: how good a GAN is after rejection, during training, for four ways to train.

The paper trains BigGANs on CIFAR-10 and CelebA for K = 2; so does the preset `paper`, on CIFAR-10. Otherwise small
conditional GANs learn Fashion-MNIST, 28x28 pixels. See `image_training` for how they are judged.

- `hinge`: plain training, as the paper's baseline.
- `without`: Algorithm 2 without rejection: a = 1 and K = 1, the loss E[f(r)]. The paper's code keeps K = 2 there, which
  makes it E[2 f(r/2)].
- `with`: Algorithm 2 as printed.
- `staged`: three stages: a usual GAN with noise that fades, a new critic with the f-GAN's loss, such a critic anew with
  the exact loss.

All train their generator, and their critic, on the same number of samples: in three stages the critic also trains
alone, the others end with steps in which it takes one more.
"""

from dataclasses import dataclass
from typing import Any

from obrs._checks import check_count
from obrs._text import lookup
from obrs.errors import InputError

from .image_training import CIFAR, SMALL, ImageTraining, finals, jobs, judged_table
from .record import Record
from .style import PALETTE, canvas, caption, tidy

__all__ = ["KINDS", "PAPER", "PRESETS", "Config", "figure", "run", "settings", "table"]

PAPER: dict[str, Any] = {
    "figure": "6: FID during training, BigGAN, K = 2",
    "rows": {
        "CIFAR-10": {
            "hinge": {"fid": 8.43, "precision": 84.50, "recall": 65.39},
            "without": {"fid": 11.18, "precision": 83.24, "recall": 68.44},
            "with": {"fid": 8.98, "precision": 80.09, "recall": 69.63},
        },
        "CelebA": {
            "hinge": {"fid": 9.33, "precision": 80.23, "recall": 57.78},
            "without": {"fid": 6.33, "precision": 78.28, "recall": 61.02},
            "with": {"fid": 5.42, "precision": 78.01, "recall": 60.29},
        },
    },
}
"""The table of Figure 6. On CIFAR-10 the hinge loss has the lowest FID, although the text calls Tw/OBRS superior."""
KINDS = {"hinge": "hinge", "without": "Tw/oOBRS", "with": "Tw/OBRS", "staged": "three stages"}
"""Ways to train, and what they are called."""
_COLOURS = {"hinge": PALETTE["dark"], "without": PALETTE["orange"], "with": PALETTE["red"], "staged": PALETTE["blue"]}


@dataclass(frozen=True)
class Config(ImageTraining):
    """What to train; see `ImageTraining` for the other fields.

    Args:
        kinds: Keys of `KINDS`.
        points: How often a GAN is judged on its way.
        shares: Of the generator's steps, those in each of three stages.
        alone: Steps of the critic alone before the second stage, and before the third.
    """

    kinds: tuple[str, ...] = tuple(KINDS)
    points: int = 5
    shares: tuple[float, ...] = (0.5, 0.1, 0.4)
    alone: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.points, "points")
        for kind in self.kinds:
            lookup(KINDS, kind, "kind of training")
        if not self.kinds or len(self.shares) != 3 or abs(sum(self.shares) - 1) > 1e-9:
            raise InputError(f"figure-training needs a kind, and three shares that sum to 1, got {self.shares}")
        if 2 * self.alone >= self.steps:
            raise InputError(f"the critic can be alone for less than half of {self.steps} steps, got {self.alone}")


_SMOKE = Config(**SMALL, width=8, latent=8, steps=20, kinds=("hinge", "staged"), points=2, alone=2)
_PAPER = Config(**CIFAR, kinds=("hinge", "without", "with"), points=20, alone=0)
PRESETS = {"smoke": _SMOKE, "default": Config(), "paper": _PAPER}


def run(config: Config, rows: Record) -> None:
    """Train and judge, a row for each kind and seed; all kinds of a seed before the next seed."""
    from .image_training import Judges, follow, kept

    judges = Judges(config, rows.progress)
    for name, (kind, seed) in rows.todo(jobs(config, config.kinds)):
        course: list[list[float]] = []
        found: dict[str, Any] = {}
        folder = kept(config, rows, name)
        for step, gan, seconds in follow(settings(config, kind, seed), config, config.points, folder=folder):
            found = judges.judge(gan, seed, near=len(course) == config.points - 1)
            found |= {"cpu_seconds": round(seconds, 1)}
            course.append([step, found["before"], found["after"]])
        rows.add(name, {"kind": kind, "seed": seed, "course": course} | found)


def settings(config: Config, kind: str, seed: int) -> Any:
    """Return the configuration of a training run.

    Example:
        >>> staged, plain = (settings(Config(data="digits"), kind, seed=0) for kind in ("staged", "without"))
        >>> [(s.generator_loss, s.budget, s.steps, s.warm_up) for s in staged.stages]
        [('non_saturating', 2.0, 1500, 0), ('dual', 2.0, 300, 200), ('exact', 2.0, 1200, 200)]
        >>> [(s.generator_loss, s.budget, s.steps, s.critic_steps) for s in plain.stages]
        [('paper_raw', 1.0, 2600, 1), ('paper_raw', 1.0, 400, 2)]
    """
    from .image_gans import parts
    from .image_training import training
    from .train import TrainConfig

    labelled = parts(config.data, config.home)["generator"].label is not None
    shared = training(config, seed, labelled=labelled)
    if kind != "staged":
        more = 2 * config.alone
        shared["generator_loss"] = "hinge" if kind == "hinge" else "paper_raw"
        shared["budget"] = 1.0 if kind == "without" else config.budget
        if not more:
            return TrainConfig(**shared)
        last = {"steps": more, "critic_steps": config.critic_steps + 1}
        return TrainConfig(**shared, stage=[{"steps": config.steps - more}, last])
    first, second = (round(share * config.steps) for share in config.shares[:2])
    return TrainConfig(
        **shared,
        stage=[
            {
                "generator_loss": "non_saturating",
                "steps": first,
                "noise": 0.3,
                "noise_until": 0.7,
                "generator_decay_from": 0.7,
                "critic_decay_from": 0.7,
            },
            {
                "generator_loss": "dual",
                "steps": second,
                "new_critic": True,
                "warm_up": config.alone,
                "spectral_norm": False,
                "r1": 0.1,
                "noise": 0.0,
                "generator_lr": config.generator_lr / 2,
                "generator_decay_from": 0.3,
                "critic_decay_from": 0.3,
            },
            {
                "generator_loss": "exact",
                "steps": config.steps - first - second,
                "generator_lr": config.generator_lr * 0.7,
                "generator_decay_from": 0.4,
                "critic_decay_from": 1.0,
            },
        ],
    )


def table(record: Record) -> str:
    """Return the distances at the end, with precision and recall: means over the seeds and their standard errors."""
    return judged_table(record, KINDS, PAPER["rows"])


def figure(record: Record) -> Any:
    """Draw the distance after rejection during training, and precision against recall at the end."""
    drawn = canvas(9, 4.2)
    during, end = drawn.subplots(1, 2, width_ratios=(1.6, 1))
    for kind in finals(record, record.config["kinds"]):
        rows = [row for row in record.rows if row["kind"] == kind]
        for row in rows:
            on_the_way, _, after = zip(*row["course"], strict=True)
            during.plot(on_the_way, after, color=_COLOURS[kind], lw=0.8, alpha=0.5)
        shortest = min(len(row["course"]) for row in rows)
        steps = [rows[0]["course"][at][0] for at in range(shortest)]
        mean = [sum(row["course"][at][2] for row in rows) / len(rows) for at in range(shortest)]
        during.plot(steps, mean, "o-", color=_COLOURS[kind], label=KINDS[kind], ms=4)
        for row in rows:
            precision, recall = row["near_after"]
            end.plot(recall, precision, "o", color=_COLOURS[kind], ms=6, alpha=0.7, mew=0)
    during.set(
        xlabel="steps, those of the critic alone included",
        ylabel=f"Fréchet distance after rejection, K = {record.config['budget']:g}",
        yscale="log",
    )
    during.yaxis.set_major_formatter("{x:g}")
    during.yaxis.set_minor_formatter("{x:g}")
    end.set(xlabel="recall", ylabel="precision", title="at the end, after rejection")
    tidy(during)
    tidy(end, None)
    caption(
        drawn, record.experiment, "Thin lines and dots are runs. The ratios were fitted from scratch, all in one way."
    )
    return drawn
