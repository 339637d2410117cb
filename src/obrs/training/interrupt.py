"""Ctrl-C during a run: the step is finished and saved first, if the run has a folder."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from ..errors import Interrupted
from .checkpoints import last

__all__ = ["interruptible"]

_TOGETHER = 2.0  # seconds within which two signals are one Ctrl-C, among many processes


@contextmanager
def interruptible(step: Callable[[], int], folder: Path | None, *, alone: bool = True) -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C into an `Interrupted` that says how far the run came, and which checkpoint is kept.

    The block gets a function that tells whether Ctrl-C was pressed. The run then finishes its step, saves, and raises
    `KeyboardInterrupt`. A second Ctrl-C stops the run at once. So does the first one without a folder, or outside the
    main thread.

    Args:
        step: Returns the number of the last step that was done.
        folder: Of the run, or None.
        alone: Whether this is the only process. Of many each gets a Ctrl-C twice, from the terminal and from the one
            that started them; so there a second one counts only if it comes later.

    Example:
        >>> try:
        ...     with interruptible(lambda: 7, None):
        ...         raise KeyboardInterrupt
        ... except Interrupted as error:
        ...     print(error)
        interrupted after step 7; no checkpoint was kept
    """
    pressed: list[float] = []

    def press(number: int, _: Any) -> None:
        if pressed and (alone or monotonic() > pressed[0] + _TOGETHER):
            raise KeyboardInterrupt
        pressed.append(monotonic())

    before = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    gently = folder is not None and in_main and before is signal.default_int_handler
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
