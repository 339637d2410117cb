"""Checks of a telescope that do not rest on its bridges: a rival classifier, and a control with a known answer.

The loss of a bridge says nothing about what the bridge misses, and nothing about how errors add up. So two other fits
are made.

- A rival: one classifier between the data and the model. No log-ratio has a lower expected log-loss than the true one,
  so if the sum of the bridges has a higher one than the rival, the sum is wrong. If the sets are so far apart that the
  rival makes no errors, both losses are 0 and show nothing; then there are two rivals, one between the data and the
  farthest waymark that it can be confused with, and one between the model and such a waymark.
- A control, if the sets are that far apart: the same telescope is fitted, from as many samples, to two distributions
  that are known. What it finds of their divergence shows its error at such a distance. They are mixtures of Gaussians,
  each with the shape of one set; where one Gaussian each is enough, or samples have many numbers, Gaussians as far
  apart as the telescope says that the data and the model are, along the directions in which those differ.

References:
    | Telescoping Density-Ratio Estimation (Rhodes et al., 2020)
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf, isfinite, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from .evidence import ERRORS, losses, mean_of_means
from .labelled import parts
from .methods import Fit, Network, blocks
from .task import Task, Tensor, prepare
from .waymarks import Waymark, common_axes

__all__ = ["Check", "Twins", "check_telescope", "control", "rivals", "twins"]

Bridges = Callable[[Any], Tensor]
Floats = np.ndarray[Any, Any]

_BLIND = 0.02  # nats of log-loss below which a classifier makes too few errors to judge another
_MEETS = 0.1  # nats of log-loss that a shorter span should have
_LOST = 0.1  # share of what the rival knows that a telescope may miss
_BIASED = 0.1  # share of the known divergence by which the control may be off
_CONTROL = 20000  # samples of the control at most
_FRESH = 4000  # samples on which it is judged
_NARROW = 1e-3  # least variance of an axis, of about 1 for both sets together
_SHAPED = 8  # numbers in a sample up to which the control has the shape of the sets
_SHAPE = 2000  # samples that the shape is taken from
_COMPONENTS = (1, 2, 4, 8)
_POOL = 2**16  # fakes of a control with shape; ids beyond get the same again


class Check(NamedTuple):
    """What a check found.

    Attributes:
        line: In one line.
        passed: Whether the telescope can be trusted as far as this check sees.
    """

    line: str
    passed: bool


def check_telescope(
    fit: Callable[[Task], Fit], scores: Bridges, rival: Network, task: Task, *, bridges: int
) -> tuple[Check, ...]:
    """Return what the rivals and, if the sets are far apart, the control say about a fitted telescope.

    Args:
        fit: Fits the same telescope to another task.
        scores: The log-ratios of its bridges, `(n, bridges)`.
        rival: A classifier of the same size.
        task: What the telescope was fitted to; the held-out samples of it are those to judge by.
        bridges: How many there are.
    """
    everything = (0, bridges)
    if _loss(scores, task, everything, bridges) >= _BLIND or bridges == 1:  # otherwise no rival does much better
        whole = rivals(scores, rival, task, everything, bridges)
        if whole.rival >= _BLIND or not whole.passed or bridges == 1:
            return (whole.check,)
    found = [rivals(scores, rival, task, span, bridges).check for span in _spans(scores, task, bridges)]
    claim = float(blocks(lambda x: scores(x).sum(1), task.held_real).double().mean())
    if isfinite(claim) and claim > 0:
        found.append(control(fit, claim, task))
    return tuple(found)


class Span(NamedTuple):
    """A span of bridges, and a classifier between its ends.

    Attributes:
        first, last: The waymarks at its ends.
        bridges: How many bridges there are in all.
        telescope, rival: Held-out log-losses.
        error: Standard error of their difference.
    """

    first: int
    last: int
    bridges: int
    telescope: float
    rival: float
    error: float

    @property
    def passed(self) -> bool:
        """Whether the bridges miss no more than a little of what the rival knows, or than chance explains."""
        gap = self.telescope - self.rival
        return not gap > max(_LOST * (log(2) - self.rival), ERRORS * self.error)

    @property
    def check(self) -> Check:
        loss = f"held-out log-loss {self.telescope:.3f}, one classifier {self.rival:.3f}"
        where = "the model and the data"
        if (self.first, self.last) != (0, self.bridges):
            ends = {0: "the model", self.bridges: "the data"}
            first, last = (ends.get(k, f"waymark {k} of {self.bridges}") for k in (self.first, self.last))
            where = f"{first} and {last}"
        if self.passed:
            return Check(f"between {where} the bridges have {loss}", True)
        use = (
            "use Network()" if self.last - self.first == self.bridges else "trust neither this ratio nor averages of it"
        )
        return Check(f"the bridges miss what one classifier sees between {where} ({loss}); {use}", False)


def rivals(scores: Bridges, rival: Network, task: Task, span: tuple[int, int], bridges: int) -> Span:
    """Fit one classifier between two waymarks, and compare it with the bridges between them on held-out samples."""
    own = _between(task.member(0), span, bridges)
    network = rival.fit(own).scorer
    both = [
        losses(*(blocks(score, x).double().cpu().numpy() for x in (own.held_real, own.held_fake)))
        for score in (_sum(scores, span), network)
    ]
    gap, error = mean_of_means(*(ours - theirs for ours, theirs in zip(*both, strict=True)))
    found = mean_of_means(*both[1]).value
    return Span(*span, bridges, telescope=found + gap, rival=found, error=error)


def _sum(scores: Bridges, span: tuple[int, int]) -> Callable[[Any], Tensor]:
    return lambda x: scores(x)[:, slice(*span)].sum(1)


def _between(task: Task, span: tuple[int, int], bridges: int) -> Task:
    """Return the task to tell two waymarks apart, without a file."""
    ends: list[Any] = [Waymark(task.real, task.fake, k, bridges) for k in span]
    near, far = ends
    held = [end.of(task.held_real, task.held_fake) for end in (far, near)]
    return replace(task, real=far, fake=near, held_real=held[0], held_fake=held[1], checkpoint=None)


def _loss(scores: Bridges, task: Task, span: tuple[int, int], bridges: int) -> float:
    """Return the held-out log-loss of the bridges of a span as a classifier between its ends."""
    own = _between(task, span, bridges)
    ends = (blocks(_sum(scores, span), x).double().cpu().numpy() for x in (own.held_real, own.held_fake))
    return mean_of_means(*losses(*ends)).value


def _spans(scores: Bridges, task: Task, bridges: int) -> list[tuple[int, int]]:
    """Return the longest span from the model and the longest to the data whose ends the bridges confuse."""
    lengths = range(bridges - 1, 1, -1)  # one bridge alone was fitted as a rival is
    sides = [[(0, n) for n in lengths], [(bridges - n, bridges) for n in lengths]]
    longest = (next((span for span in side if _loss(scores, task, span, bridges) >= _MEETS), None) for side in sides)
    return [span for span in longest if span is not None]


class Twins(NamedTuple):
    """Two distributions whose log-ratio is known.

    Attributes:
        kind: What they are called.
        sample: From a number and a seed to samples of the one in the place of the data, `(n, m)`.
        propose: From ids to samples of the one in the place of the model.
        log_ratio: Of samples.
    """

    kind: str
    sample: Callable[[int, int], Floats]
    propose: Callable[[Any], Any]
    log_ratio: Callable[[Floats], Floats]


def twins(real: Floats, fake: Floats, divergence: float, *, seed: int = 0) -> Twins:
    """Return two known distributions that stand for two sets of samples `(n, m)`.

    They are mixtures of Gaussians, each with as many components as its set needs. If one each is enough, or a sample
    has too many numbers for more, they are Gaussians with the given KL divergence. Axes should be those of
    `common_axes`.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(2, 2000, 1))
        >>> twins(z[0] + 3, z[1], 20.0).kind, twins(z[0] + 9 * np.sign(z[0]), z[1], 20.0).kind
        ('Gaussians', 'mixtures of Gaussians')
    """
    if real.shape[1] <= _SHAPED:
        of_real, of_fake = (_mixture(x[:_SHAPE], seed) for x in (real, fake))
        if len(of_real.weights_) + len(of_fake.weights_) > 2:
            pool = _drawn(of_fake, _POOL, seed + 2).astype(np.float32)
            return Twins(
                kind="mixtures of Gaussians",
                sample=lambda n, seed: _drawn(of_real, n, seed),
                propose=lambda ids: pool[np.asarray(ids) % len(pool)],
                log_ratio=lambda x: np.asarray(of_real.score_samples(x) - of_fake.score_samples(x)),
            )
    return _gaussians(*_apart(real, fake, divergence), seed)


def _mixture(x: Floats, seed: int) -> Any:
    """Return the mixture of Gaussians that the Bayesian information criterion prefers, of up to 8 components."""
    from sklearn.mixture import GaussianMixture

    best, least = None, inf
    for k in _COMPONENTS:
        fit = GaussianMixture(k, reg_covar=1e-4, random_state=seed % 2**32).fit(x)
        if (criterion := float(fit.bic(x))) >= least and k > 2:  # two of three modes may be no better than one
            break
        if criterion < least:
            best, least = fit, criterion
    return best


def _drawn(mixture: Any, n: int, seed: int) -> Floats:
    """Return n samples of a mixture in random order."""
    random = np.random.default_rng(seed)
    which = random.choice(len(mixture.weights_), size=n, p=mixture.weights_ / mixture.weights_.sum())
    roots = np.linalg.cholesky(mixture.covariances_)
    noise = random.standard_normal((n, mixture.means_.shape[1]))
    return np.asarray(mixture.means_[which] + np.einsum("nij,nj->ni", roots[which], noise))


def _gaussians(mean: Floats, variance: Floats, seed: int) -> Twins:
    """Return N(0, I) in the place of the model, and another Gaussian in that of the data."""
    from ..draws import normals

    def sample(n: int, seed: int) -> Floats:
        noise = np.random.default_rng(seed).standard_normal((n, len(mean)))
        return np.asarray(mean + np.sqrt(variance) * noise)

    def log_ratio(x: Floats) -> Floats:
        return np.asarray(((x**2 - (x - mean) ** 2 / variance - np.log(variance)) / 2).sum(1))

    return Twins("Gaussians", sample, lambda ids: normals(ids, len(mean), seed=seed + 2), log_ratio)


def _apart(real: Floats, fake: Floats, divergence: float) -> tuple[Floats, Floats]:
    """Return the mean and variances `(m,)` of a Gaussian with this divergence from N(0, I), from those of the sets.

    If the sets are farther apart, means and logarithms of variances are shrunk alike; if they are nearer, the mean is
    moved on.
    """
    (of_real, var_real), (of_fake, var_fake) = ((x.mean(0), x.var(0).clip(_NARROW)) for x in (real, fake))
    mean, spread = (of_real - of_fake) / np.sqrt(var_fake), np.log(var_real / var_fake)

    def divergence_at(share: float) -> float:
        return float((np.exp(share * spread) - 1 - share * spread + (share * mean) ** 2).sum() / 2)

    if (missing := divergence - divergence_at(1.0)) > 0:
        length = sqrt(float((mean**2).sum()))
        direction = mean / length if length > 0 else np.full(len(mean), 1 / sqrt(len(mean)))
        return direction * sqrt(length**2 + 2 * missing), np.exp(spread)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence_at(middle) < divergence else (low, middle)
    return high * mean, np.exp(high * spread)


def control(fit: Callable[[Task], Fit], claim: float, task: Task) -> Check:
    """Fit a telescope to a pair of a known divergence, and say how much of it was found.

    Args:
        fit: Fits the telescope to a task.
        claim: The divergence in nats that the telescope claims; Gaussians get the same.
        task: The task whose shapes, numbers of samples and steps are used.
    """
    import torch

    n, held, seed = min(task.real.size, _CONTROL), len(task.held_real), task.seed
    samples = [parts(x)[0].flatten(1) for x in task.pilot(n)]
    axes, _ = common_axes(*samples)
    real, fake = ((x @ axes).double().cpu().numpy() for x in samples)
    pair = twins(real, fake, claim, seed=seed)
    own = prepare(
        pair.sample(n + held, seed + 1),
        pair.propose,
        steps=task.steps,
        batch_size=task.batch_size,
        held_out=held / (n + held),
        seed=seed,
        progress=task.progress,
        checkpoint=None,
    )
    scorer = fit(own).scorer
    fresh = pair.sample(_FRESH, seed + 3)
    found = float(blocks(scorer, torch.as_tensor(fresh, dtype=torch.float32)).double().mean())
    truth = float(pair.log_ratio(fresh).mean())
    passed = abs(found - truth) <= _BIASED * truth
    line = f"control: between {pair.kind} {truth:.3g} nats apart this telescope finds {found:.3g}"
    return Check(line if passed else f"{line}, so do not rely on the divergence that it finds here", passed)
