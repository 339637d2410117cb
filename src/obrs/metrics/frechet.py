"""The Fréchet distance between features of real and fake samples: FID, whatever the features are.

With mean and covariance (m, R) of real and (k, F) of fake it is |m - k|² + tr R + tr F - 2 tr (R^½ F R^½)^½. A curve
takes all budgets in coordinates where only one matrix depends on the budget: with R = B Bᵀ, the fakes times B have the
covariance Bᵀ F B = V s² Vᵀ, and the last trace is the sum of s.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ._inputs import check_pair, check_rows, check_weights
from .curve import Curve, Effects, Influence
from .weightings import as_pool

__all__ = ["frechet", "frechet_curve", "frechet_effects"]

Floats = np.ndarray[Any, Any]

_BLOCK = 1024  # rows whose products are summed in the precision of the features; their sums are added in float64
_PANEL = 512  # columns of a product at a time: what is above the diagonal is not computed
_NUMBERS = 1 << 22  # features that influences are computed of: of more rows, a random subset tells the error
_FEWEST = 1024  # rows of such a subset: a standard error from so many is known to 3 %


def frechet(*, real: Any, fake: Any, weights: Any = None) -> float:
    """Return the Fréchet distance between real and fake features.

    It is called FID if the features are those of the Inception network, and only then. The distance between finite
    samples is too large, by about b/n: half the rows have twice the excess. So two distances compare at equal n only,
    and a weighted pool has another n than the samples it would keep. `frechet_curve` removes the excess and has errors.

    Args:
        real: Features of real samples, `(n, dim)`. float32 is faster than float64.
        fake: Features of fake samples.
        weights: Chance that each fake row is kept, `(n,)`, up to a factor; equal by default.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((1000, 3))
        >>> round(frechet(real=x, fake=x + 1), 6), round(frechet(real=x, fake=2 * x), 1)
        (3.0, 3.0)

    References:
        | GANs Trained by a Two Time-Scale Update Rule Converge to a Local Nash Equilibrium (Heusel et al., 2017)
    """
    real, fake = check_pair(real, fake)
    lines = check_weights(weights, len(fake))
    if len(lines) > 1:
        raise InputError(f"weights must have shape ({len(fake)},), got {lines.shape}; use frechet_curve for several")
    check_rows(real, lines)
    one, two = _moments(real, np.ones(len(real))), _moments(fake, lines[0])
    root = _root(one.covariance)
    values = np.linalg.eigvalsh(root.T @ two.covariance @ root)
    gap = one.mean - two.mean
    traces = np.trace(one.covariance) + np.trace(two.covariance)
    return float(gap @ gap + traces - 2 * np.sqrt(np.maximum(values, 0.0)).sum())


def frechet_curve(*, real: Any, fake: Any, weights: Any = None) -> Curve:
    """Return the Fréchet distance of one pool at many budgets, for infinitely many rows, and its paired errors.

    Errors and the excess of finitely many rows come from the first and second derivative of the distance when mass
    moves to a row. The excess is half the mean of the second, over n: the infinitesimal jackknife. About dim/(4 n) of
    it is left, n being the smaller of both sides, effective if there are weights: trust what is extrapolated where n is
    well above the dimension. Where real and fake hardly differ, errors are too large by up to the root of 2: rows then
    move little but noise.

    Args:
        real, fake: As for `frechet`.
        weights: Chance that each fake row is kept, `(n,)` or `(budgets, n)`, or `weightings`. Of weights that were
            solved for on this pool the errors of an array are wrong, those of `weightings` are right.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((2000, 2)), 1.5 * rng.standard_normal((2000, 2))
        >>> log_ratio = -0.5 * (fake**2).sum(1) * (1 - 1 / 1.5**2)
        >>> curve = frechet_curve(real=real, fake=fake, weights=np.exp([0 * log_ratio, log_ratio]))
        >>> (curve.value > 0.1).tolist(), curve.difference(1, 0).high < 0
        ([True, False], True)

    References:
        | The Influence Curve and its Role in Robust Estimation (Hampel, 1974)
        | The Infinitesimal Jackknife (Jaeckel, 1972)
        | Limit Laws of the Empirical Wasserstein Distance: Gaussian Distributions (Rippl, Munk and Sturm, 2016)
        | Effectively Unbiased FID and Inception Score and Where to Find Them (Chong and Forsyth, 2020), who
          extrapolate by a line through many sizes, of the fake side alone
    """
    real, fake = check_pair(real, fake)
    pool = as_pool(weights, len(fake))
    return pool.curve(frechet_effects(real, fake, pool.weights), len(real))


def frechet_effects(real: Floats, fake: Floats, weights: Floats) -> Effects:
    """Return distances, excess and influences of a pool with weights `(budgets, n)`."""
    check_rows(real, weights)
    frame = _Frame.fit(real, fake)
    mass = weights / weights.sum(axis=1, keepdims=True)
    means = sum(mass[:, part] @ fake[part].astype(np.float64) for part in _blocks(fake)) - frame.mean
    norms = np.concatenate([np.sum((fake[part] - frame.mean) ** 2, axis=1) for part in _blocks(fake)])
    lines = []
    for w, mean in zip(mass, means, strict=True):
        trace = float(w @ norms - mean @ mean) / (1 - float(w @ w))
        lines.append(_distance(frame, w, mean, trace))
    value, excess, of_real, of_fake = (np.stack(part) for part in zip(*lines, strict=True))
    return Effects(value, excess, frame.real.influence(of_real, len(real)), frame.fake.influence(of_fake, len(fake)))


class _Side(NamedTuple):
    """Rows whose influence is computed: their numbers, less the mean of real, and in the coordinates of the frame."""

    rows: Floats
    x: Floats
    inside: Floats

    def influence(self, value: Floats, n: int) -> Influence:
        return Influence(self.rows, np.full(len(self.rows), n / len(self.rows)), value)


class _Frame(NamedTuple):
    """What all budgets share.

    Attributes:
        n: How many real rows there are.
        mean: Of real; `trace` is that of its covariance.
        scale: What the coordinates of the fakes are divided by, so that they are of the size of the features.
        z: All fakes, in coordinates in which the covariance of the fakes is Bᵀ F B.
        real: Some real rows, in coordinates in which their covariance is 1.
        fake: Some fakes.
    """

    n: int
    mean: Floats
    trace: float
    scale: float
    z: Floats
    real: _Side
    fake: _Side

    @classmethod
    def fit(cls, real: Floats, fake: Floats) -> "_Frame":
        moments = _moments(real, np.ones(len(real)))
        values, vectors = np.linalg.eigh(moments.covariance)
        sound = values > max(values[-1], 0.0) * len(values) * 1e-15
        sound[-1] = True
        roots, vectors = np.sqrt(np.maximum(values[sound], 0.0)), vectors[:, sound]
        scale = float(roots[-1]) or 1.0  # 0 if all real rows are one
        inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)
        # From no more rows than dimensions some eigenvalues are 0, and the root of a rounded 0 is large.
        dtype = real.dtype if min(len(real), len(fake)) > real.shape[1] else np.dtype(np.float64)
        basis = (vectors * (roots / scale)).astype(dtype)
        z = np.concatenate([(fake[part] - moments.mean).astype(dtype) @ basis for part in _blocks(fake)])
        some, some_fake = (_some_rows(x) for x in (real, fake))
        x = (real[some] - moments.mean).astype(dtype)
        sides = (
            _Side(some, x, x @ (vectors * inverse).astype(dtype)),
            _Side(some_fake, (fake[some_fake] - moments.mean).astype(dtype), z[some_fake]),
        )
        return cls(len(real), moments.mean, float(np.trace(moments.covariance)), scale, z, *sides)


def _distance(frame: _Frame, w: Floats, mean: Floats, trace: float) -> tuple[float, float, Floats, Floats]:
    """Return the distance at one line of masses, its excess, and the influence of the rows of both sides.

    With y = x - mean of its side, the first derivative is 2 (mean - other mean)·y + |y|² - |v|², up to a constant. The
    second is |v|² + sum v_i² v_j²/(s_i + s_j) + sum s_i/2. Here v are the coordinates in which the rows of both sides
    have the covariance diag(s).
    """
    moments, squares = _moments(frame.z, w), float(w @ w)
    values, vectors = np.linalg.eigh(moments.covariance)
    s = frame.scale * np.sqrt(np.maximum(values, 0.0))
    value = float(mean @ mean) + frame.trace + trace - 2 * float(s.sum())
    turn, pull = vectors.astype(frame.z.dtype), mean.astype(frame.z.dtype)

    x, u = frame.real.x, frame.real.inside
    bent, second = _quadratic((u @ turn) ** 2 * s.astype(u.dtype), s, np.full(len(u), 1 / frame.n))
    of_real = np.sum((x - 2 * pull) * x, axis=1, dtype=np.float64) - bent
    excess = (second.mean() / 2 + frame.trace - s.sum()) / frame.n

    x, z = frame.fake.x - pull, frame.fake.inside - moments.mean.astype(turn.dtype)
    sound = s > s.max() * (len(s) * 2.2e-16) ** 0.5
    stretch = np.divide(frame.scale**2, s, out=np.zeros_like(s), where=sound)
    some = w[frame.fake.rows]
    bent, second = _quadratic((z @ turn) ** 2 * stretch.astype(z.dtype), s, some)
    of_fake = np.sum((x + 2 * pull) * x, axis=1, dtype=np.float64) - bent
    square = float(some @ some)
    if square > 0:
        excess += squares * (float(some**2 @ second) / square / 2 + trace - s.sum())
    if w.min() < w.max():  # rows bend the moments towards themselves, heavy ones more: as if each had been left out
        of_fake -= some * second
    centre = float(some @ of_fake) / float(some.sum() or 1.0)
    return value, float(excess), of_real - of_real.mean(), of_fake - centre


def _quadratic(squares: Floats, s: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Return |v|² and the second derivative of each row, from the squares of v.

    In many dimensions a row of mass m holds up a part of the covariance by itself, and the second derivative at the
    sample is too small. What counts is the change of the trace of the root when the row is left out, less its first
    order. With a = m/(1 - m) and q(t) = sum s_i v_i²/(s_i² + t) the trace falls by the integral of -log(1 - a q)/√t
    over 2π, all orders in m included. In x = log t it is a sum with step 1, whose tails are geometric series.
    """
    most = float(s.max()) or 1.0
    floor = np.maximum(s, 1e-4 * most)
    log_t = np.arange(2 * np.log(floor.min()) - 5, 2 * np.log(most) + 6)
    root_t = np.exp(log_t / 2)
    columns = np.append(floor[:, None] / (floor[:, None] ** 2 + root_t**2), np.ones((len(s), 1)), axis=1)
    sums = (squares @ columns.astype(squares.dtype)).astype(np.float64)
    q, bent = np.minimum(sums[:, :-1], 1e150), sums[:, -1]  # below the root of the largest float
    x = np.minimum((mass / (1 - mass))[:, None] * q, 1 - 1e-6)
    small = x < 1e-3
    safe = np.where(small, 0.5, x)
    curvature = np.where(small, 0.5 + x / 3, (-np.log1p(-safe) - safe) / safe**2)
    tails = np.ones(len(root_t))
    tails[0] += 1 / (np.exp(0.5) - 1)  # as √t before the first node
    tails[-1] += 1 / (np.exp(1.5) - 1)  # as t^(-3/2) beyond the last
    return bent, bent + (q**2 * curvature) @ (root_t * tails) * (2 / np.pi) + float(s.sum()) / 2


class _Moments(NamedTuple):
    """Mean and unbiased covariance, in float64."""

    mean: Floats
    covariance: Floats


def _moments(x: Floats, weights: Floats) -> _Moments:
    """Return the moments of rows with weights.

    Products of centred rows are summed over a thousand rows in the precision of the features, and beyond that in
    float64. So float32 features cost half as much as float64 ones, and the error stays that of the features. With no
    more rows than dimensions all is in float64: some eigenvalues are then 0, and the root of a rounded 0 is large.
    """
    dim = x.shape[1]
    w = weights / weights.max()  # equal weights are 1, and round nothing
    total = float(w.sum())
    dtype = x.dtype if np.count_nonzero(w) > dim else np.dtype(np.float64)
    mean = sum(w[part] @ x[part].astype(np.float64) for part in _blocks(x)) / total
    centre, scatter = mean.astype(dtype), np.zeros((dim, dim))
    for part in _blocks(x):
        rows = x[part].astype(dtype, copy=False) - centre
        rows *= np.sqrt(w[part]).astype(dtype)[:, None]
        for left in range(0, dim, _PANEL):
            right = left + _PANEL
            scatter[left:, left:right] += rows[:, left:].T @ rows[:, left:right]
    for left in range(0, dim, _PANEL):
        right = left + _PANEL
        scatter[left:right, right:] = scatter[right:, left:right].T
    gap = mean - centre  # the mean was rounded to the precision of the products
    scatter = scatter / total - gap[:, None] * gap
    return _Moments(mean, scatter / (1 - float(w @ w) / total**2))


def _root(covariance: Floats) -> Floats:
    """Return B with B Bᵀ = covariance: by Cholesky, or from eigenvectors if it is singular."""
    try:
        return np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _some_rows(x: Floats) -> Floats:
    """Return all rows, or if there are many a random subset, whose error and excess agree to a few per cent."""
    most = max(_NUMBERS // x.shape[1], _FEWEST)
    if len(x) <= most:
        return np.arange(len(x))
    return np.sort(np.random.default_rng(0).choice(len(x), most, replace=False))


def _blocks(x: Floats) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, len(x), _BLOCK))
