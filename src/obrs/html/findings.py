"""Findings of a report in plain words, with what to do: of the log-ratios alone, and of a diagnosis."""

from math import exp, isfinite, log, sqrt
from typing import Any

from ..profile import Profile
from ..ratios.doctor import SEEN, Diagnosis

__all__ = ["NAMES", "Finding", "diagnosis_findings", "profile_findings"]

Finding = tuple[str, str, str]
"""A mark ("!" for a fault, "~" for a doubt, "ok", or "" for a remark), what was found, and what to do, if anything."""

NAMES = {"rate": "rate", "kl": "KL", "rkl": "rev. KL", "tv": "TV", "js": "JS", "chi2": "χ²", "ess": "ESS"}
NAMES["precision"] = "precision"
_CALIBRATE = "calibrate it: obrs.ratios.calibration, or fit a new one: obrs.refit"
# What a row of a diagnosis with a mark means, and what to do; None stands for its repair, if it has one.
_ROWS: dict[tuple[str, str], tuple[str, str | None]] = {
    ("E_Q[r]", "!"): ("The mean ratio of the model's samples is {}, and at most 1 if it is calibrated", _CALIBRATE),
    ("missing support", "!"): ("The model never makes {} of the target", "train the model: rejection adds nothing"),
    ("missing support", "~"): ("How much of the target the model never makes cannot be seen", "repair the ratio first"),
    ("AUC", "!"): ("Real samples score lower than the model's, AUC {}", "turn the sign of the scores"),
    ("score test", "!"): ("The scores do not behave like log-ratios: {} in the score test, below 3 if they do", None),
    ("error of log r", "!"): ("log r is off by {} nats, and 0.05 would not matter", None),
    ("misjudged", "!"): ("A calibrated ratio would decide otherwise about {} of the samples", None),
    ("kl, removed", "!"): ("This ratio removes {} nats of KL at this budget: it does harm", None),
}


def profile_findings(
    profile: Profile, row: dict[str, Any], *, reward: bool, diagnosed: bool, by_group: bool
) -> list[Finding]:
    """Return the findings on the log-ratios alone.

    Args:
        profile, row: The log-ratios; and the row of their plan at which the page opens.
        reward, diagnosed: Whether the target is the model tilted by a reward; whether a diagnosis saw the mean ratio.
        by_group: Whether each group has its own constant.
    """
    if not profile.calibrated:
        todo = "fit their scale on held-out samples: .calibrate(real, fake) of obrs.ratios.combine"
        return [("~", "These are scores, not ratios: they say what is kept, not how close to the target", todo)]
    findings, possible, target = [], profile.possible, "the tilted target" if reward else "the target"
    if doubtful := ", ".join(NAMES[key] for key in row["unreliable"].split()):
        says = f"{profile.size:,} scores are too few to rely on {doubtful} at K = {row['budget']:g}"
        findings.append(("~", says, "score more proposals; with a light tail, KL takes 500 and ESS 10,000"))
    if reward:
        says = "The target is the model tilted by exp(reward / beta): the gap is to that tilt, not to real samples"
        findings.append(("", says, ""))
    if possible < 1:
        says = f"{100 * (1 - possible):.3g} % of the samples have r = 0 and are never kept"
        findings.append(("", f"{says}, so budgets below {1 / possible:.4g} cannot be met", ""))
    off = abs(profile.log_mean_ratio)
    # by 3 standard errors, and by more than 5 %
    if not (reward or diagnosed) and off * sqrt(profile.ess() * profile.size) > 3 and off > log(1.05):
        mean = f"{exp(profile.log_mean_ratio):.3g}" if off < 20 else f"exp({profile.log_mean_ratio:.4g})"
        says = f"The mean ratio E[r] is {mean}, and 1 if it is calibrated; that changes weights, not budgets"
        findings.append(("~", says, "give scores of real samples as real: the doctor says what is wrong"))
    says = f"From K = M = {profile.max_budget:.4g} on, the kept follow {target} exactly, as far as these scores show; "
    says += "more scores may find a larger ratio"
    if by_group:
        says = f"Each group keeps its share: what is left of the gap is also where {target} has other shares"
    return [*findings, ("", says, "")]


def diagnosis_findings(diagnosis: Diagnosis) -> list[Finding]:
    """Return what the doctor found: the verdict with its repair, the notes, and each row with a mark."""
    verdict = {"fit": "ok", SEEN: "~", "untestable": "~"}.get(diagnosis.verdict, "!")
    counts = f"{diagnosis.n_real:,} real and {diagnosis.n_fake:,} fake scores"
    says = f"{diagnosis.verdict} at K = {diagnosis.budget:g}, by {counts}: {diagnosis.reason}"
    notes = [(verdict, says, diagnosis.advice), *(("", note.text, note.advice) for note in diagnosis.notes)]
    findings = [(mark, says, "" if advice is None else advice.python) for mark, says, advice in notes]
    for row in [row for row in diagnosis.rows() if row["mark"]]:
        says, todo = _ROWS.get((row["name"], row["mark"]), (f"{row['name']} is {{}}: {row['says']}", ""))
        interval = f" ({row['low']:.3g} to {row['high']:.3g})" if isfinite(row["low"]) else ""
        repair = "the repair above" if diagnosis.repair else _CALIBRATE
        findings.append((row["mark"], says.format(f"{row['value']:.3g}{interval}"), repair if todo is None else todo))
    return findings
