"""Who proposes, who scores and who judges in the image experiments.

Images have one use each, see `image_gans.parts`: the generator is trained on some, the ratio on others, the features of
the ratio on a third part, the judge on a fourth; the real images of every distance are the test set. A `Subject` is a
generator with its pool and its judges. `fit_ratios` fits what is compared to it. For `distances` every kind of
constant, rule and budget is a weighting of one pool, so that they compare with paired errors.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import nn

from obrs._text import lookup
from obrs.draws import accept
from obrs.errors import InputError
from obrs.fitting.seeds import derive, own_noise
from obrs.metrics.features import extract, inception_v3
from obrs.metrics.frechet import frechet_curve
from obrs.metrics.neighbours import neighbour_curves
from obrs.metrics.weightings import Weightings, weightings
from obrs.models.classifier import Classifier, fit_classifier
from obrs.ratios.refit import FineTune, Network, refit
from obrs.tuning import tune

from .image_gans import SEED, ImageGan, Labelled, parts
from .image_sheet import JUDGES, as_text
from .nets.cifar import CifarClassifier, load_unit
from .record import Checked, Numbers

__all__ = ["Effort", "Fitted", "Judging", "Logit", "Subject", "calibrate", "committed_judge", "distances"]
__all__ += ["fit_ratios", "fit_tune", "inception_features", "neighbour_cells", "prepare", "propose", "see"]
__all__ += ["select_inputs", "sheet", "subject_of", "swap_gan", "swap_pool"]

_FRESH = 1 << 40  # ids of proposals that are in no pool
_TUNED = {"celeba": 4e-5}  # rates at which critics of BigGANs are trained further, from the authors' scripts
_COMPONENTS = 64
_BLOCK = 1000  # images at a time
Judge = Callable[[Any], Numbers]


@dataclass(frozen=True)
class Effort:
    """How much is spent on networks."""

    fakes: int  # proposals that ratios are fitted on; they are in no pool
    steps: int  # updates of a ratio on features; of a critic, which cost more, a third
    epochs: int  # passes of the classifiers over their images; on the few digits, ten times as many


@dataclass(frozen=True)
class Judging(Checked):
    """What the configurations of the two experiments on trained models share."""

    unchecked: ClassVar[tuple[str, ...]] = ("judged", "shown")
    rates: tuple[float, ...] = (0.75, 0.5, 0.25)  # shares of the proposals that are kept
    pool: int = 10_000  # proposals of each model
    neighbours: int = 10_000  # how many of them, and of real images, precision and recall are for
    judged: int = 4_000  # proposals, and real images, that the second judge looks at; 0 leaves it out
    second: str = "efficientnet_lite0"  # the second judge, see `subject_of`; the only one if the data have no labels
    shown: int = 42  # images on the sheet of the first model
    steps: int = 800  # these two: see `Effort`
    epochs: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0 < rate < 1 for rate in self.rates):
            raise InputError(f"rates must be between 0 and 1, got {list(self.rates)}; 1 is always there")
        lookup(JUDGES, self.second.partition("=")[0], "judge")


@dataclass(frozen=True, eq=False)
class Subject:
    """A generator with all that it takes to judge it."""

    name: str  # as in a configuration, "fashion_mnist-0"
    seed: int  # its number, and the seed of the networks that look at it
    split: Mapping[str, Labelled]  # the parts of its data
    look: Any  # the classifier whose outputs ratios see, None if the data have no labels
    judges: Mapping[str, Judge]  # from images to the features of each judge
    truth: Mapping[str, Numbers]  # what each judge sees of the test images
    seconds: float  # CPU seconds that the classifier of the ratio took
    source: Any = None  # what proposes, an `ImageGan` or another model
    pool: Any = ()  # its proposals
    labels: Any = ()  # their classes
    spread: Mapping[str, Numbers] = field(default_factory=dict)  # what each judge sees of the pool, or its first part


class Fitted(NamedTuple):
    """A ratio: log-ratios of images and labels, its log-loss on held-out samples, and what it cost in CPU seconds."""

    log_ratio: Callable[[Any, Numbers], Numbers]
    log_loss: float
    seconds: float


def subject_of(
    name: str,
    split: Mapping[str, Labelled],
    effort: Effort,
    *,
    judged: int,
    second: str = "efficientnet_lite0",
    width: int = 32,
    progress: bool | None = None,
) -> Subject:
    """Fit the classifiers of a data set: that of the ratios, and a judge that no ratio saw; `swap_pool` does the rest.

    Args:
        name: The data set and the seed of the classifiers, "fashion_mnist-0" or the like. That of CIFAR-10 has a
            committed judge, which saw the images of the generators only.
        split: The parts of the data. Without labels there is no classifier, and the second judge is the only one.
        judged: Images that the second judge looks at, the first of those it is given; 0 leaves it out.
        second: The second judge, a key of `JUDGES`, or `inception_v3=FILE` with the weights of torch-fidelity.
        width: Of the classifier that ratios look through.
    """

    def classifier(part: str, width: int, features: int) -> Any:
        (x, labels), start = split[part], derive(seed, part)
        with own_noise() as reseed:
            reseed(start)
            net = Classifier(x.shape[2], x.shape[1], int(labels.max()) + 1, width=width, features=features)
        epochs = effort.epochs * (10 if len(x) < 1000 else 1)
        return fit_classifier(x, labels, network=net, epochs=epochs, seed=start, progress=progress)

    data, _, number = name.rpartition("-")
    begun, seed, labelled = process_time(), int(number), split["features"].label is not None
    look = classifier("features", width, 128) if labelled else None
    seconds, judges = process_time() - begun, dict[str, Judge]()
    if data == "cifar10":
        judges["classifier"] = committed_judge()
    elif labelled:
        judges["classifier"] = partial(see, classifier("judge", 16, 64).features)
    if judged:
        title, _, weights = second.partition("=")
        features: Any = inception_features(weights) if weights else title
        components = None if title == "inception_v3" else split["judge"].x
        judges[title] = _second_judge(features, judged, components, progress)
    if not judges:
        raise InputError("without labels the second judge is the only one: judged must be at least 1")
    truth = {key: judge(split["test"].x) for key, judge in judges.items()}
    return Subject(name, seed, split, look, judges, truth, seconds)


def prepare(name: str, effort: Effort, gan: ImageGan, *, pool: int, home: str = "", **judging: Any) -> Subject:
    """Return a generator with so many proposals, and judges by `subject_of`; `home` is a folder with your own data."""
    return swap_gan(subject_of(name, parts(name.rpartition("-")[0], home), effort, **judging), gan, pool)


def swap_pool(subject: Subject, source: Any, images: Any, labels: Any) -> Subject:
    """Return the same judges and data with the proposals of some generator."""
    spread = {key: judge(images) for key, judge in subject.judges.items()}
    return replace(subject, source=source, pool=images, labels=np.asarray(labels), spread=spread)


def swap_gan(subject: Subject, gan: ImageGan, n: int | None = None) -> Subject:
    """Return the same judges and data with n proposals of a generator, by default as many as there were."""
    return swap_pool(subject, gan, *propose(gan, np.arange(len(subject.pool) if n is None else n)))


def propose(source: Any, ids: Any) -> tuple[Any, Numbers]:
    """Return the images with these ids and their labels, block by block."""
    batches = [source.propose(ids[at : at + _BLOCK], seed=SEED) for at in range(0, len(ids), _BLOCK)]
    images, labels = (torch.cat(column) for column in zip(*batches, strict=True))
    return images, np.asarray(labels.numpy())


# Judges


def committed_judge(*, half: bool = True) -> Judge:
    """Return the features of the committed classifier of CIFAR-10; `half` computes them in bfloat16."""
    net = CifarClassifier()
    load_unit("classifier-0", {"classifier": net})
    return partial(see, net.eval().features, half=half)


def inception_features(weights: str) -> Callable[[Any], Any]:
    """Return the 2048 features of Inception-v3 as torch-fidelity computes them, from its file of weights."""
    if not Path(weights).is_file():
        raise InputError(f"there is no {weights}; it must be the Inception-v3 of torch-fidelity, pt_inception-*.pth")
    return lambda x: inception_v3((x + 1) * 127.5, weights=weights)


def _second_judge(features: Any, judged: int, real: Any, progress: bool | None) -> Judge:
    """Return named features of the first images, or the principal components of real images in them.

    A Fréchet distance of 1280 features needs more samples than rejection keeps of some thousands. The components are
    fitted on images that are in no distance.
    """

    def embed(images: Any) -> Numbers:
        return np.asarray(extract(np.asarray(images[:judged]), features, progress=progress), dtype=np.float64)

    if real is None:
        return embed
    x = embed(real)
    mean = x.mean(axis=0)
    basis = np.linalg.svd(x - mean, full_matrices=False)[2][:_COMPONENTS].T
    return lambda images: np.asarray((embed(images) - mean) @ basis)


@torch.no_grad()  # type: ignore[untyped-decorator]
def see(features: Callable[..., Any], x: Any, *labels: Any, half: bool = False) -> Numbers:
    """Return what a network makes of images, and maybe labels, block by block; `half` computes in bfloat16."""
    blocks = zip(*(torch.as_tensor(column).split(_BLOCK) for column in (x, *labels)), strict=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        return np.asarray(torch.cat([features(*block).float() for block in blocks]).numpy())


# Ratios


class Logit(nn.Module):  # type: ignore[misc]
    """The last output of a GAN's critic; if it has two, that is the one which is trained with the logistic loss."""

    def __init__(self, gan: ImageGan) -> None:
        super().__init__()
        self.critic, self.half = gan.critic.to(memory_format=torch.channels_last) if gan.half else gan.critic, gan.half

    def forward(self, x: Any, label: Any = None) -> Any:
        x = x.contiguous(memory_format=torch.channels_last) if self.half else x
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            logit = (self.critic(x) if label is None else self.critic(x, label)).float()
        return logit if logit.ndim == 1 else logit[:, -1]


def select_inputs(source: Any, x: Any, label: Any) -> Any:
    """Return images as a ratio of this generator takes them: with their labels if the generator has labels."""
    return x if source.classes is None else (x, label)


def fit_ratios(
    subject: Subject, effort: Effort, which: Sequence[str], *, progress: bool | None = None
) -> dict[str, Fitted]:
    """Fit ratios to a GAN, keys of `RATIOS`; where the generator takes labels, so does the ratio."""
    gan, real = subject.source, subject.split["ratio"]
    fakes = select_inputs(gan, *propose(gan, np.arange(_FRESH, _FRESH + effort.fakes)))  # made once, for all ratios

    def critic_logit() -> Fitted:
        head, columns = Logit(gan), 1 if gan.classes is None else 2
        return Fitted(lambda *x: see(head, *x[:columns]).astype(np.float64), float("nan"), 0.0)

    def fit_method(method: Any, steps: int, features: Any = None) -> Fitted:
        begun = process_time()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "a ratio on .* features of images")  # what they do is the question here
            fit: Any = {"steps": steps, "batch_size": 256, "held_out": 0.2, "seed": subject.seed, "progress": progress}
            ratio = refit(select_inputs(gan, *real), fakes, method, features=features, **fit)
        loss, seconds = float(ratio.report.log_loss), process_time() - begun
        return Fitted(lambda *x: np.asarray(ratio(select_inputs(gan, *x)), dtype=np.float64), loss, seconds)

    few, rate = max(effort.steps // 3, 1), _TUNED.get(subject.name.rpartition("-")[0])
    ways: dict[str, Callable[[], Fitted]] = {
        "own": critic_logit,
        "tuned": lambda: fit_method(FineTune(Logit(gan)) if rate is None else FineTune(Logit(gan), rate), few),
        "outputs": lambda: fit_method(Network(width=96, waves=0), effort.steps, subject.look),
        "gradients": lambda: fit_method(Network(width=96, waves=0), effort.steps, "gradients"),
    }
    return {name: ways[name]() for name in which if name in ways}


def fit_tune(
    subject: Subject, which: Sequence[str], *, budget: float, pool: int, progress: bool | None = None
) -> tuple[Numbers, str, dict[str, Any]]:
    """Return the scores and the constants that `obrs.tune` chose at a budget, and what it says of them.

    It gets some parts of the data, keys of `PARTS`, and weighs a pool of so many proposals.
    """
    gan, some = subject.source, [subject.split[part] for part in which]
    x, y = np.concatenate([part.x[:] for part in some]), np.concatenate([part.label for part in some])
    tuned = tune(
        select_inputs(gan, x, y),
        lambda ids: select_inputs(gan, *propose(gan, ids)),
        budget=budget,
        critic=Logit(gan),
        pretrained=(),  # one of the judges would be among the candidates
        pool=pool,
        seed=subject.seed,
        progress=progress,
    )
    scores = np.asarray(tuned.log_ratio(select_inputs(gan, np.asarray(subject.pool), subject.labels)), dtype=np.float64)
    constant = "class" if tuned.recipe is not None and "per class" in tuned.recipe.constants else "global"
    facts = {"log_loss": None, "seconds": tuned.seconds, "recipe": str(tuned.recipe), "confirmed": tuned.confirmed}
    return scores, constant, facts


# What is measured


def distances(
    subject: Subject,
    scores: Numbers,
    budgets: Sequence[float],
    rules: Sequence[str] = ("obrs", "drs"),
    constants: Sequence[str] = ("global", "class"),
) -> dict[str, Any]:
    """Return Fréchet distances by kind of constant, judge, and "rule budget": value, change, standard error of it."""
    cells: dict[str, Any] = {constant: {} for constant in constants}
    for constant in constants:
        for judge, x in subject.spread.items():
            pool = _weigh(subject, scores, constant, len(x), budgets, rules)
            curve = frechet_curve(real=subject.truth[judge], fake=x, weights=pool)
            cells[constant][judge] = _list_changes(pool, curve)
    return cells


def neighbour_cells(
    subject: Subject, scores: Numbers, rates: Sequence[float], constant: str, n: int, judge: str = "classifier"
) -> dict[str, Any]:
    """Return precision and recall, k = 5, by a judge, of every rule and rate, of n proposals and real images.

    Each is a list: value, change, standard error of the change. Recall compares at equal n, which is under "size".
    """
    judge = judge if judge in subject.spread else next(iter(subject.spread))
    n = min(n, len(subject.spread[judge]))
    size = int(min(rates) * n)
    pool = _weigh(subject, scores, constant, n, [1 / rate for rate in rates], ("obrs", "drs"))
    real, fake = subject.truth[judge][:n], subject.spread[judge][:n]
    curves = neighbour_curves(real=real, fake=fake, weights=pool, k=5, size=size, draws=4)
    cells = {metric: _list_changes(pool, curves[metric]) for metric in ("precision", "recall")}
    return {key: {metric: cells[metric][key] for metric in cells} for key in cells["recall"]} | {"size": size}


def sheet(subject: Subject, scores: Numbers, constant: str, n: int) -> dict[str, Any]:
    """Return the first n proposals of the pool as text, and which of them are kept at one half."""
    a = _weigh(subject, scores, constant, len(scores), (2.0,), ("obrs",)).weights[1, :n]
    kept = accept(np.log(a), np.arange(n), seed=1)
    return {"shape": list(subject.pool.shape[1:]), "sheet": as_text(subject.pool[:n]), "kept": kept.tolist()}


def _weigh(
    subject: Subject, scores: Numbers, constant: str, n: int, budgets: Sequence[float], rules: Sequence[str]
) -> Weightings:
    """Return how likely the first n proposals are kept, with a kind of constant."""
    labels, log_ratio = subject.labels[:n], scores[:n]
    if constant == "calibrated":
        log_ratio = calibrate(log_ratio, labels, np.bincount(subject.split["ratio"].label))
    return weightings(log_ratio, (1, *budgets), rules, labels if constant == "class" else None)


def _list_changes(pool: Weightings, curve: Any) -> dict[str, list[float]]:
    """Return value, change and its standard error of every rule and budget."""
    changes = [curve.difference(line, 0) for line in range(len(pool.keys))]
    values = zip(pool.keys, curve.value, changes, strict=True)
    return {f"{rule} {k:g}": [float(value), by.value, by.standard_error] for (rule, k), value, by in values}


def calibrate(scores: Numbers, labels: Numbers, counts: Numbers) -> Numbers:
    """Return log-ratios whose mean ratio in each class is the share of the class in the data over that of the pool.

    Example:
        >>> np.exp(calibrate(np.log([1.0, 3.0, 5.0, 5.0]), np.array([0, 0, 1, 1]), np.array([1, 1]))).round(3).tolist()
        [0.5, 1.5, 1.0, 1.0]
    """
    result = np.array(scores, dtype=np.float64)
    for label, share in enumerate(counts / counts.sum()):
        member = labels == label
        result[member] += np.log(share / member.mean()) - np.log(np.mean(np.exp(result[member])))
    return result
