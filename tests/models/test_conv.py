"""Convolutional generators and critics."""

import pytest
import torch
from torch import nn

from obrs.errors import InputError, InputTypeError
from obrs.models.conv import ConvCritic, ConvGenerator


@pytest.mark.parametrize("size", [8, 12, 16, 28, 32, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_generator_and_critic_fit_at_every_size(size, channels):
    x = ConvGenerator(4, size=size, channels=channels, width=4)(torch.randn(2, 4))
    assert x.shape == (2, channels, size, size)
    assert x.abs().max() <= 1
    assert ConvCritic(size=size, channels=channels, width=4)(x).shape == (2,)


def test_32_pixels_are_a_dcgan():
    maps = [m for m in ConvGenerator(64, size=32, width=32).body if isinstance(m, nn.ConvTranspose2d)]
    assert [(m.in_channels, m.out_channels) for m in maps] == [(128, 64), (64, 32), (32, 1)]
    maps = [m for m in ConvCritic(size=32, width=32).body if isinstance(m, nn.Conv2d)]
    assert [(m.in_channels, m.out_channels) for m in maps] == [(1, 32), (32, 64), (64, 128)]


def test_label_changes_the_image_and_the_score():
    z, x, labels = torch.randn(6, 4), torch.randn(6, 1, 8, 8), torch.arange(6) % 3
    generate, critic = ConvGenerator(4, size=8, width=8, classes=3), ConvCritic(size=8, width=8, classes=3, heads=2)
    for net, given in ((generate, z), (critic, x)):
        assert not torch.allclose(net(given, labels), net(given, (labels + 1) % 3))
        assert torch.equal(net(given, labels), net(given, labels))


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


def test_no_network_has_batch_norm():
    for net in (ConvGenerator(size=32, width=4), ConvCritic(size=32, width=4)):
        assert not [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def test_labels_are_asked_for_and_refused():
    z, labels = torch.randn(2, 4), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(InputTypeError, match="this network has 3 classes: pass labels"):
        ConvGenerator(4, size=8, width=4, classes=3)(z)
    with pytest.raises(InputTypeError, match="this network has no classes: call it without labels"):
        ConvGenerator(4, size=8, width=4)(z, labels)
    with pytest.raises(InputTypeError, match="this network has 3 classes: pass labels"):
        ConvCritic(size=8, width=4, classes=3)(torch.zeros(2, 1, 8, 8))


@pytest.mark.parametrize("size", [4, 7, 27])
def test_size_that_cannot_be_halved_is_refused(size):
    for make in (ConvGenerator, ConvCritic):
        with pytest.raises(InputError, match=f"size must be an even number of at least 8 pixels, got {size}"):
            make(size=size)


def test_images_of_another_size_are_one_line():
    critic = ConvCritic(size=8, width=4)
    for shape in ((1, 10, 10), (3, 8, 8), (8, 8)):
        with pytest.raises(InputError, match=r"takes images of \(1, 8, 8\), got \(.*\); resize, pad or transpose them"):
            critic(torch.zeros(2, *shape))


def test_small_gan_learns_the_sign_of_an_image():
    """A few steps of the usual loss: real images are all light, and soon the generator's are, too."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        generate, critic = ConvGenerator(4, size=8, width=8), ConvCritic(size=8, width=8)
    rng = torch.Generator().manual_seed(0)
    first, second = (torch.optim.Adam(net.parameters(), 2e-3, betas=(0.5, 0.9)) for net in (critic, generate))
    real, softplus = torch.full((32, 1, 8, 8), 0.9), nn.functional.softplus
    for _ in range(60):
        fake = generate(torch.randn(32, 4, generator=rng))
        loss = softplus(-critic(real)).mean() + softplus(critic(fake.detach())).mean()
        first.zero_grad()
        loss.backward()
        first.step()
        second.zero_grad()
        softplus(-critic(fake)).mean().backward()
        second.step()
    assert generate(torch.randn(64, 4, generator=rng)).mean() > 0.5
