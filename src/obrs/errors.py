"""Errors a caller can catch; each is also the builtin it specialises."""

__all__ = [
    "BudgetError",
    "DivergenceError",
    "InputError",
    "InputTypeError",
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


class UnknownNameError(ObrsError, KeyError):
    """A name is not in a registry."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0])
