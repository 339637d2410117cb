"""What budgets buy with one constant per group: against a sum over a small model, and against a profile."""

import numpy as np
import pytest

from obrs import DIVERGENCES, Grouped, Profile, plan_groups
from obrs.errors import BudgetError, InputError, InputTypeError, ObrsError

RNG = np.random.default_rng(1)
LOG_RATIO = RNG.normal(size=900)
GROUPS = np.repeat(["ant", "bee", "cat"], [500, 300, 100])


def left(key, log_ratio, a):
    """D_f(P||kept), point by point, with the conventions 0 f(0/0) = 0 and 0 f(p/0) = p f'(inf)."""
    target, kept = np.exp(log_ratio) / np.sum(np.exp(log_ratio)), a / np.sum(a)
    inside = kept > 0
    total = np.sum(kept[inside] * DIVERGENCES[key].f(np.log(target[inside] / kept[inside])))
    outside = np.sum(target[~inside])
    return total + (outside * float(DIVERGENCES[key].critic(np.inf)) if outside else 0.0)


@pytest.mark.parametrize("shares", [None, {"ant": 0.3, "bee": 0.3, "cat": 0.4}, [1, 0, 1]], ids=repr)
@pytest.mark.parametrize("budget", [4.5, 7.0, 1000.0])
def test_rows_are_those_of_the_rule(shares, budget):
    (row,) = plan_groups(LOG_RATIO, [budget], GROUPS, shares=shares, n=10)
    rule = Grouped.fit(LOG_RATIO, budget, GROUPS, shares=shares)
    a = np.exp(rule(LOG_RATIO, GROUPS))
    assert row["rate"] == pytest.approx(np.mean(a), rel=1e-12)
    assert row["budget"] * row["rate"] == pytest.approx(1)
    assert row["proposals"] == pytest.approx(10 / np.mean(a))
    assert row["groups"] == rule.groups
    assert row["exact"] == rule.exact
    for key in ("kl", "rkl", "tv", "js", "chi2"):
        expected = left(key, LOG_RATIO, a)
        assert row[key] == (np.inf if np.isinf(expected) else pytest.approx(expected, abs=1e-12)), key
    target, kept = np.exp(LOG_RATIO) / np.sum(np.exp(LOG_RATIO)), a / np.sum(a)
    with np.errstate(divide="ignore"):
        assert row["ess"] == pytest.approx(1 / np.sum(target**2 / kept), rel=1e-9)


def test_with_one_group_it_is_the_profile():
    (row,), profile = plan_groups(LOG_RATIO, [3], np.zeros(900, int)), Profile(LOG_RATIO)
    for key in ("kl", "rkl", "tv", "js", "chi2"):
        assert row[key] == pytest.approx(profile.divergence(key, 3), rel=1e-9)
    assert row["ess"] == pytest.approx(profile.ess(3), rel=1e-9)


def test_with_the_exact_ratio_one_constant_is_best_and_shares_cost():
    budgets = [4.0, 6.0]
    for budget in budgets:
        best = Profile(LOG_RATIO).divergence("kl", budget)
        (equal,) = plan_groups(LOG_RATIO, [budget], GROUPS, shares=[1, 1, 1])
        (rates,) = plan_groups(LOG_RATIO, [budget], GROUPS)
        assert best < rates["kl"] < equal["kl"]


def test_the_text_says_where_a_smaller_budget_would_do():
    flat = np.where(GROUPS == "ant", 0.0, LOG_RATIO)
    text = str(plan_groups(flat, [2, 1e4], GROUPS))
    assert "budget 2: exact rejection in 'ant' (M = 1); a smaller budget would do there" in text
    assert "budget 1e+04: exact rejection in every group" in text
    assert "would do" not in str(plan_groups(LOG_RATIO, [2], GROUPS))
    assert [line.split()[-1] for line in str(plan_groups(LOG_RATIO, [2], GROUPS, n=900)).splitlines()] == [
        "proposals",
        "1,800",
    ]
    by_shares = str(plan_groups(flat, [4, 1e4], GROUPS, shares=[1, 1, 1]))
    assert "budget 4: exact rejection in 'ant' (M = 1); its share decides its budget" in by_shares
    assert "exact rejection in every group; a larger budget buys nothing" in by_shares


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"budgets": 4}, InputTypeError, "budgets must be a list of budgets, got 4"),
        ({"budgets": {"ant": 2}}, InputTypeError, "budgets must be a list"),
        ({"budgets": [0.5]}, BudgetError, "did you mean budget=2"),
        ({"n": 0}, InputError, "n must be a whole number of at least 1"),
        ({"groups": ["ant"]}, InputError, "shape of log_ratio"),
        ({"shares": [0, 0, 1]}, BudgetError, "the smallest feasible budget is 9"),
    ],
)
def test_bad_input_gets_one_clear_line(arguments, error, message):
    with pytest.raises(error, match=message) as caught:
        plan_groups(**{"log_ratio": LOG_RATIO, "budgets": [2], "groups": GROUPS, **arguments})
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ObrsError)


def test_a_plan_cannot_be_made_inside_jit():
    jax = pytest.importorskip("jax")
    with pytest.raises(InputTypeError, match=r"outside jax\.jit"):
        jax.jit(lambda x: plan_groups(x, [2], [0, 0]) and x)(jax.numpy.zeros(2))
