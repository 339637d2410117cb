"""Budgeted rejection sampling for generative models."""

__version__ = "0.3.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .budget import solve_log_c
from .choice import choose
from .draws import accept, normals, uniforms
from .groups import Grouped
from .profile import Profile
from .rules import Budgeted
from .sampling.proposals import proposal
from .sampling.rejection import collect, sample, stream
from .sampling.samples import Samples
from .selection import select, unweight

if TYPE_CHECKING:
    from .html.report import report
    from .language import rollout, tilt
    from .metrics.evaluate import evaluate
    from .ratios.doctor import diagnose
    from .ratios.refit import refit
    from .training.train import train
    from .tuning import tune

__all__ = [
    "Budgeted",
    "Grouped",
    "Profile",
    "Samples",
    "accept",
    "choose",
    "collect",
    "diagnose",
    "evaluate",
    "normals",
    "proposal",
    "refit",
    "report",
    "rollout",
    "sample",
    "select",
    "solve_log_c",
    "stream",
    "tilt",
    "train",
    "tune",
    "uniforms",
    "unweight",
]

# Imported when they are first asked for, and rooms likewise: a core that loads fast, no torch before it is needed.
_LATER = {
    "diagnose": ".ratios.doctor",
    "evaluate": ".metrics.evaluate",
    "refit": ".ratios.refit",
    "report": ".html.report",
    "rollout": ".language",
    "tilt": ".language",
    "train": ".training.train",
    "tune": ".tuning",
}
_ROOMS = {"adapters", "critics", "divergences", "estimate", "files", "html", "language", "metrics", "models", "ratios"}
_ROOMS |= {"ray", "rivals", "rules", "scores", "selection", "sql", "training", "tuned", "tuning"}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name in _LATER:
        return getattr(import_module(_LATER[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
