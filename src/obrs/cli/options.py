"""How commands and the options that they share are declared, and how texts are parsed and numbers shown.

It is light, as help needs it.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from ..errors import InputError
from .app import Command, app

__all__ = ["SCORES", "Amount", "Files", "advanced", "command", "option", "parse_amount", "parse_ends"]
__all__ += ["parse_numbers", "parse_pairs", "short"]

F = TypeVar("F", bound=Callable[..., None])
KEYWORD = inspect.Parameter.KEYWORD_ONLY

_KIND = """What the scores are: log_ratio, log p - log q; logit or probability of a critic, data against model;
reward, for the target q exp(reward / beta); weight of events, of either sign."""
_FILE = "A csv, tsv, jsonl, parquet, npy or npz, a folder or a glob."
_SHARED: dict[str, tuple[Any, ...]] = {  # type, default, metavar, help and names of each option
    "n": (
        str,
        None,
        "N",
        "Rows to keep: 250, 10%, or by label a=50,b=20; of each group, or in all with --shares.",
        "-n",
    ),
    "column": (str, None, "NAME", "The column of scores, if there are several."),
    "kind": (str, None, "KIND", _KIND),
    "beta": (float, None, "B", "The temperature of a reward."),
    "kl": (float, None, "NATS", "A budget of KL for a reward, instead of its temperature; with -n.", "--kl"),
    "id": (str, None, "NAME", "The column of ids: they decide, wherever a row stands.", "--id"),
    "group": (str, None, "NAME", "The column of classes or prompts."),
    "shares": (str, None, "SHARES", "Of the groups among the kept: equal, a=0.7,b=0.3, or a file of real labels."),
    "cost": (str, None, "NAME", "The column of what rows cost, such as tokens; -n and the budget are in them."),
    "seed": (int, 0, "S", "The same seed gives the same result; default 0."),
    "skip_bad": (bool, False, None, "Leave out rows without a score, and say how many.", "--skip-bad"),
    "delimiter": (str, None, "CHAR", "Between the cells of a csv; default a comma."),
    "header": (bool, True, None, "Whether a csv begins with names; else columns are 0, 1, …", "--header/--no-header"),
}
SCORES = "skip_bad delimiter header"
"""The options of every command that reads scores."""

Files = Annotated[list[str], typer.Argument(metavar="FILE", help=_FILE)]


def option(metavar: str | None, help: str, *names: str, **more: Any) -> Any:
    """Return an option; without a metavar it is a flag. Typer would show types and defaults in its own way."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **more)


def advanced(metavar: str | None, help: str, *names: str, **more: Any) -> Any:
    """Return an option that help shows after the others."""
    return option(metavar, help, *names, rich_help_panel="Advanced", **more)


def command(examples: str, shared: str = "", advanced_shared: str = "") -> Callable[[F], F]:
    """Register a command with examples; shared options, by name, take the place of its `**given`."""

    def register(function: F) -> F:
        own = inspect.signature(function)
        parameters = [p for p in own.parameters.values() if p.kind != p.VAR_KEYWORD]
        for declare, names in ((option, shared), (advanced, advanced_shared)):
            for name in names.split():
                kind, default, *how = _SHARED[name]
                kind = Annotated[kind if default is not None else kind | None, declare(*how)]
                parameters.append(inspect.Parameter(name, KEYWORD, default=default, annotation=kind))
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return app.command(cls=Command, epilog=examples)(function)

    return register


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


def parse_ends(pixels: str | None) -> tuple[float, float] | None:
    """Parse what --pixels says, black and white."""
    ends = [] if pixels is None else parse_numbers(pixels, "--pixels")
    if len(ends) not in (0, 2):
        raise InputError(f"--pixels must be two numbers with a comma between them, got {pixels!r}")
    return (ends[0], ends[1]) if ends else None


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


def short(x: float) -> str:
    """Return a number with three decimals, or three digits from 10 on."""
    return f"{round(x, 3) + 0.0:.3f}" if abs(x) < 10 else f"{x:.3g}"  # never -0.000
