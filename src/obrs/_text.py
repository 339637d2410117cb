"""What people read: errors for unknown names, errors in one line, numbers for JSON, tables as text and as HTML."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from html import escape
from math import isfinite
from typing import Any, TypeVar

from .errors import InputError, ObrsError, UnknownNameError

T = TypeVar("T")


def lookup(registry: Mapping[str, T], name: str, what: str) -> T:
    """Return the entry of a registry.

    Example:
        >>> lookup({"relu": 1, "tanh": 2}, "rleu", "activation")
        Traceback (most recent call last):
        obrs.errors.UnknownNameError: unknown activation 'rleu'; did you mean 'relu'? there are: relu, tanh
    """
    try:
        return registry[name]
    except (KeyError, TypeError):
        raise unknown_name(name, registry, what) from None


def unknown_name(name: object, among: Collection[str], what: str, or_else: str = "") -> UnknownNameError:
    """Return the error for a name that is not among those that are known; `or_else` names what else is allowed."""
    near = get_close_matches(str(name), among, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UnknownNameError(f"unknown {what} {name!r:.60}; {hint}there are: {', '.join(among)}{or_else}")


@contextmanager
def name_in_errors(where: str) -> Iterator[None]:
    """Make any error of ours an input error that begins with the name of a file, or of whatever is at fault."""
    try:
        yield
    except ObrsError as error:
        raise InputError(f"{where}: {error.args[0]}", give=error.give) from error


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line.

    Example:
        >>> one_line(FileNotFoundError(2, "No such file or directory", "a.csv"))
        'a.csv: no such file or directory'
    """
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    return " ".join(text.split())


def exit_code(error: BaseException) -> int:
    """Return 1 for a failure of the machine, 2 for a mistake in what was asked for."""
    return 1 if isinstance(error, OSError | MemoryError) else 2


def finite(x: Any) -> Any:
    """Return values with None for NaN and infinity, for which JSON has no number; tuples become lists.

    Example:
        >>> finite({"kl": float("inf"), "left": (1.0, float("nan"))})
        {'kl': None, 'left': [1.0, None]}
    """
    if isinstance(x, Mapping):
        return {key: finite(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [finite(value) for value in x]
    return None if isinstance(x, float) and not isfinite(x) else x


def text_table(head: Sequence[Any], rows: Iterable[Sequence[Any]], *, left: int = 1, gap: int = 2) -> str:
    """Return a table as text: the first `left` columns are names, the others are aligned to the right.

    A cell may have several lines. `gap` is how many spaces are between columns, one where the line is narrow.

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
    """Return a table as HTML: the first cell of a row is its name, the others are aligned to the right; notes follow.

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
