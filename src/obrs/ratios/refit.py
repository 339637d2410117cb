"""Fit a log-ratio for any generator, from real samples and its own."""

import warnings
from dataclasses import fields, is_dataclass, replace
from typing import Any

from .._names import lookup
from ..errors import InputError, InputTypeError, MissingLibraryError
from ..sampling.proposals import warn_of_train_mode
from .boosted import Boosted
from .fitted import FitReport, FittedRatio, find_trouble, load_ratio
from .held_out import losses, mean_of_means
from .methods import Ensemble, FineTune, Head, Network
from .pairs import prepare
from .scorers import blocks, critic_features
from .telescope import Telescope, bridge_losses

__all__ = ["METHODS", "refit"]
__all__ += ["Boosted", "Ensemble", "FineTune", "Head", "Network", "Telescope", "critic_features", "load_ratio"]

METHODS: dict[str, type] = {
    "head": Head,
    "fine_tune": FineTune,
    "network": Network,
    "boosted": Boosted,
    "ensemble": Ensemble,
    "telescope": Telescope,
}
"""Ways to fit a ratio, by name."""


def refit(
    real: Any,
    propose: Any,
    method: Any = None,
    *,
    steps: int = 3000,
    batch_size: int = 512,
    held_out: float = 0.1,
    seed: int = 0,
    progress: bool | None = None,
    checkpoint: Any = None,
) -> FittedRatio:
    """Fit log p/q by telling real samples from the model's.

    Every step sees fresh fakes. A share of the real samples and as many fakes are held out: they decide when to stop
    and which weights are kept. What torch draws, inside `propose` too, is decided by the seed; the global seed is left
    alone. Proposals get ids from 2**40 on: samples that you draw later are none of those.

    Args:
        real: Samples `(n, ...)` of the target, an array of NumPy, torch or JAX.
        propose: Maps ids to samples of the model, `obrs.proposal(fn)` for a `fn(n)`; or an array of fakes.
        method: A record such as `FineTune(critic)`, or a name in `METHODS`; None for `Network()`.
        steps, batch_size: Updates, and samples of each kind in one.
        held_out: Share of the samples that is held out.
        seed: Decides initial weights and batches.
        progress: Show a bar; None on a terminal only.
        checkpoint: A file. The same call goes on from it after it was killed, and a finished one is read from it.

    Returns:
        A callable log-ratio with a `report`. A classifier that separates the two sets is warned about.

    Example:
        >>> import numpy as np, obrs
        >>> real = np.random.default_rng(0).normal(1.0, 1.0, (2000, 1))
        >>> fitted = refit(real, lambda ids: obrs.normals(ids, 1, seed=1), Network(width=32), steps=200)
        >>> kept = obrs.sample(lambda ids: obrs.normals(ids, 1, seed=1), fitted, 1000, budget=4)
        >>> bool(0.7 < kept.x.mean() < 1.2)
        True
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingLibraryError("refit needs torch: pip install 'obrs[ratios]'") from error
    chosen = _method(method)
    warn_of_train_mode(propose)
    task = prepare(
        real,
        propose,
        steps=steps,
        batch_size=batch_size,
        held_out=held_out,
        seed=seed,
        progress=progress,
        checkpoint=checkpoint,
    )
    task = replace(task, identity=task.identity | {"method": _description(chosen)})
    scorer, outcome = chosen.fit(task)
    loss, spread = mean_of_means(*losses(_scores(scorer, task.held_real), _scores(scorer, task.held_fake)))
    bridges = [bridge_losses(part, task) for part in _parts(scorer)]
    trouble = find_trouble(loss, spread, bridges)
    report = FitReport(
        type(chosen).__name__,
        loss,
        spread,
        outcome.steps,
        outcome.seconds,
        outcome.stopped,
        task.real.size,
        outcome.fakes,
        outcome.history,
        sum(bridges, ()),
        trouble,
    )
    if trouble:
        warnings.warn(trouble, stacklevel=2)
    return FittedRatio(scorer, task.shape, report, task.held_fake[:8].clone())


def _scores(scorer: Any, x: Any) -> Any:
    return blocks(scorer, x).double().cpu().numpy()


def _parts(scorer: Any) -> list[Any]:
    """Return a scorer, or the members of an ensemble and of those in it."""
    return [part for member in scorer.members for part in _parts(member)] or [scorer]


def _description(method: Any) -> str:
    """Tell one method from another in a checkpoint: its name and constants, and the kinds of networks in it."""
    if isinstance(method, tuple | list):
        return f"({', '.join(map(_description, method))})"
    if not is_dataclass(method) or isinstance(method, type):
        return repr(method) if isinstance(method, int | float | str | None) else type(method).__name__
    values = (f"{f.name}={_description(getattr(method, f.name))}" for f in fields(method))
    return f"{type(method).__name__}({', '.join(values)})"


def _method(method: Any) -> Any:
    """Return the method itself, or the one of that name."""
    if method is None:
        return Network()
    if isinstance(method, str):
        kind = lookup(METHODS, method, "method")
        try:
            return kind()
        except TypeError as error:
            raise InputError(f"method {method!r} needs arguments; pass {kind.__name__}(...) itself") from error
    if isinstance(method, type) or not callable(getattr(method, "fit", None)):
        got = f"the class {method.__name__}" if isinstance(method, type) else type(method).__name__
        raise InputTypeError(f"method must be one such as Network() or FineTune(critic), got {got}")
    return method
