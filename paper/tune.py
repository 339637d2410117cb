"""`obrs.tune` on models that had no part in its making: what it chose, and what a judge it never saw says of that.

For each model and budget `tune` chooses with its default judge: for images with labels a classifier of its own, for
images without labels EfficientNet-Lite0, for points KL on cells. What it chose is then measured once more, on fresh
proposals and on test images, by another judge. Where labels are there, that is EfficientNet-Lite0 at 64 pixels, which
is kept away from `tune` by `pretrained=()`: with it, `tune` would fit a probe on it, and it could not judge any more.
CIFAR-10 has a second one, the committed classifier, which is the only one where EfficientNet-Lite0 has judged before.
Real samples for `tune` are images that no model was trained on. CIFAR-10 has 10 000 of those, of which the judge would
get 1 818; there `tune` gets all 50 000 training images, as most users would give them. A VAE has no labels: both its
images and the real ones get those of a classifier that was fitted on the model's own training images.

Beside it, on the same fresh proposals: the paper's way (the critic trained further, one constant), the recipe of
version 0.2 (a network on a classifier's outputs, one constant per class), every candidate alone, and with the score
that was chosen, DRS and top-k. Models 0 to 2 of Fashion-MNIST and VAE 0 helped to find the recipes of `tune`: the claim
rests on others.
"""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import sqrt
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch

from obrs._text import text_table
from obrs.draws import normals
from obrs.errors import InputError
from obrs.fitting.seeds import derive, own_noise
from obrs.metrics.cells import Cells, principal_distance
from obrs.metrics.features import extract
from obrs.metrics.weightings import weightings
from obrs.models.classifier import Classifier, fit_classifier
from obrs.tuning import Recipe, tune

from .gan25 import SIGMA, TARGET, Settings, fit_gan, one_thread
from .image_diffusion import load_diffusion, shrink
from .image_gans import SEED, Labelled, load_gan, load_part, parts
from .image_ratios import Logit, committed_judge, propose, select_inputs
from .image_sheet import title
from .record import Checked, Numbers, Record, numbers
from .style import PALETTE, Look, canvas, caption, page_table, section, tidy

__all__ = ["PRESETS", "Config", "Vae", "figure", "markdown", "run", "table"]

_COMPONENTS = 64  # of the features of a judge
_LITE0, _COMMITTED = "EfficientNet-Lite0", "committed classifier"  # other judges
_BESIDE = ("paper", "outputs", "drs", "topk")  # what `tune` is set beside


@dataclass(frozen=True)
class Config(Checked):
    """What to measure.

    Claimed are models that had no part in any choice, by name. The others are those on which recipes were found, those
    of kinds that the claim is not about, and the digits, of which there are too few.
    """

    unchecked = ("claimed", "others", "seed")
    claimed: tuple[str, ...] = (
        *("fashion_mnist-3", "fashion_mnist-4", "fashion_mnist-5", "fashion_vae-1"),
        *("cifar10-gan-0", "cifar10-gan-1", "cifar10-gan-2"),
    )
    others: tuple[str, ...] = (
        *("fashion_mnist-0", "fashion_mnist-1", "fashion_mnist-2", "fashion_vae-0", "fashion_edm-1000"),
        *("fashion_edm-8000", "cifar10-plain-0", "gaussians", "digits-0"),
    )
    budgets: tuple[float, ...] = (2.0, 4.0)  # proposals per kept sample
    pool: int = 20_000  # proposals that `tune` compares; half as many are fitted on
    fresh: int = 8_000  # proposals that the other judge looks at, and at most as many test images
    seed: int = 0  # of `tune`


_SMOKE = Config(claimed=(), others=("gaussians",), budgets=(2.0,), pool=1000, fresh=1000)
PRESETS = {"smoke": _SMOKE, "default": Config()}


class Model(NamedTuple):
    """A model, what `tune` gets of it, and who judges the result."""

    real: Any  # samples that it was not trained on, with labels if it has labels
    propose: Any  # makes the proposals with these ids
    judges: Mapping[str, Callable[[Any], Numbers]]  # the other judges, from samples to features `(n, k)`
    test: Any
    critic: Any = None
    distance: Any = None  # of real and fake features with lines of weights, if it is not Fréchet's


def run(config: Config, rows: Record) -> None:
    """Tune every model, and measure what was chosen."""
    claimed = dict.fromkeys(config.claimed, True) | dict.fromkeys(config.others, False)
    for name, is_claimed in rows.todo(claimed):
        rows.add(name, {"claimed": is_claimed} | _one_model(config, name))


def _one_model(config: Config, name: str) -> dict[str, Any]:
    begun = process_time()
    with one_thread():
        model = _gaussians() if name == "gaussians" else _image_model(name)
        facts: dict[str, Any] = {"pool": config.pool, "real": len(_samples(model.real))}
        options: Any = {"critic": model.critic, "pretrained": (), "pool": config.pool, "seed": config.seed}
        try:
            tuned = tune(model.real, model.propose, budget=config.budgets[0], **options, progress=False)
        except InputError as error:
            return facts | {"refused": str(error)}
        search = tuned.search
        fresh = _fresh(model, search, config.fresh)
        results = [tuned, *map(search.tune, config.budgets[1:])]
        cells = {f"{each.budget:g}": _cell(each, *fresh) for each in results}
    facts |= {"fresh": len(fresh[0].features), "test": min(len(model.test), config.fresh)}
    return facts | {"cells": cells, "parts": dict(search.split.seconds), "cpu_seconds": process_time() - begun}


def _samples(given: Any) -> Any:
    """Return samples without their labels."""
    return given[0] if isinstance(given, tuple) else given


def _fresh(model: Model, search: Any, n: int) -> tuple[Any, dict[str, Any]]:
    """Return proposals that nothing has seen, with the scores of all candidates, and the distance by each judge.

    A distance is a function from lines of weights of the proposals to a `Curve`.
    """
    batches = []

    def propose(ids: Any) -> Any:
        batches.append(model.propose(ids))
        return batches[-1]

    scored = [(range(search.start, search.start + n), search.candidates)]
    pool = search.split.pool(propose, lambda batch: batch.x[:, :1], scored, "confirm")
    x, distances = np.concatenate([np.asarray(_samples(batch), dtype=np.float32) for batch in batches]), {}
    for name, judge in model.judges.items():
        real, fake = (np.asarray(judge(samples), dtype=np.float64) for samples in (model.test[:n], x))
        distances[name] = partial(model.distance or principal_distance(real, _COMPONENTS), real, fake)
    return pool, distances


def _cell(tuned: Any, pool: Any, distances: Mapping[str, Any]) -> dict[str, Any]:
    """Measure what was chosen at a budget, and what it is compared with, on fresh proposals."""
    search, budget, labels = tuned.search, tuned.budget, pool.label
    recipes = {} if tuned.plain else {"tune": tuned.recipe}
    if "critic trained further" in search.candidates:
        recipes["paper"] = Recipe((("critic trained further", 1.0),))
    for name in search.candidates:
        alone = Recipe(((name, 1.0),), "one constant" if labels is None else "one constant per class")
        recipes["outputs" if name == "classifier's outputs" else name] = alone
    lines = {key: search.weights(recipe, budget, pool) for key, recipe in recipes.items()}
    if tuned.recipe is not None:
        score = tuned.recipe.score(pool.scores, labels)
        groups = labels if tuned.recipe.constants == "one constant per class" else None
        solved = weightings(score, (1, budget), ("drs", "topk"), groups)
        lines |= {rule: solved.weights[line] for line, (rule, _) in enumerate(solved.keys) if rule != "model"}
    cell: dict[str, Any] = {"confirmed": tuned.confirmed, "judge": tuned.judge, "notes": list(tuned.notes)}
    cell |= {"recipe": None if tuned.recipe is None else str(tuned.recipe), "recipes": len(tuned.rows)}
    for key in ("change", "recall"):
        estimate = getattr(tuned, key)
        cell[key] = None if estimate is None else [estimate.value, estimate.standard_error]
    cell["others"] = {}
    for name, distance in distances.items():
        curve = distance(np.stack([np.ones(len(pool.features)), *lines.values()]))
        changes = {key: curve.relative(line, 0) for line, key in enumerate(lines, 1)}
        shares = {key: [change.value, change.standard_error] for key, change in changes.items()}
        cell["others"][name] = {"plain": float(curve.value[0]), "changes": shares}
    return cell


# Models


def _image_model(name: str) -> Model:
    """Return a model of images by its name: a GAN, a VAE or a diffusion model."""
    kind, _, number = name.rpartition("-")
    data = "fashion_mnist" if kind.startswith("fashion") else kind.partition("-")[0]
    split = parts(data)
    some = [split[part] for part in (*(["generator"] if data == "cifar10" else []), "ratio", "features", "judge")]
    x, test = np.concatenate([np.asarray(part.x[:], dtype=np.float32) for part in some]), split["test"].x
    y = np.concatenate([part.label for part in some]).astype(np.int64)
    source: Any
    if kind == "fashion_vae":
        source = Vae(split["generator"], int(number))
        y = source.labeller.predict(x)
    elif kind == "fashion_edm":
        source = load_diffusion("fashion_mnist", 14, 0, int(number))
        x, test = shrink(x, 14), shrink(test, 14)
    else:
        source = load_gan(kind, int(number))
    judges: dict[str, Any] = {_LITE0: lambda images: extract(np.asarray(images), "efficientnet_lite0", progress=False)}
    judges |= {_COMMITTED: committed_judge()} if data == "cifar10" else {}
    if source.classes is None:
        del judges[_LITE0]  # it is the judge of `tune` itself
    critic = Logit(source) if hasattr(source, "critic") else None
    return Model(
        select_inputs(source, x, y), lambda ids: select_inputs(source, *propose(source, ids)), judges, test, critic
    )


class Vae:
    """A small VAE of Fashion-MNIST, whose file says which commit trained it, with labels by a classifier."""

    classes = 10

    def __init__(self, shown: Labelled, seed: int) -> None:
        self.decoder = load_part("fashion_vae", seed)
        with own_noise() as reseed:
            reseed(derive(seed, "labels"))
            network = Classifier(28, 1, 10, width=16, features=64)
        few = shown.x[:8000], shown.label[:8000]
        self.labeller = fit_classifier(*few, network=network, epochs=8, seed=seed, progress=False)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def propose(self, ids: Any, *, seed: int = 0) -> tuple[Any, Any]:
        """Return the images with these ids and their labels."""
        images = self.decoder(normals(ids, self.decoder.spec["latent"], seed=seed, like=torch.empty(0)))
        return images, self.labeller.predict(images)


def _gaussians() -> Model:
    """Return the first GAN of Table 2, judged by KL on cells around the true modes."""
    make = fit_gan(Settings(critic_steps=1)).propose(SEED)  # its critic has no part here
    modes = np.unique(np.round(TARGET.means[:, 0], 6))
    edges = np.sort(np.concatenate([modes - 2 * SIGMA, modes + 2 * SIGMA]))
    real, test = TARGET.sample(20_000, seed=SEED).astype(np.float32), TARGET.sample(20_000, seed=SEED + 1)
    judges = {"KL on cells of the true modes": np.asarray}
    return Model(real, lambda ids: make(ids).numpy(), judges, test, distance=Cells((edges, edges)).distance)


# The record as a table, a page and a picture


def _cells(record: Record) -> list[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Return row, budget and cell of all that was measured."""
    return [(row, budget, cell) for row in record.rows for budget, cell in row.get("cells", {}).items()]


def _changes(cell: dict[str, Any], judge: int = 0) -> dict[str, Any]:
    """Return the changes by the judge that claims rest on, or by the second one; nothing if there is none."""
    others = list(cell["others"].values())
    return dict(others[judge]["changes"]) if judge < len(others) else {}


def _select_acted(record: Record, data: str = "", judge: int = 0) -> tuple[Any, Numbers, Numbers]:
    """Return model, change and its error, of claimed models whose name begins with `data`, where `tune` acted."""
    claimed = [(row["row"], cell) for row, _, cell in _cells(record) if row["claimed"] and row["row"].startswith(data)]
    acted = [(name, *_changes(cell, judge)["tune"]) for name, cell in claimed if cell["confirmed"]]
    names, changes, errors = zip(*acted, strict=True) if acted else ((), (), ())
    return np.array(names), numbers(changes), numbers(errors)


def _pool(z: Numbers) -> float:
    return float(z.sum()) / sqrt(len(z))


def _verdict(record: Record) -> str:
    """Summarise the claimed models.

    z of a cell is its gain over its standard error by the other judge. Cells of one model share proposals and are not
    independent: the pooled z of models, with the mean z of each, is the more careful one. A mean gain is weighted by
    1/variance.
    """
    model, change, error = _select_acted(record)
    if not len(model):
        return "tune acted on no model that carries the claim."
    z, claimed = -change / error, sum(row["claimed"] for row, *_ in _cells(record))
    careful, worst = _pool(np.array([z[model == one].mean() for one in np.unique(model)])), z.min()
    parts = [f"tune acted in {len(z)} of {claimed} cells (a model, a budget) of models without part in any choice."]
    text = f"z {_pool(z):.1f} over all cells together, {careful:.1f} over models (at least 3 was asked for)"
    holds = "holds" if worst >= -2 else "does not hold"
    parts += [f"By the judge that it never saw: {text}; the worst cell has z = {worst:+.1f} (never below -2 {holds})."]
    for data, judge, words in (
        ("fashion", 0, "Means over both budgets, weighted by precision: Fashion-MNIST {:.1f} % closer, z {:.1f};"),
        ("cifar10", 0, "CIFAR-10 {:.1f} %, z {:.1f},"),
        ("cifar10", 1, "and by a classifier {:.1f} %, z {:.1f}."),
    ):
        some, change, error = _select_acted(record, data, judge)
        if len(some):
            parts.append(words.format(-100 * np.average(change, weights=1 / error**2), _pool(-change / error)))
    return " ".join(parts)


def _share(change: Any) -> str:
    return "" if change is None else f"{100 * change[0]:+.1f} ± {100 * change[1]:.1f}"


def _lines(record: Record) -> list[list[str]]:
    """Return a line for each cell: model, K, the change by the judge of `tune`, and by others what is compared."""
    lines = []
    for row, budget, cell in _cells(record):
        changes, change = _changes(cell), _share(cell["change"])
        change = change if cell["confirmed"] else f"not confirmed ({change})"
        tuned = _share(changes["tune"]) if "tune" in changes else "plain model"
        second, beside = _share(_changes(cell, 1).get("tune")), [_share(changes.get(key)) for key in _BESIDE]
        lines.append([row["row"], budget, change, next(iter(cell["others"])), tuned, second, *beside])
    return lines


def table(record: Record) -> str:
    """Return the table of all cells, and what the claimed ones say together."""
    head = ["model", "K", "own judge", "tune", "critic", "0.2", "DRS", "top-k"]
    head_line = "change of the distance in % of the plain model's; from the third number on by another judge"
    lines = [[*line[:3], line[4], *line[6:]] for line in _lines(record)]
    refused = [f"{title(row['row'])}: {row['refused']}" for row in record.rows if "refused" in row]
    words = [textwrap.fill(part, 118) for part in (_verdict(record), *refused)]
    return "\n".join([head_line, "", text_table(head, lines), "", *words])


def markdown(record: Record) -> str:
    """Return the verdict, and the table of all cells; what was chosen, and what it cost, is in the record."""
    head = ["model", "K", "own judge", "other judge", "tune", "a classifier", "critic, one constant"]
    lines = [[title(line[0]), *line[1:4], f"**{line[4]}**", *line[5:]] for line in _lines(record)]
    sections = {"verdict": _verdict(record), "cells": page_table([*head, "outputs, by class", "DRS", "top-k"], lines)}
    return "\n\n".join(section(name, text) for name, text in sections.items())


_LOOKS = {
    "tune": Look("tune", PALETTE["blue"], "", "D"),
    "paper": Look("critic trained further, one constant", PALETTE["orange"]),
    "outputs": Look("classifier outputs, by class", PALETTE["green"]),
    "drs": Look("DRS, score of tune", PALETTE["pink"]),
    "topk": Look("top-k, score of tune", PALETTE["yellow"]),
}


def figure(record: Record) -> Any:
    """Draw the change by the other judge: of `tune`, and of what it is compared with, a line per cell."""
    cells, handles = _cells(record), dict[str, Any]()
    drawn = canvas(9, 0.36 * len(cells) + 2.4)
    axes = drawn.subplots()
    for line, (_, _, cell) in enumerate(cells):
        changes = {"tune": [0.0, 0.0]} | _changes(cell)
        for step, (key, look) in enumerate(_LOOKS.items()):
            if key in changes:
                (value, error), at = changes[key], line + 0.14 * (step - 2)
                style: Any = {"color": look.colour, "fmt": look.marker, "ms": 6 if key == "tune" else 3.5, "lw": 1.2}
                handles[look.label] = axes.errorbar(min(100 * value, 40.0), at, xerr=196 * error, **style)
    axes.axvline(0, color="0.5", lw=1)
    axes.set(xlim=(-85, 42), xlabel="change of the distance by a judge that tune never saw, %")
    axes.set_yticks(range(len(cells)), [f"{title(row['row'])}, K = {budget}" for row, budget, _ in cells])
    axes.invert_yaxis()
    tidy(axes, None)
    drawn.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)
    text = "Left of the line a model gains; 95 % intervals. A diamond at 0 is a model that tune left as it was. What "
    text += "is worse than +40 % is drawn at the edge."
    return caption(drawn, record.experiment, text)
