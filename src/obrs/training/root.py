"""The constant of one small batch in a dozen NumPy calls: what `solve_log_c` finds, without what it is ready for.

A training step solves for c on a few hundred log-ratios. There the checks, layouts and backends of `solve_log_c` cost
ten times the solution itself, and a tenth of a step of small perceptrons.
"""

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
    x = np.sort(log_ratio.astype(np.float64))  # ascending; NaN comes last
    n, top = len(x), float(x[-1])
    if not top - float(x[0]) < _SPAN:  # false for NaN and infinities, too
        return None
    if budget == 1:
        return inf, 0.0
    r = np.exp(x - top)
    free = np.cumsum(r)  # sum of the smallest, up to each
    target = n / budget
    if target <= free[-1]:  # K >= M: exact rejection
        return -top, log(float(free[-1]) / n)
    reached = free / r
    reached += np.arange(n - 1, -1, -1)  # falls from n to 1/M of n
    # the largest index, that is the fewest saturated, at which the target is reached
    last = n - 1 - int(np.argmax((reached >= target)[::-1]))
    return log((target - (n - 1 - last)) / float(free[last])) - top, -log(budget)
