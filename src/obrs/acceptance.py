"""Acceptance rules: log-ratio in, log-probability of acceptance out.

A rule is a frozen record with `rule(log_ratio, batch=None) -> log_a`, elementwise and at most 0, and
`rule.log_weight(log_ratio, batch=None) -> log(r / a)`, the importance weight that is left in a kept sample.
For every rule a log-ratio of -inf (r = 0) is never accepted and weighs nothing, NaN is never accepted, and
what lies above the largest ratio seen in the fit is accepted.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from math import exp, inf, isclose, log, nan
from typing import Any

import numpy as np

from ._arrays import as_floats, detached, host_view, is_traced, namespace, shifted
from ._confidence import confident_budget
from ._inputs import as_labels, as_log_ratio, check_budget, check_ratios, is_number, out_of_reach
from ._names import lookup
from ._stable import log1m_exp, softplus
from .budget import Cut, solve_cut, solve_log_c
from .errors import InputError, InputTypeError
from .root import slack_of
from .types import Array, Rule

__all__ = ["DRS", "RULES", "Budgeted", "Grouped", "Unbudgeted", "from_json", "to_json"]


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
        if confidence is not None:
            if weights is not None:
                raise InputError("confidence needs proposals of equal mass; leave out weights or confidence")
            values = _host(log_ratio)
            check_ratios(values)
            budget = confident_budget(values.reshape(-1), check_budget(budget), confidence)
        x = detached(_one_axis(log_ratio))
        if is_traced(x):
            raise InputTypeError(_OUTSIDE)
        cut = solve_cut(x, budget, weights=weights)
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


@dataclass(frozen=True)
class Grouped:
    """OBRS with one constant per class, prompt or any other label: each group keeps 1 in `budget`.

    Args:
        labels: The labels of the fit, ascending.
        log_c: The constant of each.
        of: Finds the labels in a batch, `of(batch) -> ints`; without it the batch is the labels. It is not saved.

    Example:
        >>> rule = Grouped.fit(np.log([4.0, 1.0, 2.0, 2.0]), budget=1.5, groups=[7, 7, 9, 9])
        >>> np.exp(rule(np.log([1.0, 2.0]), batch=[7, 9])).round(3)
        array([0.333, 1.   ])
    """

    labels: tuple[int, ...]
    log_c: tuple[float, ...]
    of: Callable[[Any], Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.log_c) or not all(is_number(c) and float(c) == float(c) for c in self.log_c):
            raise InputError("a Grouped rule has one number log_c per label")
        if list(self.labels) != sorted(set(self.labels)):
            raise InputError(f"the labels of a Grouped rule must be ascending, got {self.labels!r:.60}")

    @classmethod
    def fit(cls, log_ratio: Array, budget: float, groups: Array, of: Callable[[Any], Any] | None = None) -> "Grouped":
        """Choose one `log_c` per group from log-ratios with labels."""
        labels, inverse = np.unique(as_labels(groups), return_inverse=True)
        x = detached(_one_axis(log_ratio))
        log_c = solve_log_c(x, budget, groups=inverse.reshape(np.shape(as_labels(groups))))
        return cls(tuple(int(k) for k in labels), tuple(float(c) for c in _host(log_c)), of)

    def __call__(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `log min(c r, 1)` with the constant of each sample's group."""
        x = as_floats(log_ratio, "log_ratio")
        return _never_nan(self._cut(x, batch).log_a(x))

    def log_weight(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `max(log r, -log c)` with the constant of each sample's group."""
        x = as_floats(log_ratio, "log_ratio")
        return self._cut(x, batch).log_weight(x)

    def _cut(self, x: Array, batch: Any) -> Cut:
        """Return the cut with the constant of each sample's group."""
        if batch is None:
            raise InputError("a Grouped rule needs the batch, to find the group of each sample")
        if self.of is None and isinstance(batch, dict | tuple):
            remedy = "Grouped.fit(..., of=lambda batch: batch['label'])"
            raise InputError(f"a Grouped rule must know where a batch has its labels; use {remedy}")
        found = as_labels(batch if self.of is None else self.of(batch), "the labels of a batch")
        if tuple(found.shape) != tuple(x.shape):
            raise InputError(f"a batch of {tuple(x.shape)} log-ratios has labels of shape {tuple(found.shape)}")
        known = np.asarray(self.labels)
        at = np.minimum(np.searchsorted(known, found), len(known) - 1)
        if not np.array_equal(known[at], found):
            stranger = found.reshape(-1)[np.argmax((known[at] != found).reshape(-1))]
            raise InputError(f"group {stranger} was not in the fit; fit again with log-ratios of all groups")
        return Cut(np.asarray(self.log_c)[at], nan)


_OUTSIDE = "a rule is fitted outside jax.jit: its constants are Python numbers"
RULES: dict[str, type] = {"budgeted": Budgeted, "unbudgeted": Unbudgeted, "drs": DRS, "grouped": Grouped}
_NULL = {"log_c": inf, "gamma": -inf}  # what null stands for in JSON, which has no infinity


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
        return None if value == _NULL.get(key) else value

    saved = {f.name: finite(f.name, getattr(rule, f.name)) for f in fields(RULES[name]) if f.compare}
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
