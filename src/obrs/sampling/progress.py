"""A progress bar for long sampling: on a terminal, and only there."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

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
    if wanted is None:
        wanted = sys.stderr.isatty()
    bar = _bar() if wanted else None
    if bar is None:
        yield lambda kept, proposed: None
        return
    with bar:
        task = bar.add_task("sampling", total=total, rate="")

        def report(kept: int, proposed: int) -> None:
            share = f"{kept / proposed:.3f} kept" if proposed else ""
            bar.update(task, completed=min(kept, total), rate=share)

        yield report


def _bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
