"""Pairs of densities on a line: what rejection does to them is computed on a grid, to many digits."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from obrs.profile import Profile
from obrs.rules import Budgeted
from obrs.types import Rule

from .toys import Mixture

__all__ = ["Pair", "mixture", "thin"]

Numbers = np.ndarray[Any, Any]


def mixture(parts: tuple[tuple[float, float, float], ...]) -> Mixture:
    """Return a mixture on the line from triples of weight, mean and standard deviation."""
    weights, means, sigma = np.asarray(parts, dtype=np.float64).T
    return Mixture(means[:, None], sigma, weights)


def thin(values: Numbers, most: int) -> Numbers:
    """Keep some values for a picture, evenly spaced.

    Example:
        >>> thin(np.arange(10), 4)
        array([0, 3, 6, 9])
    """
    return values[:: max(1, -(-len(values) // most))]


@dataclass(eq=False)
class Pair:
    """A target and a model as densities `p` and `q` of mass 1 on an even grid with distance `step`.

    The grid must reach to where both are negligible; smooth densities are then summed to machine precision, and the
    kink of min(c r, 1) costs an error of the order of the squared step.

    Args:
        x: The grid.
        log_p, log_q: Log-densities of target and model there.

    Example:
        >>> x = np.linspace(-9, 9, 2001)
        >>> pair = Pair(x, -(x**2) / 2, -((x - 1) ** 2) / 2)  # KL of N(0, 1) to N(1, 1) is 1/2
        >>> round(pair.profile().divergence("kl"), 6)
        0.5
    """

    x: Numbers
    log_p: Numbers
    log_q: Numbers

    def __post_init__(self) -> None:
        self.step = float(self.x[1] - self.x[0])
        self.p, self.q = self._density(self.log_p), self._density(self.log_q)
        self.log_ratio = self.log_p - self.log_q

    @classmethod
    def of(cls, target: Mixture, model: Mixture, x: Numbers) -> "Pair":
        """Evaluate two mixtures on a grid."""
        return cls(x, target.log_prob(x[:, None]), model.log_prob(x[:, None]))

    def profile(self) -> Profile:
        """Return the profile of the log-ratio under the model."""
        return Profile(self.log_ratio, self.q * self.step)

    def kept(self, rule: Rule) -> Numbers:
        """Return the density of what a rule keeps of the model."""
        return self._density(self.log_q + rule(self.log_ratio))

    def shown(self, budget: float, within: float) -> dict[str, Numbers]:
        """Return x, both densities, and what OBRS keeps at a budget, thinned for a picture of |x| <= `within`."""
        kept = self.kept(Budgeted(self.profile().log_c(budget)))
        near = np.abs(self.x) <= within
        values = {"x": self.x, "p": self.p, "q": self.q, "kept": kept}
        return {name: thin(value[near], 401) for name, value in values.items()}

    def _density(self, log_density: Numbers) -> Numbers:
        values = np.exp(log_density - log_density.max())
        return np.asarray(values / (values.sum() * self.step))
