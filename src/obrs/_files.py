"""Files that are written whole or not at all, by one run at a time; and the folder of the cache."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import Any, BinaryIO

from .errors import InputError, InputTypeError

_POSIX = os.name == "posix"  # elsewhere folders cannot be opened, and files are not locked


def cache_folder() -> Path:
    """Return where data sets and features are kept: OBRS_DATA, or ~/.cache/obrs."""
    return Path(os.environ.get("OBRS_DATA") or "~/.cache/obrs").expanduser().absolute()


def as_path(path: Any, name: str) -> Path:
    """Return a path that was given, of whatever class."""
    if not isinstance(path, str | os.PathLike) or "\0" in os.fspath(path) or not os.fspath(path):
        raise InputTypeError(f"{name} must be a path, got {path!r:.60}")
    return Path(path)


def check_out(path: str | os.PathLike[str]) -> None:
    """Raise, before any work is done, the error that writing this file would raise.

    Example:
        >>> check_out("no such folder/kept.csv")
        Traceback (most recent call last):
        FileNotFoundError: [Errno 2] No such file or directory: 'no such folder/kept.csv'
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise _os_error(errno.EISDIR, path)
    if not target.parent.is_dir():
        raise _os_error(errno.ENOTDIR if target.parent.exists() else errno.ENOENT, path)
    if not os.access(target if target.exists() and not target.is_file() else target.parent, os.W_OK):
        raise _os_error(errno.EACCES, path)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raise the error that creating a folder and its parents would raise; an existing folder is fine."""
    folder = Path(os.path.realpath(path))
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise _os_error(errno.ENOTDIR, path)
    if not os.access(folder, os.W_OK):
        raise _os_error(errno.EACCES, path)


def check_not_input(out: str | os.PathLike[str], *inputs: str | os.PathLike[str] | None) -> None:
    """Raise if an output would overwrite an input, by whatever name or link; a folder stands for all that is in it.

    Args:
        out: The file that will be written, or the folder.
        inputs: Files and folders that are read; None is left out.

    Example:
        >>> check_not_input("kept.csv", "scores.csv", None)
        >>> check_not_input("pictures/evaluate.png", os.curdir)
        Traceback (most recent call last):
        obrs.errors.InputError: pictures/evaluate.png would overwrite the input . or lie in it; choose another output
    """
    target = Path(os.path.realpath(out))
    for path in inputs:
        if path is None:
            continue
        source = os.path.expanduser(path)
        if os.path.isdir(source):
            if target.is_relative_to(os.path.realpath(source)):
                raise InputError(f"{out} would overwrite the input {path} or lie in it; choose another output")
        elif target.is_file() and os.path.exists(source) and os.path.samefile(target, source):
            raise InputError(f"{out} would overwrite the input {path}; choose another output")


def _os_error(number: int, path: str | os.PathLike[str]) -> OSError:
    return OSError(number, os.strerror(number), os.fspath(path))  # Python makes it the right child


@contextmanager
def rewrite(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file beside `path` that takes its place once it is whole and on the disk.

    After an error the old file is still there, and an `OSError` names the path. A link stays a link, permissions stay,
    and what is not a file, such as a pipe, is written to directly. What runs left in the folder when they were killed
    is deleted.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.txt")
        >>> with rewrite(path) as file:
        ...     _ = file.write(b"whole")
        >>> path.read_bytes()
        b'whole'
    """
    try:
        yield from _rewrite(Path(os.path.realpath(path)))
    except OSError as error:  # the error of a full disk comes from a write, without a name
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error


def _rewrite(target: Path) -> Iterator[BinaryIO]:
    exists = target.exists()
    if exists and (not target.is_file() or not os.access(target, os.W_OK)):
        with open(target, "wb") as file:  # a device or a pipe; a folder or what may not be written raises
            yield file
        return
    beside = target.with_name(f".obrs-{os.urandom(8).hex()}.tmp")
    _delete_halves(target.parent)
    try:
        with open(beside, "xb") as file:
            _lock(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        if exists:
            os.chmod(beside, target.stat().st_mode & 0o7777)
        os.replace(beside, target)
        _flush_folder(target.parent)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _delete_halves(folder: Path) -> None:
    """Delete the half-written files of killed runs in a folder: not locked, and not written to for a minute."""
    for half in folder.glob(".obrs-*.tmp"):
        with suppress(OSError):
            if half.is_file() and time() - half.stat().st_mtime > 60:
                with open(half, "rb") as file:
                    if _lock(file.fileno()):
                        half.unlink()


@contextmanager
def hold(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Hold a hidden folder beside `path`, so that one run at a time writes there; an empty one is deleted."""
    work = Path(path).with_name(f".{Path(path).name}.obrs")
    work.mkdir(parents=True, exist_ok=True)
    handle, is_ours = os.open(work if _POSIX else os.devnull, os.O_RDONLY), False
    try:
        with suppress(BlockingIOError, FileNotFoundError):
            _lock(handle)
            is_ours = not _POSIX or os.path.samestat(os.fstat(handle), os.stat(work))  # it may have been moved
        if not is_ours:
            raise InputError(f"another run is writing {path} at the moment")
        for half in work.rglob(".obrs-*.tmp"):  # what a run was writing when it was killed
            half.unlink()
        yield work
    finally:
        if is_ours:
            with suppress(OSError):  # something is left in it, or it was moved
                work.rmdir()
        os.close(handle)


def _lock(handle: int) -> bool:
    """Lock an open file until it is closed or the process ends; raise if another process holds the lock.

    Some file systems have no locks, or like NFS none of what is only read, such as a folder: then return False.
    """
    if not _POSIX:
        return False
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _flush_folder(folder: Path) -> None:
    """Flush the new name to the disk as well, where folders can be opened."""
    if not _POSIX:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
