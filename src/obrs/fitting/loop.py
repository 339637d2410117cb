"""Descents with Adam: for so many steps, or until what is held out gets no better."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from math import cos, inf, isfinite, pi
from time import perf_counter
from typing import Any, NamedTuple

from .._checks import check_count
from .._progress import bar
from ..errors import InputError
from .averaging import average_weights, copy_buffers
from .tensors import Checkpoint, fill_optimiser, fingerprint, optimiser_tensors, under

__all__ = ["Course", "descend", "fit", "fit_best"]

_EVALUATIONS = 30  # in a whole run of `fit_best`
_WARM_UP = 0.03  # share of its steps until the learning rate is reached

Tensor = Any


def descend(optimiser: Any, loss: Tensor) -> None:
    """Take one step down the gradient of a loss.

    Example:
        >>> import torch
        >>> x = torch.ones(1, requires_grad=True)
        >>> descend(torch.optim.Adam([x], lr=0.25), (x**2).sum())
        >>> x
        tensor([0.7500], requires_grad=True)
    """
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()


def fit(
    loss: Callable[[int], Tensor], optimiser: Any, steps: int, *, schedule: Any = None, progress: bool | None = None
) -> Tensor:
    """Descend a loss for so many steps; return its values, shape `(steps,)`.

    Args:
        loss: From the number of a step to the loss of its batch.
        optimiser: Of the weights that are fitted.
        steps: How many.
        schedule: A learning-rate scheduler of torch, which takes a step after each of the optimiser's.
        progress: Show a bar; None shows one on a terminal.

    Example:
        >>> import torch
        >>> x = torch.ones(1, requires_grad=True)
        >>> values = fit(lambda step: (x**2).sum(), torch.optim.Adam([x], lr=0.1), 50)
        >>> values.shape, bool(values[-1] < 0.1)
        (torch.Size([50]), True)
    """
    import torch

    values = []
    with torch.enable_grad(), bar("fitting", check_count(steps, "steps"), progress) as tell:
        for step in range(steps):
            value = loss(step)
            descend(optimiser, value)
            if schedule is not None:
                schedule.step()
            values.append(value.detach())
            tell(step + 1, f"loss {float(values[-1]):.3g}" if step % 10 == 9 else "")
    return torch.stack(values)


class Course(NamedTuple):
    """How a fit went.

    Attributes:
        steps: Updates made.
        seconds: Wall time, that of earlier runs of a resumed one included.
        stopped: Why it ended.
        history: Pairs of a step and the held-out loss after it.
    """

    steps: int
    seconds: float
    stopped: str
    history: tuple[tuple[int, float], ...]


def fit_best(
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
        >>> course = fit_best(line, lambda line, step: error(line), lambda line: float(error(line)), steps=500, lr=0.1)
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
            average_weights(run.averaged, module, min(average, (1 + run.step) / (10 + run.step)))
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
            start = {"initial weights": fingerprint(*self.weights.values())}
            self.checkpoint = replace(checkpoint, identity={**checkpoint.identity, **start})

    def evaluate(self, held_out_loss: Callable[[Any], float], patience: int) -> None:
        """Evaluate the averaged weights, keep them if they are the best so far, and decide whether to stop."""
        import torch

        copy_buffers(self.averaged, self.module)
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
        parts["adam"] = optimiser_tensors(self.optimiser)
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
        fill_optimiser(self.optimiser, under(tensors, "adam"))
        self.step, self.seconds, self.best = facts["step"], facts["seconds"], facts["best"]
        self.stopped, self.history = facts["stopped"], [(int(s), float(v)) for s, v in facts["history"]]


def _copy(module: Any) -> dict[str, Any]:
    return {key: value.detach().clone() for key, value in module.state_dict().items()}
