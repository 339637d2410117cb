"""Checks at the public boundary: they return a valid array or number, or raise an error of one line."""

from collections.abc import Iterable, Mapping
from math import isfinite
from operator import index
from typing import Any

import numpy as np

from ._arrays import array_like, as_floats, check_same_device, host_view, is_accelerated, known_values, namespace
from .errors import BudgetError, InputError, InputTypeError, RatioError
from .types import Array

LIMIT = 1e6
"""How far from 0 a log-ratio may be; -inf, r = 0, is one as well. Those of long sequences reach 1e4."""
BEYOND = f"beyond {LIMIT:g}"
_TILE = 1 << 16


def check_budget(budget: Any) -> float:
    """Return the budget as a float."""
    if not is_number(budget):
        raise BudgetError(f"budget must be one number of proposals per sample, got {_short(budget)}")
    k = float(budget)
    if not isfinite(k):
        raise BudgetError(f"budget must be a finite number of at least 1 proposal per sample, got {k}")
    if k < 1:
        hint = f"; did you mean budget={1 / k:g} (keep {100 * k:.3g} %)?" if k > 1e-9 else ""
        raise BudgetError(f"budget must be at least 1 proposal per sample, got {k:g}{hint}")
    return k


def check_budgets(budget: Any, shape: tuple[int, ...]) -> Any:
    """Return one budget as a float, or one for each of many problems of this shape as a flat float64 array."""
    if is_number(budget) or not shape:
        return check_budget(budget)
    values = as_floats(budget, "budget")
    if tuple(values.shape) != shape:
        raise InputError(f"budget must be a number or an array of shape {shape}, one for each, got {_short(budget)}")
    budgets = known_values(values, "budget").reshape(-1).astype(np.float64)
    for wrong in budgets[~((budgets >= 1) & (budgets < np.inf))][:1]:
        check_budget(float(wrong))
    return budgets


def is_number(x: Any) -> bool:
    """Tell whether `x` is one real number, of Python or of an array library."""
    if isinstance(x, bool | np.bool_ | str | bytes) or getattr(x, "ndim", 0) != 0:
        return False
    try:
        float(x)
    except Exception:  # whatever a stranger's __float__ raises, it is not a number to us
        return False
    return True


def check_count(value: Any, name: str, least: int = 1) -> int:
    """Return a whole number, checked to be at least `least`."""
    whole = _whole_number(value)
    if whole is None or whole < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {_short(value)}")
    if not whole < 2**63:
        raise InputError(f"{name} must be below 2**63, got {_short(value)}")
    return whole


def _whole_number(value: Any) -> int | None:
    """Return a whole number as an integer, None for any other value; never by way of a float, exact to 2**53."""
    if not is_number(value):
        return None
    try:
        return index(value)
    except TypeError:  # not an integer of any library
        return int(value) if float(value).is_integer() else None


def check_seed(seed: Any) -> int:
    """Return an integer of at least 0 and below 2**64."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise InputError(f"seed must be a whole number from 0 to 2**64 - 1, got {_short(seed)}")
    return int(seed)


def check_positive(value: Any, name: str) -> float:
    """Return a finite number above 0."""
    if not is_number(value) or not 0 < float(value) < np.inf:
        raise InputError(f"{name} must be a finite number above 0, got {_short(value)}")
    return float(value)


def check_at_least(value: Any, name: str, *, below: float = np.inf) -> float:
    """Return a finite number of at least 0 and below a limit."""
    if not is_number(value) or not 0 <= float(value) < below:
        limit = "" if below == np.inf else f" and below {below:g}"
        raise InputError(f"{name} must be a finite number of at least 0{limit}, got {_short(value)}")
    return float(value)


def check_callable(function: Any, name: str, what: str = "a function") -> Any:
    """Return what can be called."""
    if not callable(function):
        raise InputTypeError(f"{name} must be {what}, got {type(function).__name__}")
    return function


def check_list(values: Any, name: str) -> list[Any]:
    """Return the items of a list, an array or another iterable; there must be at least one."""
    is_list = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping)
    if not is_list or getattr(values, "ndim", 1) == 0 or not (items := list(values)):
        raise InputTypeError(f"{name} must be a list of at least one item, got {_short(values)}")
    return items


def check_confidence(confidence: Any) -> float:
    """Return a probability between 0 and 1, both excluded."""
    if not is_number(confidence) or not 0 < float(confidence) < 1:
        raise InputError(f"confidence must be a probability between 0 and 1, got {confidence!r}")
    return float(confidence)


def as_log_ratio(log_ratio: Any) -> Array:
    """Return the log-ratios as a float32 or float64 array that is not empty."""
    x = as_floats(log_ratio, "log_ratio")
    if 0 in x.shape:
        raise InputError(f"log_ratio must have at least one value, got shape {tuple(x.shape)}")
    return x


def as_weights(weights: Any, x: Array, *, relative: bool = False) -> Array | None:
    """Return the weights where `x` lives, broadcast to its shape; relative ones are over the largest of them."""
    if weights is None:
        return None
    w = as_floats(weights, "weights")
    if namespace(w) is not namespace(x) and isinstance(w, np.ndarray):
        w = array_like(w, x)
    else:
        check_same_device(x, w, "log_ratio", "weights")
    values = None if is_accelerated(w) else host_view(w)
    if values is not None and values.size and not (values.min() >= 0 and values.max() < np.inf):
        raise bad_weights(int(np.count_nonzero(~(values >= 0) | np.isinf(values))), values.size)
    if relative and 0 not in w.shape:  # before they are broadcast: no copy for each row
        xp = namespace(w)
        most = xp.max(w)
        w = w / xp.where(most > 0, most, xp.ones_like(most))
    try:
        return namespace(w).broadcast_to(w, tuple(x.shape))
    except Exception as error:  # each library raises its own
        shapes = f"{tuple(x.shape)}, got {tuple(w.shape)}"
        raise InputError(f"weights must broadcast to the shape of log_ratio {shapes}") from error


def row_view(x: Array, axis: int | None) -> Array:
    """Lay `x` out as (problems, values): a view wherever there are one or two axes."""
    xp = namespace(x)
    if axis is None:
        return xp.reshape(x, (1, -1))
    x = xp.moveaxis(x, _axis(axis, x), -1)
    return x if x.ndim == 2 else xp.reshape(x, (-1, x.shape[-1]))


def remaining_shape(x: Array, axis: int | None) -> tuple[int, ...]:
    """Return the shape of `x` without the axis."""
    return () if axis is None else tuple(n for i, n in enumerate(x.shape) if i != _axis(axis, x) % x.ndim)


def _axis(axis: Any, x: Array) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise InputTypeError(f"axis must be one integer or None, got {_short(axis)}")
    if not -x.ndim <= axis < x.ndim:
        raise InputError(f"axis {axis} does not exist: log_ratio has shape {tuple(x.shape)}")
    return int(axis)


def check_labels(labels: Any, name: str = "groups") -> Any:
    """Return integer labels as a NumPy array, whatever library they come from."""
    values = known_values(labels, name)
    if values.dtype.kind not in "iu":
        raise InputTypeError(f"{name} must be integer labels, got dtype {values.dtype}")
    return values


def check_groups(groups: Any, x: Array) -> tuple[Any, int]:
    """Return one label per log-ratio, flat, and how many groups there are."""
    labels = check_labels(groups)
    if tuple(labels.shape) != tuple(x.shape):
        raise InputError(f"groups must have the shape of log_ratio {tuple(x.shape)}, got {tuple(labels.shape)}")
    labels = labels.reshape(-1)
    remedy = "number them with np.unique(groups, return_inverse=True)[1]"
    if labels.min() < 0 or labels.max() >= labels.size:
        span = f"{labels.min()} to {labels.max()} for {labels.size} values"
        raise InputError(f"groups must be labels from 0 to G-1, got {span}; {remedy}")
    group = labels.astype(np.intp, copy=False)
    sizes = np.bincount(group)
    if not sizes.all():
        gap = int(np.argmin(sizes))
        raise InputError(f"groups must use every label from 0 to {len(sizes) - 1}, {gap} is missing; {remedy}")
    return group, len(sizes)


def as_sign(sign: Any, values: Any) -> Any:
    """Return +1 or -1 beside each log-ratio, as NumPy floats; 0 only where r = 0, as `np.sign` has it."""
    given = known_values(as_floats(sign, "sign"), "sign")
    if given.shape != values.shape:
        raise InputError(f"sign must have the shape of log_ratio {values.shape}, got {given.shape}")
    if count := np.count_nonzero((np.abs(given) != 1) & ((given != 0) | (values > -np.inf))):
        raise InputError(f"sign must be +1 or -1, {count} of {given.size} are not; use np.sign(weight)")
    return given.astype(np.float64)


def check_ratios(values: Any, masses: Any = None) -> None:
    """Raise if a log-ratio of positive mass is neither -inf nor a number of at most `LIMIT`."""
    lowest, highest = ends(values)
    if lowest >= -LIMIT and highest <= LIMIT:  # false for NaN, too
        return
    if count := int(count_bad(values, masses)):
        some = values if masses is None else values[masses > 0]
        nan, high = (int(np.count_nonzero(wrong)) for wrong in (np.isnan(some), some == np.inf))
        kinds = {"NaN": nan, "+inf": high, BEYOND: count - nan - high}
        raise bad_ratios(count, values.size, " or ".join(kind for kind, found in kinds.items() if found))


def ends(values: Any) -> tuple[float, float]:
    """Return the smallest and the largest of some numbers in NumPy memory, in one pass; NaN if any is NaN."""
    if values.size <= _TILE:
        return float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    flat = values.reshape(-1)
    tiles = [flat[start : start + _TILE] for start in range(0, flat.size, _TILE)]
    both = np.array([(tile.min(), tile.max()) for tile in tiles])  # the second look finds a tile in the cache
    return float(both[:, 0].min()), float(both[:, 1].max())


def count_bad(x: Array, masses: Any = None) -> Any:
    """Count the invalid log-ratios: NaN, +inf, or more than `LIMIT` from 0; those of mass 0 are left out."""
    xp = namespace(x)
    bad = ~((x <= LIMIT) & ((x >= -LIMIT) | (x == -xp.inf)))
    return xp.sum(xp.astype(bad if masses is None else bad & (masses > 0), xp.int32))


def bad_ratios(count: int, size: int, kind: str = f"NaN or +inf or {BEYOND}") -> RatioError:
    """Return the error for invalid log-ratios."""
    return RatioError(f"log_ratio has {count} {kind} among {size} values; check the critic before sampling")


def bad_weights(count: int, size: int) -> InputError:
    """Return the error for invalid weights."""
    return InputError(f"weights must be finite and at least 0, {count} of {size} are not")


def out_of_reach(share: float, reached: float, where: str = "") -> BudgetError:
    """Return the error for a budget that asks to keep more than has r > 0."""
    if reached <= 0:
        return BudgetError(f"no proposal has r > 0{where}: nothing can be accepted; check the critic")
    return BudgetError(
        f"budget {1 / share:g} cannot be met{where}: only {100 * reached:.3g} % of the proposals have r > 0; "
        f"the smallest feasible budget is {round_up(1 / reached):g}"
    )


def round_up(least: float) -> float:
    """Return a budget rounded up to four digits, so that the number that is shown can be met.

    Example:
        >>> round_up(10 / 3)
        3.334
    """
    unit = 10.0 ** (np.floor(np.log10(least)) - 3)
    return float(f"{np.ceil(least / unit * (1 - 1e-15)) * unit:.4g}")


def _short(x: Any) -> str:
    text = repr(x).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."
