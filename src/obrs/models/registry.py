"""Networks by name: a checkpoint stores the `spec` of a network, and `build` makes it again."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from .._names import lookup
from ..errors import InputError
from .biggan import BigGanCritic, BigGanGenerator
from .classifier import small_classifier
from .conv import ConvCritic, ConvGenerator
from .fourier import FourierCritic
from .mlp import mlp, mlp_critic, mlp_generator
from .unet import UNet

__all__ = ["NETWORKS", "build"]

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "mlp_generator": mlp_generator,
    "mlp_critic": mlp_critic,
    "conv_generator": ConvGenerator,
    "conv_critic": ConvCritic,
    "biggan_generator": BigGanGenerator,
    "biggan_critic": BigGanCritic,
    "fourier_critic": FourierCritic,
    "small_classifier": small_classifier,
    "unet": UNet,
}
"""Functions and classes that make networks, by the name in their `spec`."""


def build(spec: Mapping[str, Any]) -> nn.Module:
    """Return a new network from its description; torch's own seed decides the weights.

    Args:
        spec: `name`, a key of `NETWORKS`, and its arguments, as in the `spec` of the network that it makes.

    Example:
        >>> net = build({"name": "mlp_critic", "dim": 2, "width": 16})
        >>> build(net.spec).spec == net.spec, net.spec["layers"]
        (True, 3)
    """
    arguments = dict(spec)
    make = lookup(NETWORKS, arguments.pop("name", None), "network")
    signature = inspect.signature(make)
    for key in arguments:
        lookup(signature.parameters, key, f"argument of {spec['name']}")
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise InputError(f"{spec['name']}: {error}") from error
    return make(**arguments)
