"""Two processes train as one would with the joined batch."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from training.small_run import points, train

from obrs.models.mlp import mlp_critic, mlp_generator
from obrs.training.data import Draws
from obrs.training.train import _join_processes
from obrs.training.trained import load_trained

# A critic that has learnt enough for many samples to be rejected, and one with two outputs.
START = {"loss": "non_saturating", "steps": 60, "lr": (1e-3, 1e-2), "log_every": 60}
RUNS = {
    "exact": {"loss": "exact", "budget": 2.0, "constant_every": 2},
    "paper": {"loss": "paper_raw", "budget": 2.0, "critic_steps": 2},
    "hinge": {"loss": "hinge", "gradient_penalty": 0.5, "r1": 0.1, "new_critic": True},
}
SCRIPT = """
import sys
import torch
sys.path.insert(0, {tests!r})
from pathlib import Path
from training.test_distributed import RUNS, run
for name in RUNS:
    run(Path(sys.argv[1]), name, Path(sys.argv[1]) / name)
torch.distributed.barrier()  # gloo may abort a rank that ends while another still talks to it
torch.distributed.destroy_process_group()
"""


def networks(name):
    torch.manual_seed(0)
    return mlp_generator(width=16), mlp_critic(width=16, heads=2 if name == "hinge" else 1)


def run(folder, name, out=None):
    return train(points(), networks(name), start_from=folder / "start", steps=3, out=out, ema=0.9, **RUNS[name])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The runs as two processes make them, connected by gloo on this machine."""
    folder = tmp_path_factory.mktemp("two")
    train(points(), networks("start"), out=folder / "start", **START)
    (folder / "script.py").write_text(SCRIPT.format(tests=str(Path(__file__).parents[1])))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [*launch, str(folder / "script.py"), str(folder)]
    for _ in range(4):  # a thread of gloo may abort a process that has done its work; again, it goes on from its end
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if "SIGABRT" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_equal_one_with_the_same_global_batch(folder, name):
    alone, together = run(folder, name), load_trained(folder / name, *networks(name))
    assert alone.state.tensors.keys() == together.state.tensors.keys()
    for key, expected in alone.state.tensors.items():
        torch.testing.assert_close(together.state.tensors[key], expected, rtol=0, atol=1e-6, msg=key)
    moments = [x for key, x in alone.state.tensors.items() if key.endswith("exp_avg")]
    assert max(float(x.abs().max()) for x in moments) > 1e-3, "gradients are much larger than the tolerance"
    rows = together.log
    assert [row["step"] for row in rows] == [61, 62, 63]
    for row, expected in zip(rows, alone.log, strict=True):
        assert row.keys() == expected.keys()
        for key in expected:
            assert row[key] == pytest.approx(expected[key], rel=1e-5, abs=1e-5), key
    if name != "hinge":
        rejected = together.log_ratio(together.propose(range(1000))) + rows[-1]["log_c"] < 0
        assert rejected.float().mean() > 0.2


def test_one_process_goes_on_with_a_run_of_two(folder, tmp_path):
    home = Path(tmp_path, "copy")
    (home / "checkpoints").mkdir(parents=True)
    for path in (folder / "exact" / "checkpoints").iterdir():
        (home / "checkpoints" / path.name).write_bytes(path.read_bytes())
    assert run(folder, "exact", home).state.facts["step"] == 63


def test_a_process_group_of_the_script_is_left_to_it(monkeypatch):
    monkeypatch.setattr("atexit.register", pytest.fail)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setitem(_join_processes.__globals__, "PartialState", lambda cpu: SimpleNamespace(num_processes=2))
    _join_processes(8)


def test_the_slices_of_the_processes_are_the_batch():
    whole, shares = Draws(0, 24), [Draws(0, 24, rank, 3) for rank in range(3)]
    for kind in (torch.randn, torch.rand):
        got = torch.cat([draws.draw(kind, "latent", 4, 1) for draws in shares])
        assert torch.equal(got, whole.draw(kind, "latent", 4, 1))
    order = [next(draws.rows(100, 90)) for draws in shares]
    assert [*map(int, next(whole.rows(100, 90)))] == [int(row) for rows in order for row in rows]
