"""The classes of a conditional network, and the labels that it is called with."""

from typing import Any

from .._checks import check_count
from ..errors import InputTypeError

__all__ = ["check_label", "class_count"]


def class_count(classes: Any) -> int | None:
    """Return the number of classes, or None for a network without any."""
    return None if classes is None else check_count(classes, "classes")


def check_label(label: Any, classes: int | None) -> Any:
    """Return the labels if the network has classes, None if it has none.

    Example:
        >>> check_label([0, 2], 3), check_label(None, None)
        ([0, 2], None)
        >>> check_label(None, 3)
        Traceback (most recent call last):
        obrs.errors.InputTypeError: this network has 3 classes: pass labels
    """
    if (label is None) != (classes is None):
        wanted = "has no classes: call it without labels" if classes is None else f"has {classes} classes: pass labels"
        raise InputTypeError(f"this network {wanted}")
    return label
