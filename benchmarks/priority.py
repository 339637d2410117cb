"""How far the n smallest keys are from the probabilities min(c r, 1), beside designs that have them exactly.

    python benchmarks/priority.py [--out FILE.json] [--draws 8000000]

One pool of normal log-ratios is drawn from again and again. *error* is the mean |frequency - pi| over the mean pi,
*noise* what a design without error would show after as many draws, *worst* the largest |frequency - pi|. Pareto
sampling (Rosén, 1997), which knows pi beforehand, and Gumbel top-k, which draws one after the other, are there for
comparison.
"""

from typing import Any

import numpy as np
from bench import options, write

from obrs.selection import inclusion_probability, select

CASES = [(12, 4, 1.0), (50, 12, 1.0), (200, 50, 1.0), (2000, 500, 1.0), (2000, 500, 2.0), (2000, 77, 1.0)]
DESIGNS = ("pivotal", "systematic", "priority")
Floats = np.ndarray[Any, Any]


def smallest(keys: Floats, n: int) -> Floats:
    """Return how often each column is among the n smallest of its row."""
    last = np.partition(keys, n - 1, axis=1)[:, n - 1 : n]
    return np.asarray(np.sum(keys <= last, axis=0))


def frequencies(log_ratio: Floats, n: int, repeat: int) -> dict[str, Floats]:
    """Draw n of the pool so many times by every method."""
    size, ratio, pi = len(log_ratio), np.exp(log_ratio), inclusion_probability(log_ratio, n)
    step = max(1, 2_000_000 // size)
    counts = {name: np.zeros(size) for name in (*DESIGNS, "pareto", "gumbel top-k")}
    sure = pi > 1 - 1e-12
    odds = np.where(sure, np.inf, pi) / np.where(sure, 1.0, 1 - pi)
    for start in range(0, repeat, step):
        rows = min(step, repeat - start)
        groups = np.repeat(np.arange(rows), size)
        for name in DESIGNS:
            chosen = select(np.tile(log_ratio, rows), n, seed=start, design=name, groups=groups)
            counts[name] += np.bincount(chosen % size, minlength=size)
        u = np.random.default_rng(start).random((rows, size))
        counts["pareto"] += smallest(u / (1 - u) / odds, n)
        counts["gumbel top-k"] += smallest(-np.log(u) / ratio, n)
    return {name: count / repeat for name, count in counts.items()}


def rows_of(draws: int) -> list[dict[str, Any]]:
    """Measure every case, with about as many candidates drawn from in each."""
    rows = []
    for size, n, spread in CASES:
        log_ratio = np.random.default_rng(1).normal(0, spread, size)
        pi, repeat = inclusion_probability(log_ratio, n), max(draws // size, 2)
        noise = float(np.mean(np.sqrt(2 / np.pi * pi * (1 - pi) / repeat)) / pi.mean())
        for name, often in frequencies(log_ratio, n, repeat).items():
            off = np.abs(often - pi)
            row = {"candidates": size, "n": n, "spread": spread, "method": name, "repeat": repeat, "noise": noise}
            rows.append(row | {"error": float(off.mean() / pi.mean()), "worst": float(off.max())})
    return rows


def main(argv: list[str] | None = None) -> int:
    """Print the table, and write the JSON if asked to."""
    parser = options(__doc__)
    parser.add_argument("--draws", type=int, default=8_000_000, help="candidates to draw from per case and method")
    args = parser.parse_args(argv)
    rows = rows_of(args.draws)
    print(f"{'candidates':>10}{'n':>5}{'spread':>7}  {'method':14}{'error':>8}{'noise':>8}{'worst':>8}")
    for row in rows:
        figures = f"{row['error']:8.4f}{row['noise']:8.4f}{row['worst']:8.4f}"
        print(f"{row['candidates']:10}{row['n']:5}{row['spread']:7g}  {row['method']:14}{figures}")
    write(args.out, "priority", {"draws": args.draws}, rows=rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
