"""Signed weights: the signal under a peak by sWeights, handed on as a tenth of the events.

Run:  python examples/signed_weights.py

A mass spectrum has 4000 signal events in a peak and 16 000 of background. sWeights (Pivk and Le Diberder, 2005) are
functions of the mass; weighted with them, histograms of any other variable show the signal alone. Many are negative.
Each event that goes on to the next step costs time there, so 2000 are kept, each with probability min(c |w|, 1).
"""

import numpy as np

import obrs

SIGNAL, BACKGROUND, KEEP = 4_000, 16_000, 2_000
LIFETIME = 1.5  # of the signal: what is to be measured; background lives 0.5


def events(seed):
    """Masses in [0, 10], and decay times, which depend on the kind of event and not on its mass."""
    rng = np.random.default_rng(seed)
    mass = np.concatenate([rng.normal(5, 0.3, SIGNAL), rng.uniform(0, 10, BACKGROUND)])
    time = np.concatenate([rng.exponential(LIFETIME, SIGNAL), rng.exponential(0.5, BACKGROUND)])
    return mass, time


def sweights(mass):
    """The weights of the signal, from the two known shapes and their yields, which a fit finds."""
    shape = np.stack([np.exp(-0.5 * ((mass - 5) / 0.3) ** 2) / (0.3 * np.sqrt(2 * np.pi)), np.full_like(mass, 0.1)])
    yields = np.array([len(mass) / 2, len(mass) / 2])
    for _ in range(200):  # the EM algorithm
        yields = np.sum(yields[:, None] * shape / (yields @ shape), axis=1)
    covariance = np.linalg.inv(shape / (yields @ shape) ** 2 @ shape.T)
    return covariance[0] @ shape / (yields @ shape)


def summary(name, weight, time):
    """The yield and the lifetime of the signal, with their errors."""
    total, mean = weight.sum(), np.average(time, weights=weight)
    error = np.sqrt(np.sum((weight * (time - mean)) ** 2)) / total
    print(f"{name:11} {len(weight):6} events, total {total:7.1f}, lifetime {mean:.3f} ± {error:.3f}")


def main():
    mass, time = events(seed=0)
    weight = sweights(mass)
    log_ratio, sign = np.log(np.abs(weight)), np.sign(weight)
    profile = obrs.Profile(log_ratio, sign=sign)
    print(f"{np.mean(weight < 0):.0%} of the weights are negative; exact lifetime {LIFETIME}")
    summary("all", weight, time)
    kept = obrs.unweight(weight, KEEP)
    summary("kept", kept.weight, time[kept.index])
    ess = profile.ess(len(weight) / KEEP)
    print(f"a kept event is worth {ess / profile.ess():.2f} times one of all; signs allow net² = {profile.net**2:.2f}")


if __name__ == "__main__":
    main()
