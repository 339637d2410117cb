"""Every command of the command line shows examples in its help, and they work."""

import json
import shlex

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

from obrs.cli import app, main
from obrs.cli.app import CONTENTS

N = 1000


def walk(command, name):
    """Yield every command with its full name, groups of commands included."""
    yield name, command
    for key, part in getattr(command, "commands", {}).items():
        if not part.hidden:
            yield from walk(part, f"{name} {key}")


COMMANDS = dict(walk(get_command(app), "obrs"))
EXAMPLES = list(dict.fromkeys(line for command in COMMANDS.values() for line in (command.epilog or "").split("\n")))
EXAMPLES = [line.strip() for line in EXAMPLES if line.strip() and "obrs tune" not in line]  # test_cli_tune has those


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that examples name."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)

    def write(name, **columns):
        (folder / name).parent.mkdir(exist_ok=True)
        rows = [
            dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)
        ]
        if name.endswith("jsonl"):
            (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
            return
        lines = [",".join(columns), *(",".join(map(str, row.values())) for row in rows)]
        (folder / name).write_text("\n".join(lines) + "\n")

    fake, real = rng.normal(size=N), rng.normal(size=N) + 0.5
    logit = 0.5 * fake - 0.125
    write("scores.csv", id=np.arange(N), logit=logit, **{"class": np.where(fake > 0, "cat", "dog")})
    for part in range(2):
        write(f"scores/{part}.csv", id=np.arange(part, N, 2), logit=logit[part::2])
    write("real.csv", logit=0.5 * real - 0.125)
    write("fake.csv", logit=logit)
    texts = np.asarray([f"completion {i}" for i in range(N)])
    write("completions.jsonl", prompt_id=np.arange(N) // 10, reward=fake, text=texts)
    write("events.csv", w=np.where(rng.random(N) < 0.1, -1.0, 1.0) * rng.exponential(size=N))
    np.save(folder / "real.npy", rng.normal(size=(N, 3)) + 0.5)
    np.save(folder / "fake.npy", rng.normal(size=(N, 3)))
    np.save(folder / "log_ratio.npy", logit)
    for kind in ("real", "fake"):
        (folder / kind).mkdir()
        for i in range(60):
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / kind / f"{i:02}.png")
    write("images.csv", file=np.array([f"{i:02}.png" for i in range(60)]), logit=0.002 * np.arange(60))
    return folder


def test_contents_have_every_command():
    listed = [f"obrs {name}" for names in CONTENTS.values() for name in names]
    assert sorted(listed) == sorted(name for name in COMMANDS if name.count(" ") == 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example_of_itself(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*name.split()[1:], "--help"]) == 0
    shown = capsys.readouterr().out.partition("\nExamples:\n")[2].splitlines()
    assert shown, f"give {name} an epilog of examples"
    assert all(line.startswith(f"  {name}") for line in shown)
    assert max(map(len, shown)) <= 90


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_works(line, files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
