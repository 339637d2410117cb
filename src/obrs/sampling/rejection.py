"""Rejection with a budget: from a proposal and a log-ratio to kept samples.

A proposal has an id; whether it is kept is a pure function of (seed, id, log-ratio, rule). So the kept set does
not depend on batch size, backend or number of workers, a run can stop anywhere and go on, and on the same ids
a larger budget keeps a subset.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, count
from math import ceil
from time import perf_counter
from typing import Any

import numpy as np

from .._inputs import check_budget, check_count
from ..acceptance import Budgeted
from ..errors import ExhaustedError, InputError, InputTypeError, Interrupted
from ..selection import inclusion_probability, select
from ..types import LogRatio, Proposal, Rule
from .batches import move, take
from .callables import warn_of_train_mode
from .progress import Report, reporting
from .samples import Samples, first, join
from .steps import Ahead, deciding_uniforms, judge, make

__all__ = ["adaptive_stream", "collect", "gather", "sample", "sample_pool", "sample_with", "stream"]

PILOT = 4096  # proposals that a rule is fitted on, and at most this many are drawn at once as a pool
_BATCH = 1024


def sample(
    propose: Proposal,
    log_ratio: LogRatio,
    n: int,
    *,
    budget: float,
    calibrate: "int | Rule | None" = None,
    batch_size: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Samples:
    """Keep exactly `n` samples at `budget` proposals each.

    If n·K is at most 4096 the whole pool is drawn and exactly n of it are selected. Otherwise the first 4096
    proposals fit the rule, are judged by it like all others, and more are drawn until n are kept.

    Args:
        propose: Makes the proposals with these ids, `propose(ids)`; see `proposal` for a `fn(n)`.
        log_ratio: Scores a batch, shape `(n,)`.
        n: Samples wanted.
        budget: Proposals per kept sample.
        calibrate: How many proposals to fit the rule on; or a rule that is fitted already.
        batch_size: Proposals per call; 1024 by default.
        seed: Decides acceptance; the proposal has its own.
        progress: Show a bar; None shows one on a terminal.

    Example:
        >>> from obrs import normals
        >>> kept = sample(lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: 0.5 * x, 100, budget=2)
        >>> len(kept), kept.proposed
        (100, 200)
    """
    n, k = check_count(n, "n"), check_budget(budget)
    options: dict[str, Any] = {"batch_size": batch_size, "seed": seed, "progress": progress}
    if callable(calibrate):
        fitted: Rule = calibrate
        return sample_with(propose, log_ratio, n, lambda scores: fitted, pilot=0, **options)
    if calibrate is None and n * k <= PILOT:
        return sample_pool(propose, log_ratio, n, pool=ceil(n * k), **options)
    pilot = PILOT if calibrate is None else check_count(calibrate, "calibrate")
    return sample_with(propose, log_ratio, n, lambda scores: Budgeted.fit(scores, k), pilot=pilot, **options)


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
        >>> from obrs import Unbudgeted, normals
        >>> kept = sample_with(
        ...     lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: 0.5 * x, 50, Unbudgeted.fit, pilot=500
        ... )
        >>> len(kept)
        50
    """
    n, size = check_count(n, "n"), check_count(_BATCH if batch_size is None else batch_size, "batch_size")
    warn_of_train_mode(propose, log_ratio)
    with reporting(n, progress) as report:
        head: list[Samples] = []
        scores: Any = np.empty(0)
        if pilot:
            made = make(propose, log_ratio, np.arange(pilot), size)
            scores = made.log_ratio
        rule = fit(scores)
        if pilot:
            head = [judge(made, rule, deciding_uniforms(made.ids, seed))]
        rest = _stream(propose, log_ratio, lambda made: rule, size, seed, pilot, None, 0, 1)
        return collect(_reported(chain(head, rest), report), n)


def sample_pool(
    propose: Proposal,
    log_ratio: LogRatio,
    n: int,
    *,
    pool: int,
    batch_size: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Samples:
    """Keep exactly `n` of exactly `pool` proposals, each with probability min(c r, 1).

    Example:
        >>> from obrs import normals
        >>> kept = sample_pool(lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: x, 25, pool=65)
        >>> len(kept), kept.executed
        (25, 65)
    """
    n, pool = check_count(n, "n"), check_count(pool, "pool")
    if n > pool:
        raise InputError(f"cannot keep {n} of a pool of {pool}; raise pool")
    size = check_count(_BATCH if batch_size is None else batch_size, "batch_size")
    warn_of_train_mode(propose, log_ratio)
    with reporting(pool, progress) as report:
        made = make(propose, log_ratio, np.arange(pool), size, report)
    start = perf_counter()
    index = select(made.log_ratio, n, seed=seed)
    share = inclusion_probability(made.log_ratio, n)[index]
    return Samples(
        take(made.x, index),
        made.ids[index],
        made.log_ratio[index],
        made.log_ratio[index] - np.log(share),
        pool,
        pool,
        made.calls,
        made.executed_calls,
        made.seconds + perf_counter() - start,
        pool,
    )


def stream(
    propose: Proposal,
    log_ratio: LogRatio,
    rule: Rule,
    *,
    batch_size: int,
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
    shard: tuple[int, int] = (0, 1),
) -> Iterator[Samples]:
    """Judge proposals batch by batch, forever or until `stop`; yield what each batch keeps.

    Args:
        propose: Makes proposals by id.
        log_ratio: Scores them.
        rule: A rule, such as `Budgeted.fit(log_ratios, budget)`.
        batch_size: Proposals per call.
        seed: Decides acceptance.
        start: First id; the `next_id` of an earlier run resumes it.
        stop: Id to end before.
        shard: `(i, n)`: worker i of n takes every n-th batch, so that the workers together make what one would.

    Example:
        >>> from obrs import Budgeted, normals
        >>> batches = stream(
        ...     lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: x, Budgeted(-1.0), batch_size=50, stop=200
        ... )
        >>> [part.proposed for part in batches]
        [50, 50, 50, 50]
    """
    size, worker, workers = check_count(batch_size, "batch_size"), *_shard(shard)
    if start < 0:
        raise InputError(f"start must be an id of at least 0, got {start}")
    if not callable(rule):
        raise InputTypeError(f"rule must be a rule such as Budgeted.fit(...), got {type(rule).__name__}")
    warn_of_train_mode(propose, log_ratio)
    return _stream(propose, log_ratio, lambda made: rule, size, seed, start, stop, worker, workers)


def adaptive_stream(
    propose: Proposal,
    log_ratio: LogRatio,
    *,
    budget: float,
    batch_size: int,
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[Samples]:
    """Like `stream`, with c refitted from all log-ratios seen so far whenever their number has doubled.

    For models that drift and for starts that are badly calibrated. It guarantees that the rate tends to 1/budget
    if the proposals settle, and costs a sort per doubling. It gives up nestedness and independence of the batch
    size: which rule judged a proposal depends on what came before it, and so may whether it was kept.

    Example:
        >>> from obrs import normals
        >>> parts = adaptive_stream(
        ...     lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: 2 * x, budget=3, batch_size=500, stop=6000
        ... )
        >>> abs(sum(len(part) for part in parts) / 6000 - 1 / 3) < 0.02
        True
    """
    k, size = check_budget(budget), check_count(batch_size, "batch_size")
    seen: list[Any] = []
    number, fitted_on = 0, 0
    current: Any = None

    def rule_for(made: Samples) -> Rule:
        nonlocal number, fitted_on, current
        seen.append(made.log_ratio)
        number += len(made)
        if current is None or number >= 2 * fitted_on:
            current, fitted_on = Budgeted.fit(np.concatenate(seen), k), number
        fitted: Rule = current
        return fitted

    warn_of_train_mode(propose, log_ratio)
    return _stream(propose, log_ratio, rule_for, size, seed, start, stop, 0, 1)


def collect(
    batches: Iterable[Samples],
    n: int,
    *,
    max_proposed: int | None = None,
    max_seconds: float | None = None,
    to: Any = None,
) -> Samples:
    """Gather exactly `n` samples from a stream, and count the cost to the n-th.

    Args:
        batches: What `stream` yields.
        n: Samples wanted.
        max_proposed: Give up before a batch that would make more proposals than this.
        max_seconds: Give up after so many seconds.
        to: Move what is kept: "numpy", or a torch device; None leaves it where it is.

    Raises:
        ExhaustedError: Proposals or seconds ran out, or the stream ended; `.partial` has what was kept.
        Interrupted: Ctrl-C; `.partial` has what was kept.

    Example:
        >>> from obrs import Budgeted, normals
        >>> batches = stream(lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: x, Budgeted(-1.0), batch_size=50)
        >>> kept = collect(batches, 30)
        >>> len(kept), kept.proposed - int(kept.ids[-1])
        (30, 1)
    """
    return gather(batches, n, first, max_proposed=max_proposed, max_seconds=max_seconds, to=to)


def gather(
    batches: Iterable[Samples],
    n: int,
    cut: Callable[[Samples, int], Samples] = lambda part, most: part,
    *,
    max_proposed: int | None = None,
    max_seconds: float | None = None,
    to: Any = None,
) -> Samples:
    """Gather exactly `n` samples; `cut(part, k)` returns at most k samples of a part, with their cost.

    Without it the parts must sum to n by themselves.
    """
    n, begun = check_count(n, "n"), perf_counter()
    parts: list[Samples] = []
    kept = proposed = 0
    batches = iter(batches)
    try:
        while kept < n:
            another = parts[-1].executed if parts else 0  # what one more batch would cost
            if max_proposed is not None and parts and proposed + another > max_proposed:
                raise _exhausted(f"{proposed} proposals", "raise max_proposed", kept, n, parts)
            if max_seconds is not None and perf_counter() - begun >= max_seconds:
                raise _exhausted(f"{max_seconds:g} seconds", "raise max_seconds", kept, n, parts)
            part = next(batches, None)
            if part is None:
                raise _exhausted(f"{proposed} proposals", "let the stream go on", kept, n, parts)
            part = cut(part, n - kept)
            parts.append(part if to is None else replace(part, x=move(part.x, to)))
            kept, proposed = kept + len(part), proposed + part.proposed
    except KeyboardInterrupt as error:
        partial = join(parts) if parts else None
        remedy = f"; go on with start={partial.next_id}" if partial else ""
        raise Interrupted(f"interrupted with {kept} of {n} samples kept{remedy}", partial) from error
    except ExhaustedError:
        raise
    except Exception as error:
        error.partial = join(parts) if parts else None  # type: ignore[attr-defined]
        raise
    return join(parts)


def _stream(
    propose: Proposal,
    log_ratio: LogRatio,
    rule_for: Callable[[Samples], Rule],
    size: int,
    seed: int,
    start: int,
    stop: int | None,
    worker: int,
    workers: int,
) -> Iterator[Samples]:
    # Batches lie on a fixed grid of ids, so that a resumed run and other workers make the same ones.
    decide = Ahead(seed)
    for block in count(start // size):
        low, high = max(start, block * size), (block + 1) * size
        if stop is not None:
            high = min(high, stop)
            if low >= stop:
                return
        if block % workers == worker:
            made = make(propose, log_ratio, np.arange(low, high), size)
            yield judge(made, rule_for(made), decide(low, high))


def _reported(parts: Iterable[Samples], report: Report) -> Iterator[Samples]:
    kept = proposed = 0
    for part in parts:
        kept, proposed = kept + len(part), proposed + part.proposed
        report(kept, proposed)
        yield part


def _exhausted(what: str, remedy: str, kept: int, n: int, parts: list[Samples]) -> ExhaustedError:
    return ExhaustedError(
        f"kept {kept} of {n} samples in {what}; {remedy} or lower the budget K", join(parts) if parts else None
    )


def _shard(shard: Any) -> tuple[int, int]:
    try:
        worker, workers = (int(part) for part in shard)
    except (TypeError, ValueError):
        raise InputError(f"shard must be (worker, workers), got {shard!r}") from None
    if not 0 <= worker < workers:
        raise InputError(f"shard must be (worker, workers) with 0 <= worker < workers, got {shard!r}")
    return worker, workers
