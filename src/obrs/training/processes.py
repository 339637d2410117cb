"""The processes of a run, one or many: where each computes, and what they share."""

import atexit
import gc
import os
from dataclasses import dataclass, field
from time import sleep
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, MissingLibraryError

__all__ = ["Processes", "join_processes"]

# What `accelerate launch` sets where it is told to split networks.
_SPLITS = {
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
}


@dataclass(frozen=True)
class Processes:
    """This process among all that train together.

    Args:
        rank: Its number, from 0 on.
        count: How many there are.
        device: Where it computes.

    Example:
        >>> alone = Processes()
        >>> alone.first, alone.gather(torch.ones(3))
        (True, tensor([1., 1., 1.]))
    """

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    @property
    def group(self) -> Any:
        """The process group of torch.distributed that all belong to; None if there is one process."""
        return torch.distributed.group.WORLD if self.count > 1 else None

    def gather(self, x: Tensor) -> Tensor:
        """Return the rows of all processes, in the order of their ranks."""
        if self.count == 1:
            return x
        from accelerate.utils import gather

        return gather(x)

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean over all processes."""
        if self.count == 1:
            return x
        from accelerate.utils import reduce

        return reduce(x, "mean")

    def any(self, here: bool) -> bool:
        """Whether it is so in any process; all must ask."""
        return here if self.count == 1 else bool(self.mean(torch.tensor(float(here), device=self.device)) > 0)

    def of_first(self, text: str) -> str:
        """Return what the first process has."""
        if self.count == 1:
            return text
        from accelerate.utils import broadcast_object_list

        return str(broadcast_object_list([text])[0])

    def wait(self) -> None:
        """Go on when all processes have come here."""
        if self.count > 1:
            from accelerate import PartialState

            PartialState().wait_for_everyone()


def join_processes() -> Processes:
    """Join the processes that `torchrun` or `accelerate launch` has started; without them there is one.

    Only this state of accelerate is used. An `Accelerator` would change the precision for all code in this process,
    patch the forward passes of the networks, and look for installed libraries at every step.
    """
    for variable, name in _SPLITS.items():
        if os.environ.get(variable, "").lower() in ("1", "true"):
            raise InputError(f"networks are copied to every process, not split; set up accelerate without {name}")
    try:
        from accelerate import PartialState
    except ImportError as error:
        raise MissingLibraryError("training needs accelerate: pip install 'obrs[torch]'") from error
    gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    theirs = torch.distributed.is_available() and torch.distributed.is_initialized()
    here = PartialState(cpu=not gpu)  # without a GPU many processes must be told to share
    if here.num_processes > 1 and not theirs:
        atexit.register(_leave)
    return Processes(here.process_index, here.num_processes, here.device)


def _leave() -> None:
    """Leave the processes that were joined, while Python is still whole.

    A thread of gloo may still hold the tensors that were shared last. If it frees them when Python is gone, it aborts a
    process that has done its work. It ends with its group; but groups of DistributedDataParallel outlive it, so that
    their threads are given a moment, too.
    """
    if torch.distributed.is_initialized():
        gc.collect()
        torch.distributed.destroy_process_group()
        sleep(0.2)
