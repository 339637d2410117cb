"""Images as bytes, which become numbers when they are used: as numbers they take four times as much memory."""

from typing import Any

import numpy as np

from obrs._pictures import to_floats
from obrs.errors import InputError

__all__ = ["Pixels"]

Array = np.ndarray[Any, Any]


class Pixels:
    """Images as bytes, such as a mapped file; `x[rows]` are those rows as float32 in [-1, 1], a slice stays bytes.

    Args:
        bytes: uint8, shape `(n, channels, height, width)`, at least one image.

    Example:
        >>> x = Pixels(np.full((5, 3, 2, 2), 255, dtype=np.uint8))
        >>> x.shape, x[1:].shape, float(x[np.array([0, 4])].max())
        ((5, 3, 2, 2), (4, 3, 2, 2), 1.0)
    """

    ndim = 4

    def __init__(self, bytes: Array) -> None:
        shape, kind = tuple(getattr(bytes, "shape", ())), getattr(bytes, "dtype", type(bytes).__name__)
        if kind != np.uint8 or len(shape) != 4 or not shape[0]:  # floats would be nearly black as bytes
            raise InputError(f"pixels must be uint8 of shape (n, channels, height, width), got {kind} of shape {shape}")
        self.bytes, self.shape = bytes, tuple(int(n) for n in shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        found = self.bytes[rows]
        return Pixels(found) if isinstance(rows, slice) else to_floats(found)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = to_floats(self.bytes)
        return found if dtype is None else found.astype(dtype)
