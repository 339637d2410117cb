"""One pool of proposals at every budget: how likely each rule keeps each row, and how that moves with its constant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays import known_values
from .._checks import as_log_ratio, check_budget, check_list, check_ratios, out_of_reach
from .._text import lookup
from ..errors import BudgetError, InputError
from ..groups import Grouped, any_labels, groups_of, shares_of
from ..rules import DRS, Budgeted
from ._inputs import check_weights
from .curve import Curve, Effects, Influence

__all__ = ["POOL_RULES", "Pool", "Weightings", "as_pool", "weightings"]

Floats = np.ndarray[Any, Any]
Key = tuple[str, float]


def _drs(log_ratio: Floats, budget: float) -> tuple[Floats, Floats]:
    rule = DRS.fit(log_ratio, budget)
    a = np.exp(rule(log_ratio))
    return a, a * (1 - a) if rule.gamma < 0 else np.zeros_like(a)


def _topk(log_ratio: Floats, budget: float) -> tuple[Floats, Floats]:
    """Keep the share 1/budget of the largest ratios; rows that tie at the threshold share what is left."""
    n = len(log_ratio)
    ascending = np.sort(log_ratio)
    threshold = ascending[min(int(np.ceil(n - n / budget)), n - 1)]
    if threshold == -np.inf:
        raise out_of_reach(1 / budget, float(np.mean(log_ratio > -np.inf)))
    above, tied = log_ratio > threshold, log_ratio == threshold
    a = above + tied * ((n / budget - above.sum()) / tied.sum())
    rank, width = n - n / budget, 1 + n**0.8 / 4  # a moving threshold passes the rows around it
    low, high = (ascending[int(np.clip(end, 0, n - 1))] for end in (rank - width, rank + width))
    return np.clip(a, 0.0, 1.0), ((log_ratio >= low) & (log_ratio <= high)).astype(np.float64)


POOL_RULES: dict[str, Callable[[Floats, float], tuple[Floats, Floats]]] = {
    "obrs": lambda log_ratio, budget: _min_cr(np.exp(Budgeted.fit(log_ratio, budget)(log_ratio)), budget),
    "drs": _drs,
    "topk": _topk,
}
"""By name, from log-ratios and a budget: acceptance probabilities, and their derivatives by the log of the constant."""


def _min_cr(a: Floats, budget: float) -> tuple[Floats, Floats]:
    """Return min(c r, 1) and its slope, 0 where exact rejection costs less than the budget and c is 1/max r."""
    solved = budget > 1 and a.mean() < (1 + 1e-6) / budget
    return a, np.where(a < 1, a, 0.0) if solved else np.zeros_like(a)


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows with fixed probabilities of being kept, which do not depend on the other rows.

    Args:
        weights: Probability that each row is kept, up to a factor, `(lines, n)`: one line per budget.
    """

    weights: Floats

    def curve(self, effects: Effects, n_real: int) -> Curve:
        """Return a distance less its excess, with errors from the influence of the rows of both sides."""
        return Curve(
            effects.value - effects.excess, np.hstack([effects.real.spread(n_real), self.spread(effects.fake)])
        )

    def spread(self, influence: Influence) -> Floats:
        """Return what each row adds to the error of a metric of the weighted pool, `(lines, m)`."""
        mass = self.weights / self.weights.sum(axis=1, keepdims=True)
        spread: Floats = mass[:, influence.rows] * influence.value * np.sqrt(influence.times)
        return spread

    def restrict(self, stay: Floats) -> Floats:
        """Return the weights of the rows that stay, 0 for the others, `(lines, n)`."""
        return self.weights * stay


@dataclass(frozen=True, eq=False)
class Weightings(Pool):
    """The acceptance probabilities of a pool, solved for on the pool itself, one line for each rule and budget.

    Args:
        weights: Probability that each row is kept, `(lines, n)`.
        log_ratio: Of the rows, `(n,)`.
        keys: Rule and budget of each line. The first is ("model", 1): the pool as it is, also where r = 0.
        slopes: Its derivative by the logarithm of the constant, `(lines, n)`.
        groups: Label of each row, if there is one constant per label.
        shares: Share of each label among the kept, in the order of the sorted labels; None if all are kept alike.

    Example:
        >>> found = weightings(np.log([4.0, 1.0, 0.5, 0.5]), (1, 2))
        >>> found.keys, found.weights.round(2).tolist()
        ((('model', 1.0), ('obrs', 2.0)), [[1.0, 1.0, 1.0, 1.0], [1.0, 0.5, 0.25, 0.25]])
        >>> found.rate.tolist(), found.ess.round(2).tolist()
        ([1.0, 0.5], [0.51, 0.9])
    """

    log_ratio: Floats
    keys: tuple[Key, ...]
    slopes: Floats
    groups: Floats | None = None
    shares: Floats | None = None

    @property
    def rate(self) -> Floats:
        """Share of the proposals that is kept, `(lines,)`."""
        rate: Floats = self.weights.mean(axis=1)
        return rate

    @property
    def ess(self) -> Floats:
        """Effective sample size per kept sample, E[r]² / (Z E[r²/a]): 1 where what is kept follows the target."""
        r = np.exp(self.log_ratio - self.log_ratio.max())
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.where(r > 0, r * r / self.weights, 0.0).mean(axis=1)
        ess: Floats = r.mean() ** 2 / (self.rate * left)
        return ess

    def spread(self, influence: Influence) -> Floats:
        """Return what each row adds to the error, the constants being solved for on the pool.

        A row that is kept lowers the constant of its group, and the weights of all others with it: with m the mean
        influence of the rows that move when the constant does, it adds mass · influence - (mass - its share) · m.
        """
        code = np.zeros(len(self.log_ratio), dtype=np.intp)
        if self.groups is not None:
            code = np.unique(self.groups, return_inverse=True)[1].reshape(-1)
        mass = self.weights / self.weights.sum(axis=1, keepdims=True)
        codes, size = code[influence.rows], np.bincount(code)
        parts = np.empty_like(influence.value)
        for line, unit in enumerate(influence.value):
            slope = self.slopes[line, influence.rows] * influence.times
            total, moved = (np.bincount(codes, weights, len(size)) for weights in (slope, slope * unit))
            mean = np.divide(moved, total, out=np.zeros_like(moved), where=total > 0)[codes]
            # a row adds to what its group may keep; with shares it adds to all groups alike, whatever it is
            even = np.bincount(code, mass[line]) / size if self.shares is None else np.zeros(len(size))
            parts[line] = mass[line, influence.rows] * (unit - mean) + even[codes] * mean
        return parts * np.sqrt(influence.times)

    def restrict(self, stay: Floats) -> Floats:
        """Return the weights solved for again on the rows that stay, 0 for the others, `(lines, n)`."""
        weights = np.zeros_like(self.weights)
        groups = None if self.groups is None else self.groups[stay]
        try:
            weights[:, stay] = _solve(self.log_ratio[stay], self.keys, groups, self.shares)[0]
        except BudgetError:  # the rest cannot meet the smallest budget that all rows could
            weights[:, stay] = self.weights[:, stay]
        return weights


def as_pool(weights: Any, n: int) -> Pool:
    """Return the weights of n rows as a pool; `Weightings` stay as they are, arrays become fixed weights."""
    if isinstance(weights, Weightings) and weights.weights.shape[1] != n:
        raise InputError(f"the weightings are of {weights.weights.shape[1]} rows, and fake has {n}")
    return weights if isinstance(weights, Weightings) else Pool(check_weights(weights, n))


def weightings(
    log_ratio: Any,
    budgets: Sequence[float],
    rules: Sequence[str] = ("obrs",),
    groups: Any = None,
    shares: Any = None,
) -> Weightings:
    """Solve every rule for every budget on a pool.

    Args:
        log_ratio: Of the proposals, `(n,)`.
        budgets: Proposals per kept sample; 1, the model as it is, is always there.
        rules: Keys of `POOL_RULES`.
        groups: Labels `(n,)` for one constant per label.
        shares: Shares of the labels among the kept, a dict or an array in the order of the sorted labels.
    """
    values = known_values(as_log_ratio(log_ratio), "log_ratio").astype(np.float64, copy=False)
    if values.ndim != 1:
        raise InputError(f"log_ratio must have shape (n,), one per fake, got {tuple(values.shape)}")
    check_ratios(values)
    above_one = sorted({check_budget(k) for k in check_list(budgets, "budgets")} - {1.0})
    known_rules = [*dict.fromkeys([rules] if isinstance(rules, str) else check_list(rules, "rules"))]
    for rule in known_rules:
        lookup(POOL_RULES, rule, "rule")
    labels = None if groups is None else any_labels(groups)
    if labels is not None:
        known = groups_of(labels, values.shape).labels
        shares = None if shares is None else shares_of(shares, known)
    elif shares is not None:
        raise InputError("shares are those of groups: say groups, too")
    keys = (("model", 1.0), *((rule, k) for rule in known_rules for k in above_one))
    weights, slopes = _solve(values, keys, labels, shares)
    return Weightings(weights, values, keys, slopes, labels, shares)


def _solve(log_ratio: Floats, keys: Sequence[Key], groups: Any, shares: Any) -> tuple[Floats, Floats]:
    """Return weights and slopes of all lines."""
    weights, slopes = np.ones((len(keys), len(log_ratio))), np.zeros((len(keys), len(log_ratio)))
    for line, (rule, budget) in enumerate(keys[1:], start=1):
        if groups is None:
            weights[line], slopes[line] = POOL_RULES[rule](log_ratio, budget)
            continue
        grouped = Grouped.fit(log_ratio, budget, groups, shares=shares)  # names the group that cannot be kept
        if rule == "obrs":
            a = np.exp(grouped(log_ratio, groups))
            weights[line], slopes[line] = a, np.where(a < 1, a, 0.0)
            continue
        weights[line] = 0.0
        for label, k in zip(grouped.labels, grouped.budgets or (), strict=True):
            member = groups == label
            if k < np.inf:
                weights[line, member], slopes[line, member] = POOL_RULES[rule](log_ratio[member], k)
    return weights, slopes
