"""Rejection and normalizing flows, the paper's outlook: inside the base, or after the flow; KL against compute.

The targets lie in the plane, and their densities are known, as is that of a flow. So likelihoods are exact, and so is
the ratio p/q that rejection after the flow needs. Rejection in the base (LARS, budgeted LARS) is trained with the
flow, sees samples of the target only, and costs a small network for each candidate but one pass of the flow for each
sample. Rejection after the flow is not trained, must know the target's density up to a factor, and costs a pass for
each proposal.
"""

from dataclasses import dataclass
from functools import cache, partial
from math import log, pi, sqrt
from time import process_time
from typing import Any

import numpy as np

from obrs import Budgeted, normals, sample
from obrs._checks import check_budget, check_count
from obrs._text import lookup

from .record import Record
from .style import TARGETS, canvas, caption, look, tidy
from .toys import TOYS

__all__ = ["PAPER", "PRESETS", "Config", "figure", "run", "table"]

PAPER = {"section": "conclusion", "outlook": "rejection with a budget inside normalizing flows, after Stimper et al."}
METHODS = {"model": "flow", "lars": "LARS", "budgeted_lars": "budgeted LARS", "obrs": "flow, then OBRS"}
_PURPOSE = 1_000_003  # seeds of what is judged, away from those of training


@dataclass(frozen=True)
class Config:
    """What to train.

    Args:
        targets: Names in `TOYS`.
        budgets: Budgets of budgeted LARS, each trained.
        budgets_after: Budgets of OBRS after the flow.
        truncations: T of LARS, each trained.
        real: Points of the target.
        steps, batch, lr: Steps of each training, samples in each, and learning rate.
        judged: Points of the target on which KL is measured, and samples that a constant is fitted on.
        timed: Samples whose drawing is timed.
        seed: Decides all randomness.
    """

    targets: tuple[str, ...] = ("two_moons", "swiss_roll", "checkerboard")
    budgets: tuple[float, ...] = (2.0, 4.0)
    budgets_after: tuple[float, ...] = (1.5, 2.0, 4.0, 8.0)
    truncations: tuple[int, ...] = (100,)
    real: int = 20_000
    steps: int = 500
    batch: int = 256
    lr: float = 3e-3
    judged: int = 50_000
    timed: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.targets:
            lookup(TOYS, name, "target")
        for budget in (*self.budgets, *self.budgets_after):
            check_budget(budget)
        for name in ("real", "steps", "batch", "judged", "timed"):
            check_count(getattr(self, name), name)


PRESETS = {
    "smoke": Config(("two_moons",), (2.0,), (2.0,), real=2000, steps=40, batch=128, judged=2000, timed=1000),
    "default": Config(),
}


def run(config: Config, rows: Record) -> None:
    """Train every flow on every target; the flow that OBRS follows is the plain one."""
    from .gan25 import one_thread

    wanted: dict[str, tuple[str, str, float]] = {}
    for target in config.targets:
        wanted[f"{target}, model"] = (target, "model", 1.0)
        wanted |= {f"{target}, lars, T = {t}": (target, "lars", float(t)) for t in config.truncations}
        wanted |= {f"{target}, budgeted_lars, K = {k:g}": (target, "budgeted_lars", k) for k in config.budgets}
        wanted |= {f"{target}, obrs, K = {k:g}": (target, "obrs", k) for k in config.budgets_after}

    @cache
    def plain(target: str) -> Any:
        return _trained(config, target, "model", 1.0)

    for row, (target, method, budget) in rows.todo(wanted):
        with one_thread():
            if method == "obrs":
                found = _after(config, target, plain(target), budget)
            else:
                flow = plain(target) if method == "model" else _trained(config, target, method, budget)
                found = _judged(config, target, flow, method)
        rows.add(row, {"target": target, "method": method, "budget": budget} | found)


def _trained(config: Config, target: str, method: str, budget: float) -> Any:
    """Return a flow with the base of the method, trained by maximum likelihood; one architecture for all."""
    import zuko

    from obrs.fitting.seeds import own_noise
    from obrs.rivals.lars import BudgetedBase, ResampledBase, fit_flow, with_base

    with own_noise() as reseed:
        reseed(config.seed)
        flow = zuko.flows.NICE(2, transforms=4, hidden_features=(32, 32))
        if method == "lars":
            flow = with_base(flow, ResampledBase(2, int(budget), width=64, seed=config.seed))
        elif method == "budgeted_lars":
            flow = with_base(flow, BudgetedBase(2, budget, width=64, draws=1024, seed=config.seed))
    real = TOYS[target]().sample(config.real, seed=config.seed)
    fit_flow(flow, real, steps=config.steps, lr=config.lr, batch=config.batch, seed=config.seed, progress=False)
    return flow.requires_grad_(False)


def _pass(flow: Any, z: Any) -> Any:
    """Return what a flow makes of points of its base, and the log-determinant."""
    return flow.transform().inv.call_and_ladj(z)


def _judged(config: Config, target: str, flow: Any, method: str) -> dict[str, Any]:
    """Return KL(target ‖ flow) with its standard error, candidates per sample, and time per sample."""
    import torch

    truth = TOYS[target]()
    x = truth.sample(config.judged, seed=config.seed + _PURPOSE)
    with torch.no_grad():
        log_q = np.asarray(flow().log_prob(torch.tensor(x, dtype=torch.float32)), dtype=np.float64)
    gap = np.asarray(truth.log_prob(x)) - log_q
    bare = _seconds(partial(_draw_plain, flow, config.timed))
    if method == "model":
        return _row(gap, 1.0, 1.0, 1.0)
    candidates = flow.base.draw(config.timed, seed=config.seed).proposed / config.timed
    seconds = _seconds(lambda: _pass(flow, flow.base.draw(config.timed, seed=config.seed).z))
    return _row(gap, candidates, 1.0, seconds / bare)


def _after(config: Config, target: str, flow: Any, budget: float) -> dict[str, Any]:
    """Return what OBRS leaves of KL(target ‖ flow), from E_P[log u] with u = p / (kept density) = max(r, 1/c) Z."""
    import torch

    truth = TOYS[target]()

    def propose(ids: Any) -> tuple[Any, Any]:
        z = normals(ids, 2, seed=config.seed + _PURPOSE, like=torch.empty(0))
        x, slope = _pass(flow, z)
        return x, -0.5 * (z**2).sum(dim=1) - log(2 * pi) - slope

    def log_ratio(x: Any) -> Any:
        points, log_q = x
        return truth.log_prob(points.double()) - log_q

    with torch.no_grad():
        fitted_on = np.asarray(log_ratio(propose(np.arange(config.judged))), dtype=np.float64)
        rule = Budgeted.fit(fitted_on, budget)
        x = truth.sample(config.judged, seed=config.seed + _PURPOSE)
        log_q = np.asarray(flow().log_prob(torch.tensor(x, dtype=torch.float32)), dtype=np.float64)
    assert rule.rate is not None, "a fitted rule knows its rate"
    gap = np.asarray(rule.log_weight(np.asarray(truth.log_prob(x)) - log_q)) + log(rule.rate)
    of_rate = float(np.std(np.exp(rule(fitted_on)))) / (rule.rate * sqrt(config.judged))  # error of log Z
    bare = _seconds(partial(_draw_plain, flow, config.timed))
    seconds = _seconds(
        lambda: sample(
            propose,
            log_ratio,
            config.timed,
            rule=rule,
            batch_size=4096,
            seed=config.seed,
            progress=False,
        )
    )
    return _row(gap, 1 / rule.rate, 1 / rule.rate, seconds / bare, of_rate)


def _draw_plain(flow: Any, n: int) -> None:
    import torch

    _pass(flow, normals(np.arange(n), 2, seed=0, like=torch.empty(0)))


def _seconds(work: Any, times: int = 3) -> float:
    taken = []
    for _ in range(times):
        begun = process_time()
        work()
        taken.append(process_time() - begun)
    return float(np.median(taken))


def _row(gap: Any, candidates: float, passes: float, time: float, more_error: float = 0.0) -> dict[str, Any]:
    error = sqrt(float(np.var(gap)) / len(gap) + more_error**2)
    return {"kl": float(np.mean(gap)), "error": error, "candidates": candidates, "passes": passes, "time": time}


def table(record: Record) -> str:
    """Return KL and cost of every flow."""
    lines = [f"{'':34}{'KL':>18}{'candidates':>12}{'passes':>9}{'time':>9}"]
    for row in record.rows:
        setting = {"model": "", "lars": f", T = {row['budget']:g}"}.get(row["method"], f", K = {row['budget']:g}")
        name = f"{TARGETS[row['target']]}: {METHODS[row['method']]}{setting}"
        kl = f"{row['kl']:.3f} ± {row['error']:.3f}"
        lines.append(f"{name:40}{kl:>12}{row['candidates']:12.2f}{row['passes']:9.2f}{row['time']:7.1f} ×")
    lines += [
        "",
        "KL of the target to the samples, in nats, with its standard error; candidates of the base, passes of",
    ]
    lines += ["the flow and time per sample, as multiples of those of the plain flow."]
    return "\n".join(lines)


def figure(record: Record) -> Any:
    """Draw KL against time, and against passes of the flow, a column for each target."""
    names = list(dict.fromkeys(row["target"] for row in record.rows))
    drawn = canvas(9, 6.2)
    panels = drawn.subplots(2, len(names), squeeze=False)
    for name, (above, below) in zip(names, panels.T, strict=True):
        for method, label in METHODS.items():
            style = look(method)
            points = [row for row in record.rows if (row["target"], row["method"]) == (name, method)]
            for axes, key in ((above, "time"), (below, "passes")):
                axes.errorbar(
                    [row[key] for row in points],
                    [row["kl"] for row in points],
                    [row["error"] for row in points],
                    color=style.colour,
                    ls=style.line,
                    marker=style.marker,
                    ms=7,
                    mec="0.2",
                    mew=0.5,
                    label=label,
                )
        above.set_title(TARGETS[name])
        above.set_xlabel("time per sample, × the flow's")
        below.set_xlabel("passes of the flow per sample")
        for axes in (above, below):
            axes.set_xscale("log")
            ticks = [k for k in (1, 2, 5, 10, 20, 50) if k <= axes.get_xlim()[1]]
            axes.set_xticks(ticks, [f"{k}" for k in ticks])
            axes.minorticks_off()
            tidy(axes, None)
    for axes in panels[:, 0]:
        axes.set_ylabel("KL to the target, nats")
    drawn.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    caption(
        drawn,
        record.experiment,
        "The same small flow with four ways to sample. LARS and budgeted LARS are trained with it and reject in its "
        "base; OBRS rejects afterwards, with the exact ratio, at K = "
        f"{', '.join(f'{k:g}' for k in record.config['budgets_after'])}.",
    )
    return drawn
