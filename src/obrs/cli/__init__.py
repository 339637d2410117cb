"""The command line, one module per command; importing a module registers its command."""

from . import data, doctor, evaluate, plan, report, reproduce, select, train
from .app import app, main

__all__ = ["app", "data", "doctor", "evaluate", "main", "plan", "report", "reproduce", "select", "train"]
