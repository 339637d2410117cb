"""The moving average of a generator's weights."""

from typing import Any

import torch

__all__ = ["average"]

_STATISTICS = ("running_mean", "running_var")  # of a batch norm, as torch names them


def average(mean: Any, module: Any, decay: float) -> None:
    """Move the averaged weights towards a module's; a decay of 0 copies.

    The statistics of batch norms move with the weights that they are of. Other buffers are copied.

    Example:
        >>> import torch
        >>> mean, module = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        >>> average(mean, module, 0.0)
        >>> torch.equal(mean.weight, module.weight)
        True
    """
    with torch.no_grad():
        for old, new in zip(mean.parameters(), module.parameters(), strict=True):
            old.lerp_(new, 1 - decay)
        for (name, old), new in zip(mean.named_buffers(), module.buffers(), strict=True):
            if name.rpartition(".")[2] in _STATISTICS:
                old.lerp_(new, 1 - decay)
            else:
                old.copy_(new)
