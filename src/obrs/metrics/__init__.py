"""Metrics: numbers that compare samples with a target."""

from .frechet_distance import Frechet, frechet, frechet_curve
from .inception import InceptionScore, inception_score
from .kernel_distance import KERNELS, Kernel, kernel, kernel_curve
from .paired import Interval, Paired
from .two_sample import Closer, TwoSample, closer_test, two_sample_test

__all__ = [
    "KERNELS",
    "Closer",
    "Frechet",
    "InceptionScore",
    "Interval",
    "Kernel",
    "Paired",
    "TwoSample",
    "closer_test",
    "frechet",
    "frechet_curve",
    "inception_score",
    "kernel",
    "kernel_curve",
    "two_sample_test",
]
