"""Small images as arrays: scikit-learn's digits, MNIST, Fashion-MNIST; CIFAR-10 as bytes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from obrs._files import cache_folder
from obrs._pictures import read_picture, to_floats
from obrs._text import lookup
from obrs.errors import InputError, MissingLibraryError

from .fetch import DATASETS, is_here

__all__ = ["IMAGES", "Images", "Pixels", "load"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Images:
    """Images with labels, one part for training and one for testing."""

    train: Any  # float32 in [-1, 1], shape `(n, channels, height, width)`; `Pixels` for what is kept as bytes
    train_labels: Array  # int64 from 0 on, shape `(n,)`
    test: Any
    test_labels: Array


class Pixels:
    """Images as bytes; `x[rows]` are those rows as float32 in [-1, 1], a slice stays bytes.

    As numbers they take four times as much memory.

    Example:
        >>> x = Pixels(np.full((5, 3, 2, 2), 255, dtype=np.uint8))
        >>> x.shape, x[1:].shape, float(x[np.array([0, 4])].max())
        ((5, 3, 2, 2), (4, 3, 2, 2), 1.0)
    """

    def __init__(self, bytes: Array) -> None:
        self.bytes, self.shape = bytes, bytes.shape

    def __len__(self) -> int:
        return len(self.bytes)

    def __getitem__(self, rows: Any) -> Any:
        return Pixels(self.bytes[rows]) if isinstance(rows, slice) else to_floats(self.bytes[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(to_floats(self.bytes), dtype)


def load(name: str = "digits") -> Images:
    """Return a data set of images, a key of `IMAGES`.

    `digits` comes with scikit-learn: 1797 images of 8x8, 1500 of them to train on. The others must be fetched first, by
    `python -m paper fetch NAME`; this function never uses the network.

    Example:
        >>> digits = load("digits")
        >>> digits.train.shape, digits.test.shape
        ((1500, 1, 8, 8), (297, 1, 8, 8))
    """
    return lookup(IMAGES, name, "data set of images")()


def _digits() -> Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingLibraryError("the digits need scikit-learn: pip install 'obrs[torch]'") from error
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    x, y = (pixels[order] / 8 - 1).astype(np.float32).reshape(-1, 1, 8, 8), labels[order].astype(np.int64)
    return Images(x[:1500], y[:1500], x[1500:], y[1500:])


def _files(name: str) -> list[Path]:
    """Return the files of a data set in the cache, whose content was checked when they were fetched."""
    if not is_here(name):
        where = f"{name} is not in {cache_folder()}"
        raise InputError(f"{where}: run `python -m paper fetch {name}`, with --folder DIR if you have its files")
    return [cache_folder() / name / file for file in DATASETS[name].files]


def _idx(name: str) -> Images:
    train, train_labels, test, test_labels = map(_read_idx, _files(name))
    images = (to_floats(x[:, None]) for x in (train, test))
    return Images(next(images), train_labels.astype(np.int64), next(images), test_labels.astype(np.int64))


def _read_idx(path: Path) -> Array:
    """Return the unsigned bytes of an IDX file."""
    raw = path.read_bytes()
    start = 4 + 4 * raw[3]
    return np.frombuffer(raw, np.uint8, offset=start).reshape(np.frombuffer(raw[4:start], dtype=">u4"))


def _cifar10() -> Images:
    """Read PNGs in which each row of pixels is an image, and lists of labels."""
    *batches, test, train_labels, test_labels = _files("cifar10")

    def pixels(path: Path) -> Array:
        rows = read_picture(path, lambda image: np.asarray(image.convert("RGB")))
        return rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

    parts = (np.concatenate([pixels(path) for path in batches]), np.ascontiguousarray(pixels(test)))
    labels = (np.array(json.loads(path.read_bytes()), dtype=np.int64) for path in (train_labels, test_labels))
    return Images(Pixels(np.ascontiguousarray(parts[0])), next(labels), Pixels(parts[1]), next(labels))


IMAGES: dict[str, Callable[[], Images]] = {
    "digits": _digits,
    "mnist": partial(_idx, "mnist"),
    "fashion_mnist": partial(_idx, "fashion_mnist"),
    "cifar10": _cifar10,
}
"""Data sets of images, by name."""
