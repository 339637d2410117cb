"""What the scores of held-out samples show about a log-ratio. Every number comes with its error.

The scores are those of real and fake samples that the critic was not trained on. The module has two parts: checks of
the scores and their log-loss; and `Evidence`, which does not depend on a budget.

Let s be a true log-ratio. Then the densities of s itself, under P and under Q, have the ratio exp(s). So among n real
and m fake samples, one with score s is real with probability D = n e^s / (n e^s + m). Every check compares labels with
D, or the two sides of E_P[h(s)] = E_Q[e^s h(s)].

References:
    | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), Sec. 4.1, the Z statistic
    | On the Removal of Skewness by Transformation (Hall, 1992)
    | Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves (DeLong et al., 1988)
"""

from dataclasses import dataclass
from math import exp, inf, isfinite, log, sqrt
from typing import Any

import numpy as np

from .._arrays import as_floats, known_values
from .._influence import skewed_interval, tail_index
from ..errors import InputError, RatioError
from ..estimate import Estimate
from ..types import Array

__all__ = [
    "ERRORS",
    "TOLERATED",
    "Evidence",
    "Floats",
    "Mean",
    "Pair",
    "Reliability",
    "among_the_others",
    "area_under_curve",
    "finite_top",
    "known_scores",
    "log_loss",
    "losses",
    "mean_of_exp",
    "mean_of_means",
    "reliability",
    "score_pair",
]

Floats = np.ndarray[Any, Any]
Pair = tuple[Floats, Floats]  # of real samples, and of fake ones

ERRORS = 3.0
"""Standard errors beyond which something is off."""
TOLERATED = 0.05
"""By how much a ratio may be off: nats of its logarithm, or a share of its mean."""
_INFORMATION = 0.001  # nats of Jensen-Shannon divergence that a ratio must tell to be worth rejecting with
_BINS = 20
_PER_BIN = 50  # scores of the smaller set, for each bin
_STRAY = 3.0  # added to the variance of a bin: one sample where none was expected is no discovery
_RESTS_ON = 5.0  # samples that decide a standard error, as in `Profile.plan`


def score_pair(log_ratio_real: Array, log_ratio_fake: Array, *, least: int = 1, what: str = "this") -> Pair:
    """Check the scores of both sets, and return them as float64 in NumPy memory.

    Args:
        log_ratio_real: Scores of real samples, shape `(n,)` or `(n, 1)`, all finite.
        log_ratio_fake: Scores of fake samples, likewise; -inf means r = 0.
        least: How many of each are needed.
        what: What needs them, for the error.
    """
    real, fake = _numbers(log_ratio_real, "log_ratio_real"), _numbers(log_ratio_fake, "log_ratio_fake")
    if min(len(real), len(fake)) < least:
        raise InputError(
            f"{what} needs at least {least} held-out scores of each kind, got {len(real)} real and {len(fake)} fake"
        )
    if impossible := np.count_nonzero(real == -np.inf):
        raise RatioError(
            f"log_ratio_real has {impossible} -inf among {len(real)} values: real samples that the critic calls "
            "impossible, which no map of scores repairs; pass logits that are not saturated, or refit the critic"
        )
    if fake.max() == -np.inf:
        raise RatioError(f"log_ratio_fake has no value above -inf among {len(fake)}: no fake has r > 0")
    return real, fake


def _numbers(scores: Array, name: str) -> Floats:
    values = known_scores(scores, name)
    nans, tops = int(np.count_nonzero(np.isnan(values))), int(np.count_nonzero(values == np.inf))
    if nans or tops:
        kind = "NaN or +inf" if nans and tops else "NaN" if nans else "+inf"
        raise RatioError(f"{name} has {nans + tops} {kind} among {len(values)} values; check the critic first")
    return values


def known_scores(scores: Array, name: str) -> Floats:
    """Return one number per sample as float64 in NumPy memory; NaN and infinities are left as they are.

    Args:
        scores: Shape `(n,)`; trailing axes of length 1, as a last layer with one output leaves them, are dropped.
        name: What an error calls them.

    Example:
        >>> known_scores([[0.5], [2.0]], "log_ratio_real")
        array([0.5, 2. ])
    """
    x = as_floats(scores, name)
    if x.ndim == 0 or any(size != 1 for size in x.shape[1:]):
        raise InputError(f"{name} must have one axis, got shape {tuple(x.shape)}")
    if x.shape[0] == 0:
        raise InputError(f"{name} is empty; scores of both real and fake samples are needed")
    return known_values(x, name).reshape(-1).astype(np.float64)


def losses(log_ratio_real: Floats, log_ratio_fake: Floats) -> Pair:
    """Return the log-loss of each sample, if real and fake are equally likely."""
    return np.logaddexp(0.0, -log_ratio_real), np.logaddexp(0.0, log_ratio_fake)


def log_loss(log_ratio_real: Array, log_ratio_fake: Array) -> Estimate:
    """Return the mean log-loss of a log-ratio as a classifier of real against fake, each kind with weight one half.

    No log-ratio has a lower one than the true log-ratio; log 2 minus its loss is the Jensen-Shannon divergence.

    Args:
        log_ratio_real: Log-ratios of held-out real samples.
        log_ratio_fake: Log-ratios of fake samples.

    Example:
        >>> print(log_loss([0.0, 0.0], [0.0, 0.0, 0.0]))
        0.6931 (0.6931 to 0.6931)
    """
    return mean_of_means(*losses(*score_pair(log_ratio_real, log_ratio_fake)))


def mean_of_means(real: Floats, fake: Floats) -> Estimate:
    """Return the mean of the two means."""
    error = float(np.sqrt(real.var() / len(real) + fake.var() / len(fake))) / 2
    return Estimate.around(float(real.mean() + fake.mean()) / 2, error)


@dataclass(frozen=True)
class Mean:
    """The mean of r, or of 1/r, over a sample; for a true ratio it is at most 1.

    Args:
        estimate: The mean and its interval, corrected for skewness.
        z: By how many standard errors it is above 1, corrected for skewness.
        tail_index: Hill's index of the averaged numbers; with 2 or less they have no variance.
        trusted: Whether a mean below 1 can be believed: the variance exists, and more than a few samples decide it.
    """

    estimate: Estimate
    z: float
    tail_index: float
    trusted: bool

    @property
    def off(self) -> bool:
        """Whether it is above 1 by more than 3 standard errors and by more than is tolerated."""
        return self.z > ERRORS and self.estimate.value > 1 + TOLERATED


def mean_of_exp(log_values: Floats) -> Mean:
    """Return the mean of exp of these logs, and compare it with 1.

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
    influence = (scaled - mean) / n
    square = float(np.sum(influence**2))
    index, _ = tail_index(np.sort(log_values[log_values > -inf]))
    excess = mean - (exp(-top) if top > -700 else inf)
    if square <= (8 * np.finfo(float).eps * mean) ** 2 / n:
        z = 0.0 if abs(excess) <= 1e-9 * mean else excess * inf
        return Mean(_scaled(top, mean, mean, mean), z, index, True)
    unit = influence / sqrt(square)
    error, skewness = sqrt(square), float(np.sum(unit**3))
    z = min(max(excess / error, -1e6), 1e6)
    # Hall's transformation: monotone in z, and normal to the second order
    z = z + skewness * (2 * z**2 + 1) / 6 + skewness**2 * z**3 / 27
    trusted = index > 2 and 1 / float(np.sum(unit**4)) >= _RESTS_ON
    return Mean(_scaled(top, mean, *skewed_interval(mean, error, skewness)), z, index, trusted)


def _scaled(log_unit: float, *numbers: float) -> Estimate:
    """Return value, low and high times their unit."""
    with np.errstate(over="ignore"):
        return Estimate(*(float(np.exp(log_unit + log(x))) if x > 0 else 0.0 for x in numbers))


@dataclass(frozen=True)
class Reliability:
    """The calibration curve: scores in bins of equal size, and for each bin what it claims and what the labels show.

    Args:
        claimed: Log-ratio that the scores of each bin claim, ascending.
        observed: Log-ratio that the labels show, with half a sample added to each count.
        error: Its standard error.
        real, fake: How many of each lie in the bins.
        z: Turner's Z: how many more real samples there are than claimed, in standard errors.
        z_bins: The same for each bin, squared and summed, then turned into one normal number with the cube root of
            Wilson and Hilferty.
        z_smooth: Whether a constant, a slope or a bend would fit the labels better, as one normal number: three
            directions see a smooth error in far fewer samples than twenty bins do.
        z_slope: The same for the slope alone, with its sign: below 0 the claims are too steep.
        rms: Root mean square error of the log-ratio in nats, weighted by the information in each bin, without the
            part that noise explains.
        rms_smooth: The same of the smooth error.
    """

    claimed: Floats
    observed: Floats
    error: Floats
    real: Floats
    fake: Floats
    z: float
    z_bins: float
    z_smooth: float
    z_slope: float
    rms: float
    rms_smooth: float

    @property
    def off(self) -> bool:
        """Whether claims and labels differ by more than 3 standard errors and by more than is tolerated."""
        smoothly = max(self.z_smooth, abs(self.z_slope)) > ERRORS and self.rms_smooth > TOLERATED
        return self._off_in_bins or smoothly

    @property
    def _off_in_bins(self) -> bool:
        return max(abs(self.z), self.z_bins) > ERRORS and self.rms > TOLERATED

    @property
    def error_of_log_ratio(self) -> float:
        """The root mean square error in nats: that of the bins if they show one, or else the larger of the two."""
        return self.rms if self._off_in_bins else max(self.rms, self.rms_smooth)

    @property
    def visible(self) -> float:
        """The error of log r in nats, the same everywhere, that 3 standard errors would show."""
        return ERRORS / sqrt(max(float(np.sum(self.real * self.fake / (self.real + self.fake))), 1e-9))


def reliability(
    real: Floats, fake: Floats, sizes: tuple[int, int] | None = None, *, by: Pair | None = None
) -> Reliability | None:
    """Return the calibration curve of a log-ratio, or None if there are no scores.

    Args:
        real, fake: Log-ratios.
        sizes: How many samples there were, if these are a part of them.
        by: The numbers to make the bins by, if not the log-ratios themselves. If a map made the log-ratios, give its
            inputs: the bins then also show errors where the map is flat, or rises where it should not.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.5, 1, 4000), rng.normal(-0.5, 1, 4000)
        >>> exact, steep = reliability(real, fake), reliability(3 * real, 3 * fake)
        >>> exact.z_bins < 3 < steep.z_bins, steep.rms > 0.5
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
    starts = _bin_starts(keys[order], labels, n, m)
    logit = scores + log(n / m)
    log_real, log_fake = -np.logaddexp(0.0, -logit), -np.logaddexp(0.0, logit)
    variance = np.add.reduceat(np.exp(log_real + log_fake), starts)
    excess = np.add.reduceat(labels - np.exp(log_real), starts)
    reals, counts = np.add.reduceat(labels, starts), np.diff(np.append(starts, scores.size))
    fakes = counts - reals
    with np.errstate(invalid="ignore"):
        claimed = np.logaddexp.reduceat(log_real, starts) - np.logaddexp.reduceat(log_fake, starts) - log(n / m)
    observed = np.log((reals + 0.5) / (fakes + 0.5)) - log(n / m)
    weight = 1 / (1 / (reals + 0.5) + 1 / (fakes + 0.5))
    # a bin without samples of one kind cannot contradict a claim that is more extreme than half a sample would show
    silent = ((reals == 0) & (claimed < observed)) | ((fakes == 0) & (claimed > observed))
    square = np.where(silent, 0.0, np.where(silent, 0.0, observed - claimed) ** 2)
    known = float(np.sum(weight))
    whole = float(np.sum(variance))
    smooth = _smooth_error(scores, labels, log_real, log_fake, log(max(n, m)))
    return Reliability(
        claimed=claimed,
        observed=observed,
        error=1 / np.sqrt(weight),
        real=reals,
        fake=fakes,
        z=float(np.sum(excess)) / sqrt(max(whole, 1.0)),
        z_bins=_as_normal(float(np.sum(excess**2 / (variance + _STRAY))), len(starts)),
        rms=sqrt(max(float(np.sum(weight * square)) - len(starts), 0.0) / known),
        **smooth,
    )


def _smooth_error(scores: Floats, labels: Floats, log_real: Floats, log_fake: Floats, limit: float) -> dict[str, float]:
    """Return the score test of the claims against a constant, a slope and a bend.

    With claims D the labels have means D and variances D (1 - D), so `H (labels - D)` has the covariance `H D(1-D) H'`
    for any directions H. Scores count up to +-log n, where n samples can see no more. As in `_STRAY`, one sample where
    none was expected must be no discovery: what it can add is added to the variances.

    References:
        | Tests of Statistical Hypotheses Concerning Several Parameters (Rao, 1948), the score test
    """
    x = np.clip(scores, -limit, limit)
    directions = np.stack([np.ones_like(x), x, np.abs(x)])
    variance = np.exp(log_real + log_fake)
    excess = directions @ (labels - np.exp(log_real))
    covariance = (directions * variance) @ directions.T + np.diag(
        np.maximum(np.quantile(directions**2, 0.99, axis=1), 1e-9)
    )
    square = float(excess @ np.linalg.solve(covariance, excess))
    information = max(float(np.sum(variance)), 1.0)
    return {
        "z_smooth": _as_normal(square, len(directions)),
        "z_slope": float(excess[1]) / sqrt(float(covariance[1, 1])),
        "rms_smooth": sqrt(max(square - len(directions), 0.0) / information),
    }


def _bin_starts(keys: Floats, labels: Floats, n: int, m: int) -> Floats:
    """Return where the bins of ascending keys start. Both kinds have the same weight, and equal keys stay together."""
    bins = max(min(_BINS, min(n, m) // _PER_BIN), 1)
    weight = np.cumsum(np.where(labels > 0, 1 / n, 1 / m))
    cuts = np.searchsorted(weight, weight[-1] * np.arange(1, bins) / bins)
    return np.unique(np.append(0, np.searchsorted(keys, keys[cuts], side="left")))


def _as_normal(square: float, freedom: int) -> float:
    """Return the normal number that is as unlikely as this sum of squares, which has a chi-squared distribution."""
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
    return Estimate.around(area, error).clip(0.0, 1.0), z


def among_the_others(real: Floats, fake: Floats) -> int:
    """Return how many samples the best threshold leaves on the wrong side: those that can contradict a ratio.

    Args:
        real, fake: Scores, ascending.

    Example:
        >>> among_the_others(np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.0, 1.5]))
        1
    """
    thresholds = np.concatenate([real, fake, [inf]])
    wrong = np.searchsorted(real, thresholds, side="left") + len(fake) - np.searchsorted(fake, thresholds, side="left")
    return int(np.min(wrong))


@dataclass(frozen=True)
class Evidence:
    """All checks of a log-ratio that do not depend on a budget."""

    mean_ratio: Mean
    mean_inverse: Mean
    curve: Reliability
    auc: Estimate
    auc_z: float
    log_loss: Estimate
    overlap: int

    @classmethod
    def of(cls, scores: Pair, by: Pair | None = None) -> "Evidence":
        """Examine log-ratios of real and fake samples; real ones may be +inf, fake ones -inf.

        Args:
            scores: The log-ratios.
            by: The scores from which a map made the log-ratios, if there was one; see `reliability`.
        """
        real, fake = np.sort(scores[0]), np.sort(scores[1])
        curve = reliability(*scores, by=by)
        assert curve is not None
        area, area_z = area_under_curve(real, fake)
        return cls(
            mean_ratio=mean_of_exp(fake),
            mean_inverse=mean_of_exp(-real),
            curve=curve,
            auc=area,
            auc_z=area_z,
            log_loss=log_loss(finite_top(real, fake), fake),
            overlap=among_the_others(real, fake),
        )

    def faults(self) -> list[str]:
        """Return what is off by more than 3 standard errors and by more than is tolerated; empty if calibrated."""
        found = []
        for name, mean in (("E_Q[r]", self.mean_ratio), ("E_P[1/r]", self.mean_inverse)):
            if mean.off:
                found.append(f"{name} = {mean.estimate.value:.3g} is above 1")
        if self.curve.off:
            found.append(f"log r is off by {self.curve.error_of_log_ratio:.2g} nats")
        return found

    def tells(self) -> bool:
        """Whether the log-ratios tell real from fake, and have a lower log-loss than chance."""
        return self.auc_z > ERRORS and log(2) - self.log_loss.value > _INFORMATION

    def missing_support(self) -> Estimate | None:
        """Return 1 - E_Q[r] if it is above 0 by 3 standard errors, and larger than the error of the ratio."""
        mean = self.mean_ratio.estimate
        missing = 1 - mean.value
        if not self.mean_ratio.trusted or self.mean_ratio.z >= -ERRORS or missing <= self.curve.error_of_log_ratio:
            return None
        return Estimate(missing, 1 - mean.high, 1 - mean.low).clip(0.0, 1.0)


def finite_top(real: Floats, fake: Floats) -> Floats:
    """Replace real scores of +inf by the largest finite score, as maps are fitted to finite numbers."""
    top = max(float(np.max(x[np.isfinite(x)], initial=-inf)) for x in (real, fake))
    return np.minimum(real, top)
