"""Ids of 64 bits from cells of a table: integers are their own, and other text has one by its bytes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .draws import scrambled

__all__ = ["cell_ids", "text_ids"]

Ints = np.ndarray[Any, Any]

_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"  # as one writes it: 7, not 007


def cell_ids(cells: Any) -> Ints:
    """Return the ids of an array of integers or text, as int64; those from 2**63 on in two's complement.

    Example:
        >>> cell_ids(pa.array(["7", "-3"])), cell_ids(pa.array(["7", "007"]))[0]
        (array([ 7, -3]), np.int64(7))
    """
    if pa.types.is_integer(cells.type):
        plain = cells.to_numpy(zero_copy_only=False)
        wide: Ints = plain.astype("u8" if plain.dtype.kind == "u" else "i8", copy=False).view(np.int64)
        return wide
    is_integer = pc.match_substring_regex(cells, _INTEGER)
    integers = cells.filter(is_integer).cast(pa.int64()).to_numpy(zero_copy_only=False)
    if len(integers) == len(cells):
        return np.asarray(integers)
    ids = text_ids(cells)
    ids[is_integer.to_numpy(zero_copy_only=False)] = integers
    return ids


def text_ids(cells: Any) -> Ints:
    """Return 64 bits of each text: the sum of its bytes times odd numbers that depend on their place, scrambled.

    Two texts of n in all have one id with probability n² / 2**65, so that a billion of them may have a pair.
    """
    cells = cells.cast(pa.large_string())
    _, offsets, data = cells.buffers()
    ends = np.frombuffer(offsets, np.int64)[cells.offset : cells.offset + len(cells) + 1]
    text = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]] if len(cells) else np.empty(0, np.uint8)
    ends = ends - ends[0]
    length = np.diff(ends)
    place = np.arange(len(text), dtype=np.int64) - np.repeat(ends[:-1], length)
    weight = _mixed(np.arange(int(length.max(initial=0)) + 1, dtype=np.uint64)) | np.uint64(1)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((text + np.uint64(1)) * weight[place], dtype=np.uint64)])
    return _mixed(sums[ends[1:]] - sums[ends[:-1]]).view(np.int64)


def _mixed(x: Ints) -> Ints:
    """Scramble 64 bits, one to one."""
    return np.asarray(scrambled(x.view(np.int64)).view(np.uint64))
