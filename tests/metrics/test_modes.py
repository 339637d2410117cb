"""Precision, recall, spread and balance against known modes."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from obrs.errors import InputError, InputTypeError, UnknownNameError
from obrs.metrics.modes import MODE_RULES, mode_scores

GRID = np.array([(i, j) for i in range(-2, 3) for j in range(-2, 3)], dtype=float)
SIGMA = 0.05
N = 40_000


def real(n=N, seed=0, modes=GRID, weights=None):
    rng = np.random.default_rng(seed)
    return modes[rng.choice(len(modes), n, p=weights)] + SIGMA * rng.standard_normal((n, modes.shape[1]))


@pytest.mark.parametrize("n_sigma", [1.0, 2.0, 3.0, 4.0])
def test_precision_of_the_target_is_that_of_a_rayleigh_distance(n_sigma):
    expected = 1 - np.exp(-(n_sigma**2) / 2)
    error = np.sqrt(expected * (1 - expected) / N)
    assert abs(mode_scores(fake=real(), modes=GRID, sigma=SIGMA, n_sigma=n_sigma).precision - expected) < 4 * error


def test_target_recovers_every_mode_with_its_own_spread_and_balance():
    scores = mode_scores(fake=real(), modes=GRID, sigma=SIGMA)
    truncated = SIGMA * np.sqrt(1 - 8 * np.exp(-8) / (1 - np.exp(-8)))  # E[d²/2 | d <= 4 sigma] = sigma² times this
    assert (scores.modes, scores.recall) == (25, 1.0)
    assert abs(scores.within_mode_std - truncated) < 4 * SIGMA / np.sqrt(4 * N)
    assert scores.jsd_assigned < 24 / (8 * N) + 4 * np.sqrt(2 * 24) / (8 * N)  # chi-squared with 24 degrees over 8n
    assert scores.counts.sum() == round(scores.precision * N)


def test_samples_one_by_one_give_the_same_scores():
    x = real(300) + np.random.default_rng(1).normal(scale=0.1, size=(300, 2))
    scores = mode_scores(fake=x, modes=GRID, sigma=SIGMA, n_sigma=3)
    counts = np.zeros(25)
    for point in x:
        distances = [np.hypot(*(point - mode)) for mode in GRID]
        if min(distances) <= 0.15:
            counts[int(np.argmin(distances))] += 1
    assert scores.counts.tolist() == counts.tolist()
    assert scores.precision == counts.sum() / 300


def test_dropped_modes_are_missed_by_recall_and_by_the_divergence_alone():
    scores = mode_scores(fake=real(modes=GRID[:20]), modes=GRID, sigma=SIGMA)
    q = np.append(np.full(20, 1 / 20), np.zeros(5))
    assert scores.recall == 20 / 25
    assert scores.precision > 0.999
    assert scores.jsd_assigned == pytest.approx(jensenshannon(q, np.full(25, 1 / 25)) ** 2, abs=4 * np.sqrt(25) / N)


@pytest.mark.parametrize("mode_weights", [None, np.arange(1.0, 26.0)])
def test_divergences_are_those_of_scipy(mode_weights):
    x = real(500) + np.random.default_rng(1).normal(scale=0.1, size=(500, 2))
    scores = mode_scores(fake=x, modes=GRID, sigma=SIGMA, mode_weights=mode_weights)
    target = np.ones(25) if mode_weights is None else mode_weights
    with_unassigned = np.append(scores.counts, 500 - scores.counts.sum())
    assert with_unassigned[-1] > 50
    assert scores.jsd == pytest.approx(jensenshannon(with_unassigned, np.append(target, 0)) ** 2, rel=1e-12)
    assert scores.jsd_assigned == pytest.approx(jensenshannon(scores.counts, target) ** 2, rel=1e-12)


def test_a_mode_that_is_only_near_something_counts_by_the_nearest_rule_alone():
    x = [[0.0, 0.0], [0.7, 0.0]]
    rules = {
        rule: mode_scores(fake=x, modes=[[0, 0], [1, 0], [9, 9]], sigma=SIGMA, mode_rule=rule).modes
        for rule in MODE_RULES
    }
    assert rules == {"high_quality": 1, "nearest": 2}


def test_a_sample_on_the_edge_is_of_high_quality():
    assert mode_scores(fake=[[0.25, 0.0]], modes=[[0.0, 0.0]], sigma=0.125, n_sigma=2).precision == 1


def test_each_mode_may_have_its_own_width():
    modes, x = [[0.0, 0.0], [1.0, 0.0]], [[0.3, 0.0], [0.7, 0.0]]
    assert mode_scores(fake=x, modes=modes, sigma=[0.1, 0.01]).counts.tolist() == [1, 0]
    assert mode_scores(fake=x, modes=modes, sigma=torch.tensor([0.1, 0.1])).counts.tolist() == [1, 1]


def test_weights_count_like_repetitions():
    x = real(200) + np.random.default_rng(1).normal(scale=0.1, size=(200, 2))
    times = np.random.default_rng(2).integers(0, 4, 200)
    weighted = mode_scores(fake=x, modes=GRID, sigma=SIGMA, weights=times)
    repeated = mode_scores(fake=np.repeat(x, times, axis=0), modes=GRID, sigma=SIGMA)
    assert weighted.counts.tolist() == repeated.counts.tolist()
    for name in ("precision", "modes", "jsd", "jsd_assigned"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name), rel=1e-12)


def test_spread_is_measured_about_the_samples_own_mean():
    shifted = np.full((50, 2), 0.1)  # one point again and again, two sigma off
    assert mode_scores(fake=shifted, modes=[[0.0, 0.0]], sigma=SIGMA).within_mode_std == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(mode_scores(fake=[[0.0, 0.0], [1.0, 1.0]], modes=[[0, 0], [1, 1]], sigma=SIGMA).within_mode_std)


def test_weighted_spread_is_unbiased():
    rng = np.random.default_rng(0)
    weights = np.array([1.0, 1.0, 5.0])
    variances = [
        mode_scores(fake=rng.standard_normal((3, 2)), modes=[[0, 0]], sigma=9, weights=weights).within_mode_std ** 2
        for _ in range(4000)
    ]
    assert abs(np.mean(variances) - 1) < 4 * np.std(variances) / np.sqrt(4000)


def test_nothing_of_high_quality_has_no_balance_to_speak_of():
    scores = mode_scores(fake=[[5.0, 5.0]], modes=GRID, sigma=SIGMA)
    assert (scores.precision, scores.recall) == (0.0, 0.0)
    assert scores.jsd == pytest.approx(np.log(2))
    assert np.isnan(scores.jsd_assigned)


def test_torch_and_numpy_agree_in_three_dimensions():
    modes = np.eye(3)
    x = real(1000, modes=modes)
    assert mode_scores(fake=torch.tensor(x), modes=torch.tensor(modes), sigma=SIGMA) == mode_scores(
        fake=x, modes=modes, sigma=SIGMA
    )


def test_blocks_do_not_change_the_scores(monkeypatch):
    whole = mode_scores(fake=real(1000), modes=GRID, sigma=SIGMA)
    monkeypatch.setattr("obrs.metrics.modes._BLOCK", 350)
    assert mode_scores(fake=real(1000), modes=GRID, sigma=SIGMA) == whole


@pytest.mark.parametrize(
    ("change", "error", "line"),
    [
        (
            {"fake": np.empty((0, 2))},
            InputError,
            r"fake must have shape \(n, dim\) with at least one of each, got \(0, 2\)",
        ),
        ({"fake": np.zeros(3)}, InputError, r"fake must have shape \(n, dim\).*got \(3,\)"),
        (
            {"fake": [[np.nan, 0.0], [0.0, 0.0]]},
            InputError,
            "fake must be finite, 1 of 2 points are not; drop them first",
        ),
        ({"fake": [["a", "b"]]}, InputTypeError, "fake must be real numbers"),
        ({"modes": np.zeros((4, 3))}, InputError, "fake and modes must have as many coordinates each, got 2 and 3"),
        ({"sigma": 0}, InputError, "sigma must be a finite number above 0, got 0"),
        (
            {"sigma": [0.1, 0.1]},
            InputError,
            "sigma must be one number above 0, or one such number for each of 25 modes",
        ),
        (
            {"sigma": np.zeros(25)},
            InputError,
            "sigma must be one number above 0, or one such number for each of 25 modes",
        ),
        ({"n_sigma": float("nan")}, InputError, "n_sigma must be a finite number above 0, got nan"),
        ({"weights": [1.0]}, InputError, r"weights must have shape \(2,\), got \(1,\)"),
        ({"weights": [0.0, 0.0]}, InputError, "weights must be finite and at least 0, and not all 0"),
        ({"weights": [np.nan, 1.0]}, InputError, "weights must be finite and at least 0, and not all 0"),
        ({"mode_rule": "high-quality"}, UnknownNameError, "unknown mode rule .*; did you mean 'high_quality'?"),
        ({"mode_rule": "x"}, UnknownNameError, "there are: high_quality, nearest"),
    ],
)
def test_bad_input_is_refused_in_one_line(change, error, line):
    arguments = {"fake": np.zeros((2, 2)), "modes": GRID, "sigma": SIGMA} | change
    with pytest.raises(error, match=line) as caught:
        mode_scores(**arguments)
    assert "\n" not in str(caught.value)


def test_counts_are_repeats_and_the_result_carries_its_size():
    x, times = real(500), np.random.default_rng(1).integers(0, 4, 500)
    counted = mode_scores(fake=x, modes=GRID, sigma=SIGMA, counts=times)
    repeated = mode_scores(fake=np.repeat(x, times, axis=0), modes=GRID, sigma=SIGMA)
    assert counted.within_mode_std == pytest.approx(repeated.within_mode_std, rel=1e-12)
    assert (counted.precision, counted.jsd) == pytest.approx((repeated.precision, repeated.jsd))
    assert counted.n_fake == repeated.n_fake == times.sum()
    assert mode_scores(fake=x, modes=GRID, sigma=SIGMA, weights=1.0 * (np.arange(500) < 200)).n_fake == 200
    with pytest.raises(InputError, match="weights and counts cannot both be given"):
        mode_scores(fake=x, modes=GRID, sigma=SIGMA, counts=times, weights=times)
