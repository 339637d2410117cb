"""Networks by name: a checkpoint stores the `spec` of a network, and `build` makes it again."""

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
    "classifier": "obrs.models.classifier:Classifier",
}
"""Functions and classes that make networks, as module:name, by the name in their `spec`; others may be added."""


def build(spec: Mapping[str, Any]) -> nn.Module:
    """Return a new network from its description; torch's own seed decides the weights."""
    arguments = dict(spec)
    module, _, name = lookup(NETWORKS, arguments.pop("name", None), "network").partition(":")
    make = getattr(import_module(module), name)
    try:
        return make(**arguments)
    except TypeError as error:
        raise InputError(f"{spec['name']}: {error}") from error
