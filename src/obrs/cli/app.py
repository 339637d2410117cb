"""The app that commands register with, and `main`, which turns every error into one line.

A command is a function under `@command("examples", …)` in its own module, which `cli/__init__.py` imports. The first
line of its docstring is its line in `obrs --help`, at its place in `CONTENTS`. A test runs its examples. It imports
what it needs itself, so that help stays fast, and raises `ObrsError` or `OSError`.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__
from .._progress import rank
from .._text import exit_code, one_line
from ..errors import ObrsError

__all__ = ["CONTENTS", "Command", "app", "complain", "main"]

CONTENTS = {
    "Choose a budget": ("doctor", "plan", "report"),
    "Spend it": ("tune", "select", "evaluate"),
}
"""The commands as `obrs --help` lists them."""


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


class Command(_Help, TyperCommand):
    """A command with examples."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an interrupt may say how to go on, and typer would drop that."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if str(error):
                complain(str(error))
            raise


class _Contents(_Help, TyperGroup):
    """All commands, as a table of contents."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands under their headings, all lines aligned."""
        width = max(len(name) for names in CONTENTS.values() for name in names)
        for heading, names in CONTENTS.items():
            with formatter.section(heading):
                lines = [(f"{name:{width}}", self.commands[name].get_short_help_str(formatter.width)) for name in names]
                formatter.write_dl(lines)


app = typer.Typer(
    cls=_Contents,
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


def complain(text: str) -> None:
    """Write a line to standard error; with many processes, all but the first add their number."""
    line = " ".join(text.split())
    typer.echo(f"process {rank()}: {line}" if rank() else line, err=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for a mistake, 1 for a failure, 130 for Ctrl-C.

    A mistake is in the command or in what it reads, be it that a file is not there. A failure is of the machine: what
    could not be written, or too little memory.

    `--debug`, anywhere, or OBRS_DEBUG in the environment shows where an error comes from.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments or bool(os.environ.get("OBRS_DEBUG"))
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
        if debug:
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
    return error.render(_option) if isinstance(error, ObrsError) else one_line(error)


def _option(name: str, value: object) -> str:
    """Return an argument of the library as an option: `--at-most`, `--no-header`, `--delimiter ';'`."""
    flag = f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}"
    if value is False:
        return f"--no-{name}"
    return flag if value in (None, True) else f"{flag} {value!r}"
