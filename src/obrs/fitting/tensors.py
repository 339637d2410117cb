"""One file of tensors, in the format of safetensors, with plain facts beside them: written whole or not at all."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._files import replacing
from ..errors import InputError, MissingLibraryError

__all__ = ["Checkpoint", "check_folder", "fill_module", "fill_optimiser", "fingerprint", "first_difference"]
__all__ += ["optimiser_tensors", "read_facts", "read_tensors", "under", "write_tensors"]

_FACTS = "obrs"  # where the facts are in the metadata of the file

Tensors = dict[str, Any]
Facts = dict[str, Any]


def write_tensors(path: Path, tensors: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write tensors and plain values into one file.

    Args:
        path: The file; its folder exists.
        tensors: By name, on any device.
        facts: What JSON can hold.

    Example:
        >>> import tempfile, torch
        >>> path = Path(tempfile.mkdtemp(), "a.safetensors")
        >>> write_tensors(path, {"x": torch.ones(2)}, {"step": 5})
        >>> read_tensors(path, "an example")
        ({'x': tensor([1., 1.])}, {'step': 5})
    """
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise _missing() from error
    check_folder(path)
    whole = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    content = save(whole, {_FACTS: json.dumps(dict(facts))})
    with replacing(path) as file:
        file.write(content)


def read_tensors(path: str | os.PathLike[str], what: str) -> tuple[Tensors, Facts]:
    """Return the tensors of a file and its facts.

    Args:
        path: The file.
        what: What it should be, in words; an error says that it is not.
    """
    with _opened(path, what) as (file, facts):
        return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118  (not a mapping)


def read_facts(path: str | os.PathLike[str], what: str) -> Facts:
    """Return the facts alone, without reading the tensors; the rest is as for `read_tensors`."""
    with _opened(path, what) as (_, facts):
        return facts


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


def under(tensors: Mapping[str, Any], prefix: str) -> Tensors:
    """Return what is stored as `prefix/name`, by name.

    Example:
        >>> under({"critic/0.bias": 1.0, "ema/0.bias": 2.0}, "critic")
        {'0.bias': 1.0}
    """
    return {name[len(prefix) + 1 :]: x for name, x in tensors.items() if name.startswith(prefix + "/")}


def fill_module(module: Any, tensors: Mapping[str, Any], what: str, path: str | Path) -> None:
    """Copy weights into a module, or say where its architecture is another.

    Args:
        module: A torch module.
        tensors: Its `state_dict`, as it was read.
        what: What the module is, in words.
        path: Where the tensors come from.
    """
    if differs := first_difference(module, tensors):
        raise InputError(f"{path} was made by another {what}: {differs}; use that run's network")
    module.load_state_dict(dict(tensors))


def first_difference(module: Any, tensors: Mapping[str, Any]) -> str:
    """Say which weight is the first that a module and a file do not share; nothing if they are alike.

    Example:
        >>> import torch
        >>> first_difference(torch.nn.Linear(2, 1), {"weight": torch.ones(1, 3), "bias": torch.ones(1)})
        'weight has shape (1, 3) there and shape (1, 2) here'
    """
    own = module.state_dict()
    for name in [*own, *tensors]:
        given, stored = (f"shape {tuple(x[name].shape)}" if name in x else "nothing" for x in (own, tensors))
        if given != stored:
            return f"{name} has {stored} there and {given} here"
    return ""


def optimiser_tensors(optimiser: Any) -> Tensors:
    """Return an optimiser's state by name; what is a number becomes a tensor."""
    import torch

    state = optimiser.state_dict()["state"]
    return {f"{i}/{key}": torch.as_tensor(value) for i, values in state.items() for key, value in values.items()}


def fill_optimiser(optimiser: Any, tensors: Mapping[str, Any]) -> None:
    """Give an optimiser the state that `optimiser_tensors` returned."""
    state: dict[int, Tensors] = {}
    for name, value in tensors.items():
        index, _, key = name.partition("/")
        state.setdefault(int(index), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def fingerprint(*tensors: Any) -> str:
    """Return a short text that differs where shapes or numbers do.

    Example:
        >>> import torch
        >>> fingerprint(torch.zeros(3)) == fingerprint(torch.zeros(3)), fingerprint(torch.zeros(3, 1))[:8]
        (True, '86826f06')
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]


def check_folder(path: Path) -> None:
    """Raise if a file cannot be written for want of its folder."""
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist; make it first")


@contextmanager
def _opened(path: str | os.PathLike[str], what: str) -> Iterator[tuple[Any, Facts]]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise _missing() from error
    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            yield file, dict(json.loads((file.metadata() or {})[_FACTS]))
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path} is not {what}: {error}") from error


def _missing() -> MissingLibraryError:
    return MissingLibraryError("files of tensors need safetensors: pip install 'obrs[torch]'")
