"""The gradient penalty, which keeps the slope of a critic near a constant."""

from collections.abc import Callable
from typing import Any

from ..errors import InputError

__all__ = ["gradient_penalty"]

Tensor = Any


def gradient_penalty(
    critic: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, mix: Tensor, *, centre: float = 1.0
) -> Tensor:
    """Return the mean of `(|grad critic| - centre)²` between real and fake samples, to be added to a critic's loss.

    Args:
        critic: From samples to outputs of shape (n,).
        real, fake, mix: Samples of one shape (n, ...), and in [0, 1] how much of the real one is in each point.
        centre: 1 as in WGAN-GP; 0 penalises every slope, which also steadies logistic critics.

    Example:
        >>> import torch
        >>> x = torch.zeros(2, 3)
        >>> gradient_penalty(lambda x: 2 * x[:, 0], x, x + 1, torch.tensor([0.0, 0.5]))
        tensor(1.)

    References:
        | Improved Training of Wasserstein GANs (Gulrajani et al., 2017), Algorithm 1, weight 10
    """
    import torch

    if real.shape != fake.shape or mix.shape != real.shape[:1]:
        shapes = f"{tuple(real.shape)}, {tuple(fake.shape)} and {tuple(mix.shape)}"
        raise InputError(f"real and fake must have one shape (n, ...), and mix the shape (n,), got {shapes}")
    weight = mix.reshape(-1, *[1] * (real.ndim - 1)).to(real.dtype)
    with torch.enable_grad():
        between = (weight * real.detach() + (1 - weight) * fake.detach()).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        return (torch.linalg.vector_norm(slope.flatten(1).float(), dim=1) - centre).square().mean()
