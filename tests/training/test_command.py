"""`obrs train` as a new user meets it: its help, its bar, and networks of one's own."""

import io
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from torch import nn

from obrs._progress import _rich_bar
from obrs.cli import main
from obrs.errors import InputError, Interrupted
from obrs.training.config import TrainConfig, override, read_config
from obrs.training.loop import train
from obrs.training.trained import load_trained

ROOT = Path(__file__).parents[2]
SMALL = "generator_loss = 'paper_raw'\nsteps = 2\nbatch_size = 8\ndata_size = 64\n"
TINY = TrainConfig(generator_loss="paper_raw", steps=2, batch_size=8, data_size=64)


# Help


def test_help_lists_every_field_with_a_default_that_the_command_takes(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["train", "--help"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "docs/guide/training.md" in said
    listed = dict(word.split("=", 1) for word in re.findall(r"\b[a-z_0-9]+=\S+", said))
    assert list(listed) == [field.name for field in fields(TrainConfig) if field.name != "stage"]
    assert "[[stage]]" in said
    values = {name: text.strip('"') for name, text in listed.items()}
    assert override(TrainConfig(), values) == TrainConfig()


def test_help_does_without_the_libraries_of_training(capsys, monkeypatch):
    for module in [name for name in sys.modules if name.startswith("obrs.training")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["train", "--help"]) == 0
    assert "pip install 'obrs[training]'" in capsys.readouterr().out


# The bar


@pytest.mark.parametrize(
    ("title", "total", "note"),
    [
        ("training", 6000, "critic -0.00234  generator -1.37  rate 0.883  c 0.892  M 1.13"),
        ("training", 1_000_000, "critic -0.00234  generator -1.37  rate 0.883  c 0.892  M 1.13"),
        ("fitting", 2000, "loss 0.693"),
        ("figure-optimal-g", 400, ""),
    ],
)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_bar_shows_step_and_time_and_cuts_the_note(title, total, note, width):
    from rich.console import Console

    shown = _rich_bar()
    shown.update(shown.add_task(title, total=total, note=""), completed=total // 2, note=note)
    console = Console(width=width, file=io.StringIO())
    console.print(shown.make_tasks_table(shown.tasks))
    (line,) = console.file.getvalue().splitlines()
    assert len(line) <= width
    found = re.fullmatch(rf"{title} ━+[ ━╸╺]* +{total // 2}/{total} -:--:-- (.*?)(…?) *", line)
    assert found, line
    assert note.startswith(found[1])
    assert found[1] == note or (found[2] and len(line) == width), "cut only where it must be"


def test_a_note_is_not_read_as_markup():
    from rich.console import Console

    shown = _rich_bar()
    shown.add_task("sampling", total=2, note="[red] 1 of 2")
    console = Console(width=80, file=io.StringIO())
    console.print(shown.make_tasks_table(shown.tasks))
    assert "[red] 1 of 2" in console.file.getvalue()


# Many processes


@pytest.mark.parametrize(("rank", "who"), [("0", ""), ("1", "process 1: ")])
def test_an_error_of_another_process_than_the_first_says_which_one(monkeypatch, capsys, rank, who):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", "nothing.toml"]) == 2
    assert capsys.readouterr() == ("", f"{who}error: nothing.toml is missing or not a file\n")


@pytest.mark.parametrize("rank", [None, "0", "1"])
def test_ctrl_c_in_another_process_than_the_first_says_which_one(tmp_path, capsys, monkeypatch, rank):
    def interrupted(*_, **__):
        raise Interrupted("interrupted after step 1", None)

    (tmp_path / "run.toml").write_text(SMALL)
    monkeypatch.setattr("obrs.training.loop.train", interrupted)
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", str(tmp_path / "run.toml"), "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == ("process 1: " if rank == "1" else "") + "interrupted after step 1\n"


# Networks of one's own


def own_networks():
    generator = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    return generator, nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1), nn.Flatten(0))


def test_loading_networks_of_ones_own_says_how(tmp_path):
    generator, critic = own_networks()
    train(TINY, generator=generator, critic=critic, out=tmp_path)
    way_out = r"if train was given networks, pass them: generator=\.\.\., critic=\.\.\.$"
    with pytest.raises(InputError, match=f"was made by another generator: .*; {way_out}"):
        load_trained(tmp_path)
    with pytest.raises(InputError, match=f"was made by another critic: .*; {way_out}"):
        load_trained(tmp_path, generator=own_networks()[0])
    with pytest.raises(InputError, match=r"was made by another generator: .*; use that run's network$"):
        load_trained(tmp_path, generator=nn.Linear(2, 2), critic=critic)
    loaded = load_trained(tmp_path, generator=own_networks()[0], critic=own_networks()[1])
    assert loaded.propose(range(3)).shape == (3, 2)


# The guide


def test_the_commands_of_the_guide_use_files_that_are_there():
    guide = (ROOT / "docs" / "guide" / "training.md").read_text()
    commands = re.findall(r"^.*obrs train (\S+)(.*)$", "\n".join(re.findall(r"```sh\n(.*?)```", guide, re.S)), re.M)
    assert len(commands) >= 8
    for file, rest in commands:
        given = re.findall(r"--(?!out|resume)([a-z-]+) (\S+)", rest.split("#")[0])
        override(read_config(ROOT / file), {name.replace("-", "_"): value for name, value in given})


def test_every_field_is_in_the_guide():
    guide = (ROOT / "docs" / "guide" / "training.md").read_text()
    assert not [field.name for field in fields(TrainConfig) if f"`{field.name}`" not in guide]


# Mistakes


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["train", "--budget", "4", "run.toml"], "CONFIG comes before all fields, got --budget"),
        (["train", "--steps", "5"], "CONFIG comes before all fields, got --steps"),
        (["reproduce", "--steps", "5", "tw-obrs"], "NAME comes before all fields, got --steps"),
        (["train", "run.toml", "--critic-lr", "1", "--critic_lr=2"], "--critic_lr is given twice"),
        (["train", "folder"], "folder is a folder; did you mean folder/config.json?"),
    ],
)
def test_a_command_that_is_put_together_wrongly_is_one_line(tmp_path, monkeypatch, capsys, words, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "run.toml").write_text(SMALL)
    assert main(words) == 2
    assert capsys.readouterr().err == f"error: {line}\n"


def test_ctrl_c_before_the_first_step_is_said(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    (tmp_path / "run.toml").write_text(SMALL)
    monkeypatch.setattr("obrs.training.loop.train", interrupted)
    assert main(["train", str(tmp_path / "run.toml"), "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "interrupted before the first step\n"
