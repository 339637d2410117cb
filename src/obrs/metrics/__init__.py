"""Metrics: numbers that compare samples with a target."""

from .features import FEATURES, Extractor, extract
from .frechet_distance import Frechet, frechet, frechet_curve
from .grid import Cells, HistogramDivergence, grid_cells, histogram_divergence, mode_cells
from .jackknife import Jackknife
from .kernel_distance import Kernel, kernel, kernel_curve
from .modes import ModeScores, mode_scores
from .nearest_neighbours import NeighbourCurve, Neighbourhood, Neighbours, neighbours
from .paired import Paired
from .rows import row_hashes
from .table import Table, load_table

__all__ = [
    "FEATURES",
    "Cells",
    "Extractor",
    "Frechet",
    "HistogramDivergence",
    "Jackknife",
    "Kernel",
    "ModeScores",
    "NeighbourCurve",
    "Neighbourhood",
    "Neighbours",
    "Paired",
    "Table",
    "extract",
    "frechet",
    "frechet_curve",
    "grid_cells",
    "histogram_divergence",
    "kernel",
    "kernel_curve",
    "load_table",
    "mode_cells",
    "mode_scores",
    "neighbours",
    "row_hashes",
]
