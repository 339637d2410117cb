"""Averages under the target from kept samples, with their errors: what is known of how a run stopped decides how.

A proposal x is kept with probability a(x), and a kept one weighs w = r/a. Let y = w g(x) if x is kept and 0 if not: its
mean over the proposals is that of g under the target, if E_Q[r] = 1. So

* "unbiased" is the mean of y. If the number N of proposals was fixed in advance it is sum(w g)/N. A run that stops at
  its n-th acceptance always ends with a kept sample: without that one it is sum(w g)/(N - 1), unbiased for n >= 2 and a
  fixed rule. In both cases the sample variance of the y that count, divided by their number, estimates its variance
  without bias.
* "self_normalised" is sum(w g)/sum(w), of which the scale of r cancels. To first order its error is the sum of
  w (g - mean)/sum(w), so its variance is the sum of the squares (the delta method), however the run stopped.

Runs of one rate that stop at a kept sample are one such run if they are put in a row, so one sample is left out of them
all. Runs that stopped in other ways, or at a kept sample but with another rate, are averaged with weights that were
known before: the proposals that were to be expected.

Exactly n of a pool are kept with probabilities pi, and r/pi is their weight: sum(w g)/N is the estimator of Horvitz and
Thompson, unbiased although pi depends on the pool. Its variance has two parts. That of the pool is sum(pi y^2)/N^2 less
mean^2/N. That of the choice, with n fixed, does not change if a constant B is added to all y, so it is that of
independent choices with the best B subtracted: sum((1 - pi) (y - B)^2)/N^2 (Hájek). B = 0 would give the variance of
independent choices, which is larger. The self-normalised mean uses it: there g - mean is centred already and B hardly
matters, so its interval is a little too wide rather than too narrow.

References:
    | On a Method of Estimating Frequencies (Haldane, 1945)
    | A Generalization of Sampling without Replacement from a Finite Universe (Horvitz & Thompson, 1952)
    | Asymptotic Theory of Rejective Sampling with Varying Probabilities from a Finite Population (Hájek, 1964)
    | Monte Carlo Theory, Methods and Examples (Owen, 2013), Ch. 9
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._checks import check_confidence
from .._text import lookup
from ..errors import InputError
from ..estimate import Estimate

__all__ = ["ESTIMATORS", "Run", "average", "merged"]

Floats = np.ndarray[Any, Any]

STOPS = ("kept", "proposals", "pool", "early")
_REMEDIES = {
    "self_normalised": "divide g by a number",
    "unbiased": "divide g by a number, or take the scale off the weights: estimator='self_normalised'",
    "plain": "divide g by a number",
}


@dataclass(frozen=True)
class Run:
    """How a run stopped: what an average must know about it.

    Args:
        stopped: "kept" at a number of kept samples fixed in advance, "proposals" at a number of proposals, "pool" if
            exactly n of a pool were chosen, "early" if it was to stop at a number of kept samples and was cut short.
        kept: Samples that it kept.
        proposed: Proposals that it took.
        rate: The rate that its rule was fitted for, known before it began; 1 if there was none.

    Example:
        >>> Run("kept", kept=10, proposed=31, rate=0.4).size
        25.0
    """

    stopped: str
    kept: int
    proposed: int
    rate: float = 1.0

    def __post_init__(self) -> None:
        if self.stopped not in STOPS:
            raise InputError(f"a run stopped at one of {', '.join(STOPS)}, got {self.stopped!r}")

    @property
    def size(self) -> float:
        """Proposals that were to be expected before it began; its weight among runs that stopped in other ways."""
        return self.kept / self.rate if self.stopped in ("kept", "early") else float(self.proposed)


class _Kept(NamedTuple):
    """What was kept, with weights relative to the largest; rows are samples, columns the entries of g."""

    g: Floats
    weight: Floats
    log_a: Floats
    scale: Any

    def at(self, rows: Any) -> "_Kept":
        return _Kept(self.g[rows], self.weight[rows], self.log_a[rows], self.scale)


class _Found(NamedTuple):
    """An average and its variance, which is NaN where too few samples were kept."""

    value: Floats
    variance: Floats


def average(
    values: Floats,
    log_weight: Floats,
    log_ratio: Floats,
    runs: Sequence[Run],
    estimator: str,
    confidence: float | None,
) -> Any:
    """Average the rows of `values` by an estimator of `ESTIMATORS`; with a confidence, return an `Estimate`."""
    find = lookup(ESTIMATORS, estimator, "estimator")
    if confidence is not None:
        check_confidence(confidence)
    shape = values.shape[1:]
    largest = float(np.max(log_weight))
    largest = largest if np.isfinite(largest) else 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # a scale that is far from E_Q[r] = 1; log-ratios that are NaN
        kept = _Kept(
            values.reshape(len(values), -1),
            np.exp(log_weight - largest),
            np.minimum(log_ratio - log_weight, 0.0),
            np.exp(largest),
        )
        found = find(kept, runs)
    value = found.value.reshape(shape)[()]
    sound = bool(np.isfinite(values).all())
    if sound and not np.isfinite(value).all():
        raise InputError(f"the average is beyond the range of floats; {_REMEDIES[estimator]}")
    if confidence is None:
        return value
    error = np.sqrt(found.variance).reshape(shape)[()]
    if np.isnan(error).any() and not np.isnan(value).any():
        raise InputError(f"an interval needs at least 2 kept samples that count, {len(values)} were kept; keep more")
    if sound and not np.isfinite(error).all():
        raise InputError(f"the error of the average is beyond the range of floats; {_REMEDIES[estimator]}")
    return Estimate.around(value, error, confidence)


def merged(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Put neighbours together that stopped in the same way: in a row they are one run. Pools stay apart."""
    out: list[Run] = []
    for run in runs:
        last = out[-1] if out else None
        if last and last.stopped == run.stopped != "pool" and last.rate == run.rate:
            out[-1] = Run(run.stopped, last.kept + run.kept, last.proposed + run.proposed, run.rate)
        else:
            out.append(run)
    return tuple(out)


def _self_normalised(kept: _Kept, runs: Sequence[Run]) -> _Found:
    share = kept.weight / np.sum(kept.weight)
    value = share @ kept.g
    return _Found(value, share**2 @ (kept.g - value) ** 2 * _small(len(share)))


def _plain(kept: _Kept, runs: Sequence[Run]) -> _Found:
    return _self_normalised(kept._replace(weight=np.ones(len(kept.weight))), runs)


def _unbiased(kept: _Kept, runs: Sequence[Run]) -> _Found:
    """Average each kind of run by itself, then all with weights that were known before."""
    if not runs:
        raise InputError(
            "the unbiased average must know how the run stopped, and these samples do not say; use "
            "estimator='self_normalised'"
        )
    found, sizes = [], []
    for key, rows, some in _kinds(runs):
        part, proposed = kept.at(rows), sum(run.proposed for run in some)
        if any(run.stopped == "kept" for run in some):
            if len(rows) < 2:
                raise InputError("the unbiased average of a run that stopped at its 1st kept sample has none to count")
            part, proposed = kept.at(rows[:-1]), proposed - 1
        found.append((_of_pool if some[0].stopped == "pool" else _of_proposals)(part, proposed))
        sizes.append(float(proposed) if key == "proposals" else sum(run.size for run in some))
    weight = np.array(sizes) / sum(sizes)
    value = np.tensordot(weight, [part.value for part in found], axes=1)
    return _Found(value, np.tensordot(weight**2, [part.variance for part in found], axes=1))


def _kinds(runs: Sequence[Run]) -> list[tuple[Any, Floats, list[Run]]]:
    """Return runs that may be averaged as one, with what they have in common and the rows of their samples.

    Runs that stopped at a kept sample are one such run in a row, and a run that was cut short is the head of one. That
    needs one rate: the last run of another rate would leave out a sample of its own kind for all.
    """
    collected = {run.rate for run in runs if run.stopped == "kept"}
    ends = np.cumsum([run.kept for run in runs])
    groups: dict[Any, tuple[list[Floats], list[Run]]] = {}
    for i, run in enumerate(runs):
        in_a_row = run.stopped == "kept" or (run.stopped == "early" and run.rate in collected)
        key: Any = i if run.stopped == "pool" else ("kept", run.rate) if in_a_row else "proposals"
        rows, some = groups.setdefault(key, ([], []))
        rows.append(np.arange(ends[i] - run.kept, ends[i]))
        some.append(run)
    return [(key, np.concatenate(rows), some) for key, (rows, some) in groups.items()]


def _of_proposals(kept: _Kept, proposed: int) -> _Found:
    """Return the mean of y over the proposals, those with y = 0 included."""
    y = kept.weight[:, None] * kept.g
    mean = np.sum(y, axis=0) / proposed
    spread = np.sum(y**2, axis=0) / proposed - mean**2
    variance = spread / (proposed - 1) if proposed > 1 and len(y) > 1 else np.full_like(mean, np.nan)
    return _Found(kept.scale * mean, kept.scale**2 * np.maximum(variance, 0.0))


def _of_pool(kept: _Kept, proposed: int) -> _Found:
    """Return the estimate of Horvitz and Thompson, with Hájek's variance of the choice and that of the pool."""
    y, pi = kept.weight[:, None] * kept.g, np.exp(kept.log_a)[:, None]
    mean = np.sum(y, axis=0) / proposed
    chance = 1 - pi
    centre = np.sum(chance * y, axis=0) / max(float(np.sum(chance)), 1e-300)
    choice = np.sum(chance * (y - centre) ** 2, axis=0) * _small(len(y))
    pool = np.sum(pi * y**2, axis=0) - proposed * mean**2
    variance = (choice + np.maximum(pool, 0.0)) / proposed**2
    return _Found(kept.scale * mean, kept.scale**2 * variance)


def _small(n: int) -> float:
    """Return the factor n/(n - 1) of a variance about a fitted mean."""
    return n / (n - 1) if n > 1 else np.nan


ESTIMATORS: Mapping[str, Callable[[_Kept, Sequence[Run]], _Found]] = {
    "self_normalised": _self_normalised,
    "unbiased": _unbiased,
    "plain": _plain,
}
"""How to average, by name."""
