"""Two ways to lay out many problems at once: as rows of a matrix, or as groups of one long row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _solve_device, _solve_host
from ._arrays import like, segment_sum
from .types import Array

__all__ = ["Layout", "by_group", "by_row"]


@dataclass(frozen=True)
class Layout:
    """What the solver asks of a layout.

    Attributes:
        name: What one problem is called in an error.
        count: How many problems.
        mass: Masses -> the total of each problem; None stands for 1 each.
        largest: Masses -> the largest of each problem.
        expand: One number per problem -> an array that broadcasts against the values, in NumPy.
        solve: (values, masses, targets) -> `Solution`.
        spread: (one number per problem, x) -> an array that broadcasts against x.
        sum: x -> its sum over each problem; differentiable.
    """

    name: str
    count: int
    mass: Callable[[Any], Any]
    largest: Callable[[Any], Any]
    expand: Callable[[Any], Any]
    solve: Callable[[Any, Any, Any], _solve_host.Solution]
    spread: Callable[[Any, Array], Array]
    sum: Callable[[Array], Array]


def by_row(rows: int, n: int) -> Layout:
    """Lay out problems as the rows of a matrix."""
    return Layout(
        name="row",
        count=rows,
        mass=lambda masses: np.full(rows, float(n)) if masses is None else np.sum(masses, axis=1, dtype=np.float64),
        largest=lambda masses: np.max(masses, axis=1),
        expand=lambda v: v[:, None],
        solve=_solve_host.solve_rows,
        spread=lambda v, x: like(v, x)[:, None],
        sum=_solve_device.total,
    )


def by_group(group: Any, count: int) -> Layout:
    """Lay out problems as groups: `group` has the number of the problem for each value."""
    return Layout(
        name="group",
        count=count,
        mass=lambda masses: np.bincount(group, masses, count).astype(np.float64),
        largest=lambda masses: _largest_by_group(masses, group, count),
        expand=lambda v: v[group],
        solve=lambda values, masses, target: _solve_host.solve_groups(values, masses, group, target),
        spread=lambda v, x: like(v[group], x),
        sum=lambda x: segment_sum(x, group, count),
    )


def _largest_by_group(masses: Any, group: Any, count: int) -> Any:
    largest = np.zeros(count)
    np.maximum.at(largest, group, masses)
    return largest
