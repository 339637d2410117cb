"""What figures of images share: a sheet of proposals, and cells of distances as keys and as curves over the rates.

In a record the pixels of a sheet are text. What is kept is drawn in green frames, the rest in red. A cell is a list:
value, change from the model as it is, and the standard error of that change.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .record import numbers
from .style import KEPT, REJECTED, Look, canvas, tidy

__all__ = ["as_text", "below_sheet", "cell_keys", "draw_rates", "draw_sheet", "from_text"]

_GAP = 0.16  # between images, in images
_ACROSS = 14  # images in a row above a figure


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


def below_sheet(row: Mapping[str, Any], whose: str, height: float) -> tuple[Any, Any]:
    """Return a figure with the sheet of a row above, if it has one, and the part of this height below it."""
    high = 0.6 + 0.75 * -(-len(row.get("sheet", ())) // _ACROSS)
    drawn = canvas(12, high + height)
    above, below = drawn.subfigures(2, 1, height_ratios=[high, height])
    if "sheet" in row:
        axes = above.subplots()
        draw_sheet(axes, row["sheet"], row["shape"], row["kept"], across=_ACROSS)
        axes.set_title(f"{whose}: proposals, kept (green) and rejected (red) at one half")
    return drawn, below


def cell_keys(rule: str, rates: Sequence[float]) -> list[str]:
    """Return the keys of the cells of a rule, after that of the model as it is."""
    return ["model 1", *(f"{rule} {1 / rate:g}" for rate in rates)]


def draw_rates(axes: Any, rates: Sequence[float], cells: Mapping[str, Any], rule: str, look: Look, **style: Any) -> Any:
    """Draw the cells of a rule against the acceptance rate, with 95 % intervals of the change; return the values."""
    some = [cells[key] for key in cell_keys(rule, rates)]
    value, reach = numbers([cell[0] for cell in some]), 1.96 * numbers([cell[2] for cell in some])
    line: Any = {"color": look.colour, "ls": look.line, "marker": look.marker, "ms": 4, "lw": 1.5}
    axes.errorbar([1, *rates], value, reach, **line | {"label": look.label} | style)
    axes.set(xlabel="acceptance rate", xlim=(1.03, min(rates) - 0.03))
    tidy(axes, None)
    return value
