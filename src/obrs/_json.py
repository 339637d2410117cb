"""Values as JSON has them."""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

__all__ = ["each_float", "finite"]


def finite(x: Any) -> Any:
    """Return values with None for NaN and infinity, for which JSON has no number; tuples become lists.

    Example:
        >>> finite({"kl": float("inf"), "left": (1.0, float("nan"))})
        {'kl': None, 'left': [1.0, None]}
    """
    return each_float(x, lambda value: value if isfinite(value) else None)


def each_float(x: Any, change: Callable[[float], Any]) -> Any:
    """Return values with each float changed, in mappings and lists as deep as they go; tuples become lists.

    Example:
        >>> each_float({"kl": [0.25, 1], "name": "obrs"}, lambda value: 100 * value)
        {'kl': [25.0, 1], 'name': 'obrs'}
    """
    if isinstance(x, Mapping):
        return {key: each_float(value, change) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [each_float(value, change) for value in x]
    return change(x) if isinstance(x, float) else x
