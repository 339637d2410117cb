"""Precision-recall curves of distributions: from clusters of features, scores of a classifier, or log-ratios.

At slope l, precision is alpha(l) = sum min(l p, q) and recall is alpha(l)/l: how much of the fakes and of the real
samples can be explained by something they share. By Neyman and Pearson that is the least of l P(A) + Q(not A), over
sets A where p/q is below a threshold. So each curve is read from two lists, P(A) and Q(not A) for every threshold,
whether the points of the space are clusters (Sajjadi et al.) or samples ordered by a classifier (Simon et al.).
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays import as_floats, host_view
from .._inputs import check_budget, check_count, check_positive, check_seed
from ..errors import InputError
from ..profile import Profile
from ..types import Array
from ._inputs import as_masses, both_features, effective_size, own_pairs

__all__ = ["PRCurve", "classifier_curve", "prd_curve", "profile_curve"]

Floats = np.ndarray[Any, Any]

_LARGEST = 1e15  # squares of more leave the range of float32


@dataclass(frozen=True, eq=False)
class PRCurve:
    """A precision-recall curve between distributions.

    Args:
        lam: Slopes `precision / recall`, ascending from 0 to inf.
        precision: Of the fakes, at each slope.
        recall: Of the real samples, at each slope.
        n_real: How many real samples it is from; None if none were needed.
        n_fake: How many fakes: with weights Kish's effective number, with counts all copies.

    Example:
        >>> half = PRCurve(np.array([0, 1, np.inf]), np.array([0, 0.5, 0.5]), np.array([0.5, 0.5, 0]), 9, 9)
        >>> half.area, round(half.f_beta(8), 3)
        (0.25, 0.5)
    """

    lam: Floats
    precision: Floats
    recall: Floats
    n_real: int | None
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


def prd_curve(
    *,
    real: Array,
    fake: Array,
    clusters: int = 20,
    runs: int = 10,
    points: int = 1001,
    weights: Array | None = None,
    counts: Array | None = None,
    seed: int = 0,
) -> PRCurve:
    """Return the curve of Sajjadi et al.: cluster the features of both, compare the two histograms.

    Both sides have the same total weight in the clustering, whatever their sizes; the curve is the mean of several
    runs. It knows nothing of what happens inside a cluster, and with few samples even two samples of one distribution
    have different histograms. Compare curves of the same sizes and clusters only.

    Args:
        real, fake: Features, shape `(n, dim)`, NumPy or torch.
        clusters: Number of clusters.
        runs: How many clusterings to average.
        points: Number of slopes, evenly spread in angle.
        weights: Probability that each fake is kept, `(n_fake,)`, up to a factor; equal by default.
        counts: How often each fake is there, instead of weights.
        seed: Of the clusterings.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real = rng.standard_normal((2000, 2)) + 9 * rng.integers(0, 2, (2000, 1))  # two modes
        >>> fake = rng.standard_normal((2000, 2))  # one of them
        >>> curve = prd_curve(real=real, fake=fake, runs=3)
        >>> print(f"{curve.precision.max():.2f} {curve.recall.max():.2f}")
        1.00 0.48
        >>> curve.f_beta(8) < curve.f_beta(1 / 8)
        True

    References:
        | Assessing Generative Models via Precision and Recall (Sajjadi et al., 2018)
    """
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    real, fake, _ = both_features(real, fake)
    mass = as_masses(weights, counts, len(fake))
    clusters, runs, seed = check_count(clusters, "clusters"), check_count(runs, "runs"), check_seed(seed)
    n = len(real)
    if clusters > n + len(fake):
        raise InputError(f"clusters must be at most {n + len(fake)}, the number of samples, got {clusters}")
    both = np.concatenate([np.asarray(host_view(real)), np.asarray(host_view(fake))])
    if both.dtype != np.float64 and max(-both.min(), both.max()) > _LARGEST:
        both = both.astype(np.float64)
    share = np.concatenate([np.full(n, 1 / n), mass])
    found = []
    for run in range(runs):
        method = MiniBatchKMeans(clusters, n_init=10, random_state=(seed * runs + run) % 2**32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different points than clusters: no harm
            labels = method.fit(both, sample_weight=share * len(both) / 2).predict(both)
        p, q = (np.bincount(labels[i], share[i], clusters) for i in (slice(0, n), slice(n, None)))
        order = np.lexsort((p, p / np.maximum(p + q, 1e-300)))
        below, above = np.cumsum(np.append(0.0, p[order])), 1 - np.cumsum(np.append(0.0, q[order]))
        found.append(_least(below, np.maximum(above, 0.0), points))
    lam, precision, recall = np.mean(found, axis=0)
    return PRCurve(lam, precision, recall, n, effective_size(own_pairs(mass, counts)))


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


def profile_curve(
    *, log_ratio: Array, budget: float = 1.0, points: int = 1001, weights: Array | None = None
) -> PRCurve:
    """Return the curve of the samples that a budget leaves, from the log-ratios of the proposals alone.

    It trusts the ratio: real samples are not looked at. See `Profile.curve`.

    Args:
        log_ratio: `log p(x) - log q(x)` of proposals of the model.
        budget: Proposals per kept sample; 1 is the model itself.
        points: Number of slopes, evenly spread in angle.
        weights: Masses of the proposals; equal by default.

    Example:
        >>> log_ratio = np.random.default_rng(0).normal(-0.5, 1.0, 5000)
        >>> [round(profile_curve(log_ratio=log_ratio, budget=k).area, 2) for k in (1, 2, 4)]
        [0.68, 0.91, 0.98]

    References:
        | Precision-Recall Divergence Optimization for Generative Modeling with GANs and Normalizing Flows (Verine et
          al., 2023)
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Theorem 3.3
    """
    profile = Profile(log_ratio, weights)
    lam, precision, recall = profile.curve(check_budget(budget), points)
    return PRCurve(lam, precision, recall, None, effective_size(own_pairs(as_masses(weights, None, profile.size))))


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
