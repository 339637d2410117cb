"""The losses of a run, watched: one that is no longer a finite number ends it."""

from collections.abc import Callable, Iterable
from math import isfinite
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import ObrsError
from .checkpoints import last

__all__ = ["Losses", "NotFiniteError"]


class NotFiniteError(ObrsError, ArithmeticError):
    """A loss or a weight is no longer a finite number.

    Attributes:
        checkpoint: The last good checkpoint; None if none was kept.
    """

    def __init__(self, message: str, checkpoint: Path | None = None) -> None:
        kept = f"the last good checkpoint is {checkpoint}" if checkpoint else "no checkpoint was kept"
        how = "go on from it in another folder, with start_from and" if checkpoint else "try again with"
        super().__init__(f"{message}; {kept}; {how} a lower learning rate or another loss")
        self.checkpoint = checkpoint


class Losses:
    """The losses since the last look; only looking waits for the device.

    Args:
        average: Averages a tensor over all processes.
        step: Steps done before the first one.
        folder: Of the run, whose last checkpoint is named where a loss is not finite.

    Example:
        >>> losses = Losses()
        >>> losses.add(1, critic=torch.tensor(0.5))
        >>> losses.add(2, critic=torch.tensor(1.5))
        >>> losses.look()
        {'critic': 1.0}
    """

    def __init__(
        self, average: Callable[[Tensor], Tensor] | None = None, *, step: int = 0, folder: Path | None = None
    ) -> None:
        self.step = step
        self._average = average or (lambda x: x)
        self._folder = folder
        self._steps: list[int] = []
        self._values: dict[str, list[Tensor]] = {}

    def add(self, step: int, **losses: Tensor) -> None:
        """Remember the losses of a step."""
        self.step = step
        self._steps.append(step)
        for name, loss in losses.items():
            self._values.setdefault(name, []).append(loss.detach())

    def look(self, networks: Iterable[nn.Module] = ()) -> dict[str, float]:
        """Return the mean of each loss since the last look.

        Args:
            networks: Whose weights are looked at, too.

        Raises:
            NotFiniteError: A loss or a weight is not finite; the first of the losses is named.
        """
        table = torch.stack([torch.stack(column) for column in self._values.values()]).float()
        table = self._average(table).cpu().double()
        means = dict(zip(self._values, table.mean(1).tolist(), strict=True))
        for step, values in zip(self._steps, table.T.tolist(), strict=True):
            for name, value in zip(self._values, values, strict=True):
                if not isfinite(value):
                    raise NotFiniteError(f"the {name} loss is {value} at step {step}", last(self._folder))
        if not all(bool(torch.isfinite(weight).all()) for network in networks for weight in network.parameters()):
            raise NotFiniteError(f"a weight is not finite after step {self.step}", last(self._folder))
        self._steps, self._values = [], {}
        return means
