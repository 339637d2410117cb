"""Calibration: a monotone map that makes a score a better log-ratio, fitted on held-out real and fake samples.

A calibration is a frozen record, called with log-ratios, elementwise and never decreasing. It keeps the library, dtype
and device of its input; -inf (r = 0) stays -inf. `fit` takes the scores of real and fake samples that the critic was
not trained on, in any numbers. `fit_calibration` chooses one by held-out loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite, log
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from .._arrays import array_like, as_floats, widest
from .._checks import check_seed, is_number
from ..errors import InputError, MissingLibraryError, RatioError
from ..types import Array
from .evidence import Floats, Pair, losses, mean_of_means, score_pair

__all__ = ["CALIBRATIONS", "Affine", "Isotonic", "cross_fit", "fit_calibration"]

_ENOUGH, _FOLDS = 100_000, 5  # scores of each kind to choose a calibration by, and in how many parts


@dataclass(frozen=True)
class Affine:
    """A slope and an intercept: a shift, a temperature, or Platt scaling, depending on which of the two are fitted.

    Args:
        slope: At least 0; 1/T of a temperature, below 1 for an over-confident critic.
        intercept: The calibrated log-ratio of a score of 0. No rule at a budget depends on it, weights do.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = 3 * (rng.normal(size=4000) + 0.5) - 6, 3 * (rng.normal(size=9000) - 0.5) - 6
        >>> platt = Affine.fit(real, fake)
        >>> round(platt.slope, 2), round(platt.intercept, 1)
        (0.33, 2.0)

    References:
        | Probabilistic Outputs for Support Vector Machines (Platt, 1999)
        | On Calibration of Modern Neural Networks (Guo et al., 2017), Sec. 4.2, the temperature
        | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), logistic calibration
    """

    slope: float = 1.0
    intercept: float = 0.0

    def __post_init__(self) -> None:
        if not all(is_number(x) and isfinite(x) for x in (self.slope, self.intercept)) or self.slope < 0:
            raise InputError(f"an Affine map has a finite slope of at least 0 and a finite intercept, got {self!r:.80}")

    @classmethod
    def fit(cls, real: Array, fake: Array, *, slope: bool = True, intercept: bool = True) -> "Affine":
        """Maximise the likelihood of the labels over a slope of at least 0 and an intercept.

        Args:
            real, fake: Log-ratios of held-out real samples and of fakes; at least ten for each number that is fitted.
            slope: Whether to fit the slope; if not, it is 1 and the map is a shift.
            intercept: Whether to fit the intercept; if not, it is 0 and the map is a temperature.
        """
        if not (slope or intercept):
            return cls()
        scores = score_pair(real, fake, least=10 * (slope + intercept), what="Affine.fit")
        possible = scores[1][scores[1] > -inf]
        x = np.concatenate([scores[0], possible])
        sign = np.repeat([1.0, -1.0], [len(scores[0]), len(possible)])
        prior = log(len(scores[0]) / len(scores[1]))  # known, not fitted: impossible fakes count
        flat = log(len(scores[1]) / len(possible))
        if slope and float(np.ptp(x)) == 0 and (intercept or x[0] == 0):
            return cls(1.0, flat - float(x[0]) if intercept else 0.0)  # all scores mean the same
        at = float(possible.max()) if intercept else 0.0
        if slope and scores[0].min() >= at >= possible.max():  # the steeper the slope, the better it would fit
            apart = f"all {len(scores[0])} real scores are above all {len(possible)} fake ones"
            raise InputError(f"no slope fits: {apart}; fit the ratio on features in which they meet")
        centre = float(np.median(x)) if slope and intercept else 0.0
        unit = float(np.quantile(np.abs(x - centre), 0.9)) or 1.0
        columns = [(x - centre) / unit] * slope + [np.ones_like(x)] * intercept
        start = np.zeros(len(columns)) if slope else -np.median(x, keepdims=True)
        theta = _minimise(np.stack(columns) * sign, (prior + (0.0 if slope else x)) * sign, start)
        steep = float(theta[0]) / unit if slope else 1.0
        if steep <= 0:
            return cls(0.0, flat if intercept else 0.0)
        return cls(steep, float(theta[-1]) - steep * centre if intercept else 0.0)

    def __call__(self, log_ratio: Array) -> Array:
        """Return slope times log-ratio plus intercept."""
        return _where_finite(log_ratio, lambda xp, x: self.slope * x + self.intercept)


@dataclass(frozen=True)
class Isotonic:
    """Isotonic regression: the increasing step function that fits best, with straight lines between its steps.

    Beyond the knots the map is constant. Where a step at an end has samples of one kind only, half a sample of the
    other is added to it, so that its log-ratio is finite.

    Args:
        scores: Knots, ascending log-ratios before calibration.
        log_ratios: The log-ratios after it, never decreasing.

    References:
        | Transforming Classifier Scores into Accurate Multiclass Probability Estimates (Zadrozny and Elkan, 2002)
    """

    scores: tuple[float, ...]
    log_ratios: tuple[float, ...]

    @classmethod
    def fit(cls, real: Array, fake: Array) -> "Isotonic":
        """Fit the steps with scikit-learn; at least a hundred scores of each kind are needed."""
        try:
            from sklearn.isotonic import isotonic_regression
        except ImportError as error:
            raise MissingLibraryError("isotonic calibration needs scikit-learn: pip install 'obrs[torch]'") from error
        reals, fakes = score_pair(real, fake, least=100, what="Isotonic.fit")
        score, place = np.unique(np.concatenate([reals, fakes[fakes > -inf]]), return_inverse=True)
        n_real = np.bincount(place[: len(reals)], minlength=len(score)).astype(float)
        n_fake = np.bincount(place[len(reals) :], minlength=len(score)).astype(float)
        level = isotonic_regression(n_real / (n_real + n_fake), sample_weight=n_real + n_fake)
        starts = np.flatnonzero(np.diff(level, prepend=-1.0))  # all scores of a step are counted together
        in_step = [np.maximum(np.add.reduceat(count, starts), 0.5) for count in (n_real, n_fake)]
        value = np.log(in_step[0] / len(reals)) - np.log(in_step[1] / len(fakes))
        if len(value) > 1:  # with half a sample added, an end must not pass its neighbour
            value[0], value[-1] = min(value[0], value[1]), max(value[-1], value[-2])
        value = np.maximum.accumulate(value)
        at = np.unique(np.concatenate([starts, np.append(starts[1:], len(score)) - 1]))
        step = np.searchsorted(starts, at, side="right") - 1
        return cls(tuple(score[at].tolist()), tuple(value[step].tolist()))

    def __call__(self, log_ratio: Array) -> Array:
        """Return the log-ratio on the line between the two knots around each score."""
        if len(self.scores) == 1:
            return _where_finite(log_ratio, lambda xp, x: xp.zeros_like(x) + self.log_ratios[0])

        def formula(xp: Any, x: Array) -> Array:
            flat = xp.astype(xp.reshape(x, (-1,)), widest(xp))  # float32 may not tell two knots apart
            lines = self.scores, self.log_ratios[:-1], np.diff(self.scores), np.diff(self.log_ratios)
            knots, low, gap, rise = (array_like(np.asarray(v), flat) for v in lines)
            left = xp.clip(xp.searchsorted(knots, flat) - 1, min=0, max=len(self.scores) - 2)
            along = (flat - xp.take(knots, left, axis=0)) / xp.take(gap, left, axis=0)
            out = xp.take(low, left, axis=0) + xp.clip(along, min=0.0, max=1.0) * xp.take(rise, left, axis=0)
            return xp.reshape(xp.astype(out, x.dtype), tuple(x.shape))

        return _where_finite(log_ratio, formula)


CALIBRATIONS: dict[str, Callable[[Any, Any], Affine | Isotonic]] = {
    "identity": partial(Affine.fit, slope=False, intercept=False),
    "shift": partial(Affine.fit, slope=False),
    "temperature": partial(Affine.fit, intercept=False),
    "platt": Affine.fit,
    "isotonic": Isotonic.fit,
}
"""Fits of calibrations by name, from the simplest to the most flexible."""


def fit_calibration(real: Array, fake: Array, *, seed: int = 0) -> "Affine | Isotonic":
    """Choose a calibration by cross-fitted log-loss, and fit it on all scores.

    Each candidate is fitted on all folds but one of five, and its log-loss is measured on that one; each fold has its
    turn. The choice is the simplest candidate whose log-loss exceeds the lowest by at most one standard error of the
    difference: it varies less from sample to sample. 100,000 scores of each kind, chosen at random, are enough.

    Args:
        real: Scores of real samples that the critic was not trained on, shape `(n,)` or `(n, 1)`.
        fake: Scores of fresh fake samples, likewise.
        seed: Decides the folds.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = 3 * (rng.normal(size=4000) + 0.5), 3 * (rng.normal(size=4000) - 0.5)  # three times too large
        >>> found = fit_calibration(real, fake)
        >>> round(found.slope, 1), found.intercept
        (0.3, 0.0)

    References:
        | The Elements of Statistical Learning (Hastie et al., 2009), Sec. 7.10, the one-standard-error rule
    """
    scores = score_pair(real, fake, least=10 * _FOLDS, what="fit_calibration")
    rng = np.random.default_rng(check_seed(seed))
    some = rng.permutation(scores[0])[:_ENOUGH], rng.permutation(scores[1])[:_ENOUGH]
    split = np.arange(len(some[0])) % _FOLDS, np.arange(len(some[1])) % _FOLDS
    loss: dict[str, Pair] = {}
    for name, fit in CALIBRATIONS.items():
        try:
            loss[name] = losses(*cross_fit(fit, some, split))
        except (InputError, RatioError, MissingLibraryError):  # such as scores that separate the two kinds
            continue
    best = min(loss.values(), key=lambda pair: mean_of_means(*pair).value)
    excess = {name: mean_of_means(pair[0] - best[0], pair[1] - best[1]) for name, pair in loss.items()}
    simplest = next(name for name, above in excess.items() if above.value <= above.standard_error)
    return CALIBRATIONS[simplest](*scores)


def cross_fit(fit: Callable[[Any, Any], Any], scores: Pair, split: Pair) -> Pair:
    """Map the scores of each fold with the calibration that was fitted on the other folds.

    `fit` is a value of `CALIBRATIONS`, and `split` has the fold of each score, counted from 0.
    """
    mapped = np.empty_like(scores[0]), np.empty_like(scores[1])
    for fold in range(int(split[0].max()) + 1):
        tested = split[0] == fold, split[1] == fold
        fitted = fit(scores[0][~tested[0]], scores[1][~tested[1]])
        for values, test, out in zip(scores, tested, mapped, strict=True):
            out[test] = fitted(values[test])
    return mapped


def _where_finite(log_ratio: Array, formula: Callable[[Any, Array], Array]) -> Array:
    """Apply a formula to finite numbers; infinite ones stay as they are, even if the slope is 0."""
    x = as_floats(log_ratio, "log_ratio")
    xp = array_namespace(x)
    infinite = xp.isinf(x)
    out = xp.where(infinite, x, formula(xp, xp.where(infinite, 0.0, x)))
    return np.asarray(out) if isinstance(x, np.ndarray) else out  # NumPy turns 0-d arrays into scalars


def _minimise(x: Floats, offset: Floats, theta: Floats) -> Floats:
    """Minimise the mean of `log(1 + exp(-(theta x + offset)))` over theta by Newton's method with a line search."""
    n = x.shape[1]

    def loss(theta: Floats) -> tuple[float, Floats]:
        z = theta @ x + offset
        return float(np.mean(np.logaddexp(0.0, -z))), z

    value, z = loss(theta)
    for _ in range(100):
        missed = 0.5 - np.tanh(z / 2) / 2  # the probability of the wrong label
        gradient = -(x @ missed) / n
        hessian = (x * (missed * (1 - missed))) @ x.T / n
        step = -np.linalg.solve(hessian + 1e-14 * np.eye(len(x)), gradient)
        decrement, size = -float(gradient @ step), 1.0
        new, new_z = loss(theta + step)
        while new > value - 1e-4 * size * decrement and size > 1e-9 and decrement > 1e-15:
            size /= 2
            new, new_z = loss(theta + size * step)
        theta, value, z = theta + size * step, new, new_z
        if decrement < 1e-18:  # each step squares it
            break
    return theta
