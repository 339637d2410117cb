"""The constant over the shards of torch.distributed is that of one process with all rows."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")

# Each process solves every case on its own shard, with two of the three processes and with all of them.
SCRIPT = """
import json, sys
import numpy as np, torch
import torch.distributed as dist
import obrs
from obrs.budget import solve_cut
from obrs.errors import ObrsError

torch.set_num_threads(1)
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=3)
pair = dist.new_group([0, 1])
out = {}


def shard(x, count, uneven):
    cuts = np.linspace(0, len(x), count + 1).astype(int)
    if uneven:
        cuts[1:-1] = cuts[1:-1] // 7  # the first ones have few, or none
    return x[cuts[rank] : cuts[rank + 1]]


cases = np.load(f"{folder}/cases.npy", allow_pickle=True).item()
for count, group in ((2, pair), (3, dist.group.WORLD)):
    if rank >= count:
        continue
    for name, case in cases.items():
        for uneven in (False, True):
            x = shard(case["x"], count, uneven)
            w = shard(case["weights"], count, uneven) if "weights" in case else None
            for budget in (1.3, 4.0, 1e7):
                key = f"{name} {budget:g} {count} {uneven}"
                log_c = obrs.solve_log_c(torch.from_numpy(x), budget, weights=w, process_group=group)
                cut = solve_cut(x, budget, weights=w, process_group=group)
                out[key] = [float(log_c), float(cut.log_c), float(cut.log_rate)]
    x = torch.from_numpy(shard(cases["normal"]["x"], count, False)).requires_grad_()
    weight = torch.from_numpy(shard(cases["weights"]["weights"], count, False))
    for budget in (4.0, 1e7):
        for w in (None, weight[: len(x)]):
            gradient, = torch.autograd.grad(obrs.solve_log_c(x, budget, weights=w, process_group=group), x)
            parts = [None] * count
            dist.all_gather_object(parts, gradient.numpy(), group=group)
            np.save(f"{folder}/gradient-{count}-{budget:g}-{w is not None}.npy", np.concatenate(parts))
    # Each process keeps its own rows, by ids that no other has.
    x, ids = (shard(whole, count, True) for whole in (cases["normal"]["x"], np.arange(len(cases["normal"]["x"]))))
    rule = obrs.Budgeted(float(obrs.solve_log_c(x, 4, process_group=group)))
    out[f"kept {count}"] = ids[obrs.accept(rule(x), ids, seed=7)].tolist()
    # What is wrong in one process is said in all of them.
    spoilt = np.zeros(5)
    spoilt[: 1 if rank == 0 else 0] = np.nan
    rare = np.where(np.arange(40) % 4, -np.inf, 0.0)
    some = None if rank else np.ones(3)
    wrong = {
        "nan": lambda: obrs.solve_log_c(spoilt, 2, process_group=group),
        "out of reach": lambda: obrs.solve_log_c(rare, 2, process_group=group),
        "groups": lambda: obrs.solve_log_c(spoilt, 2, groups=np.zeros(5, int), process_group=group),
        "no rows": lambda: obrs.solve_log_c(np.zeros(0), 2, process_group=group),
        "mixed": lambda: obrs.solve_log_c(np.zeros(3), 2, weights=some, process_group=group),
    }
    for name, act in wrong.items():
        try:
            act()
            out[f"{name} {count}"] = "nothing"
        except ObrsError as error:
            out[f"{name} {count}"] = str(error)
    out[f"unchecked {count}"] = float(obrs.solve_log_c(spoilt, 2, check=False, process_group=group))
with open(f"{folder}/out-{rank}.json", "w") as file:
    json.dump(out, file)
# Groups that are still referred to keep the threads of gloo, which may abort a process that has done its work.
dist.barrier()
del pair, group
dist.destroy_process_group()
"""
RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=40_000) * 1.5
CASES = {
    "normal": {"x": NORMAL},
    "weights": {"x": NORMAL, "weights": RNG.exponential(size=40_000)},
    "zeros": {"x": np.where(np.arange(40_000) % 5 == 0, -np.inf, NORMAL)},
    "ties": {"x": np.round(NORMAL)},
    "spread with weights": {"x": NORMAL * 1e5, "weights": RNG.exponential(size=40_000)},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    np.save(folder / "cases.npy", CASES, allow_pickle=True)
    (folder / "script.py").write_text(SCRIPT)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    started = [
        subprocess.Popen(
            [sys.executable, str(folder / "script.py"), str(rank), str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(3)
    ]
    output = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], output
    return folder


@pytest.fixture(scope="module")
def results(folder):
    return [json.loads((folder / f"out-{rank}.json").read_text()) for rank in range(3)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("budget", [1.3, 4.0, 1e7])
def test_shards_have_the_constant_and_the_rate_of_one_process(results, name, budget):
    from obrs.budget import solve_cut

    case = CASES[name]
    alone = solve_cut(case["x"], budget, weights=case.get("weights"))
    for count in (2, 3):
        for uneven in (False, True):
            key = f"{name} {budget:g} {count} {uneven}"
            for log_c, again, log_rate in [results[rank][key] for rank in range(count)]:
                assert log_c == again == results[0][key][0]
                assert log_c == pytest.approx(float(alone.log_c), rel=1e-12, abs=1e-12)
                assert log_rate == pytest.approx(float(alone.log_rate), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("budget", [4.0, 1e7])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_that_of_one_process(folder, budget, weighted):
    import torch

    import obrs

    x = torch.from_numpy(NORMAL).requires_grad_()
    w = torch.from_numpy(CASES["weights"]["weights"]) if weighted else None
    (alone,) = torch.autograd.grad(obrs.solve_log_c(x, budget, weights=w), x)
    for count in (2, 3):
        value = np.load(folder / f"gradient-{count}-{budget:g}-{weighted}.npy")
        np.testing.assert_allclose(value, alone.numpy(), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("count", [2, 3])
def test_each_process_keeps_its_part_of_what_one_process_would_keep(results, count):
    import obrs

    alone = np.flatnonzero(obrs.accept(obrs.Budgeted.fit(NORMAL, 4)(NORMAL), np.arange(len(NORMAL)), seed=7))
    np.testing.assert_array_equal(np.concatenate([results[rank][f"kept {count}"] for rank in range(count)]), alone)


@pytest.mark.parametrize("count", [2, 3])
def test_what_is_wrong_in_one_process_is_said_in_all(results, count):
    for part in results[:count]:
        assert f"log_ratio has 1 NaN or +inf or beyond 1e+06 among {5 * count} values" in part[f"nan {count}"]
        assert "only 25 % of the proposals have r > 0" in part[f"out of reach {count}"]
        assert "leave out axis and groups" in part[f"groups {count}"]
        assert "at least one value" in part[f"no rows {count}"]
        assert "weights must be given in all processes or in none, got them in 1" in part[f"mixed {count}"]
        assert part[f"unchecked {count}"] == pytest.approx(0.0, abs=1e-12)
