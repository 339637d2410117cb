"""Training loops with Adam: a fixed number of steps, or until the held-out loss stops improving."""

from collections.abc import Callable
from math import cos, inf, isfinite, pi
from time import perf_counter
from typing import Any, NamedTuple

from .._checks import check_count
from .._progress import bar
from ..errors import InputError

__all__ = ["FitRun", "descend", "fit", "fit_best"]

_EVALUATIONS = 30  # at most, in a whole run of `fit_best`
_LEAST_STEPS = 20  # between two evaluations, unless the run is so short that there would be fewer than ten
_WARM_UP = 0.03  # share of its steps until the learning rate is reached
_DECAY = 0.998  # of the moving average of the weights
_PATIENCE = 10  # evaluations without a better loss before it stops

Tensor = Any


def descend(optimiser: Any, loss: Tensor) -> None:
    """Take one step down the gradient of a loss."""
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()


def fit(
    loss: Callable[[int], Tensor], optimiser: Any, steps: int, *, schedule: Any = None, progress: bool | None = None
) -> Tensor:
    """Minimise a loss for a fixed number of steps; return its values, shape `(steps,)`.

    Args:
        loss: From the number of a step to the loss of its batch.
        optimiser, schedule: Of the weights that are fitted, and a learning-rate scheduler of torch for it.
        steps, progress: Updates, and whether to show a bar; None shows one on a terminal.
    """
    import torch

    values = []
    with torch.enable_grad(), bar("fitting", check_count(steps, "steps"), progress) as update:
        for step in range(steps):
            value = loss(step)
            descend(optimiser, value)
            if schedule is not None:
                schedule.step()
            values.append(value.detach())
            update(step + 1, f"loss {float(values[-1]):.3g}" if step % 10 == 9 else "")
    return torch.stack(values)


class FitRun(NamedTuple):
    """How a fit went: updates, wall time, why it ended, and pairs of a step and the held-out loss after it."""

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
    progress: bool | None = None,
) -> FitRun:
    """Fit a module in place, and leave it with the averaged weights that had the lowest held-out loss.

    The learning rate rises linearly, then falls to 0 along a cosine. After ten evaluations without a better loss, of 30
    in a whole run and ten in a short one, the fit stops; Ctrl-C ends it with the best weights so far.
    The module is in evaluation mode afterwards, and its parameters need no gradient.

    Args:
        module: A torch module.
        loss: Of the module, at a step.
        held_out_loss: Of a module in evaluation mode.
        steps: Updates at most.
        lr: Largest learning rate of Adam.
        progress: Show a bar; None shows one on a terminal, and a line every 10 seconds where there is none.

    Example:
        >>> import torch
        >>> line = torch.nn.Linear(1, 1)
        >>> x = torch.linspace(-1.0, 1.0, 9)[:, None]
        >>> error = lambda line: (line(x) - 3 * x).square().mean()
        >>> run = fit_best(line, lambda line, step: error(line), lambda line: float(error(line)), steps=500, lr=0.1)
        >>> bool(error(line) < 0.01), run.history[0][0]
        (True, 0)
    """
    import torch
    from torch.optim.swa_utils import AveragedModel

    def move_average(averages: Any, weights: Any, count: Any) -> None:
        decay = min(_DECAY, (1 + int(count)) / (10 + int(count)))  # the first steps do not stay in it for long
        torch._foreach_lerp_(averages, weights, 1 - decay)

    optimiser = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=lr, betas=(0.9, 0.99))
    warm = 1 + _WARM_UP * steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / warm) * (1 + cos(pi * step / steps)) / 2
    )
    averaged = AveragedModel(module, multi_avg_fn=move_average)
    averaged.eval()
    every = max(1, steps // min(_EVALUATIONS, max(10, steps // _LEAST_STEPS)))
    early = {every >> k for k in range(1, 5)}  # on few samples a network has overfitted long before `every`
    begun, stopped, step = perf_counter(), "", 0
    history: list[tuple[int, float]] = []
    best, weights = inf, _copy(averaged.module)
    with bar("fitting", steps, progress) as update, torch.enable_grad():
        try:
            while not stopped:
                if step % every == 0 or step in early or step == steps:
                    with torch.no_grad():
                        value = held_out_loss(averaged.module)
                    history.append((step, value))
                    if value < best:
                        best, weights = value, _copy(averaged.module)
                    stopped = _reason_to_stop(history) or ("all steps done" if step == steps else "")
                    if stopped:
                        update(step, f"held-out loss {best:.4f}, {stopped}")
                        break
                module.train()
                now = loss(module, step)
                if not isfinite(float(now.detach())):
                    raise InputError(
                        f"the loss is {float(now.detach())} at step {step}; lower lr, {lr:g} is too large here"
                    )
                descend(optimiser, now)
                schedule.step()
                averaged.update_parameters(module)
                step += 1
                update(step, f"held-out loss {best:.4f}")
        except KeyboardInterrupt:
            stopped = f"interrupted at step {step}"
            with torch.no_grad():
                history.append((step, held_out_loss(averaged.module)))
            weights = _copy(averaged.module) if history[-1][1] < best else weights
    module.load_state_dict(weights)
    module.eval().requires_grad_(False)
    return FitRun(step, perf_counter() - begun, stopped, tuple(history))


def _reason_to_stop(history: list[tuple[int, float]]) -> str:
    best_at = min(history, key=lambda pair: pair[1])[0]
    if sum(step > best_at for step, _ in history) < _PATIENCE:
        return ""
    return f"no better held-out loss after step {best_at}"


def _copy(module: Any) -> dict[str, Any]:
    return {key: value.detach().clone() for key, value in module.state_dict().items()}
