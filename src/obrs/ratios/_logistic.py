"""Logistic regression on two or three parameters, without a penalty: Newton's method in float64."""

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np

from ..errors import InputError

__all__ = ["fit_logistic", "refuse_separation"]

Floats = np.ndarray[Any, Any]

# A feature this many times larger than 99 % of them is told to the last bit by any slope that is not flat.
_FAR = 1e10


def fit_logistic(
    real: Sequence[Floats], fake: Sequence[Floats], counts: tuple[int, int], *, intercept: bool = True
) -> tuple[list[float], float]:
    """Return the coefficients that tell real from fake best, the intercept or 0 last, and the log-loss they leave.

    The logit of a sample is its log-ratio plus the log of how many real samples there are per fake one. That
    constant is no parameter: the coefficients are those of the log-ratio, whatever the sizes of both sets.

    Args:
        real: One array of length n per feature.
        fake: The same features of the fake samples.
        counts: Numbers of real and fake samples; fakes with r = 0, sure to be told, count but are left out of `fake`.
        intercept: Whether the log-ratio may be other than 0 where all features are 0.
    """
    columns = [np.concatenate(both) for both in zip(real, fake, strict=True)]
    centre = np.asarray([float(np.median(column)) if intercept else 0.0 for column in columns])
    rows = [column - c for column, c in zip(columns, centre, strict=True)]
    rows += [np.ones_like(rows[0])] if intercept else []
    scale = np.asarray([_typical(row) for row in rows])
    sign = np.repeat([1.0, -1.0], [len(real[0]), len(fake[0])])
    x = np.stack([np.clip(row / s, -_FAR, _FAR) for row, s in zip(rows, scale, strict=True)]) * sign
    prior = log(counts[0] / counts[1]) * sign
    few = slice(None, None, max(1, len(sign) // 20_000))  # a fit to few samples is a good start for all
    start = _minimise(x[:, few], prior[few], np.zeros(len(x)))[0]
    theta, loss = _minimise(x, prior, start)
    theta = theta / scale
    slopes = theta[: len(columns)]
    constant = float(theta[-1] - slopes @ centre) if intercept else 0.0
    return [*map(float, slopes), constant], loss


def _minimise(x: Floats, prior: Floats, start: Floats) -> tuple[Floats, float]:
    """Return where the mean of `log(1 + exp(-(theta x + prior)))` is least, and that minimum."""
    n = x.shape[1]

    def at(theta: Floats) -> tuple[float, Floats, Floats]:
        z = theta @ x + prior
        return float(np.sum(np.maximum(-z, 0.0) + np.log1p(np.exp(-np.abs(z))))) / n, z, theta

    loss, z, theta = min(at(start), at(np.zeros_like(start)), key=lambda found: found[0])
    for _ in range(200):
        missed = (1 - np.tanh(z / 2)) / 2  # the probability of the wrong label
        gradient = -(x @ missed) / n
        step = -_solve((x * (missed * (1 - missed))) @ x.T / n, gradient)
        decrement = -float(gradient @ step)
        size, new = 1.0, at(theta + step)
        while decrement > 1e-12 and new[0] > loss - 1e-4 * size * decrement and size > 1e-9:
            size /= 2
            new = at(theta + size * step)
        loss, z, theta = new
        if decrement < 1e-18:  # each step squares it
            break
    return theta, loss


def refuse_separation(real: Floats, fake: Floats, threshold: float | None = None) -> None:
    """Raise if no slope is too steep: every real score is above a threshold and every fake one below it.

    Args:
        real: Scores of real samples.
        fake: Scores of fake samples.
        threshold: Where an increasing map without an intercept has its zero; None if it may lie anywhere.
    """
    lowest, highest = real.min(), fake.max(initial=-np.inf)
    if threshold is None:
        apart = lowest >= highest and max(real.max(), highest) > min(lowest, fake.min(initial=np.inf))
    else:
        apart = lowest >= threshold >= highest and (real.max() > threshold or fake.min(initial=threshold) < threshold)
    if apart:
        raise InputError(
            f"no slope fits: all {len(real)} real scores are above all {len(fake)} fake ones; "
            "add held-out samples, or fit the ratio in steps with a Telescope"
        )


def _typical(column: Floats) -> float:
    """Return a size that a few extreme values do not decide, and that can be divided by."""
    size = np.abs(column)
    return max(float(np.quantile(size, 0.99)) or float(size.mean()), 1e-290)


def _solve(hessian: Floats, gradient: Floats) -> Floats:
    """Return Newton's step; along a direction that the data do not tell, it is 0."""
    spread = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
    return np.asarray(np.linalg.lstsq(hessian / np.outer(spread, spread), gradient / spread, rcond=1e-13)[0] / spread)
