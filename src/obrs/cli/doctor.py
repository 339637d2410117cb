"""`obrs doctor`: is a ratio good enough to reject with, from two files of scores."""

from typing import Annotated, Any

import typer

from .._files import check_not_input, check_out
from .._text import name_in_errors, unknown_name
from ..errors import InputError
from .app import SCORES, command, option

__all__ = ["doctor"]

_CRITICS = ("hinge", "wgan", "lsgan")  # whose outputs are no log-ratios
_KINDS = ("log_ratio", "logit", "probability", *_CRITICS)


@command(
    """
        obrs doctor real.csv fake.csv --kind logit --budget 4
        obrs doctor real.csv fake.csv --kind hinge --budget 4 --plot doctor.png
    """,
    "column",
    f"seed {SCORES}",
)
def doctor(
    real: Annotated[str, typer.Argument(metavar="REAL", help="Scores of real samples: csv, jsonl, parquet, npy, npz.")],
    fake: Annotated[str, typer.Argument(metavar="FAKE", help="Scores of the model's samples.")],
    budget: Annotated[float, option("K", "Proposals per kept sample.")],
    kind: Annotated[str | None, option("KIND", f"What the scores are: {', '.join(_KINDS)}.")] = None,
    plot: Annotated[str | None, option("FILE.png", "Draw the diagnosis as well.")] = None,
    as_json: Annotated[bool, option(None, "Print JSON instead of a page.", "--json")] = False,
    **shared: Any,
) -> None:
    """Tell whether a ratio is good enough to reject with."""
    from .._checks import check_budget
    from ..ratios.doctor import diagnose
    from ..ratios.plot import plot_diagnosis
    from .reading import open_scores, save_figure

    check_budget(budget)
    kind = kind and kind.replace("-", "_")
    if kind not in (*_KINDS, "reward", None):
        raise unknown_name(kind, _KINDS, "kind")
    if plot is not None:
        check_out(plot)
        check_not_input(plot, real, fake)
    seed = shared.pop("seed")
    known, meaning = ("log_ratio", kind) if kind in _CRITICS else (kind, kind and "log_ratio")
    try:
        values = [open_scores([file], kind=known, **shared).load().log_ratio for file in (real, fake)]
    except InputError as error:
        if "beta" in error.give:
            raise InputError("a reward has no real samples to check it with; the doctor needs log-ratios") from error
        raise
    with name_in_errors(f"{real}, {fake}"):
        diagnosis = diagnose(values[0], values[1], budget, kind=meaning, seed=seed)
    save_figure(lambda: plot_diagnosis(diagnosis), plot)
    typer.echo(diagnosis.to_json() if as_json else diagnosis.page(command=True))
