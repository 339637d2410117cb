"""Toy densities: what is sampled follows the density, and the density is exact."""

import numpy as np
import pytest
import torch

from obrs.errors import InputError
from paper.toys import TOYS, Mixture, grid25, ring, swiss_roll, two_moons

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


@each_toy
def test_the_density_integrates_to_one_and_samples_fall_where_it_says(name):
    half, step = GRIDS[name]
    line = np.arange(-half + step / 2, half, step)
    x, area = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1), step**2
    toy, n, cells = TOYS[name](), 20_000, 10
    log_p = toy.log_prob(x)
    mass = np.exp(log_p) * area
    assert np.sum(mass) == pytest.approx(1, abs=1e-6)

    drawn = toy.sample(n, seed=1)
    seen = toy.log_prob(drawn)
    entropy = np.sum(mass[mass > 0] * log_p[mass > 0])
    assert seen.mean() == pytest.approx(entropy, abs=4 * seen.std() / n**0.5 + 1e-6)

    where = np.clip(((x + half) / (2 * half) * cells).astype(int), 0, cells - 1)
    expected = np.zeros((cells, cells))
    np.add.at(expected, (where[..., 0], where[..., 1]), n * mass)
    counts, *_ = np.histogram2d(*drawn.T, bins=cells, range=[(-half, half)] * 2)
    often = expected > 20
    freedom = often.sum() - 1
    assert np.sum((counts - expected)[often] ** 2 / expected[often]) < freedom + 4 * (2 * freedom) ** 0.5
    assert counts[expected < 1e-9].sum() == 0


@each_toy
def test_the_seed_decides_the_samples_and_torch_answers_as_numpy_does(name):
    toy = TOYS[name]()
    x = toy.sample(60, seed=3)
    np.testing.assert_array_equal(x, TOYS[name]().sample(60, seed=3))
    assert not np.isin(x, toy.sample(60, seed=4)).any()
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-3)):
        here = torch.as_tensor(x, dtype=dtype)
        log_p = toy.log_prob(here)
        assert log_p.dtype == dtype
        np.testing.assert_allclose(log_p.numpy(), toy.log_prob(here.double().numpy()), rtol=0, atol=tolerance)
    np.testing.assert_array_equal(toy.log_prob(x.reshape(20, 3, 2)), toy.log_prob(x).reshape(20, 3))
    with pytest.raises(InputError, match=r"x must have shape \(n, 2\), got \(6, 3\)"):
        toy.log_prob(np.zeros((6, 3)))


def test_log_prob_is_that_of_scipy_in_any_dimension_and_its_gradient_that_of_differences():
    from scipy.special import logsumexp
    from scipy.stats import multivariate_normal

    rng = np.random.default_rng(0)
    sigma, weights = np.array([0.1, 0.5, 1.0, 2.0]), np.array([1.0, 2.0, 3.0, 4.0])
    for dim in (1, 3):
        means, x = rng.normal(size=(4, dim)), 2 * rng.normal(size=(200, dim))
        terms = [multivariate_normal(m, s**2 * np.eye(dim)).logpdf(x) for m, s in zip(means, sigma, strict=True)]
        expected = logsumexp(np.stack(terms, axis=1) + np.log(weights / 10), axis=1)
        np.testing.assert_allclose(Mixture(means, sigma, weights).log_prob(x), expected, rtol=1e-12)
        assert torch.autograd.gradcheck(Mixture(means, 0.7).log_prob, (torch.tensor(x[:20], requires_grad=True),))
    far = grid25().log_prob(np.array([[1e4, -1e4]], dtype=np.float32))
    assert far[0] == pytest.approx(-2 * 9998**2 / (2 * 0.05**2), rel=1e-5)


@pytest.mark.parametrize("make", [grid25, ring, two_moons, swiss_roll])
def test_standardised_has_mean_0_and_variance_1(make):
    raw, mixture, n = make(), make().standardise(), 20_000
    x = mixture.sample(n, seed=1)
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=4 * x.std() / n**0.5)
    assert (x**2).mean() == pytest.approx(1, abs=4 * (x**2).std(axis=0).max() / n**0.5)
    np.testing.assert_allclose(
        np.ptp(raw.means, axis=0) / np.ptp(mixture.means, axis=0), raw.sigma[0] / mixture.sigma[0]
    )
