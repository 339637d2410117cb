"""Losses of critics and generators: pure functions of what critics say about real and fake samples.

    critic = critic_loss("gan")                          # or "kl", ..., "hinge", "wgan"
    critic(real, fake)                                   # scalar; outputs of the critic, shape (n,)
    generator = generator_loss("exact", "gan")
    generator(fake, solve_cut(fake, budget))             # scalar; `rejection` only if `generator.rejects`

The critic of a divergence says `log r`, and the variational bound `E_P[T] - E_Q[f*(T)]` is taken at `T = f'(r)`, which
loses nothing, since the best T is `f'(p/q)`. So every T is in the domain of `f*`, for the GAN divergence the loss is
the logistic one, and the log-ratio that rejection needs is at hand. Hinge and WGAN critics say no log-ratio.

Generator losses, with Z = E_Q[a] (1/K while K <= M) and u = p/q~ = Z max(r, 1/c), the ratio that rejection leaves:

    dual            -E_Q[f*(f'(r))]          the f-GAN
    non_saturating  -E_Q[f'(r)]              for gan, E_Q[softplus(-log r)]
    hinge, wgan     -E_Q[T]
    paper           E_Q[a/Z f(r Z/a)]        Algorithm 2 of the paper, with f(1) = 0
    paper_raw       the same with the paper's f of gan, f(1) = -2 log 2
    exact           -E_Q[f*(f'(u))] / Z      the gradient of D_f(P || Q~)
    two_critics     -E_Q[a/Z f*(f'(u~))]     u~ from a second critic, trained on P and Q~

A loss that grows faster than `log r` is clamped at `max_log_ratio`: beyond this limit its value is constant, and its
gradient is that at the limit, so that a critic which went too far is still led back. A loss that would overflow in
float32 even below the limit is clamped where it would. The losses of `gan` and `js` are never clamped, and of those of
`rkl` only the critic's and the non-saturating one are.

References:
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 4
    | f-GAN: Training Generative Neural Samplers using Variational Divergence Minimization (Nowozin et al., 2016)
    | Improved Training of Wasserstein GANs (Gulrajani et al., 2017)
    | Geometric GAN (Lim and Ye, 2017), the hinge loss
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import log
from typing import Any

import torch
from torch.nn.functional import logsigmoid, softplus

from .._checks import check_positive
from .._text import lookup
from ..budget import Cut
from ..divergences import DIVERGENCES, FDivergence, divergence
from ..errors import DivergenceError, InputError
from ..fitting.penalty import gradient_penalty
from .window import critic_output

__all__ = [
    "CRITIC_LOSSES",
    "GENERATOR_LOSSES",
    "MAX_LOG_RATIO",
    "CriticLoss",
    "GeneratorLoss",
    "critic_loss",
    "generator_loss",
    "gradient_penalty",
]

Fn = Callable[[torch.Tensor], torch.Tensor]
Terms = Callable[[torch.Tensor, Cut | None, torch.Tensor | None], torch.Tensor]

MAX_LOG_RATIO = 20.0
"""Where log-ratios are clamped by default: ratios up to 5e8, whose squares are still far from overflow in float32."""

_LARGEST = 1e28  # of values and slopes in log u: what float32 has beyond is for weights of K and sums over a batch
_PROBES = 2.0 ** (torch.arange(-30 * 16, 90 * 16, dtype=torch.float64, device="cpu") / 16)  # 1e-9 to 1e27

# What grows at most linearly in log u, and needs no clamp: e^700 is beyond a float32, 700 is not.
_LINEAR = {
    "gan": {"f", "critic", "f_star_of_f_prime"},
    "js": {"f", "critic", "f_star_of_f_prime"},
    "rkl": {"f", "f_star_of_f_prime"},
    "kl": {"critic"},
}


def _raw_f(log_u: torch.Tensor) -> torch.Tensor:
    """Return `u log u - (u + 1) log(u + 1)`, the f of gan as the paper prints it: -2 log 2 at u = 1."""
    below = log_u.clamp(max=40.0)  # u log(1 + 1/u) is 1 to the last bit above
    return -(softplus(log_u, threshold=40) + below.exp() * softplus(-below, threshold=40))


def _half(function: Fn) -> Fn:
    return lambda log_u: function(log_u) / 2


# The records of `gan` and `js` keep every digit around their zeros, which takes ten operations on a few hundred
# numbers: at batch 256 more time than solving for c. A loss is as well served by torch's own kernels.
_GAN: dict[str, Fn] = {
    "f": lambda log_u: _raw_f(log_u) + 2 * log(2),
    "critic": logsigmoid,
    "f_star_of_f_prime": lambda log_u: softplus(log_u, threshold=40) - 2 * log(2),
}
_IN_KERNELS: dict[str, dict[str, Fn]] = {"gan": _GAN, "js": {key: _half(of_gan) for key, of_gan in _GAN.items()}}


@dataclass(frozen=True)
class CriticLoss:
    """What a critic descends: the mean of `real` over real outputs plus the mean of `fake` over fake ones.

    Args:
        name: The divergence, or "hinge", "wgan".
        real: Term of each output on a real sample.
        fake: Term of each output on a fake sample.
        of_ratio: Whether the critic's output is a log-ratio.

    Example:
        >>> CRITIC_LOSSES["gan"](torch.zeros(4), torch.zeros(8))  # the logistic loss, less 2 log 2
        tensor(0.)
    """

    name: str
    real: Fn = field(repr=False)
    fake: Fn = field(repr=False)
    of_ratio: bool = True

    def __call__(self, real: torch.Tensor, fake: torch.Tensor, log_weight: torch.Tensor | None = None) -> torch.Tensor:
        """Return the loss of a batch.

        Args:
            real: Outputs on real samples, shape (n,).
            fake: Outputs on fake samples, shape (m,).
            log_weight: Of the fakes; `cut.log_a(log_ratio) - cut.log_rate` turns fakes of Q into fakes of Q~. No
                gradient goes through it.
        """
        terms = self.fake(critic_output(fake, "fake"))
        if log_weight is not None:
            terms = log_weight.detach().exp() * terms
        return self.real(critic_output(real, "real")).mean() + terms.mean()


@dataclass(frozen=True)
class GeneratorLoss:
    """What a generator descends, a function of the critic's outputs on fakes.

    Args:
        mode: Key in `GENERATOR_LOSSES`.
        divergence: Name of the divergence, or None for hinge and WGAN.
        terms: Term of each sample, `(fake, rejection, kept) -> (n,)`.
        of_ratio: Whether `fake` must be log-ratios.
        rejects: Whether it needs a `Cut`.
        second_critic: Whether it needs the outputs of a second critic, trained on P and Q~.

    Example:
        >>> from obrs.budget import solve_cut
        >>> fake = torch.tensor([1.5, 0.5, -1.0, -2.0], requires_grad=True)
        >>> loss = generator_loss("exact", "gan")(fake, solve_cut(fake, budget=2))
        >>> torch.autograd.grad(loss, fake)[0]  # only where a = 1
        tensor([-0.3457,  0.0000,  0.0000,  0.0000])
    """

    mode: str
    divergence: str | None
    terms: Terms = field(repr=False)
    of_ratio: bool = True
    rejects: bool = False
    second_critic: bool = False

    def __call__(
        self, fake: torch.Tensor, rejection: Cut | None = None, kept: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the loss of a batch.

        Args:
            fake: Outputs of the critic on fakes, shape (n,).
            rejection: Of this step, from `solve_cut` or a `BudgetWindow`; ignored unless `rejects`.
            kept: Outputs of the second critic on the same fakes; ignored unless `second_critic`.
        """
        fake = critic_output(fake, "fake")
        if self.rejects and rejection is None:
            raise InputError(f"the loss {self.mode!r} needs the rejection of this step; see solve_cut")
        if self.second_critic:
            if kept is None:
                raise InputError(f"the loss {self.mode!r} needs kept=, the second critic's outputs on the same fakes")
            kept = critic_output(kept, "kept")
            if kept.shape != fake.shape:
                raise InputError(f"kept must have the shape of fake {tuple(fake.shape)}, got {tuple(kept.shape)}")
        return self.terms(fake, rejection, kept).mean()


Build = Callable[[FDivergence, float], GeneratorLoss]


def critic_loss(name: str | FDivergence, *, max_log_ratio: float = MAX_LOG_RATIO) -> CriticLoss:
    """Return the loss of a critic: the negative variational bound of a divergence, or "hinge", or "wgan".

    Args:
        name: Key in `CRITIC_LOSSES`, or a divergence whose critic tells the ratio.
        max_log_ratio: Where log-ratios are clamped, both ways; earlier, if the loss would outgrow float32.

    Example:
        >>> loss = critic_loss("kl")  # real and fake outputs are log-ratios
        >>> loss(torch.tensor([0.7]), torch.tensor([-0.3])).round(decimals=4)  # e^-0.3 - (1 + 0.7)
        tensor(-0.9592)
    """
    limit = check_positive(max_log_ratio, "max_log_ratio")
    if isinstance(name, FDivergence):
        return _variational(name, limit)
    found = lookup(CRITIC_LOSSES, name, "critic loss")
    return _variational(DIVERGENCES[name], limit) if found.of_ratio else found


def generator_loss(mode: str, of: str | FDivergence = "gan", *, max_log_ratio: float = MAX_LOG_RATIO) -> GeneratorLoss:
    """Return the loss of a generator.

    Args:
        mode: Key in `GENERATOR_LOSSES`; see the table at the top of the module.
        of: The divergence, by name or as a record; hinge and WGAN have none and ignore it.
        max_log_ratio: Where log-ratios are clamped, both ways, if the loss grows faster than them; earlier, if it
            would outgrow float32.

    Example:
        >>> loss = generator_loss("non_saturating")
        >>> loss(torch.zeros(3)) == torch.log(torch.tensor(2.0))
        tensor(True)
    """
    build = lookup(GENERATOR_LOSSES, mode, "generator loss")
    limit = check_positive(max_log_ratio, "max_log_ratio")
    record = lookup(DIVERGENCES, of, "divergence") if isinstance(of, str) else divergence(of)
    return build(record, limit)


def _clamped(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Clamp the value and keep the gradient, which is then that at the limit."""
    return x.detach().clamp(low, high) + (x - x.detach())


def _safe(record: FDivergence, key: str, limit: float) -> Fn:
    """Return an elementwise function of log u of a divergence that overflows nowhere."""
    record.log_ratio([-1.0])  # says why, if its critic has no ratio to tell
    function: Fn = _IN_KERNELS.get(record.name, {}).get(key) or getattr(record, key)
    if key in _LINEAR.get(record.name, ()):
        return function
    reach = [_reach(function, sign * _PROBES) for sign in (-1, 1)]
    if not all(reach):
        raise DivergenceError(f"{record.name} outgrows float32 at ratios next to 1; train with another divergence")
    low, high = (min(limit, end) for end in reach)
    return lambda log_u: function(_clamped(log_u, -low, high))


def _reach(function: Fn, log_u: torch.Tensor) -> float:
    """Return the size of the last of these, from 0 outwards, up to which values and slopes are at most `_LARGEST`."""
    x = log_u.float()  # as in training, for what overflows on the way to a value that does not
    with torch.no_grad():
        values = function(x)
    slopes = values.diff() / x.diff()  # to the next, so never less than the slope at the probe where they grow
    fits = (values[:-1].abs() <= _LARGEST) & (slopes.abs() <= _LARGEST)  # False for NaN
    count = int(fits.int().cumprod(0).sum())
    return float(log_u[count - 1].abs()) if count else 0.0


def _variational(record: FDivergence, limit: float) -> CriticLoss:
    critic = _safe(record, "critic", limit)
    return CriticLoss(record.name, lambda out: -critic(out), _safe(record, "f_star_of_f_prime", limit))


def _before_rejection(mode: str, key: str) -> Build:
    """Build -E_Q[value(r)] with a function of the divergence."""

    def build(record: FDivergence, limit: float) -> GeneratorLoss:
        value = _safe(record, key, limit)
        return GeneratorLoss(mode, record.name, lambda fake, *_: -value(fake))

    return build


def _exact(record: FDivergence, limit: float) -> GeneratorLoss:
    value = _safe(record, "f_star_of_f_prime", limit)

    def terms(fake: torch.Tensor, rejection: Any, kept: Any) -> torch.Tensor:
        return -torch.exp(-rejection.log_rate) * value(rejection.log_u(fake))

    return GeneratorLoss("exact", record.name, terms, rejects=True)


def _linear(mode: str) -> Build:
    return lambda record, limit: GeneratorLoss(mode, None, lambda fake, *_: -fake, of_ratio=False)


def _primal(mode: str, record: FDivergence, f: Fn) -> GeneratorLoss:
    def terms(fake: torch.Tensor, rejection: Any, kept: Any) -> torch.Tensor:
        return (rejection.log_a(fake) - rejection.log_rate).exp() * f(rejection.log_u(fake))

    return GeneratorLoss(mode, record.name, terms, rejects=True)


def _paper(record: FDivergence, limit: float) -> GeneratorLoss:
    return _primal("paper", record, _safe(record, "f", limit))


def _paper_raw(record: FDivergence, limit: float) -> GeneratorLoss:
    if record.name != "gan":
        raise DivergenceError(
            f"the generator loss paper_raw is for gan, the one divergence the paper prints with f(1) = -2 log 2, got "
            f"{record.name}; choose exact, or dual for plain training"
        )
    return _primal("paper_raw", record, _raw_f)


def _two_critics(record: FDivergence, limit: float) -> GeneratorLoss:
    value = _safe(record, "f_star_of_f_prime", limit)

    def terms(fake: torch.Tensor, rejection: Any, kept: Any) -> torch.Tensor:
        # Without a gradient in a: what is kept is a sample of Q~, and moves as such. With it, this would also
        # descend the rate times a constant of f, which the budget holds fixed.
        return -(rejection.log_a(fake.detach()) - rejection.log_rate).exp() * value(kept)

    return GeneratorLoss("two_critics", record.name, terms, rejects=True, second_critic=True)


def _has_ratio(record: FDivergence) -> bool:
    try:
        record.log_ratio([-1.0])
    except DivergenceError:
        return False
    return True


CRITIC_LOSSES: dict[str, CriticLoss] = {
    **{name: _variational(d, MAX_LOG_RATIO) for name, d in DIVERGENCES.items() if _has_ratio(d)},
    "hinge": CriticLoss("hinge", lambda out: torch.relu(1 - out), lambda out: torch.relu(1 + out), of_ratio=False),
    "wgan": CriticLoss("wgan", lambda out: -out, lambda out: out, of_ratio=False),
}
"""Losses of critics by name; `critic_loss` also makes those of other divergences and of other limits."""

GENERATOR_LOSSES: dict[str, Build] = {
    "dual": _before_rejection("dual", "f_star_of_f_prime"),
    "non_saturating": _before_rejection("non_saturating", "critic"),
    "hinge": _linear("hinge"),
    "wgan": _linear("wgan"),
    "paper": _paper,
    "paper_raw": _paper_raw,
    "exact": _exact,
    "two_critics": _two_critics,
}
"""Builders of generator losses by mode, `(divergence, limit) -> GeneratorLoss`; call `generator_loss` instead."""
