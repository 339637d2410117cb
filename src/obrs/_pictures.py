"""Files of pictures: their extensions, one reader whose errors take one line, and bytes as floats."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .errors import InputError, MissingLibraryError

__all__ = ["SUFFIXES", "pillow", "read_picture", "to_floats"]

Found = TypeVar("Found")
Array = np.ndarray[Any, Any]

SUFFIXES = (".png", ".jpg", ".jpeg")
"""How the names of pictures end, in lower case."""


def pillow() -> Any:
    """Return the module `PIL.Image`."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingLibraryError("images need Pillow: pip install 'obrs[cli]'") from error
    return Image


def read_picture(path: Path, use: Callable[[Any], Found]) -> Found:
    """Return what `use` makes of the opened image of Pillow.

    Args:
        path: The file.
        use: Called before the file is closed: pixels are decoded only there.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> path = Path(tempfile.mkdtemp(), "a.png")
        >>> Image.new("L", (3, 2)).save(path)
        >>> read_picture(path, lambda image: image.size)
        (3, 2)
    """
    library = pillow()
    try:
        with library.open(path) as image:
            return use(image)
    except Exception as error:  # Pillow raises many kinds for a broken file, SyntaxError among them
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno not in (None, errno.ENOENT)):
            raise  # the machine has failed, not the file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} cannot be read as an image: {reason:.100}; replace it or take it away") from error


def to_floats(pixels: Array) -> Array:
    """Return bytes as float32 in [-1, 1].

    Example:
        >>> to_floats(np.array([0, 255], dtype=np.uint8))
        array([-1.,  1.], dtype=float32)
    """
    x = pixels.astype(np.float32)
    x /= np.float32(127.5)
    x -= np.float32(1)
    return x
