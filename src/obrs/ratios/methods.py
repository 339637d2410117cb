"""Ways to fit a ratio, as records: what is fitted, and with which constants."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, pi, prod
from typing import Any, Protocol

from .._inputs import check_count, is_number
from .._names import lookup
from ..errors import InputError, InputTypeError
from ..fitting.loop import check_rate
from .descent import Outcome, descend, logistic_loss
from .linear import whitening
from .pairs import Task, Tensor, check_numbers
from .scorers import Scorer, blocks, copied, standardise

__all__ = ["Ensemble", "FineTune", "Fit", "Head", "Method", "Network"]

_POOL = 8192  # samples of each kind that means and variances are taken from
_SMALL = 8  # numbers in a sample up to which waves help and do not overfit

Fit = tuple[Scorer, Outcome]


class Method(Protocol):
    """A way to fit a ratio."""

    def fit(self, task: Task) -> Fit: ...


@dataclass(frozen=True, eq=False)
class Head:
    """A logistic regression on features of the samples: few numbers to fit, seconds, hard to overfit.

    Features are whitened first. They are not fitted, and not saved with the ratio.

    Args:
        features: Maps a tensor of samples `(n, ...)` to features `(n, k)`; of a critic: `critic_features(critic)`.
        lr: Learning rate.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from obrs.ratios.refit import refit
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.0, 1.0, (1000, 1)), rng.normal(0.0, 2.0, (1000, 1))
        >>> fitted = refit(real, fake, Head(lambda x: torch.cat([x, x**2], dim=1)), steps=100)
        >>> fitted.report.log_loss < 0.69
        True
    """

    features: Callable[[Tensor], Tensor]
    lr: float = 0.02

    def __post_init__(self) -> None:
        check_rate(self.lr)
        if not callable(self.features):
            raise InputTypeError(f"features must be a callable, got {type(self.features).__name__}")

    def fit(self, task: Task) -> Fit:
        """Fit the weights of the features."""
        import torch

        def features(x: Tensor) -> Tensor:
            with torch.set_grad_enabled(torch.is_grad_enabled() and x.requires_grad):
                return self.features(x)

        module = _module(task)
        try:
            seen = [blocks(features, x) for x in task.pool(_POOL)]
        except RuntimeError as error:
            if "device" not in str(error):
                raise
            raise InputError(f"features are not on {task.device}, where the proposals are; move one of them") from error
        for part in seen:
            if part.ndim != 2:
                raise InputError(
                    f"features must have shape (n, k), got {tuple(part.shape)}; "
                    "for those of a critic use Head(critic_features(critic))"
                )
            check_numbers(part, "features")
        both = torch.cat(seen).double()
        module.register_buffer("shift", both.mean(0).float())
        module.register_buffer("whiten", whitening(both).float())
        module["linear"] = _built(task, {"name": "mlp", "sizes": [module.whiten.shape[1], 1]})
        _start_at_chance(module["linear"][-1])
        return _descended(Scorer("head", module, features=features), task, self.lr)


@dataclass(frozen=True, eq=False)
class FineTune:
    """Train all of a critic further, with the logistic loss; whatever loss it had, its output becomes a log-ratio.

    The critic is copied, never changed. Its output `(n,)` or `(n, 1)` is taken for a logit from the first step on.

    Args:
        critic: A torch module, where the proposals live.
        lr: Learning rate.

    Example:
        >>> import numpy as np
        >>> from obrs.models.mlp import mlp_critic
        >>> from obrs.ratios.refit import refit
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(1.0, 1.0, (1000, 2)), rng.normal(0.0, 1.0, (1000, 2))
        >>> refit(real, fake, FineTune(mlp_critic(width=16)), steps=50).report.log_loss < 0.69
        True

    References:
        | Discriminator Rejection Sampling (Azadi et al., 2019)
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024)
    """

    critic: Any
    lr: float = 2e-3

    def __post_init__(self) -> None:
        check_rate(self.lr)

    def fit(self, task: Task) -> Fit:
        """Train a copy of the critic."""
        module = _module(task)
        module["network"] = copied(self.critic, task.held_fake[:2], "critic").requires_grad_(True)
        return _descended(Scorer("network", module), task, self.lr)


@dataclass(frozen=True, eq=False)
class Network:
    """Train a new network from scratch, on standardised samples.

    Args:
        network: "mlp", "cnn" for images `(channels, side, side)`, a torch module of your own (copied), or None: a cnn
            for images, else an mlp.
        width, layers: Of the mlp: units and hidden layers; of the cnn, channels of its first layer.
        waves: Sines and cosines of this many random directions are shown to the mlp beside the sample, where a sample
            has up to 8 numbers: thin modes are found by them. 0 for none.
        lr: Learning rate.

    Example:
        >>> import numpy as np
        >>> from obrs.ratios.refit import refit
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(1.0, 1.0, (1000, 2)), rng.normal(0.0, 1.0, (1000, 2))
        >>> refit(real, fake, Network(width=32), steps=50).report.log_loss < 0.69
        True

    References:
        | Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains (Tancik et al., 2020)
    """

    network: Any = None
    width: int | None = None
    layers: int = 3
    waves: int = 64
    lr: float = 3e-3

    def __post_init__(self) -> None:
        check_rate(self.lr)
        check_count(self.layers, "layers")
        if not is_number(self.waves) or not 0 <= float(self.waves) < inf or float(self.waves) != int(self.waves):
            raise InputError(f"waves must be a whole number of at least 0, got {self.waves!r}")
        if self.width is not None:
            check_count(self.width, "width")
        if isinstance(self.network, str):
            lookup(_BUILD, self.network, "network")

    def fit(self, task: Task) -> Fit:
        """Build the network and train it."""
        import torch

        real, fake = task.pool(_POOL)
        both = torch.cat([real, fake])
        module = _module(task)
        name = self.network
        if name is None:
            name = "cnn" if len(task.shape) == 3 and task.shape[1] == task.shape[2] >= 8 else "mlp"
        if isinstance(name, str):
            _BUILD[name](self, module, both, task)
        else:
            module["network"] = copied(name, task.held_fake[:2], "network").requires_grad_(True)
        return _descended(Scorer("network", module), task, self.lr)


def _mlp(method: Network, module: Any, both: Tensor, task: Task) -> None:
    import torch

    standardise(module, both)
    numbers = prod(task.shape)
    inside = numbers
    if method.waves and numbers <= _SMALL:
        with task.seeded():
            # cycles per standard deviation, equally many in each octave
            cycles = torch.exp(torch.empty(method.waves).uniform_(log(0.1), log(4.0)))
            direction = torch.nn.functional.normalize(torch.randn(numbers, method.waves), dim=0)
        module.register_buffer("waves", (2 * pi * cycles * direction).to(both))
        inside += 2 * method.waves
    sizes = [inside, *[method.width or 128] * method.layers, 1]
    module["network"] = _built(task, {"name": "mlp", "sizes": sizes, "activation": "silu"})
    _start_at_chance(module["network"][-1])


def _cnn(method: Network, module: Any, both: Tensor, task: Task) -> None:
    if len(task.shape) != 3 or task.shape[1] != task.shape[2]:
        raise InputError(f'"cnn" needs square images (channels, side, side), got samples of shape {task.shape}')
    module.register_buffer("shift", both.mean())
    module.register_buffer("scale", both.std())
    channels, side, _ = task.shape
    spec = {"name": "conv_critic", "size": side, "channels": channels, "width": method.width or 32}
    module["network"] = _built(task, spec)


_BUILD: dict[str, Callable[[Network, Any, Tensor, Task], None]] = {"mlp": _mlp, "cnn": _cnn}


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Several fits, their log-ratios averaged: errors that differ cancel.

    Args:
        members: Methods; each gets another seed, other batches and the same held-out samples.

    Example:
        >>> import numpy as np
        >>> from obrs.ratios.boosted import Boosted
        >>> from obrs.ratios.refit import refit
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(1.0, 1.0, (1000, 2)), rng.normal(0.0, 1.0, (1000, 2))
        >>> refit(real, fake, Ensemble((Network(width=16), Boosted(rounds=5))), steps=30).report.steps
        35
    """

    members: tuple[Any, ...] = (Network(), Network(), Network())

    def __post_init__(self) -> None:
        if not isinstance(self.members, tuple | list) or not self.members:
            raise InputError(f"members must be a tuple of methods, got {self.members!r}")
        for member in self.members:
            if not callable(getattr(member, "fit", None)) or isinstance(member, type):
                got = member.__name__ if isinstance(member, type) else type(member).__name__
                raise InputTypeError(f"members must be methods such as Network(), got {got}")

    def fit(self, task: Task) -> Fit:
        """Fit the members one after the other."""
        fits = [member.fit(task.member(i)) for i, member in enumerate(self.members)]
        outcomes = [outcome for _, outcome in fits]
        outcome = Outcome(
            sum(o.steps for o in outcomes),
            sum(o.seconds for o in outcomes),
            f"{len(fits)} members done",
            (),
            sum(o.fakes for o in outcomes),
        )
        return Scorer("mean", _module(task), members=tuple(scorer for scorer, _ in fits)), outcome


def _module(task: Task) -> Any:
    import torch

    return torch.nn.ModuleDict().to(task.device)


def _built(task: Task, spec: dict[str, Any]) -> Any:
    """Build a network whose initial weights the seed decides."""
    from ..models.registry import build

    with task.seeded():
        return build(spec).to(task.device)


def _start_at_chance(linear: Any) -> None:
    """Let a layer answer log r = 0: what an early stop falls back to is then no worse than nothing."""
    import torch

    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)


def _descended(scorer: Scorer, task: Task, lr: float) -> Fit:
    """Fit a scorer with the logistic loss."""
    import torch

    def loss(module: Any, real: Tensor, fake: Tensor) -> Tensor:
        # one forward pass for both kinds, so that batch norm cannot tell them apart by the batch they are in
        score = scorer(torch.cat([real, fake]), module)
        return logistic_loss(score[: len(real)], score[len(real) :])

    def judge(module: Any) -> float:
        real, fake = (blocks(lambda x: scorer(x, module), x).double() for x in (task.held_real, task.held_fake))
        return float(logistic_loss(real, fake))

    return scorer, descend(scorer.module, loss, judge, task, lr=lr)
