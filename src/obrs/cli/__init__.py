"""The command line, one module per command; importing a module registers its command, in this order."""

from . import plan, select
from .app import app, main

__all__ = ["app", "main", "plan", "select"]
