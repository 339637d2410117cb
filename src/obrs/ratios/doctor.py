"""Is this log-ratio good enough to reject with? Asked of held-out scores, and answered in one word.

The checks and their thresholds:

* A ratio is *calibrated* unless a check is off both by more than 3 standard errors and by more than 5 %. The first
  keeps small samples from crying wolf, the second keeps a million scores from doing so. The checks are Turner's Z,
  the bins of the calibration curve (5 % being their error of 0.05 nats), E_Q[r] and E_P[1/r] above 1.
* E_Q[r] *below* 1 by 3 standard errors, of a calibrated ratio, is missing support: a part of the target that the
  model never makes. No ratio repairs that, and none is blamed for it.
* What is not calibrated but does at this budget what its repair would do, within the same 5 %, is fit at this budget;
  a constant apart, which no budget minds.
* What is not calibrated is *repairable* if a monotone map, fitted on four fifths of the scores, is calibrated on the
  other fifth, in turn, and still tells real from fake. The simplest such map is the repair.
* The outputs of hinge, Wasserstein and least-squares critics are not; only the caller knows that they are such, and
  says it with `meaning`. Unless told, one guess is made: the optimum of a hinge critic is sign(p - q), so its outputs
  pile up at -1 and +1, and what r is within a pile is lost. A score that is not calibrated and half of which lies in
  such piles is taken for one. A log-ratio of two values may look the same, and a hinge critic short of its optimum may
  not.
"""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from .._inputs import check_budget
from .._names import lookup
from ..errors import InputError, RatioError
from ..profile import Profile
from ..types import Array
from ._report import as_json, as_rows, as_text
from .at_budget import AtBudget, at_budget
from .critics import FINE_TUNE, FROM_SCRATCH, MEANINGS
from .evidence import TOLERATED, Estimate, Evidence, Mean, Reliability
from .held_out import known_scores
from .verdict import judge, judge_at_budget

__all__ = ["Diagnosis", "Health", "diagnose"]

Floats = np.ndarray[Any, Any]
Pair = tuple[Floats, Floats]

_LEAST = 100  # of each kind: two bins of fifty, and folds in which a slope can be fitted
_OVERLAP = 20  # samples among those of the other kind; with fewer, no claim of the ratio is put to the test
_REACH = 0.25  # how near a score must be to -1 or +1 to belong to a pile there
_PILED = 0.32  # more than of any normal score; from here on a hinge critic is worth a word
_RATIOS = ("log_ratio", "logit")  # what may be diagnosed as it is


class Health(NamedTuple):
    """Scores that are no numbers, or no longer tell anything: counts of real and of fake ones, and shares."""

    nan: tuple[int, int]
    plus_inf: tuple[int, int]
    minus_inf: tuple[int, int]
    at_top: tuple[float, float]
    at_bottom: tuple[float, float]
    piled: float

    @property
    def broken(self) -> str:
        """What no ratio of two distributions has: NaN, r infinite on a fake, or r = 0 on a real sample."""
        wrong = [
            (self.nan[0], "NaN among the real scores"),
            (self.nan[1], "NaN among the fake scores"),
            (self.plus_inf[1], "+inf among the fake scores"),
            (self.minus_inf[0], "-inf among the real scores"),
        ]
        return ", ".join(f"{count} {what}" for count, what in wrong if count)


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `diagnose` found; printed, it is a page of text.

    Args:
        verdict: "fit", "repairable" or "unfit".
        reason: Why, in a sentence.
        repair: The call that repairs, as code; empty if nothing needs repair. Of a ratio that is fit at this budget
            alone, it is what weights, the profile and larger budgets need.
        notes: What else to know.
        budget: Proposals per kept sample.
        n_real, n_fake: How many scores there were.
        health: Scores that are no numbers, ties at the ends, and piles.
        mean_ratio, mean_inverse: E_Q[r] and E_P[1/r].
        mean_repaired: E_Q[r] after the repair; without one, the same as before.
        reliability: The calibration curve and Turner's Z.
        auc: Probability that a real sample scores above a fake one.
        log_loss: Of the scores as a classifier, both kinds weighing one half; log 2 says nothing.
        max_budget: M of this sample, the largest ratio over the mean ratio.
        max_growth: By which factor M would grow with ten times as many fakes; about 1 if there is an M.
        ess: Effective sample size per fake without rejection.
        missing_support: Share of the target that the model never makes, if it is above 0 beyond doubt.
        above_all_fakes: Share of the real scores above every fake one.
        at_budget: What matters at this budget.
        calibration: The repair, fitted on all scores; None without one.
        raw, repaired: Log-ratios of real and fake samples; after the repair, cross-fitted, and None without one.
    """

    verdict: str
    reason: str
    repair: str
    notes: tuple[str, ...]
    budget: float
    n_real: int
    n_fake: int
    health: Health
    mean_ratio: Mean
    mean_inverse: Mean
    mean_repaired: Mean
    reliability: Reliability
    auc: Estimate
    log_loss: Estimate
    max_budget: float
    max_growth: float
    ess: float
    missing_support: Estimate | None
    above_all_fakes: float
    at_budget: AtBudget
    calibration: Any
    raw: Pair = field(repr=False)
    repaired: Pair | None = field(repr=False)

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat dict per finding: name, value, low, high, mark ("", "!" or "~") and what it says."""
        return as_rows(self)

    def to_json(self) -> str:
        """Return the diagnosis as JSON: verdict, rows and calibration curve; infinities and NaN are null."""
        return as_json(self)

    def __str__(self) -> str:
        """Return the diagnosis as a page of at most 80 columns."""
        return as_text(self)


def diagnose(
    log_ratio_real: Array, log_ratio_fake: Array, budget: float, *, meaning: str | None = None, seed: int = 0
) -> Diagnosis:
    """Tell whether a log-ratio is good enough to reject with at this budget.

    Args:
        log_ratio_real: Log-ratios of real samples that the critic was not trained on, shape `(n,)` or `(n, 1)`.
        log_ratio_fake: Log-ratios of fresh samples of the model, likewise.
        budget: Proposals per kept sample.
        meaning: What the scores are, if you know: "log_ratio" or "logit", which are never taken for a hinge critic's;
            or "hinge", "wgan" or "lsgan", outputs of critics that have no ratio, however they look.
        seed: Decides the folds in which repairs are tried.

    Returns:
        A record with the `verdict` "fit", "repairable" or "unfit", the `reason`, the call that is the `repair`, and
        what they rest on; `print` it to read it.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.5, 1, 2000), rng.normal(-0.5, 1, 2000)  # log-ratios of two normals
        >>> diagnose(real, fake, budget=2.6).verdict
        'fit'
        >>> thrice = diagnose(3 * real, 3 * fake, budget=2.6)
        >>> thrice.verdict, thrice.repair
        ('repairable', 'obrs.ratios.calibration.Temperature.fit(log_ratio_real, log_ratio_fake)')

    References:
        | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), Sec. 4.1
    """
    k = check_budget(budget)
    lost = _lost(meaning)
    given = known_scores(log_ratio_real, "log_ratio_real"), known_scores(log_ratio_fake, "log_ratio_fake")
    health = _health(*given)
    rng = np.random.default_rng(seed)
    usable = given[0][given[0] > -np.inf], given[1][given[1] < np.inf]  # without NaN, too
    raw = rng.permutation(usable[0]), rng.permutation(usable[1])  # files are often sorted
    if min(map(len, raw)) < _LEAST:
        sizes = f"{len(raw[0])} real and {len(raw[1])} fake"
        why = f" ({health.broken} left out)" if health.broken else ""
        raise InputError(f"diagnose needs at least {_LEAST} held-out scores of each kind, got {sizes}{why}")
    if raw[1].max() == -np.inf:
        raise RatioError(f"log_ratio_fake has no value above -inf among {len(raw[1])}: no fake has r > 0")
    profile = Profile(raw[1])
    profile.log_c(k)  # a budget that cannot be met is refused here
    evidence = Evidence.of(raw)
    piled = health.piled if meaning is None else 0.0
    verdict = judge(raw, evidence, rng, broken=health.broken, lost=lost, piled=piled)
    at = at_budget(raw, profile, k, verdict.reference or raw, repair=verdict.calibration)
    repaired = verdict.reference if verdict.calibration is not None else None
    verdict = judge_at_budget(verdict, at.harmless)
    settled = evidence if repaired is None else Evidence.of(repaired)
    missing = None if verdict.name == "unfit" else settled.missing_support()
    index = evidence.mean_ratio.tail_index
    found = Diagnosis(
        verdict=verdict.name,
        reason=_reason(verdict.reason, missing),
        repair=verdict.repair,
        notes=(),
        budget=k,
        n_real=len(given[0]),
        n_fake=len(given[1]),
        health=health,
        mean_ratio=evidence.mean_ratio,
        mean_inverse=evidence.mean_inverse,
        mean_repaired=settled.mean_ratio,
        reliability=evidence.curve,
        auc=evidence.auc,
        log_loss=evidence.log_loss,
        max_budget=profile.max_budget,
        max_growth=10.0 ** min(1 / max(index, 1e-9), 300.0),
        ess=profile.ess(),
        missing_support=missing,
        above_all_fakes=float(np.mean(raw[0] > raw[1].max())),
        at_budget=at,
        calibration=verdict.calibration,
        raw=raw,
        repaired=repaired,
    )
    return replace(found, notes=_notes(found))


def _lost(meaning: str | None) -> str:
    """Return why scores with this meaning have no ratio, or nothing; what must be converted first is refused."""
    if meaning is None:
        return ""
    lost = lookup(MEANINGS, meaning, "meaning of scores").lost
    if not lost and meaning not in _RATIOS:
        call = f"obrs.ratios.critics.to_log_ratio(scores, {meaning!r}, ...)"
        raise InputError(f"diagnose needs log-ratios, got meaning={meaning!r}; convert the scores with {call}")
    return lost


def _health(real: Floats, fake: Floats) -> Health:
    both = real, fake
    finite = [x[np.isfinite(x)] for x in both]
    every = np.concatenate(finite)
    if not every.size:
        raise RatioError(f"none of {len(real)} real and {len(fake)} fake scores is finite; check the critic")
    top, bottom = every.max(), every.min()
    discrete = len(np.unique(every)) < _LEAST / 2  # then ties at the ends are no wonder
    piled = [np.mean(np.abs(np.abs(x) - 1) < _REACH) if x.size else 0.0 for x in finite]

    def share(x: Floats, end: float) -> float:
        return 0.0 if discrete or np.count_nonzero(x == end) < 3 else float(np.mean(x == end))

    def count(test: Any) -> tuple[int, int]:
        return int(np.count_nonzero(test(real))), int(np.count_nonzero(test(fake)))

    return Health(
        nan=count(np.isnan),
        plus_inf=count(np.isposinf),
        minus_inf=count(np.isneginf),
        at_top=(share(real, top), share(fake, top)),
        at_bottom=(share(real, bottom), share(fake, bottom)),
        piled=float(np.mean(piled)),
    )


def _reason(reason: str, missing: Estimate | None) -> str:
    if missing is None:
        return reason
    share, low, high = (100 * x for x in missing)
    where = "of the target lies where the model never goes"
    return f"{reason}; missing support: {share:.1f} % ({low:.1f} to {high:.1f} %) {where}"


def _notes(found: Diagnosis) -> tuple[str, ...]:
    health = found.health
    notes = []
    if found.missing_support is not None:
        notes.append("no ratio brings missing support back: rejection keeps what the model makes. Train the model")
    elif not found.mean_repaired.trusted and found.above_all_fakes > TOLERATED:
        share = f"{100 * found.above_all_fakes:.1f} %"
        notes.append(f"{share} of the real samples score above every fake: the model makes such samples hardly ever")
    overlap = np.sum(np.minimum(found.reliability.real, found.reliability.fake))
    if overlap < _OVERLAP:
        notes.append("the scores separate real from fake: there is nothing to check the ratio with, and little to keep")
    if "Shift" in found.repair:
        notes.append("a constant does not change the rule at a budget; it changes E[r], weights and the ratio itself")
    if found.verdict == "fit" and found.repair:
        notes.append("the rule at this budget needs no repair; weights, the profile and larger budgets do")
    if found.verdict != "fit" and health.piled > _PILED and "hinge" not in found.reason:
        share = f"{100 * health.piled:.0f} % of the scores lie near -1 and +1"
        notes.append(f"{share}: if a hinge critic made them, say so with meaning='hinge' (--hinge)")
    if found.repair == FINE_TUNE:
        notes.append(f"if that is unfit, as spectral normalisation may make it, start from scratch: {FROM_SCRATCH}")
    for (real, fake), end in ((health.at_top, "largest"), (health.at_bottom, "smallest")):
        if real or fake:
            shares = f"{100 * real:.1f} % of the real and {100 * fake:.1f} % of the fake scores"
            notes.append(f"saturated: {shares} share the {end} value")
    if health.plus_inf[0]:
        notes.append(f"{health.plus_inf[0]} real scores are +inf, which says that the model never goes there")
    if found.verdict != "fit" and all(x.min() >= 0 and x.max() <= 1 for x in found.raw):
        notes.append("all scores lie in [0, 1]: if they are probabilities, read them with from_probability")
    return tuple(notes)
