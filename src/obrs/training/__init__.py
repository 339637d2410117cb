"""Training with the rejection inside."""

from .config import TrainConfig, read_config
from .loop import train
from .trained import Trained, load_trained
from .watch import NotFiniteError

__all__ = ["NotFiniteError", "TrainConfig", "Trained", "load_trained", "read_config", "train"]
