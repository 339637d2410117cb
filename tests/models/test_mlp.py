"""Multilayer perceptrons."""

import numpy as np
import pytest
import torch
from torch import nn

from obrs.errors import InputError, UnknownNameError
from obrs.models.mlp import ACTIVATIONS, mlp, mlp_critic, mlp_generator


def weights(net):
    return [(p.weight.detach().numpy(), p.bias.detach().numpy()) for p in net if isinstance(p, nn.Linear)]


def test_perceptron_is_what_its_matrices_say():
    net = mlp((3, 8, 8, 2)).double()
    x = np.random.default_rng(0).normal(size=(10, 3))
    h = x
    for at, (w, b) in enumerate(weights(net)):
        h = (np.maximum(h, 0) if at else h) @ w.T + b
    np.testing.assert_allclose(net(torch.as_tensor(x)).detach().numpy(), h, rtol=1e-12)


def test_defaults_are_the_networks_of_the_25_gaussians():
    for net, last in ((mlp_generator(), 2), (mlp_critic(), 1)):
        assert [w.shape for w, _ in weights(net)] == [(100, 2), (100, 100), (100, 100), (last, 100)]
        assert sum(isinstance(part, nn.ReLU) for part in net) == 3


def test_images_of_mnist_take_three_layers():
    generate = mlp_generator(64, (1, 28, 28), width=32, layers=2, activation="leaky_relu", output="tanh")
    x = generate(torch.randn(4, 64))
    assert x.shape == (4, 1, 28, 28)
    assert x.abs().max() < 1
    assert len(weights(generate)) == 3
    assert [part.negative_slope for part in generate if isinstance(part, nn.LeakyReLU)] == [0.2, 0.2]
    assert mlp_critic((1, 28, 28), width=32, layers=2)(x).shape == (4,)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_bends_the_network(activation):
    net = mlp((1, 16, 1), activation=activation)
    x = torch.linspace(-3, 3, 7)[:, None]
    assert torch.diff(net(x)[:, 0], n=2).abs().max() > 1e-4


def test_spectral_norm_keeps_every_matrix_at_one():
    net = mlp((4, 32, 32, 1), spectral_norm=True)
    for _ in range(100):  # each pass in training is one step of the power iteration
        net(torch.zeros(1, 4))
    net.eval()
    for part in net:
        if isinstance(part, nn.Linear):
            assert torch.linalg.svdvals(part.weight)[0].item() == pytest.approx(1, abs=1e-3)


def test_global_seed_is_used_once_per_network_and_not_by_a_call():
    net = mlp_critic()
    state = torch.get_rng_state()
    net(torch.zeros(3, 2))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mlp((3,)), InputError, r"sizes must be numbers in, hidden units, numbers out; got \[3\]"),
        (lambda: mlp((3, 0, 1)), InputError, "sizes must be a whole number of at least 1, got 0"),
        (lambda: mlp((3, 1), activation="rleu"), UnknownNameError, "unknown activation 'rleu'; did you mean 'relu'?"),
        (lambda: mlp_generator(output="tahn"), UnknownNameError, "unknown output 'tahn'; did you mean 'tanh'?"),
        (lambda: mlp_generator(0), InputError, "latent must be a whole number of at least 1, got 0"),
        (lambda: mlp_critic((1, 0)), InputError, "dim must be a whole number of at least 1, got 0"),
        (lambda: mlp_critic(layers=0), InputError, "layers must be a whole number of at least 1, got 0"),
        (lambda: mlp_critic(width=1.5), InputError, "width must be a whole number of at least 1, got 1.5"),
        (lambda: mlp_critic(heads=0), InputError, "heads must be a whole number of at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_one_line(call, error, message):
    with pytest.raises(error, match=message):
        call()
