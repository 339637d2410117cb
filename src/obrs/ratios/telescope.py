"""Telescoping: a ratio of two distributions that hardly meet, as a product of ratios of neighbours."""

from dataclasses import dataclass
from itertools import pairwise
from math import pi
from typing import Any

from .._inputs import check_count
from ..fitting.loop import check_rate
from .descent import descend, logistic_loss
from .linear import common_axes, logistic_regression
from .pairs import Task, Tensor
from .scorers import Scorer, embed, standardise

__all__ = ["Telescope", "bridge_losses", "bridge_scores"]

_POOL = 20000  # samples of each kind for the quadratic functions
_MANY = 40  # numbers in a sample up to which all products of two are taken; above it, squares along common axes


@dataclass(frozen=True)
class Telescope:
    """Fit the ratios between waymarks that lead from the model to the data, and add up their logarithms.

    A classifier that never errs knows that r is large, not how large. Waymarks x_k = cos(t_k) x_fake + sin(t_k) x_real,
    t_k = (π/2) k / bridges, are close enough for their classifiers to err. One network scores all bridges: each is a
    quadratic function of the standardised sample, exact between Gaussians, plus a head on a common mlp. Samples of more
    than 40 numbers are turned to the axes along which neither set is correlated; there, squares are all it takes.

    Args:
        bridges: How many ratios; more for sets that are farther apart.
        width, layers: Units and hidden layers of the mlp.
        lr: Learning rate.

    Example:
        >>> import numpy as np
        >>> from obrs.ratios.refit import refit
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(4.0, 1.0, (1000, 1)), rng.normal(0.0, 1.0, (1000, 1))
        >>> fitted = refit(real, fake, Telescope(4, width=16), steps=100)
        >>> len(fitted.report.bridges)
        4

    References:
        | Telescoping Density-Ratio Estimation (Rhodes et al., 2020)
    """

    bridges: int = 8
    width: int = 64
    layers: int = 2
    lr: float = 3e-3

    def __post_init__(self) -> None:
        for name in ("bridges", "width", "layers"):
            check_count(getattr(self, name), name)
        check_rate(self.lr)

    def fit(self, task: Task) -> tuple[Scorer, Any]:
        """Fit all bridges at once: first the quadratic functions, then what the mlp can add."""
        import torch

        from ..models.registry import build

        real, fake = task.pool(min(task.real.size, _POOL))
        module = torch.nn.ModuleDict()
        standardise(module, torch.cat([real, fake]))
        numbers = module.shift.numel()
        if numbers > _MANY:
            axes, squared = common_axes(*(embed(module, x).flatten(1) for x in (real, fake)))
            module.register_buffer("axes", axes)
            module.register_buffer("squared", squared)
        features = [_quadratic(module, embed(module, x).flatten(1)) for x in _waymarks(real, fake, self.bridges)]
        lines = [logistic_regression(far, near) for near, far in pairwise(features)]
        module.register_buffer("weight", torch.stack([weight for weight, _ in lines], dim=1).float())
        module.register_buffer("constant", torch.stack([constant for _, constant in lines]).float())
        sizes = [numbers, *[self.width] * self.layers, self.bridges]
        with task.seeded():
            module["body"] = build({"name": "mlp", "sizes": sizes, "activation": "silu"}).to(task.device)
        torch.nn.init.zeros_(module["body"][-1].weight)
        torch.nn.init.zeros_(module["body"][-1].bias)
        outcome = descend(module, _loss, lambda m: float(_held_out(m, task).mean()), task, lr=self.lr)
        return Scorer("telescope", module), outcome


def bridge_scores(module: Any, x: Tensor) -> Tensor:
    """Return the log-ratio of each bridge, shape `(n, bridges)`."""
    x = embed(module, x).flatten(1)
    return module["body"](x) + _quadratic(module, x) @ module.weight + module.constant


def bridge_losses(scorer: Scorer, task: Task) -> tuple[float, ...]:
    """Return the held-out log-loss of each bridge, from the model to the data; () for what is no telescope."""
    return tuple(float(loss) for loss in _held_out(scorer.module, task)) if scorer.kind == "telescope" else ()


def _held_out(module: Any, task: Task) -> Tensor:
    import torch

    n = min(len(task.held_real), len(task.held_fake))
    with torch.no_grad():
        return _losses(module, task.held_real[:n], task.held_fake[:n])


def _loss(module: Any, real: Tensor, fake: Tensor) -> Tensor:
    return _losses(module, real, fake).sum()


def _losses(module: Any, real: Tensor, fake: Tensor) -> Tensor:
    """Return the log-loss of every bridge on samples of its two ends."""
    bridges = len(module.constant)
    waymarks = _waymarks(real, fake, bridges)
    scores = bridge_scores(module, waymarks.flatten(0, 1)).reshape(bridges + 1, len(real), bridges)
    near, far = (part.diagonal(dim1=0, dim2=2) for part in (scores[:-1], scores[1:]))
    return logistic_loss(far, near)


def _waymarks(real: Tensor, fake: Tensor, bridges: int) -> Tensor:
    """Return fakes, bridges - 1 sets of mixtures, and real samples, along a new first axis."""
    import torch

    angle = torch.linspace(0.0, pi / 2, bridges + 1, device=real.device).reshape(-1, *[1] * real.ndim)
    return angle.cos() * fake + angle.sin() * real


def _quadratic(module: Any, x: Tensor) -> Tensor:
    """Return the numbers and their products; where there are many, those along common axes and their squares."""
    import torch

    if hasattr(module, "axes"):
        x = x @ module.axes
        return torch.cat([x, x[:, module.squared] ** 2], dim=1)
    row, column = torch.triu_indices(x.shape[1], x.shape[1], device=x.device)
    return torch.cat([x, x[:, row] * x[:, column]], dim=1)
