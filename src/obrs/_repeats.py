"""How many ids are repeated: a sample of ids by hash, so that the samples of parts merge to that of the whole."""

from math import frexp
from typing import Any, NamedTuple

import numpy as np

from .draws import scrambled

__all__ = ["MOST", "Repeats"]

Ints = np.ndarray[Any, Any]

MOST = 4096
"""Ids of the sample."""


class Repeats(NamedTuple):
    """The ids whose hash begins with `shift` zero bits, with how often each came; at most `MOST`.

    Example:
        >>> ids = np.array([1, 2, 3, 4, 1, 2, 3, 4])
        >>> whole, parts = Repeats.of(ids, None), Repeats.of(ids[:3], None).merge(Repeats.of(ids[3:], None))
        >>> whole.share, parts.share, whole.together
        (0.5, 0.5, 2.0)
    """

    shift: int
    ids: Ints
    times: Ints

    @classmethod
    def of(cls, ids: Ints, before: "Repeats | None") -> "Repeats":
        """Return the sample of these ids, and of those before."""
        hashed = _hash(ids)
        least = 0 if before is None else before.shift
        # About the right share at once; then exactly: the smallest shift at which they are few enough.
        shift = max(least, frexp(max(len(ids) / MOST, 1.0))[1] - 1)
        found = cls._at(ids, hashed, shift)
        while shift > least and len(found.ids) <= MOST:
            shift -= 1
            wider = cls._at(ids, hashed, shift)
            if len(wider.ids) > MOST:
                break
            found = wider
        found = found._fitted()
        return found if before is None else before.merge(found)

    @classmethod
    def _at(cls, ids: Ints, hashed: Ints, shift: int) -> "Repeats":
        here = ids if shift == 0 else ids[hashed >> np.uint64(64 - shift) == 0]
        return cls(shift, *np.unique(here, return_counts=True))

    def merge(self, other: "Repeats | None") -> "Repeats":
        """Return the sample of both."""
        if other is None:
            return self
        shift = max(self.shift, other.shift)
        a, b = (part._up_to(shift) for part in (self, other))
        ids, at = np.unique(np.concatenate([a.ids, b.ids]), return_inverse=True)
        times = np.bincount(at, np.concatenate([a.times, b.times]), len(ids)).astype(np.int64)
        return Repeats(shift, ids, times)._fitted()

    def _up_to(self, shift: int) -> "Repeats":
        if shift == self.shift:
            return self
        here = _hash(self.ids) >> np.uint64(64 - shift) == 0
        return Repeats(shift, self.ids[here], self.times[here])

    def _fitted(self) -> "Repeats":
        found = self
        while len(found.ids) > MOST:
            found = found._up_to(found.shift + 1)
        return found

    @property
    def share(self) -> float:
        """The estimated share of rows whose id came before."""
        rows = int(self.times.sum())
        return 1 - len(self.ids) / rows if rows else 0.0

    @property
    def together(self) -> float:
        """How many rows, in the mean over rows, have the id of a row."""
        rows = float(self.times.sum())
        return float(np.sum(self.times.astype(np.float64) ** 2)) / rows if rows else 1.0


def _hash(ids: Ints) -> Ints:
    """Scramble ids, for nothing but to choose a share of them; their uniforms must not decide that."""
    return np.asarray(scrambled(ids).view(np.uint64))
