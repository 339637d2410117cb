"""Adapters from pipelines and folders to `propose` and `log_ratio`, and from streams to torch datasets."""

from .folders import ScoredFolder, from_folder
from .pipelines import from_pipeline

__all__ = ["ScoredFolder", "from_folder", "from_pipeline"]
