"""A point of a landscape around a generator: directions among its weights, and what is left after rejection there.

The divergence at a point is a lower bound, measured on samples that the ratio has not seen. A classifier of real and
fake samples gives log r. With u = r Z/a the inequality of Fenchel and Young says that E_P[f'(u)] - E_kept[f*(f'(u))] is
at most D_f(P||kept), for every budget, and equal to it if r is the true ratio. One fit serves all budgets.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from obrs.budget import Cut
from obrs.divergences import FDivergence, divergence
from obrs.estimate import Estimate
from obrs.fitting.seeds import keyed
from obrs.models.mlp import mlp_critic
from obrs.profile import Profile
from obrs.ratios.evidence import Pair
from obrs.ratios.refit import FineTune, FittedRatio, Network, refit

__all__ = ["Components", "Left", "Sets", "direction", "fit_ratio", "left", "moved"]

_BATCH = 256


def direction(weights: Mapping[str, Tensor], seed: int, *key: str | int) -> dict[str, Tensor]:
    """Return a random direction among weights, filter-normalised: each filter has the norm of that of the weights.

    The filters of a linear layer are the rows of its matrix, one for each unit that it feeds. Biases stay where they
    are, as in the pictures of the reference.

    Args:
        weights: The weights by name.
        seed: Decides the direction, together with the key.
        key: What the direction is for.

    Example:
        >>> net = mlp_critic(2, width=3, layers=1)
        >>> found = direction(dict(net.named_parameters()), 0, "x")
        >>> bool(torch.allclose(found["1.weight"].norm(dim=1), net[1].weight.norm(dim=1)))
        True

    References:
        | Visualizing the Loss Landscape of Neural Nets (Li et al., 2018), Sec. 4
    """
    noise = keyed(seed, *key)
    found = {}
    for name, weight in weights.items():
        random = torch.randn(weight.shape, generator=noise, dtype=weight.dtype)
        if weight.ndim < 2:
            found[name] = torch.zeros_like(random)
            continue
        filters, wanted = random.flatten(1), weight.detach().flatten(1).norm(dim=1)
        found[name] = (filters * (wanted / filters.norm(dim=1))[:, None]).reshape(weight.shape)
    return found


@torch.no_grad()  # type: ignore[untyped-decorator]
def moved(generator: Any, x: float, y: float, axes: Sequence[Mapping[str, Tensor]], z: Tensor) -> Tensor:
    """Return what the generator makes of latents when its weights are moved by x and y along two directions.

    Example:
        >>> net = mlp_critic(2, width=16, layers=1)
        >>> axes = [direction(dict(net.named_parameters()), seed) for seed in (0, 1)]
        >>> z = torch.ones(4, 2)
        >>> torch.equal(moved(net, 0.0, 0.0, axes, z), net(z)), torch.equal(moved(net, 0.5, 0.0, axes, z), net(z))
        (True, False)
    """
    first, second = axes
    weights = {name: w + x * first[name] + y * second[name] for name, w in generator.named_parameters()}
    found: Tensor = functional_call(generator, weights, (z,))
    return found


@dataclass(frozen=True, eq=False)
class Components:
    """The first principal components of some images, as a function of images.

    Args:
        mean: Of the pixels.
        axes: Shape `(pixels, components)`.

    Example:
        >>> images = torch.randn(50, 1, 4, 4)
        >>> Components.of(images, 3)(images).shape
        torch.Size([50, 3])
    """

    mean: Tensor
    axes: Tensor

    @classmethod
    def of(cls, images: Tensor, components: int) -> "Components":
        """Find them."""
        x = images.flatten(1)
        mean = x.mean(dim=0)
        return cls(mean, torch.linalg.svd(x - mean, full_matrices=False).Vh[:components].T.contiguous())

    def __call__(self, images: Tensor) -> Tensor:
        return (images.flatten(1) - self.mean) @ self.axes


class Sets(NamedTuple):
    """Real and fake samples: some for the fit, others to measure with."""

    fit_real: Tensor
    fit_fake: Tensor
    real: Tensor
    fake: Tensor


class Left(NamedTuple):
    """The GAN divergence that is left at a budget.

    Attributes:
        value: The lower bound, measured on held-out samples.
        standard_error: Of the bound, from the samples it is measured on.
        promised: What the profile of the fakes says, as if the ratio were true.
    """

    value: float
    standard_error: float
    promised: float


def fit_ratio(real: Tensor, fake: Tensor, *, steps: int, seed: int) -> FittedRatio:
    """Fit the critic of a point: a small network of a few numbers, or the critic of the paper for images.

    Example:
        >>> noise = torch.Generator().manual_seed(0)
        >>> real, fake = (torch.randn(500, 2, generator=noise) + shift for shift in (1.0, 0.0))
        >>> fit_ratio(real, fake, steps=50, seed=0).report.log_loss < 0.69
        True
    """
    if real.ndim == 2:
        method: Any = Network("mlp", width=128, layers=2, waves=0, lr=1e-2)
    else:
        critic = mlp_critic(tuple(real.shape[1:]), width=256, layers=2, activation="leaky_relu")
        method = FineTune(critic, lr=2e-4)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the two sets hardly overlap|the classifier separates|.* worse than chance")
        # Far from the origin that is so. It makes the bound low, which is then what is measured.
        batch = min(_BATCH, len(fake) // 2)
        return refit(real, fake, method, steps=steps, batch_size=batch, held_out=0.2, seed=seed, progress=False)


def left(sets: Sets, budgets: Sequence[float], *, steps: int, seed: int) -> list[Left]:
    """Fit a ratio once and return what is left at each budget.

    Example:
        >>> noise = torch.Generator().manual_seed(0)
        >>> parts = [torch.randn(2000, 2, generator=noise) + shift for shift in (1.0, 0.0, 1.0, 0.0)]
        >>> found = left(Sets(*parts), (1.0, 2.0), steps=100, seed=0)
        >>> found[0].value > found[1].value > 0
        True
    """
    fitted = fit_ratio(sets.fit_real, sets.fit_fake, steps=steps, seed=seed)
    scores = fitted(sets.real).double().numpy(), fitted(sets.fake).double().numpy()
    profile = Profile(scores[1])
    out = []
    for budget in budgets:
        bound = lower_bound("gan", scores, profile.log_c(budget), scores)
        out.append(Left(bound.value, bound.standard_error, profile.divergence("gan", budget)))
    return out


def lower_bound(key: str, scores: Pair, log_c: float, calibrated: Pair) -> Estimate:
    """Return a lower bound of a divergence between target and kept samples, with the interval of the bound.

    Args:
        key: A key of `DIVERGENCES`.
        scores: The log-ratios that the rule uses.
        log_c: Its constant.
        calibrated: Log-ratios of the same samples that do not depend on themselves.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.5, 1, 4000), rng.normal(-0.5, 1, 4000)
        >>> bound = lower_bound("tv", (real, fake), 0.0, (real, fake))
        >>> 0 < bound.low < bound.value < 0.38
        True
    """
    return _difference(_terms(divergence(key), scores, log_c, calibrated)).clip(least=0.0)


def _log_kept(log_ratio: Any, log_c: float) -> Any:
    return np.zeros_like(log_ratio) if log_c == np.inf else Cut(log_c, nan).log_a(log_ratio)


def _terms(div: FDivergence, rule_on: Pair, log_c: float, calibrated: Pair) -> Pair:
    """Return the terms that E_P[f'(u)] - E_kept[f*(f'(u))] averages, over real and over fake samples.

    u comes from the calibrated ratio. For any u the difference is at most D_f(P||kept), by the inequality of Fenchel
    and Young, and for u = p/kept it is the divergence itself. The kept samples are the fakes with weights a. c depends
    on all fakes: the first-order effect of a fake on c is part of its term, so the variance of the terms is that of the
    result. The effect on u has order two, as u = p/kept is a maximum.
    """
    log_a_real, log_a_fake = _log_kept(rule_on[0], log_c), _log_kept(rule_on[1], log_c)
    possible = log_a_fake > -np.inf
    kept = np.exp(log_a_fake)
    rate = float(np.mean(kept))
    with np.errstate(all="ignore"):
        gain = div.critic(calibrated[0] + log(rate) - log_a_real)
        log_u = calibrated[1][possible] + log(rate) - log_a_fake[possible]
        cost = np.zeros(len(kept))
        cost[possible] = kept[possible] / rate * div.f_star_of_f_prime(log_u)
    moves = kept < 1  # a step d of log c adds a d to a there; d = -(a - rate) / E[a; a < 1] keeps the budget
    if mass := float(np.sum(kept[moves])):
        cost = cost - (kept - rate) * (float(np.sum(cost[moves])) / mass)
    return gain, cost


def _difference(terms: Pair) -> Estimate:
    """Return the mean of the first minus that of the second."""
    value = float(np.mean(terms[0])) - float(np.mean(terms[1]))
    error = sqrt(sum(float(np.var(x)) / len(x) for x in terms)) if isfinite(value) else nan
    return Estimate.around(value, error)
