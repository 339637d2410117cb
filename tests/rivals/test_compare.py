"""What every sampler promises, on models whose ratio is known, plain and conditional; and the table of `compare`."""

import dataclasses

import numpy as np
import pytest

import obrs
from obrs.errors import InputError
from obrs.rivals import SAMPLERS, Model, compare, fit_latent_weights_to_ratio
from obrs.sampling.samples import Calls, Samples

torch = pytest.importorskip("torch")

MEAN, WIDTH = torch.tensor([1.0, -0.5]), 1.5  # target N(MEAN, 1), model N(0, WIDTH²)


def generate(z):
    return WIDTH * z


def log_ratio(x):
    target = -0.5 * torch.sum((x - MEAN.to(x.dtype)) ** 2, dim=1)
    return target + 0.5 * torch.sum((x / WIDTH) ** 2, dim=1) + 2 * np.log(WIDTH)


def toy(dtype=torch.float32):
    real = MEAN.to(dtype) + obrs.normals(range(2000), 2, seed=99, like=torch.empty(0, dtype=dtype))
    return Model(generate, log_ratio, dim=2, real=real, like=torch.empty(0, dtype=dtype))


# Published constants are for images and hours; these are for a toy and seconds.
QUICK = {
    "mhgan": {"steps": 20},
    "dot": {"steps": 60, "lr": 0.05, "k_eff": 1.0},
    "dgflow": {"steps": 25},
    "ddls": {"steps": 200, "step": 0.05},
}


@pytest.fixture(scope="module", autouse=True)
def fitted_weights():
    """The latent methods are given weights that are fitted once."""
    weights = fit_latent_weights_to_ratio(toy(), steps=300)
    for name in ("latent_rs", "latent_obrs"):
        QUICK[name] = {"weights": weights}


def make(name):
    return dataclasses.replace(SAMPLERS[name].at_budget(3.0), **QUICK.get(name, {}))


def distance(x):
    """Mean distance to the target's mean, which every method should shorten."""
    return torch.linalg.vector_norm(x - MEAN.to(x.dtype), dim=1)


@pytest.mark.parametrize("name", SAMPLERS)
class TestSampler:
    def test_shape_and_dtype_are_those_of_the_model_and_the_seed_decides(self, name):
        for dtype in (torch.float32, *([] if name.startswith("latent") else [torch.float64])):
            first, again, other = (make(name)(toy(dtype), 37, seed=s) for s in (5, 5, 6))
            assert isinstance(first, Samples)
            assert (tuple(first.x.shape), first.x.dtype, first.x.requires_grad) == ((37, 2), dtype, False)
            for part in (first.ids, first.log_ratio, first.log_weight):
                assert part.shape == (37,)
            assert torch.equal(first.x, again.x)
            assert not torch.equal(first.x, other.x)

    def test_sample_moves_towards_the_target(self, name):
        before = distance(toy().propose(range(1500), seed=0))
        after = distance(make(name)(toy(), 1500, seed=0).x)
        error = float(torch.sqrt(before.var() / 1500 + after.var() / 1500))
        if name == "model":
            assert torch.equal(before, after)
        else:
            assert float(before.mean() - after.mean()) > 4 * error

    def test_calls_are_counted(self, name):
        counted = {"generate": 0, "log_ratio": 0}

        def count(function, key):
            def wrapper(x):
                counted[key] += len(x)
                return function(x)

            return wrapper

        model = dataclasses.replace(
            toy(), generate=count(generate, "generate"), log_ratio=count(log_ratio, "log_ratio")
        )
        kept = make(name)(model, 40)
        assert kept.executed_calls.generator == counted["generate"]
        assert kept.executed_calls.critic == counted["log_ratio"]
        for field in dataclasses.fields(Calls):
            assert 0 <= getattr(kept.calls, field.name) <= getattr(kept.executed_calls, field.name)
        assert kept.calls.generator >= len(kept)

    def test_labels_stay_with_their_samples(self, name):
        if name.startswith("latent"):
            with pytest.raises(InputError, match="does not take a model with labels; use 'obrs'"):
                make(name)(conditional(), 50)
            return
        x, y = make(name)(conditional(), 60).x
        assert x.shape == (60, 2)
        assert y.dtype == torch.int64
        assert torch.all(torch.abs(x - 10.0 * y[:, None]) < 7)  # of another label it would be 10 away
        assert set(y.tolist()) == {0, 1, 2}


def conditional(labels=3):
    """The target of label y is N(10 y + y/2, 1): the shift is larger for later labels, and 0 for the first."""

    def paint(z, y):
        return z + 10.0 * y[:, None]

    def ratio(x, y):
        shift = 0.5 * y[:, None]
        return torch.sum(shift * (x - 10.0 * y[:, None]) - shift**2 / 2, dim=1)

    y = torch.arange(600) % 3
    real = paint(obrs.normals(range(600), 2, seed=9, like=torch.empty(0)), y) + 0.5 * y[:, None]
    return Model(paint, ratio, dim=2, real=(real, y), like=torch.empty(0), labels=labels)


@pytest.mark.parametrize("name", ["dot", "dgflow", "ddls"])
def test_gradients_are_those_of_the_label(name):
    """Where the ratio is flat, of label 0, the mean stays; where it is steep, of label 2, it moves up."""
    x, y = make(name)(conditional(), 600).x
    shift = (x - 10.0 * y[:, None]).mean(dim=1)
    assert abs(float(shift[y == 0].mean())) < 4 / np.sqrt(2 * 200)
    assert float(shift[y == 2].mean()) > 0.3


def test_labels_are_drawn_by_id():
    model = conditional([1, 0, 3])
    y = model.label(np.arange(4000), seed=5)
    assert torch.equal(y[100:200], model.label(np.arange(100, 200), seed=5))
    counts = np.bincount(y.numpy(), minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] - 1000) < 4 * np.sqrt(4000 * 0.25 * 0.75)
    even = np.bincount(conditional(4).label(np.arange(4000)).numpy())
    assert np.all(np.abs(even - 1000) < 4 * np.sqrt(4000 * 0.25 * 0.75))
    assert conditional(lambda ids: ids % 2).label(np.arange(4)).tolist() == [0, 1, 0, 1]
    named = Model(lambda z, y: z[:, 0], lambda x, y: x, dim=1, labels=lambda ids: np.array(["cat", "dog"]))
    assert named.label(np.arange(2)).tolist() == ["cat", "dog"]


# --- compare ----------------------------------------------------------------------------------------------------------


def test_a_comparison_prints_cost_and_metrics_of_a_model():
    metrics = {"far": lambda x: distance(x).mean()}
    table = compare(toy(), 2, n=300, metrics=metrics)
    names = ["model", "obrs", "drs", "topk", "sir", "mhgan", "dot", "dgflow", "ddls"]
    assert [row["sampler"] for row in table] == names
    assert (table[0]["G"], table[0]["D"], table[1]["G"]) == (1.0, 0.0, pytest.approx(2, rel=0.01))
    assert table[1]["far"] < table[0]["far"]
    assert repr(table).splitlines()[0].split() == ["sampler", "G", "D", "G", "grad", "D", "grad", "time", "far"]
    assert "<table" in table._repr_html_()
    plain = Model(lambda z: z[:, 0], lambda x: x, dim=1)
    assert [row["sampler"] for row in compare(plain, 2, n=50)] == names[:5]
    repeated = compare(toy(), 2, samplers=["obrs", make("mhgan")], n=200, repeats=3, metrics=metrics)
    assert repeated[0]["far sd"] > 0
    assert repeated[1]["sampler"].startswith("MHGAN(steps=20")
