"""Precision-recall curves of distributions, from the scores of a classifier.

At slope l, precision is alpha(l) = sum min(l p, q) and recall is alpha(l)/l: how much of the fakes and of the real
samples can be explained by something they share. By Neyman and Pearson that is the least of l P(A) + Q(not A), over
sets A where p/q is below a threshold. So the curve is read from two lists, P(A) and Q(not A) for every threshold on
the samples ordered by a classifier (Simon et al.).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays import as_floats, host_view
from .._checks import check_count, check_positive
from ..errors import InputError
from ..types import Array
from ._inputs import as_masses, effective_size, own_pairs

__all__ = ["PRCurve", "classifier_curve"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class PRCurve:
    """A precision-recall curve between distributions.

    Args:
        lam: Slopes `precision / recall`, ascending from 0 to inf.
        precision: Of the fakes, at each slope.
        recall: Of the real samples, at each slope.
        n_real: How many real samples it is from.
        n_fake: How many fakes: with weights Kish's effective number, with counts all copies.

    Example:
        >>> half = PRCurve(np.array([0, 1, np.inf]), np.array([0, 0.5, 0.5]), np.array([0.5, 0.5, 0]), 9, 9)
        >>> half.area, round(half.f_beta(8), 3)
        (0.25, 0.5)
    """

    lam: Floats
    precision: Floats
    recall: Floats
    n_real: int
    n_fake: float

    @property
    def area(self) -> float:
        """Area under the curve: 1 for equal distributions, 0 for those that share nothing."""
        return float(np.sum(-np.diff(self.recall) * (self.precision[1:] + self.precision[:-1]) / 2))

    def f_beta(self, beta: float) -> float:
        """Return the largest F score on the curve: recall counts beta times as much as precision.

        Sajjadi et al. summarise a curve by F_8, near the largest recall, and F_1/8, near the largest precision.
        """
        square = check_positive(beta, "beta") ** 2
        below = square * self.precision + self.recall
        return float(np.max((1 + square) * self.precision * self.recall / np.where(below > 0, below, 1.0)))


def classifier_curve(
    *, real: Array, fake: Array, points: int = 1001, weights: Array | None = None, counts: Array | None = None
) -> PRCurve:
    """Return the curve of Simon et al.: the best trade-off of a classifier's two errors, at every slope.

    Only the order of the scores matters, so a logit, a probability and a log-ratio give the same curve. A classifier
    that is not the best one moves the curve up: it finds less of the difference. The scores must be of samples that it
    was not trained on. The threshold is chosen on the scores themselves, which lowers the curve a little, by about
    1/sqrt(n).

    Args:
        real, fake: Scores of real samples and of fakes, `(n,)`, larger where a sample looks real.
        points: Number of slopes, evenly spread in angle.
        weights: Probability that each fake is kept, `(n_fake,)`, up to a factor; equal by default.
        counts: How often each fake is there, instead of weights.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> curve = classifier_curve(real=rng.normal(1.0, 1.0, 5000), fake=rng.normal(0.0, 1.0, 5000))
        >>> print(f"{curve.precision[500]:.2f}")  # at slope 1, where it is 1 - TV = 0.617
        0.63

    References:
        | Revisiting Precision and Recall Definition for Generative Model Evaluation (Simon et al., 2019)
    """
    p, q = _scores(real, "real"), _scores(fake, "fake")
    mass = as_masses(weights, counts, len(q))
    threshold = np.append(np.unique(np.concatenate([p, q])), np.inf)
    below = np.searchsorted(np.sort(p), threshold) / len(p)
    order = np.argsort(q, kind="stable")
    passed = np.append(0.0, np.cumsum(mass[order]))
    above = np.maximum(1 - passed[np.searchsorted(q[order], threshold)] / passed[-1], 0.0)
    lam, precision, recall = _least(below, above, points)
    return PRCurve(lam, precision, recall, len(p), effective_size(own_pairs(mass, counts)))


def _least(below: Floats, above: Floats, points: int) -> tuple[Floats, Floats, Floats]:
    """Return slope, precision and recall: of sin P(A) + cos Q(not A) the least over all sets A, in every direction."""
    angle = np.linspace(0, np.pi / 2, check_count(points, "points", 2))
    sin, cos = np.sin(angle), np.cos(angle)
    precision, recall = np.empty((2, len(angle)))
    for i in range(1, len(angle) - 1):
        least = float(np.min(sin[i] * below + cos[i] * above))
        precision[i], recall[i] = min(least / cos[i], 1.0), min(least / sin[i], 1.0)
    # At the ends one of the two weighs nothing: no fake may be lost, or no real sample.
    tiny = 1e-12  # sums of masses are that exact
    precision[0], recall[0] = 0.0, below[above <= tiny].min()
    precision[-1], recall[-1] = above[below <= tiny].min(), 0.0
    lam = np.append(np.tan(angle[:-1]), np.inf)
    return lam, precision, recall


def _scores(x: Any, name: str) -> Floats:
    values = host_view(as_floats(x, name))
    assert values is not None, "metrics are not traced"
    if values.ndim != 1 or not values.size:
        raise InputError(f"{name} must be scores of shape (n,) with at least one, got shape {tuple(values.shape)}")
    if bad := np.count_nonzero(np.isnan(values)):
        raise InputError(f"{name} must be scores, {bad} of {values.size} are NaN; check the classifier")
    return values.astype(np.float64, copy=False)
