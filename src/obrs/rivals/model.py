"""A generator with its latent and its score: what the samplers of `obrs.rivals` work on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import is_numpy_array

from .._arrays import array_like, host_values, namespace
from .._checks import check_callable, check_count, is_number
from ..draws import normals, uniforms
from ..errors import InputError, InputTypeError
from ..sampling.proposals import Batch, check_length, torch_module
from ..types import Array

__all__ = ["Model", "check_model"]


@dataclass(frozen=True)
class Model:
    """A generator x = G(z) with standard normal z, and the log-ratio that scores its samples.

    With `labels` the model is conditional, x = G(z, y): generator and log-ratio get the labels as a second argument,
    and a batch is the tuple `(x, y)`.

    Args:
        generate: Maps latents of shape `(n, dim)`, and labels if there are any, to samples.
        log_ratio: Maps samples, and labels if there are any, to `log p(x) - log q(x)`, shape `(n,)`.
        dim: Length of the latent.
        real: Some real samples, for methods that start from one or train on them; with labels a tuple `(x, y)`.
        like: An array or device that says where latents live, and the dtype of an array theirs; None for NumPy.
        labels: How labels are drawn: a number of classes that are equally frequent; how frequent each class is, one
            number per class; or `labels(ids) -> labels`. None for a model without.

    Example:
        >>> model = Model(generate=lambda z: 2 * z[:, 0], log_ratio=lambda x: -x * x, dim=1)
        >>> model.propose(range(3)).shape
        (3,)
        >>> model = Model(lambda z, y: z[:, 0] + y, lambda x, y: -((x - y) ** 2), dim=1, labels=lambda ids: ids % 2)
        >>> model.propose(np.arange(4))[1]
        array([0, 1, 0, 1])
    """

    generate: Callable[..., Any]
    log_ratio: Callable[..., Array]
    dim: int
    real: Any = None
    like: Any = None
    labels: int | Sequence[float] | Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        check_count(self.dim, "dim", least=0)
        check_callable(self.generate, "generate"), check_callable(self.log_ratio, "log_ratio")
        if self.like is None and torch_module(self.generate):
            raise InputError("generate is a torch module; give Model(..., like=torch.empty(0)) for latents as tensors")
        if self.labels is not None and not callable(self.labels):
            self._edges()

    def latent(self, ids: Any, *, seed: int = 0) -> Array:
        """Return the latents with these ids."""
        return normals(ids, self.dim, seed=seed, like=self.like)

    def label(self, ids: Any, *, seed: int = 0) -> Array | None:
        """Return the labels with these ids, where the latents live if they are integers; None for a model without."""
        if self.labels is None:
            return None
        if callable(self.labels):
            y = self.labels(np.asarray(ids))
            check_length(y, len(ids), "labels")
        else:
            y = np.searchsorted(self._edges(), uniforms(ids, seed=seed), side="right")
        if not is_numpy_array(y) or y.dtype.kind not in "iu":
            return y
        z = self.latent(np.empty(0, np.int64))
        return array_like(y, z, dtype=namespace(z).int64)

    def propose(self, ids: Any, *, seed: int = 0) -> Batch:
        """Return the samples with these ids; with labels the tuple `(x, y)`."""
        y, z = self.label(ids, seed=seed), self.latent(ids, seed=seed)
        return self.generate(z) if y is None else (self.generate(z, y), y)

    def score(self, x: Batch) -> Array:
        """Return the log-ratios of a batch; with labels that is a tuple `(x, y)`."""
        return self.log_ratio(x) if self.labels is None else self.log_ratio(*x)

    def condition(self, y: Array | None) -> "Model":
        """Return the model without labels that makes samples of these labels, one latent each."""
        if y is None:
            return self
        return Model(lambda z: self.generate(z, y), lambda x: self.log_ratio(x, y), self.dim, like=self.like)

    def _edges(self) -> Any:
        """Return where the uniforms of each class end."""
        equal = is_number(self.labels)
        counts: Any = np.ones(check_count(self.labels, "labels")) if equal else host_values(self.labels)
        numbers = counts.ndim == 1 and counts.dtype.kind in "iuf"
        if not numbers or not (counts >= 0).all() or not 0 < counts.sum() < np.inf:
            message = "labels must be a number of classes, how frequent each is, or labels(ids) -> labels"
            raise InputError(f"{message}, got {self.labels!r:.60}")
        return np.cumsum(counts) / np.sum(counts)


def check_model(model: Any) -> Model:
    """Return what must be a `Model`."""
    if not isinstance(model, Model):
        raise InputTypeError(f"model must be a Model(generate, log_ratio, dim), got {type(model).__name__}")
    return model
