"""Rejection as samplers of a `Model`, and simple methods beside it: the bare model, top-k and resampling."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from operator import itemgetter
from time import perf_counter
from typing import Any

import numpy as np

from .._checks import check_budget, check_count, out_of_reach
from .._progress import bar
from ..draws import Purpose, uniform_columns
from ..errors import InputError
from ..groups import groups_of, sizes_of
from ..rules import DRS, Unbudgeted
from ..sampling.proposals import concatenate, propose_batch, warn_of_train_mode
from ..sampling.rejection import Run, fit_and_keep, sample
from ..sampling.samples import Calls, Samples, join, keep_all, pick
from .model import Model, check_model

__all__ = ["OBRS", "SIR", "Bare", "DiscriminatorRejection", "ExactRejection", "PoolOBRS", "TopK"]

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Bare:
    """The plain model, without rejection.

    Args:
        batch_size: Samples per call.

    Example:
        >>> Bare()(Model(lambda z: z, lambda x: x[:, 0], dim=2), 5).calls
        Calls(generator=5, critic=0, generator_gradient=0, critic_gradient=0)
    """

    batch_size: int = 4096

    @classmethod
    def at_budget(cls, budget: float) -> "Bare":
        """Return the sampler; it takes one generator call per output at any budget."""
        check_budget(budget)
        return cls()

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Return the first n samples of the model, which are not scored."""
        begun, n = perf_counter(), check_count(n, "n")
        warn_of_train_mode(check_model(model).generate)
        blocks = [np.arange(at, min(at + self.batch_size, n)) for at in range(0, n, self.batch_size)]
        x = concatenate([propose_batch(partial(model.propose, seed=seed), ids) for ids in blocks])
        return keep_all(x, np.arange(n), calls=Calls(generator=n), seconds=perf_counter() - begun)


class _Rejection(ABC):
    """A way to call `sample` with the proposal and the log-ratio of a model."""

    batch_size: int | None

    @classmethod
    def at_budget(cls, budget: float) -> Any:
        """Return the sampler with this budget."""
        return cls(budget)  # type: ignore[call-arg]

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Keep n samples."""
        warn_of_train_mode(check_model(model).generate, model.log_ratio)
        size = Run.batch_size if self.batch_size is None else check_count(self.batch_size, "batch_size")
        run = Run(partial(model.propose, seed=seed), model.score, size, seed, progress=progress)
        return self._keep(run, model, check_count(n, "n"))

    @abstractmethod
    def _keep(self, run: Run, model: Model, n: int) -> Samples: ...


def _options(run: Run, model: Model, by_label: bool) -> dict[str, Any]:
    """Return the options of `sample`: those of the run, and where the labels of a conditional model are."""
    options = {"batch_size": run.batch_size, "seed": run.seed, "progress": run.progress}
    return options | {"groups": itemgetter(1)} if by_label and _has_labels(model) else options


def _has_labels(model: Model) -> bool:
    if model.labels is None:
        raise InputError("by_label needs a model with labels; give Model(..., labels=...)")
    return True


@dataclass(frozen=True)
class OBRS(_Rejection):
    """Optimal budgeted rejection: accept with min(c r, 1), c fitted on the first proposals.

    Args:
        budget: Proposals per kept sample.
        batch_size: Proposals per call.
        by_label: Fit one c for each label of a conditional model, so that no class vanishes.

    Example:
        >>> model = Model(generate=lambda z: z[:, 0], log_ratio=lambda x: x - 0.5, dim=1)
        >>> len(OBRS(budget=2)(model, 50))
        50

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024)
    """

    budget: float = 2.6
    batch_size: int | None = None
    by_label: bool = False

    def _keep(self, run: Run, model: Model, n: int) -> Samples:
        return sample(run.propose, run.log_ratio, n, budget=self.budget, **_options(run, model, self.by_label))


@dataclass(frozen=True)
class PoolOBRS(_Rejection):
    """Optimal budgeted rejection from a pool: exactly n of ceil(n K) proposals.

    Args:
        budget: Proposals per kept sample.
        batch_size: Proposals per call.
        by_label: Choose from each label of a conditional model in proportion to its proposals.
    """

    budget: float = 2.6
    batch_size: int | None = None
    by_label: bool = False

    def _keep(self, run: Run, model: Model, n: int) -> Samples:
        pool = ceil(n * check_budget(self.budget))
        return sample(run.propose, run.log_ratio, n, pool=pool, **_options(run, model, self.by_label))


@dataclass(frozen=True)
class DiscriminatorRejection(_Rejection):
    """DRS: Azadi's sigmoid, with its shift solved for the budget on a burn-in that also gives M.

    Args:
        budget: Proposals per kept sample.
        burn_in: Proposals to fit M and the shift on; they are candidates too.
        eps: Keeps the logarithm finite at the largest ratio.
        batch_size: Proposals per call.

    References:
        | Discriminator Rejection Sampling (Azadi et al., 2019)
    """

    budget: float = 2.6
    burn_in: int = 4096
    eps: float = 1e-6
    batch_size: int | None = None

    def _keep(self, run: Run, model: Model, n: int) -> Samples:
        def fit(samples: Samples) -> DRS:
            return DRS.fit(samples.log_ratio, self.budget, eps=self.eps)

        return fit_and_keep(run, n, fit, check_count(self.burn_in, "burn_in"))


@dataclass(frozen=True)
class ExactRejection(_Rejection):
    """Rejection with r/M, M the largest ratio of a burn-in: no budget, 1/M of the proposals are kept.

    Args:
        burn_in: Proposals to fit M on; they are candidates too.
        batch_size: Proposals per call.
    """

    burn_in: int = 4096
    batch_size: int | None = None

    @classmethod
    def at_budget(cls, budget: float) -> "ExactRejection":
        """Return the sampler; it has no budget to match."""
        check_budget(budget)
        return cls()

    def _keep(self, run: Run, model: Model, n: int) -> Samples:
        burn_in = check_count(self.burn_in, "burn_in")
        return fit_and_keep(run, n, lambda samples: Unbudgeted.fit(samples.log_ratio), burn_in)


class _Choice(ABC):
    """Draw a pool of `n * budget` proposals, and choose n of it by their ratios."""

    budget: float
    batch_size: int

    def __post_init__(self) -> None:
        check_budget(self.budget)
        check_count(self.batch_size, "batch_size")

    @classmethod
    def at_budget(cls, budget: float) -> Any:
        """Return the sampler with `budget` generator calls per output."""
        return cls(budget)  # type: ignore[call-arg]

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Return the n chosen proposals.

        Raises:
            BudgetError: Too few proposals have r > 0.
        """
        begun, n = perf_counter(), check_count(n, "n")
        size = max(n, ceil(n * float(self.budget) * (1 - 1e-12)))  # 10 times 1.1 makes 11 proposals, not 12
        warn_of_train_mode(check_model(model).generate, model.log_ratio)
        parts = []
        with bar("sampling", size, progress) as update:
            for part in Run(partial(model.propose, seed=seed), model.score, self.batch_size).make(0, size):
                parts.append(part)
                update(part.next_id)
        pool = join(parts)
        index = self._choose(pool, model, n, seed)
        if len(index) < n:
            raise out_of_reach(n / size, float(np.mean(pool.log_ratio > -inf)))
        return pick(pool, index, fixed="", seconds=perf_counter() - begun)

    @abstractmethod
    def _choose(self, pool: Samples, model: Model, n: int, seed: int) -> Numbers: ...


@dataclass(frozen=True)
class TopK(_Choice):
    """Draw `n * budget` proposals and keep the n with the largest ratio, in the order of their ids.

    The output does not follow the target: only the region of largest ratio is left, and it shrinks as the budget grows.
    The samples look good and have little variety: high precision, low recall. Ties go to the smaller id.

    Args:
        budget: Proposals per output, at least 1.
        batch_size: Proposals at a time; the result does not depend on it.
        by_label: Keep the best of each label of a conditional model, as many as is its share of the proposals.

    Example:
        >>> samples = TopK(budget=4)(Model(lambda z: z[:, 0], lambda x: x, dim=1), 100)
        >>> len(samples), samples.proposed, bool(samples.x.min() > 0.4)
        (100, 400, True)

    References:
        | Zero-Shot Text-to-Image Generation (Ramesh et al., 2021), which keeps the best of 512
    """

    budget: float
    batch_size: int = 4096
    by_label: bool = False

    def _choose(self, pool: Samples, model: Model, n: int, seed: int) -> Numbers:
        if not self.by_label:
            return _largest(pool.log_ratio, pool.log_ratio, n)
        _has_labels(model)
        groups = groups_of(pool.x[1], pool.log_ratio.shape)
        best = []
        for code, size in enumerate(sizes_of(n, groups.size / len(pool))):
            rows = np.flatnonzero(groups.code == code)
            best.append(rows[_largest(pool.log_ratio[rows], pool.log_ratio[rows], size)])
        return np.sort(np.concatenate(best))


@dataclass(frozen=True)
class SIR(_Choice):
    """Draw `n * budget` proposals and resample n of them with probabilities proportional to the ratio.

    Sampling–importance–resampling. With replacement an output follows the target up to a bias of order 1 / pool, at
    any budget. But outputs are not independent: proposals of large ratio occur several times. Without replacement
    nothing is repeated, but the bias stays: proposals of large ratio run out, so at a small budget the output is
    hardly better than the model.

    Args:
        budget: Proposals per output, at least 1.
        replace: Whether a proposal may occur more than once. If not, draws are made one after the other from what is
            left of the pool, the output is in the order of ids, and a budget of 1 returns the pool.
        batch_size: Proposals at a time; the result does not depend on it.

    Example:
        >>> model = Model(lambda z: z[:, 0], lambda x: x - 0.5, dim=1)  # from N(0, 1) to N(1, 1)
        >>> samples = SIR(budget=10)(model, 1000)
        >>> bool(abs(samples.x.mean() - 1) < 0.1), len(set(samples.ids)) < 1000
        (True, True)

    References:
        | Using the SIR Algorithm to Simulate Posterior Distributions (Rubin, 1988)
        | Improved Sampling-Importance Resampling and Reduced Bias Importance Sampling (Skare et al., 2003)
        | Weighted Random Sampling with a Reservoir (Efraimidis & Spirakis, 2006)
    """

    budget: float
    replace: bool = True
    batch_size: int = 4096

    def _choose(self, pool: Samples, model: Model, n: int, seed: int) -> Numbers:
        if self.replace:
            return _resample(pool.log_ratio, n, seed)
        uniform = uniform_columns(pool.ids, range(1), seed=seed, purpose=Purpose.SELECT)[:, 0]
        gumbel = -np.log(np.maximum(-np.log1p(-uniform), 2.0**-54))  # a uniform may be 0
        return _largest(pool.log_ratio + gumbel, pool.log_ratio, n)


def _largest(key: Numbers, log_ratio: Numbers, n: int) -> Numbers:
    """Return the positions of the n largest keys, ascending, among those with r > 0; at a tie the first."""
    possible = np.flatnonzero(log_ratio > -inf)
    order = np.argsort(-key[possible], kind="stable")
    return np.sort(possible[order[:n]])


def _resample(log_ratio: Numbers, n: int, seed: int) -> Numbers:
    """Return n independent draws with probabilities proportional to the ratios; none if all are 0.

    Let S be the running sum of the ratios. A draw that took its proposal at S = s takes another one when S exceeds
    s / U for a uniform U. So at the end it has each proposal with the right probability, in one pass.
    """
    log_sum = np.logaddexp.accumulate(log_ratio)
    chosen, until, turn = np.zeros(n, np.int64), np.full(n, -inf), 0
    slot = np.arange(n if log_sum[-1] > -inf else 0)
    if not slot.size:
        return slot
    while slot.size:
        at = np.searchsorted(log_sum, until[slot], side="right")
        chosen[slot] = at
        uniform = uniform_columns(slot + n * turn, range(1), seed=seed, purpose=Purpose.SELECT)[:, 0]
        until[slot] = log_sum[at] - np.log1p(-uniform)
        slot, turn = slot[until[slot] < log_sum[-1]], turn + 1
    return chosen
