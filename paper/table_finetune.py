"""The paper's fine-tuning table on images: trained generators, trained further with the rejection inside.

The paper fine-tunes pre-trained BigGANs on CelebA and ImageNet for K = 2. Here it is the conditional hinge GANs of
CIFAR-10, trained further as units of `runs/train_cifar.py`; or with `fashion` those of Fashion-MNIST. Each is trained
further for as many steps with each loss, `image_training` says how it is judged:

- `none`: as it is.
- `hinge`: with its own loss, so that the others are not praised for mere training.
- `dual`, `paper_raw`, `exact`: on a log-ratio of the critic, which trains alone at first. `dual` is Algorithm 1,
  `paper_raw` is Algorithm 2 as printed, `exact` has the gradient of what is left after rejection.

The preset `paper` trains a BigGAN of CelebA further, with its own critic, whose second head has the logistic loss: at
the rates of the paper a new one would learn next to nothing. The paper's table has 1e-6 for both networks, its scripts
have 4e-6 for the critic, and so has the preset. The preset `imagenet` does the same on ImageNet, with 1e-5 for both.
`examples/biggan-pretrained.py` makes the files from a checkpoint.
"""

from dataclasses import dataclass
from typing import Any

from obrs._checks import check_count

from .image_training import BIGGAN, CALLED, CELEBA, IMAGENET, SMALL, UNITS, ImageTraining, finals, jobs, judged_table
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
        check_count(self.alone, "alone", least=0)
        self.check_kinds(self.kinds, KINDS)


_SMOKE = Config(**SMALL, steps=3, kinds=("none", "exact"), alone=3)
_LONG: dict[str, Any] = {"kinds": ("none", "hinge", "paper_raw", "exact"), "alone": 1000}
_PAPER = Config(**CELEBA | {"steps": 10_000, "generator_lr": 1e-6, "critic_lr": 4e-6, "ema_start": 0}, **_LONG)
PRESETS = {
    "smoke": _SMOKE,
    "default": Config(),
    "fashion": Config(data="fashion_mnist", judged=0, fakes=5000, neighbours=5000, epochs=8),
    "paper": _PAPER,
    "imagenet": Config(**IMAGENET, **_LONG),
}


def run(config: Config, rows: Record) -> None:
    """Train each generator further and judge it, a row for each kind and seed; of units, those that are there."""
    from .image_gans import load_gan
    from .image_training import Judges, follow, run_folder
    from .nets.cifar import has_unit, unit_facts

    judges = Judges(config, rows.progress)
    for name, (kind, seed) in rows.todo(jobs(config, config.kinds)):
        seconds = 0.0
        if config.committed:
            unit = "gan" if kind == "none" else f"finetune-{kind}"
            if not has_unit(f"{unit}-{seed}"):
                continue
            gan, seconds = load_gan(f"cifar10-{unit}", seed), 60 * unit_facts(f"{unit}-{seed}")["cpu_minutes"]
        else:
            gan = load_gan(config.data, seed, config.home)
            if kind != "none":
                own = kind == "hinge" or config.data in BIGGAN
                ((_, gan, seconds),) = follow(
                    settings(config, kind, seed, classes=gan.classes),
                    config,
                    generator=gan.generator.requires_grad_(True),
                    critic=gan.critic.requires_grad_(True) if own else None,
                    folder=run_folder(config, rows, name),
                )
        rows.add(name, {"kind": kind, "seed": seed, "cpu_seconds": round(seconds, 1)} | judges.judge(gan, seed))


def settings(config: Config, kind: str, seed: int, *, classes: int | None = 10) -> Any:
    """Return the configuration of a training run.

    Example:
        >>> tuned = settings(Config(data="fashion_mnist"), "exact", 0)
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
    """Draw the distance of every run before and after rejection, by each judge."""
    kinds = record.config["kinds"]
    second = finals(record, kinds, "second")
    drawn = canvas(11, 2.0 + 0.5 * len(kinds))
    panels = drawn.subplots(1, 2 if second else 1, squeeze=False, sharey=True)[0]
    sides = [[finals(record, kinds, key) for key in ("before", "after")]]
    sides += [[{k: {s: pair[at] for s, pair in v.items()} for k, v in second.items()} for at in (0, 1)]]
    for axes, (before, after), judge in zip(panels, sides, ("a classifier", "EfficientNet-Lite0"), strict=False):
        for height, kind in enumerate(after):
            for values, colour, label in ((before, "grey", "before"), (after, "blue", "after rejection")):
                own, up = list(values[kind].values()), height + (0.12 if label == "before" else -0.12)
                axes.plot(own, [up] * len(own), "o", color=PALETTE[colour], alpha=0.7, mew=0,
                          label=None if height else label)  # fmt: skip
                axes.plot([sum(own) / len(own)] * 2, [up - 0.2, up + 0.2], color=PALETTE[colour], lw=2)
        axes.set(yticks=range(len(after)), yticklabels=[KINDS[kind] for kind in after], ylim=(len(after) - 0.4, -0.6))
        axes.set_xlabel(f"Fréchet distance by {judge}, K = {record.config['budget']:g}")
        tidy(axes, "best" if after else None)
    panels[0].set_title(CALLED.get(record.config["data"], record.config["data"]))
    caption(drawn, record.experiment, "Each dot is a generator, bars are means over seeds.")
    return drawn
