"""The paper's networks: published counts and shapes, and their parts by other routes."""

import inspect
import json

import pytest
import torch
from torch import nn
from torch.nn import functional

import paper.train  # noqa: F401  # the networks by name
from obrs.errors import InputError, InputTypeError
from obrs.models.registry import build
from paper.nets import biggan
from paper.nets.biggan import BigGanCritic, BigGanGenerator
from paper.nets.cifar import CifarUNet, build_gan, has_unit, load_unit, unit_facts
from paper.nets.conv import ConvGenerator
from paper.nets.unet import UNet

# Generator, critic, and critic with two heads. The first two numbers are compare_gan's; the others are ours.
COUNTS = {
    (128, 96, 1000): (70_433_988, 87_982_370, 89_519_907),
    (64, 32, None): (8_541_443, 4_888_417, 4_889_442),
    (32, 64, 10): (4_304_387, 4_207_361, 4_210_178),
}


@pytest.fixture(autouse=True)
def _seed():
    """Networks start from the same weights in whatever order tests run."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- All of them ------------------------------------------------------------------------------------------------------

# a description, the shapes of its inputs, the shape of its output
CASES = [
    ({"name": "conv_generator", "latent": 6, "size": 28, "channels": 3, "width": 4, "classes": 5}, [(6,)], (3, 28, 28)),
    ({"name": "biggan_generator", "latent": 8, "width": 2, "classes": 5, "initial": "normal"}, [(8,)], (3, 32, 32)),
    ({"name": "biggan_critic", "width": 2, "classes": 5, "heads": 2, "attention": 16}, [(3, 32, 32)], (2,)),
    ({"name": "biggan_critic", "size": 64, "width": 2, "channels": 1, "spectral_norm": False}, [(1, 64, 64)], ()),
    ({"name": "unet", "width": 4}, [(1, 14, 14), ()], (1, 14, 14)),
    ({"name": "unet", "channels": 3, "width": 4, "multiples": [1, 2, 2], "classes": 5}, [(3, 9, 9), ()], (3, 9, 9)),
]


@pytest.mark.parametrize(
    ("spec", "inside", "outside"), CASES, ids=[f"{s['name']}{i}" for i, (s, *_) in enumerate(CASES)]
)
def test_a_network_is_built_again_from_plain_data_and_sees_one_sample_at_a_time(spec, inside, outside):
    net = build(spec)
    kinds = (ConvGenerator, BigGanGenerator, BigGanCritic, UNet)
    kind = next(kind for kind in kinds if isinstance(net, kind))
    assert set(net.spec) == {"name", *inspect.signature(kind).parameters}
    again = build(json.loads(json.dumps(net.spec)))
    again.load_state_dict(net.state_dict())
    assert again.spec == net.spec
    for weight in net.parameters():
        if not weight.any():  # a U-Net starts with some that are 0, and lets nothing through there
            nn.init.normal_(weight, std=0.1)
    net.double().eval()
    batch = [noise(3, *shape, seed=1).double().requires_grad_() for shape in inside]
    labels, none = torch.tensor([0, 4, 2]), spec.get("classes") is None
    given = batch if none else [*batch, labels]
    out = net(*given)
    assert out.shape == (3, *outside)
    alone = torch.cat([net(*(part[i : i + 1] for part in given)) for i in range(3)])
    torch.testing.assert_close(out, alone, rtol=1e-10, atol=1e-12)
    out.square().sum().backward()
    assert batch[0].grad.abs().sum() > 0
    assert not [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    wrong, words = ([*batch, labels], "no classes: call it without") if none else (batch, "5 classes: pass labels")
    with pytest.raises(InputTypeError, match=f"this network has {words}"):
        net(*wrong)


def test_a_convolutional_generator_is_a_dcgan_and_its_label_counts():
    generate, labels = ConvGenerator(4, size=28, channels=3, width=4, classes=3), torch.arange(3)
    x = generate(noise(3, 4), labels)
    assert (x.shape, bool(x.abs().max() <= 1)) == ((3, 3, 28, 28), True)
    assert not torch.allclose(x, generate(noise(3, 4), (labels + 1) % 3))
    maps = [m for m in ConvGenerator(64, size=32, width=32).body if isinstance(m, nn.ConvTranspose2d)]
    assert [(m.in_channels, m.out_channels) for m in maps] == [(128, 64), (64, 32), (32, 1)]


# --- BigGAN, and its parts by other routes ----------------------------------------------------------------------------


@pytest.mark.parametrize("key", COUNTS, ids=str)
def test_parameters_are_as_many_as_published(key):
    size, width, classes = key
    shared = {"size": size, "width": width, "classes": classes, "attention": 64 if size == 128 else 0}
    more, latent = ({"shared": 128, "hierarchical": True}, 120) if size == 128 else ({}, 128)
    with torch.device("meta"):
        nets = BigGanGenerator(latent, **shared, **more), BigGanCritic(**shared), BigGanCritic(**shared, heads=2)
        assert tuple(sum(weight.numel() for weight in net.parameters()) for net in nets) == COUNTS[key]
        labels = () if classes is None else (torch.zeros(3, dtype=torch.int64),)
        x = nets[0](torch.zeros(3, latent), *labels)
        assert x.shape == (3, 3, size, size)
        assert (nets[1](x, *labels).shape, nets[2](x, *labels).shape) == ((3,), (3, 2))
    attends = [[isinstance(block.attention, biggan._Attention) for block in net.blocks] for net in nets]
    places = [[at for at, attend in enumerate(net) if attend] for net in attends]
    assert places == ([[3], [0], [0]] if size == 128 else [[], [], []]), "after the map of that side"


def test_every_matrix_but_the_embedding_of_a_generator_is_divided_by_its_largest_singular_value():
    shared = {"size": 64, "width": 4, "classes": 5, "attention": 16}
    generator, critic = BigGanGenerator(20, **shared, shared=6, hierarchical=True), BigGanCritic(**shared, heads=2)
    layers = [layer for net in (generator, critic) for layer in net.modules()]
    matrices = [layer for layer in layers if isinstance(layer, nn.Linear | nn.Conv2d | nn.Embedding)]
    assert len(matrices) > 40
    for layer in matrices:
        for _ in range(100 if layer is not generator.embed else 0):
            largest = torch.linalg.svdvals(layer.weight.detach().flatten(1))[0]  # each look is a step of its iteration
        assert layer is generator.embed or largest == pytest.approx(1, abs=3e-2)
    assert not nn.utils.parametrize.is_parametrized(generator.embed)


def test_attention_is_that_of_torch():
    attention, x = biggan._Attention(16), noise(2, 16, 6, 6)
    assert torch.equal(attention(x), x), "it starts as nothing"
    nn.init.constant_(attention.scale, 0.7)
    query = attention.query(x).flatten(2).transpose(1, 2)
    key, value = (functional.max_pool2d(f(x), 2).flatten(2).transpose(1, 2) for f in (attention.key, attention.value))
    seen = functional.scaled_dot_product_attention(query, key, value, scale=1.0)
    expected = x + 0.7 * attention.out(seen.transpose(1, 2).reshape(2, 8, 6, 6))
    torch.testing.assert_close(attention(x), expected)


@pytest.mark.parametrize("unit", ["gan-0", "plain-0", "biggan-0"])
def test_networks_of_cifar10_see_one_image_at_a_time_and_have_two_heads(unit):
    generator, critic = (net.eval() for net in build_gan(unit))
    if has_unit(unit):
        load_unit(unit, {"generator": generator, "critic": critic})
    z, labels = noise(3, generator.latent), torch.tensor([0, 4, 9])
    with torch.no_grad():
        x = generator(z, labels)
        torch.testing.assert_close(generator(z[1:2], labels[1:2]), x[1:2], atol=1e-5, rtol=1e-4)
        assert (x.shape, critic(x, labels).shape) == ((3, 3, 32, 32), (3, 2))
        assert torch.equal(x, generator(z, (labels + 1) % 10)) == (unit == "plain-0"), "the label counts"
    size = sum(2 * t.numel() for net in (generator, critic) for t in net.state_dict().values())
    assert size < 4e6, "half precision"


def test_units_of_cifar10_are_read_and_one_that_is_not_trained_comes_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setattr("paper.nets.cifar.RUNS", tmp_path)
    (tmp_path / "scratch-dual-9.json").write_text('{"cpu_minutes": 36, "curve": [[1, 3, 2]]}')
    assert (has_unit("scratch-dual-9"), has_unit("scratch-dual-8")) == (True, False)
    assert unit_facts("scratch-dual-9")["curve"] == [[1, 3, 2]]
    assert unit_facts("edm-early-0")["steps"] == 3836
    network = CifarUNet()
    load_unit("edm-early-0", {"denoiser": network})
    assert network(noise(2, 3, 32, 32), torch.zeros(2), torch.tensor([0, 9])).shape == (2, 3, 32, 32)
    with pytest.raises(InputError, match=r"no cifar10-gan-9\.safetensors; `python -m .*train_cifar gan-9`"):
        load_unit("gan-9", {})
    with pytest.raises(InputError, match=r"cifar10-edm-early-0\.safetensors holds no critic"):
        load_unit("edm-early-0", {"critic": network})


def test_mistakes_are_one_line():
    for make, line in (
        (lambda: BigGanGenerator(size=48), "images of 32, 64 or 128 pixels a side, got 48; resize or pad"),
        (lambda: BigGanGenerator(8, hierarchical=True), "needs a multiple of 4 and a shared embedding of labels"),
    ):
        with pytest.raises(InputError, match=line):
            make()
