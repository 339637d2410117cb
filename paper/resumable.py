"""The file that a fit goes on from after it was killed, and what tells this fit from another."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obrs.errors import InputError
from obrs.fitting.tensors import Facts, Tensors, read_tensors, write_tensors

__all__ = ["Checkpoint"]


@dataclass(frozen=True)
class Checkpoint:
    """The file that a fit goes on from, and what tells this fit from another.

    Args:
        path: The file; it need not exist yet.
        identity: Plain values, such as steps and seed, that must be the same again.
        what: What the file is, in words, for errors.

    Example:
        >>> import tempfile, torch
        >>> kept = Checkpoint(Path(tempfile.mkdtemp(), "fit"), {"seed": 0})
        >>> kept.read() is None
        True
        >>> kept.write({"x": torch.ones(1)}, {"step": 5})
        >>> Checkpoint(kept.path, {"seed": 1}).read()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        obrs.errors.InputError: checkpoint ... is of another fit (seed); delete it or give another path
    """

    path: Path
    identity: Mapping[str, Any]
    what: str = "a checkpoint of a fit"

    def write(self, tensors: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Write the state of the fit."""
        write_tensors(self.path, tensors, {**facts, "task": dict(self.identity)})

    def read(self) -> tuple[Tensors, Facts] | None:
        """Return the state of the fit, None if there is no file; raise if it is of another fit."""
        if not self.path.exists():
            return None
        tensors, facts = read_tensors(self.path, self.what)
        known = facts.get("task", {})
        differ = [key for key, value in self.identity.items() if key not in known or known[key] != value]
        if differ:
            raise InputError(
                f"checkpoint {self.path} is of another fit ({', '.join(differ)}); delete it or give another path"
            )
        return tensors, facts
