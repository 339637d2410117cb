"""Time the metrics against the libraries people use for them, side by side, and measure their memory.

    python benchmarks/metrics.py [--out FILE.json] [--n 10000] [--dim 2048] [--repeat 3] [--only NAME]

float32 features, the same threads for both; the contestants take turns and medians are compared, of CPU seconds (of
all threads) and of wall time. One function per comparison; each returns rows.

- frechet: torchmetrics, from features to the distance. Target: 2 times faster, in CPU seconds.
- curve: 8 budgets with extrapolation and errors, over one plain distance. Target: 10 times its CPU seconds.
- kernel: torchmetrics on all rows at once, which keeps all pairs; at a fifth of the rows, to fit. For information.
- neighbours: prdc, all four metrics. Target: 1.5 times faster in CPU seconds, a quarter of its extra memory.
- memory: the largest resident memory of a process that computes the distance of 50 000 x 50 000 rows, and of one that
  computes the four metrics of neighbours, which takes minutes. Target: 8 GB.
"""

import argparse
import contextlib
import io
import json
import os
import warnings
from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any

import bench
import numpy as np
import prdc
import torch
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance

from obrs.metrics import frechet, frechet_curve, kernel, neighbours, weightings

FASTER = 2.0
FASTER_THAN_PRDC = 1.5
LESS_MEMORY = 0.25  # of what prdc adds
OVER_ONE = 10.0  # of 8 budgets with errors, in units of one distance
K = 5
MEMORY = 8e9
LARGE = 50_000
BUDGETS = 8
Row = dict[str, Any]


class Identity(torch.nn.Module):
    """A feature extractor that returns its input."""

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


def clock(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return CPU seconds, wall seconds and the result."""
    cpu, wall = process_time(), perf_counter()
    result = call()
    return process_time() - cpu, perf_counter() - wall, result


def compare(name: str, ours: Callable[[], float], rival: Callable[[], float], repeat: int, target: float | None) -> Row:
    """Let two contestants take turns, after one warm-up of each."""
    turns = [(clock(ours), clock(rival)) for _ in range(repeat + 1)][1:]
    cpu, wall = (median(mine[i] for mine, _ in turns) for i in (0, 1))
    rival_cpu, rival_wall = (median(theirs[i] for _, theirs in turns) for i in (0, 1))
    mine, theirs = turns[0][0][2], turns[0][1][2]
    return {
        "name": name,
        "cpu_seconds": cpu,
        "seconds": wall,
        "rival_cpu_seconds": rival_cpu,
        "rival_seconds": rival_wall,
        "times_faster_cpu": rival_cpu / cpu,
        "times_faster": rival_wall / wall,
        "relative_difference": abs(mine / theirs - 1),
        "target": target,
        "met": None if target is None else rival_cpu / cpu >= target,
    }


def frechet_rows(n: int, dim: int, repeat: int) -> list[Row]:
    """Compare the Fréchet distance with that of torchmetrics, which sums in float64 and takes general eigenvalues."""
    real, fake = features(n, dim, 1), features(n, dim, 2)

    def rival() -> float:
        fid = FrechetInceptionDistance(feature=Identity(dim), input_img_size=(dim, 1, 1)).set_dtype(torch.float64)
        for x, is_real in ((real, True), (fake, False)):
            for part in x.split(1000):
                fid.update(part[:, :, None, None], real=is_real)
        return float(fid.compute())

    return [compare("frechet", lambda: frechet(real=real, fake=fake), rival, repeat, FASTER)]


def curve_rows(n: int, dim: int, repeat: int) -> list[Row]:
    """Compare 8 budgets, each extrapolated and with the influence of every row, with one plain distance."""
    real, fake = features(n, dim, 1), features(n, dim, 2)
    pool = weightings(np.random.default_rng(3).standard_normal(n), np.linspace(1, 8, BUDGETS))
    turns = [
        (
            clock(lambda: frechet_curve(real=real, fake=fake, weights=pool)),
            clock(lambda: frechet(real=real, fake=fake)),
        )
        for _ in range(repeat)
    ]
    (cpu, wall), (once_cpu, once_wall) = ([median(turn[who][i] for turn in turns) for i in (0, 1)] for who in (0, 1))
    row: Row = {"name": f"frechet, {BUDGETS} budgets with errors", "cpu_seconds": cpu, "seconds": wall}
    row |= {"over_one_cpu": cpu / once_cpu, "over_one": wall / once_wall}
    return [{**row, "target": OVER_ONE, "met": cpu / once_cpu <= OVER_ONE}]


def kernel_rows(n: int, dim: int, repeat: int) -> list[Row]:
    """Compare the kernel distance with that of torchmetrics on one subset of all rows."""
    size = n // 5
    real, fake = features(size, dim, 1), features(size, dim, 2)

    def rival() -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it keeps all features
            kid = KernelInceptionDistance(feature=Identity(dim), subsets=1, subset_size=size)
        for x, is_real in ((real, True), (fake, False)):
            kid.update(x, real=is_real)
        return float(kid.compute()[0])

    return [compare(f"kernel, {size} rows", lambda: kernel(real=real, fake=fake).value, rival, repeat, None)]


def neighbour_rows(n: int, dim: int, repeat: int) -> list[Row]:
    """Compare all four metrics with those of prdc, which keeps all distances; and the memory that both add."""
    real, fake = (features(n, dim, seed).numpy() for seed in (1, 2))
    row = compare("neighbours", lambda: sum(_ours(real, fake)), lambda: sum(_prdc(real, fake)), repeat, None)
    row |= {"target": FASTER_THAN_PRDC, "met": row["times_faster_cpu"] >= FASTER_THAN_PRDC}
    peaks = {name: _peak(name, n, dim) for name in ("neighbours", "prdc")}
    added = {name: max(peak["peak_bytes"] - peak["before_bytes"], 0) for name, peak in peaks.items()}
    share = added["neighbours"] / max(added["prdc"], 1)
    memory: Row = {"name": "neighbours, memory added over that of prdc", "share": share}
    memory |= {f"{name}_added_bytes": bytes_ for name, bytes_ in added.items()}
    return [row, {**memory, "target": LESS_MEMORY, "met": share <= LESS_MEMORY}]


def _ours(real: np.ndarray, fake: np.ndarray) -> list[float]:
    return list(neighbours(real=real, fake=fake, k=K))


def _prdc(real: np.ndarray, fake: np.ndarray) -> list[float]:
    with contextlib.redirect_stdout(io.StringIO()):
        scores = prdc.compute_prdc(real, fake, K)
    return [float(scores[name]) for name in ("precision", "recall", "density", "coverage")]


def memory_rows(n: int, dim: int, repeat: int) -> list[Row]:
    """Measure the peak of a fresh process that makes many features, and computes one distance or the four metrics."""
    rows: list[Row] = []
    for name in ("frechet", "neighbours"):
        start = perf_counter()
        peak = _peak(name, LARGE, dim)["peak_bytes"]
        rows.append({"name": f"memory, {name}, {LARGE} x {LARGE} rows", "seconds": perf_counter() - start})
        rows[-1] |= {"peak_bytes": peak, "input_bytes": 2 * LARGE * dim * 4, "target": MEMORY, "met": peak <= MEMORY}
    return rows


def _peak(name: str, n: int, dim: int) -> dict[str, int]:
    peak: dict[str, int] = bench.alone(__file__, "--alone", name, "--n", n, "--dim", dim)
    return peak


ALONE: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "frechet": lambda real, fake: frechet(real=real, fake=fake),
    "neighbours": _ours,
    "prdc": _prdc,
}


def alone(name: str, n: int, dim: int) -> dict[str, int]:
    """Compute one metric, and return the largest resident memory of this process in bytes, before and in all."""
    rng = np.random.default_rng(0)
    real, fake = (rng.standard_normal((n, dim), dtype=np.float32) for _ in range(2))
    ALONE[name](real[:64], fake[:64])  # what is loaded at first use is not counted
    before = bench.memory()
    ALONE[name](real, fake)
    return {"before_bytes": before, "peak_bytes": bench.memory()}


COMPARISONS: dict[str, Callable[[int, int, int], list[Row]]] = {
    "frechet": frechet_rows,
    "curve": curve_rows,
    "kernel": kernel_rows,
    "neighbours": neighbour_rows,
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
    parser = bench.options(__doc__)
    parser.add_argument("--n", type=int, default=10_000, help="rows of each side")
    parser.add_argument("--dim", type=int, default=2048, help="of the features, at least 4")
    parser.add_argument("--repeat", type=int, default=3, help="timed repeats")
    parser.add_argument("--only", choices=COMPARISONS, help="one comparison")
    parser.add_argument("--alone", choices=ALONE, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.alone:
        print(json.dumps(alone(args.alone, args.n, args.dim)))
        return 0
    rows = []
    for name, comparison in COMPARISONS.items():
        if args.only in (None, name):
            for row in comparison(args.n, args.dim, args.repeat):
                print(line(row), flush=True)
                rows.append(row)
    config = {"n": args.n, "dim": args.dim, "repeat": args.repeat}
    config |= {"torch_threads": torch.get_num_threads(), "cores": os.cpu_count()}
    bench.write(args.out, "metrics", config, ("numpy", "torch", "torchmetrics"), rows=rows)
    return bench.exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
