"""A point of a landscape around a generator: directions among its weights, and what is left after rejection there.

The divergence at a point is a lower bound, measured on samples that the ratio has not seen. A classifier of real and
fake samples gives log r. With u = r Z/a the inequality of Fenchel and Young says that E_P[f'(u)] - E_kept[f*(f'(u))] is
at most D_f(P||kept), for every budget, and equal to it if r is the true ratio. One fit serves all budgets.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call

from obrs.fitting.seeds import keyed
from obrs.models.mlp import mlp_critic
from obrs.profile import Profile
from obrs.ratios.at_budget import lower_bound
from obrs.ratios.methods import Network
from obrs.ratios.refit import FittedRatio, refit

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
        method = Network("mlp", width=128, layers=2, waves=0, lr=1e-2)
    else:
        critic = mlp_critic(tuple(real.shape[1:]), width=256, layers=2, activation="leaky_relu")
        method = Network(critic, lr=2e-4)
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
