"""What a run says of itself: losses that are watched for NaN, lines of JSON, TensorBoard."""

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import Interrupted, MissingLibraryError, ObrsError
from .checkpoints import last, write_text

__all__ = ["Journal", "Losses", "NotFiniteError", "interruptible", "read_log"]

Row = dict[str, Any]


class NotFiniteError(ObrsError, ArithmeticError):
    """A loss or a weight is no longer a finite number.

    Attributes:
        checkpoint: The last good checkpoint; None if none was kept.
    """

    def __init__(self, message: str, checkpoint: Path | None = None) -> None:
        kept = f"the last good checkpoint is {checkpoint}" if checkpoint else "no checkpoint was kept"
        how = "go on from it in another folder, with start_from and" if checkpoint else "try again with"
        super().__init__(f"{message}; {kept}; {how} a lower learning rate or another loss")
        self.checkpoint = checkpoint


class Losses:
    """The losses since the last look; only looking waits for the device.

    Args:
        average: Averages a tensor over all processes.
        step: Steps done before the first one.

    Example:
        >>> losses = Losses()
        >>> losses.add(1, critic=torch.tensor(0.5))
        >>> losses.add(2, critic=torch.tensor(1.5))
        >>> losses.look()
        ({'critic': 1.0}, None)
    """

    def __init__(self, average: Callable[[Tensor], Tensor] | None = None, *, step: int = 0) -> None:
        self.step = step
        self._average = average or (lambda x: x)
        self._steps: list[int] = []
        self._values: dict[str, list[Tensor]] = {}

    def add(self, step: int, **losses: Tensor) -> None:
        """Remember the losses of a step."""
        self.step = step
        self._steps.append(step)
        for name, loss in losses.items():
            self._values.setdefault(name, []).append(loss.detach())

    def look(self) -> tuple[dict[str, float], str | None]:
        """Return the mean of each loss since the last look, and what is wrong: the first one that is not finite."""
        if not self._steps:
            return {}, None
        table = (
            self._average(torch.stack([torch.stack(column) for column in self._values.values()]).float()).cpu().double()
        )
        means = dict(zip(self._values, table.mean(1).tolist(), strict=True))
        wrong = None
        for at, step in enumerate(self._steps):
            for name, value in zip(self._values, table[:, at].tolist(), strict=True):
                if wrong is None and not isfinite(value):
                    wrong = f"the {name} loss is {value} at step {step}"
        self._steps, self._values = [], {}
        return means, wrong


@contextmanager
def interruptible(losses: Losses, folder: Path | None, *, alone: bool = True) -> Iterator[Callable[[], bool]]:
    """Make of Ctrl-C an `Interrupted` that says how far the run came, and which checkpoint is kept.

    What is given says whether Ctrl-C was pressed: the run then finishes its step, saves, and raises
    `KeyboardInterrupt`. A second Ctrl-C does not wait, nor does the first where there is nothing to save or nobody to
    ask: without a folder, outside the main thread, and among many processes, which would not stop at one step.

    Args:
        losses: Of the run; they know its latest step.
        folder: Of the run, or None.
        alone: Whether this is the only process.

    Example:
        >>> try:
        ...     with interruptible(Losses(step=7), None):
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
        said = f"{kept} is kept, go on with --resume (resume=True)" if kept else "no checkpoint was kept"
        raise Interrupted(f"interrupted after step {losses.step}; {said}", None) from error
    finally:
        if gently:
            signal.signal(signal.SIGINT, before)


class Journal:
    """The log of a run: rows in memory, as lines of `log.jsonl` in its folder, and for TensorBoard if wanted.

    Args:
        folder: Of the run; None keeps the log in memory only.
        upto: Go on after this step: what the file says of later ones is dropped.
        tensorboard: Write events for TensorBoard, too.
    """

    def __init__(self, folder: Path | None, *, upto: int = 0, tensorboard: bool = False) -> None:
        self.rows: list[Row] = []
        self._path = None if folder is None else folder / "log.jsonl"
        if self._path is not None:
            self.rows = [row for row in read_log(self._path) if row["step"] <= upto]
            write_text(self._path, "".join(map(_line, self.rows)))
        self._board = _board(folder, upto) if tensorboard and folder is not None else None

    def add(self, row: Mapping[str, Any]) -> None:
        """Write a row."""
        self.rows.append(dict(row))
        if self._path is not None:
            try:
                with self._path.open("a") as file:
                    file.write(_line(row))
            except OSError as error:  # a full disk is said when writing, and then without a name
                raise OSError(error.errno, error.strerror, str(self._path)) from error
        if self._board is not None:
            for name, value in row.items():
                if name != "step" and value is not None:
                    self._board.add_scalar(name, value, row["step"])

    def close(self) -> None:
        """Finish writing."""
        if self._board is not None:
            self._board.close()


def read_log(path: Path) -> list[Row]:
    """Return the rows of a log; a last line that was cut off by a crash is left out.

    Example:
        >>> read_log(Path("nowhere.jsonl"))
        []
    """
    if not path.is_file():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("}\n")]


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"


def _board(folder: Path, upto: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingLibraryError("tensorboard=true needs tensorboard: pip install 'obrs[tensorboard]'") from error
    return SummaryWriter(folder, purge_step=upto + 1)  # what was written of later steps is hidden
