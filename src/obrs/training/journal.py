"""The log of a run: a row every so many steps, in memory, as lines of JSON, and for TensorBoard."""

import json
import time
from collections.abc import Mapping
from math import exp, isfinite, log
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._files import replacing
from ..budget import Cut, solve_log_c
from ..errors import MissingLibraryError

__all__ = ["Journal", "Row", "at_budget", "note", "read_log"]

Row = dict[str, Any]


class Journal:
    """Rows in memory, as lines of `log.jsonl` in the folder of the run, and for TensorBoard if wanted.

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
            with replacing(self._path) as file:
                file.write("".join(map(_line, self.rows)).encode())
        self._board = _board(folder, upto) if tensorboard and folder is not None else None
        self._began = time.perf_counter() - (self.rows[-1]["seconds"] if self.rows else 0.0)

    def seconds(self) -> float:
        """Return how long the run has taken, all its parts together."""
        return round(time.perf_counter() - self._began, 3)

    def add(self, row: Mapping[str, Any]) -> None:
        """Write a row."""
        self.rows.append(dict(row))
        if self._path is not None:
            try:
                with self._path.open("a") as file:
                    file.write(_line(row))
            except OSError as error:  # a full disk is met when writing, and then without a name
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


def at_budget(log_ratio: Tensor, budget: float, cut: Cut | None) -> dict[str, float | None]:
    """Return log c, the rate that it gives on these log-ratios, and M = max r / mean r; None where not finite.

    Args:
        log_ratio: Of the latest fakes.
        budget: For which c is solved where the step has solved none.
        cut: That of the step, or None.

    Example:
        >>> found = at_budget(torch.tensor([4.0, 1.0, 0.5, 0.5]).log(), 2.0, None)
        >>> round(found["rate"], 4), round(found["m"], 4)
        (0.5, 2.6667)
    """
    x = log_ratio.float().cpu()
    log_c = solve_log_c(x, budget, check=False) if cut is None else cut.log_c.float().cpu()
    log_mean = float(torch.logsumexp(x.double(), 0)) - log(len(x))
    values = {
        "log_c": float(log_c),
        "rate": float(torch.exp(Cut(log_c, None).log_a(x)).nan_to_num(0.0).double().mean()),
        "m": exp(min(float(x.max()) - log_mean, 700.0)),
    }
    return {name: value if isfinite(value) else None for name, value in values.items()}


def note(row: Row) -> str:
    """Return what the bar shows of a row.

    Example:
        >>> note({"step": 5, "critic": -0.25, "generator": 0.75, "log_c": 0.0, "rate": 0.5, "m": 3.0})
        'critic -0.25  generator 0.75  rate 0.5  c 1  M 3'
        >>> note({"step": 5, "stage": 2, "critic": -0.25})  # the critic alone
        'stage 2  critic -0.25'
    """
    shown = {name: row.get(name) for name in ("stage", "critic", "generator")}
    if row.get("log_c") is not None:
        shown |= {"rate": row["rate"], "c": exp(min(row["log_c"], 700.0)), "M": row["m"]}
    return "  ".join(f"{name} {value:.3g}" for name, value in shown.items() if value is not None)


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"


def _board(folder: Path, upto: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingLibraryError("tensorboard=true needs tensorboard: pip install tensorboard") from error
    return SummaryWriter(folder, purge_step=upto + 1)  # what was written of later steps is hidden
