"""Budgets for goals: the smallest K, from an independent route, and one line for every mistake."""

import inspect
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from obrs import DIVERGENCES, Profile, budget_for
from obrs.errors import BudgetError, InputError, InputTypeError
from obrs.goals import GOALS

LOG_RATIO = np.random.default_rng(0).normal(size=3000) * 1.1
WANTED = dict.fromkeys(DIVERGENCES, 0.03) | {"ess": 0.8, "truncated": 0.01, "precision": 0.9}


@pytest.fixture(scope="module")
def profile():
    return Profile(LOG_RATIO)


def by_hand(key, budget):
    """What the goal is at a budget, from the definitions: c by root finding, then sums over all proposals."""
    r = np.exp(LOG_RATIO)
    r /= r.mean()
    c = np.exp(brentq(lambda log_c: np.minimum(np.exp(log_c) * r, 1).mean() - 1 / budget, -20, 20, xtol=1e-14))
    a = np.minimum(c * r, 1)
    q = a / a.sum()  # what is kept
    p = r / r.sum()
    if key in DIVERGENCES:
        return np.sum(q * DIVERGENCES[key].f(np.log(p / q)))
    if key == "ess":
        return np.sum(p) ** 2 / np.sum(p**2 / q)
    if key == "truncated":
        return np.sum(np.maximum(c * r - 1, 0)) / np.sum(c * r)
    # Precision at recall 0.9: alpha of the kept at the slope whose beta is 0.9.
    lam = np.exp(brentq(lambda x: np.sum(np.minimum(p, q * np.exp(-x))) - 0.9, -20, 20, xtol=1e-14))
    return np.sum(np.minimum(lam * p, q))


@pytest.mark.parametrize("key", GOALS)
def test_the_goal_is_met_and_not_a_hair_earlier(profile, key):
    goal, wanted = GOALS[key], WANTED[key]
    budget = budget_for(profile, **{key: wanted})
    here, earlier = (goal.of(profile, k, 0.9) for k in (budget, budget * (1 - 1e-9)))
    assert (here <= wanted < earlier) if goal.falls else (here >= wanted > earlier)
    assert 1 < budget < profile.max_budget
    assert by_hand(key, budget) == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("key", GOALS)
def test_a_larger_budget_is_needed_for_more(profile, key):
    values = [0.2, 0.1, 0.01, 0.001] if GOALS[key].falls else [0.6, 0.7, 0.8, 0.9]
    budgets = [budget_for(profile, **{key: value}) for value in values]
    assert budgets == sorted(budgets)
    assert budgets[0] < budgets[-1]


def test_every_divergence_has_its_keyword():
    names = set(inspect.signature(budget_for).parameters) - {"profile", "recall"}
    assert names == {*DIVERGENCES, "ess", "truncated", "precision"} == set(GOALS)


def test_what_the_model_has_already_costs_nothing(profile):
    assert budget_for(profile, kl=profile.divergence("kl")) == 1
    assert budget_for(profile, ess=profile.ess()) == 1
    assert budget_for(profile, truncated=1) == 1


@pytest.mark.parametrize("goal", [{"kl": 0}, {"tv": 0.0}, {"ess": 1}, {"truncated": 0}, {"kl": 1e-300}])
def test_perfection_costs_m(profile, goal):
    assert budget_for(profile, **goal) == pytest.approx(profile.max_budget, rel=1e-6)


def test_the_precision_is_read_at_the_recall(profile):
    budgets = [budget_for(profile, precision=0.9, recall=recall) for recall in (0.5, 0.9, 0.99)]
    assert budgets == sorted(budgets)
    for budget, recall in zip(budgets, (0.5, 0.9, 0.99), strict=True):
        assert budget == pytest.approx(max(0.9 / profile.precision_at(recall), 1))


def test_equal_ratios_need_no_budget():
    flat = Profile(np.zeros(5))
    assert [budget_for(flat, **goal) for goal in ({"kl": 0}, {"ess": 1}, {"truncated": 0})] == [1, 1, 1]


def test_budgets_that_cannot_be_met_are_never_the_answer():
    half = Profile([0.0, 0.0, -np.inf, -np.inf])  # K = 1 keeps all; between 1 and 2 nothing can be done
    assert budget_for(half, kl=0.7) == 1
    assert budget_for(half, kl=0.69) == 2
    assert budget_for(half, truncated=0) == 2


def test_weights_of_the_profile_count():
    finite = Profile(np.log([0.5, 2.0]), weights=[2 / 3, 1 / 3])
    doubled = Profile(np.log([0.5, 0.5, 2.0]))
    assert budget_for(finite, kl=0.01) == pytest.approx(budget_for(doubled, kl=0.01), rel=1e-12)


def test_masses_whose_sum_is_rounded_up_are_no_obstacle():
    weights = np.full(3000, 0.1)  # possible is a few bits off 1, on either side, with the number of proposals
    few = [Profile(LOG_RATIO[:n], weights[:n] * scale) for n in range(40, 80) for scale in (1, 3, 7)]
    assert max(profile.possible for profile in few) > 1
    for profile in few:
        assert 1 <= budget_for(profile, kl=0.05) < profile.max_budget


def test_truncation_is_what_clipped_weights_lose(profile):
    r = np.exp(LOG_RATIO)
    for budget in (1.0, 1.5, 3.0, 20.0):
        threshold = r.min() if budget == 1 else np.exp(-profile.log_c(budget))
        lost = 1 - np.minimum(r, threshold).sum() / r.sum()
        assert profile.truncated(budget) == pytest.approx(lost, rel=1e-9)
    assert profile.truncated(profile.max_budget) == profile.truncated(1e9) == 0
    assert profile.truncated(3.0) == pytest.approx(1 - profile.beta(np.exp(profile.log_c(3.0)) * r.mean()))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-30, 30) | st.sampled_from([-np.inf, 0.0, 300.0, -4000.0]), min_size=1, max_size=8),
    st.sampled_from(list(GOALS)),
    st.floats(0.001, 0.999),
)
def test_any_profile_has_a_budget_that_reaches_the_goal(log_ratio, key, wanted):
    assume(max(log_ratio) > -np.inf)
    profile, goal = Profile(log_ratio), GOALS[key]
    budget = budget_for(profile, **{key: wanted})
    found = goal.of(profile, budget, 0.9)
    assert 1 <= budget <= profile.max_budget * (1 + 1e-12)
    assert found <= wanted * (1 + 1e-9) if goal.falls else found >= wanted * (1 - 1e-9)
    earlier = budget * (1 - 1e-6)
    if earlier >= 1 / profile.possible:
        found = goal.of(profile, earlier, 0.9)
        assert found >= wanted * (1 - 1e-9) if goal.falls else found <= wanted * (1 + 1e-9)


MISSING = Profile(np.log([0.4, 0.8]), normalise=False)
SIGNED = Profile(np.log([1.0, 1.0, 2.0]), sign=[1, -1, 1])


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (InputError, "takes exactly one goal, got none; choose from kl, rkl,", lambda: budget_for(SIGNED)),
        (InputError, "exactly one goal, got kl and ess; choose", lambda: budget_for(SIGNED, kl=0.1, ess=0.5)),
        (InputTypeError, "takes a Profile, got list; make one with obrs.Profile(", lambda: budget_for([0.0], kl=0.1)),
        (InputError, "kl must be a number at least 0, got -0.1", lambda: budget_for(SIGNED, kl=-0.1)),
        (InputError, "tv must be a number at least 0, got nan", lambda: budget_for(SIGNED, tv=np.nan)),
        (InputError, "kl must be a number at least 0, got '0.1'", lambda: budget_for(SIGNED, kl="0.1")),
        (InputError, "ess must be a number above 0 and at most 1, got 2", lambda: budget_for(SIGNED, ess=2)),
        (InputError, "ess must be a number above 0 and at most 1, got 0", lambda: budget_for(SIGNED, ess=0)),
        (InputError, "truncated must be a number from 0 to 1, got 1.5", lambda: budget_for(SIGNED, truncated=1.5)),
        (InputError, "precision must be a number above 0 and at most 1", lambda: budget_for(SIGNED, precision=0)),
        (InputError, "recall must be above 0", lambda: budget_for(SIGNED, precision=0.9, recall=0)),
        (
            BudgetError,
            "tv=0.05 is not reached at any budget: the best is 0.4, at budget 1.333; a part of the target lies where",
            lambda: budget_for(MISSING, tv=0.05),
        ),
        (BudgetError, "kl=0.05 is not reached at any budget: the best is inf", lambda: budget_for(MISSING, kl=0.05)),
        (
            BudgetError,
            "ess=0.5 is not reached at any budget: the best is 0.25, at budget 1.5; signs cancel, and net² = 0.25 is",
            lambda: budget_for(SIGNED, ess=0.5),
        ),
        (TypeError, "unexpected keyword argument", lambda: budget_for(SIGNED, kll=0.5)),
    ],
)
def test_what_cannot_be_reached_is_refused_in_one_line(error, message, call):
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_what_is_just_in_reach_is_reached():
    best = MISSING.divergence("hellinger", MISSING.max_budget)
    assert budget_for(MISSING, hellinger=best) == pytest.approx(MISSING.max_budget, rel=1e-6)
    assert budget_for(MISSING, hellinger=1.001 * best) < 0.999 * MISSING.max_budget
    assert budget_for(SIGNED, ess=0.25) == pytest.approx(SIGNED.max_budget)
