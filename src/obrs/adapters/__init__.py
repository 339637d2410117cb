"""Adapters from pipelines and folders to `propose` and `log_ratio`."""

from .folders import ScoredFolder, from_folder
from .pipelines import from_pipeline

__all__ = ["ScoredFolder", "from_folder", "from_pipeline"]
