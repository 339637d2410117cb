"""Groups and shares on the command line: how they are read, and what a plan shows of them."""

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .._text import finite, text_table
from ..errors import InputError
from .columns import Numbers, about, header_of, short

if TYPE_CHECKING:
    from ..profile import Plan
    from ..scores import Table

__all__ = [
    "SHOWN",
    "GroupColumns",
    "Quota",
    "Shares",
    "drawn_groups",
    "grouped_rows",
    "parse_quota",
    "parse_shares",
    "read_shares",
]

GroupColumns = Annotated[
    list[str] | None,
    typer.Option("--group", "--groups", metavar="NAME", help="The column of classes or prompts; again for a second."),
]
Quota = Annotated[
    str | None, typer.Option(metavar="A=N,B=N", help="Rows to keep of each group, by label, instead of -n.")
]
Shares = Annotated[
    str | None,
    typer.Option(metavar="SHARES", help="Of the groups among the kept: equal, a=0.7,b=0.3, or a file of real labels."),
]
SHOWN = {"rate": "rate", "kl": "KL", "rkl": "rev. KL", "tv": "TV", "js": "JS", "chi2": "χ²", "ess": "ESS"}
_MOST = 20  # groups that are shown


def parse_shares(text: str | None, group: list[str] | None, header: bool | None = None) -> dict[str, float] | None:
    """Return shares by label as an option says them, `a=0.7,b=0.3`; `equal`, which needs to know the labels, is {}.

    A file with the column `group`, or with one column only, is counted: its labels are those of real samples. What it
    does not have is not kept.
    """
    from .. import scores

    if text is None:
        return None
    if not group:
        raise InputError("--shares needs to know the class of each row: give --group, the column of classes")
    if text == "equal":
        return {}
    if "=" in text and not os.path.exists(text):
        how = "--shares must be equal, label=share with commas between them, or a file of real labels"
        return dict(_pair(part, how) for part in text.split(","))
    real = scores.read_table(text, header=header_of(text, header))
    column = [next(iter(real.columns))] if len(real.columns) == 1 else group
    codes, names = scores.labels(real, column)
    return _Counted(zip(map(str, names), np.bincount(codes).astype(float).tolist(), strict=True))


class _Counted(dict[str, float]):
    """Shares counted in a file: a label that it does not have has share 0."""


def read_shares(
    text: str | None, table: "Table", group: list[str] | None, header: bool | None = None
) -> dict[Any, float] | None:
    """Return the share of each group of a table, by label."""
    from .. import scores

    given = parse_shares(text, group, header)
    if given is None:
        return None
    known = {str(name): name for name in scores.labels(table, group or [])[1]}
    if text == "equal":
        return dict.fromkeys(known.values(), 1.0)
    every = dict.fromkeys(known, 0.0) | given if isinstance(given, _Counted) else given
    return {known.get(label, label): share for label, share in every.items()}


def parse_quota(text: str | None, group: list[str] | None) -> dict[str, int] | None:
    """Return how many rows to keep by label.

    Example:
        >>> parse_quota("web=50000, books=20000", ["source"])
        {'web': 50000, 'books': 20000}
    """
    if text is None:
        return None
    if not group:
        raise InputError("--quota needs to know the class of each row: give --group, the column of classes")
    quota = dict(_pair(part, "--quota must be label=rows with commas between them") for part in text.split(","))
    for label, count in quota.items():
        if count != int(count) or count < 0:
            raise InputError(f"--quota must be whole numbers of rows, got {label}={count:g}")
    return {label: int(count) for label, count in quota.items()}


def _pair(part: str, how: str) -> tuple[str, float]:
    label, equals, value = part.rpartition("=")
    try:
        return label.strip(), float(value if equals else "")
    except ValueError as error:
        raise InputError(f"{how}, got {part.strip()!r}") from error


def grouped_rows(
    table: "Table",
    values: Numbers,
    budgets: list[float],
    group: list[str],
    shares: dict[Any, float] | None,
    n: int | None,
) -> "Plan":
    """Return the plan of a file with groups."""
    from .. import scores
    from ..profile import Profile

    codes, names = scores.labels(table, group)
    groups = np.asarray(names)[codes]
    plan: Plan = about(table, lambda: Profile(values).plan(budgets, n=n, groups=groups, shares=shares))
    return plan


def drawn_groups(rows: "Plan", title: str, as_json: bool) -> str:
    """Draw a plan with groups: what each budget buys, and below it the budget of each group, marked where exact."""
    if as_json:
        plain = [{**row, "groups": [group._asdict() for group in row["groups"]]} for row in rows]
        return json.dumps(finite(plain), indent=2)

    by_group = []
    lines = list(zip(*(row["groups"] for row in rows), strict=True))
    for line in lines[:_MOST]:
        cells = (f"{group.budget:.4g}{'*' if group.exact else ''}" if group.rate else "none" for group in line)
        by_group.append([str(line[0].label), f"{line[0].max_budget:.4g}", *cells])
    after = []
    if any(group.exact for row in rows for group in row["groups"]):
        after.append("* exact: a smaller budget would keep the same distribution within the group")
    if len(lines) > _MOST:
        after.append(f"{len(lines) - _MOST} more groups are in --json")
    parts = [
        title,
        "",
        text_table(*rows.table(SHOWN, lambda row, key: short(row[key])), left=0),
        "",
        "below, for each group: M, from which on rejection is exact, and its budget",
        "",
        text_table(["group", "M", *(f"at {row['budget']:.4g}" for row in rows)], by_group),
    ]
    return "\n".join([*parts, *(["", *after] if after else [])])
