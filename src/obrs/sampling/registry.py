"""Every sampler by name; the list that the contract tests run over."""

from typing import Any, Protocol

from .baselines import SIR, TopK, Truncation
from .budgeted import OBRS, DiscriminatorRejection, ExactRejection, PoolOBRS
from .chains import MHGAN
from .latent import BudgetedLatentRS, LatentRS, LatentRSGA
from .model import Model
from .refine import DDLS, DOT, DGflow
from .samples import Samples

__all__ = ["SAMPLERS", "Sampler"]


class Sampler(Protocol):
    """A method with its constants, which are the fields of a frozen record."""

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Draw n samples from a model.

        Args:
            model: The model; some methods need its real samples, some do not use its log-ratio.
            n: Samples wanted.
            seed: Decides latents and everything else that is random.
            progress: Show a bar; None shows one on a terminal.
        """
        ...


SAMPLERS: dict[str, Any] = {
    "obrs": OBRS,
    "obrs_pool": PoolOBRS,
    "drs": DiscriminatorRejection,
    "exact": ExactRejection,
    "mhgan": MHGAN,
    "dot": DOT,
    "dgflow": DGflow,
    "ddls": DDLS,
    "latent_rs": LatentRS,
    "latent_rs_ga": LatentRSGA,
    "latent_obrs": BudgetedLatentRS,
    "topk": TopK,
    "truncation": Truncation,
    "sir": SIR,
}
"""Samplers by name: each is a class with `at_budget(budget)`, and its instances are `Sampler`s."""
