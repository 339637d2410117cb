"""Mixtures and toys: what is sampled follows the density, and the density is exact."""

from statistics import NormalDist

import numpy as np
import pytest
import torch

from obrs.data.mixtures import TOYS, Checkerboard, Mixture, grid25, ring, swiss_roll, two_moons
from obrs.errors import InputError

# a target, the half width of a square that holds all of it, and a grid that sums it without error: a sum over a grid
# as fine as the standard deviation integrates Gaussians to 1e-8, squares it integrates exactly
GRIDS = {
    "grid25": (3.0, 0.05),
    "ring8": (2.2, 0.02),
    "two_moons": (3.0, 0.1),
    "swiss_roll": (2.5, 0.05),
    "checkerboard": (2.5, 0.1),
}
each_toy = pytest.mark.parametrize("name", TOYS)


def grid_of(name):
    """Midpoints of the cells, shape (cells, cells, 2), and the area of one."""
    half, step = GRIDS[name]
    line = np.arange(-half + step / 2, half, step)
    return np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1), step**2


@each_toy
def test_density_integrates_to_one(name):
    x, area = grid_of(name)
    assert np.sum(np.exp(TOYS[name]().log_prob(x))) * area == pytest.approx(1, abs=1e-6)


@each_toy
def test_samples_have_the_entropy_of_the_density(name):
    x, area = grid_of(name)
    toy = TOYS[name]()
    log_p = toy.log_prob(x)
    log_p = log_p[log_p > -np.inf]
    by_quadrature = np.sum(np.exp(log_p) * log_p) * area
    seen = toy.log_prob(toy.sample(20_000, seed=1))
    assert seen.mean() == pytest.approx(by_quadrature, abs=4 * seen.std() / len(seen) ** 0.5 + 1e-6)


@each_toy
def test_samples_fall_where_the_density_says(name):
    x, area = grid_of(name)
    toy, n = TOYS[name](), 20_000
    half, _ = GRIDS[name]
    cells = 10
    where = np.clip(((x + half) / (2 * half) * cells).astype(int), 0, cells - 1)
    expected = np.zeros((cells, cells))
    np.add.at(expected, (where[..., 0], where[..., 1]), n * area * np.exp(toy.log_prob(x)))
    seen, *_ = np.histogram2d(*toy.sample(n, seed=2).T, bins=cells, range=[(-half, half)] * 2)
    often = expected > 20
    freedom = often.sum() - 1
    chi2 = np.sum((seen - expected)[often] ** 2 / expected[often])
    assert chi2 < freedom + 4 * (2 * freedom) ** 0.5
    assert seen[expected < 1e-9].sum() == 0


@each_toy
def test_seed_decides_the_samples(name):
    toy = TOYS[name]()
    x = toy.sample(100, seed=3)
    assert x.shape == (100, toy.dim)
    assert x.dtype == np.float64
    np.testing.assert_array_equal(x, TOYS[name]().sample(100, seed=3))
    assert not np.isin(x, toy.sample(100, seed=4)).any()


@each_toy
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_torch_answers_as_numpy_does(name, dtype):
    toy = TOYS[name]()
    x = torch.as_tensor(toy.sample(500, seed=5), dtype=dtype)
    found = toy.log_prob(x)
    assert found.dtype == dtype
    precise = toy.log_prob(x.double().numpy())
    np.testing.assert_allclose(found.numpy(), precise, rtol=0, atol=1e-12 if dtype is torch.float64 else 1e-3)
    assert toy.log_prob(x.numpy()).dtype == x.numpy().dtype


@each_toy
def test_any_leading_shape_will_do(name):
    toy = TOYS[name]()
    x = toy.sample(6, seed=6)
    np.testing.assert_array_equal(toy.log_prob(x.reshape(2, 3, 2)), toy.log_prob(x).reshape(2, 3))
    assert toy.log_prob(x[:0]).shape == (0,)
    assert toy.log_prob(x[0]).shape == ()
    with pytest.raises(InputError, match=r"x must have shape \(n, 2\), got \(6, 3\)"):
        toy.log_prob(np.zeros((6, 3)))


def test_log_prob_is_that_of_scipy():
    from scipy.special import logsumexp
    from scipy.stats import multivariate_normal

    generator = np.random.default_rng(0)
    means, sigma, weights = (
        generator.normal(size=(4, 3)),
        np.array([0.1, 0.5, 1.0, 2.0]),
        np.array([1.0, 2.0, 3.0, 4.0]),
    )
    x = 2 * generator.normal(size=(200, 3))
    terms = [multivariate_normal(m, s**2 * np.eye(3)).logpdf(x) for m, s in zip(means, sigma, strict=True)]
    expected = logsumexp(np.stack(terms, axis=1) + np.log(weights / 10), axis=1)
    np.testing.assert_allclose(Mixture(means, sigma, weights).log_prob(x), expected, rtol=1e-12)


def test_one_dimension_is_a_dimension():
    mixture = Mixture([[-2.0], [1.0]], [0.5, 1.0], [0.3, 0.7])
    x = mixture.sample(40_000, seed=0)
    assert x.shape == (40_000, 1)
    line = np.linspace(-8, 8, 2001)[:, None]
    p = np.exp(mixture.log_prob(line))
    assert p.sum() * 0.008 == pytest.approx(1, abs=1e-8)
    share = 0.3 * NormalDist(-2, 0.5).cdf(-1) + 0.7 * NormalDist(1, 1).cdf(-1)
    assert np.mean(x < -1) == pytest.approx(share, abs=4 * (share * (1 - share) / 40_000) ** 0.5)


def test_gradient_is_the_slope_of_the_density():
    mixture = Mixture([[-1.0, 0.0], [1.0, 0.5]], [0.5, 0.7], [1, 2])
    x = torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(mixture.log_prob, (x,))


def test_far_away_the_log_density_stays_finite():
    for dtype in (np.float32, np.float64):
        found = grid25().log_prob(np.array([[1e4, -1e4]], dtype=dtype))
        assert found[0] == pytest.approx(-2 * 9998**2 / (2 * 0.05**2), rel=1e-5)


def test_component_without_weight_does_not_count():
    with_it, without = Mixture([[0.0], [3.0]], 1.0, [1, 0]), Mixture([[0.0]], 1.0)
    x = np.linspace(-5, 5, 11)[:, None]
    np.testing.assert_allclose(with_it.log_prob(x), without.log_prob(x), rtol=1e-14)
    assert np.abs(with_it.sample(1000)).max() < 6


def test_points_in_several_blocks_answer_as_in_one():
    roll = swiss_roll()
    x = roll.sample(12_000, seed=0)  # 4.8 million pairs: three blocks
    pieces = np.concatenate([roll.log_prob(part) for part in np.array_split(x, 12)])
    np.testing.assert_array_equal(roll.log_prob(x), pieces)


@pytest.mark.parametrize("make", [grid25, ring, two_moons, swiss_roll])
def test_standardised_has_mean_0_and_variance_1(make):
    raw, mixture = make(), make().standardised()
    x = mixture.sample(100_000, seed=1)
    error = (x**2).std(axis=0).max() / 100_000**0.5
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=4 * x.std() / 100_000**0.5)
    assert (x**2).mean() == pytest.approx(1, abs=4 * error)
    scale = raw.sigma[0] / mixture.sigma[0]  # the density of a moved and scaled variable
    centre = raw.means[0] - scale * mixture.means[0]
    np.testing.assert_allclose(mixture.log_prob(x[:100]), raw.log_prob(scale * x[:100] + centre) + 2 * np.log(scale))


def test_standardised_grid_has_variance_1_on_each_axis():
    x = grid25().standardised().sample(100_000, seed=1)
    np.testing.assert_allclose((x**2).mean(axis=0), 1, atol=4 * (x**2).std() / 100_000**0.5)
    assert grid25().standardised().sigma[0] == pytest.approx(0.05 / (2 + 0.05**2) ** 0.5)


def test_curves_are_those_of_scikit_learn():
    from sklearn.datasets import make_moons, make_swiss_roll

    moons, _ = make_moons(1000, random_state=0)
    roll, _ = make_swiss_roll(1000, random_state=0)
    for mixture, curve in ((two_moons(), moons), (swiss_roll(), roll[:, [0, 2]] / 7.5)):
        gaps = np.linalg.norm(mixture.means[:, None] - mixture.means, axis=-1)
        np.fill_diagonal(gaps, np.inf)
        away = np.linalg.norm(curve[:, None] - mixture.means, axis=-1).min(axis=1)
        assert away.max() < 0.51 * gaps.min(axis=1).max()  # no point of the curve is further than half a step


def test_mixture_keeps_its_own_numbers():
    means = np.zeros((2, 2))
    mixture = Mixture(means, 1.0)
    means += 1
    assert not mixture.means.any()
    with pytest.raises(ValueError, match="read-only"):
        mixture.means[0] = 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, 1.0], 1.0), r"means must have shape \(components, dim\), got \(2,\)"),
        ((np.zeros((0, 2)), 1.0), r"means must have shape \(components, dim\), got \(0, 2\)"),
        (([[np.nan]], 1.0), "means must be finite, 1 of 1 are not"),
        (([[0.0]], 0.0), "sigma must be above 0, the smallest is 0"),
        (([[0.0]], np.inf), "sigma must be finite, 1 of 1 are not"),
        (([[0.0]], [1.0, 2.0]), r"sigma must be one number or one per component, 1, got shape \(2,\)"),
        (([[0.0], [1.0]], 1.0, [1, -1]), "weights must be at least 0 and not all 0, the smallest is -1"),
        (([[0.0], [1.0]], 1.0, [0, 0]), "weights must be at least 0 and not all 0, the smallest is 0"),
    ],
)
def test_what_is_no_mixture_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Mixture(*arguments)


def test_odd_board_and_no_samples_are_refused():
    with pytest.raises(InputError, match="cells must be even, got 3"):
        Checkerboard(3)
    for toy in TOYS.values():
        with pytest.raises(InputError, match="n must be a whole number of at least 1, got 0"):
            toy().sample(0)
