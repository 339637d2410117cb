"""The inception score: against torchmetrics, and at its limits."""

import warnings

import numpy as np
import pytest
import torch
from torchmetrics.image.inception import InceptionScore as Rival

from obrs.errors import InputError
from obrs.metrics.inception import inception_score


class Given(torch.nn.Module):
    def forward(self, x):
        return x


def logits(n=300, classes=7, seed=0):
    return 2 * np.random.default_rng(seed).standard_normal((n, classes))


def test_it_is_that_of_torchmetrics():
    x = logits()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it keeps all features, and has no deviation of one split
        rival = Rival(feature=Given(), splits=1).set_dtype(torch.float64)
        rival.update(torch.from_numpy(x))
        expected = float(rival.compute()[0])
    found = inception_score(x, splits=1)
    assert found.value == pytest.approx(expected, rel=1e-10)
    assert (found.deviation, found.n_fake, found.classes, found.splits) == (0.0, 300, 7, 1)
    assert inception_score(torch.from_numpy(x), splits=1).value == pytest.approx(expected, rel=1e-10)


def test_splits_are_dealt_row_by_row():
    x = logits()
    parts = [inception_score(x[i::3], splits=1).value for i in range(3)]
    found = inception_score(x, splits=3)
    assert found.value == pytest.approx(np.mean(parts))
    assert found.deviation == pytest.approx(np.std(parts, ddof=1))
    ordered = np.repeat(50 * np.eye(5), 20, axis=0)
    assert inception_score(ordered, splits=4).value == pytest.approx(5)


def test_weights_choose_rows_and_shift_does_nothing():
    x = logits()
    keep = np.arange(300) % 4 > 0
    weights = keep * 0.3
    expected = inception_score(x[keep], splits=1).value
    found = inception_score(x + 1000, weights, splits=1)
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert found.n_fake == 225
    counts = np.random.default_rng(0).integers(0, 4, 300)
    assert inception_score(x, counts, splits=1).value == pytest.approx(
        inception_score(np.repeat(x, counts, axis=0), splits=1).value, rel=1e-9
    )


def test_certainty_is_no_trouble():
    assert inception_score(1e4 * np.eye(3), splits=1).value == pytest.approx(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: inception_score(logits(5)), "logits must have at least one row for each of 10 splits, got 5"),
        (lambda: inception_score(logits(5), splits=0), "splits must be a whole number of at least 1"),
        (lambda: inception_score(logits(4), [1, 0, 1, 0], splits=2), "weights must not be all 0 in one of 2 splits"),
        (lambda: inception_score(logits(4)[0]), r"logits must have shape \(n, dim\)"),
        (lambda: inception_score(logits(4) * np.inf), "logits must be finite, 4 of 4"),
        (lambda: inception_score(logits(4), [1, 1], splits=1), r"weights must have shape \(4,\), got \(2,\)"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
