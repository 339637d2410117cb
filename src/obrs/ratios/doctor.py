"""Is this log-ratio good enough to reject with? `diagnose` answers in one word, from the scores of held-out samples.

The checks and their thresholds:

* If fewer than 20 samples lie among those of the other kind, a ratio is *untestable*: nothing contradicts it, and
  nothing supports it. Not even a ratio that looks perfect is called fit then.
* A ratio is *calibrated* unless a check is off by more than 3 standard errors and also by more than 5 %. The first
  threshold prevents false alarms in small samples, the second prevents alarms about tiny errors in a million scores.
  The checks are Turner's Z, the bins of the calibration curve, its constant, slope and bend (here 5 % is an error of
  0.05 nats), E_Q[r] above 1, and E_P[1/r] above 1. The page says which errors so many scores could not show.
* If a calibrated ratio has E_Q[r] *below* 1 by 3 standard errors, support is missing: the model never makes a part of
  the target. No ratio repairs that, and the ratio is not at fault.
* A ratio that is not calibrated is *repairable* if a monotone map calibrates it, and the result tells real from fake.
  The map is fitted on four fifths of the scores and checked on the last fifth; each fifth has its turn. The repair is
  the simplest map that passes.
* A repairable ratio is *fit* at this budget if the repair would change less than the same 5 % there. There is one
  exception: a ratio that is wrong by a constant factor stays repairable, although no budget depends on the constant.
* Hinge, Wasserstein and least-squares critics have no log-ratio. Only the caller knows which critic made the scores and
  can say so with `kind`. Without `kind` there are two guesses. The optimum of a hinge critic is sign(p - q), so
  its outputs pile up at -1 and +1: about half of the scores in these two piles are taken for that. And a score of many
  values, of which a tenth share the largest or the smallest one, was clipped or saturated. Within a pile nothing tells
  r apart. The guesses can be wrong: a log-ratio with two values may look the same, and a hinge critic that was not
  trained to its optimum may look different.
* Scores that come again and again within one kind, but never in the other, are rows that were repeated. Each counts
  once: ten copies of a sample are no evidence.
"""

import json
import textwrap
from dataclasses import dataclass, field, replace
from math import isfinite, isnan, log, nan
from typing import Any, NamedTuple

import numpy as np

from .._checks import check_budget
from .._text import finite, html_table, lookup, paragraph
from ..critics import FINE_TUNE, FROM_SCRATCH, KINDS, WITHOUT_RATIO, check_scores
from ..errors import InputError, MissingLibraryError, RatioError
from ..estimate import Estimate
from ..profile import Profile, removable_kl
from ..types import Array
from .at_budget import AtBudget
from .calibration import CALIBRATIONS, Shift, cross_fitted
from .evidence import (
    ERRORS,
    TOLERATED,
    Evidence,
    Floats,
    Mean,
    Pair,
    Reliability,
    finite_top,
    known_scores,
)

__all__ = ["Diagnosis", "Health", "diagnose"]

_LEAST = 100  # scores of each kind: two bins of fifty, and folds in which a slope can be fitted
_OVERLAP = 20  # samples among those of the other kind; with fewer, nothing can contradict the ratio
_HARDLY = 0.1  # log-loss below which the two kinds hardly overlap in what the ratio sees
_SATURATED = 0.1  # share of one kind that shares an end of the scores
_REPEATED = 0.2  # share of the scores that came before; of rounded scores as many are also found in the other kind
_NOISY = 0.9  # slope of a repair below which the score carried noise
_NEAR = 0.25  # a score this near to -1 or +1 belongs to a pile
_PILES_NOTED = 0.32  # share of scores in the piles; a normal score has at most 0.31
_PILES_HINGE = 0.45  # trained hinge critics have 0.48 to 0.97
_FOLDS = 5
_FITTED = 100_000  # scores of each kind are enough to fit a map and to check it
_RATIOS = ("log_ratio", "logit")  # kinds of scores that are log-ratios as they are
_TURNED = "obrs.diagnose(-log_ratio_real, -log_ratio_fake, budget)"
_LOGITS = "obrs.ratios.critics.from_logit(logit)"
_NO_PROMISE = ("unfit", "untestable")  # verdicts on ratios that nobody should believe
_WIDTH = 80
_RATIO, _BUDGET, _LEFT = "the log-ratio", "at this budget", "divergence between target and kept"
_WHAT_TO_DO = (
    "compare them where they overlap: fit the ratio on features, obrs.refit(..., features=...); or "
    "score more held-out samples"
)


class Health(NamedTuple):
    """Scores that are not finite, and ties among scores, each for real and for fake samples.

    Attributes:
        nan, plus_inf, minus_inf: How many scores are NaN, +inf and -inf.
        at_top, at_bottom: Shares of the scores that are equal to the largest and to the smallest one.
        piled: Share of all scores near -1 or +1.
        repeated: How many scores were left out because the same ones had come before.
    """

    nan: tuple[int, int]
    plus_inf: tuple[int, int]
    minus_inf: tuple[int, int]
    at_top: tuple[float, float]
    at_bottom: tuple[float, float]
    piled: float
    repeated: tuple[int, int] = (0, 0)

    @property
    def broken(self) -> str:
        """The scores that no ratio can have, in words: NaN, r infinite for a fake, or r = 0 for a real sample."""
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
        verdict: "fit", "repairable", "unfit" or "untestable".
        reason: Why, in a sentence.
        repair: The call that repairs, as code; empty if nothing needs repair, or if no call is known to help. If the
            ratio is fit at this budget alone, weights, the profile and larger budgets need this call.
        notes: Further remarks.
        budget: Proposals per kept sample.
        n_real, n_fake: How many scores there were.
        health: Scores that are not finite, ties at the ends, and piles.
        mean_ratio, mean_inverse: E_Q[r] and E_P[1/r].
        mean_repaired: E_Q[r] after the repair; without one, the same as before.
        reliability: The calibration curve and Turner's Z.
        auc: Probability that a real sample scores above a fake one.
        log_loss: Log-loss of the scores as a classifier, each kind with weight one half; chance has log 2.
        max_budget: M of this sample, the largest ratio over the mean ratio.
        max_growth: By which factor M would grow with ten times as many fakes; about 1 if r is bounded.
        ess: Effective sample size per fake without rejection.
        missing_support: Share of the target that the model never makes, if it is above 0 by 3 standard errors.
        above_all_fakes: Share of the real scores above every fake one.
        at_budget: What matters at this budget.
        calibration: The repair, fitted on all scores; None without one.
        raw: Log-ratios of real and fake samples.
        repaired: The same after the repair, cross-fitted; None without one.
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
        """Return one flat dict per finding: about, name, value, low, high, mark ("", "!" or "~") and an explanation."""
        return _rows(self)

    def to_json(self) -> str:
        """Return the diagnosis as JSON: verdict, rows and calibration curve; infinities and NaN are null."""
        keys = ("verdict", "reason", "repair", "notes", "budget", "n_real", "n_fake")
        summary = {key: getattr(self, key) for key in keys}
        bins = ("claimed", "observed", "error", "real", "fake")
        curve = {key: getattr(self.reliability, key).tolist() for key in bins}
        content = {**summary, "health": self.health._asdict(), "rows": self.rows(), "curve": curve}
        return json.dumps(finite(content), indent=2)

    @property
    def _headline(self) -> str:
        counts = f"{self.n_real:,} real and {self.n_fake:,} fake scores"
        return f"{self.verdict.upper()} at a budget of {self.budget:g}, by {counts}"

    def _repr_html_(self) -> str:
        """Return the diagnosis as what a notebook shows: the verdict, what to do, and a table of all findings."""
        said = [("because", self.reason), ("repair", self.repair), *(("note", note) for note in self.notes)]
        lines = [
            [row["name"], row["mark"], _short(row["value"]), _between(row), row["says"], row["about"]]
            for row in self.rows()
        ]
        drawn = html_table(["finding", "", "value", "95 % interval", "", "about"], lines)
        first = paragraph("", strong=self._headline)
        return "\n".join([first, *(paragraph(text, strong=word) for word, text in said if text), drawn])

    def __str__(self) -> str:
        """Return the diagnosis as a page of at most 80 columns."""
        lines = [self._headline]
        lines += _wrapped("because  ", self.reason)
        if self.repair:
            lines += _wrapped("repair   ", self.repair)
        for note in self.notes:
            lines += _wrapped("note     ", note)
        about = ""
        for row in self.rows():
            if row["about"] != about:
                about = row["about"]
                lines += ["", about]
            cells = f"{row['mark']:1} {row['name']:18}{_short(row['value']):>7} {_between(row):>17}"
            lines.append(f"{cells}  {row['says']}".rstrip())
        return "\n".join(lines)


def diagnose(
    log_ratio_real: Array, log_ratio_fake: Array, budget: float, *, kind: str | None = None, seed: int = 0
) -> Diagnosis:
    """Tell whether a log-ratio is good enough to reject with at this budget.

    Args:
        log_ratio_real: Log-ratios of real samples that the critic was not trained on, shape `(n,)` or `(n, 1)`.
        log_ratio_fake: Log-ratios of fresh samples of the model, likewise.
        budget: Proposals per kept sample.
        kind: What the scores are, if you know it. With "log_ratio" or "logit" they are never taken for the output
            of a hinge critic. "hinge", "wgan" and "lsgan" are outputs of critics that have no log-ratio: the verdict
            is "unfit", however good they look.
        seed: Decides the folds in which repairs are tried.

    Returns:
        A record with the `verdict` "fit", "repairable", "unfit" or "untestable", the `reason`, the call that is the
        `repair`, and all the numbers behind them; `print` shows a page of text.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.5, 1, 2000), rng.normal(-0.5, 1, 2000)  # log-ratios of two normals
        >>> diagnose(real, fake, budget=2.6).verdict
        'fit'
        >>> steep = diagnose(3 * real, 3 * fake, budget=2.6)
        >>> steep.verdict, steep.repair
        ('repairable', 'obrs.ratios.calibration.Temperature.fit(log_ratio_real, log_ratio_fake)')

    References:
        | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), Sec. 4.1
    """
    k = check_budget(budget)
    lost = _lost(kind)
    scores = known_scores(log_ratio_real, "log_ratio_real"), known_scores(log_ratio_fake, "log_ratio_fake")
    scores, repeated = _once(scores)
    health = _health(*scores)._replace(repeated=repeated)
    rng = np.random.default_rng(seed)
    raw = _usable(scores, health, rng)
    profile = Profile(raw[1])
    profile.log_c(k)  # a budget that cannot be met is refused here
    evidence = Evidence.of(raw)
    verdict = _verdict(raw, health, evidence, rng, lost=lost, guess=kind is None)
    at_budget = AtBudget.of(raw, profile, k, verdict.reference or raw, rng, repair=verdict.calibration)
    repaired = verdict.reference if verdict.calibration is not None else None
    verdict = _relaxed(verdict, at_budget.harmless)
    after = evidence if repaired is None else Evidence.of(repaired)
    missing = after.missing_support() if verdict.name in ("fit", "repairable") else None
    if missing is not None or verdict.name in _NO_PROMISE:
        at_budget = at_budget.without_promises()
    tail_index = evidence.mean_ratio.tail_index
    found = Diagnosis(
        verdict=verdict.name,
        reason=_reason(verdict, missing, at_budget),
        repair=verdict.repair,
        notes=(),
        budget=k,
        n_real=len(scores[0]),
        n_fake=len(scores[1]),
        health=health,
        mean_ratio=evidence.mean_ratio,
        mean_inverse=evidence.mean_inverse,
        mean_repaired=after.mean_ratio,
        reliability=evidence.curve,
        auc=evidence.auc,
        log_loss=evidence.log_loss,
        max_budget=profile.max_budget,
        max_growth=10.0 ** min(1 / max(tail_index, 1e-9), 300.0),
        ess=profile.ess(),
        missing_support=missing,
        above_all_fakes=float(np.mean(raw[0] > raw[1].max())),
        at_budget=at_budget,
        calibration=verdict.calibration,
        raw=raw,
        repaired=repaired,
    )
    return replace(found, notes=_notes(found))


def _lost(kind: str | None) -> str:
    """Return why scores of this kind have no log-ratio, "" if they are one; refuse scores to convert first."""
    if kind is None or kind in _RATIOS:
        return ""
    reason = lookup({**KINDS, **WITHOUT_RATIO}, kind, "kind of scores")
    if kind in KINDS:
        call = f"obrs.ratios.critics.to_log_ratio(scores, {kind!r}, ...)"
        raise InputError(f"diagnose needs log-ratios, got kind={kind!r}; convert the scores with {call}")
    return str(reason)


def _health(real: Floats, fake: Floats) -> Health:
    finite = [x[np.isfinite(x)] for x in (real, fake)]
    both = np.concatenate(finite)
    if not both.size:
        raise RatioError(f"none of {len(real)} real and {len(fake)} fake scores is finite; check the critic")
    top, bottom = both.max(), both.min()
    discrete = len(np.unique(both)) < _LEAST / 2  # ties are normal then
    piled = [np.mean(np.abs(np.abs(x) - 1) < _NEAR) if x.size else 0.0 for x in finite]

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


def _once(scores: Pair) -> tuple[Pair, tuple[int, int]]:
    """Return the scores without those of repeated rows, and how many of each kind that leaves out.

    Scores that were rounded, and ratios of a few values, also come again and again, but in both kinds. Ties at the ends
    are saturation, and stay.
    """
    finite = [x[np.isfinite(x)] for x in scores]
    both = np.concatenate(finite)
    if not both.size:
        return scores, (0, 0)
    different = [np.unique(x[(x > both.min()) & (x < both.max())]) for x in finite]
    shared = len(np.intersect1d(different[0], different[1], assume_unique=True))
    left_out, kept = [0, 0], list(scores)
    for kind, x in enumerate(scores):
        inside = np.isfinite(x) & (x > both.min()) & (x < both.max())
        again = int(np.count_nonzero(inside)) - len(different[kind])
        if again > _REPEATED * len(x) and shared < 0.01 * len(different[kind]):
            kept[kind], left_out[kind] = np.concatenate([x[~inside], different[kind]]), again
    return (kept[0], kept[1]), (left_out[0], left_out[1])


def _usable(scores: Pair, health: Health, rng: np.random.Generator) -> Pair:
    """Return the scores that a ratio can have, in random order; refuse too few."""
    real, fake = scores[0][scores[0] > -np.inf], scores[1][scores[1] < np.inf]  # this drops NaN, too
    raw = rng.permutation(real), rng.permutation(fake)  # files are often sorted
    if min(map(len, raw)) < _LEAST:
        sizes = f"{len(raw[0])} real and {len(raw[1])} fake"
        left_out = [health.broken] if health.broken else []
        left_out += [f"{sum(health.repeated)} repeated ones"] if any(health.repeated) else []
        why = f" ({', '.join(left_out)} left out)" if left_out else ""
        raise InputError(f"diagnose needs at least {_LEAST} held-out scores of each kind, got {sizes}{why}")
    if raw[1].max() == -np.inf:
        raise RatioError(f"log_ratio_fake has no value above -inf among {len(raw[1])}: no fake has r > 0")
    return raw


class _Verdict(NamedTuple):
    """The verdict, its reason, and the repair.

    Attributes:
        name: "fit", "repairable", "unfit" or "untestable".
        reason: Why.
        repair: The call that repairs; empty if there is none.
        calibration: The map that repairs, fitted on all scores.
        reference: Calibrated log-ratios, cross-fitted, to compare the scores with: those of the scores that come first
            in both sets. None if the scores are calibrated, or no map can be fitted.
    """

    name: str
    reason: str
    repair: str = ""
    calibration: Any = None
    reference: Pair | None = None


def _verdict(
    raw: Pair, health: Health, evidence: Evidence, rng: np.random.Generator, *, lost: str, guess: bool
) -> _Verdict:
    """Return the verdict on a log-ratio, at no particular budget.

    Args:
        raw: Log-ratios of real and fake samples, in random order.
        health: The scores that are not among them, and the piles.
        evidence: The checks of these log-ratios.
        rng: Decides the folds.
        lost: Why the critic that made them has no log-ratio; empty if that is not known.
        guess: Whether piles are a reason to think of a hinge critic.
    """
    if health.broken:
        return _impossible(health)
    faults = evidence.faults()
    off = "; ".join(faults)
    sample = raw[0][:_FITTED], raw[1][:_FITTED]
    lost = lost or (_piled(health, off) if guess else "")
    if not faults and not lost and evidence.overlap >= _OVERLAP:
        return _Verdict("fit", _calibrated(evidence))
    flexible = _fold_by_fold("isotonic", sample, rng) or _fold_by_fold("beta", sample, rng)
    reference = flexible[1] if flexible else None
    if lost:
        return _Verdict("unfit", lost, FINE_TUNE, reference=reference)
    if evidence.auc_z < -ERRORS:
        why = f"real samples score below fake ones (AUC {evidence.auc.value:.3f}): is the sign the wrong way round?"
        return _Verdict("unfit", why, _TURNED, reference=reference)
    if evidence.overlap < _OVERLAP:
        return _Verdict("untestable", _apart(evidence, off), reference=reference)
    if evidence.auc_z <= ERRORS:
        why = f"the scores cannot tell real from fake (AUC {evidence.auc.value:.3f}) but claim to: {off}"
        return _Verdict("unfit", why, FROM_SCRATCH, reference=reference)
    informed = False
    for name in CALIBRATIONS:
        tried = None if name == "identity" else _fold_by_fold(name, sample, rng)
        if tried is None:
            continue
        after = Evidence.of(tried[1], by=sample)
        informed = informed or after.tells()
        if after.tells() and not after.faults():
            call = f"obrs.ratios.calibration.{type(tried[0]).__name__}.fit(log_ratio_real, log_ratio_fake)"
            return _Verdict("repairable", f"{off}; calibrated by {_formula(tried[0])}", call, *tried)
    what = "no monotone map makes it calibrated" if informed else "calibrated, they tell next to nothing"
    return _Verdict("unfit", f"{off}; {what}", FROM_SCRATCH, reference=reference)


def _piled(health: Health, off: str) -> str:
    """Return why the scores look like those of a critic without a log-ratio, "" if they do not."""
    and_off = f": {off}" if off else ""
    if health.piled > _PILES_HINGE:
        return f"{100 * health.piled:.0f} % of the scores lie at -1 and +1, as those of a hinge critic do{and_off}"
    for (real, fake), end in ((health.at_top, "largest"), (health.at_bottom, "smallest")):
        if max(real, fake) > _SATURATED:
            shares = f"{100 * real:.0f} % of the real and {100 * fake:.0f} % of the fake scores share the {end} value"
            return (
                f"{shares}, as scores that were clipped or saturated do, and within it nothing tells r apart{and_off}"
            )
    return ""


def _apart(evidence: Evidence, off: str) -> str:
    among = f"only {evidence.overlap} samples lie among those of the other kind"
    return f"{among}: nothing supports this ratio, and nothing contradicts it" + (f" but {off}" if off else "")


def _relaxed(verdict: _Verdict, harmless: bool) -> _Verdict:
    """Return "fit" for a repairable ratio whose faults do no harm at the budget.

    A ratio that is wrong by a constant factor stays repairable. The constant is harmless at every budget, but the ratio
    itself is wrong.
    """
    if verdict.name != "repairable" or not harmless or isinstance(verdict.calibration, Shift):
        return verdict
    return verdict._replace(name="fit", reason=f"at this budget, where its fault does no harm: {verdict.reason}")


def _impossible(health: Health) -> _Verdict:
    """Return the verdict on impossible scores. Logits repair infinities; for a NaN one must look at its sample."""
    why = f"{health.broken}: no ratio has that"
    if not any(health.nan):
        return _Verdict("unfit", why, _LOGITS)
    name = "log_ratio_real" if health.nan[0] else "log_ratio_fake"
    return _Verdict("unfit", f"{why}; look at the samples numpy.flatnonzero(numpy.isnan({name}))")


def _calibrated(evidence: Evidence) -> str:
    if evidence.tells():
        return f"no fault was found; errors of log r below {evidence.curve.visible:.2g} nats would not show"
    return "calibrated, but there is nothing to gain: the scores cannot tell real from fake, and do not claim to"


def _formula(calibration: Any) -> str:
    name = type(calibration).__name__
    formulas = {
        "Shift": "log r {offset:+.3g}",
        "Temperature": "{slope:.3g} log r",
        "Platt": "{slope:.3g} log r {intercept:+.3g}",
    }
    if name in formulas:
        return formulas[name].format(**vars(calibration))
    return {"Beta": "a beta map", "Isotonic": "an isotonic map"}[name]


def _fold_by_fold(name: str, scores: Pair, rng: np.random.Generator) -> tuple[Any, Pair] | None:
    """Return the calibration of this name, fitted on all scores, and the cross-fitted scores; None if it has no fit."""
    kind = CALIBRATIONS[name]
    real, fake = finite_top(*scores), scores[1]
    folds = rng.permutation(len(real)) % _FOLDS, rng.permutation(len(fake)) % _FOLDS
    try:
        return kind.fit(real, fake), cross_fitted(kind, real, fake, folds)
    except (InputError, RatioError, MissingLibraryError):  # such as scores that separate the two kinds
        return None


def _reason(verdict: _Verdict, missing: Estimate | None, at: AtBudget) -> str:
    """Return the reason, with all that would contradict the verdict further down the page."""
    reason = verdict.reason
    if missing is not None:
        share, low, high = (100 * x for x in (missing.value, missing.low, missing.high))
        where = "of the target lies where the model never goes"
        return f"{reason}; missing support: {share:.1f} % ({low:.1f} to {high:.1f} %) {where}"
    withheld = [key for key, left in at.left.items() if left.promised is None]
    if verdict.name == "fit" and withheld:
        more = "but real samples show that more is left than it promises"
        return f"{reason}; {more} ({', '.join(withheld)}): r has a heavy tail, or the model misses a part of the target"
    return reason


def _notes(found: Diagnosis) -> tuple[str, ...]:
    health = found.health
    notes = []
    if found.missing_support is not None:
        notes.append("no ratio brings missing support back: rejection keeps what the model makes. Train the model")
    elif not found.mean_repaired.trusted and found.above_all_fakes > TOLERATED:
        share = f"{100 * found.above_all_fakes:.1f} %"
        notes.append(f"{share} of the real samples score above every fake: the model makes such samples hardly ever")
    elif far := _far_above(found.raw):
        share = f"{100 * far / len(found.raw[0]):.1g} % of the real samples score far above every fake"
        notes.append(f"{share}: the model never makes such samples, or their scores are wrong")
    if any(health.repeated):
        counts = f"{health.repeated[0]:,} real and {health.repeated[1]:,} fake scores"
        notes.append(f"rows were repeated: {counts} had come before, and were left out")
    if found.verdict == "untestable":
        notes.append(_WHAT_TO_DO)
    elif found.log_loss.value < _HARDLY:
        notes.append(f"a log-loss of {found.log_loss.value:.2g}: the two hardly overlap in what the ratio sees")
        notes.append(_WHAT_TO_DO)
    if found.verdict != "unfit" and (log_r := _finite_mean((found.repaired or found.raw)[0])) > log(found.budget):
        notes.append(removable_kl(log_r, [found.budget]))
    slope = getattr(found.calibration, "slope", 1.0)
    if slope < _NOISY:
        notes.append(
            f"a slope of {slope:.2g} is what noise or overfitting leaves. Repaired, the ratio claims no more than it "
            "knows; what the noise hid is lost, and a new fit may find it"
        )
    if isinstance(found.calibration, Shift):
        notes.append("a constant does not change the rule at a budget; it changes E[r], weights and the ratio itself")
    if found.verdict == "fit" and found.repair:
        notes.append("the rule at this budget needs no repair; weights, the profile and larger budgets do")
    if found.verdict in ("repairable", "unfit") and health.piled > _PILES_NOTED and "hinge" not in found.reason:
        share = f"{100 * health.piled:.0f} % of the scores lie near -1 and +1"
        notes.append(f"{share}: if a hinge critic made them, say so with kind='hinge' (--hinge)")
    if found.repair == FINE_TUNE:
        notes.append(f"if that is unfit, as spectral normalisation may make it, start from scratch: {FROM_SCRATCH}")
    for (real, fake), end in ((health.at_top, "largest"), (health.at_bottom, "smallest")):
        if real or fake:
            shares = f"{100 * real:.1f} % of the real and {100 * fake:.1f} % of the fake scores"
            notes.append(f"saturated: {shares} share the {end} value")
    if health.plus_inf[0]:
        notes.append(f"{health.plus_inf[0]} real scores are +inf, which says that the model never goes there")
    both = np.concatenate(found.raw)
    if found.verdict != "fit" and both.min() < both.max() and (doubt := check_scores(both, "log_ratio")):
        notes.append(doubt)
    return tuple(notes)


def _finite_mean(x: Floats) -> float:
    return float(np.mean(x[np.isfinite(x)]))


def _far_above(raw: Pair) -> int:
    """Count the real samples whose ratio is higher than that of every fake by more than so many fakes explain."""
    return int(np.count_nonzero(raw[0] > raw[1].max() + log(len(raw[1])) + ERRORS))


def _rows(d: Diagnosis) -> list[dict[str, Any]]:
    """Return one dict per finding, in the order of the page."""
    at, curve = d.at_budget, d.reliability

    def off(z: float) -> str:
        return _if(curve.off and abs(z) > ERRORS)

    def doubt(wrong: bool) -> str:  # without overlap there is nothing to calibrate with
        return "~" if wrong and d.verdict == "untestable" else _if(wrong)

    rows = [
        _mean("E_Q[r]", d.mean_ratio, "≤ 1; below 1: missing support"),
        _mean("E_P[1/r]", d.mean_inverse, "≤ 1; below 1: fakes off the data"),
        _missing(d),
        _row(_RATIO, "above all fakes", d.above_all_fakes, "", "of the real scores"),
        _row(_RATIO, "Turner's Z", curve.z, off(curve.z), "labels against claims; within 3"),
        _row(_RATIO, "Z of the bins", curve.z_bins, off(max(curve.z_bins, 0.0)), "bin by bin; below 3"),
        _row(_RATIO, "Z of the slope", curve.z_slope, off(curve.z_slope), "< 0: too steep"),
        _row(_RATIO, "error of log r", curve.error_of_log_ratio, _if(curve.off), "nats; 0.05 is tolerated"),
        _row(_RATIO, "would not show", curve.visible, "", "nats: errors below it"),
        _row(
            _RATIO,
            "AUC",
            d.auc,
            _if(0.5 - d.auc.value > ERRORS * d.auc.standard_error),
            "0.5: cannot tell real from fake",
        ),
        _row(
            _RATIO,
            "log-loss",
            d.log_loss,
            _if(d.log_loss.value - log(2) > ERRORS * d.log_loss.standard_error),
            "0.693 is that of a coin",
        ),
        _row(_RATIO, "tail index", d.mean_ratio.tail_index, "", "of r, by Hill; above 2 wanted"),
        _maximum(d),
        _row(_RATIO, "ESS", d.ess, "", "per fake, without rejection"),
        _row(_BUDGET, "log 1/c", -at.log_c, "", "beyond it: kept for sure"),
        _row(_BUDGET, "sure, real", at.sure_real, "", "of the real scores lie beyond"),
        _row(_BUDGET, "sure, fake", at.sure_fake, "", "of the fake scores lie beyond"),
        _row(_BUDGET, "rate", at.rate, "", "that a fresh sample would keep"),
        _row(_BUDGET, "ESS, kept", at.ess, "", "per kept sample, with weights"),
        _row(_BUDGET, "error where a < 1", at.error, doubt(at.off), "nats of log a; 0 where a = 1"),
        _row(_BUDGET, "misjudged", at.misjudged, doubt(at.misjudged > TOLERATED), "decided otherwise if calibrated"),
    ]
    most = f"of KL, of at most {log(d.budget):.3f} = log K"
    raised = -at.removed.value > ERRORS * at.removed.standard_error
    rows.append(_row(_LEFT, "kl, removed", at.removed, _if(raised), most))
    if at.removed_repaired is not None:
        rows.append(_row(_LEFT, "kl, repaired", at.removed_repaired, "", "removed, with the repair"))
    source = "profile of the fakes" if d.repaired is None else "fakes, calibrated"
    withheld = "real samples show more" if d.missing_support is None else "support is missing"
    withheld = f"the ratio is {d.verdict}" if d.verdict in _NO_PROMISE else withheld
    for key, left in at.left.items():
        if left.promised is None:
            rows.append(_row(_LEFT, f"{key}, promised", nan, "!", f"withheld: {withheld}"))
        else:
            mark = "~" if left.unreliable else ""
            rows.append(_row(_LEFT, f"{key}, promised", left.promised, mark, f"by the {source}"))
        rows.append(_row(_LEFT, f"{key}, at least", left.at_least, "", "as far as held-out samples show"))
    return rows


def _row(about: str, name: str, value: float | Estimate, mark: str, says: str) -> dict[str, Any]:
    found = value if isinstance(value, Estimate) else Estimate(value, nan, nan)
    numbers = {"value": found.value, "low": found.low, "high": found.high}
    return {"about": about, "name": name, **numbers, "mark": mark, "says": says}


def _if(wrong: bool) -> str:
    return "!" if wrong else ""


def _mean(name: str, mean: Mean, says: str) -> dict[str, Any]:
    """Return the row of a mean that is at most 1; it has the mark of a fault only where the verdict counts one."""
    if mean.z > ERRORS and not mean.off:
        says = f"above 1; up to {1 + TOLERATED:g} is tolerated"
    return _row(_RATIO, name, mean.estimate, "!" if mean.off else "" if mean.trusted else "~", says)


def _missing(d: Diagnosis) -> dict[str, Any]:
    name = "missing support"
    if d.missing_support is not None:
        return _row(_RATIO, name, d.missing_support, "!", "of the target is never made")
    if d.verdict in ("unfit", "untestable") or not d.mean_repaired.trusted:
        return _row(_RATIO, name, nan, "~", "cannot be told from this ratio")
    return _row(_RATIO, name, 0.0, "", "none was found")


def _maximum(d: Diagnosis) -> dict[str, Any]:
    if d.max_growth <= 1.1:
        return _row(_RATIO, "M", d.max_budget, "", "max r / E[r]: it exists")
    grows = f"×{d.max_growth:.2g} with 10× the fakes" if d.max_growth < 99 else "it grows with the fakes"
    return _row(_RATIO, "M", d.max_budget, "~", f"so far; {grows}")


def _wrapped(title: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=title, subsequent_indent=" " * len(title))


def _between(row: dict[str, Any]) -> str:
    return f"{_short(row['low'])} … {_short(row['high'])}" if not isnan(row["low"]) else ""


def _short(x: float) -> str:
    if isnan(x):
        return "?"
    if abs(x) >= 1e4 or 1e-9 < abs(x) < 5e-4:  # below that it is rounding
        return f"{x:.0e}" if isfinite(x) else str(x)
    return f"{x + 0.0:.3f}" if abs(x) < 10 else f"{x:.4g}"
