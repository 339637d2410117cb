"""Images as bytes, which become numbers when they are used; and folders of pictures made into them.

Faces at 64 pixels take 2.5 GB and ImageNet at 128 takes 63 GB, four times that as numbers: neither need fit in memory.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from obrs._files import cache_folder, replacing
from obrs._pictures import SUFFIXES, read_picture, to_floats
from obrs._progress import bar
from obrs.errors import InputError

__all__ = ["Pictures", "Pixels", "celeba", "imagenet", "keep"]

Array = np.ndarray[Any, Any]
_BLOCK = 1024  # pictures that are read before they are written


class Pixels:
    """Images as bytes, such as a mapped file; `x[rows]` are those rows as float32 in [-1, 1], a slice stays bytes.

    Args:
        bytes: uint8, shape `(n, channels, height, width)`, at least one image.

    Example:
        >>> x = Pixels(np.full((5, 3, 2, 2), 255, dtype=np.uint8))
        >>> x.shape, x[1:].shape, float(x[np.array([0, 4])].max())
        ((5, 3, 2, 2), (4, 3, 2, 2), 1.0)
    """

    ndim = 4

    def __init__(self, bytes: Array) -> None:
        shape, kind = tuple(getattr(bytes, "shape", ())), getattr(bytes, "dtype", type(bytes).__name__)
        if kind != np.uint8 or len(shape) != 4 or not shape[0]:  # floats would be nearly black as bytes
            raise InputError(
                f"pixels must be uint8, 0 to 255, of shape (n, channels, height, width) with at least one image, "
                f"got {kind} of shape {shape}"
            )
        self.bytes, self.shape = bytes, tuple(int(n) for n in shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        found = self.bytes[rows]
        return Pixels(found) if isinstance(rows, slice) else to_floats(found)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = to_floats(self.bytes)
        return found if dtype is None else found.astype(dtype)


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
    faces, listed = _pictures(inside), folder / "list_eval_partition.txt"
    tested = {path.name for path in faces[::10]}
    if listed.is_file():
        tested = {line.split()[0] for line in listed.read_text().splitlines() if line.split()[-1:] == ["2"]}
    train, test = ([path for path in faces if (path.name in tested) == wanted] for wanted in (False, True))
    return Pictures(train, [0] * len(train), test, [0] * len(test))


def imagenet(folder: Path) -> Pictures:
    """Return the pictures of ImageNet, or of any folder with `train` and `val` that hold a folder for each class."""
    found: list[Any] = []
    names = sorted(path.name for path in (folder / "train").glob("*/"))
    for part in ("train", "val"):
        here = sorted(path.name for path in (folder / part).glob("*/"))
        if not here or here != names:
            raise InputError(
                f"{folder} must hold train/ and val/, and each of them a folder for each class, such as n01440764/, "
                f"with its .JPEG files; {part}/ has {len(here)} classes, train/ has {len(names)}"
            )
        files = [(path, label) for label, name in enumerate(names) for path in _pictures(folder / part / name)]
        found += [[path for path, _ in files], [label for _, label in files]]
    return Pictures(*found)


def keep(name: str, folder: Path | None, read: Callable[[Path], Pictures], size: int) -> list[Any]:
    """Return images and labels, to train on and to test; the images stay on the disk.

    The bytes are made once for each folder of pictures, in an order that mixes the classes, and again if a picture has
    changed. Without a folder they are those that were made last.

    Args:
        name: Of the data set, for the folder under OBRS_DATA where the bytes are kept.
        folder: Where the pictures are; None for the bytes that were kept last, or the pictures beside them.
        read: From the folder to the files.
        size: Pixels a side: the square in the middle of a picture is scaled to it.
    """
    home = cache_folder() / name
    made = sorted(home.glob(f"kept-{size}-*/"), key=lambda path: path.stat().st_mtime)
    if folder is None and made:
        return _read_kept(made[-1])
    pictures = read((folder or home).absolute())
    place = home / f"kept-{size}-{_fingerprint([*pictures.train, *pictures.test])}"
    for part in ("train", "test"):
        paths, labels = getattr(pictures, part), getattr(pictures, f"{part}_labels")
        if (place / f"{part}_labels.npy").exists():  # written after the images
            continue
        place.mkdir(parents=True, exist_ok=True)
        order = np.random.default_rng(0).permutation(len(paths))
        _write(place / f"{part}.npy", [paths[at] for at in order], size, f"reading {name}")
        with replacing(place / f"{part}_labels.npy") as file:
            np.save(file, np.array(labels, dtype=np.int64)[order])
    os.utime(place)
    return _read_kept(place)


def _read_kept(place: Path) -> list[Any]:
    found: list[Any] = []
    for part in ("train", "test"):
        found += [Pixels(np.load(place / f"{part}.npy", mmap_mode="r")), np.load(place / f"{part}_labels.npy")]
    return found


def _fingerprint(pictures: Sequence[Path]) -> str:
    """Return a short text that differs where the name, the size or the time of a picture does."""
    digest = hashlib.sha256()
    for path in pictures:
        facts = path.stat()
        digest.update(f"{path.name} {facts.st_size} {facts.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:12]


def _write(path: Path, pictures: Sequence[Path], size: int, title: str) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(pictures), 3, size, size)}
    with replacing(path) as file, bar(title, len(pictures)) as tell, ThreadPoolExecutor(os.cpu_count()) as pool:
        np.lib.format.write_array_header_1_0(file, header)
        for at in range(0, len(pictures), _BLOCK):
            block = pool.map(partial(_picture, size=size), pictures[at : at + _BLOCK])
            file.write(np.stack(list(block)).tobytes())
            tell(min(at + _BLOCK, len(pictures)))


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
