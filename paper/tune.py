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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from time import process_time
from typing import Any

import numpy as np

from obrs._text import text_table
from obrs.errors import InputError

from .image_names import title
from .record import Record
from .style import PALETTE, canvas, caption, page_table, section, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "headline", "markdown", "run", "table"]

PAPER = {"table": "none: the paper has one ratio, the critic's, and one constant"}
_SEED = 100  # of proposals: no seed that a model was trained with
_COMPONENTS = 64  # of the features of a judge
_NAMES = {"tune": "tune", "paper": "critic trained further, one constant", "outputs": "0.2's recipe"}
_NAMES |= {"drs": "DRS, score of tune", "topk": "top-k, score of tune"}
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Config:
    """What to measure.

    Args:
        claimed: Models that had no part in any choice, by name.
        others: Models beside them: those on which recipes were found, those of kinds that the claim is not about, and
            the digits, of which there are too few.
        budgets: Proposals per kept sample.
        pool: Proposals that `tune` compares; half as many are fitted on.
        fresh: Proposals that the other judge looks at, and at most as many test images.
        seed: Of `tune`.
    """

    claimed: tuple[str, ...] = (
        *(f"fashion_mnist-{seed}" for seed in (3, 4, 5)),
        "fashion_vae-1",
        *(f"cifar10-gan-{seed}" for seed in (0, 1, 2)),
    )
    others: tuple[str, ...] = (
        *(f"fashion_mnist-{seed}" for seed in (0, 1, 2)),
        "fashion_vae-0",
        "fashion_edm-1000",
        "fashion_edm-8000",
        "cifar10-plain-0",
        "gaussians",
        "digits-0",
    )
    budgets: tuple[float, ...] = (2.0, 4.0)
    pool: int = 20_000
    fresh: int = 8_000
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.claimed or self.others) or not self.budgets or min(self.budgets) <= 1 or self.fresh < 1000:
            raise InputError("tune needs at least one model, budgets above 1 and 1000 fresh proposals")


_SMOKE = Config(claimed=(), others=("gaussians",), budgets=(2.0,), pool=1000, fresh=1000)
PRESETS = {"smoke": _SMOKE, "default": Config()}


@dataclass(frozen=True, eq=False)
class Model:
    """A model, what `tune` gets of it, and who judges the result.

    Args:
        real: Real samples that it was not trained on, with labels if it has labels.
        propose: Makes the proposals with these ids.
        judges: The other judges by name, each from samples to a features `(n, k)`.
        test: Test samples.
        critic: Its critic, if there is one.
        distance: Of real and fake features with lines of weights, if it is not Fréchet's.
    """

    real: Any
    propose: Any
    judges: Mapping[str, Callable[[Any], Floats]]
    test: Any
    critic: Any = None
    distance: Any = None


def run(config: Config, rows: Record) -> None:
    """Tune every model, and measure what was chosen."""
    claimed = dict.fromkeys(config.claimed, True) | dict.fromkeys(config.others, False)
    for name, is_claimed in rows.todo(claimed):
        rows.add(name, {"claimed": is_claimed} | _one_model(config, name))


def _one_model(config: Config, name: str) -> dict[str, Any]:
    from obrs.tuning import tune

    begun, model = process_time(), _load(name)
    facts: dict[str, Any] = {"pool": config.pool, "real": _count(model.real)}
    try:
        tuned = tune(
            model.real,
            model.propose,
            budget=config.budgets[0],
            critic=model.critic,
            pretrained=(),
            pool=config.pool,
            seed=config.seed,
            progress=False,
        )
    except InputError as error:
        return facts | {"refused": str(error)}
    search = tuned.search
    fresh = _Fresh.make(model, search, config.fresh)
    found = [tuned, *map(search.tune, config.budgets[1:])]
    cells = {f"{each.budget:g}": _cell(each, fresh) for each in found}
    facts |= {"fresh": len(fresh.pool.features), "test": min(_count(model.test), config.fresh)}
    return facts | {"cells": cells, "parts": dict(search.seconds), "cpu_seconds": process_time() - begun}


def _count(given: Any) -> int:
    return len(given[0] if isinstance(given, tuple) else given)


@dataclass(frozen=True, eq=False)
class _Fresh:
    """Proposals that nothing has seen, with the scores of all candidates, and the features of the other judges."""

    pool: Any
    features: Mapping[str, tuple[Floats, Floats]]
    distance: Any

    @classmethod
    def make(cls, model: Model, search: Any, n: int) -> "_Fresh":
        batches = []

        def propose(ids: Any) -> Any:
            batches.append(model.propose(ids))
            return batches[-1]

        pool = search.score(propose, [(range(search.start, search.start + n), search.candidates)])
        x = np.concatenate([np.asarray(b[0] if isinstance(b, tuple) else b, dtype=np.float32) for b in batches])
        features = {name: (judge(model.test[:n]), judge(x)) for name, judge in model.judges.items()}
        return cls(pool, features, model.distance or _distance)

    def changes(self, lines: Mapping[str, Floats]) -> dict[str, Any]:
        """Return, by judge, the distance of the plain model and the relative change by each line of weights."""
        found = {}
        for name, (real, fake) in self.features.items():
            curve = self.distance(real, fake, np.stack([np.ones(len(fake)), *lines.values()]))
            changes = {key: curve.relative(line, 0) for line, key in enumerate(lines, 1)}
            shares = {key: [change.value, change.standard_error] for key, change in changes.items()}
            found[name] = {"plain": float(curve.value[0]), "changes": shares}
        return found


def _distance(real: Floats, fake: Floats, lines: Floats) -> Any:
    """Return the Fréchet distance in the principal components of the real features."""
    from obrs.metrics.cells import principal_distance

    return principal_distance(real, _COMPONENTS)(real, fake, lines)


def _cell(tuned: Any, fresh: _Fresh) -> dict[str, Any]:
    """Measure what was chosen at a budget, and what it is compared with, on fresh proposals."""
    from obrs.metrics.weightings import weightings
    from obrs.tuning import Recipe

    search, budget = tuned.search, tuned.budget
    lines: dict[str, Floats] = {}

    def add(key: str, recipe: Any) -> None:
        lines[key] = search.weights(recipe, budget, fresh.pool)

    per_class = "one constant" if fresh.pool.label is None else "one constant per class"
    names = list(search.candidates)
    if not tuned.plain:
        add("tune", tuned.recipe)
    if "critic trained further" in names:
        add("paper", Recipe((("critic trained further", 1.0),)))
    for name in names:
        add("outputs" if name == "classifier's outputs" else name, Recipe(((name, 1.0),), per_class))
    if tuned.recipe is not None:
        score = tuned.recipe.score(fresh.pool.scores, fresh.pool.label)
        groups = fresh.pool.label if tuned.recipe.constants == "one constant per class" else None
        solved = weightings(score, (1, budget), ("drs", "topk"), groups)
        lines |= {rule: solved.weights[line] for line, (rule, _) in enumerate(solved.keys) if rule != "model"}
    found: dict[str, Any] = {"confirmed": tuned.confirmed, "judge": tuned.judge, "notes": list(tuned.notes)}
    found |= {"recipe": None if tuned.recipe is None else str(tuned.recipe), "recipes": len(tuned.rows)}
    for key in ("change", "recall"):
        estimate = getattr(tuned, key)
        found[key] = None if estimate is None else [estimate.value, estimate.standard_error]
    return found | {"others": fresh.changes(lines)}


# Models


def _load(name: str) -> Model:
    import torch

    torch.set_num_threads(1)
    kind, _, number = name.rpartition("-")
    if name == "gaussians":
        return _gaussians()
    if kind in ("cifar10-gan", "cifar10-plain"):
        return _cifar(kind, int(number))
    if kind == "fashion_vae":
        return _vae(int(number))
    if kind == "fashion_edm":
        return _edm(int(number))
    return _gan(kind, int(number))


def _lite0(images: Any) -> Floats:
    """Return the features of EfficientNet-Lite0; those of test images are kept on disk."""
    from obrs.metrics.features import extract

    return np.asarray(extract(np.asarray(images), "efficientnet_lite0", progress=False), dtype=np.float64)


_LITE0 = {"EfficientNet-Lite0": _lite0}


def _images(name: str, *shown: str) -> tuple[Any, Any, Any]:
    """Return images that no model was trained on and those of the parts `shown`, their labels, and the test images."""
    from .image_gans import parts

    split = parts(name)
    some = [split[part] for part in (*shown, "ratio", "features", "judge")]
    x, y = np.concatenate([part.x[:] for part in some]), np.concatenate([part.label for part in some])
    return np.ascontiguousarray(x, dtype=np.float32), y.astype(np.int64), split["test"].x


def _gan(kind: str, seed: int) -> Model:
    from .image_gans import load_gan
    from .image_ratios import Logit

    gan = load_gan(kind, seed)
    x, y, test = _images(kind)
    return Model((x, y), lambda ids: gan.propose(ids, seed=_SEED), _LITE0, test, Logit(gan.critic))


def _vae(seed: int) -> Model:
    import torch

    from obrs.draws import normals
    from obrs.fitting.seeds import derived, own_noise
    from obrs.fitting.tensors import fill_module, read_tensors
    from obrs.models.classifier import Classifier, fit_classifier
    from obrs.models.mlp import mlp

    from .image_gans import parts
    from .image_ratios import _Vae
    from .nets import WEIGHTS

    shown = parts("fashion_mnist")["generator"]
    path, decoder = WEIGHTS / f"fashion_vae-{seed}-decoder.safetensors", mlp((_Vae.latent, 256, 784))
    if path.exists():
        fill_module(decoder, read_tensors(path, "the decoder of a VAE")[0], "decoder", path)
    else:
        decoder = _Vae(shown.x, seed, None).decoder
    with own_noise() as reseed:
        reseed(derived(seed, "labels"))
        network = Classifier(28, 1, 10, width=16, features=64)
    labeller = fit_classifier(shown.x[:8000], shown.label[:8000], network=network, epochs=8, seed=seed, progress=False)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def propose(ids: Any) -> Any:
        images = torch.tanh(decoder(normals(ids, _Vae.latent, seed=_SEED, like=torch.empty(0))) / 2)
        images = images.reshape(-1, 1, 28, 28)
        return images, torch.as_tensor(np.asarray(labeller.predict(images)))

    x, _, test = _images("fashion_mnist")
    y = np.concatenate([np.asarray(labeller.predict(x[at : at + 1000])) for at in range(0, len(x), 1000)])
    return Model((x, y.astype(np.int64)), propose, _LITE0, test)


def _edm(updates: int) -> Model:
    from .image_diffusion import load_diffusion, shrunk

    model = load_diffusion("fashion_mnist", 14, 0, updates)
    x, y, test = _images("fashion_mnist")
    real = np.ascontiguousarray(shrunk(x, 14)), y
    return Model(real, lambda ids: model.propose(ids, seed=_SEED), _LITE0, shrunk(test, 14))


def _cifar(kind: str, seed: int) -> Model:
    import torch

    from .image_gans import load_gan
    from .image_ratios import Logit
    from .nets.cifar import CifarClassifier, load_unit

    gan, classifier = load_gan(kind, seed), CifarClassifier()
    load_unit("classifier-0", {"classifier": classifier})
    classifier.eval().requires_grad_(False)

    def propose(ids: Any) -> Any:
        made, label = gan.propose(ids, seed=_SEED)
        return (made.float(), label) if gan.classes else made.float()

    def committed(images: Any) -> Floats:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            seen = [classifier.features(part).float() for part in torch.as_tensor(np.asarray(images)).split(500)]
        return np.asarray(torch.cat(seen).double().numpy())

    x, y, test = _images("cifar10", "generator")
    judges = {"committed classifier": committed}
    if gan.classes is None:
        return Model(x, propose, judges, test, Logit(gan.critic, half=True))
    return Model((x, y), propose, _LITE0 | judges, test, Logit(gan.critic, half=True))


def _gaussians() -> Model:
    """Return the first GAN of Table 2, judged by KL on cells around the true modes."""
    from obrs.metrics.cells import Cells

    from .gan25 import TARGET, Settings, trained

    make, toy = trained(Settings(critic_steps=1)).propose(_SEED), TARGET  # its critic has no part here
    modes, sigma = np.unique(np.round(toy.means[:, 0], 6)), float(toy.sigma[0])
    edges = np.sort(np.concatenate([modes - 2 * sigma, modes + 2 * sigma]))

    def propose(ids: Any) -> Any:
        return make(ids).numpy()

    real, test = toy.sample(20_000, seed=_SEED).astype(np.float32), toy.sample(20_000, seed=_SEED + 1)
    judges = {"KL on cells of the true modes": lambda x: np.asarray(x, np.float64)}
    return Model(real, propose, judges, test, distance=Cells((edges, edges)).distance)


# The record as a table, a page and a picture


def _title(name: str) -> str:
    """Return what a reader calls a model."""
    kind, _, number = name.rpartition("-")
    if kind == "fashion_edm":
        return f"diffusion model, Fashion-MNIST, {number} updates"
    return "GAN, 25 Gaussians" if name == "gaussians" else title(name)


def _cells(record: Record, *, claimed: bool | None = None) -> list[tuple[str, str, dict[str, Any]]]:
    """Return model, budget and cell of all that was measured."""
    rows = [row for row in record.rows if "cells" in row and (claimed is None or row["claimed"] == claimed)]
    return [(row["row"], budget, cell) for row in rows for budget, cell in row["cells"].items()]


def _other(cell: dict[str, Any], second: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the name and the figures of the judge that claims rest on, or of the second one."""
    name = [*cell["others"]][int(second)]
    return name, cell["others"][name]


def headline(record: Record, data: str = "", second: bool = False) -> dict[str, Any]:
    """Return what the claimed models say together, all of them or those whose name begins with `data`.

    The mean gain is weighted by 1/variance. z of a cell is its gain over its standard error by the other judge, the
    pooled z is their sum over the root of their number. Cells of one model share proposals and are not independent: the
    pooled z of models, with the mean z of each, is the more careful one.
    """
    cells = [(name, k, cell) for name, k, cell in _cells(record, claimed=True) if name.startswith(data)]
    cells = [each for each in cells if len(each[2]["others"]) > int(second)]
    acted = {(name, k): _other(cell, second)[1]["changes"]["tune"] for name, k, cell in cells if cell["confirmed"]}
    z = {key: -change / error for key, (change, error) in acted.items()}
    models = sorted({name for name, _ in z})
    means = [float(np.mean([value for key, value in z.items() if key[0] == name])) for name in models]
    weight = np.array([1 / error**2 for _, error in acted.values()])
    gain = -float(weight @ [change for change, _ in acted.values()] / weight.sum()) if acted else 0.0
    return {
        "cells": len(cells),
        "acted": len(acted),
        "gain": gain,
        "z": sum(z.values()) / sqrt(len(z)) if z else 0.0,
        "z_models": sum(means) / sqrt(len(means)) if means else 0.0,
        "worst": min(z.values(), default=0.0),
    }


def _verdict(record: Record) -> str:
    if not _cells(record, claimed=True):
        return "No model of this run carries the claim."
    found = headline(record)
    parts = [f"tune acted in {found['acted']} of {found['cells']} cells of models that had no part in any choice."]
    z = f"pooled z {found['z']:.1f} over cells, {found['z_models']:.1f} over models (at least 3 was asked for)"
    holds = "holds" if found["worst"] >= -2 else "does not hold"
    worst = f"the worst cell has z = {found['worst']:+.1f} (never below -2 {holds})"
    parts += [f"By the judge that it never saw: {z}; {worst}."]
    for data, name in (("fashion", "Fashion-MNIST"), ("cifar10", "CIFAR-10")):
        one = headline(record, data)
        if one["acted"]:
            said = f"{name} alone: {100 * one['gain']:.1f} % closer in the mean, z {one['z']:.1f}"
            if data == "cifar10":
                more = headline(record, data, second=True)
                said += f"; by the committed classifier {100 * more['gain']:.1f} %, z {more['z']:.1f}"
            parts += [f"{said}."]
    return " ".join(parts)


def _share(change: Any) -> str:
    return "" if change is None else f"{100 * change[0]:+.1f} ± {100 * change[1]:.1f}"


def table(record: Record) -> str:
    """Return the table of all cells, and what the claimed ones say together."""
    lines = []
    for name, budget, cell in _cells(record):
        changes = _other(cell)[1]["changes"]
        own = _share(cell["change"]) if cell["confirmed"] else f"({_share(cell['change'])})" if cell["change"] else ""
        tuned = _share(changes["tune"]) if "tune" in changes else "plain"
        beside = [_share(changes.get(key)) for key in ("paper", "outputs", "drs", "topk")]
        lines.append([name, budget, own, tuned, *beside])
    head = ["model", "K", "own judge", "tune", "critic", "0.2", "DRS", "top-k"]
    refused = [f"{_title(row['row'])}: {row['refused']}" for row in record.rows if "refused" in row]
    said = "change of the distance in % of the plain model's; from the third number on by another judge"
    return "\n".join(
        [said, "", text_table(head, lines), "", *_wrapped(_verdict(record)), *_wrapped("\n".join(refused))]
    )


def _wrapped(text: str) -> list[str]:
    import textwrap

    return [line for part in text.splitlines() for line in textwrap.wrap(part, 118)]


def markdown(record: Record) -> str:
    """Return the verdict, the table of all cells, what was chosen, every single candidate, and the cost."""
    sections = {"verdict": _verdict(record)}
    rows, chosen, single, cost = [], [], [], []
    for name, budget, cell in _cells(record):
        judge, other = _other(cell)
        changes, more = other["changes"], [each for each in cell["others"] if each != judge]
        second = cell["others"][more[0]]["changes"].get("tune") if more else None
        tuned = _share(changes["tune"]) if "tune" in changes else "plain model"
        own = _share(cell["change"]) if cell["confirmed"] else f"not confirmed ({_share(cell['change'])})"
        beside = [_share(changes.get(key)) for key in ("paper", "outputs", "drs", "topk")]
        rows.append([_title(name), budget, own, judge, f"**{tuned}**", _share(second), *beside])
        recall = "" if cell["recall"] is None else f"{cell['recall'][0]:+.3f} ± {cell['recall'][1]:.3f}"
        chosen.append([_title(name), budget, cell["recipe"] or "nothing", recall, "; ".join(cell["notes"])])
        alone = [f"{key}: {_share(value)}" for key, value in changes.items() if key not in _NAMES]
        single.append([_title(name), budget, "; ".join(alone)])
    for row in record.rows:
        if "refused" in row:
            cost.append([_title(row["row"]), f"{row['real']:,}", "", "", "", f"refused: {row['refused']}"])
            continue
        parts = ", ".join(f"{part} {seconds:.0f}" for part, seconds in row["parts"].items())
        sizes = [f"{row[key]:,}" for key in ("real", "pool", "fresh")]
        cost.append([_title(row["row"]), *sizes, f"{row['cpu_seconds']:.0f}", parts])
    head = ["model", "K", "own judge", "other judge", "tune", "committed classifier", "critic, one constant"]
    sections["cells"] = page_table([*head, "0.2's recipe", "DRS", "top-k"], rows)
    sections["chosen"] = page_table(["model", "K", "recipe", "recall", "notes"], chosen)
    sections["single"] = page_table(["model", "K", "candidates alone, by the other judge"], single)
    sections["cost"] = page_table(["model", "real", "pool", "fresh", "CPU s", "seconds of the parts"], cost)
    return "\n\n".join(section(name, text) for name, text in sections.items())


def figure(record: Record) -> Any:
    """Draw the change by the other judge: of `tune`, and of what it is compared with, a line per cell."""
    cells = _cells(record)
    colours = {"tune": "blue", "paper": "orange", "outputs": "green", "drs": "pink", "topk": "yellow"}
    drawn = canvas(9, 0.36 * len(cells) + 2.4)
    axes = drawn.subplots()
    for line, (_, _, cell) in enumerate(cells):
        changes = _other(cell)[1]["changes"]
        for step, (key, colour) in enumerate(colours.items()):
            found = changes.get(key, [0.0, 0.0] if key == "tune" else None)
            if found is None:
                continue
            value, reach = 100 * found[0], 196 * found[1]
            label = _NAMES[key] if line == len(cells) - 1 or key not in _labelled(axes) else None
            look = {"color": PALETTE[colour], "ms": 6 if key == "tune" else 3.5, "lw": 1.2}
            at = line + 0.14 * (step - 2)
            axes.errorbar(min(value, 40.0), at, xerr=reach, fmt="D" if key == "tune" else "o", label=label, **look)
    axes.axvline(0, color="0.5", lw=1)
    axes.set_xlim(-85, 42)
    axes.set_yticks(range(len(cells)), [f"{_title(name)}, K = {budget}" for name, budget, _ in cells])
    axes.invert_yaxis()
    axes.set_xlabel("change of the distance by a judge that tune never saw, %")
    tidy(axes, None)
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    drawn.legend(unique.values(), unique.keys(), loc="outside upper center", ncols=3)
    said = (
        "Left of the line a model gains; 95 % intervals. A diamond at 0 is a model that tune left as it was. What is "
        "worse than +40 % is drawn at the edge."
    )
    caption(drawn, record.experiment, said)
    return drawn


def _labelled(axes: Any) -> set[str]:
    return {key for key, name in _NAMES.items() if name in axes.get_legend_handles_labels()[1]}
