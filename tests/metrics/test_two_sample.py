"""Two-sample tests: their level, their power, and which of two is closer."""

import numpy as np
import pytest
import torch

from obrs.errors import InputError
from obrs.metrics import kernel_distance
from obrs.metrics.kernel_distance import kernel
from obrs.metrics.two_sample import closer_test, two_sample_test


def rows(n, seed, shift=0.0, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal((n, 3)) + shift


@pytest.mark.parametrize("name", ["energy", "rbf", "polynomial"])
def test_statistic_is_the_sum_over_pairs(name, monkeypatch):
    monkeypatch.setattr(kernel_distance, "_PAIRS", 100)  # many slices
    real, fake = rows(20, 0), rows(15, 1, shift=0.5)
    found = two_sample_test(real=real, fake=fake, kernel=name, bandwidth=2.0, permutations=19)
    x = np.concatenate([real, fake])
    signs = np.concatenate([np.full(20, 1 / 20), np.full(15, -1 / 15)])
    distance = np.linalg.norm(x[:, None] - x[None], axis=2)
    matrix = {"energy": -distance / 2, "rbf": np.exp(-(distance**2) / 8), "polynomial": (x @ x.T / 2 + 1) ** 3}[name]
    assert found.statistic == pytest.approx(signs @ matrix @ signs, rel=1e-8)  # distances from squares
    rng = np.random.default_rng(0)
    drawn = [rng.permutation(signs) for _ in range(19)]
    as_large = sum(s @ matrix @ s >= found.statistic * (1 - 1e-9) for s in drawn)
    assert found.p_value == (1 + as_large) / 20
    assert (found.n_real, found.n_fake, found.permutations) == (20, 15, 19)


@pytest.mark.parametrize("name", ["energy", "rbf"])
def test_level_and_power(name):
    same = [
        two_sample_test(real=rows(40, 2 * i), fake=rows(30, 2 * i + 1), kernel=name, permutations=39, seed=i).p_value
        for i in range(300)
    ]
    rejected = np.mean(np.array(same) <= 0.05)
    assert abs(rejected - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 300)
    other = [
        two_sample_test(real=rows(40, 2 * i), fake=rows(30, 2 * i + 1, scale=2.0), kernel=name, permutations=39).p_value
        for i in range(30)
    ]
    assert np.mean(np.array(other) <= 0.05) > 0.8


def test_torch_is_numpy():
    real, fake = rows(40, 0), rows(40, 1, shift=0.3)
    ours = two_sample_test(real=real, fake=fake, permutations=99)
    theirs = two_sample_test(real=torch.from_numpy(real), fake=torch.from_numpy(fake), permutations=99)
    assert theirs.p_value == ours.p_value
    assert theirs.statistic == pytest.approx(ours.statistic, rel=1e-9)


def test_equal_rows_are_not_different():
    assert two_sample_test(real=np.ones((5, 2)), fake=np.ones((4, 2)), permutations=19).p_value == 1.0


def test_difference_is_that_of_two_distances():
    real, first, second = rows(60, 0), rows(50, 1, shift=0.2), rows(40, 2, shift=0.5)
    weights = np.random.default_rng(0).random(50)
    found = closer_test(real=real, first=first, second=second, first_weights=weights, kernel="rbf")
    one, two = (
        kernel(real=real, fake=first, weights=weights, kernel="rbf"),
        kernel(real=real, fake=second, kernel="rbf"),
    )
    assert found.difference == pytest.approx(one.value - two.value, rel=1e-10)
    assert (found.n_real, found.n_second) == (60, 40)
    assert found.n_first == pytest.approx(one.n_fake)
    back = closer_test(real=real, first=second, second=first, second_weights=weights, kernel="rbf")
    assert back.difference == pytest.approx(-found.difference)
    assert back.p_value == pytest.approx(1 - found.p_value)


def test_interval_of_the_difference_covers():
    # the truth from the closed form of the Gaussian kernel between Gaussians
    def mean_kernel(shift, variance, dim=3):
        return (1 + variance) ** (-dim / 2) * np.exp(-dim * shift**2 / (2 * (1 + variance)))

    def distance(shift, scale):
        return mean_kernel(0, 2) + mean_kernel(0, 2 * scale**2) - 2 * mean_kernel(shift, 1 + scale**2)

    truth = distance(0.4, 1.0) - distance(0.0, 1.6)
    repeats, inside, p_values = 200, 0, []
    for i in range(repeats):
        found = closer_test(
            real=rows(100, 3 * i),
            first=rows(90, 3 * i + 1, shift=0.4),
            second=rows(80, 3 * i + 2, scale=1.6),
            kernel="rbf",
            bandwidth=1.0,
        )
        inside += found.low < truth < found.high
        p_values.append(found.p_value)
    assert abs(inside / repeats - 0.95) < 4 * np.sqrt(0.05 * 0.95 / repeats)
    assert (np.mean(p_values) < 0.5) == (truth < 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: two_sample_test(real=x, fake=x, permutations=0),
            "permutations must be a whole number of at least 1",
        ),
        (lambda x: two_sample_test(real=x, fake=x[:, :2]), "same dimension, got 3 and 2"),
        (lambda x: two_sample_test(real=x, fake=x * np.nan), "fake must be finite, 9 of 9"),
        (lambda x: closer_test(real=x, first=x * np.nan, second=x), "first must be finite, 9 of 9"),
        (
            lambda x: closer_test(real=x, first=x, second=x, confidence=2),
            "confidence must be a probability between 0 and 1",
        ),
        (lambda x: closer_test(real=x, first=x, second=x[:1]), "second must have at least 2 rows"),
        (lambda x: closer_test(real=x, first=x, second=x, first_weights=[1.0]), "first_weights must have shape"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call(rows(9, 0))
    assert "\n" not in str(caught.value)
