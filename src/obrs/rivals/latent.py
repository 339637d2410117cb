"""LatentRS: reject latents by a learned weight w(z), so that the generator runs once per kept sample.

w(z) ≈ p(G(z)) / q(G(z)) is a small network. A proposal costs one evaluation of it; the rest is paid in training.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import e, inf, log
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from .._checks import check_budget, check_count, is_number
from .._progress import bar
from ..errors import ExhaustedError, InputError, InputTypeError
from ..fitting.loop import descend, fit
from ..fitting.penalty import gradient_penalty as slope_penalty
from ..fitting.seeds import own_noise
from ..rules import Budgeted
from ..sampling.proposals import concatenate, no_grad, score_batch, take, warn_of_train_mode
from ..sampling.rejection import collect, stream
from ..sampling.samples import Calls, Samples
from ..types import Array
from .model import Model, check_model

__all__ = ["BudgetedLatentRS", "LatentRS", "LatentWeights", "fit_latent_weights", "fit_latent_weights_to_ratio"]

_PROBE, _BLOCK = 65536, 4096  # latents on which the largest and the mean weight are measured, and so many at a time


@dataclass(frozen=True)
class LatentWeights:
    """A weight for every latent, and what rejection needs to know about it.

    Args:
        network: Maps torch latents of shape `(n, dim)` to weights of shape `(n,)`, at least 0.
        largest: The weight that is always accepted, such as the largest of many.
        mean: Mean weight; `largest / mean` latents are tried per sample.
        dim: Length of the latent; None if any will do.

    Example:
        >>> import torch
        >>> weights = LatentWeights(lambda z: torch.exp(-z[:, 0] ** 2), largest=1.0)
        >>> weights(torch.zeros(2, 3))
        tensor([1., 1.])
    """

    network: Callable[[Array], Array]
    largest: float
    mean: float = 1.0
    dim: int | None = None

    def __post_init__(self) -> None:
        if not is_number(self.largest) or not 0 < float(self.largest) < inf:
            raise InputError(
                f"largest must be finite and above 0, got {self.largest}; lower the learning rate of a fit"
            )

    def __call__(self, z: Array) -> Array:
        if self.dim is not None and z.shape[-1] != self.dim:
            raise InputError(f"these weights are for latents of length {self.dim}, the model's have {z.shape[-1]}")
        return self.network(z)


def fit_latent_weights(
    model: Model,
    *,
    steps: int = 1000,
    batch: int = 256,
    lr_w: float = 1e-4,
    lr_d: float = 4e-4,
    betas: tuple[float, float] = (0.5, 0.5),
    penalty_mean: float = 10.0,
    penalty_max: float = 3.0,
    largest: float = 3.0,
    critic_steps: int = 3,
    gradient_penalty: float = 10.0,
    width: int = 400,
    layers: int = 4,
    critic: Any = None,
    seed: int = 0,
    progress: bool | None = None,
) -> LatentWeights:
    """Learn w against a critic, with the generator frozen; needs real samples and no ratio.

    The critic D maximises E_P[D] - E_z[w(z) D(G(z))] / E w minus a gradient penalty. The weights maximise
    E_z[w(z) (D(G(z)) - Δ)] - λ₁ (E w - 1)² - λ₂ E[max(0, w - m)²], where Δ is the smallest score of the batch.
    w starts at 1 everywhere. It costs `steps * batch * (critic_steps + 1)` calls of the generator.

    Args:
        model: Of torch, with real samples.
        steps, batch, lr_w, lr_d, betas: Updates of w, samples in each, and Adam's constants for w and the critic.
        penalty_mean, penalty_max, largest: λ₁, λ₂ and m; about m latents are tried per sample.
        critic_steps, gradient_penalty: Updates of the critic per update of w, and what pulls its slope to 1.
        width, layers: Hidden layers of w, and of the critic.
        critic: A torch module that maps samples to scores `(n,)`, trained in place; None for a network on flat samples.
        seed, progress: Decides all randomness; shows a bar, None on a terminal only.

    Example:
        >>> import torch
        >>> model = Model(lambda z: z, lambda x: 0 * x[:, 0], dim=1, real=torch.ones(9, 1), like=torch.empty(0))
        >>> weights = fit_latent_weights(model, steps=2, batch=8, width=8, layers=1)
        >>> round(weights.mean, 1)
        1.0

    References:
        | Latent Reweighting, an Almost Free Improvement for GANs (Issenhuth et al., 2022)
    """
    draw = _Draw(model, "fit_latent_weights", seed)
    torch, real, network = draw.torch, _real(model, draw), _weight_network(draw, width, layers)
    critic = draw.network(real[0].numel(), width, layers) if critic is None else critic
    optimiser_w = torch.optim.Adam(network.parameters(), lr=lr_w, betas=betas)
    optimiser_d = torch.optim.Adam(critic.parameters(), lr=lr_d, betas=betas)
    with torch.enable_grad(), bar("fitting", check_count(steps, "steps"), progress) as update:
        for step in range(steps):
            for _ in range(critic_steps):
                x = real[draw.index(len(real), batch)]
                z, fake = draw(batch)
                w = network(z).detach()
                gap = critic(x).mean() - (w * critic(fake)).mean() / w.mean()  # else D drifts away while E w is not 1
                slopes = slope_penalty(critic, x, fake, draw.uniform(batch))
                descend(optimiser_d, gradient_penalty * slopes - gap)
            z, fake = draw(batch)
            w, score = network(z), critic(fake).detach()
            gain = (w * (score - score.min())).mean()
            penalty = penalty_mean * (w.mean() - 1) ** 2 + penalty_max * (torch.relu(w - largest) ** 2).mean()
            descend(optimiser_w, penalty - gain)
            update(step + 1)
    return _measure_weights(network, draw)


def fit_latent_weights_to_ratio(
    model: Model,
    *,
    steps: int = 2000,
    batch: int = 256,
    lr: float = 1e-3,
    pool: int = 65536,
    width: int = 400,
    layers: int = 4,
    seed: int = 0,
    progress: bool | None = None,
) -> LatentWeights:
    """Learn w(z) = r(G(z)) by regression on the model's own log-ratio: no adversary, no real samples.

    Minimises E_z[w - r log w], whose minimum is at w = r and which a few huge ratios do not dominate as they would a
    squared error. Ratios are divided by their mean first. It costs `pool` calls of the generator and of the critic.

    Args:
        model: Of torch, with a log-ratio that may be trusted.
        steps, batch, lr: Of Adam; the rate falls to 0 along a cosine.
        pool: Latents that are generated and scored, once.
        width, layers, seed, progress: As for `fit_latent_weights`.

    Example:
        >>> import torch
        >>> model = Model(lambda z: z, lambda x: x[:, 0], dim=1, like=torch.empty(0))
        >>> weights = fit_latent_weights_to_ratio(model, steps=200, pool=1024, width=16, layers=1)
        >>> bool(weights(torch.tensor([[1.0]])) > weights(torch.tensor([[-1.0]])))
        True
    """
    draw = _Draw(model, "fit_latent_weights_to_ratio", seed)
    torch, scored = draw.torch, []
    for at in range(0, check_count(pool, "pool"), _BLOCK):
        z, x = draw(min(_BLOCK, pool - at))
        scored.append((z, torch.from_numpy(score_batch(model.log_ratio, x, len(z)))))
    latent, log_ratio = concatenate(scored)
    if not (log_ratio > -inf).any():
        raise InputError(f"none of {pool} samples has r > 0; check the critic")
    log_ratio = log_ratio - log_ratio.logsumexp(0) + log(pool)
    ratio, network = log_ratio.exp().to(latent), _weight_network(draw, width, layers)
    optimiser = torch.optim.Adam(network.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, check_count(steps, "steps"))

    def loss(step: int) -> Array:
        index = draw.index(pool, batch)
        w = network(latent[index])
        return (w - ratio[index] * w.clamp(min=1e-30).log()).mean()

    fit(loss, optimiser, steps, schedule=schedule, progress=progress)
    return _measure_weights(network, draw)


_quick_fit = partial(fit_latent_weights_to_ratio, steps=500, width=64)  # seconds, for comparisons


@dataclass(frozen=True, kw_only=True)
class _LatentSampler:
    fit: Callable[..., LatentWeights] = fit_latent_weights
    batch_size: int = 4096
    max_proposed: int = 100_000_000

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Keep n latents with probability min(c w, 1), and generate from these alone."""
        _Draw(model, type(self).__name__, seed)  # a model with labels, or without torch, is refused
        weights = getattr(self, "weights", None) or self.fit(model, seed=seed, progress=progress)
        if not isinstance(weights, LatentWeights):
            raise InputTypeError(f"weights must be LatentWeights, got {type(weights).__name__}")
        rule, propose = Budgeted(self._log_c(weights, model, seed)), partial(model.latent, seed=seed)
        size, most = self.batch_size, self.max_proposed
        latents = stream(propose, lambda z: weights(z).log(), rule, batch_size=size, seed=seed, stop=most)
        try:
            return self._generate(model, collect(latents, n))
        except ExhaustedError as error:  # carries latents
            error.partial = self._generate(model, error.partial)  # type: ignore[arg-type]
            raise

    def _generate(self, model: Model, kept: Samples) -> Samples:
        """Return the samples of kept latents."""
        n, calls = len(kept), Calls(generator=len(kept))
        starts = range(0, max(n, 1), self.batch_size)
        with no_grad():
            x = concatenate([model.generate(take(kept.x, np.arange(n)[at : at + self.batch_size])) for at in starts])
        return replace(kept, x=x, log_ratio=np.full(n, np.nan), calls=calls, executed_calls=calls, rule=None)

    def _log_c(self, weights: LatentWeights, model: Model, seed: int) -> float:
        return -log(weights.largest)


@dataclass(frozen=True)
class LatentRS(_LatentSampler):
    """Accept a latent with probability w(z)/m, then generate: 1 call of the generator per sample, none of the critic.

    About `largest / mean` latents are tried per sample, each an evaluation of w. `proposed` counts them.

    Args:
        weights: Weights, fitted for this model; None fits them anew in every call, at the cost that `fit` states.
        fit: How, as `fit(model, seed=..., progress=...)`; `functools.partial` sets its constants.
        batch_size, max_proposed: Latents at a time, and after how many to give up.

    Example:
        >>> import torch
        >>> model = Model(lambda z: 2 * z, lambda x: -x[:, 0] ** 2, dim=1, like=torch.empty(0))
        >>> weights = LatentWeights(lambda z: torch.exp(-z[:, 0] ** 2), largest=1.0)
        >>> kept = LatentRS(weights)(model, 100)
        >>> len(kept), kept.calls.generator, kept.calls.critic
        (100, 100, 0)
    """

    weights: LatentWeights | None = None

    @classmethod
    def at_budget(cls, budget: float) -> "LatentRS":
        """Return the sampler with weights fitted to the log-ratio, in seconds; the budget has no effect."""
        check_budget(budget)
        return cls(fit=_quick_fit)


@dataclass(frozen=True)
class BudgetedLatentRS(_LatentSampler):
    """OBRS in latent space: accept z with probability min(c w(z), 1), c solved for `budget` latents per sample.

    The best use of `budget` evaluations of w; one extreme weight does not decide. `log_weight` is log(w/a).

    Args:
        budget: Latents tried per sample.
        weights, fit, batch_size, max_proposed: As for `LatentRS`.
        pilot: The first so many latents fit c; they are candidates like all others.

    Example:
        >>> import torch
        >>> model = Model(lambda z: z, lambda x: x[:, 0], dim=1, like=torch.empty(0))
        >>> weights = LatentWeights(lambda z: torch.exp(z[:, 0]), largest=100.0)
        >>> kept = BudgetedLatentRS(4, weights)(model, 1000)
        >>> abs(kept.rate - 1 / 4) < 0.02, kept.calls.generator
        (True, 1000)

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 3.1
    """

    budget: float
    weights: LatentWeights | None = None
    pilot: int = 16384

    def __post_init__(self) -> None:
        check_budget(self.budget)

    @classmethod
    def at_budget(cls, budget: float) -> "BudgetedLatentRS":
        """Try `budget` latents per sample."""
        return cls(budget, fit=_quick_fit)

    def _log_c(self, weights: LatentWeights, model: Model, seed: int) -> float:
        with no_grad():
            log_w = weights(model.latent(np.arange(self.pilot), seed=seed)).log()
        return float(Budgeted.fit(log_w, self.budget).log_c)


class _Draw:
    """Draw latents and the samples that the frozen generator makes of them; the seed decides all randomness."""

    def __init__(self, model: Model, who: str, seed: int) -> None:
        if check_model(model).labels is not None:
            raise InputError(f"{who} does not take a model with labels; use 'obrs', or a Model for each label")
        self.generate, self.like = model.generate, model.latent(np.arange(1), seed=seed)
        if not is_torch_array(self.like):
            raise InputTypeError(f"{who} needs a model of torch; give Model(..., like=torch.empty(0))")
        import torch

        warn_of_train_mode(model.generate)
        self.torch, self.generator = torch, torch.Generator().manual_seed(int(seed))

    def __call__(self, n: int) -> tuple[Array, Any]:
        z = self.latent(n)
        with no_grad():
            return z, self.generate(z)

    def latent(self, n: int) -> Array:
        return self.torch.randn(n, self.like.shape[1], generator=self.generator).to(self.like)

    def uniform(self, n: int) -> Array:
        return self.torch.rand(n, generator=self.generator).to(self.like)

    def index(self, below: int, n: int) -> Array:
        return self.torch.randint(below, (n,), generator=self.generator).to(self.like.device)

    def network(self, dim: int, width: int, layers: int) -> Any:
        from ..models.mlp import mlp_critic

        with own_noise() as reseed:
            reseed(int(self.index(2**62, 1)))
            return mlp_critic(dim, width=width, layers=layers).to(self.like)


def _weight_network(draw: _Draw, width: int, layers: int) -> Any:
    """Return w as a network that starts at 1 everywhere; a softplus, unlike a ReLU, cannot die."""
    nn, network = draw.torch.nn, draw.network(draw.like.shape[1], width, layers)
    nn.init.zeros_(network[-2].weight)
    nn.init.constant_(network[-2].bias, log(e - 1))
    return network.append(nn.Softplus())


def _measure_weights(network: Any, draw: _Draw) -> LatentWeights:
    with no_grad():
        w = concatenate([network(draw.latent(_BLOCK)) for _ in range(_PROBE // _BLOCK)])
    return LatentWeights(network.requires_grad_(False), float(w.max()), float(w.mean()), draw.like.shape[1])


def _real(model: Model, draw: _Draw) -> Array:
    """Return the real samples on the device of the latents; they must have the shape of generated ones."""
    if model.real is None:
        raise InputError("fit_latent_weights needs real samples; give Model(..., real=...)")
    real, fake = draw.torch.as_tensor(model.real).to(draw.like), draw(1)[1]
    if not (is_torch_array(fake) and len(real) and real.shape[1:] == fake.shape[1:]):
        shape = tuple(getattr(fake, "shape", [type(fake).__name__]))
        raise InputError(f"real must look like generated samples, {shape} for one, got {tuple(real.shape)}")
    return real
