"""`obrs evaluate`: what each budget bought, from real samples, proposals and their scores."""

import os
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files import check_folder, check_not_input
from ..errors import InputError
from . import options
from .app import Command, app, complain
from .options import advanced, option, parse_numbers

__all__ = ["evaluate"]

_SETS = "A .npy or .npz file, or a folder of PNG and JPEG."


@app.command(
    cls=Command,
    epilog="""
        obrs evaluate --real real.npy --fake fake.npy --scores log_ratio.npy --kind log_ratio -o out/
        obrs evaluate --real real/ --fake fake/ --features gradients --scores images.csv -o out/
    """,
)
def evaluate(
    real: Annotated[str, option("PATH", f"Samples of the target, held out. {_SETS}")],
    fake: Annotated[str, option("PATH", f"Proposals of the model as they come. {_SETS}")],
    out: Annotated[Path, option("DIR", "Where evaluate.json and evaluate.png go.", "--out", "-o")],
    scores: Annotated[str | None, option("FILE", "Scores of the proposals: a csv, jsonl, parquet, npy or npz.")] = None,
    column: options.Column = None,
    kind: options.Kind = None,
    beta: options.Beta = None,
    group: options.Group = None,
    shares: options.Shares = None,
    budget: options.Budgets = None,
    features: Annotated[
        str | None, option("NAME", "Features of images; needed unless the files hold features.")
    ] = None,
    id: Annotated[
        str, advanced("NAME", "The column of file names, if the proposals are a folder; default file.", "--id")
    ] = "file",
    rules: Annotated[str, advanced("NAME,…", "Rules to compare, of obrs, drs, topk; default obrs.")] = "obrs",
    fitted_on: Annotated[
        str | None, advanced("PATH", "The real samples that the ratio was fitted on: warns of overlap.")
    ] = None,
    pixels: Annotated[
        str | None, advanced("B,W", "Black and white of float images, such as 0,1; default -1,1.")
    ] = None,
    k: Annotated[int, advanced("K", "Neighbours of precision, recall, density and coverage; default 5.", min=1)] = 5,
    size: Annotated[int | None, advanced("N", "Fakes that recall and coverage are for.", min=1)] = None,
    seed: options.Seed = 0,
    skip_bad: options.SkipBad = False,
    delimiter: options.Delimiter = None,
    header: options.Header = None,
    format: options.Format = None,
) -> None:
    """Measure what each budget bought, with intervals."""
    from ..metrics.evaluate import evaluate as measure
    from ..metrics.evaluate import samples

    if out.exists() and not out.is_dir():
        raise InputError(f"results go into a folder, {out} is a file; choose another --out")
    check_folder(out)
    for name in ("evaluate.json", "evaluate.png"):
        check_not_input(out / name, real, fake, scores, fitted_on)
    ends = None if pixels is None else parse_numbers(pixels, "--pixels")
    if ends is not None and len(ends) != 2:
        raise InputError(f"--pixels must be two numbers with a comma between them, got {pixels!r}")
    black_and_white = None if ends is None else (ends[0], ends[1])
    budgets = parse_numbers(budget or "1,1.5,2,4,8", "--budget")
    given: dict[str, Any] = {}
    if scores is not None:
        reads: dict[str, Any] = {"skip_bad": skip_bad, "format": format, "delimiter": delimiter, "header": header}
        columns: dict[str, Any] = {"column": column, "kind": kind, "beta": beta, "group": group}
        given = _read(scores, fake, id, shares, **columns, **reads)
    elif column or kind or group or shares:
        raise InputError("--column, --kind, --group and --shares are about a file: give", give={"scores": None})
    fitted = None if fitted_on is None else samples(fitted_on, black_and_white)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = measure(
            real=real,
            fake=fake,
            **given,
            budgets=budgets,
            rules=[rule.strip() for rule in rules.split(",")],
            features=features,
            fitted_on=fitted[0] if isinstance(fitted, tuple) else fitted,
            pixels=black_and_white,
            k=k,
            size=size,
            seed=seed,
        )
    for warning in caught:
        complain(f"warning: {warning.message}")
    typer.echo(str(table))
    typer.echo(f"wrote {table.save(out)}/evaluate.json and evaluate.png")


def _read(file: str, fake: str, id: str, shares: str | None, **options: Any) -> dict[str, Any]:
    """Return log-ratios and groups of the proposals; those of a folder are found by the names of its files.

    A proposal without a score that is skipped has r = 0, and is never kept.
    """
    import numpy as np

    from ..metrics.images import match_names
    from .reading import group_labels, open_scores, read_shares

    is_folder, group = os.path.isdir(fake), options["group"]
    scores = open_scores([file], id=id if is_folder else None, **options)
    known = scores.sources[0].columns
    if is_folder and id not in known:
        raise InputError(
            f"{scores.title} has no column {id!r} with the names of the images of {fake}, by which scores are matched; "
            f"there are {', '.join(known)}: give",
            give={"id": None},
        )
    rows = scores.load(scores.find_reading())
    log_ratio = np.full(len(rows.good), -np.inf)
    log_ratio[rows.good] = rows.log_ratio
    parts = read_shares(shares, group, scores.options)
    labels, parts = (None, None) if group is None else group_labels(rows.batch, group, parts)
    if is_folder:
        codes, names = rows.batch.labels(id)
        order = match_names([names[code] for code in codes], fake, scores.title)
        log_ratio, labels = log_ratio[order], None if labels is None else labels[order]
    return {"log_ratio": log_ratio, "groups": labels, "shares": parts}
