"""Features that a ratio is fitted on.

`refit(features=...)` takes a callable, a torch module, the name of an extractor, or what the functions here return. All
of them are called with a tensor of samples, and with one of labels if the samples have labels.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from array_api_compat import is_array_api_obj

from .._arrays import host_view
from .._checks import check_at_least, check_seed
from .._text import lookup
from ..errors import InputError, InputTypeError, MissingLibraryError

try:
    import torch
    from torch import nn
except ImportError as error:
    raise MissingLibraryError("features need torch: pip install 'obrs[torch]'") from error

from ..fitting.seeds import own_noise
from .batch import Batch

__all__ = ["Features", "as_features", "build_features", "classifier_features", "critic_features", "probe_features"]

Tensor = Any


class Features(nn.Module):  # type: ignore[misc]
    """A map from samples to features `(n, k)`, with its `spec` as plain data; None for a function of your own."""

    def __init__(self, function: Any, spec: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.function, self.spec = function, spec
        self.eval()

    def forward(self, x: Tensor, label: Tensor = None) -> Tensor:
        """Return the features of samples."""
        single = x if self.spec is not None and "name" in self.spec else x.float()  # extractors also take bytes
        try:
            features = Batch(single, label).call(self.function)
        except (RuntimeError, TypeError) as error:
            if "device" in str(error):
                raise InputError(f"features are not on {x.device}, where the samples are; move one of them") from error
            given = f"samples of shape {tuple(x.shape[1:])}{'' if label is None else ' and labels'}"
            raise InputError(f"features cannot take {given}: {str(error).strip().splitlines()[0]}") from error
        if not is_array_api_obj(features) or features.ndim != 2 or len(features) != len(x):
            got = tuple(features.shape) if is_array_api_obj(features) else type(features).__name__
            hint = "for those of a critic use critic_features(critic)"
            raise InputError(f"features must have shape ({len(x)}, k), got {got}; {hint}")
        if isinstance(features, torch.Tensor):
            return features.to(x.device).float()
        return torch.tensor(host_view(features), dtype=torch.float32, device=x.device)


def as_features(given: Any) -> Features:
    """Read the argument `features` of `refit`; a torch module, or a method of one, is copied."""
    from ..metrics.features import FEATURES

    if isinstance(given, Features):
        return given
    if isinstance(given, str):
        return Features(_ignore_label(lookup(FEATURES, given, "features")), {"name": given})
    if isinstance(given, type) or not callable(given):
        got = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise InputTypeError(
            f"features must be a callable, a torch module or a name of {', '.join(FEATURES)}, got {got}"
        )
    for name, extractor in FEATURES.items():
        if extractor is given:
            return Features(_ignore_label(given), {"name": name})
    if isinstance(given, nn.Module):
        network = _freeze(given)
        return Features(network, {"network": network.spec} if hasattr(network, "spec") else None)
    owner = getattr(given, "__self__", None)
    return Features(getattr(_freeze(owner), given.__name__) if isinstance(owner, nn.Module) else given)


def build_features(spec: Mapping[str, Any]) -> Features:
    """Build features from the spec in a file; their weights are still to be loaded."""
    from ..models.registry import build

    if "name" in spec:
        return as_features(spec["name"])
    if "probe" in spec:
        return Features(_Probe(build_features(spec["of"]), *spec["probe"]), dict(spec))
    network = build(spec["network"]).eval().requires_grad_(False)
    return Features(_LastLayer(network, spec["layer"]) if "layer" in spec else network, dict(spec))


def classifier_features(images: Any, labels: Any, *, epochs: int = 8, seed: int = 0) -> Features:
    """Fit a small classifier; its outputs, one number per class, are the features.

    Few features that a class depends on are better than many, in which a budget is spent on details. Use images that
    neither the model nor the ratio is fitted on.

    Args:
        images: Real images in the form that `refit` gets, floats `(n, channels, side, side)`, NumPy or torch.
        labels: Their classes from 0 on, shape `(n,)`.
        epochs: Passes over the images; 8 are for some thousands, use more for some hundred.
        seed: Decides the initial weights and the order.

    Returns:
        Features; their `function` is the classifier, whose `predict` gives classes for models without labels.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> pixels, labels = load_digits(return_X_y=True)
        >>> images = (pixels / 8 - 1).astype("float32").reshape(-1, 1, 8, 8)
        >>> features = classifier_features(images[:500], labels[:500])
        >>> features(torch.as_tensor(images[500:503])).shape
        torch.Size([3, 10])
    """
    from ..models.classifier import Classifier, as_classes, fit_classifier

    shape = tuple(images.shape[1:]) if is_array_api_obj(images) else ()
    if len(shape) != 3 or shape[1] != shape[2] or not len(images):
        got = f"shape {tuple(images.shape)}" if shape else type(images).__name__
        raise InputError(f"images must be float images of shape (n, channels, side, side), got {got}")
    classes, seed = as_classes(labels, len(images)), check_seed(seed)
    with own_noise() as reseed:
        reseed(seed)
        network = Classifier(shape[1], shape[0], int(classes.max()) + 1, width=32, features=128)
    return as_features(fit_classifier(images, classes, network=network, epochs=epochs, seed=seed, progress=False))


def probe_features(images: Any, labels: Any, features: Any, *, penalty: float = 1e-3) -> Features:
    """Fit a linear probe on labels over any features; its logits, one number per class, are the features.

    A ratio on the hundreds of numbers of a large network spends the budget on details; one on the ten logits of a probe
    over the same network was the best on CIFAR-10.

    Args:
        images: Real samples that neither the model nor the ratio is fitted on.
        labels: Their classes from 0 on, shape `(n,)`.
        features: Anything that `refit` takes as features, such as "efficientnet_lite0".
        penalty: Weight of the squared coefficients, per sample, on standardised features.
    """
    from ..models.classifier import as_classes

    inner, batch = as_features(features), Batch.read(images, name="images").check("images")
    seen, y = batch.features(inner).check("features of images").x, as_classes(labels, len(batch))
    check_at_least(penalty, "penalty")
    with own_noise():  # its initial weights, which are not used
        probe = _Probe(inner, seen.shape[1], int(y.max()) + 1)
    probe.shift.copy_(seen.mean(0))
    probe.scale.copy_(seen.std(0).clamp_min(1e-6 * float(seen.std()) or 1.0))
    inputs = (seen - probe.shift) / probe.scale
    linear = probe.linear.requires_grad_(True)
    optimiser = torch.optim.LBFGS(linear.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(linear(inputs), y.to(inputs.device))
        loss = loss + penalty / 2 * linear.weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimiser.step(closure)
    linear.requires_grad_(False)
    of = inner.spec
    return Features(probe, None if of is None else {"probe": [seen.shape[1], int(y.max()) + 1], "of": of})


def critic_features(critic: Any, layer: str | None = None) -> Features:
    """Return the features that a critic, or a classifier, has learned: the inputs of its last layer.

    They are those of its method `features(x)`, if it has one, or else the inputs of its last linear layer. The critic
    is copied, and may be trained further without changing the features.

    Args:
        critic: A torch module.
        layer: Name of another layer, as in `critic.named_modules()`; its input is taken.
    """
    if not isinstance(critic, nn.Module):
        raise InputTypeError(
            f"critic must be a torch module, got {type(critic).__name__}; a callable is features itself"
        )
    method = getattr(critic, "features", None)
    if layer is not None or not callable(method) or isinstance(method, nn.Module):  # a module is only a part
        names = {name: part for name, part in critic.named_modules() if name}
        linear = [name for name, part in names.items() if isinstance(part, nn.Linear)]
        if layer is None and not linear:
            raise InputError(f"critic has no linear layer; name one of: {', '.join(names)}")
        layer = linear[-1] if layer is None else layer
        lookup(names, layer, "layer of the critic")
    network = _freeze(critic)
    spec = {"network": network.spec, "layer": layer} if hasattr(network, "spec") else None
    return Features(_LastLayer(network, layer), spec)


class _LastLayer(nn.Module):  # type: ignore[misc]
    """The input of one layer of a network, or the result of its own method `features`."""

    def __init__(self, network: Any, layer: str | None) -> None:
        super().__init__()
        self.network, self.layer = network, layer

    def forward(self, x: Tensor, label: Tensor = None) -> Tensor:
        if self.layer is None:
            return self.network.features(x).flatten(1)
        taken: list[Tensor] = []
        part = self.network.get_submodule(self.layer)
        handle = part.register_forward_pre_hook(lambda module, inputs: taken.append(inputs[0]))
        try:
            Batch(x, label).call(self.network)
        finally:
            handle.remove()
        return taken[-1].flatten(1)


class _Probe(nn.Module):  # type: ignore[misc]
    """A linear map of standardised features."""

    def __init__(self, inner: Features, inputs: int, classes: int) -> None:
        super().__init__()
        self.inner, self.linear = inner, nn.Linear(inputs, classes).requires_grad_(False)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.register_buffer("shift", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))

    def forward(self, x: Tensor, label: Tensor = None) -> Tensor:
        return self.linear((self.inner(x, label) - self.shift) / self.scale)


def _ignore_label(extractor: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return an extractor of images that may also be called with labels."""

    def compute(x: Tensor, label: Tensor = None) -> Any:
        if x.is_floating_point() and not (x.detach().min() >= -1.001 and x.detach().max() <= 1.001):
            ends = f"{float(x.min()):.3g} to {float(x.max()):.3g}"
            raise InputError(f"extractors of images take uint8, or floats in [-1, 1], got floats from {ends}")
        return extractor(x)

    return compute


def _freeze(network: Any) -> Any:
    """Return a copy of a network in evaluation mode that is not trained."""
    return deepcopy(network).eval().requires_grad_(False)
