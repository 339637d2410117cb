"""Time and exactness of `solve_log_c`, against one exp-and-sum pass and against the paper's dichotomy.

    python benchmarks/solver.py [--out FILE.json] [--largest 1e8]

All ratios are measured side by side in one run: the contestants take turns, and medians are compared.
Targets at n = 1e7, float32, K = 2.6: at most 3 passes, at most 1.5 times the input in extra memory, at
least 10 times faster than the dichotomy.
"""

import os
import time
import tracemalloc
from math import fsum

import numpy as np
from bench import medians, options, seconds, take_turns, write

import obrs

BUDGET = 2.6


def dichotomy(ratio, budget, tolerance=1e-6):
    """The paper's Algorithm B.1: bisect c on [1e-10, 1e10] until the mean acceptance is within the tolerance.

    It is written as printed but for two repairs: the loss is a mean rather than a sum, and the loop ends when
    the interval cannot shrink, because as printed it may never end.
    """
    low, high = 1e-10, 1e10
    largest = ratio.max()
    while True:
        c = (low + high) / 2
        loss = np.minimum(ratio * c / largest, 1).mean() - 1 / budget
        if abs(loss) < tolerance or not low < c < high:
            return np.log(c) - np.log(largest)
        low, high = (c, high) if loss < 0 else (low, c)


def error(log_ratio, log_c):
    """|K rate - 1|, summed without rounding error, a part at a time."""
    with np.errstate(over="ignore"):
        parts = [
            fsum(np.exp(np.minimum(part.astype(np.float64) + float(log_c), 0)))
            for part in np.array_split(log_ratio, max(1, log_ratio.size // 10**6))
        ]
    return abs(BUDGET * fsum(parts) / log_ratio.size - 1)


def typical(contestants, repeats):
    """Return the median seconds of each, taking turns."""
    return medians(take_turns(contestants, repeats))


def measure(n, sd, backend, repeats):
    log_ratio = np.random.default_rng(0).normal(size=n).astype(np.float32) * np.float32(sd)
    if backend == "numpy":
        x = log_ratio
        one_pass = lambda: np.exp(x).sum()  # noqa: E731
    else:
        import torch

        x = torch.from_numpy(log_ratio)
        one_pass = lambda: torch.exp(x).sum()  # noqa: E731
    contestants = {"pass": one_pass, "solve": lambda: obrs.solve_log_c(x, BUDGET)}
    with np.errstate(all="ignore"):
        seconds = typical(contestants, repeats)
        row = {"n": n, "sd": sd, "backend": backend, **seconds, "passes": seconds["solve"] / seconds["pass"]}
        row["error"] = error(log_ratio, obrs.solve_log_c(log_ratio, BUDGET))
        if backend == "numpy" and n <= 10**7:
            with_paper = typical(
                {"solve": contestants["solve"], "paper": lambda: dichotomy(np.exp(x), BUDGET)}, max(3, repeats // 4)
            )
            row["paper"] = with_paper["paper"]
            row["speed-up"] = with_paper["paper"] / with_paper["solve"]
            row["paper error"] = error(log_ratio, dichotomy(np.exp(log_ratio), BUDGET))
    return row


def extra_memory(x, weights=None):
    """Peak memory that one solve allocates, in bytes; NumPy reports its arrays to tracemalloc."""
    tracemalloc.start()
    obrs.solve_log_c(x, BUDGET, axis=1, weights=weights)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def rows_and_groups(rows):
    """Many problems at once: token positions, and ragged groups."""
    x = np.random.default_rng(0).standard_normal((rows, 50_000), dtype=np.float32)
    start = time.perf_counter()
    log_c = obrs.solve_log_c(x, BUDGET, axis=1)
    by_row = time.perf_counter() - start
    worst = max(error(x[i], log_c[i]) for i in range(0, rows, max(1, rows // 20)))
    labels = np.random.default_rng(1).integers(0, 10**5, size=10**7)
    values = np.random.default_rng(2).standard_normal(10**7)
    by_group = seconds(lambda: obrs.solve_log_c(values, BUDGET, groups=labels))
    return {
        "rows": rows,
        "columns": 50_000,
        "axis seconds": by_row,
        "axis worst error": worst,
        "axis extra MB": extra_memory(x) / 1e6,
        "axis weighted extra MB": extra_memory(x, np.abs(x[::-1])) / 1e6,
        "groups seconds (1e7 values, 1e5 groups)": by_group,
    }


def fixed_cost():
    """Milliseconds for 1000 log-ratios, where calls cost more than work; the pass is exp-and-sum."""
    x = np.random.default_rng(0).normal(size=1000)
    many = range(200)
    seconds = typical(
        {"pass": lambda: [np.exp(x).sum() for _ in many], "solve": lambda: [obrs.solve_log_c(x, BUDGET) for _ in many]},
        repeats=9,
    )
    return {name: 1e3 * value / len(many) for name, value in seconds.items()}


def groups(repeats=7):
    """A million log-ratios in few and many groups, with and without weights, against one sort of them all."""
    rng = np.random.default_rng(3)
    x, weights = rng.normal(size=10**6), rng.exponential(size=10**6)
    rows = []
    for count in (10, 1000, 65_536, 100_000, 300_000):
        labels = np.concatenate([np.arange(count), rng.integers(0, count, 10**6 - count)])
        contestants = {
            "sort": lambda: np.sort(x),
            "even": lambda labels=labels: obrs.solve_log_c(x, BUDGET, groups=labels),
            "weighted": lambda labels=labels: obrs.solve_log_c(x, BUDGET, groups=labels, weights=weights),
        }
        rows.append({"groups": count, **typical(contestants, repeats)})
    return rows


def skewed_weights(repeats=5):
    """Ten million log-ratios with weights that are even, and that differ by orders of magnitude."""
    rng = np.random.default_rng(4)
    x, log_weight = rng.normal(size=10**7), rng.normal(size=10**7)
    masses = {f"log-sd {sd}": np.exp(sd * log_weight) for sd in (0, 1, 3)}
    contestants = {name: lambda mass=mass: obrs.solve_log_c(x, BUDGET, weights=mass) for name, mass in masses.items()}
    seconds = typical(contestants, repeats)
    return {name: {"seconds": value, "ratio": value / seconds["log-sd 0"]} for name, value in seconds.items()}


def main():
    parser = options(__doc__)
    parser.add_argument("--largest", type=float, default=1e8)
    parser.add_argument("--rows", type=int, default=10_000)
    arguments = parser.parse_args()

    rows = []
    print(f"K = {BUDGET}, float32, medians of turns taken in one run; a pass is exp-and-sum in the same backend\n")
    print("       n   sd backend  pass ms  solve ms  passes   |K rate-1|   dichotomy x   its |K rate-1|")
    for n in [int(10**k) for k in range(4, 9) if 10**k <= arguments.largest]:
        for sd in [1, 3, 10]:
            for backend in ["numpy", "torch"]:
                row = measure(n, sd, backend, repeats=15 if n <= 10**7 else 3)
                rows.append(row)
                against = f"{row['speed-up']:13.0f} {row['paper error']:16.1e}" if "paper" in row else ""
                print(
                    f"{n:8.0e} {sd:4} {backend:7} {1e3 * row['pass']:8.2f} {1e3 * row['solve']:9.2f} "
                    f"{row['passes']:7.2f} {row['error']:12.1e} {against}",
                    flush=True,
                )
    extra = extra_memory(np.random.default_rng(0).standard_normal((1, 10**7), dtype=np.float32)) / 4e7
    print(f"\nextra memory at n = 1e7, as a multiple of the input: {extra:.2f} (target 1.5)")
    many = rows_and_groups(arguments.rows)
    for key, value in many.items():
        print(f"{key}: {value:.3g}")
    small, by_label, skewed = fixed_cost(), groups(), skewed_weights()
    print(f"\n1000 log-ratios: {small['solve']:.3f} ms, a pass {small['pass']:.3f} ms")
    for row in by_label:
        print(
            f"1e6 in {row['groups']:7,} groups: {1e3 * row['even']:5.0f} ms, weighted {1e3 * row['weighted']:5.0f} ms"
        )
    for name, row in skewed.items():
        print(f"1e7 with weights of {name}: {row['seconds']:.3f} s, {row['ratio']:.2f} times even ones")
    write(
        arguments.out,
        "solver",
        {"budget": BUDGET, "dtype": "float32", "cores": os.cpu_count()},
        ("numpy", "torch"),
        rows=rows,
        **{
            "extra memory at 1e7 (multiple of input)": extra,
            "many problems": many,
            "fixed cost, ms": small,
            "groups of 1e6": by_label,
            "weights of 1e7": skewed,
        },
    )


if __name__ == "__main__":
    main()
