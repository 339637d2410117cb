"""One root over the shards of torch.distributed: each process has some of the log-ratios, all get the same c.

The number of exchanges does not depend on that of rows. Some of a few numbers tell how many rows there are and how far
they span. If they are few, all are gathered. If they are many, histograms (`_bins`) are added up, which show in which
bin the threshold -log c lies, and the log-ratios in that bin are gathered: c is then exact. Histograms without weights
are sums of integers, so that c does not depend on how rows are shared out.

torch is not imported: who has a process group has done so.
"""

import sys
from math import frexp, inf, log
from typing import Any, NamedTuple

import numpy as np

from . import _bins, root
from ._bins import Bins
from .errors import InputTypeError, MissingLibraryError

__all__ = ["FEW", "Shards", "of_shards", "total"]

Floats = np.ndarray[Any, Any]

FEW = 1 << 14  # log-ratios in all processes that are gathered at once
_NOT_FINITE = 1e-300


class Shards(NamedTuple):
    """What all processes know of all shards together.

    Attributes:
        log_c: The root, not floored at 1/max r.
        reached: Share of the mass that has r > 0.
        top: The largest log-ratio.
        log_mean: log of E[r] exp(-top), which is the rate of exact rejection.
        mass: The whole mass.
        size: How many log-ratios there are.
        bad: How many are NaN or +inf.
        nans: How many are NaN.
    """

    log_c: float
    reached: float
    top: float
    log_mean: float
    mass: float
    size: int
    bad: int
    nans: int


def of_shards(x: Floats, weights: Floats | None, share: float, group: Any) -> Shards:
    """Solve `sum w min(c r, 1) = share * sum w` over the log-ratios of all processes of a group.

    NaN and what weighs nothing count as r = 0, and +inf as the largest number; `bad` counts both.

    Args:
        x: The log-ratios of this process, float64, shape `(n,)`; there may be none.
        weights: Their masses, or None for 1 each: in all processes or in none.
        share: Share of the mass to accept, below 1 or 1; the same in all processes.
        group: A process group of torch.distributed.
    """
    exchange = _Exchange(group)
    wrong = np.isnan(x) | (x == inf)
    if weights is not None:
        wrong &= weights > 0
    facts = exchange.sum(np.array([len(x), np.sum(wrong), np.sum(wrong & np.isnan(x)), weights is not None], np.int64))
    size, bad, nans, weighted = (int(fact) for fact in facts)
    if weighted not in (0, exchange.count):
        raise InputTypeError(f"weights must be given in all processes or in none, got them in {weighted}")
    x = np.where(np.isnan(x), -inf, np.minimum(x, np.finfo(np.float64).max))
    if weights is not None:
        x = np.where(weights > 0, x, -inf)
    found = (_gathered if size <= FEW else _by_histogram)(x, weights, share, size, exchange)
    return Shards(*found, size, bad, nans)


def total(x: Any, group: Any) -> Any:
    """Return the sum of tensors of all processes, without a gradient."""
    torch = _torch()
    summed = x.detach().clone().to(_Exchange(group).device)
    torch.distributed.all_reduce(summed, group=group)
    return summed.to(x.device)


Found = tuple[float, float, float, float, float]


def _gathered(x: Floats, weights: Floats | None, share: float, size: int, exchange: "_Exchange") -> Found:
    """Gather all log-ratios, and solve as one process would."""
    everything = exchange.gather(x if weights is None else np.stack([x, weights]))
    value = np.concatenate(everything, axis=-1)
    value, mass = (value[None], None) if weights is None else (value[:1], value[1:])
    if not size:
        return inf, 0.0, -inf, -inf, 0.0
    found = root.of_rows(value, mass, np.array([share]))
    log_c, reached, top, whole = (float(field[0]) for field in found)
    possible = value[0] > -inf
    with np.errstate(divide="ignore"):
        log_mass = np.zeros(size) if mass is None else np.log(mass[0])
    terms = (value[0] + log_mass)[possible]
    reached = float((possible if mass is None else mass[0] * possible).sum()) / whole if whole else 0.0
    log_sum = float(np.logaddexp.reduce(terms)) if terms.size else -inf
    return log_c, reached, top, log_sum - top - log(whole) if terms.size and whole else -inf, whole


def _by_histogram(x: Floats, weights: Floats | None, share: float, size: int, exchange: "_Exchange") -> Found:
    """Add up histograms, and gather the log-ratios of the bin that holds the threshold."""
    mass = float(size) if weights is None else float(exchange.sum(np.array([weights.sum(dtype=np.float64)]))[0])
    possible = x > -inf
    x, weights = x[possible], None if weights is None else weights[possible]
    ends = exchange.largest(np.array([x.max(initial=-inf), -x.min(initial=inf)]))
    top, low = float(ends[0]), -float(ends[1])
    if top == -inf or mass == 0:
        return inf, 0.0, -inf, -inf, mass
    bins = _added_up(x, weights, low, top, exchange)
    reached = float(bins.mass.sum()) / mass
    terms = np.exp(x - top) if weights is None else weights * np.exp(x - top)
    log_mean = log(float(exchange.sum(np.array([terms.sum()]))[0]) / mass)
    target = min(share, reached) * mass
    found = _bins.crossing(bins, target)
    for _ in range(64):  # wide bins show where to look closer; each turn is a thousand times as close
        if found.inside.level >= 0 or found.inside.single:
            break
        here = (x >= found.far.low) & (x < found.far.high)
        low, high = float(found.inside.lower[0]), float(found.inside.upper[-1])
        inner = _added_up(x[here], None if weights is None else weights[here], low, high, exchange)
        found = _bins.crossing(inner, target, found.far)
    inside = (x >= found.far.low) & (x < found.far.high)
    value, masses = _condensed(x[inside], None if weights is None else weights[inside], exchange)
    far = found.far
    beneath = mass - far.above - (float(len(value)) if masses is None else float(masses.sum()))
    one = np.ones(1)
    outside = root.Outside(
        far.low * one, far.high * one, far.above * one, far.below * one, beneath * one, top * one, size
    )
    return root.of_interval(value, masses, share, outside), reached, top, log_mean, mass


def _added_up(x: Floats, weights: Floats | None, low: float, high: float, exchange: "_Exchange") -> Bins:
    """Return the histogram of all processes, of bins as fine as their number allows."""
    level = min(_bins.FINEST + 10, 61 - frexp(max(abs(low), abs(high), _NOT_FINITE))[1])
    if high > low:
        level = min(level, frexp(_bins.MOST / (high - low))[1] - 1 if high - low < inf else -1000)
    first, last = (int(np.floor(np.ldexp(end, level))) for end in (low, high))
    if weights is None:
        local = _bins.of_rows(x, None, level)
        table = np.zeros((3, last - first + 1), np.int64)
        at = local.place - first
        table[:, at] = local.rows, local.whole, local.part
        rows, whole, part = exchange.sum(table)
        used = np.flatnonzero(rows)
        return _bins.carried(Bins(level, used + first, rows[used], rows[used], whole[used], part[used]))
    at = np.floor(x * 2.0**level).astype(np.int64) - first
    cells = np.ones_like(x) if level < 0 else np.exp(x - np.floor(x))
    columns = [np.bincount(at, column, last - first + 1) for column in (np.ones_like(x), weights, weights * cells)]
    rows, mass, sums = exchange.sum(np.stack(columns).astype(np.float64))  # without rows, bincount counts in integers
    used = np.flatnonzero(rows)
    return Bins(level, used + first, rows[used].astype(np.int64), mass[used], sums[used], np.zeros(len(used)))


def _condensed(x: Floats, weights: Floats | None, exchange: "_Exchange") -> tuple[Floats, Floats | None]:
    """Gather log-ratios from all processes; where many are equal, each once with its mass."""
    value, at, count = np.unique(x, return_inverse=True, return_counts=True)
    tied = exchange.largest(np.array([float(len(value) < len(x) // 2)]))[0] > 0
    if weights is None and not tied:
        return np.concatenate(exchange.gather(x)), None
    mass = count.astype(np.float64) if weights is None else np.bincount(at, weights, len(value))
    gathered = np.concatenate(exchange.gather(np.stack([value, mass])), axis=1)
    return gathered[0], gathered[1]


class _Exchange:
    """The collective operations of a process group, on NumPy arrays."""

    def __init__(self, group: Any) -> None:
        self.torch, self.group = _torch(), group
        backend = str(self.torch.distributed.get_backend(group))
        self.device = self.torch.device("cuda" if backend == "nccl" else "cpu")
        self.count = int(self.torch.distributed.get_world_size(group))

    def sum(self, x: Floats) -> Floats:
        return self._reduced(x, self.torch.distributed.ReduceOp.SUM)

    def largest(self, x: Floats) -> Floats:
        return self._reduced(x, self.torch.distributed.ReduceOp.MAX)

    def _reduced(self, x: Floats, operation: Any) -> Floats:
        tensor = self.torch.from_numpy(np.ascontiguousarray(x)).to(self.device)
        tensor = tensor.clone() if tensor.device.type == "cpu" else tensor
        self.torch.distributed.all_reduce(tensor, op=operation, group=self.group)
        return np.asarray(tensor.cpu().numpy())

    def gather(self, x: Floats) -> list[Floats]:
        """Return the arrays of all processes, in the order of their ranks; they may differ in length."""
        parts: list[Any] = [None] * self.count
        self.torch.distributed.all_gather_object(parts, x, group=self.group)
        return parts


def _torch() -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        raise MissingLibraryError("process_group needs torch with torch.distributed")
    return torch
