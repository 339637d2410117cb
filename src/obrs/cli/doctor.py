"""`obrs doctor`: is a ratio good enough to reject with, from two files of scores."""

from typing import Annotated, Any

import typer

from .._files import check_not_input, check_out
from .._text import unknown_name
from ..errors import InputError
from .options import SCORES, command, option

__all__ = ["doctor"]

_CRITICS = ("hinge", "wgan", "lsgan")  # whose outputs are no log-ratios
_KINDS = ("log_ratio", "logit", "probability", *_CRITICS)
_REWARD = "a reward has no real samples to check it with; the doctor needs log-ratios"


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
    **given: Any,
) -> None:
    """Tell whether a ratio is good enough to reject with."""
    from .._checks import check_budget
    from ..ratios.doctor import diagnose
    from ..ratios.plot import plot_diagnosis
    from .reading import header_of, name_in_errors, save_figure

    check_budget(budget)
    kind = kind and kind.replace("-", "_")
    if kind == "reward":
        raise InputError(_REWARD)
    if kind is not None and kind not in _KINDS:
        raise unknown_name(kind, _KINDS, "kind")
    if plot is not None:
        check_out(plot)
        check_not_input(plot, real, fake)
    seed, header = given.pop("seed"), given.pop("header")
    headers = [header_of(file, header) for file in (real, fake)]
    if all(headers):
        headers = [header, header]  # of neither: that is refused
    known, meaning = ("log_ratio", kind) if kind in _CRITICS else (kind, kind and "log_ratio")
    values = [_read(file, kind=known, header=own, **given) for file, own in zip((real, fake), headers, strict=True)]
    with name_in_errors(f"{real}, {fake}"):
        diagnosis = diagnose(values[0], values[1], budget, kind=meaning, seed=seed)
    save_figure(lambda: plot_diagnosis(diagnosis), plot)
    typer.echo(diagnosis.to_json() if as_json else diagnosis.page(command=True))


def _read(file: str, **given: Any) -> Any:
    """Return log-ratios in which NaN and infinities stay, unless they are skipped: the doctor counts them."""
    import numpy as np

    from ..critics import to_log_ratio
    from ..scores import read_columns
    from .reading import name_in_errors, open_scores, report_bad

    scores = open_scores([file], **given)
    column, known = given["column"], scores.sources[0].columns
    is_reward = column == "reward" or (column is None and "reward" in known and "log_ratio" not in known)
    if given["kind"] is None and is_reward:
        raise InputError(f"{file}: {_REWARD}")
    reading = scores.reading
    values = read_columns(scores.sources, [reading.column]).floats(reading.column)
    infinite = values == (1 if reading.kind == "probability" else np.inf)  # the logit of 1 is +inf
    fine = ~(infinite | np.isnan(values) | (values == np.inf))
    log_ratio = np.where(infinite, np.inf, np.nan)
    if fine.any():
        with name_in_errors(file):
            log_ratio[fine] = to_log_ratio(values[fine], reading.kind)
    if reading.skip_bad:
        report_bad(int(np.sum(~fine)), len(fine))
    return log_ratio[fine] if reading.skip_bad else log_ratio
