"""Every way to a log-ratio, on one model, judged by what OBRS keeps with it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

import obrs
from obrs.ratios.calibration import CALIBRATIONS, fit_calibration
from obrs.ratios.doctor import diagnose
from obrs.ratios.refit import refit

DIAGNOSED_AT = 2.6


@dataclass(frozen=True, eq=False)
class Case:
    """One model with its data.

    Args:
        real: What the refits see, all real samples there are.
        held_out: Real samples among them that the critic was not trained on: for the calibrations.
        fresh: Real samples that nobody has seen: for the doctor.
        propose: From a seed to a proposal.
        critic: The GAN's discriminator, whose output is a logit.
        score: From kept samples to the columns of the table.
        methods: Refits, how many steps each gets, and its features or None.
        batch_size: Of the refits.
        exact: The exact log-ratio, if there is one.
    """

    real: torch.Tensor
    held_out: torch.Tensor
    fresh: torch.Tensor
    propose: Callable[[int], Any]
    critic: torch.nn.Module
    score: Callable[[Any], dict[str, float]]
    methods: dict[str, tuple[Any, int, Any]]
    batch_size: int = 512
    exact: Callable[[Any], Any] | None = None


@dataclass
class Contestant:
    """A way to a log-ratio, fitted once or, with several seeds, several times.

    `seconds` are those of the wall and those of the processor, of each fit.
    """

    name: str
    kind: str
    log_ratios: list[Callable[[Any], Any]]
    seconds: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])
    log_loss: float | None = None
    note: str = ""


def contestants(case: Case, *, fits: int, shrink: int = 1):
    """Yield raw, calibrated, refitted and exact ratios."""

    def raw(x):
        with torch.no_grad():
            return case.critic(x)

    yield Contestant("raw discriminator", "raw", [raw])
    scores = raw(case.held_out), raw(case.propose(11)(np.arange(len(case.held_out))))
    for name, fit in CALIBRATIONS.items():
        if name != "identity":
            fitted, seconds = _timed(partial(fit, *scores))
            yield Contestant(name, "calibration", [_chained(fitted, raw)], [seconds])
    choice, seconds = _timed(partial(fit_calibration, *scores))
    yield Contestant(
        "cross-fitted choice", "calibration", [_chained(choice.calibration, raw)], [seconds], note=choice.name
    )
    for name, (method, steps, features) in case.methods.items():
        options = {"batch_size": case.batch_size, "features": features, "progress": False}
        fit = partial(refit, case.real, case.propose(12), method, **options)
        steps = max(steps // shrink, 2)
        found, seconds = zip(*(_timed(partial(fit, steps=steps, seed=seed)) for seed in range(fits)), strict=True)
        loss = float(np.mean([ratio.report.log_loss for ratio in found]))
        yield Contestant(name, "refit", list(found), list(seconds), loss)
    if case.exact is not None:
        yield Contestant("exact ratio", "exact", [case.exact])


def judge(case: Case, contestant: Contestant, budgets, *, n: int, repetitions: int, pilot: int) -> dict[str, Any]:
    """Keep n samples at each budget, several times, each time from other proposals."""
    ratios = contestant.log_ratios
    with torch.no_grad():
        pilots = [np.asarray(ratio(case.propose(13)(np.arange(pilot)))) for ratio in ratios]
        fresh = np.asarray(ratios[0](case.fresh))
    row: dict[str, Any] = {
        "contestant": contestant.name,
        "kind": contestant.kind,
        "fits": len(ratios),
        "seconds": float(np.mean(contestant.seconds, axis=0)[0]),
        "cpu seconds": float(np.mean(contestant.seconds, axis=0)[1]),
        "held-out log-loss": contestant.log_loss,
        "doctor": diagnose(fresh, pilots[0][: len(fresh)], DIAGNOSED_AT).verdict,
        "note": contestant.note,
        "budgets": {},
    }
    for budget in budgets:
        rules = [obrs.Budgeted.fit(scores, budget) for scores in pilots]
        found = []
        for i in range(repetitions):
            which = i % len(ratios)
            propose = case.propose(1000 + i)
            kept = obrs.sample(propose, ratios[which], n, rule=rules[which], seed=i, progress=False)
            found.append(case.score(kept.x) | {"rate": kept.rate})
        row["budgets"][f"{budget:g}"] = summary(found)
    return row


def summary(found: list[dict[str, float]]) -> dict[str, list[float]]:
    """Mean and standard deviation of each column."""
    columns = {key: [one[key] for one in found] for key in found[0]}
    return {key: [float(np.mean(v)), float(np.std(v, ddof=1)) if len(v) > 1 else 0.0] for key, v in columns.items()}


def _timed(call):
    wall, cpu = perf_counter(), process_time()
    return call(), (perf_counter() - wall, process_time() - cpu)


def _chained(calibration, raw):
    return lambda x: calibration(raw(x))
