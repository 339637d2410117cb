"""Training with the rejection inside."""

from ..errors import MissingLibraryError

try:
    import torch as _  # noqa: F401
except ImportError as error:
    raise MissingLibraryError("train needs torch: pip install 'obrs[torch]'", name="torch") from error

from .config import TrainConfig, read_config
from .loop import train
from .trained import Trained, load_trained
from .watch import NotFiniteError

__all__ = ["NotFiniteError", "TrainConfig", "Trained", "load_trained", "read_config", "train"]
