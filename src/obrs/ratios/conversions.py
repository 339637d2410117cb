"""From what a critic returns to a log-ratio, formula by formula.

Each function keeps the library, dtype and device of what it is given, and lets gradients through. None forms a
probability from a logit, so that outputs may be as large as floats are; what overflows is infinite, NaN stays NaN, and
whoever samples or calibrates is told.
"""

import warnings
from math import inf, isfinite
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from .._arrays import as_floats, host_view, like, on_one_device
from .._inputs import as_labels, is_number
from ..divergences import FDivergence
from ..divergences import divergence as divergence_of
from ..errors import DivergenceError, InputError, RatioError
from ..types import Array

__all__ = [
    "FINE_TUNE",
    "FROM_SCRATCH",
    "from_class_logits",
    "from_critic",
    "from_joint_logits",
    "from_log_likelihoods",
    "from_logit",
    "from_open_logits",
    "from_probability",
    "from_reward",
]

FINE_TUNE = "obrs.refit(real, propose, obrs.ratios.refit.FineTune(critic))"
"""The call that makes a log-ratio of a critic that has none, as code."""
FROM_SCRATCH = "obrs.refit(real, propose, obrs.ratios.refit.Network())"
"""The call that fits a new one."""


def from_logit(logit: Array, *, n_real: float | None = None, n_fake: float | None = None) -> Array:
    """Return the log-ratio of a classifier that was trained to tell real from fake with the logistic loss.

    Args:
        logit: Its output before the sigmoid, high for real samples.
        n_real: How many real samples it was trained on, if not as many as fake ones; their share counts, not their
            number. A class that is weighted in the loss counts as often as its weight says.
        n_fake: How many fake ones.

    Example:
        >>> from_logit([-2.0, 0.0, 3.0])
        array([-2.,  0.,  3.])
        >>> from_logit([0.0], n_real=1000, n_fake=4000).round(3)
        array([1.386])
    """
    shift = _log_prior(n_real, n_fake)
    x = as_floats(logit, "logit")
    with np.errstate(all="ignore"):
        return x - shift if shift else x


def from_probability(p: Array, *, n_real: float | None = None, n_fake: float | None = None) -> Array:
    """Return `log p - log(1 - p)`, for those who have nothing but the probability of being real.

    Near 1 a probability has lost what the logit knew: a warning counts those whose log-ratio is wrong in the second
    digit, and a probability of 1 is refused. A probability of 0 is r = 0.

    Args:
        p: Probabilities, from 0 to below 1.
        n_real: As in `from_logit`.
        n_fake: As in `from_logit`.

    Example:
        >>> from_probability([0.0, 0.5, 0.8]).round(3)
        array([ -inf, 0.   , 1.386])
    """
    shift = _log_prior(n_real, n_fake)
    half = {"bfloat16": 2.0**-7, "float16": 2.0**-10}  # what is widened was rounded before
    x = as_floats(p, "p")
    xp = array_namespace(x)
    rounding = next((eps for kind, eps in half.items() if kind in str(getattr(p, "dtype", ""))), xp.finfo(x.dtype).eps)
    _check_probabilities(host_view(x), float(rounding))
    safe = xp.where((x == 0) | (x == 1), 0.5, x)
    log_ratio = xp.log(safe) - xp.log1p(-safe) - shift
    out = xp.where(x == 0, -inf, xp.where(x == 1, inf, log_ratio))
    return np.asarray(out) if isinstance(x, np.ndarray) else out  # NumPy turns 0-d arrays into scalars


def from_critic(t: Array, divergence: str | FDivergence) -> Array:
    """Return `log (f*)'(t)`, the log-ratio of an f-GAN's critic T after its output activation.

    What lies beyond the range of the critic gives the limit, -inf or +inf; a warning counts the latter. The critic of a
    "gan" is T = log D, which float32 rounds to 0 from a logit of 17 to 104 on, as it was computed: if the logit before
    the activation is at hand, pass that to `from_logit`. The total variation and the
    precision-recall divergence have no such inverse: their critics tell one side from the other, nothing more.

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
    given, values = host_view(x), host_view(log_ratio)
    if given is not None and values is not None and (lost := np.count_nonzero((values == inf) & (given < inf))):
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
    x, y = _by_class(logits, labels, "logits")
    with np.errstate(all="ignore"):
        return _taken(x, y) - _class_prior(n_real, n_fake, y, x)


def from_joint_logits(logits: Array, labels: Array, *, n_real: Any = None, n_fake: Any = None) -> Array:
    """Return log p(x|y) - log q(x|y) of a classifier into classes of real samples, then the same classes of fakes.

    Args:
        logits: Shape `(n, 2 classes)`: columns 0 to C-1 are real, C to 2C-1 fake.
        labels: The class that each sample was made for, integers of shape `(n,)`.
        n_real: Real samples in training, if not as many as fakes: a number, or one per class.
        n_fake: Fake samples in training, likewise.

    Example:
        >>> from_joint_logits([[1.0, 0.0, -2.0, 5.0]], [0])
        array([3.])
    """
    x, y = _by_class(logits, labels, "logits", per_class=2)
    with np.errstate(all="ignore"):
        return _taken(x, y) - _taken(x, y + x.shape[1] // 2) - _class_prior(n_real, n_fake, y, x)


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
    shift = _log_prior(n_real, n_fake)
    x = as_floats(logits, "logits")
    if x.ndim != 2 or x.shape[1] < 2:
        raise InputError(f"logits must have shape (n, classes + 1), got {tuple(x.shape)}")
    xp = array_namespace(x)
    real = x[:, :-1]
    top = xp.max(real, axis=1, keepdims=True)
    top = xp.where(xp.isinf(top), 0.0, top)
    with np.errstate(all="ignore"):
        return xp.log(xp.sum(xp.exp(real - top), axis=1)) + top[:, 0] - x[:, -1] - shift


def from_log_likelihoods(log_p: Array, log_q: Array) -> Array:
    """Return `log p - log q`; log p may lack a constant, and -inf says that the target never makes the sample.

    Args:
        log_p: Log-density of the target at samples of the model.
        log_q: Log-density of the model there, finite.

    Example:
        >>> from_log_likelihoods([-10.0, -float("inf")], [-12.0, -3.0])
        array([  2., -inf])
    """
    p, q = as_floats(log_p, "log_p"), as_floats(log_q, "log_q")
    on_one_device(p, q, "log_p", "log_q")
    if tuple(p.shape) != tuple(q.shape):
        raise InputError(f"log_p and log_q must have one shape, got {tuple(p.shape)} and {tuple(q.shape)}")
    values = host_view(q)
    if values is not None and (bad := np.count_nonzero(~np.isfinite(values))):
        raise RatioError(
            f"log_q has {bad} of {values.size} values that are not finite; a sample of the model has q > 0, "
            "score it with the model that made it"
        )
    with np.errstate(all="ignore"):
        return p - q


def from_reward(reward: Array, beta: float, *, baseline: float = 0.0) -> Array:
    """Return the log-ratio to the target q(x) exp(reward / beta), up to a constant.

    Args:
        reward: Rewards; -inf forbids a sample.
        beta: The temperature, above 0; the lower, the more the reward counts.
        baseline: Is taken from the reward first. No rule depends on it; rewards of 1e300 may need it.

    Example:
        >>> from_reward([1.0, 3.0], beta=0.5)
        array([2., 6.])
    """
    if not is_number(beta) or not 0 < float(beta) < inf:
        shown = f"{float(beta):g}" if is_number(beta) else f"{beta!r:.60}"
        raise InputError(f"beta must be above 0 and finite, got {shown}")
    if not is_number(baseline) or not isfinite(baseline):
        raise InputError(f"baseline must be a finite number, got {baseline!r:.60}")
    x = as_floats(reward, "reward")
    if float(beta) < float(array_namespace(x).finfo(x.dtype).smallest_normal):
        raise InputError(f"beta {float(beta):g} is too small for {x.dtype}; give rewards in float64 or a larger beta")
    with np.errstate(all="ignore"):
        return (x - float(baseline)) / float(beta) if baseline else x / float(beta)


def _log_prior(n_real: Any, n_fake: Any, axes: int = 0) -> Any:
    """Return log(n_real / n_fake), 0 if neither is given; with one axis, of one number or one per class."""
    if n_real is None and n_fake is None:
        return 0.0
    if n_real is None or n_fake is None:
        raise InputError("n_real and n_fake are given together, or not at all")
    logs = []
    for n, name in ((n_real, "n_real"), (n_fake, "n_fake")):
        value = np.asarray(host_view(as_floats(n, name)), dtype=np.float64)
        if value.ndim > axes:
            expected = "one number, or one per class" if axes else "one number"
            raise InputError(f"{name} must be {expected}, got shape {value.shape}")
        if not np.all((value > 0) & np.isfinite(value)):
            raise InputError(f"{name} must be above 0 and finite, got {value.tolist()!r:.60}")
        logs.append(np.log(value))
    if logs[0].ndim and logs[1].ndim and len(logs[0]) != len(logs[1]):
        raise InputError(f"n_real and n_fake must be of as many classes, got {len(logs[0])} and {len(logs[1])}")
    shift = logs[0] - logs[1]
    return float(shift) if shift.ndim == 0 else shift


def _class_prior(n_real: Any, n_fake: Any, labels: Any, logits: Array) -> Any:
    """Return log(n_real / n_fake) of each sample's class."""
    shift = _log_prior(n_real, n_fake, axes=1)
    if isinstance(shift, float):
        return shift
    if labels.size and labels.max() >= len(shift):
        raise InputError(f"n_real and n_fake must have one number per class, got {len(shift)} for {labels.max() + 1}")
    return like(shift[labels], logits)


def _by_class(logits: Array, labels: Array, name: str, per_class: int = 1) -> tuple[Array, Any]:
    """Return logits of shape (n, columns) and labels in NumPy memory that fit them."""
    x, y = as_floats(logits, name), as_labels(labels, "labels")
    if x.ndim != 2 or x.shape[1] % per_class or not x.shape[1]:
        columns = "classes" if per_class == 1 else f"{per_class} * classes"
        raise InputError(f"{name} must have shape (n, {columns}), got {tuple(x.shape)}")
    if y.shape != (x.shape[0],):
        raise InputError(f"labels must have shape ({x.shape[0]},), one per row of {name}, got {y.shape}")
    classes = x.shape[1] // per_class
    if y.size and not (y.min() >= 0 and y.max() < classes):
        raise InputError(f"labels must be from 0 to {classes - 1}, got {y.min()} to {y.max()}")
    return x, y


def _taken(x: Array, column: Any) -> Array:
    """Return one column of each row."""
    xp = array_namespace(x)
    at = np.arange(x.shape[0]) * x.shape[1] + column
    return xp.take(xp.reshape(x, (-1,)), like(at, x, dtype=xp.int64), axis=0)


def _check_probabilities(values: Any, rounding: float) -> None:
    """Refuse what is no probability or has saturated, and warn of what is about to."""
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
