"""25 Gaussians: precision and divergence against time, for many budgets of every method.

The paper: OBRS is the fastest for any precision below 93 %; OBRS, DRS and MH-GAN are capped; for a similar precision
DOT and DGflow are a hundred times slower, MH-GAN ten times. The GAN and the constants are those of Table 2. DOT, DGflow
and DDLS have the size of step that is best for this GAN at each number of steps, found as in Table 2 on other latents;
faint lines have the published sizes. What is trained once (LatentRS, the refitted ratio) is not in the time. Time is
processor time, as a multiple of the bare generator's, which is measured in turns.
"""

from dataclasses import dataclass
from textwrap import fill
from typing import Any

from obrs._text import text_table

from .gan25 import SMOKE, Settings
from .record import Record
from .rivals import TUNABLE, generations, method, prepare, tune_step
from .style import LOOKS, canvas, caption, tidy

__all__ = ["PRESETS", "Config", "curves", "figure", "run", "slower", "table"]

BUDGETED = ("obrs", "obrs_refit", "drs", "topk", "sir")
STEPPED = ("mhgan", *TUNABLE)
FIXED = ("model", "exact", "latent_rs")
_PUBLISHED = "_published"


@dataclass(frozen=True)
class Config(Settings):
    """What to sweep; the other fields are of the GAN, see `Settings`."""

    n: int = 2500  # samples in a generation
    generations: int = 20  # at each point
    budgets: tuple[float, ...] = (1.2, 1.5, 2.0, 2.6, 4.0, 8.0, 16.0)  # budgets of the methods that keep or reject
    steps: tuple[int, ...] = (1, 3, 10, 30, 100)  # steps of the methods that move samples
    tuning_draws: int = 1  # draws, of n samples, that each size of a step is judged by


PRESETS = {"smoke": Config(n=200, generations=1, budgets=(1.5, 4.0), steps=(1, 4), **SMOKE), "default": Config()}


def run(config: Config, rows: Record) -> None:
    """Draw with every method at each of its budgets."""
    points = {name: (name, 1.0) for name in FIXED}
    points |= {f"{name}, K = {k:g}": (name, k) for name in BUDGETED for k in config.budgets}
    methods = (*STEPPED, *(f"{name}{_PUBLISHED}" for name in TUNABLE))
    points |= {f"{name}, {k} steps": (name, float(k)) for name in methods for k in config.steps}
    for row, (key, budget) in rows.todo(points):
        ready = prepare(Settings.select(config), rows.progress)
        name, about = key.removesuffix(_PUBLISHED), {"method": key, "budget": budget}
        sampler, model = method(name, ready, budget)
        if key in TUNABLE:
            sampler, facts = tune_step(name, ready, budget, config.n, config.tuning_draws, seed=config.seed)
            about |= facts
        rows.add(row, about | generations(sampler, model, config.n, config.generations, seed=config.seed))


def curves(record: Record) -> dict[str, list[dict[str, Any]]]:
    """Return the points of each method, in the order of their budgets."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in record.rows:
        rows.setdefault(row["method"], []).append(row)
    return {name: sorted(points, key=lambda row: float(row["budget"])) for name, points in rows.items()}


def slower(record: Record, name: str) -> tuple[float, float]:
    """Return the best precision of a method, and how many times longer it takes than OBRS of at least that precision.

    The second number is infinity where OBRS never has that precision.
    """
    of = curves(record)
    best = max(of[name], key=lambda point: float(point["precision"][0]))
    as_good = [p["time"][0] for p in of["obrs"] if p["precision"][0] >= best["precision"][0]]
    return best["precision"][0], best["time"][0] / min(as_good) if as_good else float("inf")


def table(record: Record) -> str:
    """Return all points as a table, the limit of OBRS, and what becomes of the paper's claim."""
    lines = []
    for name, points in curves(record).items():
        for point in points:
            cells = [_label(name) + ("" if name in FIXED else f" {point['budget']:g}")]
            cells += [f"{point['step']:g}" if "step" in point else "", f"{point['time'][0]:.1f} ×"]
            cells += [f"{point['g'][0] / record.config['n']:.2f}", f"{100 * point['precision'][0]:.2f}"]
            lines.append([*cells, f"{point['kl'][0]:.3f} ± {point['kl'][1]:.3f}"])
    head = ["", "step tuned to", "time", "calls of G", "precision %", "KL"]
    return "\n".join([text_table(head, lines), "", fill(_words(record), 110)])


def _label(name: str) -> str:
    base = name.removesuffix(_PUBLISHED)
    return f"{LOOKS[base].label}{', published' if name != base else ', tuned' if name in TUNABLE else ''}"


def _words(record: Record) -> str:
    best = max(curves(record)["obrs"], key=lambda point: float(point["precision"][0]))
    parts = [f"OBRS ends at a precision of {100 * best['precision'][0]:.1f} %"]
    for name in STEPPED:
        precision, times = slower(record, name)
        than = "more than OBRS ever has" if times == float("inf") else f"{times:.0f} times the time of OBRS"
        parts.append(f"{_label(name)} at {100 * precision:.1f} %, {than}")
    return f"{'; '.join(parts)}."


def figure(record: Record) -> Any:
    """Draw precision and KL against time."""
    drawn = canvas(9, 5.8)
    panels = drawn.subplots(1, 2)
    order = list(LOOKS)
    for name, points in sorted(curves(record).items(), key=lambda item: order.index(item[0].removesuffix(_PUBLISHED))):
        style, faint = LOOKS[name.removesuffix(_PUBLISHED)], name.endswith(_PUBLISHED)
        marks: dict[str, Any] = {"marker": style.marker, "ms": 6, "mec": "0.25", "mew": 0.4, "label": style.label}
        marks = {"color": style.colour, "ls": style.line} | ({"lw": 1.0, "alpha": 0.45} if faint else marks)
        for axes, key, scale in ((panels[0], "precision", 100), (panels[1], "kl", 1)):
            axes.plot([p["time"][0] for p in points], [scale * p[key][0] for p in points], **marks)
    panels[0].set(title="Precision", ylabel="high-quality samples, %")
    panels[1].set(title="Distance", ylabel="KL to the target, nats", yscale="log")
    for axes in panels:
        axes.set(xscale="log", xlabel="time, as a multiple of the model's")
        axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
        tidy(axes, None)
    panels[1].set_yticks([0.2, 0.5, 1, 2], ["0.2", "0.5", "1", "2"])
    panels[1].minorticks_off()
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=6, fontsize=9)
    text = f"{record.config['n']} samples, {record.config['generations']} times at each point. Faint: published steps."
    return caption(drawn, record.experiment, f"{text} {_words(record)}")
