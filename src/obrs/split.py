"""Split one mean budget among groups whose proposals are made separately, so that the least divergence is left.

With the shares of the groups among the kept fixed, budgets K_g cost `sum shares K_g` proposals per sample and leave
`sum shares D(K_g)`. D falls and is convex in K, so the best budgets have equal marginal gains.
"""

from typing import Any

import numpy as np

from ._checks import round_up
from ._prefix import Prefix
from .divergences import DIVERGENCES, FDivergence
from .errors import BudgetError
from .root import brent

__all__ = ["left_after", "split_budget"]

Floats = np.ndarray[Any, Any]

_POINTS = 96  # of the grid of budgets, even in their logarithm


def left_after(parts: list[Floats], budgets: Floats, div: FDivergence) -> Floats:
    """Return the divergence that is left in each group, of its log-ratios, at its budget or the least it can have."""
    prefixes = [Prefix(part) for part in parts]
    pairs = zip(prefixes, budgets.tolist(), strict=True)
    return np.array([x.divergence_left(div, max(k, x.least_budget)) for x, k in pairs])


def split_budget(parts: list[Floats], shares: Floats, budget: float, div: FDivergence | None) -> Floats:
    """Return the budgets K_g that leave least, with `sum shares K_g` at most `budget`.

    Args:
        parts: Log-ratios of proposals of each group, of which some have r > 0.
        shares: The shares of the groups among the kept, which sum to 1.
        budget: Proposals per kept sample, on average over what is kept.
        div: The divergence whose mean over the kept is made least; None makes the largest KL of a group least.

    Example:
        >>> near, far = np.zeros(100), np.linspace(-3, 3, 100)
        >>> split_budget([near, far], np.array([0.5, 0.5]), 3.0, DIVERGENCES["kl"]).round(2)
        array([1., 5.])
    """
    prefixes = [Prefix(part) for part in parts]
    least = np.array([x.least_budget for x in prefixes])
    if budget < shares @ least:
        raise BudgetError(f"budget {budget:g} is below {round_up(float(shares @ least)):g}, which these groups need")
    most = np.maximum([x.max_budget for x in prefixes], least * (1 + 1e-9))
    grid = np.exp(np.linspace(np.log(least), np.log(most), _POINTS, axis=1))
    left = np.array([[x.divergence_left(div or DIVERGENCES["kl"], k) for k in row.tolist()]
                     for x, row in zip(prefixes, grid, strict=True)])  # fmt: skip
    if shares @ most <= budget:
        return most
    if div is None:

        def budgets_at(level: float) -> Floats:
            return np.array([np.interp(-level, -row, ks) for row, ks in zip(left, grid, strict=True)])

        return budgets_at(brent(lambda level: float(shares @ budgets_at(level)) - budget, 0.0, float(left.max())))
    # From one point of the grid to the next, in the order of what a proposal removes; of the last step a part.
    step = np.diff(grid, axis=1)
    gain = np.minimum.accumulate(-np.diff(left, axis=1) / step, axis=1)
    order = np.argsort(-gain, axis=None, kind="stable")
    cost = (shares[:, None] * step).reshape(-1)[order]
    taken = np.empty(cost.size)
    taken[order] = np.clip((budget - shares @ least - np.cumsum(cost)) / cost + 1, 0, 1)
    return np.asarray(least + np.sum(taken.reshape(step.shape) * step, axis=1))
