"""What the output of a critic means: the one place where a score becomes a log-ratio.

`MEANINGS` has what one number per sample may mean, by name, and the scores that are no log-ratio, with what to do about
them. The formulas are in `conversions.py`, those for critics with labels and for two log-likelihoods among them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from .._arrays import as_floats, like
from .._inputs import is_number
from .._names import lookup
from ..divergences import FDivergence
from ..errors import InputError, InputTypeError
from ..types import Array, LogRatio
from .conversions import (
    FINE_TUNE,
    from_class_logits,
    from_critic,
    from_joint_logits,
    from_log_likelihoods,
    from_logit,
    from_open_logits,
    from_probability,
    from_reward,
)

__all__ = [
    "MEANINGS",
    "Meaning",
    "as_log_ratio",
    "at_time",
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


@dataclass(frozen=True)
class Meaning:
    """What a score is, and how it becomes a log-ratio.

    Args:
        says: What the score is, in words.
        log_ratio: Makes log-ratios of scores; takes the options below by name.
        needs: Options that must be given.
        takes: Options that may be given.
        lost: Why the score is no log-ratio, and no map makes it one; empty if it is.
    """

    says: str
    log_ratio: Callable[..., Array]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    lost: str = ""


def _refused(kind: str, why: str) -> Meaning:
    def refuse(scores: Array) -> Array:
        raise InputError(f"{lost}; make it one with {FINE_TUNE}")

    lost = f"{kind} is no log-ratio: {why}"
    return Meaning(f"{kind}: {why}", refuse, lost=lost)


_COUNTS = ("n_real", "n_fake")
MEANINGS: dict[str, Meaning] = {
    "log_ratio": Meaning("log p(x) - log q(x)", lambda scores: as_floats(scores, "log_ratio")),
    "logit": Meaning("the logit of a classifier, real against fake", from_logit, takes=_COUNTS),
    "probability": Meaning("the probability of being real", from_probability, takes=_COUNTS),
    "reward": Meaning("a reward; the target is q(x) exp(reward / beta)", from_reward, needs=("beta",)),
    "f_critic": Meaning("the critic T of an f-GAN", from_critic, needs=("divergence",)),
    "hinge": _refused("the output of a hinge critic", "at its optimum it is the sign of p - q, whatever their ratio"),
    "wgan": _refused("the output of a Wasserstein critic", "its slope is bounded, not tied to p / q"),
    "lsgan": _refused("the output of a least-squares critic", "it is not held between its two targets"),
}
"""What one number per sample may mean, by name; the last three are refused, with the call that repairs them."""


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
        divergence: What the "f_critic" was trained with.
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
    known, given = _meaning(meaning, {"beta": beta, "divergence": divergence, "n_real": n_real, "n_fake": n_fake})
    return known.log_ratio(scores, **given)


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
    output leaves them, are dropped. For critics that need labels use `from_class_logits` or `from_joint_logits` in a
    function of the batch, for two log-likelihoods `from_log_likelihoods`.

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
        return convert(_one_per_sample(critic(x)))

    return log_ratio


def at_time(discriminator: Callable[[Any, Any], Array], t: float) -> LogRatio:
    """Turn a time-conditioned discriminator of a diffusion model into a `log_ratio(x)` at one time.

    For final images t is the smallest time that it was trained on. Its output is a logit, so that there is nothing
    to clip.

    Args:
        discriminator: Called as `discriminator(x, times)`, with one time per sample where x lives, in its dtype.
        t: The time.

    Example:
        >>> log_ratio = at_time(lambda x, times: x[:, 0] / times, t=0.5)
        >>> log_ratio(np.asarray([[3.0], [1.0]]))
        array([6., 2.])

    References:
        | Refining Generative Process with Discriminator Guidance in Score-based Diffusion Models (Kim et al., 2023)
    """
    if not callable(discriminator):
        raise InputTypeError(f"discriminator must be a callable of (x, times), got {type(discriminator).__name__}")
    if not is_number(t) or not isfinite(t):
        raise InputError(f"t must be one finite time, got {t!r:.60}")

    def log_ratio(x: Array) -> Array:
        times = like(np.full(x.shape[0], float(t)), x)
        return from_logit(_one_per_sample(discriminator(x, times)))

    return log_ratio


def _meaning(name: Any, options: dict[str, Any]) -> tuple[Meaning, dict[str, Any]]:
    """Return the meaning with this name, and the options given to it, or say which is missing or too many."""
    meaning = lookup(MEANINGS, name, "meaning of scores")
    given = {key: value for key, value in options.items() if value is not None}
    for key in meaning.needs:
        if key not in given:
            raise InputError(f"scores that are a {name} need {key}: they are {meaning.says}")
    for key in given:
        if key not in meaning.needs + meaning.takes:
            owners = " or ".join(other for other, m in MEANINGS.items() if key in m.needs + m.takes)
            raise InputError(f"{key} is for scores that are a {owners}, not a {name}")
    return meaning, given


def _one_per_sample(scores: Any) -> Array:
    if not is_array_api_obj(scores):
        raise InputTypeError(f"a critic must return an array, got {type(scores).__name__}")
    if scores.ndim == 0 or any(size != 1 for size in scores.shape[1:]):
        raise InputError(
            f"a critic must return one number per sample, shape (n,) or (n, 1), got {tuple(scores.shape)}; "
            "if it has one per class, see from_class_logits"
        )
    return array_namespace(scores).reshape(scores, (scores.shape[0],))
