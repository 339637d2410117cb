"""A run on disk: what was asked for, what is done so far, and a folder that appears once all of it is.

The work happens in a hidden folder beside the one that was asked for. Every file in it is written whole or not at all,
so that a run that was killed goes on where it was; at the end one rename makes the result visible.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._files import check_out, replacing
from ..errors import InputError

__all__ = ["MANIFEST", "Run", "check_free", "read_manifest", "running"]

MANIFEST = "manifest.json"
"""What a finished folder has beside its files: what was asked for, and what came out."""


@dataclass(frozen=True)
class Run:
    """A run that is under way.

    Args:
        out: The folder that will appear.
        work: The hidden folder beside it.
        asked: What was asked for; a run with other arguments is another run.
        failed: What was tried in vain, one name each; every try has a folder of its own, so that nothing of it is left
            to the next.
    """

    out: Path
    work: Path
    asked: Mapping[str, Any]
    failed: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of this try."""
        return self.work / f"try-{len(self.failed)}"

    @property
    def kept(self) -> Path:
        """The folder that becomes `out`."""
        return self.folder / "kept"

    def save(self, key: str, value: Any) -> None:
        """Remember a value as JSON."""
        _write_json(self.folder / f"{key}.json", value)

    def load(self, key: str) -> Any:
        """Return a value that was remembered, or None."""
        return _read_json(self.folder / f"{key}.json")

    def save_arrays(self, key: str, *arrays: Any) -> None:
        """Remember arrays, one after the other in a file: an npz costs a file of few rows more than its rows do."""
        with replacing(self.folder / f"{key}.npy") as file:
            for array in arrays:
                np.save(file, array, allow_pickle=False)

    def load_arrays(self, key: str, count: int) -> list[Any] | None:
        """Return arrays that were remembered, or None."""
        path = self.folder / f"{key}.npy"
        if not path.exists():
            return None
        with open(path, "rb") as file:
            return [np.load(file, allow_pickle=False) for _ in range(count)]

    @property
    def begun(self) -> bool:
        """Whether anything is done that another run would lose."""
        return bool(self.failed) or any(path.name != "kept" for path in self.folder.iterdir())

    def again(self, failed: str) -> "Run":
        """Begin anew, because what was tried did not do."""
        following = replace(self, failed=(*self.failed, failed))
        following.kept.mkdir(parents=True, exist_ok=True)
        _write_json(self.work / "failed.json", following.failed)
        shutil.rmtree(self.folder)
        return following

    def finish(self, found: Mapping[str, Any]) -> None:
        """Make the result visible, with its manifest."""
        with replacing(self.kept / MANIFEST) as file:
            file.write((json.dumps({"asked": self.asked, "found": found}, indent=2) + "\n").encode())
        if self.out.is_dir():
            self.out.rmdir()  # it is empty
        os.replace(self.kept, self.out)


def _write_json(path: Path, value: Any) -> None:
    with replacing(path) as file:
        file.write(json.dumps(value).encode())


def _read_json(path: Path) -> Any:
    return json.loads(path.read_bytes()) if path.exists() else None


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return what a folder says about how it was selected, or None."""
    path = Path(folder, MANIFEST)
    if not path.is_file():
        return None
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    ours = isinstance(manifest, dict) and all(isinstance(manifest.get(key), dict) for key in ("asked", "found"))
    return manifest if ours else None


def check_free(out: str | os.PathLike[str]) -> None:
    """Raise unless a folder can be made there: it may exist if it is empty, or the result of a run."""
    path = Path(out)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; the rows of a folder go to a folder")
    if path.is_dir() and any(path.iterdir()) and read_manifest(path) is None:
        raise InputError(f"{path} is not empty; choose a folder that is empty or not there")
    check_out(f"{path}.obrs")  # a name that is not there, beside it


@contextmanager
def running(out: str | os.PathLike[str], asked: Mapping[str, Any]) -> Iterator[Run]:
    """Begin a run, or go on with one that was stopped; what is unfinished stays for the next time.

    Args:
        out: The folder to make; see `check_free`.
        asked: What was asked for, as JSON has it. `inputs` has the size of every file by its name.
    """
    check_free(out)
    out, shown = Path(os.path.abspath(out)), Path(out)
    if (done := read_manifest(out)) is not None:
        _check_same(done["asked"], asked, f"{shown} has the result of another run", "choose another folder")
    work = out.with_name(f".{out.name}.obrs")
    work.mkdir(exist_ok=True)
    with _locked(work, shown):
        for half in work.rglob(".obrs-*.tmp"):  # what a run was writing when it was killed
            half.unlink()
        run = Run(out, work, asked, tuple(_read_json(work / "failed.json") or ()))
        run.kept.mkdir(parents=True, exist_ok=True)
        if (before := _read_json(work / "asked.json")) is None or not run.begun:
            _write_json(work / "asked.json", asked)
        else:
            hint = f"finish that one first, or delete {shown.with_name(work.name)}"
            _check_same(before, asked, f"{shown} has an unfinished run", hint)
        try:
            yield run
        finally:
            if read_manifest(out) is not None or not run.begun:
                shutil.rmtree(work)


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], what: str, hint: str) -> None:
    for key in sorted({*before, *now}, key=lambda name: (name == "inputs", name)):
        old, new = before.get(key), now.get(key)
        if old == new:
            continue
        if key == "inputs" and isinstance(old, dict) and isinstance(new, dict):
            name = next(n for n in {**old, **new} if old.get(n) != new.get(n))
            sizes = [f"{s:,} bytes" if s is not None else "no file" for s in (old.get(name), new.get(name))]
            raise InputError(f"{what}: {name} was {sizes[0]} and is {sizes[1]} now; {hint}")
        raise InputError(f"{what}: {key} was {old!r} and is {new!r} now; {hint}")


@contextmanager
def _locked(work: Path, out: Path) -> Iterator[None]:
    """Hold a lock that ends with the process, however it ends."""
    with open(work / "lock", "wb") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows has none, and does not let two processes rename one folder
            pass
        except OSError as error:
            raise InputError(f"another run is writing {out} at the moment") from error
        yield
