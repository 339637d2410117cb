"""Progress of long work: a bar on a terminal and in a notebook, and elsewhere a line now and then."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from time import monotonic
from typing import Any, Protocol
from uuid import uuid4

_PAUSE = 0.3  # seconds between two states of a bar; what takes less has none
_PIPED = 10.0  # and between two lines that go to a file or a pipe


class Update(Protocol):
    """Say how much is done, with a few words beside the bar."""

    def __call__(self, done: float, note: str = "") -> None: ...


@contextmanager
def bar(title: str, total: float, wanted: bool | None = None) -> Iterator[Update]:
    """Show a bar with the time left and a note, which a narrow terminal cuts, while the block runs.

    A notebook shows it below the cell, where its last line stays.

    Args:
        title: One word for what is being done.
        total: What `done` ends at.
        wanted: True or False; None shows the bar in a notebook and on a terminal, and a plain line every 10 seconds if
            standard error is neither.

    Example:
        >>> with bar("fitting", 10, wanted=False) as update:
        ...     update(10, "loss 0.3")
    """
    notebook = _notebook()
    if wanted is False:
        yield lambda done, note="": None
    elif wanted is None and notebook is None and not sys.stderr.isatty():
        yield _lines(title, total)
    else:
        line = _Line(notebook, title, total)
        try:
            yield line
        finally:
            line.end()


def _lines(title: str, total: float) -> Update:
    """Return a function that prints a line if the last one is old enough."""
    last = monotonic()

    def update(done: float, note: str = "") -> None:
        nonlocal last
        if monotonic() - last >= _PIPED:
            last = monotonic()
            print(f"{title} {done:.0f}/{total:.0f}  {note}".rstrip(), file=sys.stderr, flush=True)

    return update


def _notebook() -> Any:
    """Return the shell of a notebook that runs this code, or None. Its standard error is no terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if getattr(shell, "kernel", None) is None else shell


class _Line:
    """A bar that moves in one line: of the display of a notebook, or of a terminal if there is none."""

    def __init__(self, shell: Any, title: str, total: float) -> None:
        self.shell, self.title, self.total = shell, title, total
        self.begun = self.last = monotonic()
        self.name, self.text, self.shown = uuid4().hex, "", False

    def __call__(self, done: float, note: str = "") -> None:
        part = min(done / self.total, 1.0) if self.total else 1.0
        spent, whole = monotonic() - self.begun, round(16 * part)
        left = f"{spent * (1 / part - 1):.0f} s left" if 0 < part < 1 else f"{spent:.0f} s"
        count = f"{min(done, self.total):.0f}/{self.total:.0f}"
        self.text = f"{self.title} {'━' * whole:─<16} {count}  {left}  {note}".rstrip()
        if monotonic() - self.last >= _PAUSE:
            self.show()

    def show(self) -> None:
        if self.shell is None:
            width = get_terminal_size().columns  # of standard output, which may be a pipe
            with suppress(OSError):
                width = os.get_terminal_size(sys.stderr.fileno()).columns or width
            print(f"\r{self.text[: width - 1]:<{width - 1}}\r", end="", file=sys.stderr, flush=True)
        else:
            display = {"display_id": self.name}
            self.shell.display_pub.publish({"text/plain": self.text}, transient=display, update=self.shown)
        self.last, self.shown = monotonic(), True

    def end(self) -> None:
        if self.shown:
            self.text = "" if self.shell is None else self.text
            self.show()


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
