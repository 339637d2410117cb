"""Precision-recall curves: against finite distributions, normal densities and each other."""

from statistics import NormalDist

import numpy as np
import pytest
import torch

import obrs
from obrs.errors import BudgetError, InputError
from obrs.metrics.curves import PRCurve, classifier_curve, prd_curve, profile_curve

PLACES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])


def at_places(*counts):
    """Points in four clusters, so many in each."""
    return np.repeat(PLACES, counts, axis=0) + np.random.default_rng(0).normal(scale=0.1, size=(sum(counts), 2))


def exact(p, q, lam):
    """Sum min(lam p, q), of Sajjadi et al."""
    return np.minimum(np.asarray(p) * lam[:, None], q).sum(axis=1)


def test_prd_of_separate_clusters_is_that_of_their_histograms():
    p, q = np.array([0.4, 0.3, 0.3, 0.0]), np.array([0.1, 0.3, 0.4, 0.2])
    curve = prd_curve(real=at_places(80, 60, 60, 0), fake=at_places(10, 30, 40, 20), clusters=4, runs=2, points=51)
    inner = slice(1, -1)
    expected = exact(p, q, curve.lam[inner])
    assert curve.precision[inner] == pytest.approx(expected, abs=1e-9)
    assert curve.recall[inner] == pytest.approx(expected / curve.lam[inner], abs=1e-9)
    assert (curve.precision[-1], curve.recall[0]) == pytest.approx((0.8, 1.0))  # a fifth of the fakes is nowhere real
    assert (curve.precision[0], curve.recall[-1]) == (0, 0)
    assert (curve.n_real, curve.n_fake) == (200, 100)


def test_prd_takes_weights_and_counts():
    real, fake = at_places(50, 50, 50, 50), at_places(80, 40, 40, 40)
    weights = np.repeat([0.5, 1, 1, 1], [80, 40, 40, 40])
    curve = prd_curve(real=real, fake=fake, clusters=4, runs=1, points=51, weights=weights)
    assert curve.area == pytest.approx(1, abs=2e-3)  # 40 of each are left: the distribution of real
    plain = prd_curve(real=real, fake=fake, clusters=4, runs=1, points=51)
    assert plain.area < 0.97
    counted = prd_curve(real=real, fake=fake, clusters=4, runs=1, points=51, counts=np.full(200, 2))
    assert counted.precision == pytest.approx(plain.precision)
    assert (plain.n_fake, counted.n_fake) == (200, 400)


def test_f_scores_are_those_of_sajjadi():
    curve = prd_curve(real=at_places(80, 60, 60, 0), fake=at_places(10, 30, 40, 20), clusters=4, runs=1)
    p, r = curve.precision[1:-1], curve.recall[1:-1]
    for beta in (8, 1 / 8, 1):
        assert curve.f_beta(beta) == pytest.approx(np.max((1 + beta**2) * p * r / (beta**2 * p + r)))
    assert curve.f_beta(8) > curve.f_beta(1 / 8)  # recall is 1, precision is not


def test_classifier_curve_of_two_normals():
    n, rng = 40_000, np.random.default_rng(0)
    real, fake = rng.normal(1.0, 1.0, n), rng.normal(0.0, 1.0, n)  # log p/q = x - 1/2
    curve = classifier_curve(real=real, fake=fake, points=21)
    z = NormalDist().cdf
    for lam, precision in zip(curve.lam[1:-1], curve.precision[1:-1], strict=True):
        cut = 0.5 - np.log(lam)
        expected = lam * z(cut - 1) + 1 - z(cut)
        assert abs(precision - expected) < 5 * (1 + lam) / np.sqrt(n)
    monotone = classifier_curve(real=np.tanh(real / 9), fake=np.tanh(fake / 9), points=21)
    assert monotone.precision == pytest.approx(curve.precision)


def test_classifier_curve_of_few_values_is_that_of_their_histograms():
    p, q = np.array([0.1, 0.3, 0.6]), np.array([0.5, 0.3, 0.2])
    scores = [np.repeat([0.0, 1.0, 2.0], (10 * x).round().astype(int)) for x in (p, q)]
    curve = classifier_curve(real=torch.tensor(scores[0]), fake=scores[1], points=33)
    assert curve.precision[1:-1] == pytest.approx(exact(p, q, curve.lam[1:-1]))
    assert (curve.precision[-1], curve.recall[0]) == pytest.approx((1, 1))
    weighted = classifier_curve(real=scores[0], fake=[0.0, 1.0, 2.0], weights=[5, 3, 2], points=33)
    assert weighted.precision == pytest.approx(curve.precision)
    apart = classifier_curve(real=[2.0, 3.0], fake=[0.0, 1.0])
    assert (apart.area, apart.f_beta(1)) == (0, 0)


def test_three_curves_of_one_pair_agree():
    rng = np.random.default_rng(0)
    real, fake = rng.normal(0.7, 1.0, (20_000, 1)), rng.normal(0.0, 1.0, (20_000, 1))
    log_ratio = 0.7 * fake[:, 0] - 0.7**2 / 2
    by_scores = classifier_curve(real=0.7 * real[:, 0] - 0.7**2 / 2, fake=log_ratio, points=41)
    by_ratio = profile_curve(log_ratio=log_ratio, points=41)
    by_clusters = prd_curve(real=real, fake=fake, clusters=30, runs=1, points=41)
    assert by_scores.precision == pytest.approx(by_ratio.precision, abs=0.02)
    assert by_clusters.precision[1:-1] == pytest.approx(by_ratio.precision[1:-1], abs=0.03)
    assert by_ratio.lam == pytest.approx(by_scores.lam)


def test_profile_curve_of_a_budget_is_that_of_the_profile_and_of_weighted_scores():
    log_ratio = np.random.default_rng(0).normal(-0.5, 1.0, 2000)
    curve, record = profile_curve(log_ratio=log_ratio, budget=2, points=65), obrs.Profile(log_ratio).curve(2, 65)
    assert isinstance(curve, PRCurve)
    assert np.array_equal(curve.precision, record.precision)
    assert (curve.n_real, curve.n_fake) == (None, 2000)
    assert curve.area > profile_curve(log_ratio=log_ratio, points=65).area


@pytest.mark.parametrize(
    ("call", "error", "line"),
    [
        (lambda: prd_curve(real=np.ones((9, 2)), fake=np.ones((9, 3))), InputError, "must have the same dimension"),
        (lambda: prd_curve(real=np.ones((3, 1)), fake=np.ones((3, 1))), InputError, "clusters must be at most 6"),
        (lambda: classifier_curve(real=[[0.0]], fake=[0.0]), InputError, r"real must be scores of shape \(n,\)"),
        (lambda: classifier_curve(real=[0.0], fake=[np.nan]), InputError, "fake must be scores, 1 of 1 are NaN"),
        (lambda: classifier_curve(real=[0.0], fake=[0.0], points=1), InputError, "points must be a whole number of at"),
        (
            lambda: classifier_curve(real=[0.0], fake=[0.0], weights=[1, 2]),
            InputError,
            r"weights must have shape \(1,\)",
        ),
        (lambda: profile_curve(log_ratio=[0.0], budget=0.5), BudgetError, "did you mean budget=2"),
        (lambda: profile_curve(log_ratio=[0.0]).f_beta(0), InputError, "beta must be a finite number above 0, got 0"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, line):
    with pytest.raises(error, match=line) as caught:
        call()
    assert "\n" not in str(caught.value)
