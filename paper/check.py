"""Do the experiments still give the rows that version 0.2 gave? `python -m paper.check`, a few minutes.

`paper/results/check.json` has the rows of 0.2 (commit 01f09f9), run once in a worktree of it with the weights of
`paper/weights`: the default presets of what takes seconds, the smoke presets of all. Columns of time are left out.
Those of the five experiments on images are of 0.3, whose Fréchet distances extrapolate by rows left out one by one
instead of by random halves; of the three on training the smoke presets changed, too.
Numbers must agree to 1e-9 of the largest in their list, on one thread. What is trained or descends amplifies the last
bit of a sum, and so has a tolerance of its own in `NOISE`; another processor may need `--tolerance 1e-6` for the rest.

    python -m paper.check                          # all of it; exit code 1 if a row differs
    python -m paper.check table-2/smoke figure-pr  # some of it
"""

import argparse
import json
import sys
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

from obrs._text import one_line, text_table
from obrs.errors import MissingLibraryError, ObrsError

from .harness import reproduce

__all__ = ["difference", "drop_times", "main"]

FILE = Path(__file__).with_name("results") / "check.json"
TIMES = ("seconds", "cpu_seconds", "time", "sampling", "training", "milliseconds")
NOISE = {
    "figure-optimal-g/default": 1e-3,  # one of its paths jitters about its end
    "table-diffusion/smoke": 0.1,  # splits of a budget that are equally good, at a KL of 1e-16
    "figure-pretrained/smoke": 1e-4,
    "figure-training/smoke": 5e-3,  # on another processor one image of 400 is on the other side of a radius
    "table-finetune/smoke": 5e-3,
    "figure-frequency/smoke": 5e-3,
}
"""How far rows may be off where another order of a sum is enough to move them."""
_LEAST = 1e-5  # numbers below it are compared as if they were so large


def drop_times(value: Any) -> Any:
    """Return a row, or a part of it, without measured times, and with floats rounded to twelve digits."""
    if isinstance(value, dict):
        return {key: drop_times(inner) for key, inner in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [drop_times(inner) for inner in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def difference(expected: Any, actual: Any, scale: float = 0.0) -> float:
    """Return the largest difference of two rows, relative to the largest number beside it; inf if their forms differ.

    Example:
        >>> difference({"a": [1.0, 200.0]}, {"a": [1.0, 200.0002]})  # doctest: +ELLIPSIS
        9.99...e-07
    """
    if _is_number(expected) and _is_number(actual):
        return float(abs(expected - actual) / max(scale, abs(expected), abs(actual), _LEAST))
    if isinstance(expected, dict) and isinstance(actual, dict) and expected.keys() == actual.keys():
        return max((difference(expected[key], actual[key]) for key in expected), default=0.0)
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        scale = max((abs(x) for x in (*expected, *actual) if _is_number(x)), default=0.0)
        return max((difference(a, b, scale) for a, b in zip(expected, actual, strict=True)), default=0.0)
    return 0.0 if expected == actual else inf


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def main(argv: list[str] | None = None) -> int:
    """Run what is asked for, print how far its rows are from those of 0.2, and return 1 if one is too far."""
    parser = argparse.ArgumentParser(prog="python -m paper.check")
    parser.add_argument("runs", nargs="*", help="NAME or NAME/PRESET; all by default")
    parser.add_argument("--tolerance", type=float, default=1e-9)
    known = parser.parse_args(argv)
    expected = json.loads(FILE.read_text())
    chosen = {run: rows for run, rows in expected.items() if not known.runs or {run, run.split("/")[0]} & {*known.runs}}
    lines, failed = [], not chosen
    for run, rows in chosen.items():
        begun = perf_counter()
        try:
            actual = [drop_times(row) for row in reproduce(*run.split("/")).rows]
        except ObrsError as error:
            failed |= not isinstance(error, MissingLibraryError)
            lines.append([run, len(rows), one_line(error), ""])
            continue
        off = difference(rows, actual)
        failed |= not off <= max(known.tolerance, NOISE.get(run, 0.0))
        lines.append([run, len(rows), "equal" if off == 0 else f"{off:.1e}", f"{perf_counter() - begun:.1f}"])
    print(text_table(["experiment", "rows", "largest difference", "s"], lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
