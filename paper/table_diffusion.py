"""OBRS on a diffusion model: distance, precision and recall against the acceptance rate; rejecting early; guidance.

The paper has EDM on CIFAR-10 with the classifier of Kim et al. Here are a small EDM that `runs/train_cifar.py` trains,
and its early checkpoint. The ratio is a network on the features of a classifier. Each half of the pool is scored by a
ratio that was fitted on the other half, so that no image has a ratio that saw it. The parts of the data are those of
`image_gans.parts`: generator, ratio, features and judge share no image, and the real images of every distance are the
test set. There is one constant per class.

Two things go beyond the paper, which names them as an outlook. Early rejection: Heun's sampler computes D(x; sigma) at
every noise level, the image that is expected, a preview, which costs nothing. The ratio of a noise level, a network of
its own, compares previews with those of real images to which as much noise was added. What it rejects is not finished,
which saves evaluations of the network; what it keeps is decided again at the end, see `obrs.rules.Stages`. The budget
is split by the profile of the ratios alone, no judge is asked. Discriminator guidance (Kim et al.): the sampler of the
first model follows the gradient of a discriminator of noisy images, and OBRS rejects with the ratio that is left.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from obrs._text import text_table
from obrs.errors import InputError
from obrs.fitting.seeds import derive
from obrs.metrics.curve import GROUPS, Curve, group_labels
from obrs.metrics.frechet import frechet, frechet_curve
from obrs.ratios.refit import Network, refit
from obrs.rules import Stages

from .early import divergence_left, plan_stages
from .image_diffusion import fit_guide, load_diffusion, make_pool, noisy_previews, shrink
from .image_gans import Labelled, parts
from .image_ratios import Effort, Judging, distances, neighbour_cells, see, sheet, subject_of, swap_pool
from .image_sheet import DATA, JUDGES, cell_keys, draw_rates, sheet_canvas
from .record import Record, numbers
from .style import LOOKS, PALETTE, Look, caption, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "run", "table"]

PAPER: dict[str, Any] = {
    "table": "3: OBRS on EDM, CIFAR-10",
    "rows": {
        "1": {"fid": 1.97, "precision": 77.91, "recall": 86.62},
        "0.75": {"fid": 1.77, "precision": 77.94, "recall": 86.54},
        "0.5": {"fid": 1.58, "precision": 78.23, "recall": 86.05},
        "0.25": {"fid": 1.57, "precision": 78.48, "recall": 86.73},
    },
}
"""The paper's table, by acceptance rate. Its FID is that of Inception; our distances are of other features."""
_FAINT: dict[str, Any] = {"label": None, "alpha": 0.35}  # the curves of all ratios but the first


@dataclass(frozen=True)
class Config(Judging):
    """What to measure; the slack was chosen on the first ratio, the others confirm it."""

    unchecked = ("seed", "ratios", "judged", "guided", "shown")
    data: str = "cifar10"  # a key of `image_gans.PARTS`
    size: int = 32  # pixels a side
    seed: int = 0  # of the models and of the classifiers
    updates: tuple[int, ...] = (3_836, 15_278)  # how long the models were trained, one for each
    ratios: tuple[int, ...] = (0, 1, 2)  # seeds of ratios
    sampler: int = 12  # steps of the sampler
    early: tuple[int, ...] = (8,)  # steps of the sampler at which to reject early, each by itself
    costs: tuple[float, ...] = (1.5, 2.0, 4.0)  # what a kept image may cost, in full runs of the sampler
    slack: float = 0.25  # of what a split gains, given up for one that rejects less early; see `early.plan_stages`
    guided: int = 300  # updates of the discriminator that guides the first model; 0 leaves guidance out

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(cost > 1 for cost in self.costs):
            raise InputError(f"costs must be above 1, in full runs per kept image, got {list(self.costs)}")
        if not all(0 < step < self.sampler for step in self.early):
            raise InputError(f"early must be steps from 1 to {self.sampler - 1}, got {list(self.early)}")


_SMOKE = Config(
    data="digits", size=8, updates=(2_500,), ratios=(0,), rates=(0.5,), pool=600, neighbours=200, judged=0, sampler=6,
    early=(4,), costs=(2.0,), guided=20, shown=12, steps=30, epochs=1,
)  # fmt: skip
PRESETS = {"smoke": _SMOKE, "default": Config(pool=2_500, neighbours=2_500, judged=2_500, epochs=20)}


class _Material(NamedTuple):
    """What all ratios of a model share: the judged pool, and features of real and proposed images by step."""

    subject: Any
    real: dict[int, Any]
    fake: dict[int, Any]


def run(config: Config, rows: Record) -> None:
    """Fit each ratio to each model, guided or not, and measure what it keeps at the end, and early."""
    first, *others = config.updates
    kinds = [(first, False), *([(first, True)] if config.guided else []), *((each, False) for each in others)]
    todo = {
        f"{updates} updates, {'guided, ' if guided else ''}ratio {seed}": (updates, guided, seed)
        for updates, guided in kinds
        for seed in config.ratios
    }
    judges = cache(partial(_judges, config, rows.progress))

    @cache
    def material(updates: int, guided: bool) -> _Material:
        return _material(config, judges(), updates, material(updates, False) if guided else None, rows.progress)

    for name, (updates, guided, seed) in rows.todo(todo):
        row = _one_ratio(config, material(updates, guided), seed, rows.progress)
        rows.add(name, {"updates": updates, "guided": guided} | row)


def _judges(config: Config, progress: bool | None) -> Any:
    """Return a `Subject` that has no model yet."""
    whole, options = parts(config.data), dict[str, Any](judged=config.judged, second=config.second)
    split = {
        part: Labelled(shrink(whole[part].x, config.size).astype(np.float32), whole[part].label)
        for part in ("ratio", "features", "judge", "test")
    }
    effort = Effort(config.pool, config.steps, config.epochs)
    return subject_of(f"{config.data}-{config.seed}", split, effort, **options, width=16, progress=progress)


def _material(config: Config, judges: Any, updates: int, plain: _Material | None, progress: bool | None) -> _Material:
    """Return the pool of a model; if guided, by a discriminator of the plain model's own pool, with other ids."""
    features, real = judges.look.features, judges.split["ratio"]
    model = load_diffusion(config.data, config.size, config.seed, updates, steps=config.sampler)
    early, start = (config.early, 0) if plain is None else ((), config.pool)
    if plain is not None:
        fake = Labelled(plain.subject.pool, plain.subject.labels)
        model = fit_guide(model, real, fake, steps=config.guided, seed=config.seed)
    pools, labels = make_pool(model, config.pool, early, start=start, progress=progress)
    seen = {step: see(features, noisy_previews(model, real, step)) for step in sorted(early)}
    seen[config.sampler] = see(features, real.x)
    fakes = {step: see(features, images) for step, images in pools.items()}
    return _Material(swap_pool(judges, model, pools[config.sampler], labels), seen, fakes)


def _cross_fit(real: Any, fake: Any, *, steps: int, seed: int, progress: bool | None = None) -> tuple[Any, float]:
    """Score each half of a pool with a ratio that was fitted on the other half and on all real samples.

    A network says anything of an image unlike all others, and one huge ratio is most of every average. So features and
    log-ratios are cut off where 999 of 1000 real samples end: no image is more real than these. Real and fake samples
    are features `(n, k)`. Returned are log-ratios `(n,)`, and the mean held-out log-loss of the two fits.
    """
    ends = np.quantile(real, (0.001, 0.999), axis=0).astype(real.dtype)
    real, fake, half = np.clip(real, *ends), np.clip(fake, *ends), np.arange(len(fake)) % 2
    options: Any = {"steps": steps, "batch_size": 256, "held_out": 0.2, "progress": progress}
    scores, losses = np.empty(len(fake)), []
    for mine in (0, 1):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "held-out log-loss .* is worse than chance")  # early previews are alike
            start = derive(seed, "half", mine) % 2**32
            ratio = refit(real, fake[half != mine], Network(width=96, waves=0), seed=start, **options)
        top = np.quantile(np.asarray(ratio(real), dtype=np.float64), 0.999)
        losses.append(float(ratio.report.log_loss))
        scores[half == mine] = np.minimum(np.asarray(ratio(fake[half == mine]), dtype=np.float64), top)
    return scores, float(np.mean(losses))


def _one_ratio(config: Config, given: _Material, seed: int, progress: bool | None) -> dict[str, Any]:
    subject = given.subject
    options: Any = {"steps": config.steps, "seed": seed, "progress": progress}
    fits = {step: _cross_fit(given.real[step], given.fake[step], **options) for step in given.fake}
    final, log_loss = fits.pop(config.sampler)
    cells = distances(subject, final, [1 / rate for rate in config.rates], constants=("class",))["class"]
    row: dict[str, Any] = {"log_loss": log_loss, "cells": cells}
    if seed == config.ratios[0]:
        row["neighbours"] = neighbour_cells(subject, final, config.rates, "class", config.neighbours)
        row |= sheet(subject, final, "class", config.shown) if config.shown else {}
    return row | _early(config, subject, final, fits) if fits else row


def _early(config: Config, subject: Any, final: Any, fits: dict[int, tuple[Any, float]]) -> dict[str, Any]:
    """Return the distance with and without early rejection at equal cost: value, gain and its standard error."""
    labels, plans = subject.labels, dict[tuple[str, float], tuple[Any, list[Any]]]()
    for cost in config.costs:
        plans["end", cost] = Stages.fit([final], [cost], groups=labels), [final]
        for step in config.early:
            seen, share = [fits[step][0], final], (2 * step + 1) / (2 * config.sampler - 1)
            plans[str(step), cost] = plan_stages(seen, share, cost, groups=labels, slack=config.slack), seen
    curve, lines = _jackknife(subject, list(plans.values())), list(plans)
    cells: dict[str, Any] = {name: {} for name in ("end", *map(str, config.early))}
    for line, ((name, cost), (stages, seen)) in enumerate(plans.items()):
        gain = curve.difference(lines.index(("end", cost)), line)
        cells[name][f"{cost:g}"] = {
            "value": float(curve.value[line]),
            "error": float(curve.standard_error[line]),
            "gain": [gain.value, gain.standard_error],
            "budgets": list(stages.budgets),
            "kl": divergence_left(stages, seen, labels),
        }
    agree = {str(step): float(np.corrcoef(scores, final)[0, 1]) for step, (scores, _) in fits.items()}
    return {"early": cells, "correlation": agree, "early_log_loss": {str(s): loss for s, (_, loss) in fits.items()}}


def _jackknife(subject: Any, plans: Sequence[tuple[Any, list[Any]]]) -> Any:
    """Return distances of the pool, weighted by each plan; without each group of images all constants are new."""
    judge = next(iter(subject.spread))
    real, fake = subject.truth[judge], subject.spread[judge]
    parts = [group_labels(len(x), seed=0) for x in (real, fake)]

    def weights(stay: Any) -> Any:
        labels, looks = subject.labels[stay], [[x[stay] for x in seen] for _, seen in plans]
        again = [type(s).fit(seen, s.budgets, groups=labels) for (s, _), seen in zip(plans, looks, strict=True)]
        return np.stack([np.exp(s(seen, labels)) for s, seen in zip(again, looks, strict=True)])

    # at finite n a distance is too large, the more so the fewer are kept: the values are for infinitely many images
    curve = frechet_curve(real=real, fake=fake, weights=weights(np.ones(len(fake), bool)))
    left_out = []
    for group in range(GROUPS):
        stays = [part != group for part in parts]
        left_out.append([frechet(real=real[stays[0]], fake=fake[stays[1]], weights=w) for w in weights(stays[1])])
    return Curve.from_groups(curve.value, np.asarray(left_out))


def _models(record: Record) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the ratios of each model, by what the model is called."""
    rows: dict[str, list[dict[str, Any]]] = {}
    size, data = record.config["size"], DATA.get(record.config["data"], record.config["data"])
    for row in record.rows:
        about = f"EDM of {data}, {size}x{size}, {row['updates']:,} updates{', guided' if row['guided'] else ''}"
        rows.setdefault(about, []).append(row)
    return rows


def table(record: Record) -> str:
    """Return the table of each model beside the paper's, and what early rejection gains at equal cost."""
    rates, parts = record.config["rates"], []
    head = ["1", *(f"{rate:g}" for rate in rates)]

    def paper(*keys: str) -> list[str]:
        cells = (PAPER["rows"].get(rate, {}) for rate in head)
        return [" / ".join(f"{cell[key]:.4g}" for key in keys if cell) for cell in cells]

    for title, ratios in _models(record).items():
        parts += [f"{title}; held-out log-loss of the ratio {ratios[0]['log_loss']:.3f}"]
        for judge in ratios[0]["cells"]:
            lines = [
                [f"{LOOKS[rule].label}, ratio {seed}", *(_distance(row["cells"][judge][key]) for key in keys)]
                for row, seed in zip(ratios, record.config["ratios"], strict=False)
                for rule, keys in _rules(record)
            ]
            lines += [["the paper: FID", *paper("fid")]]
            parts += [text_table([f"Fréchet distance by {JUDGES[judge]}", *head], lines)]
        near, metrics = ratios[0]["neighbours"], ("precision", "recall")
        lines = [
            [
                LOOKS[rule].label,
                *(" / ".join(f"{100 * near[key][metric][0]:.1f}" for metric in metrics) for key in keys),
            ]
            for rule, keys in _rules(record)
        ]
        lines += [["the paper, CIFAR-10", *paper(*metrics)]]
        parts += [text_table([f"precision / recall, %, k = 5, of {near['size']:,}", *head], lines)]
        parts += [_early_table(record, ratios)] if "early" in ratios[0] else []
    return "\n\n".join(parts)


def _rules(record: Record) -> list[tuple[str, list[str]]]:
    """Return both rules with the keys of their cells."""
    return [(rule, cell_keys(rule, record.config["rates"])) for rule in ("obrs", "drs")]


def _distance(cell: list[float]) -> str:
    """Return a distance with the standard error of its change."""
    return f"{cell[0]:.3f} ± {cell[2]:.3f}" if cell[2] else f"{cell[0]:.3f}"


def _early_table(record: Record, ratios: list[dict[str, Any]]) -> str:
    """Return the distance at each cost, rejected at the end, and early, with the gain and its standard error."""
    costs, lines = [f"{cost:g}" for cost in record.config["costs"]], []
    for row, seed in zip(ratios, record.config["ratios"], strict=False):
        lines.append([f"ratio {seed}, at the end", *(f"{row['early']['end'][cost]['value']:.3f}" for cost in costs)])
        for step in record.config["early"]:
            cells = (row["early"][str(step)][cost] for cost in costs)
            gains = [f"{c['value']:.3f} {c['gain'][0]:+.3f}±{c['gain'][1]:.3f}" for c in cells]
            lines.append([f"  early at {step}", *gains])
    agree = ", ".join(f"{step}: {value:.2f}" for step, value in ratios[0]["correlation"].items())
    about = f"gain ± its standard error; correlation of early and last log-ratios by step: {agree}"
    return text_table(["full runs per kept one", *costs], lines, gap=1) + f"\n{about}"


def figure(record: Record) -> Any:
    """Draw the sheet of the first model; for each the distance against acceptance, and against evaluations."""
    models = _models(record)
    drawn, below = sheet_canvas(record.rows[0], next(iter(models)), 0.6 + 3.8 * len(models))
    panels = below.subplots(len(models), 2, squeeze=False)
    for (title, ratios), (left, right) in zip(models.items(), panels, strict=True):
        cells = [next(iter(row["cells"].values())) for row in ratios]
        for rule in ("drs", "obrs"):
            for at, one in enumerate(cells):
                draw_rates(left, record.config["rates"], one, rule, LOOKS[rule], **(_FAINT if at else {}))
        base = cells[0]["model 1"][0]
        left.axhline(base, color="0.5", lw=1)
        left.set(title=title, ylabel="Fréchet distance", ylim=(None, 1.1 * base))
        left.legend(loc="lower left")
        if "early" in ratios[0]:
            _draw_costs(right, record, ratios)
        else:
            right.set_axis_off()
    text = "Distances to test images, on the features of another classifier, not FID; a line per ratio, the first one "
    text += "strong. Bars: 95 % intervals of the change from the model, and of the gain. Early: previews are rejected "
    text += "before the sampler has finished. What lies above the frame is not drawn."
    return caption(drawn, record.experiment, text)


def _draw_costs(axes: Any, record: Record, ratios: list[dict[str, Any]]) -> None:
    costs, step = record.config["costs"], str(record.config["early"][0])
    for plan, look in (
        ("end", Look("OBRS at the end", LOOKS["obrs"].colour, "-", "o")),
        (step, Look(f"early, at step {step}, and at the end", PALETTE["red"], "-", "D")),
    ):
        for at, row in enumerate(ratios):
            cells = [row["early"][plan][f"{cost:g}"] for cost in costs]
            reach = None if plan == "end" else 1.96 * numbers([cell["gain"][1] for cell in cells])
            line: Any = {"color": look.colour, "marker": look.marker, "ms": 4, "lw": 1.5, "label": look.label}
            axes.errorbar(costs, numbers([cell["value"] for cell in cells]), reach, **line | (_FAINT if at else {}))
    axes.set(xlabel="network evaluations per kept image, in full runs", ylabel="Fréchet distance")
    axes.set_title("rejecting early at equal cost")
    tidy(axes, "upper right")
