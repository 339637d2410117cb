"""Every sampler by name, and several of them side by side on one model at matched budgets."""

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from array_api_compat import is_torch_array

from .._checks import check_budget, check_callable, check_count, check_list, check_seed
from .._text import html_table, lookup, text_table
from ..errors import InputError, InputTypeError
from ..groups import any_labels
from ..sampling.proposals import take
from ..sampling.samples import Samples
from .latent import BudgetedLatentRS, LatentRS
from .mhgan import MHGAN
from .model import Model, check_model
from .refine import DDLS, DOT, DGflow
from .simple import OBRS, SIR, Bare, DiscriminatorRejection, ExactRejection, PoolOBRS, TopK

__all__ = ["SAMPLERS", "Comparison", "Sampler", "compare"]


class Sampler(Protocol):
    """A method with its constants, which are the fields of a frozen record."""

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Draw n samples from a model.

        Args:
            model: The model; some methods need its real samples, some do not use its log-ratio.
            n: Samples wanted.
            seed: Decides latents and everything else that is random.
            progress: Show a bar; None shows one on a terminal.
        """
        ...


SAMPLERS: dict[str, Any] = {
    "model": Bare,
    "obrs": OBRS,
    "obrs_pool": PoolOBRS,
    "drs": DiscriminatorRejection,
    "exact": ExactRejection,
    "topk": TopK,
    "sir": SIR,
    "mhgan": MHGAN,
    "dot": DOT,
    "dgflow": DGflow,
    "ddls": DDLS,
    "latent_rs": LatentRS,
    "latent_obrs": BudgetedLatentRS,
}
"""Samplers by name: each is a class with `at_budget(budget)`, and its instances are `Sampler`s."""

_CALLS = {"generator": "G", "critic": "D", "generator_gradient": "G grad", "critic_gradient": "D grad"}


class Comparison(list[dict[str, Any]]):
    """Rows of `compare`: flat dicts, ready for a DataFrame, that print as a table."""

    def __repr__(self) -> str:
        """Return the rows as aligned text."""
        return text_table(*self._cells()) if self else "nothing was compared"

    def _repr_html_(self) -> str:
        """Return the rows as a table for notebooks."""
        return html_table(*self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        keys = list(self[0]) if self else ["sampler"]
        cells = [[f"{row[k]:.4g}" if isinstance(row[k], float) else str(row[k]) for k in keys] for row in self]
        return keys, cells


def compare(
    model: Model,
    budget: float,
    *,
    metrics: Mapping[str, Callable[..., float]] | None = None,
    samplers: Iterable[str | Sampler] | None = None,
    n: int = 2500,
    per_label: bool = False,
    repeats: int = 1,
    seed: int = 0,
) -> Comparison:
    """Draw `n` samples of a model with each sampler; return a table of what they cost and how good they are.

    Args:
        model: The model; it may be conditional, `Model(..., labels=...)`.
        budget: Generator calls per sample to match.
        metrics: Numbers to compute from the samples, by name: `{"precision": lambda x: ...}`. Of a conditional model
            they get samples and labels, `lambda x, y: ...`.
        samplers: Names in `SAMPLERS`, which are set to the budget, or samplers with your own constants. None for the
            bare model, obrs, drs, topk and sir; with real samples also mhgan, with torch dot, dgflow and ddls.
        n: Samples from each.
        per_label: Also compute each metric from the samples of each label alone, as `precision[label]`; NaN where a
            sampler kept none of a label that another one kept.
        repeats: Runs of each with seeds `seed`, `seed + 1`, …; with more than one, means and `… sd` are given.
        seed: First seed.

    Returns:
        One row per sampler: calls per sample up to the last one kept (`G`, `D`, with a gradient `G grad`, `D grad`),
        seconds as a multiple of those of the bare model, and the metrics. Methods that train before they sample
        (LatentRS) do so within their time; the calls of training are not counted.

    Example:
        >>> model = Model(generate=lambda z: 1.5 * z[:, 0], log_ratio=lambda x: -0.2 * x * x, dim=1)
        >>> rows = compare(model, 2, samplers=["obrs", "topk"], n=500, metrics={"sd": np.std})
        >>> [row["sampler"] for row in rows], rows[0]["G"]
        (['obrs', 'topk'], 2.0)
    """
    check_budget(budget), check_model(model)
    if per_label and model.labels is None:
        raise InputError("per_label needs a model with labels; give Model(..., labels=...)")
    names = _usable(model) if samplers is None else samplers
    given = [names] if isinstance(names, str) else check_list(names, "samplers")
    if metrics is not None and (not isinstance(metrics, Mapping) or not all(map(callable, metrics.values()))):
        raise InputTypeError(f"metrics must be functions of samples by name, got {metrics!r:.60}")
    chosen = {name if isinstance(name, str) else repr(name): _sampler(name, budget) for name in given}
    n, repeats, seed = check_count(n, "n"), check_count(repeats, "repeats"), check_seed(seed)
    bare = float(np.median([Bare()(model, n, seed=seed).seconds for _ in range(3)]))
    rows = Comparison()
    for name, sampler in chosen.items():
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


def _usable(model: Model) -> list[str]:
    """Return the samplers that need no training, and nothing that this model lacks."""
    names = ["model", "obrs", "drs", "topk", "sir"]
    names += ["mhgan"] if model.real is not None else []
    return names + (["dot", "dgflow", "ddls"] if is_torch_array(model.latent(np.arange(0))) else [])


def _sampler(sampler: str | Sampler, budget: float) -> Sampler:
    if isinstance(sampler, str):
        sampler = lookup(SAMPLERS, sampler, "sampler").at_budget(budget)
    chosen: Sampler = check_callable(sampler, "a sampler", "a name or callable(model, n, seed=…)")
    return chosen


def _run(
    sampler: Sampler,
    model: Model,
    n: int,
    seed: int,
    metrics: Mapping[str, Callable[..., float]],
    per_label: bool,
    bare: float,
) -> dict[str, float]:
    """Return one row of numbers."""
    begun = perf_counter()
    kept = sampler(model, n, seed=seed, progress=False)
    seconds = perf_counter() - begun
    row = {short: getattr(kept.calls, key) / n for key, short in _CALLS.items()}
    row["time"] = seconds / bare
    parts = {"": kept.x if model.labels is not None else (kept.x,)}
    if per_label:
        labels = any_labels(kept.x[1])
        for label in np.unique(labels).tolist():
            parts[f"[{label}]"] = take(kept.x, np.flatnonzero(labels == label))
    for name, metric in metrics.items():
        row |= {f"{name}{which}": float(metric(*part)) for which, part in parts.items()}
    return row
