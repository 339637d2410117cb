"""Time `Profile` and `plan`, against one sort and one exponential of the same numbers.

    python benchmarks/plan.py [--out FILE.json] [--largest 1000000] [--repeat 7]

Contestants alternate, medians are reported. `plan` includes making the profile, as a user pays for both; it has four
budgets. "sorts" and "exps" say how many `np.sort` or `np.exp` of as many numbers take as long.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from bench import exit_code, goal, medians, options, take_turns, write

import obrs

BUDGETS = (1.0, 1.5, 2.0, 4.0)
TARGETS = {("plan", 1_000_000): 0.7}
Floats = np.ndarray[Any, Any]


def contestants(log_ratio: Floats, weights: Floats) -> dict[str, Callable[[], object]]:
    """Return what is timed, by name; the first two are the yardsticks."""
    return {
        "sort": lambda: np.sort(log_ratio),
        "exp": lambda: np.exp(log_ratio),
        "profile": lambda: obrs.Profile(log_ratio),
        "plan": lambda: obrs.Profile(log_ratio).plan(BUDGETS),
        "profile, weighted": lambda: obrs.Profile(log_ratio, weights),
        "plan, weighted": lambda: obrs.Profile(log_ratio, weights).plan(BUDGETS),
    }


def time_rows(largest: int, repeat: int) -> list[dict[str, Any]]:
    """Time everything on 10^3 up to `largest` log-ratios."""
    rows = []
    for size in (10**k for k in range(3, len(str(largest)))):
        rng = np.random.default_rng(0)
        calls = contestants(rng.standard_normal(size), rng.random(size))
        took = medians(take_turns(calls, repeat))
        for name, value in took.items():
            target = TARGETS.get((name, size))
            rows.append(
                {
                    "what": name,
                    "log_ratios": size,
                    "seconds": value,
                    "sorts": value / took["sort"],
                    "exps": value / took["exp"],
                    "target_seconds": target,
                    "met": None if target is None else value <= target,
                }
            )
    return rows


def main(argv: list[str] | None = None) -> int:
    """Print the table, and write the JSON if asked to; return 1 if a target is missed."""
    parser = options(__doc__)
    parser.add_argument("--largest", type=int, default=1_000_000, help="most log-ratios, a power of ten")
    parser.add_argument("--repeat", type=int, default=7, help="timed repeats")
    args = parser.parse_args(argv)
    if args.largest < 1000 or args.repeat < 1:
        parser.error("--largest must be at least 1000 and --repeat at least 1")

    rows = time_rows(args.largest, args.repeat)
    print(f"{'what':19}{'log-ratios':>11}{'seconds':>10}{'sorts':>9}{'exps':>9}  target")
    for row in rows:
        cells = f"{row['seconds']:10.5f}{row['sorts']:9.1f}{row['exps']:9.1f}"
        end = goal(row["target_seconds"], row["met"], " s")
        print(f"{row['what']:19}{row['log_ratios']:11}{cells}  {end}".rstrip())
    config = {
        "budgets": BUDGETS,
        "largest": args.largest,
        "repeat": args.repeat,
        "log_ratio": "standard normal",
        "weights": "uniform",
        "cores": os.cpu_count(),
    }
    write(args.out, "plan", config, rows=rows)
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
