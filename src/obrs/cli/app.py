"""The app that commands register with, the options that they share, and `main`, which turns errors into one line.

A command is a function under `@command("examples", …)` in its own module, which `cli/__init__.py` imports. The first
line of its docstring is its line in `obrs --help`. A test runs its examples. It imports what it needs itself, so that
help stays fast, and raises `ObrsError` or `OSError`.
"""

import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from math import inf
from shlex import quote
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__
from .._text import exit_code, one_line
from ..errors import InputError, ObrsError

__all__ = ["SCORES", "SETS", "Files", "app", "as_option", "command", "complain", "main", "option", "rare_option"]
__all__ += ["parse_amount", "parse_ends", "parse_numbers", "parse_pairs", "short"]

F = TypeVar("F", bound=Callable[..., None])


class _Help:
    """Help in panels, without types, that ends with the examples of the epilog, each on a line that can be copied."""

    epilog: str | None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, each panel under its heading."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):  # type: ignore[attr-defined]
            is_argument = param.param_type_name == "argument"
            panel = "Arguments" if is_argument else getattr(param, "rich_help_panel", None) or "Options"
            record = (param.metavar or param.name, param.help or "") if is_argument else param.get_help_record(ctx)
            if record is not None:
                panels.setdefault(panel, []).append(record)
        for panel, records in panels.items():
            with formatter.section(panel):
                formatter.write_dl(records)
        if hasattr(self, "commands"):
            self.format_commands(ctx, formatter)  # type: ignore[attr-defined]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, without a break in any of them."""
        with formatter.section("Examples"):
            for line in (self.epilog or "").strip().splitlines():
                formatter.write(f"{' ' * formatter.current_indent}{line.strip()}\n")


class _Command(_Help, TyperCommand):
    """A command with examples."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the message of an interrupt, which typer drops, is printed."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            complain(str(error))
            raise


class _Group(_Help, TyperGroup):
    """All commands, in the order of their modules."""


app = typer.Typer(
    cls=_Group,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="""
        obrs plan scores.csv --kind logit --budget 2,4,8
        obrs select scores.csv --kind logit -n 250 -o kept.csv
        obrs select --help
    """,
)

# The ClickException beside typer's BadParameter: that of click, or of the copy of click inside later versions of typer.
_ClickError: Any = import_module(typer.BadParameter.__module__).ClickException


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from, anywhere.")] = False,
) -> None:
    """Keep the samples that bring you closest to the target, on a budget."""
    if version:
        typer.echo(f"obrs {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_KIND = """What the scores are: log_ratio, log p - log q; logit or probability of a critic, data against model;
reward, for the target q exp(reward / beta); weight of events, of either sign."""
_FILE = "A csv, tsv, jsonl, parquet, npy or npz, a folder or a glob."
_SHARED: dict[str, tuple[Any, ...]] = {  # type, default, metavar, help and names of each option
    "n": (str, None, "N", "Rows to keep: 250, 10%, or by label a=50,b=20; of each group, in all with --shares.", "-n"),
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
SETS = "A folder of PNG and JPEG, a .npy, or a .npz, which may hold labels."
"""What a command that reads samples says about them."""

Files = Annotated[list[str], typer.Argument(metavar="FILE", help=_FILE)]


def option(metavar: str | None, help: str, *names: str, **more: Any) -> Any:
    """Return an option; without a metavar it is a flag. Typer would show types and defaults in its own way."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **more)


def rare_option(metavar: str | None, help: str, *names: str, **more: Any) -> Any:
    """Return an option that help shows after the others."""
    return option(metavar, help, *names, rich_help_panel="Advanced", **more)


def command(examples: str, shared: str = "", rare: str = "") -> Callable[[F], F]:
    """Register a command with examples; shared options, by name, take the place of its last argument."""

    def register(function: F) -> F:
        signature = inspect.signature(function)
        parameters = [p for p in signature.parameters.values() if p.kind != p.VAR_KEYWORD]
        for declare, names in ((option, shared), (rare_option, rare)):
            for name in names.split():
                kind, default, *how = _SHARED[name]
                kind = Annotated[kind if default is not None else kind | None, declare(*how)]
                parameters.append(inspect.Parameter(name, _KEYWORD, default=default, annotation=kind))
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return app.command(cls=_Command, epilog=examples)(function)

    return register


def complain(text: str) -> None:
    """Write a line to standard error."""
    typer.echo(" ".join(text.split()), err=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for a mistake, 1 for a failure, 130 for Ctrl-C.

    A mistake is in the command or in what it reads, such as a file that does not exist. A failure is anything else: a
    file that cannot be written, or too little memory. `--debug`, anywhere, shows where an error comes from.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            # where in the source it was raised does not help who typed a command
            warnings.showwarning = lambda message, *where, **more: complain(f"warning: {message}")
            code = app([text for text in arguments if text != "--debug"], prog_name="obrs", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except (BrokenPipeError, SystemExit):  # the reader has closed the pipe; typer turns it into an exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except (ObrsError, OSError, MemoryError, ModuleNotFoundError, _ClickError) as error:
        if "--debug" in arguments:
            traceback.print_exc()
        else:
            complain(f"error: {_message(error)}")
        return exit_code(error)


def _message(error: Any) -> str:
    if isinstance(error, _ClickError):
        return str(error.format_message())
    if isinstance(error, ModuleNotFoundError):
        return f"this needs {error.name}: pip install 'obrs[cli]'"
    if isinstance(error, MemoryError):
        return f"not enough memory{f' ({error})' if str(error) else ''}"
    return error.render(as_option) if isinstance(error, ObrsError) else one_line(error)


def as_option(name: str, value: object) -> str:
    """Return an argument of the library as an option: `--at-most`, `--no-header`, `--delimiter ';'`."""
    flag = f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}"
    if value is False:
        return f"--no-{name}"
    return flag if value is None or value is True else f"{flag} {quote(str(value))}"


def parse_amount(text: str | None, group: str | None) -> tuple[Any, float | None]:
    """Parse the value of -n: a number of rows, or of rows by label, and the budget of a share.

    Example:
        >>> parse_amount("250", None), parse_amount("10%", None)
        ((250, None), (None, 10.0))
        >>> parse_amount("web=500, books=200", "source")
        ({'web': 500, 'books': 200}, None)
    """
    if text is None:
        return None, None
    if "=" in text:
        if group is None:
            raise InputError("-n by label needs to know the label of each row: give", give={"group": None})
        pairs = parse_pairs(text, "-n must be label=rows with commas between them")
        for label, count in pairs.items():
            if not 0 <= count < inf or count != int(count):
                raise InputError(f"-n must be whole numbers of rows, got {label}={count:g}")
        return {label: int(count) for label, count in pairs.items()}, None
    share = text.strip().endswith("%")
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if share and 0 < value <= 100:
        budget = 100 / value  # if it is rounded, a little less: no row of the share is lost
        return None, budget if budget == int(budget) else max(budget * (1 - 2**-50), 1.0)
    if share or not 1 <= value < inf or value != int(value):
        raise InputError(f"-n must be rows such as 250, a share such as 10%, or by label a=50,b=20, got {text!r}")
    return int(value), None


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
    """Parse the value of --pixels, black and white."""
    if pixels is None:
        return None
    if len(ends := parse_numbers(pixels, "--pixels")) != 2:
        raise InputError(f"--pixels must be two numbers with a comma between them, got {pixels!r}")
    return ends[0], ends[1]


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
