"""A WGAN with gradient penalty on 25 Gaussians: the settings that it was trained with, and its weights.

`python -m paper.wgan25` trains it again and writes `weights/wgan25.safetensors`; it takes a few minutes.
"""

from pathlib import Path
from typing import Any

from obrs.fitting.tensors import fill_module, read_tensors
from obrs.models.mlp import mlp_generator

from .nets import write_weights
from .train import TrainConfig, train

__all__ = ["SETTINGS", "generator", "main"]

SETTINGS = TrainConfig(
    data="grid25",
    generator_loss="wgan",
    gradient_penalty=0.1,
    critic_steps=5,
    steps=3000,
    batch_size=256,
    generator_width=128,
    critic_width=128,
    generator_lr=5e-4,
    critic_lr=5e-4,
    betas=(0.5, 0.9),
)
"""The penalty, the steps of the critic and Adam's decay are those that its authors use on this target.

References:
    | Improved Training of Wasserstein GANs (Gulrajani et al., 2017)
"""

_WEIGHTS = Path(__file__).parent / "weights" / "wgan25.safetensors"


def generator() -> Any:
    """Return the generator, from latents of two numbers to points.

    Example:
        >>> import torch
        >>> generator()(torch.zeros(3, 2)).shape
        torch.Size([3, 2])
    """
    tensors, _ = read_tensors(_WEIGHTS, "the weights of a WGAN")
    network = mlp_generator(SETTINGS.latent, 2, width=SETTINGS.generator_width, layers=SETTINGS.layers)
    fill_module(network, tensors, "generator", _WEIGHTS)
    return network.eval().requires_grad_(False)


def main() -> None:
    """Train the GAN and write the weights of its generator."""
    facts = {"steps": SETTINGS.steps, "seed": SETTINGS.seed}
    write_weights(_WEIGHTS, train(SETTINGS).generator, facts, "python -m paper.wgan25")


if __name__ == "__main__":
    main()
