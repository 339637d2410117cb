"""How often must c be solved in training? The paper's figure, on images: distance and time, c solved every N steps.

The paper solves for c by dichotomy on thousands of samples, which takes time, so it does it every N steps. Here it is
solved exactly on the batch, and the GANs learn Fashion-MNIST; `paper` trains BigGANs on CIFAR-10. Beside Algorithm 2
are the losses that need no c: hinge, Algorithm 1, and the two forms of E[f(r)] that may stand for it. `image_training`
says what they are and how GANs are judged. The time of one solution is measured apart, ours and the printed dichotomy
of 10 000 samples.
"""

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from .image_training import CIFAR, KINDS, SMALL, Config, draw_courses, finals, judged_table
from .image_training import run as run_kinds
from .record import Record
from .style import PALETTE, canvas, caption, tidy

__all__ = ["PAPER", "PRESETS", "Config", "bisect_c", "figure", "run", "table"]

PAPER: dict[str, Any] = {
    "figure": "in Appendix D.3: FID and time for different frequencies of updates of c, CIFAR-10, K = 2",
    "longer": {10: 0.19, 100: 0.0169, 1000: 0.0003},
}
"""How much longer training takes than without OBRS, by the steps between updates; the FID does not depend on them."""
_LOSSES = {"hinge": "dark", "dual": "orange", "without": "pink", "unrejected": "olive", "paper_raw": "red"}
_EVERY = {"paper_raw": "red", "paper_raw 10": "blue", "paper_raw 100": "sky", "paper_raw 1000": "teal"}
_SOLVED = 10_000  # samples on which the two solvers are timed
PRESETS = {
    "smoke": Config(("paper_raw", "paper_raw 10"), **SMALL, steps=12),
    "default": Config((*_LOSSES, *list(_EVERY)[1:]), batch_size=32, points=6, pool=2500, neighbours=2500, fakes=2500),
    "paper": Config(("hinge", "dual", *_EVERY), **CIFAR),
}


def run(config: Config, rows: Record) -> None:
    """Train and judge, a row for each kind and seed; then time the solvers."""
    run_kinds(config, rows)
    if "solvers" not in rows:
        rows.add("solvers", {"kind": "solvers"} | _time_solvers(config.budget))


def bisect_c(ratio: Any, budget: float, *, precision: float = 1e-3, low: float = 1e-10, high: float = 1e10) -> float:
    """Return c by the dichotomy that the paper prints: the bracket is halved until the rate is 1/K to a precision.

    Example:
        >>> round(bisect_c(np.array([4.0, 1.0, 0.5, 0.5]), 2.0, precision=1e-6), 3)
        0.5
    """
    rate = np.inf
    while abs(rate - 1 / budget) > precision and high - low > 1e-15 * high:
        middle = (low + high) / 2
        rate = float(np.mean(np.minimum(middle * ratio, 1.0)))
        low, high = (middle, high) if rate < 1 / budget else (low, middle)
    return (low + high) / 2


def _time_solvers(budget: float) -> dict[str, Any]:
    """Return CPU milliseconds of one solution for c: ours and the dichotomy."""
    from obrs import solve_log_c

    log_ratio = np.random.default_rng(0).normal(-0.5, 1.0, _SOLVED)
    ways: dict[str, Callable[[], float]] = {
        "exact": lambda: float(solve_log_c(log_ratio, budget)),
        "dichotomy": lambda: bisect_c(np.exp(log_ratio), budget),
    }
    milliseconds = {}
    for name, solve in ways.items():
        begun, times = process_time(), 50
        for _ in range(times):
            solve()
        milliseconds[name] = 1000 * (process_time() - begun) / times
    return {"milliseconds": milliseconds}


def table(record: Record) -> str:
    """Return distance and time for each kind: means over the seeds and their standard errors; then the solvers."""
    longer = ", ".join(f"{100 * more:g} % every {steps}" for steps, more in PAPER["longer"].items())
    lines = [judged_table(record, {}), f"the paper, longer than without OBRS: {longer} steps"]
    if "solvers" in record:
        times = ", ".join(f"{name} {value:.2f} ms" for name, value in record["solvers"]["milliseconds"].items())
        lines.append(f"one solution for c on {_SOLVED:,} samples: {times}")
    return "\n".join(lines)


def figure(record: Record) -> Any:
    """Draw the distance during training by loss, and by the steps between two solutions; and the time of a step."""
    drawn = canvas(14, 4.4)
    left, middle, right = drawn.subplots(1, 3, width_ratios=(1, 1, 0.8))
    draw_courses(left, record, _LOSSES)
    draw_courses(middle, record, _EVERY)
    for height, (kind, seconds) in enumerate(finals(record, "cpu_seconds").items()):
        times = [1000 / record.config["steps"] * value for value in seconds.values()]
        right.plot(times, [height] * len(times), "o", color=PALETTE[(_LOSSES | _EVERY)[kind]], mew=0)
    kinds = list(finals(record, "cpu_seconds"))
    right.set(yticks=range(len(kinds)), yticklabels=[KINDS[kind] for kind in kinds], xlabel="CPU time of a step, ms")
    right.set_xlim(0, 1.1 * right.get_xlim()[1])
    right.invert_yaxis()
    tidy(right, None)
    caption(drawn, record.experiment, "Dots and thin lines are runs, thick lines means over seeds.")
    return drawn
