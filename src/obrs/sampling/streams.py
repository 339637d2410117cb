"""Judge proposals batch by batch, and gather what is kept: `stream`, `collect`, and what they share with `sample`.

A proposal has an id; whether it is kept is a pure function of (seed, id, log-ratio, rule). So the kept set does not
depend on batch size, backend or number of workers. A run can stop anywhere and go on. On the same ids a larger budget
keeps a subset. Nothing that was kept is lost: if a run is cut short, its error carries the samples.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from time import perf_counter
from typing import Any

import numpy as np

from .._checks import check_count, check_positive
from .._progress import Report
from ..draws import Purpose, uniform_columns
from ..errors import ExhaustedError, InputError, InputTypeError, Interrupted
from ..types import LogRatio, Proposal, Rule
from .proposals import Proposals, move, score_proposals, take, warn_of_train_mode
from .samples import Calls, Samples, first, join, stopped

__all__ = ["Limits", "blocks", "chosen", "collect", "collect_within", "cut_short"]
__all__ += ["deciding_uniforms", "gather", "judge", "judge_all", "keeping", "reported", "stream"]

_AHEAD = 1 << 15  # uniforms drawn at a time


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
        shard: `(i, n)`: worker i of n takes every n-th batch, so that the workers together make what one would make.

    Example:
        >>> from obrs import Budgeted, normals
        >>> batches = stream(
        ...     lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: x, Budgeted(-1.0), batch_size=50, stop=200
        ... )
        >>> [part.proposed for part in batches]
        [50, 50, 50, 50]
    """
    size, worker, workers = check_count(batch_size, "batch_size"), *_shard(shard)
    start = check_count(start, "start", least=0)
    if not callable(rule):
        raise InputTypeError(f"rule must be a rule such as Budgeted.fit(...), got {type(rule).__name__}")
    warn_of_train_mode(propose, log_ratio)
    return judge_all(propose, log_ratio, rule, blocks(size, start, stop, worker, workers), seed)


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
        max_seconds: Give up after this time.
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
    return collect_within(Limits(max_proposed, max_seconds), batches, n, to=to)


def collect_within(
    limits: "Limits", batches: Iterable[Samples], n: int, *, remedy: str = "let the stream go on", to: Any = None
) -> Samples:
    """Do what `collect` does, within limits that began before."""
    try:
        return stopped(gather(batches, n, first, limits=limits, remedy=remedy, to=to), "kept")
    except BaseException as error:  # Ctrl-C, too: what it carries was to stop at the n-th
        if isinstance(partial := getattr(error, "partial", None), Samples):
            error.partial = stopped(partial, "early")  # type: ignore[attr-defined]
        raise


def gather(
    batches: Iterable[Samples],
    n: int,
    cut: Callable[[Samples, int], Samples] = lambda part, most: part,
    *,
    limits: "Limits | None" = None,
    remedy: str = "let the stream go on",
    to: Any = None,
) -> Samples:
    """Gather exactly `n` samples; `cut(part, k)` returns at most k samples of a part, with their cost.

    Without it the parts must sum to n by themselves. `remedy` is what to do if the batches end before.
    """
    n, limits = check_count(n, "n"), limits or Limits()
    parts: list[Samples] = []
    kept = proposed = 0
    batches = iter(batches)

    def so_far() -> Samples | None:
        return join(parts) if parts else None

    with keeping(so_far, n):
        while kept < n:
            another = parts[-1].executed if parts else 0  # what one more batch would cost
            if parts and limits.max_proposed is not None and proposed + another > limits.max_proposed:
                raise cut_short(f"{proposed} proposals", "raise max_proposed", n, so_far())
            if limits.out_of_time:
                raise cut_short(f"{limits.max_seconds:g} seconds", "raise max_seconds", n, so_far())
            part = next(batches, None)
            if part is None:
                raise cut_short(f"{proposed} proposals", remedy, n, so_far())
            part = cut(part, n - kept)
            parts.append(part if to is None else replace(part, x=move(part.x, to)))
            kept, proposed = kept + len(part), proposed + part.proposed
    return join(parts)


@dataclass(frozen=True)
class Limits:
    """How many proposals and seconds a run may take; None for any number."""

    max_proposed: int | None = None
    max_seconds: float | None = None
    begun: float = field(default_factory=perf_counter)

    def __post_init__(self) -> None:
        if self.max_proposed is not None:
            check_count(self.max_proposed, "max_proposed")
        if self.max_seconds is not None:
            check_positive(self.max_seconds, "max_seconds")

    @property
    def out_of_time(self) -> bool:
        """Whether the seconds are over."""
        return self.max_seconds is not None and perf_counter() - self.begun >= self.max_seconds


@contextmanager
def keeping(so_far: Callable[[], Samples | None], n: int | None = None) -> Iterator[None]:
    """Let nothing be lost that was kept: Ctrl-C and an exception of the user's carry it as `.partial`."""
    try:
        yield
    except (ExhaustedError, Interrupted):  # carry theirs
        raise
    except KeyboardInterrupt as error:
        partial = so_far()
        kept = f"{len(partial) if partial else 0}{'' if n is None else f' of {n}'} samples kept"
        remedy = "" if partial is None else f"; go on with start={partial.next_id}"
        raise Interrupted(f"interrupted with {kept}{remedy}", partial) from error
    except Exception as error:
        if getattr(error, "partial", None) is None:
            error.partial = so_far()  # type: ignore[attr-defined]
        raise


def cut_short(what: str, remedy: str, n: int | None, partial: Samples | None) -> ExhaustedError:
    """Return the error for a run that used up what it was given."""
    kept = f"{len(partial) if partial else 0}{'' if n is None else f' of {n}'} samples"
    advice = remedy if n is None else f"{remedy} or lower the budget K"
    return ExhaustedError(f"kept {kept} in {what}; {advice}", partial)


def blocks(
    size: int, start: int = 0, stop: int | None = None, worker: int = 0, workers: int = 1
) -> Iterator[tuple[int, int]]:
    """Yield the first id of each batch of a worker, and the id that it ends before.

    Batches lie on a fixed grid of ids, so that a resumed run and other workers make the same ones.
    """
    for block in count(start // size):
        low, high = max(start, block * size), (block + 1) * size
        if stop is not None:
            high = min(high, stop)
            if low >= stop:
                return
        if block % workers == worker:
            yield low, high


def judge_all(
    propose: Proposal,
    log_ratio: LogRatio,
    rule: Rule,
    blocks: Iterable[tuple[int, int]],
    seed: int,
) -> Iterator[Samples]:
    """Score batch after batch, judge each by the rule, and yield what is kept."""
    uniform = _Ahead(seed)
    for low, high in blocks:
        batch = score_proposals(propose, log_ratio, np.arange(low, high))
        yield judge(batch, rule, uniform(low, high))


def judge(proposals: Proposals, rule: Rule, uniform: Any) -> Samples:
    """Keep what the rule accepts: a uniform of the id, compared in float64."""
    begun = perf_counter()
    log_a = np.asarray(rule(proposals.log_ratio, proposals.x), dtype=np.float64)
    if log_a.shape != proposals.log_ratio.shape:
        raise InputError(f"a rule must return one number per log-ratio, {proposals.log_ratio.shape}, got {log_a.shape}")
    index = np.flatnonzero(uniform < np.exp(log_a))
    return stopped(replace(chosen(proposals, index, rule.log_weight, begun), rule=rule), "proposals")


def chosen(proposals: Proposals, index: Any, log_weight: Callable[[Any, Any], Any], begun: float) -> Samples:
    """Return the proposals at these positions as samples; all the proposals are their cost."""
    cost = Calls(generator=len(proposals), critic=len(proposals))
    x, log_ratio = take(proposals.x, index), proposals.log_ratio[index]
    return Samples(
        x=x,
        ids=proposals.ids[index],
        log_ratio=log_ratio,
        log_weight=np.asarray(log_weight(log_ratio, x), dtype=np.float64),
        proposed=len(proposals),
        executed=len(proposals),
        calls=cost,
        executed_calls=cost,
        seconds=proposals.seconds + perf_counter() - begun,
        next_id=int(proposals.ids[-1]) + 1,
    )


def deciding_uniforms(ids: Any, seed: int) -> Any:
    """Return the uniforms of the stream that `obrs.accept` decides by."""
    return uniform_columns(ids, range(1), seed=seed, purpose=Purpose.ACCEPT)[:, 0]


class _Ahead:
    """The uniforms of consecutive ids, drawn for many batches at once: one call costs less than many small ones."""

    def __init__(self, seed: int) -> None:
        self.seed, self.start, self.drawn = seed, 0, np.empty(0)

    def __call__(self, low: int, high: int) -> Any:
        """Return the uniforms of the ids from `low` to before `high`."""
        if not self.start <= low <= high <= self.start + len(self.drawn):
            self.start, self.drawn = low, deciding_uniforms(np.arange(low, max(high, low + _AHEAD)), self.seed)
        return self.drawn[low - self.start : high - self.start]


def reported(parts: Iterable[Samples], report: Report) -> Iterator[Samples]:
    kept = proposed = 0
    for part in parts:
        kept, proposed = kept + len(part), proposed + part.proposed
        report(kept, proposed)
        yield part


def _shard(shard: Any) -> tuple[int, int]:
    try:
        worker, workers = (int(part) for part in shard)
    except (TypeError, ValueError):
        raise InputError(f"shard must be (worker, workers), got {shard!r}") from None
    if not 0 <= worker < workers:
        raise InputError(f"shard must be (worker, workers) with 0 <= worker < workers, got {shard!r}")
    return worker, workers
