"""Calibration: what each map recovers, keeps and refuses, and which is chosen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import obrs
from obrs.errors import InputError, ObrsError
from obrs.ratios.calibration import CALIBRATIONS, Affine, Isotonic, fit_calibration
from obrs.ratios.evidence import log_loss


def exact_scores(n_real, n_fake, seed=0):
    """Exact log-ratios of samples of P = N(1/2, 1) and Q = N(-1/2, 1): log r = x."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=n_real) + 0.5, rng.normal(size=n_fake) - 0.5


REAL, FAKE = exact_scores(3000, 2000)
FITTED = {name: fit(2 * REAL - 1, 2 * FAKE - 1) for name, fit in CALIBRATIONS.items()}
each = pytest.mark.parametrize("name", CALIBRATIONS)


def standard_errors(columns, logit):
    """Of a maximum-likelihood fit: roots of the diagonal of the inverse Fisher information."""
    p = 1 / (1 + np.exp(-logit))
    return np.sqrt(np.diag(np.linalg.inv((columns * (p * (1 - p))) @ columns.T)))


def loss_of_fit(calibration, real, fake):
    """The likelihood that the fits maximise: of the pooled samples, with their prior."""
    prior = np.log(len(real) / len(fake))
    costs = np.logaddexp(0, -calibration(real) - prior).sum() + np.logaddexp(0, calibration(fake) + prior).sum()
    return costs / (len(real) + len(fake))


@each
def test_a_map_keeps_library_dtype_and_shape(name, xp):
    x = np.linspace(-8, 8, 12).reshape(3, 4)
    for dtype, tolerance in ((xp.float32, 2e-6), (xp.float64, 1e-14)):
        result = FITTED[name](xp.asarray(x, dtype=dtype))
        assert (type(result), result.dtype) == (type(xp.asarray(x)), dtype)
        np.testing.assert_allclose(np.asarray(result), FITTED[name](x), rtol=tolerance, atol=tolerance)


@each
def test_gradients_pass_and_maps_run_inside_jit(name):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    assert torch.autograd.gradcheck(
        FITTED[name], torch.linspace(-4.03, 4.01, 9, dtype=torch.float64, requires_grad=True), atol=1e-4
    )
    np.testing.assert_allclose(jax.jit(FITTED[name])(REAL[:20]), FITTED[name](REAL[:20]), rtol=1e-6, atol=1e-6)


scores = hnp.arrays(np.float64, st.integers(100, 130), elements=st.floats(-30, 30) | st.sampled_from([0.0, 1e6, -1e6]))


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(sorted(CALIBRATIONS)), scores, scores, scores)
def test_every_fitted_map_is_monotone(name, real, fake, fresh):
    try:
        calibration = CALIBRATIONS[name](real, fake)
    except ObrsError as error:
        assert "\n" not in str(error)
        return
    out = calibration(np.sort(np.concatenate([real, fake, fresh])))
    assert np.isfinite(out).all()
    assert np.all(np.diff(out) >= -1e-12 * np.abs(out).max(initial=0))


@pytest.mark.parametrize(("n_real", "n_fake"), [(4000, 4000), (6000, 1000), (700, 20_000)])
def test_slope_and_intercept_are_recovered_whatever_the_sizes(n_real, n_fake):
    real, fake = exact_scores(n_real, n_fake, seed=1)
    pooled = np.concatenate([real, fake])
    logit = pooled + np.log(n_real / n_fake)
    (error,) = standard_errors(3 * pooled[None], logit)
    assert Affine.fit(3 * real, 3 * fake, intercept=False).slope == pytest.approx(1 / 3, abs=4 * error)
    errors = standard_errors(np.stack([3 * pooled - 2, np.ones_like(pooled)]), logit)
    platt = Affine.fit(3 * real - 2, 3 * fake - 2)
    assert platt.slope == pytest.approx(1 / 3, abs=4 * errors[0])
    assert platt.intercept == pytest.approx(2 / 3, abs=4 * errors[1])
    (error,) = standard_errors(np.ones((1, len(pooled))), logit)
    assert Affine.fit(real + 9, fake + 9, slope=False).intercept == pytest.approx(-9, abs=4 * error)


def test_affine_is_logistic_regression_on_the_score():
    linear = pytest.importorskip("sklearn.linear_model")
    real, fake = 3 * REAL - 6, 3 * FAKE - 6
    x, y = np.concatenate([real, fake])[:, None], np.repeat([1, 0], [len(real), len(fake)])
    model = linear.LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12).fit(x, y)
    platt = Affine.fit(real, fake)
    assert platt.slope == pytest.approx(model.coef_[0, 0], rel=1e-9)
    assert platt.intercept == pytest.approx(model.intercept_[0] - np.log(len(real) / len(fake)), rel=1e-9)


def test_isotonic_is_the_regression_of_scikit_learn_at_its_knots():
    isotonic = pytest.importorskip("sklearn.isotonic")
    x, y = np.concatenate([REAL, FAKE]).round(2), np.repeat([1, 0], [len(REAL), len(FAKE)])
    p = isotonic.IsotonicRegression().fit(x, y).predict(x)
    inner = (p > 0) & (p < 1)
    expected = np.log(p[inner] / (1 - p[inner])) - np.log(len(REAL) / len(FAKE))
    np.testing.assert_allclose(Isotonic.fit(REAL.round(2), FAKE.round(2))(x)[inner], expected, rtol=1e-9, atol=1e-9)
    assert inner.mean() > 0.95


def test_isotonic_ends_are_finite_half_a_sample_and_never_pass_their_neighbours():
    real, fake = np.arange(100.0) + 50, np.arange(100.0)
    real[0], fake[0] = 30.0, 120.0
    isotonic = Isotonic.fit(real, fake)
    assert isotonic([-1e9])[0] == pytest.approx(np.log(0.5 / 100) - np.log(29 / 100)), "29 fakes below the first real"
    assert isotonic([1e9])[0] == pytest.approx(np.log(29 / 100) - np.log(0.5 / 100)), "29 real above the last fake"
    real, fake = np.repeat([1.0, 2.0], [1, 199]), np.repeat([0.0, 1.0, 2.0], [1, 40, 160])
    second = np.log(1 / 200) - np.log(40 / 201)
    np.testing.assert_allclose(Isotonic.fit(real, fake)([0.0, 1.0]), second, err_msg="half a real to one fake is more")
    assert Isotonic.fit(np.zeros(200), np.zeros(150)) == Isotonic((0.0,), (0.0,))


def test_scores_that_separate_have_no_slope_and_scores_that_say_nothing_a_flat_one():
    up = np.linspace(0, 1, 50)
    for options in ({}, {"intercept": False}):
        with pytest.raises(InputError, match=r"no slope fits: all 50 real scores are above all 50 fake ones"):
            Affine.fit(up + 1, -up - 1, **options)
        assert Affine.fit(-REAL, -FAKE, **options) == Affine(0.0, 0.0)
    assert Affine.fit(*np.random.default_rng(3).normal(size=(2, 4000))).slope < 4 / np.sqrt(2000)
    ones = np.ones(200)
    for fit in (Affine.fit, CALIBRATIONS["shift"], Isotonic.fit):
        np.testing.assert_allclose(fit(5 * ones, 5 * ones[:150])([5.0]), 0, atol=1e-9)
    assert Affine.fit(0 * ones, 0 * ones, intercept=False) == Affine()


# The choice

CASES = {
    "identity": lambda s: s,
    "shift": lambda s: s + 1,
    "temperature": lambda s: 3 * s,
    "platt": lambda s: 3 * s - 4,
    "isotonic": lambda s: np.tanh(3 * s),
}


@pytest.mark.parametrize("name", CASES)
def test_the_simplest_sufficient_map_is_chosen_by_held_out_loss(name):
    real, fake = exact_scores(8000, 6000, seed=4)
    chosen = fit_calibration(CASES[name](real), CASES[name](fake))
    assert chosen == CALIBRATIONS[name](CASES[name](real), CASES[name](fake))


def test_a_map_that_overfits_is_not_chosen_although_it_fits_its_own_sample_best():
    real, fake = exact_scores(150, 150, seed=5)
    loss = {name: loss_of_fit(fit(real, fake), real, fake) for name, fit in CALIBRATIONS.items()}
    assert min(loss, key=loss.get) == "isotonic"
    assert fit_calibration(real, fake) == Affine()


def test_log_loss_is_that_of_scikit_learn_with_both_kinds_weighing_one_half():
    metrics = pytest.importorskip("sklearn.metrics")
    p = 1 / (1 + np.exp(-np.concatenate([REAL, FAKE])))
    labels = np.repeat([1, 0], [len(REAL), len(FAKE)])
    weights = np.repeat([0.5 / len(REAL), 0.5 / len(FAKE)], [len(REAL), len(FAKE)])
    loss = log_loss(REAL, FAKE)
    assert loss.value == pytest.approx(metrics.log_loss(labels, p, sample_weight=weights))
    assert np.log(2) - loss.value == pytest.approx(obrs.Profile(FAKE).divergence("js"), abs=4 * loss.standard_error)


# Bad input
