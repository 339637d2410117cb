"""`obrs evaluate`: what each budget bought, from real samples, proposals and their scores."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from .._text import name_in_errors
from ..errors import InputError
from .app import SCORES, SETS, command, option, parse_ends, parse_numbers, rare_option

__all__ = ["evaluate"]


@command(
    """
        obrs evaluate --real real.npy --fake fake.npy --scores log_ratio.npy --kind log_ratio -o out/
        obrs evaluate --real real/ --fake fake/ --features gradients --scores images.csv -o out/
    """,
    "column kind beta group shares",
    f"seed {SCORES}",
)
def evaluate(
    real: Annotated[str, option("PATH", f"Samples of the target, held out. {SETS}")],
    fake: Annotated[str, option("PATH", f"Proposals of the model as they come. {SETS}")],
    out: Annotated[Path, option("DIR", "Where evaluate.json and evaluate.png go.", "--out", "-o")],
    scores: Annotated[str | None, option("FILE", "Scores of the proposals: a csv, jsonl, parquet, npy or npz.")] = None,
    budget: Annotated[list[str] | None, option("K,K,…", "Proposals per kept sample.", "--budget")] = None,
    features: Annotated[str | None, option("NAME", "Features of images; files may also hold features.")] = None,
    id: Annotated[str, rare_option("NAME", "Names of files in scores of a folder; default file.", "--id")] = "file",
    rules: Annotated[str, rare_option("NAME,…", "Rules to compare, of obrs, drs, topk; default obrs.")] = "obrs",
    fitted_on: Annotated[str | None, rare_option("PATH", "Real samples of the fit: warns of overlap.")] = None,
    pixels: Annotated[str | None, rare_option("B,W", "Black and white of float images; default -1,1.")] = None,
    **shared: Any,
) -> None:
    """Measure what each budget bought, with intervals."""
    from ..metrics.evaluate import evaluate as measure
    from ..metrics.evaluate import read_samples
    from .reading import check_results

    check_results(out, ("evaluate.json", "evaluate.png"), real, fake, scores, fitted_on)
    ends, seed = parse_ends(pixels), shared.pop("seed")
    budgets = parse_numbers(budget or "1,1.5,2,4,8", "--budget")
    if scores is None and any(shared[name] for name in ("column", "kind", "group", "shares")):
        raise InputError("--column, --kind, --group and --shares are about a file: give", give={"scores": None})
    fitted = None if fitted_on is None else read_samples(fitted_on, ends)
    table = measure(
        real=real,
        fake=fake,
        **({} if scores is None else _read(scores, fake, id, **shared)),
        budgets=budgets,
        rules=[rule.strip() for rule in rules.split(",")],
        features=features,
        fitted_on=fitted[0] if isinstance(fitted, tuple) else fitted,
        pixels=ends,
        seed=seed,
    )
    typer.echo(str(table))
    typer.echo(f"wrote {table.save(out)}/evaluate.json and evaluate.png")


def _read(file: str, fake: str, id: str, shares: str | None, **shared: Any) -> dict[str, Any]:
    """Return log-ratios and groups of the proposals; those of a folder are matched by file name.

    A proposal without a score that is skipped has r = 0, and is never kept.
    """
    import numpy as np

    from ..metrics.images import match_names
    from .reading import group_labels, open_scores, read_shares

    is_folder, group = os.path.isdir(fake), shared["group"]
    scores = open_scores([file], id=id if is_folder else None, **shared)
    with name_in_errors(f"the column --id must have the names of the images of {fake}"):
        scores.sources[0].check_columns([id] if is_folder else [])
    rows = scores.load()
    log_ratio = np.full(len(rows.good), -np.inf)
    log_ratio[rows.good] = rows.log_ratio
    parts = read_shares(shares, group, **scores.options)
    labels, parts = (None, None) if group is None else group_labels(rows.batch, group, parts)
    if is_folder:
        codes, names = rows.batch.labels(id)
        order = match_names([names[code] for code in codes], fake, scores.title)
        log_ratio, labels = log_ratio[order], None if labels is None else labels[order]
    return {"log_ratio": log_ratio, "groups": labels, "shares": parts}
