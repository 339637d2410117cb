"""Logistic regression to the last digit: the convex part of a fit."""

from math import sqrt
from typing import Any

from ..errors import InputError
from .descent import logistic_loss
from .pairs import Tensor

__all__ = ["common_axes", "logistic_regression", "whitening"]

_RIDGE = 1e-6


def whitening(x: Tensor) -> Tensor:
    """Return the matrix that makes features `(n, k)` uncorrelated, of variance 1, leaving out what does not vary.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0, 1.0, 5.0], [2.0, 3.0, 5.0], [4.0, 0.0, 5.0], [1.0, 1.0, 5.0]])
        >>> torch.cov((x @ whitening(x)).T).round(decimals=3).abs()
        tensor([[1., 0.],
                [0., 1.]])
    """
    import torch

    variance, axes = torch.linalg.eigh(torch.atleast_2d(torch.cov(x.T)))
    kept = variance > 1e-6 * variance.max()
    if not bool(kept.any()):
        raise InputError(f"features are constant over {len(x)} samples: they tell nothing apart")
    return axes[:, kept] / variance[kept].sqrt()


def common_axes(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return axes `(k, m)` along which neither of two sets is correlated, and which of them differ in spread.

    Between Gaussians the log-ratio is a sum of linear functions and squares along these axes, and so it is between
    their mixtures cos(t) x_fake + sin(t) x_real. With spreads that differ by no more than chance makes them, an axis
    has nothing to add but noise. What does not vary is left out.

    Example:
        >>> import torch
        >>> z = torch.randn(2, 4000, 2, generator=torch.Generator().manual_seed(0))
        >>> real = z[0] @ torch.tensor([[1.0, 0.9], [0.0, 0.4]])
        >>> axes, told = common_axes(real, z[1])
        >>> torch.cov((real @ axes).T)[0, 1].abs() < 1e-3, torch.cov((z[1] @ axes).T)[0, 1].abs() < 1e-3, len(told)
        (tensor(True), tensor(True), 2)
    """
    import torch

    centred = [(x - x.mean(0)).double() for x in (real, fake)]
    axes = whitening(torch.cat(centred))
    ours, theirs = (torch.atleast_2d(torch.cov((x @ axes).T)) for x in centred)
    spread, turn = torch.linalg.eigh((ours - theirs) / 2)
    chance = sqrt(axes.shape[1] * (1 / len(real) + 1 / len(fake)))  # edge of the spectrum between two equal Gaussians
    return (axes @ turn).to(real.dtype), torch.nonzero(spread.abs() > chance)[:, 0]


def logistic_regression(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights `(k,)` and the constant of the log-ratio that is linear in features `(n, k)`.

    Both kinds count the same, whatever their numbers. L-BFGS on whitened features, in float64.

    Example:
        >>> import torch
        >>> z = torch.linspace(0.0005, 0.9995, 1000, dtype=torch.float64).erfinv()[:, None]  # N(0, 1/2), half of it
        >>> z = torch.cat([-z, z])
        >>> weight, constant = logistic_regression(z + 1, z)  # log-ratio 2 x - 1
        >>> print(f"{weight[0]:.1f} {constant:.1f}")
        2.0 -1.0
    """
    import torch

    both = torch.cat([real, fake]).double()
    centre, axes = both.mean(0), whitening(both)
    both = (both - centre) @ axes
    w = torch.zeros(both.shape[1] + 1, dtype=both.dtype, device=both.device, requires_grad=True)
    search = torch.optim.LBFGS([w], max_iter=500, history_size=30, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

    def closure() -> Any:
        search.zero_grad()
        score = both @ w[:-1] + w[-1]
        loss = logistic_loss(score[: len(real)], score[len(real) :]) + _RIDGE * (w[:-1] ** 2).sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        search.step(closure)
    weight = axes @ w[:-1].detach()
    return weight, w[-1].detach() - centre @ weight
