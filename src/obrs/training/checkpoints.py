"""Checkpoints: one safetensors file each, complete or not there at all."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, MissingLibraryError

__all__ = [
    "checkpoints",
    "fill_module",
    "fill_optimiser",
    "last",
    "latest",
    "load",
    "optimiser_tensors",
    "read_facts",
    "save",
    "under",
    "write_text",
]

_NAME = re.compile(r"step-(\d{8})\.safetensors")
_PARTIAL = ".partial"


def save(folder: str | Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, keep: int) -> Path:
    """Write a checkpoint and forget all but the `keep` latest.

    The file is written beside its place, flushed to the disk and renamed: whenever the process or the machine stops,
    the latest checkpoint is whole. If the disk is full, the earlier ones stay.

    Args:
        folder: Where checkpoints are.
        step: Steps done.
        tensors: What to keep, by name.
        facts: Plain values to keep beside them.
        keep: How many checkpoints to keep.

    Example:
        >>> import tempfile
        >>> path = save(tempfile.mkdtemp(), 5, {"x": torch.ones(2)}, {"world": 1}, keep=2)
        >>> path.name, load(path)[1]["world"]
        ('step-00000005.safetensors', 1)
    """
    folder = Path(folder)
    path = folder / f"step-{step:08d}.safetensors"
    whole = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    content = _library().save(whole, metadata={"facts": json.dumps({**facts, "step": step})})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, content)
    except OSError as error:
        good = checkpoints(folder)
        kept = f"the last good checkpoint is {good[-1].name}" if good else "there is no earlier checkpoint"
        raise OSError(error.errno, f"{error.strerror}; {kept}", str(path)) from error
    for old in checkpoints(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def write_text(path: Path, text: str) -> None:
    """Write a small file, whole or not at all.

    Example:
        >>> import tempfile
        >>> write_text(path := Path(tempfile.mkdtemp(), "a.txt"), "whole")
        >>> path.read_text()
        'whole'
    """
    _write(path, text.encode())


def checkpoints(folder: str | Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first.

    Example:
        >>> checkpoints("nowhere")
        []
    """
    folder = Path(folder)
    return sorted(p for p in folder.iterdir() if _NAME.fullmatch(p.name)) if folder.is_dir() else []


def latest(folder: str | Path) -> Path:
    """Return the latest checkpoint of a run's folder; a path to a checkpoint is returned as it is."""
    path = Path(folder)
    if path.is_file():
        return path
    found = last(path)
    if found is None:
        raise InputError(f"{path} has no checkpoint; give the folder of a run, or train one with out={str(path)!r}")
    return found


def last(folder: Path | None) -> Path | None:
    """Return the latest checkpoint of a run's folder, or None.

    Example:
        >>> last(None), last(Path("nowhere"))
        (None, None)
    """
    found = [] if folder is None else checkpoints(folder / "checkpoints")
    return found[-1] if found else None


def load(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a checkpoint and the facts beside them."""
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, _facts(file)  # noqa: SIM118  (not a mapping)


def read_facts(path: str | Path) -> dict[str, Any]:
    """Return the facts of a checkpoint alone: `step`, and what was kept beside it."""
    with _opened(path) as file:
        return _facts(file)


def under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return what is stored as `prefix/name`, by name.

    Example:
        >>> under({"critic/0.bias": torch.ones(1), "ema/0.bias": torch.zeros(1)}, "critic")
        {'0.bias': tensor([1.])}
    """
    return {name[len(prefix) + 1 :]: x for name, x in tensors.items() if name.startswith(prefix + "/")}


def fill_module(module: nn.Module, tensors: Mapping[str, Tensor], what: str, path: str | Path) -> None:
    """Copy weights into a module, or say where its architecture is another."""
    own = module.state_dict()
    for name in [*own, *tensors]:
        here = "nothing" if name not in own else f"shape {tuple(own[name].shape)}"
        there = "nothing" if name not in tensors else f"shape {tuple(tensors[name].shape)}"
        if here != there:
            raise InputError(
                f"{path} was made by another {what}: {name} has {there} there and {here} here; use that run's network"
            )
    module.load_state_dict(dict(tensors))


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimiser's state by name; what is a number becomes a tensor."""
    state = optimiser.state_dict()["state"]
    return {f"{i}/{key}": torch.as_tensor(value) for i, values in state.items() for key, value in values.items()}


def fill_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser the state that `optimiser_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, _, key = name.partition("/")
        state.setdefault(int(index), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _write(path: Path, content: bytes) -> None:
    """Write beside the place, flush to the disk, rename."""
    partial = path.with_suffix(_PARTIAL)
    try:
        partial.write_bytes(content)
        _flush(partial)
        os.replace(partial, path)
        _flush(path.parent)
    except OSError as error:  # a full disk is met when writing, and then without a file's name
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            yield file
    except (SafetensorError, KeyError) as error:
        raise InputError(f"{path} is not a checkpoint of a run: {error}") from error


def _facts(file: Any) -> dict[str, Any]:
    return dict(json.loads((file.metadata() or {})["facts"]))


def _library() -> Any:
    try:
        from safetensors import torch as library
    except ImportError as error:
        raise MissingLibraryError("checkpoints need safetensors: pip install 'obrs[training]'") from error
    return library
