"""Samples with labels: which part of a batch is the label, and how a network gets to see it.

A batch is an array, a tuple (x, label), or a dict of the two. Inside a fit it is a tensor, or a `Labelled`.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_torch_array

from .._arrays import host_view
from ..errors import InputError, InputTypeError

__all__ = ["ARRAY", "Form", "Labelled", "call_with", "check_labels", "encode_labels", "form_of"]
__all__ += ["join", "label_index", "label_numbers", "label_tensor", "needs_label", "parts", "takes_label"]

_X = ("x", "image", "images", "sample", "samples")  # keys of a dict that say which array is the sample
_LABEL = ("label", "labels", "y", "class", "classes", "condition")  # and which the label; also names of an argument
_SHOWN = 5  # labels that an error lists

Tensor = Any


@dataclass(frozen=True, eq=False)
class Labelled:
    """A tensor of samples and one of their labels, which are cut and moved together.

    Example:
        >>> import torch
        >>> batch = Labelled(torch.zeros(5, 2), torch.arange(5))
        >>> len(batch[1:3]), batch[1:3].label
        (2, tensor([1, 2]))
    """

    x: Tensor
    label: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> "Labelled":
        return Labelled(self.x[rows], self.label[rows])

    @property
    def device(self) -> Any:
        """The device of both."""
        return self.x.device

    @property
    def requires_grad(self) -> bool:
        """Whether the samples ask for a gradient."""
        return bool(self.x.requires_grad)

    def to(self, device: Any) -> "Labelled":
        """Return both on another device."""
        return Labelled(self.x.to(device), self.label.to(device))

    def clone(self) -> "Labelled":
        """Return a copy."""
        return Labelled(self.x.clone(), self.label.clone())


def parts(batch: Any) -> tuple[Any, Any]:
    """Return the samples of a batch, and their labels or None.

    Example:
        >>> import torch
        >>> parts(torch.zeros(2, 1))[1] is None
        True
    """
    return (batch.x, batch.label) if isinstance(batch, Labelled) else (batch, None)


def join(batches: Sequence[Any]) -> Any:
    """Return batches one after the other, as one.

    Example:
        >>> import torch
        >>> join([Labelled(torch.zeros(2, 1), torch.tensor([0, 1]))] * 2).label
        tensor([0, 1, 0, 1])
    """
    import torch

    if not isinstance(batches[0], Labelled):
        return torch.cat(list(batches))
    return Labelled(torch.cat([batch.x for batch in batches]), torch.cat([batch.label for batch in batches]))


@dataclass(frozen=True, eq=False)
class Form:
    """How a batch holds samples and labels, and which labels there are.

    Args:
        kind: "array", "tuple" or "dict".
        x, label: Positions in a tuple, keys of a dict; `label` is None if there is none.
        known: The labels of the real samples, sorted, if labels are integers.

    Example:
        >>> form = form_of({"image": np.zeros((3, 2)), "digit": np.arange(3)}, "real")
        >>> form.x, form.label, str(form)
        ('image', 'digit', "a dict of 'image' and 'digit'")
    """

    kind: str = "array"
    x: Any = None
    label: Any = None
    known: "np.ndarray[Any, Any] | None" = None

    def __str__(self) -> str:
        if self.kind == "array":
            return "an array"
        if self.kind == "tuple":
            return "a tuple of one array" if self.label is None else "a tuple (x, label)"
        return "a dict of " + " and ".join(repr(key) for key in (self.x, self.label) if key is not None)

    def read(self, batch: Any, name: str, what: str) -> tuple[Any, Any]:
        """Return the samples and labels of another batch; refuse one of another form.

        Args:
            batch: The batch.
            name: Who made it, for the error.
            what: Who made the batch that this is the form of.
        """
        same = self.kind == "dict" and isinstance(batch, dict) and self._keys() == set(batch)
        if same:
            _check_arrays(batch, name)
        form = self if same else form_of(batch, name)
        if (form.kind, form.x, form.label) != (self.kind, self.x, self.label):
            raise InputTypeError(f"{what} is {self} and {name} is {form}; make them alike")
        return form.split(batch)

    def split(self, batch: Any) -> tuple[Any, Any]:
        """Return the samples and labels of a batch of this form."""
        if self.kind == "array":
            return batch, None
        return batch[self.x], None if self.label is None else batch[self.label]

    def check_kind(self, label: Any, name: str, shape: tuple[int, ...]) -> None:
        """Refuse labels of another kind than those of the real samples: integers or floats, and how many numbers."""
        if _is_float(label) == (self.known is not None):
            wanted = "floats" if self.known is None else "integers"
            raise InputTypeError(f"real has labels that are {wanted}, {name} has some of dtype {label.dtype}")
        if tuple(label.shape[1:]) != shape:
            raise InputError(
                f"real has labels of shape {shape} and {name} of {tuple(label.shape[1:])}; make them alike"
            )

    def check_known(self, label: Any, name: str) -> None:
        """Refuse labels that no real sample has."""
        if self.known is None:
            return
        found = host_view(label)
        assert found is not None
        if len(extra := np.setdiff1d(found, self.known)):
            shown = ", ".join(map(str, extra[:_SHOWN].tolist())) + (", ..." if len(extra) > _SHOWN else "")
            raise InputError(
                f"{name} has labels that real never has, {shown}; real has {len(self.known)} labels, "
                f"{self.known[0]} to {self.known[-1]}"
            )

    def _keys(self) -> set[Any]:
        return {key for key in (self.x, self.label) if key is not None}


ARRAY = Form()
"""Samples without labels."""


def form_of(batch: Any, name: str) -> Form:
    """Find out which array of a batch is the sample, and which the label.

    Of a tuple the sample is first. In a dict it is called x, image, images, sample or samples, or the other one is
    called label, labels, y, class, classes or condition; where no key says it, it is the one with floats.

    Args:
        batch: An array, or a tuple or dict of one or two.
        name: What the batch is called in an error.
    """
    if is_array_api_obj(batch):
        return ARRAY
    if not isinstance(batch, tuple | dict):
        raise InputTypeError(f"{name} must be an array of samples, or a tuple or dict (x, label), got {_kind(batch)}")
    keys = list(batch) if isinstance(batch, dict) else list(range(len(batch)))
    if len(keys) not in {1, 2}:
        hint = "; leave out what the ratio is not of" if keys else ""
        raise InputTypeError(f"{name} must hold samples and labels, got a {_kind(batch)} of {len(keys)} arrays{hint}")
    _check_arrays(batch, name)
    if isinstance(batch, dict) and len(keys) == 2:
        keys = _sample_first(batch, keys, name)
    return Form(_kind(batch), keys[0], keys[1] if len(keys) == 2 else None)


def _check_arrays(batch: Any, name: str) -> None:
    for key, leaf in batch.items() if isinstance(batch, dict) else enumerate(batch):
        if not is_array_api_obj(leaf):
            raise InputTypeError(f"{name} must be a {_kind(batch)} of arrays, {key!r} is a {_kind(leaf)}")


def _sample_first(batch: dict[Any, Any], keys: list[Any], name: str) -> list[Any]:
    """Return the two keys of a dict, that of the sample first."""
    signs: tuple[Callable[[Any, Any], bool], ...] = (
        lambda key, other: key in _X and other not in _X,
        lambda key, other: other in _LABEL and key not in _LABEL,
        lambda key, other: _is_float(batch[key]) and not _is_float(batch[other]),
    )
    for is_sample in signs:
        for pair in (keys, keys[::-1]):
            if is_sample(*pair):
                return pair
    first, second = keys
    raise InputError(
        f"{name} is a dict of {first!r} and {second!r}: which is the sample? call it 'x' or 'image', and the other "
        "'label' or 'y'"
    )


def check_labels(label: Any, n: int, name: str) -> None:
    """Refuse labels that are not one integer, or one or more floats, for each of n samples."""
    if not label.ndim or label.shape[0] != n:
        got = label.shape[0] if label.ndim else 0
        raise InputError(f"{name} has {n} samples and {got} labels; give one label per sample")
    kind = label.dtype.kind if isinstance(label.dtype, np.dtype) else ""
    if kind and kind not in "biuf":
        remedy = "number them with np.unique(labels, return_inverse=True)[1]"
        raise InputTypeError(f"{name} must have labels that are integers or floats, got dtype {label.dtype}; {remedy}")
    if label.ndim > 1 + _is_float(label):
        expected = "(n,) or (n, k)" if _is_float(label) else "(n,), one integer per sample"
        raise InputError(f"the labels of {name} must have shape {expected}, got {tuple(label.shape)}")


def label_tensor(label: Any, device: Any) -> Tensor:
    """Return labels of any array library as an int64 or float32 tensor."""
    import torch

    dtype = torch.float32 if _is_float(label) else torch.int64
    if is_torch_array(label):
        return label.detach().to(device=device, dtype=dtype)
    return torch.tensor(host_view(label), dtype=dtype, device=device)


def takes_label(function: Any) -> bool:
    """Tell whether a network or callable takes (x, label).

    It does if it has a second argument without a default, or with one and called label, labels, y, class, classes or
    condition; a network of `obrs.models` does if it has classes.

    Example:
        >>> takes_label(lambda x: x), takes_label(lambda x, y: x), takes_label(lambda x, flag=False: x)
        (False, True, False)
    """
    if isinstance(says := getattr(function, "takes_label", None), bool):
        return says
    if getattr(function, "classes", 0) is None:
        return False
    second = _second(function)
    return second is not None and (
        second.default is second.empty or second.kind is second.VAR_POSITIONAL or second.name in _LABEL
    )


def needs_label(function: Any) -> bool:
    """Tell whether a network or callable cannot do without a label."""
    if not takes_label(function):
        return False
    second = _second(function)
    return getattr(function, "classes", None) is not None or (
        second is not None and second.default is second.empty and second.kind is not second.VAR_POSITIONAL
    )


def _second(function: Any) -> inspect.Parameter | None:
    """Return the second positional argument of a callable, None if there is none or nobody knows."""
    try:
        arguments = inspect.signature(getattr(function, "forward", function)).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return None
    positional = [p for p in arguments if p.kind not in {p.KEYWORD_ONLY, p.VAR_KEYWORD}]
    if len(positional) == 1 and positional[0].kind is positional[0].VAR_POSITIONAL:
        return positional[0]
    return positional[1] if len(positional) > 1 else None


def call_with(function: Callable[..., Tensor], batch: Any) -> Tensor:
    """Call a network or callable with the samples of a batch, and with their labels if it takes them.

    Example:
        >>> import torch
        >>> batch = Labelled(torch.ones(2), torch.tensor([3, 4]))
        >>> call_with(lambda x, y: x * y, batch), call_with(lambda x: 2 * x, batch)
        (tensor([3., 4.]), tensor([2., 2.]))
    """
    x, label = parts(batch)
    return function(x, label) if label is not None and takes_label(function) else function(x)


def encode_labels(module: Any, form: Form, both: Any) -> int:
    """Store what turns labels into numbers, and return how many numbers there are per label.

    Args:
        module: The buffers are registered with it.
        form: Knows the labels that are integers.
        both: Real samples and fakes, for the mean and spread of labels that are floats.
    """
    import torch

    _, label = parts(both)
    if label is None:
        return 0
    if form.known is not None:
        module.register_buffer("labels", torch.as_tensor(form.known, device=label.device))
        return len(form.known)
    label = label.reshape(len(label), -1)
    spread = label.std(0)
    module.register_buffer("label_shift", label.mean(0))
    module.register_buffer("label_scale", torch.where(spread > 0, spread, torch.ones_like(spread)))
    return int(label.shape[1])


def label_numbers(module: Any, label: Tensor) -> Tensor:
    """Return labels as numbers `(n, k)`: a one for the class, zeros for the others, or standardised floats."""
    if hasattr(module, "labels"):
        return (label[:, None] == module.labels).float()
    return (label.reshape(len(label), -1) - module.label_shift) / module.label_scale


def label_index(module: Any, label: Tensor) -> Tensor:
    """Return the number of each label among the known ones, from 0 on."""
    import torch

    return torch.searchsorted(module.labels, label)


def _is_float(x: Any) -> bool:
    if isinstance(x, np.ndarray):
        return bool(x.dtype.kind == "f")
    return bool(array_namespace(x).isdtype(x.dtype, "real floating"))


def _kind(x: Any) -> str:
    return type(x).__name__ if not isinstance(x, tuple | dict) else "dict" if isinstance(x, dict) else "tuple"
