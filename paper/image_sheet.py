"""What tables and figures of images share: names, a sheet of proposals, and cells of distances over the rates.

In a record the pixels of a sheet are text. What is kept is drawn in green frames, the rest in red. A cell is a list:
value, change from the model as it is, and the standard error of that change.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .record import numbers
from .style import KEPT, REJECTED, Look, canvas, tidy

__all__ = ["CONSTANTS", "DATA", "JUDGES", "RATIOS", "as_text", "cell_keys", "draw_rates", "draw_sheet", "sheet_canvas"]
__all__ += ["from_text", "title"]

RATIOS = {
    "own": "critic as it is",
    "tuned": "critic trained further",
    "outputs": "outputs of a classifier",
    "gradients": "features without labels",
    "tune": "tune",
}
"""The ratios that are compared, and what they are called; that of `obrs.tune` has constants of its own choice."""
CONSTANTS = {"global": "one constant", "class": "one per class", "calibrated": "calibrated"}
"""How many constants there are, and what that is called; "calibrated" is one constant after calibration by class."""
JUDGES = {
    "classifier": "another classifier",
    "efficientnet_lite0": "EfficientNet-Lite0",
    "inception_v3": "Inception-v3, so that it is the FID",
}
"""Whose features the distances are of; of EfficientNet-Lite0 the 64 principal components of real images."""
DATA = {"cifar10": "CIFAR-10", "fashion_mnist": "Fashion-MNIST", "celeba": "CelebA"}
_MODELS = {
    "digits": "conditional GAN, digits",
    "fashion_mnist": "conditional GAN, Fashion-MNIST",
    "fashion_vae": "VAE, Fashion-MNIST",
    "mnist_plain": "GAN, MNIST",
    "mnist_five": "GAN, MNIST, five digits",
    "digits_plain": "GAN, digits",
    "cifar10-gan": "conditional GAN, CIFAR-10",
    "cifar10-plain": "unconditional GAN, CIFAR-10",
    "cifar10-biggan": "BigGAN, CIFAR-10",
    "celeba": "BigGAN, CelebA",
    "fashion_edm": "diffusion model, Fashion-MNIST",
}
_GAP = 0.16  # between images, in images
_ACROSS = 14  # images in a row above a figure


def title(generator: str) -> str:
    """Return what a generator is called, from its name and seed.

    Example:
        >>> title("cifar10-gan-1")
        'conditional GAN, CIFAR-10, seed 1'
    """
    name, _, number = generator.rpartition("-")
    if generator == "gaussians":
        return "GAN, 25 Gaussians"
    counted = f"{number} updates" if name == "fashion_edm" else f"seed {number}"
    return f"{_MODELS.get(name, name)}, {counted}"


def as_text(images: Any) -> list[str]:
    """Return images in [-1, 1], shape `(n, channels, height, width)`, as text with a byte per pixel."""
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


def sheet_canvas(row: Mapping[str, Any], whose: str, height: float) -> tuple[Any, Any]:
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
