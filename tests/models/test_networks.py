"""Every network in the registry: described by plain data, built again from it, one sample at a time."""

import copy
import json

import pytest
import torch
from torch import nn

from obrs.models.registry import NETWORKS, build

# a description, the shape of one input, the shape of its output; conditional networks get labels
CASES = [
    ({"name": "mlp", "sizes": [6, 8, 3], "activation": "silu"}, (2, 3), (3,)),
    ({"name": "mlp", "sizes": [4, 5], "spectral_norm": True}, (4,), (5,)),
    ({"name": "mlp_generator"}, (2,), (2,)),
    ({"name": "mlp_generator", "latent": 5, "dim": [1, 7, 7], "width": 16, "output": "tanh"}, (5,), (1, 7, 7)),
    ({"name": "mlp_critic"}, (2,), ()),
    ({"name": "mlp_critic", "dim": [1, 4, 4], "width": 16, "heads": 2, "activation": "leaky_relu"}, (1, 4, 4), (2,)),
    ({"name": "mlp_critic", "dim": 3, "width": 16, "spectral_norm": True}, (3,), ()),
    ({"name": "conv_critic", "size": 8, "width": 8}, (1, 8, 8), ()),
    ({"name": "conv_critic", "size": 16, "channels": 3, "width": 4, "heads": 2, "classes": 5}, (3, 16, 16), (2,)),
    ({"name": "conv_critic", "size": 16, "width": 4, "classes": 5, "spectral_norm": True}, (1, 16, 16), ()),
    ({"name": "mlp_critic", "dim": 3, "waves": 8, "heads": 2, "spectral_norm": True}, (3,), (2,)),
    ({"name": "classifier", "size": 8, "width": 4}, (1, 8, 8), (10,)),
    ({"name": "classifier", "size": 28, "channels": 3, "classes": 4, "width": 4}, (3, 28, 28), (4,)),
]
each_network = pytest.mark.parametrize(
    ("spec", "inside", "outside"), CASES, ids=[f"{spec['name']}{at}" for at, (spec, *_) in enumerate(CASES)]
)


def build_seeded(spec, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(spec)


def inputs(spec, inside, n=5):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, *inside, generator=generator)
    conditional = spec.get("classes") and not spec["name"].endswith("classifier")
    return (x, torch.arange(n) % spec["classes"]) if conditional else (x,)


def test_every_network_has_a_case():
    assert {spec["name"] for spec, *_ in CASES} == {name for name, place in NETWORKS.items() if "obrs." in place}


@each_network
def test_shapes_are_as_promised(spec, inside, outside):
    assert build(spec)(*inputs(spec, inside)).shape == (5, *outside)


@each_network
def test_description_is_plain_data_that_builds_the_same_network(spec, inside, outside):
    net = build_seeded(spec)
    assert spec.items() <= net.spec.items()
    again = build_seeded(json.loads(json.dumps(net.spec)))
    assert again.spec == net.spec
    torch.testing.assert_close(again.state_dict(), net.state_dict(), rtol=0, atol=0)
    assert copy.deepcopy(net).spec == net.spec


@each_network
def test_seed_decides_the_weights(spec, inside, outside):
    weights = [nn.utils.parameters_to_vector(build_seeded(spec, seed).parameters()) for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@each_network
def test_one_sample_does_not_depend_on_the_others(spec, inside, outside):
    net = build_seeded(spec).double().eval()
    batch = [part.double() if part.is_floating_point() else part for part in inputs(spec, inside)]
    alone = torch.cat([net(*(part[i : i + 1] for part in batch)) for i in range(5)])
    torch.testing.assert_close(net(*batch), alone, rtol=1e-10, atol=1e-12)


@each_network
def test_gradient_reaches_every_weight_and_the_input(spec, inside, outside):
    net = build_seeded(spec).eval()
    batch = inputs(spec, inside, n=64)
    batch[0].requires_grad_()
    (net(*batch) ** 2).sum().backward()
    assert batch[0].grad.abs().sum() > 0
    silent = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not silent
