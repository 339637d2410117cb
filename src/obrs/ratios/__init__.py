"""From a critic to a log-ratio one may trust."""

from .. import critics
from .pools import combine

__all__ = ["combine", "critics"]
