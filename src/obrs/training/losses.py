"""Losses of critics and generators: pure functions of the critic's outputs on real and fake samples.

    critic_loss("gan")(real, fake)                                     # or "kl", ..., "hinge", "wgan"
    generator_loss("exact", "gan")(fake, solve_cut(fake, budget))      # the cut only if the loss `rejects`

The critic of a divergence returns `log r`, and the variational bound `E_P[T] - E_Q[f*(T)]` is taken at `T = f'(r)`,
which loses nothing, since the best T is `f'(p/q)`. So every T is in the domain of `f*`, for the GAN divergence the loss
is the logistic one, and the log-ratio that rejection needs is at hand. Hinge and WGAN critics return no log-ratio; a
critic with a second output, shape (n, 2), learns one there with the logistic loss, whatever the first is trained with.

Generator losses, with Z = E_Q[a] (1/K while K <= M) and u = p/q~ = Z max(r, 1/c), the ratio left after rejection:

    dual            -E_Q[f*(f'(r))]          the f-GAN
    non_saturating  -E_Q[f'(r)]              for gan, E_Q[softplus(-log r)]
    hinge, wgan     -E_Q[T]
    paper           E_Q[a/Z f(r Z/a)]        Algorithm 2 of the paper, with f(1) = 0
    paper_raw       the same with the paper's f of gan, f(1) = -2 log 2
    exact           -E_Q[f*(f'(u))] / Z      the gradient of D_f(P || Q~)

A loss that grows faster than `log r` is clamped at `MAX_LOG_RATIO`: beyond it the value is constant, and the gradient
is that at the limit, so that a critic which went too far is still led back.

References:
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 4
    | f-GAN: Training Generative Neural Samplers using Variational Divergence Minimization (Nowozin et al., 2016)
    | Improved Training of Wasserstein GANs (Gulrajani et al., 2017)
    | Geometric GAN (Lim and Ye, 2017), the hinge loss
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import log
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from .._text import lookup
from ..budget import Cut
from ..divergences import DIVERGENCES, FDivergence, divergence
from ..errors import DivergenceError, InputError, InputTypeError

__all__ = ["CRITIC_LOSSES", "GENERATOR_LOSSES", "CriticLoss", "GeneratorLoss", "critic_loss", "generator_loss"]

Fn = Callable[[Tensor], Tensor]
Terms = Callable[[Tensor, Any], Tensor]

MAX_LOG_RATIO = 20.0
"""Where log-ratios are clamped: ratios up to 5e8, whose squares are still far from overflow in float32."""


@dataclass(frozen=True)
class CriticLoss:
    """Loss of a critic: the mean of `real` over outputs on real samples plus the mean of `fake` over those on fakes.

    Args:
        name: The divergence, or "hinge", "wgan".
        real, fake: Term of each output on a real sample, and on a fake one.
        of_ratio: Whether the critic's output is a log-ratio.
    """

    name: str
    real: Fn = field(repr=False)
    fake: Fn = field(repr=False)
    of_ratio: bool = True

    def __call__(self, real: Tensor, fake: Tensor, log_weight: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            real: Outputs on real samples, shape (n,); or (n, 2), where the second has the logistic loss.
            fake: Outputs on fake samples, shape (m,) or (m, 2).
            log_weight: Of the fakes; `cut.log_a(log_ratio) - cut.log_rate` turns fakes of Q into fakes of Q~. No
                gradient goes through it.
        """
        terms = self.fake(first_output(fake, "fake"))
        if log_weight is not None:
            terms = log_weight.detach().exp() * terms
        loss = self.real(first_output(real, "real")).mean() + terms.mean()
        return loss if real.ndim == 1 else loss + CRITIC_LOSSES["gan"](real[:, 1], fake[:, 1])


@dataclass(frozen=True)
class GeneratorLoss:
    """Loss of a generator, a function of the critic's outputs on fakes.

    Args:
        name: Key in `GENERATOR_LOSSES`.
        terms: Term of each sample, `(fake, cut) -> (n,)`.
        rejects: Whether it needs a `Cut`.

    Example:
        >>> from obrs.budget import solve_cut
        >>> fake = torch.tensor([1.5, 0.5, -1.0, -2.0], requires_grad=True)
        >>> loss = generator_loss("exact", "gan")(fake, solve_cut(fake, budget=2))
        >>> torch.autograd.grad(loss, fake)[0]  # only where a = 1
        tensor([-0.3457,  0.0000,  0.0000,  0.0000])
    """

    name: str
    terms: Terms = field(repr=False)
    rejects: bool = False

    def __call__(self, fake: Tensor, cut: Cut | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            fake: Outputs of the critic on fakes, shape (n,), or (n, 2), of which the first counts.
            cut: Of this step, from `solve_cut`; ignored unless `rejects`.
        """
        if self.rejects and cut is None:
            raise InputError(f"the loss {self.name!r} needs the cut of this step; see solve_cut")
        return self.terms(first_output(fake, "fake"), cut).mean()


def critic_loss(name: str | FDivergence) -> CriticLoss:
    """Return a loss of `CRITIC_LOSSES` by name, or that of another divergence whose critic determines the ratio.

    Example:
        >>> critic_loss("kl")(torch.tensor([0.7]), torch.tensor([-0.3])).round(decimals=4)  # e^-0.3 - (1 + 0.7)
        tensor(-0.9592)
    """
    return _variational(name) if isinstance(name, FDivergence) else lookup(CRITIC_LOSSES, name, "critic loss")


def generator_loss(name: str, of: str | FDivergence = "gan") -> GeneratorLoss:
    """Return the loss of a generator.

    Args:
        name: Key in `GENERATOR_LOSSES`; see the table at the top of the module.
        of: The divergence, by name or as a record; hinge and WGAN have none and ignore it.

    Example:
        >>> generator_loss("non_saturating")(torch.zeros(3)) == torch.log(torch.tensor(2.0))
        tensor(True)
    """
    build = lookup(GENERATOR_LOSSES, name, "generator loss")
    record = lookup(DIVERGENCES, of, "divergence") if isinstance(of, str) else divergence(of)
    if name == "paper_raw" and record.name != "gan":
        raise DivergenceError(
            f"the generator loss paper_raw is for gan, the one divergence the paper prints with f(1) = -2 log 2, got "
            f"{record.name}; choose exact, or dual for plain training"
        )
    return GeneratorLoss(name, build(_steady(record)), rejects=name in ("paper", "paper_raw", "exact"))


def first_output(x: Any, name: str = "fake") -> Tensor:
    """Return the first of a critic's outputs, of shape (n,) or (n, 2), in float32 or float64; errors call it `name`."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise InputTypeError(f"{name} must be a floating torch tensor of critic outputs, got {kind}")
    if x.numel() == 0 or x.shape[1:] not in ((), (2,)):
        hint = "; squeeze it" if x.shape[1:] == (1,) else ""
        raise InputError(f"{name} must have one critic output per sample, shape (n,), got {tuple(x.shape)}{hint}")
    x = x if x.ndim == 1 else x[:, 0]
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _raw_f(log_u: Tensor) -> Tensor:
    """Return `u log u - (u + 1) log(u + 1)`, the f of gan as the paper prints it: -2 log 2 at u = 1."""
    below = log_u.clamp(max=40.0)  # u log(1 + 1/u) is 1 to the last bit above
    return -(softplus(log_u, threshold=40) + below.exp() * softplus(-below, threshold=40))


# The record of `gan` keeps every digit around its zero, which takes ten operations on a few hundred numbers: at batch
# 256 more time than solving for c. A loss is as well served by torch's own kernels.
_GAN: dict[str, Fn] = {
    "f": lambda log_u: _raw_f(log_u) + 2 * log(2),
    "critic": logsigmoid,
    "f_star_of_f_prime": lambda log_u: softplus(log_u, threshold=40) - 2 * log(2),
}
# What grows at most linearly in log u, and needs no clamp.
_LINEAR = {"js": {*_GAN}, "rkl": {"f", "f_star_of_f_prime"}, "kl": {"critic"}, "gan": {*_GAN}}


def _steady(record: FDivergence) -> FDivergence:
    """Return the divergence with functions for training: of `gan` torch's own, of others clamped."""
    record.log_ratio([-1.0])  # raises if the critic of this divergence does not determine the ratio
    given = _GAN if record.name == "gan" else {key: getattr(record, key) for key in _GAN}
    linear = _LINEAR.get(record.name, ())
    steady: Any = {key: fn if key in linear else _clamp(fn) for key, fn in given.items()}
    return replace(record, **steady)


def _clamp(function: Fn) -> Fn:
    """Clamp the argument of a function and keep its gradient, which is then that at the limit."""
    return lambda x: function(x.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO) + (x - x.detach()))


def _variational(record: FDivergence) -> CriticLoss:
    of = _steady(record)
    return CriticLoss(record.name, lambda out: -of.critic(out), of.f_star_of_f_prime)


def _kept_terms(f: Fn, x: Tensor, cut: Cut) -> Tensor:
    """Return the terms a/Z f(r Z/a) of what rejection keeps."""
    log_kept = (x + cut.log_c).clamp(max=0.0) - cut.log_rate
    return log_kept.exp() * f(x - log_kept)


CRITIC_LOSSES: dict[str, CriticLoss] = {
    **{name: _variational(record) for name, record in DIVERGENCES.items() if name != "tv"},
    "hinge": CriticLoss("hinge", lambda out: torch.relu(1 - out), lambda out: torch.relu(1 + out), of_ratio=False),
    "wgan": CriticLoss("wgan", lambda out: -out, lambda out: out, of_ratio=False),
}
"""Losses of critics by name; `critic_loss` also makes those of other divergences."""

GENERATOR_LOSSES: dict[str, Callable[[FDivergence], Terms]] = {
    "dual": lambda of: lambda x, cut: -of.f_star_of_f_prime(x),
    "non_saturating": lambda of: lambda x, cut: -of.critic(x),
    "hinge": lambda of: lambda x, cut: -x,
    "wgan": lambda of: lambda x, cut: -x,
    "paper": lambda of: lambda x, cut: _kept_terms(of.f, x, cut),
    "paper_raw": lambda of: lambda x, cut: _kept_terms(_raw_f, x, cut),
    "exact": lambda of: lambda x, cut: -torch.exp(-cut.log_rate) * of.f_star_of_f_prime(cut.log_u(x)),
}
"""Terms of generator losses by name, of a divergence; call `generator_loss` instead."""
