import numpy as np
import pytest

from obrs.divergences import DIVERGENCES, pr

LAMBDAS = [1e-8, 0.3, 1, 4, 1e5]
RECORDS = [*DIVERGENCES.values(), *map(pr, LAMBDAS)]
# Where values are decided by cancellation (tiny), by a change of formula (moderate) and by overflow (huge)
HUGE = [9.0, 36.7, 39.9, 40.1, 88.8, 345.6, 700.0]
SIZES = np.concatenate([10.0 ** -np.arange(3, 13), np.linspace(0.03, 4, 30), HUGE])
LOG_U = np.concatenate([SIZES, -SIZES])


@pytest.fixture
def mp():
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(400):  # e^700 next to 1, or (1 + 1e-150) squared
        yield mpmath.mp


def exact_pr(lam):
    def values(mp, x, u):
        above, top = lam * u > 1, max(lam, 1)
        return max(lam * u, 1) - top, lam if above else 0, top if above else top - 1

    return values


# name -> (f(u), f'(u), f*(f'(u))) as the textbook writes them
EXACT = {
    "kl": lambda mp, x, u: (u * x, 1 + x, u),
    "rkl": lambda mp, x, u: (-x, -1 / u, x - 1),
    "gan": lambda mp, x, u: (
        u * x - (u + 1) * mp.log(u + 1) + 2 * mp.log(2),
        mp.log(u / (1 + u)),
        mp.log(1 + u) - 2 * mp.log(2),
    ),
    "js": lambda mp, x, u: tuple(v / 2 for v in EXACT["gan"](mp, x, u)),
    "tv": lambda mp, x, u: (abs(u - 1) / 2, mp.sign(u - 1) / 2, mp.sign(u - 1) / 2),
    "chi2": lambda mp, x, u: ((u - 1) ** 2, 2 * (u - 1), u * u - 1),
    "neyman": lambda mp, x, u: ((u - 1) ** 2 / u, 1 - 1 / u**2, 2 - 2 / u),
    "hellinger": lambda mp, x, u: ((mp.sqrt(u) - 1) ** 2, 1 - 1 / mp.sqrt(u), mp.sqrt(u) - 1),
    **{pr(lam).name: exact_pr(lam) for lam in LAMBDAS},
}


def worst_relative_error(ours, exact, limits):
    """Over the values whose exact size a float64 can hold; those below 1 count as 1."""
    errors = [
        abs(float((float(o) - e) / max(abs(e), 1)))
        for o, e in zip(ours, exact, strict=True)
        if e == 0 or limits.tiny < abs(e) < limits.max
    ]
    assert len(errors) > len(ours) / 3
    return max(errors)


@pytest.mark.parametrize("div", RECORDS, ids=lambda d: d.name)
def test_functions_of_log_u_are_right_to_1e_12(mp, div):
    exact = [EXACT[div.name](mp, mp.mpf(x), mp.exp(mp.mpf(x))) for x in LOG_U.tolist()]
    for fn, values in zip((div.f, div.critic, div.f_star_of_f_prime), zip(*exact, strict=True), strict=True):
        assert worst_relative_error(fn(LOG_U), values, np.finfo(float)) < 1e-12


MU, SIGMA = 0.7, 0.8  # P = N(MU, SIGMA²) against Q = N(0, 1)
CLOSED_FORMS = {
    "kl": -np.log(SIGMA) + (SIGMA**2 + MU**2 - 1) / 2,
    "rkl": np.log(SIGMA) + (1 + MU**2) / (2 * SIGMA**2) - 0.5,
    "chi2": np.exp(MU**2 / (2 - SIGMA**2)) / (SIGMA * np.sqrt(2 - SIGMA**2)) - 1,
    "hellinger": 2 - 2 * np.sqrt(2 * SIGMA / (1 + SIGMA**2)) * np.exp(-(MU**2) / (4 * (1 + SIGMA**2))),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_divergence_of_two_gaussians_is_the_closed_form(name):
    integrate = pytest.importorskip("scipy.integrate")

    def integrand(x):
        log_u = -np.log(SIGMA) - ((x - MU) / SIGMA) ** 2 / 2 + x**2 / 2
        return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * float(DIVERGENCES[name].f(log_u))

    value, _ = integrate.quad(integrand, -15, 15, epsabs=1e-13, epsrel=1e-12, limit=200)
    assert value == pytest.approx(CLOSED_FORMS[name], rel=1e-10)


@pytest.mark.parametrize("lam", [0.01, 0.3, 1, 4, 200])
def test_precision_is_min_lambda_1_minus_the_pr_divergence(lam):
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, q = rng.dirichlet(np.full(12, 0.3), size=2)
        precision = np.sum(np.minimum(lam * p, q))
        left = np.sum(q * pr(lam).f(np.log(p) - np.log(q)))
        assert precision == pytest.approx(min(lam, 1) - left, abs=1e-12)
