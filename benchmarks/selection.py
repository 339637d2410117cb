"""Time `select`, and compare it with what people do instead to get n of a pool.

    python benchmarks/selection.py [--out FILE.json] [--largest 10000000] [--repeat 5] [--repetitions 4000]

First table: seconds and memory to select a quarter of N candidates, contestants alternating, medians. Second
table: the same n from one pool of 2000 by each method, over many repetitions. There, with p_i proportional to
r_i on the pool and kept_i proportional to how often i is kept (in closed form, or as an average of conditional
probabilities for Gumbel top-k):

- error: mean |frequency - pi| over mean pi, and the noise that alone explains of it at so many repetitions;
- kl, tv: divergence left between p and kept; kl is infinite where kept is 0 and p is not;
- distinct: different candidates per selection over n; repeats: share of the selection that repeats another;
- rmse: of the plain average of log r over the selection against its mean under p, in standard deviations;
- weighted: the same for the average with weights r/pi, which a selection with known pi allows.
"""

import os
import tracemalloc
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from bench import exit_code, goal, options, seconds, write

import obrs
from obrs.selection import DESIGNS, inclusion_probability, select

POOL = 2000
TARGETS = {("pivotal", 10_000_000): 10.0, ("systematic", 10_000_000): 3.0}
Floats = np.ndarray[Any, Any]
Draw = Callable[[int], Floats]  # seed -> indices, n of them


def ours(log_ratio: Floats, n: int, design: str) -> Draw:
    """Return a selection by one of our designs."""
    return lambda seed: select(log_ratio, n, seed=seed, design=design)


def top_k(log_ratio: Floats, n: int) -> Draw:
    """Return the n largest ratios; there is nothing random in it."""
    return lambda seed: np.asarray(np.argpartition(log_ratio, len(log_ratio) - n)[-n:])


def gumbel_top_k(log_ratio: Floats, n: int) -> Draw:
    """Return n drawn one after the other without replacement, with weights r."""

    def draw(seed: int) -> Floats:
        keys = log_ratio - np.log(np.random.default_rng(seed).standard_exponential(len(log_ratio)))
        largest: Floats = np.argpartition(keys, len(keys) - n)[-n:]
        return largest

    return draw


def multinomial(log_ratio: Floats, n: int) -> Draw:
    """Return n drawn with replacement, with weights r: importance resampling."""

    def draw(seed: int) -> Floats:
        cumulative = np.cumsum(np.exp(log_ratio - log_ratio.max()))
        return np.asarray(np.searchsorted(cumulative, np.random.default_rng(seed).random(n) * cumulative[-1]))

    return draw


RIVALS = {"top-k": top_k, "gumbel top-k": gumbel_top_k, "multinomial": multinomial}


def peak_bytes(draw: Draw) -> int:
    """Return the most memory that one selection holds beyond its input."""
    tracemalloc.start()
    draw(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def time_rows(largest: int, repeat: int) -> list[dict[str, Any]]:
    """Time every design and rival on pools of 10^4 up to `largest`."""
    rows = []
    for size in [500, POOL] + [10**k for k in range(4, len(str(largest)))]:
        log_ratio = np.asarray(np.random.default_rng(0).standard_normal(size))
        n = size // 4
        draws = {name: ours(log_ratio, n, name) for name in DESIGNS}
        draws |= {name: rival(log_ratio, n) for name, rival in RIVALS.items()}
        times = [{name: seconds(partial(draw, seed)) for name, draw in draws.items()} for seed in range(repeat + 1)][1:]
        for name, draw in draws.items():
            took, target = median(t[name] for t in times), TARGETS.get((name, size))
            rows.append(
                {
                    "method": name,
                    "candidates": size,
                    "seconds": took,
                    "peak_bytes_per_candidate": peak_bytes(draw) / size,
                    "target_seconds": target,
                    "met": None if target is None else took <= target,
                }
            )
    return rows


def gumbel_inclusion(log_ratio: Floats, n: int, repetitions: int) -> Floats:
    """Average the exact inclusion probability of each candidate given the arrivals of all the others."""
    rate = np.exp(log_ratio - log_ratio.max())
    inclusion = np.zeros(len(rate))
    for seed in range(repetitions):
        arrival = np.random.default_rng([seed, 1]).standard_exponential(len(rate)) / rate
        nth, after = np.partition(arrival, [n - 1, n])[n - 1 : n + 1]
        others_nth = np.where(arrival <= nth, after, nth)
        inclusion -= np.expm1(-rate * others_nth)
    return inclusion / repetitions


def loss(p: Floats, kept: Floats, key: str) -> float | None:
    """Return the divergence of p from what is kept; None stands for infinity."""
    kept = kept / kept.sum()
    if key == "kl" and np.any((kept == 0) & (p > 0)):
        return None
    seen = kept > 0
    inside = np.sum(kept[seen] * obrs.divergences.DIVERGENCES[key].f(np.log(p[seen] / kept[seen])))
    return max(0.0, float(inside) + (0.5 * p[~seen].sum() if key == "tv" else 0.0))  # f(u)/u of tv tends to 1/2


def comparison_rows(repetitions: int) -> list[dict[str, Any]]:
    """Compare methods at two sizes and two spreads of the log-ratio."""
    rows = []
    for spread in (1.0, 2.0):
        log_ratio = np.random.default_rng(1).normal(0, spread, POOL)
        ratio = np.exp(log_ratio)
        for n in (500, int(ratio.sum() / ratio.max())):
            rows += compare(log_ratio, n, spread, repetitions)
    return rows


def compare(log_ratio: Floats, n: int, spread: float, repetitions: int) -> list[dict[str, Any]]:
    """Draw n again and again by each method."""
    p = np.exp(log_ratio - log_ratio.max())
    p /= p.sum()
    pi = inclusion_probability(log_ratio, n)
    inclusion = {
        "pivotal": pi,
        "systematic": pi,
        "top-k": (np.argsort(np.argsort(-log_ratio)) < n).astype(float),
        "gumbel top-k": gumbel_inclusion(log_ratio, n, repetitions),
        "multinomial": n * p,  # copies; of different candidates it keeps fewer
    }
    draws = {name: ours(log_ratio, n, name) if name in DESIGNS else RIVALS[name](log_ratio, n) for name in inclusion}
    noise = float(np.mean(np.sqrt(2 / np.pi * pi * (1 - pi) / repetitions)) / pi.mean())
    centre = np.sum(p * log_ratio)
    scale = np.sqrt(np.sum(p * (log_ratio - centre) ** 2))
    rows = []
    for name, draw in draws.items():
        weight = p / np.maximum(inclusion[name], np.finfo(float).tiny)
        copies, present, squares = np.zeros(POOL), np.zeros(POOL), np.zeros(2)
        for seed in range(repetitions):
            chosen = draw(seed)
            here = np.bincount(chosen, minlength=POOL)
            copies += here
            present += here > 0
            means = log_ratio[chosen].mean(), np.average(log_ratio[chosen], weights=weight[chosen])
            squares += ((np.array(means) - centre) / scale) ** 2
        plain, weighted = np.sqrt(squares / repetitions)
        row = {
            "spread": spread,
            "n": n,
            "method": name,
            "error": float(np.mean(np.abs(copies / repetitions - pi)) / pi.mean()),
            "error_by_noise": noise,
            "kl": loss(p, inclusion[name], "kl"),
            "tv": loss(p, inclusion[name], "tv"),
            "distinct": float(present.sum() / repetitions / n),
            "repeats": float(1 - present.sum() / copies.sum()),
            "rmse": float(plain),
            "rmse_weighted": float(weighted) if name != "top-k" else None,  # weights cannot bring back what has none
        }
        rows.append(row)
        if name == "multinomial":
            once = -np.expm1(n * np.log1p(-p))
            error = float(np.mean(np.abs(present / repetitions - pi)) / pi.mean())
            row = row | {"method": "multinomial, repeats dropped", "error": error, "repeats": 0.0}
            row |= {"kl": loss(p, once, "kl"), "tv": loss(p, once, "tv"), "rmse": None, "rmse_weighted": None}
            rows.append(row)
    return rows


def number(value: float | None, missing: str = "inf") -> str:
    """Format a number for a table."""
    return missing if value is None else f"{value:.4f}"


def main(argv: list[str] | None = None) -> int:
    """Print both tables, and write the JSON if asked to; return 1 if a target is missed."""
    parser = options(__doc__)
    parser.add_argument("--largest", type=int, default=10_000_000, help="largest pool to time, a power of ten")
    parser.add_argument("--repeat", type=int, default=5, help="timed repeats")
    parser.add_argument("--repetitions", type=int, default=4000, help="selections per method in the comparison")
    args = parser.parse_args(argv)
    if args.largest < 10_000 or args.repeat < 1 or args.repetitions < 2:
        parser.error("--largest must be at least 10000, --repeat at least 1 and --repetitions at least 2")

    timings = time_rows(args.largest, args.repeat)
    print(f"{'method':14}{'candidates':>11}{'seconds':>10}{'bytes each':>12}  target")
    for row in timings:
        times = f"{row['seconds']:10.5f}{row['peak_bytes_per_candidate']:12.1f}"
        end = goal(row["target_seconds"], row["met"], " s")
        print(f"{row['method']:14}{row['candidates']:11}{times}  {end}".rstrip())

    rows = comparison_rows(args.repetitions)
    columns = ("error", "error_by_noise", "kl", "tv", "distinct", "repeats", "rmse", "rmse_weighted")
    print(
        f"\n{'spread':>6}{'n':>5}  {'method':29}"
        + "".join(f"{c.removeprefix('error_by_').removeprefix('rmse_'):>9}" for c in columns)
    )
    for row in rows:
        cells = "".join(f"{number(row[c], 'inf' if c == 'kl' else '-'):>9}" for c in columns)
        print(f"{row['spread']:6g}{row['n']:5}  {row['method']:29}{cells}")
    config = {
        "pool": POOL,
        "largest": args.largest,
        "repeat": args.repeat,
        "repetitions": args.repetitions,
        "log_ratio": "normal, mean 0",
        "cores": os.cpu_count(),
        "null": "kl: infinite; otherwise not measured",
    }
    write(args.out, "selection", config, timings=timings, rows=rows)
    return exit_code(timings)


if __name__ == "__main__":
    raise SystemExit(main())
