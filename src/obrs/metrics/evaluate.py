"""What did the budget buy? Every metric at every budget from one pool of proposals, with paired errors.

The chance a(x) that a rule keeps a proposal is known, so a pool that is weighted by it stands for what would be kept
at any budget, and nothing is drawn again. Two budgets share their rows: their difference is known better than either.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._arrays import host_values
from .._checks import check_confidence, check_count, check_seed
from .._text import lookup
from ..errors import InputError
from ._inputs import both_features
from .features import FEATURES, extract
from .frechet_distance import frechet_curves
from .images import ImageSet, read_array, read_images
from .jackknife import LEAST_GROUPS
from .kernel_distance import kernel_curve
from .nearest_neighbours import Neighbourhood
from .rows import row_hashes, seen_before
from .table import METRICS, Row, Table
from .weightings import Weightings, weightings

__all__ = ["evaluate", "samples"]

Floats = np.ndarray[Any, Any]


def evaluate(
    *,
    real: Any,
    fake: Any,
    log_ratio: Any = None,
    budgets: Sequence[float] = (1, 1.5, 2, 4, 8),
    features: str | Callable[[Any], Any] | None = None,
    groups: Any = None,
    rules: Sequence[str] = ("obrs", "drs"),
    fitted_on: Any = None,
    k: int = 5,
    size: int | None = None,
    draws: int = 4,
    confidence: float = 0.95,
    pixels: tuple[float, float] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Table:
    """Measure what is kept at each budget against real samples, from one pool of proposals.

    Each row of the result is a rule and a budget, each metric a number with an interval, and with another interval for
    its difference to the model as it is (budget 1). Fréchet distances are extrapolated to infinitely many samples, the
    kernel distance is unbiased, precision and density do not depend on how many fakes there are; recall and coverage
    are for `size` fakes, the same at every budget. So every column compares down its rows.

    Args:
        real: Samples of the target that neither the model nor the ratio has seen: features `(n, dim)`, or with
            `features` images as an array, a `.npy` or `.npz` file, or a folder of PNG and JPEG.
        fake: The pool: proposals of the model as they come, in the same form. Do not reject any before.
        log_ratio: Of each row of fake, `(n,)`, or a callable that takes fake and returns them, such as the result of
            `refit`. None measures the model as it is.
        budgets: Proposals per kept sample; 1 is always there.
        features: A key of `obrs.metrics.features.FEATURES`, or a callable on images; None if real and fake are
            features.
        groups: Labels of the fakes, `(n,)`, for one constant per label, each at the same budget.
        rules: Which rules are compared, "obrs" and "drs".
        fitted_on: What the ratio was fitted on: the real rows themselves, or their `row_hashes`, which a result of
            `refit` has in `seen`. There is a warning if some of them are in real. If `log_ratio` is such a result,
            it is asked itself.
        k: Whose distance is the radius of a ball, for precision, recall, density and coverage.
        size: How many fakes recall and coverage are for; None for as many as the largest budget keeps.
        draws: How many draws of that size they are means over.
        confidence: Of the intervals.
        pixels: The values of black and white in float images; None for (-1, 1).
        seed: Of draws, halves and groups left out.
        progress: Show a bar while features are computed; None shows one on a terminal.

    Returns:
        The table: print it, `.save(folder)` it as JSON and PNG, `.plot()` it, or read its `rows`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((1000, 4)), rng.standard_normal((2000, 4)) * 1.3
        >>> log_ratio = -0.5 * (fake**2).sum(1) * (1 - 1.3**-2)
        >>> table = evaluate(real=real, fake=fake, log_ratio=log_ratio, budgets=[1, 2], rules=["obrs"])
        >>> [(row.budget, row["frechet"].low > 0) for row in table.rows]
        [(1.0, True), (2.0, False)]
        >>> table.rows[1].change["frechet"].high < 0
        True

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 6
    """
    check_confidence(confidence)
    check_count(k, "k")
    seed = check_seed(seed)
    sets = [_source(real, "real", features, pixels), _source(fake, "fake", features, pixels)]
    _check_sizes(*sets)
    if features is not None:
        sets = [extract(images, features, progress=progress) for images in sets]
    x, y, dimension = both_features(sets[0], sets[1])
    pool = _pool(fake, log_ratio, budgets, rules, groups, len(y), pixels)
    _warn_of_seen(real, log_ratio, fitted_on, pixels)
    wanted = _size(len(x), pool, k, size)
    effective = pool.weights.sum(axis=1) ** 2 / (pool.weights**2).sum(axis=1)
    _warn_of_few(len(x), effective, dimension)
    curves = _curves(x, y, pool, k=k, size=wanted, draws=draws, seed=seed)
    rows = []
    for line, (rule, budget) in enumerate(pool.keys):
        rows.append(
            Row(
                rule=rule,
                budget=budget,
                rate=float(pool.rate[line]),
                ess=float(pool.ess[line]) if log_ratio is not None else float("nan"),
                n=float(effective[line]),
                metrics={name: curve.interval(line, confidence) for name, curve in curves.items()},
                change={name: curve.difference(line, 0, confidence) for name, curve in curves.items()},
            )
        )
    return Table(
        rows=tuple(rows),
        features=features if features is None or isinstance(features, str) else "your own",
        titled=_titled(features),
        dimension=dimension,
        n_real=len(x),
        n_fake=len(y),
        size=wanted,
        k=int(k),
        confidence=float(confidence),
        grouped=groups is not None,
    )


def _titled(features: Any) -> str:
    """Return what the features are called."""
    known = FEATURES.get(features) if isinstance(features, str) else features
    return "" if known is None else str(getattr(known, "title", "your own features"))


def _check_sizes(real: Any, fake: Any) -> None:
    """Raise if images are of two sizes: extractors resize them, and would show the size as a difference."""
    if isinstance(real, ImageSet) and isinstance(fake, ImageSet) and real.shape[1:] != fake.shape[1:]:
        one, other = (f"{images.shape[2]}x{images.shape[1]}" for images in (real, fake))
        raise InputError(f"real has images of {one} and fake of {other}; resize one of them first")


def _source(source: Any, name: str, features: Any, pixels: Any) -> Any:
    """Return the features given, or the images whose features are to be computed."""
    if features is not None:
        if isinstance(features, str):
            lookup(FEATURES, features, "features")
        return read_images(source, pixels=pixels, name=name)
    if isinstance(source, str | os.PathLike):
        if os.path.isdir(source):
            raise InputError(f"{name} is a folder of images; say features=, one of {', '.join(FEATURES)}")
        source = read_array(source)
    if getattr(source, "ndim", 2) in (3, 4):
        shape, known = tuple(source.shape), ", ".join(FEATURES)
        raise InputError(f"{name} has shape {shape}: if these are images, say features=, one of {known}")
    return source


def _pool(fake: Any, log_ratio: Any, budgets: Any, rules: Any, groups: Any, n: int, pixels: Any) -> Weightings:
    if log_ratio is None:
        if groups is not None:
            raise InputError("groups need log_ratio: without one there is nothing to reject by")
        return weightings(np.zeros(n), (1.0,), ("obrs",))
    if callable(log_ratio):
        log_ratio = log_ratio(samples(fake, pixels))
    values = host_values(log_ratio)
    if values is None or values.shape != (n,):
        raise InputError(f"log_ratio must have shape ({n},), one per fake, got {np.shape(log_ratio)}")
    return weightings(values, budgets, rules, groups)


def samples(source: Any, pixels: Any) -> Any:
    """Return samples as arrays: as they were given, or read from files, images as floats in [-1, 1].

    Example:
        >>> samples(np.ones((2, 3)), None).shape
        (2, 3)
    """
    if not isinstance(source, str | os.PathLike):
        return source
    if not os.path.isdir(source) and (found := read_array(source)).ndim == 2:
        return found
    images = read_images(source, pixels=pixels)
    return images.floats(0, images.n)


def _size(n_real: int, pool: Weightings, k: int, size: Any) -> int:
    """Return how many fakes recall and coverage are for, or raise if there are too few for intervals."""
    kept = int(np.floor(pool.weights.sum(axis=1).min() + 0.5))
    wanted = kept if size is None else check_count(size, "size", k + 1)
    # without one of the groups that are left out in turn, more than k must stay
    least = max(2 * LEAST_GROUPS, k + 2 + k // 10)
    if min(n_real, wanted) < least:
        what = f"{wanted} fakes" if size is not None else f"{wanted} fakes kept at the largest budget"
        raise InputError(f"intervals need at least {least} real samples and {least} fakes, got {n_real} and {what}")
    return wanted


def _curves(real: Any, fake: Any, pool: Weightings, *, k: int, size: int, draws: int, seed: int) -> dict[str, Any]:
    """Return the curve of each metric."""
    slopes = None if pool.groups is not None else pool.slopes
    beyond, plain = frechet_curves(real=real, fake=fake, weights=pool.weights, slopes=slopes, seed=seed)
    kernel = kernel_curve(real=real, fake=fake, weights=pool.weights, slopes=slopes)
    curves: dict[str, Any] = {"frechet": beyond, "frechet_plain": plain, "kernel": kernel}
    if pool.groups is not None:
        curves = {name: pool.pulled(found) for name, found in curves.items()}
    around = Neighbourhood.of(real=real, fake=fake, k=k, size=size, groups=LEAST_GROUPS, seed=seed)
    near = around.curve(pool.weights, size=size, draws=draws, seed=seed, without=pool.without)
    curves |= {name: getattr(near, name) for name in METRICS if name not in curves}
    return {name: curves[name] for name in METRICS}


def _warn_of_seen(real: Any, log_ratio: Any, fitted_on: Any, pixels: Any) -> None:
    known = fitted_on if fitted_on is not None else getattr(log_ratio, "seen", None)
    if known is None:
        return
    source = samples(real, pixels)
    hashes = row_hashes(source)
    if seen := seen_before(hashes, known):
        warnings.warn(
            f"{seen} of {len(hashes)} real samples were also used to fit the ratio, which then looks better than it "
            "is; evaluate on real samples that were held out",
            stacklevel=3,
        )


def _warn_of_few(n_real: int, effective: Floats, dimension: int) -> None:
    least = min(float(n_real), float(effective.min()))
    if least < dimension:
        which = "real samples" if n_real <= effective.min() else "fakes at the largest budget"
        warnings.warn(
            f"the features have {dimension} dimensions and there are {least:.0f} {which}: from fewer samples than "
            "dimensions a covariance has no inverse, and Fréchet distances say more about n than about the model",
            stacklevel=3,
        )
