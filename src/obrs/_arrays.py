"""What the core must know about array backends, in one place.

The core never imports torch or JAX. If one of their arrays comes in, its library is loaded already,
and `sys.modules` has it.
"""

import sys
from typing import Any

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_array_api_obj,
    is_jax_array,
    is_numpy_array,
    is_torch_array,
)

from .errors import InputError, InputTypeError
from .types import Array

_NAMESPACES: dict[type, Any] = {}


def namespace(x: Array) -> Any:
    """Return the array-API functions for `x`: `array_namespace`, cached by type."""
    found = _NAMESPACES.get(type(x))
    if found is None:
        found = _NAMESPACES[type(x)] = array_namespace(x)
    return found


def as_floats(x: Any, name: str) -> Array:
    """Return `x` as a float32 or float64 array of its own backend; lists and numbers become NumPy.

    Half precision is widened to float32: a constant with 8 or 11 bits would miss the budget by per cent.
    """
    if type(x) is np.ndarray and (x.dtype == np.float64 or x.dtype == np.float32):
        return x
    torch = sys.modules.get("torch")
    if torch and type(x) is torch.Tensor and x.layout is torch.strided and x.dtype in (torch.float32, torch.float64):
        return x
    if not is_array_api_obj(x):
        try:
            x = np.asarray(x)
        except (ValueError, TypeError, RuntimeError) as error:
            raise InputTypeError(f"{name} must be an array of numbers, got {type(x).__name__}") from error
    if isinstance(x, np.ma.MaskedArray):
        raise InputTypeError(f"{name} must be a plain array, got a masked one; drop what is masked first")
    if is_torch_array(x) and x.layout is not sys.modules["torch"].strided:
        raise InputTypeError(f"{name} must be a dense tensor, got {x.layout}; call .to_dense() first")
    xp = namespace(x)
    if x.dtype == xp.float32 or x.dtype == xp.float64:
        return x
    is_half = "float16" in str(x.dtype)  # float16, and bfloat16, which the array standard does not know
    is_long_double = is_numpy_array(x) and x.dtype.kind == "f"
    if not is_half and not is_long_double and not xp.isdtype(x.dtype, "integral"):
        raise InputTypeError(f"{name} must be real numbers, got dtype {x.dtype}")
    with np.errstate(over="ignore"):
        return xp.astype(x, xp.float32 if is_half else widest(xp))


def widest(xp: Any) -> Any:
    """Return float64 where the backend has it; JAX without x64 does not."""
    if "jax" in xp.__name__:
        return xp.result_type(float)
    return xp.float64


def is_traced(x: Array) -> bool:
    """Tell whether `x` is a JAX tracer, whose values are not known yet."""
    return bool(is_jax_array(x)) and isinstance(x, sys.modules["jax"].core.Tracer)


def detach(x: Array) -> Array:
    """Return `x` without its gradient; a tracer of `jax.grad` alone becomes its value."""
    if is_torch_array(x):
        return x.detach()
    if is_traced(x):
        return sys.modules["jax"].lax.stop_gradient(x)
    return x


def wants_gradient(x: Array) -> bool:
    """Tell whether somebody may differentiate through `x`."""
    if is_torch_array(x):
        return bool(x.requires_grad) and sys.modules["torch"].is_grad_enabled()
    return is_traced(x)


def host_view(x: Array) -> "np.ndarray[Any, Any] | None":
    """Return the values of `x` as NumPy memory, without a copy on the CPU.

    Something on an accelerator is copied: one transfer and one synchronisation. None if the values cannot be
    looked at: inside `jax.jit`, `torch.vmap` and their like.
    """
    x = detach(x)
    if is_numpy_array(x):
        return np.asarray(x)
    if is_torch_array(x):
        try:
            return np.asarray(x.resolve_neg().cpu().numpy())
        except (RuntimeError, NotImplementedError):
            return None
    if is_traced(x):
        return None
    if is_jax_array(x):
        return np.asarray(x)
    return np.asarray(np.from_dlpack(x))


def host_values(x: Any) -> "np.ndarray[Any, Any] | None":
    """Return the values of an array of any library, or of what NumPy reads as one, such as a list; None as `host_view`.

    Example:
        >>> host_values([1, 2])
        array([1, 2])
    """
    return host_view(x) if is_array_api_obj(x) else np.asarray(x)


def known_values(x: Any, name: str) -> "np.ndarray[Any, Any]":
    """Return the values of an array or a list in NumPy memory; raise where they are not known, as under `jax.jit`."""
    try:
        values = host_values(x)
    except (TypeError, ValueError) as error:  # of a list that is no array, and of dtypes that NumPy does not have
        raise InputTypeError(f"{name} must be an array of numbers, got {type(x).__name__}") from error
    if values is None:
        raise InputTypeError(f"{name} must be known, not traced; pass NumPy arrays, or call this outside jit and vmap")
    return values


def array_like(value: Any, x: Array, *, dtype: Any = None) -> Array:
    """Put NumPy `value` where `x` lives, in the dtype of `x`."""
    dtype = x.dtype if dtype is None else dtype
    if isinstance(value, float) and is_torch_array(x):
        return x.new_full((), value, dtype=dtype)  # a tenth of the cost of an array
    xp = namespace(x)
    with np.errstate(over="ignore"):  # what does not fit in float32 is infinite there
        if is_numpy_array(x):
            return np.asarray(value, dtype=dtype)
        if is_traced(x):  # has no device yet
            return xp.asarray(value, dtype=dtype)
        if is_jax_array(x):
            return sys.modules["jax"].device_put(np.asarray(value, dtype=dtype), device(x))
        value = np.asarray(value)
        if is_torch_array(x) and not (value.flags.c_contiguous and value.flags.writeable):
            value = value.copy()  # torch takes neither negative strides nor read-only memory
        return xp.asarray(value, dtype=dtype, device=device(x))


def shift(x: Array, constant: Any) -> Array:
    """Return `x + constant`, a number, or one per entry; r = 0 at an infinite constant is NaN, without a warning."""
    with np.errstate(invalid="ignore"):
        return x + (array_like(constant, x) if isinstance(constant, np.ndarray) and constant.ndim else constant)


def is_accelerated(x: Array) -> bool:
    """Tell whether moving `x` to NumPy memory would cost a transfer worth avoiding."""
    if is_torch_array(x):
        name = x.device.type
    elif is_numpy_array(x) or is_traced(x):
        return False
    else:
        name = str(device(x)).lower()
    return any(kind in name for kind in ("cuda", "xpu", "gpu", "tpu", "rocm"))


def check_same_device(x: Array, other: Array, name: str, other_name: str) -> None:
    """Raise unless both arrays are of one backend and on one device."""
    try:
        array_namespace(x, other)
    except (TypeError, ValueError) as error:
        raise InputTypeError(
            f"{name} and {other_name} must be arrays of one library, "
            f"got {type(x).__module__} and {type(other).__module__}"
        ) from error
    if is_traced(x) or is_traced(other):
        return
    if device(x) != device(other):
        raise InputError(f"{name} is on {device(x)} and {other_name} on {device(other)}; move one of them to the other")


def segment_sum(values: Array, segment: "np.ndarray[Any, Any]", count: int) -> Array:
    """Sum 1-D `values` by segment number, differentiably where the backend can differentiate."""
    xp = namespace(values)
    if is_torch_array(values):
        index = array_like(segment, values, dtype=xp.int64)
        zeros = xp.zeros(count, dtype=values.dtype, device=values.device)
        return zeros.index_add(0, index, values)
    if is_jax_array(values):
        return xp.zeros(count, dtype=values.dtype).at[segment].add(values)
    return array_like(np.bincount(segment, weights=np.asarray(values), minlength=count), values)
