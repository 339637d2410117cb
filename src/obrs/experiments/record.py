"""What a run leaves: one JSON, complete on disk after every row, from which its picture is drawn."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from .. import __version__
from .._files import replacing
from .._progress import bar
from .._rank import rank
from ..errors import InputError

__all__ = ["Record", "Rows", "load", "numbers", "plain"]

Item = TypeVar("Item")
Numbers = np.ndarray[Any, Any]

_LIBRARIES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "torch": "torch",
    "sklearn": "scikit-learn",
    "zuko": "zuko",
    "transformers": "transformers",
    "matplotlib": "matplotlib",
}


@dataclass(frozen=True)
class Record:
    """One run of an experiment, as its JSON has it.

    Args:
        experiment: The name in `EXPERIMENTS`.
        preset: The preset that the run started from; `config` says what was changed in it.
        config: Every field of the experiment's `Config`, the seed among them.
        rows: What was found: dicts of plain numbers, strings and lists, each with its `"row"`, a unique name.
        versions: Versions of Python and of the libraries that were in use.
        seconds: Time it took, without interruptions.

    Example:
        >>> record = Record("figure-1d", "smoke", {"seed": 0}, [{"row": "obrs", "kl": 0.06}])
        >>> record["obrs"]["kl"]
        0.06
    """

    experiment: str
    preset: str
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    versions: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def __getitem__(self, row: str) -> dict[str, Any]:
        """Return the row with this name."""
        for found in self.rows:
            if found["row"] == row:
                return found
        raise InputError(f"the record of {self.experiment} has no row {row!r}; run it again")

    def __contains__(self, row: object) -> bool:
        return any(found["row"] == row for found in self.rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON; a file that was there is replaced in one step, or not at all."""
        with replacing(path) as file:
            file.write(self.to_json().encode())

    def to_json(self) -> str:
        """Return the JSON that `save` writes."""
        return _as_json(asdict(self))


def load(path: str | os.PathLike[str]) -> Record:
    """Read a record that `save` has written.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/demo.json"
        >>> Record("figure-1d", "smoke", {"seed": 0}, [{"row": "obrs", "kl": 0.06}]).save(path)
        >>> load(path).rows
        [{'row': 'obrs', 'kl': 0.06}]
    """
    try:
        content = json.loads(Path(path).read_text())
        return Record(**content)
    except (ValueError, TypeError):  # no JSON, no text, no dict, or other fields
        raise InputError(f"{path} is not the record of an experiment; `obrs reproduce` writes them") from None


class Rows:
    """The rows of a run: added one by one, each on disk before the next one starts.

    A run that is interrupted and started again with the same configuration finds the rows it had and makes only the
    missing ones. For that, a row must depend on the configuration and its own name alone, not on rows made before.
    Of many processes each makes all rows, those that train do so together, and the first one writes.

    Args:
        record: The run so far, with the rows that need not be made again.
        path: Where the unfinished record is kept; None keeps it in memory.
        progress: As everywhere: True, False, or None for a bar on terminals.

    Example:
        >>> rows = Rows(Record("demo", "smoke", {}, [{"row": "K = 1", "loss": 2.0}]))
        >>> for name, budget in rows.todo({"K = 1": 1.0, "K = 2": 2.0}):
        ...     rows.add(name, {"loss": np.float64(2 / budget)})
        >>> rows.record().rows
        [{'row': 'K = 1', 'loss': 2.0}, {'row': 'K = 2', 'loss': 1.0}]
    """

    def __init__(
        self, record: Record, path: str | os.PathLike[str] | None = None, *, progress: bool | None = None
    ) -> None:
        self.progress = False if rank() else progress
        self.resumed = len(record.rows)
        self._record, self._path, self._begun = record, path, perf_counter()
        self._keep()

    def __contains__(self, row: object) -> bool:
        return row in self._record

    def __getitem__(self, row: str) -> dict[str, Any]:
        return self._record[row]

    def __len__(self) -> int:
        return len(self._record.rows)

    @property
    def path(self) -> Path | None:
        """The file of the unfinished record; what is slow to make again may lie beside it. None if it is in memory."""
        return None if self._path is None else Path(self._path)

    def todo(self, items: Mapping[str, Item]) -> Iterator[tuple[str, Item]]:
        """Go through the items whose row is missing, with a bar."""
        with bar(self._record.experiment, len(items), self.progress) as tell:
            for done, (row, item) in enumerate(items.items()):
                tell(done, row)
                if row not in self:
                    yield row, item
            tell(len(items))

    def add(self, row: str, values: Mapping[str, Any]) -> None:
        """Keep a row; NumPy's numbers and arrays become plain ones, arrays with seven digits."""
        if row in self:
            raise InputError(f"{self._record.experiment} has made row {row!r} twice")
        self._record.rows.append({"row": row} | {str(key): plain(value) for key, value in values.items()})
        self._keep()

    def record(self) -> Record:
        """Return the record as it is now."""
        seconds = self._record.seconds + perf_counter() - self._begun
        return Record(**(vars(self._record) | {"versions": _versions(), "seconds": round(seconds, 2)}))

    def _keep(self) -> None:
        if self._path is not None and rank() == 0:
            self.record().save(self._path)


def unfinished(folder: Path, record: Record) -> Path:
    """Return the file of an unfinished run; another configuration or version has another file."""
    key = json.dumps([record.experiment, record.config, __version__], sort_keys=True)
    return folder / f"{record.experiment}.{hashlib.sha256(key.encode()).hexdigest()[:8]}.partial.json"


def numbers(values: Any) -> Numbers:
    """Return a list of a row as floats; what JSON cannot hold (NaN, infinity) is NaN.

    Example:
        >>> numbers([1, None, 2.5])
        array([1. , nan, 2.5])
    """
    return np.asarray(values, dtype=np.float64)


def plain(value: Any) -> Any:
    """Return what JSON can hold: arrays as lists with seven digits, numbers in full, no NaN, no infinity.

    Example:
        >>> plain({"x": np.asarray([1 / 3, np.nan]), "n": np.int64(3)})
        {'x': [0.3333333, None], 'n': 3}
    """
    if isinstance(value, np.ndarray):
        return _rounded(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return plain(float(f"{value:.7g}") if isinstance(value, float) else value)


def _as_json(content: dict[str, Any]) -> str:
    """Write one row per line: easy to read, and easy to compare."""
    rows = ",\n".join("    " + json.dumps(row, allow_nan=False, ensure_ascii=False) for row in content["rows"])
    head = json.dumps(content | {"rows": None}, indent=2, allow_nan=False, ensure_ascii=False)
    return head.replace('"rows": null', f'"rows": [\n{rows}\n  ]' if rows else '"rows": []', 1) + "\n"


def _versions() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3])), "obrs": __version__}
    for module, package in _LIBRARIES.items():
        if module in sys.modules:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
    return found
