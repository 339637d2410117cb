"""Telescoping: the ratio of two distributions that hardly overlap, as a product of ratios between neighbours."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from .._inputs import check_count, check_positive
from ..errors import InputError
from .labelled import Labelled, encode_labels, join, label_index, label_numbers, parts
from .methods import Fit, Network, Scorer, add_waves, embed, standardise, start_at_chance, whitening
from .task import Task, Tensor, fit_network, logistic_loss
from .telescope_check import check_telescope
from .waymarks import common_axes, labelled_waymarks, paired

__all__ = ["Telescope", "bridge_losses", "logistic_regression", "telescope_scores"]

_PILOT = 20000  # samples of each kind for the quadratic functions
_MANY = 40  # up to so many numbers in a sample all products of two are features; above, squares along common axes
_ROUNDS = 10  # how often a real sample is mixed for the quadratic functions, at most
_RIDGE = 1e-6


@dataclass(frozen=True)
class Telescope:
    """Fit the ratios between waymarks that lead from the model to the data, and add up their logarithms.

    A classifier that makes no errors knows that r is large, but not how large. The waymarks
    x_k = cos(t_k) x_fake + sin(t_k) x_real, with t_k = (π/2) k / bridges, are so close to each other that classifiers
    between them make errors. The ratio between two of them, a bridge, is a quadratic function of the standardised
    sample, which is exact between Gaussians, plus one output of an mlp that all bridges share. A sample of more than
    40 numbers is first turned to the axes along which neither set is correlated; there squares are enough. The sum of
    all bridges is a classifier between the data and the model, and its loss is minimised with theirs: where the two
    sets meet, errors of bridges that would add up are seen.

    With labels, each fake is mixed with a real sample of its own label, so that a waymark has one; how often each label
    comes up in both sets is then added from counts. Labels must be integers.

    Args:
        bridges: How many ratios; more for sets that are farther apart.
        width, layers: Units and hidden layers of the mlp.
        waves: If a sample has up to 8 numbers, the mlp also gets the sine and cosine of this many random projections
            of it. Without them it does not see thin modes, and most bridges lead from or to some. 0 for none.
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
    waves: int = 64
    lr: float = 3e-3

    def __post_init__(self) -> None:
        for name in ("bridges", "width", "layers"):
            check_count(getattr(self, name), name)
        check_count(self.waves, "waves", least=0)
        check_positive(self.lr, "lr")

    def fit(self, task: Task) -> Fit:
        """Fit all bridges, then check their sum by other fits."""
        fitted = self._fit(task)
        rival = Network("mlp", width=self.width, layers=self.layers, lr=self.lr)
        bridges = partial(_bridge_scores, fitted.scorer.module)
        return fitted._replace(checks=check_telescope(self._fit, bridges, rival, task, bridges=self.bridges))

    def _fit(self, task: Task) -> Fit:
        """Fit all bridges at once: first the quadratic functions, then the mlp."""
        import torch

        from ..models.registry import build

        if task.form.label is not None and task.form.known is None:
            raise InputError("Telescope mixes samples of one label, and floats hardly repeat; use Network() instead")
        pilot = task.pilot(min(_ROUNDS * task.real.size, _PILOT))  # few real samples are mixed with several fakes each
        module = torch.nn.ModuleDict()
        numbers = encode_labels(module, task.form, pilot[0])
        if numbers:
            module.register_buffer("log_prior", _log_prior(module, *pilot))
        real, fake = paired(*pilot)
        standardise(module, torch.cat([parts(real)[0], parts(fake)[0]]))
        numbers += module.shift.numel()
        if numbers > _MANY:
            axes, squared = common_axes(*(embed(module, parts(x)[0]).flatten(1) for x in (real, fake)))
            module.register_buffer("axes", axes)
            module.register_buffer("squared", squared)
        features = [_quadratic(module, *_inputs(module, x)) for x in labelled_waymarks(real, fake, self.bridges)]
        lines = [logistic_regression(far, near) for near, far in pairwise(features)]
        module.register_buffer("weight", torch.stack([weight for weight, _ in lines], dim=1).float())
        module.register_buffer("constant", torch.stack([constant for _, constant in lines]).float())
        inputs = numbers + add_waves(module, self.waves, task)
        sizes = [inputs, *[self.width] * self.layers, self.bridges]
        with task.seeded():
            module["body"] = build({"name": "mlp", "sizes": sizes, "activation": "silu"}).to(task.device)
        start_at_chance(module["body"][-1])

        def loss(module: Any, real: Tensor, fake: Tensor) -> Tensor:
            bridges, whole = _losses(module, real, fake)
            return bridges.sum() + whole

        def held_out_loss(module: Any) -> float:
            bridges, whole = _held_out_losses(module, task)
            return float((bridges.sum() + whole) / (len(bridges) + 1))

        course = fit_network(module, loss, held_out_loss, task, lr=self.lr)
        return Fit(Scorer(telescope_scores, module), course, fakes=course.steps * task.batch_size)


def telescope_scores(scorer: Scorer, module: Any, batch: Any) -> Tensor:
    """Return the sum of the log-ratios of all bridges, and that of the label."""
    label = parts(batch)[1]
    total = _bridge_scores(module, batch).sum(1)
    return total if label is None else total + module.log_prior[label_index(module, label)]


def _bridge_scores(module: Any, batch: Any) -> Tensor:
    """Return the log-ratio of each bridge, shape `(n, bridges)`."""
    import torch

    x, label = _inputs(module, batch)
    both = x if label is None else torch.cat([x, label], dim=1)
    return module["body"](both) + _quadratic(module, x, label) @ module.weight + module.constant


def _inputs(module: Any, batch: Any) -> tuple[Tensor, Tensor | None]:
    """Return standardised samples as rows, with their waves, and the numbers of their labels."""
    x, label = parts(batch)
    return embed(module, x).flatten(1), None if label is None else label_numbers(module, label)


def bridge_losses(scorer: Scorer, task: Task) -> tuple[float, ...]:
    """Return the held-out log-loss of each bridge, from the model to the data; () if the scorer is no telescope."""
    if scorer.score is not telescope_scores:
        return ()
    return tuple(float(loss) for loss in _held_out_losses(scorer.module, task)[0])


def _held_out_losses(module: Any, task: Task) -> tuple[Tensor, Tensor]:
    import torch

    with torch.no_grad():
        return _losses(module, task.held_real, task.held_fake)


def _losses(module: Any, real: Any, fake: Any) -> tuple[Tensor, Tensor]:
    """Return the log-loss of every bridge, on samples of the two waymarks that it joins, and that of their sum."""
    bridges = len(module.constant)
    waymarks = labelled_waymarks(*paired(real, fake), bridges)
    scores = _bridge_scores(module, join(waymarks)).reshape(bridges + 1, -1, bridges)
    near, far = (part.diagonal(dim1=0, dim2=2) for part in (scores[:-1], scores[1:]))
    return logistic_loss(far, near), logistic_loss(scores[-1].sum(1), scores[0].sum(1))


def _log_prior(module: Any, real: Labelled, fake: Labelled) -> Tensor:
    """Return how much more often each label comes up among real samples than among fakes, as a logarithm."""
    counts = [label_numbers(module, batch.label).sum(0) + 0.5 for batch in (real, fake)]  # half a sample: never log 0
    shares = [count / count.sum() for count in counts]
    return (shares[0] / shares[1]).log()


def _quadratic(module: Any, x: Tensor, label: Tensor | None) -> Tensor:
    """Return the numbers and all products of two; of many numbers, those along common axes and their squares."""
    import torch

    x = x[:, : module.shift.numel()]  # without waves
    own = [] if label is None else [label]
    if hasattr(module, "axes"):
        x = x @ module.axes
        return torch.cat([x, x[:, module.squared] ** 2, *own], dim=1)
    x = torch.cat([x, *own], dim=1)
    row, column = torch.triu_indices(x.shape[1], x.shape[1], device=x.device)
    return torch.cat([x, x[:, row] * x[:, column]], dim=1)


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
