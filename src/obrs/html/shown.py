"""The samples that a report shows: a few of them, as texts or as thumbnails, small enough for one page."""

import base64
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from .._arrays import host_view
from .._pictures import SUFFIXES, read_picture
from ..errors import InputError, InputTypeError, MissingLibraryError
from ..metrics.images import read_images
from ..sampling.proposals import leaves
from .template import cut

__all__ = ["SHOWN", "choose", "is_image_path", "show"]

SHOWN = 96  # samples in a page, at most
_TEXT = 18_000  # bytes of all texts together
_IMAGES = 2_000_000  # bytes of all thumbnails together, as they are in the page
_LENGTHS = (18_000, 9000, 4500, 2200, 1100, 550, 350, 250, 180)  # of texts, in bytes
_SIDES = (128, 96, 64, 48, 32, 16)  # of thumbnails, in pixels
_SUFFIXES = (*SUFFIXES, ".webp", ".gif", ".bmp")
_NUMBERS = 6  # of a vector, that are shown


def choose(n: int) -> Any:
    """Return which of n samples are shown, ascending: all of them, or some at random, always the same."""
    return np.arange(n) if n <= SHOWN else np.sort(np.random.default_rng(0).choice(n, SHOWN, replace=False))


def show(samples: Any, rows: Any, size: int, folder: str | os.PathLike[str] | None = None) -> tuple[str, list[str]]:
    """Return "text" or "image", and what to show of these rows: texts, or thumbnails as data URIs.

    Args:
        samples: One item for each of `size` proposals: texts; paths of images; an array of images, shape
            `(n, channels, height, width)` or another that `obrs.evaluate` takes; an array of numbers. Of a tuple or
            dict of arrays the first counts.
        rows: Which of them.
        size: How many there must be.
        folder: Where paths of images begin, and below which they must lie; by default they may lie anywhere.

    Example:
        >>> show(["a cat", "a dog"], [1], 2)
        ('text', ['a dog'])
        >>> kind, shown = show(np.zeros((3, 8, 8), dtype=np.uint8), [0, 2], 3)
        >>> kind, shown[0][:22]
        ('image', 'data:image/png;base64,')
    """
    items = leaves(samples)[0] if isinstance(samples, tuple | dict) else samples
    if isinstance(items, str | bytes | os.PathLike) or not hasattr(items, "__len__"):
        raise InputTypeError(f"samples must be one item for each log-ratio, got {type(items).__name__}")
    if len(items) != size:
        raise InputError(f"samples must be one item for each of {size} log-ratios, got {len(items)}")
    rows = np.asarray(rows, dtype=np.int64)
    values: Any = host_view(items) if is_array_api_obj(items) else None
    if values is not None and values.dtype.kind not in "OUS":
        if values.ndim >= 3:
            return "image", _fitting(_encoded, _of_array(values[rows]), _SIDES, _IMAGES)
        return "text", [_vector(value) for value in values[rows]]
    chosen = [items[int(row)] for row in rows]
    chosen = [item.as_py() if hasattr(item, "as_py") else item for item in chosen]  # of a column of pyarrow
    if chosen and all(is_image_path(item) for item in chosen):
        return "image", _fitting(
            _encoded, [read_picture(_below(folder, item), _small) for item in chosen], _SIDES, _IMAGES
        )
    return "text", _fitting(cut, ["" if item is None else item for item in chosen], _LENGTHS, _TEXT)


def _below(folder: str | os.PathLike[str] | None, item: str | os.PathLike[str]) -> Path:
    """Return the path of an image; refuse one outside the folder: whoever wrote the file may want to see it."""
    path = Path(folder or "", item)
    if folder is not None and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise InputError(
            f"the image {os.fspath(item)!r:.200} is not below {os.fspath(folder)!r}, and a page shows no other; "
            "give the folder of the images:",
            give={"images_from": None},
        )
    if not os.path.exists(path):
        raise InputError(f"there is no image {path}; paths begin at the folder of the scores")
    return path


def is_image_path(item: Any) -> bool:
    """Tell whether this is the path of an image, by its extension."""
    named = isinstance(item, os.PathLike) or (isinstance(item, str) and len(item) < 4096 and "\n" not in item)
    return named and os.path.splitext(os.fspath(item))[1].lower() in _SUFFIXES


def _vector(value: Any) -> str:
    numbers = [f"{x:.4g}" for x in np.atleast_1d(value)[:_NUMBERS].tolist()]
    return ", ".join([*numbers, *(["…"] if np.size(value) > _NUMBERS else [])])


def _fitting(draw: Callable[[Any, int], str], items: Sequence[Any], sizes: Sequence[int], limit: int) -> list[str]:
    """Return items drawn at the first size at which all of them together stay within a limit, or at the last size."""
    drawn: list[str] = []
    for size in sizes:
        drawn = [draw(item, size) for item in items]
        if sum(len(text.encode()) for text in drawn) <= limit:
            break
    return drawn


def _of_array(values: Any) -> list[Any]:
    """Return the images of an array: bytes, or floats in [-1, 1]; without any value below 0, in [0, 1]."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingLibraryError("to show images needs Pillow: pip install 'obrs[cli]'") from error
    is_light = values.dtype.kind == "f" and values.min(initial=0.0) >= 0
    found = read_images(values, pixels=(0, 1) if is_light else None, name="samples")
    bright = ((found.floats(0, found.n) + 1) * 127.5).round().clip(0, 255).astype(np.uint8)
    return [Image.fromarray(x[0] if len(x) == 1 else np.moveaxis(x, 0, 2)) for x in bright]


def _small(found: Any) -> Any:
    """Return an image in grey or RGB, at most as large as the largest thumbnail, on white where it is transparent."""
    found.draft("RGB", (2 * _SIDES[0], 2 * _SIDES[0]))  # large JPEG files are then read at a smaller scale
    if found.mode in ("L", "1", "I;16"):
        image = found.convert("L")
    else:
        clear = found.convert("RGBA")
        image = clear.convert("RGB")
        image.paste("white", mask=clear.getchannel("A").point(lambda alpha: 255 - alpha))
    image.thumbnail((_SIDES[0], _SIDES[0]))
    return image


def _encoded(image: Any, side: int) -> str:
    small = image.copy()
    small.thumbnail((side, side))
    exact = io.BytesIO()
    small.save(exact, format="PNG", optimize=True)
    choices = {"png": exact.getvalue()}
    if max(small.size) > 48:  # pixels of smaller ones are meant to be seen
        lossy = io.BytesIO()
        small.save(lossy, format="JPEG", quality=82, optimize=True)
        choices["jpeg"] = lossy.getvalue()
    kind = min(choices, key=lambda name: len(choices[name]))
    return f"data:image/{kind};base64,{base64.b64encode(choices[kind]).decode()}"
