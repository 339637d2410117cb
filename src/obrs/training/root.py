"""The constant of one small batch in a few calls: what `solve_log_c` finds, without what it is ready for.

A training step solves for c on a few hundred log-ratios. There the checks, layouts and backends of `solve_log_c` cost
ten times the solution itself, and a tenth of a step of small perceptrons: `batch_root` does it in NumPy. On an
accelerator each call is a kernel to launch, and a look at a result waits for all before it: `device_root` has a tenth
of the kernels, and does not look.
"""

from bisect import bisect_left
from math import ceil, inf, log
from typing import Any

import numpy as np
import torch

__all__ = ["batch_root", "device_root"]

_SPAN = 600.0  # of log-ratios whose ratios to the largest are all normal float64
_ABOVE = 60.0  # over the reference of `device_root`: beyond the root, and n e^60 fits into a float32
_WITHOUT_FLOAT64 = {"mps"}  # kinds of devices


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


def device_root(log_ratio: torch.Tensor, budget: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log c and the log of the rate it gives, as scalar tensors on the device of the log-ratios.

    With the ratios sorted, the sum of min(c r, 1) is the least over j of c (the sum of the first j) + n - j. So c is
    the largest over j of (n / K - n + j) / (the sum of the first j), and no less than 1 / max r.

    Args:
        log_ratio: Shape `(n,)`; a NaN gives NaN, unless the budget is 1, and -inf is a ratio of 0.
        budget: Proposals per kept sample, at least 1.

    Example:
        >>> log_c, log_rate = device_root(torch.tensor([4.0, 1.0, 0.5, 0.5]).log(), budget=2)
        >>> log_c.exp(), log_rate.exp()
        (tensor(0.5000), tensor(0.5000))
    """
    if budget == 1:
        return log_ratio.new_full((), inf), log_ratio.new_zeros(())
    wide = torch.float32 if log_ratio.device.type in _WITHOUT_FLOAT64 else torch.float64
    x = log_ratio.detach().to(wide).sort().values  # ascending; NaN comes last
    # With 1/c at r[first], all from there on, at least n / K, are accepted: 1/c is not below. Nor is it e^60 above: of
    # n / K something is left for r[first] and those before it, and be it the last bit.
    n = len(x)
    target = n / budget
    first = n - max(ceil(target), 1)
    smallest = x.masked_fill(x == -inf, inf).amin()
    reference = torch.maximum(x[first], smallest)
    sums = (x - reference).clamp(max=_ABOVE).exp().cumsum(0)[first:]
    needed = torch.arange(n - first, dtype=wide, device=x.device) + (target - (n - first - 1))
    edge = reference - (needed / sums).amax().log()
    edge = torch.clamp(edge, smallest, x[-1])  # the last if K >= M, the first if a share of 1/K is not above 0
    log_rate = (x - edge).clamp(max=0.0).exp().mean().log()
    return (-edge).to(log_ratio.dtype), log_rate.to(log_ratio.dtype)
