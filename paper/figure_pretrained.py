"""DRS and OBRS on trained GANs of images: distances, precision and recall against the acceptance rate.

The paper has a BigGAN of CelebA without classes, whose critic is trained further as a ratio, and one constant. Here are
three conditional GANs of CIFAR-10 and an unconditional one, or with `fashion` conditional GANs of Fashion-MNIST;
several ratios, and one constant, one per class, or one after calibration by class; `image_ratios` says which images are
used for what. One pool gives the whole curve. With `fashion`, samples are drawn anew at three budgets, with
`obrs.sample`, and measured at equal n: they confirm what the pool says.

`paper` is the paper's size, for a generator and data of your own: `--home FOLDER` has NAME-SEED-generator.safetensors
and NAME-SEED-critic.safetensors as `image_gans` writes them, and NAME.npz with images, or the pictures of CelebA or
ImageNet themselves; `examples/biggan-pretrained.py` writes those files from a public checkpoint. With `--second
inception_v3=FILE`, the weights of torch-fidelity, its distances are the FID. The paper says that the critic is trained
further at a rate of 1e-10, which is that of the frozen generator; its scripts have 4e-5 for CelebA.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from obrs._text import lookup
from obrs.errors import InputError

from . import image_names
from .image_names import JUDGES, title
from .image_sheet import draw_sheet
from .record import Record, numbers
from .style import PALETTE, canvas, caption, look, page_table, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "markdown", "run", "table"]

PAPER = {
    "figure": "5: DRS vs. OBRS on a pre-trained BigGAN on CelebA",
    "says": "OBRS has the lower FID at every rate, and the higher precision at rates above .3",
}
"""A figure without numbers in the text."""
RATIOS = image_names.RATIOS | {"tune": "tune"}
"""The ratios, and what they are called; that of `obrs.tune` has constants of its own choice."""
CONSTANTS = image_names.CONSTANTS | {"calibrated": "one, calibrated by class"}
"""How many constants there are, and what that is called."""
BEST = ("outputs", "class")
"""The ratio and the constants that are recommended."""
_NEAR = (BEST, ("tuned", "global"), ("tuned", "calibrated"))  # precision and recall are of these


@dataclass(frozen=True)
class Config:
    """What to compare.

    Args:
        generators: Names and seeds of generators, as `name-seed`.
        home: A folder with generators and data of your own; "" for those that are committed.
        ratios: Which, keys of `RATIOS`; those on features need labels.
        constants: How many, keys of `CONSTANTS`; a generator without labels has "global" alone.
        rates: Shares of the proposals that are kept.
        pool: Proposals of each generator.
        neighbours: How many of them, and of real images, precision and recall are for.
        judged: Proposals, and real images, that the second judge looks at; 0 leaves it out.
        second: The second judge, see `image_ratios.find_judges`; the only one if the data have no labels.
        tune: Proposals that `obrs.tune` weighs, at the smallest rate, if it is among the ratios.
        kept: Samples that are drawn anew at each rate, with the recommended ratio; 0 for none.
        shown: Images on the sheet of the first generator.
        fakes, steps, epochs: See `image_ratios.Effort`.
    """

    generators: tuple[str, ...] = ("cifar10-gan-0", "cifar10-gan-1", "cifar10-gan-2", "cifar10-plain-0")
    home: str = ""
    ratios: tuple[str, ...] = ("own", "tuned", "outputs")
    constants: tuple[str, ...] = ("global", "class", "calibrated")
    rates: tuple[float, ...] = (0.75, 0.5, 0.25)
    pool: int = 5_000
    neighbours: int = 4_000
    judged: int = 2_500
    second: str = "efficientnet_lite0"
    tune: int = 4_000
    kept: int = 0
    shown: int = 42
    fakes: int = 3_000
    steps: int = 150
    epochs: int = 10

    def __post_init__(self) -> None:
        if not self.generators or not self.ratios or not self.constants or not self.rates:
            raise InputError("figure-pretrained needs at least one generator, ratio, kind of constant and rate")
        if not all(0 < rate < 1 for rate in self.rates):
            raise InputError(f"rates must be between 0 and 1, got {list(self.rates)}; 1 is always there")
        for names, known, what in ((self.ratios, RATIOS, "ratio"), (self.constants, CONSTANTS, "kind of constant")):
            for name in names:
                lookup(known, name, what)
        lookup(JUDGES, self.second.partition("=")[0], "judge")
        if min(self.pool, self.neighbours, self.fakes, self.steps, self.epochs) < 1:
            raise InputError("pool, neighbours, fakes, steps and epochs must be at least 1")


_SMOKE = Config(
    generators=("digits-0",), ratios=("own", "outputs"), constants=("global", "class", "shares"), rates=(0.5,),
    pool=400, neighbours=200, judged=0, kept=100, shown=12, fakes=400, steps=30, epochs=1,
)  # fmt: skip
_FASHION = Config(
    generators=("fashion_mnist-0", "fashion_mnist-1", "fashion_mnist-2"),
    ratios=("own", "tuned", "features", "outputs"), constants=("global", "class", "shares"),
    pool=20_000, neighbours=10_000, judged=4_000, kept=4_000, shown=40, fakes=15_000, steps=800, epochs=8,
)  # fmt: skip
_PAPER = Config(
    generators=("celeba-0",), home="celeba", ratios=("own", "tuned", "gradients"), constants=("global",),
    rates=(0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2), pool=50_000, neighbours=10_000, judged=50_000,
    second="inception_v3", kept=10_000, fakes=50_000, steps=10_000, epochs=8,
)  # fmt: skip
PRESETS = {"smoke": _SMOKE, "default": Config(), "fashion": _FASHION, "paper": _PAPER}


def run(config: Config, rows: Record) -> None:
    """Measure each generator with every ratio and kind of constant."""
    for name, generator in rows.todo({g: g for g in config.generators}):
        rows.add(name, _one_generator(config, generator, rows.progress))


def _one_generator(config: Config, generator: str, progress: bool | None) -> dict[str, Any]:
    from .image_ratios import Effort, distances, fit_ratios, neighbour_cells, prepare, sheet

    effort = Effort(config.fakes, config.steps, config.epochs)
    sizes: Any = {"pool": config.pool, "judged": config.judged, "second": config.second, "home": config.home}
    subject = prepare(generator, effort, **sizes, progress=progress)
    budgets = [1 / rate for rate in config.rates]
    constants = config.constants if len(subject.shares) > 1 else ("global",)
    fits = fit_ratios(subject, effort, config.ratios, progress=progress)
    found: dict[str, Any] = {}
    for ratio, fitted in fits.items():
        scores = fitted.log_ratio(subject.pool, subject.labels)
        cells = distances(subject, scores, budgets, constants=constants)
        found[ratio] = {"log_loss": fitted.log_loss, "seconds": fitted.seconds, "cells": cells}
        wanted = [c for c in constants if (ratio, c) in _NEAR or (ratio == BEST[0] and BEST[1] not in constants)]
        for constant in wanted:
            near = neighbour_cells(subject, scores, config.rates, constant, config.neighbours)
            found[ratio].setdefault("neighbours", {})[constant] = near
    if "tune" in config.ratios:
        found["tune"] = _tuned(config, subject, budgets, progress)
    ratio, constant = _best(config, constants)
    row = {"ratios": found, "seconds": subject.seconds}
    if config.kept:
        row["drawn"] = _drawn(config, subject, fits[ratio], constant)
    if config.shown and generator == config.generators[0]:
        row |= sheet(subject, fits[ratio].log_ratio(subject.pool, subject.labels), constant, config.shown)
    return row


def _tuned(config: Config, subject: Any, budgets: list[float], progress: bool | None) -> dict[str, Any]:
    """Return what the recipe of `obrs.tune` at the largest budget does, with the score and constants that it chose."""
    from obrs import tune

    from .image_ratios import Logit, distances, neighbour_cells

    labelled, some = len(subject.shares) > 1, [subject.split[part] for part in ("ratio", "features")]
    x, y = np.concatenate([part.x for part in some]), np.concatenate([part.label for part in some])

    def propose(ids: Any) -> Any:
        images, label = subject.source.propose(ids)
        return (images, label) if labelled else images

    tuned = tune(
        (x, y) if labelled else x,
        propose,
        budget=max(budgets),
        critic=Logit(subject.source.gan.critic),
        pool=config.tune,
        seed=subject.seed,
        progress=progress,
    )
    images = np.asarray(subject.pool)
    scores = np.asarray(tuned.log_ratio((images, subject.labels) if labelled else images), dtype=np.float64)
    constant = "class" if tuned.recipe is not None and "per class" in tuned.recipe.constants else "global"
    found: dict[str, Any] = {
        "log_loss": None,
        "seconds": tuned.seconds,
        "recipe": str(tuned.recipe),
        "confirmed": tuned.confirmed,
    }
    found["cells"] = distances(subject, scores, budgets, constants=(constant,))
    near = neighbour_cells(subject, scores, config.rates, constant, config.neighbours)
    return found | {"neighbours": {constant: near}}


def _best(config: Config, constants: Sequence[str]) -> tuple[str, str]:
    """Return the recommended ratio and constants, or the last ones that there are."""
    ratio, constant = BEST
    return ratio if ratio in config.ratios else config.ratios[-1], constant if constant in constants else constants[-1]


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
    for judge, called in JUDGES.items():
        rows = [row for row in record.rows if judge in _any(row)]
        if not rows:
            continue
        lines += [f"Fréchet distance, judged by {called}; gain over the model in standard errors in brackets"]
        lines += [f"{'':{_FIRST}}" + "".join(f"{name:>{_WIDE * len(rates)}}" for name in ("OBRS", "DRS"))]
        lines += [f"{'acceptance':{_FIRST}}" + "".join(f"{rate:>{_WIDE}g}" for rate in (*rates, *rates))]
        for row in rows:
            lines.append(f"{title(row['row'])}, as it is: {_any(row)[judge]['model 1'][0]:.2f}")
            for ratio, found in row["ratios"].items():
                for constant, cells in found["cells"].items():
                    keys = [f"{rule} {1 / rate:g}" for rule in ("obrs", "drs") for rate in rates]
                    values = "".join(f"{_cell(cells[judge].get(key)):>{_WIDE}}" for key in keys)
                    lines.append(f" {RATIOS[ratio] + ', ' + CONSTANTS[constant]:{_FIRST - 1}}" + values)
        lines.append("")
    for row in record.rows:
        for (ratio, constant), near in _near(row).items():
            about = f"{title(row['row'])}, {RATIOS[ratio]}, {CONSTANTS[constant]}"
            lines.append(f"{about}: precision / recall, %")
            for rule in ("obrs", "drs"):
                named = ["model 1", *(f"{rule} {1 / rate:g}" for rate in rates)]
                cells = [" / ".join(_share(near[key][metric]) for metric in ("precision", "recall")) for key in named]
                lines.append(f"  {look(rule).label:6}" + "".join(f"{cell:>24}" for cell in cells))
        if "drawn" in row:
            cells = [f"{rate}: {value:.2f} ± {error:.2f}" for rate, (value, error, _) in row["drawn"].items()]
            lines.append(f"  drawn anew with obrs.sample, {record.config['kept']:,} each: " + ", ".join(cells))
    return "\n".join(lines)


def markdown(record: Record) -> str:
    """Return the distances of some ways for a page: the paper's, those that mend it, ours, and those of `tune`."""
    rates = record.config["rates"]
    head = ["generator", "judge", "ratio, constants", "as it is"]
    head += [f"{look(rule).label}, {rate:g}" for rule in ("obrs", "drs") for rate in rates]
    lines = []
    for row in record.rows:
        for judge in _any(row):
            for ratio, constant in _shown(row):
                cells = row["ratios"].get(ratio, {"cells": {}})["cells"].get(constant, {}).get(judge)
                if cells is not None:
                    found = [_cell(cells.get(f"{rule} {1 / rate:g}")) for rule in ("obrs", "drs") for rate in rates]
                    said = [title(row["row"]), JUDGES[judge], f"{RATIOS[ratio]}, {CONSTANTS[constant]}"]
                    lines.append([*said, f"{cells['model 1'][0]:.4g}", *found])
    return page_table(head, lines)


def _any(row: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of some ratio and constant, for what they share: the model as it is."""
    found: dict[str, Any] = next(iter(next(iter(row["ratios"].values()))["cells"].values()))
    return found


def _shown(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the ratios and constants that a page shows: the paper's, those that mend it, ours, and those of `tune`."""
    ways = [("tuned", "global"), ("tuned", "class"), ("tuned", "calibrated"), ("outputs", "global"), BEST]
    chosen = [("tune", constant) for constant in row["ratios"].get("tune", {"cells": {}})["cells"]]
    return [way for way in (*ways, *chosen) if way[1] in row["ratios"].get(way[0], {"cells": {}})["cells"]]


def _near(row: dict[str, Any]) -> dict[tuple[str, str], Any]:
    return {
        (ratio, constant): near
        for ratio, found in row["ratios"].items()
        for constant, near in found.get("neighbours", {}).items()
    }


def _share(value: Any) -> str:
    """Return a share in percent, with the standard error of its change."""
    return f"{100 * value[0]:.1f}" + (f" ± {100 * value[2]:.1f}" if value[2] else "")


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value[0]:.4g} ({-value[1] / value[2]:+.0f})"


_ACROSS = 14  # images in a row of the sheet
_COLOURS = {
    "outputs": "blue",
    "features": "forest",
    "tuned": "orange",
    "own": "pink",
    "gradients": "teal",
    "tune": "red",
}
_STYLES = {"global": (":", "o"), "class": ("-", "s"), "calibrated": ("--", "D")}
_CUT = 1.5  # above so many times the distance of the model the axis is broken


def figure(record: Record) -> Any:
    """Draw the sheet, then distances and precision and recall against the acceptance rate, for each generator."""
    rows = record.rows
    first = next((row for row in rows if "sheet" in row), None)
    high = 0.6 + (0.75 * -(-len(first["sheet"]) // _ACROSS) if first else 0)
    drawn = canvas(12, high + 1.1 + 3.4 * len(rows))
    outer = drawn.subfigures(2, 1, height_ratios=[high, 1.1 + 3.4 * len(rows)])
    if first is not None:
        axes = outer[0].subplots()
        draw_sheet(axes, first["sheet"], first["shape"], first["kept"], across=_ACROSS)
        axes.set_title(f"{title(first['row'])}: proposals, kept (green) and rejected (red) at one half")
    grid = outer[1].add_gridspec(2 * len(rows), 3, height_ratios=[1, 2] * len(rows))
    handles: dict[str, Any] = {}
    for at, row in enumerate(rows):
        above, below = (outer[1].add_subplot(grid[2 * at + part, 0]) for part in (0, 1))
        middle, right = (outer[1].add_subplot(grid[2 * at : 2 * at + 2, column]) for column in (1, 2))
        _draw_distances(above, below, record, row)
        _draw_rules(middle, record, row)
        _draw_neighbours(right, record, row)
        for axes in (below, middle, right):
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    outer[1].legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, fontsize=8)
    caption(
        drawn,
        record.experiment,
        "Distances to test images, on the features of a classifier that no ratio saw; the axis on the left is broken. "
        "Bars: 95 % intervals of the change from the model. Precision and recall at k = 5, equal n.",
    )
    return drawn


def _curve(cells: Any, rule: str, rates: Any) -> tuple[Any, Any]:
    values = [cells["model 1"], *(cells.get(f"{rule} {1 / rate:g}", [None] * 3) for rate in rates)]
    return numbers([value[0] for value in values]), 1.96 * numbers([value[2] for value in values])


def _draw_distances(above: Any, below: Any, record: Record, row: dict[str, Any]) -> None:
    """Draw OBRS with every ratio and kind of constant; what goes far wrong is in the upper part of a broken axis."""
    rates, judge = record.config["rates"], next(iter(_any(row)))
    base, top = _any(row)[judge]["model 1"][0], 0.0
    for ratio, found in row["ratios"].items():
        for constant, cells in found["cells"].items():
            if constant not in _STYLES or ratio not in _COLOURS:
                continue
            (line, marker), label = _STYLES[constant], f"{RATIOS[ratio]}, {CONSTANTS[constant]}"
            value, reach = _curve(cells[judge], "obrs", rates)
            top = max(top, float(np.nanmax(value)))
            for axes in (above, below):
                axes.errorbar([1, *rates], value, reach, color=PALETTE[_COLOURS[ratio]], ls=line, marker=marker, ms=4,
                              lw=1.5, label="tune" if ratio == "tune" else label)  # fmt: skip
    below.axhline(base, color="0.5", lw=1)
    below.set(ylim=(0.6 * base, _CUT * base), xlabel="acceptance rate", ylabel="Fréchet distance")
    above.set(ylim=(_CUT * base, max(1.1 * top, 1.01 * _CUT * base)), xticklabels=[])
    above.set_title(f"{title(row['row'])}: OBRS", fontsize=9)
    if top <= _CUT * base:
        above.set_yticks([])
    for axes, side, height in ((above, "bottom", 0), (below, "top", 1)):
        axes.spines[side].set_visible(False)
        axes.plot([0, 1], [height, height], transform=axes.transAxes, marker=[(-1, -0.6), (1, 0.6)], ms=8, ls="",
                  color="0.3", clip_on=False)  # fmt: skip
        axes.invert_xaxis()
        tidy(axes, None)
    above.tick_params(bottom=False)


def _draw_rules(axes: Any, record: Record, row: dict[str, Any]) -> None:
    """Draw OBRS and DRS with the recommended ratio."""
    rates, judge = record.config["rates"], next(iter(_any(row)))
    ratio = BEST[0] if BEST[0] in row["ratios"] else next(iter(row["ratios"]))
    found = row["ratios"][ratio]["cells"]
    constant = BEST[1] if BEST[1] in found else next(iter(found))
    for rule in ("obrs", "drs"):
        (value, reach), own = _curve(found[constant][judge], rule, rates), look(rule)
        axes.errorbar([1, *rates], value, reach, color=own.colour, ls=own.line, marker=own.marker, ms=4, lw=1.5,
                      label=f"{own.label}, the recommended ratio")  # fmt: skip
    if "drawn" in row:
        at = [float(rate) for rate in row["drawn"]]
        value, error = (numbers([cell[part] for cell in row["drawn"].values()]) for part in (0, 1))
        axes.errorbar(at, value, 1.96 * error, color="black", ls="", marker="o", mfc="none", ms=7, lw=1,
                      label="OBRS, drawn anew")  # fmt: skip
    axes.axhline(_any(row)[judge]["model 1"][0], color="0.5", lw=1)
    axes.set(xlabel="acceptance rate")
    axes.set_title(f"OBRS and DRS, {RATIOS[ratio]}, {CONSTANTS[constant]}", fontsize=9)
    axes.invert_xaxis()
    tidy(axes, None)


def _draw_neighbours(axes: Any, record: Record, row: dict[str, Any]) -> None:
    """Draw precision against recall of OBRS and DRS, with 95 % intervals of the change from the model."""
    found = _near(row)
    near = found.get(BEST) or next(iter(found.values()), None)
    if near is None:
        axes.set_axis_off()
        return
    for rule in ("obrs", "drs"):
        cells, own = (
            [near[key] for key in ("model 1", *(f"{rule} {1 / r:g}" for r in record.config["rates"]))],
            look(rule),
        )
        (x, dx), (y, dy) = (
            (numbers([100 * cell[part][0] for cell in cells]), numbers([196 * cell[part][2] for cell in cells]))
            for part in ("recall", "precision")
        )
        axes.errorbar(x, y, dy, dx, color=own.colour, ls=own.line, marker=own.marker, ms=4, lw=1.5, elinewidth=0.8)
    axes.plot(x[0], y[0], marker="X", color="black", ls="", ms=8, label="as it is")
    axes.set(xlabel="recall, %", ylabel="precision, %")
    axes.set_title("precision and recall", fontsize=9)
    tidy(axes, None)
