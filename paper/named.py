"""What a configuration of training may name here: densities, data sets of images, and networks of images.

The library trains on data and networks that it is given. Importing this module adds the paper's to its lists.
"""

from functools import partial
from typing import Any

from torch import nn

from obrs._files import cache_folder
from obrs.errors import InputError
from obrs.models.registry import NETWORKS
from obrs.training import recipe
from obrs.training.batches import SOURCES
from obrs.training.config import TrainConfig
from obrs.training.networks import CRITICS, GENERATORS, image_shape

from .data.fetch import DATASETS, is_here
from .data.images import IMAGES, load
from .toys import TOYS

__all__: list[str] = []


def _points(name: str, config: TrainConfig) -> tuple[Any, None]:
    """Draw from a density that is moved and scaled to mean 0 and variance 1."""
    density: Any = TOYS[name]()
    density = density.standardised() if hasattr(density, "standardised") else density
    return density.sample(config.data_size, seed=config.seed), None


def _images(name: str, config: TrainConfig) -> tuple[Any, Any]:
    if name in DATASETS and not is_here(name):
        fetch = f"python -m paper fetch {name}"
        raise InputError(f"{name} is not in {cache_folder()}: run `{fetch}`, or `{fetch} --folder DIR` if you have it")
    images = load(name)
    return images.train, images.train_labels if config.classes else None


def _conv_generator(config: TrainConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    from .nets.conv import ConvGenerator

    channels, size = image_shape(shape, "conv")
    width = config.generator_width
    return ConvGenerator(config.latent, size=size, channels=channels, width=width, classes=classes or None)


def _biggan_generator(config: TrainConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    from .nets.biggan import BigGanGenerator

    channels, size = image_shape(shape, "biggan")
    return BigGanGenerator(
        config.latent,
        size=size,
        channels=channels,
        width=config.generator_width,
        classes=classes or None,
        shared=config.shared,
        hierarchical=config.hierarchical,
        attention=config.attention,
        initial=config.initial,
    )


def _biggan_critic(config: TrainConfig, shape: tuple[int, ...], classes: int, shared: dict[str, Any]) -> nn.Module:
    from .nets.biggan import BigGanCritic

    channels, size = image_shape(shape, "biggan")
    start: dict[str, Any] = {"attention": config.attention, "initial": config.initial}
    return BigGanCritic(size=size, channels=channels, classes=classes or None, **start, **shared)


SOURCES |= {name: partial(_points, name) for name in TOYS} | {name: partial(_images, name) for name in IMAGES}
recipe.IMAGES.update(IMAGES)
GENERATORS |= {"conv": _conv_generator, "biggan": _biggan_generator}
CRITICS["biggan"] = _biggan_critic
NETWORKS |= {
    "conv_generator": "paper.nets.conv:ConvGenerator",
    "biggan_generator": "paper.nets.biggan:BigGanGenerator",
    "biggan_critic": "paper.nets.biggan:BigGanCritic",
    "unet": "paper.nets.unet:UNet",
}
