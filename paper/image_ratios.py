"""Who proposes, who scores and who judges in the image experiments.

Images have one use each, see `image_gans.parts`: the generator is trained on some, the ratio on others, the features of
the ratio on a third part, the judge on a fourth; the real images of every distance are the test set. A `Subject` is a
generator with its pool and its judges. `fit_ratios` fits what is compared to it. For `distances` every kind of
constant, rule and budget is a weighting of one pool, so that they compare with paired errors.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from obrs.draws import accept
from obrs.errors import InputError
from obrs.fitting.seeds import derived, own_noise
from obrs.groups import Grouped
from obrs.metrics.features import extract
from obrs.metrics.frechet import frechet_curve
from obrs.metrics.neighbours import neighbour_curves
from obrs.metrics.weightings import weightings
from obrs.models.classifier import Classifier, fit_classifier
from obrs.models.mlp import mlp
from obrs.ratios.refit import FineTune, Network, refit
from obrs.rules import Budgeted

from .image_gans import ImageGan, Labelled, parts
from .image_sheet import as_text
from .nets.cifar import CifarClassifier, load_unit

__all__ = ["Effort", "Fitted", "Logit", "Subject", "calibrated", "distances", "find_judges", "fit_look", "fit_ratios"]
__all__ += ["inception_features", "neighbour_cells", "prepare", "propose", "see", "seen_by", "sheet", "with_gan"]

_SEED = 100  # of proposals: no seed that a generator was trained with
_FRESH = 1 << 40  # ids of proposals that are in no pool
_TUNED = {"celeba": 4e-5}  # rates at which critics of BigGANs are trained further, from the authors' scripts
_COMPONENTS = 64
_BLOCK = 1000  # images at a time
Floats = np.ndarray[Any, Any]
Judge = Callable[[Any], Floats]


@dataclass(frozen=True)
class Effort:
    """How much is spent on networks.

    Args:
        fakes: Proposals that ratios are fitted on; they are in no pool.
        steps: Updates of a ratio on features; of a critic, which cost more, a third.
        epochs: Passes of the classifiers over their images; on the few digits, ten times as many.
    """

    fakes: int
    steps: int
    epochs: int


@dataclass(frozen=True, eq=False)
class Subject:
    """A generator with all that it takes to judge it.

    Args:
        name: As in a configuration, "fashion_mnist-0".
        seed: Its number, and the seed of the networks that look at it.
        source: What proposes, an `ImageGan` or another model.
        split: The parts of its data.
        look: The classifier whose outputs ratios see, None if the data have no labels.
        judges: From images to the features of each judge.
        pool, labels: Proposals, and their classes.
        spread, truth: What each judge sees of the pool, maybe of its first part, and of the test images.
        shares: How often each class is in the data.
        seconds: CPU seconds that the classifier of the ratio took.
    """

    name: str
    seed: int
    source: Any
    split: Mapping[str, Labelled]
    look: Any
    judges: Mapping[str, Judge]
    pool: Any
    labels: Floats
    spread: Mapping[str, Floats]
    truth: Mapping[str, Floats]
    shares: Mapping[int, int]
    seconds: float


class Fitted(NamedTuple):
    """A ratio: log-ratios of images and labels, its log-loss on held-out samples, and what it cost in CPU seconds."""

    log_ratio: Callable[[Any, Floats], Floats]
    log_loss: float
    seconds: float


def prepare(
    name: str,
    effort: Effort,
    gan: ImageGan,
    *,
    pool: int,
    judged: int,
    second: str = "efficientnet_lite0",
    home: str = "",
    progress: bool | None = None,
) -> Subject:
    """Fit the classifiers of a data set, and make the pool of a generator.

    Args:
        name: The data set and the seed of the classifiers, "fashion_mnist-0" or the like.
        effort: Of which only the epochs count here.
        gan: The generator.
        pool: Proposals.
        judged: How many of them, and of the real images, the second judge looks at; 0 leaves it out.
        second: The second judge, see `find_judges`.
        home: A folder with data of your own, see `image_gans`. Without labels there is no classifier, and one judge.
        progress: As everywhere.
    """
    data, _, number = name.rpartition("-")
    seed, split = int(number), parts(data, home)
    classifier, seconds = fit_look(split, effort, seed, progress=progress)
    images, labels = propose(gan, np.arange(pool))
    judges = find_judges(split, effort, seed, judged=judged, second=second, known=data, progress=progress)
    real = split["ratio"].label
    return Subject(
        name=name,
        seed=seed,
        source=gan,
        split=split,
        look=classifier,
        judges=judges,
        pool=images,
        labels=labels,
        spread=seen_by(judges, images, judged),
        truth=seen_by(judges, split["test"].x, judged),
        shares={} if real is None else dict(enumerate(np.bincount(real).tolist())),
        seconds=seconds,
    )


def propose(gan: ImageGan, ids: Any) -> tuple[Any, Floats]:
    """Return the images with these ids and their labels, block by block."""
    made = [gan.propose(ids[at : at + _BLOCK], seed=_SEED) for at in range(0, len(ids), _BLOCK)]
    images, labels = (torch.cat(column) for column in zip(*made, strict=True))
    return images, np.asarray(labels.numpy())


def fit_look(
    split: Mapping[str, Labelled], effort: Effort, seed: int, *, width: int = 32, progress: bool | None = None
) -> tuple[Any, float]:
    """Return the classifier that ratios look through, None if there are no labels, and its CPU seconds."""
    begun = process_time()
    if split["features"].label is None:
        return None, 0.0
    classifier = _classifier(effort, split["features"], derived(seed, "features"), progress, width=width, features=128)
    return classifier, process_time() - begun


def find_judges(
    split: Mapping[str, Labelled],
    effort: Effort,
    seed: int,
    *,
    judged: int,
    second: str = "efficientnet_lite0",
    known: str = "",
    progress: bool | None = None,
) -> dict[str, Judge]:
    """Return the judges, each a function from images to features: a classifier that no ratio saw, and the second one.

    Args:
        split: The parts of the data.
        effort, seed: Of the classifier.
        judged: Images that the second judge looks at; 0 leaves it out.
        second: A key of `JUDGES`, or `inception_v3=FILE` with the weights that torch-fidelity publishes.
        known: The data set; that of CIFAR-10 has a committed classifier, which saw the images of the generators only.
        progress: As everywhere.
    """
    judges: dict[str, Judge] = {}
    if known == "cifar10":
        net = CifarClassifier()
        load_unit("classifier-0", {"classifier": net})
        judges["classifier"] = partial(see, net.eval().features, half=True)
    elif split["judge"].label is not None:
        judge = _classifier(effort, split["judge"], derived(seed, "judge"), progress, width=16, features=64)
        judges["classifier"] = partial(see, judge.features)
    if judged:
        name, _, weights = second.partition("=")
        components = None if name == "inception_v3" else _COMPONENTS
        features: Any = inception_features(weights) if weights else name
        judges[name] = _Extracted(features, split["judge"].x[:judged], components, progress)
    if not judges:
        raise InputError("without labels the second judge is the only one: judged must be at least 1")
    return judges


def inception_features(weights: str) -> Callable[[Any], Any]:
    """Return the 2048 features of Inception-v3 as torch-fidelity computes them, from its file of weights."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    if not Path(weights).is_file():
        raise InputError(f"there is no {weights}; it must be the Inception-v3 of torch-fidelity, pt_inception-*.pth")
    net = FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], feature_extractor_weights_path=weights)

    def features(x: Any) -> Any:
        pixels = ((x.expand(-1, 3, -1, -1) + 1) * 127.5).round().clamp(0, 255).byte()
        return net(pixels)[0]

    return features


def seen_by(judges: Mapping[str, Judge], images: Any, judged: int) -> dict[str, Floats]:
    """Return the features of images for each judge; the second one looks at the first `judged`."""
    return {key: look(images if key == "classifier" else images[:judged]) for key, look in judges.items()}


def with_gan(subject: Subject, gan: ImageGan) -> Subject:
    """Return the same judges and data with another generator; the pool is as large."""
    images, labels = propose(gan, np.arange(len(subject.pool)))
    spread = {key: look(images[: len(subject.spread[key])]) for key, look in subject.judges.items()}
    return replace(subject, source=gan, pool=images, labels=labels, spread=spread)


def fit_ratios(
    subject: Subject, effort: Effort, which: Sequence[str], *, progress: bool | None = None
) -> dict[str, Fitted]:
    """Fit ratios to a GAN, keys of `RATIOS`; where the generator takes labels, so does the ratio."""
    gan, real = subject.source, subject.split["ratio"]
    images, classes = propose(gan, np.arange(_FRESH, _FRESH + effort.fakes))  # made once, for all ratios
    with_label = gan.classes is not None
    samples, fakes = ((real.x, real.label), (images, classes)) if with_label else (real.x, images)

    def refitted(method: Any, steps: int, features: Any = None) -> Fitted:
        begun = process_time()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "a ratio on .* features of images")  # what they do is the question here
            fit: Any = {"steps": steps, "batch_size": 256, "held_out": 0.2, "seed": subject.seed, "progress": progress}
            found = refit(samples, fakes, method, features=features, **fit)

        def log_ratio(x: Any, label: Floats) -> Floats:
            return np.asarray(found((x, label) if with_label else x), dtype=np.float64)

        return Fitted(log_ratio, float(found.report.log_loss), process_time() - begun)

    few, rate = max(effort.steps // 3, 1), _TUNED.get(subject.name.rpartition("-")[0])
    critic = partial(Logit, gan.critic, half=gan.half)
    ways: dict[str, Callable[[], Fitted]] = {
        "own": lambda: Fitted(partial(_scores, critic(), with_label), float("nan"), 0.0),
        "tuned": lambda: refitted(FineTune(critic()) if rate is None else FineTune(critic(), rate), few),
        "outputs": lambda: refitted(Network(width=96, waves=0), effort.steps, subject.look),
        "gradients": lambda: refitted(Network(width=96, waves=0), effort.steps, "gradients"),
    }
    return {name: ways[name]() for name in which if name in ways}


def distances(
    subject: Subject,
    scores: Floats,
    budgets: Sequence[float],
    rules: Sequence[str] = ("obrs", "drs"),
    constants: Sequence[str] = ("global", "class"),
) -> dict[str, Any]:
    """Return Fréchet distances by kind of constant, judge, and "rule budget": value, change, standard error of it."""
    cells: dict[str, Any] = {constant: {} for constant in constants}
    for constant in constants:
        for judge, x in subject.spread.items():
            found = weightings(*_scored(subject, scores, constant, len(x), (1, *budgets), rules))
            curve = frechet_curve(real=subject.truth[judge], fake=x, weights=found)
            cells[constant][judge] = _by_key(found, curve)
    return cells


def _scored(subject: Subject, scores: Floats, constant: str, n: int, budgets: Any, rules: Any) -> tuple[Any, ...]:
    """Return the arguments of `weightings` for the first n proposals."""
    labels, own = subject.labels[:n], scores[:n]
    if constant == "calibrated":
        return calibrated(own, labels, subject.shares), budgets, rules
    return own, budgets, rules, None if constant == "global" else labels


def _by_key(found: Any, curve: Any) -> dict[str, list[float]]:
    """Return value, change and its standard error of every rule and budget."""
    changes = [curve.difference(line, 0) for line in range(len(found.keys))]
    values = zip(found.keys, curve.value, changes, strict=True)
    return {f"{rule} {k:g}": [float(value), by.value, by.standard_error] for (rule, k), value, by in values}


def calibrated(scores: Floats, labels: Floats, shares: Mapping[int, int]) -> Floats:
    """Return log-ratios whose mean ratio in each class is the share of the class in the data over that of the pool.

    Example:
        >>> np.exp(calibrated(np.log([1.0, 3.0, 5.0, 5.0]), np.array([0, 0, 1, 1]), {0: 1, 1: 1})).round(3).tolist()
        [0.5, 1.5, 1.0, 1.0]
    """
    found, total = np.array(scores, dtype=np.float64), sum(shares.values())
    for label, share in shares.items():
        own = labels == label
        found[own] += np.log(share / total / own.mean()) - np.log(np.mean(np.exp(found[own])))
    return found


def neighbour_cells(
    subject: Subject, scores: Floats, rates: Sequence[float], constant: str, n: int, judge: str = "classifier"
) -> dict[str, Any]:
    """Return precision and recall, k = 5, by a judge, of every rule and rate, of n proposals and real images.

    Each is a list: value, change, standard error of the change. Recall compares at equal n, which is under "size".
    """
    judge = judge if judge in subject.spread else next(iter(subject.spread))
    n = min(n, len(subject.spread[judge]))
    budgets, size = (1, *(1 / rate for rate in rates)), int(min(rates) * n)
    found = weightings(*_scored(subject, scores, constant, n, budgets, ("obrs", "drs")))
    real, fake = subject.truth[judge][:n], subject.spread[judge][:n]
    curves = neighbour_curves(real=real, fake=fake, weights=found, k=5, size=size, draws=4)
    cells = {metric: _by_key(found, curves[metric]) for metric in ("precision", "recall")}
    return {key: {metric: cells[metric][key] for metric in cells} for key in cells["recall"]} | {"size": size}


def sheet(subject: Subject, scores: Floats, constant: str, n: int) -> dict[str, Any]:
    """Return the first n proposals of the pool as text, and which of them are kept at one half."""
    if constant == "global":
        log_a = Budgeted.fit(scores, 2.0)(scores[:n])
    else:
        log_a = Grouped.fit(scores, 2.0, subject.labels)(scores[:n], subject.labels[:n])
    kept = accept(log_a, np.arange(n), seed=1)
    return {"shape": list(subject.pool.shape[1:]), "sheet": as_text(subject.pool[:n]), "kept": kept.tolist()}


class _Vae:
    """The decoder of a small VAE of 28x28 images, trained here."""

    latent, steps = 16, 1500

    def __init__(self, real: Floats, seed: int, look: Any = None) -> None:
        with own_noise() as reseed:
            reseed(derived(seed, "vae"))
            encoder, self.decoder = mlp((784, 256, 2 * self.latent)), mlp((self.latent, 256, 784))
            optimiser = torch.optim.Adam([*encoder.parameters(), *self.decoder.parameters()], lr=2e-3)
            x = torch.as_tensor(real)
            for step in range(self.steps):
                optimiser.param_groups[0]["lr"] = 2e-3 * (1 - step / self.steps)
                batch = x[torch.randint(len(x), (256,))].flatten(1)
                mean, log_sd = encoder(batch).chunk(2, dim=1)
                logits = self.decoder(mean + log_sd.exp() * torch.randn_like(mean))
                target = (batch + 1) / 2
                miss = functional.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1)
                cost = (mean**2 + (2 * log_sd).exp() - 1 - 2 * log_sd).sum(1) / 2
                optimiser.zero_grad()
                (miss + cost).mean().backward()
                optimiser.step()


class Logit(nn.Module):  # type: ignore[misc]
    """The last output of a critic; if it has two, that is the one which is trained with the logistic loss.

    Args:
        critic: From images and maybe labels to `(n,)` or `(n, 2)`.
        half: Compute in bfloat16, in which those of CIFAR-10 were trained; it takes half of the time.
    """

    def __init__(self, critic: nn.Module, *, half: bool = False) -> None:
        super().__init__()
        self.critic, self.half = critic.to(memory_format=torch.channels_last) if half else critic, half

    def forward(self, x: Any, label: Any = None) -> Any:
        x = x.contiguous(memory_format=torch.channels_last) if self.half else x
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            found = (self.critic(x) if label is None else self.critic(x, label)).float()
        return found if found.ndim == 1 else found[:, -1]


class _Extracted:
    """Named features of images, or the principal components of real images in them.

    A Fréchet distance of 1280 features needs more samples than a small budget keeps of some thousands. The components
    are those of images that no distance is of.
    """

    def __init__(self, features: Any, real: Floats, components: int | None, progress: bool | None) -> None:
        self.features, self.progress = features, progress
        self.basis: tuple[Floats, Floats] | None = None
        if components is not None:
            x = self(real)
            mean = x.mean(axis=0)
            self.basis = mean, np.linalg.svd(x - mean, full_matrices=False)[2][:components].T

    def __call__(self, images: Any) -> Floats:
        x: Floats = np.asarray(extract(np.asarray(images), self.features, progress=self.progress), dtype=np.float64)
        if self.basis is not None:
            mean, axes = self.basis
            x = (x - mean) @ axes
        return x


def _classifier(effort: Effort, part: Labelled, seed: int, progress: bool | None, *, width: int, features: int) -> Any:
    with own_noise() as reseed:
        reseed(seed)
        _, channels, size, _ = part.x.shape
        net = Classifier(size, channels, int(part.label.max()) + 1, width=width, features=features)
    epochs = effort.epochs * (10 if len(part.x) < 1000 else 1)
    return fit_classifier(part.x, part.label, network=net, epochs=epochs, seed=seed, progress=progress)


@torch.no_grad()  # type: ignore[untyped-decorator]
def see(features: Callable[[Any], Any], x: Any, *, half: bool = False) -> Floats:
    """Return the features of images, block by block; `half` computes in bfloat16."""
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        seen = [features(block).float() for block in torch.as_tensor(x).split(_BLOCK)]
    return np.asarray(torch.cat(seen).numpy())


@torch.no_grad()  # type: ignore[untyped-decorator]
def _scores(head: nn.Module, with_label: bool, x: Any, label: Floats) -> Floats:
    blocks = zip(torch.as_tensor(x).split(_BLOCK), torch.as_tensor(label).split(_BLOCK), strict=True)
    found = [head(images, classes if with_label else None) for images, classes in blocks]
    return np.asarray(torch.cat(found).double().numpy())
