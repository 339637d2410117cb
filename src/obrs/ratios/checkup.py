"""Does a log-ratio know its own training set? `diagnose_model` has the data and the ratio, and not scores alone.

A network that has learned its training images by heart scores them high. The scores of these images then look like
those of a perfect ratio, and nothing in them shows that fresh images score otherwise. Two sets of real samples show it:
those that the ratio was fitted on, and those that it never saw.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .._inputs import check_budget, check_count
from .._progress import bar
from ..errors import InputError
from ..metrics.rows import row_hashes
from ..sampling.proposals import Batch, leaves, length, map_leaves, propose_batch, score_batch, warn_of_train_mode
from .doctor import Diagnosis, diagnose
from .evidence import ERRORS, Floats, Interval, area_under_curve
from .task import FIT_IDS

__all__ = ["ModelDiagnosis", "diagnose_model"]

_FRESH = FIT_IDS // 2  # below the ids of every fit: a ratio may know the fakes of its fit by heart, too
_FEWEST = 1000  # proposals; of a few held-out samples more fakes still make better use
_BATCH = 512


@dataclass(frozen=True, eq=False)
class ModelDiagnosis:
    """What `diagnose_model` found; printed, it is a page of text.

    Args:
        held_out: The diagnosis by held-out real samples. It is the one that counts; "untestable" if they were not
            held out.
        trained_on: The diagnosis that the samples of the fit would have given.
        memory: Probability that a sample of the fit scores above a held-out one; 0.5 if the ratio learned none by
            heart.
        memorised: Whether it is above 0.5 by 3 standard errors.
        shared: How many held-out samples are also among those of the fit.
    """

    held_out: Diagnosis
    trained_on: Diagnosis
    memory: Interval
    memorised: bool
    shared: int

    @property
    def verdict(self) -> str:
        """The verdict by held-out samples; "untestable" if they were not held out."""
        return self.held_out.verdict

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        if self.shared or not self.memorised:
            return self.held_out.reason
        claimed, found = self.trained_on.at_budget.removed.value, self.held_out.at_budget.removed.value
        worth = f"they claim that {claimed:.2g} nats of KL are removed, held-out samples show {found:.2g}"
        return f"it knows its training set by heart (AUC {self.memory.value:.3f}): {worth}; {self.held_out.reason}"

    def __str__(self) -> str:
        """Return what the two sets show, and the page of the diagnosis by held-out samples."""
        area = f"{self.memory.value:.3f} ({self.memory.low:.3f} … {self.memory.high:.3f})"
        lines = [
            f"{self.verdict.upper()}: {self.reason}",
            f"samples of the fit score above held-out ones with probability {area}",
            "",
            str(self.held_out),
        ]
        return "\n".join(lines)


def diagnose_model(
    *,
    real_train: Batch,
    real_test: Batch,
    propose: Any,
    log_ratio: Callable[[Any], Any],
    budget: float = 2.0,
    n: int | None = None,
    meaning: str | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> ModelDiagnosis:
    """Tell whether a log-ratio is good enough to reject with, and whether it learned its training set by heart.

    Args:
        real_train: The real samples that it was fitted on: an array, or a tuple or dict of arrays.
        real_test: Real samples that it never saw.
        propose: `propose(ids)`, which is asked for ids from 2^39 on, that no fit has seen; or fakes that were held out.
        log_ratio: Scores a batch, shape `(n,)`.
        budget: Proposals per kept sample.
        n: How many fakes to make; as many as there are test samples by default, and at least 1000.
        meaning: As in `diagnose`.
        seed: As in `diagnose`.
        progress: Show a bar; None shows one on a terminal.

    Example:
        >>> from obrs import normals
        >>> real, propose = normals(range(4000), 1, seed=1), lambda ids: normals(ids, 1, seed=2) - 1.0
        >>> found = diagnose_model(
        ...     real_train=real[:2000], real_test=real[2000:], propose=propose, log_ratio=lambda x: x[:, 0] + 0.5
        ... )
        >>> found.verdict, found.memorised
        ('fit', False)
    """
    k = check_budget(budget)
    sizes = {"real_train": length(real_train), "real_test": length(real_test)}
    for name, size in sizes.items():
        if size < 100:
            raise InputError(f"diagnose_model needs at least 100 samples of {name}, got {size}")
    wanted = max(sizes["real_test"], _FEWEST) if n is None else check_count(n, "n")
    count = wanted if callable(propose) else length(propose)
    _check_alike(real_train, real_test)
    warn_of_train_mode(propose, log_ratio)

    def fakes(low: int, high: int) -> Batch:
        if callable(propose):
            return propose_batch(propose, np.arange(_FRESH + low, _FRESH + high))
        return _part(propose, low, high)

    sets: list[tuple[Callable[[int, int], Batch], int]] = [
        (partial(_part, real_train), sizes["real_train"]),
        (partial(_part, real_test), sizes["real_test"]),
        (fakes, count),
    ]
    done = 0
    with bar("scoring", sum(size for _, size in sets), progress) as tell:
        scores = []
        for part, size in sets:
            scores.append(_scores(log_ratio, part, size, tell, done))
            done += size
    train, test, fake = scores
    memory, z = area_under_curve(np.sort(train), np.sort(test))
    shared = len(_rows(real_train) & _rows(real_test))
    held_out = diagnose(test, fake, k, meaning=meaning, seed=seed)
    if shared:
        why = f"{shared} of {sizes['real_test']} held-out samples were in the fit: hold others out"
        held_out = replace(held_out, verdict="untestable", reason=why, repair="", notes=(), missing_support=None)
    return ModelDiagnosis(
        held_out=held_out,
        trained_on=diagnose(train, fake, k, meaning=meaning, seed=seed),
        memory=memory,
        memorised=z > ERRORS,
        shared=shared,
    )


def _scores(
    log_ratio: Callable[[Any], Any], part: Callable[[int, int], Batch], n: int, tell: Any, before: int
) -> Floats:
    """Score n samples, some at a time."""
    found = []
    for low in range(0, n, _BATCH):
        batch = part(low, min(low + _BATCH, n))
        found.append(score_batch(log_ratio, batch, length(batch))[1])
        tell(before + low + length(batch), "")
    return np.concatenate(found)


def _part(batch: Batch, low: int, high: int) -> Batch:
    return map_leaves(lambda leaf: leaf[low:high], batch)


def _rows(batch: Batch) -> set[tuple[int, ...]]:
    """Return a hash of the content of each sample, with its label if it has one."""
    return set(zip(*(row_hashes(leaf).tolist() for leaf in leaves(batch)), strict=True))


def _check_alike(real_train: Batch, real_test: Batch) -> None:
    shapes = [[tuple(leaf.shape[1:]) for leaf in leaves(batch)] for batch in (real_train, real_test)]
    if shapes[0] != shapes[1]:
        raise InputError(f"real_train and real_test must hold samples of one shape, got {shapes[0]} and {shapes[1]}")
