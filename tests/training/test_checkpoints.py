"""A checkpoint is whole or not there; what cannot be loaded is said in one line."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_run import SMALL
from torch import nn

from obrs.errors import InputError
from obrs.fitting import tensors
from obrs.training import checkpoints
from obrs.training.journal import Journal
from obrs.training.loop import train
from obrs.training.trained import load_trained
from paper.__main__ import main

SMALL = replace(SMALL, steps=2, batch_size=8, data_size=64, generator_width=8, critic_width=8)
needs_full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")


def one(value):
    return {"x": torch.full((3,), float(value))}


def test_the_latest_checkpoints_are_kept_and_come_back(tmp_path):
    for step in (1, 2, 10):
        checkpoints.save(tmp_path, step, one(step), {"world": 1}, keep=2)
    assert [p.name for p in checkpoints.checkpoints(tmp_path)] == [
        "step-00000002.safetensors",
        "step-00000010.safetensors",
    ]
    kept, facts = checkpoints.load(checkpoints.checkpoints(tmp_path)[-1])
    assert kept["x"].tolist() == [10.0, 10.0, 10.0]
    assert facts == {"world": 1, "step": 10}


def test_what_a_crash_left_half_written_is_no_checkpoint(tmp_path):
    checkpoints.save(tmp_path / "checkpoints", 1, one(1), {}, keep=2)
    (tmp_path / "checkpoints" / "step-00000002.partial").write_bytes(b"half of it")
    assert checkpoints.latest(tmp_path).name == "step-00000001.safetensors"


@needs_full_disk
def test_a_full_disk_is_one_line_and_the_last_good_checkpoint_stays(tmp_path):
    checkpoints.save(tmp_path, 1, one(1), {}, keep=1)
    (tmp_path / "step-00000002.safetensors").symlink_to("/dev/full")
    with pytest.raises(OSError, match="the last good checkpoint is step-00000001") as caught:
        checkpoints.save(tmp_path, 2, one(2), {}, keep=1)
    assert caught.value.errno == errno.ENOSPC
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["step-00000001.safetensors"]
    assert checkpoints.load(tmp_path / "step-00000001.safetensors")[0]["x"][0] == 1


@needs_full_disk
@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("checkpoints/step-00000002.safetensors", "no space left on device; the last good checkpoint is step-00000000"),
        ("config.json", "config.json: no space left on device"),
    ],
)
def test_training_on_a_full_disk_ends_with_one_line(tmp_path, capsys, path, line):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / path).symlink_to("/dev/full")
    (tmp_path / "run.toml").write_text(
        "data = 'grid25'\ngenerator_loss = 'dual'\nsteps = 2\nbatch_size = 8\ndata_size = 64"
    )
    assert main(["train", str(tmp_path / "run.toml"), "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert line in said.lower()
    assert said.count("\n") == 1


@needs_full_disk
def test_a_log_on_a_full_disk_is_one_line(tmp_path):
    journal = Journal(tmp_path)
    (tmp_path / "log.jsonl").unlink()
    (tmp_path / "log.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"log\.jsonl") as caught:
        journal.add({"step": 1})
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("content", [b"", b"not safetensors at all"])
def test_a_file_of_another_kind_is_one_line(tmp_path, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="is not a checkpoint of a run"):
        checkpoints.load(tmp_path / "x.safetensors")


def test_weights_of_other_programs_are_told_from_checkpoints(tmp_path):
    from safetensors.torch import save_file

    save_file(one(1), tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="is not a checkpoint of a run"):
        checkpoints.load(tmp_path / "x.safetensors")


def test_a_folder_without_a_run_is_one_line(tmp_path):
    with pytest.raises(InputError, match="has no checkpoint; give the folder of a run"):
        load_trained(tmp_path)


def test_a_checkpoint_of_another_architecture_names_what_differs(tmp_path):
    train(SMALL, out=tmp_path / "run")
    wider = nn.Sequential(nn.Flatten(), nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    with pytest.raises(
        InputError, match=r"another generator: 3\.weight has shape \(8, 8\) there and shape \(16, 8\) here"
    ):
        load_trained(tmp_path / "run", generator=wider)
    with pytest.raises(InputError, match=r"another generator: 0\.weight has nothing there"):
        load_trained(tmp_path / "run", generator=nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(InputError, match=r"another critic: 7\.weight has shape \(1, 8\) there and shape \(2, 8\) here"):
        train(replace(SMALL, start_from=str(tmp_path / "run"), two_heads=True))


def test_an_optimiser_goes_on_where_it_was():
    def step(module, adam):
        adam.zero_grad()
        module(torch.ones(1, 3)).square().sum().backward()
        adam.step()

    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    adam = torch.optim.Adam(module.parameters(), 0.1)
    step(module, adam)
    again = nn.Linear(3, 2)
    tensors.fill_module(again, module.state_dict(), "module", "x")
    other = torch.optim.Adam(again.parameters(), 0.1)
    stored = {k: v.clone() for k, v in checkpoints.optimiser_tensors(adam).items()}
    checkpoints.fill_optimiser(other, stored)
    step(module, adam)
    step(again, other)
    assert torch.equal(module.weight, again.weight)


def test_a_run_is_loaded_as_it_was_trained(tmp_path):
    config = replace(SMALL, ema_decay=0.5)
    run = train(config, out=tmp_path / "run")
    again = load_trained(tmp_path / "run")
    assert again.config == config
    assert again.log == run.log
    ids = range(10)
    for network in ("generator", "ema"):
        assert torch.equal(run.propose(ids, network=network), again.propose(ids, network=network))
    x = run.propose(ids)
    assert torch.equal(run.log_ratio(x), again.log_ratio(x))
    assert not torch.equal(x, run.propose(ids, network="ema"))
