"""The inception score, from the logits of a classifier."""

from dataclasses import dataclass
from math import exp, sqrt
from typing import Any

import numpy as np

from .._checks import check_count
from ..errors import InputError
from ._inputs import as_weights, effective_size, own_pairs, points

__all__ = ["InceptionScore", "inception_score"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class InceptionScore:
    """What `inception_score` computes.

    Args:
        value: Mean score of the splits.
        deviation: Standard deviation over the splits, as papers report it; 0 with one split.
        n_fake: How many rows there are; with weights Kish's effective number.
        classes: How many the classifier knows: the score is at most that.
        splits: How many the rows were dealt into.
    """

    value: float
    deviation: float
    n_fake: float
    classes: int
    splits: int


def inception_score(logits: Any, weights: Any = None, *, splits: int = 10) -> InceptionScore:
    """Return exp of the mean divergence of each row's classes from those of all rows.

    It is high if each sample is surely of one class and all classes are there. It knows no real samples: a model with
    one good image per class has the highest score. It is called so if the classifier is Inception, and only then.

    Args:
        logits: Unnormalised log-probabilities, `(n, classes)`, of any array library.
        weights: Chance that each row is kept, up to a factor; equal by default.
        splits: How many parts the rows are dealt into, one by one, so that rows in the order of their classes do no
            harm. Fewer rows have a lower score: compare at equal n.

    Example:
        >>> sure = 50 * np.eye(4)
        >>> round(inception_score(sure, splits=1).value, 6), inception_score(0 * sure, splits=2).value
        (4.0, 1.0)

    References:
        | Improved Techniques for Training GANs (Salimans et al., 2016)
        | A Note on the Inception Score (Barratt and Sharma, 2018)
    """
    values = points(logits, "logits")
    n, classes = values.shape
    splits = check_count(splits, "splits")
    w = as_weights(weights, n)
    if n < splits:
        raise InputError(f"logits must have at least one row for each of {splits} splits, got {n}; lower splits")
    if any(not w[i::splits].any() for i in range(splits)):
        raise InputError(f"weights must not be all 0 in one of {splits} splits; lower splits")
    values = values - values.max(axis=1, keepdims=True)
    log_p = values - np.log(np.exp(values).sum(axis=1, keepdims=True))
    scores = [_score(log_p[i::splits], w[i::splits]) for i in range(splits)]
    mean = sum(scores) / splits
    deviation = sqrt(sum((s - mean) ** 2 for s in scores) / max(splits - 1, 1))
    return InceptionScore(mean, deviation, effective_size(own_pairs(w / w.sum())), classes, splits)


def _score(log_p: Floats, w: Floats) -> float:
    p, mass = np.exp(log_p), w / w.sum()
    all_rows = mass @ p
    inside = all_rows > 0
    entropy = -float(all_rows[inside] @ np.log(all_rows[inside]))
    own = float(mass @ np.where(p > 0, p * log_p, 0.0).sum(axis=1))
    return exp(own + entropy)
