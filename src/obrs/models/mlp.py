"""Multilayer perceptrons: plain, as generators of points or images, and as critics of them.

Every network carries `spec`, its name in `NETWORKS` and its arguments, as plain data. torch's own seed decides the
initial weights.
"""

from functools import partial
from itertools import pairwise
from math import log, pi, prod
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm as normalised

from .._checks import check_count, check_list
from .._text import lookup
from ..errors import InputError

__all__ = ["ACTIVATIONS", "add_waves", "mlp", "mlp_critic", "mlp_generator", "random_waves"]

ACTIVATIONS = {
    "relu": nn.ReLU,
    "leaky_relu": partial(nn.LeakyReLU, 0.2),
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}
"""What may stand between two layers, by name."""


def mlp(sizes: Any, *, activation: str = "relu", spectral_norm: bool = False) -> nn.Sequential:
    """Return a network from `(n, ...)`, `sizes[0]` numbers each, to `(n, sizes[-1])`.

    `sizes` are numbers in, units of each hidden layer and numbers out; with `spectral_norm`, each weight matrix is
    divided by its largest singular value.

    Example:
        >>> mlp((6, 16, 16, 3))(torch.zeros(5, 2, 3)).shape
        torch.Size([5, 3])

    References:
        | Spectral Normalization for Generative Adversarial Networks (Miyato et al., 2018)
    """
    sizes = [check_count(size, "sizes") for size in check_list(sizes, "sizes")]
    if len(sizes) < 2:
        raise InputError(f"sizes must be numbers in, hidden units, numbers out; got {sizes}")
    between = lookup(ACTIVATIONS, activation, "activation")
    parts: list[nn.Module] = [nn.Flatten()]
    for at, (inside, outside) in enumerate(pairwise(sizes)):
        parts += [between()] if at else []
        linear = nn.Linear(inside, outside)
        parts.append(normalised(linear) if spectral_norm else linear)
    net = nn.Sequential(*parts)
    net.spec = {"name": "mlp", "sizes": sizes, "activation": activation, "spectral_norm": spectral_norm}
    return net


def mlp_generator(
    latent: int = 2,
    dim: Any = 2,
    *,
    width: int = 100,
    layers: int = 3,
    activation: str = "relu",
    output: str = "linear",
) -> nn.Sequential:
    """Return a generator from latents `(n, latent)` to points `(n, dim)` or to images.

    Args:
        latent, dim: Numbers in, and numbers out or the shape of one sample.
        width, layers, activation: Hidden units and layers, those of the 25 Gaussians, and a key of `ACTIVATIONS`.
        output: "linear", or "tanh" for images in [-1, 1].

    Example:
        >>> mlp_generator(8, (1, 28, 28))(torch.zeros(3, 8)).shape
        torch.Size([3, 1, 28, 28])

    References:
        | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019)
    """
    shape = _shape(dim)
    last = lookup({"linear": [], "tanh": [nn.Tanh()]}, output, "output")
    parts = [*mlp(_sizes(latent, width, layers, prod(shape)), activation=activation), *last]
    parts += [nn.Unflatten(1, shape)] if len(shape) > 1 else []
    net = nn.Sequential(*parts)
    net.spec = {"name": "mlp_generator", "latent": latent, "dim": shape[0] if len(shape) == 1 else list(shape)}
    net.spec |= {"width": width, "layers": layers, "activation": activation, "output": output}
    return net


def mlp_critic(
    dim: Any = 2,
    *,
    width: int = 100,
    layers: int = 3,
    heads: int = 1,
    activation: str = "relu",
    spectral_norm: bool = False,
    waves: int = 0,
) -> nn.Sequential:
    """Return a critic of points or images `(n, ...)`: one number each, `(n,)`, or `(n, heads)`.

    Args:
        dim, heads: Numbers in, or the shape of one sample, and numbers out.
        width, layers, activation: As for `mlp_generator`.
        spectral_norm: Divide each weight matrix by its largest singular value.
        waves: Number of random projections, from slow to fast, whose sines and cosines it sees beside the samples, for
            samples with a spread of about 1. What changes within a few hundredths of it, as ratios of narrow modes do,
            a plain network learns last.

    Example:
        >>> x = torch.zeros(5, 2)
        >>> mlp_critic()(x).shape, mlp_critic(heads=2)(x).shape
        (torch.Size([5]), torch.Size([5, 2]))

    References:
        | Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains (Tancik et al., 2020)
    """
    shape, waves = _shape(dim), check_count(waves, "waves", least=0)
    first = [_Waves(random_waves(prod(shape), waves))] if waves else []
    sizes = _sizes(prod(shape) + 2 * waves, width, layers, heads)
    body = mlp(sizes, activation=activation, spectral_norm=spectral_norm)
    net = nn.Sequential(*first, *body, *([nn.Flatten(0)] if heads == 1 else []))
    net.spec = {"name": "mlp_critic", "dim": shape[0] if len(shape) == 1 else list(shape), "width": width}
    net.spec |= {"layers": layers, "heads": heads, "activation": activation, "spectral_norm": spectral_norm}
    net.spec["waves"] = waves
    return net


class _Waves(nn.Module):  # type: ignore[misc]
    """The first layer of a critic that sees waves, which are drawn once and then fixed."""

    def __init__(self, waves: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("waves", waves)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return add_waves(x, self.waves)


def random_waves(numbers: int, waves: int) -> torch.Tensor:
    """Return random projections `(numbers, waves)` of 0.1 to 4 cycles per unit, uniform in the logarithm."""
    cycles = torch.exp(torch.empty(waves).uniform_(log(0.1), log(4.0)))
    direction = nn.functional.normalize(torch.randn(numbers, waves), dim=0)
    return 2 * pi * cycles * direction


def add_waves(x: torch.Tensor, waves: torch.Tensor) -> torch.Tensor:
    """Return samples as rows, with the sine and cosine of their projections beside them."""
    x = x.flatten(1)
    phase = x @ waves
    return torch.cat([x, phase.sin(), phase.cos()], dim=1)


def _shape(dim: Any) -> tuple[int, ...]:
    sizes = tuple(dim) if isinstance(dim, list | tuple | torch.Size) else (dim,)
    return tuple(check_count(size, "dim") for size in sizes)


def _sizes(first: Any, width: Any, layers: Any, last: Any) -> list[int]:
    """Return the sizes of a network whose hidden layers have the same width."""
    hidden = [check_count(width, "width")] * check_count(layers, "layers")
    return [check_count(first, "latent"), *hidden, check_count(last, "heads")]
