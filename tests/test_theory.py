"""Statements of docs/theory.md, on random finite distributions and by other routes than their proofs."""

import numpy as np
import pytest
from scipy.optimize import brentq, minimize

from obrs import Profile, solve_log_c
from obrs.divergences import DIVERGENCES

STATES, VALUES, BUDGETS = 10, 4, (1.3, 2.0, 3.5)


def problem(seed):
    """Return p and q on ten states, and a map from these to four values, each of which is taken."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(STATES, 0.7)), rng.dirichlet(np.full(STATES, 2.0))
    return p, q, rng.permutation(np.arange(STATES) % VALUES)


def push(p, phi):
    """Return the distribution of the values."""
    return np.bincount(phi, weights=p, minlength=VALUES)


def divergence(f, p, q):
    return float(np.sum(q * DIVERGENCES[f].f(np.log(p / q))))


def keep(q, a):
    return q * a / np.sum(q * a)


def obrs_on_values(p, q, phi, budget):
    """Return the acceptance of each state by the ratio of its value."""
    log_ratio = np.log(push(p, phi) / push(q, phi))[phi]
    return np.exp(np.minimum(log_ratio + solve_log_c(log_ratio, budget, weights=q), 0)), log_ratio


def best_of_any_rule(f, p, q, phi, budget, starts):
    """Return the smallest divergence between values that SLSQP finds over all rules that may look at the state."""
    target = push(p, phi)

    def objective(a):
        return divergence(f, target, push(keep(q, a), phi))

    rate = {"type": "ineq", "fun": lambda a: q @ a - 1 / budget}
    bounds = [(1e-6, 1.0)] * STATES
    tried = [minimize(objective, a, method="SLSQP", bounds=bounds, constraints=[rate]) for a in starts]
    return min(r.fun for r in tried if q @ r.x >= 1 / budget - 1e-7)


@pytest.mark.parametrize("f", ["kl", "rkl", "chi2", "hellinger", "js"])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_rule_brings_the_features_closer_than_obrs_with_their_ratio(f, seed):
    p, q, phi = problem(seed)
    rng = np.random.default_rng(9)
    for budget in BUDGETS:
        a, log_ratio = obrs_on_values(p, q, phi, budget)
        left = divergence(f, push(p, phi), push(keep(q, a), phi))
        best = best_of_any_rule(f, p, q, phi, budget, [np.ones(STATES), rng.uniform(0.5, 1, STATES)])
        assert left <= best + 1e-6
        assert best <= left + 1e-3  # and the search does come as close
        assert Profile(log_ratio, q).divergence(f, budget) == pytest.approx(left, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_what_features_do_not_see_stays_as_far_away_as_it_was(seed):
    """KL of the samples falls by as much as that of the features, whatever rule of the features is used."""
    p, q, phi = problem(seed)
    a = np.random.default_rng(seed).uniform(0.1, 1.0, VALUES)[phi]
    kept = keep(q, a)
    samples = divergence("kl", p, q) - divergence("kl", p, kept)
    features = divergence("kl", push(p, phi), push(q, phi)) - divergence("kl", push(p, phi), push(kept, phi))
    assert samples == pytest.approx(features, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_a_rule_removes_at_most_the_logarithm_of_its_rate(seed):
    p, q, _ = problem(seed)
    a = np.random.default_rng(seed).uniform(0.05, 1.0, STATES)
    rate = q @ a
    removed = divergence("kl", p, q) - divergence("kl", p, keep(q, a))
    assert removed == pytest.approx(p @ np.log(a) - np.log(rate), abs=1e-12)
    assert removed < -np.log(rate)
    chi2 = [divergence("chi2", p, x) + 1 for x in (q, keep(q, a))]
    assert chi2[1] == pytest.approx(rate * np.sum(p**2 / q / a), rel=1e-12)
    assert chi2[1] > rate * chi2[0]


def test_no_budget_removes_more_and_one_that_keeps_all_of_the_target_removes_as_much():
    p, q = np.array([0.5, 0.5, 1e-300]), np.array([0.1, 0.1, 0.8])
    removed = divergence("kl", p, q) - divergence("kl", p, keep(q, np.array([1.0, 1.0, 1e-300])))
    assert removed == pytest.approx(np.log(5))  # a = 1 wherever the target is, at a rate of 1/5
    for seed in range(10):
        p, q, _ = problem(seed)
        profile = Profile(np.log(p / q), q)
        for budget in (1.2, 2.0, 2.6, 10.0):
            removed = profile.divergence("kl") - profile.divergence("kl", budget)
            assert 0 < removed <= -np.log(profile.rate(budget)) + 1e-12 <= np.log(budget) + 1e-9


def test_transport_cost_can_rise_while_every_divergence_falls():
    """Divergences do not see how far away a substitute is: what misses a mode by a little is dropped with its share."""
    from scipy.stats import wasserstein_distance

    place, p, q = np.array([0.0, 1.0, 1.1]), np.array([0.5, 0.5, 0.0]), np.array([0.5, 0.05, 0.45])
    with np.errstate(divide="ignore"):
        log_ratio = np.log(p / q)
        kept = keep(q, np.exp(np.minimum(log_ratio + solve_log_c(log_ratio, 1.9, weights=q), 0)))
        profile = Profile(log_ratio, q)
    np.testing.assert_allclose(kept, [1 - 1.9 * 0.05, 1.9 * 0.05, 0], rtol=1e-12)
    for f in ("kl", "gan", "tv", "chi2", "hellinger"):
        assert profile.divergence(f, 1.9) < profile.divergence(f)
    before, after = (wasserstein_distance(place, place, p, mass) for mass in (q, kept))
    assert (before, after) == (pytest.approx(0.045), pytest.approx(0.405))


@pytest.mark.parametrize("seed", range(5))
def test_kl_is_convex_in_the_budget_and_falls_by_the_mass_above_the_threshold(seed):
    p, q, _ = problem(seed)
    profile, step = Profile(np.log(p / q), q), 1e-5
    budgets = np.linspace(1.01, 0.99 * profile.max_budget, 23)
    left = [profile.divergence("kl", k) for k in budgets]
    assert np.all(np.diff(left, 2) > -1e-12)
    for k in budgets:
        slope = (profile.divergence("kl", k - step) - profile.divergence("kl", k + step)) / (2 * step)
        assert slope == pytest.approx(profile.truncation(k) / k, rel=1e-3, abs=1e-6)


def test_priority_weights_are_unbiased_for_every_row():
    rng = np.random.default_rng(0)
    r, n, draws = np.exp(rng.normal(size=12)), 4, 200_000
    keys = np.log(rng.random((draws, 12))) - np.log(r)
    tau = np.sort(keys, axis=1)[:, n : n + 1]
    weight = np.where(keys < tau, np.maximum(r, np.exp(-tau)), 0)
    error = weight.std(axis=0) / draws**0.5
    assert np.all(np.abs(weight.mean(axis=0) - r) < 4.5 * error)


def test_calibration_by_class_repairs_a_factor_and_is_an_information_projection():
    p, q, label = problem(1)
    wrong = p / q * np.exp(np.array([0.0, -3.0, 1.0, 0.5]))[label]
    scale = push(p, label) / push(q * wrong, label)
    np.testing.assert_allclose(wrong * scale[label], p / q, rtol=1e-12)
    bent = q * wrong * np.random.default_rng(0).uniform(0.5, 2, STATES)  # wrong within classes, too
    fixed = bent * (push(p, label) / push(bent, label))[label]
    rivals = np.random.default_rng(1).dirichlet(np.ones(STATES), 200)
    rivals *= (push(p, label) / np.stack([push(x, label) for x in rivals]))[:, label]
    assert np.all(np.sum(rivals * np.log(rivals / bent), axis=1) >= np.sum(fixed * np.log(fixed / bent)))


@pytest.mark.parametrize("seed", range(3))
def test_the_frontier_moves_by_the_logarithm_of_the_budget(seed):
    """Appendix B, by filling up to both ceilings: π' = max(0, π - log K) at the same ρ."""
    p, q, _ = problem(seed)
    budget = Profile(np.log(p / q), q).max_budget ** 0.6
    kept = keep(q, np.minimum(np.exp(np.log(p / q) + solve_log_c(np.log(p / q), budget, weights=q)), 1))

    def least(model, rho):
        """Return the least π = log max R/q of a distribution R with max R/p = e^ρ."""
        return brentq(lambda pi: np.minimum(np.exp(rho) * p, np.exp(pi) * model).sum() - 1 + 1e-15, -60, 60)

    for rho in np.linspace(0.1, 3.0, 8):
        assert least(kept, rho) == pytest.approx(max(least(q, rho) - np.log(budget), 0), abs=1e-7)


def test_rejection_reaches_the_densities_whose_largest_ratio_to_the_model_is_the_budget():
    """The lemma of Section 4.1, in both directions."""
    rng, (_, q, _) = np.random.default_rng(4), problem(0)
    accept = rng.random((200, STATES)) ** rng.exponential(1.0, (200, 1)) * rng.random((200, 1))
    rate = accept @ q
    assert np.all((accept / rate[:, None]).max(1) <= 1 / rate)
    density = rng.dirichlet(np.ones(STATES), 200)
    budget = (density / q).max(1)
    back = density / q / budget[:, None]  # a probability to accept, at a rate of 1/K
    assert back.max() <= 1 + 1e-12
    np.testing.assert_allclose(back @ q, 1 / budget, rtol=1e-12)


def test_junk_uses_up_the_budget_before_training_for_it_can_pay():
    """While a share j of the model is where the target is not, K ≤ 1/(1 - j) takes log K off the KL of any model."""
    p = np.array([0.2, 0.3, 0.5, 1e-300])
    for rest in ([0.2, 0.2, 0.1], [0.05, 0.25, 0.2]):
        profile = Profile(np.log(p / np.array([*rest, 0.5])), np.array([*rest, 0.5]))
        for budget in (1.1, 1.3):
            assert profile.divergence("kl", budget) == pytest.approx(profile.divergence("kl") - np.log(budget))
