"""A batch as plain arrays with a description, and back: its keys, its kind and its array libraries survive."""

from ast import literal_eval
from collections import namedtuple
from importlib import import_module
from typing import Any

import numpy as np
from array_api_compat import is_jax_array, is_torch_array

from .._arrays import host_view
from ..errors import InputError, MissingLibraryError
from .proposals import Batch, leaves

__all__ = ["pack", "unpack"]

_PLAIN = "?bBhHiIlLqQefdgFDGSU"  # characters of the dtypes that a .npz file holds without pickling


def pack(batch: Batch) -> tuple[list[Any], dict[str, Any]]:
    """Return the arrays of a batch in NumPy memory, and plain facts that `unpack` needs.

    Example:
        >>> arrays, facts = pack({"image": np.zeros((2, 3)), 7: np.arange(2)})
        >>> unpack(arrays, facts)[7]
        array([0, 1])
    """
    facts: dict[str, Any] = {"kind": "array", "leaves": [_described(leaf) for leaf in leaves(batch)]}
    if isinstance(batch, dict):
        facts |= {"kind": "dict", "literals": [_literal(key) for key in batch]}
    elif isinstance(batch, tuple):
        facts["kind"] = "tuple"
        if names := getattr(batch, "_fields", None):
            facts |= {"name": type(batch).__name__, "fields": list(names)}
    return [_plain(leaf) for leaf in leaves(batch)], facts


def unpack(arrays: list[Any], facts: dict[str, Any], *, plain: bool = False) -> Batch:
    """Return the batch that `pack` took apart, on the CPU; `plain` leaves its arrays to NumPy."""
    if not plain and "leaves" in facts:  # files of earlier versions do not say
        arrays = [_restored(array, about) for array, about in zip(arrays, facts["leaves"], strict=True)]
    if facts["kind"] == "array":
        return arrays[0]
    if facts["kind"] == "tuple":
        if "fields" in facts:
            return namedtuple(facts["name"], facts["fields"])(*arrays)
        return tuple(arrays)
    keys = [literal_eval(text) for text in facts["literals"]] if "literals" in facts else facts["keys"]
    return dict(zip(keys, arrays, strict=True))


def _literal(key: Any) -> str:
    """Return a key of a dict as Python text, if that makes the same key again."""
    key = key.item() if isinstance(key, np.generic) else key
    text = repr(key)
    try:
        same = literal_eval(text) == key
    except (ValueError, SyntaxError, TypeError):
        same = False
    if not same:
        raise InputError(f"a key of a batch must be text, a number or a tuple of them to be saved, got {text:.60}")
    return text


def _described(leaf: Any) -> list[str]:
    library = "torch" if is_torch_array(leaf) else "jax" if is_jax_array(leaf) else "numpy"
    return [library, str(leaf.dtype).removeprefix("torch.")]


def _plain(leaf: Any) -> Any:
    """Return the values in a dtype that NumPy knows; half precision of other kinds becomes float32, which holds it."""
    if is_torch_array(leaf) and leaf.dtype.is_floating_point and "bfloat16" in str(leaf.dtype):
        leaf = leaf.float()
    values: Any = host_view(leaf)
    if values.dtype.char in _PLAIN:
        return values
    if values.dtype.kind == "O":
        raise InputError("arrays of Python objects cannot be saved; give a batch of numbers or text")
    return values.astype(np.float32)


def _restored(values: Any, about: list[str]) -> Any:
    library, dtype = about
    if library == "numpy":
        return values
    try:
        module: Any = import_module({"torch": "torch", "jax": "jax.numpy"}[library])
    except ImportError as error:
        raise MissingLibraryError(
            f"these samples are of {library}, which is missing; install it, or load with to='numpy'"
        ) from error
    if library == "torch":
        return module.from_numpy(np.array(values)).to(getattr(module, dtype))
    return module.asarray(values).astype(dtype) if "bfloat16" in dtype else module.asarray(values)
