"""From a model that exists to `propose` and `log_ratio`; and, in `datasets`, from a stream to a dataset of torch."""

from .folders import ScoredFolder, from_folder
from .pipelines import from_pipeline

__all__ = ["ScoredFolder", "from_folder", "from_pipeline"]
