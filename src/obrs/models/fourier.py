"""A critic of points that also sees waves: the sines and cosines of random directions, from slow to fast.

What changes within a few hundredths of the data's spread, as ratios of narrow modes do, a plain network learns last.

References:
    | Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains (Tancik et al., 2020)
"""

from typing import Any

import torch
from torch import Tensor, nn

from .._checks import check_count
from ..errors import InputError
from .mlp import mlp, random_waves, with_waves

__all__ = ["FourierCritic"]


class FourierCritic(nn.Module):  # type: ignore[misc]
    """A critic of points with a spread of about 1: one number each, `(n,)`, or `(n, heads)`.

    The waves are drawn once and stay; torch's own seed decides them and the weights.

    Args:
        dim, heads: Numbers in a sample, and numbers out.
        waves, fastest: How many projections, and cycles per unit of the fastest one.
        width, layers, activation, spectral_norm: As for `mlp_critic`.

    Example:
        >>> FourierCritic()(torch.zeros(5, 2)).shape, FourierCritic(heads=2)(torch.zeros(5, 2)).shape
        (torch.Size([5]), torch.Size([5, 2]))
    """

    def __init__(
        self,
        dim: Any = 2,
        *,
        waves: int = 64,
        width: int = 64,
        layers: int = 2,
        heads: int = 1,
        activation: str = "silu",
        spectral_norm: bool = False,
        fastest: float = 4.0,
    ) -> None:
        super().__init__()
        if isinstance(dim, list | tuple | torch.Size):
            if len(dim) != 1:
                raise InputError(f"a Fourier critic is for points, shape (dim,), got samples of {tuple(dim)}")
            dim = dim[0]
        numbers, count = check_count(dim, "dim"), check_count(waves, "waves")
        hidden = [check_count(width, "width")] * check_count(layers, "layers")
        self.spec = {"name": "fourier_critic", "dim": numbers, "waves": count, "width": width, "layers": layers}
        self.spec |= {"heads": heads, "activation": activation, "spectral_norm": spectral_norm, "fastest": fastest}
        self.register_buffer("waves", random_waves(numbers, count, fastest=fastest))
        sizes = [numbers + 2 * count, *hidden, check_count(heads, "heads")]
        self.body = mlp(sizes, activation=activation, spectral_norm=spectral_norm)

    def forward(self, x: Tensor) -> Tensor:
        """Return what it says of each sample."""
        found = self.body(with_waves(x, self.waves))
        return found[:, 0] if found.shape[1] == 1 else found
