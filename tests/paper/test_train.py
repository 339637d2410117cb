"""Settings of training in files, stages, two critics, and `python -m paper train`."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from training.small_run import same
from training.tw_gradients import MIDDLE, MIXED, loss_gradient, true_gradient

import obrs
import paper
from obrs.errors import InputError, UnknownNameError
from obrs.models.mlp import mlp_critic, mlp_generator
from obrs.training.losses import generator_loss
from obrs.training.trained import checkpoints
from paper.__main__ import main
from paper.train import build_networks, load_run, read_settings, stages, train, two_critics

ROOT = Path(paper.__file__).parents[1]
FILE = """
data = "grid25"
data_size = 64
batch_size = 8
budget = 4
steps = 2
[[stage]]
loss = "non_saturating"
[[stage]]
new_critic = true
critic = { name = "mlp_critic", activation = "silu", waves = 64 }
warm_up = 1
loss = "exact"
"""


def small(critic=8, **changes):
    """Settings of a run that takes a moment."""
    networks = {"generator": {"name": "mlp_generator", "width": 8}, "critic": {"name": "mlp_critic", "width": critic}}
    return networks | {"data": "grid25", "loss": "dual", "steps": 4, "batch_size": 16, "data_size": 64} | changes


@pytest.fixture
def file(tmp_path):
    (tmp_path / "run.toml").write_text(FILE)
    return tmp_path / "run.toml"


# Runs


def test_stages_go_on_after_a_stop_and_are_loaded_again(tmp_path, file):
    settings = read_settings(file) | {"save_every": 1, "keep": 9, "log_every": 1}
    whole = train(settings, out=tmp_path / "whole")
    assert [(row["stage"], row["step"]) for row in whole.log] == [(1, 1), (1, 2), (2, 3), (2, 4), (2, 5)]
    assert same(whole, train(settings))
    loaded = load_run(tmp_path / "whole")
    assert loaded.critic.spec["waves"] == 64
    assert torch.equal(loaded.propose(range(9)), whole.propose(range(9)))
    for path in checkpoints(tmp_path / "whole" / "stage-2")[2:]:
        path.unlink()
    assert same(whole, train(settings, out=tmp_path / "whole"))
    with pytest.raises(InputError, match=r"was made with budget=4, got 3\.0"):
        train(settings | {"budget": 3.0}, out=tmp_path / "whole")


def test_a_run_starts_from_another_and_takes_the_generator_alone_for_a_new_critic(tmp_path):
    start = train(small(loss="hinge"), out=tmp_path / "start")
    frozen = {"start_from": str(tmp_path / "start"), "lr": (0.0, 0.0), "loss": "exact"}
    kept, fresh = train(small(**frozen)), train(small(critic=4, new_critic=True, **frozen))
    for run in (kept, fresh):
        for key, x in start.state.tensors.items():
            assert not key.startswith("generator/") or torch.equal(x, run.state.tensors[key])
    assert torch.equal(kept.critic[1].weight, start.critic[1].weight)
    assert fresh.critic.spec["width"] == 4


def test_what_does_not_fit_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("OBRS_DATA", str(tmp_path))
    for settings, line in (
        (small(loss="exat"), "did you mean 'exact'"),
        (small(loss=None), "name a loss="),
        (small(stpes=3), "did you mean 'steps'"),
        (small(stage=[{"seed": 3}]), "seed is the same in all stages; set it before them"),
        (small(lr=1e-3), r"lr must be like \(0\.001, 0\.002\), got 0\.001"),
        (small() | {"critic": {"name": "conv_critic"}}, "is for images"),
        (small() | {"critic": {"name": "mlp_critic", "widht": 3}}, "widht"),
        (small(data="gird25"), "did you mean 'grid25'"),
        (small(data="mnist"), "run `python -m paper fetch mnist`"),
    ):
        with pytest.raises((InputError, UnknownNameError), match=line):
            train(settings)


# Two critics


@pytest.mark.parametrize("name", ["kl", "gan", "hellinger"])
@pytest.mark.parametrize("model", [MIDDLE, MIXED], ids=["gaussian", "mixture"])
def test_two_critics_have_the_gradient_of_the_divergence_after_rejection(name, model):
    dual = generator_loss("dual", name)

    def terms(log_ratio, cut):
        kept = cut.log_a(log_ratio.detach()) - cut.log_rate
        return kept.exp() * dual.terms(cut.log_u(log_ratio), None)

    truth = true_gradient(name, model, 2.0)
    np.testing.assert_allclose(loss_gradient(terms, model, 2.0), truth, rtol=0, atol=1e-3 * np.linalg.norm(truth))


def test_the_first_of_two_critics_learns_what_is_kept():
    real, fake = torch.randn(64, 2), torch.randn(64, 2, requires_grad=True)
    of_critic, of_generator = two_critics("gan", 2.0)
    log_r = fake[:, 1].detach()
    a = torch.clamp(log_r + obrs.solve_log_c(log_r, 2.0), max=0).exp()
    softplus, kept = torch.nn.functional.softplus, a / a.mean()
    by_hand = softplus(-real).mean() * 2 + (kept * softplus(fake[:, 0])).mean() + softplus(fake[:, 1]).mean()
    value = of_critic(real, fake)
    torch.testing.assert_close(*(torch.autograd.grad(loss, fake)[0] for loss in (value, by_hand)))
    (gradient,) = torch.autograd.grad(of_generator(fake, None), fake)
    torch.testing.assert_close(gradient[:, 0], -kept * torch.sigmoid(fake[:, 0].detach()) / 64)
    assert not gradient[:, 1].any()
    networks, settings = (mlp_generator(width=8), mlp_critic(width=8, heads=2)), {"steps": 2, "batch_size": 16}
    run = obrs.train(*networks, torch.randn(64, 2), loss=two_critics("gan", 2.0), budget=2, latent=2, **settings)
    assert run.log_ratio(run.propose(range(3))).shape == (3,)


# The command


def test_the_command_trains_says_what_to_do_and_goes_on(tmp_path, file, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["train", "run.toml", "--budget", "3", "--steps=1"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "trained 3 steps (non_saturating, then exact): runs/run"
        assert lines[2] == "sample it:  run.sample(1000, budget=3)"
    assert len(load_run("runs/run").sample(5, budget=3)) == 5
    for words, line in (
        (["nothing.toml"], "nothing.toml is missing or not a file"),
        (["run.toml", "--steps", "many"], "steps must be a whole number"),
        (["run.toml", "--budget", "1", "--budget=2"], "--budget is given twice"),
        (["broken.toml"], "broken.toml cannot be read"),
    ):
        (tmp_path / "broken.toml").write_text("steps = ")
        assert main(["train", *words, "--out", "other"]) == 2
        printed = capsys.readouterr()
        assert line in printed.err
        assert (printed.out, printed.err.count("\n")) == ("", 1)


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.toml")))
def test_an_example_names_networks_that_can_be_built_and_a_loss(name):
    settings = read_settings(ROOT / "examples" / name)
    shape = {"grid25": (2,), "digits": (1, 8, 8), "fashion_mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
    with torch.device("meta"):
        build_networks(settings, shape[settings["data"]], 10 if settings.get("classes") else 0)
    assert all(stage["loss"] for stage in stages(settings))


def test_two_processes_train_a_file_as_one_does(tmp_path, file):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "paper"]
    inside = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    inside["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [*launch, "train", "run.toml", "--out", "two"]
    for _ in range(4):  # a thread of gloo may abort a process that has done its work
        run = {"cwd": tmp_path, "env": os.environ | inside, "capture_output": True, "text": True}
        done = subprocess.run(command, check=False, **run)
        if "SIGABRT" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained 5 steps") == 1
    alone, together = train(read_settings(file)), load_run(tmp_path / "two")
    for key, expected in alone.state.tensors.items():
        torch.testing.assert_close(together.state.tensors[key], expected, rtol=0, atol=1e-6)
