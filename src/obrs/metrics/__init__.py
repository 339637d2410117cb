"""Metrics: numbers that compare samples with a target."""

from .curves import PRCurve, classifier_curve, prd_curve, profile_curve
from .frechet_distance import Frechet, frechet, frechet_curve
from .grid import Cells, HistogramDivergence, grid_cells, histogram_divergence, mode_cells
from .inception import InceptionScore, inception_score
from .jackknife import Jackknife
from .kernel_distance import KERNELS, Kernel, kernel, kernel_curve
from .modes import ModeScores, mode_scores
from .nearest_neighbours import NeighbourCurve, Neighbourhood, Neighbours, neighbours
from .paired import Interval, Paired
from .two_sample import Closer, TwoSample, closer_test, two_sample_test

__all__ = [
    "KERNELS",
    "Cells",
    "Closer",
    "Frechet",
    "HistogramDivergence",
    "InceptionScore",
    "Interval",
    "Jackknife",
    "Kernel",
    "ModeScores",
    "NeighbourCurve",
    "Neighbourhood",
    "Neighbours",
    "PRCurve",
    "Paired",
    "TwoSample",
    "classifier_curve",
    "closer_test",
    "frechet",
    "frechet_curve",
    "grid_cells",
    "histogram_divergence",
    "inception_score",
    "kernel",
    "kernel_curve",
    "mode_cells",
    "mode_scores",
    "neighbours",
    "prd_curve",
    "profile_curve",
    "two_sample_test",
]
