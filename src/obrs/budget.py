"""From a budget to the constant c: solve `E[min(c r, 1)] = 1/K` exactly, in log space.

`budget` is K, the proposals you can afford per sample you keep. With r = p/q under the model q, accepting
with probability min(c r, 1) is the best use of K for every f-divergence at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, log, prod
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from . import distributed, root
from ._arrays import (
    as_floats,
    detached,
    host_view,
    like,
    namespace,
    on_accelerator,
    segment_sum,
    shifted,
    wants_gradient,
    widest,
)
from ._inputs import (
    as_budgets,
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
from .distributed import Shards
from .errors import InputError, InputTypeError
from .root import Root
from .types import Array

__all__ = ["Cut", "acceptance_rate", "solve_cut", "solve_log_c"]

_TILE = 1 << 16
_FEW = 1 << 13  # log-ratios of a batch, for which calls cost more than work


@dataclass(frozen=True)
class Cut:
    """Where a budget cuts: `a = min(c r, 1)` and its rate Z = E_Q[a].

    Proposals with r < 1/c are free, a = c r; the others are kept for sure, a = 1.

    Args:
        log_c: The constant, a number or an array that broadcasts; +inf accepts whatever has r > 0.
        log_rate: log Z: -log K while K <= M, and -log M beyond. Constants of groups are not floored: -log K at every K.

    Example:
        >>> cut, log_ratio = Cut(log_c=np.log(0.5), log_rate=np.log(0.5)), np.log([4.0, 1.0, 0.5, 0.5])
        >>> np.exp(cut.log_a(log_ratio))
        array([1.  , 0.5 , 0.25, 0.25])
        >>> np.exp(cut.log_weight(log_ratio))
        array([4., 2., 2., 2.])
        >>> np.exp(cut.log_u(log_ratio))
        array([2., 1., 1., 1.])
    """

    log_c: Any
    log_rate: Any

    def log_a(self, log_ratio: Array) -> Array:
        """Return `log min(c r, 1)`. A NaN stays one, and r = 0 is NaN at c = inf: neither is ever accepted."""
        return namespace(log_ratio).clip(shifted(log_ratio, self.log_c), max=0.0)

    def log_weight(self, log_ratio: Array) -> Array:
        """Return `log(r/a) = max(log r, -log c)`, the importance weight that is left; r = 0 weighs nothing."""
        xp = namespace(log_ratio)
        return xp.where(log_ratio > -inf, self._larger(log_ratio), -inf)

    def log_u(self, log_ratio: Array) -> Array:
        """Return `log u = log(p/q~) = max(log r, -log c) + log Z`, with a gradient only where r > 1/c."""
        return self._larger(log_ratio) + self.log_rate

    def _larger(self, log_ratio: Array) -> Array:
        # Where it is not below, rather than where it is above: a NaN must be seen. Strictly above: at K > M the
        # largest ratio is no exception.
        xp, threshold = namespace(log_ratio), -self.log_c
        if is_torch_array(threshold):  # of a training step, where each microsecond counts: no promotion is needed
            return log_ratio.where(~(log_ratio <= threshold), threshold)
        if isinstance(threshold, float | np.ndarray):
            threshold = shifted(xp.zeros_like(log_ratio), threshold)
        return xp.where(log_ratio <= threshold, threshold, log_ratio)


def solve_log_c(
    log_ratio: Array,
    budget: float | Array,
    *,
    weights: Array | None = None,
    axis: int | None = None,
    groups: Array | None = None,
    check: bool = True,
    process_group: Any = None,
) -> Array:
    """Return `log c` such that accepting with probability `min(c r, 1)` keeps 1 in `budget` proposals.

    alpha(c) = E[min(c r, 1)] is concave, increasing and piecewise linear, so the root is exact: no bisection,
    no tolerance. If the budget exceeds M = max r / E[r], exact rejection is affordable and c = 1/max r;
    the rate is then 1/M, above 1/budget. At `budget=1`, `log c` is +inf.

    With `groups` c is never floored at 1/max r: a group whose M is below the budget would keep more than the others,
    and the groups would drift. Each keeps 1 in `budget`, whatever its M.

    The result is differentiable in `log_ratio` (torch, JAX). Inside `jax.jit` and `jax.vmap` values cannot be
    looked at, so nothing is checked there and `groups` are not available; without x64 the sums are then in
    float32, and the budget is met to about 1e-6. Elsewhere sums are in float64 whatever the input.

    Args:
        log_ratio: `log p(x) - log q(x)` of proposals from the model; any shape. -inf means r = 0. Half precision
            is widened to float32.
        budget: Proposals per kept sample, at least 1; with `axis` or `groups` also an array, one for each problem.
        weights: Masses of the proposals (a finite model, a vocabulary, importance weights), broadcast against
            `log_ratio`. They need not sum to 1; where one is 0 its log-ratio is ignored, even NaN.
        axis: Solve along this axis, one problem for each position on the others; None takes all together.
        groups: Integer labels 0 … G-1 of the shape of `log_ratio`: one problem per label. `Grouped` takes any labels.
        check: Refuse NaN, +inf and budgets out of reach. On an accelerator this costs the one synchronisation of
            the call; without it NaN accepts nothing, +inf everything, and a budget out of reach all that has r > 0.
        process_group: A process group of torch.distributed, such as `torch.distributed.group.WORLD`: each process
            gives its own log-ratios (and weights), as many as it has, and all get the c of all of them. Exact, by one
            reduction of a histogram and one exchange of the bin that c lies in. One problem: no `axis`, no `groups`.

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
    if is_number(budget):
        check_budget(budget)
    if process_group is not None:
        if axis is not None or groups is not None:
            raise InputError("process_group solves one problem over all shards; leave out axis and groups")
        return _log_c_of_shards(log_ratio, check_budget(budget), weights, check, process_group)
    x = as_log_ratio(log_ratio)
    w = as_weights(weights, x)
    problems, shape = _laid_out(x, axis, groups)
    share = 1 / as_budgets(budget, shape)
    x, w = problems.flat(x), None if w is None else problems.flat(w)
    found, log_c = _solve(x, w, share, problems, check)
    if wants_gradient(x):
        log_c = log_c + _zero_with_gradient(x, w, found, share, problems)
    xp = namespace(x)
    return xp.reshape(xp.astype(log_c, x.dtype, copy=False), shape)


def solve_cut(
    log_ratio: Array,
    budget: float,
    *,
    weights: Array | None = None,
    check: bool = True,
    process_group: Any = None,
) -> Cut:
    """Return log c with the rate that it gives on these log-ratios; scalar arrays without gradient.

    Args:
        log_ratio, budget, weights, check, process_group: As in `solve_log_c`.

    Example:
        >>> cut = solve_cut(np.log([4.0, 1.0, 0.5, 0.5]), budget=8)  # M is 8/3: exact rejection costs less
        >>> round(float(np.exp(cut.log_c)), 6), round(float(np.exp(cut.log_rate)), 6)
        (0.25, 0.375)
    """
    share = 1 / check_budget(budget)
    if process_group is not None:
        x, _, shards = _shards(log_ratio, share, weights, check, process_group)
        log_c = _constant_of(shards, share)
        kept = log(min(share, shards.reached)) if shards.reached > 0 else -inf
        return Cut(like(log_c, x), like(shards.log_mean if log_c == -shards.top else kept, x))
    x = as_log_ratio(log_ratio)
    w = as_weights(weights, x)
    x = detached(x)
    values, masses = (None, None) if on_accelerator(x) else (host_view(x), None if w is None else host_view(w))
    if values is None or (w is not None and masses is None):
        return _cut_on_device(as_rows(x, None), None if w is None else as_rows(w, None), share, check)
    if masses is None and share < 1 and values.size <= _FEW:
        value = np.sort(values, axis=None).astype(np.float64, copy=False)
        if (quick := root.of_batch(value, share)) is not None:
            log_c, log_least = quick[0], -value.item(-1)
            log_rate = log(share)
            if log_c <= log_least:  # exact rejection: more than 1/K is kept
                log_c, log_rate = log_least, quick[1]
            return Cut(like(log_c, x), like(log_rate, x))
    values, masses = values.reshape(1, -1), None if masses is None else masses.reshape(1, -1)
    found = _on_host(values, masses, share, _ONE, check)
    reached, log_least = found.reached.item(0), -found.top.item(0)
    log_c = float(_constant(found, share, floored=True)[0])
    log_rate = log(min(share, reached)) if reached > 0 else -inf  # unchecked, a budget may be out of reach
    if log_c == log_least:  # exact rejection: more than 1/K is kept
        log_rate = log(_mean_on_host(values, np.array([[log_c]]), masses, check)[0])
    return Cut(like(log_c, x), like(log_rate, x))


def _shards(log_ratio: Any, share: float, weights: Any, check: bool, group: Any) -> tuple[Array, Array | None, Shards]:
    """Solve over the shards of all processes; what is wrong with one of them is raised in all."""
    x = as_floats(log_ratio, "log_ratio")
    w = as_weights(weights, x)
    values, masses = host_view(detached(x)), None if w is None else host_view(w)
    if values is None or (w is not None and masses is None):
        raise InputTypeError("process_group cannot be used inside jax.jit")
    flat = values.reshape(-1).astype(np.float64)
    mass = None if masses is None else masses.reshape(-1).astype(np.float64)
    found = distributed.of_shards(flat, mass, share, group)
    if not found.mass:
        raise InputError(
            "weights must not all be 0" if found.size else "log_ratio must have at least one value, in all"
        )
    if check and found.bad:
        raise bad_ratios(found.bad, found.size, found.nans)
    slack = root.slack_of(found.size, w is not None)
    if check and (found.reached < share * (1 - slack) or not found.reached):
        raise out_of_reach(share, found.reached)
    return x, w, found


def _constant_of(found: Shards, share: float) -> float:
    """Return log c of all shards, with its floor."""
    return inf if share == 1 else max(found.log_c, -found.top) if found.top > -inf else found.log_c


def _log_c_of_shards(log_ratio: Any, budget: float, weights: Any, check: bool, group: Any) -> Array:
    share = 1 / budget
    x, w, found = _shards(log_ratio, share, weights, check, group)
    log_c = like(_constant_of(found, share), x)
    if not wants_gradient(x):
        return log_c
    xp = namespace(x)
    one = np.ones(1)
    of_all = Root(found.log_c * one, found.reached * one, found.top * one, found.mass * one)

    def over_all(terms: Array) -> Array:  # the sum over all shards, with the gradient of this one
        mine = xp.reshape(xp.sum(terms), (1,))
        return mine + (distributed.total(mine, group) - detached(mine))

    problems = replace(_ONE, sum=over_all)
    flat = problems.flat(x)
    zero = _zero_with_gradient(flat, None if w is None else problems.flat(w), of_all, share, problems)
    return log_c + xp.reshape(xp.astype(zero, x.dtype, copy=False), ())


def _cut_on_device(x: Array, w: Array | None, share: float, check: bool) -> Cut:
    found, log_c = _on_device(x, w, share, check)
    xp = namespace(x)
    accepted, _ = _mean_on_device(x, log_c[:, None], w)
    kept = xp.where(found.reached < share, found.reached, share)
    log_rate = xp.log(xp.where(log_c == -found.top, accepted, kept))
    return Cut(*(xp.astype(v, x.dtype, copy=False)[0] for v in (log_c, log_rate)))


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
    xp = namespace(x)
    shape = remaining_shape(x, axis)
    c = as_constant(log_c, x, axis)
    c = xp.reshape(c, (-1, 1)) if axis is not None and c.ndim else as_rows(broadcast(c, x, "log_c"), axis)
    w = as_weights(weights, x)
    x, w = as_rows(x, axis), None if w is None else as_rows(w, axis)
    elsewhere = on_accelerator(x) or wants_gradient(x) or wants_gradient(c)
    values, constants = (None, None) if elsewhere else (host_view(x), host_view(c))
    if values is None or constants is None:
        mean, bad = _mean_on_device(x, c, w)
        count = host_view(bad) if check else None
        if count is not None and count.any():
            raise bad_ratios(int(count), x.shape[0] * x.shape[1])
    else:
        mean = like(_mean_on_host(values, constants, None if w is None else host_view(w), check), x)
    return xp.reshape(xp.astype(mean, x.dtype, copy=False), shape)


@dataclass(frozen=True)
class _Problems:
    """How many problems are laid out in one array, and what the solver asks of such a layout.

    Attributes:
        name: What one problem is called in an error.
        flat: Lays an array out, as rows `(problems, n)` or flat `(n,)`.
        solve: (values, masses, shares) in NumPy -> `Root`.
        spread: (one number per problem, x) -> an array that broadcasts against x.
        sum: x -> its sum over each problem; differentiable.
        count: How many problems.
        anywhere: Whether they can also be solved on an accelerator and inside `jax.jit`.
        floored: Whether c is at least 1/max r.
    """

    name: str
    flat: Callable[[Array], Array]
    solve: Callable[[Any, Any, Any], Root]
    spread: Callable[[Any, Array], Array]
    sum: Callable[[Array], Array]
    count: int
    anywhere: bool
    floored: bool


def _rows(axis: int | None, count: int) -> _Problems:
    return _Problems(
        name="row",
        flat=lambda x: as_rows(x, axis),
        solve=root.of_rows,
        spread=lambda v, x: _beside(v, x)[:, None],
        sum=root.total,
        count=count,
        anywhere=True,
        floored=True,
    )


def _groups(group: Any, count: int) -> _Problems:
    return _Problems(
        name="group",
        flat=lambda x: namespace(x).reshape(x, (-1,)),
        solve=lambda values, masses, share: root.of_groups(values, masses, group, share),
        spread=lambda v, x: like(v[group], x),
        sum=lambda x: segment_sum(x, group, count),
        count=count,
        anywhere=False,
        floored=False,
    )


_ONE = _rows(None, 1)


def _laid_out(x: Array, axis: int | None, groups: Array | None) -> tuple[_Problems, tuple[int, ...]]:
    """Return the layout that `axis` or `groups` asks for, and the shape of the result."""
    if groups is None:
        shape = remaining_shape(x, axis)
        return _ONE if axis is None else _rows(axis, prod(shape)), shape
    if axis is not None:
        raise InputError("give axis or groups, not both")
    group, count = as_groups(groups, x)
    return _groups(group, count), (count,)


def _beside(v: Any, x: Array) -> Array:
    """Return one number per problem in the library and dtype of `x`; they may be there already."""
    return like(v, x) if isinstance(v, np.ndarray) else namespace(x).astype(v, x.dtype, copy=False)


def _solve(x: Array, w: Array | None, share: Any, problems: _Problems, check: bool) -> tuple[Root, Array]:
    """Return the roots, and log c where `x` lives."""
    if problems.anywhere and on_accelerator(x):
        return _on_device(x, w, share, check)
    values, masses = host_view(x), None if w is None else host_view(w)
    if values is not None and (w is None or masses is not None):
        found = _on_host(values, masses, share, problems, check)
        return found, like(_constant(found, share, problems.floored), x)
    if problems.anywhere:  # inside jit or vmap
        return _on_device(x, w, share, check)
    raise InputTypeError("groups cannot be solved inside jax.jit; solve outside it, or use axis")


def _on_host(values: Any, masses: Any, share: Any, problems: _Problems, check: bool) -> Root:
    """Solve in NumPy memory; raise if `check` finds log-ratios that are no numbers or a budget out of reach."""
    shares = np.broadcast_to(np.float64(share), (problems.count,))
    found = problems.solve(values, masses, shares)
    if not found.mass.all():
        raise InputError(f"weights must not all be 0{_where(found.mass == 0, problems)}")
    if not found.top.max() < inf:  # +inf, or NaN
        if check:
            check_ratios(values, masses)
        finite = np.where(np.isnan(values), -inf, np.minimum(values, np.finfo(values.dtype).max))
        found = problems.solve(finite, masses, shares)
    if check:
        slack = root.slack_of(values.shape[-1], masses is not None)
        short = (found.reached < share * (1 - slack)) | (found.reached == 0)
        if short.any():
            first = int(np.argmax(short))
            raise out_of_reach(float(shares[first]), float(found.reached[first]), _where(short, problems))
    return found


def _on_device(x: Array, w: Array | None, share: Any, check: bool) -> tuple[Root, Array]:
    """Solve where the array lives; one synchronisation if `check` looks at what was found."""
    xp = namespace(x)
    if isinstance(share, np.ndarray):
        share = like(share, x, dtype=widest(xp))
    found, facts = root.on_device(x, w, share), None
    if check:
        no_number = (xp.isnan(x) | (x == inf)) & (True if w is None else w > 0)
        wrong = [no_number, no_number & False if w is None else ~(w >= 0) | (w == inf)]
        counts = (xp.astype(xp.sum(xp.astype(mask, xp.int32)), found.reached.dtype) for mask in wrong)
        facts = host_view(xp.stack([xp.min(found.reached / share), *counts]))
    if facts is not None:  # else inside jit or vmap
        if facts[2]:
            raise bad_weights(int(facts[2]), x.shape[0] * x.shape[1])
        if facts[1]:
            raise bad_ratios(int(facts[1]), x.shape[0] * x.shape[1])
        if not facts[0] >= 0:
            raise InputError("weights must not all be 0")
        slack = 8 * float(np.finfo(facts.dtype).eps) * x.shape[-1] ** 0.5
        if facts[0] < 1 - slack:
            worst = int(xp.argmin(found.reached / share))
            raise out_of_reach(float((found.reached * 0 + share)[worst]), float(found.reached[worst]))
    return found, _constant(found, share, floored=True)


def _constant(found: Root, share: Any, floored: bool) -> Any:
    """Return log c, +inf at budget 1; floored, at least -log max r: beyond, exact rejection costs less."""
    xp = namespace(found.log_c)
    least = xp.where(found.top > -inf, -found.top, -inf)
    log_c = xp.maximum(found.log_c, least) if floored else found.log_c
    if is_number(share):
        return xp.full_like(log_c, inf) if share == 1 else log_c
    return xp.where(share == 1, inf, log_c)


def _zero_with_gradient(x: Array, w: Array | None, found: Root, share: Any, problems: _Problems) -> Array:
    """Return 0 with the gradient of log c: that of a constant minus a log-sum-exp over {a < 1}.

    So asking for a gradient never changes the value.
    """
    xp = namespace(x)
    if w is not None:
        x = xp.where(w > 0, x, -inf)
    few = namespace(found.top)
    # At c = 1/max r log c is minus the maximum: a log-sum-exp over the largest alone. At K = 1 it is constant.
    floored = (found.log_c < -found.top) & problems.floored
    if isinstance(share, np.ndarray) and not isinstance(found.top, np.ndarray):
        share = like(share, found.top)
    low = few.where(floored, found.top, few.where(found.top * 0 + share < 1, -inf, inf))
    high = few.where(floored, inf, -found.log_c)
    still = detached(x)
    free = (still >= problems.spread(low, x)) & (still < problems.spread(high, x)) & (still > -inf)
    centre = problems.spread(few.where(floored, found.top, -found.log_c), x)
    terms = xp.where(free, xp.exp(xp.where(free, x - centre, 0.0)), 0.0)
    if w is not None:
        alone = problems.spread(few.astype(floored, found.top.dtype), x) > 0
        terms = xp.where(alone, terms, terms * w)
    sums = problems.sum(terms)
    lse = xp.log(xp.where(sums > 0, sums, 1.0))
    return detached(lse) - lse


def _mean_on_host(x: Any, log_c: Any, weights: Any, check: bool) -> Any:
    """Average min(c r, 1) over each row, in float64, a tile at a time."""
    rows, n = x.shape
    if weights is not None:
        weights = root.in_range(weights, np.max(weights, axis=1, keepdims=True))
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
    xp = namespace(x)
    wide = widest(xp)
    x, log_c = xp.astype(x, wide, copy=False), xp.astype(log_c, wide, copy=False)
    w = xp.ones_like(x) if weights is None else root.relative_masses(xp.astype(weights, wide, copy=False))
    bad = xp.sum(xp.astype((xp.isnan(x) | (x == inf)) & (w > 0), xp.int32))
    possible = x > -inf
    log_a = xp.where(possible, x, 0.0) + xp.where(possible, log_c, 0.0)
    a = xp.where(possible, xp.exp(xp.where(log_a < 0, log_a, 0.0)), 0.0)
    return root.total(a * w) / root.total(w), bad


def _where(wrong: Any, problems: _Problems) -> str:
    return "" if problems.count == 1 else f" in {problems.name} {int(np.argmax(wrong))}"
