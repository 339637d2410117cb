"""Budgets of groups: how far they can go, alone, with shares and with confidence, and the constants they give."""

from math import inf
from typing import Any, NamedTuple

import numpy as np

from ._confidence import confident_budget
from ._groups import Groups
from ._inputs import check_confidence, out_of_reach, rounded_up
from .budget import solve_log_c
from .errors import BudgetError
from .root import slack_of

__all__ = ["ROUNDING", "Reach", "confident_budgets", "log_constants"]

ROUNDING = slack_of(1, weighted=False)


class Reach(NamedTuple):
    """How far budgets can go in each group: the share with r > 0, and M_g (infinite where no r is above 0)."""

    possible: Any
    max_budget: Any

    @classmethod
    def of(cls, values: Any, groups: Groups) -> "Reach":
        count = len(groups.size)
        top = np.full(count, -inf)
        np.maximum.at(top, groups.code, values)
        with np.errstate(all="ignore"):  # a group of r = 0 alone: -inf less -inf
            relative = np.exp(values.astype(np.float64, copy=False) - top[groups.code])
            most = groups.size / np.bincount(groups.code, np.where(values > -inf, relative, 0.0), count)
        return cls(np.bincount(groups.code, values > -inf, count) / groups.size, most)

    def check(self, budgets: Any, labels: tuple[Any, ...]) -> None:
        """Raise if a group cannot keep 1 in its budget."""
        short = self.possible < (1 - ROUNDING) / budgets
        if short.any():
            first = int(np.argmax(short))
            raise out_of_reach(1 / budgets[first], float(self.possible[first]), f" in group {labels[first]!r}")

    def total(self, budget: float, shares: Any, proposed: Any, labels: tuple[Any, ...]) -> float:
        """Return the budget for all groups, at most K*; raise if it is below the smallest feasible one."""
        wanted = shares > 0
        for nothing in np.flatnonzero(wanted & (self.possible == 0))[:1]:
            raise BudgetError(f"no proposal has r > 0 in group {labels[nothing]!r}: its share cannot be kept")
        ratio = shares[wanted] / proposed[wanted]
        needs = ratio / self.possible[wanted]
        if budget < needs.max() * (1 - ROUNDING):
            label = np.flatnonzero(wanted)[int(np.argmax(needs))]
            reason = (
                f"share {shares[label]:.3g} of group {labels[label]!r}, {100 * proposed[label]:.3g} % of the proposals"
            )
            raise BudgetError(
                f"budget {budget:g} cannot be met with these shares ({reason}); "
                f"the smallest feasible budget is {rounded_up(float(needs.max())):g}"
            )
        return min(budget, float(np.max(ratio * self.max_budget[wanted])))


def confident_budgets(values: Any, groups: Groups, budgets: Any, confidence: float) -> Any:
    """Return the budgets to solve for, so that those asked for are kept in all groups at once."""
    check_confidence(confidence)
    each = 1 - (1 - float(confidence)) / len(budgets)
    parts = np.split(values[np.argsort(groups.code, kind="stable")], np.cumsum(groups.size)[:-1])
    found = []
    for label, part, k in zip(groups.labels, parts, budgets.tolist(), strict=True):
        try:
            found.append(confident_budget(part, k, each))
        except BudgetError as error:
            raise BudgetError(f"group {label!r}: {error}") from error
    return np.array(found)


def log_constants(values: Any, groups: Groups, budgets: Any) -> Any:
    """Return log c of each group, not floored: +inf at budget 1, -inf where nothing is kept."""
    kept = np.isfinite(budgets)
    here, number = kept[groups.code], np.cumsum(kept) - 1
    log_c = np.full(len(budgets), -inf)
    x, group = values[here].astype(np.float64), number[groups.code[here]]
    log_c[kept] = solve_log_c(x, budgets[kept], groups=group, check=False)  # all is checked, by label
    return log_c
