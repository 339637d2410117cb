"""The page of an experiment: its picture, its table and its record, in one file."""

import base64
from collections.abc import Mapping
from typing import Any

from .._tables import html_table
from .template import fill

__all__ = ["record_page"]


def record_page(
    *,
    name: str,
    label: str,
    shows: str,
    command: str,
    text: str,
    picture: bytes,
    record: bytes,
    facts: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return the page.

    Args:
        name: The experiment; also the name under which its record is saved.
        label: What it is in the paper.
        shows: What it shows, in a line.
        command: What runs it again.
        text: Its table, as aligned text.
        picture: Its picture, a PNG.
        record: Its JSON, which the page holds whole.
        facts: Tables of names and values, by title.
    """
    tables = (
        html_table([title, ""], [(key, _value(value)) for key, value in rows.items()]) for title, rows in facts.items()
    )
    return fill(
        "record.html",
        text={"name": name, "label": label, "shows": shows, "command": command, "text": text},
        html={
            "picture": _uri(picture, "image/png"),
            "record": _uri(record, "application/json"),
            "facts": "\n".join(f"<div>{drawn}</div>" for drawn in tables),
        },
    )


def _uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
