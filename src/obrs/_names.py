"""Look a name up, and offer the nearest where there is none."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TypeVar

from .errors import UnknownNameError

__all__ = ["lookup", "unknown_name"]

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
        raise unknown_name(name, registry, what) from None


def unknown_name(name: object, among: Collection[str], what: str) -> UnknownNameError:
    """Return the error for a name that is not among those that are known."""
    near = get_close_matches(str(name), among, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UnknownNameError(f"unknown {what} {name!r:.60}; {hint}there are: {', '.join(among)}")
