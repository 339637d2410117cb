"""Log-ratios sorted once, with running sums: a budget is one call of the solver, and what it leaves is one sum.

After rejection the ratio of target to kept is u = r Z/a: the constant Z/c where a < 1, and r Z where a = 1. So a
divergence is a sum over the saturated proposals and one closed term for the free ones.
"""

from math import exp, inf, log
from typing import Any

import numpy as np

from ._checks import check_budget, is_number, out_of_reach
from .budget import Cut
from .divergences import FDivergence
from .errors import InputError
from .root import slack_of, solve_sorted

__all__ = ["Prefix"]

Floats = np.ndarray[Any, Any]

_TILE = 1 << 16  # numbers at a time: a few such buffers stay in a core's cache


class Prefix:
    """Sorted log-ratios of r over its mean, those with r = 0 first, with masses w that sum to 1.

    Args:
        log_ratio: Log-ratios, 1-D float64; at least one must be finite.
        mass: Their masses, of any sum; None if all have the same.

    Attributes:
        value, ratio, mass: log r and r over the mean of r, ascending, and their masses.
        first: How many have r = 0.
        mass_above: Sums of w over `[j:]`, for j = 0 … n; `possible` is that over r > 0.
        sum_below: Sums of w r over `[:j]`, for j = 0 … n.
        log_mean: log E[r] as given.
        least_budget: From here on as many as a budget keeps have r > 0; a budget of 1 keeps also those with r = 0.
        max_budget: M = max r / E[r], from which on rejection is exact.
    """

    def __init__(self, log_ratio: Floats, mass: Floats | None = None) -> None:
        self.count, self.even = len(log_ratio), mass is None
        if mass is None:  # a sort is ten times as fast as the order, which only masses need
            value, mass, total = np.sort(log_ratio), np.ones(self.count), float(self.count)
        else:
            order = np.argsort(log_ratio, kind="stable")
            value, mass, total = log_ratio[order], (mass / np.sum(mass))[order], 1.0
        self.first = int(np.searchsorted(value, -inf, side="right"))
        if self.first == self.count:
            raise out_of_reach(1.0, 0.0)
        self.mass, self.mass_above = mass / total, np.append(np.cumsum(mass[::-1])[::-1], 0.0) / total
        ratio = np.exp(value - value[-1])
        mean = float(self.mass @ ratio)
        self.value, self.ratio = value - value[-1] - log(mean), ratio / mean
        self.sum_below = np.append(0.0, np.cumsum(self.mass * self.ratio))
        self.log_mean, self.max_budget = float(value[-1]) + log(mean), float(self.ratio[-1])
        self.possible = float(self.mass_above[self.first])
        self.least_budget = max(1.0, 1 / self.possible)
        self._cuts = {1.0: Cut(inf, 0.0)}

    @property
    def positive(self) -> tuple[Floats, Floats]:
        """log r over its mean and masses of the proposals with r > 0."""
        return self.value[self.first :], self.mass[self.first :]

    def check(self, budget: Any) -> float:
        """Return a budget that can be met."""
        k = check_budget(budget)
        if k != 1 and k < self.least_budget * (1 - slack_of(self.count - self.first, not self.even)):
            raise out_of_reach(1 / k, self.possible)
        return k

    def cut(self, budget: float) -> Cut:
        """Return log c, for r over its mean, and the log of the rate: exact rejection beyond M."""
        if budget not in self._cuts:
            value, mass = self.positive
            masses, total = (None, self.count) if self.even else (mass[None], 1)
            with np.errstate(all="ignore"):  # far above 1/c exponentials overflow, and their quotient is 0
                log_c = float(solve_sorted(value[None], masses, total / budget)[0])
            exact = -float(self.value[-1])
            self._cuts[budget] = Cut(log_c, -log(budget)) if log_c > exact else Cut(exact, exact)
        return self._cuts[budget]

    def rate(self, budget: float) -> float:
        """Return the share that is kept."""
        return max(1 / budget, min(1 / self.max_budget, 1.0))

    def free(self, cut: Cut) -> int:
        """Return how many are free: those before have a = c r, those from there on a = 1."""
        return int(np.searchsorted(self.value, -cut.log_c))

    def divergence_left(self, div: FDivergence, budget: float) -> float:
        """Return D_f(P||kept)."""
        cut = self.cut(budget)
        free, rate = self.free(cut), exp(cut.log_rate)
        tiles = (slice(start, start + _TILE) for start in range(free, self.count, _TILE))
        total = sum(float(self.mass[at] @ div.f(self.value[at] + cut.log_rate)) for at in tiles) / rate
        rest = 1 - float(self.mass_above[free]) / rate
        if free > self.first and rest > 0:  # u is the same for all of these; where f is infinite, 0 times it is NaN
            total += rest * float(div.f(cut.log_rate - cut.log_c))
        return max(total, 0.0)  # below 0 only by rounding

    def precision_at(self, recall: float) -> float:
        """Return the precision before rejection at a recall: recall/t, where t solves E[min(r, t)] = recall.

        E[min(r, t)] is the smallest of `sum_below + mass_above t` over all positions, so t is the largest quotient.
        """
        if not is_number(recall) or not 0 < float(recall) <= 1:
            raise InputError(f"recall must be above 0 and at most 1, got {recall!r}")
        quotients = (recall - self.sum_below[:-1]) / self.mass_above[:-1]
        return recall / min(float(np.max(quotients)), self.max_budget)
