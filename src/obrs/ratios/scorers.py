"""What a fit leaves behind: tensors, and a function of them that scores samples.

Every fitted ratio is a `torch.nn.ModuleDict` with buffers, and plain data that says how to read it: that is also what
is in its file.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from .._names import lookup
from ..errors import InputError, InputTypeError
from .pairs import Tensor

__all__ = ["KINDS", "CriticFeatures", "Scorer", "blocks", "copied", "critic_features", "embed", "one_score"]
__all__ += ["standardise"]

_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Scorer:
    """Score tensors of samples.

    Args:
        kind: A key of `KINDS`.
        module: A `torch.nn.ModuleDict` with whatever that kind looks for.
        features: What a head looks at; not in the file.
        members: The scorers that are averaged.
    """

    kind: str
    module: Any
    features: Callable[[Tensor], Tensor] | None = None
    members: tuple["Scorer", ...] = ()

    def __call__(self, x: Tensor, module: Any = None) -> Tensor:
        """Score with these weights, or with those of a module built alike."""
        return lookup(KINDS, self.kind, "kind of ratio")(self, self.module if module is None else module, x)

    def to(self, device: Any) -> "Scorer":
        """Return a copy on another device."""
        members = tuple(member.to(device) for member in self.members)
        return replace(self, module=deepcopy(self.module).to(device), members=members)


def _network(scorer: Scorer, module: Any, x: Tensor) -> Tensor:
    return one_score(module["network"](embed(module, x)), len(x))


def _head(scorer: Scorer, module: Any, x: Tensor) -> Tensor:
    assert scorer.features is not None
    features = scorer.features(x)
    if features.ndim != 2 or len(features) != len(x):
        raise InputError(
            f"features must have shape ({len(x)}, k), got {tuple(features.shape)}; "
            "for those of a critic use Head(critic_features(critic))"
        )
    return module["linear"]((features.to(x.dtype) - module.shift) @ module.whiten)[:, 0]


def _trees(scorer: Scorer, module: Any, x: Tensor) -> Tensor:
    from .boosted import tree_scores

    return tree_scores(module, x)


def _mean(scorer: Scorer, module: Any, x: Tensor) -> Tensor:
    return sum(member(x) for member in scorer.members) / len(scorer.members)


def _telescope(scorer: Scorer, module: Any, x: Tensor) -> Tensor:
    from .telescope import bridge_scores

    return bridge_scores(module, x).sum(1)


KINDS: dict[str, Callable[[Scorer, Any, Tensor], Tensor]] = {
    "network": _network,
    "head": _head,
    "trees": _trees,
    "mean": _mean,
    "telescope": _telescope,
}
"""How each kind of fitted ratio is evaluated."""


def embed(module: Any, x: Tensor) -> Tensor:
    """Return what the network looks at: samples as they are, or standardised, with waves of them if there are any."""
    import torch

    if not hasattr(module, "shift"):
        return x
    x = (x - module.shift) / module.scale
    if not hasattr(module, "waves"):
        return x
    phase = x.flatten(1) @ module.waves
    return torch.cat([x.flatten(1), phase.sin(), phase.cos()], dim=1)


def standardise(module: Any, x: Tensor) -> None:
    """Keep mean and standard deviation of each number in these samples, for `embed`."""
    import torch

    spread = x.std(0)
    module.register_buffer("shift", x.mean(0))
    module.register_buffer("scale", torch.where(spread > 0, spread, torch.ones_like(spread)))


def one_score(score: Tensor, n: int) -> Tensor:
    """Return one number per sample, whether they came as (n,) or as (n, 1)."""
    if tuple(score.shape) not in {(n,), (n, 1)}:
        raise InputError(f"the network must return one score per sample, ({n},) or ({n}, 1), got {tuple(score.shape)}")
    return score.reshape(n)


def blocks(scorer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Score many samples, some thousand at a time; with a gradient only where the samples ask for one."""
    import torch

    with torch.set_grad_enabled(torch.is_grad_enabled() and x.requires_grad):
        return torch.cat([scorer(x[at : at + _BLOCK]) for at in range(0, len(x), _BLOCK)])


def copied(module: Any, x: Tensor, name: str) -> Any:
    """Return a copy that may be changed; check that it is a torch module on the device of the samples."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InputTypeError(f"{name} must be a torch module, got {type(module).__name__}")
    devices = {tensor.device for tensor in (*module.parameters(), *module.buffers())}
    if devices - {x.device}:
        where = ", ".join(sorted(map(str, devices)))
        raise InputError(f"{name} is on {where} and the proposals on {x.device}; move one of them to the other")
    with torch.no_grad():
        mode = module.training
        try:
            module.eval()(x)  # also leaves old-style spectral norm without a graph, which could not be copied
        finally:
            module.train(mode)
    return deepcopy(module)


@dataclass(frozen=True, eq=False)
class CriticFeatures:
    """What goes into one layer of a critic.

    Args:
        critic: A torch module, of its own.
        layer: Name of the layer.
    """

    critic: Any
    layer: str

    def __call__(self, x: Tensor) -> Tensor:
        taken: list[Any] = []
        part = self.critic.get_submodule(self.layer)
        handle = part.register_forward_pre_hook(lambda module, inputs: taken.append(inputs[0]))
        try:
            self.critic(x)
        finally:
            handle.remove()
        return taken[-1].flatten(1)


def critic_features(critic: Any, layer: str | None = None) -> CriticFeatures:
    """Return the features a critic has learned: what its last linear layer looks at.

    The critic is copied, and may be trained further without changing the features.

    Args:
        critic: A torch module.
        layer: Name of another layer, as in `critic.named_modules()`; its input is taken.

    Example:
        >>> import torch
        >>> from obrs.models.mlp import mlp_critic
        >>> critic_features(mlp_critic(2, width=16))(torch.zeros(5, 2)).shape
        torch.Size([5, 16])
    """
    import torch

    if not isinstance(critic, torch.nn.Module):
        raise InputTypeError(
            f"critic must be a torch module, got {type(critic).__name__}; a callable is features itself"
        )
    names = dict(critic.named_modules())
    linear = [name for name, part in names.items() if isinstance(part, torch.nn.Linear)]
    if layer is None and not linear:
        raise InputError(f"critic has no linear layer; name one of: {', '.join(filter(None, names))}")
    layer = linear[-1] if layer is None else layer
    lookup(names, layer, "layer of the critic")
    return CriticFeatures(deepcopy(critic).eval().requires_grad_(False), layer)
