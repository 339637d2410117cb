"""Run an experiment by name: rows into one JSON as they come, then its table and its picture beside it."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from obrs import __version__
from obrs._progress import rank
from obrs._text import lookup
from obrs.errors import InputError, Interrupted, UnknownNameError

from .record import Record, load, plain, versions
from .registry import experiment

__all__ = ["configure", "draw", "markdown", "reproduce", "run_files"]


def configure(name: str, preset: str = "default", changes: Mapping[str, Any] | None = None) -> Any:
    """Return the configuration of an experiment: a preset, with fields changed; text is read as what the field is.

    Example:
        >>> configure("figure-pr", "smoke", {"high": "2.5"}).high
        2.5
    """
    config = lookup(experiment(name).PRESETS, preset, f"preset of {name}")
    known, types = {entry.name.replace("_", "-"): entry.name for entry in fields(config)}, get_type_hints(type(config))
    values = {}
    for text, value in (changes or {}).items():
        if text == "seed" and text not in known:
            raise UnknownNameError(f"{name} draws nothing at random and has no seed; leave it out")
        field = lookup(known, text.replace("_", "-"), f"field of {name}")
        values[field] = _read(value, types[field], text) if isinstance(value, str) else value
    return replace(config, **values)


def _read(text: str, kind: Any, field: str) -> Any:
    """Read text as a value of an annotated type: a number, a word, yes or no, or several with commas."""
    if get_origin(kind) is UnionType:
        if text.lower() == "none":
            return None
        return _read(text, next(part for part in get_args(kind) if part is not NoneType), field)
    if get_origin(kind) is tuple:
        return tuple(_read(part.strip(), get_args(kind)[0], field) for part in text.split(",") if part.strip())
    expected = {int: "a whole number", float: "a number", bool: "yes or no"}
    try:
        return {"yes": True, "true": True, "no": False, "false": False}[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        raise InputError(f"{field} must be {expected.get(kind, kind.__name__)}, got {text!r}") from None


def reproduce(
    name: str, preset: str = "default", changes: Mapping[str, Any] | None = None, *, progress: bool | None = None
) -> Record:
    """Run an experiment in memory and return its record.

    Example:
        >>> len(reproduce("figure-pr", "smoke").rows)
        2
    """
    config = configure(name, preset, changes)
    record = Record(name, preset, plain(asdict(config)), progress=progress)
    experiment(name).run(config, record)
    record.versions = versions()
    return record


def run_files(
    name: str,
    preset: str = "default",
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | os.PathLike[str] = "out",
    say: Callable[[str], None] = lambda text: None,
) -> Record:
    """Run an experiment and write NAME.json, NAME.md and NAME.png into a folder.

    An interrupted run leaves NAME.KEY.partial.json, where KEY stands for its configuration. Started again, it goes on
    from there and says so. Files of a finished run are replaced when the new ones are complete.
    """
    config, folder = configure(name, preset, changes), Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"results go into a folder, {folder} is a file; choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    settings = plain(asdict(config))
    key = hashlib.sha256(json.dumps([name, settings, __version__], sort_keys=True).encode()).hexdigest()[:8]
    path = folder / f"{name}.{key}.partial.json"
    record = load(path) if path.exists() else Record(name, preset, settings)
    record.path = path
    if record.rows and rank() == 0:
        say(f"going on from {_count(record)} of an interrupted run")
    record.save(path)  # fails now, not after an hour, if nothing can be written there
    try:
        experiment(name).run(config, record)
    except KeyboardInterrupt as error:
        kept = f"{_count(record)} {'is' if len(record.rows) == 1 else 'are'} kept, the same command goes on from there"
        if not record.rows:
            path.unlink()
            kept = "no row is done yet, the same command starts over"
        raise Interrupted(f"interrupted: {kept}", record) from error
    if rank() == 0:
        picture = draw(record)
        record.save(folder / f"{name}.json")  # now that the library that draws has its place among the versions
        (folder / f"{name}.md").write_text(markdown(record))
        (folder / f"{name}.png").write_bytes(picture)
        path.unlink()
    return record


def _count(record: Record) -> str:
    return f"{len(record.rows)} row{'' if len(record.rows) == 1 else 's'}"


def draw(record: Record) -> bytes:
    """Draw a record, and nothing but the record, as a PNG: the same record gives the same pixels."""
    from .style import styled

    module, picture = experiment(record.experiment), io.BytesIO()
    try:
        with styled():
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
