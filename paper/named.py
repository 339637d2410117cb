"""What settings of training may name: densities, data sets of images, and networks.

Importing this module adds the paper's networks to `obrs.models.registry.NETWORKS`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from obrs._files import cache_folder
from obrs._text import lookup
from obrs.errors import InputError
from obrs.fitting.seeds import derived, own_noise
from obrs.models.conv import ConvCritic
from obrs.models.fourier import FourierCritic
from obrs.models.mlp import mlp_critic, mlp_generator
from obrs.models.registry import NETWORKS

from .data.fetch import DATASETS, is_here
from .data.images import IMAGES, load
from .data.pixels import Pixels
from .nets.biggan import BigGanCritic, BigGanGenerator
from .nets.conv import ConvGenerator
from .toys import TOYS

if TYPE_CHECKING:
    from .train import TrainConfig

__all__ = ["TwoCritics", "build_networks", "load_data"]

NETWORKS |= {
    "conv_generator": "paper.nets.conv:ConvGenerator",
    "biggan_generator": "paper.nets.biggan:BigGanGenerator",
    "biggan_critic": "paper.nets.biggan:BigGanCritic",
    "unet": "paper.nets.unet:UNet",
}


class _Mapped(Dataset):  # type: ignore[misc]
    """Pixels, which need not fit in memory, as a Dataset that fetches a batch at once."""

    def __init__(self, x: Pixels, labels: Any) -> None:
        self.x, self.targets = x, labels

    def __len__(self) -> int:
        return len(self.x)

    def __getitems__(self, rows: list[int]) -> Any:
        x = self.x[np.array(rows)]
        return x if self.targets is None else (x, np.asarray(self.targets)[rows])


def load_data(config: "TrainConfig", x: Any = None, labels: Any = None) -> Any:
    """Return data for `obrs.train`: those that are given, or those that the settings name."""
    if x is None and config.data in TOYS:
        density: Any = TOYS[config.data]()
        density = density.standardised() if hasattr(density, "standardised") else density
        x = density.sample(config.data_size, seed=config.seed)
    elif x is None:
        lookup(dict.fromkeys([*TOYS, *IMAGES]), config.data, "data")
        if config.data in DATASETS and not is_here(config.data):
            fetch = f"python -m paper fetch {config.data}"
            raise InputError(f"{config.data} is not in {cache_folder()}: run `{fetch}`, or `{fetch} --folder DIR`")
        images = load(config.data)
        x, labels = images.train, images.train_labels
    if config.classes and labels is None:
        raise InputError("classes=true needs labels")
    labels = labels if config.classes else None
    if isinstance(x, Pixels):
        return DataLoader(_Mapped(x, labels), collate_fn=lambda batch: batch)
    return x if labels is None else (x, labels)


class TwoCritics(nn.Module):  # type: ignore[misc]
    """Two critics side by side, shape `(n, 2)`: of what rejection keeps, and of what the model makes."""

    def __init__(self, kept: nn.Module, ratio: nn.Module) -> None:
        super().__init__()
        self.kept, self.ratio = kept, ratio

    def forward(self, *batch: Tensor) -> Tensor:
        return torch.stack([self.kept(*batch), self.ratio(*batch)], dim=1)


def build_networks(config: "TrainConfig", shape: Sequence[int], classes: int) -> tuple[nn.Module, list[nn.Module]]:
    """Return the generator, and the critic of each stage; one that is kept is in the list again.

    Example:
        >>> from paper.train import TrainConfig
        >>> tables = [{}, {}, {"new_critic": True, "critic_network": "fourier"}]
        >>> _, critics = build_networks(TrainConfig(generator_loss="dual", stage=tables), (2,), 0)
        >>> critics[0] is critics[1], critics[2].spec["name"]
        (True, 'fourier_critic')
    """
    critics: list[nn.Module] = []
    with own_noise() as reseed:
        reseed(derived(config.seed, "weights"))
        generator = lookup(_GENERATORS, config.network, "network")(config, tuple(shape), classes)
        for number, stage in enumerate(config.stages, 1):
            if number > 1 and not stage.new_critic:
                critics.append(critics[-1])
                continue
            if number > 1:
                reseed(derived(config.seed, "weights", number))
            make = lookup(_CRITICS, stage.critic_network or stage.network, "critic_network")
            pair = stage.generator_loss == "two_critics"
            heads = {"width": stage.critic_width, "spectral_norm": stage.spectral_norm, "heads": 1 + stage.two_heads}
            made = [make(stage, tuple(shape), classes, heads | ({"heads": 1} if pair else {})) for _ in range(1 + pair)]
            critics.append(TwoCritics(*made) if pair else made[0])
    return generator, critics


def _image(config: "TrainConfig", shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    if len(shape) != 3 or shape[1] != shape[2]:
        raise InputError(f"network {config.network!r} needs square images, (channels, size, size), got {shape}")
    return {"size": shape[1], "channels": shape[0], "classes": classes or None}


def _points(config: "TrainConfig", classes: int) -> dict[str, Any]:
    if classes:
        raise InputError(f"network {config.network!r} takes no classes; use conv, or give networks of your own")
    return {"layers": config.critic_layers or config.layers}


def _mlp_generator(config: "TrainConfig", shape: tuple[int, ...], classes: int) -> nn.Module:
    _points(config, classes)
    sizes: Any = {"width": config.generator_width, "layers": config.layers, "activation": config.activation}
    return mlp_generator(config.latent, shape, **sizes, output="tanh" if len(shape) == 3 else "linear")


def _biggan_generator(config: "TrainConfig", shape: tuple[int, ...], classes: int) -> nn.Module:
    more = {key: getattr(config, key) for key in ("shared", "hierarchical", "attention", "initial")}
    return BigGanGenerator(config.latent, width=config.generator_width, **_image(config, shape, classes), **more)


_GENERATORS: dict[str, Callable[..., nn.Module]] = {
    "mlp": _mlp_generator,
    "conv": lambda c, shape, classes: ConvGenerator(c.latent, width=c.generator_width, **_image(c, shape, classes)),
    "biggan": _biggan_generator,
}
_CRITICS: dict[str, Callable[..., nn.Module]] = {
    "mlp": lambda c, shape, k, heads: mlp_critic(shape, activation=c.activation, **_points(c, k), **heads),
    "fourier": lambda c, shape, k, heads: FourierCritic(shape, **_points(c, k), **heads),
    "conv": lambda c, shape, k, heads: ConvCritic(**_image(c, shape, k), **heads),
    "biggan": lambda c, shape, k, heads: BigGanCritic(
        **_image(c, shape, k), attention=c.attention, initial=c.initial, **heads
    ),
}
