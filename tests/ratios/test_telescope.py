"""Telescoping: Gaussians so far apart that one classifier never errs, and their known ratio."""

from math import log, sqrt

import numpy as np
import pytest
import torch

import obrs
from obrs.data.mixtures import Mixture
from obrs.errors import InputError
from obrs.ratios.methods import Ensemble, Head, Network
from obrs.ratios.refit import refit
from obrs.ratios.telescope import Telescope
from obrs.ratios.waymarks import waymarks

KL = 20.0


def propose(dim):
    return lambda ids: obrs.normals(ids, dim, seed=3)


def shifted(dim, scale):
    """P = N(m, scale² I) with KL(P || N(0, I)) = 20: samples of P, and the exact log-ratio."""
    length = 2 * KL + dim + 2 * dim * log(scale) - dim * scale**2
    mean = np.full(dim, sqrt(length / dim))

    def sample(n, seed):
        return np.random.default_rng(seed).normal(mean, scale, (n, dim))

    def log_ratio(x):
        return ((x**2).sum(1) - ((x - mean) ** 2).sum(1) / scale**2) / 2 - dim * log(scale)

    return sample, log_ratio


def correlated(dim):
    """P: pairs of correlated standard normals, as many as make KL(P || N(0, I)) = 20."""
    rho = sqrt(1 - np.exp(-4 * KL / dim))

    def sample(n, seed):
        z = np.random.default_rng(seed).normal(size=(2, n, dim // 2))
        return np.concatenate([z[0], rho * z[0] + sqrt(1 - rho**2) * z[1]], axis=1)

    def log_ratio(x):
        a, b = np.split(x, 2, axis=1)
        terms = (a**2 - 2 * rho * a * b + b**2) / (1 - rho**2) - a**2 - b**2
        return (-log(1 - rho**2) / 2 - terms / 2).sum(1)

    return sample, log_ratio


PROBLEMS = {
    "shifted": (lambda: shifted(4, 1.0), 4, ()),
    "shifted and narrow": (lambda: shifted(8, 0.5), 8, pytest.mark.slow),
    "very narrow": (lambda: shifted(2, 0.3), 2, pytest.mark.slow),
    "correlated": (lambda: correlated(20), 20, pytest.mark.slow),
}


@pytest.mark.parametrize(
    ("problem", "dim"), [pytest.param(make, dim, id=name, marks=mark) for name, (make, dim, mark) in PROBLEMS.items()]
)
def test_a_divergence_of_20_nats_is_found_where_one_classifier_fails(problem, dim):
    sample, log_ratio = problem()
    real, fresh = sample(10000, seed=1), sample(20000, seed=2)
    truth = log_ratio(fresh)
    assert abs(truth.mean() - KL) < 4 * truth.std() / sqrt(20000)

    telescope = refit(real, propose(dim), Telescope(), steps=200)
    assert abs(telescope(fresh).mean() - KL) < 0.1 * KL
    assert telescope.report.trouble is None
    assert len(telescope.report.bridges) == 8

    with pytest.warns(UserWarning, match="the classifier separates the two sets"):
        single = refit(real, propose(dim), Network(width=64), steps=200)
    assert "use Telescope()" in single.report.trouble
    assert single.report.trouble in str(single.report)
    assert abs(single(fresh).mean() - KL) > 0.1 * KL


def test_bridges_that_separate_are_reported():
    sample, _ = shifted(4, 1.0)
    with pytest.warns(UserWarning, match=r"bridge 1 of 1 separates its two sets .* use Telescope\(bridges=2\)"):
        refit(sample(2000, seed=1), propose(4), Telescope(1, width=8), steps=5)


def test_correlations_between_many_numbers_are_found():
    """80 numbers, of which 40 pairs are correlated: squares alone would see nothing."""
    sample, log_ratio = correlated(80)
    fresh = sample(4000, seed=2)
    fitted = refit(sample(6000, seed=1), propose(80), Telescope(width=16, layers=1), steps=20, batch_size=256)
    assert abs(fitted(fresh).mean() - KL) < 0.1 * KL
    assert fitted.report.trouble is None
    model = propose(80)(np.arange(4000))
    assert abs(fitted(model).mean() - log_ratio(model).mean()) < 0.1 * abs(log_ratio(model).mean())


def test_an_ensemble_of_telescopes_is_judged_by_its_bridges():
    sample, _ = shifted(4, 1.0)
    two = Ensemble((Telescope(8, width=8), Telescope(4, width=8)))
    report = refit(sample(2000, seed=1), propose(4), two, steps=5).report
    assert report.log_loss < 0.02  # which is no trouble
    assert (len(report.bridges), report.trouble) == (12, None)
    for members, reason in [
        ((Telescope(8, width=8), Telescope(1, width=8)), r"bridge 1 of 1 separates .* use Telescope\(bridges=2\)"),
        ((Telescope(8, width=8), Head(lambda x: x)), "the classifier separates the two sets"),
    ]:
        with pytest.warns(UserWarning, match=reason):
            refit(sample(2000, seed=1), propose(4), Ensemble(members), steps=5)


def test_near_sets_give_the_ratio_that_a_classifier_gives():
    """Not only between Gaussians: a mixture, whose log-ratio is not quadratic."""
    target = Mixture([[-1.5], [1.5]], sigma=0.6)
    fitted = refit(target.sample(20000, seed=1), propose(1), Telescope(2, width=32), steps=400)
    x = np.linspace(-2.5, 2.5, 41)[:, None]
    model = Mixture([[0.0]], sigma=1.0)
    exact = target.log_prob(x) - model.log_prob(x)
    quadratic = np.polyval(np.polyfit(x[:, 0], exact, 2, w=np.exp(model.log_prob(x) / 2)), x[:, 0])
    error = np.sqrt(np.mean((fitted(x) - exact) ** 2))
    assert error < 0.5 * np.sqrt(np.mean((quadratic - exact) ** 2))


def test_waymarks_lead_from_the_fakes_to_the_real_samples():
    real, fake = torch.ones(3, 2), -torch.ones(3, 2)
    marks = waymarks(real, fake, 4)
    assert marks.shape == (5, 3, 2)
    assert torch.allclose(marks[0], fake)
    assert torch.allclose(marks[-1], real, atol=1e-6)
    independent = torch.randn(2, 20000, 1, generator=torch.Generator().manual_seed(0))
    spread = waymarks(*independent, 4).var(dim=1)[:, 0]
    assert float((spread - 1).abs().max()) < 5 * sqrt(2 / 20000)  # equal variances stay


def test_images_are_flattened():
    rng = np.random.default_rng(0)
    real, fake = rng.normal(1.0, 1.0, (600, 1, 8, 8)), rng.normal(0.0, 1.0, (600, 1, 8, 8))
    fitted = refit(real, fake, Telescope(4, width=8), steps=10)
    assert fitted(real[:3]).shape == (3,)
    assert fitted(real).mean() > fitted(fake).mean() + 32  # the truth is 64 apart: ± 8² · ½ in 64 directions


@pytest.mark.parametrize("options", [{"bridges": 0}, {"width": 1.5}, {"layers": 0}, {"lr": -1.0}])
def test_bad_constants_are_refused(options):
    (name,) = options
    with pytest.raises(InputError, match=f"{name} must be"):
        Telescope(**options)
