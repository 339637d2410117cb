"""Small images as arrays: scikit-learn's digits, MNIST, Fashion-MNIST; CIFAR-10, CelebA and ImageNet as bytes."""

import gzip
import json
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from obrs._files import cache_folder
from obrs._pictures import read_picture, to_floats
from obrs._text import lookup
from obrs.errors import InputError, MissingLibraryError

from .fetch import DATASETS, find, is_here
from .pixels import Pictures, Pixels, celeba, imagenet, keep

__all__ = ["IMAGES", "PICTURES", "Images", "load"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Images:
    """Images with labels, one part for training and one for testing.

    Attributes:
        train, test: float32 in [-1, 1], shape `(n, channels, height, width)`; `Pixels` for what is kept as bytes.
        train_labels, test_labels: int64 from 0 on, shape `(n,)`.
    """

    train: Any
    train_labels: Array
    test: Any
    test_labels: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image: channels, height, width."""
        return tuple(int(n) for n in self.train.shape[1:])

    @property
    def classes(self) -> int:
        """Number of different labels."""
        return int(max(self.train_labels.max(), self.test_labels.max())) + 1


def load(name: str = "digits", *, folder: str | os.PathLike[str] | None = None) -> Images:
    """Return a data set of images.

    `digits` comes with scikit-learn: 1797 images of 8x8, 1500 of them to train on. The others must be fetched first, by
    `python -m paper fetch NAME`; this function never uses the network. `celeba` and `imagenet` are read from a folder
    of yours, once, and kept as bytes under OBRS_DATA: the pictures may go then.

    Args:
        name: A key of `IMAGES`.
        folder: Read the files of this folder, as they are; None reads what was fetched or kept.

    Example:
        >>> digits = load("digits")
        >>> digits.train.shape, digits.test.shape, digits.classes
        ((1500, 1, 8, 8), (297, 1, 8, 8), 10)
    """
    return lookup(IMAGES, name, "data set of images")(None if folder is None else Path(folder).expanduser())


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
    return Images(x[:1500], y[:1500], x[1500:], y[1500:])


def _files(name: str, folder: Path | None) -> list[Path]:
    """Return the files of a data set, in the order of `DATASETS`."""
    if folder is None and not is_here(name):
        where = f"{name} is not in {cache_folder()}"
        raise InputError(f"{where}: run `python -m paper fetch {name}`, or say folder= if you have it")
    home, paths = cache_folder() / name if folder is None else folder, []
    for file in DATASETS[name].files:
        path = find(home, file)
        if path is None:
            raise InputError(f"{home} must hold {', '.join(DATASETS[name].files)}; {file} is not there")
        paths.append(path)
    return paths


def _paired(home: Path, x: Any, labels: Array, part: str) -> tuple[Any, Array]:
    if len(x) != len(labels) or not len(x):
        raise InputError(f"{home} must hold n images and n labels to {part}, got {len(x)} and {len(labels)}")
    return x, labels


def _idx(name: str, folder: Path | None) -> Images:
    paths = _files(name, folder)
    train, train_labels, test, test_labels = (_read_idx(path) for path in paths)
    pairs = ((train, train_labels, "train"), (test, test_labels, "test"))
    found = [_paired(paths[0].parent, to_floats(x[:, None]), y.astype(np.int64), part) for x, y, part in pairs]
    return Images(*found[0], *found[1])


def _read_idx(path: Path) -> Array:
    """Return the unsigned bytes of an IDX file, plain or gzipped."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is damaged: {str(error).rstrip('.').lower()}; get it again") from error
    if len(raw) < 8 or raw[:3] != bytes([0, 0, 8]):
        raise InputError(f"{path} is not an IDX file of bytes: it starts with {raw[:4].hex() or 'nothing'}")
    start = 4 + 4 * raw[3]
    shape = tuple(np.frombuffer(raw[4:start], dtype=">u4").tolist())
    if len(raw) - start != prod(shape):
        raise InputError(f"{path} must hold {prod(shape)} bytes for {shape}, got {len(raw) - start}; get it again")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def _cifar10(folder: Path | None) -> Images:
    """Read PNGs in which each row of pixels is an image."""
    paths = {path.name: path for path in _files("cifar10", folder)}

    def pixels(path: Path) -> Array:
        rows = read_picture(path, lambda image: np.asarray(image.convert("RGB")))
        if rows.shape[1] != 32 * 32:
            raise InputError(f"{path} must have an image of 32x32 in each row, got rows of {rows.shape[1]}")
        return rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

    train = np.concatenate([pixels(path) for name, path in paths.items() if name.startswith("data")])
    found: list[Any] = []
    for x, part in ((train, "train"), (pixels(paths["test_batch.png"]), "test")):
        path = paths[f"{part}_lables.json"]
        found += _paired(path.parent, Pixels(np.ascontiguousarray(x)), _read_labels(path), part)
    return Images(*found)


def _read_labels(path: Path) -> Array:
    """Return the labels of a JSON list."""
    try:
        labels = np.array(json.loads(path.read_bytes()))
    except ValueError as error:
        raise InputError(f"{path} must hold a list of labels as JSON: {error}; get it again") from error
    if labels.dtype.kind != "i" or labels.min() < 0:
        raise InputError(f"{path} must hold whole numbers from 0 on, got {labels.ravel().tolist()!r:.40}; get it again")
    return labels.astype(np.int64)


PICTURES: dict[str, tuple[str, Callable[[Path], Pictures], int]] = {
    "celeba": ("faces, 64x64", celeba, 64),
    "imagenet": ("a thousand classes, 128x128", imagenet, 128),
}
"""Data sets that lie in a folder of the user, by name: a few words, how they lie there, and pixels a side."""


def _pictures(name: str, folder: Path | None) -> Images:
    _, find_pictures, size = PICTURES[name]
    found = keep(name, folder, find_pictures, size)
    return Images(*found)


IMAGES: dict[str, Callable[[Path | None], Images]] = {
    "digits": _digits,
    "mnist": partial(_idx, "mnist"),
    "fashion_mnist": partial(_idx, "fashion_mnist"),
    "cifar10": _cifar10,
    **{name: partial(_pictures, name) for name in PICTURES},
}
"""Data sets of images, by name, as functions of the folder to read."""
