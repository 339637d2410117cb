"""Intervals at many budgets: from influences, and from groups that are left out."""

import numpy as np
import pytest
from scipy.stats import t as student_t

from obrs.errors import InputError
from obrs.metrics.curve import GROUPS, Curve, group_labels, student


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("freedom", [19, 49])
def test_quantiles_are_those_of_student(confidence, freedom):
    assert student(confidence, freedom) == pytest.approx(student_t.ppf((1 + confidence) / 2, freedom), rel=2e-4)


def test_error_of_a_mean_is_that_of_its_groups():
    x = np.random.default_rng(0).standard_normal((400, 3)) @ np.array([[1.0, 1, 0], [0, 0.2, 0], [0, 0, 2]])
    labels = group_labels(400, seed=0)
    assert np.bincount(labels).tolist() == [20] * GROUPS
    means = np.stack([x[labels == g].mean(axis=0) for g in range(GROUPS)])
    left_out = np.stack([x[labels != g].mean(axis=0) for g in range(GROUPS)])
    curve = Curve.from_groups(x.mean(axis=0), left_out)
    assert curve.standard_error == pytest.approx(means.std(axis=0, ddof=1) / np.sqrt(20))
    difference = means[:, 1] - means[:, 0]
    assert curve.difference(1, 0).standard_error == pytest.approx(difference.std(ddof=1) / np.sqrt(20))
    interval = curve.estimate(2, confidence=0.9)
    reach = student_t.ppf(0.95, 19) * curve.standard_error[2]
    assert (interval.low, interval.high) == pytest.approx((interval.value - reach, interval.value + reach), rel=1e-4)


def test_intervals_of_a_value_end_at_its_bounds_and_those_of_a_difference_do_not():
    left_out = 0.99 + np.linspace(-0.01, 0.01, 20)[:, None] * [1, -1]
    curve = Curve.from_groups(np.array([0.99, 0.99]), left_out, (0.0, 1.0))
    assert curve.estimate(0).high == 1.0 > curve.estimate(0).low
    assert curve.difference(0, 1).low == -curve.difference(0, 1).high < 0
    with pytest.raises(InputError, match="confidence must be a probability between 0 and 1, got 1"):
        curve.estimate(0, confidence=1)
