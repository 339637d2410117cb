"""Draw the pictures of the guides from records and examples: python tools/pictures.py [NAME...]"""

import sys

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from readme import ROOT, benchmark

import obrs
from obrs.looks import PALETTE
from obrs.ratios.plot import plot_diagnosis

STYLE = {"axes.spines.right": False, "axes.spines.top": False, "axes.grid": True, "grid.alpha": 0.3, "font.size": 9}
BLUE, RED, GREEN, SKY, GREY = (PALETTE[name] for name in ("blue", "red", "green", "sky", "dark"))


def panels(n):
    figure = Figure(figsize=(4.6 * n, 3.2), layout="constrained")
    return figure, figure.subplots(1, n, squeeze=False)[0]


def profile():
    """Draw what budgets buy on the file of the tutorial on scores."""
    return obrs.Profile(np.random.default_rng(0).normal(-0.5, 1, 1000)).plot([2, 4])


def selection():
    """Draw inclusion probabilities, and the errors of designs from the benchmark."""
    figure, (left, right) = panels(2)
    log_ratio = np.sort(np.random.default_rng(0).normal(size=2000))
    for n, colour in ((100, GREY), (500, BLUE), (1000, RED)):
        left.plot(log_ratio, obrs.selection.inclusion_probability(log_ratio, n), color=colour, label=f"n = {n}")
    left.set(xlabel="log r", ylabel="probability of being kept", title="of a pool of 2000")
    left.legend(frameon=False)
    cases = [(12, 4), (50, 12), (200, 50), (2000, 500)]
    record = benchmark("priority")["rows"]
    rows = {(row["candidates"], row["n"], row["method"]): row for row in record if row["spread"] == 1}
    designs = {"pivotal": BLUE, "systematic": GREEN, "priority": RED, "gumbel top-k": SKY}
    for name, colour in designs.items():
        right.plot(range(4), [100 * rows[(*case, name)]["error"] for case in cases], "o-", color=colour, label=name)
    noise = [100 * rows[(*case, "pivotal")]["noise"] for case in cases]
    right.plot(range(4), noise, ":", color=GREY, label="noise of the measurement")
    right.set(yscale="log", ylabel="% of the mean probability", title="error of the probabilities")
    right.set_xticks(range(4), [f"{n} of {size}" for size, n in cases])
    right.legend(frameon=False, fontsize=8, ncols=2, loc=(0.28, 0.62))  # between the lines
    return figure


def averages():
    """Draw estimates of a second moment by budget, with weights and without."""

    def propose(ids):
        return 2 * obrs.normals(ids, 1, seed=0)[:, 0]

    def log_ratio(x):
        return -((x - 1) ** 2) / 2 + (x / 2) ** 2 / 2 + np.log(2)

    figure, (axes,) = panels(1)
    budgets = [1.1, 1.25, 1.5, 1.75, 2, 2.5]
    for i, budget in enumerate(budgets):
        kept = obrs.sample(propose, log_ratio, 5000, budget=budget, start=10**6 * i, progress=False)
        mean = kept.mean(lambda x: x**2, confidence=0.95)
        error = [[mean.value - mean.low], [mean.high - mean.value]]
        axes.errorbar(budget, mean.value, error, fmt="o", color=BLUE, capsize=3, label=None if i else "with weights")
        axes.plot(budget, np.mean(kept.x**2), "s", color=RED, label=None if i else "without")
    axes.axhline(2, color=GREY, label="target")
    axes.set(xlabel="K", ylabel="E[x²]", title="5000 kept samples")
    axes.legend(frameon=False)
    return figure


def scale():
    """Draw seconds and memory of keeping a quarter, from the benchmark."""
    figure, (left, right) = panels(2)
    record = benchmark("scale")["rows"]
    names = {"select": ("obrs select", BLUE), "read-filter-write": ("read-filter-write", GREY)}
    names |= {"duckdb": ("DuckDB", RED), "polars": ("Polars", GREEN)}
    for name, (label, colour) in names.items():
        rows = sorted((row for row in record if row["contestant"] == name), key=lambda row: row["rows"])
        for axes, key in ((left, "cpu_seconds"), (right, "peak_mb")):
            axes.plot([row["rows"] for row in rows], [row[key] for row in rows], "o-", color=colour, label=label)
    left.set(xscale="log", yscale="log", xlabel="rows", ylabel="CPU seconds", title="time")
    right.set(xscale="log", yscale="log", xlabel="rows", ylabel="MB", title="most memory")
    right.legend(frameon=False, loc=(0.3, 0.2))  # between the lines
    return figure


def diagnosis():
    """Draw the doctor's picture of the guide of ratios: a ratio that is three times too steep."""
    ids = np.arange(5000)
    real, fake = (obrs.normals(ids, 1, seed=seed)[:, 0] for seed in (1, 2))
    return plot_diagnosis(obrs.diagnose(3 * (real + 0.5), 3 * (fake - 0.5), budget=2.6))


PICTURES = {f.__name__: f for f in (profile, selection, averages, scale, diagnosis)}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        with mpl.rc_context(STYLE):
            PICTURES[name]().savefig(ROOT / f"docs/pictures/{name}.png", dpi=110)
