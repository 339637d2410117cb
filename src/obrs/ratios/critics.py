"""What does a score mean? The one place where the output of a critic becomes a log-ratio.

`MEANINGS` lists what one number per sample may mean. Some of these have no log-ratio; their entry says why, and what to
do instead. The functions `from_...` are the formulas, also for outputs of another form: one logit per class, or two
log-likelihoods.

The formulas keep the library, dtype and device of the scores, and gradients pass through them. None computes a
probability from a logit, so logits may be as large as floats allow. A result that overflows is infinite, and NaN stays
NaN: samplers and calibrations report both.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from .._arrays import as_floats, host_view, like, on_one_device
from .._checks import as_labels, is_number
from .._text import lookup
from ..divergences import FDivergence
from ..divergences import divergence as divergence_of
from ..errors import DivergenceError, InputError, InputTypeError, RatioError
from ..types import Array, LogRatio
from .labelled import form_of, takes_label

__all__ = [
    "FINE_TUNE",
    "FROM_SCRATCH",
    "MEANINGS",
    "Meaning",
    "as_log_ratio",
    "at_time",
    "check_spread",
    "doubt",
    "from_class_logits",
    "from_critic",
    "from_joint_logits",
    "from_log_likelihoods",
    "from_logit",
    "from_open_logits",
    "from_probability",
    "from_reward",
    "to_log_ratio",
]

FINE_TUNE = "obrs.refit(real, propose, obrs.ratios.refit.FineTune(critic))"
"""The call, as code, that turns a critic without a log-ratio into one that has it."""
FROM_SCRATCH = "obrs.refit(real, propose, obrs.ratios.refit.Network())"
"""The call, as code, that fits a new log-ratio."""


def from_logit(logit: Array, *, n_real: float | None = None, n_fake: float | None = None) -> Array:
    """Return the log-ratio of a classifier that was trained to tell real from fake with the logistic loss.

    Args:
        logit: Its output before the sigmoid, high for real samples.
        n_real: How many real samples it was trained on. Only needed if it saw more of one kind than of the other. If
            the loss gave weights to the two kinds, multiply each number by its weight.
        n_fake: How many fake samples it was trained on.

    Example:
        >>> from_logit([-2.0, 0.0, 3.0])
        array([-2.,  0.,  3.])
        >>> from_logit([0.0], n_real=1000, n_fake=4000).round(3)
        array([1.386])
    """
    log_prior = _log_prior(n_real, n_fake)
    x = as_floats(logit, "logit")
    with np.errstate(all="ignore"):
        return x - log_prior if log_prior else x


def from_probability(p: Array, *, n_real: float | None = None, n_fake: float | None = None) -> Array:
    """Return `log p - log(1 - p)`, if all you have is the probability of being real.

    Use logits if you can. Near 1 a rounded probability has lost most of what the logit said: probabilities whose
    log-ratio is wrong by per cent are counted in a warning, and a probability of 1 is refused. 0 means r = 0.

    Args:
        p: Probabilities, from 0 to below 1.
        n_real: As in `from_logit`.
        n_fake: As in `from_logit`.

    Example:
        >>> from_probability([0.0, 0.5, 0.8]).round(3)
        array([ -inf, 0.   , 1.386])
    """
    log_prior = _log_prior(n_real, n_fake)
    x = as_floats(p, "p")
    _check_probabilities(host_view(x), _rounding(p, x))
    xp = array_namespace(x)
    inside = xp.where((x == 0) | (x == 1), 0.5, x)
    log_ratio = xp.log(inside) - xp.log1p(-inside) - log_prior
    out = xp.where(x == 0, -inf, xp.where(x == 1, inf, log_ratio))
    return np.asarray(out) if isinstance(x, np.ndarray) else out  # NumPy turns 0-d arrays into scalars


def from_critic(t: Array, divergence: str | FDivergence) -> Array:
    """Return `log (f*)'(t)`, the log-ratio of an f-GAN's critic T after its output activation.

    Outputs beyond the range of the critic give the limit, -inf or +inf; a warning counts those that give +inf. The
    critic of a "gan" is T = log D. In float32 this is rounded to 0 for large logits, from 17 or from 104 on, which
    depends on how it was computed. If you have the logit before the activation, pass that to `from_logit` instead. The
    total variation and the precision-recall divergence have no log-ratio: their critics only tell whether p is above q.

    Args:
        t: Outputs of the critic.
        divergence: The divergence it was trained with: a key of `DIVERGENCES` or a record.

    Example:
        >>> from_critic([1.0, 2.5], "kl")
        array([0. , 1.5])

    References:
        | f-GAN: Training Generative Neural Samplers using Variational Divergence Minimization (Nowozin et al., 2016)
    """
    known, x = divergence_of(divergence), as_floats(t, "t")
    try:
        log_ratio = known.log_ratio(x)
    except DivergenceError as error:
        raise DivergenceError(f"{error}; to make a log-ratio of this one: {FINE_TUNE}") from error
    outputs, values = host_view(x), host_view(log_ratio)
    if outputs is not None and values is not None and (lost := np.count_nonzero((values == inf) & (outputs < inf))):
        warnings.warn(
            f"{lost} of {values.size} outputs lie at or beyond the end of what a {known.name} critic can say: their "
            "log-ratio is +inf; give the logit before the last activation instead, if there is one",
            stacklevel=2,
        )
    return log_ratio


def from_class_logits(logits: Array, labels: Array, *, n_real: Any = None, n_fake: Any = None) -> Array:
    """Return log p(x|y) - log q(x|y) of a critic with one logit, real against fake, for each class.

    Args:
        logits: Shape `(n, classes)`.
        labels: The class that each sample was made for, integers of shape `(n,)`.
        n_real: Real samples in training, if not as many as fakes: a number, or one per class.
        n_fake: Fake samples in training, likewise.

    Example:
        >>> from_class_logits([[0.5, -1.0], [2.0, 3.0]], [0, 1])
        array([0.5, 3. ])
    """
    x, y = _by_class(logits, labels)
    with np.errstate(all="ignore"):
        return _column(x, y) - _class_prior(n_real, n_fake, y, x)


def from_joint_logits(logits: Array, labels: Array, *, n_real: Any = None, n_fake: Any = None) -> Array:
    """Return log p(x|y) - log q(x|y) of a classifier with two outputs per class, one for real and one for fake.

    Args:
        logits: Shape `(n, 2 classes)`: columns 0 to C-1 are real, C to 2C-1 fake.
        labels: The class that each sample was made for, integers of shape `(n,)`.
        n_real: Real samples in training, if not as many as fakes: a number, or one per class.
        n_fake: Fake samples in training, likewise.

    Example:
        >>> from_joint_logits([[1.0, 0.0, -2.0, 5.0]], [0])
        array([3.])
    """
    x, y = _by_class(logits, labels, per_class=2)
    with np.errstate(all="ignore"):
        return _column(x, y) - _column(x, y + x.shape[1] // 2) - _class_prior(n_real, n_fake, y, x)


def from_open_logits(logits: Array, *, n_real: float | None = None, n_fake: float | None = None) -> Array:
    """Return log p(x) - log q(x) of a classifier into the classes of the real samples, and one more for fakes.

    Args:
        logits: Shape `(n, classes + 1)`; the last column is the fake one.
        n_real: As in `from_logit`; all classes together.
        n_fake: As in `from_logit`.

    Example:
        >>> from_open_logits([[0.0, 0.0, 0.0], [1000.0, 0.0, -1000.0]]).round(3)
        array([6.93e-01, 2.00e+03])

    References:
        | Improved Techniques for Training GANs (Salimans et al., 2016), Sec. 5
    """
    log_prior = _log_prior(n_real, n_fake)
    x = as_floats(logits, "logits")
    if x.ndim != 2 or x.shape[1] < 2:
        raise InputError(f"logits must have shape (n, classes + 1), got {tuple(x.shape)}")
    xp = array_namespace(x)
    real, fake = x[:, :-1], x[:, -1]
    top = xp.max(real, axis=1, keepdims=True)
    top = xp.where(xp.isinf(top), 0.0, top)
    with np.errstate(all="ignore"):
        return xp.log(xp.sum(xp.exp(real - top), axis=1)) + top[:, 0] - fake - log_prior


def from_log_likelihoods(log_p: Array, log_q: Array) -> Array:
    """Return `log p - log q`; log p may lack a constant, and -inf says that the target never makes the sample.

    Args:
        log_p: Log-density of the target at samples of the model.
        log_q: Log-density of the model at the same samples, finite.

    Example:
        >>> from_log_likelihoods([-10.0, -float("inf")], [-12.0, -3.0])
        array([  2., -inf])
    """
    p, q = as_floats(log_p, "log_p"), as_floats(log_q, "log_q")
    _check_densities(p, q)
    with np.errstate(all="ignore"):
        return p - q


def from_reward(reward: Array, beta: float, *, baseline: float = 0.0) -> Array:
    """Return the log-ratio to the target q(x) exp(reward / beta), up to a constant.

    Args:
        reward: Rewards; -inf forbids a sample.
        beta: The temperature, above 0; the lower, the more the reward counts.
        baseline: This number is subtracted from the rewards first. No acceptance rule depends on it. It is for rewards
            as large as 1e300.

    Example:
        >>> from_reward([1.0, 3.0], beta=0.5)
        array([2., 6.])
    """
    beta, baseline = _temperature(beta, baseline)
    x = as_floats(reward, "reward")
    if beta < float(array_namespace(x).finfo(x.dtype).smallest_normal):
        raise InputError(f"beta {beta:g} is too small for {x.dtype}; give rewards in float64 or a larger beta")
    with np.errstate(all="ignore"):
        return (x - baseline) / beta if baseline else x / beta


@dataclass(frozen=True)
class Meaning:
    """What a score is, and how it becomes a log-ratio.

    Args:
        says: What the score is, in words.
        log_ratio: Turns scores into log-ratios; takes the options below by name.
        needs: Options that must be given.
        takes: Options that may be given.
        lost: Why no map turns the score into a log-ratio; empty if `log_ratio` does.
    """

    says: str
    log_ratio: Callable[..., Array]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    lost: str = ""


def _without_ratio(critic: str, why: str) -> Meaning:
    output = f"the output of {critic}"
    lost = f"{output} is no log-ratio: {why}"

    def refuse(scores: Array) -> Array:
        raise InputError(f"{lost}; make it one with {FINE_TUNE}")

    return Meaning(f"{output}: {why}", refuse, lost=lost)


_COUNTS = ("n_real", "n_fake")

MEANINGS: dict[str, Meaning] = {
    "log_ratio": Meaning("log p(x) - log q(x)", lambda scores: as_floats(scores, "log_ratio")),
    "logit": Meaning("the logit of a classifier, real against fake", from_logit, takes=_COUNTS),
    "probability": Meaning("the probability of being real", from_probability, takes=_COUNTS),
    "reward": Meaning("a reward; the target is q(x) exp(reward / beta)", from_reward, needs=("beta",)),
    "f_critic": Meaning("the critic T of an f-GAN", from_critic, needs=("divergence",)),
    "hinge": _without_ratio("a hinge critic", "at its optimum it is the sign of p - q, whatever their ratio"),
    "wgan": _without_ratio("a Wasserstein critic", "its slope is bounded, not tied to p / q"),
    "lsgan": _without_ratio("a least-squares critic", "it is not held between its two targets"),
}
"""What one number per sample may mean, by name. The last three are refused; the error names the call that helps."""


def to_log_ratio(
    scores: Array,
    meaning: str,
    *,
    beta: float | None = None,
    divergence: str | FDivergence | None = None,
    n_real: float | None = None,
    n_fake: float | None = None,
) -> Array:
    """Turn scores into log-ratios.

    Args:
        scores: One number per sample.
        meaning: A key of `MEANINGS`.
        beta: The temperature of a "reward".
        divergence: The divergence that the "f_critic" was trained with.
        n_real: Real samples that the classifier of a "logit" or "probability" was trained on, if not as many as fakes.
        n_fake: Fake samples that it was trained on.

    Example:
        >>> to_log_ratio([1.0, 3.0], "reward", beta=0.5)
        array([2., 6.])
        >>> to_log_ratio([1.0, -1.0], "hinge")
        Traceback (most recent call last):
        obrs.errors.InputError: the output of a hinge critic is no log-ratio: at its optimum it is the sign of p - q, \
whatever their ratio; make it one with obrs.refit(real, propose, obrs.ratios.refit.FineTune(critic))
    """
    known = lookup(MEANINGS, meaning, "meaning of scores")
    options = {"beta": beta, "divergence": divergence, "n_real": n_real, "n_fake": n_fake}
    given = {key: value for key, value in options.items() if value is not None}
    _check_options(meaning, known, given)
    return known.log_ratio(scores, **given)


_ENOUGH = 20  # scores, before their range says anything


def doubt(scores: Array, meaning: str) -> str:
    """Return in one line why scores hardly have the meaning that was said, or "" if nothing speaks against it.

    Log-ratios lie on both sides of 0, as the mean ratio of proposals is 1. So this looks at scores on one side of it:
    in [0, 1] like probabilities, with mean 1 or a long tail from 0 on like ratios, up to 100 like percentages, or far
    below 0 like log-densities. Other scores on one side of 0 pass: a constant changes no rule at a budget.

    Args:
        scores: One number per sample; those that are not finite are left out.
        meaning: A key of `MEANINGS`.

    Example:
        >>> doubt(np.linspace(0.1, 0.9, 100), "logit")
        'all scores lie in [0, 1]: if they are probabilities, say so (--probability, or from_probability)'
        >>> doubt(np.linspace(-2.0, 2.0, 100), "logit")
        ''
    """
    x = np.asarray(host_view(as_floats(scores, "scores")), dtype=np.float64)
    x = x[np.isfinite(x)]
    if meaning not in ("log_ratio", "logit") or len(x) < _ENOUGH:
        return ""
    low, high = float(x.min()), float(x.max())
    if low == high:
        return ""  # see `check_spread`
    if low >= 0 and high <= 1:
        return "all scores lie in [0, 1]: if they are probabilities, say so (--probability, or from_probability)"
    mean, median = x.mean(), np.median(x)
    readings = []
    if 0.8 <= mean <= 1.25 or (low < median / 5 and mean > 1.25 * median):
        readings.append("if they are ratios, take their logarithm first")
    if 20 < high <= 100:
        readings.append("if they are percentages, divide by 100 and say --probability")
    if low >= 0 and readings:
        return f"no score is below 0: {'; '.join(readings)}"
    if high < -20:
        return f"all scores lie below {high:.3g}: if they are log-densities, subtract those of the model, log p - log q"
    return ""


def check_spread(scores: Array) -> None:
    """Raise if two or more scores are all the same number.

    Example:
        >>> check_spread([0.5, 0.5, 0.5])
        Traceback (most recent call last):
        obrs.errors.InputError: all 3 scores are 0.5: there is nothing to choose by
    """
    x = np.asarray(host_view(as_floats(scores, "scores")))
    if x.size > 1 and np.all(x == x[0]) and isfinite(x[0]):
        raise InputError(f"all {x.size} scores are {x[0]:g}: there is nothing to choose by")


def as_log_ratio(
    critic: Callable[[Any], Array],
    meaning: str = "logit",
    *,
    beta: float | None = None,
    divergence: str | FDivergence | None = None,
    n_real: float | None = None,
    n_fake: float | None = None,
) -> LogRatio:
    """Turn a critic into the `log_ratio(x)` that samplers take.

    A critic returns one number per sample, of shape `(n,)`; trailing axes of length 1, as a last layer with one
    output leaves them, are dropped. A `critic(x, label)` gets both parts of a batch that is a tuple (x, label) or a
    dict of the two; a torch module of one argument gets the samples alone. For critics with one output per class use
    `from_class_logits` or `from_joint_logits` in a function of the batch, for two log-likelihoods
    `from_log_likelihoods`.

    Args:
        critic: A callable on batches, such as a torch module in eval mode.
        meaning: A key of `MEANINGS`.
        beta: As in `to_log_ratio`.
        divergence: As in `to_log_ratio`.
        n_real: As in `to_log_ratio`.
        n_fake: As in `to_log_ratio`.

    Example:
        >>> log_ratio = as_log_ratio(lambda x: x[:, :1] - 1.0, "logit")
        >>> log_ratio(np.asarray([[3.0, 0.0], [1.0, 0.0]]))
        array([2., 0.])
    """
    if not callable(critic):
        raise InputTypeError(f"critic must be a callable on batches, got {type(critic).__name__}; see to_log_ratio")
    convert = partial(to_log_ratio, meaning=meaning, beta=beta, divergence=divergence, n_real=n_real, n_fake=n_fake)
    convert(np.zeros(0))  # refuses now, not in the middle of sampling

    def log_ratio(x: Any) -> Array:
        return convert(_one_per_sample(_said_of(critic, x)))

    return log_ratio


def _said_of(critic: Callable[..., Any], batch: Any) -> Any:
    """Call a critic with a batch: with its parts if it takes labels, or if it is a module and can only take samples."""
    if not isinstance(batch, tuple | dict) or not (takes_label(critic) or hasattr(critic, "forward")):
        return critic(batch)
    x, label = batch[:2] if isinstance(batch, tuple) and len(batch) > 2 else form_of(batch, "the batch").split(batch)
    return critic(x, label) if label is not None and takes_label(critic) else critic(x)


def at_time(critic: Callable[[Any, Any], Array], t: float) -> LogRatio:
    """Turn a time-conditioned critic of a diffusion model into a `log_ratio(x)` at one time.

    For final images t is the smallest time that it was trained on. Its output is read as a logit and is not clipped.

    Args:
        critic: Called as `critic(x, times)`. `times` has one time per sample, with the device and dtype of x.
        t: The time.

    Example:
        >>> log_ratio = at_time(lambda x, times: x[:, 0] / times, t=0.5)
        >>> log_ratio(np.asarray([[3.0], [1.0]]))
        array([6., 2.])

    References:
        | Refining Generative Process with Discriminator Guidance in Score-based Diffusion Models (Kim et al., 2023)
    """
    if not callable(critic):
        raise InputTypeError(f"critic must be a callable of (x, times), got {type(critic).__name__}")
    if not is_number(t) or not isfinite(t):
        raise InputError(f"t must be one finite time, got {t!r:.60}")

    def log_ratio(x: Array) -> Array:
        times = like(np.full(x.shape[0], float(t)), x)
        return from_logit(_one_per_sample(critic(x, times)))

    return log_ratio


def _log_prior(n_real: Any, n_fake: Any, axes: int = 0) -> Any:
    """Return log(n_real / n_fake), 0 if neither is given; with one axis, of one number or one per class."""
    if n_real is None and n_fake is None:
        return 0.0
    if n_real is None or n_fake is None:
        raise InputError("n_real and n_fake are given together, or not at all")
    real, fake = _counts(n_real, "n_real", axes), _counts(n_fake, "n_fake", axes)
    if real.ndim and fake.ndim and len(real) != len(fake):
        raise InputError(f"n_real and n_fake must be of as many classes, got {len(real)} and {len(fake)}")
    log_prior = np.log(real) - np.log(fake)
    return float(log_prior) if log_prior.ndim == 0 else log_prior


def _counts(n: Any, name: str, axes: int) -> Any:
    value = np.asarray(host_view(as_floats(n, name)), dtype=np.float64)
    if value.ndim > axes:
        expected = "one number, or one per class" if axes else "one number"
        raise InputError(f"{name} must be {expected}, got shape {value.shape}")
    if not np.all((value > 0) & np.isfinite(value)):
        raise InputError(f"{name} must be above 0 and finite, got {value.tolist()!r:.60}")
    return value


def _class_prior(n_real: Any, n_fake: Any, labels: Any, logits: Array) -> Any:
    """Return log(n_real / n_fake) of each sample's class."""
    log_prior = _log_prior(n_real, n_fake, axes=1)
    if isinstance(log_prior, float):
        return log_prior
    if labels.size and labels.max() >= len(log_prior):
        needed = labels.max() + 1
        raise InputError(f"n_real and n_fake must have one number per class, got {len(log_prior)} for {needed}")
    return like(log_prior[labels], logits)


def _by_class(logits: Array, labels: Array, per_class: int = 1) -> tuple[Array, Any]:
    """Check logits of shape (n, columns) and their labels; the labels are returned in NumPy memory."""
    x, y = as_floats(logits, "logits"), as_labels(labels, "labels")
    if x.ndim != 2 or x.shape[1] % per_class or not x.shape[1]:
        columns = "classes" if per_class == 1 else f"{per_class} * classes"
        raise InputError(f"logits must have shape (n, {columns}), got {tuple(x.shape)}")
    if y.shape != (x.shape[0],):
        raise InputError(f"labels must have shape ({x.shape[0]},), one per row of logits, got {y.shape}")
    classes = x.shape[1] // per_class
    if y.size and not (y.min() >= 0 and y.max() < classes):
        raise InputError(f"labels must be from 0 to {classes - 1}, got {y.min()} to {y.max()}")
    return x, y


def _column(x: Array, column: Any) -> Array:
    """Return one number of each row, from the column with this index."""
    xp = array_namespace(x)
    at = np.arange(x.shape[0]) * x.shape[1] + column
    return xp.take(xp.reshape(x, (-1,)), like(at, x, dtype=xp.int64), axis=0)


def _rounding(p: Any, x: Array) -> float:
    """Return the precision of p, which is less than that of x where half precision was widened."""
    half = {"bfloat16": 2.0**-7, "float16": 2.0**-10}
    eps = array_namespace(x).finfo(x.dtype).eps
    return float(next((value for kind, value in half.items() if kind in str(getattr(p, "dtype", ""))), eps))


def _check_probabilities(values: Any, rounding: float) -> None:
    """Refuse numbers that are no probabilities, and those that are 1; warn of those close to 1."""
    if values is None or not values.size:
        return
    if bad := np.count_nonzero(~((values >= 0) & (values <= 1))):
        raise InputError(f"p must be between 0 and 1, {bad} of {values.size} are not; if they are logits, say so")
    if ones := np.count_nonzero(values == 1):
        raise RatioError(
            f"{ones} of {values.size} probabilities are 1: the sigmoid has saturated and the ratio is lost; "
            "give logits instead"
        )
    if near := np.count_nonzero(values > 1 - 16 * rounding):
        warnings.warn(
            f"{near} of {values.size} probabilities are so near 1 that rounding changes their log-ratio by per cent; "
            "give logits instead",
            stacklevel=3,
        )


def _check_densities(log_p: Array, log_q: Array) -> None:
    on_one_device(log_p, log_q, "log_p", "log_q")
    if tuple(log_p.shape) != tuple(log_q.shape):
        raise InputError(f"log_p and log_q must have one shape, got {tuple(log_p.shape)} and {tuple(log_q.shape)}")
    values = host_view(log_q)
    if values is not None and (bad := np.count_nonzero(~np.isfinite(values))):
        raise RatioError(
            f"log_q has {bad} of {values.size} values that are not finite; a sample of the model has q > 0, "
            "score it with the model that made it"
        )


def _temperature(beta: Any, baseline: Any) -> tuple[float, float]:
    if not is_number(beta) or not 0 < float(beta) < inf:
        shown = f"{float(beta):g}" if is_number(beta) else f"{beta!r:.60}"
        raise InputError(f"beta must be above 0 and finite, got {shown}")
    if not is_number(baseline) or not isfinite(baseline):
        raise InputError(f"baseline must be a finite number, got {baseline!r:.60}")
    return float(beta), float(baseline)


def _check_options(name: str, meaning: Meaning, given: dict[str, Any]) -> None:
    """Raise if an option of this meaning is missing, or if one belongs to another meaning."""
    for key in meaning.needs:
        if key not in given:
            raise InputError(f"scores that are a {name} need {key}: they are {meaning.says}")
    for key in given:
        if key not in meaning.needs + meaning.takes:
            owners = " or ".join(other for other, m in MEANINGS.items() if key in m.needs + m.takes)
            raise InputError(f"{key} is for scores that are a {owners}, not a {name}")


def _one_per_sample(scores: Any) -> Array:
    if not is_array_api_obj(scores):
        raise InputTypeError(f"a critic must return an array, got {type(scores).__name__}")
    if scores.ndim == 0 or any(size != 1 for size in scores.shape[1:]):
        raise InputError(
            f"a critic must return one number per sample, shape (n,) or (n, 1), got {tuple(scores.shape)}; "
            "if it has one per class, see from_class_logits"
        )
    return array_namespace(scores).reshape(scores, (scores.shape[0],))
