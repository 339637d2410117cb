"""Slow and plain routes to the same numbers, for tests to compare with."""

import math

import numpy as np


def rate(log_ratio, log_c, weights=None):
    """E[min(c r, 1)] summed without rounding error."""
    x = np.asarray(log_ratio, dtype=np.float64).ravel()
    a = np.where(x > -np.inf, np.exp(np.minimum(np.where(x > -np.inf, x, 0) + float(log_c), 0)), 0)
    if weights is None:
        return math.fsum(a) / x.size
    w = np.broadcast_to(np.asarray(weights, dtype=np.float64), np.shape(log_ratio)).ravel()
    return math.fsum(np.where(w > 0, w * a, 0)) / math.fsum(w)


def bisect_log_c(log_ratio, budget, weights=None):
    """The root by bisection on log c: no insight, only patience; floored at 1/max r."""
    x = np.asarray(log_ratio, dtype=np.float64).ravel()
    w = None if weights is None else np.broadcast_to(np.asarray(weights, float), np.shape(log_ratio)).ravel()
    seen = x[x > -np.inf] if w is None else x[(w > 0) & (x > -np.inf)]
    low, high = -seen.max() - math.log(budget) - 1, -seen.min() + 1
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if rate(x, middle, w) < 1 / budget else (low, middle)
    return max(high, -seen.max())


def normal(x, mean, sd):
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
