"""What `tune` found: recipes, which are weighted sums of log-ratios, and a sampler that can be saved."""

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ._arrays import host_view
from ._files import replacing
from ._text import html_table, text_table
from .errors import InputError
from .estimate import Estimate
from .groups import Grouped
from .ratios.batch import Batch, Columns
from .ratios.evidence import class_means
from .ratios.refit import FittedRatio, load_ratio
from .rules import Budgeted, from_json, to_json
from .sampling.proposals import length
from .sampling.rejection import sample
from .sampling.samples import Samples
from .types import LogRatio, Proposal

__all__ = ["CALIBRATED", "INTERRUPTED", "ONE", "PER_CLASS", "Outcome", "Pool", "Recipe", "RecipeRatio", "Tuned"]
__all__ += ["TunedPool", "closer", "critic_ratio", "load", "percent"]

Floats = np.ndarray[Any, Any]
Ratios = Mapping[str, Callable[[Any], Any]]  # log-ratios of batches, by name

ONE, PER_CLASS, CALIBRATED = "one constant", "one constant per class", "one constant, calibrated by class"
INTERRUPTED = "interrupted: what was chosen is not confirmed"
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Pool:
    """Proposals with their scores, and the real samples that they are compared with."""

    scores: dict[str, Floats]  # by candidate
    features: Any  # those that decide
    label: Any = None
    real: Any = None  # the features that decide, of real samples
    seen: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # by probes: real samples, and the first proposals

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True)
class Recipe:
    """A weighted sum of candidates.

    Args:
        coefficients: Of the log-ratios, by name.
        constants: "one constant", "one constant per class", or "one constant, calibrated by class".
        offsets: What the calibration adds to the scores of each label.
    """

    coefficients: tuple[tuple[str, float], ...]
    constants: str = ONE
    offsets: tuple[tuple[int, float], ...] = ()

    def __str__(self) -> str:
        return " + ".join(f"{b:.3g} × {name}" for name, b in self.coefficients) + f", {self.constants}"

    def score(self, pool: Pool) -> Any:
        """Return the scores of proposals."""
        total = sum(b * pool.scores[name] for name, b in self.coefficients)
        if not self.offsets:
            return total
        known, added = (np.array(column) for column in zip(*self.offsets, strict=True))
        return total + added[np.searchsorted(known, pool.label)]

    def calibrate(self, pool: Pool, shares: dict[Any, float]) -> "Recipe":
        """Return the recipe with E_Q[r | y] = p(y) / q(y) on a pool; p(y) are the shares of the labels."""
        means = class_means(replace(self, offsets=()).score(pool), pool.label, shares)
        return replace(self, offsets=tuple((int(mean.label), -mean.log_excess) for mean in means))

    def rule(self, pool: Pool, budget: float) -> Any:
        """Fit the rule on a pool."""
        if self.constants == PER_CLASS:
            return Grouped.fit(self.score(pool), budget, pool.label)
        return Budgeted.fit(self.score(pool), budget)

    def weights(self, rule: Any, pool: Pool) -> Floats:
        """Return the probability of each proposal of a pool to be kept."""
        return np.exp(np.asarray(rule(self.score(pool), pool.label), np.float64))


@dataclass(frozen=True, eq=False)
class RecipeRatio:
    """The score of a recipe as a function of batches; `parts` are the log-ratios of its candidates, in its order."""

    recipe: Recipe
    parts: Ratios
    columns: Columns = None

    @property
    def calibrated(self) -> bool:
        """Whether the score is the log-ratio of one candidate, and not a sum or a power."""
        return [b for _, b in self.recipe.coefficients] == [1]

    def __call__(self, x: Any) -> Any:
        scores = {name: np.asarray(host_view(part(x)), np.float64) for name, part in self.parts.items()}
        return self.recipe.score(Pool(scores, None, _labels(x, self.columns) if self.recipe.offsets else None))


def _labels(given: Any, columns: Columns) -> Any:
    return host_view(Batch.read(given, columns).y)


def critic_ratio(critic: Any, columns: Columns) -> Callable[[Any], Any]:
    """Return the output of a critic as a log-ratio of batches."""
    critic = deepcopy(critic).eval()  # batch norm as it was trained, and the user's stays as it is

    def log_ratio(given: Any) -> Any:
        batch = Batch.read(given, columns)
        return Batch(batch.x.float(), batch.y).call(critic).reshape(len(batch))

    return log_ratio


def percent(change: Estimate) -> str:
    """Return a relative change with its error."""
    return f"{100 * change.value:+.1f} ± {100 * change.standard_error:.1f} %"


def closer(change: Estimate) -> str:
    """Return a relative change of a distance as a gain."""
    return f"{-100 * change.value:.1f} ± {100 * change.standard_error:.1f} % closer"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a search found.

    Args:
        budget, judge: Proposals per kept sample, and who judged.
        rows: Recipes with their relative change of the distance, best first, on the half that was chosen by.
        recipe, rule: What was chosen, None if nothing was, and the rule fitted on its scores.
        change, recall: The relative change of the distance and the change of recall, on the half that confirms.
        confirmed: Whether the gain is above two standard errors there. If not, the plain model is the answer.
        notes, seconds: What a reader should know, and how long each part took.
    """

    budget: float
    judge: str
    rows: tuple[tuple[str, float], ...] = ()
    recipe: Recipe | None = None
    rule: Any = field(default_factory=lambda: Budgeted(np.inf))
    change: Estimate | None = None
    recall: Estimate | None = None
    confirmed: bool = False
    notes: tuple[str, ...] = ()
    seconds: tuple[tuple[str, float], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the answer is the plain model; what an interrupted search has chosen is taken, unconfirmed."""
        return self.recipe is None or not (self.confirmed or INTERRUPTED in self.notes)

    @property
    def lines(self) -> list[str]:
        """What was found, in a few lines."""
        at = f"by {self.judge} at K = {self.budget:g}"
        chosen = [] if self.recipe is None else [f"chosen: {self.recipe}"]
        if self.confirmed and self.change is not None and self.recall is not None:
            recall = f"recall {self.recall.value:+.3f} ± {self.recall.standard_error:.3f}"
            return [f"confirmed {at}: {closer(self.change)}, {recall}", *chosen, *self.notes]
        if self.change is not None:
            chosen += [f"which changes the distance by {percent(self.change)} on the half that confirms"]
        plain = f"nothing was confirmed {at}: this is the plain model"
        return [plain if self.plain else f"the best so far {at}, not confirmed", *chosen, *self.notes]

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """The head and the rows of a table: the best recipes, and the best of single candidates."""
        shown = [*self.rows[:_SHOWN], *(row for row in self.rows[_SHOWN:] if "+" not in row[0])][: 3 * _SHOWN]
        return ["recipe", "change, %"], [[name, f"{100 * value:+.1f}"] for name, value in shown]

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.seconds)
        total = f"{len(self.rows)} recipes, {sum(seconds for _, seconds in self.seconds):.0f} s ({parts})"
        return "\n".join([*self.lines, "", text_table(*self.table), total])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(*self.table, notes=self.lines)

    def _write(self, folder: Path, **more: Any) -> None:
        """Write tuned.json, which `load` reads."""
        facts: dict[str, Any] = {key: getattr(self, key) for key in ("budget", "judge", "confirmed", "notes", "rows")}
        facts |= {key: vars(value) if (value := getattr(self, key)) else None for key in ("change", "recall", "recipe")}
        facts |= {"rule": to_json(self.rule), "seconds": self.seconds, **more}
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "tuned.json") as file:
            file.write((json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode())


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TunedPool(Outcome):
    """What `tune_pool` found, with the score of each fake, and the positions of those that are kept, ascending."""

    score: Floats
    kept: Floats

    def save(self, folder: str | os.PathLike[str], names: Sequence[str] | None = None) -> None:
        """Write tuned.json, and scores.csv with the columns file (its name, or else its number), score and kept."""
        self._write(Path(folder))
        kept = np.isin(np.arange(len(self.score)), self.kept).astype(int).tolist()
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["file" if names else "id", "score", "kept"])
        scores = (f"{score:.7g}" for score in self.score.tolist())
        rows.writerows(zip(names or range(len(kept)), scores, kept, strict=True))
        with replacing(Path(folder) / "scores.csv") as file:
            file.write(text.getvalue().encode())


def _plain_ratio(x: Any) -> Floats:
    return np.zeros(length(x))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Tuned(Outcome):
    """The result of `tune`: the chosen ratio and rule, and a sampler.

    Args:
        propose, columns: Makes the proposals, and the keys of samples and labels, if batches are mappings.
        start, seed: The first id that nothing has seen, from which `sample` draws, and what decides acceptance.
        log_ratio: The score; 0 for the plain model.
        search: The candidates with their scores; `search.tune(budget)` takes seconds. None after `load`.
    """

    propose: Proposal
    start: int
    seed: int = 0
    columns: Columns = None
    log_ratio: LogRatio = _plain_ratio
    search: Any = None

    def use(self, ratios: Ratios) -> "Tuned":
        """Return it with the log-ratio of its recipe, and a rule that finds the labels of a batch."""
        if self.recipe is None or self.plain:
            return self
        parts = {name: ratios[name] for name, _ in self.recipe.coefficients}
        rule = self.rule
        if isinstance(rule, Grouped):
            rule = replace(rule, of=partial(_labels, columns=self.columns))
        return replace(self, rule=rule, log_ratio=RecipeRatio(self.recipe, parts, self.columns))

    def sample(self, n: int, **options: Any) -> Samples:
        """Keep n samples, as `obrs.sample` does; those of a sum of ratios have no weights, which only a ratio has."""
        options = {"start": self.start, "seed": self.seed, **options}
        kept = sample(self.propose, self.log_ratio, n, rule=self.rule, **options)
        if self.plain:
            return replace(kept, notes=("the plain model: no gain was confirmed",))
        return kept if self.confirmed else replace(kept, notes=(*kept.notes, *self.notes))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write tuned.json, and the ratios that were fitted beside it; `load` reads them."""
        self._write(Path(folder), start=self.start, seed=self.seed, columns=self.columns)
        parts = self.log_ratio.parts if isinstance(self.log_ratio, RecipeRatio) else {}
        for number, ratio in enumerate(parts.values()):
            if isinstance(ratio, FittedRatio):
                ratio.save(Path(folder) / f"ratio-{number}.safetensors")


def load(
    folder: str | os.PathLike[str], propose: Proposal, *, critic: Any = None, extra: Ratios | None = None
) -> Tuned:
    """Read what `Tuned.save` wrote; give critic and extra again if what was chosen uses them."""
    path = Path(folder) / "tuned.json"
    try:
        facts = _with_tuples(json.loads(path.read_text(encoding="utf-8")))
        for key, kind in (("change", Estimate), ("recall", Estimate), ("recipe", Recipe)):
            facts[key] = kind(**facts[key]) if facts[key] else None
        tuned = Tuned(**facts | {"rule": from_json(facts["rule"])}, propose=propose)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} was not written by Tuned.save") from error
    ratios = dict(extra or {}) | ({} if critic is None else {"critic as it is": critic_ratio(critic, tuned.columns)})
    for number, (name, _) in enumerate(() if tuned.recipe is None or tuned.plain else tuned.recipe.coefficients):
        file = Path(folder) / f"ratio-{number}.safetensors"
        if file.exists():
            ratios[name] = load_ratio(file, network=critic)
        elif name not in ratios:
            what = "critic=critic" if name.startswith("critic") else f"extra={{{name!r}: log_ratio}}"
            raise InputError(f"{folder} has no ratio {name!r}, which is yours; give {what}")
    return tuned.use(ratios)


def _with_tuples(facts: Any) -> Any:
    """Return what JSON holds, its lists as tuples."""
    if isinstance(facts, dict):
        return {key: _with_tuples(value) for key, value in facts.items()}
    return tuple(map(_with_tuples, facts)) if isinstance(facts, list) else facts
