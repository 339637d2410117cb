"""Time the metrics against the libraries people use for them, side by side, and measure their memory.

    python benchmarks/metrics.py [--out FILE.json] [--n 10000] [--dim 2048] [--repeat 3] [--only NAME]

float32 features, the same threads for both; the contestants take turns and medians are compared, of CPU seconds (of
all threads) and of wall time. One function per comparison; each returns rows.

- frechet: torchmetrics, from features to the distance. Target: 1.5 times faster, in CPU seconds and in wall time.
- curve: 8 budgets with extrapolation and errors, over one plain distance. For information.
- kernel: torchmetrics on all rows at once, which keeps all pairs; at a fifth of the rows, to fit. For information.
- memory: the largest resident memory of a process that computes the distance of 50 000 x 50 000 rows. Target: 8 GB.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
import torchmetrics
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance

import obrs
from obrs.metrics.frechet_distance import frechet, frechet_curve
from obrs.metrics.kernel_distance import kernel

FASTER = 1.5
MEMORY = 8e9
LARGE = 50_000
BUDGETS = 8
Row = dict[str, Any]


class Given(torch.nn.Module):
    """A feature extractor that hands on what it gets."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.num_features = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the first features."""
        return x.reshape(len(x), -1)[:, : self.num_features]


def features(n: int, dim: int, seed: int) -> torch.Tensor:
    """Return features like those of a network: positive, correlated, of falling spread."""
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(0).standard_normal((dim // 4, dim), dtype=np.float32) / np.float32(np.sqrt(dim // 4))
    latent = rng.standard_normal((n, dim // 4), dtype=np.float32)
    noise = rng.standard_normal((n, dim), dtype=np.float32)
    return torch.from_numpy(np.maximum(latent @ mix + np.float32(0.3) * noise + np.float32(0.02 * seed), 0))


def clocked(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return CPU seconds, wall seconds and the result."""
    cpu, wall = process_time(), perf_counter()
    result = call()
    return process_time() - cpu, perf_counter() - wall, result


def compare(name: str, ours: Callable[[], float], rival: Callable[[], float], repeat: int, target: float | None) -> Row:
    """Let two contestants take turns, after one warm-up of each."""
    turns = [(clocked(ours), clocked(rival)) for _ in range(repeat + 1)][1:]
    cpu, wall = (median(mine[i] for mine, _ in turns) for i in (0, 1))
    rival_cpu, rival_wall = (median(theirs[i] for _, theirs in turns) for i in (0, 1))
    mine, theirs = turns[0][0][2], turns[0][1][2]
    faster = {"cpu": rival_cpu / cpu, "wall": rival_wall / wall}
    return {
        "name": name,
        "cpu_seconds": cpu,
        "seconds": wall,
        "rival_cpu_seconds": rival_cpu,
        "rival_seconds": rival_wall,
        "times_faster_cpu": faster["cpu"],
        "times_faster": faster["wall"],
        "relative_difference": abs(mine / theirs - 1),
        "target": target,
        "met": None if target is None else min(faster.values()) >= target,
    }


def frechet_rows(n: int, dim: int, repeat: int) -> list[Row]:
    """Compare the Fréchet distance with that of torchmetrics, which sums in float64 and takes general eigenvalues."""
    real, fake = features(n, dim, 1), features(n, dim, 2)

    def rival() -> float:
        fid = FrechetInceptionDistance(feature=Given(dim), input_img_size=(dim, 1, 1)).set_dtype(torch.float64)
        for x, is_real in ((real, True), (fake, False)):
            for part in x.split(1000):
                fid.update(part[:, :, None, None], real=is_real)
        return float(fid.compute())

    return [compare("frechet", lambda: frechet(real=real, fake=fake).value, rival, repeat, FASTER)]


def curve_rows(n: int, dim: int, repeat: int) -> list[Row]:
    """Compare 8 budgets, each extrapolated and with the influence of every row, with one plain distance."""
    real, fake = features(n, dim, 1), features(n, dim, 2)
    log_ratio = np.random.default_rng(3).standard_normal(n)
    weights = np.stack([np.exp(obrs.Budgeted.fit(log_ratio, k)(log_ratio)) for k in np.linspace(1, 8, BUDGETS)])
    slopes = np.where(weights < 1, weights, 0)
    cpu, wall, _ = clocked(lambda: frechet_curve(real=real, fake=fake, weights=weights, slopes=slopes))
    once_cpu, once_wall, _ = clocked(lambda: frechet(real=real, fake=fake))
    row: Row = {"name": f"frechet, {BUDGETS} budgets with errors", "cpu_seconds": cpu, "seconds": wall}
    return [{**row, "over_one_cpu": cpu / once_cpu, "over_one": wall / once_wall, "target": None, "met": None}]


def kernel_rows(n: int, dim: int, repeat: int) -> list[Row]:
    """Compare the kernel distance with that of torchmetrics on one subset of all rows."""
    size = n // 5
    real, fake = features(size, dim, 1), features(size, dim, 2)

    def rival() -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it keeps all features
            kid = KernelInceptionDistance(feature=Given(dim), subsets=1, subset_size=size)
        for x, is_real in ((real, True), (fake, False)):
            kid.update(x, real=is_real)
        return float(kid.compute()[0])

    return [compare(f"kernel, {size} rows", lambda: kernel(real=real, fake=fake).value, rival, repeat, None)]


def memory_rows(n: int, dim: int, repeat: int) -> list[Row]:
    """Measure the peak of a fresh process that makes the features and computes one distance."""
    command = [sys.executable, __file__, "--alone", "--n", str(LARGE), "--dim", str(dim)]
    start = perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak = int(done.stdout)
    row: Row = {"name": f"memory, {LARGE} x {LARGE} rows", "seconds": perf_counter() - start, "peak_bytes": peak}
    return [{**row, "input_bytes": 2 * LARGE * dim * 4, "target": MEMORY, "met": peak <= MEMORY}]


def alone(n: int, dim: int) -> int:
    """Compute one distance, and return the largest resident memory of this process in bytes."""
    rng = np.random.default_rng(0)
    real, fake = (rng.standard_normal((n, dim), dtype=np.float32) for _ in range(2))
    frechet(real=real, fake=fake)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


COMPARISONS: dict[str, Callable[[int, int, int], list[Row]]] = {
    "frechet": frechet_rows,
    "curve": curve_rows,
    "kernel": kernel_rows,
    "memory": memory_rows,
}


def line(row: Row) -> str:
    """Return a row as text."""
    goal = "" if row["target"] is None else f"  target {row['target']:g} {'met' if row['met'] else 'MISSED'}"
    facts = ", ".join(
        f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, float | int) and key != "target"
    )
    return f"{row['name']}: {facts}{goal}"


def main(argv: list[str] | None = None) -> int:
    """Print the rows, and write the JSON if asked to; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the rows to this JSON file")
    parser.add_argument("--n", type=int, default=10_000, help="rows of each side")
    parser.add_argument("--dim", type=int, default=2048, help="of the features, at least 4")
    parser.add_argument("--repeat", type=int, default=3, help="timed repeats")
    parser.add_argument("--only", choices=COMPARISONS, help="one comparison")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.alone:
        print(alone(args.n, args.dim))
        return 0
    rows = []
    for name, comparison in COMPARISONS.items():
        if args.only in (None, name):
            for row in comparison(args.n, args.dim, args.repeat):
                print(line(row), flush=True)
                rows.append(row)
    if args.out is not None:
        versions = {lib.__name__: lib.__version__ for lib in (obrs, np, torch, torchmetrics)}
        record = {
            "benchmark": "metrics",
            "config": {
                "n": args.n,
                "dim": args.dim,
                "repeat": args.repeat,
                "torch_threads": torch.get_num_threads(),
                "cores": os.cpu_count(),
            },
            "rows": rows,
            "versions": {**versions, "python": platform.python_version()},
        }
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(record, indent=2) + "\n")
    return int(any(row["met"] is False for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
