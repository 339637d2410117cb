"""Distributions with exact densities: mixtures of Gaussians, toys in the plane, and pairs of densities on a line.

`sample` is a function of its seed. `log_prob` takes NumPy arrays and torch tensors and returns the same kind. An exact
log-ratio is the difference of two of them, and torch can differentiate it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, pi

import numpy as np
from array_api_compat import array_namespace, device

from obrs._checks import check_count
from obrs.errors import InputError
from obrs.profile import Profile
from obrs.rules import Budgeted
from obrs.types import Array, Rule

from .record import Numbers

__all__ = ["TOYS", "Checkerboard", "Density", "Mixture", "Pair", "grid25", "mixture", "ring", "swiss_roll", "thin"]
__all__ += ["two_moons"]

_BLOCK = 2**21  # (point, component) pairs at a time: 16 MB of float64


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of isotropic Gaussians.

    Example:
        >>> mixture = Mixture([[-1.0], [2.0]], sigma=[0.5, 1.0], weights=[1, 3])
        >>> mixture.sample(1000, seed=1).shape
        (1000, 1)
        >>> mixture.log_prob(np.zeros((2, 1))).round(4)
        array([-2.6958, -2.6958])
    """

    means: Array  # shape `(components, dim)`
    sigma: Array  # standard deviation, one for all or one per component; kept as shape `(components,)`
    weights: Array = None  # one per component, in any scale; equal if None

    def __post_init__(self) -> None:
        means = np.array(self.means, dtype=np.float64)
        one_each = (1.0 if value is None else value for value in (self.sigma, self.weights))
        sigma, weights = (np.broadcast_to(np.array(value, dtype=np.float64), len(means)) for value in one_each)
        for name, values in {"means": means, "sigma": sigma, "weights": weights / weights.sum()}.items():
            object.__setattr__(self, name, values)

    def sample(self, n: int, *, seed: int = 0) -> Numbers:
        """Draw n points, shape `(n, dim)`, float64."""
        generator = np.random.default_rng(seed)
        which = generator.choice(len(self.means), size=check_count(n, "n"), p=self.weights)
        z = generator.standard_normal((n, self.means.shape[1]))
        return np.asarray(self.means[which] + self.sigma[which, None] * z)

    def log_prob(self, x: Array) -> Array:
        """Return the log-density at points of shape `(..., dim)`, shape `(...)`, in the library and dtype of x."""
        x, shape = _points(x, self.means.shape[1])
        xp = array_namespace(x)
        rows = max(1, _BLOCK // len(self.means))
        blocks = [self._log_prob(x[at : at + rows, :]) for at in range(0, max(1, x.shape[0]), rows)]
        return xp.reshape(blocks[0] if len(blocks) == 1 else xp.concat(blocks), shape)

    def _log_prob(self, x: Array) -> Array:
        xp = array_namespace(x)
        like = {"dtype": x.dtype, "device": device(x)}
        means, sigma = (xp.asarray(values.copy(), **like) for values in (self.means, self.sigma))
        # one axis after the other: a difference of squares would lose digits, a third axis memory
        dim = x.shape[1]
        square = sum(((x[:, k, None] - means[None, :, k]) / sigma) ** 2 for k in range(dim))
        with np.errstate(divide="ignore"):
            constant = np.log(self.weights) - dim * (np.log(self.sigma) + 0.5 * log(2 * pi))
        terms = xp.asarray(constant, **like) - 0.5 * square
        top = xp.max(terms, axis=1, keepdims=True)
        return top[:, 0] + xp.log(xp.sum(xp.exp(terms - top), axis=1))

    def standardise(self) -> "Mixture":
        """Return the mixture moved and scaled to mean 0 and variance 1, on average over its axes.

        All axes have the same scale, so that the Gaussians stay round.
        """
        centre = self.weights @ self.means
        variance = self.weights @ ((self.means - centre) ** 2 + self.sigma[:, None] ** 2)
        scale = np.sqrt(variance.mean())
        return Mixture((self.means - centre) / scale, self.sigma / scale, self.weights)


@dataclass(frozen=True)
class Checkerboard:
    """Uniform on every other square of a board of 4 by 4 squares of side 1, centred at 0.

    Example:
        >>> board = Checkerboard()
        >>> board.log_prob(np.array([[0.5, 0.5], [0.5, -0.5], [9.0, 9.0]]))
        array([-2.07944154,        -inf,        -inf])
    """

    def sample(self, n: int, *, seed: int = 0) -> Numbers:
        """Draw n points, shape `(n, 2)`, float64."""
        generator = np.random.default_rng(seed)
        row = generator.integers(4, size=check_count(n, "n"))
        column = 2 * generator.integers(2, size=n) + row % 2
        return np.stack([row, column], axis=1) + generator.uniform(size=(n, 2)) - 2

    def log_prob(self, x: Array) -> Array:
        """Return the log-density at points of shape `(..., 2)`, shape `(...)`; -inf off the squares."""
        x, shape = _points(x, 2)
        xp = array_namespace(x)
        row, column = (xp.floor(x[:, k] + 2) for k in range(2))
        inside = (row >= 0) & (row < 4) & (column >= 0) & (column < 4) & ((row + column) % 2 == 0)
        return xp.reshape(xp.where(inside, xp.full_like(row, -log(8)), xp.full_like(row, -xp.inf)), shape)


Density = Mixture | Checkerboard
"""A distribution that can be sampled and whose density is known."""


def grid25() -> Mixture:
    """Return 25 Gaussians on the grid {-2, ..., 2}², with standard deviation 0.05 (Azadi et al., 2019)."""
    line = np.arange(-2.0, 3.0)
    return Mixture(np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2), 0.05)


def ring() -> Mixture:
    """Return eight Gaussians at equal distances on a circle of radius 2, with standard deviation 0.02."""
    angle = 2 * pi * np.arange(8) / 8
    return Mixture(2 * np.stack([np.cos(angle), np.sin(angle)], axis=1), 0.02)


def two_moons() -> Mixture:
    """Return two interleaved half circles of radius 1, as 200 Gaussians along them, with standard deviation 0.1."""
    angle = pi * (np.arange(100) + 0.5) / 100
    moon = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return Mixture(np.concatenate([moon, [1.0, 0.5] - moon]), 0.1)


def swiss_roll() -> Mixture:
    """Return a spiral of one and a half turns, as 400 Gaussians along it, inside the square [-2, 2]²."""
    angle = 1.5 * pi * (1 + 2 * (np.arange(400) + 0.5) / 400)
    return Mixture((angle * np.stack([np.cos(angle), np.sin(angle)])).T / 7.5, 0.05)


TOYS: dict[str, Callable[[], Density]] = {"grid25": grid25, "ring8": ring, "two_moons": two_moons}
TOYS |= {"swiss_roll": swiss_roll, "checkerboard": Checkerboard}
"""Two-dimensional targets by name; call one to get it."""


def _points(x: Array, dim: int) -> tuple[Array, tuple[int, ...]]:
    """Return points as shape `(n, dim)`, and the shape that their densities have."""
    if x.ndim < 1 or x.shape[-1] != dim:
        raise InputError(f"x must have shape (n, {dim}), got {tuple(x.shape)}")
    return array_namespace(x).reshape(x, (-1, dim)), tuple(x.shape[:-1])


# On a line: what rejection does is computed on a grid, to many digits


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

    Example:
        >>> x = np.linspace(-9, 9, 2001)
        >>> pair = Pair(x, -(x**2) / 2, -((x - 1) ** 2) / 2)  # KL of N(0, 1) to N(1, 1) is 1/2
        >>> round(pair.profile().divergence("kl"), 6)
        0.5
    """

    x: Numbers  # the grid
    log_p: Numbers  # log-density of the target there
    log_q: Numbers  # and of the model

    def __post_init__(self) -> None:
        self.step = float(self.x[1] - self.x[0])
        self.p, self.q = self._density(self.log_p), self._density(self.log_q)
        self.log_ratio = self.log_p - self.log_q

    @classmethod
    def evaluate(cls, target: Mixture, model: Mixture, x: Numbers) -> "Pair":
        """Evaluate two mixtures on a grid."""
        return cls(x, target.log_prob(x[:, None]), model.log_prob(x[:, None]))

    def profile(self) -> Profile:
        """Return the profile of the log-ratio under the model."""
        return Profile(self.log_ratio, self.q * self.step)

    def keep(self, rule: Rule) -> Numbers:
        """Return the density of what a rule keeps of the model."""
        return self._density(self.log_q + rule(self.log_ratio))

    def curves(self, budget: float, within: float) -> dict[str, Numbers]:
        """Return x, both densities, and what OBRS keeps at a budget, thinned for a picture of |x| <= `within`."""
        kept = self.keep(Budgeted(self.profile().log_c(budget)))
        near = np.abs(self.x) <= within
        values = {"x": self.x, "p": self.p, "q": self.q, "kept": kept}
        return {name: thin(value[near], 401) for name, value in values.items()}

    def _density(self, log_density: Numbers) -> Numbers:
        values = np.exp(log_density - log_density.max())
        return np.asarray(values / (values.sum() * self.step))
