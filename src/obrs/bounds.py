"""What a budget guarantees: bounds on the divergence that is left after rejection.

With M = max r / E_Q[r] and 1 <= K <= M, OBRS leaves at most what any p_a <= K q leaves; choosing p_a on a
path from q to p gives closed forms. They hold for the pair that they are computed on: for samples, the empirical
pair, whose M grows with the sample.

References:
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Theorem 3.2, corrected
"""

from collections.abc import Iterable
from math import inf, log
from typing import Any

import numpy as np

__all__ = ["general_bound", "kl_bound", "log_moment", "room"]

Floats = np.ndarray[Any, Any]


def room(nats: float, budgets: Iterable[float]) -> str:
    """Say in a line how much of a KL divergence budgets remove at most, log K; "" if there is nothing to say.

    Args:
        nats: KL(P||Q), an estimate.
        budgets: Budgets K; those that are not above 1 remove nothing, and are left out.

    Example:
        >>> print(room(17.2, [2.6]))
        K = 2.6 removes at most 0.96 of an estimated 17 nats: choose what it is spent on
        >>> print(room(0.3, [2, 4]))
        an estimated 0.3 nats, and K = 2 could remove 0.69
    """
    known = sorted({float(k) for k in budgets if k > 1})
    if not known or not nats > 0:
        return ""
    total = f"{nats:.2g}" if nats < 100 else f"{nats:.0f}"
    short = [k for k in known if log(k) < nats]
    if not short:
        return f"an estimated {total} nats, and K = {known[0]:.3g} could remove {log(known[0]):.2g}"
    most = ", ".join(f"{log(k):.2g}" for k in short)
    verb = "removes" if len(short) == 1 else "remove"
    each = ", ".join(f"{k:.3g}" for k in short)
    return f"K = {each} {verb} at most {most} of an estimated {total} nats: choose what it is spent on"


def general_bound(divergence: float, budget: float, max_budget: float) -> float:
    """Bound any f-divergence left: `D (1 - (K - 1)/(M - 1))`.

    The mixture p_a = q + s (p - q) stays below K q as long as 1 + s (M - 1) <= K, and by convexity
    D(P||P_a) <= (1 - s) D(P||Q). The paper has the smaller constant (K - 1)/M.

    Args:
        divergence: D_f(P||Q) before rejection, with f(1) = 0.
        budget: K.
        max_budget: M.

    Example:
        >>> general_bound(0.6, budget=2, max_budget=4)
        0.4
    """
    if budget >= max_budget:
        return 0.0
    return divergence * (1 - (budget - 1) / (max_budget - 1))


def kl_bound(log_ratio: Floats, mass: Floats, budget: float) -> float:
    """Bound KL(P||kept) by the geometric path: `(1 - b) (KL - R_b)`, R_b the Rényi divergence of order b.

    p_b = p^b q^(1-b) / E_Q[r^b] stays below K q exactly if b log M - log E_Q[r^b] <= log K; b is the root, which
    is `b log M + (1 - b) R_b = log K`. In the bound, (1 - b) R_b = -log E_Q[r^b].

    Args:
        log_ratio: Log-ratios with E_Q[r] = 1, 1-D, finite.
        mass: Masses of the proposals, sum 1.
        budget: K.

    Example:
        >>> round(kl_bound(np.log([1.8, 0.2]), np.array([0.5, 0.5]), budget=1.2), 4)
        0.2263
    """
    top = float(np.max(log_ratio))
    if log(budget) >= top:
        return 0.0
    # b log M - log E_Q[r^b] is concave and increases, its slope being log M minus a tilted mean of log r, so
    # Newton's steps from the left never overshoot; a smaller b is always a valid bound.
    b = 0.0
    for _ in range(60):
        moment = log_moment(log_ratio, mass, b)
        tilted = mass * np.exp(b * log_ratio - moment)
        step = (log(budget) - (b * top - moment)) / (top - float(np.sum(tilted * log_ratio)))
        b = min(b + step, 1.0)
        if step <= 1e-15:
            break
    kl = float(np.sum(mass * np.exp(log_ratio) * log_ratio))
    return max((1 - b) * kl + log_moment(log_ratio, mass, b), 0.0)


def log_moment(log_ratio: Floats, mass: Floats, order: float) -> float:
    """Return log E_Q[r^order]; the Rényi divergence of this order is it over (order - 1)."""
    exponents = order * log_ratio
    top = float(np.max(exponents))
    return top + float(np.log(np.sum(mass * np.exp(exponents - top)))) if top > -inf else -inf
