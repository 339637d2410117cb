"""Batches: one reading of arrays, tuples and mappings, with labels that stay with their samples."""

import numpy as np
import pytest
import torch

from obrs.errors import InputError, InputTypeError
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


def test_functions_get_labels_if_there_are_some():
    assert Batch.read(X).call(lambda *parts: len(parts)) == 1
    assert Batch.read((X, Y)).call(lambda *parts: len(parts)) == 2


def test_features_have_a_gradient_only_where_samples_ask_for_one():
    x = torch.as_tensor(X)
    assert not Batch(x).features(lambda x: x * torch.ones(2, requires_grad=True)).x.requires_grad
    assert Batch(x.clone().requires_grad_()).features(lambda x: 2 * x).x.requires_grad


@pytest.mark.parametrize(
    ("given", "columns", "error", "message"),
    [
        ([[1.0, 2.0]], None, InputTypeError, r"real must be an array of samples, or a tuple \(x, label\).* got list"),
        ((X, Y, Y), None, InputTypeError, "got a tuple of ndarray, ndarray, ndarray"),
        ((X, Y.tolist()), None, InputTypeError, "got a tuple of ndarray, list"),
        ({"a": X, "b": Y}, None, InputTypeError, "real is a mapping of 'a', 'b'; name its samples and labels: columns"),
        ({"a": X, "b": Y}, ("a", "c"), InputTypeError, "name its samples and labels"),
        (X, ("a", "b"), InputTypeError, "columns are for a mapping, real is a ndarray"),
        (X[:, 0], None, InputError, r"samples of shape \(n, ...\) .* got \(6,\) on cpu; use x\[:, None\]"),
        (torch.empty(5, 2, device="meta"), None, InputError, "on meta"),
        ((X, Y[1:]), None, InputError, r"real has 6 samples and labels of shape \(5,\); give one label per sample"),
        ((X, Y[:, None]), None, InputError, "give one label per sample"),
        ((X, Y / 2), None, InputTypeError, "labels that are integers, got torch.float64; .* join it to x"),
        ((X, np.repeat("cat", 6)), None, InputTypeError, "got dtype <U3; number labels with np.unique"),
    ],
)
def test_what_is_no_batch_is_one_line(given, columns, error, message):
    with pytest.raises(error, match=message) as caught:
        Batch.read(given, columns, "real")
    assert "\n" not in str(caught.value)


def test_values_that_are_not_finite_are_counted():
    with pytest.raises(InputError, match="real has 2 NaN or infinite among 12 values"):
        Batch.read(np.where(X < 2, np.nan, X)).check("real")
    with pytest.raises(InputError, match=r"real is empty, shape \(0, 2\)"):
        Batch.read(X[:0]).check("real")
