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
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from obrs._text import lookup
from obrs.errors import InputError

from .image_training import CIFAR, SMALL, UNITS, ImageTraining, draw_courses, finals, judged_table, run_kinds, training
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
}
"""Ways to train, and what they are called."""
_LOSSES = {"without": "paper_raw", "with": "paper_raw"}  # where the loss has another name than the kind
_COLOURS = dict(zip(KINDS, ("dark", "orange", "pink", "olive", "red", "blue"), strict=True))


@dataclass(frozen=True)
class Config(ImageTraining):
    """What to train; see `ImageTraining` for the other fields.

    Args:
        kinds: Keys of `KINDS`.
        points: How often a GAN is judged on its way.
        alone: Half of the last steps, in which the critic takes one more.
    """

    kinds: tuple[str, ...] = tuple(KINDS)
    points: int = 12
    alone: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in self.kinds:
            lookup(KINDS, kind, "kind of training")
        if 2 * self.alone >= self.steps:
            raise InputError(f"the critic can be alone for less than half of {self.steps} steps, got {self.alone}")


_SMOKE = Config(**SMALL, width=8, latent=8, steps=20, kinds=("hinge", "with"), points=2, alone=2)
_UNITS = Config(**UNITS, kinds=("hinge", "dual", "with", "exact"))
_PAPER = Config(**CIFAR, kinds=("hinge", "dual", "unrejected", "with"), points=20)
_FASHION = Config(kinds=("hinge", "without", "with"), points=5, alone=200)
PRESETS = {"smoke": _SMOKE, "default": Config(), "fashion": _FASHION, "cifar": _UNITS, "paper": _PAPER}


def run(config: Config, rows: Record) -> None:
    """Train and judge, a row for each kind and seed; of what is trained ahead, those that are there."""
    units = {kind: f"scratch-{_LOSSES.get(kind, kind)}" for kind in config.kinds}
    run_kinds(config, rows, config.kinds, partial(settings, config), units.__getitem__, points=config.points)


def settings(config: Config, kind: str, seed: int) -> dict[str, Any]:
    """Return the settings of a training run.

    Example:
        >>> found = settings(Config(data="digits", alone=200), "with", 0)
        >>> found["loss"], found["stage"]
        ('paper_raw', [{'steps': 2600}, {'steps': 400, 'critic_steps': 2}])
    """
    budget, more = 1.0 if kind == "without" else config.budget, 2 * config.alone
    found = training(config, seed) | {"loss": _LOSSES.get(kind, kind), "budget": budget}
    last = {"steps": more, "critic_steps": config.critic_steps + 1}
    return found | ({"stage": [{"steps": config.steps - more}, last]} if more else {})


def _names(record: Record) -> dict[str, str]:
    return {kind: KINDS[kind] for kind in record.config["kinds"]}


def table(record: Record) -> str:
    """Return the distances at the end, with precision and recall: means over the seeds and their standard errors."""
    return judged_table(record, _names(record), PAPER["rows"])


def figure(record: Record) -> Any:
    """Draw the distance after rejection during training, and precision against recall at the end."""
    drawn = canvas(11, 4.6)
    during, end = drawn.subplots(1, 2, width_ratios=(1.6, 1))
    draw_courses(during, record, _names(record), _COLOURS)
    for kind, points in finals(record, _names(record), "near_after").items():
        precision, recall = zip(*points.values(), strict=True)
        end.plot(recall, precision, "o", color=PALETTE[_COLOURS[kind]], ms=6, alpha=0.7, mew=0, label=KINDS[kind])
    end.set(xlabel="recall", ylabel="precision", title="at the end, after rejection")
    tidy(end, "best" if record.rows else None)
    caption(drawn, record.experiment, "Thin lines and dots are runs, thick lines their means.")
    return drawn
