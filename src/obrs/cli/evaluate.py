"""`obrs evaluate`: what each budget bought, from real samples, proposals and their scores."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files import check_folder, check_not_input
from ..errors import InputError
from .app import Command, app, complain
from .columns import number

__all__ = ["evaluate"]

_SETS = "A .npy or .npz file, or a folder of PNG and JPEG."


@app.command(
    cls=Command,
    epilog="""
        obrs evaluate --real real.npy --fake fake.npy --log-ratio log_ratio.npy -o out/
        obrs evaluate --real real/ --fake fake/ --features gradients -o out/
    """,
)
def evaluate(
    real: Annotated[str, typer.Option(metavar="PATH", help=f"Samples of the target, held out. {_SETS}")],
    fake: Annotated[str, typer.Option(metavar="PATH", help=f"Proposals of the model as they come. {_SETS}")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where evaluate.json and evaluate.png go.")],
    log_ratio: Annotated[
        str | None, typer.Option(metavar="FILE", help="Log-ratios of the proposals, a .npy or .npz, in their order.")
    ] = None,
    budgets: Annotated[str, typer.Option(metavar="K,K,…", help="Proposals per kept sample.")] = "1,1.5,2,4,8",
    features: Annotated[
        str | None, typer.Option(metavar="NAME", help="Features of images; needed unless the files hold features.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(metavar="FILE", help="Labels of the proposals, for one constant per label.")
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
    from ..metrics.images import read_array

    if out.exists() and not out.is_dir():
        raise InputError(f"results go into a folder, {out} is a file; choose another --out")
    check_folder(out)
    for name in ("evaluate.json", "evaluate.png"):
        check_not_input(out / name, real, fake, log_ratio, groups, fitted_on)
    wanted = [number(part, "--budgets") for part in budgets.split(",")]
    range_ = None if pixels is None else [number(part, "--pixels") for part in pixels.split(",")]
    if range_ is not None and len(range_) != 2:
        raise InputError(f"--pixels must be two numbers with a comma between them, got {pixels!r}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = measure(
            real=real,
            fake=fake,
            log_ratio=None if log_ratio is None else read_array(log_ratio, prefer="log_ratio"),
            budgets=wanted,
            features=features,
            groups=None if groups is None else read_array(groups, prefer="labels"),
            fitted_on=None if fitted_on is None else _rows(fitted_on, range_),
            pixels=None if range_ is None else (range_[0], range_[1]),
            k=k,
            size=size,
            seed=seed,
        )
    for warning in caught:
        complain(f"warning: {warning.message}")
    typer.echo(str(table))
    typer.echo(f"wrote {table.save(out)}/evaluate.json and evaluate.png")


def _rows(path: str, pixels: Any) -> Any:
    from ..metrics.evaluate import samples

    return samples(path, pixels)
