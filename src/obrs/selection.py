"""Exactly n out of a finite pool, each candidate with the probability that budgeted rejection would give it.

Rejection keeps a random number of samples. Whoever has drawn N candidates and wants n of them, no more and no
fewer, asks for a fixed-size sample without replacement whose inclusion probabilities are pi = min(c r, 1) with
`sum pi = n`. The probabilities are `inclusion_probability`; a *design* is a way to draw such a sample, and
they differ only in how the candidates depend on each other.

Everything is computed in NumPy memory in float64, and all randomness comes from `draws`: the result is a pure
function of (log_ratio, n, seed, design, groups, shares, cost, sign), and of the ids for `priority`, whatever the
backend.

References:
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 3.1
    | Sampling Algorithms (Tillé, 2006), a survey of designs
"""

from collections.abc import Callable, Mapping
from math import inf
from operator import index
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from ._arrays import as_floats, host_view, like
from ._checks import as_log_ratio, as_sign, check_ratios
from ._text import lookup
from .draws import Purpose, as_ids, priority_key, uniform_columns, words
from .errors import InputError, InputTypeError
from .groups import Groups, counts_of, groups_of, shares_of, sizes_of
from .root import solve_groups, solve_pool
from .types import Array

__all__ = ["DESIGNS", "inclusion_probability", "select", "smallest"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

# Columns of the random numbers: what is shuffled, where a lattice starts and each round of duels must not share one.
# Column 1 is free: to use it now would change what seeds keep.
_ORDER, _START, _DUELS = 0, 2, 3


class _Pool(NamedTuple):
    """The candidates that chance decides on: those with 0 < pi < 1, and for `priority` all with r > 0.

    Attributes:
        pi: Inclusion probabilities; in each group they sum to `need`.
        ids: They key the randomness: positions in the log-ratios, ascending; for `priority` those of the user.
        group: The group of each, or None for one pool.
        need: How many to choose from each group, integers; how many units, where there is a cost.
        negative: Which of them have a negative weight, or None if signs do not matter.
        key: The keys that `priority` goes by.
        cost: What each costs, or None for 1.
    """

    pi: Floats
    ids: Ints
    group: Ints | None
    need: Ints
    negative: Ints | None = None
    key: Floats | None = None
    cost: Floats | None = None

    def at(self, positions: Ints) -> "_Pool":
        """Return the pool of these candidates alone."""
        fields = self._asdict()
        return _Pool(**{k: v if k == "need" or v is None else v[positions] for k, v in fields.items()})


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

    - `pivotal`: candidates in random order duel pair by pair until each is in or out. Negatively dependent, any size.
    - `systematic`: candidates in random order, then every `1/pi`-th by one uniform. The fastest; high entropy only
      through the random order.
    - `priority`: the n smallest keys `log u(id) - log r`. The choice of n is part of the choice of n + 1, and each
      part of a pool that is nowhere in memory can be looked at on its own: see `obrs.files`. The probabilities are
      those above up to 1/n or so: use another design for a pool of a few dozen.

    Args:
        log_ratio: `log p(x) - log q(x)` of the candidates, shape `(N,)`; -inf means r = 0, never selected.
        n: How many to select; with `groups`, from each: a number, a dict by label, or an array in the order of the
            sorted labels. With `shares`, how many in all.
        seed: Integer with `0 <= seed < 2**64`.
        design: One of `DESIGNS`.
        ids: Integers, shape `(N,)`, for `priority`: what the uniforms are of, by default the position. With ids of its
            own, a candidate is chosen or not wherever it stands.
        groups: Labels, shape `(N,)`: integers, text, or whatever `np.unique` sorts. Each group has its own constant.
        shares: The shares of the groups among the n, as a dict by label or an array in the order of the sorted labels;
            they are divided by their sum. Group g gets the share of n, rounded so that the sum is n: all are rounded
            down, and what is left goes to the largest remainders, at a tie to the first label.
        cost: What each candidate costs, shape `(N,)`, at least 0, for `priority`: n is then a number of units, such as
            tokens, the probabilities satisfy `sum cost pi = n`, and candidates are taken by their keys as long as n is
            not exceeded. So the units chosen (of a group) fall short of n by less than the cost of one candidate.
        sign: +1 or -1 of each candidate, shape `(N,)`, for events with weights w of both signs; `log_ratio` is log|w|.
            The probabilities stay as they are, and the number kept of each sign (of each group) is its expectation,
            rounded down or up: the sum of the weights w/pi is that of the pool up to 2/c. `obrs.unweight` does all of
            it.

    Returns:
        Indices of the selected, ascending, int64 (int32 in JAX without x64), where `log_ratio` lives.

    Example:
        >>> import numpy as np
        >>> log_ratio = np.log([4.0, 1.0, 0.5, 0.5, 0.0001])
        >>> select(log_ratio, 3, seed=1)
        array([0, 1, 3])
        >>> select(log_ratio, 1, groups=["cat", "cat", "dog", "dog", "dog"])
        array([0, 2])
        >>> select(log_ratio, {"cat": 0, "dog": 3}, groups=["cat", "cat", "dog", "dog", "dog"])
        array([2, 3, 4])
        >>> select(log_ratio, 3, groups=["cat", "cat", "dog", "dog", "dog"], shares={"cat": 2, "dog": 1})
        array([0, 1, 3])
        >>> select(log_ratio, 20, design="priority", cost=[5, 10, 10, 5, 5])  # units
        array([0, 1, 3])
        >>> weight = np.array([2.0, -1.0, 1.0, -1.0, 1.0, 2.0])
        >>> kept = select(np.log(np.abs(weight)), 4, sign=np.sign(weight))
        >>> int(np.sum(weight[kept] < 0))
        1

    References:
        | Unequal Probability Sampling without Replacement through a Splitting Method (Deville & Tillé, 1998), pivotal
        | On the Theory of Systematic Sampling, II (Madow, 1949)
        | Sequential Poisson Sampling (Ohlsson, 1998)
    """
    draw = lookup(DESIGNS, design, "design")
    for option, name in ((ids, "ids"), (cost, "cost")):
        if option is not None and draw is not _priority:
            raise InputError(f"{name} is for design='priority', got design={design!r}")
    x, values = _candidates(log_ratio)
    wanted = _wanted(n, groups, shares, tuple(x.shape))
    units = _as_cost(cost, values)
    negative = None if sign is None else as_sign(sign, values) < 0
    if draw is _priority:
        names = np.arange(len(values)) if ids is None else as_ids(ids)
        key = priority_key(values, names, seed=seed)
        _available(values, wanted, units)
        pi = np.ones_like(values) if sign is None else _solve(values, wanted, units)
        at, need = np.flatnonzero(values > -inf), wanted.size  # all are left to chance
        pool = _Pool(pi, names, wanted.group, need, negative, key, units)
    else:
        pi = _solve(values, wanted)
        at = np.flatnonzero((pi > 0) & (pi < 1))
        need = wanted.size - _total(pi == 1, wanted.group, len(wanted.size)).astype(np.int64)
        pool = _Pool(pi, np.arange(len(values)), wanted.group, need, negative)

    selected = (pi == 1) & (draw is not _priority)
    selected[at[draw(pool.at(at), seed)]] = True
    return like(np.flatnonzero(selected), x, dtype=array_namespace(x).int64)


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
        >>> inclusion_probability(log_ratio, 1).round(3)
        array([0.667, 0.167, 0.083, 0.083])

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Theorem 3.1
        | A Generalization of Sampling without Replacement from a Finite Universe (Horvitz & Thompson, 1952)
    """
    x, values = _candidates(log_ratio)
    return like(_solve(values, _wanted(n, groups, shares, tuple(x.shape)), _as_cost(cost, values)), x)


def _candidates(log_ratio: Any) -> tuple[Array, Floats]:
    """Return the log-ratios as an array of their backend, and their values in float64."""
    x = as_log_ratio(log_ratio)
    if x.ndim != 1:
        raise InputError(f"log_ratio must have one axis, that of the candidates, got shape {tuple(x.shape)}")
    values = host_view(x)
    if values is None:
        raise InputTypeError("candidates cannot be selected inside jax.jit; select outside it")
    check_ratios(values)
    return x, values.astype(np.float64, copy=False)


def _as_size(n: Any) -> int:
    try:
        size = index(n)
    except Exception:  # whatever a stranger's __index__ raises, it is not an integer to us
        size = None
    if size is None or isinstance(n, bool | np.bool_):
        got = repr(n) if isinstance(n, bool | float | str) else type(n).__name__
        raise InputTypeError(f"n must be an integer, got {got}")
    if size < 1:
        raise InputError(f"n must be at least 1 candidate, got {size}")
    if size >= 2**63:
        raise InputError(f"n must be below 2**63, got {size:.3e}")
    return size


class _Wanted(NamedTuple):
    """How many to choose of each group.

    Attributes:
        size: One whole number per group, or a single one.
        groups: The groups, or None for one pool.
        shares: The shares that the sizes come from, if they do.
    """

    size: Ints
    groups: Groups | None = None
    shares: Floats | None = None

    @property
    def group(self) -> Ints | None:
        return None if self.groups is None else self.groups.code


def _wanted(n: Any, groups: Any, shares: Any, shape: tuple[int, ...]) -> _Wanted:
    if groups is None:
        if shares is not None or isinstance(n, Mapping):
            what = "n by label" if shares is None else "shares"
            raise InputError(f"{what} needs to know the label of each candidate; give groups")
        return _Wanted(np.array([_as_size(n)]))
    found = groups_of(groups, shape)
    if shares is not None:
        if isinstance(n, Mapping):
            raise InputError("with shares, n is one number for all groups together, got a dict")
        part = shares_of(shares, found.labels)
        return _Wanted(sizes_of(_as_size(n), part), found, part)
    if isinstance(n, Mapping | list | tuple) or (hasattr(n, "ndim") and n.ndim > 0):
        return _Wanted(counts_of(n, found.labels), found)
    return _Wanted(np.full(len(found.labels), _as_size(n)), found)


def _as_cost(cost: Any, values: Floats) -> Floats | None:
    """Return what each candidate costs, or None."""
    if cost is None:
        return None
    given = host_view(as_floats(cost, "cost"))
    if given is None or given.shape != values.shape:
        raise InputError(f"cost must have the shape of log_ratio {values.shape}, got {getattr(given, 'shape', None)}")
    if bad := np.count_nonzero(~((given >= 0) & (given < inf))):
        raise InputError(f"cost must be finite and at least 0, {bad} of {given.size} are not")
    with np.errstate(over="ignore"):
        if not given.sum(dtype=np.float64) < inf:
            raise InputError("cost sums to more than a float can hold; count in larger units")
    return given.astype(np.float64)


def _available(values: Floats, wanted: _Wanted, cost: Floats | None) -> Floats:
    """Return how many candidates of each group have r > 0, or what they cost; raise if they are too few."""
    positive = values > -inf
    available = _total(positive if cost is None else positive * cost, wanted.group, len(wanted.size))
    if cost is None:
        _check_available(available.astype(np.int64), wanted, values.size)
    else:
        _check_affordable(available, wanted)
    return available


def _check_affordable(available: Floats, wanted: _Wanted) -> None:
    """Raise if the candidates of a group with r > 0 cost less than is wanted of it."""
    for short in np.flatnonzero(available * (1 + 1e-12) < wanted.size)[:1]:
        where = "" if wanted.groups is None else f" of group {wanted.groups.labels[short]!r}"
        raise InputError(
            f"cannot select {wanted.size[short]} units: the candidates{where} with r > 0 cost {available[short]:.12g}"
        )


def _check_available(available: Ints, wanted: _Wanted, total: int) -> None:
    """Raise if a group has too few candidates with r > 0."""
    for short in np.flatnonzero(available < wanted.size)[:1]:
        where, size, rest = "", total, ""
        if wanted.groups is not None:
            where, size = f" of group {wanted.groups.labels[short]!r}", wanted.groups.size[short]
        if wanted.shares is not None:
            kept = wanted.shares > 0
            most = int(np.min(available[kept] / wanted.shares[kept]))
            rest = f"; with these shares n can be {most}" if most else "; leave it out, or give it share 0"
        few = f"only {available[short]} have r > 0"
        raise InputError(f"cannot select {wanted.size[short]} of the {size} candidates{where}: {few}{rest}")


def _solve(values: Floats, wanted: _Wanted, cost: Floats | None = None) -> Floats:
    """Return the inclusion probabilities in float64: to the last bits, each group's sum to what is wanted of it."""
    n, group, count = wanted.size, wanted.group, len(wanted.size)
    positive = values > -inf

    def total(x: Floats) -> Floats:
        return _total(x if cost is None else x * cost, group, count)

    available = _available(values, wanted, cost)
    positive &= _spread(n > 0, group)

    mass, unit = (None, 1.0) if cost is None else (cost / cost.max(), float(cost.max()))
    target = np.where(n > 0, n, total(np.ones(values.size))) / unit  # of a group of which none is wanted, any will do
    if wanted.groups is None:
        log_c = np.array([solve_pool(values, mass, float(target[0]))])
    else:
        log_c = solve_groups(values, mass, wanted.groups.code, target)
    # The solver says who is saturated, up to the rounding of log c, by 1 where log-ratios are of the order of 1e16.
    # The others share what is left in proportion to r, summed anew relative to their largest, since pi must sum to n.
    # Who would get more than 1 is saturated, too.
    sure = -log_c + 4 * np.spacing(np.abs(log_c))
    free = positive & (values < _spread(sure, group)) & _spread(available > n, group)
    while True:
        need = n - total(positive & ~free)
        top = _top(np.where(free, values, -inf), group, count)
        with np.errstate(over="ignore"):  # what is 1e308 below the largest has pi = 0
            pi = np.exp(np.where(free, values - _spread(top, group), -inf))
        sums = total(pi)
        pi *= _spread(np.maximum(need, 0.0) / np.where(sums > 0, sums, 1.0), group)
        over = pi > 1
        if not over.any():
            break
        free &= ~over
    pi[positive & ~free] = 1.0
    return pi


def _total(x: Floats, group: Ints | None, count: int) -> Floats:
    return np.array([np.sum(x, dtype=np.float64)]) if group is None else np.bincount(group, x, count)


def _top(x: Floats, group: Ints | None, count: int) -> Floats:
    """Return the largest of each group, 0 where all are -inf."""
    if group is None:
        top = np.array([x.max()])
    else:
        top = np.full(count, -inf)
        np.maximum.at(top, group, x)
    return np.where(np.isneginf(top), 0.0, top)


def _spread(each: Floats, group: Ints | None) -> Floats:
    """Give every candidate the number of its group; without groups, one that broadcasts."""
    return each if group is None else each[group]


def _uniforms(ids: Ints, column: int, seed: int) -> Floats:
    numbers: Floats = uniform_columns(ids, range(column, column + 1), seed=seed, purpose=Purpose.SELECT)[:, 0]
    return numbers


def _shuffled(pool: _Pool, seed: int) -> tuple[Ints, Ints]:
    """Return positions in the pool in random order, group after group, and the size of each group.

    Within a group the negative come last.
    """
    # Rounding a word down leaves at least 38 random bits below 2^26 candidates. Where even those tie, position
    # decides: pi does not depend on the order at all.
    order = _order_of(words(pool.ids, range(_ORDER, _ORDER + 1), seed=seed, purpose=Purpose.SELECT)[:, 0])
    if pool.group is None and pool.negative is None:
        return order, np.array([order.size])
    label = _stratum(pool)[order].astype(np.uint64) << _position_bits(order)
    by_label: Ints = order[_order_of(label)]
    return by_label, np.sum(_strata(pool), axis=1)


def _stratum(pool: _Pool) -> Ints:
    """Number the groups with two numbers each, for either sign."""
    group = np.zeros(len(pool.ids), np.intp) if pool.group is None else pool.group
    return 2 * group + (0 if pool.negative is None else pool.negative)


def _strata(pool: _Pool) -> Ints:
    """Return how many candidates there are of either sign in each group."""
    return np.bincount(_stratum(pool), minlength=2 * len(pool.need)).reshape(-1, 2)


def _order_of(keys: Ints) -> Ints:
    """Sort unsigned 64-bit keys by their high bits, the low ones being the position: five times as fast as argsort."""
    low = (np.uint64(1) << _position_bits(keys)) - np.uint64(1)
    order: Ints = np.sort(keys & ~low | np.arange(keys.size, dtype=np.uint64)) & low
    return order.astype(np.intp)


def _position_bits(x: Ints) -> Any:
    return np.uint64(x.size.bit_length())


def _pivotal(pool: _Pool, seed: int) -> Ints:
    """Let neighbours duel, all pairs at once, until every group has one candidate left.

    Two candidates with a + b < 1: the winner stays open with a + b and the other is out; the first wins with
    probability a / (a + b). Otherwise the winner is in and the other stays open with a + b - 1; the first wins with
    probability (1 - b) / (2 - a - b). Either way each keeps its probability in expectation.

    References:
        | Unequal Probability Sampling without Replacement through a Splitting Method (Deville & Tillé, 1998)
        | Negative Dependence in Sampling (Brändén & Jonasson, 2012)
    """
    at, sizes = _shuffled(pool, seed)
    pi = pool.pi[at]
    chosen, column = [], _DUELS
    rounds = [sizes]
    if pool.negative is not None:  # the positive of a group duel, and the negative, before the last of each meet
        halves = _strata(pool)
        rounds = [halves.reshape(-1), np.count_nonzero(halves, axis=1)]
    for sizes in rounds:
        while sizes.size and sizes.max() > 1:
            odd = sizes % 2 == 1  # the last of an odd group waits for the next round
            waits = np.cumsum(sizes)[odd] - 1
            sizes = (sizes + 1) // 2
            seat = np.cumsum(sizes)[odd] - 1 - np.arange(len(waits))
            first, second = np.delete(at, waits).reshape(-1, 2).T
            a, b = np.delete(pi, waits).reshape(-1, 2).T
            both = a + b
            one_is_in = both >= 1
            # At a + b = 1 the two cases agree on who is in, so the last bit of a + b decides nothing.
            share, of = np.where(one_is_in, 1 - b, a), np.where(one_is_in, 2 - both, both)
            first_wins = _uniforms(np.arange(len(both)), column, seed) * of < share
            chosen.append(np.where(first_wins, first, second)[one_is_in])
            at = np.insert(np.where(first_wins != one_is_in, first, second), seat, at[waits])
            pi = np.insert(both - one_is_in, seat, pi[waits])
            column += 1
    # What is in and the one left sum to an integer, so the one left has 0 or 1 but for rounding.
    return np.concatenate([*chosen, at[pi > 0.5]])


def _systematic(pool: _Pool, seed: int) -> Ints:
    """Lay the probabilities end to end in random order and take who covers u, u + 1, u + 2, …

    References:
        | On the Theory of Systematic Sampling, II (Madow, 1949)
    """
    order, sizes = _shuffled(pool, seed)
    count = len(pool.need)
    owner = np.repeat(np.arange(count), pool.need)
    tick = np.arange(len(owner))
    mark = tick + 1 - _uniforms(np.arange(count), _START, seed)[owner]
    # Every group adds an integer to the sum, so one cumulative sum serves all. It is rounded: candidates are kept
    # within their group and apart from each other, at the k-th place at least for the k-th and not beyond the last.
    passed = np.searchsorted(np.cumsum(pool.pi[order]), mark) - tick
    bounds = np.concatenate([[0], np.cumsum(sizes - pool.need)])
    passed = np.maximum.accumulate(np.clip(passed, bounds[owner], bounds[owner + 1]))
    chosen: Ints = order[passed + tick]
    return chosen


def _priority(pool: _Pool, seed: int) -> Ints:
    """Take the smallest keys of each group, at a tie the smallest ids, as long as they do not cost too much.

    With signs, the negative of a group get their part of what is wanted of it, rounded down or up at random.

    References:
        | Sequential Poisson Sampling (Ohlsson, 1998)
        | Priority Sampling for Estimation of Arbitrary Subset Sums (Duffield, Lund & Thorup, 2007)
    """
    assert pool.key is not None
    if pool.group is None and pool.negative is None and pool.cost is None:
        return smallest(pool.key, pool.ids, int(pool.need[0]))
    group = np.zeros(len(pool.ids), np.intp) if pool.group is None else pool.group
    cost = np.ones(len(pool.ids)) if pool.cost is None else pool.cost
    if pool.negative is None:
        return _affordable(np.arange(len(group)), pool, group, cost, pool.need)
    part = np.bincount(group, pool.pi * cost * pool.negative, len(pool.need))
    if pool.cost is None:
        part = np.floor(part + 1e-9 + _uniforms(np.arange(len(part)), _START, seed) * (1 - 2e-9))
    negative = _affordable(np.flatnonzero(pool.negative), pool, group, cost, part)
    rest = pool.need - np.bincount(group[negative], cost[negative], len(pool.need))
    return np.concatenate([negative, _affordable(np.flatnonzero(~pool.negative), pool, group, cost, rest)])


def smallest(key: Floats, ids: Ints, n: int) -> Ints:
    """Return the positions of the n smallest keys, at a tie those of the smallest ids.

    Example:
        >>> smallest(np.array([0.5, 0.2, 0.5, 0.9]), np.array([8, 9, 4, 1]), 2)
        array([1, 2])
    """
    if n >= len(key):
        return np.arange(len(key))
    last = np.partition(key, n - 1)[n - 1]
    sure, tied = np.flatnonzero(key < last), np.flatnonzero(key == last)
    tied = tied[np.argsort(ids[tied], kind="stable")[: n - len(sure)]]
    return np.sort(np.concatenate([sure, tied]))


def _affordable(at: Ints, pool: _Pool, group: Ints, cost: Floats, most: Floats) -> Ints:
    """Return those of the positions `at` that come first by their keys and together cost at most `most` per group."""
    assert pool.key is not None
    at = at[np.lexsort((pool.ids[at], pool.key[at], group[at]))]
    spent = np.cumsum(cost[at])
    before = np.concatenate([[0.0], spent])[np.searchsorted(group[at], np.arange(len(most)))]
    chosen: Ints = at[spent - before[group[at]] <= (most + 1e-12 * max(spent[-1:], default=0.0))[group[at]]]
    return chosen


DESIGNS: dict[str, Callable[[_Pool, int], Ints]] = {
    "pivotal": _pivotal,
    "systematic": _systematic,
    "priority": _priority,
}
