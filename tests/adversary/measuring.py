"""Rooms of metrics with weights, and of features."""

import warnings

import numpy as np
import torch

import obrs
from obrs import metrics
from obrs.metrics import FEATURES

from .making import NO_ARRAYS, NO_COUNTS, close, finite, host


def rows(make, n, dim):
    """Features, in an extreme case of any size."""
    x = make.floats(n, dim)
    if make.chance(0.7):
        most = np.float64(make.one(1e5, 1e12, 1e60))
        x = np.clip(x, -min(most, np.finfo(x.dtype).max), min(most, np.finfo(x.dtype).max)).astype(x.dtype)
    if make.chance(0.2):
        x = x[make.rng.integers(0, n, n)]  # copies
    return x


def pair(make, least=1):
    """Real and fake features of one library, most of the time."""
    dim, n, m = make.one(1, 2, 3, 8), max(make.size(30), least), max(make.size(30), least)
    real, fake = rows(make, n, dim), rows(make, m, make.arg(dim, dim + 1))
    if make.chance(0.2) and np.longdouble not in (real.dtype, fake.dtype):
        return torch.from_numpy(real.copy()), torch.from_numpy(fake.copy())
    return make.arg(real, *NO_ARRAYS), make.arg(fake, *NO_ARRAYS)


def masses(make, n):
    """Weights, or none."""
    if make.chance(0.5):
        return {}
    return {"weights": make.arg(make.weights(n), -np.ones(n), np.full(n, np.nan), np.zeros(n), [1.0], "w")}


def tame(*arrays):
    """Whether all are of a size at which float64 by hand is exact enough."""
    return all(np.abs(x).max() < 1e3 for x in map(host, arrays))


def mean_and_covariance(x, mass, own):
    mean = mass @ x
    return mean, ((mass[:, None] * (x - mean)).T @ (x - mean)) / (1 - own)


def shares_and_own(n, given):
    """The masses and the sum of those of a row with itself, by hand."""
    w = np.ones(n) if given.get("weights") is None else host(given["weights"])
    w = w / w.max()
    w = w / w.sum()
    return w, float((w**2).sum())


def frechet_distance(make):
    real, fake = pair(make, 2)
    given = masses(make, len(fake) if hasattr(fake, "__len__") else 3)
    found = make.answer(metrics.frechet, real=real, fake=fake, **given)
    if found is None:
        return
    assert finite(found)
    if tame(real, fake):
        r, f = host(real), host(fake)
        one = mean_and_covariance(r, np.full(len(r), 1 / len(r)), 1 / len(r))
        two = mean_and_covariance(f, *shares_and_own(len(f), given))
        values, vectors = np.linalg.eigh(one[1])
        root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        cross = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ two[1] @ root), 0)).sum()
        by_hand = ((one[0] - two[0]) ** 2).sum() + np.trace(one[1]) + np.trace(two[1]) - 2 * cross
        size = 1 + np.abs(one[1]).sum() + np.abs(two[1]).sum() + (one[0] ** 2).sum()
        assert close(found, by_hand, rtol=0, atol=3e-3 * size)


def kernel_distance(make):
    real, fake = pair(make, 2)
    given = masses(make, len(fake) if hasattr(fake, "__len__") else 3)
    found = make.answer(metrics.kernel, real=real, fake=fake, **given)
    if found is None:
        return
    assert finite(found.value, found.standard_error)
    if not tame(real, fake):
        return
    r, f = host(real), host(fake)

    def k(x, y):
        return (x @ y.T / r.shape[1] + 1) ** 3

    w, own = shares_and_own(len(f), given)
    n = len(r)
    among_real = (k(r, r).sum() - np.trace(k(r, r))) / (n * (n - 1))
    among_fake = (w @ k(f, f) @ w - (w**2 * np.diag(k(f, f))).sum()) / (1 - own)
    by_hand = among_real + among_fake - 2 * np.mean(w @ k(f, r))
    size = np.abs(k(r, r)).max() + np.abs(k(f, f)).max() + np.abs(r).max() + np.abs(f).max() + 1
    slack = 1e-7 if 1 - own > 1e-3 else 1e-3
    half = min(x.dtype.itemsize for x in (real, fake) if hasattr(x, "dtype"))
    assert close(found.value, by_hand, rtol=0, atol=(2e-3 if half < 8 else slack) * size)


def curves(make):
    """One line of weights per budget is the same as one at a time."""
    real, fake = pair(make, 4)
    n = len(fake) if hasattr(fake, "__len__") else 3
    lines = np.stack([host(make.weights(n)) for _ in range(2)])
    weights = make.arg(lines, lines[0], lines[:, :1], -lines, "w")
    found = make.answer(metrics.kernel_curve, real=real, fake=fake, weights=weights)
    if found is not None:
        assert finite(found.value, found.standard_error)
        alone = make.answer(metrics.kernel, real=real, fake=fake, weights=np.atleast_2d(weights)[0])
        largest = (max(float(np.abs(host(x)).max()) for x in (real, fake)) ** 2 + 1) ** 3  # of what cancels
        assert alone is None or close(alone.value, found.value[0], rtol=1e-6, atol=1e-6 + 1e-14 * largest)
        step = make.answer(found.difference, 0, len(found.value) - 1)
        assert step is None or finite(step.value, step.low, step.high)
    beyond = make.answer(metrics.frechet_curve, real=real, fake=fake, weights=weights, extrapolate=make.chance(0.5))
    assert beyond is None or finite(beyond.value, beyond.standard_error)


def nearest(make):
    real, fake = pair(make, 3)
    n = len(fake) if hasattr(fake, "__len__") else 3
    k = make.arg(make.one(1, 2, 5), *NO_COUNTS)
    given = masses(make, n)
    size = make.arg(None, 2, 3, n, n + 1, 0, "s", p=0.4)
    found = make.answer(
        metrics.neighbours,
        real=real,
        fake=fake,
        k=k,
        **given,
        size=size,
        draws=make.arg(2, *NO_COUNTS),
        seed=make.seed(),
    )
    if found is None:
        return
    assert all(0 <= x <= 1 + 1e-12 for x in (found.precision, found.recall, found.coverage))
    assert 0 <= found.density < np.inf
    plain = not given and size is None and isinstance(real, np.ndarray)
    if plain and tame(real, fake) and real.dtype == fake.dtype == np.float64:
        far = np.sqrt(((real[:, None] - fake[None]) ** 2).sum(-1))

        def radii(x):
            return np.sort(np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1)), axis=1)[:, k]

        one, two = radii(real), radii(fake)
        doubt = np.any(np.abs(far - one[:, None]) < 1e-6) or np.any(np.abs(far - two[None]) < 1e-6)
        if not doubt:
            assert close(found.precision, np.any(far < one[:, None], axis=0).mean())
            assert close(found.recall, np.any(far < two[None], axis=1).mean())
            assert close(found.density, (far < one[:, None]).sum() / (k * len(fake)))
            assert close(found.coverage, np.any(far < one[:, None], axis=1).mean())


def hashes(make):
    x = rows(make, make.size(10), 3)
    found = make.answer(metrics.row_hashes, x := make.array(x))
    if found is not None and np.ndim(host(x)) == 2:
        turn = make.rng.permutation(len(found))
        assert np.array_equal(metrics.row_hashes(host(x)[turn]), found[turn])


def evaluated(make):
    """A table whose numbers are finite, whatever the pool."""
    make.wild &= make.chance(0.5)
    real, fake = rows(make, make.one(30, 60, 90), 2), rows(make, make.one(90, 200), 2)
    n = len(fake)
    log_ratio = make.arg(make.one(None, make.log_ratio(n)), make.log_ratio(n + 1), "x", lambda x: np.zeros(len(x) + 1))
    groups = make.arg(None, make.labels(n), p=0.4)
    options = {"budgets": make.arg([1, 2.0], [0.5], "b", [], [1e300], [np.nan], 3), "k": make.arg(2, *NO_COUNTS)}
    options |= {"draws": make.arg(1, *NO_COUNTS), "size": make.arg(None, 5, 0, 10**9), "confidence": make.confidence()}
    options |= {"rules": make.arg(("obrs", "drs"), ("topk",), ("no",), ()), "seed": make.arg(0, -1, "s")}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*", UserWarning, module="adversary")
        table = make.answer(
            obrs.evaluate,
            real=make.arg(real, *NO_ARRAYS),
            fake=fake,
            log_ratio=log_ratio,
            groups=groups,
            progress=False,
            **options,
        )
    if table is None:
        return
    assert str(table)
    for row in table.rows:
        assert 0 < row.rate <= 1 + 1e-9
        for estimate in (*row.metrics.values(), *row.change.values()):
            assert finite(estimate.value)
            assert estimate.low <= estimate.value <= estimate.high


def images(make, n=None):
    n, side, channels = n or make.count(1, 3), make.one(1, 2, 8, 16, 28), make.one(1, 3)
    shape = make.one((n, channels, side, side + 4), (n, side, side + 4, channels), (n, side, side))
    x = make.rng.integers(0, 256, shape).astype(np.uint8)
    if make.chance(0.5):
        x = (x / 127.5 - 1).astype(make.one("float32", "float64", "float16"))
        if make.extreme:
            with np.errstate(over="ignore"):
                strange = x.dtype.type(make.one(1e30, np.nan, np.inf, -1e308, 3.0))
            x = np.where(make.rng.random(shape) < 0.1, strange, x)
    return x


def features_of_images(make):
    x = images(make)
    with np.errstate(all="ignore"):
        wrong = (x[:0], x[0], x.astype(np.int64), x.astype(bool), x[..., None], x.astype("complex64"), *NO_ARRAYS)
    name = "gradients"
    x = make.arg(x, *wrong)
    found = make.answer(FEATURES[name], x := make.guise(x) if isinstance(x, np.ndarray) else x)
    if found is None:
        return
    values = host(found)
    assert values.ndim == 2
    assert values.shape[0] == len(x)
    assert "float32" in str(found.dtype)
    if np.all(np.isfinite(host(x))) and np.abs(host(x)).max() <= 255:
        assert finite(values)
        alone = host(FEATURES[name](x[:1]))
        assert close(alone[0], values[0], rtol=1e-3, atol=1e-3)


def extracted(make):
    x = images(make)
    with np.errstate(all="ignore"):
        wrong = (x[:0], x[0], x.astype(np.int64), x.astype(bool), *NO_ARRAYS, "/no/such/file.npy")
    pixels = make.arg(make.one(None, (0, 255), (0, 1)), (1, 0), (0, 0), "p", (0, np.nan), (1, 2, 3))
    features = make.arg("gradients", "no", None, 3, lambda x: x, lambda x: x[:0].flatten(1), lambda x: "a")
    found = make.answer(metrics.extract, make.arg(x, *wrong), features, pixels=pixels, keep=False, progress=False)
    if found is None:
        return
    assert found.dtype == np.float32
    assert found.ndim == 2
    if x.dtype == np.uint8 and features == "gradients":
        assert finite(found)


METRICS = [frechet_distance, kernel_distance, curves, nearest, hashes]
EVALUATION = [evaluated]
IMAGES = [features_of_images, extracted]
