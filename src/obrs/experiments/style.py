"""What the figures of experiments have beside the looks of `obrs.looks`: captions, and names of targets."""

import textwrap
from typing import Any

from .registry import BEYOND, EXPERIMENTS

__all__ = ["TARGETS", "caption"]

TARGETS = {
    "grid25": "25 Gaussians",
    "ring8": "ring of 8",
    "two_moons": "two moons",
    "swiss_roll": "Swiss roll",
    "checkerboard": "checkerboard",
}
"""What the densities of `obrs.data.mixtures.TOYS` are called."""


def caption(drawn: Any, experiment: str, text: str) -> None:
    """Write below a figure which figure of the paper it is, and what it shows.

    Example:
        >>> from obrs.looks import figure
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
