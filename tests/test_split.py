"""One budget for many groups: no other division leaves less, and fresh proposals meet what was promised."""

import numpy as np
import pytest
from scipy.optimize import minimize

import obrs
from obrs import Grouped, Profile
from obrs.divergences import DIVERGENCES
from obrs.errors import BudgetError, ObrsError
from obrs.rules import from_json, to_json
from obrs.split import left_after, split_budget

SPREAD = np.linspace(0.2, 2.2, 16)


def draw(seed, n=4000):
    """Return log-ratios of 16 groups, and their labels."""
    x = np.random.default_rng(seed).normal(size=(len(SPREAD), n)) * SPREAD[:, None]
    return x.reshape(-1), np.repeat(np.arange(len(SPREAD)), n)


@pytest.mark.parametrize("name", ["kl", "tv", "js"])
def test_slsqp_finds_no_better_division(name):
    rng, div = np.random.default_rng(0), DIVERGENCES[name]
    parts, shares = [rng.normal(size=400) * s for s in (0.3, 1.0, 2.0)], np.array([0.5, 0.3, 0.2])
    budgets = split_budget(parts, shares, 3.0, div)
    assert shares @ budgets == pytest.approx(3)
    found = minimize(
        lambda k: shares @ left_after(parts, k, div),
        np.full(3, 3.0),
        bounds=[(1, 30)] * 3,
        constraints={"type": "ineq", "fun": lambda k: 3 - shares @ k},
        method="SLSQP",
        options={"maxiter": 300},
    )
    assert shares @ left_after(parts, budgets, div) <= found.fun + 1e-4


@pytest.mark.parametrize(("budget", "equal"), [(4, 5.85), (8, 14)])
def test_a_split_budget_leaves_what_a_larger_equal_one_does(budget, equal):
    x, labels = draw(0, 20_000)
    rule = Grouped.fit(x, budget, labels, split="kl")
    profiles = [Profile(part) for part in x.reshape(16, -1)]
    assert rule.budget == pytest.approx(budget)
    assert rule.left == pytest.approx(np.mean([profile.divergence("kl", equal) for profile in profiles]), rel=0.1)
    assert rule.left < np.mean([profile.divergence("kl", budget) for profile in profiles])
    assert np.all(np.diff(rule.budgets) > -0.2), "what is farther gets more"
    assert from_json(to_json(rule)) == rule


def test_fresh_proposals_meet_what_is_promised():
    promised, met = [], []
    for seed in range(20):
        x, labels = draw(seed)
        rule = Grouped.fit(x, 4, labels, split="kl")
        fresh = np.split(draw(1000 + seed)[0], 16)
        promised.append(rule.left)
        met.append(left_after(fresh, np.array(rule.budgets), DIVERGENCES["kl"]).mean())
        rates = [np.mean(np.exp(rule(part, np.full(len(part), g)))) for g, part in enumerate(fresh)]
        assert np.mean(1 / np.array(rates)) == pytest.approx(4, rel=0.05)
    gap = np.subtract(promised, met)
    assert abs(gap.mean()) <= 3 * gap.std() / np.sqrt(len(gap))


def test_minimax_makes_the_worst_group_better():
    x, labels = draw(0)
    mean, worst = (Grouped.fit(x, 8, labels, split=split) for split in ("kl", "minimax"))
    parts = x.reshape(16, -1)
    each = [left_after(list(parts), np.array(rule.budgets), DIVERGENCES["kl"]) for rule in (mean, worst)]
    assert each[1].max() < each[0].max()
    assert worst.budget == pytest.approx(8, rel=1e-6)
    assert each[1].mean() > each[0].mean()


def test_shares_and_edges():
    x, labels = draw(0, 400)
    rule = Grouped.fit(x, 4, labels, split="kl", shares=np.arange(1, 17))
    share = np.arange(1, 17) / 136
    assert share @ np.array(rule.budgets) == pytest.approx(4)
    np.testing.assert_allclose(rule.proposed, share * rule.budgets / 4)
    none = Grouped.fit(x, 4, labels, split="kl", shares=np.append(np.ones(15), 0))
    assert (none.budgets[15], none.log_c[15], none.budget) == (np.inf, -np.inf, pytest.approx(4))
    same = Grouped.fit(np.zeros(20), 4, np.arange(20) % 2, split="kl")
    assert same.budgets == pytest.approx((1, 1)), "nothing is left to remove"
    holes = np.where(np.arange(40) % 4 < 2, 0.0, -np.inf)
    with pytest.raises(BudgetError, match=r"budget 1\.5 is below 2, which these groups need"):
        Grouped.fit(holes, 1.5, np.repeat([0, 1], 20), split="kl")
    with pytest.raises(BudgetError, match="too few proposals with r > 0 in group 1"):
        Grouped.fit([0.0, 0.0, 0.0], 2, [0, 0, 1], split="kl")
    for options in ({"split": "kl", "confidence": 0.9}, {"split": "most"}):
        with pytest.raises(ObrsError, match=r"confidence|split must be minimax"):
            obrs.Grouped.fit(x, 4, labels, **options)
