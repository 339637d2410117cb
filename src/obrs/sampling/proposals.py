"""Run a user's callables on ids and batches, and handle the batches that they return.

A batch is an array, or a tuple or dict of arrays (image, label, latent) that are filtered together.
"""

import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_jax_array, is_numpy_array, is_torch_array

from .._arrays import array_like, as_floats, host_view
from .._checks import check_callable, check_ratios
from ..errors import InputError, InputTypeError

__all__ = ["Batch", "call", "check_length", "concatenate", "leaves", "length", "map_leaves", "no_grad", "proposal"]
__all__ += ["propose_batch", "score_batch", "take", "torch_module", "warn_of_train_mode"]

Batch = Any
Numbers = np.ndarray[Any, Any]


def proposal(fn: Callable[[int], Batch]) -> Callable[[Any], Batch]:
    """Wrap a `fn(n)` that makes n samples with its own randomness into a `propose(ids)`.

    The samples are then not reproducible by id; acceptance still is.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> propose = proposal(lambda n: rng.normal(size=(n, 2)))
        >>> propose(np.arange(5)).shape
        (5, 2)
    """
    check_callable(fn, "fn", "a function fn(n) -> batch")

    @functools.wraps(fn)
    def propose(ids: Any) -> Batch:
        return fn(len(ids))

    return propose


def propose_batch(propose: Callable[[Any], Batch], ids: Numbers) -> Batch:
    """Call `propose` on ids; a failure of something else than a `propose(ids)` says how to wrap it."""
    check_callable(propose, "propose", "a function propose(ids) -> batch")
    try:
        batch = call(propose, ids)
        check_length(batch, len(ids), "propose")
    except Exception as error:
        if torch_module(propose):
            wrapped = "lambda ids: G(obrs.normals(ids, dim, seed=0, like=next(G.parameters())))"
            raise InputTypeError(f"propose gets ids, and a torch module takes latents; wrap it: {wrapped}") from error
        if _takes_number(propose):
            raise InputTypeError(
                "propose gets an array of ids and took it for a number of samples; wrap it: obrs.proposal(fn)"
            ) from error
        raise
    return batch


def score_batch(log_ratio: Callable[[Any], Any], batch: Batch, n: int) -> Numbers:
    """Return the log-ratios of a batch of n items, checked, as NumPy float64."""
    check_callable(log_ratio, "log_ratio", "a function log_ratio(x) -> numbers")
    scores = call(log_ratio, batch)
    if not is_array_api_obj(scores):
        raise InputTypeError(f"log_ratio must return an array, got {type(scores).__name__}")
    if (shape := tuple(scores.shape)) != (n,):
        hint = "; use log_ratio(x)[:, 0]" if shape == (n, 1) else ""
        raise InputError(f"log_ratio must return one number per sample, shape ({n},), got {shape}{hint}")
    values: Any = host_view(as_floats(scores, "log_ratio"))
    check_ratios(values)
    return np.asarray(values, np.float64)


def call(function: Callable[[Any], Any], given: Any) -> Any:
    """Return what a user's function returns, without gradients."""
    with no_grad():
        return function(given)


def no_grad() -> AbstractContextManager[Any]:
    """Return torch's `no_grad` if torch is loaded, else nothing."""
    torch = sys.modules.get("torch")
    return torch.no_grad() if torch is not None and hasattr(torch, "no_grad") else nullcontext()


def _takes_number(propose: Callable[[Any], Batch]) -> bool:
    """Tell whether a proposal that failed is a `fn(n)`: asked for 2 and 3 samples, it makes 2 and 3."""
    try:
        return all(length(call(propose, n)) == n for n in (2, 3))
    except Exception:  # whatever it raises, it does not make n samples
        return False


def torch_module(function: Any) -> bool:
    """Tell whether a callable is a torch module."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "nn") and isinstance(function, torch.nn.Module)


def warn_of_train_mode(*callables: Any) -> None:
    """Warn about the first torch module among the callables that has batch norm or dropout in train mode."""
    for module in filter(torch_module, callables):
        parts = {kind.__name__ for part in module.modules() for kind in type(part).__mro__}
        if module.training and parts & {"_BatchNorm", "_DropoutNd"}:
            warnings.warn(
                f"{type(module).__name__} is in train mode: batch norm and dropout make its output depend on the "
                "batch; call .eval() first",
                stacklevel=3,
            )
            return


def map_leaves(function: Callable[[Any], Any], batch: Batch) -> Batch:
    """Apply a function to every array of a batch, and return a batch of the same form."""
    return _like_batch([function(leaf) for leaf in leaves(batch)], batch)


def _like_batch(values: Sequence[Any], batch: Batch) -> Batch:
    if isinstance(batch, dict):
        return dict(zip(batch, values, strict=True))
    if isinstance(batch, tuple):
        return type(batch)(*values) if hasattr(batch, "_fields") else tuple(values)
    return values[0]


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


def check_length(batch: Batch, wanted: int, who: str) -> None:
    """Raise unless a user's callable returned as many items as it was asked for."""
    if (got := length(batch)) != wanted:
        raise InputError(f"{who} must return one item per id, {wanted} of them, got {got}")


def take(batch: Batch, index: Numbers) -> Batch:
    """Return the items at these positions, on the device where they are."""

    def pick(leaf: Any) -> Any:
        if is_numpy_array(leaf):
            return leaf[index]
        if is_torch_array(leaf):
            return leaf.index_select(0, sys.modules["torch"].as_tensor(index, device=leaf.device))
        xp = array_namespace(leaf)
        return xp.take(leaf, array_like(index, leaf, dtype=xp.int32 if is_jax_array(leaf) else xp.int64), axis=0)

    return map_leaves(pick, batch)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Join batches of one form."""
    first = batches[0]
    if len(batches) == 1:
        return first
    by_key = [[batch[key] for key in first] for batch in batches] if isinstance(first, dict) else map(leaves, batches)
    columns = zip(*by_key, strict=True)
    return _like_batch([array_namespace(column[0]).concat(column, axis=0) for column in columns], first)
