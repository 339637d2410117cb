"""Learned accept/reject sampling: normalizing flows whose base is a Gaussian filtered by a learned acceptance a(z).

Both bases are modules that zuko's flows take as they are: calling one returns a distribution. `ResampledBase` is that
of the literature, with an acceptance rate that is learned. You give `BudgetedBase` its rate: 1 in `budget`.

References:
    | Resampled Priors for Variational Autoencoders (Bauer & Mnih, 2019)
    | Resampling Base Distributions of Normalizing Flows (Stimper et al., 2022)
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), conclusion
"""

from functools import partial
from math import log, pi, prod
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, InputTypeError, MissingLibraryError

try:
    import torch
    from torch import nn
    from torch.distributions import Distribution
except ImportError as error:
    raise MissingLibraryError("obrs.rivals.lars needs torch: pip install 'obrs[torch]'") from error

from .._checks import check_budget, check_count, is_number
from ..budget import Cut, solve_log_c
from ..draws import accept, normals
from ..models.mlp import mlp_critic
from ..rules import Budgeted
from ..sampling.rejection import collect, stream
from ..types import Array

__all__ = ["BudgetedBase", "Draws", "ResampledBase", "replace_base"]

_TRAINING = 2**62  # ids from here on are for estimates of Z; those below for samples
_BLOCK = 16384  # candidates at a time


class Draws(NamedTuple):
    """Samples of a base, shape `(n, dim)`, and how many candidates they took in all."""

    z: Array
    proposed: int


class _FilteredNormal(nn.Module):  # type: ignore[misc]
    """A standard normal that is filtered by a network."""

    def __init__(self, dim: int, width: int, layers: int, draws: int, seed: int) -> None:
        super().__init__()
        self.dim, self.draws, self.seed = dim, check_count(draws, "draws"), seed
        self.network = mlp_critic(dim, width=width, layers=layers)
        self.register_buffer("drawn", torch.zeros((), dtype=torch.int64))

    def forward(self, c: Any = None) -> "_Base":
        """Return the distribution; a context is ignored."""
        return _Base(self)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"

    def _score(self, x: Array) -> Array:
        if x.shape[-1] != self.dim:
            raise InputError(f"the base has dimension {self.dim}, got points of dimension {x.shape[-1]}")
        return self.network(x.reshape(-1, self.dim)).reshape(x.shape[:-1])

    def _candidates(self, ids: Any, *, seed: int) -> Array:
        return normals(ids, self.dim, seed=seed, like=self.network[1].weight.detach())

    def _fresh_scores(self, n: int) -> Array:
        """Score n normals that were never used before."""
        ids = _TRAINING + int(self.drawn) + np.arange(n)
        self.drawn += n
        blocks = [self._candidates(ids[at : at + _BLOCK], seed=self.seed) for at in range(0, n, _BLOCK)]
        return torch.cat([self._score(z) for z in blocks])


class ResampledBase(_FilteredNormal):
    """A Gaussian resampled by a learned acceptance a(z): LARS.

    Candidates are drawn until one is accepted, the T-th unconditionally. With Z = E[a] and α = (1 - Z)^(T-1) the
    density is π(z) [(1 - α) a(z)/Z + α]. In training Z is an exponential average over batches of candidates, with the
    gradient of the last; in evaluation it is what `estimate_z` found, or the last average.

    Args:
        dim: Dimension.
        T: Candidates per sample at most.
        width, layers: Hidden layers of a, which ends in a sigmoid.
        momentum: Share ε of a new batch in the average: Z ← (1 - ε) Z + ε Z_batch.
        draws: Candidates in a batch.
        seed: Seed of the candidates in training; torch's own seed decides the initial network.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> base = ResampledBase(2, T=20, width=16)
        >>> base().log_prob(torch.zeros(5, 2)).shape, base.draw(100).z.shape
        (torch.Size([5]), torch.Size([100, 2]))

    References:
        | Resampling Base Distributions of Normalizing Flows (Stimper et al., 2022)
    """

    def __init__(
        self,
        dim: int,
        T: int = 100,
        *,
        width: int = 256,
        layers: int = 2,
        momentum: float = 0.05,
        draws: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__(dim, width, layers, draws, seed)
        self.T, self.momentum = check_count(T, "T"), momentum
        if not is_number(momentum) or not 0 < momentum <= 1:
            raise InputError(f"momentum must be above 0 and at most 1, got {momentum!r}")
        self.register_buffer("rate", torch.zeros(()))
        self.estimate_z(self.draws)

    def acceptance(self, z: Array) -> Array:
        """Return a(z) of points of shape `(..., dim)`."""
        return torch.sigmoid(self._score(z))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def estimate_z(self, n: int = 2**17) -> float:
        """Set Z to the mean of a over n new candidates, and return it."""
        self.rate.copy_(torch.sigmoid(self._fresh_scores(n)).mean())
        return float(self.rate)

    def log_prob(self, z: Array) -> Array:
        """Return the log-density at points of shape `(..., dim)`; in training Z is updated."""
        log_a = nn.functional.logsigmoid(self._score(z))
        rate = self.rate.clone()
        if self.training:
            batch = torch.sigmoid(self._fresh_scores(self.draws)).mean()
            self.rate.lerp_(batch.detach(), self.momentum)
            rate = self.rate + (batch - batch.detach())
        if self.T == 1:
            return _log_normal(z)
        rate = rate.clamp(1e-6, 1 - 1e-6)
        log_missed = (self.T - 1) * torch.log1p(-rate)
        log_hit = torch.log(-torch.expm1(log_missed)) - torch.log(rate)
        return _log_normal(z) + torch.logaddexp(log_hit + log_a, log_missed)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def draw(self, n: int, *, seed: int = 0, start: int = 0) -> Draws:
        """Draw n samples; sample number `start + i` has candidates, and decisions, of its own.

        A block holds some candidates of every sample that is still without one.
        """
        left, tried, proposed = np.arange(check_count(n, "n")), 0, 0
        out = self.network[1].weight.new_empty(n, self.dim)
        while left.size:
            wide = min(self.T - tried, max(1, _BLOCK // left.size))
            ids = (start + left[:, None]) * self.T + tried + np.arange(wide)
            z = self._candidates(ids, seed=seed)
            log_a = nn.functional.logsigmoid(self._score(z))
            hit = accept(log_a.cpu(), ids, seed=seed).numpy()
            tried += wide
            hit[:, -1] |= tried == self.T
            done, at = hit.any(axis=1), hit.argmax(axis=1)
            proposed += int(np.where(done, at + 1, wide).sum())
            out[torch.as_tensor(left[done])] = z[torch.as_tensor(np.flatnonzero(done)), torch.as_tensor(at[done])]
            left = left[~done]
        return Draws(out, proposed)


class BudgetedBase(_FilteredNormal):
    """A Gaussian filtered by a(z) = min(c w(z), 1), with c solved so that 1 in `budget` candidates is accepted.

    The density is π(z) a(z)/Z with Z = 1/budget; if w varies so little that exact rejection costs less, Z is larger.
    log w is a network. In training c is solved on a new batch of candidates each time, and the gradient goes through
    it: raising w in one place lowers the acceptance elsewhere. In evaluation c and Z are what `estimate_z` found.

    Args:
        dim: Dimension.
        budget: Candidates per sample, at least 1.
        width, layers: Hidden layers of log w.
        draws: Candidates in a batch.
        seed: Seed of the candidates in training; torch's own seed decides the initial network.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> base = BudgetedBase(2, budget=1.01, width=16)
        >>> base.draw(1000).proposed < 1030
        True

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), conclusion
    """

    def __init__(
        self, dim: int, budget: float = 2.0, *, width: int = 256, layers: int = 2, draws: int = 4096, seed: int = 0
    ) -> None:
        super().__init__(dim, width, layers, draws, seed)
        self.budget = check_budget(budget)
        self.register_buffer("log_c", torch.zeros(()))
        self.register_buffer("log_rate", torch.zeros(()))
        self.estimate_z(self.draws)

    def acceptance(self, z: Array) -> Array:
        """Return a(z) of points of shape `(..., dim)`."""
        return Cut(self.log_c, self.log_rate).log_a(self._score(z)).exp()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def estimate_z(self, n: int = 2**17) -> float:
        """Solve c on n new candidates, and return the rate Z."""
        self._solve(n)
        return float(self.log_rate.exp())

    def log_prob(self, z: Array) -> Array:
        """Return the log-density at points of shape `(..., dim)`; in training c is solved anew."""
        cut = self._solve(self.draws) if self.training else Cut(self.log_c, self.log_rate)
        return _log_normal(z) + cut.log_a(self._score(z)) - cut.log_rate

    def draw(self, n: int, *, seed: int = 0, start: int = 0) -> Draws:
        """Draw n samples by rejection, from the candidates with ids `start` on."""
        rule, propose = Budgeted(float(self.log_c)), partial(self._candidates, seed=seed)
        kept = collect(stream(propose, self._score, rule, batch_size=_BLOCK, seed=seed, start=start), n)
        return Draws(kept.x, int(kept.ids[-1]) + 1 - start)

    def _solve(self, n: int) -> Cut:
        log_w = self._fresh_scores(n)
        log_c = solve_log_c(log_w, self.budget)
        log_rate = torch.log(torch.exp(Cut(log_c, None).log_a(log_w)).double().mean()).to(log_c)
        self.log_c.copy_(log_c.detach())
        self.log_rate.copy_(log_rate.detach())
        return Cut(log_c, log_rate)


class _Base(Distribution):  # type: ignore[misc]
    """The distribution of a base; `sample` takes its seed from torch's generator."""

    has_rsample = False
    arg_constraints: dict[str, Any] = {}  # noqa: RUF012  the name and type that torch wants

    def __init__(self, module: Any, batch_shape: Any = ()) -> None:
        self.module = module
        super().__init__(torch.Size(batch_shape), torch.Size([module.dim]), validate_args=False)

    def expand(self, batch_shape: Any, new: Any = None) -> "_Base":
        return _Base(self.module, batch_shape)

    def log_prob(self, z: Array) -> Array:
        return self.module.log_prob(z.expand(torch.broadcast_shapes(z.shape, self.batch_shape + self.event_shape)))

    def sample(self, sample_shape: Any = ()) -> Array:
        shape = (*sample_shape, *self.batch_shape)
        seed = int(torch.randint(2**62, ()))
        return self.module.draw(max(1, prod(shape)), seed=seed).z[: prod(shape)].reshape(*shape, self.module.dim)


def replace_base(flow: Any, base: Any) -> Any:
    """Return a zuko flow with the transformation of `flow` and another base.

    Args:
        flow: A flow of `zuko.flows`; its transformation is shared, not copied.
        base: `ResampledBase`, `BudgetedBase` or any lazy distribution of zuko.

    Example:
        >>> import zuko
        >>> flow = replace_base(zuko.flows.NICE(2, transforms=2), BudgetedBase(2, budget=4))
        >>> flow().log_prob(torch.zeros(3, 2)).shape
        torch.Size([3])
    """
    try:
        from zuko.flows import Flow
    except ImportError as error:
        raise MissingLibraryError("replace_base needs zuko: pip install zuko") from error
    if not hasattr(flow, "transform"):
        raise InputTypeError(f"flow must be a flow of zuko, got {type(flow).__name__}")
    ours, theirs = tuple(base().event_shape), tuple(flow().event_shape)
    if ours != theirs:
        raise InputError(f"the flow has dimension {theirs[-1]} and the base {ours[-1]}; they must be equal")
    return Flow(flow.transform, base)


def _log_normal(z: Array) -> Array:
    return -0.5 * (z**2).sum(dim=-1) - 0.5 * z.shape[-1] * log(2 * pi)
