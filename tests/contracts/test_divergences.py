"""What every f-divergence obeys, whichever it is."""

import numpy as np
import pytest
from array_api_compat import array_namespace

from obrs.divergences import DIVERGENCES, pr
from obrs.errors import DivergenceError

RECORDS = [*DIVERGENCES.values(), *map(pr, (0.3, 1, 4))]
OF_LOG_U, OF_T = ("f", "critic", "f_star_of_f_prime"), ("conjugate", "log_ratio")
LOG_U = np.linspace(-4, 4, 41)
SMOOTH = np.append(np.linspace(-4, 4, 36) + 0.017, 0.0)  # off the kinks of tv and pr, and at 1, where tv alone has one
FINITE = [0.0, 1e-320, 1e-9, 0.5, 1.0, 2.0, 36.0, 50.0, 354.0, 709.7, 750.0, 1e4, 1e20, 1e308]
EXTREME = np.asarray([s * v for v in (*FINITE, np.inf) for s in (-1, 1)])
VALUES = np.concatenate([LOG_U[::2], [-80, -37, -20, -9, -0.5, -1e-3, -1e-7, 1e-7, 1e-3, 0.5, 9, 20, 37, 40, 41.5, 60]])


@pytest.fixture(params=RECORDS, ids=lambda record: record.name)
def div(request):
    return request.param


def has_inverse(div):
    return div.name != "tv" and not div.name.startswith("pr")


def functions(div):
    keys = (*OF_LOG_U, *OF_T) if has_inverse(div) else (*OF_LOG_U, "conjugate")
    return {key: getattr(div, key) for key in keys}


def to_numpy(x):
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def test_f_is_zero_at_one(div):
    assert div.f(np.zeros(1)) == 0


def test_f_is_convex_in_u(div):
    u = np.linspace(0, 20, 2001)
    with np.errstate(divide="ignore"):
        f = div.f(np.log(u))
    f = f[np.isfinite(f)]
    assert np.all(f[2:] - 2 * f[1:-1] + f[:-2] > -1e-12 * (1 + np.abs(f[1:-1])))


def test_critic_is_the_derivative_of_f(div):
    step = 1e-5
    slope = (div.f(SMOOTH + step) - div.f(SMOOTH - step)) / (2 * step)
    away = np.abs(SMOOTH) > 1e-3 if div.name in ("tv", "pr(1.0)") else np.isfinite(SMOOTH)
    np.testing.assert_allclose(slope[away], (np.exp(SMOOTH) * div.critic(SMOOTH))[away], rtol=1e-8, atol=1e-8)


def test_fenchel_equality(div):
    u, t = np.exp(LOG_U), div.critic(LOG_U)
    np.testing.assert_allclose(div.f(LOG_U) + div.conjugate(t), u * t, rtol=1e-9, atol=1e-12)


def test_f_star_of_f_prime_is_the_conjugate_of_the_critic(div):
    log_u = np.concatenate([LOG_U, [-np.inf, np.inf]])
    composed = div.conjugate(div.critic(log_u))
    np.testing.assert_allclose(div.f_star_of_f_prime(log_u), composed, rtol=1e-9, atol=1e-12)


def test_conjugate_is_the_supremum_over_nonnegative_u(div):
    optimize = pytest.importorskip("scipy.optimize")
    ts = np.asarray([-40.0, -3.0, -2.0, -1.3, -0.7, -0.5, -0.1, -0.01, 0.0, 0.02, 0.25, 0.45, 0.6, 0.9, 1.1, 2.5, 4.5])
    for t, ours in zip(ts, div.conjugate(ts), strict=True):

        def gain(log_u, t=t):
            return t * np.exp(log_u) - float(div.f(log_u))

        coarse = np.append(np.linspace(-30, 60, 181), -np.inf)
        gains = t * np.exp(coarse) - div.f(coarse)
        best = coarse[np.argmax(gains)]
        if np.argmax(gains) == 180:  # still rising at u = e^60
            assert ours == np.inf or ours > 1e20, t
            continue
        sup = np.max(gains)
        if np.isfinite(best):
            least = optimize.minimize_scalar(
                lambda v, gain=gain: -gain(v),
                bounds=(best - 0.5, best + 0.5),
                method="bounded",
                options={"xatol": 1e-9},
            )
            sup = max(sup, -least.fun)
        assert ours == pytest.approx(sup, rel=1e-6, abs=1e-7), t


def test_log_ratio_inverts_the_critic_or_says_that_it_cannot(div):
    if not has_inverse(div):
        with pytest.raises(DivergenceError, match="no log_ratio"):
            div.log_ratio(LOG_U)
        return
    np.testing.assert_allclose(div.log_ratio(div.critic(LOG_U)), LOG_U, rtol=1e-9, atol=1e-11)


def test_only_nan_makes_a_nan(div):
    x = np.append(EXTREME, np.nan)
    for key, fn in functions(div).items():
        np.testing.assert_array_equal(np.isnan(fn(x)), np.isnan(x), err_msg=key)


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-12), ("float32", 2e-5)])
def test_every_backend_gives_the_values_of_numpy_in_its_own_type(div, xp, dtype, rtol):
    x = VALUES.astype(dtype)
    array = xp.asarray(x)
    for key, fn in functions(div).items():
        out = fn(array)
        assert (out.dtype, out.shape) == (array.dtype, array.shape), key
        assert array_namespace(out) is array_namespace(array), key
        if dtype == "float64" or key in OF_LOG_U:  # t, rounded, may be on the other side of an edge
            with np.errstate(over="ignore"):
                expected = fn(x.astype("float64")).astype(dtype)
            np.testing.assert_allclose(to_numpy(out), expected, rtol=rtol, atol=rtol, err_msg=key)


def exact_slopes(div):
    """Derivatives by `log u`: of f, of the critic, and of f* of the critic, by central differences."""
    step = 1e-5
    u = np.exp(SMOOTH)
    critic = (div.critic(SMOOTH + step) - div.critic(SMOOTH - step)) / (2 * step)
    return {"f": u * div.critic(SMOOTH), "critic": critic, "f_star_of_f_prime": u * critic}


def assert_slopes(div, gradients):
    smooth = SMOOTH != 0 if div.name in ("tv", "pr(1.0)") else np.isfinite(SMOOTH)
    for key, exact in exact_slopes(div).items():
        np.testing.assert_allclose(gradients[key][smooth], exact[smooth], rtol=1e-7, atol=1e-8, err_msg=key)
        assert np.all(np.isfinite(gradients[key])), key


def test_gradients_are_the_derivatives(div):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    in_torch, in_jax = {}, {}
    for key in OF_LOG_U:
        x = torch.tensor([*SMOOTH, -np.inf], dtype=torch.float64, requires_grad=True)  # r = 0 poisons no other slope
        out = getattr(div, key)(x)
        (out[:-1].sum() + 0 * x[:-1].sum()).backward()  # the critic of tv is a constant to autograd
        in_torch[key] = x.grad.numpy()[:-1]
        _, pull_back = jax.vjp(getattr(div, key), jax.numpy.asarray(SMOOTH))
        in_jax[key] = np.asarray(pull_back(jax.numpy.ones(SMOOTH.shape))[0])
    assert_slopes(div, in_torch)
    assert_slopes(div, in_jax)


def test_the_slope_of_the_conjugate_is_the_ratio_and_never_nan(div):
    torch = pytest.importorskip("torch")
    t = torch.tensor([*np.linspace(-5.01, 5.01, 60), -1e4, 1e4], requires_grad=True)
    conjugate = div.conjugate(t)
    conjugate.sum().backward()
    assert not torch.any(torch.isnan(t.grad))
    if has_inverse(div):
        inside = torch.isfinite(conjugate)
        ratio = torch.exp(div.log_ratio(t.detach()))
        torch.testing.assert_close(t.grad[inside], ratio[inside], rtol=1e-10, atol=1e-12)
