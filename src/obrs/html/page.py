"""Parts of pages: templates, JSON for their scripts, and as many texts and small images as fit a limit of bytes."""

import base64
import io
import json
import os
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from .._arrays import host_view
from .._files import as_path, check_out
from .._pictures import SUFFIXES, pillow, read_picture
from .._text import finite
from ..errors import InputError, InputTypeError
from ..metrics.images import read_images
from ..sampling.proposals import leaves

__all__ = ["cut", "fill", "page_path", "script_json", "shorten", "show"]

_PLACE = re.compile(r"@\{([a-z_]+)\}")
_INDENT = re.compile(r"^ +", re.MULTILINE)  # of a template, which nobody reads in a page
# What could end a script or begin a tag or a comment inside it; in a JSON string the escapes mean the same.
_RISKY = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
_IMAGES, _TEXTS = 2_000_000, 20_000  # bytes of all images together, and of all texts, as they are in the page
_SIDES = (384, 256, 192, 128, 96, 64, 48, 32, 16)  # of images, in pixels
_FEW, _LENGTHS = 24, (833, 624, 468, 351, 263, 197, 147, 110)  # texts are cut, in bytes, if fewer have room whole
_NUMBERS = 6  # of a vector, that are shown
_SUFFIXES = (*SUFFIXES, ".webp", ".gif", ".bmp")


def page_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a page; raise before any work if it cannot be written there."""
    target = as_path(path, "out")
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"a page is written as .html, got {target}")
    check_out(target)
    return target


def fill(template: str, *, text: Mapping[str, Any], html: Mapping[str, str]) -> str:
    """Return the template of this name with its places `@{key}` filled: texts are escaped, pieces of HTML are not."""
    files = (Path(__file__).with_name(name) for name in (template, "colours.css"))
    source, colours = (_INDENT.sub("", path.read_text(encoding="utf-8")) for path in files)
    parts = {"colours": colours} | {key: escape(str(value)) for key, value in text.items()} | dict(html)
    return _PLACE.sub(lambda place: parts[place[1]], source)


def script_json(content: Any) -> str:
    """Return JSON for `<script type="application/json">`, in which no text can end the script.

    Example:
        >>> script_json({"text": "</script>", "K": [1.0, float("inf")]})
        '{"text":"\\\\u003c/script\\\\u003e","K":[1.0,null]}'
    """
    text = json.dumps(finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_RISKY).encode("utf-8", "replace").decode()  # a lone surrogate becomes a question mark


def shorten(values: Any, digits: int = 6) -> list[float]:
    """Return numbers with so many significant digits: short in a page, and exact enough to read."""
    return [float(f"{value:.{digits}g}") + 0.0 for value in np.asarray(values, dtype=np.float64).tolist()]


def cut(text: Any, size: int) -> str:
    """Return a text of at most so many bytes.

    Example:
        >>> cut("a long label", 9)
        'a long…'
    """
    raw = str(text).encode("utf-8", "replace")
    return raw.decode() if len(raw) <= size else raw[: size - 3].decode("utf-8", "ignore") + "…"


def show(samples: Any, rows: Any, size: int, folder: Any = None) -> tuple[str, list[str], str]:
    """Return what a page shows of these rows, or of as many of the first as there is room for.

    That is the kind, "text" or "image"; the texts, or the images as data URIs; and how they were cut, if they were.

    Args:
        samples: One item for each of `size` proposals: texts; paths of images; an array of images, shape
            `(n, channels, height, width)` or another that `obrs.evaluate` takes; an array of numbers. Of a tuple or
            dict of arrays the first counts.
        rows, size: Which of them; and how many there must be.
        folder: Where paths of images begin, and below which they must lie; by default they may lie anywhere.

    Example:
        >>> show(["a cat", "a dog"], [1], 2)
        ('text', ['a dog'], '')
        >>> kind, shown, _ = show(np.zeros((3, 8, 8), dtype=np.uint8), [0, 2], 3)
        >>> kind, shown[0][:22]
        ('image', 'data:image/png;base64,')
    """
    items: Any = next(iter(leaves(samples)), None) if isinstance(samples, tuple | dict) else samples
    if isinstance(items, str | bytes | os.PathLike) or not hasattr(items, "__getitem__"):
        raise InputTypeError(f"samples must be one item for each log-ratio, got {type(items).__name__}")
    if len(items) != size:
        raise InputError(f"samples must be one item for each of {size} log-ratios, got {len(items)}")
    rows = np.asarray(rows, dtype=np.int64)
    values: Any = host_view(items) if is_array_api_obj(items) else None
    if values is not None and values.dtype.kind not in "OUS":
        if values.ndim >= 3:
            return _show_images(_array_images(values[rows]))
        vectors = values[rows].reshape(len(rows), -1)
        more = ", …" if vectors.shape[1] > _NUMBERS else ""
        return _show_texts([", ".join(f"{x:.4g}" for x in row) + more for row in vectors[:, :_NUMBERS].tolist()])
    chosen = [items[int(row)] for row in rows]
    chosen = [item.as_py() if hasattr(item, "as_py") else item for item in chosen]  # of a column of pyarrow
    paths = [item for item in chosen if isinstance(item, str | Path) and str(item).lower().endswith(_SUFFIXES)]
    if 0 < len(paths) == len(chosen):
        return _show_images([read_picture(_path_below(folder, path), _shrink) for path in paths])
    return _show_texts(["" if item is None else str(item) for item in chosen])


def _show_texts(texts: list[str]) -> tuple[str, list[str], str]:
    """Return the texts that fit the limit; if these would be few, return more of them, cut to fit."""
    for length in (None, *_LENGTHS):
        shown = texts if length is None else [cut(text, length) for text in texts[:_FEW]]
        sizes = np.cumsum([len(script_json(text).encode()) + 1 for text in shown])
        many = int(np.searchsorted(sizes, _TEXTS, side="right"))
        if many >= min(len(texts), _FEW):
            break
    return "text", shown[:many], f"texts are cut at {length} bytes, and whole in what is kept below" if length else ""


def _show_images(images: list[Any]) -> tuple[str, list[str], str]:
    """Return the images at the largest size at which all fit, or else at the smallest."""
    for side in _SIDES:
        drawn = [_encode(image, side) for image in images]
        if sum(map(len, drawn)) <= _IMAGES:
            break
    is_cut = any(max(image.size) >= side for image in images)
    return "image", drawn, f"images have at most {side} pixels a side" if is_cut else ""


def _path_below(folder: Any, item: str | Path) -> Path:
    """Return the path of an image; refuse one outside the folder, which a file of scores could name to expose it."""
    path = Path(folder or "", item)
    if folder is not None and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        outside = f"the image {str(item)!r:.200} is not below {os.fspath(folder)!r}, and a page shows no other"
        raise InputError(f"{outside}; give the folder of the images:", give={"images_from": None})
    if not os.path.exists(path):
        raise InputError(f"there is no image {path}; paths begin at the folder of the scores")
    return path


def _array_images(values: Any) -> list[Any]:
    """Return the images of an array: bytes, or floats in [-1, 1], or in [0, 1] if none is negative."""
    library = pillow()
    is_light = values.dtype.kind == "f" and values.min(initial=0.0) >= 0
    images = read_images(values, pixels=(0, 1) if is_light else None, name="samples")
    bright = ((images.floats(0, images.n) + 1) * 127.5).round().clip(0, 255).astype(np.uint8)
    return [library.fromarray(x[0] if len(x) == 1 else np.moveaxis(x, 0, 2)) for x in bright]


def _shrink(picture: Any) -> Any:
    """Return an image in grey or RGB, at most as large as a page shows it, on white where it is transparent."""
    picture.draft("RGB", (2 * _SIDES[0], 2 * _SIDES[0]))  # large JPEG files are then read at a smaller scale
    if picture.mode in ("L", "1", "I;16"):
        image = picture.convert("L")
    else:
        clear = picture.convert("RGBA")
        image = clear.convert("RGB")
        image.paste("white", mask=clear.getchannel("A").point(lambda alpha: 255 - alpha))
    image.thumbnail((_SIDES[0], _SIDES[0]))
    return image


def _encode(image: Any, side: int) -> str:
    """Return an image as a data URI: small ones as PNG, whose pixels are meant to be seen."""
    small, file = image.copy(), io.BytesIO()
    small.thumbnail((side, side))
    kind = "png" if max(small.size) <= 48 else "jpeg"
    small.save(file, format=kind, optimize=True, **({} if kind == "png" else {"quality": 82}))
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
