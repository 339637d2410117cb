"""The progress of sampling: samples kept, and of how many proposals."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from .._progress import bar

__all__ = ["Report", "reporting"]


class Report(Protocol):
    """Tell how many samples have been kept of how many proposals."""

    def __call__(self, kept: int, proposed: int) -> None: ...


@contextmanager
def reporting(total: int, wanted: bool | None) -> Iterator[Report]:
    """Show a bar with rate, kept and time left while the block runs.

    Args:
        total: Samples wanted.
        wanted: True or False; None shows the bar if standard error is a terminal and `rich` is installed.
    """
    with bar("sampling", total, wanted) as tell:
        yield lambda kept, proposed: tell(kept, f"{kept / proposed:.3f} kept" if proposed else "")
