"""Acceptance rules: log-ratio in, log-probability of acceptance out.

A rule is a frozen record with `rule(log_ratio, batch=None) -> log_a`, elementwise and at most 0, and
`rule.log_weight(log_ratio, batch=None) -> log(r / a)`, the importance weight that is left in a kept sample.
For every rule a log-ratio of -inf (r = 0) is never accepted and weighs nothing, NaN is never accepted, and
what lies above the largest ratio seen in the fit is accepted. `Grouped` alone does not floor its constants at
1/max r, so beyond the M of a group even its largest ratio may be rejected.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import exp, inf, isclose, isfinite, log, nan
from typing import Any, NamedTuple

import numpy as np

from ._arrays import as_floats, detached, host_view, is_traced, namespace, shifted
from ._confidence import confident_budget
from ._group_budgets import ROUNDING, Reach, confident_budgets, log_constants
from ._groups import any_labels, budgets_of, check_total, codes_of, groups_of, shares_of
from ._inputs import (
    as_log_ratio,
    check_budget,
    check_ratios,
    is_number,
    out_of_reach,
)
from ._names import lookup
from ._stable import log1m_exp, softplus
from .budget import Cut, solve_cut
from .errors import InputError, InputTypeError
from .root import slack_of
from .types import Array, Rule

__all__ = ["DRS", "RULES", "Budgeted", "Group", "Grouped", "Unbudgeted", "from_json", "to_json"]


@dataclass(frozen=True)
class Budgeted:
    """OBRS: accept with probability `min(c r, 1)`, optimal at its budget for every f-divergence.

    Args:
        log_c: The constant, as returned by `solve_log_c`; +inf accepts whatever has r > 0.
        budget: The budget that c was solved for; with `confidence` a little below the one asked for.
        rate: Share that was accepted of the sample in the fit; above 1/budget if exact rejection costs less.

    Example:
        >>> rule = Budgeted.fit([0.0, 1.0, 2.0, 3.0], budget=2)
        >>> round(rule.log_c, 3), round(rule.rate, 3)
        (-2.408, 0.5)
        >>> rule([3.0, 0.0]).round(3)
        array([ 0.   , -2.408])

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 3.1
        | Variational Rejection Sampling (Grover et al., 2018), the first to use this rule
    """

    log_c: float
    budget: float | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        _check_fields(self, "log_c")

    @classmethod
    def fit(
        cls,
        log_ratio: Array,
        budget: float,
        *,
        weights: Array | None = None,
        confidence: float | None = None,
    ) -> "Budgeted":
        """Choose `log_c` from the log-ratios of proposals.

        Args:
            log_ratio: Log-ratios of a calibration sample from the model.
            budget: Proposals per kept sample.
            weights: Masses of the proposals, as in `solve_log_c`.
            confidence: With this probability over the calibration sample, the true rate is at least 1/budget, so
                that the budget is not overrun. It needs independent proposals of equal mass, so no `weights`.
        """
        if confidence is not None and weights is not None:
            raise InputError("confidence needs proposals of equal mass; leave out weights or confidence")
        x = detached(_one_axis(log_ratio))
        if is_traced(x):
            raise InputTypeError(_OUTSIDE)
        if confidence is not None:
            values = _host(x)
            check_ratios(values)
            budget = confident_budget(values.reshape(-1), check_budget(budget), confidence)
        cut = solve_cut(x, check_budget(budget), weights=weights)
        rate, least = exp(float(cut.log_rate)), 1 / float(budget)
        return cls(float(cut.log_c), float(budget), least if isclose(rate, least, rel_tol=1e-6) else rate)

    @property
    def cut(self) -> Cut:
        """The same constant as a `Cut`, which also knows what is left after rejection."""
        return Cut(self.log_c, nan if self.rate is None else log(self.rate))

    def __call__(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `log min(c r, 1)`."""
        return _never_nan(self.cut.log_a(as_floats(log_ratio, "log_ratio")))

    def log_weight(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `log(r / a) = max(log r, -log c)`: constant but for the samples that were sure to be kept."""
        return self.cut.log_weight(as_floats(log_ratio, "log_ratio"))


@dataclass(frozen=True)
class Unbudgeted:
    """Exact rejection: accept with probability `r / M`, M the largest ratio seen.

    Args:
        log_m: `log max r`.

    Example:
        >>> Unbudgeted.fit([0.0, 1.0])([1.0, 0.0, 5.0])
        array([ 0., -1.,  0.])
    """

    log_m: float

    def __post_init__(self) -> None:
        _check_fields(self, "log_m")

    @classmethod
    def fit(cls, log_ratio: Array) -> "Unbudgeted":
        """Take M from the log-ratios of proposals."""
        return cls(_log_max(log_ratio))

    @property
    def cut(self) -> Cut:
        """The cut at c = 1/M; its rate is not known."""
        return Cut(-self.log_m, nan)

    def __call__(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `log min(r / M, 1)`."""
        return _never_nan(self.cut.log_a(as_floats(log_ratio, "log_ratio")))

    def log_weight(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `log(r / a)`: log M, or log r where r is above M."""
        return self.cut.log_weight(as_floats(log_ratio, "log_ratio"))


@dataclass(frozen=True)
class DRS:
    """Discriminator rejection sampling: a = sigmoid(F - gamma), F = log rho - log(1 - rho exp(-eps)), rho = r/M.

    In closed form a = rho / (rho + (1 - rho exp(-eps)) exp(gamma)): exact rejection at gamma = 0 and eps -> 0,
    more accepting the lower gamma.

    Args:
        log_m: `log max r` of a burn-in sample; larger ratios are treated as M.
        gamma: The shift; -inf accepts whatever has r > 0.
        eps: Keeps the logarithm finite at rho = 1.

    Example:
        >>> log_ratio = np.log([4.0, 1.0, 0.5, 0.5])
        >>> rule = DRS.fit(log_ratio, budget=2)
        >>> round(float(np.mean(np.exp(rule(log_ratio)))), 6)
        0.5

    References:
        | Discriminator Rejection Sampling (Azadi et al., 2019), Eq. 8
    """

    log_m: float
    gamma: float
    eps: float = 1e-6

    def __post_init__(self) -> None:
        _check_fields(self, "log_m", "gamma", "eps")
        if not self.eps >= 0:
            raise InputError(f"eps must be at least 0, got {self.eps}")

    @classmethod
    def fit(cls, log_ratio: Array, budget: float, *, eps: float = 1e-6) -> "DRS":
        """Solve gamma for the budget, never above 0: there exact rejection costs less than the budget."""
        share = 1 / check_budget(budget)
        cls(0.0, 0.0, eps)  # refuses an eps that is none
        log_m, values = _log_max(log_ratio), _host(log_ratio).astype(np.float64)
        with np.errstate(over="ignore"):
            rho = np.maximum(values[values > -inf] - log_m, -1e300)
        target = share * values.size
        if rho.size < target * (1 - slack_of(values.size, weighted=False)):
            raise out_of_reach(share, rho.size / values.size)
        if rho.size <= target:
            return cls(log_m, -inf, eps)
        return cls(log_m, _shift(rho, eps, target), eps)

    def __call__(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return the log of Azadi's sigmoid."""
        x = as_floats(log_ratio, "log_ratio")
        xp = namespace(x)
        rho, _ = self._relative(x, xp)
        log_a = -softplus(xp, shifted(_log1mexp(rho - self.eps), self.gamma) - rho)
        return xp.where(x > -inf, log_a, -inf)

    def log_weight(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `log(r / a) = log M + log(rho + (1 - rho exp(-eps)) exp(gamma))`."""
        x = as_floats(log_ratio, "log_ratio")
        xp = namespace(x)
        rho, excess = self._relative(x, xp)
        closed = shifted(excess + xp.logaddexp(rho, shifted(_log1mexp(rho - self.eps), self.gamma)), self.log_m)
        return xp.where(x > -inf, closed, -inf)

    def _relative(self, x: Array, xp: Any) -> tuple[Array, Array]:
        """Return log rho, at most 0, and by how much r is above M; r = 0 stands in as M."""
        rho = xp.where(x > -inf, shifted(xp.where(x > -inf, x, 0.0), -self.log_m), 0.0)
        return xp.where(rho < 0, rho, 0.0), xp.where(rho > 0, rho, 0.0)


class Group(NamedTuple):
    """What a `Grouped` rule does to one group.

    Attributes:
        label: Its label.
        budget: K_g, proposals per kept sample of the group; infinite if none is kept.
        rate: 1/K_g, the share of the group that was accepted in the fit.
        max_budget: M_g = max r / mean r, from which on rejection within the group is exact.
        exact: Whether K_g reached M_g. If it is above, a smaller budget would keep the same distribution.
        share: The group's share of all that is kept.
    """

    label: Any
    budget: float
    rate: float
    max_budget: float
    exact: bool
    share: float


@dataclass(frozen=True)
class Grouped:
    """OBRS with one constant per class, prompt or any other label: by a budget for each, or by shares of what is kept.

    No constant is floored at 1/max r: each group keeps its rate at every budget. Beyond its M_g a group gets no better,
    and `groups` says which have reached theirs.

    Args:
        labels: The labels of the fit, ascending: integers, text, or whatever can be sorted.
        log_c: The constant of each; -inf keeps nothing.
        budgets: Proposals per kept sample of each group, K_g; infinite where nothing is kept.
        max_budgets: M_g = max r / mean r of each group.
        proposed: The share of each group among the proposals of the fit, q_g.
        shares: The share of each group among the kept, p_g, if they were asked for.
        of: Finds the labels in a batch, `of(batch) -> labels`; without it the batch is the labels. It is not saved.

    Example:
        >>> log_ratio, groups = np.log([4.0, 1.0, 2.0, 2.0]), ["cat", "cat", "dog", "dog"]
        >>> rule = Grouped.fit(log_ratio, budget=1.5, groups=groups)
        >>> np.exp(rule(log_ratio, batch=groups)).round(3)
        array([1.   , 0.333, 0.667, 0.667])
        >>> [(group.label, group.max_budget, group.exact) for group in rule.groups]
        [('cat', 1.6, False), ('dog', 1.0, True)]
        >>> rule = Grouped.fit(log_ratio, budget=2, groups=groups, shares={"cat": 3, "dog": 1})
        >>> np.exp(rule(log_ratio, batch=groups)).round(3), rule.budget
        (array([1.  , 0.5 , 0.25, 0.25]), 2.0)
    """

    labels: tuple[Any, ...]
    log_c: tuple[float, ...]
    budgets: tuple[float, ...] | None = field(default=None, kw_only=True)
    max_budgets: tuple[float, ...] | None = field(default=None, kw_only=True)
    proposed: tuple[float, ...] | None = field(default=None, kw_only=True)
    shares: tuple[float, ...] | None = field(default=None, kw_only=True)
    of: Callable[[Any], Any] | None = field(default=None, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("log_c", "budgets", "max_budgets", "proposed", "shares"):
            each = getattr(self, name)
            if name != "log_c" and each is None:
                continue
            if len(each) != len(self.labels) or not all(is_number(c) and float(c) == float(c) for c in each):
                raise InputError(f"a Grouped rule has one number {name} per label")
        try:
            ascending = list(self.labels) == sorted(set(self.labels))
        except TypeError:
            ascending = False
        if not ascending:
            raise InputError(f"the labels of a Grouped rule must be of one kind and ascending, got {self.labels!r:.60}")

    @classmethod
    def fit(
        cls,
        log_ratio: Array,
        budget: float | Mapping[Any, float] | Array,
        groups: Array,
        *,
        shares: Mapping[Any, float] | Array | None = None,
        confidence: float | None = None,
        of: Callable[[Any], Any] | None = None,
    ) -> "Grouped":
        """Choose one `log_c` per group from log-ratios with labels.

        With shares p_g, group g is kept at K_g = K q_g / p_g, where q_g is its share of the proposals: 1 in K is kept
        of them all, and of that p_g is of group g. No other rule with these shares and this rate comes closer to the
        target, in any f-divergence. The smallest feasible budget is max_g p_g / (q_g Q(r > 0 | g)). The largest that
        buys anything is K* = max_g p_g M_g / q_g, where rejection is exact within every group: above it, K* is used.

        Args:
            log_ratio: Log-ratios of a calibration sample from the model.
            budget: Proposals per kept sample of each group: a number, a dict by label, or an array in the order of the
                sorted labels. With `shares` one number, for all groups together.
            groups: The labels, of the shape of `log_ratio`: integers, text, or whatever `np.unique` sorts.
            shares: The shares of the groups among the kept, as a dict by label or an array in the order of the sorted
                labels. They are divided by their sum, so counts will do. A group of share 0 is never kept. They hold
                for the calibration sample, and for others as well as it tells how often each group is proposed.
            confidence: With this probability over the calibration sample, given how many proposals it has of each
                group, no group overruns its budget: the true rate of each is at least 1/K_g, of all at once. So each of
                the G groups is solved for a failure of (1 - confidence)/G. Not with `shares`.
            of: Finds the labels in a batch.
        """
        values = _host(log_ratio)
        found = groups_of(groups, values.shape)
        values = values.reshape(-1)
        check_ratios(values)
        proposed, reach = found.size / len(values), Reach.of(values, found)
        if shares is None:
            budgets, kept = budgets_of(budget, found.labels), None
            reach.check(budgets, found.labels)
            if confidence is not None:
                budgets = confident_budgets(values, found, budgets, confidence)
        elif confidence is not None:
            raise InputError("confidence is for budgets of groups, not for shares: leave out one of them")
        else:
            kept = shares_of(shares, found.labels)
            total = reach.total(check_total(budget), kept, proposed, found.labels)
            with np.errstate(divide="ignore"):
                budgets = np.maximum(total * proposed / kept, 1.0)  # below 1 only by rounding, as the total is feasible
        log_c = log_constants(values, found, budgets)
        each = (log_c, budgets, reach.max_budget, proposed, kept)
        fields = [None if v is None else tuple(v.tolist()) for v in each]
        return cls(
            found.labels,
            fields[0] or (),
            budgets=fields[1],
            max_budgets=fields[2],
            proposed=fields[3],
            shares=fields[4],
            of=of,
        )

    @property
    def budget(self) -> float | None:
        """Proposals per kept sample, of all groups together; with shares K, or K* if that is less."""
        if self.budgets is None or self.proposed is None:
            return None
        return float(1 / np.sum(np.divide(self.proposed, self.budgets)))

    @property
    def groups(self) -> tuple[Group, ...]:
        """What the rule does to each group, and where rejection is exact already."""
        if self.budgets is None or self.max_budgets is None or self.proposed is None:
            return ()
        kept = np.divide(self.proposed, self.budgets)
        kept = kept / kept.sum() if self.shares is None else np.asarray(self.shares)
        rows = zip(self.labels, self.budgets, self.max_budgets, kept.tolist(), strict=True)
        return tuple(
            Group(label, k, 1 / k, most, isfinite(k) and k >= most * (1 - ROUNDING), share)
            for label, k, most, share in rows
        )

    @property
    def exact(self) -> bool:
        """Whether rejection is exact within every group that is kept: a larger budget would buy nothing."""
        return bool(self.groups) and all(group.exact for group in self.groups if group.rate > 0)

    def __call__(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `log min(c r, 1)` with the constant of each sample's group."""
        x = as_floats(log_ratio, "log_ratio")
        return _never_nan(self._cut(x, batch).log_a(x))

    def log_weight(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `max(log r, -log c)` with the constant of each sample's group; +inf where nothing is ever kept."""
        x = as_floats(log_ratio, "log_ratio")
        return self._cut(x, batch).log_weight(x)

    def _cut(self, x: Array, batch: Any) -> Cut:
        """Return the cut with the constant of each sample's group."""
        if batch is None:
            raise InputError("a Grouped rule needs the batch, to find the group of each sample")
        if self.of is None and isinstance(batch, dict | tuple):
            remedy = "Grouped.fit(..., of=lambda batch: batch['label'])"
            raise InputError(f"a Grouped rule must know where a batch has its labels; use {remedy}")
        found = any_labels(batch if self.of is None else self.of(batch), "the labels of a batch")
        if tuple(found.shape) != tuple(x.shape):
            raise InputError(f"a batch of {tuple(x.shape)} log-ratios has labels of shape {tuple(found.shape)}")
        return Cut(np.asarray(self.log_c)[codes_of(found, self.labels)], nan)


_OUTSIDE = "a rule is fitted outside jax.jit: its constants are Python numbers"
RULES: dict[str, type] = {"budgeted": Budgeted, "unbudgeted": Unbudgeted, "drs": DRS, "grouped": Grouped}
# What null stands for in JSON, which has no infinity. The other one is text: a constant that keeps nothing.
_NULL = {"log_c": inf, "gamma": -inf, "budgets": inf, "max_budgets": inf}
_KEEPS_NOTHING = "-inf"


def to_json(rule: Rule) -> str:
    """Return a rule as JSON; an infinite constant is null.

    Example:
        >>> to_json(Budgeted(log_c=-1.5, budget=2.0, rate=0.5))
        '{"rule": "budgeted", "log_c": -1.5, "budget": 2.0, "rate": 0.5}'
        >>> from_json(to_json(Unbudgeted(log_m=2.0)))
        Unbudgeted(log_m=2.0)
    """
    name = next((name for name, kind in RULES.items() if type(rule) is kind), None)
    if name is None:
        raise InputTypeError(f"only the rules {', '.join(RULES)} can be saved, got {type(rule).__name__}")

    def finite(key: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return [finite(key, v) for v in value]
        if key == "log_c" and value == -inf:
            return _KEEPS_NOTHING
        return None if value == _NULL.get(key) else value

    known = {f.name: getattr(rule, f.name) for f in fields(RULES[name]) if f.compare}
    saved = {key: finite(key, value) for key, value in known.items() if value is not None}
    return json.dumps({"rule": name, **saved})


def from_json(text: str) -> Any:
    """Return the rule that `to_json` saved; a `Grouped` rule comes back without its `of`."""
    try:
        data = dict(json.loads(text))
        name = data.pop("rule")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"a saved rule must be a JSON object with a field 'rule', got {text!r:.60}") from error
    kind = lookup(RULES, name, "rule")

    def restored(key: str, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(restored(key, v) for v in value)
        if key == "log_c" and value == _KEEPS_NOTHING:
            return -inf
        return _NULL.get(key) if value is None else value

    try:
        return kind(**{key: restored(key, value) for key, value in data.items()})
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        wanted = ", ".join(f.name for f in fields(kind) if f.compare)
        raise InputError(f"a saved {name} rule has the fields {wanted}, got {', '.join(data)}") from error


def _check_fields(rule: Any, *names: str) -> None:
    for name in names:
        value = getattr(rule, name)
        if not is_number(value) or float(value) != float(value):
            raise InputError(f"{name} of a {type(rule).__name__} rule must be a number, got {value!r:.60}")


def _never_nan(log_a: Array) -> Array:
    """Say of what has no ratio that it is never accepted."""
    xp = namespace(log_a)
    return xp.where(xp.isnan(log_a), -inf, log_a)


def _host(x: Array) -> Any:
    values = host_view(_one_axis(x))
    if values is None:
        raise InputTypeError(_OUTSIDE)
    return values


def _one_axis(log_ratio: Array) -> Array:
    """Refuse a column: compared with the uniforms of n ids it would become a square."""
    x = as_log_ratio(log_ratio)
    if x.ndim == 2 and x.shape[1] == 1:
        raise InputError(f"log_ratio must have shape ({x.shape[0]},), got {tuple(x.shape)}; use log_ratio[:, 0]")
    return x


def _log_max(log_ratio: Array) -> float:
    values = _host(log_ratio)
    check_ratios(values)
    largest = float(values.max())
    if largest == -inf:
        raise out_of_reach(1.0, 0.0)
    return largest


def _log1mexp(x: Array) -> Array:
    """Return log(1 - exp(x)) for x <= 0; -inf at 0."""
    xp = namespace(x)
    return xp.where(x < 0, log1m_exp(xp, xp.where(x < 0, x, -1.0)), -inf)


def _shift(rho: Any, eps: float, target: float) -> float:
    """Return the gamma <= 0 with `sum a = target`, given log rho, or 0 if that already accepts enough."""
    sums = _sums_of_a(rho, eps)
    if sums(0.0)[0] >= target:
        return 0.0
    # At `low` each a is at least target/n. If each a were 0 or 1, gamma would be the quantile that leaves the target.
    n, tiny = rho.size, 4 * float(np.finfo(float).eps)
    low, high = min(_log_odds(rho.min(), eps) - float(np.log(target / (n - target))), 0.0), 0.0
    gamma = min(max(low, _log_odds(np.partition(rho, k := int(n - target))[k], eps)), high)
    for _ in range(200):  # Newton's step, or half the interval if it leaves
        total, slope = sums(gamma)
        gap = total - target
        step = gap / slope if slope > 0 else inf
        if abs(gap) <= tiny * target or abs(step) <= tiny * max(1.0, abs(gamma)):
            break
        low, high = (gamma, high) if gap > 0 else (low, gamma)
        gamma = gamma + step if low < gamma + step < high else (low + high) / 2
    return gamma


def _log_odds(rho: float, eps: float) -> float:
    """Return Azadi's F, the gamma at which a = 1/2."""
    return float(rho) - float(_log1mexp(np.asarray(rho - eps)))


def _sums_of_a(rho: Any, eps: float) -> Callable[[float], tuple[float, float]]:
    """Return a function of gamma: the sums of a = 1/(1 + w) and of a (1 - a), w = (1/rho - exp(-eps)) exp(gamma).

    w is proportional to exp(gamma), so exponentials are taken once, and again only if gamma has moved far. What
    overflows there has a = 0 to the last bit, and what underflows a = 1.
    """
    w, a, centre = np.empty_like(rho), np.empty_like(rho), inf

    def sums(gamma: float) -> tuple[float, float]:
        nonlocal centre
        with np.errstate(over="ignore"):
            if abs(gamma - centre) > 30:
                centre = gamma
                np.exp(np.subtract(gamma, rho, out=w), out=w)
                np.subtract(w, np.exp(gamma - eps), out=w)
            np.multiply(w, np.exp(gamma - centre), out=a)
        np.reciprocal(np.add(a, 1.0, out=a), out=a)
        total = float(np.sum(a))
        return total, total - float(a @ a)

    return sums
