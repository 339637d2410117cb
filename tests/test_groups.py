"""Groups: labels of any kind, budgets and shares of each, and constants that are never floored."""

import json

import numpy as np
import pytest
from scipy import optimize, stats

from obrs import Budgeted, Grouped, Profile
from obrs.errors import BudgetError
from obrs.groups import any_labels, sizes_of
from obrs.rules import from_json, to_json

RNG = np.random.default_rng(0)
LABELS = RNG.choice(["ant", "bee", "cat"], p=[0.5, 0.3, 0.2], size=3000)
LOG_RATIO = RNG.normal(size=3000) * np.select([LABELS == "ant", LABELS == "bee"], [0.3, 1.0], 1.5)


def rates(rule, log_ratio=LOG_RATIO, labels=LABELS):
    a = np.exp(rule(log_ratio, labels))
    return {label: float(np.mean(a[labels == label])) for label in np.unique(labels).tolist()}


# --- budgets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1.0, 1.7, 4.0, 60.0, 1e6])
def test_groups_keep_their_rates_at_every_budget(budget):
    rule = Grouped.fit(LOG_RATIO, budget, LABELS)
    assert rates(rule) == pytest.approx(dict.fromkeys(["ant", "bee", "cat"], 1 / budget), rel=1e-12)
    assert rule.budget == pytest.approx(budget, rel=1e-12)
    for group in rule.groups:
        here = LOG_RATIO[group.label == LABELS]
        assert group.max_budget == pytest.approx(Profile(here).max_budget, rel=1e-12)
        assert group.exact == (budget > group.max_budget)
        assert (group.budget, group.rate) == (budget, 1 / budget)
        assert group.share == pytest.approx(np.mean(group.label == LABELS), rel=1e-12)
    assert rule.exact == all(group.exact for group in rule.groups)


@pytest.mark.parametrize(
    "budgets", [{"cat": 4, "ant": 1.5, "bee": 2}, [1.5, 2, 4], np.array([1.5, 2, 4]), (1.5, 2.0, 4.0)], ids=repr
)
def test_budgets_by_label_or_in_the_order_of_the_sorted_labels(budgets):
    assert rates(Grouped.fit(LOG_RATIO, budgets, LABELS)) == pytest.approx({"ant": 1 / 1.5, "bee": 1 / 2, "cat": 1 / 4})


def test_with_confidence_all_groups_keep_their_budgets_at_once():
    """The share of fits in which no group overruns: against the true rates, in closed form."""
    rng, sds = np.random.default_rng(5), np.array([0.5, 1.0, 2.0])
    labels, budgets, kept = np.repeat([0, 1, 2], [300, 200, 400]), np.array([1.5, 2.6, 20.0]), []
    for _ in range(100):
        x = rng.normal(-(sds**2) / 2, sds, size=(900, 3))[np.arange(900), labels]
        rule = Grouped.fit(x, budgets, labels, confidence=0.8)
        edge = (-np.array(rule.log_c) + sds**2 / 2) / sds
        rate = stats.norm.sf(edge) + np.exp(rule.log_c) * stats.norm.cdf(edge - sds)
        kept.append(rate >= 1 / budgets)
    together = np.mean(np.all(kept, axis=1))
    assert together >= 0.8 - 4 * np.sqrt(0.8 * 0.2 / 100)
    alone = [Budgeted.fit(x[labels == g], k, confidence=1 - 0.2 / 3) for g, k in enumerate(budgets)]
    assert rule.budgets == pytest.approx([one.budget for one in alone]), "a third of the failures each"
    assert rule.log_c == pytest.approx([one.log_c for one in alone])
    assert np.all(rule.budgets < budgets)


# --- labels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        [3, 3, -7, 900],
        ["b", "b", "a", "ccc"],
        [True, True, False, True],
        [0.5, 0.5, 1.0, 2.5],
        np.array(["b", "b", "a", "ccc"], dtype=object),
        np.array([3, 3, 1, 900], dtype=np.int16),
        np.array([2**63 + 1, 2**63 + 1, 5, 7], dtype=np.uint64),
    ],
    ids=repr,
)
def test_labels_of_any_kind_come_back_from_json(labels):
    x = np.log([1.0, 2.0, 3.0, 4.0])
    rule = Grouped.fit(x, dict.fromkeys(any_labels(labels).tolist(), 1.5), labels)
    back = from_json(to_json(rule))
    assert back == rule
    assert [type(a) for a in back.labels] == [type(a) for a in any_labels(labels).tolist()[: len(back.labels)]]
    np.testing.assert_array_equal(back(x, labels), rule(x, labels))
    np.testing.assert_allclose(np.exp(rule(x, labels))[2:], np.where(np.asarray(labels)[2:] == labels[0], 1.0, 1 / 1.5))


# --- shares --------------------------------------------------------------------------------------------------

SHARES = {"ant": 0.2, "bee": 0.5, "cat": 0.3}


def kept_shares(rule, log_ratio=LOG_RATIO, labels=LABELS):
    a = np.exp(rule(log_ratio, labels))
    return {label: float(np.sum(a[labels == label]) / np.sum(a)) for label in rule.labels}


@pytest.mark.parametrize("budget", [2, 4, 10])
def test_shares_and_the_total_budget_are_met(budget):
    rule = Grouped.fit(LOG_RATIO, budget, LABELS, shares=SHARES)
    assert np.mean(np.exp(rule(LOG_RATIO, LABELS))) == pytest.approx(1 / budget, rel=1e-12)
    assert kept_shares(rule) == pytest.approx(SHARES, rel=1e-12)
    assert {group.label: group.share for group in rule.groups} == pytest.approx(SHARES)
    assert rule.budget == pytest.approx(budget, rel=1e-12)
    assert from_json(to_json(rule)) == rule


def test_the_smallest_feasible_budget_is_named_and_works():
    x = np.where(RNG.random(3000) < 0.3, -np.inf, LOG_RATIO)
    proposed, possible = np.mean(LABELS == "bee"), np.mean(x[LABELS == "bee"] > -np.inf)
    least = 0.9 / (proposed * possible)
    shares = {"ant": 0.05, "bee": 0.9, "cat": 0.05}
    pattern = r"share 0.9 of group 'bee', .* the smallest feasible budget is ([\d.]+)$"
    with pytest.raises(BudgetError, match=pattern) as caught:
        Grouped.fit(x, least * 0.99, LABELS, shares=shares)
    named = float(str(caught.value).rsplit(" ", 1)[1])
    assert least <= named < least * 1.001
    for budget in (named, least):
        rule = Grouped.fit(x, budget, LABELS, shares=shares)
        assert kept_shares(rule, x) == pytest.approx(shares, rel=1e-9)
    np.testing.assert_allclose(np.exp(rule(x, LABELS))[(LABELS == "bee") & (x > -np.inf)], 1, atol=1e-9)


def test_beyond_the_budget_of_exact_rejection_that_budget_is_used():
    most = max(SHARES[g] * Profile(LOG_RATIO[g == LABELS]).max_budget / np.mean(g == LABELS) for g in SHARES)
    rule = Grouped.fit(LOG_RATIO, 1e4, LABELS, shares=SHARES)
    assert rule.budget == pytest.approx(most, rel=1e-12)
    assert rule.exact
    assert kept_shares(rule) == pytest.approx(SHARES, rel=1e-12)
    below = Grouped.fit(LOG_RATIO, most * 0.999, LABELS, shares=SHARES)
    assert below.budget == pytest.approx(most * 0.999)
    assert not below.exact


def test_a_group_of_share_zero_is_never_kept():
    rule = Grouped.fit(LOG_RATIO, 8, LABELS, shares={"ant": 1, "bee": 0, "cat": 1})
    assert np.all(rule(LOG_RATIO, LABELS)[LABELS == "bee"] == -np.inf)
    assert rule([5000.0], ["bee"])[0] == -np.inf
    assert kept_shares(rule) == pytest.approx({"ant": 0.5, "bee": 0, "cat": 0.5})
    back = from_json(to_json(rule))
    assert back == rule
    assert json.loads(to_json(rule))["log_c"][1] == "-inf"
    assert "Infinity" not in to_json(rule)
    # a group that could not be kept at all needs no budget either
    x = np.where(LABELS == "bee", -np.inf, LOG_RATIO)
    assert Grouped.fit(x, 8, LABELS, shares={"ant": 1, "bee": 0, "cat": 1}).log_c == pytest.approx(rule.log_c)


@pytest.mark.parametrize("budget", [1.6, 2.5, 5.0])
@pytest.mark.parametrize("name", ["kl", "hellinger"])
def test_no_rule_with_the_same_shares_comes_closer(name, budget):
    """Against a general optimiser over all acceptance probabilities with these shares and this rate."""
    ratio = np.array([3.0, 1.0, 0.6, 0.4, 0.2, 2.0, 0.8, 0.5, 0.1, 4.0, 1.2, 0.2])
    labels, shares = np.repeat([0, 1, 2], [5, 4, 3]), np.array([0.5, 0.2, 0.3])
    target = ratio / ratio.sum()

    def divergence(a):
        kept = a / a.sum()
        if name == "kl":
            return float(np.sum(target * np.log(target / kept)))
        return float(np.sum((np.sqrt(target) - np.sqrt(kept)) ** 2))

    constraints = [
        {"type": "eq", "fun": lambda a, g=g: np.sum(a[labels == g]) - shares[g] * 12 / budget} for g in range(3)
    ]
    start = (shares / np.array([5, 4, 3]))[labels] * 12 / budget
    best = optimize.minimize(
        divergence,
        start,
        bounds=[(1e-7, 1)] * 12,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    rule = Grouped.fit(np.log(ratio), budget, labels, shares=shares)
    a = np.exp(rule(np.log(ratio), labels))
    assert divergence(a) <= best.fun + 1e-9
    assert divergence(a) == pytest.approx(best.fun, abs=1e-6), "the optimiser gets there, too"
    np.testing.assert_allclose(a / a.sum(), best.x / best.x.sum(), atol=1e-3)


def test_sizes_sum_to_n_and_are_the_nearest():
    assert sizes_of(10, np.array([0.55, 0.25, 0.2])).tolist() == [6, 2, 2]
    assert sizes_of(7, np.full(3, 1 / 3)).tolist() == [3, 2, 2]
    assert sizes_of(1, np.array([0.0, 0.5, 0.5])).tolist() == [0, 1, 0]
    for seed in range(50):
        rng = np.random.default_rng(seed)
        shares, n = rng.dirichlet(np.ones(7)), int(rng.integers(1, 5000))
        size = sizes_of(n, shares)
        assert size.sum() == n
        assert np.all(np.abs(size - n * shares) < 1)


# --- bad input -----------------------------------------------------------------------------------------------
