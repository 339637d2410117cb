"""Calibration: what each map recovers, keeps and refuses, and which is chosen."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_any_input import answers, things, values

import obrs
from obrs.errors import InputError, InputTypeError, ObrsError, RatioError, UnknownNameError
from obrs.ratios.calibration import (
    CALIBRATIONS,
    Beta,
    Identity,
    Isotonic,
    Platt,
    Shift,
    Temperature,
    fit_calibration,
    from_json,
    to_json,
)
from obrs.ratios.evidence import log_loss


def exact_scores(n_real, n_fake, seed=0, distance=1.0):
    """Exact log-ratios of samples of P = N(d/2, 1) and Q = N(-d/2, 1): log r = d x."""
    rng = np.random.default_rng(seed)
    return distance * (rng.normal(size=n_real) + distance / 2), distance * (rng.normal(size=n_fake) - distance / 2)


REAL, FAKE = exact_scores(3000, 2000)
FITTED = {name: kind.fit(2 * REAL - 1, 2 * FAKE - 1) for name, kind in CALIBRATIONS.items()}
each = pytest.mark.parametrize("name", CALIBRATIONS)


def standard_errors(columns, labels, logit):
    """Of a maximum-likelihood fit: roots of the diagonal of the inverse Fisher information."""
    p = 1 / (1 + np.exp(-logit))
    return np.sqrt(np.diag(np.linalg.inv((columns * (p * (1 - p))) @ columns.T)))


# What every map promises


@each
def test_a_map_keeps_library_dtype_and_shape(name, xp):
    calibration = FITTED[name]
    x = np.linspace(-8, 8, 12).reshape(3, 4)
    for dtype, tolerance in ((xp.float32, 2e-6), (xp.float64, 1e-14)):
        result = calibration(xp.asarray(x, dtype=dtype))
        assert type(result) is type(xp.asarray(x))
        assert result.dtype == dtype
        np.testing.assert_allclose(np.asarray(result), calibration(x), rtol=tolerance, atol=tolerance)


@each
def test_what_is_impossible_stays_impossible_and_nan_stays_nan(name):
    np.testing.assert_array_equal(FITTED[name](np.asarray([-np.inf, np.nan])), [-np.inf, np.nan])
    np.testing.assert_array_equal(Platt(0.0, 1.0)([-np.inf, 3.0]), [-np.inf, 1])


@each
def test_json_brings_a_map_back(name):
    text = to_json(FITTED[name])
    assert from_json(text) == FITTED[name]
    assert json.loads(text)["calibration"] == name


@each
def test_maps_are_frozen(name):
    with pytest.raises(AttributeError):
        FITTED[name].slope = 0.0


@each
def test_gradients_are_those_of_finite_differences(name):
    torch = pytest.importorskip("torch")
    x = torch.linspace(-4.03, 4.01, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(FITTED[name], x, atol=1e-4)
    single = torch.tensor([-np.inf, 0.5], requires_grad=True)
    FITTED[name](single)[1].backward()
    assert torch.isfinite(single.grad).all()


@each
def test_maps_run_inside_jit(name):
    jax = pytest.importorskip("jax")
    np.testing.assert_allclose(jax.jit(FITTED[name])(REAL[:20]), FITTED[name](REAL[:20]), rtol=1e-6, atol=1e-6)


@each
def test_a_fit_takes_tensors_and_does_not_depend_on_the_order(name):
    torch = pytest.importorskip("torch")
    other = CALIBRATIONS[name].fit(torch.tensor(2 * REAL[::-1] - 1), torch.tensor(2 * FAKE[::-1] - 1))
    np.testing.assert_allclose(other(REAL), FITTED[name](REAL), rtol=1e-9, atol=1e-9)


scores = hnp.arrays(
    np.float64, st.integers(100, 130), elements=st.floats(-30, 30) | st.sampled_from([0.0, 1e300, -1e9])
)


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(sorted(CALIBRATIONS)), scores, scores, scores)
def test_every_fitted_map_is_monotone(name, real, fake, fresh):
    try:
        calibration = CALIBRATIONS[name].fit(real, fake)
    except ObrsError as error:
        assert "\n" not in str(error)
        return
    with np.errstate(over="ignore"):
        out = calibration(np.sort(np.concatenate([real, fake, fresh])))
    assert not np.isnan(out).any()
    assert np.all(np.diff(np.isposinf(out).astype(int)) >= 0)
    finite = out[np.isfinite(out)]
    assert np.all(np.diff(finite) >= -1e-12 * np.abs(finite).max(initial=0))
    assert from_json(to_json(calibration)) == calibration


# What each map recovers


@pytest.mark.parametrize(("n_real", "n_fake"), [(4000, 4000), (6000, 1000), (700, 20_000)])
def test_a_temperature_of_three_is_recovered_whatever_the_sizes(n_real, n_fake):
    real, fake = exact_scores(n_real, n_fake, seed=1)
    pooled, labels = np.concatenate([real, fake]), np.repeat([1, 0], [n_real, n_fake])
    (error,) = standard_errors(3 * pooled[None], labels, pooled + np.log(n_real / n_fake))
    assert Temperature.fit(3 * real, 3 * fake).slope == pytest.approx(1 / 3, abs=4 * error)
    both = np.stack([3 * pooled - 2, np.ones_like(pooled)])
    errors = standard_errors(both, labels, pooled + np.log(n_real / n_fake))
    platt = Platt.fit(3 * real - 2, 3 * fake - 2)
    assert platt.slope == pytest.approx(1 / 3, abs=4 * errors[0])
    assert platt.intercept == pytest.approx(2 / 3, abs=4 * errors[1])


def test_a_shift_makes_the_mean_ratio_one():
    shift = Shift.fit(REAL + 900, FAKE + 900)
    assert np.exp(shift(FAKE + 900)).mean() == pytest.approx(1)
    error = np.exp(FAKE).std() / np.sqrt(len(FAKE))
    assert shift.offset == pytest.approx(-900, abs=4 * error)
    half = np.concatenate([FAKE, np.full(len(FAKE), -np.inf)])
    assert Shift.fit(REAL, half).offset == pytest.approx(Shift.fit(REAL, FAKE).offset + np.log(2))


def test_platt_is_logistic_regression_on_the_logit():
    linear = pytest.importorskip("sklearn.linear_model")
    real, fake = 3 * REAL - 6, 3 * FAKE - 6
    x, y = np.concatenate([real, fake])[:, None], np.repeat([1, 0], [len(real), len(fake)])
    model = linear.LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12).fit(x, y)
    platt = Platt.fit(real, fake)
    assert platt.slope == pytest.approx(model.coef_[0, 0], rel=1e-9)
    assert platt.intercept == pytest.approx(model.intercept_[0] - np.log(len(real) / len(fake)), rel=1e-9)


@pytest.mark.parametrize(("shape", "edge"), [("both", "inside"), ("left", "b"), ("right", "a"), ("reversed", "corner")])
def test_beta_is_the_constrained_maximum_of_the_likelihood(shape, edge):
    optimize = pytest.importorskip("scipy.optimize")
    warp = {
        "both": lambda s: np.where(s > 0, 3 * s, s / 2),
        "left": lambda s: np.where(s > 0, 3 / (s + 0.5), s),  # above 0 the ratio falls
        "right": lambda s: np.where(s > 0, s, 3 / (s - 0.5)),
        "reversed": lambda s: -s,
    }[shape]
    real, fake = warp(REAL), warp(FAKE)
    s, sign = np.concatenate([real, fake]), np.repeat([1.0, -1.0], [len(real), len(fake)])
    columns = np.stack([-np.logaddexp(0, -s), np.logaddexp(0, s), np.ones_like(s)])

    def loss(theta):
        z = sign * (theta @ columns + np.log(len(real) / len(fake)))
        return np.logaddexp(0, -z).mean(), -(columns * sign) @ (1 / (1 + np.exp(np.minimum(z, 700)))) / len(s)

    bounds = [(0, None), (0, None), (None, None)]
    best = optimize.minimize(loss, np.ones(3), jac=True, bounds=bounds, options={"ftol": 1e-16, "gtol": 1e-10})
    beta = Beta.fit(real, fake)
    found = np.asarray([beta.a, beta.b, beta.c])
    assert loss(found)[0] <= best.fun + 1e-12
    np.testing.assert_allclose(found, best.x, atol=2e-4)
    zeros = {"inside": (False, False), "b": (False, True), "a": (True, False), "corner": (True, True)}[edge]
    assert (beta.a == 0, beta.b == 0) == zeros


def test_simple_maps_are_special_cases_of_rich_ones():
    x = np.linspace(-50, 50, 101)
    for rich, simple in [
        (Shift(0.0), Identity()),
        (Temperature(1.0), Identity()),
        (Platt(1.0, 0.7), Shift(0.7)),
        (Platt(0.3, 0.0), Temperature(0.3)),
        (Beta(0.3, 0.3, -2.0), Platt(0.3, -2.0)),
    ]:
        np.testing.assert_allclose(rich(x), simple(x), rtol=1e-14, atol=1e-14)
    real, fake = 3 * REAL - 1, 3 * FAKE - 1
    loss = {name: log_of_fit(kind.fit(real, fake), real, fake) for name, kind in CALIBRATIONS.items()}
    assert loss["platt"] <= min(loss[name] for name in ("identity", "shift", "temperature"))
    assert loss["temperature"] <= loss["identity"]
    assert loss["beta"] <= loss["platt"]
    assert loss["isotonic"] <= loss["beta"], (
        "the isotonic steps, but for half a sample at the ends, are the best of all"
    )


def log_of_fit(calibration, real, fake):
    """The likelihood that the fits maximise: of the pooled samples, with their prior."""
    prior = np.log(len(real) / len(fake))
    costs = np.logaddexp(0, -calibration(real) - prior).sum() + np.logaddexp(0, calibration(fake) + prior).sum()
    return costs / (len(real) + len(fake))


def test_isotonic_is_the_regression_of_scikit_learn_at_its_knots():
    isotonic = pytest.importorskip("sklearn.isotonic")
    x, y = np.concatenate([REAL, FAKE]).round(2), np.repeat([1, 0], [len(REAL), len(FAKE)])
    p = isotonic.IsotonicRegression().fit(x, y).predict(x)
    calibrated = Isotonic.fit(REAL.round(2), FAKE.round(2))(x)
    inner = (p > 0) & (p < 1)
    expected = np.log(p[inner] / (1 - p[inner])) - np.log(len(REAL) / len(FAKE))
    np.testing.assert_allclose(calibrated[inner], expected, rtol=1e-9, atol=1e-9)
    assert inner.mean() > 0.95


def test_isotonic_ends_are_finite_half_a_sample_and_never_pass_their_neighbours():
    real, fake = np.arange(100.0) + 50, np.arange(100.0)
    real[0], fake[0] = 30.0, 120.0
    isotonic = Isotonic.fit(real, fake)
    assert isotonic([-1e9])[0] == pytest.approx(np.log(0.5 / 100) - np.log(29 / 100)), "29 fakes below the first real"
    assert isotonic([1e9])[0] == pytest.approx(np.log(29 / 100) - np.log(0.5 / 100)), "29 real above the last fake"
    apart = Isotonic.fit(np.arange(100.0) + 100, np.arange(100.0))
    np.testing.assert_allclose(
        apart([-5.0, 0.0, 99.0, 99.5, 100.0, 900.0]), np.log(200) * np.asarray([-1, -1, -1, 0, 1, 1])
    )
    real, fake = np.repeat([1.0, 2.0], [1, 199]), np.repeat([0.0, 1.0, 2.0], [1, 40, 160])
    second = np.log(1 / 200) - np.log(40 / 201)
    np.testing.assert_allclose(Isotonic.fit(real, fake)([0.0, 1.0]), second, err_msg="half a real to one fake is more")
    assert Isotonic.fit(np.zeros(200), np.zeros(150)) == Isotonic((0.0,), (0.0,))


def test_isotonic_finds_any_increasing_shape_the_better_the_more_it_sees():
    errors = []
    for n in (1000, 30_000):
        real, fake = exact_scores(n, n, seed=2)
        calibration = Isotonic.fit(np.tanh(real) + 0.1 * real**3, np.tanh(fake) + 0.1 * fake**3)
        truth = np.linspace(-2, 2, 200)
        errors.append(np.sqrt(np.mean((calibration(np.tanh(truth) + 0.1 * truth**3) - truth) ** 2)))
    assert errors[1] < errors[0] / 2, "n^(1/3) is 3.1 times larger"
    assert errors[1] < 0.12


def test_samples_with_no_chance_count_as_fakes_without_a_say():
    fake = np.concatenate([FAKE - np.log(0.5), np.full(len(FAKE), -np.inf)])  # half of the model misses the target
    real = REAL - np.log(0.5)
    x = np.concatenate([real, FAKE - np.log(0.5)])
    labels = np.repeat([1, 0], [len(real), len(FAKE)])
    errors = standard_errors(np.stack([x, np.ones_like(x)]), labels, x + np.log(len(real) / len(fake)))
    platt = Platt.fit(real, fake)
    assert platt.slope == pytest.approx(1, abs=4 * errors[0])
    assert platt.intercept == pytest.approx(0, abs=4 * errors[1])
    pooled = np.exp(Isotonic.fit(real, fake)(fake)).mean()
    assert pooled == pytest.approx(1, abs=0.02), "an isotonic ratio has mean 1 over its own fakes, but for its ends"


def test_a_flat_map_has_mean_ratio_one_over_all_fakes():
    half = np.full(len(FAKE), -np.inf)  # of them cannot be real
    for calibration in (Platt.fit(-REAL, np.append(-FAKE, half)), Beta.fit(-REAL, np.append(-FAKE, half))):
        np.testing.assert_allclose(calibration([-3.0, 3.0]), np.log(2), rtol=1e-12)
    one = Platt.fit(np.full(50, 7.0), np.append(np.full(50, 7.0), np.full(50, -np.inf)))
    assert one == Platt(1.0, np.log(2) - 7)


def test_one_far_outlier_does_not_stop_the_fit():
    plain = Platt.fit(REAL, FAKE)
    for value in (-1e12, -1e300):
        platt = Platt.fit(REAL, np.append(FAKE, value))
        assert platt.slope == pytest.approx(plain.slope, rel=1e-3)


def test_a_tight_clump_beside_spread_scores_does_not_decide_the_slope():
    rng = np.random.default_rng(8)
    real, fake = rng.normal(0.5, 1, 400), rng.normal(-0.5, 1, 400)
    for width in (1e-3, 1e-12, 1e-309):
        clump = width * rng.normal(size=1200)
        platt = Platt.fit(np.append(real, clump), np.append(fake, clump))
        assert platt.slope == pytest.approx(
            Platt.fit(np.append(real, 0 * clump), np.append(fake, 0 * clump)).slope, rel=1e-2
        )


def test_scores_of_any_scale_are_fitted():
    plain = Platt.fit(REAL, FAKE)
    for scale, offset in ((1e-9, 0.0), (1e9, 0.0), (1.0, 1e6), (1e200, -1e203)):
        platt = Platt.fit(scale * REAL + offset, scale * FAKE + offset)
        assert platt.slope * scale == pytest.approx(plain.slope, rel=1e-6)


# Scores that cannot be calibrated, or need no calibration


@pytest.mark.parametrize("name", ["temperature", "platt", "beta"])
def test_scores_that_separate_the_two_sets_have_no_slope(name):
    fit = CALIBRATIONS[name].fit
    up = np.linspace(0, 1, 50)
    for real, fake in ((up + 1, -up - 1), (up, -up), (up, np.append(-up - 1, -np.inf))):
        with pytest.raises(
            InputError, match=r"no slope fits: all 50 real scores are above all 5\d fake ones; add held-out"
        ):
            fit(real, np.where(np.isneginf(fake), -2.0, fake))
    almost = fit(np.append(up + 1, -1.5), np.append(-up - 1, 1.5))
    assert np.isfinite(almost(np.asarray([-2.0, 2.0]))).all()


def test_scores_that_say_nothing_are_flat_and_scores_upside_down_too():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(2, 4000))
    assert Platt.fit(*noise).slope < 4 / np.sqrt(2000)
    assert Temperature.fit(-REAL, -FAKE) == Temperature(0.0)
    assert Platt.fit(-REAL, -FAKE) == Platt(0.0, 0.0)
    assert Beta.fit(-REAL, -FAKE) == Beta(0.0, 0.0, 0.0)
    np.testing.assert_allclose(Isotonic.fit(-REAL, -FAKE)([-1.0, 1.0]), 0, atol=0.6)


def test_one_score_for_all_becomes_zero():
    ones = np.ones(200)
    for name in ("shift", "platt", "beta", "isotonic"):
        np.testing.assert_allclose(CALIBRATIONS[name].fit(5 * ones, 5 * ones[:150])([5.0]), 0, atol=1e-12)
    assert Temperature.fit(0 * ones, 0 * ones) == Temperature(1.0)
    assert Temperature.fit(ones, ones).slope == pytest.approx(0, abs=1e-12)
    assert fit_calibration(0 * ones, 0 * ones).name == "identity"


def test_beta_far_on_one_side_is_platt():
    platt = Platt.fit(REAL + 900, FAKE + 900)
    assert Beta.fit(REAL + 900, FAKE + 900) == Beta(platt.slope, platt.slope, platt.intercept)


# The choice

GRID = np.linspace(-60, 60, 20_001)
CASES = {
    "identity": lambda s: s,
    "shift": lambda s: s + 1,
    "temperature": lambda s: 3 * s,
    "platt": lambda s: 3 * s - 4,
    "beta": lambda s: np.interp(s, Beta(0.3, 3.0, 0.0)(GRID), GRID),
    "isotonic": lambda s: np.tanh(3 * s),
}


@pytest.mark.parametrize("name", CASES)
def test_the_simplest_sufficient_map_is_chosen(name):
    real, fake = exact_scores(8000, 6000, seed=4)
    choice = fit_calibration(CASES[name](real), CASES[name](fake))
    assert choice.name == name
    assert choice.calibration == CALIBRATIONS[name].fit(CASES[name](real), CASES[name](fake))
    rows = {row.name: row for row in choice.rows}
    assert list(rows) == list(CALIBRATIONS)
    assert min(row.excess for row in choice.rows) == 0
    truth = log_loss(real, fake)
    assert rows[name].log_loss == pytest.approx(truth.value, abs=4 * truth.standard_error)
    assert f"* {name} " in str(choice)
    np.testing.assert_array_equal(choice(real), choice.calibration(real))


def test_a_map_that_overfits_is_not_chosen_although_it_fits_its_own_sample_best():
    real, fake = exact_scores(150, 150, seed=5)
    choice = fit_calibration(real, fake)
    loss = {name: log_of_fit(kind.fit(real, fake), real, fake) for name, kind in CALIBRATIONS.items()}
    assert min(loss, key=loss.get) == "isotonic"
    assert choice.name == "identity"


def test_losses_are_held_out():
    real, fake = exact_scores(400, 300, seed=6)
    choice = fit_calibration(3 * real, 3 * fake, candidates=["isotonic"], folds=4, seed=1)
    within = log_loss(choice(3 * real), choice(3 * fake)).value
    assert choice.rows[0].log_loss > within + 0.005
    again = fit_calibration(3 * real, 3 * fake, candidates=["isotonic"], folds=4, seed=1)
    assert again == choice
    assert fit_calibration(3 * real, 3 * fake, candidates=["isotonic"], folds=4, seed=2).rows != choice.rows


def test_candidates_that_cannot_be_fitted_say_why_and_the_rest_go_on():
    up = np.linspace(0.1, 5, 200)
    choice = fit_calibration(up, -up)
    rows = {row.name: row for row in choice.rows}
    assert rows["platt"].log_loss == np.inf
    assert rows["platt"].note.startswith("no slope fits")
    assert choice.name in ("shift", "isotonic", "identity")
    assert "no slope fits" in str(choice)
    with pytest.raises(InputError, match="no candidate can be fitted; platt: no slope fits"):
        fit_calibration(up, -up, candidates=["platt"])


def test_log_loss_is_that_of_scikit_learn_with_both_kinds_weighing_one_half():
    metrics = pytest.importorskip("sklearn.metrics")
    p = 1 / (1 + np.exp(-np.concatenate([REAL, FAKE])))
    labels = np.repeat([1, 0], [len(REAL), len(FAKE)])
    weights = np.repeat([0.5 / len(REAL), 0.5 / len(FAKE)], [len(REAL), len(FAKE)])
    assert log_loss(REAL, FAKE).value == pytest.approx(metrics.log_loss(labels, p, sample_weight=weights))
    divergence = obrs.Profile(FAKE).divergence("js")
    assert np.log(2) - log_loss(REAL, FAKE).value == pytest.approx(
        divergence, abs=4 * log_loss(REAL, FAKE).standard_error
    )


# What calibration changes under a budget


@pytest.mark.parametrize("budget", [1.2, 2.6, 10.0, 1e6])
def test_a_shift_changes_nothing_but_the_mean_ratio(budget):
    shift = Shift(3.7)
    rule, shifted = obrs.Budgeted.fit(FAKE, budget), obrs.Budgeted.fit(shift(FAKE), budget)
    np.testing.assert_allclose(shifted(shift(FAKE)), rule(FAKE), atol=1e-12)
    np.testing.assert_array_equal(obrs.select(shift(FAKE), 100), obrs.select(FAKE, 100))
    before, after = obrs.Profile(FAKE), obrs.Profile(shift(FAKE))
    assert after.divergence("kl", budget) == pytest.approx(before.divergence("kl", budget), abs=1e-12)
    assert after.log_mean_ratio == pytest.approx(before.log_mean_ratio + 3.7)


@each
def test_no_map_reorders_and_what_is_sure_to_be_kept_is_the_top(name):
    calibrated = FITTED[name](FAKE)
    order = np.argsort(FAKE)
    assert np.all(np.diff(calibrated[order]) >= 0)
    if name != "isotonic":  # whose steps tie
        np.testing.assert_array_equal(np.argsort(calibrated)[-200:], order[-200:])
    rule = obrs.Budgeted.fit(calibrated, 2.6)
    sure = rule(calibrated) == 0
    assert not sure.any() or FAKE[sure].min() > FAKE[~sure].max()


def test_a_steeper_map_changes_how_many_are_sure_to_be_kept():
    kept = [np.mean(obrs.Budgeted.fit(slope * FAKE, 2.6)(slope * FAKE) == 0) for slope in (0.5, 1.0, 3.0, 50.0)]
    assert np.all(np.diff(kept) > 0)
    assert kept[-1] == pytest.approx(1 / 2.6, abs=0.01), "in the limit the best 1 in 2.6"


# Bad input


@each
@pytest.mark.parametrize(
    ("real", "fake", "error", "message"),
    [
        ([], FAKE, InputError, "log_ratio_real is empty; scores of both real and fake samples are needed"),
        (REAL, [], InputError, "log_ratio_fake is empty"),
        (REAL, FAKE.reshape(2, -1), InputError, r"log_ratio_fake must have one axis, got shape \(2, 1000\)"),
        (REAL, 3.0, InputError, r"log_ratio_fake must have one axis, got shape \(\)"),
        (np.append(REAL, np.nan), FAKE, RatioError, "log_ratio_real has 1 NaN among 3001 values; check the critic"),
        (REAL, np.append(FAKE, np.inf), RatioError, r"log_ratio_fake has 1 \+inf among 2001 values"),
        (
            np.append(REAL, -np.inf),
            FAKE,
            RatioError,
            "has 1 -inf among 3001 values: real samples that the critic calls",
        ),
        (REAL, np.full(500, -np.inf), RatioError, "log_ratio_fake has no value above -inf among 500"),
        (["a", "b"], FAKE, InputTypeError, "log_ratio_real must be real numbers"),
        (None, FAKE, InputTypeError, "log_ratio_real must be"),
    ],
)
def test_scores_that_are_none_are_one_line(name, real, fake, error, message):
    for fit in (CALIBRATIONS[name].fit, fit_calibration, log_loss):
        with pytest.raises(error, match=message) as caught:
            fit(real, fake)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["shift", "platt"])
def test_scores_of_a_last_layer_with_one_output_are_taken(name):
    for fit in (CALIBRATIONS[name].fit, log_loss):
        assert fit(REAL[:, None], FAKE[:, None, None]) == fit(REAL, FAKE)


@pytest.mark.parametrize(("name", "needs"), [("temperature", 10), ("platt", 20), ("beta", 30), ("isotonic", 100)])
def test_too_few_scores_say_how_many_are_needed(name, needs):
    kind = CALIBRATIONS[name]
    message = (
        f"{kind.__name__}.fit needs at least {needs} held-out scores of each kind, got {needs - 1} real and 500 fake"
    )
    with pytest.raises(InputError, match=message):
        kind.fit(REAL[: needs - 1], FAKE[:500])
    kind.fit(REAL[:needs], FAKE[:needs])


def test_a_choice_among_too_few_scores_says_how_many_it_needs():
    message = "up to isotonic in 5 folds needs at least 125 held-out scores of each kind, got 2000 real and 124 fake"
    with pytest.raises(InputError, match=message):
        fit_calibration(REAL[:2000], FAKE[:124])
    fit_calibration(REAL[:125], FAKE[:125])
    fit_calibration(REAL[:38], FAKE[:38], candidates=["identity", "beta"])


def test_options_of_the_choice_that_make_no_sense_are_refused():
    with pytest.raises(UnknownNameError, match="unknown calibration 'plat'; did you mean 'platt'"):
        fit_calibration(REAL, FAKE, candidates=["identity", "plat"])
    with pytest.raises(InputError, match="candidates is empty; choose from identity, shift"):
        fit_calibration(REAL, FAKE, candidates=[])
    with pytest.raises(InputError, match="folds must be at least 2, got 1"):
        fit_calibration(REAL, FAKE, folds=1)
    with pytest.raises(InputError, match="folds must be a whole number"):
        fit_calibration(REAL, FAKE, folds=2.5)


@settings(deadline=None, max_examples=30)
@given(things(), things())
def test_whatever_is_thrown_at_a_calibration_is_answered_or_refused_in_one_line(x, y):
    for name, kind in CALIBRATIONS.items():
        answers(kind.fit, x, y)
        out = answers(FITTED[name], x)
        assert out is None or np.array_equal(np.isnan(values(out)), np.isnan(values(x)))
    answers(fit_calibration, x, y, candidates=["identity"], folds=2)


def test_fitting_inside_jit_says_so():
    jax = pytest.importorskip("jax")
    with pytest.raises(InputTypeError, match=r"must be known, not traced"):
        jax.jit(lambda x: Platt.fit(x, x) and x)(jax.numpy.zeros(300))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "must be a JSON object with a field 'calibration'"),
        ("not json", "must be a JSON object with a field 'calibration'"),
        ('{"calibration": "plat"}', "unknown calibration 'plat'; did you mean 'platt'"),
        ('{"calibration": []}', "unknown calibration"),
        ('{"calibration": "platt", "slope": 1}', "has the fields slope, intercept, got slope"),
        ('{"calibration": "shift", "offset": "a"}', "offset of a Shift must be a finite number, got 'a'"),
        ('{"calibration": "shift", "offset": NaN}', "must be a finite number, got nan"),
        ('{"calibration": "temperature", "slope": -1}', "must be a finite number of at least 0, got -1"),
        ('{"calibration": "beta", "a": 1, "b": -1, "c": 0}', "b of a Beta must be a finite number of at least 0"),
        ('{"calibration": "isotonic", "scores": [], "log_ratios": []}', "at least one of each"),
        ('{"calibration": "isotonic", "scores": [1, 0], "log_ratios": [0, 1]}', "must ascend"),
        ('{"calibration": "isotonic", "scores": [0, 1], "log_ratios": [1, 0]}', "never descend"),
        ('{"calibration": "isotonic", "scores": [0, 1], "log_ratios": [1]}', "2 scores need as many log_ratios, got 1"),
        ('{"calibration": "isotonic", "scores": 3, "log_ratios": [[1]]}', "has finite numbers"),
    ],
)
def test_saved_text_that_is_no_calibration_is_refused(text, message):
    with pytest.raises(ObrsError) as caught:
        from_json(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_calibrations_can_be_saved():
    with pytest.raises(InputTypeError, match="can be saved, got function"):
        to_json(lambda x: x)
