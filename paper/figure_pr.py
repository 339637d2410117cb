"""Appendix A: how precision and recall are read, of a model with high recall and of one with high precision.

At slope λ the precision α is the area under min(λp, q) and the recall β that under min(p, q/λ). The paper gives no
constants. Here, as there, the target has two equal bumps. The first model covers both and has almost half of its mass
elsewhere; the second covers almost only one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from obrs._text import text_table

from .record import Checked, Record, numbers
from .style import LOOKS, PALETTE, canvas, caption, tidy
from .toys import Pair, mixture, thin

__all__ = ["MODELS", "PRESETS", "TARGET", "Config", "figure", "run", "table"]

TARGET = ((0.5, -2.0, 0.7), (0.5, 1.5, 0.7))  # weight, mean, standard deviation
MODELS = {
    "high recall": ((0.28, -2.0, 0.8), (0.28, 1.5, 0.8), (0.44, 5.5, 0.8)),
    "high precision": ((0.93, -2.0, 0.75), (0.07, 1.5, 0.75)),
}
_PRECISION, _RECALL = PALETTE["orange"], PALETTE["sky"]


@dataclass(frozen=True)
class Config(Checked):
    """What to compute."""

    low: float = 0.5  # the low slope λ, where the curve has its highest recall
    high: float = 2.0  # the high slope, where it has its highest precision
    points: int = 6001  # points of the grid


PRESETS = {"smoke": Config(points=801), "default": Config()}


def run(config: Config, rows: Record) -> None:
    """Compute curves and areas of both models."""
    x = np.linspace(-6.0, 10.0, config.points)
    for name, parts in rows.todo(MODELS):
        pair = Pair.evaluate(mixture(TARGET), mixture(parts), x)
        curve = pair.profile().curve(points=129)
        slopes = np.asarray([config.low, config.high])
        precision = [float(np.sum(np.minimum(lam * pair.p, pair.q)) * pair.step) for lam in slopes]
        recall = [float(np.sum(np.minimum(pair.p, pair.q / lam)) * pair.step) for lam in slopes]
        areas = {"lam": slopes, "precision": precision, "recall": recall}
        shown = {"x": thin(pair.x, 401), "p": thin(pair.p, 401), "q": thin(pair.q, 401)}
        rows.add(name, areas | shown | {"curve": {"precision": curve.precision, "recall": curve.recall}})


def table(record: Record) -> str:
    """Return precision and recall of both models at both slopes."""
    rows = [
        [row["row"], f"{lam:g}", f"{alpha:.3f}", f"{beta:.3f}"]
        for row in record.rows
        for lam, alpha, beta in zip(row["lam"], row["precision"], row["recall"], strict=True)
    ]
    return text_table(["model", "lambda", "precision", "recall"], rows)


def figure(record: Record) -> Any:
    """Draw, for each model, its curve and the four areas."""
    drawn = canvas(9, 9.6)
    for part, row in zip(drawn.subfigures(2, 1), record.rows, strict=True):
        cells = part.add_gridspec(2, 3, width_ratios=[1.15, 1, 1])
        part.suptitle(f"A model with {row['row']}", fontweight="bold", fontsize=12)
        _curve(part.add_subplot(cells[:, 0]), row)
        for column, letter in ((1, "A"), (2, "B")):
            _areas(part, cells, row, column, letter)
    text = "At slope λ the upper shaded area is the precision α, the lower one the recall β = α/λ. A low λ reads the "
    text += "end of the curve where recall is highest (A), a high one that where precision is (B)."
    return caption(drawn, record.experiment, text)


def _curve(axes: Any, row: dict[str, Any]) -> None:
    recall, precision = numbers(row["curve"]["recall"]), numbers(row["curve"]["precision"])
    axes.fill_between(recall, precision, color="0.93")
    axes.plot(recall, precision, color=LOOKS["model"].colour)
    for letter, lam, alpha, beta in zip("AB", row["lam"], row["precision"], row["recall"], strict=True):
        axes.plot([0, beta], [alpha, alpha], color=_PRECISION, lw=2.5)
        axes.plot([beta, beta], [0, alpha], color=_RECALL, lw=2.5)
        axes.plot(beta, alpha, "o", color="black", zorder=5)
        shift, side = ((6, 6), "left") if beta < 0.8 else ((-6, -16), "right")
        axes.annotate(f"{letter}: λ = {lam:g}", (beta, alpha), xytext=shift, textcoords="offset points", ha=side)
    axes.set(xlabel="recall β", ylabel="precision α", xlim=(0, 1.05), ylim=(0, 1.12), xticks=np.linspace(0, 1, 6))
    axes.set_title("PR curve of the model")
    tidy(axes, None)


def _areas(part: Any, cells: Any, row: dict[str, Any], column: int, letter: str) -> None:
    index = column - 1
    x, p, q, lam = numbers(row["x"]), numbers(row["p"]), numbers(row["q"]), row["lam"][index]
    upper, lower = part.add_subplot(cells[0, column]), part.add_subplot(cells[1, column])
    for axes, target, model, names, colour, title in (
        (upper, lam * p, q, ("λp", "q"), _PRECISION, f"{letter}: α = {row['precision'][index]:.2f}"),
        (lower, p, q / lam, ("p", "q/λ"), _RECALL, f"{letter}: β = {row['recall'][index]:.2f}"),
    ):
        axes.fill_between(x, np.minimum(target, model), color=colour, alpha=0.75, lw=0)
        axes.plot(x, target, color=LOOKS["target"].colour, lw=1.5, label=names[0])
        axes.plot(x, model, color=LOOKS["model"].colour, lw=1.5, label=names[1])
        axes.set(yticks=[], xlim=(-5, 8), xticks=range(-4, 9, 2), ylim=(0, 1.35 * max(target.max(), model.max())))
        axes.set_title(title)
        tidy(axes, None)
        axes.legend(loc="upper center", ncols=2)
    upper.tick_params(labelbottom=False)
    lower.set_xlabel("x")
