"""The exact solver on NumPy memory: find tau = -log c with `sum w min(exp(l - tau), 1) = target`.

The left side, alpha, is concave, increasing and piecewise linear in c, with a kink where a log-ratio
`l` meets tau. Once it is known which proposals are saturated (l >= tau, a = 1), c is one division:
c = (target - saturated mass) / sum of w r over the others. To find them without sorting 10^7 numbers:

1. `_bracket`: a random subsample gives an interval [low, high) that holds tau almost surely;
2. `_scan`: one blocked pass counts what lies above, sums what lies below, keeps the few in between;
3. `_finish`: those few are sorted and solved exactly. If the interval missed, it is opened on the side
   where tau must be and the pass repeated: luck changes the time, never the result.

Rows are independent problems. Ragged rows are padded with log-ratios of -inf, which weigh nothing.
"""

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Solution", "solve_groups", "solve_rows"]

Floats = np.ndarray[Any, Any]

_TILE = 1 << 16  # numbers per step of the pass: a few such buffers stay in a core's cache
_BLOCK = 1 << 20  # numbers per block of rows: bounds what is kept in between
_SORT_ALL = 1 << 14  # at most this many columns: sorting them all is faster than a pass


class Solution(NamedTuple):
    """The answer for each row; float64 arrays of shape `(rows,)`.

    Attributes:
        log_c: The root, not floored at 1/max r.
        edge: Proposals with a log-ratio below it have a < 1, the others a = 1.
        saturated: Mass of those others.
        reached: Mass of the proposals with r > 0 where it had to be counted, else +inf.
        top: Largest log-ratio; NaN if any is NaN.
    """

    log_c: Floats
    edge: Floats
    saturated: Floats
    reached: Floats
    top: Floats


class _Middle(NamedTuple):
    """What one pass knows: the surely saturated, the surely not, and those in between."""

    above: Floats  # (rows,) mass at or above `high`
    below: Floats  # (rows,) sum of w exp(l - low) over l < low
    top: Floats  # (rows,)
    value: Floats  # (rows, m) log-ratios in [low, high), padded with -inf
    mass: Floats | None  # (rows, m) their weights


def solve_rows(x: Floats, weights: Floats | None, target: Floats) -> Solution:
    """Solve every row of `x`, shape `(rows, n)`, so that its accepted mass is `target`, shape `(rows,)`.

    `weights` has the shape of `x`; without it every proposal has mass 1.
    """
    rows, n = x.shape
    step = max(1, _BLOCK // n)
    with np.errstate(all="ignore"):  # log 0 is meant; NaN and +inf among the log-ratios are seen in `top`
        parts = [
            _solve_block(x[i : i + step], _rows_of(weights, slice(i, i + step)), target[i : i + step])
            for i in range(0, rows, step)
        ]
    return parts[0] if len(parts) == 1 else Solution(*map(np.concatenate, zip(*parts, strict=True)))


def solve_groups(x: Floats, weights: Floats | None, group: Floats, target: Floats) -> Solution:
    """Solve ragged rows: `x` is 1-D and `group` says which of `len(target)` rows each number belongs to.

    Rows of similar length are padded and solved together, so there is one call per power of two,
    however many groups there are.
    """
    count = len(target)
    order = np.argsort(group, kind="stable")
    x, group, weights = x[order], group[order], _rows_of(weights, order)
    sizes = np.bincount(group, minlength=count)
    starts = np.cumsum(sizes) - sizes
    solution = Solution(*(np.full(count, np.nan) for _ in Solution._fields))
    size_class = np.ceil(np.log2(np.maximum(sizes, 1))).astype(int)
    for k in np.unique(size_class):
        members = np.flatnonzero(size_class == k)
        column = np.arange(sizes[members].max())
        inside = column < sizes[members, None]
        index = np.where(inside, starts[members, None] + column, 0)
        part = solve_rows(
            np.where(inside, x[index], -np.inf).astype(x.dtype, copy=False),
            None if weights is None else np.where(inside, weights[index], 0.0),
            target[members],
        )
        for field, values in zip(solution, part, strict=True):
            field[members] = values
    return solution


def _solve_block(x: Floats, weights: Floats | None, target: Floats) -> Solution:
    rows, n = x.shape
    low, high = np.full(rows, -np.inf), np.full(rows, np.inf)
    if n > _SORT_ALL:
        low, high = _bracket(x, weights, target)
    solution = _finish(_scan(x, weights, low, high), low, high, target)
    tau = -solution.log_c
    missed = np.flatnonzero((tau < low) | ((tau >= high) & (high < np.inf)))
    if missed.size:
        too_high = tau[missed] < low[missed]
        low, high = np.where(too_high, -np.inf, high[missed]), np.where(too_high, low[missed], np.inf)
        middle = _scan(x[missed], _rows_of(weights, missed), low, high)
        for field, repaired in zip(solution, _finish(middle, low, high, target[missed]), strict=True):
            field[missed] = repaired
    return solution


def _bracket(x: Floats, weights: Floats | None, target: Floats) -> tuple[Floats, Floats]:
    """Guess an interval for tau from a subsample of the columns, five standard errors to each side."""
    rows, n = x.shape
    size = int(2 * n ** (2 / 3))
    # One column from each of `size` equal strata: as random as needed, and read in order.
    columns = ((np.arange(size) + np.random.default_rng(n).random(size)) * (n / size)).astype(np.intp)
    sample, mass = np.take(x, columns, axis=1), None if weights is None else np.take(weights, columns, axis=1)
    if weights is None or mass is None:
        whole, effective = np.full(rows, float(size)), np.full(rows, float(size))
        share = target / n
    else:
        whole = np.sum(mass, axis=1)
        effective = whole**2 / np.maximum(np.sum(mass**2, axis=1), np.finfo(float).tiny)
        share = target / np.sum(weights, axis=1)
    error = 5 * np.sqrt(np.maximum(share * (1 - share), 0) / np.maximum(effective, 1)) + 5 / np.maximum(effective, 1)
    no_low, no_high = np.full(rows, -np.inf), np.full(rows, np.inf)
    sampled = _scan(sample, mass, no_low, no_high)
    bounded_below, bounded_above = (share + error < 1) & (whole > 0), (share > error) & (whole > 0)
    whole = np.maximum(whole, np.finfo(float).tiny)
    low = -_finish(sampled, no_low, no_high, np.where(bounded_below, share + error, 1.0) * whole).log_c
    high = -_finish(sampled, no_low, no_high, np.where(bounded_above, share - error, 1.0) * whole).log_c
    low = np.where(bounded_below & np.isfinite(low), low, -np.inf).astype(x.dtype)
    high = np.where(bounded_above & np.isfinite(high), high, np.inf).astype(x.dtype)
    return low.astype(np.float64), np.where(high > low, high, np.inf).astype(np.float64)


def _scan(x: Floats, weights: Floats | None, low: Floats, high: Floats) -> _Middle:
    """Pass once over `x`: mass above `high`, sum below `low`, and what lies in between."""
    rows, n = x.shape
    if np.all(np.isneginf(low)) and np.all(np.isposinf(high)):
        value = x if weights is None else np.where(weights > 0, x, -np.inf)
        return _Middle(np.zeros(rows), np.zeros(rows), np.max(value, axis=1).astype(np.float64), value, weights)
    step = max(1, _TILE // rows)
    above, below, top = np.zeros(rows), np.zeros(rows), np.full(rows, -np.inf)
    ceiling = high.astype(x.dtype)[:, None]
    floor = np.maximum(low.astype(x.dtype), np.finfo(x.dtype).min)[:, None]  # -inf - -inf would be NaN
    values, masses, owners = [], [], []
    for start in range(0, n, step):
        tile = x[:, start : start + step]
        w = None if weights is None else weights[:, start : start + step]
        if w is not None:
            tile = np.where(w > 0, tile, -np.inf)
        top = np.maximum(top, np.max(tile, axis=1))
        inside, saturated = tile >= floor, tile >= ceiling
        capped = np.minimum(tile, floor)
        capped -= floor
        np.exp(capped, out=capped)  # exactly 1 where l >= low: those are taken off again by their mass
        if w is None:
            below += np.sum(capped, axis=1, dtype=np.float64) - _count(inside)
            above += _count(saturated)
        else:
            capped[inside] = 0
            below += np.sum(capped * w, axis=1, dtype=np.float64)
            above += np.sum(w, axis=1, where=saturated, dtype=np.float64)
        np.greater(inside, saturated, out=inside)
        index = np.flatnonzero(inside)
        row, column = (0, index) if rows == 1 else np.divmod(index, tile.shape[1])
        values.append(tile[row, column])
        owners.append(row)
        if w is not None:
            masses.append(w[row, column])
    value, mass = _pack(values, masses, owners, rows)
    return _Middle(above, np.maximum(below, 0.0), top, value, mass)


def _pack(values: list[Floats], masses: list[Floats], owners: list[Any], rows: int) -> tuple[Floats, Floats | None]:
    """Lay what each tile kept into rows, padded with -inf."""
    value, mass = np.concatenate(values), np.concatenate(masses) if masses else None
    if rows == 1:
        return value[None], None if mass is None else mass[None]
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=rows)
    place = (owner[order], np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner[order]])
    packed = np.full((rows, sizes.max()), -np.inf, dtype=value.dtype)
    packed[place] = value[order]
    if mass is None:
        return packed, None
    packed_mass = np.zeros(packed.shape)
    packed_mass[place] = mass[order]
    return packed, packed_mass


def _finish(middle: _Middle, low: Floats, high: Floats, target: Floats) -> Solution:
    """Solve exactly if tau lies in `[low, high)`; otherwise the answer lies outside it too, on the right side."""
    rows, size = middle.value.shape
    if middle.mass is None:
        value = np.sort(np.ascontiguousarray(middle.value), axis=1).astype(np.float64, copy=False)
        mass = None
        tail = np.broadcast_to(np.arange(size, 0.0, -1.0), (rows, size))
    else:
        order = np.argsort(np.ascontiguousarray(middle.value), axis=1)
        value = np.take_along_axis(middle.value, order, axis=1).astype(np.float64, copy=False)
        mass = np.take_along_axis(middle.mass, order, axis=1).astype(np.float64, copy=False)
        mass = np.where(value > -np.inf, mass, 0.0)
        tail = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
    tail = tail + middle.above[:, None]  # mass from each value upwards
    goal = target[:, None]

    # The quantile q whose tail holds the target is at most tau, because alpha(q) >= tail(q); and what lies more
    # than log(mass / target) + 40 above it is saturated, because the rest could not fill a share e^-40 of the
    # target. So exp(l - q) never overflows, and sums relative to q lose nothing.
    positive = value > -np.inf
    reached = middle.above + (np.sum(positive, axis=1) if mass is None else np.sum(mass, axis=1))
    first = _first(value, positive)
    quantile = np.max(value, axis=1, where=positive & (tail >= goal), initial=-np.inf)
    reference = np.maximum(quantile, low)
    reference = np.where(np.isneginf(reference), first, reference)
    height = np.log(reached + middle.below) - np.log(target) + 41
    below = middle.below * np.exp(np.where(np.isneginf(low), 0.0, low - reference))
    offset = value - reference[:, None]
    weighted = np.exp(np.minimum(offset, height[:, None]))
    if mass is not None:
        weighted *= mass

    # alpha at each kink: the mass at or above it, plus c times the sum below it. It falls as the value rises.
    alpha = np.zeros((rows, size))
    np.cumsum(weighted[:, :-1], axis=1, out=alpha[:, 1:])
    alpha += below[:, None]
    alpha *= np.exp(-np.maximum(offset, 0.0))
    alpha += tail
    # With the target out of reach, or an ulp beyond it, the smallest value stays free, so that c is finite.
    hopeless = np.isneginf(quantile) & np.isneginf(low)
    free = (alpha >= goal) | ~positive | (hopeless[:, None] & (value <= first[:, None]))

    # Who is free is known up to rounding; equal values go together. Between the largest free value and the
    # smallest saturated one alpha is W + c S, and tau stays there even if the deficit is an ulp off.
    edge = np.minimum(np.min(value, axis=1, where=~free, initial=np.inf), high)
    free = value < edge[:, None]
    total = below + np.sum(weighted, axis=1, where=free)
    saturated = middle.above + (_count(~free) if mass is None else np.sum(mass, axis=1, where=~free))
    deficit = target - saturated
    tau = np.where(deficit > 0, reference + np.log(total) - np.log(deficit), edge)
    tau = np.clip(tau, np.max(value, axis=1, where=free, initial=-np.inf), edge)
    return Solution(-tau, edge, saturated, np.where(np.isneginf(low), reached, np.inf), middle.top)


def _first(value: Floats, positive: Floats) -> Floats:
    """Return the smallest log-ratio with r > 0 of each row; 0 if there is none."""
    first = np.min(value, axis=1, where=positive, initial=np.inf)
    return np.where(np.isposinf(first), 0.0, first)


def _count(mask: Floats) -> Any:
    return np.count_nonzero(mask) if len(mask) == 1 else np.count_nonzero(mask, axis=1)


def _rows_of(weights: Floats | None, index: Any) -> Floats | None:
    return None if weights is None else weights[index]
