"""What every benchmark shares: its options, timed calls and its record. Run by itself, it runs them all: `make bench`.

    python benchmarks/bench.py [NAME …]

Each writes `benchmarks/results/NAME.json`. Some measure models of `paper`, the package at the top of the repository.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))  # where `paper` is
BENCHMARKS = {path.stem: path for path in sorted(HERE.glob("*.py")) if path.stem != "bench"}


def options(doc: str) -> argparse.ArgumentParser:
    """Return a parser that describes a benchmark by the first line of its docstring, and knows `--out`."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the record to this JSON file")
    return parser


def write(
    out: Path | None, benchmark: str, config: Mapping[str, Any], libraries: Iterable[str] = ("numpy",), **parts: Any
) -> None:
    """Write a record if there is a file to write it to: what was asked for, what was found, and versions.

    Args:
        out: The file, or None.
        benchmark: The name of the benchmark.
        config: What was asked for.
        libraries: Whose versions count beside our own and that of Python, as package registries call them.
        parts: What was found; most have `rows`.
    """
    if out is None:
        return
    import obrs  # not above: a contestant that runs alone should not have the memory of others

    versions = {"obrs": obrs.__version__, **{name: version(name) for name in libraries}}
    versions["python"] = platform.python_version()
    record = {"benchmark": benchmark, "config": config, **parts, "versions": versions}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=2) + "\n")


def seconds(call: Callable[[], Any]) -> float:
    """Return how long one call takes."""
    start = perf_counter()
    call()
    return perf_counter() - start


def take_turns(contestants: Mapping[str, Callable[[], Any]], repeats: int) -> list[dict[str, float]]:
    """Return the seconds of each contestant by round; they take turns, after a round to warm up that does not count."""
    return [{name: seconds(call) for name, call in contestants.items()} for _ in range(repeats + 1)][1:]


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the median seconds of each."""
    return {name: median(turn[name] for turn in rounds) for name in rounds[0]}


def alone(script: str, *arguments: object) -> Any:
    """Run a part of a script in a process of its own, and return the JSON that it prints."""
    command = [sys.executable, script, *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def memory(what: str = "VmHWM") -> int:
    """Return a memory figure of this process in bytes, by its name in Linux: VmHWM is the peak, VmRSS the present."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage counts what the parent had when it forked
        return 1024 * next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(what))
    if what != "VmHWM":
        raise SystemExit(f"only Linux knows {what}")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def goal(target: float | None, met: bool | None, unit: str = "") -> str:
    """Return a target and whether it is met, for the end of a line; nothing if there is none."""
    return "" if met is None else f"<= {target:g}{unit} {'met' if met else 'MISSED'}"


def exit_code(rows: Iterable[Mapping[str, Any]]) -> int:
    """Return 1 if a target is missed, as an exit code."""
    return int(any(row.get("met") is False for row in rows))


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks one after the other; stop at the first that misses a target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all if there is none")
    names = parser.parse_args(argv).names or list(BENCHMARKS)
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        parser.error(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    for name in names:
        print(f"== {name}", flush=True)
        out = HERE / "results" / f"{name}.json"
        if code := subprocess.run([sys.executable, BENCHMARKS[name], "--out", out], check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
