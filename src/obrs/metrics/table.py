"""The table of `evaluate`: a row for each rule and budget, as text, as JSON, and as a figure."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from .._files import as_path, rewrite
from .._text import finite, html_table, lookup, text_table
from ..estimate import Estimate
from ..looks import LOOKS, figure, restyle

__all__ = ["METRICS", "Metric", "Row", "Table"]


@dataclass(frozen=True)
class Metric:
    """A column of the table: its title, where FD is FID for Inception alone, and whether higher or lower is better."""

    title: str
    better: str


METRICS: dict[str, Metric] = {
    "frechet": Metric("FD, n → ∞", "lower"),
    "frechet_plain": Metric("FD at n", "lower"),
    "kernel": Metric("KD", "lower"),
    "frechet_within": Metric("FD within classes", "lower"),
    "kernel_within": Metric("KD within classes", "lower"),
    "precision": Metric("precision", "higher"),
    "recall": Metric("recall", "higher"),
    "density": Metric("density", "higher"),
    "coverage": Metric("coverage", "higher"),
}
"""The columns by name. All compare down the rows but `frechet_plain`, which depends on each row's n."""


@dataclass(frozen=True)
class Row:
    """One rule at one budget.

    Args:
        rule: "model" for the pool as it is, "obrs", "drs" or "topk".
        budget: Proposals per kept sample.
        rate: Share of the pool that is kept; above 1/budget where exact rejection costs less.
        ess: Effective sample size per kept sample, if the ratio is right: 1 if the kept follow the target.
        n: Effective number of fakes behind the weighted averages, Kish's.
        metrics: Value and interval of each, by name; `row["recall"]` is `row.metrics["recall"]`.
        change: The same of the difference to the model as it is.
    """

    rule: str
    budget: float
    rate: float
    ess: float
    n: float
    metrics: Mapping[str, Estimate]
    change: Mapping[str, Estimate]

    def __getitem__(self, name: str) -> Estimate:
        return lookup(self.metrics, name, "metric")

    def differs(self, name: str) -> bool:
        """Tell whether a metric differs from that of the model by more than its error."""
        change = self.change[name]
        return self.rule != "model" and (change.low > 0 or change.high < 0)


@dataclass(frozen=True)
class Table:
    """Metrics of each rule and budget, as returned by `obrs.evaluate`.

    Args:
        rows: The model, then each rule at each budget.
        features: Name of the features, None if they were given.
        n_real, n_fake: How many rows there were; `dimension` is that of the features.
        size: How many fakes recall and coverage are for, at every budget; k is whose distance is the radius of a ball.
        confidence: Of the intervals.
        grouped: Whether each group of fakes had a constant of its own.

    Example:
        >>> at = Estimate(2.0, 1.5, 2.5, 0.25)
        >>> row = Row("model", 1.0, 1.0, 0.5, 100.0, {"precision": at}, {"precision": at})
        >>> print(Table((row,), None, 8, 200, 100, 100, 5, 0.95, False))
        100 fakes against 200 real samples, 8 features
        rule   budget  rate    ESS    n  precision
        model       1     1  0.500  100    2 ±0.5
        ± is a 95 % interval; * is a change from the model that is not 0 by its own interval; n is effective
    """

    rows: tuple[Row, ...]
    features: str | None
    dimension: int
    n_real: int
    n_fake: int
    size: int
    k: int
    confidence: float
    grouped: bool

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(self.rows[0].metrics)

    def title(self, name: str) -> str:
        """Return what a column is called: FD, or FID if the features are those of Inception-v3."""
        title = METRICS[name].title
        is_inception = self.features == "Inception-v3" and title[:2] in ("FD", "KD")
        return f"{title[0]}I{title[1:]}" if is_inception else title

    def __str__(self) -> str:
        head, *rows = self._cells()
        rows = [[*line[:5], *(cell if cell.endswith("*") else f"{cell} " for cell in line[5:])] for line in rows]
        return "\n".join([self._caption(), text_table(head, rows), *self._notes()])

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        head, *rows = self._cells()
        return html_table(head, rows, caption=self._caption(), notes=self._notes())

    def _caption(self) -> str:
        named = "" if self.features is None else f", {self.features}"
        groups = ", one constant per group" if self.grouped else ""
        return f"{self.n_fake:,} fakes against {self.n_real:,} real samples, {self.dimension} features{named}{groups}"

    def _cells(self) -> list[list[str]]:
        """Return the titles, and the cells of each row."""
        cells = [["rule", "budget", "rate", "ESS", "n", *(self.title(name) for name in self.metrics)]]
        for row in self.rows:
            ess = f"{row.ess:.3f}" if isfinite(row.ess) else "-"
            facts = [row.rule, f"{row.budget:g}", f"{row.rate:.3g}", ess, f"{row.n:.0f}"]
            cells.append([*facts, *(_cell(row, name) for name in self.metrics)])
        return cells

    def _notes(self) -> list[str]:
        known = f"± is a {100 * self.confidence:g} % interval"
        notes = [f"{known}; * is a change from the model that is not 0 by its own interval; n is effective"]
        if "recall" in self.metrics:
            notes.append(f"recall and coverage are for {self.size:,} fakes at every budget; k = {self.k}")
        return notes

    def save(self, folder: str | os.PathLike[str], *, name: str = "evaluate") -> Path:
        """Write a JSON and a PNG of this name into a folder, which is created if needed; return the folder."""
        home = as_path(folder, "folder")
        home.mkdir(parents=True, exist_ok=True)
        with rewrite(home / f"{name}.json") as file:
            file.write((json.dumps(finite(asdict(self)), indent=1) + "\n").encode())
        drawn = self.plot()
        with rewrite(home / f"{name}.png") as file:
            drawn.savefig(file, format="png", dpi=130)
        return home

    def plot(self) -> Any:
        """Draw each metric but the plain Fréchet distance against the budget, one line and band for each rule.

        The bands are the intervals of the values. A point is filled where the change from the model is not 0 by its
        own, paired interval, and hollow elsewhere.

        Returns:
            The matplotlib figure; save it with `figure.savefig("budgets.png")`.
        """
        names = [name for name in self.metrics if name != "frechet_plain"]
        columns = min(3, len(names))
        lines = -(-len(names) // columns)
        drawn = figure(3.9 * columns, 3.2 * lines + 0.5)
        with restyle():
            grid = drawn.subplots(lines, columns, squeeze=False)
            for axes, name in zip(grid.flat, names, strict=False):
                self._draw(axes, name)
            for axes in list(grid.flat)[len(names) :]:
                axes.set_visible(False)
            grid[0, 0].legend(frameon=False, fontsize=8)
            how = f"bands: {100 * self.confidence:g} % intervals; filled: differs from the model by its paired interval"
            drawn.suptitle(f"{self._caption()}\n{how}", fontsize=9.5)
        return drawn

    def _draw(self, axes: Any, name: str) -> None:
        model = self.rows[0]
        for rule in dict.fromkeys(row.rule for row in self.rows[1:]):
            look = LOOKS[rule]
            rows = [model, *(row for row in self.rows if row.rule == rule)]
            at, values = [row.budget for row in rows], [row[name].value for row in rows]
            axes.plot(at, values, look.line, marker=look.marker, ms=4, color=look.colour, label=look.label)
            hollow = [(k, v) for k, v, row in zip(at, values, rows, strict=True) if not row.differs(name)]
            axes.plot(*zip(*hollow, strict=True), look.marker, ms=4, color=look.colour, mfc="white")
            low, high = ([getattr(row[name], end) for row in rows] for end in ("low", "high"))
            axes.fill_between(at, low, high, color=look.colour, alpha=0.15, lw=0)
        if len(self.rows) == 1:
            v = model[name]
            axes.errorbar([1], [v.value], [[v.value - v.low], [v.high - v.value]], fmt="o", color="0.3", label="model")
        else:
            axes.axhline(model[name].value, color="0.5", lw=0.8, ls=":")
            budgets = sorted({row.budget for row in self.rows})
            axes.set_xscale("log", base=2)
            axes.set_xticks(budgets, [f"{k:g}" for k in budgets])
            axes.minorticks_off()
        axes.set(xlabel="budget K", ylabel=f"{METRICS[name].better} is better")
        axes.set_title(self.title(name), fontsize=10)


def _cell(row: Row, name: str) -> str:
    value = row.metrics[name]
    if not isfinite(value.value):
        return "-"
    reach = max(value.high - value.value, value.value - value.low)
    return f"{_plain(value.value, 3)} ±{_plain(reach, 1)}{'*' if row.differs(name) else ''}"


def _plain(x: float, digits: int) -> str:
    """Return a number with `digits` significant digits, and without an exponent between 1 and a million."""
    text = f"{x:.{digits}g}"
    return f"{float(text):.0f}" if 1 <= abs(float(text)) < 1e6 and "e" in text else text
