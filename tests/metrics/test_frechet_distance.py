"""The Fréchet distance: against torchmetrics and closed forms, weighted, extrapolated, and its errors."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torchmetrics.image.fid import FrechetInceptionDistance

from obrs import Budgeted
from obrs.errors import InputError
from obrs.metrics.frechet_distance import _bases, _influence, frechet, frechet_curve
from obrs.metrics.moments import factor, merged, moments, squared_distance


class Given(torch.nn.Module):
    """A feature extractor of torchmetrics that hands on what it gets."""

    def __init__(self, dim):
        super().__init__()
        self.num_features = dim

    def forward(self, x):
        return x.reshape(len(x), -1)[:, : self.num_features]


def rival(real, fake):
    dim = real.shape[1]
    fid = FrechetInceptionDistance(feature=Given(dim), input_img_size=(dim, 1, 1)).set_dtype(torch.float64)
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


def digits():
    """Real images of even and of odd digits: 64 pixels, of which some are always 0."""
    x, y = load_digits(return_X_y=True)
    return x[y % 2 == 0], x[y % 2 == 1]


def features_of_digits():
    """What a layer of random weights makes of them: 40 features, none below 0."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((64, 40)) / 8
    return tuple(np.maximum(x @ weights, 0) for x in digits())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [pair, digits, features_of_digits])
def test_it_is_that_of_torchmetrics(make, dtype):
    real, fake = (x.astype(dtype) for x in make())
    assert frechet(real=real, fake=fake).value == pytest.approx(rival(real, fake), rel=1e-6)


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
    assert frechet(real=real, fake=fake).value == pytest.approx(5 + ((s - t) ** 2).sum(), rel=1e-12)
    a, b = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, -0.5], [-0.5, 4.0]])
    # of a 2 x 2 matrix, tr(M^½)² = tr(M) + 2 det(M)^½
    root = np.sqrt(np.trace(a @ b) + 2 * np.sqrt(np.linalg.det(a @ b)))
    value = frechet(real=exact(np.zeros(2), a), fake=exact(np.zeros(2), b, seed=1)).value
    assert value == pytest.approx(np.trace(a + b) - 2 * root, rel=1e-12)


def test_it_is_symmetric_and_zero_between_equals():
    real, fake = pair()
    assert frechet(real=real, fake=fake).value == pytest.approx(frechet(real=fake, fake=real).value, rel=1e-9)
    assert abs(frechet(real=real, fake=real).value) < 1e-12 * real.var(axis=0).sum() * len(real)


def test_equal_weights_are_none_and_counts_are_repeats():
    real, fake = pair()
    plain = frechet(real=real, fake=fake)
    assert (plain.n_real, plain.n_fake, plain.dimension, plain.extrapolated) == (600, 300, 12, False)
    same = frechet(real=real, fake=fake, weights=np.full(300, 0.2))
    assert same.value == pytest.approx(plain.value, rel=1e-12)
    assert same.n_fake == 300
    counts = np.random.default_rng(0).integers(0, 3, size=300)
    repeated = frechet(real=real, fake=np.repeat(fake, counts, axis=0))
    counted = frechet(real=real, fake=fake, counts=counts)
    assert counted.value == pytest.approx(repeated.value, rel=1e-12)
    assert counted.n_fake == counts.sum() == repeated.n_fake
    weighted = frechet(real=real, fake=fake, weights=counts)
    assert abs(weighted.value - counted.value) > 1e-4
    assert weighted.n_fake < np.count_nonzero(counts)


def test_rows_without_weight_are_not_there():
    real, fake = pair()
    weights = np.random.default_rng(0).random(300) * (np.arange(300) % 3 > 0)
    some = weights > 0
    expected = frechet(real=real, fake=fake[some], weights=weights[some]).value
    assert frechet(real=real, fake=fake, weights=weights).value == pytest.approx(expected, rel=1e-12)


def test_weighted_covariance_is_unbiased_in_the_weights():
    x, w = np.random.default_rng(0).standard_normal((50, 3)), np.random.default_rng(1).random(50)
    mass = w / w.sum()
    expected = np.cov(x.T, aweights=w)  # divided by 1 - sum of the squared masses
    np.testing.assert_allclose(moments(x, mass, mass**2).covariance, expected, rtol=1e-12)


def test_torch_and_numpy_agree_and_wide_features_are_summed_by_panels():
    rng = np.random.default_rng(0)
    real, fake = rng.standard_normal((1500, 600)), 1.1 * rng.standard_normal((1500, 600)) + 5
    weights = rng.random(1500)
    ours = frechet(real=real, fake=fake, weights=weights).value
    theirs = frechet(real=torch.from_numpy(real), fake=torch.from_numpy(fake), weights=torch.from_numpy(weights)).value
    assert theirs == pytest.approx(ours, rel=1e-10)
    single = frechet(real=real.astype(np.float32), fake=fake.astype(np.float32), weights=weights).value
    assert single == pytest.approx(ours, rel=1e-6)
    mass = weights / weights.sum()
    np.testing.assert_allclose(
        moments(fake, mass, mass**2).covariance, np.cov(fake.T, aweights=weights), rtol=1e-9, atol=1e-12
    )


def test_fewer_rows_than_dimensions():
    rng = np.random.default_rng(0)
    real, fake = rng.standard_normal((20, 30)), rng.standard_normal((15, 30)) + 1
    # eigenvalues of the product from the thin side
    a, b = (x - x.mean(0) for x in (real, fake))
    nuclear = np.linalg.svd(a @ b.T / np.sqrt(19 * 14), compute_uv=False).sum()
    gap = real.mean(0) - fake.mean(0)
    expected = gap @ gap + (a**2).sum() / 19 + (b**2).sum() / 14 - 2 * nuclear
    assert frechet(real=real, fake=fake).value == pytest.approx(expected, rel=1e-6)
    single = frechet(real=real.astype(np.float32), fake=fake.astype(np.float32)).value
    assert single == pytest.approx(expected, rel=1e-6)  # the root of a rounded 0 is not small
    assert np.isfinite(frechet_curve(real=real, fake=fake, weights=np.ones(15)).standard_error).all()


def test_parts_merge_to_the_whole():
    x, w = np.random.default_rng(0).standard_normal((50, 3)), np.random.default_rng(1).random(50)
    whole = moments(x, w, w**2)
    parts = merged([moments(x, w, w**2, np.arange(20)), moments(x, w, w**2, np.arange(20, 50))])
    np.testing.assert_allclose(parts.covariance, whole.covariance, rtol=1e-12)
    assert (parts.own, parts.mass) == pytest.approx((whole.own, whole.mass))


def test_extrapolation_finds_the_distance_of_infinitely_many_rows():
    dim, n = 64, 1000
    rng = np.random.default_rng(0)
    scale = np.exp(0.2 * rng.standard_normal(dim))
    truth = ((scale - 1) ** 2).sum()
    values = []
    for _ in range(4):
        real, fake = rng.standard_normal((n, dim)), rng.standard_normal((n, dim)) * scale
        values.append([frechet(real=real, fake=fake, extrapolate=e).value for e in (False, True)])
    raw, extrapolated = np.array(values).T
    error = 2 * extrapolated.std(ddof=1)  # four standard errors of the mean of four
    assert abs(extrapolated.mean() - truth) < error < 0.4
    assert raw.min() - truth > 1.5


def test_extrapolation_adds_little_noise_near_0():
    # one pair of halves would double the variance there, and intervals would cover 9 times of 10
    rng = np.random.default_rng(0)
    pairs = [rng.standard_normal((2, 200, 3)) for _ in range(150)]
    plain, beyond = (
        np.std([frechet(real=x, fake=y, extrapolate=how).value for x, y in pairs]) for how in (False, True)
    )
    assert beyond / plain < 1.25


def test_a_weighted_pool_agrees_with_what_it_keeps_once_both_are_extrapolated():
    # 2000 of 8000 in 128 dimensions: at their own n they differ by more than 1
    dim, rng = 128, np.random.default_rng(0)
    real = rng.standard_normal((8000, dim)).astype(np.float32)
    fake = rng.standard_normal((8000, dim)).astype(np.float32)
    fake[:, 0] += 1
    log_ratio = -0.5 * fake[:, 0]  # half of what it should be: something is left
    a = np.exp(Budgeted.fit(log_ratio, 4)(log_ratio))
    kept = fake[rng.random(8000) < a]
    raw = [frechet(real=real, fake=fake, weights=a).value, frechet(real=real, fake=kept).value]
    assert raw[1] - raw[0] > 0.9
    pool = frechet_curve(real=real, fake=fake, weights=a, slopes=np.where(a < 1, a, 0))
    accepted = frechet_curve(real=real, fake=kept, weights=np.ones(len(kept)))
    gap = abs(float(pool.value[0] - accepted.value[0]))
    assert gap < 3 * float(np.hypot(pool.standard_error[0], accepted.standard_error[0])) < 0.3
    assert frechet(real=real, fake=fake, weights=a, extrapolate=True).value == pytest.approx(pool.value[0], rel=1e-5)


def test_influence_is_the_derivative():
    real, fake = pair(n=8000, dim=4)
    weights = np.random.default_rng(0).random(4000) + 0.1
    mass = weights / weights.sum()
    curve = frechet_curve(real=real, fake=fake, weights=weights, extrapolate=False)
    step = 1e-6
    for i in (3, 77, 250):
        moved = (1 - step) * mass + step * (np.arange(4000) == i)
        change = frechet(real=real, fake=fake, weights=moved).value - frechet(real=real, fake=fake, weights=mass).value
        influence = curve.fake_influence[0, i] / mass[i]
        scale = np.abs(curve.fake_influence[0] / mass).mean()
        assert change / step == pytest.approx(influence, rel=0.02, abs=0.02 * scale)  # other terms of order 1/n
    # the same for real rows, from the other side
    back = frechet_curve(real=fake, fake=real, weights=np.ones(8000), extrapolate=False)
    forth = frechet_curve(real=real, fake=fake, weights=np.ones(4000), extrapolate=False)
    np.testing.assert_allclose(back.fake_influence, forth.real_influence, rtol=1e-7, atol=1e-12)


def simulated(n, dim, repeats, *, budgets=(1.0, 1.5, 2.0)):
    """Values, errors with and without the part of c, differences to the first budget and their errors."""

    def weights_of(log_ratio):
        return np.stack([np.exp(Budgeted.fit(log_ratio, k)(log_ratio)) for k in budgets])

    def fakes(rng, size):
        x = rng.standard_normal((size, dim))
        x[:, 0] += 0.5
        return x, 0.1 * x[:, 0] + 3 * (x[:, 0] > 0.8)  # prefers the wrong side: much is left, and it moves with c

    x, log_ratio = fakes(np.random.default_rng(10**6), 10**6)
    a = weights_of(log_ratio)
    mean = a @ x[:, 0] / a.sum(1)
    variance = a @ x[:, 0] ** 2 / a.sum(1) - mean**2
    truth = mean**2 + (np.sqrt(variance) - 1) ** 2
    rows = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        real = rng.standard_normal((n, dim))
        fake, log_ratio = fakes(rng, n)
        a = weights_of(log_ratio)
        curve = frechet_curve(real=real, fake=fake, weights=a, slopes=np.where(a < 1, a, 0), seed=seed)
        naive = frechet_curve(real=real, fake=fake, weights=a, extrapolate=False)
        differences = [curve.difference(i, 0) for i in range(1, len(budgets))]
        rows.append(
            (
                *(curve.value, curve.standard_error, naive.standard_error),
                np.array([d.value for d in differences]),
                np.array([d.standard_error for d in differences]),
            )
        )
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
    naive = check_coverage(simulated(400, 2, 150), slack=0.02)
    assert naive[0] == pytest.approx(1, abs=0.25)  # at budget 1 there is no c
    assert naive[2] < 0.75


@pytest.mark.slow
@pytest.mark.parametrize(("n", "dim"), [(1000, 16), (2000, 64)])
def test_intervals_cover_in_more_dimensions(n, dim):
    check_coverage(simulated(n, dim, 300), slack=0.02)


def test_precision_of_pairs_is_better_than_of_each():
    real, fake = pair(n=2000, dim=4)
    log_ratio = -0.1 * (fake**2).sum(1)
    a = np.stack([np.exp(Budgeted.fit(log_ratio, k)(log_ratio)) for k in (2.0, 2.2)])
    curve = frechet_curve(real=real, fake=fake, weights=a, slopes=np.where(a < 1, a, 0))
    assert curve.difference(0, 1).standard_error < 0.2 * curve.standard_error.min()
    low, high = curve.interval(0).low, curve.interval(0).high
    assert low < curve.value[0] < high
    assert curve.interval(0, confidence=0.5).low > low


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"real": np.zeros((3, 4))}, "real and fake must have the same dimension, got 4 and 2"),
        ({"fake": [[0.0, 1.0]]}, "fake must have at least 2 rows of some weight, got 1"),
        ({"weights": [0.0, 1.0, 0.0, 0.0]}, "fake must have at least 2 rows of some weight, got 1"),
        ({"weights": [1.0, 1.0]}, r"weights must have shape \(4,\), got \(2,\)"),
        ({"weights": [1, 1, 1, 1], "counts": [1, 1, 1, 1]}, "weights and counts cannot both be given"),
        ({"counts": [2, 2, 2, 2], "extrapolate": True}, "counts cannot be extrapolated"),
        ({"weights": [1.0, 0, 0, 1.0], "extrapolate": True}, "fake has too few rows of some weight to extrapolate"),
        ({"fake": [[np.nan, 0.0]] * 4}, "fake must be finite, 4 of 4 points are not"),
        ({"real": np.eye(2) * 1e160}, "real has values whose squares are beyond the range of its floats"),
        ({"fake": 1e30 * np.eye(2, dtype=np.float32).repeat(2, axis=0)}, "fake has values whose squares are beyond"),
    ],
)
def test_bad_input_is_one_line(change, message):
    good = {"real": np.eye(2).repeat(2, axis=0), "fake": np.arange(8.0).reshape(4, 2)}
    with pytest.raises(InputError, match=message) as caught:
        frechet(**{**good, **change})
    assert "\n" not in str(caught.value)


def test_bad_slopes_and_confidence_are_one_line():
    real, fake = pair(n=40)
    with pytest.raises(InputError, match=r"slopes must have the shape of the weights \(1, 20\), got \(3,\)"):
        frechet_curve(real=real, fake=fake, weights=np.ones(20), slopes=np.ones(3))
    with pytest.raises(InputError, match=r"confidence must be a probability between 0 and 1, got 95"):
        frechet_curve(real=real, fake=fake, weights=np.ones(20)).interval(0, confidence=95)


def test_real_and_fake_cannot_be_given_by_position():
    with pytest.raises(TypeError, match="positional"):
        frechet(*pair())


def test_numpy_features_do_not_load_torch():
    code = (
        "import sys; import numpy as np; from obrs import metrics; x = np.eye(9);"
        "metrics.frechet(real=x, fake=2 * x); metrics.kernel(real=x, fake=2 * x);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_second_derivative_is_what_a_row_does_to_its_own_influence():
    # where weights differ, `_influence` is the derivative less mass times the second derivative
    real, fake = pair(n=4000, dim=3)
    mass = np.random.default_rng(0).random(2000) + 0.1
    mass /= mass.sum()
    equal = np.full(4000, 1 / 4000)

    def side(w):
        moved, still = moments(fake, w, 0 * w), moments(real, equal, 0 * equal)
        return moved, still, squared_distance(still, moved)

    moved, still, value = side(mass)
    values, basis, _ = _bases(moved, factor(still.covariance, invert=True))
    influence = _influence(fake, mass, (moved, still), basis, values)
    first, second = np.empty(6), np.empty(6)
    step = 5e-5  # less than any mass
    for k, i in enumerate(range(0, 2000, 350)):
        up, down = (side((1 - s) * mass + s * (np.arange(2000) == i))[2] for s in (step, -step))
        first[k], second[k] = (up - down) / (2 * step), (up - 2 * value + down) / step**2
    chosen = np.arange(0, 2000, 350)
    left = influence[chosen] - (first - mass[chosen] * second)
    np.testing.assert_allclose(left, left.mean(), atol=2e-3 * np.abs(first).mean())  # but for a constant
    assert np.abs(mass[chosen] * second).max() > 5 * 2e-3 * np.abs(first).mean()  # which is seen
