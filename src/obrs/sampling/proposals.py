"""Proposals: how the user's callables are run, and the batches that they return.

A batch is an array, or a tuple or dict of arrays (image, label, latent) that are filtered together. The callables run
without gradients; a network in train mode is warned about, and what they return is checked.
"""

import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_jax_array, is_numpy_array, is_torch_array

from .._arrays import as_floats, host_view, like
from .._checks import check_ratios
from ..errors import InputError, InputTypeError
from ..types import LogRatio, Proposal

__all__ = ["NOTHING", "Batch", "Proposals", "check_length", "concatenate", "holds_torch", "join_proposals"]
__all__ += ["label_batch", "leaves", "length", "map_leaves", "move", "no_grad", "proposal", "propose_batch"]
__all__ += ["score_batch", "score_proposals", "take", "warn_of_train_mode"]

Batch = Any
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Proposals:
    """Proposals with their scores, before a rule has judged them.

    Args:
        x: What `propose` made, one item per id.
        ids: Their ids, NumPy int64.
        log_ratio: Their log-ratios, NumPy float64.
        seconds: Wall time that they took.
    """

    x: Batch
    ids: Floats
    log_ratio: Floats
    seconds: float

    def __len__(self) -> int:
        return len(self.ids)


def score_proposals(propose: Proposal, log_ratio: LogRatio, ids: Floats) -> Proposals:
    """Make and score the proposals with these ids."""
    begun = perf_counter()
    batch = propose_batch(propose, ids)
    scores = score_batch(log_ratio, batch, len(ids))[1]
    return Proposals(batch, ids, scores, perf_counter() - begun)


NOTHING = Proposals(np.empty(0), np.empty(0, np.int64), np.empty(0), 0.0)
"""No proposals."""


def join_proposals(parts: Sequence[Proposals]) -> Proposals:
    """Put proposals one after the other."""
    parts = [part for part in parts if len(part)] or [NOTHING]
    return Proposals(
        concatenate([part.x for part in parts]),
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.log_ratio for part in parts]),
        sum(part.seconds for part in parts),
    )


def proposal(fn: Callable[[int], Batch]) -> Callable[[Any], Batch]:
    """Wrap a `fn(n)` that makes n samples with its own randomness into a `propose(ids)`.

    The samples are then not reproducible by id; acceptance still is.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> propose = proposal(lambda n: rng.normal(size=(n, 2)))
        >>> propose(np.arange(5)).shape
        (5, 2)
    """

    @functools.wraps(fn)
    def propose(ids: Any) -> Batch:
        return fn(len(ids))

    return propose


def no_grad() -> AbstractContextManager[Any]:
    """Return torch's `no_grad` if torch is loaded, else nothing."""
    torch = sys.modules.get("torch")
    return torch.no_grad() if torch is not None and hasattr(torch, "no_grad") else nullcontext()


@contextmanager
def _named(who: str) -> Iterator[None]:
    """Let the user's own exceptions through, with a note of who raised them."""
    try:
        yield
    except Exception as error:
        if isinstance(error, RuntimeError) and "device" in str(error):
            reason = str(error).splitlines()[0]
            raise InputError(f"{who} mixes devices, move the model or its input: {reason}") from error
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"raised by {who} while obrs was sampling")
        raise


def propose_batch(propose: Callable[[Any], Batch], ids: Floats) -> Batch:
    """Ask for the proposals with these ids."""
    if not callable(propose):
        raise InputTypeError(f"propose must be a function propose(ids) -> batch, got {type(propose).__name__}")
    try:
        with no_grad(), _named("propose"):
            batch = propose(ids)
        check_length(batch, len(ids), "propose")
    except Exception as error:
        if _takes_a_number(propose):
            raise InputTypeError(
                "propose gets an array of ids and took it for a number of samples; wrap it: obrs.proposal(fn)"
            ) from error
        raise
    return batch


def _takes_a_number(propose: Callable[[Any], Batch]) -> bool:
    """Tell whether a proposal that failed is a `fn(n)`: asked for 2 and 3 samples, it makes 2 and 3."""
    try:
        with no_grad():
            return all(length(propose(n)) == n for n in (2, 3))
    except Exception:  # whatever it raises, it does not make n samples
        return False


def label_batch(groups: Callable[[Any], Any], batch: Batch) -> Any:
    """Ask for the labels of a batch."""
    if not callable(groups):
        raise InputTypeError(f"groups must be a function groups(batch) -> labels, got {type(groups).__name__}")
    with no_grad(), _named("groups"):
        return groups(batch)


def score_batch(log_ratio: Callable[[Any], Any], batch: Batch, n: int) -> tuple[Any, Floats]:
    """Score a batch; return the log-ratios where they live, and as NumPy float64."""
    if not callable(log_ratio):
        raise InputTypeError(
            f"log_ratio must be a function log_ratio(batch) -> numbers, got {type(log_ratio).__name__}"
        )
    with no_grad(), _named("log_ratio"):
        scores = log_ratio(batch)
    if not is_array_api_obj(scores):
        raise InputTypeError(f"log_ratio must return an array, got {type(scores).__name__}")
    if tuple(scores.shape) == (n, 1):
        raise InputError(f"log_ratio must return shape ({n},), got ({n}, 1); use log_ratio(x)[:, 0]")
    if tuple(scores.shape) != (n,):
        raise InputError(f"log_ratio must return one number per sample, shape ({n},), got {tuple(scores.shape)}")
    scores = as_floats(scores, "log_ratio")
    values = host_view(scores)
    if values is None:
        raise InputError(f"log_ratio returned numbers that cannot be read, on device {scores.device}")
    check_ratios(values)
    return scores, values.astype(np.float64)


def warn_of_train_mode(*callables: Any) -> None:
    """Warn once if a torch module among the callables, or in their closures, is in train mode."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return
    for function in callables:
        for module in _modules(function, torch):
            if module.training and any(
                isinstance(part, torch.nn.modules.batchnorm._BatchNorm | torch.nn.modules.dropout._DropoutNd)
                for part in module.modules()
            ):
                warnings.warn(
                    f"{type(module).__name__} is in train mode: batch norm and dropout make its output depend on the "
                    "batch; call .eval() first",
                    stacklevel=4,
                )
                return


def holds_torch(function: Any) -> bool:
    """Tell whether a callable is a torch module or holds one."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "nn") and bool(_modules(function, torch))


def _modules(function: Any, torch: Any, depth: int = 1) -> list[Any]:
    found = [function, *_held(getattr(function, "__self__", None)), *_held(function)]
    if isinstance(function, functools.partial):
        found += [*function.args, *function.keywords.values(), *_held(getattr(function.func, "__self__", None))]
    inner = getattr(function, "__wrapped__", function)
    for cell in getattr(inner, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    names = getattr(getattr(inner, "__code__", None), "co_names", ())
    found += [inner.__globals__.get(name) for name in names if hasattr(inner, "__globals__")]
    modules = [thing for thing in found if isinstance(thing, torch.nn.Module)]
    if depth:  # a lambda in a record, a lambda in a lambda
        for thing in found:
            if callable(thing) and thing is not function and not isinstance(thing, torch.nn.Module | type):
                modules += _modules(thing, torch, depth - 1)
    return modules


def _held(thing: Any) -> list[Any]:
    """Return a thing and what it holds as attributes."""
    return [thing, *(getattr(thing, "__dict__", None) or {}).values()]


def map_leaves(function: Callable[[Any], Any], batch: Batch) -> Batch:
    """Apply a function to every array of a batch, keeping its shape as a tuple or dict."""
    if isinstance(batch, dict):
        return {key: function(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return _as_tuple([function(value) for value in batch], batch)
    return function(batch)


def _as_tuple(values: Sequence[Any], batch: Any) -> Any:
    """Return a tuple of the kind of `batch`, which may have names."""
    return type(batch)(*values) if hasattr(batch, "_fields") else tuple(values)


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
        return _as_tuple([concatenate([batch[i] for batch in batches]) for i in range(len(first))], first)
    return array_namespace(first).concat(list(batches), axis=0)


def move(batch: Batch, to: Any) -> Batch:
    """Move a batch: to "numpy", or to a device of torch; None leaves it."""
    if to is None:
        return batch
    if to == "numpy":
        return map_leaves(host_view, batch)
    return map_leaves(lambda leaf: leaf.to(to) if is_torch_array(leaf) else leaf, batch)


def check_length(batch: Batch, wanted: int, who: str) -> None:
    """Raise unless a user's callable returned as many items as it was asked for."""
    if (got := length(batch)) != wanted:
        raise InputError(f"{who} must return one item per id, {wanted} of them, got {got}")
