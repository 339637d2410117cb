"""The profile against closed forms, brute force and generic optimisation; its goals."""

import inspect

import numpy as np
import pytest
from scipy import optimize, stats

import obrs
from obrs import Profile, solve_log_c
from obrs.divergences import DIVERGENCES, pr
from obrs.errors import BudgetError
from obrs.profile import GOALS

EVERY = DIVERGENCES | {"pr(0.5)": pr(0.5), "pr(2)": pr(2)}
LOG_RATIO = np.random.default_rng(0).normal(size=3000)


def pair(rng, n=30, sparse=False):
    """A random discrete target and model."""
    p, q = rng.dirichlet(np.full(n, 0.7)), rng.dirichlet(np.full(n, 0.7))
    if sparse:
        p[: n // 4] = 0
        p /= p.sum()
    return p, q


def reject(p, q, budget):
    """The distribution after OBRS, from the rule and nothing else."""
    with np.errstate(divide="ignore"):
        log_ratio = np.log(p / q)
    a = np.exp(obrs.Budgeted.fit(log_ratio, budget, weights=q)(log_ratio)) if budget > 1 else np.ones(len(p))
    return q * a / np.sum(q * a), float(q @ a)


# --- numbers ----------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("sparse", [False, True])
def test_divergence_left_is_that_of_what_is_kept(name, sparse):
    rng = np.random.default_rng(1)
    for _ in range(5):
        p, q = pair(rng, sparse=sparse)
        with np.errstate(divide="ignore"):
            profile = Profile(np.log(p / q), q)
        for budget in [1.0, 1.5, 2.6, profile.max_budget * 2]:
            if sparse and budget > 1 and np.sum(q[p > 0]) * budget < 1:
                continue
            kept, rate = reject(p, q, budget)
            assert profile.rate(budget) == pytest.approx(rate, rel=1e-10)
            here = kept > 0
            with np.errstate(divide="ignore"):
                expected = np.sum(kept[here] * EVERY[name].f(np.log(p[here] / kept[here])))
            assert profile.divergence(EVERY[name], budget) == pytest.approx(expected, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 1500.0])
def test_constant_is_that_of_the_solver(scale):
    profile = Profile(LOG_RATIO * scale + 7)
    for budget in [1.01, 1.5, 2.6, 40.0, 1e9]:
        expected = float(solve_log_c(LOG_RATIO * scale + 7, budget))
        assert profile.log_c(budget) == pytest.approx(expected, rel=1e-12, abs=1e-10)
    assert profile.log_c(1) == np.inf


def test_alpha_is_precision_and_beta_recall():
    profile = Profile(LOG_RATIO)
    r = np.exp(LOG_RATIO) / np.mean(np.exp(LOG_RATIO))
    for lam in [1e-3, 0.2, 1.0, 7.0, 1e5]:
        assert profile.alpha(lam) == pytest.approx(np.mean(np.minimum(lam * r, 1)), rel=1e-12)
        assert profile.beta(lam) == pytest.approx(np.mean(np.minimum(r, 1 / lam)), rel=1e-12)
    assert (profile.alpha(0), profile.alpha(np.inf), profile.beta(np.inf)) == (0, 1, 0)
    assert profile.beta(0) == pytest.approx(1)
    np.testing.assert_allclose(profile.alpha([0.5, 2.0]), [profile.alpha(0.5), profile.alpha(2.0)])
    for budget in [1.5, 2.6, 10]:
        assert profile.alpha(np.exp(profile.log_c(budget) + profile.log_mean_ratio)) == pytest.approx(1 / budget)


def log_normal(sd):
    """Quantiles of log r under Q = N(0, 1) for P = N(sd, 1): log r ~ N(-sd²/2, sd²)."""
    grid = (np.arange(400_000) + 0.5) / 400_000
    return stats.norm.ppf(grid) * sd - sd**2 / 2


@pytest.mark.parametrize("sd", [0.3, 1.0])
def test_gaussian_pair_has_its_closed_forms(sd):
    """P = N(sd, 1), Q = N(0, 1); alpha(c) = P(log r > -log c) + c P_P(log r < -log c), both of them normal."""
    profile = Profile(log_normal(sd))
    assert profile.log_mean_ratio == pytest.approx(0, abs=1e-3)
    assert profile.divergence("rkl") == pytest.approx(sd**2 / 2, rel=1e-3)
    assert profile.divergence("kl") == pytest.approx(sd**2 / 2, rel=2e-3)
    assert 1 / profile.ess() - 1 == pytest.approx(np.exp(sd**2) - 1, rel=1e-2)
    assert profile.divergence("tv") == pytest.approx(2 * stats.norm.cdf(sd / 2) - 1, rel=1e-3)
    assert profile.divergence("hellinger") == pytest.approx(2 - 2 * np.exp(-(sd**2) / 8), rel=1e-3)
    for budget in [1.1, 1.5]:

        def excess(log_c, budget=budget):
            edge = (-log_c + sd**2 / 2) / sd
            return stats.norm.sf(edge) + np.exp(log_c) * stats.norm.cdf(edge - sd) - 1 / budget

        assert profile.log_c(budget) == pytest.approx(optimize.brentq(excess, -20, 20), abs=2e-3)


# --- invariances and input ----------------------------------------------------------------


def precision(profile, recall, budget):
    return profile.plan([budget], recall=recall)[0]["precision"]


def summary(profile):
    values = [profile.divergence(d, k) for d in EVERY.values() for k in (1, 2)]
    return np.array([*values, profile.ess(2), profile.rate(3), profile.max_budget, precision(profile, 0.8, 2)])


def test_scale_order_and_repetition_do_not_matter():
    x = LOG_RATIO[:400]
    reference = summary(Profile(x))
    counts = np.random.default_rng(3).integers(1, 5, size=400)
    np.testing.assert_allclose(summary(Profile(x + 50)), reference, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(summary(Profile(x[::-1].reshape(20, 20))), reference, rtol=1e-9, atol=1e-12)
    weighted, repeated = Profile(x, weights=counts), Profile(np.repeat(x, counts))
    np.testing.assert_allclose(summary(weighted), summary(repeated), rtol=1e-9, atol=1e-12)


def test_impossible_proposals_count_before_rejection_and_not_after():
    x, counts = np.array([-np.inf, 0.0, 1.0, -np.inf, 2.0]), np.array([2, 1, 1, 3, 1])
    weighted, repeated = Profile(x, weights=counts), Profile(np.repeat(x, counts))
    assert weighted.possible == pytest.approx(3 / 8)
    for budget in (1, 3, 4):
        assert weighted.log_c(budget) == pytest.approx(repeated.log_c(budget))
        for name in ("tv", "chi2", "js", "kl"):
            assert weighted.divergence(name, budget) == pytest.approx(repeated.divergence(name, budget), abs=1e-12)
    with pytest.raises(BudgetError, match=r"smallest feasible budget is 2.667"):
        weighted.rate(2)
    half = Profile([0.0, -np.inf])
    assert (half.divergence("tv"), half.divergence("rkl")) == (pytest.approx(0.5), np.inf)
    assert half.divergence("tv", 2) == pytest.approx(0, abs=1e-12)


def test_every_backend_gives_one_profile(xp):
    np.testing.assert_allclose(summary(Profile(xp.asarray(LOG_RATIO))), summary(Profile(LOG_RATIO)), rtol=1e-12)


# --- theorems ----------------------------------------------------------------


@pytest.mark.parametrize("budget", [1.0, 1.4, 2.0, 50.0])
def test_precision_is_k_fold_at_every_recall(budget):
    """Theorem 3.3, point by point; beyond M the effective budget is M. The frontier moves by log K."""
    p, q = pair(np.random.default_rng(5))
    profile = Profile(np.log(p / q), q)
    kept, rate = reject(p, q, budget)
    curve, before = profile.curve(budget, points=101), profile.curve(1.0, points=101)
    lam = curve.lam[1:-1]
    alpha = np.sum(np.minimum(lam[:, None] * p, kept), axis=1)
    np.testing.assert_allclose(curve.precision[1:-1], alpha, rtol=1e-9)
    np.testing.assert_allclose(curve.recall[1:-1], alpha / lam, rtol=1e-9)
    np.testing.assert_allclose(profile.frontier(budget, 101).from_model[1:-1], -np.log(alpha), atol=1e-9)
    effective, scaled = min(budget, profile.max_budget), Profile(np.log(p / kept), kept)
    curved = before.recall[1:-1] < 1 - 1e-9  # where the recall is 1 the curve is a vertical line
    for recall, once in zip(before.recall[1:-1][curved], before.precision[1:-1][curved], strict=True):
        assert precision(scaled, recall, 1) == pytest.approx(min(1, effective * once), rel=1e-6)
    assert rate == pytest.approx(1 / effective)
    assert (curve.precision[0], curve.recall[0]) == (0, pytest.approx(1))
    assert (curve.precision[-1], curve.recall[-1]) == (pytest.approx(1), 0)


@pytest.mark.parametrize("name", EVERY)
def test_no_acceptance_function_leaves_less(name):
    """OBRS against SLSQP, for every divergence, smooth or not."""
    rng, div, feasible = np.random.default_rng(8), EVERY[name], 0
    for _ in range(3):
        p, q = rng.dirichlet(np.full(5, 2.0)), rng.dirichlet(np.full(5, 2.0))
        profile = Profile(np.log(p / q), q)
        budget = 1 + 0.6 * (profile.max_budget - 1)

        def divergence(a, p=p, q=q):
            kept = q * a / (q @ a)
            return float(kept @ div.f(np.log(p / kept)))

        rate = {"type": "ineq", "fun": lambda a, q=q, budget=budget: q @ a - 1 / budget}
        for start in (np.full(5, 0.95), np.minimum(p / q / np.max(p / q) + 0.3, 1)):
            options = {"ftol": 1e-13, "maxiter": 500}
            best = optimize.minimize(
                divergence, start, bounds=[(1e-6, 1)] * 5, constraints=rate, method="SLSQP", options=options
            )
            if q @ best.x >= 1 / budget - 1e-7:
                feasible += 1
                assert profile.divergence(div, budget) <= best.fun + 1e-6
    assert feasible >= 3


def test_bounds_hold_and_are_tight_at_both_ends():
    rng = np.random.default_rng(9)
    for _ in range(300):
        p, q = pair(rng, n=6)
        profile = Profile(np.log(p / q), q)
        budget = 1 + rng.random() * (profile.max_budget - 1)
        for name in ("kl", "rkl", "tv", "chi2", "hellinger", "gan"):
            assert profile.divergence(name, budget) <= profile.bound(name, budget) * (1 + 1e-9) + 1e-10
        mixture = 1 - (budget - 1) / (profile.max_budget - 1)
        assert profile.bound("tv", budget) == pytest.approx(mixture * profile.divergence("tv"))
        assert profile.bound("kl", budget) <= mixture * profile.divergence("kl") * (1 + 1e-12)
    assert profile.bound("kl", 1) == pytest.approx(profile.divergence("kl"))
    assert profile.bound("chi2", profile.max_budget) == 0
    two = Profile(np.log([1.8, 0.2]))  # an equality on two points, where the bound as printed fails
    assert two.bound("kl", 1.2) == pytest.approx(two.divergence("kl", 1.2), abs=1e-9)


# --- budgets for goals ----------------------------------------------------------------

PROFILE = Profile(LOG_RATIO * 1.1)
ASKED = dict.fromkeys(DIVERGENCES, 0.03) | {"ess": 0.8, "truncation": 0.01, "precision": 0.9}


def value(profile, key, budget):
    if key in DIVERGENCES:
        return profile.divergence(key, budget)
    return precision(profile, 0.9, budget) if key == "precision" else getattr(profile, key)(budget)


def compute_goal(key, budget):
    """What the goal is at a budget, from the definitions: c by root finding, then sums over all proposals."""
    r = np.exp(LOG_RATIO * 1.1)
    r /= r.mean()
    c = np.exp(optimize.brentq(lambda x: np.minimum(np.exp(x) * r, 1).mean() - 1 / budget, -20, 20, xtol=1e-14))
    q, p = np.minimum(c * r, 1) / np.sum(np.minimum(c * r, 1)), r / r.sum()
    if key in DIVERGENCES:
        return np.sum(q * DIVERGENCES[key].f(np.log(p / q)))
    if key == "ess":
        return 1 / np.sum(p**2 / q)
    if key == "truncation":
        return np.sum(np.maximum(c * r - 1, 0)) / np.sum(c * r)
    # Precision at recall 0.9: alpha of the kept at the slope whose beta is 0.9.
    lam = np.exp(optimize.brentq(lambda x: np.sum(np.minimum(p, q * np.exp(-x))) - 0.9, -20, 20, xtol=1e-14))
    return np.sum(np.minimum(lam * p, q))


@pytest.mark.parametrize("key", GOALS)
def test_the_goal_is_met_and_not_a_hair_earlier(key):
    goal, sign = ASKED[key], -1 if key in ("ess", "precision") else 1
    budget = PROFILE.budget_for(**{key: goal})
    here, earlier = (sign * value(PROFILE, key, k) for k in (budget, budget * (1 - 1e-9)))
    assert here <= sign * goal < earlier
    assert 1 < budget < PROFILE.max_budget
    assert compute_goal(key, budget) == pytest.approx(goal, rel=1e-8)


def test_goals_at_both_ends():
    parameters = inspect.signature(Profile.budget_for).parameters
    assert set(parameters) - {"self", "recall"} == {*DIVERGENCES, "ess", "truncation", "precision"} == set(GOALS)
    assert PROFILE.budget_for(kl=PROFILE.divergence("kl")) == PROFILE.budget_for(truncation=1) == 1
    for goal in ({"kl": 0}, {"ess": 1}, {"truncation": 0}, {"kl": 1e-300}):
        assert PROFILE.budget_for(**goal) == pytest.approx(PROFILE.max_budget, rel=1e-6)
        assert Profile(np.zeros(5)).budget_for(**goal) == 1
    assert Profile(np.arange(7) * -50.0).budget_for(tv=1e-300) == pytest.approx(7)  # exp(log 7) is not quite 7
    assert Profile([-1e6, -5e5, 1.9], [1e-279, 1, 1]).divergence("neyman", 1 + 3e-16) == np.inf  # not 0 times it
    for recall in (0.5, 0.9, 0.99):
        expected = max(1 / precision(PROFILE, recall, 1), 1)
        assert PROFILE.budget_for(precision=1, recall=recall) == pytest.approx(expected)
    half = Profile([0.0, 0.0, -np.inf, -np.inf])  # K = 1 keeps all; between 1 and 2 nothing can be done
    goals = {"kl": 0.7}, {"rkl": np.inf}, {"kl": 0.69}, {"truncation": 0}
    assert [half.budget_for(**goal) for goal in goals] == [1, 1, 2, 2]
