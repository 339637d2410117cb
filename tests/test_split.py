"""One budget for many groups: no other division leaves less, and fresh proposals meet what was promised."""

import numpy as np
import pytest
from scipy.optimize import minimize

import obrs
from obrs import Grouped, Profile, normals
from obrs.divergences import DIVERGENCES
from obrs.errors import BudgetError, ExhaustedError, ObrsError
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
    best = minimize(
        lambda k: shares @ left_after(parts, k, div),
        np.full(3, 3.0),
        bounds=[(1, 30)] * 3,
        constraints={"type": "ineq", "fun": lambda k: 3 - shares @ k},
        method="SLSQP",
        options={"maxiter": 300},
    )
    assert shares @ left_after(parts, budgets, div) <= best.fun + 1e-4


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


APART = {"far": 2.0, "near": 0.3, "usual": 1.0}  # p of a group is a normal law so far from that of its proposals


def propose(ids, group, seed=0):
    return {"x": normals(ids, 1, seed=seed)[:, 0], "label": np.full(len(ids), group)}


def log_ratio(batch):
    apart = np.vectorize(APART.get)(batch["label"])
    return apart * batch["x"] - apart**2 / 2


def fit(seed, budget=4.0):
    pilot = [propose(np.arange(4000) + 4000 * i, group, 100 + seed) for i, group in enumerate(APART)]
    x, labels = (np.concatenate(part) for part in ([*map(log_ratio, pilot)], [batch["label"] for batch in pilot]))
    return Grouped.fit(x, budget, labels, split="kl", shares={"far": 1, "near": 2, "usual": 1})


def test_samples_made_group_by_group_meet_shares_budget_and_promise():
    gaps, costs, means = [], [], []
    for seed in range(12):
        rule = fit(seed)
        kept = obrs.sample(lambda ids, group, seed=seed: propose(ids, group, seed), log_ratio, 6000, rule=rule)
        weights = [kept.log_weight[kept.x["label"] == group] for group in APART]
        assert [len(w) for w in weights] == [1500, 3000, 1500], "shares hold exactly"
        assert kept.rule == rule
        assert np.exp(kept.log_weight).mean() == pytest.approx(1)
        left = [np.mean(np.exp(w) * w) for w in weights]  # w = p/o, so KL(p || o) = E_o[w log w]
        gaps.append(np.dot([0.25, 0.5, 0.25], left) - rule.left)
        costs.append(kept.proposed / len(kept) - 4)
        means.append(kept.mean(lambda batch: batch["x"]) - np.dot([0.25, 0.5, 0.25], list(APART.values())))
    for gap in map(np.array, (gaps, costs, means)):
        assert abs(gap.mean()) <= 3 * gap.std(ddof=1) / np.sqrt(len(gap))


def test_what_is_kept_group_by_group_depends_on_ids_alone_and_goes_on():
    rule = fit(0)
    whole = obrs.sample(propose, log_ratio, 400, rule=rule, seed=3)
    other = obrs.sample(propose, log_ratio, 400, rule=rule, seed=3, batch_size=37)
    np.testing.assert_array_equal(whole.ids, other.ids)
    more = obrs.sample(propose, log_ratio, 400, rule=whole.rule, seed=3, start=whole.next_id)
    assert len(whole + more) == 800
    with pytest.raises(ExhaustedError, match=r"kept \d+ of 400 samples in 1000 proposals") as caught:
        obrs.sample(propose, log_ratio, 400, rule=rule, seed=3, max_proposed=1000)
    part = caught.value.partial
    np.testing.assert_array_equal(part.ids, whole.ids[: len(part)])
    assert part.rule == rule
