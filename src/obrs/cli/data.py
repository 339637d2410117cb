"""`obrs data`: list the data sets, and fetch one."""

from typing import Annotated

import typer

from .._names import unknown_name
from .._tables import text_table
from .app import Command, Group, app, complain

__all__ = ["data"]

data = typer.Typer(
    cls=Group,
    epilog="""
        obrs data list
        obrs data fetch fashion_mnist
    """,
)
app.add_typer(data, name="data")


@data.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    """List and fetch data sets."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@data.command("list", cls=Command, epilog="obrs data list")
def list_() -> None:
    """Show the data sets by name."""
    from ..data.fetch import DATASETS, cache_folder, is_here
    from ..data.images import PICTURES
    from ..data.mixtures import TOYS

    rows = [("digits", "handwritten digits, 1500 + 297 of 8x8", "with scikit-learn")]
    rows += [(name, entry.about, "here" if is_here(name) else "to fetch") for name, entry in DATASETS.items()]
    rows += [(name, about, "a folder of yours") for name, (about, _, _) in PICTURES.items()]
    rows += [(name, "two numbers, exact density", "built in") for name in TOYS]
    typer.echo(text_table(["data set", "what it is", "where"], rows, left=3))
    typer.echo(f"fetched data sets are kept in {cache_folder()}; OBRS_DATA names another folder")


@data.command(
    cls=Command,
    epilog="""
        obrs data fetch fashion_mnist
        obrs data fetch mnist --folder downloads/
    """,
)
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="One of the names that `obrs data list` shows.")],
    folder: Annotated[
        str | None, typer.Option(metavar="DIR", help="Take the files, plain or gzipped, from this folder.")
    ] = None,
) -> None:
    """Get a data set, and check it.

    It is kept under OBRS_DATA, or else ~/.cache/obrs.
    """
    from ..data.fetch import DATASETS, cache_folder, fetch, is_here
    from ..data.images import IMAGES, PICTURES, load
    from ..data.mixtures import TOYS

    known = dict.fromkeys((*DATASETS, *IMAGES, *TOYS))
    if name not in known:
        raise unknown_name(name, known, "data set")
    if name in PICTURES:
        load(name, folder=folder)
        typer.echo(f"{name}: read, and kept in {cache_folder() / name}")
        return
    if name not in DATASETS and name in {*IMAGES, *TOYS}:
        typer.echo(f"{name}: nothing to fetch")
        return
    if folder is not None and is_here(name):
        complain(f"warning: {name} is here already; {folder} was not looked at")
    typer.echo(f"{name}: {fetch(name, folder=folder)}")
