"""Settings of training in files, stages, two critics, and `python -m paper train`."""

import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from training.tw_gradients import MIDDLE, MIXED, loss_gradient, true_gradient

import obrs
import paper
from obrs.errors import BudgetError, InputError, UnknownNameError
from obrs.models.mlp import mlp_critic, mlp_generator
from obrs.training.losses import generator_loss
from obrs.training.trained import checkpoints
from paper.__main__ import main
from paper.train import TrainConfig, load_run, read_config, train, two_critics

ROOT = Path(paper.__file__).parents[1]
SMALL = TrainConfig(data="grid25", generator_loss="dual", steps=4, batch_size=16, data_size=64, critic_width=8)
SMALL = replace(SMALL, generator_width=8, log_every=100)
FILE = """
data = "grid25"
data_size = 64
batch_size = 8
budget = 4
steps = 2
[[stage]]
generator_loss = "non_saturating"
[[stage]]
new_critic = true
critic_network = "fourier"
warm_up = 1
generator_loss = "exact"
"""


def same(one, other):
    a, b = one.state.tensors, other.state.tensors
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


# Settings


def test_settings_come_back_from_files(tmp_path):
    (tmp_path / "run.toml").write_text(FILE + "steps = 10\n")
    config = read_config(tmp_path / "run.toml")
    assert [(s.generator_loss, s.steps, s.critic_network) for s in config.stages] == [
        ("non_saturating", 2, ""),
        ("exact", 10, "fourier"),
    ]


@pytest.mark.parametrize(
    ("values", "error", "line"),
    [
        ({"budget": 0.5}, BudgetError, "did you mean budget=2"),
        ({"generator_loss": "exat"}, UnknownNameError, "did you mean 'exact'?"),
        ({"stage": [{"stpes": 3}]}, UnknownNameError, "did you mean 'steps'?"),
        ({"stage": [{}, {"seed": 3}]}, InputError, "seed is the same in all stages; set it before them"),
    ],
)
def test_a_wrong_value_is_one_line(values, error, line):
    with pytest.raises(error) as caught:
        TrainConfig(**values)
    assert line in str(caught.value)


# Runs


def test_stages_go_on_after_a_stop_and_are_loaded_again(tmp_path):
    (tmp_path / "run.toml").write_text(FILE)
    config = replace(read_config(tmp_path / "run.toml"), save_every=1, keep=9, log_every=1)
    whole = train(config, out=tmp_path / "whole")
    assert [(row["stage"], row["step"]) for row in whole.log] == [(1, 1), (1, 2), (2, 3), (2, 4), (2, 5)]
    assert same(whole, train(config))
    loaded = load_run(tmp_path / "whole")
    assert loaded.critic.spec["name"] == "fourier_critic"
    assert torch.equal(loaded.propose(range(9)), whole.propose(range(9)))
    early = load_run(tmp_path / "whole", checkpoints(tmp_path / "whole" / "stage-1")[1])
    assert (early.critic.spec["name"], early.state.facts["step"]) == ("mlp_critic", 1)
    for path in checkpoints(tmp_path / "whole" / "stage-2")[2:]:
        path.unlink()
    assert same(whole, train(config, out=tmp_path / "whole"))
    with pytest.raises(InputError, match=r"was made with budget=4, got 3\.0"):
        train(replace(config, budget=3.0), out=tmp_path / "whole")


def test_a_run_starts_from_another_and_takes_the_generator_alone_for_a_new_critic(tmp_path):
    start = train(replace(SMALL, generator_loss="hinge"), out=tmp_path / "start")
    frozen = {"start_from": str(tmp_path / "start"), "generator_lr": 0.0, "critic_lr": 0.0}
    kept = train(replace(SMALL, generator_loss="exact", **frozen))
    fresh = train(replace(SMALL, generator_loss="exact", new_critic=True, critic_width=4, **frozen))
    for run in (kept, fresh):
        tensors = run.state.tensors
        assert all(
            torch.equal(x, tensors[key]) for key, x in start.state.tensors.items() if key.startswith("generator/")
        )
    assert torch.equal(kept.critic[1].weight, start.critic[1].weight)
    assert fresh.critic.spec["width"] == 4
    critic = kept.critic.requires_grad_(True)
    with pytest.raises(InputError, match="a stage asks for a new critic; leave out critic="):
        train(replace(SMALL, stage=({}, {"new_critic": True})), critic=critic)


def test_what_no_network_or_loss_fits_is_one_line():
    for changes, line in (
        ({"network": "conv"}, "needs square images"),
        ({"generator_loss": "wgan"}, "wgan needs a critic of bounded slope"),
        ({"classes": True}, "classes=true needs labels"),
        ({"generator_loss": ""}, "name a generator_loss"),
        ({"data": "gird25"}, "did you mean 'grid25'"),
    ):
        with pytest.raises((InputError, UnknownNameError), match=line):
            train(replace(SMALL, **changes))


def test_images_that_are_not_here_come_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("OBRS_DATA", str(tmp_path))
    with pytest.raises(InputError, match="run `python -m paper fetch mnist`"):
        train(replace(SMALL, data="mnist"))


# What settings computed before the trainer was rebuilt: sums of all weights
BEFORE = {
    "paper_raw": ({"generator_loss": "paper_raw", "critic_lr": 1e-3, "ema_decay": 0.0}, 13.636410829494707),
    "exact": (
        {"generator_loss": "exact", "constant_every": 2, "critic_steps": 2, "parts": 2, "ema_decay": 0.9}
        | {"ema_start": 2, "budget": 1.05, "critic_lr": 1e-2},
        39.28391484133317,
    ),
    "hinge": (
        {"generator_loss": "hinge", "two_heads": True, "spectral_norm": True, "gradient_penalty": 0.5}
        | {"ema_decay": 0.0, "critic_lr": 1e-3},
        13.55754809199425,
    ),
}


@pytest.mark.parametrize("name", BEFORE)
def test_the_same_settings_give_the_networks_that_they_gave(name):
    changes, total = BEFORE[name]
    config = replace(SMALL, steps=5, batch_size=32, data_size=128, generator_width=16, critic_width=16, **changes)
    tensors = train(config).state.tensors
    found = sum(x.double().sum() for key, x in tensors.items() if key.split("/")[0] in ("generator", "critic", "ema"))
    assert float(found) == pytest.approx(total, abs=1e-4)


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
    found = of_critic(real, fake)
    torch.testing.assert_close(*(torch.autograd.grad(loss, fake)[0] for loss in (found, by_hand)))
    (gradient,) = torch.autograd.grad(of_generator(fake, None), fake)
    torch.testing.assert_close(gradient[:, 0], -kept * torch.sigmoid(fake[:, 0].detach()) / 64)
    assert not gradient[:, 1].any()
    networks, settings = (mlp_generator(width=8), mlp_critic(width=8, heads=2)), {"steps": 2, "batch_size": 16}
    run = obrs.train(*networks, torch.randn(64, 2), loss=two_critics("gan", 2.0), budget=2, latent=2, **settings)
    assert run.log_ratio(run.propose(range(3))).shape == (3,)


# The command


def test_the_command_trains_says_what_to_do_and_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(FILE.replace("steps = 2", "steps = 1"))
    for _ in range(2):
        assert main(["train", "run.toml", "--budget", "3"]) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0] == "trained 3 steps (non_saturating, then exact): runs/run"
        assert said[2] == "sample it:  run.sample(1000, budget=3)"
    assert len(load_run("runs/run").sample(5, budget=3)) == 5


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nothing.toml"], "nothing.toml is missing or not a file"),
        (["run.toml", "--critic-lr", "1", "--critic_lr=2"], "--critic_lr is given twice"),
        (["run.toml", "--stpes", "3"], "unknown option 'stpes'; did you mean 'steps'?"),
        (["run.toml", "--steps", "many"], "--steps must be int, got 'many'"),
        (["broken.toml"], "broken.toml cannot be read"),
        (["other.toml"], "unknown key of other.toml 'budgte'; did you mean 'budget'?"),
    ],
)
def test_a_command_that_is_put_together_wrongly_is_one_line(tmp_path, monkeypatch, capsys, words, line):
    monkeypatch.chdir(tmp_path)
    for name, text in (("run", FILE), ("broken", "steps = "), ("other", "budgte = 2")):
        (tmp_path / f"{name}.toml").write_text(text)
    assert main(["train", *words]) == 2
    printed = capsys.readouterr()
    assert line in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.toml")))
def test_an_example_is_read_and_has_known_fields(name):
    config = read_config(ROOT / "examples" / name)
    assert all(stage.generator_loss for stage in config.stages)
    assert TrainConfig(**asdict(config)) == config


def test_two_processes_train_a_file_as_one_does(tmp_path):
    (tmp_path / "run.toml").write_text(FILE)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "paper"]
    inside = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    inside["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [*launch, "train", "run.toml", "--out", "two"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | inside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained 5 steps") == 1
    alone, together = train(read_config(tmp_path / "run.toml")), load_run(tmp_path / "two")
    for key, expected in alone.state.tensors.items():
        torch.testing.assert_close(together.state.tensors[key], expected, rtol=0, atol=1e-6)
