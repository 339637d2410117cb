import numpy as np
import pytest

from obrs.divergences import DIVERGENCES, FDivergence, divergence, pr
from obrs.errors import DivergenceError, InputError, InputTypeError, ObrsError, UnknownNameError

LAMBDAS = [1e-8, 0.3, 0.999, 1, 1.001, 4, 1e5]
RECORDS = [*DIVERGENCES.values(), *map(pr, LAMBDAS)]

# Where the values are decided by cancellation (tiny), by a change of formula (moderate), by overflow (huge),
# and next to the zeros of the functions.
SIZES = np.concatenate(
    [
        10.0 ** -np.asarray([150, 120, 60, 30, 16, 12, 9, 8, 7, 6, 5, 4, 3, 2]),
        np.linspace(0.03, 4, 60),
        [9.0, 17.3, 36.0, 36.7, 37.0, 39.9, 40.1, 50.0, 88.8, 200.0, 233.0, 345.6, 500.0, 699.9, 700.0],
    ]
)
ZEROS = [np.log(3.0), *(-np.log(np.asarray(LAMBDAS)))]
NEAR_ZEROS = [z * (1 + s) for z in ZEROS for s in (-1e-6, -1e-11, 0.0, 1e-11, 1e-6)]
LOG_U = np.concatenate([SIZES, -SIZES, NEAR_ZEROS])


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
    """Over the values whose exact size a float64 can hold with all its bits."""
    errors = [
        abs(float((float(o) - e) / e)) if e else abs(float(o))
        for o, e in zip(ours, exact, strict=True)
        if e == 0 or limits.tiny < abs(e) < limits.max
    ]
    assert len(errors) > len(ours) / 3
    return max(errors)


@pytest.mark.parametrize("div", RECORDS, ids=lambda d: d.name)
def test_functions_of_log_u_are_right_to_1e_12_relative(mp, div):
    exact = [EXACT[div.name](mp, mp.mpf(x), mp.exp(mp.mpf(x))) for x in LOG_U.tolist()]
    for fn, values in zip((div.f, div.critic, div.f_star_of_f_prime), zip(*exact, strict=True), strict=True):
        assert worst_relative_error(fn(LOG_U), values, np.finfo(float)) < 1e-12


# name -> (f*(t), log (f*)'(t)) in the interior of the domain
EXACT_OF_T = {
    "kl": lambda mp, t: (mp.exp(t - 1), t - 1),
    "rkl": lambda mp, t: (-1 - mp.log(-t), -mp.log(-t)),
    "gan": lambda mp, t: (-mp.log(1 - mp.exp(t)) - 2 * mp.log(2), t - mp.log(1 - mp.exp(t))),
    "js": lambda mp, t: (-mp.log(1 - mp.exp(2 * t)) / 2 - mp.log(2), 2 * t - mp.log(1 - mp.exp(2 * t))),
    "chi2": lambda mp, t: (t + t * t / 4, mp.log(1 + t / 2)),
    "neyman": lambda mp, t: (2 - 2 * mp.sqrt(1 - t), -mp.log(1 - t) / 2),
    "hellinger": lambda mp, t: (t / (1 - t), -2 * mp.log(1 - t)),
}
DOMAIN = {"kl": (-700, 700), "rkl": (-1e300, 0), "gan": (-700, 0), "js": (-350, 0), "chi2": (-2, 1e150)}


@pytest.mark.parametrize("name", EXACT_OF_T)
def test_functions_of_t_are_right_to_1e_12(mp, name):
    low, high = DOMAIN.get(name, (-1e300, 1))
    t = np.concatenate([LOG_U, -(10.0 ** np.linspace(-300, 300, 61)), 10.0 ** np.linspace(-300, 150, 46)])
    t = t[(t > low) & (t < high)]
    exact = [EXACT_OF_T[name](mp, mp.mpf(v)) for v in t.tolist()]
    for fn, values in zip(
        (DIVERGENCES[name].conjugate, DIVERGENCES[name].log_ratio), zip(*exact, strict=True), strict=True
    ):
        # a zero at t = 0 is kept to full relative accuracy; one elsewhere, as log u = 0 at t = f'(1), is not
        zero_elsewhere = name in ("rkl", "gan", "js")
        np.testing.assert_allclose(
            fn(t), np.asarray(values, dtype=float), rtol=1e-12, atol=1e-15 if zero_elsewhere else 0
        )


def test_gan_keeps_its_digits_where_the_textbook_form_cancels(mp):
    log_u = np.asarray([20.0, 36.0, 40.0, 100.0, 700.0])
    u = np.exp(log_u)
    textbook = u * np.log(u) - (u + 1) * np.log(u + 1) + 2 * np.log(2)
    exact = np.asarray([float(EXACT["gan"](mp, mp.mpf(x), mp.exp(mp.mpf(x)))[0]) for x in log_u.tolist()])
    np.testing.assert_allclose(DIVERGENCES["gan"].f(log_u), exact, rtol=1e-15)
    # at 36, where u + 1 is not yet u, the textbook form is off by three quarters already
    assert np.all(np.abs(textbook[1:] / exact[1:] - 1) > 0.5)


def test_f_of_gan_at_tiny_log_u_is_its_slope():
    assert DIVERGENCES["gan"].f(1e-9) == pytest.approx(-1e-9 * np.log(2), rel=1e-9)
    assert DIVERGENCES["chi2"].f(1e-9) == pytest.approx(1e-18, rel=2e-9, abs=0)


def test_js_is_half_of_gan():
    js, gan = DIVERGENCES["js"], DIVERGENCES["gan"]
    for key in ("f", "critic", "f_star_of_f_prime"):
        np.testing.assert_array_equal(2 * getattr(js, key)(LOG_U), getattr(gan, key)(LOG_U))


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


def test_unknown_name_lists_the_choices():
    with pytest.raises(UnknownNameError) as caught:
        DIVERGENCES["kld"]
    choices = "kl, rkl, gan, js, tv, chi2, neyman, hellinger"
    assert str(caught.value) == f"unknown divergence 'kld'; did you mean 'kl'? there are: {choices}"
    assert issubclass(UnknownNameError, KeyError)
    assert issubclass(UnknownNameError, ObrsError)
    assert DIVERGENCES.get("kld") is None


def test_divergence_takes_a_name_or_a_record():
    assert divergence("kl") is DIVERGENCES["kl"]
    assert divergence(record := pr(2)) is record
    with pytest.raises(UnknownNameError, match="unknown divergence 'kld'"):
        divergence("kld")
    with pytest.raises(InputTypeError, match=r"name in DIVERGENCES or an FDivergence, got float"):
        divergence(2.0)


def test_a_record_of_ones_own_is_a_divergence():
    kl = DIVERGENCES["kl"]
    mine = FDivergence("mine", kl.f, kl.conjugate, kl.critic, kl.log_ratio, kl.f_star_of_f_prime)
    assert divergence(mine) is mine
    assert repr(mine) == "FDivergence(name='mine')"


@pytest.mark.parametrize("lam", [0, -1, float("nan"), float("inf")])
def test_pr_refuses_a_lambda_that_is_not_positive_and_finite(lam):
    with pytest.raises(InputError, match=rf"^lam must be a finite number above 0, got {float(lam)}$"):
        pr(lam)


@pytest.mark.parametrize("value", ["two", None, [1.0, 2.0]])
def test_a_parameter_that_is_not_a_number_is_refused(value):
    with pytest.raises(InputTypeError, match=rf"must be a finite number.*got {type(value).__name__}$"):
        pr(value)


@pytest.mark.parametrize("div", [DIVERGENCES["tv"], pr(4)], ids=lambda d: d.name)
def test_a_critic_that_does_not_determine_the_ratio_has_no_inverse(div):
    with pytest.raises(DivergenceError, match=r"has no log_ratio: .*use a classifier$") as caught:
        div.log_ratio(np.zeros(2))
    assert str(caught.value).startswith(div.name)
    assert "\n" not in str(caught.value)


def test_arguments_that_are_not_real_numbers_are_refused_by_name():
    with pytest.raises(InputTypeError, match=r"^log_u must be real numbers"):
        DIVERGENCES["kl"].f(np.asarray([1j]))
    with pytest.raises(InputTypeError, match=r"^t must be real numbers"):
        DIVERGENCES["kl"].conjugate(np.asarray([True]))
