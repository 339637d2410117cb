"""The paper's fine-tuning table on images: trained generators, trained further with the rejection inside.

The paper fine-tunes pre-trained BigGANs on CelebA and ImageNet for K = 2. Here it is the conditional hinge GANs of
CIFAR-10, trained further as units of `runs/train_cifar.py`, for as many steps with each loss; `image_training` says how
they are judged:

- `none`: as it is.
- `hinge`: with its own loss, so that the others are not praised for mere training.
- `dual`, `paper_raw`, `exact`: on a log-ratio of the critic, which trains alone at first. `dual` is Algorithm 1,
  `paper_raw` is Algorithm 2 as printed, `exact` has the gradient of what is left after rejection.

The preset `paper` trains a BigGAN of CelebA further, with its own critic, whose second head has the logistic loss: at
the rates of the paper a new one would learn next to nothing. The paper's table has 1e-6 for both networks, its scripts
have 4e-6 for the critic, and so has the preset.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from obrs._text import lookup

from .image_names import DATA
from .image_training import BIGGAN, CELEBA, SMALL, UNITS, ImageTraining, finals, judged_table, run_kinds, training
from .record import Record
from .style import PALETTE, canvas, caption, tidy

__all__ = ["KINDS", "PAPER", "PRESETS", "Config", "figure", "run", "settings", "table"]

PAPER: dict[str, Any] = {
    "table": "4: fine-tuning with OBRS inside, BigGAN, K = 2",
    "rows": {
        "CelebA": {
            "hinge": {"fid": 9.33, "precision": 80.23, "recall": 57.78},
            "Tw/OBRS": {"fid": 3.74, "precision": 74.40, "recall": 65.15},
        },
        "ImageNet": {
            "hinge": {"fid": 12.18, "precision": 27.75, "recall": 34.33},
            "Tw/OBRS": {"fid": 11.65, "precision": 26.84, "recall": 46.16},
        },
    },
}
"""The whole table: the FID falls and the recall rises, the precision falls."""
KINDS = {
    "none": "as it is",
    "hinge": "hinge, further",
    "dual": "Algorithm 1, f-GAN dual",
    "paper_raw": "Tw/OBRS, Algorithm 2",
    "exact": "exact gradient",
}
"""Ways to train further, and what they are called."""


@dataclass(frozen=True)
class Config(ImageTraining):
    """What to train further; see `ImageTraining` for the other fields.

    Args:
        kinds: Keys of `KINDS`.
        alone: Steps of the critic alone before the others.
    """

    data: str = "cifar10"
    width: int = 32
    steps: int = 600
    judged: int = UNITS["judged"]
    fakes: int = UNITS["fakes"]
    neighbours: int = UNITS["neighbours"]
    epochs: int = UNITS["epochs"]
    generator_lr: float = 1e-4
    ema_start: int = 0
    kinds: tuple[str, ...] = tuple(KINDS)
    alone: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in self.kinds:
            lookup(KINDS, kind, "kind of training")


_SMOKE = Config(**SMALL, steps=3, kinds=("none", "exact"), alone=3)
_PAPER = Config(
    **CELEBA | {"steps": 10_000, "generator_lr": 1e-6, "critic_lr": 4e-6, "ema_start": 0},
    kinds=("none", "hinge", "paper_raw", "exact"), alone=1000,
)  # fmt: skip
PRESETS = {"smoke": _SMOKE, "default": Config(), "paper": _PAPER}


def run(config: Config, rows: Record) -> None:
    """Train each generator further and judge it, a row for each kind and seed; of units, those that are there."""

    def start(kind: str, seed: int) -> Any:
        from .image_gans import load_gan

        gan = load_gan(config.data, seed, config.home)
        return gan if _keeps_critic(config, kind) else replace(gan, critic=None)

    units = {kind: "gan" if kind == "none" else f"finetune-{kind}" for kind in config.kinds}
    run_kinds(config, rows, config.kinds, partial(settings, config), units.__getitem__, start=start)


def _keeps_critic(config: Config, kind: str) -> bool:
    return kind in ("none", "hinge") or config.data in BIGGAN


def settings(config: Config, kind: str, seed: int) -> dict[str, Any]:
    """Return the settings of a training run; none for what stays as it is.

    Example:
        >>> found = settings(Config(data="fashion_mnist"), "exact", 0)
        >>> found["loss"], found["warm_up"], found["steps"], found["critic"]["spectral_norm"]
        ('exact', 200, 600, False)
    """
    if kind == "none":
        return {}
    found = training(config, seed) | {"loss": kind, "warm_up": config.alone}
    if _keeps_critic(config, kind):
        return found
    return found | {"critic": found["critic"] | {"spectral_norm": False}, "r1": 0.1, "decay_from": (0.4, 1.0)}


def table(record: Record) -> str:
    """Return the distances before and after rejection: means over the seeds, and gains seed by seed."""
    return judged_table(record, {kind: KINDS[kind] for kind in record.config["kinds"]}, PAPER["rows"])


def figure(record: Record) -> Any:
    """Draw the distance of every run before and after rejection, by each judge."""
    kinds = record.config["kinds"]
    sides = {"a classifier": [finals(record, kinds, key) for key in ("before", "after")]}
    second = [finals(record, kinds, "second", at) for at in (0, 1)]
    sides |= {"EfficientNet-Lite0": second} if second[0] else {}
    drawn = canvas(11, 2.0 + 0.5 * len(kinds))
    panels = drawn.subplots(1, len(sides), squeeze=False, sharey=True)[0]
    for axes, (judge, (before, after)) in zip(panels, sides.items(), strict=True):
        for height, kind in enumerate(after):
            for values, colour, label in ((before, "grey", "before"), (after, "blue", "after rejection")):
                own, up = list(values[kind].values()), height + (0.12 if label == "before" else -0.12)
                axes.plot(own, [up] * len(own), "o", color=PALETTE[colour], alpha=0.7, mew=0,
                          label=None if height else label)  # fmt: skip
                axes.plot([sum(own) / len(own)] * 2, [up - 0.2, up + 0.2], color=PALETTE[colour], lw=2)
        axes.set(yticks=range(len(after)), yticklabels=[KINDS[kind] for kind in after], ylim=(len(after) - 0.4, -0.6))
        axes.set_xlabel(f"Fréchet distance by {judge}, K = {record.config['budget']:g}")
        tidy(axes, "best" if after else None)
    panels[0].set_title(DATA.get(record.config["data"], record.config["data"]))
    caption(drawn, record.experiment, "Each dot is a generator, bars are means over seeds.")
    return drawn
