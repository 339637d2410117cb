"""What a log-ratio does at one budget: which of its errors count, and whether it keeps what it promises."""

from dataclasses import dataclass
from math import isfinite, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..divergences import FDivergence, divergence
from ..profile import Profile
from .evidence import Estimate, reliability

__all__ = ["LEFT", "AtBudget", "Left", "at_budget"]

Floats = np.ndarray[Any, Any]
Pair = tuple[Floats, Floats]

LEFT = ("kl", "js", "tv")
"""The divergences that a diagnosis follows, keys of `DIVERGENCES`."""


class Left(NamedTuple):
    """A divergence between target and kept samples.

    Attributes:
        promised: As the profile of the fake scores has it, if they are true log-ratios.
        held_out: As real and fake samples show it, a lower bound: what the scores cannot see is not in it.
        repaired: The same with the repaired log-ratio in the rule; None without a repair.
    """

    promised: Estimate
    held_out: Estimate
    repaired: Estimate | None


@dataclass(frozen=True)
class AtBudget:
    """What matters at a budget K, where a = min(c r, 1).

    Args:
        log_c: The constant. Beyond r = 1/c samples are kept for sure, and errors of r change nothing.
        rate: Share that a fresh sample would keep.
        sure_real, sure_fake: Shares of the scores with a = 1.
        ess: Effective sample size per kept sample.
        error: Root mean square error of the log-ratio where a < 1, in nats; NaN if there is nothing there.
        misjudged: E_Q|a - a'|, a' from the calibrated ratio at the same budget: the share decided otherwise.
        left: Divergence left, by the names in `LEFT`.
    """

    log_c: float
    rate: Estimate
    sure_real: float
    sure_fake: float
    ess: Estimate
    error: float
    misjudged: float
    left: dict[str, Left]


def at_budget(raw: Pair, profile: Profile, budget: float, reference: Pair, *, repair: Any = None) -> AtBudget:
    """Look at one budget.

    Args:
        raw: Log-ratios of the real and fake samples.
        profile: That of the fake ones.
        budget: Proposals per kept sample.
        reference: The calibrated log-ratios of the first samples of both sets, as many as there are.
        repair: The calibration that one would use, of which the reference is the cross-fitted version.
    """
    real, fake = raw
    log_c, row = profile.log_c(budget), profile.plan([budget])[0]
    below = tuple(x[x < -log_c] for x in raw)
    curve = reliability(below[0], below[1], (len(real), len(fake)))
    judged = raw[0][: len(reference[0])], raw[1][: len(reference[1])]
    repaired_log_c = Profile(reference[1]).log_c(budget)
    better = reference[1] if repair is None else np.asarray(repair(judged[1]))
    left = {}
    for key in LEFT:
        div = divergence(key)
        left[key] = Left(
            _estimate(row, key),
            _held_out(div, judged, log_c, reference),
            _held_out(div, reference, repaired_log_c, reference) if repair is not None else None,
        )
    return AtBudget(
        log_c,
        _estimate(row, "rate"),
        float(np.mean(real >= -log_c)),
        float(np.mean(fake >= -log_c)),
        _estimate(row, "ess"),
        nan if curve is None else curve.rms,
        float(np.mean(np.abs(_kept(judged[1], log_c) - _kept(better, Profile(better).log_c(budget))))),
        left,
    )


def _estimate(row: dict[str, Any], key: str) -> Estimate:
    return Estimate(row[key], row[f"{key}_low"], row[f"{key}_high"])


def _log_kept(log_ratio: Floats, log_c: float) -> Floats:
    if log_c == np.inf:  # a budget of 1 keeps everything
        return np.zeros_like(log_ratio)
    return np.minimum(log_ratio + log_c, 0.0)


def _kept(log_ratio: Floats, log_c: float) -> Floats:
    return np.exp(_log_kept(log_ratio, log_c))


def _held_out(div: FDivergence, rule_on: Pair, log_c: float, calibrated: Pair) -> Estimate:
    """Return E_P[f'(u)] - E_kept[f*(f'(u))] with u from the calibrated ratio: for any u at most D_f(P||kept).

    The kept samples are the fakes with weights a. At u = p/kept the bound is the divergence itself.
    """
    log_a_real, log_a_fake = _log_kept(rule_on[0], log_c), _log_kept(rule_on[1], log_c)
    possible = log_a_fake > -np.inf
    log_z = log(float(np.mean(np.exp(log_a_fake))))
    with np.errstate(all="ignore"):
        gain = div.critic(calibrated[0] + log_z - log_a_real)
        log_u = calibrated[1][possible] + log_z - log_a_fake[possible]
        cost = np.zeros(len(log_a_fake))
        cost[possible] = np.exp(log_a_fake[possible] - log_z) * div.f_star_of_f_prime(log_u)
        value = float(np.mean(gain)) - float(np.mean(cost))
        error = sqrt(float(np.var(gain)) / len(gain) + float(np.var(cost)) / len(cost)) if isfinite(value) else nan
    return Estimate(*(max(x, 0.0) for x in Estimate.of(value, error)))  # a divergence is not below 0
