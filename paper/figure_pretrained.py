"""DRS and OBRS on trained GANs of images: distances, precision and recall against the acceptance rate.

The paper has a BigGAN of CelebA, whose critic is trained further as a ratio, and one constant. Here are conditional
hinge GANs of Fashion-MNIST that are committed, `image_gans`, four ratios, and three kinds of constants; `image_ratios`
says which images are used for what. One pool gives the whole curve. At three budgets samples are drawn anew, with
`obrs.sample`, and measured at equal n: they confirm what the pool says.

`paper` is the paper's size, for a generator and data of your own: `--home FOLDER` has NAME-SEED-generator.safetensors
and NAME-SEED-critic.safetensors as `image_gans` writes them, and NAME.npz with images, or the pictures of CelebA or
ImageNet themselves; `examples/biggan-pretrained.py` writes those files from a public checkpoint. The paper says that
the critic is trained further at a rate of 1e-10, which is that of the frozen generator; its scripts have 4e-5 for
CelebA.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from obrs._text import lookup
from obrs.errors import InputError

from .image_names import CONSTANTS, JUDGES, RATIOS
from .image_sheet import draw_sheet
from .record import Record, numbers
from .style import PALETTE, canvas, caption, look, page_table, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "markdown", "run", "table"]

PAPER = {
    "figure": "5: DRS vs. OBRS on a pre-trained BigGAN on CelebA",
    "says": "OBRS has the lower FID at every rate, and the higher precision at rates above .3",
}
"""A figure without numbers in the text."""
BEST = ("outputs", "class")
"""The ratio and the constants that are recommended."""
_PAPERS = ("tuned", "global")  # what the paper does


@dataclass(frozen=True)
class Config:
    """What to compare.

    Args:
        generators: Names and seeds of generators, as `name-seed`.
        home: A folder with generators and data of your own; "" for those that are committed.
        ratios: Which, keys of `RATIOS`; those on features need labels.
        constants: How many, keys of `CONSTANTS`; all but "global" need labels.
        rates: Shares of the proposals that are kept.
        pool: Proposals of each generator.
        neighbours: How many of them, and of real images, precision and recall are for.
        judged: Proposals, and real images, that the second judge looks at; 0 leaves it out.
        second: The second judge; the only one if the data have no labels.
        kept: Samples that are drawn anew at each rate, with the recommended ratio; 0 for none.
        shown: Images on the sheet of the first generator.
        fakes, steps, epochs: See `image_ratios.Effort`.
    """

    generators: tuple[str, ...] = ("fashion_mnist-0", "fashion_mnist-1", "fashion_mnist-2")
    home: str = ""
    ratios: tuple[str, ...] = ("own", "tuned", "features", "outputs")
    constants: tuple[str, ...] = ("global", "class", "shares")
    rates: tuple[float, ...] = (0.75, 0.5, 0.25)
    pool: int = 20_000
    neighbours: int = 10_000
    judged: int = 4_000
    second: str = "efficientnet_lite0"
    kept: int = 4_000
    shown: int = 40
    fakes: int = 15_000
    steps: int = 800
    epochs: int = 8

    def __post_init__(self) -> None:
        if not self.generators or not self.ratios or not self.constants or not self.rates:
            raise InputError("figure-pretrained needs at least one generator, ratio, kind of constant and rate")
        if not all(0 < rate < 1 for rate in self.rates):
            raise InputError(f"rates must be between 0 and 1, got {list(self.rates)}; 1 is always there")
        for names, known, what in ((self.ratios, RATIOS, "ratio"), (self.constants, CONSTANTS, "kind of constant")):
            for name in names:
                lookup(known, name, what)
        lookup(JUDGES, self.second, "judge")
        if min(self.pool, self.neighbours, self.fakes, self.steps, self.epochs) < 1:
            raise InputError("pool, neighbours, fakes, steps and epochs must be at least 1")


_SMOKE = Config(
    generators=("digits-0",),
    ratios=("own", "outputs"),
    rates=(0.5,),
    pool=400,
    neighbours=200,
    judged=0,
    kept=100,
    shown=12,
    fakes=400,
    steps=30,
    epochs=1,
)
_PAPER = Config(
    generators=("celeba-0",),
    home="celeba",
    ratios=("own", "tuned", "gradients"),
    constants=("global",),
    rates=(0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2),
    pool=50_000,
    neighbours=10_000,
    judged=50_000,
    second="inception_v3",
    kept=10_000,
    fakes=50_000,
    steps=10_000,
)
PRESETS = {"smoke": _SMOKE, "default": Config(), "paper": _PAPER}


def run(config: Config, rows: Record) -> None:
    """Measure each generator with every ratio and kind of constant."""
    for name, generator in rows.todo({g: g for g in config.generators}):
        rows.add(name, _one_generator(config, generator, rows.progress))


def _one_generator(config: Config, generator: str, progress: bool | None) -> dict[str, Any]:
    from .image_ratios import Effort, distances, fit_ratios, neighbour_cells, prepare, sheet

    effort = Effort(config.fakes, config.steps, config.epochs)
    subject = prepare(
        generator,
        effort,
        pool=config.pool,
        judged=config.judged,
        second=config.second,
        home=config.home,
        progress=progress,
    )
    budgets = [1 / rate for rate in config.rates]
    fits = fit_ratios(subject, effort, config.ratios, progress=progress)
    found: dict[str, Any] = {}
    for ratio, fitted in fits.items():
        scores = fitted.log_ratio(subject.pool, subject.labels)
        cells = distances(subject, scores, budgets, constants=config.constants)
        found[ratio] = {"log_loss": fitted.log_loss, "seconds": fitted.seconds, "cells": cells}
        for constant in config.constants:
            if (ratio, constant) in (BEST, _PAPERS):
                near = neighbour_cells(subject, scores, config.rates, constant, config.neighbours)
                found[ratio].setdefault("neighbours", {})[constant] = near
    ratio, constant = _best(config)
    row = {"ratios": found, "seconds": subject.seconds}
    if config.kept:
        row["drawn"] = _drawn(config, subject, fits[ratio], constant)
    if config.shown and generator == config.generators[0]:
        row |= sheet(subject, fits[ratio].log_ratio(subject.pool, subject.labels), constant, config.shown)
    return row


def _best(config: Config) -> tuple[str, str]:
    """Return the recommended ratio and constants, or the last ones that there are."""
    ratio, constant = BEST
    return ratio if ratio in config.ratios else config.ratios[-1], (
        constant if constant in config.constants else config.constants[-1]
    )


def _drawn(config: Config, subject: Any, fitted: Any, constant: str) -> dict[str, Any]:
    """Draw as many samples anew at each rate; return their Fréchet distance, its error, and the rate that was had."""
    from obrs.metrics.frechet import frechet_curve
    from obrs.sampling.rejection import sample

    judge = next(iter(subject.judges))
    start, out = config.pool, {}
    for rate in (1.0, *config.rates):
        kept = sample(
            subject.source.propose,
            lambda batch: fitted.log_ratio(*batch),
            config.kept,
            budget=1 / rate,
            groups=None if constant == "global" else lambda batch: batch[1],
            seed=1,
            start=start,
            progress=False,
        )
        start = kept.next_id
        found = frechet_curve(
            real=subject.truth[judge], fake=subject.judges[judge](kept.x[0]), weights=np.ones((1, config.kept))
        )
        out[f"{rate:g}"] = [float(found.value[0]), float(found.standard_error[0]), config.kept / kept.proposed]
    return out


_FIRST, _WIDE = 48, 12  # columns of the table


def table(record: Record) -> str:
    """Return the distances of every ratio, kind of constant and rate, and what samples that were drawn anew have."""
    rates = record.config["rates"]
    lines = []
    for judge, title in JUDGES.items():
        rows = [row for row in record.rows if judge in _any(row)]
        if not rows:
            continue
        lines += [f"Fréchet distance, judged by {title}; gain over the model in standard errors in brackets"]
        lines += [f"{'':{_FIRST}}" + "".join(f"{name:>{_WIDE * len(rates)}}" for name in ("OBRS", "DRS"))]
        lines += [f"{'acceptance':{_FIRST}}" + "".join(f"{rate:>{_WIDE}g}" for rate in (*rates, *rates))]
        for row in rows:
            lines.append(f"{row['row']}, as it is: {_any(row)[judge]['model 1'][0]:.2f}")
            for ratio, found in row["ratios"].items():
                for constant, cells in found["cells"].items():
                    keys = [f"{rule} {1 / rate:g}" for rule in ("obrs", "drs") for rate in rates]
                    values = "".join(f"{_cell(cells[judge].get(key)):>{_WIDE}}" for key in keys)
                    lines.append(f" {RATIOS[ratio] + ', ' + CONSTANTS[constant]:{_FIRST - 1}}" + values)
        lines.append("")
    for row in record.rows:
        for (ratio, constant), near in _near(row).items():
            lines.append(f"{row['row']}, {RATIOS[ratio]}, {CONSTANTS[constant]}: precision and recall, k = 5, in %")
            for rule in ("obrs", "drs"):
                named = ["model 1", *(f"{rule} {1 / rate:g}" for rate in rates)]
                cells = [f"{100 * near[key]['precision'][0]:.1f} / {100 * near[key]['recall'][0]:.1f}" for key in named]
                lines.append(f"  {look(rule).label:6}" + "".join(f"{cell:>14}" for cell in cells))
        if "drawn" in row:
            cells = [f"{rate}: {value:.2f} ± {error:.2f}" for rate, (value, error, _) in row["drawn"].items()]
            lines.append(f"  drawn anew with obrs.sample, {record.config['kept']:,} each: " + ", ".join(cells))
    return "\n".join(lines)


def markdown(record: Record) -> str:
    """Return the distances of three ways for a page: the paper's, its critic with a constant per class, and ours."""
    rates = record.config["rates"]
    head = ["generator", "judge", "ratio, constants", "as it is"]
    head += [f"{look(rule).label}, {rate:g}" for rule in ("obrs", "drs") for rate in rates]
    lines = []
    for row in record.rows:
        for judge in _any(row):
            for ratio, constant in (("tuned", "global"), ("tuned", "class"), ("outputs", "class")):
                cells = row["ratios"].get(ratio, {"cells": {}})["cells"].get(constant, {}).get(judge)
                if cells is not None:
                    found = [_cell(cells.get(f"{rule} {1 / rate:g}")) for rule in ("obrs", "drs") for rate in rates]
                    said = [row["row"], JUDGES[judge], f"{RATIOS[ratio]}, {CONSTANTS[constant]}"]
                    lines.append([*said, f"{cells['model 1'][0]:.4g}", *found])
    return page_table(head, lines)


def _any(row: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of some ratio and constant, for what they share: the model as it is."""
    found: dict[str, Any] = next(iter(next(iter(row["ratios"].values()))["cells"].values()))
    return found


def _near(row: dict[str, Any]) -> dict[tuple[str, str], Any]:
    return {
        (ratio, constant): near
        for ratio, found in row["ratios"].items()
        for constant, near in found.get("neighbours", {}).items()
    }


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value[0]:.4g} ({-value[1] / value[2]:+.0f})"


_ACROSS = 14  # images in a row of the sheet
_LINES = {
    ("outputs", "class"): (PALETTE["blue"], "-", "o"),
    ("features", "class"): (PALETTE["sky"], "-", "^"),
    ("tuned", "class"): (PALETTE["orange"], "-", "s"),
    ("own", "class"): (PALETTE["pink"], "-", "v"),
    ("outputs", "global"): (PALETTE["blue"], ":", "o"),
    ("tuned", "global"): (PALETTE["orange"], ":", "s"),
    ("own", "global"): (PALETTE["pink"], ":", "v"),
    ("gradients", "global"): (PALETTE["forest"], ":", "D"),
}


def figure(record: Record) -> Any:
    """Draw the sheet, then distances and precision and recall against the acceptance rate, for each generator."""
    rows = record.rows
    first = next((row for row in rows if "sheet" in row), None)
    high = 0.6 + (0.75 * -(-len(first["sheet"]) // _ACROSS) if first else 0)
    drawn = canvas(11, high + 0.6 + 3.0 * len(rows))
    outer = drawn.subfigures(2, 1, height_ratios=[high, 0.6 + 3.0 * len(rows)])
    if first is not None:
        axes = outer[0].subplots()
        draw_sheet(axes, first["sheet"], first["shape"], first["kept"], across=_ACROSS)
        axes.set_title(f"{first['row']}: proposals, kept (green) and rejected (red) at one half")
    grid = outer[1].subplots(len(rows), 3, squeeze=False)
    for line, row in zip(grid, rows, strict=True):
        _draw_distances(line[0], record, row)
        _draw_drs(line[1], record, row)
        _draw_neighbours(line[2], record, row)
    handles: dict[str, Any] = {}
    for axes in grid[0]:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    outer[1].legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)
    said = (
        "Distances to test images, on the features of another classifier; bars: 95 % intervals of the change from the "
        "model. Precision and recall at k = 5, equal n. Circles in the middle: samples that were drawn anew."
    )
    caption(drawn, record.experiment, said)
    return drawn


def _curve(cells: Any, rule: str, rates: Any) -> tuple[Any, Any]:
    values = [cells["model 1"], *(cells.get(f"{rule} {1 / rate:g}", [None] * 3) for rate in rates)]
    return numbers([value[0] for value in values]), 1.96 * numbers([value[2] for value in values])


def _draw_distances(axes: Any, record: Record, row: dict[str, Any]) -> None:
    rates, judge = record.config["rates"], next(iter(_any(row)))
    base = _any(row)[judge]["model 1"][0]
    for (ratio, constant), (colour, line, marker) in _LINES.items():
        if constant not in row["ratios"].get(ratio, {"cells": {}})["cells"]:
            continue
        value, reach = _curve(row["ratios"][ratio]["cells"][constant][judge], "obrs", rates)
        label = f"{RATIOS[ratio]}, {CONSTANTS[constant]}"
        axes.errorbar([1, *rates], value, reach, color=colour, ls=line, marker=marker, ms=4, lw=1.5, label=label)
    axes.axhline(base, color="0.5", lw=1)
    axes.set(ylim=(0.55 * base, 1.5 * base), xlabel="acceptance rate", ylabel="Fréchet distance")
    axes.set_title(f"{row['row']}: OBRS")
    axes.invert_xaxis()
    tidy(axes, None)


def _draw_drs(axes: Any, record: Record, row: dict[str, Any]) -> None:
    rates, judge = record.config["rates"], next(iter(_any(row)))
    ratio = BEST[0] if BEST[0] in row["ratios"] else next(iter(row["ratios"]))
    found = row["ratios"][ratio]["cells"]
    constant = BEST[1] if BEST[1] in found else next(iter(found))
    for rule in ("obrs", "drs"):
        value, reach = _curve(found[constant][judge], rule, rates)
        own = look(rule)
        axes.errorbar([1, *rates], value, reach, color=own.colour, ls=own.line, marker=own.marker, ms=4, lw=1.5,
                      label=f"{own.label}, the recommended ratio")  # fmt: skip
    if "drawn" in row:
        at = [float(rate) for rate in row["drawn"]]
        value, error = (numbers([cell[part] for cell in row["drawn"].values()]) for part in (0, 1))
        axes.errorbar(at, value, 1.96 * error, color="black", ls="", marker="o", mfc="none", ms=7, lw=1,
                      label="OBRS, drawn anew")  # fmt: skip
    axes.axhline(_any(row)[judge]["model 1"][0], color="0.5", lw=1)
    axes.set(xlabel="acceptance rate")
    axes.set_title("OBRS and DRS")
    axes.invert_xaxis()
    tidy(axes, None)


def _draw_neighbours(axes: Any, record: Record, row: dict[str, Any]) -> None:
    near = _near(row)
    if BEST not in near:
        axes.set_axis_off()
        return
    for rule in ("obrs", "drs"):
        named = ["model 1", *(f"{rule} {1 / rate:g}" for rate in record.config["rates"])]
        x, y = (numbers([100 * near[BEST][key][part][0] for key in named]) for part in ("recall", "precision"))
        own = look(rule)
        axes.plot(x, y, color=own.colour, ls=own.line, marker=own.marker, ms=4, lw=1.5)
    axes.plot(x[0], y[0], marker="X", color="black", ls="", ms=8, label="as it is")
    axes.set(xlabel="recall, %", ylabel="precision, %")
    axes.set_title("precision and recall")
    tidy(axes, None)
