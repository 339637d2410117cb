"""DRS and OBRS on trained GANs of images: distances, precision and recall against the acceptance rate.

The paper has a BigGAN of CelebA, whose critic is trained further as a ratio, and one constant. Here are conditional
hinge GANs of Fashion-MNIST that are committed, `image_gans`, three ratios, and three kinds of constants; `image_ratios`
says which images are used for what. One pool gives the whole curve. At three budgets samples are drawn anew, with
`obrs.sample`, and measured at equal n: they confirm what the pool says.

`paper` is the paper's size, for a generator and data of your own: `--home FOLDER` has NAME-SEED-generator.safetensors
and NAME-SEED-critic.safetensors as `image_gans` writes them, and NAME.npz with images. The paper trains the critic
further at a learning rate of 1e-10, which changes nothing; we use that of `FineTune`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from .image_names import CONSTANTS, JUDGES, RATIOS
from .image_sheet import as_text, draw_sheet
from .record import Record, Rows, numbers
from .style import caption, figure, look, tidy

__all__ = ["PAPER", "PRESETS", "Config", "plot", "render", "run"]

PAPER = {
    "figure": "DRS vs. OBRS on a pre-trained BigGAN on CelebA",
    "says": "OBRS has the lower FID at every rate, and the higher precision at rates above .3",
}
BEST = ("features", "class")
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
        judged: Proposals, and real images, that EfficientNet-Lite0 looks at; 0 leaves it out.
        kept: Samples that are drawn anew at each rate, with the recommended ratio; 0 for none.
        shown: Images on the sheet of the first generator.
        fakes, steps, epochs: See `image_ratios.Effort`.
    """

    generators: tuple[str, ...] = ("fashion_mnist-0", "fashion_mnist-1", "fashion_mnist-2")
    home: str = ""
    ratios: tuple[str, ...] = ("own", "tuned", "features")
    constants: tuple[str, ...] = ("global", "class", "shares")
    rates: tuple[float, ...] = (0.75, 0.5, 0.25)
    pool: int = 20_000
    neighbours: int = 10_000
    judged: int = 4_000
    kept: int = 4_000
    shown: int = 40
    fakes: int = 10_000
    steps: int = 800
    epochs: int = 8

    def __post_init__(self) -> None:
        if not self.generators or not self.ratios or not self.constants or not self.rates:
            raise InputError("figure-pretrained needs at least one generator, ratio, kind of constant and rate")
        if not all(0 < rate < 1 for rate in self.rates):
            raise InputError(f"rates must be between 0 and 1, got {list(self.rates)}; 1 is always there")
        if min(self.pool, self.neighbours, self.fakes, self.steps, self.epochs) < 1:
            raise InputError("pool, neighbours, fakes, steps and epochs must be at least 1")


_SMOKE = Config(
    generators=("digits-0",),
    ratios=("own", "features"),
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
    kept=10_000,
    fakes=50_000,
    steps=10_000,
)
PRESETS = {"smoke": _SMOKE, "cpu": Config(), "paper": _PAPER}


def run(config: Config, rows: Rows) -> None:
    """Measure each generator with every ratio and kind of constant."""
    for name, generator in rows.todo({g: g for g in config.generators}):
        rows.add(name, _one_generator(config, generator, rows.progress))


def _one_generator(config: Config, generator: str, progress: bool | None) -> dict[str, Any]:
    from .image_ratios import Effort, distances, fit_ratios, prepare

    effort = Effort(config.fakes, config.steps, config.epochs)
    subject = prepare(
        generator, effort, pool=config.pool, judged=config.judged, home=config.home, progress=progress
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
                found[ratio].setdefault("neighbours", {})[constant] = _neighbours(config, subject, scores, constant)
    ratio, constant = _best(config)
    row = {"ratios": found, "seconds": subject.seconds}
    if config.kept:
        row["drawn"] = _drawn(config, subject, fits[ratio], constant)
    if config.shown and generator == config.generators[0]:
        row |= _sheet(config, subject, fits[ratio], constant)
    return row


def _best(config: Config) -> tuple[str, str]:
    """Return the recommended ratio and constants, or the last ones that there are."""
    ratio, constant = BEST
    return ratio if ratio in config.ratios else config.ratios[-1], (
        constant if constant in config.constants else config.constants[-1]
    )


def _neighbours(config: Config, subject: Any, scores: Any, constant: str) -> dict[str, Any]:
    """Return precision and recall of every rule and budget: value, change and its standard error."""
    from ..metrics.nearest_neighbours import Neighbourhood
    from ..metrics.weightings import weightings

    judge = next(iter(subject.spread))
    n = min(config.neighbours, len(subject.spread[judge]))
    labels = None if constant == "global" else subject.labels[:n]
    found = weightings(scores[:n], (1, *(1 / rate for rate in config.rates)), ("obrs", "drs"), labels)
    size = int(min(config.rates) * n)  # recall compares at equal n
    real, fake = subject.truth[judge][:n], subject.spread[judge][:n]
    around = Neighbourhood.of(real=real, fake=fake, k=5, size=size, groups=20)
    curve = around.curve(found.weights, size=size, draws=4, without=found.without)
    out: dict[str, Any] = {}
    for line, (rule, budget) in enumerate(found.keys):
        cells = {}
        for metric in ("precision", "recall"):
            one = getattr(curve, metric)
            change = one.difference(line, 0)
            cells[metric] = [float(one.value[line]), change.value, change.standard_error]
        out[f"{rule} {budget:g}"] = cells
    return out | {"size": size}


def _drawn(config: Config, subject: Any, fitted: Any, constant: str) -> dict[str, Any]:
    """Draw samples anew, at each rate as many, and return their distances, with that of as many proposals."""
    from ..acceptance import accept
    from ..metrics.frechet_distance import frechet
    from ..metrics.weightings import weightings

    judge = next(iter(subject.judges))
    see, real = subject.judges[judge], subject.truth[judge]
    scores = fitted.log_ratio(subject.pool, subject.labels)
    groups = None if constant == "global" else subject.labels
    start, out = config.pool, {}
    for rate in (1.0, *config.rates):
        count = round(1.1 * config.kept / rate)
        ids = np.arange(start, start := start + count)
        images, labels = subject.source.propose(ids)
        log_a = np.zeros(count)
        if rate < 1:
            rule = _rule(scores, 1 / rate, groups)
            fresh = fitted.log_ratio(images, labels)
            log_a = rule(fresh) if groups is None else rule(fresh, labels)
        kept = np.flatnonzero(accept(log_a, ids, seed=1))
        if len(kept) < config.kept:
            raise InputError(f"{len(kept)} of {count} proposals were kept, {config.kept} are needed; raise pool")
        found = frechet(real=real, fake=see(images[kept[: config.kept]]))
        out[f"{rate:g}"] = [found.value, len(kept) / count]
    return out


def _rule(scores: Any, budget: float, groups: Any) -> Any:
    from ..acceptance import Budgeted, Grouped

    return Budgeted.fit(scores, budget) if groups is None else Grouped.fit(scores, budget, groups)


def _sheet(config: Config, subject: Any, fitted: Any, constant: str) -> dict[str, Any]:
    """Return the first proposals of the pool, and which of them are kept at one half."""
    from ..acceptance import accept

    groups = None if constant == "global" else subject.labels
    scores = fitted.log_ratio(subject.pool, subject.labels)
    rule, n = _rule(scores, 2.0, groups), config.shown
    log_a = rule(scores[:n]) if groups is None else rule(scores[:n], groups[:n])
    kept = accept(log_a, np.arange(n), seed=1)
    return {"shape": list(subject.pool.shape[1:]), "sheet": as_text(subject.pool[:n]), "kept": kept.tolist()}
