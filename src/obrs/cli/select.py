"""`obrs select`: exactly n rows of a file of scores, or of a folder of them, or 1 in K."""

import os
import shutil
import sys
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from .._files import check_not_input
from ..errors import InputError
from .app import SCORES, Files, command, complain, option, parse_amount, rare_option

__all__ = ["select"]


@command(
    """
        obrs select scores.csv --kind logit -n 250 -o kept.csv
        obrs select scores.csv --kind logit -n 10% -o kept.csv
        obrs select scores.csv --kind logit --group class -n cat=100,dog=50 -o kept.csv
        obrs select scores/ --kind logit --id id -n 250 --weights -o kept/
        obrs select completions.jsonl --kind reward --kl 0.5 --group prompt_id -n 4 -o kept.jsonl
        obrs select events.csv --kind weight --column w -n 250 -o kept.csv
        obrs select scores/ --kind logit --id id -n 250 --sql duckdb
    """,
    "n column kind beta kl id group shares",
    f"cost seed {SCORES}",
)
def select(
    files: Files,
    out: Annotated[str | None, option("FILE", "Where to write; - is stdout, kept/ a folder.", "--out", "-o")] = None,
    budget: Annotated[float | None, option("K", "Keep 1 row in K instead.")] = None,
    weights: Annotated[bool, option(None, "Add columns inclusion_probability and log_weight.", "--weights")] = False,
    at_most: Annotated[bool, rare_option(None, "Keep all rows of a group that has too few.", "--at-most")] = False,
    repeats: Annotated[bool, rare_option(None, "Allow ids that are repeated.", "--repeats")] = False,
    sql: Annotated[str | None, rare_option("duckdb", "Print the condition by which DuckDB keeps these rows.")] = None,
    **shared: Any,
) -> None:
    """Keep exactly n rows of a file or a folder, or 1 in K.

    Files are read piece by piece: memory does not grow with the rows. The rows of a folder, a glob or several files go
    to a folder, and a run that was stopped goes on if it is started again.
    """
    from ..files import select as select_rows
    from ..scores import format_of
    from ..sql import condition
    from .reading import open_scores, read_shares, report_bad

    text, shares, group = shared.pop("n"), shared.pop("shares"), shared["group"]
    if (text is None) == (budget is None):
        raise InputError("say how much to keep: either -n rows, or 1 in --budget")
    n, implied = parse_amount(text, group)
    if (out is None) == (sql is None) or sql not in (None, "duckdb"):
        raise InputError("say where to write, -o FILE, or print a condition, --sql duckdb, which needs --id")
    if shared["kl"] is not None and shares is not None:
        raise InputError("a budget of KL is for n rewards of every group; leave out --shares")
    scores = open_scores(files, n, **shared)
    if out is not None:
        is_file = format_of(out) is not None and not out.endswith(("/", os.sep)) and not os.path.isdir(out)
        if len(scores.sources) > 1 and (out == "-" or is_file):
            raise InputError(f"the rows of several files go to a folder, as in -o kept/, got {out}")
        check_not_input(out, shares if shares and os.path.isfile(shares) else None)
    with TemporaryDirectory() as folder:
        target = out if out != "-" else os.path.join(folder, f"kept.{scores.sources[0].format}")
        done = select_rows(
            scores.where,
            n,
            out=target,
            budget=implied or budget,
            shares=read_shares(shares, group, **scores.options),
            at_most=at_most,
            weights=weights,
            repeats=repeats,
            **scores.columns,
            **scores.options,
        )
        if out == "-":
            with open(str(target), "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
    report_bad(done.bad, done.rows + done.bad)
    if sql is not None:
        typer.echo(condition(done))
        return
    times = done.rows / len(done)
    share = f"1 in {times:,.0f}" if times >= 1000 else f"1 in {times:.4g}"
    price = "" if done.units is None else f" that cost {done.units}"
    place = "standard output" if out == "-" else out if done.new else f"{out} (already there, nothing done)"
    complain(f"kept {len(done)} of {done.rows} rows ({share}){price}{scores.note}: {place}")
    if len(done) < 100:
        complain('note: so few are chosen more evenly by obrs.select(design="pivotal") in Python')
