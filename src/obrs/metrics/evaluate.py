"""Measure every metric at every budget from one pool of proposals, with paired errors.

The chance a(x) that a rule keeps a proposal is known, so a pool that is weighted by it stands for what would be kept
at any budget, and nothing is drawn again. Two budgets share their rows: their difference is known better than either.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np

from .._arrays import known_values
from .._checks import check_confidence, check_count, check_seed
from .._text import lookup
from ..errors import InputError
from ._inputs import check_pair, effective_size, split_labels
from .curve import GROUPS, Curve, Influence
from .features import FEATURES, extract
from .frechet import frechet_effects
from .images import read_file, read_images
from .kernel import kernel_effects
from .neighbours import neighbour_curves
from .rows import row_hashes
from .table import METRICS, Row, Table
from .weightings import Weightings, weightings

__all__ = ["check_not_one_file", "evaluate", "read_samples"]

Floats = np.ndarray[Any, Any]


def evaluate(
    *,
    real: Any,
    fake: Any,
    log_ratio: Any = None,
    budgets: Sequence[float] = (1, 1.5, 2, 4, 8),
    groups: Any = None,
    shares: Any = None,
    rules: Sequence[str] = ("obrs",),
    features: str | Callable[[Any], Any] | None = None,
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
            `features` images as an array, a `.npy` or `.npz` file, or a folder of PNG and JPEG. A pair (x, y) has
            labels y. With labels on both sides there is also the mean distance within the classes of real, each as
            often as it is in real: a distance of all classes together may fall because their mix has changed.
        fake: The pool: proposals of the model as they come, in the same form. Do not reject any before.
        log_ratio: Of each row of fake, `(n,)`, or a callable that takes fake and returns them, such as the result of
            `refit`. None measures the model as it is.
        budgets: Proposals per kept sample; 1 is always there.
        groups: Labels of the fakes, `(n,)`, for one constant per label, or a callable that takes fake.
        shares: Shares of the groups among the kept, a dict by label or an array in the order of the sorted labels; by
            default every group is kept at the same rate.
        rules: Which rules are compared, of "obrs", "drs" and "topk".
        features: A key of `obrs.metrics.features.FEATURES`, or a callable on images; None if real and fake are
            features.
        fitted_on: What the ratio was fitted on: the real rows themselves, or their `row_hashes`, which a result of
            `refit` has in `seen`. There is a warning if some of them are in real. A `log_ratio` that is such a result
            needs no `fitted_on`.
        k: Whose distance is the radius of a ball, for precision, recall, density and coverage.
        size: How many fakes recall and coverage are for; None for as many as the largest budget keeps.
        draws: How many draws of that size they are means over.
        confidence: Of the intervals.
        pixels: The values of black and white in float images; None for (-1, 1).
        seed: Of draws and of groups left out.
        progress: Show a bar while features are computed; None shows one on a terminal.

    Returns:
        The table: print it, `.save(folder)` it as JSON and PNG, `.plot()` it, or read its `rows`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.standard_normal((1000, 4)), rng.standard_normal((2000, 4)) * 1.3
        >>> log_ratio = -0.5 * (fake**2).sum(1) * (1 - 1.3**-2)
        >>> table = evaluate(real=real, fake=fake, log_ratio=log_ratio, budgets=[1, 2])
        >>> [(row.budget, row["frechet"].low > 0) for row in table.rows]
        [(1.0, True), (2.0, False)]
        >>> table.rows[1].change["frechet"].high < 0
        True

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 6
    """
    check_confidence(confidence)
    k, seed = check_count(k, "k"), check_seed(seed)
    check_not_one_file(real, fake)
    (one, label), (two, label_fake) = (_open(x, name) for x, name in ((real, "real"), (fake, "fake")))
    x, y = _features(one, two, features, pixels, progress)
    for name, n, labels in (("real", len(x), label), ("fake", len(y), label_fake)):
        if labels is not None and labels.shape != (n,):
            raise InputError(f"{name} has {n} samples and labels of shape {labels.shape}")
    if (label is None) != (label_fake is None):
        raise InputError("one of real and fake has labels, (x, y); give them for both, or for neither")
    batch = read_samples(fake, pixels) if callable(log_ratio) or callable(groups) else None
    scores, groups = (given(batch) if callable(given) else given for given in (log_ratio, groups))
    pool = _pool(scores, len(y), budgets, rules, groups, shares)
    _warn_of_seen(real, log_ratio, fitted_on, pixels)
    size_used = _size(len(x), pool, k, size)
    _warn_of_few(x, pool)
    effects = frechet_effects(x, y, pool.weights)
    beyond, kernel = (pool.curve(each, len(x)) for each in (effects, kernel_effects(x, y, pool.weights)))
    curves = {"frechet": beyond, "frechet_plain": replace(beyond, value=effects.value), "kernel": kernel}
    if label is not None and label_fake is not None:
        curves |= _class_distances(x, y, pool, label, label_fake)
    curves |= neighbour_curves(real=x, fake=y, weights=pool, k=k, size=size_used, draws=draws, seed=seed)
    rows = []
    for line, (rule, budget) in enumerate(pool.keys):
        ess = float(pool.ess[line]) if log_ratio is not None else nan
        effective = float(effective_size(pool.weights[line]))
        metrics = {name: curves[name].estimate(line, confidence) for name in METRICS if name in curves}
        change = {name: curves[name].difference(line, 0, confidence) for name in metrics}
        rows.append(Row(rule, budget, float(pool.rate[line]), ess, effective, metrics, change))
    known = FEATURES[features] if isinstance(features, str) else features
    return Table(
        rows=tuple(rows),
        features=None if features is None else str(getattr(known, "title", "your own")),
        dimension=x.shape[1],
        n_real=len(x),
        n_fake=len(y),
        size=size_used,
        k=k,
        confidence=float(confidence),
        grouped=pool.groups is not None,
    )


def read_samples(source: Any, pixels: tuple[float, float] | None = None) -> Any:
    """Return samples as an array, or a pair with labels; images that are read from files are floats in [-1, 1].

    Example:
        >>> read_samples(np.ones((2, 3))).shape
        (2, 3)
    """
    given = source[0] if isinstance(source, tuple) else source
    if not isinstance(given, str | os.PathLike):
        return source
    x, labels = _open(source, "samples")
    if getattr(x, "ndim", 4) > 2:
        images = read_images(x, pixels=pixels, name=str(given))
        x = images.floats(0, images.n)
    return x if labels is None else (x, labels)


def _open(source: Any, name: str) -> tuple[Any, Floats | None]:
    """Return samples and their labels, those of a file if none are given; a folder stays a path."""
    x, labels = split_labels(source, name)
    if isinstance(x, str | os.PathLike) and not os.path.isdir(x):
        x, stored = read_file(x)
        labels = stored if labels is None else labels
    return x, labels


def check_not_one_file(real: Any, fake: Any) -> None:
    """Raise if both are one file or folder."""
    paths = [x[0] if isinstance(x, tuple) and x else x for x in (real, fake)]
    if all(isinstance(path, str | os.PathLike) and os.path.exists(path) for path in paths) and os.path.samefile(*paths):
        raise InputError(f"real and fake are the same, {paths[0]}; fake must be proposals of the model")


def _features(
    real: Any, fake: Any, features: Any, pixels: tuple[float, float] | None, progress: bool | None
) -> tuple[Floats, Floats]:
    """Return the features given, or those of images."""
    if features is None:
        for name, source in (("real", real), ("fake", fake)):
            if isinstance(source, str | os.PathLike):
                raise InputError(f"{name} is a folder of images; say features=, one of {', '.join(FEATURES)}")
            if getattr(source, "ndim", 2) in (3, 4):
                known = f"if these are images, say features=, one of {', '.join(FEATURES)}"
                raise InputError(f"{name} has shape {tuple(source.shape)}: {known}")
    else:
        if isinstance(features, str):
            lookup(FEATURES, features, "features")
        sets = [read_images(x, pixels=pixels, name=name) for x, name in ((real, "real"), (fake, "fake"))]
        sizes = [f"{images.shape[2]}x{images.shape[1]}" for images in sets]
        if sizes[0] != sizes[1]:  # extractors resize them, and would show the size as a difference
            raise InputError(f"real has images of {sizes[0]} and fake of {sizes[1]}; resize one of them first")
        real, fake = (extract(images, features, progress=progress) for images in sets)
    x, y = check_pair(real, fake)
    if x.shape == y.shape and np.array_equal(x, y):
        raise InputError("real and fake are the same samples; fake must be proposals of the model")
    return x, y


def _pool(log_ratio: Any, n: int, budgets: Any, rules: Any, groups: Any, shares: Any) -> Weightings:
    if log_ratio is None:
        if groups is not None or shares is not None:
            raise InputError("groups need log_ratio: without one there is nothing to reject by")
        return weightings(np.zeros(n), (1.0,))
    values = known_values(log_ratio, "log_ratio")
    if values.shape != (n,):
        raise InputError(f"log_ratio must have shape ({n},), one per fake, got {values.shape}")
    return weightings(values, budgets, rules, groups, shares)


def _size(n_real: int, pool: Weightings, k: int, size: Any) -> int:
    """Return how many fakes recall and coverage are for, or raise if there are too few for intervals."""
    kept = int(np.floor(pool.weights.sum(axis=1).min() + 0.5))
    subset = kept if size is None else check_count(size, "size", k + 1)
    least = max(2 * GROUPS, k + 2 + k // 10)  # without one of the groups, more than k must stay
    if min(n_real, subset) < least:
        what = f"{subset} fakes" if size is not None else f"{subset} fakes kept at the largest budget"
        raise InputError(f"intervals need at least {least} real samples and {least} fakes, got {n_real} and {what}")
    return subset


def _class_distances(
    real: Floats, fake: Floats, pool: Weightings, label: Floats, label_fake: Floats
) -> dict[str, Curve]:
    """Return the mean distances within classes, each counted as often as it is in real.

    The value is NaN where less than two fakes of a class are kept. Classes of one real sample are left out.
    """
    names, count = np.unique(label, return_counts=True)
    names, share = names[count > 1], count[count > 1] / count[count > 1].sum()
    mass = pool.weights / pool.weights.sum(axis=1, keepdims=True)
    curves = {}
    for name, measure in (("frechet_within", frechet_effects), ("kernel_within", kernel_effects)):
        value, real_parts, fake_parts = np.zeros(len(mass)), [], []
        for each, p in zip(names, share, strict=True):
            rows, rows_fake = np.flatnonzero(label == each), np.flatnonzero(label_fake == each)
            kept = np.count_nonzero(mass[:, rows_fake], axis=1) > 1
            value[~kept] = nan
            if not kept.any():
                continue
            some = np.where(kept[:, None], mass[:, rows_fake], 1.0)
            effects = measure(real[rows], fake[rows_fake], some)
            value += p * (effects.value - effects.excess)
            real_parts.append(p * effects.real.spread(len(rows)))
            # mass that moves to a row is a larger share of its class than of the pool
            unit = p * effects.fake.value / some.sum(axis=1, keepdims=True)
            fake_parts.append(Influence(rows_fake[effects.fake.rows], effects.fake.times, unit))
        if not fake_parts:
            continue  # no class has two fakes
        whole = Influence(*(np.concatenate(part, axis=-1) for part in zip(*fake_parts, strict=True)))
        curves[name] = Curve(value, np.hstack([*real_parts, pool.spread(whole)]))
    return curves


def _warn_of_seen(real: Any, log_ratio: Any, fitted_on: Any, pixels: Any) -> None:
    known = fitted_on if fitted_on is not None else getattr(log_ratio, "seen", None)
    if known is None:
        return
    hashes = row_hashes(split_labels(read_samples(real, pixels), "real")[0])
    is_hashed = getattr(known, "dtype", None) == np.uint64 and np.ndim(known) == 1
    if seen := int(np.count_nonzero(np.isin(hashes, known if is_hashed else row_hashes(known)))):
        warnings.warn(
            f"{seen} of {len(hashes)} real samples were also used to fit the ratio, which then looks better than it "
            "is; evaluate on real samples that were held out",
            stacklevel=3,
        )


def _warn_of_few(real: Floats, pool: Weightings) -> None:
    n, dimension = real.shape
    effective = float(effective_size(pool.weights).min())
    if min(n, effective) < dimension:
        which = "real samples" if n <= effective else "fakes at the largest budget"
        warnings.warn(
            f"the features have {dimension} dimensions and there are {min(n, effective):.0f} {which}: from fewer "
            "samples than dimensions a covariance has no inverse, and Fréchet distances say more about n than about "
            "the model",
            stacklevel=3,
        )
