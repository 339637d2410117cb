"""Fit, calibrate, combine and check log-ratios."""

from .. import critics
from .pools import combine

__all__ = ["combine", "critics"]
