"""How often must c be solved in training? The paper's figure, on images: distance and time, c solved every N steps.

The paper solves for c by dichotomy on thousands of samples, which takes time, so it does it every N steps. Here it is
solved exactly on the batch. The loss is Algorithm 2 as printed, K = 2; `image_training` says how GANs are judged. The
preset `paper` trains BigGANs on CIFAR-10.
"""

from dataclasses import dataclass
from typing import Any

from obrs._checks import check_count
from obrs.errors import InputError

from .image_training import CIFAR, SMALL, ImageTraining, compared, finals, jobs
from .record import Record
from .style import PALETTE, canvas, caption, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "run", "settings", "table"]

PAPER: dict[str, Any] = {
    "figure": "in Appendix D.3: FID and time for different frequencies of updates of c, CIFAR-10, K = 2",
    "longer": {10: 0.19, 100: 0.0169, 1000: 0.0003},
}
"""How much longer training takes than without OBRS, by the steps between updates; the FID does not depend on them."""


@dataclass(frozen=True)
class Config(ImageTraining):
    """What to train; see `ImageTraining` for the other fields.

    Args:
        every: Solve for c every so many steps, one run for each.
    """

    steps: int = 2000
    every: tuple[int, ...] = (1, 10, 100, 1000)

    def __post_init__(self) -> None:
        super().__post_init__()
        for count in self.every:
            check_count(count, "every")
        if not self.every:
            raise InputError("figure-frequency needs at least one number of steps")


_SMOKE = Config(**SMALL, width=8, latent=8, steps=6, every=(1, 3))
_PAPER = Config(**CIFAR)
PRESETS = {"smoke": _SMOKE, "default": Config(), "paper": _PAPER}


def run(config: Config, rows: Record) -> None:
    """Train and judge, a row for each number of steps and seed."""
    from .image_training import Judges, follow, kept

    judges = Judges(config, rows.progress)
    for name, (every, seed) in rows.todo(jobs(config, config.every)):
        ((_, gan, seconds),) = follow(settings(config, every, seed), config, folder=kept(config, rows, name))
        found = judges.judge(gan, seed, near=False)
        rows.add(name, {"kind": every, "seed": seed, "cpu_seconds": round(seconds, 2)} | found)


def settings(config: Config, every: int, seed: int) -> Any:
    """Return the configuration of a training run.

    Example:
        >>> settings(Config(data="digits"), 100, 0).constant_every
        100
    """
    from .image_gans import parts
    from .image_training import training
    from .train import TrainConfig

    labelled = parts(config.data, config.home)["generator"].label is not None
    shared = training(config, seed, labelled=labelled)
    return TrainConfig(**shared, generator_loss="paper_raw", constant_every=every)


def table(record: Record) -> str:
    """Return distance and time for each number of steps: means over the seeds and their standard errors."""
    after, cost = (finals(record, record.config["every"], key) for key in ("after", "cpu_seconds"))
    first, steps = next(iter(after)), record.config["steps"]
    lines = [f"{record.config['data']}, Tw/OBRS, K = {record.config['budget']:g}, {record.config['seeds']} seeds"]
    lines.append(f"  {'c solved every':>16}{'Fréchet distance':>20}{'gain':>18}{'CPU ms a step':>16}")
    for every, values in after.items():
        mean, error, gain, of_gain, seeds = compared(values, after[first])
        text = f"  {every:>16}{f'{mean:.2f} ± {error:.2f}':>20}"
        text += f"{f'{gain:+.2f} ± {of_gain:.2f}' if every != first and seeds else '':>18}"
        lines.append(f"{text}{1000 * sum(cost[every].values()) / len(cost[every]) / steps:>16.2f}")
    return "\n".join([*lines, "  gain: over the first line, seed by seed; ± is the standard error over seeds"])


def figure(record: Record) -> Any:
    """Draw distance and time against the number of steps between two solutions."""
    drawn = canvas(9, 3.8)
    after, cost = (finals(record, record.config["every"], key) for key in ("after", "cpu_seconds"))
    steps = record.config["steps"]
    for axes, values, scale, label in zip(
        drawn.subplots(1, 2),
        (after, cost),
        (1.0, 1000 / steps),
        ("Fréchet distance after rejection", "CPU time of a step, ms"),
        strict=True,
    ):
        for every, own in values.items():
            axes.plot(
                [every] * len(own), [scale * x for x in own.values()], "o", color=PALETTE["blue"], alpha=0.5, mew=0
            )
        means = [scale * sum(own.values()) / len(own) for own in values.values()]
        axes.plot(list(values), means, "-", color=PALETTE["blue"])
        axes.set(xscale="log", xlabel="steps between two solutions for c", ylabel=label)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(0, 1.1 * scale * max(max(own.values()) for own in values.values()))
        tidy(axes, None)
    caption(drawn, record.experiment, "Each dot is a run, lines are means.")
    return drawn
