"""The constant over the shards of two processes: one histogram and one bin, against bisection.

    python benchmarks/distributed.py [--out FILE.json] [--rows 1000000] [--repeat 5]

Each process has its own rows, connected by gloo. Bisection reduces two numbers per step until log c is known to 1e-12.
Seconds are medians of CPU time in the first process, both contestants taking turns.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from bench import options, write

import obrs

BUDGET = 4.0


def bisection(x: Any, budget: float) -> tuple[float, int]:
    """Return log c, and how many reductions it took."""
    import torch
    import torch.distributed as dist

    steps = 0

    def reduced(*values: float, op: Any = dist.ReduceOp.SUM) -> list[float]:
        nonlocal steps
        steps += 1
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=op)
        return list(tensor.tolist())

    target = reduced(float(len(x)))[0] / budget
    low, high = reduced(-float(x.max()), op=dist.ReduceOp.MIN)[0], 50.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        accepted = reduced(float(torch.exp(torch.clamp(x + middle, max=0)).sum()))[0]
        low, high = (middle, high) if accepted < target else (low, middle)
    return middle, steps


def work(rank: int, meet: str, rows: int, repeat: int, out: str) -> None:
    """Do the part of one process; the first one writes what was measured."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    x = torch.from_numpy(np.random.default_rng(rank).normal(size=rows) - 0.5)
    seconds: dict[str, list[float]] = {"histogram": [], "bisection": []}
    for _ in range(repeat + 1):
        dist.barrier()
        begun = process_time()
        exact = float(obrs.solve_log_c(x, BUDGET, process_group=dist.group.WORLD))
        seconds["histogram"].append(process_time() - begun)
        dist.barrier()
        begun = process_time()
        halved, steps = bisection(x, BUDGET)
        seconds["bisection"].append(process_time() - begun)
    dist.barrier()
    if rank == 0:
        everything = np.concatenate([np.random.default_rng(i).normal(size=rows) - 0.5 for i in range(2)])
        alone = float(obrs.solve_log_c(everything, BUDGET))
        found = {name: median(times[1:]) for name, times in seconds.items()}
        record = {
            "rows": rows,
            "seconds": found,
            "reductions of bisection": steps,
            "off": {"histogram": abs(exact - alone), "bisection": abs(halved - alone)},
        }
        Path(out).write_text(json.dumps(record))
    dist.destroy_process_group()


def main(argv: list[str] | None = None) -> int:
    """Start both processes, print the table, and write the JSON if asked to."""
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="log-ratios of each process")
    parser.add_argument("--repeat", type=int, default=5, help="timed repeats")
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.part:
        work(int(args.part[0]), args.part[1], args.rows, args.repeat, args.part[2])
        return 0
    with tempfile.TemporaryDirectory() as folder:
        common = ["--rows", str(args.rows), "--repeat", str(args.repeat)]
        started = [
            subprocess.Popen(
                [sys.executable, __file__, *common, "--part", str(rank), f"{folder}/meet", f"{folder}/found.json"],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            for rank in range(2)
        ]
        if any(process.wait() for process in started):
            return 1
        row = json.loads(Path(folder, "found.json").read_text())
    print(f"2 x {row['rows']} log-ratios, K = {BUDGET:g}; bisection took {row['reductions of bisection']} reductions")
    for name, took in row["seconds"].items():
        print(f"{name:10} {took:8.3f} s of CPU, log c off by {row['off'][name]:.1g}")
    write(args.out, "distributed", {"budget": BUDGET, "repeat": args.repeat}, rows=[row])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
