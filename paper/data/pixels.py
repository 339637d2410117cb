"""Images as bytes on the disk, which become numbers when they are looked at; and folders of pictures made into them.

Faces at 64 pixels take 2.5 GB and ImageNet at 128 takes 63 GB, four times that as numbers: neither need fit in memory.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from obrs._files import cache_folder, replacing
from obrs._pictures import SUFFIXES, read_picture, to_floats
from obrs._progress import bar
from obrs.errors import InputError

__all__ = ["Kept", "Pictures", "Pixels", "celeba", "imagenet", "keep", "last_kept"]

Array = np.ndarray[Any, Any]

_BLOCK = 1024  # pictures that are read before they are written
_SPREAD = 1024  # images that a fingerprint looks at
_MANIFEST = "kept.json"


class Pixels:
    """Images as bytes, such as a mapped file; `x[rows]` are those rows as float32 in [-1, 1], a slice stays bytes.

    Args:
        bytes: uint8, shape `(n, channels, height, width)`, at least one image.

    Example:
        >>> x = Pixels(np.full((5, 3, 2, 2), 255, dtype=np.uint8))
        >>> x.shape, x[1:].shape, float(x[np.array([0, 4])].max())
        ((5, 3, 2, 2), (4, 3, 2, 2), 1.0)
    """

    def __init__(self, bytes: Array) -> None:
        shape, kind = tuple(getattr(bytes, "shape", ())), getattr(bytes, "dtype", type(bytes).__name__)
        if kind != np.uint8 or len(shape) != 4 or not shape[0]:  # floats would be nearly black as bytes
            raise InputError(
                f"pixels must be uint8, 0 to 255, of shape (n, channels, height, width) with at least one image, "
                f"got {kind} of shape {shape}"
            )
        self.bytes = bytes

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of images, channels, height, width."""
        return tuple(int(n) for n in self.bytes.shape)

    @property
    def ndim(self) -> int:
        """Number of axes: 4."""
        return self.bytes.ndim

    def __len__(self) -> int:
        return len(self.bytes)

    def __getitem__(self, rows: Any) -> Any:
        found = self.bytes[rows]
        return Pixels(found) if isinstance(rows, slice) else to_floats(found)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = to_floats(self.bytes)
        return found if dtype is None else found.astype(dtype)

    def fingerprint(self) -> str:
        """Return a short text that differs where the shape does, or one of a thousand images that lie evenly."""
        rows = np.unique(np.linspace(0, len(self) - 1, _SPREAD).astype(np.int64))
        digest = hashlib.sha256(f"{self.shape} ".encode())
        digest.update(np.ascontiguousarray(self.bytes[rows]).data)
        return digest.hexdigest()[:16]


class Pictures(NamedTuple):
    """The files of a data set, and their classes, 0 for all if it has none."""

    train: list[Path]
    train_labels: list[int]
    test: list[Path]
    test_labels: list[int]


def celeba(folder: Path) -> Pictures:
    """Return the aligned faces of CelebA: those to test are of its own list if it is there, else every tenth one."""
    inside = folder / "img_align_celeba"
    if not inside.is_dir():
        raise InputError(
            f"{folder} must hold img_align_celeba/ with the aligned faces, 000001.jpg and so on, as its archive has "
            "them, and list_eval_partition.txt if the split is to be its own; there is no img_align_celeba/"
        )
    faces = _pictures(inside)
    listed = folder / "list_eval_partition.txt"
    if listed.is_file():
        lines = (line.split() for line in listed.read_text().splitlines() if line.strip())
        tested = {line[0] for line in lines if line[-1] == "2"}
    else:
        tested = {path.name for path in faces[::10]}
    train, test = ([path for path in faces if (path.name in tested) == wanted] for wanted in (False, True))
    if not train or not test:
        raise InputError(f"{listed} must say 0 or 1 for faces to train on and 2 for those to test, got one kind only")
    return Pictures(train, [0] * len(train), test, [0] * len(test))


def imagenet(folder: Path) -> Pictures:
    """Return the pictures of ImageNet, or of any folder with `train` and `val` that hold a folder for each class."""
    found: list[Any] = []
    names: list[str] = []
    for part in ("train", "val"):
        inside = folder / part
        classes = sorted(path for path in inside.iterdir() if path.is_dir()) if inside.is_dir() else []
        if not classes:
            what = "no folder of a class in it" if inside.is_dir() else "not there"
            raise InputError(
                f"{folder} must hold train/ and val/, and each of them a folder for each class, such as n01440764/, "
                f"with its .JPEG files; {part}/ is {what}"
            )
        names = names or [path.name for path in classes]
        if [path.name for path in classes] != names:
            other = sorted({path.name for path in classes} ^ set(names))[0]
            raise InputError(f"{folder}/train and {folder}/val must have the same classes; {other} is in one of them")
        files = [(path, label) for label, home in enumerate(classes) for path in _pictures(home)]
        found += [[path for path, _ in files], [label for _, label in files]]
    return Pictures(*found)


class Kept(NamedTuple):
    """The bytes that were made of a folder of pictures.

    Args:
        folder: Where the pictures were.
        train, test: The files of images; that of their labels is beside each.
    """

    folder: Path
    train: Path
    test: Path

    def is_here(self) -> bool:
        """Tell whether all files are there."""
        return all(path.is_file() and _labels(path).is_file() for path in (self.train, self.test))

    def read(self) -> list[Any]:
        """Return images and labels to train on, and to test; the images stay on the disk."""
        pairs = [(Pixels(np.load(path, mmap_mode="r")), np.load(_labels(path))) for path in (self.train, self.test)]
        return [part for pair in pairs for part in pair]


def last_kept(name: str) -> Kept | None:
    """Return what was kept last of a data set; None if it was never read."""
    home = cache_folder() / name
    path = home / _MANIFEST
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text())
        return Kept(Path(found["folder"]), home / found["train"], home / found["test"])
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is damaged; delete it, and name the folder of the pictures again") from error


def keep(name: str, folder: Path, pictures: Pictures, size: int) -> Kept:
    """Make the bytes of pictures, in an order that mixes the classes, unless these very pictures were read before.

    Args:
        name: Of the data set, for the folder under OBRS_DATA where the bytes are kept.
        folder: Where the pictures are.
        pictures: Their files.
        size: Pixels a side: the square in the middle of a picture is scaled to it.
    """
    home = cache_folder() / name
    found = {}
    for part, paths, labels in (
        ("train", pictures.train, pictures.train_labels),
        ("test", pictures.test, pictures.test_labels),
    ):
        order = np.random.default_rng(0).permutation(len(paths))
        mixed = [paths[at] for at in order]
        path = home / f"{part}-{size}-{_key(mixed, folder)}.npy"
        if not (path.is_file() and _labels(path).is_file()):
            home.mkdir(parents=True, exist_ok=True)
            _write(path, mixed, size, f"reading {name}")
            with replacing(_labels(path)) as file:
                np.save(file, np.array(labels, dtype=np.int64)[order])
        found[part] = path
    with replacing(home / _MANIFEST) as file:
        file.write(json.dumps({"folder": str(folder)} | {part: path.name for part, path in found.items()}).encode())
    return Kept(folder, **found)


def _labels(path: Path) -> Path:
    """Return the file of the labels beside that of the images."""
    return path.with_name(f"{path.stem}-labels.npy")


def _key(pictures: Sequence[Path], folder: Path) -> str:
    """Return a short text that differs where the name within the folder, the size or the time of a picture does."""
    digest = hashlib.sha256()
    for path in pictures:
        try:
            facts = path.stat()
        except OSError as error:  # a link to nothing
            raise InputError(f"{path} cannot be read: {error.strerror}; replace it or take it away") from error
        line = f"{path.relative_to(folder).as_posix()} {facts.st_size} {facts.st_mtime_ns}\n"
        digest.update(line.encode(errors="surrogateescape"))  # a name need not be text
    return digest.hexdigest()[:12]


def _write(path: Path, pictures: Sequence[Path], size: int, title: str) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(pictures), 3, size, size)}
    with replacing(path) as file, bar(title, len(pictures)) as tell:
        np.lib.format.write_array_header_1_0(file, header)
        done = 0
        for block in _read(pictures, size):
            file.write(block.tobytes())
            done += len(block)
            tell(done)


def _read(pictures: Sequence[Path], size: int) -> Iterator[Array]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # it lets go of the interpreter while it decodes
        for at in range(0, len(pictures), _BLOCK):
            yield np.stack(list(pool.map(partial(_picture, size=size), pictures[at : at + _BLOCK])))


def _picture(path: Path, size: int) -> Array:
    """Return the square in the middle of a picture, scaled, as bytes of shape `(3, size, size)`."""

    def middle(image: Any) -> Array:
        from PIL.Image import Resampling

        side = min(image.size)
        left, top = ((length - side) // 2 for length in image.size)
        square = image.convert("RGB").crop((left, top, left + side, top + side))
        return np.asarray(square.resize((size, size), Resampling.LANCZOS))

    return read_picture(path, middle).transpose(2, 0, 1)


def _pictures(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not found:
        raise InputError(f"{folder} must hold pictures, {', '.join(SUFFIXES)}; there is none")
    return found
