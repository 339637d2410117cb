"""`tune`: find the ratio by which a budget improves a model most, or report that none does.

Which ratio is best depends on the data, the model and the features that a distance is measured in, and held-out
log-loss does not predict it. So real samples and proposals are split once. Candidates are fitted on one part and
compared on a second one, by a judge whose features no candidate was fitted on. The best is confirmed once, on a third.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np

from ._arrays import host_view
from ._checks import check_budget, check_count, check_seed
from ._progress import bar
from .errors import BudgetError, InputError, InputTypeError
from .estimate import Estimate
from .judge import Distance, Judge
from .metrics.curve import Curve
from .metrics.features import FEATURES
from .metrics.neighbours import neighbour_curves
from .ratios.batch import Batch, Columns
from .ratios.features import as_features, classifier_features, probe_features
from .ratios.refit import FIT_IDS, FineTune, refit
from .rules import Budgeted
from .sampling.proposals import no_grad, propose_batch, score_batch, torch_module
from .selection import select
from .tuned import (
    CALIBRATED,
    INTERRUPTED,
    ONE,
    PER_CLASS,
    Extra,
    Outcome,
    Pool,
    Recipe,
    Tuned,
    TunedPool,
    critic_ratio,
    labels_of,
    plain_ratio,
)
from .types import Proposal

__all__ = ["Search", "tune", "tune_pool"]

Floats = np.ndarray[Any, Any]

_MILD, _SHARP = (0.5, 1.0, 2.0, 4.0), (0.1, 0.3)  # coefficients that are tried
_TOP_K = 200.0  # standard deviation of a score, in nats, at which a rule keeps the highest ones
_FEWEST = 500  # samples of each kind to fit on
_FINALISTS = 3
_CLOSE = 24  # recipes, the best ones, among which a simple one is preferred
_RECALL = 0.02  # of recall that may be lost
_IN_CLASS = 20  # proposals of each class, to have a constant of its own
_BLOCK = 500  # proposals at a time
_SEEN = 4000  # samples of each kind that the features seen by a probe are computed of
_SMALLER = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # budgets that may buy as much as the one that was asked for


def tune(
    real: Any,
    propose: Proposal,
    *,
    budget: float,
    critic: Any = None,
    judge: Any = None,
    pretrained: Sequence[str] | None = None,
    extra: Extra | None = None,
    columns: Columns = None,
    keep_recall: bool = True,
    pool: int = 20_000,
    seed: int = 0,
    progress: bool | None = None,
) -> Tuned:
    """Find the ratio by which a budget improves a model most, and check it on data that nothing was fitted on.

    Candidates are the critic as it is and trained further; networks on the outputs of a classifier, on the logits of a
    probe over pretrained features, on oriented gradients, or on the samples; and your own. They are added up with
    coefficients, and used with one constant, one per class, or one after calibration by class. A judge, whose features
    no candidate was fitted on, compares them on one half of a pool of proposals. The best is confirmed on the other
    half with other real samples. If its gain is not above two standard errors there, the answer is the plain model.

    Args:
        real: Samples of the target, `(n, ...)`, or `(x, label)`: as many as you have that the model did not see.
        propose: Makes the proposals with these ids, in the same form.
        budget: Proposals per kept sample.
        critic: A torch module, `critic(x)` or `critic(x, label)`, whose output is read as a logit.
        judge: Features that decide, by name or a callable on samples, and labels if there are any. By default those of
            a second classifier where there are labels, otherwise of a pretrained network.
        pretrained: Names of pretrained features that candidates may use, if labels are there to fit a probe with. By
            default all that are installed and do not judge. Give `()` to keep them unseen for a measurement later.
        extra: Log-ratios of your own by name, on batches of the form that `propose` returns.
        columns: Keys of samples and labels, if batches are mappings.
        keep_recall: Do not take a choice that loses recall, by two standard errors and more than 0.02.
        pool: Proposals that are compared, a half to choose and a half to confirm. Half as many are fitted on.
        seed: Decides the split and the fits.
        progress: Show the cost and bars; None on a terminal.

    Returns:
        A `Tuned`: print it, and draw with `tuned.sample(n)`; `tuned.search.tune(budget)` finds what is best at another
        budget, without new fits. Ctrl-C after the fits returns the best so far, which is not confirmed.

    Example:
        >>> import obrs
        >>> real = np.random.default_rng(0).normal(1.0, 1.0, (4000, 2)).astype("float32")
        >>> tuned = tune(real, lambda ids: obrs.normals(ids, 2, seed=1), budget=2, pool=4000, progress=False)
        >>> tuned.confirmed, len(tuned.sample(100))
        (True, 100)
    """
    budget, seed = check_budget(budget), check_seed(seed)
    half = check_count(pool, "pool", least=2 * _FEWEST) // 2
    setup = _Setup.make(real, critic, judge, pretrained, extra or {}, columns, seed, progress)
    begun = perf_counter()
    first = Batch.read(propose_batch(propose, np.arange(FIT_IDS, FIT_IDS + 50)), columns, "propose")
    setup.announce(first, 3 * half, (perf_counter() - begun) / 50)
    with setup.timed("proposals to fit on"):
        fake = _propose(propose, range(FIT_IDS, FIT_IDS + half), columns, progress)
    candidates, features = setup.fit_candidates(fake), setup.fit_judge()
    pools = [_score(setup, propose, range(at, at + half), candidates, features, probes=at > 0) for at in (0, half)]
    return setup.search(candidates, features, pools, propose, 2 * half).tune(budget, keep_recall=keep_recall)


def tune_pool(
    real: Any,
    fake: Any,
    *,
    budget: float,
    critic: Any = None,
    judge: Any = None,
    pretrained: Sequence[str] | None = None,
    extra: Extra | None = None,
    keep_recall: bool = True,
    seed: int = 0,
    progress: bool | None = None,
) -> TunedPool:
    """Do what `tune` does for fakes that are there already, and keep 1 in K of them.

    Candidates are fitted twice, on each half of the fakes. Every fake is scored by the ratio that was fitted on the
    other half, so that no score comes from a ratio that saw its sample.

    Args:
        real: As for `tune`.
        fake: Samples of the model in the same form, `(n, ...)` or `(x, label)`.
        budget, critic, judge, pretrained, extra, keep_recall, seed, progress: As for `tune`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(0.7, 1.0, (4000, 2)), rng.normal(0.0, 1.0, (4000, 2))
        >>> tuned = tune_pool(real, fake, budget=2, progress=False)
        >>> tuned.confirmed, len(tuned.kept), bool(fake[tuned.kept].mean() > 0.3)
        (True, 2000, True)
    """
    budget, seed = check_budget(budget), check_seed(seed)
    setup = _Setup.make(real, critic, judge, pretrained, extra or {}, None, seed, progress)
    data = Batch.read(fake, None, "fake").check("fake")
    if len(data) < 4 * _FEWEST:
        raise InputError(f"fake has {len(data)} samples, of which each half is fitted on; give at least {4 * _FEWEST}")
    setup.announce(data[:50], len(data), 0.0)
    features = setup.fit_judge()
    fold = np.random.default_rng((seed, 40)).permutation(len(data)) % 4  # two folds, each with two halves
    parts: list[Pool] = []
    for even in (0, 1):
        rows = [np.flatnonzero(fold == part) for part in (even, even + 2)]
        candidates = setup.fit_candidates(data[np.flatnonzero(fold % 2 != even)])
        for own in rows:
            given = partial(_rows, setup, data[own])
            parts.append(_score(setup, given, range(len(own)), candidates, features))
    pools = [Pool.join(parts[0], parts[2]), Pool.join(parts[1], parts[3])]
    whole = Pool.join(*pools)
    order = np.argsort(np.concatenate([np.flatnonzero(fold == part) for part in (0, 1, 2, 3)]))
    found = setup.search(candidates, features, pools).find(budget, keep_recall)
    score = np.zeros(len(data)) if found.recipe is None else found.recipe.score(whole)[order]
    kept = np.arange(len(data))
    if found.recipe is not None and not found.plain:
        label = whole.label[order] if whole.label is not None and found.recipe.constants == PER_CLASS else None
        n: Any = int(len(data) / budget)
        if label is not None:
            n = {y: max(int(count / budget), 1) for y, count in zip(*np.unique(label, return_counts=True), strict=True)}
        kept = np.sort(np.asarray(select(score, n, groups=label, seed=seed)))
    return TunedPool(**vars(found), score=score, kept=kept)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A log-ratio, and the coefficients that it is tried with."""

    name: str
    log_ratio: Callable[[Any], Any]
    coefficients: tuple[float, ...] = _MILD


@dataclass(frozen=True, eq=False)
class _Setup:
    """What a search starts from: the parts of the real samples, who judges, and what the user gave."""

    judge: Judge
    parts: Mapping[str, Batch]
    shares: Mapping[int, int] | None
    critic: Any
    extra: Extra
    columns: Columns
    seed: int
    progress: bool | None
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        real: Any,
        critic: Any,
        judge: Any,
        pretrained: Sequence[str] | None,
        extra: Extra,
        columns: Columns,
        seed: int,
        progress: bool | None,
    ) -> "_Setup":
        """Check what the user gave, choose the judge, and divide the real samples at random."""
        import torch

        if not isinstance(extra, Mapping) or not all(callable(log_ratio) for log_ratio in extra.values()):
            raise InputTypeError(f"extra must be log-ratios by name, callables on batches, got {extra!r:.80}")
        if critic is not None and not torch_module(critic):
            raise InputTypeError(f"critic must be a torch module, got {type(critic).__name__}; give it as extra")
        data = Batch.read(real, columns, "real").check("real")
        who = Judge.choose(data, judge, pretrained)
        sizes = who.shares
        needed = -(-_FEWEST * sum(sizes.values()) // sizes["fit"])
        if len(data) < needed:
            raise InputError(f"real has {len(data)} samples, which tune divides in {len(sizes)}; give {needed} or more")
        ends = np.cumsum([0, *sizes.values()]) * len(data) // sum(sizes.values())
        order = torch.from_numpy(np.random.default_rng((seed, 39)).permutation(len(data)))
        parts = {name: data[order[a:b]] for name, a, b in zip(sizes, ends, ends[1:], strict=False)}
        counts = None if data.y is None else (column.tolist() for column in data.y.unique(return_counts=True))
        shares = None if counts is None else dict(zip(*counts, strict=True))
        return cls(who, parts, shares, critic, extra, columns, seed, progress)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time that a block takes to that of a part."""
        begun = perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + perf_counter() - begun

    def announce(self, batch: Batch, proposals: int, each: float) -> None:
        """Print what the search will cost, by the time that a few samples take."""
        if self.progress is False or (self.progress is None and not sys.stderr.isatty()):
            return
        lines = [f"tune: {proposals:,} proposals" + (f", about {each * proposals:.0f} s" if each else "")]
        lines += [f"real samples: {', '.join(f'{len(part):,} {name}' for name, part in self.parts.items())}"]
        for name in self.judge.probes:
            begun = perf_counter()
            FEATURES[name](batch.x)
            count = proposals + len(self.parts["fit"]) + len(self.parts["features"])
            spent = (perf_counter() - begun) / len(batch) * count
            lines += [f"{FEATURES[name].title} of {count:,} images, about {spent:.0f} s; pretrained=() leaves it out"]
        print("\n".join([*lines, f"judged by {self.judge.name}"]), file=sys.stderr, flush=True)

    def form(self, batch: Batch) -> Any:
        """Return a batch in the form that the user's callables take."""
        if self.columns is not None:
            return dict(zip(self.columns, (batch.x, batch.y), strict=False))
        return batch.x if batch.y is None else (batch.x, batch.y)

    @cached_property
    def label_features(self) -> dict[str, Any]:
        """Features that are learnt from the labels, by the name of their candidate."""
        if "features" not in self.parts:
            return {}
        own, labels = self.parts["features"].x, host_view(self.parts["features"].y)
        with self.timed("classifiers"):
            classifier = classifier_features(own, labels, seed=self.seed)
            probes = {
                f"probe of {FEATURES[name].title}": probe_features(own, labels, name) for name in self.judge.probes
            }
        return {"classifier's outputs": classifier} | probes

    def fit_candidates(self, fake: Batch) -> list[_Candidate]:
        """Fit every candidate on the real samples of its part, and on one set of fakes."""
        real, given, judge = self.form(self.parts["fit"]), self.form(fake), self.judge
        candidates: list[_Candidate] = []

        def add(name: str, method: Any = None, coefficients: tuple[float, ...] = _MILD, **options: Any) -> None:
            options |= {"columns": self.columns, "seed": self.seed, "progress": self.progress}
            with warnings.catch_warnings(), self.timed(name):
                warnings.simplefilter("ignore", UserWarning)  # of ratios that may do harm: here a judge decides
                fitted = refit(real, given, method, **options)
            if fitted.report.stopped.startswith("interrupted"):
                raise KeyboardInterrupt("interrupted before all candidates were fitted")
            candidates.append(_Candidate(name, fitted, coefficients))

        if self.critic is not None:
            candidates.append(_Candidate("critic as it is", critic_ratio(self.critic, self.columns)))
            add("critic trained further", FineTune(self.critic))
        for name, features in self.label_features.items():
            add(name, features=features, fits=2)
        if judge.image and judge.features is not FEATURES["gradients"]:
            add("oriented gradients", features="gradients", coefficients=_SHARP)
        if not judge.image or not judge.labelled:
            add("samples", coefficients=_SHARP if judge.image else _MILD)
        return [*candidates, *(_Candidate(name, log_ratio) for name, log_ratio in self.extra.items())]

    def fit_judge(self) -> Callable[[Batch], Any]:
        """Return the features that decide."""
        with self.timed("classifiers"):
            return self.judge.fit(self.parts, self.seed)

    def search(
        self, candidates: list[_Candidate], features: Any, pools: Any, propose: Any = None, start: int = 0
    ) -> "Search":
        """Return the search over recipes; without `propose` the pools are all that there is."""
        with self.timed("proposals and scores"), no_grad():
            reals = [_on_host(features(self.parts[name])) for name in ("choose", "confirm")]
            probes = () if propose is None else self.judge.probes
            seen = {name: _on_host(as_features(name)(self.parts["confirm"].x[:_SEEN])) for name in probes}
        return Search(self, candidates, features, pools[0], pools[1], reals[0], reals[1], seen, propose, start)


# Proposals


def _propose(propose: Any, ids: range, columns: Columns, progress: bool | None) -> Batch:
    """Make many proposals, once."""
    parts = []
    with bar("proposals", len(ids), progress) as update:
        for start in range(0, len(ids), _BLOCK):
            batch = propose_batch(propose, np.array(ids[start : start + _BLOCK]))
            parts.append(Batch.read(batch, columns, "propose"))
            update(start + len(parts[-1]))
    return Batch.join(parts)


def _rows(setup: _Setup, data: Batch, ids: Floats) -> Any:
    return setup.form(data[ids])


def _score(
    setup: _Setup, propose: Any, ids: range, candidates: Sequence[_Candidate], features: Any, probes: bool = False
) -> Pool:
    """Make proposals batch by batch, and keep what is needed of them; nothing but scores leaves their device before."""
    import torch

    scores: dict[str, list[Any]] = {candidate.name: [] for candidate in candidates}
    kept: list[Any] = []
    labels: list[Any] = []
    seen: dict[str, list[Any]] = {name: [] for name in setup.judge.probes if probes}
    with setup.timed("proposals and scores"), bar("scores", len(ids), setup.progress) as update, no_grad():
        for start in range(0, len(ids), _BLOCK):
            given = propose_batch(propose, np.array(ids[start : start + _BLOCK]))
            batch = Batch.read(given, setup.columns, "propose")
            for candidate in candidates:
                scores[candidate.name].append(score_batch(candidate.log_ratio, given, len(batch)))
            kept.append(features(batch))
            labels.append(batch.y)
            for name in seen if start < _SEEN else ():
                seen[name].append(as_features(name)(batch.x))
            update(start + len(batch))
    return Pool(
        {name: np.concatenate(parts) for name, parts in scores.items()},
        _on_host(torch.cat(kept)),
        None if labels[0] is None else np.asarray(host_view(torch.cat(labels))),
        {name: _on_host(torch.cat(parts)) for name, parts in seen.items()},
    )


@dataclass(frozen=True, eq=False)
class Search:
    """Candidates with their scores on two pools, one to choose by and one to confirm by; made by `tune`."""

    setup: _Setup
    candidates: list[_Candidate]
    features: Callable[[Batch], Any]
    pool: Pool
    other_pool: Pool
    real: Floats
    other_real: Floats
    seen: Mapping[str, Floats]
    propose: Any
    start: int

    def tune(self, budget: float, *, keep_recall: bool = True) -> Tuned:
        """Choose and confirm a recipe at a budget."""
        found = self.find(check_budget(budget), keep_recall)
        log_ratio = plain_ratio
        if found.recipe is not None and not found.plain:
            known = {candidate.name: candidate.log_ratio for candidate in self.candidates}
            log_ratio = found.recipe.as_log_ratio(known, self.setup.columns)
        rest = {"propose": self.propose, "start": self.start, "seed": self.setup.seed, "columns": self.setup.columns}
        return Tuned(**vars(found), log_ratio=log_ratio, search=self, **rest)

    def score(self, ids: range, propose: Any = None) -> Pool:
        """Return the scores of other proposals."""
        return _score(self.setup, propose or self.propose, ids, self.candidates, self.features)

    def find(self, budget: float, keep_recall: bool) -> Outcome:
        """Choose a recipe on the one pool, and confirm it on the other."""
        with self.setup.timed("search"):
            distance = self.setup.judge.distance(self.real)
            found = self._choose(Outcome(budget, self.setup.judge.name), distance, keep_recall)
            try:
                found = found if INTERRUPTED in found.notes else self._confirm(found, distance)
            except KeyboardInterrupt:
                found = replace(found, notes=(*found.notes, INTERRUPTED))
        return replace(found, seconds=tuple(self.setup.seconds.items()))

    def _choose(self, found: Outcome, distance: Distance, keep_recall: bool) -> Outcome:
        """Search the recipes, greedily over coefficients, by their distance from real samples."""
        pool, budget = self.pool, found.budget
        sizes = [int(np.sum(pool.label == label)) for label in self.setup.shares or {}]
        ways = [ONE, PER_CLASS, CALIBRATED] if min(sizes, default=0) >= _IN_CLASS else [ONE]
        change: dict[Recipe, float] = {}

        def measure(recipes: Iterable[Recipe]) -> Recipe:
            new, lines = [], [np.ones(len(pool))]
            for recipe in map(self._calibrated, recipes):
                with suppress(BudgetError):  # too many have r = 0
                    lines.append(recipe.weights(recipe.rule(pool, budget), pool))
                    new.append(recipe)
            values = distance(self.real, pool.features, np.stack(lines)).value
            change.update(zip(new, ((values[1:] - values[0]) / abs(values[0])).tolist(), strict=True))
            return min(change, key=change.__getitem__)

        def search() -> None:
            best = measure(Recipe(((c.name, b),), way) for c in self.candidates for b in c.coefficients for way in ways)
            for _ in self.candidates[1:]:
                used = dict(best.coefficients)
                more = [(c.name, b) for c in self.candidates if c.name not in used for b in c.coefficients]
                before = best
                if more:
                    best = measure(replace(best, coefficients=(*best.coefficients, pair), offsets=()) for pair in more)
                if best is before:
                    break
            score = best.score(pool)
            spread = float(np.std(score[score > -np.inf])) or 1.0
            measure(
                replace(best, coefficients=tuple((name, b * times) for name, b in best.coefficients), offsets=())
                for times in (0.5, 2.0, max(_TOP_K / spread, 1.0))
            )

        notes: tuple[str, ...] = ()
        try:
            search()
        except KeyboardInterrupt:
            if not change:
                raise
            notes = (INTERRUPTED,)
        order = sorted(change, key=change.__getitem__)
        found = replace(found, rows=tuple((str(recipe), change[recipe]) for recipe in order), notes=notes)
        if notes:
            return self._take(found, order[0])
        losses = []
        for recipe in self._simplest(order, distance, budget):
            lost = _recall(recipe, recipe.rule(pool, budget), pool, self.real)
            losses.append(f"{lost.value:+.3f} ± {lost.standard_error:.3f}")
            if not (keep_recall and lost.value + 2 * lost.standard_error < 0 and lost.value < -_RECALL):
                return self._take(found, recipe)
        return replace(
            found, notes=(f"the best choices lose recall, {', '.join(losses)}; keep_recall=False takes them",)
        )

    def _confirm(self, found: Outcome, distance: Distance) -> Outcome:
        """Measure what was chosen once more, on other proposals and other real samples."""
        recipe, pool = found.recipe, self.other_pool
        if recipe is None:
            return found
        rules = {found.budget: found.rule}
        for budget in _SMALLER:
            with suppress(BudgetError):  # too many have r = 0
                rules |= {} if budget >= found.budget else {budget: recipe.rule(self.pool, budget)}
        lines = np.stack([np.ones(len(pool)), *(recipe.weights(rule, pool) for rule in rules.values())])
        curve = distance(self.other_real, pool.features, lines)
        change = curve.difference(1, 0)
        confirmed = change.value + 2 * change.standard_error < 0
        found = replace(
            found,
            change=_relative(curve, 1),
            recall=_recall(recipe, found.rule, pool, self.other_real),
            confirmed=confirmed,
        )
        if not confirmed:
            note = "more real samples, other candidates (critic=, extra=) or a larger budget may help"
            return replace(found, rule=Budgeted(np.inf), notes=(*found.notes, note))
        for line, budget in enumerate([*rules][1:], 2):
            more = curve.difference(1, line)
            if more.value + more.standard_error >= 0:
                gain = _relative(curve, line)
                note = (
                    f"K = {budget:g} buys as much: {-100 * gain.value:.1f} ± {100 * gain.standard_error:.1f} % closer"
                )
                found = replace(found, notes=(*found.notes, note))
                break
        for name, real in self.seen.items():
            x = pool.seen[name]
            gain = _relative(self.setup.judge.distance(real)(real, x, lines[:2, : len(x)]), 1)
            said = f"{100 * gain.value:+.1f} ± {100 * gain.standard_error:.1f} %"
            note = f"{FEATURES[name].title}, which a candidate has seen and which is no judge: {said}"
            found = replace(found, notes=(*found.notes, note))
        return found

    def _simplest(self, order: list[Recipe], distance: Distance, budget: float) -> list[Recipe]:
        """Return finalists: of what is no worse than the best by a standard error, the simplest come first."""
        close = order[:_CLOSE]
        lines = np.stack([recipe.weights(recipe.rule(self.pool, budget), self.pool) for recipe in close])
        curve = distance(self.real, self.pool.features, lines)
        gaps = [curve.difference(i, 0) for i in range(len(close))]
        near = [recipe for recipe, gap in zip(close, gaps, strict=True) if gap.value <= gap.standard_error]
        near.sort(key=lambda recipe: (len(recipe.coefficients), sum(abs(np.log(b)) for _, b in recipe.coefficients)))
        return near[:_FINALISTS]

    def _calibrated(self, recipe: Recipe) -> Recipe:
        shares = self.setup.shares
        return recipe.calibrate(self.pool, shares) if recipe.constants == CALIBRATED and shares else recipe

    def _take(self, found: Outcome, recipe: Recipe) -> Outcome:
        rule = recipe.rule(self.pool, found.budget, lambda given: labels_of(given, self.setup.columns))
        return replace(found, recipe=recipe, rule=rule)


def _relative(curve: Curve, line: int) -> Estimate:
    """Return the change of a distance from that of the plain model, as a share of it."""
    change, plain = curve.difference(line, 0), abs(float(curve.value[0]))
    return Estimate(*(x / plain for x in (change.value, change.low, change.high, change.standard_error)))


def _recall(recipe: Recipe, rule: Any, pool: Pool, real: Floats) -> Estimate:
    """Return by how much recall changes, at equal numbers."""
    some = slice(0, 5000)
    lines = np.stack([np.ones(len(pool)), recipe.weights(rule, pool)])[:, some]
    return neighbour_curves(real=real[some], fake=pool.features[some], weights=lines)["recall"].difference(1, 0)


def _on_host(x: Any) -> Floats:
    return np.asarray(host_view(x))
