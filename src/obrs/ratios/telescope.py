"""Telescoping: the ratio of two distributions that hardly overlap, as a product of ratios between neighbours."""

from dataclasses import dataclass
from itertools import pairwise
from math import pi, sqrt
from typing import Any

from .._inputs import check_count, check_positive
from .methods import Fit, Scorer, embed, standardise, start_at_chance, whitening
from .task import Task, Tensor, fit_network, logistic_loss

__all__ = ["Telescope", "bridge_losses", "common_axes", "logistic_regression", "telescope_scores"]

_PILOT = 20000  # samples of each kind for the quadratic functions
_MANY = 40  # up to so many numbers in a sample all products of two are features; above, squares along common axes
_RIDGE = 1e-6


@dataclass(frozen=True)
class Telescope:
    """Fit the ratios between waymarks that lead from the model to the data, and add up their logarithms.

    A classifier that makes no errors knows that r is large, but not how large. The waymarks
    x_k = cos(t_k) x_fake + sin(t_k) x_real, with t_k = (π/2) k / bridges, are so close to each other that classifiers
    between them make errors. The ratio between two of them, a bridge, is a quadratic function of the standardised
    sample, which is exact between Gaussians, plus one output of an mlp that all bridges share. A sample of more than
    40 numbers is first turned to the axes along which neither set is correlated; there squares are enough.

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
        check_positive(self.lr, "lr")

    def fit(self, task: Task) -> Fit:
        """Fit all bridges at once: first the quadratic functions, then the mlp."""
        import torch

        from ..models.registry import build

        real, fake = task.pilot(min(task.real.size, _PILOT))
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
        start_at_chance(module["body"][-1])

        def loss(module: Any, real: Tensor, fake: Tensor) -> Tensor:
            return _losses(module, real, fake).sum()

        def held_out_loss(module: Any) -> float:
            return float(_held_out_losses(module, task).mean())

        course = fit_network(module, loss, held_out_loss, task, lr=self.lr)
        return Fit(Scorer(telescope_scores, module), course, fakes=course.steps * task.batch_size)


def telescope_scores(scorer: Scorer, module: Any, x: Tensor) -> Tensor:
    """Return the sum of the log-ratios of all bridges."""
    return _bridge_scores(module, x).sum(1)


def _bridge_scores(module: Any, x: Tensor) -> Tensor:
    """Return the log-ratio of each bridge, shape `(n, bridges)`."""
    x = embed(module, x).flatten(1)
    return module["body"](x) + _quadratic(module, x) @ module.weight + module.constant


def bridge_losses(scorer: Scorer, task: Task) -> tuple[float, ...]:
    """Return the held-out log-loss of each bridge, from the model to the data; () if the scorer is no telescope."""
    if scorer.score is not telescope_scores:
        return ()
    return tuple(float(loss) for loss in _held_out_losses(scorer.module, task))


def _held_out_losses(module: Any, task: Task) -> Tensor:
    import torch

    n = min(len(task.held_real), len(task.held_fake))
    with torch.no_grad():
        return _losses(module, task.held_real[:n], task.held_fake[:n])


def _losses(module: Any, real: Tensor, fake: Tensor) -> Tensor:
    """Return the log-loss of every bridge, on samples of the two waymarks that it joins."""
    bridges = len(module.constant)
    waymarks = _waymarks(real, fake, bridges)
    scores = _bridge_scores(module, waymarks.flatten(0, 1)).reshape(bridges + 1, len(real), bridges)
    near, far = (part.diagonal(dim1=0, dim2=2) for part in (scores[:-1], scores[1:]))
    return logistic_loss(far, near)


def _waymarks(real: Tensor, fake: Tensor, bridges: int) -> Tensor:
    """Return fakes, bridges - 1 sets of mixtures, and real samples, along a new first axis."""
    import torch

    angle = torch.linspace(0.0, pi / 2, bridges + 1, device=real.device).reshape(-1, *[1] * real.ndim)
    return angle.cos() * fake + angle.sin() * real


def _quadratic(module: Any, x: Tensor) -> Tensor:
    """Return the numbers and all products of two; of many numbers, those along common axes and their squares."""
    import torch

    if hasattr(module, "axes"):
        x = x @ module.axes
        return torch.cat([x, x[:, module.squared] ** 2], dim=1)
    row, column = torch.triu_indices(x.shape[1], x.shape[1], device=x.device)
    return torch.cat([x, x[:, row] * x[:, column]], dim=1)


def common_axes(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return axes `(k, m)` along which neither of two sets is correlated, and those along which their spreads differ.

    Between Gaussians the log-ratio is a sum of linear functions and squares along these axes. The same is true between
    the mixtures cos(t) x_fake + sin(t) x_real. If two spreads differ by no more than chance explains, the square would
    only add noise. Directions without any variation are left out.

    Example:
        >>> import torch
        >>> z = torch.randn(2, 4000, 2, generator=torch.Generator().manual_seed(0))
        >>> real = z[0] @ torch.tensor([[1.0, 0.9], [0.0, 0.4]])
        >>> axes, differ = common_axes(real, z[1])
        >>> torch.cov((real @ axes).T)[0, 1].abs() < 1e-3, torch.cov((z[1] @ axes).T)[0, 1].abs() < 1e-3, len(differ)
        (tensor(True), tensor(True), 2)
    """
    import torch

    centred = [(x - x.mean(0)).double() for x in (real, fake)]
    axes = whitening(torch.cat(centred))
    of_real, of_fake = (torch.atleast_2d(torch.cov((x @ axes).T)) for x in centred)
    spread, turn = torch.linalg.eigh((of_real - of_fake) / 2)
    chance = sqrt(axes.shape[1] * (1 / len(real) + 1 / len(fake)))  # edge of the spectrum between two equal Gaussians
    return (axes @ turn).to(real.dtype), torch.nonzero(spread.abs() > chance)[:, 0]


def logistic_regression(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights `(k,)` and the constant of the log-ratio that is linear in features `(n, k)`.

    Both kinds have the same weight, whatever their numbers. L-BFGS on whitened features, in float64.

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
