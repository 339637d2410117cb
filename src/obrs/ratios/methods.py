"""Methods to fit a log-ratio with gradients, as records: networks, and heads on features.

A method has `fit(task)`, which returns a `Fit`.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, Protocol

from .._checks import check_count, check_positive
from .._text import lookup
from ..errors import InputError, InputTypeError
from ..fitting.loop import Course
from .labelled import (
    Labelled,
    call_with,
    encode_labels,
    join,
    label_index,
    label_numbers,
    needs_label,
    parts,
    takes_label,
)
from .task import Task, Tensor, check_numbers, fit_network, logistic_loss

__all__ = [
    "FineTune",
    "Fit",
    "Head",
    "Method",
    "Network",
    "Scorer",
    "blocks",
    "head_scores",
    "network_scores",
]

_BLOCK = 4096
_PILOT = 8192  # samples of each kind that means and variances are computed from
_SMALL = 8  # numbers in a sample up to which waves help and do not overfit
_FLOOR = 0.1  # of the typical spread, where all numbers of a sample have one unit
_CHANNELS = (1, 3, 4)  # that an image has if they come last: grey, colour, colour with opacity


@dataclass(frozen=True, eq=False)
class Scorer:
    """What a fit leaves behind: tensors, and the function that computes scores with them.

    Args:
        score: A function of the scorer, its module and a tensor of samples, or a `Labelled`, with values of shape
            `(n,)`.
        module: A `torch.nn.ModuleDict` with the networks and buffers that `score` uses; these are saved.
        features: The features of a head; they are not saved.
    """

    score: Callable[["Scorer", Any, Any], Tensor]
    module: Any
    features: Callable[..., Tensor] | None = None

    def __call__(self, x: Any, module: Any = None) -> Tensor:
        """Score with the fitted tensors, or with those of another module of the same form."""
        return self.score(self, self.module if module is None else module, x)

    def to(self, device: Any) -> "Scorer":
        """Return a copy on another device."""
        return replace(self, module=deepcopy(self.module).to(device))


class Fit(NamedTuple):
    """What a method returns.

    Attributes:
        scorer: What was fitted.
        course: How the fit went.
        fakes: How many samples of the model were used.
    """

    scorer: Scorer
    course: Course
    fakes: int


class Method(Protocol):
    """A way to fit a ratio."""

    def fit(self, task: Task) -> Fit: ...


@dataclass(frozen=True, eq=False)
class Head:
    """A logistic regression on features of the samples: it takes seconds and hardly overfits.

    Features are whitened first. They are not fitted, and not saved with the ratio. With labels, the regression gets a
    constant for each of them, or numbers if they are floats. `Head()` is fitted on the `features` of `refit`, which are
    computed once for each real sample; `Head(features)` computes them in every step.

    Args:
        features: Maps a tensor of samples `(n, ...)`, or of samples and one of labels, to features `(n, k)`; for those
            of a critic use `critic_features(critic)`. None for those of `refit`.
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

    features: Callable[..., Tensor] | None = None
    lr: float = 0.02

    def __post_init__(self) -> None:
        check_positive(self.lr, "lr")
        if self.features is not None and not callable(self.features):
            raise InputTypeError(f"features must be a callable, got {type(self.features).__name__}")

    def fit(self, task: Task) -> Fit:
        """Fit the weights of the features."""
        import torch

        if (self.features is None) == (task.features is None):
            given = "two" if task.features else "none"
            raise InputError(f"a head needs features, got {given}: use Head() with refit(..., features=...)")
        if self.features is not None:
            _check_label(self.features, task, "features")
        pilot = task.pilot(_PILOT)
        if self.features is None:
            both = parts(join(pilot))[0].double()
        else:
            both = _pilot_features(self.features, pilot, task.device).double()
        module = torch.nn.ModuleDict()
        module.register_buffer("shift", both.mean(0).float())
        module.register_buffer("whiten", _whitening(both).float())
        inputs = module.whiten.shape[1] + encode_labels(module, task.form, join(pilot))
        module["linear"] = _built(task, {"name": "mlp", "sizes": [inputs, 1]})
        _start_at_chance(module["linear"][-1])
        return _fitted(Scorer(head_scores, module, features=self.features), task, self.lr)


def _pilot_features(features: Callable[..., Tensor], pilot: tuple[Any, Any], device: Any) -> Tensor:
    """Return the features of some samples of both kinds, after checks."""
    import torch

    try:
        found = [blocks(lambda x: call_with(features, x), x) for x in pilot]
    except RuntimeError as error:
        if "device" not in str(error):
            raise
        raise InputError(f"features are not on {device}, where the proposals are; move one of them") from error
    for part in found:
        if part.ndim != 2:
            raise InputError(
                f"features must have shape (n, k), got {tuple(part.shape)}; "
                "for those of a critic use Head(critic_features(critic))"
            )
        check_numbers(part, "features")
    return torch.cat(found)


@dataclass(frozen=True, eq=False)
class FineTune:
    """Train all of a critic further, with the logistic loss. Its output becomes a log-ratio, whatever its loss was.

    The critic is copied, never changed. Its output `(n,)` or `(n, 1)` is read as a logit from the start. Layers whose
    parameters have `requires_grad=False` stay as they are, in evaluation mode; if all have, as a GAN may leave its
    critic, all are trained.

    Args:
        critic: A torch module on the device of the proposals: `critic(x)`, or `critic(x, label)` for samples with
            labels.
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
        check_positive(self.lr, "lr")

    def fit(self, task: Task) -> Fit:
        """Train a copy of the critic."""
        import torch

        module = torch.nn.ModuleDict()
        module["network"] = _copied(self.critic, task, "critic")
        return _fitted(Scorer(network_scores, module), task, self.lr)


@dataclass(frozen=True, eq=False)
class Network:
    """Train a new network from scratch, on standardised samples; one of your own gets them as they are.

    With labels, the mlp gets one more input for each of them, or one for each number if they are floats; the cnn gets
    a part of its last layer for each of them, a projection.

    Args:
        network: "mlp", "cnn" for images `(channels, side, side)` or `(side, side, channels)`, a torch module of your
            own, `net(x)` or `net(x, label)` (it is copied, and frozen layers stay frozen), or None: a cnn for images,
            otherwise an mlp.
        width: Units in a hidden layer of the mlp, or channels in the first layer of the cnn.
        layers: Hidden layers of the mlp.
        waves: If a sample has up to 8 numbers, the mlp also gets the sine and cosine of this many random projections
            of it. They help it to find thin modes. 0 for none.
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
        | cGANs with Projection Discriminator (Miyato & Koyama, 2018)
    """

    network: Any = None
    width: int | None = None
    layers: int = 3
    waves: int = 64
    lr: float = 3e-3

    def __post_init__(self) -> None:
        check_positive(self.lr, "lr")
        check_count(self.layers, "layers")
        check_count(self.waves, "waves", least=0)
        if self.width is not None:
            check_count(self.width, "width")
        if isinstance(self.network, str):
            lookup(_BUILD, self.network, "network")

    def fit(self, task: Task) -> Fit:
        """Build the network and train it."""
        import torch

        both = join(task.pilot(_PILOT))
        module = torch.nn.ModuleDict()
        name = self.network
        if name is None:
            numbered = task.form.label is not None and task.form.known is None
            name = "cnn" if _image(task.shape) and not numbered else "mlp"
        if isinstance(name, str):
            _BUILD[name](self, module, both, task)
        else:
            module["network"] = _copied(name, task, "network")
        return _fitted(Scorer(network_scores, module), task, self.lr)


def _mlp(method: Network, module: Any, both: Any, task: Task) -> None:
    x = parts(both)[0]
    _standardise(module, x)
    numbers = prod(task.shape)
    inputs = numbers + encode_labels(module, task.form, both)
    inputs += _add_waves(module, method.waves, task)
    sizes = [inputs, *[method.width or 128] * method.layers, 1]
    module["network"] = _built(task, {"name": "mlp", "sizes": sizes, "activation": "silu"})
    _start_at_chance(module["network"][-1])


def _image(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the channels and the side of a square image, whether its channels come first or last; None of no image.

    Example:
        >>> _image((3, 32, 32)), _image((28, 28, 1)), _image((28, 28)), _image((4, 4, 1))
        ((3, 32), (1, 28), None, None)
    """
    if len(shape) != 3:
        return None
    if shape[1] == shape[2] >= 8:
        return shape[0], shape[1]
    return (shape[2], shape[0]) if shape[0] == shape[1] >= 8 and shape[2] in _CHANNELS else None


def _cnn(method: Network, module: Any, both: Any, task: Task) -> None:
    import torch

    if (image := _image(task.shape)) is None:
        forms = "(channels, side, side) or (side, side, channels), at least 8 pixels a side"
        raise InputError(f'"cnn" needs square images {forms}, got samples of shape {task.shape}')
    if task.form.label is not None and task.form.known is None:
        raise InputError('"cnn" takes labels that are integers, got floats; use Network("mlp") or a net(x, label)')
    x = parts(both)[0]
    module.register_buffer("shift", x.mean())
    module.register_buffer("scale", x.std())
    channels, side = image
    if channels != task.shape[0]:
        module.register_buffer("channels_last", torch.tensor(True, device=x.device))
    spec = {"name": "conv_critic", "size": side, "channels": channels, "width": method.width or 32}
    spec |= {"classes": encode_labels(module, task.form, both) or None}
    module["network"] = _built(task, spec)


_BUILD: dict[str, Callable[[Network, Any, Any, Task], None]] = {"mlp": _mlp, "cnn": _cnn}


def network_scores(scorer: Scorer, module: Any, batch: Any) -> Tensor:
    """Return the output of the network."""
    import torch

    x, label = parts(batch)
    network, inputs = module["network"], _embed(module, x)
    if label is None or not (hasattr(module, "labels") or hasattr(module, "label_shift")):  # no label, or your own
        score = network(inputs) if label is None else call_with(network, batch)
    elif takes_label(network):
        score = network(inputs, label_index(module, label))
    else:
        score = network(torch.cat([inputs.flatten(1), label_numbers(module, label)], dim=1))
    return _one_score(score, len(x))


def head_scores(scorer: Scorer, module: Any, batch: Any) -> Tensor:
    """Return the logistic regression on the features."""
    import torch

    x, label = features, _ = parts(batch)
    if scorer.features is not None:
        with torch.set_grad_enabled(torch.is_grad_enabled() and x.requires_grad):
            features = call_with(scorer.features, batch)
    if features.ndim != 2 or len(features) != len(x):
        raise InputError(
            f"features must have shape ({len(x)}, k), got {tuple(features.shape)}; "
            "for those of a critic use Head(critic_features(critic))"
        )
    inputs = (features.to(x.dtype) - module.shift) @ module.whiten
    if label is not None:
        inputs = torch.cat([inputs, label_numbers(module, label)], dim=1)
    return module["linear"](inputs)[:, 0]


def _embed(module: Any, x: Tensor) -> Tensor:
    """Return the input of the network: samples as they are, or standardised, with their waves if it has any."""
    from ..models.fourier import with_waves

    if not hasattr(module, "shift"):
        return x
    x = (x - module.shift) / module.scale
    if hasattr(module, "channels_last"):
        return x.movedim(-1, 1)
    if not hasattr(module, "waves"):
        return x
    return with_waves(x, module.waves)


def _standardise(module: Any, x: Tensor) -> None:
    """Store the mean and standard deviation of each number in these samples, for `_embed`.

    A pixel that hardly ever changes has next to no spread, and the first image in which it does would be a thousand
    standard deviations away. So where all numbers have one unit, none is divided by less than a tenth of the typical
    spread.
    """
    import torch

    spread = x.std(0)
    floor = _FLOOR * spread.square().mean().sqrt() if _one_unit(x) else spread.new_zeros(())
    scale = torch.maximum(spread, floor)
    module.register_buffer("shift", x.mean(0))
    module.register_buffer("scale", torch.where(scale > 0, scale, torch.ones_like(scale)))


def _one_unit(x: Tensor) -> bool:
    """Tell whether the numbers of a sample are alike, as pixels or features are, or the columns of a table.

    They are in images, and where there are many of them and most have about the same range.

    Example:
        >>> import torch
        >>> x = torch.randn(500, 12, generator=torch.Generator().manual_seed(0))
        >>> _one_unit(x), _one_unit(x * 10.0 ** torch.arange(12))
        (True, False)
    """
    if x.ndim > 2:
        return True
    span = x.amax(0) - x.amin(0)
    span = span[span > 0]
    if len(span) <= _SMALL:
        return False
    typical = span.median()
    return bool(((span > typical / 4) & (span < 4 * typical)).float().mean() > 0.5)


def _add_waves(module: Any, waves: int, task: Task) -> int:
    """Store random projections for `_embed`, if a sample has few numbers; return how many inputs they add."""
    from ..models.fourier import random_waves

    numbers = module.shift.numel()
    if not waves or numbers > _SMALL:
        return 0
    with task.seeded():
        drawn = random_waves(numbers, waves)  # in cycles per standard deviation
    module.register_buffer("waves", drawn.to(module.shift))
    return 2 * waves


def _one_score(score: Tensor, n: int) -> Tensor:
    """Return one number per sample, from shape (n,) or (n, 1)."""
    if tuple(score.shape) not in {(n,), (n, 1)}:
        raise InputError(f"the network must return one score per sample, ({n},) or ({n}, 1), got {tuple(score.shape)}")
    return score.reshape(n)


def blocks(scorer: Callable[[Any], Tensor], x: Any) -> Tensor:
    """Score many samples, some thousand at a time; with a gradient only if the samples require one."""
    import torch

    with torch.set_grad_enabled(torch.is_grad_enabled() and x.requires_grad):
        return torch.cat([scorer(x[at : at + _BLOCK]) for at in range(0, len(x), _BLOCK)])


def _check_label(function: Any, task: Task, name: str) -> None:
    """Refuse a network that wants labels for samples without."""
    if task.form.label is None and needs_label(function):
        raise InputError(
            f"{name} takes labels, (x, label): give real as a tuple (x, label), and let propose return one"
        )


def _copied(module: Any, task: Task, name: str) -> Any:
    """Check that this is a torch module on the device of the samples, and return a copy."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InputTypeError(f"{name} must be a torch module, got {type(module).__name__}")
    _check_label(module, task, name)
    batch = _extremes(task)
    devices = {tensor.device for tensor in (*module.parameters(), *module.buffers())}
    if devices - {batch.device}:
        where = ", ".join(sorted(map(str, devices)))
        raise InputError(f"{name} is on {where} and the proposals on {batch.device}; move one of them to the other")
    with torch.no_grad():
        mode = module.training
        try:
            call_with(module.eval(), batch)  # after this, modules with old-style spectral norm can be copied, too
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            known, reason = task.form.known, str(error).strip().splitlines()[0]
            if task.features is not None:
                wants = f"with features={task.features} the {name} gets features of shape {task.shape}, not samples"
                raise InputError(f"{wants}, and cannot take them ({reason}); use Network() instead") from error
            what = "" if known is None else f" with labels {known[0]} to {known[-1]}"
            if (image := _image(task.shape)) and image[0] != task.shape[0]:
                what += ", whose channels come last"
            raise InputError(f"{name} cannot take samples of {task.shape}{what}: {reason}") from error
        finally:
            module.train(mode)
    copy = deepcopy(module)
    return copy if any(p.requires_grad for p in copy.parameters()) else copy.requires_grad_(True)


def _extremes(task: Task) -> Any:
    """Return two samples; with labels that are integers, the smallest and the largest of those."""
    import torch

    batch = task.held_fake[:2]
    if task.form.known is None:
        return batch
    return Labelled(batch.x, torch.as_tensor(task.form.known[[0, -1]], device=batch.device))


def _whitening(x: Tensor) -> Tensor:
    """Return the matrix that makes features `(n, k)` uncorrelated, with variance 1; constant directions are left out.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0, 1.0, 5.0], [2.0, 3.0, 5.0], [4.0, 0.0, 5.0], [1.0, 1.0, 5.0]])
        >>> torch.cov((x @ _whitening(x)).T).round(decimals=3).abs()
        tensor([[1., 0.],
                [0., 1.]])
    """
    import torch

    variance, axes = torch.linalg.eigh(torch.atleast_2d(torch.cov(x.T)))
    kept = variance > 1e-6 * variance.max()
    if not bool(kept.any()):
        raise InputError(f"features are constant over {len(x)} samples: they tell nothing apart")
    return axes[:, kept] / variance[kept].sqrt()


def _built(task: Task, spec: dict[str, Any]) -> Any:
    """Build a network with initial weights from the seed of the task."""
    from ..models.registry import build

    with task.seeded():
        return build(spec).to(task.device)


def _start_at_chance(linear: Any) -> None:
    """Make a last layer answer log r = 0, so that the weights of an early stop are no worse than chance."""
    import torch

    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)


def _is_frozen(module: Any) -> bool:
    """Tell whether a part of a network has parameters, and none that is trained."""
    parameters = list(module.parameters())
    return bool(parameters) and not any(p.requires_grad for p in parameters)


def _fitted(scorer: Scorer, task: Task, lr: float) -> Fit:
    """Fit a scorer with the logistic loss."""
    frozen = [part for part in scorer.module.modules() if _is_frozen(part)]

    def loss(module: Any, real: Any, fake: Any) -> Tensor:
        for part in frozen:  # no running means, no dropout, no singular vectors that move on
            part.eval()
        # one forward pass for both kinds, so that batch norm cannot tell them apart by the batch they are in
        score = scorer(join([real, fake]), module)
        return logistic_loss(score[: len(real)], score[len(real) :])

    def held_out_loss(module: Any) -> float:
        real, fake = (blocks(lambda x: scorer(x, module), x).double() for x in (task.held_real, task.held_fake))
        return float(logistic_loss(real, fake))

    course = fit_network(scorer.module, loss, held_out_loss, task, lr=lr)
    return Fit(scorer, course, fakes=course.steps * task.batch_size)
