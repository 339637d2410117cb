"""A hard cap: choose 1 of exactly K proposals, the best that any way of choosing can do.

Whatever chooses 1 of K independent proposals has a law o with o(S) <= 1 - (1 - q(S))**K for every set S. Of these laws
one is closest to the target p for every f-divergence at once: o/p is the isotonic regression, weighted by p, of the
best-of-K law over p in the order of falling r. It is constant on blocks of r. So the highest block that is met wins,
and inside it a race with rates s(r), solved so that the winner follows p.
"""

from dataclasses import dataclass
from math import exp, inf, log
from typing import Any

import numpy as np

from ._arrays import array_like, as_floats, known_values, namespace
from ._checks import as_log_ratio, check_count, check_ratios, out_of_reach
from .divergences import FDivergence, divergence_between
from .draws import Purpose, uniform_columns
from .errors import BudgetError, InputError, InputTypeError
from .types import Array

__all__ = ["Choice", "choose", "divergence_left"]

Floats = np.ndarray[Any, Any]

_BINS = 256  # of log r, on which blocks and rates are found
_SWEEPS = 500
_DEEPEST = 600.0  # nats below which a ratio counts as this one: its share of the target is still a float
_STEP = 0.125  # of the logarithm of the time of a race


def check_cap(budget: Any) -> int:
    """Return a budget as the number of proposals of a hard cap."""
    if isinstance(budget, float) and budget.is_integer():
        budget = int(budget)
    try:
        return check_count(budget, "budget", least=1)
    except (InputError, InputTypeError) as error:
        raise BudgetError(f"a hard cap is a whole number of proposals, at least 1, got {budget!r:.60}") from error


def _best_of(q: Floats, budget: int) -> Floats:
    """Return the law of the best of K, on masses in the order of falling r; what is missing to 1 has r = 0."""
    left = np.append(1.0, np.maximum(1 - np.cumsum(q), 0.0))
    return np.asarray(left[:-1] ** budget - left[1:] ** budget)


def _pool(best: Floats, p: Floats) -> Floats:
    """Return where blocks begin: the corners of the greatest convex minorant of the sums of `best` over those of p."""
    starts, height, width = [0], [float(best[0])], [float(p[0])]
    for i, (b, w) in enumerate(zip(best[1:].tolist(), p[1:].tolist(), strict=True), 1):
        start = i
        while starts and height[-1] * w >= b * width[-1]:
            start, b, w = starts.pop(), b + height.pop(), w + width.pop()
        starts.append(start)
        height.append(b)
        width.append(w)
    return np.array(starts)


def divergence_left(div: FDivergence, log_ratio: Floats, q: Floats, zero: float, budget: int) -> float:
    """Return D_f(p||o) of the best law o at a hard cap.

    Args:
        div: The divergence.
        log_ratio: log p/q of the proposals with r > 0, ascending.
        q: Their masses.
        zero: The mass of proposals with r = 0.
        budget: The whole number K.
    """
    first = np.append(True, np.diff(log_ratio[::-1]) < 0)  # ties are one value
    mass = np.add.reduceat(q[::-1], np.flatnonzero(first))
    p = np.exp(np.maximum(log_ratio[::-1][first], -_DEEPEST)) * mass
    best = _best_of(mass, budget)
    starts = _pool(best, p)
    o, p = np.add.reduceat(best, starts), np.add.reduceat(p, starts)
    with np.errstate(divide="ignore"):
        left = divergence_between(div, np.log(p), np.log(o))
    return max(left + (zero**budget * float(div.f(-inf)) if zero else 0.0), 0.0)


def _race(q: Floats, lower: float, target: Floats, budget: int) -> Floats:
    """Return the logs of rates with which the winner among the best block met has the law `target`, relative to q.

    With rate s a proposal arrives after an exponential time, and the first of the block wins. Among K - 1 others, none
    in a higher block, that has probability E[exp(-t s)] for time t, over the block with mass q and those below it:
    target = K ∫ s exp(-t s) (q·exp(-t s) + lower)^(K-1) dt, an integral over log t of smooth functions.
    """
    log_s = np.log(target)
    for _ in range(_SWEEPS):
        log_s -= log_s.max()
        x = np.arange(-8.0, 4.0 - log_s.min(), _STEP)
        arrival = np.exp(x[:, None] + log_s)
        still = np.exp(-arrival)
        won = budget * _STEP * ((still @ q + lower) ** (budget - 1)) @ (arrival * still)
        # Times before exp(-8): the density is nearly constant there.
        won += budget * exp(-8.0 - _STEP / 2) * np.exp(log_s) * (q.sum() + lower) ** (budget - 1)
        change = np.log(target / won)
        log_s = np.maximum(log_s + change, log_s.max() - 40)
        if np.abs(change - change.mean()).max() < 1e-6:
            break
    return np.asarray(log_s - log_s.max())


@dataclass(frozen=True, repr=False)
class Choice:
    """The best choice of 1 among exactly K proposals, for every f-divergence at once.

    Args:
        budget: The whole number K of proposals per sample.
        low, high: The least and largest log r of each block, from the highest on.
        log_level: log o/p of each block, o being the law of what is chosen.
        knots, log_rate: Rates of the race inside blocks, as a function of log r between knots.

    Example:
        >>> rule = Choice.fit(np.log([4.0, 1.0, 0.5, 0.5]), budget=2)
        >>> rule.log_weight(np.log([4.0, 1.0, 0.5])).round(3)
        array([ 0.421, -0.523, -0.523])
    """

    budget: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    log_level: tuple[float, ...]
    knots: tuple[float, ...]
    log_rate: tuple[float, ...]

    @classmethod
    def fit(cls, log_ratio: Array, budget: int) -> "Choice":
        """Find blocks and rates from the log-ratios of a pilot of independent proposals."""
        k = check_cap(budget)
        values = known_values(as_log_ratio(log_ratio), "log_ratio").reshape(-1).astype(np.float64)
        check_ratios(values)
        x = np.sort(values[values > -inf])[::-1]
        if not len(x):
            raise out_of_reach(1.0, 0.0)
        p = np.exp(np.maximum(x - x[0], -_DEEPEST))
        p /= p.sum()
        # Bins with an equal share of p and q together; equal ratios are in one bin, that of the first of them.
        share = (np.cumsum(p) - p + np.arange(len(x)) / len(x)) * _BINS / 2
        first = np.append(True, np.diff(x) < 0)
        starts = np.flatnonzero(first & np.append(True, np.diff(np.floor(share[first])[np.cumsum(first) - 1]) > 0))
        p, q = np.add.reduceat(p, starts), np.diff(np.append(starts, len(x))) / len(values)
        high, low = x[starts], x[np.append(starts[1:], len(x)) - 1]
        best = _best_of(q, k)
        begin = _pool(best, p)
        end = np.append(begin[1:], len(p))
        level = np.add.reduceat(best, begin) / np.add.reduceat(p, begin)
        log_rate = np.zeros(len(p))
        for i, j, o in zip(begin, end, level, strict=True):
            if j > i + 1 and k > 1:
                log_rate[i:j] = _race(q[i:j], max(1 - float(q[:j].sum()), 0.0), o * p[i:j] / q[i:j], k)
        knots = log(np.mean(np.exp(values - x[0]))) + x[0] + np.log(p / q)  # the mean ratio of each bin
        columns = (low[end - 1], high[begin], np.log(level), knots[::-1], log_rate[::-1])
        return cls(k, *(tuple(column.tolist()) for column in columns))

    def __repr__(self) -> str:
        return (
            f"Choice(1 of {self.budget}, {len(self.low)} blocks of log r from {self.low[-1]:.4g} to {self.high[0]:.4g})"
        )

    def blocks(self, log_ratio: Floats) -> Floats:
        """Return the block of each log-ratio, from 0, the highest; r = 0 has one more than there are."""
        block = np.searchsorted(-np.array(self.low[:-1]), -log_ratio)
        return np.where(log_ratio > -inf, block, len(self.low))

    def log_weight(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return log p/o, the weight that is left in a chosen sample; -inf where r = 0."""
        x = as_floats(log_ratio, "log_ratio")
        weight = np.append(-np.array(self.log_level), -inf)
        return array_like(weight[self.blocks(known_values(x, "log_ratio"))], x)


def choose(log_ratio: Array, rule: Choice, *, ids: Any = None, seed: int = 0) -> Array:
    """Choose one proposal of each row of K, so that what is chosen is as close to the target as any choice can be.

    Args:
        log_ratio: Log-ratios of the proposals, shape (n, K).
        rule: A `Choice` fitted for K proposals.
        ids: One integer for each row: the same id and seed choose the same, in every batch and library. By default the
            number of the row.
        seed: Integer with `0 <= seed < 2**64`.

    Returns:
        The index of the one that is chosen in each row, -1 where all have r = 0.

    Example:
        >>> rule = Choice.fit(np.random.default_rng(0).normal(size=1000), budget=4)
        >>> choose(np.array([[0.1, 3.0, -1.0, 0.0], [-5.0, -5.0, -5.0, -4.9]]), rule)
        array([1, 1])
    """
    if not isinstance(rule, Choice):
        raise InputTypeError(f"rule must be a Choice, as obrs.rules.Choice.fit returns it, got {type(rule).__name__}")
    x = as_log_ratio(log_ratio)
    values = known_values(x, "log_ratio").astype(np.float64)
    if values.ndim != 2 or values.shape[1] != rule.budget:
        raise InputError(f"log_ratio must have {rule.budget} proposals in each row, got shape {values.shape}")
    check_ratios(values)
    rows = np.arange(len(values)) if ids is None else ids
    u = uniform_columns(rows, range(rule.budget), seed=seed, purpose=Purpose.CHOOSE, dtype="float64")
    if u.shape != values.shape:
        raise InputError(f"ids must be one for each of {len(values)} rows, got shape {u.shape[:-1]}")
    block = rule.blocks(values)
    inside = np.clip(values, np.append(rule.low, -inf)[block], np.append(rule.high, inf)[block])
    time = np.log(-np.log1p(-u)) - np.interp(inside, rule.knots, rule.log_rate)
    winner = np.argmin(np.where(block == block.min(axis=1, keepdims=True), time, inf), axis=1)
    winner[block.min(axis=1) == len(rule.low)] = -1
    return array_like(winner, x, dtype=namespace(x).int64)
