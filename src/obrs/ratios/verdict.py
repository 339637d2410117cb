"""Fit, repairable or unfit: the word that ends a diagnosis, and the calibration that repairs."""

from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, MissingLibraryError, RatioError
from .calibration import CALIBRATIONS, Shift, cross_fitted
from .critics import FINE_TUNE, FROM_SCRATCH
from .evidence import ERRORS, Evidence, finite_top

__all__ = ["Verdict", "judge", "judge_at_budget"]

Floats = np.ndarray[Any, Any]
Pair = tuple[Floats, Floats]

_PILES = 0.45  # share of scores near -1 or +1: of a normal score at most 0.31, of trained hinge critics 0.48 to 0.97
_FOLDS = 5
_FITTED = 100_000  # of each kind are enough to fit a map and to judge it
_TURNED = "obrs.diagnose(-log_ratio_real, -log_ratio_fake, budget)"
_LOGITS = "obrs.ratios.critics.from_logit(logit)"


class Verdict(NamedTuple):
    """The word, why, and what to do.

    Attributes:
        name: "fit", "repairable" or "unfit".
        reason: Why.
        repair: The call that repairs, or nothing.
        calibration: The map that repairs, fitted on all scores.
        reference: Calibrated log-ratios, cross-fitted, by which to judge the scores; None if they are calibrated, or
            nothing better is known. They belong to the first real and the first fake scores.
    """

    name: str
    reason: str
    repair: str = ""
    calibration: Any = None
    reference: Pair | None = None


def judge(
    raw: Pair, evidence: Evidence, rng: np.random.Generator, *, broken: str = "", lost: str = "", piled: float = 0.0
) -> Verdict:
    """Return the verdict on a log-ratio.

    Args:
        raw: Log-ratios of real and fake samples, in random order.
        evidence: What is known about them.
        rng: Decides the folds.
        broken: What no ratio has and these scores had, in words.
        lost: Why the critic that made them has no ratio, if that is known.
        piled: Share of scores near -1 or +1; 0 if they are known to be log-ratios.
    """
    if broken:
        return _broken(broken)
    faults = evidence.faults()
    if not faults and not lost:
        return Verdict("fit", _praise(evidence))
    off = "; ".join(faults)
    sample = raw[0][:_FITTED], raw[1][:_FITTED]
    best = _cross_fitted("isotonic", sample, rng) or _cross_fitted("beta", sample, rng)
    reference = best[1] if best else None
    if lost:
        return Verdict("unfit", lost, FINE_TUNE, reference=reference)
    if evidence.auc_z < -ERRORS:
        why = f"real samples score below fake ones (AUC {evidence.auc.value:.3f}): is the sign the wrong way round?"
        return Verdict("unfit", why, _TURNED, reference=reference)
    if evidence.auc_z <= ERRORS:
        why = f"the scores cannot tell real from fake (AUC {evidence.auc.value:.3f}) but claim to: {off}"
        return Verdict("unfit", why, FROM_SCRATCH, reference=reference)
    informed = False
    for name in CALIBRATIONS:
        if name == "temperature" and piled > _PILES:  # a shift, tried before, is all that these may need
            why = f"{100 * piled:.0f} % of the scores lie at -1 and +1, as those of a hinge critic do: {off}"
            return Verdict("unfit", why, FINE_TUNE, reference=reference)
        tried = None if name == "identity" else _cross_fitted(name, sample, rng)
        if tried is None:
            continue
        after = Evidence.of(tried[1], by=sample)
        informed = informed or after.tells()
        if after.tells() and not after.faults():
            call = f"obrs.ratios.calibration.{type(tried[0]).__name__}.fit(log_ratio_real, log_ratio_fake)"
            return Verdict("repairable", f"{off}; calibrated by {_said(tried[0])}", call, *tried)
    what = "no monotone map makes it calibrated" if informed else "calibrated, they tell next to nothing"
    return Verdict("unfit", f"{off}; {what}", FROM_SCRATCH, reference=reference)


def judge_at_budget(verdict: Verdict, harmless: bool) -> Verdict:
    """Call fit what needs a repair, but not for the rule at this budget.

    A constant stays repairable: it is harmless at every budget, and the ratio itself is what one asked about.

    Args:
        verdict: On the ratio itself.
        harmless: Whether its faults change next to nothing at the budget.
    """
    if verdict.name != "repairable" or not harmless or isinstance(verdict.calibration, Shift):
        return verdict
    return verdict._replace(name="fit", reason=f"at this budget, where its fault does no harm: {verdict.reason}")


def _broken(broken: str) -> Verdict:
    """Infinities are a logit that was lost; what made a NaN only its sample can tell, and no call repairs it."""
    why = f"{broken}: no ratio has that"
    if "NaN" not in broken:
        return Verdict("unfit", why, _LOGITS)
    name = "log_ratio_real" if "NaN among the real" in broken else "log_ratio_fake"
    return Verdict("unfit", f"{why}; look at the samples numpy.flatnonzero(numpy.isnan({name}))")


def _praise(evidence: Evidence) -> str:
    if evidence.tells():
        return "calibrated"
    return "calibrated, but there is nothing to gain: the scores cannot tell real from fake, and do not claim to"


def _said(calibration: Any) -> str:
    name = type(calibration).__name__
    formulas = {
        "Shift": "log r {offset:+.3g}",
        "Temperature": "{slope:.3g} log r",
        "Platt": "{slope:.3g} log r {intercept:+.3g}",
    }
    if name in formulas:
        return formulas[name].format(**vars(calibration))
    return {"Beta": "a beta map", "Isotonic": "an isotonic map"}[name]


def _cross_fitted(name: str, scores: Pair, rng: np.random.Generator) -> tuple[Any, Pair] | None:
    """Return the map fitted on all scores, and each score under the map of the other folds; None if it cannot be."""
    kind = CALIBRATIONS[name]
    real, fake = finite_top(*scores), scores[1]
    folds = rng.permutation(len(real)) % _FOLDS, rng.permutation(len(fake)) % _FOLDS
    try:
        return kind.fit(real, fake), cross_fitted(kind, real, fake, folds)
    except (InputError, RatioError, MissingLibraryError):  # such as scores that separate the two kinds
        return None
