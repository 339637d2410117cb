"""Which of many processes this is: only the first one writes and prints."""

import os

__all__ = ["rank", "world_size"]

_RANKS = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_SIZES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def rank() -> int:
    """Return the number of this process, from 0 on, as torchrun and accelerate count them; 0 if it is alone."""
    return _number(_RANKS) if world_size() > 1 else 0


def world_size() -> int:
    """Return how many processes there are."""
    return max(_number(_SIZES), 1)


def _number(names: tuple[str, ...]) -> int:
    """Return the first of these variables that is set to a number; 0 if none is."""
    return next((int(text) for name in names if (text := os.environ.get(name, "")).isdecimal()), 0)
