"""Convolutional generators of small square images, of the size of a DCGAN, with or without classes.

No batch norm: what a network makes of a latent depends on that latent alone, on any number of processes.
"""

import torch
from torch import nn

from obrs.models.conv import check_label, group_norm, pyramid
from obrs.types import Array

__all__ = ["ConvGenerator"]


class ConvGenerator(nn.Module):  # type: ignore[misc]
    """A generator from latents `(n, latent)`, and labels `(n,)` if it has classes, to images in [-1, 1].

    A linear layer makes the smallest map, transposed convolutions double it; group norm and ReLU in between. A label
    is embedded and joined to the latent.

    Args:
        latent: Numbers in.
        size: Pixels a side: 8, 16, 32, 64 grow from 4, 28 from 7; any even number of at least 8 will do.
        channels: 1 for grey, 3 for colour.
        width: Channels of the last hidden map; each smaller map has twice as many.
        classes: Number of labels, or None.

    Example:
        >>> generate = ConvGenerator(16, size=28, width=8, classes=10)
        >>> generate(torch.zeros(3, 16), torch.tensor([0, 1, 9])).shape
        torch.Size([3, 1, 28, 28])

    References:
        | Unsupervised Representation Learning with Deep Convolutional Generative Adversarial Networks
          (Radford et al., 2016)
        | Group Normalization (Wu & He, 2018)
    """

    def __init__(
        self, latent: int = 64, *, size: int = 32, channels: int = 1, width: int = 32, classes: int | None = None
    ) -> None:
        super().__init__()
        start, widths = pyramid(size, width)
        self.latent, self.classes = latent, classes
        self.spec = {"name": "conv_generator", "latent": latent, "size": size, "channels": channels, "width": width}
        self.spec |= {"classes": classes}
        self.embed = nn.Embedding(classes, latent) if classes else None
        parts: list[nn.Module] = [nn.Linear(latent * (2 if classes else 1), widths[0] * start**2)]
        parts.append(nn.Unflatten(1, (widths[0], start, start)))
        for inside, outside in zip(widths, [*widths[1:], channels], strict=True):
            parts += [group_norm(inside), nn.ReLU(), nn.ConvTranspose2d(inside, outside, 4, 2, 1)]
        self.body = nn.Sequential(*parts, nn.Tanh())

    def forward(self, z: Array, label: Array | None = None) -> Array:
        """Return images of shape `(n, channels, size, size)`."""
        label = check_label(label, self.classes)
        z = z.reshape(len(z), -1)
        return self.body(z if self.embed is None else torch.cat([z, self.embed(label).to(z)], dim=1))
