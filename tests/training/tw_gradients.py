"""Gradients of the losses for training, and of what they are to minimise, on models with known densities.

The truth does not use this library: densities and sums in NumPy, the constant by root finding, derivatives by central
differences.
"""

from dataclasses import dataclass
from functools import cache

import exact
import numpy as np
import torch

from obrs.budget import solve_cut
from obrs.training.losses import generator_loss

F = exact.F | {
    # rkl - gan, of which the non-saturating loss of gan is the gradient
    "non_saturating": lambda u: (u + 1) * np.log1p(1 / u) - 2 * exact.LOG_2,
}
GRID = np.linspace(-14, 14, 28_001)
STEP = GRID[1] - GRID[0]
NODES = np.linspace(-7, 7, 400_001)  # of a standard normal; many, as the gradient jumps where a reaches 1
MASSES = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


@dataclass(frozen=True)
class Mixture1D:
    """Gaussians with these masses, means and standard deviations."""

    masses: tuple
    means: tuple
    sds: tuple

    @property
    def parameters(self):
        return np.array([*self.means, *self.sds])

    def replace_parameters(self, parameters):
        n = len(self.means)
        return Mixture1D(self.masses, tuple(parameters[:n]), tuple(parameters[n:]))

    def density(self, x):
        parts = zip(self.masses, self.means, self.sds, strict=True)
        return sum(w * np.exp(-0.5 * ((x - m) / s) ** 2) / (s * np.sqrt(2 * np.pi)) for w, m, s in parts)

    def log_density(self, x):
        """The same in torch, differentiable in x."""
        parts = zip(self.masses, self.means, self.sds, strict=True)
        logs = [np.log(w / (s * np.sqrt(2 * np.pi))) - 0.5 * ((x - m) / s) ** 2 for w, m, s in parts]
        return torch.logsumexp(torch.stack(logs), 0)


TARGET = Mixture1D((0.55, 0.45), (-1.4, 1.3), (0.4, 0.5))
NARROW = Mixture1D((1.0,), (0.5,), (1.2,))
MIDDLE = Mixture1D((1.0,), (0.3,), (1.7,))
WIDE = Mixture1D((1.0,), (-0.5,), (2.2,))
MIXED = Mixture1D((0.4, 0.6), (-0.9, 1.6), (1.0, 1.1))


def reject(model, budget, target=TARGET):
    """The densities p and q, and the ratio u that rejection leaves, on the grid."""
    p, q = target.density(GRID), model.density(GRID)
    return p, q, exact.ratio_left(p, q, budget, STEP)


@cache
def true_gradient(name, model, budget, target=TARGET, step=2e-3):
    """The derivatives of D_f(P, Q~) in the means and standard deviations of the model."""

    def value(parameters):
        p, _, u = reject(model.replace_parameters(parameters), budget, target)
        return np.sum(p / u * F[name](u)) * STEP  # p / u is the density that is kept

    shifts = np.eye(len(model.parameters)) * step
    return np.array([(value(model.parameters + s) - value(model.parameters - s)) / (2 * step) for s in shifts])


def loss_gradient(terms, model, budget, target=TARGET):
    """The gradient that a generator x = m + s z gets from a loss, by quadrature over z.

    The critic is the exact log-ratio of the model as it is: a fixed function of x. `terms` takes it and the cut.
    """
    parameters = torch.tensor(model.parameters, requires_grad=True)
    n = len(model.means)
    means, sds = parameters[:n, None], parameters[n:, None]
    x = (means + sds * torch.tensor(NODES)).reshape(-1)
    masses = torch.tensor(np.outer(model.masses, MASSES).reshape(-1))
    log_ratio = target.log_density(x) - model.log_density(x)
    loss = (masses * terms(log_ratio, solve_cut(log_ratio, budget, weights=masses))).sum()
    return torch.autograd.grad(loss, parameters)[0].numpy()


def mode_terms(mode, name):
    return generator_loss(mode, name).terms


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)
