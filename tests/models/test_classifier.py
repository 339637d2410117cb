"""The judge of images."""

import numpy as np
import pytest
import torch

from obrs.models.classifier import fit_classifier
from paper.data.images import load


@pytest.fixture(scope="module")
def judge():
    digits = load("digits")
    return fit_classifier(digits.train, digits.train_labels, epochs=8)


def test_digits_are_told_apart(judge):
    digits = load("digits")
    assert judge.accuracy(digits.test, digits.test_labels) >= 0.97
    assert not judge.training
    np.testing.assert_array_equal(judge.predict(digits.test), judge.predict(torch.as_tensor(digits.test)).numpy())


def test_seed_decides_the_fit_and_the_global_one_stays():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(100, 1, 8, 8, generator=generator), torch.arange(100) % 2
    nets = []
    for seed in (0, 0, 1):
        torch.rand(7)  # the global generator is somewhere else each time
        state = torch.get_rng_state()
        nets.append(fit_classifier(x, y, epochs=1, seed=seed))
        assert torch.equal(torch.get_rng_state(), state)
    first, second, third = (net(x) for net in nets)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
