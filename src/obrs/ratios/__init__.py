"""From a critic to a log-ratio one may trust."""

from .. import critics

__all__ = ["critics"]
