"""Random numbers by key: what is drawn depends on a seed and on what it is for, not on what was drawn before."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import numpy as np

__all__ = ["Shuffled", "derive", "new_rng", "own_noise"]

Rows = np.ndarray[Any, Any]


def derive(seed: int, *key: str | int) -> int:
    """Return a seed below 2**63 that is a function of a seed and a key.

    Example:
        >>> derive(0, "mix", 5) == derive(0, "mix", 5), derive(0, "mix", 5) == derive(0, "mix", 6)
        (True, False)
    """
    return int.from_bytes(blake2b(repr((seed, *key)).encode(), digest_size=8).digest(), "little") >> 1


def new_rng(seed: int, *key: str | int) -> Any:
    """Return a `torch.Generator` whose state is a function of a seed and a key."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *key))


@contextmanager
def own_noise(device: Any = "cpu") -> Iterator[Callable[[int], None]]:
    """Yield a function that seeds torch's global generators, and restore them after the block.

    Initial weights and dropout draw from these generators, those of the CPU and of `device`.
    """
    import torch

    device = torch.device(device)
    on_cuda = device.type == "cuda"
    index = (torch.cuda.current_device() if device.index is None else device.index) if on_cuda else 0
    generators = [torch.default_generator, *([torch.cuda.default_generators[index]] if on_cuda else [])]

    def reseed(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)

    with torch.random.fork_rng(devices=[index] if on_cuda else []):
        yield reseed


class Shuffled:
    """An endless sequence of rows, epoch after epoch; any part of it can be read without the parts before it.

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
