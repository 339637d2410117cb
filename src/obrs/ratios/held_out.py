"""Held-out scores of real and fake samples: checked in one place, and their log-loss."""

from typing import Any, NamedTuple

import numpy as np

from .._arrays import as_floats, host_view
from ..errors import InputError, InputTypeError, RatioError
from ..types import Array

__all__ = ["LogLoss", "held_out", "known_scores", "log_loss", "losses", "mean_of_means"]

Floats = np.ndarray[Any, Any]


class LogLoss(NamedTuple):
    """A mean log-loss in nats and its standard error; log 2 = 0.693 is what knowing nothing costs."""

    value: float
    standard_error: float


def held_out(log_ratio_real: Array, log_ratio_fake: Array, *, least: int = 1, what: str = "this") -> tuple[Any, Any]:
    """Return the scores of both sets as float64 in NumPy memory, or raise one line.

    Args:
        log_ratio_real: Scores of real samples, shape `(n,)` or `(n, 1)`, all finite.
        log_ratio_fake: Scores of fake samples, likewise; -inf says r = 0.
        least: How many of each are needed.
        what: Who needs them.
    """
    real, fake = _scores(log_ratio_real, "log_ratio_real"), _scores(log_ratio_fake, "log_ratio_fake")
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


def known_scores(scores: Array, name: str) -> Floats:
    """Return one number per sample as float64 in NumPy memory, NaN and infinities among them, or raise one line.

    Args:
        scores: Shape `(n,)`; trailing axes of length 1, as a last layer with one output leaves them, are dropped.
        name: What to call them.

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


def _scores(scores: Array, name: str) -> Floats:
    values = known_scores(scores, name)
    nans, tops = int(np.count_nonzero(np.isnan(values))), int(np.count_nonzero(values == np.inf))
    if nans or tops:
        kind = "NaN or +inf" if nans and tops else "NaN" if nans else "+inf"
        raise RatioError(f"{name} has {nans + tops} {kind} among {len(values)} values; check the critic first")
    return values


def losses(log_ratio_real: Floats, log_ratio_fake: Floats) -> tuple[Floats, Floats]:
    """Return what each sample costs: minus the log-probability of its label, both labels being as likely."""
    return np.logaddexp(0.0, -log_ratio_real), np.logaddexp(0.0, log_ratio_fake)


def log_loss(log_ratio_real: Array, log_ratio_fake: Array) -> LogLoss:
    """Return the mean log-loss of a log-ratio as a classifier of real against fake, both weighing one half.

    The true log-ratio has the least; log 2 minus that is the Jensen-Shannon divergence.

    Args:
        log_ratio_real: Log-ratios of held-out real samples.
        log_ratio_fake: Log-ratios of fake samples.

    Example:
        >>> log_loss([0.0, 0.0], [0.0, 0.0, 0.0])
        LogLoss(value=0.6931471805599453, standard_error=0.0)
    """
    return mean_of_means(*losses(*held_out(log_ratio_real, log_ratio_fake)))


def mean_of_means(real: Floats, fake: Floats) -> LogLoss:
    """Return the mean of both means, each kind weighing one half, and its standard error."""
    error = float(np.sqrt(real.var() / len(real) + fake.var() / len(fake))) / 2
    return LogLoss(float(real.mean() + fake.mean()) / 2, error)
