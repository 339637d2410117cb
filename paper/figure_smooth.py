"""Figure 3: the loss after rejection against one parameter of the model, and its local minima.

Target and model are mixtures of ten equal Gaussians in a row, with variances 0.3 and 0.4; the parameter θ is the
distance between neighbours in the model. The paper does not give that distance in the target. Here it is 2.5, and the
minima are also counted for 2 and 3. The paper: "as the budget increases, the number of local minima decreases". In its
example and in two of ours it never grows. That is not a theorem: in the third one it does.

A run of equal losses counts as one minimum: once K exceeds M, exact rejection leaves nothing, whatever θ.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from obrs._text import text_table

from .record import Checked, Numbers, Record, numbers
from .style import budget_colours, canvas, caption, draw_densities, tidy
from .toys import Mixture, Pair

__all__ = ["PRESETS", "Config", "figure", "minima", "run", "table"]

_COMPONENTS, _TARGET_VARIANCE, _MODEL_VARIANCE = 10, 0.3, 0.4
_FLAT = 1e-7  # losses closer than this are equal: a plateau; the quadrature is good to about 1e-8


@dataclass(frozen=True)
class Config(Checked):
    """What to compute."""

    unchecked = ("others",)
    budgets: tuple[float, ...] = (1.0, 1.5, 2.0, 5.0)  # proposals per kept sample
    separation: float = 2.5  # distance between neighbours in the target
    others: tuple[float, ...] = (2.0, 3.0)  # further separations for which the minima are counted
    thetas: int = 601  # values of θ, from 0 to three times the separation
    points: int = 4001  # points of the grid that densities are summed on
    shown: float = 2.0  # the budget of the densities in the lower panels


PRESETS = {"smoke": Config(others=(), thetas=121, points=1501), "default": Config()}


def run(config: Config, rows: Record) -> None:
    """Compute the loss for each θ and budget, the minima, and the densities at four θ."""
    separations = (config.separation, *config.others)
    for name, separation in rows.todo({f"separation {s:g}": s for s in separations}):
        rows.add(name, _landscape(config, separation))
    loss = rows[f"separation {config.separation:g}"]
    for name, theta in rows.todo({f"densities {letter}": at for letter, at in _choose_shown(config, loss).items()}):
        pair = _pair(config.separation, theta, np.linspace(-30.0, 30.0, 2 * config.points - 1))
        rows.add(name, {"theta": theta} | pair.curves(config.shown, within=7))


def _pair(separation: float, theta: float, x: Numbers) -> Pair:
    """Return the pair on a grid: two rows of ten Gaussians."""
    places = np.arange(_COMPONENTS)[:, None] - (_COMPONENTS - 1) / 2
    target, model = Mixture(separation * places, _TARGET_VARIANCE**0.5), Mixture(theta * places, _MODEL_VARIANCE**0.5)
    return Pair.evaluate(target, model, x)


def _landscape(config: Config, separation: float) -> dict[str, Any]:
    theta = np.linspace(0, 3 * separation, config.thetas)
    reach = 4.5 * theta[-1] + 6
    profiles = [_pair(separation, at, np.linspace(-reach, reach, config.points)).profile() for at in theta]
    loss = np.asarray([[profile.divergence("gan", k) for profile in profiles] for k in config.budgets])
    places = [minima(theta, row) for row in loss]
    counts = [len(per_budget) for per_budget in places]
    return {"separation": separation, "theta": theta, "loss": loss, "count": counts, "minima": places}


def minima(theta: Numbers, loss: Numbers, flat: float = _FLAT) -> list[dict[str, float]]:
    """Find the local minima inside a range, each with its ends; neighbours closer than `flat` make one together."""
    step = np.diff(loss)
    signs = np.where(np.abs(step) <= flat, 0, np.sign(step))
    moves = np.flatnonzero(signs)  # between two moves there is a plateau, or nothing
    return [
        {"low": float(theta[a + 1]), "high": float(theta[b]), "loss": float(loss[a + 1])}
        for a, b in pairwise(moves)
        if signs[a] < 0 < signs[b]
    ]


def _choose_shown(config: Config, row: dict[str, Any]) -> dict[str, float]:
    """Choose four θ for the densities: half the distance in the target, and minima of the first budget."""
    places = numbers([place["low"] for place in row["minima"][0]] or [config.separation])
    best = int(np.argmin(np.abs(places - config.separation)))
    around = [config.separation / 2, *places[max(best - 1, 0) : best + 2].tolist()]
    return dict(zip("ABCD", sorted(around), strict=False))


def table(record: Record) -> str:
    """Return the number of local minima for each budget."""
    head = ["local minima", *(f"K = {k:g}" for k in record.config["budgets"])]
    rows = [[row["row"], *row["count"]] for row in record.rows if "count" in row]
    return f"{text_table(head, rows)}\nthe paper: their number decreases with K"


def figure(record: Record) -> Any:
    """Draw the losses with their minima, and densities at four θ."""
    row = record[f"separation {record.config['separation']:g}"]
    panels = [panel for panel in record.rows if panel["row"].startswith("densities")]
    drawn = canvas(9, 7.2)
    cells = drawn.add_gridspec(2, len(panels), height_ratios=[1.7, 1])
    top = drawn.add_subplot(cells[0, :])
    _losses(top, record, row)
    for at, panel in enumerate(panels):
        letter = panel["row"][-1]
        top.axvline(panel["theta"], color="0.8", lw=1, zorder=0)
        top.text(panel["theta"], 1.125, letter, ha="center", va="bottom", weight="bold")
        axes = drawn.add_subplot(cells[1, at])
        draw_densities(axes, panel, {"kept": "kept"}, width=1.4)
        axes.set(yticks=[], xlim=(-7, 7), xlabel="x", title=f"{letter}: θ = {panel['theta']:.2f}")
        axes.set_ylim(0, 1.15 * max(max(panel[key]) for key in ("p", "q", "kept")))
    below = f"densities below, K = {record.config['shown']:g}"
    handles = drawn.axes[1].get_legend_handles_labels()
    top.add_artist(top.legend(loc="lower right", title="loss"))
    top.legend(*handles, loc="upper right", ncols=3, title=below)
    text = "Above: the GAN divergence between the target and what OBRS keeps, against the distance θ between "
    text += "neighbours of the model; dots and thick bars are local minima. Below: densities, each scaled to its panel."
    return caption(drawn, record.experiment, text)


def _losses(axes: Any, record: Record, row: dict[str, Any]) -> None:
    budgets, theta = record.config["budgets"], numbers(row["theta"])
    for k, colour, loss, places in zip(budgets, budget_colours(budgets), row["loss"], row["minima"], strict=True):
        number = f"{len(places)} local {'minimum' if len(places) == 1 else 'minima'}"
        axes.plot(theta, loss, color=colour, label=f"K = {k:g}: {number}")
        for place in places:
            ends = [place["low"], place["high"]]
            axes.plot(ends, [place["loss"]] * 2, color=colour, lw=5, marker="o", ms=6, solid_capstyle="butt")
    axes.set(xlabel="θ, distance between neighbours in the model", ylabel="GAN divergence after OBRS")
    axes.set(xlim=(theta[0], theta[-1]), ylim=(-0.03, 1.12))
    tidy(axes, None)
