"""Batches: one reading of arrays, tuples and mappings, with labels that stay with their samples."""

import numpy as np
import pytest
import torch

from obrs.ratios.batch import Batch

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6)


@pytest.mark.parametrize(
    ("given", "columns", "labelled"),
    [
        (X, None, False),
        (torch.as_tensor(X), None, False),
        ((X,), None, False),
        ((X, Y), None, True),
        ({"image": X, "digit": Y, "id": Y}, ("image", "digit"), True),
        ({"image": X, "digit": Y}, ("image",), False),
    ],
)
def test_every_form_is_read_once(given, columns, labelled):
    batch = Batch.read(given, columns)
    np.testing.assert_array_equal(batch.x, X)
    assert (batch.y is not None) == labelled
    assert (len(batch), batch.shape) == (6, (2,))


def test_labels_stay_with_their_samples():
    batch = Batch.read((X, Y))
    parts = [*batch.blocks(4), batch[torch.tensor([5, 0])], Batch.join([batch[3:], batch[:3]])]
    parts.append(batch.features(lambda x, y: x, size=2))
    for part in parts:
        assert torch.equal(part.x[:, 0].long(), 2 * part.y)
    assert [len(part) for part in batch.blocks(4)] == [4, 2]


def test_features_have_a_gradient_only_where_samples_ask_for_one():
    x = torch.as_tensor(X)
    assert not Batch(x).features(lambda x: x * torch.ones(2, requires_grad=True)).x.requires_grad
    assert Batch(x.clone().requires_grad_()).features(lambda x: 2 * x).x.requires_grad
