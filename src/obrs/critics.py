"""Kinds of scores, and how each becomes a log-ratio.

`KINDS` lists what one number per sample may be, `WITHOUT_RATIO` the critics whose outputs have no log-ratio. The
functions `from_...` are the formulas, also for outputs of another form: one logit per class, or two log-likelihoods.
They keep the library, dtype and device of the scores, and gradients pass through them.
"""

from collections.abc import Callable
from functools import partial
from math import inf, log
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from ._arrays import array_like, as_floats, check_same_device, host_view
from ._checks import check_labels, check_positive, is_number
from ._text import lookup
from .divergences import FDivergence
from .divergences import divergence as find_divergence
from .errors import DivergenceError, InputError, InputTypeError, RatioError
from .types import Array, LogRatio

__all__ = ["FINE_TUNE", "FROM_SCRATCH", "KINDS", "WITHOUT_RATIO", "at_time", "check_scores", "from_class_logits"]
__all__ += ["from_critic", "from_log_likelihoods", "from_logit"]
__all__ += ["from_probability", "from_reward", "from_weight", "to_log_ratio", "wrap_critic"]

FINE_TUNE = "obrs.refit(real, propose, obrs.ratios.refit.FineTune(critic))"
"""The call, as code, that turns a critic without a log-ratio into one that has it."""
FROM_SCRATCH = "obrs.refit(real, propose, obrs.ratios.refit.Network())"
"""The call, as code, that fits a new log-ratio."""


def from_logit(logit: Array, *, n_real: float | None = None, n_fake: float | None = None) -> Array:
    """Return the log-ratio of a classifier that was trained to tell real from fake with the logistic loss.

    Args:
        logit: Its output before the sigmoid, high for real samples.
        n_real, n_fake: How many real and fake samples it was trained on; only needed if it saw more of one than of the
            other. If the loss gave weights to the two, multiply each number by its weight.

    Example:
        >>> from_logit([-2.0, 0.0, 3.0])
        array([-2.,  0.,  3.])
        >>> from_logit([0.0], n_real=1000, n_fake=4000).round(3)
        array([1.386])
    """
    x = as_floats(logit, "logit")
    if n_real is None and n_fake is None:
        return x
    return x - log(check_positive(n_real, "n_real") / check_positive(n_fake, "n_fake"))


def from_probability(p: Array, *, n_real: float | None = None, n_fake: float | None = None) -> Array:
    """Return `log p - log(1 - p)`, if all you have is the probability of being real.

    Use logits if you can: near 1 a rounded probability has lost most digits of the logit, and a probability of 1 is
    refused. 0 means r = 0.

    Args:
        p: Probabilities, from 0 to below 1.
        n_real, n_fake: As in `from_logit`.

    Example:
        >>> from_probability([0.0, 0.5, 0.8]).round(3)
        array([ -inf, 0.   , 1.386])
    """
    x = as_floats(p, "p")
    values = host_view(x)
    if values is not None and (bad := np.count_nonzero(~((values >= 0) & (values <= 1)))):
        raise InputError(f"p must be between 0 and 1, {bad} of {values.size} are not; if they are logits, say so")
    if values is not None and (ones := np.count_nonzero(values == 1)):
        lost = "the sigmoid has saturated and the ratio is lost; give logits instead"
        raise RatioError(f"{ones} of {values.size} probabilities are 1: {lost}")
    xp = array_namespace(x)
    inside = xp.where(x == 0, 0.5, x)  # log 0 would poison the gradients of the others
    logit = xp.where(x == 0, -inf, xp.log(inside) - xp.log1p(-inside))
    return from_logit(logit, n_real=n_real, n_fake=n_fake)


def from_critic(t: Array, divergence: str | FDivergence) -> Array:
    """Return `log (f*)'(t)`, the log-ratio of an f-GAN's critic T after its output activation.

    The critic of a "gan" is T = log D, which rounds to 0 where D is almost 1: the log-ratio is +inf there. If you have
    the logit before the activation, pass that to `from_logit` instead. The total variation and the precision-recall
    divergence have no log-ratio: their critics only tell whether p is above q.

    Args:
        t: Outputs of the critic. Those beyond its range give the limit, -inf or +inf.
        divergence: The divergence it was trained with: a key of `DIVERGENCES` or a record.

    Example:
        >>> from_critic([1.0, 2.5], "kl")
        array([0. , 1.5])

    References:
        | f-GAN: Training Generative Neural Samplers using Variational Divergence Minimization (Nowozin et al., 2016)
    """
    try:
        return find_divergence(divergence).log_ratio(t)
    except DivergenceError as error:
        raise DivergenceError(f"{error}; to make a log-ratio of this one: {FINE_TUNE}") from error


def from_class_logits(logits: Array, labels: Array) -> Array:
    """Return log p(x|y) - log q(x|y) of a critic with one logit, real against fake, for each class.

    If the critic was not trained on as many real samples of each class as fakes, subtract
    `log(n_real / n_fake)[labels]`.

    Args:
        logits: Shape `(n, classes)`.
        labels: The class that each sample was made for, integers of shape `(n,)`.

    Example:
        >>> from_class_logits([[0.5, -1.0], [2.0, 3.0]], [0, 1])
        array([0.5, 3. ])
    """
    x = as_floats(logits, "logits")
    if x.ndim != 2 or not x.shape[1]:
        raise InputError(f"logits must have shape (n, classes), got {tuple(x.shape)}")
    xp = array_namespace(x)
    index = np.arange(x.shape[0]) * x.shape[1] + _class_numbers(labels, x, x.shape[1])
    return xp.take(xp.reshape(x, (-1,)), array_like(index, x, dtype=xp.int64), axis=0)


def from_log_likelihoods(log_p: Array, log_q: Array) -> Array:
    """Return `log p - log q`; log p may lack a constant, and -inf means that p is 0.

    Args:
        log_p: Log-density of the target at samples of the model.
        log_q: Log-density of the model at the same samples, finite.

    Example:
        >>> from_log_likelihoods([-10.0, -float("inf")], [-12.0, -3.0])
        array([  2., -inf])
    """
    p, q = as_floats(log_p, "log_p"), as_floats(log_q, "log_q")
    check_same_device(p, q, "log_p", "log_q")
    if tuple(p.shape) != tuple(q.shape):
        raise InputError(f"log_p and log_q must have one shape, got {tuple(p.shape)} and {tuple(q.shape)}")
    values = host_view(q)
    if values is not None and (bad := np.count_nonzero(~np.isfinite(values))):
        raise RatioError(
            f"log_q has {bad} of {values.size} values that are not finite; a sample of the model has q > 0, "
            "score it with the model that made it"
        )
    return p - q


def from_reward(reward: Array, beta: float) -> Array:
    """Return the log-ratio to the target q(x) exp(reward / beta), up to a constant.

    Args:
        reward: Rewards; -inf forbids a sample.
        beta: The temperature, above 0; the lower, the more the reward counts.

    Example:
        >>> from_reward([1.0, 3.0], beta=0.5)
        array([2., 6.])
    """
    return as_floats(reward, "reward") / check_positive(beta, "beta")


def from_weight(weight: Array) -> Array:
    """Return `log |w|`, the log-ratio of events with weights of either sign.

    Example:
        >>> from_weight([-1.0, 1.0])
        array([0., 0.])
    """
    x = as_floats(weight, "weight")
    xp = array_namespace(x)
    with np.errstate(divide="ignore"):
        return xp.log(xp.abs(x))


KINDS: dict[str, Callable[..., Array]] = {
    "log_ratio": partial(as_floats, name="log_ratio"),
    "logit": from_logit,
    "probability": from_probability,
    "reward": from_reward,
    "weight": from_weight,
    "f_critic": from_critic,
}
"""What one number per sample may be, by name, with the formula of its log-ratio."""

WITHOUT_RATIO = {
    "hinge": "the output of a hinge critic is no log-ratio: its optimum is the sign of p - q, whatever their ratio",
    "wgan": "the output of a Wasserstein critic is no log-ratio: its slope is bounded, not tied to p / q",
    "lsgan": "the output of a least-squares critic is no log-ratio: it is not held between its two targets",
}
"""Why the outputs of these critics are no log-ratios."""


def to_log_ratio(
    scores: Array, kind: str, *, beta: float | None = None, divergence: str | FDivergence | None = None
) -> Array:
    """Turn scores into log-ratios.

    Args:
        scores: One number per sample.
        kind: What they are, a key of `KINDS`.
        beta: The temperature of a "reward".
        divergence: The divergence that the "f_critic" was trained with.

    Example:
        >>> to_log_ratio([1.0, 3.0], "reward", beta=0.5)
        array([2., 6.])
        >>> to_log_ratio([1.0, -1.0], "hinge")
        Traceback (most recent call last):
        obrs.errors.InputError: the output of a hinge critic is no log-ratio: its optimum is the sign of p - q, \
whatever their ratio; make it one with obrs.refit(real, propose, obrs.ratios.refit.FineTune(critic))
    """
    formula: Any = lookup({**KINDS, **WITHOUT_RATIO}, kind, "kind of scores")
    if kind in WITHOUT_RATIO:
        raise InputError(f"{formula}; make it one with {FINE_TUNE}")
    options = {"reward": beta, "f_critic": divergence}
    if any(value is not None and owner != kind for owner, value in options.items()):
        raise InputError(f"beta is for a reward and divergence for an f_critic; these scores are a {kind}")
    return formula(scores, options[kind]) if kind in options else formula(scores)


def check_scores(scores: Array, kind: str) -> str:
    """Return why scores are unlikely to be of this kind, in one line, or "" if they may be.

    Scores that are all the same number are an error. Log-ratios lie on both sides of 0, as the mean ratio of proposals
    is 1. So this looks at scores on one side of it: in [0, 1] like probabilities, with mean 1 or a long tail from 0 on
    like ratios, up to 100 like percentages, or far below 0 like log-densities. Other scores on one side of 0 pass: a
    constant changes no rule at a budget.

    Args:
        scores: One number per sample; those that are not finite are left out.
        kind: A key of `KINDS`.

    Example:
        >>> check_scores(np.linspace(0.1, 0.9, 100), "logit")
        'all scores lie in [0, 1]: if they are probabilities, their kind is probability'
        >>> check_scores(np.linspace(-2.0, 2.0, 100), "logit")
        ''
        >>> check_scores([0.5, 0.5, 0.5], "logit")
        Traceback (most recent call last):
        obrs.errors.InputError: all scores are 0.5: there is nothing to choose by
    """
    x = np.asarray(host_view(as_floats(scores, "scores")), dtype=np.float64).reshape(-1)
    if x.size > 1 and np.all(x == x[0]) and np.isfinite(x[0]):
        raise InputError(f"all scores are {x[0]:g}: there is nothing to choose by")
    x = x[np.isfinite(x)]
    lookup({**KINDS, **WITHOUT_RATIO}, kind, "kind of scores")
    if kind not in ("log_ratio", "logit") or len(x) < 20 or np.all(x == x[0]):  # too few to tell by their range
        return ""
    low, high, mean, median = x.min(), x.max(), x.mean(), np.median(x)
    if low >= 0 and high <= 1:
        return "all scores lie in [0, 1]: if they are probabilities, their kind is probability"
    readings = []
    if 0.8 <= mean <= 1.25 or (low < median / 5 and mean > 1.25 * median):
        readings.append("if they are ratios, take their logarithm first")
    if 20 < high <= 100:
        readings.append("if they are percentages, divide by 100: their kind is probability")
    if low >= 0 and readings:
        return f"no score is below 0: {'; '.join(readings)}"
    if high < -20:
        return f"all scores lie below {high:.3g}: if they are log-densities, subtract those of the model, log p - log q"
    return ""


def wrap_critic(
    critic: Callable[..., Array],
    kind: str = "logit",
    *,
    beta: float | None = None,
    divergence: str | FDivergence | None = None,
) -> LogRatio:
    """Turn a critic into the `log_ratio(x)` that samplers take.

    A critic returns one number per sample, of shape `(n,)`; trailing axes of length 1, as a last layer with one
    output leaves them, are dropped. A batch that is a tuple becomes the arguments of the critic: `critic(x, label)`.
    For critics with one output per class use `from_class_logits` in a function of the batch, for
    two log-likelihoods `from_log_likelihoods`.

    Args:
        critic: A callable on batches, such as a torch module in eval mode.
        kind: A key of `KINDS`.
        beta, divergence: As in `to_log_ratio`.

    Example:
        >>> log_ratio = wrap_critic(lambda x: x[:, :1] - 1.0, "logit")
        >>> log_ratio(np.asarray([[3.0, 0.0], [1.0, 0.0]]))
        array([2., 0.])
    """
    if not callable(critic):
        raise InputTypeError(f"critic must be a callable on batches, got {type(critic).__name__}; see to_log_ratio")
    convert = partial(to_log_ratio, kind=kind, beta=beta, divergence=divergence)
    convert(np.zeros(0))  # refuses now, not in the middle of sampling

    def log_ratio(x: Any) -> Array:
        return convert(_one_per_sample(critic(*x) if isinstance(x, tuple) else critic(x)))

    return log_ratio


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
    if not callable(critic) or not is_number(t):
        raise InputTypeError(f"at_time takes a callable of (x, times) and one time, got {critic!r:.60} and {t!r:.60}")
    return wrap_critic(lambda x: critic(x, array_like(np.full(x.shape[0], float(t)), x)))


def _class_numbers(labels: Array, logits: Array, classes: int) -> Any:
    """Return one class for each row of the logits, as NumPy integers."""
    y = check_labels(labels, "labels")
    if y.shape != (logits.shape[0],):
        raise InputError(f"labels must have shape ({logits.shape[0]},), one per row of logits, got {y.shape}")
    if y.size and not (y.min() >= 0 and y.max() < classes):
        raise InputError(f"labels must be from 0 to {classes - 1}, got {y.min()} to {y.max()}")
    return y


def _one_per_sample(scores: Any) -> Array:
    if not is_array_api_obj(scores):
        raise InputTypeError(f"a critic must return an array, got {type(scores).__name__}")
    if scores.ndim == 0 or any(size != 1 for size in scores.shape[1:]):
        raise InputError(
            f"a critic must return one number per sample, shape (n,) or (n, 1), got {tuple(scores.shape)}; "
            "if it has one per class, see from_class_logits"
        )
    return array_namespace(scores).reshape(scores, (scores.shape[0],))
