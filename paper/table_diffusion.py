"""OBRS on a diffusion model: distance, precision and recall against the acceptance rate; and rejecting early.

The paper has EDM on CIFAR-10 with the classifier of Kim et al. Here are small EDMs of Fashion-MNIST at 14x14 that are
committed, `image_diffusion`: one that was trained shortly, and one that was trained until it hardly got better. The
ratio is a network on the features of a classifier. Each half of the pool is scored by a ratio that was fitted on the
other half, so that no image has a ratio that saw it. The parts of the data are those of `image_gans.parts`: generator,
ratio, features and judge share no image, and the real images of every distance are the test set. The model is asked for
a class, so there is one constant per class. Where a model has no classes, they are those that the classifier sees; and
without labels there is one constant.

Early rejection goes beyond the paper, whose outlook it is. Heun's sampler computes D(x; sigma) at every noise level:
the image that is expected, a preview, which costs nothing. The ratio of a noise level, a network of its own, compares
previews with those of real images to which as much noise was added. What it rejects is not finished, which saves
evaluations of the network; what it keeps is decided again at the end, see `obrs.rules.Stages`. The budget is split by
the profile of the ratios alone, no judge is asked.

`cifar` has the EDM of CIFAR-10 that `runs/train_cifar.py` trains, and its early checkpoint. `paper` is the paper's
size, for a source of your own: `--source FOLDER` is a saved pipeline of diffusers, or a folder of images; `--real
FILE.npz` holds train and test, images in [-1, 1], and maybe train_labels and test_labels. Neither shows previews, so
nothing is rejected early there.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from obrs.errors import InputError

from .image_names import JUDGES
from .image_sheet import draw_sheet
from .record import Record, numbers
from .style import PALETTE, canvas, caption, look, tidy

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
_DRAWN_COST = 2.0


@dataclass(frozen=True)
class Config:
    """What to measure.

    Args:
        data: The data set, a key of `image_gans.PARTS`; with `real` only a name.
        size: Pixels a side.
        seed: Of the models and of the classifiers.
        updates: How long the models were trained, one for each; with a `source` of no account.
        home: A folder with models that `image_diffusion` has trained; "" for those that are committed.
        source: A folder with a diffusers pipeline, or with images, instead of such a model.
        real: An .npz of real images, instead of `data`.
        ratios: Seeds of ratios.
        rates: Shares of the proposals that are kept.
        pool: Proposals.
        neighbours: How many of them, and of real images, precision and recall are for.
        judged: Proposals, and real images, that the second judge looks at; 0 leaves it out.
        second: The second judge; the only one if the data have no labels.
        sampler: Steps of the sampler, also of a pipeline.
        early: Where to reject early: a step of the sampler, "12", or two of them, "9+12". The first one is also run
            with fresh proposals.
        costs: What a kept image may cost, in full runs of the sampler.
        slack: What may be given up of what a split gains, for one that rejects less early; see `early.plan_stages`.
            It was chosen on the first ratio, the others confirm it.
        drawn: Fresh proposals that are really rejected early; 0 for none.
        shown: Images on the sheet.
        steps, epochs: See `image_ratios.Effort`.
    """

    data: str = "fashion_mnist"
    size: int = 14
    seed: int = 0
    updates: tuple[int, ...] = (1_000, 8_000)
    home: str = ""
    source: str = ""
    real: str = ""
    ratios: tuple[int, ...] = (0, 1, 2)
    rates: tuple[float, ...] = (0.75, 0.5, 0.25)
    pool: int = 10_000
    neighbours: int = 10_000
    judged: int = 4_000
    second: str = "efficientnet_lite0"
    sampler: int = 18
    early: tuple[str, ...] = ("12", "9", "14", "12+14")
    costs: tuple[float, ...] = (1.5, 2.0, 3.0, 4.0, 6.0)
    slack: float = 0.25
    drawn: int = 4_000
    shown: int = 42
    steps: int = 800
    epochs: int = 8

    def __post_init__(self) -> None:
        if not self.ratios or not self.rates or not self.updates:
            raise InputError("table-diffusion needs at least one ratio, one rate and one model")
        if not all(0 < rate < 1 for rate in self.rates):
            raise InputError(f"rates must be between 0 and 1, got {list(self.rates)}; 1 is always there")
        if not all(cost > 1 for cost in self.costs):
            raise InputError(f"costs must be above 1, in full runs per kept image, got {list(self.costs)}")
        if min(self.pool, self.neighbours, self.steps, self.epochs, self.size) < 1 or self.sampler < 2:
            raise InputError("pool, neighbours, steps, epochs and size must be at least 1, sampler at least 2")
        if self.source and self.early:
            raise InputError("a pipeline or a folder shows no previews: say --early '' to reject at the end only")
        for plan in self.early:
            if not 1 <= len(_steps(plan)) <= 2 or any(not 0 < step < self.sampler for step in _steps(plan)):
                raise InputError(f"early must be steps from 1 to {self.sampler - 1}, such as 12 or 9+12, got {plan!r}")


def _steps(plan: str) -> tuple[int, ...]:
    """Return the steps of "9+12"."""
    try:
        found = tuple(int(part) for part in plan.split("+"))
    except ValueError:
        raise InputError(f"early must be steps of the sampler, such as 12 or 9+12, got {plan!r}") from None
    if list(found) != sorted(set(found)):
        raise InputError(f"early steps must ascend, got {plan!r}")
    return found


_SMOKE = Config(
    data="digits", size=8, updates=(2_500,), ratios=(0,), rates=(0.5,), pool=600, neighbours=200, judged=0, sampler=6,
    early=("4",), costs=(2.0,), drawn=40, shown=12, steps=30, epochs=1,
)  # fmt: skip
_PAPER = Config(
    data="cifar10", size=32, source="edm-cifar10", real="cifar10.npz", ratios=(0,), pool=200_000, judged=200_000,
    second="inception_v3", early=(), drawn=0, steps=10_000,
)  # fmt: skip
_CIFAR = Config(
    data="cifar10", size=32, updates=(3836, 15278), pool=3_000, neighbours=3_000, judged=3_000, early=("12",),
    drawn=500, epochs=20,
)  # fmt: skip
PRESETS = {"smoke": _SMOKE, "default": Config(), "cifar": _CIFAR, "paper": _PAPER}


class _Material(NamedTuple):
    """What all ratios of a model share: the model (None if from elsewhere), the judged pool, and features by step."""

    model: Any
    subject: Any
    constant: str
    last: int
    real: dict[int, Any]
    fake: dict[int, Any]


def run(config: Config, rows: Record) -> None:
    """Fit each ratio to each model, and measure what it keeps at the end, and early."""
    todo: dict[str, tuple[int, int | None]] = {}
    for updates in (0,) if config.source else config.updates:
        todo |= {_named(updates, f"ratio {seed}"): (updates, seed) for seed in config.ratios}
    if config.early and config.drawn:
        todo[_named(config.updates[0], "drawn")] = (config.updates[0], None)
    judges, made = None, dict[int, _Material]()
    for name, (updates, seed) in rows.todo(todo):
        judges = judges or _prepare(config, rows.progress)
        if updates not in made:
            made[updates] = _material(config, judges, updates, rows.progress)
        if seed is None:
            found = _drawn(config, made[updates], rows.progress)
        else:
            found = _one_ratio(config, made[updates], seed, rows.progress)
        rows.add(name, {"updates": updates} | found)


def _named(updates: int, row: str) -> str:
    return f"{updates} updates, {row}" if updates else row


def _prepare(config: Config, progress: bool | None) -> dict[str, Any]:
    """Return the fields of a `Subject` that all models share: the data, the classifier of ratios, and the judges."""
    from .image_diffusion import shrunk
    from .image_gans import Labelled, parts
    from .image_ratios import Effort, find_judges, fit_look, seen_by

    if config.real and not config.real.endswith(".npz"):
        raise InputError(f"real must be an .npz with train and test, got {config.real}")
    whole = parts(Path(config.real).stem, str(Path(config.real).parent)) if config.real else parts(config.data)
    split = {
        key: Labelled(shrunk(whole[key].x, config.size).astype(np.float32), whole[key].label)
        for key in ("ratio", "features", "judge", "test")
    }
    if config.source:  # a wrong one is noticed now, not after hours
        made, wanted = (x.shape[1:] for x in (_outside(config, split, 1).images, split["test"].x))
        if made != wanted:
            raise InputError(f"{config.source} makes images of shape {made}, the real ones have {wanted}")
    effort = Effort(config.pool, config.steps, config.epochs)
    classifier, seconds = fit_look(split, effort, config.seed, width=16, progress=progress)
    known = "" if config.real or config.size != 32 else config.data
    options: Any = {"judged": config.judged, "second": config.second, "known": known, "progress": progress}
    judges = find_judges(split, effort, config.seed, **options)
    truth = seen_by(judges, split["test"].x, config.judged)
    return {"split": split, "look": classifier, "seconds": seconds, "judges": judges, "truth": truth}


def _material(config: Config, shared: dict[str, Any], updates: int, progress: bool | None) -> _Material:
    from .image_diffusion import load_diffusion, make_pool, noisy_previews
    from .image_ratios import Subject, seen_by

    split, classifier = shared["split"], shared["look"]
    steps = sorted({step for plan in config.early for step in _steps(plan)})
    if config.source:
        model, pool = None, _outside(config, split, config.pool)
    else:
        which = config.data, config.size, config.seed, updates
        model = load_diffusion(*which, home=config.home, steps=config.sampler)
        pool = make_pool(model, config.pool, steps, progress=progress)
    labels = pool.labels if pool.labels is not None or classifier is None else classifier.predict(pool.images)
    subject = Subject(
        name=f"{config.data}-{config.size}",
        seed=config.seed,
        source=model,
        pool=pool.images,
        labels=np.zeros(len(pool.images), np.int64) if labels is None else np.asarray(labels),
        spread=seen_by(shared["judges"], pool.images, config.judged),
        shares={},
        **shared,
    )
    real = {step: _features(classifier, noisy_previews(model, split["ratio"], step)) for step in steps}
    fake = {step: _features(classifier, images) for step, images in pool.early.items()}
    real[config.sampler] = _features(classifier, split["ratio"].x)
    fake[config.sampler] = _features(classifier, pool.images)
    return _Material(model, subject, "global" if labels is None else "class", config.sampler, real, fake)


def _outside(config: Config, split: dict[str, Any], n: int) -> Any:
    """Return a pool from a folder of images, or from a pipeline of diffusers that was saved there."""
    from obrs.adapters import from_pipeline
    from obrs.metrics.images import read_images

    from .image_diffusion import SEED, Pool

    home = Path(config.source).expanduser()
    if not home.is_dir():
        wanted = "a folder of images, or one that pipe.save_pretrained(FOLDER) of diffusers has written"
        raise InputError(f"source must be {wanted}, got {config.source}")
    if not (home / "model_index.json").exists():
        images = read_images(home)
        if images.n < n:
            raise InputError(f"{home} has {images.n} images, the pool needs {n}; say --pool {images.n}")
        return Pool(np.asarray(images.floats(0, n)), None, {})
    from diffusers import DiffusionPipeline

    pipe, label = DiffusionPipeline.from_pretrained(home), split["features"].label
    pipe.set_progress_bar_config(disable=True)
    known = signature(pipe).parameters
    if "class_labels" in known and label is None:
        raise InputError(f"{home} makes images of classes, and the real images have no labels to tell how many")
    propose = from_pipeline(
        pipe,
        arguments={"num_inference_steps": config.sampler} if "num_inference_steps" in known else None,
        conditions=range(int(label.max()) + 1) if "class_labels" in known else None,
        argument="class_labels",
        batch_size=200,
        seed=SEED,
    )
    made = [propose(np.arange(start, min(start + 200, n))) for start in range(0, n, 200)]
    pairs = [batch if isinstance(batch, tuple) else (batch, None) for batch in made]
    labels = None if pairs[0][1] is None else np.concatenate([y.cpu().numpy() for _, y in pairs])
    return Pool(np.concatenate([x.cpu().numpy() for x, _ in pairs]), labels, {})


def _features(classifier: Any, images: Any) -> Any:
    """Return what a ratio sees of images: the features of a classifier, or without one those that need no labels."""
    from obrs.metrics.features import extract

    from .image_ratios import see

    if classifier is None:
        return np.asarray(extract(np.asarray(images), "gradients", progress=False), dtype=np.float32)
    return see(classifier.features, images)


class _Ratio(NamedTuple):
    """A ratio of features, and its held-out log-loss."""

    log_ratio: Callable[[Any], Any]
    log_loss: float


def _fit_ratio(real: Any, fake: Any, *, steps: int, seed: int, progress: bool | None = None) -> _Ratio:
    """Fit p/q of features.

    A network says anything of an image unlike all others, and one huge ratio is most of every average. So features and
    log-ratios are cut off where 999 of 1000 real samples end: no image is more real than these.

    Args:
        real, fake: Features of real and fake samples, `(n, k)`; with previews, all of one noise level.
        steps: Updates.
        seed: Decides the network.
        progress: As everywhere.
    """
    from obrs.ratios.refit import Network, refit

    ends = np.quantile(real, (0.001, 0.999), axis=0).astype(real.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "held-out log-loss .* is worse than chance")  # so early previews are alike
        found = refit(
            np.clip(real, *ends),
            np.clip(fake, *ends),
            Network(width=96, waves=0),
            steps=steps,
            batch_size=256,
            held_out=0.2,
            seed=seed,
            progress=progress,
        )

    def score(x: Any) -> Any:
        return np.asarray(found(np.clip(x, *ends)), dtype=np.float64)

    top = np.quantile(score(real), 0.999)
    return _Ratio(lambda x: np.minimum(score(x), top), float(found.report.log_loss))


def _cross_fitted(real: Any, fake: Any, *, steps: int, seed: int, progress: bool | None = None) -> tuple[Any, float]:
    """Score each half of a pool with a ratio that was fitted on the other half and on all real samples.

    The arguments are those of `_fit_ratio`. Returns log-ratios `(n,)`, and the mean held-out log-loss of the two fits.
    """
    from obrs.fitting.seeds import derived

    half = np.arange(len(fake)) % 2
    scores, losses = np.empty(len(fake)), []
    for mine in (0, 1):
        own = derived(seed, "half", mine) % 2**32
        ratio = _fit_ratio(real, fake[half != mine], steps=steps, seed=own, progress=progress)
        losses.append(ratio.log_loss)
        scores[half == mine] = ratio.log_ratio(fake[half == mine])
    return scores, float(np.mean(losses))


def _one_ratio(config: Config, material: _Material, seed: int, progress: bool | None) -> dict[str, Any]:
    from .image_ratios import distances, neighbour_cells, sheet

    subject, last, constant = material.subject, material.last, material.constant
    budgets = [1 / rate for rate in config.rates]
    final, log_loss = _cross_fitted(
        material.real[last], material.fake[last], steps=config.steps, seed=seed, progress=progress
    )
    cells = distances(subject, final, budgets, constants=(constant,))[constant]
    row: dict[str, Any] = {"log_loss": log_loss, "constant": constant, "cells": cells}
    if seed == config.ratios[0]:
        row["neighbours"] = neighbour_cells(subject, final, config.rates, constant, config.neighbours)
        if config.shown:
            row |= sheet(subject, final, constant, config.shown)
    if config.early:
        row |= _early(config, material, final, seed, progress)
    return row


def _early(config: Config, material: _Material, final: Any, seed: int, progress: bool | None) -> dict[str, Any]:
    """Return the distance with and without early rejection at equal cost: value, gain and its standard error."""
    from obrs.rules import Stages

    from .early import divergence_left, plan_stages

    early, losses = {}, {}
    for step in (step for step in material.fake if step != material.last):
        both = material.real[step], material.fake[step]
        early[step], losses[str(step)] = _cross_fitted(*both, steps=config.steps, seed=seed, progress=progress)
    groups = material.subject.labels if material.constant == "class" else None
    plans: list[tuple[str, float, Any, list[Any]]] = []
    for cost in config.costs:
        plans.append(("end", cost, Stages.fit([final], [cost], groups=groups), [final]))
        for plan in config.early:
            looks = [*(early[step] for step in _steps(plan)), final]
            shares = [_share(config, step) for step in _steps(plan)]
            plans.append((plan, cost, plan_stages(looks, shares, cost, groups=groups, slack=config.slack), looks))
    found = _jackknife(material.subject, [(stages, looks) for _, _, stages, looks in plans], groups)
    cells: dict[str, Any] = {name: {} for name in ("end", *config.early)}
    plain = 0
    for line, (name, cost, stages, looks) in enumerate(plans):
        plain = line if name == "end" else plain
        gain = found.difference(plain, line)
        cells[name][f"{cost:g}"] = {
            "value": float(found.value[line]),
            "error": float(found.standard_error[line]),
            "gain": [gain.value, gain.standard_error],
            "budgets": list(stages.budgets),
            "kl": divergence_left(stages, looks, "kl", groups),
        }
    agree = {str(step): float(np.corrcoef(scores, final)[0, 1]) for step, scores in early.items()}
    return {"early": cells, "correlation": agree, "early_log_loss": losses}


def _share(config: Config, step: int) -> float:
    """Return the part of all evaluations of the network that is done when a step has its preview."""
    return (2 * step + 1) / (2 * config.sampler - 1)


def _jackknife(subject: Any, plans: Sequence[tuple[Any, list[Any]]], groups: Any) -> Any:
    """Return distances of the pool, weighted by each plan; without each group of images all constants are new."""
    from obrs.metrics.curve import GROUPS, Curve, group_labels
    from obrs.metrics.frechet import frechet, frechet_curve

    judge = next(iter(subject.spread))
    real, fake = subject.truth[judge], subject.spread[judge]
    n = len(fake)
    parts = [group_labels(len(x), seed=0) for x in (real, fake)]

    def weights(stay: Any) -> Any:
        own = None if groups is None else groups[:n][stay]
        looks = [[x[:n][stay] for x in seen] for _, seen in plans]
        again = [type(s).fit(seen, s.budgets, groups=own) for (s, _), seen in zip(plans, looks, strict=True)]
        return np.stack([np.exp(s(seen, own)) for s, seen in zip(again, looks, strict=True)])

    # at finite n a distance is too large, the more so the fewer are kept: the values are for infinitely many images
    curve = frechet_curve(real=real, fake=fake, weights=weights(np.ones(n, bool)))
    left_out = []
    for group in range(GROUPS):
        stays = [part != group for part in parts]
        left_out.append([frechet(real=real[stays[0]], fake=fake[stays[1]], weights=w) for w in weights(stays[1])])
    return Curve.from_groups(curve.value, np.asarray(left_out))


def _drawn(config: Config, material: _Material, progress: bool | None) -> dict[str, Any]:
    """Really reject fresh proposals early, with constants of the pool; return the cost, its forecast, the distance."""
    from obrs.draws import accept
    from obrs.metrics.frechet import frechet_curve

    from .early import plan_stages
    from .image_diffusion import sample_early

    steps, subject = _steps(config.early[0]), material.subject
    fits = [  # no fresh image is in them
        _fit_ratio(
            material.real[step], material.fake[step], steps=config.steps, seed=config.ratios[0], progress=progress
        )
        for step in (*steps, material.last)
    ]
    looks = [fit.log_ratio(material.fake[step]) for fit, step in zip(fits, (*steps, material.last), strict=True)]
    groups = subject.labels if material.constant == "class" else None
    shares = [_share(config, step) for step in steps]
    stages = plan_stages(looks, shares, _DRAWN_COST, groups=groups, slack=config.slack)

    def decide(seen: Sequence[Any], labels: Any, ids: Any) -> Any:
        own = [fit.log_ratio(_features(subject.look, x)) for fit, x in zip(fits, seen, strict=False)]
        return accept(stages(own, None if groups is None else labels), ids, seed=1)

    ids = np.arange(config.pool, config.pool + config.drawn)
    kept = sample_early(material.model, ids, steps, decide)
    judge = next(iter(subject.judges))
    fake = subject.judges[judge](kept.images)
    found = frechet_curve(real=subject.truth[judge], fake=fake, weights=np.ones((1, len(fake))))
    return {
        "plan": config.early[0],
        "kept_early": len(kept.ids),
        "cost": kept.evaluations / (2 * config.sampler - 1) / len(kept.ids),
        "forecast": stages.cost(shares),
        "value": float(found.value[0]),
        "error": float(found.standard_error[0]),
    }


def table(record: Record) -> str:
    """Return the table of each model beside the paper's, and what early rejection gains at equal cost."""
    lines = []
    for title, ratios in _models(record).items():
        lines += [f"{title}; held-out log-loss of the ratio {ratios[0]['log_loss']:.3f}", ""]
        for judge, called in JUDGES.items():
            if judge in ratios[0]["cells"]:
                lines += [f"Fréchet distance, judged by {called}; ± one standard error of the change"]
                lines += [*_distances(record, ratios, judge), ""]
        lines += [*_neighbours(record, ratios[0]["neighbours"]), ""]
        if "early" in ratios[0]:
            lines += [*_render_early(record, ratios), ""]
    drawn = [row for row in record.rows if "kept_early" in row]
    lines += [
        f"{row['row']} anew, early at {row['plan']}: {row['kept_early']:,} kept at {row['cost']:.3f} runs each "
        f"(forecast {row['forecast']:.3f}), distance {row['value']:.3f} ± {row['error']:.3f}"
        for row in drawn
    ]
    return "\n".join(lines).rstrip()


def _models(record: Record) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the ratios of each model, by what the model is called."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in record.rows:
        if "cells" in row:
            size, data = record.config["size"], record.config["data"]
            about = f"{data} {size}x{size}, a model after {row['updates']:,} updates"
            found.setdefault(about if row["updates"] else f"images of {data}", []).append(row)
    return found


def _distances(record: Record, ratios: list[dict[str, Any]], judge: str) -> list[str]:
    """Return a line for each ratio and rule, and the paper's FID."""
    rates = record.config["rates"]
    lines = [f"{'acceptance':22}" + "".join(f"{rate:>16g}" for rate in (1, *rates))]
    for row, seed in zip(ratios, record.config["ratios"], strict=False):
        for rule in ("obrs", "drs"):
            cells = [row["cells"][judge][f"{rule} {1 / rate:g}"] for rate in rates]
            said = "".join(f"{f'{value:.3f} ±{error:.3f}':>16}" for value, _, error in cells)
            base = row["cells"][judge]["model 1"][0]
            lines.append(f"  {f'{look(rule).label}, ratio {seed}':20}{base:>16.3f}" + said)
    if judge == next(iter(ratios[0]["cells"])):
        lines.append(_papers("the paper: FID", rates, lambda cell: f"{cell['fid']}"))
    return lines


def _neighbours(record: Record, near: dict[str, Any]) -> list[str]:
    rates = record.config["rates"]
    lines = [f"precision / recall in %, k = 5, recall of {near['size']:,} images"]
    lines += [f"{'acceptance':22}" + "".join(f"{rate:>16g}" for rate in (1, *rates))]
    for rule in ("obrs", "drs"):
        named = ["model 1", *(f"{rule} {1 / rate:g}" for rate in rates)]
        cells = [f"{100 * near[key]['precision'][0]:.1f} / {100 * near[key]['recall'][0]:.1f}" for key in named]
        lines.append(f"  {look(rule).label:20}" + "".join(f"{cell:>16}" for cell in cells))
    return [
        *lines,
        _papers("the paper, CIFAR-10", rates, lambda cell: f"{cell['precision']:.1f} / {cell['recall']:.1f}"),
    ]


def _papers(title: str, rates: Any, said: Callable[[Any], str]) -> str:
    """Return a line of the paper's table."""
    cells = (PAPER["rows"].get(f"{rate:g}") for rate in (1, *rates))
    return f"  {title:20}" + "".join(f"{said(cell) if cell else '':>16}" for cell in cells)


def _render_early(record: Record, ratios: list[dict[str, Any]]) -> list[str]:
    """Return the distance at each cost, rejected at the end, and early, with the gain and its standard error."""
    costs = [f"{cost:g}" for cost in record.config["costs"]]
    best = _chosen(record)
    lines = ["Fréchet distance at equal cost, and what rejecting early gains ± its standard error"]
    lines += [f"{'full runs per kept':22}" + "".join(f"{cost:>19}" for cost in costs)]
    for row, seed in zip(ratios, record.config["ratios"], strict=False):
        plain = [f"{row['early']['end'][cost]['value']:>19.3f}" for cost in costs]
        lines.append(f"  {f'ratio {seed}, at the end':20}" + "".join(plain))
        for plan in record.config["early"]:
            cells = (row["early"][plan][cost] for cost in costs)
            said = (f"{cell['value']:.3f} {cell['gain'][0]:+.3f}±{cell['gain'][1]:.3f}" for cell in cells)
            mark = "*" if plan == best else " "
            lines.append(f"  {mark} {'early at ' + plan:18}" + "".join(f"{cell:>19}" for cell in said))
    agree = ", ".join(f"{step}: {value:.2f}" for step, value in ratios[0]["correlation"].items())
    return [
        *lines,
        f"* chosen on the first ratio of all; correlation of early and last log-ratios by step: {agree}",
    ]


def _chosen(record: Record) -> str:
    """Return where to reject early, as the first row has it: what surely gains most, three standard errors off."""

    def sure(plan: str) -> float:
        return float(sum(gain - 3 * error for gain, error in (cell["gain"] for cell in first[plan].values())))

    first = record.rows[0]["early"]
    return str(max(record.config["early"], key=sure))


_ACROSS = 14  # images in a row of the sheet


def figure(record: Record) -> Any:
    """Draw the sheet of the first model; for each the distance against acceptance, and against evaluations."""
    models = _models(record)
    first = next(iter(models.values()))[0]
    high = 0.75 + (0.75 * -(-len(first["sheet"]) // _ACROSS) if "sheet" in first else 0)
    drawn = canvas(11, high + 0.6 + 3.8 * len(models))
    outer = drawn.subfigures(2, 1, height_ratios=[high, 0.6 + 3.8 * len(models)])
    if "sheet" in first:
        axes = outer[0].subplots()
        draw_sheet(axes, first["sheet"], first["shape"], first["kept"], across=_ACROSS)
        axes.set_title("proposals of the first model, kept (green) and rejected (red) at one half")
    for (title, ratios), (left, right) in zip(
        models.items(), outer[1].subplots(len(models), 2, squeeze=False), strict=True
    ):
        _draw_rates(left, record, ratios)
        left.set_title(title.split(", ")[-1])
        _draw_costs(right, record, ratios)
    said = (
        "Distances to test images, on the features of another classifier, not FID; a line per ratio, the first one "
        "strong. Bars: 95 % intervals of the change from the model, and of the gain. Early: previews are rejected "
        "before the sampler has finished. What lies above the frame is not drawn."
    )
    caption(drawn, record.experiment, said)
    return drawn


def _draw_rates(axes: Any, record: Record, ratios: list[dict[str, Any]]) -> None:
    rates = record.config["rates"]
    judge = next(iter(ratios[0]["cells"]))
    base = ratios[0]["cells"][judge]["model 1"][0]
    for rule in ("drs", "obrs"):
        for number, row in enumerate(ratios):
            cells = [[base, 0.0, 0.0], *(row["cells"][judge][f"{rule} {1 / rate:g}"] for rate in rates)]
            own = look(rule)
            axes.errorbar([1, *rates], numbers([c[0] for c in cells]), 1.96 * numbers([c[2] for c in cells]),
                          color=own.colour, ls=own.line, marker=own.marker, ms=4, lw=1.5, alpha=0.35 if number else 1,
                          label=own.label if not number else None)  # fmt: skip
    axes.axhline(base, color="0.5", lw=1)
    axes.invert_xaxis()
    axes.set(xlabel="acceptance rate", ylabel="Fréchet distance", ylim=(0, 1.6 * base))
    tidy(axes, "upper left")


def _draw_costs(axes: Any, record: Record, ratios: list[dict[str, Any]]) -> None:
    if "early" not in ratios[0]:
        axes.set_axis_off()
        return
    costs, best = record.config["costs"], _chosen(record)
    for number, row in enumerate(ratios):
        for plan, colour, marker, label in (
            ("end", look("obrs").colour, "o", "OBRS at the end"),
            (best, PALETTE["red"], "D", f"early, at step {best}, and at the end"),
        ):
            cells = [row["early"][plan][f"{cost:g}"] for cost in costs]
            reach = None if plan == "end" else 1.96 * numbers([cell["gain"][1] for cell in cells])
            axes.errorbar(costs, numbers([cell["value"] for cell in cells]), reach, color=colour, marker=marker, ms=4,
                          lw=1.5, alpha=0.35 if number else 1, label=None if number else label)  # fmt: skip
    axes.set(xlabel="network evaluations per kept image, in full runs", ylabel="Fréchet distance")
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
    axes.set_title("rejecting early at equal cost")
    tidy(axes, "upper right")
