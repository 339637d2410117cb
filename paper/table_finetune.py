"""The paper's fine-tuning table on images: trained generators, trained further with the rejection inside.

The paper fine-tunes pre-trained BigGANs on CelebA and ImageNet for K = 2. Here it is the committed hinge GANs of
Fashion-MNIST. Each is trained further for as many steps with each loss, `image_training` says how it is judged:

- `none`: as it is.
- `hinge`: with its own loss and its own critic, so that the others are not praised for mere training.
- `dual`, `paper_raw`, `exact`: with a new critic that says a log-ratio and trains alone at first. `dual` is plain,
  `paper_raw` is Algorithm 2 as printed, `exact` has the gradient of what is left after rejection.

The preset `paper` trains a BigGAN of CelebA further, with its own critic, whose second head has the logistic loss: at
the rates of the paper a new one would learn next to nothing. The paper's table has 1e-6 for both networks, its scripts
have 4e-6 for the critic, and so has the preset. The preset `imagenet` does the same on ImageNet, with 1e-5 for both.
`examples/biggan-pretrained.py` makes the files from a checkpoint.
"""

from dataclasses import dataclass
from typing import Any

from obrs._checks import check_count
from obrs._text import lookup
from obrs.errors import InputError

from .image_training import BIGGAN, CELEBA, IMAGENET, SMALL, ImageTraining, finals, jobs, judged_table
from .record import Record
from .style import PALETTE, canvas, caption, tidy

__all__ = ["KINDS", "PAPER", "PRESETS", "Config", "figure", "run", "settings", "table"]

PAPER: dict[str, Any] = {
    "table": "4: fine-tuning with OBRS inside, BigGAN, K = 2",
    "rows": {
        "CelebA": {
            "hinge": {"fid": 9.33, "precision": 80.23, "recall": 57.78},
            "with": {"fid": 3.74, "precision": 74.40, "recall": 65.15},
        },
        "ImageNet": {
            "hinge": {"fid": 12.18, "precision": 27.75, "recall": 34.33},
            "with": {"fid": 11.65, "precision": 26.84, "recall": 46.16},
        },
    },
}
"""The whole table: the FID falls and the recall rises, the precision falls."""
KINDS = {
    "none": "as it is",
    "hinge": "hinge, further",
    "dual": "f-GAN dual",
    "paper_raw": "Tw/OBRS",
    "exact": "exact",
}
"""Ways to train further, and what they are called."""


@dataclass(frozen=True)
class Config(ImageTraining):
    """What to train further; see `ImageTraining` for the other fields.

    Args:
        kinds: Keys of `KINDS`.
        alone: Steps of the critic alone before the others.
    """

    width: int = 32
    steps: int = 600
    generator_lr: float = 1e-4
    ema_start: int = 0
    kinds: tuple[str, ...] = tuple(KINDS)
    alone: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.alone, "alone", least=0)
        for kind in self.kinds:
            lookup(KINDS, kind, "kind of training")
        if not self.kinds:
            raise InputError("table-finetune needs at least one kind of training")


_SMOKE = Config(**SMALL, steps=3, kinds=("none", "exact"), alone=3)
_LONG: dict[str, Any] = {"kinds": ("none", "hinge", "paper_raw", "exact"), "alone": 1000}
_PAPER = Config(**CELEBA | {"steps": 10_000, "generator_lr": 1e-6, "critic_lr": 4e-6, "ema_start": 0}, **_LONG)
PRESETS = {"smoke": _SMOKE, "default": Config(), "paper": _PAPER, "imagenet": Config(**IMAGENET, **_LONG)}


def run(config: Config, rows: Record) -> None:
    """Train each generator further and judge it, a row for each kind and seed."""
    from .image_gans import load_gan
    from .image_training import Judges, follow, kept

    judges = Judges(config, rows.progress)
    for name, (kind, seed) in rows.todo(jobs(config, config.kinds)):
        gan, seconds = load_gan(config.data, seed, config.home), 0.0
        if kind != "none":
            generator = gan.generator.requires_grad_(True)
            own = kind == "hinge" or config.data in BIGGAN
            critic = gan.critic.requires_grad_(True) if own else None
            ((_, gan, seconds),) = follow(
                settings(config, kind, seed, classes=gan.classes),
                config,
                generator=generator,
                critic=critic,
                folder=kept(config, rows, name),
            )
        rows.add(name, {"kind": kind, "seed": seed, "cpu_seconds": round(seconds, 1)} | judges.judge(gan, seed))


def settings(config: Config, kind: str, seed: int, *, classes: int | None = 10) -> Any:
    """Return the configuration of a training run.

    Example:
        >>> tuned = settings(Config(), "exact", 0)
        >>> tuned.generator_loss, tuned.warm_up, tuned.steps, tuned.spectral_norm
        ('exact', 200, 600, False)
    """
    from .image_training import training
    from .train import TrainConfig

    shared = training(config, seed, labelled=bool(classes)) | {"generator_loss": kind, "warm_up": config.alone}
    if kind == "hinge" or config.data in BIGGAN:
        return TrainConfig(**shared | {"two_heads": True})
    return TrainConfig(**(shared | {"spectral_norm": False, "r1": 0.1, "generator_decay_from": 0.4}))


def table(record: Record) -> str:
    """Return the distances before and after rejection: means over the seeds, and gains seed by seed."""
    return judged_table(record, KINDS, PAPER["rows"])


def figure(record: Record) -> Any:
    """Draw the distance of every run before and after rejection."""
    drawn = canvas(9, 1.8 + 0.45 * len(record.config["kinds"]))
    axes = drawn.subplots()
    after, before = (finals(record, record.config["kinds"], key) for key in ("after", "before"))
    for height, kind in enumerate(after):
        for values, colour, label in ((before, PALETTE["grey"], "before"), (after, PALETTE["blue"], "after rejection")):
            own = list(values[kind].values())
            axes.plot(
                own, [height] * len(own), "o", color=colour, alpha=0.7, mew=0, label=label if not height else None
            )
            axes.plot([sum(own) / len(own)] * 2, [height - 0.3, height + 0.3], color=colour, lw=2)
    axes.set(yticks=range(len(after)), yticklabels=[KINDS[kind] for kind in after], ylim=(len(after) - 0.4, -0.6))
    axes.set_xlabel(f"Fréchet distance, rejection at K = {record.config['budget']:g}")
    tidy(axes, "lower right")
    caption(drawn, record.experiment, "Each dot is a generator, bars are means. The ratios were fitted from scratch.")
    return drawn
