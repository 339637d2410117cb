"""Metrics: numbers that compare samples with a target."""

from .curves import PRCurve, classifier_curve, prd_curve, profile_curve
from .features import FEATURES, Extractor, extract
from .frechet_distance import Frechet, frechet, frechet_curve
from .grid import Cells, HistogramDivergence, grid_cells, histogram_divergence, mode_cells
from .inception import InceptionScore, inception_score
from .jackknife import Jackknife
from .kernel_distance import KERNELS, Kernel, kernel, kernel_curve
from .modes import ModeScores, mode_scores
from .nearest_neighbours import NeighbourCurve, Neighbourhood, Neighbours, neighbours
from .paired import Paired
from .rows import row_hashes
from .table import Table, load_table
from .two_sample import Closer, TwoSample, closer_test, two_sample_test

__all__ = [
    "FEATURES",
    "KERNELS",
    "Cells",
    "Closer",
    "Extractor",
    "Frechet",
    "HistogramDivergence",
    "InceptionScore",
    "Jackknife",
    "Kernel",
    "ModeScores",
    "NeighbourCurve",
    "Neighbourhood",
    "Neighbours",
    "PRCurve",
    "Paired",
    "Table",
    "TwoSample",
    "classifier_curve",
    "closer_test",
    "extract",
    "frechet",
    "frechet_curve",
    "grid_cells",
    "histogram_divergence",
    "inception_score",
    "kernel",
    "kernel_curve",
    "load_table",
    "mode_cells",
    "mode_scores",
    "neighbours",
    "prd_curve",
    "profile_curve",
    "row_hashes",
    "two_sample_test",
]
