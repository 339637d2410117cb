"""`obrs select`: exactly n rows of a file of scores, or 1 in K, with their weights."""

from typing import Annotated

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
    Logit,
    LogRatio,
    Probability,
    Reward,
    kind_of,
    log_ratios,
    signed_weights,
)
from .groups import GroupColumn, Shares, read_shares

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
    sign = None
    if event_weight is None:
        _, _, values = log_ratios(table, column, given, beta)
    else:
        values, sign = signed_weights(table, event_weight, column, given)
    parts = read_shares(shares, table, group)
    kept = scores.keep(
        table, values, n=n, budget=budget, group=group, shares=parts, seed=seed, design=design, sign=sign
    )
    scores.write_table(out, kept, format if out == "-" else None)
    share = f"kept {len(kept)} of {len(table)} rows (1 in {len(table) / max(len(kept), 1):.4g})"
    typer.echo(f"{share}: {'standard output' if out == '-' else out}", err=True)
