"""What a log-ratio is worth at a budget, as far as held-out scores show it: what is kept, removed and left.

Three numbers need no true ratio. The KL that rejection removes is `E_P[log a] - log Z` for every rule. A lower bound of
any divergence that is left comes from counts in bins of the score. And which decisions a repair would change is seen by
making them. What the fakes promise, with a repair taken for the truth, is shown beside them, and withheld where they
contradict it.
"""

from dataclasses import dataclass, replace
from math import isfinite, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..budget import Cut
from ..divergences import FDivergence, divergence
from ..estimate import Estimate
from ..profile import Profile
from .evidence import ERRORS, TOLERATED, Floats, Pair, reliability

__all__ = ["LEFT", "AtBudget", "Left", "binned_log_ratio", "kept_profile", "lower_bound", "removed_terms"]

LEFT = ("kl", "js", "tv")
"""The divergences that a diagnosis follows, keys of `DIVERGENCES`."""
_LEAST_LOG = -600.0  # of a weight: as far as a float goes, with room for sums of 1/a
_IN_BIN = 10  # samples of each kind, at least, in a bin of the lower bound


class Left(NamedTuple):
    """A divergence between target and kept samples.

    Attributes:
        promised: Computed from the fake scores alone, as if they were true log-ratios, or would be with the repair.
            None if held-out samples show that more is left, and if there is no reason to believe it: the ratio is
            unfit or untestable, or support is missing.
        at_least: A lower bound, measured on held-out real and fake samples. Its interval is that of the bound: the
            divergence itself may be above it. Differences that the scores cannot see are not in it.
        unreliable: Whether the tail of the ratios is too heavy for the promise and its interval.
    """

    promised: Estimate | None
    at_least: Estimate
    unreliable: bool = False


@dataclass(frozen=True)
class AtBudget:
    """What matters at a budget K, where a = min(c r, 1).

    Args:
        log_c: The constant. Samples with r above 1/c are always kept, and errors of r change nothing there.
        rate: Share of fresh proposals that would be kept.
        sure_real, sure_fake: Shares of the scores with a = 1.
        ess: Effective sample size per kept sample.
        error: Root mean square error of log a where a < 1, in nats; NaN if no score has a < 1. A constant added to
            the log-ratio does not count, as c makes up for it.
        off: Whether that error is above 0 by 3 standard errors, and more than is tolerated.
        misjudged: E_Q|a - a'|, with a' from the calibrated ratio at the same budget: the share of decisions that
            would change.
        removed: By how much rejection lowers KL(P||Q): E_P[log a] - log Z, in nats. It needs no true ratio, so it
            compares any two ratios; no rule of rate Z has more than log 1/Z.
        removed_repaired: The same with the repaired log-ratio; None without a repair.
        left: Divergence left, by the names in `LEFT`.
        harmless: Whether a repair would change next to nothing at this budget: the error where a < 1 is tolerated, few
            are misjudged, and the repair removes no more KL, by more than 3 standard errors and 5 % of log K.
    """

    log_c: float
    rate: Estimate
    sure_real: float
    sure_fake: float
    ess: Estimate
    error: float
    off: bool
    misjudged: float
    removed: Estimate
    removed_repaired: Estimate | None
    left: dict[str, Left]
    harmless: bool

    @classmethod
    def of(
        cls,
        raw: Pair,
        profile: Profile,
        budget: float,
        reference: Pair,
        rng: np.random.Generator,
        *,
        repair: Any = None,
    ) -> "AtBudget":
        """Examine log-ratios at one budget.

        Args:
            raw: Log-ratios of the real and fake samples.
            profile: The profile of the fake ones.
            budget: Proposals per kept sample.
            reference: Calibrated log-ratios, of all samples or of those that come first in both sets.
            rng: Decides the folds in which the lower bounds are measured.
            repair: The calibration to use from now on; the reference was made with it by cross-fitting.
        """
        log_c, row = profile.log_c(budget), profile.plan([budget])[0]
        sample = raw[0][: len(reference[0])], raw[1][: len(reference[1])]
        repaired_log_c = Profile(reference[1]).log_c(budget)
        constant = log_c - repaired_log_c if isfinite(log_c) else 0.0  # if all r are e times too large, it is -1
        below = [x[x < -log_c] + constant for x in raw]
        curve = reliability(below[0], below[1], (len(raw[0]), len(raw[1])))
        better = reference[1] if repair is None else np.asarray(repair(sample[1]))
        misjudged = float(np.mean(np.abs(_kept(sample[1], log_c) - _kept(better, Profile(better).log_c(budget)))))
        harmless = curve is not None and not curve.off and misjudged <= TOLERATED
        before, after = removed_terms(sample, log_c, budget), None
        if repair is not None:
            after = removed_terms(reference, repaired_log_c, budget)
            with np.errstate(invalid="ignore"):
                gain = _difference((after[0] - before[0], after[1] - before[1]))
            harmless = harmless and not gain.value > max(ERRORS * gain.standard_error, TOLERATED * log(budget))
        binned = binned_log_ratio(sample, rng)
        promises = row if repair is None else kept_profile(sample[1], log_c, reference[1]).plan([1.0])[0]
        left = {}
        for key in LEFT:
            promised = _interval(promises, key)
            least = lower_bound(key, sample, log_c, binned)
            unreliable = key in promises["unreliable"].split()
            left[key] = Left(None if least.low > promised.high else promised, least, unreliable)
        return cls(
            log_c=log_c,
            rate=_interval(row, "rate"),
            sure_real=float(np.mean(raw[0] >= -log_c)),
            sure_fake=float(np.mean(raw[1] >= -log_c)),
            ess=_interval(row, "ess"),
            error=nan if curve is None else curve.error_of_log_ratio,
            off=curve is not None and curve.off,
            misjudged=misjudged,
            removed=_difference(before),
            removed_repaired=None if after is None else _difference(after),
            left=left,
            harmless=harmless,
        )

    def without_promises(self) -> "AtBudget":
        """Return the same, with what the fakes promise withheld."""
        return replace(self, left={key: left._replace(promised=None) for key, left in self.left.items()})


def kept_profile(scores: Floats, log_c: float, calibrated: Floats) -> Profile:
    """Return the profile of what a rule keeps, with its own log-ratio log u = log r + log Z - log a to the target.

    Args:
        scores: The log-ratios of fakes that the rule uses.
        log_c: Its constant.
        calibrated: What is taken for their true log-ratios.

    Example:
        >>> fake = np.random.default_rng(0).normal(-0.5, 1, 4000)
        >>> exact, log_c = Profile(fake), Profile(fake).log_c(2.0)
        >>> round(exact.divergence("kl", 2.0) - kept_profile(fake, log_c, fake).divergence("kl"), 9) + 0.0
        0.0
        >>> log_c = Profile(3 * fake).log_c(2.0)
        >>> kept_profile(3 * fake, log_c, fake).divergence("kl") > exact.divergence("kl", 2.0)
        True
    """
    log_a = _log_kept(scores, log_c)
    possible = log_a > -np.inf
    log_a = np.maximum(log_a[possible], _LEAST_LOG)
    return Profile(calibrated[possible] - log_a, np.exp(log_a))


def removed_terms(scores: Pair, log_c: float, budget: float) -> Pair:
    """Return the terms whose means, of real minus of fake samples, are the KL that rejection removes.

    KL(P||Q) - KL(P||kept) = E_P[log a] - log Z holds for every rule, whatever the true ratio is. c is solved on the
    fakes: the first-order effect of each of them is part of its term, so that their variance is that of the result.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(2, 2, 4000), rng.normal(-2, 2, 4000)
        >>> terms = removed_terms((real, fake), Profile(fake).log_c(2.0), 2.0)
        >>> round(float(np.mean(terms[0]) - np.mean(terms[1])), 2), round(log(2), 2)
        (0.64, 0.69)
    """
    log_a, kept = _log_kept(scores[0], log_c), _kept(scores[1], log_c)
    rate, moves = float(np.mean(kept)), kept < 1
    mass = float(np.sum(kept[moves])) / len(kept)
    solved = mass > 0 and rate * budget < 1 + 1e-6  # beyond M the constant does not move
    slope = float(np.mean(log_a < 0)) / mass if solved else 1 / rate
    return log_a, log(rate) + (kept - rate) * slope


def binned_log_ratio(scores: Pair, rng: np.random.Generator, folds: int = 5) -> Pair:
    """Return log-ratios of the scores that owe nothing to what the scores claim: counts in bins, cross-fitted.

    Each sample gets the ratio of the counts of its bin in the other folds. A bin has at least ten samples of both
    kinds, so that the result is bounded, and means over it have honest errors. It may rise or fall.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.5, 1, 4000), rng.normal(-0.5, 1, 4000)
        >>> binned = binned_log_ratio((real, fake), rng)
        >>> bool(np.corrcoef(binned[0], real)[0, 1] > 0.9)
        True
    """
    fold = [rng.permutation(len(x)) % folds for x in scores]
    out = np.zeros(len(scores[0])), np.zeros(len(scores[1]))
    for k in range(folds):
        real, fake = (x[f != k] for x, f in zip(scores, fold, strict=True))
        cuts = _cuts(np.sort(real), np.sort(fake))
        counts = [np.bincount(np.searchsorted(cuts, x, side="right"), minlength=len(cuts) + 1) for x in (real, fake)]
        value = np.log((counts[0] + 0.5) / (counts[1] + 0.5)) - log(len(real) / len(fake))
        for x, f, o in zip(scores, fold, out, strict=True):
            o[f == k] = value[np.searchsorted(cuts, x[f == k], side="right")]
    return out


def _cuts(real: Floats, fake: Floats) -> Floats:
    """Return where to cut ascending scores into bins with enough samples of both kinds."""
    candidates = np.unique(
        np.concatenate([np.quantile(x[np.isfinite(x)], np.arange(1, 40) / 40) for x in (real, fake)])
    )
    below = np.stack([np.searchsorted(x, candidates, side="left") for x in (real, fake)])
    cuts, start = [], np.zeros(2)
    for cut, count in zip(candidates, below.T, strict=True):
        if np.min(count - start) >= _IN_BIN and min(len(real) - count[0], len(fake) - count[1]) >= _IN_BIN:
            cuts.append(cut)
            start = count
    return np.asarray(cuts)


def lower_bound(key: str, scores: Pair, log_c: float, calibrated: Pair) -> Estimate:
    """Return a lower bound of a divergence between target and kept samples, with the interval of the bound.

    Args:
        key: A key of `DIVERGENCES`.
        scores: The log-ratios that the rule uses.
        log_c: Its constant.
        calibrated: Log-ratios of the same samples that do not depend on themselves, such as `binned_log_ratio`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.5, 1, 4000), rng.normal(-0.5, 1, 4000)
        >>> bound = lower_bound("tv", (real, fake), 0.0, binned_log_ratio((real, fake), rng))
        >>> 0 < bound.low < bound.value < 0.38
        True
    """
    return _difference(_terms(divergence(key), scores, log_c, calibrated)).clip(least=0.0)


def _interval(row: dict[str, Any], key: str) -> Estimate:
    return Estimate(row[key], row[f"{key}_low"], row[f"{key}_high"])


def _log_kept(log_ratio: Floats, log_c: float) -> Floats:
    if log_c == np.inf:  # a budget of 1 keeps everything
        return np.zeros_like(log_ratio)
    log_a: Floats = Cut(log_c, nan).log_a(log_ratio)
    return log_a


def _kept(log_ratio: Floats, log_c: float) -> Floats:
    return np.exp(_log_kept(log_ratio, log_c))


def _terms(div: FDivergence, rule_on: Pair, log_c: float, calibrated: Pair) -> Pair:
    """Return the terms that E_P[f'(u)] - E_kept[f*(f'(u))] averages, over real and over fake samples.

    u comes from the calibrated ratio. For any u the difference is at most D_f(P||kept), by the inequality of Fenchel
    and Young, and for u = p/kept it is the divergence itself. The kept samples are the fakes with weights a. c depends
    on all fakes: the first-order effect of a fake on c is part of its term, so the variance of the terms is that of the
    result. The effect on u has order two, as u = p/kept is a maximum.
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
    moves = kept < 1  # a step d of log c adds a d to a there; d = -(a - rate) / E[a; a < 1] keeps the budget
    if mass := float(np.sum(kept[moves])):
        cost = cost - (kept - rate) * (float(np.sum(cost[moves])) / mass)
    return gain, cost


def _difference(terms: Pair) -> Estimate:
    """Return the mean of the first minus that of the second."""
    value = float(np.mean(terms[0])) - float(np.mean(terms[1]))
    error = sqrt(sum(float(np.var(x)) / len(x) for x in terms)) if isfinite(value) else nan
    return Estimate.around(value, error)
