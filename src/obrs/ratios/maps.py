"""Monotone maps from log-ratio to log-ratio, fitted on held-out scores of real and fake samples.

A calibration is a frozen record with `calibration(log_ratio)`, elementwise and never decreasing. It keeps the
library, dtype and device of what it is given; a log-ratio of -inf (r = 0) stays -inf. `fit` takes the scores of real
and of fake samples that the critic was not trained on. The two sets may differ in size: what comes out is a
log-ratio, not the logit of a mixture.

Each map contains those of which it is a refinement: `Identity` is a `Shift` and a `Temperature`, both are a `Platt`,
a `Platt` is a `Beta`. An `Isotonic` map may have any increasing shape.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import inf, isfinite, log
from typing import Any, ClassVar, Protocol

import numpy as np
from array_api_compat import array_namespace

from .._arrays import as_floats, like, widest
from .._inputs import is_number
from .._stable import softplus
from ..errors import InputError, MissingLibraryError
from ..types import Array
from ._logistic import fit_logistic, refuse_separation
from .held_out import held_out

__all__ = ["Beta", "Calibration", "Identity", "Isotonic", "Platt", "Shift", "Temperature"]

Floats = np.ndarray[Any, Any]
_TINY = 1e-200  # scores that differ by less count as one: the slope that tells them apart may be no float


class Calibration(Protocol):
    """Map log-ratios to better ones, elementwise and never decreasing."""

    def __call__(self, log_ratio: Array) -> Array: ...


@dataclass(frozen=True)
class Identity:
    """Leave the log-ratio as it is.

    Example:
        >>> Identity()([-1.0, 2.0])
        array([-1.,  2.])
    """

    needs: ClassVar[int] = 1

    @classmethod
    def fit(cls, log_ratio_real: Array, log_ratio_fake: Array) -> "Identity":
        """Check the scores; there is nothing to fit."""
        _scores(cls, log_ratio_real, log_ratio_fake)
        return cls()

    def __call__(self, log_ratio: Array) -> Array:
        """Return the log-ratio."""
        return as_floats(log_ratio, "log_ratio")


@dataclass(frozen=True)
class Shift:
    """Self-normalisation: add the constant that makes the mean of r over fake samples 1.

    Under a budget it changes nothing, as c takes it up; it matters to whoever reads `E_Q[r]` or the ratio itself. Do
    not shift where the model misses a part of the target: there the mean of the true ratio is below 1.

    Args:
        offset: What is added, `-log E_Q[r]`.

    Example:
        >>> Shift.fit([0.0, 2.0], np.log([1.0, 3.0, 5.0]))(np.log([3.0, 6.0])).round(3)
        array([0.   , 0.693])
    """

    offset: float

    needs: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_numbers(self)

    @classmethod
    def fit(cls, log_ratio_real: Array, log_ratio_fake: Array) -> "Shift":
        """Take the mean of r over the fake samples; the real ones are checked and not used."""
        _, fake = _scores(cls, log_ratio_real, log_ratio_fake)
        top = fake.max()
        with np.errstate(over="ignore"):
            return cls(-float(top + np.log(np.mean(np.exp(fake - top)))))

    def __call__(self, log_ratio: Array) -> Array:
        """Return the log-ratio plus the offset."""
        return _where_finite(log_ratio, lambda xp, x: x + self.offset)


@dataclass(frozen=True)
class Temperature:
    """Multiply the log-ratio by a slope, 1/T: below 1 for a critic that is too sure of itself.

    Args:
        slope: 1/T, at least 0.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = 3 * (rng.normal(size=4000) + 0.5), 3 * (rng.normal(size=4000) - 0.5)  # thrice the truth
        >>> round(Temperature.fit(real, fake).slope, 1)
        0.3

    References:
        | On Calibration of Modern Neural Networks (Guo et al., 2017), Sec. 4.2
    """

    slope: float

    needs: ClassVar[int] = 10

    def __post_init__(self) -> None:
        _check_numbers(self, "slope")

    @classmethod
    def fit(cls, log_ratio_real: Array, log_ratio_fake: Array) -> "Temperature":
        """Maximise the likelihood of the labels over slopes of at least 0."""
        real, fake = _scores(cls, log_ratio_real, log_ratio_fake)
        possible = fake[fake > -inf]
        if max(np.abs(real).max(), np.abs(possible).max()) < _TINY:
            return cls(1.0)  # all scores are 0, and stay 0
        refuse_separation(real, possible, threshold=0.0)
        (slope, _), _ = fit_logistic([real], [possible], (len(real), len(fake)), intercept=False)
        return cls(max(slope, 0.0))

    def __call__(self, log_ratio: Array) -> Array:
        """Return the log-ratio times the slope."""
        return _where_finite(log_ratio, lambda xp, x: self.slope * x)


@dataclass(frozen=True)
class Platt:
    """Platt scaling: a slope and an intercept, by logistic regression on the log-ratio.

    Args:
        slope: At least 0; 0 says that the scores do not tell real from fake, or tell it the wrong way round.
        intercept: The calibrated log-ratio of a score of 0.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = 3 * (rng.normal(size=4000) + 0.5) - 6, 3 * (rng.normal(size=9000) - 0.5) - 6
        >>> calibration = Platt.fit(real, fake)
        >>> round(calibration.slope, 2), round(calibration.intercept, 1)
        (0.33, 2.0)

    References:
        | Probabilistic Outputs for Support Vector Machines (Platt, 1999)
        | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019), logistic calibration
    """

    slope: float
    intercept: float

    needs: ClassVar[int] = 20

    def __post_init__(self) -> None:
        _check_numbers(self, "slope")

    @classmethod
    def fit(cls, log_ratio_real: Array, log_ratio_fake: Array) -> "Platt":
        """Maximise the likelihood of the labels over slopes of at least 0 and any intercept."""
        real, fake = _scores(cls, log_ratio_real, log_ratio_fake)
        possible = fake[fake > -inf]
        flat = log(len(fake) / len(possible))  # the log-ratio if all possible scores mean the same
        if float(max(real.max(), possible.max())) - float(min(real.min(), possible.min())) < _TINY:
            return cls(1.0, flat - float(real[0]))  # one score only: no slope is better than another
        refuse_separation(real, possible)
        (slope, intercept), _ = fit_logistic([real], [possible], (len(real), len(fake)))
        return cls(slope, intercept) if slope > 0 else cls(0.0, flat)

    def __call__(self, log_ratio: Array) -> Array:
        """Return slope times log-ratio plus intercept."""
        return _where_finite(log_ratio, lambda xp, x: self.slope * x + self.intercept)


@dataclass(frozen=True)
class Beta:
    """Beta calibration: `a log p - b log(1 - p) + c` with p = sigmoid(log r): a slope for each side.

    Far below 0 the slope is a, far above it b; with a = b this is `Platt`. p itself is never formed.

    Args:
        a: At least 0.
        b: At least 0.
        c: The rest.

    Example:
        >>> beta = Beta(a=0.5, b=2.0, c=0.0)
        >>> beta([-40.0, 0.0, 40.0]).round(2)
        array([-20.  ,   1.04,  80.  ])

    References:
        | Beta calibration: a well-founded and easily implemented improvement on logistic calibration for binary
        | classifiers (Kull et al., 2017)
    """

    a: float
    b: float
    c: float

    needs: ClassVar[int] = 30

    def __post_init__(self) -> None:
        _check_numbers(self, "a", "b")

    @classmethod
    def fit(cls, log_ratio_real: Array, log_ratio_fake: Array) -> "Beta":
        """Maximise the likelihood of the labels over a and b of at least 0 and any c.

        Where all scores lie so far on one side of 0 that only one of the two logarithms varies, a = b.
        """
        real, fake = _scores(cls, log_ratio_real, log_ratio_fake)
        possible = fake[fake > -inf]
        features = [_two_sides(np, scores) for scores in (real, possible)]
        spread = min(np.ptp(np.concatenate(side)) for side in zip(*features, strict=True))
        if spread < 1e-6:
            platt = Platt.fit(real, fake)
            return cls(platt.slope, platt.slope, platt.intercept)
        refuse_separation(real, possible)
        fits = []
        for free in ((0, 1), (1,), (0,)):  # the minimum lies inside or on one of the two edges, or in the corner
            sides = [[side[i] for i in free] for side in features]
            (*slopes, c), loss = fit_logistic(sides[0], sides[1], (len(real), len(fake)))
            found = dict(zip(free, slopes, strict=True))
            if min(slopes) >= 0:
                fits.append((loss, found.get(0, 0.0), found.get(1, 0.0), c))
                if len(free) == 2:
                    break
        _, a, b, c = min(fits, default=(0.0, 0.0, 0.0, log(len(fake) / len(possible))))
        return cls(a, b, c)

    def __call__(self, log_ratio: Array) -> Array:
        """Return `a log p - b log(1 - p) + c`."""

        def formula(xp: Any, x: Array) -> Array:
            log_p, minus_log_1mp = _two_sides(xp, x)
            return self.a * log_p + self.b * minus_log_1mp + self.c

        return _where_finite(log_ratio, formula)


@dataclass(frozen=True)
class Isotonic:
    """Isotonic regression: the increasing step function that fits best, joined by straight lines.

    Between its knots the map is linear, beyond them constant. Where the lowest scores are all of fakes, or the
    highest all of real samples, the log-ratio of that step would be infinite: half a sample of the missing kind is
    added to it. So what comes out is finite, and nothing is said to be better than the best step of the fit.

    Args:
        scores: Knots, ascending log-ratios before calibration.
        log_ratios: The log-ratios after it, never decreasing.

    Example:
        >>> map = Isotonic(scores=(-1.0, 1.0), log_ratios=(-0.5, 0.5))
        >>> map([-9.0, 0.0, 0.5, 9.0])
        array([-0.5 ,  0.  ,  0.25,  0.5 ])

    References:
        | Transforming Classifier Scores into Accurate Multiclass Probability Estimates (Zadrozny and Elkan, 2002)
    """

    scores: tuple[float, ...]
    log_ratios: tuple[float, ...]

    needs: ClassVar[int] = 100

    def __post_init__(self) -> None:
        knots = (self.scores, self.log_ratios)
        if not all(isinstance(k, tuple) and k and all(is_number(v) and isfinite(v) for v in k) for k in knots):
            raise InputError(
                "an Isotonic calibration has finite numbers for scores and log_ratios, at least one of each"
            )
        if len(self.scores) != len(self.log_ratios):
            raise InputError(f"{len(self.scores)} scores need as many log_ratios, got {len(self.log_ratios)}")
        if any(np.diff(self.scores) <= 0) or any(np.diff(self.log_ratios) < 0):
            raise InputError("the scores of an Isotonic calibration must ascend, and its log_ratios never descend")

    @classmethod
    def fit(cls, log_ratio_real: Array, log_ratio_fake: Array) -> "Isotonic":
        """Fit the steps with scikit-learn, from scores sorted and counted."""
        try:
            from sklearn.isotonic import isotonic_regression
        except ImportError as error:
            raise MissingLibraryError("isotonic calibration needs scikit-learn: pip install 'obrs[ratios]'") from error
        real, fake = _scores(cls, log_ratio_real, log_ratio_fake)
        score, place = np.unique(np.concatenate([real, fake[fake > -inf]]), return_inverse=True)
        n_real = np.bincount(place[: len(real)], minlength=len(score)).astype(float)
        n_fake = np.bincount(place[len(real) :], minlength=len(score)).astype(float)
        level = isotonic_regression(n_real / (n_real + n_fake), sample_weight=n_real + n_fake)
        first = np.flatnonzero(np.diff(level, prepend=-1.0))  # of each step: its scores pool their counts
        last = np.append(first[1:], len(score)) - 1
        value = _step_ratios(np.add.reduceat(n_real, first), np.add.reduceat(n_fake, first), (len(real), len(fake)))
        at = np.unique(np.concatenate([first, last]))
        step = np.searchsorted(first, at, side="right") - 1
        return cls(tuple(score[at].tolist()), tuple(value[step].tolist()))

    def __call__(self, log_ratio: Array) -> Array:
        """Return the log-ratio on the line between the two knots around each score."""
        steps = np.diff(self.scores), np.diff(self.log_ratios)
        if len(self.scores) == 1:
            return _where_finite(log_ratio, lambda xp, x: xp.zeros_like(x) + self.log_ratios[0])

        def formula(xp: Any, x: Array) -> Array:
            flat = xp.astype(xp.reshape(x, (-1,)), widest(xp))  # knots may be nearer than float32 tells
            knots, low, gap, rise = (like(np.asarray(v), flat) for v in (self.scores, self.log_ratios[:-1], *steps))
            left = xp.clip(xp.searchsorted(knots, flat) - 1, min=0, max=len(self.scores) - 2)
            along = (flat - xp.take(knots, left, axis=0)) / xp.take(gap, left, axis=0)
            out = xp.take(low, left, axis=0) + xp.clip(along, min=0.0, max=1.0) * xp.take(rise, left, axis=0)
            return xp.reshape(xp.astype(out, x.dtype), tuple(x.shape))

        return _where_finite(log_ratio, formula)


def _scores(kind: Any, log_ratio_real: Array, log_ratio_fake: Array) -> tuple[Floats, Floats]:
    return held_out(log_ratio_real, log_ratio_fake, least=kind.needs, what=f"{kind.__name__}.fit")


def _check_numbers(calibration: Any, *not_below_0: str) -> None:
    for f in fields(calibration):
        value = getattr(calibration, f.name)
        if not is_number(value) or not isfinite(value) or (f.name in not_below_0 and value < 0):
            kind = "finite number of at least 0" if f.name in not_below_0 else "finite number"
            raise InputError(f"{f.name} of a {type(calibration).__name__} must be a {kind}, got {value!r:.60}")


def _where_finite(log_ratio: Array, formula: Callable[[Any, Array], Array]) -> Array:
    """Apply a formula; r = 0 stays r = 0, even where a slope is 0."""
    x = as_floats(log_ratio, "log_ratio")
    xp = array_namespace(x)
    infinite = xp.isinf(x)
    with np.errstate(over="ignore", invalid="ignore"):  # NaN stays NaN
        out = xp.where(infinite, x, formula(xp, xp.where(infinite, 0.0, x)))
    return np.asarray(out) if isinstance(x, np.ndarray) else out  # NumPy turns 0-d arrays into scalars


def _two_sides(xp: Any, x: Array) -> tuple[Array, Array]:
    """Return log p and -log(1 - p) of a logit; their sum is the logit."""
    return -softplus(xp, -x), softplus(xp, x)


def _step_ratios(real: Floats, fake: Floats, counts: tuple[int, int]) -> Floats:
    """Return the log-ratio of each step from its counts; only the first may lack real samples, the last fakes."""
    value = np.log(np.maximum(real, 0.5) / counts[0]) - np.log(np.maximum(fake, 0.5) / counts[1])
    if len(value) > 1:  # half a sample must not carry an end past its neighbour
        value[0], value[-1] = min(value[0], value[1]), max(value[-1], value[-2])
    return np.maximum.accumulate(value)
