"""Fit a log-ratio for any generator from real samples and samples of its own.

`refit` fits a classifier of real against fake samples, which `Network`, `FineTune` or `Head` builds; `FittedRatio` is
the result, with a `FitReport`. `load_ratio` reads it from a file.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from math import ceil, log, nan, prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from array_api_compat import is_torch_array

from .._arrays import array_like, host_view
from .._checks import check_count, check_positive, check_seed, is_number
from .._text import lookup
from ..errors import InputError, InputTypeError, MissingLibraryError

try:
    import torch
    from torch import nn
except ImportError as error:
    raise MissingLibraryError("refit needs torch: pip install 'obrs[torch]'") from error

from ..estimate import Estimate
from ..fitting.loop import FitRun, fit_best
from ..fitting.seeds import Shuffled, derive, own_noise
from ..fitting.tensors import first_difference, read_tensors, subset, write_tensors
from ..metrics.rows import row_hashes
from ..profile import removable_kl
from ..sampling.proposals import propose_batch, warn_of_train_mode
from ..types import Array
from .batch import Batch, Columns
from .evidence import class_means, losses, mean_of_means
from .features import Features, as_features, build_features, classifier_features, critic_features, probe_features

__all__ = ["METHODS", "FineTune", "FitReport", "FittedRatio", "Head", "Network", "load_ratio", "refit"]
__all__ += ["classifier_features", "critic_features", "probe_features"]

FIT_IDS = 2**40  # ids from here on are for fits; samples that are drawn later have lower ones
_FILE, _VERSION = "a file of a fitted ratio", 2
_FEWEST = 50  # held-out samples of each kind
_POOL = 10_000  # fakes, at least, that are drawn and looked at once if there are features
_PILOT = 8192  # samples of each kind that means and variances are computed from
_BLOCK = 4096  # samples at a time
_PROBE = 8  # fakes that are kept with the ratio
_SMALL = 8  # numbers in a sample up to which waves help and do not overfit
_MANY = 100  # features of images beyond which ratios did harm: their differences from a model are mostly details
_FLOOR = 0.1  # of the typical spread, where all numbers of a sample have one unit
_CHANNELS = (1, 3, 4)  # that an image has if they come last: grey, colour, colour with opacity
_SATURATED, _HARDLY = 0.02, 0.1  # nats of held-out log-loss
_USUAL = (2.0, 4.0, 8.0)  # budgets that a report speaks of

Tensor = Any


def refit(
    real: Any,
    propose: Any,
    method: Any = None,
    *,
    features: Any = None,
    columns: Columns = None,
    fits: int = 1,
    steps: int | None = None,
    batch_size: int | None = None,
    held_out: float = 0.1,
    seed: int = 0,
    progress: bool | None = None,
) -> "FittedRatio":
    """Fit log p/q with a classifier that tells real samples from the model's.

    A share of the real samples and as many fakes are held out: they decide when to stop and which weights are kept. The
    seed decides what torch draws, also inside `propose`. The ids of the proposals start at 2**40, so that samples which
    you draw later were not seen in the fit. Ctrl-C returns what is fitted so far.

    Samples may have labels, integers `(n,)`. Then `real`, what `propose` returns and what the fitted ratio takes are
    tuples (x, label), or mappings with `columns=("image", "label")`; critics, networks and features of your own are
    called with both. It is the ratio of both together, p(x, y) / q(x, y).

    Args:
        real: Samples `(n, ...)` of the target, an array of NumPy, torch or JAX; with labels a tuple or mapping.
        propose: Maps ids to samples of the model, `obrs.proposal(fn)` for a `fn(n)`; or an array of fakes. Every step
            gets new proposals. With `features`, a pool is drawn, and its features are computed once.
        method: `Network()` (the default), `FineTune(critic)` or `Head()`.
        features: What the ratio is a function of: a callable from a tensor of samples to features `(n, k)`, a torch
            module, `classifier_features(...)`, `probe_features(...)`, `critic_features(critic)`, or a name in
            `obrs.metrics.features.FEATURES`; None for the samples themselves. For images use some.
        columns: Keys of samples and labels, if batches are mappings.
        fits: Fits with different seeds, whose log-ratios are averaged; three vary less than one.
        steps, batch_size: Updates, and samples of each kind in one; by default those of the method.
        held_out: Share of the samples that is held out, between 0 and 1.
        seed: Decides initial weights and batches.
        progress: Show a bar; None on a terminal, and a line every 10 seconds where there is none.

    Returns:
        A callable log-ratio with a `report`. If the classifier separates the two sets, there is a warning.

    Example:
        >>> import obrs
        >>> real = np.random.default_rng(0).normal(1.0, 1.0, (2000, 1))
        >>> fitted = refit(real, lambda ids: obrs.normals(ids, 1, seed=1), Network(width=32), steps=200)
        >>> kept = obrs.sample(lambda ids: obrs.normals(ids, 1, seed=1), fitted, 1000, budget=4)
        >>> bool(0.7 < kept.x.mean() < 1.2)
        True
    """
    method = Network() if method is None else method
    if not isinstance(method, Network | FineTune | Head):
        got = f"the class {method.__name__}" if isinstance(method, type) else type(method).__name__
        raise InputTypeError(f"method must be one such as Network() or FineTune(critic), got {got}")
    if not is_number(held_out) or not 0 < held_out < 1:
        raise InputError(f"held_out must be a share between 0 and 1, got {held_out!r}")
    fits, seed, _ = check_count(fits, "fits"), check_seed(seed), check_positive(method.lr, "lr")
    warn_of_train_mode(propose)
    task = _prepare(real, propose, method, features, columns, (steps, batch_size), float(held_out), seed)
    done: list[tuple[RatioNetwork, FitRun]] = []
    while len(done) < fits and not (done and done[-1][1].stopped.startswith("interrupted")):
        done.append(_fit_one(method, task, derive(seed, "fit", len(done)) if done else seed, len(done), progress))
    networks, runs = zip(*done, strict=True)
    report = _report(method, task, networks, runs)
    if report.trouble:
        warnings.warn(report.trouble, stacklevel=2)
    counts = None if task.labels is None else (task.labels[:, None] == task.real.y).sum(1).double()
    return FittedRatio(
        networks=networks,
        shape=task.probe.shape,
        report=report,
        probe=task.probe,
        columns=None if columns is None else tuple(columns),
        labels=task.labels,
        shares=None if counts is None else counts / counts.sum(),
        seen=row_hashes(Batch.read(real, columns).x.cpu()),
        encoder=task.features,
    )


@dataclass(frozen=True, eq=False)
class _Task:
    """The samples of a fit or their features, those that are held out, and the number and size of its steps.

    `fake` may be a function from the number of the fit, a step and a count to fakes; `kind` is what an error calls
    them. `probe` are a few fakes as they are, `labels` those that real samples have.
    """

    real: Batch
    fake: Batch | Callable[[int, int, int], Batch]
    held_real: Batch
    held_fake: Batch
    probe: Batch
    labels: Tensor | None
    features: Features | None
    kind: str
    steps: int
    batch_size: int

    def batches(self, seed: int, number: int) -> Callable[[int], tuple[Batch, Batch]]:
        """Return a function from a step to its real samples and fakes."""
        n, device, fake = self.batch_size, self.held_fake.device, self.fake
        real = _shuffle(self.real, n, seed, device)
        fakes = _shuffle(fake, n, seed + 1, device) if isinstance(fake, Batch) else lambda step: fake(number, step, n)
        return lambda step: (real(step), fakes(step))

    def known_labels(self) -> Tensor:
        """Return the distinct labels; none if the samples have no labels."""
        return torch.zeros(0, dtype=torch.int64) if self.labels is None else self.labels


def _shuffle(batch: Batch, n: int, seed: int, device: Any) -> Callable[[int], Batch]:
    """Return a function from a step to its n samples: all of them in random order, then all in another order."""
    order = Shuffled(len(batch), lambda epoch: np.random.default_rng((seed, epoch)).permutation(len(batch)))
    return lambda step: batch[torch.from_numpy(order.rows(step * n, step * n + n)).to(batch.device)].to(device)


def _prepare(
    real: Any, propose: Any, method: Any, features: Any, columns: Columns, length: Any, held_out: float, seed: int
) -> _Task:
    """Check both kinds of samples, compute their features if there are any, and hold a part of them out."""
    whole = Batch.read(real, columns, "real").check("real")
    if callable(propose):
        with own_noise() as reseed:
            reseed(derive(seed, "example"))
            example = Batch.read(propose_batch(propose, np.arange(FIT_IDS, FIT_IDS + 2)), columns, "propose")
    else:
        example = Batch.read(propose, columns, "propose").check("propose")
    labels = None if whole.y is None else torch.unique(whole.y).to(example.device)
    _check_alike(whole, example, labels)
    encoder = None if features is None else as_features(features)
    rows, held_rows = _split(len(whole), held_out, seed, "real")
    if encoder is not None:
        whole = whole.to(example.device).features(encoder).check("features of real")
        if len(example.shape) == 3 and whole.shape[0] > _MANY:
            advice = "made models worse in our experiments; use few, such as probe_features(images, labels, features)"
            warnings.warn(
                f"a ratio on {whole.shape[0]} features of images spends a budget on details: {advice}", stacklevel=3
            )
    usual = method.length["points" if prod(whole.shape) <= _SMALL else "others"]
    steps, size = (
        check_count(default if n is None else n, name)
        for n, default, name in zip(length, usual, ("steps", "batch_size"), strict=True)
    )
    kind = "propose" if encoder is None else "features of propose"

    def make(start: int, n: int) -> Batch:
        """Propose the samples with these ids, a batch at a time."""
        parts = []
        for at in range(start, start + n, size):
            part = Batch.read(propose_batch(propose, np.arange(at, min(at + size, start + n))), columns, "propose")
            _check_alike(example, part, labels)
            parts.append(part if encoder is None else part.features(encoder))
        return parts[0] if len(parts) == 1 else Batch.join(parts)

    fake: Any
    if callable(propose):
        held = len(held_rows)
        with own_noise(example.device) as reseed:
            reseed(derive(seed, "held out"))
            held_fake = make(FIT_IDS - held, held).check(kind)
            reseed(derive(seed, "held out"))
            probe = Batch.read(propose_batch(propose, np.arange(FIT_IDS - held, FIT_IDS - held + _PROBE)), columns)
            if encoder is None:
                fake = lambda number, step, n: make(FIT_IDS + (number * steps + step) * n, n)  # noqa: E731
            else:
                fake = make(FIT_IDS, min(max(_POOL, len(rows)), steps * size)).check(kind)
    else:
        fit_rows, held_fake_rows = _split(len(example), held_out, seed, "propose")
        seen = example if encoder is None else example.features(encoder).check(kind)
        fake, held_fake, probe = seen[fit_rows], seen[held_fake_rows], example[held_fake_rows[:_PROBE]]
    probe = Batch(probe.x.detach().clone(), probe.y)
    held_real = whole[held_rows].to(example.device)
    return _Task(whole[rows], fake, held_real, held_fake, probe, labels, encoder, kind, steps, size)


def _check_alike(real: Batch, fake: Batch, labels: Tensor | None) -> None:
    """Check that two sets of samples can be compared, and that fakes have labels that real samples have."""
    if real.shape != fake.shape:
        raise InputError(f"real has samples of shape {real.shape} and propose of {fake.shape}; make them alike")
    if real.x.is_floating_point() != fake.x.is_floating_point():
        both = f"real has dtype {real.x.dtype} and propose {fake.x.dtype}"
        raise InputTypeError(f"{both}: this alone would tell them apart; bring real to the scale of the model's")
    if real.device != fake.device and real.device.type != "cpu":
        raise InputError(f"real is on {real.device} and propose makes samples on {fake.device}; move one of them")
    if (real.y is None) != (fake.y is None):
        who = "real has labels and propose none" if fake.y is None else "propose makes labels and real has none"
        raise InputTypeError(f"{who}; make them alike: (x, label) or x")
    if labels is not None:
        _check_known(fake.y, labels, "propose")


def _check_known(y: Tensor, labels: Tensor, name: str) -> None:
    if len(extra := y[~torch.isin(y, labels)]):
        known = f"real has {len(labels)} labels, {int(labels[0])} to {int(labels[-1])}"
        raise InputError(f"{name} has labels that real never has, such as {int(extra[0])}; {known}")


def _split(n: int, share: float, seed: int, name: str) -> tuple[Any, Any]:
    """Return the rows to fit on and those to hold out."""
    held = round(n * share)
    if min(held, n - held) < _FEWEST:
        needed = ceil(_FEWEST / min(share, 1 - share))
        left = f"of which held_out={share:g} leaves {held} to stop by, and {_FEWEST} are needed"
        raise InputError(f"{name} has {n} samples, {left}: give at least {needed} samples or another held_out")
    rows = torch.from_numpy(np.random.default_rng((seed, 2**32)).permutation(n))
    return torch.sort(rows[held:])[0], torch.sort(rows[:held])[0]


def _fit_one(method: Any, task: _Task, seed: int, number: int, progress: bool | None) -> "tuple[RatioNetwork, FitRun]":
    """Build the network of a method and train it with the logistic loss."""
    batches = task.batches(seed, number)
    with own_noise(task.held_fake.device) as seed_torch:

        def reseed(step: int) -> None:
            seed_torch(int(np.random.SeedSequence((seed, step + 1)).generate_state(1, np.uint64)[0]))

        pilot = []
        for step in range(ceil(_PILOT / task.batch_size)):
            reseed(step)
            pilot.append(batches(step))
        reseed(-1)
        network = method.build(task, *(Batch.join(kind) for kind in zip(*pilot, strict=True)))
        frozen = [part for part in network.modules() if {p.requires_grad for p in part.parameters()} == {False}]

        def loss(module: Any, step: int) -> Tensor:
            reseed(step)
            for part in frozen:  # no running means, no dropout, no singular vectors that move on
                part.eval()
            real, fake = batches(step)
            # one forward pass for both kinds, so that batch norm cannot tell them apart by the batch they are in
            score = Batch.join([real, fake]).call(module)
            value = _logistic_loss(score[: len(real)], score[len(real) :])
            if not bool(value.isfinite()):
                fake.check(task.kind)
            return value

        def held_out_loss(module: Any) -> float:
            real, fake = (_scores(module, held).double() for held in (task.held_real, task.held_fake))
            return float(_logistic_loss(real, fake))

        run = fit_best(network, loss, held_out_loss, steps=task.steps, lr=method.lr, progress=progress)
    return network, run


def _logistic_loss(score_real: Tensor, score_fake: Tensor) -> Tensor:
    """Return the log-loss of a classifier, each kind with weight one half, however many samples there are of it.

    Over all functions the minimum is at log p/q, so the prior needs no correction.
    """
    return (nn.functional.softplus(-score_real).mean() + nn.functional.softplus(score_fake).mean()) / 2


def _scores(network: Any, batch: Batch) -> Tensor:
    """Score many samples in blocks; with a gradient only if the samples require one."""
    with torch.set_grad_enabled(torch.is_grad_enabled() and batch.x.requires_grad):
        return torch.cat([block.call(network) for block in batch.blocks(_BLOCK) or [batch]])


class RatioNetwork(nn.Module):  # type: ignore[misc]
    """A network with what it needs around it: standardised inputs, waves, and labels as numbers.

    Its form is "own", called with samples as they are, "mlp" or "head", with rows of numbers, or "cnn", with images.
    """

    def __init__(self, network: Any, form: str, **buffers: Tensor) -> None:
        super().__init__()
        self.network, self.form = network, form
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def start_at_chance(self) -> "RatioNetwork":
        """Make the last layer answer log r = 0, so that the weights of an early stop are no worse than chance."""
        torch.nn.init.zeros_(self.network[-1].weight)
        torch.nn.init.zeros_(self.network[-1].bias)
        return self

    @property
    def spec(self) -> dict[str, Any]:
        """What rebuilds it, together with the tensors of `state_dict`."""
        return {"form": self.form, "network": getattr(self.network, "spec", None), "class": type(self.network).__name__}

    def forward(self, x: Tensor, y: Tensor = None) -> Tensor:
        """Return one score per sample, shape `(n,)`."""
        from ..models.mlp import add_waves

        x = x.float()
        if self.form == "own":
            score = Batch(x, y).call(self.network)
        elif self.form == "cnn":
            x = (x - self.shift) / self.scale
            images = x.movedim(-1, 1) if hasattr(self, "channels_last") else x
            score = self.network(images) if y is None else self.network(images, torch.searchsorted(self.labels, y))
        else:
            rows = (x - self.shift) @ self.whiten if self.form == "head" else (x - self.shift) / self.scale
            rows = add_waves(rows, self.waves) if hasattr(self, "waves") else rows.flatten(1)
            if y is not None:
                rows = torch.cat([rows, (y[:, None] == self.labels).float()], dim=1)
            score = self.network(rows)
        if tuple(score.shape) not in {(len(x),), (len(x), 1)}:
            shapes = f"({len(x)},) or ({len(x)}, 1), got {tuple(score.shape)}"
            raise InputError(f"the network must return one score per sample, {shapes}")
        return score.reshape(len(x))


@dataclass(frozen=True, eq=False)
class Network:
    """Train a new network from scratch, on standardised samples; for one of your own use `FineTune`.

    With labels, the mlp gets one more input for each of them; the cnn gets a part of its last layer for each of them, a
    projection. By default points, of up to 8 numbers, get 3000 steps of 512 samples, others 800 of 256.

    Args:
        network: "mlp", "cnn" for images `(channels, side, side)` or `(side, side, channels)`, or None: a cnn for
            images, otherwise an mlp.
        width: Units in a hidden layer of the mlp, or channels in the first layer of the cnn.
        layers: Hidden layers of the mlp.
        waves: For points, the mlp also gets the sine and cosine of this many random projections of the sample. They
            help it to find thin modes. 0 for none.
        lr: Learning rate.

    References:
        | Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains (Tancik et al., 2020)
        | cGANs with Projection Discriminator (Miyato & Koyama, 2018)
    """

    network: str | None = None
    width: int | None = None
    layers: int = 3
    waves: int = 64
    lr: float = 3e-3

    length: ClassVar = {"points": (3000, 512), "others": (800, 256)}  # steps and batch size

    def __post_init__(self) -> None:
        check_count(self.layers, "layers")
        check_count(self.waves, "waves", least=0)
        if self.width is not None:
            check_count(self.width, "width")
        if self.network is not None:
            lookup({"mlp": 0, "cnn": 0}, self.network, "network")

    def build(self, task: _Task, real: Batch, fake: Batch) -> RatioNetwork:
        """Build the network for these samples."""
        form = self.network or ("cnn" if _image(real.shape) else "mlp")
        x = torch.cat([real.x, fake.x]).float()
        return self._cnn(task, x) if form == "cnn" else self._mlp(task, x)

    def _mlp(self, task: _Task, x: Tensor) -> RatioNetwork:
        from ..models.mlp import mlp, random_waves

        shift, scale = _standard_scale(x)
        buffers = {"shift": shift, "scale": scale}
        numbers = prod(x.shape[1:])
        inputs = numbers + len(labels := task.known_labels())
        if self.waves and numbers <= _SMALL:
            with torch.random.fork_rng(devices=[]):
                buffers["waves"] = random_waves(numbers, self.waves).to(x)  # in cycles per standard deviation
            inputs += 2 * self.waves
        network = mlp([inputs, *[self.width or 128] * self.layers, 1], activation="silu")
        return RatioNetwork(network.to(x.device), "mlp", labels=labels, **buffers).start_at_chance()

    def _cnn(self, task: _Task, x: Tensor) -> RatioNetwork:
        from ..models.conv import ConvCritic

        shape = tuple(x.shape[1:])
        if (image := _image(shape)) is None:
            forms = "(channels, side, side) or (side, side, channels), at least 8 pixels a side"
            raise InputError(f'"cnn" needs square images {forms}, got samples of shape {shape}')
        channels, side = image
        buffers = {"shift": x.mean(), "scale": x.std()}
        if channels != shape[0]:
            buffers["channels_last"] = torch.tensor(True, device=x.device)
        labels = task.known_labels()
        network = ConvCritic(size=side, channels=channels, width=self.width or 32, classes=len(labels) or None)
        return RatioNetwork(network.to(x.device), "cnn", labels=labels, **buffers)


@dataclass(frozen=True, eq=False)
class FineTune:
    """Train a critic, or any network of your own, further. Its output becomes a log-ratio, whatever its loss was.

    The critic is copied, never changed. Its output `(n,)` or `(n, 1)` is read as a logit from the start. Layers whose
    parameters have `requires_grad=False` stay as they are, in evaluation mode; if all have, as a GAN may leave its
    critic, all are trained. By default 400 steps of 128 samples, which take minutes for images of 32 x 32.

    Args:
        critic: A torch module on the device of the proposals: `critic(x)`, or `critic(x, label)` for samples with
            labels.
        lr: Learning rate.

    References:
        | Discriminator Rejection Sampling (Azadi et al., 2019)
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024)
    """

    critic: Any
    lr: float = 2e-3

    length: ClassVar = {"points": (1000, 512), "others": (400, 128)}

    def build(self, task: _Task, real: Batch, fake: Batch) -> RatioNetwork:
        """Copy the critic, after a call with two samples."""
        critic, batch = self.critic, task.held_fake[:2]
        if not isinstance(critic, nn.Module):
            raise InputTypeError(f"critic must be a torch module, got {type(critic).__name__}")
        mode = critic.training
        try:
            with torch.no_grad():  # after a call, modules with old-style spectral norm can be copied, too
                Batch(batch.x.float(), batch.y).call(critic.eval())
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            kind, labelled = "features" if task.features is not None else "samples", batch.y is not None
            what = f"{kind} of shape {batch.shape} on {batch.device}{' with labels, (x, label)' if labelled else ''}"
            raise InputError(f"critic cannot take {what}: {str(error).strip().splitlines()[0]}") from error
        finally:
            critic.train(mode)
        copy = deepcopy(critic)
        trained = any(p.requires_grad for p in copy.parameters())
        return RatioNetwork(copy if trained else copy.requires_grad_(True), "own")


@dataclass(frozen=True, eq=False)
class Head:
    """A logistic regression on the `features` of `refit`: it takes seconds and hardly overfits.

    Features are whitened first. With labels, the regression gets a constant for each of them.

    Args:
        lr: Learning rate.
    """

    lr: float = 0.02

    length: ClassVar = {"points": (500, 512), "others": (500, 512)}

    def build(self, task: _Task, real: Batch, fake: Batch) -> RatioNetwork:
        """Whiten the features."""
        from ..models.mlp import mlp

        if task.features is None:
            raise InputError("a head needs features: refit(..., Head(), features=...)")
        x = torch.cat([real.x, fake.x]).double()
        buffers = {"shift": x.mean(0).float(), "whiten": _whiten(x).float()}
        labels = task.known_labels()
        network = mlp([buffers["whiten"].shape[1] + len(labels), 1])
        return RatioNetwork(network.to(x.device), "head", labels=labels, **buffers).start_at_chance()


METHODS: dict[str, type] = {"head": Head, "fine_tune": FineTune, "network": Network}  # by name, for tests


def _standard_scale(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation of each number in these samples.

    A pixel that hardly ever changes has next to no spread, and the first image in which it does would be a thousand
    standard deviations away. So where all numbers have one unit, as pixels and features have and the columns of a table
    have not, none is divided by less than a tenth of the typical spread.
    """
    spread, span = x.std(0), (x.amax(0) - x.amin(0)).flatten()
    span = span[span > 0]
    alike = x.ndim > 2
    if not alike and len(span) > _SMALL:
        alike = bool(((span > span.median() / 4) & (span < 4 * span.median())).float().mean() > 0.5)
    if alike:
        spread = torch.maximum(spread, _FLOOR * spread.square().mean().sqrt())
    return x.mean(0), torch.where(spread > 0, spread, torch.ones_like(spread))


def _whiten(x: Tensor) -> Tensor:
    """Return the matrix that makes features `(n, k)` uncorrelated, with variance 1, without constant directions."""
    variance, axes = torch.linalg.eigh(torch.atleast_2d(torch.cov(x.T)))
    kept = variance > 1e-6 * variance.max()
    if not bool(kept.any()):
        raise InputError(f"features are constant over {len(x)} samples: they tell nothing apart")
    return axes[:, kept] / variance[kept].sqrt()


def _image(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the channels and the side of a square image, whether its channels come first or last, or None."""
    if len(shape) == 3 and shape[1] == shape[2] >= 8:
        return shape[0], shape[1]
    return (shape[2], shape[0]) if len(shape) == 3 and shape[0] == shape[1] >= 8 and shape[2] in _CHANNELS else None


@dataclass(frozen=True)
class FitReport:
    """How well a ratio was fitted.

    Args:
        method: Name of the method.
        log_loss, standard_error: On held-out samples; log 2 = 0.693 is chance.
        steps, seconds, stopped: Updates and wall time, of all fits together, and why the last one ended.
        n_real, n_fake: Samples it was fitted on.
        history: Pairs of a step and the held-out loss after it, of the first fit.
        trouble: Why the ratio should not be trusted, in one line; None if there is no reason.
        nats: KL divergence from the model to the data by this ratio, the mean of log r over held-out samples.
        fits, spread: How many fits were averaged, and the standard deviation of log r between them, in nats.

    Example:
        >>> report = FitReport("Network", 0.5, 0.01, 100, 2.0, "all steps done", 900, 51200, ((100, 0.5),))
        >>> print(report)
        Network: held-out log-loss 0.500 ± 0.010 (chance 0.693), 100 steps in 2 s, all steps done
    """

    method: str
    log_loss: float
    standard_error: float
    steps: int
    seconds: float
    stopped: str
    n_real: int
    n_fake: int
    history: tuple[tuple[int, float], ...] = ()
    trouble: str | None = None
    nats: float = nan
    fits: int = 1
    spread: float | None = None

    def __str__(self) -> str:
        loss = f"held-out log-loss {self.log_loss:.3f} ± {self.standard_error:.3f} (chance {log(2):.3f})"
        line = f"{self.method}: {loss}, {self.steps} steps in {self.seconds:.0f} s, {self.stopped}"
        spread = "" if self.spread is None else f"mean of {self.fits} fits, which differ by {self.spread:.2g} nats"
        return "\n".join(filter(None, [line, spread, removable_kl(self.nats, _USUAL), self.trouble]))


def _report(method: Any, task: _Task, networks: Sequence[Any], runs: Sequence[FitRun]) -> FitReport:
    """Return the report of the mean of several fits."""
    held = task.held_real, task.held_fake
    scores = [torch.stack([_scores(net, batch) for net in networks]).double().cpu().numpy() for batch in held]
    loss = mean_of_means(*losses(*(each.mean(0) for each in scores)))
    steps = sum(run.steps for run in runs)
    return FitReport(
        method=type(method).__name__,
        log_loss=loss.value,
        standard_error=loss.standard_error,
        steps=steps,
        seconds=sum(run.seconds for run in runs),
        stopped=runs[-1].stopped,
        n_real=len(task.real),
        n_fake=len(task.fake) if isinstance(task.fake, Batch) else steps * task.batch_size,
        history=runs[0].history,
        trouble=_trouble(loss),
        nats=float(scores[0].mean()),
        fits=len(runs),
        spread=None if len(runs) == 1 else float(np.sqrt(np.mean([x.var(0, ddof=1).mean() for x in scores]))),
    )


def _trouble(log_loss: Estimate) -> str | None:
    """Return in one line why a fit with this held-out loss should not be trusted, or None."""
    loss = log_loss.value
    if loss < _HARDLY:
        what = "the classifier separates the two sets" if loss < _SATURATED else "the two sets hardly overlap"
        guess = "its log-ratio is mostly a guess; use features=... in which they meet"
        return f"{what} in what the ratio sees (held-out log-loss {loss:.2g}): {guess}"
    if loss > log(2) + max(3 * log_loss.standard_error, 1e-6):
        return f"held-out log-loss {loss:.3f} is worse than chance, {log(2):.3f}; more steps, or more real samples"
    return None


@dataclass(frozen=True, eq=False, repr=False)
class FittedRatio:
    """log p(x) - log q(x), as fitted by `refit`.

    Call it with samples `(n, ...)` of NumPy, torch or JAX, in the form of `real`. The result `(n,)` has the library and
    device of the samples. It is float64 if they are, otherwise float32. Torch samples may require a gradient.

    Args:
        networks, encoder: The fitted networks, whose scores are averaged, and the features that they see, if any.
        shape, columns: Shape of one sample, and keys of samples and labels, if batches are mappings.
        report: How well it was fitted.
        probe: A few samples. They are saved with their scores, so that a file read with the wrong network is noticed.
        labels, shares, offsets: Labels of the real samples, how often each of them came, and what `calibrate_classes`
            adds to its log-ratio.
        seen: `obrs.metrics.rows.row_hashes` of the real samples of the fit; `obrs.evaluate` warns if it gets one.
    """

    networks: tuple[RatioNetwork, ...]
    shape: tuple[int, ...]
    report: FitReport
    probe: Batch
    columns: tuple[Any, ...] | None = None
    labels: Tensor | None = None
    shares: Tensor | None = None
    offsets: Tensor | None = None
    seen: Any = None
    encoder: Features | None = None

    def __repr__(self) -> str:
        return f"FittedRatio({self.report})"

    def __call__(self, given: Any) -> Array:
        batch = self._read(given)
        device = self.probe.device
        x = given[self.columns[0]] if self.columns else given[0] if isinstance(given, tuple) else given
        if is_torch_array(x) and x.device != device:
            raise InputError(f"samples are on {x.device} and this ratio on {device}; use ratio.to(device)")
        score = self._scores(batch.to(device)) if len(batch) else self.probe.x.new_zeros(0, dtype=torch.float32)
        wide = "float64" in str(x.dtype)
        if is_torch_array(x):
            return score.double() if wide else score
        return array_like(host_view(score), x, dtype=x.dtype if wide else np.float32)

    def _read(self, given: Any) -> Batch:
        """Check a batch of the user."""
        batch = Batch.read(given, self.columns)
        if batch.shape != self.shape:
            raise InputError(f"this ratio is of samples of shape {self.shape}, got an array of {tuple(batch.x.shape)}")
        if (batch.y is None) != (self.labels is None):
            has = "with labels, (x, label)" if self.labels is not None else "without labels"
            raise InputTypeError(f"this ratio was fitted on samples {has}; call it with the same")
        if self.labels is not None:
            _check_known(batch.y, self.labels.to(batch.device), "the batch")
        return batch

    def _scores(self, batch: Batch) -> Tensor:
        seen = batch if self.encoder is None else batch.features(self.encoder)
        score = torch.stack([_scores(network, seen) for network in self.networks]).mean(0)
        if self.offsets is not None:
            score = score + self.offsets[torch.searchsorted(self.labels, batch.y)].to(score)
        return score

    def calibrate_classes(self, pool: Any) -> "FittedRatio":
        """Return the ratio with E_Q[r | y] = p(y) / q(y) for each label, by proposals that it was not fitted on.

        Where this does not hold, one constant for all starves classes. A class mean of r must not rest on a few
        samples: where its standard error is above a tenth, there is a warning, and one constant per class is the way.

        Args:
            pool: Proposals with labels, of the form of `real`; p(y) are the shares of the labels in `real`.

        Example:
            >>> rng = np.random.default_rng(0)
            >>> label = rng.integers(2, size=2000)
            >>> real, fake = rng.normal(label[:, None], 1.0), rng.normal(0.0, 1.0, (2000, 1))
            >>> fitted = refit((real, label), (fake, label), Network(width=16, waves=0), steps=30)
            >>> even = fitted.calibrate_classes((fake, label))
            >>> [float(np.exp(even((fake, label)))[label == y].mean().round(3)) for y in (0, 1)]
            [1.014, 0.988]
        """
        if self.labels is None or self.shares is None:
            raise InputError("this ratio was fitted without labels: there are no classes to calibrate")
        batch = self._read(pool)
        score = self._scores(batch.to(self.probe.device)).detach().double().cpu().numpy()
        shares = dict(zip(self.labels.tolist(), self.shares.tolist(), strict=True))
        means = class_means(score, batch.y.cpu().numpy(), shares)
        if few := [str(mean.label) for mean in means if not mean.known]:
            advice = "use one constant per class instead, groups=... of obrs.sample"
            warnings.warn(f"E_Q[r | y] rests on few samples for the labels {', '.join(few)}: {advice}", stacklevel=2)
        offsets = torch.tensor([-mean.log_excess for mean in means], dtype=torch.float64, device=self.labels.device)
        offsets = torch.nan_to_num(offsets, nan=0.0, posinf=0.0, neginf=0.0)  # of a label that the pool does not have
        return replace(self, offsets=offsets if self.offsets is None else self.offsets + offsets)

    def to(self, device: Any) -> "FittedRatio":
        """Return the ratio on another device of torch; features that are functions must be on it already."""
        names = [
            name for name in ("probe", "labels", "shares", "offsets", "encoder") if getattr(self, name) is not None
        ]
        parts = {name: deepcopy(getattr(self, name)).to(device) for name in names}
        return replace(self, networks=tuple(deepcopy(net).to(device) for net in self.networks), **parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file that `load_ratio` reads; a failure leaves no half-written file."""
        named = {"labels": self.labels, "shares": self.shares, "offsets": self.offsets, "probe_label": self.probe.y}
        named |= {"probe": self.probe.x, "expected": self._scores(self.probe)}
        named["seen"] = torch.from_numpy(self.seen.view(np.int64))
        parts = {f"network{number}": network for number, network in enumerate(self.networks)}
        if self.encoder is not None and self.encoder.spec is not None:
            parts["features"] = self.encoder
        for part, module in parts.items():
            named |= {f"{part}/{name}": value for name, value in module.state_dict().items()}
        facts = {"version": _VERSION, "shape": self.shape, "columns": self.columns, "report": asdict(self.report)}
        facts |= {"networks": [network.spec for network in self.networks]}
        facts |= {"features": None if self.encoder is None else self.encoder.spec or "given"}
        write_tensors(Path(path), {name: value for name, value in named.items() if value is not None}, facts)


def load_ratio(path: str | os.PathLike[str], *, network: Any = None, features: Any = None) -> FittedRatio:
    """Read a ratio that `FittedRatio.save` has written. Nothing in the file is executed.

    Args:
        path: The file.
        network: Needed if the network is not one of `obrs.models`: a network of the same form, with any weights.
        features: Needed if the ratio was fitted on features of your own: those features. Features with a name, and
            networks of `obrs.models` that `refit` was given as features, are in the file.
    """
    tensors, facts = read_tensors(path, _FILE)
    if facts.get("version") != _VERSION:
        raise InputError(f"{path} has version {facts.get('version')} of the format, this library reads {_VERSION}")
    history = tuple((int(step), float(loss)) for step, loss in facts["report"]["history"])
    specs = enumerate(facts["networks"])
    with own_noise():  # initial weights, which are replaced
        networks = tuple(_load_network(spec, subset(tensors, f"network{i}"), network) for i, spec in specs)
        encoder = _load_features(facts["features"], subset(tensors, "features"), features)
    ratio = FittedRatio(
        networks=networks,
        shape=tuple(facts["shape"]),
        report=FitReport(**facts["report"] | {"history": history}),
        probe=Batch(tensors["probe"], tensors.get("probe_label")),
        columns=None if facts["columns"] is None else tuple(facts["columns"]),
        **{name: tensors.get(name) for name in ("labels", "shares", "offsets")},
        seen=tensors["seen"].numpy().view(np.uint64),
        encoder=encoder,
    )
    gap = float((ratio._scores(ratio.probe) - tensors["expected"]).abs().max())
    if not gap <= 1e-3 * (1 + float(tensors["expected"].abs().max())):
        raise InputError(f"the network or features given are not those of {path}: scores differ by up to {gap:.2g}")
    return ratio


def _load_features(spec: Any, tensors: dict[str, Tensor], given: Any) -> Features | None:
    if spec is None or given is not None:
        return None if spec is None else as_features(given)
    if spec == "given":
        raise InputError("this ratio was fitted on features of your own; pass load_ratio(path, features=...)")
    encoder = build_features(spec)
    encoder.load_state_dict(tensors)
    return encoder


def _load_network(spec: dict[str, Any], tensors: dict[str, Tensor], given: Any) -> RatioNetwork:
    """Build a network from its spec, or copy the one that the user gave, and load its tensors."""
    from ..models.registry import build

    kind = spec["class"]
    if spec["network"] is None and given is None:
        raise InputError(f"this ratio has a network of your own, {kind}; pass load_ratio(path, network={kind}(...))")
    inner = deepcopy(given) if spec["network"] is None else build(spec["network"])
    buffers = {name: value for name, value in tensors.items() if "." not in name}  # those with a dot are of the network
    network = RatioNetwork(inner, spec["form"], **buffers)
    if differs := first_difference(network, tensors):
        raise InputError(f"the network given is not built like the one in the file: {differs}")
    network.load_state_dict(tensors)
    network.eval().requires_grad_(False)
    return network
