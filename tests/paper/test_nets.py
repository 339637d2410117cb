"""The paper's networks: published counts and shapes, their parts by other routes, and the layout of checkpoints."""

import inspect
import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

import paper.train  # noqa: F401  # the networks by name
from obrs.errors import InputError, InputTypeError
from obrs.models.registry import build
from paper.nets import biggan
from paper.nets.biggan import BigGanCritic, BigGanGenerator, exported, load_checkpoint
from paper.nets.cifar import CifarUNet, build_gan, has_unit, load_unit
from paper.nets.conv import ConvGenerator
from paper.nets.unet import UNet

# Generator, critic, and critic with two heads. The first two numbers are compare_gan's; the others are ours.
COUNTS = {
    (128, 96, 1000): (70_433_988, 87_982_370, 89_519_907),
    (64, 32, None): (8_541_443, 4_888_417, 4_889_442),
    (32, 64, 10): (4_304_387, 4_207_361, 4_210_178),
}


@pytest.fixture(autouse=True)
def _seeded():
    """Networks start from the same weights in whatever order tests run."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def small():
    """A generator and a critic of 64 pixels with everything that there is."""
    shared = {"size": 64, "width": 4, "classes": 5, "attention": 16}
    return BigGanGenerator(20, **shared, shared=6, hierarchical=True), BigGanCritic(**shared, heads=2)


# --- All of them ------------------------------------------------------------------------------------------------------

# a description, the shapes of its inputs, the shape of its output
CASES = [
    ({"name": "conv_generator", "latent": 6, "size": 8, "width": 8}, [(6,)], (1, 8, 8)),
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
    wrong, said = ([*batch, labels], "no classes: call it without") if none else (batch, "5 classes: pass labels")
    with pytest.raises(InputTypeError, match=f"this network has {said}"):
        net(*wrong)


@pytest.mark.parametrize("size", [8, 12, 28, 32, 64])
def test_a_convolutional_generator_makes_images_of_every_size(size):
    generate, labels = ConvGenerator(4, size=size, channels=3, width=4, classes=3), torch.arange(3)
    x = generate(noise(3, 4), labels)
    assert x.shape == (3, 3, size, size)
    assert x.abs().max() <= 1
    assert not torch.allclose(x, generate(noise(3, 4), (labels + 1) % 3))
    assert not [m for m in generate.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    maps = [m for m in ConvGenerator(64, size=32, width=32).body if isinstance(m, nn.ConvTranspose2d)]
    assert [(m.in_channels, m.out_channels) for m in maps] == [(128, 64), (64, 32), (32, 1)], "a DCGAN"
    with pytest.raises(InputError, match=f"size must be an even number of at least 8 pixels, got {size - 1}"):
        ConvGenerator(size=size - 1)


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
    places = [[at for at, found in enumerate(net) if found] for net in attends]
    assert places == ([[3], [0], [0]] if size == 128 else [[], [], []]), "after the map of that side"


def test_spectral_norm_is_the_largest_singular_value():
    generator, critic = small()
    layers = [layer for net in (generator, critic) for layer in net.modules()]
    matrices = [layer for layer in layers if isinstance(layer, nn.Linear | nn.Conv2d | nn.Embedding)]
    for _ in range(100):
        for layer in matrices:
            _ = layer.weight  # in training each look is one step of the power iteration
    generator.eval()
    critic.eval()
    assert len(matrices) > 40
    for layer in matrices:
        if layer is not generator.embed:
            assert torch.linalg.svdvals(layer.weight.flatten(1))[0].item() == pytest.approx(1, abs=3e-2)
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


def test_units_of_cifar10_are_read_and_one_that_is_not_trained_comes_with_its_command():
    network = CifarUNet()
    load_unit("edm-early-0", {"denoiser": network})
    assert network(noise(2, 3, 32, 32), torch.zeros(2), torch.tensor([0, 9])).shape == (2, 3, 32, 32)
    with pytest.raises(InputError, match=r"no cifar10-gan-9\.safetensors; `python -m .*train_cifar gan-9`"):
        load_unit("gan-9", {})
    with pytest.raises(InputError, match=r"cifar10-edm-early-0\.safetensors holds no critic"):
        load_unit("edm-early-0", {"critic": network})


# --- Public checkpoints -----------------------------------------------------------------------------------------------


def after_some_passes(network):
    """The network with statistics and singular vectors that are not those it began with."""
    generator = torch.Generator().manual_seed(3)
    for name, x in network.state_dict().items():
        if name.endswith(("running_mean", "scale", "bias", "shift")):
            x += 0.3 * torch.randn(x.shape, generator=generator)
        if name.endswith("running_var"):
            x *= 1.7
    return network.eval()


@pytest.mark.parametrize(
    ("kind", "suffix"), [(32, ".pth"), (64, ".pth"), (128, ".safetensors"), ("all", ".safetensors"), ("no", ".pth")]
)
def test_a_checkpoint_comes_back(tmp_path, kind, suffix):
    shared = {"size": kind if isinstance(kind, int) else 64, "width": 2, "classes": None if kind == "no" else 4}
    more = {"shared": 3, "hierarchical": True} if kind in ("all", "no") else {}
    more |= {"attention": 32} if kind == "all" else {}
    shared |= {"channels": 1} if kind == "all" else {}
    z, labels = noise(2, 20), [] if kind == "no" else [torch.tensor([1, 3])]
    generator, critic = (
        after_some_passes(BigGanGenerator(20, **shared, **more)),
        after_some_passes(BigGanCritic(**shared)),
    )
    for network, given in ((generator, z), (critic, generator(z, *labels).detach())):
        path = tmp_path / f"network{suffix}"
        save_file(exported(network), path) if suffix == ".safetensors" else torch.save(exported(network), path)
        again = load_checkpoint(path, type(network)(**{k: v for k, v in network.spec.items() if k != "name"}))
        assert not again.training
        torch.testing.assert_close(again(given, *labels), network(given, *labels), rtol=1e-4, atol=1e-4)
    both = load_checkpoint(path, BigGanCritic(**shared, heads=2))(given, *labels)
    alone = torch.stack([again(given, *labels)] * 2, dim=1)
    torch.testing.assert_close(both, alone, msg="a second head starts as the first")


def by_hand(tensors, x, label):
    """A critic of 32 pixels from the names of the public layout alone, as its layers are described."""

    def weight(name):
        w = tensors[f"{name}.weight"]
        v = functional.normalize(tensors[f"{name}.u0"] @ w.flatten(1))
        u = functional.normalize(v @ w.flatten(1).T)
        return w / (v @ w.flatten(1).T @ u.T).squeeze()

    def conv(name, h):
        w = weight(name)
        return functional.conv2d(h, w, tensors[f"{name}.bias"], padding=w.shape[-1] // 2)

    for at in range(4):
        name, pool = f"blocks.{at}.0", nn.AvgPool2d(2) if at < 2 else nn.Identity()
        h = conv(f"{name}.conv2", conv(f"{name}.conv1", x.relu() if at else x).relu())
        x = pool(h) + (pool(conv(f"{name}.conv_sc", x)) if at < 2 else x)
    h = x.relu().sum((2, 3))
    return (h @ weight("linear").T + tensors["linear.bias"])[:, 0] + (weight("embed")[label] * h).sum(1)


def test_a_checkpoint_means_what_its_layout_says():
    critic = after_some_passes(BigGanCritic(width=4, classes=4))
    x, label = noise(3, 3, 32, 32), torch.tensor([2, 0, 3])
    torch.testing.assert_close(critic(x, label), by_hand(exported(critic), x, label), rtol=1e-4, atol=1e-4)
    names = set(exported(small()[0]))
    assert {"shared.weight", "linear.weight", "linear.bias", "linear.u0"} <= names
    assert {f"blocks.3.0.{p}.{w}" for p in ("conv1", "conv2", "conv_sc") for w in ("weight", "bias", "u0")} <= names
    assert {f"blocks.0.0.bn{k}.{part}.weight" for k in (1, 2) for part in ("gain", "bias")} <= names
    assert {"blocks.0.0.bn1.stored_mean", "blocks.1.1.gamma", "output_layer.0.stored_var"} <= names
    assert {f"blocks.1.1.{part}.weight" for part in ("theta", "phi", "g", "o")} <= names
    assert not [name for name in names if "param" in name or "norm" in name or name.endswith("_v")]


@pytest.mark.parametrize(
    ("name", "shape", "line"),
    [
        ("blocks.1.0.bn2.stored_mean", None, r"blocks.1.0.bn2.stored_mean has nothing there and shape \(8,\) here"),
        ("blocks.2.0.conv2.weight", (8, 7, 3, 3), r"has shape \(8, 7, 3, 3\) there and shape \(8, 8, 3, 3\) here"),
        ("blocks.1.0.conv9.weight", (1,), "blocks.1.0.conv9.weight is there and not here"),
    ],
)
def test_another_checkpoint_is_refused_with_the_first_key_that_differs(tmp_path, name, shape, line):
    tensors = exported(BigGanGenerator(8, width=2, classes=4))
    tensors.pop(name) if shape is None else tensors.update({name: torch.zeros(shape)})
    save_file(tensors, tmp_path / "G.safetensors")
    with pytest.raises(InputError, match=f"G.safetensors is not this BigGAN: .*{line}$"):
        load_checkpoint(tmp_path / "G.safetensors", BigGanGenerator(8, width=2, classes=4))


class Evil:
    def __reduce__(self):
        return print, ("this must not be run",)


def test_nothing_but_tensors_is_read(tmp_path, capsys):
    torch.save({"linear.weight": Evil()}, tmp_path / "G.pth")
    torch.save({"state": {"linear.weight": torch.zeros(1)}}, tmp_path / "nested.pth")
    with pytest.raises(InputError, match=r"G\.pth is not a file of tensors: "):
        load_checkpoint(tmp_path / "G.pth", BigGanGenerator(8, width=2))
    with pytest.raises(InputError, match=r"nested\.pth must hold one state_dict"):
        load_checkpoint(tmp_path / "nested.pth", BigGanGenerator(8, width=2))
    assert "must not" not in capsys.readouterr().out


def test_mistakes_are_one_line():
    deep = {"size": 128, "shared": 8, "hierarchical": True}
    for make, line in (
        (lambda: BigGanGenerator(size=48), "images of 32, 64 or 128 pixels a side, got 48; resize or pad"),
        (lambda: BigGanGenerator(8, hierarchical=True), "needs a shared embedding of labels; set shared"),
        (lambda: BigGanGenerator(128, **deep), "latent of 128 pixels has 6 equal parts, got 128; take 126"),
        (lambda: BigGanCritic(attention=12), "attention must be 0 or the side of a map, 8, 16, 32, got 12"),
        (lambda: BigGanCritic(attention=16, width=1), "that of side 16 has 4; take a larger width"),
        (lambda: BigGanCritic(width=2)(torch.zeros(1, 3, 8, 8)), r"takes images of \(3, 32, 32\), got"),
    ):
        with pytest.raises(InputError, match=line):
            make()
