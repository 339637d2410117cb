"""Log-ratios with planted faults: what a doctor must not call fit.

A fault is a function of (n, rng): scores of n real and n fake samples, and their true log-ratios.
"""

from math import log

import numpy as np


def shift(d):
    """Exact log-ratios of N(d, 1) against N(0, 1)."""
    return lambda n, rng: (rng.normal(d * d / 2, d, n), rng.normal(-d * d / 2, d, n))


def exact(true):
    def make(n, rng):
        real, fake = true(n, rng)
        return real, fake, real, fake

    return make


def map_scores(f):
    def make(n, rng):
        real, fake = shift(1.0)(n, rng)
        return f(real), f(fake), real, fake

    return make


def add_noise(sd):
    def make(n, rng):
        real, fake = shift(1.0)(n, rng)
        return real + sd * rng.normal(size=n), fake + sd * rng.normal(size=n), real, fake

    return make


def drop_mode(share):
    """A target with a mode of this share that the model never makes."""

    def log_ratio(x):
        return np.logaddexp(log(1 - share) - x**2 / 2, log(share) - (x - 8) ** 2 / 2) + (x - 0.7) ** 2 / 2

    def true(n, rng):
        real = rng.normal(size=n) + 8 * (rng.random(n) < share)
        return log_ratio(real), log_ratio(rng.normal(0.7, 1, n))

    return exact(true)


def repeat_rows(times):
    def make(n, rng):
        rows = shift(1.0)(max(n // times, 20), rng)
        real, fake = (np.repeat(x, times)[:n] for x in rows)
        return real, fake, real, fake

    return make


def outliers(real_too):
    def make(n, rng):
        real, fake = shift(1.0)(n, rng)
        far = [50.0 * (rng.random(n) < 0.01) for _ in range(2)]
        return real + far[0] * real_too[0], fake + far[1] * real_too[1], real, fake

    return make


def unrelated_scores(n, rng):
    real, fake = shift(1.0)(n, rng)
    return rng.normal(size=n), rng.normal(size=n), real, fake


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


FAULTS = {
    "exact, 0.5 apart": exact(shift(0.5)),
    "exact, 1 apart": exact(shift(1.0)),
    "exact, 2 apart": exact(shift(2.0)),
    "exact, 4 apart": exact(shift(4.0)),
    "three times too steep": map_scores(lambda x: 3 * x),
    "three times too flat": map_scores(lambda x: x / 3),
    "off by 2": map_scores(lambda x: x + 2),
    "priors of 1 to 4": map_scores(lambda x: x - log(4)),
    "base 10": map_scores(lambda x: x / log(10)),
    "sign": map_scores(np.sign),
    "tanh": map_scores(lambda x: np.tanh(4 * x)),
    "clipped": map_scores(lambda x: np.clip(x, -1, 1)),
    "cubed": map_scores(lambda x: x**3),
    "probabilities": map_scores(sigmoid),
    "wrong way round": map_scores(np.negative),
    "unrelated": unrelated_scores,
    "each row ten times": repeat_rows(10),
    "30 % missing": drop_mode(0.3),
    "5 % missing": drop_mode(0.05),
    "outliers among the real": outliers((1, 0)),
    "outliers among the fake": outliers((0, 1)),
    "noise of 0.5": add_noise(0.5),
    "noise of 1": add_noise(1.0),
    "noise of 2": add_noise(2.0),
    "no overlap": lambda n, rng: (*(x := (rng.normal(30, 3, n), rng.normal(-30, 3, n))), *x),
}


def kl_removed(scores, true_budget, real_scores):
    """KL before minus after, for the rule that these scores of fakes and reals make at a budget."""
    from obrs import Budgeted

    rule = Budgeted.fit(scores, true_budget)
    return float(np.mean(rule(real_scores)) - np.log(np.mean(np.exp(rule(scores)))))
