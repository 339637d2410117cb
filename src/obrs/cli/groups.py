"""Groups and shares on the command line: how they are read, and what a plan shows of them."""

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._text import finite, text_table
from ..errors import InputError
from .columns import Numbers, header_of, short

if TYPE_CHECKING:
    from ..profile import Plan
    from ..scores import Batch

__all__ = ["SHOWN", "Group", "Quota", "Shares", "draw_groups", "group_labels", "read_quota", "read_shares"]

Group = Annotated[str | None, typer.Option("--group", metavar="NAME", help="The column of classes or prompts.")]
Quota = Annotated[
    str | None, typer.Option(metavar="A=N,B=N", help="Rows to keep of each group, by label, instead of -n.")
]
Shares = Annotated[
    str | None,
    typer.Option(metavar="SHARES", help="Of the groups among the kept: equal, a=0.7,b=0.3, or a file of real labels."),
]
SHOWN = {"rate": "rate", "kl": "KL", "rkl": "rev. KL", "tv": "TV", "js": "JS", "chi2": "χ²", "ess": "ESS"}
_MOST = 20  # groups that are shown


def read_shares(text: str | None, group: str | None, header: bool | None) -> Any:
    """Return shares by label as an option says them, `a=0.7,b=0.3`, or `equal`.

    A file with the column `group`, or with one column only, is counted: its labels are those of real samples. What it
    does not have is not kept.
    """
    from ..scores import find_sources, read_columns

    if text is not None and group is None:
        raise InputError("--shares needs to know the class of each row: give --group, the column of classes")
    if text in (None, "equal") or group is None:
        return text
    if "=" in text and not os.path.exists(text):
        how = "--shares must be equal, label=share with commas between them, or a file of real labels"
        return dict(_read_pair(part, how) for part in text.split(","))
    real = find_sources(text, header=header_of(text, header))
    known = real[0].columns
    codes, names = read_columns(real, column := known if len(known) == 1 else [group]).labels(column[0])
    return Counter(names[code] for code in codes.tolist())


def read_quota(text: str, group: str | None) -> dict[str, int]:
    """Return how many rows to keep by label.

    Example:
        >>> read_quota("web=50000, books=20000", "source")
        {'web': 50000, 'books': 20000}
    """
    if group is None:
        raise InputError("--quota needs to know the class of each row: give --group, the column of classes")
    quota = dict(_read_pair(part, "--quota must be label=rows with commas between them") for part in text.split(","))
    for label, count in quota.items():
        if count != int(count) or count < 0:
            raise InputError(f"--quota must be whole numbers of rows, got {label}={count:g}")
    return {label: int(count) for label, count in quota.items()}


def _read_pair(part: str, how: str) -> tuple[str, float]:
    label, equals, value = part.rpartition("=")
    try:
        return label.strip(), float(value if equals else "")
    except ValueError as error:
        raise InputError(f"{how}, got {part.strip()!r}") from error


def group_labels(batch: "Batch", group: str, shares: Any) -> tuple[Numbers, Any]:
    """Return the label of each row, a number where all labels are, and the shares of all labels."""
    import numpy as np

    codes, names = batch.labels(group)
    are_numbers = all(name.removeprefix("-").isdecimal() for name in names)
    known = {name: int(name) if are_numbers else name for name in names}
    if shares == "equal":
        shares = dict.fromkeys(names, 1.0)
    elif isinstance(shares, Counter):
        shares = {**dict.fromkeys(names, 0.0), **shares}
    labels = np.asarray(list(known.values()))[codes]
    return labels, shares and {known.get(name, name): share for name, share in shares.items()}


def draw_groups(rows: "Plan", title: str, as_json: bool) -> str:
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
