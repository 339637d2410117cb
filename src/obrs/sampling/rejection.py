"""Rejection with a budget: from a proposal and a log-ratio to kept samples.

A proposal has an id; whether it is kept is a pure function of (seed, id, log-ratio, rule). So the kept set does not
depend on batch size, backend or number of workers, a run can stop anywhere and go on, and on the same ids a larger
budget keeps a subset. If a run is cut short, its error carries what was kept.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, count
from math import ceil, inf
from time import perf_counter
from typing import Any, TypeGuard

import numpy as np

from .._checks import check_budget, check_callable, check_count, check_positive, check_seed, is_number, out_of_reach
from .._progress import Update, bar
from ..choice import Choice, check_cap, choose
from ..draws import Purpose, uniform_columns, words
from ..errors import ExhaustedError, InputError, InputTypeError, Interrupted
from ..groups import Grouped, groups_of, sizes_of
from ..rules import Budgeted
from ..selection import inclusion_probability, select
from ..types import Array, LogRatio, Proposal, Rule
from .proposals import call, propose_batch, score_batch, take, warn_of_train_mode
from .samples import Calls, Samples, first, join, keep_all, pick

__all__ = ["Run", "collect", "fit_and_keep", "sample", "score_proposals", "stream"]

PILOT = 4096  # proposals that a rule is fitted on; a pool of at most this size is drawn whole
_MOST_PILOT = 16 * PILOT  # to which a pilot may grow for the sake of thin groups
_PER_GROUP = 200  # proposals that the constant of a group should be fitted on
_BLOCK = 1 << 14  # ids whose uniforms are drawn at a time

_WAYS = ["n budget", "n budget cap", "n rule", "n pool", "proposed budget", "proposed rule"]
_MORE = "allow more, or lower the budget K"
_NO_RATIO = "chosen by a score that is no ratio, such as a pool of ratios: there are no weights"
_RULE = "rule", "a rule such as Budgeted.fit(...)"
_SPLIT = "a split budget is for n samples of proposals made one group at a time, propose(ids, group)"
UNCHECKED = "the log-ratio was not checked: compare it with real samples by obrs.diagnose(real, fake, budget)"

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
    if groups is not None:
        check_callable(groups, "groups", "a function groups(batch) -> labels")
    elif shares is not None:
        raise InputError("shares are of groups: say which, such as groups=lambda batch: batch[1]")
    counts = {"n": n, "proposed": proposed, "pool": pool, "pilot": pilot, "max_proposed": max_proposed}
    n, proposed, pool, pilot, most = (None if k is None else check_count(k, name) for name, k in counts.items())
    size = Run.batch_size if batch_size is None else check_count(batch_size, "batch_size")
    start = check_count(start, "start", least=0)
    deadline = inf if max_seconds is None else perf_counter() + check_positive(max_seconds, "max_seconds")
    run = Run(propose, log_ratio, size, check_seed(seed), start, start + (most or proposed or inf), deadline, progress)
    warn_of_train_mode(propose, log_ratio)

    if n is not None and (cap or isinstance(rule, Choice)):
        if groups is not None:
            raise InputError("a hard cap has one rule for all; leave out groups, or cap")
        row = rule.budget if isinstance(rule, Choice) else check_cap(budget)
        run = _align_rows(run, n, row)
        if rule is not None:
            return _keep_samples(run, n, rule)
        return fit_and_keep(run, n, lambda made: Choice.fit(made.log_ratio, row), -(-(pilot or PILOT) // row) * row)
    if rule is not None:
        rule = _check_rule(rule, n, groups, shares)
        return _keep_shares(run, n, rule) if n is not None and _is_split(rule) else _keep_samples(run, n, rule)
    largest: Any = budget
    total = inf
    if pool is None:
        if groups is not None:
            largest = max(budget.values() if isinstance(budget, Mapping) else np.ravel(largest).tolist(), default=1)
        total = check_budget(largest) * (n or inf)
        pool = ceil(total) if total <= PILOT and pilot is None and is_number(budget) else None
    if n is not None and pool is not None:
        if n > pool:
            raise InputError(f"cannot keep {n} of a pool of {pool}; raise pool")
        return _keep_of_pool(run, n, pool, groups, shares, by_budget=budget is not None)

    def fit(made: Samples) -> Rule:
        if groups is None:
            return Budgeted.fit(made.log_ratio, largest)
        return Grouped.fit(made.log_ratio, budget, call(groups, made.x), shares=shares, of=groups)

    most = pilot or ceil(max(PILOT, min(total, _MOST_PILOT)))
    return fit_and_keep(run, n, fit, pilot or ceil(min(PILOT, total)), groups=groups, most=most)


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
        propose, log_ratio, batch_size, seed: As for `sample`.
        rule: A rule, such as `Budgeted.fit(log_ratios, budget)`.
        start, stop: First id, where the `next_id` of an earlier run resumes it; id to end before.
        shard: `(i, n)`: worker i of n takes every n-th batch, so that the workers together make what one would make.

    Example:
        >>> from obrs import Budgeted, normals
        >>> batches = stream(lambda i: normals(i, 1, seed=1)[:, 0], lambda x: x, Budgeted(0.0), batch_size=50, stop=150)
        >>> [part.proposed for part in batches]
        [50, 50, 50]
    """
    pair = shard if isinstance(shard, tuple | list) and len(shard) == 2 else (0, 0)
    whole = all(isinstance(i, int | np.integer) and type(i) is not bool for i in pair)
    if not whole or not 0 <= pair[0] < pair[1]:
        raise InputError(f"shard must be (worker, workers) with 0 <= worker < workers, got {shard!r}")
    check_callable(propose, "propose"), check_callable(log_ratio, "log_ratio")
    if _is_split(rule):
        raise InputError(f"{_SPLIT}, not for a stream; use obrs.sample")
    if isinstance(rule, Choice):
        raise InputError("a hard cap is for n samples, not for a stream; use obrs.sample")
    end = inf if stop is None else check_count(stop, "stop", least=0)
    run, rule = Run(propose, log_ratio, check_count(batch_size, "batch_size"), stop=end), check_callable(rule, *_RULE)
    warn_of_train_mode(propose, log_ratio)
    made, seed = run.make(check_count(start, "start", least=0), inf, *shard), check_seed(seed)
    return (_judge(batch, rule, seed) for batch in made)


def collect(batches: Iterable[Samples], n: int) -> Samples:
    """Gather exactly `n` samples from a stream, and count the cost to the n-th.

    Args:
        batches: What `stream` yields.
        n: Samples wanted.

    Raises:
        ExhaustedError: The stream ended; `.partial` has what was kept.

    Example:
        >>> from obrs import Budgeted, normals
        >>> batches = stream(lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: x, Budgeted(-1.0), batch_size=50)
        >>> kept = collect(batches, 30)
        >>> len(kept), kept.proposed - int(kept.ids[-1])
        (30, 1)
    """
    if not isinstance(batches, Iterable):
        raise InputTypeError(f"batches must be what stream yields, got {type(batches).__name__}")
    n = check_count(n, "n")
    with _Kept(n, n, lambda joined: joined) as kept:
        for part in batches:
            if not isinstance(part, Samples):
                raise InputTypeError(f"batches must be what stream yields, got one of {type(part).__name__}")
            if kept.add(part):
                break
    return kept.samples()


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

    def make(self, start: int, stop: float = inf, worker: int = 0, workers: int = 1) -> Iterator[Samples]:
        """Make and score the proposals of a worker from id `start` to before `stop`, while there is time.

        Batches lie on a fixed grid of ids, so that a resumed run and other workers make the same ones.
        """
        for block in count(start // self.batch_size):
            low, high = max(start, block * self.batch_size), min((block + 1) * self.batch_size, stop, self.stop)
            if low >= high:
                return
            if block % workers == worker:
                if perf_counter() >= self.deadline:
                    raise _Spent(f"the seconds allowed; {_MORE}")
                yield score_proposals(self.propose, self.log_ratio, np.arange(low, high))


def score_proposals(propose: Proposal, log_ratio: LogRatio, ids: Any) -> Samples:
    """Make and score the proposals with these ids."""
    begun = perf_counter()
    x = propose_batch(propose, ids)
    scores = score_batch(log_ratio, x, len(ids))
    return keep_all(x, ids, scores, calls=Calls(len(ids), len(ids)), seconds=perf_counter() - begun)


def _keep_samples(run: Run, n: int | None, rule: Any) -> Samples:
    """Keep what a rule accepts until there are n; without n, to the last proposal of the run."""
    kept = _Kept(n, n, partial(_add_notes, run))
    with bar("sampling", n or run.stop - run.start, run.progress) as kept.update, kept:
        _keep_accepted(kept, run.make(run.start), rule, run.seed)
    return kept.samples()


def _keep_accepted(kept: "_Kept", batches: Iterable[Samples], rule: Any, seed: int) -> None:
    """Run rejection batch by batch, until enough is kept."""
    for made in batches:  # draw ids, propose, score
        accepted = _judge(made, rule, seed)  # decide
        if kept.add(accepted):  # keep
            return
        if accepted.proposed < made.proposed:
            hole = f"the proposals up to id {accepted.next_id}, and the next {rule.budget} all have r = 0"
            raise _Spent(f"{hole}; raise the budget K, or look at the log-ratio")


def _judge(made: Samples, rule: Any, seed: int) -> Samples:
    """Keep what the rule accepts of some proposals, or of each K in a row what it chooses."""
    begun = perf_counter()
    if isinstance(rule, Choice):
        k = rule.budget
        index = choose(made.log_ratio.reshape(-1, k), rule, ids=made.ids[::k] // k, seed=seed)
        rows = int(np.argmax(np.append(index < 0, True)))  # before the first that has nothing to choose
        index, cost = np.arange(rows) * k + index[:rows], rows * k
        made = replace(made, proposed=cost, calls=Calls(cost, cost), next_id=int(made.ids[0]) + cost, fixed="")
    else:
        log_a = np.asarray(rule(made.log_ratio, made.x), dtype=np.float64)
        if log_a.shape != made.log_ratio.shape:
            raise InputError(f"a rule must return one number per log-ratio, {made.log_ratio.shape}, got {log_a.shape}")
        index = np.flatnonzero(_draw_uniforms(made.ids, seed) < np.exp(np.minimum(log_a, 0.0)))
    x, log_ratio = take(made.x, index), made.log_ratio[index]
    return replace(
        made,
        x=x,
        ids=made.ids[index],
        log_ratio=log_ratio,
        log_weight=np.asarray(rule.log_weight(log_ratio, x), dtype=np.float64),
        rule=rule,
        seconds=made.seconds + perf_counter() - begun,
    )


def _draw_uniforms(ids: Any, seed: int) -> Any:
    """Return the uniforms by which `accept` decides on consecutive ids."""
    low, high = int(ids[0]), int(ids[-1]) + 1
    starts = range(low - low % _BLOCK, high, _BLOCK)
    return np.concatenate([_draw_block(start, seed)[max(low - start, 0) : high - start] for start in starts])


@lru_cache(maxsize=4)  # small batches share a block: a call for each would cost more than the numbers
def _draw_block(start: int, seed: int) -> Any:
    return uniform_columns(start + np.arange(_BLOCK), range(1), seed=seed, purpose=Purpose.ACCEPT)[:, 0]


def fit_and_keep(
    run: Run, n: int | None, fit: Callable[[Samples], Any], size: int, *, groups: Labels | None = None, most: int = 0
) -> Samples:
    """Fit a rule on the first `size` proposals, for thin groups on up to `most`; judge those and all others by it."""
    pilot = _Kept(n, None, lambda made: _add_notes(run, replace(_judge(made, fit(made), run.seed), fixed="")))
    kept = _Kept(n, n, partial(_add_notes, run))
    with bar("sampling", n or run.stop - run.start, run.progress) as kept.update:
        with pilot:
            for made in _make_first(run, size, groups, most=most):
                pilot.add(made)
            rule = fit(made := pilot.join())
        with kept:
            _keep_accepted(kept, chain([made], run.make(made.next_id)), rule, run.seed)
    return kept.samples()


def _make_first(run: Run, size: int, groups: Labels | None, *, most: int = 0) -> Iterator[Samples]:
    """Make the first proposals, and up to `most` until each group has enough; warn of groups that have not."""
    middle, seen = run.start + size, Counter[Any]()
    for batch in chain(run.make(run.start, middle), run.make(middle, run.start + most)):
        yield batch
        if groups is not None:
            found = groups_of(call(groups, batch.x), batch.log_ratio.shape)
            seen.update(dict(zip(found.labels, found.size.tolist(), strict=True)))
        if batch.next_id >= middle and min(seen.values(), default=_PER_GROUP) >= _PER_GROUP:
            return
    thin = {label: size for label, size in seen.items() if size < _PER_GROUP}
    if thin and (most or batch.next_id >= middle):  # a pool that is cut short ends in an error
        some = [f"{label!r:.40} ({size})" for label, size in thin.items()]
        enough = ceil(_PER_GROUP * seen.total() / min(thin.values()))
        warnings.warn(
            f"groups with fewer than {_PER_GROUP} proposals to fit their constants on, {len(thin)} in all: "
            f"{', '.join(some[:5])}; {enough} proposals would be enough: raise pilot, or how many are made",
            stacklevel=4,
        )


def _keep_shares(run: Run, n: int, rule: Grouped) -> Samples:
    """Keep what a split budget keeps, group after group; the ids of a group follow the last one's.

    The weights have the mean 1 in each group: averages under the target have the shares, too.
    """
    ends = np.cumsum(sizes_of(n, np.asarray(rule.shares)))

    def level_weights(kept: Samples) -> Samples:
        by_group = np.split(kept.log_weight, ends[:-1])
        levels = [w - (np.logaddexp.reduce(w) - np.log(max(len(w), 1))) for w in by_group]
        return _add_notes(run, replace(kept, rule=rule, log_weight=np.concatenate(levels)))

    kept, start = _Kept(n, n, level_weights), run.start
    with bar("sampling", n, run.progress) as kept.update, kept:
        for label, log_c, end in zip(rule.labels, rule.log_c, ends.tolist(), strict=True):
            group_run = replace(run, propose=lambda ids, label=label: run.propose(ids, label))  # type: ignore[call-arg]
            batches = group_run.make(start)
            while kept.number < end and (made := next(batches, None)) is not None:
                kept.add(first(_judge(made, Budgeted(log_c), run.seed), end - kept.number))
                start = kept.parts[-1].next_id
    return kept.samples()


def _keep_of_pool(run: Run, n: int, pool: int, groups: Labels | None, shares: Any, *, by_budget: bool) -> Samples:
    """Keep exactly n of a pool, or as large a share of what an interrupted run has made.

    With groups, of each in proportion to its proposals, or as the shares say.
    """

    def choose_share(made: Samples) -> Samples:
        begun, size, options = perf_counter(), len(made) * n // pool, dict[str, Any]()
        if groups is not None:
            labels = call(groups, made.x)
            equal = groups_of(labels, made.log_ratio.shape).size  # all groups keep the same share of their proposals
            options = {"groups": labels, "shares": equal if shares is None else shares}
        elif by_budget and (possible := np.count_nonzero(made.log_ratio > -inf)) < size:
            raise out_of_reach(size / len(made), possible / len(made))
        index, log_pi = np.empty(0, np.int64), np.empty(0)
        if size:
            seed, first_id = run.seed, int(made.ids[0])
            if first_id:  # `select` numbers candidates from 0, so each pool has a seed of its own
                seed = int(words([first_id], range(1), seed=seed, purpose=Purpose.SELECT)[0, 0])
            index = select(made.log_ratio, size, seed=seed, **options)
            log_pi = np.log(inclusion_probability(made.log_ratio, size, **options)[index])
        log_weight, seconds = made.log_ratio[index] - log_pi, made.seconds + perf_counter() - begun
        return _add_notes(run, pick(made, index, log_weight=log_weight, seconds=seconds, fixed="pool"))

    kept = _Kept(n, pool, choose_share)
    with bar("sampling", pool, run.progress) as kept.update, kept:
        for made in _make_first(run, pool, groups):
            kept.add(made)
    return kept.samples()


class _Kept:
    """The parts that a run keeps while the block runs; every error that leaves it has them as `.partial`.

    Args:
        n: Samples wanted, for messages; None for as many as there are.
        limit: How many are kept, of the last part the first; to leave the block with fewer is an error. None for all.
        finish: Makes the result of what was kept.
    """

    def __init__(self, n: int | None, limit: int | None, finish: Callable[[Samples], Samples]) -> None:
        self.n, self.limit, self.finish = n, limit, finish
        self.parts, self.number, self.proposed = list[Samples](), 0, 0
        self.update: Update | None = None

    def add(self, part: Samples) -> bool:
        """Add the first of a part, up to the limit; return whether it is reached."""
        part = part if self.limit is None else first(part, self.limit - self.number)
        self.parts.append(part)
        self.number, self.proposed = self.number + len(part), self.proposed + part.proposed
        if self.update is not None:
            note = f"{self.number / self.proposed:.3f} kept" if self.number < self.proposed else ""
            self.update(self.proposed if self.limit is None else self.number, note)
        return self.number == self.limit

    def join(self) -> Samples:
        """Make one part of all; without a limit their number of proposals was fixed in advance."""
        self.parts[:] = [join(self.parts)]
        return self.parts[0] if self.limit is None else replace(self.parts[0], fixed="")

    def samples(self) -> Samples:
        """Return the result."""
        return self.finish(self.join())

    def __enter__(self) -> "_Kept":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None and self.limit in (None, self.number):
            return
        try:
            kept = self.samples()
        except Exception:  # nothing was made yet, or no rule can be fitted: the first error is the one to show
            kept = None
        number = f"{0 if kept is None else len(kept)}{'' if self.n is None else f' of {self.n}'} samples"
        if error is None or isinstance(error, _Spent):
            raise ExhaustedError(f"kept {number} in {error or f'{self.proposed} proposals; {_MORE}'}", kept) from None
        if isinstance(error, KeyboardInterrupt):
            remedy = "" if kept is None else f"; go on with start={kept.next_id}"
            raise Interrupted(f"interrupted with {number} kept{remedy}", kept) from error
        if kept is not None or not hasattr(error, "partial"):  # an inner run may have left its own
            error.partial = kept  # type: ignore[attr-defined]


class _Spent(Exception):
    """A run has used up what it was given: how much, and what to do."""


def _align_rows(run: Run, n: int, row: int) -> Run:
    """Return a run in whole rows of as many proposals as a hard cap has, n rows at most."""
    if run.start % row:
        raise InputError(f"with a hard cap of {row}, start must be a multiple of it, got {run.start}")
    rows = n if run.stop == inf else min(n, int(run.stop - run.start) // row)
    if not rows:
        raise ExhaustedError(f"kept 0 of {n} samples: {row} proposals are one row, and fewer are allowed", None)
    return replace(run, batch_size=-(-run.batch_size // row) * row, stop=run.start + rows * row)


def _is_split(rule: Any) -> TypeGuard[Grouped]:
    """Tell whether a rule has a budget that was split among groups."""
    return isinstance(rule, Grouped) and rule.left is not None


def _check_rule(rule: Any, n: int | None, groups: Labels | None, shares: Any) -> Any:
    """Return a rule that was given; a `Grouped` rule that was saved is told again where the labels are."""
    if _is_split(check_callable(rule, *_RULE)):
        if n is None or groups is not None:
            raise InputError(f"{_SPLIT}; leave out groups and proposed")
    elif shares is not None or (groups is not None and not isinstance(rule, Grouped)):
        raise InputError("groups and shares are for a rule that is still to be fitted; leave them out, or rule")
    return rule if groups is None else replace(rule, of=groups)


def _add_notes(run: Run, kept: Samples) -> Samples:
    """Add what a reader of the result should know; what a score that is no ratio has chosen loses its weights."""
    notes: tuple[str, ...] = () if hasattr(run.log_ratio, "report") else (UNCHECKED,)  # a fitted ratio has one
    if getattr(run.log_ratio, "calibrated", True) is False:
        notes, kept = (_NO_RATIO,), replace(kept, log_weight=np.full(len(kept), np.nan))
    if isinstance(rule := kept.rule, Budgeted) and rule.rate and rule.budget and rule.rate * rule.budget > 1 + 1e-6:
        notes += (f"exact rejection takes {1 / rule.rate:.3g} proposals per sample, less than the budget",)
    return replace(kept, notes=notes)
