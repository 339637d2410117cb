"""Two processes train as one would with the joined batch."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_run import SMALL

from obrs.errors import InputError
from obrs.training.batches import Batches, load_data
from obrs.training.journal import read_log
from obrs.training.loop import train
from obrs.training.trained import load_trained

SMALL = replace(SMALL, steps=2)
RUNS = {
    "exact": replace(SMALL, generator_loss="exact", budget=1.01, critic_lr=1e-2),
    "paper": replace(SMALL, generator_loss="paper_raw", critic_steps=2, parts=2, budget=1.01, critic_lr=1e-2),
    "penalty": replace(SMALL, gradient_penalty=0.5, two_heads=True, generator_loss="hinge", spectral_norm=True),
    "two_critics": replace(SMALL, generator_loss="two_critics", budget=1.01, critic_lr=1e-2),
    "stages": replace(
        SMALL,
        stage=(
            {"generator_loss": "non_saturating", "noise": 0.3, "steps": 2},
            {
                "new_critic": True,
                "critic_network": "fourier",
                "warm_up": 2,
                "generator_loss": "exact",
                "budget": 1.01,
                "batch_size": 64,
                "parts": 2,
                "r1": 0.1,
            },
        ),
    ),
}
# From a critic that has learnt enough for half of the samples to be rejected.
HALVED = {
    "exact_half": replace(SMALL, generator_loss="exact", budget=2),
    "paper_half": replace(SMALL, generator_loss="paper_raw", budget=2, parts=2),
    "two_critics_half": replace(SMALL, generator_loss="two_critics", budget=2),
}
# Each process makes all runs; the first one writes the gradients of their last step.
SCRIPT = """
import sys
import atexit, os, torch
from pathlib import Path
from safetensors.torch import save_file
import paper.named
from obrs.training import read_config, train

@atexit.register  # what is registered first comes last
def note():
    Path(sys.argv[1], "left-" + os.environ["RANK"]).write_text(str(not torch.distributed.is_initialized()))

for path in sorted(Path(sys.argv[1]).glob("*.json")):
    folder = path.with_suffix("")
    run = train(read_config(path), out=folder)
    networks = {"generator": run.generator, "critic": run.critic}
    gradients = {f"{k}.{name}": p.grad for k, net in networks.items() for name, p in net.named_parameters()}
    if run.log:
        save_file(gradients, folder / "gradients")
"""


def settings(folder, name):
    pair = name.startswith("two_critics")
    return RUNS[name] if name in RUNS else replace(HALVED[name], start_from=str(folder / ("pair" if pair else "start")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The runs as two processes make them, connected by gloo on this machine."""
    folder = tmp_path_factory.mktemp("two")
    start = replace(SMALL, steps=100, critic_lr=1e-2, generator_loss="non_saturating")
    train(start, out=folder / "start")
    train(replace(start, steps=60, generator_loss="two_critics"), out=folder / "pair")
    for name in [*RUNS, *HALVED]:
        settings(folder, name).save(folder / f"{name}.json")
    (folder / "script.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    root = Path(__file__).parents[2]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [*launch, str(folder / "script.py"), str(folder)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", [*RUNS, *HALVED])
def test_two_processes_have_the_constant_and_the_gradients_of_one(folder, name):
    alone = train(settings(folder, name))
    rows = read_log(folder / name / "log.jsonl")
    assert len(rows) == len(alone.log) == (6 if name == "stages" else 2)
    for row, expected in zip(rows, alone.log, strict=True):
        assert row.keys() == expected.keys()
        for key in expected.keys() & {"log_c", "rate", "m", "critic", "generator"}:
            assert row[key] == pytest.approx(expected[key], abs=1e-5), key
    gradients = load_file(folder / name / "gradients")
    for network in ("generator", "critic"):
        for key, weight in getattr(alone, network).named_parameters():
            torch.testing.assert_close(gradients.pop(f"{network}.{key}"), weight.grad, rtol=0, atol=1e-6)
    assert not gradients


def test_the_gradients_compared_are_much_larger_than_the_tolerance(folder):
    for name in [*RUNS, *HALVED]:
        gradients = load_file(folder / name / "gradients")
        for network in ("generator", "critic"):
            assert max(float(x.abs().max()) for key, x in gradients.items() if key.startswith(network)) > 1e-3, name


@pytest.mark.parametrize("name", HALVED)
def test_of_the_samples_compared_many_are_rejected(folder, name):
    row = read_log(folder / name / "log.jsonl")[-1]
    assert row["m"] > 3
    run = load_trained(folder / name)
    rejected = run.log_ratio(run.propose(range(1000))) + row["log_c"] < 0
    assert rejected.float().mean() > 0.2


@pytest.mark.parametrize("rank", [0, 1])
def test_processes_are_left_before_python_ends(folder, rank):
    assert (folder / f"left-{rank}").read_text() == "True"


def test_a_run_of_two_processes_is_not_resumed_by_one(folder):
    with pytest.raises(InputError, match="was made by 2 processes, here are 1; resume with as many, or fine-tune it"):
        train(RUNS["exact"], out=folder / "exact", resume=True)
    tuned = train(replace(RUNS["exact"], start_from=str(folder / "exact")))
    assert tuned.log[-1]["step"] == 2


def test_the_slices_of_the_processes_are_the_batch():
    config = replace(SMALL, batch_size=24, parts=2, critic_steps=2)
    data = load_data(config)
    whole = Batches(data, replace(config, parts=1))
    shares = [Batches(data, config, rank=rank, world=3) for rank in range(3)]
    for draw in ("real", "latent", "mix"):
        pieces = [getattr(batches, draw)(4, 1, part) for part in range(2) for batches in shares]
        got = torch.cat([piece[0] if isinstance(piece, tuple) else piece for piece in pieces])
        expected = getattr(whole, draw)(4, 1, 0)
        assert torch.equal(got, expected[0] if isinstance(expected, tuple) else expected)


def test_a_batch_that_cannot_be_shared_is_one_line():
    config = replace(SMALL, batch_size=32)
    with pytest.raises(InputError, match="batch_size 32 must divide into 1 parts on 3 processes; take a multiple of 3"):
        Batches(load_data(config), config, rank=0, world=3)
