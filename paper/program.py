"""A program of its own, such as one that trains a model: it ends in one line and an exit code, not in a traceback."""

import sys
from collections.abc import Callable, Sequence

from obrs._text import exit_code, one_line
from obrs.errors import ObrsError

__all__ = ["run_program"]


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
