"""Training for a budget: losses, steps for a loop of your own, and a small trainer."""

from ..errors import MissingLibraryError

try:
    import accelerate as _  # noqa: F401  (which needs torch)
except ImportError as error:
    raise MissingLibraryError("train needs torch and accelerate: pip install 'obrs[torch]'", name=error.name) from error

from .losses import critic_loss, generator_loss
from .step import critic_step, generator_step
from .train import train
from .trained import Trained, load_trained

__all__ = ["Trained", "critic_loss", "critic_step", "generator_loss", "generator_step", "load_trained", "train"]
