"""`obrs select`: exactly n rows of a file of scores, or 1 in K, with their weights."""

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .._inputs import check_budget
from ..errors import InputError
from .app import app
from .columns import (
    Beta,
    Column,
    EventWeight,
    File,
    Format,
    Kl,
    Logit,
    LogRatio,
    Probability,
    Reward,
    about,
    find_column,
    find_kind,
    kind_of,
    log_ratios,
    signed_weights,
)
from .groups import GroupColumn, Shares, read_shares

if TYPE_CHECKING:
    from ..scores import Table

__all__ = ["select"]


@app.command()
def select(
    file: File,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where to write; - is standard output.")],
    n: Annotated[
        int | None, typer.Option("-n", min=1, help="Rows to keep, exactly; of each group, or with --shares in all.")
    ] = None,
    budget: Annotated[float | None, typer.Option(metavar="K", help="Keep 1 row in K instead.")] = None,
    column: Column = None,
    log_ratio: LogRatio = False,
    logit: Logit = False,
    probability: Probability = False,
    reward: Reward = False,
    beta: Beta = None,
    kl: Kl = None,
    event_weight: EventWeight = None,
    group: GroupColumn = None,
    shares: Shares = None,
    seed: Annotated[int, typer.Option(help="The same seed keeps the same rows.")] = 0,
    design: Annotated[str, typer.Option(help="How to draw: pivotal, systematic, sampford or poisson.")] = "pivotal",
    format: Format = None,
) -> None:
    """Keep exactly n rows of a file, or 1 in K, with their weights."""
    from .. import scores

    if (n is None) == (budget is None):
        raise InputError("say how many rows to keep: either -n or --budget")
    if budget is not None:
        check_budget(budget)
    if out != "-":
        scores.format_of(out)
    given = kind_of(log_ratio=log_ratio, logit=logit, probability=probability, reward=reward)
    table = scores.read_table(file, format)
    sign, spent = None, ""
    if kl is not None:
        values, spent = _tilted(table, column, given, beta=beta, kl=kl, group=group, n=n, shares=shares)
    elif event_weight is None:
        _, _, values = log_ratios(table, column, given, beta)
    else:
        values, sign = signed_weights(table, event_weight, column, given)
    parts = read_shares(shares, table, group)
    kept = scores.keep(
        table, values, n=n, budget=budget, group=group, shares=parts, seed=seed, design=design, sign=sign
    )
    scores.write_table(out, kept, format if out == "-" else None)
    share = f"kept {len(kept)} of {len(table)} rows (1 in {len(table) / max(len(kept), 1):.4g})"
    typer.echo(f"{share}{spent}: {'standard output' if out == '-' else out}", err=True)


def _tilted(
    table: "Table",
    column: str | None,
    kind: str | None,
    *,
    beta: float | None,
    kl: float,
    group: str | None,
    n: int | None,
    shares: str | None,
) -> tuple[Any, str]:
    """Return the log-ratios of rewards at the temperature that spends a budget of KL, and a word about it."""
    from .. import scores
    from ..language import tilted_log_ratio

    if beta is not None:
        raise InputError("say how far to tilt: either --kl or --beta")
    if n is None or shares is not None:
        raise InputError("--kl is for -n rows of every group; give -n, and neither --budget nor --shares")
    name = find_column(table, column, kind)
    if find_kind(table, name, kind) != "reward":
        raise InputError("--kl is for rewards; say so with --reward")
    reward = scores.column(table, name)
    groups = np.zeros(len(reward), np.int64) if group is None else scores.labels(table, group)[0]
    values, beta = about(table, lambda: tilted_log_ratio(reward, groups, n, kl))
    return values, f", beta {beta:.4g}"
