"""How the figures look: one look per method in all of them, one font, one caption.

The colours are those of Okabe and Ito, and then those of Tol: colour-blind readers can tell them apart. Each method
also has its own line and marker. Matplotlib is imported when something is drawn.
"""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .registry import BEYOND, EXPERIMENTS

__all__ = ["LOOKS", "TARGETS", "Look", "budget_colours", "caption", "figure", "look", "styled", "tidy"]


@dataclass(frozen=True)
class Look:
    """How a method looks in every figure, and what it is called there."""

    label: str
    colour: str
    line: str = "-"
    marker: str = "o"


LOOKS = {
    "target": Look("target P", "#4D4D4D", "-", "."),
    "model": Look("model Q", "#D55E00", "-", "X"),
    "obrs": Look("OBRS", "#0072B2", "-", "o"),
    "obrs_pool": Look("OBRS, exactly n", "#0072B2", "--", "s"),
    "obrs_refit": Look("OBRS, ratio refitted", "#56B4E9", "-", "D"),
    "drs": Look("DRS", "#009E73", "--", "^"),
    "exact": Look("unbudgeted", "#000000", ":", "*"),
    "mhgan": Look("MH-GAN", "#CC79A7", "-.", "v"),
    "mhgan_calibrated": Look("MH-GAN, calibrated", "#CC79A7", ":", "<"),
    "dot": Look("DOT", "#E69F00", "-", "P"),
    "dgflow": Look("DGflow", "#882255", "--", "h"),
    "ddls": Look("DDLS", "#999933", "-.", "p"),
    "latent_rs": Look("LatentRS", "#332288", ":", "d"),
    "latent_rs_ga": Look("LatentRS + GA", "#332288", "--", ">"),
    "latent_obrs": Look("latent OBRS", "#332288", "-", "8"),
    "topk": Look("top-k", "#F0E442", "--", "s"),
    "truncation": Look("truncation", "#A6761D", ":", "1"),
    "sir": Look("SIR", "#117733", "-.", "H"),
    "lars": Look("LARS", "#AA4499", "--", "v"),
    "budgeted_lars": Look("budgeted LARS", "#44AA99", "-.", "^"),
}
"""Looks by the name of the method, as in `obrs.SAMPLERS` where it is there."""

TARGETS = {
    "grid25": "25 Gaussians",
    "ring8": "ring of 8",
    "two_moons": "two moons",
    "swiss_roll": "Swiss roll",
    "checkerboard": "checkerboard",
}
"""What the densities of `obrs.data.mixtures.TOYS` are called."""

_RC = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 2.0,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "image.cmap": "cividis",
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "savefig.facecolor": "white",
}


def look(method: str) -> Look:
    """Return the look of a method.

    Example:
        >>> look("drs")
        Look(label='DRS', colour='#009E73', line='--', marker='^')
    """
    return LOOKS[method]


def budget_colours(budgets: Any) -> list[str]:
    """Return a colour per budget: that of the model for K = 1, else blues, the darker the larger.

    Example:
        >>> budget_colours([1, 2])
        ['#D55E00', '#0b4f8a']
    """
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    blues = LinearSegmentedColormap.from_list("budgets", ["#7cc0ee", "#2b8cc9", "#0b4f8a", "#06264a"])
    above = [k for k in budgets if k > 1]
    shades = np.linspace(0, 1, len(above)) if len(above) > 1 else [2 / 3]
    picked = iter([to_hex(blues(float(shade))) for shade in shades])
    return [next(picked) if k > 1 else LOOKS["model"].colour for k in budgets]


def figure(width: float = 9.0, height: float = 6.0) -> Any:
    """Return an empty figure that lays itself out; nine inches are the width of a README.

    Example:
        >>> figure(9, 4).get_size_inches().tolist()
        [9.0, 4.0]
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def caption(drawn: Any, experiment: str, text: str) -> None:
    """Write below a figure which figure of the paper it is, and what it shows.

    Example:
        >>> drawn = figure()
        >>> caption(drawn, "figure-pr", "Kept: 1 in 2.")
        >>> drawn.get_supxlabel()
        'Appendix A of Verine et al. (2024), reproduced. Kept: 1 in 2.'
    """
    label = EXPERIMENTS[experiment].label
    words = text if label == BEYOND else f"{label} of Verine et al. (2024), reproduced. {text}"
    wide = int(drawn.get_size_inches()[0] * 14.5)
    lines = textwrap.fill(words, wide)
    drawn.supxlabel(lines, x=0.01, ha="left", fontsize=9, color="0.3")


def tidy(axes: Any, legend: str | None = "best") -> None:
    """Give axes a faint grid, and a legend where it is wanted."""
    axes.grid(color="0.92", linewidth=0.7)
    if legend is not None:
        axes.legend(loc=legend)


@contextmanager
def styled() -> Iterator[None]:
    """Draw in our style, whatever the reader's own settings are.

    Example:
        >>> with styled():
        ...     import matplotlib
        ...     print(matplotlib.rcParams["savefig.dpi"])
        150.0
    """
    from matplotlib import style

    with style.context(_RC, after_reset=True):
        yield
