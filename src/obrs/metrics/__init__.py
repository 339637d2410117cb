"""Metrics: numbers that compare samples with a target."""

from .curve import Curve
from .features import FEATURES, Extractor, extract
from .frechet import frechet, frechet_curve
from .kernel import kernel, kernel_curve
from .neighbours import Neighbours, neighbour_curves, neighbours
from .rows import row_hashes
from .table import Table
from .weightings import Weightings, weightings

__all__ = [
    "FEATURES",
    "Curve",
    "Extractor",
    "Neighbours",
    "Table",
    "Weightings",
    "extract",
    "frechet",
    "frechet_curve",
    "kernel",
    "kernel_curve",
    "neighbour_curves",
    "neighbours",
    "row_hashes",
    "weightings",
]
