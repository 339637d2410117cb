"""The task of a refit: samples of both kinds step by step, what is held out, and the fit of a network on them.

The seed and the number of a step decide everything that is random in it.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_torch_array

from .._arrays import host_view
from .._checks import check_count, check_seed, is_number
from ..errors import InputError, InputTypeError
from ..fitting.batches import Shuffled
from ..fitting.loop import Course, fit_best
from ..fitting.seeds import own_noise
from ..fitting.tensors import Checkpoint, check_folder, fingerprint
from ..sampling.proposals import propose_batch, take
from .features import Features, see_through
from .labelled import Form, Labelled, check_labels, form_of, join, label_tensor, parts

__all__ = [
    "FILE",
    "FIT_IDS",
    "Task",
    "Tensor",
    "check_numbers",
    "fit_network",
    "logistic_loss",
    "prepare",
    "to_batch",
    "to_tensor",
]

FILE = "a file of a fitted ratio"
FIT_IDS = 2**40  # ids from here on are for fits; samples that are drawn later have lower ones
_FEWEST = 50  # held-out samples of each kind
_BLOCK = 8192
_PROBE = 8  # fakes that are kept with the ratio

Tensor = Any


@dataclass(frozen=True)
class _Stored:
    """Samples from an array, or from one of them and one of labels: all rows, then all again in another order."""

    x: Any
    rows: "np.ndarray[Any, Any]"
    seed: int
    device: Any

    @property
    def size(self) -> int:
        return len(self.rows)

    @cached_property
    def _shuffled(self) -> Shuffled:
        return Shuffled(len(self.rows), self._order)

    def _order(self, epoch: int) -> "np.ndarray[Any, Any]":
        return self.rows[np.random.default_rng((self.seed, epoch)).permutation(len(self.rows))]

    def batch(self, step: int, n: int) -> Tensor:
        return to_batch(take(self.x, self._shuffled.rows(step * n, step * n + n)), self.device)


@dataclass(frozen=True)
class _Proposed:
    """New proposals in every batch, `most` of them at a time."""

    propose: Callable[[Any], Any]
    start: int
    shape: tuple[int, ...]
    form: Form
    device: Any
    most: int
    features: Features | None = None

    size: ClassVar[None] = None

    def batch(self, step: int, n: int) -> Tensor:
        batches, start = [], self.start + step * n
        for at in range(start, start + n, self.most):
            fake = propose_batch(self.propose, np.arange(at, min(at + self.most, start + n)))
            x, label = self.form.read(fake, "propose", "real")
            _check_sample(x, self.shape)
            if label is not None:
                check_labels(label, len(x), "propose")
                self.form.check_known(label, "propose")
            batch = to_batch(x if label is None else (x, label), self.device)
            batches.append(batch if self.features is None else self.features(batch))
            check_numbers(parts(batches[-1])[0], "propose" if self.features is None else "features of propose")
        return batches[0] if len(batches) == 1 else join(batches)


@dataclass(frozen=True)
class Task:
    """All that a method needs: samples of both kinds, held-out ones, and the length of the fit.

    Args:
        real, fake: The samples to fit on. `batch(step, n)` is a tensor of n of them, or a `Labelled` if they have
            labels, and `size` is their number, None if there is no end to them.
        held_real, held_fake: Samples that are not fitted on. They decide when to stop.
        form: How a batch of the user holds samples and labels.
        probe: A few fakes as they are.
        features: What the ratio is a function of; `real`, `fake` and what is held out are features of samples then.
            None for the samples themselves.
        steps, batch_size: Updates, and samples of each kind in one.
        seed: Decides initial weights, batches and everything torch draws.
        progress: Show a bar.
        checkpoint: The file to go on from, if there is one.
        identity: Plain data that no other task has, for the checkpoint.
    """

    real: _Stored
    fake: _Stored | _Proposed
    held_real: Tensor
    held_fake: Tensor
    form: Form
    probe: Tensor
    features: Features | None
    steps: int
    batch_size: int
    seed: int
    progress: bool | None
    checkpoint: Path | None
    identity: dict[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what the ratio is a function of: one sample, or its features."""
        return tuple(parts(self.held_real)[0].shape[1:])

    @property
    def device(self) -> Any:
        """The device of the proposals, and so of the network."""
        return self.held_fake.device

    @property
    def file(self) -> Checkpoint | None:
        """The checkpoint with the identity of the task, None if there is none."""
        return None if self.checkpoint is None else Checkpoint(self.checkpoint, self.identity, FILE)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the real samples and the fakes of this step."""
        return self.real.batch(step, self.batch_size), self.fake.batch(step, self.batch_size)

    def pilot(self, n: int) -> tuple[Tensor, Tensor]:
        """Return at least n samples of each kind, those of the earliest steps, for means and variances."""
        batches = []
        with self.seeded() as reseed:
            for step in range(ceil(n / self.batch_size)):
                reseed(step)
                batches.append(self.batch(step))
        real, fake = zip(*batches, strict=True)
        return join(real), join(fake)

    def seeded(self) -> AbstractContextManager[Callable[[int], None]]:
        """Let the seed decide what torch draws inside the block; the value of the block reseeds for a step."""
        return _seeded(self.seed, self.device)


@contextmanager
def _seeded(seed: int, device: Any) -> Iterator[Callable[[int], None]]:
    with own_noise(device) as reseed:

        def at_step(step: int) -> None:
            reseed(int(np.random.SeedSequence((seed, step + 1)).generate_state(1, np.uint64)[0]))

        at_step(-1)
        yield at_step


def logistic_loss(score_real: Tensor, score_fake: Tensor) -> Tensor:
    """Return the log-loss of a classifier, each kind with weight one half, however many samples there are of it.

    Over all functions the minimum is at log p/q, so the prior needs no correction.

    Example:
        >>> import torch
        >>> round(float(logistic_loss(torch.zeros(3), torch.zeros(5))), 4)
        0.6931
    """
    from torch.nn.functional import softplus

    return (softplus(-score_real).mean(0) + softplus(score_fake).mean(0)) / 2


def fit_network(
    module: Any,
    loss: Callable[[Any, Tensor, Tensor], Tensor],
    held_out_loss: Callable[[Any], float],
    task: Task,
    *,
    lr: float,
) -> Course:
    """Fit a module in place on the samples of a task; see `fit_best`.

    Args:
        module: A torch module.
        loss: A function of the module, real samples and fakes.
        held_out_loss: A function of a module in evaluation mode; the weights with the lowest value are kept.
        task: Samples, number of steps, seed, checkpoint.
        lr: Largest learning rate.
    """
    with task.seeded() as reseed:

        def at_step(module: Any, step: int) -> Tensor:
            reseed(step)
            real, fake = task.batch(step)
            value = loss(module, real, fake)
            if not bool(value.isfinite()):
                for part in parts(fake):
                    check_numbers(part, "propose" if task.features is None else "features of propose")
            return value

        return fit_best(
            module, at_step, held_out_loss, steps=task.steps, lr=lr, checkpoint=task.file, progress=task.progress
        )


def prepare(
    real: Any,
    propose: Any,
    *,
    steps: int,
    batch_size: int,
    held_out: float,
    seed: int,
    progress: bool | None,
    checkpoint: Any,
    features: Any = None,
) -> Task:
    """Check the arguments of `refit`, and split the samples into those to fit on and those to hold out."""
    steps, batch_size = check_count(steps, "steps"), check_count(batch_size, "batch_size")
    seed = check_seed(seed)
    if not is_number(held_out) or not 0 < held_out < 1:
        raise InputError(f"held_out must be a share between 0 and 1, got {held_out!r}")
    held_out = float(held_out)
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        check_folder(path)
    form, real = _check_real(real)
    given, example = _example(propose, form)
    if isinstance(real, tuple):
        form.check_kind(example[1], "propose", tuple(real[1].shape[1:]))
    device = _check_alike(real, example)
    seen = see_through(features, _x(real), has_label=form.label is not None)
    real, seen = _featured(real, seen, device, "real")
    rows, held_rows = _split(_size(real), held_out, seed, "real")
    held_real = to_batch(take(real, held_rows), device)
    fake: _Stored | _Proposed
    if given:
        if isinstance(example, tuple):
            form.check_known(example[1], "propose")
        fake_rows, held_fake_rows = _split(_size(example), held_out, seed, "propose")
        probe = to_batch(take(example, held_fake_rows[:_PROBE]), device)
        example, _ = _featured(example, seen, device, "propose")
        fake = _Stored(example, fake_rows, seed + 1, device)
        held_fake = to_batch(take(example, held_fake_rows), device)
    else:
        shape = tuple(_x(example).shape[1:])
        fake = _Proposed(propose, FIT_IDS, shape, form, device, batch_size, seen)
        held_fake = _held_proposals(fake, len(held_rows), seed)
        check_numbers(parts(held_fake)[1], "the label of propose")
        probe = held_fake[:_PROBE]
        if seen is not None:
            probe = _held_proposals(replace(fake, features=None), len(held_rows), seed, _PROBE)
    identity: dict[str, Any] = {"steps": steps, "batch_size": batch_size, "seed": seed, "held_out": held_out}
    if path is not None:
        identity["real"] = [*_x(real).shape, _mark(held_real)]
        identity["features"] = None if seen is None else str(seen)
        identity["propose"] = None
        if isinstance(fake, _Stored):
            identity["propose"] = [*_x(example).shape, _mark(held_fake)]
        elif _repeats(fake, held_fake, seed):
            identity["propose"] = _mark(held_fake)
    return Task(
        real=_Stored(real, rows, seed, device),
        fake=fake,
        held_real=held_real,
        held_fake=held_fake,
        form=form,
        probe=probe.clone(),
        features=seen,
        steps=steps,
        batch_size=batch_size,
        seed=seed,
        progress=progress,
        checkpoint=path,
        identity=identity,
    )


def _featured(batch: Any, features: Features | None, device: Any, name: str) -> tuple[Any, Features | None]:
    """Return the features of a set of samples, computed here and never again, and the features with their number."""
    if features is None:
        return batch, None
    cuts = (slice(at, at + _BLOCK) for at in range(0, _size(batch), _BLOCK))
    found, _ = parts(features.all_of(to_batch(_cut(batch, cut), device) for cut in cuts))
    check_numbers(found, f"features of {name}")
    return (found, batch[1]) if isinstance(batch, tuple) else found, replace(features, length=found.shape[1])


def _cut(batch: Any, rows: slice) -> Any:
    return tuple(part[rows] for part in batch) if isinstance(batch, tuple) else batch[rows]


def _held_proposals(fake: _Proposed, n: int, seed: int, most: int | None = None) -> Tensor:
    """Return the proposals with the n ids before those of the fit, or `most` of them."""
    spare = replace(fake, start=fake.start - n)
    with _seeded(seed, fake.device):
        return spare.batch(0, n if most is None else min(n, most))


def _repeats(fake: _Proposed, held: Tensor, seed: int) -> bool:
    """Tell whether ids and seed decide the proposals. If not, warn: a checkpoint cannot recognise the model then."""
    again = _held_proposals(fake, len(held), seed, fake.most)
    pairs = zip(parts(again), parts(held[: len(again)]), strict=True)
    same = all(bool((a == b).all()) for a, b in pairs if a is not None)
    if not same:
        warnings.warn(
            "propose makes other samples when it is asked for the same ids again: its checkpoint cannot notice "
            "another model, and a resumed fit differs a little; let ids or torch's generator decide them",
            stacklevel=4,
        )
    return same


def _mark(batch: Any) -> str:
    return fingerprint(*(part for part in parts(batch) if part is not None))


def to_batch(batch: Any, device: Any) -> Any:
    """Return samples as a tensor, and a tuple of samples and labels as a `Labelled`."""
    if not isinstance(batch, tuple):
        return to_tensor(batch, device)
    x, label = batch
    return Labelled(to_tensor(x, device), label_tensor(label, device))


def to_tensor(x: Any, device: Any) -> Tensor:
    """Return samples of any array library as a float32 tensor."""
    import torch

    if is_torch_array(x):
        return x.detach().to(device=device, dtype=torch.float32)
    return torch.tensor(host_view(x), dtype=torch.float32, device=device)


def check_numbers(x: Any, name: str) -> None:
    """Raise if a number of these samples, or labels, is not finite."""
    if x is None:
        return
    bad = size = 0
    for at in range(0, len(x), _BLOCK):
        block = x[at : at + _BLOCK]
        if not _is_float(block):
            return
        finite = array_namespace(block).isfinite(block)
        bad, size = bad + prod(finite.shape) - int(finite.sum()), size + prod(finite.shape)
    if bad:
        raise InputError(f"{name} has {bad} NaN or infinite among {size} values; drop those samples first")


def _check_set(x: Any, name: str) -> None:
    """Check an array of samples."""
    if x.ndim < 2:
        raise InputError(f"{name} must have shape (n, ...), got {tuple(x.shape)}; use {name}[:, None] for numbers")
    if 0 in x.shape:
        raise InputError(f"{name} is empty, shape {tuple(x.shape)}: a ratio needs samples of both kinds")
    if is_torch_array(x) and x.device.type == "meta":
        raise InputError(f"{name} is on device meta and has no values")
    check_numbers(x, name)


def _check_real(real: Any) -> tuple[Form, Any]:
    """Check the real samples; return their form, and them as an array, or a tuple of samples and labels."""
    form = form_of(real, "real")
    x, label = form.split(real)
    _check_set(x, "real")
    if label is None:
        return form, x
    check_labels(label, len(x), "real")
    check_numbers(label, "the label of real")
    known = None if _is_float(label) else np.unique(np.asarray(host_view(label)).astype(np.int64))
    return replace(form, known=known), (x, label)


def _size(batch: Any) -> int:
    return len(_x(batch))


def _x(batch: Any) -> Any:
    return batch[0] if isinstance(batch, tuple) else batch


def _check_sample(x: Any, shape: tuple[int, ...]) -> None:
    if tuple(x.shape[1:]) != shape:
        raise InputError(f"real has samples of shape {shape} and propose of {tuple(x.shape[1:])}; make them alike")


def _example(propose: Any, form: Form) -> tuple[bool, Any]:
    """Return whether fakes were given, and them, or two proposals; torch's generator stays as it was."""
    import torch

    given = not callable(propose)
    if given and not is_array_api_obj(propose) and not isinstance(propose, tuple | dict):
        raise InputTypeError(f"propose must be a callable of ids or an array of samples, got {type(propose).__name__}")
    if given:
        batch = propose
    else:
        with torch.random.fork_rng(devices=[]):
            batch = propose_batch(propose, np.arange(FIT_IDS, FIT_IDS + 2))
    x, label = form.read(batch, "propose", "real")
    if given:
        _check_set(x, "propose")
    if label is None:
        return given, x
    check_labels(label, len(x), "propose")
    if given:
        check_numbers(label, "the label of propose")
    return given, (x, label)


def _check_alike(real: Any, fake: Any) -> Any:
    """Check that both kinds can be compared, and return the device for the fit."""
    real, fake = _x(real), _x(fake)
    _check_sample(fake, tuple(real.shape[1:]))
    device = _common_device(real, fake)
    if _is_float(real) != _is_float(fake):
        raise InputTypeError(
            f"real has dtype {real.dtype} and propose {fake.dtype}: this alone would tell them apart; "
            "bring real to the scale of the model's samples"
        )
    return device


def _is_float(x: Any) -> bool:
    xp = array_namespace(x)
    return bool(xp.isdtype(x.dtype, "real floating"))


def _split(n: int, share: float, seed: int, name: str) -> tuple[Any, Any]:
    """Return the rows to fit on and those to hold out."""
    held = round(n * share)
    if min(held, n - held) < _FEWEST:
        needed = ceil(_FEWEST / min(share, 1 - share))
        raise InputError(
            f"{name} has {n} samples, of which held_out={share:g} leaves {held} to stop by; "
            f"{_FEWEST} are needed: give at least {needed} samples or another held_out"
        )
    rows = np.random.default_rng((seed, 2**32)).permutation(n)
    return np.sort(rows[held:]), np.sort(rows[:held])


def _common_device(real: Any, fake: Any) -> Any:
    """Return the device of the proposals. Real samples are on it, too, or on the CPU."""
    import torch

    of_real, of_fake = (x.device if is_torch_array(x) else torch.device("cpu") for x in (real, fake))
    if of_real != of_fake and of_real.type != "cpu":
        raise InputError(f"real is on {of_real} and propose makes samples on {of_fake}; move one of them to the other")
    if of_fake.type == "meta":
        raise InputError("propose makes samples on device meta, which has no values")
    return of_fake
