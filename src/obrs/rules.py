"""Acceptance rules: log-ratio in, log-probability of acceptance out.

A rule is a frozen record with `rule(log_ratio, batch=None) -> log_a`, elementwise and at most 0, and
`rule.log_weight(log_ratio, batch=None) -> log(r / a)`, the importance weight that is left in a kept sample.
For every rule a log-ratio of -inf (r = 0) is never accepted and weighs nothing, NaN is never accepted, and
what lies above the largest ratio seen in the fit is accepted. `Grouped` alone, in `obrs.groups`, does not floor its
constants at 1/max r, so beyond the M of a group even its largest ratio may be rejected. `Stages` is for a log-ratio at
each of several stages; it composes a = min(c r, a₁).
"""

import json
from dataclasses import dataclass, fields
from math import exp, inf, isclose, log, nan
from typing import Any

import numpy as np

from ._arrays import as_floats, known_values, namespace, shift
from ._checks import as_log_ratio, check_budget, check_ratios, is_number, out_of_reach
from ._confidence import confident_budget
from ._text import lookup
from .budget import Cut, solve_cut
from .choice import Choice
from .divergences import log1m_exp, softplus
from .errors import InputError, InputTypeError
from .root import brent, slack_of
from .stages import Stages
from .types import Array, Rule

__all__ = ["DRS", "Budgeted", "Choice", "Stages", "Unbudgeted", "from_json", "to_json"]


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
        values = known_ratios(log_ratio, weights)
        if confidence is not None:
            budget = confident_budget(values.reshape(-1), check_budget(budget), confidence)
        cut = solve_cut(values, check_budget(budget), weights=weights)
        rate, least = exp(float(cut.log_rate)), 1 / float(budget)
        return cls(float(cut.log_c), float(budget), least if isclose(rate, least, rel_tol=1e-6) else rate)

    @property
    def cut(self) -> Cut:
        """The same constant as a `Cut`, which also knows what is left after rejection."""
        return Cut(self.log_c, nan if self.rate is None else log(self.rate))

    def __call__(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `log min(c r, 1)`."""
        return never_nan(self.cut.log_a(as_floats(log_ratio, "log_ratio")))

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
        return never_nan(self.cut.log_a(as_floats(log_ratio, "log_ratio")))

    def log_weight(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `log(r / a)`: log M, or log r where r is above M."""
        return self.cut.log_weight(as_floats(log_ratio, "log_ratio"))


@dataclass(frozen=True)
class DRS:
    """Discriminator rejection sampling: a = sigmoid(F - gamma), F = log rho - log(1 - rho exp(-eps)), rho = r/M.

    In closed form a = rho / (rho + (1 - rho exp(-eps)) exp(gamma)): exact rejection at gamma = 0 and eps -> 0,
    the lower gamma, the more is accepted.

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
        log_m, values = _log_max(log_ratio), known_ratios(log_ratio).astype(np.float64)
        rho, target = values[values > -inf] - log_m, share * values.size
        if rho.size < target * (1 - slack_of(values.size, weighted=False)):
            raise out_of_reach(share, rho.size / values.size)
        if rho.size <= target:
            return cls(log_m, -inf, eps)
        log_odds = rho - _log1mexp(rho - eps)  # Azadi's F: a = 1/2 at gamma = F

        def lacks(gamma: float) -> float:
            return float(target - np.sum(1 / (1 + np.exp(np.minimum(gamma - log_odds, 700.0)))))

        # 40 below the lowest F every a is 1 to the last bit
        gamma = 0.0 if lacks(0.0) <= 0 else brent(lacks, min(float(log_odds.min()), 0.0) - 40, 0.0)
        return cls(log_m, gamma, eps)

    def __call__(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return the log of Azadi's sigmoid."""
        x = as_floats(log_ratio, "log_ratio")
        xp = namespace(x)
        rho, _ = self._relative(x, xp)
        log_a = -softplus(xp, shift(_log1mexp(rho - self.eps), self.gamma) - rho)
        return xp.where(x > -inf, log_a, -inf)

    def log_weight(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `log(r / a) = log M + log(rho + (1 - rho exp(-eps)) exp(gamma))`."""
        x = as_floats(log_ratio, "log_ratio")
        xp = namespace(x)
        rho, excess = self._relative(x, xp)
        closed = shift(excess + xp.logaddexp(rho, shift(_log1mexp(rho - self.eps), self.gamma)), self.log_m)
        return xp.where(x > -inf, closed, -inf)

    def _relative(self, x: Array, xp: Any) -> tuple[Array, Array]:
        """Return log rho, at most 0, and by how much r is above M; r = 0 stands in as M."""
        rho = xp.where(x > -inf, shift(xp.where(x > -inf, x, 0.0), -self.log_m), 0.0)
        return xp.where(rho < 0, rho, 0.0), xp.where(rho > 0, rho, 0.0)


RULES: dict[str, type] = {"budgeted": Budgeted, "unbudgeted": Unbudgeted, "drs": DRS}
"""Rules by name, as JSON has it; `obrs.groups` adds "grouped"."""

# What null stands for in JSON, which has no infinity. The other one is text: a constant that keeps nothing.
_NULL = {"log_c": inf, "gamma": -inf, "budgets": inf, "max_budgets": inf}
_KEEPS_NOTHING = "-inf"


def saved_rules() -> dict[str, type]:
    """Return the rules that can be saved, by name: those that judge each proposal, and the choice among K."""
    return {**RULES, "choice": Choice}


def to_json(rule: Rule | Choice) -> str:
    """Return a rule as JSON; an infinite constant is null.

    Example:
        >>> to_json(Budgeted(log_c=-1.5, budget=2.0, rate=0.5))
        '{"rule": "budgeted", "log_c": -1.5, "budget": 2.0, "rate": 0.5}'
        >>> from_json(to_json(Unbudgeted(log_m=2.0)))
        Unbudgeted(log_m=2.0)
    """
    kinds = saved_rules()
    name = next((name for name, kind in kinds.items() if type(rule) is kind), None)
    if name is None:
        raise InputTypeError(f"only the rules {', '.join(kinds)} can be saved, got {type(rule).__name__}")

    def finite(key: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return [finite(key, v) for v in value]
        if key == "log_c" and value == -inf:
            return _KEEPS_NOTHING
        return None if value == _NULL.get(key) else value

    known = {f.name: getattr(rule, f.name) for f in fields(kinds[name]) if f.compare}
    saved = {key: finite(key, value) for key, value in known.items() if value is not None}
    return json.dumps({"rule": name, **saved})


def from_json(text: str) -> Any:
    """Return the rule that `to_json` saved; a `Grouped` rule comes back without its `of`."""
    try:
        data = dict(json.loads(text))
        name = data.pop("rule")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a saved rule must be a JSON object with a field 'rule', got {text!r:.60}") from error
    kind = lookup(saved_rules(), name, "rule")

    def restore(key: str, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(restore(key, v) for v in value)
        if key == "log_c" and value == _KEEPS_NOTHING:
            return -inf
        return _NULL.get(key) if value is None else value

    try:
        return kind(**{key: restore(key, value) for key, value in data.items()})
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        wanted = ", ".join(f.name for f in fields(kind) if f.compare)
        raise InputError(
            f"a saved {name} rule has the fields {wanted}, got {', '.join(data)}; if version 0.2 wrote it, fit it again"
        ) from error


def _check_fields(rule: Any, *names: str) -> None:
    for name in names:
        value = getattr(rule, name)
        if not is_number(value) or float(value) != float(value):
            raise InputError(f"{name} of a {type(rule).__name__} rule must be a number, got {value!r:.60}")


def never_nan(log_a: Array) -> Array:
    """Replace NaN by -inf: a sample without a ratio is never accepted."""
    xp = namespace(log_a)
    return xp.where(xp.isnan(log_a), -inf, log_a)


def known_ratios(log_ratio: Array, weights: Any = None) -> Any:
    """Return the log-ratios of a fit in NumPy memory, checked; those that weigh nothing may be anything."""
    x = as_log_ratio(log_ratio)
    if x.ndim == 2 and x.shape[1] == 1:  # compared with the uniforms of n ids it would become a square
        raise InputError(f"log_ratio must have shape ({x.shape[0]},), got {tuple(x.shape)}; use log_ratio[:, 0]")
    values = known_values(x, "log_ratio")
    if weights is None:
        check_ratios(values)
    return values


def _log_max(log_ratio: Array) -> float:
    largest = float(known_ratios(log_ratio).max())
    if largest == -inf:
        raise out_of_reach(1.0, 0.0)
    return largest


def _log1mexp(x: Array) -> Array:
    """Return log(1 - exp(x)) for x <= 0; -inf at 0."""
    xp = namespace(x)
    return xp.where(x < 0, log1m_exp(xp, xp.where(x < 0, x, -1.0)), -inf)
