"""Move samples along the gradient of the log-ratio instead of rejecting them: DOT, DGflow and DDLS.

They need a model in torch, `Model(..., like=a tensor or device)`. Gradients are taken with respect to the moving point
only: the parameters of the networks and their `.grad` stay as they are. Every proposal becomes a sample, with its own
id and noise, so results do not depend on the batch size. The samples have no weight, and their log-ratio is NaN,
because the last point is not scored.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import ceil, inf, sqrt
from time import perf_counter
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from .._arrays import detach, host_view
from .._checks import check_budget, check_count, check_positive, is_number
from .._progress import bar
from .._text import lookup
from ..draws import Purpose, normal_columns
from ..errors import InputError, InputTypeError, RatioError
from ..sampling.proposals import Batch, check_length, concatenate, map_leaves, no_grad, score_batch, warn_of_train_mode
from ..sampling.samples import Calls, Samples, keep_all
from .model import Model, check_model

__all__ = ["DDLS", "DOT", "DGflow", "lipschitz"]

Tensor = Any
Numbers = np.ndarray[Any, Any]
Drift = Callable[[Tensor, int], Tensor]  # from points and the number of the step to how far to go

_PAIRS_FROM = 2**62  # ids of the latents of `lipschitz`, out of the way of those of samples
_COUNTS = ("steps", "batch_size", "pairs", "repeats", "decay_every")
_POSITIVE = ("lr", "eps", "k_eff", "step")


class _Refiner(ABC):
    """What the three methods share: batches of samples, the steps, the cost."""

    steps: int
    batch_size: int
    space: str = "latent"
    clip: tuple[float, float] | None = None

    def __post_init__(self: Any) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _COUNTS:
                check_count(value, field.name)
            elif field.name in _POSITIVE and value is not None:
                check_positive(value, field.name)
        lookup(_SPACES, self.space, "space")

    @classmethod
    def at_budget(cls, budget: float) -> Any:
        """Return the sampler with `ceil(budget)` steps and the other constants as they are.

        This is how these methods are compared with rejection at K proposals per sample: three steps at K = 2.6. The
        final generation of the latent methods is not counted as a step; it is in `Samples.calls`.
        """
        return cls(steps=ceil(check_budget(budget)))  # type: ignore[call-arg]

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Return n samples, refined from the latents with ids 0 to n - 1; `seed` decides latents and noise."""
        n, begun = check_count(n, "n"), perf_counter()
        if not is_torch_array(check_model(model).latent(np.arange(0), seed=seed)):
            raise InputTypeError(f"{type(self).__name__} needs torch; give Model(..., like=...) its tensor or device")
        warn_of_train_mode(model.generate, model.log_ratio)
        parts = []
        with sys.modules["torch"].inference_mode(False), bar("sampling", n, progress) as update:
            ready, calls = self._prepare(model, seed)
            for start in range(0, n, self.batch_size):
                stop = min(start + self.batch_size, n)
                parts.append(ready._refine(model, np.arange(start, stop), seed))
                update(stop)
        calls = calls + self._cost(n)
        return keep_all(concatenate(parts), np.arange(n), calls=calls, seconds=perf_counter() - begun)

    def _prepare(self, model: Model, seed: int) -> tuple["_Refiner", Calls]:
        return self, Calls()

    def _refine(self, model: Model, ids: Numbers, seed: int) -> Batch:
        """Return the samples with these ids."""
        z, y = model.latent(ids, seed=seed), model.label(ids, seed=seed)
        model = model.condition(y)  # labels stay as they are
        start = z if self.space == "latent" else _one_array(_generate(model, z))
        wide = model.dim + model.dim % 2  # normals come in pairs of columns
        state, drift = start, self._drift(model, start)
        for step in range(self.steps):
            move = drift(state, step)
            fine = move.isfinite().reshape(len(move), -1).all(1)
            if not fine.all():
                count = f"{int((~fine).sum())} of {len(fine)} samples at step {step + 1} of {self.steps}"
                raise RatioError(
                    f"the gradient is NaN or infinite for {count}; check the critic, or make smaller steps"
                )
            state = state + move
            if std := self._std(step):
                columns = range(step * wide, step * wide + model.dim)
                state = state + std * normal_columns(ids, columns, seed=seed, purpose=Purpose.LANGEVIN, like=z)
            state = state if self.clip is None else state.clamp(*self.clip)
        x = _generate(model, state) if self.space == "latent" else state
        return x if y is None else (x, y)

    @abstractmethod
    def _drift(self, model: Model, start: Tensor) -> Drift:
        """Return how far a point moves in a step, without noise."""

    def _std(self, step: int) -> float:
        """Return the standard deviation of the noise of a step."""
        return 0.0

    def _cost(self, n: int) -> Calls:
        moves = n * self.steps
        inner = moves if self.space == "latent" else 0  # the last generation has neither gradient nor score
        return Calls(generator=n + inner, critic=moves, generator_gradient=inner, critic_gradient=moves)


@dataclass(frozen=True)
class DOT(_Refiner):
    """Discriminator optimal transport: raise the log-ratio of a sample, but keep it near its start.

    Descends `-d(x)/k_eff + |x - y + offset|` from y = G(z) in target space, or `-d(G(z))/k_eff + |z - z_y + offset|`
    from the latent z_y of the sample in latent space, d being the log-ratio.

    Cost per sample: one generation, and one score with its gradient per step; in latent space one generation with its
    gradient per step on top. Estimating k_eff takes another 2 pairs repeats generations and scores, 2000 by default,
    once per call; they are counted too. With `k_eff` they are not needed.

    Args:
        space: "target" or "latent".
        steps, lr: Updates, and their learning rate.
        optimiser: "adam", with constants `betas` and `eps`, or "sgd".
        k_eff: Lipschitz constant of d, or of d(G(z)); None estimates it by `lipschitz` with `pairs` and `repeats`.
        offset: Keeps the distance differentiable at the start.
        clip: Lowest and highest value that the moving point may have, `(low, high)`.
        project: In latent space, what is done to the gradient g: None leaves it as it is; "tangent" subtracts
            (g.z) z / |z|^2, so that |z| stays; or a function of yours, from g and z to another gradient.
        batch_size: Samples per call of the networks.

    Example:
        >>> import torch
        >>> model = Model(lambda z: z, lambda x: x.sum(1), dim=2, like=torch.empty(0))
        >>> moved = DOT(k_eff=1.0)(model, 500)
        >>> bool(model.log_ratio(moved.x).mean() > 1), moved.calls.generator, moved.calls.critic_gradient
        (True, 500, 50000)

    References:
        | Discriminator Optimal Transport (Tanaka, 2019)
    """

    space: str = "target"
    steps: int = 100
    lr: float = 0.01
    optimiser: str = "adam"
    betas: tuple[float, float] = (0.0, 0.9)
    eps: float = 1e-8
    k_eff: float | None = None
    pairs: int = 100
    repeats: int = 10
    offset: float = 0.001
    clip: tuple[float, float] | None = None
    project: str | Callable[[Tensor, Tensor], Tensor] | None = None
    batch_size: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(_OPTIMISERS, self.optimiser, "optimiser")
        if self.project is not None and not callable(self.project):
            lookup(_PROJECTIONS, self.project, "project")

    def _prepare(self, model: Model, seed: int) -> tuple["DOT", Calls]:
        if self.k_eff is not None:
            return self, Calls()
        steep = lipschitz(model, space=self.space, pairs=self.pairs, repeats=self.repeats, seed=seed)
        used = 2 * self.pairs * self.repeats
        return replace(self, k_eff=steep), Calls(generator=used, critic=used)

    def _drift(self, model: Model, start: Tensor) -> Drift:
        update, k = _OPTIMISERS[self.optimiser](self), self.k_eff
        project: Any = _PROJECTIONS.get(self.project, self.project) if self.space == "latent" else None

        def drift(state: Tensor, step: int) -> Tensor:
            gap = state - start + self.offset
            distance = gap.reshape(len(gap), -1).square().sum(1).sqrt().clamp_min(1e-30)  # no pull where gap is 0
            gradient = gap / distance.reshape(-1, *[1] * (gap.ndim - 1)) - _slope(model, self.space, state)[1] / k
            return update(gradient if project is None else project(gradient, state), step)

        return drift


@dataclass(frozen=True)
class DGflow(_Refiner):
    """Discriminator gradient flow: `z <- z + step s grad d(G(z)) + sqrt(2 step noise) xi`.

    The gradient flow of an f-divergence between model and target, with the log-ratio d frozen at that of the model
    as it was; s is 1 for "kl", 1/(1 + e^d) for "logd" and 1/(1 + e^-d) for "js".
    Cost per sample: `steps + 1` generations and `steps` scores, all but the last generation with a gradient.

    Args:
        f: "kl", "logd" or "js".
        step: Size of a step, the paper's eta.
        noise: Weight of the entropy, the paper's gamma; 0 for no noise.
        steps: Updates.
        batch_size: Samples per call of the networks.

    Example:
        >>> import torch
        >>> model = Model(lambda z: z, lambda x: x[:, 0] - 0.5, dim=2, like=torch.empty(0))  # target N((1, 0), I)
        >>> moved = DGflow(steps=10)(model, 1000)
        >>> bool(abs(moved.x[:, 0].mean() - 1) < 0.2), moved.calls.generator
        (True, 11000)

    References:
        | Refining Deep Generative Models via Discriminator Gradient Flow (Ansari, Ang & Soh, 2021)
    """

    f: str = "kl"
    step: float = 0.1
    noise: float = 0.01
    steps: int = 25
    batch_size: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(_PULLS, self.f, "f")
        if not is_number(self.noise) or not 0 <= self.noise < inf:
            raise InputError(f"noise must be a finite number of at least 0, got {self.noise!r}")

    def _drift(self, model: Model, start: Tensor) -> Drift:
        def drift(z: Tensor, step: int) -> Tensor:
            d, slope = _slope(model, self.space, z)
            return self.step * _PULLS[self.f](d)[:, None] * slope

        return drift

    def _std(self, step: int) -> float:
        return sqrt(2 * self.step * self.noise)


@dataclass(frozen=True)
class DDLS(_Refiner):
    """Discriminator-driven latent sampling: Langevin dynamics in the latent space of the generator.

    `z <- z - (step/2) grad E(z) + noise_std xi` with the energy `E(z) = |z|^2/2 - d(G(z))`, that of the latents whose
    samples follow the target if d is the log-ratio. A long run of small steps draws from it, up to a bias of the
    order of the step.
    Cost per sample: `steps + 1` generations and `steps` scores, all but the last generation with a gradient.

    Args:
        step: Size of a step, the paper's epsilon.
        noise_std: Standard deviation of the noise; None for sqrt(step), the only one that draws from the energy as it
            is. Another draws from E / T, at a temperature T = noise_std^2 / step.
        steps: Updates.
        decay, decay_every: Factor on the step, and after how many updates; the noise shrinks by its root, so T stays.
        batch_size: Samples per call of the networks.

    Example:
        >>> import torch
        >>> model = Model(lambda z: z, lambda x: x[:, 0] - 0.5, dim=2, like=torch.empty(0))  # target N((1, 0), I)
        >>> moved = DDLS(step=0.1, steps=100)(model, 1000)
        >>> bool(abs(moved.x[:, 0].mean() - 1) < 0.2), moved.calls.generator
        (True, 101000)

    References:
        | Your GAN is Secretly an Energy-based Model (Che et al., 2020)
    """

    step: float = 0.01
    noise_std: float | None = None
    steps: int = 1000
    decay: float = 1.0
    decay_every: int = 100
    batch_size: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.decay) or not 0 < self.decay <= 1:
            raise InputError(f"decay must be above 0 and at most 1, got {self.decay!r}")

    def _decay_factor(self, step: int) -> float:
        return float(self.decay ** (step // self.decay_every))

    def _drift(self, model: Model, start: Tensor) -> Drift:
        return lambda z, step: self.step * self._decay_factor(step) / 2 * (_slope(model, self.space, z)[1] - z)

    def _std(self, step: int) -> float:
        return (sqrt(self.step) if self.noise_std is None else self.noise_std) * sqrt(self._decay_factor(step))


def lipschitz(model: Model, *, space: str = "target", pairs: int = 100, repeats: int = 10, seed: int = 0) -> float:
    """Estimate how steep the log-ratio is: `|d(x) - d(y)| / |x - y|`, its maximum over random pairs, averaged.

    At most the Lipschitz constant among what the model makes. It takes 2 pairs repeats generations and scores, of
    latents that no sample uses, and no gradients.

    Args:
        model: A model of any array library.
        space: "target" divides by the distance of samples, "latent" by that of latents.
        pairs, repeats: Pairs in a maximum, and maxima in the average.
        seed: Decides the latents.

    Example:
        >>> steep = lipschitz(Model(lambda z: z, lambda x: 3 * x[:, 0] - 4 * x[:, 1], dim=2))
        >>> 4.9 < steep <= 5
        True
    """
    lookup(_SPACES, space, "space")
    pairs, repeats = check_count(pairs, "pairs"), check_count(repeats, "repeats")
    steepest = []
    for start in range(_PAIRS_FROM, _PAIRS_FROM + 2 * pairs * repeats, 2 * pairs):
        z = model.latent(np.arange(start, start + 2 * pairs), seed=seed)
        here = model.condition(model.label(np.arange(2 * pairs) // 2, seed=seed))  # both of a pair have one label
        x = _generate(here, z)
        d = score_batch(here.log_ratio, x, 2 * pairs)
        where: Any = host_view(z if space == "latent" else _one_array(x))
        gap = where[::2].astype(np.float64) - where[1::2]
        distance = np.linalg.norm(gap.reshape(pairs, -1), axis=1)
        rise = np.abs(d[::2] - d[1::2])[distance > 0]
        steepest.append(np.max(rise / distance[distance > 0], initial=0.0))
    if not 0 < (slope := float(np.mean(steepest))) < inf:
        raise RatioError(f"log_ratio has slope {slope:g} over {pairs * repeats} random pairs; check it, or give k_eff")
    return slope


def _slope(model: Model, space: str, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-ratios of points of the space and their gradients, without side effects."""
    torch = sys.modules["torch"]
    state = state.detach().requires_grad_()
    with torch.enable_grad():
        d = model.log_ratio(_checked_samples(model, state) if space == "latent" else state)
        shape = tuple(d.shape) if is_torch_array(d) else type(d).__name__
        if shape != (len(state),):
            raise InputError(f"log_ratio must return a tensor of shape ({len(state)},), got {shape}")
        slope = torch.autograd.grad(d.sum(), state, allow_unused=True)[0] if d.requires_grad else None
    if slope is None:
        who = "log_ratio(generate(z))" if space == "latent" else "log_ratio(x)"
        raise InputError(f"{who} must be differentiable by torch, and is not; look for detach, no_grad or argmax")
    return d.detach(), slope


def _checked_samples(model: Model, z: Tensor) -> Batch:
    x = model.generate(z)
    check_length(x, len(z), "generate")
    return x


def _generate(model: Model, z: Tensor) -> Batch:
    with no_grad():
        return map_leaves(detach, _checked_samples(model, z))


def _one_array(x: Batch) -> Any:
    if isinstance(x, dict | tuple):
        raise InputTypeError(f"target space needs one array of generate, got a {type(x).__name__}; use space='latent'")
    return x


def _adam(dot: DOT) -> Drift:
    moments: list[Tensor] = [0.0, 0.0]

    def update(gradient: Tensor, step: int) -> Tensor:
        for i, beta in enumerate(dot.betas):
            moments[i] = beta * moments[i] + (1 - beta) * gradient ** (i + 1)
        mean, square = (moment / (1 - beta ** (step + 1)) for moment, beta in zip(moments, dot.betas, strict=True))
        return -dot.lr * mean / (square.sqrt() + dot.eps)

    return update


_SPACES = {"target": "samples", "latent": "latents"}
_OPTIMISERS: Mapping[str, Callable[[DOT], Drift]] = {"adam": _adam, "sgd": lambda dot: lambda g, step: -dot.lr * g}
_PROJECTIONS: Mapping[Any, Callable[[Tensor, Tensor], Tensor]] = {
    "tangent": lambda g, z: g - (g * z).sum(1, keepdim=True) * z / z.square().sum(1, keepdim=True),
}
_PULLS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "kl": lambda d: d.new_ones(d.shape),
    "logd": lambda d: (-d).sigmoid(),
    "js": lambda d: d.sigmoid(),
}
