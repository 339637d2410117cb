"""BigGANs in the one loop: batch norm and samples by id, the presets of the paper, and a run that is killed."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from obrs.data.fetch import is_here
from obrs.data.images import load
from obrs.data.pixels import Pixels
from obrs.errors import InputError
from obrs.experiments import figure_frequency, figure_pretrained, figure_training, table_finetune
from obrs.experiments.image_training import BIGGAN, CELEBA
from obrs.fitting.averaging import average
from obrs.models.biggan import BigGanCritic, BigGanGenerator
from obrs.training.checkpoints import checkpoints
from obrs.training.config import TrainConfig, read_config
from obrs.training.loop import train
from obrs.training.pace import Pace
from obrs.training.schedule import plan
from obrs.training.trained import load_trained

ROOT = Path(__file__).parents[2]
TINY = TrainConfig(
    network="biggan",
    classes=True,
    latent=8,
    generator_width=2,
    critic_width=2,
    spectral_norm=True,
    two_heads=True,
    generator_loss="paper_raw",
    ema_decay=0.9,
    ema_start=1,
    steps=2,
    batch_size=4,
)


def images(n=16, size=32, classes=4, seed=0):
    """Images as bytes, each of a colour of its class."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(classes, size=n)
    labels[:classes] = np.arange(classes)
    noise = generator.integers(60, size=(n, 3, size, size))
    return Pixels((noise + 40 * labels[:, None, None, None]).astype(np.uint8)), labels


def given(size=32, classes=4, n=16):
    x, labels = images(n, size, classes)
    return {"data": x, "labels": labels}


# Batch norm and samples by id


@pytest.fixture(scope="module")
def run():
    return train(TINY, **given())


@pytest.mark.parametrize("network", ["generator", "ema"])
def test_a_sample_belongs_to_its_id_and_not_to_its_batch(run, network):
    ids = np.array([7, 3, 11, 5])
    whole, labels = run.propose(ids, network=network)
    for at, one in enumerate(ids):
        alone, label = run.propose(np.array([one]), network=network)
        torch.testing.assert_close(alone[0], whole[at], rtol=1e-4, atol=1e-5)
        assert label[0] == labels[at]
    again, _ = run.propose(ids, network=network)
    assert torch.equal(again, whole)


def test_the_statistics_of_the_average_are_averaged():
    torch.manual_seed(0)
    mean, now = (BigGanGenerator(8, width=2) for _ in range(2))
    for network in (mean, now):
        network(torch.randn(4, 8))
    expected = {
        name: (0.9 * old + 0.1 * new) if name.endswith(("running_mean", "running_var")) else new.clone()
        for (name, old), new in zip(mean.named_buffers(), now.buffers(), strict=True)
    }
    average(mean, now, 0.9)
    torch.testing.assert_close(dict(mean.named_buffers()), expected)
    average(mean, now, 0.0)
    torch.testing.assert_close(mean.state_dict(), now.state_dict(), rtol=0, atol=0)


def test_bytes_train_as_their_numbers_do():
    x, labels = images()
    runs = [train(TINY, data=data, labels=labels) for data in (x, np.asarray(x))]
    torch.testing.assert_close(runs[0].generator.state_dict(), runs[1].generator.state_dict(), rtol=0, atol=0)


def test_a_run_of_bytes_goes_on_with_its_own_data_alone(tmp_path):
    train(TINY, **given(), out=tmp_path)
    x, labels = images(seed=1)
    with pytest.raises(InputError, match="was trained on other data"):
        train(replace(TINY, steps=3), data=x, labels=labels, out=tmp_path, resume=True)


def test_mixed_precision_and_parts_train_both_networks():
    config = replace(TINY, precision="bf16", parts=2, generator_loss="exact", budget=1.5)
    run = train(config, **given())
    assert all(weight.dtype == torch.float32 for weight in run.generator.parameters())
    assert run.log[-1]["step"] == 2


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"hierarchical": True}, "a hierarchical latent needs a shared embedding of labels"),
        ({"attention": 24}, "attention must be 0 or the side of a map, 8, 16, 32, got 24"),
        ({"critic_network": "fourier"}, "critic_network 'fourier' takes no classes"),
    ],
)
def test_settings_that_make_no_biggan_are_one_line(changes, line):
    with pytest.raises(InputError, match=line):
        train(replace(TINY, **changes), **given())


def test_images_of_another_size_are_one_line():
    x, labels = images(size=16)
    with pytest.raises(InputError, match="32, 64 or 128 pixels a side, got 16; resize or pad them"):
        train(TINY, data=x, labels=labels)
    with pytest.raises(InputError, match="network 'biggan' needs square images"):
        train(replace(TINY, classes=False), data=np.zeros((4, 2)))


# What a run will take


def test_a_long_run_says_what_it_takes_and_a_short_one_nothing():
    def said(steps, **changes):
        lines, clock = [], iter([0.0, 1.0])
        pace = Pace(
            plan(TrainConfig(generator_loss="dual", steps=steps, **changes)), 0, lines.append, clock=lambda: next(clock)
        )
        for step in range(1, 6):
            pace.step(step, torch.zeros(()))
        return lines

    assert said(1000) == []
    assert said(10_000) == [
        "a step takes 0.5 s, timed on steps 2 to 3; 10000 steps will take about 83 minutes; Ctrl-C stops it"
    ]
    (alone,) = said(10_000, warm_up=100)  # the critic alone is half of the work of a step
    assert "10100 steps will take about 2.8 hours" in alone


# The presets of the paper


def test_presets_are_the_papers_with_its_slips_mended():
    cifar = figure_training.PRESETS["paper"]
    assert (cifar.data, cifar.width, cifar.batch_size, cifar.critic_steps, cifar.ema_start) == (
        "cifar10",
        64,
        50,
        4,
        1000,
    )
    assert (cifar.generator_lr, cifar.critic_lr, cifar.budget) == (2e-5, 2e-5, 2.0)
    assert figure_frequency.PRESETS["paper"].data == "cifar10"
    faces = table_finetune.PRESETS["paper"]
    assert (faces.data, faces.width, faces.batch_size, faces.budget) == ("celeba", 32, 128, 2.0)
    assert (faces.generator_lr, faces.critic_lr) == (1e-6, 4e-6)
    assert (CELEBA["generator_lr"], CELEBA["critic_lr"]) == (1e-4, 4e-4)
    many = table_finetune.PRESETS["imagenet"]
    assert many == replace(
        faces,
        data="imagenet",
        home="imagenet",
        width=96,
        latent=120,
        batch_size=2048,
        critic_steps=2,
        generator_lr=1e-5,
        critic_lr=1e-5,
    )
    assert BIGGAN["imagenet"]["parts"] == 16  # of 128 each
    assert figure_pretrained.PRESETS["paper"].generators == ("celeba-0",)


def test_the_example_is_the_preset():
    example = asdict(read_config(ROOT / "examples" / "biggan-cifar10.toml"))
    config = figure_training.PRESETS["paper"]
    from obrs.experiments.image_training import training

    wanted = training(config, 0) | {"generator_loss": "paper_raw", "data": "cifar10"}
    assert {key: example[key] for key in wanted} == wanted


def home(folder, name, size, classes):
    """A folder with a few images of the size of a data set of the paper."""
    x, labels = images(24, size, classes)
    x = np.asarray(x)
    found = {"train": x[:20], "test": x[20:]}
    if classes > 1:
        found |= {"train_labels": labels[:20], "test_labels": labels[20:]}
    np.savez(folder / f"{name}.npz", **found)
    return str(folder)


def one_step(settings, data, labels, networks=None, batch=4, parts=1):
    """One step of a preset with a small batch; return how it went."""
    small = replace(settings, steps=1, warm_up=min(settings.warm_up, 1), batch_size=batch, parts=parts)
    return train(small, data=data, labels=labels, **(networks or {}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hinge", "without", "with"])
def test_a_step_of_figure_training(kind, tmp_path):
    config = replace(figure_training.PRESETS["paper"], home=home(tmp_path, "cifar10", 32, 10))
    x, labels = images(20, 32, 10)
    settings = figure_training.settings(config, kind, 0)
    assert (settings.network, settings.two_heads, settings.initial) == ("biggan", True, "normal")
    run = one_step(settings, x, labels)
    assert (run.generator.spec["width"], run.critic.spec["heads"]) == (64, 2)
    assert run.propose(range(2), network="ema")[0].shape == (2, 3, 32, 32)
    assert run.log_ratio(run.propose(range(2))).shape == (2,)


@pytest.mark.slow
def test_a_step_of_figure_frequency(tmp_path):
    config = replace(figure_frequency.PRESETS["paper"], home=home(tmp_path, "cifar10", 32, 10))
    run = one_step(figure_frequency.settings(config, 100, 0), *images(20, 32, 10))
    assert run.config.constant_every == 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hinge", "paper_raw", "exact"])
def test_a_step_of_table_finetune_on_faces(kind):
    settings = table_finetune.settings(table_finetune.PRESETS["paper"], kind, 0, classes=None)
    networks = {
        "generator": BigGanGenerator(128, size=64, width=32),
        "critic": BigGanCritic(size=64, width=32, heads=2),
    }
    run = one_step(settings, images(20, 64, 1)[0], None, networks)
    assert run.log[-1]["step"] == 2  # the critic alone, then both
    assert run.propose(range(2)).shape == (2, 3, 64, 64)


@pytest.mark.slow
def test_a_step_of_table_finetune_on_imagenet():
    config = replace(table_finetune.PRESETS["imagenet"], alone=0)
    settings = table_finetune.settings(config, "paper_raw", 0, classes=1000)
    assert (settings.parts, settings.precision, settings.hierarchical) == (16, "bf16", True)
    x, labels = images(1000, 128, 1000)
    run = one_step(replace(settings, ema_decay=0.0), x, labels, batch=4, parts=2)
    assert sum(weight.numel() for weight in run.generator.parameters()) == 70_433_988
    assert run.log_ratio(run.propose(range(2))).isfinite().all()


# Killed and resumed


@pytest.mark.slow
def test_ten_steps_on_cifar_are_killed_and_resumed_to_the_same_bits(tmp_path):
    """All of the preset but the size of its batch: two heads, a moving average that has begun, c at every step."""
    if not is_here("cifar10"):
        pytest.skip("CIFAR-10 is not here: obrs data fetch cifar10")
    options = ["--steps", "10", "--batch-size", "2", "--ema-start", "2", "--save-every", "3", "--keep", "20"]
    command = [sys.executable, "-m", "obrs", "train", str(ROOT / "examples" / "biggan-cifar10.toml"), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def start(out, *more):
        return subprocess.Popen([*command, "--out", str(out), *more], env=environment, stdout=subprocess.DEVNULL)

    whole, killed = start(tmp_path / "whole"), start(tmp_path / "killed")
    while len(checkpoints(tmp_path / "killed" / "checkpoints")) < 3 and killed.poll() is None:  # those of 0, 3 and 6
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert checkpoints(tmp_path / "killed" / "checkpoints")[-1].name < "step-00000010"
    again = start(tmp_path / "killed", "--resume")
    for process in (whole, again):
        assert process.wait() == 0
    first, second = (load_file(checkpoints(tmp_path / name / "checkpoints")[-1]) for name in ("whole", "killed"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    parts = {name.split("/")[0] for name in first}
    assert parts == {"generator", "critic", "ema", "generator_optimiser", "critic_optimiser", "window"}
    run = load_trained(tmp_path / "killed")
    assert (run.critic.spec["heads"], run.generator.spec["width"], len(run.counts)) == (2, 64, 10)
    assert not torch.equal(run.ema.start.bias, run.generator.start.bias)
    x, _ = run.propose(np.arange(4), network="ema")
    alone, _ = run.propose(np.array([2]), network="ema")
    torch.testing.assert_close(x[2], alone[0], rtol=1e-4, atol=1e-5)
    assert load("cifar10").train.shape[0] == sum(run.counts)
