"""Convolutional critics."""

import pytest
import torch
from torch import nn

from obrs.models.conv import ConvCritic


def test_projection_adds_a_head_per_class():
    critic = ConvCritic(size=8, width=8, classes=3, heads=2).double()
    x, labels = torch.randn(6, 1, 8, 8, dtype=torch.float64), torch.arange(6) % 3
    h = critic.features(x)
    weight = critic.embed.weight.reshape(3, 2, -1)
    expected = [(critic.head.weight + weight[k]) @ row + critic.head.bias for k, row in zip(labels, h, strict=True)]
    torch.testing.assert_close(critic(x, labels), torch.stack(expected))


def test_spectral_norm_takes_the_place_of_group_norm():
    critic = ConvCritic(size=16, width=8, classes=3, spectral_norm=True)
    assert not [m for m in critic.modules() if isinstance(m, nn.GroupNorm)]
    assert [m for m in ConvCritic(size=16, width=8).modules() if isinstance(m, nn.GroupNorm)]
    for _ in range(200):
        critic(torch.zeros(1, 1, 16, 16), torch.zeros(1, dtype=torch.int64))
    critic.eval()
    matrices = [m.weight for m in critic.modules() if isinstance(m, nn.Conv2d | nn.Linear | nn.Embedding)]
    assert len(matrices) == 4
    for matrix in matrices:
        assert torch.linalg.svdvals(matrix.flatten(1))[0].item() == pytest.approx(1, abs=1e-2)
