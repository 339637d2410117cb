"""Errors a caller can catch; each is also the builtin it specialises."""

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
    """Base of every error raised on purpose by this library."""


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

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0])


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
