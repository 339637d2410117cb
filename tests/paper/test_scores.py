"""Scores against known modes, and divergences on cells of known mass: by closed forms and by other routes."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from obrs.errors import InputError, UnknownNameError
from paper.cells import ESTIMATORS, grid_cells, histogram_divergence, mode_cells
from paper.modes import MODE_RULES, mode_scores
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
    return mode_scores(fake=fake, modes=modes, sigma=sigma, **options)


def test_the_target_has_the_scores_of_a_rayleigh_distance():
    x = real()
    for n_sigma in (1.0, 2.0, 4.0):
        expected = 1 - np.exp(-(n_sigma**2) / 2)
        error = np.sqrt(expected * (1 - expected) / N)
        assert abs(scores_of(x, n_sigma=n_sigma).precision - expected) < 4 * error
    scores = scores_of(x)
    truncated = WIDTH * np.sqrt(1 - 8 * np.exp(-8) / (1 - np.exp(-8)))  # E[d²/2 | d <= 4 sigma] = sigma² times this
    assert (scores.modes, scores.recall) == (25, 1.0)
    assert abs(scores.within_mode_std - truncated) < 4 * WIDTH / np.sqrt(4 * N)
    assert scores.jsd_assigned < 24 / (8 * N) + 4 * np.sqrt(2 * 24) / (8 * N)  # chi-squared with 24 degrees over 8n
    assert scores.counts.sum() == round(scores.precision * N)


@pytest.mark.parametrize("mode_weights", [None, np.arange(1.0, 26.0)])
def test_samples_one_by_one_give_the_same_counts_and_scipy_the_same_divergences(mode_weights):
    x, counts = blurred(300), np.zeros(25)
    for point in x:
        distances = [np.hypot(*(point - mode)) for mode in GRID]
        if min(distances) <= 0.15:
            counts[int(np.argmin(distances))] += 1
    scores = scores_of(x, n_sigma=3, mode_weights=mode_weights)
    assert scores.counts.tolist() == counts.tolist()
    assert scores.precision == counts.sum() / 300 < 0.8
    target = np.ones(25) if mode_weights is None else mode_weights
    everything = np.append(counts, 300 - counts.sum())
    assert scores.jsd == pytest.approx(jensenshannon(everything, np.append(target, 0)) ** 2, rel=1e-12)
    assert scores.jsd_assigned == pytest.approx(jensenshannon(counts, target) ** 2, rel=1e-12)


def test_rules_widths_and_edges_are_as_they_are_said():
    x, modes = [[0.0, 0.0], [0.7, 0.0]], [[0, 0], [1, 0], [9, 9]]
    assert {rule: scores_of(x, modes, mode_rule=rule).modes for rule in MODE_RULES} == {"high_quality": 1, "nearest": 2}
    assert scores_of([[0.25, 0.0]], [[0.0, 0.0]], 0.125, n_sigma=2).precision == 1  # on the edge
    modes, x = [[0.0, 0.0], [1.0, 0.0]], [[0.3, 0.0], [0.7, 0.0]]
    assert scores_of(x, modes, [0.1, 0.01]).counts.tolist() == [1, 0]
    assert scores_of(x, modes, torch.tensor([0.1, 0.1])).counts.tolist() == [1, 1]
    nothing = scores_of([[5.0, 5.0]])
    assert (nothing.precision, nothing.recall, nothing.jsd) == (0.0, 0.0, pytest.approx(np.log(2)))
    assert np.isnan(nothing.jsd_assigned)


def test_weights_count_like_repetitions_and_so_do_counts():
    x, times = blurred(200), np.random.default_rng(2).integers(0, 4, 200)
    repeated = scores_of(np.repeat(x, times, axis=0))
    for weighted in (scores_of(x, weights=times), scores_of(x, counts=times)):
        assert weighted.counts.tolist() == repeated.counts.tolist()
        for name in ("precision", "modes", "jsd", "jsd_assigned"):
            assert getattr(weighted, name) == pytest.approx(getattr(repeated, name), rel=1e-12)
    assert weighted.within_mode_std == pytest.approx(repeated.within_mode_std, rel=1e-12)
    assert weighted.n_fake == repeated.n_fake == times.sum()


def test_spread_is_about_the_samples_own_mean_and_unbiased_with_weights():
    shifted = np.full((50, 2), 0.1)  # one point again and again, two sigma off
    assert scores_of(shifted, [[0.0, 0.0]]).within_mode_std == pytest.approx(0.0, abs=1e-12)
    rng, weights = np.random.default_rng(0), np.array([1.0, 1.0, 5.0])
    found = [
        scores_of(rng.standard_normal((3, 2)), [[0, 0]], 9, weights=weights).within_mode_std ** 2 for _ in range(2000)
    ]
    assert abs(np.mean(found) - 1) < 4 * np.std(found) / np.sqrt(2000)


# --- Cells ------------------------------------------------------------------------------------------------------------

TARGET = grid25().standardised()
CELLS = mode_cells(TARGET.means, sigma=TARGET.sigma)
WIDE = Mixture(TARGET.means, 1.5 * TARGET.sigma)
each_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def divergence_of_histograms(p, q, name):
    parts = {"kl": [(1.0, p, q)], "js": [(0.5, p, (p + q) / 2), (0.5, q, (p + q) / 2)]}[name]
    return sum(w * np.sum(a[a > 0] * np.log(a[a > 0] / b[a > 0])) for w, a, b in parts)


def estimates(p, q, n, name):
    counts = np.random.default_rng(0).multinomial(n, q, size=2000)
    return np.array([ESTIMATORS[name](p, row) for row in counts])


def measured(fake, name, **options):
    return histogram_divergence(fake=fake, cells=CELLS, divergence=name, **options)


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
        found.append(measured(x[:2500], name).value)
        weighted.append(measured(x, name, weights=a).value)
    assert expected > 0.01
    assert abs(np.mean(found) - expected) < 4 * np.std(found) / np.sqrt(20)
    assert abs(np.mean(weighted)) < 0.1 * expected


@each_estimator
def test_counts_are_repeats_and_equal_weights_are_none(name):
    x, times = TARGET.sample(500, seed=1), np.random.default_rng(1).integers(0, 4, 500)
    repeated, counted = measured(np.repeat(x, times, axis=0), name), measured(x, name, counts=times)
    assert (counted.value, counted.n_fake) == (pytest.approx(repeated.value), times.sum())
    plain, equal = measured(x, name), measured(x, name, weights=np.full(500, 0.3))
    assert (equal.value, equal.n_fake, equal.cells) == (pytest.approx(plain.value), 500, 301)


@pytest.mark.parametrize(
    ("call", "error", "line"),
    [
        (lambda: scores_of(np.empty((0, 2))), InputError, r"fake must have shape \(n, dim\) .*, got \(0, 2\)"),
        (lambda: scores_of([[np.nan, 0.0], [0.0, 0.0]]), InputError, "fake must be finite, 1 of 2 points are not"),
        (lambda: scores_of([[0.0, 0.0]], sigma=0), InputError, "sigma must be a finite number above 0, got 0"),
        (lambda: scores_of([[0.0, 0.0]], weights=[0.0]), InputError, "weights must be finite and at least 0, and not"),
        (lambda: scores_of([[0.0, 0.0]], mode_rule="high-quality"), UnknownNameError, "did you mean 'high_quality'?"),
        (lambda: mode_cells([[0.0]], sigma=1), InputError, "modes must have two coordinates, got 1; use grid_cells"),
        (lambda: mode_cells([[0.0, 0], [1, 0]], sigma=1), InputError, "modes must be 8 apart, two are 1; lower n_sigm"),
        (lambda: grid_cells(TARGET.log_prob, low=1, high=1), InputError, "low must be a number below high"),
        (lambda: grid_cells(lambda x: 0 * x[:, 0] + 2, low=0, high=1), InputError, "mass in the square is 7.389"),
        (lambda: measured(np.ones((1, 2)), "jsd"), UnknownNameError, "did you mean 'js'"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, line):
    with pytest.raises(error, match=line) as caught:
        call()
    assert "\n" not in str(caught.value)
