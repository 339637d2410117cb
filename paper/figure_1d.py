"""Figure 2: target, model and what three rules keep of it, in one dimension with known densities.

The paper gives no constants; half of the proposals are kept. Here the target has two narrow bumps and the model two
wide ones, so that r = p/q is bounded, as in `examples/minimal.py`. Densities, acceptance functions and curves are
computed on a grid.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from obrs import Budgeted
from obrs._text import text_table
from obrs.errors import InputError
from obrs.root import brent
from obrs.rules import DRS, Unbudgeted
from obrs.types import Rule

from .record import Checked, Record, numbers
from .style import LOOKS, canvas, caption, draw_densities, tidy
from .toys import Pair, mixture, thin

__all__ = ["MODEL", "PRESETS", "TARGET", "Config", "figure", "run", "table"]

TARGET = ((0.55, -1.4, 0.40), (0.45, 1.3, 0.50))  # weight, mean, standard deviation
MODEL = ((0.40, -0.9, 1.00), (0.60, 1.6, 1.10))
RULES = ("exact", "drs", "obrs")
DIVERGENCES = ("kl", "gan", "tv")


@dataclass(frozen=True)
class Config(Checked):
    """What to compute."""

    budget: float = 2.0  # proposals per kept sample, of DRS and OBRS; below M = 3.87, where rejection is exact
    points: int = 8001  # points of the grid

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget > 3.8:
            raise InputError(f"at a budget of {self.budget:g} rejection is exact here; choose one below 3.8")


PRESETS = {"smoke": Config(points=2001), "default": Config()}


def run(config: Config, rows: Record) -> None:
    """Compute the pair and what the three rules make of it."""
    pair = Pair.evaluate(mixture(TARGET), mixture(MODEL), np.linspace(-8.0, 8.0, config.points))
    mass = pair.q * pair.step
    obrs = Budgeted.fit(pair.log_ratio, config.budget, weights=mass)
    log_m, keep = float(pair.log_ratio.max()), 1 / config.budget
    drs = DRS(log_m, brent(lambda g: keep - float(mass @ np.exp(DRS(log_m, g)(pair.log_ratio))), -50.0, 0.0))
    if "model" not in rows:
        slope = config.budget * float(np.exp(obrs.log_c) / np.sum(mass * np.exp(pair.log_ratio)))
        shown = {"x": thin(pair.x, 801), "p": thin(pair.p, 801), "q": thin(pair.q, 801)}
        rows.add("model", {"slope": slope} | _numbers(pair) | shown)
    rules: dict[str, Rule] = {"exact": Unbudgeted.fit(pair.log_ratio), "drs": drs, "obrs": obrs}
    for name, rule in rows.todo(rules):
        accept, kept = np.exp(rule(pair.log_ratio)), pair.keep(rule)
        with np.errstate(divide="ignore"):
            after = Pair(pair.x, pair.log_p, np.log(kept))
        rate = float(np.sum(pair.q * accept) * pair.step)
        rows.add(name, {"rate": rate} | _numbers(after) | {"acceptance": thin(accept, 801), "density": thin(kept, 801)})


def _numbers(pair: Pair) -> dict[str, Any]:
    """Return the divergences of the target to a model, and its precision-recall curve."""
    profile = pair.profile()
    curve = profile.curve(points=257)
    divergences = {name: profile.divergence(name) for name in DIVERGENCES}
    return divergences | {"recall": curve.recall, "precision": curve.precision}


def table(record: Record) -> str:
    """Return the rate and the divergences left of each rule."""
    each = ((LOOKS[name].label, record[name]) for name in ("model", *RULES))
    rows = [[label, f"{row.get('rate', 1.0):.3f}", *(f"{row[key]:.4f}" for key in DIVERGENCES)] for label, row in each]
    return text_table(["", "rate", "KL", "GAN", "TV"], rows)


def figure(record: Record) -> Any:
    """Draw densities, acceptance functions, curves, and how OBRS moves the curve."""
    budget = record.config["budget"]
    drawn = canvas(9, 7.6)
    densities, acceptance, curves, scaling = drawn.subplots(2, 2).flat
    kept = {name: record[name]["density"] for name in ("drs", "obrs")}
    draw_densities(densities, record["model"] | kept, {name: f"kept by {LOOKS[name].label}" for name in kept})
    for name in ("model", *RULES):
        row, style = record[name], LOOKS[name]
        line = {"color": style.colour, "ls": style.line}
        curves.plot(row["recall"], row["precision"], label=style.label, **line)
        if name in RULES:
            label = f"{style.label}, keeps {100 * row['rate']:.0f} %"
            acceptance.plot(numbers(record["model"]["x"]), row["acceptance"], label=label, **line)
    _draw_scaling(scaling, record)
    densities.set(title="Target, model, and what is kept", xlabel="x", ylabel="density", xlim=(-4, 5), ylim=(0, 0.78))
    densities.legend(loc="upper right", ncols=2)
    acceptance.set(title="Acceptance functions", xlabel="x", ylabel="probability to be kept", xlim=(-4, 5))
    acceptance.set(ylim=(0, 1.42), yticks=np.linspace(0, 1, 6))
    tidy(acceptance, "upper right")
    for axes, title in ((curves, "Precision and recall"), (scaling, f"OBRS: {budget:g} times the precision")):
        axes.set(title=title, xlabel="recall", ylabel="precision", xlim=(0, 1.03), ylim=(0, 1.05))
        tidy(axes, "lower left" if axes is curves else "lower center")
    left = {name: f"{record[name]['kl']:.3f}" for name in ("model", "drs", "obrs")}
    words = f"KL to the target: {left['model']} before, {left['drs']} after DRS, {left['obrs']} after OBRS."
    return caption(drawn, record.experiment, f"DRS and OBRS keep 1 proposal in {budget:g}. {words}")


def _draw_scaling(axes: Any, record: Record) -> None:
    """Draw both curves, arrows of the K-fold scaling between them, and the line of slope K c."""
    for name in ("model", "obrs"):
        axes.plot(record[name]["recall"], record[name]["precision"], color=LOOKS[name].colour, label=LOOKS[name].label)
    slope = record["model"]["slope"]
    reach = min(1.0, 1 / slope)
    axes.plot([0, reach], [0, slope * reach], color="0.35", ls=":", label=f"λ = K c = {slope:.2f}")
    recall, precision = (numbers(record["model"][key])[::-1] for key in ("recall", "precision"))
    for at in np.linspace(0.08, 0.97, 9):
        start = float(np.interp(at, recall, precision))
        arrow = {"arrowstyle": "->", "color": "0.45", "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (at, min(record.config["budget"] * start, 1.0)), (at, start), arrowprops=arrow)
