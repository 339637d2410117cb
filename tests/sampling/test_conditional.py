"""Conditional models: G(z, y), D(x, y), and labels that stay with their samples in every sampler."""

import dataclasses

import numpy as np
import pytest

import obrs
from obrs.errors import InputError, InputTypeError
from obrs.sampling.budgeted import OBRS, PoolOBRS
from obrs.sampling.registry import SAMPLERS

torch = pytest.importorskip("torch")

CLASSES = 3
QUICK = {
    "mhgan": {"steps": 8},
    "dgflow": {"steps": 20},
    "dot": {"steps": 20, "lr": 0.05, "k_eff": 1.0},
    "ddls": {"steps": 40, "step": 0.05},
}


def generate(z, y):
    return z + 10.0 * y[:, None]


def log_ratio(x, y):
    """The target of label y is N(10 y + 0.5 y, 1): the shift is larger for later labels, and 0 for the first."""
    shift = 0.5 * y
    return torch.sum(shift[:, None] * (x - 10.0 * y[:, None]) - shift[:, None] ** 2 / 2, dim=1)


def toy(labels=CLASSES):
    y = torch.arange(600) % CLASSES
    real = generate(obrs.normals(range(600), 2, seed=9, like=torch.empty(0)), y) + 0.5 * y[:, None]
    return obrs.Model(generate, log_ratio, dim=2, real=(real, y), like=torch.empty(0), labels=labels)


def make(name):
    return dataclasses.replace(SAMPLERS[name].at_budget(3.0), **QUICK.get(name, {}))


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_keeps_labels_aligned_or_says_that_it_takes_none(name):
    if name.startswith("latent"):
        with pytest.raises(InputError, match="does not take a model with labels; use 'obrs'") as caught:
            make(name)(toy(), 50)
        assert "\n" not in str(caught.value)
        return
    kept = make(name)(toy(), 60)
    x, y = kept.x
    assert x.shape == (60, 2)
    assert y.dtype == torch.int64
    assert torch.all(torch.abs(x - 10.0 * y[:, None]) < 7)  # of another label it would be 10 away
    assert set(y.tolist()) == {0, 1, 2}


@pytest.mark.parametrize("name", ["dot", "dgflow", "ddls"])
def test_gradients_are_those_of_the_label(name):
    """Where the ratio is flat, of label 0, the mean stays; where it is steep, of label 2, it moves up."""
    x, y = make(name)(toy(), 600).x
    shift = (x - 10.0 * y[:, None]).mean(dim=1)
    error = 4 / np.sqrt(2 * 200)
    assert abs(float(shift[y == 0].mean())) < error
    assert float(shift[y == 2].mean()) > 0.3


def test_labels_are_drawn_by_id():
    model = toy([1, 0, 3])
    y = model.label(np.arange(4000), seed=5)
    assert torch.equal(y[100:200], model.label(np.arange(100, 200), seed=5))
    counts = np.bincount(y.numpy(), minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] - 1000) < 4 * np.sqrt(4000 * 0.25 * 0.75)
    even = np.bincount(toy(4).label(np.arange(4000)).numpy())
    assert np.all(np.abs(even - 1000) < 4 * np.sqrt(4000 * 0.25 * 0.75))
    assert toy(lambda ids: ids % 2).label(np.arange(4)).tolist() == [0, 1, 0, 1]
    named = obrs.Model(lambda z, y: z[:, 0], lambda x, y: x, dim=1, labels=lambda ids: ["cat", "dog"])
    assert named.label(np.arange(2)).tolist() == ["cat", "dog"]


def test_one_constant_loses_classes_and_one_for_each_does_not():
    model = dataclasses.replace(toy(), log_ratio=lambda x, y: log_ratio(x, y) - 3.0 * (y == 1))
    share = {by: np.bincount(OBRS(4.0, by_label=by)(model, 1500).x[1].numpy(), minlength=3) for by in (False, True)}
    assert share[False][1] < 150
    assert np.all(np.abs(share[True] - 500) < 5 * np.sqrt(500))
    exactly = np.bincount(PoolOBRS(4.0, by_label=True)(model, 500).x[1].numpy())
    proposed = np.bincount(model.label(np.arange(2000)).numpy())
    assert np.all(np.abs(exactly - proposed / 4) <= 1)


def test_comparison_of_a_conditional_model():
    def far(x, y):
        return float(torch.mean(torch.abs(x - 10.5 * y[:, None])))

    rows = obrs.compare(["obrs", "topk"], toy(), 300, budget=3, metrics={"far": far}, per_label=True, repeats=2)
    assert set(rows[0]) >= {"G", "far", "far[0]", "far[1]", "far[2]", "far[2] sd"}
    assert rows[0]["far[2]"] < 1.2
    only_0 = lambda model, n, seed, progress: OBRS(2.0)(toy([1, 0, 0]), n)  # noqa: E731
    few = obrs.compare([only_0, "obrs"], toy(), 60, per_label=True, metrics={"far": far}, budget=2)
    assert np.isnan(few[0]["far[2]"])
    assert few[1]["far[2]"] > 0
    assert "far[2]" in str(few)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: toy(0), InputError, "labels must be a whole number of at least 1, got 0"),
        (lambda: toy([0.0, 0.0]), InputError, "how frequent each is"),
        (lambda: toy("many"), InputTypeError, "how frequent each is.* got str"),
        (lambda: toy(lambda ids: ids[:-1]).propose(np.arange(3)), InputError, "labels must return one item per id, 3"),
        (lambda: dataclasses.replace(toy(), real=torch.zeros(3, 2)), InputTypeError, r"are \(x, y\), got Tensor"),
        (lambda: OBRS(2.0, by_label=True)(UNLABELLED, 5), InputError, "by_label needs a model with labels"),
        (lambda: obrs.compare(["obrs"], UNLABELLED, 5, per_label=True), InputError, "per_label needs a model with"),
    ],
)
def test_bad_input_gets_one_clear_line(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


UNLABELLED = obrs.Model(lambda z: z[:, 0], lambda x: x, dim=1)
