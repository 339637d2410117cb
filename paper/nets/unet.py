"""A small U-Net of images and times, such as the denoiser of a diffusion model."""

from collections.abc import Sequence
from math import log

import torch
from torch import nn
from torch.nn import functional

from obrs.models.conv import check_label, group_norm
from obrs.types import Array

__all__ = ["UNet"]

_WAVES = 32  # frequencies that a time is seen through
_SLOWEST, _FASTEST = 0.25, 16.0  # radians per unit of time; EDM's times lie in [-1.6, 1.1]


class UNet(nn.Module):  # type: ignore[misc]
    """A network from images `(n, channels, height, width)`, times `(n,)` and maybe labels `(n,)` to images.

    Each level has a residual block on the way down and one on the way up, which also sees what the first one made; a
    strided convolution halves the image between levels. Time and label scale and shift the maps of every block. No
    attention, and group norm: what the network says of one image depends on that image alone. It takes any size that
    is at least 2 pixels at the smallest level.

    Args:
        channels: 1 for grey, 3 for colour.
        width: Channels of the first map.
        multiples: Channels of each level, in widths.
        classes: Number of labels, or None.

    Example:
        >>> net = UNet(width=8, classes=10)
        >>> net(torch.zeros(3, 1, 14, 14), torch.zeros(3), torch.tensor([0, 1, 9])).shape
        torch.Size([3, 1, 14, 14])

    References:
        | U-Net: Convolutional Networks for Biomedical Image Segmentation (Ronneberger et al., 2015)
        | Diffusion Models Beat GANs on Image Synthesis (Dhariwal and Nichol, 2021), for the scale and shift
    """

    def __init__(
        self, channels: int = 1, *, width: int = 32, multiples: Sequence[int] = (1, 2), classes: int | None = None
    ) -> None:
        super().__init__()
        widths = [width * multiple for multiple in multiples]
        self.channels, self.classes = channels, classes
        self.spec = {"name": "unet", "channels": channels, "width": width, "multiples": list(multiples)}
        self.spec |= {"classes": classes}
        code = 4 * width
        speeds = torch.exp(torch.linspace(log(_SLOWEST), log(_FASTEST), _WAVES))
        self.register_buffer("speeds", speeds, persistent=False)
        self.time = nn.Sequential(nn.Linear(2 * _WAVES, code), nn.SiLU(), nn.Linear(code, code))
        self.label = nn.Embedding(classes, code) if classes else None
        self.first = nn.Conv2d(channels, widths[0], 3, padding=1)
        above = [widths[0], *widths[:-1]]
        self.down = nn.ModuleList(_Block(i, o, code) for i, o in zip(above, widths, strict=True))
        self.halve = nn.ModuleList(nn.Conv2d(w, w, 3, stride=2, padding=1) for w in widths[:-1])
        self.middle = _Block(widths[-1], widths[-1], code)
        self.up = nn.ModuleList(_Block(2 * o, i, code) for i, o in zip(above, widths, strict=True))
        self.last = nn.Sequential(group_norm(widths[0]), nn.SiLU(), nn.Conv2d(widths[0], channels, 3, padding=1))
        nn.init.zeros_(self.last[-1].weight)

    def forward(self, x: Array, time: Array, label: Array | None = None) -> Array:
        """Return images of the shape of x."""
        label = check_label(label, self.classes)
        phase = time[:, None] * self.speeds
        code = self.time(torch.cat([phase.cos(), phase.sin()], dim=1))
        code = functional.silu(code if self.label is None else code + self.label(label))
        h, seen = self.first(x), []
        for level, block in enumerate(self.down):
            h = block(h if level == 0 else self.halve[level - 1](h), code)
            seen.append(h)
        h = self.middle(h, code)
        for block, skip in zip(reversed(self.up), reversed(seen), strict=True):
            if h.shape[2:] != skip.shape[2:]:
                h = functional.interpolate(h, size=skip.shape[2:])
            h = block(torch.cat([h, skip], dim=1), code)
        return self.last(h)


class _Block(nn.Module):  # type: ignore[misc]
    """Two convolutions around a scale and shift by the code, and a way past them; at first only that way."""

    def __init__(self, inside: int, outside: int, code: int) -> None:
        super().__init__()
        self.before = nn.Sequential(group_norm(inside), nn.SiLU(), nn.Conv2d(inside, outside, 3, padding=1))
        self.norm = group_norm(outside)
        self.move = nn.Linear(code, 2 * outside)
        self.after = nn.Conv2d(outside, outside, 3, padding=1)
        nn.init.zeros_(self.after.weight)
        nn.init.zeros_(self.after.bias)
        self.past = nn.Identity() if inside == outside else nn.Conv2d(inside, outside, 1)

    def forward(self, x: Array, code: Array) -> Array:
        scale, shift = self.move(code)[:, :, None, None].chunk(2, dim=1)
        h = self.norm(self.before(x)) * (1 + scale) + shift
        return self.past(x) + self.after(functional.silu(h))
