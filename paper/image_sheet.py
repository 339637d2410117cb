"""A sheet of proposals in a record: pixels as text, and drawn with what is kept in green frames, the rest in red."""

from typing import Any

import numpy as np

from .style import KEPT, REJECTED

__all__ = ["as_text", "draw_sheet", "from_text"]

_GAP = 0.16  # between images, in images


def as_text(images: Any) -> list[str]:
    """Return images in [-1, 1], shape `(n, channels, height, width)`, as text with a byte per pixel.

    Example:
        >>> as_text(np.asarray([[[[-1.0, 0.0], [0.5, 1.0]]]]))
        ['0080bfff']
    """
    pixels = np.clip(np.round((np.asarray(images) + 1) * 127.5), 0, 255).astype(np.uint8)
    return [image.tobytes().hex() for image in pixels]


def from_text(text: str, shape: Any) -> Any:
    """Return the pixels of an image as matplotlib wants them: `(height, width)`, or with 3 colours at the end.

    Example:
        >>> from_text("0080bfff", (1, 2, 2)).tolist()
        [[0, 128], [191, 255]]
    """
    pixels = np.frombuffer(bytes.fromhex(text), np.uint8).reshape(shape).transpose(1, 2, 0)
    return pixels if shape[0] == 3 else pixels[..., 0]


def draw_sheet(axes: Any, sheet: list[str], shape: Any, kept: list[Any], *, across: int = 6) -> None:
    """Draw images in rows of `across`, each in a frame that says whether it is kept."""
    from matplotlib.patches import Rectangle

    for at, (text, stays) in enumerate(zip(sheet, kept, strict=True)):
        x, y = (at % across) * (1 + _GAP), -(at // across) * (1 + _GAP)
        axes.imshow(
            from_text(text, shape), extent=(x, x + 1, y, y + 1), cmap="gray", vmin=0, vmax=255, interpolation="nearest"
        )
        axes.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=KEPT if stays else REJECTED, linewidth=2.0))
    down = -(-len(sheet) // across)
    axes.set(xlim=(-_GAP, across * (1 + _GAP)), ylim=(-(down - 1) * (1 + _GAP) - _GAP, 1 + _GAP), aspect="equal")
    axes.set_axis_off()
