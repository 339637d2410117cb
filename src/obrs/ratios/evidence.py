"""What the scores of held-out samples show about a log-ratio; every number comes with its error.

Let s be a true log-ratio. Then the densities of s itself, under P and under Q, have the ratio exp(s). So among n real
and m fake samples, one with score s is real with probability D = n e^s / (n e^s + m). The score test compares labels
with D, and the mean of r is at most 1.

References:
    | Tests of Statistical Hypotheses Concerning Several Parameters (Rao, 1948), the score test
    | Smooth Test for Goodness of Fit (Neyman, 1937)
    | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), Sec. 4.1
    | On the Removal of Skewness by Transformation (Hall, 1992)
    | Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves (DeLong et al., 1988)
"""

from dataclasses import dataclass
from math import exp, inf, isfinite, log, nan, sqrt
from typing import Any

import numpy as np

from .._arrays import as_floats, known_values
from .._checks import BEYOND, LIMIT
from .._influence import tail_index
from ..errors import InputError, RatioError
from ..estimate import Estimate, skewed_interval
from ..types import Array

__all__ = ["ERRORS", "TOLERATED", "ClassMean", "Evidence", "Floats", "Mean", "Pair", "Reliability"]
__all__ += ["area_under_curve", "class_means", "finite_top", "kl_removed", "known_scores", "log_loss", "losses"]
__all__ += ["mean_of_exp", "mean_of_means", "overlap", "reliability", "removed_terms", "score_pair"]

Floats = np.ndarray[Any, Any]
Pair = tuple[Floats, Floats]  # of real samples, and of fake ones

ERRORS = 3.0
"""Standard errors beyond which something is off."""
TOLERATED = 0.05
"""By how much a ratio may be off: nats of its logarithm, or a share of its mean."""
_INFORMATION = 0.001  # nats of Jensen-Shannon divergence that a ratio must tell to be worth rejecting with
_DEGREE = 3  # of the polynomials in the rank of a score that the score test looks at
_STRAY = 2.0  # added to the variances: one sample where none was expected is no discovery
_BINS, _PER_BIN = 20, 50  # of the calibration curve, and scores of the smaller set for each
_RESTS_ON = 5.0  # samples that decide a standard error, as in `Profile.plan`
_PRECISE = 0.1  # relative standard error up to which a class mean of r is known


def score_pair(real: Array, fake: Array, *, least: int = 1, what: str = "this") -> Pair:
    """Check the scores of both kinds, and return them as float64 in NumPy memory; those of fakes may be -inf."""
    scores = known_scores(real, "real"), known_scores(fake, "fake")
    if min(map(len, scores)) < least:
        sizes = f"{len(scores[0])} real and {len(scores[1])} fake"
        raise InputError(f"{what} needs at least {least} held-out scores of each kind, got {sizes}")
    for name, x in zip(("real", "fake"), scores, strict=True):
        if bad := int(np.count_nonzero(np.isnan(x) | (x == inf))):
            raise RatioError(f"{name} has {bad} NaN or +inf among {len(x)} scores; check the critic first")
    if impossible := int(np.count_nonzero(scores[0] == -inf)):
        raise RatioError(f"real has {impossible} -inf among {len(scores[0])} scores: real samples called impossible")
    if scores[1].max() == -inf:
        raise RatioError(f"fake has no score above -inf among {len(scores[1])}: no fake has r > 0")
    return scores


def known_scores(scores: Array, name: str) -> Floats:
    """Return scores `(n,)` or `(n, 1)` as float64 in NumPy memory; NaN and infinities are left as they are."""
    x = as_floats(scores, name)
    if x.ndim == 0 or any(size != 1 for size in x.shape[1:]):
        raise InputError(f"{name} must have one axis, got shape {tuple(x.shape)}")
    if x.shape[0] == 0:
        raise InputError(f"{name} is empty; scores of both real and fake samples are needed")
    values: Floats = known_values(x, name).reshape(-1).astype(np.float64)
    if beyond := int(np.count_nonzero(np.isfinite(values) & (np.abs(values) > LIMIT))):
        raise RatioError(f"{name} has {beyond} {BEYOND} among {len(values)} scores; check the critic first")
    return values


def losses(real: Floats, fake: Floats) -> Pair:
    """Return the log-loss of each sample, if real and fake are equally likely."""
    return np.logaddexp(0.0, -real), np.logaddexp(0.0, fake)


def log_loss(real: Array, fake: Array) -> Estimate:
    """Return the mean log-loss of a log-ratio as a classifier of real against fake, each kind with weight one half.

    No log-ratio has a lower one than the true log-ratio; log 2 minus its loss is the Jensen-Shannon divergence.
    """
    return mean_of_means(*losses(*score_pair(real, fake)))


def mean_of_means(real: Floats, fake: Floats) -> Estimate:
    """Return the mean of the two means."""
    error = float(np.sqrt(real.var() / len(real) + fake.var() / len(fake))) / 2
    return Estimate.from_error(float(real.mean() + fake.mean()) / 2, error)


@dataclass(frozen=True)
class Mean:
    """The mean of r over a sample; for a true ratio it is at most 1.

    Args:
        estimate, z: The mean, and by how many standard errors it is above 1, both corrected for skewness.
        trusted: Whether a mean below 1 can be believed: the variance exists, and more than a few samples decide it.
    """

    estimate: Estimate
    z: float
    trusted: bool

    @property
    def deviates(self) -> bool:
        """Whether it is above 1 by more than 3 standard errors and by more than is tolerated."""
        return self.z > ERRORS and self.estimate.value > 1 + TOLERATED


def mean_of_exp(log_values: Floats) -> Mean:
    """Return the mean of exp of these logs, and compare it with 1."""
    top = float(np.max(log_values))
    if not isfinite(top):
        return Mean(Estimate(exp(top), exp(top), exp(top)), top, top < 0)
    scaled = np.exp(log_values - top)  # the largest is 1: nothing overflows
    mean = float(np.mean(scaled))
    influence = (scaled - mean) / len(scaled)
    error = float(np.linalg.norm(influence))
    index, _ = tail_index(np.sort(log_values[log_values > -inf]))
    excess = mean - (exp(-top) if top > -700 else inf)
    if error <= 1e-15 * mean:
        return Mean(_scale(top, mean, mean, mean), 0.0 if abs(excess) <= 1e-9 * mean else excess * inf, True)
    unit = influence / error
    skewness, z = float(np.sum(unit**3)), min(max(excess / error, -1e6), 1e6)
    z = z + skewness * (2 * z**2 + 1) / 6 + skewness**2 * z**3 / 27  # Hall's transformation: normal to second order
    trusted = index > 2 and 1 / float(np.sum(unit**4)) >= _RESTS_ON
    return Mean(_scale(top, mean, *skewed_interval(mean, error, skewness)), z, trusted)


def _scale(log_unit: float, *numbers: float) -> Estimate:
    """Return value, low and high times their unit."""
    with np.errstate(over="ignore"):
        return Estimate(*(float(np.exp(log_unit + log(x))) if x > 0 else 0.0 for x in numbers))


@dataclass(frozen=True)
class Reliability:
    """What the scores claim and what the labels show: one test, and the calibration curve.

    Args:
        z: The score test as one normal number: would a smooth curve of the rank fit the labels better?
        slope: Standard errors by which the claims are too flat; below 0 they are too steep.
        misfit: Root mean square error of the log-ratio in nats by the score test, to first order.
        rms: The same by the bins of the curve, where they show one; noise is taken off both.
        visible: The error of log r in nats, the same everywhere, that 3 standard errors would show.
        claimed, observed, error: Log-ratio that the scores in each bin claim, the one that the labels show, with half a
            sample added to each count, and its standard error.
        real, fake: How many of each lie in the bins.
    """

    z: float
    slope: float
    misfit: float
    rms: float
    visible: float
    claimed: Floats
    observed: Floats
    error: Floats
    real: Floats
    fake: Floats

    @property
    def deviates(self) -> bool:
        """Whether claims and labels differ by more than 3 standard errors and by more than is tolerated."""
        return max(self.z, abs(self.slope)) > ERRORS and self.misfit > TOLERATED


def reliability(real: Floats, fake: Floats, *, by: Pair | None = None) -> Reliability:
    """Compare what log-ratios claim with what the labels show.

    If a map made the log-ratios, give its inputs as `by`: ranked by them, errors show also where the map is flat.
    """
    n, m = len(real), len(fake)
    scores = np.concatenate([real, fake])
    keys = scores if by is None else np.concatenate(by)
    order = np.argsort(keys, kind="stable")
    scores, keys = scores[order], keys[order]
    labels = (order < len(real)).astype(np.float64)
    log_real = -np.logaddexp(0.0, -scores - log(n / m))
    log_fake = -np.logaddexp(0.0, scores + log(n / m))
    variance = np.exp(log_real + log_fake)
    rank = _ranks(keys, np.where(labels > 0, 0.5 / n, 0.5 / m))
    directions = np.polynomial.legendre.legvander(2 * rank - 1, _DEGREE).T
    excess = directions @ (labels - np.exp(log_real))
    covariance = (directions * variance) @ directions.T + _STRAY * np.eye(len(directions))
    square = float(excess @ np.linalg.solve(covariance, excess))
    top = log(max(n, m))
    slope = np.clip(scores, -top, top)  # beyond, so many samples can see no more
    slope_error = sqrt(float(slope**2 @ variance) + float(np.quantile(slope**2, 0.99)) + 1e-9)
    steep = float(slope @ (labels - np.exp(log_real))) / slope_error
    misfit = sqrt(max(square - len(directions), steep**2 - 1, 0.0) / max(float(np.sum(variance)), 1.0))
    bins = max(min(_BINS, min(n, m) // _PER_BIN), 1)
    starts = np.unique(np.searchsorted(rank, np.arange(bins) / bins))
    starts = starts[starts < len(scores)]
    reals, counts = np.add.reduceat(labels, starts), np.diff(np.append(starts, len(scores)))
    half = 1 / (1 / (reals + 0.5) + 1 / (counts - reals + 0.5))
    with np.errstate(invalid="ignore"):
        claims = np.logaddexp.reduceat(log_real, starts) - np.logaddexp.reduceat(log_fake, starts) - log(n / m)
    observed = np.log((reals + 0.5) / (counts - reals + 0.5)) - log(n / m)
    # a bin without samples of one kind cannot contradict a claim that is more extreme than half a sample would show
    silent = ((reals == 0) & (claims < observed)) | ((reals == counts) & (claims > observed))
    in_bins = float(np.sum(half * np.where(silent, 0.0, np.where(silent, 0.0, observed - claims) ** 2)))
    return Reliability(
        z=_normal_score(square, len(directions)),
        slope=steep,
        misfit=misfit,
        rms=sqrt(max(in_bins - len(starts), 0.0) / float(np.sum(half))) or misfit,
        visible=ERRORS / sqrt(max(float(np.sum(reals * (counts - reals) / counts)), 1e-9)),
        claimed=claims,
        observed=observed,
        error=1 / np.sqrt(half),
        real=reals,
        fake=counts - reals,
    )


def _ranks(keys: Floats, weight: Floats) -> Floats:
    """Return the weighted ranks of ascending keys, in [0, 1]; equal keys share a rank."""
    ends = np.concatenate([[0.0], np.cumsum(weight)])
    low, high = np.searchsorted(keys, keys, side="left"), np.searchsorted(keys, keys, side="right")
    return np.asarray((ends[low] + ends[high]) / 2)


def _normal_score(square: float, freedom: int) -> float:
    """Return the standard normal score of a chi-squared statistic, by the approximation of Wilson and Hilferty."""
    spread = 2 / (9 * freedom)
    return (float(np.cbrt(square / freedom)) - (1 - spread)) / sqrt(spread)


def area_under_curve(real: Floats, fake: Floats) -> tuple[Estimate, float]:
    """Return the probability that a real sample scores above a fake one, ties counting half, and its z against 1/2."""
    real, fake = np.sort(real), np.sort(fake)
    below = (np.searchsorted(fake, real, side="left") + np.searchsorted(fake, real, side="right")) / (2 * len(fake))
    above = 1 - (np.searchsorted(real, fake, side="left") + np.searchsorted(real, fake, side="right")) / (2 * len(real))
    area = float(np.mean(below))
    error = sqrt(float(np.var(below)) / len(real) + float(np.var(above)) / len(fake))
    z = (area - 0.5) / error if error > 0 else (0.0 if area == 0.5 else (area - 0.5) * inf)
    return Estimate.from_error(area, error).clip(0.0, 1.0), z


def overlap(real: Floats, fake: Floats) -> int:
    """Return how many samples the best threshold leaves on the wrong side: those that can contradict a ratio."""
    real, fake = np.sort(real), np.sort(fake)
    thresholds = np.concatenate([real, fake, [inf]])
    wrong = np.searchsorted(real, thresholds, side="left") + len(fake) - np.searchsorted(fake, thresholds, side="left")
    return int(np.min(wrong))


@dataclass(frozen=True)
class Evidence:
    """All checks of a log-ratio that do not depend on a budget."""

    mean_ratio: Mean
    curve: Reliability
    auc: Estimate
    auc_z: float
    log_loss: Estimate
    overlap: int

    @classmethod
    def measure(cls, scores: Pair, by: Pair | None = None) -> "Evidence":
        """Examine log-ratios of real and fake samples, real ones up to +inf and fake ones down to -inf."""
        real, fake = scores
        return cls(
            mean_of_exp(fake),
            reliability(real, fake, by=by),
            *area_under_curve(real, fake),
            log_loss(finite_top(real, fake), fake),
            overlap(real, fake),
        )

    def faults(self) -> list[str]:
        """Return what is off by more than 3 standard errors and by more than is tolerated; empty if calibrated."""
        mean = [f"E_Q[r] = {self.mean_ratio.estimate.value:.3g} is above 1"] * self.mean_ratio.deviates
        return mean + [f"log r is off by {self.curve.rms:.2g} nats"] * self.curve.deviates

    def tells(self) -> bool:
        """Return whether the log-ratios separate real from fake, with a lower log-loss than chance."""
        return self.auc_z > ERRORS and log(2) - self.log_loss.value > _INFORMATION

    def missing_support(self) -> Estimate | None:
        """Return 1 - E_Q[r] if it is above 0 by 3 standard errors, and larger than the error of the ratio."""
        mean = self.mean_ratio.estimate
        missing = 1 - mean.value
        if not self.mean_ratio.trusted or self.mean_ratio.z >= -ERRORS or missing <= self.curve.rms:
            return None
        return Estimate(missing, 1 - mean.high, 1 - mean.low).clip(0.0, 1.0)


def finite_top(real: Floats, fake: Floats) -> Floats:
    """Replace real scores of +inf by the largest finite score, as maps are fitted to finite numbers."""
    top = max(float(np.max(x[np.isfinite(x)], initial=-inf)) for x in (real, fake))
    return np.minimum(real, top)


@dataclass(frozen=True)
class ClassMean:
    """E_Q[r | y] of one label y, which must be p(y) / q(y).

    Args:
        log_excess, error: log of E_Q[r | y] q(y) / p(y), 0 for a true ratio, and its standard error.
        known: Whether the mean is precise enough to use: its relative standard error is at most a tenth.
    """

    label: Any
    log_excess: float
    error: float
    known: bool

    @property
    def deviates(self) -> bool:
        """Whether it differs from p(y) / q(y) by more than 3 standard errors and by more than is tolerated."""
        return abs(self.log_excess) > max(ERRORS * self.error, TOLERATED)


def class_means(fake: Floats, labels: Any, shares: dict[Any, float], real: int | None = None) -> list[ClassMean]:
    """Compare E_Q[r | y] with p(y) / q(y) for each label of the real samples.

    Args:
        fake, labels: Log-ratios of fakes, and their labels.
        shares, real: p(y) by label, and how many real samples it was counted on; None if it is exact.
    """
    means = []
    for label, share in shares.items():
        part = fake[np.asarray(labels) == label]
        top = float(part.max(initial=-inf))
        if top == -inf:
            means.append(ClassMean(label, nan, inf, False))
            continue
        r = np.exp(part - top)
        mean = float(r.mean())
        relative = float(r.std()) / mean / sqrt(len(part))
        counted = (1 - share) / (share * real) if real else 0.0
        counted += (1 - len(part) / len(fake)) / len(part)
        excess = log(mean) + top + log(len(part) / len(fake)) - log(share)
        means.append(ClassMean(label, excess, sqrt(relative**2 + counted), relative <= _PRECISE and len(part) > 1))
    return means


def removed_terms(scores: Pair, log_c: float, budget: float) -> Pair:
    """Return the terms whose means, of real minus of fake samples, are the KL that rejection removes.

    KL(P||Q) - KL(P||kept) = E_P[log a] - log Z holds for every rule, whatever the true ratio is. c is solved on the
    fakes: the first-order effect of each of them is part of its term, so that their variance is that of the result.
    """
    log_a = np.minimum(scores[0] + log_c, 0.0)
    kept = np.exp(np.minimum(np.maximum(scores[1], -1e300) + log_c, 0.0))  # at budget 1 all, even where r = 0
    rate, moves = float(np.mean(kept)), kept < 1
    mass = float(np.sum(kept[moves])) / len(kept)
    solved = mass > 0 and rate * budget < 1 + 1e-6  # beyond M the constant does not move
    slope = float(np.mean(log_a < 0)) / mass if solved else 1 / rate
    return log_a, log(rate) + (kept - rate) * slope


def kl_removed(terms: Pair) -> Estimate:
    """Return the KL that rejection removes, by the terms of `removed_terms`."""
    value = float(np.mean(terms[0])) - float(np.mean(terms[1]))
    error = sqrt(sum(float(np.var(x)) / len(x) for x in terms)) if isfinite(value) else nan
    return Estimate.from_error(value, error)
