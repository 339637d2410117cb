"""Batches as pure functions of (seed, step): real samples, latents and labels, each process its own slice.

Every process draws the batch of all and takes its rows, so that many processes train as one would, and a run that
goes on after a stop sees what it would have seen.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from .._checks import as_labels
from .._text import lookup
from ..errors import InputError, InputTypeError
from ..fitting.seeds import Shuffled, keyed
from .checkpoints import fingerprint
from .config import GIVEN, TrainConfig
from .schedule import Stage, plan

__all__ = ["GENERATOR", "SOURCES", "Batches", "Data", "Stored", "load_data"]


GENERATOR = -1
"""The turn of the generator in a step; those of the critic are 0, 1, ..."""


SOURCES: dict[str, Callable[[TrainConfig], tuple[Any, Any]]] = {}
"""Data that a configuration may name, as functions that return samples and labels, or None for these."""


@runtime_checkable
class Stored(Protocol):
    """Samples that need not fit in memory: `x[rows]` are those rows, a float32 array of NumPy."""

    def __getitem__(self, rows: Any) -> Any:
        """Return these rows."""

    def fingerprint(self) -> str:
        """Return a short text that differs where the samples do."""


class Data(NamedTuple):
    """Training data.

    Attributes:
        x: float32, shape `(n, ...)`; or `Stored`, which need not fit in memory.
        labels: int64 classes, shape `(n,)`, or None.
        classes: How many classes there are; 0 without labels.
    """

    x: Any
    labels: Tensor | None
    classes: int

    def take(self, rows: Any) -> Tensor:
        """Return the samples of these rows, a NumPy array of integers."""
        return torch.from_numpy(self.x[rows]) if isinstance(self.x, Stored) else self.x[torch.from_numpy(rows)]

    @property
    def counts(self) -> list[int]:
        """How many samples there are of each class; none without labels."""
        return [] if self.labels is None else [int(n) for n in self.labels.bincount()]

    def fingerprint(self) -> str:
        """Return a hash of all samples and labels, stored ones say their own: the same data, or other data?"""
        if isinstance(self.x, Stored):
            return self.x.fingerprint() if self.labels is None else self.x.fingerprint() + fingerprint(self.labels)
        return fingerprint(self.x) if self.labels is None else fingerprint(self.x, self.labels)


class Batches:
    """The batches of a run; `real` and `latent` take the step, the turn within it and the part of the batch.

    Args:
        data: What to train on.
        config: Of a stage; its `batch_size`, `parts`, `critic_steps`, `latent` and `seed` are used.
        rank, world: This process among all.
        device: Where batches go.
        stage: The stage, if it is one of many: what was seen before it is not seen again at once.

    Example:
        >>> config = TrainConfig(batch_size=8)
        >>> data = load_data(config, np.arange(200.0).reshape(100, 2))
        >>> whole, half = Batches(data, config), Batches(data, config, rank=1, world=2)
        >>> torch.equal(whole.real(3, 0, 0)[0][4:], half.real(3, 0, 0)[0])
        True
    """

    def __init__(
        self,
        data: Data,
        config: TrainConfig,
        *,
        rank: int = 0,
        world: int = 1,
        device: Any = "cpu",
        stage: Stage | None = None,
    ) -> None:
        if config.batch_size % (config.parts * world):
            raise InputError(
                f"batch_size {config.batch_size} must divide into {config.parts} parts on {world} processes; "
                f"take a multiple of {config.parts * world}"
            )
        self._data, self._config, self._device = data, config, device
        self._part, self._share = config.batch_size // config.parts, config.batch_size // config.parts // world
        self._rank, self._stage = rank, stage or plan(config)[0]
        self._shuffled = Shuffled(len(data.x), self._order)
        self._drawn: dict[str, tuple[tuple[int, int], Tensor]] = {}  # of the latest step: its parts share a draw

    def real(self, step: int, turn: int, part: int) -> tuple[Tensor, Tensor | None]:
        """Return real samples and their labels: the data in a new random order each time it has been seen."""
        seen, mine = self._stage.seen_before(step) + turn * self._config.batch_size, self._mine(part)
        rows = self._shuffled.rows(seen + mine.start, seen + mine.stop)
        return self._move(self._data.take(rows)), self._labels(torch.from_numpy(rows))

    def latent(self, step: int, turn: int, part: int) -> tuple[Tensor, Tensor | None]:
        """Return latents and labels for fakes, the labels as frequent as in the data; the turn may be `GENERATOR`."""
        shape, count = (self._config.batch_size, self._config.latent), len(self._data.x)
        z = self._once("latent", step, turn, lambda random: torch.randn(shape, generator=random))
        if self._data.labels is None:
            return self._move(z[self._mine(part)]), None
        rows = self._once("fake labels", step, turn, lambda random: torch.randint(count, shape[:1], generator=random))
        return self._move(z[self._mine(part)]), self._labels(rows[self._mine(part)])

    def mix(self, step: int, turn: int, part: int) -> Tensor:
        """Return a uniform per sample: where between real and fake the gradient penalty looks."""
        size = self._config.batch_size
        mix = self._once("mix", step, turn, lambda random: torch.rand(size, generator=random))
        return self._move(mix[self._mine(part)])

    def noise(self, step: int, turn: int, part: int, *, real: bool = False) -> Tensor:
        """Return standard normals in the shape of the fakes of a turn, or of its real samples."""
        shape = (self._config.batch_size, *self._data.x.shape[1:])
        what = "noise on real" if real else "noise on fake"
        drawn = self._once(what, step, turn, lambda random: torch.randn(shape, generator=random))
        return self._move(drawn[self._mine(part)])

    def _once(self, what: str, step: int, turn: int, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        """Return what is drawn for all parts and processes, drawn for the first part and kept for the others."""
        found = self._drawn.get(what)
        if found is None or found[0] != (step, turn):
            found = self._drawn[what] = ((step, turn), draw(keyed(self._config.seed, what, step, turn)))
        return found[1]

    def _mine(self, part: int) -> slice:
        """Return which of a step's samples are this process's in a part."""
        first = part * self._part + self._rank * self._share
        return slice(first, first + self._share)

    def _order(self, epoch: int) -> "np.ndarray[Any, Any]":
        generator = keyed(self._config.seed, "epoch", epoch)
        order: np.ndarray[Any, Any] = torch.randperm(len(self._data.x), generator=generator).numpy()
        return order

    def _labels(self, rows: Tensor) -> Tensor | None:
        return None if self._data.labels is None else self._move(self._data.labels[rows])

    def _move(self, x: Tensor) -> Tensor:
        if torch.device(self._device).type == "cuda":
            x = x.pin_memory()  # from other memory a copy to the device waits
        return x.to(self._device, non_blocking=True)


def load_data(config: TrainConfig, x: Any = None, labels: Any = None) -> Data:
    """Return the user's data, checked, or that which the configuration names.

    Points may lie anywhere. Images have values in [-1, 1].

    Args:
        config: Its `data`, `data_size`, `classes` and `seed` are used.
        x: The user's own samples, shape `(n, dim)` or `(n, channels, height, width)`.
        labels: Their classes, integers of shape `(n,)`.

    Example:
        >>> load_data(TrainConfig(), np.zeros((10, 2))).x.shape
        torch.Size([10, 2])
    """
    if x is None and config.data == GIVEN:
        raise InputError("the data of this run were given to train; give them again, from Python: train(..., data=...)")
    if x is None:
        x, labels = lookup(SOURCES, config.data, "data")(config)
    samples = _samples(x)
    if labels is None:
        if config.classes:
            raise InputError("classes=true needs labels; give train(..., labels=...) or image data by name")
        return Data(samples, None, 0)
    if not config.classes:
        raise InputError("labels were given but classes is false; set classes=true to train on them")
    if not len(labels) if isinstance(labels, list | tuple) else 0 in np.shape(labels):  # no dtype to speak of
        raise InputError(f"labels must be classes, one per sample, shape ({len(samples)},), got none")
    found = np.asarray(as_labels(labels, "labels"), dtype=np.int64)
    if found.shape != (len(samples),) or found.min() < 0:
        raise InputError(
            f"labels must be classes from 0 on, shape ({len(samples)},), got shape {found.shape} from {found.min()} on"
        )
    return Data(samples, torch.from_numpy(found), int(found.max()) + 1)


def _samples(x: Any) -> Any:
    if isinstance(x, Stored):
        return x
    try:
        samples = torch.as_tensor(x).detach().cpu()  # batches go where the run is
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputTypeError(f"data must be an array of numbers, got {type(x).__name__}") from error
    if samples.ndim not in (2, 4) or 0 in samples.shape:
        shape = "(n, dim) or (n, channels, height, width)"
        hint = "; use x[:, None]" if samples.ndim in (1, 3) else ""
        raise InputError(f"data must have shape {shape}, got {tuple(samples.shape)}{hint}")
    if samples.ndim == 4 and samples.shape[3] in (1, 3) and samples.shape[1] not in (1, 3):
        raise InputError(
            f"images must have shape (n, channels, height, width), got {tuple(samples.shape)}, which seems to have its "
            "channels last; use x.transpose(0, 3, 1, 2), or x.permute(0, 3, 1, 2) in torch"
        )
    if samples.is_complex() or samples.dtype == torch.bool:
        raise InputTypeError(f"data must be real numbers, got {samples.dtype}")
    low, high = (float(end) for end in torch.aminmax(samples))
    samples = samples.to(torch.float32)
    if not torch.isfinite(samples).all():
        raise InputError(f"data must be finite, {int((~torch.isfinite(samples)).sum())} of {samples.numel()} are not")
    if samples.ndim == 4 and not -1.001 <= low <= high <= 1.001:
        hint = "; use x / 127.5 - 1" if low >= 0 and 1 < high <= 255 else ""
        raise InputError(f"images must have values from -1 to 1, got {low:g} to {high:g}{hint}")
    if samples.ndim == 4 and low >= 0 and high > 0.5:
        raise InputError("images must have values from -1 to 1, these seem to be in [0, 1]; use 2 * x - 1")
    return samples
