"""BigGAN: residual generators and critics of 32, 64 and 128 pixels.

Every weight matrix is divided by its largest singular value, which one step of the power iteration follows in each
training pass. Statistics of batch norm are those of the batch in training, over all GPUs, and stored ones otherwise:
what a trained generator makes of a latent depends on that latent alone.

References:
    | Large Scale GAN Training for High Fidelity Natural Image Synthesis (Brock et al., 2019)
    | Self-Attention Generative Adversarial Networks (Zhang et al., 2019)
    | cGANs with Projection Discriminator (Miyato & Koyama, 2018)
    | Spectral Normalization for Generative Adversarial Networks (Miyato et al., 2018)
"""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm as normalised

from obrs._text import lookup
from obrs.errors import InputError
from obrs.models.conv import check_label
from obrs.types import Array

__all__ = ["INITIAL", "BigGanCritic", "BigGanGenerator"]

INITIAL = {
    "orthogonal": nn.init.orthogonal_,
    "normal": partial(nn.init.normal_, std=0.02),
    "xavier": nn.init.xavier_uniform_,
}
"""How weights start, by name."""

_START = 4  # pixels a side of the generator's smallest map
# Channels in units of the width, from the smallest map on for a generator, from the largest one on for a critic.
_GENERATOR = {32: (4, 4, 4, 4), 64: (16, 16, 8, 4, 2), 128: (16, 16, 8, 4, 2, 1)}
_CRITIC = {32: (4, 4, 4, 4), 64: (1, 2, 4, 8, 16), 128: (1, 2, 4, 8, 16, 16)}
_HALVINGS = {32: 2, 64: 4, 128: 5}  # blocks of a critic that halve the map; the others come after them


class BigGanGenerator(nn.Module):  # type: ignore[misc]
    """A generator from latents `(n, latent)`, and labels `(n,)` if it has classes, to images in [-1, 1].

    A linear layer makes a map of 4x4, residual blocks double it. Gain and shift of every batch norm in them are
    functions of the label, or of a shared embedding of it and of a part of the latent.

    Args:
        latent: Numbers in. If hierarchical, a multiple of the number of blocks plus one: 4, 5 or 6.
        size: Pixels a side: 32, 64 or 128.
        channels: 1 for grey, 3 for colour.
        width: Channels are multiples of it.
        classes: Number of labels, or None.
        shared: Length of an embedding of labels that all blocks share; 0 gives every batch norm its own.
        hierarchical: Give each block a part of the latent; needs a shared embedding.
        attention: Side of the map that self-attention follows; 0 for none.
        initial: A key of `INITIAL`.

    Example:
        >>> generate = BigGanGenerator(120, size=128, width=4, classes=10, shared=8, hierarchical=True)
        >>> generate(torch.zeros(2, 120), torch.tensor([0, 9])).shape
        torch.Size([2, 3, 128, 128])
    """

    def __init__(
        self,
        latent: int = 128,
        *,
        size: int = 32,
        channels: int = 3,
        width: int = 64,
        classes: int | None = None,
        shared: int = 0,
        hierarchical: bool = False,
        attention: int = 0,
        initial: str = "orthogonal",
    ) -> None:
        super().__init__()
        maps = _maps(_GENERATOR, size, width)
        sides = [_START * 2**at for at in range(1, len(maps))]
        self.latent, self.classes = latent, classes
        self.spec = {"name": "biggan_generator", "latent": latent, "size": size, "channels": channels, "width": width}
        self.spec |= {"classes": classes, "shared": shared, "hierarchical": hierarchical, "attention": attention}
        self.spec |= {"initial": initial}
        self.pieces = len(maps) if hierarchical else 1
        if latent % self.pieces or (hierarchical and not shared):
            expected = f"a multiple of {self.pieces} and a shared embedding of labels"
            raise InputError(f"a hierarchical latent of {size} pixels needs {expected}, got {latent} and {shared}")
        piece, labels = latent // self.pieces, classes or 1  # without classes all have the label 0
        self.embed = nn.Embedding(labels, shared) if shared else None
        condition = (shared + (piece if hierarchical else 0)) if shared else labels
        self.start = nn.Linear(piece, maps[0] * _START**2)
        self.blocks = nn.ModuleList(
            _GeneratorBlock(inside, outside, condition, shared=bool(shared), attends=side == attention)
            for (inside, outside), side in zip(pairwise(maps), sides, strict=True)
        )
        last = nn.Conv2d(maps[-1], channels, 3, padding=1)
        self.last = nn.Sequential(nn.SyncBatchNorm(maps[-1]), nn.ReLU(), last, nn.Tanh())
        _begin(self, initial, nn.Linear | nn.Conv2d)  # spectral norm may cripple the embeddings of a generator

    def forward(self, z: Array, label: Array | None = None) -> Array:
        """Return images of shape `(n, channels, size, size)`."""
        z = z.reshape(len(z), -1)
        label = _label(label, self.classes, z)
        first, *others = z.chunk(self.pieces, dim=1)
        condition = label if self.embed is None else self.embed(label).to(z)
        h = self.start(first).reshape(len(z), -1, _START, _START)
        for at, block in enumerate(self.blocks):
            h = block(h, torch.cat([condition, others[at]], dim=1) if others else condition)
        return self.last(h)


class BigGanCritic(nn.Module):  # type: ignore[misc]
    """A critic of images `(n, channels, size, size)`, and of their labels `(n,)` if it has classes.

    Residual blocks halve the map, its sum over all pixels is what a head sees: a linear layer, and a projection on the
    embedding of the label. A second head has weights of its own, and the first one is what it would be alone.

    Args:
        size, channels, width, classes: As of `BigGanGenerator`.
        heads: Numbers out: `(n,)` for one, else `(n, heads)`.
        attention: Side of the map that self-attention follows; 0 for none. A critic without such a map has none.
        initial: A key of `INITIAL`.
        spectral_norm: Divide each weight by its largest singular value.

    Example:
        >>> critic = BigGanCritic(size=32, width=4, classes=10, heads=2)
        >>> x = torch.zeros(5, 3, 32, 32)
        >>> critic(x, torch.arange(5)).shape, critic.features(x).shape
        (torch.Size([5, 2]), torch.Size([5, 16]))
    """

    def __init__(
        self,
        *,
        size: int = 32,
        channels: int = 3,
        width: int = 64,
        classes: int | None = None,
        heads: int = 1,
        attention: int = 0,
        initial: str = "orthogonal",
        spectral_norm: bool = True,
    ) -> None:
        super().__init__()
        maps = _maps(_CRITIC, size, width)
        sides = [size >> min(at + 1, _HALVINGS[size]) for at in range(len(maps))]
        self.classes = classes
        self.spec = {"name": "biggan_critic", "size": size, "channels": channels, "width": width, "classes": classes}
        self.spec |= {"heads": heads, "attention": attention, "initial": initial, "spectral_norm": spectral_norm}
        self.blocks = nn.ModuleList(
            _CriticBlock(inside, outside, halves=side < before, first=not at, attends=attention == side < before)
            for at, ((inside, outside), (before, side)) in enumerate(
                zip(pairwise([channels, *maps]), pairwise([size, *sides]), strict=True)
            )
        )
        self.heads = nn.ModuleList(_Head(maps[-1], classes or 1) for _ in range(heads))
        _begin(self, initial, nn.Linear | nn.Conv2d | nn.Embedding if spectral_norm else None)

    def features(self, x: Array) -> Array:
        """Return what the heads see, shape `(n, features)`."""
        for block in self.blocks:
            x = block(x)
        return functional.relu(x).sum(dim=(2, 3))

    def forward(self, x: Array, label: Array | None = None) -> Array:
        """Return shape `(n,)`, or `(n, heads)` for more than one head."""
        label = _label(label, self.classes, x)
        h = self.features(x)
        out = [head(h, label) for head in self.heads]
        return out[0] if len(out) == 1 else torch.stack(out, dim=1)


class _GeneratorBlock(nn.Module):  # type: ignore[misc]
    """Batch norm, ReLU and convolution, twice, on a map that is doubled first; a convolution of 1x1 beside them."""

    def __init__(self, inside: int, outside: int, condition: int, *, shared: bool, attends: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = (_ConditionalNorm(channels, condition, shared) for channels in (inside, outside))
        self.conv1, self.conv2 = (nn.Conv2d(channels, outside, 3, padding=1) for channels in (inside, outside))
        self.skip = nn.Conv2d(inside, outside, 1)
        self.attention = _Attention(outside) if attends else nn.Identity()

    def forward(self, x: Array, condition: Array) -> Array:
        double = partial(functional.interpolate, scale_factor=2)
        h = self.conv1(double(functional.relu(self.norm1(x, condition))))
        h = self.conv2(functional.relu(self.norm2(h, condition))) + self.skip(double(x))
        return self.attention(h)


class _CriticBlock(nn.Module):  # type: ignore[misc]
    """ReLU and convolution, twice, on a map that is halved in the end; the image itself sees no ReLU."""

    def __init__(self, inside: int, outside: int, *, halves: bool, first: bool, attends: bool) -> None:
        super().__init__()
        self.first, self.pool = first, nn.AvgPool2d(2) if halves else nn.Identity()
        self.conv1, self.conv2 = (nn.Conv2d(channels, outside, 3, padding=1) for channels in (inside, outside))
        self.skip = nn.Conv2d(inside, outside, 1) if halves or inside != outside else nn.Identity()
        self.attention = _Attention(outside) if attends else nn.Identity()

    def forward(self, x: Array) -> Array:
        h = self.pool(self.conv2(functional.relu(self.conv1(x if self.first else functional.relu(x)))))
        # halving and a convolution of 1x1 commute: of the image, halving first costs less
        return self.attention(h + (self.skip(self.pool(x)) if self.first else self.pool(self.skip(x))))


class _Head(nn.Module):  # type: ignore[misc]
    """A linear layer with a part of its own for each label."""

    def __init__(self, features: int, labels: int) -> None:
        super().__init__()
        self.linear, self.embed = nn.Linear(features, 1), nn.Embedding(labels, features)

    def forward(self, h: Array, label: Array) -> Array:
        return self.linear(h)[:, 0] + (self.embed(label).to(h) * h).sum(dim=1)


class _Attention(nn.Module):  # type: ignore[misc]
    """Self-attention of all pixels to those of the halved map, added with a scale that starts at 0."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.query, self.key = (nn.Conv2d(channels, channels // 8, 1, bias=False) for _ in range(2))
        self.value = nn.Conv2d(channels, channels // 2, 1, bias=False)
        self.out = nn.Conv2d(channels // 2, channels, 1, bias=False)
        self.scale = nn.Parameter(torch.tensor(0.0))

    def forward(self, x: Array) -> Array:
        query = self.query(x).flatten(2)
        key, value = (functional.max_pool2d(part(x), 2).flatten(2) for part in (self.key, self.value))
        weights = torch.softmax(query.transpose(1, 2) @ key, dim=-1)
        return x + self.scale * self.out((value @ weights.transpose(1, 2)).reshape(len(x), -1, *x.shape[2:]))


class _ConditionalNorm(nn.Module):  # type: ignore[misc]
    """Batch norm whose gain, 1 and more, and shift are functions of a label or of a vector."""

    def __init__(self, channels: int, condition: int, shared: bool) -> None:
        super().__init__()
        self.norm = nn.SyncBatchNorm(channels, affine=False)
        make = partial(nn.Linear, bias=False) if shared else nn.Embedding
        self.gain, self.shift = make(condition, channels), make(condition, channels)

    def forward(self, x: Array, condition: Array) -> Array:
        gain, shift = (part(condition).to(x)[:, :, None, None] for part in (self.gain, self.shift))
        return self.norm(x) * (1 + gain) + shift


def _begin(network: nn.Module, initial: str, divided: Any) -> None:
    """Fill the matrices of a network, and divide layers of these kinds by their largest singular value."""
    start = lookup(INITIAL, initial, "initial")
    for layer in [*network.modules()]:
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.Embedding):
            start(layer.weight)
            if divided is not None and isinstance(layer, divided):
                normalised(layer)


def _maps(shares: Mapping[int, tuple[int, ...]], size: int, width: int) -> list[int]:
    if size not in shares:
        raise InputError(f"a BigGAN makes images of 32, 64 or 128 pixels a side, got {size}; resize or pad them")
    return [width * share for share in shares[size]]


def _label(label: Any, classes: int | None, like: Array) -> Any:
    """Return the labels; without classes all have the label 0."""
    label = check_label(label, classes)
    return torch.zeros(len(like), dtype=torch.int64, device=like.device) if label is None else label
