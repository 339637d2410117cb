"""Kept samples as a torch dataset, for a `DataLoader`."""

from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from ..sampling.proposals import map_leaves
from ..sampling.rejection import stream

__all__ = ["StreamDataset"]


class StreamDataset(IterableDataset):  # type: ignore[misc, type-arg, unused-ignore]
    """Samples kept by `stream`, one by one; each worker of a `DataLoader` makes its own part of the proposals.

    Args:
        propose, log_ratio, rule, options: As for `obrs.stream`. Of several processes each says its own `shard`.

    Example:
        >>> from obrs import Budgeted, normals
        >>> dataset = StreamDataset(lambda i: normals(i, 2, seed=0), lambda x: x[:, 0], Budgeted(-1.0), batch_size=50)
        >>> next(iter(dataset)).shape
        (2,)
    """

    def __init__(self, propose: Any, log_ratio: Any, rule: Any, *, shard: tuple[int, int] = (0, 1), **options: Any):
        self.stream, self.shard = partial(stream, propose, log_ratio, rule, **options), shard

    def __iter__(self) -> Iterator[Any]:
        (process, processes), worker = self.shard, get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for part in self.stream(shard=(process * workers + number, processes * workers)):
            yield from (map_leaves(itemgetter(row), part.x) for row in range(len(part)))
