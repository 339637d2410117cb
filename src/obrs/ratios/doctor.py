"""Check by the scores of held-out samples whether a log-ratio is good enough to reject with.

A ratio is *unfit* if it has impossible scores, if its critic has no log-ratio, or if no monotone map calibrates it;
*untestable* if fewer than 20 samples lie among those of the other kind; *repairable* if a map calibrates it on folds
that the map was not fitted on; and *fit* if the score test and E_Q[r] are within 3 standard errors or 5 %, or if a
repair would change less than 5 % at the budget. Scores show calibration, not whether the ratio sees what matters: where
the two sets hardly overlap, the verdict on a calibrated ratio is "calibrated for what it sees".
"""

import json
import textwrap
from dataclasses import dataclass, field, replace
from math import inf, isfinite, isnan, log, nan
from typing import Any, NamedTuple

import numpy as np

from .._checks import check_budget, check_labels, check_seed
from .._text import finite, html_table, lookup, paragraph
from ..critics import FINE_TUNE, FROM_SCRATCH, KINDS, WITHOUT_RATIO, check_scores
from ..errors import InputError, InputTypeError, MissingLibraryError, RatioError
from ..estimate import Estimate
from ..profile import Profile, removable_kl
from ..types import Array
from .calibration import CALIBRATIONS, Affine, cross_fit
from .evidence import (
    ERRORS,
    TOLERATED,
    ClassMean,
    Evidence,
    Floats,
    Pair,
    class_means,
    finite_top,
    kl_removed,
    known_scores,
    reliability,
    removed_terms,
)

__all__ = ["SEEN", "Advice", "AtBudget", "Diagnosis", "Note", "diagnose"]

SEEN = "calibrated for what it sees"
"""The verdict on a calibrated ratio of sets that hardly overlap."""

_LEAST = 100  # scores of each kind: folds in which a slope can be fitted
_OVERLAP = 20  # samples among those of the other kind; with fewer, nothing can contradict the ratio
_HARDLY = 0.2  # log-loss below which the two kinds hardly overlap in what the ratio sees
_GAP = 3.0  # times log K: a KL divergence beyond which a budget can only remove a small part
_SATURATED = 0.1  # share of one kind that shares an end of the scores
_REPEATED = 0.2  # share of the scores that came before; of rounded scores as many are also found in the other kind
_NEAR, _PILED, _PILED_MAYBE = 0.25, 0.45, 0.32  # of normal scores 0.31 are near -1 and +1, of a hinge critic's 0.48
_FOLDS, _FITTED = 5, 100_000  # scores of each kind are enough to fit a map and to check it
_WIDTH = 80


class Advice(NamedTuple):
    """What to do: a call in Python, the words for the command line, and whether it repairs the ratio."""

    python: str
    command: str
    repairs: bool = True


class Note(NamedTuple):
    """A remark, with advice if there is something to do."""

    text: str
    advice: Advice | None = None


_CALL = "in Python: {}"
_TUNE = Advice("obrs.tune(real, propose, budget=budget)", "compare ratios by a judge: obrs tune", False)
_FURTHER = Advice(FINE_TUNE, _CALL.format(FINE_TUNE))
_ANEW = Advice(FROM_SCRATCH, _CALL.format(FROM_SCRATCH))
_TURN = Advice("obrs.diagnose(-real, -fake, budget)", "turn the sign of the scores, or are REAL and FAKE swapped?")
_LOGITS = Advice("obrs.critics.from_logit(logit)", "score again, and write logits: --kind logit")
_FEATURES = Advice("obrs.refit(..., features=...)", "score more samples, or fit the ratio on features", False)
_REPAIRS = {
    "shift": "obrs.ratios.calibration.Affine.fit(real, fake, slope=False)",
    "temperature": "obrs.ratios.calibration.Affine.fit(real, fake, intercept=False)",
    "platt": "obrs.ratios.calibration.Affine.fit(real, fake)",
    "isotonic": "obrs.ratios.calibration.Isotonic.fit(real, fake)",
}


@dataclass(frozen=True)
class AtBudget:
    """What a ratio does at a budget K, where a = min(c r, 1).

    Args:
        log_c: The constant. Samples with r above 1/c are always kept, and errors of r change nothing there.
        rate: Share of fresh proposals that would be kept.
        off: Whether log a, up to a constant, is wrong where a < 1.
        misjudged: E_Q|a - a'|, with a' from the repaired ratio: the share of decisions that the repair would change.
        removed: By how much rejection lowers KL(P||Q), E_P[log a] - log Z, at most log K. It needs no true ratio, but
            it is the KL of what these scores see: it does not compare ratios of different features.
        repaired, gain: The same with the repair, and the difference; None without a repair.
    """

    log_c: float
    rate: Estimate
    off: bool
    misjudged: float
    removed: Estimate
    repaired: Estimate | None = None
    gain: Estimate | None = None

    def harmless(self, budget: float) -> bool:
        """Whether the repair would change next to nothing at this budget."""
        if self.gain is None or self.off or self.misjudged > TOLERATED:
            return False
        return not self.gain.value > max(ERRORS * self.gain.standard_error, TOLERATED * log(budget))


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Result of `diagnose`; it prints as a page of text.

    Args:
        verdict: "fit", "calibrated for what it sees", "repairable", "unfit" or "untestable".
        reason, advice: Why, in a sentence, and what to do; no advice is None.
        notes: Further remarks.
        budget, n_real, n_fake: Proposals per kept sample, and how many scores there were.
        evidence, at_budget: The checks of the scores as they are, and what the ratio does at this budget.
        missing_support: Share of the target that the model never makes, if it is above 0 by 3 standard errors.
        classes: E_Q[r | y] of each label, if there are labels.
        calibration: The repair, fitted on all scores; None without one.
        raw, repaired: Log-ratios of real and fake samples in random order, as they are and cross-fitted.
    """

    verdict: str
    reason: str
    advice: Advice | None
    notes: tuple[Note, ...]
    budget: float
    n_real: int
    n_fake: int
    evidence: Evidence
    missing_support: Estimate | None
    classes: tuple[ClassMean, ...]
    at_budget: AtBudget
    calibration: Any
    raw: Pair = field(repr=False)
    repaired: Pair | None = field(repr=False)

    @property
    def repair(self) -> str:
        """The call in Python that repairs the ratio; empty if there is none."""
        return self.advice.python if self.advice is not None and self.advice.repairs else ""

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat dict per number: name, value, low, high, mark ("", "!" or "~") and an explanation."""
        e, at, missing = self.evidence, self.at_budget, self.missing_support
        unknown = self.verdict in ("unfit", "untestable") or (missing is None and not e.mean_ratio.trusted)
        harmful = at.removed.value < -ERRORS * at.removed.standard_error
        rows = [
            _row("E_Q[r]", e.mean_ratio.estimate, "!" * e.mean_ratio.deviates, "≤ 1; below 1: missing support"),
            _row("missing support", nan if unknown else missing or 0.0, "~" * unknown or "!" * bool(missing), "of P"),
            _row("score test", max(e.curve.z, abs(e.curve.slope)), "!" * e.curve.deviates, "below 3: calibrated"),
            _row("error of log r", e.curve.rms, "!" * e.curve.deviates, "nats; 0.05 is tolerated"),
            _row("would not show", e.curve.visible, "", "nats: errors below it"),
            _row("AUC", e.auc, "!" * (e.auc_z < -ERRORS), "0.5: cannot tell real from fake"),
            _row("log-loss", e.log_loss, "", "0.693 is that of a coin"),
            _row("rate", at.rate, "", f"kept at K = {self.budget:g}"),
            _row("misjudged", at.misjudged, "!" * (at.misjudged > TOLERATED), "decided otherwise if calibrated"),
            _row("kl, removed", at.removed, "!" * harmful, f"of at most {log(self.budget):.3f} = log K"),
        ]
        if at.repaired is not None:
            rows.append(_row("kl, repaired", at.repaired, "", "removed, with the repair"))
        for mean in self.classes:
            with np.errstate(over="ignore"):
                excess = (float(np.exp(mean.log_excess + s * 1.96 * mean.error)) for s in (0, -1, 1))
                mark = "!" if mean.deviates and mean.known else "" if mean.known else "~"
                rows.append(_row(f"label {mean.label}", Estimate(*excess), mark, "E_Q[r | y] q(y) / p(y); 1 wanted"))
        return rows

    def to_json(self) -> str:
        """Return the diagnosis as JSON: verdict, rows and calibration curve; infinities and NaN are null."""
        keys = ("verdict", "reason", "repair", "budget", "n_real", "n_fake")
        bins = ("claimed", "observed", "error", "real", "fake")
        content = {key: getattr(self, key) for key in keys}
        content["notes"] = [note.text for note in self.notes]
        content |= {"rows": self.rows(), "curve": {key: getattr(self.evidence.curve, key).tolist() for key in bins}}
        return json.dumps(finite(content), indent=2)

    def page(self, *, command: bool = False) -> str:
        """Return the diagnosis as a page of at most 80 columns, with advice for Python or for the command line."""
        lines = [f"{self.verdict.upper()} at a budget of {self.budget:g}"]
        for word, text in self._sentences(command):
            lines += textwrap.wrap(text, _WIDTH, initial_indent=f"{word:9}", subsequent_indent=" " * 9)
        lines += ["", f"by {self.n_real:,} real and {self.n_fake:,} fake scores"]
        for row in self.rows():
            cells = f"{row['mark']:1} {row['name']:18}{_short(row['value']):>7} {_interval(row):>17}"
            lines.append(f"{cells}  {row['says']}".rstrip())
        return "\n".join(lines)

    def _sentences(self, command: bool) -> list[tuple[str, str]]:
        """Return the words and sentences above the table."""
        sentences = [("because", self.reason), ("do", str(self.advice[command]) if self.advice else "")]
        sentences += [("note", text + (f": {advice[command]}" if advice else "")) for text, advice in self.notes]
        return [(word, text) for word, text in sentences if text]

    def __str__(self) -> str:
        return self.page()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, what to do, and a table."""
        first = paragraph(f"by {self.n_real:,} real and {self.n_fake:,} fake scores", strong=self.verdict.upper())
        lines = [[row["name"], row["mark"], _short(row["value"]), _interval(row), row["says"]] for row in self.rows()]
        drawn = html_table(["finding", "", "value", "95 % interval", ""], lines)
        return "\n".join([first, *(paragraph(text, strong=word) for word, text in self._sentences(False)), drawn])


def diagnose(
    real: Array,
    fake: Array,
    budget: float,
    labels: tuple[Any, Any] | None = None,
    *,
    kind: str | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Check whether a log-ratio is good enough to reject with at this budget.

    Args:
        real: Log-ratios of real samples that the critic was not trained on, shape `(n,)` or `(n, 1)`.
        fake: Log-ratios of fresh samples of the model, likewise.
        budget: Proposals per kept sample.
        labels: Labels of the real samples and of the fakes: tests E_Q[r | y] = p(y) / q(y).
        kind: What the scores are, if you know it. "log_ratio" and "logit" are never taken for the output of a hinge
            critic. "hinge", "wgan" and "lsgan" have no log-ratio: the verdict is "unfit", however good they look.
        seed: Decides the folds in which repairs are tried.

    Returns:
        A record with the `verdict`, the `reason`, the `advice`, and all the numbers behind them.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.5, 1, 2000), rng.normal(-0.5, 1, 2000)  # log-ratios of two normals
        >>> diagnose(real, fake, budget=2.6).verdict
        'fit'
        >>> steep = diagnose(3 * real, 3 * fake, budget=2.6)
        >>> steep.verdict, steep.repair
        ('repairable', 'obrs.ratios.calibration.Affine.fit(real, fake, intercept=False)')

    References:
        | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), Sec. 4.1
    """
    k, lost = check_budget(budget), _no_ratio(kind)
    given = known_scores(real, "real"), known_scores(fake, "fake")
    scores, repeated = _drop_repeated(given)
    rng = np.random.default_rng(check_seed(seed))
    raw, broken = _drop_impossible(scores, repeated, rng)
    profile = Profile(raw[1])
    profile.log_c(k)  # a budget that cannot be met is refused here
    evidence = Evidence.measure(raw)
    verdict = _judge(raw, evidence, broken, lost or (_piles(raw) if kind is None else ""), rng)
    at = _measure_at_budget(raw, profile, k, verdict)
    after = evidence if verdict.repaired is None else Evidence.measure(verdict.repaired)
    missing = after.missing_support() if verdict.verdict in ("fit", "repairable") else None
    nats = float(np.mean(_finite(verdict.repaired or raw)[0]))
    verdict = _refine_verdict(verdict, at, k, evidence, missing, nats)
    facts: dict[str, Any] = {"budget": k, "n_real": len(scores[0]), "n_fake": len(scores[1]), "raw": raw}
    facts |= {"evidence": evidence, "missing_support": missing, "at_budget": at}
    facts["classes"] = () if labels is None else _means_by_label(given, labels)
    diagnosis = Diagnosis(**verdict._asdict(), **facts, notes=())
    return replace(diagnosis, notes=_notes(diagnosis, after, repeated, nats, no_ratio=bool(lost), kind=kind))


def _no_ratio(kind: str | None) -> str:
    """Return why scores of this kind have no log-ratio, "" if they have one; refuse those to convert first."""
    if kind in (None, "log_ratio", "logit"):
        return ""
    reason = lookup({**KINDS, **WITHOUT_RATIO}, kind, "kind of scores")
    if kind in KINDS:
        call = f"obrs.critics.to_log_ratio(scores, {kind!r}, ...)"
        raise InputError(f"diagnose needs log-ratios, got kind={kind!r}; convert the scores with {call}")
    return str(reason)


def _drop_repeated(scores: Pair) -> tuple[Pair, tuple[int, int]]:
    """Return the scores without those of repeated rows, and how many of each kind that leaves out.

    Scores that were rounded come again in both kinds. Ties at the ends are saturation, and stay.
    """
    both = np.concatenate(_finite(scores))
    if not both.size:
        raise RatioError(f"none of {len(scores[0])} real and {len(scores[1])} fake scores is finite; check the critic")
    inside = [np.isfinite(x) & (x > both.min()) & (x < both.max()) for x in scores]
    different = [np.unique(x[i]) for x, i in zip(scores, inside, strict=True)]
    shared = len(np.intersect1d(different[0], different[1], assume_unique=True))
    left_out, kept = [0, 0], list(scores)
    for kind, (x, i) in enumerate(zip(scores, inside, strict=True)):
        again = int(np.count_nonzero(i)) - len(different[kind])
        if again > _REPEATED * len(x) and shared < 0.01 * len(different[kind]):
            kept[kind], left_out[kind] = np.concatenate([x[~i], different[kind]]), again
    return (kept[0], kept[1]), (left_out[0], left_out[1])


def _drop_impossible(scores: Pair, repeated: tuple[int, int], rng: np.random.Generator) -> tuple[Pair, str]:
    """Return the scores that a ratio can have, in random order, and the others in words; raise if too few remain.

    Impossible are NaN, an infinite r of a fake, and r = 0 of a real sample.
    """
    real, fake = scores
    wrong = {"NaN among the real scores": np.isnan(real), "NaN among the fake scores": np.isnan(fake)}
    wrong |= {"+inf among the fake scores": fake == inf, "-inf among the real scores": real == -inf}
    broken = ", ".join(f"{np.count_nonzero(bad)} {what}" for what, bad in wrong.items() if bad.any())
    raw = rng.permutation(real[real > -inf]), rng.permutation(fake[fake < inf])  # files are often sorted
    if min(map(len, raw)) < _LEAST:
        left_out = [broken] * bool(broken) + [f"{sum(repeated)} repeated ones"] * any(repeated)
        why = f" ({', '.join(left_out)} left out)" if left_out else ""
        sizes = f"{len(raw[0])} real and {len(raw[1])} fake"
        raise InputError(f"diagnose needs at least {_LEAST} held-out scores of each kind, got {sizes}{why}")
    if raw[1].max() == -inf:
        raise RatioError(f"fake has no score above -inf among {len(raw[1])}: no fake has r > 0")
    return raw, broken


class _Verdict(NamedTuple):
    """The verdict, its reason, what to do, the map that repairs and the scores after it, cross-fitted."""

    verdict: str
    reason: str
    advice: Advice | None = None
    calibration: Any = None
    repaired: Pair | None = None


def _judge(raw: Pair, evidence: Evidence, broken: str, lost: str, rng: np.random.Generator) -> _Verdict:
    """Return the verdict on a log-ratio, at no particular budget."""
    if broken:
        hint = "; look at the samples numpy.flatnonzero(numpy.isnan(...))" if "NaN" in broken else ""
        return _Verdict("unfit", f"{broken}: no ratio has that{hint}", None if hint else _LOGITS)
    off = "; ".join(evidence.faults())
    if lost:
        return _Verdict("unfit", f"{lost}{f': {off}' if off else ''}", _FURTHER)
    if not off and evidence.overlap >= _OVERLAP:
        if evidence.tells():
            visible = f"errors of log r below {evidence.curve.visible:.2g} nats would not show"
            return _Verdict("fit", f"no fault was found; {visible}")
        return _Verdict("fit", "calibrated, but there is nothing to gain: the scores cannot tell real from fake")
    if evidence.auc_z < -ERRORS:
        why = f"real samples score below fake ones (AUC {evidence.auc.value:.3f}): is the sign the wrong way round?"
        return _Verdict("unfit", why, _TURN)
    if evidence.overlap < _OVERLAP:
        why = f"only {evidence.overlap} samples lie among those of the other kind: nothing supports this ratio"
        return _Verdict("untestable", f"{why}, and nothing contradicts it{f' but {off}' if off else ''}", _FEATURES)
    if evidence.auc_z <= ERRORS:
        why = f"the scores cannot tell real from fake (AUC {evidence.auc.value:.3f}) but claim to: {off}"
        return _Verdict("unfit", why, _ANEW)
    return _try_repairs(raw, off, rng)


def _try_repairs(raw: Pair, off: str, rng: np.random.Generator) -> _Verdict:
    """Try the calibrations, the simplest first: each is fitted on some folds and checked on the others."""
    sample = finite_top(*raw)[:_FITTED], raw[1][:_FITTED]
    informed = False
    for name, call in _REPAIRS.items():
        folds = rng.permutation(len(sample[0])) % _FOLDS, rng.permutation(len(sample[1])) % _FOLDS
        try:
            fit, mapped = CALIBRATIONS[name](*sample), cross_fit(CALIBRATIONS[name], sample, folds)
        except (InputError, RatioError, MissingLibraryError):  # such as scores that separate the two kinds
            continue
        after = Evidence.measure(mapped, by=sample)
        informed = informed or after.tells()
        if after.tells() and not after.faults():
            by = f"{fit.slope:.3g} log r {fit.intercept:+.3g}" if isinstance(fit, Affine) else "an isotonic map"
            advice = Advice(call, _CALL.format(call))
            return _Verdict("repairable", f"{off}; calibrated by {by}", advice, fit, mapped)
    what = "no monotone map makes it calibrated" if informed else "calibrated, they tell next to nothing"
    return _Verdict("unfit", f"{off}; {what}", _ANEW)


def _measure_at_budget(raw: Pair, profile: Profile, budget: float, verdict: _Verdict) -> AtBudget:
    """Return what the ratio does at a budget, and what the repair would change."""
    log_c, row = profile.log_c(budget), profile.plan([budget])[0]
    rate = Estimate(row["rate"], row["rate_low"], row["rate_high"])
    if verdict.repaired is None:
        return AtBudget(log_c, rate, False, 0.0, kl_removed(removed_terms(raw, log_c, budget)))
    sample = raw[0][: len(verdict.repaired[0])], raw[1][: len(verdict.repaired[1])]
    better = np.asarray(verdict.calibration(sample[1]))
    both = (sample[1], log_c), (better, Profile(better).log_c(budget))
    kept = [np.exp(np.minimum(np.maximum(x, -1e300) + c, 0)) for x, c in both]
    before = removed_terms(sample, log_c, budget)
    after = removed_terms(verdict.repaired, Profile(verdict.repaired[1]).log_c(budget), budget)
    with np.errstate(invalid="ignore"):
        gain = kl_removed((after[0] - before[0], after[1] - before[1]))
    misjudged = float(np.mean(np.abs(kept[0] - kept[1])))
    return AtBudget(log_c, rate, _is_wrong_below(raw, -log_c), misjudged, kl_removed(before), kl_removed(after), gain)


def _is_wrong_below(raw: Pair, top: float) -> bool:
    """Tell whether log-ratios are wrong below 1/c, where a < 1; a constant does not count, as c makes up for it."""
    real, fake = (x[(x < top) & np.isfinite(x)] for x in raw)
    if min(len(real), len(fake)) < _OVERLAP:
        return False
    shift = Affine.fit(real, fake, slope=False)
    return reliability(np.asarray(shift(real)), np.asarray(shift(fake))).deviates


def _refine_verdict(
    verdict: _Verdict, at: AtBudget, budget: float, evidence: Evidence, missing: Estimate | None, nats: float
) -> _Verdict:
    """Return the verdict at the budget: fit if the fault is harmless, and unfit if the samples hardly overlap."""
    shift = isinstance(verdict.calibration, Affine) and verdict.calibration.slope == 1
    if verdict.verdict == "repairable" and not shift and at.harmless(budget):
        why = "its fault does no harm at this budget, but weights and larger budgets need the repair"
        verdict = verdict._replace(verdict="fit", reason=f"{why}: {verdict.reason}")
    if missing is not None:
        share = f"{100 * missing.value:.1f} % ({100 * missing.low:.1f} to {100 * missing.high:.1f} %)"
        more = f"missing support: {share} of the target lies where the model never goes"
        return verdict._replace(reason=f"{verdict.reason}; {more}")
    loss = evidence.log_loss.value
    if verdict.verdict != "fit" or not (loss < _HARDLY or (budget > 1 and nats > _GAP * log(budget))):
        return verdict
    apart = f"log-loss {loss:.2g}" if loss < _HARDLY else f"{nats:.2g} nats apart, and K removes {log(budget):.2g}"
    why = f"only a judge tells whether that is what you care about, since the two sets hardly overlap ({apart})"
    return verdict._replace(verdict=SEEN, reason=f"{why}; {verdict.reason}", advice=verdict.advice or _TUNE)


def _piles(raw: Pair) -> str:
    """Return why the scores look like those of a critic without a log-ratio, "" if they do not."""
    if (piled := _share_piled(raw)) > _PILED:
        return f"{100 * piled:.0f} % of the scores lie at -1 and +1, as those of a hinge critic do"
    both = np.concatenate(_finite(raw))
    if len(np.unique(both)) < _LEAST / 2:  # ties are normal then
        return ""
    for end, name in ((both.max(), "largest"), (both.min(), "smallest")):
        real, fake = (float(np.mean(x == end)) for x in raw)
        if max(real, fake) > _SATURATED:
            shares = f"{100 * real:.0f} % of the real and {100 * fake:.0f} % of the fake scores share the {name} value"
            return f"{shares}, as scores that were clipped or saturated do, and within it nothing tells r apart"
    return ""


def _share_piled(raw: Pair) -> float:
    return float(np.mean([np.mean(np.abs(np.abs(x) - 1) < _NEAR) for x in _finite(raw)]))


def _means_by_label(scores: Pair, labels: tuple[Any, Any]) -> tuple[ClassMean, ...]:
    """Return E_Q[r | y] for each label of the real samples."""
    if not isinstance(labels, tuple | list) or len(labels) != 2:
        raise InputTypeError(f"labels must be a pair, those of the real samples and of the fakes, got {labels!r:.60}")
    of_real, of_fake = (check_labels(each, "labels") for each in labels)
    if (of_real.shape, of_fake.shape) != (scores[0].shape, scores[1].shape):
        sizes = f"{of_real.size} and {of_fake.size} for {len(scores[0])} and {len(scores[1])} scores"
        raise InputError(f"labels must be those of the real samples and of the fakes, one per score, got {sizes}")
    names, counts = np.unique(of_real, return_counts=True)
    shares = dict(zip(names.tolist(), (counts / counts.sum()).tolist(), strict=True))
    return tuple(class_means(scores[1], of_fake, shares, len(of_real)))


def _notes(
    d: Diagnosis, after: Evidence, repeated: tuple[int, int], nats: float, *, no_ratio: bool, kind: str | None
) -> tuple[Note, ...]:
    """Return the notes of a diagnosis: on support, repeated rows, what a budget can remove, kind and classes."""
    notes = []
    above, piled = float(np.mean(d.raw[0] > d.raw[1].max())), _share_piled(d.raw)
    if d.missing_support is not None:
        notes.append(Note("no ratio brings missing support back, as rejection keeps what the model makes: train it"))
    elif not after.mean_ratio.trusted and above > TOLERATED:
        notes.append(Note(f"{100 * above:.1f} % of the real samples score above every fake: hardly ever made"))
    if any(repeated):
        notes.append(Note(f"rows were repeated: {repeated[0]:,} real and {repeated[1]:,} fake scores were left out"))
    if d.verdict not in ("unfit", "untestable") and nats > log(d.budget):
        notes.append(Note(removable_kl(nats, [d.budget])))
    if no_ratio:
        notes.append(Note("if that is unfit, as spectral normalisation may make it, start from scratch", _ANEW))
    elif d.verdict in ("repairable", "unfit") and kind is None and _PILED_MAYBE < piled <= _PILED:
        text = f"{100 * piled:.0f} % of the scores lie near -1 and +1; say so if a critic is a hinge one"
        notes.append(Note(text, Advice("kind='hinge'", "--kind hinge")))
    elif d.verdict in ("repairable", "unfit") and np.ptp(both := np.concatenate(_finite(d.raw))):
        notes += [Note(doubt)] if (doubt := check_scores(both, "log_ratio")) else []
    if off := [mean for mean in d.classes if mean.deviates or not mean.known]:
        names = ", ".join(str(mean.label) for mean in off[:8])
        text = f"E_Q[r | y] is not p(y) / q(y) for the labels {names}, so one constant for all starves some of them"
        advice = Advice("ratio.calibrate_classes(pool)", "calibrate by class in Python, or use --group")
        if not all(mean.known for mean in off):
            text = f"E_Q[r | y] rests on few samples for the labels {names}, so no calibration by class helps"
            advice = Advice("one constant per class, groups=...", "one constant per class: --group")
        notes.append(Note(text, advice))
    return tuple(notes)


def _finite(scores: Pair) -> list[Floats]:
    return [x[np.isfinite(x)] for x in scores]


def _row(name: str, value: float | Estimate, mark: str, says: str) -> dict[str, Any]:
    x = value if isinstance(value, Estimate) else Estimate(float(value), nan, nan)
    return {"name": name, "value": x.value, "low": x.low, "high": x.high, "mark": mark, "says": says}


def _interval(row: dict[str, Any]) -> str:
    return f"{_short(row['low'])} … {_short(row['high'])}" if not isnan(row["low"]) else ""


def _short(x: float) -> str:
    if isnan(x):
        return "?"
    if abs(x) >= 1e4 or 1e-9 < abs(x) < 5e-4:  # below that it is rounding
        return f"{x:.0e}" if isfinite(x) else str(x)
    return f"{x + 0.0:.3f}" if abs(x) < 10 else f"{x:.4g}"
