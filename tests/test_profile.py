"""The profile against closed forms, brute force, generic optimisation, and its own promises."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import obrs
from obrs import bounds, solve_log_c
from obrs.divergences import DIVERGENCES, pr
from obrs.errors import BudgetError, InputError, InputTypeError, RatioError, UnknownNameError
from obrs.profile import Profile
from paper.theory import printed_kl_bound

EVERY = {
    **DIVERGENCES,
    "pr(0.5)": pr(0.5),
    "pr(2)": pr(2),
}
LOG_RATIO = np.random.default_rng(0).normal(size=3000)


def pair(rng, n=30, sparse=False):
    """A random discrete target and model."""
    p, q = rng.dirichlet(np.full(n, 0.7)), rng.dirichlet(np.full(n, 0.7))
    if sparse:
        p[: n // 4] = 0
        p /= p.sum()
    return p, q


def kept_by(p, q, budget):
    """The distribution after OBRS, from the rule and nothing else."""
    with np.errstate(divide="ignore"):
        log_ratio = np.log(p / q)
    a = np.exp(obrs.Budgeted.fit(log_ratio, budget, weights=q)(log_ratio)) if budget > 1 else np.ones(len(p))
    return q * a / np.sum(q * a), float(q @ a)


def f_divergence(div, p, q):
    with np.errstate(divide="ignore", invalid="ignore"):
        log_u = np.log(p) - np.log(q)
    return float(np.sum(np.where(q > 0, q * div.f(np.where(q > 0, log_u, 0)), 0)))


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
            kept, rate = kept_by(p, q, budget)
            assert profile.rate(budget) == pytest.approx(rate, rel=1e-10)
            expected = f_divergence(EVERY[name], p, kept)
            assert profile.divergence(EVERY[name], budget) == pytest.approx(expected, rel=1e-8, abs=1e-10)


def test_separable_divergences_agree_with_their_sums():
    profile = Profile(LOG_RATIO)
    for name in ("kl", "rkl", "tv", "chi2", "neyman", "hellinger"):
        plain = obrs.FDivergence("other", *(getattr(DIVERGENCES[name], field) for field in FIELDS))
        for budget in [1, 1.2, 2.6, 9]:
            assert profile.divergence(name, budget) == pytest.approx(
                profile.divergence(plain, budget), rel=1e-9, abs=1e-13
            )


FIELDS = ("f", "conjugate", "critic", "log_ratio", "f_star_of_f_prime")


def test_constant_is_that_of_the_solver():
    for scale in [0.1, 1.0, 10.0, 1500.0]:
        profile = Profile(LOG_RATIO * scale + 7)
        for budget in [1.01, 1.5, 2.6, 40.0, 1e9]:
            expected = float(solve_log_c(LOG_RATIO * scale + 7, budget))
            assert profile.log_c(budget) == pytest.approx(expected, rel=1e-12, abs=1e-10)
    assert Profile(LOG_RATIO).log_c(1) == np.inf


def test_alpha_is_precision_and_beta_recall():
    profile = Profile(LOG_RATIO)
    r = np.exp(LOG_RATIO) / np.mean(np.exp(LOG_RATIO))
    for lam in [1e-3, 0.2, 1.0, 7.0, 1e5]:
        assert profile.alpha(lam) == pytest.approx(np.mean(np.minimum(lam * r, 1)), rel=1e-12)
        assert profile.beta(lam) == pytest.approx(np.mean(np.minimum(r, 1 / lam)), rel=1e-12)
    assert (profile.alpha(0), profile.beta(0), profile.alpha(np.inf), profile.beta(np.inf)) == (
        0,
        pytest.approx(1),
        1,
        0,
    )
    np.testing.assert_allclose(profile.alpha([0.5, 2.0]), [profile.alpha(0.5), profile.alpha(2.0)])


def test_alpha_inverts_the_budget():
    profile = Profile(LOG_RATIO)
    for budget in [1.5, 2.6, 10]:
        assert profile.alpha(np.exp(profile.log_c(budget) + profile.log_mean_ratio)) == pytest.approx(1 / budget)


def test_ess_is_that_of_the_residual_weights():
    p, q = pair(np.random.default_rng(2))
    profile = Profile(np.log(p / q), q)
    for budget in [1.0, 1.7, 3.0, 1e4]:
        kept, _ = kept_by(p, q, budget)
        weight = p / kept
        assert profile.ess(budget) == pytest.approx((kept @ weight) ** 2 / (kept @ weight**2), rel=1e-10)
    assert profile.ess(1e4) == pytest.approx(1)


def log_normal(sd):
    """Quantiles of log r under Q = N(0, 1) for P = N(sd, 1): log r ~ N(-sd²/2, sd²)."""
    grid = (np.arange(400_000) + 0.5) / 400_000
    return stats.norm.ppf(grid) * sd - sd**2 / 2


@pytest.mark.parametrize("sd", [0.3, 1.0])
def test_gaussian_pair_has_its_closed_forms(sd):
    """P = N(sd, 1), Q = N(0, 1)."""
    profile = Profile(log_normal(sd), normalise=False)
    assert profile.divergence("rkl") == pytest.approx(sd**2 / 2, rel=1e-3)
    profile = Profile(log_normal(sd))
    assert profile.log_mean_ratio == pytest.approx(0, abs=1e-3)
    assert profile.divergence("kl") == pytest.approx(sd**2 / 2, rel=2e-3)
    assert profile.divergence("chi2") == pytest.approx(np.exp(sd**2) - 1, rel=1e-2)
    assert profile.divergence("tv") == pytest.approx(2 * stats.norm.cdf(sd / 2) - 1, rel=1e-3)
    assert profile.divergence("hellinger") == pytest.approx(2 - 2 * np.exp(-(sd**2) / 8), rel=1e-3)
    assert profile.ess() == pytest.approx(np.exp(-(sd**2)), rel=1e-2)


@pytest.mark.parametrize("sd", [0.5, 1.0])
def test_budget_of_a_gaussian_pair_is_the_normal_integral(sd):
    """alpha(c) = P(log r > -log c) + c P_P(log r < -log c), both of them normal."""
    profile = Profile(log_normal(sd))
    for budget in [1.5, 2.6, 6.0]:

        def excess(log_c, budget=budget):
            edge = (-log_c + sd**2 / 2) / sd
            return stats.norm.sf(edge) + np.exp(log_c) * stats.norm.cdf(edge - sd) - 1 / budget

        assert profile.log_c(budget) == pytest.approx(optimize.brentq(excess, -20, 20), abs=2e-3)


# --- invariances ----------------------------------------------------------------


def summary(profile):
    values = [profile.divergence(d, k) for d in EVERY.values() for k in (1, 2)]
    return np.array([*values, profile.ess(2), profile.rate(3), profile.max_budget, profile.precision_at(0.8, 2)])


def test_scale_order_and_repetition_do_not_matter():
    x = LOG_RATIO[:400]
    reference = summary(Profile(x))
    counts = np.random.default_rng(3).integers(1, 5, size=400)
    np.testing.assert_allclose(summary(Profile(x + 50)), reference, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(summary(Profile(x[::-1].reshape(20, 20))), reference, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        summary(Profile(x, weights=counts)), summary(Profile(np.repeat(x, counts))), rtol=1e-9, atol=1e-12
    )


def test_repetition_is_weight_also_for_impossible_proposals():
    x, counts = np.array([-np.inf, 0.0, 1.0, -np.inf, 2.0]), np.array([2, 1, 1, 3, 1])
    weighted, repeated = Profile(x, weights=counts), Profile(np.repeat(x, counts))
    assert weighted.possible == pytest.approx(3 / 8)
    for budget in (1, 3, 4):
        assert weighted.log_c(budget) == pytest.approx(repeated.log_c(budget))
        for name in ("tv", "chi2", "js", "kl"):
            assert weighted.divergence(name, budget) == pytest.approx(repeated.divergence(name, budget), abs=1e-12)
    with pytest.raises(BudgetError, match=r"smallest feasible budget is 2.667"):
        weighted.rate(2)


def test_a_changed_record_is_not_mistaken_for_the_one_of_its_name():
    kl = DIVERGENCES["kl"]
    double = dataclasses.replace(kl, f=lambda x: 2 * kl.f(x))
    profile = Profile(LOG_RATIO)
    assert profile.divergence(double, 2) == pytest.approx(2 * profile.divergence("kl", 2))


def test_scale_and_rounding_are_harmless_without_normalisation():
    for values in ([800.0, 0.0, -3.0], [-800.0, -900.0]):
        honest, normal = Profile(values, normalise=False), Profile(values)
        assert honest.ess(2) == pytest.approx(normal.ess(2))
        assert honest.log_c(2) == pytest.approx(normal.log_c(2))
        assert 0 <= honest.divergence("tv", 2) <= 1
        assert 0 <= honest.divergence("js", 2) <= np.log(2) + 1e-12
    rng = np.random.default_rng(13)
    for _ in range(50):
        x = rng.normal(size=100)
        x -= np.log(np.mean(np.exp(x)))  # a mean of 1 up to rounding is no missing mass
        assert np.isfinite(Profile(x, normalise=False).divergence("kl"))
    assert Profile(np.zeros(40_000)).divergence("chi2", 2.6) == 0


def test_every_backend_gives_one_profile(xp):
    np.testing.assert_allclose(summary(Profile(xp.asarray(LOG_RATIO))), summary(Profile(LOG_RATIO)), rtol=1e-12)


def test_a_thousand_nats_of_spread_lose_nothing():
    profile = Profile(np.random.default_rng(4).uniform(-5000, 5000, size=1000))
    for budget in [1.1, 2.6]:
        assert profile.alpha(np.exp(min(profile.log_c(budget) + profile.log_mean_ratio, 700))) <= 1
        assert np.isfinite(profile.log_c(budget))
        assert 0 <= profile.divergence("tv", budget) <= 1


def test_squares_of_huge_ratios_stay_in_range():
    """r² overflows from M = 1e154 on, w r² does not."""
    weights, log_ratio = np.array([1.0, 1e-200]), np.array([0.0, 455.0])
    profile = Profile(log_ratio, weights)
    share = np.exp(455.0 - 200 * np.log(10))  # of the target that lies at the large ratio
    second = np.exp(910.0 - 200 * np.log(10) - 2 * np.log1p(share)) + (1 + share) ** -2
    assert profile.max_budget > 1e154
    assert profile.divergence("chi2") == pytest.approx(second - 1, rel=1e-9)
    assert profile.ess() == pytest.approx(1 / second, rel=1e-9, abs=0)
    for budget in (1, 2, 1e6):
        row = profile.plan([budget])[0]
        assert np.isfinite(row["chi2"])
        assert 0 < row["ess"] < 1e-150
        assert {"chi2", "ess"} <= set(row["unreliable"].split())


# --- missing mass ----------------------------------------------------------------


def test_missing_modes_cap_the_recall_and_enter_the_divergences():
    """P puts 0.3 where Q never goes."""
    q = np.array([0.25, 0.25, 0.5])
    p = np.array([0.4, 0.2, 0.1])  # and 0.3 elsewhere
    profile = Profile(np.log(p / q), q, normalise=False)
    assert np.exp(profile.log_mean_ratio) == pytest.approx(0.7)
    assert profile.beta(0) == pytest.approx(0.7)
    assert profile.curve(2).recall.max() == pytest.approx(0.7)
    assert profile.divergence("tv") == pytest.approx(0.5 * (np.abs(p - q).sum() + 0.3))
    assert profile.divergence("kl") == np.inf
    m = (p + q) / 2
    js = 0.5 * (np.sum(p * np.log(p / m)) + 0.3 * np.log(2) + np.sum(q * np.log(q / m)))
    assert profile.divergence("js") == pytest.approx(js)
    kept, _ = kept_by(p, q, 1.3)
    assert profile.divergence("hellinger", 1.3) == pytest.approx(np.sum((np.sqrt(p) - np.sqrt(kept)) ** 2) + 0.3)


# --- theorems ----------------------------------------------------------------


def plain_curve(p, q, lam):
    alpha = np.sum(np.minimum(lam[:, None] * p, q), axis=1)
    return alpha, alpha / lam


@pytest.mark.parametrize("budget", [1.0, 1.4, 2.0, 50.0])
def test_precision_is_k_fold_at_every_recall(budget):
    """Theorem 3, point by point; beyond M the effective budget is M."""
    p, q = pair(np.random.default_rng(5))
    profile = Profile(np.log(p / q), q)
    kept, rate = kept_by(p, q, budget)
    curve = profile.curve(budget, points=101)
    alpha, beta = plain_curve(p, kept, curve.lam[1:-1])
    np.testing.assert_allclose(curve.precision[1:-1], alpha, rtol=1e-9)
    np.testing.assert_allclose(curve.recall[1:-1], beta, rtol=1e-9)
    effective = min(budget, profile.max_budget)
    before = profile.curve(1.0, points=101)
    scaled = Profile(np.log(p / kept), kept)
    curved = before.recall[1:-1] < 1 - 1e-9  # where the recall is 1 the curve is a vertical line
    for recall, precision in zip(before.recall[1:-1][curved], before.precision[1:-1][curved], strict=True):
        assert scaled.precision_at(recall) == pytest.approx(min(1, effective * precision), rel=1e-6)
    assert rate == pytest.approx(1 / effective)
    assert (curve.precision[0], curve.recall[0]) == (0, pytest.approx(1))
    assert (curve.precision[-1], curve.recall[-1]) == (pytest.approx(1), 0)


def test_frontier_moves_by_log_k():
    p, q = pair(np.random.default_rng(6))
    profile = Profile(np.log(p / q), q)
    before = profile.frontier(1.0)
    for budget in [1.3, 2.0]:
        kept, _ = kept_by(p, q, budget)
        after = Profile(np.log(p / kept), kept)
        curved = before.from_target > 1e-9
        for loss, from_target in zip(before.from_model[curved][:-1], before.from_target[curved][:-1], strict=True):
            moved = -np.log(after.precision_at(np.exp(-from_target)))
            assert moved == pytest.approx(max(0, loss - np.log(budget)), abs=1e-6)


def test_ball_of_radius_log_k_is_what_a_budget_of_k_can_reach():
    """Lemma: max p~/q <= K exactly if p~ = q a / Z for some a in [0, 1] with Z >= 1/K."""
    rng = np.random.default_rng(7)
    for _ in range(200):
        q, other, budget = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(8)), rng.uniform(1, 6)
        inside = np.max(other / q) <= budget
        a = other / q / np.max(other / q)  # the largest acceptance that yields `other`
        assert inside == (q @ a >= 1 / budget)
        np.testing.assert_allclose(q * a / (q @ a), other)
        kept, rate = kept_by(other, q, budget)
        assert np.max(kept / q) <= budget * (1 + 1e-9)
        assert rate >= 1 / budget * (1 - 1e-9)


@pytest.mark.filterwarnings("ignore:Values in x were outside bounds")
@pytest.mark.parametrize("name", EVERY)
def test_no_acceptance_function_leaves_less(name):
    """OBRS against SLSQP, for every divergence, smooth or not."""
    rng, div, feasible = np.random.default_rng(8), EVERY[name], 0
    for _ in range(3):
        p, q = rng.dirichlet(np.full(5, 2.0)), rng.dirichlet(np.full(5, 2.0))
        profile = Profile(np.log(p / q), q)
        budget = 1 + 0.6 * (profile.max_budget - 1)

        def left(a, p=p, q=q):
            kept = q * a / (q @ a)
            return float(kept @ div.f(np.log(p / kept)))

        ours = profile.divergence(div, budget)
        for start in (np.full(5, 0.95), np.minimum(p / q / np.max(p / q) + 0.3, 1)):
            found = optimize.minimize(
                left,
                start,
                bounds=[(1e-6, 1)] * 5,
                constraints={"type": "ineq", "fun": lambda a, q=q, budget=budget: q @ a - 1 / budget},
                method="SLSQP",
                options={"ftol": 1e-13, "maxiter": 500},
            )
            if q @ found.x >= 1 / budget - 1e-7:
                feasible += 1
                assert ours <= found.fun + 1e-6
    assert feasible >= 3


# --- bounds ----------------------------------------------------------------


def test_bounds_hold_and_are_tight_at_both_ends():
    rng = np.random.default_rng(9)
    for _ in range(300):
        p, q = pair(rng, n=6)
        profile = Profile(np.log(p / q), q)
        budget = 1 + rng.random() * (profile.max_budget - 1)
        for name in ("kl", "rkl", "tv", "chi2", "hellinger", "gan"):
            assert profile.divergence(name, budget) <= profile.bound(name, budget) * (1 + 1e-9) + 1e-10
        kl = bounds.kl_bound(np.log(p / q), q, budget)
        assert profile.divergence("kl", budget) <= kl + 1e-8
    assert profile.bound("tv", 1) == pytest.approx(profile.divergence("tv"))
    assert profile.bound("kl", 1) == pytest.approx(profile.divergence("kl"))
    assert profile.bound("chi2", profile.max_budget) == 0


def test_sharper_constant_is_below_the_papers_and_above_what_is_left():
    p, q = pair(np.random.default_rng(14), n=6)
    profile = Profile(np.log(p / q), q)
    for name in ("kl", "tv", "hellinger"):
        for budget in np.linspace(1.1, profile.max_budget * 0.99, 5):
            printed = profile.divergence(name) * (1 - min(1, (budget - 1) / profile.max_budget))
            assert profile.divergence(name, budget) <= profile.bound(name, budget) < printed


def test_kl_bound_as_printed_is_violated():
    """The smallest example, and a good half of random pairs."""
    log_ratio, q = np.log([1.8, 0.2]), np.array([0.5, 0.5])
    left = Profile(log_ratio, q).divergence("kl", 1.2)
    assert left == pytest.approx(0.2263, abs=1e-4)
    assert printed_kl_bound(log_ratio, q, 1.2) == pytest.approx(0.1524, abs=1e-4)
    assert bounds.kl_bound(log_ratio, q, 1.2) == pytest.approx(left, abs=1e-9)  # with equality for two points
    rng, violated = np.random.default_rng(10), 0
    for _ in range(300):
        p, q = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
        profile = Profile(np.log(p / q), q)
        budget = 1 + rng.random() * (profile.max_budget - 1)
        violated += profile.divergence("kl", budget) > printed_kl_bound(np.log(p / q), q, budget) + 1e-9
    assert violated > 50


# --- plan ----------------------------------------------------------------


def test_plan_has_one_flat_row_per_budget():
    plan = Profile(LOG_RATIO).plan([1, 2, 4], n=500, recall=0.8)
    assert [row["budget"] for row in plan] == [1, 2, 4]
    assert plan[1]["proposals"] == pytest.approx(1000)
    for row in plan:
        for key in ("rate", "kl", "rkl", "tv", "js", "chi2", "ess", "precision"):
            assert row[f"{key}_low"] <= row[key] <= row[f"{key}_high"]
    assert [row["kl"] for row in plan] == sorted((row["kl"] for row in plan), reverse=True)
    assert plan[2]["precision"] == Profile(LOG_RATIO).precision_at(0.8, 4)
    lines = str(plan).splitlines()
    assert [line.split()[-1] for line in lines[:4]] == ["proposals", "500", "1,000", "2,000"]
    assert "<td>2,000</td>" in plan._repr_html_()
    assert "proposals" not in str(Profile(LOG_RATIO).plan([1, 2]))
    assert len(lines) == 6  # with the note, and how much there is
    assert lines[-2] == plan.room == f"an estimated {plan[0]['kl']:.2g} nats, and K = 2 could remove 0.69"
    assert "precision" in lines[0]


def test_a_profile_prints_in_two_lines():
    profile = Profile(np.log([0.4, 0.8, 1.2, 1.6]))
    assert repr(profile) == "Profile(4 log-ratios, M = 1.6, log E[r] = 0)"
    some = f"{profile.divergence('kl', 1.5):.4g} at K = 1.5"
    assert str(profile) == f"{profile!r}\nKL left: 0.1064 at K = 1, {some}, 0 at K = 2, 0 at K = 4, 0 at K = 8"


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
                for key in {"kl", "rkl", "tv", "js", "chi2", "ess", "precision"} - set(row["unreliable"].split()):
                    hit = row[f"{key}_low"] - 1e-12 <= truth[row["budget"]][key] <= row[f"{key}_high"] + 1e-12
                    covered.setdefault((key, row["budget"]), []).append(hit)
        for at, hits in covered.items():
            assert np.mean(hits) > 0.9 - 3 * np.sqrt(0.9 * 0.1 / len(hits)), (n, at, np.mean(hits), len(hits))


@pytest.mark.parametrize("sd", [0.25, 0.5, 1.0])
def test_what_a_pilot_of_500_promises(sd):
    rng, marked = np.random.default_rng(15), []
    for _ in range(50):
        marked += [row["unreliable"].split() for row in Profile(rng.normal(0, sd, 500)).plan([1, 1.5, 2, 4])]
    for key in ("rate", "tv", "precision"):
        assert np.mean([key in names for names in marked]) <= 0.02


def test_a_large_pilot_promises_everything_there_is():
    rng = np.random.default_rng(16)
    for sd, budgets in ((0.5, [1, 1.5, 2]), (1.0, [1, 2, 4])):
        for row in Profile(rng.normal(0, sd, 50_000)).plan(budgets):
            assert row["unreliable"] == ""


def test_rate_interval_covers_the_rate_of_fresh_proposals():
    rng, sd, hits = np.random.default_rng(12), 1.0, 0
    for _ in range(500):
        pilot = rng.normal(-0.5, sd, size=1000)
        profile = Profile(pilot)
        edge = (-profile.log_c(2.6) + sd**2 / 2) / sd
        fresh = stats.norm.sf(edge) + np.exp(profile.log_c(2.6)) * stats.norm.cdf(edge - sd)
        row = profile.plan([2.6])[0]
        hits += row["rate_low"] <= fresh <= row["rate_high"]
    assert abs(hits / 500 - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 500)


def test_missing_mass_is_uncertain_too():
    """With P(elsewhere) = 0.3 the mean ratio of a pilot is 0.7 give or take, and with it what is left."""
    rng, repeats = np.random.default_rng(17), 150
    exact = log_normal(0.8) + np.log(0.7)
    truth = Profile(exact, normalise=False).plan([2], recall=0.6)[0]
    rows = [Profile(rng.choice(exact, 1000), normalise=False).plan([2], recall=0.6)[0] for _ in range(repeats)]
    for key in ("tv", "js", "rkl", "ess", "precision"):
        covered = np.mean([row[f"{key}_low"] <= truth[key] <= row[f"{key}_high"] for row in rows])
        assert covered > 0.9 - 3 * np.sqrt(0.9 * 0.1 / repeats), (key, covered)
        assert np.mean([row[f"{key}_high"] - row[f"{key}_low"] for row in rows]) < 0.5


def test_plan_says_how_much_there_is():
    """Two proposals of which one is right are log 2 apart from the target, one of 10 000 is log 10 000 apart."""
    apart = Profile(np.array([18.0, -18.0]))
    assert apart.plan([1, 2.6]).room == ("an estimated 0.69 nats, and K = 2.6 could remove 0.96")
    heavy = Profile(np.array([40.0] + [0.0] * 9999))
    line = "K = 2.6, 8 remove at most 0.96, 2.1 of an estimated 9.2 nats: choose what it is spent on"
    assert heavy.plan([8, 2.6, 1]).room == line
    assert line in str(heavy.plan([8, 2.6, 1]))
    assert Profile(np.zeros(5)).plan([2]).room == ""
    assert heavy.plan([1]).room == ""


def test_plan_says_what_it_does_not_promise():
    plan = Profile(LOG_RATIO).plan([2])
    assert "nothing is promised" in plan.note
    assert str(plan).endswith(plan.note)


def test_heavy_tails_are_marked():
    light, heavy = Profile(LOG_RATIO * 0.2).plan([1.2])[0], Profile(LOG_RATIO * 3).plan([2])[0]
    assert light["unreliable"] == "chi2 ess"  # too few for these, however light they look
    assert Profile(np.random.default_rng(3).normal(size=20_000) * 0.2).plan([1.2])[0]["unreliable"] == ""
    assert {"kl", "chi2", "ess", "tv"} <= set(heavy["unreliable"].split())
    assert "rate" not in heavy["unreliable"].split()
    assert "chi2" in Profile(LOG_RATIO).plan([2])[0]["unreliable"].split()
    beyond = Profile(LOG_RATIO * 0.2).plan([1e6])[0]  # a maximum cannot be planned
    assert {"kl", "rkl", "js", "chi2", "ess"} <= set(beyond["unreliable"].split())
    assert beyond["tv"] < 1e-12 < 1e-3 < beyond["tv_high"]  # what was not seen may be left


# --- edges ----------------------------------------------------------------


def test_bad_input_gets_one_clear_line():
    profile = Profile(LOG_RATIO)
    with pytest.raises(RatioError, match="1 NaN among 2"):
        Profile([0.0, np.nan])
    with pytest.raises(BudgetError, match="no proposal has r > 0"):
        Profile([-np.inf, -np.inf])
    with pytest.raises(BudgetError, match="smallest feasible budget is 2"):
        Profile([0.0, -np.inf]).divergence("kl", 1.5)
    with pytest.raises(BudgetError, match="at least 1 proposal"):
        profile.rate(0.5)
    with pytest.raises(UnknownNameError, match="unknown divergence 'kld'"):
        profile.divergence("kld")
    for recall in [0, 1.5, "a", np.nan]:
        with pytest.raises(InputError, match="recall must be above 0"):
            profile.precision_at(recall)
    with pytest.raises(InputError, match="lam must be at least 0"):
        profile.alpha(-1)
    with pytest.raises(InputError, match="points must be"):
        profile.curve(2, points=1)
    with pytest.raises(InputError, match="normalise=True"):
        Profile(LOG_RATIO - 3, normalise=False).bound("kl", 2)
    with pytest.raises(InputError, match="all be 0"):
        Profile([0.0, 1.0], weights=[0.0, 0.0])
    with pytest.raises(InputTypeError, match="budgets must be a list"):
        profile.plan(2)
    with pytest.raises(InputError, match="n must be a whole number"):
        profile.plan([2], n=-5)
    with pytest.raises(InputTypeError, match="lam must be a number"):
        profile.alpha("a")
    assert profile.plan([2], recall=1.0)[0]["precision"] > 0


def test_impossible_proposals_count_before_rejection_and_not_after():
    profile = Profile([0.0, -np.inf])
    assert profile.divergence("tv") == pytest.approx(0.5)
    assert profile.divergence("rkl") == np.inf
    assert profile.divergence("tv", 2) == pytest.approx(0, abs=1e-12)
    assert profile.plan([2])[0]["rate"] == 0.5


def test_one_proposal_is_a_profile():
    profile = Profile([3.0])
    assert (profile.max_budget, profile.divergence("kl"), profile.ess(), profile.rate(5)) == (1, 0, 1, 1)
    assert len(profile.plan([1, 2])) == 2


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-800, 800) | st.just(-np.inf), st.sampled_from([0.0, 1e-9, 0.1, 1.0, 1e9])),
        min_size=1,
        max_size=40,
    ),
    st.floats(1, 100),
    st.floats(0.01, 1),
    st.booleans(),
)
def test_any_profile_answers_or_refuses(pairs, budget, recall, normalise):
    values, weights = zip(*pairs, strict=True)
    try:
        profile = Profile(values, weights, normalise=normalise)
        row = profile.plan([budget], recall=recall)[0]
    except (BudgetError, InputError):
        return
    assert not any(isinstance(v, float) and np.isnan(v) for v in row.values())
    assert 0 <= row["ess"] <= 1
    assert row["rate"] >= 1 / budget * (1 - 1e-9)
