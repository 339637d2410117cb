"""The two networks of a run: built as the configuration says, or the user's own, and tried before training."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..fitting.seeds import derived, own_noise
from ..models.mlp import mlp_critic, mlp_generator
from .config import TrainConfig

__all__ = ["TwoCritics", "as_found", "build_networks", "complete_networks", "try_networks"]


class TwoCritics(nn.Module):  # type: ignore[misc]
    """Two critics of the same samples side by side: shape `(n, 2)`.

    Example:
        >>> TwoCritics(mlp_critic(2), mlp_critic(2))(torch.zeros(5, 2)).shape
        torch.Size([5, 2])
    """

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, *batch: Tensor) -> Tensor:
        """Return what both say."""
        return torch.stack([self.first(*batch), self.second(*batch)], dim=1)


def build_networks(
    config: TrainConfig, shape: Sequence[int], classes: int, outputs: int
) -> tuple[nn.Module, nn.Module]:
    """Return generator and critic for samples of this shape; the seed decides their weights.

    Args:
        config: Of it the fields on networks, and the seed.
        shape: Of one sample.
        classes: How many classes there are; 0 for networks without labels.
        outputs: Numbers that the critic says about a sample.

    Example:
        >>> generator, critic = build_networks(TrainConfig(latent=3), (2,), classes=0, outputs=1)
        >>> critic(generator(torch.zeros(5, 3))).shape
        torch.Size([5])
    """
    if classes and config.network == "mlp":
        raise InputError("network 'mlp' takes no classes; use network='conv', or give train your own networks")
    pair = config.generator_loss == "two_critics"
    with own_noise() as reseed:
        reseed(derived(config.seed, "weights"))
        generator = _generator(config, shape, classes)
        critics = [_critic(config, shape, classes, 1 if pair else outputs) for _ in range(1 + pair)]
    return generator, TwoCritics(*critics) if pair else critics[0]


def complete_networks(
    config: TrainConfig,
    shape: Sequence[int],
    classes: int,
    outputs: int,
    *,
    generator: nn.Module | None = None,
    critic: nn.Module | None = None,
) -> tuple[nn.Module, nn.Module]:
    """Return the networks that are given, and build only what is missing; the rest is as for `build_networks`.

    Example:
        >>> generator = nn.Linear(2, 2)
        >>> complete_networks(TrainConfig(), (2,), 0, 1, generator=generator)[0] is generator
        True
    """
    if generator is None or critic is None:
        built = build_networks(config, shape, classes, outputs)
        generator = built[0] if generator is None else generator
        critic = built[1] if critic is None else critic
    return generator, critic


def _generator(config: TrainConfig, shape: Sequence[int], classes: int) -> nn.Module:
    if config.network == "conv":
        from ..models.conv import ConvGenerator

        channels, size = _image(shape)
        width = config.generator_width
        return ConvGenerator(config.latent, size=size, channels=channels, width=width, classes=classes or None)
    return mlp_generator(
        config.latent,
        tuple(shape),
        width=config.generator_width,
        layers=config.layers,
        activation=config.activation,
        output="tanh" if len(shape) == 3 else "linear",
    )


def _critic(config: TrainConfig, shape: Sequence[int], classes: int, heads: int) -> nn.Module:
    shared: Any = {"width": config.critic_width, "heads": heads, "spectral_norm": config.spectral_norm}
    if config.network == "conv":
        from ..models.conv import ConvCritic

        channels, size = _image(shape)
        return ConvCritic(size=size, channels=channels, classes=classes or None, **shared)
    return mlp_critic(tuple(shape), layers=config.layers, activation=config.activation, **shared)


def _image(shape: Sequence[int]) -> tuple[int, int]:
    if len(shape) != 3 or shape[1] != shape[2]:
        raise InputError(f"network 'conv' needs square images, (channels, size, size), got samples of {tuple(shape)}")
    return shape[0], shape[1]


def try_networks(
    generator: nn.Module, critic: nn.Module, latent: int, real: Tensor, labels: Tensor | None, outputs: int
) -> None:
    """Pass two samples through both networks and say what does not fit."""
    for name, network in (("generator", generator), ("critic", critic)):
        if not any(weight.requires_grad for weight in network.parameters()):
            raise InputError(
                f"the {name} has no weight to train; call its requires_grad_(True), and freeze it by {name}_lr=0"
            )
    with as_found(generator, critic):
        _try(generator.eval(), critic.eval(), latent, real, labels, outputs)


def _try(
    generator: nn.Module, critic: nn.Module, latent: int, real: Tensor, labels: Tensor | None, outputs: int
) -> None:
    given = () if labels is None else (labels[:2],)
    z = torch.zeros(len(real[:2]), latent)
    try:
        with torch.no_grad():
            fake, scores = _where_it_is(generator, z, *given), _where_it_is(critic, real[:2], *given)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        takes = "(z, labels) and (x, labels)" if given else "(z) and (x)"
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"the networks must take {takes} with latents of {tuple(z.shape[1:])} and samples of "
            f"{tuple(real.shape[1:])}: {reason}"
        ) from error
    if fake.shape[1:] != real.shape[1:]:
        raise InputError(
            f"the generator makes samples of {tuple(fake.shape[1:])}, the data are {tuple(real.shape[1:])}"
        )
    wanted = (len(real[:2]),) if outputs == 1 else (len(real[:2]), outputs)
    if tuple(scores.shape) != wanted:
        said = "(n,)" if outputs == 1 else f"(n, {outputs})"
        raise InputError(
            f"the critic must return shape {said} for this loss, got {tuple(scores.shape)} for {wanted[0]} samples"
        )


def _where_it_is(network: nn.Module, *batch: Tensor) -> Tensor:
    there = next(network.parameters()).device
    return network(*(part.to(there) for part in batch))


@contextmanager
def as_found(*modules: nn.Module) -> Iterator[None]:
    """Leave every layer in the mode, train or eval, in which it was found, however the block ends.

    Example:
        >>> line = nn.Linear(1, 1)
        >>> with as_found(line):
        ...     _ = line.eval()
        >>> line.training
        True
    """
    modes = [(layer, layer.training) for module in modules for layer in module.modules()]
    try:
        yield
    finally:
        for layer, mode in modes:
            layer.training = mode
