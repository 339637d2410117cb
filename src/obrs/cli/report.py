"""`obrs report`: one page with a slider over the budget, from a file of scores."""

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from .._files import check_not_input
from .._text import name_in_errors
from ..errors import InputError
from .app import SCORES, as_option, command, option, parse_amount, rare_option
from .plan import describe_mean

__all__ = ["report"]

_SHOW = "The column to show of each sample: texts, or paths of images below the folder of FILE."


@command(
    """
        obrs report scores.csv --kind logit -o report.html
        obrs report scores.csv --kind logit --show text --compare other --group class -o report.html
        obrs report completions.jsonl --kind reward --beta 0.5 --show text -o report.html
    """,
    "column kind beta group",
    f"kl id cost seed {SCORES}",
)
def report(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A csv, tsv, jsonl, parquet, npy or npz.")],
    out: Annotated[str, option("FILE.html", "The page.", "--out", "-o")],
    budget: Annotated[float | None, option("K", "Where the slider starts; default 4.")] = None,
    show: Annotated[str | None, option("NAME", _SHOW)] = None,
    compare: Annotated[str | None, option("NAME", "Other scores of this kind: shows what both keep.")] = None,
    real: Annotated[str | None, option("FILE", "Scores of real samples: shows what the doctor finds.")] = None,
    n: Annotated[str | None, rare_option("N", "Rows to keep, 250 or 10%: the slider starts there.", "-n")] = None,
    images_from: Annotated[str | None, rare_option("FOLDER", "Where images lie; default the folder of FILE.")] = None,
    title: Annotated[str | None, rare_option("TEXT", "The title; default the name of FILE.")] = None,
    **shared: Any,
) -> None:
    """Write one page that shows what each budget buys.

    With --group, 1 in K of each group is kept, as by select.
    """
    import numpy as np

    from .._checks import check_budget
    from ..html.page import page_path
    from ..html.report import Source
    from ..html.report import report as write_report
    from ..profile import Profile
    from .reading import group_labels, open_scores

    target = page_path(out)
    if budget is not None:
        check_budget(budget)
    number, share = parse_amount(n, shared["group"])
    if shared["group"] and (number or shared["cost"] or shared["kl"] is not None):
        plan = "obrs plan shows what -n keeps, and the --beta that --kl comes to"
        raise InputError(f"a page by groups keeps 1 in K of each: leave out --cost, -n and --kl, give --budget; {plan}")
    scores = open_scores([file], number, **shared)
    if len(scores.sources) > 1:
        first = scores.sources[0].name
        raise InputError(f"{file} has {len(scores.sources)} files of scores, such as {first}; name the one to show")
    check_not_input(target, scores.sources[0].path, real)
    reading, name, rows = scores.schema, scores.title, scores.load(show, compare)
    batch, good = rows.batch, np.flatnonzero(rows.good)
    labels = None if reading.group is None else group_labels(batch, reading.group)[0][good]
    keys, cost = batch.ids(reading.id)[good], None if reading.cost is None else batch.numbers(reading.cost)[good]
    cells = {key: batch.columns[key].take(good).to_pylist() for key in (show, reading.id) if key is not None}
    with name_in_errors(name):
        profile = Profile(rows.log_ratio, cost, sign=np.sign(rows.score) if reading.kind == "weight" else None)
    other = None
    if compare is not None:
        values = replace(reading, column=compare).scores(batch)[1][good]
        other = compare, Source(Profile(values, cost), reading.seed, keys, cost)
    facts = [f"{Path(name).name}, column {reading.column!r} read as {reading.kind}{scores.note}"]
    facts += [f"warning: {rows.doubt}"] if rows.doubt else []
    source = Source(
        profile,
        reading.seed,
        keys,
        cost,
        names=None if reading.id is None else cells[reading.id],
        name=reading.id or "index",
        samples=show and cells[show],
        folder=images_from or Path(scores.sources[0].path).parent,
        reward=reading.kind == "reward",
        other=other,
        facts=facts + describe_mean(profile, reading, len(good)),
        code=_code(file, scores),
    )
    if number is not None:
        total = len(good) if cost is None else int(cost.sum())
        share = total / number * (1 - 2**-50 if total % number else 1)  # so that rounding does not lose a row
    with name_in_errors(name):
        page = write_report(
            source,
            out=target,
            groups=labels,
            real=None if real is None else _read_real(real, reading, shared["header"]),
            budget=budget or (share if share and share > 1 else None),
            n=number,
            title=title or f"{Path(name).name}: what each budget buys",
        )
    typer.echo(f"{target}: {len(good):,} scores, {page.stat().st_size / 1000:.0f} KB, opens in any browser")


def _read_real(file: str, reading: Any, header: bool) -> Any:
    """Return the log-ratios of real samples, from the column of the same name or the only one, and of the same kind."""
    from .reading import open_scores

    if reading.kind == "reward":
        raise InputError("--real: a reward has no real samples to check it with; the doctor needs log-ratios")
    scores = open_scores([file], header=header, kind=reading.kind)
    column = reading.column if reading.column in scores.sources[0].columns else None
    return replace(scores, columns=scores.columns | {"column": column}).load().log_ratio


def _code(file: str, scores: Any) -> list[tuple[str, list[str]]]:
    """Return the code to copy, in parts; the page puts the budget between them."""
    facts = {**scores.columns, **scores.options}
    facts |= {"column": scores.schema.column, "kind": scores.schema.kind}
    seed, facts["header"], facts["skip_bad"] = facts.pop("seed"), facts["header"] and None, facts["skip_bad"] or None
    words = [as_option(name, value) for name, value in facts.items() if value is not None]
    kind = scores.sources[0].format
    parts = [f"obrs select {quote(file)} {' '.join(words)} --budget ", f" --seed {seed} -o kept.{kind}"]
    command = [("command line: the rows that this page keeps, exactly 1 in K", parts)]
    command = [] if kind in ("npy", "npz") else command  # whose rows select does not write
    if facts["group"] or facts["skip_bad"]:
        return command
    known = {name: facts[name] for name in ("column", "kind", "beta", "delimiter", "header")}
    python = ", ".join(f"{name}={value!r}" for name, value in known.items() if value is not None)
    read = f"import obrs\nlog_ratio = obrs.files.read({file!r}, {python})\n"
    parts = [f"{read}kept = obrs.select(log_ratio, int(len(log_ratio) / ", f"), seed={seed})"]
    return [*command, ("Python: as many rows, by the same probabilities", parts)]
