"""How often must c be solved in training? The paper's figure, on images: distance and time, c solved every N steps.

The paper solves for c by dichotomy on thousands of samples, which takes time, so it does it every N steps. Here it is
solved exactly on the batch. The loss is Algorithm 2 as printed, K = 2, beside hinge and Algorithm 1, which need no c;
`image_training` says how GANs are judged. The time of one solution is measured apart, ours and the printed dichotomy
of 10 000 samples. `fashion` is what version 0.2 ran, and `paper` trains BigGANs on CIFAR-10.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from .image_training import CIFAR, SMALL, ImageTraining, draw_courses, finals, judged_table, run_kinds, training
from .record import Record
from .style import PALETTE, canvas, caption, tidy

__all__ = ["PAPER", "PRESETS", "Config", "bisect_c", "figure", "run", "settings", "table"]

PAPER: dict[str, Any] = {
    "figure": "in Appendix D.3: FID and time for different frequencies of updates of c, CIFAR-10, K = 2",
    "longer": {10: 0.19, 100: 0.0169, 1000: 0.0003},
}
"""How much longer training takes than without OBRS, by the steps between updates; the FID does not depend on them."""
_COLOURS = ("blue", "sky", "teal", "olive", "orange", "dark")


@dataclass(frozen=True)
class Config(ImageTraining):
    """What to train; see `ImageTraining` for the other fields.

    Args:
        every: Solve for c every so many steps, one run for each.
        losses: Losses without c that are trained, too.
        points: How often a GAN is judged on its way.
        solved: Samples on which the two solvers are timed; 0 leaves that out.
    """

    steps: int = 2000
    every: tuple[int, ...] = (1, 10, 100, 1000)
    losses: tuple[str, ...] = ("hinge", "dual")
    points: int = 12
    solved: int = 10_000


_SMOKE = Config(**SMALL, width=8, latent=8, steps=6, every=(1, 3), losses=(), points=1, solved=0)
_FASHION = Config(losses=(), points=1, solved=0)
PRESETS = {"smoke": _SMOKE, "default": Config(), "fashion": _FASHION, "paper": Config(**CIFAR)}


def run(config: Config, rows: Record) -> None:
    """Train and judge, a row for each number of steps or loss and each seed; then time the solvers."""
    run_kinds(config, rows, (*config.every, *config.losses), partial(settings, config), points=config.points)
    if config.solved and "solvers" not in rows:
        rows.add("solvers", {"kind": "solvers", "seed": config.seed} | _time_solvers(config))


def settings(config: Config, kind: int | str, seed: int) -> dict[str, Any]:
    """Return the settings of a training run: c solved every so many steps, or another loss.

    Example:
        >>> settings(Config(data="digits"), 100, 0)["constant_every"]
        100
    """
    loss = {"loss": kind} if isinstance(kind, str) else {"loss": "paper_raw", "constant_every": kind}
    return training(config, seed) | loss


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


def _time_solvers(config: Config) -> dict[str, Any]:
    """Return CPU milliseconds of one solution for c: ours and the dichotomy."""
    from obrs import solve_log_c

    log_ratio = np.random.default_rng(config.seed).normal(-0.5, 1.0, config.solved)
    ways: dict[str, Callable[[], float]] = {
        "exact": lambda: float(solve_log_c(log_ratio, config.budget)),
        "dichotomy": lambda: bisect_c(np.exp(log_ratio), config.budget),
    }
    found = {}
    for name, solve in ways.items():
        begun, times = process_time(), 50
        for _ in range(times):
            solve()
        found[name] = 1000 * (process_time() - begun) / times
    return {"milliseconds": found, "samples": config.solved}


def _names(record: Record) -> dict[Any, str]:
    every = {kind: f"c every {kind}" for kind in record.config["every"]}
    return every | {kind: {"dual": "Algorithm 1"}.get(kind, kind) for kind in record.config["losses"]}


def table(record: Record) -> str:
    """Return distance and time for each number of steps: means over the seeds and their standard errors."""
    longer = ", ".join(f"{100 * more:g} % every {steps}" for steps, more in PAPER["longer"].items())
    lines = [judged_table(record, _names(record), {}), f"the paper, longer than without OBRS: {longer} steps"]
    if "solvers" in record:
        row = record["solvers"]
        times = ", ".join(f"{name} {value:.2f} ms" for name, value in row["milliseconds"].items())
        lines.append(f"one solution for c on {row['samples']:,} samples: {times}")
    return "\n".join(lines)


def figure(record: Record) -> Any:
    """Draw the distance during training, and the time of a step against the number of steps between two solutions."""
    drawn = canvas(11, 4.2)
    left, right = drawn.subplots(1, 2)
    names = _names(record)
    colours = dict(zip(names, _COLOURS, strict=False))
    draw_courses(left, record, names, colours)
    for kind, own in finals(record, names, "cpu_seconds").items():
        times = [1000 / record.config["steps"] * value for value in own.values()]
        if isinstance(kind, int):
            right.plot([kind] * len(own), times, "o", color=PALETTE[colours[kind]], mew=0, label=names[kind])
        else:
            right.axhline(sum(times) / len(times), color=PALETTE[colours[kind]], label=names[kind])
    right.set(xscale="log", xlabel="steps between two solutions for c", ylabel="CPU time of a step, ms")
    right.set_ylim(0, 1.1 * right.get_ylim()[1])
    tidy(right)
    caption(drawn, record.experiment, "Dots and thin lines are runs, thick lines means over seeds.")
    return drawn
