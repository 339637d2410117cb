"""Two-sample tests: is it different from real, and is one closer to real than the other?"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from .._arrays import host_view, like, namespace
from .._inputs import check_confidence, check_count, check_seed
from ..errors import InputError
from ..estimate import Estimate
from ..types import Array
from ._inputs import as_features, as_weights, both_features
from .kernel_distance import KernelFunction, beyond_range, kernel_curve, kernel_function

__all__ = ["Closer", "TwoSample", "closer_test", "two_sample_test"]

Floats = np.ndarray[Any, Any]

_AT_ONCE = 256  # permutations at a time


@dataclass(frozen=True)
class TwoSample:
    """What `two_sample_test` finds.

    Args:
        statistic: The squared distance of the two samples as they are, not corrected for their sizes.
        p_value: Chance of one at least as large if both are of one distribution. It is exact: a test at 5 % rejects at
            most 5 % of the time then.
        n_real, n_fake: How many rows there are.
        permutations: How many were drawn.
    """

    statistic: float
    p_value: float
    n_real: int
    n_fake: int
    permutations: int


def two_sample_test(
    *,
    real: Any,
    fake: Any,
    kernel: str = "energy",
    bandwidth: float | None = None,
    permutations: int = 999,
    seed: int = 0,
) -> TwoSample:
    """Test whether fake rows are different from real ones, by permutation of who is who.

    A large p-value does not say that they are the same: with few rows nothing is found. There are no weights, because
    rows of unequal weight cannot change places; test rows that were kept.

    Args:
        real: Features of real samples, `(n, dim)`, NumPy or torch.
        fake: Features of fake samples, of the same library and dimension.
        kernel: "energy", "rbf" or "polynomial". The first two see every difference, given enough rows, the last those
            of the first three moments.
        bandwidth: Scale of the kernel; for "rbf" the median distance of all rows by default.
        permutations: How many to draw. The p-value is at least 1/(permutations + 1).
        seed: Of the permutations.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((100, 2)), rng.standard_normal((80, 2))
        >>> two_sample_test(real=real, fake=fake).p_value > 0.05, two_sample_test(real=real, fake=2 * fake).p_value
        (True, 0.001)

    References:
        | A Kernel Two-Sample Test (Gretton et al., 2012)
        | Energy Statistics: A Class of Statistics Based on Distances (Székely and Rizzo, 2013)
        | Permutation P-values Should Never Be Zero (Phipson and Smyth, 2010)
    """
    real, fake, _ = both_features(real, fake)
    permutations, seed = check_count(permutations, "permutations"), check_seed(seed)
    rows = namespace(real).concat([real, fake])
    function = kernel_function(kernel, rows, bandwidth)  # of all rows, so that it is the same for every permutation
    rng = np.random.default_rng(seed)
    signs = np.concatenate([np.full(len(real), 1 / len(real)), np.full(len(fake), -1 / len(fake))])
    lines = np.stack([signs, *(rng.permutation(signs) for _ in range(permutations))], axis=1)
    statistics = _statistics(function, rows, lines)
    slack = 1e-10 * float(np.abs(statistics).max())  # ties that rounding has split
    as_large = int(np.count_nonzero(statistics[1:] >= statistics[0] - slack))
    return TwoSample(float(statistics[0]), (1 + as_large) / (permutations + 1), len(real), len(fake), permutations)


@np.errstate(over="ignore", invalid="ignore")  # the values are looked at
def _statistics(function: KernelFunction, rows: Array, lines: Floats) -> Floats:
    """Return the sum of the kernel of all pairs, weighted by each column of lines at both ends."""
    permutations = lines.shape[1] - 1
    statistics = np.zeros(permutations + 1)
    for part, block in function.blocks(rows):
        for start in range(0, permutations + 1, _AT_ONCE):
            some = lines[:, start : start + _AT_ONCE]
            sums = np.asarray(host_view(block @ like(np.ascontiguousarray(some[part.start :]), block)))
            width = part.stop - part.start
            square = np.asarray(host_view(block[:, :width] @ like(np.ascontiguousarray(some[part]), block)))
            # pairs with later rows count twice, those within the slice once
            statistics[start : start + _AT_ONCE] += np.sum(some[part] * (2 * sums - square), axis=0)
    if not np.isfinite(statistics).all():
        raise beyond_range()
    return statistics


@dataclass(frozen=True)
class Closer:
    """What `closer_test` finds.

    Args:
        difference: Squared kernel distance of the first from real less that of the second: below 0 the first is closer.
        low, high: Interval of the difference.
        standard_error: Of the difference.
        p_value: Chance of a difference at least as far below 0 if the first is no closer: small if the first is closer.
        n_real, n_first, n_second: How many rows there are; effective numbers with weights.
    """

    difference: float
    low: float
    high: float
    standard_error: float
    p_value: float
    n_real: int
    n_first: float
    n_second: float


def closer_test(
    *,
    real: Any,
    first: Any,
    second: Any,
    first_weights: Any = None,
    second_weights: Any = None,
    kernel: str = "polynomial",
    bandwidth: float | None = None,
    confidence: float = 0.95,
) -> Closer:
    """Test which of two models is closer to real samples: MMD²(real, first) - MMD²(real, second) with an interval.

    Both are compared with the same real rows, whose error mostly cancels. The first and the second must be drawn
    independently; for two budgets on one pool take `kernel_curve` and its `difference`.

    Args:
        real, first, second: Features, `(n, dim)` each, NumPy or torch.
        first_weights, second_weights: Chance that each row is kept, up to a factor; equal by default.
        kernel, bandwidth: As for `obrs.metrics.kernel`. The default bandwidth depends on the real rows alone.
        confidence: Of the interval.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, near, far = (rng.standard_normal((300, 2)) + shift for shift in (0.0, 0.1, 1.0))
        >>> found = closer_test(real=real, first=near, second=far)
        >>> found.high < 0, found.p_value < 0.001
        (True, True)

    References:
        | A Test of Relative Similarity for Model Selection in Generative Models (Bounliphone et al., 2016)
    """
    confidence = check_confidence(confidence)
    curves = []
    for name, rows, weights in (("first", first, first_weights), ("second", second, second_weights)):
        rows = as_features(rows, name)
        weights = as_weights(weights, len(rows), f"{name}_weights")
        if np.count_nonzero(weights) < 2:
            raise InputError(f"{name} must have at least 2 rows of some weight")
        curves.append(kernel_curve(real=real, fake=rows, weights=weights, kernel=kernel, bandwidth=bandwidth))
    one, two = curves
    shared = one.real_influence - two.real_influence
    parts = (shared, one.fake_influence, two.fake_influence)
    error = float(np.sqrt(sum(float(np.sum(part**2)) for part in parts)))
    found = Estimate.around(float(one.value[0] - two.value[0]), error, confidence)
    p_value = NormalDist().cdf(found.value / error) if error else float(found.value >= 0)
    return Closer(
        *(found.value, found.low, found.high, error, p_value),
        *(one.n_real, float(one.n_fake[0]), float(two.n_fake[0])),
    )
