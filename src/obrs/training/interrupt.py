"""Ctrl-C during a run: the step is finished and saved first, if the run has a folder."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import Interrupted
from .checkpoints import last

__all__ = ["interruptible"]


@contextmanager
def interruptible(step: Callable[[], int], folder: Path | None, *, alone: bool = True) -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C into an `Interrupted` that says how far the run came, and which checkpoint is kept.

    The block gets a function that tells whether Ctrl-C was pressed. The run then finishes its step, saves, and raises
    `KeyboardInterrupt`. A second Ctrl-C stops the run at once. So does the first one without a folder, outside the main
    thread, and among many processes, which would not all stop after the same step.

    Args:
        step: Returns the number of the last step that was done.
        folder: Of the run, or None.
        alone: Whether this is the only process.

    Example:
        >>> try:
        ...     with interruptible(lambda: 7, None):
        ...         raise KeyboardInterrupt
        ... except Interrupted as error:
        ...     print(error)
        interrupted after step 7; no checkpoint was kept
    """
    pressed: list[int] = []

    def press(number: int, _: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    gently = folder is not None and alone and in_main and before is signal.default_int_handler
    try:
        if gently:
            signal.signal(signal.SIGINT, press)
        yield lambda: bool(pressed)
    except KeyboardInterrupt as error:
        kept = last(folder)
        what = f"{kept} is kept, go on with --resume (resume=True)" if kept else "no checkpoint was kept"
        raise Interrupted(f"interrupted after step {step()}; {what}", None) from error
    finally:
        if gently:
            signal.signal(signal.SIGINT, before)
