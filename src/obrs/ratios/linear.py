"""Logistic regression to the last digit: the convex part of a fit."""

from typing import Any

from ..errors import InputError
from .descent import logistic_loss
from .pairs import Tensor

__all__ = ["logistic_regression", "whitening"]

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
