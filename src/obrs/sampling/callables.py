"""How the user's callables are run: without gradients, watched for train mode, their answers checked."""

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from .._arrays import as_floats, host_view
from .._inputs import check_ratios
from ..errors import InputError, InputTypeError
from .batches import Batch
from .samples import check_length

__all__ = ["holds_torch", "no_grad", "proposal", "propose_batch", "score_batch", "warn_of_train_mode"]

Floats = np.ndarray[Any, Any]


def proposal(fn: Callable[[int], Batch]) -> Callable[[Any], Batch]:
    """Wrap a `fn(n)` that makes n samples with randomness of its own into a `propose(ids)`.

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
            hint = "; it gets an array of ids, wrap a fn(n) with obrs.proposal(fn)" if who == "propose" else ""
            error.add_note(f"raised by {who} while obrs was sampling{hint}")
        raise


def propose_batch(propose: Callable[[Any], Batch], ids: Floats) -> Batch:
    """Ask for the proposals with these ids."""
    with no_grad(), _named("propose"):
        batch = propose(ids)
    check_length(batch, len(ids), "propose")
    return batch


def score_batch(log_ratio: Callable[[Any], Any], batch: Batch, n: int) -> tuple[Any, Floats]:
    """Score a batch; return the log-ratios where they live, and as NumPy float64."""
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
