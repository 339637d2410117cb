"""Budgets in other words: the smallest K that reaches a divergence, an effective sample size or another goal.

Everything a profile says gets better with the budget, from the model itself at K = 1 to the target at K = M, so the
smallest K that reaches a goal is a root.
"""

from collections.abc import Callable
from math import exp, inf, log
from sys import float_info
from typing import Any, NamedTuple

from ._checks import is_number
from .divergences import DIVERGENCES
from .errors import BudgetError, InputError, InputTypeError
from .profile import Profile
from .root import brent

__all__ = ["GOALS", "budget_for"]


class Goal(NamedTuple):
    """What may be asked for.

    Attributes:
        of: The number that a profile has for it at a budget; the last argument is the recall, which one goal needs.
        falls: Whether it falls with the budget, so that the goal is "at most"; else it rises, and is "at least".
        most: The largest value that may be asked for.
    """

    of: Callable[[Profile, float, float], float]
    falls: bool
    most: float


def _divergence(key: str) -> Goal:
    return Goal(lambda profile, budget, recall: profile.divergence(key, budget), True, inf)


GOALS: dict[str, Goal] = {
    **{key: _divergence(key) for key in DIVERGENCES},
    "ess": Goal(lambda profile, budget, recall: profile.ess(budget), False, 1.0),
    "truncated": Goal(lambda profile, budget, recall: profile.truncated(budget), True, 1.0),
    "precision": Goal(lambda profile, budget, recall: profile.precision_at(recall, budget), False, 1.0),
}
"""The goals of `budget_for`, by name."""


def budget_for(
    profile: Profile,
    *,
    kl: float | None = None,
    rkl: float | None = None,
    gan: float | None = None,
    js: float | None = None,
    tv: float | None = None,
    chi2: float | None = None,
    neyman: float | None = None,
    hellinger: float | None = None,
    ess: float | None = None,
    truncated: float | None = None,
    precision: float | None = None,
    recall: float = 0.9,
) -> float:
    """Return the smallest budget K that reaches exactly one goal.

    It is as good as the profile: of a sample, M is the largest ratio of the sample, and a K close to it says little.
    `profile.plan([K])` shows the intervals, and marks what cannot be relied on.

    Args:
        profile: Of the log-ratios of samples from the model.
        kl, rkl, gan, js, tv, chi2, neyman, hellinger: At most this divergence left between target and kept samples.
        ess: At least this effective sample size per kept sample, in (0, 1]; of the net sum if the profile has signs.
        truncated: At most this share of the mass in weights above one (`Profile.truncated`).
        precision: At least this precision at `recall`, as in the plan.
        recall: Where the precision is read.

    Returns:
        K, at least 1: with this budget the goal is met, with a smaller one it is not.

    Raises:
        BudgetError: The goal is not reached at any budget. The message has the best that can be had, and where.

    Example:
        >>> import numpy as np
        >>> profile = Profile(np.log([0.4, 0.8, 1.2, 1.6]))
        >>> round(budget_for(profile, kl=0.005), 4), budget_for(profile, kl=0.2)
        (1.4072, 1.0)
        >>> round(budget_for(profile, truncated=0.05), 4)
        1.4737
    """
    given = {
        "kl": kl,
        "rkl": rkl,
        "gan": gan,
        "js": js,
        "tv": tv,
        "chi2": chi2,
        "neyman": neyman,
        "hellinger": hellinger,
        "ess": ess,
        "truncated": truncated,
        "precision": precision,
    }
    _check_profile(profile)
    asked = {key: value for key, value in given.items() if value is not None}
    if len(asked) != 1:
        got = " and ".join(asked) or "none"
        raise InputError(f"budget_for takes exactly one goal, got {got}; choose from {', '.join(GOALS)}")
    ((key, value),) = asked.items()
    return _smallest(profile, key, _wanted(key, value), recall)


def _check_profile(profile: Any) -> None:
    if not isinstance(profile, Profile):
        got = type(profile).__name__
        raise InputTypeError(f"budget_for takes a Profile, got {got}; make one with obrs.Profile(log_ratio)")


def _wanted(key: str, value: Any) -> float:
    """Return the value that is asked for as a number within its range."""
    goal = GOALS[key]
    bounds = "at least 0" if goal.most == inf else "from 0 to 1" if goal.falls else "above 0 and at most 1"
    if not is_number(value) or not 0 <= float(value) <= goal.most or (float(value) == 0 and not goal.falls):
        raise InputError(f"{key} must be a number {bounds}, got {value!r:.60}")
    return float(value)


def _smallest(profile: Profile, key: str, wanted: float, recall: float) -> float:
    """Return the smallest budget at which the goal is met."""
    goal = GOALS[key]

    def met(budget: float) -> bool:
        found = goal.of(profile, budget, recall)
        return found <= wanted if goal.falls else found >= wanted

    # Between 1 and this one no budget can be met. Masses may sum to a little more than 1.
    least = max(1.0, 1 / profile.possible)
    most = max(least, min(profile.max_budget, float_info.max))
    for budget in (1.0, least):
        if met(budget):
            return budget
    best = goal.of(profile, most, recall)
    perfect = profile.net**2 if key == "ess" else 0.0 if goal.falls else 1.0
    best = perfect if abs(best - perfect) < 1e-12 else best  # rejection is exact there, but for rounding
    if (best > wanted * (1 + 1e-12)) if goal.falls else (best < wanted * (1 - 1e-12)):
        raise _out_of_reach(profile, key, wanted, best)
    if wanted == best and key != "precision":  # it is reached at M and not before
        return most
    at = exp(brent(lambda log_k: goal.of(profile, exp(log_k), recall) - wanted, log(least), log(most)))
    while at < most and not met(at):  # the root is rounded
        at *= 1 + 1e-15
    return min(at, most)


def _out_of_reach(profile: Profile, key: str, wanted: float, best: float) -> BudgetError:
    why = ""
    if key == "ess" and profile.net != 1:
        why = f"; signs cancel, and net² = {profile.net**2:.4g} is the most that any rejection leaves"
    elif key in DIVERGENCES and not profile.normalised:
        why = "; a part of the target lies where the model never goes"
    had = f"the best is {best:.4g}, at budget {profile.max_budget:.4g}"
    return BudgetError(f"{key}={wanted:g} is not reached at any budget: {had}{why}")
