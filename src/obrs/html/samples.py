"""The samples that a page shows: as many as it has room for, whole if they can be, as texts or as small images."""

import base64
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from .._arrays import host_view
from .._pictures import SUFFIXES, pillow, read_picture
from ..errors import InputError, InputTypeError
from ..metrics.images import read_images
from ..sampling.proposals import leaves
from .template import cut, script_json

__all__ = ["Shown", "choose", "show"]

_SHOWN, _FEW = 96, 24  # samples in a page, at most; and how many of them are cut rather than left out
_IMAGES = 2_000_000  # bytes of all images together, as they are in the page
_TEXTS = 20_000  # bytes of all texts together
_SIDES = (384, 256, 192, 128, 96, 64, 48, 32, 16)  # of images, in pixels
_SUFFIXES = (*SUFFIXES, ".webp", ".gif", ".bmp")
_NUMBERS = 6  # of a vector, that are shown

Shown = tuple[str, list[str], str]
"""The kind, "text" or "image"; what to show, texts or data URIs; and how they were cut, if they were."""


def choose(n: int) -> Any:
    """Return which of n samples are shown: all of them, or some at random, always the same."""
    return np.arange(n) if n <= _SHOWN else np.random.default_rng(0).permutation(n)[:_SHOWN]


def show(samples: Any, rows: Any, size: int, folder: Any = None) -> Shown:
    """Return what a page shows of these rows, or of the first of them, as far as there is room.

    Args:
        samples: One item for each of `size` proposals: texts; paths of images; an array of images, shape
            `(n, channels, height, width)` or another that `obrs.evaluate` takes; an array of numbers. Of a tuple or
            dict of arrays the first counts.
        rows: Which of them.
        size: How many there must be.
        folder: Where paths of images begin, and below which they must lie; by default they may lie anywhere.

    Example:
        >>> show(["a cat", "a dog"], [1], 2)
        ('text', ['a dog'], '')
        >>> kind, shown, _ = show(np.zeros((3, 8, 8), dtype=np.uint8), [0, 2], 3)
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
            return _show_images(_array_images(values[rows]))
        return _show_texts([_vector_text(value) for value in values[rows]])
    chosen = [items[int(row)] for row in rows]
    chosen = [item.as_py() if hasattr(item, "as_py") else item for item in chosen]  # of a column of pyarrow
    if chosen and all(_is_image_path(item) for item in chosen):
        return _show_images([read_picture(_path_below(folder, item), _shrink) for item in chosen])
    return _show_texts(["" if item is None else str(item) for item in chosen])


def _show_texts(texts: list[str]) -> Shown:
    """Return all texts, or the first that have room; or, if those were few, a few that are cut."""
    sizes = np.cumsum([len(script_json(text).encode()) + 1 for text in texts])
    many = int(np.searchsorted(sizes, _TEXTS, side="right"))
    if many >= min(len(texts), _FEW):
        return "text", texts[:many], ""
    length, few = _TEXTS // _FEW, texts[:_FEW]
    while len(script_json([cut(text, length) for text in few]).encode()) > _TEXTS and length > 8:
        length = 3 * length // 4
    limit = f"texts are cut at {length:,} bytes, and whole in what is kept below"
    return "text", [cut(text, length) for text in few], limit


def _show_images(images: Sequence[Any]) -> Shown:
    """Return images at the first size at which all of them have room, or at the last."""
    for side in _SIDES:
        drawn = [_encode(image, side) for image in images]
        if sum(map(len, drawn)) <= _IMAGES:
            break
    largest = max((max(image.size) for image in images), default=0)
    return "image", drawn, f"images have at most {side} pixels a side" if largest >= side else ""


def _path_below(folder: Any, item: str | os.PathLike[str]) -> Path:
    """Return the path of an image; refuse one outside the folder, which a file of scores could name to expose it."""
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


def _is_image_path(item: Any) -> bool:
    named = isinstance(item, os.PathLike) or (isinstance(item, str) and len(item) < 4096 and "\n" not in item)
    return named and os.path.splitext(os.fspath(item))[1].lower() in _SUFFIXES


def _vector_text(value: Any) -> str:
    numbers = [f"{x:.4g}" for x in np.atleast_1d(value)[:_NUMBERS].tolist()]
    return ", ".join([*numbers, *(["…"] if np.size(value) > _NUMBERS else [])])


def _array_images(values: Any) -> list[Any]:
    """Return the images of an array: bytes, or floats in [-1, 1]; without any value below 0, in [0, 1]."""
    library = pillow()
    is_light = values.dtype.kind == "f" and values.min(initial=0.0) >= 0
    found = read_images(values, pixels=(0, 1) if is_light else None, name="samples")
    bright = ((found.floats(0, found.n) + 1) * 127.5).round().clip(0, 255).astype(np.uint8)
    return [library.fromarray(x[0] if len(x) == 1 else np.moveaxis(x, 0, 2)) for x in bright]


def _shrink(found: Any) -> Any:
    """Return an image in grey or RGB, at most as large as a page shows it, on white where it is transparent."""
    found.draft("RGB", (2 * _SIDES[0], 2 * _SIDES[0]))  # large JPEG files are then read at a smaller scale
    if found.mode in ("L", "1", "I;16"):
        image = found.convert("L")
    else:
        clear = found.convert("RGBA")
        image = clear.convert("RGB")
        image.paste("white", mask=clear.getchannel("A").point(lambda alpha: 255 - alpha))
    image.thumbnail((_SIDES[0], _SIDES[0]))
    return image


def _encode(image: Any, side: int) -> str:
    """Return an image as a data URI; pixels of small ones are meant to be seen."""
    small, file = image.copy(), io.BytesIO()
    small.thumbnail((side, side))
    kind = "png" if max(small.size) <= 48 else "jpeg"
    small.save(file, format=kind, optimize=True, **({} if kind == "png" else {"quality": 82}))
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
