"""Samples with or without labels, as one value that is sliced and moved together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_torch_array

from .._arrays import host_view
from ..errors import InputError, InputTypeError

__all__ = ["Batch", "Columns"]

Tensor = Any
Columns = Sequence[Any] | None


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples, and the label of each of them if they have labels.

    Args:
        x: A tensor of samples, shape `(n, ...)`, of any dtype.
        y: Their labels, integers of shape `(n,)`, or None.

    Example:
        >>> batch = Batch.read((np.zeros((5, 2)), np.arange(5)))
        >>> len(batch), batch[1:3].y
        (5, tensor([1, 2]))
    """

    x: Tensor
    y: Tensor = None

    @classmethod
    def read(cls, given: Any, columns: Columns = None, name: str = "the batch") -> "Batch":
        """Make a batch from an array, a tuple (x, label), or a mapping with `columns=(x, label)`."""
        if isinstance(given, Mapping):
            if not isinstance(columns, tuple | list) or any(key not in given for key in columns):
                known = ", ".join(map(repr, given))
                raise InputTypeError(f'{name} is a mapping of {known}; name its samples and labels: columns=("x", "y")')
            given = tuple(given[key] for key in columns)
        elif columns is not None:
            raise InputTypeError(f"columns are for a mapping, {name} is a {type(given).__name__}")
        parts = given if isinstance(given, tuple) else (given,)
        if len(parts) not in (1, 2) or not all(is_array_api_obj(part) for part in parts):
            got = f"a tuple of {', '.join(type(part).__name__ for part in parts)}"
            got = got if isinstance(given, tuple) else type(given).__name__
            raise InputTypeError(f"{name} must be an array of samples, or a tuple (x, label) of arrays, got {got}")
        x, y = _tensor(parts[0]), _tensor(parts[1], name) if len(parts) == 2 else None
        if x.ndim < 2 or x.device.type == "meta":
            expected = f"{name} must have samples of shape (n, ...) with values"
            raise InputError(f"{expected}, got {tuple(x.shape)} on {x.device}; use x[:, None] for numbers")
        return cls(x, None if y is None else _check_labels(y, len(x), name).to(x.device))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> "Batch":
        return Batch(self.x[rows], None if self.y is None else self.y[rows])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.x.shape[1:])

    @property
    def device(self) -> Any:
        """The device of samples and labels."""
        return self.x.device

    def to(self, device: Any) -> "Batch":
        """Return samples and labels on another device."""
        return Batch(self.x.to(device), None if self.y is None else self.y.to(device))

    def blocks(self, size: int) -> "list[Batch]":
        """Split into batches of at most so many samples."""
        return [self[at : at + size] for at in range(0, len(self), size)]

    def call(self, function: Callable[..., Any]) -> Any:
        """Return `function(x)`, or `function(x, y)` if there are labels."""
        return function(self.x) if self.y is None else function(self.x, self.y)

    def features(self, compute: Callable[..., Any], size: int = 512) -> "Batch":
        """Return the features of the samples, computed in blocks, with the same labels.

        There is a gradient only if the samples require one.
        """
        import torch

        with torch.set_grad_enabled(torch.is_grad_enabled() and self.x.requires_grad):
            features = [block.call(compute) for block in self.blocks(size) or [self]]
        return Batch(torch.cat(features), self.y)

    @classmethod
    def join(cls, batches: "Sequence[Batch]") -> "Batch":
        """Return several batches as one."""
        import torch

        y = None if batches[0].y is None else torch.cat([batch.y for batch in batches])
        return cls(torch.cat([batch.x for batch in batches]), y)

    def check(self, name: str) -> "Batch":
        """Return the batch, or raise if it is empty or has samples that are not finite."""
        if not self.x.numel():
            raise InputError(f"{name} is empty, shape {tuple(self.x.shape)}: a ratio needs samples of both kinds")
        if self.x.is_floating_point():
            bad = sum(int((~block.x.isfinite()).sum()) for block in self.blocks(8192))
            if bad:
                raise InputError(f"{name} has {bad} NaN or infinite among {self.x.numel()} values; drop those samples")
        return self


def _tensor(x: Any, name: str = "") -> Tensor:
    """Return an array of any library as a tensor that shares its memory where it can."""
    import torch

    if is_torch_array(x):
        return x
    values = np.asarray(host_view(x))
    if values.dtype.kind not in "biuf":
        remedy = "; number labels with np.unique(labels, return_inverse=True)[1]" if name else ""
        raise InputTypeError(f"{name or 'samples'} must hold numbers, got dtype {values.dtype}{remedy}")
    return torch.as_tensor(np.ascontiguousarray(values) if values.flags.writeable else values.copy())


def _check_labels(y: Tensor, n: int, name: str) -> Tensor:
    if y.ndim != 1 or len(y) != n:
        raise InputError(f"{name} has {n} samples and labels of shape {tuple(y.shape)}; give one label per sample")
    if y.is_floating_point():
        remedy = "a condition that is a number belongs to the sample: join it to x"
        raise InputTypeError(f"{name} must have labels that are integers, got {y.dtype}; {remedy}")
    return y.detach().long()
