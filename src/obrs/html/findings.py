"""What a report warns of, each finding with what to do: by the profile alone, and by the doctor if he has been."""

from math import exp, inf, isfinite, log
from typing import Any, NamedTuple

import numpy as np

from ..profile import Profile
from ..ratios.doctor import SEEN, Diagnosis

__all__ = ["Finding", "of_diagnosis", "of_profile", "recall_of"]

_CALIBRATE = "calibrate it: obrs.ratios.calibration, or fit a new one: obrs.refit"
_MORE_FAKES = "score more proposals"
# What to do about a row of a diagnosis that has a mark; where the repair of the diagnosis helps, it is named instead.
_REPAIRED = {
    *("score test", "error of log r", "misjudged", "kl, removed"),
}
_TO_DO = {
    ("E_Q[r]", "!"): _CALIBRATE,
    ("missing support", "!"): "train the model: rejection keeps what the model makes and adds nothing",
    ("missing support", "~"): "repair the ratio first; then it can be told",
    ("AUC", "!"): "turn the sign of the scores: real samples must score higher",
}


class Finding(NamedTuple):
    """A line of the report.

    Attributes:
        mark: "!" for a fault, "~" for a doubt, "ok" where all is well, "" for a remark.
        says: What was found.
        todo: What to do about it; empty if there is nothing to do.
    """

    mark: str
    says: str
    todo: str


def of_profile(profile: Profile, budget: float, *, calibration: bool = True) -> list[Finding]:
    """Return what the log-ratios alone tell, for a page that opens at this budget.

    Args:
        profile: Of the log-ratios.
        budget: Where to look for what is unreliable.
        calibration: Whether to say that the mean ratio is not 1.

    Example:
        >>> first, *_ = of_profile(Profile(np.log([0.5, 1.0, 1.5, 1.0])), 2.0)
        >>> first.mark, first.says
        ('~', 'from 4 scores, these columns are not to be relied on at K = 2: kl, rkl, tv, js, chi2, ess, precision')
    """
    if not profile.calibrated:
        todo = "fit their scale on held-out samples: .calibrate(real, fake) of obrs.ratios.combine"
        return [Finding("~", "these are scores, not ratios: only the rates are shown", todo)]
    found = []
    (row,) = profile.plan([budget], recall=recall_of(profile))
    if doubtful := row["unreliable"].split():
        what = f"from {profile.size:,} scores, these columns are not to be relied on at K = {budget:g}"
        more = f"{_MORE_FAKES}: from 500 on kl can be promised, from 10,000 on ESS, if the tail of r is light"
        found.append(Finding("~", f"{what}: {', '.join(doubtful)}", more))
    if profile.possible < 1:
        share = f"{100 * (1 - profile.possible):.3g} % of the scores are -inf, r = 0: never kept"
        found.append(Finding("", f"{share}. Budgets below {1 / profile.possible:.4g} cannot be met", ""))
    found += _mean(profile) if calibration else []
    if profile.net < 1:
        most = f"of the net sum, {profile.net:.3g} is left, so the ESS is at most {profile.net**2:.3g}"
        found.append(Finding("", f"weights of both signs cancel: {most}", ""))
    ess = profile.ess()
    if ess < 0.5:
        worth = f"{ess * profile.size:,.0f} of {profile.size:,}"
        found.append(Finding("", f"without rejection, weights would make the proposals worth {worth} samples", ""))
    beyond = f"from K = M = {profile.max_budget:.4g} on, rejection is exact"
    found.append(Finding("", f"{beyond}. M is the largest ratio of this sample: more scores may find a larger one", ""))
    return found


def _mean(profile: Profile) -> list[Finding]:
    """Return a finding if the mean ratio is not 1, by 3 standard errors and by more than 5 %."""
    value, mass = profile.sorted_log_ratio
    with np.errstate(over="ignore"):
        relative = np.exp(value - profile.log_mean_ratio)
        error = float(np.sqrt(np.sum((mass * relative) ** 2)))
    off = abs(profile.log_mean_ratio)
    if not off > max(3 * error, log(1.05)):
        return []
    mean = exp(profile.log_mean_ratio) if off < 20 else inf
    size = f"{mean:.3g}" if isfinite(mean) else f"exp({profile.log_mean_ratio:.4g})"
    says = f"E[r] is {size}, and 1 for a calibrated ratio. No budget depends on that factor, weights and averages do"
    return [Finding("~", says, "score real samples, too: the doctor tells what is wrong (--real, or real=)")]


def recall_of(profile: Profile) -> float:
    """Return where precision is read: at a recall of 0.9 of what can be reached."""
    return 0.9 * min(float(profile.beta(0.0)), 1.0)


def of_diagnosis(diagnosis: Diagnosis) -> list[Finding]:
    """Return what the doctor found: the verdict with its repair, the notes, and each row with a mark.

    Example:
        >>> from obrs import diagnose
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.5, 1, 2000), rng.normal(-0.5, 1, 2000)
        >>> of_diagnosis(diagnose(3 * real, 3 * fake, budget=2))[0].todo
        'obrs.ratios.calibration.Affine.fit(real, fake, intercept=False)'
    """
    mark = {"fit": "ok", SEEN: "~", "untestable": "~"}.get(diagnosis.verdict, "!")
    counts = f"{diagnosis.n_real:,} real and {diagnosis.n_fake:,} fake scores"
    says = f"{diagnosis.verdict} at K = {diagnosis.budget:g}, by {counts}: {diagnosis.reason}"
    found = [Finding(mark, says, "" if diagnosis.advice is None else diagnosis.advice.python)]
    found += [Finding("", note.text, "" if note.advice is None else note.advice.python) for note in diagnosis.notes]
    return found + [_of_row(row, diagnosis.repair) for row in diagnosis.rows() if row["mark"]]


def _of_row(row: dict[str, Any], repair: str) -> Finding:
    name, mark, interval = row["name"], row["mark"], ""
    if isfinite(row["low"]):
        interval = f" ({row['low']:.3g} to {row['high']:.3g})"
    value = f" = {row['value']:.3g}{interval}" if isfinite(row["value"]) else ""
    todo = _TO_DO.get((name, mark), "")
    if mark == "!" and name in _REPAIRED:
        todo = "the repair above" if repair else _CALIBRATE
    return Finding(mark, f"{name}{value}: {row['says']}", todo)
