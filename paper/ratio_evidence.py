"""Which ratio, and which constants, buy something on real images: a factorial of both, judged by networks of their own.

The ratio is fitted on pixels, on the last layer of a classifier or on its outputs, on features without labels, or is
that of the GAN's own critic, as it is or trained further. One constant for all, one per class, or shares as in the
data. `image_ratios` says which images are used for what. The recipe was chosen on the generators with number 0; the
others confirm it. The paper has no such table.
"""

from dataclasses import dataclass
from typing import Any

from obrs.errors import InputError

from .image_names import CONSTANTS, JUDGES, RATIOS
from .record import Record
from .style import canvas, caption, page_table, section, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "markdown", "run", "table"]

_WIDE = 10  # of a column
_GAP = "\n\n"
_MOST = 60  # per cent: what is worse is drawn at the edge
PAPER = {"table": "none: the paper fits no ratio on features, and has one constant"}


@dataclass(frozen=True)
class Config:
    """What to compare.

    Args:
        generators: Names and seeds of generators, as `name-seed`; "fashion_vae-seed" is a VAE that the run trains.
        budgets: Proposals per kept sample.
        pool: Proposals of each generator.
        judged: Proposals, and real images, that EfficientNet-Lite0 looks at; 0 leaves it out.
        fakes, steps, epochs: See `image_ratios.Effort`.
    """

    generators: tuple[str, ...] = (
        *(f"digits-{seed}" for seed in range(3)),
        *(f"fashion_mnist-{seed}" for seed in range(3)),
        "fashion_vae-0",
    )
    budgets: tuple[float, ...] = (1.5, 2.6, 5.0)
    pool: int = 10_000
    judged: int = 4_000
    fakes: int = 15_000
    steps: int = 800
    epochs: int = 8

    def __post_init__(self) -> None:
        if not self.generators or not self.budgets or min(self.pool, self.fakes, self.steps, self.epochs) < 1:
            raise InputError("ratio-evidence needs at least one generator, budget, proposal, step and epoch")


_SMOKE = Config(generators=("digits-0",), budgets=(2.6,), pool=400, judged=0, fakes=400, steps=30, epochs=1)
PRESETS = {"smoke": _SMOKE, "default": Config()}


def run(config: Config, rows: Record) -> None:
    """Fit every ratio to each generator, and judge every cell."""
    for name, generator in rows.todo({g: g for g in config.generators}):
        rows.add(name, _one_generator(config, generator, rows.progress))


def _one_generator(config: Config, generator: str, progress: bool | None) -> dict[str, Any]:
    from .image_ratios import Effort, distances, fit_ratios, prepare

    effort = Effort(config.fakes, config.steps, config.epochs)
    subject = prepare(generator, effort, pool=config.pool, judged=config.judged, progress=progress)
    found = {}
    for ratio, fitted in fit_ratios(subject, effort, progress=progress).items():
        scores = fitted.log_ratio(subject.pool, subject.labels)
        if ratio == "none":  # what shares alone do; without them it is the model
            cells = distances(subject, scores, config.budgets, ("obrs",), ("shares",))
        else:
            cells = distances(subject, scores, config.budgets)
        found[ratio] = {"log_loss": fitted.log_loss, "seconds": fitted.seconds, "cells": cells}
    return {"ratios": found, "seconds": subject.seconds}


def table(record: Record) -> str:
    """Return the table: the change of the Fréchet distance of every cell of OBRS, and that of DRS for one ratio."""
    budgets = [f"{k:g}" for k in record.config["budgets"]]
    lines = ["change of the Fréchet distance in % of that of the model, ± one standard error"]
    for judge, title in JUDGES.items():
        if not any(judge in _cells(row, "outputs", "class") for row in record.rows):
            continue
        lines += ["", f"OBRS, judged by {title}", *_head(budgets)]
        for row in record.rows:
            lines.append(f"{row['row']}, distance {_base(row, judge):.2f}")
            lines += [_line(RATIOS[ratio], row, ratio, judge, "obrs", budgets) for ratio in row["ratios"]]
        lines += ["", f"DRS with {RATIOS['outputs']}, judged by {title}", *_head(budgets)]
        lines += [_line(row["row"], row, "outputs", judge, "drs", budgets) for row in record.rows]
    return "\n".join(lines)


def _head(budgets: list[str]) -> list[str]:
    wide = _WIDE * len(budgets)
    titles = "".join(f"{title[: wide - 1]:>{wide}}" for title in CONSTANTS.values())
    return [f"{'':28}{titles}", f"{'':28}" + "".join(f"{'K = ' + k:>{_WIDE}}" for _ in CONSTANTS for k in budgets)]


def _line(title: str, row: dict[str, Any], ratio: str, judge: str, rule: str, budgets: list[str]) -> str:
    cells = []
    for constant in CONSTANTS:
        for budget in budgets:
            found, base = _cells(row, ratio, constant).get(judge, {}).get(f"{rule} {budget}"), _base(row, judge)
            cells.append("–" if found is None else f"{100 * found[1] / base:+.0f}±{100 * found[2] / base:.0f}")
    return f"  {title:26}" + "".join(f"{cell:>{_WIDE}}" for cell in cells)


def _cells(row: dict[str, Any], ratio: str, constant: str) -> dict[str, Any]:
    found: dict[str, Any] = row["ratios"][ratio]["cells"].get(constant, {})
    return found


def _base(row: dict[str, Any], judge: str) -> float:
    """Return the distance of the model as it is."""
    return float(_cells(row, "outputs", "class")[judge]["model 1"][0])


def markdown(record: Record) -> str:
    """Return two tables: every ratio and kind of constant at the middle budget, and the best one beside DRS."""
    budgets = [f"{k:g}" for k in sorted(record.config["budgets"])]
    middle, names = budgets[len(budgets) // 2], [row["row"] for row in record.rows]
    parts = []
    for judge, title in JUDGES.items():
        lines = []
        for ratio, name in RATIOS.items():
            for constant, kind in CONSTANTS.items():
                cells = [_gain(row, ratio, constant, judge, f"obrs {middle}") for row in record.rows]
                lines += [[name, kind, *cells]] if any(cells) else []
        if lines:
            said = f"Judged by {title}, K = {middle}, change in % ± one standard error:"
            parts.append(f"{said}\n\n{page_table(['ratio', 'constants', *names], lines)}")
    recipe = []
    for row in record.rows:
        keys = [f"{rule} {k}" for rule in ("obrs", "drs") for k in budgets]
        cells = [_gain(row, "outputs", "class", "classifier", key) for key in keys]
        fit = row["ratios"]["outputs"]
        seconds = f"{row['seconds'] + fit['seconds']:.0f}"
        recipe.append([row["row"], f"{_base(row, 'classifier'):.2f}", *cells, f"{fit['log_loss']:.2f}", seconds])
    head = ["generator", "distance", *(f"{rule}, K = {k}" for rule in ("OBRS", "DRS") for k in budgets)]
    table = page_table([*head, "log-loss", "CPU s"], recipe)
    return f"{section('ratios', _GAP.join(parts))}\n\n{section('recipe', table)}"


def _gain(row: dict[str, Any], ratio: str, constant: str, judge: str, key: str) -> str:
    """Return a change in per cent with its error, bold if it is a gain of more than three standard errors."""
    found = _cells(row, ratio, constant).get(judge, {}).get(key) if ratio in row["ratios"] else None
    if found is None:
        return ""
    text = f"{100 * found[1] / _base(row, judge):+.0f} ± {100 * found[2] / _base(row, judge):.0f}"
    return f"**{text}**" if found[1] < -3 * found[2] else text


def figure(record: Record) -> Any:
    """Draw the change of the distance for each ratio and kind of constant, a point per generator."""
    budgets = sorted(record.config["budgets"])
    budget = f"{budgets[len(budgets) // 2]:g}"
    judges = [judge for judge in JUDGES if any(judge in _cells(row, "outputs", "class") for row in record.rows)]
    drawn = canvas(11, 3.6 * len(judges) + 1)
    grid = drawn.subplots(len(judges), len(CONSTANTS), sharey=True, sharex=True, squeeze=False)
    names = list(RATIOS)
    for line, judge in zip(grid, judges, strict=True):
        for panel, (constant, title) in zip(line, CONSTANTS.items(), strict=True):
            for step, row in enumerate(record.rows):
                shift = 0.1 * (step - (len(record.rows) - 1) / 2)
                for ratio in row["ratios"]:
                    found = _cells(row, ratio, constant).get(judge, {}).get(f"obrs {budget}")
                    if found is None:
                        continue
                    where, reach = (100 * part / _base(row, judge) for part in (found[1], 1.96 * found[2]))
                    label = row["row"] if ratio == "outputs" else None
                    at = names.index(ratio) + shift
                    if where > _MOST:
                        panel.plot(_MOST, at, ls="", marker=">", ms=5, color=f"C{step}", label=label)
                    else:
                        panel.errorbar(where, at, xerr=reach, fmt="o", ms=4, color=f"C{step}", label=label)
            panel.axvline(0, color="0.5", lw=1)
            panel.set(title=f"{title}\njudged by {JUDGES[judge]}")
            panel.set_xlim(-60, _MOST + 5)
            panel.set_yticks(range(len(names)), [RATIOS[name] for name in names])
            tidy(panel, None)
    for panel in grid[-1]:
        panel.set_xlabel("change of the distance, %")
    grid[0, 0].invert_yaxis()
    drawn.legend(*grid[0, 1].get_legend_handles_labels(), loc="outside upper center", ncols=7)
    said = (
        f"OBRS, K = {budget}: change of the Fréchet distance to test images. Left of the line it gains; 95 % "
        f"intervals. Triangles at the edge: worse than +{_MOST} %."
    )
    caption(drawn, record.experiment, said)
    return drawn
