"""Rejection in stages: reject early, where a preview decides nearly as well, and again at the end.

A slow model shows something of a sample before it is done: a diffusion model a preview, a chain of models its first
links. With r₁ the ratio of what is seen early and r that of the sample, the first stage keeps a₁ = min(c₁ r₁, 1), and
the second a₂ = min(c r / a₁, 1) of what is left. Together that is

    a = a₁ a₂ = min(c r, a₁).

So wherever c r <= a₁, the samples that are kept follow the target as exactly as those of OBRS do. Elsewhere the first
stage was too strict, and the weight that is left, r/a = max(1/c, r/a₁), says by how much. Averages with these weights
are right whatever the early ratio is; a poor one costs samples. More stages go on in the same way.

One uniform per id decides all stages: a sample goes on while u < a₁, and is kept if u < min(c r, a₁). So

    accept(stages([early]), ids)           who goes on
    accept(stages([early, final]), ids)    who is kept; nobody who did not go on
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from ._arrays import array_like, host_values, known_values
from ._checks import as_log_ratio, check_budget, check_list, check_ratios
from .budget import solve_log_c
from .errors import InputError
from .types import Array

__all__ = ["Stages"]

Numbers = np.ndarray[Any, Any]


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
        >>> np.exp(stages.log_weight([early, final])).round(3)  # equal where the first stage was not too strict
        array([3., 1., 1., 1.])
        >>> round(stages.cost([0.5]), 3)  # of whole samples, if the preview is there after half of the time
        1.625
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
        values = [_values(x) for x in check_list(log_ratios, "log_ratios")]
        wanted = tuple(check_budget(k) for k in check_list(budgets, "budgets"))
        if len(values) != len(wanted):
            raise InputError(f"each stage needs a budget: got {len(values)} log-ratios and {len(wanted)} budgets")
        shapes = [x.shape for x in values]
        if len(set(shapes)) > 1:
            raise InputError(f"stages must have log-ratios of the same proposals, got the shapes {shapes}")
        for x in values:
            check_ratios(x)
        labels, code = (None, None) if groups is None else np.unique(_labels(groups, shapes[0]), return_inverse=True)
        log_a, constants, rates = np.zeros(shapes[0]), [], []
        for x, budget in zip(values, wanted, strict=True):
            mass = np.exp(log_a)
            left = np.where(mass > 0, x - np.where(mass > 0, log_a, 0.0), 0.0)
            log_c = np.atleast_1d(solve_log_c(left, budget, weights=mass, groups=code))
            constants.append(tuple(log_c.tolist()))
            log_a = _cap(x, log_c[0 if code is None else code], log_a)
            rates.append(float(np.exp(log_a).mean()))
        return cls(tuple(constants), wanted, tuple(rates), None if labels is None else tuple(labels.tolist()))

    def __call__(self, log_ratios: Sequence[Array], groups: Array | None = None) -> Array:
        """Return the log-probability of surviving the stages whose log-ratios are given: the first ones, or all."""
        values = [_values(x) for x in log_ratios]
        if not 0 < len(values) <= len(self.log_c):
            raise InputError(f"there are {len(self.log_c)} stages, got log-ratios of {len(values)}")
        code, log_a = self._code(groups, values[0].shape), np.zeros(values[0].shape)
        for x, log_c in zip(values, self.log_c, strict=False):
            log_a = _cap(x, np.asarray(log_c)[code], log_a)
        return array_like(log_a, as_log_ratio(log_ratios[-1]))

    def log_weight(self, log_ratios: Sequence[Array], groups: Array | None = None) -> Array:
        """Return `log(r/a)` of the last stage: the importance weight that is left in what is kept; -inf where r = 0."""
        x, log_a = _values(log_ratios[-1]), _values(self(log_ratios, groups))
        possible = log_a > -inf
        return array_like(np.where(possible, x - np.where(possible, log_a, 0.0), -inf), as_log_ratio(log_ratios[-1]))

    def cost(self, shares: Sequence[float]) -> float:
        """Return what a kept sample costs, in whole samples.

        Args:
            shares: The part of a sample's cost that is spent when each early stage decides, ascending, in (0, 1]; what
                is rejected costs no more than that.
        """
        parts = (*(float(share) for share in shares), 1.0)
        if len(parts) != len(self.rates) or not all(0 < a <= b for a, b in zip(parts, (*parts[1:], 1.0), strict=True)):
            raise InputError(f"shares must be {len(self.rates) - 1} ascending numbers in (0, 1], got {list(shares)}")
        later = zip(self.rates[:-1], parts[:-1], parts[1:], strict=True)
        return (parts[0] + sum(rate * (b - a) for rate, a, b in later)) / self.rates[-1]

    def _code(self, groups: Array | None, shape: tuple[int, ...]) -> Any:
        """Return the number of each sample's group, 0 if there are none."""
        if (groups is None) != (self.labels is None):
            raise InputError(f"these stages were fitted with{'out' * (self.labels is None)} groups; give them as there")
        if self.labels is None:
            return 0
        found, known = _labels(groups, shape), np.asarray(self.labels)
        code = np.minimum(np.searchsorted(known, found), len(known) - 1)
        if (strange := known[code] != found).any():
            raise InputError(f"group {found[strange][0]!r} was not in the fit; fit again with all groups")
        return code


def _labels(groups: Array, shape: tuple[int, ...]) -> Numbers:
    labels: Any = host_values(groups)
    if labels.shape != shape:
        raise InputError(f"groups must have the shape of log_ratio {shape}, got {labels.shape}")
    return np.asarray(labels)


def _cap(log_ratio: Numbers, log_c: Numbers, log_a: Numbers) -> Numbers:
    """Return `log min(c r, a)`; r = 0 is never kept, also at c = inf."""
    possible = log_ratio > -inf
    return np.where(possible, np.minimum(np.where(possible, log_ratio, 0.0) + log_c, log_a), -inf)


def _values(log_ratio: Array) -> Numbers:
    """Return log-ratios `(n,)` as NumPy float64."""
    values = known_values(as_log_ratio(log_ratio), "log_ratio")
    if values.ndim != 1:
        raise InputError(f"log-ratios of a stage must have shape (n,), got {values.shape}")
    return values.astype(np.float64)
