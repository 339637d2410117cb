"""Small images as arrays: scikit-learn's digits, MNIST, Fashion-MNIST, CIFAR-10; CelebA and ImageNet as bytes."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from obrs._checks import check_count
from obrs._files import cache_folder
from obrs._pictures import read_picture, to_floats
from obrs._text import lookup
from obrs.errors import InputError, MissingLibraryError

from . import idx
from .fetch import DATASETS, is_here
from .pixels import Pictures, celeba, imagenet, keep, last_kept

__all__ = ["IMAGES", "PICTURES", "Images", "load"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Images:
    """Images with labels, one part for training and one for testing.

    Attributes:
        train, test: float32 in [-1, 1], shape `(n, channels, height, width)`; `Pixels` for what may not fit in memory.
        train_labels, test_labels: int64 from 0 on, shape `(n,)`.
        name: What `load` was asked for.
    """

    train: Any
    train_labels: Array
    test: Any
    test_labels: Array
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image: channels, height, width."""
        return tuple(int(n) for n in self.train.shape[1:])

    @property
    def classes(self) -> int:
        """Number of different labels."""
        return int(max(self.train_labels.max(), self.test_labels.max())) + 1


def load(name: str = "digits", *, folder: str | os.PathLike[str] | None = None, size: int | None = None) -> Images:
    """Return a data set of images.

    `digits` comes with scikit-learn: 1797 images of 8x8, 1500 of them to train on. The others must be fetched first,
    by `python -m paper fetch NAME`; this function never uses the network. `celeba` and `imagenet` are
    read from a folder of yours, once, and kept as bytes under OBRS_DATA: the pictures may go then.

    Args:
        name: A key of `IMAGES`.
        folder: Read the files of this folder, as they are; None reads what was fetched. Pictures of `celeba` and
            `imagenet` that changed are read again if their folder is named. None reads the bytes that were kept last,
            or else the pictures in the folder of that name under OBRS_DATA.
        size: Pad with black to this many pixels per side, such as 32 for networks that halve the size five times.

    Example:
        >>> digits = load("digits")
        >>> digits.train.shape, digits.test.shape, digits.classes
        ((1500, 1, 8, 8), (297, 1, 8, 8), 10)
    """
    images = lookup(IMAGES, name, "data set of images")(None if folder is None else Path(folder).expanduser())
    return images if size is None else _padded(images, check_count(size, "size"))  # of bytes, too: as numbers


def _digits(folder: Path | None) -> Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingLibraryError("the digits need scikit-learn: pip install 'obrs[torch]'") from error
    if folder is not None:
        raise InputError("digits come with scikit-learn, not from a folder; leave folder out")
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    x, y = (pixels[order] / 8 - 1).astype(np.float32).reshape(-1, 1, 8, 8), labels[order].astype(np.int64)
    return Images(x[:1500], y[:1500], x[1500:], y[1500:], "digits")


def _idx(name: str, folder: Path | None) -> Images:
    if folder is None and not is_here(name):
        where = f"{name} is not in {cache_folder()}"
        raise InputError(f"{where}: run `python -m paper fetch {name}`, or say folder= if you have it")
    home = cache_folder() / name if folder is None else folder
    paths = {file: idx.find(home, file) for file in DATASETS[name].files}
    for file, path in paths.items():
        if path is None:
            raise InputError(f"{home} must hold {', '.join(paths)}, plain or .gz; {file} is not there")
    train, train_labels, test, test_labels = (idx.read(path) for path in paths.values() if path)
    for x, y, part in ((train, train_labels, "train"), (test, test_labels, "test")):
        if x.ndim != 3 or not x.size or y.shape != x.shape[:1]:
            raise InputError(f"{home} must hold n images and n labels to {part}, got {x.shape} and {y.shape}")
    return Images(_floats(train), train_labels.astype(np.int64), _floats(test), test_labels.astype(np.int64), name)


def _cifar10(folder: Path | None) -> Images:
    """Read PNGs in which each row of pixels is an image."""
    if folder is None and not is_here("cifar10"):
        where = f"cifar10 is not in {cache_folder()}"
        raise InputError(f"{where}: run `python -m paper fetch cifar10`, or say folder= if you have it")
    home = cache_folder() / "cifar10" if folder is None else folder
    names = DATASETS["cifar10"].files
    for name in names:
        if not (home / name).is_file():
            raise InputError(f"{home} must hold {', '.join(names)}; {name} is not there")

    def pixels(name: str) -> Array:
        rows = read_picture(home / name, lambda image: np.asarray(image.convert("RGB")))
        if rows.shape[1] != 32 * 32:
            raise InputError(f"{home / name} must have an image of 32x32 in each row, got rows of {rows.shape[1]}")
        return to_floats(rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))

    parts = [np.concatenate([pixels(name) for name in names if name.startswith("data")]), pixels("test_batch.png")]
    labels = [_listed(home / f"{part}_lables.json") for part in ("train", "test")]
    for images, own, part in zip(parts, labels, ("train", "test"), strict=True):
        if own.shape != images.shape[:1]:
            raise InputError(f"{home} must hold n images and n labels to {part}, got {len(images)} and {own.shape}")
    return Images(parts[0], labels[0], parts[1], labels[1], "cifar10")


def _listed(path: Path) -> Array:
    """Return the labels of a JSON list."""
    try:
        labels = np.array(json.loads(path.read_bytes()))
    except (ValueError, RecursionError) as error:  # no text, no JSON, or lists of several lengths
        raise InputError(f"{path} must hold a list of labels as JSON: {error}; get it again") from error
    if labels.dtype.kind != "i" or labels.min() < 0:
        raise InputError(f"{path} must hold whole numbers from 0 on, got {labels.ravel().tolist()!r:.40}; get it again")
    return labels.astype(np.int64)


PICTURES: dict[str, tuple[str, Callable[[Path], Pictures], int]] = {
    "celeba": ("faces, 64x64", celeba, 64),
    "imagenet": ("a thousand classes, 128x128", imagenet, 128),
}
"""Data sets that lie in a folder of the user, by name: a few words, how they lie there, and pixels a side."""


def _from_pictures(name: str, folder: Path | None) -> Images:
    """Read what is kept; or else, and whenever a folder is named, look at its pictures."""
    _, find, size = PICTURES[name]
    found = last_kept(name) if folder is None else None
    if found is None or not found.is_here():
        place = folder or (found.folder if found else cache_folder() / name)
        place = place.absolute()  # the same place from every working folder
        found = keep(name, place, find(place), size)
    train, train_labels, test, test_labels = found.read()
    return Images(train, train_labels, test, test_labels, name)


IMAGES: dict[str, Callable[[Path | None], Images]] = {
    "digits": _digits,
    "mnist": partial(_idx, "mnist"),
    "fashion_mnist": partial(_idx, "fashion_mnist"),
    "cifar10": _cifar10,
    **{name: partial(_from_pictures, name) for name in PICTURES},
}
"""Data sets of images, by name, as functions of the folder to read."""


def _floats(pixels: Array) -> Array:
    """Return bytes as one channel of float32 in [-1, 1]."""
    return to_floats(pixels[:, None])


def _padded(images: Images, size: int) -> Images:
    height, width = images.shape[1:]
    if size < max(height, width):
        raise InputError(f"size must be at least that of the images, {height}x{width}, got {size}")
    before = (size - height) // 2, (size - width) // 2
    sides = [(0, 0), (0, 0), (before[0], size - height - before[0]), (before[1], size - width - before[1])]
    pad = partial(np.pad, pad_width=sides, constant_values=np.float32(-1))
    return replace(images, train=pad(images.train), test=pad(images.test))
