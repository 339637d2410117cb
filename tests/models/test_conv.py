"""Convolutional critics."""

import pytest
import torch
from torch import nn

from obrs.errors import InputError, InputTypeError
from obrs.models.conv import ConvCritic


@pytest.mark.parametrize("size", [8, 12, 16, 28, 32, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_critic_takes_images_of_every_size(size, channels):
    assert ConvCritic(size=size, channels=channels, width=4)(torch.randn(2, channels, size, size)).shape == (2,)


def test_32_pixels_are_a_dcgan():
    maps = [m for m in ConvCritic(size=32, width=32).body if isinstance(m, nn.Conv2d)]
    assert [(m.in_channels, m.out_channels) for m in maps] == [(1, 32), (32, 64), (64, 128)]


def test_projection_adds_a_head_per_class():
    critic = ConvCritic(size=8, width=8, classes=3, heads=2).double()
    x, labels = torch.randn(6, 1, 8, 8, dtype=torch.float64), torch.arange(6) % 3
    h = critic.features(x)
    own = critic.embed.weight.reshape(3, 2, -1)
    expected = [(critic.head.weight + own[k]) @ row + critic.head.bias for k, row in zip(labels, h, strict=True)]
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


def test_a_critic_has_no_batch_norm():
    assert not [m for m in ConvCritic(size=32).modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def test_labels_are_asked_for_and_refused():
    x, labels = torch.zeros(2, 1, 8, 8), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(InputTypeError, match="this network has 3 classes: pass labels"):
        ConvCritic(size=8, width=4, classes=3)(x)
    with pytest.raises(InputTypeError, match="this network has no classes: call it without labels"):
        ConvCritic(size=8, width=4)(x, labels)
    with pytest.raises(InputError, match="classes must be a whole number of at least 1, got 0"):
        ConvCritic(size=8, width=4, classes=0)


@pytest.mark.parametrize("size", [4, 7, 27])
def test_size_that_cannot_be_halved_is_refused(size):
    with pytest.raises(InputError, match=f"size must be an even number of at least 8 pixels, got {size}"):
        ConvCritic(size=size)


def test_images_of_another_size_are_one_line():
    critic = ConvCritic(size=8, width=4)
    for shape in ((1, 10, 10), (3, 8, 8), (8, 8)):
        with pytest.raises(InputError, match=r"takes images of \(1, 8, 8\), got \(.*\); resize, pad or transpose them"):
            critic(torch.zeros(2, *shape))


def test_a_critic_learns_the_sign_of_an_image():
    critic, rng = ConvCritic(size=8, width=8), torch.Generator().manual_seed(0)
    adam, signs = torch.optim.Adam(critic.parameters(), 2e-3), torch.arange(64) % 2 * 2.0 - 1
    for _ in range(30):
        x = signs[:, None, None, None] * torch.rand(64, 1, 8, 8, generator=rng)
        loss = nn.functional.softplus(-signs * critic(x)).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    assert loss < 0.3 < nn.functional.softplus(torch.tensor(0.0))
