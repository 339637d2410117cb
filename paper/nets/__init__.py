"""Networks of images that only the experiments train: a DCGAN's generator, a U-Net, BigGAN; and files of weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obrs.fitting.tensors import write_tensors

__all__ = ["write_weights"]


def write_weights(path: Path, network: Any, facts: Mapping[str, Any], command: str) -> None:
    """Write the weights of a network in half precision, with the command that trains them among the facts."""
    tensors = {name: x.half() if x.is_floating_point() else x for name, x in network.state_dict().items()}
    write_tensors(path, tensors, {**facts, "command": command})
