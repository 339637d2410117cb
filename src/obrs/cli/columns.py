"""What the commands on files of scores share: their options, and how columns are read into memory."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .. import critics
from ..errors import InputError, ObrsError

if TYPE_CHECKING:
    from ..files import Reading
    from ..scores import Batch, Source

__all__ = ["about", "header_of", "kind_of", "number", "one_in", "read_scores", "report_bad", "short"]

Numbers = np.ndarray[Any, Any]

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


def kind_of(event_weight: str | None = None, /, **options: bool) -> str | None:
    """Return the one kind of score that an option names, or None.

    Example:
        >>> kind_of(log_ratio=False, logit=True)
        'logit'
    """
    given = [kind for kind, is_given in options.items() if is_given]
    if len(given) + (event_weight is not None) > 1:
        known = ", ".join(f"--{kind.replace('_', '-')}" for kind in options)
        raise InputError(f"scores are of one kind: give one of {known}{', --event-weight' if event_weight else ''}")
    return "weight" if event_weight is not None else given[0] if given else None


def header_of(file: str, header: bool | None, format: str | None = None) -> bool | None:
    """Return what --header or --no-header says of one of two files: nothing, unless it is a csv or tsv.

    Example:
        >>> header_of("fake.csv", False), header_of("real.npy", False)
        (False, None)
    """
    from ..scores import format_of

    return header if format_of(file, format) in ("csv", "tsv", None) else None


def read_scores(sources: "Sequence[Source]", reading: "Reading", *more: str | None) -> tuple["Batch", Numbers, Numbers]:
    """Read the columns that decide, and `more`, into memory: a batch, which rows have a score, and their log-ratios.

    Scores that are all the same are an error, and scores that hardly are of their kind a warning.
    """
    from ..scores import read_columns

    batch = read_columns(sources, [*dict.fromkeys([*reading.names, *filter(None, more)])])
    score = batch.numbers(reading.column, skip_bad=reading.skip_bad)
    good = ~np.isnan(score)
    where = f"{sources[0].shown}, column {reading.column!r}"
    if doubt := about(where, lambda: critics.check_scores(score[good], reading.kind)):
        typer.echo(f"warning: {where} read as {reading.kind}: {doubt}", err=True)
    report_bad(int(np.sum(~good)), len(good))
    return batch, good, reading.log_ratio(batch, score[good])


def report_bad(bad: int, rows: int) -> None:
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


def about(name: str, compute: Callable[[], Any]) -> Any:
    """Compute, and name the file in any error."""
    try:
        return compute()
    except ObrsError as error:
        raise InputError(f"{name}: {error}") from error


def number(text: str, name: str) -> float:
    """Read one of the numbers that an option takes with commas between them."""
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"{name} must be numbers with commas between them, got {text.strip()!r}") from error


def short(x: float) -> str:
    return f"{round(x, 3) + 0.0:.3f}" if abs(x) < 10 else f"{x:.3g}"  # never -0.000
