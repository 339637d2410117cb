"""`obrs evaluate`: what each budget bought, from real samples, proposals and their scores."""

import os
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files import check_folder, check_not_input
from ..errors import InputError
from .app import Command, app, complain
from .columns import Beta, Column, Logit, LogRatio, Probability, Reward, kind_of, number, read_scores
from .groups import Group, Shares, group_labels, read_shares

__all__ = ["evaluate"]

_SETS = "A .npy or .npz file, or a folder of PNG and JPEG."


@app.command(
    cls=Command,
    epilog="""
        obrs evaluate --real real.npy --fake fake.npy --scores log_ratio.npy --log-ratio -o out/
        obrs evaluate --real real/ --fake fake/ --features gradients --scores images.csv -o out/
    """,
)
def evaluate(
    real: Annotated[str, typer.Option(metavar="PATH", help=f"Samples of the target, held out. {_SETS}")],
    fake: Annotated[str, typer.Option(metavar="PATH", help=f"Proposals of the model as they come. {_SETS}")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where evaluate.json and evaluate.png go.")],
    scores: Annotated[
        str | None, typer.Option(metavar="FILE", help="Scores of the proposals: a csv, jsonl, parquet, npy or npz.")
    ] = None,
    column: Column = None,
    log_ratio: LogRatio = False,
    logit: Logit = False,
    probability: Probability = False,
    reward: Reward = False,
    beta: Beta = None,
    file: Annotated[
        str, typer.Option(metavar="NAME", help="The column of file names, if the proposals are a folder.")
    ] = "file",
    group: Group = None,
    shares: Shares = None,
    budgets: Annotated[str, typer.Option(metavar="K,K,…", help="Proposals per kept sample.")] = "1,1.5,2,4,8",
    rules: Annotated[str, typer.Option(metavar="NAME,…", help="Rules to compare: obrs, drs, topk.")] = "obrs",
    features: Annotated[
        str | None, typer.Option(metavar="NAME", help="Features of images; needed unless the files hold features.")
    ] = None,
    fitted_on: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The real samples that the ratio was fitted on: warns of overlap."),
    ] = None,
    pixels: Annotated[
        str | None, typer.Option(metavar="B,W", help="Black and white of float images, such as 0,1; -1,1 by default.")
    ] = None,
    k: Annotated[int, typer.Option(min=1, help="Neighbours of precision, recall, density and coverage.")] = 5,
    size: Annotated[int | None, typer.Option(min=1, help="Fakes that recall and coverage are for.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
) -> None:
    """Measure what each budget bought, with intervals."""
    from ..metrics.evaluate import evaluate as measure
    from ..metrics.evaluate import samples

    if out.exists() and not out.is_dir():
        raise InputError(f"results go into a folder, {out} is a file; choose another --out")
    check_folder(out)
    for name in ("evaluate.json", "evaluate.png"):
        check_not_input(out / name, real, fake, scores, fitted_on)
    wanted = [number(part, "--budgets") for part in budgets.split(",")]
    ends = None if pixels is None else [number(part, "--pixels") for part in pixels.split(",")]
    if ends is not None and len(ends) != 2:
        raise InputError(f"--pixels must be two numbers with a comma between them, got {pixels!r}")
    black_and_white = None if ends is None else (ends[0], ends[1])
    kind = kind_of(log_ratio=log_ratio, logit=logit, probability=probability, reward=reward)
    given: dict[str, Any] = {}
    if scores is not None:
        how: dict[str, Any] = {"column": column, "kind": kind, "beta": beta}
        given = _read(scores, fake, file, group, read_shares(shares, group, None), **how)
    elif column or kind or group or shares:
        raise InputError("--column, the kinds of scores, --group and --shares are about a file: give --scores")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = measure(
            real=real,
            fake=fake,
            **given,
            budgets=wanted,
            rules=[rule.strip() for rule in rules.split(",")],
            features=features,
            fitted_on=None if fitted_on is None else _rows(samples(fitted_on, black_and_white)),
            pixels=black_and_white,
            k=k,
            size=size,
            seed=seed,
        )
    for warning in caught:
        complain(f"warning: {warning.message}")
    typer.echo(str(table))
    typer.echo(f"wrote {table.save(out)}/evaluate.json and evaluate.png")


def _read(scores: str, fake: str, file: str, group: str | None, shares: Any, **how: Any) -> dict[str, Any]:
    """Return log-ratios and groups of the proposals; those of a folder are found by the names of its files."""
    from ..files import Reading
    from ..metrics.images import match_names
    from ..scores import find_sources

    sources = find_sources(scores)
    is_folder = os.path.isdir(fake)
    known = sources[0].columns
    if is_folder and file not in known:
        raise InputError(
            f"{sources[0].shown} has no column {file!r} with the names of the images of {fake}, by which scores are "
            f"matched; there are {', '.join(known)}: name one with --file"
        )
    reading = Reading.find(sources, group=group, id=file if is_folder else None, **how)
    batch, _, log_ratio = read_scores(sources, reading)
    labels, shares = (None, None) if group is None else group_labels(batch, group, shares)
    if is_folder:
        codes, names = batch.labels(file)
        order = match_names([names[code] for code in codes], fake, sources[0].shown)
        log_ratio, labels = log_ratio[order], None if labels is None else labels[order]
    return {"log_ratio": log_ratio, "groups": labels, "shares": shares}


def _rows(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found
