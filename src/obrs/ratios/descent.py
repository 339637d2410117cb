"""The fit of a network that tells the two sets of a task apart."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..fitting.loop import fit_best
from ..fitting.tensors import Checkpoint
from .pairs import Task, Tensor, check_numbers

__all__ = ["FILE", "Outcome", "checkpoint_of", "descend", "logistic_loss"]

FILE = "a file of a fitted ratio"


@dataclass(frozen=True)
class Outcome:
    """How a fit went.

    Args:
        steps: Updates made.
        seconds: Wall time, that of earlier runs of a resumed one included.
        stopped: Why it ended.
        history: Pairs of a step and the held-out loss after it.
        fakes: Samples of the model that were used.
    """

    steps: int
    seconds: float
    stopped: str
    history: tuple[tuple[int, float], ...]
    fakes: int


def checkpoint_of(task: Task) -> Checkpoint | None:
    """Return the file that a task goes on from, None if it has none."""
    return None if task.checkpoint is None else Checkpoint(task.checkpoint, task.identity, FILE)


def logistic_loss(score_real: Tensor, score_fake: Tensor) -> Tensor:
    """Return the log-loss of a classifier to which both kinds are equally likely, whatever their numbers.

    Its minimum over all functions is at log p/q: the prior needs no correction afterwards.

    Example:
        >>> import torch
        >>> round(float(logistic_loss(torch.zeros(3), torch.zeros(5))), 4)
        0.6931
    """
    from torch.nn.functional import softplus

    return (softplus(-score_real).mean(0) + softplus(score_fake).mean(0)) / 2


def descend(
    module: Any,
    loss: Callable[[Any, Tensor, Tensor], Tensor],
    judge: Callable[[Any], float],
    task: Task,
    *,
    lr: float,
) -> Outcome:
    """Fit `module` in place on the samples of a task; see `fit_best`.

    Args:
        module: A torch module.
        loss: Of the module, real samples and fakes.
        judge: Held-out loss of a module in evaluation mode.
        task: Samples, number of steps, seed, checkpoint.
        lr: Largest learning rate.
    """
    with task.seeded() as reseed:

        def at_step(module: Any, step: int) -> Tensor:
            reseed(step)
            real, fake = task.batch(step)
            value = loss(module, real, fake)
            if not bool(value.isfinite()):
                check_numbers(fake, "propose")
            return value

        course = fit_best(
            module, at_step, judge, steps=task.steps, lr=lr, checkpoint=checkpoint_of(task), progress=task.progress
        )
    return Outcome(*course, fakes=course.steps * task.batch_size)
