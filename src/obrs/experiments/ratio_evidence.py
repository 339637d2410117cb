"""Which ratio, and which constants, buy something on real images: a factorial of both, judged by networks of their own.

Images have one use each: the generator is trained on some, the ratio on others, the features of the ratio on a third
part, the judge on a fourth; the real images of every distance are the test set. The ratio is fitted on pixels, on the
features of a classifier, on features without labels, or is that of the GAN's own critic, as it is or trained further.
One constant for all, one per class, or shares as in the data. One pool per generator: every cell is a weighting of it,
so that cells compare with paired errors. The paper has no such table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from ..errors import BudgetError, InputError
from ..metrics.frechet_distance import frechet_curve
from ..metrics.paired import Paired
from ..metrics.weightings import Weightings, weightings
from .record import Record, Rows
from .style import caption, figure, tidy

__all__ = ["CONSTANTS", "PAPER", "PRESETS", "RATIOS", "Config", "plot", "render", "run"]

PAPER = {"table": "none: the paper fits no ratio on features, and has one constant"}
RATIOS = {
    "own": "the GAN's own critic",
    "tuned": "the critic, trained further",
    "pixels": "a network on pixels",
    "features": "features of a classifier",
    "gradients": "features without labels",
}
"""The ratios that are compared, and what they are called."""
CONSTANTS = {"global": "one constant", "class": "one per class", "shares": "shares of the data"}
"""How many constants there are, and what that is called."""
JUDGES = {"classifier": "another classifier", "efficientnet_lite0": "EfficientNet-Lite0"}
"""Whose features the distances are of."""

_FRESH = 1 << 40  # ids of proposals that are in no pool
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Config:
    """What to compare.

    Args:
        generators: Names and seeds of generators, as `name-seed`; "fashion_vae-seed" is a VAE that the run trains.
        budgets: Proposals per kept sample.
        pool: Proposals of each generator.
        judged: Proposals, and real images, that EfficientNet-Lite0 looks at; 0 leaves it out.
        fakes: Other proposals, that ratios are fitted on.
        steps: Updates of a ratio on features; of others a third.
        epochs: Passes of the classifiers over their images; on the few digits, ten times as many.
    """

    generators: tuple[str, ...] = (
        *(f"digits-{seed}" for seed in range(3)),
        *(f"fashion_mnist-{seed}" for seed in range(3)),
        "fashion_vae-0",
    )
    budgets: tuple[float, ...] = (1.5, 2.6, 5.0)
    pool: int = 8_000
    judged: int = 3_000
    fakes: int = 10_000
    steps: int = 800
    epochs: int = 2

    def __post_init__(self) -> None:
        if not self.generators or not self.budgets or min(self.pool, self.fakes, self.steps, self.epochs) < 1:
            raise InputError("ratio-evidence needs at least one generator, budget, proposal, step and epoch")


_SMOKE = Config(generators=("digits-0",), budgets=(2.6,), pool=400, judged=0, fakes=400, steps=30, epochs=1)
PRESETS = {"smoke": _SMOKE, "default": Config(), "paper": Config()}


def run(config: Config, rows: Rows) -> None:
    """Fit every ratio to each generator, and judge every cell."""
    for name, generator in rows.todo({g: g for g in config.generators}):
        rows.add(name, _one_generator(config, generator, rows.progress))


def _one_generator(config: Config, generator: str, progress: bool | None) -> dict[str, Any]:
    import torch

    from .image_gans import parts

    kind, _, number = generator.rpartition("-")
    seed, data = int(number), "fashion_mnist" if kind == "fashion_vae" else kind
    split = parts(data)
    labelled = kind != "fashion_vae"
    begun = process_time()
    look = _classifier(config, split["features"], seed, "features", progress, width=12, features=48)
    judge = _classifier(config, split["judge"], seed, "judge", progress, width=16, features=64)
    source = _Gan(kind, seed) if labelled else _Vae(split["generator"].x, seed, look)
    seconds = {"classifiers": process_time() - begun}
    pool, labels = source.propose(np.arange(config.pool))
    real = split["test"].x
    spread = {"classifier": _features(judge, pool)}
    truth = {"classifier": _features(judge, real)}
    if config.judged:
        from ..metrics.features import extract

        some = slice(0, config.judged)
        spread["efficientnet_lite0"] = extract(np.asarray(pool[some]), "efficientnet_lite0", progress=progress)
        truth["efficientnet_lite0"] = extract(real[some], "efficientnet_lite0", progress=progress)
    counts = np.bincount(split["ratio"].label if labelled else look.predict(torch.as_tensor(split["ratio"].x)))
    shares = {label: int(counts[label]) for label in np.unique(labels).tolist()}
    found: dict[str, Any] = {}
    for ratio, fit in _fits(config, source, split["ratio"], look, seed, progress).items():
        begun = process_time()
        scores, loss = fit(pool, labels)
        seconds[ratio] = process_time() - begun
        found[ratio] = {"log_loss": loss, "cells": _cells(config, scores, labels, shares, spread, truth)}
    return {
        "base": {judged: _base(truth[judged], x) for judged, x in spread.items()},
        "accuracy": judge.accuracy(torch.as_tensor(real), torch.as_tensor(split["test"].label)),
        "ratios": found,
        "seconds": seconds,
    }


def _cells(
    config: Config, scores: Floats, labels: Floats, shares: Any, spread: dict[str, Floats], truth: dict[str, Floats]
) -> dict[str, Any]:
    """Return the distance of each kind of constant, rule and budget by each judge, and its change with its error."""
    cells: dict[str, Any] = {}
    for constant in CONSTANTS:
        cells[constant] = {}
        for judge, x in spread.items():
            own, groups = scores[: len(x)], None if constant == "global" else labels[: len(x)]
            budgets = list(config.budgets)
            while budgets:  # shares that differ much from those of the proposals need more than a small budget
                try:
                    wanted = shares if constant == "shares" else None
                    found = weightings(own, (1, *budgets), ("obrs", "drs"), groups, wanted)
                    break
                except BudgetError:
                    budgets.pop(0)
            else:
                continue
            curve = _curve(truth[judge], x, found)
            rows = {}
            for line, (rule, budget) in enumerate(found.keys):
                if line:
                    change = curve.difference(line, 0)
                    rows[f"{rule} {budget:g}"] = [float(curve.value[line]), change.value, change.standard_error]
            cells[constant][judge] = rows
    return cells


def _curve(real: Floats, fake: Floats, found: Weightings) -> Paired:
    return found.pulled(frechet_curve(real=real, fake=fake, weights=found.weights))


def _base(real: Floats, fake: Floats) -> list[float]:
    curve = frechet_curve(real=real, fake=fake, weights=np.ones((1, len(fake))))
    return [float(curve.value[0]), float(curve.standard_error[0])]


def _fits(
    config: Config, source: Any, real: Any, look: Any, seed: int, progress: bool | None
) -> dict[str, Callable[[Any, Floats], tuple[Floats, float]]]:
    """Return, by name, functions from the pool to log-ratios and a held-out log-loss."""
    from ..ratios.methods import FineTune, Network
    from ..ratios.refit import refit

    labelled = isinstance(source, _Gan)
    samples = (real.x, real.label) if labelled else real.x
    images, classes = source.propose(np.arange(_FRESH, _FRESH + config.fakes))  # made once, for all ratios
    fakes = (images, classes) if labelled else images

    def refitted(method: Any, steps: int, features: Any, pool: Any, labels: Floats) -> tuple[Floats, float]:
        fitted = refit(
            samples,
            fakes,
            method,
            features=features,
            steps=steps,
            batch_size=256,
            held_out=0.2,
            seed=seed,
            progress=progress,
        )
        scores = np.asarray(fitted((pool, labels) if labelled else pool), dtype=np.float64)
        return scores, float(fitted.report.log_loss)

    few = max(config.steps // 3, 1)
    fits: dict[str, Any] = {
        "pixels": partial(refitted, Network("cnn"), few, None),
        "features": partial(refitted, Network(width=96, waves=0), config.steps, look.features),
        "gradients": partial(refitted, Network(width=96, waves=0), config.steps, "gradients"),
    }
    if labelled:
        head = _Logit(source.gan.critic)
        fits = {
            "own": lambda pool, labels: (np.asarray(head(pool, _tensor(labels)), dtype=np.float64), float("nan")),
            "tuned": partial(refitted, FineTune(head.module()), few, None),
        } | fits
    return fits


class _Gan:
    """A committed GAN as a source of proposals with labels."""

    def __init__(self, name: str, seed: int) -> None:
        from .image_gans import load_gan

        self.gan = load_gan(name, seed)

    def propose(self, ids: Any) -> tuple[Any, Floats]:
        """Return images and their labels."""
        images, labels = self.gan.propose(ids, seed=100)
        return images, labels.numpy()


class _Vae:
    """A small VAE of 28x28 images, trained here; a label is the class that a classifier sees."""

    def __init__(self, real: Floats, seed: int, look: Any) -> None:
        import torch
        from torch.nn import functional

        from ..fitting.seeds import derived, own_noise
        from ..models.mlp import mlp

        steps, latent = 1500, 16
        with own_noise() as reseed:
            reseed(derived(seed, "vae"))
            self.encoder, self.decoder = mlp((784, 256, 2 * latent)), mlp((latent, 256, 784))
            optimiser = torch.optim.Adam([*self.encoder.parameters(), *self.decoder.parameters()], lr=2e-3)
            x = torch.as_tensor(real)
            for step in range(steps):
                optimiser.param_groups[0]["lr"] = 2e-3 * (1 - step / steps)
                batch = x[torch.randint(len(x), (256,))].flatten(1)
                mean, log_sd = self.encoder(batch).chunk(2, dim=1)
                logits = self.decoder(mean + log_sd.exp() * torch.randn_like(mean))
                target = (batch + 1) / 2
                miss = functional.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1)
                cost = (mean**2 + (2 * log_sd).exp() - 1 - 2 * log_sd).sum(1) / 2
                optimiser.zero_grad()
                (miss + cost).mean().backward()
                optimiser.step()
        self.look, self.latent, self.seed = look, latent, seed

    def propose(self, ids: Any) -> tuple[Any, Floats]:
        """Return the means of images, and the classes that they look like."""
        import torch

        from ..draws import normals

        with torch.no_grad():
            z = normals(ids, self.latent, seed=100 + self.seed, like=torch.empty(0))
            images = torch.tanh(self.decoder(z) / 2).reshape(-1, 1, 28, 28)
        return images, np.asarray(self.look.predict(images))


class _Logit:
    """The second output of a critic, which is trained with the logistic loss."""

    def __init__(self, critic: Any) -> None:
        self.critic = critic

    def __call__(self, x: Any, label: Any) -> Any:
        import torch

        with torch.no_grad():
            return self.critic(x, label)[:, 1]

    def module(self) -> Any:
        """Return a copy as a module with one output, to train further."""
        import copy

        from torch import nn

        class Second(nn.Module):  # type: ignore[misc]
            def __init__(self, critic: Any) -> None:
                super().__init__()
                self.critic = critic

            def forward(self, x: Any, label: Any) -> Any:
                return self.critic(x, label)[:, 1]

        return Second(copy.deepcopy(self.critic).requires_grad_(True))


def _tensor(x: Any) -> Any:
    import torch

    return torch.as_tensor(x)


def _classifier(
    config: Config, part: Any, seed: int, what: str, progress: bool | None, *, width: int, features: int
) -> Any:
    from ..fitting.seeds import derived, own_noise
    from ..models.classifier import fit_classifier, small_classifier

    own = derived(seed, what)
    with own_noise() as reseed:
        reseed(own)
        net = small_classifier(part.x.shape[2], width=width, features=features)
    epochs = config.epochs * (10 if len(part.x) < 1000 else 1)
    return fit_classifier(part.x, part.label, network=net, epochs=epochs, seed=own, progress=progress)


def _features(classifier: Any, x: Any) -> Floats:
    import torch

    with torch.no_grad():
        return np.asarray(classifier.features(torch.as_tensor(x)).numpy())


def render(record: Record) -> str:
    """Return the table: the change of the Fréchet distance, in per cent, of every cell of OBRS."""
    return "\n".join(_table(record))


def _table(record: Record, rule: str = "obrs") -> list[str]:
    budgets = [f"{k:g}" for k in record.config["budgets"]]
    lines = [f"change of the Fréchet distance with {rule.upper()}, in % of that of the model; ± one standard error"]
    for judge, title in JUDGES.items():
        rows = [row for row in record.rows if judge in row["base"]]
        if not rows:
            continue
        lines += ["", f"judged by {title}"]
        lines.append(
            f"{'generator':17}{'ratio':29}" + "".join(f"{title:>{12 * len(budgets)}}" for title in CONSTANTS.values())
        )
        lines.append(f"{'':46}" + "".join(f"{'K = ' + k:>12}" for _ in CONSTANTS for k in budgets))
        for row in rows:
            for ratio in row["ratios"]:
                values = [_cell(row, ratio, c, judge, f"{rule} {k}") for c in CONSTANTS for k in budgets]
                cells = "".join(f"{_percent(value, row['base'][judge][0]):>12}" for value in values)
                lines.append(f"{row['row']:17}{RATIOS[ratio]:29}{cells}")
    return lines


def _percent(value: Any, base: float) -> str:
    return "–" if value is None else f"{100 * value[1] / base:+.0f} ± {100 * value[2] / base:.0f}"


def plot(record: Record) -> Any:
    """Draw the change of the distance for each ratio and kind of constant, a point per generator."""
    budgets = sorted(record.config["budgets"])
    budget = f"{budgets[len(budgets) // 2]:g}"
    drawn = figure(11, 4.6)
    panels = drawn.subplots(1, len(CONSTANTS), sharey=True)
    for panel, (constant, title) in zip(panels, CONSTANTS.items(), strict=True):
        for step, row in enumerate(record.rows):
            base, shift = row["base"]["classifier"][0], 0.1 * (step - (len(record.rows) - 1) / 2)
            for at, ratio in enumerate(RATIOS):
                value = _cell(row, ratio, constant, "classifier", f"obrs {budget}")
                if value is not None:
                    where, reach = 100 * value[1] / base, 196 * value[2] / base
                    label = row["row"] if ratio == "features" else None
                    panel.errorbar(where, at + shift, xerr=reach, fmt="o", ms=4, color=f"C{step}", label=label)
        panel.axvline(0, color="0.5", lw=1)
        panel.set(title=title, xlabel="change of the distance, %")
        panel.set_yticks(range(len(RATIOS)), list(RATIOS.values()))
        tidy(panel, None)
    panels[0].invert_yaxis()
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=7)
    said = f"K = {budget}, OBRS, judged by another classifier. Left of the line it gains; 95 % intervals."
    caption(drawn, record.experiment, said)
    return drawn


def _cell(row: dict[str, Any], ratio: str, constant: str, judge: str, key: str) -> Any:
    """Return distance, change and error of a cell; None where there is none."""
    found = row["ratios"].get(ratio)
    return None if found is None else found["cells"][constant].get(judge, {}).get(key)
