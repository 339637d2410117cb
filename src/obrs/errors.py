"""Errors a caller can catch; each is also the builtin it specialises."""

from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "BudgetError",
    "DivergenceError",
    "ExhaustedError",
    "InputError",
    "InputTypeError",
    "Interrupted",
    "MissingLibraryError",
    "NotFiniteError",
    "ObrsError",
    "RatioError",
    "UnknownNameError",
]


class ObrsError(Exception):
    """Base of every error raised on purpose by this library.

    Args:
        message: What was expected, what came, and what to do.
        give: Arguments that would help, by name, which end the message; None stands for any value. The command line
            names its options instead.

    Example:
        >>> str(InputError("cannot keep 5 of 4; ask for fewer, or give", give={"at_most": True}))
        'cannot keep 5 of 4; ask for fewer, or give at_most=True'
    """

    def __init__(self, message: object = "", *, give: Mapping[str, object] | None = None, **more: Any) -> None:
        super().__init__(message, **more)
        self.give = dict(give or {})

    def __str__(self) -> str:
        return self.render(lambda name, value: name if value is None else f"{name}={value!r}")

    def render(self, show: Callable[[str, object], str]) -> str:
        """Return the message in one line, with each argument of `give` as a function of its name and value shows it."""
        lines = map(str.strip, str(self.args[0]).splitlines())  # arrays are shown in several
        return " ".join([*lines, " or ".join(show(*pair) for pair in self.give.items())]).rstrip()


class BudgetError(ObrsError, ValueError):
    """The budget is not a number of proposals per kept sample, or cannot be met."""


class RatioError(ObrsError, ValueError):
    """A log-ratio is NaN or +inf."""


class InputError(ObrsError, ValueError):
    """An argument has the wrong shape, size or value."""


class InputTypeError(ObrsError, TypeError):
    """An argument has the wrong type or dtype."""


class DivergenceError(ObrsError, ValueError):
    """A divergence was asked for something it does not have, such as an inverse critic."""


class MissingLibraryError(ObrsError, ImportError):
    """An optional library is not installed."""


class UnknownNameError(ObrsError, KeyError):
    """A name is not in a registry."""


class _WithPartial(ObrsError):
    """An error that carries the work done so far.

    Attributes:
        partial: The samples kept so far; its `next_id` is where to resume. None if there are none.
    """

    def __init__(self, message: str, partial: object) -> None:
        super().__init__(message)
        self.partial = partial


class ExhaustedError(_WithPartial, RuntimeError):
    """Proposals or seconds ran out before enough samples were kept; `.partial` has them."""


class Interrupted(_WithPartial, KeyboardInterrupt):
    """The user pressed Ctrl-C; `.partial` has the samples kept so far."""


class NotFiniteError(_WithPartial, ArithmeticError):
    """A loss or a weight is no longer finite; `.partial` is the last good state of the training."""
