"""Run an experiment by name: rows into one JSON as they come, then its table and its picture beside it."""

import hashlib
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from obrs import __version__
from obrs._files import hold, rewrite
from obrs._progress import rank
from obrs._text import exit_code, lookup, one_line
from obrs.errors import InputError, Interrupted, MissingLibraryError, ObrsError

from .record import Record, load, plain, versions

__all__ = ["EXPERIMENTS", "Entry", "complain", "configure", "draw", "experiment", "first_line", "guard", "markdown"]
__all__ += ["reproduce", "write_pages"]


@dataclass(frozen=True)
class Entry:
    """An experiment as `python -m paper list` shows it."""

    label: str  # the figure, table or section of the paper; "" for what goes beyond it
    on: str  # what it is run on where data, model or protocol are not the paper's; "" where all three are
    time: str  # how long the default preset takes on one core

    @property
    def source(self) -> str:
        """Say whether this reproduces the paper, has its setting on other data, or goes beyond it."""
        if not self.label:
            return "beyond the paper"
        return f"setting of {self.label}, on {self.on}" if self.on else f"{self.label}, reproduced"


EXPERIMENTS = {
    "figure-landscape": Entry("Figure 1", "a GAN of digits, filter-normalised directions", "30 min"),
    "figure-1d": Entry("Figure 2", "", "1 s"),
    "figure-smooth": Entry("Figure 3", "", "5 s"),
    "figure-optimal-g": Entry("Figure 4", "", "10 s"),
    "table-2": Entry("Table 2", "", "14 min"),
    "figure-pretrained": Entry("Figure 5", "small GANs of CIFAR-10", "40 min"),
    "table-diffusion": Entry("Table 3", "small EDMs of CIFAR-10", "20 min"),
    "figure-training": Entry("Figure 6", "small GANs of CIFAR-10", "1 s"),
    "table-finetune": Entry("Table 4", "GANs of CIFAR-10", "16 min"),
    "figure-pr": Entry("Appendix A", "", "1 s"),
    "figure-pr-digits": Entry("Appendix A", "two GANs of MNIST, one of five digits", "2 min"),
    "figure-25-samples": Entry("Appendix D.2", "the first GAN of our Table 2", "60 s"),
    "figure-time": Entry("Appendix D.2", "the first GAN of our Table 2", "5 min"),
    "figure-obrs-vs-drs": Entry("Appendix D.2", "small GANs of five known densities", "2 min"),
    "figure-frequency": Entry("Appendix D.3", "small GANs of Fashion-MNIST", "50 min"),
    "budgets": Entry("", "the GAN of our Table 2, a GAN of CIFAR-10, normal log-ratios", "8 min"),
    "tune": Entry("", "GANs and a VAE of images, 25 Gaussians", "40 min"),
    "language": Entry("", "SmolLM2-135M", "80 min"),
}
"""Experiments by name, in the paper's order; what goes beyond it comes last."""


def experiment(name: str) -> Any:
    """Import the module of an experiment: `Config`, `PRESETS`, `PAPER`, `run`, `figure`, `table`."""
    lookup(EXPERIMENTS, name, "experiment")
    try:
        return import_module(f"{__package__}.{name.replace('-', '_')}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("obrs", "paper"):
            raise
        raise MissingLibraryError(f"{name} needs {error.name}: pip install -e '.[torch,cli]' --group paper") from error


def first_line(name: str) -> str:
    """Return what an experiment shows, in a line: the first of its module, which is not imported for it."""
    with Path(__file__).with_name(f"{name.replace('-', '_')}.py").open(encoding="utf-8") as file:
        return file.readline().strip().strip('"')


def configure(name: str, preset: str = "default", changes: Mapping[str, Any] | None = None) -> Any:
    """Return the configuration of an experiment: a preset, with fields changed; text is read as the type of its field.

    Example:
        >>> configure("figure-pr", "smoke", {"high": "2.5"}).high
        2.5
    """
    config = lookup(experiment(name).PRESETS, preset, f"preset of {name}")
    known, types = {entry.name.replace("_", "-"): entry.name for entry in fields(config)}, get_type_hints(type(config))
    values = {}
    for text, value in (changes or {}).items():
        field = lookup(known, text.replace("_", "-"), f"field of {name}")
        values[field] = _read(value, types[field], text) if isinstance(value, str) else value
    return replace(config, **values)


def _read(text: str, kind: Any, field: str) -> Any:
    """Read text as a value of an annotated type: a number, a word, yes or no, or several with commas."""
    if get_origin(kind) is tuple:
        return tuple(_read(part.strip(), get_args(kind)[0], field) for part in text.split(",") if part.strip())
    expected = {int: "a whole number", float: "a number", bool: "yes or no"}
    try:
        return {"yes": True, "no": False}[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        raise InputError(f"{field} must be {expected.get(kind, kind.__name__)}, got {text!r}") from None


def reproduce(
    name: str,
    preset: str = "default",
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Record:
    """Run an experiment and return its record; with `out`, write NAME.json, NAME.md and NAME.png into that folder.

    There, an interrupted run leaves NAME.KEY.partial.json, where KEY stands for its configuration. Started again, it
    goes on from there and says so. Files of a finished run are replaced when the new ones are complete.

    Example:
        >>> len(reproduce("figure-pr", "smoke").rows)
        2
    """
    config = configure(name, preset, changes)
    record = Record(name, preset, plain(asdict(config)), progress=progress)
    if out is None:
        experiment(name).run(config, record)
        record.versions = versions()
        return record
    if (home := Path(out) / name).parent.exists() and not home.parent.is_dir():
        raise InputError(f"results go into a folder, {out} is a file; choose another --out")
    with nullcontext() if rank() else hold(home):
        record, path = _take_up(record, home.parent)
        try:
            experiment(name).run(config, record)
        except KeyboardInterrupt as error:
            if not record.rows:
                path.unlink()
            message = f"interrupted; rows kept: {len(record.rows)}, the same command goes on"
            raise Interrupted(message, record) from error
        if rank() == 0:
            write_pages(record, home)
            record.save(home.with_suffix(".json"))  # now that the library that draws has its place among the versions
            path.unlink()
    return record


def _take_up(new: Record, folder: Path) -> tuple[Record, Path]:
    """Return the record that an interrupted run left in a folder, or else the new one, and where it is kept."""
    decides = json.dumps([new.experiment, new.config, __version__], sort_keys=True)
    path = folder / f"{new.experiment}.{hashlib.sha256(decides.encode()).hexdigest()[:8]}.partial.json"
    record = load(path) if path.exists() else new
    record.path, record.progress = path, new.progress
    if record.rows and rank() == 0:
        complain(f"going on with an interrupted run; rows kept: {len(record.rows)}")
    record.save(path)  # fails now, not after an hour, if nothing can be written there
    return record, path


def write_pages(record: Record, home: Path) -> None:
    """Write what is drawn and printed of a record, NAME.png and NAME.md."""
    for suffix, content in ((".png", draw(record)), (".md", markdown(record).encode())):
        with rewrite(home.with_suffix(suffix)) as file:
            file.write(content)


def draw(record: Record) -> bytes:
    """Draw a record, and nothing but the record, as a PNG: the same record gives the same pixels."""
    from .style import restyle

    module, picture = experiment(record.experiment), io.BytesIO()
    try:
        with restyle():
            drawn = module.figure(record)
            if record.preset == "smoke":
                words = f"A smoke run, too small to say anything.\n{drawn.get_supxlabel()}"
                drawn.supxlabel(words, x=0.01, ha="left", fontsize=9)
            drawn.savefig(picture, format="png", metadata={"Software": None})
    except (KeyError, IndexError) as error:
        raise InputError(f"the record of {record.experiment} lacks {error}; run it again") from error
    return picture.getvalue()


def markdown(record: Record) -> str:
    """Return what pages include of a record: tables of the module's own, or else what is printed after a run."""
    module = experiment(record.experiment)
    if hasattr(module, "markdown"):
        return f"{module.markdown(record)}\n"
    return f"```text\n{module.table(record)}\n```\n"


# Commands -------------------------------------------------------------------------------------------------------------


def complain(text: str) -> None:
    """Write a message to standard error; of several processes, all but the first begin with their number."""
    sys.stderr.write(f"{f'process {rank()}: ' if rank() else ''}{' '.join(text.split())}\n")


def guard(work: Callable[..., object], *arguments: Any) -> int:
    """Do the work of a command; return its exit code: 0, 2 for a mistake, 1 for a failure, 130 for Ctrl-C."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *where, **more: complain(f"warning: {message}")
            work(*arguments)
    except KeyboardInterrupt as error:
        complain(str(error) or "interrupted")
        return 130
    except (ObrsError, OSError, MemoryError) as error:
        complain(f"error: {one_line(error)}")
        return exit_code(error)
    return 0
