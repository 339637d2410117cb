"""What each budget buys with one constant per group: the divergence of all that is kept, and where a group is exact.

With the exact ratio one constant for all is best at every budget, and equal rates or shares are constraints that cost
divergence. They buy balance between groups, which a wrong ratio destroys; the divergences here take the ratio at its
word.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import numpy as np

from ._arrays import host_view
from ._checks import as_log_ratio, check_count, check_ratios
from ._text import html_table, plan_table, text_table
from .budget import Cut
from .divergences import divergence
from .errors import InputTypeError
from .groups import Grouped, Groups, any_labels, groups_of
from .types import Array

__all__ = ["GroupPlan", "plan_groups"]

_DIVERGENCES = ("kl", "rkl", "tv", "js", "chi2")
_COLUMNS = ("rate", *_DIVERGENCES, "ess")


def plan_groups(
    log_ratio: Array,
    budgets: Iterable[Any],
    groups: Array,
    *,
    shares: Mapping[Any, float] | Array | None = None,
    n: int | None = None,
) -> "GroupPlan":
    """Return one row per budget of a `Grouped` rule: what is kept, what is left, and what that means for each group.

    Each row has `budget`, all proposals per kept sample; `rate`; the divergences `kl`, `rkl`, `tv`, `js`, `chi2` of the
    target from all that is kept, and `ess`, as in `Profile.plan`, but without intervals; `proposals`; `exact`, whether
    rejection is exact within every group; and `groups`, a `Group` for each.

    Args:
        log_ratio: Log-ratios of proposals from the model, comparable between groups.
        budgets: Budgets as for `Grouped.fit`: numbers or, without shares, dicts by label.
        groups: Their labels.
        shares: The shares of the groups among the kept, as for `Grouped.fit`. Above K* the row is that of K*.
        n: Samples wanted in all; gives the column `proposals`.

    Example:
        >>> log_ratio, groups = np.log([2.0, 1.0, 0.6, 0.4]), ["cat", "cat", "dog", "dog"]
        >>> (equal_rates,) = plan_groups(log_ratio, [2], groups)
        >>> (real_shares,) = plan_groups(log_ratio, [2], groups, shares={"cat": 3, "dog": 1})
        >>> round(equal_rates["kl"], 3), round(real_shares["kl"], 3)
        (0.131, 0.0)
    """
    number = None if n is None else check_count(n, "n")
    if isinstance(budgets, str | bytes | Mapping) or not isinstance(budgets, Iterable):
        raise InputTypeError(f"budgets must be a list of budgets, got {budgets!r:.60}")
    values = host_view(as_log_ratio(log_ratio))
    if values is None:
        raise InputTypeError("a plan is made outside jax.jit: it looks at the log-ratios")
    check_ratios(values)
    found, labels = groups_of(groups, values.shape), any_labels(groups).reshape(-1)
    values = values.reshape(-1).astype(np.float64)
    rules = (Grouped.fit(values, budget, labels, shares=shares) for budget in budgets)
    plan = GroupPlan(_row(values, found, rule, number) for rule in rules)
    plan.by_shares = shares is not None
    return plan


def _row(values: Any, found: Groups, rule: Grouped, n: int | None) -> dict[str, Any]:
    """Return one row of a plan."""
    log_c = np.asarray(rule.log_c)[found.code]
    kept = (values > -inf) & (log_c > -inf)
    rate = 1 / float(rule.budget or 1.0)
    top = values.max()
    with np.errstate(over="ignore"):  # a difference of two finite numbers may be infinite
        ratio = np.exp(values - top)
    mean = np.mean(ratio)
    missing = float(np.sum(ratio[~kept]) / len(values) / mean)  # of the target, where nothing is kept
    cut = Cut(log_c[kept], np.log(rate) - top - np.log(mean))
    part = np.exp(cut.log_a(values[kept])) / (len(values) * rate)
    with np.errstate(over="ignore"):
        log_u = cut.log_u(values[kept])
    row: dict[str, Any] = {"budget": 1 / rate, "rate": rate}
    for key in _DIVERGENCES:
        div = divergence(key)
        with np.errstate(over="ignore"):
            left = float(np.sum(part[part > 0] * div.f(log_u[part > 0])))  # 0 times infinity is 0 here
        row[key] = max(left + (missing * float(div.critic(inf)) if missing else 0.0), 0.0)
    row["ess"] = 1 / (1 + row["chi2"])
    row["proposals"] = None if n is None else n / rate
    return {**row, "exact": rule.exact, "groups": rule.groups}


class GroupPlan(list[dict[str, Any]]):
    """Rows of `plan_groups`: a list of dicts that prints as a table.

    Attributes:
        by_shares: Whether shares tie the budgets of the groups to each other.
    """

    by_shares = False

    def _repr_html_(self) -> str:
        """Return the plan as a table for notebooks."""
        return html_table(*self._table(), notes=self._exact())

    def __str__(self) -> str:
        """Return the plan as aligned text, and below it which groups are exact at which budget."""
        return "\n".join([text_table(*self._table(), left=0), *self._exact()])

    def _table(self) -> tuple[list[str], list[list[str]]]:
        cells = [[f"{row[key]:.4g}" for key in _COLUMNS] for row in self]
        return plan_table(self, _COLUMNS, cells)

    def _exact(self) -> list[str]:
        """Return a line for each budget at which rejection is exact in some group."""
        lines = []
        for row in self:
            exact = [f"{group.label!r} (M = {group.max_budget:.4g})" for group in row["groups"] if group.exact]
            if exact:
                rest = "a smaller budget would do there"
                if self.by_shares:
                    rest = "a larger budget buys nothing" if row["exact"] else "its share decides its budget"
                which = "every group" if row["exact"] else ", ".join(exact[:5]) + (", …" if len(exact) > 5 else "")
                lines.append(f"budget {row['budget']:.4g}: exact rejection in {which}; {rest}")
        return lines
