"""Batches: an array, or a tuple or dict of arrays (image, label, latent) that are filtered together."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_jax_array, is_numpy_array, is_torch_array

from .._arrays import host_view, like
from ..errors import InputError, InputTypeError

__all__ = ["Batch", "concatenate", "leaves", "length", "map_leaves", "move", "take"]

Batch = Any


def map_leaves(function: Callable[[Any], Any], batch: Batch) -> Batch:
    """Apply a function to every array of a batch, keeping its shape as a tuple or dict."""
    if isinstance(batch, dict):
        return {key: function(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(function(value) for value in batch)
    return function(batch)


def leaves(batch: Batch) -> list[Any]:
    """Return the arrays of a batch."""
    if isinstance(batch, dict):
        return list(batch.values())
    return list(batch) if isinstance(batch, tuple) else [batch]


def length(batch: Batch) -> int:
    """Return how many items a batch has; all its arrays must agree."""
    for leaf in leaves(batch):
        if not is_array_api_obj(leaf):
            raise InputTypeError(f"a batch must be an array or a tuple or dict of arrays, got {type(leaf).__name__}")
    sizes = {leaf.shape[0] if leaf.ndim else None for leaf in leaves(batch)}
    if len(sizes) != 1 or None in sizes:
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in leaves(batch)) or "no arrays"
        raise InputError(f"the arrays of a batch must have the same first axis, got {shapes}")
    return int(sizes.pop())  # type: ignore[arg-type]


def take(batch: Batch, index: "np.ndarray[Any, Any]") -> Batch:
    """Return the items at these positions, on the device where they are."""

    def pick(leaf: Any) -> Any:
        if is_numpy_array(leaf):
            return leaf[index]
        if is_torch_array(leaf):
            return leaf.index_select(0, sys.modules["torch"].as_tensor(index, device=leaf.device))
        return array_namespace(leaf).take(leaf, like(index, leaf, dtype=_index_dtype(leaf)), axis=0)

    return map_leaves(pick, batch)


def _index_dtype(leaf: Any) -> Any:
    xp = array_namespace(leaf)
    return xp.int32 if is_jax_array(leaf) else xp.int64


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Join batches of one shape."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    if isinstance(first, dict):
        return {key: concatenate([batch[key] for batch in batches]) for key in first}
    if isinstance(first, tuple):
        return tuple(concatenate([batch[i] for batch in batches]) for i in range(len(first)))
    return array_namespace(first).concat(list(batches), axis=0)


def move(batch: Batch, to: Any) -> Batch:
    """Move a batch: to "numpy", or to a device of torch; None leaves it."""
    if to is None:
        return batch
    if to == "numpy":
        return map_leaves(host_view, batch)
    return map_leaves(lambda leaf: leaf.to(to) if is_torch_array(leaf) else leaf, batch)
