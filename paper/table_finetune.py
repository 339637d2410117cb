"""The paper's fine-tuning table on images: trained generators, trained further with the rejection inside.

The paper fine-tunes pre-trained BigGANs on CelebA and ImageNet for K = 2. Here it is the conditional hinge GANs of
CIFAR-10, trained further as units of `runs/train_cifar.py`, for as many steps with each loss, after some of the critic
alone. One of them is hinge, their own, so that the others are not praised for mere training. `image_training` says what
the losses are and how GANs are judged.

The preset `paper` trains a BigGAN of CelebA further, with its own critic, whose second head has the logistic loss: at
the rates of the paper a new one would learn next to nothing. The paper's table has 1e-6 for both networks, its scripts
have 4e-6 for the critic, and so has the preset.
"""

from typing import Any

from .image_sheet import DATA
from .image_training import CELEBA, KINDS, SMALL, UNITS, Config, finals, judged_table, run
from .record import Record
from .style import PALETTE, canvas, caption, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "run", "table"]

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
PRESETS = {
    "smoke": Config(("none", "exact"), **SMALL, steps=3, alone=3),
    "default": Config(("none", "hinge", "dual", "paper_raw", "exact"), **UNITS, seeds=3, steps=1650, alone=150),
    "paper": Config(
        ("none", "hinge", "paper_raw", "exact"),
        **CELEBA | {"steps": 10_000, "generator_lr": 1e-6, "critic_lr": 4e-6, "ema_start": 0},
        alone=1000,
        points=1,
    ),
}


def table(record: Record) -> str:
    """Return the distances before and after rejection: means over the seeds, and gains seed by seed."""
    return judged_table(record, PAPER["rows"])


def figure(record: Record) -> Any:
    """Draw the distance of every run before and after rejection, by each judge."""
    sides = {"a classifier": [finals(record, key) for key in ("before", "after")]}
    second = [finals(record, "second", at) for at in (0, 1)]
    sides |= {"EfficientNet-Lite0": second} if second[0] else {}
    drawn = canvas(11, 2.0 + 0.5 * len(record.config["kinds"]))
    panels = drawn.subplots(1, len(sides), squeeze=False, sharey=True)[0]
    for axes, (judge, (before, after)) in zip(panels, sides.items(), strict=True):
        for height, kind in enumerate(after):
            for values, colour, label in ((before, "grey", "before"), (after, "blue", "after rejection")):
                points, up = list(values[kind].values()), height + (0.12 if label == "before" else -0.12)
                axes.plot(points, [up] * len(points), "o", color=PALETTE[colour], alpha=0.7, mew=0,
                          label=None if height else label)  # fmt: skip
                axes.plot([sum(points) / len(points)] * 2, [up - 0.2, up + 0.2], color=PALETTE[colour], lw=2)
        axes.set(yticks=range(len(after)), yticklabels=[KINDS[kind] for kind in after], ylim=(len(after) - 0.4, -0.6))
        axes.set_xlabel(f"Fréchet distance by {judge}, K = {record.config['budget']:g}")
        tidy(axes, "best" if after else None)
    panels[0].set_title(DATA.get(record.config["data"], record.config["data"]))
    caption(drawn, record.experiment, "Each dot is a generator, bars are means over seeds.")
    return drawn
