"""How figures and the tables of pages look: one look per method, captions, and names of targets.

Colours are those of Okabe and Ito, and then those of Tol: colour-blind readers can tell them apart. Each method also
has its own line and marker.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from obrs import looks
from obrs.looks import Look, budget_colours, restyle
from obrs.looks import figure as canvas

from .harness import EXPERIMENTS

__all__ = ["KEPT", "LOOKS", "PALETTE", "REJECTED", "TARGETS", "Look"]
__all__ += ["budget_colours", "canvas", "caption", "draw_densities", "page_table", "restyle", "section", "tidy"]

PALETTE = looks.PALETTE | {
    "orange": "#E69F00",
    "pink": "#CC79A7",
    "yellow": "#F0E442",
    "forest": "#117733",
    "wine": "#882255",
    "indigo": "#332288",
    "olive": "#999933",
    "purple": "#AA4499",
    "teal": "#44AA99",
    "night": "#1B3A57",
    "rust": "#B24A00",
    "ash": "#6E6E6E",
    "grey": "#999999",
}
"""Colours by name: those of the library, the rest of Okabe and Ito, some of Tol, shades of these, and greys."""

KEPT, REJECTED = "#1a9641", "#d7191c"
"""The frames of samples that are kept, and of those that are not."""

LOOKS = looks.LOOKS | {
    "obrs_pool": Look("OBRS, exactly n", PALETTE["blue"], "--", "s"),
    "obrs_refit": Look("OBRS, ratio refitted", PALETTE["sky"], "-", "D"),
    "mhgan": Look("MH-GAN", PALETTE["pink"], "-.", "v"),
    "mhgan_calibrated": Look("MH-GAN, calibrated", PALETTE["pink"], ":", "<"),
    "dot": Look("DOT", PALETTE["orange"], "-", "P"),
    "dgflow": Look("DGflow", PALETTE["wine"], "--", "h"),
    "ddls": Look("DDLS", PALETTE["olive"], "-.", "p"),
    "latent_rs": Look("LatentRS", PALETTE["indigo"], ":", "d"),
    "latent_obrs": Look("latent OBRS", PALETTE["indigo"], "-", "8"),
    "topk": Look("top-k", PALETTE["yellow"], "--", "s"),
    "sir": Look("SIR", PALETTE["forest"], "-.", "H"),
    "lars": Look("LARS", PALETTE["purple"], "--", "v"),
    "budgeted_lars": Look("budgeted LARS", PALETTE["teal"], "-.", "^"),
}
"""Looks by the name of the method, as in `obrs.rivals.SAMPLERS` where it is there."""

TARGETS = {
    "grid25": "25 Gaussians",
    "ring8": "ring of 8",
    "two_moons": "two moons",
    "swiss_roll": "Swiss roll",
    "checkerboard": "checkerboard",
}
"""What the densities of `paper.toys.TOYS` are called."""


def tidy(axes: Any, legend: str | None = "best") -> None:
    """Give axes a faint grid, and a legend where it is wanted."""
    axes.grid(color="0.92", linewidth=0.7)
    if legend is not None:
        axes.legend(loc=legend)


def draw_densities(axes: Any, row: Mapping[str, Any], kept: Mapping[str, str], *, width: float = 1.6) -> None:
    """Draw a target as an area, its model, and what methods keep of it: keys of the row, with their labels."""
    axes.fill_between(row["x"], row["p"], color="0.85", label=LOOKS["target"].label)
    axes.plot(row["x"], row["q"], color=LOOKS["model"].colour, lw=width, label=LOOKS["model"].label)
    for key, label in kept.items():
        style = LOOKS[key if key in LOOKS else "obrs"]
        axes.plot(row["x"], row[key], color=style.colour, ls=style.line, lw=1.7, label=label)
    tidy(axes, None)


def caption(drawn: Any, experiment: str, text: str) -> Any:
    """Write below a figure which figure of the paper it is, or whose setting it has, and what it shows; return it."""
    entry = EXPERIMENTS[experiment]
    if entry.label:
        source = entry.source.replace(entry.label, f"{entry.label} of Verine et al. (2024)", 1)
        text = f"{source[0].upper()}{source[1:]}. {text}"
    lines = textwrap.fill(text, int(drawn.get_size_inches()[0] * 14.5))
    drawn.supxlabel(lines, x=0.01, ha="left", fontsize=9, color="0.3")
    return drawn


def page_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table for a page, in Markdown.

    Example:
        >>> print(page_table(["K", "KL left"], [["2", "0.065"]]))
        | K | KL left |
        | --- | --- |
        | 2 | 0.065 |
    """
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def section(name: str, text: str) -> str:
    """Return a part of what a page includes under a name of its own: `--8<-- "paper/results/NAME.md:name"`."""
    return f"<!-- --8<-- [start:{name}] -->\n{text}\n<!-- --8<-- [end:{name}] -->"
