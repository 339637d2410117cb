"""Scores against known modes, and divergences on cells of known mass: by closed forms and by other routes."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from obrs.errors import InputError, UnknownNameError
from paper.scores import ESTIMATORS, grid_cells, histogram_divergence, mode_cells, mode_scores
from paper.toys import Mixture, grid25, two_moons

# --- Modes ------------------------------------------------------------------------------------------------------------

GRID = np.array([(i, j) for i in range(-2, 3) for j in range(-2, 3)], dtype=float)
WIDTH = 0.05
N = 40_000


def real(n=N, modes=GRID):
    rng = np.random.default_rng(0)
    return modes[rng.choice(len(modes), n)] + WIDTH * rng.standard_normal((n, modes.shape[1]))


def blurred(n):
    return real(n) + np.random.default_rng(1).normal(scale=0.1, size=(n, 2))


def scores_of(fake, modes=GRID, sigma=WIDTH, **options):
    return mode_scores(fake, np.asarray(modes, dtype=float), sigma=sigma, **options)


def test_the_target_has_the_scores_of_a_rayleigh_distance():
    x = real()
    for n_sigma in (1.0, 2.0, 4.0):
        expected = 1 - np.exp(-(n_sigma**2) / 2)
        error = np.sqrt(expected * (1 - expected) / N)
        assert abs(scores_of(x, n_sigma=n_sigma).precision - expected) < 4 * error
    assert scores_of(x)[1:] == (1.0, 25)


def test_samples_one_by_one_give_the_same_scores():
    x, good, found = blurred(300), 0, set()
    for point in x:
        distances = [np.hypot(*(point - mode)) for mode in GRID]
        if min(distances) <= 0.15:
            good += 1
            found.add(int(np.argmin(distances)))
    assert scores_of(x, n_sigma=3) == (good / 300, len(found) / 25, len(found))
    assert good / 300 < 0.8
    assert scores_of([[0.25, 0.0]], [[0.0, 0.0]], 0.125, n_sigma=2).precision == 1  # on the edge
    assert scores_of([[5.0, 5.0]]) == (0.0, 0.0, 0)


def test_jensen_shannon_is_that_of_scipy():
    p, q = np.random.default_rng(0).dirichlet(np.ones(9), 2)
    p[3] = 0
    assert ESTIMATORS["js"](p / p.sum(), 1e15 * q) == pytest.approx(jensenshannon(p, q) ** 2, rel=1e-12)


# --- Cells ------------------------------------------------------------------------------------------------------------

TARGET = grid25().standardised()
CELLS = mode_cells(TARGET.means, sigma=TARGET.sigma[0])
WIDE = Mixture(TARGET.means, 1.5 * TARGET.sigma)
each_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def divergence_of_histograms(p, q, name):
    parts = {"kl": [(1.0, p, q)], "js": [(0.5, p, (p + q) / 2), (0.5, q, (p + q) / 2)]}[name]
    return sum(w * np.sum(a[a > 0] * np.log(a[a > 0] / b[a > 0])) for w, a, b in parts)


def estimates(p, q, n, name):
    counts = np.random.default_rng(0).multinomial(n, q, size=2000)
    return np.array([ESTIMATORS[name](p, row) for row in counts])


def measured(fake, name, **options):
    return histogram_divergence(fake, CELLS, name, **options)


@pytest.mark.parametrize("kind", ["modes", "grid"])
def test_masses_of_cells_are_those_of_the_density(kind):
    n, density = 100_000, TARGET if kind == "modes" else two_moons()
    cells = CELLS if kind == "modes" else grid_cells(density.log_prob, low=-2, high=3, cells=25, min_mass=1e-4)
    counts = np.bincount(cells.of(density.sample(n, seed=1)), minlength=len(cells.masses))
    assert len(counts) == len(cells.masses) == 25 * 12 + 1 if kind == "modes" else len(counts) < 25 * 25
    assert cells.masses.sum() == pytest.approx(1, abs=1e-12)
    chi_squared, freedom = float(np.sum((counts - n * cells.masses) ** 2 / (n * cells.masses))), len(counts) - 1
    assert abs(chi_squared - freedom) < 4 * np.sqrt(2 * freedom)


@each_estimator
def test_estimates_have_no_bias_to_speak_of(name):
    plain_bias = {"kl": 300 / (2 * 2500), "js": 300 / (8 * 2500)}[name]
    found = estimates(CELLS.masses, CELLS.masses, 2500, name)
    # with 8 samples a cell the next order, a fiftieth of the plain histogram's bias, is left
    assert abs(found.mean()) < 0.02 * plain_bias + 4 * found.std() / np.sqrt(len(found)) < 0.04 * plain_bias
    assert found.std() == pytest.approx(plain_bias * np.sqrt(2 / 300), rel=0.2)  # a chi-squared, to leading order
    p = np.full(50, 1 / 50)
    q = p * np.exp(np.random.default_rng(3).normal(scale=0.7, size=50))
    q /= q.sum()
    found = estimates(p, q, 2500, name)
    assert abs(found.mean() - divergence_of_histograms(p, q, name)) < 4 * found.std() / np.sqrt(len(found)) + 2e-4


@each_estimator
def test_wider_modes_have_the_divergence_of_their_histogram_and_weights_bring_them_to_the_target(name):
    radii = np.sqrt(-2 * np.log1p(-np.linspace(0, 1, 4) * (1 - np.exp(-8))))  # of the rings, in sigma
    ring = np.diff(-np.expm1(-((radii / 1.5) ** 2) / 2))
    q = np.append(np.tile(np.repeat(ring / 4, 4), 25) / 25, np.exp(-8 / 1.5**2))
    expected = divergence_of_histograms(CELLS.masses, q, name)
    found, weighted = [], []
    for seed in range(20):
        x = WIDE.sample(5000, seed=seed)
        a = np.minimum(np.exp(TARGET.log_prob(x) - WIDE.log_prob(x) - 0.5), 1)
        found.append(measured(x[:2500], name))
        weighted.append(measured(x, name, weights=a))
    assert expected > 0.01
    assert abs(np.mean(found) - expected) < 4 * np.std(found) / np.sqrt(20)
    assert abs(np.mean(weighted)) < 0.1 * expected


@each_estimator
def test_equal_weights_are_none(name):
    x = TARGET.sample(500, seed=1)
    assert measured(x, name, weights=np.full(500, 0.3)) == pytest.approx(measured(x, name))


@pytest.mark.parametrize(
    ("call", "error", "line"),
    [
        (lambda: scores_of(np.empty((0, 2))), InputError, r"fake must have shape \(n, dim\) .*, got \(0, 2\)"),
        (lambda: scores_of([[np.nan, 0.0], [0.0, 0.0]]), InputError, "fake must be finite, 1 of 2 points are not"),
        (lambda: mode_cells(np.array([[0.0, 0], [1, 0]]), sigma=1), InputError, "modes must be 8 apart, two are 1"),
        (lambda: grid_cells(lambda x: 0 * x[:, 0] + 2, low=0, high=1), InputError, "mass in the square is 7.389"),
        (lambda: measured(np.ones((1, 2)), "jsd"), UnknownNameError, "did you mean 'js'"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, line):
    with pytest.raises(error, match=line) as caught:
        call()
    assert "\n" not in str(caught.value)
