"""When can training for a budget pay at all? Best models for K beside the best model for 1, where everything is known.

Targets are four bumps on a line and nine in the plane. Models are mixtures of fewer Gaussians, the more the greater
their capacity. The divergence that is left after rejection at K is computed on a grid and minimised over all
parameters by a quasi-Newton method from several starts. There is no critic, no sample and no training: what is left is
the most that any training with any loss could reach.

    gain(K) = D(P || Q~_K of the best model for 1) - D(P || Q~_K of the best model for K)

The gradient is that of `exact`: a share of the model at x changes the divergence by -f*(f'(u(x))) / Z. Tests compare it
with finite differences. The divergence is the GAN's, at most 1.386.

In a third case half of the model is junk that no parameter can move: it lies beyond all bumps. A budget first has to
pay for its removal.
"""

from dataclasses import dataclass
from math import log, pi
from typing import Any

import numpy as np

from obrs._text import lookup
from obrs.budget import solve_cut
from obrs.errors import InputError

from .record import Checked, Record, numbers
from .style import PALETTE, canvas, caption, tidy

__all__ = ["CASES", "PAPER", "PRESETS", "Case", "Config", "figure", "objective", "run", "table"]

PAPER = {"section": "4, which trains for K without asking when that can pay"}
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A target, and the models for it.

    Args:
        title: What it is called.
        weights, means, sd: Of the Gaussians that the target is a mixture of.
        reach: The grid goes as far, both ways.
        capacities: Gaussians in the models.
        junk: Share of the model that lies on the outer fifth of the grid and cannot be moved.
    """

    title: str
    weights: tuple[float, ...]
    means: tuple[tuple[float, ...], ...]
    sd: float
    reach: float
    capacities: tuple[int, ...]
    junk: float = 0.0


_LINE = ((0.1, 0.2, 0.3, 0.4), ((-4.5,), (-1.5,), (1.5,), (4.5,)), 0.4, 8.0, (1, 2, 3))
_NINE = tuple((float(x), float(y)) for x in (-2, 0, 2) for y in (-2, 0, 2))
_SHARES = tuple((1 + at) / 45 for at in range(9))
CASES = {
    "line": Case("four bumps on a line", *_LINE),
    "plane": Case("nine bumps in the plane", _SHARES, _NINE, 0.35, 4.5, (1, 3, 6)),
    "junk": Case("the line, half junk", *_LINE, junk=0.5),
}
"""Targets by name; capacities are Gaussians in the model."""


@dataclass(frozen=True)
class Config(Checked):
    """What to compute.

    Args:
        cases: Keys of `CASES`.
        budgets: Beside 1.
        points: Points of the grid on the line; in the plane a tenth of them along each axis.
        starts: Starts of each minimisation, beside the best model for 1 and that for the budget before. Half of them
            sit on some bumps, the first on the heaviest, the others cover many.
        steps: Steps of each, at most.
        seed: Of the starts.
    """

    cases: tuple[str, ...] = tuple(CASES)
    budgets: tuple[float, ...] = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
    points: int = 801
    starts: int = 10
    steps: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.cases:
            lookup(CASES, name, "case")
        if min(self.budgets) <= 1:
            raise InputError(f"budgets must be above 1, got {self.budgets}")
        if self.points < 100:
            raise InputError(f"points must be at least 100, got {self.points}")


PRESETS = {
    "smoke": Config(cases=("line", "plane"), budgets=(2.0,), points=201, starts=1, steps=15),
    "default": Config(),
}


def run(config: Config, rows: Record) -> None:
    """Minimise for every budget, a row for each case and capacity."""
    jobs = {f"{name}, {m} Gaussians": (name, m) for name in config.cases for m in CASES[name].capacities}
    for row, (name, components) in rows.todo(jobs):
        rows.add(row, {"case": name, "capacity": components} | _curve(config, CASES[name], components))


def _curve(config: Config, case: Case, components: int) -> dict[str, Any]:
    """Return what is left for every budget, of the best model for 1 and of the best model for the budget."""
    x, log_p = target(case, config.points)
    random = np.random.default_rng([config.seed, components, x.shape[1]])
    starts = [_start(case, components, random, at) for at in range(config.starts)]
    best_for_1, left = _best(starts, case, x, log_p, 1.0, config.steps)
    found: dict[str, Any] = {"for_1": [left], "for_k": [left], "models": [best_for_1]}
    latest = best_for_1
    for budget in config.budgets:
        found["for_1"].append(objective(best_for_1, case, x, log_p, budget)[0])
        latest, left = _best([best_for_1, latest, *starts], case, x, log_p, budget, config.steps)
        found["for_k"].append(left)
        found["models"].append(latest)
    found |= {key: np.maximum(found[key], 0.0) for key in ("for_1", "for_k")}  # rounding below 0
    gain = found["for_1"] - found["for_k"]
    return {key: np.array(value) for key, value in found.items()} | {"budgets": [1.0, *config.budgets], "gain": gain}


def target(case: Case, points: int) -> tuple[Floats, Floats]:
    """Return the points of the grid, shape `(n, d)`, and the logarithm of the target's share at each.

    Example:
        >>> x, log_p = target(CASES["plane"], 201)
        >>> x.shape, round(float(np.exp(log_p).sum()), 12)
        ((441, 2), 1.0)
    """
    dim = len(case.means[0])
    along = np.linspace(-case.reach, case.reach, points if dim == 1 else points // 10 + 1)
    x = np.stack(np.meshgrid(*[along] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    squares = ((x[:, None, :] - np.array(case.means)) ** 2).sum(-1) / case.sd**2
    log_p = np.logaddexp.reduce(np.log(case.weights) - squares / 2, axis=1)
    return x, log_p - np.logaddexp.reduce(log_p)


def _start(case: Case, components: int, random: Any, number: int = 1) -> Floats:
    """Return parameters: of each Gaussian its log-weight, its mean, and the triangle of its inverse spread."""
    dim, narrow = len(case.means[0]), number % 2 == 0
    order = np.argsort(case.weights)[::-1] if number == 0 else random.permutation(len(case.means))
    rows = []
    for at in order[:components]:
        mean = np.array(case.means[at]) + random.normal(size=dim) * case.sd * (0.1 if narrow else 1.0)
        wide = case.reach / 3 / components ** (1 / dim) * np.exp(0.3 * random.normal())
        scale, weight = (case.sd, log(case.weights[at])) if narrow else (wide, 0.0)
        rows.append([weight, *mean, *[-log(scale)] * dim, *[0.0] * (dim * (dim - 1) // 2)])
    return np.array(rows).ravel()


def objective(parameters: Floats, case: Case, x: Floats, log_p: Floats, budget: float) -> tuple[float, Floats]:
    """Return the divergence that is left after rejection at a budget, and its gradient in the parameters.

    Example:
        >>> case = CASES["line"]
        >>> x, log_p = target(case, 201)
        >>> narrow = np.array([0.0, 4.5, -log(0.4)])  # one bump of four
        >>> [round(objective(narrow, case, x, log_p, budget)[0], 2) for budget in (1, 2)]
        [0.55, 0.55]
    """
    import torch

    theta = torch.tensor(parameters, requires_grad=True)
    log_q = _log_share(theta, case, torch.as_tensor(x))
    q = log_q.detach().exp()
    log_r = torch.as_tensor(log_p) - log_q.detach()
    cut = solve_cut(log_r, budget, weights=q, check=False)
    log_u = cut.log_u(log_r)
    kept = q * (cut.log_a(log_r) - cut.log_rate).exp()
    terms = torch.nn.functional.softplus(log_u)  # f*(f'(u)) is this less 2 log 2
    u = log_u.exp()
    f = torch.where(u > 0, u * (log_u - terms) - terms, torch.zeros(())) + 2 * log(2)
    (-(terms * log_q.exp()).sum() * (-cut.log_rate).exp()).backward()
    return float((kept * f).sum()), theta.grad.numpy()


def _log_share(theta: Any, case: Case, x: Any) -> Any:
    """Return the logarithm of the model's share at each point of the grid."""
    import torch

    dim = x.shape[1]
    rows = theta.reshape(-1, 1 + dim + dim * (dim + 1) // 2)
    log_weight, mean, log_inverse = rows[:, 0].log_softmax(0), rows[:, 1 : 1 + dim], rows[:, 1 + dim : 1 + 2 * dim]
    scaled = (x[:, None, :] - mean) * log_inverse.exp()
    if dim == 2:
        scaled = torch.stack([scaled[..., 0], scaled[..., 1] + rows[:, 5] * scaled[..., 0]], dim=-1)
    log_q = torch.logsumexp(log_weight + log_inverse.sum(1) - scaled.square().sum(-1) / 2 - dim / 2 * log(2 * pi), 1)
    log_q = log_q.log_softmax(0)
    if not case.junk:
        return log_q
    outside = x.abs().amax(1) > 0.8 * case.reach
    log_junk = torch.where(outside, log_q.new_tensor(log(case.junk / int(outside.sum()))), -torch.inf)
    return torch.logaddexp(log_q + log(1 - case.junk), log_junk)


def _best(
    starts: list[Floats], case: Case, x: Floats, log_p: Floats, budget: float, steps: int
) -> tuple[Floats, float]:
    """Return the parameters with the least divergence that is found from these starts, and that divergence."""
    from scipy.optimize import minimize

    found, given = [], (case, x, log_p, budget)
    dim = x.shape[1]
    sds = (-log(2 * case.reach), log(5 / case.sd))  # no narrower than the grid can see, no wider than it is
    bounds = [(-15.0, 15.0), *[(-case.reach, case.reach)] * dim, *[sds] * dim, *[(-5.0, 5.0)] * (dim - 1)]
    bounds *= len(starts[0]) // len(bounds)
    for start in starts:
        found.append((objective(start, *given)[0], start))
        end = minimize(
            objective, start, args=given, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps}
        )
        found.append((float(end.fun), end.x))
    left, best = min(found, key=lambda pair: pair[0])
    return best, left


def table(record: Record) -> str:
    """Return what is left and the gain, for every case, capacity and budget."""
    lines = []
    for name in record.config["cases"]:
        rows = [row for row in record.rows if row["case"] == name]
        lines.append(f"{CASES[name].title}: left after rejection, best model for 1 / for K, and the gain")
        lines.append(f"  {'K':>14}" + "".join(f"{budget:>10g}" for budget in rows[0]["budgets"]))
        for row in rows:
            for key, label in (("for_1", f"{row['capacity']} Gaussians, 1"), ("for_k", "K"), ("gain", "gain")):
                lines.append(f"  {label:>14}" + "".join(f"{value:>10.3f}" for value in row[key]))
    return "\n".join(lines)


_COLOURS = (PALETTE["sky"], PALETTE["blue"], PALETTE["night"])


def figure(record: Record) -> Any:
    """Draw the gain against the budget for every capacity, and below it what is left."""
    cases = record.config["cases"]
    drawn = canvas(9, 5.6)
    axes = drawn.subplots(2, len(cases), squeeze=False, sharex=True, sharey="row")
    for (top, bottom), name in zip(axes.T, cases, strict=True):
        for row, colour in zip((r for r in record.rows if r["case"] == name), _COLOURS, strict=True):
            label = f"{row['capacity']} Gaussian{'s' if row['capacity'] > 1 else ''}"
            top.plot(row["budgets"], numbers(row["gain"]), "o-", color=colour, ms=4, label=label)
            bottom.plot(row["budgets"], numbers(row["for_1"]), "--", color=colour)
            bottom.plot(row["budgets"], numbers(row["for_k"]), "-", color=colour)
        top.set_title(CASES[name].title, fontsize=10)
        bottom.set_xlabel("budget K")
        if CASES[name].junk:
            for side in (top, bottom):
                side.axvline(1 / (1 - CASES[name].junk), color="0.6", lw=1, ls=":")
        tidy(top)
        tidy(bottom, None)
    axes[1, 0].set_ylim(0, 1.05 * max(row["for_1"][0] for row in record.rows))
    axes[0, 0].set_ylabel("gain of the best model for K")
    axes[1, 0].set_ylabel("left: -- best for 1, – best for K")
    caption(
        drawn,
        record.experiment,
        "GAN divergence after rejection, minimised without critics. Dotted: the budget that only removes the junk.",
    )
    return drawn
