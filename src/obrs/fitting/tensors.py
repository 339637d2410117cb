"""Files of tensors in the safetensors format, with plain values beside them; written whole or not at all."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._files import as_path, rewrite
from ..errors import InputError, MissingLibraryError

__all__ = ["Facts", "Tensors", "check_module", "first_difference", "read_tensors", "subset", "write_tensors"]

_FACTS = "obrs"  # where the facts are in the metadata of the file

Tensors = dict[str, Any]
Facts = dict[str, Any]


def write_tensors(path: Path, tensors: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write tensors and plain values into one file.

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
        raise _missing_library() from error
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist; make it first")
    whole = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    content = save(whole, {_FACTS: json.dumps(dict(facts))})
    with rewrite(path) as file:
        file.write(content)


def read_tensors(path: str | os.PathLike[str], what: str) -> tuple[Tensors, Facts]:
    """Return the tensors and the plain values of a file; errors say that it is not `what`."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise _missing_library() from error
    try:
        with safe_open(os.fspath(as_path(path, "path")), framework="pt") as file:
            facts = dict(json.loads((file.metadata() or {})[_FACTS]))
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118  (not a mapping)
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not {what}: {error}") from error


def subset(tensors: Mapping[str, Any], prefix: str) -> Tensors:
    """Return what is stored as `prefix/name`, by name."""
    return {name[len(prefix) + 1 :]: x for name, x in tensors.items() if name.startswith(prefix + "/")}


def check_module(module: Any, tensors: Mapping[str, Any], what: str, path: str | Path) -> None:
    """Raise if weights are of another architecture than a module, which can load them otherwise."""
    if differs := first_difference(module, tensors):
        raise InputError(f"{path} was made by another {what}: {differs}; use that run's network")


def first_difference(module: Any, tensors: Mapping[str, Any]) -> str:
    """Return the first weight in which a module and a file differ, in words; empty if there is none."""
    expected = module.state_dict()
    for name in [*expected, *tensors]:
        given, stored = (f"shape {tuple(x[name].shape)}" if name in x else "nothing" for x in (expected, tensors))
        if given != stored:
            return f"{name} has {stored} there and {given} here"
    return ""


def _missing_library() -> MissingLibraryError:
    return MissingLibraryError("files of tensors need safetensors: pip install 'obrs[torch]'")
