"""A program ends in one line on standard error and an exit code, and not in a traceback."""

import sys
from collections.abc import Callable, Sequence

from .errors import ObrsError

__all__ = ["exit_code", "one_line", "run_program"]


def one_line(error: BaseException) -> str:
    """Return what an error says, on one line.

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


def run_program(work: Callable[..., object], kinds: Sequence[Callable[[str], object]], usage: str) -> int:
    """Do work that can be gone on with, print what it returns, and return the exit code.

    Args:
        work: A function of as many arguments as there are kinds.
        kinds: From the text of each argument to its value.
        usage: The command, for those who give other arguments.
    """
    try:
        values = [kind(text) for kind, text in zip(kinds, sys.argv[1:], strict=True)]
    except ValueError:
        return _ended(f"error: expected {usage}", 2)
    try:
        print(work(*values))
    except KeyboardInterrupt:
        return _ended("interrupted: the same command goes on from what is kept", 130)
    except (ObrsError, OSError, MemoryError) as error:
        return _ended(f"error: {one_line(error)}", exit_code(error))
    return 0


def _ended(text: str, code: int) -> int:
    sys.stderr.write(f"{text}\n")
    return code
