"""`obrs data`: list the data sets, and fetch one."""

from typing import Annotated

import typer

from .app import app

__all__ = ["data"]

data = typer.Typer()
app.add_typer(data, name="data")


@data.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    """List and fetch data sets."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@data.command("list")
def list_() -> None:
    """Show the data sets by name."""
    from ..data.fetch import DATASETS, cache_folder, is_here
    from ..data.mixtures import TOYS

    rows = [("digits", "handwritten digits, 1500 + 297 of 8x8", "with scikit-learn")]
    rows += [(name, entry.about, "here" if is_here(name) else "to fetch") for name, entry in DATASETS.items()]
    rows += [(name, "two numbers, exact density", "built in") for name in TOYS]
    for name, about, where in rows:
        typer.echo(f"{name:14} {about:42} {where}")
    typer.echo(f"fetched data sets are kept in {cache_folder()}; OBRS_DATA names another folder")


@data.command()
def fetch(
    name: Annotated[str, typer.Argument(help="One of the names that `obrs data list` shows.")],
    folder: Annotated[
        str | None, typer.Option(metavar="DIR", help="Take the IDX files, plain or gzipped, from this folder.")
    ] = None,
) -> None:
    """Get a data set, check it, and keep it under OBRS_DATA or ~/.cache/obrs."""
    from ..data.fetch import DATASETS, fetch
    from ..data.images import IMAGES
    from ..data.mixtures import TOYS

    if name not in DATASETS and name in {*IMAGES, *TOYS}:
        typer.echo(f"{name}: nothing to fetch")
        return
    typer.echo(f"{name}: {fetch(name, folder=folder)}")
