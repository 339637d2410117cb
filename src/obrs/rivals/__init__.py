"""OBRS and its rivals under one protocol: from a `Model` to samples and their cost."""

from .compare import SAMPLERS, Comparison, compare
from .latent import BudgetedLatentRS, LatentRS, LatentWeights, fit_latent_weights, fit_latent_weights_to_ratio
from .mhgan import MHGAN
from .model import Model
from .refine import DDLS, DOT, DGflow, lipschitz
from .simple import OBRS, SIR, Bare, DiscriminatorRejection, ExactRejection, PoolOBRS, TopK

__all__ = ["DDLS", "DOT", "MHGAN", "OBRS", "SAMPLERS", "SIR", "Bare", "BudgetedLatentRS", "Comparison", "DGflow"]
__all__ += ["DiscriminatorRejection", "ExactRejection", "LatentRS", "LatentWeights", "Model", "PoolOBRS", "TopK"]
__all__ += ["compare", "fit_latent_weights", "fit_latent_weights_to_ratio", "lipschitz"]
