"""IDX files, the format of MNIST and similar data sets, plain or gzipped."""

import gzip
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from obrs.errors import InputError

__all__ = ["find", "is_whole", "read"]

_BYTES = 0x08  # the code for unsigned bytes, the only type of these data sets


def read(path: Path) -> "np.ndarray[Any, Any]":
    """Return the array of unsigned bytes in a file; one that is not compressed is mapped, not copied.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "two-labels-idx1-ubyte"
        >>> _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 3]))
        >>> read(path)
        array([7, 3], dtype=uint8)
    """
    if path.suffix == ".gz":
        try:
            raw = np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{path} is damaged: {str(error).rstrip('.').lower()}; get it again") from error
    else:
        raw = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.empty(0, dtype=np.uint8)
    shape = _shape(bytes(raw[:16]))
    if shape is None:
        raise InputError(f"{path} is not an IDX file of bytes: it starts with {bytes(raw[:4]).hex() or 'nothing'}")
    start = 4 + 4 * len(shape)
    if raw.size - start != prod(shape):
        raise InputError(f"{path} must hold {prod(shape)} bytes for {shape}, got {raw.size - start}; get it again")
    return np.asarray(raw[start:].reshape(shape))


def is_whole(path: Path) -> bool:
    """Tell whether an uncompressed file exists and has the length that its header says."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        shape = _shape(file.read(16))
    return shape is not None and path.stat().st_size == 4 + 4 * len(shape) + prod(shape)


def find(folder: Path, name: str) -> Path | None:
    """Return the file of that name in a folder, plain or with `.gz`; None if there is neither."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _shape(header: bytes) -> tuple[int, ...] | None:
    """Return the shape that the first 16 bytes of a file describe, of up to three axes."""
    if (
        len(header) < 4
        or header[:3] != bytes([0, 0, _BYTES])
        or not 1 <= header[3] <= 3
        or len(header) < 4 + 4 * header[3]
    ):
        return None
    return tuple(int(n) for n in np.frombuffer(header[4 : 4 + 4 * header[3]], dtype=">u4"))
