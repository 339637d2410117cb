"""Kernel distances: against torchmetrics and all pairs one by one, weighted, in parts, and their errors."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torchmetrics.image.kid import KernelInceptionDistance

from obrs import Budgeted
from obrs.errors import InputError
from obrs.metrics import kernel_distance
from obrs.metrics.kernel_distance import kernel, kernel_curve


def pair(n=120, dim=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, dim)), 1.2 * rng.standard_normal((n, dim)) + 0.1


def digits():
    x, y = load_digits(return_X_y=True)
    return x[y % 2 == 0][:800] / 16, x[y % 2 == 1][:800] / 16


class Given(torch.nn.Module):
    def forward(self, x):
        return x.reshape(len(x), -1)


@pytest.mark.filterwarnings("ignore:Metric `Kernel Inception Distance`:UserWarning")  # it keeps all features
@pytest.mark.parametrize("make", [pair, digits, lambda: tuple(10 * x for x in pair(seed=1))])
def test_it_is_that_of_torchmetrics(make):
    real, fake = make()
    kid = KernelInceptionDistance(feature=Given(), subsets=1, subset_size=len(real)).set_dtype(torch.float64)
    kid.update(torch.from_numpy(real), real=True)
    kid.update(torch.from_numpy(fake), real=False)
    assert kernel(real=real, fake=fake).value == pytest.approx(float(kid.compute()[0]), rel=1e-6)


def value(x, y, scale):
    """The kernel of one pair, as the book has it."""
    return (x @ y / scale + 1) ** 3


def test_all_pairs_one_by_one(monkeypatch):
    monkeypatch.setattr(kernel_distance, "_PAIRS", 70)  # many slices
    real, fake = pair(n=17)
    fake = fake[:12]
    w = np.random.default_rng(1).random(12)
    w /= w.sum()
    scale = 1.7
    expected = sum(value(x, y, scale) for i, x in enumerate(real) for j, y in enumerate(real) if i != j) / (17 * 16)
    among = sum(w[i] * w[j] * value(x, y, scale) for i, x in enumerate(fake) for j, y in enumerate(fake) if i != j)
    between = sum(w[i] * value(x, y, scale) / 17 for i, x in enumerate(fake) for y in real)
    expected += among / (1 - (w**2).sum()) - 2 * between
    found = kernel(real=real, fake=fake, weights=5 * w, bandwidth=scale)
    assert found.value == pytest.approx(expected, rel=1e-10)
    curve = kernel_curve(real=real, fake=fake, weights=np.stack([np.ones(12), w]), bandwidth=scale)
    assert curve.value[1] == pytest.approx(expected, rel=1e-10)
    assert curve.standard_error[1] == pytest.approx(found.standard_error, rel=1e-10)
    plain = kernel(real=real, fake=fake, bandwidth=scale)
    assert (plain.value, plain.n_fake) == (pytest.approx(curve.value[0], rel=1e-10), 12)


def test_equal_weights_are_none_counts_are_repeats_and_torch_is_numpy():
    real, fake = pair()
    plain = kernel(real=real, fake=fake)
    assert kernel(real=real, fake=fake, weights=np.full(120, 0.3)).value == pytest.approx(plain.value)
    tensors = kernel(real=torch.from_numpy(real), fake=torch.from_numpy(fake))
    assert tensors.value == pytest.approx(plain.value, rel=1e-9)
    single = kernel(real=real.astype(np.float32), fake=fake.astype(np.float32))
    assert single.value == pytest.approx(plain.value, abs=1e-3 * plain.standard_error)
    counts = np.full(120, 2)
    doubled = kernel(real=real, fake=np.repeat(fake, 2, axis=0))
    counted = kernel(real=real, fake=fake, counts=counts)
    assert counted.value == pytest.approx(doubled.value, rel=1e-9)
    assert (counted.n_fake, plain.n_fake, plain.n_real, plain.dimension) == (240, 120, 120, 5)
    assert abs(counted.value - plain.value) > 1e-4  # copies are near each other


def test_a_weighted_pool_is_the_mean_of_what_it_keeps():
    rng = np.random.default_rng(0)
    real, fake = pair(n=400)
    a = np.minimum(1, np.exp(-fake[:, 0]) / 2)
    pool = kernel(real=real, fake=fake, weights=a).value
    kept = [kernel(real=real, fake=fake[rng.random(400) < a]).value for _ in range(60)]
    assert abs(np.mean(kept) - pool) < 4 * np.std(kept) / np.sqrt(60)
    assert abs(kernel(real=real, fake=fake).value - pool) > 10 * np.std(kept) / np.sqrt(60)


def test_influence_is_the_derivative_by_the_weights():
    real, fake = (0.1 * x for x in pair(n=40))  # small features: the kernel is far from 0, its changes are small
    w = np.exp(np.random.default_rng(1).standard_normal(40))
    found = kernel_curve(real=real, fake=fake, weights=w).fake_influence[0]
    for i in (int(np.argmax(w)), int(np.argmin(w)), 7):
        ends = [kernel(real=real, fake=fake, weights=w * np.exp(step * np.eye(40)[i])).value for step in (1e-4, -1e-4)]
        assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(found[i], rel=1e-5, abs=1e-12)


def simulated(shift, n=150, repeats=150, budgets=(1.0, 1.5, 2.0), **options):
    rows = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        real, fake = rng.standard_normal((n, 2)), rng.standard_normal((n, 2))
        fake[:, 0] += shift
        log_ratio = 0.1 * fake[:, 0] + 3 * (fake[:, 0] > 0.8) * (shift > 0)
        a = np.stack([np.exp(Budgeted.fit(log_ratio, k)(log_ratio)) for k in budgets])
        curve = kernel_curve(real=real, fake=fake, weights=a, slopes=np.where(a < 1, a, 0), **options)
        naive = kernel_curve(real=real, fake=fake, weights=a, **options).standard_error
        gaps = [curve.difference(i, 0) for i in (1, 2)]
        rows.append(
            (*(curve.value, curve.standard_error, naive), *np.array([(g.value, g.standard_error) for g in gaps]).T)
        )
    return (np.stack(part) for part in zip(*rows, strict=True))


def test_errors_are_those_of_repeated_experiments_and_need_the_part_of_c():
    value, error, naive, gap, gap_error = simulated(shift=0.5, bandwidth=8)
    spread = 0.04 + 4 / np.sqrt(2 * len(value))
    assert np.all(np.abs(error.mean(0) / value.std(0, ddof=1) - 1) < spread)
    assert np.all(np.abs(gap_error.mean(0) / gap.std(0, ddof=1) - 1) < spread)
    assert naive[:, 2].mean() / value[:, 2].std(ddof=1) < 0.75
    inside = (np.abs(value - value.mean(0)) < 1.96 * error).mean(0)  # the values are unbiased: their mean is the truth
    assert np.all(inside > 0.95 - 4 * np.sqrt(0.05 * 0.95 / len(value)))


def test_errors_are_on_the_safe_side_where_nothing_differs():
    value, error, *_ = simulated(shift=0.0, repeats=80)
    ratio = error.mean(0) / value.std(0, ddof=1)
    assert np.all(ratio > 1)  # by about the root of 2: the influence is nothing but noise then
    assert np.all(ratio < 1.9)
    assert np.all(np.abs(value.mean(0)) < 4 * value.std(0) / np.sqrt(len(value)))  # unbiased


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidth": 0}, "bandwidth must be a finite number above 0, got 0"),
        ({"bandwidth": 1e-300}, "bandwidth must be from 1e-100 to 1e\\+100, got 1e-300"),
        ({"real": np.ones((1, 2))}, "real must have at least 2 rows of some weight"),
        ({"weights": [0, 0, 1, 0]}, "fake must have at least 2 rows of some weight"),
        ({"fake": np.ones((4, 3))}, "real and fake must have the same dimension, got 2 and 3"),
        ({"counts": [1, 1, 1, 1], "weights": [1, 1, 1, 1]}, "weights and counts cannot both be given"),
        ({"real": 1e150 * np.ones((4, 2))}, "the kernel of real and fake is beyond the range of floats"),
    ],
)
def test_bad_input_is_one_line(change, message):
    good = {"real": np.eye(2).repeat(2, axis=0), "fake": np.arange(8.0).reshape(4, 2)}
    with pytest.raises(InputError, match=message) as caught:
        kernel(**{**good, **change})
    assert "\n" not in str(caught.value)
