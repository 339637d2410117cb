"""Slow and plain routes to the same numbers, for tests to compare with."""

import math

import numpy as np

LOG_2 = np.log(2.0)
F = {
    "kl": lambda u: u * np.log(u),
    "rkl": lambda u: -np.log(u),
    "gan": lambda u: u * np.log(u) - (u + 1) * np.log(u + 1) + 2 * LOG_2,
    "tv": lambda u: np.abs(u - 1) / 2,
    "chi2": lambda u: (u - 1) ** 2,
    "hellinger": lambda u: (np.sqrt(u) - 1) ** 2,
}
"""f-divergences as plain functions of u = p/q, with f(1) = 0: those of the paper, and two more."""


def rate(log_ratio, log_c, weights=None):
    """E[min(c r, 1)] summed without rounding error."""
    x = np.asarray(log_ratio, dtype=np.float64).ravel()
    a = np.where(x > -np.inf, np.exp(np.minimum(np.where(x > -np.inf, x, 0) + float(log_c), 0)), 0)
    if weights is None:
        return math.fsum(a) / x.size
    w = np.broadcast_to(np.asarray(weights, dtype=np.float64), np.shape(log_ratio)).ravel()
    return math.fsum(np.where(w > 0, w * a, 0)) / math.fsum(w)


def bisect_log_c(log_ratio, budget, weights=None):
    """The root by plain bisection on log c, floored at 1/max r."""
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


def ratio_left(p, q, budget, step):
    """The ratio u = r Z/a that rejection leaves between densities on a grid, by root finding."""
    from scipy import optimize

    r = p / q
    if budget == 1:
        return r

    def rate(log_c):
        return np.sum(q * np.minimum(np.exp(log_c) * r, 1)) * step

    low = -np.log(r.max())
    log_c = low if rate(low) > 1 / budget else optimize.brentq(lambda x: rate(x) - 1 / budget, low, 60.0, xtol=1e-14)
    return np.maximum(r, np.exp(-log_c)) * rate(log_c)
