"""What a report warns of, each finding with what to do: by the profile alone, and by a diagnosis."""

from math import exp, inf, isfinite, log
from typing import Any, NamedTuple

import numpy as np

from ..profile import Profile
from ..ratios.doctor import SEEN, Diagnosis

__all__ = ["Finding", "of_diagnosis", "of_profile", "recall_of"]

_CALIBRATE = "calibrate it: obrs.ratios.calibration, or fit a new one: obrs.refit"
_MORE_FAKES = "score more proposals"
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


_NAMES = {"kl": "KL", "rkl": "reverse KL", "tv": "TV", "js": "JS", "chi2": "χ²", "ess": "ESS", "precision": "precision"}


def of_profile(profile: Profile, budget: float, *, reward: bool = False, diagnosed: bool = False) -> list[Finding]:
    """Return what the log-ratios alone tell, for a page that opens at this budget.

    Args:
        profile: Of the log-ratios.
        budget: Where to look for what is unreliable.
        reward: Whether the target is the model tilted by a reward.
        diagnosed: Whether a diagnosis has looked at the mean ratio.

    Example:
        >>> first, *_ = of_profile(Profile(np.log([0.5, 1.0, 1.5, 1.0])), 2.0)
        >>> first.mark, first.says
        ('~', '4 scores are too few to rely on KL, reverse KL, TV, JS, χ², ESS, precision at K = 2')
    """
    if not profile.calibrated:
        todo = "fit their scale on held-out samples: .calibrate(real, fake) of obrs.ratios.combine"
        return [Finding("~", "These are scores, not ratios: they say what is kept, not how close to the target", todo)]
    found = []
    (row,) = profile.plan([budget], recall=recall_of(profile))
    if doubtful := [_NAMES[key] for key in row["unreliable"].split() if key in _NAMES]:
        says = f"{profile.size:,} scores are too few to rely on {', '.join(doubtful)} at K = {budget:g}"
        found.append(Finding("~", says, f"{_MORE_FAKES}; with a light tail, KL takes 500 and ESS 10,000"))
    if reward:
        says = "The target is the model tilted by exp(reward / beta): the gap is to that tilt, not to real samples"
        found.append(Finding("", says, ""))
    if profile.possible < 1:
        share = f"{100 * (1 - profile.possible):.3g} % of the samples have r = 0 and are never kept"
        found.append(Finding("", f"{share}, so budgets below {1 / profile.possible:.4g} cannot be met", ""))
    if not (reward or diagnosed):
        found += _mean(profile)
    if profile.net < 1:
        most = f"{100 * profile.net:.3g} % of the sum is left, so the ESS is at most {profile.net**2:.3g}"
        found.append(Finding("", f"Weights of both signs cancel: {most}", ""))
    ess = profile.ess()
    if ess < 0.5:
        worth = f"{profile.size:,} samples would be worth {ess * profile.size:,.0f}"
        found.append(Finding("", f"If you kept all samples and weighted them instead, {worth}", ""))
    target = "the tilted target" if reward else "the target"
    beyond = f"From K = M = {profile.max_budget:.4g} on, the kept follow {target} exactly, as far as these scores show"
    found.append(Finding("", f"{beyond}; more scores may find a larger ratio", ""))
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
    says = f"The mean ratio E[r] is {size}, and 1 if it is calibrated; that changes no budget, but weights and averages"
    return [Finding("~", says, "score real samples as well, and give them as real: the doctor says what is wrong")]


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
    says, todo = _ROWS.get((row["name"], row["mark"]), (f"{row['name']} is {{}}: {row['says']}", ""))
    interval = f" ({row['low']:.3g} to {row['high']:.3g})" if isfinite(row["low"]) else ""
    if todo is None:
        todo = "the repair above" if repair else _CALIBRATE
    return Finding(row["mark"], says.format(f"{row['value']:.3g}{interval}"), todo)
