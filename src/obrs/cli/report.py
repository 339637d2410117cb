"""`obrs report`: one page with a slider over the budget, from a file of scores."""

from dataclasses import replace
from math import exp
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

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
    Delimiter,
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
    read_scores,
    short,
)
from .groups import Group

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
    group: Group = None,
    real: Annotated[
        str | None, typer.Option(metavar="FILE", help="Scores of real samples: shows what the doctor finds.")
    ] = None,
    budget: Annotated[float | None, typer.Option(metavar="K", help="Where the slider starts; 4 by default.")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Samples wanted; shows what they cost.")] = None,
    seconds_per_proposal: Annotated[
        float | None, typer.Option(metavar="S", help="Shows the time that samples take.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The title; by default the name of FILE.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed keeps the same samples.")] = 0,
    delimiter: Delimiter = None,
    header: Header = None,
    format: Format = None,
) -> None:
    """Write one page that shows what each budget buys."""
    from ..files import Reading
    from ..html.report import make_page, of_log_ratio
    from ..html.template import page_path, write_page
    from ..scores import find_sources

    target = page_path(out)
    if budget is not None:
        check_budget(budget)
    options: dict[str, Any] = {"format": format, "delimiter": delimiter, "header": header}
    sources = find_sources(file, **options)
    if len(sources) > 1:
        raise InputError(f"{file} has {len(sources)} files of scores, such as {sources[0].name}; name the one to show")
    check_not_input(target, sources[0].path, real)
    kind = kind_of(log_ratio=log_ratio, logit=logit, probability=probability, reward=reward)
    reading = Reading.find(sources, column, kind, beta=beta, group=group)
    batch, _, values = read_scores(sources, reading, show)
    name, labels = sources[0].shown, None
    if group is not None:
        codes, names = batch.labels(group)
        labels = np.asarray(names)[codes]
    items = None if show is None else batch.columns[show]
    source = about(name, lambda: of_log_ratio(values, items, seed, batch.ids(None)))
    facts = [f"{Path(name).name}, column {reading.column!r} read as {reading.kind}"]
    if doubt := check_scores(batch.numbers(reading.column), reading.kind):
        facts.append(f"warning: {doubt}")
    if reading.kind != "reward" and abs(source.profile.log_mean_ratio) < 20:
        facts.append(f"E[r] = {short(exp(source.profile.log_mean_ratio))}")
    checked = None if real is None else _read_real(real, reading, header)
    page = about(
        name,
        lambda: make_page(
            replace(source, scaled=reading.kind != "reward"),
            groups=labels,
            real=checked,
            budget=budget,
            n=n,
            seconds_per_proposal=seconds_per_proposal,
            title=title or f"{Path(name).name}: what each budget buys",
            facts=facts,
            code=_code(file, sources[0].format, reading, seed, options),
            folder=images_from or (Path(sources[0].path).parent if file != "-" else Path()),
        ),
    )
    write_page(target, page)
    typer.echo(f"{target}: {len(values):,} scores, {len(page.encode()) / 1000:.0f} KB, opens in any browser")


def _read_real(file: str, reading: Any, header: bool | None) -> Numbers:
    """Return the log-ratios of real samples: of a column of the same name, or the only one, and of the same kind."""
    from ..files import Reading
    from ..scores import find_sources

    if reading.kind == "reward":
        raise InputError("--real: a reward has no real samples to check it with; the doctor needs log-ratios")
    sources = find_sources(file, header=header_of(file, header))
    column = reading.column if reading.column in sources[0].columns else None
    return read_scores(sources, Reading.find(sources, column, reading.kind))[2]


def _code(file: str, format: str, reading: Any, seed: int, options: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return what to copy, in parts between which the budget stands."""
    command = f"obrs select {quote(file)} --column {quote(reading.column)} --{reading.kind.replace('_', '-')}"
    python = {"column": reading.column, "kind": reading.kind}
    if reading.beta is not None:
        command, python = f"{command} --beta {reading.beta!r}", python | {"beta": reading.beta}
    for key, value in options.items():
        if value is not None:
            python[key] = value
            command += f" --{key} {quote(value)}" if key != "header" else " --header" if value else " --no-header"
    rest = f" --seed {seed} -o kept.{format}"
    blocks = [("command line: the rows that this page keeps, exactly 1 in K", [f"{command} --budget ", rest])]
    if reading.group is not None:
        each = f"{command} --group {quote(reading.group)} --budget "
        blocks.append(("command line, with one constant per group", [each, rest]))
    given = ", ".join(f"{key}={value!r}" for key, value in python.items())
    select = [
        f"import obrs\nlog_ratio = obrs.files.read({file!r}, {given})\n"
        "kept = obrs.select(log_ratio, int(len(log_ratio) / ",
        f"), seed={seed})",
    ]
    return [*blocks, ("Python: as many rows, by the same probabilities", select)]
