"""All that changes during a run, and how a checkpoint holds it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from . import checkpoints
from .window import BudgetWindow

__all__ = ["State", "all_finite", "average"]


@dataclass(frozen=True)
class State:
    """Networks, moving average, optimisers and window of a run.

    Random numbers and the order of the data are functions of the step: they have no state.

    Args:
        generator, critic: The networks themselves, not what wraps them for many processes.
        ema: Moving average of the generator; None without.
        generator_optimiser, critic_optimiser: Theirs.
        window: Of log-ratios, for the constant.
        accelerator: Of Hugging Face accelerate.
    """

    generator: nn.Module
    critic: nn.Module
    ema: nn.Module | None
    generator_optimiser: torch.optim.Optimizer
    critic_optimiser: torch.optim.Optimizer
    window: BudgetWindow
    accelerator: Any

    def save(self, folder: Path, step: int, facts: dict[str, Any], keep: int) -> None:
        """Write a checkpoint; every process must call this, the first one writes."""
        if self.accelerator.is_main_process:
            parts = {
                **{name: module.state_dict() for name, module in self._modules().items()},
                **{name: checkpoints.optimiser_tensors(optimiser) for name, optimiser in self._optimisers().items()},
                "window": self.window.state_dict(),
            }
            tensors = {f"{part}/{name}": x for part, held in parts.items() for name, x in held.items()}
            facts = {**facts, "world": self.accelerator.num_processes}
            checkpoints.save(folder / "checkpoints", step, tensors, facts, keep=keep)
        self.accelerator.wait_for_everyone()

    def resume(self, path: Path) -> int:
        """Take over all of a checkpoint; return the steps it has done."""
        tensors, facts = checkpoints.load(path)
        world = self.accelerator.num_processes
        if facts["world"] != world:
            raise InputError(
                f"{path} was made by {facts['world']} processes, here are {world}; resume with as many, or fine-tune "
                "it in a new folder with start_from"
            )
        self.take_networks(tensors, path)
        for name, optimiser in self._optimisers().items():
            checkpoints.fill_optimiser(optimiser, checkpoints.under(tensors, name))
        device = self.accelerator.device
        self.window.load_state_dict({k: x.to(device) for k, x in checkpoints.under(tensors, "window").items()})
        return int(facts["step"])

    def take_networks(self, tensors: dict[str, Tensor], path: Path) -> None:
        """Take over the networks of a checkpoint; where it has no moving average, the generator starts one."""
        for name, module in self._modules().items():
            stored = checkpoints.under(tensors, name) or checkpoints.under(tensors, "generator")
            checkpoints.fill_module(module, stored, "generator" if name == "ema" else name, path)

    def _modules(self) -> dict[str, nn.Module]:
        modules = {"generator": self.generator, "critic": self.critic}
        return modules if self.ema is None else {**modules, "ema": self.ema}

    def _optimisers(self) -> dict[str, torch.optim.Optimizer]:
        return {"generator_optimiser": self.generator_optimiser, "critic_optimiser": self.critic_optimiser}


def all_finite(*modules: nn.Module) -> bool:
    """Tell whether every weight is a finite number.

    Example:
        >>> all_finite(nn.Linear(2, 1))
        True
    """
    return all(bool(torch.isfinite(p).all()) for module in modules for p in module.parameters())


def average(ema: nn.Module, module: nn.Module, decay: float) -> None:
    """Move the averaged weights towards a module's; a decay of 0 copies. Buffers are copied.

    Example:
        >>> ema, module = nn.Linear(1, 1), nn.Linear(1, 1)
        >>> average(ema, module, 0.0)
        >>> torch.equal(ema.weight, module.weight)
        True
    """
    with torch.no_grad():
        for mean, weight in zip(ema.parameters(), module.parameters(), strict=True):
            mean.lerp_(weight, 1 - decay)
        for kept, buffer in zip(ema.buffers(), module.buffers(), strict=True):
            kept.copy_(buffer)
