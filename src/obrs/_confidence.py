"""How much to raise the rate of a fit so that the true rate keeps the budget with a given probability.

Let c° be the constant whose true rate is exactly t = 1/K, and let a = min(c° r, 1), which lies in [0, 1]
and has mean t. If the fit solves rate_n(c) = t + e, then c < c° means rate_n(c°) >= t + e, because rate_n
is increasing. So the budget is overrun only if one mean of n bounded variables, at a fixed c°, exceeds its
known expectation t by e: no bound that is uniform in c is needed.

* Hoeffding: P(mean >= t + e) <= exp(-n kl(t + e, t)). As kl >= 2 e^2 this e is never above that of the
  Dvoretzky-Kiefer-Wolfowitz inequality, which holds uniformly in c: rate_n(c) is an integral of survival
  functions.
* Empirical Bernstein, tighter if a varies little: e = sqrt(2 V log(2/d) / n) + 7 log(2/d) / (3 (n - 1)).
  c° is unknown, but if neither bound fails it lies between the root c_- of rate_n(c) = t and any c_+ found so
  far; a moves from a_- to a_+ there, so V <= E_n[max((a_- - m)^2, (a_+ - m)^2)] for any m.

Each gets half of the permitted failures, so the smaller of the two may be used.
"""

from math import log, sqrt
from typing import Any

import numpy as np

from ._inputs import is_number
from ._solve_host import solve_rows
from .errors import BudgetError, InputError

__all__ = ["confident_budget"]


def confident_budget(log_ratio: Any, budget: float, confidence: float) -> float:
    """Return the budget to solve for, at most `budget`.

    Args:
        log_ratio: Log-ratios of independent proposals, 1-D NumPy.
        budget: The budget to keep.
        confidence: Probability with which to keep it.
    """
    if not is_number(confidence) or not 0 < float(confidence) < 1:
        raise InputError(f"confidence must be a probability between 0 and 1, got {confidence!r}")
    n, share = log_ratio.size, 1 / budget
    failure = (1 - float(confidence)) / 2
    excess = hoeffding_excess(share, n, failure)
    if n > 1:
        scale = log(2 / failure)
        least = _acceptance_at(log_ratio, share)
        for _ in range(3):  # each round starts from the excess of the last; it settles quickly
            most = _acceptance_at(log_ratio, share + excess)
            middle = share + excess / 2
            spread = np.maximum((least - middle) ** 2, (most - middle) ** 2)
            variance = float(np.sum(spread)) / (n - 1)
            excess = min(excess, sqrt(2 * variance * scale / n) + 7 * scale / (3 * (n - 1)))
    used = 1 / min(1.0, share + excess)
    if np.count_nonzero(log_ratio > -np.inf) * used < n:
        raise BudgetError(
            f"budget {budget:g} cannot be kept with confidence {confidence:g} from {n} proposals: "
            "too many have r = 0; give more proposals or a larger budget"
        )
    return used


def _acceptance_at(log_ratio: Any, share: float) -> Any:
    """Return min(c r, 1) with c solved for this share, not floored at 1/max r."""
    solution = solve_rows(log_ratio[None], None, np.array([min(1.0, share) * log_ratio.size]))
    possible = log_ratio > -np.inf
    log_a = np.where(possible, log_ratio, 0.0) + solution.log_c[0]
    return np.where(possible, np.exp(np.minimum(log_a, 0.0)), 0.0)


def hoeffding_excess(share: float, n: int, failure: float) -> float:
    """Return the e with `n kl(share + e, share) = log(1 / failure)`, or all that is left above `share`."""

    def exponent(excess: float) -> float:
        p = share + excess
        right = (1 - p) * log((1 - p) / (1 - share)) if p < 1 else 0.0
        return n * (p * log(p / share) + right)

    low, high = 0.0, 1 - share
    if high <= 0 or exponent(high) < log(1 / failure):
        return high
    for _ in range(60):  # one number, to the last bit
        middle = (low + high) / 2
        low, high = (middle, high) if exponent(middle) < log(1 / failure) else (low, middle)
    return high
