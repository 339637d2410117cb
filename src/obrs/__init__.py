"""Budgeted rejection sampling for generative models."""

__version__ = "0.1.0"

from .acceptance import DRS, Budgeted, Grouped, Unbudgeted
from .budget import acceptance_rate, rate, solve_log_c
from .divergences import DIVERGENCES, FDivergence, alpha_divergence, pr
from .draws import normals, uniforms
from .plotting import plot_profile
from .profile import Profile
from .sampling.callables import proposal
from .sampling.compare import compare
from .sampling.model import Model
from .sampling.registry import SAMPLERS
from .sampling.rejection import adaptive_stream, collect, sample, sample_pool, stream
from .sampling.samples import Samples
from .selection import inclusion_probability, select

__all__ = [
    "DIVERGENCES",
    "DRS",
    "SAMPLERS",
    "Budgeted",
    "FDivergence",
    "Grouped",
    "Model",
    "Profile",
    "Samples",
    "Unbudgeted",
    "acceptance_rate",
    "adaptive_stream",
    "alpha_divergence",
    "collect",
    "compare",
    "inclusion_probability",
    "normals",
    "plot_profile",
    "pr",
    "proposal",
    "rate",
    "sample",
    "sample_pool",
    "select",
    "solve_log_c",
    "stream",
    "uniforms",
]
