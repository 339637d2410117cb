"""Numbers and findings of a page: all columns at each budget of the slider, and findings with what to do.

The page looks numbers up and computes none. Round budgets are in the list exactly.
"""

from math import exp, inf, isfinite, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..profile import Profile
from ..ratios.doctor import SEEN, Diagnosis
from .template import rounded

__all__ = [
    "COLUMNS",
    "ROUND",
    "Finding",
    "columns",
    "curve",
    "diagnosis_findings",
    "group_rates",
    "histogram",
    "profile_findings",
]
__all__ += ["recall_of", "slider"]

Floats = np.ndarray[Any, Any]

COLUMNS = {"rate": "rate", "kl": "KL", "rkl": "reverse KL", "tv": "TV", "js": "JS", "chi2": "χ²", "ess": "ESS"}
COLUMNS |= {"precision": "precision"}
ROUND = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 50, 64, 80, 100, 128, 160, 200, 256)
_TOP = 256.0  # where the slider ends if exact rejection costs more
_POINTS = 108  # steps of the slider, at most
_STEP = log(1.02)  # and at least this far apart
_BINS = 64
_SLOPES = 301
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


def slider(profile: Profile, asked: float | None = None) -> list[float]:
    """Return the budgets of the slider, ascending: 1, then log-spaced ones of three digits, with the round ones exact.

    They end at the first round one beyond M, where rejection is exact, or at 256; at a budget that was asked for if it
    is larger. Below 1/possible no budget can be met, and only 1 is left, the model itself.

    Example:
        >>> budgets = slider(Profile(np.random.default_rng(0).normal(size=1000)))
        >>> len(budgets), budgets[:3], {1, 1.5, 2, 4, 8} <= set(budgets)
        (109, [1.0, 1.03, 1.05], True)
    """
    first = max(1.0, 1 / profile.possible)
    beyond = [k for k in ROUND if k > max(profile.max_budget, first) * (1 + 1e-9)]
    top = max(float(beyond[0]) if beyond else _TOP, *rounded([2 * first], 3), asked or 1.0)
    steps = max(min(_POINTS, round(log(top / first) / _STEP)), 1)
    grid = np.geomspace(first, top, steps + 1)
    # A round budget takes the place of the one that is nearest, so that the steps stay even.
    fixed = {float(k) for k in (*ROUND, top, *([asked] if asked else [])) if first <= k <= top}
    for k in fixed:
        grid[np.argmin(np.abs(np.log(grid / k)))] = k
    budgets = {1.0, *fixed, *rounded(grid, 3)}
    return [k for k in sorted(budgets) if k == 1 or k >= first]


def columns(profile: Profile, budgets: list[float], recall: float) -> dict[str, Any]:
    """Return log c, each column of `Profile.plan` with its interval, and where a column is unreliable, by budget.

    Of scores that are not calibrated there is the rate alone.
    """
    plan = profile.plan(budgets, recall=recall)
    found: dict[str, Any] = {"log_c": rounded([profile.log_c(k) for k in budgets])}
    for key in COLUMNS if profile.calibrated else ["rate"]:
        found[key] = rounded([row[key] for row in plan])
        for end in (f"{key}_low", f"{key}_high"):
            found[end] = rounded([row[end] for row in plan], 5)
        found[f"{key}_marks"] = "".join("~" if key in row.get("unreliable", "").split() else "." for row in plan)
    return found


def histogram(profile: Profile) -> dict[str, Any]:
    """Return the shares of log r in bins, with the log of the mean of r in each: what is kept of a bin follows."""
    value, mass = profile.sorted_log_ratio
    order = np.cumsum(mass) / np.sum(mass)
    low = float(value[np.searchsorted(order, 0.001)])  # a long lower tail would press all the rest together
    high = float(value[-1])
    if high - low < 1e-6 * max(abs(high), 1.0):
        reach = max(1.0, 1e-6 * abs(high))  # of numbers so large that one more is none
        low, high = low - reach, high + reach
    width = (high - low) / _BINS
    place = np.clip(((value - low) / width).astype(np.int64), 0, _BINS - 1)
    share = np.bincount(place, weights=mass, minlength=_BINS)
    sums = np.bincount(place, weights=mass * np.exp(value - high), minlength=_BINS)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(sums > 0, np.log(sums / share) + high, low)
    return {"low": low, "high": high, "share": rounded(share, 4), "mean": rounded(mean, 5)}


def curve(profile: Profile, most: float) -> dict[str, Any]:
    """Return the precision of the model at slopes from 1/(30 K) to 100: those after rejection follow from it.

    At slope `l Z` the model has precision alpha and recall alpha/(l Z). At slope l, what is kept has precision
    min(alpha/Z, 1) and recall min(alpha/(l Z), 1/l).
    """
    low, high = -log(30 * most), log(100)
    slopes = np.linspace(low, high, _SLOPES)
    return {"low": low, "high": high, "alpha": rounded(profile.alpha(np.exp(slopes)), 5)}


def group_rates(log_ratio: Floats, log_c: list[float]) -> list[float]:
    """Return the share that is kept of a group at each constant.

    Example:
        >>> group_rates(np.log([2.0, 1.0]), [inf, 0.0, log(0.5)])
        [1.0, 1.0, 0.75]
    """
    if not np.any(log_ratio > -inf):
        return [0.0] * len(log_c)
    alone = Profile(log_ratio)  # its r is divided by its own mean
    with np.errstate(over="ignore"):
        slopes = np.exp(np.asarray(log_c) + alone.log_mean_ratio)
    return rounded(alone.alpha(slopes), 3)


class Finding(NamedTuple):
    """A line of the report.

    Attributes:
        mark: "!" for a fault, "~" for a doubt, "ok" where all is well, "" for a remark.
        says: What was found.
        todo: What to do about it, if anything.
    """

    mark: str
    says: str
    todo: str = ""


def profile_findings(
    profile: Profile, budget: float, *, reward: bool = False, diagnosed: bool = False
) -> list[Finding]:
    """Return what the log-ratios alone tell, for a page that opens at this budget.

    Args:
        profile: Of the log-ratios.
        budget: Where to look for what is unreliable.
        reward: Whether the target is the model tilted by a reward.
        diagnosed: Whether a diagnosis has looked at the mean ratio.

    Example:
        >>> first, *_ = profile_findings(Profile(np.log([0.5, 1.0, 1.5, 1.0])), 2.0)
        >>> first.mark, first.says
        ('~', '4 scores are too few to rely on KL, reverse KL, TV, JS, χ², ESS, precision at K = 2')
    """
    if not profile.calibrated:
        todo = "fit their scale on held-out samples: .calibrate(real, fake) of obrs.ratios.combine"
        return [Finding("~", "These are scores, not ratios: they say what is kept, not how close to the target", todo)]
    found = []
    (row,) = profile.plan([budget], recall=recall_of(profile))
    if doubtful := [COLUMNS[key] for key in row["unreliable"].split() if key in COLUMNS]:
        says = f"{profile.size:,} scores are too few to rely on {', '.join(doubtful)} at K = {budget:g}"
        found.append(Finding("~", says, "score more proposals; with a light tail, KL takes 500 and ESS 10,000"))
    if reward:
        says = "The target is the model tilted by exp(reward / beta): the gap is to that tilt, not to real samples"
        found.append(Finding("", says))
    if profile.possible < 1:
        share = f"{100 * (1 - profile.possible):.3g} % of the samples have r = 0 and are never kept"
        found.append(Finding("", f"{share}, so budgets below {1 / profile.possible:.4g} cannot be met"))
    ess, off = profile.ess(), abs(profile.log_mean_ratio)
    # by 3 standard errors, and by more than 5 %
    if not (reward or diagnosed) and off * sqrt(ess * profile.size) > 3 and off > log(1.05):
        mean = f"{exp(profile.log_mean_ratio):.3g}" if off < 20 else f"exp({profile.log_mean_ratio:.4g})"
        says = (
            f"The mean ratio E[r] is {mean}, and 1 if it is calibrated; that changes weights and averages, not budgets"
        )
        found.append(Finding("~", says, "give scores of real samples as real: the doctor says what is wrong"))
    if profile.net < 1:
        most = f"{100 * profile.net:.3g} % of the sum is left, so the ESS is at most {profile.net**2:.3g}"
        found.append(Finding("", f"Weights of both signs cancel: {most}"))
    if ess < 0.5:
        worth = f"{profile.size:,} samples would be worth {ess * profile.size:,.0f}"
        found.append(Finding("", f"If you kept all samples and weighted them instead, {worth}"))
    target = "the tilted target" if reward else "the target"
    beyond = f"From K = M = {profile.max_budget:.4g} on, the kept follow {target} exactly, as far as these scores show"
    found.append(Finding("", f"{beyond}; more scores may find a larger ratio"))
    return found


def recall_of(profile: Profile) -> float:
    """Return where precision is read: at a recall of 0.9 of what can be reached."""
    return 0.9 * min(float(profile.beta(0.0)), 1.0)


def diagnosis_findings(diagnosis: Diagnosis) -> list[Finding]:
    """Return what the doctor found: the verdict with its repair, the notes, and each row with a mark.

    Example:
        >>> from obrs import diagnose
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.5, 1, 2000), rng.normal(-0.5, 1, 2000)
        >>> diagnosis_findings(diagnose(3 * real, 3 * fake, budget=2))[0].todo
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
