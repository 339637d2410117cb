"""The Fréchet distance: against torchmetrics and closed forms, weighted, extrapolated, and its errors."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torchmetrics.image.fid import FrechetInceptionDistance

from obrs import Budgeted
from obrs.metrics import frechet, frechet_curve, weightings
from obrs.metrics.frechet import _moments, frechet_effects


class Features(torch.nn.Module):
    """A feature extractor of torchmetrics that returns its input."""

    def __init__(self, dim):
        super().__init__()
        self.num_features = dim

    def forward(self, x):
        return x.reshape(len(x), -1)[:, : self.num_features]


def rival(real, fake):
    dim = real.shape[1]
    fid = FrechetInceptionDistance(feature=Features(dim), input_img_size=(dim, 1, 1)).set_dtype(torch.float64)
    for x, is_real in ((real, True), (fake, False)):
        fid.update(torch.as_tensor(x, dtype=torch.float64)[:, :, None, None], real=is_real)
    return float(fid.compute())


def pair(n=600, dim=12, seed=0):
    rng = np.random.default_rng(seed)
    scale = np.geomspace(3, 0.1, dim)
    mix = rng.standard_normal((dim, dim)) / np.sqrt(dim)
    real = rng.standard_normal((n, dim)) * scale
    fake = rng.standard_normal((n // 2, dim)) @ mix * scale + 0.2
    return real, fake


def wide():
    """More dimensions than a panel, more rows than a block."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((1500, 600)), 1.1 * rng.standard_normal((1500, 600)) + 5


def digits():
    """Real images of even and of odd digits: 64 pixels, of which some are always 0."""
    x, y = load_digits(return_X_y=True)
    return x[y % 2 == 0], x[y % 2 == 1]


def features_of_digits():
    """What a layer of random weights makes of them: 40 features, none below 0."""
    weights = np.random.default_rng(0).standard_normal((64, 40)) / 8
    return tuple(np.maximum(x @ weights, 0) for x in digits())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [pair, wide, digits, features_of_digits])
def test_it_is_that_of_torchmetrics(make, dtype):
    real, fake = (x.astype(dtype) for x in make())
    expected = rival(real, fake)
    assert frechet(real=real, fake=fake) == pytest.approx(expected, rel=1e-6)
    assert frechet(real=torch.from_numpy(real), fake=torch.from_numpy(fake)) == pytest.approx(expected, rel=1e-6)
    assert frechet_effects(real, fake, np.ones((1, len(fake)))).value == pytest.approx(expected, rel=2e-6)


def exact(mean, covariance, n=200, seed=0):
    """Rows whose sample mean and covariance are these, to rounding."""
    dim = len(mean)
    x = np.random.default_rng(seed).standard_normal((n, dim))
    x -= x.mean(0)
    x = x @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T).reshape(dim, dim))).T
    return x @ np.linalg.cholesky(covariance).T + mean


def test_closed_forms_of_gaussians():
    s, t = np.array([1.0, 2.0, 0.5]), np.array([3.0, 0.1, 0.5])
    real, fake = exact(np.zeros(3), np.diag(s**2)), exact(np.array([1.0, -2.0, 0.0]), np.diag(t**2), n=90, seed=1)
    assert frechet(real=real, fake=fake) == pytest.approx(5 + ((s - t) ** 2).sum(), rel=1e-12)
    a, b = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, -0.5], [-0.5, 4.0]])
    # of a 2 x 2 matrix, tr(M^½)² = tr(M) + 2 det(M)^½
    root = np.sqrt(np.trace(a @ b) + 2 * np.sqrt(np.linalg.det(a @ b)))
    value = frechet(real=exact(np.zeros(2), a), fake=exact(np.zeros(2), b, seed=1))
    assert value == pytest.approx(np.trace(a + b) - 2 * root, rel=1e-12)


def test_weights():
    real, fake = pair()
    assert frechet(real=real, fake=fake, weights=np.full(300, 0.2)) == pytest.approx(frechet(real=real, fake=fake))
    weights = np.random.default_rng(0).random(300) * (np.arange(300) % 3 > 0)
    some = weights > 0  # rows without weight are not there
    values = [frechet(real=real, fake=x, weights=w) for x, w in ((fake, weights), (fake[some], weights[some]))]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    assert frechet_effects(real, fake, weights[None]).value[0] == pytest.approx(values[0], rel=1e-9)
    expected = np.cov(fake.T, aweights=weights)  # divided by 1 - sum of the squared masses
    np.testing.assert_allclose(_moments(fake, weights).covariance, expected, rtol=1e-9, atol=1e-12)


def test_fewer_rows_than_dimensions():
    rng = np.random.default_rng(0)
    real, fake = rng.standard_normal((20, 30)), rng.standard_normal((15, 30)) + 1
    # eigenvalues of the product from the thin side
    a, b = (x - x.mean(0) for x in (real, fake))
    nuclear = np.linalg.svd(a @ b.T / np.sqrt(19 * 14), compute_uv=False).sum()
    gap = real.mean(0) - fake.mean(0)
    expected = gap @ gap + (a**2).sum() / 19 + (b**2).sum() / 14 - 2 * nuclear
    for dtype in (np.float64, np.float32):  # the root of a rounded 0 is not small
        given = {"real": real.astype(dtype), "fake": fake.astype(dtype)}
        assert frechet(**given) == pytest.approx(expected, rel=1e-6)
        assert frechet_effects(*given.values(), np.ones((1, 15))).value == pytest.approx(expected, rel=1e-6)
        assert np.isfinite(frechet_curve(**given).parts).all()


@pytest.mark.parametrize(("dim", "n"), [(64, 1000), (64, 400), (8, 100)])
def test_extrapolation_finds_the_distance_of_infinitely_many_rows(dim, n):
    rng = np.random.default_rng(0)
    scale = np.exp(0.2 * rng.standard_normal(dim))
    truth = ((scale - 1) ** 2).sum()
    values = []
    for _ in range(20):
        real, fake = rng.standard_normal((n, dim)), rng.standard_normal((n, dim)) * scale
        values.append([frechet(real=real, fake=fake), frechet_curve(real=real, fake=fake).value[0]])
    plain, beyond = np.array(values).T
    excess = plain.mean() - truth
    assert abs(beyond.mean() - truth) < dim / (4 * n) * excess + 3 * beyond.std(ddof=1) / np.sqrt(20) < 0.3 * excess
    assert beyond.std() / plain.std() < 1.1  # and adds no noise


def left_out(real, fake, weights, i):
    """The value without a row, with covariances that are not corrected for the mean, as the derivatives have it."""

    def side(x, w):
        w = w / w.sum()
        mean = w @ x
        return mean, (w[:, None] * (x - mean)).T @ (x - mean)

    (m, r), (k, f) = side(real, np.ones(len(real))), side(fake, np.where(np.arange(len(fake)) == i, 0, weights))
    values = np.linalg.eigvals(r @ f).real
    return (m - k) @ (m - k) + np.trace(r) + np.trace(f) - 2 * np.sqrt(np.maximum(values, 0)).sum()


def test_excess_is_that_of_the_jackknife():
    """Leaving out every row in turn, from scratch: also where a row counts for much, 40 rows in 8 dimensions."""
    rng = np.random.default_rng(0)
    real, fake = rng.standard_normal((2000, 8)), 1.3 * rng.standard_normal((40, 8)) + 0.2
    value = left_out(real, fake, np.ones(40), -1)
    direct = 39 * np.mean([left_out(real, fake, np.ones(40), i) - value for i in range(40)])
    effects = frechet_effects(real, fake, np.ones((1, 40)))
    of_real = frechet_effects(fake, real, np.ones((1, 2000)))
    assert effects.excess == pytest.approx(of_real.excess, rel=1e-6)  # both sides alike
    # the covariance over n - 1 instead of n moves the trace and its root; the excess of 2000 real rows is small
    scatter = _moments(fake, np.ones(40)).covariance
    root = np.sqrt(np.linalg.eigvals(_moments(real, np.ones(2000)).covariance @ scatter).real).sum()
    assert effects.excess[0] == pytest.approx(direct + (np.trace(scatter) - root) / 40, rel=0.05)


def test_influence_is_the_derivative():
    real, fake = pair(n=8000, dim=4)
    weights = np.random.default_rng(0).random(4000) + 0.1
    mass = weights / weights.sum()
    parts = frechet_curve(real=real, fake=fake, weights=weights).parts[0, 8000:]
    step = 1e-6
    start = frechet(real=real, fake=fake, weights=mass)
    for i in (3, 77, 250):
        moved = (1 - step) * mass + step * (np.arange(4000) == i)
        change = (frechet(real=real, fake=fake, weights=moved) - start) / step
        scale = np.abs(parts / mass).mean()
        assert change == pytest.approx(parts[i] / mass[i], rel=0.02, abs=0.02 * scale)  # other terms of order 1/n
    # the same for real rows, from the other side
    back, forth = frechet_curve(real=fake, fake=real).parts[0], frechet_curve(real=real, fake=fake).parts[0]
    np.testing.assert_allclose(back[4000:], forth[:8000], rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(back[:4000], forth[8000:], rtol=1e-6, atol=1e-10)


def test_errors_are_those_of_a_bootstrap():
    """500 x 32: real and fake resampled, and the constants solved for again."""
    rng = np.random.default_rng(0)
    real, fake = rng.standard_normal((500, 32)), rng.standard_normal((500, 32))
    fake[:, :4] = 1.5 * fake[:, :4] + 0.7
    log_ratio = -0.5 * fake[:, 0]
    curve = frechet_curve(real=real, fake=fake, weights=weightings(log_ratio, [1, 2]))
    again = []
    for _ in range(200):
        i, j = rng.integers(0, 500, (2, 500))
        pool = weightings(log_ratio[j], [1, 2])
        again.append(frechet_curve(real=real[i], fake=fake[j], weights=pool).value)
    again = np.array(again)
    slack = 3 / np.sqrt(2 * 200) + 32 / 500  # of a standard deviation from 200, and terms of order dim/n
    assert curve.standard_error == pytest.approx(again.std(axis=0, ddof=1), rel=slack)
    change = curve.difference(1, 0).standard_error
    assert change == pytest.approx((again[:, 1] - again[:, 0]).std(ddof=1), rel=slack)


def simulate(n, dim, repeats, *, shift=0.5, budgets=(1.0, 1.5, 2.0)):
    """Truth, values, errors with and without the part of c, differences to the first budget and their errors."""

    def fakes(rng, size):
        x = rng.standard_normal((size, dim))
        x[:, 0] += shift
        return x, 0.1 * x[:, 0] + 3 * (
            x[:, 0] > shift + 0.3
        )  # prefers the wrong side: much is left, and it moves with c

    x, log_ratio = fakes(np.random.default_rng(10**6), 10**6)
    a = np.stack([np.exp(Budgeted.fit(log_ratio, k)(log_ratio)) for k in budgets])
    mean = a @ x[:, 0] / a.sum(1)
    variance = a @ x[:, 0] ** 2 / a.sum(1) - mean**2
    truth = mean**2 + (np.sqrt(variance) - 1) ** 2
    rows = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        real = rng.standard_normal((n, dim))
        fake, log_ratio = fakes(rng, n)
        pool = weightings(log_ratio, budgets)
        curve = frechet_curve(real=real, fake=fake, weights=pool)
        naive = frechet_curve(real=real, fake=fake, weights=pool.weights)
        differences = [curve.difference(i, 0) for i in range(1, len(budgets))]
        both = np.array([(d.value, d.standard_error) for d in differences]).T
        rows.append((curve.value, curve.standard_error, naive.standard_error, *both))
    return truth, *(np.stack(part) for part in zip(*rows, strict=True))


def check_coverage(simulation, slack):
    truth, value, error, naive, difference, its_error = simulation
    repeats = len(value)
    spread = slack + 4 / np.sqrt(2 * repeats)  # a standard deviation from so many repeats
    assert np.all(np.abs(error.mean(0) / value.std(0, ddof=1) - 1) < spread)
    assert np.all(np.abs(its_error.mean(0) / difference.std(0, ddof=1) - 1) < spread)
    least = 0.95 - slack - 4 * np.sqrt(0.95 * 0.05 / repeats)
    assert np.all((np.abs(value - truth) < 1.96 * error).mean(0) > least)
    assert np.all((np.abs(difference - (truth[1:] - truth[0])) < 1.96 * its_error).mean(0) > least)
    return naive.mean(0) / value.std(0, ddof=1)


def test_intervals_cover_and_need_the_part_of_c():
    naive = check_coverage(simulate(400, 2, 150), slack=0.02)
    assert naive[0] == pytest.approx(1, abs=0.25)  # at budget 1 there is no c
    assert naive[2] < 0.75


@pytest.mark.slow
@pytest.mark.parametrize(("n", "dim", "shift"), [(1000, 16, 0.5), (2000, 64, 1.0)])
def test_intervals_cover_in_more_dimensions(n, dim, shift):
    check_coverage(simulate(n, dim, 300, shift=shift), slack=0.02)


def test_errors_are_on_the_safe_side_where_nothing_differs():
    rng = np.random.default_rng(0)
    curves = [frechet_curve(real=rng.standard_normal((400, 8)), fake=rng.standard_normal((400, 8))) for _ in range(100)]
    value, error = np.array([(curve.value[0], curve.standard_error[0]) for curve in curves]).T
    ratio = error.mean() / value.std(ddof=1)
    assert 1 < ratio < 1.7  # by the root of 2: the influence is nothing but noise then
    assert abs(value.mean()) < 4 * value.std() / np.sqrt(100)
