"""What every metric asks of features, weights and labels."""

import numpy as np
import torch

from obrs.metrics._inputs import check_features, check_weights


def test_features_of_every_library_become_numpy_and_keep_their_precision(xp):
    for dtype in ("float32", "float64"):
        assert check_features(xp.ones((3, 2), dtype=getattr(xp, dtype)), "real").dtype == dtype
    x = np.ones((3, 2))
    assert check_features(x, "real") is x
    assert check_features(torch.ones(3, 2, dtype=torch.bfloat16, requires_grad=True), "real").dtype == np.float32


def test_weights_are_lines_over_their_largest():
    assert check_weights(None, 2).tolist() == [[1, 1]]
    assert check_weights(torch.tensor([4.0, 1.0]), 2).tolist() == [[1, 0.25]]
    assert check_weights([[4e307, 1.6e308], [1, 0]], 2).tolist() == [[0.25, 1], [1, 0]]
