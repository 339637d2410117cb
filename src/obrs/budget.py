"""From a budget to the constant c: solve `E[min(c r, 1)] = 1/K` exactly, in log space.

`budget` is K, the proposals you can afford per sample you keep. With r = p/q under the model q, accepting
with probability min(c r, 1) is the best use of K for every f-divergence at once.
"""

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from . import _solve_device
from ._arrays import detached, host_view, like, on_accelerator, wants_gradient, widest
from ._inputs import (
    as_constant,
    as_groups,
    as_log_ratio,
    as_rows,
    as_weights,
    bad_ratios,
    bad_weights,
    broadcast,
    check_budget,
    check_ratios,
    is_number,
    out_of_reach,
    remaining_shape,
)
from ._layout import Layout, by_group, by_row
from ._solve_host import Solution
from .errors import BudgetError, InputError, InputTypeError
from .types import Array

__all__ = ["acceptance_rate", "rate", "solve_log_c"]

_SLACK = 8 * np.finfo(np.float64).eps  # a share of r > 0 that is this close to 1/K meets the budget
_TILE = 1 << 16


def solve_log_c(
    log_ratio: Array,
    budget: float,
    *,
    weights: Array | None = None,
    axis: int | None = None,
    groups: Array | None = None,
    check: bool = True,
) -> Array:
    """Return `log c` such that accepting with probability `min(c r, 1)` keeps 1 in `budget` proposals.

    alpha(c) = E[min(c r, 1)] is concave, increasing and piecewise linear, so the root is exact: no bisection,
    no tolerance. If the budget exceeds M = max r / E[r], exact rejection is affordable and c = 1/max r;
    the rate is then 1/M, above 1/budget. At `budget=1`, `log c` is +inf.

    The result is differentiable in `log_ratio` (torch, JAX). Inside `jax.jit` and `jax.vmap` values cannot be
    looked at, so nothing is checked there and `groups` are not available; without x64 the sums are then in
    float32, and the budget is met to about 1e-6. Elsewhere sums are in float64 whatever the input.

    Args:
        log_ratio: `log p(x) - log q(x)` of proposals from the model; any shape. -inf means r = 0. Half precision
            is widened to float32.
        budget: Proposals per kept sample, at least 1.
        weights: Masses of the proposals (a finite model, a vocabulary, importance weights), broadcast against
            `log_ratio`. They need not sum to 1; where one is 0 its log-ratio is ignored, even NaN.
        axis: Solve along this axis, one problem for each position on the others; None takes all together.
        groups: Integer labels 0 … G-1 of the shape of `log_ratio`: one problem per label.
        check: Refuse NaN, +inf and budgets out of reach. On an accelerator this costs the one synchronisation of
            the call; without it NaN accepts nothing, +inf everything, and a budget out of reach all that has r > 0.

    Returns:
        A scalar array, or one of the remaining shape (`axis`) or of shape `(G,)` (`groups`), in the backend, dtype
        and device of `log_ratio`.

    Example:
        >>> import numpy as np
        >>> log_ratio = np.log([4.0, 1.0, 0.5, 0.5])
        >>> log_c = solve_log_c(log_ratio, budget=2)
        >>> np.minimum(np.exp(log_c + log_ratio), 1).round(3)
        array([1.  , 0.5 , 0.25, 0.25])

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Theorem 3.1
        | Variational Rejection Sampling (Grover et al., 2018)
    """
    share = 1 / check_budget(budget)
    x = as_log_ratio(log_ratio)
    w = as_weights(weights, x)
    xp = array_namespace(x)
    if groups is not None:
        if axis is not None:
            raise InputError("give axis or groups, not both")
        if host_view(x) is None:
            raise InputTypeError("groups cannot be solved inside jax.jit; solve outside it, or use axis")
        layout, shape = by_group(*as_groups(groups, x)), None
        x, w = xp.reshape(x, (-1,)), None if w is None else xp.reshape(w, (-1,))
    else:
        shape = remaining_shape(x, axis)
        x, w = as_rows(x, axis), None if w is None else as_rows(w, axis)
        layout = by_row(*x.shape)

    there = on_accelerator(x) and groups is None
    values, masses = None if there else host_view(x), None if w is None or there else host_view(w)
    if values is None or (masses is None and w is not None):
        log_c = _solve_on_device(x, w, share, check)
    else:
        solution = _solve_on_host(values, masses, share, layout, check)
        log_c = like(_floored(solution, share), x)
        if wants_gradient(x):
            log_c = log_c + _zero_with_gradient(x, w, solution, share, layout)
    log_c = xp.astype(log_c, x.dtype, copy=False)
    return log_c if shape is None else xp.reshape(log_c, shape)


def acceptance_rate(
    log_ratio: Array,
    log_c: Array,
    *,
    weights: Array | None = None,
    axis: int | None = None,
    check: bool = True,
) -> Array:
    """Return the share of proposals that `min(c r, 1)` accepts, E[min(c r, 1)]; differentiable.

    Args:
        log_ratio: Log-ratios of proposals from the model.
        log_c: The constant: a number, or an array that broadcasts against `log_ratio`; with `axis`, one of the
            remaining shape, as `solve_log_c` returns it.
        weights: Masses of the proposals, as in `solve_log_c`.
        axis: Average along this axis only.
        check: Refuse NaN and +inf log-ratios; otherwise NaN accepts nothing and +inf everything.

    Example:
        >>> round(float(acceptance_rate([0.0, -1.0], log_c=0.0)), 4)
        0.6839
    """
    x = as_log_ratio(log_ratio)
    xp = array_namespace(x)
    shape = remaining_shape(x, axis)
    c = as_constant(log_c, x, axis)
    c = xp.reshape(c, (-1, 1)) if axis is not None and c.ndim else as_rows(broadcast(c, x, "log_c"), axis)
    w = as_weights(weights, x)
    x, w = as_rows(x, axis), None if w is None else as_rows(w, axis)
    there = on_accelerator(x) or wants_gradient(x) or wants_gradient(c)
    values, constants = (None, None) if there else (host_view(x), host_view(c))
    if values is None or constants is None:
        mean, bad = _mean_on_device(x, c, w)
        count = host_view(bad) if check else None
        if count is not None and count.any():
            raise bad_ratios(int(count), x.shape[0] * x.shape[1])
    else:
        mean = like(_mean_on_host(values, constants, None if w is None else host_view(w), check), x)
    return xp.reshape(xp.astype(mean, x.dtype, copy=False), shape)


def rate(share: float) -> float:
    """Say a budget as the share to keep: `rate(0.25)` is `budget=4`.

    Example:
        >>> rate(0.25)
        4.0
    """
    if not is_number(share) or not 0 < float(share) <= 1:
        raise BudgetError(f"rate must be a share in (0, 1], got {share!r}; for proposals per sample use budget=K")
    return 1 / float(share)


def _solve_on_host(values: Any, masses: Any, share: float, layout: Layout, check: bool) -> Solution:
    """Solve in NumPy memory; raise if `check` finds log-ratios that are no numbers or a budget out of reach."""
    masses = None if masses is None else _in_range(masses, layout.largest(masses), layout.expand)
    whole = layout.mass(masses)
    if not whole.all():
        raise InputError(f"weights must not all be 0{_where(whole == 0, layout)}")
    solution = layout.solve(values, masses, share * whole)
    if np.any(np.isnan(solution.top) | (solution.top == inf)):
        if check:
            check_ratios(values, masses)
        finite = np.where(np.isnan(values), -inf, np.minimum(values, np.finfo(values.dtype).max))
        solution = layout.solve(finite, masses, share * whole)
    short = (solution.reached < share * whole * (1 - _SLACK)) | (solution.reached == 0)
    if check and short.any():
        first = int(np.argmax(short))
        raise out_of_reach(share, solution.reached[first] / whole[first], _where(short, layout))
    return solution


def _in_range(masses: Any, largest: Any, expand: Callable[[Any], Any]) -> Any:
    """Divide masses by the largest of their problem if a sum of them could leave the range of float64."""
    largest = np.asarray(largest, dtype=np.float64)
    if np.all((largest == 0) | ((largest > 1e-200) & (largest < 1e200))):
        return masses
    return masses.astype(np.float64) / expand(np.where(largest > 0, largest, 1.0))


def _floored(solution: Solution, share: float) -> Any:
    """Return log c, at least -log max r: beyond that exact rejection costs less than the budget."""
    if share == 1:
        return np.full_like(solution.log_c, inf)
    return np.maximum(solution.log_c, np.where(np.isfinite(solution.top), -solution.top, -inf))


def _zero_with_gradient(x: Array, w: Array | None, solution: Solution, share: float, layout: Layout) -> Array:
    """Return 0 with the gradient of log c: that of a constant minus a log-sum-exp over {a < 1}.

    The value itself comes from the host in float64, so asking for a gradient never changes it.
    """
    xp = array_namespace(x)
    if w is not None:
        x = xp.where(w > 0, x, -inf)
    # At c = 1/max r log c is minus the maximum: a log-sum-exp over the largest alone. At K = 1 it is constant.
    floored = solution.log_c < -solution.top
    low = np.where(floored, solution.top, -inf if share < 1 else inf)
    high = np.where(floored, inf, solution.edge)
    still = detached(x)
    free = (still >= layout.spread(low, x)) & (still < layout.spread(high, x)) & (still > -inf)
    centre = layout.spread(np.where(floored, solution.top, -solution.log_c), x)
    terms = xp.where(free, xp.exp(xp.where(free, x - centre, 0.0)), 0.0)
    if w is not None:
        terms = xp.where(layout.spread(floored.astype(np.float64), x) > 0, terms, terms * w)
    sums = layout.sum(terms)
    lse = xp.log(xp.where(sums > 0, sums, 1.0))
    return detached(lse) - lse


def _solve_on_device(x: Array, w: Array | None, share: float, check: bool) -> Array:
    """Solve where the array lives; one synchronisation if `check` looks at what was found."""
    xp = array_namespace(x)
    log_c, reached, *wrong = _solve_device.solve_rows(x, w, share)
    facts = None
    if check:
        facts = host_view(xp.stack([xp.min(reached), *(xp.astype(xp.sum(k), reached.dtype) for k in wrong)]))
    if facts is not None:  # else inside jit or vmap
        if facts[2]:
            raise bad_weights(int(facts[2]), x.shape[0] * x.shape[1])
        if facts[1]:
            raise bad_ratios(int(facts[1]), x.shape[0] * x.shape[1])
        slack = 8 * float(np.finfo(facts.dtype).eps) * x.shape[-1] ** 0.5
        if facts[0] < share * (1 - slack):
            raise out_of_reach(share, float(facts[0]))
    return xp.where(xp.isnan(log_c), inf, inf) if share == 1 else log_c


def _mean_on_host(x: Any, log_c: Any, weights: Any, check: bool) -> Any:
    """Average min(c r, 1) over each row, in float64, a tile at a time."""
    rows, n = x.shape
    if weights is not None:
        weights = _in_range(weights, np.max(weights, axis=1), lambda largest: largest[:, None])
    sums, masses = np.zeros(rows), np.zeros(rows)
    height = max(1, _TILE // n)
    for top in range(0, rows, height):
        at = slice(top, top + height)
        for left in range(0, n, _TILE):
            to = slice(left, left + _TILE)
            tile = x[at, to].astype(np.float64)
            c = log_c[at if len(log_c) > 1 else slice(None), to if log_c.shape[1] > 1 else slice(None)]
            w = None if weights is None else weights[at, to]
            lowest, largest = tile.min(), tile.max()
            odd = not (lowest > -inf and largest < inf)  # NaN, too
            if check and odd:
                check_ratios(tile, w)
            with np.errstate(invalid="ignore", over="ignore"):  # -inf + inf: r = 0 is not accepted at c = inf either
                accepted = np.exp(np.minimum(tile + c, 0.0))
            if odd:
                accepted[~(tile > -inf)] = 0.0
                accepted[tile == inf] = 1.0
            sums[at] += np.sum(accepted, axis=1) if w is None else np.sum(accepted * w, axis=1, dtype=np.float64)
            masses[at] += tile.shape[1] if w is None else np.sum(w, axis=1, dtype=np.float64)
    if not masses.all():
        raise InputError("weights must not all be 0")
    return sums / masses


def _mean_on_device(x: Array, log_c: Array, weights: Array | None) -> tuple[Array, Array]:
    """Average min(c r, 1) over each row in array-API operations, differentiably; count what is no number."""
    xp = array_namespace(x)
    wide = widest(xp)
    x, log_c = xp.astype(x, wide, copy=False), xp.astype(log_c, wide, copy=False)
    w = xp.ones_like(x) if weights is None else _solve_device.relative_masses(xp.astype(weights, wide, copy=False))
    bad = xp.sum(xp.astype((xp.isnan(x) | (x == inf)) & (w > 0), xp.int32))
    possible = x > -inf
    log_a = xp.where(possible, x, 0.0) + xp.where(possible, log_c, 0.0)
    a = xp.where(possible, xp.exp(xp.where(log_a < 0, log_a, 0.0)), 0.0)
    return _solve_device.total(a * w) / _solve_device.total(w), bad


def _where(wrong: Any, layout: Layout) -> str:
    return "" if layout.count == 1 else f" in {layout.name} {int(np.argmax(wrong))}"
