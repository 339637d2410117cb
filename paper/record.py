"""What a run leaves: one JSON, complete on disk after every row, from which its table and its picture are made."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from math import inf, isfinite
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, TypeVar

import numpy as np

from obrs import __version__
from obrs._checks import check_budget, check_count
from obrs._files import rewrite
from obrs._progress import bar, rank
from obrs.errors import InputError

__all__ = ["Checked", "Numbers", "Record", "load", "numbers", "plain"]

Item = TypeVar("Item")
Numbers = np.ndarray[Any, Any]
_LIBRARIES = ("numpy", "scipy", "torch", "transformers", "matplotlib")
_KEPT = ("experiment", "preset", "config", "rows", "versions", "seconds")


@dataclass(frozen=True)
class Checked:
    """A configuration whose numbers are above 0, whose budgets are budgets, and whose tuples are not empty."""

    unchecked: ClassVar[tuple[str, ...]] = ("seed",)  # fields that may be anything

    def __post_init__(self) -> None:
        for name, value in ((f.name, getattr(self, f.name)) for f in fields(self) if f.name not in self.unchecked):
            if value == ():
                raise InputError(f"{name} must name at least one")
            for one in value if isinstance(value, tuple) else (value,):
                if "budget" in name:
                    check_budget(one)
                elif isinstance(one, int):
                    check_count(one, name)
                elif isinstance(one, float) and not 0 < one < inf:
                    raise InputError(f"{name} must be above 0, got {one}")


@dataclass(eq=False)
class Record:
    """One run: what was asked for, and the rows so far, each on disk before the next one starts.

    A run that was stopped makes only the missing rows, so a row must depend on the configuration and its own name
    alone. Of many processes each makes all rows, and the first one writes.

    Example:
        >>> record = Record("demo", "smoke", {}, [{"row": "K = 1", "loss": 2.0}])
        >>> for name, budget in record.todo({"K = 1": 1.0, "K = 2": 2.0}):
        ...     record.add(name, {"loss": np.float64(2 / budget)})
        >>> record["K = 2"]
        {'row': 'K = 2', 'loss': 1.0}
    """

    experiment: str  # the name in `EXPERIMENTS`
    preset: str  # that the run started from
    config: dict[str, Any]  # every field of the experiment's `Config`, as JSON has it
    rows: list[dict[str, Any]] = field(default_factory=list)  # plain values, each with its `"row"`, a unique name
    versions: dict[str, str] = field(default_factory=dict)  # of Python and of the libraries that were in use
    seconds: float = 0.0  # it took, without interruptions
    path: Path | None = None  # where the unfinished record is kept; None keeps it in memory
    progress: bool | None = None  # True, False, or None for a bar on terminals

    def __post_init__(self) -> None:
        self.rows, self._now = list(self.rows), perf_counter()

    def __getitem__(self, row: str) -> dict[str, Any]:
        for each in self.rows:
            if each["row"] == row:
                return dict(each)
        raise InputError(f"the record of {self.experiment} has no row {row!r}; run it again")

    def __contains__(self, row: object) -> bool:
        return any(each["row"] == row for each in self.rows)

    def todo(self, items: Mapping[str, Item]) -> Iterator[tuple[str, Item]]:
        """Go through the items whose row is missing, with a bar."""
        with bar(self.experiment, len(items), False if rank() else self.progress) as update:
            for done, (row, item) in enumerate(items.items()):
                update(done, row)
                if row not in self:
                    yield row, item
            update(len(items))

    def add(self, row: str, values: Mapping[str, Any]) -> None:
        """Keep a row; NumPy's numbers and arrays become plain ones, arrays with seven digits."""
        if row in self:
            raise InputError(f"{self.experiment} has made row {row!r} twice")
        self.rows.append({"row": row} | plain(values))
        if self.path is not None:
            self.save(self.path)

    def save(self, path: Path) -> None:
        """Write the JSON, one row per line; a file that was there is replaced in one step, or not at all."""
        then, self._now = self._now, perf_counter()
        self.seconds, self.versions = round(self.seconds + self._now - then, 2), versions()
        rows = ",\n".join("    " + json.dumps(row, allow_nan=False, ensure_ascii=False) for row in self.rows)
        facts = {key: None if key == "rows" else getattr(self, key) for key in _KEPT}
        head = json.dumps(facts, indent=2, allow_nan=False, ensure_ascii=False)
        text = head.replace('"rows": null', f'"rows": [\n{rows}\n  ]' if rows else '"rows": []', 1) + "\n"
        if rank() == 0:
            with rewrite(path) as file:
                file.write(text.encode())


def load(path: str | os.PathLike[str]) -> Record:
    """Read a record that was saved."""
    try:
        return Record(**json.loads(Path(path).read_text()))
    except (ValueError, TypeError):  # no JSON, no text, no dict, or other fields
        raise InputError(f"{path} is not the record of an experiment; `python -m paper` writes them") from None


def numbers(values: Any) -> Numbers:
    """Return a list of a row as floats; what JSON cannot hold (NaN, infinity) is NaN."""
    return np.asarray(values, dtype=np.float64)


def plain(value: Any) -> Any:
    """Return what JSON can hold: arrays as lists with seven digits, numbers in full, no NaN, no infinity.

    Example:
        >>> plain({"x": np.asarray([1 / 3, np.nan]), "n": np.int64(3)})
        {'x': [0.3333333, None], 'n': 3}
    """
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return plain([float(f"{x:.7g}") for x in value] if value.ndim == 1 else list(value))
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that are loaded."""
    versions = {"python": ".".join(map(str, sys.version_info[:3])), "obrs": __version__}
    packages = {name: name for name in _LIBRARIES} | {"sklearn": "scikit-learn"}
    return versions | {package: version(package) for module, package in packages.items() if module in sys.modules}
