"""Features: real ones, the same from every source, and computed once."""

import numpy as np
import pytest
import torch

from obrs.errors import InputError
from obrs.metrics import features as module
from obrs.metrics.features import FEATURES, Extractor, extract
from paper.data.images import load

DIGITS = load("digits")
HERE = [name for name in FEATURES if name != "inception_v3"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OBRS_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


@pytest.mark.parametrize("name", HERE)
def test_an_extractor_is_a_plain_callable(name):
    x = DIGITS.test[:3]
    values = FEATURES[name](x)
    assert isinstance(values, np.ndarray)
    assert values.dtype == np.float32
    assert values.shape[0] == 3
    tensor = FEATURES[name](torch.as_tensor(x))
    assert isinstance(tensor, torch.Tensor)
    assert np.allclose(tensor, values, rtol=1e-5, atol=1e-6)
    colour = np.repeat(x, 3, axis=1)
    # grey as three equal channels is the same picture; gradients add the light of each channel
    width = 128 if name == "gradients" else values.shape[1]
    assert np.allclose(FEATURES[name](colour)[:, :width], values[:, :width], atol=1e-4)
    assert np.allclose(FEATURES[name](colour.transpose(0, 2, 3, 1)), FEATURES[name](colour), atol=1e-5)


def count_calls(monkeypatch, name="gradients"):
    calls, real = [], FEATURES[name]

    def compute(x):
        calls.append(len(x))
        return real.compute(x)

    monkeypatch.setitem(FEATURES, name, Extractor(name, real.title, real.identity, compute))
    return calls


def test_features_are_computed_once(monkeypatch, cache, tmp_path):
    calls = count_calls(monkeypatch)
    first = extract(DIGITS.test, "gradients")
    assert sum(calls) == 297
    np.save(tmp_path / "same.npy", DIGITS.test)
    assert np.array_equal(extract(tmp_path / "same.npy", "gradients"), first)
    assert sum(calls) == 297
    extract(DIGITS.test[::-1], "gradients")  # another order is another table
    assert sum(calls) == 2 * 297
    assert len(list(cache.iterdir())) == 2
    real = FEATURES["gradients"]  # and other weights are other features
    monkeypatch.setitem(FEATURES, "gradients", Extractor("gradients", real.title, lambda: "new", real.compute))
    extract(DIGITS.test, "gradients")
    assert len(list(cache.iterdir())) == 3


def test_features_of_your_own():
    values = extract(DIGITS.test[:300], lambda x: x.flatten(1)[:, :7])
    assert np.array_equal(values, DIGITS.test[:300].reshape(-1, 64)[:, :7])
    with pytest.raises(InputError, match=r"features must have shape \(128, k\), got \(128,\)"):
        extract(DIGITS.test, lambda x: x[:, 0, 0, 0])


def test_inception_is_called_as_torch_fidelity_wants(monkeypatch):
    def stand_in(x):  # asks for RGB bytes, as torch-fidelity does, and answers with a tuple
        assert x.dtype == torch.uint8
        assert x.shape[1] == 3
        return (x.float().mean((2, 3)),)

    monkeypatch.setattr(module, "_inception", lambda device, weights: stand_in)
    x = np.random.default_rng(0).integers(0, 256, (4, 1, 12, 12), dtype=np.uint8)
    assert np.allclose(FEATURES["inception_v3"](x)[:, 0], x.mean(axis=(1, 2, 3)))
