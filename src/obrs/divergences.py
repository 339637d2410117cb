"""f-divergences as data: each is five elementwise functions in log-ratio form.

`D_f(P‖Q) = E_Q[f(p/q)]` with `f` convex and `f(1) = 0`. Everything that depends on the ratio `u = p/q` takes
`log u`. So ratios may be beyond the range of a float, and no function turns a number or an infinity into a NaN.
Arrays of any backend go in and come out; numbers and lists become NumPy.

References:
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Table 1
    | f-GAN: Training Generative Neural Samplers using Variational Divergence Minimization
      (Nowozin et al., 2016), conjugates and critics
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, log
from typing import Any, NoReturn

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from ._arrays import as_floats
from ._checks import check_positive
from ._text import unknown_name
from .errors import DivergenceError, InputTypeError
from .types import Array

__all__ = ["DIVERGENCES", "FDivergence", "pr"]

Fn = Callable[[Any], Array]
Formula = Callable[[Any, Array], Array]  # (namespace, float array) -> array


@dataclass(frozen=True)
class FDivergence:
    """An f-divergence `E_q[f(p/q)]` with `f(1) = 0`, as elementwise functions.

    The conjugate is exact on the whole line: `f*(t) = sup_{u >= 0} (t u - f(u))`, `+inf` outside its domain.

    Args:
        name: Key in `DIVERGENCES`, lowercase, or the call that made the record.
        f: Generator, as a function of `log u`.
        conjugate: Fenchel conjugate `f*(t)`.
        critic: Optimal critic `f'(u)`, as a function of `log u`.
        log_ratio: Its inverse, `log (f*)'(t)`; outside the range of the critic, the limit (`-inf` or `+inf`).
        f_star_of_f_prime: `f*(f'(u)) = u f'(u) - f(u)`, as a function of `log u`, computed directly.

    Example:
        >>> kl = DIVERGENCES["kl"]
        >>> kl
        FDivergence(name='kl')
        >>> kl.f([-float("inf"), 0.0, 1.0])
        array([0.        , 0.        , 2.71828183])
        >>> kl.log_ratio(kl.critic([-3.0, 0.0, 900.0]))
        array([ -3.,   0., 900.])
    """

    name: str
    f: Fn = field(repr=False)
    conjugate: Fn = field(repr=False)
    critic: Fn = field(repr=False)
    log_ratio: Fn = field(repr=False)
    f_star_of_f_prime: Fn = field(repr=False)


def _elementwise(formula: Formula, argument: str) -> Fn:
    def apply(x: Any) -> Array:
        x = as_floats(x, argument)
        with np.errstate(all="ignore"):  # an overflow to inf is the right answer here, so no warning
            out = formula(array_namespace(x), x)
        return np.asarray(out) if is_numpy_array(x) else out  # NumPy turns 0-d arrays into scalars

    return apply


def _record(name: str, **formulas: Formula) -> FDivergence:
    arguments = {"conjugate": "t", "log_ratio": "t"}
    fields = {key: _elementwise(g, arguments.get(key, "log_u")) for key, g in formulas.items()}
    return FDivergence(name, **fields)


def _scale(base: FDivergence, scale: float, name: str) -> FDivergence:
    return _record(
        name,
        f=lambda xp, x: scale * base.f(x),
        conjugate=lambda xp, t: scale * base.conjugate(t / scale),
        critic=lambda xp, x: scale * base.critic(x),
        log_ratio=lambda xp, t: base.log_ratio(t / scale),
        f_star_of_f_prime=lambda xp, x: scale * base.f_star_of_f_prime(x),
    )


# The formulas below choose with `where` twice, once for the argument and once for the result: a branch that
# is not taken must still be finite, or its derivative, 0 * inf, poisons the gradients of torch and JAX.
# Conditions name the exceptional case: NaN, for which every comparison is false, passes through the formula.


def _unless(outside: Callable[[Array], Array], value: float, formula: Formula) -> Formula:
    """Apply `formula`, which must accept -1, except where `t` is `outside`; return `value` there."""

    def pieces(xp: Any, t: Array) -> Array:
        out = outside(t)
        return xp.where(out, value, formula(xp, xp.where(out, -1.0, t)))

    return pieces


def _u_log_u(xp: Any, x: Array) -> Array:
    x = xp.where(x == -inf, 0.0, x)  # u log u is 0 at both
    return xp.exp(x) * x


def _gan_f(xp: Any, x: Array) -> Array:
    """Return `u log u - (u + 1) log(u + 1) + 2 log 2`, which as written cancels from log u = 36 on."""
    clipped = xp.clip(x, min=-1000.0, max=40.0)  # e^x log(1 + e^-x) is 0 below, 1 above
    return 2 * log(2) - softplus(xp, x) - xp.exp(clipped) * softplus(xp, -clipped)


def _half_sign(xp: Any, x: Array) -> Array:
    return xp.where(x < 0, -0.5, xp.where(x > 0, 0.5, xp.where(x == 0, 0.0, x)))


def _no_log_ratio(name: str, side: str) -> Formula:
    def refuse(xp: Any, t: Array) -> NoReturn:
        raise DivergenceError(
            f"{name} has no log_ratio: its critic only tells on which side of {side} the ratio is; "
            "train the critic with kl, gan, chi2 or hellinger, or use a classifier"
        )

    return refuse


class _Divergences(dict[str, FDivergence]):
    def __missing__(self, key: object) -> NoReturn:
        raise unknown_name(key, self, "divergence")


_GAN = _record(
    "gan",
    f=_gan_f,
    conjugate=_unless(lambda t: t >= 0, inf, lambda xp, t: -log1m_exp(xp, t) - 2 * log(2)),
    critic=lambda xp, x: -softplus(xp, -x),
    log_ratio=_unless(lambda t: t >= 0, inf, lambda xp, t: t - log1m_exp(xp, t)),
    f_star_of_f_prime=lambda xp, x: softplus(xp, x) - 2 * log(2),
)

_ALL = (
    _record(
        "kl",  # u log u
        f=_u_log_u,
        conjugate=lambda xp, t: xp.exp(t - 1),
        critic=lambda xp, x: 1 + x,
        log_ratio=lambda xp, t: t - 1,
        f_star_of_f_prime=lambda xp, x: xp.exp(x),
    ),
    _record(
        "rkl",  # -log u
        f=lambda xp, x: -x,
        conjugate=_unless(lambda t: t >= 0, inf, lambda xp, t: -1 - xp.log(-t)),
        critic=lambda xp, x: -xp.exp(-x),
        log_ratio=_unless(lambda t: t >= 0, inf, lambda xp, t: -xp.log(-t)),
        f_star_of_f_prime=lambda xp, x: x - 1,
    ),
    _GAN,  # u log u - (u + 1) log(u + 1) + 2 log 2: twice the Jensen-Shannon divergence
    _scale(_GAN, 0.5, "js"),
    _record(
        "tv",  # ½ |u - 1|
        f=lambda xp, x: xp.abs(xp.expm1(x)) / 2,
        conjugate=lambda xp, t: xp.where(t > 0.5, inf, xp.clip(t, min=-0.5)),
        critic=_half_sign,
        log_ratio=_no_log_ratio("tv", "1"),
        f_star_of_f_prime=_half_sign,
    ),
    _record(
        "chi2",  # (u - 1)²
        f=lambda xp, x: xp.expm1(x) ** 2,
        conjugate=lambda xp, t: (s := xp.clip(t, min=-2.0)) * (1 + s / 4),
        critic=lambda xp, x: 2 * xp.expm1(x),
        log_ratio=_unless(lambda t: t <= -2, -inf, lambda xp, t: xp.log1p(t / 2)),
        f_star_of_f_prime=lambda xp, x: xp.expm1(2 * x),
    ),
    _record(
        "neyman",  # (u - 1)² / u
        f=lambda xp, x: 4 * xp.sinh(x / 2) ** 2,
        # 2 - 2 √(1 - t), without cancellation at 0
        conjugate=_unless(lambda t: t > 1, inf, lambda xp, t: -2 * xp.expm1(xp.log1p(-t) / 2)),
        critic=lambda xp, x: -xp.expm1(-2 * x),
        log_ratio=_unless(lambda t: t >= 1, inf, lambda xp, t: -xp.log1p(-t) / 2),
        f_star_of_f_prime=lambda xp, x: -2 * xp.expm1(-x),
    ),
    _record(
        "hellinger",  # (√u - 1)²
        f=lambda xp, x: xp.expm1(x / 2) ** 2,
        conjugate=_unless(lambda t: t >= 1, inf, lambda xp, t: xp.expm1(-xp.log1p(-t))),  # t / (1 - t)
        critic=lambda xp, x: -xp.expm1(-x / 2),
        log_ratio=_unless(lambda t: t >= 1, inf, lambda xp, t: -2 * xp.log1p(-t)),
        f_star_of_f_prime=lambda xp, x: xp.expm1(x / 2),
    ),
)

DIVERGENCES: dict[str, FDivergence] = _Divergences({d.name: d for d in _ALL})
"""The divergences without a parameter, by name; an unknown name raises `UnknownNameError`."""


def divergence(key_or_record: str | FDivergence) -> FDivergence:
    """Return the record with this name, or the record itself.

    Example:
        >>> divergence("tv")
        FDivergence(name='tv')
        >>> divergence(pr(2))
        FDivergence(name='pr(2.0)')
    """
    if isinstance(key_or_record, FDivergence):
        return key_or_record
    if isinstance(key_or_record, str):
        return DIVERGENCES[key_or_record]
    raise InputTypeError(
        f"a divergence must be a name in DIVERGENCES or an FDivergence, got {type(key_or_record).__name__}"
    )


def divergence_between(div: FDivergence, log_p: Any, log_q: Any) -> float:
    """Return D_f(P‖Q) from the logs of the masses of both at the same points; where Q has none, p f'(inf)."""
    q = np.exp(log_q)
    met = q > 0
    missed = float(np.sum(np.exp(log_p[~met])))
    beyond = missed * float(div.critic(inf)) if missed else 0.0
    return float(q[met] @ div.f(log_p[met] - log_q[met])) + beyond


def pr(lam: float) -> FDivergence:
    """Make the precision-recall divergence `f(u) = max(lam u, 1) - max(lam, 1)`.

    The precision of Q at `lam`, `E_Q[min(lam p/q, 1)]`, is `min(lam, 1) - D(P‖Q)`.

    Args:
        lam: The trade-off, above 0 and finite; the critic is `lam` where `lam u > 1` and 0 elsewhere.

    Example:
        >>> pr(2).f([-1.0, 0.0, 1.0])
        array([-1.        ,  0.        ,  3.43656366])

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 3.3
    """
    lam = check_positive(lam, "lam")
    top, edge = max(lam, 1.0), -log(lam)  # lam u is above 1 where log u is above the edge

    def f(xp: Any, x: Array) -> Array:
        flat = x <= edge
        return xp.where(flat, 1 - top, lam * xp.expm1(xp.where(flat, 0.0, x)) + (lam - top))

    def step(below: float, above: float) -> Formula:
        return lambda xp, x: xp.where(x > edge, above, xp.where(x <= edge, below, x))

    def conjugate(xp: Any, t: Array) -> Array:
        beyond = t > xp.full_like(t, lam)  # rounded like the critic, which must not lie beyond it
        return xp.where(beyond, inf, xp.clip(xp.where(beyond, 0.0, t), min=0.0) / lam + (top - 1))

    return _record(
        name := f"pr({lam})",
        f=f,
        conjugate=conjugate,
        critic=step(0.0, lam),
        log_ratio=_no_log_ratio(name, f"1/{lam}"),
        f_star_of_f_prime=step(top - 1, top),
    )


def softplus(xp: Any, x: Array) -> Array:
    """Return `log(1 + e^x)`, several times as fast in NumPy as by `logaddexp`; its slope at 0 is 1/2 everywhere."""
    zero = xp.zeros_like(x)
    top = xp.maximum(x, zero)
    return top + xp.log1p(xp.exp(xp.minimum(x, zero) - top))


def log1m_exp(xp: Any, t: Array) -> Array:
    """Return `log(1 - e^t)` for negative `t`."""
    near = t > -log(2)
    above, below = xp.where(near, t, -1.0), xp.where(near, -1.0, t)
    return xp.where(near, xp.log(-xp.expm1(above)), xp.log1p(-xp.exp(below)))
