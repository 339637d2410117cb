"""Calibration: a monotone map that makes a score a better log-ratio, fitted on held-out real and fake samples.

A calibration is a frozen record with `calibration(log_ratio)`, elementwise and never decreasing. It keeps the library,
dtype and device of its input; a log-ratio of -inf (r = 0) stays -inf. `fit` takes the scores of real and fake samples
that the critic was not trained on. There may be more of one kind than of the other: the result is a log-ratio, not the
logit of a mixture.

`CALIBRATIONS` lists them, the simplest first. `Identity` is a special case of `Shift` and of `Temperature`, these are
special cases of `Platt`, and `Platt` is one of `Beta`. `Isotonic` can have any increasing shape. `fit_calibration`
chooses among them.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import inf, isfinite, log
from typing import Any, ClassVar, Protocol

import numpy as np
from array_api_compat import array_namespace

from .._arrays import as_floats, like, widest
from .._checks import check_count, is_number
from .._text import lookup
from ..divergences import softplus
from ..errors import InputError, InputTypeError, MissingLibraryError, RatioError
from ..types import Array
from .evidence import Floats, Pair, losses, mean_of_means, score_pair

__all__ = [
    "CALIBRATIONS",
    "Beta",
    "Calibration",
    "CalibrationChoice",
    "CalibrationRow",
    "Identity",
    "Isotonic",
    "Platt",
    "Shift",
    "Temperature",
    "cross_fitted",
    "fit_calibration",
    "from_json",
    "to_json",
]

_TINY = 1e-200  # scores that differ by less count as equal: a slope that separates them may overflow
_ENOUGH = 100_000  # scores of each kind to choose a calibration by
_FAR = 1e10  # in units of the 99 % quantile; features are clipped here, where any slope but 0 is sure already


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

    Under a budget this changes nothing, as c makes up for it; it matters if you use `E_Q[r]` or the ratio itself. Do
    not use it if the model misses a part of the target: the mean of the true ratio is then below 1.

    Args:
        offset: The constant, `-log E_Q[r]`.

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
        """Compute the mean of r over the fake samples; the real ones are only checked."""
        _, fake = _scores(cls, log_ratio_real, log_ratio_fake)
        top = fake.max()
        with np.errstate(over="ignore"):
            return cls(-float(top + np.log(np.mean(np.exp(fake - top)))))

    def __call__(self, log_ratio: Array) -> Array:
        """Return the log-ratio plus the offset."""
        return _where_finite(log_ratio, lambda xp, x: x + self.offset)


@dataclass(frozen=True)
class Temperature:
    """Multiply the log-ratio by a slope, 1/T; it is below 1 for an over-confident critic.

    Args:
        slope: 1/T, at least 0.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = 3 * (rng.normal(size=4000) + 0.5), 3 * (rng.normal(size=4000) - 0.5)  # three times too large
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
        _refuse_separation(real, possible, threshold=0.0)
        (slope, _), _ = _fit_logistic([real], [possible], (len(real), len(fake)), intercept=False)
        return cls(max(slope, 0.0))

    def __call__(self, log_ratio: Array) -> Array:
        """Return the log-ratio times the slope."""
        return _where_finite(log_ratio, lambda xp, x: self.slope * x)


@dataclass(frozen=True)
class Platt:
    """Platt scaling: a slope and an intercept, by logistic regression on the log-ratio.

    Args:
        slope: At least 0. It is 0 if real samples do not score above fake ones.
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
            return cls(1.0, flat - float(real[0]))  # all scores are equal: no slope is better than another
        _refuse_separation(real, possible)
        (slope, intercept), _ = _fit_logistic([real], [possible], (len(real), len(fake)))
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
        c: The constant.

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

        If all scores are so far on one side of 0 that only one of the two logarithms varies, a = b.
        """
        real, fake = _scores(cls, log_ratio_real, log_ratio_fake)
        possible = fake[fake > -inf]
        features = [_two_sides(np, scores) for scores in (real, possible)]
        spread = min(np.ptp(np.concatenate(side)) for side in zip(*features, strict=True))
        if spread < 1e-6:
            platt = Platt.fit(real, fake)
            return cls(platt.slope, platt.slope, platt.intercept)
        _refuse_separation(real, possible)
        fits = []
        for free in ((0, 1), (1,), (0,)):  # the minimum lies inside or on one of the two edges, or in the corner
            sides = [[side[i] for i in free] for side in features]
            (*slopes, c), loss = _fit_logistic(sides[0], sides[1], (len(real), len(fake)))
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
    """Isotonic regression: the increasing step function that fits best, with straight lines between its steps.

    Between the knots the map is linear, beyond them constant. If the lowest scores all belong to fakes, or the highest
    all to real samples, the log-ratio of that step would be infinite. Half a sample of the missing kind is added to
    it, so the result is finite.

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
            raise MissingLibraryError("isotonic calibration needs scikit-learn: pip install 'obrs[torch]'") from error
        real, fake = _scores(cls, log_ratio_real, log_ratio_fake)
        score, place = np.unique(np.concatenate([real, fake[fake > -inf]]), return_inverse=True)
        n_real = np.bincount(place[: len(real)], minlength=len(score)).astype(float)
        n_fake = np.bincount(place[len(real) :], minlength=len(score)).astype(float)
        level = isotonic_regression(n_real / (n_real + n_fake), sample_weight=n_real + n_fake)
        starts = np.flatnonzero(np.diff(level, prepend=-1.0))  # all scores of a step are counted together
        ends = np.append(starts[1:], len(score)) - 1
        value = _step_ratios(np.add.reduceat(n_real, starts), np.add.reduceat(n_fake, starts), (len(real), len(fake)))
        at = np.unique(np.concatenate([starts, ends]))
        step = np.searchsorted(starts, at, side="right") - 1
        return cls(tuple(score[at].tolist()), tuple(value[step].tolist()))

    def __call__(self, log_ratio: Array) -> Array:
        """Return the log-ratio on the line between the two knots around each score."""
        steps = np.diff(self.scores), np.diff(self.log_ratios)
        if len(self.scores) == 1:
            return _where_finite(log_ratio, lambda xp, x: xp.zeros_like(x) + self.log_ratios[0])

        def formula(xp: Any, x: Array) -> Array:
            flat = xp.astype(xp.reshape(x, (-1,)), widest(xp))  # float32 may not tell two knots apart
            knots, low, gap, rise = (like(np.asarray(v), flat) for v in (self.scores, self.log_ratios[:-1], *steps))
            left = xp.clip(xp.searchsorted(knots, flat) - 1, min=0, max=len(self.scores) - 2)
            along = (flat - xp.take(knots, left, axis=0)) / xp.take(gap, left, axis=0)
            out = xp.take(low, left, axis=0) + xp.clip(along, min=0.0, max=1.0) * xp.take(rise, left, axis=0)
            return xp.reshape(xp.astype(out, x.dtype), tuple(x.shape))

        return _where_finite(log_ratio, formula)


CALIBRATIONS: dict[str, Any] = {
    "identity": Identity,
    "shift": Shift,
    "temperature": Temperature,
    "platt": Platt,
    "beta": Beta,
    "isotonic": Isotonic,
}
"""The calibrations by name, from the simplest to the most flexible."""


@dataclass(frozen=True)
class CalibrationRow:
    """How well one calibration does on samples that it was not fitted on.

    Args:
        name: Key of `CALIBRATIONS`.
        log_loss: Mean held-out log-loss, each kind of samples with weight one half; inf if it could not be fitted.
        standard_error: Of the log-loss.
        excess: Log-loss above that of the best row.
        excess_error: Standard error of the excess. It is far below that of the log-loss, as both rows use the same
            samples.
        note: Why it could not be fitted; empty if it could.
    """

    name: str
    log_loss: float
    standard_error: float
    excess: float
    excess_error: float
    note: str = ""


@dataclass(frozen=True)
class CalibrationChoice:
    """The chosen calibration, fitted on all samples, and how each candidate did; printed, it is a table.

    Args:
        name: Key of `CALIBRATIONS`.
        calibration: The map.
        rows: One per candidate, in their order.
    """

    name: str
    calibration: Calibration
    rows: tuple[CalibrationRow, ...]

    def __call__(self, log_ratio: Array) -> Array:
        """Apply the chosen calibration."""
        return self.calibration(log_ratio)

    def __str__(self) -> str:
        lines = ["  calibration  held-out log-loss     above the best"]
        for row in self.rows:
            mark = "*" if row.name == self.name else " "
            numbers = f"{row.log_loss:8.5f} ± {row.standard_error:.5f}  {row.excess:8.5f} ± {row.excess_error:.5f}"
            lines.append(f"{mark} {row.name:12} {numbers if isfinite(row.log_loss) else row.note}")
        return "\n".join(lines)


def fit_calibration(
    log_ratio_real: Array,
    log_ratio_fake: Array,
    *,
    candidates: Sequence[str] = tuple(CALIBRATIONS),
    folds: int = 5,
    seed: int = 0,
) -> CalibrationChoice:
    """Choose a calibration by cross-fitted log-loss, and fit it on all scores.

    Each candidate is fitted on all folds but one, and its log-loss is measured on that one; each fold has its turn. The
    choice is the simplest candidate whose log-loss exceeds the lowest by at most one standard error of the difference.
    A simpler map varies less from sample to sample, and a step function would give the same value to different scores.
    100,000 scores of each kind, chosen at random, are enough to choose by; the map is fitted on all of them.

    Args:
        log_ratio_real: Scores of real samples that the critic was not trained on, shape `(n,)` or `(n, 1)`.
        log_ratio_fake: Scores of fresh fake samples, likewise.
        candidates: Keys of `CALIBRATIONS`, the simplest first.
        folds: Number of parts that each kind of samples is split into.
        seed: Decides the split.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = 3 * (rng.normal(size=4000) + 0.5), 3 * (rng.normal(size=4000) - 0.5)  # three times too large
        >>> choice = fit_calibration(real, fake)
        >>> choice.name, round(choice.calibration.slope, 1)
        ('temperature', 0.3)

    References:
        | The Elements of Statistical Learning (Hastie et al., 2009), Sec. 7.10, the one-standard-error rule
    """
    names = [candidates] if isinstance(candidates, str) else list(candidates)
    kinds = {name: lookup(CALIBRATIONS, name, "calibration") for name in names}
    if not kinds:
        raise InputError(f"candidates is empty; choose from {', '.join(CALIBRATIONS)}")
    if check_count(folds, "folds") < 2:
        raise InputError(f"folds must be at least 2, got {folds}")
    neediest = max(kinds, key=lambda name: kinds[name].needs)
    least = max(int(np.ceil(kinds[neediest].needs * folds / (folds - 1))), 2 * folds)
    what = f"choosing among calibrations up to {neediest} in {folds} folds"
    real, fake = score_pair(log_ratio_real, log_ratio_fake, least=least, what=what)
    rng = np.random.default_rng(seed)
    some: Pair = _some(real, rng), _some(fake, rng)
    split = rng.permutation(np.arange(len(some[0])) % folds), rng.permutation(np.arange(len(some[1])) % folds)
    loss: dict[str, Pair] = {}
    notes = dict.fromkeys(kinds, "")
    for name, kind in kinds.items():
        try:
            loss[name] = losses(*cross_fitted(kind, *some, split))
        except (InputError, RatioError) as error:  # such as scores that separate the two kinds
            notes[name] = str(error)
    if not loss:
        raise InputError(f"no candidate can be fitted; {names[0]}: {notes[names[0]]}")
    best = loss[min(loss, key=lambda name: mean_of_means(*loss[name]).value)]
    rows = tuple(_row(name, loss.get(name), best, notes[name]) for name in kinds)
    chosen = next(row.name for row in rows if row.excess <= row.excess_error)
    return CalibrationChoice(chosen, kinds[chosen].fit(real, fake), rows)


def _some(scores: Floats, rng: np.random.Generator) -> Floats:
    return scores if len(scores) <= _ENOUGH else rng.choice(scores, _ENOUGH, replace=False, shuffle=False)


def cross_fitted(kind: Any, real: Floats, fake: Floats, split: Pair) -> Pair:
    """Map the scores of each fold with the calibration that was fitted on the other folds.

    Args:
        kind: A value of `CALIBRATIONS`.
        real, fake: Scores, float64.
        split: The fold of each, counted from 0.

    Example:
        >>> folds = np.asarray([0, 1])
        >>> cross_fitted(Shift, np.asarray([2.0, 3.0]), np.asarray([0.0, 1.0]), (folds, folds))
        (array([1., 3.]), array([-1.,  1.]))
    """
    mapped = np.empty_like(real), np.empty_like(fake)
    for fold in range(int(split[0].max()) + 1):
        tested = split[0] == fold, split[1] == fold
        fitted = kind.fit(real[~tested[0]], fake[~tested[1]])
        for scores, test, out in zip((real, fake), tested, mapped, strict=True):
            out[test] = fitted(scores[test])
    return mapped


def _row(name: str, loss: Pair | None, best: Pair, note: str) -> CalibrationRow:
    if loss is None:
        return CalibrationRow(name, inf, inf, inf, 0.0, note)
    own, excess = mean_of_means(*loss), mean_of_means(loss[0] - best[0], loss[1] - best[1])
    return CalibrationRow(name, own.value, own.standard_error, excess.value, excess.standard_error)


def to_json(calibration: Calibration) -> str:
    """Return a calibration as JSON.

    Example:
        >>> to_json(Platt(slope=0.5, intercept=-1.0))
        '{"calibration": "platt", "slope": 0.5, "intercept": -1.0}'
        >>> from_json(to_json(Shift(offset=2.0)))
        Shift(offset=2.0)
    """
    name = next((name for name, kind in CALIBRATIONS.items() if type(calibration) is kind), None)
    if name is None:
        known = ", ".join(CALIBRATIONS)
        raise InputTypeError(f"only the calibrations {known} can be saved, got {type(calibration).__name__}")
    return json.dumps(
        {"calibration": name} | {f.name: getattr(calibration, f.name) for f in fields(CALIBRATIONS[name])}
    )


def from_json(text: str) -> Any:
    """Return the calibration that `to_json` saved."""
    try:
        data = dict(json.loads(text))
        name = data.pop("calibration")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"a saved calibration must be a JSON object with a field 'calibration', got {text!r:.60}"
        ) from error
    kind = lookup(CALIBRATIONS, name, "calibration")
    wanted = [f.name for f in fields(kind)]
    if sorted(data) != sorted(wanted):
        raise InputError(f"a saved {name} calibration has the fields {', '.join(wanted)}, got {', '.join(data)}")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in data.items()})


def _scores(kind: Any, log_ratio_real: Array, log_ratio_fake: Array) -> Pair:
    return score_pair(log_ratio_real, log_ratio_fake, least=kind.needs, what=f"{kind.__name__}.fit")


def _check_numbers(calibration: Any, *not_below_0: str) -> None:
    for f in fields(calibration):
        value = getattr(calibration, f.name)
        if not is_number(value) or not isfinite(value) or (f.name in not_below_0 and value < 0):
            kind = "finite number of at least 0" if f.name in not_below_0 else "finite number"
            raise InputError(f"{f.name} of a {type(calibration).__name__} must be a {kind}, got {value!r:.60}")


def _where_finite(log_ratio: Array, formula: Callable[[Any, Array], Array]) -> Array:
    """Apply a formula to finite numbers; infinite ones stay, also if the slope is 0."""
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
    """Return the log-ratio of each step. The lowest may have no real samples, the highest no fakes."""
    value = np.log(np.maximum(real, 0.5) / counts[0]) - np.log(np.maximum(fake, 0.5) / counts[1])
    if len(value) > 1:  # with half a sample added, an end must not pass its neighbour
        value[0], value[-1] = min(value[0], value[1]), max(value[-1], value[-2])
    return np.maximum.accumulate(value)


def _fit_logistic(
    real: Sequence[Floats], fake: Sequence[Floats], counts: tuple[int, int], *, intercept: bool = True
) -> tuple[list[float], float]:
    """Fit a logistic regression without a penalty; return its slopes with the intercept last, and its log-loss.

    The logit of a sample is its log-ratio plus log(n_real / n_fake). This constant is known and not fitted, so the
    coefficients are those of the log-ratio for any sizes of the two sets.

    Args:
        real: One array of length n per feature.
        fake: The same features of the fake samples.
        counts: Numbers of real and fake samples. Fakes with r = 0 are counted here, and left out of `fake`.
        intercept: Whether to fit an intercept; if not, it is 0.
    """
    columns = [np.concatenate(both) for both in zip(real, fake, strict=True)]
    centre = np.asarray([float(np.median(column)) if intercept else 0.0 for column in columns])
    rows = [column - c for column, c in zip(columns, centre, strict=True)]
    rows += [np.ones_like(rows[0])] if intercept else []
    scale = np.asarray([_typical(row) for row in rows])
    sign = np.repeat([1.0, -1.0], [len(real[0]), len(fake[0])])
    x = np.stack([np.clip(row / s, -_FAR, _FAR) for row, s in zip(rows, scale, strict=True)]) * sign
    prior = log(counts[0] / counts[1]) * sign
    few = slice(None, None, max(1, len(sign) // 20_000))  # a fit to some of the samples is a good start
    start = _minimise(x[:, few], prior[few], np.zeros(len(x)))[0]
    theta, loss = _minimise(x, prior, start)
    theta = theta / scale
    slopes = theta[: len(columns)]
    constant = float(theta[-1] - slopes @ centre) if intercept else 0.0
    return [*map(float, slopes), constant], loss


def _minimise(x: Floats, prior: Floats, start: Floats) -> tuple[Floats, float]:
    """Minimise the mean of `log(1 + exp(-(theta x + prior)))` by Newton's method; return theta and the minimum."""
    n = x.shape[1]

    def at(theta: Floats) -> tuple[float, Floats, Floats]:
        z = theta @ x + prior
        return float(np.sum(np.maximum(-z, 0.0) + np.log1p(np.exp(-np.abs(z))))) / n, z, theta

    loss, z, theta = min(at(start), at(np.zeros_like(start)), key=lambda found: found[0])
    for _ in range(200):
        missed = (1 - np.tanh(z / 2)) / 2  # the probability of the wrong label
        gradient = -(x @ missed) / n
        step = -_newton_step((x * (missed * (1 - missed))) @ x.T / n, gradient)
        decrement = -float(gradient @ step)
        size, new = 1.0, at(theta + step)
        while decrement > 1e-12 and new[0] > loss - 1e-4 * size * decrement and size > 1e-9:
            size /= 2
            new = at(theta + size * step)
        loss, z, theta = new
        if decrement < 1e-18:  # each step squares it
            break
    return theta, loss


def _refuse_separation(real: Floats, fake: Floats, threshold: float | None = None) -> None:
    """Raise if a threshold separates real from fake scores: the steeper the slope, the better it would fit.

    Args:
        real: Scores of real samples.
        fake: Scores of fake samples.
        threshold: The only threshold that the map can have, 0 without an intercept; None if any is possible.
    """
    lowest, highest = real.min(), fake.max(initial=-np.inf)
    if threshold is None:
        apart = lowest >= highest and max(real.max(), highest) > min(lowest, fake.min(initial=np.inf))
    else:
        apart = lowest >= threshold >= highest and (real.max() > threshold or fake.min(initial=threshold) < threshold)
    if apart:
        raise InputError(
            f"no slope fits: all {len(real)} real scores are above all {len(fake)} fake ones; "
            "add held-out samples, or fit the ratio on features in which they meet"
        )


def _typical(column: Floats) -> float:
    """Return a typical size: a few extreme values do not decide it, and it is never 0."""
    size = np.abs(column)
    return max(float(np.quantile(size, 0.99)) or float(size.mean()), 1e-290)


def _newton_step(hessian: Floats, gradient: Floats) -> Floats:
    """Solve hessian step = gradient; in directions that the data do not determine, the step is 0."""
    spread = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
    return np.asarray(np.linalg.lstsq(hessian / np.outer(spread, spread), gradient / spread, rcond=1e-13)[0] / spread)
