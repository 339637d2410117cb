"""One descent for every network that is fitted here: averaged weights, early stopping, and a file to go on from."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from math import cos, inf, isfinite, pi
from pathlib import Path
from time import perf_counter
from typing import Any

from .._files import replacing
from .._inputs import is_number
from .._progress import bar
from ..errors import InputError, MissingLibraryError
from .pairs import Task, Tensor, check_folder, check_numbers, fingerprint

__all__ = ["Outcome", "check_rate", "descend", "logistic_loss", "read_checkpoint", "read_tensors", "write_tensors"]

_EVALUATIONS = 30  # in a whole run
_MISSING = MissingLibraryError("files of fitted ratios need safetensors: pip install 'obrs[ratios]'")
_WARM_UP = 0.03  # share of the steps until the learning rate is reached


@dataclass(frozen=True)
class Outcome:
    """How a descent went.

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


def check_rate(lr: Any) -> None:
    """Raise unless this is a learning rate."""
    if not is_number(lr) or not 0 < float(lr) < inf:
        raise InputError(f"lr must be finite and above 0, got {lr!r}")


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
    average: float = 0.998,
    patience: int = 10,
) -> Outcome:
    """Fit `module` in place with Adam; leave it with the averaged weights that did best on what is held out.

    The learning rate falls to 0 along a cosine. What a step does depends on the seed and its number alone, so that a
    run that was killed goes on from its file as if nothing had happened.

    Args:
        module: A torch module.
        loss: Of the module, real samples and fakes.
        judge: Held-out loss of a module in eval mode.
        task: Samples, number of steps, seed, checkpoint.
        lr: Largest learning rate.
        average: How much of the running average of the weights stays at each step.
        patience: Evaluations without a better loss before it stops; there are 30 in a whole run.
    """
    import torch

    parameters = [p for p in module.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=lr, betas=(0.9, 0.99))
    averaged = deepcopy(module).eval()
    mean = [p for p in averaged.parameters() if p.requires_grad]
    run = _Run(module, averaged, optimiser)
    run.resume(task)
    every, warm = max(1, task.steps // _EVALUATIONS), 1 + _WARM_UP * task.steps
    started = perf_counter() - run.seconds
    if run.step == 0:
        run.judged(judge, patience)
    with bar("fitting", task.steps, task.progress) as tell, task.seeded() as reseed, torch.enable_grad():
        while run.step < task.steps and not run.stopped:
            reseed(run.step)
            for group in optimiser.param_groups:
                group["lr"] = lr * min(1.0, (run.step + 1) / warm) * (1 + cos(pi * run.step / task.steps)) / 2
            real, fake = task.batch(run.step)
            module.train()
            value = loss(module, real, fake)
            if not isfinite(now := float(value.detach())):
                check_numbers(fake, "propose")
                raise InputError(f"the loss is {now} at step {run.step}; lower lr, {lr:g} is too large here")
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            optimiser.step()
            keep = min(average, (1 + run.step) / (10 + run.step))
            with torch.no_grad():
                for old, new in zip(mean, parameters, strict=True):
                    old.lerp_(new, 1 - keep)
            run.step += 1
            if run.step % every == 0 or run.step == task.steps:
                run.judged(judge, patience)
                run.seconds = perf_counter() - started
                run.save(task)
                tell(run.step, f"held-out loss {run.best:.4f}")
    module.load_state_dict(run.weights)
    module.eval().requires_grad_(False)
    return Outcome(
        run.step, run.seconds, run.stopped or "all steps done", tuple(run.history), run.step * task.batch_size
    )


class _Run:
    """The state of a descent between two steps."""

    def __init__(self, module: Any, averaged: Any, optimiser: Any) -> None:
        self.module, self.averaged, self.optimiser = module, averaged, optimiser
        self.step, self.seconds, self.best, self.stopped = 0, 0.0, inf, ""
        self.history: list[tuple[int, float]] = []
        self.weights = _copy(averaged)
        self.first = fingerprint(*self.weights.values())

    def judged(self, judge: Callable[[Any], float], patience: int) -> None:
        """Evaluate the averaged weights, keep them if they are the best so far, and decide whether to stop."""
        import torch

        for buffer, new in zip(self.averaged.buffers(), self.module.buffers(), strict=True):
            buffer.copy_(new)  # running statistics, singular vectors
        with torch.no_grad():
            loss = judge(self.averaged)
        self.history.append((self.step, loss))
        if loss < self.best:
            self.best, self.weights = loss, _copy(self.averaged)
        best_at = min(self.history, key=lambda pair: pair[1])[0]
        if sum(step > best_at for step, _ in self.history) >= patience:
            self.stopped = f"no better held-out loss after step {best_at}"

    def save(self, task: Task) -> None:
        """Write everything the next step depends on."""
        if task.checkpoint is None:
            return
        tensors = {f"now.{k}": v for k, v in self.module.state_dict().items()}
        tensors |= {f"mean.{k}": v for k, v in self.averaged.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.weights.items()}
        for number, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{k}": v for k, v in state.items()}
        facts = {"step": self.step, "seconds": self.seconds, "best": self.best, "stopped": self.stopped}
        facts |= {"history": self.history, "task": task.identity | {"initial weights": self.first}}
        write_tensors(task.checkpoint, tensors, facts)

    def resume(self, task: Task) -> None:
        """Go on from a file, if there is one."""
        read = read_checkpoint(task, {"initial weights": self.first})
        if read is None:
            return
        tensors, facts = read
        parts = {part: _part(tensors, part) for part in ("now", "mean", "best")}
        self.module.load_state_dict(parts["now"])
        self.averaged.load_state_dict(parts["mean"])
        self.weights = parts["best"]
        adam = self.optimiser.state_dict()
        count = len(adam["param_groups"][0]["params"])
        adam["state"] = {number: _part(tensors, f"adam.{number}") for number in range(count)}
        self.optimiser.load_state_dict(adam)
        self.step, self.seconds, self.best = facts["step"], facts["seconds"], facts["best"]
        self.stopped, self.history = facts["stopped"], [(int(s), float(v)) for s, v in facts["history"]]


def read_checkpoint(task: Task, more: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Read the checkpoint of a task, None if there is none; raise if it is of another one, or of another start."""
    if task.checkpoint is None or not task.checkpoint.exists():
        return None
    tensors, facts = read_tensors(task.checkpoint)
    known = facts.get("task", {})
    differ = [k for k, v in (task.identity | more).items() if k not in known or known[k] != v]
    if differ:
        raise InputError(
            f"checkpoint {task.checkpoint} is of another fit ({', '.join(differ)}); delete it or give another path"
        )
    return tensors, facts


def write_tensors(path: Path, tensors: dict[str, Any], facts: dict[str, Any]) -> None:
    """Write tensors and plain data into one safetensors file: the whole of it, or nothing."""
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise _MISSING from error
    check_folder(path)
    data = save({k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}, {"obrs": json.dumps(facts)})
    with replacing(path) as file:
        file.write(data)


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what `write_tensors` has written."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise _MISSING from error
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["obrs"])
            return {key: file.get_tensor(key) for key in file.keys()}, facts  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path} is not a file of a fitted ratio: {error}") from error


def _copy(module: Any) -> dict[str, Any]:
    return {key: value.detach().clone() for key, value in module.state_dict().items()}


def _part(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(f"{prefix}."): value for key, value in tensors.items() if key.startswith(f"{prefix}.")}
