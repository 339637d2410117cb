"""Table 2: 25 Gaussians, every method at the same budget; what is kept, how good it is, what it costs.

The paper has one GAN and does not describe it, nor what its discriminator was trained on, nor the constants of the
other methods; `gan25` and `rivals` say what was chosen, and here are three GANs of different seeds. The paper's MH-GAN
has two iterations and 2.57 generator calls per sample, which is only possible if chains are thrown away. That reading
is the row "discarding"; MH-GAN itself has three steps, the budget rounded up, and other rows have more. DOT and DGflow
have three steps, as in the paper. Methods that follow a gradient have two rows: one with the published size of a step,
one with the size that is best for this GAN, found on other latents than those of the table. The record has what every
size gave.
"""

from dataclasses import dataclass
from math import ceil, sqrt
from textwrap import fill
from typing import Any

import numpy as np

from obrs._text import text_table

from .gan25 import SMOKE, Settings
from .record import Record
from .rivals import generations, method, prepare, tune_step
from .style import LOOKS, canvas, caption, page_table, tidy

__all__ = ["PAPER", "PRESETS", "Config", "best_rules", "figure", "labels", "markdown", "row_name", "run", "summarise"]
__all__ += ["table", "verdict"]

_ROWS = {
    "model": ((100.0, 0.0), (55.80, 0.99), (2500, 0), (0, 0), (0.03, 0.01)),
    "obrs": ((100.0, 0.0), (92.54, 0.54), (6262, 92), (6262, 92), (0.45, 0.01)),
    "drs": ((100.0, 0.0), (89.87, 0.59), (6411, 93), (6411, 93), (0.46, 0.01)),
    "mhgan": ((100.0, 0.0), (89.98, 0.61), (6415, 45), (19292, 23), (6.38, 0.09)),
    "dot": ((100.0, 0.0), (58.47, 1.00), (2500, 0), (7500, 0), (0.94, 0.14)),
    "dgflow": ((94.81, 2.83), (56.00, 1.02), (7500, 0), (7500, 0), (0.67, 0.13)),
}
Cells = dict[str, tuple[float, float]]
PAPER: dict[str, Cells] = {
    name: dict(zip(("recall", "precision", "g", "d", "seconds"), row, strict=True)) for name, row in _ROWS.items()
}
"""Table 2 of the paper: means and standard deviations of 1000 generations of 2500 samples, K = 2.6."""

TUNED = {f"{name}_tuned": name for name in ("dot", "dgflow", "ddls")}
OTHERS = (
    *("obrs_pool", "obrs_refit", "obrs_exact", "exact", "topk", "sir", "latent_rs"),
    *("mhgan_own", "mhgan_calibrated", "mhgan_discarding", "mhgan_5", "mhgan_10", "mhgan_50"),
    *("dot_tuned", "dgflow_tuned", "ddls", "ddls_tuned"),
)
LABELS = {name: style.label for name, style in LOOKS.items()} | {
    "model": "the model itself",
    "obrs_exact": "OBRS, exact ratio",
    "mhgan": "MH-GAN, {steps} steps",
    "mhgan_own": "MH-GAN, {steps}, own start",
    "mhgan_calibrated": "MH-GAN, {steps}, calibrated",
    "mhgan_discarding": "MH-GAN, {whole}, discarding",
    **{f"mhgan_{steps}": f"MH-GAN, {steps} steps" for steps in (5, 10, 50)},
    **{method: f"{LOOKS[name].label}, step tuned" for method, name in TUNED.items()},
}
_PAPER_N = 2500
_MATCHED = ("obrs", "drs", "mhgan", "mhgan_calibrated", "topk")  # rules at the same budget


@dataclass(frozen=True)
class Config(Settings):
    """What to run; the other fields are of the GAN, see `Settings`."""

    n: int = 2500  # samples in a generation
    budget: float = 2.6  # generator calls per sample
    generations: int = 1000  # generations of the paper's six rows
    generations_of_others: int = 10  # generations of the other rows
    gans: int = 3  # GANs, each with its own seed
    tuning_draws: int = 3  # draws, of n samples, that each size of a step is judged by


PRESETS = {
    "smoke": Config(n=100, generations=2, generations_of_others=2, gans=1, tuning_draws=1, **SMOKE),
    "demo": Config(generations=20, generations_of_others=5, gans=1),
    "default": Config(),
}


def run(config: Config, rows: Record) -> None:
    """Train the GANs, and draw from each with every method."""
    for number in range(config.gans):
        seed = config.seed + number
        for row, name in rows.todo({row_name(name, number): name for name in ("gan", *PAPER, *OTHERS)}):
            ready = prepare(Settings.select(config, seed=seed), rows.progress)
            if name == "gan":
                facts = {key: getattr(ready.gan, key) for key in ("steps", "precision", "log_loss")}
                rows.add(row, facts | {"log_loss_refitted": ready.log_loss, "steepness": ready.steepness})
                continue
            many = config.generations if name in PAPER else config.generations_of_others
            sampler, model = method(TUNED.get(name, name), ready, config.budget)
            about: dict[str, Any] = {"method": name, "gan": number}
            if name in TUNED:
                sampler, tuning = tune_step(TUNED[name], ready, config.budget, config.n, config.tuning_draws, seed=seed)
                about |= tuning
            rows.add(row, about | generations(sampler, model, config.n, many, seed=seed))


def row_name(method: str, number: int) -> str:
    """Return the name of the row of a method on a GAN: the first GAN's is the method's."""
    return method if number == 0 else f"{method}, GAN {number + 1}"


def labels(record: Record) -> dict[str, str]:
    """Return the labels of the rows; those of MH-GAN include the number of steps."""
    k = record.config["budget"]
    return {name: label.format(steps=ceil(k), whole=max(2, int(k))) for name, label in LABELS.items()}


def summarise(record: Record) -> dict[str, Cells]:
    """Return mean and standard deviation of every column, by method, over the generations of all GANs."""
    cells: dict[str, Cells] = {}
    for name in (*PAPER, *OTHERS):
        if same := [row for row in record.rows if row.get("method") == name]:
            columns = [key for key, value in same[0].items() if isinstance(value, list) and key != "grid"]
            cells[name] = {key: _pool([row[key] for row in same]) for key in columns}
    return cells


def _pool(pairs: list[Any]) -> tuple[float, float]:
    means, sds = np.asarray(pairs, dtype=np.float64).T
    return float(means.mean()), round(sqrt(float(np.mean(sds**2) + np.var(means))), 12)


def verdict(record: Record) -> str:
    """Say how much the best rules at the budget leave, and which leaves least on each GAN."""
    cells, titles = summarise(record), labels(record)
    order = sorted(_MATCHED, key=lambda name: cells[name]["kl"][0])
    left = "; ".join(f"{titles[name]} {cells[name]['kl'][0]:.3f}" for name in order[:3])
    best = ", ".join(titles[name] for name in best_rules(record))
    return f"KL left by rules at K = {record.config['budget']:g}: {left}. Least on each GAN: {best}."


def best_rules(record: Record) -> list[str]:
    """Return, for each GAN, the rule at the budget that leaves the least KL."""
    gans = range(record.config["gans"])
    return [min(_MATCHED, key=lambda rule: record[row_name(rule, number)]["kl"][0]) for number in gans]


def _cells(record: Record) -> tuple[list[str], list[list[str]]]:
    """Return the titles of all columns, and the cells of every row, the paper's value after ours where it has one."""
    head = ["method", "recall, %", "paper", "precision, %", "paper", "KL", "JS"]
    head += ["calls of G", "paper", "calls of D", "paper", "executed G, D", "time", "paper"]
    lines, titles = [], labels(record)
    for name, row in summarise(record).items():
        paper = PAPER.get(name, {})
        cells = [titles[name], _pair(row["recall"], 1, 100), _pair(paper.get("recall"), 1)]
        cells += [_pair(row["precision"], 2, 100), _pair(paper.get("precision"), 2)]
        cells += [_pair(row["kl"], 3), _pair(row["js"], 3), _pair(row["g"], 0), _pair(paper.get("g"), 0)]
        cells += [_pair(row["d"], 0), _pair(paper.get("d"), 0)]
        cells += [f"{row['g_executed'][0]:.0f}, {row['d_executed'][0]:.0f}"]
        cells += [f"{_pair(row['time'], 1 if row['time'][0] < 1000 else 0)} ×"]
        lines.append([*cells, f"{_paper_value(name, 'time'):.0f} ×" if paper else ""])
    return head, lines


def _pair(pair: tuple[float, float] | None, digits: int, scale: float = 1.0) -> str:
    return "" if pair is None else f"{scale * pair[0]:.{digits}f} ± {scale * pair[1]:.{digits}f}"


def table(record: Record) -> str:
    """Return two tables, quality and cost, with the paper's numbers beside ours, and what they say."""
    (_, *head), rows = _cells(record)
    quality = text_table(["", *head[:6]], [row[:7] for row in rows])
    cost = text_table(["", *head[6:]], [[row[0], *row[7:]] for row in rows])
    config, gans = record.config, [record[row_name("gan", number)] for number in range(record.config["gans"])]
    stopped = ", ".join(f"{gan['steps']} steps at {100 * gan['precision']:.1f} %" for gan in gans)
    fine_print = f"""\
GANs: {len(gans)}, stopped after {stopped} of high-quality samples.
Mean ± sd of {config["generations"]} generations of {config["n"]} samples on each GAN, of the last \
{len(OTHERS)} rows {config["generations_of_others"]}.
KL and JS on cells depend on the number of samples: compare them at equal n.
Time is of the processor, a multiple of the model's own in the same run, without training."""
    return "\n".join([quality, "", cost, "", fill(verdict(record), 110), fine_print])


def markdown(record: Record) -> str:
    """Return the table for a page."""
    return page_table(*_cells(record))


def figure(record: Record) -> Any:
    """Draw recall, precision, divergence, calls and time of every method, the paper's values beside ours."""
    cells, titles, n = summarise(record), labels(record), record.config["n"]
    drawn = canvas(11, 2.2 + 0.24 * len(cells))
    panels = drawn.subplots(1, 5, sharey=True)
    places = {name: at + (0.5 if name in PAPER else 0) for at, name in enumerate(list(cells)[::-1])}
    columns = {
        "recall": ("Recall", "modes, %", 100.0),
        "precision": ("Precision", "samples, %", 100.0),
        "kl": ("Distance", "KL, nats", 1.0),
        "g": ("Calls", "of G per sample", 1 / n),
        "time": ("Time", "× the model's", 1.0),
    }
    for panel, (key, (title, unit, scale)) in zip(panels, columns.items(), strict=True):
        for name, row in cells.items():
            style, (mean, sd) = _look(name), (scale * value for value in row[key])
            marks = {"color": style.colour, "marker": style.marker, "ms": 7, "mec": "0.2", "mew": 0.5}
            panel.errorbar(mean, places[name], xerr=sd, **marks)
            if name in PAPER and key != "kl":
                marks = {"marker": "D", "ms": 10, "mfc": "none", "mec": "0.3", "ls": "", "clip_on": False}
                panel.plot(_paper_value(name, key), places[name], label="the paper", **marks)
        panel.set(title=title, xlabel=unit, xscale="log" if key in ("g", "time") else "linear")
        tidy(panel, None)
    for panel in panels[3:]:
        panel.set_xlim(left=0.6)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
    panels[2].locator_params(axis="x", nbins=4)
    panels[0].set_yticks(list(places.values()), [titles[name] for name in places])
    handles, names = panels[0].get_legend_handles_labels()
    drawn.legend(handles[:1], names[:1], loc="outside upper right")
    words = f"25 Gaussians, {record.config['gans']} GANs, {n} samples. {verdict(record)} Above the gap: the rows of "
    return caption(
        drawn, record.experiment, f"{words}the paper. Bars: one standard deviation of a generation, GANs included."
    )


def _paper_value(name: str, key: str) -> float:
    """Return what the paper has, in the units of our picture: time as a multiple of its model's, calls per sample."""
    if key == "time":
        return PAPER[name]["seconds"][0] / PAPER["model"]["seconds"][0]
    return PAPER[name][key][0] / (_PAPER_N if key == "g" else 1)


def _look(name: str) -> Any:
    """Return the look of a row; variants of a method look like it."""
    other = "obrs_refit" if name.startswith("obrs") else "mhgan_calibrated"
    return LOOKS[name if name in LOOKS else TUNED.get(name, other)]
