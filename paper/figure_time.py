"""25 Gaussians: precision and divergence against time, for many budgets of every method.

The GAN and the constants are those of Table 2. What is trained once (LatentRS, the refitted ratio) is not in the
time. Time is processor time, as a multiple of the bare generator's, which is measured in turns.
"""

from dataclasses import dataclass
from textwrap import fill
from typing import Any

from obrs._checks import check_budget, check_count

from .gan25_settings import SMOKE, Settings
from .record import Record
from .style import LOOKS, canvas, caption, look, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "overtaken", "run", "table"]

PAPER = {
    "figure": "in Appendix D.2, the second",
    "fastest": "OBRS, for any precision below 93 %",
    "capped": ("obrs", "drs", "mhgan"),
    "slower for a similar precision": {"dot": 100, "dgflow": 100, "mhgan": 10},
}
BUDGETED = ("obrs", "obrs_refit", "drs", "topk", "sir")
STEPPED = ("mhgan", "dot", "dgflow", "ddls")
FIXED = ("model", "exact", "latent_rs")


@dataclass(frozen=True)
class Config(Settings):
    """What to sweep; the other fields are of the GAN, see `Settings`.

    Args:
        n: Samples in a generation.
        generations: At each point.
        budgets: Budgets of the methods that keep or reject.
        steps: Steps of the methods that move samples.
    """

    n: int = 2500
    generations: int = 3
    budgets: tuple[float, ...] = (1.2, 1.5, 2.0, 2.6, 4.0, 8.0, 16.0, 32.0)
    steps: tuple[int, ...] = (1, 3, 10, 30, 100, 300)

    def __post_init__(self) -> None:
        super().__post_init__()
        for budget in self.budgets:
            check_budget(budget)
        for count in (self.n, self.generations, *self.steps):
            check_count(count, "n, generations and steps")


PRESETS = {
    "smoke": Config(n=200, generations=1, budgets=(1.5, 4.0), steps=(1, 4), **SMOKE),
    "default": Config(),
}


def run(config: Config, rows: Record) -> None:
    """Draw with every method at each of its budgets."""
    from .rivals import METHODS, generations, prepared

    wanted = {name: (name, 1.0) for name in FIXED}
    wanted |= {f"{name}, K = {k:g}": (name, k) for name in BUDGETED for k in config.budgets}
    wanted |= {f"{name}, {k} steps": (name, float(k)) for name in STEPPED for k in config.steps}
    if all(name in rows for name in wanted):
        return
    ready = prepared(Settings.of(config), rows.progress)
    for row, (name, budget) in rows.todo(wanted):
        sampler, model = METHODS[name](ready, budget)
        found = generations(sampler, model, config.n, config.generations, seed=config.seed)
        rows.add(row, {"method": name, "budget": budget} | found)


def curves(record: Record) -> dict[str, list[dict[str, Any]]]:
    """Return the points of each method, in the order of their budgets."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in record.rows:
        found.setdefault(row["method"], []).append(row)
    return {name: sorted(points, key=lambda row: float(row["budget"])) for name, points in found.items()}


def overtaken(record: Record, key: str) -> dict[str, float]:
    """Return the methods that become better than the best of OBRS, and the time that each needs for it.

    Args:
        record: The record.
        key: "precision" or "kl".
    """
    sign = {"precision": 1.0, "kl": -1.0}[key]
    of = curves(record)
    best = max(sign * point[key][0] for point in of["obrs"])
    beyond = {name: [p["time"][0] for p in points if sign * p[key][0] > best] for name, points in of.items()}
    return {name: min(times) for name, times in beyond.items() if times}


def table(record: Record) -> str:
    """Return all points as a table, and the limit of OBRS."""
    lines = [f"{'':24}{'time':>10}{'calls of G':>12}{'precision %':>13}{'KL':>9}"]
    of = curves(record)
    for name, points in of.items():
        for point in points:
            setting = "" if name in FIXED else f" {point['budget']:g}"
            lines.append(
                f"{look(name).label + setting:24}{point['time'][0]:8.1f} ×{point['g'][0] / record.config['n']:12.2f}"
                f"{100 * point['precision'][0]:13.2f}{point['kl'][0]:9.3f}"
            )
    return "\n".join([*lines, "", *(fill(words, 110) for words in _words(record))])


def _words(record: Record) -> list[str]:
    of, lines = curves(record), []
    for key, phrase, scale, digits in (("precision", "a precision of {} %", 100, 1), ("kl", "a KL of {}", 1, 3)):
        pick = max if key == "precision" else min
        best = pick(of["obrs"], key=lambda point: float(point[key][0]))
        value = phrase.format(f"{scale * best[key][0]:.{digits}f}")
        names = overtaken(record, key).items()
        beyond = ", ".join(f"{look(name).label} from {time:.0f} × on" for name, time in names) or "no method"
        lines.append(f"OBRS ends at {value} at {best['time'][0]:.0f} × the model's time; beyond that: {beyond}.")
    return lines


def figure(record: Record) -> Any:
    """Draw precision and KL against time."""
    drawn = canvas(9, 5.6)
    panels = drawn.subplots(1, 2)
    for name, points in sorted(curves(record).items(), key=lambda item: list(LOOKS).index(item[0])):
        style = look(name)
        time = [point["time"][0] for point in points]
        for axes, key, scale in ((panels[0], "precision", 100), (panels[1], "kl", 1)):
            axes.plot(
                time,
                [scale * point[key][0] for point in points],
                color=style.colour,
                ls=style.line,
                marker=style.marker,
                ms=6,
                mec="0.25",
                mew=0.4,
                lw=1.6,
                label=style.label,
            )
    panels[0].set(title="Precision", ylabel="high-quality samples, %")
    panels[1].set(title="Distance", ylabel="KL to the target, nats")
    for axes in panels:
        axes.set(xscale="log", xlabel="time, as a multiple of the model's")
        axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
        tidy(axes, None)
    panels[1].set_yscale("log")
    panels[1].set_yticks([0.2, 0.5, 1, 2], ["0.2", "0.5", "1", "2"])
    panels[1].minorticks_off()
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=6, fontsize=9)
    said = f"{record.config['n']} samples at each point."
    caption(drawn, record.experiment, " ".join([said, *_words(record)]))
    return drawn
