"""DRS and OBRS on trained GANs of images: distances, precision and recall against the acceptance rate.

The paper has a BigGAN of CelebA without classes, whose critic is trained further as a ratio, and one constant. It gives
no numbers, and says that OBRS has the lower FID at every rate, and the higher precision at rates above .3. Here are
three conditional GANs of CIFAR-10, an unconditional one and a small BigGAN; several ratios, and one constant, one per
class, or one after calibration by class. `image_ratios` says which images are used for what. One pool gives the whole
curve.

`paper` is the paper's size, for a generator and data of your own: `--home FOLDER` has NAME-SEED-generator.safetensors
and NAME-SEED-critic.safetensors as `image_gans` writes them, and NAME.npz with images. With `--second
inception_v3=FILE`, the weights of torch-fidelity, its distances are the FID. The paper says that the critic is trained
further at a rate of 1e-10, which is that of the frozen generator; its scripts have 4e-5 for CelebA.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from obrs._text import lookup, text_table

from .image_gans import load_gan, parts
from .image_ratios import Effort, Judging, distances, fit_ratios, fit_tune, neighbour_cells, sheet, subject_of, swap_gan
from .image_sheet import CONSTANTS, JUDGES, RATIOS, cell_keys, draw_rates, sheet_canvas, title
from .record import Record, numbers
from .style import LOOKS, PALETTE, Look, caption, tidy

__all__ = ["PRESETS", "Config", "figure", "run", "table"]

BEST = ("outputs", "class")
"""The ratio and the constants that are recommended."""
_NEAR = (BEST, ("tuned", "global"))  # precision and recall are of these and of `tune`


@dataclass(frozen=True)
class Config(Judging):
    """What to compare.

    `tune` gets what the model saw, too, of CIFAR-10: the other 10 000 images are too few.
    """

    generators: tuple[str, ...] = (*(f"cifar10-gan-{seed}" for seed in range(3)), "cifar10-plain-0", "cifar10-biggan-0")
    home: str = ""  # a folder with generators and data of your own; "" for those that are committed
    ratios: tuple[str, ...] = ("own", "tuned", "outputs", "tune")  # keys of `RATIOS`; those on features need labels
    constants: tuple[str, ...] = ("global", "class", "calibrated")  # of `CONSTANTS`; without labels "global" alone
    tune: int = 10_000  # proposals that `obrs.tune` weighs, at the smallest rate, if it is among the ratios
    given: tuple[str, ...] = ("generator", "ratio", "features")  # parts of the training images that `tune` gets
    fakes: int = 3_000  # see `image_ratios.Effort`

    def __post_init__(self) -> None:
        super().__post_init__()
        for names, known, what in ((self.ratios, RATIOS, "ratio"), (self.constants, CONSTANTS, "kind of constant")):
            for name in names:
                lookup(known, name, what)


_SMOKE = Config(
    generators=("digits-0",), ratios=("own", "outputs"), constants=("global", "class"), rates=(0.5,),
    pool=400, neighbours=200, judged=0, shown=12, fakes=400, steps=30, epochs=1,
)  # fmt: skip
_PAPER = Config(
    generators=("celeba-0",), home="celeba", ratios=("own", "tuned", "gradients"), constants=("global",),
    rates=(0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2), pool=50_000, judged=50_000, second="inception_v3",
    fakes=50_000, steps=10_000,
)  # fmt: skip
PRESETS = {"smoke": _SMOKE, "default": Config(judged=10_000, steps=150, epochs=10), "paper": _PAPER}


def run(config: Config, rows: Record) -> None:
    """Measure each generator with every ratio and kind of constant; those of a data set have the same judges."""
    effort = Effort(config.fakes, config.steps, config.epochs)
    options: Any = {"judged": config.judged, "second": config.second, "progress": rows.progress}
    judges = cache(lambda data: subject_of(f"{data}-0", parts(data, config.home), effort, **options))
    for name in (name for name, _ in rows.todo(dict.fromkeys(config.generators))):
        kind, _, seed = name.rpartition("-")
        judging = replace(judges(kind.partition("-")[0]), name=name, seed=int(seed))
        subject = swap_gan(judging, load_gan(kind, int(seed), config.home), config.pool)
        rows.add(name, _one_generator(config, effort, subject, rows.progress))


def _one_generator(config: Config, effort: Any, subject: Any, progress: bool | None) -> dict[str, Any]:
    budgets = [1 / rate for rate in config.rates]
    constants = config.constants if subject.source.classes else ("global",)
    results, scores, ways = dict[str, Any](), dict[str, Any](), dict[str, tuple[str, ...]]()
    for ratio, fitted in fit_ratios(subject, effort, config.ratios, progress=progress).items():
        results[ratio] = {"log_loss": fitted.log_loss, "seconds": fitted.seconds}
        scores[ratio], ways[ratio] = fitted.log_ratio(subject.pool, subject.labels), constants
    if "tune" in config.ratios:
        options: Any = {"budget": max(budgets), "pool": config.tune, "progress": progress}
        scores["tune"], constant, results["tune"] = fit_tune(subject, config.given, **options)
        ways["tune"] = (constant,)
    last = config.ratios[-1], constants[-1]
    for ratio, log_ratio in scores.items():
        results[ratio]["cells"] = distances(subject, log_ratio, budgets, constants=ways[ratio])
        chosen = [c for c in ways[ratio] if (ratio, c) in (*_NEAR, last) or ratio == "tune" or len(constants) == 1]
        results[ratio]["neighbours"] = {
            c: {j: neighbour_cells(subject, log_ratio, config.rates, c, config.neighbours, j) for j in subject.spread}
            for c in chosen
        }
    row: dict[str, Any] = {"ratios": results, "seconds": subject.seconds}
    if config.shown and subject.name == config.generators[0]:
        ratio, constant = BEST if BEST[0] in scores and BEST[1] in constants else last
        row |= sheet(subject, scores[ratio], constant, config.shown)
    return row


def _cells(row: dict[str, Any], judge: str, part: str = "cells") -> dict[tuple[str, str], Any]:
    """Return the cells by a judge, by ratio and kind of constant."""
    return {
        (ratio, constant): by_judge[judge]
        for ratio, result in row["ratios"].items()
        for constant, by_judge in result[part].items()
        if judge in by_judge
    }


def _label(ratio: str, constant: str) -> str:
    return f"{RATIOS[ratio]}, {CONSTANTS[constant]}"


def table(record: Record) -> str:
    """Return the distances of every ratio, kind of constant and rate, then precision and recall."""
    rates, parts = record.config["rates"], []
    base, *obrs = cell_keys("obrs", rates)
    _, *drs = cell_keys("drs", rates)
    heads = [f"{LOOKS[rule].label}, {rate:g}" for rule in ("obrs", "drs") for rate in rates]
    for judge, about in JUDGES.items():
        for row in record.rows:
            if not (cells := _cells(row, judge)):
                continue
            plain = next(iter(cells.values()))[base][0]
            lines = [[_label(*key), *(_distance(by[k]) for k in (*obrs, *drs))] for key, by in cells.items()]
            shares = [
                [f"{_label(*key)}, {metric}", *(_share(by[k][metric]) for k in (base, *obrs))]
                for key, by in _cells(row, judge, "neighbours").items()
                for metric in ("precision", "recall")
            ]
            parts += [
                f"{title(row['row'])}: Fréchet distance by {about}, {plain:.4g} as it is",
                text_table(["gain in standard errors in brackets", *heads], lines),
                text_table(["%", "as it is", *heads[: len(rates)]], shares),
            ]
    return "\n".join(parts)


def _distance(cell: Any) -> str:
    return f"{cell[0]:.4g} ({-cell[1] / cell[2]:+.0f})" if cell[2] else f"{cell[0]:.4g}"


def _share(cell: Any) -> str:
    """Return a share in percent, with the standard error of its change."""
    return f"{100 * cell[0]:.1f}" + (f" ± {100 * cell[2]:.1f}" if cell[2] else "")


_COLOURS = {"own": "pink", "tuned": "orange", "outputs": "blue", "gradients": "teal", "tune": "dark"}
_STYLES = {"global": (":", "o"), "class": ("-", "s"), "calibrated": ("--", "D")}
_CUT = 1.5  # above so many times the distance of the model the axis is broken


def figure(record: Record) -> Any:
    """Draw the sheet, then distances and precision and recall against the acceptance rate, for each generator."""
    rows = record.rows
    drawn, below = sheet_canvas(rows[0], title(rows[0]["row"]), 1.1 + 3.4 * len(rows))
    grid = below.add_gridspec(2 * len(rows), 3, height_ratios=[1, 2] * len(rows))
    handles, (_, *obrs) = dict[str, Any](), cell_keys("obrs", record.config["rates"])
    for at, row in enumerate(rows):
        judge = next(iter(next(iter(next(iter(row["ratios"].values()))["cells"].values()))))
        both = slice(2 * at, 2 * at + 2)
        highest = max(by[key][0] / by["model 1"][0] for by in _cells(row, judge).values() for key in obrs)
        left = [2 * at, 2 * at + 1] if highest > _CUT else [both]
        panels = [below.add_subplot(grid[line, 0]) for line in left]
        middle, right = (below.add_subplot(grid[both, column]) for column in (1, 2))
        _draw_distances(panels, record, row, judge)
        _draw_rules(middle, right, record, row, judge)
        for axes in (panels[0], middle, right):
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    below.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, fontsize=8)
    text = "Distances to test images, on the features of a classifier that no ratio saw; an axis on the left is broken "
    text += "where some go far wrong. Bars: 95 % intervals of the change. Precision and recall at k = 5, equal n."
    return caption(drawn, record.experiment, text)


def _draw_distances(panels: list[Any], record: Record, row: dict[str, Any], judge: str) -> None:
    """Draw OBRS with every ratio and kind of constant, in one panel, or in the two parts of a broken axis."""
    values, base = [], 0.0
    for (ratio, constant), cells in _cells(row, judge).items():
        label = "tune" if ratio == "tune" else _label(ratio, constant)
        style = Look(label, PALETTE[_COLOURS[ratio]], *_STYLES[constant])
        values += [draw_rates(axes, record.config["rates"], cells, "obrs", style) for axes in panels]
        base = cells["model 1"][0]
    *above, below = panels
    below.axhline(base, color="0.5", lw=1)
    below.set(ylabel="Fréchet distance")
    for axes in above:
        below.set_ylim(min(0.6 * base, 0.9 * np.nanmin(values)), _CUT * base)
        axes.set(ylim=(_CUT * base, 1.1 * np.nanmax(values)), xticklabels=[], xlabel="")
        axes.tick_params(bottom=False)
        for part, side, height in ((axes, "bottom", 0), (below, "top", 1)):
            part.spines[side].set_visible(False)
            part.plot([0, 1], [height, height], transform=part.transAxes, marker=[(-1, -0.6), (1, 0.6)], ms=8, ls="",
                      color="0.3", clip_on=False)  # fmt: skip
    panels[0].set_title(f"{title(row['row'])}: OBRS", fontsize=9)


def _draw_rules(left: Any, right: Any, record: Record, row: dict[str, Any], judge: str) -> None:
    """Draw distances, and precision against recall, of OBRS and DRS with the recommended ratio, or with the last."""
    rates, near = record.config["rates"], _cells(row, judge, "neighbours")
    ratio, constant = BEST if BEST in near else [key for key in near if key[0] != "tune"][-1]
    cells, shares = _cells(row, judge)[ratio, constant], near[ratio, constant]
    for rule, look in ((rule, LOOKS[rule]) for rule in ("obrs", "drs")):
        draw_rates(left, rates, cells, rule, look, label=f"{look.label}, the recommended ratio")
        (x, dx), (y, dy) = (
            (100 * numbers([cell[0] for cell in some]), 196 * numbers([cell[2] for cell in some]))
            for some in ([shares[key][part] for key in cell_keys(rule, rates)] for part in ("recall", "precision"))
        )
        right.errorbar(x, y, dy, dx, color=look.colour, ls=look.line, marker=look.marker, ms=4, lw=1.5, elinewidth=0.8)
    left.axhline(cells["model 1"][0], color="0.5", lw=1)
    left.set_title(f"OBRS and DRS, {_label(ratio, constant)}", fontsize=9)
    right.plot(x[0], y[0], marker="X", color="black", ls="", ms=8, label="as it is")
    right.set(xlabel="recall, %", ylabel="precision, %")
    right.set_title("precision and recall", fontsize=9)
    tidy(right, None)
