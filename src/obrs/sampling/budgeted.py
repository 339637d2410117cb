"""The rejection methods as samplers of a `Model`: OBRS, exactly-n OBRS, DRS and exact rejection."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

from ..acceptance import DRS, Unbudgeted
from ..types import Rule
from .model import Model
from .rejection import sample, sample_pool, sample_with
from .samples import Samples

__all__ = ["OBRS", "DiscriminatorRejection", "ExactRejection", "PoolOBRS"]


@dataclass(frozen=True)
class OBRS:
    """Optimal budgeted rejection: accept with min(c r, 1), c fitted on the first proposals.

    Args:
        budget: Proposals per kept sample.
        batch_size: Proposals per call.

    Example:
        >>> import numpy as np
        >>> model = Model(generate=lambda z: z[:, 0], log_ratio=lambda x: x - 0.5, dim=1)
        >>> len(OBRS(budget=2)(model, 50))
        50

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024)
    """

    budget: float = 2.6
    batch_size: int | None = None

    @classmethod
    def at_budget(cls, budget: float) -> "OBRS":
        """Return the sampler with this budget."""
        return cls(budget)

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Keep n samples."""
        return sample(
            partial(model.propose, seed=seed),
            model.log_ratio,
            n,
            budget=self.budget,
            batch_size=self.batch_size,
            seed=seed,
            progress=progress,
        )


@dataclass(frozen=True)
class PoolOBRS:
    """Optimal budgeted rejection from a pool: exactly n of ceil(n K) proposals.

    Args:
        budget: Proposals per kept sample.
        batch_size: Proposals per call.
    """

    budget: float = 2.6
    batch_size: int | None = None

    @classmethod
    def at_budget(cls, budget: float) -> "PoolOBRS":
        """Return the sampler with this budget."""
        return cls(budget)

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Keep n samples."""
        return sample_pool(
            partial(model.propose, seed=seed),
            model.log_ratio,
            n,
            pool=ceil(n * self.budget),
            batch_size=self.batch_size,
            seed=seed,
            progress=progress,
        )


@dataclass(frozen=True)
class DiscriminatorRejection:
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

    @classmethod
    def at_budget(cls, budget: float) -> "DiscriminatorRejection":
        """Return the sampler with this budget."""
        return cls(budget)

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Keep n samples."""
        return _fitted(
            model, n, lambda x: DRS.fit(x, self.budget, eps=self.eps), self.burn_in, self.batch_size, seed, progress
        )


@dataclass(frozen=True)
class ExactRejection:
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
        return cls()

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Keep n samples."""
        return _fitted(model, n, Unbudgeted.fit, self.burn_in, self.batch_size, seed, progress)


def _fitted(
    model: Model,
    n: int,
    fit: Callable[[Any], Rule],
    burn_in: int,
    batch_size: int | None,
    seed: int,
    progress: bool | None,
) -> Samples:
    propose = partial(model.propose, seed=seed)
    return sample_with(
        propose, model.log_ratio, n, fit, pilot=burn_in, batch_size=batch_size, seed=seed, progress=progress
    )
