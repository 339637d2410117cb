"""Rejection in stages: reject early, where a first look decides nearly as well, and again at the end.

A slow model shows something of a sample before it is done: a diffusion model a preview, a chain of models its first
links. With r1 the ratio of what is seen early and r that of the sample, the first stage keeps a1 = min(c1 r1, 1), and
the second a2 = min(c r / a1, 1) of what is left. Together that is

    a = a1 a2 = min(c r, a1).

So wherever c r <= a1, the samples that are kept follow the target as exactly as those of OBRS do. Elsewhere the first
stage was too strict, and the weight that is left, r/a = max(1/c, r/a1), says by how much. Whatever the early ratio is,
`E[a r/a] = E[r]`: a poor one costs budget, not truth. More stages go on in the same way.

One uniform per id decides all stages: a sample goes on while u < a1, and is kept if u < min(c r, a1). `accept` has it:

    accept(stages([early]), ids)           who goes on
    accept(stages([early, final]), ids)    who is kept; no one who did not go on
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Any

import numpy as np

from ._arrays import known_values, like
from ._checks import as_log_ratio, check_budget, check_ratios, is_number
from .budget import solve_log_c
from .divergences import divergence as named
from .errors import BudgetError, InputError
from .groups import any_labels, codes_of, groups_of
from .types import Array

__all__ = ["Stages", "plan_stages"]

Floats = np.ndarray[Any, Any]

_CHOICES = {2: 25, 3: 9}  # budgets of each early stage that are tried, by the number of stages


@dataclass(frozen=True)
class Stages:
    """Acceptance in stages, each with a constant, or with one for each group.

    Args:
        log_c: The constants: for each stage a tuple with one for each label, or with only one.
        budgets: Of each stage: how many enter it for each that survives it.
        rates: Share of the proposals of the fit that survived each stage and those before it.
        labels: The labels of the groups, ascending; None if there are none.

    Example:
        >>> early, final = np.log([2.0, 1.0, 0.5, 0.5]), np.log([3.0, 0.6, 0.3, 0.1])
        >>> stages = Stages.fit([early, final], budgets=[1.6, 1.25])
        >>> np.exp(stages([early])).round(3), np.exp(stages([early, final])).round(3)
        (array([1.   , 0.75 , 0.375, 0.375]), array([1. , 0.6, 0.3, 0.1]))
        >>> np.exp(stages.log_weight([early, final])).round(3)  # exact where the first stage was not too strict
        array([3., 1., 1., 1.])
    """

    log_c: tuple[tuple[float, ...], ...]
    budgets: tuple[float, ...]
    rates: tuple[float, ...]
    labels: tuple[Any, ...] | None = None

    @classmethod
    def fit(cls, log_ratios: Sequence[Array], budgets: Sequence[float], *, groups: Array | None = None) -> "Stages":
        """Solve the constant of each stage for its budget, given what the stages before it leave.

        Args:
            log_ratios: For each stage the log-ratios of the same proposals, `(n,)`.
            budgets: One for each stage; their product is the budget of all. One for a stage keeps what enters it.
            groups: Labels `(n,)`, for one constant per label. As in `Grouped`, these are not floored at 1/max r.
        """
        values = [_values(x) for x in log_ratios]
        wanted = tuple(check_budget(k) for k in budgets)
        if not values or len(values) != len(wanted):
            raise InputError(f"each stage needs a budget: got {len(values)} log-ratios and {len(wanted)} budgets")
        shapes = [x.shape for x in values]
        if len(set(shapes)) > 1:
            raise InputError(f"stages must have log-ratios of the same proposals, got the shapes {shapes}")
        found = None if groups is None else groups_of(groups, shapes[0])
        log_a, constants, rates = np.zeros(shapes[0]), [], []
        for x, budget in zip(values, wanted, strict=True):
            mass = np.exp(log_a)
            left = np.where(mass > 0, x - np.where(mass > 0, log_a, 0.0), 0.0)
            log_c = solve_log_c(left, budget, weights=mass, groups=None if found is None else found.code)
            constants.append(tuple(np.atleast_1d(log_c).tolist()))
            code = np.zeros(len(x), np.intp) if found is None else found.code
            log_a = _capped(x, np.atleast_1d(log_c)[code], log_a)
            rates.append(float(np.exp(log_a).mean()))
        return cls(tuple(constants), wanted, tuple(rates), None if found is None else found.labels)

    def __call__(self, log_ratios: Sequence[Array], groups: Array | None = None) -> Array:
        """Return the log-probability of surviving the stages whose log-ratios are given: the first ones, or all."""
        values = [_values(x, look=False) for x in log_ratios]
        if not 0 < len(values) <= len(self.log_c):
            raise InputError(f"there are {len(self.log_c)} stages, got log-ratios of {len(values)}")
        if (groups is None) != (self.labels is None):
            raise InputError(f"these stages were fitted with{'out' * (self.labels is None)} groups; say them as there")
        code = np.zeros(len(values[0]), np.intp) if self.labels is None else codes_of(any_labels(groups), self.labels)
        log_a = np.zeros(values[0].shape)
        for x, log_c in zip(values, self.log_c, strict=False):
            log_a = _capped(x, np.asarray(log_c)[code], log_a)
        return like(log_a, as_log_ratio(log_ratios[-1]))

    def log_weight(self, log_ratios: Sequence[Array], groups: Array | None = None) -> Array:
        """Return `log(r/a)` of the last stage: the importance weight that is left in what is kept; -inf where r = 0."""
        last = as_log_ratio(log_ratios[-1])
        x, log_a = _values(last, look=False), _values(self(log_ratios, groups), look=False)
        possible = log_a > -inf
        return like(np.where(possible, x - np.where(possible, log_a, 0.0), -inf), last)

    def cost(self, shares: Sequence[float]) -> float:
        """Return what a kept sample costs, in whole samples.

        Args:
            shares: The part of a sample's cost that is spent when each early stage decides, ascending, in (0, 1]; what
                is rejected costs no more than that.

        Example:
            >>> Stages(log_c=((0.0,), (0.0,)), budgets=(2.0, 1.0), rates=(0.5, 0.5)).cost([0.7])
            1.7
        """
        return _spent(_shares(shares, len(self.rates)), self.rates[:-1]) / self.rates[-1]

    def left(self, log_ratios: Sequence[Array], divergence: Any = "kl", groups: Array | None = None) -> float:
        """Return the f-divergence of the target from what is kept, as far as the last ratio knows.

        With groups it is the mean over them, each with a ratio of mean 1: their shares are as they are proposed.

        Args:
            log_ratios: Of proposals from the model, for each stage.
            divergence: A key of `obrs.DIVERGENCES`, or a record.
            groups: Labels, if the stages have constants for each.
        """
        x, a = _values(log_ratios[-1]), np.exp(_values(self(log_ratios, groups), look=False))
        code = np.zeros(len(x), np.intp) if groups is None else groups_of(groups, x.shape).code
        top = x.max()
        size = np.bincount(code)
        mean_ratio, rate = (np.bincount(code, w) / size for w in (np.exp(x - top), a))
        kept = a > 0
        log_u = x[kept] - np.log(a[kept]) - top + (np.log(rate) - np.log(mean_ratio))[code[kept]]
        mass = a[kept] / rate[code[kept]] / len(x)
        return float(mass @ np.asarray(named(divergence).f(log_u)))


def plan_stages(
    log_ratios: Sequence[Array],
    shares: Sequence[float],
    cost: float,
    *,
    groups: Array | None = None,
    divergence: Any = "kl",
    slack: float = 0.0,
) -> Stages:
    """Split a budget among stages: of the ways to spend `cost` per kept sample, the one with least divergence left.

    No early rejection is one of these ways. So the result is never worse than OBRS at the end alone, in this divergence
    and on these proposals. That takes the ratios at their word. An early one is often less sure than it says, and the
    best split hardly better than some that reject less early: `slack` prefers those.

    Args:
        log_ratios: For each stage, up to three, the log-ratios of the same proposals.
        shares: The part of a sample's cost that is spent when each early stage decides: one number less.
        cost: What a kept sample may cost, in whole samples, at least 1.
        groups: Labels, for one constant per label.
        divergence: What shall be least, a key of `obrs.DIVERGENCES` or a record.
        slack: In [0, 1): of all splits that gain at least `1 - slack` of what the best one gains over the end alone,
            the one whose early stages keep most.

    Example:
        >>> from obrs import normals
        >>> z = normals(range(4000), 2, seed=0)
        >>> early, final = 0.8 * z[:, 0], 0.8 * z[:, 0] + 0.2 * z[:, 1]
        >>> stages = plan_stages([early, final], [0.5], cost=2)
        >>> stages.budgets[0] > 1, round(stages.cost([0.5]), 6)
        (True, 2.0)
        >>> plain = Stages.fit([early, final], [1, 2])
        >>> stages.left([early, final]) < plain.left([early, final])
        True
    """
    if not is_number(cost) or not 1 <= float(cost) < inf:
        raise BudgetError(f"cost must be a number of whole samples per kept one, at least 1, got {cost!r}")
    if len(log_ratios) not in _CHOICES:
        raise InputError(f"a budget is split among 2 or 3 stages, got {len(log_ratios)}")
    parts = _shares(shares, len(log_ratios))
    if not is_number(slack) or not 0 <= float(slack) < 1:
        raise InputError(f"slack must be a share in [0, 1), got {slack!r}")
    tried = [Stages.fit(log_ratios, budgets, groups=groups) for budgets in _splits(parts, float(cost))]
    left = [stages.left(log_ratios, divergence, groups) for stages in tried]
    alone = left[0]  # nothing is rejected early
    enough = [i for i, value in enumerate(left) if alone - value >= (1 - float(slack)) * (alone - min(left))]
    return tried[min(enough, key=lambda i: (-tried[i].rates[-2], left[i]))]


def _splits(shares: tuple[float, ...], cost: float) -> Iterator[tuple[float, ...]]:
    """Yield budgets of all stages that spend `cost`: early ones on a grid of equal ratios, the last what is left."""
    stages = len(shares)
    most = max((cost - (1 - shares[0])) / shares[0], 1.0)  # the last stage keeps all
    grid = np.geomspace(1.0, most, _CHOICES[stages]) if most > 1 else np.ones(1)
    for early in product(grid.tolist(), repeat=stages - 1):
        rates = tuple((1 / np.cumprod(early)).tolist())
        last = rates[-1] * cost / _spent(shares, rates)
        if last >= 1 - 1e-12:
            yield (*early, max(last, 1.0))


def _spent(shares: tuple[float, ...], rates: Sequence[float]) -> float:
    """Return the cost of a proposal, in whole samples: each part for those that got there."""
    return shares[0] + sum(rate * (b - a) for rate, a, b in zip(rates, shares[:-1], shares[1:], strict=True))


def _shares(shares: Sequence[float], stages: int) -> tuple[float, ...]:
    found = (*(float(share) for share in shares), 1.0)
    if len(found) != stages or any(not 0 < a <= b for a, b in zip(found, (*found[1:], 1.0), strict=True)):
        raise InputError(f"shares must be {stages - 1} ascending numbers in (0, 1], got {list(shares)}")
    return found


def _capped(log_ratio: Floats, log_c: Floats, log_a: Floats) -> Floats:
    """Return `log min(c r, a)`; r = 0 is never kept, also at c = inf."""
    possible = log_ratio > -inf
    return np.where(possible, np.minimum(np.where(possible, log_ratio, 0.0) + log_c, log_a), -inf)


def _values(log_ratio: Array, *, look: bool = True) -> Floats:
    """Return log-ratios `(n,)` as NumPy float64."""
    values = known_values(as_log_ratio(log_ratio), "log_ratio")
    if values.ndim != 1:
        raise InputError(f"log-ratios of a stage must have shape (n,), got {values.shape}")
    if look:
        check_ratios(values)
    found: Floats = values.astype(np.float64)
    return found
