"""Events with weights of both signs: budgets on |w|, signs carried.

A Monte Carlo event generator at next-to-leading order makes events with weights w, some of them negative. Sums of w
over events, in all or in a bin, are what is wanted. Unweighting keeps event i with probability min(c |w_i|, 1) and
leaves it the weight w_i / probability = sign_i max(|w_i|, 1/c): every sum stays the same on average, and all events
weigh the same but for those above 1/c. So r = |w|, and the rest of the library applies: `Profile(log_ratio, sign=sign)`
says what a budget buys, its `budget_for(truncated=…)` finds one, `select(…, sign=sign)` keeps exactly n.

Of all probabilities pi that sum to n, these are also the ones with the least `sum w² (1/pi - 1)`, the variance of the
total if each event is decided on its own.
"""

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from ._arrays import as_floats, host_view, like
from .errors import InputError, InputTypeError
from .selection import inclusion_probability, select
from .types import Array, Rule

__all__ = ["Unweighted", "residual_weight", "split", "unweight"]


def split(weight: Array) -> tuple[Array, Array]:
    """Return `log|w|`, which is the log-ratio, and the sign of each weight (0 where w = 0).

    Example:
        >>> split([2.0, -1.0, 0.0])
        (array([0.69314718, 0.        ,       -inf]), array([ 1., -1.,  0.]))
    """
    x, values = _events(weight)
    with np.errstate(divide="ignore"):
        return like(np.log(np.abs(values)), x), like(np.sign(values), x)


def residual_weight(weight: Array, rule: Rule, batch: Any = None) -> Array:
    """Return the weight with which each event goes on if it is kept: w / a, for OBRS sign max(|w|, 1/c).

    For events that come as a stream and a rule that was fitted on `log|w|` of a pilot. Sums of it over what
    `accept(rule(log_ratio), ids)` keeps are sums of w over all events, on average.

    Args:
        weight: Weights of the events.
        rule: Any rule of `obrs`.
        batch: The batch, if the rule needs one.

    Example:
        >>> from obrs.rules import Budgeted
        >>> residual_weight([4.0, -1.0, 0.5, -0.5], Budgeted.fit(split([4.0, -1.0, 0.5, -0.5])[0], budget=2))
        array([ 4., -2.,  2., -2.])
    """
    x, values = _events(weight)
    with np.errstate(divide="ignore"):
        left = np.asarray(rule.log_weight(np.log(np.abs(values)), batch))
    return like(np.sign(values) * np.exp(left), x)


@dataclass(frozen=True)
class Unweighted:
    """What `unweight` kept.

    Args:
        index: Which events, ascending.
        weight: Their weights now, `sign max(|w|, max_weight)`. They sum to the total, in each bin on average.
        probability: The probabilities with which they were kept.
        max_weight: 1/c: the size of all weights but the overweight ones. Generators call it the maximum weight.
        truncated: The share of the sum of |w| above `max_weight`: what cutting weights off there would lose.
    """

    index: Array
    weight: Array
    probability: Array
    max_weight: float
    truncated: float

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        above = int((abs(self.weight) > self.max_weight).sum())
        what = f"{len(self)} events of |weight| {self.max_weight:.4g}, {above} of them overweight"
        return f"Unweighted({what}, truncated={self.truncated:.3g})"

    @property
    def overweight(self) -> Array:
        """The size of each weight over `max_weight`: 1, and above 1 for events that were sure to be kept."""
        if self.max_weight == inf:  # beyond the range of a float, and so is every weight
            return array_namespace(self.weight).ones_like(self.weight)
        with np.errstate(over="ignore"):
            return abs(self.weight) / self.max_weight


def unweight(weight: Array, n: int, *, seed: int = 0, design: str = "pivotal") -> Unweighted:
    """Keep exactly `n` of a pool of weighted events, whose weights may have both signs.

    Event i is kept with probability `min(c |w_i|, 1)` and carries `sign_i max(|w_i|, 1/c)`. The number kept of each
    sign is its expectation, rounded down or up: the sum of the weights is that of the pool up to 2/c, with a standard
    deviation of at most 1/c. Histograms are unbiased.

    Args:
        weight: Weights of the events, shape `(N,)`, finite; those with w = 0 are never kept.
        n: How many to keep.
        seed: Integer with `0 <= seed < 2**64`.
        design: `pivotal` or `systematic`, as in `select`.

    Example:
        >>> weight = np.array([4.0, -1.0, 0.5, -0.5, 1.0, 1.0])
        >>> kept = unweight(weight, 3)
        >>> kept.index, kept.weight, kept.max_weight
        (array([0, 1, 5]), array([ 4., -2.,  2.]), 2.0)
        >>> kept.truncated  # 2 of the 8 that all |w| sum to
        0.25

    References:
        | A Generalization of Sampling without Replacement from a Finite Universe (Horvitz & Thompson, 1952)
        | The automated computation of tree-level and next-to-leading order differential cross sections, and their
          matching to parton shower simulations (Alwall et al., 2014), where such weights come from
    """
    x, values = _events(weight)
    if values.ndim != 1 or not values.size:
        raise InputError(f"weight must have one axis, that of the events, and at least one, got shape {values.shape}")
    log_ratio, sign = split(values)
    index = np.asarray(select(log_ratio, n, seed=seed, design=design, sign=sign))
    pi = np.asarray(inclusion_probability(log_ratio, n))
    size = np.abs(values)
    free = (pi > 0) & (pi < 1)
    # All free have |w|/pi = 1/c; the largest is the most exact. If all are sure, the smallest of them is 1/c.
    at = int(np.argmax(np.where(free, size, 0.0)))
    with np.errstate(over="ignore"):  # 1/c may be beyond the range of a float where the largest weight is not
        max_weight = float(size[at] / pi[at]) if free.any() else float(np.min(size, where=size > 0, initial=inf))
    left = sign[index] * np.maximum(size[index], max_weight)
    share = size / size.max()
    truncated = float(np.sum(np.maximum(share - max_weight / size.max(), 0.0)) / np.sum(share))
    index_like = like(index, x, dtype=array_namespace(x).int64)
    return Unweighted(index_like, like(left, x), like(pi[index], x), max_weight, truncated)


def _events(weight: Any) -> tuple[Array, Any]:
    """Return the weights as an array of their library, and their values in float64."""
    x = as_floats(weight, "weight")
    values = host_view(x)
    if values is None:
        raise InputTypeError("weights of events must be known; use them outside jax.jit")
    if bad := np.count_nonzero(~np.isfinite(values)):
        raise InputError(f"weight must be finite, {bad} of {values.size} are not; drop such events, or look at them")
    return x, values.astype(np.float64)
