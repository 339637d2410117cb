"""Templates of pages: one file each, with places that are filled with escaped text, data or pieces of HTML."""

import json
import os
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from .._files import check_out, replacing
from .._text import finite
from ..errors import InputError

__all__ = ["cut", "fill", "page_path", "rounded", "script_json", "write_page"]

_PLACE = re.compile(r"@\{([a-z_]+)\}")
_INDENT = re.compile(r"^ +", re.MULTILINE)  # of a template, which nobody reads in a page
# What could end a script or begin a tag or a comment inside it; in a JSON string the escapes mean the same.
_RISKY = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def fill(template: Path, *, text: Mapping[str, Any], html: Mapping[str, str]) -> str:
    """Return a template with its places `@{key}` filled; `@{colours}` are those of all pages.

    Args:
        template: The file.
        text: Texts by key, which are escaped.
        html: Pieces by key, which are taken as they are.
    """
    files = (template, Path(__file__).with_name("colours.css"))
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


def rounded(values: Any, digits: int = 6) -> list[float]:
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


def page_path(path: str | os.PathLike[str]) -> Path:
    """Return where a page goes; refuse at once, before any work, what is no place for a page."""
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"a page is written as .html, got {target}")
    check_out(target)
    return target


def write_page(path: str | os.PathLike[str], page: str) -> Path:
    """Write a page whole or not at all, and return where it is."""
    with replacing(target := page_path(path)) as file:
        file.write(page.encode())
    return target
