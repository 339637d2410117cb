"""What the scores of held-out samples show about a log-ratio. Every number comes with its error.

The scores are those of real and fake samples that the critic was not trained on. The module has three parts: checks of
the scores and their log-loss; `Evidence`, which does not depend on a budget; and `AtBudget`, which does.

Let s be a true log-ratio. Then the densities of s itself, under P and under Q, have the ratio exp(s). So among n real
and m fake samples, one with score s is real with probability D = n e^s / (n e^s + m). Every check compares labels with
D, or the two sides of E_P[h(s)] = E_Q[e^s h(s)].

References:
    | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), Sec. 4.1, the Z statistic
    | On the Removal of Skewness by Transformation (Hall, 1992)
    | Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves (DeLong et al., 1988)
"""

from dataclasses import dataclass
from math import exp, inf, isfinite, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np

from .._arrays import as_floats, host_view
from .._influence import Uncertainty, tail_index
from .._prefix import Prefix
from ..budget import Cut
from ..divergences import FDivergence, divergence
from ..errors import InputError, InputTypeError, RatioError
from ..profile import Profile
from ..types import Array

__all__ = [
    "ERRORS",
    "LEFT",
    "TOLERATED",
    "AtBudget",
    "Estimate",
    "Evidence",
    "Floats",
    "Left",
    "LogLoss",
    "Mean",
    "Pair",
    "Reliability",
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
LEFT = ("kl", "js", "tv")
"""The divergences that a diagnosis follows, keys of `DIVERGENCES`."""
_INFORMATION = 0.001  # nats of Jensen-Shannon divergence that a ratio must tell to be worth rejecting with
_BINS = 20
_PER_BIN = 50  # scores of the smaller set, for each bin
_STRAY = 3.0  # added to the variance of a bin: one sample where none was expected is no discovery
_RESTS_ON = 5.0  # samples that decide a standard error, as in `Profile.plan`


class LogLoss(NamedTuple):
    """A mean log-loss in nats and its standard error; a classifier that knows nothing has log 2 = 0.693."""

    value: float
    standard_error: float


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
    values = host_view(x)
    if values is None:
        raise InputTypeError(f"{name} must be known numbers: call this outside jax.jit and torch.vmap")
    return values.reshape(-1).astype(np.float64)


def losses(log_ratio_real: Floats, log_ratio_fake: Floats) -> Pair:
    """Return the log-loss of each sample, if real and fake are equally likely."""
    return np.logaddexp(0.0, -log_ratio_real), np.logaddexp(0.0, log_ratio_fake)


def log_loss(log_ratio_real: Array, log_ratio_fake: Array) -> LogLoss:
    """Return the mean log-loss of a log-ratio as a classifier of real against fake, each kind with weight one half.

    No log-ratio has a lower one than the true log-ratio; log 2 minus its loss is the Jensen-Shannon divergence.

    Args:
        log_ratio_real: Log-ratios of held-out real samples.
        log_ratio_fake: Log-ratios of fake samples.

    Example:
        >>> log_loss([0.0, 0.0], [0.0, 0.0, 0.0])
        LogLoss(value=0.6931471805599453, standard_error=0.0)
    """
    return mean_of_means(*losses(*score_pair(log_ratio_real, log_ratio_fake)))


def mean_of_means(real: Floats, fake: Floats) -> LogLoss:
    """Return the mean of the two means, and its standard error."""
    error = float(np.sqrt(real.var() / len(real) + fake.var() / len(fake))) / 2
    return LogLoss(float(real.mean() + fake.mean()) / 2, error)


class Estimate(NamedTuple):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, error: float) -> "Estimate":
        """Return the 95 % interval of a nearly normal estimate with this standard error."""
        return cls(value, value - 1.96 * error, value + 1.96 * error)


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
    index, _ = tail_index(Prefix(log_values))
    excess = mean - (exp(-top) if top > -700 else inf)
    if square <= (8 * np.finfo(float).eps * mean) ** 2 / n:
        z = 0.0 if abs(excess) <= 1e-9 * mean else excess * inf
        return Mean(_scaled(Estimate(mean, mean, mean), top), z, index, True)
    unit = influence / sqrt(square)
    error = Uncertainty(sqrt(square), float(np.sum(unit**3)), 1 / float(np.sum(unit**4)))
    z = min(max(excess / error.deviation, -1e6), 1e6)
    # Hall's transformation: monotone in z, and normal to the second order
    z = z + error.skewness * (2 * z**2 + 1) / 6 + error.skewness**2 * z**3 / 27
    trusted = index > 2 and error.proposals >= _RESTS_ON
    return Mean(_scaled(Estimate(mean, *error.interval(mean)), top), z, index, trusted)


def _scaled(estimate: Estimate, log_unit: float) -> Estimate:
    with np.errstate(over="ignore"):
        return Estimate(*(float(np.exp(log_unit + log(x))) if x > 0 else 0.0 for x in estimate))


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
        rms: Root mean square error of the log-ratio in nats, weighted by the information in each bin, without the
            part that noise explains.
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
        """Whether claims and labels differ by more than 3 standard errors and by more than is tolerated."""
        return max(abs(self.z), self.z_bins) > ERRORS and self.rms > TOLERATED


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
    return Reliability(
        claimed=claimed,
        observed=observed,
        error=1 / np.sqrt(weight),
        real=reals,
        fake=fakes,
        z=float(np.sum(excess)) / sqrt(max(whole, 1.0)),
        z_bins=_as_normal(float(np.sum(excess**2 / (variance + _STRAY))), len(starts)),
        rms=sqrt(max(float(np.sum(weight * square)) - len(starts), 0.0) / known),
    )


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
        """Examine log-ratios of real and fake samples; real ones may be +inf, fake ones -inf.

        Args:
            scores: The log-ratios.
            by: The scores from which a map made the log-ratios, if there was one; see `reliability`.
        """
        real, fake = np.sort(scores[0]), np.sort(scores[1])
        curve = reliability(*scores, by=by)
        assert curve is not None
        loss = log_loss(finite_top(real, fake), fake)
        return cls(mean_of_exp(fake), mean_of_exp(-real), curve, *area_under_curve(real, fake), Estimate.of(*loss))

    def faults(self) -> list[str]:
        """Return what is off by more than 3 standard errors and by more than is tolerated; empty if calibrated."""
        found = []
        for name, mean in (("E_Q[r]", self.mean_ratio), ("E_P[1/r]", self.mean_inverse)):
            if mean.z > ERRORS and mean.estimate.value > 1 + TOLERATED:
                found.append(f"{name} = {mean.estimate.value:.3g} is above 1")
        if self.curve.off:
            found.append(f"log r is off by {self.curve.rms:.2g} nats")
        return found

    def tells(self) -> bool:
        """Whether the log-ratios tell real from fake, and have a lower log-loss than chance."""
        return self.auc_z > ERRORS and log(2) - self.log_loss.value > _INFORMATION

    def missing_support(self) -> Estimate | None:
        """Return 1 - E_Q[r] if it is above 0 by 3 standard errors, and larger than the error of the ratio."""
        value, low, high = self.mean_ratio.estimate
        if not self.mean_ratio.trusted or self.mean_ratio.z >= -ERRORS or 1 - value <= self.curve.rms:
            return None
        return Estimate(*(min(max(1 - x, 0.0), 1.0) for x in (value, high, low)))


def finite_top(real: Floats, fake: Floats) -> Floats:
    """Replace real scores of +inf by the largest finite score, as maps are fitted to finite numbers."""
    top = max(float(np.max(x[np.isfinite(x)], initial=-inf)) for x in (real, fake))
    return np.minimum(real, top)


class Left(NamedTuple):
    """A divergence between target and kept samples.

    Attributes:
        promised: Computed from the fake scores alone, as if they were true log-ratios.
        held_out: Measured on held-out real and fake samples. It is a lower bound: differences between real and kept
            samples that the scores cannot see are not in it.
        repaired: Measured likewise, for the rule with the repaired log-ratio; None without a repair.
    """

    promised: Estimate
    held_out: Estimate
    repaired: Estimate | None


@dataclass(frozen=True)
class AtBudget:
    """What matters at a budget K, where a = min(c r, 1).

    Args:
        log_c: The constant. Samples with r above 1/c are always kept, and errors of r change nothing there.
        rate: Share of fresh proposals that would be kept.
        sure_real, sure_fake: Shares of the scores with a = 1.
        ess: Effective sample size per kept sample.
        error: Root mean square error of log a where a < 1, in nats; NaN if no score has a < 1. A constant added to
            the log-ratio does not count, as c makes up for it.
        off: Whether that error is above 0 by 3 standard errors, and more than is tolerated.
        misjudged: E_Q|a - a'|, with a' from the calibrated ratio at the same budget: the share of decisions that
            would change.
        left: Divergence left, by the names in `LEFT`.
        harmless: Whether a repair would change next to nothing at this budget: the error where a < 1 is tolerated, few
            are misjudged, and no divergence is lower after the repair by more than 3 standard errors and 5 %.
    """

    log_c: float
    rate: Estimate
    sure_real: float
    sure_fake: float
    ess: Estimate
    error: float
    off: bool
    misjudged: float
    left: dict[str, Left]
    harmless: bool

    @classmethod
    def of(cls, raw: Pair, profile: Profile, budget: float, reference: Pair, *, repair: Any = None) -> "AtBudget":
        """Examine log-ratios at one budget.

        Args:
            raw: Log-ratios of the real and fake samples.
            profile: The profile of the fake ones.
            budget: Proposals per kept sample.
            reference: Calibrated log-ratios, of all samples or of those that come first in both sets.
            repair: The calibration to use from now on; the reference was made with it by cross-fitting.
        """
        log_c, row = profile.log_c(budget), profile.plan([budget])[0]
        sample = raw[0][: len(reference[0])], raw[1][: len(reference[1])]
        repaired_log_c = Profile(reference[1]).log_c(budget)
        constant = log_c - repaired_log_c if isfinite(log_c) else 0.0  # if all r are e times too large, it is -1
        below = [x[x < -log_c] + constant for x in raw]
        curve = reliability(below[0], below[1], (len(raw[0]), len(raw[1])))
        better = reference[1] if repair is None else np.asarray(repair(sample[1]))
        misjudged = float(np.mean(np.abs(_kept(sample[1], log_c) - _kept(better, Profile(better).log_c(budget)))))
        harmless = curve is not None and not curve.off and misjudged <= TOLERATED
        left = {}
        for key in LEFT:
            div = divergence(key)
            before, repaired = _terms(div, sample, log_c, reference), None
            if repair is not None:
                after = _terms(div, reference, repaired_log_c, reference)
                repaired = _bounded(*_difference(after))
                with np.errstate(invalid="ignore"):
                    gain, error = _difference((before[0] - after[0], before[1] - after[1]))
                harmless = harmless and not gain > max(ERRORS * error, TOLERATED * repaired.value)
            left[key] = Left(_estimate(row, key), _bounded(*_difference(before)), repaired)
        return cls(
            log_c=log_c,
            rate=_estimate(row, "rate"),
            sure_real=float(np.mean(raw[0] >= -log_c)),
            sure_fake=float(np.mean(raw[1] >= -log_c)),
            ess=_estimate(row, "ess"),
            error=nan if curve is None else curve.rms,
            off=curve is not None and curve.off,
            misjudged=misjudged,
            left=left,
            harmless=harmless,
        )


def _estimate(row: dict[str, Any], key: str) -> Estimate:
    return Estimate(row[key], row[f"{key}_low"], row[f"{key}_high"])


def _log_kept(log_ratio: Floats, log_c: float) -> Floats:
    if log_c == np.inf:  # a budget of 1 keeps everything
        return np.zeros_like(log_ratio)
    log_a: Floats = Cut(log_c, nan).log_a(log_ratio)
    return log_a


def _kept(log_ratio: Floats, log_c: float) -> Floats:
    return np.exp(_log_kept(log_ratio, log_c))


def _terms(div: FDivergence, rule_on: Pair, log_c: float, calibrated: Pair) -> Pair:
    """Return the terms that E_P[f'(u)] - E_kept[f*(f'(u))] averages, over real and over fake samples.

    u comes from the calibrated ratio. For any u the difference is at most D_f(P||kept), and for u = p/kept it is the
    divergence itself. The kept samples are the fakes with weights a. c depends on all fakes: the first-order effect of
    a fake on c is part of its term, so the variance of the terms is that of the result. The effect on u has order two,
    as u = p/kept is a maximum.
    """
    log_a_real, log_a_fake = _log_kept(rule_on[0], log_c), _log_kept(rule_on[1], log_c)
    possible = log_a_fake > -np.inf
    kept = np.exp(log_a_fake)
    rate = float(np.mean(kept))
    with np.errstate(all="ignore"):
        gain = div.critic(calibrated[0] + log(rate) - log_a_real)
        log_u = calibrated[1][possible] + log(rate) - log_a_fake[possible]
        cost = np.zeros(len(kept))
        cost[possible] = kept[possible] / rate * div.f_star_of_f_prime(log_u)
    moves = kept < 1  # a step d of log c adds a d to a there; d = -(a - rate) / E[a; a < 1] keeps the budget
    if mass := float(np.sum(kept[moves])):
        cost = cost - (kept - rate) * (float(np.sum(cost[moves])) / mass)
    return gain, cost


def _difference(terms: Pair) -> tuple[float, float]:
    """Return the mean of the first minus that of the second, and its standard error."""
    value = float(np.mean(terms[0])) - float(np.mean(terms[1]))
    if not isfinite(value):
        return value, nan
    return value, sqrt(sum(float(np.var(x)) / len(x) for x in terms))


def _bounded(value: float, error: float) -> Estimate:
    return Estimate(*(max(x, 0.0) for x in Estimate.of(value, error)))  # a divergence is not below 0
