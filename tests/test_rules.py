"""Each rule against its own formula, its budget and its promises."""

import numpy as np
import pytest
from scipy import stats

from obrs import Budgeted, _confidence
from obrs._confidence import confident_budget
from obrs.errors import BudgetError, InputError
from obrs.rules import DRS, Unbudgeted

LOG_RATIO = np.random.default_rng(1).normal(size=2000) * 1.5


def mean_rate(rule, x=LOG_RATIO):
    return float(np.mean(np.exp(rule(x))))


# --- OBRS ---------------------------------------------------------------------------------------------------


def test_budgeted_is_the_clipped_ratio():
    rule = Budgeted.fit(LOG_RATIO, 2.6)
    np.testing.assert_allclose(np.exp(rule(LOG_RATIO)), np.minimum(np.exp(rule.log_c + LOG_RATIO), 1))
    assert mean_rate(rule) == pytest.approx(1 / 2.6, rel=1e-12)
    assert (rule.budget, rule.rate) == (2.6, pytest.approx(1 / 2.6, rel=1e-12))


# --- confidence ---------------------------------------------------------------------------------------------


def log_normal_rate(log_c, sd):
    """E[min(c r, 1)] for log r ~ N(-sd²/2, sd²), in closed form."""
    edge = (-log_c + sd**2 / 2) / sd
    return stats.norm.sf(edge) + np.exp(log_c) * stats.norm.cdf(edge - sd)


@pytest.mark.parametrize(
    ("sd", "budget", "confidence", "n"),
    [(1.0, 2.6, 0.9, 300), (0.05, 1.02, 0.8, 300), (6.0, 20.0, 0.95, 100), (1.0, 2.0, 0.8, 2000)],
)
def test_true_rate_keeps_the_budget_as_often_as_promised(sd, budget, confidence, n):
    rng = np.random.default_rng(4)
    kept = 0
    for _ in range(400):
        rule = Budgeted.fit(rng.normal(-(sd**2) / 2, sd, size=n), budget, confidence=confidence)
        kept += log_normal_rate(rule.log_c, sd) >= 1 / budget
    # The promise is a lower bound: fail only if the count is below it by four standard errors.
    assert kept >= 400 * confidence - 4 * np.sqrt(400 * confidence * (1 - confidence))


@pytest.mark.parametrize("n", [20, 300, 2000])
@pytest.mark.parametrize("confidence", [0.7, 0.95])
@pytest.mark.parametrize(
    ("low", "p", "budget"),
    [(-np.inf, 0.55, 2), (-np.inf, 0.99, 1.05), (-1.0, 0.3, 2), (-12.0, 0.02, 40), (-8.0, 0.01, 2)],
)
def test_of_two_ratios_the_chance_to_overrun_is_exactly_below_the_promise(low, p, budget, confidence, n):
    """All depends on how many of n have the large ratio, so every case can be weighed by its binomial chance."""
    chance = 0.0
    for k in range(*(int(stats.binom.ppf(q, n, p)) for q in (1e-6, 1 - 1e-6))):
        try:
            used = confident_budget(np.where(np.arange(n) < k, 0.0, low), budget, confidence)
        except BudgetError:
            continue
        small = np.exp(low)
        c = n / used / (k + (n - k) * small)  # the root if nothing is sure to be kept
        if c > 1:
            c = (n / used - k) / ((n - k) * small) if used > 1 and k < n else np.inf
        rate = p * min(c, 1) + (1 - p) * (min(c * small, 1) if small else 0)
        chance += stats.binom.pmf(k, n, p) * (rate < 1 / budget * (1 - 1e-9))
    assert chance <= 1 - confidence


SHARES = pytest.mark.parametrize("share", [0.01, 1 / 2.6, 0.9])
SIZES = pytest.mark.parametrize("n", [10, 100, 10_000])
FAILURES = pytest.mark.parametrize("failure", [0.001, 0.05, 0.4])


def coin_capital(share, n, count):
    """Log-capital after `count` heads."""
    bets, weights = _confidence._bets(share, n)
    logs = count[:, None] * np.log1p(bets * (1 - share)) + (n - count[:, None]) * np.log1p(-bets * share)
    return np.logaddexp.reduce(logs + np.log(weights), axis=1)


@SHARES
@SIZES
@FAILURES
def test_capital_of_a_coin_reaches_the_threshold_rarely_enough(share, n, failure):
    threshold, count = _confidence.capital_threshold(share, n, failure), np.arange(n + 1)
    capital, chance = coin_capital(share, n, count), stats.binom.pmf(count, n, share)
    mean = np.exp(capital + stats.binom.logpmf(count, n, share))  # what each count adds to the mean of the capital
    assert mean.sum() == pytest.approx(1)
    assert chance[capital >= threshold].sum() <= failure
    # It is the smallest number h + E(W - h)_+ / failure.
    usual = np.flatnonzero(capital < 50)
    beyond = [np.exp(capital[k]) * (1 - chance[k:].sum() / failure) + mean[k:].sum() / failure for k in usual]
    assert threshold == pytest.approx(np.log(min(beyond)), abs=1e-8)


def test_confidence_that_cannot_be_had_is_refused():
    with pytest.raises(InputError, match="leave out weights or confidence"):
        Budgeted.fit(LOG_RATIO, 2, weights=np.ones(2000), confidence=0.9)
    for value in [0, 1, 95, "high"]:
        with pytest.raises(InputError, match="confidence must be a probability"):
            Budgeted.fit(LOG_RATIO, 2, confidence=value)
    with pytest.raises(BudgetError, match="too many have r = 0"):
        Budgeted.fit(np.where(np.arange(100) < 51, 0.0, -np.inf), 2, confidence=0.95)


# --- DRS ----------------------------------------------------------------------------------------------------


def naive_drs(r, m, gamma, eps):
    """METHODS: a = rho / (rho + (1 - rho exp(-eps)) exp(gamma)), as printed."""
    rho = r / m
    return rho / (rho + (1 - rho * np.exp(-eps)) * np.exp(gamma))


@pytest.mark.parametrize("gamma", [-3.0, -0.9, 0.0, 1.0])
@pytest.mark.parametrize("eps", [1e-8, 1e-6, 1e-3])
def test_drs_is_azadis_sigmoid(gamma, eps):
    r = np.geomspace(1e-3, 5.0, 100)
    rule = DRS(np.log(5.0), gamma, eps)
    np.testing.assert_allclose(np.exp(rule(np.log(r))), naive_drs(r, 5.0, gamma, eps), rtol=1e-7)


@pytest.mark.parametrize("budget", [1.0001, 1.5, 2.6, 8.0])
def test_drs_meets_its_budget(budget):
    assert mean_rate(DRS.fit(LOG_RATIO, budget)) == pytest.approx(1 / budget, rel=1e-12)


def test_a_rule_works_inside_jit():
    jax = pytest.importorskip("jax")
    log_ratio = np.random.default_rng(5).normal(size=50)
    for rule in (Budgeted.fit(log_ratio, 2), DRS.fit(log_ratio, 2), Unbudgeted.fit(log_ratio)):
        np.testing.assert_allclose(jax.jit(rule)(jax.numpy.asarray(log_ratio)), rule(log_ratio), atol=1e-5)


# --- groups -------------------------------------------------------------------------------------------------


def test_a_tensor_that_carries_a_gradient_can_be_fitted():
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 1, 50, requires_grad=True)
    assert Budgeted.fit(x, 2).rate == pytest.approx(0.5, abs=1e-6)
    assert Unbudgeted.fit(x).log_m == 1.0
    (-Budgeted.fit(x, 2)(x).sum()).backward()
    assert torch.all(torch.isfinite(x.grad))
