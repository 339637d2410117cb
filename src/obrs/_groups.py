"""Groups by label: labels of any kind become numbers, and what is said per group becomes one number for each.

A label is whatever `np.unique` can sort: an integer, a text, a bool. What is said per group (budgets, shares, counts)
may be a dict by label, or an array in the order of the sorted labels.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ._arrays import as_floats, host_values, host_view
from ._inputs import check_budget, check_count, is_number
from .errors import BudgetError, InputError, InputTypeError

__all__ = [
    "Groups",
    "any_labels",
    "budgets_of",
    "check_total",
    "codes_of",
    "counts_of",
    "groups_of",
    "shares_of",
    "sizes_of",
]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

_KINDS = {kind: number for number, kinds in enumerate(("biuf", "U", "S", "O")) for kind in kinds}


class Groups(NamedTuple):
    """Labels, numbered.

    Attributes:
        labels: The different labels, ascending, as plain Python values.
        code: The number of each sample's label, flat.
        size: How many samples each label has.
    """

    labels: tuple[Any, ...]
    code: Ints
    size: Ints


def any_labels(labels: Any, name: str = "groups") -> Any:
    """Return labels of one kind as a NumPy array, whatever library they come from.

    Example:
        >>> any_labels(["cat", "dog"]), any_labels([3, 1])
        (array(['cat', 'dog'], dtype='<U3'), array([3, 1]))
        >>> any_labels(["cat", 1])
        Traceback (most recent call last):
        obrs.errors.InputTypeError: groups must be labels of one kind, such as integers or text, got int and str
    """
    try:
        values = host_values(labels)
    except Exception as error:  # each library raises its own
        raise InputTypeError(f"{name} must be an array of labels, got {type(labels).__name__}") from error
    if values is None:
        raise InputTypeError(f"{name} must be known when the function is traced; pass them as a NumPy array")
    if values.dtype.kind == "O" or (values.dtype.kind == "U" and isinstance(labels, list | tuple)):
        cells = values if values.dtype.kind == "O" else np.array(labels, dtype=object)
        kinds = {type(label) for label in cells.reshape(-1)}
        if len({str if issubclass(kind, str) else kind for kind in kinds}) > 1 or type(None) in kinds:
            found = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise InputTypeError(f"{name} must be labels of one kind, such as integers or text, got {found}")
        if any(kind.__hash__ is None for kind in kinds):
            found = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise InputTypeError(f"{name} must be labels that can be sorted, such as integers or text, got {found}")
        if kinds <= {str, np.str_, int, float, bool}:
            values = np.asarray(values.tolist()).reshape(values.shape)
    if values.dtype.kind not in _KINDS:
        raise InputTypeError(f"{name} must be labels such as integers or text, got dtype {values.dtype}")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise InputError(f"{name} must be labels, {np.count_nonzero(np.isnan(values))} of {values.size} are NaN")
    return values


def groups_of(groups: Any, shape: tuple[int, ...]) -> Groups:
    """Number the labels of log-ratios of this shape.

    Example:
        >>> groups_of(["b", "a", "b"], (3,))
        Groups(labels=('a', 'b'), code=array([1, 0, 1]), size=array([1, 2]))
    """
    values = any_labels(groups)
    if tuple(values.shape) != tuple(shape):
        raise InputError(f"groups must have the shape of log_ratio {tuple(shape)}, got {tuple(values.shape)}")
    if values.dtype.kind in "iu" and values.min() >= 0 and values.max() < values.size:  # counting beats sorting
        code = values.reshape(-1).astype(np.intp, copy=False)
        sizes = np.bincount(code)
        present = np.flatnonzero(sizes)
        code = code if len(present) == len(sizes) else (np.cumsum(sizes > 0) - 1)[code]
        return Groups(tuple(present.tolist()), code, sizes[present])
    try:
        known, code = np.unique(values.reshape(-1), return_inverse=True)
    except TypeError as error:
        kind = type(values.reshape(-1)[0]).__name__
        raise InputTypeError(
            f"groups must be labels that can be sorted, such as integers or text, got {kind}"
        ) from error
    code = code.reshape(-1)
    return Groups(tuple(known.tolist()), code, np.bincount(code, minlength=len(known)))


def codes_of(found: Any, labels: tuple[Any, ...]) -> Ints:
    """Return the number of each label among the sorted ones of a fit, or raise for a stranger."""
    known = np.empty(len(labels), object)
    known[:] = labels
    known = any_labels(known)
    if not found.size:
        return np.zeros(found.shape, np.intp)
    alike = _KINDS[known.dtype.kind] == _KINDS[found.dtype.kind]
    at = np.minimum(np.searchsorted(known, found), len(known) - 1) if alike else np.zeros(found.shape, np.intp)
    strange = known[at] != found if alike else np.ones(found.shape, bool)
    if np.any(strange):
        stranger = found.reshape(-1)[int(np.argmax(strange.reshape(-1)))].tolist()
        raise InputError(f"group {stranger!r} was not in the fit; fit again with log-ratios of all groups")
    return np.asarray(at)


def budgets_of(budget: Any, labels: tuple[Any, ...]) -> Floats:
    """Return one budget per group.

    Example:
        >>> budgets_of(4, ("a", "b")), budgets_of({"b": 2, "a": 3}, ("a", "b"))
        (array([4., 4.]), array([3., 2.]))
    """
    if is_number(budget):
        return np.full(len(labels), check_budget(budget))
    return np.array([check_budget(k) for k in _per_group(budget, labels, "budget")], dtype=np.float64)


def counts_of(n: Any, labels: tuple[Any, ...]) -> Ints:
    """Return how many are wanted of each group, from a dict or an array; 0 of some, but not of all.

    Example:
        >>> counts_of({"b": 2, "a": 0}, ("a", "b"))
        array([0, 2])
    """
    counts = np.array([check_count(k, "n of a group", least=0) for k in _per_group(n, labels, "n")], dtype=np.int64)
    if not counts.any():
        raise InputError("n must not be 0 for all groups")
    return counts


def check_total(budget: Any) -> float:
    """Return the one budget that shares need."""
    if isinstance(budget, Mapping):
        raise BudgetError("with shares, budget is one number for all groups together, got a dict")
    return check_budget(budget)


def shares_of(shares: Any, labels: tuple[Any, ...]) -> Floats:
    """Return one share per group, divided by their sum: numbers of samples do as well.

    Example:
        >>> shares_of({"a": 1, "b": 3}, ("a", "b"))
        array([0.25, 0.75])
    """
    if isinstance(shares, Mapping):  # of a group that is not there, none can be wanted
        known = set(labels)
        shares = {label: share for label, share in shares.items() if label in known or not _is_zero(share)}
    given = _per_group(shares, labels, "shares")
    for share in given:
        if not is_number(share) or not 0 <= float(share) < np.inf:
            raise InputError(f"shares must be finite numbers of at least 0, got {share!r:.60}")
    values = np.array(given, dtype=np.float64)
    if not values.any():
        raise InputError("shares must not all be 0")
    values /= values.max()
    return np.asarray(values / values.sum())


def _is_zero(share: Any) -> bool:
    return is_number(share) and float(share) == 0


def _per_group(values: Any, labels: tuple[Any, ...], name: str) -> list[Any]:
    """Return what a dict says of each label, or an array in their order."""
    if isinstance(values, Mapping):
        for label in values:
            if label not in labels:
                raise InputError(f"{name} names group {label!r:.60}, which has no proposals; there are {_some(labels)}")
        for label in labels:
            if label not in values:
                rest = "; give it 0 to keep none of it" if name != "budget" else ""
                raise InputError(f"{name} must name every group, {label!r:.60} is missing{rest}")
        return [values[label] for label in labels]
    what = f"{name} must be a dict by label or an array of {len(labels)} numbers, one per group"
    if isinstance(values, str | bytes) or is_number(values):
        raise InputError(f"{what}, got {values!r:.60}")
    try:
        numbers = host_view(as_floats(values, name))
    except (InputTypeError, InputError) as error:
        raise InputTypeError(f"{what}, got {type(values).__name__}") from error
    if numbers is None or numbers.shape != (len(labels),):
        raise InputError(f"{what}, got shape {None if numbers is None else numbers.shape}")
    return list(numbers.tolist())


def _some(labels: tuple[Any, ...]) -> str:
    shown = ", ".join(repr(label) for label in labels[:5])
    return shown if len(labels) <= 5 else f"{shown}, …"


def sizes_of(n: int, shares: Floats) -> Ints:
    """Return whole numbers that sum to n, as near to `n * shares` as can be: by largest remainder, first label first.

    Example:
        >>> sizes_of(10, np.array([0.55, 0.25, 0.2]))
        array([6, 2, 2])
    """
    wanted = n * shares
    size = np.floor(wanted * (1 + 1e-12)).astype(np.int64)
    rest = np.where(shares > 0, wanted - size, -1.0)
    size[np.argsort(-rest.round(9), kind="stable")[: max(n - int(size.sum()), 0)]] += 1
    return size
