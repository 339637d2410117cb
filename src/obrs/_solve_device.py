"""The exact solver in array-API operations alone: for accelerators and inside `jax.jit`.

The same mathematics as `_solve_host`, by sorting each row whole: shapes are fixed, nothing is looked at
from the host, and the last line is differentiable.
"""

from typing import Any

from array_api_compat import array_namespace

from ._arrays import detached, widest
from .types import Array

__all__ = ["log_c_of_set", "relative_masses", "solve_rows", "total"]


def solve_rows(x: Array, weights: Array | None, share: float) -> tuple[Array, Array, Array, Array]:
    """Solve each row of `x`, shape `(rows, n)`, for the share of its mass that is to be accepted.

    Returns:
        `log_c` floored at 1/max r, the share of mass with r > 0, how many log-ratios are NaN or +inf, and how many
        weights are no masses; each of shape `(rows,)`.
    """
    xp = array_namespace(x)
    n = x.shape[-1]
    x = xp.astype(x, widest(xp), copy=False)
    if weights is None:
        mass = xp.full_like(x, 1 / n)
        no_mass = xp.zeros(x.shape[:1], dtype=xp.int32)
    else:
        mass = xp.astype(weights, x.dtype, copy=False)
        no_mass = xp.sum(xp.astype(~(mass >= 0) | (mass == xp.inf), xp.int32), axis=-1)
        mass = relative_masses(mass)
        mass = mass / total(mass)[:, None]
    ignored = mass <= 0
    bad = xp.sum(xp.astype((xp.isnan(x) | (x == xp.inf)) & ~ignored, xp.int32), axis=-1)
    x = xp.where(xp.isnan(x) | ignored, -xp.inf, x)
    x = xp.where(x == xp.inf, xp.finfo(x.dtype).max, x)
    still = detached(x)

    if weights is None:
        value, sorted_mass = xp.sort(still, axis=-1), mass
    else:
        order = xp.argsort(still, axis=-1)
        value = xp.take_along_axis(still, order, axis=-1)
        sorted_mass = xp.take_along_axis(mass, order, axis=-1)
    positive = value > -xp.inf
    sorted_mass = xp.where(positive, sorted_mass, 0.0)
    tail = xp.flip(xp.cumulative_sum(xp.flip(sorted_mass, axis=-1), axis=-1), axis=-1)

    # See `_solve_host._finish` for why the quantile is a safe reference.
    quantile = xp.max(xp.where(positive & (tail >= share), value, -xp.inf), axis=-1)
    first = xp.min(xp.where(positive, value, xp.inf), axis=-1)
    first = xp.where(xp.isinf(first), 0.0, first)
    reference = xp.where(xp.isinf(quantile), first, quantile)[:, None]
    height = 41 - _log(xp.asarray(share, dtype=x.dtype), xp)
    offset = xp.where(positive, value - reference, -xp.inf)
    weighted = sorted_mass * xp.exp(xp.minimum(offset, height))
    # What comes before each value: not cumsum - itself, which cancels where the ratios grow fast.
    lower = xp.cumulative_sum(weighted, axis=-1)
    lower = xp.concat([xp.zeros_like(lower[:, :1]), lower[:, :-1]], axis=-1)
    free = (tail + xp.exp(-xp.clip(offset, 0, None)) * lower >= share) | (offset <= 0)
    tau = xp.max(xp.where(free, value, -xp.inf), axis=-1)
    for _ in range(3):
        tau = -log_c_of_set(value, sorted_mass, value <= tau[:, None], share, reference)
        tau = xp.maximum(tau, reference[:, 0])
    log_c = log_c_of_set(x, mass, still <= tau[:, None], share, reference)
    top = xp.max(x, axis=-1)
    log_c = xp.where(detached(log_c + top) < 0, -top, log_c)
    return log_c, total(sorted_mass), bad, no_mass


def log_c_of_set(x: Array, mass: Array, free: Array, share: Any, reference: Array) -> Array:
    """Return log c once it is known who is `free` (a < 1): a constant minus a log-sum-exp over them.

    This is where the gradient comes from: -c r_i / sum_j c r_j over the free, and 0 for the others.
    """
    xp = array_namespace(x)
    counted = free & (x > -xp.inf)
    inner = xp.where(counted, x, reference)  # so that no exp of a discarded entry reaches the gradient
    lse = reference[:, 0] + _log(total(xp.where(counted, mass * xp.exp(inner - reference), 0.0)), xp)
    deficit = share - total(xp.where(free, 0.0, mass))
    still = detached(x)
    edge = xp.min(xp.where(free, xp.inf, still), axis=-1)
    largest = xp.max(xp.where(counted, still, -xp.inf), axis=-1)
    log_c = xp.where(deficit > 0, _log(xp.where(deficit > 0, deficit, 1.0), xp) - lse, -edge)
    # Between the largest free value and the smallest saturated one, even if the deficit is an ulp off.
    value = detached(log_c)
    return log_c + (xp.maximum(xp.minimum(value, -largest), -edge) - value)


def relative_masses(mass: Array) -> Array:
    """Return masses over the largest of their row, so that no sum of them leaves the range.

    By logarithms: a compiler may merge two divisions into one that overflows.
    """
    xp = array_namespace(mass)
    log_mass = _log(mass, xp)
    return xp.exp(log_mass - xp.max(log_mass, axis=-1, keepdims=True))


def total(x: Array) -> Array:
    """Sum the last axis, in pairs where only float32 is to be had: its error then stays near 1e-7."""
    xp = array_namespace(x)
    if x.dtype == xp.float32:
        while x.shape[-1] > 64:
            half = x.shape[-1] // 2
            rest = x[..., 2 * half :]
            x = x[..., :half] + x[..., half : 2 * half]
            x = xp.concat([x, rest], axis=-1) if rest.shape[-1] else x
    return xp.sum(x, axis=-1)


def _log(x: Array, xp: Any) -> Array:
    """Return log x, and -inf at 0 without a warning."""
    return xp.where(x > 0, xp.log(xp.where(x > 0, x, 1.0)), -xp.inf)
