"""Metrics: numbers that compare samples with a target."""

from .features import FEATURES, Extractor, extract
from .frechet_distance import Frechet, frechet, frechet_curve
from .jackknife import Jackknife
from .kernel_distance import Kernel, kernel, kernel_curve
from .nearest_neighbours import NeighbourCurve, Neighbourhood, Neighbours, neighbours
from .paired import Paired
from .rows import row_hashes
from .table import Table, load_table

__all__ = [
    "FEATURES",
    "Extractor",
    "Frechet",
    "Jackknife",
    "Kernel",
    "NeighbourCurve",
    "Neighbourhood",
    "Neighbours",
    "Paired",
    "Table",
    "extract",
    "frechet",
    "frechet_curve",
    "kernel",
    "kernel_curve",
    "load_table",
    "neighbours",
    "row_hashes",
]
