"""What a log-ratio does at one budget: which of its errors count, and whether it keeps what it promises."""

from dataclasses import dataclass
from math import isfinite, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..budget import Cut
from ..divergences import FDivergence, divergence
from ..profile import Profile
from .evidence import ERRORS, TOLERATED, Estimate, reliability

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
        error: Root mean square error of log a where a < 1, in nats; NaN if there is nothing there. It is that of the
            log-ratio but for a constant, which c takes up.
        off: Whether that error is beyond doubt, and more than is tolerated.
        misjudged: E_Q|a - a'|, a' from the calibrated ratio at the same budget: the share decided otherwise.
        left: Divergence left, by the names in `LEFT`.
        harmless: Whether the log-ratio does here what its repair would do: its error where a < 1 is tolerated, few are
            misjudged, and no divergence is lower after the repair by more than 3 standard errors and 5 %.
    """

    log_c: float
    rate: Estimate
    sure_real: float
    sure_fake: float
    ess: Estimate
    error: float
    off: bool
    misjudged: float
    left: dict[str, Left]
    harmless: bool


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
    judged = raw[0][: len(reference[0])], raw[1][: len(reference[1])]
    repaired_log_c = Profile(reference[1]).log_c(budget)
    constant = log_c - repaired_log_c if isfinite(log_c) else 0.0  # of a ratio times e it is -1: c takes it up
    below = [x[x < -log_c] + constant for x in raw]
    curve = reliability(below[0], below[1], (len(real), len(fake)))
    better = reference[1] if repair is None else np.asarray(repair(judged[1]))
    misjudged = float(np.mean(np.abs(_kept(judged[1], log_c) - _kept(better, Profile(better).log_c(budget)))))
    harmless = curve is not None and not curve.off and misjudged <= TOLERATED
    left = {}
    for key in LEFT:
        div = divergence(key)
        terms, repaired = _terms(div, judged, log_c, reference), None
        if repair is not None:
            after = _terms(div, reference, repaired_log_c, reference)
            repaired = _bounded(*_difference(after))
            with np.errstate(invalid="ignore"):
                gain, error = _difference((terms[0] - after[0], terms[1] - after[1]))
            harmless = harmless and not gain > max(ERRORS * error, TOLERATED * repaired.value)
        left[key] = Left(_estimate(row, key), _bounded(*_difference(terms)), repaired)
    return AtBudget(
        log_c,
        _estimate(row, "rate"),
        float(np.mean(real >= -log_c)),
        float(np.mean(fake >= -log_c)),
        _estimate(row, "ess"),
        nan if curve is None else curve.rms,
        curve is not None and curve.off,
        misjudged,
        left,
        harmless,
    )


def _estimate(row: dict[str, Any], key: str) -> Estimate:
    return Estimate(row[key], row[f"{key}_low"], row[f"{key}_high"])


def _log_kept(log_ratio: Floats, log_c: float) -> Floats:
    if log_c == np.inf:  # a budget of 1 keeps everything, also what has r = 0
        return np.zeros_like(log_ratio)
    log_a: Floats = Cut(log_c, nan).log_a(log_ratio)
    return log_a


def _kept(log_ratio: Floats, log_c: float) -> Floats:
    return np.exp(_log_kept(log_ratio, log_c))


def _terms(div: FDivergence, rule_on: Pair, log_c: float, calibrated: Pair) -> Pair:
    """Return what is averaged over real and over fake samples in E_P[f'(u)] - E_kept[f*(f'(u))].

    u is from the calibrated ratio. For any u the difference is at most D_f(P||kept), and at u = p/kept it is the
    divergence itself. The kept samples are the fakes with weights a. Other fakes would have another c: what a fake adds
    through it, to the first order, is in its term, so that the variance of the terms is that of the result. Through u
    it adds nothing, as u = p/kept is a maximum.
    """
    log_a_real, log_a_fake = _log_kept(rule_on[0], log_c), _log_kept(rule_on[1], log_c)
    possible = log_a_fake > -np.inf
    kept = np.exp(log_a_fake)
    rate = float(np.mean(kept))
    with np.errstate(all="ignore"):
        gain = div.critic(calibrated[0] + log(rate) - log_a_real)
        log_u = calibrated[1][possible] + log(rate) - log_a_fake[possible]
        cost = np.zeros(len(kept))
        cost[possible] = kept[possible] / rate * div.f_star_of_f_prime(log_u)
    moves = kept < 1  # if log c grows by d, a by a d there, and d = -(a - rate) / E[a; a < 1] keeps the budget
    if mass := float(np.sum(kept[moves])):
        cost = cost - (kept - rate) * (float(np.sum(cost[moves])) / mass)
    return gain, cost


def _difference(terms: Pair) -> tuple[float, float]:
    """Return the mean of the first minus that of the second, and its standard error."""
    value = float(np.mean(terms[0])) - float(np.mean(terms[1]))
    if not isfinite(value):
        return value, nan
    return value, sqrt(sum(float(np.var(x)) / len(x) for x in terms))


def _bounded(value: float, error: float) -> Estimate:
    return Estimate(*(max(x, 0.0) for x in Estimate.of(value, error)))  # a divergence is not below 0
