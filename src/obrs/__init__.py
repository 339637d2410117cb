"""Budgeted rejection sampling for generative models."""

__version__ = "0.3.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .budget import solve_log_c
    from .choice import choose
    from .draws import accept, normals, uniforms
    from .groups import Grouped
    from .html.report import report
    from .language import rollout, tilt
    from .metrics.evaluate import evaluate
    from .profile import Profile
    from .ratios.doctor import diagnose
    from .ratios.refit import refit
    from .rules import Budgeted
    from .sampling.proposals import proposal
    from .sampling.rejection import collect, sample, stream
    from .sampling.samples import Samples
    from .selection import select, unweight
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

# Imported when they are first asked for, and rooms likewise: the command line needs few of them.
_LATER = {
    "Budgeted": ".rules",
    "Grouped": ".groups",
    "Profile": ".profile",
    "Samples": ".sampling.samples",
    "accept": ".draws",
    "choose": ".choice",
    "collect": ".sampling.rejection",
    "diagnose": ".ratios.doctor",
    "evaluate": ".metrics.evaluate",
    "normals": ".draws",
    "proposal": ".sampling.proposals",
    "refit": ".ratios.refit",
    "report": ".html.report",
    "rollout": ".language",
    "sample": ".sampling.rejection",
    "select": ".selection",
    "solve_log_c": ".budget",
    "stream": ".sampling.rejection",
    "tilt": ".language",
    "train": ".training.train",
    "tune": ".tuning",
    "uniforms": ".draws",
    "unweight": ".selection",
}
_ROOMS = {"adapters", "budget", "choice", "critics", "divergences", "draws", "errors", "estimate", "files", "groups"}
_ROOMS |= {"html", "language", "metrics", "models", "profile", "ratios", "ray", "rivals", "root", "rules", "sampling"}
_ROOMS |= {"scores", "selection", "split", "sql", "stages", "training", "tuned", "tuning", "types"}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATER[name], __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
