"""`python -m paper train` as a new user meets it, and networks of one's own."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from small_run import SMALL
from torch import nn

from obrs.errors import InputError, Interrupted
from obrs.training.config import TrainConfig, override, read_config
from obrs.training.loop import train
from obrs.training.trained import load_trained
from paper.__main__ import main

ROOT = Path(__file__).parents[2]
FILE = "data = 'grid25'\ngenerator_loss = 'paper_raw'\nsteps = 2\nbatch_size = 8\ndata_size = 64\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a file of settings, which is the present one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "run.toml").write_text(FILE)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nothing.toml"], "nothing.toml is missing or not a file"),
        (["folder"], "folder is a folder; did you mean folder/config.json?"),
        (["run.toml", "--critic-lr", "1", "--critic_lr=2"], "--critic_lr is given twice"),
        (["run.toml", "--stpes", "5"], "unknown option 'stpes'; did you mean 'steps'?"),
        (["run.toml", "--data", "gird25"], "unknown data 'gird25'; did you mean 'grid25'?"),
        (["--resume"], "the following arguments are required: config"),
    ],
)
def test_a_command_that_is_put_together_wrongly_is_one_line(place, capsys, words, line):
    assert main(["train", *words]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {line}")
    assert (printed.out, printed.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(("rank", "who"), [(None, ""), ("0", ""), ("1", "process 1: ")])
def test_another_process_than_the_first_says_which_one_it_is(place, monkeypatch, capsys, rank, who):
    def interrupted(*_, **__):
        raise Interrupted("interrupted after step 1", None)

    monkeypatch.setattr("obrs.training.loop.train", interrupted)
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", "run.toml"]) == 130
    assert capsys.readouterr().err == f"{who}interrupted after step 1\n"
    assert main(["train", "nothing.toml"]) == 2
    assert capsys.readouterr() == ("", f"{who}error: nothing.toml is missing or not a file\n")


def test_ctrl_c_before_the_first_step_is_one_line(place, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("obrs.training.loop.train", interrupted)
    assert main(["train", "run.toml"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_run_does_not_overwrite_its_configuration(place, capsys):
    TrainConfig(data="grid25", generator_loss="dual", steps=1, data_size=64).save(place / "folder" / "config.json")
    before = (place / "folder" / "config.json").read_text()
    assert main(["train", "folder/config.json", "--out", "folder", "--batch-size", "8"]) == 2
    assert "would overwrite the input folder/config.json" in capsys.readouterr().err
    assert (place / "folder" / "config.json").read_text() == before


def test_loading_networks_of_ones_own_says_how(tmp_path):
    def own():
        generator = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
        return generator, nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1), nn.Flatten(0))

    generator, critic = own()
    train(SMALL, generator=generator, critic=critic, out=tmp_path)
    way_out = r"if train was given networks, pass them: generator=\.\.\., critic=\.\.\.$"
    with pytest.raises(InputError, match=f"was made by another generator: .*; {way_out}"):
        load_trained(tmp_path)
    with pytest.raises(InputError, match=f"was made by another critic: .*; {way_out}"):
        load_trained(tmp_path, generator=own()[0])
    with pytest.raises(InputError, match=r"was made by another generator: .*; use that run's network$"):
        load_trained(tmp_path, generator=nn.Linear(2, 2), critic=critic)
    loaded = load_trained(tmp_path, generator=own()[0], critic=own()[1])
    assert loaded.propose(range(3)).shape == (3, 2)


def test_the_guide_has_every_field_and_its_commands_use_files_that_are_there():
    guide = (ROOT / "docs" / "guide" / "training.md").read_text()
    assert not [field.name for field in fields(TrainConfig) if f"`{field.name}`" not in guide]
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", guide, re.S))
    commands = re.findall(r"^.*paper train (examples/\S+)(.*)$", blocks, re.M)
    assert commands
    for file, rest in commands:
        given = re.findall(r"--(?!out|resume)([a-z0-9._-]+) (\S+)", rest.split("#")[0])
        override(read_config(ROOT / file), {name.replace("-", "_"): value for name, value in given})
