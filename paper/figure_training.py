"""The paper's training figure on images: how good a GAN is after rejection, during training, for several losses.

The paper trains BigGANs on CIFAR-10 and CelebA for K = 2; so does the preset `paper`, on CIFAR-10. Here they are the
small GANs of CIFAR-10 that `runs/train_cifar.py` has trained from scratch, whose curves are in their files. All see the
same number of images. `image_training` says what the losses are and how GANs are judged; `figure-frequency` has more
losses, on Fashion-MNIST.
"""

from typing import Any

from .image_training import CIFAR, KINDS, SMALL, UNITS, Config, draw_courses, finals, judged_table, run
from .record import Record
from .style import PALETTE, canvas, caption, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "run", "table"]

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
PRESETS = {
    "smoke": Config(("hinge", "paper_raw"), **SMALL | {"points": 2}, steps=20),
    "default": Config(("hinge", "dual", "paper_raw"), **UNITS, steps=5400),
    "paper": Config(("hinge", "dual", "unrejected", "paper_raw"), **CIFAR, points=20),
}
_COLOURS = {"hinge": "dark", "dual": "orange", "unrejected": "olive", "paper_raw": "red", "exact": "blue"}


def table(record: Record) -> str:
    """Return the distances at the end, with precision and recall: means over the seeds and their standard errors."""
    return judged_table(record, PAPER["rows"])


def figure(record: Record) -> Any:
    """Draw the distance after rejection during training, and precision against recall at the end."""
    drawn = canvas(11, 4.6)
    during, end = drawn.subplots(1, 2, width_ratios=(1.6, 1))
    draw_courses(during, record, _COLOURS)
    for kind, points in finals(record, "near_after").items():
        precision, recall = zip(*points.values(), strict=True)
        end.plot(recall, precision, "o", color=PALETTE[_COLOURS[kind]], ms=6, alpha=0.7, mew=0, label=KINDS[kind])
    end.set(xlabel="recall", ylabel="precision", title="at the end, after rejection")
    tidy(end, "best" if record.rows else None)
    caption(drawn, record.experiment, "Thin lines and dots are runs, thick lines their means.")
    return drawn
