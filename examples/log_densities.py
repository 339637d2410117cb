"""Two log-densities in NumPy: an unbiased mean under the target, with its interval, for K proposals per kept sample.

Run:  python examples/log_densities.py

Target P: the banana of Haario et al., x1 ~ N(0, 1) and x2 ~ N(x1², 0.5²), of which E[x2] = 1 exactly. Model Q: a
Student t that is wider. Both densities are normalised, so the mean of r = p/q under Q is 1. What is kept at a budget is
not yet the target; the weights that are left make the average unbiased.
"""

import numpy as np

import obrs

MEAN, SD, DEGREES = np.array([0.0, 1.0]), np.array([1.3, 2.5]), 5  # of Q
BUDGET, PROPOSALS = 4, 60_000


def propose(ids):
    """Student t: a normal, divided by the root of an independent χ² over its degrees of freedom."""
    z = obrs.normals(ids, 2 + DEGREES, seed=0)
    scale = np.sqrt((DEGREES - 2) / np.sum(z[:, 2:] ** 2, axis=1))  # so that the covariance is SD²
    return MEAN + SD * z[:, :2] * scale[:, None]


def log_p(x):
    return -0.5 * x[:, 0] ** 2 - 0.5 * ((x[:, 1] - x[:, 0] ** 2) / 0.5) ** 2 - np.log(2 * np.pi * 0.5)


def log_q(x):
    square = np.sum(((x - MEAN) / SD) ** 2, axis=1) / (DEGREES - 2)
    return -0.5 * (DEGREES + 2) * np.log1p(square) + np.log(DEGREES / (2 * np.pi * (DEGREES - 2) * np.prod(SD)))


def log_ratio(x):
    return log_p(x) - log_q(x)


def main():
    # The rule is fitted on other proposals than those that are averaged: then no bias is left at all.
    pilot = log_ratio(propose(np.arange(10**9, 10**9 + 20_000)))
    rule = obrs.Budgeted.fit(pilot, BUDGET)
    kept = obrs.sample(propose, log_ratio, proposed=PROPOSALS, rule=rule)
    profile = obrs.Profile(pilot)
    print(f"KL to the target: {profile.divergence('kl'):.3f} before, {profile.divergence('kl', BUDGET):.3f} after")
    print(f"kept {len(kept)} of {kept.proposed}, worth {kept.ess:.0f} samples of the target")
    print("exact      1.0000")
    print(f"plain     {kept.x[:, 1].mean():7.4f}, the average without weights")
    estimate = kept.mean(lambda x: x[:, 1], confidence=0.95, unbiased=True)
    print(f"unbiased  {estimate.value:7.4f}, 95 % from {estimate.low:.4f} to {estimate.high:.4f}")


if __name__ == "__main__":
    main()
