"""Every experiment by name; its module is imported when it is asked for, so that listing them stays fast."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from .._names import lookup
from ..errors import MissingLibraryError
from .record import Record, Rows

__all__ = ["BEYOND", "EXPERIMENTS", "Entry", "Experiment", "experiment"]


BEYOND = "beyond the paper"
"""The label of what the paper does not have."""


class Experiment(Protocol):
    """What the module of an experiment has."""

    Config: Callable[..., Any]
    PRESETS: Mapping[str, Any]
    PAPER: Mapping[str, Any]

    def run(self, config: Any, rows: Rows) -> None: ...

    def plot(self, record: Record) -> Any: ...

    def render(self, record: Record) -> str: ...


@dataclass(frozen=True)
class Entry:
    """An experiment as `obrs reproduce list` shows it.

    Args:
        name: Its name; the module is the same with underscores.
        label: The table or figure of the paper, or `BEYOND`.
        shows: What it shows, in one line.
        time: How long the preset with committed results takes on 2 cores, in words.
        preset: The preset with committed results: "cpu" where the paper's size needs a GPU.
        extra: The extra of this package that it needs.
    """

    name: str
    label: str
    shows: str
    time: str
    preset: str = "default"
    extra: str = "experiments"

    def load(self) -> Any:
        """Import the module, an `Experiment`."""
        module = f"{__package__}.{self.name.replace('-', '_')}"
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name is not None and error.name.startswith("obrs"):
                raise
            needs = f"{self.name} needs {error.name}: pip install 'obrs[{self.extra}]'"
            raise MissingLibraryError(needs) from error


_ALL = (
    Entry(
        "figure-landscape",
        "Figure 1",
        "a GAN of digits: the loss after rejection over two random directions of its weights, and how flat it is",
        "30 min",
        preset="cpu",
    ),
    Entry(
        "figure-1d",
        "Figure 2",
        "one dimension: what unbudgeted rejection, DRS and OBRS keep, and their precision and recall",
        "5 s",
    ),
    Entry(
        "figure-smooth",
        "Figure 3",
        "ten Gaussians: the loss after rejection has fewer local minima the larger the budget",
        "10 s",
    ),
    Entry(
        "figure-optimal-g",
        "Figure 4",
        "one Gaussian for two: the best model before rejection is not the best one after it",
        "30 s",
    ),
    Entry(
        "table-2",
        "Table 2",
        "25 Gaussians: every sampler on one under-trained GAN at the same budget, quality and cost",
        "80 s",
    ),
    Entry(
        "figure-25-samples",
        "Appendix D.2",
        "25 Gaussians: what each method draws, panel by panel",
        "1 min",
    ),
    Entry(
        "figure-time",
        "Appendix D.2",
        "25 Gaussians: precision and divergence against time, every method's budget swept",
        "5 min",
    ),
    Entry(
        "figure-obrs-vs-drs",
        "Appendix D.2",
        "OBRS against DRS at every budget, on five targets, with models of small and large M",
        "40 s",
    ),
    Entry(
        "figure-pr",
        "Appendix A",
        "how precision and recall are read: a model with much of each",
        "2 s",
    ),
    Entry(
        "theory",
        "Theorems 3.1-3.3",
        "the bounds, the curves, optimality and the set of reachable densities, on random pairs",
        "20 s",
    ),
    Entry(
        "tw-obrs",
        "Section 5.3",
        "training with the rejection inside, in one stage and in three: what is left after rejection",
        "70 min",
    ),
    Entry(
        "figure-training",
        "Section 5.3",
        "clothes: hinge, Algorithm 2 with K = 1 and K = 2, and three stages, after rejection, during training",
        "50 min",
        preset="cpu",
    ),
    Entry(
        "table-finetune",
        "Section 5.3",
        "clothes: trained hinge GANs, trained further with the rejection inside",
        "25 min",
        preset="cpu",
    ),
    Entry(
        "figure-frequency",
        "Appendix E",
        "clothes: training with c solved every 1, 10, 100 and 1000 steps, distance and time",
        "25 min",
        preset="cpu",
    ),
    Entry(
        "flows",
        "Section 6",
        "the outlook: rejection inside a normalizing flow and after it, KL against compute",
        "90 s",
    ),
    Entry(
        "figure-pretrained",
        "Figure 5",
        "GANs of clothes: OBRS and DRS, four ratios, three kinds of constants, at every acceptance rate",
        "20 min",
        preset="cpu",
    ),
    Entry(
        "table-diffusion",
        "Table 3",
        "a diffusion model of clothes: OBRS and DRS at every acceptance rate, and rejecting previews early",
        "15 min",
        preset="cpu",
    ),
    Entry(
        "figure-when-training-pays",
        BEYOND,
        "known densities: the best model for K beside the best model for 1, for three capacities",
        "2 min",
    ),
    Entry(
        "ratio-evidence",
        BEYOND,
        "digits and clothes: which ratio and which constants pay, by two judges that never saw them",
        "30 min",
    ),
    Entry(
        "figure-transport",
        BEYOND,
        "a WGAN-GP on 25 Gaussians: why transport cost may rise while divergence falls",
        "2 min",
    ),
    Entry(
        "language",
        BEYOND,
        "SmolLM2: gradients, rewards and a fine-tuning with 16 of 64 rollouts, and what thresholds do to them",
        "80 min",
        extra="language",
    ),
)

EXPERIMENTS: dict[str, Entry] = {entry.name: entry for entry in _ALL}
"""Experiments by name, in the paper's order."""


def experiment(name: str) -> Any:
    """Import the module of an experiment, an `Experiment`.

    Example:
        >>> experiment("figure-pr").PAPER["figures"]
        'A.1 to A.5'
        >>> experiment("figure-rp")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        obrs.errors.UnknownNameError: unknown experiment 'figure-rp'; did you mean 'figure-pr'? there are: ...
    """
    return lookup(EXPERIMENTS, name, "experiment").load()
