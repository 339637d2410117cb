"""Networks of images that only the experiments train."""

from pathlib import Path

__all__ = ["WEIGHTS"]

WEIGHTS = Path(__file__).parents[1] / "weights"
"""The folder of the weights that are committed."""
