"""`obrs train`: a training run from a file of settings."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from ..errors import Interrupted, MissingLibraryError
from .app import app
from .fields import read_fields

__all__ = ["train"]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file, or the config.json of a run.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Folder of the run; by default that of its config.json, or runs/NAME."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the latest checkpoint of the run.")] = False,
) -> None:
    """Train a generator and its critic for a budget.

    Any field of the configuration can be given here, too, and wins over the file: --budget 4 --steps 2000.
    """
    try:
        from ..training import config as settings
        from ..training.loop import train as run_training
    except ModuleNotFoundError as error:
        raise MissingLibraryError(f"training needs {error.name}: pip install 'obrs[training]'") from error
    wanted = settings.override(settings.read_config(config), read_fields(context.args))
    folder = out or _folder_of(config)
    try:
        run = run_training(wanted, out=folder, resume=resume)
    except Interrupted as error:
        typer.echo(str(error), err=True)
        raise
    if not run.log:  # one of many processes speaks
        return
    typer.echo(f"trained {wanted.steps} steps: {folder}")
    typer.echo(f'load it:      from obrs.training import load_trained; run = load_trained("{folder}")')
    if "rate" in run.log[-1]:
        typer.echo(f"sample it:    obrs.sample(run.propose, run.log_ratio, 1000, budget={wanted.budget:g})")
    else:
        typer.echo(f"sample it:    needs a log-ratio, and {wanted.generator_loss} has none; train with --two-heads")
    settings_file, place = quote(str(folder / "config.json")), quote(str(folder))
    typer.echo(f"train it on:  obrs train {settings_file} --out {place} --resume --steps {2 * wanted.steps}")


def _folder_of(config: Path) -> Path:
    """Return where a run goes: where it is, if this is the configuration that it saved, or to runs/NAME."""
    if config.name == "config.json" and (config.parent / "checkpoints").is_dir():
        return config.parent
    return Path("runs") / config.stem
