"""What every sampler promises, on a two-dimensional model whose ratio is known."""

import dataclasses

import numpy as np
import pytest

import obrs
from obrs.errors import InputError, RatioError, UnknownNameError
from obrs.sampling.registry import SAMPLERS
from obrs.sampling.samples import Calls, Samples

torch = pytest.importorskip("torch")

MEAN, WIDTH = torch.tensor([1.0, -0.5]), 1.5  # target N(MEAN, 1), model N(0, WIDTH²)


def generate(z):
    return WIDTH * z


def log_ratio(x):
    target = -0.5 * torch.sum((x - MEAN.to(x.dtype)) ** 2, dim=1)
    model = -0.5 * torch.sum((x / WIDTH) ** 2, dim=1) - 2 * np.log(WIDTH)
    return target - model


def toy(dtype=torch.float32):
    real = MEAN.to(dtype) + obrs.normals(range(2000), 2, seed=99, like=torch.empty(0, dtype=dtype))
    return obrs.Model(generate, log_ratio, dim=2, real=real, like=torch.empty(0, dtype=dtype))


# Published constants are for images and hours; these are for a toy and seconds.
QUICK = {
    "mhgan": {"steps": 20},
    "dot": {"steps": 60, "lr": 0.05, "k_eff": 1.0},
    "dgflow": {"steps": 25},
    "ddls": {"steps": 200, "step": 0.05},
    "truncation": {},
}


def make(name):
    sampler = SAMPLERS[name].at_budget(3.0)
    return dataclasses.replace(sampler, **QUICK.get(name, {}), **LATENT.get(name, {}))


LATENT = {}  # the latent methods are given weights that are fitted once


@pytest.fixture(scope="module", autouse=True)
def fitted_weights():
    from obrs.sampling.latent import fit_latent_weights_to_ratio

    weights = fit_latent_weights_to_ratio(toy(), steps=300)
    for name in ("latent_rs", "latent_rs_ga", "latent_obrs"):
        LATENT[name] = {"weights": weights}


def towards(x):
    """Mean distance to the target's mean, which every method should shorten."""
    return torch.linalg.vector_norm(x - MEAN.to(x.dtype), dim=1)


@pytest.mark.parametrize("name", SAMPLERS)
class TestSampler:
    def test_shape_dtype_and_device_are_those_of_the_model(self, name):
        for dtype in (torch.float32, torch.float64):
            if dtype == torch.float64 and name.startswith("latent"):
                continue  # their weights were fitted in float32
            kept = make(name)(toy(dtype), 37)
            assert isinstance(kept, Samples)
            assert tuple(kept.x.shape) == (37, 2)
            assert kept.x.dtype == dtype
            assert kept.x.device.type == "cpu"
            assert not kept.x.requires_grad
            for part in (kept.ids, kept.log_ratio, kept.log_weight):
                assert part.shape == (37,)

    def test_seed_decides_everything(self, name):
        sampler = make(name)
        first, again, other = (sampler(toy(), 50, seed=s).x for s in (5, 5, 6))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_sample_moves_towards_the_target(self, name):
        if name == "truncation":
            pytest.skip("truncation knows nothing of the target; see its own test")
        before = towards(toy().propose(range(1500), seed=0))
        after = towards(make(name)(toy(), 1500, seed=0).x)
        error = float(torch.sqrt(before.var() / 1500 + after.var() / 1500))
        assert float(before.mean() - after.mean()) > 4 * error

    def test_calls_are_counted(self, name):
        counted = {"generate": 0, "log_ratio": 0}

        def counting(function, key):
            def wrapped(x):
                counted[key] += len(x)
                return function(x)

            return wrapped

        model = dataclasses.replace(
            toy(), generate=counting(generate, "generate"), log_ratio=counting(log_ratio, "log_ratio")
        )
        kept = make(name)(model, 40)
        assert isinstance(kept.calls, Calls)
        assert kept.executed_calls.generator == counted["generate"]
        assert kept.executed_calls.critic == counted["log_ratio"]
        for field in dataclasses.fields(Calls):
            assert 0 <= getattr(kept.calls, field.name) <= getattr(kept.executed_calls, field.name)
        assert kept.calls.generator >= len(kept)

    def test_bad_numbers_are_refused(self, name):
        with pytest.raises(InputError, match="n must be"):
            make(name)(toy(), 0)
        broken = dataclasses.replace(toy(), log_ratio=lambda x: log_ratio(x) * float("nan"))
        if make(name)(toy(), 5).executed_calls.critic:
            with pytest.raises((RatioError, InputError), match="NaN"):
                make(name)(broken, 10)


def test_comparison_has_a_row_for_each_sampler():
    table = obrs.compare(
        ["obrs", "drs", "topk", make("mhgan")], toy(), 300, budget=2, metrics={"far": lambda x: towards(x).mean()}
    )
    assert [row["sampler"] for row in table][:3] == ["obrs", "drs", "topk"]
    assert table[0]["G"] == pytest.approx(2, rel=0.01)
    assert "sampler" in str(table).splitlines()[0]
    repeated = obrs.compare(["obrs"], toy(), 200, budget=2, repeats=3, metrics={"far": lambda x: towards(x).mean()})
    assert repeated[0]["far sd"] > 0


def test_comparison_names_what_it_does_not_know():
    with pytest.raises(UnknownNameError, match="unknown sampler 'obsr'; did you mean 'obrs'"):
        obrs.compare(["obsr"], toy(), 10)
    with pytest.raises(obrs.errors.InputTypeError, match=r"works on a Model"):
        obrs.compare(["obrs"], generate, 10)
    with pytest.raises(obrs.errors.InputTypeError, match="a sampler must be a name or"):
        obrs.compare([3], toy(), 10)
