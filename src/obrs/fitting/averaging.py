"""Moving averages of the weights of a network."""

from typing import Any

__all__ = ["average", "average_weights", "copy_buffers"]

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
    import torch

    average_weights(mean, module, decay)
    with torch.no_grad():
        for (name, old), new in zip(mean.named_buffers(), module.buffers(), strict=True):
            if name.rpartition(".")[2] in _STATISTICS:
                old.lerp_(new, 1 - decay)
            else:
                old.copy_(new)


def average_weights(mean: Any, module: Any, decay: float) -> None:
    """Move the averaged weights alone: buffers may be much larger, and few of them change."""
    import torch

    with torch.no_grad():
        for old, new in zip(mean.parameters(), module.parameters(), strict=True):
            old.lerp_(new, 1 - decay)


def copy_buffers(mean: Any, module: Any) -> None:
    """Copy what is not averaged: running statistics, singular vectors."""
    import torch

    with torch.no_grad():
        for old, new in zip(mean.buffers(), module.buffers(), strict=True):
            old.copy_(new)
