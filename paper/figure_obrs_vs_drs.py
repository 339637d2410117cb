"""OBRS against DRS at every budget, on small GANs of five targets in the plane, with learned and with exact ratios.

The paper names neither its data sets nor its models; it says that the precision of OBRS is systematically better. Here
a GAN is trained on each target for a fixed number of steps, and its critic further against the finished generator: the
learned ratio. The target's density is known, and that of a generator of two inputs can be counted: the exact ratio.
Both rules keep exactly 1 in K of the same proposals, and what they keep is measured with their probabilities as
weights, so no noise of a second draw is added.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import exp, sqrt
from textwrap import fill
from typing import Any

import numpy as np
import torch

from obrs import Budgeted
from obrs._text import lookup, text_table
from obrs.rules import DRS

from .gan25 import ExactRatio, train_gan
from .record import Checked, Numbers, Record, numbers
from .scores import grid_cells, histogram_divergence, mode_cells
from .style import LOOKS, TARGETS, canvas, caption, tidy
from .toys import TOYS, Density, Mixture

__all__ = ["PRESETS", "Config", "figure", "judge_of", "run", "table"]

MEASURES = {"precision": ("precision, %", 100, 1), "js": ("Jensen-Shannon, nats", 1, 3)}  # title, scale, digits
RULES: dict[str, Any] = {"drs": DRS, "obrs": Budgeted}
RATIOS = {"learned": "-", "exact": "--"}
_OUTSIDE = exp(-8.0)  # of the target's mass: what lies beyond four standard deviations of a Gaussian in the plane
_EDGE = 2.5  # half the side of the square that holds every target, standardised


@dataclass(frozen=True)
class Config(Checked):
    """What to train and to compute."""

    targets: tuple[str, ...] = ("grid25", "ring8", "two_moons", "swiss_roll", "checkerboard")  # names in `TOYS`
    budgets: tuple[float, ...] = (1.1, 1.25, 1.5, 2.0, 2.6, 3.5, 5.0, 7.0, 10.0, 14.0, 20.0)
    gans: int = 1  # GANs of each target, with seeds of their own
    real: int = 64_000  # points of the target; a tenth is held out
    steps: int = 1500  # of both networks
    critic_steps: int = 1000  # of the critic alone, after them
    exact_samples: int = 1_000_000  # samples in the histogram of the exact ratio
    proposals: int = 50_000  # proposals that the rules choose from
    seed: int = 0  # first of the seeds


PRESETS = {
    "smoke": Config(("grid25", "checkerboard"), (1.5, 2.6, 5.0), 1, 3000, 150, 100, 50_000, 5000),
    "default": Config(),
}


def run(config: Config, rows: Record) -> None:
    """Train the GANs, and compute both rules with both ratios at every budget."""
    jobs = {f"{name}, GAN {i + 1}": (name, config.seed + i) for name in config.targets for i in range(config.gans)}
    for row, (name, seed) in rows.todo(jobs):
        rows.add(row, {"target": name, "seed": seed} | _measure(config, name, seed, rows.progress))


def _measure(config: Config, name: str, seed: int, progress: bool | None) -> dict[str, Any]:
    target = lookup(TOYS, name, "target")()
    target = target.standardise() if isinstance(target, Mixture) else target
    points = torch.tensor(target.sample(config.real, seed=seed), dtype=torch.float32)
    gan = train_gan(points, config.steps, config.critic_steps, seed, progress=progress)
    exact = ExactRatio.fit(gan.generator, config.exact_samples, edge=_EDGE, target=target)
    with torch.no_grad():
        x = gan.propose(seed + 1)(np.arange(config.proposals))
        ratios = {"learned": gan.log_ratio(x).double().numpy(), "exact": exact(x).numpy()}
    judge = judge_of(target, x.double().numpy())
    row: dict[str, Any] = {"log_loss": gan.log_loss} | judge(np.ones(len(x))) | {ratio: {} for ratio in ratios}
    for (ratio, log_ratio), (rule, make) in product(ratios.items(), RULES.items()):
        least = len(x) / np.count_nonzero(log_ratio > -np.inf)  # below it, points off the target would be kept
        left = [judge(np.exp(make.fit(log_ratio, k)(log_ratio))) if k >= least else {} for k in config.budgets]
        row[ratio][rule] = {key: [one.get(key, np.nan) for one in left] for key in MEASURES}
    return row


def judge_of(target: Density, pool: Numbers) -> Callable[[Numbers], dict[str, float]]:
    """Return a function from the probabilities with which a pool is kept to its precision and JS divergence.

    Precision is the share in the smallest region with 99.97 % of the target's mass. Cells are rings and sectors of
    modes that are apart, and squares for other targets. They must be finer than the target: with one cell a mode, all
    that is seen is which mode a sample is at.
    """
    if isinstance(target, Mixture) and 1 < len(target.means) <= 25:
        cells = mode_cells(target.means, sigma=float(target.sigma[0]))
    else:
        side, square = int(sqrt(len(pool) / 10)), {"low": -_EDGE, "high": _EDGE}
        cells = grid_cells(target.log_prob, **square, cells=side, fine=-(-800 // side), min_mass=5 / len(pool))
    least = np.quantile(target.log_prob(target.sample(100_000, seed=1)), _OUTSIDE)
    inside = target.log_prob(pool) >= least - 1e-9

    def judge(weights: Numbers) -> dict[str, float]:
        precision = float(weights[inside].sum() / weights.sum())
        return {"precision": precision, "js": histogram_divergence(pool, cells, "js", weights)}

    return judge


def _mean(record: Record, target: str, key: str, *rule: str) -> Numbers:
    """Return the mean over the GANs of a target: of the model, or with a ratio and a rule at each budget.

    It is NaN where a budget is too small for one of them.
    """
    rows = [row for row in record.rows if row["target"] == target]
    return np.asarray(np.mean([numbers(row[rule[0]][rule[1]][key] if rule else row[key]) for row in rows], axis=0))


def _words(record: Record) -> str:
    """Say at how many budgets of all GANs OBRS is at least as good as DRS."""
    parts = []
    for ratio in RATIOS:
        ours, theirs = ([row[ratio][rule] for row in record.rows] for rule in ("obrs", "drs"))
        gain = {key: numbers([one[key] for one in ours]) - numbers([one[key] for one in theirs]) for key in MEASURES}
        sharper, closer = np.sum(gain["precision"] > -1e-9), np.sum(gain["js"] < 1e-9)
        tried = np.sum(np.isfinite(gain["js"]))
        parts.append(f"with {ratio} ratios in precision at {sharper} and in divergence at {closer} of {tried}")
    return f"OBRS is at least as good as DRS {', '.join(parts)} budgets of all GANs."


def table(record: Record) -> str:
    """Return precision and divergence at a few budgets, with learned and exact ratios."""
    budgets, lines = record.config["budgets"], []
    few = [at for at, k in enumerate(budgets) if k in (1.5, 2.6, 5.0, 10.0)]
    for name, at in product(record.config["targets"], few):
        cells = [TARGETS[name], f"{budgets[at]:g}"]
        for key, (_, scale, digits) in MEASURES.items():
            both = [_mean(record, name, key, ratio, rule)[at] for ratio in RATIOS for rule in ("obrs", "drs")]
            cells += [f"{scale * value:.{digits}f}" for value in (_mean(record, name, key), *both)]
        lines.append(cells)
    rules = ["learned\nOBRS", "\nDRS", "exact\nOBRS", "\nDRS"]
    head = ["", "K", "precision %:\nmodel", *rules, "JS:\nmodel", *rules]
    return f"{text_table(head, lines)}\n\n{fill(_words(record), 110)}"


def figure(record: Record) -> Any:
    """Draw precision and divergence against the budget, a column for each target."""
    names, budgets = record.config["targets"], record.config["budgets"]
    drawn = canvas(10, 5.6)
    panels = drawn.subplots(len(MEASURES), len(names), squeeze=False, sharex=True)
    for line, (key, (title, scale, _)) in zip(panels, MEASURES.items(), strict=True):
        for axes, name in zip(line, names, strict=True):
            axes.axhline(scale * _mean(record, name, key), color=LOOKS["model"].colour, ls=":", lw=1.2, label="model")
            for ratio, rule in product(RATIOS, RULES):
                looks = {
                    "color": LOOKS[rule].colour,
                    "ls": RATIOS[ratio],
                    "label": f"{LOOKS[rule].label}, {ratio} ratio",
                }
                axes.plot(budgets, scale * _mean(record, name, key, ratio, rule), lw=1.8, **looks)
            axes.set(xscale="log", xlim=(1, budgets[-1]))
            axes.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
            axes.minorticks_off()
            tidy(axes, None)
        line[0].set_ylabel(title)
    for name, axes in zip(names, panels[0], strict=True):
        axes.set_title(TARGETS[name], fontsize=10.5)
    for axes in panels[-1]:
        axes.set_xlabel("budget K")
    drawn.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    words = f"{record.config['gans']} small GAN of each target. Both rules keep 1 proposal in K. {_words(record)}"
    return caption(
        drawn, record.experiment, f"{words} Precision: share in the smallest region with 99.97 % of the target."
    )
