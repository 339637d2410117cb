"""Budgeted rejection sampling for generative models."""

__version__ = "0.1.0"

from .acceptance import DRS, Budgeted, Grouped, Unbudgeted
from .budget import acceptance_rate, rate, solve_log_c
from .divergences import DIVERGENCES, FDivergence, alpha_divergence, pr
from .draws import normals, uniforms
from .plotting import plot_profile
from .profile import Profile
from .selection import inclusion_probability, select

__all__ = [
    "DIVERGENCES",
    "DRS",
    "Budgeted",
    "FDivergence",
    "Grouped",
    "Profile",
    "Unbudgeted",
    "acceptance_rate",
    "alpha_divergence",
    "inclusion_probability",
    "normals",
    "plot_profile",
    "pr",
    "rate",
    "select",
    "solve_log_c",
    "uniforms",
]
