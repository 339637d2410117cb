"""The networks of CIFAR-10 that `runs/train_cifar.py` trains, and the files of weights that it writes, one per unit."""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from obrs.errors import InputError

from . import WEIGHTS
from .biggan import BigGanCritic, BigGanGenerator

__all__ = ["CLASSES", "RUNS", "CifarClassifier", "CifarCritic", "CifarGenerator", "CifarUNet", "build_gan", "has_unit"]
__all__ += ["load_unit", "unit_facts"]

CLASSES = 10
RUNS = WEIGHTS.with_name("runs")
"""The folder of the facts of units whose weights nobody needs."""
_BIGGAN: dict[str, Any] = {"size": 32, "width": 16, "classes": CLASSES, "attention": 16}


def build_gan(unit: str) -> tuple[nn.Module, nn.Module]:
    """Return the generator and the critic of a unit, untrained: `biggan-0`, `plain-0` or a conditional GAN."""
    if unit.startswith("biggan"):
        return BigGanGenerator(80, shared=32, hierarchical=True, **_BIGGAN), BigGanCritic(heads=2, **_BIGGAN)
    classes = 1 if unit.startswith("plain") else CLASSES
    return CifarGenerator(classes), CifarCritic(classes)


def _path(unit: str) -> Path:
    return WEIGHTS / f"cifar10-{unit}.safetensors"


def has_unit(unit: str) -> bool:
    """Tell whether a unit is trained: its weights are there, or the facts of one that keeps no weights."""
    return _path(unit).exists() or (RUNS / f"{unit}.json").exists()


def unit_facts(unit: str) -> dict[str, Any]:
    """Return what the file of a unit says of its training: steps, CPU minutes, maybe a curve and how it was judged."""
    if (facts := RUNS / f"{unit}.json").exists():
        return dict(json.loads(facts.read_text()))
    with safe_open(_path(unit), "pt") as file:
        return dict(json.loads(file.metadata()["facts"]))


def load_unit(unit: str, modules: Mapping[str, nn.Module]) -> None:
    """Fill modules with the weights of a unit, by part: generator and critic, classifier, or denoiser."""
    if not _path(unit).exists():
        raise InputError(f"there is no {_path(unit).name}; `python -m paper.runs.train_cifar {unit}` trains it")
    with safe_open(_path(unit), "pt") as file:
        for part, module in modules.items():
            names = [name for name in file.keys() if name.startswith(f"{part}.")]  # noqa: SIM118  (not a mapping)
            if not names:
                raise InputError(f"{_path(unit).name} holds no {part}")
            module.load_state_dict({name.removeprefix(f"{part}."): file.get_tensor(name) for name in names})


class _ConditionalNorm(nn.Module):  # type: ignore[misc]
    """Batch normalisation with a gain and a bias per class; one for all without classes."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width, affine=False)
        self.gain, self.bias = nn.Embedding(classes, width), nn.Embedding(classes, width)
        nn.init.ones_(self.gain.weight)
        nn.init.zeros_(self.bias.weight)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        gain, bias = (e(y)[..., None, None].to(x.dtype) for e in (self.gain, self.bias))
        return torch.addcmul(bias, self.norm(x), gain)


class CifarGenerator(nn.Module):  # type: ignore[misc]
    """Latents of shape `(n, 64)` and labels to images in [-1, 1]; `classes=1` ignores the label."""

    latent = 64

    def __init__(self, classes: int = CLASSES, widths: tuple[int, ...] = (256, 128, 96, 64)) -> None:
        super().__init__()
        self.classes, self.first = classes, widths[0]
        self.start = nn.Linear(self.latent, 16 * widths[0])
        self.norms = nn.ModuleList([_ConditionalNorm(width, classes) for width in widths])
        self.ups = nn.ModuleList([nn.ConvTranspose2d(a, b, 4, stride=2, padding=1) for a, b in pairwise(widths)])
        self.picture = nn.Conv2d(widths[-1], 3, 3, padding=1)

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        if y is None or self.classes == 1:
            y = torch.zeros(len(z), dtype=torch.int64, device=z.device)
        h = self.start(z).reshape(-1, self.first, 4, 4).contiguous(memory_format=torch.channels_last)
        for norm, layer in zip(self.norms, [*self.ups, self.picture], strict=True):
            h = layer(functional.relu(norm(h, y)))
        return torch.tanh(h)


class CifarCritic(nn.Module):  # type: ignore[misc]
    """Projection critic under spectral norm: a hinge score, and a logit of real against generated, per image."""

    def __init__(self, classes: int = CLASSES, widths: tuple[int, ...] = (48, 64, 128, 128)) -> None:
        super().__init__()
        layers: list[nn.Module] = [spectral_norm(nn.Conv2d(3, widths[0], 3, padding=1)), nn.LeakyReLU(0.1)]
        for a, b in pairwise(widths):
            layers += [spectral_norm(nn.Conv2d(a, b, 4, stride=2, padding=1)), nn.LeakyReLU(0.1)]
            layers += [spectral_norm(nn.Conv2d(b, b, 3, padding=1)), nn.LeakyReLU(0.1)]
        self.body = nn.Sequential(*layers)
        self.heads = spectral_norm(nn.Linear(widths[-1], 2))
        self.project = spectral_norm(nn.Embedding(classes, 2 * widths[-1])) if classes > 1 else None

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        h = self.body(x).float().sum((2, 3))
        out = self.heads(h).float()
        if self.project is not None:
            out = out + (self.project(y).reshape(len(h), 2, -1) * h[:, None]).sum(-1)
        return out


class CifarClassifier(nn.Module):  # type: ignore[misc]
    """A small convolutional network; `features` has 192 numbers an image."""

    def __init__(self, widths: tuple[int, ...] = (48, 96, 192)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, width in zip((3, *widths), widths, strict=False):
            layers += [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], CLASSES)

    def features(self, x: Tensor) -> Tensor:
        """Return shape `(n, 192)`."""
        return self.body(x).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x)).float()


class _Block(nn.Module):  # type: ignore[misc]
    """Residual block modulated by noise level and class, with self-attention where asked."""

    def __init__(self, inputs: int, width: int, condition: int, *, attention: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, inputs), nn.GroupNorm(8, width)])
        self.convs = nn.ModuleList([nn.Conv2d(inputs, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)])
        self.modulate = nn.Linear(condition, 2 * width)
        self.skip = nn.Conv2d(inputs, width, 1) if inputs != width else nn.Identity()
        self.attention: Any = nn.MultiheadAttention(width, 4, batch_first=True) if attention else None
        self.attention_norm: Any = nn.GroupNorm(8, width) if attention else None
        nn.init.zeros_(self.convs[1].weight)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        gain, bias = self.modulate(condition)[..., None, None].chunk(2, dim=1)
        h = self.convs[0](functional.silu(self.norms[0](x)))
        x = self.skip(x) + self.convs[1](functional.silu(self.norms[1](h) * (1 + gain) + bias))
        if self.attention is None:
            return x
        tokens = self.attention_norm(x).flatten(2).transpose(1, 2)
        return x + self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).reshape(x.shape)


class CifarUNet(nn.Module):  # type: ignore[misc]
    """A conditional U-Net with attention, from images, times and labels to images, for `image_diffusion.Denoiser`."""

    channels, classes = 3, CLASSES

    def __init__(self, widths: tuple[int, ...] = (48, 80, 112), condition: int = 128) -> None:
        super().__init__()
        self.frequencies = nn.Buffer(torch.exp(torch.linspace(0, 4, 32)))
        self.embed = nn.Sequential(nn.Linear(64, condition), nn.SiLU(), nn.Linear(condition, condition))
        self.label = nn.Embedding(CLASSES, condition)
        self.first = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, h = [widths[0]], widths[0]
        for level, width in enumerate(widths):
            self.down.append(_Block(h, width, condition, attention=level == 2))
            skips, h = [*skips, width], width
        self.middle = _Block(h, h, condition, attention=True)
        for level, width in reversed(list(enumerate(widths))):
            self.up.append(_Block(h + skips[level + 1], width, condition, attention=level == 2))
            h = width
        self.last = nn.Sequential(nn.GroupNorm(8, h + skips[0]), nn.SiLU(), nn.Conv2d(h + skips[0], 3, 3, padding=1))

    def forward(self, x: Tensor, time: Tensor, label: Tensor) -> Tensor:
        angles = time[:, None] * self.frequencies
        condition = functional.silu(self.embed(torch.cat([angles.cos(), angles.sin()], 1)) + self.label(label))
        first = h = self.first(x.contiguous(memory_format=torch.channels_last))
        skips = []
        for level, block in enumerate(self.down):
            h = block(h if level == 0 else functional.avg_pool2d(h, 2), condition)
            skips.append(h)
        h = self.middle(h, condition)
        for level, block in zip((2, 1, 0), self.up, strict=True):
            h = block(torch.cat([h, skips[level]], 1), condition)
            h = functional.interpolate(h, scale_factor=2.0) if level else h
        return self.last(torch.cat([h, first], 1)).float()
