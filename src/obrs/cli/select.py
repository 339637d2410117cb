"""`obrs select`: exactly n rows of a file of scores, or 1 in K, with their weights."""

from math import inf
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from .._inputs import check_budget
from ..errors import InputError
from .app import app
from .columns import (
    Beta,
    Column,
    File,
    Format,
    Logit,
    LogRatio,
    Numbers,
    Probability,
    Reward,
    about,
    kind_of,
    log_ratios,
)

if TYPE_CHECKING:
    from ..scores import Table

__all__ = ["select"]

_STRIDE = 0x9E3779B97F4A7C15  # between the seeds of pools that must not share their random numbers


@app.command()
def select(
    file: File,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where to write; - is standard output.")],
    n: Annotated[int | None, typer.Option("-n", min=1, help="Rows to keep, exactly; of each group, if any.")] = None,
    budget: Annotated[float | None, typer.Option(metavar="K", help="Keep 1 row in K instead.")] = None,
    column: Column = None,
    log_ratio: LogRatio = False,
    logit: Logit = False,
    probability: Probability = False,
    reward: Reward = False,
    beta: Beta = None,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="The column of classes or prompts, if any.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed keeps the same rows.")] = 0,
    design: Annotated[str, typer.Option(help="How to draw: pivotal, systematic, sampford or poisson.")] = "pivotal",
    format: Format = None,
) -> None:
    """Keep exactly n rows of a file, or 1 in K, with their weights."""
    from .. import scores

    if (n is None) == (budget is None):
        raise InputError("say how many rows to keep: either -n or --budget")
    share = None if budget is None else 1 / check_budget(budget)
    if out != "-":
        scores.format_of(out)
    table = scores.read_table(file, format)
    _, _, values = log_ratios(table, column, kind_of(log_ratio, logit, reward, probability), beta)
    codes, names = (np.zeros(len(values), np.int64), [""]) if group is None else scores.labels(table, group)
    sizes = np.bincount(codes)
    # 6500 / 2.6 is 2500, whichever way the division was rounded
    quota = np.full(len(sizes), n) if share is None else np.floor(sizes * share * (1 + 1e-12)).astype(np.int64)
    _check_quota(table, values, codes, quota, ["" if group is None else f"{group} {key!r}: " for key in names])
    kept, pi = about(table, lambda: _select(values, codes, quota, seed, design))
    extra = {"weight": _weights(values[kept], pi[kept], codes[kept]), "inclusion_probability": pi[kept]}
    scores.write_table(out, scores.take(table, kept, extra), format if out == "-" else None)
    where = "standard output" if out == "-" else out
    typer.echo(
        f"kept {len(kept)} of {len(values)} rows (1 in {len(values) / max(len(kept), 1):.4g}): {where}", err=True
    )


def _check_quota(table: "Table", values: Numbers, codes: Numbers, quota: Numbers, groups: list[str]) -> None:
    """Raise unless every group has enough rows with r > 0, and something to give."""
    sizes, possible = np.bincount(codes), np.bincount(codes, weights=values > -inf).astype(np.int64)
    for wrong in np.flatnonzero((quota < 1) | (quota > possible))[:1]:
        want, have, size = quota[wrong], possible[wrong], sizes[wrong]
        if want < 1:
            what = f"nothing would be kept of {size} rows; lower the budget"
        elif want > size:
            what = f"cannot keep {want} of {size} rows"
        else:
            what = f"cannot keep {want} rows, only {have} of {size} have r > 0"
        raise InputError(f"{table.name}: {groups[wrong]}{what}")


def _select(values: Numbers, codes: Numbers, quota: Numbers, seed: int, design: str) -> tuple[Numbers, Numbers]:
    """Return the kept rows, ascending, and every row's probability of it: groups that keep as many go together."""
    from ..selection import inclusion_probability, select

    kept, pi = [], np.empty(len(values))
    for turn, n in enumerate(np.unique(quota).tolist()):
        rows = np.flatnonzero(quota[codes] == n)
        groups = None if len(quota) == 1 else np.unique(codes[rows], return_inverse=True)[1]
        its_seed = (seed + turn * _STRIDE) % 2**64 if turn else seed
        kept.append(rows[select(values[rows], n, seed=its_seed, design=design, groups=groups)])
        pi[rows] = inclusion_probability(values[rows], n, groups=groups)
    return np.sort(np.concatenate(kept)), pi


def _weights(values: Numbers, pi: Numbers, codes: Numbers) -> Numbers:
    """Return r / pi with mean 1 over the rows of each group: between groups the scale of r may mean nothing."""
    log_weight = values - np.log(pi)
    top = np.full(codes.max(initial=0) + 1, -inf)
    np.maximum.at(top, codes, log_weight)
    weight = np.exp(log_weight - top[codes])
    mean = np.bincount(codes, weights=weight) / np.maximum(np.bincount(codes), 1)
    return np.asarray(weight / mean[codes])
