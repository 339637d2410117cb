"""The loop: what it computes, how it goes on after a stop, when it refuses."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_run import SMALL, weights
from torch import nn
from torch.nn import functional as F

import obrs
from obrs.budget import solve_cut
from obrs.errors import DivergenceError, InputError, InputTypeError, UnknownNameError
from obrs.training import checkpoints
from obrs.training.averaging import average
from obrs.training.batches import Batches, load_data
from obrs.training.config import TrainConfig, override, read_config
from obrs.training.journal import note, read_log
from obrs.training.loop import train
from obrs.training.losses import GENERATOR_LOSSES, generator_loss, gradient_penalty
from obrs.training.networks import build_networks
from obrs.training.trained import load_trained
from obrs.training.watch import NotFiniteError
from paper.__main__ import main

ROOT = Path(__file__).parents[2]


def points(n=64, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2))


# What it computes


def test_a_run_is_the_algorithm_written_out_by_hand():
    config = replace(SMALL, critic_steps=2, parts=2, budget=1.05, generator_loss="exact", gradient_penalty=0.3)
    config = replace(config, ema_decay=0.9, ema_start=1, generator_betas=(0.0, 0.9), critic_lr=1e-2)
    run = train(config)

    data = load_data(config)
    batches = Batches(data, config)
    generator, critic = build_networks(config, (2,), 0, 1)
    g_step = torch.optim.Adam(generator.parameters(), 1e-3, (0.0, 0.9))
    c_step = torch.optim.Adam(critic.parameters(), 1e-2, (0.5, 0.999))
    ema = weights(generator)
    for step in range(3):
        for turn in range(2):
            c_step.zero_grad()
            for part in range(2):
                real, z, mix = (
                    batches.real(step, turn, part)[0],
                    batches.latent(step, turn, part)[0],
                    batches.mix(step, turn, part),
                )
                fake = generator(z).detach()
                loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
                between = (mix[:, None] * real + (1 - mix[:, None]) * fake).requires_grad_()
                (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
                ((loss + 0.3 * ((slope.norm(dim=1) - 1) ** 2).mean()) / 2).backward()
            c_step.step()
        g_step.zero_grad()
        z = torch.cat([batches.latent(step, -1, part)[0] for part in range(2)])
        log_r = critic(generator(z))
        log_c = obrs.solve_log_c(log_r.detach(), 1.05)
        rate = torch.clamp(log_r.detach() + log_c, max=0).exp().mean()
        left = torch.where(log_r > -log_c, log_r, -log_c) + rate.log()
        # f*(f'(u)) of the GAN divergence is log(1 + u) up to a constant
        (-F.softplus(left).mean() / rate).backward()
        g_step.step()
        ema = torch.lerp(ema, weights(generator), 0.1) if step >= 1 else weights(generator)
    torch.testing.assert_close(weights(run.generator), weights(generator), rtol=0, atol=2e-6)
    torch.testing.assert_close(weights(run.critic), weights(critic), rtol=0, atol=2e-5)
    torch.testing.assert_close(weights(run.ema), ema, rtol=0, atol=2e-6)
    assert run.log[-1]["log_c"] == pytest.approx(float(log_c), abs=1e-5)
    assert run.log[-1]["rate"] == pytest.approx(float(rate), abs=1e-5)
    ratio = log_r.detach().exp()
    assert run.log[-1]["m"] == pytest.approx(float(ratio.max() / ratio.mean()), rel=1e-4)


@pytest.mark.parametrize("mode", GENERATOR_LOSSES)
def test_every_loss_trains_both_networks(mode):
    config = replace(SMALL, generator_loss=mode, budget=1.01, critic_lr=1e-2, steps=5, spectral_norm=mode == "wgan")
    run = train(config)
    first = build_networks(config, (2,), 0, 1)
    assert not torch.equal(weights(run.critic), weights(first[1]))
    assert not torch.equal(weights(run.generator), weights(first[0]))
    assert all(np.isfinite([row["critic"], row["generator"]]).all() for row in run.log)


@pytest.mark.parametrize("mode", ["non_saturating", "exact", "paper_raw", "two_critics"])
def test_parts_of_a_batch_add_up_to_the_batch(mode):
    config = replace(SMALL, steps=1, generator_loss=mode, budget=1.001)
    whole, parts = (train(replace(config, parts=parts)) for parts in (1, 4))
    for run in (whole, parts):
        assert run.log[-1]["rate"] == pytest.approx(1 / 1.001, abs=1e-5)  # below 1: something is rejected
    for module in ("generator", "critic"):
        for a, b in zip(getattr(whole, module).parameters(), getattr(parts, module).parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-7)


def test_the_constant_is_solved_every_so_many_steps_however_many_parts(tmp_path, monkeypatch):
    solved = []

    def counted(log_ratio, budget, **options):
        solved.append(len(log_ratio))
        return solve_cut(log_ratio, budget, **options)

    monkeypatch.setattr("obrs.training.window.solve_cut", counted)
    config = replace(SMALL, steps=7, parts=4, constant_every=3, generator_loss="exact")
    generator, passes = nn.Linear(2, 2), []
    generator.register_forward_hook(lambda *_: passes.append(torch.is_grad_enabled()))
    train(config, generator=generator)
    assert solved == [32, 32, 32]
    # it is tried once; the parts of the critic's turns, those of the generator's, and of the passes ahead when c is due
    assert (passes.count(False), passes.count(True)) == (1 + 7 * 4 + 3 * 4, 7 * 4)


def test_the_gradient_penalty_has_a_column_of_its_own_and_is_watched():
    config = replace(SMALL, steps=1, gradient_penalty=2.0, critic_lr=0.0, parts=2)
    run = train(config)
    generator, critic = build_networks(config, (2,), 0, 1)
    batches = Batches(load_data(config), replace(config, parts=1))
    real, fake = batches.real(0, 0, 0)[0], generator(batches.latent(0, 0, 0)[0]).detach()
    expected = gradient_penalty(critic, real, fake, batches.mix(0, 0, 0))
    assert run.log[-1]["penalty"] == pytest.approx(float(expected.detach()), rel=1e-5)
    steep = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Flatten(0))
    nn.init.constant_(steep[0].weight, 1e25)  # its outputs are finite, the square of its slope is not
    with pytest.raises(NotFiniteError, match="the penalty loss is inf at step 1"):
        train(replace(config, generator_lr=0.0), critic=steep)


def test_the_data_are_seen_once_before_any_is_seen_again():
    config = replace(SMALL, data_size=100, batch_size=30, parts=3)
    batches = Batches(load_data(config), config)
    rows = torch.cat([batches.real(step, 0, part)[0] for step in range(10) for part in range(3)])
    assert len(rows) == 300
    for epoch in rows.split(100):
        assert len(torch.unique(epoch, dim=0)) == 100
    assert not torch.equal(rows[:100], rows[100:200])


def test_latents_of_all_steps_turns_and_parts_differ():
    config = replace(SMALL, critic_steps=2, parts=2)
    batches = Batches(load_data(config), config)
    seen = [batches.latent(s, t, p)[0] for s in range(3) for t in (-1, 0, 1) for p in range(2)]
    assert len(torch.unique(torch.cat(seen), dim=0)) == 18 * 16


def test_the_same_seed_gives_the_same_bits_and_leaves_the_global_numbers_alone():
    before = torch.get_rng_state()
    first, again, other = (weights(train(replace(SMALL, seed=seed)).generator) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_bf16_keeps_the_weights_in_float32():
    run = train(replace(SMALL, precision="bf16", generator_loss="exact"))
    assert {p.dtype for p in run.generator.parameters()} == {torch.float32}
    x = run.propose(range(4))
    assert x.dtype == torch.float32
    torch.testing.assert_close(x, run.generator(obrs.normals(range(4), 2, seed=0, like=x)))
    plain = train(replace(SMALL, generator_loss="exact"))
    assert not torch.equal(weights(plain.critic), weights(run.critic))
    torch.testing.assert_close(weights(plain.critic), weights(run.critic), rtol=0, atol=0.02)


# Two outputs of the critic


def test_a_second_head_has_the_logistic_loss_whatever_trains_the_generator():
    config = replace(SMALL, generator_loss="hinge", two_heads=True, steps=1)
    run = train(config)
    batches = Batches(load_data(config), config)
    generator, critic = build_networks(config, (2,), 0, 2)
    real, fake = critic(batches.real(0, 0, 0)[0]), critic(generator(batches.latent(0, 0, 0)[0]).detach())
    hinge = F.relu(1 - real[:, 0]).mean() + F.relu(1 + fake[:, 0]).mean()
    (hinge + F.softplus(-real[:, 1]).mean() + F.softplus(fake[:, 1]).mean()).backward()
    for a, b in zip(run.critic.parameters(), critic.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-7)
    x = run.propose(range(5))
    assert torch.equal(run.log_ratio(x), run.critic(x)[:, 1].detach())


@pytest.mark.parametrize("mode", ["exact", "non_saturating"])
def test_sampling_and_the_log_go_by_the_second_head_and_the_loss_by_the_first(mode):
    config = replace(SMALL, divergence="kl", generator_loss=mode, two_heads=True, steps=1, critic_lr=0.0, budget=1.001)
    run = train(config)
    generator, critic = build_networks(config, (2,), 0, 2)
    scores = critic(generator(Batches(load_data(config), config).latent(0, -1, 0)[0]))
    first, second = scores.detach().unbind(1)
    assert run.log[-1]["log_c"] == pytest.approx(float(obrs.solve_log_c(second, 1.001)), abs=1e-5)
    assert run.log[-1]["rate"] == pytest.approx(1 / 1.001, abs=1e-5)
    assert run.log[-1]["log_c"] != pytest.approx(float(obrs.solve_log_c(first, 1.001)), abs=1e-3)
    loss = generator_loss(mode, "kl")(first, solve_cut(first, 1.001))
    assert run.log[-1]["generator"] == pytest.approx(float(loss), abs=1e-5)
    x = run.propose(range(5))
    assert torch.equal(run.log_ratio(x), run.critic(x)[:, 1].detach())


def test_a_hinge_critic_alone_says_no_log_ratio():
    run = train(replace(SMALL, generator_loss="hinge"))
    with pytest.raises(InputError, match="'hinge' says no log-ratio; train with two_heads=true"):
        run.log_ratio(run.propose(range(2)))
    with pytest.raises(InputError, match="says no log-ratio"):
        run.model()
    assert "rate" not in run.log[-1]


def test_the_second_of_two_critics_is_trained_on_what_is_kept():
    config = replace(SMALL, generator_loss="two_critics", steps=1, budget=1.05)
    run = train(config)
    batches = Batches(load_data(config), config)
    generator, critic = build_networks(config, (2,), 0, 2)
    real, fake = critic(batches.real(0, 0, 0)[0]), critic(generator(batches.latent(0, 0, 0)[0]).detach())
    log_r = fake[:, 0].detach()
    a = torch.clamp(log_r + obrs.solve_log_c(log_r, 1.05), max=0).exp()
    (F.softplus(-real[:, 1]).mean() + (a / a.mean() * F.softplus(fake[:, 1])).mean()).backward()
    assert a.std() > 0
    for ours, by_hand in zip(run.critic.second.parameters(), critic.second.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, by_hand.grad, rtol=1e-5, atol=1e-7)


# Classes, and networks and data of one's own


def test_digits_with_classes_train_and_sample_by_label():
    pytest.importorskip("sklearn")
    config = TrainConfig(data="digits", classes=True, network="conv", latent=8, generator_width=4, critic_width=4)
    run = train(replace(config, steps=2, batch_size=16, spectral_norm=True, ema_decay=0.9))
    x, labels = run.propose(np.arange(2000))
    assert x.shape == (2000, 1, 8, 8)
    share = torch.bincount(labels, minlength=10) / 2000
    expected = torch.tensor(run.counts) / sum(run.counts)
    assert (share - expected).abs().max() < 4 * (0.1 * 0.9 / 2000) ** 0.5
    kept = obrs.sample(run.propose, run.log_ratio, 20, budget=2)
    assert kept.x[0].shape == (20, 1, 8, 8)
    assert kept.x[1].shape == (20,)
    model = run.model()
    again = model.propose(np.arange(50))
    assert torch.equal(again[0], x[:50])
    assert torch.equal(again[1], labels[:50])
    assert torch.equal(model.score(again), run.log_ratio(again))
    assert obrs.rivals.SAMPLERS["obrs"](2.0)(model, 20).x[1].shape == (20,)


class Labelled(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.table, self.line, self.outputs = nn.Embedding(3, 2), nn.Linear(2, outputs), outputs

    def forward(self, x, labels):
        assert labels.shape == x.shape[:1]
        y = self.line(x + self.table(labels))
        return y if self.outputs > 1 else y[:, 0]


def test_conditional_networks_of_ones_own_are_loaded_again(tmp_path):
    config, labels = replace(SMALL, classes=True, ema_decay=0.5), np.array([0, 2] * 32)
    run = train(config, data=points(), labels=labels, generator=Labelled(2), critic=Labelled(1), out=tmp_path)
    again = load_trained(tmp_path, generator=Labelled(2), critic=Labelled(1))
    for network in ("generator", "ema"):
        got, expected = again.propose(range(9), network=network), run.propose(range(9), network=network)
        assert torch.equal(got[0], expected[0])
        assert torch.equal(got[1], expected[1])
    assert torch.equal(again.log_ratio(expected), run.log_ratio(expected))
    with pytest.raises(InputError, match="'mlp' takes no classes"):
        load_trained(tmp_path, generator=Labelled(2))


def test_labels_reach_both_networks():
    torch.manual_seed(0)
    generator, critic = Labelled(2), Labelled(1)
    labels = np.array([0, 2] * 32)
    run = train(replace(SMALL, classes=True, steps=1), data=points(), labels=labels, generator=generator, critic=critic)
    assert run.counts == (32, 0, 32)
    moved = generator.table.weight.grad.abs().sum(1) > 0
    assert moved.tolist() == [True, False, True]


def test_networks_and_data_of_ones_own_are_trained_in_place_and_sampled():
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(2, 16), nn.Dropout(0.5), nn.Linear(16, 2))
    critic = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    before = weights(generator)
    run = train(SMALL, data=points(), generator=generator, critic=critic)
    assert run.generator is generator
    assert not generator.training
    assert not torch.equal(before, weights(generator))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = obrs.sample(run.propose, run.log_ratio, 50, budget=2)
    assert kept.x.shape == (50, 2)
    assert len(obrs.rivals.SAMPLERS["obrs"](budget=2)(run.model(), 50)) == 50


def test_a_layer_that_its_owner_froze_stays_frozen():
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    critic[0].requires_grad_(False)
    before = weights(critic[0]), weights(critic[2])
    train(SMALL, critic=critic)
    assert torch.equal(weights(critic[0]), before[0])
    assert not torch.equal(weights(critic[2]), before[1])
    assert [p.requires_grad for p in critic.parameters()] == [False, False, True, True]


def test_networks_are_as_they_were_when_training_fails():
    class Failing(nn.Linear):
        def forward(self, z):
            if torch.is_grad_enabled():  # it is the generator's turn
                raise RuntimeError("out of memory")
            return super().forward(z)

    generator = Failing(2, 2)
    critic = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    critic[0].requires_grad_(False)
    critic[1].eval()
    with pytest.raises(RuntimeError, match="out of memory"):
        train(SMALL, generator=generator, critic=critic)
    assert [p.requires_grad for p in critic.parameters()] == [False, False, True, True]
    assert [layer.training for layer in critic] == [True, False, True, True]
    with pytest.raises(InputError, match="the networks must take"):
        train(SMALL, data=np.zeros((5, 3)), generator=generator, critic=critic)
    assert [layer.training for layer in critic] == [True, False, True, True]


@pytest.mark.parametrize("name", ["generator", "critic"])
def test_a_network_with_nothing_to_train_is_one_line(name):
    network = dict(zip(("generator", "critic"), build_networks(SMALL, (2,), 0, 1), strict=True))[name]
    with pytest.raises(InputError, match=f"the {name} has no weight to train; .* freeze it by {name}_lr=0"):
        train(SMALL, **{name: network.requires_grad_(False)})


@pytest.mark.parametrize("network", ["generator", "ema"])
def test_the_model_of_a_run_makes_its_samples(network):
    run = train(replace(SMALL, ema_decay=0.5))
    model = run.model(network=network)
    x = run.propose(range(6), seed=2, network=network)
    assert torch.equal(model.propose(range(6), seed=2).detach(), x)
    assert torch.equal(model.log_ratio(x).detach(), run.log_ratio(x))


# After a stop


CHECKED = """
data = "grid25"
steps = 60
batch_size = 32
data_size = 100
generator_width = 16
critic_width = 16
critic_steps = 2
parts = 2
ema_decay = 0.9
spectral_norm = true
generator_loss = "exact"
constant_every = 3
save_every = 7
log_every = 5
"""


def test_a_killed_process_goes_on_to_the_same_bits(tmp_path):
    (tmp_path / "run.toml").write_text(CHECKED)
    command = [sys.executable, "-m", "paper", "train", "run.toml", "--out"]
    inside = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    options = {"cwd": tmp_path, "env": inside, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}

    child = subprocess.Popen([*command, "killed", "--steps", "100000"], **options)
    deadline = time.monotonic() + 300
    while not (killed_at := checkpoints.checkpoints(tmp_path / "killed" / "checkpoints")[-1:]) or "00000000" in str(
        killed_at
    ):
        assert child.poll() is None, child.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    stopped = checkpoints.load(checkpoints.latest(tmp_path / "killed"))[1]["step"]
    steps = str(stopped + 10)

    done = subprocess.run([*command, "killed", "--resume", "--steps", steps], **options, check=False)
    assert done.returncode == 0, done.stderr
    whole = train(override(read_config(tmp_path / "run.toml"), {"steps": steps}), out=tmp_path / "whole")
    name = f"checkpoints/step-{stopped + 10:08d}.safetensors"
    assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()

    def without_time(rows):
        return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]

    assert without_time(read_log(tmp_path / "killed" / "log.jsonl")) == without_time(whole.log)


def test_noise_inside_networks_is_resumed_too(tmp_path):
    def networks():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            generator = nn.Sequential(nn.Linear(2, 16), nn.Dropout(0.5), nn.Linear(16, 2))
            return {"generator": generator, "critic": nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)), "data": points()}

    whole = train(replace(SMALL, steps=6), **networks())
    train(replace(SMALL, steps=3), **networks(), out=tmp_path)
    torch.rand(5)  # whatever else the second process does
    parts = train(replace(SMALL, steps=6), **networks(), out=tmp_path, resume=True)
    assert torch.equal(weights(whole.generator, whole.critic), weights(parts.generator, parts.critic))


def test_a_run_goes_on_with_its_own_data_alone(tmp_path):
    x = points()
    train(SMALL, data=x, out=tmp_path / "given")
    assert read_config(tmp_path / "given" / "config.json").data == "given"
    more, options = replace(SMALL, steps=4), {"out": tmp_path / "given", "resume": True}
    assert train(more, data=x.copy(), **options).config.data == "given"
    moved = x.copy()
    moved[7, 1] += 1e-3
    with pytest.raises(InputError, match="was trained on other data; give train the same data="):
        train(more, data=moved, **options)
    with pytest.raises(InputError, match="was trained on data that were given to train; give the same data= again"):
        train(more, **options)
    train(SMALL, out=tmp_path / "named")
    with pytest.raises(InputError, match=r"was made with data='grid25', got 'given'"):
        train(SMALL, data=x, out=tmp_path / "named", resume=True)


def test_the_labels_are_part_of_the_data():
    labels = np.array([0, 1] * 32)
    config = replace(SMALL, classes=True)
    first, again, other, none = (
        load_data(c, points(), y).fingerprint()
        for c, y in ((config, labels), (config, labels.copy()), (config, 1 - labels), (SMALL, None))
    )
    assert first == again
    assert len({first, other, none}) == 3


def test_the_command_does_not_go_on_without_the_data(tmp_path, capsys):
    train(SMALL, data=points(), out=tmp_path)
    assert main(["train", str(tmp_path / "config.json"), "--out", str(tmp_path), "--resume"]) == 2
    said = capsys.readouterr().err
    assert "the data of this run were given to train; give them again, from Python" in said
    assert said.count("\n") == 1


def test_fine_tuning_starts_from_the_networks_of_another_run(tmp_path):
    hinge = train(replace(SMALL, generator_loss="hinge", ema_decay=0.5), out=tmp_path / "hinge")
    frozen = {"generator_lr": 0.0, "critic_lr": 0.0, "start_from": str(tmp_path / "hinge")}
    same = train(replace(SMALL, generator_loss="exact", ema_decay=0.5, ema_start=0, **frozen))
    assert torch.equal(weights(same.generator, same.critic), weights(hinge.generator, hinge.critic))
    tuned = train(replace(SMALL, generator_loss="exact", start_from=str(tmp_path / "hinge")), out=tmp_path / "tuned")
    assert not torch.equal(weights(tuned.critic), weights(hinge.critic))
    start = load_trained(tmp_path / "tuned" / "checkpoints" / "step-00000000.safetensors")
    assert torch.equal(weights(start.generator, start.critic), weights(hinge.generator, hinge.critic))


def test_a_learning_rate_of_zero_trains_the_critic_alone():
    run = train(replace(SMALL, generator_lr=0.0))
    generator, critic = build_networks(SMALL, (2,), 0, 1)
    assert torch.equal(weights(run.generator), weights(generator))
    assert not torch.equal(weights(run.critic), weights(critic))


# What it says


def test_the_log_is_lines_of_json_and_tensorboard(tmp_path):
    board = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = train(replace(SMALL, steps=5, log_every=2, tensorboard=True, generator_loss="paper"), out=tmp_path)
    assert [row["step"] for row in run.log] == [2, 4, 5]
    assert [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()] == run.log
    assert set(run.log[0]) == {"step", "seconds", "critic", "generator", "log_c", "rate", "m"}
    events = board.EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Scalars("critic")] == [2, 4, 5]
    assert events.Scalars("rate")[-1].value == pytest.approx(run.log[-1]["rate"])


def test_the_bar_shows_losses_rate_c_and_m():
    row = {"step": 5, "seconds": 1.0, "critic": -0.25, "generator": 0.75, "log_c": 0.0, "rate": 0.5, "m": 3.14159}
    assert note(row) == "critic -0.25  generator 0.75  rate 0.5  c 1  M 3.14"
    assert note({**row, "log_c": None, "rate": None, "m": None}) == "critic -0.25  generator 0.75"


def test_the_command_says_where_the_run_is_and_what_to_do_next(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(
        "data = 'grid25'\ngenerator_loss = 'dual'\nsteps = 2\nbatch_size = 8\ndata_size = 64"
    )
    assert main(["train", "small.toml", "--budget", "4"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "trained 2 steps: runs/small"
    assert "run.log_ratio, 1000, budget=4" in said[2]
    assert load_trained("runs/small").config.budget == 4
    command = said[3].removeprefix("train it on:  ")
    assert command == "python -m paper train runs/small/config.json --out runs/small --resume --steps 4"
    assert main(shlex.split(command)[3:]) == 0
    assert load_trained("runs/small").log[-1]["step"] == 4
    assert main(["train", "runs/small/config.json", "--resume", "--steps", "6"]) == 0
    assert load_trained("runs/small").log[-1]["step"] == 6
    assert main(["train", "small.toml", "--generator-loss", "hinge", "--out", "an other"]) == 0
    said = capsys.readouterr().out
    assert "train with --two-heads" in said
    assert "python -m paper train 'an other/config.json' --out 'an other' --resume" in said


@pytest.mark.parametrize(("presses", "kept"), [(1, 4), (2, 3)])
def test_ctrl_c_saves_first_unless_pressed_twice_and_the_run_goes_on_from_there(
    tmp_path, capsys, monkeypatch, presses, kept
):
    calls = []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            for _ in range(presses):
                signal.raise_signal(signal.SIGINT)
        average(*arguments)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(
        "data = 'grid25'\nsteps = 6\nbatch_size = 8\ndata_size = 64\nsave_every = 3\nema_decay = 0.5"
    )
    with monkeypatch.context() as patch:
        patch.setattr("obrs.training.loop.average", interrupted)
        assert main(["train", "run.toml", "--out", "run"]) == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    said = capsys.readouterr().err
    file = f"run/checkpoints/step-0000000{kept}.safetensors"
    assert said == f"interrupted after step {5 - presses}; {file} is kept, go on with --resume (resume=True)\n"
    assert main(["train", "run.toml", "--out", "run", "--resume"]) == 0
    assert torch.equal(weights(load_trained("run").generator), weights(train(read_config("run.toml")).generator))


# What it refuses


def test_a_loss_that_is_not_finite_stops_the_run_at_the_last_good_checkpoint(tmp_path):
    config = replace(
        SMALL, steps=50, save_every=1, log_every=50, critic_lr=1e20, divergence="chi2", generator_loss="exact"
    )
    with pytest.raises(NotFiniteError, match=r"the (critic|generator) loss is (nan|inf|-inf) at step \d+; ") as caught:
        train(config, out=tmp_path)
    good = load_trained(tmp_path)
    assert caught.value.checkpoint == checkpoints.latest(tmp_path)
    assert str(caught.value.checkpoint) in str(caught.value)
    slower = replace(config, critic_lr=1e-4, steps=2, start_from=str(caught.value.checkpoint))  # as the message says
    assert train(slower).log[-1]["step"] == 2
    assert torch.isfinite(weights(good.generator, good.critic)).all()
    with pytest.raises(NotFiniteError, match="no checkpoint was kept"):
        train(config)


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    class Leap(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            return gradient * float("nan")

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(2, 2)

        def forward(self, z):
            return Leap.apply(self.line(z))

    with pytest.raises(NotFiniteError, match=r"a weight is not finite after step 1; .*step-00000000"):
        train(replace(SMALL, steps=1), generator=Generator(), out=tmp_path)
    with pytest.raises(NotFiniteError, match=r"a weight is not finite after step 1; no checkpoint was kept; try again"):
        train(replace(SMALL, steps=1), generator=Generator())


@pytest.mark.parametrize(
    ("given", "error", "line"),
    [
        ({"data": np.zeros(5)}, InputError, r"data must have shape \(n, dim\) or .*, got \(5,\); use x\[:, None\]"),
        ({"data": np.zeros((5, 8, 8))}, InputError, r"got \(5, 8, 8\); use x\[:, None\]"),
        ({"data": np.eye(8)[None, None]}, InputError, r"these seem to be in \[0, 1\]; use 2 \* x - 1"),
        ({"data": np.zeros((5, 8, 8, 3))}, InputError, r"got \(5, 8, 8, 3\), which seems to have its channels last"),
        ({"data": np.full((5, 2), np.nan)}, InputError, "data must be finite, 10 of 10 are not"),
        ({"data": "words"}, InputTypeError, "data must be an array of numbers, got str"),
        ({"data": np.zeros((5, 1, 8, 8)) + 200}, InputError, r"from -1 to 1, got 200 to 200; use x / 127.5 - 1"),
        ({"data": np.zeros((5, 3))}, InputError, r"the generator makes samples of \(2,\), the data are \(3,\)"),
        ({"data": points(), "labels": np.zeros(64, int)}, InputError, "set classes=true to train on them"),
        ({"critic": nn.Linear(2, 1)}, InputError, r"the critic must return shape \(n,\) for this loss, got \(2, 1\)"),
        ({"critic": nn.Linear(5, 1)}, InputError, r"the networks must take \(z\) and \(x\) with latents of \(2,\)"),
    ],
)
def test_data_and_networks_that_do_not_fit_are_one_line(given, error, line):
    if "critic" not in given and "labels" not in given:
        given = {**given, "generator": nn.Linear(2, 2), "critic": nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))}
    with pytest.raises(error, match=line) as caught:
        train(SMALL, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("labels", [[], (), np.zeros(0), torch.zeros(0)])
def test_no_labels_at_all_is_not_called_a_wrong_dtype(labels):
    with pytest.raises(InputError, match=r"one per sample, shape \(64,\), got none"):
        train(replace(SMALL, classes=True), data=points(), labels=labels)


def test_images_that_are_not_here_come_with_both_commands(tmp_path, monkeypatch):
    monkeypatch.setenv("OBRS_DATA", str(tmp_path))
    both = "run `python -m paper fetch mnist`, or `python -m paper fetch mnist --folder DIR` if you have it"
    with pytest.raises(InputError, match=f"mnist is not in {re.escape(str(tmp_path))}: {both}"):
        train(replace(SMALL, data="mnist"))


@pytest.mark.parametrize(
    ("config", "error", "line"),
    [
        (replace(SMALL, data="gird25"), UnknownNameError, "unknown data 'gird25'; did you mean 'grid25'?"),
        (replace(SMALL, classes=True), InputError, "classes=true needs labels"),
        (replace(SMALL, network="conv"), InputError, r"'conv' needs square images, .* got samples of \(2,\)"),
        (
            replace(SMALL, generator_loss="exact", critic_loss="hinge"),
            InputError,
            "needs a critic that says a log-ratio",
        ),
        (replace(SMALL, generator_loss="two_critics", two_heads=True), InputError, "set two_heads=false"),
        (replace(SMALL, generator_loss="wgan"), InputError, "wgan needs .* gradient_penalty .* or spectral_norm=true"),
        (replace(SMALL, critic_loss="wgan", generator_loss="hinge"), InputError, "wgan needs"),
        (replace(SMALL, start_from="nowhere"), InputError, "nowhere has no checkpoint"),
        (replace(SMALL, tensorboard=True), InputError, "tensorboard=true needs out"),
        (replace(SMALL, divergence="tv"), DivergenceError, "tv"),
        (replace(SMALL, divergence="kl", generator_loss="paper_raw"), DivergenceError, "choose exact, or dual"),
    ],
)
def test_settings_that_contradict_each_other_are_one_line(config, error, line):
    with pytest.raises(error, match=line):
        train(config)


def test_a_folder_is_neither_overwritten_nor_resumed_with_other_settings(tmp_path):
    train(SMALL, out=tmp_path)
    with pytest.raises(InputError, match=r"holds a run already; resume it \(--resume, or resume=True\), or choose"):
        train(SMALL, out=tmp_path)
    with pytest.raises(InputError, match=r"was made with budget=2\.0, got 3\.0; resume with that"):
        train(replace(SMALL, budget=3), out=tmp_path, resume=True)
    with pytest.raises(InputError, match="has done 3 steps already, got steps=2; ask for more"):
        train(replace(SMALL, steps=2), out=tmp_path, resume=True)
    assert read_config(tmp_path / "config.json") == SMALL
    with pytest.raises(InputError, match="resume needs out"):
        train(SMALL, resume=True)
    with pytest.raises(InputError, match="has no checkpoint"):
        train(SMALL, out=tmp_path / "nothing", resume=True)
