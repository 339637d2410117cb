"""A generator with its latent and its score: what every sampler of `SAMPLERS` works on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array

from .._arrays import as_floats, host_view, like, namespace
from .._checks import check_count, is_number
from ..draws import normals, uniforms
from ..errors import InputError, InputTypeError
from ..types import Array
from .proposals import Batch, check_length, holds_torch

__all__ = ["Model"]


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
        like: An array or device that says where latents live; None for NumPy.
        dtype: dtype of the latents; None for that of `like`.
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
    dtype: Any = None
    labels: int | Sequence[float] | Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.like is None and holds_torch(self.generate):
            raise InputError(
                "generate is a torch model; give Model(..., like=torch.empty(0)), so that latents are tensors"
            )
        if self.labels is not None and not callable(self.labels):
            self._edges()
        pair = isinstance(self.real, tuple) and len(self.real) == 2
        if self.labels is not None and self.real is not None and not pair:
            raise InputTypeError(f"real samples of a model with labels are (x, y), got {type(self.real).__name__}")

    def latent(self, ids: Any, *, seed: int = 0) -> Array:
        """Return the latents with these ids."""
        return normals(ids, self.dim, seed=seed, like=self.like, dtype=self.dtype)

    def label(self, ids: Any, *, seed: int = 0) -> Array | None:
        """Return the labels with these ids, where the latents live; None for a model without."""
        if self.labels is None:
            return None
        if callable(self.labels):
            found = self.labels(np.asarray(ids))
            found = found if is_array_api_obj(found) else np.asarray(found)
            check_length(found, len(ids), "labels")
        else:
            found = np.searchsorted(self._edges(), uniforms(ids, seed=seed), side="right")
        return _beside(found, self.latent(np.empty(0, np.int64)))

    def propose(self, ids: Any, *, seed: int = 0) -> Batch:
        """Return the samples with these ids; with labels the tuple `(x, y)`."""
        y = self.label(ids, seed=seed)
        return self.make(self.latent(ids, seed=seed), y)

    def make(self, z: Array, y: Array | None) -> Batch:
        """Return the samples of these latents and labels, as a batch."""
        return self.generate(z) if y is None else (self.generate(z, y), y)

    def score(self, x: Batch) -> Array:
        """Return the log-ratios of a batch; with labels that is a tuple `(x, y)`."""
        return self.log_ratio(x) if self.labels is None else self.log_ratio(*x)

    def given(self, y: Array | None) -> "Model":
        """Return the model without labels that makes samples of these labels, one latent each."""
        if y is None:
            return self
        generate, log_ratio = self.generate, self.log_ratio
        return replace(
            self, generate=lambda z: generate(z, y), log_ratio=lambda x: log_ratio(x, y), real=None, labels=None
        )

    def need_real(self, who: str) -> Any:
        """Return the real samples, or say who needs them."""
        if self.real is None:
            raise InputError(f"{who} needs real samples; give Model(..., real=...)")
        return self.real

    def need_no_labels(self, who: str) -> None:
        """Raise if the model has labels, which `who` does not look at."""
        if self.labels is not None:
            raise InputError(f"{who} does not take a model with labels; use 'obrs', or a Model for each label")

    def _edges(self) -> Any:
        """Return where the uniforms of the classes end."""
        if is_number(self.labels):
            count = check_count(self.labels, "labels")
            return np.arange(1, count + 1) / count
        message = "labels must be a number of classes, how frequent each is, or labels(ids) -> labels"
        try:
            counts: Any = host_view(as_floats(self.labels, "labels"))
        except (InputError, InputTypeError) as error:
            raise InputTypeError(f"{message}, got {type(self.labels).__name__}") from error
        if counts.ndim != 1 or not counts.size or not (np.isfinite(counts) & (counts >= 0)).all() or not counts.any():
            raise InputError(f"{message}, got {self.labels!r:.60}")
        return np.cumsum(counts) / np.sum(counts)


def _beside(labels: Array, z: Array) -> Array:
    """Put integers of NumPy where the latents live; text stays in NumPy."""
    if not is_numpy_array(labels) or labels.dtype.kind not in "iu":
        return labels
    return like(labels, z, dtype=namespace(z).int64)
