"""Telescoping: Gaussians so far apart that one classifier never errs, and their known ratio."""

import re
from math import log, sqrt

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

import obrs
from obrs.data.mixtures import Mixture, grid25
from obrs.errors import InputError
from obrs.experiments.wgan25 import generator
from obrs.ratios.methods import Ensemble, Head, Network
from obrs.ratios.refit import load_ratio, refit
from obrs.ratios.telescope import Telescope
from obrs.ratios.telescope_check import _apart, twins
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


def checks(fitted):
    """The checks of a report, which it prints, too."""
    assert all(line in str(fitted.report).splitlines() for line in fitted.report.checks)
    return fitted.report.checks


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

    telescope = refit(real, propose(dim), Telescope(), steps=60)
    assert abs(telescope(fresh).mean() - KL) < 0.1 * KL
    assert telescope.report.trouble is None
    assert len(telescope.report.bridges) == 8
    control = re.fullmatch(
        r"control: between .*Gaussians (\S+) nats apart this telescope finds (\S+)", checks(telescope)[-1]
    )
    known, found = map(float, control.groups())
    assert abs(known - KL) < 0.1 * KL
    assert abs(found - known) < 0.1 * known

    with pytest.warns(UserWarning, match="the classifier separates the two sets"):
        single = refit(real, propose(dim), Network(width=64), steps=200)
    assert "use Telescope()" in single.report.trouble
    assert single.report.trouble in str(single.report)
    assert abs(single(fresh).mean() - KL) > 0.1 * KL


GRID = Mixture(np.stack(np.meshgrid([-1.5, 0.0, 1.5], [-1.5, 0.0, 1.5]), axis=-1).reshape(-1, 2), sigma=0.1)
BLURRED = Mixture(GRID.means, sigma=0.4)


def test_thin_modes_that_the_bridges_miss_are_reported(tmp_path):
    """The model has the modes and the covariance of the data, so a quadratic function sees nothing."""
    real, fake = GRID.sample(4000, seed=1), BLURRED.sample(8000, seed=2)
    options = {"steps": 100, "batch_size": 256}
    with pytest.warns(UserWarning, match=r"the bridges miss what one classifier sees .* use Network\(\)"):
        blind = refit(real, fake, Telescope(2, width=32, waves=0), **options)
    assert blind.report.trouble in checks(blind)
    assert str(blind.report).count(blind.report.trouble) == 1
    seeing = refit(real, fake, Telescope(2, width=32), **options)
    assert (len(checks(seeing)), seeing.report.trouble) == (1, None)
    assert seeing.report.log_loss < blind.report.log_loss - 0.1
    blind.save(tmp_path / "ratio.safetensors")
    assert load_ratio(tmp_path / "ratio.safetensors").report == blind.report


BOTH_SIDES = Mixture([[6.0], [-6.0]], sigma=1.0)


def test_a_sum_that_is_wrong_where_no_bridge_has_samples_is_reported():
    """Data on both sides of the model, 17.3 nats away: bridges look quadratic near the model, far away they are not."""
    with pytest.warns(UserWarning, match="control: between mixtures of Gaussians .* do not rely on the divergence"):
        fitted = refit(BOTH_SIDES.sample(3000, seed=1), propose(1), Telescope(width=16), steps=20, batch_size=256)
    fresh = BOTH_SIDES.sample(5000, seed=2)
    exact = BOTH_SIDES.log_prob(fresh) - Mixture([[0.0]], sigma=1.0).log_prob(fresh)
    assert fitted(fresh).mean() > 1.2 * exact.mean()  # so the warning is right
    known = float(re.search(r"Gaussians (\S+) nats", fitted.report.trouble)[1])
    assert abs(known - exact.mean()) < 0.1 * exact.mean()


@pytest.mark.slow
def test_thin_modes_far_away_are_missed_between_a_waymark_and_the_data():
    far = Mixture(GRID.means + np.array([8.0, 0.0]), sigma=0.05)
    with pytest.warns(UserWarning, match=r"one classifier sees between waymark \d of 8 and the data .* trust neither"):
        refit(far.sample(8000, seed=1), propose(2), Telescope(waves=0), steps=600)
    assert refit(far.sample(8000, seed=1), propose(2), Telescope(), steps=600).report.trouble is None


@pytest.mark.slow
def test_the_25_modes_of_a_wgan_are_found_as_a_network_finds_them():
    target, model = grid25().standardised(), generator()
    real = torch.tensor(target.sample(20000, seed=1), dtype=torch.float32)

    def points(ids):
        return model(obrs.normals(ids, 2, seed=5, like=real))

    def quality(method):
        ratio = refit(real, points, method, steps=1000)
        assert ratio.report.trouble is None
        x = points(np.arange(20800))
        kept = x[obrs.select(ratio(x), 8000, seed=0)].double().numpy()
        return (cdist(kept, target.means).min(1) < 4 * target.sigma[0]).mean()

    assert quality(Telescope()) > quality(Network()) - 0.03


@pytest.mark.parametrize("divergence", [0.7, 3.0, 60.0])
def test_the_gaussians_of_a_control_have_the_divergence_that_is_asked_for(divergence):
    z = np.random.default_rng(0).normal(size=(2, 500, 3))
    mean, variance = _apart(z[0] * [0.2, 1.0, 3.0] + 1.0, z[1], divergence)
    normal = torch.distributions.Normal
    of_data = normal(torch.tensor(mean), torch.tensor(variance).sqrt())
    found = torch.distributions.kl_divergence(of_data, normal(torch.zeros(3).double(), 1.0)).sum()
    assert abs(float(found) - divergence) < 1e-6


def test_the_mixtures_of_a_control_have_the_ratio_that_is_said():
    real, fake = GRID.sample(4000, seed=1), BLURRED.sample(4000, seed=2)
    pair = twins(real, fake, 20.0)
    assert pair.kind == "mixtures of Gaussians"
    x = pair.propose(np.arange(2**40, 2**40 + 20000)).astype(float)
    r = np.exp(pair.log_ratio(x))
    assert abs(r.mean() - 1) < 4 * r.std() / sqrt(len(r))
    assert r.std() > 0.3
    for k in range(2):  # r takes samples of the one to moments of the other
        difference = (r * x[:, k] ** 2).mean() - (pair.sample(20000, 3)[:, k] ** 2).mean()
        assert abs(difference) < 4 * (r * x[:, k] ** 2).std() / sqrt(10000)


def test_sets_with_the_same_moments_have_a_control_that_is_as_far_apart_as_asked():
    z = np.random.default_rng(0).normal(size=(500, 12))
    pair = twins(z, z, 20.0)
    assert pair.kind == "Gaussians"
    assert abs(pair.log_ratio(pair.sample(20000, 1)).mean() - 20) < 4 * sqrt(40 / 20000)


def test_bridges_that_separate_are_reported():
    sample, _ = shifted(4, 1.0)
    with pytest.warns(UserWarning, match=r"bridge 1 of 1 separates its two sets .* use Telescope\(bridges=2\)"):
        refit(sample(2000, seed=1), propose(4), Telescope(1, width=8), steps=5)


def test_correlations_between_many_numbers_are_found():
    """48 numbers, of which 24 pairs are correlated: squares alone would see nothing."""
    sample, log_ratio = correlated(48)
    fresh = sample(4000, seed=2)
    fitted = refit(sample(1500, seed=1), propose(48), Telescope(width=16, layers=1), steps=20, batch_size=256)
    assert abs(fitted(fresh).mean() - KL) < 0.1 * KL
    assert fitted.report.trouble is None
    model = propose(48)(np.arange(4000))
    assert abs(fitted(model).mean() - log_ratio(model).mean()) < 0.1 * abs(log_ratio(model).mean())


def test_an_ensemble_of_telescopes_is_judged_by_its_bridges():
    sample, _ = shifted(4, 1.0)
    two = Ensemble((Telescope(6, width=8), Telescope(4, width=8)))
    report = refit(sample(1000, seed=1), propose(4), two, steps=5).report
    assert report.log_loss < 0.02  # which is no trouble
    assert (len(report.bridges), report.trouble) == (10, None)
    for members, reason in [
        ((Telescope(4, width=8), Telescope(1, width=8)), r"bridge 1 of 1 separates .* use Telescope\(bridges=2\)"),
        ((Telescope(4, width=8), Head(lambda x: x)), "the classifier separates the two sets"),
    ]:
        with pytest.warns(UserWarning, match=reason):
            refit(sample(1000, seed=1), propose(4), Ensemble(members), steps=5)


def test_near_sets_give_the_ratio_that_a_classifier_gives():
    """Not only between Gaussians: a mixture, whose log-ratio is not quadratic."""
    target = Mixture([[-1.5], [1.5]], sigma=0.6)
    fitted = refit(target.sample(10000, seed=1), propose(1), Telescope(2, width=32), steps=200)
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


@pytest.mark.parametrize("options", [{"bridges": 0}, {"width": 1.5}, {"layers": 0}, {"waves": -1}, {"lr": -1.0}])
def test_bad_constants_are_refused(options):
    (name,) = options
    with pytest.raises(InputError, match=f"{name} must be"):
        Telescope(**options)
