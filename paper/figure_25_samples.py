"""25 Gaussians: what each method draws from one under-trained GAN, panel by panel.

The GAN, the ratio and the constants are those of Table 2; the paper shows the model and the first five of the methods.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from obrs._text import text_table

from .gan25 import SIGMA, SMOKE, TARGET, Settings, score
from .record import Record, numbers
from .rivals import method, prepare
from .style import LOOKS, PALETTE, canvas, caption

__all__ = ["PRESETS", "Config", "figure", "run", "table"]

PANELS = (
    *("target", "model", "obrs", "drs", "mhgan", "dot", "dgflow"),
    *("exact", "obrs_refit", "topk", "latent_rs", "ddls"),
)
_FRAME = 2.1  # half the side of a panel


@dataclass(frozen=True)
class Config(Settings):
    """What to draw; the other fields are of the GAN, see `Settings`."""

    n: int = 2500  # samples in a panel, and of its scores
    budget: float = 2.6  # generator calls per sample


PRESETS = {"smoke": Config(n=200, **SMOKE), "default": Config()}


def run(config: Config, rows: Record) -> None:
    """Draw once with every method."""
    for name, _ in rows.todo(dict.fromkeys(PANELS)):
        if name == "target":
            x, calls = TARGET.sample(config.n, seed=config.seed + 1), 0
        else:
            sampler, model = method(name, prepare(Settings.select(config), rows.progress), config.budget)
            kept = sampler(model, config.n, seed=config.seed, progress=False)
            x, calls = np.asarray(kept.x, dtype=np.float64), kept.calls.generator
        distance = np.sqrt(np.square(x[:, None] - TARGET.means).sum(axis=2).min(axis=1))
        points = {"x": np.round(x[:, 0], 3), "y": np.round(x[:, 1], 3), "good": (distance <= 4 * SIGMA).astype(int)}
        rows.add(name, score(x) | {"g": calls / config.n} | points)


def table(record: Record) -> str:
    """Return the scores of the panels."""
    rows = []
    for name, row in ((name, record[name]) for name in PANELS):
        shares = [f"{100 * row[key]:.1f}" for key in ("precision", "recall")]
        rows.append([LOOKS[name].label, *shares, f"{row['kl']:.3f}", f"{row['g']:.2f}"])
    return text_table(["", "precision %", "recall %", "KL", "calls of G per sample"], rows)


def figure(record: Record) -> Any:
    """Draw a panel per method: its colour for samples at a mode, orange for those that are not."""
    drawn = canvas(9, 7.4)
    for axes, name in zip(drawn.subplots(3, 4).flat, PANELS, strict=True):
        row, style = record[name], LOOKS[name]
        x, y, good = numbers(row["x"]), numbers(row["y"]), numbers(row["good"]) == 1
        bad = LOOKS["model"].colour
        axes.scatter(x[~good], y[~good], s=3, color=bad, alpha=0.5, linewidths=0, rasterized=True)
        # of yellow and orange, hits and misses could not be told apart
        colour = PALETTE["ash"] if name in ("topk", "model") else style.colour
        axes.scatter(x[good], y[good], s=3, color=colour, alpha=0.6, linewidths=0, rasterized=True)
        axes.set(xlim=(-_FRAME, _FRAME), ylim=(-_FRAME, _FRAME), aspect="equal", xticks=[], yticks=[])
        axes.set_title(style.label, fontsize=10.5)
        under = f"{100 * row['precision']:.0f} %, KL {row['kl']:.2f}" if name != "target" else "100 %, KL 0"
        axes.set_xlabel(under, fontsize=9.5)
        for side in axes.spines.values():
            side.set(visible=True, color="0.8")
    text = f"{record.config['n']} samples each, at {record.config['budget']:g} generator calls per sample where a "
    text += "method has a budget; DOT, DGflow and DDLS take three steps. Orange: further than four standard deviations "
    text += "from every mode. Below each panel: share of the others, and KL to the target."
    return caption(drawn, record.experiment, text)
