"""Which of many processes this is: only the first one writes and prints."""

import os

__all__ = ["rank"]


def rank() -> int:
    """Return the number of this process, from 0 on, as torchrun and accelerate count them; 0 without them."""
    return int(os.environ.get("RANK", "0"))
