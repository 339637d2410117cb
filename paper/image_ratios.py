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

from obrs.draws import accept, normals
from obrs.errors import BudgetError, InputError
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

from .image_gans import ImageGan, Labelled, load_gan, parts
from .image_names import RATIOS
from .image_sheet import as_text
from .nets.cifar import CifarClassifier, load_unit

__all__ = ["Effort", "Fitted", "Logit", "Subject", "calibrated", "distances", "find_judges", "fit_look", "fit_ratios"]
__all__ += ["inception_features", "neighbour_cells", "prepare", "see", "seen_by", "sheet", "with_gan"]

_SEED = 100  # of proposals: no seed that a generator was trained with
_FRESH = 1 << 40  # ids of proposals that are in no pool
_TUNED = {"cifar10": 1e-5, "celeba": 4e-5, "imagenet": 1e-5}  # of critics of BigGANs, trained further as in the paper
_COMPONENTS = 64
_BLOCK = 1000  # images at a time
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Effort:
    """How much is spent on networks.

    Args:
        fakes: Proposals that ratios are fitted on; they are in no pool.
        steps: Updates of a ratio on features; of those on images, which cost more, a third.
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
        source: What proposes, with `propose(ids)`; None if the pool is all that there is.
        split: The parts of its data.
        look: The classifier whose last layer or outputs ratios see, None if the data have no labels.
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
    judges: Mapping[str, Callable[[Any], Floats]]
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
    *,
    pool: int,
    judged: int,
    second: str = "efficientnet_lite0",
    home: str = "",
    gan: ImageGan | None = None,
    progress: bool | None = None,
) -> Subject:
    """Load or train a generator, fit the classifiers, and make the pool.

    Args:
        name: "digits-0", "fashion_mnist-0", "cifar10-gan-0" or the like: a committed GAN; "fashion_vae-0": a VAE that
            is trained here.
        effort: Of which only the epochs count here.
        pool: Proposals.
        judged: How many of them, and of the real images, the second judge looks at; 0 leaves it out.
        second: The second judge, see `find_judges`.
        home: A folder with generators and data of your own, see `image_gans`. Without labels there is no classifier,
            and only one judge.
        gan: A generator to take instead of the one with this name; then the name says which data, and which seed.
        progress: As everywhere.
    """
    kind, _, number = name.rpartition("-")
    seed, is_vae, data = int(number), kind == "fashion_vae", kind.partition("-")[0]
    split = parts("fashion_mnist" if is_vae else data, home)
    classifier, seconds = fit_look(split, effort, seed, progress=progress)
    source = _Vae(split["generator"].x, seed, classifier) if is_vae else _Gan(gan or load_gan(kind, seed, home))
    images, labels = source.propose(np.arange(pool))
    if images.shape[1:] != split["test"].x.shape[1:]:
        made, wanted = tuple(images.shape[1:]), split["test"].x.shape[1:]
        raise InputError(f"{name} makes images of shape {made}, those of the data have {wanted}")
    judges = find_judges(split, effort, seed, judged=judged, second=second, known=data, progress=progress)
    real = split["ratio"]
    seen_as = classifier.predict(real.x) if is_vae and classifier else real.label
    counts = np.ones(1, dtype=np.int64) if seen_as is None else np.bincount(seen_as)
    return Subject(
        name=name,
        seed=seed,
        source=source,
        split=split,
        look=classifier,
        judges=judges,
        pool=images,
        labels=labels,
        spread=seen_by(judges, images, judged),
        truth=seen_by(judges, split["test"].x, judged),
        shares={label: int(counts[label]) for label in np.unique(labels).tolist()},
        seconds=seconds,
    )


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
) -> dict[str, Callable[[Any], Floats]]:
    """Return the judges, each a function from images to features: a classifier that no ratio saw, and the second one.

    Args:
        split: The parts of the data.
        effort, seed: Of the classifier.
        judged: Images that the second judge looks at; 0 leaves it out.
        second: A key of `JUDGES`, or `inception_v3=FILE` with the weights that torch-fidelity publishes.
        known: The data set; that of CIFAR-10 has a committed classifier, which saw the images of the generators only.
        progress: As everywhere.
    """
    judges: dict[str, Callable[[Any], Floats]] = {}
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


def seen_by(judges: Mapping[str, Callable[[Any], Floats]], images: Any, judged: int) -> dict[str, Floats]:
    """Return the features of images for each judge; the second one looks at the first `judged`."""
    return {key: look(images if key == "classifier" else images[:judged]) for key, look in judges.items()}


def with_gan(subject: Subject, gan: ImageGan) -> Subject:
    """Return the same judges and data with another generator; the pool is as large."""
    source = _Gan(gan)
    images, labels = source.propose(np.arange(len(subject.pool)))
    spread = {key: look(images[: len(subject.spread[key])]) for key, look in subject.judges.items()}
    return replace(subject, source=source, pool=images, labels=labels, spread=spread)


def fit_ratios(
    subject: Subject, effort: Effort, which: Sequence[str] = tuple(RATIOS), *, progress: bool | None = None
) -> dict[str, Fitted]:
    """Fit ratios to a generator, those of `which` that it has; a VAE has no critic.

    Where the generator takes labels, so does the ratio.
    """
    source, real = subject.source, subject.split["ratio"]
    images, classes = source.propose(np.arange(_FRESH, _FRESH + effort.fakes))  # made once, for all ratios
    with_label = isinstance(source, _Gan) and source.gan.classes is not None
    samples, fakes = ((real.x, real.label), (images, classes)) if with_label else (real.x, images)

    def refitted(method: Any, steps: int, features: Any = None) -> Fitted:
        begun = process_time()
        options: dict[str, Any] = {
            "steps": steps,
            "batch_size": 256,
            "held_out": 0.2,
            "seed": subject.seed,
            "progress": progress,
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "a ratio on .* features of images")  # what they do is the question here
            found = refit(samples, fakes, method, features=features, **options)

        def log_ratio(x: Any, label: Floats) -> Floats:
            return np.asarray(found((x, label) if with_label else x), dtype=np.float64)

        return Fitted(log_ratio, float(found.report.log_loss), process_time() - begun)

    few = max(effort.steps // 3, 1)
    ways: dict[str, Callable[[], Fitted]] = {
        "none": lambda: Fitted(lambda x, label: np.zeros(len(label)), float("nan"), 0.0),
        "pixels": lambda: refitted(Network("cnn"), few),
        "gradients": lambda: refitted(Network(width=96, waves=0), effort.steps, "gradients"),
    }
    if subject.look is not None:
        ways["features"] = lambda: refitted(Network(width=96, waves=0), effort.steps, subject.look.features)
        ways["outputs"] = lambda: refitted(Network(width=96, waves=0), effort.steps, subject.look)
    if isinstance(source, _Gan):
        head = Logit(source.gan.critic)
        ways["own"] = lambda: Fitted(partial(_scores, head, with_label), float("nan"), 0.0)
        rate = _TUNED.get(subject.name.rpartition("-")[0])
        ways["tuned"] = lambda: refitted(FineTune(head) if rate is None else FineTune(head, rate), few)
    return {name: ways[name]() for name in which if name in ways}


def distances(
    subject: Subject,
    scores: Floats,
    budgets: Sequence[float],
    rules: Sequence[str] = ("obrs", "drs"),
    constants: Sequence[str] = ("global", "class", "shares"),
) -> dict[str, Any]:
    """Return Fréchet distances by kind of constant, judge, and "rule budget": value, change, standard error of it.

    The kinds are keys of `CONSTANTS`, or "calibrated": one constant after calibration by class.

    Shares that differ much from those of the proposals need more than a small budget; those budgets are left out.
    """
    cells: dict[str, Any] = {}
    for constant in constants:
        cells[constant] = {}
        for judge, x in subject.spread.items():
            own, labels = _scored(subject, scores, constant, len(x))
            shares = subject.shares if constant == "shares" else None
            some = [k for k in budgets if _can(own, k, labels, shares)]
            found = weightings(own, (1, *some), rules, labels, shares if some else None)
            curve = frechet_curve(real=subject.truth[judge], fake=x, weights=found)
            cells[constant][judge] = {
                f"{rule} {budget:g}": [float(curve.value[line]), *_change(curve, line)]
                for line, (rule, budget) in enumerate(found.keys)
            }
    return cells


def _scored(subject: Subject, scores: Floats, constant: str, n: int) -> tuple[Floats, Floats | None]:
    """Return the scores of the first n proposals, and their labels if there is a constant for each."""
    labels = subject.labels[:n]
    if constant == "calibrated":
        return calibrated(scores[:n], labels, subject.shares), None
    return scores[:n], None if constant == "global" else labels


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


def _change(curve: Any, line: int) -> list[float]:
    change = curve.difference(line, 0)
    return [change.value, change.standard_error]


def _can(scores: Floats, budget: float, labels: Any, shares: Any) -> bool:
    """Tell whether these shares can be kept at this budget."""
    if shares is None:
        return True
    try:
        weightings(scores, (1, budget), ("obrs",), labels, shares)
    except BudgetError:
        return False
    return True


def neighbour_cells(subject: Subject, scores: Floats, rates: Sequence[float], constant: str, n: int) -> dict[str, Any]:
    """Return precision and recall, k = 5, of every rule and rate, of n proposals and real images.

    Each is a list: value, change, standard error of the change. Recall compares at equal n, which is under "size".
    """
    judge = next(iter(subject.spread))
    n = min(n, len(subject.spread[judge]))
    own, labels = _scored(subject, scores, constant, n)
    found = weightings(own, (1, *(1 / rate for rate in rates)), ("obrs", "drs"), labels)
    size = int(min(rates) * n)
    real, fake = subject.truth[judge][:n], subject.spread[judge][:n]
    curves = neighbour_curves(real=real, fake=fake, weights=found, k=5, size=size, draws=4)
    out: dict[str, Any] = {}
    for line, (rule, budget) in enumerate(found.keys):
        metrics = {metric: curves[metric] for metric in ("precision", "recall")}
        out[f"{rule} {budget:g}"] = {
            metric: [float(one.value[line]), *_change(one, line)] for metric, one in metrics.items()
        }
    return out | {"size": size}


def sheet(subject: Subject, scores: Floats, constant: str, n: int) -> dict[str, Any]:
    """Return the first n proposals of the pool as text, and which of them are kept at one half."""
    if constant == "global":
        log_a = Budgeted.fit(scores, 2.0)(scores[:n])
    else:
        log_a = Grouped.fit(scores, 2.0, subject.labels)(scores[:n], subject.labels[:n])
    kept = accept(log_a, np.arange(n), seed=1)
    return {"shape": list(subject.pool.shape[1:]), "sheet": as_text(subject.pool[:n]), "kept": kept.tolist()}


class _Gan:
    """A committed GAN as a source of proposals with labels."""

    def __init__(self, gan: ImageGan) -> None:
        self.gan = gan

    def propose(self, ids: Any) -> tuple[Any, Floats]:
        """Return images and their labels."""
        made = [self.gan.propose(ids[at : at + _BLOCK], seed=_SEED) for at in range(0, len(ids), _BLOCK)]
        images, labels = (torch.cat(column) for column in zip(*made, strict=True))
        return images, np.asarray(labels.numpy())


class _Vae:
    """A small VAE of 28x28 images, trained here; a label is the class that a classifier sees."""

    latent, steps = 16, 1500

    def __init__(self, real: Floats, seed: int, look: Any) -> None:
        with own_noise() as reseed:
            reseed(derived(seed, "vae"))
            self.encoder, self.decoder = mlp((784, 256, 2 * self.latent)), mlp((self.latent, 256, 784))
            optimiser = torch.optim.Adam([*self.encoder.parameters(), *self.decoder.parameters()], lr=2e-3)
            x = torch.as_tensor(real)
            for step in range(self.steps):
                optimiser.param_groups[0]["lr"] = 2e-3 * (1 - step / self.steps)
                batch = x[torch.randint(len(x), (256,))].flatten(1)
                mean, log_sd = self.encoder(batch).chunk(2, dim=1)
                logits = self.decoder(mean + log_sd.exp() * torch.randn_like(mean))
                target = (batch + 1) / 2
                miss = functional.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1)
                cost = (mean**2 + (2 * log_sd).exp() - 1 - 2 * log_sd).sum(1) / 2
                optimiser.zero_grad()
                (miss + cost).mean().backward()
                optimiser.step()
        self.look = look

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def propose(self, ids: Any) -> tuple[Any, Floats]:
        """Return the means of images, and the classes that they look like."""
        z = normals(ids, self.latent, seed=_SEED, like=torch.empty(0))
        images = torch.tanh(self.decoder(z) / 2).reshape(-1, 1, 28, 28)
        return images, np.asarray(self.look.predict(images))


class Logit(nn.Module):  # type: ignore[misc]
    """The last output of a critic; if it has two, that is the one which is trained with the logistic loss."""

    def __init__(self, critic: nn.Module) -> None:
        super().__init__()
        self.critic = critic

    def forward(self, x: Any, label: Any = None) -> Any:
        found = self.critic(x) if label is None else self.critic(x, label)
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
    here = next(head.parameters()).device
    found = [head(images.to(here), classes.to(here) if with_label else None).cpu() for images, classes in blocks]
    return np.asarray(torch.cat(found).double().numpy())
