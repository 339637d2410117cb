"""Look up a name; for an unknown one, offer the nearest."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from .errors import UnknownNameError

__all__ = ["lookup"]

T = TypeVar("T")


def lookup(registry: Mapping[str, T], name: str, what: str) -> T:
    """Return the entry of a registry.

    Example:
        >>> lookup({"relu": 1, "tanh": 2}, "rleu", "activation")
        Traceback (most recent call last):
        obrs.errors.UnknownNameError: unknown activation 'rleu'; did you mean 'relu'? there are: relu, tanh
    """
    try:
        return registry[name]
    except (KeyError, TypeError):
        near = get_close_matches(str(name), registry, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnknownNameError(f"unknown {what} {name!r}; {hint}there are: {', '.join(registry)}") from None
