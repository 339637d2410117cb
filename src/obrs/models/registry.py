"""Networks by name: a checkpoint stores the `spec` of a network, and `build` makes it again."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import nn

from .._text import lookup
from ..errors import InputError

__all__ = ["NETWORKS", "build"]

NETWORKS = {
    "mlp": "obrs.models.mlp:mlp",
    "mlp_generator": "obrs.models.mlp:mlp_generator",
    "mlp_critic": "obrs.models.mlp:mlp_critic",
    "conv_critic": "obrs.models.conv:ConvCritic",
    "fourier_critic": "obrs.models.fourier:FourierCritic",
    "small_classifier": "obrs.models.classifier:small_classifier",
}
"""Functions and classes that make networks, as module:name, by the name in their `spec`; others may be added."""


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
    module, _, name = lookup(NETWORKS, arguments.pop("name", None), "network").partition(":")
    make = getattr(import_module(module), name)
    signature = inspect.signature(make)
    for key in arguments:
        lookup(signature.parameters, key, f"argument of {spec['name']}")
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise InputError(f"{spec['name']}: {error}") from error
    return make(**arguments)
