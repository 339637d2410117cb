"""The first proposals of a run, made within its limits, and the rule that is fitted to them."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

import numpy as np

from .._checks import check_budget, check_count, is_number
from .._progress import Report
from ..errors import InputError, InputTypeError
from ..groups import Grouped, Groups, groups_of
from ..rules import Budgeted
from ..types import LogRatio, Proposal, Rule
from .proposals import NOTHING, Proposals, join_proposals, label_batch, score_proposals
from .samples import Samples, stopped
from .streams import Limits, cut_short, deciding_uniforms, judge, keeping

__all__ = ["PILOT", "Course", "Fit", "LabelsOf", "make_pilot", "make_proposals", "number_of", "salvaged"]
__all__ += ["warn_of_thin_groups"]

PILOT = 4096  # proposals that a rule is fitted on; a pool of at most this size is drawn whole
PER_GROUP = 200  # proposals that the constant of a group should be fitted on
_BATCH = 1024

LabelsOf = Callable[[Any], Any]


@dataclass(frozen=True)
class Course:
    """Where a run begins, in which steps it goes, and how far it may go."""

    batch_size: int | None = None
    seed: int = 0
    start: int = 0
    max_proposed: int | None = None
    max_seconds: float | None = None
    progress: bool | None = None
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", Limits(self.max_proposed, self.max_seconds))
        check_count(self.start, "start", least=0)
        check_count(self.size, "batch_size")

    @property
    def size(self) -> int:
        """Proposals per call."""
        return _BATCH if self.batch_size is None else self.batch_size

    @property
    def stop(self) -> int | None:
        """The id to end before."""
        return None if self.max_proposed is None else self.start + self.max_proposed


@dataclass(frozen=True)
class Fit:
    """How a rule is fitted to a pilot: one constant, one for each group, or another way to fit."""

    budget: Any
    groups: Any = None
    shares: Any = None
    own: Callable[[Any], Rule] | None = None

    def __post_init__(self) -> None:
        if self.groups is None:
            check_budget(self.budget)
            if self.shares is not None:
                raise InputError("shares are of groups: say which, such as groups=lambda batch: batch[1]")
        elif not callable(self.groups):
            raise InputTypeError(
                "groups must be a function that finds the labels in a batch, such as lambda batch: batch[1], "
                f"got {type(self.groups).__name__}"
            )
        elif is_number(self.budget):
            check_budget(self.budget)

    @property
    def largest_budget(self) -> float:
        """The budget, or the largest of those of groups."""
        each = self.budget.values() if isinstance(self.budget, Mapping) else np.ravel(self.budget).tolist()
        return max((check_budget(k) for k in each), default=1.0)

    def given(self, rule: Rule) -> "Fit":
        """Return the fit that is this rule already."""
        if self.groups is not None and not isinstance(rule, Grouped):
            raise InputError("groups are for a rule that is still to be fitted; leave out groups, or calibrate")
        if isinstance(rule, Grouped) and self.groups is not None:  # one that was saved has forgotten where they are
            rule = replace(rule, of=self.groups)
        return Fit(1.0, own=lambda scores: rule)

    def __call__(self, pilot: Proposals) -> Rule:
        rule: Rule
        if self.own is not None:
            rule = self.own(pilot.log_ratio)
        elif self.groups is None:
            rule = Budgeted.fit(pilot.log_ratio, self.budget)
        else:
            labels = label_batch(self.groups, pilot.x)
            rule = Grouped.fit(pilot.log_ratio, self.budget, labels, shares=self.shares, of=self.groups)
        return rule

    def found(self, pilot: Proposals) -> Groups:
        """Return the groups of a pilot."""
        assert self.groups is not None
        return groups_of(label_batch(self.groups, pilot.x), pilot.log_ratio.shape)


def make_pilot(
    propose: Proposal, log_ratio: LogRatio, fit: Fit, pilot: int, course: Course, most: float, n: int | None
) -> Proposals:
    """Make the proposals that the rule is fitted to; for thin groups more of them, while there are less than `most`."""
    made = [NOTHING]

    def so_far() -> Samples | None:
        """Judge the part of the pilot that there is, by a rule fitted to it."""
        some = join_proposals(made)
        return stopped(judge(some, fit(some), deciding_uniforms(some.ids, course.seed)), "early")

    if pilot:
        make_proposals(made, pilot, propose, log_ratio, course, so_far, n)
    if pilot and fit.groups is not None:
        while _thin(fit, made) and number_of(made) < most:
            before = number_of(made)
            make_proposals(made, course.size, propose, log_ratio, course, so_far, n)
            if number_of(made) == before:
                break
        warn_of_thin_groups(fit, made)
    return join_proposals(made)


def make_proposals(
    made: list[Proposals],
    number: int,
    propose: Proposal,
    log_ratio: LogRatio,
    course: Course,
    so_far: Callable[[], Samples | None],
    n: int | None,
    report: Report = lambda kept, proposed: None,
) -> None:
    """Add so many proposals to those that are made, or as many as may be; `so_far` is what can be kept of them."""

    def partial() -> Samples | None:
        return salvaged(so_far) if number_of(made) else None

    first = course.start + number_of(made)
    stop = first + number if course.stop is None else min(first + number, course.stop)
    with keeping(partial, n):
        for low in range(first, stop, course.size):
            if course.limits.out_of_time:
                raise cut_short(f"{course.max_seconds:g} seconds", "raise max_seconds", n, partial())
            made.append(score_proposals(propose, log_ratio, np.arange(low, min(low + course.size, stop))))
            report(number_of(made), number_of(made))


def salvaged(so_far: Callable[[], Samples | None]) -> Samples | None:
    """Return what can be kept of a pilot or a pool that was cut short, None if that fails."""
    try:
        return so_far()
    except Exception:  # such as too few to fit a rule on, or groups that fail: the first error is the one to show
        return None


def number_of(made: list[Proposals]) -> int:
    """Return how many proposals are made."""
    return sum(len(part) for part in made)


def _thin(fit: Fit, made: list[Proposals]) -> dict[Any, int]:
    """Return the groups that have too few proposals, and how many they have."""
    found = fit.found(join_proposals(made))
    return {label: size for label, size in zip(found.labels, found.size.tolist(), strict=True) if size < PER_GROUP}


def warn_of_thin_groups(fit: Fit, made: list[Proposals]) -> None:
    """Name the groups that have too few proposals."""
    if thin := _thin(fit, made):
        some = ", ".join(f"{label!r} ({size})" for label, size in list(thin.items())[:5])
        rest = f" and {len(thin) - 5} more" if len(thin) > 5 else ""
        wanted = ceil(PER_GROUP * number_of(made) / min(thin.values()))
        warnings.warn(
            f"groups with fewer than {PER_GROUP} proposals to fit their constants on: {some}{rest}; "
            f"{wanted} proposals would be enough: raise calibrate, or how many are made",
            stacklevel=4,
        )
