"""Figure 2: target, model and what three rules keep of it, in one dimension with known densities.

The paper gives no constants. Here the target has two narrow bumps and the model two wide ones, so that r = p/q is
bounded, as in `examples/minimal.py`. Densities, acceptance functions and curves are computed on a grid; over them lies
the histogram of samples that `obrs.sample` drew with the exact ratio.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from obrs import Budgeted, sample
from obrs._text import text_table
from obrs.errors import InputError
from obrs.rules import Unbudgeted
from obrs.types import Rule

from .line import Numbers, Pair, drs_rule, grid, mixture, proposal, thin
from .record import Checked, Record, numbers
from .style import canvas, caption, draw_densities, look, tidy

__all__ = ["MODEL", "PAPER", "PRESETS", "TARGET", "Config", "figure", "run", "table"]

TARGET = ((0.55, -1.4, 0.40), (0.45, 1.3, 0.50))  # weight, mean, standard deviation
MODEL = ((0.40, -0.9, 1.00), (0.60, 1.6, 1.10))
PAPER = {"figure": "2", "rate": 0.5, "curve": "precision at every recall is K times as high, and at most 1"}
RULES = ("exact", "drs", "obrs")
DIVERGENCES = ("kl", "gan", "tv")


@dataclass(frozen=True)
class Config(Checked):
    """What to compute.

    Args:
        budget: Proposals per kept sample, of DRS and OBRS; below M = 3.87, where rejection is exact.
        samples: Samples in the histogram.
        points: Points of the grid.
        seed: Seed of the samples.
    """

    budget: float = 2.0
    samples: int = 100_000
    points: int = 8001
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget > 3.8:
            raise InputError(f"at a budget of {self.budget:g} rejection is exact here; choose one below 3.8")


PRESETS = {"smoke": Config(samples=5000, points=2001), "default": Config()}


def run(config: Config, rows: Record) -> None:
    """Compute the pair, the three rules, and draw the samples."""
    target, model = mixture(TARGET), mixture(MODEL)
    pair = Pair.of(target, model, grid(-8.0, 8.0, config.points))
    if "model" not in rows:
        rows.add("model", _numbers(pair) | _shown({"x": pair.x, "p": pair.p, "q": pair.q}))
    for name, rule in rows.todo(_rules(pair, config.budget)):
        accept, kept = np.exp(rule(pair.log_ratio)), pair.kept(rule)
        row = {"rate": float(np.sum(pair.q * accept) * pair.step)} | _numbers(pair.after(kept))
        rows.add(name, row | _shown({"acceptance": accept, "density": kept}))
    if "samples" not in rows:
        rows.add("samples", _samples(config, pair, rows))


def _rules(pair: Pair, budget: float) -> dict[str, Rule]:
    mass = pair.q * pair.step
    return {
        "exact": Unbudgeted.fit(pair.log_ratio),
        "drs": drs_rule(pair.log_ratio, mass, budget),
        "obrs": Budgeted.fit(pair.log_ratio, budget, weights=mass),
    }


def _numbers(pair: Pair) -> dict[str, Any]:
    """Return the divergences of the target to a model, and its precision-recall curve."""
    profile = pair.profile()
    curve = profile.curve(points=257)
    return {name: profile.divergence(name) for name in DIVERGENCES} | {
        "recall": curve.recall,
        "precision": curve.precision,
    }


def _shown(values: dict[str, Numbers]) -> dict[str, Numbers]:
    return {name: thin(value, 801) for name, value in values.items()}


def _samples(config: Config, pair: Pair, rows: Record) -> dict[str, Any]:
    """Draw with the exact ratio; compare the samples with the density they should have."""
    target, model = mixture(TARGET), mixture(MODEL)
    kept = sample(
        proposal(model, config.seed),
        lambda x: target.log_prob(x[:, None]) - model.log_prob(x[:, None]),
        config.samples,
        budget=config.budget,
        seed=config.seed,
        progress=rows.progress,
    )
    rule = Budgeted.fit(pair.log_ratio, config.budget, weights=pair.q * pair.step)
    below = np.cumsum(pair.kept(rule)) * pair.step
    x = np.sort(np.asarray(kept.x))
    expected = np.interp(x, pair.x + pair.step / 2, below)
    ranks = np.arange(len(x) + 1) / len(x)
    distance = max(np.max(ranks[1:] - expected), np.max(expected - ranks[:-1]))
    height, edges = np.histogram(x, bins=80, range=(-4.0, 5.0))
    return {
        "n": len(x),
        "proposed": kept.proposed,
        "rate": kept.rate,
        "kolmogorov_smirnov": float(distance),
        "edges": edges,
        "height": height / (len(x) * np.diff(edges)),
        "log_c": rule.log_c,
        "slope": config.budget * float(np.exp(rule.log_c)) / float(np.sum(pair.q * np.exp(pair.log_ratio)) * pair.step),
    }


def table(record: Record) -> str:
    """Return the rate and the divergences left of each rule."""
    found = ((look(name).label, record[name]) for name in ("model", *RULES))
    rows = [[label, f"{row.get('rate', 1.0):.3f}", *(f"{row[key]:.4f}" for key in DIVERGENCES)] for label, row in found]
    drawn = record["samples"]
    words = f"{drawn['n']} samples of OBRS cost {drawn['proposed']} proposals"
    return f"{text_table(['', 'rate', 'KL', 'GAN', 'TV'], rows)}\n{words}"


def figure(record: Record) -> Any:
    """Draw densities, acceptance functions, curves, and how OBRS moves the curve."""
    budget, bars, obrs = record.config["budget"], record["samples"], look("obrs")
    drawn = canvas(9, 7.6)
    densities, acceptance, curves, scaling = drawn.subplots(2, 2).flat
    kept = {name: record[name]["density"] for name in ("drs", "obrs")}
    draw_densities(densities, record["model"] | kept, {name: f"kept by {look(name).label}" for name in kept})
    densities.stairs(bars["height"], bars["edges"], fill=True, color=obrs.colour, alpha=0.3, label="OBRS, samples")
    for name in ("model", *RULES):
        row, style = record[name], look(name)
        line = {"color": style.colour, "ls": style.line}
        curves.plot(row["recall"], row["precision"], label=style.label, **line)
        if name in RULES:
            label = f"{style.label}, keeps {100 * row['rate']:.0f} %"
            acceptance.plot(numbers(record["model"]["x"]), row["acceptance"], label=label, **line)
    _scaling(scaling, record)
    densities.set(title="Target, model, and what is kept", xlabel="x", ylabel="density", xlim=(-4, 5), ylim=(0, 0.78))
    densities.legend(loc="upper right", ncols=2)
    acceptance.set(title="Acceptance functions", xlabel="x", ylabel="probability to be kept", xlim=(-4, 5))
    acceptance.set(ylim=(0, 1.42), yticks=np.linspace(0, 1, 6))
    tidy(acceptance, "upper right")
    curves.set(title="Precision and recall")
    scaling.set(title=f"OBRS: {budget:g} times the precision, capped at 1")
    for axes in (curves, scaling):
        axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1.03), ylim=(0, 1.05))
    tidy(curves, "lower left")
    tidy(scaling, None)
    scaling.legend(loc=(0.42, 0.02))
    caption(
        drawn,
        record.experiment,
        f"DRS and OBRS keep 1 proposal in {budget:g}. Lines are exact; bars are {bars['n']:,} samples of "
        f"OBRS. KL to the target: {record['model']['kl']:.3f} before, {record['drs']['kl']:.3f} after DRS, "
        f"{record['obrs']['kl']:.3f} after OBRS.",
    )
    return drawn


def _scaling(axes: Any, record: Record) -> None:
    """Draw both curves, arrows of the K-fold scaling between them, and the line of slope K c."""
    model, obrs = record["model"], record["obrs"]
    recall, precision = numbers(model["recall"]), numbers(model["precision"])
    axes.plot(recall, precision, color=look("model").colour, label=look("model").label)
    axes.plot(obrs["recall"], obrs["precision"], color=look("obrs").colour, label=look("obrs").label)
    slope = record["samples"]["slope"]
    reach = min(1.0, 1 / slope)
    axes.plot([0, reach], [0, slope * reach], color="0.35", ls=":", label=f"λ = K c = {slope:.2f}")
    for at in np.linspace(0.08, 0.97, 9):
        start = float(np.interp(at, recall[::-1], precision[::-1]))
        axes.annotate(
            "",
            (at, min(record.config["budget"] * start, 1.0)),
            (at, start),
            arrowprops={"arrowstyle": "->", "color": "0.45", "shrinkA": 0, "shrinkB": 0},
        )
