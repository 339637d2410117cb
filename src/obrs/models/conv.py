"""Convolutional critics of small square images, of the size of a DCGAN, with or without classes.

No batch norm: the output for one image depends on that image alone, on any number of processes.
"""

from itertools import pairwise
from math import gcd
from typing import Any

from torch import nn
from torch.nn.utils.parametrizations import spectral_norm as normalised

from .._checks import check_count
from ..errors import InputError, InputTypeError
from ..types import Array

__all__ = ["ConvCritic", "check_label", "class_count", "group_norm", "pyramid"]


class ConvCritic(nn.Module):  # type: ignore[misc]
    """A critic of images `(n, channels, size, size)`, and of their labels `(n,)` if it has classes.

    Strided convolutions halve the image, with LeakyReLU in between; a linear layer ends it. With classes that layer
    has a part of its own for each of them: a projection.

    Args:
        size, channels: Pixels a side, any even number of at least 8, and 1 for grey or 3 for colour.
        width: Channels of the first map; each smaller map has twice as many.
        classes, heads: Number of labels, or None, and numbers out: `(n,)` for one, else `(n, heads)`.
        spectral_norm: Divide each weight by its largest singular value, instead of group norm.

    Example:
        >>> import torch
        >>> critic = ConvCritic(size=8, width=16, heads=2, spectral_norm=True)
        >>> critic(torch.zeros(5, 1, 8, 8)).shape, critic.features(torch.zeros(5, 1, 8, 8)).shape
        (torch.Size([5, 2]), torch.Size([5, 256]))

    References:
        | cGANs with Projection Discriminator (Miyato & Koyama, 2018)
        | Spectral Normalization for Generative Adversarial Networks (Miyato et al., 2018)
    """

    def __init__(
        self,
        *,
        size: int = 32,
        channels: int = 1,
        width: int = 32,
        classes: int | None = None,
        heads: int = 1,
        spectral_norm: bool = False,
    ) -> None:
        super().__init__()
        end, widths = pyramid(size, width)
        self.heads, self.classes = check_count(heads, "heads"), class_count(classes)
        self.shape = (check_count(channels, "channels"), check_count(size, "size"), check_count(size, "size"))
        self.spec = {"name": "conv_critic", "size": size, "channels": channels, "width": width, "classes": classes}
        self.spec |= {"heads": heads, "spectral_norm": spectral_norm}
        parts: list[nn.Module] = []
        maps = [self.shape[0], *reversed(widths)]
        for at, (inside, outside) in enumerate(pairwise(maps)):
            conv = nn.Conv2d(inside, outside, 4, 2, 1)
            parts.append(normalised(conv) if spectral_norm else conv)
            parts += [group_norm(outside)] if at and not spectral_norm else []
            parts.append(nn.LeakyReLU(0.2))
        self.body = nn.Sequential(*parts, nn.Flatten())
        features = widths[0] * end**2
        self.head, self.embed = nn.Linear(features, heads), None
        if self.classes:
            self.embed = nn.Embedding(self.classes, heads * features)
            nn.init.normal_(self.embed.weight, std=features**-0.5)
        if spectral_norm:
            normalised(self.head)
            if self.embed is not None:
                normalised(self.embed)

    def features(self, x: Array) -> Array:
        """Return what the last layer sees, shape `(n, features)`."""
        if tuple(x.shape[1:]) != self.shape:
            got = f"got {tuple(x.shape[1:])}; resize, pad or transpose them"
            raise InputError(f"this critic takes images of {self.shape}, {got}")
        return self.body(x)

    def forward(self, x: Array, label: Array | None = None) -> Array:
        """Return shape `(n,)`, or `(n, heads)` for more than one head."""
        label = check_label(label, self.classes)
        h = self.features(x)
        out = self.head(h)
        if self.embed is not None:
            projection = self.embed(label).reshape(len(h), self.heads, -1)
            out = out + (projection.to(h) @ h[:, :, None])[:, :, 0]
        return out[:, 0] if self.heads == 1 else out


def pyramid(size: Any, width: Any) -> tuple[int, list[int]]:
    """Return the side of the smallest map, and the channels of each hidden map, smallest map first."""
    side, doublings = check_count(size, "size"), 0
    while side % 2 == 0 and side >= 8:
        side, doublings = side // 2, doublings + 1
    if not doublings:
        raise InputError(f"size must be an even number of at least 8 pixels, got {size}; pad the images")
    return side, [check_count(width, "width") * 2**k for k in reversed(range(doublings))]


def group_norm(channels: int) -> nn.GroupNorm:
    """Return a group norm, with eight channels per group where their number allows it."""
    return nn.GroupNorm(gcd(8, channels), channels)


def class_count(classes: Any) -> int | None:
    """Return the number of classes, or None for a network without any."""
    return None if classes is None else check_count(classes, "classes")


def check_label(label: Any, classes: int | None) -> Any:
    """Return the labels if the network has classes, None if it has none."""
    if (label is None) != (classes is None):
        reason = "has no classes: call it without labels" if classes is None else f"has {classes} classes: pass labels"
        raise InputTypeError(f"this network {reason}")
    return label
