"""`obrs plot`: draw the picture of a record again, from its JSON alone."""

from pathlib import Path
from typing import Annotated

import typer

from .._files import check_out
from ..errors import InputError
from .app import Command, app

__all__ = ["plot"]


@app.command(
    cls=Command,
    epilog="""
        obrs plot results/table-2.json -o table-2.png
    """,
)
def plot(
    file: Annotated[str, typer.Argument(metavar="FILE.json", help="What `obrs reproduce` has written.")],
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE.png", help="Where to draw; by default beside the JSON.")
    ] = None,
) -> None:
    """Draw the picture of a reproduced figure or table from its JSON."""
    from ..experiments import draw, load

    target = Path(file).with_suffix(".png") if out is None else Path(out)
    if target.suffix.lower() != ".png":
        raise InputError(f"a picture is written as .png, got {target}")
    if not Path(file).is_file():
        raise InputError(f"{file} is missing or not a file")
    check_out(target)
    target.write_bytes(draw(load(file)))
    typer.echo(str(target))
