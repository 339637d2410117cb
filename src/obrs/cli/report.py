"""`obrs report`: one page with a slider over the budget, from a file of scores."""

import os
from dataclasses import replace
from math import exp
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from .._checks import check_budget
from .._files import check_not_input
from ..critics import check_scores
from ..errors import InputError
from .app import Command, app
from .columns import (
    Beta,
    Column,
    Format,
    Header,
    Logit,
    LogRatio,
    Numbers,
    Probability,
    Reward,
    about,
    header_of,
    kind_of,
    log_ratios,
    short,
)
from .groups import GroupColumns

if TYPE_CHECKING:
    from ..scores import Table

__all__ = ["report"]

_File = Annotated[
    str, typer.Argument(metavar="FILE", help="A csv, tsv, jsonl, parquet, npy or npz; - is standard input.")
]
_SHOW = "The column to show of each sample: texts, or paths of images, which lie below the folder of FILE."
_FROM = "The folder below which images lie, where their paths begin; by default that of FILE."


@app.command(
    cls=Command,
    epilog="""
        obrs report scores.csv --logit -o report.html
        obrs report completions.jsonl --reward --beta 0.5 --show text -o report.html
    """,
)
def report(
    file: _File,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE.html", help="The page.")],
    column: Column = None,
    log_ratio: LogRatio = False,
    logit: Logit = False,
    probability: Probability = False,
    reward: Reward = False,
    beta: Beta = None,
    show: Annotated[str | None, typer.Option(metavar="NAME", help=_SHOW)] = None,
    images_from: Annotated[str | None, typer.Option(metavar="FOLDER", help=_FROM)] = None,
    group: GroupColumns = None,
    real: Annotated[
        str | None, typer.Option(metavar="FILE", help="Scores of real samples: shows what the doctor finds.")
    ] = None,
    budget: Annotated[float | None, typer.Option(metavar="K", help="Where the slider starts; 4 by default.")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Samples wanted; shows what they cost.")] = None,
    seconds_per_proposal: Annotated[
        float | None, typer.Option(metavar="S", help="Shows the time that samples take.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The title; by default the name of FILE.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="As for `obrs.accept`: decides which samples are kept.")] = 0,
    header: Header = None,
    format: Format = None,
) -> None:
    """Write one page that shows what each budget buys."""
    from .. import scores
    from ..html.report import make_page, of_log_ratio
    from ..html.template import page_path, write_page

    target = page_path(out)
    if budget is not None:
        check_budget(budget)
    if Path(file).is_dir():
        file = _file_of(Path(file))
    check_not_input(target, file, real)
    given = kind_of(log_ratio=log_ratio, logit=logit, probability=probability, reward=reward)
    table = scores.read_table(file, format, header=header)
    name, kind, values = log_ratios(table, column, given, beta)
    items = None if show is None else table[show]
    labels = _labels(table, group) if group else None
    source = replace(about(table, lambda: of_log_ratio(values, items, seed)), scaled=kind != "reward")
    checked = None if real is None else _real(real, name, kind, header)
    facts = [f"{Path(table.name).name}, column {name!r} read as {kind}"]
    if doubt := check_scores(values, kind):
        facts.append(f"warning: {doubt}")
    if kind != "reward" and abs(source.profile.log_mean_ratio) < 20:
        facts.append(f"E[r] = {short(exp(source.profile.log_mean_ratio))}")
    page = about(
        table,
        lambda: make_page(
            source,
            groups=labels,
            real=checked,
            budget=budget,
            n=n,
            seconds_per_proposal=seconds_per_proposal,
            title=title or f"{Path(table.name).name}: what each budget buys",
            facts=facts,
            code=_code(file, name, kind, beta, group, seed, header),
            folder=images_from or (Path(file).parent if file != "-" else Path()),
        ),
    )
    write_page(target, page)
    typer.echo(f"{target}: {len(values):,} scores, {len(page.encode()) / 1000:.0f} KB, opens in any browser")


def _file_of(folder: Path) -> str:
    """Return the one file of scores of a folder."""
    from ..scores import FORMATS

    found = sorted(path for path in folder.iterdir() if path.suffix.lower().removeprefix(".") in FORMATS)
    if not found:
        kinds = ", ".join(f".{kind}" for kind in FORMATS)
        raise InputError(f"{folder} has no file of scores ({kinds}); score its samples first, or name the file")
    if len(found) > 1:
        raise InputError(f"{folder} has {len(found)} files of scores, such as {found[0].name}; name the one to show")
    return str(found[0])


def _labels(table: "Table", group: list[str]) -> Numbers:
    from .. import scores

    codes, names = scores.labels(table, group)
    return np.asarray(names)[codes]


def _real(file: str, column: str, kind: str, header: bool | None) -> Numbers:
    """Return the log-ratios of real samples: of a column of the same name, or the only one, and of the same kind."""
    from .. import scores

    if kind == "reward":
        raise InputError("--real: a reward has no real samples to check it with; the doctor needs log-ratios")
    table = scores.read_table(file, header=header_of(file, header))
    name = column if column in table.columns else scores.score_column(table, kind)
    return log_ratios(table, name or column, kind, None)[2]


def _code(
    file: str, name: str, kind: str, beta: float | None, group: list[str] | None, seed: int, header: bool | None
) -> list[tuple[str, list[str]]]:
    """Return what to copy, in parts between which the budget stands: commands, and Python that keeps the same rows."""
    suffix = "csv" if file == "-" else os.path.splitext(file)[1].removeprefix(".")
    options = f"{quote(file)} --column {quote(name)} --{kind.replace('_', '-')}"
    if beta is not None:
        options += f" --beta {beta:g}"
    if header is not None:
        options += " --header" if header else " --no-header"
    rest = f" --seed {seed} -o kept.{suffix}"
    blocks = [
        ("command line: exactly 1 row in K, by the same probabilities", [f"obrs select {options} --budget ", rest])
    ]
    if group:
        by = " ".join(f"--group {quote(column)}" for column in group)
        each = f"obrs select {options} {by} --budget "
        blocks.append(("command line, with one constant per group", [each, rest]))
    named = "" if header is None else f", header={header}"
    read = f"obrs.scores.column(obrs.scores.read_table({file!r}{named}), {name!r})"
    if kind != "log_ratio":
        read = f'obrs.critics.to_log_ratio({read}, "{kind}"{"" if beta is None else f", beta={beta!r}"})'
    python = [
        f"import numpy as np, obrs, obrs.critics, obrs.scores\nlog_ratio = {read}\n"
        "kept = np.flatnonzero(obrs.accept(obrs.Budgeted.fit(log_ratio, ",
        f")(log_ratio), np.arange(len(log_ratio)), seed={seed}))",
    ]
    return [*blocks, ("Python: the rows that this page keeps", python)]
