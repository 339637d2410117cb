"""The rejection methods as samplers of a `Model`: OBRS, exactly-n OBRS, DRS and exact rejection."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from math import ceil
from operator import itemgetter
from typing import Any

from ..errors import InputError
from ..rules import DRS, Unbudgeted
from ..types import LogRatio, Proposal
from .model import Model
from .rejection import sample, sample_pool, sample_with
from .samples import Samples

__all__ = ["OBRS", "DiscriminatorRejection", "ExactRejection", "PoolOBRS"]


class _Rejection(ABC):
    """A function of `rejection.py`, called with the proposal and the log-ratio of a model."""

    batch_size: int | None
    by_label: bool = False

    @classmethod
    def at_budget(cls, budget: float) -> Any:
        """Return the sampler with this budget."""
        return cls(budget)  # type: ignore[call-arg]

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Keep n samples."""
        options: dict[str, Any] = {"batch_size": self.batch_size, "seed": seed, "progress": progress}
        if self.by_label:
            if model.labels is None:
                raise InputError("by_label needs a model with labels; give Model(..., labels=...)")
            options["groups"] = itemgetter(1)
        return self._keep(partial(model.propose, seed=seed), model.score, n, options)

    @abstractmethod
    def _keep(self, propose: Proposal, log_ratio: LogRatio, n: int, options: dict[str, Any]) -> Samples: ...


@dataclass(frozen=True)
class OBRS(_Rejection):
    """Optimal budgeted rejection: accept with min(c r, 1), c fitted on the first proposals.

    Args:
        budget: Proposals per kept sample.
        batch_size: Proposals per call.
        by_label: Fit one c for each label of a conditional model, so that no class vanishes.

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
    by_label: bool = False

    def _keep(self, propose: Proposal, log_ratio: LogRatio, n: int, options: dict[str, Any]) -> Samples:
        return sample(propose, log_ratio, n, budget=self.budget, **options)


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

    def _keep(self, propose: Proposal, log_ratio: LogRatio, n: int, options: dict[str, Any]) -> Samples:
        return sample_pool(propose, log_ratio, n, pool=ceil(n * self.budget), **options)


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

    def _keep(self, propose: Proposal, log_ratio: LogRatio, n: int, options: dict[str, Any]) -> Samples:
        fit = partial(DRS.fit, budget=self.budget, eps=self.eps)
        return sample_with(propose, log_ratio, n, fit, pilot=self.burn_in, **options)


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
        return cls()

    def _keep(self, propose: Proposal, log_ratio: LogRatio, n: int, options: dict[str, Any]) -> Samples:
        return sample_with(propose, log_ratio, n, Unbudgeted.fit, pilot=self.burn_in, **options)
