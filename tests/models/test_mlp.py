"""Multilayer perceptrons."""

import numpy as np
import pytest
import torch
from torch import nn

from obrs.models.mlp import mlp


def weights(net):
    return [(p.weight.detach().numpy(), p.bias.detach().numpy()) for p in net if isinstance(p, nn.Linear)]


def test_perceptron_is_what_its_matrices_say():
    net = mlp(np.array([3, 8, 8, 2])).double()
    x = np.random.default_rng(0).normal(size=(10, 3))
    h = x
    for at, (w, b) in enumerate(weights(net)):
        h = (np.maximum(h, 0) if at else h) @ w.T + b
    np.testing.assert_allclose(net(torch.as_tensor(x)).detach().numpy(), h, rtol=1e-12)


def test_spectral_norm_keeps_every_matrix_at_one():
    net = mlp((4, 32, 32, 1), spectral_norm=True)
    for _ in range(100):  # each pass in training is one step of the power iteration
        net(torch.zeros(1, 4))
    net.eval()
    for part in net:
        if isinstance(part, nn.Linear):
            assert torch.linalg.svdvals(part.weight)[0].item() == pytest.approx(1, abs=1e-3)
