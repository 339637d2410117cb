"""The programs that the guide points to: a plain loop, a module as Lightning has it, and fine-tuning."""

import re
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    def run(name, *arguments):
        monkeypatch.setattr("sys.argv", [name, *arguments])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            runpy.run_path(str(EXAMPLES / f"{name}.py"))
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize("name", ["train_loop", "train_lightning"])
def test_a_loop_of_ones_own_learns_the_spread_of_the_data(run, name):
    (line,) = run(name)
    spread = [float(x) for x in re.search(r"spread (\S+) and (\S+),", line).groups()]
    assert spread == pytest.approx([1.0, 0.98], abs=0.25)  # untrained it is 0.03


@pytest.mark.slow
def test_fine_tuning_says_what_is_left_before_and_after(run):
    lines = run("finetune", "3", "3", "3")
    assert len(lines) == 2
    assert all("after rejection at K = 2" in line for line in lines)
