"""OBRS against DRS at every budget, on five targets in the plane, with models of small and of large M.

The paper names neither its data sets nor its models. Here both densities are known, so ratios are exact and nothing is
drawn: rates, divergences and precision are sums over a fine grid. The models are mixtures around the target. One has
modes that are a little too wide and 25 % of its mass in the background, which makes M = max p/q small. The other has
even wider modes of uneven weight and 40 % in the background, which makes M large.
"""

from dataclasses import dataclass
from functools import partial
from math import exp
from typing import Any

import numpy as np

from obrs import Budgeted, Profile
from obrs._checks import check_count
from obrs._text import lookup
from obrs.errors import InputError
from obrs.types import Rule

from .line import drs_rule
from .record import Record, numbers
from .style import TARGETS, canvas, caption, look, tidy
from .toys import TOYS, Checkerboard, Density, Mixture

__all__ = ["MODELS", "PAPER", "PRESETS", "Config", "Plane", "figure", "run", "table"]

PAPER = {"figure": "in Appendix D.2, the third", "claim": "the precision of OBRS is systematically better than of DRS"}
MEASURES = {"precision": "precision, %", "kl": "KL, nats"}
RULES = ("drs", "obrs")
_INSIDE = 1 - exp(-8.0)  # of the target's mass: what lies within four standard deviations of a Gaussian in the plane

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Config:
    """What to compute.

    Args:
        targets: Names in `TOYS`.
        beyond: The largest budget, as a multiple of M; the smallest budget is 1.
        budgets: How many, evenly on a logarithmic scale.
        points: Points of the grid along each axis.
    """

    targets: tuple[str, ...] = ("grid25", "ring8", "two_moons", "swiss_roll", "checkerboard")
    beyond: float = 1.5
    budgets: int = 21
    points: int = 400

    def __post_init__(self) -> None:
        for name in self.targets:
            lookup(TOYS, name, "target")
        check_count(self.budgets, "budgets")
        check_count(self.points, "points")
        if not self.beyond >= 1:
            raise InputError(f"beyond must be at least 1, got {self.beyond}")


PRESETS = {
    "smoke": Config(("grid25", "checkerboard"), budgets=5, points=250),
    "default": Config(),
}


def _skeleton(target: Density) -> Mixture:
    """Return the mixture that models of a target are built on: itself, or Gaussians in the squares of a board."""
    if isinstance(target, Mixture):
        return target
    assert isinstance(target, Checkerboard)
    line = np.arange(target.cells) - target.cells / 2 + 0.5
    centres = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    return Mixture(centres[target.log_prob(centres) > -np.inf], 0.3)


def _model(target: Density, *, wider: float, least: float, background: float) -> Mixture:
    """Return a model: the target's modes wider, with weights from 1 to `least`, and a share in one wide Gaussian."""
    base = _skeleton(target)
    uneven = base.weights * np.geomspace(1.0, least, len(base.means))
    centre = base.weights @ base.means
    spread = float(np.sqrt(np.mean(base.weights @ (base.means - centre) ** 2)))
    return Mixture(
        np.vstack([base.means, centre]),
        np.append(wider * base.sigma, spread),
        np.append((1 - background) * uneven / uneven.sum(), background),
    )


MODELS = {
    "small M": partial(_model, wider=1.4, least=1.0, background=0.25),
    "large M": partial(_model, wider=2.0, least=0.1, background=0.4),
}
"""Models of a target by name."""


@dataclass(frozen=True, eq=False)
class Plane:
    """A target and a model as masses on a square grid; what of the model lies outside of it has r = 0.

    Args:
        p: Mass of the target at each point, of sum 1.
        q: Mass of the model at the same points; the rest to 1 is outside.
        inside: Whether a point belongs to the smallest region with nearly all of the target's mass.

    Example:
        >>> plane = Plane.of(Mixture([[0.0, 0.0]], 1.0), Mixture([[0.0, 0.0]], 1.5), 200)
        >>> round(plane.most, 3), round(plane.left(plane.obrs(1.5))["rate"], 4)
        (2.248, 0.6667)
    """

    p: Numbers
    q: Numbers
    inside: Numbers

    @classmethod
    def of(cls, target: Density, model: Mixture, points: int) -> "Plane":
        """Evaluate both densities in a square around the target."""
        base = _skeleton(target)
        reach = 0.0 if isinstance(target, Checkerboard) else 7 * float(base.sigma.max())
        edge = target.cells / 2 if isinstance(target, Checkerboard) else float(np.abs(base.means).max()) + reach
        step = 2 * edge / points
        line = step * (np.arange(points) + 0.5) - edge
        where = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
        p = np.exp(target.log_prob(where)) * step**2
        if abs(p.sum() - 1) > 1e-3:
            raise InputError(f"a grid of {points} points a side is too coarse for this target; raise points")
        q = np.exp(model.log_prob(where)) * step**2
        p, q = p[q > 1e-30], q[q > 1e-30]  # the models are wider than their targets: nothing is lost
        order = np.argsort(-p)
        last = order[min(np.searchsorted(np.cumsum(p[order]), _INSIDE * p.sum()), len(p) - 1)]
        return cls(p / p.sum(), q, p >= max(p[last] * (1 - 1e-9), 1e-300))

    @property
    def log_ratio(self) -> Numbers:
        """Log of target over model at each point, and last of the outside."""
        with np.errstate(divide="ignore"):
            return np.append(np.log(self.p) - np.log(self.q), -np.inf)

    @property
    def masses(self) -> Numbers:
        """Mass of the model at each point, and last of the outside."""
        return np.append(self.q, max(1 - float(self.q.sum()), 0.0))

    @property
    def most(self) -> float:
        """M, the largest ratio."""
        return float(np.exp(self.log_ratio.max()))

    @property
    def least(self) -> float:
        """The smallest possible budget: below it, proposals that the target never makes would have to be kept."""
        return (1 + 1e-6) / float(self.masses[self.log_ratio > -np.inf].sum())

    def obrs(self, budget: float) -> Rule:
        """Return the rule of OBRS at a budget."""
        return Budgeted.fit(self.log_ratio, budget, weights=self.masses)

    def drs(self, budget: float) -> Rule:
        """Return the rule of DRS whose shift keeps 1 in `budget`; beyond M, exact rejection."""
        return drs_rule(self.log_ratio, self.masses, budget)

    def left(self, rule: Rule) -> dict[str, float]:
        """Return the rate of a rule, and precision and divergences of what it keeps."""
        accept = np.exp(rule(self.log_ratio))
        kept = self.masses * accept
        rate, seen = float(kept.sum()), kept > 0
        profile = Profile(self.log_ratio[seen] - np.log(accept[seen]), kept[seen] / rate)
        found = {name: float(profile.divergence(name)) for name in ("kl", "js")}
        return {"rate": rate, "precision": float(kept[:-1][self.inside].sum()) / rate, **found}


def run(config: Config, rows: Record) -> None:
    """Compute both rules at every budget, for each target and model."""
    pairs = {f"{target}, {model}": (target, model) for target in config.targets for model in MODELS}
    for row, (name, kind) in rows.todo(pairs):
        target = TOYS[name]()
        plane = Plane.of(target, MODELS[kind](target), config.points)
        budgets = np.geomspace(1.0, config.beyond * plane.most, config.budgets)
        found: dict[str, Any] = {"target": name, "model": kind, "M": plane.most, "budgets": budgets}
        for rule, fit in (("obrs", plane.obrs), ("drs", plane.drs)):
            left = [plane.left(fit(float(k))) for k in budgets[budgets >= plane.least]]
            for key in left[0]:
                values = np.full(len(budgets), np.nan)
                values[budgets >= plane.least] = [one[key] for one in left]
                found[f"{rule} {key}"] = values
        rows.add(row, found)


def table(record: Record) -> str:
    """Return precision and KL at a few budgets."""
    lines = [f"{'':28}{'M':>8}{'K':>7}{'precision: OBRS':>18}{'DRS':>9}{'KL: OBRS':>12}{'DRS':>9}"]
    for row in record.rows:
        budgets = numbers(row["budgets"])
        for k in (1.5, 2.6, 5.0):
            if k > row["M"]:
                continue
            at = int(np.abs(np.log(budgets / k)).argmin())
            cells = [row[f"{rule} {key}"][at] for key in ("precision", "kl") for rule in ("obrs", "drs")]
            name = f"{TARGETS[row['target']]}, {row['model']}"
            if not all(cell is not None for cell in cells):  # below the smallest budget
                continue
            lines.append(
                f"{name:28}{row['M']:8.2f}{budgets[at]:7.2f}{100 * cells[0]:16.1f} %{100 * cells[1]:7.1f} %"
                f"{cells[2]:12.3f}{cells[3]:9.3f}"
            )
    return "\n".join(lines)


def figure(record: Record) -> Any:
    """Draw precision and KL against the budget, a column for each target."""
    names = record.config["targets"]
    shown = [(kind, key) for kind in MODELS for key in MEASURES]
    drawn = canvas(9, 8.4)
    panels = drawn.subplots(len(shown), len(names), squeeze=False)
    for (kind, key), line in zip(shown, panels, strict=True):
        for name, axes in zip(names, line, strict=True):
            row = record[f"{name}, {kind}"]
            for rule in RULES:
                style, scale = look(rule), 100 if key == "precision" else 1
                values = scale * numbers(row[f"{rule} {key}"])
                axes.plot(row["budgets"], values, color=style.colour, ls=style.line, label=style.label, lw=1.8)
            if key == "precision":
                axes.set_ylim(min(axes.get_ylim()[0], 95), 100.8)
            axes.axvline(row["M"], color="0.6", ls=":", lw=1.2, label="M")
            axes.set(xscale="log", xlim=(1, row["budgets"][-1]))
            ticks = [k for k in ((1, 3, 10, 30) if row["M"] > 6 else (1, 2, 4, 8)) if k <= row["budgets"][-1]]
            axes.set_xticks(ticks, [f"{k}" for k in ticks])
            axes.minorticks_off()
            axes.tick_params(labelsize=8.5)
            tidy(axes, None)
        line[0].set_ylabel(f"{kind}\n{MEASURES[key]}", fontsize=9.5)
    for name, axes in zip(names, panels[0], strict=True):
        axes.set_title(TARGETS[name], fontsize=10.5)
    for axes in panels[-1]:
        axes.set_xlabel("budget K", fontsize=9.5)
    handles, labels = panels[0][0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=3)
    caption(
        drawn,
        record.experiment,
        "Exact ratios and exact sums. Both rules keep 1 proposal in K, up to M, from where on both are exact. "
        "Precision: share of the kept in the smallest region with 99.97 % of the target.",
    )
    return drawn
