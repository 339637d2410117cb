"""`obrs reproduce`: run a figure or table of the paper."""

from pathlib import Path
from typing import Annotated

import typer

from .._rank import rank
from .._tables import text_table
from ..errors import InputError, Interrupted
from .app import Command, app, complain
from .fields import check_first, read_fields

__all__ = ["reproduce"]

_NEXT = """With your own model: kept = obrs.sample(propose, log_ratio, 2500, budget=2.6), see docs/quickstart.md.
Is its score good enough to reject with? obrs doctor real.csv fake.csv --logit --budget 2.6 tells."""


@app.command(
    cls=Command,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="""
        obrs reproduce list
        obrs reproduce table-2 --report
        obrs reproduce figure-1d --budget 3 --out out/
    """,
)
def reproduce(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="An experiment, or `list` to see them all.")],
    preset: Annotated[
        str | None, typer.Option(help="smoke (seconds), default or cpu (as in results/), or paper.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="S", help="Another seed.")] = None,
    out: Annotated[str, typer.Option(metavar="DIR", help="The folder for NAME.json and NAME.png.")] = "out",
    report: Annotated[bool, typer.Option("--report", help="Also write NAME.html, all of it in one page.")] = False,
) -> None:
    """Reproduce a figure or table of the paper.

    --FIELD VALUE after NAME changes a field of its configuration, as in --budget 3 or --budgets 1,2,4.
    """
    from .. import experiments
    from ..html.template import write_page

    check_first(name, "NAME")
    changes = read_fields(context.args)
    for field, value in changes.items():
        if value is None:
            raise InputError(f"--{field} needs a value")
    if name == "list":
        if changes:
            raise InputError("`obrs reproduce list` takes no fields")
        typer.echo(_listed())
        return
    if seed is not None:
        changes["seed"] = str(seed)
    try:
        json_file, png_file = experiments.reproduce_files(
            name, preset, changes, out=out, say=lambda text: typer.echo(text, err=True)
        )
    except Interrupted as error:
        complain(str(error))
        raise
    if rank():
        return
    record = experiments.load(json_file)
    typer.echo(experiments.render(record))
    typer.echo(f"\nresult: {json_file}\npicture: {png_file}\n{_NEXT}")
    if report:
        typer.echo(f"page: {write_page(json_file.with_suffix('.html'), experiments.page(record))}")


def _listed() -> str:
    """Return a block per experiment: what it is, how long its preset takes, and where the results of that are."""
    from ..experiments import EXPERIMENTS

    head = ["experiment", "in the paper", "preset", "committed results", "2 cores"]
    rows = [[entry.name, entry.label, entry.preset, _results(entry.name), entry.time] for entry in EXPERIMENTS.values()]
    first, *lines = text_table(head, rows, left=4).splitlines()
    blocks = (f"{line}\n    {entry.shows}" for line, entry in zip(lines, EXPERIMENTS.values(), strict=True))
    return "\n".join([first, *blocks])


def _results(name: str) -> str:
    """Return where the committed results are: below the current folder, or below the source this runs from."""
    source = Path(__file__).parents[3]
    for root in (Path(), *([source] if (source / "pyproject.toml").is_file() else [])):
        if (root / "results" / f"{name}.json").is_file():
            return f"results/{name}.json"
    return "none"
