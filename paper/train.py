"""`python -m paper train`: a training run from a file of settings, which may name the paper's data and networks."""

from pathlib import Path
from shlex import quote

from obrs._files import check_folder, check_not_input
from obrs._progress import rank, world_size
from obrs.errors import InputError

__all__ = ["train"]


def train(config: Path, changes: dict[str, str | None], out: Path | None = None, resume: bool = False) -> None:
    """Train a generator and its critic for a budget, and say what to do with them.

    Args:
        config: A TOML file, or the config.json of a run.
        changes: Fields of the configuration as text, which override it; None for a bare flag.
        out: The folder of the run; by default that of its config.json, or runs/NAME.
        resume: Go on from the latest checkpoint of the run.
    """
    if config.is_dir():
        raise InputError(f"{config} is a folder; did you mean {config / 'config.json'}?")
    if not config.is_file():
        raise InputError(f"{config} is missing or not a file")
    folder = out or _folder_of(config)
    check_folder(folder)
    if not (folder / "checkpoints").is_dir():  # those of a run are its own record
        check_not_input(folder / "config.json", config)
    from obrs.training import config as settings
    from obrs.training.loop import train as run_training

    from . import named  # noqa: F401  # what the file may name

    wanted = settings.override(settings.read_config(config), changes)
    settings.check_recipe(wanted)
    if wanted.spelled_out() is not wanted and rank() == 0:
        losses = ", then ".join(stage.generator_loss for stage in wanted.stages)
        print(f"no loss is named: {losses}, for K = {wanted.budget:g}; --generator-loss dual is plain training")
    run = run_training(wanted, out=folder, resume=resume, say=print)
    if not run.log:  # only the first of many processes prints
        return
    world = world_size()
    last = wanted.stages[-1]
    stages = f" in {len(wanted.stages)} stages" if len(wanted.stages) > 1 else ""
    processes = f" in {world} processes" if world > 1 else ""
    print(f"trained {run.log[-1]['step']} steps{stages}{processes}: {folder}")
    print(f'load it:      import paper.named; from obrs.training import load_trained; run = load_trained("{folder}")')
    if "rate" in run.log[-1]:
        print(f"sample it:    obrs.sample(run.propose, run.log_ratio, 1000, budget={last.budget:g})")
    else:
        print(f"sample it:    needs a log-ratio, and {last.generator_loss} has none; train with --two-heads")
    if last.scheduled:  # more steps would have been another schedule
        return
    steps = f"--stage.{len(wanted.stages)}.steps" if wanted.stage else "--steps"
    settings_file, place = quote(str(folder / "config.json")), quote(str(folder))
    command = "python -m paper" if world == 1 else f"torchrun --nproc_per_node {world} -m paper"  # resumed by as many
    print(f"train it on:  {command} train {settings_file} --out {place} --resume {steps} {2 * last.steps}")


def _folder_of(config: Path) -> Path:
    """Return the folder of a run: that of the configuration if a run saved it there, else runs/NAME."""
    if config.name == "config.json" and (config.parent / "checkpoints").is_dir():
        return config.parent
    return Path("runs") / config.stem
