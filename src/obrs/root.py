"""One exact root: the c with `sum w min(c r, 1) = share * sum w`, for rows, weights and groups.

Let the ratios be sorted. For every j, `sum w min(c r, 1)` is at most `c (sum of the first j) + mass after j`, and for
one j they are equal: at the root, the first j have c r < 1 and are *free*, and the others are *saturated*, a = 1. So

    c = max over j of (target - mass after j) / (weighted sum of the first j),

and no search is needed. In floats it needs four cautions:

- sums of w r are relative to a reference log-ratio, so that log-ratios may span thousands;
- a j whose sum is 0 does not count;
- the target and the mass after j come from one summation;
- what the target lacks after j is 0 if it is below 8 ulp of the target, or a little more with weights (`slack_of`).
  Otherwise, where the saturated ones meet the target up to rounding, an ulp would be made up by ratios e^1000 below.

`of_rows` solves rows in NumPy memory. It sorts short rows. Of long rows it touches memory once: a subsample gives an
interval that holds the threshold -log c almost surely, one pass sums what lies outside, and only what lies inside is
sorted. If the interval missed, it is opened on the side where the threshold must be: luck changes the time, never the
result. `of_groups` climbs to the same maximum without sorting. `on_device` sorts where the array lives, and looks at
nothing from the host: for accelerators and inside `jax.jit`.
"""

from math import ceil, log
from typing import Any, NamedTuple

import numpy as np

from ._arrays import detached, namespace, widest
from .types import Array

__all__ = [
    "Outside",
    "Root",
    "in_range",
    "largest",
    "of_batch",
    "of_groups",
    "of_interval",
    "of_rows",
    "on_device",
    "relative_masses",
    "slack_of",
    "total",
]

Floats = np.ndarray[Any, Any]

_TILE = 1 << 16  # numbers per step of a pass: a few such buffers stay in a core's cache
_BLOCK = 1 << 20  # numbers per block of rows: bounds what is kept in between
_SORT_ALL = 1 << 14  # at most this many columns: sorting them all is faster than a pass
_SPAN = 600.0  # of log-ratios whose ratios to the largest are all normal floats
_RUN = 16  # columns that are first drawn together where weights decide what is drawn
_LEAST = 1e-290  # a sum of ratios to the largest that is below lost digits, or all of them
_CLIMBS = 12  # steps; groups that need more are sorted


class Root(NamedTuple):
    """The answer for each problem; arrays of shape `(problems,)`.

    Attributes:
        log_c: The root, not floored at 1/max r.
        reached: Share of the mass that has r > 0. It is 1 where a pass found enough without counting all of it.
        top: Largest log-ratio of those that weigh anything; NaN if any is NaN.
        mass: The whole mass. A problem of mass 0 has no root.
    """

    log_c: Any
    reached: Any
    top: Any
    mass: Any


def slack_of(size: int, weighted: bool, eps: float = float(np.finfo(np.float64).eps)) -> float:
    """Return how close to the target meets it: 8 ulp, and more with weights, whose running sum is off by about √size/4.

    Example:
        >>> slack_of(100, weighted=False)
        1.7763568394002505e-15
    """
    return eps * (8 + size**0.5 / 4) if weighted else 8 * eps


def largest(sums: Array, after: Array, target: Array, slack: float = slack_of(1, weighted=False)) -> Array:
    """Return `max_j (target - after_j) / sums_j` along the last axis.

    Args:
        sums: Weighted sum of the first j ratios, for each j.
        after: Mass after the first j.
        target: Mass to be accepted; it broadcasts.
        slack: Share of the target below which what it lacks is 0.

    Example:
        >>> ratio = np.array([0.5, 0.5, 1.0, 4.0])
        >>> largest(np.cumsum(ratio), np.array([3, 2, 1, 0]), 2.0)  # accepts 0.25, 0.25, 0.5 and 1
        np.float64(0.5)
    """
    xp = namespace(sums)
    lacking = target - after
    counts = (lacking > slack * target) & (sums > 0)
    return xp.max(xp.where(counts, lacking, 0.0) / xp.where(counts, sums, 1.0), axis=-1)


def of_rows(x: Floats, weights: Floats | None, share: Floats) -> Root:
    """Solve every row of `x`, shape `(rows, n)`, so that the share `share`, shape `(rows,)`, of its mass is accepted.

    `weights` has the shape of `x`; without it every proposal has mass 1. All in NumPy.

    Example:
        >>> root = of_rows(np.log([[4.0, 1.0, 0.5, 0.5]]), None, np.array([0.5]))
        >>> np.exp(root.log_c), root.reached
        (array([0.5]), array([1.]))
    """
    rows, n = x.shape
    step = max(1, _BLOCK // n)
    with np.errstate(all="ignore"):  # log 0 is meant; NaN and +inf among the log-ratios are seen in `top`
        if step >= rows:
            return _of_block(x, weights, share)
        starts = range(0, rows, step)
        parts = [_of_block(x[i : i + step], _at(weights, slice(i, i + step)), share[i : i + step]) for i in starts]
    return Root(*map(np.concatenate, zip(*parts, strict=True)))


def of_groups(x: Floats, weights: Floats | None, group: Floats, share: Floats) -> Root:
    """Solve many problems of any size: `x` is 1-D, and `group` says to which of `len(share)` each number belongs.

    Each step takes the quotient of `largest` at the present set of free proposals, and saturates what it brings to 1.
    The quotients rise, and one that does not is the maximum. Most groups need three or four steps, and a step is a
    few passes. What needs more, and where a ratio is too far below the largest of its group to be summed with it, is
    sorted instead. Few large groups are solved one by one, like rows.

    Example:
        >>> x, group = np.log([4.0, 3.0, 1.0, 1.0, 0.5, 0.5]), np.array([0, 1, 0, 1, 0, 0])
        >>> np.exp(of_groups(x, None, group, np.array([0.5, 1.0])).log_c).round(3)
        array([0.5, 1. ])
    """
    count = len(share)
    with np.errstate(all="ignore"):
        if weights is not None:
            weights = _in_range_by_group(weights, group, count)
        if len(x) > _SORT_ALL // 2 * count:
            return _of_parts(x, weights, group, share)
        x = x.astype(np.float64, copy=False)
        if weights is not None:
            x = np.where(weights > 0, x, -np.inf)
        root, unsolved = _climb(x, weights, group, share)
        if unsolved.any():
            here = unsolved[group]
            place = np.cumsum(unsolved) - 1
            part = _of_ragged(x[here], _at(weights, here), place[group[here]], share[unsolved])
            for field, solved in zip(root, part, strict=True):
                field[unsolved] = solved
    return root


def of_batch(value: Floats, share: float) -> tuple[float, float] | None:
    """Solve one row of ascending log-ratios of equal mass that span so little that most cautions are not needed.

    This is what a training step asks for. The general way makes four times as many calls, each of which costs more
    than its work on a few hundred numbers.

    Returns:
        log c, and the log of the rate of exact rejection, the mean over the largest. None if they span too much, or
        one is not finite.

    Example:
        >>> np.exp(of_batch(np.log([0.5, 0.5, 1.0, 4.0]), 0.5)).round(6)
        array([0.5  , 0.375])
    """
    n, top = len(value), value.item(-1)
    if not top - value.item(0) < _SPAN:  # false for NaN and infinities, too
        return None
    sums = np.add.accumulate(np.exp(value - top))
    target = share * n
    # the first j after which the target lacks something
    first = n - min(max(ceil(target * (1 - slack_of(n, weighted=False))), 1), n)
    lacking = np.arange(n - first) + (target - (n - 1 - first))
    return log((lacking / sums[first:]).max()) - top, log(sums.item(-1) / n)


def on_device(x: Array, weights: Array | None, share: Any) -> Root:
    """Solve each row of `x`, shape `(rows, n)`, in array-API operations alone; no gradient goes through.

    NaN and what weighs nothing count as r = 0, and +inf as the largest number.

    Args:
        x: Log-ratios.
        weights: Masses of the same shape, or None for even ones.
        share: Share of the mass to accept, a number or one per row.
    """
    xp = namespace(x)
    x = detached(xp.astype(x, widest(xp), copy=False))
    possible, mass = x > -xp.inf, None  # not NaN either
    if weights is not None:
        mass = relative_masses(detached(xp.astype(weights, x.dtype, copy=False)))
        possible = possible & (mass > 0)
    x = xp.where(possible, xp.minimum(x, xp.full_like(x[:1, :1], xp.finfo(x.dtype).max)), -xp.inf)
    if mass is None:
        value = xp.sort(x, axis=-1)
    else:
        order = xp.argsort(x, axis=-1)
        value, mass = xp.take_along_axis(x, order, axis=-1), xp.take_along_axis(mass, order, axis=-1)
    root = _of_sorted(value, mass, share)
    if value.dtype == xp.float32:
        root = root._replace(log_c=_refined(value, mass, share, root.log_c))
    return root


def in_range(weights: Floats, most: Floats) -> Floats:
    """Divide weights by `most`, the largest of their problem, if a sum of them could leave the range of float64."""
    most = most.astype(np.float64)  # 1e200 is no float32
    if np.all((most == 0) | ((most > 1e-200) & (most < 1e200))):
        return weights
    return weights.astype(np.float64) / np.where(most > 0, most, 1.0)


def relative_masses(mass: Array) -> Array:
    """Return masses over the largest of their row, so that no sum of them leaves the range.

    By logarithms: a compiler may merge two divisions into one that overflows.
    """
    xp = namespace(mass)
    log_mass = _log(mass, xp)
    return xp.exp(log_mass - xp.max(log_mass, axis=-1, keepdims=True))


def total(x: Array) -> Array:
    """Sum the last axis, in pairs where only float32 is to be had: its error then stays near 1e-7."""
    xp = namespace(x)
    if x.dtype == xp.float32:
        while x.shape[-1] > 64:
            half = x.shape[-1] // 2
            rest = x[..., 2 * half :]
            x = x[..., :half] + x[..., half : 2 * half]
            x = xp.concat([x, rest], axis=-1) if rest.shape[-1] else x
    return xp.sum(x, axis=-1)


def _refined(value: Array, mass: Array | None, share: Any, log_c: Array) -> Array:
    """Take the quotient of `largest` at the set that log c gives, twice, with sums in pairs.

    In float32 a running sum is off by 1e-4. The quotient at a set that is nearly right is off by the square of that.
    """
    xp = namespace(value)
    mass = xp.ones_like(value) if mass is None else mass
    target = share * total(mass)
    for _ in range(2):
        free = value < -log_c[:, None]
        sums = total(xp.where(free, mass * xp.exp(xp.where(free, value + log_c[:, None], 0.0)), 0.0))
        lacking = target - total(xp.where(free, 0.0, mass))
        good = (lacking > 0) & (sums > 0)
        log_c = log_c + xp.where(good, xp.log(xp.where(good, lacking / xp.where(good, sums, 1.0), 1.0)), 0.0)
    return log_c


class Outside(NamedTuple):
    """What is known of the log-ratios outside the interval `[low, high)`; arrays of shape `(rows,)`.

    Attributes:
        low, high: The ends. The threshold -log c should lie between them.
        above: Mass at or above `high`.
        below: Sum of w exp(l - low) over l < low; 0 if `low` is -inf.
        beneath: Mass below `low`, where there are weights.
        top: Largest log-ratio of all.
        size: Columns of all, inside as well.
    """

    low: Floats
    high: Floats
    above: Floats
    below: Floats
    beneath: Floats
    top: Floats
    size: int


def of_interval(value: Floats, mass: Floats | None, share: float, outside: Outside) -> float:
    """Return log c of one problem of which only the log-ratios in an interval are at hand, in any order.

    Args:
        value: The log-ratios in `[low, high)`, shape `(n,)`.
        mass: Their masses, or None for 1 each.
        share: Share of the whole mass to accept.
        outside: What lies outside, in arrays of one number.

    Returns:
        The root, not floored at 1/max r. If the threshold lies outside the interval, so does that of the answer.

    Example:
        >>> ends = Outside(*map(np.atleast_1d, (-0.1, 1.0, 1.0, np.exp(0.1), 0.0, np.log(4.0))), size=4)
        >>> round(float(np.exp(of_interval(np.zeros(1), None, 0.5, ends))), 6)  # of 4, 1, 0.5 and 0.5
        0.5
    """
    order = np.argsort(value) if mass is not None else None
    value = np.sort(value) if order is None else value[order]
    value = np.concatenate([[-np.inf], value])[None]  # one r = 0 changes nothing, and so none is empty
    mass = None if mass is None else np.concatenate([[0.0], mass[order]])[None]
    with np.errstate(all="ignore"):
        return float(_of_sorted(value, mass, np.array([share]), outside).log_c[0])


def _of_sorted(value: Array, mass: Array | None, share: Any, outside: Outside | None = None) -> Root:
    """Solve rows of ascending log-ratios, shape `(rows, n)`, with what lies outside of them.

    The answer is right if the threshold lies in `[low, high)`; otherwise it lies outside, too, on the right side.
    """
    xp = namespace(value)
    n = value.shape[1]
    eps = float(xp.finfo(value.dtype).eps)
    zero = xp.zeros_like(value[:, :1])
    bounds = xp.concat([zero - xp.inf, value, zero + xp.inf if outside is None else outside.high[:, None]], axis=1)

    slack = slack_of(n if outside is None else outside.size, mass is not None, eps)

    # The mass from each value upwards; the last is what lies above them all.
    if mass is None:
        tail = _countdown(bounds[:, 1:])
    else:
        tail = xp.flip(xp.cumulative_sum(xp.flip(mass, axis=1), axis=1, include_initial=True), axis=1)
    if outside is not None:
        tail = tail + outside.above[:, None]
    whole = tail[:, :1]
    if outside is not None:
        whole = zero + outside.size if mass is None else whole + outside.beneath[:, None]
    target = whole * (xp.reshape(share, (-1, 1)) if hasattr(share, "shape") else share)

    # The reference: the largest value whose tail still holds the target. It is at most the threshold -log c, because
    # alpha(it) >= its tail. And what lies more than log(mass / target) + 41 above it is saturated, because the rest
    # could not fill a share e^-41 of the target. So exp never overflows, and sums relative to it lose nothing.
    impossible = _count(value == -xp.inf)
    first = _pick(bounds, impossible + 1)
    reference = _pick(bounds, _count(tail >= (1 - slack) * target))
    least = xp.where(first < xp.inf, first, 0.0)
    if outside is not None:  # where there is a sum below `low`, it must not vanish beside what lies inside
        least = xp.where(outside.low[:, None] > -xp.inf, outside.low[:, None], least)
    reference = xp.maximum(reference, least)
    terms = xp.exp(xp.minimum(value - reference, xp.log(whole / target) + 41))
    if mass is not None:
        terms = terms * mass
    before = zero
    if outside is not None:
        low = outside.low[:, None]
        before = outside.below[:, None] * xp.exp(xp.where(low > -xp.inf, low - reference, 0.0))
    sums = xp.cumulative_sum(xp.concat([before, terms], axis=1), axis=1)
    c = largest(sums, tail, target, slack)

    # Where c is 0, what lies above meets the target by itself, or nothing is left that could.
    c, end = c[:, None], bounds[:, -1:]
    if outside is not None:
        end = xp.where(tail[:, -1:] >= (1 - slack) * target, end, -xp.inf)
    threshold = xp.where(c > 0, reference - xp.log(xp.where(c > 0, c, 1.0)), end)[:, 0]
    reached = (_pick(tail, impossible) / whole)[:, 0]
    if outside is None:
        return Root(-threshold, reached, value[:, -1], whole[:, 0])
    return Root(-threshold, xp.where(outside.low > -xp.inf, 1.0, reached), outside.top, whole[:, 0])


def _countdown(x: Array) -> Array:
    """Return n - 1, …, 1, 0 for rows of n numbers."""
    if isinstance(x, np.ndarray):
        return np.broadcast_to(np.arange(x.shape[1] - 1, -1, -1, dtype=x.dtype), x.shape)
    xp = namespace(x)
    return x.shape[1] - xp.cumulative_sum(xp.ones_like(x), axis=1)  # where x lives, which a tracer does not tell


def _pick(x: Array, index: Array) -> Array:
    """Return the entry `index` of each row, as a column."""
    if isinstance(x, np.ndarray):  # whose take_along_axis costs as much as all the rest
        return x[:, index] if len(x) == 1 else x[np.arange(len(x)), index][:, None]
    return namespace(x).take_along_axis(x, index[:, None], axis=1)


def _count(mask: Array) -> Array:
    """Count what is true in each row."""
    if isinstance(mask, np.ndarray):  # without an axis it is ten times as fast
        return np.array([np.count_nonzero(mask)]) if len(mask) == 1 else np.count_nonzero(mask, axis=1)
    xp = namespace(mask)
    return xp.sum(xp.astype(mask, xp.int32), axis=1)


def _of_block(x: Floats, weights: Floats | None, share: Floats) -> Root:
    """Solve rows that fit into a block."""
    if weights is not None:
        weights = in_range(weights, np.max(weights, axis=1, keepdims=True))
    if x.shape[1] <= _SORT_ALL:
        return _of_all(x, weights, share)
    low, high = _bracket(x, weights, share)
    root = _inside(x, weights, share, low, high)
    missed = np.flatnonzero((-root.log_c < low) | ((-root.log_c >= high) & (high < np.inf)))
    if missed.size:
        too_high = -root.log_c[missed] < low[missed]
        low, high = np.where(too_high, -np.inf, high[missed]), np.where(too_high, low[missed], np.inf)
        repaired = _inside(x[missed], _at(weights, missed), share[missed], low, high)
        for field, values in zip(root, repaired, strict=True):
            field[missed] = values
    return root


def _of_all(x: Floats, weights: Floats | None, share: Floats) -> Root:
    """Solve rows by sorting all of them."""
    if weights is None:
        return _of_even(np.sort(x, axis=1).astype(np.float64, copy=False), share)
    x = np.where(weights > 0, x, -np.inf)
    order = np.argsort(x, axis=1)
    value, mass = np.take_along_axis(x, order, axis=1), np.take_along_axis(weights, order, axis=1)
    return _of_sorted(value.astype(np.float64, copy=False), mass.astype(np.float64, copy=False), share)


def _of_even(value: Floats, share: Floats) -> Root:
    """Solve rows of ascending log-ratios of equal mass."""
    if len(value) == 1 and (found := of_batch(value[0], share.item(0))) is not None:
        return Root(np.array([found[0]]), np.ones(1), value[0, -1:], np.array([float(value.shape[1])]))
    return _of_sorted(value, None, share)


def _bracket(x: Floats, weights: Floats | None, share: Floats) -> tuple[Floats, Floats]:
    """Guess an interval for the threshold from a subsample of the columns, five standard errors to each side."""
    n = x.shape[1]
    size = int(2 * n ** (2 / 3))
    # One place from each of `size` equal strata, of columns or of mass: as random as needed, and read in order.
    places = (np.arange(size) + np.random.default_rng(n).random(size)) / size
    columns = (places * n).astype(np.intp)[None] if weights is None else _columns_by_mass(weights, places)
    sample = np.take(x, columns[0], axis=1) if weights is None else np.take_along_axis(x, columns, axis=1)
    sample.sort(axis=1)
    sample = sample.astype(np.float64, copy=False)
    error = 5 * np.sqrt(share * (1 - share) / size) + 5 / size
    more, less = (_of_even(sample, np.clip(s, 1 / size, 1)) for s in (share + error, share - error))
    low = np.where((more.reached >= share + error) & np.isfinite(more.log_c), -more.log_c, -np.inf).astype(x.dtype)
    useful = (share > error) & (less.reached >= share - error) & np.isfinite(less.log_c)
    high = np.where(useful, -less.log_c, np.inf).astype(x.dtype)
    return low.astype(np.float64), np.where(high > low, high, np.inf).astype(np.float64)


def _columns_by_mass(weights: Floats, places: Floats) -> Floats:
    """Return, for each row, the columns in which its mass passes these shares of the whole, which ascend.

    First the run of columns is found, then the column within it: a running sum of all would be as large as the input.
    """
    rows, n = weights.shape
    starts = np.arange(0, n, _RUN)
    columns = np.empty((rows, len(places)), np.intp)
    for row in range(rows):
        sums = np.cumsum(np.add.reduceat(weights[row], starts, dtype=np.float64))
        goal = places * sums[-1]
        run = np.minimum(np.searchsorted(sums, goal, side="right"), len(starts) - 1)
        within = np.minimum(starts[run][:, None] + np.arange(_RUN), n - 1)
        inner = np.cumsum(weights[row, within], axis=1)
        inner += (np.concatenate([[0.0], sums])[run] - goal)[:, None]
        columns[row] = np.minimum(starts[run] + np.count_nonzero(inner <= 0, axis=1), n - 1)
    return columns


def _inside(x: Floats, weights: Floats | None, share: Floats, low: Floats, high: Floats) -> Root:
    """Pass once over `x`: sum what lies outside `[low, high)`, sort what lies inside, and solve."""
    rows, n = x.shape
    step = max(1, _TILE // rows)
    above, below, beneath, top = np.zeros(rows), np.zeros(rows), np.zeros(rows), np.full(rows, -np.inf)
    ceiling = high.astype(x.dtype)[:, None]
    bottom = np.maximum(low.astype(x.dtype), np.finfo(x.dtype).min)[:, None]  # -inf - -inf would be NaN
    # Each row starts with one r = 0, which changes nothing, so that none is empty.
    values, masses, owners = [np.full(rows, -np.inf, x.dtype)], [np.zeros(rows)], [np.arange(rows)]
    for start in range(0, n, step):
        tile = x[:, start : start + step]
        w = None if weights is None else weights[:, start : start + step]
        if w is not None:
            tile = np.where(w > 0, tile, -np.inf)
        top = np.maximum(top, np.max(tile, axis=1))
        inside, saturated = tile >= bottom, tile >= ceiling
        capped = np.minimum(tile, bottom)
        capped -= bottom
        np.exp(capped, out=capped)  # exactly 1 where l >= low: those are taken off again by their mass
        if w is None:
            below += np.sum(capped, axis=1, dtype=np.float64) - _count(inside)
            above += _count(saturated)
        else:
            capped[inside] = 0
            below += np.sum(capped * w, axis=1, dtype=np.float64)
            above += np.sum(w, axis=1, where=saturated, dtype=np.float64)
            beneath += np.sum(w, axis=1, where=~inside, dtype=np.float64)
        np.greater(inside, saturated, out=inside)
        index = np.flatnonzero(inside)
        row, column = (0, index) if rows == 1 else np.divmod(index, tile.shape[1])
        values.append(tile[row, column])
        owners.append(np.broadcast_to(row, index.shape))
        if w is not None:
            masses.append(w[row, column])
    value, kept = np.concatenate(values), None if weights is None else np.concatenate(masses)
    if rows > 1:
        value, kept = _as_rows(value, kept, np.concatenate(owners), rows)
    elif kept is None:
        value = np.sort(value)[None]
    else:
        order = np.argsort(value)
        value, kept = value[None, order], kept[None, order]
    outside = Outside(low, high, above, np.maximum(below, 0.0), beneath, top, n)
    kept = None if kept is None else kept.astype(np.float64, copy=False)
    return _of_sorted(value.astype(np.float64, copy=False), kept, share, outside)


def _as_rows(value: Floats, mass: Floats | None, owner: Floats, rows: int) -> tuple[Floats, Floats | None]:
    """Lay numbers into the rows that own them, ascending; rows are filled up at the front with r = 0 of mass 0."""
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=rows)
    width = max(int(sizes.max()), 1)
    place = owner[order], width - 1 - np.arange(len(owner)) + (np.cumsum(sizes) - sizes)[owner[order]]
    packed = np.full((rows, width), -np.inf, dtype=value.dtype)
    packed[place] = value[order]
    if mass is None:
        packed.sort(axis=1)
        return packed, None
    packed_mass = np.zeros((rows, width))
    packed_mass[place] = mass[order]
    order = np.argsort(packed, axis=1)
    return np.take_along_axis(packed, order, axis=1), np.take_along_axis(packed_mass, order, axis=1)


def _of_parts(x: Floats, weights: Floats | None, group: Floats, share: Floats) -> Root:
    """Solve a few large groups one by one."""
    count = len(share)
    order = np.argsort(group.astype(np.uint16) if count <= 1 << 16 else group, kind="stable")  # of few bits it is fast
    cuts = np.cumsum(np.bincount(group, minlength=count))[:-1]
    parts = [
        _of_block(x[None, part], _at(weights, (None, part)), share[k : k + 1])
        for k, part in enumerate(np.split(order, cuts))
    ]
    return Root(*map(np.concatenate, zip(*parts, strict=True)))


def _climb(x: Floats, weights: Floats | None, group: Floats, share: Floats) -> tuple[Root, Floats]:
    """Climb to the maximum of each group; return the roots, and which groups are not solved."""
    count = len(share)
    top = np.full(count, -np.inf)
    np.maximum.at(top, group, x)
    mass = np.bincount(group, weights, count).astype(np.float64)
    positive = x > -np.inf
    possible: Floats = mass
    if not positive.all():
        possible = np.bincount(group, positive if weights is None else np.where(positive, weights, 0.0), count)
    origin = np.where(np.isfinite(top), top, 0.0)
    ratio = np.exp(x - origin[group])  # to the largest of the group
    terms = ratio if weights is None else weights * ratio
    target = share * mass
    enough = (1 - slack_of(len(x), weights is not None)) * target  # of saturated mass

    # The quotient at any set is at most c, so the climb may start anywhere: at the threshold of all groups together.
    start = -_of_block(x[None, :: len(x) // _SORT_ALL + 1], None, np.mean(share, keepdims=True)).log_c[0]
    free, edge = x < start, np.full(count, np.inf)  # 1/c, from above
    least = _LEAST * np.maximum(mass, 1.0)
    rising = (possible > 0) & (possible >= enough)
    unsolved = ~rising
    for step in range(_CLIMBS):
        saturated = np.bincount(group, ~free if weights is None else weights * ~free, count)  # never as a difference
        sums = np.bincount(group, terms * free, count)
        if not step:  # where the start was too low, all are free
            low = saturated >= enough
            saturated[low], sums[low] = 0, np.bincount(group, terms, count)[low]
        found = sums / (target - saturated)
        found[saturated >= enough] = np.inf
        unsolved |= rising & ~(sums > least) & (saturated < enough)
        rising &= (found < edge) & ~unsolved
        if not rising.any():
            break
        edge = np.where(rising, found, edge)
        here = rising[group]
        if np.count_nonzero(here) < len(group) // 2:  # the others are solved
            index = np.flatnonzero(here)
            group, ratio, terms, weights = group[index], ratio[index], terms[index], _at(weights, index)
        free = ratio < edge[group]
    return Root(-np.log(edge) - origin, possible / mass, top, mass), unsolved | rising


def _of_ragged(x: Floats, weights: Floats | None, group: Floats, share: Floats) -> Root:
    """Solve groups by sorting them; groups of similar size are filled up and solved together."""
    sizes = np.bincount(group, minlength=len(share))
    root = Root(*(np.full(len(share), np.nan) for _ in Root._fields))
    mass = np.ones(len(x)) if weights is None else weights
    size_class = np.ceil(np.log2(np.maximum(sizes, 1)))
    place = np.empty(len(share), np.intp)
    for size in np.unique(size_class):
        members = np.flatnonzero(size_class == size)
        place[members] = np.arange(len(members))
        here = size_class[group] == size
        rows = _as_rows(x[here], mass[here], place[group[here]], len(members))
        for field, solved in zip(root, _of_sorted(*rows, share[members]), strict=True):
            field[members] = solved
    return root


def _in_range_by_group(weights: Floats, group: Floats, count: int) -> Floats:
    if weights.size and 1e-200 < weights.max() < 1e200 and weights.min() > 1e-200:
        return weights
    most = np.zeros(count)
    np.maximum.at(most, group, weights)
    return in_range(weights, most[group])


def _at(weights: Floats | None, index: Any) -> Floats | None:
    return None if weights is None else weights[index]


def _log(x: Array, xp: Any) -> Array:
    """Return log x, and -inf at 0 without a warning."""
    return xp.where(x > 0, xp.log(xp.where(x > 0, x, 1.0)), -xp.inf)
