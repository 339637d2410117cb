"""Precision, recall, density and coverage: against prdc, against whole distance matrices, with weights and left out."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from obrs.errors import InputError, InputTypeError
from obrs.metrics import nearest_neighbours
from obrs.metrics._distances import Points, nearness
from obrs.metrics.nearest_neighbours import Neighbourhood, neighbours
from obrs.selection import select

FOUR = ("precision", "recall", "density", "coverage")


def normals(n=300, m=350, dim=6, dtype=np.float64, seed=0, shift=0.3, offset=0.0):
    rng = np.random.default_rng(seed)
    real, fake = rng.standard_normal((n, dim)), 0.9 * rng.standard_normal((m, dim)) + shift
    return (real + offset).astype(dtype), (fake + offset).astype(dtype)


def digits():
    x = load_digits().data.astype(np.float32) / 16
    noise = np.random.default_rng(0).standard_normal((897, 64)).astype(np.float32)
    return x[:900], x[900:] + 0.05 * noise


def four(found):
    return np.array([getattr(found, name) for name in FOUR])


def whole(real, fake, k=5):
    """All four by their definitions, from whole matrices of distances."""
    real, fake = np.asarray(real, dtype=np.float64), np.asarray(fake, dtype=np.float64)
    radius, of_fake = (np.partition(cdist(x, x), k, axis=1)[:, k] for x in (real, fake))
    between = cdist(real, fake)
    inside = between < radius[:, None]
    recall = (between < of_fake).any(axis=1).mean()
    return np.array([inside.any(axis=0).mean(), recall, inside.sum(axis=0).mean() / k, inside.any(axis=1).mean()])


def kept(weights, size, draws):
    return [select(np.log(weights), size, seed=seed) for seed in range(draws)]


@pytest.mark.parametrize(
    ("real", "fake"),
    [
        normals(),
        normals(500, 400, 40, np.float32),
        normals(300, 400, 300, np.float32, shift=0.02),
        normals(300, 400, 300, np.float32, offset=100.0),  # the norms are 100 times the distances
        digits(),
    ],
    ids=["float64", "float32", "many axes", "far from the origin", "digits"],
)
@pytest.mark.parametrize("k", [3, 5])
def test_agrees_with_prdc(real, fake, k, capsys):
    theirs = pytest.importorskip("prdc").compute_prdc(real, fake, k)
    ours = neighbours(real=real, fake=fake, k=k)
    assert four(ours) == pytest.approx([theirs[name] for name in FOUR], rel=1e-6)
    assert (ours.k, ours.n_real, ours.n_fake, ours.size) == (k, len(real), len(fake), len(fake))


def test_agrees_with_whole_matrices_of_distances():
    real, fake = normals()
    assert four(neighbours(real=real, fake=fake)) == pytest.approx(whole(real, fake))


def test_precision_and_recall_cannot_be_swapped_by_order():
    real, fake = normals(shift=0)
    with pytest.raises(TypeError):
        neighbours(real, fake)
    one, other = neighbours(real=real, fake=fake), neighbours(real=fake, fake=real)
    assert one.precision == other.recall > one.recall == other.precision  # fakes are narrower than real points


def test_error_of_a_product_is_within_its_bound():
    for dim, dtype, most in ((300, np.float32, 0.1), (2000, np.float32, 0.1), (20, np.float64, 0.5)):
        real, fake = normals(200, 200, dim, dtype)
        a, b = Points.both(real, fake)
        one, other = a.tile(slice(0, 200)), b.tile(slice(0, 200))
        exact = -np.square(cdist(real.astype(np.float64), fake.astype(np.float64))) / 2
        error = np.abs(nearness(one, other) - exact)
        assert 1e-3 < np.max(error / (a.unit * (one.half[:, None] + other.half))) < most


@pytest.mark.parametrize("groups", [None, 20])
def test_tiles_change_nothing(groups, monkeypatch):
    real, fake = normals(200, 230, 5)
    found = Neighbourhood.of(real=real, fake=fake, groups=groups, size=60)
    monkeypatch.setattr("obrs.metrics._distances.TILE", 64)
    monkeypatch.setattr(nearest_neighbours, "TILE", 64)
    again = Neighbourhood.of(real=real, fake=fake, groups=groups, size=60)
    for name in ("balls", "left_out", "recalled", "covered"):
        assert np.array_equal(getattr(found.crossing, name), getattr(again.crossing, name))
    assert found.scores(size=60) == again.scores(size=60)


def test_torch_gives_the_same():
    real, fake = normals(300, 320, 300, np.float32, shift=0.02)
    weights = np.linspace(0.1, 1, 320)
    both = [Neighbourhood.of(real=f(real), fake=f(fake), size=80, groups=20) for f in (np.asarray, torch.tensor)]
    assert both[0].scores() == both[1].scores()
    assert both[0].scores(weights=weights, size=80) == both[1].scores(weights=torch.tensor(weights), size=80)
    assert np.array_equal(both[0].crossing.left_out, both[1].crossing.left_out)


def test_points_that_are_the_same():
    real, fake = normals(200, 200, 300, np.float32)
    same = neighbours(real=real, fake=np.repeat(fake[:1], 50, axis=0))  # a generator that makes one point
    assert same.recall == 0
    one = Neighbourhood.of(real=real, fake=np.repeat(fake[:1], 50, axis=0), size=30, groups=20)
    assert one.curve(np.ones((1, 50)), size=30, draws=2).recall.left_out.max() == 0
    twins = np.concatenate([real[:100], fake])  # some fakes are real points
    assert four(neighbours(real=real, fake=twins)) == pytest.approx(whole(real, twins))
    doubled = np.repeat(real, 2, axis=0)
    assert four(neighbours(real=doubled, fake=fake)) == pytest.approx(whole(doubled, fake))


def test_large_numbers_stay_in_range():
    real, fake = normals(100, 100, 300, np.float32)
    found = neighbours(real=1e18 * real, fake=1e18 * fake)
    assert four(found) == pytest.approx(four(neighbours(real=real, fake=fake)))


def test_equal_weights_are_none():
    real, fake = normals()
    assert neighbours(real=real, fake=fake, weights=np.full(350, 0.2)) == neighbours(real=real, fake=fake)


def test_precision_and_density_are_weighted_means_over_fakes():
    real, fake = normals()
    weights = np.random.default_rng(1).exponential(size=(3, 350))
    inside = cdist(real, fake) < np.sort(cdist(real, real), axis=1)[:, 5:6]
    found = Neighbourhood.of(real=real, fake=fake)
    share = weights / weights.sum(axis=1, keepdims=True)
    assert found.precision(weights) == pytest.approx(share @ inside.any(axis=0))
    assert found.density(weights) == pytest.approx(share @ inside.sum(axis=0) / 5)
    assert found.precision(weights[1]) == pytest.approx(found.precision(weights)[1])


def test_counts_are_repeats():
    real, fake = normals()
    counts = np.random.default_rng(1).integers(0, 5, 350)
    repeated = np.repeat(fake, counts, axis=0)
    found = neighbours(real=real, fake=fake, counts=counts)
    assert four(found) == pytest.approx(four(neighbours(real=real, fake=repeated)))
    assert four(found) == pytest.approx(whole(real, repeated))
    assert found.size == found.n_fake == counts.sum()
    one, two = (neighbours(real=real, fake=fake, counts=np.full(350, c)) for c in (1, 2))
    assert two.recall < one.recall  # balls shrink,
    assert two.precision == one.precision  # fakes stay where they are


@pytest.mark.parametrize("most", [128, 12, 0])
def test_recall_and_coverage_at_a_size_are_means_over_draws(most, monkeypatch):
    monkeypatch.setattr(nearest_neighbours, "_MOST_LISTED", most)  # too few neighbours are listed: measured again
    real, fake = normals(300, 400)
    weights = np.random.default_rng(1).exponential(size=400) ** 2
    found = neighbours(real=real, fake=fake, weights=weights, size=60, draws=4)
    direct = np.mean([whole(real, fake[who]) for who in kept(weights, 60, 4)], axis=0)
    assert (found.recall, found.coverage) == pytest.approx(direct[[1, 3]])
    assert found.size == 60


def test_size_by_default_is_what_rejection_keeps():
    real, fake = normals()
    weights = np.where(np.arange(350) < 100, 1.0, 0.25)
    assert neighbours(real=real, fake=fake, weights=weights, draws=1).size == 162  # 100 + 250/4 = 162.5
    assert neighbours(real=real, fake=fake, size=100, draws=1).size == 100


def test_weighted_recall_agrees_with_samples_that_were_accepted():
    rng = np.random.default_rng(0)
    real, pool = rng.standard_normal((300, 3)), rng.standard_normal((1200, 3)) + 0.5
    log_ratio = 3 * 0.5**2 / 2 - 0.5 * pool.sum(axis=1)
    a = np.minimum(np.exp(log_ratio - 0.3), 1)
    found = neighbours(real=real, fake=pool, weights=a, size=300, draws=20)
    accepted = []
    for seed in range(60):
        fresh = np.random.default_rng(100 + seed).standard_normal((1200, 3)) + 0.5
        u = np.random.default_rng(200 + seed).uniform(size=1200)
        hits = fresh[u < np.minimum(np.exp(3 * 0.5**2 / 2 - 0.5 * fresh.sum(axis=1) - 0.3), 1)][:300]
        assert len(hits) == 300
        accepted.append(whole(real, hits))
    mean, spread = np.mean(accepted, axis=0), np.std(accepted, axis=0)
    assert np.all(np.abs(four(found) - mean) < 3 * spread / np.sqrt(3))  # of the pool: a third of the variance


@pytest.mark.parametrize("size", [None, 80])
def test_groups_left_out_are_those_of_the_rest(size):
    real, fake = normals(200, 240, 4)
    weights = np.stack([np.ones(240), np.random.default_rng(1).exponential(size=240)])
    found = Neighbourhood.of(real=real, fake=fake, groups=20, size=size)
    curve = found.curve(weights, size=size or [240, 240], draws=2)
    for g in (0, 13):
        stay, rest = found.group_fake != g, real[found.group_real != g]
        for b in range(2):
            drawn = [who[stay[who]] for who in kept(weights[b], size or 240, 2)]
            recall, coverage = np.mean([whole(rest, fake[who])[[1, 3]] for who in drawn], axis=0)
            assert curve.recall.left_out[g, b] == pytest.approx(recall)
            assert curve.coverage.left_out[g, b] == pytest.approx(coverage)
            alone = neighbours(real=rest, fake=fake[stay], weights=weights[b][stay], draws=1)
            assert curve.precision.left_out[g, b] == pytest.approx(alone.precision)
            assert curve.density.left_out[g, b] == pytest.approx(alone.density)
    assert curve.recall.value.tolist() == [found.scores(weights=w, size=size or 240, draws=2).recall for w in weights]


def test_weights_solved_again_without_a_group_are_used():
    real, fake = normals(100, 100, 2, shift=0.8)
    found = Neighbourhood.of(real=real, fake=fake, groups=20)
    some = np.where(np.arange(100) < 50, 1.0, 0.0)
    curve = found.curve(np.ones((1, 100)), without=lambda stay: some[None])
    balls = found.crossing.left_out[3] > 0
    assert curve.precision.left_out[3, 0] == pytest.approx(balls[(found.group_fake != 3) & (some > 0)].mean())


def errors(repetitions, n, dim, groups=20):
    """Values and standard errors of many pairs of samples."""
    found = []
    for seed in range(repetitions):
        real, fake = normals(n, n, dim, seed=seed)
        curve = Neighbourhood.of(real=real, fake=fake, groups=groups).curve(np.ones((1, n)))
        found.append([(getattr(curve, name).value[0], getattr(curve, name).standard_error[0]) for name in FOUR])
    return np.array(found).transpose(2, 0, 1)


def coverage_of(value, error, reach=2.093):
    return np.mean(np.abs(value - value.mean(axis=0)) <= reach * error, axis=0)


def test_intervals_cover():
    value, error = errors(40, 100, 3)
    assert np.all(coverage_of(value, error) >= 0.9)
    # they are rather too wide, but not by far
    assert np.all(np.sqrt(np.mean(error**2, axis=0)) < 2.5 * value.std(axis=0))


def test_a_bootstrap_would_miss_where_the_jackknife_does_not():
    real, fake = normals(300, 300, 8)
    found = Neighbourhood.of(real=real, fake=fake, groups=20)
    interval = found.curve(np.ones((1, 300))).recall.interval(0)
    again = np.random.default_rng(0).multinomial(300, np.full(300, 1 / 300), size=40)
    repeated = [found.scores(counts=counts).recall for counts in again]
    fresh = np.mean([whole(*normals(300, 300, 8, seed=seed))[1] for seed in range(1, 40)])
    assert max(repeated) < min(interval.value, fresh)
    assert interval.low < fresh < interval.high


@pytest.mark.slow
@pytest.mark.parametrize(("n", "dim"), [(400, 3), (400, 16), (1000, 4)])
def test_intervals_cover_at_other_sizes(n, dim):
    value, error = errors(200, n, dim)
    assert np.all(coverage_of(value, error) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200))
    assert np.all(np.sqrt(np.mean(error**2, axis=0)) < 2 * value.std(axis=0))


REAL, FAKE = normals(50, 60, 2)


@pytest.mark.parametrize(
    ("change", "error", "line"),
    [
        ({"real": REAL[:5]}, InputError, r"real must have at least k \+ 1 = 6 points, got 5; lower k"),
        ({"fake": FAKE[:5]}, InputError, r"fake must have at least k \+ 1 = 6 points, got 5; lower k"),
        ({"fake": np.zeros((60, 3))}, InputError, "real and fake must have the same dimension, got 2 and 3"),
        ({"real": np.full((9, 2), np.nan)}, InputError, "real must be finite, 9 of 9 points are not"),
        ({"fake": [["a"]]}, InputTypeError, "fake must be real numbers"),
        ({"k": 0}, InputError, "k must be a whole number of at least 1, got 0"),
        ({"weights": np.ones(50)}, InputError, r"weights must have shape \(60,\), got \(50,\)"),
        (
            {"weights": np.eye(60)[0]},
            InputError,
            r"weights keep 1 fakes, and k \+ 1 = 6 are needed; lower k or say size",
        ),
        ({"weights": np.arange(60) < 9, "size": 10}, InputTypeError, "weights must be real numbers, got dtype bool"),
        (
            {"weights": 1.0 * (np.arange(60) < 9), "size": 10},
            InputError,
            "size must be at most 9, the number of fakes with weight above 0, got 10",
        ),
        ({"size": 61}, InputError, "size must be at most 60"),
        ({"size": 5}, InputError, "size must be a whole number of at least 6, got 5"),
        ({"size": 10, "draws": 0}, InputError, "draws must be a whole number of at least 1"),
        ({"counts": np.ones(60, dtype=int), "size": 9}, InputError, "counts are the sample as it is; leave out"),
        ({"counts": np.eye(60, dtype=int)[0]}, InputError, r"counts must sum to at least k \+ 1 = 6, got 1; lower k"),
    ],
)
def test_bad_input_is_refused_in_one_line(change, error, line):
    with pytest.raises(error, match=line) as caught:
        neighbours(**({"real": REAL, "fake": FAKE} | change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("groups", "size", "line"),
    [
        (10, None, "groups must be a whole number of at least 20, got 10"),
        (51, None, "groups must leave at least 6 of 50 points when one is left out, got 51 groups"),
        (20, 6, "size must leave more than k = 5 fakes without a group, got 6"),
        (20, [9], "size must be one number or one for each of 2 budgets, got 1"),
    ],
)
def test_bad_groups_are_refused_in_one_line(groups, size, line):
    with pytest.raises(InputError, match=line):
        Neighbourhood.of(real=REAL, fake=FAKE, groups=groups).curve(np.ones((2, 60)), size=size)
