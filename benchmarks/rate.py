"""How far the rate of fresh proposals is from 1/K, when c was fitted on a sample of n.

    python benchmarks/rate.py [--out FILE.json] [--repeats 4000]

The log-ratio is normal under the model, so the rate that a fitted c has on all proposals is known in closed form:
E[min(c r, 1)] = c E[r] Phi((a - s^2)/s) + Phi(-a/s), where a = -log c - mu. Reported is the root mean square of its
distance to 1/K over many samples; the theory is sd(min(c r, 1)) / sqrt(n).
"""

from math import sqrt

import numpy as np
from bench import options, write
from scipy.stats import norm

import obrs

BUDGET, SIZES, SPREADS = 2.6, (100, 1000, 10_000), (0.5, 1.0, 2.0)


def rate(log_c, spread):
    """Return E[min(c r, 1)] for log r normal with E[r] = 1."""
    edge = -log_c + spread**2 / 2
    return np.exp(log_c) * norm.cdf((edge - spread**2) / spread) + norm.cdf(-edge / spread)


def theory(spread, n):
    """Return the standard deviation of the mean of n acceptances at the true c, by quadrature."""
    z = np.linspace(-12, 12, 200_001)
    weight, log_ratio = norm.pdf(z) / norm.pdf(z).sum(), spread * z - spread**2 / 2
    log_c = obrs.solve_log_c(log_ratio, BUDGET, weights=weight)
    accept = np.minimum(np.exp(log_ratio + float(log_c)), 1)
    return sqrt(float(weight @ accept**2 - (weight @ accept) ** 2) / n)


def main():
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=4000)
    arguments = parser.parse_args()
    draw, rows = np.random.default_rng(0), []
    for spread in SPREADS:
        for n in SIZES:
            samples = draw.normal(-(spread**2) / 2, spread, size=(arguments.repeats, n))
            off = rate(obrs.solve_log_c(samples, BUDGET, axis=1), spread) - 1 / BUDGET
            row = {"sd": spread, "n": n, "off": float(np.sqrt(np.mean(off**2))), "theory": theory(spread, n)}
            rows.append({key: round(value, 6) for key, value in row.items()})
            print(f"sd {spread:3}  n {n:6}  off by {row['off']:.4f}  theory {row['theory']:.4f}", flush=True)
    write(arguments.out, "rate", {"budget": BUDGET, "repeats": arguments.repeats}, rows=rows)


if __name__ == "__main__":
    main()
