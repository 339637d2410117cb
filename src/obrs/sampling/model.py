"""A generator with its latent and its score: what every sampler of `SAMPLERS` works on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..draws import normals
from ..errors import InputError
from ..types import Array, LogRatio
from .proposals import holds_torch

__all__ = ["Model"]


@dataclass(frozen=True)
class Model:
    """A generator x = G(z) with standard normal z, and the log-ratio that scores its samples.

    Args:
        generate: Maps latents of shape `(n, dim)` to samples.
        log_ratio: Maps samples to `log p(x) - log q(x)`, shape `(n,)`.
        dim: Length of the latent.
        real: Some real samples, for methods that start from one or train on them.
        like: An array or device that says where latents live; None for NumPy.
        dtype: dtype of the latents; None for that of `like`.

    Example:
        >>> model = Model(generate=lambda z: 2 * z[:, 0], log_ratio=lambda x: -x * x, dim=1)
        >>> model.propose(range(3)).shape
        (3,)
    """

    generate: Callable[[Array], Any]
    log_ratio: LogRatio
    dim: int
    real: Any = None
    like: Any = None
    dtype: Any = None

    def __post_init__(self) -> None:
        if self.like is None and holds_torch(self.generate):
            raise InputError(
                "generate is a torch model; give Model(..., like=torch.empty(0)), so that latents are tensors"
            )

    def latent(self, ids: Any, *, seed: int = 0) -> Array:
        """Return the latents with these ids."""
        return normals(ids, self.dim, seed=seed, like=self.like, dtype=self.dtype)

    def propose(self, ids: Any, *, seed: int = 0) -> Any:
        """Return the samples with these ids."""
        return self.generate(self.latent(ids, seed=seed))

    def need_real(self, who: str) -> Any:
        """Return the real samples, or say who needs them."""
        if self.real is None:
            raise InputError(f"{who} needs real samples; give Model(..., real=...)")
        return self.real
