"""`obrs select`: exactly n rows of a file of scores, or of a folder of them, or 1 in K."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .._checks import check_budget
from .._files import check_not_input, check_out
from ..errors import InputError
from .app import Command, app
from .columns import (
    SKIP,
    Beta,
    Column,
    Delimiter,
    EventWeight,
    Files,
    Format,
    Header,
    Kl,
    Logit,
    LogRatio,
    Probability,
    Reward,
    SkipBad,
    about,
    check_scores,
    find_column,
    find_kind,
    is_folder,
    kind_of,
    log_ratios,
    one_in,
    said_bad,
    signed_weights,
)
from .groups import GroupColumns, Quota, Shares, parse_quota, parse_shares, read_shares

if TYPE_CHECKING:
    from ..scores import Table

__all__ = ["select"]


@app.command(
    cls=Command,
    epilog="""
        obrs select scores.csv --logit -n 250 -o kept.csv
        obrs select scores.csv --logit --budget 4 --group class -o kept.csv
        obrs select scores/ --logit --id id -n 250 -o kept/
        obrs select completions.jsonl --reward --kl 0.5 --group prompt_id -n 4 -o kept.jsonl
        obrs select events.csv --event-weight w -n 250 -o kept.csv
    """,
)
def select(
    files: Files,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="Where to write; - is standard output, kept/ a folder.")
    ],
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
    kl: Kl = None,
    event_weight: EventWeight = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="The column of ids: they decide, wherever a row stands.")
    ] = None,
    cost: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column of what rows cost, such as tokens; -n is in them.")
    ] = None,
    group: GroupColumns = None,
    shares: Shares = None,
    seed: Annotated[int, typer.Option(help="The same seed keeps the same rows.")] = 0,
    design: Annotated[
        str | None,
        typer.Option(help="How to draw: pivotal, systematic, or priority, as folders and ids need."),
    ] = None,
    skip_bad: SkipBad = False,
    repeats: Annotated[bool, typer.Option("--repeats", help="Allow ids that are repeated.")] = False,
    delimiter: Delimiter = None,
    header: Header = None,
    format: Format = None,
) -> None:
    """Keep exactly n rows of a file or a folder, or 1 in K.

    A folder, a glob or several files are read piece by piece, and kept rows go to a folder: memory does not grow with
    the rows. A run that was stopped goes on if it is started again.
    """
    if [n, budget, quota].count(None) != 2:
        raise InputError("say how many rows to keep: either -n or --budget, or --quota by label")
    if budget is not None:
        check_budget(budget)
    given = kind_of(log_ratio=log_ratio, logit=logit, probability=probability, reward=reward)
    wanted = n if quota is None else parse_quota(quota, group)
    by_keys = id is not None or cost is not None
    if is_folder(files, out):
        if kl is not None:
            raise InputError("--kl is for one file in memory; of a folder, give --beta")
        if event_weight is not None:
            raise InputError("--event-weight is for one file in memory; of a folder, select one sign at a time")
        if design not in (None, "priority"):
            raise InputError(f"rows of a folder are drawn with --design priority, got {design}")
        parts = "equal" if shares == "equal" else parse_shares(shares, group, header)
        options = {"column": column, "kind": given, "beta": beta}
        options |= {"format": format, "delimiter": delimiter, "header": header}
        more = {"id": id, "cost": cost, "group": group, "shares": parts, "seed": seed, "repeats": repeats}
        _select_folder(files, out, wanted, budget, options | more | {"skip_bad": skip_bad})
        return

    from .. import scores

    if out != "-":
        scores.format_of(out)
        check_out(out)
        check_not_input(out, files[0], shares if shares and os.path.isfile(shares) else None)
    table = scores.read_table(files[0], format, delimiter=delimiter, header=header)
    every, sign = len(table), None
    if skip_bad:
        table, bad = scores.without_bad(table, event_weight or find_column(table, column, given))
        said_bad(bad, every)
    spent = ""
    if kl is not None:
        name = find_column(table, column, given)
        values, spent = _tilted(table, name, given, beta=beta, kl=kl, group=group, n=n, shares=shares)
    elif event_weight is None:
        _check_tilt(table, column, given, beta)
        _, _, values = log_ratios(table, column, given, beta, advice=SKIP)
    else:
        values, sign = signed_weights(table, event_weight, column, given)
    kept = scores.keep(
        table,
        values,
        n=wanted,
        budget=budget,
        group=group or None,
        shares=read_shares(shares, table, group, header),
        seed=seed,
        design=design or ("priority" if by_keys else "pivotal"),
        sign=sign,
        ids=None if id is None else _ids(table, id, repeats),
        cost=None if cost is None else scores.column(table, cost),
    )
    scores.write_table(out, kept, format if out == "-" else None)
    share = f"kept {len(kept)} of {len(table)} rows ({one_in(len(table), len(kept))})"
    if cost is not None:
        share += f" that cost {scores.column(kept, cost).sum():.0f} of {scores.column(table, cost).sum():.0f}"
    typer.echo(f"{share}{spent}: {'standard output' if out == '-' else out}", err=True)


def _ids(table: Any, name: str, repeats: bool) -> Any:
    from .. import scores

    ids = scores.ids(table, name)
    if not repeats and (again := len(ids) - len(np.unique(ids))):
        what = f"{again} of {len(ids)} rows have the id of another, and so its uniform"
        raise InputError(f"{table.name}, column {name!r}: {what}; make ids unique, or give --repeats")
    return ids


def _select_folder(files: list[str], out: str, n: Any, budget: float | None, options: dict[str, Any]) -> None:
    """Select from a folder or from many files into a folder."""
    from ..engines import files as engine
    from ..engines.rows import find_sources, head
    from ..scores import FORMATS

    if out == "-":
        raise InputError("the rows of a folder go to a folder: -o kept/")
    file = Path(out).suffix[1:].lower() in (*FORMATS, "gz", "zst") and not out.endswith(("/", os.sep))
    if file and not Path(out).is_dir():
        raise InputError(f"-o names a folder for several files, got {out}; give -o kept/, or {out}/ if that is one")
    where: Any = files[0] if len(files) == 1 else files
    table = head(find_sources(where, **{key: options[key] for key in ("format", "delimiter", "header")})[0])
    options["column"] = find_column(table, options["column"], options["kind"])
    options["kind"] = find_kind(table, options["column"], options["kind"])
    done = engine.select(where, n, out=out, budget=budget, **options)
    said_bad(done.bad, done.rows + done.bad)
    cost = "" if done.units is None else f" that cost {done.units}"
    typer.echo(f"kept {done.kept} of {done.rows} rows ({one_in(done.rows, done.kept)}){cost}: {out}", err=True)


def _tilted(
    table: "Table",
    name: str,
    kind: str | None,
    *,
    beta: float | None,
    kl: float,
    group: list[str] | None,
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
    if find_kind(table, name, kind) != "reward":
        raise InputError("--kl is for rewards; say so with --reward")
    reward = scores.column(table, name)
    check_scores(table, name, reward, "reward")
    groups = np.zeros(len(reward), np.int64) if not group else scores.labels(table, group)[0]
    values, beta, spent = about(table, lambda: tilted_log_ratio(reward, groups, n, kl))
    more = "" if spent >= kl - 1e-9 * max(kl, 1.0) else f" (of {kl:g}, more cannot be spent)"
    return values, f", beta {beta:.4g}, KL {spent:.4g}{more}"


def _check_tilt(table: "Table", column: str | None, kind: str | None, beta: float | None) -> None:
    """Raise if rewards have neither a budget nor a temperature: here, unlike elsewhere, there are both."""
    if beta is None and find_kind(table, find_column(table, column, kind), kind) == "reward":
        raise InputError("say how far to tilt: --kl, a budget in nats, or --beta, the temperature of the reward")
