"""What `tune` found: recipes, which are weighted sums of ratios, the table of them, and a sampler that can be saved."""

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
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

__all__ = ["CALIBRATED", "INTERRUPTED", "ONE", "PER_CLASS", "Outcome", "Pool", "Recipe", "Tuned", "TunedPool"]
__all__ += ["critic_ratio", "labels_of", "load", "plain_ratio"]

Floats = np.ndarray[Any, Any]
Extra = Mapping[str, Callable[[Any], Any]]

ONE, PER_CLASS, CALIBRATED = "one constant", "one constant per class", "one constant, calibrated by class"
INTERRUPTED = "interrupted: what was chosen is not confirmed"
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Pool:
    """What is kept of proposals: their scores by candidate, the features that decide, labels, and features of probes.

    Features that a probe has seen are in `seen` by name, for the first rows only.
    """

    scores: dict[str, Floats]
    features: Floats
    label: Floats | None
    seen: dict[str, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.features)

    @classmethod
    def join(cls, one: "Pool", two: "Pool") -> "Pool":
        """Return two pools as one; features of probes are left out, as their rows are not the first ones any more."""
        scores = {name: np.append(score, two.scores[name]) for name, score in one.scores.items()}
        label = None if one.label is None or two.label is None else np.append(one.label, two.label)
        return cls(scores, np.concatenate([one.features, two.features]), label)


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

    @property
    def is_ratio(self) -> bool:
        """Whether the score is the log-ratio of one candidate, and not a sum or a power."""
        return len(self.coefficients) == 1 and self.coefficients[0][1] == 1

    def score(self, pool: Pool) -> Floats:
        """Return the scores of proposals."""
        total = sum(b * pool.scores[name] for name, b in self.coefficients)
        return total + self.offset(pool.label)  # type: ignore[no-any-return]

    def offset(self, label: Any) -> Any:
        """Return what calibration adds to the scores of samples with these labels."""
        if not self.offsets:
            return 0.0
        known, added = (np.array(column) for column in zip(*self.offsets, strict=True))
        return added[np.searchsorted(known, label)]

    def calibrate(self, pool: Pool, shares: Mapping[int, float]) -> "Recipe":
        """Return the recipe with E_Q[r | y] = p(y) / q(y) on a pool."""
        score, total = replace(self, offsets=()).score(pool), sum(shares.values())
        means = class_means(score, pool.label, {label: count / total for label, count in sorted(shares.items())})
        return replace(self, offsets=tuple((int(mean.label), -mean.log_excess) for mean in means))

    def rule(self, pool: Pool, budget: float, of: Any = None) -> Any:
        """Fit the rule on a pool."""
        score = self.score(pool)
        if self.constants == PER_CLASS:
            return Grouped.fit(score, budget, pool.label, of=of)
        return Budgeted.fit(score, budget)

    def weights(self, rule: Any, pool: Pool) -> Floats:
        """Return the probability of each proposal of a pool to be kept."""
        rule = replace(rule, of=None) if isinstance(rule, Grouped) else rule  # the pool has labels alone
        return np.exp(np.asarray(rule(self.score(pool), pool.label), np.float64))

    def as_log_ratio(self, candidates: Mapping[str, Callable[[Any], Any]], columns: Columns) -> LogRatio:
        """Return the score as a function of a batch."""

        def score(x: Any) -> Any:
            total = sum(b * np.asarray(host_view(candidates[name](x)), np.float64) for name, b in self.coefficients)
            return total + self.offset(labels_of(x, columns) if self.offsets else None)

        score.parts = {name: candidates[name] for name, _ in self.coefficients}  # type: ignore[attr-defined]
        score.calibrated = self.is_ratio  # type: ignore[attr-defined]
        return score


def labels_of(given: Any, columns: Columns) -> Any:
    """Return the labels of a batch."""
    return host_view(Batch.read(given, columns).y)


def critic_ratio(critic: Any, columns: Columns) -> Callable[[Any], Any]:
    """Return the output of a critic as a log-ratio of batches."""
    critic = deepcopy(critic).eval()  # batch norm as it was trained, and the user's stays as it is

    def log_ratio(given: Any) -> Any:
        batch = Batch.read(given, columns)
        return Batch(batch.x.float(), batch.y).call(critic).reshape(len(batch))

    return log_ratio


def plain_ratio(x: Any) -> Floats:
    """Return the log-ratio of the plain model: 0."""
    return np.zeros(length(x))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a search found: the table of recipes, what was chosen, and what was confirmed.

    Args:
        budget: Proposals per kept sample.
        judge: Who judged.
        rows: Recipes with their relative change of the distance, best first, on the half that was chosen by.
        recipe: What was chosen; None if nothing was.
        rule: The rule fitted on its scores.
        change, recall: The relative change of the distance and the change of recall, on the half that confirms.
        confirmed: Whether the gain is above two standard errors there. If not, the plain model is the answer.
        notes: What a reader should know.
        seconds: How long each part took.
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
        if self.confirmed and self.change is not None and self.recall is not None:
            gain, error = -100 * self.change.value, 100 * self.change.standard_error
            recall = f"recall {self.recall.value:+.3f} ± {self.recall.standard_error:.3f}"
            head = f"confirmed {at}: {gain:.1f} ± {error:.1f} % closer, {recall}"
        elif self.plain:
            head = f"nothing was confirmed {at}: this is the plain model"
        else:
            head = f"the best so far {at}, not confirmed"
        chosen = [] if self.recipe is None else [f"chosen: {self.recipe}"]
        if self.change is not None and not self.confirmed:
            change, error = 100 * self.change.value, 100 * self.change.standard_error
            chosen += [f"which changes the distance by {change:+.1f} ± {error:.1f} % on the half that confirms"]
        return [head, *chosen, *self.notes]

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

    def facts(self) -> dict[str, Any]:
        """Return what JSON can hold of it."""
        facts: dict[str, Any] = {key: getattr(self, key) for key in ("budget", "judge", "confirmed", "notes", "rows")}
        facts |= {key: vars(value) if (value := getattr(self, key)) else None for key in ("change", "recall", "recipe")}
        return facts | {"rule": to_json(self.rule), "seconds": self.seconds}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TunedPool(Outcome):
    """What `tune_pool` found, with the score of each fake, and the positions of those that are kept, ascending."""

    score: Floats
    kept: Floats

    def save(self, folder: str | os.PathLike[str], names: Sequence[str] | None = None) -> None:
        """Write tuned.json, and scores.csv with the columns file (its name, or else its number), score and kept."""
        _write_json(Path(folder) / "tuned.json", self.facts())
        kept = np.isin(np.arange(len(self.score)), self.kept)
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["file" if names else "id", "score", "kept"])
        each = zip(names or range(len(kept)), self.score.tolist(), kept.astype(int).tolist(), strict=True)
        rows.writerows([name, f"{score:.7g}", flag] for name, score, flag in each)
        with replacing(Path(folder) / "scores.csv") as file:
            file.write(text.getvalue().encode())


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Tuned(Outcome):
    """What `tune` found, as a sampler.

    Args:
        log_ratio: The score.
        propose: Makes the proposals.
        start: The first id that nothing has seen, from which `sample` draws.
        seed: Decides acceptance.
        columns: Keys of samples and labels, if batches are mappings.
        search: The candidates with their scores; `search.tune(budget)` takes seconds. None after `load`.
    """

    log_ratio: LogRatio
    propose: Proposal
    start: int
    seed: int = 0
    columns: Columns = None
    search: Any = None

    def sample(self, n: int, **options: Any) -> Samples:
        """Keep n samples, as `obrs.sample` does; those of a sum of ratios have no weights, which only a ratio has."""
        options = {"start": self.start, "seed": self.seed, **options}
        kept = sample(self.propose, self.log_ratio, n, rule=self.rule, **options)
        if self.plain:
            return replace(kept, notes=("the plain model: no gain was confirmed",))
        return kept if self.confirmed else replace(kept, notes=(*kept.notes, *self.notes))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write tuned.json, and the ratios that were fitted beside it; `load` reads them."""
        facts = self.facts() | {"start": self.start, "seed": self.seed, "columns": self.columns}
        _write_json(Path(folder) / "tuned.json", facts)
        for number, ratio in enumerate(getattr(self.log_ratio, "parts", {}).values()):
            if isinstance(ratio, FittedRatio):
                ratio.save(Path(folder) / f"ratio-{number}.safetensors")


def load(folder: str | os.PathLike[str], propose: Proposal, *, critic: Any = None, extra: Extra | None = None) -> Tuned:
    """Read what `Tuned.save` wrote; the same ids are kept as before.

    Args:
        folder: Where it is.
        propose: As `tune` got it.
        critic, extra: As `tune` got them, if what was chosen uses them.
    """
    path = Path(folder) / "tuned.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        rest = {key: facts[key] for key in ("budget", "judge", "confirmed", "start", "seed", "columns")}
        rest |= {key: tuple(map(_tuples, facts[key])) for key in ("rows", "notes", "seconds")}
        rest |= {key: None if facts[key] is None else Estimate(**facts[key]) for key in ("change", "recall")}
        recipe = None if facts["recipe"] is None else Recipe(**{k: _tuples(v) for k, v in facts["recipe"].items()})
        rule = from_json(facts["rule"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} was not written by Tuned.save") from error
    columns = rest["columns"]
    rule = replace(rule, of=lambda given: labels_of(given, columns)) if isinstance(rule, Grouped) else rule
    tuned = Tuned(**rest, recipe=recipe, rule=rule, log_ratio=plain_ratio, propose=propose)
    if recipe is None or tuned.plain:
        return tuned
    known: dict[str, Callable[[Any], Any]] = dict(extra or {})
    for number, (name, _) in enumerate(recipe.coefficients):
        file = Path(folder) / f"ratio-{number}.safetensors"
        if file.exists():
            known[name] = load_ratio(file, network=critic)
        elif name == "critic as it is" and critic is not None:
            known[name] = critic_ratio(critic, columns)
        elif name not in known:
            what = "critic=critic" if name.startswith("critic") else f"extra={{{name!r}: log_ratio}}"
            raise InputError(f"{folder} has no ratio {name!r}, which is yours; give {what}")
    return replace(tuned, log_ratio=recipe.as_log_ratio(known, columns))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _write_json(path: Path, facts: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write((json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode())
