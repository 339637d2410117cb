"""How often must c be solved in training? The paper's figure, on images: distance and time, c solved every N steps.

The paper solves for c by dichotomy on thousands of samples, which takes time, so it does it every N steps. Here it is
solved exactly on the batch. The loss is Algorithm 2 as printed, K = 2, beside hinge and Algorithm 1, which need no c;
`image_training` says how GANs are judged. The time of one solution is measured apart, ours and the printed dichotomy
of 10 000 samples. `fashion` is what version 0.2 ran, and `paper` trains BigGANs on CIFAR-10.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np

from obrs._checks import check_count
from obrs.errors import InputError

from .image_training import CIFAR, SMALL, ImageTraining, compared, finals, jobs
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

    def __post_init__(self) -> None:
        super().__post_init__()
        for count in (*self.every, self.points):
            check_count(count, "every")
        if not self.every:
            raise InputError("figure-frequency needs at least one number of steps")


_SMOKE = Config(**SMALL, width=8, latent=8, steps=6, every=(1, 3), losses=(), points=1, solved=0)
_FASHION = Config(losses=(), points=1, solved=0)
PRESETS = {"smoke": _SMOKE, "default": Config(), "fashion": _FASHION, "paper": Config(**CIFAR)}


def run(config: Config, rows: Record) -> None:
    """Train and judge, a row for each number of steps or loss and each seed; then time the solvers."""
    from .image_training import Judges, follow, run_folder

    judges = Judges(config, rows.progress)
    for name, (kind, seed) in rows.todo(jobs(config, (*config.every, *config.losses))):
        course, found = [], dict[str, Any]()
        folder = run_folder(config, rows, name)
        for step, gan, seconds in follow(settings(config, kind, seed), config, config.points, folder=folder):
            found = judges.judge(gan, seed, near=False) | {"cpu_seconds": round(seconds, 2)}
            course.append([step, found["before"], found["after"]])
        more = {"course": course} if config.points > 1 else {}
        rows.add(name, {"kind": kind, "seed": seed} | found | more)
    if config.solved and "solvers" not in rows:
        rows.add("solvers", {"kind": "solvers", "seed": config.seed} | _time_solvers(config))


def settings(config: Config, kind: int | str, seed: int) -> Any:
    """Return the configuration of a training run: c solved every so many steps, or another loss.

    Example:
        >>> settings(Config(data="digits"), 100, 0).constant_every
        100
    """
    from .image_gans import parts
    from .image_training import training
    from .train import TrainConfig

    shared = training(config, seed, labelled=parts(config.data, config.home)["generator"].label is not None)
    if isinstance(kind, str):
        return TrainConfig(**shared, generator_loss=kind)
    return TrainConfig(**shared, generator_loss="paper_raw", constant_every=kind)


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


def _kinds(record: Record) -> list[Any]:
    return [*record.config["every"], *record.config.get("losses", ())]


def _called(kind: int | str) -> str:
    return f"c every {kind}" if isinstance(kind, int) else {"hinge": "hinge", "dual": "Algorithm 1"}.get(kind, kind)


def table(record: Record) -> str:
    """Return distance and time for each number of steps: means over the seeds and their standard errors."""
    after, cost = (finals(record, _kinds(record), key) for key in ("after", "cpu_seconds"))
    first, steps = next(iter(after)), record.config["steps"]
    lines = [f"{record.config['data']}, Tw/OBRS, K = {record.config['budget']:g}, {record.config['seeds']} seeds"]
    lines.append(f"  {'':>16}{'Fréchet distance':>20}{'gain':>18}{'CPU ms a step':>16}{'the paper: longer by':>24}")
    for kind, values in after.items():
        mean, error, gain, of_gain, seeds = compared(values, after[first])
        text = f"  {_called(kind):>16}{f'{mean:.2f} ± {error:.2f}':>20}"
        text += f"{f'{gain:+.2f} ± {of_gain:.2f}' if kind != first and seeds else '':>18}"
        text += f"{1000 * sum(cost[kind].values()) / len(cost[kind]) / steps:>16.2f}"
        longer = PAPER["longer"].get(kind)
        lines.append(text + (f"{f'{100 * longer:+.2f} %':>24}" if longer is not None else ""))
    lines.append("  gain: over the first line, seed by seed; ± is the standard error over seeds")
    if "solvers" in record:
        row = record["solvers"]
        times = ", ".join(f"{name} {value:.2f} ms" for name, value in row["milliseconds"].items())
        lines.append(f"  one solution for c on {row['samples']:,} samples: {times}")
    return "\n".join(lines)


def figure(record: Record) -> Any:
    """Draw the distance during training, and the time of a step against the number of steps between two solutions."""
    drawn = canvas(11, 4.2)
    left, right = drawn.subplots(1, 2)
    after, cost = (finals(record, _kinds(record), key) for key in ("after", "cpu_seconds"))
    steps = record.config["steps"]
    for (kind, own), colour in zip(after.items(), _COLOURS, strict=False):
        courses = [row["course"] for row in record.rows if row["kind"] == kind and "course" in row]
        if courses:
            mean = np.mean([[point[2] for point in course] for course in courses], axis=0)
            left.plot([point[0] for point in courses[0]], mean, "o-", ms=3, color=PALETTE[colour], label=_called(kind))
        elif isinstance(kind, int):
            left.plot([kind] * len(own), list(own.values()), "o", color=PALETTE[colour], mew=0, label=_called(kind))
    curves = any("course" in row for row in record.rows)
    left.set(
        xlabel="steps" if curves else "steps between two solutions for c", ylabel="Fréchet distance after rejection"
    )
    left.set_yscale("log" if curves else "linear")
    left.set_xscale("linear" if curves else "log")
    for (kind, own), colour in zip(cost.items(), _COLOURS, strict=False):
        times = [1000 / steps * value for value in own.values()]
        if isinstance(kind, int):
            right.plot([kind] * len(own), times, "o", color=PALETTE[colour], mew=0, label=_called(kind))
        else:
            right.axhline(sum(times) / len(times), color=PALETTE[colour], label=_called(kind))
    right.set(xscale="log", xlabel="steps between two solutions for c", ylabel="CPU time of a step, ms")
    right.set_ylim(0, 1.1 * right.get_ylim()[1])
    for axes in (left, right):
        tidy(axes)
    caption(drawn, record.experiment, "Each dot is a run, lines are means over seeds.")
    return drawn
