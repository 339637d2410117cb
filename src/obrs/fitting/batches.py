"""The order in which data are seen: all of them, then all of them again in another order."""

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Shuffled"]

Rows = np.ndarray[Any, Any]


class Shuffled:
    """An endless sequence of rows, epoch after epoch; any part of it can be had without the parts before it.

    Args:
        size: Rows in an epoch, at least 1.
        order: From the number of an epoch to its rows, shape `(size,)`.

    Example:
        >>> shuffled = Shuffled(3, lambda epoch: np.random.default_rng(epoch).permutation(3))
        >>> sorted(shuffled.rows(3, 6).tolist()), len(shuffled.rows(0, 100))
        ([0, 1, 2], 100)
    """

    def __init__(self, size: int, order: Callable[[int], Rows]) -> None:
        self.size = size
        self._order = order
        self._latest: tuple[int, Rows] = (-1, np.empty(0, dtype=np.int64))

    def rows(self, first: int, last: int) -> Rows:
        """Return the rows at the positions from `first` to before `last`."""
        parts = []
        while first < last:
            epoch, at = divmod(first, self.size)
            if epoch != self._latest[0]:
                self._latest = (epoch, self._order(epoch))
            parts.append(self._latest[1][at : at + last - first])
            first += len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
