"""Small images as arrays: scikit-learn's digits, MNIST and Fashion-MNIST."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._inputs import check_count
from .._names import lookup
from ..errors import InputError, MissingLibraryError
from . import idx
from .fetch import DATASETS, cache_folder, is_here

__all__ = ["IMAGES", "Images", "load"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Images:
    """Images with labels, one part for training and one for testing.

    Attributes:
        train, test: float32 in [-1, 1], shape `(n, channels, height, width)`.
        train_labels, test_labels: int64 from 0 on, shape `(n,)`.
        name: What `load` was asked for.
    """

    train: Array
    train_labels: Array
    test: Array
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
    by `obrs data fetch NAME` or `obrs.data.fetch.fetch(NAME)`; this function never uses the network.

    Args:
        name: A key of `IMAGES`.
        folder: Read the IDX files, plain or gzipped, of this folder, as they are; None reads what was fetched.
        size: Pad with black to this many pixels per side, such as 32 for networks that halve the size five times.

    Example:
        >>> digits = load("digits")
        >>> digits.train.shape, digits.test.shape, digits.classes
        ((1500, 1, 8, 8), (297, 1, 8, 8), 10)
    """
    images = lookup(IMAGES, name, "data set of images")(None if folder is None else Path(folder).expanduser())
    return images if size is None else _padded(images, check_count(size, "size"))


def _digits(folder: Path | None) -> Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingLibraryError("the digits need scikit-learn: pip install 'obrs[ratios]'") from error
    if folder is not None:
        raise InputError("digits come with scikit-learn, not from a folder; leave folder out")
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    x, y = (pixels[order] / 8 - 1).astype(np.float32).reshape(-1, 1, 8, 8), labels[order].astype(np.int64)
    return Images(x[:1500], y[:1500], x[1500:], y[1500:], "digits")


def _idx(name: str, folder: Path | None) -> Images:
    if folder is None and not is_here(name):
        where = f"{name} is not in {cache_folder()}"
        raise InputError(f"{where}: run `obrs data fetch {name}`, or say folder= if you have it")
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


IMAGES: dict[str, Callable[[Path | None], Images]] = {
    "digits": _digits,
    "mnist": partial(_idx, "mnist"),
    "fashion_mnist": partial(_idx, "fashion_mnist"),
}
"""Data sets of images, by name, as functions of the folder to read."""


def _floats(pixels: Array) -> Array:
    """Return bytes as one channel of float32 in [-1, 1]."""
    x = pixels[:, None].astype(np.float32)
    x /= np.float32(127.5)
    x -= np.float32(1)
    return x


def _padded(images: Images, size: int) -> Images:
    height, width = images.shape[1:]
    if size < max(height, width):
        raise InputError(f"size must be at least that of the images, {height}x{width}, got {size}")
    before = (size - height) // 2, (size - width) // 2
    sides = [(0, 0), (0, 0), (before[0], size - height - before[0]), (before[1], size - width - before[1])]
    pad = partial(np.pad, pad_width=sides, constant_values=np.float32(-1))
    return replace(images, train=pad(images.train), test=pad(images.test))
