"""Time the fits of the rules, against one exponential of the same numbers, and measure what a promise costs.

    python benchmarks/acceptance.py [--out FILE.json] [--size 1000000] [--repeat 7] [--draws 200]

First table: seconds to fit a rule to log-ratios that are normal with a given standard deviation, contestants
alternating, medians; "exps" says how many `np.exp` of as many numbers take as long. Second table: how far
`confidence=0.95` raises the rate above 1/K, on average over many samples; the same for a normal law whose variance is
known, which no promise without assumptions can beat by much; and how often the budget was overrun all the same.
"""

import os
from collections.abc import Callable
from statistics import NormalDist, median
from typing import Any

import numpy as np
from bench import goal, missed, options, take_turns, write

import obrs

SPREADS = (0.1, 1.0, 3.0)
BUDGET = 2.6
CONFIDENCE = 0.95
TARGETS = {("DRS", 1_000_000): 0.3}
CASES = {"normal, sd 1": (1.0, 2.0), "normal, sd 2": (2.0, 2.0), "wide": (3.0, 4.0), "nearly constant": (0.05, 1.02)}
Floats = np.ndarray[Any, Any]


def contestants(log_ratio: Floats) -> dict[str, Callable[[], object]]:
    """Return what is timed, by name; the first is the yardstick."""
    return {
        "exp": lambda: np.exp(log_ratio),
        "Budgeted": lambda: obrs.Budgeted.fit(log_ratio, BUDGET),
        "Budgeted, confidence": lambda: obrs.Budgeted.fit(log_ratio, BUDGET, confidence=CONFIDENCE),
        "DRS": lambda: obrs.DRS.fit(log_ratio, BUDGET),
    }


def time_rows(size: int, repeat: int) -> list[dict[str, Any]]:
    """Time every contestant on each spread."""
    rows = []
    for spread in SPREADS:
        calls = contestants(np.random.default_rng(0).normal(0, spread, size))
        times = take_turns(calls, repeat)
        for name in calls:
            took, target = median(t[name] for t in times), TARGETS.get((name, size))
            rows.append(
                {
                    "fit": name,
                    "log_ratio_sd": spread,
                    "seconds": took,
                    "exps": median(t[name] / t["exp"] for t in times),
                    "target_seconds": target,
                    "met": None if target is None else took <= target,
                }
            )
    return rows


def promise_rows(draws: int) -> list[dict[str, Any]]:
    """Measure the excess of the rate and how often the budget is overrun, at four sizes of the sample."""
    rows = []
    for name, (spread, budget) in CASES.items():
        quantile = NormalDist().inv_cdf
        law = spread * np.array([quantile((i + 0.5) / 100_000) for i in range(100_000)])  # stands for all proposals
        exact = obrs.Budgeted(float(obrs.solve_log_c(law, budget)))
        deviation = float(np.std(np.exp(exact(law))))
        for n in (100, 1000, 10_000, 100_000):
            many = max(2, draws * 1000 // max(n, 1000))
            rng = np.random.default_rng(n)
            rules = [obrs.Budgeted.fit(rng.normal(0, spread, n), budget, confidence=CONFIDENCE) for _ in range(many)]
            excess = float(np.mean([1 / (rule.budget or budget) - 1 / budget for rule in rules]))
            normal = quantile(CONFIDENCE) * deviation / n**0.5
            rows.append(
                {
                    "case": name,
                    "budget": budget,
                    "n": n,
                    "draws": many,
                    "excess": excess,
                    "normal": normal,
                    "ratio": excess / normal,
                    "overrun": float(np.mean([rule.log_c < exact.log_c for rule in rules])),
                }
            )
    return rows


def main(argv: list[str] | None = None) -> int:
    """Print both tables, and write the JSON if asked to; return 1 if a target is missed."""
    parser = options(__doc__)
    parser.add_argument("--size", type=int, default=1_000_000, help="log-ratios to fit to")
    parser.add_argument("--repeat", type=int, default=7, help="timed repeats")
    parser.add_argument(
        "--draws", type=int, default=200, help="samples per case of up to 1000 log-ratios, fewer beyond"
    )
    args = parser.parse_args(argv)
    if args.size < 1000 or args.repeat < 1 or args.draws < 2:
        parser.error("--size must be at least 1000, --repeat at least 1 and --draws at least 2")

    timings = time_rows(args.size, args.repeat)
    print(f"{'fit':22}{'sd':>5}{'seconds':>10}{'exps':>8}  target")
    for row in timings:
        start = f"{row['fit']:22}{row['log_ratio_sd']:5g}{row['seconds']:10.4f}{row['exps']:8.1f}"
        print(f"{start}  {goal(row['target_seconds'], row['met'], ' s')}".rstrip())

    promises = promise_rows(args.draws)
    print(f"\n{'case':17}{'K':>5}{'n':>8}{'draws':>7}{'excess':>9}{'normal':>9}{'ratio':>7}{'overrun':>9}")
    for row in promises:
        start = f"{row['case']:17}{row['budget']:5g}{row['n']:8}{row['draws']:7}"
        print(f"{start}{row['excess']:9.5f}{row['normal']:9.5f}{row['ratio']:7.2f}{row['overrun']:9.3f}")
    config = {
        "size": args.size,
        "repeat": args.repeat,
        "draws": args.draws,
        "budget": BUDGET,
        "confidence": CONFIDENCE,
        "log_ratio": "normal, mean 0",
        "cores": os.cpu_count(),
        "null": "no target",
    }
    write(args.out, "acceptance", config, timings=timings, promises=promises)
    return missed(timings)


if __name__ == "__main__":
    raise SystemExit(main())
