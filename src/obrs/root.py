"""One exact root: the c with `sum m min(c r, 1) = target`, for rows, groups, one large pool, and shards.

Let the ratios be sorted. For every j, `sum m min(c r, 1)` is at most `c (sum of the first j) + mass after j`, and for
one j they are equal: at the root, the first j have c r < 1 and are *free*, and the others are *saturated*, a = 1. So

    c = max over j of (target - mass after j) / (sum of m r over the first j),

and no search is needed: that is `solve_sorted`. The other functions bring a problem into its form. Log-ratios are -inf
or numbers of at most 1e6, masses are at most 1; they were checked at the public boundary, and are not here.
"""

import sys
from collections.abc import Callable
from math import ceil, inf
from typing import Any

import numpy as np

from ._arrays import array_like, detach, namespace, widest
from .errors import MissingLibraryError
from .types import Array

__all__ = []

Floats = np.ndarray[Any, Any]

_TILE = 1 << 16  # numbers per step of a pass: a few such buffers stay in a core's cache
_FEW = 1 << 14  # a pool of so many is sorted; a larger one is first bracketed
_ZERO = -1e30  # stands for log 0: far below every log-ratio, and differences stay finite in float32


def slack_of(size: int, weighted: bool, eps: float = float(np.finfo(np.float64).eps)) -> float:
    """Return the relative tolerance of a target: 8 ulp, and more with masses, whose running sum is off by √size/4.

    A smaller gap counts as none. Otherwise, where saturated values meet the target up to one ulp, ratios e^1000 below
    them would have to fill that ulp.

    Example:
        >>> slack_of(100, weighted=False)
        1.7763568394002505e-15
    """
    return eps * (8 + size**0.5 / 4) if weighted else 8 * eps


def solve_sorted(values: Array, masses: Array | None, target: Any) -> Array:
    """Return log c of each row of ascending log-ratios, shape `(rows, n)`; array-API operations alone.

    Exponentials are relative to the largest value from which on the mass up to the top holds the target. It is at most
    -log c, so the sums over free ratios lose nothing. Far above it they may overflow: there the quotient is 0, as it
    should be. Relative to the maximum they would vanish, as at K = 1.5 with (0, 0, -1000, -1000, -1000, -1000).

    Args:
        values: Finite numbers, ascending; what stands for r = 0 is far below all others.
        masses: Of the same shape, 0 where r = 0; None for 1 each.
        target: Mass to accept: a number, or one per row of shape `(rows, 1)`.

    Example:
        >>> float(np.exp(solve_sorted(np.log([[0.5, 0.5, 1.0, 4.0]]), None, 2.0))[0])  # accepts .25, .25, .5 and 1
        0.5
    """
    xp, n = namespace(values), values.shape[-1]
    slack = slack_of(n, masses is not None, float(xp.finfo(values.dtype).eps))
    if masses is None and isinstance(target, float):  # where the target begins to lack something is known beforehand
        first = n - min(max(ceil((1 - slack) * target), 1), n)
        reference = values[:, first : first + 1]
        sums = xp.cumulative_sum(xp.exp(values - reference), axis=-1)[:, first:]
        lacking: Any = np.arange(n - first) + (target - (n - 1 - first))
        quotients = (lacking if isinstance(sums, np.ndarray) else array_like(lacking, sums)) / sums
    else:
        masses = xp.ones_like(values) if masses is None else masses
        tail = xp.flip(xp.cumulative_sum(xp.flip(masses, axis=-1), axis=-1), axis=-1)
        after = xp.concat([tail[:, 1:], xp.zeros_like(tail[:, :1])], axis=-1)  # not tail - masses, which cancels
        at = xp.sum(xp.astype(tail >= (1 - slack) * target, xp.int32), axis=-1, keepdims=True)
        reference = xp.take_along_axis(values, xp.where(at > 0, at - 1, 0), axis=-1)
        sums, lacking = xp.cumulative_sum(masses * xp.exp(values - reference), axis=-1), target - after
        quotients = xp.where(lacking > slack * target, lacking / sums, 0.0)
    return (xp.log(xp.max(quotients, axis=-1, keepdims=True)) - reference)[:, 0]


def solve_rows(values: Array, masses: Array | None, target: Any) -> Array:
    """Return log c of each row of log-ratios, shape `(rows, n)`, wherever they live; no gradient goes through.

    Args:
        values: Log-ratios in any order; -inf is r = 0.
        masses: Of the same shape, at most 1; None for 1 each.
        target: Mass to accept, a number or one per row, `(rows,)`.

    Example:
        >>> np.exp(solve_rows(np.log([[4.0, 1.0, 0.5, 0.5]]), None, 2.0))
        array([0.5])
    """
    xp, n = namespace(values), values.shape[1]
    target = xp.reshape(target, (-1, 1)) if getattr(target, "ndim", 0) else target
    if isinstance(values, np.ndarray) and len(values) > (step := max(1, _TILE // n)):
        at = [slice(i, i + step) for i in range(0, len(values), step)]
        goals = [target[i, 0] for i in at] if getattr(target, "ndim", 0) else [target] * len(at)
        parts = zip(at, goals, strict=True)
        return np.concatenate([solve_rows(values[i], None if masses is None else masses[i], g) for i, g in parts])
    with np.errstate(all="ignore"):  # what overflows has quotient 0
        return solve_sorted(*sort_values(detach(values), None if masses is None else detach(masses)), target)


def sort_values(values: Array, masses: Array | None) -> tuple[Array, Array | None]:
    """Sort rows in ascending order, in float64 where it exists; where r or the mass is 0, the value is `_ZERO`."""
    xp = namespace(values)
    if masses is None:
        values = xp.astype(xp.sort(values, axis=-1, stable=False), widest(xp), copy=False)
        return xp.where(values > _ZERO, values, _ZERO), None
    values = xp.astype(xp.where(masses > 0, values, -inf), widest(xp), copy=False)
    values = xp.where(values > _ZERO, values, _ZERO)
    order = xp.argsort(values, axis=-1, stable=False)
    masses = xp.take_along_axis(masses, order, axis=-1)
    return xp.take_along_axis(values, order, axis=-1), xp.astype(masses, values.dtype, copy=False)


def stable_order(numbers: Floats) -> Floats:
    """Return the positions of whole numbers from 0 in ascending order, equal ones as they came.

    Each is sorted in one word, with its position in the low bits: several times as fast as a stable argsort.
    """
    if np.all(numbers[1:] >= numbers[:-1]):
        return np.arange(len(numbers))
    bits = np.uint64(len(numbers).bit_length())
    words = numbers.astype(np.uint64)
    words <<= bits
    words |= np.arange(len(words), dtype=np.uint64)
    words.sort()
    words &= (np.uint64(1) << bits) - np.uint64(1)
    return words.view(np.int64)


def solve_groups(values: Floats, masses: Floats | None, group: Floats, target: Floats) -> Floats:
    """Return log c of many problems of any size: `group` is the index of the problem of each number.

    Example:
        >>> x, group = np.log([4.0, 3.0, 1.0, 1.0, 0.5, 0.5]), np.array([0, 1, 0, 1, 0, 0])
        >>> np.exp(solve_groups(x, None, group, np.array([2.0, 2.0]))).round(3)
        array([0.5, 1. ])
    """
    order, sizes = stable_order(group), np.bincount(group, minlength=len(target))
    return solve_segments(values[order], None if masses is None else masses[order], sizes, target)


def solve_segments(values: Floats, masses: Floats | None, sizes: Floats, target: Floats) -> Floats:
    """Return log c of many problems that lie one after another, each of its size.

    Those of about one size, up to a factor of two, are filled up to the largest of them with r = 0 and solved as rows;
    large ones are pools of their own. No running sum goes across problems: one that is 30 nats below another would lose
    all its digits.
    """
    ends = np.cumsum(sizes)
    log_c, octave = np.full(len(target), -inf), np.ceil(np.log2(np.maximum(sizes, 1)))
    for row in np.flatnonzero((sizes > _FEW) & (target > 0)):
        at = slice(ends[row] - sizes[row], ends[row])
        log_c[row] = solve_pool(values[at], None if masses is None else masses[at], float(target[row]))
    for size_class in np.unique(octave[sizes <= _FEW]):
        problems = (octave == size_class) & (sizes <= _FEW)
        filled = np.arange(sizes[problems].max(), 0, -1) <= sizes[problems, None]
        x, m, here = np.full(filled.shape, -inf), np.zeros(filled.shape), np.repeat(problems, sizes)
        x[filled] = values[here]
        if masses is not None:
            m[filled] = masses[here]
        log_c[problems] = solve_rows(x, None if masses is None else m, target[problems])
    return log_c


def solve_pool(values: Floats, masses: Floats | None, target: float, group: Any = None) -> float:
    """Return log c of one pool in NumPy memory, shape `(n,)`, or of the pools of many processes together.

    A large pool is touched once: a subsample gives an interval that holds -log c almost surely, one pass sums what lies
    outside, and only what lies inside is sorted. If the interval missed, it is opened on the side where -log c must be:
    luck changes the time, never the result. Over many processes sums are reduced and the inside is gathered, so that
    the number of exchanges does not depend on that of the rows; few are gathered whole.

    Args:
        values: Log-ratios; -inf is r = 0. With a group, those of this process, of which there may be none.
        masses: At most 1, or None for 1 each: in all processes or in none.
        target: Mass to accept, of all.
        group: A process group of torch.distributed.

    Example:
        >>> round(solve_pool(np.log([4.0, 1.0, 0.5, 0.5]), None, 2.0), 6)
        -0.693147
    """
    size, mass = len(values), len(values) if masses is None else float(masses.sum(dtype=np.float64))
    n, mass = (size, mass) if group is None else all_reduce([size, mass], group)
    sample, weight = values, masses
    if n > _FEW:
        at = _places(size, ceil(2 * n ** (2 / 3) * size / n))
        sample, weight = values[at], None if masses is None else masses[at]
    if group is not None:
        sample, weight = _gather_values(sample, weight, group)
    with np.errstate(all="ignore"):
        rows = sort_values(sample[None], None if weight is None else weight[None])
        if n <= _FEW:
            return float(solve_sorted(*rows, target)[0])
        low, high = _bracket(*rows, target / mass)
        log_c = float(solve_sorted(*condense(*_partition(values, masses, low, high, group), low, high), target)[0])
        if not low <= -log_c < high:
            low, high = (-inf, low) if -log_c < low else (high, inf)
            log_c = float(solve_sorted(*condense(*_partition(values, masses, low, high, group), low, high), target)[0])
    return log_c


def condense(
    below: float, above: float, value: Floats, mass: Floats | None, low: float, high: float
) -> tuple[Floats, Floats]:
    """Return values and masses, ascending, that have the root of a pool if -log c lies in `[low, high)`.

    What lies below acts as one log-ratio at the low end, and what lies above, which is saturated, as one at the high
    end. If -log c lies outside, so does that of the answer, on the right side.

    Args:
        below: Sum of m exp(l - low) over l < low.
        above: Mass from `high` on.
        value, mass: The log-ratios in the interval, and their masses, or None for 1 each.
        low, high: Its ends.
    """
    order = None if mass is None else np.argsort(value)
    value = np.sort(value) if order is None else value[order]
    mass = np.ones(len(value)) if mass is None else mass[order]
    values = np.concatenate([[max(low, _ZERO)], value, [high] if above else []])
    return values[None], np.concatenate([[below], mass, [above] if above else []])[None]


def _bracket(values: Floats, masses: Floats | None, share: float) -> tuple[float, float]:
    """Guess an interval for -log c from a sample in ascending order, four standard errors to each side."""
    whole = float(values.size if masses is None else masses.sum())
    size = whole if masses is None else whole**2 / float(np.sum(masses**2))  # as many equal ones would tell as much
    error = 4 * (share * (1 - share) / size) ** 0.5 + 4 / size
    low, high = (-float(solve_sorted(values, masses, part * whole)[0]) for part in (share + error, share - error))
    low = float(np.float32(low)) if share + error < 1 and low > _ZERO else -inf  # values may be compared in float32
    high = float(np.float32(high)) if share > error and high > _ZERO else inf
    return low, high if high > low else inf


def _places(n: int, size: int) -> Floats:
    """Return one place from each of `size` equal strata: as random as needed, and read in order."""
    places = (np.arange(size) + np.random.default_rng(n).random(size)) / max(size, 1) * n
    return np.minimum(places.astype(np.intp), n - 1)


def _partition(
    values: Floats, masses: Floats | None, low: float, high: float, group: Any = None
) -> tuple[float, float, Floats, Floats | None]:
    """Pass once over the values: the sum of m r / e^low below `low`, the mass from `high` on, and what lies between."""
    below, above, inside, weights = 0.0, 0.0, [np.empty(0, values.dtype)], [np.empty(0)]
    bottom, ceiling = values.dtype.type(max(low, _ZERO)), values.dtype.type(high)
    scratch = np.empty(min(len(values), _TILE), values.dtype)
    for start in range(0, len(values), _TILE):
        tile = values[start : start + _TILE]
        between, saturated = tile >= bottom, tile >= ceiling
        ratios = np.minimum(tile, bottom, out=scratch[: len(tile)])
        ratios -= bottom
        np.exp(ratios, out=ratios)  # exactly 1 from `low` on: those are taken off again by their mass
        if masses is None:
            below += float(np.sum(ratios, dtype=np.float64)) - np.count_nonzero(between)
            above += np.count_nonzero(saturated)
        else:
            m = masses[start : start + _TILE]
            below += float(np.sum(m * ratios, where=~between, dtype=np.float64))
            above += float(np.sum(m, where=saturated, dtype=np.float64))
        np.greater(between, saturated, out=between)
        inside.append(tile[between])
        if masses is not None:
            weights.append(m[between])
    value, weight = np.concatenate(inside), None if masses is None else np.concatenate(weights)
    if group is None:
        return max(below, 0.0), above, value, weight
    tied, at = np.unique(value, return_inverse=True)  # scores of few values: each once, with its mass
    below, above = all_reduce([max(below, 0.0), above], group)
    return below, above, *_gather_values(tied, np.bincount(at, weight, len(tied)), group)


def all_reduce(x: Any, group: Any, *, largest: bool = False) -> list[float]:
    """Return the sums of a few numbers over all processes, or the largest of each."""
    torch = _torch()
    device = "cuda" if str(torch.distributed.get_backend(group)) == "nccl" else "cpu"
    tensor = torch.tensor(np.asarray(x, dtype=np.float64), device=device)
    operation = torch.distributed.ReduceOp.MAX if largest else torch.distributed.ReduceOp.SUM
    torch.distributed.all_reduce(tensor, op=operation, group=group)
    return [float(value) for value in tensor.tolist()]


def _gather_values(values: Floats, masses: Floats | None, group: Any) -> tuple[Floats, Floats]:
    """Return the values and masses of all processes, ascending by value."""
    mine = np.stack([values, np.ones(len(values)) if masses is None else masses]).astype(np.float64)
    torch = _torch()
    parts: list[Any] = [None] * int(torch.distributed.get_world_size(group))
    torch.distributed.all_gather_object(parts, mine, group=group)
    value, mass = np.concatenate(parts, axis=1)
    order = np.argsort(value, kind="stable")
    return value[order], mass[order]


def _torch() -> Any:
    torch = sys.modules.get("torch")  # who has a process group has imported it
    if torch is None or not torch.distributed.is_available():
        raise MissingLibraryError("process_group needs torch with torch.distributed")
    return torch


def brent(f: Callable[[float], float], low: float, high: float, *, tolerance: float = 0.0) -> float:
    """Return a root of a function of one number between two points at which its signs differ.

    Each step is inverse quadratic or linear interpolation where that shrinks the bracket fast enough, and half of it
    otherwise.

    Args:
        f: The function; one that is 0 at an end has its root there.
        low, high: The ends.
        tolerance: How near is near enough, beside four ulp.

    Example:
        >>> brent(lambda x: x * x - 2, 0.0, 2.0)
        1.414213562373095

    References:
        | Algorithms for Minimization without Derivatives (Brent, 1973), Chapter 4
    """
    a, b, eps = low, high, float(np.finfo(float).eps)
    least = tolerance / 2 + 1e-6 * eps * abs(high - low)  # a root at 0 has no ulp to speak of
    fa, fb = f(a), f(b)
    assert fa == 0 or fb == 0 or (fa > 0) != (fb > 0), "no root is bracketed"
    if fa == 0:
        return a
    c, fc, step = a, fa, b - a
    last = step
    while fb != 0:
        if (fb > 0) == (fc > 0):
            c, fc, step = a, fa, b - a
            last = step
        if abs(fc) < abs(fb):
            a, b, c, fa, fb, fc = b, c, b, fb, fc, fb
        near, half = 2 * eps * abs(b) + least, (c - b) / 2
        if abs(half) <= near:
            break
        s = fb / fa if abs(last) >= near and abs(fa) > abs(fb) else None
        if s is None:
            step = last = half
        else:
            if a == c:
                p, q = 2 * half * s, 1 - s
            else:
                q, r = fa / fc, fb / fc
                p, q = s * (2 * half * q * (q - r) - (b - a) * (r - 1)), (q - 1) * (r - 1) * (s - 1)
            p, q = (p, -q) if p > 0 else (-p, q)
            fits = 2 * p < min(3 * half * q - abs(near * q), abs(last * q))
            last, step = (step, p / q) if fits else (half, half)
        a, fa = b, fb
        b += step if abs(step) > near else near if half > 0 else -near
        fb = f(b)
    return b
