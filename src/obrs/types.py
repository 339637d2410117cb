"""The shapes of the callables a user may hand to this library."""

from typing import Any, Protocol

__all__ = ["Array", "LogRatio", "Proposal", "Rule"]

Array = Any  # any array-API array: numpy, torch, jax …


class Proposal(Protocol):
    """Make the candidates with these ids; owns its own randomness."""

    def __call__(self, ids: Array) -> Any: ...


class LogRatio(Protocol):
    """Map candidates of shape `(n, ...)` to `log p(x) - log q(x)` of shape `(n,)`."""

    def __call__(self, x: Any) -> Array: ...


class Rule(Protocol):
    """Map log-ratios to log-probabilities of acceptance, elementwise and at most 0."""

    def __call__(self, log_ratio: Array, batch: Any = None) -> Array: ...

    def log_weight(self, log_ratio: Array, batch: Any = None) -> Array: ...
