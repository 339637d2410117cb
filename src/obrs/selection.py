"""Exactly n of a finite pool, each candidate with the probability that budgeted rejection would give it.

Rejection keeps a random number of samples. Here exactly n of N candidates are kept: a sample without replacement, with
inclusion probabilities pi = min(c r, 1) and the c at which they sum to n. A *design* is a way to draw such a sample;
designs differ in how the candidates depend on each other.

Events with weights w of both signs, as Monte Carlo generators at next-to-leading order make them, are such a pool with
r = |w|: `unweight` keeps n of them, of equal weight but for the largest, and leaves all sums unbiased. Everything is
computed in NumPy memory in float64: the result is a pure function of the arguments, whatever the array library.

References:
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 3.1
    | Sampling Algorithms (Tillé, 2006), a survey of designs
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ._arrays import array_like, as_floats, host_view, known_values, namespace
from ._checks import as_log_ratio, as_sign, check_count, check_ratios, is_number
from ._text import lookup
from .draws import Purpose, as_ids, priority_key, uniform_columns, words
from .errors import InputError
from .groups import counts_of, groups_of, shares_of, sizes_of
from .root import solve_groups, solve_pool, stable_order
from .types import Array

__all__ = ["DESIGNS", "Unweighted", "inclusion_probability", "select", "unweight"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

# Columns of the random numbers: the order, the start of a lattice and each round of duels must not share one.
# Column 1 is free: to use it now would change what seeds keep.
_ORDER, _START, _DUELS = 0, 2, 3
_ROUNDING = 1e-9  # of log c + log r, where log-ratios are near 1e6: who has pi = 1 up to this is sure


class _Pool(NamedTuple):
    """The candidates, ordered by id, and how many to choose of each group."""

    log_ratio: Floats  # in float64
    group: Ints  # the number of each one's group; 0 if there are no groups
    need: Ints  # how many to choose of each group, in units of the cost if there is one
    ids: Ints  # what the randomness is keyed by
    position: Ints  # where each candidate stands in the input
    cost: Floats | None  # None for 1 each
    negative: Ints  # which weights are negative; all False if there are no signs

    def total(self, x: Floats) -> Floats:
        """Sum `x`, times the cost, over each group."""
        x = x if self.cost is None else x * self.cost
        if len(self.need) == 1:
            return np.array([np.sum(x, dtype=np.float64)])
        return np.bincount(self.group, x, len(self.need))


def select(
    log_ratio: Array,
    n: int | Mapping[Any, int] | Array,
    *,
    seed: int = 0,
    design: str = "pivotal",
    ids: Array | None = None,
    groups: Array | None = None,
    shares: Mapping[Any, float] | Array | None = None,
    cost: Array | None = None,
    sign: Array | None = None,
) -> Array:
    """Choose exactly `n` candidates of a pool, candidate i with probability `min(c r_i, 1)`.

    The constant c makes the probabilities sum to n. It is not floored at 1/max r as in `solve_log_c`: for n below
    `sum r / max r` the probabilities are `n r_i / sum r`, and any n up to the number of candidates with r > 0 works.

    Designs, all with the same probabilities but for the last, as it says:

    - `pivotal`: candidates in random order duel pair by pair until each is in or out. Negatively dependent.
    - `systematic`: candidates in random order, then every `1/pi`-th by one uniform. The fastest with exact pi.
    - `priority`: the n smallest keys `log u(id) - log r`. The choice of n is part of the choice of n + 1, and each
      part of a pool that is nowhere in memory can be looked at on its own: see `obrs.files`. The probabilities are
      those above up to 1/n or so: use another design for a pool of a few dozen.

    Args:
        log_ratio: `log p(x) - log q(x)` of the candidates, shape `(N,)`; -inf means r = 0, never selected.
        n: How many to select; with `groups`, from each: a number, a dict by label, or an array in the order of the
            sorted labels. With `shares`, how many in all.
        seed: Integer with `0 <= seed < 2**64`.
        design: One of `DESIGNS`.
        ids: Integers, shape `(N,)`: what the randomness is keyed by, by default the position. With ids of its own, a
            candidate is chosen or not wherever it stands among the others.
        groups: Labels, shape `(N,)`: integers, text, or whatever `np.unique` sorts. Each group has its own constant.
        shares: The shares of the groups among the n, as a dict by label or an array in the order of the sorted labels;
            they are divided by their sum. Numbers are rounded by largest remainder, at a tie the first label's up.
        cost: What each candidate costs, shape `(N,)`, at least 0, for `priority`: n is then a number of units, such as
            tokens, the probabilities satisfy `sum cost pi = n`, and candidates are taken by their keys as long as n is
            not exceeded. So the units chosen (of a group) fall short of n by less than the cost of one candidate.
        sign: +1 or -1 of each candidate, shape `(N,)`, for events with weights w of both signs; `log_ratio` is log|w|.
            The probabilities stay as they are, and the number kept of each sign (of each group) is its expectation,
            rounded down or up: the sum of the weights w/pi is that of the pool up to 2/c. `unweight` does all of it.

    Returns:
        Indices of the selected, ascending, int64 (int32 in JAX without x64), where `log_ratio` lives.

    Example:
        >>> import numpy as np
        >>> log_ratio = np.log([4.0, 1.0, 0.5, 0.5, 0.0001])
        >>> select(log_ratio, 3, seed=1)
        array([0, 1, 3])
        >>> select(log_ratio, 1, groups=["cat", "cat", "dog", "dog", "dog"])
        array([0, 2])
        >>> select(log_ratio, 3, groups=["cat", "cat", "dog", "dog", "dog"], shares={"cat": 2, "dog": 1})
        array([0, 1, 3])
        >>> select(log_ratio, 20, design="priority", cost=[5, 10, 10, 5, 5])  # units
        array([0, 1, 3])

    References:
        | Unequal Probability Sampling without Replacement through a Splitting Method (Deville & Tillé, 1998), pivotal
        | On the Theory of Systematic Sampling, II (Madow, 1949)
        | Sequential Poisson Sampling (Ohlsson, 1998), priority
        | Priority Sampling for Estimation of Arbitrary Subset Sums (Duffield, Lund & Thorup, 2007)
    """
    draw = lookup(DESIGNS, design, "design")
    if cost is not None and design != "priority":
        raise InputError(f"cost is for design='priority', got design={design!r}")
    x, pool = _check_pool(log_ratio, n, groups=groups, shares=shares, cost=cost, ids=ids, sign=sign)
    index = np.sort(pool.position[draw(pool, seed)])
    return array_like(index, x, dtype=namespace(x).int64)


def inclusion_probability(
    log_ratio: Array,
    n: int | Mapping[Any, int] | Array,
    *,
    groups: Array | None = None,
    shares: Mapping[Any, float] | Array | None = None,
    cost: Array | None = None,
) -> Array:
    """Return the probability `min(c r_i, 1)` with which `select` takes each candidate; they sum to `n`.

    Among all ways to choose n of the pool these bring the chosen closest to the target, in every f-divergence.
    Weighting a selected candidate by `1 / pi` makes sums over the pool unbiased (Horvitz and Thompson).

    Args:
        log_ratio: Log-ratios of the candidates, shape `(N,)`.
        n, groups, shares, cost: As for `select`; the probabilities of each group sum to what it gets of n, each times
            the cost.

    Returns:
        Probabilities of the shape, backend, dtype and device of `log_ratio`, without gradient. They sum to n in
        float64; in float32 up to its rounding.

    Example:
        >>> import numpy as np
        >>> log_ratio = np.log([4.0, 1.0, 0.5, 0.5])
        >>> inclusion_probability(log_ratio, 2)
        array([1.  , 0.5 , 0.25, 0.25])

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Theorem 3.1
        | A Generalization of Sampling without Replacement from a Finite Universe (Horvitz & Thompson, 1952)
    """
    x, pool = _check_pool(log_ratio, n, groups=groups, shares=shares, cost=cost)
    return array_like(_probabilities(pool), x)


def _check_pool(
    log_ratio: Any, n: Any, *, groups: Any, shares: Any, cost: Any = None, ids: Any = None, sign: Any = None
) -> tuple[Array, _Pool]:
    """Check all arguments; return the log-ratios as an array of their library, and the pool."""
    x = as_log_ratio(log_ratio)
    values = known_values(x, "log_ratio").astype(np.float64, copy=False)
    if values.ndim != 1:
        raise InputError(f"log_ratio must have one axis, that of the candidates, got shape {values.shape}")
    check_ratios(values)
    labels, group, need, shares = _quotas(n, groups, shares, values.shape)
    costs = None if cost is None else np.asarray(known_values(as_floats(cost, "cost"), "cost"), np.float64)
    if costs is not None and (costs.shape != values.shape or not np.all((costs >= 0) & (costs <= 1e290))):
        raise InputError(f"cost must be numbers from 0 to 1e290, of the shape of log_ratio {values.shape}")
    negative = np.zeros(len(values), bool) if sign is None else as_sign(sign, values) < 0
    keys = np.arange(len(values)) if ids is None else as_ids(ids)
    if keys.shape != values.shape:
        raise InputError(f"ids must have the shape of log_ratio {values.shape}, got {keys.shape}")
    # In the order of their ids, no sum and no tie depends on how the candidates came.
    order: Any = slice(None) if ids is None else np.argsort(keys, kind="stable")
    costs, position = None if costs is None else costs[order], keys if ids is None else order
    pool = _Pool(values[order], group[order], need, keys[order], position, costs, negative[order])
    _check_need(pool, labels, shares)
    return x, pool


def _quotas(n: Any, groups: Any, shares: Any, shape: tuple[int, ...]) -> tuple[Any, Ints, Ints, Floats | None]:
    """Return labels, the number of each one's group, how many to choose of each group, and shares if there are."""
    if groups is None:
        if shares is not None or isinstance(n, Mapping):
            raise InputError("shares, and n by label, need the label of each candidate; give groups")
        return None, np.zeros(shape, np.intp), np.array([check_count(n, "n")]), None
    labels, group, _ = groups_of(groups, shape)
    if shares is None:
        return labels, group, np.full(len(labels), check_count(n, "n")) if is_number(n) else counts_of(n, labels), None
    parts = shares_of(shares, labels)
    return labels, group, sizes_of(check_count(n, "n"), parts), parts


def _check_need(pool: _Pool, labels: tuple[Any, ...] | None, shares: Floats | None) -> None:
    """Raise if the candidates of a group with r > 0 are too few, or cost too little."""
    available = pool.total(pool.log_ratio > -inf)
    for short in np.flatnonzero(available * (1 + 1e-12) < pool.need)[:1]:
        where = "" if labels is None else f" of group {labels[short]!r}"
        what = "units" if pool.cost is not None else f"of the {np.sum(pool.group == short)} candidates"
        few = f"only {available[short]:.12g} have r > 0"
        if shares is not None:
            most = int(np.min(available[shares > 0] / shares[shares > 0]))
            few += f"; with these shares n can be {most}" if most else "; leave it out, or give it share 0"
        raise InputError(f"cannot select {pool.need[short]} {what}{where}: {few}")


def _probabilities(pool: _Pool) -> Floats:
    """Return pi = min(c r, 1) of every candidate, with the c of each group at which `sum cost pi = need`."""
    x, group, need = pool.log_ratio, pool.group, pool.need
    unit = 1.0 if pool.cost is None else float(pool.cost.max())
    masses = None if pool.cost is None else pool.cost / unit
    if len(need) == 1:
        log_c = np.array([solve_pool(x, masses, float(need[0] / unit))])
    else:
        log_c = solve_groups(x, masses, group, need / unit)
    log_pi = x + log_c[group]
    sure = log_pi >= -_ROUNDING
    pi = np.exp(np.minimum(log_pi, 0.0))
    # c is rounded: the others share what the sure leave in proportion to r, so that pi sums to n.
    pi[sure] = 0.0
    left, free = np.maximum(need - pool.total(sure), 0.0), pool.total(pi)
    pi *= (left / np.where(free > 0, free, 1.0))[group]
    pi[sure] = 1.0
    return np.asarray(pi)


def random_order(ids: Ints, seed: int) -> Ints:
    """Return the positions of ids in random order."""
    # As many high bits as leave room for the position: at least 38 below 2^26 ids. Where those tie, position decides.
    keys = words(ids, range(_ORDER, _ORDER + 1), seed=seed, purpose=Purpose.SELECT)[:, 0]
    return stable_order(keys >> np.uint64(len(ids).bit_length()))


def draw_uniforms(count: int, seed: int, column: int = _START) -> Floats:
    """Return uniforms in `[0, 1)`, by default those at which lattices start."""
    columns = range(column, column + 1)
    return np.asarray(uniform_columns(np.arange(count), columns, seed=seed, purpose=Purpose.SELECT)[:, 0])


def _shuffle(pool: _Pool, pi: Floats, seed: int) -> tuple[Ints, Ints]:
    """Return who has 0 < pi < 1 in random order, by group and sign, and how many each group has of both signs."""
    free = np.flatnonzero((pi > 0) & (pi < 1))
    order = free[random_order(pool.ids[free], seed)]
    if len(pool.need) == 1 and not pool.negative.any():
        return order, np.array([[len(order), 0]])
    stratum = (2 * pool.group + pool.negative)[order]
    return order[stable_order(stratum)], np.bincount(stratum, minlength=2 * len(pool.need)).reshape(-1, 2)


def _pivotal(pool: _Pool, seed: int) -> Ints:
    """Let neighbours duel, all pairs at once, until every group has one candidate left.

    Two candidates with a + b < 1: the winner stays open with a + b and the other is out; the first wins with
    probability a / (a + b). Otherwise the winner is in and the other stays open with a + b - 1; the first wins with
    probability (1 - b) / (2 - a - b). Either way each keeps its probability in expectation.
    """
    pi = _probabilities(pool)
    at, strata = _shuffle(pool, pi, seed)
    chosen, column = [np.flatnonzero(pi == 1)], _DUELS
    pi = pi[at]
    # The positive of a group duel, and the negative, before the last of each meet.
    for sizes in (strata.reshape(-1), np.count_nonzero(strata, axis=1)):
        while sizes.max() > 1:
            odd = sizes % 2 == 1  # the last of an odd group waits for the next round
            waits = np.cumsum(sizes)[odd] - 1
            sizes = (sizes + 1) // 2
            seats = np.cumsum(sizes)[odd] - 1 - np.arange(len(waits))
            first, second = np.delete(at, waits).reshape(-1, 2).T
            a, b = np.delete(pi, waits).reshape(-1, 2).T
            both = a + b
            one_is_in = both >= 1
            # At a + b = 1 the two cases agree on who is in, so the last bit of a + b decides nothing.
            share, whole = np.where(one_is_in, 1 - b, a), np.where(one_is_in, 2 - both, both)
            first_wins = draw_uniforms(len(both), seed, column) * whole < share
            chosen.append(np.where(first_wins, first, second)[one_is_in])
            at = np.insert(np.where(first_wins != one_is_in, first, second), seats, at[waits])
            pi = np.insert(both - one_is_in, seats, pi[waits])
            column += 1
    # What is in and the one left sum to an integer, so the one left has 0 or 1 but for rounding.
    return np.concatenate([*chosen, at[pi > 0.5]])


def _systematic(pool: _Pool, seed: int) -> Ints:
    """Lay the probabilities end to end in random order, and take the candidates that cover u, u + 1, u + 2, …"""
    pi = _probabilities(pool)
    at, strata = _shuffle(pool, pi, seed)
    sure = np.flatnonzero(pi == 1)
    need = pool.need - np.bincount(pool.group[sure], minlength=len(pool.need))
    places = lattice(pi[at], strata.sum(axis=1), need, 1 - draw_uniforms(len(need), seed))
    return np.concatenate([sure, at[places]])


def lattice(pi: Floats, sizes: Ints, need: Ints, start: Floats) -> Ints:
    """Lay the probabilities of each group end to end; return who covers its start, start + 1, …, `need` of them.

    The probabilities are below 1, group after group, and `start` counts from where a group begins.

    Example:
        >>> lattice(np.array([0.5, 0.7, 0.8, 0.5, 0.5]), np.array([3, 2]), np.array([2, 1]), np.array([0.6, 0.2]))
        array([1, 2, 3])
    """
    ends = np.concatenate([[0.0], np.cumsum(pi)])
    owner, tick = np.repeat(np.arange(len(need)), need), np.arange(need.sum())
    base = ends[np.cumsum(sizes) - sizes] + start - (np.cumsum(need) - need)
    skipped = np.searchsorted(ends[1:], base[owner] + tick) - tick
    # Sums are rounded: the skipped are kept within their group, and never decrease, so that nobody is taken twice.
    bounds = np.concatenate([[0], np.cumsum(sizes - need)])
    skipped = np.maximum.accumulate(np.clip(skipped, bounds[owner], bounds[owner + 1]))
    return np.asarray(skipped + tick)


def _priority(pool: _Pool, seed: int) -> Ints:
    """Take the smallest keys of each group, at a tie the smallest ids, as long as they do not cost too much.

    With signs, the negative of a group get their part of what is wanted of it, rounded down or up at random.
    """
    key = priority_key(pool.log_ratio, pool.ids, seed=seed)

    def take(key: Floats, most: Floats) -> Ints:
        """Return those that come first by their keys, of which infinite ones are none, at most so much per group."""
        at = np.flatnonzero(key < inf)
        if pool.cost is None and len(most) == 1 and len(at) > (n := int(most[0])):
            last = np.partition(key, n)[n]
            if len(first := np.flatnonzero(key < last)) == n:  # nothing needs sorting but a tie
                return first
            at = np.flatnonzero(key <= last)
        at = at[np.argsort(key[at], kind="stable")]
        at = at[stable_order(pool.group[at])]
        group, spent = pool.group[at], np.cumsum(np.ones(len(at)) if pool.cost is None else pool.cost[at])
        before = np.concatenate([[0.0], spent])[np.searchsorted(group, np.arange(len(most)))]
        return np.asarray(at[spent <= (before + most)[group] + 1e-12 * spent[-1:]])

    if not pool.negative.any():
        return take(key, pool.need)
    part = pool.total(_probabilities(pool) * pool.negative)
    if pool.cost is None:
        part = np.floor(part + 1e-9 + draw_uniforms(len(part), seed) * (1 - 2e-9))
    negative = take(np.where(pool.negative, key, inf), part)
    cost = None if pool.cost is None else pool.cost[negative]
    rest = pool.need - np.bincount(pool.group[negative], cost, len(part))
    return np.concatenate([negative, take(np.where(pool.negative, inf, key), rest)])


DESIGNS: dict[str, Callable[[_Pool, int], Ints]]
DESIGNS = {"pivotal": _pivotal, "systematic": _systematic, "priority": _priority}


@dataclass(frozen=True)
class Unweighted:
    """Events that `unweight` kept; `len()` is how many. Weights have signs, so there are no logs of them.

    Args:
        index: Which events, ascending.
        weight: Their weights now, `sign max(|w|, max_weight)`. They sum to the total, in each bin on average.
        probability: The probabilities with which they were kept.
        max_weight: 1/c: the size of all weights but the overweight ones. Generators call it the maximum weight.
        truncated: The share of the sum of |w| above `max_weight`: what cutting weights off there would lose.
    """

    index: Array
    weight: Array
    probability: Array
    max_weight: float
    truncated: float

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        above = int((abs(self.weight) > self.max_weight).sum())
        what = f"{len(self)} events of |weight| {self.max_weight:.4g}, {above} of them overweight"
        return f"Unweighted({what}, truncated={self.truncated:.3g})"


def unweight(weight: Array, n: int, *, seed: int = 0, design: str = "pivotal", ids: Array | None = None) -> Unweighted:
    """Keep exactly `n` of a pool of weighted events, whose weights may have both signs.

    Event i is kept with probability `min(c |w_i|, 1)` and carries `sign_i max(|w_i|, 1/c)`. The number kept of each
    sign is its expectation, rounded down or up: the sum of the weights is that of the pool up to 2/c, with a standard
    deviation of at most 1/c. Histograms are unbiased. Of all probabilities that sum to n, these have the least
    `sum w² (1/pi - 1)`, the variance of the total if each event is decided on its own.

    Args:
        weight: Weights of the events, shape `(N,)`, finite; those with w = 0 are never kept.
        n: How many to keep.
        seed, ids: As for `select`.
        design: `pivotal` or `systematic`; the probabilities of `priority` are not exact.

    Example:
        >>> weight = np.array([4.0, -1.0, 0.5, -0.5, 1.0, 1.0])
        >>> kept = unweight(weight, 3)
        >>> kept.index, kept.weight, kept.max_weight
        (array([0, 1, 5]), array([ 4., -2.,  2.]), 2.0)
        >>> kept.truncated  # 2 of the 8 that all |w| sum to
        0.25

    References:
        | The automated computation of tree-level and next-to-leading order differential cross sections, and their
          matching to parton shower simulations (Alwall et al., 2014), where such weights come from
    """
    if design == "priority":
        raise InputError("unweight draws with design='pivotal' or 'systematic', whose probabilities are exact")
    x = as_floats(weight, "weight")
    values = host_view(x)
    if values is None or not np.all(np.isfinite(values)):
        raise InputError("weight must be finite, and known outside jax.jit; drop events without a weight")
    values = values.astype(np.float64)
    with np.errstate(divide="ignore"):
        log_ratio, sign = np.log(np.abs(values)), np.sign(values)
    index = select(log_ratio, n, seed=seed, design=design, ids=ids, sign=sign)
    pi = inclusion_probability(log_ratio, n)
    size = np.abs(values)
    with np.errstate(over="ignore"):
        normal = pi > np.finfo(float).tiny  # smaller ones have too few digits
        max_weight = float(np.min(size[normal] / pi[normal]))
    share = size / size.max()
    truncated = float(np.sum(np.maximum(share - max_weight / size.max(), 0.0)) / np.sum(share))
    left, probability = sign[index] * np.maximum(size[index], max_weight), array_like(pi[index], x)
    index = array_like(index, x, dtype=namespace(x).int64)
    return Unweighted(index, array_like(left, x), probability, max_weight, truncated)
