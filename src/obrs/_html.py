"""Small pieces of HTML for notebooks: text that is escaped, and plain tables without scripts."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = ["paragraph", "table"]


def paragraph(text: Any, *, strong: str = "") -> str:
    """Return a paragraph, with a few strong words before it.

    Example:
        >>> paragraph("r < 1 & more", strong="note")
        '<p><strong>note</strong> r &lt; 1 &amp; more</p>'
    """
    first = f"<strong>{escape(strong)}</strong> " if strong else ""
    return f"<p>{first}{escape(str(text))}</p>"


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], *, caption: str = "", notes: Iterable[str] = ()) -> str:
    """Return a table: the first cell of each row is its name, the others stand to the right; notes follow it.

    Example:
        >>> print(table(["K", "kept"], [["2", "50 %"]]))
        <table><thead><tr><th>K</th><th>kept</th></tr></thead>
        <tbody><tr><th>2</th><td>50 %</td></tr></tbody></table>
    """
    titles = "".join(f"<th>{escape(str(cell))}</th>" for cell in head)
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    lines = (
        f"<tr><th>{escape(str(first))}</th>{''.join(f'<td>{escape(str(cell))}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    drawn = f"<table>{named}<thead><tr>{titles}</tr></thead>\n<tbody>" + "\n".join(lines) + "</tbody></table>"
    return "\n".join([drawn, *(paragraph(note) for note in notes if note)])
