"""KL on cells of the plane: a distance of points that sees every mode, with errors."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .curve import Curve

__all__ = ["Cells"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Cells:
    """A grid of the plane whose rows and columns have equal shares of some real points."""

    edges: tuple[Floats, Floats]

    @classmethod
    def fit(cls, real: Floats) -> "Cells":
        """Return cells of which there are at least twenty real points to each, by and large."""
        side = int(np.clip(np.sqrt(len(real) / 20), 4, 24))
        return cls(tuple(np.quantile(column, np.arange(1, side) / side) for column in real.T))

    def distance(self, real: Floats, fake: Floats, lines: Floats) -> Curve:
        """Return KL(real||fake) on the cells, with half a point in each cell of the fakes."""
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
