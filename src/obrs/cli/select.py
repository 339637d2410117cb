"""`obrs select`: exactly n rows of a file of scores, or of a folder of them, or 1 in K."""

import os
import shutil
import sys
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer

from .._checks import LIMIT
from .._files import check_not_input
from ..errors import InputError
from .app import Command, app, complain
from .columns import (
    Beta,
    Column,
    Delimiter,
    EventWeight,
    Files,
    Format,
    Header,
    Logit,
    LogRatio,
    Probability,
    Reward,
    SkipBad,
    about,
    kind_of,
    one_in,
    report_bad,
)
from .groups import Group, Quota, Shares, read_quota, read_shares

__all__ = ["select"]

_FEW = 100  # rows below which other designs in Python are clearly more even


@app.command(
    cls=Command,
    epilog="""
        obrs select scores.csv --logit -n 250 -o kept.csv
        obrs select scores.csv --logit --budget 4 --group class -o kept.csv
        obrs select scores/ --logit --id id -n 250 --weights -o kept/
        obrs select completions.jsonl --reward --kl 0.5 --group prompt_id -n 4 -o kept.jsonl
        obrs select events.csv --event-weight w -n 250 -o kept.csv
        obrs select scores/ --logit --id id -n 250 --sql duckdb
    """,
)
def select(
    files: Files,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="FILE", help="Where to write; - is standard output, kept/ a folder."),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "-n", min=1, help="Rows to keep, exactly; of each group, or with --shares in all. With --cost units."
        ),
    ] = None,
    budget: Annotated[float | None, typer.Option(metavar="K", help="Keep 1 row in K instead.")] = None,
    quota: Quota = None,
    column: Column = None,
    log_ratio: LogRatio = False,
    logit: Logit = False,
    probability: Probability = False,
    reward: Reward = False,
    beta: Beta = None,
    kl: Annotated[
        float | None,
        typer.Option(metavar="NATS", help="A budget of KL for a reward, instead of its temperature; with -n."),
    ] = None,
    event_weight: EventWeight = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="The column of ids: they decide, wherever a row stands.")
    ] = None,
    cost: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column of what rows cost, such as tokens; -n is in them.")
    ] = None,
    group: Group = None,
    shares: Shares = None,
    at_most: Annotated[bool, typer.Option("--at-most", help="Keep all rows of a group that has too few.")] = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="Add the columns inclusion_probability and log_weight.")
    ] = False,
    sql: Annotated[
        str | None,
        typer.Option(metavar="duckdb", help="Write nothing, and print the condition by which DuckDB keeps these rows."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed keeps the same rows.")] = 0,
    skip_bad: SkipBad = False,
    repeats: Annotated[bool, typer.Option("--repeats", help="Allow ids that are repeated.")] = False,
    delimiter: Delimiter = None,
    header: Header = None,
    format: Format = None,
) -> None:
    """Keep exactly n rows of a file or a folder, or 1 in K.

    Files are read piece by piece: memory does not grow with the rows. The rows of a folder, a glob or several files go
    to a folder, and a run that was stopped goes on if it is started again.
    """
    from .. import files as rows
    from ..scores import find_sources

    if [n, budget, quota].count(None) != 2:
        raise InputError("say how many rows to keep: either -n or --budget, or --quota by label")
    where: Any = files[0] if len(files) == 1 else files
    kind = kind_of(event_weight, log_ratio=log_ratio, logit=logit, probability=probability, reward=reward)
    options: dict[str, Any] = {"format": format, "delimiter": delimiter, "header": header}
    scores: dict[str, Any] = {"column": event_weight or column, "kind": kind, "group": group, "skip_bad": skip_bad}
    sources = find_sources(where, **options)
    if (out is None) == (sql is None) or sql not in (None, "duckdb"):
        raise InputError("say where to write, -o FILE, or print a condition, --sql duckdb, which needs --id")
    if out is not None:
        if len(sources) > 1 and (out == "-" or _is_file_name(out)):
            raise InputError(f"the rows of several files go to a folder, as in -o kept/, got {out}")
        check_not_input(out, shares if shares and os.path.isfile(shares) else None)
    spent = ""
    if kl is not None:
        if beta is not None or n is None or shares is not None or kind not in (None, "reward"):
            raise InputError("--kl is for -n rewards of every group; leave out --beta, --budget, --quota and --shares")
        scores["kind"] = "reward"
        beta, spent = _find_beta(sources, scores, n, kl)
    elif kind == "reward" and beta is None:
        raise InputError("say how far to tilt: --kl, a budget in nats, or --beta, the temperature of the reward")
    with TemporaryDirectory() as folder:
        target = out if out != "-" else os.path.join(folder, f"kept.{sources[0].format}")
        done = rows.select(
            where,
            n if quota is None else read_quota(quota, group),
            out=target,
            budget=budget,
            beta=beta,
            id=id,
            cost=cost,
            shares=read_shares(shares, group, header),
            at_most=at_most,
            weights=weights,
            seed=seed,
            repeats=repeats,
            **scores,
            **options,
        )
        if out == "-":
            with open(str(target), "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
    report_bad(done.bad, done.rows + done.bad)
    if sql is not None:
        from ..sql import condition

        typer.echo(condition(done))
        return
    price = "" if done.units is None else f" that cost {done.units}"
    place = "standard output" if out == "-" else out if done.new else f"{out} (already there, nothing done)"
    complain(f"kept {len(done)} of {done.rows} rows ({one_in(done.rows, len(done))}){price}{spent}: {place}")
    if min(n or len(done), len(done)) < _FEW:
        complain('note: so few are chosen more evenly by obrs.select(design="pivotal") in Python')


def _is_file_name(out: str) -> bool:
    from ..scores import format_of

    return format_of(out) is not None and not out.endswith(("/", os.sep)) and not os.path.isdir(out)


def _find_beta(sources: Any, scores: dict[str, Any], n: int, kl: float) -> tuple[float, str]:
    """Return the temperature at which the n best of each group spend a budget of KL, and a word about it."""
    from ..files import Reading
    from ..language import tilted_log_ratio
    from ..scores import read_columns

    reading = Reading.find(sources, beta=1.0, **scores)
    batch = read_columns(sources, reading.names)
    reward = batch.numbers(reading.column, skip_bad=reading.skip_bad)
    codes, names = (np.zeros(len(batch), np.int64), []) if reading.group is None else batch.labels(reading.group)
    good = ~np.isnan(reward)
    _, beta, spent = about(sources[0].shown, lambda: tilted_log_ratio(reward[good], codes[good], n, kl, names))
    beta = min(max(beta, np.abs(reward[reward > -np.inf]).max() / LIMIT), 1e300)  # R / beta must be a log-ratio
    more = "" if spent >= kl - 1e-9 * max(kl, 1.0) else f" (of {kl:g}, more cannot be spent)"
    return beta, f", beta {beta:.4g}, KL {spent:.4g}{more}"
