"""A fit that goes on from a file after it was killed: for networks that train for hours."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from hashlib import sha256
from math import cos, inf, isfinite, pi
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from obrs._progress import bar
from obrs.errors import InputError
from obrs.fitting.loop import Course, descend
from obrs.fitting.tensors import Facts, Tensors, read_tensors, under, write_tensors

__all__ = ["Checkpoint", "fit_resumable"]

_EVALUATIONS = 30  # in a whole run
_WARM_UP = 0.03  # share of the steps until the learning rate is reached

Tensor = Any


@dataclass(frozen=True)
class Checkpoint:
    """The file that a fit goes on from, and what tells this fit from another.

    Args:
        path: The file; it need not exist yet.
        identity: Plain values, such as steps and seed, that must be the same again.
        what: What the file is, in words, for errors.

    Example:
        >>> import tempfile, torch
        >>> kept = Checkpoint(Path(tempfile.mkdtemp(), "fit"), {"seed": 0})
        >>> kept.read() is None
        True
        >>> kept.write({"x": torch.ones(1)}, {"step": 5})
        >>> Checkpoint(kept.path, {"seed": 1}).read()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        obrs.errors.InputError: checkpoint ... is of another fit (seed); delete it or give another path
    """

    path: Path
    identity: Mapping[str, Any]
    what: str = "a checkpoint of a fit"

    def write(self, tensors: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Write the state of the fit."""
        write_tensors(self.path, tensors, {**facts, "task": dict(self.identity)})

    def read(self) -> tuple[Tensors, Facts] | None:
        """Return the state of the fit, None if there is no file; raise if it is of another fit."""
        if not self.path.exists():
            return None
        tensors, facts = read_tensors(self.path, self.what)
        known = facts.get("task", {})
        differ = [key for key, value in self.identity.items() if key not in known or known[key] != value]
        if differ:
            raise InputError(
                f"checkpoint {self.path} is of another fit ({', '.join(differ)}); delete it or give another path"
            )
        return tensors, facts


def fit_resumable(
    module: Any,
    loss: Callable[[Any, int], Tensor],
    held_out_loss: Callable[[Any], float],
    *,
    steps: int,
    lr: float,
    average: float = 0.998,
    patience: int = 10,
    checkpoint: Checkpoint | None = None,
    progress: bool | None = None,
) -> Course:
    """Fit a module in place; leave it, in evaluation mode, with the averaged weights that did best on what is held out.

    The learning rate rises to its height, then falls to 0 along a cosine. If a loss depends on its step alone, a run
    that was killed goes on from its file as if nothing had happened.

    Args:
        module: A torch module.
        loss: Of the module, at a step.
        held_out_loss: Of a module, in evaluation mode.
        steps: Updates at most.
        lr: Largest learning rate of Adam.
        average: How much of the running average of the weights stays at each step.
        patience: Evaluations without a better loss before it stops; there are 30 in a whole run.
        checkpoint: A file to write, and to go on from if the initial weights are the same, too.
        progress: Show a bar; None shows one on a terminal.

    Example:
        >>> import torch
        >>> line = torch.nn.Linear(1, 1)
        >>> x = torch.linspace(-1.0, 1.0, 9)[:, None]
        >>> error = lambda line: (line(x) - 3 * x).square().mean()
        >>> losses = (lambda line, step: error(line)), (lambda line: float(error(line)))
        >>> course = fit_resumable(line, *losses, steps=500, lr=0.1)
        >>> bool(error(line) < 0.01), course.history[0][0]
        (True, 0)
    """
    import torch

    optimiser = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=lr, betas=(0.9, 0.99))
    run = _Run(module, optimiser, checkpoint)
    run.resume()
    every, warm = max(1, steps // _EVALUATIONS), 1 + _WARM_UP * steps
    started = perf_counter() - run.seconds
    if run.step == 0:
        run.evaluate(held_out_loss, patience)
    with bar("fitting", steps, progress) as tell, torch.enable_grad():
        while run.step < steps and not run.stopped:
            for group in optimiser.param_groups:
                group["lr"] = lr * min(1.0, (run.step + 1) / warm) * (1 + cos(pi * run.step / steps)) / 2
            module.train()
            value = loss(module, run.step)
            if not isfinite(now := float(value.detach())):
                raise InputError(f"the loss is {now} at step {run.step}; lower lr, {lr:g} is too large here")
            descend(optimiser, value)
            _average(run.averaged, module, min(average, (1 + run.step) / (10 + run.step)))
            run.step += 1
            if run.step % every == 0 or run.step == steps:
                run.evaluate(held_out_loss, patience)
                run.seconds = perf_counter() - started
                run.save()
                tell(run.step, f"held-out loss {run.best:.4f}")
    module.load_state_dict(run.weights)
    module.eval().requires_grad_(False)
    return Course(run.step, run.seconds, run.stopped or "all steps done", tuple(run.history))


class _Run:
    """The state of a fit between two steps, and the file that holds it."""

    def __init__(self, module: Any, optimiser: Any, checkpoint: Checkpoint | None) -> None:
        self.module, self.averaged, self.optimiser = module, deepcopy(module).eval(), optimiser
        self.step, self.seconds, self.best, self.stopped = 0, 0.0, inf, ""
        self.history: list[tuple[int, float]] = []
        self.weights = _copy(self.averaged)
        self.checkpoint = checkpoint
        if checkpoint is not None:
            start = {"initial weights": _fingerprint(self.weights)}
            self.checkpoint = replace(checkpoint, identity={**checkpoint.identity, **start})

    def evaluate(self, held_out_loss: Callable[[Any], float], patience: int) -> None:
        """Evaluate the averaged weights, keep them if they are the best so far, and decide whether to stop."""
        import torch

        _copy_buffers(self.averaged, self.module)
        with torch.no_grad():
            loss = held_out_loss(self.averaged)
        self.history.append((self.step, loss))
        if loss < self.best:
            self.best, self.weights = loss, _copy(self.averaged)
        best_at = min(self.history, key=lambda pair: pair[1])[0]
        if sum(step > best_at for step, _ in self.history) >= patience:
            self.stopped = f"no better held-out loss after step {best_at}"

    def save(self) -> None:
        """Write everything the next step depends on."""
        if self.checkpoint is None:
            return
        parts = {"now": self.module.state_dict(), "mean": self.averaged.state_dict(), "best": self.weights}
        parts["adam"] = _optimiser_tensors(self.optimiser)
        tensors = {f"{part}/{name}": x for part, held in parts.items() for name, x in held.items()}
        facts = {"step": self.step, "seconds": self.seconds, "best": self.best, "stopped": self.stopped}
        self.checkpoint.write(tensors, facts | {"history": self.history})

    def resume(self) -> None:
        """Go on from the file, if there is one."""
        read = None if self.checkpoint is None else self.checkpoint.read()
        if read is None:
            return
        tensors, facts = read
        self.module.load_state_dict(under(tensors, "now"))
        self.averaged.load_state_dict(under(tensors, "mean"))
        self.weights = under(tensors, "best")
        _fill_optimiser(self.optimiser, under(tensors, "adam"))
        self.step, self.seconds, self.best = facts["step"], facts["seconds"], facts["best"]
        self.stopped, self.history = facts["stopped"], [(int(s), float(v)) for s, v in facts["history"]]


def _copy(module: Any) -> dict[str, Any]:
    return {key: value.detach().clone() for key, value in module.state_dict().items()}


def _average(mean: Any, module: Any, decay: float) -> None:
    import torch

    with torch.no_grad():
        for old, new in zip(mean.parameters(), module.parameters(), strict=True):
            old.lerp_(new, 1 - decay)


def _copy_buffers(mean: Any, module: Any) -> None:
    import torch

    with torch.no_grad():
        for old, new in zip(mean.buffers(), module.buffers(), strict=True):
            old.copy_(new)


def _optimiser_tensors(optimiser: Any) -> Tensors:
    """Return an optimiser's state by name; what is a number becomes a tensor."""
    import torch

    state = optimiser.state_dict()["state"]
    return {f"{i}/{key}": torch.as_tensor(value) for i, values in state.items() for key, value in values.items()}


def _fill_optimiser(optimiser: Any, tensors: Mapping[str, Any]) -> None:
    """Give an optimiser the state that `_optimiser_tensors` returned."""
    state: dict[int, Tensors] = {}
    for name, value in tensors.items():
        index, _, key = name.partition("/")
        state.setdefault(int(index), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _fingerprint(weights: Mapping[str, Any]) -> str:
    """Return a short text that differs where shapes or numbers do."""
    digest = sha256()
    for tensor in weights.values():
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]
