"""The two networks of a run: built as the configuration says, or the user's own, and tried before training."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .._text import lookup
from ..errors import InputError
from ..fitting.seeds import derived, own_noise
from ..models.conv import ConvCritic
from ..models.fourier import FourierCritic
from ..models.mlp import mlp_critic, mlp_generator
from .config import TrainConfig
from .schedule import Stage

__all__ = [
    "CRITICS",
    "GENERATORS",
    "TwoCritics",
    "as_found",
    "build_networks",
    "build_stages",
    "image_shape",
    "try_networks",
]


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
    config: TrainConfig,
    shape: Sequence[int],
    classes: int,
    outputs: int,
    *,
    generator: nn.Module | None = None,
    critic: nn.Module | None = None,
) -> tuple[nn.Module, nn.Module]:
    """Return generator and critic for samples of this shape; the seed decides their weights.

    Args:
        config: Its fields on networks and its seed are used.
        shape: Of one sample.
        classes: How many classes there are; 0 for networks without labels.
        outputs: Numbers that the critic says about a sample.
        generator, critic: The user's own; only what is missing is built.

    Example:
        >>> generator, critic = build_networks(TrainConfig(latent=3), (2,), classes=0, outputs=1)
        >>> critic(generator(torch.zeros(5, 3))).shape
        torch.Size([5])
    """
    if generator is not None and critic is not None:
        return generator, critic
    with own_noise() as reseed:
        reseed(derived(config.seed, "weights"))
        built = _generator(config, shape, classes)  # also where it is given: the weights of the critic are drawn next
        made = _critics(config, shape, classes, outputs)
    return built if generator is None else generator, made if critic is None else critic


def build_stages(
    stages: Sequence[Stage],
    outputs: Sequence[int],
    shape: Sequence[int],
    classes: int,
    *,
    generator: nn.Module | None = None,
    critic: nn.Module | None = None,
) -> tuple[nn.Module, list[nn.Module]]:
    """Return the generator and the critic of each stage; one that is kept is in the list again.

    Args:
        stages: All of the run.
        outputs: Numbers that the critic of each says about a sample.
        shape, classes: As in `build_networks`.
        generator, critic: The user's own.

    Example:
        >>> from obrs.training.schedule import plan
        >>> tables = [{}, {}, {"new_critic": True, "critic_network": "fourier"}]
        >>> config = TrainConfig(generator_loss="dual", stage=tables)
        >>> _, critics = build_stages(plan(config), (1, 1, 1), (2,), 0)
        >>> critics[0] is critics[1], critics[2].spec["name"]
        (True, 'fourier_critic')
    """
    if critic is not None and any(stage.config.new_critic for stage in stages[1:]):
        raise InputError(
            "a stage asks for a new critic, which train builds; leave out critic=, or name a generator_loss for a run "
            "of one stage"
        )
    first = stages[0].config
    generator, critic = build_networks(first, shape, classes, outputs[0], generator=generator, critic=critic)
    critics = [critic]
    for stage, count in zip(stages[1:], outputs[1:], strict=True):
        if stage.config.new_critic:
            with own_noise() as reseed:
                reseed(derived(first.seed, "weights", stage.number))
                critic = _critics(stage.config, shape, classes, count)
        critics.append(critic)
    return generator, critics


def _critics(config: TrainConfig, shape: Sequence[int], classes: int, outputs: int) -> nn.Module:
    pair = config.generator_loss == "two_critics"
    critics = [_critic(config, shape, classes, 1 if pair else outputs) for _ in range(1 + pair)]
    return TwoCritics(*critics) if pair else critics[0]


def _generator(config: TrainConfig, shape: Sequence[int], classes: int) -> nn.Module:
    return lookup(GENERATORS, config.network, "network")(config, tuple(shape), classes)


def _critic(config: TrainConfig, shape: Sequence[int], classes: int, heads: int) -> nn.Module:
    kind = lookup(CRITICS, config.critic_network or config.network, "critic_network")
    shared = {"width": config.critic_width, "heads": heads, "spectral_norm": config.spectral_norm}
    return kind(config, tuple(shape), classes, shared)


def image_shape(shape: Sequence[int], kind: str) -> tuple[int, int]:
    """Return channels and pixels a side of square images, or raise: this kind of network takes nothing else."""
    if len(shape) != 3 or shape[1] != shape[2]:
        raise InputError(f"network {kind!r} needs square images, (channels, size, size), got samples of {tuple(shape)}")
    return shape[0], shape[1]


def _mlp_generator(config: TrainConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    if classes:
        raise InputError("network 'mlp' takes no classes; give train your own networks")
    return mlp_generator(
        config.latent,
        shape,
        width=config.generator_width,
        layers=config.layers,
        activation=config.activation,
        output="tanh" if len(shape) == 3 else "linear",
    )


def _mlp_critic(config: TrainConfig, shape: tuple[int, ...], classes: int, shared: dict[str, Any]) -> nn.Module:
    _check_no_classes("mlp", classes)
    return mlp_critic(shape, layers=config.critic_layers or config.layers, activation=config.activation, **shared)


def _fourier_critic(config: TrainConfig, shape: tuple[int, ...], classes: int, shared: dict[str, Any]) -> nn.Module:
    _check_no_classes("fourier", classes)
    return FourierCritic(shape, layers=config.critic_layers or config.layers, **shared)


def _conv_critic(config: TrainConfig, shape: tuple[int, ...], classes: int, shared: dict[str, Any]) -> nn.Module:
    channels, size = image_shape(shape, "conv")
    return ConvCritic(size=size, channels=channels, classes=classes or None, **shared)


def _check_no_classes(kind: str, classes: int) -> None:
    if classes:
        raise InputError(f"critic_network {kind!r} takes no classes; use 'conv', or give train your own networks")


GENERATORS: dict[str, Callable[[TrainConfig, tuple[int, ...], int], nn.Module]] = {"mlp": _mlp_generator}
"""Makers of generators by the `network` of a configuration; others may be added."""

CRITICS: dict[str, Callable[[TrainConfig, tuple[int, ...], int, dict[str, Any]], nn.Module]] = {
    "mlp": _mlp_critic,
    "fourier": _fourier_critic,
    "conv": _conv_critic,
}
"""Makers of critics by the `critic_network` of a configuration; others may be added."""


def try_networks(
    generator: nn.Module, critic: nn.Module, latent: int, real: Tensor, labels: Tensor | None, outputs: int
) -> None:
    """Pass two samples through both networks and say what does not fit."""
    for name, network in (("generator", generator), ("critic", critic)):
        if not any(weight.requires_grad for weight in network.parameters()):
            raise InputError(
                f"the {name} has no weight to train; call its requires_grad_(True), and freeze it by {name}_lr=0"
            )
    real, given = real[:2], () if labels is None else (labels[:2],)
    z = torch.zeros(len(real), latent)
    try:
        with torch.no_grad(), as_found(generator, critic):
            fake, scores = _on_its_device(generator.eval(), z, *given), _on_its_device(critic.eval(), real, *given)
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
    wanted, in_words = ((len(real),), "(n,)") if outputs == 1 else ((len(real), outputs), f"(n, {outputs})")
    if tuple(scores.shape) != wanted:
        raise InputError(
            f"the critic must return shape {in_words} for this loss, got {tuple(scores.shape)} for {wanted[0]} samples"
        )


def _on_its_device(network: nn.Module, *batch: Tensor) -> Tensor:
    device = next(network.parameters()).device
    return network(*(part.to(device) for part in batch))


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
