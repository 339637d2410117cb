"""Tables, in one style: as aligned text, and as plain HTML for notebooks, escaped and without scripts."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["html_table", "paragraph", "plan_table", "text_table"]


def text_table(head: Sequence[Any], rows: Iterable[Sequence[Any]], *, left: int = 1, gap: int = 2) -> str:
    """Return a table as text: the first `left` columns are names, the others stand to the right.

    A cell may have several lines. `gap` is how many spaces are between columns, one where there is little room.

    Example:
        >>> print(text_table(["rule", "K", "KL"], [["obrs", "2", "0.1"], ["drs", "2", "0.12"]]))
        rule  K    KL
        obrs  2   0.1
        drs   2  0.12
    """
    cells = [[str(cell).split("\n") for cell in line] for line in (head, *rows)]
    widths = [max(len(part) for line in cells for part in line[column]) for column in range(len(cells[0]))]
    lines = []
    for line in cells:
        for i in range(max(map(len, line))):
            parts = [cell[i] if i < len(cell) else "" for cell in line]
            placed = [
                part.ljust(width) if column < left else part.rjust(width)
                for column, (part, width) in enumerate(zip(parts, widths, strict=True))
            ]
            lines.append((gap * " ").join(placed).rstrip())
    return "\n".join(lines)


def plan_table(
    plan: Iterable[Mapping[str, Any]], titles: Iterable[str], cells: Iterable[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a plan: the budget, cells with these titles, and what n samples cost if n is known.

    Example:
        >>> plan_table([{"budget": 2.0, "proposals": 5000}], ["kl"], [["0.1"]])
        (['budget', 'kl', 'proposals'], [['2', '0.1', '5,000']])
    """
    rows, has_cost = [], False
    for row, line in zip(plan, cells, strict=True):
        has_cost = row["proposals"] is not None
        rows.append([f"{row['budget']:g}", *line, *([f"{row['proposals']:,.0f}"] if has_cost else [])])
    return ["budget", *titles, *(["proposals"] if has_cost else [])], rows


def paragraph(text: Any, *, strong: str = "") -> str:
    """Return a paragraph, with a few strong words before it.

    Example:
        >>> paragraph("r < 1 & more", strong="note")
        '<p><strong>note</strong> r &lt; 1 &amp; more</p>'
    """
    first = f"<strong>{escape(strong)}</strong> " if strong else ""
    return f"<p>{first}{escape(str(text))}</p>"


def html_table(
    head: Sequence[Any], rows: Iterable[Sequence[Any]], *, caption: str = "", notes: Iterable[str] = ()
) -> str:
    """Return a table as HTML: the first cell of each row is its name, the others stand to the right; notes follow it.

    Example:
        >>> print(html_table(["K", "kept"], [["2", "50 %"]]))
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
