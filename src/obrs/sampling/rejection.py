"""Rejection with a budget: from a proposal and a log-ratio to kept samples.

A proposal has an id; whether it is kept is a pure function of (seed, id, log-ratio, rule). So the kept set does not
depend on batch size, backend or number of workers, a run can stop anywhere and go on, and on the same ids a larger
budget keeps a subset. If a run is cut short, its error carries what was kept.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import signature
from itertools import chain, count
from math import ceil, inf
from time import perf_counter
from typing import Any

import numpy as np

from .._checks import check_budget, check_count, check_positive, is_number, out_of_reach
from .._progress import bar
from ..choice import Choice, check_cap, choose
from ..draws import Purpose, accept, words
from ..errors import ExhaustedError, InputError, InputTypeError, Interrupted
from ..groups import Grouped, groups_of, sizes_of
from ..rules import Budgeted
from ..selection import inclusion_probability, select
from ..types import Array, LogRatio, Proposal, Rule
from .proposals import label_batch, length, propose_batch, score_batch, warn_of_train_mode
from .samples import Calls, Samples, first, join, pick, unjudged

__all__ = ["Run", "collect", "sample", "sample_with", "score_proposals", "stream"]

PILOT = 4096  # proposals that a rule is fitted on; a pool of at most this size is drawn whole
_MOST_PILOT = 16 * PILOT  # to which a pilot may grow for the sake of thin groups
_PER_GROUP = 200  # proposals that the constant of a group should be fitted on

_WAYS = ["n budget", "n budget cap", "n rule", "n pool", "proposed budget", "proposed rule"]
_NO_RATIO = "chosen by a score that is no ratio, such as a pool of ratios: there are no weights"
_SPLIT = "a split budget is for n samples of proposals made one group at a time, propose(ids, group)"
_UNCHECKED = "the log-ratio was not checked: compare it with real samples by obrs.diagnose(real, fake, budget)"

Fit = Callable[[Samples], Rule]
Labels = Callable[[Any], Any]


def sample(
    propose: Proposal,
    log_ratio: LogRatio,
    n: int | None = None,
    *,
    budget: float | Mapping[Any, float] | Array | None = None,
    pool: int | None = None,
    proposed: int | None = None,
    cap: bool = False,
    groups: Labels | None = None,
    shares: Mapping[Any, float] | Array | None = None,
    rule: Rule | Choice | None = None,
    pilot: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    start: int = 0,
    max_proposed: int | None = None,
    max_seconds: float | None = None,
    progress: bool | None = None,
) -> Samples:
    """Keep samples of a model by budgeted rejection: say how many, and what they may cost.

    - `(n, budget)`: exactly n. If n·K is at most 4096 the whole pool is drawn and n of it are selected. Otherwise the
      first 4096 proposals, the pilot, fit the rule and are judged by it like all others until n are kept.
    - `(n, budget, cap)`: exactly n, each the best choice of 1 among exactly K proposals, by a `Choice`.
    - `(n, rule)`: exactly n, by a rule that is fitted already. For a `Grouped` with a split budget
      `propose(ids, group)` makes proposals of one group at a time; the kept have the shares of the rule.
    - `(n, pool)`: exactly n of exactly so many proposals, each with probability min(c r, 1).
    - `(proposed, budget)` or `(proposed, rule)`: as many as the rule accepts of so many proposals.

    With `groups`, each label has a constant of its own (`Grouped`): all keep the same share of their proposals, or have
    the `shares` of what is kept. The pilot grows, to 65536 proposals at most, until each group has 200; a warning names
    groups that have fewer. `kept.rule.groups` says what was done to each group, and where a smaller budget would do;
    where the whole pool was drawn there is no rule, and `kept.rule` is None.

    Args:
        propose: Makes the proposals with these ids, `propose(ids)`; see `proposal` for a `fn(n)`.
        log_ratio: Scores a batch, shape `(n,)`.
        n: Samples to keep.
        budget: Proposals per kept sample; with groups also a dict by label, or an array in the order of the labels.
        pool, proposed: Proposals to choose from; proposals to make.
        cap: The budget, a whole number, is never exceeded: each K proposals in a row give one sample. A row in which
            all have r = 0 ends the run.
        groups: Finds the labels in a batch, `groups(batch) -> labels`: integers or text.
        shares: The shares of the groups among the kept, a dict by label or an array; numbers of samples do as well.
        rule: A fitted rule; `rule=head.rule, start=head.next_id` goes on with an earlier run.
        pilot: How many proposals the rule is fitted on; it does not grow then.
        batch_size: Proposals per call; 1024 by default.
        seed, start: Decides acceptance, while the proposal has its own; first id.
        max_proposed, max_seconds: Give up after so many proposals, or so much time.
        progress: Show a bar; None shows one on a terminal.

    Raises:
        ExhaustedError: Proposals or seconds ran out.
        Interrupted: Ctrl-C. These errors, and any exception of `propose` or `log_ratio`, have what was kept as
            `.partial`; during the pilot what a rule fitted so far would keep, of a pool as large a share.

    Example:
        >>> from obrs import normals
        >>> propose, log_ratio = (lambda ids: normals(ids, 1, seed=1)[:, 0]), (lambda x: x - 0.5)
        >>> sample(propose, log_ratio, 100, budget=2)
        Samples(100 of 200 proposals, x of shape (100,), next_id=200)
        >>> sample(propose, log_ratio, 25, pool=65)
        Samples(25 of 65 proposals, x of shape (25,), next_id=65)
        >>> sample(propose, log_ratio, proposed=10_000, budget=4)
        Samples(2491 of 10000 proposals, x of shape (2491,), next_id=10000)
    """
    given = {"n": n, "proposed": proposed, "budget": budget, "rule": rule, "pool": pool, "cap": cap or None}
    way = " ".join(name for name, value in given.items() if value is not None)
    if way not in _WAYS or (pilot is not None and budget is None) or (max_proposed is not None and n is None):
        *ways, got = (f"({names.replace(' ', ', ')})" for names in (*_WAYS, way))
        raise InputError(f"sample takes one of {', '.join(ways)}, pilot with budget, max_proposed with n; got {got}")
    n, proposed, pool = (None if given[k] is None else check_count(given[k], k) for k in ("n", "proposed", "pool"))
    size = Run.batch_size if batch_size is None else check_count(batch_size, "batch_size")
    begin = check_count(start, "start", least=0)
    most = proposed if max_proposed is None else check_count(max_proposed, "max_proposed")
    stop = inf if most is None else begin + most
    run = Run(propose, log_ratio, size, seed, begin, stop, _deadline(max_seconds), progress)
    if groups is None and shares is not None:
        raise InputError("shares are of groups: say which, such as groups=lambda batch: batch[1]")
    if groups is not None and not callable(groups):
        raise InputTypeError(f"groups must be a function groups(batch) -> labels, got {type(groups).__name__}")
    warn_of_train_mode(propose, log_ratio)
    if n is not None and (cap or isinstance(rule, Choice)):
        if groups is not None:
            raise InputError("a hard cap has one rule for all; leave out groups, or cap")
        return _sample_rows(run, n, rule if isinstance(rule, Choice) else check_cap(budget), pilot)
    if _is_split(rule):
        if n is None or groups is not None:
            raise InputError(f"{_SPLIT}; leave out groups and proposed")
        return _sample_groups(run, n, rule)
    if rule is not None:
        return _judge_batches(run, n, _check_rule(rule, groups, shares), [])
    if n is not None and pool is not None:
        return _sample_pool(run, n, pool, groups, shares)
    largest: Any = budget
    if groups is not None:
        largest = max(budget.values() if isinstance(budget, Mapping) else np.ravel(largest).tolist(), default=1)
    total = check_budget(largest) * (inf if n is None else n)
    if n is not None and pilot is None and total <= PILOT and is_number(budget):
        return _sample_pool(run, n, ceil(total), groups, shares, by_budget=True)

    def fit(made: Samples) -> Rule:
        if groups is None:
            return Budgeted.fit(made.log_ratio, largest)
        return Grouped.fit(made.log_ratio, budget, label_batch(groups, made.x), shares=shares, of=groups)

    size = ceil(min(PILOT, total)) if pilot is None else check_count(pilot, "pilot")
    most_pilot = size if pilot else ceil(max(PILOT, min(total, _MOST_PILOT)))
    made = _make_pilot(run, n, fit, size, most_pilot, groups)
    return _judge_batches(run, n, fit(made), [made])


def sample_with(run: "Run", n: int, fit: Callable[[Any], Rule], pilot: int) -> Samples:
    """Keep exactly n samples by the rule that `fit` makes from the log-ratios of the first `pilot` proposals."""
    size = check_count(pilot, "pilot")
    made = _make_pilot(run, check_count(n, "n"), lambda made: fit(made.log_ratio), size, size, None)
    return _judge_batches(run, n, fit(made.log_ratio), [made])


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
        start, stop: First id, where the `next_id` of an earlier run resumes it; id to end before.
        shard: `(i, n)`: worker i of n takes every n-th batch, so that the workers together make what one would make.

    Example:
        >>> from obrs import Budgeted, normals
        >>> batches = stream(lambda i: normals(i, 1, seed=1)[:, 0], lambda x: x, Budgeted(0.0), batch_size=50, stop=150)
        >>> [part.proposed for part in batches]
        [50, 50, 50]
    """
    worker, workers = shard
    if not 0 <= worker < workers:
        raise InputError(f"shard must be (worker, workers) with 0 <= worker < workers, got {shard!r}")
    if _is_split(rule):
        raise InputError(f"{_SPLIT}, not for a stream; use obrs.sample")
    run = Run(propose, log_ratio, check_count(batch_size, "batch_size"), start=check_count(start, "start", least=0))
    warn_of_train_mode(propose, log_ratio)
    return (judge(made, rule, seed) for made in run.make(run.start, inf if stop is None else stop, worker, workers))


def collect(
    batches: Iterable[Samples],
    n: int,
    *,
    max_proposed: int | None = None,
    max_seconds: float | None = None,
) -> Samples:
    """Gather exactly `n` samples from a stream, and count the cost to the n-th.

    Args:
        batches: What `stream` yields.
        n: Samples wanted.
        max_proposed, max_seconds: Give up before a batch, after the first, that would make more proposals, or after
            this time.

    Raises:
        ExhaustedError: Proposals or seconds ran out, or the stream ended; `.partial` has what was kept.

    Example:
        >>> from obrs import Budgeted, normals
        >>> batches = stream(lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: x, Budgeted(-1.0), batch_size=50)
        >>> kept = collect(batches, 30)
        >>> len(kept), kept.proposed - int(kept.ids[-1])
        (30, 1)
    """
    n, limit = check_count(n, "n"), inf if max_proposed is None else check_count(max_proposed, "max_proposed")
    deadline, parts, kept, proposed = _deadline(max_seconds), list[Samples](), 0, 0
    batches = iter(batches)
    with _attach_partial(lambda: join(parts), n):
        while kept < n:
            if perf_counter() >= deadline:
                raise _Spent("the seconds allowed")
            try:
                part = None if parts and proposed + parts[-1].executed > limit else next(batches, None)
            except _Spent as spent:
                parts += [] if spent.rest is None else [spent.rest]
                raise
            if part is None:
                raise _Spent(f"{proposed} proposals")
            part = replace(first(part, n - kept), fixed="")
            parts.append(part)
            kept, proposed = kept + len(part), proposed + part.proposed
    return join(parts)


class _Spent(Exception):
    """A run has used up what it was given."""

    def __init__(self, what: str, remedy: str = "allow more, or lower the budget K", rest: Any = None) -> None:
        super().__init__(what)
        self.remedy, self.rest = remedy, rest


def _deadline(max_seconds: float | None) -> float:
    return inf if max_seconds is None else perf_counter() + check_positive(max_seconds, "max_seconds")


@contextmanager
def _attach_partial(so_far: Callable[[], Samples], n: int | None) -> Iterator[None]:
    """Give every error that leaves the block what was kept before it, as `.partial`."""

    def partial() -> Samples | None:
        try:
            return so_far()
        except Exception:  # nothing was made yet, or no rule can be fitted: the first error is the one to show
            return None

    try:
        yield
    except (ExhaustedError, Interrupted):  # of an inner block
        raise
    except (_Spent, KeyboardInterrupt) as error:
        kept = partial()
        number = f"{0 if kept is None else len(kept)}{'' if n is None else f' of {n}'} samples"
        if isinstance(error, _Spent):
            raise ExhaustedError(f"kept {number} in {error}; {error.remedy}", kept) from None
        remedy = "" if kept is None else f"; go on with start={kept.next_id}"
        raise Interrupted(f"interrupted with {number} kept{remedy}", kept) from error
    except Exception as error:
        if getattr(error, "partial", None) is None:
            error.partial = partial()  # type: ignore[attr-defined]
        raise


@dataclass(frozen=True)
class Run:
    """What a run calls, where it begins, in which steps it goes, and how far it may go."""

    propose: Proposal
    log_ratio: LogRatio
    batch_size: int = 1024
    seed: int = 0
    start: int = 0
    stop: float = inf
    deadline: float = inf
    progress: bool | None = None

    def make(self, start: int, stop: float, worker: int = 0, workers: int = 1) -> Iterator[Samples]:
        """Make and score the proposals of a worker from id `start` to before `stop`, while there is time.

        Batches lie on a fixed grid of ids, so that a resumed run and other workers make the same ones.
        """
        for block in count(start // self.batch_size):
            low, high = max(start, block * self.batch_size), min((block + 1) * self.batch_size, stop, self.stop)
            if low >= high:
                return
            if block % workers == worker:
                if perf_counter() >= self.deadline:
                    raise _Spent("the seconds allowed")
                yield score_proposals(self.propose, self.log_ratio, np.arange(low, high))


def score_proposals(propose: Proposal, log_ratio: LogRatio, ids: Any) -> Samples:
    """Make and score the proposals with these ids."""
    begun = perf_counter()
    x = propose_batch(propose, ids)
    scores = score_batch(log_ratio, x, len(ids))
    return unjudged(x, ids, scores, calls=Calls(len(ids), len(ids)), seconds=perf_counter() - begun)


def judge(made: Samples, rule: Any, seed: int) -> Samples:
    """Keep what the rule accepts of some proposals, or of each K in a row what it chooses."""
    begun = perf_counter()
    if isinstance(rule, Choice):
        rows = made.log_ratio.reshape(-1, rule.budget)
        index = choose(rows, rule, ids=made.ids[:: rule.budget] // rule.budget, seed=seed)
        whole = int(np.argmax(np.append(index < 0, True)))  # rows before the first that has nothing to choose
        at, used = np.arange(whole) * rule.budget + index[:whole], whole * rule.budget
        last = int(made.ids[0]) + used
        kept = pick(made, at, rule=rule, proposed=used, calls=Calls(used, used), next_id=last, fixed="")
        kept = replace(kept, log_weight=np.asarray(rule.log_weight(kept.log_ratio), np.float64))
        if whole < len(rows):
            what = f"the proposals up to id {last}, and the next {rule.budget} all have r = 0"
            raise _Spent(what, "raise the budget K, or look at the log-ratio", kept)
        return kept
    log_a = np.asarray(rule(made.log_ratio, made.x), dtype=np.float64)
    if log_a.shape != made.log_ratio.shape:
        raise InputError(f"a rule must return one number per log-ratio, {made.log_ratio.shape}, got {log_a.shape}")
    kept = pick(made, np.flatnonzero(accept(log_a, made.ids, seed=seed)), rule=rule)
    log_weight = np.asarray(rule.log_weight(kept.log_ratio, kept.x), dtype=np.float64)
    return replace(kept, log_weight=log_weight, seconds=made.seconds + perf_counter() - begun)


def _check_rule(rule: Any, groups: Labels | None, shares: Any) -> Rule:
    """Return a rule that was given; a `Grouped` rule that was saved is told again where the labels are."""
    if not callable(rule):
        raise InputTypeError(f"rule must be a rule such as Budgeted.fit(...), got {type(rule).__name__}")
    if shares is not None or (groups is not None and not isinstance(rule, Grouped)):
        raise InputError("groups and shares are for a rule that is still to be fitted; leave them out, or rule")
    found: Rule = rule if groups is None else replace(rule, of=groups)
    return found


def _make_pilot(run: Run, n: int | None, fit: Fit, size: int, most: int, groups: Labels | None) -> Samples:
    """Make the proposals that the rule is fitted on; with thin groups more of them, up to `most`."""
    made: list[Samples] = []
    seen: Counter[Any] = Counter()

    def so_far() -> Samples:
        some = join(made)
        return replace(judge(some, fit(some), run.seed), fixed="")

    with _attach_partial(so_far, n):
        middle = run.start + size
        for batch in chain(run.make(run.start, middle), run.make(middle, run.start + most)):
            made.append(batch)
            if groups is not None:
                seen.update(_group_sizes(batch, groups))
            if sum(map(len, made)) >= size and min(seen.values(), default=_PER_GROUP) >= _PER_GROUP:
                break
    _warn_of_thin_groups(seen)
    return join(made)


def _judge_batches(run: Run, n: int | None, rule: Rule | Choice, made: list[Samples]) -> Samples:
    """Judge what is made already, and then batch after batch, until n are kept; without n, to the last proposal."""
    end = made[-1].next_id if made else run.start

    def judged() -> Iterator[Samples]:
        kept = 0
        for batch in chain(made, run.make(end, run.stop)):
            part = judge(batch, rule, run.seed)
            kept, proposed = kept + len(part), part.next_id - run.start
            tell(proposed if n is None else kept, f"{kept / proposed:.3f} kept")
            yield part

    with bar("sampling", run.stop - run.start if n is None else n, run.progress) as tell:
        if n is not None:
            return _add_notes(run, collect(judged(), n))
        parts: list[Samples] = []
        with _attach_partial(lambda: join(parts), None):
            for part in judged():
                parts.append(part)
    return _add_notes(run, join(parts))


def _sample_rows(run: Run, n: int, rule: Choice | int, pilot: int | None) -> Samples:
    """Choose one of each K proposals in a row, by a rule or by one that is fitted on the first proposals."""
    budget = rule.budget if isinstance(rule, Choice) else rule
    if run.start % budget:
        raise InputError(f"with a hard cap of {budget}, start must be a multiple of it, got {run.start}")
    most = n if run.stop == inf else min(n, int(run.stop - run.start) // budget)  # whole rows
    if not most:
        raise ExhaustedError(f"kept 0 of {n} samples: {budget} proposals are one row, and fewer are allowed", None)
    run = replace(run, batch_size=-(-run.batch_size // budget) * budget, stop=run.start + most * budget)
    if isinstance(rule, Choice):
        return _judge_batches(run, n, rule, [])
    size = -(-(PILOT if pilot is None else check_count(pilot, "pilot")) // budget) * budget

    def fit(made: Samples) -> Any:
        return Choice.fit(made.log_ratio, budget)

    made = _make_pilot(run, n, fit, size, size, None)
    return _judge_batches(run, n, fit(made), [made])


def _is_split(rule: Any) -> bool:
    """Tell whether a rule has a budget that was split among groups."""
    return isinstance(rule, Grouped) and rule.left is not None


def _sample_groups(run: Run, n: int, rule: Any) -> Samples:
    """Keep n samples in the shares of a split budget, group after group; the ids of a group follow the last one's.

    Weights have the mean 1 in each group, so that averages under the target have the shares, too.
    """
    try:
        signature(run.propose).bind(0, 0)
    except TypeError:
        raise InputTypeError(f"{_SPLIT}, but propose does not take two arguments") from None
    except ValueError:  # a callable that tells no signature
        pass
    groups: list[list[Samples]] = []

    def so_far() -> Samples:
        parts = [join(parts) for parts in groups if parts]
        levels = [np.logaddexp.reduce(part.log_weight) - np.log(max(len(part), 1)) for part in parts]
        parts = [replace(part, log_weight=part.log_weight - x) for part, x in zip(parts, levels, strict=True)]
        return replace(join(parts), rule=rule)

    def label(number: int) -> Labels:
        return lambda batch: np.full(length(batch), rule.labels[number])

    def propose_one(number: int) -> Any:
        return lambda ids: run.propose(ids, rule.labels[number])  # type: ignore[call-arg]

    kept, end = 0, run.start
    with bar("sampling", n, run.progress) as tell, _attach_partial(so_far, n):
        for number, size in enumerate(np.cumsum(sizes_of(n, np.asarray(rule.shares))).tolist()):
            batches = replace(run, propose=propose_one(number)).make(end, inf)
            groups.append([])
            while kept < size:
                if (batch := next(batches, None)) is None:
                    raise _Spent(f"{end - run.start} proposals")
                part = first(judge(batch, replace(rule, of=label(number)), run.seed), size - kept)
                groups[-1].append(replace(part, fixed=""))
                kept, end = kept + len(part), part.next_id
                tell(kept, f"group {rule.labels[number]!r}")
    return _add_notes(run, so_far())


def _sample_pool(run: Run, n: int, pool: int, groups: Labels | None, shares: Any, by_budget: bool = False) -> Samples:
    """Make a pool, and choose exactly n of it."""
    if n > pool:
        raise InputError(f"cannot keep {n} of a pool of {pool}; raise pool")
    made: list[Samples] = []

    def so_far() -> Samples:
        some = join(made)
        return _choose(some, len(some) * n // pool, groups, shares, run.seed)

    with bar("sampling", pool, run.progress) as tell, _attach_partial(so_far, n):
        for batch in run.make(run.start, run.start + pool):
            made.append(batch)
            tell(batch.next_id - run.start)
        if (number := sum(map(len, made))) < pool:
            raise _Spent(f"{number} proposals")
    whole = join(made)
    if by_budget and groups is None and (possible := int(np.sum(whole.log_ratio > -inf))) < n:
        raise out_of_reach(n / pool, possible / pool)
    if groups is not None:
        _warn_of_thin_groups(_group_sizes(whole, groups))
    return _add_notes(run, _choose(whole, n, groups, shares, run.seed))


def _choose(pool: Samples, n: int, groups: Labels | None, shares: Any, seed: int) -> Samples:
    """Choose exactly n of a pool; with groups, of each in proportion to its proposals, or as the shares say."""
    begun, options = perf_counter(), dict[str, Any]()
    if groups is not None:
        labels = label_batch(groups, pool.x)
        equal = groups_of(labels, pool.log_ratio.shape).size  # all groups keep the same share of their proposals
        options = {"groups": labels, "shares": equal if shares is None else shares}
    index, log_pi = np.empty(0, np.int64), np.empty(0)
    if n:
        # `select` numbers candidates from 0, so each pool has a seed of its own
        first_id = int(pool.ids[0])
        own = int(words([first_id], range(1), seed=seed, purpose=Purpose.SELECT)[0, 0]) if first_id else seed
        index = select(pool.log_ratio, n, seed=own, **options)
        log_pi = np.log(inclusion_probability(pool.log_ratio, n, **options)[index])
    log_weight, seconds = pool.log_ratio[index] - log_pi, pool.seconds + perf_counter() - begun
    return pick(pool, index, log_weight=log_weight, seconds=seconds, fixed="pool")


def _add_notes(run: Run, kept: Samples) -> Samples:
    """Add what a reader of the result should know."""
    checked = hasattr(run.log_ratio, "report")  # a fitted ratio
    notes: tuple[str, ...] = () if checked else (_UNCHECKED,)
    if getattr(run.log_ratio, "calibrated", True) is False:
        notes, kept = (_NO_RATIO,), replace(kept, log_weight=np.full(len(kept), np.nan))
    rule = kept.rule
    if isinstance(rule, Budgeted) and rule.rate and rule.budget and rule.rate * rule.budget > 1 + 1e-6:
        notes += (f"exact rejection takes {1 / rule.rate:.3g} proposals per sample, less than the budget",)
    return replace(kept, notes=notes)


def _group_sizes(made: Samples, groups: Labels) -> Counter[Any]:
    """Return how many proposals each group has."""
    found = groups_of(label_batch(groups, made.x), made.log_ratio.shape)
    return Counter(dict(zip(found.labels, found.size.tolist(), strict=True)))


def _warn_of_thin_groups(sizes: Counter[Any]) -> None:
    """Name the groups that have too few proposals."""
    if thin := {label: size for label, size in sizes.items() if size < _PER_GROUP}:
        some = ", ".join(f"{label!r} ({size})" for label, size in thin.items())
        wanted = ceil(_PER_GROUP * sizes.total() / min(thin.values()))
        warnings.warn(
            f"groups with fewer than {_PER_GROUP} proposals to fit their constants on: {some:.200}; "
            f"{wanted} proposals would be enough: raise pilot, or how many are made",
            stacklevel=4,
        )
