"""`obrs train`: a training run from a file of settings."""

from dataclasses import fields
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from .._files import check_folder, check_not_input
from .._rank import rank, world_size
from ..errors import InputError, MissingLibraryError
from .app import Command, app, complain
from .fields import check_first, read_fields

__all__ = ["train"]


class _WithFields(Command):
    """A command whose help ends with the fields of the configuration; torch is imported for it only then."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the fields, and where they are explained."""
        with formatter.section("Fields of the configuration, with their defaults"):
            formatter.write_text(_defaults())
        with formatter.section("Stages"):
            formatter.write_text(
                "A file may end with [[stage]] tables. Each says which fields differ from the stage before, and they "
                "run one after the other. --stage.2.steps 500 changes a field of one of them, --budget 4 that of all."
            )
        formatter.write_paragraph()
        formatter.write_text("The guide, docs/guide/training.md, says what they mean; examples/*.toml are such files.")
        super().format_epilog(ctx, formatter)


@app.command(
    cls=_WithFields,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="""
        obrs train examples/train-25-gaussians.toml --budget 2
        obrs train runs/train-25-gaussians/config.json --resume
    """,
)
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

    Any field of the configuration can also be given after CONFIG, and overrides it: --budget 4 --steps 2000.
    """
    check_first(str(config), "CONFIG")
    if config.is_dir():
        raise InputError(f"{config} is a folder; did you mean {config / 'config.json'}?")
    if not config.is_file():
        raise InputError(f"{config} is missing or not a file")
    folder = out or _folder_of(config)
    check_folder(folder)
    if not (folder / "checkpoints").is_dir():  # those of a run are its own record
        check_not_input(folder / "config.json", config)
    try:
        from ..training import config as settings
        from ..training.loop import train as run_training
    except ImportError as error:
        raise MissingLibraryError(f"training needs {error.name}: pip install 'obrs[training]'") from error
    wanted = settings.override(settings.read_config(config), read_fields(context.args))
    settings.check_recipe(wanted)
    if wanted.spelled_out() is not wanted and rank() == 0:
        losses = ", then ".join(stage.generator_loss for stage in wanted.stages)
        typer.echo(f"no loss is named: {losses}, for K = {wanted.budget:g}; --generator-loss dual is plain training")
    try:
        run = run_training(wanted, out=folder, resume=resume, say=typer.echo)
    except KeyboardInterrupt as error:
        complain(str(error) or "interrupted before the first step")
        raise
    if not run.log:  # only the first of many processes prints
        return
    world = world_size()
    last = wanted.stages[-1]
    stages = f" in {len(wanted.stages)} stages" if len(wanted.stages) > 1 else ""
    processes = f" in {world} processes" if world > 1 else ""
    typer.echo(f"trained {run.log[-1]['step']} steps{stages}{processes}: {folder}")
    typer.echo(f'load it:      from obrs.training import load_trained; run = load_trained("{folder}")')
    if "rate" in run.log[-1]:
        typer.echo(f"sample it:    obrs.sample(run.propose, run.log_ratio, 1000, budget={last.budget:g})")
    else:
        typer.echo(f"sample it:    needs a log-ratio, and {last.generator_loss} has none; train with --two-heads")
    if last.scheduled:  # more steps would have been another schedule
        return
    steps = f"--stage.{len(wanted.stages)}.steps" if wanted.stage else "--steps"
    settings_file, place = quote(str(folder / "config.json")), quote(str(folder))
    command = "obrs" if world == 1 else f"torchrun --nproc_per_node {world} -m obrs"  # resumed by as many
    typer.echo(f"train it on:  {command} train {settings_file} --out {place} --resume {steps} {2 * last.steps}")


def _defaults() -> str:
    """Return `name=value` of every field, or which library is missing for that."""
    try:
        from ..training.config import TrainConfig
    except ImportError as error:
        return f"They need {error.name}: pip install 'obrs[training]'"
    return " ".join(f"{field.name}={_plain(field.default)}" for field in fields(TrainConfig) if field.name != "stage")


def _plain(value: Any) -> str:
    """Return a value as the command line takes it."""
    if isinstance(value, tuple):
        return ",".join(map(_plain, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value) or '""'


def _folder_of(config: Path) -> Path:
    """Return the folder of a run: that of the configuration if a run saved it there, else runs/NAME."""
    if config.name == "config.json" and (config.parent / "checkpoints").is_dir():
        return config.parent
    return Path("runs") / config.stem
