"""Networks of images that only the experiments train, and files of their weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obrs.fitting.tensors import write_tensors

__all__ = ["WEIGHTS", "write_weights"]

WEIGHTS = Path(__file__).parents[1] / "weights"
"""The folder of the weights that are committed."""


def write_weights(path: Path, network: Any, facts: Mapping[str, Any], command: str) -> None:
    """Write the weights of a network in half precision, with the command that trains them among the facts."""
    tensors = {name: x.half() if x.is_floating_point() else x for name, x in network.state_dict().items()}
    write_tensors(path, tensors, {**facts, "command": command})
