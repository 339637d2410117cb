"""The command line, one module per command; importing a module registers its command."""

from . import doctor, plan, report, tune, select, evaluate  # isort: skip
from .app import app, main

__all__ = ["app", "doctor", "evaluate", "main", "plan", "report", "select", "tune"]
