"""What held-out scores of real and fake samples say about a log-ratio, each statement with its error.

A true log-ratio s satisfies p(s)/q(s) = exp(s) for the densities of s itself under P and Q. So with n real and m fake
scores a score s is real with probability D = n e^s / (n e^s + m), whatever else the sample was, and every check below
compares labels with D, or the two sides of E_P[h(s)] = E_Q[e^s h(s)].

References:
    | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), Sec. 4.1, the Z statistic
    | On the Removal of Skewness by Transformation (Hall, 1992)
    | Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves (DeLong et al., 1988)
"""

from dataclasses import dataclass
from math import exp, inf, isfinite, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from .._influence import Uncertainty, tail_index
from .._prefix import Prefix
from .held_out import log_loss

__all__ = [
    "ERRORS",
    "TOLERATED",
    "Estimate",
    "Evidence",
    "Mean",
    "Reliability",
    "area_under_curve",
    "finite_top",
    "mean_of_exp",
    "reliability",
]

Floats = np.ndarray[Any, Any]
Pair = tuple[Floats, Floats]

ERRORS = 3.0
"""Standard errors beyond which something is off."""
TOLERATED = 0.05
"""By how much a ratio may be off: nats of its logarithm, or a share of its mean."""
_INFORMATION = 0.001  # nats of Jensen-Shannon divergence that a ratio must tell to be worth rejecting with
_BINS = 20
_PER_BIN = 50  # scores of the smaller set, for each bin
_STRAY = 3.0  # added to the variance of a bin: one sample where none was expected is no discovery
_RESTS_ON = 5.0  # samples that decide a standard error, as in `Profile.plan`


class Estimate(NamedTuple):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, error: float) -> "Estimate":
        """Return the interval of a number that is nearly normal."""
        return cls(value, value - 1.96 * error, value + 1.96 * error)


@dataclass(frozen=True)
class Mean:
    """The mean of r, or of 1/r, over a sample; for a true ratio it is at most 1.

    Args:
        estimate: The mean and its interval, corrected for skewness.
        z: By how many standard errors it is above 1, corrected for skewness.
        tail_index: Hill's index of what is averaged; with 2 or less it has no variance.
        trusted: Whether being below 1 means anything: the variance exists, and does not rest on a handful.
    """

    estimate: Estimate
    z: float
    tail_index: float
    trusted: bool


def mean_of_exp(log_values: Floats) -> Mean:
    """Return the mean of exp of these logs, against 1.

    Example:
        >>> mean = mean_of_exp(np.random.default_rng(0).normal(-0.5, 1.0, 4000))
        >>> abs(mean.z) < 3, round(mean.estimate.value, 1)
        (True, 1.0)
    """
    top = float(np.max(log_values))
    if not isfinite(top):
        return Mean(Estimate(exp(top), exp(top), exp(top)), top, 0.0, top < 0)
    n = len(log_values)
    scaled = np.exp(log_values - top)  # the largest is 1: nothing overflows
    mean = float(np.mean(scaled))
    moved = (scaled - mean) / n
    square = float(np.sum(moved**2))
    index, _ = tail_index(Prefix(log_values))
    away = mean - (exp(-top) if top > -700 else inf)
    if square <= (8 * np.finfo(float).eps * mean) ** 2 / n:
        z = 0.0 if abs(away) <= 1e-9 * mean else away * inf
        return Mean(_scaled(Estimate(mean, mean, mean), top), z, index, True)
    unit = moved / sqrt(square)
    error = Uncertainty(sqrt(square), float(np.sum(unit**3)), 1 / float(np.sum(unit**4)))
    z = min(max(away / error.deviation, -1e6), 1e6)
    # Hall's transformation: monotone in z, and normal to the second order
    z = z + error.skewness * (2 * z**2 + 1) / 6 + error.skewness**2 * z**3 / 27
    trusted = index > 2 and error.proposals >= _RESTS_ON
    return Mean(_scaled(Estimate(mean, *error.interval(mean)), top), z, index, trusted)


def _scaled(estimate: Estimate, log_unit: float) -> Estimate:
    with np.errstate(over="ignore"):
        return Estimate(*(float(np.exp(log_unit + log(x))) if x > 0 else 0.0 for x in estimate))


@dataclass(frozen=True)
class Reliability:
    """Scores in bins of equally many, and how often the claims of each came true.

    Args:
        claimed: Log-ratio that the scores of each bin claim, ascending.
        observed: Log-ratio that the labels show, with half a sample added to each count.
        error: Its standard error.
        real, fake: How many of each lie in the bins.
        z: Turner's Z: how many more real samples there are than claimed, in standard errors.
        z_bins: The same bin by bin, as one normal number: squares summed, by Wilson and Hilferty's cube root.
        rms: Root mean square error of the log-ratio in nats, weighted by what is known, the noise taken off.
    """

    claimed: Floats
    observed: Floats
    error: Floats
    real: Floats
    fake: Floats
    z: float
    z_bins: float
    rms: float

    @property
    def off(self) -> bool:
        """Whether claims and labels disagree beyond doubt, and by more than is tolerated."""
        return max(abs(self.z), self.z_bins) > ERRORS and self.rms > TOLERATED


def reliability(
    real: Floats, fake: Floats, sizes: tuple[int, int] | None = None, *, by: Pair | None = None
) -> Reliability | None:
    """Return the calibration curve of a log-ratio, or None if there are no scores.

    Args:
        real, fake: Log-ratios.
        sizes: How many samples there were, if these are a part of them.
        by: What to make bins of, if not of the log-ratios: the scores that a map made them of. Bins then show what a
            map that is flat, or that should not rise, hides.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.5, 1, 4000), rng.normal(-0.5, 1, 4000)
        >>> exact, thrice = reliability(real, fake), reliability(3 * real, 3 * fake)
        >>> exact.z_bins < 3 < thrice.z_bins, thrice.rms > 0.5
        (True, True)
    """
    n, m = sizes or (len(real), len(fake))
    scores = np.concatenate([real, fake])
    if not scores.size:
        return None
    keys = scores if by is None else np.concatenate(by)
    order = np.argsort(keys, kind="stable")
    scores = scores[order]
    labels = (order < len(real)).astype(np.float64)
    first = _first_of_bins(keys[order], labels, n, m)
    logit = scores + log(n / m)
    log_real, log_fake = -np.logaddexp(0.0, -logit), -np.logaddexp(0.0, logit)
    variance = np.add.reduceat(np.exp(log_real + log_fake), first)
    excess = np.add.reduceat(labels - np.exp(log_real), first)
    reals, counts = np.add.reduceat(labels, first), np.diff(np.append(first, scores.size))
    fakes = counts - reals
    with np.errstate(invalid="ignore"):
        claimed = np.logaddexp.reduceat(log_real, first) - np.logaddexp.reduceat(log_fake, first) - log(n / m)
    observed = np.log((reals + 0.5) / (fakes + 0.5)) - log(n / m)
    weight = 1 / (1 / (reals + 0.5) + 1 / (fakes + 0.5))
    # an empty class cannot contradict a claim that is more extreme than what half a sample would show
    silent = ((reals == 0) & (claimed < observed)) | ((fakes == 0) & (claimed > observed))
    square = np.where(silent, 0.0, np.where(silent, 0.0, observed - claimed) ** 2)
    known = float(np.sum(weight))
    whole = float(np.sum(variance))
    return Reliability(
        claimed,
        observed,
        1 / np.sqrt(weight),
        reals,
        fakes,
        float(np.sum(excess)) / sqrt(max(whole, 1.0)),
        _as_normal(float(np.sum(excess**2 / (variance + _STRAY))), len(first)),
        sqrt(max(float(np.sum(weight * square)) - len(first), 0.0) / known),
    )


def _first_of_bins(keys: Floats, labels: Floats, n: int, m: int) -> Floats:
    """Return where the bins of ascending keys start; both classes weigh the same, and equal keys stay together."""
    bins = max(min(_BINS, min(n, m) // _PER_BIN), 1)
    weight = np.cumsum(np.where(labels > 0, 1 / n, 1 / m))
    cuts = np.searchsorted(weight, weight[-1] * np.arange(1, bins) / bins)
    return np.unique(np.append(0, np.searchsorted(keys, keys[cuts], side="left")))


def _as_normal(square: float, freedom: int) -> float:
    """Return the normal number that is as unlikely as this sum of squares."""
    spread = 2 / (9 * freedom)
    return (float(np.cbrt(square / freedom)) - (1 - spread)) / sqrt(spread)


def area_under_curve(real: Floats, fake: Floats) -> tuple[Estimate, float]:
    """Return the probability that a real sample scores above a fake one, ties counting half, and its z against 1/2.

    Args:
        real, fake: Scores, ascending.

    Example:
        >>> area_under_curve(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 1.5]))[0].value.__round__(3)
        0.833
    """
    below = (np.searchsorted(fake, real, side="left") + np.searchsorted(fake, real, side="right")) / (2 * len(fake))
    above = 1 - (np.searchsorted(real, fake, side="left") + np.searchsorted(real, fake, side="right")) / (2 * len(real))
    area = float(np.mean(below))
    error = sqrt(float(np.var(below)) / len(real) + float(np.var(above)) / len(fake))
    z = (area - 0.5) / error if error > 0 else (0.0 if area == 0.5 else (area - 0.5) * inf)
    low, high = area - 1.96 * error, area + 1.96 * error
    return Estimate(area, max(low, 0.0), min(high, 1.0)), z


@dataclass(frozen=True)
class Evidence:
    """All checks of a log-ratio that do not depend on a budget."""

    mean_ratio: Mean
    mean_inverse: Mean
    curve: Reliability
    auc: Estimate
    auc_z: float
    log_loss: Estimate

    @classmethod
    def of(cls, scores: Pair, by: Pair | None = None) -> "Evidence":
        """Examine log-ratios of real and fake samples, `by` being the scores that a map made them of.

        The real ones may be +inf, the fake ones -inf.
        """
        real, fake = np.sort(scores[0]), np.sort(scores[1])
        curve = reliability(*scores, by=by)
        assert curve is not None
        loss = log_loss(finite_top(real, fake), fake)
        return cls(mean_of_exp(fake), mean_of_exp(-real), curve, *area_under_curve(real, fake), Estimate.of(*loss))

    def faults(self) -> list[str]:
        """Say what is off beyond doubt and by more than is tolerated; nothing if the ratio is calibrated."""
        found = []
        for name, mean in (("E_Q[r]", self.mean_ratio), ("E_P[1/r]", self.mean_inverse)):
            if mean.z > ERRORS and mean.estimate.value > 1 + TOLERATED:
                found.append(f"{name} = {mean.estimate.value:.3g} is above 1")
        if self.curve.off:
            found.append(f"log r is off by {self.curve.rms:.2g} nats")
        return found

    def tells(self) -> bool:
        """Whether the scores, taken as they are, know real from fake."""
        return self.auc_z > ERRORS and log(2) - self.log_loss.value > _INFORMATION

    def missing_support(self) -> Estimate | None:
        """Return 1 - E_Q[r] if it is above 0 beyond doubt, and larger than the error of the ratio."""
        value, low, high = self.mean_ratio.estimate
        if not self.mean_ratio.trusted or self.mean_ratio.z >= -ERRORS or 1 - value <= self.curve.rms:
            return None
        return Estimate(*(min(max(1 - x, 0.0), 1.0) for x in (value, high, low)))


def finite_top(real: Floats, fake: Floats) -> Floats:
    """Put real scores of +inf, where the model never goes, at the largest finite score: maps are of numbers."""
    top = max(float(np.max(x[np.isfinite(x)], initial=-inf)) for x in (real, fake))
    return np.minimum(real, top)
