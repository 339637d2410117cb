"""The judge of images."""

import numpy as np
import pytest
import torch

from obrs.errors import InputError, InputTypeError
from obrs.models.classifier import Classifier, fit_classifier
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


def test_features_say_more_than_pixels(judge):
    """The nearest of a few labelled digits has the right label more often in features than in pixels."""
    digits = load("digits")
    few, x = torch.as_tensor(digits.train[:100]), torch.as_tensor(digits.test)
    with torch.no_grad():
        spaces = [(few.flatten(1), x.flatten(1)), (judge.features(few), judge.features(x))]
    pixels, features = (
        np.mean(digits.train_labels[torch.cdist(test, known).argmin(dim=1).numpy()] == digits.test_labels)
        for known, test in spaces
    )
    assert features > pixels + 0.05


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


def test_network_of_the_user_is_trained_in_place():
    net = Classifier(8, 1, 2, width=4)
    x = torch.cat([torch.full((32, 1, 8, 8), -1.0), torch.ones(32, 1, 8, 8)])
    y = torch.arange(2).repeat_interleave(32)
    assert fit_classifier(x, y, network=net, epochs=10, lr=1e-2) is net
    assert net.accuracy(x, y) == 1


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (
            torch.zeros(0, 1, 8, 8),
            torch.zeros(0, dtype=int),
            InputError,
            r"shape \(n, channels, size, size\), got \(0,",
        ),
        (torch.zeros(4, 8, 8), torch.zeros(4, dtype=int), InputError, r"shape \(n, channels, size, size\), got \(4, 8"),
        (
            torch.zeros(4, 1, 8, 8, dtype=torch.uint8),
            torch.zeros(4, dtype=int),
            InputError,
            r"float images .* torch.uint8",
        ),
        (
            torch.zeros(4, 1, 8, 8),
            torch.zeros(3, dtype=int),
            InputError,
            "labels must be 4 integers, one per image",
        ),
        (torch.zeros(4, 1, 8, 8), torch.zeros(4), InputTypeError, "labels must be 4 integers, one per image, got"),
        (torch.full((1, 1, 8, 8), torch.nan), torch.zeros(1, dtype=int), InputError, "finite, 64 of 64 values are not"),
        (torch.zeros(4, 1, 6, 6), torch.zeros(4, dtype=int), InputError, "size must be at least 8 pixels, got 6"),
    ],
)
def test_wrong_images_are_one_line(x, y, error, message):
    with pytest.raises(error, match=message):
        fit_classifier(x, y)
