"""Log-ratios sorted once, with running sums: every question about a threshold is then a binary search."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["Prefix"]

Floats = np.ndarray[Any, Any]

_SPAN = 500.0  # exp of this is far inside the range of a float


class Prefix:
    """Sorted log-ratios l with masses w that sum to 1; those with r = 0 are only counted.

    A position j splits them: the proposals j, j+1, … are above, the others below.

    Args:
        log_ratio: Log-ratios, 1-D float64.
        mass: Their masses, which sum to 1.
    """

    def __init__(self, log_ratio: Floats, mass: Floats) -> None:
        order = np.argsort(log_ratio, kind="stable")
        value, mass = log_ratio[order], mass[order]
        first = int(np.searchsorted(value, -np.inf, side="right"))
        self.impossible = float(np.sum(mass[:first]))
        self.value, self.mass = value[first:], mass[first:]
        self._sums: dict[str, Floats] = {}
        even = mass[0] == mass[-1] and mass.min() == mass.max()  # of all, also those with r = 0
        self.mass_above = np.arange(len(self.mass), -1.0, -1.0) / len(mass) if even else _sum_above(self.mass)
        self.log_sum_below = _log_sum_below(self.value, self.mass)
        # alpha at each value as threshold: the mass above and c = exp(-value) times the sum below. It falls.
        with np.errstate(over="ignore"):
            self.alpha_at = self.mass_above[:-1] + np.exp(self.log_sum_below[:-1] - self.value)

    @cached_property
    def recall_at(self) -> Floats:
        """Recall with the threshold at each value."""
        recall: Floats = self.alpha_at * np.exp(self.value)
        return recall

    def position(self, threshold: Any) -> Any:
        """Return how many lie below each threshold."""
        return np.searchsorted(self.value, threshold, side="left")

    def sum_above(self, name: str, term: Callable[[Floats], Floats], position: Any) -> Any:
        """Return the sum of w term(l) over what lies above each position; the running sum is kept by name."""
        if name not in self._sums:
            with np.errstate(over="ignore", invalid="ignore"):
                self._sums[name] = _sum_above(self.mass * term(self.value))
        return self._sums[name][position]

    def root(self, share: float) -> tuple[float, int]:
        """Return log c with E[min(c r, 1)] = share, not floored, and the position of its threshold."""
        free = int(np.searchsorted(-self.alpha_at, -share, side="right"))  # how many have alpha >= share
        free = max(free, 1)
        deficit = max(share - self.mass_above[free], np.finfo(np.float64).tiny)
        return float(np.log(deficit) - self.log_sum_below[free]), free


def _sum_above(terms: Floats) -> Floats:
    """Return the sums over terms[j:] for j = 0 … n."""
    sums = np.zeros(len(terms) + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        sums[:-1] = np.cumsum(terms[::-1])[::-1]
    return sums


def _log_sum_below(value: Floats, mass: Floats) -> Floats:
    """Return log of the sums of w exp(l) over [:j] for j = 0 … n, exact over any range.

    Stretches in which l rises by less than `_SPAN` are summed relative to their start.
    """
    logs = np.full(len(value) + 1, -np.inf)
    start, carry = 0, -np.inf
    while start < len(value):
        stop = int(np.searchsorted(value, value[start] + _SPAN, side="right"))
        origin = value[start]
        running = np.cumsum(mass[start:stop] * np.exp(value[start:stop] - origin))
        logs[start + 1 : stop + 1] = origin + np.log(np.exp(carry - origin) + running)
        start, carry = stop, logs[stop]
    return logs
