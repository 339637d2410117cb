"""Waymarks: mixtures of fakes and real samples that lead from the model to the data."""

from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

from ..errors import InputError
from .labelled import Labelled, parts
from .methods import whitening
from .task import Tensor

__all__ = ["Waymark", "common_axes", "labelled_waymarks", "paired", "waymarks"]


def waymarks(real: Tensor, fake: Tensor, bridges: int) -> Tensor:
    """Return fakes, bridges - 1 sets of mixtures, and real samples, along a new first axis.

    Example:
        >>> import torch
        >>> waymarks(torch.ones(1, 1), torch.zeros(1, 1), 2)[:, 0, 0]
        tensor([0.0000, 0.7071, 1.0000])
    """
    import torch

    angle = torch.linspace(0.0, pi / 2, bridges + 1, device=real.device).reshape(-1, *[1] * real.ndim)
    return angle.cos() * fake + angle.sin() * real


def labelled_waymarks(real: Any, fake: Any, bridges: int) -> list[Any]:
    """Return the waymarks of paired samples, each with the labels that both have."""
    (x_real, label), (x_fake, _) = parts(real), parts(fake)
    mixed = waymarks(x_real, x_fake, bridges)
    return [x if label is None else Labelled(x, label) for x in mixed]


def paired(real: Any, fake: Any) -> tuple[Any, Any]:
    """Return as many real samples as fakes; with labels, those at one place have the same label."""
    import torch

    if not isinstance(real, Labelled):
        n = min(len(real), len(fake))
        return real[:n], fake[:n]
    ranked = []
    for batch in (real, fake):
        order = torch.argsort(batch.label, stable=True)
        label = batch.label[order]
        rank = torch.arange(len(label), device=label.device) - torch.searchsorted(label, label)
        ranked.append((batch[order], torch.stack([label, rank], dim=1)))
    keys = torch.cat([key for _, key in ranked])
    _, place, times = torch.unique(keys, dim=0, return_inverse=True, return_counts=True)
    twice = times[place] == 2  # the k-th real sample of a label has a k-th fake of it
    found = ranked[0][0][twice[: len(real)]], ranked[1][0][twice[len(real) :]]
    if not len(found[0]):
        raise InputError("real and propose have no label in common in a batch; use a larger batch_size, or Network()")
    return found


def common_axes(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return axes `(k, m)` along which neither of two sets is correlated, and those along which their spreads differ.

    Between Gaussians the log-ratio is a sum of linear functions and squares along these axes. The same is true between
    the mixtures cos(t) x_fake + sin(t) x_real. If two spreads differ by no more than chance explains, the square would
    only add noise. Directions without any variation are left out.

    Example:
        >>> import torch
        >>> z = torch.randn(2, 4000, 2, generator=torch.Generator().manual_seed(0))
        >>> real = z[0] @ torch.tensor([[1.0, 0.9], [0.0, 0.4]])
        >>> axes, differ = common_axes(real, z[1])
        >>> torch.cov((real @ axes).T)[0, 1].abs() < 1e-3, torch.cov((z[1] @ axes).T)[0, 1].abs() < 1e-3, len(differ)
        (tensor(True), tensor(True), 2)
    """
    import torch

    centred = [(x - x.mean(0)).double() for x in (real, fake)]
    axes = whitening(torch.cat(centred))
    of_real, of_fake = (torch.atleast_2d(torch.cov((x @ axes).T)) for x in centred)
    spread, turn = torch.linalg.eigh((of_real - of_fake) / 2)
    chance = sqrt(axes.shape[1] * (1 / len(real) + 1 / len(fake)))  # edge of the spectrum between two equal Gaussians
    return (axes @ turn).to(real.dtype), torch.nonzero(spread.abs() > chance)[:, 0]


@dataclass(frozen=True)
class Waymark:
    """Samples of one waymark, as a source for a `Task`.

    Args:
        real, fake: The sources that are mixed.
        number: Which waymark; 0 is the model, `bridges` the data.
        bridges: How many bridges there are.
    """

    real: Any
    fake: Any
    number: int
    bridges: int

    @property
    def size(self) -> int | None:
        size: int | None = self.real.size if self.number else self.fake.size
        return size

    def batch(self, step: int, n: int) -> Any:
        return self.of(self.real.batch(step, n), self.fake.batch(step, n))

    def of(self, real: Any, fake: Any) -> Any:
        """Return the waymark between these samples."""
        return labelled_waymarks(*paired(real, fake), self.bridges)[self.number]

    def member(self, number: int, seed: int) -> "Waymark":
        real, fake = self.real.member(number, seed), self.fake.member(number, seed + 1)
        return Waymark(real, fake, self.number, self.bridges)
