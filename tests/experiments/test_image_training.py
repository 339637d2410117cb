"""Training on images: what is compared sees the same number of samples, and is what the paper's methods are."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from obrs.errors import InputError, UnknownNameError
from obrs.experiments import figure_frequency, figure_training, reproduce, table_finetune
from obrs.experiments.image_training import compared
from obrs.training.schedule import plan


@pytest.mark.parametrize("preset", ["smoke", "cpu"])
def test_all_ways_to_train_see_the_same_number_of_samples(preset):
    config = figure_training.PRESETS[preset]
    if preset == "cpu":
        config = figure_training.Config(data="digits")
    seen = set()
    for kind in figure_training.KINDS:
        stages = plan(figure_training.settings(config, kind, 0))
        assert sum(stage.config.steps for stage in stages) == config.steps
        seen.add((sum(s.config.steps * s.config.batch_size for s in stages), stages[-1].seen_before(stages[-1].last)))
    assert len(seen) == 1


def test_without_rejection_the_loss_is_the_mean_of_f():
    """The paper's code keeps K = 2 there, and descends E[2 f(r/2)]."""
    import torch

    from obrs.budget import solve_cut
    from obrs.training.step import objective

    config = figure_training.settings(figure_training.Config(data="digits"), "without", 0).stages[0]
    assert config.budget == 1
    log_r = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    r = log_r.exp()
    loss = objective(config).of_generator(log_r, solve_cut(log_r, config.budget))
    assert float(loss) == pytest.approx(float((r * log_r - (r + 1) * torch.log(r + 1)).mean()))


def test_a_generator_is_trained_further_with_a_new_critic_or_its_own():
    config = table_finetune.Config(data="digits")
    own, new = (table_finetune.settings(config, kind, 0) for kind in ("hinge", "exact"))
    assert own.two_heads
    assert not new.two_heads
    assert own.warm_up == new.warm_up == 200
    assert plan(own)[0].last == plan(new)[0].last


def test_gains_are_seed_by_seed():
    mean, error, gain, of_gain, seeds = compared({0: 1.0, 1: 2.0, 5: 9.0}, {0: 2.0, 1: 5.0})
    assert (mean, gain, seeds) == (4.0, 2.0, 2)
    assert of_gain == pytest.approx(1.0)
    assert error == pytest.approx(((9 + 4 + 25) / 2 / 3) ** 0.5)


@pytest.mark.parametrize(
    ("make", "error", "line"),
    [
        (lambda: figure_training.Config(kinds=("hing",)), UnknownNameError, "did you mean 'hinge'"),
        (lambda: figure_training.Config(shares=(0.5, 0.1, 0.1)), InputError, "three shares that sum to 1"),
        (lambda: figure_training.Config(steps=10, alone=5), InputError, "less than half of 10 steps, got 5"),
        (lambda: table_finetune.Config(kinds=()), InputError, "at least one kind of training"),
        (lambda: figure_frequency.Config(every=(0,)), InputError, "every must be a whole number of at least 1, got 0"),
        (lambda: figure_frequency.Config(pool=0), InputError, "pool must be a whole number of at least 1, got 0"),
    ],
)
def test_mistakes_are_one_line(make, error, line):
    with pytest.raises(error, match=line):
        make()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["figure-training", "table-finetune"])
def test_two_processes_find_what_one_does_and_the_first_writes_it(tmp_path, name):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "obrs"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [*launch, "reproduce", name, "--preset", "smoke", "--out", "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("result: ") == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"{name}.json", f"{name}.png"]
    together = json.loads((tmp_path / "out" / f"{name}.json").read_text())["rows"]
    alone = reproduce(name, "smoke").rows
    assert [row["row"] for row in together] == [row["row"] for row in alone]
    for row, expected in zip(together, alone, strict=True):
        for key in ("before", "after"):
            assert row[key] == pytest.approx(expected[key], rel=1e-4)
