"""Scores against known modes, and divergences on cells of known mass: by closed forms and by other routes."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from obrs.errors import InputError, UnknownNameError
from paper.scores import ESTIMATORS, grid_cells, histogram_divergence, mode_cells, mode_scores
from paper.toys import Mixture, grid25, two_moons

TARGET = grid25().standardise()
SIGMA = TARGET.sigma[0]
CELLS = mode_cells(TARGET.means, sigma=SIGMA)
WIDE = Mixture(TARGET.means, 1.5 * TARGET.sigma)
each_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def test_the_target_has_the_scores_of_a_rayleigh_distance():
    n = 40_000
    x = TARGET.sample(n, seed=0)
    for n_sigma in (1.0, 2.0, 4.0):
        expected = 1 - np.exp(-(n_sigma**2) / 2)
        scores = mode_scores(x, TARGET.means, sigma=SIGMA, n_sigma=n_sigma)
        assert abs(scores.precision - expected) < 4 * np.sqrt(expected * (1 - expected) / n)
    assert scores[1:] == (1.0, 25)


def test_samples_one_by_one_give_the_same_scores():
    x, good, modes = Mixture(TARGET.means, 2 * TARGET.sigma).sample(300, seed=1), 0, set()
    for point in x:
        distances = [np.hypot(*(point - mode)) for mode in TARGET.means]
        if min(distances) <= 3 * SIGMA:
            good += 1
            modes.add(int(np.argmin(distances)))
    assert mode_scores(x, TARGET.means, sigma=SIGMA, n_sigma=3) == (good / 300, len(modes) / 25, len(modes))
    assert good / 300 < 0.8
    assert mode_scores([[0.25, 0.0]], np.zeros((1, 2)), sigma=0.125, n_sigma=2).precision == 1  # on the edge


def divergence_of_histograms(p, q, name):
    if name == "js":
        return jensenshannon(p, q) ** 2
    return np.sum(p[p > 0] * np.log(p[p > 0] / q[p > 0]))


def estimates(p, q, n, name):
    counts = np.random.default_rng(0).multinomial(n, q, size=2000)
    return np.array([ESTIMATORS[name](p, row) for row in counts])


@pytest.mark.parametrize("kind", ["modes", "grid"])
def test_masses_of_cells_are_those_of_the_density(kind):
    n, density = 100_000, TARGET if kind == "modes" else two_moons()
    cells = CELLS if kind == "modes" else grid_cells(density.log_prob, low=-2, high=3, cells=25, min_mass=1e-4)
    counts = np.bincount(cells.assign(density.sample(n, seed=1)), minlength=len(cells.masses))
    assert len(counts) == len(cells.masses) == 25 * 12 + 1 if kind == "modes" else len(counts) < 25 * 25
    assert cells.masses.sum() == pytest.approx(1, abs=1e-12)
    chi_squared, freedom = float(np.sum((counts - n * cells.masses) ** 2 / (n * cells.masses))), len(counts) - 1
    assert abs(chi_squared - freedom) < 4 * np.sqrt(2 * freedom)


@each_estimator
def test_estimates_have_no_bias_to_speak_of(name):
    plain_bias = {"kl": 300 / (2 * 2500), "js": 300 / (8 * 2500)}[name]
    values = estimates(CELLS.masses, CELLS.masses, 2500, name)
    # with 8 samples a cell the next order, a fiftieth of the plain histogram's bias, is left
    assert abs(values.mean()) < 0.02 * plain_bias + 4 * values.std() / np.sqrt(len(values)) < 0.04 * plain_bias
    assert values.std() == pytest.approx(plain_bias * np.sqrt(2 / 300), rel=0.2)  # a chi-squared, to leading order
    p = np.full(50, 1 / 50)
    q = p * np.exp(np.random.default_rng(3).normal(scale=0.7, size=50))
    q /= q.sum()
    values = estimates(p, q, 2500, name)
    assert abs(values.mean() - divergence_of_histograms(p, q, name)) < 4 * values.std() / np.sqrt(len(values)) + 2e-4


@each_estimator
def test_wider_modes_have_the_divergence_of_their_histogram_and_weights_bring_them_to_the_target(name):
    radii = np.sqrt(-2 * np.log1p(-np.linspace(0, 1, 4) * (1 - np.exp(-8))))  # of the rings, in sigma
    ring = np.diff(-np.expm1(-((radii / 1.5) ** 2) / 2))
    q = np.append(np.tile(np.repeat(ring / 4, 4), 25) / 25, np.exp(-8 / 1.5**2))
    expected = divergence_of_histograms(CELLS.masses, q, name)
    plain, weighted = [], []
    for seed in range(20):
        x = WIDE.sample(5000, seed=seed)
        a = np.minimum(np.exp(TARGET.log_prob(x) - WIDE.log_prob(x) - 0.5), 1)
        plain.append(histogram_divergence(x[:2500], CELLS, name))
        weighted.append(histogram_divergence(x, CELLS, name, a))
    assert expected > 0.01
    assert abs(np.mean(plain) - expected) < 4 * np.std(plain) / np.sqrt(20)
    assert abs(np.mean(weighted)) < 0.1 * expected
    assert histogram_divergence(x, CELLS, name, np.full(5000, 0.3)) == pytest.approx(
        histogram_divergence(x, CELLS, name)
    )


@pytest.mark.parametrize(
    ("call", "error", "line"),
    [
        (lambda: mode_scores([[np.nan, 0.0]], TARGET.means, sigma=1), InputError, "fake must be finite, 1 of 1 points"),
        (lambda: mode_cells(np.array([[0.0, 0], [1, 0]]), sigma=1), InputError, "modes must be 8 apart, two are 1"),
        (lambda: grid_cells(lambda x: 0 * x[:, 0] + 2, low=0, high=1), InputError, "mass in the square is 7.389"),
        (lambda: histogram_divergence(np.ones((1, 2)), CELLS, "jsd"), UnknownNameError, "did you mean 'js'"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, line):
    with pytest.raises(error, match=line) as caught:
        call()
    assert "\n" not in str(caught.value)
