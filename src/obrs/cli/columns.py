"""What the commands on files of scores share: their options, and how a column becomes log-ratios."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .. import critics
from ..errors import InputError, ObrsError

if TYPE_CHECKING:
    from ..scores import Table

__all__ = [
    "SKIP",
    "about",
    "check_scores",
    "find_column",
    "find_kind",
    "header_of",
    "is_folder",
    "kind_of",
    "log_ratios",
    "number",
    "one_in",
    "said_bad",
]
__all__ += ["short", "signed_weights", "to_log_ratio"]

Numbers = np.ndarray[Any, Any]

SKIP = "leave them out with --skip-bad, or check what scored them"
"""What to do about rows without a score, of a command with that option."""

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="A csv, tsv, jsonl, parquet, npy or npz, and - is standard input; or a folder, a glob or several files.",
    ),
]
Column = Annotated[str | None, typer.Option(metavar="NAME", help="The column of scores, if there are several.")]
LogRatio = Annotated[bool, typer.Option("--log-ratio", help="Scores are log p(x) - log q(x).")]
Logit = Annotated[bool, typer.Option("--logit", help="Scores are logits of a critic, data against model.")]
Probability = Annotated[bool, typer.Option("--probability", help="Scores are probabilities of being real.")]
Reward = Annotated[bool, typer.Option("--reward", help="Scores are rewards; the target is q(x) exp(reward / beta).")]
EventWeight = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The column of event weights of either sign, instead of scores."),
]
Beta = Annotated[float | None, typer.Option(metavar="B", help="The temperature of the reward.")]
Kl = Annotated[
    float | None, typer.Option(metavar="NATS", help="A budget of KL for a reward, instead of its temperature; with -n.")
]
Format = Annotated[str | None, typer.Option("--format", metavar="EXT", help="The format where no extension says it.")]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHAR",
        help="Between the cells of a csv; a comma if not given.",
        callback=lambda text: "\t" if text == r"\t" else text,  # a shell keeps '\t' as two characters
    ),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether a csv begins with names; without, columns are 0, 1, …"),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out rows without a score, and say how many.")]


def to_log_ratio(scores: Numbers, kind: str, beta: float | None = None) -> Numbers:
    """Turn scores into log-ratios (for rewards up to a constant).

    Args:
        scores: Numbers, none of them NaN or +inf.
        kind: One of `obrs.scores.KINDS`.
        beta: The temperature of the reward.

    Example:
        >>> to_log_ratio(np.asarray([1.0, 3.0]), "reward", beta=0.5)
        array([2., 6.])
    """
    if (kind == "reward") != (beta is not None):
        raise InputError("a reward needs --beta, its temperature" if beta is None else "--beta is for rewards only")
    return np.asarray(critics.to_log_ratio(scores, kind, beta=beta))


def kind_of(**options: bool) -> str | None:
    """Return the one kind of score that an option names, or None.

    Example:
        >>> kind_of(log_ratio=False, logit=True)
        'logit'
    """
    given = [kind for kind, is_given in options.items() if is_given]
    if len(given) > 1:
        known = ", ".join(f"--{kind.replace('_', '-')}" for kind in options)
        raise InputError(f"scores are of one kind: give one of {known}")
    return given[0] if given else None


def is_folder(files: list[str], out: str = "") -> bool:
    """Tell whether rows are read piece by piece rather than into memory: from or to a folder, or from many files."""
    from glob import has_magic

    one = files[0]
    many = len(files) > 1 or os.path.isdir(one) or (has_magic(one) and not os.path.exists(one))
    return many or out.endswith(("/", os.sep)) or (os.path.isdir(out) and not os.path.splitext(out)[1])


def header_of(file: str, header: bool | None, format: str | None = None) -> bool | None:
    """Return what --header or --no-header says of one of two files: nothing, unless it is a csv or tsv.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> for name in ("fake.csv", "real.npy"):
        ...     open(f"{folder}/{name}", "w").close()
        >>> header_of(f"{folder}/fake.csv", False), header_of(f"{folder}/real.npy", False)
        (False, None)
    """
    from .._formats import DELIMITED
    from ..scores import format_of

    if header is None or not os.path.isfile(file):  # standard input, or a file whose absence is named later
        return header
    return header if format_of(file, format) in DELIMITED else None


def said_bad(bad: int, rows: int) -> None:
    """Say how many rows were left out."""
    if bad:
        typer.echo(f"left out {bad} of {rows} rows without a score", err=True)


def one_in(rows: int, kept: int) -> str:
    """Say a share as 1 in so many.

    Example:
        >>> one_in(25, 10), one_in(12_345_678, 1000)
        ('1 in 2.5', '1 in 12 346')
    """
    times = rows / max(kept, 1)
    return f"1 in {times:.4g}" if times < 9999.5 else f"1 in {times:,.0f}".replace(",", " ")


def find_column(table: "Table", name: str | None, kind: str | None) -> str:
    """Return the column of scores: the one that --column names, or the only choice."""
    from .. import scores

    name = name or scores.score_column(table, kind)
    if name is None:
        listed = ", ".join(table.columns)
        raise InputError(f"{table.name} has no single column of scores; choose --column from {listed}")
    return name


def find_kind(table: "Table", name: str, kind: str | None) -> str:
    """Return what the column holds: what an option says, or its name."""
    from .. import scores

    _ = table[name]  # a column that is not there is named
    kind = kind or (name if name in scores.KINDS else None)
    if kind is None:
        asked = "a --log-ratio, a --logit, a --probability or a --reward with --beta"
        raise InputError(f"{table.name}: is column {name!r} {asked}?")
    return kind


def log_ratios(
    table: "Table", name: str | None, kind: str | None, beta: float | None, *, advice: str | None = None
) -> tuple[str, str, Numbers]:
    """Return the column of scores, its kind, and its log-ratios; `advice` is for rows without a score."""
    from .. import scores

    name = find_column(table, name, kind)
    values = scores.column(table, name, advice=advice)
    kind = find_kind(table, name, kind)
    check_scores(table, name, values, kind)
    if kind == "probability":
        return name, kind, about(table, lambda: to_log_ratio(values, "probability", beta))
    return name, kind, to_log_ratio(values, kind, beta)


def check_scores(table: "Table", name: str, values: Numbers, kind: str) -> None:
    """Raise if there is nothing to choose by, and warn in one line of scores that hardly are of this kind."""
    where = f"{table.name}, column {name!r}"
    if doubt := about(where, lambda: critics.check_scores(values, kind)):
        typer.echo(f"warning: {where} read as {kind}: {doubt}", err=True)


def signed_weights(table: "Table", name: str, column: str | None, kind: str | None) -> tuple[Numbers, Numbers]:
    """Return log|w| and the sign of a column of event weights, which stands instead of scores."""
    from .. import scores

    if column is not None or kind is not None:
        raise InputError("event weights stand instead of scores: give --event-weight alone")
    weight = scores.column(table, name, advice=SKIP)
    if bad := np.count_nonzero(np.isinf(weight)):
        what = f"weight must be finite, {bad} of {weight.size} are not"
        raise InputError(f"{table.name}: {what}; drop such events, or look at them")
    with np.errstate(divide="ignore"):  # w = 0 is never kept
        return np.log(np.abs(weight)), np.sign(weight)


def about(table: "Table | str", compute: Callable[[], Any]) -> Any:
    """Compute, and name the file in any error."""
    try:
        return compute()
    except ObrsError as error:
        raise InputError(f"{table if isinstance(table, str) else table.name}: {error}") from error


def number(text: str, name: str) -> float:
    """Read one of the numbers that an option takes with commas between them."""
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"{name} must be numbers with commas between them, got {text.strip()!r}") from error


def short(x: float) -> str:
    return f"{round(x, 3) + 0.0:.3f}" if abs(x) < 10 else f"{x:.3g}"  # never -0.000
