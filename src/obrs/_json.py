"""Values as JSON has them."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

__all__ = ["finite"]


def finite(x: Any) -> Any:
    """Return values with None for NaN and infinity, for which JSON has no number; tuples become lists.

    Example:
        >>> finite({"kl": float("inf"), "left": (1.0, float("nan"))})
        {'kl': None, 'left': [1.0, None]}
    """
    if isinstance(x, Mapping):
        return {key: finite(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [finite(value) for value in x]
    return None if isinstance(x, float) and not isfinite(x) else x
