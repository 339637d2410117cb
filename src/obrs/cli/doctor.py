"""`obrs doctor`: is a ratio good enough to reject with, from two files of scores."""

from typing import Annotated, Any

import numpy as np
import typer

from .._checks import check_budget
from .._files import check_not_input, check_out
from ..errors import InputError, ObrsError
from .app import Command, app
from .columns import (
    Column,
    Delimiter,
    Format,
    Header,
    Logit,
    LogRatio,
    Numbers,
    Probability,
    about,
    header_of,
    kind_of,
)

__all__ = ["doctor"]

Real = Annotated[str, typer.Argument(metavar="REAL", help="Scores of real samples: csv, jsonl, parquet, npy or npz.")]
Fake = Annotated[str, typer.Argument(metavar="FAKE", help="Scores of the model's samples.")]
Plot = Annotated[str | None, typer.Option(metavar="FILE.png", help="Draw the diagnosis as well.")]

_CRITICS = ("hinge", "wgan", "lsgan")  # whose outputs are no log-ratios


@app.command(
    cls=Command,
    epilog="""
        obrs doctor real.csv fake.csv --logit --budget 4
        obrs doctor real.csv fake.csv --hinge --budget 4 --plot doctor.png
    """,
)
def doctor(
    real: Real,
    fake: Fake,
    budget: Annotated[float, typer.Option(metavar="K", help="Proposals per kept sample.")],
    column: Column = None,
    log_ratio: LogRatio = False,
    logit: Logit = False,
    probability: Probability = False,
    hinge: Annotated[bool, typer.Option("--hinge", help="Scores are outputs of a hinge critic.")] = False,
    wgan: Annotated[bool, typer.Option("--wgan", help="Scores are outputs of a Wasserstein critic.")] = False,
    lsgan: Annotated[bool, typer.Option("--lsgan", help="Scores are outputs of a least-squares critic.")] = False,
    seed: Annotated[int, typer.Option(help="Decides the folds in which repairs are tried.")] = 0,
    delimiter: Delimiter = None,
    header: Header = None,
    format: Format = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a page.")] = False,
    plot: Plot = None,
) -> None:
    """Tell whether a ratio is good enough to reject with."""
    from ..ratios.doctor import diagnose

    if real == fake == "-":
        raise InputError("only one of the two files can be standard input")
    check_budget(budget)
    if plot is not None:
        check_out(plot)
        check_not_input(plot, real, fake)
    ratios = {"log_ratio": log_ratio, "logit": logit, "probability": probability}
    given = kind_of(**ratios, hinge=hinge, wgan=wgan, lsgan=lsgan)
    kind = "log_ratio" if given in _CRITICS else given
    said = given if given in _CRITICS else "log_ratio" if given else None
    own = [header_of(file, header, format) for file in (real, fake)]
    own = own if any(one is not None for one in own) else [header, header]  # of neither: that is refused
    both = zip((real, fake), own, strict=True)
    values = [_read(file, column, kind, format=format, delimiter=delimiter, header=one) for file, one in both]
    try:
        found = diagnose(values[0], values[1], budget, kind=said, seed=seed)
    except ObrsError as error:
        raise InputError(f"{real}, {fake}: {error}") from error
    if plot is not None:
        from ..ratios.plot import plot_diagnosis

        try:
            plot_diagnosis(found).savefig(plot, dpi=150)
        except ValueError as error:  # matplotlib's word for an extension that it does not know
            raise InputError(f"--plot {plot}: {error}") from error
    typer.echo(found.to_json() if as_json else found.page(command=True))


def _read(file: str, column: str | None, kind: str | None, **options: Any) -> Numbers:
    """Return log-ratios in which NaN and infinities stay: to count them is what the doctor is for."""
    from ..critics import to_log_ratio
    from ..files import Reading
    from ..scores import find_sources, read_columns

    sources = find_sources(file, **options)
    known = sources[0].columns
    if kind is None and (column == "reward" or (column is None and "reward" in known and "log_ratio" not in known)):
        raise InputError(f"{file}: a reward has no real samples to check it with; the doctor needs log-ratios")
    reading = Reading.find(sources, column, kind)
    values = read_columns(sources, [reading.column]).floats(reading.column)
    infinite = values == (1 if reading.kind == "probability" else np.inf)  # the logit of 1 is +inf
    fine = ~(infinite | np.isnan(values) | (values == np.inf))
    log_ratio = np.where(infinite, np.inf, np.nan)
    if fine.any():
        log_ratio[fine] = about(file, lambda: to_log_ratio(values[fine], reading.kind))
    return log_ratio
