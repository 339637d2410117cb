"""Appendix A, last figure: precision-recall curves of two models of MNIST, one of high recall, one of high precision.

The paper shows two GANs that it does not describe: one makes all digits, some of them incoherent, the other coherent
ones of half of the classes. Here the first is a GAN of Figure 1, and the second its like that has seen five digits.

The curve is that of a discriminator, as in the paper: at slope λ, with a ratio fitted to features of a classifier, the
precision is at most λ P(λr < 1) + Q(λr ≥ 1), measured on other images. Fréchet distance and classifier score (of which
the Inception score is one) are of the same classifier.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from obrs._text import text_table
from obrs.draws import normals
from obrs.metrics import frechet
from obrs.models.classifier import fit_classifier
from obrs.ratios.refit import Network, refit

from .image_gans import SEED, load_part, parts
from .image_ratios import see
from .image_sheet import as_text, from_text
from .record import Checked, Numbers, Record, numbers
from .style import LOOKS, canvas, caption, tidy

__all__ = ["PAPER", "PRESETS", "Config", "curve", "figure", "run", "table"]

PAPER = {"high recall": {"frechet": 17.06, "score": 2.69}, "high precision": {"frechet": 8.80, "score": 2.57}}
MODELS = {"high recall": "drs", "high precision": "obrs"}  # with the looks of these


@dataclass(frozen=True)
class Config(Checked):
    """What to measure."""

    generators: tuple[str, ...] = ("mnist_plain-1", "mnist_five-0")  # names and seeds: high recall, high precision
    images: int = 16_000  # images of each model, half for the fit and half to measure with
    steps: int = 500  # updates of a ratio
    epochs: int = 5  # passes of the classifiers over their images
    shown: int = 25  # images of each sheet, a square number


PRESETS = {
    "smoke": Config(("digits_plain-0", "digits_plain-0"), images=600, steps=40, epochs=20, shown=9),
    "default": Config(),
}


def run(config: Config, rows: Record) -> None:
    """Make the images of both models, and judge them."""
    split = parts(config.generators[0].partition("_")[0])
    judge = fit_classifier(split["features"].x, split["features"].label, epochs=config.epochs, progress=False)
    for model, name in rows.todo(dict(zip(MODELS, config.generators, strict=True))):
        kind, _, number = name.rpartition("-")
        generator = load_part(kind, int(number))
        z = normals(np.arange(config.images), generator.spec["latent"], seed=SEED, like=torch.empty(0))
        x = generator(z)
        half, seen, truth = len(x) // 2, see(judge.features, x), see(judge.features, split["test"].x)
        ratio = _fit(see(judge.features, split["ratio"].x), seen[:half], config)
        lam, precision = curve(ratio(truth), ratio(seen[half:]))
        probability = np.exp(see(judge, x))
        probability /= probability.sum(1, keepdims=True)
        facts: dict[str, Any] = {"frechet": frechet(real=truth, fake=seen[half:])}
        terms = probability * np.log(np.maximum(probability, 1e-30) / probability.mean(0))
        facts["score"] = float(np.exp(terms.sum(1).mean()))  # at most the number of classes
        facts |= {"shares": probability.mean(0), "precision": precision, "recall": precision / lam}
        rows.add(model, facts | {"sheet": as_text(x[: config.shown]), "shape": list(x.shape[1:])})


def _fit(real: Numbers, fake: Numbers, config: Config) -> Any:
    """Return a log-ratio that is fitted to features of real and fake images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a classifier separates the two sets is a result here
        network, batch = Network("mlp", width=128, layers=2, waves=0), min(256, len(fake) // 4)
        fitted = refit(real, fake, network, steps=config.steps, batch_size=batch, held_out=0.2, progress=False)
    return lambda x: np.asarray(fitted(x), dtype=np.float64)


def curve(real: Numbers, fake: Numbers) -> tuple[Numbers, Numbers]:
    """Return slopes λ and the precision at each, from log-ratios of real and fake samples; the recall is α / λ."""
    lam = np.geomspace(1e-2, 1e2, 81)
    alpha = [at * np.mean(real < -np.log(at)) + np.mean(fake >= -np.log(at)) for at in lam]
    return lam, np.minimum(alpha, np.minimum(lam, 1))


def table(record: Record) -> str:
    """Return distance, score, and the ends of the curves, with the paper's numbers beside ours."""
    lines = []
    for name, paper in PAPER.items():
        row = record[name]
        rest = (paper["frechet"], row["score"], paper["score"], row["recall"][20], row["precision"][60])
        digits = np.sum(numbers(row["shares"]) > 0.02)
        lines.append([name, f"{row['frechet']:.1f}", *(f"{cell:.2f}" for cell in rest), digits])
    ours = ["Fréchet", "paper, FID", "score", "paper, IS", "recall at λ = 0.1", "precision at λ = 10"]
    return text_table(["model", *ours, "digits"], lines)


def figure(record: Record) -> Any:
    """Draw images of both models, and their curves."""
    drawn = canvas(10, 4.6)
    *sheets, axes = drawn.subplots(1, 3, width_ratios=[1, 1, 1.25])
    for sheet, (name, style) in zip(sheets, MODELS.items(), strict=True):
        row = record[name]
        images = np.stack([from_text(text, row["shape"]) for text in row["sheet"]])
        across = int(len(images) ** 0.5)
        sheet.imshow(np.block([list(line) for line in images.reshape(across, across, *images.shape[1:])]), cmap="gray")
        sheet.set_axis_off()
        sheet.set_title(f"{name}\nFréchet {row['frechet']:.1f}, score {row['score']:.2f}", fontsize=10)
        axes.plot(row["recall"], row["precision"], color=LOOKS[style].colour, ls=LOOKS[style].line, label=name)
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1.03), ylim=(0, 1.03), title="Precision and recall")
    tidy(axes, "lower left")
    scores = ", ".join(f"{PAPER[name]['frechet']:.2f} and {PAPER[name]['score']:.2f} of {name}" for name in MODELS)
    words = "High precision: a GAN that has seen five digits. Curves, Fréchet distance and score are of a small"
    return caption(drawn, record.experiment, f"{words} classifier; the paper's FID and IS of two other GANs: {scores}.")
