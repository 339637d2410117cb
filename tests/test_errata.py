"""Each correction in docs/errata.md, checked by numbers that do not come from this library.

For every erratum there is a test that the printed claim fails and one that the corrected claim holds. Sums, roots
and derivatives are done by hand here (bisection, quadrature, finite differences, SciPy); where `obrs` has the same
quantity it is compared at the end.
"""

import exact
import numpy as np
import pytest
from exact import LOG_2, F, normal

import obrs
from obrs.errors import BudgetError, DivergenceError

optimize = pytest.importorskip("scipy.optimize")

RNG_SEED = 2024

# The derivatives of `exact.F`, as plain functions of u = p/q.
F_PRIME = {
    "kl": lambda u: np.log(u) + 1,
    "rkl": lambda u: -1 / u,
    "gan": lambda u: np.log(u / (u + 1)),
    "chi2": lambda u: 2 * (u - 1),
    "hellinger": lambda u: 1 - 1 / np.sqrt(u),
}


def divergence(p, q, f):
    """Sum of q f(p/q) over the last axis."""
    return np.sum(q * f(p / q), axis=-1)


def constant(p, q, budget):
    """The c with E_Q[min(c r, 1)] = 1/K by bisection on log c, but at least 1/max r; one per row."""
    r = p / q
    low, high = -np.log(r.max(-1)) - 1, -np.log(r.min(-1)) + 1
    for _ in range(100):
        middle = (low + high) / 2
        enough = np.sum(q * np.minimum(np.exp(middle)[..., None] * r, 1), -1) >= 1 / budget
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.maximum(np.exp(high), 1 / r.max(-1))


def reject(p, q, budget):
    """What rejection leaves of q, normalised."""
    kept = q * np.minimum(constant(p, q, budget)[..., None] * p / q, 1)
    return kept / kept.sum(-1, keepdims=True)


def random_pairs(count, size, seed=RNG_SEED):
    """Pairs of distributions on `size` points, and a budget between 1 and M for each."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(size), count), rng.dirichlet(np.ones(size), count)
    return p, q, np.max(p / q, -1) ** rng.random(count)


GRID = np.linspace(-12, 12, 8001)
STEP = GRID[1] - GRID[0]
TARGET = 0.55 * normal(GRID, -1.4, 0.4) + 0.45 * normal(GRID, 1.3, 0.5)
MODEL = 0.4 * normal(GRID, -0.9, 1.0) + 0.6 * normal(GRID, 1.6, 1.1)


def masses(density):
    """A density on the grid as masses that sum to 1."""
    return density / density.sum()


# --- 1. Table 1, the GAN row ----------------------------------------------------------------------------------


def raw_gan(u):
    return u * np.log(u) - (u + 1) * np.log(u + 1)


def test_erratum_1_printed_gan_critic_gives_a_negative_ratio_where_the_conjugate_is_infinite():
    printed = np.array([0.1, 1.0, 3.0, 50.0]) / np.array([1.1, 2.0, 4.0, 51.0])
    recovered = np.exp(printed) / (1 - np.exp(printed))  # the derivative of -log(1 - e^t)
    assert np.all(recovered < 0)
    assert recovered[2] == pytest.approx(-1.895, abs=5e-4)
    u = np.geomspace(1, 1e12, 13)
    for t in printed:
        assert np.all(np.diff(t * u - raw_gan(u)) / np.diff(u) > 0.5 * t), "t u - f(u) grows without end"


def test_erratum_1_log_of_the_discriminator_gives_the_ratio_back():
    r = np.array([0.1, 1.0, 3.0, 50.0])
    critic = np.log(r / (1 + r))
    np.testing.assert_allclose(np.exp(critic) / (1 - np.exp(critic)), r, rtol=1e-12)
    # and it is what maximises the dual, found without calculus: p t - q f*(t) at r = p/q
    for ratio, t in zip(r, critic, strict=True):
        best = optimize.minimize_scalar(
            lambda s, ratio=ratio: -(ratio * s + np.log(-np.expm1(s))), bounds=(-6, -1e-6), method="bounded"
        )
        assert best.x == pytest.approx(t, abs=1e-4)
    np.testing.assert_allclose(obrs.divergences.DIVERGENCES["gan"].critic(np.log(r)), critic, rtol=1e-12)
    np.testing.assert_allclose(obrs.divergences.DIVERGENCES["gan"].log_ratio(critic), np.log(r), atol=1e-12)


def test_erratum_1_printed_gan_generator_is_not_zero_at_one():
    assert raw_gan(1.0) == pytest.approx(-2 * LOG_2)
    p, q, _ = random_pairs(1000, 5)
    middle = (p + q) / 2
    jsd = (divergence(p, middle, F["kl"]) + divergence(q, middle, F["kl"])) / 2
    np.testing.assert_allclose(divergence(p, q, raw_gan), 2 * jsd - 2 * LOG_2, atol=1e-12)
    assert float(obrs.divergences.DIVERGENCES["gan"].f(0.0)) == 0
    ours = np.sum(q * obrs.divergences.DIVERGENCES["gan"].f(np.log(p / q)), -1)
    np.testing.assert_allclose(ours, 2 * jsd, atol=1e-12)


# --- 2. Table 1, the precision-recall row ------------------------------------------------------------------------


def pr_generator(lam):
    return lambda u: np.maximum(lam * u, 1) - max(lam, 1)


@pytest.mark.parametrize("lam", [0.5, 1.0, 2.0, 5.0])
def test_erratum_2_conjugate_of_pr_has_a_constant_that_is_missing_above_one(lam):
    t, pr = np.linspace(0, lam, 21), obrs.divergences.pr(lam)
    u = np.union1d(np.linspace(0, 50, 50_001), [1 / lam])
    brute_force = np.max(t[:, None] * u - pr_generator(lam)(u), axis=1)
    corrected = t / lam + max(lam, 1) - 1
    np.testing.assert_allclose(brute_force, corrected, atol=1e-12)
    np.testing.assert_allclose(pr.conjugate(t), corrected, atol=1e-12)
    assert np.allclose(brute_force, t / lam) == (lam <= 1), "the printed t/lam is right up to lam = 1 only"
    u = np.geomspace(1, 1e9, 10)
    assert np.all(np.diff(1.01 * lam * u - pr_generator(lam)(u)) > 0), "and it is infinite beyond lam"
    assert pr.conjugate(1.01 * lam) == np.inf
    with pytest.raises(DivergenceError, match="no log_ratio"):  # its slope is the same for every ratio
        pr.log_ratio(1.0)


@pytest.mark.parametrize("lam", [0.5, 2.0, 5.0])
def test_erratum_2_critic_of_pr_switches_at_one_over_lam_and_is_never_negative(lam):
    p, q, _ = random_pairs(500, 8)
    r = p / q

    def dual(critic):
        conjugate = np.maximum(critic, 0) / lam + max(lam, 1) - 1  # at t <= 0 the supremum is at u = 0
        return np.sum(p * critic - q * conjugate, -1)

    primal = divergence(p, q, pr_generator(lam))
    np.testing.assert_allclose(dual(np.where(lam * r > 1, lam, 0.0)), primal, atol=1e-12)
    assert np.mean(dual(lam * np.sign(r - 1)) < primal - 1e-3) > 0.9, "the printed critic does not reach the supremum"
    np.testing.assert_allclose(min(lam, 1) - primal, np.sum(np.minimum(lam * p, q), -1), atol=1e-12)  # the precision


# --- 3. The divergence after rejection, Section 4.2 --------------------------------------------------------------


def test_erratum_3_two_lines_of_the_derivation_take_the_wrong_expectation():
    budget, f = 2.0, F["kl"]
    p, q = masses(TARGET), masses(MODEL)
    kept = reject(p, q, budget)
    accept = np.minimum(constant(p, q, budget) * p / q, 1)
    truth = divergence(p, kept, f)
    first_printed = np.sum(q * f(p / kept))
    second_printed = np.sum(kept * (kept / q) * f(p / kept))
    second_corrected = np.sum(q * (kept / q) * f(p / kept))
    last = np.sum(q * budget * accept * f(p / q / (budget * accept)))
    assert truth == pytest.approx(0.0646, abs=1e-4)
    assert second_corrected == pytest.approx(truth, rel=1e-9)
    assert last == pytest.approx(truth, rel=1e-9)
    assert first_printed == pytest.approx(-0.0655, abs=1e-4)  # negative: no divergence at all
    assert second_printed == pytest.approx(0.2054, abs=1e-4)


# --- 4. The Kullback-Leibler bound, Theorem 3.2 ------------------------------------------------------------------


def log_overlap(p, q, b):
    """log of the sum of p^b q^(1-b), which is (b - 1) times the Rényi divergence of order b."""
    return np.log(np.sum(p ** b[..., None] * q ** (1 - b[..., None]), -1))


def kl_bound(p, q, b):
    """(1 - b) (KL - Rényi divergence of order b), the KL divergence from P to q^(1-b) p^b normalised."""
    return (1 - b) * divergence(p, q, F["kl"]) + log_overlap(p, q, b)


def corrected_order(p, q, budget):
    """The root of b log M + (1 - b) R_b = log K in [0, 1], from below, by bisection."""
    log_m = np.log(np.max(p / q, -1))
    low, high = np.zeros(len(p)), np.ones(len(p))
    for _ in range(60):
        middle = (low + high) / 2
        inside = middle * log_m - log_overlap(p, q, middle) <= np.log(budget)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low


def test_erratum_4_smallest_example_breaks_the_printed_kl_bound():
    p, q, budget = np.array([[0.9, 0.1]]), np.array([[0.5, 0.5]]), np.array([1.2])
    kept = reject(p, q, budget)
    np.testing.assert_allclose(kept, [[0.6, 0.4]])
    left = divergence(p, kept, F["kl"])[0]
    printed = kl_bound(p, q, np.log(budget) / np.log(1.8))[0]
    assert left == pytest.approx(0.2263, abs=5e-5)
    assert printed == pytest.approx(0.1524, abs=5e-5)
    assert left > printed
    assert kl_bound(p, q, corrected_order(p, q, budget))[0] == pytest.approx(left, rel=1e-12)


@pytest.mark.parametrize(("size", "share"), [(2, 1.0), (3, 0.74), (6, 0.46)])
def test_erratum_4_printed_order_is_too_large_and_its_bound_fails_on_a_large_share_of_random_pairs(size, share):
    p, q, budget = random_pairs(20_000, size)
    printed = np.log(budget) / np.log(np.max(p / q, -1))
    violated = np.mean(divergence(p, reject(p, q, budget), F["kl"]) > kl_bound(p, q, printed) + 1e-12)
    assert violated == pytest.approx(share, abs=0.01)  # the standard error of a share of 20 000 is 0.0035
    assert np.all(corrected_order(p, q, budget) < printed), "the paper claims the reverse"
    tilted = p ** printed[:, None] * q ** (1 - printed[:, None])
    assert np.all(np.max(tilted / tilted.sum(-1, keepdims=True) / q, -1) > budget), "its density breaks the budget"


@pytest.mark.parametrize("size", [2, 3, 6, 20])
def test_erratum_4_corrected_kl_bound_holds_and_is_an_equality_on_two_points(size):
    p, q, budget = random_pairs(20_000, size)
    bound = kl_bound(p, q, corrected_order(p, q, budget))
    left = divergence(p, reject(p, q, budget), F["kl"])
    assert np.all(left <= bound + 1e-10)
    if size == 2:
        np.testing.assert_allclose(left, bound, atol=1e-10)


# --- 5. The general bound, Theorem 3.2 -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", F)
@pytest.mark.parametrize("size", [2, 4, 12])
def test_erratum_5_general_bound_holds_with_a_sharper_constant(name, size):
    p, q, budget = random_pairs(4000, size)
    m = np.max(p / q, -1)
    before, left = divergence(p, q, F[name]), divergence(p, reject(p, q, budget), F[name])
    sharper, printed = (1 - (budget - 1) / (m - 1)) * before, (1 - (budget - 1) / m) * before
    assert np.all(left <= sharper + 1e-10 * (1 + before))
    assert np.all(sharper <= printed)


def test_erratum_5_sharper_constant_reaches_zero_where_the_printed_one_does_not():
    p, q, _ = random_pairs(1000, 5)
    m = np.max(p / q, -1)
    kept, before = reject(p, q, m), divergence(p, q, F["kl"])
    assert np.all(divergence(p, kept, F["kl"]) < 1e-12)
    assert np.all((1 - (m - 1) / m) * before > 0), "the printed constant leaves something where nothing is left"
    assert np.all((1 - (m - 1) / m) * (before + 1) < 1), "with f(1) = 1 instead of 0 the printed bound fails: 1 is left"


# --- 6. The optimality theorem -------------------------------------------------------------------------------------


def small_problem(seed, size=6):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(size, 2.0)), rng.dirichlet(np.full(size, 2.0))
    return p, q, 1 + 0.6 * (np.max(p / q) - 1)


@pytest.mark.parametrize("name", ["kl", "rkl", "gan", "chi2", "hellinger"])
@pytest.mark.parametrize("seed", range(3))
def test_erratum_6_nothing_beats_obrs_for_smooth_generators_and_chi2_is_no_exception(name, seed):
    p, q, budget = small_problem(seed)
    best = optimize.minimize(
        lambda kept: divergence(p, kept, F[name]),
        q,
        jac=lambda kept: F[name](p / kept) - p / kept * F_PRIME[name](p / kept),
        method="SLSQP",
        bounds=[(1e-9, budget * mass) for mass in q],
        constraints={"type": "eq", "fun": lambda kept: kept.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert divergence(p, reject(p, q, budget), F[name]) == pytest.approx(best.fun, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_erratum_6_nothing_beats_obrs_in_total_variation_which_is_not_smooth(seed):
    p, q, budget = small_problem(seed)
    n = len(p)
    # kept and slack s >= |p - kept|: a linear programme, so the optimum is exact
    eye = np.eye(n)
    best = optimize.linprog(
        np.r_[np.zeros(n), np.full(n, 0.5)],
        A_ub=np.block([[eye, -eye], [-eye, -eye]]),
        b_ub=np.r_[p, -p],
        A_eq=[np.r_[np.ones(n), np.zeros(n)]],
        b_eq=[1.0],
        bounds=[(0, budget * mass) for mass in q] + [(0, None)] * n,
    )
    assert divergence(p, reject(p, q, budget), F["tv"]) == pytest.approx(best.fun, abs=1e-9)


def test_erratum_6_precision_at_every_lam_is_the_largest_the_budget_allows():
    # The proof of theory.md: no kept density can have more of min(lam p, kept) than OBRS, whatever lam.
    rng = np.random.default_rng(RNG_SEED)
    p, q, budget = random_pairs(2000, 6)
    ours = reject(p, q, budget)
    accept = rng.random(p.shape) ** rng.exponential(1.0, (len(p), 1))
    lack = 1 / budget - np.sum(q * accept, -1)  # raise the acceptance towards 1 until the budget is kept
    accept += np.maximum(lack / np.sum(q * (1 - accept), -1), 0)[:, None] * (1 - accept)
    rival = q * accept / np.sum(q * accept, -1, keepdims=True)
    assert np.all(np.max(rival / q, -1) <= budget * (1 + 1e-12))
    for lam in np.geomspace(1e-2, 1e2, 41):
        precision = np.sum(np.minimum(lam * p, ours), -1)
        assert np.all(precision >= np.sum(np.minimum(lam * p, rival), -1) - 1e-12)
        ceiling = np.minimum(np.sum(np.minimum(lam * p, budget[:, None] * q), -1), 1)
        np.testing.assert_allclose(precision, ceiling, atol=1e-9)


def test_erratum_6_constant_depends_on_the_distributions_and_the_rate_is_one_over_m_beyond_m():
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.35, 0.4, 0.25])  # M = 2
    for budget in [2.5, 10.0]:
        assert np.sum(q * np.minimum(constant(p, q, budget) * p / q, 1)) == pytest.approx(1 / 2), "above 1/K"
        assert np.exp(obrs.solve_log_c(np.log(p / q), budget, weights=q)) == pytest.approx(1 / 2)
    p, q, _ = random_pairs(200, 6)
    m = np.max(p / q, -1)
    of_the_paper = (constant(p, q, 2.0) * m)[m > 2]  # its c_K
    assert of_the_paper.max() / of_the_paper.min() > 5


# --- 7. Algorithm B.1 ----------------------------------------------------------------------------------------------


def dichotomy(r, budget, reduce=np.mean, eps=1e-4, limit=10_000):
    """The printed loop, with `reduce` for its sum and a limit; returns c_K and the number of steps."""
    low, high, m = 1e-10, 1e10, r.max()
    c = (low + high) / 2
    for step in range(limit):
        loss = reduce(np.minimum(r * c / m, 1)) - 1 / budget
        if abs(loss) < eps:
            return c, step
        low, high = (low, c) if loss > eps else (c, high)
        c = (low + high) / 2
    return c, limit


def sample_of_ratios(n=1000):
    return np.exp(np.random.default_rng(RNG_SEED).normal(size=n))


def test_erratum_7_printed_sum_asks_for_one_over_k_acceptances_in_all():
    r = sample_of_ratios()
    c, _ = dichotomy(r, 2.0, reduce=np.sum)
    assert np.sum(np.minimum(r * c / r.max(), 1)) == pytest.approx(1 / 2, abs=1e-4)
    assert np.mean(np.minimum(r * c / r.max(), 1)) == pytest.approx(1 / 2000, abs=1e-6)
    c, _ = dichotomy(r, 2.0)
    assert np.mean(np.minimum(r * c / r.max(), 1)) == pytest.approx(1 / 2, abs=1e-4)
    assert np.log(c / r.max()) == pytest.approx(float(obrs.solve_log_c(np.log(r), 2.0)), abs=1e-3)


def test_erratum_7_dichotomy_is_wrong_beyond_m_and_never_ends_if_too_few_ratios_are_positive():
    r = sample_of_ratios()
    m = r.max() / r.mean()
    assert dichotomy(r, 4 * m)[0] == pytest.approx(0.25, abs=0.01), "the theorem says at least 1"
    assert np.exp(obrs.solve_log_c(np.log(r), 4 * m)) * r.max() == pytest.approx(1)
    r = np.r_[np.zeros(700), sample_of_ratios(300)]
    assert dichotomy(r, 2.0)[1] == 10_000
    with np.errstate(divide="ignore"), pytest.raises(BudgetError, match=r"smallest feasible budget is 3\.334"):
        obrs.solve_log_c(np.log(r), 2.0)


def test_erratum_7_authors_code_is_right_where_the_print_is_not():
    # Its mean, its floor c >= 1 and its limit on the passes, each of which the printed algorithm lacks.
    def published_search(r, budget):
        c, steps = dichotomy(r, budget, limit=100)
        return max(c, 1.0), steps

    r = sample_of_ratios()
    for budget in (1.5, 2.0, 5.0, 4 * r.max() / r.mean()):
        c, steps = published_search(r, budget)
        assert steps < 100
        assert np.log(c / r.max()) == pytest.approx(float(obrs.solve_log_c(np.log(r), budget)), abs=2e-3)
    assert published_search(np.r_[np.zeros(700), r[:300]], 2.0)[1] == 100, "it ends, though without a solution"


def test_erratum_7_dichotomy_needs_dozens_of_passes_and_the_kinks_need_none():
    r = np.sort(sample_of_ratios())[::-1]
    c, steps = dichotomy(r, 2.0)
    assert 30 <= steps <= 50
    # the same root in closed form: with the j largest ratios saturated, one division
    rest = r.sum() - np.cumsum(r) + r
    j = np.arange(len(r))
    candidates = (len(r) / 2 - j) / rest
    valid = (candidates * r < 1) & (np.r_[np.inf, candidates[1:] * r[:-1]] >= 1)
    assert valid.sum() == 1
    assert candidates[valid][0] == pytest.approx(float(np.exp(obrs.solve_log_c(np.log(r), 2.0))), rel=1e-12)
    assert candidates[valid][0] == pytest.approx(c / r.max(), rel=1e-3)


# --- 8. Precision and recall, Theorem 3.3 -------------------------------------------------------------------------


def test_erratum_8_precision_is_constant_above_the_threshold_and_scaled_below():
    budget = 2.0
    p, q = masses(TARGET), masses(MODEL)
    c, kept = float(constant(p, q, budget)), reject(p, q, budget)
    threshold = budget * c
    lam = np.geomspace(threshold / 50, threshold * 50, 101)[:, None]
    precision, recall = np.minimum(lam * p, kept).sum(-1), np.minimum(p, kept / lam).sum(-1)
    scaled_precision = budget * np.minimum(lam / budget * p, q).sum(-1)
    same_recall = np.minimum(p, q * budget / lam).sum(-1)
    below = lam[:, 0] <= threshold
    np.testing.assert_allclose(precision[below], scaled_precision[below], rtol=1e-9)
    np.testing.assert_allclose(recall[below], same_recall[below], rtol=1e-9)
    np.testing.assert_allclose(precision[~below], 1, rtol=1e-9)
    np.testing.assert_allclose(recall[~below], 1 / lam[~below, 0], rtol=1e-9)
    assert np.ptp(precision[below]) > 0.9, "the header of the first case calls this part constant"


def test_erratum_8_improved_curve_is_the_old_one_scaled_by_k_and_capped():
    p, q, budget = random_pairs(300, 6)
    c, kept = constant(p, q, budget), reject(p, q, budget)
    for relative in np.geomspace(1e-2, 1e2, 21):
        lam = (relative * c)[:, None]  # of the curve before
        alpha, beta = np.minimum(lam * p, q).sum(-1), np.minimum(p, q / lam).sum(-1)
        lam_after = np.where(budget * alpha < 1, budget * lam[:, 0], 1 / beta)[:, None]
        np.testing.assert_allclose(np.minimum(lam_after * p, kept).sum(-1), np.minimum(budget * alpha, 1), rtol=1e-8)
        np.testing.assert_allclose(np.minimum(p, kept / lam_after).sum(-1), beta, rtol=1e-8)


# --- 9. The DRS formula ----------------------------------------------------------------------------------------------

DRS_RATIOS = np.array([2.0, 1.0, 0.5, 0.5])  # their mean is 1, and M = 2


def test_erratum_9_printed_drs_acceptance_is_no_probability_and_azadis_sigmoid_another_function():
    gamma, rho = -1.0, DRS_RATIOS / 2
    printed = rho * np.exp(-gamma)
    assert printed.mean() == pytest.approx(np.e / 2), "a rate of 136 %"
    clipped = np.minimum(printed, 1)
    assert clipped.mean() == pytest.approx(0.840, abs=5e-4)
    with np.errstate(divide="ignore"):
        sigmoid = 1 / (1 + np.exp(gamma - np.log(rho) + np.log1p(-rho)))
    assert sigmoid.mean() == pytest.approx(0.6705, abs=1e-4)
    assert np.all(sigmoid <= clipped)
    ours = obrs.rules.DRS(np.log(2), gamma, eps=0.0)(np.log(DRS_RATIOS))
    np.testing.assert_allclose(np.exp(ours), sigmoid, rtol=1e-12)


@pytest.mark.parametrize("gamma", [-1.0, -0.5, -0.1, 0.0])
def test_erratum_9_clipped_formula_is_obrs(gamma):
    r = DRS_RATIOS
    clipped = np.minimum(r / r.max() * np.exp(-gamma), 1)
    budget = 1 / np.mean(clipped)
    log_c = float(obrs.solve_log_c(np.log(r), budget))
    assert log_c == pytest.approx(-gamma - np.log(r.max()), abs=1e-9)
    np.testing.assert_allclose(np.exp(obrs.Budgeted(log_c)(np.log(r))), clipped, rtol=1e-9)


# --- 12. Learning rates -----------------------------------------------------------------------------------------


def test_erratum_12_rates_of_the_scripts_freeze_the_generator_and_the_printed_one_would_freeze_the_critic():
    # A step of Adam is about its rate: 1e-10 is lost in float32 beside any weight above 0.002. The scripts have 1e-5.
    for weight in np.float32([0.002, 0.02, 1.0, 3.0]):
        for rate in (1e-50, 2e-50, 1e-10):
            assert weight - np.float32(rate) == weight
        assert weight - np.float32(1e-5) != weight


# --- 10. The gradient of training with OBRS ------------------------------------------------------------------------


def mean_and_sd_gradient(function, mean, sd, step=1e-4):
    """Central differences in the mean and the standard deviation."""
    return np.array(
        [
            (function(mean + step, sd) - function(mean - step, sd)) / (2 * step),
            (function(mean, sd + step) - function(mean, sd - step)) / (2 * step),
        ]
    )


def ratio_left(mean, sd, budget, target=TARGET):
    """p, q and u = r / (K a) of the model N(mean, sd²) on the grid."""
    p, q = target, normal(GRID, mean, sd)
    return p, q, exact.ratio_left(p, q, budget, STEP)


def divergence_after(name, budget, target=TARGET):
    def value(mean, sd):
        p, _, u = ratio_left(mean, sd, budget, target)
        return np.sum(p / u * F[name](u)) * STEP  # p / u is the density that is kept

    return value


def gradient_with_frozen(integrand, mean, sd):
    """Gradient of E_Q[integrand(x)] in the parameters of Q, the integrand held fixed as a function of x."""
    return mean_and_sd_gradient(lambda m, s: np.sum(normal(GRID, m, s) * integrand) * STEP, mean, sd)


@pytest.mark.parametrize("theta", [0.3, 1.0, 2.0])
def test_erratum_10_printed_gradient_points_the_wrong_way_for_kl_without_rejection(theta):
    x = np.linspace(-14, 14, 20_001)
    score = (x - theta) * normal(x, theta, 1.0) * (x[1] - x[0])  # the derivative of q in theta
    log_r = -theta * x + theta**2 / 2
    truth = theta  # of KL = theta² / 2
    printed = np.sum(np.exp(log_r) * log_r * score)  # K = 1, a = 1: E_Q[f(r)] with r a fixed network
    exact = -np.sum(np.exp(log_r) * score)  # f*(f'(u)) = u for KL
    assert printed == pytest.approx(-theta * (1 + theta**2 / 2), rel=1e-6)
    assert exact == pytest.approx(truth, rel=1e-6)


POINTS = [(0.5, 1.2), (0.3, 1.7), (-0.5, 2.2)]  # mean and standard deviation of the model


@pytest.mark.parametrize("name", F_PRIME)
@pytest.mark.parametrize(("mean", "sd"), POINTS)
@pytest.mark.parametrize("budget", [1.5, 2.0])
def test_erratum_10_envelope_gradient_is_that_of_the_exact_divergence(name, budget, mean, sd):
    truth = mean_and_sd_gradient(divergence_after(name, budget), mean, sd)
    *_, u = ratio_left(mean, sd, budget)
    f_star_of_f_prime = u * F_PRIME[name](u) - F[name](u)
    envelope = gradient_with_frozen(-budget * f_star_of_f_prime, mean, sd)
    np.testing.assert_allclose(envelope, truth, rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(
        obrs.divergences.DIVERGENCES[name].f_star_of_f_prime(np.log(u)), f_star_of_f_prime, rtol=1e-6
    )
    if (name, budget, mean) == ("kl", 2.0, 0.5):
        np.testing.assert_allclose(truth, [0.469, -0.523], atol=5e-4)


@pytest.mark.parametrize(
    ("name", "mean", "sd"),
    [(name, *point) for name in ("kl", "chi2", "hellinger") for point in POINTS]
    + [(name, *POINTS[-1]) for name in ("gan", "rkl")],
)
def test_erratum_10_printed_gradient_points_the_wrong_way_at_a_budget_of_two(name, mean, sd):
    budget = 2.0
    p, q, u = ratio_left(mean, sd, budget)
    truth = mean_and_sd_gradient(divergence_after(name, budget), mean, sd)
    printed = gradient_with_frozen(p / q / u * F[name](u), mean, sd)  # K a f(r / (K a))
    assert truth @ printed < 0


def test_erratum_10_printed_gradient_changes_with_a_term_that_no_divergence_sees():
    mean, sd, budget = 0.3, 1.7, 2.0
    p, q, u = ratio_left(mean, sd, budget)
    assert np.sum(p / u * (u - 1)) * STEP == pytest.approx(0, abs=1e-6), "u - 1 adds nothing"
    assert np.linalg.norm(gradient_with_frozen(p / q / u * (u - 1), mean, sd)) > 0.05, "the printed surrogate"
    unseen = gradient_with_frozen(-budget * np.ones_like(u), mean, sd)  # f*(f'(u)) gains the constant 1
    np.testing.assert_allclose(unseen, 0, atol=1e-6)


def test_erratum_10_constant_turns_the_printed_gradient_around():
    mean, sd, budget = -0.5, 2.2, 2.0
    p, q, u = ratio_left(mean, sd, budget)
    truth = mean_and_sd_gradient(divergence_after("gan", budget), mean, sd)
    shifted, raw = (gradient_with_frozen(p / q / u * f(u), mean, sd) for f in (F["gan"], raw_gan))
    assert truth @ shifted < 0 < truth @ raw
    for value, expected in ((truth, [-0.011, 0.057]), (shifted, [0.011, -0.004]), (raw, [-0.099, 0.342])):
        np.testing.assert_allclose(value, expected, atol=6e-4)
    assert F["gan"](u.min()) > 0 > raw_gan(u.min())


TWO_BUMPS = 0.4 * normal(GRID, -2.0, 0.5) + 0.6 * normal(GRID, 2.0, 0.5)  # the target of our Figure 4


def printed_and_exact(mean, sd, budget=2.0):
    """Gradients for the f of the paper, f(1) = -2 log 2: of the printed loss, and of the exact one."""
    p, q, u = ratio_left(mean, sd, budget, TWO_BUMPS)
    exact = -budget * (u * F_PRIME["gan"](u) - F["gan"](u))
    return gradient_with_frozen(p / q / u * raw_gan(u), mean, sd), gradient_with_frozen(exact, mean, sd)


def test_erratum_10_printed_gradient_points_uphill_for_the_papers_own_f():
    printed, exact = printed_and_exact(-1.75, 1.0)
    truth = mean_and_sd_gradient(divergence_after("gan", 2.0, TWO_BUMPS), -1.75, 1.0)
    np.testing.assert_allclose(truth, [-0.0625, -0.1760], atol=1e-4)
    np.testing.assert_allclose(exact, truth, rtol=2e-3)
    np.testing.assert_allclose(printed, [0.0854, 0.2544], atol=1e-4)
    assert truth @ printed / np.linalg.norm(truth) / np.linalg.norm(printed) < -0.999


def test_erratum_10_printed_gradient_points_uphill_at_a_tenth_of_the_models():
    models = [(mean, sd) for mean in np.linspace(-2, 2, 17) for sd in np.linspace(0.5, 2.7, 12)]
    uphill = [np.dot(*printed_and_exact(*model)) < 0 for model in models]
    assert np.mean(uphill) == pytest.approx(0.093, abs=0.005)  # 19 of 204
