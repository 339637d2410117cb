"""Precision-recall curves: against finite distributions, normal densities and the profile of a log-ratio."""

from statistics import NormalDist

import numpy as np
import pytest
import torch

import obrs
from obrs.errors import InputError
from obrs.metrics.curves import PRCurve, classifier_curve


def exact(p, q, lam):
    """Sum min(lam p, q), of Sajjadi et al."""
    return np.minimum(np.asarray(p) * lam[:, None], q).sum(axis=1)


def test_f_scores_are_those_of_sajjadi():
    p, q = (np.repeat(range(4), counts) for counts in ([80, 60, 60, 0], [10, 30, 40, 20]))
    curve = classifier_curve(real=-p, fake=-q)  # a fifth of the fakes is nowhere real
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


def test_the_curve_is_that_of_the_profile_of_the_log_ratio():
    rng = np.random.default_rng(0)
    real, fake = (0.7 * rng.normal(mean, 1.0, 20_000) - 0.7**2 / 2 for mean in (0.7, 0.0))
    curve, profile = classifier_curve(real=real, fake=fake, points=41), obrs.Profile(fake).curve(1, 41)
    assert isinstance(curve, PRCurve)
    assert curve.precision == pytest.approx(profile.precision, abs=0.02)
    assert curve.lam == pytest.approx(profile.lam)


@pytest.mark.parametrize(
    ("call", "error", "line"),
    [
        (lambda: classifier_curve(real=[[0.0]], fake=[0.0]), InputError, r"real must be scores of shape \(n,\)"),
        (lambda: classifier_curve(real=[0.0], fake=[np.nan]), InputError, "fake must be scores, 1 of 1 are NaN"),
        (lambda: classifier_curve(real=[0.0], fake=[0.0], points=1), InputError, "points must be a whole number of at"),
        (
            lambda: classifier_curve(real=[0.0], fake=[0.0], weights=[1, 2]),
            InputError,
            r"weights must have shape \(1,\)",
        ),
        (
            lambda: classifier_curve(real=[0.0], fake=[0.0]).f_beta(0),
            InputError,
            "beta must be a finite number above 0, got 0",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, line):
    with pytest.raises(error, match=line) as caught:
        call()
    assert "\n" not in str(caught.value)
