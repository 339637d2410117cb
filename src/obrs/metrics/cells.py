"""Distances of weighted fakes to real samples, with errors: KL on cells of the plane, and in principal components."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .curve import Curve
from .frechet import frechet_curve
from .kernel import kernel_curve

__all__ = ["Cells", "principal_distance"]

Floats = np.ndarray[Any, Any]
_FEW = 2000  # real samples, below which the kernel distance is more certain than Fréchet's


@dataclass(frozen=True, eq=False)
class Cells:
    """A grid of the plane whose rows and columns have equal shares of some real points; its KL sees every mode."""

    edges: tuple[Floats, Floats]

    @classmethod
    def fit(cls, real: Floats) -> "Cells":
        """Return cells with about twenty real points each, or more."""
        side = int(np.clip(np.sqrt(len(real) / 20), 4, 24))
        return cls(tuple(np.quantile(column, np.arange(1, side) / side) for column in real.T))

    def distance(self, real: Floats, fake: Floats, lines: Floats) -> Curve:
        """Return KL(real||fake) on the cells, with half a point added to each cell of the fakes."""
        side = len(self.edges[0]) + 1
        one, two = (
            np.searchsorted(self.edges[0], x[:, 0]) * side + np.searchsorted(self.edges[1], x[:, 1])
            for x in (real, fake)
        )
        p, mass = np.bincount(one, minlength=side**2) / len(real), lines / lines.sum(axis=1, keepdims=True)
        values, parts = [], []
        for line in mass:
            size = 1 / float(line @ line)
            k = (np.bincount(two, line, side**2) + 0.5 / size) / (1 + 0.5 * side**2 / size)
            log_ratio = np.log(np.maximum(p, 1e-300) / k)
            kl = float(p @ np.where(p > 0, log_ratio, 0.0))
            values.append(kl - (side**2 - 1) / 2 * (1 / size + 1 / len(real)))  # what finite samples add
            parts.append(np.append((log_ratio[one] - kl) / len(real), line * (1 - p[two] / k[two])))
        return Curve(np.array(values), np.array(parts))


def principal_distance(real: Floats, components: int = 128) -> Callable[[Floats, Floats, Floats], Curve]:
    """Return the Fréchet distance in principal components of real features; for few samples the kernel distance.

    It is a function of real features, fake features, and lines of weights of the fakes.
    """
    centre = real.mean(0)
    _, size, axes = np.linalg.svd(real[:20_000] - centre, full_matrices=False)
    axes = axes[: min(components, len(real) // 4 or 1)].T
    curve: Any = frechet_curve
    if len(real) < _FEW:
        curve = kernel_curve
        axes = axes * np.sqrt(axes.shape[1] * len(real)) / max(float(np.linalg.norm(size)), 1e-300)
    return lambda x, y, lines: curve(real=(x - centre) @ axes, fake=(y - centre) @ axes, weights=lines)
