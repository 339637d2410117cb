"""From a budget to the constant c: solve `E[min(c r, 1)] = 1/K` exactly, in log space.

`budget` is K, the proposals you can afford per sample you keep. With r = p/q under the model q, accepting
with probability min(c r, 1) is the best use of K for every f-divergence at once.
"""

from dataclasses import dataclass
from math import inf, log, prod
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from ._arrays import (
    array_like,
    as_floats,
    detach,
    host_view,
    is_accelerated,
    namespace,
    segment_sum,
    shift,
    wants_gradient,
    widest,
)
from ._checks import (
    LIMIT,
    as_log_ratio,
    as_weights,
    bad_ratios,
    bad_weights,
    check_budget,
    check_budgets,
    check_groups,
    check_ratios,
    count_bad,
    ends,
    out_of_reach,
    remaining_shape,
    row_view,
)
from .errors import InputError, InputTypeError
from .root import all_reduce, slack_of, solve_groups, solve_pool, solve_rows
from .types import Array

__all__ = ["Cut", "solve_cut", "solve_log_c"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Cut:
    """Where a budget cuts: `a = min(c r, 1)` and its rate Z = E_Q[a].

    A proposal with r < 1/c is kept with probability a = c r, any other for sure, a = 1.

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
        """Return `log min(c r, 1)`. NaN stays NaN, and r = 0 at c = inf becomes NaN: neither is ever accepted."""
        return namespace(log_ratio).clip(shift(log_ratio, self.log_c), max=0.0)

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
            threshold = shift(xp.zeros_like(log_ratio), threshold)
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
        log_ratio: `log p(x) - log q(x)` of proposals from the model; any shape. -inf means r = 0; other numbers are
            at most 1e6 from 0. Half precision is widened to float32.
        budget: Proposals per kept sample, at least 1; with `axis` or `groups` also an array, one for each problem.
        weights: Masses of the proposals (a finite model, a vocabulary, importance weights), broadcast against
            `log_ratio`. They need not sum to 1; where one is 0 its log-ratio is ignored, even NaN.
        axis: Solve along this axis, one problem for each position on the others; None takes all together.
        groups: Integer labels 0 … G-1 of the shape of `log_ratio`: one problem per label. `Grouped` takes any labels.
        check: Refuse NaN, +inf and budgets out of reach. On an accelerator this costs the one synchronisation of
            the call; without it NaN accepts nothing, +inf everything, and a budget out of reach all that has r > 0.
        process_group: A process group of torch.distributed, such as `torch.distributed.group.WORLD`: each process
            gives its own log-ratios (and weights), as many as it has, and all get the c of all of them, exactly. One
            problem: no `axis`, no `groups`.

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
    if process_group is not None:
        if axis is not None or groups is not None:
            raise InputError("process_group solves one problem over all shards; leave out axis and groups")
        return _over_shards(log_ratio, check_budget(budget), weights, check, process_group)[0]
    x = as_log_ratio(log_ratio)
    problems = _Problems.arrange(x, as_weights(weights, x, relative=True), axis, groups)
    share = 1 / check_budgets(budget, problems.shape)
    log_c, top = problems.solve(share, check)
    if wants_gradient(x):
        log_c = problems.add_gradient(log_c, top)
    return namespace(x).reshape(_match_kind(log_c, x), problems.shape)


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
    if process_group is not None:
        log_c, log_rate = _over_shards(log_ratio, check_budget(budget), weights, check, process_group)
        return Cut(detach(log_c), log_rate)
    x = detach(as_log_ratio(log_ratio))
    problems, share = _Problems.arrange(x, as_weights(weights, x, relative=True), None, None), 1 / check_budget(budget)
    log_c, top = problems.solve(share, check)
    if isinstance(log_c, np.ndarray):
        c = log_c.item(0)
        log_rate = log(share) if -top.item(0) < c < inf else problems.log_rate(log_c, top).item(0)
        return Cut(array_like(c, x), array_like(log_rate, x))
    xp = namespace(x)
    usual = (log_c > -top) & (log_c < inf)
    return Cut(*(_match_kind(v, x)[0] for v in (log_c, xp.where(usual, log(share), problems.log_rate(log_c, top)))))


@dataclass(frozen=True)
class _Problems:
    """Problems that are solved at once: rows, of which one may be all there is, or groups.

    Args:
        x: Log-ratios, `(problems, n)`, or `(n,)` with groups.
        w: Masses of the same shape over the largest, or None for 1 each.
        group: The number of each log-ratio's group, or None.
        shape: Of the answer.
    """

    x: Array
    w: Array | None
    group: Floats | None
    shape: tuple[int, ...]

    @classmethod
    def arrange(cls, x: Array, w: Array | None, axis: int | None, groups: Array | None) -> "_Problems":
        """Arrange log-ratios as problems: along an axis, by group, or all as one."""
        if groups is None:
            return cls(row_view(x, axis), None if w is None else row_view(w, axis), None, remaining_shape(x, axis))
        if axis is not None:
            raise InputError("give axis or groups, not both")
        group, count = check_groups(groups, x)
        xp = namespace(x)
        return cls(xp.reshape(x, (-1,)), None if w is None else xp.reshape(w, (-1,)), group, (count,))

    def solve(self, share: Any, check: bool) -> tuple[Array, Array]:
        """Return log c and the largest log-ratio of each problem: NumPy, or on the device of the log-ratios.

        Of groups the latter is +inf: they are never floored.
        """
        x, w = (None, None) if is_accelerated(self.x) else (host_view(self.x), self.w)
        masses = None if w is None else host_view(w)
        if x is None or (w is not None and masses is None):
            return self._solve_on_device(share, check)
        x, target, highest = self._check(x, masses, share, check)
        if self.group is not None:
            top = np.full(len(target), inf)
            return limit_constant(solve_groups(x, masses, self.group, target), top, share), top
        if len(x) > 1:
            log_c = solve_rows(x, masses, target)
            top = np.max(x, axis=1)
        else:
            x, m = x[0], None if masses is None else masses[0]
            log_c = np.array([solve_pool(x, m, float(np.max(target)))])
            top = np.array([highest if m is None else x.max()], dtype=np.float64)
        return limit_constant(log_c, top, share), top

    def _check(self, x: Floats, masses: Floats | None, share: Any, check: bool) -> tuple[Floats, Any, float]:
        """Return log-ratios, the mass to accept of each problem, and the largest of all; raise what is wrong."""
        lowest, highest = ends(x)
        if not (lowest >= -LIMIT and highest <= LIMIT):  # false for NaN, too
            if check:
                check_ratios(x, masses)
            x = _clean(x)
            highest = float(x.max())
        if masses is not None and not masses.all():
            x = np.where(masses > 0, x, -inf)
        mass = self._mass(x, masses)
        if masses is not None and not np.all(mass > 0):
            raise InputError(f"weights must not all be 0{self._where(mass <= 0)}")
        if check and not lowest > -inf:
            reached = self._mass(x, x > -inf if masses is None else masses * (x > -inf)) / mass
            short = (reached < share * (1 - slack_of(x.shape[-1], masses is not None))) | (reached == 0)
            if np.any(short):
                first = int(np.argmax(short))
                asked, found = (float(np.broadcast_to(v, short.shape)[first]) for v in (share, reached))
                raise out_of_reach(asked, found, self._where(short))
        return x, share * mass, highest

    def _mass(self, values: Floats, masses: Floats | None) -> Any:
        """Return the mass of each problem."""
        if self.group is not None:
            return np.bincount(self.group, masses, self.shape[0]).astype(np.float64)
        return float(values.shape[1]) if masses is None else np.sum(masses, axis=1, dtype=np.float64)

    def _solve_on_device(self, share: Any, check: bool) -> tuple[Array, Array]:
        """Solve where the array lives; one synchronisation if `check` looks at what was found."""
        if self.group is not None:
            raise InputTypeError("groups cannot be solved inside jax.jit; solve outside it, or use axis")
        xp = namespace(self.x)
        x = detach(xp.astype(self.x, widest(xp), copy=False))
        share = array_like(share, x) if isinstance(share, np.ndarray) else share
        values, bad = _clean(x), count_bad(x, self.w)
        if self.w is None:
            masses, mass, possible = None, float(x.shape[1]), xp.astype(values > -inf, x.dtype)
        else:
            masses = detach(xp.astype(self.w, x.dtype, copy=False))
            values = xp.where(masses > 0, values, -inf)
            mass, possible = xp.sum(masses, axis=1), xp.where(values > -inf, masses, 0.0)
        if check:
            wrong = xp.sum(xp.astype(xp.zeros_like(x) if masses is None else ~(masses >= 0), x.dtype))
            reached = xp.sum(possible, axis=1) / mass
            facts = host_view(xp.concat([xp.stack([xp.astype(bad, x.dtype), wrong]), xp.reshape(reached, (-1,))]))
            if facts is not None:  # else inside jit or vmap
                self._raise_what_is_wrong(facts, host_view(share) if hasattr(share, "shape") else share)
        top = xp.max(values, axis=1)
        log_c = solve_rows(values, masses, share * mass)
        return limit_constant(log_c, top, share), top

    def _raise_what_is_wrong(self, facts: Floats, share: Any) -> None:
        size = self.x.shape[0] * self.x.shape[1]
        bad, wrong, reached = facts[0], facts[1], facts[2:]
        if bad:
            raise bad_ratios(int(bad), size)
        if wrong or np.isnan(reached).any():
            raise bad_weights(int(wrong), size) if wrong else InputError("weights must not all be 0")
        slack = slack_of(self.x.shape[1], self.w is not None, float(np.finfo(facts.dtype).eps))
        short = (reached < share * (1 - slack)) | (reached == 0)
        if short.any():
            first = int(np.argmax(short))
            raise out_of_reach(float(np.broadcast_to(share, reached.shape)[first]), float(reached[first]))

    def _where(self, wrong: Any) -> str:
        name = "group" if self.group is not None else "row"
        return "" if prod(self.shape) == 1 else f" in {name} {int(np.argmax(wrong))}"

    def log_rate(self, log_c: Array, top: Array) -> Array:
        """Return log E[a] of rows whose c is 1/max r, exact rejection, or infinite, which keeps whatever has r > 0."""
        xp = namespace(top)
        x, w = (v if v is None or not isinstance(top, np.ndarray) else host_view(v) for v in (self.x, self.w))
        x = _clean(xp.astype(x, top.dtype, copy=False))
        w = xp.ones_like(x) if w is None else xp.astype(w, top.dtype, copy=False)
        c = xp.where(log_c < inf, log_c, 2 * LIMIT)[:, None]
        a = xp.where((x > -inf) & (w > 0), xp.exp(xp.where(x + c < 0, x + c, 0.0)), 0.0)
        with np.errstate(divide="ignore"):
            return xp.log(xp.sum(a * w, axis=1) / xp.sum(w, axis=1))

    def spread(self, v: Array) -> Array:
        """Return one number per problem as an array that broadcasts against x, in its dtype."""
        xp = namespace(self.x)
        v = xp.astype(v, self.x.dtype, copy=False)
        return v[:, None] if self.group is None else array_like(np.asarray(host_view(v))[self.group], self.x)

    def sum(self, terms: Array) -> Array:
        """Sum over each problem; differentiable."""
        if self.group is None:
            return namespace(terms).sum(terms, axis=1)
        return segment_sum(terms, self.group, self.shape[0])

    def add_gradient(self, log_c: Array, top: Array) -> Array:
        """Return log c with its gradient: that of minus a log-sum-exp over the free ones, a < 1.

        At c = 1/max r it is that over the largest alone, and at K = 1 there is none. A zero with a gradient is added,
        so asking for one never changes the value.
        """
        xp, x = namespace(self.x), self.x
        log_c, top = (array_like(v, x, dtype=widest(xp)) if isinstance(v, np.ndarray) else v for v in (log_c, top))
        floored = self.spread(xp.astype(log_c <= -top, log_c.dtype)) > 0
        still, edge = detach(x), self.spread(xp.where(log_c < inf, -log_c, -2 * LIMIT))  # at K = 1 none is free
        free = xp.where(floored, still >= edge, still < edge) & (still > -inf)
        terms = xp.where(free, xp.exp(xp.where(free, x - edge, 0.0)), 0.0)
        if self.w is not None:
            terms = xp.where(self.w > 0, terms * xp.where(floored, 1.0, self.w), 0.0)
        sums = self.sum(terms)
        lse = xp.log(xp.where(sums > 0, sums, 1.0))
        return log_c + xp.astype(detach(lse) - lse, log_c.dtype, copy=False)


def _match_kind(v: Any, x: Array) -> Array:
    """Return one number per problem in the library and dtype of `x`; they may be there already."""
    return array_like(v, x) if isinstance(v, np.ndarray) else namespace(x).astype(v, x.dtype, copy=False)


def _clean(x: Array) -> Array:
    """Take NaN as r = 0, and what is too far from 0 as the limit: what is not checked is solved all the same."""
    xp = namespace(x)
    return xp.where(x > -inf, xp.where(x > LIMIT, LIMIT, xp.where(x < -LIMIT, -LIMIT, x)), -inf)


def limit_constant(log_c: Any, top: Any, share: Any) -> Any:
    """Return log c, at least 1/max r, where rejection is exact; +inf at K = 1, and where K is out of reach."""
    xp = namespace(log_c)
    log_c = xp.where(log_c > -top, log_c, -top)
    return xp.where((log_c > 2 * LIMIT) | (xp.zeros_like(log_c) + share == 1), inf, log_c)


def _over_shards(log_ratio: Any, budget: float, weights: Any, check: bool, group: Any) -> tuple[Array, Array]:
    """Return log c and log Z over the log-ratios of all processes.

    Log-ratios that are none, no rows, and a budget out of reach are raised in all of them, wherever they are.
    """
    x = as_floats(log_ratio, "log_ratio")
    w, share = as_weights(weights, x), 1 / budget
    values, masses = host_view(detach(x)), None if w is None else host_view(w)
    if values is None or (w is not None and masses is None):
        raise InputTypeError("process_group cannot be used inside jax.jit")
    flat = values.reshape(-1).astype(np.float64)
    mass = None if masses is None else masses.reshape(-1).astype(np.float64)
    bad = count_bad(flat, mass)
    flat = _clean(flat)
    heaviest = 1.0 if mass is None else mass.max(initial=0.0)
    top, most = all_reduce([flat.max(initial=-inf), heaviest], group, largest=True)
    mass = None if mass is None else mass / (most or 1.0)
    flat = flat if mass is None else np.where(mass > 0, flat, -inf)
    each = np.ones(len(flat)) if mass is None else mass
    relative = each @ np.exp(flat - (top if top > -inf else 0.0))
    facts = [len(flat), bad, each.sum(), each @ (flat > -inf), relative, mass is not None, 1]
    size, bad, whole, possible, sum_relative, weighted, processes = all_reduce(facts, group)
    if weighted not in (0, processes):
        raise InputTypeError(f"weights must be given in all processes or in none, got them in {int(weighted)}")
    if not whole:
        raise InputError("weights must not all be 0" if size else "log_ratio must have at least one value, in all")
    if check and bad:
        raise bad_ratios(int(bad), int(size))
    if check and (possible < share * whole * (1 - slack_of(int(size), w is not None)) or not possible):
        raise out_of_reach(share, possible / whole)
    log_c = solve_pool(flat, mass, share * whole, group) if possible else inf
    found = limit_constant(np.array([log_c]), np.array([top]), share)
    kept = share if -top < found[0] < inf else sum_relative / whole if found[0] < inf else possible / whole
    log_rate = log(kept) if kept else -inf
    if wants_gradient(x):
        problems = _Shards(row_view(x, None), None if w is None else row_view(w, None), None, (), group)
        found = problems.add_gradient(found, np.array([top]))
    return namespace(x).reshape(_match_kind(found, x), ()), array_like(log_rate, x)


@dataclass(frozen=True)
class _Shards(_Problems):
    """One problem over all processes: sums are of all, with the gradient of this one."""

    process_group: Any

    def sum(self, terms: Array) -> Array:
        mine = super().sum(terms)
        return mine + array_like(np.array(all_reduce(host_view(mine), self.process_group)), mine) - detach(mine)
