"""Fields of a configuration on the command line: `--field value`, for commands that take any field of one."""

from collections.abc import Iterable

from ..errors import InputError

__all__ = ["check_first", "read_fields"]


def check_first(word: str, what: str) -> None:
    """Raise if an option comes first: only the fields say which words are values.

    Example:
        >>> check_first("--budget", "CONFIG")
        Traceback (most recent call last):
        obrs.errors.InputError: CONFIG comes before all fields, got --budget
    """
    if word.startswith("--"):
        raise InputError(f"{what} comes before all fields, got {word}")


def read_fields(arguments: Iterable[str]) -> dict[str, str | None]:
    """Read `--field value` and `--field=value`; a bare `--field` is None. Names come back with underscores.

    Example:
        >>> read_fields(["--critic-lr", "1e-3", "--two-heads", "--budget=4"])
        {'critic_lr': '1e-3', 'two_heads': None, 'budget': '4'}
        >>> read_fields(["budget", "4"])
        Traceback (most recent call last):
        obrs.errors.InputError: expected --FIELD VALUE, got 'budget'
    """
    fields: dict[str, str | None] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise InputError(f"expected --FIELD VALUE, got {word!r}")
        bare = not equals and (not words or words[0].startswith("--"))
        if (key := name.replace("-", "_")) in fields:
            raise InputError(f"--{name} is given twice")
        fields[key] = None if bare else value if equals else words.pop(0)
    return fields
