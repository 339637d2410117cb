"""One pool of proposals at every budget: how likely each rule keeps each row, and how that moves with its constant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._arrays import host_view
from .._checks import as_log_ratio, check_budget, check_ratios
from .._text import lookup
from ..errors import BudgetError, InputError
from ..groups import Grouped, any_labels, groups_of, shares_of
from ..rules import DRS, Budgeted
from .paired import Paired

__all__ = ["POOL_RULES", "Weightings", "weightings"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PoolRule:
    """A rule as a pool needs it.

    Args:
        fit: From log-ratios, a budget (with labels one for each, by label) and labels (or None) to log a of the rows.
        slope: From a to its derivative by the logarithm of the constant.
    """

    fit: Callable[[Floats, Any, Any], Floats]
    slope: Callable[[Floats], Floats]


def _obrs(log_ratio: Floats, budget: Any, groups: Any) -> Floats:
    if groups is None:
        return np.asarray(Budgeted.fit(log_ratio, budget)(log_ratio))
    return np.asarray(Grouped.fit(log_ratio, budget, groups)(log_ratio, groups))


def _drs(log_ratio: Floats, budget: Any, groups: Any) -> Floats:
    if groups is None:
        return np.asarray(DRS.fit(log_ratio, budget)(log_ratio))
    log_a = np.empty(len(log_ratio))
    for label, k in budget.items():
        own = groups == label
        log_a[own] = DRS.fit(log_ratio[own], k)(log_ratio[own])
    return log_a


POOL_RULES: dict[str, PoolRule] = {
    "obrs": PoolRule(_obrs, lambda a: np.where(a < 1, a, 0.0)),
    "drs": PoolRule(_drs, lambda a: a * (1 - a)),
}
"""The rules that a pool is weighted by, by name."""


@dataclass(frozen=True, eq=False)
class Weightings:
    """The acceptance probabilities of a pool, one line for each rule and budget.

    Args:
        log_ratio: Of the rows, `(n,)`.
        keys: Rule and budget of each line. The first is ("model", 1): the pool as it is, also where r = 0.
        weights: Probability that each row is kept, `(lines, n)`.
        groups: Label of each row, if there is one constant per label.
        shares: Share of each label among the kept, in the order of the sorted labels; None if all are kept alike.

    Example:
        >>> found = weightings(np.log([4.0, 1.0, 0.5, 0.5]), (1, 2), ("obrs",))
        >>> found.keys, found.weights.round(2).tolist()
        ((('model', 1.0), ('obrs', 2.0)), [[1.0, 1.0, 1.0, 1.0], [1.0, 0.5, 0.25, 0.25]])
        >>> found.rate.tolist(), found.ess.round(2).tolist()
        ([1.0, 0.5], [0.51, 0.9])
    """

    log_ratio: Floats
    keys: tuple[tuple[str, float], ...]
    weights: Floats
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

    @property
    def slopes(self) -> Floats:
        """How far each weight moves with its constant, `(lines, n)`."""
        rows = [POOL_RULES[rule].slope(a) for (rule, _), a in zip(self.keys[1:], self.weights[1:], strict=True)]
        return np.stack([np.zeros(len(self.log_ratio)), *rows])

    def without(self, stay: Floats) -> Floats:
        """Return the weights solved for again on the rows that stay, 0 for the others, `(lines, n)`."""
        weights = np.zeros_like(self.weights)
        groups = None if self.groups is None else self.groups[stay]
        weights[:, stay] = _lines(self.log_ratio[stay], self.keys, groups, self.shares)
        return weights

    def pulled(self, curve: Paired) -> Paired:
        """Return a curve whose errors know that weights are solved for on the pool, with one constant per group.

        As `obrs.metrics.paired.pulled` has it for one constant: a row that is kept lowers the constant of its group.

        Args:
            curve: A metric at these weights, its errors computed as if the weights were given.
        """
        labels = np.zeros(len(self.log_ratio), dtype=np.intp)
        if self.groups is not None:
            labels = np.unique(self.groups, return_inverse=True)[1].reshape(-1)
        mass = self.weights / self.weights.sum(axis=1, keepdims=True)
        count = np.bincount(labels)
        moved = curve.fake_influence.copy()
        for line, slope in enumerate(self.slopes):
            a = self.weights[line]
            share = np.divide(slope, a, out=np.zeros_like(a), where=a > 0)
            total = np.bincount(labels, weights=share * mass[line])
            pull = np.bincount(labels, weights=share * moved[line])
            mean = np.divide(pull, total, out=np.zeros_like(pull), where=total > 0)
            # a row adds to what its group may keep; with shares it adds to all groups alike, whatever it is
            even = np.bincount(labels, weights=mass[line]) / count if self.shares is None else np.zeros(len(count))
            moved[line] -= (mass[line] - even[labels]) * mean[labels]
        return replace(curve, fake_influence=moved)


def weightings(
    log_ratio: Any, budgets: Sequence[float], rules: Sequence[str], groups: Any = None, shares: Any = None
) -> Weightings:
    """Solve every rule for every budget on a pool.

    Args:
        log_ratio: Of the proposals, `(n,)`.
        budgets: Proposals per kept sample; 1, the model as it is, is always there.
        rules: Keys of `POOL_RULES`.
        groups: Labels `(n,)` for one constant per label.
        shares: Shares of the labels among the kept, a dict or an array in the order of the sorted labels.
    """
    values = host_view(as_log_ratio(log_ratio))
    assert values is not None, "metrics are not traced"
    if values.ndim != 1:
        raise InputError(f"log_ratio must have shape (n,), one per fake, got {tuple(values.shape)}")
    check_ratios(values)
    values = values.astype(np.float64, copy=False)
    try:
        wanted = tuple(check_budget(k) for k in budgets)
    except TypeError as error:
        raise InputError(f"budgets must be a list of numbers such as [1, 2, 4], got {budgets!r:.60}") from error
    if not wanted or len(set(wanted)) < len(wanted):
        raise InputError(f"budgets must be at least one number, each once, got {list(wanted)}")
    rules = (rules,) if isinstance(rules, str) else tuple(rules)
    for rule in rules:
        lookup(POOL_RULES, rule, "rule")
    if not rules or len(set(rules)) < len(rules):
        raise InputError(f"rules must be at least one of {', '.join(POOL_RULES)}, each once, got {list(rules)}")
    keys = (("model", 1.0), *((rule, k) for rule in rules for k in sorted(wanted) if k > 1))
    labels = None if groups is None else any_labels(groups)
    if labels is not None and labels.shape != values.shape:
        raise InputError(f"groups must have shape {values.shape}, one label per fake, got {labels.shape}")
    if labels is not None:
        groups_of(labels, values.shape)  # refuses what cannot be sorted
    kept = None
    if shares is not None:
        if labels is None:
            raise InputError("shares are those of groups: say groups, too")
        kept = shares_of(shares, tuple(np.unique(labels).tolist()))
    return Weightings(values, keys, _lines(values, keys, labels, kept), labels, kept)


def _lines(log_ratio: Floats, keys: Sequence[tuple[str, float]], groups: Any, shares: Any) -> Floats:
    rows = [
        np.exp(POOL_RULES[rule].fit(log_ratio, _of_each(budget, groups, shares), groups)) for rule, budget in keys[1:]
    ]
    return np.stack([np.ones(len(log_ratio)), *rows])


def _of_each(budget: float, groups: Any, shares: Any) -> Any:
    """Return the budget of each group by its label: K, or K q / p with shares p; without groups K itself."""
    if groups is None:
        return budget
    labels, count = np.unique(groups, return_counts=True)
    if shares is None:
        return dict.fromkeys(labels.tolist(), budget)
    least = float(np.max(shares * len(groups) / count))
    if budget < least * (1 - 1e-12):
        raise BudgetError(f"shares need a budget of at least {least:.4g} on this pool, got {budget:g}")
    each = np.maximum(budget * count / len(groups) / shares, 1.0)
    return dict(zip(labels.tolist(), each.tolist(), strict=True))
