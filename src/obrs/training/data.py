"""What a run trains on, and in which order: rows, latents and labels as pure functions of (seed, step)."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ..errors import InputError, InputTypeError
from ..fitting.seeds import Shuffled, new_rng
from ..models.classifier import as_classes

__all__ = ["Data", "Draws", "as_data"]

Rows = np.ndarray[Any, Any]


class Data(NamedTuple):
    """Samples to train on: their shape, classes or None, a digest, and batches by rows, `(x,)` or `(x, labels)`."""

    shape: tuple[int, ...]
    labels: Tensor | None
    digest: str
    batches: Callable[[Iterator[Rows]], Iterator[tuple[Tensor, ...]]]


def as_data(data: Any) -> Data:
    """Read data as `train` uses them: their shape, labels, digest and batches.

    Args:
        data: An array or tensor of samples, shape `(n, ...)`; a tuple `(samples, labels)`; or a Dataset of samples or
            such pairs, or a DataLoader, whose dataset, collate function and workers are used.

    Example:
        >>> data = as_data((np.zeros((10, 2)), np.arange(10) % 3))
        >>> data.shape, data.labels.bincount()
        ((10, 2), tensor([4, 3, 3]))
    """
    if isinstance(data, Dataset | DataLoader):
        return _read_loader(data if isinstance(data, DataLoader) else DataLoader(data))
    x, *labels = data if isinstance(data, tuple) and len(data) == 2 else (data,)
    try:
        x = torch.as_tensor(x).detach().cpu()  # batches go where the run is
    except (TypeError, RuntimeError) as error:
        raise InputTypeError(f"data must be samples, with labels, or a Dataset, got {data!r:.60}") from error
    samples = _check_samples(x)
    tensors = (samples, *(as_classes(each, len(samples)) for each in labels))
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().data)
    classes, name = tensors[1] if labels else None, digest.hexdigest()[:16]
    return Data(tuple(samples.shape), classes, name, lambda order: (tuple(x[rows] for x in tensors) for rows in order))


def _read_loader(loader: Any) -> Data:
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset) or not len(dataset):
        raise InputError("train needs a Dataset with a length and rows by index: their order is a function of the seed")
    options = {"num_workers": loader.num_workers, "collate_fn": loader.collate_fn, "pin_memory": loader.pin_memory}

    def batches(order: Iterator[Rows]) -> Iterator[tuple[Tensor, ...]]:
        lists = (rows.tolist() for rows in order)
        for batch in DataLoader(dataset, batch_sampler=lists, generator=torch.Generator(), **options):
            x, *labels = batch if isinstance(batch, tuple | list) else (batch,)
            yield (_check_samples(torch.as_tensor(x)), *(torch.as_tensor(each).long() for each in labels))

    x, *labels = next(batches(iter([np.zeros(1, np.int64)])))
    shape, classes = (len(dataset), *x.shape[1:]), None
    if labels:  # fakes get labels as frequent as these
        targets = getattr(dataset, "targets", None)
        classes = as_classes([int(item[1]) for item in dataset] if targets is None else targets, len(dataset))
    return Data(shape, classes, f"a dataset of {shape}", batches)


def _check_samples(x: Tensor) -> Tensor:
    if x.dtype == torch.uint8:
        raise InputTypeError("data are bytes; give them in the generator's range, such as x / 127.5 - 1 for tanh")
    if x.ndim < 2 or 0 in x.shape or not torch.isfinite(x).all():
        raise InputError(f"data must be finite numbers of shape (n, ...), got shape {tuple(x.shape)}")
    return x.float()


@dataclass(frozen=True)
class Draws:
    """The random choices of a run: each process draws the batch of all processes and takes its rows.

    So many processes train as one would, and a run that goes on after a stop sees what it would have seen.
    """

    seed: int
    batch_size: int
    rank: int = 0
    world: int = 1
    device: Any = "cpu"

    def rows(self, size: int, seen: int) -> Iterator[Rows]:
        """Give rows batch after batch, after so many were seen: all of them in a new random order each time."""
        share = self.batch_size // self.world
        order = Shuffled(size, lambda epoch: torch.randperm(size, generator=new_rng(self.seed, "epoch", epoch)).numpy())
        while True:
            yield order.rows(seen + self.rank * share, seen + (self.rank + 1) * share)
            seen += self.batch_size

    def draw(self, kind: Callable[..., Tensor], what: str, step: int, turn: int, *shape: int) -> Tensor:
        """Return random numbers for a turn of a step; that of the generator is -1, those of the critic 0, 1, ..."""
        whole, share = (self.batch_size, *shape), self.batch_size // self.world
        x = kind(whole, generator=new_rng(self.seed, what, step, turn))
        return x[self.rank * share : (self.rank + 1) * share].to(self.device, non_blocking=True)

    def latents(self, length: int, labels: Tensor | None, step: int, turn: int) -> tuple[Tensor, ...]:
        """Return latents, and if the data have labels such, as frequent as there."""
        z = self.draw(torch.randn, "latent", step, turn, length)
        if labels is None:
            return (z,)
        rows = self.draw(partial(torch.randint, len(labels)), "fake labels", step, turn)
        return z, labels.to(self.device)[rows]
