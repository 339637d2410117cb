"""Images to compare: arrays of any common layout, `.npy` and `.npz` files, folders of PNG and JPEG."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays import known_values
from .._checks import check_list, is_number
from .._pictures import SUFFIXES, read_picture, to_floats
from ..errors import InputError, InputTypeError

__all__ = ["ImageSet", "channels_first", "image_files", "match_names", "read_file", "read_images"]

Floats = np.ndarray[Any, Any]

_KEYS = ("images", "x", "x0", "features", "samples", "arr_0")  # of an .npz with several arrays; x0 is `Samples.save`'s


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size, read block by block.

    Attributes:
        n: How many there are.
        shape: Channels, height and width of one; 1 or 3 channels.
        read: Returns images start to stop, uint8 or floats in [-1, 1], as `(n, channels, height, width)`.
        parts: Yields their bytes, for the hash.
    """

    n: int
    shape: tuple[int, int, int]
    read: Callable[[int, int], Floats] = field(repr=False)
    parts: Callable[[], Iterator[Any]] = field(repr=False)

    def blocks(self, size: int) -> Iterator[Floats]:
        """Yield the images as `(n, channels, height, width)`, uint8 or floats in [-1, 1], `size` at a time."""
        return (self.read(start, min(start + size, self.n)) for start in range(0, self.n, size))

    def floats(self, start: int, stop: int) -> Floats:
        """Return images start to stop as floats in [-1, 1], shape `(n, channels, height, width)`."""
        x = self.read(start, stop)
        return to_floats(x) if x.dtype == np.uint8 else x

    @cached_property
    def digest(self) -> str:
        """sha256 of the content; for a folder that of its files in the order of their names."""
        state = hashlib.sha256(repr((self.n, self.shape)).encode())
        for part in self.parts():
            state.update(part)
        return state.hexdigest()


def read_images(source: Any, *, pixels: tuple[float, float] | None = None, name: str = "images") -> ImageSet:
    """Return the images of an array, a file or a folder.

    Arrays have shape `(n, channels, height, width)`, `(n, height, width, channels)` with 1 or 3 channels, or
    `(n, height, width)` for grey. Bytes (uint8) are 0 to 255. Floats are in [-1, 1], as everywhere in this library;
    `pixels` names another range. Floats without any value below 0 are refused unless `pixels` says what they are: to
    take [0, 1] for [-1, 1] would compare washed-out images, and no metric would say so.

    Args:
        source: An array of NumPy, torch or JAX; the path of a `.npy`, of a `.npz` with one array or one called
            "images", "x" or "arr_0", or of a folder with PNG and JPEG files, also in folders inside it. Files are
            taken in the order of their names; what is not grey is read as RGB without transparency.
        pixels: The values of black and white in a float array, such as `(0, 1)`; None for (-1, 1).
        name: What an error calls them.

    Example:
        >>> found = read_images(np.zeros((5, 28, 28), dtype=np.uint8))
        >>> found.n, found.shape, next(found.blocks(2)).shape
        (5, (1, 28, 28), (2, 1, 28, 28))
    """
    if isinstance(source, ImageSet):
        return source
    if pixels is not None:
        ends = check_list(pixels, "pixels")
        if len(ends) != 2 or not all(map(is_number, ends)) or not -np.inf < ends[0] < ends[1] < np.inf:
            raise InputError(f"pixels must be the values of black and white, such as (0, 1), got {pixels!r:.60}")
        pixels = float(ends[0]), float(ends[1])
    if not isinstance(source, str | os.PathLike):
        return _array(known_values(source, name), pixels, name)
    path = Path(source).expanduser()
    return _folder(path) if path.is_dir() else _array(read_file(path)[0], pixels, str(path))


def image_files(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the PNG and JPEG files of a folder, also in folders inside it, in the order of their names."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise InputError(f"{path} is not a folder; expected one with images")
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"{path} has no image; expected files that end in {', '.join(SUFFIXES)}")
    return files


def match_names(names: Sequence[str], folder: str | os.PathLike[str], source: str) -> Floats:
    """Return, for each image of a folder in the order of their names, the position of its name in a list.

    Args:
        names: Names within the folder, each once, in any order.
        folder: With an image for each name, and no other.
        source: What an error calls the list.
    """
    home = Path(folder).expanduser()
    images = [each.relative_to(home).as_posix() for each in image_files(home)]
    place = {name: i for i, name in enumerate(names)}
    if len(place) < len(names):
        twice = next(name for i, name in enumerate(names) if place[name] != i)
        raise InputError(f"{source} has more than one score for {twice}; keep one of them")
    if without := [name for name in images if name not in place]:
        some = f"{len(without)} of {len(images)} images of {home}, the first is {without[0]}"
        raise InputError(f"{source} has no score for {some}; names are those within the folder")
    if extra := place.keys() - {*images}:
        raise InputError(f"{source} has a score for {min(extra)}, which is not an image of {home}; leave it out")
    return np.array([place[name] for name in images])


def read_file(source: str | os.PathLike[str]) -> tuple[Floats, Floats | None]:
    """Return the array in a `.npy` or `.npz` file, the only one or that of a usual name, and the labels of an `.npz`.

    A `.npy` stays on the disk until it is read. Labels are an array called "labels", None if there is none.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.npz")
        >>> np.savez(path, images=np.zeros((2, 8, 8)), labels=[3, 1])
        >>> x, labels = read_file(path)
        >>> x.shape, labels
        ((2, 8, 8), array([3, 1]))
    """
    path = Path(source).expanduser()
    if not path.exists():
        raise InputError(f"{path} does not exist; expected a .npy or .npz file, or a folder of images")
    try:
        with path.open("rb") as file:
            is_zip = file.read(2) == b"PK"
        if not is_zip:
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False)), None
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            keys = list(arrays)
            key = keys[0] if len(keys) == 1 else next((key for key in _KEYS if key in keys), None)
            if key is not None:
                return np.asarray(arrays[key]), np.asarray(arrays["labels"]) if "labels" in keys else None
    except Exception as error:  # of zipfile, zlib, struct, or the header: each has its own
        reason = f": {' '.join(str(error).split()):.120}" if path.suffix in (".npy", ".npz") else ""
        raise InputError(f"{path} is no .npy or .npz file of numbers, nor a folder of images{reason}") from error
    raise InputError(f"{path} has the arrays {', '.join(keys)}; call the one to read {_KEYS[0]!r}")


def channels_first(x: Any, name: str) -> Any:
    """Return a view of images, of NumPy or torch, as `(n, channels, height, width)`.

    Example:
        >>> channels_first(np.zeros((5, 32, 30, 3)), "x").shape, channels_first(np.zeros((5, 32, 30)), "x").shape
        ((5, 3, 32, 30), (5, 1, 32, 30))
    """
    shape = tuple(int(n) for n in x.shape)
    if 0 in shape:
        raise InputError(f"{name} must have at least one image of at least one pixel, got shape {shape}")
    if len(shape) == 3:
        return x[:, None]
    if len(shape) == 4 and shape[1] in (1, 3):
        return x
    if len(shape) == 4 and shape[3] in (1, 3):
        return x.transpose(0, 3, 1, 2) if isinstance(x, np.ndarray) else x.permute(0, 3, 1, 2)
    layouts = "(n, channels, height, width), (n, height, width, channels) or (n, height, width)"
    raise InputError(f"{name} must have shape {layouts} with 1 or 3 channels, got {shape}")


def _array(x: Floats, pixels: tuple[float, float] | None, name: str) -> ImageSet:
    x = channels_first(x, name)
    if x.dtype.kind != "f" and x.dtype != np.uint8:
        raise InputTypeError(f"{name} must be uint8, or floats in [-1, 1], got {x.dtype}")
    low, high = (-1.0, 1.0) if x.dtype == np.uint8 else _range(x, pixels, name)

    def read(start: int, stop: int) -> Floats:
        part = np.ascontiguousarray(x[start:stop])
        if part.dtype == np.uint8 or (low, high) == (-1.0, 1.0):
            return part
        return ((part - low) * (2 / (high - low)) - 1).astype(np.float32)

    def parts() -> Iterator[Any]:
        yield repr((x.dtype.str, low, high)).encode()
        yield from (np.ascontiguousarray(image).data for image in x)

    return ImageSet(len(x), (int(x.shape[1]), int(x.shape[2]), int(x.shape[3])), read, parts)


def _range(x: Floats, pixels: tuple[float, float] | None, name: str) -> tuple[float, float]:
    """Return the levels of black and white, after checking every value."""
    low, high = pixels or (-1.0, 1.0)
    least, most = float(x.min()), float(x.max())  # NaN if any is
    if not (np.isfinite(least) and np.isfinite(most)):
        bad = int(np.count_nonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1)))
        raise InputError(f"{name} must be finite, {bad} of {len(x)} are not; drop them first")
    slack = 1e-3 * (high - low)  # what a resize or a cast may add
    if least < low - slack or most > high + slack:
        got = f"got {least:g} to {most:g}; name the values of black and white with pixels=(black, white), or use uint8"
        raise InputError(f"{name} must be floats in [{low:g}, {high:g}], {got}")
    if pixels is None and least >= 0:
        raise InputError(f"{name} have no value below 0; are they in [0, 1]? then say pixels=(0, 1), else (-1, 1)")
    return low, high


def _folder(path: Path) -> ImageSet:
    files = image_files(path)
    heads = [read_picture(file, lambda image: (image.size, image.mode)) for file in files]
    (width, height), _ = heads[0]
    for file, (size, _) in zip(files, heads, strict=True):
        if size != (width, height):
            got = f"{files[0].name} is {width}x{height} and {file.name} {size[0]}x{size[1]}"
            raise InputError(f"the images of {path} must be of one size: {got}; resize them first")
    mode = "L" if all(mode in ("L", "1") for _, mode in heads) else "RGB"

    def read(start: int, stop: int) -> Floats:
        rows = [read_picture(file, lambda image: np.asarray(image.convert(mode))) for file in files[start:stop]]
        x = np.stack(rows)
        return x[:, None] if mode == "L" else np.ascontiguousarray(np.moveaxis(x, 3, 1))

    shape = (1 if mode == "L" else 3, height, width)
    return ImageSet(len(files), shape, read, lambda: (file.read_bytes() for file in files))
