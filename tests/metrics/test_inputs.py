"""What every metric asks of features, weights and repeats."""

import numpy as np
import pytest
import torch

from obrs.errors import InputError, InputTypeError
from obrs.metrics._inputs import as_counts, as_features, as_masses, as_weights, own_pairs, points, same_dimension


def test_features_keep_their_library_and_precision():
    for dtype in (np.float32, np.float64):
        x = np.ones((3, 2), dtype=dtype)
        assert as_features(x, "real") is x
        kept = as_features(torch.from_numpy(x).requires_grad_(), "real")
        assert isinstance(kept, torch.Tensor)
        assert kept.dtype == getattr(torch, np.dtype(dtype).name)
        assert not kept.requires_grad
    assert as_features(torch.ones(3, 2, dtype=torch.bfloat16), "real").dtype == torch.float32
    assert as_features([[1, 2]], "real").dtype == np.float64


def test_features_of_other_libraries_become_numpy(xp):
    kept = as_features(xp.ones((3, 2)), "real")
    assert isinstance(kept, torch.Tensor if xp is torch else np.ndarray)
    assert points(xp.ones((3, 2)), "x").dtype == np.float64


def test_large_features_are_finite_though_their_sum_is_not():
    x = np.full((4, 2), 3e38, dtype=np.float32)
    assert as_features(x, "real") is x


def test_masses_sum_to_one():
    assert as_masses(None, None, 4).tolist() == [0.25] * 4
    assert as_masses([3, 1], None, 2).tolist() == [0.75, 0.25]
    assert as_masses(None, [3, 1], 2).tolist() == [0.75, 0.25]
    assert as_masses([1e308, 1e308], None, 2).tolist() == [0.5, 0.5]  # whose sum overflows
    assert as_masses(np.array([[3, 1], [1, 0]]), None, 2, many=True).tolist() == [[0.75, 0.25], [1, 0]]
    assert as_masses(torch.tensor([3.0, 1.0]), None, 2).tolist() == [0.75, 0.25]


def test_pairs_of_a_row_with_itself():
    counts = np.array([2, 3])
    repeated = as_masses(None, None, 5)
    assert own_pairs(as_masses(None, counts, 2), counts).sum() == pytest.approx(own_pairs(repeated).sum())
    assert own_pairs(as_masses(counts, None, 2)).sum() == pytest.approx(13 / 25)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: as_features([[0.0, np.nan], [0.0, 1.0]], "fake"), InputError, "fake must be finite, 1 of 2 points"),
        (lambda: as_features(torch.tensor([[np.inf]]), "fake"), InputError, "fake must be finite, 1 of 1 points"),
        (lambda: as_features(np.zeros((0, 3)), "real"), InputError, r"real must have shape \(n, dim\) .*\(0, 3\)"),
        (lambda: as_features(np.zeros(3), "real"), InputError, r"real must have shape \(n, dim\) .*\(3,\)"),
        (lambda: as_features("abc", "real"), InputTypeError, "real must be real numbers"),
        (lambda: same_dimension(np.zeros((2, 3)), np.zeros((2, 4))), InputError, "same dimension, got 3 and 4"),
        (lambda: same_dimension(np.zeros((2, 3)), torch.zeros(2, 3)), InputTypeError, "of one library, got numpy and"),
        (lambda: as_weights([1.0, -1.0], 2), InputError, "weights must be finite and at least 0, and not all 0"),
        (lambda: as_weights([[1.0, 1.0], [0.0, 0.0]], 2, many=True), InputError, "weights must be finite and at least"),
        (lambda: as_weights([[1.0, 1.0]], 2), InputError, r"weights must have shape \(2,\), got \(1, 2\)"),
        (lambda: as_weights([1.0], 2, many=True), InputError, r"shape \(2,\) or \(budgets, 2\), got \(1,\)"),
        (lambda: as_counts([1.5, 2.0], 2), InputTypeError, "counts must be integer labels, got dtype float64"),
        (lambda: as_counts([1, -2], 2), InputError, "counts must be at least 0, and not all 0"),
        (lambda: as_counts([0, 0], 2), InputError, "counts must be at least 0, and not all 0"),
        (lambda: as_counts([1], 2), InputError, r"counts must have shape \(2,\), got \(1,\)"),
        (lambda: as_masses([1, 1], [1, 1], 2), InputError, "weights and counts cannot both be given"),
    ],
)
def test_bad_input_is_one_line(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
