"""`python -m paper`: run an experiment, list or redraw them all, fetch data, or train from a file of settings."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from obrs._files import cache_folder
from obrs._progress import rank
from obrs._text import text_table
from obrs.errors import InputError

from .harness import EXPERIMENTS, complain, experiment, first_line, guard, reproduce, write_pages
from .record import load

USAGE = """\
python -m paper list                                   # the experiments, and how long they take
python -m paper table-2 --preset demo                  # run one: NAME.json, NAME.md and NAME.png in out/
python -m paper figure-1d --budget 3 --out here        # --FIELD VALUE changes a field of its configuration
python -m paper redraw                                 # NAME.md and NAME.png again, from paper/results/NAME.json
python -m paper fetch cifar10                          # get a data set, or take it from --folder DIR
python -m paper train examples/train-25-gaussians.toml # a training run, or on with it; --FIELD VALUE, --out DIR"""
_NEXT = "With your own model: kept = obrs.sample(propose, log_ratio, 2500, budget=2.6), see docs/quickstart.md."


class _Parser(argparse.ArgumentParser):
    """A parser whose mistakes are errors of ours, in one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    commands = {"list": _list, "redraw": _redraw, "fetch": _fetch, "train": _train}
    return guard(commands[words[0]], words[1:]) if words[0] in commands else guard(_run, words)


def _run(words: list[str]) -> None:
    parser = _Parser(prog="python -m paper", allow_abbrev=False, add_help=False)
    parser.add_argument("name")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--out", type=Path, default=Path("out"))
    if "--help" in words or "-h" in words:
        print(_describe(words[0]))
        return
    known, rest = parser.parse_known_args(words)
    changes = read_fields(rest)
    if bare := [name for name, value in changes.items() if value is None]:
        raise InputError(f"--{bare[0]} needs a value")
    record, home = reproduce(known.name, known.preset, changes, out=known.out), known.out / known.name
    if rank() == 0:
        print(f"{experiment(known.name).table(record)}\n\nresult: {home}.json\npicture: {home}.png\n{_NEXT}")


def _describe(name: str) -> str:
    """Return what an experiment is, its presets, and its fields with their defaults."""
    module = experiment(name)
    config = module.PRESETS["default"]
    values = ((field.name.replace("_", "-"), getattr(config, field.name)) for field in fields(config))
    options = " ".join(f"--{key} {','.join(map(str, v)) if isinstance(v, tuple) else v}" for key, v in values)
    text = f"{EXPERIMENTS[name].source}\n{module.__doc__}\npresets: {', '.join(module.PRESETS)}\nfields: {options}"
    return f"{text}\nalso: --preset NAME, --out FOLDER"


def _list(words: list[str]) -> None:
    rows = [[name, entry.source, entry.time] for name, entry in EXPERIMENTS.items()]
    head, *lines = text_table(["experiment", "in the paper", "default takes"], rows, left=3).splitlines()
    shown = (f"{line}\n    {first_line(name)}" for line, name in zip(lines, EXPERIMENTS, strict=True))
    print("\n".join([head, *shown]))


def _redraw(words: list[str]) -> None:
    parser = _Parser(prog="python -m paper redraw", allow_abbrev=False)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results"))
    known = parser.parse_args(words)
    names = known.names or [name for name in EXPERIMENTS if (known.out / f"{name}.json").exists()]
    if not names:
        raise InputError(f"{known.out} has no record of an experiment")
    for name in names:
        write_pages(load(known.out / f"{name}.json"), known.out / name)
        print(f"{name}.md, {name}.png")


def _fetch(words: list[str]) -> None:
    from .data.fetch import DATASETS, fetch, is_here
    from .data.images import IMAGES

    if not words:
        rows = [(name, entry.about, "here" if is_here(name) else "to fetch") for name, entry in DATASETS.items()]
        print(text_table(["data set", "what it is", "where"], rows, left=3))
        print(f"they are kept in {cache_folder()}; OBRS_DATA names another folder")
        return
    parser = _Parser(prog="python -m paper fetch", allow_abbrev=False)
    parser.add_argument("name")
    parser.add_argument("--folder")
    known = parser.parse_args(words)
    if known.name in IMAGES and known.name not in DATASETS:
        print(f"{known.name}: nothing to fetch")
        return
    if known.folder is not None and is_here(known.name):
        complain(f"warning: {known.name} is here already; {known.folder} was not looked at")
    print(f"{known.name}: {fetch(known.name, folder=known.folder)}")


def _train(words: list[str]) -> None:
    from .train import run_file

    parser = _Parser(prog="python -m paper train", allow_abbrev=False)
    parser.add_argument("config", type=Path)
    parser.add_argument("--out", "-o", type=Path)
    known, rest = parser.parse_known_args(words)
    run_file(known.config, read_fields(rest), known.out)


def read_fields(words: Sequence[str]) -> dict[str, Any]:
    """Read `--field value` and `--field=value`; a bare `--field` is None. Names come back with underscores.

    Example:
        >>> read_fields(["--critic-lr", "1e-3", "--two-heads", "--budget=4"])
        {'critic_lr': '1e-3', 'two_heads': None, 'budget': '4'}
    """
    fields: dict[str, str | None] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise InputError(f"expected --FIELD VALUE, got {word!r}")
        bare = not equals and (not left or left[0].startswith("--"))
        if (key := name.replace("-", "_")) in fields:
            raise InputError(f"--{name} is given twice")
        fields[key] = None if bare else value if equals else left.pop(0)
    return fields


if __name__ == "__main__":
    sys.exit(main())
