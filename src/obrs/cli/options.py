"""The options that commands share, and how their texts are parsed and numbers shown; light, as help needs it."""

from typing import Annotated, Any, NamedTuple

import typer

from ..errors import InputError

__all__ = ["ID", "KL", "Amount", "N", "advanced", "one_in", "option", "parse_amount", "parse_numbers", "parse_pairs"]
__all__ += ["short"]


def option(metavar: str | None, help: str, *names: str, **more: Any) -> Any:
    """Return an option; without a metavar it is a flag. Typer would show types and defaults in its own way."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **more)


def advanced(metavar: str | None, help: str, *names: str, **more: Any) -> Any:
    """Return an option that help shows after the others."""
    return option(metavar, help, *names, rich_help_panel="Advanced", **more)


_KIND = """What the scores are: log_ratio, log p - log q; logit or probability of a critic, data against model;
reward, for the target q exp(reward / beta); weight of events, of either sign."""
_FILE = "A csv, tsv, jsonl, parquet, npy or npz, a folder or a glob; - is standard input."
_SHARES = "Of the groups among the kept: equal, a=0.7,b=0.3, or a file of real labels."
_COST = "The column of what rows cost, such as tokens; -n and the budget are in them."
N = ("N", "Rows to keep: 250, 10%, or by label a=50,b=20; of each group, or in all with --shares.", "-n")
KL = ("NATS", "A budget of KL for a reward, instead of its temperature; with -n.", "--kl")
ID = ("NAME", "The column of ids: they decide, wherever a row stands.", "--id")

Files = Annotated[list[str], typer.Argument(metavar="FILE", help=_FILE)]
Column = Annotated[str | None, option("NAME", "The column of scores, if there are several.")]
Kind = Annotated[str | None, option("KIND", _KIND, callback=lambda text: text and text.replace("-", "_"))]
Beta = Annotated[float | None, option("B", "The temperature of a reward.")]
Group = Annotated[str | None, option("NAME", "The column of classes or prompts.")]
Shares = Annotated[str | None, option("SHARES", _SHARES)]
Budgets = Annotated[list[str] | None, option("K,K,…", "Proposals per kept sample.", "--budget")]
Cost = Annotated[str | None, advanced("NAME", _COST)]
Seed = Annotated[int, advanced("S", "The same seed gives the same result; default 0.")]
SkipBad = Annotated[bool, advanced(None, "Leave out rows without a score, and say how many.", "--skip-bad")]
# A shell keeps '\t' as two characters.
Delimiter = Annotated[
    str | None,
    advanced(
        "CHAR", "Between the cells of a csv; default a comma.", callback=lambda text: "\t" if text == r"\t" else text
    ),
]
Header = Annotated[
    bool | None, advanced(None, "Whether a csv begins with names; else columns are 0, 1, …", "--header/--no-header")
]
Format = Annotated[str | None, advanced("EXT", "The format where no extension says it.", "--format")]


class Amount(NamedTuple):
    """How much to keep: a number of rows, of each group by label, or 1 in `budget`."""

    n: int | dict[str, int] | None = None
    budget: float | None = None


def parse_amount(text: str | None, group: str | None) -> Amount:
    """Parse what -n says.

    Example:
        >>> parse_amount("250", None), parse_amount("10%", None)
        (Amount(n=250, budget=None), Amount(n=None, budget=10.0))
        >>> parse_amount("web=500, books=200", "source").n
        {'web': 500, 'books': 200}
    """
    if text is None:
        return Amount()
    if "=" in text:
        if group is None:
            raise InputError("-n by label needs to know the label of each row: give", give={"group": None})
        pairs = parse_pairs(text, "-n must be label=rows with commas between them")
        for label, count in pairs.items():
            if count != int(count) or count < 0:
                raise InputError(f"-n must be whole numbers of rows, got {label}={count:g}")
        return Amount({label: int(count) for label, count in pairs.items()})
    share = text.strip().endswith("%")
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if share and 0 < value <= 100:
        return Amount(budget=100 / value)
    if share or value < 1 or value != int(value):
        raise InputError(f"-n must be rows such as 250, a share such as 10%, or by label a=50,b=20, got {text!r}")
    return Amount(int(value))


def parse_numbers(texts: list[str] | str, option: str) -> list[float]:
    """Parse numbers with commas between them, of an option that may be repeated.

    Example:
        >>> parse_numbers(["2,4", "8"], "--budget")
        [2.0, 4.0, 8.0]
    """
    parts = ",".join([texts] if isinstance(texts, str) else texts).split(",")
    try:
        return [float(part) for part in parts]
    except ValueError as error:
        wrong = str(error).partition(": ")[2]
        raise InputError(f"{option} must be numbers with commas between them, got {wrong}") from error


def parse_pairs(text: str, message: str) -> dict[str, float]:
    """Parse numbers by label, such as `a=0.7,b=0.3`; the message says what was expected."""
    pairs = {}
    for part in text.split(","):
        label, _, value = part.rpartition("=")
        try:
            pairs[label.strip()] = float(value if label else "")
        except ValueError as error:
            raise InputError(f"{message}, got {part.strip()!r}") from error
    return pairs


def one_in(rows: int, kept: int) -> str:
    """Return a share as 1 in so many.

    Example:
        >>> one_in(25, 10), one_in(12_345_678, 1000)
        ('1 in 2.5', '1 in 12 346')
    """
    times = rows / max(kept, 1)
    return f"1 in {times:.4g}" if times < 9999.5 else f"1 in {times:,.0f}".replace(",", " ")


def short(x: float) -> str:
    """Return a number with three decimals, or three digits from 10 on."""
    return f"{round(x, 3) + 0.0:.3f}" if abs(x) < 10 else f"{x:.3g}"  # never -0.000
