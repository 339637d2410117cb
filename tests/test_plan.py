"""Plans: what they promise, how often it holds, and what one constant per group leaves."""

import numpy as np
import pytest
from scipy import stats

from obrs import Grouped, Profile
from obrs.divergences import DIVERGENCES

LOG_RATIO = np.random.default_rng(0).normal(size=3000)
LABELS = np.repeat(["ant", "bee", "cat"], [500, 300, 100])
PLAIN = ("kl", "rkl", "tv", "js", "chi2")


def test_plan_has_one_flat_row_per_budget():
    plan = Profile(LOG_RATIO).plan([1, 2, 4], n=500, recall=0.8)
    assert [row["budget"] for row in plan] == [1, 2, 4]
    assert plan[1]["proposals"] == pytest.approx(1000)
    for row in plan:
        for key in ("rate", *PLAIN, "ess", "precision"):
            assert row[f"{key}_low"] <= row[key] <= row[f"{key}_high"]
    assert [row["kl"] for row in plan] == sorted((row["kl"] for row in plan), reverse=True)
    curve = Profile(LOG_RATIO).curve(4, points=10_001)
    assert plan[2]["precision"] == pytest.approx(np.interp(0.8, curve.recall[::-1], curve.precision[::-1]), abs=1e-6)


LOGIT = np.linspace(-40, 40, 20_001)


def quantiles(dist, log_ratio=lambda x: x):
    """Draws and exact quantiles, out to a mass of 1e-17 at both ends, of log r = log_ratio(x) with x from `dist`."""
    below, above = 1 / (1 + np.exp(-LOGIT)), 1 / (1 + np.exp(LOGIT))
    x = np.where(LOGIT < 0, dist.ppf(below), dist.isf(above))
    return lambda rng, n: log_ratio(dist.rvs(size=n, random_state=rng)), log_ratio(x), below * above


def mixture(share, near, far):
    """Mostly `near`, with a share of `far`."""

    def draw(rng, n):
        k = rng.binomial(n, share)
        return np.concatenate([near[0](rng, n - k), far[0](rng, k)])

    weights = [part[2] / np.sum(part[2]) * mass for part, mass in ((near, 1 - share), (far, share))]
    return draw, np.concatenate([near[1], far[1]]), np.concatenate(weights)


RATIOS = {  # of log r under the model
    "normal 0.5": quantiles(stats.norm(0, 0.5)),
    "normal 1": quantiles(stats.norm(0, 1)),
    "logistic": quantiles(stats.logistic(0, 0.3)),
    "laplace": quantiles(stats.laplace(0, 0.25)),
    "gamma": quantiles(stats.gamma(0.5, scale=0.3)),
    "student": quantiles(stats.t(5), lambda x: stats.t(3).logpdf(x) - stats.t(5).logpdf(x)),
    "atoms": (lambda rng, n: np.log(rng.choice([0.5, 1, 6], n, p=[0.5, 0.46, 0.04])), np.log([0.5, 1, 6]), [50, 46, 4]),
    "mixture": mixture(0.04, quantiles(stats.norm(0, 0.3)), quantiles(stats.norm(2, 0.3))),
}


@pytest.mark.parametrize("name", RATIOS)
def test_columns_that_are_not_marked_cover_the_truth(name):
    """Of the pilots in which a column is not marked, its 95 % interval holds the truth in 90 %, for these ratios."""
    rng, (draw, *exact), budgets = np.random.default_rng(11), RATIOS[name], [2.0, 4.0]
    truth = {row["budget"]: row for row in Profile(*exact).plan(budgets)}
    for n, repeats in ((200, 50), (500, 50), (2000, 30), (20_000, 6)):
        covered = {}
        for _ in range(repeats):
            for row in Profile(draw(rng, n)).plan(budgets):
                for key in {*PLAIN, "ess", "precision"} - set(row["unreliable"].split()):
                    hit = row[f"{key}_low"] - 1e-12 <= truth[row["budget"]][key] <= row[f"{key}_high"] + 1e-12
                    covered.setdefault((key, row["budget"]), []).append(hit)
        for at, hits in covered.items():
            assert np.mean(hits) > 0.9 - 3 * np.sqrt(0.9 * 0.1 / len(hits)), (n, at, np.mean(hits), len(hits))


def test_small_pilots_promise_something_and_large_ones_everything():
    rng = np.random.default_rng(16)
    for sd, budgets in ((0.5, [1, 1.5, 2]), (1.0, [1, 2, 4])):
        small = [Profile(rng.normal(0, sd, 500)).plan(budgets) for _ in range(50)]
        marked = [row["unreliable"].split() for plan in small for row in plan]
        assert np.mean([bool({"tv", "precision"} & set(names)) for names in marked]) <= 0.02
        assert all(row["unreliable"] == "" for row in Profile(rng.normal(0, sd, 50_000)).plan(budgets))


def test_rate_interval_covers_the_rate_of_fresh_proposals():
    rng, sd, hits = np.random.default_rng(12), 1.0, 0
    for _ in range(500):
        profile = Profile(rng.normal(-0.5, sd, size=1000))
        edge = (-profile.log_c(2.6) + sd**2 / 2) / sd
        fresh = stats.norm.sf(edge) + np.exp(profile.log_c(2.6)) * stats.norm.cdf(edge - sd)
        row = profile.plan([2.6])[0]
        hits += row["rate_low"] <= fresh <= row["rate_high"]
    assert abs(hits / 500 - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 500)


def test_heavy_tails_are_marked():
    light, heavy = Profile(LOG_RATIO * 0.2).plan([1.2])[0], Profile(LOG_RATIO * 3).plan([2])[0]
    assert light["unreliable"] == "chi2 ess"  # too few for these, however light they look
    assert {"kl", "chi2", "ess", "tv"} <= set(heavy["unreliable"].split())
    assert "rate" not in heavy["unreliable"].split()
    beyond = Profile(LOG_RATIO * 0.2).plan([1e6])[0]  # a maximum cannot be planned
    assert {"kl", "rkl", "js", "chi2", "ess"} <= set(beyond["unreliable"].split())
    assert beyond["tv"] < 1e-12 < 1e-3 < beyond["tv_high"]  # what was not seen may be left


# --- groups ----------------------------------------------------------------

X = np.random.default_rng(1).normal(size=900)


@pytest.mark.parametrize("shares", [None, {"ant": 0.3, "bee": 0.3, "cat": 0.4}, [1, 0, 1]], ids=repr)
@pytest.mark.parametrize("budget", [4.5, 1000.0])
def test_rows_of_groups_are_those_of_the_rule(shares, budget):
    """Divergences point by point, with the conventions 0 f(0/0) = 0 and 0 f(p/0) = p f'(inf)."""
    (row,) = Profile(X).plan([budget], n=10, groups=LABELS, shares=shares)
    rule = Grouped.fit(X, budget, LABELS, shares=shares)
    a, target = np.exp(rule(X, LABELS)), np.exp(X) / np.sum(np.exp(X))
    kept, inside = a / np.sum(a), a > 0
    assert (row["rate"], row["proposals"]) == (pytest.approx(np.mean(a)), pytest.approx(10 / np.mean(a)))
    assert row["budget"] * row["rate"] == pytest.approx(1)
    assert (row["groups"], row["exact"]) == (rule.groups, rule.exact)
    for key in PLAIN:
        expected = np.sum(kept[inside] * DIVERGENCES[key].f(np.log(target[inside] / kept[inside])))
        if not inside.all():
            expected += np.sum(target[~inside]) * float(DIVERGENCES[key].critic(np.inf))
        assert row[key] == (np.inf if np.isinf(expected) else pytest.approx(expected, abs=1e-12)), key
    with np.errstate(divide="ignore"):
        assert row["ess"] == pytest.approx(1 / np.sum(target**2 / kept), rel=1e-9)


def test_one_group_is_the_profile_and_more_cost_divergence():
    profile = Profile(X.reshape(30, 30))
    (row,) = profile.plan([4], groups=np.zeros((30, 30), int))
    for key in PLAIN:
        assert row[key] == pytest.approx(profile.divergence(key, 4), rel=1e-9)
    labels = LABELS.reshape(30, 30)
    (rates,), (equal,) = (profile.plan([4], groups=labels, shares=shares) for shares in (None, [1, 1, 1]))
    assert row["kl"] < rates["kl"] < equal["kl"]
