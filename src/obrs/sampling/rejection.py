"""Rejection with a budget: from a proposal and a log-ratio to kept samples.

`sample` has two ways. A small pool is drawn whole, and exactly n of it are selected (`sample_pool`). Otherwise the
first proposals, the pilot, fit a rule (`pilot.py`), and the rule judges batch after batch until n are kept
(`streams.py`). `sample_proposals` judges a fixed number of proposals instead, and keeps what the rule accepts. With
groups each label has a constant of its own.
"""

from collections.abc import Callable, Iterator, Mapping
from math import ceil
from time import perf_counter
from typing import Any

import numpy as np

from .._checks import check_count, is_number
from .._progress import reporting
from ..draws import Purpose, words
from ..errors import InputError
from ..groups import groups_of
from ..selection import inclusion_probability, select
from ..types import Array, LogRatio, Proposal, Rule
from .pilot import PILOT, Course, Fit, LabelsOf, make_pilot, make_proposals, number_of, salvaged, warn_of_thin_groups
from .proposals import NOTHING, Proposals, join_proposals, label_batch, warn_of_train_mode
from .samples import Samples, join, stopped
from .streams import (
    Limits,
    blocks,
    chosen,
    collect_within,
    cut_short,
    deciding_uniforms,
    judge,
    judge_all,
    keeping,
    reported,
)

__all__ = ["sample", "sample_pool", "sample_proposals", "sample_with"]

_MOST_PILOT = 16 * PILOT  # to which a pilot may grow for the sake of thin groups


def sample(
    propose: Proposal,
    log_ratio: LogRatio,
    n: int,
    *,
    budget: float | Mapping[Any, float] | Array,
    groups: LabelsOf | None = None,
    shares: Mapping[Any, float] | Array | None = None,
    calibrate: "int | Rule | None" = None,
    batch_size: int | None = None,
    seed: int = 0,
    start: int = 0,
    max_proposed: int | None = None,
    max_seconds: float | None = None,
    progress: bool | None = None,
) -> Samples:
    """Keep exactly `n` samples at `budget` proposals each.

    If n·K is at most 4096 the whole pool is drawn and exactly n of it are selected. Otherwise the first 4096
    proposals fit the rule, are judged by it like all others, and more are drawn until n are kept.

    With `groups`, each label has a constant of its own (`Grouped`): all keep the same share of their proposals, or have
    the `shares` of what is kept. The pilot grows, to 65536 proposals at most, until each group has 200; a warning names
    groups that have fewer. `kept.rule.groups` says what was done to each group, and where a smaller budget would do.

    Args:
        propose: Makes the proposals with these ids, `propose(ids)`; see `proposal` for a `fn(n)`.
        log_ratio: Scores a batch, shape `(n,)`.
        n: Samples wanted.
        budget: Proposals per kept sample; with groups also a dict by label, or an array in the order of the labels.
        groups: Finds the labels in a batch, `groups(batch) -> labels`: integers or text.
        shares: The shares of the groups among the kept, a dict by label or an array; numbers of samples do as well.
        calibrate: How many proposals to fit the rule on; or a fitted rule, such as the `rule` of an earlier run.
        batch_size: Proposals per call; 1024 by default.
        seed: Decides acceptance; the proposal has its own.
        start: First id; the `next_id` of an earlier run goes on after it.
        max_proposed: Make at most so many proposals.
        max_seconds: Give up after this time.
        progress: Show a bar; None shows one on a terminal.

    Raises:
        ExhaustedError: Proposals or seconds ran out; `.partial` has what was kept.
        Interrupted: Ctrl-C; `.partial` has what was kept. An exception of `propose` or `log_ratio` gets a `.partial`,
            too. During the pilot it has what a rule fitted so far would keep.

    Example:
        >>> from obrs import normals
        >>> kept = sample(lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: 0.5 * x, 100, budget=2)
        >>> len(kept), kept.proposed
        (100, 200)
    """
    n, fit = check_count(n, "n"), Fit(budget, groups, shares)
    course = Course(batch_size, seed, start, max_proposed, max_seconds, progress)
    if callable(calibrate):
        return _until_n(propose, log_ratio, n, fit.given(calibrate), 0, course)
    if calibrate is not None:
        return _until_n(propose, log_ratio, n, fit, check_count(calibrate, "calibrate"), course)
    total = n * fit.largest_budget
    if total <= PILOT and is_number(budget):
        return _of_pool(propose, log_ratio, n, ceil(total), fit, course)
    most = max(PILOT, min(total, _MOST_PILOT))
    return _until_n(propose, log_ratio, n, fit, min(PILOT, ceil(total)), course, most)


def sample_pool(
    propose: Proposal,
    log_ratio: LogRatio,
    n: int,
    *,
    pool: int,
    groups: LabelsOf | None = None,
    shares: Mapping[Any, float] | Array | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    start: int = 0,
    max_proposed: int | None = None,
    max_seconds: float | None = None,
    progress: bool | None = None,
) -> Samples:
    """Keep exactly `n` of exactly `pool` proposals, each with probability min(c r, 1).

    With `groups`, each label has a constant of its own, and a number of the n in proportion to its proposals or as
    `shares` says, rounded by largest remainder. A group that gets none of the n is missing from averages, too.

    Args:
        propose, log_ratio, n: As for `sample`.
        pool: Proposals to choose from.
        groups, shares, batch_size, seed, start, max_proposed, max_seconds, progress: As for `sample`.

    Raises:
        ExhaustedError: Proposals or seconds ran out; `.partial` has as large a share of the proposals that were made.
        Interrupted: Ctrl-C; `.partial` likewise.

    Example:
        >>> from obrs import normals
        >>> kept = sample_pool(lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: x, 25, pool=65)
        >>> len(kept), kept.executed
        (25, 65)
    """
    n, pool = check_count(n, "n"), check_count(pool, "pool")
    if n > pool:
        raise InputError(f"cannot keep {n} of a pool of {pool}; raise pool")
    course = Course(batch_size, seed, start, max_proposed, max_seconds, progress)
    return _of_pool(propose, log_ratio, n, pool, Fit(pool / n, groups, shares), course)


def sample_proposals(
    propose: Proposal,
    log_ratio: LogRatio,
    proposed: int,
    *,
    budget: float | Mapping[Any, float] | Array,
    groups: LabelsOf | None = None,
    shares: Mapping[Any, float] | Array | None = None,
    calibrate: "int | Rule | None" = None,
    batch_size: int | None = None,
    seed: int = 0,
    start: int = 0,
    max_seconds: float | None = None,
    progress: bool | None = None,
) -> Samples:
    """Make exactly `proposed` proposals and keep those that the rule accepts, about 1 in `budget`.

    The cost is fixed, the number kept is not. The first 4096 proposals fit the rule, or all if there are fewer; with
    groups, more as for `sample`.

    Args:
        propose, log_ratio: As for `sample`.
        proposed: Proposals to make.
        budget, groups, shares, calibrate, batch_size, seed, start, max_seconds, progress: As for `sample`.

    Example:
        >>> from obrs import normals
        >>> kept = sample_proposals(lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: x - 0.5, 10_000, budget=4)
        >>> kept.proposed, len(kept)
        (10000, 2491)
    """
    proposed, fit = check_count(proposed, "proposed"), Fit(budget, groups, shares)
    course = Course(batch_size, seed, start, proposed, max_seconds, progress)
    pilot, most = PILOT, _MOST_PILOT
    if callable(calibrate):
        fit, pilot = fit.given(calibrate), 0
    elif calibrate is not None:
        pilot, most = check_count(calibrate, "calibrate"), 0
    warn_of_train_mode(propose, log_ratio)
    parts: list[Samples] = []
    with reporting(proposed, course.progress) as report, keeping(lambda: join(parts) if parts else None):
        for part in _judged(propose, log_ratio, fit, pilot, course, most):
            parts.append(part)
            made = int(part.next_id) - course.start
            report(made, made)
            if made < proposed and course.limits.out_of_time:
                raise cut_short(f"{course.max_seconds:g} seconds", "raise max_seconds", None, join(parts))
    return join(parts)


def sample_with(
    propose: Proposal,
    log_ratio: LogRatio,
    n: int,
    fit: Callable[[Any], Rule],
    *,
    pilot: int,
    batch_size: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Samples:
    """Keep exactly `n` samples by the rule that `fit` makes from the log-ratios of the first `pilot` proposals.

    The pilot is judged by the rule like all other proposals.

    Example:
        >>> from obrs import normals
        >>> from obrs.rules import Unbudgeted
        >>> kept = sample_with(
        ...     lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: 0.5 * x, 50, Unbudgeted.fit, pilot=500
        ... )
        >>> len(kept)
        50
    """
    course = Course(batch_size, seed, progress=progress)
    return _until_n(propose, log_ratio, check_count(n, "n"), Fit(1.0, own=fit), check_count(pilot, "pilot"), course)


def _until_n(
    propose: Proposal, log_ratio: LogRatio, n: int, fit: Fit, pilot: int, course: Course, most: float = 0
) -> Samples:
    """Judge proposals by a rule that is fitted to the first of them, until n are kept."""
    warn_of_train_mode(propose, log_ratio)
    remedy = "let the stream go on" if course.stop is None else "raise max_proposed"
    limits = Limits(None, course.max_seconds, course.limits.begun)  # the proposals end by themselves
    with reporting(n, course.progress) as report:
        judged = _judged(propose, log_ratio, fit, pilot, course, most, n)
        return collect_within(limits, reported(judged, report), n, remedy=remedy)


def _judged(
    propose: Proposal,
    log_ratio: LogRatio,
    fit: Fit,
    pilot: int,
    course: Course,
    most: float,
    n: int | None = None,
) -> Iterator[Samples]:
    """Make the pilot and fit the rule; then yield what it keeps of the pilot, and of batch after batch."""
    made = make_pilot(propose, log_ratio, fit, pilot, course, most, n)
    rule = fit(made)
    if len(made):
        yield judge(made, rule, deciding_uniforms(made.ids, course.seed))
    grid = blocks(course.size, course.start + len(made), course.stop)
    yield from judge_all(propose, log_ratio, rule, grid, course.seed)


def _of_pool(propose: Proposal, log_ratio: LogRatio, n: int, pool: int, fit: Fit, course: Course) -> Samples:
    """Make a pool, and choose exactly n of it."""
    made = [NOTHING]

    def so_far() -> Samples:
        """Choose as large a share of the part of the pool that there is."""
        some = join_proposals(made)
        return _chosen(some, len(some) * n // pool, fit, course.seed)

    warn_of_train_mode(propose, log_ratio)
    with reporting(pool, course.progress) as report:
        make_proposals(made, pool, propose, log_ratio, course, so_far, n, report)
    if number_of(made) < pool:
        raise cut_short(f"{number_of(made)} proposals", "raise max_proposed", n, salvaged(so_far))
    if fit.groups is not None:
        warn_of_thin_groups(fit, made)
    return _chosen(join_proposals(made), n, fit, course.seed)


def _chosen(pool: Proposals, n: int, fit: Fit, seed: int) -> Samples:
    """Choose exactly n of a pool; with groups, as many of each as is its part."""
    begun = perf_counter()
    groups: dict[str, Any] = {}
    if fit.groups is not None:
        labels = label_batch(fit.groups, pool.x)
        equal = groups_of(labels, pool.log_ratio.shape).size  # all groups keep the same share of their proposals
        groups = {"groups": labels, "shares": equal if fit.shares is None else fit.shares}
    if n:
        index = select(pool.log_ratio, n, seed=_seed_of(pool, seed), **groups)
        log_pi = np.log(inclusion_probability(pool.log_ratio, n, **groups)[index])
    else:
        index, log_pi = np.empty(0, np.int64), np.empty(0)
    return stopped(chosen(pool, index, lambda log_ratio, x: log_ratio - log_pi, begun), "pool")


def _seed_of(pool: Proposals, seed: int) -> int:
    """Return a seed of its own for each pool: `select` numbers candidates from 0, wherever their ids begin."""
    first = int(pool.ids[0])
    return int(words([first], range(1), seed=seed, purpose=Purpose.SELECT)[0, 0]) if first else seed
