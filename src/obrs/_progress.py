"""A progress bar for long work: on a terminal, and only there."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

__all__ = ["Report", "Tell", "bar", "reporting"]


class Tell(Protocol):
    """Say how much is done, with a few words beside the bar."""

    def __call__(self, done: float, note: str = "") -> None: ...


class Report(Protocol):
    """Say how many samples have been kept of how many proposals."""

    def __call__(self, kept: int, proposed: int) -> None: ...


@contextmanager
def bar(title: str, total: float, wanted: bool | None = None) -> Iterator[Tell]:
    """Show a bar with the time left and a note, which a narrow terminal cuts, while the block runs.

    Args:
        title: One word for what is being done.
        total: What `done` ends at.
        wanted: True or False; None shows the bar if standard error is a terminal and `rich` is installed.

    Example:
        >>> with bar("fitting", 10, wanted=False) as tell:
        ...     tell(10, "loss 0.3")
    """
    if wanted is None:
        wanted = sys.stderr.isatty()
    shown = _rich_bar() if wanted else None
    if shown is None:
        yield lambda done, note="": None
        return
    with shown:
        task = shown.add_task(title, total=total, note="")
        yield lambda done, note="": shown.update(task, completed=min(done, total), note=note)


@contextmanager
def reporting(total: int, wanted: bool | None) -> Iterator[Report]:
    """Show a bar of the samples kept, and their share of the proposals, while the block runs.

    Args:
        total: Samples wanted.
        wanted: As for `bar`.
    """
    with bar("sampling", total, wanted) as tell:
        yield lambda kept, proposed: tell(kept, f"{kept / proposed:.3f} kept" if proposed else "")


def _rich_bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.table import Column
        from rich.text import Text
    except ImportError:
        return None

    class Note(ProgressColumn):  # type: ignore[misc]
        def render(self, task: Any) -> Any:
            return Text(task.fields["note"], no_wrap=True, overflow="ellipsis")

    # Where the columns do not fit, those that may wrap get narrower: the note, which is cut, and then the bar
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        Note(),
        console=Console(stderr=True),
        transient=True,
    )
