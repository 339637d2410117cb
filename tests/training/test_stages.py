"""Stages: what a run in stages computes, how it goes on after a stop anywhere, what it refuses."""

import os
import runpy
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from small_run import SMALL
from torch import nn
from torch.nn import functional as F

import obrs
from obrs.errors import BudgetError, InputError, InputTypeError, UnknownNameError
from obrs.training import checkpoints
from obrs.training.batches import Batches, load_data
from obrs.training.checkpoints import fingerprint
from obrs.training.config import TrainConfig, override, read_config
from obrs.training.journal import read_log
from obrs.training.loop import train
from obrs.training.networks import build_stages
from obrs.training.schedule import plan
from obrs.training.trained import load_trained
from paper.__main__ import main, read_fields

ROOT = Path(__file__).parents[2]
SMALL = replace(SMALL, critic_lr=1e-3)
# A warm-up, a kept and a new critic, noise and learning rates that fall, another batch.
STAGED = replace(
    SMALL,
    ema_decay=0.9,
    critic_lr=1e-2,
    budget=1.05,
    stage=(
        {"generator_loss": "non_saturating", "noise": 0.3, "noise_until": 0.7, "generator_decay_from": 0.5, "steps": 4},
        {"generator_loss": "dual", "noise": 0.0, "generator_decay_from": 1.0, "steps": 2, "r1": 0.1},
        {
            "new_critic": True,
            "critic_network": "fourier",
            "critic_width": 8,
            "critic_layers": 2,
            "warm_up": 3,
            "generator_loss": "exact",
            "batch_size": 48,
            "critic_steps": 2,
            "steps": 4,
        },
    ),
)


def weights(run):
    networks = [network for network in (run.generator, run.critic, run.ema) if network is not None]
    return [tensor for network in networks for tensor in network.state_dict().values()]


def same(one, other):
    return fingerprint(*weights(one)) == fingerprint(*weights(other))


def without_time(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


# What it computes

# Sums and hashes of all weights as they were before there were stages.
BEFORE = {
    "paper_raw": (SMALL, 13.636410829494707, "2d0480959654d806"),
    "exact": (
        replace(
            SMALL,
            generator_loss="exact",
            constant_every=2,
            critic_steps=2,
            parts=2,
            ema_decay=0.9,
            ema_start=2,
            budget=1.05,
            critic_lr=1e-2,
        ),
        39.28391484133317,
        "c9143f1dfda0dd56",
    ),
    "hinge": (
        replace(SMALL, generator_loss="hinge", two_heads=True, spectral_norm=True, gradient_penalty=0.5),
        13.55754809199425,
        "1c1513f5ebcf58de",
    ),
    "two_critics": (
        replace(SMALL, generator_loss="two_critics", budget=1.05, critic_lr=1e-2),
        15.820639362791553,
        "9eaa9d4b7f2afe9a",
    ),
}


@pytest.mark.parametrize("name", BEFORE)
def test_a_run_without_stages_is_what_it_was_before_there_were_stages(name):
    config, total, bits = BEFORE[name]
    run = train(replace(config, steps=5))
    assert float(sum(x.double().sum() for x in weights(run))) == pytest.approx(total, abs=1e-4)
    if (torch.__version__, torch.backends.cpu.get_cpu_capability()) == ("2.13.0+cpu", "AVX512"):
        assert fingerprint(*weights(run)) == bits  # elsewhere sums are rounded in another order


def test_a_stage_that_changes_nothing_is_no_border():
    config = replace(SMALL, generator_loss="exact", constant_every=2, critic_steps=2, ema_decay=0.9)
    assert same(train(replace(config, stage=({"steps": 2}, {}, {"steps": 3}))), train(replace(config, steps=7)))


def test_a_run_in_stages_is_the_algorithm_written_out_by_hand():
    run = train(STAGED)
    stages = plan(STAGED)
    data = load_data(STAGED)
    generator, critics = build_stages(stages, (1, 1, 1), (2,), 0)
    assert critics[0] is critics[1]
    ema = [w.detach().clone() for w in generator.parameters()]
    seen, adam = [], {}
    steps = [(at, step) for at, stage in enumerate(stages) for step in range(stage.first, stage.last)]
    for at, step in steps:
        stage, critic = stages[at], critics[at]
        batches, one = Batches(data, stage.config, stage=stage), stage.number == 1
        if critic not in adam:
            for network, lr in ((generator, 1e-3), (critic, 1e-2)):
                adam[network] = torch.optim.Adam(network.parameters(), lr, (0.5, 0.999))
        sd = 0.3 * max(1 - step / 4 / 0.7, 0) if one else 0.0
        alone = stage.number == 3 and step < 9
        for turn in range(2 if stage.number == 3 and not alone else 1):
            real, z = batches.real(step, turn, 0)[0], batches.latent(step, turn, 0)[0]
            seen.append(real)
            fake = generator(z).detach()
            if sd:
                real = real + sd * batches.noise(step, turn, 0, real=True)
                fake = fake + sd * batches.noise(step, turn, 0)
            loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
            if not one:
                where = real.clone().requires_grad_()
                (slope,) = torch.autograd.grad(critic(where).sum(), where, create_graph=True)
                loss = loss + 0.1 / 2 * slope.square().sum(1).mean()
            adam[critic].zero_grad()
            loss.backward()
            adam[critic].step()
        if alone:
            continue
        fake = generator(batches.latent(step, -1, 0)[0])
        log_r = critic(fake + sd * batches.noise(step, -1, 0) if sd else fake)
        if one:
            loss = F.softplus(-log_r).mean()
        elif stage.number == 2:
            loss = -F.softplus(log_r).mean()
        else:
            log_c = obrs.solve_log_c(log_r.detach(), 1.05)
            rate = torch.clamp(log_r.detach() + log_c, max=0).exp().mean()
            loss = -F.softplus(torch.maximum(log_r, -log_c) + rate.log()).mean() / rate
        adam[generator].param_groups[0]["lr"] = 1e-3 * (1 - 0.98 * max(step / 4 - 0.5, 0) / 0.5) if one else 1e-3
        adam[generator].zero_grad()
        loss.backward()
        adam[generator].step()
        ema = [torch.lerp(old, new.detach(), 0.1) for old, new in zip(ema, generator.parameters(), strict=True)]
    for made, expected in ((run.generator, generator), (run.critic, critics[2])):
        for a, b in zip(made.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=0, atol=2e-5)
    for a, b in zip(run.ema.parameters(), ema, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-5)
    # 6 batches of 32, 3 of 48 in the warm-up, 8 of 48: the data in a new order each time that all were seen
    x = torch.cat(seen)
    assert len(x) == 6 * 32 + 11 * 48
    for epoch in x[: len(x) // 128 * 128].split(128):
        assert torch.equal(epoch.sort(0).values, data.x.sort(0).values)


def test_the_log_names_the_stage_and_ends_a_line_where_the_generator_begins():
    run = train(replace(STAGED, log_every=100))
    assert [(row["step"], row["stage"], "generator" in row) for row in run.log] == [
        (4, 1, True),
        (6, 2, True),
        (9, 3, False),
        (13, 3, True),
    ]


def test_noise_that_does_not_fall_is_the_same_at_every_step():
    (stage,) = plan(replace(SMALL, noise=0.2, noise_until=0.0))
    assert [stage.noise(step) for step in range(3)] == [0.2] * 3


def test_a_fourier_critic_learns_narrow_modes_sooner_than_relus():
    from obrs.models.fourier import FourierCritic
    from obrs.models.mlp import mlp_critic

    x = load_data(replace(SMALL, data_size=20_000)).x
    fake = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(1))
    left = []
    for make in (FourierCritic, lambda: mlp_critic(width=64)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            critic = make()
        adam = torch.optim.Adam(critic.parameters(), 2e-3, (0.5, 0.999))
        for step in range(150):
            at = slice(128 * step % 19_000, 128 * step % 19_000 + 128)
            loss = F.softplus(-critic(x[at])).mean() + F.softplus(critic(fake[at])).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
        with torch.no_grad():
            left.append(float(F.softplus(-critic(x)).mean() + F.softplus(critic(fake)).mean()))
    assert left[0] < 0.5 * 2 * log(2) < left[1] - 0.2, left


# Stop and go on


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in stages that kept every checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    run = train(replace(STAGED, save_every=1, keep=100), out=folder)
    return run, folder


def stopped(folder, step, target):
    """The folder as it was on the disk after a step."""
    (target / "checkpoints").mkdir(parents=True)
    shutil.copy(folder / "config.json", target)
    lines = (folder / "log.jsonl").read_text().splitlines(keepends=True)
    (target / "log.jsonl").write_text("".join(lines[: step + 1]))  # one more line than the checkpoint knows of
    for path in checkpoints.checkpoints(folder / "checkpoints")[: step + 1]:
        shutil.copy(path, target / "checkpoints")
    return target


@pytest.mark.parametrize("step", [2, 4, 5, 6, 7, 9, 11])
def test_a_run_goes_on_to_the_same_bits_from_inside_every_stage_and_from_every_border(whole, tmp_path, step):
    run, folder = whole
    again = train(run.config, out=stopped(folder, step, tmp_path / "stopped"), resume=True)
    name = "checkpoints/step-00000013.safetensors"
    assert (tmp_path / "stopped" / name).read_bytes() == (folder / name).read_bytes()
    assert without_time(read_log(tmp_path / "stopped" / "log.jsonl")) == without_time(run.log)
    assert same(run, again)


def test_a_checkpoint_is_loaded_with_the_critic_and_the_losses_of_its_stage(whole):
    run, folder = whole
    specs = []
    for step in (0, 4, 6, 9, 13):
        loaded = load_trained(folder / "checkpoints" / f"step-{step:08d}.safetensors")
        specs.append((loaded.stage, loaded.critic.spec["name"]))
        assert loaded.log_ratio(loaded.propose(range(5))).shape == (5,)
    assert specs == [(n, "fourier_critic" if n == 3 else "mlp_critic") for n in (1, 1, 2, 3, 3)]
    assert same(run, loaded)
    x = run.propose(range(5))
    assert torch.equal(run.log_ratio(x), loaded.log_ratio(x))


KILLED = """
import os, signal, sys
import paper.named
from obrs.training import checkpoints, loop, read_config

save = checkpoints.save
def killed(folder, step, *more, **options):
    save(folder, step, *more, **options)
    if step == 6:
        os.kill(os.getpid(), signal.SIGKILL)

checkpoints.save = killed
loop.train(read_config("config.json"), out="run")
"""


@pytest.mark.slow
def test_a_process_that_is_killed_at_a_border_goes_on_to_the_same_bits(whole, tmp_path):
    run, folder = whole
    run.config.save(tmp_path / "config.json")
    inside = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, env=inside, check=False)
    assert done.returncode == -signal.SIGKILL
    assert checkpoints.latest(tmp_path / "run").name == "step-00000006.safetensors"
    assert main(["train", str(tmp_path / "config.json"), "--out", str(tmp_path / "run"), "--resume"]) == 0
    name = "checkpoints/step-00000013.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (folder / name).read_bytes()


def test_a_finished_run_goes_on_with_one_more_stage(whole, tmp_path):
    run, folder = whole
    more = replace(run.config, stage=(*run.config.stage, {"warm_up": 0, "new_critic": False, "steps": 2}))
    again = train(more, out=stopped(folder, 13, tmp_path / "more"), resume=True)
    assert same(again, train(replace(more, save_every=1000)))
    assert again.log[-1]["step"] == 15


@pytest.mark.parametrize(
    ("done", "changes", "line"),
    [
        (5, {"stage.2.steps": "3", "stage.1.steps": "3"}, "was made with steps=4 in stage 1, got 3; resume with that"),
        (9, {"stage.3.steps": "0"}, "stage 3: steps must be at least 1, got 0"),
        (2, {"stage.1.steps": "6"}, "its noise or learning rates follow from that; resume with that, or add a stage"),
        (6, {"stage.1.noise": "0.2"}, "was made with noise=0.3 in stage 1, got 0.2"),
        (6, {"stage.3.budget": "3"}, "was made with budget=1.05 in stage 3, got 3.0"),
    ],
)
def test_a_run_in_stages_is_not_resumed_as_another_one(whole, tmp_path, done, changes, line):
    run, folder = whole
    target = stopped(folder, done, tmp_path / "stopped")
    with pytest.raises(InputError, match=line):
        train(override(run.config, changes), out=target, resume=True)


@pytest.mark.parametrize(("done", "stage"), [(5, 2), (6, 2), (6, 3), (9, 3), (11, 3), (13, 3)])
def test_a_stage_that_is_not_over_may_get_longer(whole, tmp_path, done, stage):
    run, folder = whole
    longer = override(run.config, {f"stage.{stage}.steps": "6"})
    again = train(longer, out=stopped(folder, done, tmp_path / "stopped"), resume=True)
    assert same(again, train(longer))


def test_a_run_has_no_fewer_stages_when_it_goes_on(whole, tmp_path):
    run, folder = whole
    fewer, target = replace(run.config, stage=run.config.stage[:2]), stopped(folder, 6, tmp_path / "stopped")
    with pytest.raises(InputError, match="was made with 3 stages, got 2; resume with all of them"):
        train(fewer, out=target, resume=True)


def test_a_new_critic_in_the_first_stage_takes_the_generator_alone_from_another_run(tmp_path):
    start = train(replace(SMALL, generator_loss="hinge"), out=tmp_path / "start")
    tuned = replace(SMALL, start_from=str(tmp_path / "start"), generator_loss="exact", warm_up=2, seed=1)
    fresh = train(replace(tuned, new_critic=True, critic_width=8), out=tmp_path / "fresh")
    first = load_trained(tmp_path / "fresh" / "checkpoints" / "step-00000000.safetensors")
    assert fingerprint(*first.generator.parameters()) == fingerprint(*start.generator.parameters())
    assert fresh.critic.spec["width"] == 8
    kept = train(tuned, out=tmp_path / "kept")
    first = load_trained(tmp_path / "kept" / "checkpoints" / "step-00000000.safetensors")
    assert fingerprint(*first.critic.parameters()) == fingerprint(*start.critic.parameters())
    assert kept.log[-1]["step"] == 5


# The file and the command line

TOML = """
data = "grid25"
ema_decay = 0
critic_lr = 1e-3
batch_size = 8
data_size = 64
budget = 4

[[stage]]
steps = 2
generator_loss = "non_saturating"

[[stage]]
new_critic = true
critic_network = "fourier"
warm_up = 1
generator_loss = "exact"
"""


def test_the_command_runs_the_stages_of_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(TOML)
    assert main(["train", "run.toml", "--budget", "3", "--stage.2.steps", "3"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "trained 6 steps in 2 stages: runs/run"
    assert said[2].endswith("budget=3)")
    assert said[3].endswith("--resume --stage.2.steps 6")
    run = load_trained("runs/run")
    assert [stage.budget for stage in run.config.stages] == [3, 3]
    assert main(said[3].split()[6:]) == 0
    assert load_trained("runs/run").log[-1]["step"] == 9


def test_a_configuration_with_stages_comes_back_from_its_file(tmp_path):
    (tmp_path / "run.toml").write_text(TOML)
    config = read_config(tmp_path / "run.toml")
    config.save(tmp_path / "config.json")
    assert read_config(tmp_path / "config.json") == config
    assert [stage.generator_loss for stage in config.stages] == ["non_saturating", "exact"]
    assert [stage.steps for stage in config.stages] == [2, 2]


@pytest.mark.parametrize(
    ("stage", "error", "line"),
    [
        ([{"stpes": 3}], UnknownNameError, "unknown key 'stpes' of stage 1; did you mean 'steps'?"),
        ([{}, {"seed": 3}], InputError, "seed is the same in all stages; set it before them, not in stage 2"),
        ([{"budget": 0.5}], BudgetError, "stage 1: budget must be at least 1 proposal per sample, got 0.5"),
        ([{}, {"steps": "many"}], InputTypeError, "steps must be a whole number, got 'many'"),
        (
            [{}, {"critic_width": 8}],
            InputError,
            "stage 2 has critic_width=8, and the critic that it keeps has 100; set new_critic=true in it",
        ),
        ([{}, {"generator_loss": "two_critics"}], InputError, "stage 2 has generator_loss='two_critics', and the"),
        ({"steps": 3}, InputTypeError, "stage must be a list of tables of fields ([[stage]] in TOML), got {'steps'"),
        ([{"noise_until": 1.5}], InputError, "stage 1: noise_until must be a share of 1, from 0 to 1, got 1.5"),
    ],
)
def test_a_mistake_in_a_stage_is_one_line(stage, error, line):
    with pytest.raises(error) as caught:
        TrainConfig(generator_loss="dual", stage=stage)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (["--steps", "3"], "stage 1 sets steps; say which one you mean: --stage.1.steps"),
        (["--generator-loss", "dual"], "stages 1, 2 set generator_loss; say which one you mean: --stage.2.gen"),
        (["--stage.3.steps", "3"], "a field of a stage is --stage.N.FIELD with N from 1 to 2, got --stage.3.steps"),
        (["--stage.steps", "3"], "a field of a stage is --stage.N.FIELD with N from 1 to 2, got --stage.steps"),
        (["--stage.2.stpes", "3"], "unknown option 'stpes'; did you mean 'steps'?"),
        (["--stage.2.steps"], "--stage.2.steps needs a value: a whole number"),
    ],
)
def test_a_mistake_about_stages_on_the_command_line_is_one_line(tmp_path, said, line):
    (tmp_path / "run.toml").write_text(TOML)
    with pytest.raises((InputError, UnknownNameError)) as caught:
        override(read_config(tmp_path / "run.toml"), read_fields(said))
    assert str(caught.value).startswith(line)
    with pytest.raises(InputError, match="is of a stage, and this configuration has none"):
        override(TrainConfig(generator_loss="dual"), {"stage.1.steps": "3"})


def test_a_critic_of_ones_own_is_not_replaced():
    critic = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1), nn.Flatten(0))
    with pytest.raises(InputError, match="a stage asks for a new critic, which train builds; leave out critic="):
        train(STAGED, critic=critic)
    kept = train(replace(SMALL, stage=({"steps": 1}, {"generator_loss": "exact"})), critic=critic)
    assert kept.critic is critic


def test_a_stage_that_cannot_be_trained_is_refused_before_the_first_step(tmp_path):
    later, images = {"new_critic": True, "critic_network": "fourier"}, np.zeros((64, 1, 4, 4)) - 1
    with pytest.raises(InputError, match=r"a Fourier critic is for points, shape \(dim,\), got samples of \(1, 4, 4\)"):
        train(replace(SMALL, stage=({}, later)), data=images, out=tmp_path)
    assert not list(tmp_path.iterdir())


# What is said once


def test_a_batch_larger_than_the_data_is_said_in_one_line():
    with pytest.warns(UserWarning, match=r"^batch_size 32 is larger than the data, 20 samples: a batch has some of"):
        train(replace(SMALL, data_size=20))


def test_a_critic_loss_of_another_divergence_is_said_in_one_line():
    said = r"^critic_loss 'kl' in stage 2 is of another divergence than the generator's, 'gan'; leave it out unless"
    with pytest.warns(UserWarning, match=said):
        train(replace(SMALL, stage=({}, {"critic_loss": "kl"})))


# Many processes


@pytest.mark.slow
def test_ctrl_c_in_two_processes_saves_once_and_both_go_on_to_the_same_bits(tmp_path):
    config = replace(STAGED, stage=({**STAGED.stage[0], "steps": 100_000}, *STAGED.stage[1:]), log_every=5)
    config.save(tmp_path / "config.json")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "paper"]
    command = [*launch, "train", "config.json", "--out", "run"]
    inside = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(
        command, cwd=tmp_path, env=inside, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        while len(read_log(tmp_path / "run" / "log.jsonl")) < 3:
            assert child.poll() is None, child.stderr.read()
            try:
                child.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        said = child.communicate(timeout=120)[1]
    finally:
        child.kill()
    kept = checkpoints.latest(tmp_path / "run")
    step = checkpoints.steps_done(kept)
    assert step >= 15, said
    assert step % 10 == 0, said
    assert f"interrupted after step {step}; run/checkpoints/{kept.name} is kept" in said
    with pytest.raises(InputError, match="was made by 2 processes, here are 1"):
        train(config, out=tmp_path / "run", resume=True)


# The example


def test_the_example_has_the_three_stages():
    stages = plan(read_config(ROOT / "examples" / "train-in-stages.toml"))
    assert [stage.config.generator_loss for stage in stages] == ["non_saturating", "dual", "exact"]
    assert [stage.config.warm_up for stage in stages] == [0, 400, 300]
    assert stages[2].config.critic_network == "fourier"
    assert stages[2].config.new_critic
    assert (stages[2].noise(0), stages[2].critic_lr(10**9)) == (0.0, 2e-3)
    assert stages[0].noise(0) == 0.3


def test_the_program_that_fine_tunes_a_generator_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["finetune.py", "3", "3", "3"])
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(ROOT / "examples" / "finetune.py"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all("after rejection at K = 2" in line for line in lines)
