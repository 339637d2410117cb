"""What one constant does to the classes of a conditional model: digits, a hinge GAN with labels, K = 4.

A class that the generator makes badly, or whose ratio is too small, is kept seldom by one constant for all. One
constant per class keeps 1 in K of each; shares keep classes as frequent as in the data. The paper has no such figure.

Every image has one use: the generator is trained on some, the features of the ratio on others, the ratio on a third
part; a fourth trains the judge, another classifier, on whose features the distance to the last part is measured. The
ratio is fitted on features and labels, `refit((features, labels), ...)`. All Fréchet distances are of as many kept
samples, against the same real ones, on fresh proposals that no rule was fitted on.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..acceptance import Budgeted, Grouped
from ..draws import accept, normals
from ..errors import InputError
from ..looks import PALETTE, figure, look, tidy
from ..metrics.frechet_distance import frechet
from .record import Record, Rows, numbers
from .style import caption

__all__ = ["PAPER", "PRESETS", "RULES", "Config", "plot", "render", "run"]

PAPER = {"figures": "none: the paper has no conditional model"}
RULES = {
    "none": "no rejection",
    "one": "one constant",
    "class": "one per class",
    "shares": "shares of the data",
}
"""What is compared, and what it is called in the figure."""

_CLASSES = 10
_PARTS = {"generator": 600, "features": 300, "ratio": 450, "judge": 200, "reference": 247}
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Config:
    """What to train and to draw.

    Args:
        seeds: Each decides a GAN, a ratio and a judge of its own.
        budget: Proposals per kept sample.
        steps: Steps of the generator.
        ratio_steps: Steps of the ratio, at most.
        epochs: Passes of both classifiers over their images.
        pilot: Proposals of each class that the rules are fitted on.
        kept: Kept samples of one Fréchet distance.
        draws: Fréchet distances of each rule and seed, each of fresh proposals.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    budget: float = 4.0
    steps: int = 1000
    ratio_steps: int = 400
    epochs: int = 20
    pilot: int = 1000
    kept: int = 2000
    draws: int = 4

    def __post_init__(self) -> None:
        if not self.seeds or min(self.draws, self.pilot, self.kept) < 1:
            raise InputError("figure-classes needs at least one seed, draw, pilot proposal and kept sample")


_SMOKE = Config(seeds=(0,), steps=20, ratio_steps=30, epochs=1, pilot=50, kept=200, draws=2)
PRESETS = {"smoke": _SMOKE, "default": Config(), "paper": Config()}


def run(config: Config, rows: Rows) -> None:
    """Train, fit, and reject, once for each seed."""
    for name, seed in rows.todo({f"seed {seed}": seed for seed in config.seeds}):
        rows.add(name, _one_seed(config, seed, rows.progress))


def _one_seed(config: Config, seed: int, progress: bool | None) -> dict[str, Any]:
    from ..fitting.seeds import derived, own_noise
    from ..models.classifier import fit_classifier, small_classifier
    from ..ratios.methods import Network
    from ..ratios.refit import refit

    parts = _split(seed)
    generate = _generator(config, seed, *parts["generator"], progress)

    def propose(ids: Any) -> tuple[Any, Any]:
        labels = np.asarray(ids) % _CLASSES  # as many of each class
        return generate(normals(ids, 32, seed=seed), labels), labels

    def classifier(part: str, features: int) -> Any:
        own = derived(seed, part)
        with own_noise() as reseed:
            reseed(own)
            net = small_classifier(8, width=12, features=features)
        return fit_classifier(*parts[part], network=net, epochs=config.epochs, seed=own, progress=progress)

    look_at, judge = classifier("features", 48), classifier("judge", 32)

    def seen(batch: tuple[Any, Any]) -> tuple[Any, Any]:
        return _features(look_at, batch[0]), batch[1]

    log_ratio = refit(
        seen(parts["ratio"]),
        lambda ids: seen(propose(ids)),
        Network(width=96, waves=0),
        steps=config.ratio_steps,
        batch_size=256,
        held_out=0.2,
        seed=seed,
        progress=progress,
    )
    pilot = propose(np.arange(_CLASSES * config.pilot))
    scores, labels = log_ratio(seen(pilot)), pilot[1]
    known = [parts[part][1] for part in ("generator", "features", "ratio")]  # all but what the judge has
    shares = np.bincount(np.concatenate(known), minlength=_CLASSES)
    rules: dict[str, Any] = {
        "none": None,
        "one": Budgeted.fit(scores, config.budget),
        "class": Grouped.fit(scores, config.budget, labels),
        "shares": Grouped.fit(scores, config.budget, labels, shares=shares),
    }
    real = _features(judge, parts["reference"][0])
    kept: dict[str, Floats] = {name: np.zeros(_CLASSES) for name in rules}
    distance: dict[str, list[float]] = {name: [] for name in rules}
    right, proposed, start = np.zeros(_CLASSES), np.zeros(_CLASSES), len(labels)
    block = round(1.25 * config.kept * config.budget / _CLASSES) * _CLASSES  # a quarter to spare
    for _ in range(config.draws):
        ids = np.arange(start, start := start + block)
        batch = propose(ids)
        scores, labels = log_ratio(seen(batch)), batch[1]
        features = _features(judge, batch[0])
        right += np.bincount(labels[judge.predict(batch[0]) == labels], minlength=_CLASSES)
        proposed += np.bincount(labels, minlength=_CLASSES)
        for name, rule in rules.items():
            taken = np.arange(block) if rule is None else np.flatnonzero(accept(rule(scores, labels), ids, seed=seed))
            if len(taken) < config.kept:  # distances compare at equal n only
                raise InputError(
                    f"{name} kept {len(taken)} of {block} proposals, {config.kept} are needed; raise pilot"
                )
            kept[name] += np.bincount(labels[taken], minlength=_CLASSES)
            distance[name].append(frechet(real=real, fake=features[taken[: config.kept]]).value)
    return {
        "log_loss": log_ratio.report.log_loss,
        "judge": judge.accuracy(*parts["reference"]),
        "right": right / proposed,
        "proposed": proposed,
        "shares": shares / shares.sum(),
        "kept": kept,
        "frechet": distance,
    }


def _split(seed: int) -> dict[str, tuple[Floats, Floats]]:
    """Return disjoint parts of the digits, images with labels; the seed decides who gets which."""
    from ..data.images import load

    digits = load("digits")
    x = np.concatenate([digits.train, digits.test])
    y = np.concatenate([digits.train_labels, digits.test_labels])
    order = np.random.default_rng(seed).permutation(len(x))
    ends = np.cumsum(list(_PARTS.values()))
    return {name: (x[rows], y[rows]) for name, rows in zip(_PARTS, np.split(order, ends[:-1]), strict=True)}


def _generator(config: Config, seed: int, x: Floats, y: Floats, progress: bool | None) -> Any:
    """Train a conditional hinge GAN, and return its generator as a function of NumPy latents and labels."""
    import torch

    from ..training.config import TrainConfig
    from ..training.loop import train

    settings = TrainConfig(
        classes=True,
        network="conv",
        latent=32,
        generator_width=16,
        critic_width=16,
        spectral_norm=True,
        generator_loss="hinge",
        steps=config.steps,
        batch_size=64,
        generator_lr=2e-4,
        critic_lr=4e-4,
        generator_betas=(0.0, 0.99),
        critic_betas=(0.0, 0.99),
        seed=seed,
    )
    run = train(settings, data=x, labels=y, progress=progress)

    def generate(z: Floats, labels: Floats) -> Floats:
        with torch.no_grad():
            images = run.generator(torch.as_tensor(z, dtype=torch.float32), torch.as_tensor(labels))
        return np.asarray(images.numpy())

    return generate


def _features(classifier: Any, x: Floats) -> Floats:
    import torch

    with torch.no_grad():
        return np.asarray(classifier.features(torch.as_tensor(x)).double().numpy())


def _means(record: Record, rule: str) -> Floats:
    """Return the Fréchet distance of a rule for each seed: the mean over its draws."""
    return np.asarray([np.mean(row["frechet"][rule]) for row in record.rows])


def _error(values: Floats) -> float:
    """Return the standard error of a mean; NaN for one value."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


def render(record: Record) -> str:
    """Return what is kept of the rarest and the commonest class, and Fréchet distances, of every rule."""
    n, k = record.config["kept"], record.config["budget"]
    lines = [f"digits, K = {k:g}, {len(record.rows)} GANs, {n} samples per distance; mean ± standard error over GANs"]
    lines.append(f"{'':20}{'kept per class':>16}{'Fréchet distance':>20}{'against no rejection':>24}")
    before = _means(record, "none")
    for rule, label in RULES.items():
        after = _means(record, rule)
        rates = [numbers(row["kept"][rule]) / numbers(row["proposed"]) for row in record.rows]
        span = f"{100 * min(map(np.min, rates)):.0f} to {100 * max(map(np.max, rates)):.0f} %"
        change = 100 * (after / before - 1)
        said = "" if rule == "none" else f"{np.mean(change):+.0f} ± {_error(change):.0f} %"
        distance = f"{np.mean(after):.2f} ± {_error(after):.2f}"
        lines.append(f"{label:20}{span:>16}{distance:>20}{said:>24}".rstrip())
    return "\n".join(lines)


_COLOURS = {
    "none": look("model").colour,
    "one": PALETTE["grey"],
    "class": look("obrs").colour,
    "shares": look("drs").colour,
}


def plot(record: Record) -> Any:
    """Draw how much of each class is kept, for every seed, and the distances."""
    drawn, budget = figure(9, 6.6), record.config["budget"]
    count = len(record.rows)
    cells = drawn.add_gridspec(2, max(count, 2), height_ratios=[1, 1.1])
    for column, row in enumerate(record.rows):
        axes = drawn.add_subplot(cells[0, column], sharey=drawn.axes[0] if column else None)
        _bars(axes, row, budget)
        axes.set_title(f"GAN {column + 1}")
        axes.set(xlabel="digit, most kept first", ylabel="kept of the class, %" if not column else "")
    drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    _distances(drawn.add_subplot(cells[1, :]), record)
    caption(
        drawn,
        record.experiment,
        f"Digits, conditional hinge GANs, K = {budget:g}. One constant keeps little of the classes whose ratios are "
        f"small; dotted: 1 in {budget:g}. Distances: {record.config['kept']:,} samples each, on the features of "
        "another classifier; a point per GAN, its mean over fresh draws; black: mean and standard error over GANs.",
    )
    return drawn


def _bars(axes: Any, row: dict[str, Any], budget: float) -> None:
    order = np.argsort(-numbers(row["kept"]["one"]) / numbers(row["proposed"]))
    for at, rule in enumerate(("one", "class", "shares")):
        rate = 100 * numbers(row["kept"][rule]) / numbers(row["proposed"])
        axes.bar(np.arange(_CLASSES) + 0.28 * (at - 1), rate[order], 0.28, color=_COLOURS[rule], label=RULES[rule])
    axes.axhline(100 / budget, color="0.3", lw=1, ls=":")
    axes.set_xticks(range(_CLASSES), [str(digit) for digit in order])
    tidy(axes, None)


def _distances(axes: Any, record: Record) -> None:
    before = _means(record, "none")
    axes.axvline(100, color=_COLOURS["none"], lw=1.5)
    for at, rule in enumerate(("one", "class", "shares")):
        each = 100 * _means(record, rule) / before
        axes.barh(at, np.mean(each), 0.62, color=_COLOURS[rule], alpha=0.45, lw=0)
        axes.plot(each, at + np.linspace(-0.15, 0.15, len(each)), "o", color=_COLOURS[rule], ms=5)
        if len(each) > 1:
            axes.errorbar(np.mean(each), at, xerr=_error(each), color="black", capsize=4, lw=1.2)
    axes.set_yticks(range(3), [RULES[rule] for rule in ("one", "class", "shares")])
    axes.invert_yaxis()
    axes.set(xlabel="Fréchet distance to real digits, % of that without rejection (line)")
    axes.set_xlim(left=0)
    axes.set_title("Fréchet distance: lower is better")
    tidy(axes, None)
