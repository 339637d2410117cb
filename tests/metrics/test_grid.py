"""Measured divergences against cells of known mass."""

import numpy as np
import pytest
from scipy.stats import poisson

from obrs.data.mixtures import Mixture, grid25, two_moons
from obrs.errors import InputError, UnknownNameError
from obrs.metrics.grid import ESTIMATORS, Cells, grid_cells, histogram_divergence, mode_cells

TARGET = grid25().standardised()
SIGMA = float(TARGET.sigma[0])
CELLS = mode_cells(TARGET.means, sigma=TARGET.sigma)


def divergence_of_histograms(p, q, name):
    parts = {"kl": [(1.0, p, q)], "js": [(0.5, p, (p + q) / 2), (0.5, q, (p + q) / 2)]}[name]
    return sum(w * np.sum(a[a > 0] * np.log(a[a > 0] / b[a > 0])) for w, a, b in parts)


def estimates(p, q, n, name, repetitions=2000):
    counts = np.random.default_rng(0).multinomial(n, q, size=repetitions)
    return np.array([ESTIMATORS[name](p, row) for row in counts])


def test_masses_of_mode_cells_are_those_of_the_mixture():
    n = 200_000
    counts = np.bincount(CELLS.of(TARGET.sample(n, seed=1)), minlength=len(CELLS.masses))
    assert len(counts) == 25 * 12 + 1
    assert CELLS.masses.sum() == pytest.approx(1, abs=1e-12)
    chi_squared = float(np.sum((counts - n * CELLS.masses) ** 2 / (n * CELLS.masses)))
    assert abs(chi_squared - 300) < 4 * np.sqrt(2 * 300)


def test_masses_of_a_grid_are_those_of_the_density():
    n, moons = 200_000, two_moons()
    cells = grid_cells(moons.log_prob, low=-2, high=3, cells=25, min_mass=1e-4)
    counts = np.bincount(cells.of(moons.sample(n, seed=1)), minlength=len(cells.masses))
    assert len(counts) == len(cells.masses) < 25 * 25
    chi_squared = float(np.sum((counts - n * cells.masses) ** 2 / (n * cells.masses)))
    assert abs(chi_squared - (len(counts) - 1)) < 4 * np.sqrt(2 * len(counts))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_target_itself_has_a_mean_of_nearly_nothing(name):
    plain_bias = {"kl": 300 / (2 * 2500), "js": 300 / (8 * 2500)}[name]
    found = estimates(CELLS.masses, CELLS.masses, 2500, name)
    # with 8 samples a cell the next order, a fiftieth of the plain histogram's bias, is left
    assert abs(found.mean()) < 0.02 * plain_bias + 4 * found.std() / np.sqrt(len(found)) < 0.04 * plain_bias
    assert found.std() == pytest.approx(plain_bias * np.sqrt(2 / 300), rel=0.2)  # a chi-squared, to leading order


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_known_distortion_is_measured_without_bias(name):
    rng = np.random.default_rng(3)
    p = np.full(50, 1 / 50)
    q = p * np.exp(rng.normal(scale=0.7, size=50))
    q /= q.sum()
    found = estimates(p, q, 2500, name)
    assert abs(found.mean() - divergence_of_histograms(p, q, name)) < 4 * found.std() / np.sqrt(len(found)) + 2e-4


def test_half_a_sample_is_the_smoothing_without_a_leading_bias():
    for mean in (8.0, 20.0, 80.0):
        counts = np.arange(int(mean + 20 * np.sqrt(mean)))
        bias = float(np.sum(poisson.pmf(counts, mean) * np.log(counts + 0.5))) - np.log(mean)
        assert abs(bias) < 0.1 / mean**2


@pytest.mark.parametrize("name", ESTIMATORS)
def test_wider_modes_have_the_divergence_of_their_histogram(name):
    wide = Mixture(TARGET.means, 1.5 * TARGET.sigma)
    radii = np.sqrt(-2 * np.log1p(-np.linspace(0, 1, 4) * (1 - np.exp(-8))))  # of the rings, in sigma
    ring = np.diff(-np.expm1(-((radii / 1.5) ** 2) / 2))
    q = np.append(np.tile(np.repeat(ring / 4, 4), 25) / 25, np.exp(-8 / 1.5**2))
    expected = divergence_of_histograms(CELLS.masses, q, name)
    found = [
        histogram_divergence(fake=wide.sample(2500, seed=seed), cells=CELLS, divergence=name).value
        for seed in range(20)
    ]
    assert expected > 0.01
    assert abs(np.mean(found) - expected) < 4 * np.std(found) / np.sqrt(20)


def test_js_of_samples_elsewhere_is_log_2():
    n = 2500
    assert histogram_divergence(fake=np.full((n, 2), 50.0), cells=CELLS, divergence="js").value == pytest.approx(
        np.log(2), abs=0.05
    )
    assert histogram_divergence(fake=np.full((n, 2), 50.0), cells=CELLS).value > np.log(n / 300)


def test_cells_may_be_the_users_own():
    halves = Cells(np.array([0.5, 0.5]), lambda x: (x[:, 0] > 0).astype(int))
    x = np.array([[-1.0]] * 25 + [[1.0]] * 75)
    assert histogram_divergence(fake=x, cells=halves).value == pytest.approx(np.log(0.5) - np.log(0.255 * 0.755) / 2)


def test_each_point_is_in_the_cell_that_holds_it():
    cells = grid_cells(Mixture([[0.0, 0.0]], 0.5).log_prob, low=-1, high=1, cells=2)
    assert cells.of(np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5], [-1.1, 0], [0, 1]])).tolist() == [
        0,
        1,
        2,
        3,
        4,
        4,
    ]
    quarter = (0.9545 / 2) ** 2  # two sigma to one side
    assert cells.masses == pytest.approx([quarter] * 4 + [1 - 4 * quarter], abs=1e-3)


@pytest.mark.parametrize(
    ("call", "error", "line"),
    [
        (lambda: mode_cells([[0.0]], sigma=1), InputError, "modes must have two coordinates, got 1; use grid_cells"),
        (
            lambda: mode_cells([[0.0, 0], [1, 0]], sigma=1),
            InputError,
            "modes must be 8 apart, two are 1; lower n_sigma",
        ),
        (lambda: mode_cells([[0.0, 0.0]], sigma=-1), InputError, "sigma must be a finite number above 0, got -1"),
        (
            lambda: mode_cells([[0.0, 0]], sigma=1, n_sigma=0),
            InputError,
            "n_sigma must be a finite number above 0, got 0",
        ),
        (lambda: mode_cells([[0.0, 0.0]], sigma=1, rings=0), InputError, "rings must be a whole number"),
        (lambda: mode_cells([[0.0, 0.0]], sigma=1, weights=[1, 2]), InputError, "weights must have shape"),
        (lambda: grid_cells(TARGET.log_prob, low=1, high=1), InputError, "low must be a number below high"),
        (lambda: grid_cells(lambda x: 0 * x[:, 0] + 2, low=0, high=1), InputError, "mass in the square is 7.389"),
        (
            lambda: histogram_divergence(fake=np.empty((0, 2)), cells=CELLS).value,
            InputError,
            r"fake must have shape \(n, dim\)",
        ),
        (
            lambda: histogram_divergence(fake=np.ones((1, 2)), cells=CELLS, divergence="jsd").value,
            UnknownNameError,
            "did you mean 'js'",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, line):
    with pytest.raises(error, match=line) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_counts_are_repeats_and_equal_weights_are_none(name):
    x, times = TARGET.sample(500, seed=1), np.random.default_rng(1).integers(0, 4, 500)
    repeated = histogram_divergence(fake=np.repeat(x, times, axis=0), cells=CELLS, divergence=name)
    counted = histogram_divergence(fake=x, cells=CELLS, divergence=name, counts=times)
    assert (counted.value, counted.n_fake) == (pytest.approx(repeated.value), times.sum())
    plain = histogram_divergence(fake=x, cells=CELLS, divergence=name)
    equal = histogram_divergence(fake=x, cells=CELLS, divergence=name, weights=np.full(500, 0.3))
    assert (equal.value, equal.n_fake, equal.cells) == (pytest.approx(plain.value), 500, 301)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_weights_bring_samples_of_a_wide_model_to_the_target(name):
    wide = Mixture(TARGET.means, 1.5 * TARGET.sigma)
    found = []
    for seed in range(20):
        x = wide.sample(5000, seed=seed)
        a = np.minimum(np.exp(TARGET.log_prob(x) - wide.log_prob(x) - 0.5), 1)
        found.append(histogram_divergence(fake=x, cells=CELLS, divergence=name, weights=a).value)
    left = histogram_divergence(fake=wide.sample(5000, seed=0), cells=CELLS, divergence=name).value
    assert abs(np.mean(found)) < 0.1 * left
