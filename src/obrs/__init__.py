"""Budgeted rejection sampling for generative models."""

__version__ = "0.1.0"

from .acceptance import DRS, Budgeted, Grouped, Unbudgeted
from .budget import acceptance_rate, rate, solve_log_c
from .divergences import DIVERGENCES, FDivergence, alpha_divergence, pr
from .draws import normals, uniforms

__all__ = [
    "DIVERGENCES",
    "DRS",
    "Budgeted",
    "FDivergence",
    "Grouped",
    "Unbudgeted",
    "acceptance_rate",
    "alpha_divergence",
    "normals",
    "pr",
    "rate",
    "solve_log_c",
    "uniforms",
]
