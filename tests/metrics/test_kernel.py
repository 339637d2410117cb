"""Kernel distances: against torchmetrics and all pairs one by one, weighted, in parts, and their errors."""

import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torchmetrics.image.kid import KernelInceptionDistance

from obrs.metrics import kernel, kernel_curve, weightings


def pair(n=120, dim=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, dim)), 1.2 * rng.standard_normal((n, dim)) + 0.1


def digits():
    x, y = load_digits(return_X_y=True)
    return x[y % 2 == 0][:800] / 16, x[y % 2 == 1][:800] / 16


class Features(torch.nn.Module):
    def forward(self, x):
        return x.reshape(len(x), -1)


@pytest.mark.filterwarnings("ignore:Metric `Kernel Inception Distance`:UserWarning")  # it keeps all features
@pytest.mark.parametrize("make", [pair, digits, lambda: tuple(10 * x for x in pair(seed=1))])
def test_it_is_that_of_torchmetrics(make):
    real, fake = make()
    kid = KernelInceptionDistance(feature=Features(), subsets=1, subset_size=len(real)).set_dtype(torch.float64)
    kid.update(torch.from_numpy(real), real=True)
    kid.update(torch.from_numpy(fake), real=False)
    assert kernel(real=real, fake=fake).value == pytest.approx(float(kid.compute()[0]), rel=1e-6)


def test_all_pairs_one_by_one(monkeypatch):
    monkeypatch.setattr(sys.modules["obrs.metrics.kernel"], "_PAIRS", 70)  # many slices
    real, fake = pair(n=17)
    fake = fake[:12]
    w = np.random.default_rng(1).random(12)
    w /= w.sum()

    def k(x, y):
        return (x @ y / 5 + 1) ** 3

    expected = sum(k(x, y) for i, x in enumerate(real) for j, y in enumerate(real) if i != j) / (17 * 16)
    among = sum(w[i] * w[j] * k(x, y) for i, x in enumerate(fake) for j, y in enumerate(fake) if i != j)
    expected += among / (1 - (w**2).sum()) - 2 * sum(w[i] * k(x, y) / 17 for i, x in enumerate(fake) for y in real)
    value = kernel(real=real, fake=fake, weights=5 * w)
    assert value.value == pytest.approx(expected, rel=1e-10)
    curve = kernel_curve(real=real, fake=fake, weights=np.stack([np.ones(12), w]))
    plain = kernel(real=real, fake=fake)
    assert curve.value == pytest.approx([plain.value, expected], rel=1e-10)
    assert curve.standard_error == pytest.approx([plain.standard_error, value.standard_error], rel=1e-10)


def test_influence_is_the_derivative_by_the_weights():
    real, fake = (0.1 * x for x in pair(n=40))  # small features: the kernel is far from 0, its changes are small
    w = np.exp(np.random.default_rng(1).standard_normal(40))
    parts = kernel_curve(real=real, fake=fake, weights=w).parts[0, 40:]
    for i in (int(np.argmax(w)), int(np.argmin(w)), 7):
        ends = [kernel(real=real, fake=fake, weights=w * np.exp(step * np.eye(40)[i])).value for step in (1e-4, -1e-4)]
        assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(parts[i], rel=1e-5, abs=1e-12)


def simulate(shift, n=150, repeats=150, scale=0.5):
    """Values, errors, errors that take the weights for given, changes from budget 1 and their errors."""
    rows = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        real, fake = rng.standard_normal((n, 2)), rng.standard_normal((n, 2))
        fake[:, 0] += shift
        pool = weightings(0.1 * fake[:, 0] + 3 * (fake[:, 0] > 0.8) * (shift > 0), (1, 1.5, 2), ("obrs", "topk"))
        curve = kernel_curve(real=scale * real, fake=scale * fake, weights=pool)
        naive = kernel_curve(real=scale * real, fake=scale * fake, weights=pool.weights)
        changes = [curve.difference(i, 0) for i in range(1, 5)]
        both = np.array([(change.value, change.standard_error) for change in changes]).T
        rows.append((curve.value, curve.standard_error, naive.standard_error, *both))
    return (np.stack(part) for part in zip(*rows, strict=True))


def test_errors_are_those_of_repeated_experiments_and_need_the_part_of_the_constant():
    value, error, naive, change, change_error = simulate(shift=0.5)
    spread = 0.04 + 4 / np.sqrt(2 * len(value))
    assert np.all(np.abs(error.mean(0) / value.std(0, ddof=1) - 1) < spread)
    assert np.all(np.abs(change_error.mean(0) / change.std(0, ddof=1) - 1) < spread)
    assert naive[:, 2].mean() / value[:, 2].std(ddof=1) < 0.75
    inside = (np.abs(value - value.mean(0)) < 1.96 * error).mean(0)  # the values are unbiased: their mean is the truth
    assert np.all(inside > 0.95 - 4 * np.sqrt(0.05 * 0.95 / len(value)))


def test_errors_are_on_the_safe_side_where_nothing_differs():
    value, error, *_ = simulate(shift=0.0, repeats=80, scale=1.0)
    value, error = value[:, :3], error[:, :3]  # the largest ratios differ from the rest also here
    ratio = error.mean(0) / value.std(0, ddof=1)
    assert np.all(ratio > 1)  # by about the root of 2: the influence is nothing but noise then
    assert np.all(ratio < 1.9)
    assert np.all(np.abs(value.mean(0)) < 4 * value.std(0) / np.sqrt(len(value)))
