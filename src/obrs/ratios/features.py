"""Features that a ratio is fitted on. What they see of a sample is what a budget is spent on.

`see_through` reads the argument `features` of `refit`; `critic_features` are those that a critic has learned, and
`classifier_features` those of a classifier that is fitted for the purpose.
"""

import os
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from array_api_compat import is_array_api_obj, is_torch_array

from .._arrays import host_view
from .._text import lookup
from ..errors import InputError, InputTypeError
from ..fitting.seeds import own_noise
from ..fitting.tensors import fill_module, under
from .labelled import Labelled, call_with, join, needs_label, parts, takes_label

__all__ = ["CriticFeatures", "Features", "classifier_features", "critic_features", "read_features", "see_through"]

_BLOCK = 512  # samples at a time
_OF_CRITIC = "for those of a critic use critic_features(critic)"

Tensor = Any


@dataclass(frozen=True, eq=False)
class Features:
    """A map from samples to the features that a ratio is a function of.

    Args:
        compute: From a tensor of samples `(n, ...)`, or of samples and one of labels, to features `(n, k)`.
        name: Its key in `obrs.metrics.features.FEATURES`; None if it has none.
        length: The number k of features; None before the first samples.
        bytes: Whether `compute` wants uint8, which the samples were.

    Example:
        >>> import torch
        >>> see = Features(lambda x: torch.stack([x.mean(1), x.std(1)], dim=1), length=2)
        >>> see(torch.zeros(3, 28)).shape
        torch.Size([3, 2])
    """

    compute: Callable[..., Any]
    name: str | None = None
    length: int | None = None
    bytes: bool = False

    def __str__(self) -> str:
        inner = getattr(self.compute, "critic", self.compute)
        return self.name or str(getattr(inner, "__qualname__", type(inner).__name__))

    def __call__(self, batch: Any) -> Any:
        """Return the features of a batch, with its labels if it has some; a gradient only if the samples require one.

        Args:
            batch: A tensor of samples, or a `Labelled`.
        """
        import torch

        if not len(batch):
            x, label = parts(batch)
            return _like(x.new_zeros(0, self.length or 0), label)
        with torch.set_grad_enabled(torch.is_grad_enabled() and batch.requires_grad):
            return _joined([self._block(batch[at : at + _BLOCK]) for at in range(0, len(batch), _BLOCK)])

    def all_of(self, batches: Iterable[Any]) -> Any:
        """Return the features of many samples, computed once, as one batch."""
        return _joined([self(batch) for batch in batches])

    def to(self, device: Any) -> "Features":
        """Return them on another device; a function of your own must be there already."""
        if (network := self._network) is None:
            return self
        moved, old = deepcopy(network).to(device), self.compute
        return replace(self, compute=replace(old, critic=moved) if isinstance(old, CriticFeatures) else moved)

    def describe(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Return what a file says of them as plain data; the weights of a network of `obrs.models` join the dict."""
        facts = {"name": self.name, "length": self.length, "bytes": self.bytes}
        network = self._network
        if (spec := getattr(network, "spec", None)) is not None:
            tensors |= {f"features/{key}": x for key, x in network.state_dict().items()}
            is_critic, layer = isinstance(self.compute, CriticFeatures), getattr(self.compute, "layer", None)
            facts |= {"spec": spec, "critic": is_critic, "layer": layer}
        return facts

    @property
    def _network(self) -> Any:
        """The torch module that they are computed with, None if there is none that is known."""
        import torch

        network = self.compute.critic if isinstance(self.compute, CriticFeatures) else self.compute
        return network if isinstance(network, torch.nn.Module) else None

    def _block(self, batch: Any) -> Any:
        x, label = parts(batch)
        given = _like(x.byte() if self.bytes else x, label)
        try:
            found = call_with(self.compute, given)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            if "device" in reason:
                raise InputError(f"features are not on {x.device}, where the samples are; move one of them") from error
            raise InputError(f"features cannot take samples of shape {tuple(x.shape[1:])}: {reason}") from error
        if not is_array_api_obj(found):
            raise InputTypeError(f"features must return an array of shape ({len(x)}, k), got {type(found).__name__}")
        if found.ndim != 2 or len(found) != len(x) or not found.shape[1]:
            raise InputError(f"features must have shape ({len(x)}, k), got {tuple(found.shape)}; {_OF_CRITIC}")
        if self.length is not None and found.shape[1] != self.length:
            raise InputError(f"features must have {self.length} numbers per sample, as before, got {found.shape[1]}")
        return _like(_float32(found, x), label)


def _like(x: Tensor, label: Tensor | None) -> Any:
    return x if label is None else Labelled(x, label)


def _joined(found: list[Any]) -> Any:
    """Return the features of several batches as one; they must be of one length."""
    lengths = sorted({int(parts(batch)[0].shape[1]) for batch in found})
    if len(lengths) > 1:
        each = " and ".join(map(str, lengths))
        raise InputError(f"features must have as many numbers for every sample, got {each} in different batches")
    return join(found)


def _float32(found: Any, x: Tensor) -> Tensor:
    """Return features of any array library as a float32 tensor where the samples are."""
    import torch

    if is_torch_array(found):
        return found.to(device=x.device, dtype=torch.float32)
    return torch.tensor(host_view(found), dtype=torch.float32, device=x.device)


def see_through(given: Any, x: Any = None, *, has_label: bool = True) -> Features | None:
    """Read the argument `features` of `refit`, and check that these samples can be given to it.

    A torch module, or a method of one, is copied and set to evaluation mode.

    Args:
        given: A callable, a torch module, a key of `obrs.metrics.features.FEATURES`, or None.
        x: The real samples; None if they are not at hand.
        has_label: Whether they have labels.

    Returns:
        The features, not computed yet; None for None.
    """
    if given is None:
        return None
    from ..metrics.features import FEATURES

    if isinstance(given, str):
        given = lookup(FEATURES, given, "features")
    if isinstance(given, type) or not callable(given):
        got = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        names = ", ".join(FEATURES)
        raise InputTypeError(f"features must be a callable, a torch module or a name, one of {names}, got {got}")
    name = next((key for key, known in FEATURES.items() if known is given), None)
    if name is not None:
        return Features(given, name, bytes=x is not None and _check_pixels(x, name))
    if not has_label and needs_label(given):
        raise InputError(
            "features take labels, (x, label): give real as a tuple (x, label), and let propose return one"
        )
    return Features(_settled(given))


def read_features(
    facts: dict[str, Any] | None, tensors: dict[str, Any], given: Any, path: str | os.PathLike[str]
) -> Features | None:
    """Return the features that `Features.describe` described, or those that the user gave.

    Args:
        facts, tensors: What the file holds; None for a ratio of the samples themselves.
        given: Features of the user, for those that have neither a name nor a network of `obrs.models`.
        path: The file.
    """
    if facts is None:
        return None
    found = facts["name"] if given is None else given
    if found is None and "spec" in facts:
        from ..models.registry import build

        network = build(facts["spec"])
        fill_module(network, under(tensors, "features"), "network of features", Path(path))
        found = CriticFeatures(_settled(network), facts["layer"]) if facts["critic"] else network
    if found is None:
        raise InputError("this ratio was fitted on features of your own; pass load_ratio(path, features=...)")
    see = see_through(found)
    assert see is not None
    return replace(see, length=facts["length"], bytes=facts["bytes"])


def _check_pixels(x: Any, name: str) -> bool:
    """Return whether images are integers; refuse floats that cannot be pixels from -1 to 1."""
    if "float" not in str(x.dtype):
        return True
    low, high = float(x.min()), float(x.max())
    if not -1.001 <= low <= high <= 1.001:
        raise InputError(f"{name} takes uint8, or floats in [-1, 1], real has floats from {low:.3g} to {high:.3g}")
    return False


def _settled(function: Any) -> Any:
    """Return a copy of a torch module, or of the one that this is a method of, in evaluation mode."""
    import torch

    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        name, copy = function.__name__, _settled(owner)
        return CriticFeatures(copy, None) if name == "features" else getattr(copy, name)
    if not isinstance(function, torch.nn.Module):
        return function
    return deepcopy(function).eval().requires_grad_(False)


@dataclass(frozen=True, eq=False)
class CriticFeatures:
    """What a critic says of a sample before its last layer.

    Args:
        critic: A torch module that nothing else uses.
        layer: Name of the layer whose inputs are taken; None for the critic's own method `features`.
    """

    critic: Any
    layer: str | None

    @property
    def takes_label(self) -> bool:
        """Whether the critic wants labels, too."""
        return self.layer is not None and takes_label(self.critic)

    def __call__(self, *batch: Tensor) -> Tensor:
        if self.layer is None:
            return self.critic.features(batch[0]).flatten(1)
        taken: list[Any] = []
        part = self.critic.get_submodule(self.layer)
        handle = part.register_forward_pre_hook(lambda module, inputs: taken.append(inputs[0]))
        try:
            self.critic(*batch)
        finally:
            handle.remove()
        return taken[-1].flatten(1)


def critic_features(critic: Any, layer: str | None = None) -> CriticFeatures:
    """Return the features that a critic, or a classifier, has learned: what its last layer sees.

    They are those of its method `features(x)`, if it has one, or else the inputs of its last linear layer. The critic
    is copied, and may be trained further without changing the features.

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
    own = getattr(critic, "features", None)
    if layer is None and callable(own) and not isinstance(own, torch.nn.Module):  # a module is a part, maybe the first
        return CriticFeatures(_settled(critic), None)
    names = dict(critic.named_modules())
    linear = [name for name, part in names.items() if isinstance(part, torch.nn.Linear)]
    if layer is None and not linear:
        raise InputError(f"critic has no linear layer; name one of: {', '.join(filter(None, names))}")
    layer = linear[-1] if layer is None else layer
    lookup({name: part for name, part in names.items() if name}, layer, "layer of the critic")
    return CriticFeatures(_settled(critic), layer)


def classifier_features(images: Any, labels: Any, *, epochs: int = 8, seed: int = 0) -> Any:
    """Fit a small classifier and return it. Its outputs, one number per class, are the features.

    Few features that a class depends on are better than many. In the 128 numbers of the layer before, which
    `critic_features` of the classifier are, data and model differ so much that a budget is spent on details.

    It takes seconds. The classifier need not be the best, but it must not know what the model knows: use images that
    the model was not trained on, and others than those that the ratio is fitted on.

    Args:
        images: Real images in the form that `refit` gets, floats `(n, channels, side, side)`, NumPy or torch.
        labels: Their classes from 0 on, shape `(n,)`.
        epochs: Passes over the images; 8 are for some thousands, use more for some hundred.
        seed: Decides the initial weights and the order.

    Returns:
        A torch module, `obrs.models.classifier.Classifier`; its `predict` gives classes for models without labels.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> pixels, labels = load_digits(return_X_y=True)
        >>> images = (pixels / 8 - 1).astype("float32").reshape(-1, 1, 8, 8)
        >>> features = classifier_features(images[:500], labels[:500])
        >>> import torch
        >>> features(torch.as_tensor(images[500:503])).shape
        torch.Size([3, 10])
    """
    from ..models.classifier import check_classes, fit_classifier, small_classifier

    shape = tuple(images.shape[1:]) if is_array_api_obj(images) else ()
    if len(shape) != 3 or shape[1] != shape[2]:
        got = f"shape {tuple(images.shape)}" if shape else type(images).__name__
        raise InputError(f"images must be float images of shape (n, channels, side, side), got {got}")
    if not len(images):
        raise InputError("images must be at least one, got none")
    check_classes(labels, len(images))
    with own_noise() as reseed:
        reseed(seed)
        network = small_classifier(shape[1], shape[0], int(labels.max()) + 1, width=32, features=128)
    return fit_classifier(images, labels, network=network, epochs=epochs, seed=seed, progress=False)
