"""From a model that exists to `propose` and `log_ratio`: diffusers pipelines, and folders of images with scores."""

from .folders import ScoredFolder, from_folder
from .pipelines import PipelineProposal, from_pipeline

__all__ = ["PipelineProposal", "ScoredFolder", "from_folder", "from_pipeline"]
