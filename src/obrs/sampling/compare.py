"""Several samplers on one model at matched budgets, side by side."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from time import perf_counter
from typing import Any

import numpy as np

from .._checks import check_budget
from .._text import html_table, lookup, text_table
from ..errors import InputError, InputTypeError
from ..groups import any_labels
from .model import Model
from .proposals import no_grad, take
from .registry import SAMPLERS, Sampler
from .samples import Samples

__all__ = ["Comparison", "compare"]


class Comparison(list[dict[str, Any]]):
    """Rows of `compare`: flat dicts, ready for a DataFrame, that print as a table."""

    def _repr_html_(self) -> str:
        """Return the rows as a table for notebooks."""
        return html_table(*self._cells())

    def __str__(self) -> str:
        """Return the rows as aligned text."""
        return text_table(*self._cells()) if self else "nothing was compared"

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        keys = list(self[0]) if self else ["sampler"]
        return keys, [[_cell(row[key]) for key in keys] for row in self]


def compare(
    samplers: Iterable[str | Sampler],
    model: Model,
    n: int,
    *,
    budget: float = 2.6,
    metrics: Mapping[str, Callable[..., float]] | None = None,
    per_label: bool = False,
    repeats: int = 1,
    seed: int = 0,
) -> Comparison:
    """Draw `n` samples with each sampler; return what they cost and how good they are.

    Args:
        samplers: Names in `SAMPLERS`, which are set to the budget, or samplers with your own constants.
        model: The model; it may be conditional, `Model(..., labels=...)`.
        n: Samples from each.
        budget: Generator calls per sample to match.
        metrics: Numbers to compute from the samples, by name: `{"precision": lambda x: ...}`. Of a conditional model
            they get samples and labels, `lambda x, y: ...`.
        per_label: Also compute each metric from the samples of each label alone, as `precision[label]`; NaN where a
            sampler kept none of a label that another one kept.
        repeats: Runs of each with seeds `seed`, `seed + 1`, …; with more than one, means and `… sd` are given.
        seed: First seed.

    Returns:
        One row per sampler: calls per sample up to the last one kept (`G`, `D`, with a gradient `G grad`, `D grad`),
        seconds as a multiple of those of n bare generator calls in the same run, and the metrics. Methods that train
        before they sample (LatentRS) do so within their time; the calls of training are not counted.

    Example:
        >>> import numpy as np
        >>> model = Model(generate=lambda z: 1.5 * z[:, 0], log_ratio=lambda x: -0.2 * x * x, dim=1)
        >>> rows = compare(["obrs", "topk"], model, 500, budget=2, metrics={"sd": np.std})
        >>> [row["sampler"] for row in rows], rows[0]["G"]
        (['obrs', 'topk'], 2.0)
    """
    check_budget(budget)
    samplers = [samplers] if isinstance(samplers, str) else samplers
    chosen = [(s if isinstance(s, str) else repr(s), _sampler(s, budget)) for s in samplers]
    if not isinstance(model, Model):
        raise InputTypeError(f"compare works on a Model(generate, log_ratio, dim), got {type(model).__name__}")
    if per_label and model.labels is None:
        raise InputError("per_label needs a model with labels; give Model(..., labels=...)")
    bare = _bare_seconds(model, n, seed)
    rows = Comparison()
    for name, sampler in chosen:
        runs = [_run(sampler, model, n, seed + i, metrics or {}, per_label, bare) for i in range(repeats)]
        row: dict[str, Any] = {"sampler": name}
        for key in dict.fromkeys(key for run in runs for key in run):
            values = [run.get(key, np.nan) for run in runs]
            row[key] = float(np.mean(values))
            if repeats > 1:
                row[f"{key} sd"] = float(np.std(values, ddof=1))
        rows.append(row)
    keys = dict.fromkeys(key for row in rows for key in row)
    return Comparison({key: row.get(key, np.nan) for key in keys} for row in rows)


def _run(
    sampler: Sampler,
    model: Model,
    n: int,
    seed: int,
    metrics: Mapping[str, Callable[..., float]],
    per_label: bool,
    bare: float,
) -> dict[str, float]:
    begun = perf_counter()
    kept: Samples = sampler(model, n, seed=seed, progress=False)
    seconds = perf_counter() - begun
    calls = asdict(kept.calls)
    names = {"generator": "G", "critic": "D", "generator_gradient": "G grad", "critic_gradient": "D grad"}
    row = {short: calls[key] / n for key, short in names.items()}
    row["time"] = seconds / bare
    parts = {"": kept.x if model.labels is not None else (kept.x,)}
    if per_label:
        labels = any_labels(kept.x[1])
        for label in np.unique(labels).tolist():
            parts[f"[{label}]"] = take(kept.x, np.flatnonzero(labels == label))
    for name, metric in metrics.items():
        row |= {f"{name}{which}": float(metric(*part)) for which, part in parts.items()}
    return row


def _bare_seconds(model: Model, n: int, seed: int) -> float:
    times = []
    for _ in range(3):
        begun = perf_counter()
        with no_grad():
            model.propose(np.arange(n), seed=seed)
        times.append(perf_counter() - begun)
    return float(np.median(times))


def _sampler(sampler: str | Sampler, budget: float) -> Sampler:
    if isinstance(sampler, str):
        chosen: Sampler = lookup(SAMPLERS, sampler, "sampler").at_budget(budget)
        return chosen
    if not callable(sampler):
        raise InputTypeError(f"a sampler must be a name or callable(model, n, seed=…), got {type(sampler).__name__}")
    return sampler


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
