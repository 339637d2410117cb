"""Precision, recall, density and coverage: against prdc, against whole distance matrices, with weights and left out."""

import sys

import numpy as np
import prdc
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from obrs.metrics import Neighbours, neighbour_curves, neighbours
from obrs.metrics.curve import group_labels
from obrs.selection import select

FOUR = Neighbours._fields


def normals(n=300, m=350, dim=6, dtype=np.float64, seed=0, shift=0.3, offset=0.0):
    rng = np.random.default_rng(seed)
    real, fake = rng.standard_normal((n, dim)), 0.9 * rng.standard_normal((m, dim)) + shift
    return (real + offset).astype(dtype), (fake + offset).astype(dtype)


def digits():
    x = load_digits().data.astype(np.float32) / 16
    noise = np.random.default_rng(0).standard_normal((897, 64)).astype(np.float32)
    return x[:900], x[900:] + 0.05 * noise


def whole(real, fake, k=5):
    """All four by their definitions, from whole matrices of distances."""
    real, fake = np.asarray(real, dtype=np.float64), np.asarray(fake, dtype=np.float64)
    radius, of_fake = (np.partition(cdist(x, x), k, axis=1)[:, k] for x in (real, fake))
    between = cdist(real, fake)
    inside = between < radius[:, None]
    recall = (between < of_fake).any(axis=1).mean()
    return np.array([inside.any(axis=0).mean(), recall, inside.sum(axis=0).mean() / k, inside.any(axis=1).mean()])


def selections(weights, size, draws):
    return [select(np.log(weights), size, seed=seed) for seed in range(draws)]


@pytest.mark.parametrize(
    ("real", "fake"),
    [normals(), normals(600, 1100, 40), normals(300, 400, 300, offset=100.0)],
    ids=["few axes", "more than a block", "far from the origin"],
)
@pytest.mark.parametrize("k", [3, 5])
def test_it_is_that_of_prdc_in_float64(real, fake, k, capsys):
    theirs = prdc.compute_prdc(real, fake, k)
    assert neighbours(real=real, fake=fake, k=k) == pytest.approx(tuple(theirs[name] for name in FOUR), rel=1e-12)


@pytest.mark.parametrize(
    ("real", "fake"),
    [normals(2000, 2000, 300, np.float32, shift=0.02), normals(2000, 2000, 40, np.float32, offset=100.0), digits()],
    ids=["many axes", "far from the origin", "digits"],
)
def test_in_float32_at_most_one_tie_in_10_000_differs_from_prdc(real, fake, capsys):
    theirs = prdc.compute_prdc(real, fake, 5)
    ours = neighbours(real=real, fake=fake)
    assert np.abs(np.array(ours) - [theirs[name] for name in FOUR]).max() <= 1e-4 * max(1, ours.density)


def test_it_is_that_of_whole_matrices_also_with_copies():
    real, fake = normals()
    twins = np.concatenate([real[:100], fake])  # some fakes are real points
    doubled = np.repeat(real, 2, axis=0)
    for x, y in ((real, fake), (real, twins), (doubled, fake)):
        assert neighbours(real=x, fake=y) == pytest.approx(tuple(whole(x, y)))
    assert neighbours(real=real, fake=np.repeat(fake[:1], 50, axis=0)).recall == 0  # a generator that makes one point


def test_blocks_and_libraries_change_nothing(monkeypatch):
    real, fake = normals(200, 230, 5)
    weights = np.linspace(0.1, 1, 230)
    curves = neighbour_curves(real=real, fake=fake, weights=weights, size=60)
    monkeypatch.setattr(sys.modules["obrs.metrics.neighbours"], "_BLOCK", 64)
    given = {"real": torch.tensor(real), "fake": torch.tensor(fake), "weights": torch.tensor(weights)}
    again = neighbour_curves(**given, size=60)
    for name in FOUR:
        assert again[name].value == pytest.approx(curves[name].value)
        assert again[name].parts == pytest.approx(curves[name].parts)


def test_precision_and_density_are_weighted_means_over_fakes():
    real, fake = normals()
    weights = np.random.default_rng(1).exponential(size=(3, 350))
    inside = cdist(real, fake) < np.sort(cdist(real, real), axis=1)[:, 5:6]
    curves = neighbour_curves(real=real, fake=fake, weights=weights, size=100, draws=1)
    share = weights / weights.sum(axis=1, keepdims=True)
    assert curves["precision"].value == pytest.approx(share @ inside.any(axis=0))
    assert curves["density"].value == pytest.approx(share @ inside.sum(axis=0) / 5)


def test_recall_and_coverage_at_a_size_are_means_over_draws():
    real, fake = normals(300, 400)
    weights = np.random.default_rng(1).exponential(size=400) ** 2
    scores = neighbours(real=real, fake=fake, weights=weights, size=60, draws=4)
    direct = np.mean([whole(real, fake[rows]) for rows in selections(weights, 60, 4)], axis=0)
    assert (scores.recall, scores.coverage) == pytest.approx(tuple(direct[[1, 3]]))
    half = np.where(np.arange(400) < 100, 1.0, 0.25)  # rejection keeps 175 of them
    assert neighbours(real=real, fake=fake, weights=half) == neighbours(real=real, fake=fake, weights=half, size=175)


@pytest.mark.parametrize("size", [240, 80])
def test_groups_left_out_are_those_of_the_rest(size):
    real, fake = normals(200, 240, 4)
    weights = np.stack([np.ones(240), np.random.default_rng(1).exponential(size=240)])
    curves = neighbour_curves(real=real, fake=fake, weights=weights, size=size, draws=2)
    group, group_fake = (group_labels(n, i) for i, n in enumerate((200, 240)))
    left = {name: [] for name in FOUR}
    for g in range(20):
        stay, rest = group_fake != g, real[group != g]
        for line in weights:
            drawn = [rows[stay[rows]] for rows in selections(line, size, 2)]
            recall, coverage = np.mean([whole(rest, fake[rows])[[1, 3]] for rows in drawn], axis=0)
            alone = neighbours(real=rest, fake=fake[stay], weights=line[stay], size=100, draws=1)
            for name, value in zip(FOUR, (alone.precision, recall, alone.density, coverage), strict=True):
                left[name].append(value)
    for name in FOUR:
        by_group = np.reshape(left[name], (20, 2))
        expected = np.sqrt(19 / 20 * ((by_group - by_group.mean(0)) ** 2).sum(0))
        assert curves[name].standard_error == pytest.approx(expected)


def errors(repetitions, n, dim):
    """Values and standard errors of many pairs of samples."""
    values = []
    for seed in range(repetitions):
        real, fake = normals(n, n, dim, seed=seed)
        curves = neighbour_curves(real=real, fake=fake)
        values.append([(curves[name].value[0], curves[name].standard_error[0]) for name in FOUR])
    return np.array(values).transpose(2, 0, 1)


def coverage_of(value, error, reach=2.093):
    return np.mean(np.abs(value - value.mean(axis=0)) <= reach * error, axis=0)


def test_intervals_cover():
    value, error = errors(40, 100, 3)
    assert np.all(coverage_of(value, error) >= 0.9)
    # they are rather too wide, but not by far
    assert np.all(np.sqrt(np.mean(error**2, axis=0)) < 2.5 * value.std(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "dim"), [(400, 3), (400, 16), (1000, 4)])
def test_intervals_cover_at_other_sizes(n, dim):
    value, error = errors(200, n, dim)
    assert np.all(coverage_of(value, error) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200))
    assert np.all(np.sqrt(np.mean(error**2, axis=0)) < 2 * value.std(axis=0))
