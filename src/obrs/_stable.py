"""Logarithms that neither overflow nor cancel, with gradients that stay finite.

Each chooses with `where` twice, for the argument and for the result: a branch that is not taken must still be
finite, or its derivative, 0 * inf, poisons the gradients of torch and JAX.
"""

from math import log
from typing import Any

from .types import Array

__all__ = ["log1m_exp", "softplus"]


def softplus(xp: Any, x: Array) -> Array:
    """Return `log(1 + e^x)`."""
    large = x > 40.0  # log(1 + u) is log u to the last bit
    below = xp.where(large, 0.0, x)
    return xp.where(large, x, xp.logaddexp(below, xp.zeros_like(below)))


def log1m_exp(xp: Any, t: Array) -> Array:
    """Return `log(1 - e^t)` for negative `t`."""
    near = t > -log(2)
    above, below = xp.where(near, t, -1.0), xp.where(near, -1.0, t)
    return xp.where(near, xp.log(-xp.expm1(above)), xp.log1p(-xp.exp(below)))
