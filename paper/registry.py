"""Every experiment by name: what it is in the paper, and on what it is run here."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from obrs._text import lookup
from obrs.errors import MissingLibraryError

__all__ = ["EXPERIMENTS", "Entry", "experiment"]


@dataclass(frozen=True)
class Entry:
    """An experiment as `python -m paper list` shows it.

    Args:
        label: The figure, table or section of the paper; "" for what goes beyond it.
        on: What it is run on where data, model or protocol are not the paper's; "" where all three are.
        time: How long the default preset takes on one core.
    """

    label: str
    on: str
    time: str

    @property
    def source(self) -> str:
        """Say what of the paper this is: the thing itself, its setting on something else, or nothing of it."""
        if not self.label:
            return "beyond the paper"
        return f"setting of {self.label}, on {self.on}" if self.on else f"{self.label}, reproduced"


EXPERIMENTS = {
    "figure-landscape": Entry("Figure 1", "a GAN of digits, filter-normalised directions", "30 min"),
    "figure-1d": Entry("Figure 2", "", "1 s"),
    "figure-smooth": Entry("Figure 3", "", "5 s"),
    "figure-optimal-g": Entry("Figure 4", "", "10 s"),
    "table-2": Entry("Table 2", "", "14 min"),
    "figure-pretrained": Entry("Figure 5", "GANs of Fashion-MNIST", "20 min"),
    "table-diffusion": Entry("Table 3", "small EDMs of Fashion-MNIST", "15 min"),
    "figure-training": Entry("Figure 6", "small GANs of Fashion-MNIST", "50 min"),
    "table-finetune": Entry("Table 4", "GANs of Fashion-MNIST", "25 min"),
    "figure-pr": Entry("Appendix A", "", "1 s"),
    "figure-pr-digits": Entry("Appendix A", "one GAN of MNIST, as it is and truncated", "2 min"),
    "figure-25-samples": Entry("Appendix D.2", "the first GAN of our Table 2", "60 s"),
    "figure-time": Entry("Appendix D.2", "the first GAN of our Table 2", "5 min"),
    "figure-obrs-vs-drs": Entry("Appendix D.2", "small GANs of five known densities", "2 min"),
    "figure-frequency": Entry("Appendix D.3", "small GANs of Fashion-MNIST", "25 min"),
    "budgets": Entry("", "the GAN of our Table 2, a GAN of CIFAR-10, normal log-ratios", "8 min"),
    "tune": Entry("", "GANs and a VAE of images, 25 Gaussians", "40 min"),
    "language": Entry("", "SmolLM2-135M", "80 min"),
}
"""Experiments by name, in the paper's order; what goes beyond it comes last."""


def experiment(name: str) -> Any:
    """Import the module of an experiment: `Config`, `PRESETS`, `PAPER`, `run`, `figure`, `table`."""
    lookup(EXPERIMENTS, name, "experiment")
    try:
        return import_module(f"{__package__}.{name.replace('-', '_')}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("obrs", "paper"):
            raise
        raise MissingLibraryError(f"{name} needs {error.name}: pip install -e '.[torch,cli]' --group paper") from error


def first_line(name: str) -> str:
    """Return what an experiment shows, in a line: the first of its module, which is not imported for it."""
    with Path(__file__).with_name(f"{name.replace('-', '_')}.py").open(encoding="utf-8") as file:
        return file.readline().strip().strip('"')
