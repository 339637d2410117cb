"""How well samples hit the known modes of a target: precision, recall, spread and balance."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import nan, sqrt
from typing import Any

import numpy as np

from obrs._arrays import as_floats, host_view
from obrs._checks import check_positive, is_number
from obrs._text import lookup
from obrs.errors import InputError
from obrs.types import Array

from .masses import as_counts, as_masses, as_weights, effective_size, own_pairs, points

__all__ = ["MODE_RULES", "ModeScores", "jensen_shannon", "mode_scores", "nearest_mode", "widths"]

Floats = np.ndarray[Any, Any]

# Each gets the weight of all samples nearest to each mode, and of the high-quality ones among them.
MODE_RULES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "high_quality": lambda nearest, good: good > 0,
    "nearest": lambda nearest, good: nearest > 0,
}
_BLOCK = 1 << 21  # coordinates in memory at a time


@dataclass(frozen=True)
class ModeScores:
    """What `mode_scores` counts. A sample is of high quality if it is within `n_sigma` sigma of some mode.

    Args:
        precision: Share of the samples that are of high quality. Samples of a 2-D target itself have
            1 - exp(-n_sigma²/2): 98.89 % at 3 sigma, 99.97 % at 4.
        recall: Share of the modes that are recovered.
        modes: How many modes are recovered.
        within_mode_std: Standard deviation of a coordinate of the high-quality samples about the mean of those of
            the same mode, pooled over modes and axes. The target itself has sigma, less 0.13 % for the cut at 4 sigma
            in 2-D; a model that makes the same point again and again has 0. NaN where no mode has two samples.
        jsd: Jensen-Shannon divergence in nats, at most log 2, between the histogram of the samples over the modes
            and one more class for those of no mode, and the weights of the modes with nothing in that class.
        jsd_assigned: The same for the high-quality samples alone, without that class: the balance, whatever the
            precision. NaN if there are none.
        counts: Weight of the high-quality samples of each mode, in the order of the modes.
        n_fake: How many samples: with weights Kish's effective number, with counts all copies.
    """

    precision: float
    recall: float
    modes: int
    within_mode_std: float
    jsd: float
    jsd_assigned: float
    counts: Floats = field(compare=False)
    n_fake: float


def mode_scores(
    *,
    modes: Array,
    fake: Array,
    sigma: Any,
    n_sigma: float = 4.0,
    mode_rule: str = "high_quality",
    weights: Array | None = None,
    counts: Array | None = None,
    mode_weights: Array | None = None,
) -> ModeScores:
    """Score samples against the modes of a mixture of isotropic components.

    Args:
        modes: Means of the components, shape `(modes, dim)`: what is real is known.
        fake: Samples, shape `(n, dim)`, of any array library.
        sigma: Standard deviation of a component, per axis: one number, or one per mode.
        n_sigma: How many sigma, in Euclidean distance, a sample of high quality may be away from its mode.
        mode_rule: When a mode is recovered. "high_quality": one of its samples is of high quality (Azadi, Turner).
            "nearest": it is the nearest mode of any sample, however far (Ding).
        weights: Probability that each sample is kept, `(n,)`, up to a factor; equal by default.
        counts: How often each sample is there, `(n,)`, instead of weights.
        mode_weights: Weight of each mode in the target, for the two divergences; equal by default.

    Returns:
        The scores; see `ModeScores` for what each means.

    Example:
        >>> modes = [[0.0, 0.0], [2.0, 2.0]]
        >>> scores = mode_scores(modes=modes, fake=[[0.0, 0.1], [0.0, -0.1], [3.0, 3.0]], sigma=0.05)
        >>> round(scores.precision, 3), scores.modes, scores.counts
        (0.667, 1, array([2., 0.]))
        >>> mode_scores(modes=modes, fake=[[1.2, 1.2]], sigma=0.05, mode_rule="nearest").modes
        1

    References:
        | Discriminator Rejection Sampling (Azadi et al., 2019), high-quality samples and recovered modes
        | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), the divergence with a class of
          unassigned samples and the within-mode standard deviation
        | Subsampling Generative Adversarial Networks: Density Ratio Estimation in Feature Space with Softplus Loss
          (Ding et al., 2020), whose code counts a mode by the nearest sample
    """
    x, centres = points(fake, "fake"), points(modes, "modes")
    if x.shape[1] != centres.shape[1]:
        raise InputError(f"fake and modes must have as many coordinates each, got {x.shape[1]} and {centres.shape[1]}")
    with np.errstate(over="ignore"):  # then every sample is near
        radius = check_positive(n_sigma, "n_sigma") * widths(sigma, len(centres))
    size = effective_size(own_pairs(as_masses(weights, counts, len(x)), counts))
    w = as_weights(weights, len(x)) if counts is None else as_counts(counts, len(x)).astype(np.float64)
    own = w * w if counts is None else w  # the mass of the pairs of each sample with itself
    target = as_weights(mode_weights, len(centres), "mode_weights")
    recovered = lookup(MODE_RULES, mode_rule, "mode rule")

    nearest, distance = nearest_mode(x, centres)
    good = distance <= radius[nearest]
    every = np.bincount(nearest, weights=w, minlength=len(centres))
    held = np.bincount(nearest[good], weights=w[good], minlength=len(centres))
    found = int(np.count_nonzero(recovered(every, held)))
    total, assigned = float(w.sum()), float(held.sum())
    expected = target / target.sum()
    return ModeScores(
        precision=assigned / total,
        recall=found / len(centres),
        modes=found,
        within_mode_std=_pooled_std(x[good], nearest[good], w[good], own[good], len(centres)),
        jsd=jensen_shannon(np.append(held, max(total - assigned, 0.0)) / total, np.append(expected, 0.0)),
        jsd_assigned=jensen_shannon(held / assigned, expected) if assigned else nan,
        counts=held,
        n_fake=size,
    )


def nearest_mode(x: Floats, centres: Floats) -> tuple[Floats, Floats]:
    """Return the index of the nearest centre of each sample, the first if there are several, and its distance.

    Example:
        >>> nearest_mode(np.array([[0.0, 3.0], [9.0, 0.0]]), np.array([[0.0, 0.0], [8.0, 0.0]]))
        (array([0, 1]), array([3., 1.]))
    """
    index, distance = np.empty(len(x), dtype=np.intp), np.empty(len(x))
    block = max(_BLOCK // centres.size, 1)
    for start in range(0, len(x), block):
        part = slice(start, start + block)
        # differences, not |x|² - 2xm + |m|²: that cancels where a sample is close to a mode far from the origin
        squares = np.square(x[part, None, :] - centres[None]).sum(axis=2)
        index[part] = squares.argmin(axis=1)
        distance[part] = np.sqrt(squares.min(axis=1))
    return index, distance


def jensen_shannon(p: Floats, q: Floats) -> float:
    """Return the Jensen-Shannon divergence of two histograms of sum 1, in nats.

    Example:
        >>> round(jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])), 4)
        0.6931
    """
    middle = (p + q) / 2
    halves = [float(np.sum(a[a > 0] * np.log(a[a > 0] / middle[a > 0]))) for a in (p, q)]
    return max(sum(halves) / 2, 0.0)


def widths(sigma: Any, modes: int) -> Floats:
    """Return one standard deviation for each mode, from one number or one per mode.

    Example:
        >>> widths(0.1, 3)
        array([0.1, 0.1, 0.1])
    """
    if is_number(sigma):
        return np.full(modes, check_positive(sigma, "sigma"))
    values = host_view(as_floats(sigma, "sigma"))
    if values is None or values.shape != (modes,) or not (values.min() > 0 and values.max() < np.inf):
        raise InputError(f"sigma must be one number above 0, or one such number for each of {modes} modes")
    return values.astype(np.float64, copy=False)


def _pooled_std(x: Floats, group: Floats, w: Floats, own: Floats, groups: int) -> float:
    """Pool the variance about the mean of each group, unbiased, over the axes."""
    mass = np.bincount(group, weights=w, minlength=groups)
    safe = np.where(mass > 0, mass, 1.0)
    freedom = float(np.sum(mass - np.bincount(group, weights=own, minlength=groups) / safe))
    if freedom <= 1e-12 * float(mass.sum()):
        return nan
    means = np.stack([np.bincount(group, weights=w * axis, minlength=groups) / safe for axis in x.T], axis=1)
    return sqrt(float(np.sum(w[:, None] * np.square(x - means[group]))) / (freedom * x.shape[1]))
