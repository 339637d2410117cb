"""DRS and OBRS on trained GANs of images: distances, precision and recall against the acceptance rate.

The paper has a BigGAN of CelebA without classes, whose critic is trained further as a ratio, and one constant. Here are
conditional GANs of Fashion-MNIST, or with `cifar` three conditional GANs of CIFAR-10 and an unconditional one; several
ratios, and one constant, one per class, or one after calibration by class. `image_ratios` says which images are used
for what. One pool gives the whole curve.

`paper` is the paper's size, for a generator and data of your own: `--home FOLDER` has NAME-SEED-generator.safetensors
and NAME-SEED-critic.safetensors as `image_gans` writes them, and NAME.npz with images. With `--second
inception_v3=FILE`, the weights of torch-fidelity, its distances are the FID. The paper says that the critic is trained
further at a rate of 1e-10, which is that of the frozen generator; its scripts have 4e-5 for CelebA.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from obrs._text import lookup, text_table
from obrs.errors import InputError

from .image_names import CONSTANTS, JUDGES, RATIOS, title
from .image_sheet import draw_sheet
from .record import Checked, Record, numbers
from .style import PALETTE, canvas, caption, look, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "run", "table"]

PAPER = {
    "figure": "5: DRS vs. OBRS on a pre-trained BigGAN on CelebA",
    "says": "OBRS has the lower FID at every rate, and the higher precision at rates above .3",
}
"""A figure without numbers in the text."""
BEST = ("outputs", "class")
"""The ratio and the constants that are recommended."""
_NEAR = (BEST, ("tuned", "global"))  # precision and recall are of these and of `tune`


@dataclass(frozen=True)
class Config(Checked):
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
        given: Parts of the training images that `tune` gets. What the model saw is among them for CIFAR-10: the other
            10 000 are too few.
        shown: Images on the sheet of the first generator.
        fakes, steps, epochs: See `image_ratios.Effort`.
    """

    unchecked = ("judged", "shown")
    generators: tuple[str, ...] = ("fashion_mnist-0", "fashion_mnist-1", "fashion_mnist-2")
    home: str = ""
    ratios: tuple[str, ...] = ("own", "tuned", "outputs")
    constants: tuple[str, ...] = ("global", "class")
    rates: tuple[float, ...] = (0.75, 0.5, 0.25)
    pool: int = 20_000
    neighbours: int = 10_000
    judged: int = 4_000
    second: str = "efficientnet_lite0"
    tune: int = 4_000
    given: tuple[str, ...] = ("ratio", "features")
    shown: int = 40
    fakes: int = 15_000
    steps: int = 800
    epochs: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0 < rate < 1 for rate in self.rates):
            raise InputError(f"rates must be between 0 and 1, got {list(self.rates)}; 1 is always there")
        for names, known, what in ((self.ratios, RATIOS, "ratio"), (self.constants, CONSTANTS, "kind of constant")):
            for name in names:
                lookup(known, name, what)
        lookup(JUDGES, self.second.partition("=")[0], "judge")


_SMOKE = Config(
    generators=("digits-0",), ratios=("own", "outputs"), rates=(0.5,),
    pool=400, neighbours=200, judged=0, shown=12, fakes=400, steps=30, epochs=1,
)  # fmt: skip
_CIFAR = Config(
    generators=("cifar10-gan-0", "cifar10-gan-1", "cifar10-gan-2", "cifar10-plain-0"),
    ratios=("own", "tuned", "outputs", "tune"), constants=("global", "class", "calibrated"),
    pool=10_000, judged=10_000, tune=10_000, given=("generator", "ratio", "features"), shown=42, fakes=3_000,
    steps=150, epochs=10,
)  # fmt: skip
_PAPER = Config(
    generators=("celeba-0",), home="celeba", ratios=("own", "tuned", "gradients"), constants=("global",),
    rates=(0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2), pool=50_000, judged=50_000, second="inception_v3",
    fakes=50_000, steps=10_000,
)  # fmt: skip
PRESETS = {"smoke": _SMOKE, "default": Config(), "cifar": _CIFAR, "paper": _PAPER}


def run(config: Config, rows: Record) -> None:
    """Measure each generator with every ratio and kind of constant; those of a data set have the same judges."""
    from .image_gans import load_gan
    from .image_ratios import Effort, prepare, with_gan

    effort, subjects = Effort(config.fakes, config.steps, config.epochs), dict[str, Any]()
    sizes: Any = {"pool": config.pool, "judged": config.judged, "second": config.second, "home": config.home}
    for name, generator in rows.todo({g: g for g in config.generators}):
        kind, _, seed = generator.rpartition("-")
        data, gan = kind.partition("-")[0], load_gan(kind, int(seed), config.home)
        if data in subjects:
            made = with_gan(subjects[data], gan)
        else:
            made = prepare(f"{data}-0", effort, gan, **sizes, progress=rows.progress)
        subjects[data] = replace(made, name=generator, seed=int(seed))
        rows.add(name, _one_generator(config, effort, subjects[data], rows.progress))


def _one_generator(config: Config, effort: Any, subject: Any, progress: bool | None) -> dict[str, Any]:
    from .image_ratios import distances, fit_ratios, neighbour_cells, sheet

    budgets = [1 / rate for rate in config.rates]
    constants = config.constants if subject.source.classes else ("global",)
    fits = fit_ratios(subject, effort, config.ratios, progress=progress)
    found: dict[str, Any] = {}
    scores = {ratio: fitted.log_ratio(subject.pool, subject.labels) for ratio, fitted in fits.items()}
    ways: dict[str, tuple[str, ...]] = dict.fromkeys(fits, constants)
    for ratio, fitted in fits.items():
        found[ratio] = {"log_loss": fitted.log_loss, "seconds": fitted.seconds}
    if "tune" in config.ratios:
        scores["tune"], constant, found["tune"] = _tuned(config, subject, max(budgets), progress)
        ways["tune"] = (constant,)
    last = config.ratios[-1], constants[-1]
    for ratio, log_ratio in scores.items():
        found[ratio]["cells"] = distances(subject, log_ratio, budgets, constants=ways[ratio])
        wanted = [c for c in ways[ratio] if (ratio, c) in (*_NEAR, last) or ratio == "tune" or len(constants) == 1]
        found[ratio]["neighbours"] = {
            c: {j: neighbour_cells(subject, log_ratio, config.rates, c, config.neighbours, j) for j in subject.spread}
            for c in wanted
        }
    row: dict[str, Any] = {"ratios": found, "seconds": subject.seconds}
    if config.shown and subject.name == config.generators[0]:
        ratio, constant = BEST if BEST[0] in scores and BEST[1] in constants else last
        row |= sheet(subject, scores[ratio], constant, config.shown)
    return row


def _tuned(config: Config, subject: Any, budget: float, progress: bool | None) -> tuple[Any, str, dict[str, Any]]:
    """Return the scores and the constants that `obrs.tune` chose at a budget, and what it says of them."""
    from obrs import tune

    from .image_ratios import Logit, propose

    gan, some = subject.source, [subject.split[part] for part in config.given]
    x, y = np.concatenate([part.x[:] for part in some]), np.concatenate([part.label for part in some])
    tuned = tune(
        (x, y) if gan.classes else x,
        lambda ids: propose(gan, ids) if gan.classes else propose(gan, ids)[0],
        budget=budget,
        critic=Logit(gan.critic, half=gan.half),
        pretrained=(),  # one of the judges would be among the candidates
        pool=config.tune,
        seed=subject.seed,
        progress=progress,
    )
    images = np.asarray(subject.pool)
    scores = np.asarray(tuned.log_ratio((images, subject.labels) if gan.classes else images), dtype=np.float64)
    constant = "class" if tuned.recipe is not None and "per class" in tuned.recipe.constants else "global"
    facts = {"log_loss": None, "seconds": tuned.seconds, "recipe": str(tuned.recipe), "confirmed": tuned.confirmed}
    return scores, constant, facts


def _any(row: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of some ratio and constant, for what they share: the model as it is."""
    found: dict[str, Any] = next(iter(next(iter(row["ratios"].values()))["cells"].values()))
    return found


def _keys(record: Record) -> list[str]:
    return [f"{rule} {1 / rate:g}" for rule in ("obrs", "drs") for rate in record.config["rates"]]


def _heads(record: Record) -> list[str]:
    return [f"{look(rule).label}, {rate:g}" for rule in ("obrs", "drs") for rate in record.config["rates"]]


def _cell(value: Any) -> str:
    return f"{value[0]:.4g} ({-value[1] / value[2]:+.0f})" if value[2] else f"{value[0]:.4g}"


def _lines(record: Record, row: dict[str, Any], judge: str, part: str = "cells") -> Iterator[tuple[str, str, Any]]:
    """Yield ratio, constants and cells by a judge."""
    for ratio, found in row["ratios"].items():
        for constant, by_judge in found.get(part, {}).items():
            if judge in by_judge:
                yield ratio, constant, by_judge[judge]


def table(record: Record) -> str:
    """Return the distances of every ratio, kind of constant and rate, then precision and recall."""
    parts = []
    for judge, called in JUDGES.items():
        for row in (row for row in record.rows if judge in _any(row)):
            base = _any(row)[judge]["model 1"][0]
            parts.append(f"{title(row['row'])}: Fréchet distance by {called}, {base:.4g} as it is")
            lines = [
                [f"{RATIOS[ratio]}, {CONSTANTS[constant]}", *(_cell(cells[key]) for key in _keys(record))]
                for ratio, constant, cells in _lines(record, row, judge)
            ]
            parts.append(text_table(["gain in standard errors in brackets", *_heads(record)], lines))
            shares = [
                [f"{RATIOS[ratio]}, {CONSTANTS[constant]}, {metric}", *(_share(near[key][metric]) for key in keys)]
                for ratio, constant, near in _lines(record, row, judge, "neighbours")
                for metric in ("precision", "recall")
                for keys in [["model 1", *(key for key in _keys(record) if key.startswith("obrs"))]]
            ]
            parts.append(text_table(["%", "as it is", *_heads(record)[: len(record.config["rates"])]], shares))
    return "\n".join(parts)


def _share(value: Any) -> str:
    """Return a share in percent, with the standard error of its change."""
    return f"{100 * value[0]:.1f}" + (f" ± {100 * value[2]:.1f}" if value[2] else "")


_ACROSS = 14  # images in a row of the sheet
_COLOURS = {"own": "pink", "tuned": "orange", "outputs": "blue", "gradients": "teal", "tune": "red"}
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
    said = (
        "Distances to test images, on the features of a classifier that no ratio saw; the axis on the left is broken. "
    )
    said += "Bars: 95 % intervals of the change from the model. Precision and recall at k = 5, equal n."
    caption(drawn, record.experiment, said)
    return drawn


def _curve(cells: Any, rule: str, rates: Any) -> tuple[Any, Any]:
    values = [cells["model 1"], *(cells[f"{rule} {1 / rate:g}"] for rate in rates)]
    return numbers([value[0] for value in values]), 1.96 * numbers([value[2] for value in values])


def _draw_distances(above: Any, below: Any, record: Record, row: dict[str, Any]) -> None:
    """Draw OBRS with every ratio and kind of constant; what goes far wrong is in the upper part of a broken axis."""
    rates, judge = record.config["rates"], next(iter(_any(row)))
    base, top, low = _any(row)[judge]["model 1"][0], 0.0, np.inf
    for ratio, constant, cells in _lines(record, row, judge):
        (line, marker), label = _STYLES[constant], f"{RATIOS[ratio]}, {CONSTANTS[constant]}"
        value, reach = _curve(cells, "obrs", rates)
        top, low = max(top, float(np.nanmax(value))), min(low, float(np.nanmin(value)))
        style = {"color": PALETTE[_COLOURS[ratio]], "ls": line, "marker": marker, "ms": 4, "lw": 1.5}
        for axes in (above, below):
            axes.errorbar([1, *rates], value, reach, **style, label="tune" if ratio == "tune" else label)
    below.axhline(base, color="0.5", lw=1)
    below.set(ylim=(min(0.6 * base, 0.9 * low), _CUT * base), xlabel="acceptance rate", ylabel="Fréchet distance")
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


def _recommended(record: Record, row: dict[str, Any], part: str) -> tuple[str, str, Any]:
    """Return the recommended ratio and constants with their cells, or the last of those that there are."""
    found = list(_lines(record, row, next(iter(_any(row))), part))
    return next((one for one in found if one[:2] == BEST), [one for one in found if one[0] != "tune"][-1])


def _draw_rules(axes: Any, record: Record, row: dict[str, Any]) -> None:
    """Draw OBRS and DRS with the recommended ratio."""
    ratio, constant, cells = _recommended(record, row, "cells")
    for rule in ("obrs", "drs"):
        (value, reach), own = _curve(cells, rule, record.config["rates"]), look(rule)
        axes.errorbar([1, *record.config["rates"]], value, reach, color=own.colour, ls=own.line, marker=own.marker,
                      ms=4, lw=1.5, label=f"{own.label}, the recommended ratio")  # fmt: skip
    axes.axhline(cells["model 1"][0], color="0.5", lw=1)
    axes.set(xlabel="acceptance rate")
    axes.set_title(f"OBRS and DRS, {RATIOS[ratio]}, {CONSTANTS[constant]}", fontsize=9)
    axes.invert_xaxis()
    tidy(axes, None)


def _draw_neighbours(axes: Any, record: Record, row: dict[str, Any]) -> None:
    """Draw precision against recall of OBRS and DRS, with 95 % intervals of the change from the model."""
    *_, near = _recommended(record, row, "neighbours")
    for rule in ("obrs", "drs"):
        keys, own = ("model 1", *(f"{rule} {1 / r:g}" for r in record.config["rates"])), look(rule)
        (x, dx), (y, dy) = (
            (numbers([100 * near[key][part][0] for key in keys]), numbers([196 * near[key][part][2] for key in keys]))
            for part in ("recall", "precision")
        )
        axes.errorbar(x, y, dy, dx, color=own.colour, ls=own.line, marker=own.marker, ms=4, lw=1.5, elinewidth=0.8)
    axes.plot(x[0], y[0], marker="X", color="black", ls="", ms=8, label="as it is")
    axes.set(xlabel="recall, %", ylabel="precision, %")
    axes.set_title("precision and recall", fontsize=9)
    tidy(axes, None)
