"""Run an experiment by name, draw a record, and read the fields of a configuration from text."""

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from .._names import lookup
from .._rank import rank
from ..errors import InputError, Interrupted, MissingLibraryError, UnknownNameError
from ..html.record import record_page
from ..looks import styled
from .record import Record, Rows, load, plain, unfinished
from .registry import EXPERIMENTS, experiment

__all__ = ["committed", "configure", "draw", "page", "render", "reproduce", "reproduce_files"]


def committed(name: str) -> str:
    """Return the preset whose results are committed.

    Example:
        >>> committed("figure-pr")
        'default'
    """
    return lookup(EXPERIMENTS, name, "experiment").preset


def configure(name: str, preset: str | None = None, changes: Mapping[str, Any] | None = None) -> Any:
    """Return the configuration of an experiment: a preset, with fields changed.

    Args:
        name: A key of `EXPERIMENTS`.
        preset: A key of its `PRESETS`; None for the one whose results are committed.
        changes: New values of fields; text is read as what the field is.

    Example:
        >>> configure("figure-pr", "smoke", {"high": "2.5"}).high
        2.5
    """
    config = lookup(experiment(name).PRESETS, preset or committed(name), f"preset of {name}")
    known = {entry.name.replace("_", "-"): entry.name for entry in fields(config)}
    types = get_type_hints(type(config))
    values = {}
    for text, value in (changes or {}).items():
        if text == "seed" and text not in known:
            raise UnknownNameError(f"{name} draws nothing at random and has no seed; leave it out")
        field = lookup(known, text.replace("_", "-"), f"field of {name}")
        values[field] = _read(value, types[field], text) if isinstance(value, str) else value
    return replace(config, **values)


def reproduce(
    name: str,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    progress: bool | None = None,
) -> Record:
    """Run an experiment in memory and return its record; `reproduce_files` also keeps it on disk.

    Args:
        name: A key of `EXPERIMENTS`.
        preset: "smoke", which takes seconds; "default", or "cpu" for images, whose results are in `results/`; "paper",
            the paper's size; None for the one with results.
        changes: Fields of its `Config` to change.
        progress: Whether to show a bar; None shows it on terminals.

    Example:
        >>> record = reproduce("figure-pr", "smoke")
        >>> record.experiment, record.preset
        ('figure-pr', 'smoke')
    """
    preset = preset or committed(name)
    config = configure(name, preset, changes)
    rows = Rows(Record(name, preset, plain(asdict(config)), []), progress=progress)
    experiment(name).run(config, rows)
    return rows.record()


def reproduce_files(
    name: str,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | os.PathLike[str] = "out",
    progress: bool | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Path, Path]:
    """Run an experiment and write NAME.json and NAME.png into a folder; return where they are.

    An interrupted run leaves NAME.KEY.partial.json; KEY stands for its configuration. Started again, it goes on from
    there and says so with `say`. A finished run is repeated, and its files are replaced when the new ones are
    complete. Of many processes the first one writes.

    Example:
        >>> import tempfile
        >>> json_file, png_file = reproduce_files("figure-pr", "smoke", out=tempfile.mkdtemp())
        >>> json_file.name, png_file.name
        ('figure-pr.json', 'figure-pr.png')
    """
    preset = preset or committed(name)
    config, folder = configure(name, preset, changes), Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"results go into a folder, {folder} is a file; choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    record = Record(name, preset, plain(asdict(config)), [])
    path = unfinished(folder, record)
    if path.exists():
        record = load(path)
    if record.rows and rank() == 0:
        say(f"going on from {_counted(record.rows)} of an interrupted run")
    rows = Rows(record, path, progress=progress)  # fails now, not after an hour, if nothing can be written there
    try:
        experiment(name).run(config, rows)
    except KeyboardInterrupt as error:
        kept = rows.record()
        verb = "is" if len(rows) == 1 else "are"
        message = f"interrupted: {_counted(kept.rows)} {verb} kept, the same command goes on from there"
        raise Interrupted(message, kept) from error
    json_file, png_file = folder / f"{name}.json", folder / f"{name}.png"
    if rank():
        return json_file, png_file
    picture = draw(rows.record())
    finished = rows.record()  # now that the library that draws has its place among the versions
    finished.save(json_file)
    png_file.write_bytes(picture)
    path.unlink()
    return json_file, png_file


def draw(record: Record) -> bytes:
    """Draw a record, and nothing but the record, as a PNG: the same record gives the same pixels.

    Example:
        >>> draw(reproduce("figure-pr", "smoke"))[1:4]
        b'PNG'
    """
    module = experiment(record.experiment)
    try:
        with styled():
            picture = io.BytesIO()
            module.plot(record).savefig(picture, format="png", metadata={"Software": None})
    except ModuleNotFoundError as error:
        raise MissingLibraryError(f"pictures need {error.name}: pip install 'obrs[plot]'") from error
    except (KeyError, IndexError) as error:
        raise InputError(f"the record of {record.experiment} lacks {error}; run it again") from error
    return picture.getvalue()


def render(record: Record) -> str:
    """Return the results of a record as text, with the paper's numbers beside them where it has any.

    Example:
        >>> print(render(reproduce("figure-pr", "smoke")).splitlines()[0])
        model           lambda  precision  recall
    """
    return str(experiment(record.experiment).render(record))


def page(record: Record) -> str:
    """Return a record, its picture and its table as one page of HTML, which opens offline.

    Example:
        >>> page(reproduce("figure-pr", "smoke"))[:15]
        '<!doctype html>'
    """
    entry = EXPERIMENTS[record.experiment]
    standard = plain(asdict(configure(record.experiment, record.preset)))
    changed = {key: value for key, value in record.config.items() if standard.get(key) != value}
    fields = "".join(f" --{key.replace('_', '-')} {_written(value)}" for key, value in changed.items())
    return record_page(
        name=record.experiment,
        label=entry.label,
        shows=entry.shows,
        command=f"obrs reproduce {record.experiment} --preset {record.preset}{fields} --report",
        text=render(record),
        picture=draw(record),
        record=record.to_json().encode(),
        facts={
            "configuration": {"preset": record.preset} | record.config,
            "run": {"seconds": record.seconds} | record.versions,
        },
    )


def _written(value: Any) -> str:
    """Return a value as the command line takes it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _counted(rows: list[Any]) -> str:
    return f"{len(rows)} row{'' if len(rows) == 1 else 's'}"


_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _read(text: str, kind: Any, field: str) -> Any:
    """Read text as a value of an annotated type: a number, a word, True or False, or several with commas."""
    if get_origin(kind) in (Union, UnionType):
        if text.lower() == "none" and NoneType in get_args(kind):
            return None
        return _read(text, next(part for part in get_args(kind) if part is not NoneType), field)
    if get_origin(kind) is tuple:
        return tuple(_read(part.strip(), get_args(kind)[0], field) for part in text.split(",") if part.strip())
    expected = {int: "a whole number", float: "a number", bool: "yes or no"}
    try:
        return _WORDS[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        raise InputError(f"{field} must be {expected.get(kind, kind.__name__)}, got {text!r}") from None
