"""Pools of ratios: sums that are scores until their scale is fitted."""

import numpy as np
import pytest

import obrs
from obrs.ratios import combine


def samples(n, seed):
    """Two numbers each: N((1, .7), 1) against N(0, 1), so that log r is a sum of one term for each number."""
    rng = np.random.default_rng(seed)
    return rng.normal([1.0, 0.7], 1.0, (n, 2)), rng.normal(size=(n, 2))


def first(x):
    return x[:, 0] - 0.5


def second(x):
    return 0.7 * x[:, 1] - 0.245


def test_a_sum_of_what_two_ratios_see_is_the_ratio_of_both():
    pool = combine([(first, 1.0), (second, 1.0)])
    real, fake = samples(5000, seed=0)
    np.testing.assert_allclose(pool(fake), first(fake) + second(fake))
    removed = [obrs.diagnose(f(real), f(fake), 2.6).at_budget.removed for f in (first, second, pool)]
    assert removed[2].low > max(removed[0].high, removed[1].high)
    assert not pool.calibrated


def test_the_scale_of_a_pool_is_refitted_on_held_out_samples():
    """Twice the one and half the other are no log-ratio; the best slope makes one of the sum that E_Q[r] = 1."""
    pool = combine([(first, 2.0), (second, 1.0)])
    fresh = samples(20_000, seed=1)
    assert obrs.diagnose(pool(fresh[0]), pool(fresh[1]), 2.6).verdict == "repairable"
    calibrated = pool.calibrate(*samples(20_000, seed=2))
    assert calibrated.calibrated
    assert obrs.diagnose(calibrated(fresh[0]), calibrated(fresh[1]), 2.6).verdict == "fit"
    r = np.exp(calibrated(fresh[1]))
    assert abs(r.mean() - 1) < 4 * r.std() / len(r) ** 0.5 + 0.02
    assert combine([(calibrated, 1.0)])(fresh[0][:5]) == pytest.approx(calibrated(fresh[0][:5]))


def test_plans_of_scores_show_rates_only():
    pool = combine([(first, 2.0), (second, 1.0)])
    scores = pool(samples(2000, seed=3)[1])
    (row,) = obrs.Profile(scores, calibrated=pool.calibrated).plan([4], n=100)
    assert set(row) == {"budget", "rate", "rate_low", "rate_high", "proposals"}
    (whole,) = obrs.Profile(scores).plan([4], n=100)
    assert row["rate"] == whole["rate"]
    page = str(obrs.Profile(scores, calibrated=False).plan([2, 4], groups=np.arange(2000) % 2))
    assert "kl" not in page
    assert "scores, not ratios" in page
