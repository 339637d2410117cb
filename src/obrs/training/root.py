"""The constant of one small batch in a few NumPy calls: what `solve_log_c` finds, without what it is ready for.

A training step solves for c on a few hundred log-ratios. There the checks, layouts and backends of `solve_log_c` cost
ten times the solution itself, and a tenth of a step of small perceptrons.
"""

from bisect import bisect_left
from math import inf, log
from typing import Any

import numpy as np

__all__ = ["batch_root"]

_SPAN = 600.0  # of log-ratios whose ratios to the largest are all normal float64


def batch_root(log_ratio: "np.ndarray[Any, Any]", budget: float) -> tuple[float, float] | None:
    """Return log c and the log of the rate it gives, or None where the general solver is needed.

    With the ratios sorted, c r_j = 1 saturates the j before it and accepts j + (the sum of the others) / r_j of all.
    The first j at which that reaches n / K is where the root is; then c is one division.

    Args:
        log_ratio: Shape `(n,)`. If one is not finite, or they span more than 600, the answer is None.
        budget: Proposals per kept sample, at least 1.

    Example:
        >>> log_c, log_rate = batch_root(np.log([4.0, 1.0, 0.5, 0.5]), budget=2)
        >>> round(np.exp(log_c), 6), round(np.exp(log_rate), 6)
        (np.float64(0.5), np.float64(0.5))
    """
    x = log_ratio.astype(np.float64)
    x.sort()  # ascending; NaN comes last
    n, top = len(x), x.item(-1)
    if not top - x.item(0) < _SPAN:  # false for NaN and infinities, too
        return None
    if budget == 1:
        return inf, 0.0
    x -= top
    ratios = np.exp(x, out=x)
    sums = np.add.accumulate(ratios)
    r, free = ratios.data, sums.data  # views that give Python's own numbers
    target = n / budget
    if target <= free[-1]:  # K >= M: exact rejection
        return -top, log(free[-1] / n)
    # what c = 1/r_j accepts falls with j, from n to n / M: the last j at which it is still enough
    last = bisect_left(range(n), True, key=lambda j: free[j] / r[j] + (n - 1 - j) < target) - 1
    return log((target - (n - 1 - last)) / free[last]) - top, -log(budget)
